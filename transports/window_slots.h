/* SPDX-License-Identifier: MIT
 *
 * window_slots.h: the short ways through a window link, in place: of a slice that lies in its slot,
 * into a slot that is known to be free, and out of one that has come. What is anything else takes
 * link->ops, which leads to the same end.
 */
#ifndef KO_WINDOW_SLOTS_H
#define KO_WINDOW_SLOTS_H

#include "link.h"
#include "window.h"

#include <string.h>

/* Rings for a peer that sleeps on this flag of a window's. */
int ko_window_ring(struct ko_link *link, uint64_t *sleeps);

static inline uint32_t ko_window_following(const struct ko_link *link, uint32_t index)
{
    return index + 1 < link->slots ? index + 1 : 0;
}

/* Publishes the next slot, whose body is written; true: the peer sleeps, ring for it. */
static inline bool ko_window_publish(struct ko_link *link, enum ko_frame_kind kind,
                                     const struct ko_stamp *stamp, size_t nbytes)
{
    struct ko_slot *slot = ko_window_slot(link->outbox, link->next_out);

    slot->frame.kind = kind;
    slot->frame.nbytes = (uint32_t)nbytes;
    ko_stamp_copy(&slot->frame.stamp, stamp);
    link->next_out = ko_window_following(link, link->next_out);
    ko_store_first(&slot->step, ++link->sent, link->is_split);
    return ko_load_ordered(&link->outbox->receiver_sleeps);
}

/* memcpy, without a call where that is most of it. */
static inline void ko_window_copy(unsigned char *to, const unsigned char *from, size_t nbytes)
{
    if (nbytes > 24) {
        memcpy(to, from, nbytes);
    } else if (nbytes >= 16) {
        memcpy(to, from, 16);
        memcpy(to + nbytes - 8, from + nbytes - 8, 8);
    } else if (nbytes >= 8) {
        memcpy(to, from, 8);
        memcpy(to + nbytes - 8, from + nbytes - 8, 8);
    } else if (nbytes >= 4) {
        memcpy(to, from, 4);
        memcpy(to + nbytes - 4, from + nbytes - 4, 4);
    } else if (nbytes) {
        to[0] = from[0];
        to[nbytes / 2] = from[nbytes / 2];
        to[nbytes - 1] = from[nbytes - 1];
    }
}

/* Whether a slice of nbytes lies in its slot; none does before there is a window. */
static inline bool ko_window_goes_inline(const struct ko_link *link, size_t nbytes)
{
    return nbytes < link->inline_end;
}

/* Whether the next slot is known to be free. */
static inline bool ko_window_sees_slot(const struct ko_link *link)
{
    return link->credit + link->slots > link->sent;
}

/* Whether the next slice is here. */
static inline bool ko_window_has_come(const struct ko_link *link)
{
    return ko_load_acquire(&ko_window_slot(link->inbox, link->next_in)->step) == link->received + 1;
}

/* The body of the next slice, which has come, if it lies in its slot and is just as it should be:
 * to be dropped. NULL: link->ops->next says what it is. */
static inline const void *ko_window_match(struct ko_link *link, const struct ko_stamp *stamp,
                                          size_t nbytes)
{
    struct ko_slot *slot = ko_window_slot(link->inbox, link->next_in);

    if (slot->frame.kind != KO_FRAME_INLINE || slot->frame.nbytes != nbytes ||
        !ko_stamps_equal(&slot->frame.stamp, stamp))
        return NULL;
    link->frame.kind = KO_FRAME_INLINE;
    link->frame.nbytes = (uint32_t)nbytes;
    return ko_slot_body(link->inbox, link->slots, link->next_in, nbytes);
}

/* Releases what lay in its slot; false: nothing was done, the peer is to be told of it. */
static inline bool ko_window_drop(struct ko_link *link)
{
    if (link->received + 1 - link->given >= link->slots / 2)
        return false;
    link->received++;
    link->next_in = ko_window_following(link, link->next_in);
    return true;
}

#endif
