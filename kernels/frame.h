/* SPDX-License-Identifier: MIT
 *
 * frame.h: the 32 bytes in front of every message between two ranks, the same in a slot of shared
 * memory and on a wire (little-endian; kolo's hosts all are).
 */
#ifndef KO_FRAME_H
#define KO_FRAME_H

#include "portable.h"

#include <stdbool.h>

/* What a call says of itself on every message, so that a peer that made another call notices. */
struct ko_stamp {
    uint64_t seq; /* collectives: number of the call on its group; point to point: of the message */
    uint64_t
        count; /* collectives: elements, as the caller gave them; point to point: bytes in all */
    union {
        struct {
            uint32_t root; /* the root, 0 if there is none; a number for the options of an
                              all_reduce, for the lengths of several tensors (behind the root, if
                              there is one, KO_ROOT_BITS of it); point to point: the tag */
            uint8_t what;  /* enum ko_collective, perhaps with KO_UNEVEN or KO_COALESCED, or
                              KO_POINT_TO_POINT */
            uint8_t dtype;
            uint8_t op; /* point to point: KO_RECEIPT, KO_EARLY, KO_PLACE, that and KO_CAPTURED, or
                           0, each perhaps with KO_BEHIND; ASIDE and TAKEN: KO_NO_ROOM or 0;
                           REFUSED: KO_TOO_LONG and KO_CAPTURED, as they apply */
            uint8_t algorithm;
        };
        uint64_t call; /* these five in one word */
    };
};

/* Stamps are made, copied and compared by words: a load that is wider than the stores before it, as
 * a compiler would choose, waits until these have left the processor, in their order, perhaps
 * behind a line that a peer's core has. */
KO_FN void ko_stamp_copy(struct ko_stamp *to, const struct ko_stamp *from)
{
    ko_store_relaxed(&to->seq, from->seq);
    ko_store_relaxed(&to->count, from->count);
    ko_store_relaxed(&to->call, from->call);
}

KO_FN bool ko_stamps_equal(const struct ko_stamp *a, const struct ko_stamp *b)
{
    return a->seq == b->seq && a->count == b->count && a->call == b->call;
}

KO_FN void ko_stamp_set_root(struct ko_stamp *stamp, uint32_t root)
{
    ko_store_relaxed(&stamp->call, (stamp->call & ~(uint64_t)UINT32_MAX) | root);
}

#define KO_POINT_TO_POINT 255
#define KO_RECEIPT 1   /* its sender waits to be told that all of it was TAKEN, or REFUSED */
#define KO_PLACE 2     /* what travels is where the message lies, in GPU memory */
#define KO_CAPTURED 4  /* and it goes in a graph, when that is launched; REFUSED: is to come so */
#define KO_TOO_LONG 8  /* REFUSED: there is not room for it */
#define KO_EARLY 16    /* its sender goes on, but wants to hear TAKEN, if only because it is kept */
#define KO_NO_ROOM 32  /* ASIDE, TAKEN: there is no room to keep more messages in */
#define KO_BEHIND 64   /* in a window: a word went before it over the wire, to be heard first */
#define KO_UNEVEN 0x80 /* blocks of different lengths; count is then what all ranks know, or 0 */
#define KO_COALESCED 0x40 /* of several tensors, of which these are some */
#define KO_ROOT_BITS 16

enum ko_frame_kind {
    KO_FRAME_DATA = 1,  /* nbytes of a slice follow */
    KO_FRAME_BELL,      /* wake up and look at the window */
    KO_FRAME_WAITING,   /* the sender has long waited for the receiver, in the call of the stamp */
    KO_FRAME_FAIL,      /* the sender's group failed: struct ko_failure follows */
    KO_FRAME_ASIDE,     /* nobody receives the message of the stamp yet: others may go first */
    KO_FRAME_RESUME,    /* a receive waits for it, or it is taken in without one; or it cannot be
                           fetched, and is to be sent */
    KO_FRAME_REFUSE,    /* a receive has got it that has room for count bytes of dtype only */
    KO_FRAME_TAKEN,     /* the receipt of a message that asked for one, or the answer to EARLY */
    KO_FRAME_BYE,       /* the sender has freed its group: nothing will follow */
    KO_FRAME_MEMORY,    /* struct ko_announcement follows, with a descriptor beside it */
    KO_FRAME_INLINE,    /* only in slots: nbytes of a slice, in the slot's own line */
    KO_FRAME_REFERENCE, /* only in slots: nbytes of a slice lie where struct ko_reference says */
    KO_FRAME_FOREIGN,   /* only in slots: they lie in the sender: struct ko_foreign_slice */
    KO_FRAME_LENT,  /* only in slots: as REFERENCE; another struct ko_reference, in the slot's body,
                       says where the receiver writes what becomes of as many bytes */
    KO_FRAME_PLACED /* only in slots: nbytes of a slice were written where they were LENT */
};

struct ko_frame {
    uint32_t kind;
    uint32_t nbytes; /* of the body */
    struct ko_stamp stamp;
};

/* A message that is one frame with its body: what the stamp says, and the bytes that there is room
 * for. */
struct ko_message {
    uint64_t seq, call;
    size_t room, nbytes; /* nbytes: of the one that has been taken */
};

KO_FN bool ko_frame_is_message(const struct ko_frame *frame, const struct ko_message *message)
{
    return frame->stamp.seq == message->seq && frame->stamp.call == message->call &&
           frame->stamp.count == frame->nbytes && frame->nbytes <= message->room;
}

/* Memory of the sender's that the receiver may map; from now on number `index`. */
struct ko_announcement {
    uint64_t id, nbytes; /* of the whole segment */
    uint64_t index;      /* < KO_ANNOUNCED */
};

#define KO_ANNOUNCED 256 /* segments of one sender that its peer has mapped at a time */

/* In a slot, instead of the bytes. */
struct ko_reference {
    uint64_t id, index; /* as announced */
    uint64_t offset;
};

/* In a slot, of a slice that lies in a place of its window. */
struct ko_placed_slice {
    uint64_t at;      /* bytes from the first place */
    uint64_t copy_ns; /* that its sender needed for it; 0: not measured */
    uint64_t piece;   /* bytes of a piece: the first of them is there; 0: it is whole (window.h) */
};

/* In a slot, of a slice that was left where it lies, in its sender's process: the receiver reads it
 * there, or the sender moves it after all, whoever is first to change `state`. */
struct ko_foreign_slice {
    uint64_t address;
    uint64_t at;    /* bytes from the window's first place to this slice's */
    uint64_t state; /* enum ko_foreign_state; by both */
};

enum ko_foreign_state {
    KO_FOREIGN_FREE,
    KO_FOREIGN_READING,    /* the receiver reads it */
    KO_FOREIGN_READ,       /* it has, and may again until it releases the slice */
    KO_FOREIGN_UNREADABLE, /* the receiver cannot: the sender is to move it */
    KO_FOREIGN_MOVING,     /* the sender copies it to its place */
    KO_FOREIGN_MOVED,      /* there it is */
    KO_FOREIGN_WITHDRAWN   /* its sender has given up: it is nowhere any more */
};

_Static_assert(sizeof(struct ko_announcement) == 24, "announcement travels as it is");
_Static_assert(sizeof(struct ko_reference) == 24, "reference travels as it is");
_Static_assert(sizeof(struct ko_stamp) == 24, "stamp travels as it is");
_Static_assert(sizeof(struct ko_frame) == 32, "frame travels as it is");

#endif
