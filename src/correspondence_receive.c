/* SPDX-License-Identifier: MIT
 *
 * What comes in goes straight into the receive that waits for it: the one that was posted first of
 * those that name its sender and those that take any rank. If there is none, into a parcel
 * (correspondence_parcels.c).
 */
#include "correspondence_parts.h"
#include "dtype.h"
#include "group.h"
#include "status.h"

#include <limits.h>

/* A look that can find nothing but the end of the peer costs a system call on some links: only one
 * of so many is made. */
enum { UNLOOKED = 16 };

/* ---- matching ------------------------------------------------------------------------------ */

bool ko_letter_takes(const struct ko_letter *letter, int tag)
{
    return letter->tag == tag || letter->tag == KOLO_ANY_TAG;
}

static struct ko_letter *first_for(const struct ko_letters *list, int tag)
{
    struct ko_letter *letter = list->first;

    while (letter && !ko_letter_takes(letter, tag))
        letter = letter->next;
    return letter;
}

/* Where a receive waits. */
static struct ko_letters *list_of(struct ko_correspondence *with, const struct ko_letter *letter)
{
    return letter->peer == KOLO_ANY_RANK ? &with->desk->anyone : &with->awaited;
}

/* The receive that gets a message of this tag; NULL if none waits for it. */
static struct ko_letter *find_awaited(const struct ko_correspondence *with, int tag)
{
    struct ko_letter *own = first_for(&with->awaited, tag);
    struct ko_letter *any = first_for(&with->desk->anyone, tag);

    return !own || (any && any->seq < own->seq) ? any : own;
}

/* ---- finishing ----------------------------------------------------------------------------- */

void ko_letter_deliver(struct ko_correspondence *with, struct ko_letter *letter, int tag,
                       kolo_dtype dtype, size_t nbytes)
{
    if (letter->message)
        *letter->message = (kolo_message){with->peer, tag, dtype, nbytes >> ko_dtype_shift(dtype)};
    ko_letter_finish(with, letter, KOLO_OK);
}

int ko_fail_half_captured(int tag, int captures, int does_not)
{
    return ko_fail(KOLO_E_MISMATCH,
                   "rank %d captures the message of tag %d for a graph, rank %d does not", captures,
                   tag, does_not);
}

int ko_letter_fits(const struct ko_correspondence *with, const struct ko_letter *letter, int tag,
                   kolo_dtype dtype, size_t nbytes, bool is_captured)
{
    const int rank = with->desk->rank;

    if (nbytes > letter->nbytes)
        return ko_fail(KOLO_E_TRUNCATED,
                       "the message of tag %d from rank %d has %zu bytes, the receive room for %zu",
                       tag, with->peer, nbytes, letter->nbytes);
    if (dtype != letter->dtype)
        return ko_fail(
            KOLO_E_MISMATCH, "rank %d sent the message of tag %d as %s, rank %d receives it as %s",
            with->peer, tag, kolo_dtype_name(dtype), rank, kolo_dtype_name(letter->dtype));
    if (is_captured != ko_letter_is_captured(letter))
        return ko_fail_half_captured(tag, is_captured ? with->peer : rank,
                                     is_captured ? rank : with->peer);
    return KOLO_OK;
}

/* ---- messages that are fetched --------------------------------------------------------------- */

struct ko_fetch *ko_fetch_new(struct ko_letter *letter, uint64_t seq, int tag, kolo_dtype dtype,
                              size_t nbytes)
{
    struct ko_fetch *fetch = ko_alloc(sizeof *fetch, "a message in GPU memory");

    if (!fetch)
        return NULL;
    fetch->letter = letter;
    fetch->seq = seq;
    fetch->tag = tag;
    fetch->dtype = dtype;
    fetch->nbytes = nbytes;
    return fetch;
}

void ko_fetch_push(struct ko_correspondence *with, struct ko_fetch *fetch)
{
    struct ko_fetch **end = &with->fetches;

    while (*end)
        end = &(*end)->next;
    *end = fetch;
}

/* Its sender hears whether it was. */
static int end_fetch(struct ko_correspondence *with, struct ko_fetch *fetch, int status)
{
    const struct ko_stamp message =
        ko_message_stamp(fetch->seq, fetch->tag, fetch->dtype, fetch->nbytes);
    int err = status ? ko_refuse(with, &message, fetch->letter, true, false)
                     : ko_note(with, KO_FRAME_TAKEN, fetch->seq);

    if (err)
        return err;
    if (status)
        ko_letter_finish(with, fetch->letter, status);
    else
        ko_letter_deliver(with, fetch->letter, fetch->tag, fetch->dtype, fetch->nbytes);
    return KOLO_OK;
}

int ko_receive_fetch(struct ko_correspondence *with)
{
    struct ko_fetch **link = &with->fetches, *fetch;
    int err = KOLO_OK;

    while ((fetch = *link) && !err) {
        err = ko_hear_gpu(with, ko_fetch_step(fetch, with->peer));
        if (err == KO_AGAIN) {
            link = &fetch->next;
            err = KOLO_OK;
            continue;
        }
        if (err == KOLO_E_UNSUPPORTED && !ko_letter_is_captured(fetch->letter))
            err = ko_parcel_ask_for(with, fetch);
        else if (!err || err == KOLO_E_UNSUPPORTED)
            err = end_fetch(with, fetch, err);
        if (err)
            break;
        *link = fetch->next;
        ko_fetch_free(fetch);
    }
    return err;
}

/* ---- one message --------------------------------------------------------------------------- */

/* Whether what travels is neither a message nor the place of one. A place comes in the stead of
 * what is longer, at once, and is no more than that; for a graph, of anything. */
static bool is_odd(const struct ko_frame *frame)
{
    const unsigned op = frame->stamp.op & ~(unsigned)KO_BEHIND;

    if (op == (KO_PLACE | KO_CAPTURED))
        return !frame->nbytes;
    if (op == KO_PLACE)
        return frame->stamp.count <= sizeof(struct ko_gpu_place) || !frame->nbytes;
    return op && op != KO_RECEIPT && op != KO_EARLY;
}

/* Whether the first slice of a new message says what it may. */
static int check_new(const struct ko_correspondence *with, const struct ko_frame *frame)
{
    const struct ko_stamp *stamp = &frame->stamp;

    if (stamp->what != KO_POINT_TO_POINT || stamp->seq != with->received + 1)
        return ko_fail(KOLO_E_PROTOCOL, "message #%llu was expected, #%llu came",
                       (unsigned long long)with->received + 1, (unsigned long long)stamp->seq);
    if (stamp->count > SIZE_MAX / 2 || stamp->root > INT_MAX || !ko_dtype_is_valid(stamp->dtype) ||
        stamp->count % kolo_dtype_size((kolo_dtype)stamp->dtype) || is_odd(frame))
        return ko_fail(KOLO_E_PROTOCOL, "message #%llu cannot be one of kolo's",
                       (unsigned long long)stamp->seq);
    return KOLO_OK;
}

/* The arriving message goes straight into this receive, if it fits. */
static int accept(struct ko_correspondence *with, const struct ko_frame *frame,
                  struct ko_letter *letter)
{
    const struct ko_stamp *stamp = &frame->stamp;
    const int status = ko_letter_fits(with, letter, (int)stamp->root, (kolo_dtype)stamp->dtype,
                                      stamp->count, with->is_captured);
    const bool is_over = !with->is_place && !with->wants_receipt && frame->nbytes == stamp->count;
    int err = KOLO_OK;

    if (status)
        err = ko_refuse(with, stamp, letter, with->is_heard, is_over);
    if (!err && !status && with->is_place) {
        with->fetch = ko_fetch_new(letter, stamp->seq, (int)stamp->root, (kolo_dtype)stamp->dtype,
                                   stamp->count);
        err = with->fetch ? KOLO_OK : KOLO_E_NOMEM;
    }
    if (err)
        return err;
    ko_letters_remove(list_of(with, letter), letter);
    if (status)
        ko_letter_finish(with, letter, status);
    else
        with->letter = letter;
    return KOLO_OK;
}

/* True if the sender may leave the arriving message for another: it lies aside, or is refused. */
static bool may_stop(const struct ko_correspondence *with)
{
    return with->parcel ? with->parcel->is_aside : !with->letter;
}

/* A sender that waits for word of a message that is taken in gets it. */
static int welcome(struct ko_correspondence *with, const struct ko_link *link)
{
    if (!with->wants_receipt || with->total <= ko_unasked_bytes(link) || may_stop(with))
        return KOLO_OK;
    return ko_note(with, KO_FRAME_RESUME, with->seq);
}

/* It is answered when all has been looked at that has come (answer_question). */
static void note_question(struct ko_correspondence *with, const struct ko_stamp *stamp,
                          const struct ko_letter *letter)
{
    if (stamp->op != KO_EARLY)
        return;
    with->asking = stamp->seq;
    with->has_no_room = !letter && ko_parcel_lacks_room(with->desk, stamp->count);
}

static int begin_arrival(struct ko_correspondence *with, const struct ko_link *link,
                         const struct ko_frame *frame)
{
    const struct ko_stamp *stamp = &frame->stamp;
    const bool is_announcement = !frame->nbytes && stamp->count;
    struct ko_letter *letter = find_awaited(with, (int)stamp->root);
    int err;

    with->received++;
    with->is_arriving = true;
    with->seq = stamp->seq;
    with->tag = (int)stamp->root;
    with->arrived = 0;
    with->is_place = stamp->op & KO_PLACE;
    with->is_captured = stamp->op & KO_CAPTURED;
    with->total = with->is_place ? sizeof(struct ko_gpu_place) : stamp->count;
    with->parcel = NULL;
    with->wants_receipt = stamp->op & KO_RECEIPT;
    with->is_heard = with->wants_receipt || with->is_place || !link->posts;
    note_question(with, stamp, letter);
    err = letter && !is_announcement ? accept(with, frame, letter) : ko_parcel_keep(with, frame);
    if (!err)
        err = welcome(with, link);
    if (err || !letter || !with->parcel)
        return err;
    ko_letters_remove(list_of(with, letter), letter);
    err = ko_parcel_hand_over(with, with->parcel, letter);
    if (err) /* to be failed with the others */
        ko_letters_push(list_of(with, letter), letter);
    return err;
}

/* The sender goes on with a message that it had laid aside. */
static int go_on(struct ko_correspondence *with, const struct ko_stamp *stamp)
{
    struct ko_parcel *parcel = with->parcels;

    while (parcel && (parcel->seq != stamp->seq || !parcel->taker || !parcel->is_aside))
        parcel = parcel->next;
    if (!parcel)
        return ko_fail(KOLO_E_PROTOCOL, "message #%llu was expected, #%llu came",
                       (unsigned long long)with->received + 1, (unsigned long long)stamp->seq);
    with->is_arriving = true;
    with->seq = parcel->seq;
    with->tag = parcel->tag;
    with->parcel = parcel;
    with->is_heard = parcel->is_heard;
    with->is_place = with->is_captured = false;
    with->wants_receipt = parcel->wants_receipt;
    with->arrived = parcel->arrived;
    with->total = parcel->nbytes;
    return KOLO_OK;
}

static void tell_probes(struct ko_correspondence *with, const struct ko_stamp *stamp)
{
    struct ko_letter *probe = with->desk->probes.first, *next;

    for (; probe; probe = next) {
        next = probe->next;
        if (!ko_letter_takes(probe, (int)stamp->root) ||
            (probe->peer != KOLO_ANY_RANK && probe->peer != with->peer))
            continue;
        ko_letters_remove(&with->desk->probes, probe);
        ko_letter_deliver(with, probe, (int)stamp->root, (kolo_dtype)stamp->dtype, stamp->count);
    }
}

/* A window is faster than the wire beside it, on which what was told before this message may not
 * have been heard yet: true, once, for the caller to listen. */
static bool is_unheard(struct ko_correspondence *with, const struct ko_stamp *stamp)
{
    if (!(stamp->op & KO_BEHIND) || with->behind == stamp->seq)
        return false;
    with->behind = stamp->seq;
    with->has_more = true;
    return true;
}

/* The next slice is of another message than the last. KO_AGAIN: nobody wants it yet, or it has to
 * wait for a word. */
static int turn_to(struct ko_correspondence *with, const struct ko_link *link,
                   const struct ko_frame *frame, const struct ko_letter *wanted)
{
    const struct ko_stamp *stamp = &frame->stamp;
    int err;

    if (with->is_arriving && !may_stop(with))
        return ko_fail(KOLO_E_PROTOCOL, "message #%llu came in the middle of #%llu",
                       (unsigned long long)stamp->seq, (unsigned long long)with->seq);
    if (stamp->seq <= with->received)
        return go_on(with, stamp);
    err = check_new(with, frame);
    if (!err && is_unheard(with, stamp))
        err = KO_AGAIN;
    if (err)
        return err;
    if (find_awaited(with, (int)stamp->root))
        return begin_arrival(with, link, frame);
    tell_probes(with, stamp);
    if (!wanted || atomic_load(&wanted->work.is_done))
        return KO_AGAIN;
    return begin_arrival(with, link, frame);
}

static int end_arrival(struct ko_correspondence *with)
{
    struct ko_letter *letter = with->letter;
    struct ko_parcel *parcel = with->parcel;
    int err = KOLO_OK;

    if (with->wants_receipt && (letter || (parcel && parcel->taker)))
        err = ko_note(with, KO_FRAME_TAKEN, with->seq);
    if (err)
        return err;
    with->is_arriving = false;
    with->letter = NULL;
    with->parcel = NULL;
    if (letter && with->fetch) {
        ko_fetch_push(with, with->fetch);
        with->fetch = NULL;
        return KOLO_OK;
    }
    if (letter) {
        ko_letter_deliver(with, letter, with->tag, letter->dtype, with->total);
        return KOLO_OK;
    }
    return parcel ? ko_parcel_end(with, parcel) : KOLO_OK;
}

/* ---- slices -------------------------------------------------------------------------------- */

/* The receive into whose buffer the arriving message goes directly; NULL: there is none. */
static struct ko_letter *target(const struct ko_correspondence *with)
{
    if (with->letter)
        return with->letter;
    return with->parcel && !with->parcel->data ? with->parcel->taker : NULL;
}

/* Where the next nbytes of the arriving message go; NULL if they are dropped, or there are none. */
static unsigned char *place_of(const struct ko_correspondence *with, size_t nbytes)
{
    const struct ko_letter *letter = target(with);

    if (!nbytes)
        return NULL;
    if (letter && with->fetch)
        return (unsigned char *)&with->fetch->place + with->arrived;
    if (letter && letter->relay)
        return letter->relay->place;
    if (letter)
        return letter->buffer + with->arrived;
    return with->parcel ? with->parcel->data + with->arrived : NULL;
}

/* Bytes behind that place which are for the rest of the message. */
static size_t room_behind(const struct ko_correspondence *with, size_t nbytes)
{
    const struct ko_letter *letter = target(with);

    return letter && !with->fetch && !with->gpu && !letter->relay && with->total <= letter->nbytes
               ? with->total - with->arrived - nbytes
               : 0;
}

/* Whether the arriving message will not stay in the cache. A parcel is soon read again. */
static bool streams(const struct ko_correspondence *with)
{
    const struct ko_letter *letter = target(with);

    return letter && with->total >= letter->group->endpoint->cache_bytes;
}

/* As place_of, if adapters write the slice into GPU memory; KO_AGAIN. */
static int find_on_gpu(struct ko_correspondence *with, struct ko_link *link,
                       const struct ko_letter *letter)
{
    int err;

    if (!letter->placed || (letter->relay && ko_gpu_relay_overflows(letter->relay)))
        return KOLO_OK;
    err = ko_placed_land(letter, link, with->arrived, with->total, &with->gpu);
    with->awaits_stream = err == KO_AGAIN;
    return err;
}

/* Where the next slice goes if that is for a GPU; KO_AGAIN. */
static int find_for_gpu(struct ko_correspondence *with, struct ko_link *link, size_t nbytes)
{
    const struct ko_letter *letter = target(with);
    int err;

    with->gpu = NULL;
    if (!letter || with->fetch || !nbytes)
        return KOLO_OK;
    err = find_on_gpu(with, link, letter);
    if (err || with->gpu || !letter->relay)
        return err;
    err = ko_gpu_relay_find_place(letter->relay, with->arrived, nbytes, with->total);
    with->copying_ns[1] = letter->relay->waits_ns;
    return err;
}

static void note_written(const struct ko_correspondence *with, size_t nbytes)
{
    struct ko_placed *placed = target(with)->placed;

    if (!placed->written_to)
        placed->written_from = with->arrived;
    placed->written_to = with->arrived + nbytes;
}

/* The slice has landed. */
static int note_landed(const struct ko_correspondence *with, size_t nbytes)
{
    const struct ko_letter *letter = target(with);

    if (with->gpu)
        note_written(with, nbytes);
    else if (letter && letter->relay && !with->fetch && nbytes)
        return ko_gpu_relay_come(letter->relay, nbytes, with->arrived + nbytes == with->total);
    return KOLO_OK;
}

/* The body of the next slice. */
static int land(struct ko_correspondence *with, struct ko_link *link, size_t nbytes)
{
    unsigned char *place;
    const void *dropped;
    int err = with->is_landing ? KOLO_OK : ko_hear_gpu(with, find_for_gpu(with, link, nbytes));

    if (err)
        return err;
    place = with->gpu ? with->gpu : place_of(with, nbytes);
    link->ahead = place ? room_behind(with, nbytes) : 0;
    err = place ? link->ops->land(link, place, streams(with)) : link->ops->peek(link, &dropped);
    link->ahead = 0;
    with->is_landing = err == KO_AGAIN;
    if (err)
        return err;
    if (!place)
        link->ops->release(link);
    return ko_hear_gpu(with, note_landed(with, nbytes));
}

static bool is_done(const struct ko_letter *letter)
{
    return letter && atomic_load_explicit(&letter->work.is_done, memory_order_relaxed);
}

/* One slice of the arriving message; KO_AGAIN if it is not all here. */
static int take_slice(struct ko_correspondence *with, struct ko_link *link,
                      const struct ko_frame *frame)
{
    const size_t nbytes = frame->nbytes;
    int err = KOLO_OK;

    if (nbytes > with->total - with->arrived || (!nbytes && with->arrived))
        return ko_fail(KOLO_E_PROTOCOL, "a slice of message #%llu does not fit it",
                       (unsigned long long)with->seq);
    if (with->parcel)
        ko_parcel_redirect(with, with->parcel);
    if (with->parcel && !target(with))
        err = ko_parcel_make_room(with, with->parcel, with->arrived + nbytes);
    if (!err)
        err = land(with, link, nbytes);
    if (err)
        return err;
    with->arrived += nbytes;
    if (with->parcel)
        with->parcel->arrived = with->arrived;
    return with->arrived == with->total ? end_arrival(with) : KOLO_OK;
}

/* Everything that had come from there has been taken in. Its sender does not wait for the answer,
 * and what is told to one that has left would cost, over TCP, what it has still sent: of one that
 * left long ago the end has been seen by now, and whoever leaves now waits a while
 * (ko_mailbox_part). */
static int answer_question(struct ko_correspondence *with, const struct ko_link *link)
{
    const uint64_t seq = with->asking;

    if (!seq || link->has_notice)
        return KOLO_OK;
    with->asking = 0;
    return ko_note_room(with, KO_FRAME_TAKEN, seq, with->has_no_room);
}

/* What came for a GPU before its stream was ready is copied once that is, though no more comes; and
 * a GPU that fails meanwhile is heard of. */
static int go_on_copying(struct ko_correspondence *with)
{
    const struct ko_letter *letter = with->is_arriving ? target(with) : NULL;
    int err;

    if (!letter || !letter->relay || with->fetch)
        return KOLO_OK;
    err = ko_hear_gpu(with, ko_gpu_relay_go_on(letter->relay));
    with->awaits_stream |= err == KO_AGAIN;
    return err == KO_AGAIN ? KOLO_OK : err;
}

int ko_receive_drive(struct ko_correspondence *with, struct ko_link *link,
                     const struct ko_letter *wanted)
{
    const struct ko_frame *frame;
    bool is_empty = true;
    int err;

    with->is_drained = true;
    with->copying_ns[1] = 0;
    with->awaits_stream = false;
    if (!wanted && !with->is_arriving && !with->awaited.first && !with->desk->anyone.first &&
        ++with->unlooked % UNLOOKED)
        return KOLO_OK;
    while (!(err = link->ops->next(link, &frame))) {
        if (!with->is_arriving || frame->stamp.seq != with->seq)
            err = turn_to(with, link, frame, wanted);
        with->is_drained = err != KO_AGAIN; /* else it stays in the link */
        if (!err && with->notes)            /* at once: the sender goes on meanwhile */
            err = ko_notes_tell(with, link);
        if (!err)
            err = take_slice(with, link, frame);
        if (err == KO_AGAIN && (with->awaits_stream || with->copying_ns[1]))
            with->is_drained = false;
        is_empty = false;
        if (err)
            break;
        /* whose owner need not wait for a look at what is behind it, but for what its sender can
         * no more take back */
        if (is_done(wanted) && !ko_link_reads_ahead(link)) {
            with->is_drained = false;
            break;
        }
        is_empty = true;
    }
    if (err == KO_AGAIN && is_empty && answer_question(with, link))
        return KOLO_E_NOMEM;
    if (err == KO_AGAIN && with->notes)
        err = ko_notes_tell(with, link);
    return !err || err == KO_AGAIN ? go_on_copying(with) : err;
}

/* ---- entering ------------------------------------------------------------------------------ */

int ko_receive_enter(struct ko_correspondence *with, int n, struct ko_letter *letter)
{
    struct ko_correspondence *from = with;
    struct ko_parcel *parcel = ko_parcel_find(with, n, letter, &from);

    letter->seq = ++with->desk->posted;
    if (parcel && letter->is_probe)
        ko_letter_deliver(from, letter, parcel->tag, parcel->dtype, parcel->nbytes);
    else if (parcel)
        return ko_parcel_hand_over(from, parcel, letter);
    else
        ko_letters_push(letter->is_probe ? &with->desk->probes : list_of(with, letter), letter);
    return KOLO_OK;
}
