/* SPDX-License-Identifier: MIT
 *
 * window_slots.h: the short ways through a window link, in place: of a slice that lies in its slot,
 * into a slot that is known to be free, and out of one that has come. What is anything else takes
 * link->ops, which leads to the same end.
 */
#ifndef KO_WINDOW_SLOTS_H
#define KO_WINDOW_SLOTS_H

#include "copy.h"
#include "link.h"
#include "reference.h"
#include "window.h"
#include "window_memory.h"

/* Rings for the peer, who sleeps until a slice comes. */
int ko_window_ring_receiver(struct ko_link *link);

/* As link->ops->post, but the memory is free at once, whatever it is. */
int ko_window_copy(struct ko_link *link, const struct ko_stamp *stamp, const void *from,
                   size_t nbytes);

/* As link->ops->post; if `back`, where as many bytes are to come from the peer, and `from` are both
 * in memory that it can map, it may write there itself. Whether the slice that was peeked at last
 * came so; and what says, instead of a slice, that what is to come is there. */
int ko_window_lend(struct ko_link *link, const struct ko_stamp *stamp, const void *from,
                   const void *back, size_t nbytes);
static inline bool ko_window_is_lent(const struct ko_link *link)
{
    return link->inbox && link->frame.kind == KO_FRAME_LENT;
}
int ko_window_tell_placed(struct ko_link *link, const struct ko_stamp *stamp, size_t nbytes);

/* Whether a slice posted from there may have to stay there until the peer has taken it. */
bool ko_window_may_refer(const struct ko_link *link, const void *from, size_t nbytes);

/* One slice more like the last that was posted, if that was left to be read where it lies, there is
 * a slot, and nothing is being found out; false: nothing is done. */
bool ko_window_leave(struct ko_link *link, const struct ko_stamp *stamp, const void *from,
                     size_t nbytes);

/* Lets the peer fill all slots again that have been released. */
void ko_window_give_credit(struct ko_link *link);

/* Rings for the peer, if it sleeps until something becomes of what it has sent. */
void ko_window_wake_sender(struct ko_link *link);

/* Where the next slice lies, `at` bytes from the first place; NULL after ko_fail(KOLO_E_PROTOCOL).
 */
const void *ko_window_place_of(const struct ko_link *link, uint64_t at);

/* The slot after this one, in turn. */
static inline struct ko_slot *ko_window_following(struct ko_window *window,
                                                  const struct ko_slot *end, struct ko_slot *slot)
{
    return slot + 1 < end ? slot + 1 : ko_window_slot(window, 0);
}

/* Publishes the next slot, whose body is written; true: the peer sleeps, ring for it. */
static inline bool ko_window_publish(struct ko_link *link, enum ko_frame_kind kind,
                                     const struct ko_stamp *stamp, size_t nbytes)
{
    struct ko_slot *slot = link->next_out;

    slot->frame.kind = kind;
    slot->frame.nbytes = (uint32_t)nbytes;
    ko_stamp_copy(&slot->frame.stamp, stamp);
    link->next_out = ko_window_following(link->outbox, link->end_out, slot);
    ko_store_first(&slot->step, ++link->sent, link->is_split);
    return ko_load_ordered(&link->outbox->receiver_sleeps);
}

/* Publishes a slice of nbytes, which lies in its slot, in the next one, which is free; true: ring.
 */
static inline bool ko_window_give(struct ko_link *link, const struct ko_stamp *stamp,
                                  const void *from, size_t nbytes)
{
    ko_copy_short(ko_slot_body(link->next_out, nbytes), from, nbytes);
    return ko_window_publish(link, KO_FRAME_INLINE, stamp, nbytes);
}

/* Whether a slice of nbytes lies in its slot; none does before there is a window. */
static inline bool ko_window_goes_inline(const struct ko_link *link, size_t nbytes)
{
    return nbytes < link->inline_end;
}

/* Whether one that is posted from there does. */
static inline bool ko_window_posts_inline(const struct ko_link *link, const void *from,
                                          size_t nbytes)
{
    return ko_window_goes_inline(link, nbytes) &&
           (nbytes < KO_REFERENCE_LEAST || !ko_window_may_refer(link, from, nbytes));
}

/* Whether the next slot is known to be free, and has memory. */
static inline bool ko_window_sees_slot(const struct ko_link *link)
{
    return link->sent < link->sendable;
}

/* Whether the next slice is here. */
static inline bool ko_window_has_come(const struct ko_link *link)
{
    return ko_load_acquire(&link->next_in->step) == link->received + 1;
}

/* The body of the next slice, which has come, if it lies in its slot and is just as it should be:
 * to be dropped. NULL: link->ops->next says what it is. */
static inline const void *ko_window_match(struct ko_link *link, const struct ko_stamp *stamp,
                                          size_t nbytes)
{
    struct ko_slot *slot = link->next_in;

    if (slot->frame.kind != KO_FRAME_INLINE || slot->frame.nbytes != nbytes ||
        !ko_stamps_equal(&slot->frame.stamp, stamp))
        return NULL;
    link->frame.kind = KO_FRAME_INLINE;
    link->frame.nbytes = (uint32_t)nbytes;
    return ko_slot_body(slot, nbytes);
}

static inline void ko_window_advance(struct ko_link *link)
{
    link->received++;
    link->next_in =
        link->next_in + 1 < link->end_in ? link->next_in + 1 : ko_window_following_head(link);
}

/* Releases what lay in its slot. Credit is given for half the slots at once: a shared line less to
 * write in most cases, and more than half of the slots can be filled in any case (both of two). */
static inline void ko_window_release_slot(struct ko_link *link)
{
    ko_window_advance(link);
    if (link->received - link->given >= link->slots / 2)
        ko_window_give_credit(link);
}

/* ---- messages ----------------------------------------------------------------------------- */

/* Bytes of a slice that are copied sooner than the next slot's line comes: if this slot was full
 * when it was looked at, so may be the next one. */
enum { KO_FOLLOWED = 256 };

/* Once a slice of nbytes has come: the next one may be like it. */
static inline void ko_window_look_ahead(struct ko_link *link, size_t nbytes)
{
    const struct ko_slot *next = ko_window_following(link->inbox, link->end_in, link->next_in);

    if (!link->has_waited && nbytes <= KO_FOLLOWED) {
        __builtin_prefetch(next);
        for (size_t at = 0; nbytes > KO_BESIDE && at < nbytes; at += KO_LINE)
            __builtin_prefetch(next->body + at);
    }
    link->has_waited = false;
}

/* A line that is to be written. GCC makes a plain fetch of this for processors of any age. */
static inline void ko_window_fetch_to_write(const unsigned char *line)
{
#if defined(__x86_64__)
    __asm__ volatile("prefetchw %0" : : "m"(*line));
#else
    __builtin_prefetch(line, 1);
#endif
}

/* Once a message of nbytes has come: it is often answered by one as long, whose lines the peer, who
 * read them last, then gives away while those of this one come. Not the head: at that the peer may
 * be looking. */
static inline void ko_window_look_back(const struct ko_link *link, size_t nbytes)
{
    for (size_t at = 0; nbytes > KO_LINE && at < nbytes; at += KO_LINE)
        ko_window_fetch_to_write(link->next_out->body + at);
}

/* Looks until the next slice has come, or so many times. */
static inline bool ko_window_look(struct ko_link *link, int looks)
{
    if (ko_window_has_come(link))
        return true;
    link->has_waited = true;
    while (--looks > 0) {
        ko_pause();
        if (ko_window_has_come(link))
            return true;
    }
    return false;
}

/* ko_window_take, of a slice that has come and does not lie in its slot. */
bool ko_window_take_long(struct ko_link *link, struct ko_message *message, void *to);

/* The next slice, if it is this message, moved to `to` and released. One that has not come is
 * looked for `looks` times. False: it has not been taken, though a part of it may lie there. */
static inline bool ko_window_take(struct ko_link *link, struct ko_message *message, void *to,
                                  int looks)
{
    struct ko_slot *slot = link->next_in;
    struct ko_frame frame;

    if (!ko_window_look(link, looks))
        return false;
    frame.kind = slot->frame.kind; /* once: what is checked is what is used */
    frame.nbytes = slot->frame.nbytes;
    ko_stamp_copy(&frame.stamp, &slot->frame.stamp);
    if (frame.kind != KO_FRAME_INLINE || frame.nbytes > KO_INLINE)
        return ko_window_take_long(link, message, to);
    if (!ko_frame_is_message(&frame, message))
        return false;
    message->nbytes = frame.nbytes;
    ko_window_look_ahead(link, frame.nbytes);
    ko_window_look_back(link, frame.nbytes);
    ko_copy_short(to, ko_slot_body(slot, frame.nbytes), frame.nbytes);
    ko_window_release_slot(link);
    return true;
}

#endif
