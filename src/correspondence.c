/* SPDX-License-Identifier: MIT
 *
 * Sends go out in the order in which they were posted, slice by slice as the link has room. What
 * comes in goes straight into the receive that waits for its tag, or into a parcel, to be copied
 * when the receive is posted.
 */
#include "correspondence.h"

#include "fault.h"
#include "group.h"
#include "reference.h"
#include "status.h"

#include <stdlib.h>
#include <string.h>

/* A look that can find nothing but the end of the peer costs a system call on some links: only one
 * of so many is made. */
enum { UNLOOKED = 16 };

/* A message that came before its receive was posted. */
struct parcel {
    int tag;
    kolo_dtype dtype;
    size_t nbytes; /* that the sender has announced */
    size_t arrived;
    size_t room; /* of data, which grows with what arrives: an announcement alone takes no memory */
    struct ko_letter *taker; /* a receive that was posted while it is arriving */
    struct parcel *next;
    unsigned char *data;
};

static void push(struct ko_letters *list, struct ko_letter *letter)
{
    letter->next = NULL;
    if (list->last)
        list->last->next = letter;
    else
        list->first = letter;
    list->last = letter;
}

static struct ko_letter *pop(struct ko_letters *list)
{
    struct ko_letter *letter = list->first;

    if (letter) {
        list->first = letter->next;
        if (!list->first)
            list->last = NULL;
    }
    return letter;
}

/* ---- finishing --------------------------------------------------------------------------- */

/* The letter may go as soon as this has been called. */
static void finish(struct ko_correspondence *with, struct ko_letter *letter, int status)
{
    with->nfinished++;
    ko_work_complete(&letter->work, status);
}

static void fail_list(struct ko_correspondence *with, struct ko_letters *list, int status)
{
    struct ko_letter *letter;

    while ((letter = pop(list)))
        finish(with, letter, status);
}

void ko_correspondence_fail(struct ko_correspondence *with, int status)
{
    fail_list(with, &with->sending, status);
    fail_list(with, &with->flushing, status);
    fail_list(with, &with->awaited, status);
    if (with->letter)
        finish(with, with->letter, status);
    if (with->parcel && with->parcel->taker)
        finish(with, with->parcel->taker, status);
    if (with->parcel)
        with->parcel->taker = NULL;
    with->letter = NULL;
}

/* Hands a complete message of nbytes to a receive. */
static void deliver(struct ko_correspondence *with, struct ko_letter *letter, size_t nbytes,
                    kolo_dtype dtype)
{
    int status = KOLO_OK;

    if (nbytes > letter->nbytes)
        status =
            ko_fail(KOLO_E_TRUNCATED,
                    "the message of tag %d from rank %d has %zu bytes, the receive room for %zu",
                    letter->tag, letter->peer, nbytes, letter->nbytes);
    else if (dtype != letter->dtype)
        status = ko_fail(KOLO_E_MISMATCH,
                         "rank %d sent the message of tag %d as %s, rank %d receives it as %s",
                         letter->peer, letter->tag, kolo_dtype_name(dtype), letter->group->rank,
                         kolo_dtype_name(letter->dtype));
    finish(with, letter, status);
}

/* ---- sending ----------------------------------------------------------------------------- */

static void finish_flushed(struct ko_correspondence *with, struct ko_link *link)
{
    if (!with->flushing.first)
        return;
    (void)ko_link_is_flushed(link);
    while (with->flushing.first && link->flushed >= with->flushing.first->flushed_at)
        finish(with, pop(&with->flushing), KOLO_OK);
}

static struct ko_stamp stamp_of(const struct ko_letter *letter, uint64_t seq)
{
    return (struct ko_stamp){.seq = seq,
                             .count = letter->nbytes,
                             .root = (uint32_t)letter->tag,
                             .what = KO_POINT_TO_POINT,
                             .dtype = (uint8_t)letter->dtype};
}

/* Gives slices of the letter to the link; KO_AGAIN when it takes no more now. */
static int give(struct ko_letter *letter, struct ko_link *link)
{
    const struct ko_stamp stamp = stamp_of(letter, letter->seq);

    while (!letter->has_begun || letter->moved < letter->nbytes) {
        size_t left = letter->nbytes - letter->moved;
        size_t nbytes = left < link->longest ? left : link->longest;
        int err = link->ops->post(link, &stamp, letter->buffer + letter->moved, nbytes);

        if (err)
            return err;
        letter->has_begun = true;
        letter->moved += nbytes;
    }
    letter->flushed_at = link->referenced;
    return KOLO_OK;
}

static int drive_sending(struct ko_correspondence *with, struct ko_link *link)
{
    int err = KOLO_OK;

    while (with->sending.first && !err) {
        err = give(with->sending.first, link);
        if (!err)
            push(&with->flushing, pop(&with->sending));
    }
    finish_flushed(with, link);
    return err == KO_AGAIN ? KOLO_OK : err;
}

/* ---- receiving --------------------------------------------------------------------------- */

/* Takes the first receive of this tag out of the list. */
static struct ko_letter *take_awaited(struct ko_correspondence *with, int tag)
{
    struct ko_letter **link = &with->awaited.first, *before = NULL;

    while (*link && (*link)->tag != tag) {
        before = *link;
        link = &before->next;
    }
    if (*link) {
        struct ko_letter *letter = *link;

        *link = letter->next;
        if (with->awaited.last == letter)
            with->awaited.last = before;
        return letter;
    }
    return NULL;
}

static int keep_parcel(struct ko_correspondence *with, const struct ko_stamp *stamp)
{
    struct parcel **end = &with->parcels;
    struct parcel *parcel = ko_alloc(sizeof *parcel, "a message nobody waits for yet");

    if (!parcel)
        return KOLO_E_NOMEM;
    parcel->tag = (int)stamp->root;
    parcel->dtype = (kolo_dtype)stamp->dtype;
    parcel->nbytes = stamp->count;
    while (*end)
        end = &(*end)->next;
    *end = parcel;
    with->parcel = parcel;
    return KOLO_OK;
}

static int begin_arrival(struct ko_correspondence *with, const struct ko_stamp *stamp)
{
    if (stamp->what != KO_POINT_TO_POINT || stamp->seq != with->received + 1 ||
        stamp->count > SIZE_MAX / 2)
        return ko_fail(KOLO_E_PROTOCOL, "message #%llu was expected, #%llu came",
                       (unsigned long long)with->received + 1, (unsigned long long)stamp->seq);
    with->received++;
    with->is_arriving = true;
    with->arrived = 0;
    with->total = stamp->count;
    with->letter = take_awaited(with, (int)stamp->root);
    return with->letter ? KOLO_OK : keep_parcel(with, stamp);
}

/* Makes room for nbytes more of the arriving message, if it goes into a parcel. */
static int make_room(struct ko_correspondence *with, size_t nbytes)
{
    struct parcel *parcel = with->parcel;
    size_t needed = with->arrived + nbytes, room;
    unsigned char *data;

    if (!parcel || needed <= parcel->room)
        return KOLO_OK;
    room = needed < parcel->nbytes / 2 ? 2 * needed : parcel->nbytes;
    data = ko_fault(KO_FAULT_ALLOC) ? NULL : realloc(parcel->data, room);
    if (!data)
        return ko_fail(KOLO_E_NOMEM, "no memory for a message nobody waits for yet (%zu bytes)",
                       room);
    parcel->data = data;
    parcel->room = room;
    return KOLO_OK;
}

/* Where the next bytes of the arriving message go; NULL if they do not fit and are dropped, or if
 * there are none. */
static unsigned char *place_of(const struct ko_correspondence *with)
{
    if (with->parcel)
        return with->parcel->data ? with->parcel->data + with->arrived : NULL;
    return with->total <= with->letter->nbytes ? with->letter->buffer + with->arrived : NULL;
}

static void take_parcel(struct ko_correspondence *with, struct parcel *parcel,
                        struct ko_letter *letter)
{
    struct parcel **link = &with->parcels;

    if (parcel->nbytes <= letter->nbytes && parcel->nbytes)
        memcpy(letter->buffer, parcel->data, parcel->nbytes);
    deliver(with, letter, parcel->nbytes, parcel->dtype);
    while (*link != parcel)
        link = &(*link)->next;
    *link = parcel->next;
    free(parcel->data);
    free(parcel);
}

static void end_arrival(struct ko_correspondence *with, kolo_dtype dtype)
{
    struct ko_letter *letter = with->letter;
    struct parcel *parcel = with->parcel;

    with->is_arriving = false;
    with->letter = NULL;
    with->parcel = NULL;
    if (letter)
        deliver(with, letter, with->total, dtype);
    else if (parcel->taker)
        take_parcel(with, parcel, parcel->taker);
}

/* Whether the arriving message will not stay in the cache. A parcel is soon read again. */
static bool streams(const struct ko_correspondence *with)
{
    return with->letter && with->total >= with->letter->group->endpoint->cache_bytes;
}

/* One slice of the arriving message; KO_AGAIN if it is not all here. */
static int take_slice(struct ko_correspondence *with, struct ko_link *link,
                      const struct ko_frame *frame)
{
    unsigned char *place;
    const size_t nbytes = frame->nbytes;
    const kolo_dtype dtype = (kolo_dtype)frame->stamp.dtype;
    const void *dropped;
    int err;

    if (frame->stamp.seq != with->received || nbytes > with->total - with->arrived ||
        (!nbytes && with->total))
        return ko_fail(KOLO_E_PROTOCOL, "a slice of message #%llu does not fit it",
                       (unsigned long long)with->received);
    err = make_room(with, nbytes);
    if (err)
        return err;
    place = place_of(with);
    err = place ? link->ops->land(link, place, streams(with)) : link->ops->peek(link, &dropped);
    if (err)
        return err;
    if (!place)
        link->ops->release(link);
    with->arrived += nbytes;
    if (with->parcel)
        with->parcel->arrived = with->arrived;
    if (with->arrived == with->total)
        end_arrival(with, dtype);
    return KOLO_OK;
}

static bool is_awaited(const struct ko_correspondence *with, int tag)
{
    const struct ko_letter *letter = with->awaited.first;

    while (letter && letter->tag != tag)
        letter = letter->next;
    return letter;
}

static int drive_receiving(struct ko_correspondence *with, struct ko_link *link,
                           const struct ko_letter *wanted)
{
    const struct ko_frame *frame;
    int err;

    if (!wanted && !with->is_arriving && !with->awaited.first && ++with->unlooked % UNLOOKED)
        return KOLO_OK;
    while (!(err = link->ops->next(link, &frame))) {
        if (!with->is_arriving && (!wanted || atomic_load(&wanted->work.is_done)) &&
            !is_awaited(with, (int)frame->stamp.root))
            break;
        if (!with->is_arriving)
            err = begin_arrival(with, &frame->stamp);
        if (!err)
            err = take_slice(with, link, frame);
        if (err)
            break;
    }
    return err == KO_AGAIN ? KOLO_OK : err;
}

int ko_correspondence_drive(struct ko_correspondence *with, struct ko_link *link,
                            const struct ko_letter *wanted)
{
    int err = drive_sending(with, link);

    if (!err)
        err = drive_receiving(with, link, wanted);
    finish_flushed(with, link);
    return err;
}

/* ---- short messages ---------------------------------------------------------------------- */

static bool send_short(struct ko_correspondence *with, struct ko_link *link,
                       const struct ko_letter *letter)
{
    const struct ko_stamp stamp = stamp_of(letter, with->sent + 1);
    const bool is_sent =
        !with->sending.first && !link->ops->post(link, &stamp, letter->buffer, letter->nbytes);

    with->sent += is_sent;
    return is_sent;
}

/* The message at the link is the one that this receive gets, and fits it. */
static bool is_for(const struct ko_frame *frame, const struct ko_correspondence *with,
                   const struct ko_letter *letter)
{
    const struct ko_stamp *stamp = &frame->stamp;

    return stamp->what == KO_POINT_TO_POINT && stamp->seq == with->received + 1 &&
           stamp->root == (uint32_t)letter->tag && stamp->dtype == (uint8_t)letter->dtype &&
           stamp->count == frame->nbytes && frame->nbytes <= letter->nbytes;
}

static bool receive_short(struct ko_correspondence *with, struct ko_link *link,
                          const struct ko_letter *letter)
{
    const struct ko_frame *frame;
    bool is_here = !with->is_arriving && !with->awaited.first && !with->parcels &&
                   !link->ops->next(link, &frame) && is_for(frame, with, letter);

    if (is_here && frame->nbytes)
        is_here = !link->ops->land(link, letter->buffer, false);
    else if (is_here)
        link->ops->release(link);
    with->received += is_here;
    return is_here;
}

bool ko_correspondence_pass(struct ko_correspondence *with, struct ko_link *link,
                            const struct ko_letter *letter)
{
    if (link->ops != &ko_window_link_ops)
        return false;
    if (letter->is_send &&
        (letter->nbytes >= KO_REFERENCE_LEAST || letter->nbytes > link->slice_bytes))
        return false; /* shorter ones are copied, whatever their memory */
    return letter->is_send ? send_short(with, link, letter) : receive_short(with, link, letter);
}

/* ---- entering ---------------------------------------------------------------------------- */

/* A message that has come, or is arriving, for this receive. */
static bool match_parcel(struct ko_correspondence *with, struct ko_letter *letter)
{
    struct parcel *parcel = with->parcels;

    while (parcel && (parcel->tag != letter->tag || parcel->taker))
        parcel = parcel->next;
    if (!parcel)
        return false;
    if (parcel == with->parcel)
        parcel->taker = letter;
    else
        take_parcel(with, parcel, letter);
    return true;
}

void ko_correspondence_enter(struct ko_correspondence *with, struct ko_letter *letter)
{
    if (letter->is_send) {
        letter->seq = ++with->sent;
        push(&with->sending, letter);
    } else if (!match_parcel(with, letter)) {
        push(&with->awaited, letter);
    }
}

bool ko_correspondence_wants(const struct ko_correspondence *with)
{
    return with->sending.first || with->flushing.first || with->awaited.first || with->letter ||
           (with->parcel && with->parcel->taker);
}

void ko_correspondence_clear(struct ko_correspondence *with)
{
    while (with->parcels) {
        struct parcel *parcel = with->parcels;

        with->parcels = parcel->next;
        free(parcel->data);
        free(parcel);
    }
}
