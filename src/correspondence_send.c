/* SPDX-License-Identifier: MIT
 *
 * Sends go out in the order in which they were posted, slice by slice as the link has room. One
 * that the peer has laid aside makes way for the others until the peer has a receive for it.
 * Meanwhile further long ones only announce themselves, by a slice without bytes: what they would
 * give to the link before the peer's word came would only fill the peer's memory. If that has no
 * room for messages of medium length either, those do the same.
 */
#include "correspondence_parts.h"
#include "dtype.h"
#include "group.h"
#include "status.h"

#include <stdlib.h>

/* ---- finishing ----------------------------------------------------------------------------- */

/* A receive that does not fit the message has got it. */
static int refused(const struct ko_correspondence *with, const struct ko_letter *letter)
{
    const int rank = with->desk->rank;
    const bool is_captured = ko_letter_is_captured(letter);

    if (letter->nbytes > letter->refused_room)
        return ko_fail(KOLO_E_TRUNCATED,
                       "the message of tag %d to rank %d has %zu bytes, the receive room for %zu",
                       letter->tag, with->peer, letter->nbytes, letter->refused_room);
    if (letter->dtype != letter->refused_dtype)
        return ko_fail(KOLO_E_MISMATCH,
                       "rank %d sends the message of tag %d as %s, rank %d receives it as %s", rank,
                       letter->tag, kolo_dtype_name(letter->dtype), with->peer,
                       kolo_dtype_name(letter->refused_dtype));
    if (is_captured != letter->is_refused_captured)
        return ko_fail_half_captured(letter->tag, is_captured ? rank : with->peer,
                                     is_captured ? with->peer : rank);
    return ko_fail(
        KOLO_E_UNSUPPORTED,
        "the message of tag %d cannot be captured for a graph: rank %d does not reach "
        "the memory that it lies in, of rank %d's (a pool's, perhaps, which cannot be handed "
        "over)",
        letter->tag, with->peer, rank);
}

void ko_send_finish(struct ko_correspondence *with, struct ko_link *link)
{
    struct ko_letter *letter;

    if (!with->flushing.first)
        return;
    (void)ko_link_is_flushed(link);
    while ((letter = with->flushing.first) && link->flushed >= letter->flushed_at) {
        ko_letters_pop(&with->flushing);
        ko_letter_finish(with, letter, letter->is_refused ? refused(with, letter) : KOLO_OK);
    }
}

/* ---- sending ------------------------------------------------------------------------------- */

/* Whether the peer may want it to be laid aside. */
static bool is_long(const struct ko_correspondence *with, const struct ko_letter *letter,
                    const struct ko_link *link)
{
    return !letter->placed && letter->nbytes > with->desk->eager_bytes &&
           letter->nbytes > link->longest;
}

/* Whether it is complete only when the peer says so. In memory that both reach a long one waits for
 * the peer as it is, slot by slot; but with no eager bytes at all everything has a receipt. */
static bool has_receipt(const struct ko_correspondence *with, const struct ko_letter *letter,
                        const struct ko_link *link)
{
    if (!with->desk->eager_bytes)
        return !letter->placed;
    return link->posts && is_long(with, letter, link);
}

/* Whether the peer keeps it without its receive, but may want it to be laid aside where it has no
 * room left. Of what is one slice nothing is left here to be laid aside. */
static bool is_medium(const struct ko_correspondence *with, const struct ko_letter *letter,
                      const struct ko_link *link)
{
    return !letter->placed && letter->nbytes > link->longest &&
           letter->nbytes <= with->desk->eager_bytes;
}

/* What each slice says. */
static struct ko_stamp stamp_of(const struct ko_correspondence *with,
                                const struct ko_letter *letter, const struct ko_link *link)
{
    struct ko_stamp stamp =
        ko_message_stamp(letter->seq, letter->tag, letter->dtype, letter->nbytes);

    stamp.op = has_receipt(with, letter, link) ? KO_RECEIPT : letter->asks;
    if (letter->placed)
        stamp.op = letter->placed->is_captured ? KO_PLACE | KO_CAPTURED : KO_PLACE;
    if (letter->is_behind && link->inbox)
        stamp.op |= KO_BEHIND;
    return stamp;
}

/* Whether the peer's word ends it. */
static bool is_answered(const struct ko_stamp *stamp)
{
    const unsigned op = stamp->op & ~(unsigned)KO_BEHIND;

    return op && op != KO_EARLY;
}

/* A message that asks for a receipt goes on when the peer has said that it wants it. */
static bool awaits_word(const struct ko_letter *letter, const struct ko_stamp *stamp,
                        const struct ko_link *link)
{
    return is_answered(stamp) && !letter->is_wanted && letter->moved >= ko_unasked_bytes(link);
}

/* Of what leaves the cache slots make more, and GPU memory is not read where it lies. */
static enum ko_flow flow_of(const struct ko_letter *letter, const struct ko_link *link)
{
    if (letter->placed || letter->held || letter->nbytes >= letter->group->endpoint->cache_bytes)
        return KO_USED;
    if (letter->is_awaited && !letter->moved)
        return KO_AWAITED;
    return letter->is_awaited && letter->nbytes <= KO_FEW_SLICES * link->longest ? KO_FOLLOWS
                                                                                 : KO_STREAM;
}

/* Bytes of messages of medium length that may go to the peer without a word of it. */
static size_t unheard_bytes(const struct ko_correspondence *with)
{
    return with->desk->most_bytes / KO_UNHEARD_PART;
}

/* What there is of the letter from `moved` on: *nbytes. KO_AGAIN while it comes from a GPU. */
static int find_body(struct ko_correspondence *with, const struct ko_letter *letter,
                     struct ko_link *link, const unsigned char **body, size_t *nbytes)
{
    int err;

    if (!letter->relay || !letter->nbytes) {
        *body = letter->placed ? (const void *)&letter->placed->place : letter->buffer;
        *body += letter->moved;
        *nbytes = (letter->placed ? sizeof letter->placed->place : letter->nbytes) - letter->moved;
        return KOLO_OK;
    }
    (void)ko_link_is_flushed(link);
    err = ko_hear_gpu(with,
                      ko_gpu_relay_read(letter->relay, letter->moved, link->flushed, body, nbytes));
    with->copying_ns[0] = letter->relay->waits_ns;
    return err;
}

static int post(struct ko_link *link, const struct ko_stamp *stamp, const struct ko_letter *letter,
                const unsigned char *body, size_t nbytes)
{
    int err;

    link->flow = flow_of(letter, link);
    err = letter->held ? ko_link_post_held(link, stamp, body, nbytes, letter->held)
                       : link->ops->post(link, stamp, body, nbytes);
    if (!err && letter->relay)
        ko_gpu_relay_given(letter->relay, link->referenced);
    return err;
}

/* Gives slices of the letter to the link; KO_AGAIN when it takes no more now. Of a long one, or one
 * that is for the peer's memory, no more than the link has slots before its word has been listened
 * for, however fast the peer takes them, and however often it was waited for meanwhile. */
static int give(struct ko_correspondence *with, struct ko_letter *letter, struct ko_link *link)
{
    const struct ko_stamp stamp = stamp_of(with, letter, link);
    const bool is_much = is_long(with, letter, link) ||
                         (is_medium(with, letter, link) && letter->nbytes > unheard_bytes(with));
    const uint64_t most = is_much ? with->listened + link->slots : UINT64_MAX;
    const size_t total = letter->placed ? sizeof letter->placed->place : letter->nbytes;

    if (!letter->has_begun)
        letter->is_awaited = ko_correspondence_is_awaited(with, link);
    while (!letter->has_begun || letter->moved < total) {
        const unsigned char *body;
        size_t left, nbytes;
        int err;

        if (awaits_word(letter, &stamp, link))
            return KO_AGAIN;
        with->has_more = link->sent >= most;
        if (with->has_more)
            return KO_AGAIN;
        err = find_body(with, letter, link, &body, &left);
        nbytes = left < link->longest ? left : link->longest;
        if (!err)
            err = post(link, &stamp, letter, body, nbytes);
        if (err)
            return err;
        letter->has_begun = true;
        letter->moved += nbytes;
    }
    letter->flushed_at = link->referenced;
    with->had_come = link->received;
    return KOLO_OK;
}

static bool is_to_be_announced(const struct ko_correspondence *with, const struct ko_letter *letter,
                               const struct ko_link *link)
{
    if (letter->has_begun)
        return false;
    return (with->aside.first && is_long(with, letter, link)) ||
           (with->is_full && is_medium(with, letter, link));
}

static void lay_aside(struct ko_correspondence *with, struct ko_letter *letter)
{
    ko_letters_remove(&with->sending, letter);
    ko_letters_push(&with->aside, letter);
    letter->is_aside = true;
}

static int announce(struct ko_correspondence *with, struct ko_letter *letter, struct ko_link *link)
{
    struct ko_stamp stamp;
    int err;

    letter->asks = link->posts ? KO_RECEIPT : 0;
    stamp = stamp_of(with, letter, link);
    err = link->ops->post(link, &stamp, letter->buffer, 0);
    if (err)
        return err;
    if (with->asked == letter->seq) /* before it was to be announced */
        with->asked = 0;
    letter->has_begun = true;
    lay_aside(with, letter);
    return KOLO_OK;
}

/* Before so many bytes of messages of medium length go on unheard: KO_AGAIN, for the caller to
 * listen. Over messages the peer may only tell of its memory who asks. So there one of them does,
 * and as many bytes may follow it before the answer: KO_AGAIN. It is complete without: that may
 * come when its receive is posted, and no send of ours may wait for that. */
static int ask(struct ko_correspondence *with, struct ko_letter *letter, const struct ko_link *link)
{
    if (letter->has_begun || with->asked == letter->seq || !is_medium(with, letter, link) ||
        with->unheard + letter->nbytes <= unheard_bytes(with))
        return KOLO_OK;
    if (!link->posts) {
        with->has_more = with->unheard;
        with->unheard = 0;
        return with->has_more ? KO_AGAIN : KOLO_OK;
    }
    if (with->asked)
        return KO_AGAIN;
    letter->asks = KO_EARLY;
    with->asked = letter->seq;
    with->unheard = 0;
    return KOLO_OK;
}

/* One that is not to be announced. */
static int send(struct ko_correspondence *with, struct ko_letter *letter, struct ko_link *link)
{
    const bool had_begun = letter->has_begun;
    int err = ask(with, letter, link);

    if (err)
        return err;
    err = give(with, letter, link);
    if (!had_begun && letter->has_begun && is_medium(with, letter, link))
        with->unheard += letter->nbytes;
    return err;
}

int ko_send_drive(struct ko_correspondence *with, struct ko_link *link)
{
    struct ko_letter *letter;
    int err = KOLO_OK;

    with->has_more = false;
    with->copying_ns[0] = 0;
    while (!err && !with->has_left && (letter = with->sending.first)) {
        if (is_to_be_announced(with, letter, link)) {
            err = announce(with, letter, link);
            continue;
        }
        err = send(with, letter, link);
        if (!err) {
            const struct ko_stamp stamp = stamp_of(with, letter, link);

            ko_letters_pop(&with->sending);
            ko_letters_push(is_answered(&stamp) ? &with->given : &with->flushing, letter);
        }
    }
    ko_send_finish(with, link);
    return err == KO_AGAIN ? KOLO_OK : err;
}

/* ---- what the peer tells ------------------------------------------------------------------- */

/* A message that the peer takes in goes on behind the one under way, whose slices it expects now.
 */
static void go_on(struct ko_correspondence *with, struct ko_letter *letter)
{
    struct ko_letter *first = with->sending.first;

    letter->is_wanted = true;
    if (!first || !first->has_begun) {
        letter->next = first;
        with->sending.first = letter;
    } else {
        letter->next = first->next;
        first->next = letter;
    }
    if (!letter->next)
        with->sending.last = letter;
}

/* The letter no longer lies aside. When none that there was no room for does, there may be room. */
static void leave_aside(struct ko_correspondence *with, const struct ko_letter *letter)
{
    if (letter->nbytes <= with->desk->eager_bytes && !with->aside.first)
        with->is_full = false;
}

static void resume(struct ko_correspondence *with, struct ko_letter *letter)
{
    ko_letters_remove(&with->aside, letter);
    leave_aside(with, letter);
    letter->is_aside = false;
    go_on(with, letter);
}

/* The peer does not reach the GPU memory that the message lies in. */
static int withdraw_place(struct ko_correspondence *with, struct ko_letter *letter)
{
    int err;

    if (!letter->placed || ko_letter_is_captured(letter))
        return KOLO_OK;
    err = ko_hear_gpu(with, ko_placed_relay(letter));
    if (err)
        return err;
    ko_letters_remove(&with->given, letter);
    letter->asks = KO_RECEIPT;
    letter->moved = 0;
    go_on(with, letter);
    return KOLO_OK;
}

/* A message that lies aside, or is under way, is to go on; one that was to be fetched, to be sent.
 */
static int hear_wanted(struct ko_correspondence *with, uint64_t seq)
{
    struct ko_letter *letter = ko_letters_find(&with->aside, seq);

    if (letter)
        resume(with, letter);
    else if ((letter = ko_letters_find(&with->sending, seq)))
        letter->is_wanted = true;
    else if ((letter = ko_letters_find(&with->given, seq)))
        return withdraw_place(with, letter);
    return KOLO_OK;
}

/* Ends a send; it is complete when the link refers to its buffer no more. */
static int refuse(struct ko_correspondence *with, const struct ko_link *link,
                  const struct ko_stamp *stamp)
{
    struct ko_letters *const lists[] = {&with->sending, &with->aside, &with->given,
                                        &with->flushing};
    enum { FLUSHING = 3 };
    struct ko_letter *letter = NULL;
    int i = 0;

    while (i <= FLUSHING && !(letter = ko_letters_find(lists[i], stamp->seq)))
        i++;
    if (!letter && ko_dtype_is_valid(stamp->dtype)) { /* it was complete before */
        if (!with->refused.seq)
            with->refused = *stamp;
        return KOLO_OK;
    }
    if (!letter || !letter->has_begun || !ko_dtype_is_valid(stamp->dtype) ||
        (stamp->count >= letter->nbytes && stamp->dtype == letter->dtype &&
         !ko_letter_is_captured(letter) && !(stamp->op & KO_CAPTURED)))
        return ko_fail(KOLO_E_PROTOCOL, "it refused message #%llu, which fits",
                       (unsigned long long)stamp->seq);
    letter->is_refused = true;
    letter->refused_room = stamp->count;
    letter->refused_dtype = (kolo_dtype)stamp->dtype;
    letter->is_refused_captured = stamp->op & KO_CAPTURED;
    if (i < FLUSHING) {
        ko_letters_remove(lists[i], letter);
        if (letter->is_aside)
            leave_aside(with, letter);
        letter->flushed_at = link->referenced;
        ko_letters_push(&with->flushing, letter);
    }
    return KOLO_OK;
}

/* A message has been received whose sender waits for that, or one that asked has been kept. */
static int hear_taken(struct ko_correspondence *with, uint64_t seq)
{
    struct ko_letter *letter = ko_letters_find(&with->given, seq);
    const bool has_asked = with->asked == seq;

    if (has_asked)
        with->asked = 0;
    if (!letter && !has_asked)
        return ko_fail(KOLO_E_PROTOCOL, "it took message #%llu, which waits for no such word",
                       (unsigned long long)seq);
    if (!letter)
        return KOLO_OK;
    ko_letters_remove(&with->given, letter);
    ko_letters_push(&with->flushing, letter);
    return KOLO_OK;
}

int ko_correspondence_hear(struct ko_correspondence *with, const struct ko_link *link,
                           enum ko_frame_kind kind, const struct ko_stamp *stamp)
{
    struct ko_letter *letter;

    if (stamp->what != KO_POINT_TO_POINT || !stamp->seq || stamp->seq > with->sent)
        return ko_fail(KOLO_E_PROTOCOL, "it told of message #%llu, of %llu",
                       (unsigned long long)stamp->seq, (unsigned long long)with->sent);
    if (kind == KO_FRAME_REFUSE)
        return refuse(with, link, stamp);
    if (kind != KO_FRAME_RESUME && stamp->op & KO_NO_ROOM)
        with->is_full = true;
    if (kind == KO_FRAME_ASIDE) { /* unless it has been given to the link to its end */
        letter = with->sending.first;
        if (letter && letter->seq == stamp->seq && letter->has_begun)
            lay_aside(with, letter);
        return KOLO_OK;
    }
    if (kind == KO_FRAME_RESUME)
        return hear_wanted(with, stamp->seq);
    return hear_taken(with, stamp->seq);
}
