/* SPDX-License-Identifier: MIT */
#include "window_pieces.h"

#include "copy.h"
#include "foreign.h"
#include "status.h"
#include "window_slots.h"

/* Bytes of a piece: a slice goes in halves until these have as many as usual, and then in more, but
 * not too many. More of them would be on their way sooner, between threads of one core; between
 * cores each costs. */
enum { LEAST = 4 << 10, USUAL = 8 << 10, PIECES = 4 };

/* For a piece, while its sender may be copying it. */
enum { LOOKS = 256 };

bool ko_window_goes_in_pieces(const struct ko_link *link, size_t nbytes)
{
    return (link->flow == KO_PASSED || link->flow == KO_FOLLOWS || link->flow == KO_AWAITED ||
            link->flow == KO_ADDED) &&
           ko_window_piece(nbytes) < nbytes;
}

size_t ko_window_piece(size_t nbytes)
{
    const size_t half = (nbytes + 1) / 2, piece = (nbytes + PIECES - 1) / PIECES;
    const size_t least = half < USUAL ? half : USUAL;

    if (nbytes < 2 * LEAST)
        return nbytes;
    return ko_window_place((uint32_t)(piece < least ? least : piece));
}

static size_t bytes_from(size_t at, size_t piece, size_t nbytes)
{
    return nbytes - at < piece ? nbytes - at : piece;
}

int ko_window_post_pieces(struct ko_link *link, const struct ko_stamp *stamp, const void *from,
                          void *place, size_t nbytes)
{
    const size_t piece = ko_window_piece(nbytes);
    struct ko_slot *slot = link->next_out;
    int err = KOLO_OK;

    for (size_t at = piece; at < nbytes; at += piece) /* a body that lay there may look so */
        ko_store_relaxed(ko_slot_come(slot, at / piece), 0);
    ko_window_fill(link, place, from, piece);
    slot->placed = (struct ko_placed_slice){.at = link->places.at, .piece = piece};
    ko_window_take_place(link);
    if (ko_window_publish(link, KO_FRAME_DATA, stamp, nbytes))
        err = ko_window_ring_receiver(link);
    for (size_t at = piece; at < nbytes; at += piece) {
        ko_window_fill(link, (char *)place + at, (const char *)from + at,
                       bytes_from(at, piece, nbytes));
        ko_store_first(ko_slot_come(slot, at / piece), link->sent, link->is_split);
    }
    if (!err && ko_load_ordered(&link->outbox->receiver_sleeps)) /* it may have seen the first */
        err = ko_window_ring_receiver(link);
    return err;
}

/* ---- the receiver ---------------------------------------------------------------------------- */

/* Looks for a piece, for a while. */
static bool has_come(const struct ko_link *link, size_t number)
{
    const uint64_t *come = ko_slot_come(link->next_in, number);

    for (int looks = LOOKS; looks; looks--) {
        if (ko_load_ordered(come) == link->received + 1) /* a sleeper's look, too */
            return true;
        ko_pause();
    }
    return false;
}

/* Bytes of a piece of the next slice, which is not empty; what the peer has written there it may
 * change. */
static int piece_in(const struct ko_link *link, size_t *piece)
{
    const uint32_t nbytes = link->frame.nbytes;
    const uint64_t said = link->next_in->placed.piece;

    *piece = said && said < nbytes ? (size_t)said : nbytes;
    if (*piece < nbytes && (*piece % KO_LINE || (nbytes - 1) / *piece > KO_MOST_PIECES))
        return ko_fail(KOLO_E_PROTOCOL,
                       "rank %d's window holds a slice of %u bytes in pieces of %zu", link->peer,
                       nbytes, *piece);
    return KOLO_OK;
}

/* Bytes of the piece that begins there; 0: it has not come. */
static size_t come_at(const struct ko_link *link, size_t at, size_t piece)
{
    const size_t number = at / piece;

    return number && !has_come(link, number) ? 0 : bytes_from(at, piece, link->frame.nbytes);
}

int ko_window_land_pieces(struct ko_link *link, void *to, const void *body, bool is_streaming)
{
    size_t piece;
    int err = link->frame.nbytes ? piece_in(link, &piece) : KOLO_OK;

    if (err || !link->frame.nbytes)
        return err;
    if (link->landing_to != to)
        link->landed = 0;
    link->landing_to = to;
    for (size_t n; link->landed < link->frame.nbytes; link->landed += n) {
        n = come_at(link, link->landed, piece);
        if (!n)
            return KO_AGAIN;
        if (to)
            ko_copy_any((char *)to + link->landed, (const char *)body + link->landed, n,
                        is_streaming);
    }
    return KOLO_OK;
}

int ko_window_peek_piece(struct ko_link *link, size_t at, const void **body, size_t *nbytes)
{
    const char *first;
    size_t piece;
    int err;

    *nbytes = link->frame.nbytes;
    if (link->frame.kind != KO_FRAME_DATA || !*nbytes || (!at && ko_foreign_is_measured(link)))
        return link->ops->peek(link, body);
    first = ko_window_place_of(link, link->next_in->placed.at);
    err = first ? piece_in(link, &piece) : KOLO_E_PROTOCOL;
    if (err)
        return err;
    *nbytes = come_at(link, at, piece);
    *body = first + at;
    return *nbytes ? KOLO_OK : KO_AGAIN;
}
