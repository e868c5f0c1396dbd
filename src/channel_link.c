/* SPDX-License-Identifier: MIT
 *
 * Opening a link: the lower rank of the two connects, the higher one claims the arrival and
 * answers. The hello says for which call, so a rank that makes another one is found out here.
 */
#include "channel_parts.h"

#include "group.h"
#include "status.h"

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
    struct ko_hello hello = hello_to(channel, peer);

    return ko_endpoint_connect(channel->group->endpoint, channel->group->world_ranks[peer], &hello,
                               &channel->ports[peer].opening);
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

/* An arrival for this port, if there is one, gets our hello. */
static int claim_from(struct ko_channel *channel, int peer)
{
    struct ko_hello hello = hello_to(channel, peer);
    struct ko_port *port = &channel->ports[peer];
    int err = ko_endpoint_claim(channel->group->endpoint, channel->group->id, peer, channel->number,
                                &port->opening);

    if (err)
        return err == KO_AGAIN ? KOLO_OK : err;
    err = check_hello(channel, peer, &port->opening->hello);
    if (!err)
        err = ko_channel_hear_waiting(channel, port, &port->opening->hello.stamp);
    return err ? err : port->opening->transport->answer(port->opening, &hello);
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

void ko_channel_give_up(struct ko_channel *channel, struct ko_port *port)
{
    ko_channel_unpoll(channel, port);
    if (port->opening)
        port->opening->transport->hangup(port->opening);
    port->opening = NULL;
    port->said_bye = true;
    channel->nopening--;
}

/* The status of an attempt to open a link: KOLO_OK if the failure matters to nobody. */
static int judge_opening(struct ko_channel *channel, struct ko_port *port, int status)
{
    if (status == KOLO_E_PEER_LOST && port->is_optional && !port->is_open) {
        ko_channel_give_up(channel, port);
        return KOLO_OK;
    }
    return status ? ko_channel_link_failed(channel, port->link->peer, status) : KOLO_OK;
}

int ko_channel_drive_opening(struct ko_channel *channel, struct ko_port *port)
{
    int err = KOLO_OK;

    if (port->said_bye)
        return KOLO_OK;
    if (!port->opening)
        err = claim_from(channel, port->link->peer);
    if (!err && port->opening)
        err = port->opening->transport->drive(port->opening);
    if (!err && port->opening && port->opening->state == KO_WIRE_OPEN)
        err = finish_opening(channel, port);
    return judge_opening(channel, port, err);
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
    port->link->places.spread = ko_group_spread(channel->group, contact);
    port->polled_fd = -1;
    port->is_optional = is_optional;
    channel->nopening++;
    err = channel->group->rank <= peer ? connect_to(channel, peer) : KOLO_OK;
    return err ? judge_opening(channel, port, err) : ko_channel_drive_opening(channel, port);
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

/* Opens the links that other ranks have begun on this channel: they may wait for it before this
 * rank comes to use it, as around a ring. */
int ko_channel_answer_arrivals(struct ko_channel *channel)
{
    enum { CAP = 16 };
    struct ko_hello hellos[CAP];
    struct ko_link *link;
    int n, nbegun, err = KOLO_OK;

    do {
        n = ko_endpoint_unclaimed(channel->group->endpoint, channel->group->id, channel->number,
                                  hellos, CAP);
        nbegun = 0;
        for (int i = 0; i < n && !err; i++)
            if (hellos[i].from >= 0 && hellos[i].from < channel->group->rank &&
                !channel->ports[hellos[i].from].link) {
                err = ko_channel_link(channel, hellos[i].from, &link);
                nbegun++;
            }
    } while (n == CAP && nbegun && !err);
    /* Messages are received by ranks that call for them; but the sender of one may be needed for
     * what this rank waits for. */
    if (!err)
        ko_mailbox_answer_all(channel->group->endpoint);
    return err;
}
