/* SPDX-License-Identifier: MIT
 *
 * Opening a link: the lower rank of the two connects, the higher one claims the arrival and
 * answers. The hello says for which call, so a rank that makes another one is found out here.
 *
 * A message may be sent to a lower rank that is busy elsewhere and does not know of it. So the
 * higher one connects too, after a while. If both have, the lower one's wire is taken: it leaves
 * the other's alone, and the higher rank gives its own up when it meets that.
 */
#include "channel_parts.h"

#include "clock.h"
#include "group.h"
#include "status.h"

#include <time.h>

enum {
    PATIENCE_MS = 20,   /* nearly always the lower rank is about to connect */
    ANSWERED_MS = 1000, /* at most, for links whose peers wait for no more than a last word */
    ANSWERED_NAP_NS = 50000
};

static struct ko_hello hello_to(struct ko_channel *channel, int peer)
{
    const kolo_group *group = channel->group;

    return (struct ko_hello){.magic = KO_HELLO_MAGIC,
                             .version = KO_HELLO_VERSION,
                             .group = group->id,
                             .from = group->rank,
                             .to = peer,
                             .channel = channel->number,
                             .slots = group->endpoint->own.slots,
                             .slice_bytes = group->endpoint->own.slice_bytes,
                             .stamp = *ko_channel_call(channel, channel->seq)};
}

static int connect_to(struct ko_channel *channel, int peer)
{
    struct ko_endpoint *endpoint = channel->group->endpoint;
    const int world_rank = channel->group->world_ranks[peer];
    struct ko_hello hello = hello_to(channel, peer);
    struct ko_port *port = &channel->ports[peer];

    port->is_begun = true;
    if (channel->number == KO_CHANNEL_P2P && channel->group->rank < peer)
        ko_endpoint_expect_crossing(endpoint, world_rank);
    return ko_endpoint_connect(endpoint, world_rank, &hello, &port->opening);
}

/* What the other end of a wire says of itself, in its hello or in its answer to ours. */
static int check_hello(struct ko_channel *channel, int peer, const struct ko_hello *theirs)
{
    const struct ko_hello ours = hello_to(channel, peer);

    if (theirs->group != ours.group || theirs->from != peer || theirs->channel != ours.channel)
        return ko_fail(KOLO_E_PROTOCOL,
                       "another rank answered: rank %d of another group or channel",
                       (int)theirs->from);
    if (theirs->to == ours.from && theirs->slots == ours.slots &&
        theirs->slice_bytes == ours.slice_bytes)
        return KOLO_OK;
    return ko_fail(
        KOLO_E_PROTOCOL,
        "its hello was for rank %d with %u slots of %u bytes; this is rank %d with %u of %u",
        (int)theirs->to, theirs->slots, theirs->slice_bytes, ours.from, ours.slots,
        ours.slice_bytes);
}

/* Hangs up what has been begun or claimed, if anything. */
static void drop_opening(struct ko_channel *channel, struct ko_port *port)
{
    if (!port->opening)
        return;
    ko_channel_unpoll(channel, port);
    port->opening->transport->hangup(port->opening);
    port->opening = NULL;
}

/* An arrival for this port, if there is one, gets our hello. */
static int claim_from(struct ko_channel *channel, int peer)
{
    struct ko_hello hello = hello_to(channel, peer);
    struct ko_port *port = &channel->ports[peer];
    struct ko_wire *arrival;
    int err = ko_endpoint_claim(channel->group->endpoint, channel->group->id, peer, channel->number,
                                &arrival);

    if (err)
        return err == KO_AGAIN ? KOLO_OK : err;
    drop_opening(channel, port);
    port->opening = arrival;
    port->is_begun = false;
    err = check_hello(channel, peer, &arrival->hello);
    if (!err)
        err = ko_channel_hear_waiting(channel, port, &arrival->hello.stamp);
    return err ? err : arrival->transport->answer(arrival, &hello);
}

/* Whether an arrival would be taken: in place of what has been begun, only from a lower rank. */
static bool may_claim(const struct ko_channel *channel, const struct ko_port *port)
{
    return !port->opening || (port->is_begun && channel->group->rank > port->link->peer);
}

/* Whether it is for this rank to connect now. */
static bool is_to_connect(const struct ko_channel *channel, const struct ko_port *port)
{
    if (port->opening)
        return false;
    if (channel->group->rank <= port->link->peer)
        return true;
    return channel->number == KO_CHANNEL_P2P && !port->is_optional &&
           ko_now_ns() - port->awaited_ns >= PATIENCE_MS * (int64_t)1000000;
}

static int finish_opening(struct ko_channel *channel, struct ko_port *port)
{
    struct ko_wire *wire = port->opening;
    int err = check_hello(channel, port->link->peer, &wire->hello);

    if (err)
        return err;
    port->opening = NULL;
    port->is_open = true;
    channel->nopening--;
    return ko_link_open(port->link, wire);
}

/* Whether it is not open yet; in what fails on the way nobody has a part any more. */
static bool drive_answered(struct ko_channel *channel, struct ko_port *port)
{
    int err;

    if (!port->opening || port->is_begun)
        return false;
    err = port->opening->transport->drive(port->opening);
    if (!err && port->opening->state == KO_WIRE_OPEN)
        err = finish_opening(channel, port);
    if (err && !port->is_open)
        drop_opening(channel, port);
    return port->opening;
}

void ko_channel_finish_answered(struct ko_channel *channel)
{
    const ko_deadline deadline = ko_deadline_in(ANSWERED_MS);
    const struct timespec nap = {.tv_nsec = ANSWERED_NAP_NS};
    bool is_any = channel->ports;

    while (is_any && !ko_deadline_passed(&deadline)) {
        is_any = false;
        for (int i = 0; i < channel->group->size; i++)
            is_any |= drive_answered(channel, &channel->ports[i]);
        if (is_any)
            nanosleep(&nap, NULL);
    }
}

void ko_channel_give_up(struct ko_channel *channel, struct ko_port *port)
{
    ko_channel_unpoll(channel, port);
    drop_opening(channel, port);
    port->has_left = port->has_vanished = true;
    channel->nopening--;
}

bool ko_channel_may_lose(struct ko_channel *channel, int peer)
{
    struct ko_port *port = &channel->ports[peer];
    const struct ko_frame *frame;

    if (!port->has_left && port->is_optional && !port->is_begun && !port->link->received &&
        !port->link->noticed && port->link->ops->next(port->link, &frame))
        port->has_left = port->has_vanished = true;
    return port->has_left;
}

/* The status of an attempt to open a link: KOLO_OK if the failure matters to nobody, and then the
 * thread's text is that from before. */
static int judge_opening(struct ko_channel *channel, struct ko_port *port, int status,
                         const char *text)
{
    if (status == KOLO_E_PEER_LOST && port->is_optional && !port->is_open) {
        ko_channel_give_up(channel, port);
        return ko_fail_again(KOLO_OK, text);
    }
    return status ? ko_channel_link_failed(channel, port->link->peer, status) : KOLO_OK;
}

int ko_channel_drive_opening(struct ko_channel *channel, struct ko_port *port)
{
    const int peer = port->link->peer;
    char text[KO_ERROR_TEXT];
    int err = KOLO_OK;

    if (port->has_left)
        return KOLO_OK;
    ko_error_keep(text);
    if (may_claim(channel, port))
        err = claim_from(channel, peer);
    if (!err && is_to_connect(channel, port))
        err = connect_to(channel, peer);
    if (!err && port->opening)
        err = port->opening->transport->drive(port->opening);
    if (!err && port->opening && port->opening->state == KO_WIRE_OPEN)
        err = finish_opening(channel, port);
    return judge_opening(channel, port, err, text);
}

static int open_link(struct ko_channel *channel, int peer, bool is_optional)
{
    struct ko_port *port = &channel->ports[peer];
    const struct ko_contact *own = &channel->group->endpoint->own;
    const struct ko_contact *contact;
    int err =
        ko_endpoint_contact(channel->group->endpoint, channel->group->world_ranks[peer], &contact);

    if (!err)
        err = ko_link_create(peer, own->slots, own->slice_bytes, &port->link);
    if (err == KOLO_E_PEER_LOST)
        return ko_group_fail_lost(channel->group, kolo_last_error());
    if (err)
        return ko_group_fail(channel->group, err, kolo_last_error());
    port->link->limit_ms = &channel->group->timeout_ms;
    port->link->failed = &channel->group->failed;
    port->link->is_trading = &channel->is_trading;
    port->link->is_crowded = ko_group_is_crowded(channel->group, contact);
    channel->is_crowded = port->link->is_crowded || (channel->is_crowded && !channel->group->hosts);
    port->link->held = &channel->held;
    port->link->places.spread = ko_group_spread(channel->group, contact);
    port->polled_fd = -1;
    port->is_optional = is_optional;
    port->awaited_ns = ko_now_ns();
    channel->nopening++;
    return ko_channel_drive_opening(channel, port);
}

int ko_channel_link(struct ko_channel *channel, int peer, struct ko_link **link)
{
    struct ko_port *port = &channel->ports[peer];
    int err = KOLO_OK;

    if (!port->link)
        err = open_link(channel, peer, false);
    if (err)
        return err;
    port->is_optional = false;
    *link = port->link;
    return KOLO_OK;
}

int ko_channel_link_all(struct ko_channel *channel)
{
    int err = KOLO_OK;

    for (int i = 0; i < channel->group->size && !err; i++)
        if (i != channel->group->rank && !channel->ports[i].link)
            err = open_link(channel, i, true);
    return err;
}

/* Two have connected to each other, and this end's wire has been taken. */
static void discard_arrival(struct ko_channel *channel, int from)
{
    struct ko_wire *arrival;

    if (!ko_endpoint_claim(channel->group->endpoint, channel->group->id, from, channel->number,
                           &arrival))
        arrival->transport->hangup(arrival);
}

/* Returns whether there may be more arrivals: something has been begun. Nothing here depends on it
 * yet: who has looked for messages of any rank begins a link, and may have gone before it is open.
 */
static bool answer_one(struct ko_channel *channel, int from, int *err)
{
    const kolo_group *group = channel->group;

    if (from < 0 || from >= group->size || from == group->rank)
        return false;
    if (channel->ports[from].is_open)
        discard_arrival(channel, from);
    else if (!channel->ports[from].link)
        *err = open_link(channel, from, true);
    else
        return false;
    return true;
}

int ko_channel_answer(struct ko_channel *channel)
{
    enum { CAP = 16 };
    struct ko_hello hellos[CAP];
    int n, nbegun, err = KOLO_OK;

    do {
        n = ko_endpoint_unclaimed(channel->group->endpoint, channel->group->id, channel->number,
                                  hellos, CAP);
        nbegun = 0;
        for (int i = 0; i < n && !err; i++)
            nbegun += answer_one(channel, hellos[i].from, &err);
    } while (n == CAP && nbegun && !err);
    return err;
}

/* Messages are received by ranks that call for them; but the sender of one may be needed for what
 * this rank waits for. */
int ko_channel_answer_arrivals(struct ko_channel *channel)
{
    int err = ko_channel_answer(channel);

    if (!err)
        ko_mailbox_answer_all(channel->group->endpoint);
    return err;
}
