/* SPDX-License-Identifier: MIT
 *
 * What all links have in common: the time before there is a wire, and control messages.
 */
#include "link.h"

#include "foreign.h"
#include "foreign_out.h"
#include "reference.h"
#include "status.h"
#include "window.h"
#include "window_memory.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static int closed_room(struct ko_link *link, size_t nbytes, void **place)
{
    (void)link;
    (void)nbytes;
    (void)place;
    return KO_AGAIN;
}

static int closed_commit(struct ko_link *link, const struct ko_stamp *stamp, size_t nbytes)
{
    (void)stamp;
    (void)nbytes;
    return ko_fail(KOLO_E_INTERNAL, "a slice for rank %d was committed without room", link->peer);
}

static int closed_post(struct ko_link *link, const struct ko_stamp *stamp, const void *from,
                       size_t nbytes)
{
    (void)link;
    (void)stamp;
    (void)from;
    (void)nbytes;
    return KO_AGAIN;
}

static int closed_next(struct ko_link *link, const struct ko_frame **frame)
{
    (void)link;
    (void)frame;
    return KO_AGAIN;
}

static int closed_peek(struct ko_link *link, const void **body)
{
    (void)link;
    (void)body;
    return KO_AGAIN;
}

static int closed_peek_piece(struct ko_link *link, size_t at, const void **body, size_t *nbytes)
{
    (void)link;
    (void)at;
    (void)body;
    (void)nbytes;
    return KO_AGAIN;
}

static int closed_land(struct ko_link *link, void *to, bool is_streaming)
{
    (void)link;
    (void)to;
    (void)is_streaming;
    return KO_AGAIN;
}

static void closed_nothing(struct ko_link *link)
{
    (void)link;
}

static const struct ko_link_ops closed_ops = {
    .room = closed_room,
    .commit = closed_commit,
    .post = closed_post,
    .next = closed_next,
    .peek = closed_peek,
    .peek_piece = closed_peek_piece,
    .land = closed_land,
    .release = closed_nothing,
    .arm = closed_nothing,
    .disarm = closed_nothing,
};

int ko_link_create(int peer, uint32_t slots, uint32_t slice_bytes, struct ko_link **link_out)
{
    struct ko_link *link = ko_alloc(sizeof *link, "a link");

    assert(slots <= KO_MOST_SLOTS);
    if (!link)
        return KOLO_E_NOMEM;
    link->ops = &closed_ops;
    link->peer = peer;
    link->slots = slots;
    link->slice_bytes = slice_bytes;
    link->longest = slice_bytes;
    *link_out = link;
    return KOLO_OK;
}

int ko_link_open(struct ko_link *link, struct ko_wire *wire)
{
    link->wire = wire;
    return wire->transport->kind == KO_WINDOW ? ko_window_link_start(link)
                                              : ko_message_link_start(link);
}

/* ---- memory for long slices ------------------------------------------------------------------ */

static atomic_size_t held;

size_t ko_links_held(void)
{
    return atomic_load_explicit(&held, memory_order_relaxed);
}

void ko_link_count_held(struct ko_link *link, size_t more, size_t less)
{
    link->nheld += more - less;
    atomic_fetch_add(&held, more - less);
    if (link->held)
        atomic_fetch_add(link->held, more - less);
}

void ko_link_give_back(struct ko_link *link)
{
    if (link->outbox) {
        ko_window_tell_received(link);
        ko_window_places_give_back(link);
    } else {
        ko_message_give_back(link);
    }
}

/* ---- the end --------------------------------------------------------------------------------- */

void ko_link_free_slots(const struct ko_link *link, unsigned char *slots)
{
    if (link->has_own_slots)
        (void)kolo_mem_free(slots);
    else
        free(slots);
}

void ko_link_free(struct ko_link *link)
{
    if (!link)
        return;
    if (link->foreign_out)
        ko_foreign_withdraw(link);
    ko_link_count_held(link, 0, link->nheld);
    if (link->wire)
        link->wire->transport->hangup(link->wire);
    ko_references_free(link->references);
    ko_foreign_free(link->foreign);
    ko_foreign_out_free(link->foreign_out);
    for (int kind = 0; kind <= KO_FRAME_BYE; kind++)
        free(link->control[kind]);
    free(link->posts);
    ko_link_free_slots(link, link->out);
    ko_link_free_slots(link, link->in);
    free(link);
}

int ko_link_push(struct ko_link *link)
{
    return link->wire ? link->wire->transport->drive(link->wire) : KOLO_OK;
}

int ko_link_is_flushed(struct ko_link *link)
{
    if (link->flushed >= link->referenced)
        return KOLO_OK;
    if (link->posts)
        while (link->flushed < link->sent && !link->posts[link->flushed % link->slots].is_queued)
            link->flushed++;
    else {
        ko_window_take_credit(link);
        link->flushed = link->credit;
    }
    if (link->foreign_out && link->flushed < link->referenced)
        link->flushed = ko_foreign_settled(link);
    return link->flushed >= link->referenced ? KOLO_OK : KO_AGAIN;
}

void ko_link_take_back(struct ko_link *link)
{
    if (link->foreign_out)
        ko_foreign_take_back(link);
}

bool ko_link_is_read(const struct ko_link *link)
{
    return link->foreign_out && ko_foreign_is_read(link);
}

bool ko_link_reads_ahead(const struct ko_link *link)
{
    return link->foreign && ko_foreign_reads_ahead(link);
}

/* What the link itself makes use of. */
static bool is_for_link(enum ko_frame_kind kind)
{
    return kind == KO_FRAME_BELL || kind == KO_FRAME_MEMORY;
}

int ko_link_hear(struct ko_link *link, struct ko_notice *notice)
{
    const struct ko_transport *transport;
    const struct ko_frame *frame;
    int err;

    if (!link->wire || link->is_landed)
        return KO_AGAIN;
    transport = link->wire->transport;
    link->has_notice = false;
    for (;;) {
        err = transport->next(link->wire, &frame);
        if (err || frame->kind == KO_FRAME_DATA)
            return err ? err : KO_AGAIN;
        *notice = (struct ko_notice){.kind = frame->kind,
                                     .stamp = frame->stamp,
                                     .body = link->heard,
                                     .nbytes = frame->nbytes};
        err = transport->land(link->wire, link->heard);
        link->noticed += !err;
        if (!err && notice->kind == KO_FRAME_MEMORY)
            err = ko_reference_hear(link, link->heard, notice->nbytes);
        if (err || !is_for_link(notice->kind))
            return err;
    }
}

int ko_link_discard(struct ko_link *link, struct ko_notice *notice)
{
    const struct ko_frame *frame;
    const void *body;

    while (!link->ops->next(link, &frame) && !link->ops->peek(link, &body))
        link->ops->release(link);
    return ko_link_hear(link, notice);
}

bool ko_link_is_telling(const struct ko_link *link, enum ko_frame_kind kind)
{
    return link->control[kind] && link->control[kind]->post.is_queued;
}

int ko_link_tell(struct ko_link *link, enum ko_frame_kind kind, const struct ko_stamp *stamp,
                 const void *body, size_t nbytes)
{
    struct ko_control *control = link->control[kind];

    if (!link->wire || ko_link_is_telling(link, kind))
        return KOLO_OK;
    if (!control)
        control = link->control[kind] = ko_alloc(sizeof *control, "a control message");
    if (!control)
        return KOLO_E_NOMEM;
    control->post.frame = (struct ko_frame){.kind = kind, .nbytes = (uint32_t)nbytes};
    if (stamp)
        control->post.frame.stamp = *stamp;
    if (nbytes)
        memcpy(control->body, body, nbytes);
    control->post.body = control->body;
    return link->wire->transport->send(link->wire, &control->post);
}

bool ko_link_is_telling_any(const struct ko_link *link)
{
    for (int kind = 0; kind <= KO_FRAME_BYE; kind++)
        if (ko_link_is_telling(link, (enum ko_frame_kind)kind))
            return true;
    return false;
}

static bool is_sending(const struct ko_link *link)
{
    for (uint32_t i = 0; link->posts && i < link->slots; i++)
        if (link->posts[i].is_queued)
            return true;
    return ko_link_is_telling_any(link);
}

int ko_link_deliver(struct ko_link *link)
{
    const struct ko_transport *transport = link->wire->transport;
    int err = transport->deliver ? transport->deliver(link->wire) : transport->drive(link->wire);

    return !err && is_sending(link) ? KO_AGAIN : err;
}
