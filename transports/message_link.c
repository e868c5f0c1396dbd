/* SPDX-License-Identifier: MIT
 *
 * A link over messages: a slice out is a post, by reference where the caller allows it; a slice in
 * lands where the caller wants it, or in a slot of our own if it only wants to look.
 */
#include "link.h"

#include "status.h"
#include "window.h"

int ko_message_link_start(struct ko_link *link)
{
    link->posts = ko_alloc(link->slots * sizeof *link->posts, "the slots of a link");
    if (!link->posts)
        return KOLO_E_NOMEM;
    link->ops = &ko_message_link_ops;
    link->longest = ko_message_bytes(link->slice_bytes);
    return KOLO_OK;
}

/* A free post, or KO_AGAIN; what has left is counted first, then the wire is given a chance. */
static int free_post(struct ko_link *link)
{
    int err;

    (void)ko_link_is_flushed(link);
    if (link->flushed + link->slots > link->sent)
        return KOLO_OK;
    err = link->wire->transport->drive(link->wire);
    (void)ko_link_is_flushed(link);
    if (err)
        return err;
    return link->flushed + link->slots > link->sent ? KOLO_OK : KO_AGAIN;
}

static void drop_slots(struct ko_link *link, size_t n, unsigned char **slots, size_t *slot_bytes)
{
    if (!*slots)
        return;
    ko_link_free_slots(link, *slots);
    *slots = NULL;
    ko_link_count_held(link, 0, n * *slot_bytes);
}

/* Slots for slices of nbytes, of memory that the transport likes best. They stay, for the next
 * slices, none of which may need more than half of the longest (layout.h); those that are there
 * are in nobody's use. */
static int make_slots(struct ko_link *link, size_t n, size_t nbytes, unsigned char **slots,
                      size_t *slot_bytes)
{
    void *memory = NULL;

    if (*slots && nbytes <= *slot_bytes)
        return KOLO_OK;
    drop_slots(link, n, slots, slot_bytes);
    *slot_bytes = nbytes <= link->longest / 2 ? link->longest / 2 : link->longest;
    link->has_own_slots = link->wire->transport->knows_memory;
    if (!link->has_own_slots)
        memory = ko_alloc_unset(n * *slot_bytes, "the slots of a link");
    else if (kolo_mem_alloc(n * *slot_bytes, &memory))
        memory = NULL;
    *slots = memory;
    if (!memory)
        return KOLO_E_NOMEM;
    ko_link_count_held(link, n * *slot_bytes, 0);
    return KOLO_OK;
}

void ko_message_give_back(struct ko_link *link)
{
    if (!ko_link_is_flushed(link))
        drop_slots(link, link->slots, &link->out, &link->out_bytes);
    if (!link->is_landing && !link->is_landed)
        drop_slots(link, 1, &link->in, &link->in_bytes);
}

static int message_room(struct ko_link *link, size_t nbytes, void **place)
{
    int err = free_post(link);

    if (!err && link->out && nbytes > link->out_bytes)
        err = ko_link_is_flushed(link);
    if (!err)
        err = make_slots(link, link->slots, nbytes, &link->out, &link->out_bytes);
    if (err)
        return err;
    *place = link->out + link->sent % link->slots * link->out_bytes;
    return KOLO_OK;
}

static int send_post(struct ko_link *link, const struct ko_stamp *stamp, const void *body,
                     size_t nbytes, struct ko_held *held)
{
    struct ko_post *post = &link->posts[link->sent % link->slots];

    post->frame =
        (struct ko_frame){.kind = KO_FRAME_DATA, .nbytes = (uint32_t)nbytes, .stamp = *stamp};
    post->body = body;
    post->held = held;
    post->may_wait = link->may_hold;
    link->referenced = ++link->sent; /* slots, too, are free only when they have left */
    return link->wire->transport->send(link->wire, post);
}

static int message_commit(struct ko_link *link, const struct ko_stamp *stamp, size_t nbytes)
{
    return send_post(link, stamp, link->out + link->sent % link->slots * link->out_bytes, nbytes,
                     NULL);
}

int ko_link_post_held(struct ko_link *link, const struct ko_stamp *stamp, const void *from,
                      size_t nbytes, struct ko_held *held)
{
    int err = free_post(link);

    return err ? err : send_post(link, stamp, from, nbytes, held);
}

static int message_post(struct ko_link *link, const struct ko_stamp *stamp, const void *from,
                        size_t nbytes)
{
    return ko_link_post_held(link, stamp, from, nbytes, NULL);
}

bool ko_link_reaches_gpus(const struct ko_link *link)
{
    return link->posts && link->wire->transport->hold;
}

struct ko_held *ko_link_hold(struct ko_link *link, struct ko_gpu *gpu, const void *at,
                             size_t nbytes)
{
    return ko_link_reaches_gpus(link) ? link->wire->transport->hold(link->wire, gpu, at, nbytes)
                                      : NULL;
}

bool ko_link_lands_in(struct ko_link *link, struct ko_held *held)
{
    return !link->is_landed && link->wire->transport->lands_in(link->wire, held);
}

static int message_next(struct ko_link *link, const struct ko_frame **frame)
{
    const struct ko_frame *arrived;
    int err;

    if (!link->is_landed) {
        err = link->wire->transport->next(link->wire, &arrived);
        if (err)
            return err;
        link->has_notice = arrived->kind != KO_FRAME_DATA;
        if (link->has_notice)
            return KO_AGAIN;
        link->frame = *arrived;
    }
    *frame = &link->frame;
    return KOLO_OK;
}

static int message_peek(struct ko_link *link, const void **body)
{
    int err;

    if (!link->is_landed) {
        err = link->is_landing
                  ? KOLO_OK
                  : make_slots(link, 1, link->frame.nbytes, &link->in, &link->in_bytes);
        if (err)
            return err;
        link->is_landing = true;
        err = link->wire->transport->land(link->wire, link->in);
        if (err)
            return err;
        link->is_landing = false;
        link->is_landed = true;
    }
    *body = link->in;
    return KOLO_OK;
}

/* Of what has come so far whole lines, which no element lies across. */
static int message_peek_piece(struct ko_link *link, size_t at, const void **body, size_t *nbytes)
{
    const struct ko_transport *transport = link->wire->transport;
    size_t come;
    int err = message_peek(link, body);

    if (err && (err != KO_AGAIN || !transport->landed))
        return err;
    come = err ? transport->landed(link->wire) / KO_LINE * KO_LINE : link->frame.nbytes;
    if (err && come <= at)
        return KO_AGAIN;
    *body = link->in + at;
    *nbytes = come - at;
    return KOLO_OK;
}

static void message_release(struct ko_link *link)
{
    link->is_landed = false;
    link->received++;
}

/* The kernel copies. */
static int message_land(struct ko_link *link, void *to, bool is_streaming)
{
    int err = link->wire->transport->land(link->wire, to);

    (void)is_streaming;
    if (!err)
        message_release(link);
    return err;
}

/* ---- whole messages ------------------------------------------------------------------------ */

bool ko_message_give(struct ko_link *link, const struct ko_stamp *stamp, const void *from)
{
    const struct ko_transport *transport = link->wire->transport;
    const struct ko_frame frame = {
        .kind = KO_FRAME_DATA, .nbytes = (uint32_t)stamp->count, .stamp = *stamp};

    if (!transport->give || stamp->count > link->longest || ko_link_is_flushed(link) ||
        !transport->give(link->wire, &frame, from, &link->posts[link->sent % link->slots]))
        return false;
    link->referenced = ++link->sent;
    (void)ko_link_is_flushed(link);
    return true;
}

bool ko_message_take(struct ko_link *link, struct ko_message *message, void *to, int looks)
{
    const struct ko_transport *transport = link->wire->transport;

    if (!transport->take || link->is_landed || !transport->take(link->wire, message, to, looks))
        return false;
    message_release(link);
    return true;
}

/* ---- sleeping ------------------------------------------------------------------------------ */

/* What the wire has found may be a control message, which ko_link_hear would take. */
static void message_arm(struct ko_link *link)
{
    const struct ko_transport *transport = link->wire->transport;

    if (transport->arm && transport->arm(link->wire) && !link->is_landed)
        link->has_notice = true;
}

static void message_disarm(struct ko_link *link)
{
    (void)link;
}

const struct ko_link_ops ko_message_link_ops = {
    .room = message_room,
    .commit = message_commit,
    .post = message_post,
    .next = message_next,
    .peek = message_peek,
    .peek_piece = message_peek_piece,
    .land = message_land,
    .release = message_release,
    .arm = message_arm,
    .disarm = message_disarm,
};
