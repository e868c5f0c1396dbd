/* SPDX-License-Identifier: MIT
 *
 * Posts leave strictly in their order: while the first has asked where it is to be written, nothing
 * behind it goes, since the receiver could not land it before. What a post needs is copied or has
 * been written when it is given back; one that is being written is given back by its completion.
 */
#include "rdma.h"

#include "copy.h"

#include <assert.h>
#include <string.h>

/* ---- what is told without a credit ------------------------------------------------------- */

/* Sends the slot that is being put together. */
static void send_filled(struct ko_rdma_wire *wire)
{
    if (wire->out.filled && !wire->status)
        ko_rdma_send_slot(wire, wire->out.filled);
    wire->out.filled = 0;
}

/* A new slot with its first head; what is owed goes with everything. NULL: there is none. */
static struct ko_rdma_head *begin_slot(struct ko_rdma_wire *wire, enum ko_rdma_kind kind)
{
    struct ko_rdma_head *head;

    send_filled(wire);
    head = wire->status ? NULL : (struct ko_rdma_head *)ko_rdma_slot(wire);
    if (!head)
        return NULL;
    *head = (struct ko_rdma_head){.kind = (uint16_t)kind, .credits = (uint16_t)wire->in.owed};
    wire->in.owed = 0;
    wire->out.filled = sizeof *head;
    return head;
}

static bool tell(struct ko_rdma_wire *wire, enum ko_rdma_kind kind)
{
    if (!begin_slot(wire, kind))
        return false;
    send_filled(wire);
    return true;
}

static void tell_at_once(struct ko_rdma_wire *wire, enum ko_rdma_kind kind)
{
    (void)tell(wire, kind);
    ko_rdma_post_list(wire);
}

bool ko_rdma_tell_line(struct ko_rdma_wire *wire, const struct ko_rdma_line *line)
{
    const bool has_imm = wire->rails[0].has_imm;
    struct ko_rdma_line own = *line;

    if (wire->status || wire->lines.nwrites == KO_RDMA_LINES || (!has_imm && !ko_rdma_slot(wire)))
        return false;
    own.credits += (unsigned)wire->in.owed;
    wire->in.owed = 0;
    ko_rdma_write_line(wire, &own);
    return has_imm || tell(wire, KO_RDMA_CLEAR);
}

static void tell_all(struct ko_rdma_wire *wire)
{
    struct ko_rdma_out *out = &wire->out;

    if (out->tells_line && ko_rdma_tell_line(wire, &out->line))
        out->tells_line = false;
    while (out->tells_done && tell(wire, KO_RDMA_DONE))
        out->tells_done--;
    if (wire->in.owed >= KO_RDMA_CREDITS / 2)
        (void)tell(wire, KO_RDMA_CREDIT);
}

void ko_rdma_say_ready(struct ko_rdma_wire *wire)
{
    tell_at_once(wire, KO_RDMA_READY);
}

void ko_rdma_say_bye(struct ko_rdma_wire *wire)
{
    tell_at_once(wire, KO_RDMA_BYE);
}

/* ---- posts ------------------------------------------------------------------------------- */

static void give_back(struct ko_post *post)
{
    post->next = NULL;
    post->is_queued = false;
}

static void end_flight(struct ko_rdma_wire *wire, unsigned at)
{
    wire->out.flying[at].stripes = 0;
    give_back(wire->out.flying[at].post);
    ko_rdma_unregister(wire->device, &wire->out.flying[at].region);
}

/* Takes the first post out of the queue. */
static struct ko_post *take_first(struct ko_rdma_wire *wire)
{
    struct ko_rdma_out *out = &wire->out;
    struct ko_post *post = out->first;

    out->first = post->next;
    if (!out->first)
        out->last = NULL;
    out->state = KO_RDMA_OUT_NEW;
    out->done = 0;
    out->has_begun = false;
    return post;
}

/* The first post is given back when so many completions have come. */
static void take_off(struct ko_rdma_wire *wire, int stripes)
{
    struct ko_rdma_out *out = &wire->out;
    const unsigned at = out->begun++ % KO_RDMA_FLYING;

    out->flying[at].region = out->region;
    out->region = (struct ko_rdma_region){.is_kept = false};
    out->flying[at].post = take_first(wire);
    out->flying[at].stripes = stripes;
}

static void queue_post(struct ko_rdma_out *out, struct ko_post *post)
{
    post->next = NULL;
    post->is_queued = true;
    if (out->last)
        out->last->next = post;
    else
        out->first = post;
    out->last = post;
}

void ko_rdma_drop_posts(struct ko_rdma_wire *wire)
{
    struct ko_rdma_out *out = &wire->out;

    ko_rdma_unregister(wire->device, &out->region);
    while (out->first)
        give_back(take_first(wire));
    for (; out->ended != out->begun; out->ended++)
        if (out->flying[out->ended % KO_RDMA_FLYING].stripes)
            end_flight(wire, out->ended % KO_RDMA_FLYING);
    out->tells_line = false;
    out->tells_done = 0;
    out->filled = 0;
    wire->list.n = 0;
}

/* What is only held back takes no waiting: whoever drives sends it. */
bool ko_rdma_is_sending(const struct ko_rdma_wire *wire)
{
    const struct ko_rdma_out *out = &wire->out;

    return (out->first && !out->held) || out->begun != out->ended || out->tells_line ||
           out->tells_done;
}

/* ---- sending ----------------------------------------------------------------------------- */

/* Room for a record with nbytes of body: in the slot that is being put together, else in a new one,
 * which takes a credit. NULL: neither. */
static struct ko_rdma_head *begin_part(struct ko_rdma_wire *wire, enum ko_rdma_kind kind,
                                       size_t nbytes)
{
    struct ko_rdma_out *out = &wire->out;
    struct ko_rdma_head *head;

    if (out->filled && KO_RDMA_SLOT - out->filled >= ko_rdma_record(nbytes)) {
        head = (struct ko_rdma_head *)(ko_rdma_slot(wire) + out->filled);
        *head = (struct ko_rdma_head){.kind = (uint16_t)kind};
        out->filled += sizeof *head;
    } else {
        head = out->credits ? begin_slot(wire, kind) : NULL;
        if (!head)
            return NULL;
        out->credits--;
    }
    head->nbytes = (uint32_t)nbytes;
    out->filled += ko_rdma_record(nbytes) - sizeof *head;
    return head;
}

/* Asks where the first post is to be written; false if there is no slot now. */
static bool ask(struct ko_rdma_wire *wire)
{
    struct ko_rdma_head *head = begin_part(wire, KO_RDMA_ASK, 0);

    if (!head)
        return false;
    head->frame = wire->out.first->frame;
    wire->out.has_begun = true;
    wire->out.state = KO_RDMA_OUT_ASKED;
    wire->out.asked++;
    return true;
}

/* Puts the record's part of a body behind its head. */
static void fill(struct ko_rdma_head *head, const void *part)
{
    if (head->nbytes)
        ko_copy_short(head + 1, part, head->nbytes);
}

/* Sends the next part of the first post; false if there is no slot now. */
static bool send_part(struct ko_rdma_wire *wire)
{
    struct ko_rdma_out *out = &wire->out;
    const struct ko_post *post = out->first;
    const size_t left = post->frame.nbytes - out->done;
    const size_t nbytes = left < KO_RDMA_PART ? left : KO_RDMA_PART;
    struct ko_rdma_head *head =
        begin_part(wire, out->has_begun ? KO_RDMA_MORE : KO_RDMA_FIRST, nbytes);

    if (!head)
        return false;
    if (!out->has_begun)
        head->frame = post->frame;
    fill(head, (const unsigned char *)post->body + out->done);
    out->has_begun = true;
    out->done += nbytes;
    if (nbytes == left)
        give_back(take_first(wire));
    return true;
}

/* The same of memory that the processor does not touch: the adapter takes the part from there. The
 * post is given back by its completion, as one that is written. */
static bool gather_part(struct ko_rdma_wire *wire)
{
    struct ko_rdma_out *out = &wire->out;
    const struct ko_post *post = out->first;
    const size_t left = post->frame.nbytes - out->done;
    const size_t nbytes = left < KO_RDMA_PART ? left : KO_RDMA_PART;
    const unsigned at = out->begun % KO_RDMA_FLYING;
    const struct ko_ib_mr *mr = out->region.mrs[wire->rails[0].adapter - wire->device->adapters];
    struct ko_ib_sge part = {(uintptr_t)post->body + out->done, (uint32_t)nbytes, mr->lkey};
    struct ko_rdma_head *head = NULL;

    if (out->credits && out->begun - out->ended < KO_RDMA_FLYING)
        head = begin_slot(wire, KO_RDMA_MORE);
    if (!head)
        return false;
    out->credits--;
    head->nbytes = part.length;
    out->filled = 0;
    ko_rdma_send_gathered(wire, sizeof *head, &part, nbytes == left ? (int)at : -1);
    if (wire->status)
        return false;
    out->done += nbytes;
    if (nbytes == left)
        take_off(wire, 1);
    return true;
}

/* How the first post is to travel. */
static void decide(struct ko_rdma_wire *wire)
{
    struct ko_rdma_out *out = &wire->out;
    const struct ko_post *post = out->first;

    if (post->held && !out->region.mrs[0])
        ko_rdma_use(post->held, &out->region);
    out->state = post->held ? KO_RDMA_OUT_NEW : KO_RDMA_OUT_PARTS;
    if (!post->held && post->frame.nbytes >= KO_RDMA_DIRECT &&
        (out->region.mrs[0] ||
         ko_rdma_register(wire->device, post->body, post->frame.nbytes, 0, &out->region)))
        out->state = KO_RDMA_OUT_NEW;
}

/* Gets on with the first post; false if it has to wait. */
static bool go_on(struct ko_rdma_wire *wire)
{
    struct ko_rdma_out *out = &wire->out;

    if (out->state == KO_RDMA_OUT_NEW)
        decide(wire);
    switch (out->state) {
    case KO_RDMA_OUT_NEW:
        return out->begun - out->ended < KO_RDMA_FLYING && ask(wire);
    case KO_RDMA_OUT_PARTS:
        return out->first->held ? gather_part(wire) : send_part(wire);
    case KO_RDMA_OUT_ASKED:
        return false;
    }
    return false;
}

/* Whether there is something that could leave, or be posted. */
static bool has_work(const struct ko_rdma_wire *wire)
{
    const struct ko_rdma_out *out = &wire->out;

    return out->first || out->tells_line || out->tells_done || wire->list.n ||
           wire->in.owed >= KO_RDMA_CREDITS / 2 || wire->in.nempty == KO_RDMA_REPOST;
}

static __attribute__((noinline)) void pump(struct ko_rdma_wire *wire)
{
    if (wire->in.nempty == KO_RDMA_REPOST)
        ko_rdma_repost(wire);
    tell_all(wire);
    wire->out.held = 0;
    while (!wire->status && wire->out.first && go_on(wire))
        continue;
    send_filled(wire);
    ko_rdma_post_list(wire);
}

/* Nearly always there is nothing. */
void ko_rdma_pump(struct ko_rdma_wire *wire)
{
    if (wire->stage == KO_RDMA_OPEN && !wire->status && has_work(wire))
        pump(wire);
}

void ko_rdma_send(struct ko_rdma_wire *wire, struct ko_post *post)
{
    struct ko_rdma_out *out = &wire->out;

    queue_post(out, post);
    out->held += ko_rdma_record(post->frame.nbytes);
    if (!post->may_wait || out->held >= KO_RDMA_HELD)
        ko_rdma_pump(wire);
}

/* Nothing is to be told before it but perhaps credits, for which there is a slot too. */
static bool leaves(const struct ko_rdma_wire *wire, size_t nbytes)
{
    const struct ko_rdma_out *out = &wire->out;

    return wire->stage == KO_RDMA_OPEN && !wire->status && !out->first && out->credits &&
           !out->tells_line && !out->tells_done && nbytes <= KO_RDMA_PART &&
           wire->slots.nsends + 2 <= KO_RDMA_SLOTS;
}

bool ko_rdma_give(struct ko_rdma_wire *wire, const struct ko_frame *frame, const void *body)
{
    struct ko_rdma_head *head =
        leaves(wire, frame->nbytes) ? begin_part(wire, KO_RDMA_FIRST, frame->nbytes) : NULL;

    if (!head)
        return false;
    head->frame = *frame;
    fill(head, body);
    send_filled(wire);
    ko_rdma_post_list(wire);
    return !wire->status;
}

/* The line that is awaited: once copied it is as it was checked, whatever the peer writes. */
static bool take_line(struct ko_rdma_wire *wire, struct ko_rdma_line *line)
{
    const struct ko_rdma_out *out = &wire->out;

    memcpy(line, &wire->lines.come[out->asked % KO_RDMA_LINES], sizeof *line);
    return line->number == out->asked && line->nbytes == out->first->frame.nbytes &&
           line->at <= UINT64_MAX - line->nbytes;
}

static void write_first(struct ko_rdma_wire *wire, const struct ko_rdma_line *line)
{
    struct ko_rdma_out *out = &wire->out;
    int stripes;

    assert(out->begun - out->ended < KO_RDMA_FLYING);
    stripes = ko_rdma_write(wire, line, &out->region, out->begun % KO_RDMA_FLYING);
    if (wire->status)
        return;
    take_off(wire, stripes);
    out->tells_done += !wire->rails[0].has_imm;
}

void ko_rdma_hear_line(struct ko_rdma_wire *wire, int index)
{
    struct ko_rdma_out *out = &wire->out;
    struct ko_rdma_line line;

    if (out->state != KO_RDMA_OUT_ASKED || !out->first) {
        ko_rdma_refuse(wire, "a place came for a message that was not announced");
        return;
    }
    if (!take_line(wire, &line) ||
        (index != KO_RDMA_AWAITED && index != (int)(out->asked % KO_RDMA_LINES))) {
        ko_rdma_refuse(wire, "a place came that is not for the message announced");
        return;
    }
    ko_rdma_take_credits(wire, line.credits);
    if (wire->status)
        return;
    if (line.at) {
        write_first(wire, &line);
        return;
    }
    if (!out->first->held)
        ko_rdma_unregister(wire->device, &out->region);
    out->state = KO_RDMA_OUT_PARTS;
}

/* Of several messages a later one may be the first to have arrived. */
void ko_rdma_write_ended(struct ko_rdma_wire *wire, unsigned flying)
{
    struct ko_rdma_out *out = &wire->out;

    if (out->ended == out->begun)
        return; /* given back when the wire failed */
    if (!--out->flying[flying].stripes)
        end_flight(wire, flying);
    while (out->ended != out->begun && !out->flying[out->ended % KO_RDMA_FLYING].stripes)
        out->ended++;
}
