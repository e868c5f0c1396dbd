/* SPDX-License-Identifier: MIT
 *
 * gpu_relay.h: a message between GPU memory and a link, by some slots of host memory in turn,
 * however long it is: while the link has the bytes of one slot the GPU copies those of others. The
 * other end need not know. It belongs to whoever posts the message's letter; until that is done
 * whoever moves the letter uses it, under the mailbox's lock, and then its owner. Nothing but
 * ko_gpu_relay_finish waits.
 */
#ifndef KO_GPU_RELAY_H
#define KO_GPU_RELAY_H

#include "gpu.h"

enum { KO_RELAY_SLOTS = 4 };

struct ko_gpu_relay {
    struct ko_gpu *gpu;
    unsigned char *at; /* in GPU memory */
    size_t nbytes;     /* of the message that is sent, or of the room for one */
    size_t slot_bytes, nslots, stride;
    struct ko_gpu_block *block;  /* they lie there; NULL: not yet */
    size_t opened, begun, freed; /* slots, of those that follow each other: in use; with copies
                                    begun; to be used again */
    struct ko_relay_slot {
        size_t from, nbytes; /* of the message */
        struct ko_gpu_mark *copied;
        uint64_t flushed_at; /* sending: free when the link has flushed as many slices */
    } slots[KO_RELAY_SLOTS];
    int64_t waits_ns; /* since when a copy is waited for, whose end wakes nobody; 0: none is */

    /* sending */
    size_t copied, read_from; /* bytes that are, or will be, in slots; the slot that is read */

    /* receiving */
    const struct ko_gpu_mark *mark; /* of the stream, before which the GPU memory is in use */
    bool is_at_mark, is_open;       /* the last slot takes more */
    unsigned char *place;           /* of the next slice */
    struct ko_relay_kept {
        unsigned char *data; /* allocated */
        size_t from, nbytes;
    } before, behind; /* what had come before there was a receive, and what no slot was free for */
};

/* slot_bytes: no slice is longer. mark NULL: it is sent, and the stream stands behind it. */
int ko_gpu_relay_open(struct ko_gpu *gpu, const struct ko_gpu_mark *mark, void *at, size_t nbytes,
                      size_t slot_bytes, struct ko_gpu_relay **relay);

/* Sending: begins as many copies as there are free slots for. */
int ko_gpu_relay_fill(struct ko_gpu_relay *relay);

/* *from has *nbytes of the message from `moved` on, when the link has flushed as many slices;
 * KO_AGAIN. Then what was given to the link of them, which is done with it at flushed_at. */
int ko_gpu_relay_read(struct ko_gpu_relay *relay, size_t moved, uint64_t flushed,
                      const unsigned char **from, size_t *nbytes);
void ko_gpu_relay_given(struct ko_gpu_relay *relay, uint64_t flushed_at);

/* Receiving: finds relay->place for a slice, of a message of `total` bytes of which `arrived` have
 * come; KO_AGAIN. Where slots stay full, as while the stream does not come to the mark, there is
 * memory for the rest of the message, for which others must not wait. Then the slice has come. */
int ko_gpu_relay_find_place(struct ko_gpu_relay *relay, size_t arrived, size_t nbytes,
                            size_t total);
int ko_gpu_relay_come(struct ko_gpu_relay *relay, size_t nbytes, bool is_last);

/* While no further slice comes: begins copies for which the stream had not come to the mark, and
 * looks at those under way, or at the mark: a GPU that has failed says so of either. KO_AGAIN: some
 * are under way, or the stream is. */
int ko_gpu_relay_go_on(struct ko_gpu_relay *relay);

/* Such memory is in use: nothing else is to go elsewhere. */
static inline bool ko_gpu_relay_overflows(const struct ko_gpu_relay *relay)
{
    return relay->behind.data;
}

/* Takes over the first nbytes of the message, in allocated memory. */
void ko_gpu_relay_keep(struct ko_gpu_relay *relay, unsigned char *data, size_t nbytes);

/* The stream has come to the mark, and the message: begins all copies that are missing. */
int ko_gpu_relay_finish(struct ko_gpu_relay *relay, const ko_deadline *deadline);

/* is_left: the GPU may still touch the slots. NULL is allowed. */
void ko_gpu_relay_close(struct ko_gpu_relay *relay, bool is_left);

#endif
