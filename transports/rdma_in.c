/* SPDX-License-Identifier: MIT
 *
 * Slots with parts of messages wait in the order of their coming until somebody lands them; those
 * with what the peer tells are read at once. Nothing of a slot is believed before it is checked.
 */
#include "rdma.h"

#include "clock.h"
#include "copy.h"
#include "stream.h"

#include <string.h>

static const unsigned char *slot_of(const struct ko_rdma_wire *wire, unsigned slot)
{
    return wire->slots.memory + (size_t)slot * KO_RDMA_SLOT;
}

void ko_rdma_refuse(struct ko_rdma_wire *wire, const char *what)
{
    ko_rdma_fail(wire, ko_fail(KOLO_E_PROTOCOL, "%s, which kolo never sends", what));
}

/* ---- what comes -------------------------------------------------------------------------- */

void ko_rdma_take_credits(struct ko_rdma_wire *wire, unsigned credits)
{
    if (credits > (unsigned)(KO_RDMA_CREDITS - wire->out.credits))
        ko_rdma_refuse(wire, "more credits came than there are slots");
    else
        wire->out.credits += (int)credits;
}

static void queue_slot(struct ko_rdma_wire *wire, uint8_t slot, size_t nbytes)
{
    struct ko_rdma_in *in = &wire->in;

    if (in->come - in->taken == KO_RDMA_CREDITS) {
        ko_rdma_refuse(wire, "more came than there are credits for");
        return;
    }
    in->nbytes[slot] = (uint16_t)nbytes;
    in->order[in->come++ % KO_RDMA_CREDITS] = slot;
}

/* What the peer tells without a credit; the slot is posted again at once. */
static void hear_word(struct ko_rdma_wire *wire, uint8_t slot, unsigned kind)
{
    ko_rdma_post_slots(wire, &slot, 1);
    if (kind == KO_RDMA_CLEAR)
        ko_rdma_hear_line(wire, KO_RDMA_AWAITED);
    else if (kind == KO_RDMA_DONE)
        ko_rdma_hear_done(wire, 0);
    else if (kind == KO_RDMA_READY)
        wire->in.has_ready = true;
    else if (kind == KO_RDMA_BYE)
        wire->in.has_bye = true;
    else if (kind != KO_RDMA_CREDIT)
        ko_rdma_refuse(wire, "a message of no known kind came");
}

void ko_rdma_hear_slot(struct ko_rdma_wire *wire, uint8_t slot, size_t nbytes)
{
    const struct ko_rdma_head *head = (const struct ko_rdma_head *)slot_of(wire, slot);

    if (nbytes < sizeof *head) {
        ko_rdma_refuse(wire, "less than a head came");
        return;
    }
    ko_rdma_take_credits(wire, head->credits);
    if (head->kind == KO_RDMA_FIRST || head->kind == KO_RDMA_MORE || head->kind == KO_RDMA_ASK)
        queue_slot(wire, slot, nbytes);
    else
        hear_word(wire, slot, head->kind);
}

void ko_rdma_hear_done(struct ko_rdma_wire *wire, int rail)
{
    if (wire->in.awaited & 1U << rail)
        wire->in.awaited &= ~(1U << rail);
    else if (!wire->status)
        ko_rdma_refuse(wire, "the end of a write came that nobody had asked for");
}

void ko_rdma_repost(struct ko_rdma_wire *wire)
{
    struct ko_rdma_in *in = &wire->in;

    ko_rdma_post_slots(wire, in->empty, in->nempty);
    in->owed += in->nempty;
    in->nempty = 0;
}

bool ko_rdma_look(struct ko_rdma_wire *wire)
{
    const bool has_come = ko_rdma_gather(wire);

    if (has_come || wire->in.nempty == KO_RDMA_REPOST)
        ko_rdma_pump(wire);
    return has_come;
}

/* ---- messages ---------------------------------------------------------------------------- */

/* How long a peer's last words may take, when its connection over tcp has told of its end. */
enum { LAST_WORDS_MS = 20 };

int ko_rdma_await_last_words(const struct ko_rdma_wire *wire)
{
    const bool has_all = wire->in.has_bye && !wire->in.awaited;

    if (!has_all && ko_now_ns() - wire->ended_ns < LAST_WORDS_MS * (int64_t)1000000)
        return KO_AGAIN;
    return ko_fail(KOLO_E_PEER_LOST, "its connection was closed");
}

/* What there is to say when nothing has come. */
static int nothing(struct ko_rdma_wire *wire)
{
    int err = KO_AGAIN;

    if (!wire->status && (wire->ended_ns || (wire->in.has_bye && !wire->in.awaited)))
        err = ko_rdma_await_last_words(wire);
    if (err != KO_AGAIN)
        ko_rdma_fail(wire, err);
    if (!wire->status)
        return KO_AGAIN;
    wire->has_told = true;
    return ko_fail_again(wire->status, wire->why);
}

static uint8_t front_slot(const struct ko_rdma_in *in)
{
    return in->order[in->taken % KO_RDMA_CREDITS];
}

/* The record in front. */
static const struct ko_rdma_head *front(const struct ko_rdma_wire *wire)
{
    return (const struct ko_rdma_head *)(slot_of(wire, front_slot(&wire->in)) + wire->in.at);
}

/* Whether what is in front, where there is something, has the bytes that it says. */
static bool is_record(const struct ko_rdma_wire *wire)
{
    const size_t left = wire->in.nbytes[front_slot(&wire->in)] - wire->in.at;

    return left >= sizeof(struct ko_rdma_head) && left >= ko_rdma_record(front(wire)->nbytes);
}

/* KOLO_OK if there is a record in front, after a look at what has come; KO_AGAIN, or the wire's
 * failure. */
static int await_record(struct ko_rdma_wire *wire)
{
    const struct ko_rdma_in *in = &wire->in;

    if (in->come == in->taken)
        (void)ko_rdma_look(wire);
    if (in->come == in->taken)
        return nothing(wire);
    if (is_record(wire))
        return KOLO_OK;
    ko_rdma_refuse(wire, "a record longer than its slot came");
    return nothing(wire);
}

/* The record in front is done with, and its slot if it was the last there. Slots are posted again
 * when nothing else is to be done: who has taken all that has come may be about to answer. */
static void release(struct ko_rdma_wire *wire)
{
    struct ko_rdma_in *in = &wire->in;
    const uint8_t slot = front_slot(in);

    in->at += ko_rdma_record(front(wire)->nbytes);
    if (in->at < in->nbytes[slot])
        return;
    in->at = 0;
    in->taken++;
    if (in->nempty == KO_RDMA_REPOST) /* of a wire that has failed */
        ko_rdma_repost(wire);
    in->empty[in->nempty++] = slot;
    if (in->nempty == KO_RDMA_REPOST && in->come != in->taken)
        ko_rdma_pump(wire);
}

int ko_rdma_next(struct ko_rdma_wire *wire, const struct ko_frame **frame)
{
    struct ko_rdma_in *in = &wire->in;
    const struct ko_rdma_head *head;
    int err = in->has_frame ? KOLO_OK : await_record(wire);

    *frame = &in->frame;
    if (err || in->has_frame)
        return err;
    head = front(wire);
    err = ko_stream_check(&head->frame, ko_message_bytes(wire->base.hello.slice_bytes));
    if (!err && head->kind != KO_RDMA_FIRST && head->kind != KO_RDMA_ASK)
        err = ko_fail(KOLO_E_PROTOCOL, "a message came without its beginning");
    if (err) {
        ko_rdma_fail(wire, err);
        return nothing(wire);
    }
    in->frame = head->frame;
    in->has_frame = true;
    in->is_asked = head->kind == KO_RDMA_ASK;
    in->done = 0;
    in->holds_first = !in->is_asked;
    in->asked += in->is_asked;
    if (in->is_asked)
        release(wire);
    return KOLO_OK;
}

bool ko_rdma_take(struct ko_rdma_wire *wire, struct ko_message *message, void *to)
{
    const struct ko_rdma_in *in = &wire->in;
    const struct ko_rdma_head *head;

    if (in->has_frame || in->come == in->taken || !is_record(wire))
        return false;
    head = front(wire);
    if (head->kind != KO_RDMA_FIRST || head->nbytes != head->frame.nbytes ||
        head->frame.kind != KO_FRAME_DATA || !ko_frame_is_message(&head->frame, message))
        return false;
    message->nbytes = head->nbytes;
    if (head->nbytes)
        ko_copy_short(to, head + 1, head->nbytes);
    release(wire);
    return true;
}

static int end_landing(struct ko_rdma_in *in)
{
    in->has_frame = in->is_landing = in->is_clear = in->is_asked = false;
    return KOLO_OK;
}

/* The keys that the other end needs for the place, by whose rails it will be written. */
static void write_keys(const struct ko_rdma_wire *wire, struct ko_rdma_line *line)
{
    const struct ko_rdma_adapter *adapters = wire->device->adapters;

    for (int i = 0; i < wire->nrails; i++)
        line->keys[i] = wire->in.region.mrs[wire->rails[i].adapter - adapters]->rkey;
}

/* Says where the body is to be written, or that it cannot be. */
static void clear(struct ko_rdma_wire *wire, void *to)
{
    struct ko_rdma_in *in = &wire->in;
    struct ko_rdma_out *out = &wire->out;
    const size_t nbytes = in->frame.nbytes, stripe = ko_rdma_stripe(nbytes, wire->nrails);

    out->line = (struct ko_rdma_line){.nbytes = in->frame.nbytes, .number = in->asked};
    if (in->held)
        ko_rdma_use(in->held, &in->region);
    else
        in->is_asked = ko_rdma_register(wire->device, to, nbytes,
                                        KO_IB_LOCAL_WRITE | KO_IB_REMOTE_WRITE, &in->region);
    in->held = NULL;
    if (in->is_asked) {
        out->line.at = (uintptr_t)to;
        write_keys(wire, &out->line);
        in->awaited = (1U << ((nbytes + stripe - 1) / stripe)) - 1;
    }
    wire->base.is_written_to = in->is_asked;
    in->is_clear = true;
    out->tells_line = true;
    ko_rdma_pump(wire);
}

static int land_written(struct ko_rdma_wire *wire)
{
    struct ko_rdma_in *in = &wire->in;

    if (in->awaited)
        (void)ko_rdma_look(wire);
    if (in->awaited)
        return nothing(wire);
    ko_rdma_unregister(wire->device, &in->region);
    wire->base.is_written_to = false;
    return end_landing(in);
}

/* Takes the record in front as the next part of the body. */
static int land_part(struct ko_rdma_wire *wire, unsigned char *to)
{
    struct ko_rdma_in *in = &wire->in;
    const struct ko_rdma_head *head = front(wire);
    const size_t nbytes = head->nbytes;

    if (nbytes > in->frame.nbytes - in->done || (!nbytes && in->frame.nbytes) ||
        (head->kind == KO_RDMA_FIRST) != in->holds_first || head->kind == KO_RDMA_ASK) {
        ko_rdma_refuse(wire, "a part came that does not belong to its message");
        return wire->status;
    }
    if (nbytes)
        ko_copy_short(to + in->done, head + 1, nbytes);
    in->done += nbytes;
    in->holds_first = false;
    release(wire);
    return KOLO_OK;
}

int ko_rdma_land(struct ko_rdma_wire *wire, void *to)
{
    struct ko_rdma_in *in = &wire->in;
    int err = KOLO_OK;

    in->is_landing = true;
    if (in->is_asked && !in->is_clear && wire->status) /* nobody would write it */
        return nothing(wire);
    if (in->is_asked && !in->is_clear)
        clear(wire, to);
    if (in->is_asked)
        return land_written(wire);
    while (!err && (in->holds_first || in->done < in->frame.nbytes)) {
        err = await_record(wire);
        if (!err)
            err = land_part(wire, to);
    }
    return err ? err : end_landing(in);
}

bool ko_rdma_lands_in(struct ko_rdma_wire *wire, struct ko_held *held)
{
    struct ko_rdma_in *in = &wire->in;

    if (!in->has_frame || !in->is_asked || in->is_landing || wire->status)
        return false;
    in->held = held;
    return true;
}
