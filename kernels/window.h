/* SPDX-License-Identifier: MIT
 *
 * window.h: a window is memory that its owner (the receiver) and one peer (the sender) both
 * address. It is a ring of slots:
 *
 *     struct ko_window | slots x struct ko_slot | places x slice_bytes
 *
 * A short body lies in its slot, right behind the head, where the receiver can fetch it before it
 * knows that it is there. Slots are an odd number of lines long: heads that lie side by side are
 * fetched in pairs by many processors, and the line that one rank looks at is taken from it while
 * its peer fills the one before. A longer body lies in the places behind; its slot says how many
 * bytes from the first of them, and the sender chooses (transports/window_places.h).
 *
 * The sender fills slot step % slots and then stores step + 1 in its `step` word; the receiver
 * takes the slots in the same order and counts them in `credit`. Steps begin at 0 and never go
 * back, so slot i is free for step s when credit + slots > s. Each word has one writer, but for the
 * two sleep flags, which the sleeper sets and the waker clears, for the state of a slice that was
 * left in its sender's process (struct ko_foreign_slice), and for who copies what of it.
 */
#ifndef KO_WINDOW_H
#define KO_WINDOW_H

#include "frame.h"
#include "portable.h"

#define KO_LINE 64     /* bytes that two cores hand over at once */
#define KO_INLINE 2048 /* the longest body that lies in its slot */
#define KO_BESIDE 24   /* the longest one that lies beside its frame, in the slot's first line */
#define KO_MOST_PLACES 64

struct ko_window {
    uint64_t credit;   /* by the receiver: slots taken so far */
    uint64_t fences;   /* by the receiver: 1: it orders others' accesses before it sleeps */
    uint64_t reading;  /* by the receiver: what it reads in the sender's memory (foreign.h) */
    uint64_t word;     /* by the receiver: a word of its own, for the sender to find */
    uint64_t word_at;  /* by the receiver, after it: its address; 0: it is not to be read */
    uint64_t share;    /* by both: who copies what of slices that are read (foreign_share.h) */
    uint64_t share_to; /* by the receiver, before it: where they are to lie */
    uint64_t written;  /* by the sender: pages that it has copied there, of all so far */
    uint64_t receiver_sleeps; /* 1: ring the bell after publishing a slot */
    uint64_t receiver_core;   /* by the receiver: where it waited last, from 1; 0: not known */
    uint64_t receiver_call;   /* by the receiver: in which call, told only to who waits there */
    uint64_t pad1[5];
    uint64_t sender_sleeps; /* 1: ring the bell after giving credit */
    uint64_t pad2[7];
};

struct ko_slot {
    uint64_t step; /* by the sender, last: number of this filling, counted from 1 */
    struct ko_frame frame;
    union { /* INLINE: a body of at most KO_BESIDE bytes; others: where it lies */
        unsigned char beside[KO_BESIDE];
        struct ko_placed_slice placed;   /* DATA */
        struct ko_foreign_slice foreign; /* FOREIGN */
    };
    unsigned char body[KO_INLINE]; /* INLINE: a longer one; DATA: what has come of it */
};

_Static_assert(sizeof(struct ko_window) == 3 * KO_LINE, "one word that often changes a line");
_Static_assert(sizeof(struct ko_reference) <= KO_BESIDE, "a reference fits into a line");
_Static_assert(sizeof(struct ko_foreign_slice) <= KO_BESIDE, "so does where a foreign slice lies");
_Static_assert(sizeof(struct ko_slot) % (2 * KO_LINE) == KO_LINE, "an odd number of lines");

/* Where the step is written, by the sender, when one more piece of a DATA frame's body has come:
 * `number` of them before it. In a line of its own: what one rank looks at is not what the other is
 * about to write. */
#define KO_MOST_PIECES (KO_INLINE / KO_LINE) /* after the first */
KO_FN uint64_t *ko_slot_come(struct ko_slot *slot, size_t number)
{
    return (uint64_t *)(void *)(slot->body + (number - 1) * KO_LINE);
}

/* Bytes of a place. */
KO_FN size_t ko_window_place(uint32_t slice_bytes)
{
    return (slice_bytes + (size_t)KO_LINE - 1) / KO_LINE * KO_LINE;
}

/* Two for each slot, if there are not too many. */
KO_FN uint32_t ko_window_nplaces(uint32_t slots)
{
    return slots <= KO_MOST_PLACES / 2 ? 2 * slots : slots;
}

/* Bytes of all places. */
KO_FN size_t ko_window_room(uint32_t slots, uint32_t slice_bytes)
{
    return ko_window_nplaces(slots) * ko_window_place(slice_bytes);
}

/* Bytes in front of the first place. */
KO_FN size_t ko_window_front(uint32_t slots)
{
    return sizeof(struct ko_window) + slots * sizeof(struct ko_slot);
}

/* Of those, the first slots', so many have memory from the beginning; the others when they are used
 * (transports/window_memory.h). */
#define KO_WINDOW_BEGUN 4096
KO_FN size_t ko_window_begun(uint32_t slots)
{
    return ko_window_front(slots) < KO_WINDOW_BEGUN ? ko_window_front(slots) : KO_WINDOW_BEGUN;
}

KO_FN size_t ko_window_bytes(uint32_t slots, uint32_t slice_bytes)
{
    return ko_window_front(slots) + ko_window_room(slots, slice_bytes);
}

/* Slot number `index`, which is step % slots: whoever goes through the steps keeps a pointer, since
 * a division takes as long as a slot. */
KO_FN struct ko_slot *ko_window_slot(struct ko_window *window, uint32_t index)
{
    return (struct ko_slot *)(void *)(window + 1) + index;
}

/* Where the body lies if its frame is INLINE. */
KO_FN unsigned char *ko_slot_body(struct ko_slot *slot, size_t nbytes)
{
    return nbytes <= KO_BESIDE ? slot->beside : slot->body;
}

/* Where the body of a DATA frame lies that is `at` bytes from the first place. */
KO_FN unsigned char *ko_window_body(struct ko_window *window, uint32_t slots, uint64_t at)
{
    return (unsigned char *)window + ko_window_front(slots) + at;
}

#endif
