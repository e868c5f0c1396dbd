/* SPDX-License-Identifier: MIT
 *
 * RDMA between hosts: reliable connections of InfiniBand, RoCE or iWARP. A device has one of tcp's
 * inside, which listens and greets for it; a wire is one of tcp's until the queue pairs at its ends
 * are joined and a first write has shown that they reach each other.
 */
#include "rdma.h"

#include "clock.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* How long a wire that is hung up waits, at most, for messages to arrive, which a closed queue pair
 * would take with it and which a busy network may keep for long; and then for its last words. */
enum { LINGER_MS = 5000, LAST_MS = 500 };

/* It looks again and again for as long as most messages take, then after naps, each twice as long
 * as the one before. */
enum { LINGER_POLL_NS = 50000, FIRST_NAP_NS = 20000, LONGEST_NAP_NS = 20000000 };

/* ---- waiting ----------------------------------------------------------------------------- */

/* Who knows of a message and has not begun to land it wants no more. */
void ko_rdma_want(struct ko_rdma_wire *wire)
{
    const bool is_full = wire->in.has_frame && !wire->in.is_landing;

    if (wire->status)
        wire->base.wanted = 0;
    else
        wire->base.wanted =
            (is_full ? 0 : KO_POLL_IN) | (ko_rdma_is_sending(wire) ? KO_POLL_IN | KO_POLL_OUT : 0);
}

static int after(struct ko_rdma_wire *wire, int err)
{
    ko_rdma_want(wire);
    return err;
}

int ko_rdma_poll_tcp(struct ko_rdma_wire *wire)
{
    return ko_poller_keep(&wire->poller, wire->tcp->fd, wire->ended_ns ? 0 : wire->tcp->wanted,
                          &wire->tcp, &wire->polled);
}

/* Nothing comes over tcp behind the hellos, but for a word with iWARP, and its end. */
static void look_at_tcp(struct ko_rdma_wire *wire)
{
    const struct ko_frame *frame;
    int err = wire->ended_ns ? KO_AGAIN : wire->tcp->transport->next(wire->tcp, &frame);

    if (!err && wire->device->cm && !frame->nbytes && !wire->meeting.has_met) {
        wire->meeting.has_met = true;
        err = wire->tcp->transport->land(wire->tcp, NULL);
        err = err ? err : KO_AGAIN;
    }
    if (err == KO_AGAIN)
        return;
    if (err && err != KOLO_E_PEER_LOST)
        ko_rdma_fail(wire, err);
    wire->ended_ns = ko_now_ns();
    if (ko_rdma_poll_tcp(wire))
        ko_rdma_fail(wire, KOLO_E_SYSTEM);
}

/* What has told of itself is a queue or an adapter. */
static void look_at_adapters(struct ko_rdma_wire *wire, const void *owner)
{
    struct ko_rdma_device *device = wire->device;

    for (int i = 0; i < wire->nrails; i++)
        if (owner == wire->rails[i].cq && ko_rdma_is_first_of_cq(wire, i))
            ko_rdma_take_event(device, wire->rails[i].cq);
    for (int i = 0; i < device->nadapters; i++)
        if (owner == &device->adapters[i])
            ko_rdma_read_events(device, &device->adapters[i]);
}

static void look_at_all(struct ko_rdma_wire *wire)
{
    enum { MOST = 1 + KO_RDMA_RAILS + KO_IB_CHOSEN_CAP };
    struct ko_event events[MOST];
    const int n = ko_poller_wait(&wire->poller, 0, events, MOST);

    for (int i = 0; i < n; i++)
        if (events[i].owner == &wire->tcp)
            look_at_tcp(wire);
        else
            look_at_adapters(wire, events[i].owner);
    for (int i = 0; i < wire->nrails && !wire->status; i++)
        ko_rdma_look_for_end(wire, &wire->rails[i]);
}

/* The order matters: what completes before the queue is armed is gathered, what completes later
 * makes the channel readable. An event that has told of other wires' completions, too, tells of
 * them no more: so nobody sleeps if there were any, and they say so themselves the next time. */
static bool rdma_arm(struct ko_wire *base)
{
    struct ko_rdma_wire *wire = (struct ko_rdma_wire *)base;
    bool has_come;

    if (base->state != KO_WIRE_OPEN)
        return false;
    if (wire->status)
        return !wire->has_told;
    look_at_all(wire);
    if (!wire->status)
        ko_rdma_arm(wire);
    has_come = ko_rdma_gather(wire) || wire->has_gained;
    wire->has_gained = false;
    ko_rdma_pump(wire);
    (void)after(wire, KOLO_OK);
    return has_come || wire->status || wire->ended_ns;
}

/* ---- beginning --------------------------------------------------------------------------- */

static size_t rdma_address(struct ko_device *device, unsigned char *address)
{
    return ko_transport_tcp.address(((struct ko_rdma_device *)device)->tcp, address);
}

static void copy_head(struct ko_rdma_wire *wire)
{
    wire->base.has_begun = wire->tcp->has_begun;
    wire->base.caller = wire->tcp->caller;
    wire->base.has_hello = wire->tcp->has_hello;
    wire->base.hello = wire->tcp->hello;
    memset(wire->base.hello.card, 0, sizeof wire->base.hello.card);
    wire->base.wanted = wire->tcp->wanted | KO_POLL_IN;
}

static int new_wire(struct ko_device *device, struct ko_rdma_wire **wire_out)
{
    struct ko_rdma_wire *wire = ko_alloc(sizeof *wire, "a wire");
    int err;

    if (!wire)
        return KOLO_E_NOMEM;
    wire->base.transport = &ko_transport_rdma;
    wire->device = (struct ko_rdma_device *)device;
    wire->out.credits = KO_RDMA_CREDITS;
    err = ko_poller_open_quiet(&wire->poller);
    wire->base.fd = wire->poller.epoll_fd;
    if (err)
        wire->base.transport->hangup(&wire->base);
    else
        *wire_out = wire;
    return err;
}

/* Has the poller look at all that may tell something of the rails. */
static int poll_rails(struct ko_rdma_wire *wire)
{
    int err = KOLO_OK;

    for (int i = 0; i < wire->nrails && !err; i++) {
        struct ko_rdma_cq *cq = wire->rails[i].cq;

        if (ko_rdma_is_first_of_cq(wire, i))
            err = ko_poller_add(&wire->poller, cq->channel->fd, KO_POLL_IN, cq);
    }
    for (int i = 0; i < wire->device->nadapters && !err; i++) {
        struct ko_rdma_adapter *adapter = &wire->device->adapters[i];

        err = ko_poller_add(&wire->poller, adapter->context->async_fd, KO_POLL_IN, adapter);
    }
    return err;
}

/* Makes the queue pairs, with what tells of them, and puts their card into the hello. */
static int open_queue(struct ko_rdma_wire *wire, struct ko_hello *hello)
{
    bool is_plain = wire->stage == KO_RDMA_PLAIN;
    int err;

    wire->owner = (struct ko_rdma_owner){hello->group, hello->channel};
    err = is_plain ? KOLO_OK : ko_rdma_queue_open(wire);
    is_plain = wire->stage == KO_RDMA_PLAIN;
    if (!err && !is_plain)
        err = poll_rails(wire);
    if (!err && !is_plain && wire->is_connecting && wire->device->cm)
        err = ko_rdma_meet_begin(wire);
    if (!err)
        memcpy(hello->card, &wire->card, sizeof wire->card);
    return err;
}

static int rdma_connect(struct ko_device *device, const unsigned char *address, size_t nbytes,
                        const struct ko_hello *hello, struct ko_wire **wire_out)
{
    struct ko_device *tcp = ((struct ko_rdma_device *)device)->tcp;
    struct ko_hello own = *hello;
    struct ko_rdma_wire *wire;
    int err = new_wire(device, &wire);

    if (err)
        return err;
    wire->is_connecting = true;
    wire->base.hello.from = hello->to; /* for texts, until its own has come */
    err = open_queue(wire, &own);
    if (!err)
        err = ko_transport_tcp.connect(tcp, address, nbytes, &own, &wire->tcp);
    if (!err)
        err = ko_rdma_poll_tcp(wire);
    if (err) {
        wire->base.transport->hangup(&wire->base);
        return err;
    }
    copy_head(wire);
    *wire_out = &wire->base;
    return KOLO_OK;
}

static int rdma_accept(struct ko_device *device, struct ko_wire **wire_out)
{
    struct ko_wire *tcp;
    struct ko_rdma_wire *wire;
    int err = ko_transport_tcp.accept(((struct ko_rdma_device *)device)->tcp, &tcp);

    if (err)
        return err;
    err = new_wire(device, &wire);
    if (err) {
        tcp->transport->hangup(tcp);
        return err;
    }
    wire->tcp = tcp;
    err = ko_rdma_poll_tcp(wire);
    if (err) {
        wire->base.transport->hangup(&wire->base);
        return err;
    }
    copy_head(wire);
    *wire_out = &wire->base;
    return KOLO_OK;
}

/* The other end's card has been taken; in an answer its queue pairs are joined to ours already, but
 * for iWARP. */
static int join(struct ko_rdma_wire *wire)
{
    int err = ko_rdma_card_join(wire);

    if (!err && wire->device->cm && !wire->is_connecting)
        err = ko_rdma_meet_begin(wire);
    if (!err)
        wire->stage = wire->device->cm ? KO_RDMA_MEETING : KO_RDMA_READYING;
    return err;
}

/* Who has sent something has found that his writes arrive; perhaps he has left since, and has never
 * got ours. */
static bool has_heard(const struct ko_rdma_wire *wire)
{
    return wire->in.come || wire->in.has_bye;
}

/* KO_AGAIN, or why this wire will never be open. Where another wire of a queue is open it is that
 * one which takes the events: they may tell whoever sleeps of something else. */
static int not_yet(struct ko_rdma_wire *wire)
{
    for (int i = 0; i < wire->nrails; i++)
        if (!ko_rdma_cq_has_open(wire->rails[i].cq))
            ko_rdma_take_event(wire->device, wire->rails[i].cq);
    look_at_tcp(wire);
    if (wire->ended_ns) /* a write's failure is then not the adapters' fault */
        return ko_rdma_await_last_words(wire);
    return wire->status ? ko_fail_again(wire->status, wire->why) : KO_AGAIN;
}

static int meet(struct ko_rdma_wire *wire)
{
    int err = ko_rdma_meet(wire);

    if (err == KO_AGAIN)
        return not_yet(wire);
    if (!err)
        wire->stage = KO_RDMA_READYING;
    if (!err && wire->is_connecting) {
        wire->meeting.met = (struct ko_post){.frame.kind = KO_FRAME_BELL};
        err = wire->tcp->transport->send(wire->tcp, &wire->meeting.met);
    }
    return err;
}

/* KO_AGAIN until the end that listened has said that its queue pair is joined. */
static int await_met(struct ko_rdma_wire *wire)
{
    int err = wire->is_connecting || wire->meeting.has_met ? KOLO_OK : not_yet(wire);

    return err == KO_AGAIN && wire->meeting.has_met ? KOLO_OK : err;
}

/* With iWARP the end that has gone to the other is the first to send (RFC 5044, 7.1.3), and that
 * writes arrive is known by then. It waits for the other's word: siw may never look at what comes
 * while it still joins its end (Linux 6.1). */
static int await_ready(struct ko_rdma_wire *wire)
{
    int err = await_met(wire);

    if (err)
        return err;
    ko_rdma_arm(wire);
    (void)ko_rdma_gather(wire);
    if (wire->is_connecting && !has_heard(wire) && !wire->in.has_ready)
        return not_yet(wire);
    wire->stage = KO_RDMA_OPEN;
    wire->base.state = KO_WIRE_OPEN;
    if (!wire->is_connecting)
        ko_rdma_say_ready(wire);
    ko_rdma_pump(wire);
    return KOLO_OK;
}

/* The first write. Who has answered waits for the other's: before, nobody would take his in. */
static int begin_probe(struct ko_rdma_wire *wire)
{
    ko_rdma_arm(wire);
    (void)ko_rdma_gather(wire);
    if (!wire->is_connecting && !wire->in.has_ready)
        return not_yet(wire);
    wire->stage = KO_RDMA_PROBING;
    ko_rdma_probe(wire);
    ko_rdma_say_ready(wire);
    return KOLO_OK;
}

/* That it has arrived others may have taken in already. */
static int await_probe(struct ko_rdma_wire *wire)
{
    ko_rdma_arm(wire);
    (void)ko_rdma_gather(wire);
    if ((wire->stage != KO_RDMA_OPEN || wire->status) && !has_heard(wire))
        return not_yet(wire);
    if (wire->status) /* with his leaving */
        wire->status = KOLO_E_PEER_LOST;
    wire->stage = KO_RDMA_OPEN;
    wire->base.state = KO_WIRE_OPEN;
    ko_rdma_pump(wire);
    return KOLO_OK;
}

static int shake(struct ko_rdma_wire *wire)
{
    int err = KOLO_OK;

    if (wire->tcp->state != KO_WIRE_OPEN)
        return KOLO_OK;
    if (wire->stage == KO_RDMA_GREETING || (wire->stage == KO_RDMA_PLAIN && wire->is_connecting))
        err = ko_rdma_card_take(wire, &wire->tcp->hello);
    if (!err && wire->stage == KO_RDMA_PLAIN)
        return ko_rdma_plain_open(wire);
    if (!err && wire->stage == KO_RDMA_GREETING)
        err = join(wire);
    if (!err && wire->stage == KO_RDMA_MEETING)
        err = meet(wire);
    if (!err && wire->stage == KO_RDMA_READYING)
        err = wire->device->cm ? await_ready(wire) : begin_probe(wire);
    if (!err && wire->base.state != KO_WIRE_OPEN)
        err = await_probe(wire);
    return err == KO_AGAIN ? KOLO_OK : err;
}

static int drive_opening(struct ko_rdma_wire *wire)
{
    int err = wire->tcp->transport->drive(wire->tcp);

    copy_head(wire);
    if (!err)
        err = shake(wire);
    if (!err)
        err = ko_rdma_poll_tcp(wire);
    if (err || wire->base.state != KO_WIRE_OPEN || wire->stage == KO_RDMA_PLAIN)
        return err;
    return after(wire, KOLO_OK);
}

/* ---- the row ----------------------------------------------------------------------------- */

static int rdma_drive(struct ko_wire *base)
{
    struct ko_rdma_wire *wire = (struct ko_rdma_wire *)base;

    if (base->state != KO_WIRE_OPEN)
        return drive_opening(wire);
    (void)ko_rdma_gather(wire);
    ko_rdma_pump(wire);
    return after(wire, KOLO_OK);
}

/* What has arrived at the other end's adapter is not lost with this end's queue pair. */
static int rdma_deliver(struct ko_wire *base)
{
    struct ko_rdma_wire *wire = (struct ko_rdma_wire *)base;

    (void)rdma_drive(base);
    look_at_tcp(wire);
    if (wire->status || wire->ended_ns)
        return KOLO_OK;
    return ko_rdma_is_sending(wire) || ko_rdma_is_flying(wire) ? KO_AGAIN : KOLO_OK;
}

static int rdma_answer(struct ko_wire *base, const struct ko_hello *hello)
{
    struct ko_rdma_wire *wire = (struct ko_rdma_wire *)base;
    struct ko_hello own = *hello;
    int err = ko_rdma_card_take(wire, &wire->tcp->hello);

    if (!err)
        err = open_queue(wire, &own);
    if (!err && wire->stage != KO_RDMA_PLAIN)
        err = join(wire);
    if (!err)
        err = wire->tcp->transport->answer(wire->tcp, &own);
    return err ? err : drive_opening(wire);
}

static int rdma_send(struct ko_wire *base, struct ko_post *post)
{
    struct ko_rdma_wire *wire = (struct ko_rdma_wire *)base;

    if (wire->status || wire->ended_ns)
        return KOLO_OK;
    ko_rdma_send(wire, post);
    return after(wire, KOLO_OK);
}

static bool has_news(const struct ko_rdma_wire *wire)
{
    const struct ko_rdma_in *in = &wire->in;

    return in->come != in->taken || in->has_frame || in->has_bye || wire->ended_ns || wire->status;
}

/* Whether there is news now. False is the answer to nearly all looks of one who waits. */
static bool look(struct ko_rdma_wire *wire)
{
    if (!ko_rdma_look(wire))
        return wire->status;
    (void)after(wire, KOLO_OK);
    return has_news(wire);
}

static int rdma_next(struct ko_wire *base, const struct ko_frame **frame)
{
    struct ko_rdma_wire *wire = (struct ko_rdma_wire *)base;

    if (!has_news(wire) && !look(wire))
        return KO_AGAIN;
    return after(wire, ko_rdma_next(wire, frame));
}

static int rdma_land(struct ko_wire *base, void *to)
{
    struct ko_rdma_wire *wire = (struct ko_rdma_wire *)base;

    return after(wire, ko_rdma_land(wire, to));
}

static bool rdma_give(struct ko_wire *base, const struct ko_frame *frame, const void *body,
                      struct ko_post *rest)
{
    struct ko_rdma_wire *wire = (struct ko_rdma_wire *)base;

    (void)rest;
    return !wire->ended_ns && ko_rdma_give(wire, frame, body);
}

static bool rdma_take(struct ko_wire *base, struct ko_message *message, void *to, int looks)
{
    struct ko_rdma_wire *wire = (struct ko_rdma_wire *)base;
    bool has_come = has_news(wire);

    for (; !has_come && looks > 0; looks--) {
        has_come = look(wire);
        if (!has_come)
            ko_pause();
    }
    return has_come && ko_rdma_take(wire, message, to);
}

static struct ko_held *rdma_hold(struct ko_wire *base, struct ko_gpu *gpu, const void *at,
                                 size_t nbytes)
{
    return ko_rdma_hold(((struct ko_rdma_wire *)base)->device, gpu, at, nbytes);
}

static bool rdma_lands_in(struct ko_wire *base, struct ko_held *held)
{
    return ko_rdma_lands_in((struct ko_rdma_wire *)base, held);
}

/* Whether something of what has been posted may still arrive. */
static bool is_arriving(struct ko_rdma_wire *wire)
{
    (void)ko_rdma_gather(wire);
    ko_rdma_post_list(wire);
    look_at_tcp(wire);
    return !wire->status && !wire->ended_ns && ko_rdma_is_flying(wire);
}

/* Waits until what has been posted has arrived, unless the other end is gone. */
static void await_arrival(struct ko_rdma_wire *wire, int ms)
{
    const ko_deadline deadline = ko_deadline_in(ms);
    const int64_t nap_from_ns = ko_now_ns() + LINGER_POLL_NS;
    struct timespec nap = {.tv_nsec = FIRST_NAP_NS};

    while (is_arriving(wire) && !ko_deadline_passed(&deadline)) {
        if (ko_now_ns() < nap_from_ns) {
            sched_yield();
            continue;
        }
        nanosleep(&nap, NULL);
        nap.tv_nsec = 2 * nap.tv_nsec < LONGEST_NAP_NS ? 2 * nap.tv_nsec : LONGEST_NAP_NS;
    }
}

static void linger(struct ko_rdma_wire *wire)
{
    await_arrival(wire, LINGER_MS);
    ko_rdma_say_bye(wire);
    await_arrival(wire, LAST_MS);
}

static void rdma_hangup(struct ko_wire *base)
{
    struct ko_rdma_wire *wire = (struct ko_rdma_wire *)base;

    if (!wire)
        return;
    if (wire->stage == KO_RDMA_OPEN && base->state == KO_WIRE_OPEN && !wire->status)
        linger(wire);
    ko_transport_tcp.hangup(wire->tcp);
    ko_rdma_queue_close(wire);
    ko_rdma_meeting_close(wire);
    ko_rdma_drop_posts(wire);
    ko_rdma_unregister(wire->device, &wire->in.region);
    ko_poller_close(&wire->poller);
    free(wire);
}

const struct ko_transport ko_transport_rdma = {
    .name = "rdma",
    .kind = KO_MESSAGE,
    .knows_memory = true,
    .open = ko_rdma_open,
    .close = ko_rdma_close,
    .address = rdma_address,
    .connect = rdma_connect,
    .accept = rdma_accept,
    .answer = rdma_answer,
    .drive = rdma_drive,
    .arm = rdma_arm,
    .send = rdma_send,
    .next = rdma_next,
    .land = rdma_land,
    .give = rdma_give,
    .take = rdma_take,
    .hold = rdma_hold,
    .let_go = ko_rdma_let_go,
    .lands_in = rdma_lands_in,
    .deliver = rdma_deliver,
    .hangup = rdma_hangup,
};
