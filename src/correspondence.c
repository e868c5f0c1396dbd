/* SPDX-License-Identifier: MIT
 *
 * Messages that need a letter (mailbox_short.c has the others) are taken in here, moved by
 * correspondence_send.c and correspondence_receive.c, and ended here.
 */
#include "correspondence_parts.h"

#include "group.h"
#include "log.h"
#include "status.h"

#include <stdlib.h>

/* ---- lists --------------------------------------------------------------------------------- */

void ko_letters_push(struct ko_letters *list, struct ko_letter *letter)
{
    letter->next = NULL;
    if (list->last)
        list->last->next = letter;
    else
        list->first = letter;
    list->last = letter;
}

struct ko_letter *ko_letters_pop(struct ko_letters *list)
{
    struct ko_letter *letter = list->first;

    if (letter) {
        list->first = letter->next;
        if (!list->first)
            list->last = NULL;
    }
    return letter;
}

void ko_letters_remove(struct ko_letters *list, struct ko_letter *letter)
{
    struct ko_letter **link = &list->first, *before = NULL;

    while (*link != letter) {
        before = *link;
        link = &before->next;
    }
    *link = letter->next;
    if (list->last == letter)
        list->last = before;
}

struct ko_letter *ko_letters_find(const struct ko_letters *list, uint64_t seq)
{
    struct ko_letter *letter = list->first;

    while (letter && letter->seq != seq)
        letter = letter->next;
    return letter;
}

/* ---- finishing ----------------------------------------------------------------------------- */

int ko_correspondence_refused(struct ko_correspondence *with)
{
    const struct ko_stamp *refusal = &with->refused;
    const int tag = (int)refusal->root;

    if (!refusal->seq)
        return KOLO_OK;
    with->refused.seq = 0;
    if (refusal->op & KO_TOO_LONG)
        return ko_fail(KOLO_E_TRUNCATED,
                       "an earlier message of tag %d to rank %d was longer than its receive, which "
                       "had room for %zu bytes",
                       tag, with->peer, (size_t)refusal->count);
    if (refusal->op & KO_CAPTURED)
        return ko_fail(KOLO_E_MISMATCH,
                       "rank %d captured the receive of an earlier message of tag %d for a graph, "
                       "the message was sent without one",
                       with->peer, tag);
    return ko_fail(KOLO_E_MISMATCH,
                   "rank %d received an earlier message of tag %d as %s, as which it was not sent",
                   with->peer, tag, kolo_dtype_name((kolo_dtype)refusal->dtype));
}

/* Not with a stream: what follows there depends on the message itself. */
static bool may_tell(const struct ko_letter *letter)
{
    return !letter->is_probe && !ko_group_has_stream(letter->group);
}

void ko_letter_finish(struct ko_correspondence *with, struct ko_letter *letter, int status)
{
    if (!status && with->refused.seq && may_tell(letter))
        status = ko_correspondence_refused(with);
    with->nfinished++;
    ko_work_complete(&letter->work, status);
}

static void fail_list(struct ko_correspondence *with, struct ko_letters *list, int status)
{
    struct ko_letter *letter;

    while ((letter = ko_letters_pop(list)))
        ko_letter_finish(with, letter, status);
}

void ko_correspondence_fail(struct ko_correspondence *with, int status)
{
    fail_list(with, &with->sending, status);
    fail_list(with, &with->aside, status);
    fail_list(with, &with->given, status);
    fail_list(with, &with->flushing, status);
    fail_list(with, &with->awaited, status);
    if (with->letter)
        ko_letter_finish(with, with->letter, status);
    with->letter = NULL;
    for (struct ko_fetch *fetch = with->fetches, *next; fetch; fetch = next) {
        struct ko_letter *letter = fetch->letter;

        next = fetch->next;
        ko_fetch_free(fetch);
        ko_letter_finish(with, letter, status);
    }
    with->fetches = NULL;
    for (struct ko_parcel *parcel = with->parcels; parcel; parcel = parcel->next) {
        if (parcel->taker)
            ko_letter_finish(with, parcel->taker, status);
        parcel->taker = NULL;
    }
    ko_notes_drop(with);
}

int ko_desk_fail(struct ko_desk *desk, int status)
{
    struct ko_letters *const lists[] = {&desk->anyone, &desk->probes};
    struct ko_letter *letter;
    int nfinished = 0;

    for (int i = 0; i < 2; i++)
        while ((letter = ko_letters_pop(lists[i]))) {
            ko_work_complete(&letter->work, status);
            nfinished++;
        }
    return nfinished;
}

void ko_desk_remove_probe(struct ko_desk *desk, struct ko_letter *probe)
{
    ko_letters_remove(&desk->probes, probe);
}

/* ---- telling the peer ---------------------------------------------------------------------- */

static int add_note(struct ko_correspondence *with, enum ko_frame_kind kind,
                    const struct ko_stamp *stamp)
{
    struct ko_note **end = &with->notes;
    struct ko_note *note = ko_alloc(sizeof *note, "a word to a peer");

    if (!note)
        return KOLO_E_NOMEM;
    note->kind = kind;
    note->stamp = *stamp;
    note->is_told = false;
    while (*end)
        end = &(*end)->next;
    *end = note;
    with->desk->nnotes++;
    return KOLO_OK;
}

/* Something else goes to the peer, or will not be long. */
static int add_untold(struct ko_correspondence *with)
{
    int err = with->untold.seq ? add_note(with, KO_FRAME_REFUSE, &with->untold) : KOLO_OK;

    with->untold.seq = 0;
    return err;
}

static int note(struct ko_correspondence *with, enum ko_frame_kind kind,
                const struct ko_stamp *stamp)
{
    int err = add_untold(with);

    return err ? err : add_note(with, kind, stamp);
}

int ko_note_room(struct ko_correspondence *with, enum ko_frame_kind kind, uint64_t seq,
                 bool has_no_room)
{
    return note(with, kind,
                &(struct ko_stamp){
                    .seq = seq, .what = KO_POINT_TO_POINT, .op = has_no_room ? KO_NO_ROOM : 0});
}

int ko_note(struct ko_correspondence *with, enum ko_frame_kind kind, uint64_t seq)
{
    return ko_note_room(with, kind, seq, false);
}

/* Over messages a word that goes alone would cost what its sender, who may have left, has still
 * sent. In memory that both reach, where it costs nothing, some are on their way at a time: who
 * sends misfits and hears nothing is not to fill this rank's memory. Of those that wait the first
 * is kept. */
static bool may_tell_now(const struct ko_correspondence *with, bool is_heard, bool is_over)
{
    return is_heard && (!is_over || (with->peer != with->desk->rank && !with->notes));
}

int ko_refuse(struct ko_correspondence *with, const struct ko_stamp *message,
              const struct ko_letter *receive, bool is_heard, bool is_over)
{
    struct ko_stamp refusal =
        ko_message_stamp(message->seq, (int)message->root, receive->dtype, receive->nbytes);

    refusal.op = (message->count > receive->nbytes ? KO_TOO_LONG : 0) |
                 (ko_letter_is_captured(receive) ? KO_CAPTURED : 0);
    if (with->peer != with->desk->rank) /* which knows */
        with->is_refusing = true;
    if (may_tell_now(with, is_heard, is_over))
        return note(with, KO_FRAME_REFUSE, &refusal);
    if (with->is_refusing && !with->untold.seq)
        with->untold = refusal;
    return KOLO_OK;
}

static void drop_first_note(struct ko_correspondence *with)
{
    struct ko_note *note = with->notes;

    with->notes = note->next;
    with->desk->nnotes--;
    free(note);
}

void ko_notes_drop(struct ko_correspondence *with)
{
    while (with->notes)
        drop_first_note(with);
    with->untold.seq = 0;
    with->asking = 0;
}

/* A rank needs no wire to tell itself. */
static int tell(struct ko_correspondence *with, struct ko_link *link, const struct ko_note *note)
{
    if (with->peer == with->desk->rank)
        return ko_correspondence_hear(with, link, note->kind, &note->stamp);
    return ko_link_tell(link, note->kind, &note->stamp, NULL, 0);
}

/* In order, and one at a time: each stays until it is out, so that somebody sees to it. */
int ko_notes_tell(struct ko_correspondence *with, struct ko_link *link)
{
    struct ko_note *note;
    int err = KOLO_OK;

    while (!err && (note = with->notes) && link->wire && !ko_link_is_telling(link, note->kind)) {
        if (note->is_told) {
            drop_first_note(with);
            continue;
        }
        err = tell(with, link, note);
        note->is_told = true;
    }
    return err;
}

bool ko_correspondence_part(struct ko_correspondence *with, struct ko_link *link)
{
    int err = add_untold(with);

    if (!with->notes)
        return true;
    if (!err)
        err = ko_notes_tell(with, link);
    if (!err)
        err = ko_link_push(link);
    return err || !with->notes;
}

/* ---- driving ------------------------------------------------------------------------------- */

int ko_correspondence_drive(struct ko_correspondence *with, struct ko_link *link,
                            const struct ko_letter *wanted)
{
    int err = ko_notes_tell(with, link);

    if (!err)
        err = ko_send_drive(with, link);
    if (!err)
        err = ko_receive_drive(with, link, wanted);
    if (!err && with->fetches)
        err = ko_receive_fetch(with);
    if (!err && with->notes) /* the peer may wait for them, and this thread be about to sleep */
        err = ko_notes_tell(with, link);
    ko_send_finish(with, link);
    return err;
}

/* ---- entering ------------------------------------------------------------------------------ */

int ko_correspondence_enter(struct ko_correspondence *with, int n, struct ko_letter *letter)
{
    int err;

    if (!letter->is_send)
        return ko_receive_enter(with, n, letter);
    err = add_untold(with);
    if (err)
        return err;
    letter->is_behind = with->is_refusing;
    with->is_refusing = false;
    letter->seq = ++with->sent;
    ko_letters_push(&with->sending, letter);
    return KOLO_OK;
}

void ko_correspondence_enter_given(struct ko_correspondence *with, struct ko_letter *letter,
                                   const struct ko_link *link)
{
    letter->has_begun = true;
    letter->moved = letter->nbytes;
    letter->flushed_at = link->referenced;
    letter->seq = with->sent;
    ko_letters_push(&with->flushing, letter);
}

bool ko_correspondence_wants(const struct ko_correspondence *with)
{
    const struct ko_parcel *parcel = with->parcels;

    while (parcel && !parcel->taker)
        parcel = parcel->next;
    return parcel || with->sending.first || with->aside.first || with->given.first ||
           with->flushing.first || with->awaited.first || with->letter || with->fetches;
}

void ko_correspondence_clear(struct ko_correspondence *with)
{
    if (ko_correspondence_refused(with))
        ko_log(KO_LOG_WARN, "%s", kolo_last_error());
    while (with->parcels)
        ko_parcel_free(with, with->parcels);
    ko_fetch_free(with->fetch);
    ko_notes_drop(with);
}
