/* SPDX-License-Identifier: MIT
 *
 * The allocations that messages come from are mapped once, as those of collectives are, but in a
 * list of their own: the ranks do not come together here. What lies in pieces is handed over by the
 * call that sends it first, which waits for the receiver anyway.
 */
#include "mailbox_gpu.h"

#include "config.h"
#include "gpu_relay.h"
#include "gpu_spans.h"
#include "group.h"
#include "log.h"
#include "mailbox_parts.h"
#include "status.h"

#include <pthread.h>
#include <stdlib.h>

enum { PATIENCE_NS = 2000000, MANY = 16 /* messages of a call */ };

struct ko_places {
    pthread_mutex_t lock;
    struct ko_gpu_share *share;
    struct ko_gpu_spans *spans; /* in pieces */
    bool sends_pieces;          /* outside of graphs, too */
};

int ko_places_open(struct ko_gpu *gpu, int n, const bool *is_here, enum ko_gpu_layout layout,
                   struct ko_places **places_out)
{
    struct ko_places *places = ko_alloc(sizeof *places, "a group's messages from GPU memory");
    int err = places ? ko_gpu_share_open(gpu, n, is_here, layout, &places->share) : KOLO_E_NOMEM;

    if (!err)
        err = ko_gpu_spans_open(gpu, n, is_here, ko_gpu_share_keep_handles(places->share),
                                &places->spans);
    if (err) {
        if (places)
            ko_gpu_share_discard(places->share);
        free(places);
        return err;
    }
    pthread_mutex_init(&places->lock, NULL);
    *places_out = places;
    return KOLO_OK;
}

void ko_places_set_process(struct ko_places *places, int rank, uint64_t process)
{
    ko_gpu_share_set_process(places->share, rank, process);
}

void ko_places_forgo_handles(struct ko_places *places)
{
    ko_gpu_share_set_handles(places->share, false);
}

void ko_places_send_pieces(struct ko_places *places)
{
    places->sends_pieces = true;
}

void ko_places_close(struct ko_places *places, const struct ko_gpu_share *share)
{
    if (!places)
        return;
    ko_gpu_spans_close(places->spans, ko_gpu_share_is_left(share));
    ko_gpu_share_close_with(places->share, share);
    pthread_mutex_destroy(&places->lock);
    free(places);
}

/* Whether nbytes lie in the allocation from the place's offset on. */
static bool has_room(const struct ko_gpu_place *place, size_t nbytes)
{
    return place->offset <= place->nbytes && nbytes <= place->nbytes - place->offset;
}

/* With the lock, for a rank of the host. */
static bool describe(const kolo_group *group, struct ko_places *places, const kolo_p2p *op,
                     size_t nbytes, struct ko_gpu_place *place)
{
    const uint32_t bit = UINT32_C(1) << group->hosts->place[op->peer];

    return !ko_gpu_share_describe(places->share, bit, op->buffer, nbytes, place) &&
           ko_gpu_share_is_open_to(places->share, op->peer, place) && has_room(place, nbytes);
}

bool ko_places_describe(kolo_group *group, const kolo_p2p *op, size_t nbytes,
                        struct ko_gpu_handover *handover, struct ko_gpu_place *place)
{
    struct ko_places *places = atomic_load(&group->places);
    bool is_open;

    if (!places || !ko_group_is_mate(group, op->peer))
        return false;
    pthread_mutex_lock(&places->lock);
    is_open = (places->sends_pieces && ko_gpu_spans_describe(places->spans, op->peer, op->buffer,
                                                             nbytes, handover, place)) ||
              describe(group, places, op, nbytes, place);
    pthread_mutex_unlock(&places->lock);
    return is_open;
}

bool ko_places_describe_captured(kolo_group *group, const kolo_p2p *op, size_t nbytes,
                                 struct ko_gpu_handover *handover, struct ko_gpu_place *place)
{
    struct ko_places *places = atomic_load(&group->places);
    bool is_open;

    pthread_mutex_lock(&places->lock);
    is_open = ko_gpu_spans_describe(places->spans, op->peer, op->buffer, nbytes, handover, place);
    if (is_open)
        ko_gpu_spans_keep(places->spans, place);
    else
        is_open = describe(group, places, op, nbytes, place);
    pthread_mutex_unlock(&places->lock);
    return is_open;
}

void ko_places_end(kolo_group *group, int to, const struct ko_gpu_place *place, bool is_taken)
{
    struct ko_places *places = atomic_load(&group->places);

    if (place->kind != KO_GPU_PIECES)
        return;
    pthread_mutex_lock(&places->lock);
    ko_gpu_spans_end(places->spans, to, place, is_taken);
    pthread_mutex_unlock(&places->lock);
}

static bool is_in_pieces(const struct ko_places *places, const struct ko_fetch *fetch)
{
    return fetch->place.kind == KO_GPU_PIECES &&
           (places->sends_pieces || ko_letter_is_captured(fetch->letter));
}

/* The address here of a message in pieces; KO_AGAIN while these are handed over. */
static int find_span(struct ko_places *places, const struct ko_fetch *fetch, int from, uint64_t *at)
{
    int err;

    pthread_mutex_lock(&places->lock);
    err = ko_gpu_spans_reach(places->spans, from, &fetch->place, at);
    pthread_mutex_unlock(&places->lock);
    return err;
}

static int find_whole(struct ko_places *places, const struct ko_fetch *fetch, int from,
                      uint64_t *at)
{
    bool is_reached;

    pthread_mutex_lock(&places->lock);
    is_reached = ko_gpu_share_reaches(places->share, from, &fetch->place);
    if (is_reached)
        *at = ko_gpu_share_address(places->share, from, &fetch->place);
    pthread_mutex_unlock(&places->lock);
    return is_reached ? KOLO_OK : KOLO_E_SYSTEM;
}

/* The message's address here; KO_AGAIN as above; KOLO_E_SYSTEM, without a text: it has none. What
 * came of it may be anything. */
static int find(struct ko_places *places, const struct ko_fetch *fetch, int from, uint64_t *at)
{
    const struct ko_gpu_place *place = &fetch->place;
    const bool is_span = is_in_pieces(places, fetch);

    if ((!is_span && !ko_gpu_share_is_open_to(places->share, from, place)) ||
        !has_room(place, fetch->nbytes))
        return ko_fail(
            KOLO_E_PROTOCOL,
            "it says where in GPU memory a message of %zu bytes lies: at %llu of %llu, of "
            "kind %u, where none can lie",
            fetch->nbytes, (unsigned long long)place->offset, (unsigned long long)place->nbytes,
            place->kind);
    return is_span ? find_span(places, fetch, from, at) : find_whole(places, fetch, from, at);
}

static int begin(struct ko_gpu *gpu, struct ko_places *places, struct ko_fetch *fetch, int from)
{
    const struct ko_placed *placed = fetch->letter->placed;
    void *to = placed ? placed->buffer : fetch->letter->buffer;
    uint64_t at;
    int err = placed ? ko_gpu_look_at_mark(gpu, placed->mark) : KOLO_OK;

    if (err)
        return err;
    err = find(places, fetch, from, &at);
    if (err == KOLO_E_SYSTEM) {
        ko_log(KO_LOG_INFO,
               "the GPU memory that a message of %zu bytes from rank %d lies in cannot be opened "
               "here now: it comes by way of host memory",
               fetch->nbytes, from);
        return KOLO_E_UNSUPPORTED;
    }
    if (!err)
        err = ko_gpu_copy(gpu, to, (const void *)(uintptr_t)at, fetch->nbytes);
    if (!err)
        err = ko_gpu_mark_own(gpu, &fetch->copied);
    return err ? err : KO_AGAIN;
}

/* What graphs need of the message. */
static int keep(struct ko_places *places, const struct ko_fetch *fetch, int from)
{
    struct ko_placed *placed = fetch->letter->placed;
    int err = KOLO_E_SYSTEM;

    placed->from = from;
    placed->seq = fetch->seq;
    placed->nbytes = fetch->nbytes;
    placed->at = 0;
    if (!fetch->nbytes)
        return KOLO_OK;
    if (is_in_pieces(places, fetch) || ko_gpu_share_is_open_to(places->share, from, &fetch->place))
        err = find(places, fetch, from, &placed->at);
    return err != KOLO_E_SYSTEM
               ? err
               : ko_fail(KOLO_E_UNSUPPORTED,
                         "a message of rank %d's cannot be captured for a graph: rank %d does not "
                         "reach the memory that it lies in (a pool's, perhaps, which cannot be "
                         "handed over)",
                         from, fetch->letter->group->rank);
}

/* KO_AGAIN where another rank was ready earlier. */
static int open_places(kolo_group *group, int from, struct ko_places **places)
{
    const bool has_gathered = atomic_load(&group->has_gathered); /* before it looks for them */

    *places = atomic_load(&group->places);
    if (*places && ko_group_is_mate(group, from))
        return KOLO_OK;
    if (!*places && group->gpu && !has_gathered)
        return KO_AGAIN;
    return ko_fail(KOLO_E_PROTOCOL,
                   "it says where in GPU memory a message lies, but rank %d does not reach its",
                   group->rank);
}

int ko_fetch_step(struct ko_fetch *fetch, int from)
{
    kolo_group *group = fetch->letter->group;
    struct ko_places *places;
    int err = open_places(group, from, &places);

    if (err)
        return err;
    if (ko_letter_is_captured(fetch->letter))
        return keep(places, fetch, from);
    if (!fetch->copied)
        return begin(group->gpu, places, fetch, from);
    err = ko_gpu_look_at_mark(group->gpu, fetch->copied);
    if (err == KO_AGAIN)
        return err;
    ko_gpu_let_go(group->gpu, fetch->copied);
    fetch->copied = NULL;
    if (!err && fetch->letter->placed)
        fetch->letter->placed->is_fetched = true;
    return err;
}

void ko_fetch_free(struct ko_fetch *fetch)
{
    if (fetch && fetch->copied)
        ko_gpu_let_go(fetch->letter->group->gpu, fetch->copied);
    free(fetch);
}

/* ---- by host memory -------------------------------------------------------------------------- */

/* A quarter of a piece, but whole slices, the longest that may come; where many messages go at once
 * the wire has enough to do with one slice of each. */
int ko_relay_bytes(const kolo_group *group, size_t n, size_t *slot_bytes)
{
    const size_t slice = ko_message_bytes(group->endpoint->own.slice_bytes);
    int64_t piece_bytes;
    int err = ko_config_number(KO_CONFIG_CUDA_PIECE_BYTES, &piece_bytes);
    const size_t nslices = err ? 0 : (size_t)piece_bytes / KO_RELAY_SLOTS / slice;

    *slot_bytes = nslices && n <= MANY ? nslices * slice : slice;
    return err;
}

/* Its stream has come to the mark long ago. */
int ko_placed_relay(struct ko_letter *letter)
{
    struct ko_placed *placed = letter->placed;
    size_t slot_bytes;
    int err = ko_relay_bytes(letter->group, 1, &slot_bytes);

    if (!err)
        err = ko_gpu_relay_open(letter->group->gpu, NULL, letter->buffer, letter->nbytes,
                                slot_bytes, &placed->relay);
    if (err)
        return err;
    letter->relay = placed->relay;
    letter->placed = NULL;
    return KOLO_OK;
}

void ko_placed_end(struct ko_placed *placed, bool is_left)
{
    ko_gpu_relay_close(placed->relay, is_left);
    ko_held_let_go(placed->held);
}

/* ---- by adapters ----------------------------------------------------------------------------- */

struct ko_held *ko_mailbox_hold(kolo_group *group, int to, const void *buffer, size_t nbytes)
{
    struct ko_mailbox *mailbox = ko_mailbox_existing(group);
    struct ko_held *held = NULL;
    struct ko_link *link;

    if (!mailbox)
        return NULL;
    ko_biased_lock_take(&mailbox->lock);
    link = mailbox->channel.ports[to].link;
    if (link)
        held = ko_link_hold(link, group->gpu, buffer, nbytes);
    ko_biased_lock_give(&mailbox->lock);
    return held;
}

void ko_held_let_go(struct ko_held *held)
{
    if (held)
        held->transport->let_go(held);
}

/* What the stream may still use is not written yet. It is waited for, since streams mostly stand at
 * the mark already and say so some microseconds later, but not for long: that keeps other messages
 * from coming. */
static int look_at_stream(const struct ko_letter *letter, struct ko_placed *placed)
{
    const bool is_first = !placed->looked_ns;
    int err = ko_gpu_look_at_mark(letter->group->gpu, placed->mark);

    if (err != KO_AGAIN)
        return err;
    if (is_first)
        placed->looked_ns = ko_now_ns();
    return is_first || ko_now_ns() - placed->looked_ns < PATIENCE_NS ? KO_AGAIN : KOLO_E_TIMEOUT;
}

/* What is written in one stretch takes the fewest copies of what is not. */
int ko_placed_land(const struct ko_letter *letter, struct ko_link *link, size_t arrived,
                   size_t total, unsigned char **place)
{
    struct ko_placed *placed = letter->placed;
    int err;

    *place = NULL;
    if (!placed->is_tried)
        placed->held = ko_link_hold(link, letter->group->gpu, placed->buffer, total);
    placed->is_tried = true;
    if (!placed->held || (placed->written_to && placed->written_to != arrived))
        return KOLO_OK;
    err = look_at_stream(letter, placed);
    if (!err && ko_link_lands_in(link, placed->held))
        *place = (unsigned char *)placed->buffer + arrived;
    return err == KO_AGAIN ? KO_AGAIN : KOLO_OK;
}
