/* SPDX-License-Identifier: MIT
 *
 * A link over two windows (window.h): we take slots out of our inbox and fill those of the peer's.
 * Short slices share one line with their flag; long ones may stay where they are (reference.h). The
 * wire carries bells and announcements.
 *
 * Sleeping: the sleeper stores its flag and then looks at the slot (or the credit) once more; the
 * peer stores the slot and then looks at the flag. Between the two the sleeper orders the accesses
 * of all (fence.h) if both processes can, else each uses ordered stores: at least one of them sees
 * the other.
 */
#include "link.h"

#include "copy.h"
#include "fence.h"
#include "foreign.h"
#include "foreign_out.h"
#include "protocols.h"
#include "reference.h"
#include "status.h"
#include "window_pieces.h"
#include "window_slots.h"

#include <string.h>

/* Bytes of a slice whose place is worth having again while it is in the caches: that takes a line
 * that goes from the receiver to the sender. */
enum { KO_PROMPT = 64 << 10 };

int ko_window_link_start(struct ko_link *link)
{
    const uint32_t most = link->slice_bytes < KO_INLINE ? link->slice_bytes : KO_INLINE;
    int err;

    link->inbox = link->wire->inbox;
    link->outbox = link->wire->outbox;
    link->next_in = ko_window_slot(link->inbox, 0);
    link->next_out = ko_window_slot(link->outbox, 0);
    link->end_out = link->next_out + link->slots;
    ko_window_memory_begin(link);
    link->ops = &ko_window_link_ops;
    ko_store_release(&link->inbox->fences, ko_fence_is_split());
    err = ko_protocols_read(&link->protocols);
    /* A trial times whoever has the turn, and reading took 1.3 to 5 times as long. */
    if (link->is_crowded)
        link->protocols &= ~(unsigned)KO_PROTO_TRY_CMA;
    link->inline_end = link->protocols & KO_PROTO_INLINE ? most + 1 : 0;
    return err ? err : ko_foreign_invite(link);
}

/* Once for each time that the flag is set. */
static int ring(struct ko_link *link, uint64_t *sleeps)
{
    return ko_exchange_ordered(sleeps, 0) ? ko_link_tell(link, KO_FRAME_BELL, NULL, NULL, 0)
                                          : KOLO_OK;
}

int ko_window_ring_receiver(struct ko_link *link)
{
    return ring(link, &link->outbox->receiver_sleeps);
}

/* Looks for the peer's credit: KO_AGAIN if the next slot is not free. */
static __attribute__((noinline)) int look_for_slot(struct ko_link *link)
{
    if (link->foreign_out)
        ko_foreign_help(link);
    ko_window_take_credit(link);
    link->is_split = ko_fence_is_split() && ko_load_acquire(&link->outbox->fences);
    ko_window_places_free(link);
    if (ko_window_sees_slot(link))
        return KOLO_OK;
    return link->credit + link->slots > link->sent ? ko_window_reserve_slot(link) : KO_AGAIN;
}

/* KO_AGAIN if the next slot is not free; looks for the peer's credit only where that may matter. */
static int find_slot(struct ko_link *link, size_t nbytes)
{
    if (ko_window_sees_slot(link) && (nbytes < KO_PROMPT || ko_window_is_due(&link->places)))
        return KOLO_OK;
    return look_for_slot(link);
}

static int window_room(struct ko_link *link, size_t nbytes, void **place)
{
    uint64_t at;
    int err = find_slot(link, nbytes);

    if (err)
        return err;
    if (ko_window_goes_inline(link, nbytes)) {
        *place = ko_slot_body(link->next_out, nbytes);
        return KOLO_OK;
    }
    ko_window_places_free(link);
    at = ko_window_choose_place(link, nbytes);
    err = ko_window_is_reserved(&link->places) ? KOLO_OK : ko_window_reserve_place(link);
    if (!err)
        *place = ko_window_body(link->outbox, link->slots, at);
    return err;
}

static inline int publish(struct ko_link *link, enum ko_frame_kind kind,
                          const struct ko_stamp *stamp, size_t nbytes)
{
    return ko_window_publish(link, kind, stamp, nbytes) ? ko_window_ring_receiver(link) : KOLO_OK;
}

/* Of a slice that lies in the place that was chosen. */
static int commit_placed(struct ko_link *link, const struct ko_stamp *stamp, size_t nbytes,
                         int64_t copy_ns)
{
    link->next_out->placed = (struct ko_placed_slice){link->places.at, (uint64_t)copy_ns, 0};
    ko_window_take_place(link);
    return publish(link, KO_FRAME_DATA, stamp, nbytes);
}

static int window_commit(struct ko_link *link, const struct ko_stamp *stamp, size_t nbytes)
{
    return ko_window_goes_inline(link, nbytes) ? publish(link, KO_FRAME_INLINE, stamp, nbytes)
                                               : commit_placed(link, stamp, nbytes, 0);
}

/* To be compared with one that is left where it lies. */
static int post_measured(struct ko_link *link, const struct ko_stamp *stamp, const void *from,
                         void *place, size_t nbytes)
{
    const struct ko_moment began = ko_moment_now();

    ko_copy(place, from, nbytes);
    return commit_placed(link, stamp, nbytes, ko_moment_since(&began));
}

static int post_copy(struct ko_link *link, const struct ko_stamp *stamp, const void *from,
                     void *place, size_t nbytes)
{
    if (ko_window_goes_in_pieces(link, nbytes))
        return ko_window_post_pieces(link, stamp, from, place, nbytes);
    ko_window_fill(link, place, from, nbytes);
    return window_commit(link, stamp, nbytes);
}

int ko_window_copy(struct ko_link *link, const struct ko_stamp *stamp, const void *from,
                   size_t nbytes)
{
    void *place;
    int err = window_room(link, nbytes, &place);

    return err ? err : post_copy(link, stamp, from, place, nbytes);
}

static int publish_reference(struct ko_link *link, const struct ko_stamp *stamp,
                             const struct ko_reference *reference, size_t nbytes)
{
    memcpy(link->next_out->beside, reference, sizeof *reference);
    link->referenced = link->sent + 1;
    return publish(link, KO_FRAME_REFERENCE, stamp, nbytes);
}

static int publish_lent(struct ko_link *link, const struct ko_stamp *stamp,
                        const struct ko_reference *references, size_t nbytes)
{
    memcpy(link->next_out->beside, &references[0], sizeof *references);
    memcpy(link->next_out->body, &references[1], sizeof *references);
    link->referenced = link->sent + 1;
    link->nlent++;
    return publish(link, KO_FRAME_LENT, stamp, nbytes);
}

static int publish_foreign(struct ko_link *link, const struct ko_stamp *stamp, const void *from,
                           size_t nbytes)
{
    int err = ko_foreign_leave(link, from, nbytes);

    if (err)
        return err;
    ko_window_take_place(link);
    link->referenced = link->sent + 1;
    return publish(link, KO_FRAME_FOREIGN, stamp, nbytes);
}

bool ko_window_may_refer(const struct ko_link *link, const void *from, size_t nbytes)
{
    return (link->protocols & KO_PROTO_REFERENCE && ko_reference_may_be_made(link, from, nbytes)) ||
           ko_foreign_may_be_due(link, nbytes);
}

bool ko_window_leave(struct ko_link *link, const struct ko_stamp *stamp, const void *from,
                     size_t nbytes)
{
    void *place;

    if (!ko_foreign_goes_on(link, nbytes) || window_room(link, nbytes, &place))
        return false;
    (void)publish_foreign(link, stamp, from, nbytes); /* a broken wire shows at the next wait */
    return true;
}

static __attribute__((noinline)) int post_long(struct ko_link *link, const struct ko_stamp *stamp,
                                               const void *from, size_t nbytes)
{
    struct ko_reference reference;
    bool is_made = false;
    void *place;
    int err = window_room(link, nbytes, &place);

    if (!err && link->protocols & KO_PROTO_REFERENCE)
        err = ko_reference_make(link, from, nbytes, &reference, &is_made);
    if (err)
        return err;
    if (is_made)
        return publish_reference(link, stamp, &reference, nbytes);
    if (ko_foreign_has_to_wait(link, nbytes))
        return KO_AGAIN;
    if (ko_foreign_is_due(link, nbytes))
        return publish_foreign(link, stamp, from, nbytes);
    if (ko_foreign_is_compared(link, nbytes))
        return post_measured(link, stamp, from, place, nbytes);
    return post_copy(link, stamp, from, place, nbytes);
}

static int window_post(struct ko_link *link, const struct ko_stamp *stamp, const void *from,
                       size_t nbytes)
{
    int err;

    if (!ko_window_posts_inline(link, from, nbytes))
        return post_long(link, stamp, from, nbytes);
    err = find_slot(link, nbytes);
    if (err)
        return err;
    return ko_window_give(link, stamp, from, nbytes) ? ko_window_ring_receiver(link) : KOLO_OK;
}

int ko_window_lend(struct ko_link *link, const struct ko_stamp *stamp, const void *from,
                   const void *back, size_t nbytes)
{
    struct ko_reference references[2];
    bool is_made = false;
    int err = find_slot(link, 0);

    if (err)
        return err;
    if (link->protocols & KO_PROTO_REFERENCE)
        err = ko_reference_make(link, from, nbytes, &references[0], &is_made);
    if (!err && is_made)
        err = ko_reference_make(link, back, nbytes, &references[1], &is_made);
    if (err)
        return err;
    return is_made ? publish_lent(link, stamp, references, nbytes)
                   : window_post(link, stamp, from, nbytes);
}

int ko_window_tell_placed(struct ko_link *link, const struct ko_stamp *stamp, size_t nbytes)
{
    int err = find_slot(link, 0);

    return err ? err : publish(link, KO_FRAME_PLACED, stamp, nbytes);
}

/* Whether the next slice's bytes are still their sender's. */
static bool is_reference(const struct ko_link *link)
{
    return link->frame.kind == KO_FRAME_REFERENCE || link->frame.kind == KO_FRAME_LENT ||
           link->frame.kind == KO_FRAME_FOREIGN;
}

/* Bytes of a slice of the next frame's kind; what is no kind of a slice has not even 0. */
static int64_t most_of(const struct ko_link *link)
{
    if (link->frame.kind == KO_FRAME_INLINE && link->slice_bytes > KO_INLINE)
        return KO_INLINE;
    return link->frame.kind == KO_FRAME_DATA || link->frame.kind == KO_FRAME_INLINE ||
                   link->frame.kind == KO_FRAME_PLACED || is_reference(link)
               ? (int64_t)link->slice_bytes
               : -1;
}

static int window_next(struct ko_link *link, const struct ko_frame **frame)
{
    int err = link->lacks_head ? ko_window_find_head(link) : KOLO_OK;
    const struct ko_slot *slot = link->next_in;

    if (err)
        return err;
    if (ko_load_ordered(&slot->step) != link->received + 1) {
        link->has_waited = true;
        return KO_AGAIN;
    }
    link->frame = slot->frame; /* once: what is checked is what is used */
    if (link->frame.nbytes > most_of(link))
        return ko_fail(KOLO_E_PROTOCOL,
                       "rank %d's window holds a slice of kind %u with %u bytes (at most %u)",
                       link->peer, link->frame.kind, link->frame.nbytes, link->slice_bytes);
    if (link->frame.nbytes >= KO_FOREIGN_LEAST)
        ko_foreign_try(link);
    ko_window_look_ahead(link, link->frame.nbytes);
    *frame = &link->frame;
    return KOLO_OK;
}

static int peek_foreign(struct ko_link *link, const void **body)
{
    if (!link->in)
        link->in = ko_alloc(link->slice_bytes, "a slot to read a peer's memory into");
    link->ahead = 0;
    return link->in ? ko_foreign_take(link, link->in, body) : KOLO_E_NOMEM;
}

static int peek_reference(struct ko_link *link, const void **body)
{
    const struct ko_slot *slot = link->next_in;
    struct ko_reference reference;
    int err;

    memcpy(&reference, slot->beside, sizeof reference);
    err = ko_reference_find(link, &reference, link->frame.nbytes, body);
    if (err || link->frame.kind == KO_FRAME_REFERENCE)
        return err;
    memcpy(&reference, slot->body, sizeof reference);
    return ko_reference_find_back(link, &reference, link->frame.nbytes, &link->back);
}

const void *ko_window_place_of(const struct ko_link *link, uint64_t at)
{
    const size_t room = ko_window_room(link->slots, link->slice_bytes);

    if (at % KO_LINE == 0 && at <= room - link->frame.nbytes)
        return ko_window_body(link->inbox, link->slots, at);
    (void)ko_fail(KOLO_E_PROTOCOL,
                  "rank %d's window holds a slice %llu bytes from its first place, of %zu",
                  link->peer, (unsigned long long)at, room);
    return NULL;
}

static int peek_at(struct ko_link *link, const void **body)
{
    switch (link->frame.kind) {
    case KO_FRAME_REFERENCE:
    case KO_FRAME_LENT:
        return peek_reference(link, body);
    case KO_FRAME_FOREIGN:
        return peek_foreign(link, body);
    case KO_FRAME_INLINE:
        *body = ko_slot_body(link->next_in, link->frame.nbytes);
        return KOLO_OK;
    case KO_FRAME_PLACED:
        return ko_fail(KOLO_E_PROTOCOL, "rank %d's window says that a slice lies where none is due",
                       link->peer);
    default:
        *body = ko_window_place_of(link, link->next_in->placed.at);
        return *body ? ko_window_land_pieces(link, NULL, *body, false) : KOLO_E_PROTOCOL;
    }
}

static int window_peek(struct ko_link *link, const void **body)
{
    const bool is_watched = link->flow >= KO_FOLDED && ko_foreign_is_watched(link);
    const struct ko_moment began = is_watched ? ko_moment_now() : (struct ko_moment){0};
    int err = peek_at(link, body);

    if (!err && is_watched)
        ko_foreign_peeked(link, &began, *body == link->in);
    return err;
}

void ko_window_wake_sender(struct ko_link *link)
{
    if (ko_load_ordered(&link->inbox->sender_sleeps)) /* a broken wire shows at the next wait */
        (void)ring(link, &link->inbox->sender_sleeps);
}

void ko_window_give_credit(struct ko_link *link)
{
    link->given = link->received;
    ko_store_first(&link->inbox->credit, link->received, link->is_split);
    ko_window_wake_sender(link);
}

void ko_window_tell_received(struct ko_link *link)
{
    if (link->given != link->received)
        ko_store_release(&link->inbox->credit, link->received);
}

/* Who referred to memory waits to have it again, and gets credit at once. So does who sends long
 * slices: through one place alone, or such as he may leave where they lie, he would take these back
 * from a peer that seems to stand still; and their places go back sooner when the group is idle.
 * But then nobody sleeps: no bell. */
static void window_release(struct ko_link *link)
{
    link->landed = 0;
    ko_foreign_released(link);
    if (!is_reference(link)) {
        ko_window_release_slot(link);
        if (link->frame.nbytes >= KO_PROMPT)
            ko_window_tell_received(link);
        return;
    }
    ko_window_advance(link);
    if (link->frame.kind != KO_FRAME_FOREIGN)
        ko_reference_release(link);
    ko_window_give_credit(link);
}

/* What was lent has become what was to come. */
static int land_placed(struct ko_link *link)
{
    if (!link->nlent)
        return ko_fail(KOLO_E_PROTOCOL,
                       "rank %d's window says that a slice was written where none was lent",
                       link->peer);
    link->nlent--;
    ko_window_release_slot(link);
    return KOLO_OK;
}

static int take_body(struct ko_link *link, void *to, const void **body)
{
    switch (link->frame.kind) {
    case KO_FRAME_FOREIGN:
        return ko_foreign_take(link, to, body);
    case KO_FRAME_DATA:
        *body = ko_window_place_of(link, link->next_in->placed.at);
        return *body ? KOLO_OK : KOLO_E_PROTOCOL;
    default:
        return peek_at(link, body);
    }
}

static int window_land(struct ko_link *link, void *to, bool is_streaming)
{
    const bool is_watched = ko_foreign_is_watched(link);
    const struct ko_moment began = is_watched ? ko_moment_now() : (struct ko_moment){0};
    const void *body = NULL;
    int err;

    if (link->frame.kind == KO_FRAME_PLACED)
        return land_placed(link);
    err = take_body(link, to, &body);
    if (!err && link->frame.kind == KO_FRAME_DATA)
        err = ko_window_land_pieces(link, to, body, is_streaming);
    else if (!err && body != to)
        ko_copy_any(to, body, link->frame.nbytes, is_streaming);
    if (err)
        return err;
    if (is_watched)
        ko_foreign_watched(link, &began, body == to);
    window_release(link);
    return KOLO_OK;
}

bool ko_window_take_long(struct ko_link *link, struct ko_message *message, void *to)
{
    const struct ko_frame *frame;

    if (window_next(link, &frame) || !ko_frame_is_message(frame, message))
        return false;
    message->nbytes = frame->nbytes;
    return !window_land(link, to, false);
}

static void window_arm(struct ko_link *link)
{
    ko_store_ordered(&link->inbox->receiver_sleeps, 1);
    ko_store_ordered(&link->outbox->sender_sleeps, 1);
}

static void window_disarm(struct ko_link *link)
{
    ko_store_release(&link->inbox->receiver_sleeps, 0);
    ko_store_release(&link->outbox->sender_sleeps, 0);
}

const struct ko_link_ops ko_window_link_ops = {
    .room = window_room,
    .commit = window_commit,
    .post = window_post,
    .next = window_next,
    .peek = window_peek,
    .peek_piece = ko_window_peek_piece,
    .land = window_land,
    .release = window_release,
    .arm = window_arm,
    .disarm = window_disarm,
};
