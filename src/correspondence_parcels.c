/* SPDX-License-Identifier: MIT
 *
 * Messages that came, or began to come, before their receive: each is kept as a parcel, to be
 * copied when the receive is posted; or as far as it has come by then, and the rest goes straight
 * into the receive's buffer.
 */
#include "copy.h"
#include "correspondence_parts.h"
#include "dtype.h"
#include "fault.h"
#include "status.h"

#include <stdlib.h>
#include <string.h>

/* ---- memory -------------------------------------------------------------------------------- */

/* Whether nbytes more make more than `most`. */
static bool exceeds(const struct ko_desk *desk, size_t nbytes, size_t most)
{
    return nbytes > most || desk->held_bytes > most - nbytes;
}

bool ko_parcel_lacks_room(const struct ko_desk *desk, size_t nbytes)
{
    return exceeds(desk, nbytes, desk->most_bytes);
}

/* Counts nbytes more of memory for a parcel. */
static int charge(struct ko_correspondence *with, const struct ko_parcel *parcel, size_t nbytes)
{
    struct ko_desk *desk = with->desk;

    if (exceeds(desk, nbytes, desk->most_bytes + desk->most_bytes / KO_BEYOND_PART))
        return ko_fail(KOLO_E_NOMEM,
                       "rank %d holds %zu bytes of messages that it has not asked for, and the one "
                       "of tag %d and %zu bytes from rank %d is more than KOLO_UNEXPECTED_BYTES "
                       "(%zu) allows, with half as much again for what its sender could not lay "
                       "aside; post receives earlier, or raise it",
                       desk->rank, desk->held_bytes, parcel->tag, parcel->nbytes, with->peer,
                       desk->most_bytes);
    desk->held_bytes += nbytes;
    return KOLO_OK;
}

int ko_parcel_make_room(struct ko_correspondence *with, struct ko_parcel *parcel, size_t needed)
{
    unsigned char *data;
    size_t room;
    int err;

    if (needed <= parcel->room)
        return KOLO_OK;
    room = needed < parcel->nbytes / 2 ? 2 * needed : parcel->nbytes;
    if (parcel->is_place) /* perhaps of less */
        room = sizeof(struct ko_gpu_place);
    err = charge(with, parcel, room - parcel->room);
    if (err)
        return err;
    data = ko_fault(KO_FAULT_ALLOC) ? NULL : realloc(parcel->data, room);
    if (!data) {
        with->desk->held_bytes -= room - parcel->room;
        return ko_fail(KOLO_E_NOMEM, "no memory for a message nobody waits for yet (%zu bytes)",
                       room);
    }
    parcel->data = data;
    parcel->room = room;
    return KOLO_OK;
}

static void free_data(struct ko_correspondence *with, struct ko_parcel *parcel)
{
    with->desk->held_bytes -= parcel->room;
    free(parcel->data);
    parcel->data = NULL;
    parcel->room = 0;
}

void ko_parcel_free(struct ko_correspondence *with, struct ko_parcel *parcel)
{
    struct ko_parcel **link = &with->parcels, *before = NULL;

    while (*link != parcel) {
        before = *link;
        link = &before->next;
    }
    *link = parcel->next;
    if (with->last_parcel == parcel)
        with->last_parcel = before;
    if (with->parcel == parcel)
        with->parcel = NULL;
    free_data(with, parcel);
    with->desk->held_bytes -= sizeof *parcel;
    free(parcel);
}

/* ---- keeping ------------------------------------------------------------------------------- */

/* Such a parcel, behind all others. */
static int push(struct ko_correspondence *with, const struct ko_parcel *what,
                struct ko_parcel **parcel_out)
{
    struct ko_parcel *parcel = ko_alloc(sizeof *parcel, "a message nobody waits for yet");
    int err = parcel ? charge(with, what, sizeof *parcel) : KOLO_E_NOMEM;

    if (err) {
        free(parcel);
        return err;
    }
    *parcel = *what;
    parcel->number = ++with->desk->kept;
    if (with->last_parcel)
        with->last_parcel->next = parcel;
    else
        with->parcels = parcel;
    with->last_parcel = parcel;
    *parcel_out = parcel;
    return KOLO_OK;
}

int ko_parcel_keep(struct ko_correspondence *with, const struct ko_frame *frame)
{
    const struct ko_stamp *stamp = &frame->stamp;
    const bool may_ask = with->is_heard && !with->is_place && frame->nbytes < stamp->count;
    const bool is_long = may_ask && stamp->count > with->desk->eager_bytes;
    const bool lacks_room =
        may_ask && !is_long && frame->nbytes && ko_parcel_lacks_room(with->desk, stamp->count);
    const struct ko_parcel what = {.seq = stamp->seq,
                                   .tag = (int)stamp->root,
                                   .dtype = (kolo_dtype)stamp->dtype,
                                   .nbytes = stamp->count,
                                   .is_heard = with->is_heard,
                                   .wants_receipt = with->wants_receipt,
                                   .is_place = with->is_place,
                                   .is_captured = with->is_captured,
                                   .is_aside =
                                       is_long || lacks_room || (!frame->nbytes && stamp->count)};
    int err = push(with, &what, &with->parcel);

    if (err || !frame->nbytes || !what.is_aside)
        return err;
    return ko_note_room(with, KO_FRAME_ASIDE, what.seq, lacks_room);
}

/* As one that its sender had laid aside. */
int ko_parcel_ask_for(struct ko_correspondence *with, const struct ko_fetch *fetch)
{
    const struct ko_parcel what = {.seq = fetch->seq,
                                   .tag = fetch->tag,
                                   .dtype = fetch->dtype,
                                   .nbytes = fetch->nbytes,
                                   .is_heard = true,
                                   .wants_receipt = true,
                                   .is_aside = true,
                                   .taker = fetch->letter};
    struct ko_parcel *parcel;
    int err = push(with, &what, &parcel);

    return err ? err : ko_note(with, KO_FRAME_RESUME, fetch->seq);
}

/* ---- finding ------------------------------------------------------------------------------- */

struct ko_parcel *ko_parcel_find(struct ko_correspondence *with, int n,
                                 const struct ko_letter *letter, struct ko_correspondence **from)
{
    struct ko_parcel *found = NULL;

    for (int i = 0; i < n; i++) {
        struct ko_parcel *parcel = with[i].parcels;

        while (parcel && (parcel->taker || !ko_letter_takes(letter, parcel->tag)))
            parcel = parcel->next;
        if (parcel && (!found || parcel->number < found->number)) {
            found = parcel;
            *from = &with[i];
        }
    }
    return found;
}

/* ---- handing over -------------------------------------------------------------------------- */

/* What has come goes to the receive. */
static void give_data(struct ko_correspondence *with, struct ko_parcel *parcel,
                      struct ko_letter *letter)
{
    if (letter->relay) {
        ko_gpu_relay_keep(letter->relay, parcel->data, parcel->arrived);
        parcel->data = NULL;
    } else {
        ko_copy(letter->buffer, parcel->data, parcel->arrived);
    }
    free_data(with, parcel);
}

void ko_parcel_redirect(struct ko_correspondence *with, struct ko_parcel *parcel)
{
    if (!parcel->taker || !parcel->data || parcel->is_place ||
        (parcel == with->parcel && with->is_landing))
        return;
    give_data(with, parcel, parcel->taker);
}

/* The place has come whole. */
static int fetch_parcel(struct ko_correspondence *with, struct ko_parcel *parcel,
                        struct ko_letter *letter)
{
    struct ko_fetch *fetch =
        ko_fetch_new(letter, parcel->seq, parcel->tag, parcel->dtype, parcel->nbytes);

    if (!fetch)
        return KOLO_E_NOMEM;
    memcpy(&fetch->place, parcel->data, sizeof fetch->place);
    ko_fetch_push(with, fetch);
    ko_parcel_free(with, parcel);
    return KOLO_OK;
}

/* Its sender hears what it waits for, if anything: status is whether the receive takes it. */
static int answer(struct ko_correspondence *with, const struct ko_parcel *parcel,
                  const struct ko_letter *letter, int status)
{
    const struct ko_stamp message =
        ko_message_stamp(parcel->seq, parcel->tag, parcel->dtype, parcel->nbytes);
    const bool is_over = parcel->is_whole && !parcel->is_place && !parcel->wants_receipt;

    if (status)
        return ko_refuse(with, &message, letter, parcel->is_heard, is_over);
    if (parcel->is_whole && parcel->wants_receipt)
        return ko_note(with, KO_FRAME_TAKEN, parcel->seq);
    if (!parcel->is_whole && parcel->is_aside)
        return ko_note(with, KO_FRAME_RESUME, parcel->seq);
    return KOLO_OK;
}

int ko_parcel_hand_over(struct ko_correspondence *with, struct ko_parcel *parcel,
                        struct ko_letter *letter)
{
    const int status = ko_letter_fits(with, letter, parcel->tag, parcel->dtype, parcel->nbytes,
                                      parcel->is_captured);
    int err = answer(with, parcel, letter, status);

    if (err)
        return err;
    if (!status && !parcel->is_whole) {
        parcel->taker = letter;
        ko_parcel_redirect(with, parcel);
        return KOLO_OK;
    }
    if (!status && parcel->is_place)
        return fetch_parcel(with, parcel, letter);
    if (!status)
        give_data(with, parcel, letter);
    if (status)
        ko_letter_finish(with, letter, status);
    else
        ko_letter_deliver(with, letter, parcel->tag, parcel->dtype, parcel->nbytes);
    ko_parcel_free(with, parcel);
    return KOLO_OK;
}

int ko_parcel_end(struct ko_correspondence *with, struct ko_parcel *parcel)
{
    parcel->is_whole = true;
    if (!parcel->taker)
        return KOLO_OK;
    if (parcel->is_place)
        return fetch_parcel(with, parcel, parcel->taker);
    ko_parcel_redirect(with, parcel);
    ko_letter_deliver(with, parcel->taker, parcel->tag, parcel->dtype, parcel->nbytes);
    ko_parcel_free(with, parcel);
    return KOLO_OK;
}

size_t ko_correspondence_count_unasked(const struct ko_correspondence *with, int tag,
                                       kolo_message *first)
{
    size_t n = 0;

    for (const struct ko_parcel *parcel = with->parcels; parcel; parcel = parcel->next) {
        if (parcel->taker || (tag != KOLO_ANY_TAG && tag != parcel->tag))
            continue;
        if (!n++)
            *first = (kolo_message){with->peer, parcel->tag, parcel->dtype,
                                    parcel->nbytes >> ko_dtype_shift(parcel->dtype)};
    }
    return n;
}
