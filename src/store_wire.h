/* SPDX-License-Identifier: MIT
 *
 * store_wire.h: bytes as they travel between a TCP store's client and server. The format is that of
 * PyTorch's TCPStore: an opcode, then integers in little-endian order and strings as a 64-bit
 * length and their bytes; no message length, replies in the order of requests.
 *
 * There have been three numberings of the operations. That of 1.13 and 2.0 goes from SET 0 to
 * GETNUMKEYS 6, and on with WATCH 7 and DELETE 8. 2.1 goes on with DELETE 7, APPEND 8, MULTI_GET 9,
 * MULTI_SET 10 and CANCEL_WAIT 11. 2.2 and later begin with VALIDATE 0 and have those of 2.1 one
 * higher, PING 13 since 2.5, and what came later behind it. (One that had WATCH 7 to CANCEL_WAIT 12
 * without VALIDATE was in no release.) store_session.h says how the first two are told apart.
 */
#ifndef KO_STORE_WIRE_H
#define KO_STORE_WIRE_H

#include "store.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KO_WIRE_MAGIC 0x3C85F7CEu /* VALIDATE's argument */

enum ko_wire_numbering {
    KO_WIRE_UNKNOWN,
    KO_WIRE_MODERN,  /* PyTorch 2.2 and on: the values of enum ko_store_op */
    KO_WIRE_EARLY_2, /* servers of 2.2 to 2.4: the same operations, up to PING */
    KO_WIRE_OLD,     /* 2.1, or 1.13, as long as it says nothing that only that means otherwise */
    KO_WIRE_2_1,
    KO_WIRE_1_13 /* and 2.0 */
};

/* The operation that an opcode means, the opcode of an operation; -1 if there is none. */
int ko_wire_operation(enum ko_wire_numbering numbering, uint8_t opcode);
int ko_wire_opcode(enum ko_wire_numbering numbering, enum ko_store_op op);

/* What the first nbytes of a client's stream say; UNKNOWN while they are too few. */
enum ko_wire_numbering ko_wire_guess(const uint8_t *bytes, size_t nbytes);

/* The opcode of a WILL, far from those that PyTorch may come to give out. */
enum { KO_WIRE_WILL = 0xF0 };

/* One-byte replies. */
enum { KO_WIRE_READY = 0, KO_WIRE_NOT_READY = 1 };            /* to CHECK */
enum { KO_WIRE_STOP_WAITING = 0, KO_WIRE_WAIT_CANCELED = 1 }; /* to WAIT, to CANCEL_WAIT */
enum { KO_WIRE_WATCHING = 3 };                                /* to WATCH */

/* A budget that buffers share: their memory beyond a small free part each counts against it. What
 * they expect is not used yet; they take no more than cap for that in all. */
struct ko_budget {
    size_t used, expected, cap;
};

/* A queue of bytes: put in at tail, taken out at head. All zero is an empty one. */
struct ko_buffer {
    uint8_t *data;
    size_t head, tail, cap;
    size_t room;              /* of its memory; cap is what is used of that */
    size_t expected;          /* how much of the budget's is its */
    size_t touched;           /* of a room that it stays in, at most so much; 0: it may move */
    struct ko_budget *budget; /* NULL: no limit */
};

/* What a buffer may hold without asking its budget. */
#define KO_BUFFER_FREE_PART ((size_t)16 << 10)

size_t ko_buffer_fill(const struct ko_buffer *buffer);
/* What it counts for with its budget. */
size_t ko_buffer_paid(const struct ko_buffer *buffer);
const uint8_t *ko_buffer_bytes(const struct ko_buffer *buffer);
/* Makes room for nbytes more at tail; KOLO_E_NOMEM changes nothing. */
int ko_buffer_reserve(struct ko_buffer *buffer, size_t nbytes);
/* It will come to hold nbytes more. Takes memory for them, if there is, so that what it holds need
 * not move as they come, which is when they count as used. */
void ko_buffer_expect(struct ko_buffer *buffer, size_t nbytes);
/* It has something, and may come to hold all that its budget allows: from now on what it holds does
 * not move. False: there are no addresses for that. */
bool ko_buffer_stay(struct ko_buffer *buffer);
/* Drops nbytes at head; a buffer that becomes empty gives back what is beyond its free part: one
 * that stays to the budget, and the memory then in pieces. */
void ko_buffer_consume(struct ko_buffer *buffer, size_t nbytes);
/* Whether there are such pieces left; gives back one, and returns its length. */
bool ko_buffer_has_rest(const struct ko_buffer *buffer);
size_t ko_buffer_drop_some(struct ko_buffer *buffer);
void ko_buffer_free(struct ko_buffer *buffer);

/* These append. Room must have been reserved: 1, 4, 8, and 8 + nbytes. */
void ko_buffer_put_u8(struct ko_buffer *buffer, uint8_t value);
void ko_buffer_put_u32(struct ko_buffer *buffer, uint32_t value);
void ko_buffer_put_u64(struct ko_buffer *buffer, uint64_t value);
void ko_buffer_put_bytes(struct ko_buffer *buffer, kolo_bytes bytes);

/* A list is one piece of memory with items behind one another, each as a 64-bit length and its
 * bytes. */
int ko_list_put(struct ko_buffer *list, kolo_bytes item);
/* The next item of a list that is known to be whole; moves *at behind it. */
kolo_bytes ko_list_next(const uint8_t **at);
/* Leaves of nitems keys those that begin with prefix, without it. Returns how many; *nbytes is the
 * list's new length. */
size_t ko_list_strip(uint8_t *list, size_t nitems, kolo_bytes prefix, size_t *nbytes);

uint32_t ko_wire_u32(const uint8_t *at);
uint64_t ko_wire_u64(const uint8_t *at);

#endif
