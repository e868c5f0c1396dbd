/* SPDX-License-Identifier: MIT
 *
 * store_session.h: what the server knows of one client: bytes that came in, how far they have been
 * understood, replies that are to go out. No sockets here: the owner puts bytes into `in`, calls
 * ko_session_run, and takes bytes out of `out`. A message may come in any pieces, and many may come
 * at once. Every length is checked against its cap before memory is taken for it; the sum of those
 * of a MULTI_SET has none but the buffers' memory, as with PyTorch's servers.
 *
 * A reply to MULTI_GET, which may be of any length, is put together in pieces, as the client reads;
 * one to LIST_KEYS in turns, since it begins with the number of keys, and then given so: the
 * buffers' memory is its limit.
 *
 * The first bytes tell whether a client is one of PyTorch 2.2 and on. An older one shows whether it
 * is of 2.1 or of 1.13 and 2.0 when it first sends an opcode that these number differently. Those
 * that only 2.1 has tell by themselves. The others are 7, DELETE or WATCH of a key, and 8, APPEND
 * or DELETE: a client of 1.13 keeps a second connection, on which it watches, and on which nothing
 * else comes; on its first one it waits for the answer of a DELETE, so that nothing comes behind
 * that. So 7 behind another message is a DELETE; first of all it is a WATCH, if the connection may
 * be such a second one; 8 is an APPEND if there is more behind the key, and a DELETE if there is
 * not, and such a second connection; if neither is to be seen yet, the session is unsure, and asks
 * again when it runs.
 *
 * A session is run in turns of some microseconds, so that others wait no longer for it however much
 * a client sends at once. A turn counts what it does rather than look at a clock. It may end
 * between two messages, within a message between two keys of a list, and within a large value:
 * others may see a part of a MULTI_SET, but a value whole or not at all. A CHECK says of each key
 * whether it was there when it was looked at. A LIST_KEYS has each key that is there all the while,
 * and may have one that comes or goes meanwhile. Who waits for what a client stores is woken in the
 * client's turns, and answered even if that is deleted before; who gives up before he is woken has
 * given up. Who watches what it changes is told of that in these turns as well, of one change after
 * the other, whoever makes them; and if he asks for something himself, he is told first of what had
 * changed when his turn came.
 *
 * MULTI_GET of absent keys, and GET of an old client's, are answered when the keys have come, as
 * WAIT is; a GET of today's at once, with an empty value. Until then nothing behind them is looked
 * at but a CANCEL_WAIT, and of a client of 1.13 whatever comes. To a client of 1.13 that watches
 * keys updates go out unasked. A client's WILL, which is kolo's own, is appended when it has gone.
 */
#ifndef KO_STORE_SESSION_H
#define KO_STORE_SESSION_H

#include "store_table.h"
#include "store_will.h"
#include "store_wire.h"

#include <stdbool.h>
#include <sys/queue.h>

/* With so much unsent output a session neither runs nor wants input. */
#define KO_SESSION_OUTPUT_BOUND ((size_t)1 << 20)
/* With so much a client that watches keys is cut off: nobody waits until it reads. */
#define KO_SESSION_UPDATES_BOUND ((size_t)64 << 20)

/* So much is read of a client at once. */
#define KO_SESSION_READ_MOST ((size_t)32 << 10)

struct ko_operation;
struct ko_piece;
struct ko_session;
struct ko_update;

/* Of the two connections of a client of 1.13: on the first one it asks, on the second it watches.
 */
enum ko_half { KO_HALF_FIRST, KO_HALF_SECOND };

/* What the sessions of a server share. */
struct ko_service {
    struct ko_table *table;
    struct ko_budget budget; /* of all sessions' buffers */
    /* True if there is a connection that may be the other one of a client of 1.13, of which the
     * session is that half. NULL: there is none. */
    bool (*has_other_half)(struct ko_session *session, enum ko_half half);
    struct ko_session *at_work; /* whose turn it is; NULL: nobody's */
};

struct ko_session {
    struct ko_waiter waiter; /* first, so that a waiter is its session */
    struct ko_observer observer;
    struct ko_service *service;
    struct ko_buffer in;
    struct ko_buffer out; /* the end of its output (store_output.h) */
    struct {
        STAILQ_HEAD(, ko_piece) list;
        size_t nbytes, room, paid;
    } aside; /* what goes out before that */
    struct ko_will will;
    struct ko_wakes wakes;    /* who waits for what it has stored, or is to be told of it */
    struct ko_item *dropping; /* what was in a queue that has been deleted; NULL: nothing */
    struct {
        char *value; /* of the table; NULL: none */
        size_t nbytes, filled;
    } making;                   /* a large value, which is copied in turns to where it is to be */
    struct ko_append appending; /* a long tail, or to a large value */
    struct {
        bool is_on;
        struct ko_view *view; /* NULL: it is of the message */
        size_t nbytes, given;
    } giving; /* a large value, which the reply gets in turns */
    struct {
        struct ko_view *view; /* NULL: nothing is */
        size_t nbytes;        /* that are equal */
    } comparing;              /* a large value, by a COMPARE_SET */
    struct {
        struct ko_buffer keys; /* that have not been given yet */
        size_t place;
        bool is_whole;
    } listing; /* of a LIST_KEYS; scan.done: the keys that are in it */
    struct {
        STAILQ_HEAD(, ko_update) list;
        size_t nbytes; /* of them, with what they will give */
    } updates;
    void (*woken)(struct ko_session *session); /* asks the owner to run it soon; may be NULL */
    enum ko_wire_numbering numbering;
    bool is_introduced; /* it has sent a whole message */
    bool deferred;      /* the message at in's head is understood, and waits */
    bool awake;         /* what it waits for has come */
    bool is_swamped;    /* an update found no room */
    bool is_leaving;    /* it is being closed */
    bool has_more;      /* its turn is over, and it is to be run again behind the others */
    int64_t left;       /* of its turn, in about nanoseconds */
    struct {
        const struct ko_operation *operation; /* NULL before the opcode */
        size_t field;                         /* next one of its fields */
        uint64_t items;                       /* of a list, that are not complete yet */
        size_t at;                            /* bytes of the message understood so far */
        size_t need;                          /* bytes that the next field lacks */
        uint64_t done;                        /* items of a list that have been dealt with */
        size_t done_nbytes;                   /* of them */
        bool is_giving; /* a MULTI_GET's keys have come; done: values that are in out */
        bool is_behind; /* it comes behind what its client is to be told of keys that it watches */
    } scan;
};

void ko_session_open(struct ko_session *session, struct ko_service *service,
                     void (*woken)(struct ko_session *session));

/* True if it is an old client's, and waits for what tells whether its message is an APPEND of 2.1
 * or a DELETE of 1.13. */
bool ko_session_is_unsure(const struct ko_session *session);

/* Answers what can be answered in one turn, behind which has_more says whether it is to be run
 * again. An error means that the client is to be cut off: KOLO_E_PROTOCOL, KOLO_E_INVALID,
 * KOLO_E_NOMEM, or KOLO_E_ABORTED, when it has given up what cannot be taken back. */
int ko_session_run(struct ko_session *session);

/* How many bytes to make room for before the next read; 0: read nothing now. */
size_t ko_session_wants(const struct ko_session *session);

/* True if a queue's value has woken the client, which may be about to pop it: until its next
 * message, or ko_session_end_claim, the value wakes nobody else. */
bool ko_session_has_claim(const struct ko_session *session);
void ko_session_end_claim(struct ko_session *session);

/* Counts an item of so many bytes against its turn. */
void ko_session_spend(struct ko_session *session, size_t nbytes);
/* Drops what its turn has time for of what is left of a queue; true when all is. */
bool ko_session_drop_some(struct ko_session *session);

/* Ends its wait, carries out its will and frees its buffers. */
void ko_session_close(struct ko_session *session);
/* The same, of what is much as much as a turn has time for; true when it has ended. */
bool ko_session_close_some(struct ko_session *session);

#endif
