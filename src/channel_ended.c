/* SPDX-License-Identifier: MIT
 *
 * Ranks that have ended, or freed their groups, without a link that would tell of it.
 */
#include "channel_parts.h"

#include "group.h"
#include "status.h"

static bool has_ended(const struct ko_channel *channel, int peer)
{
    return !channel->ports[peer].is_open &&
           ko_endpoint_is_gone(channel->group->endpoint, channel->group->world_ranks[peer]);
}

/* The same of another machine's, which only the store tells of. What has begun to open tells of its
 * end itself, and behind what the peer has sent. */
static bool has_closed(const struct ko_channel *channel, int peer)
{
    const struct ko_port *port = &channel->ports[peer];

    return !port->is_open && !port->opening &&
           ko_endpoint_has_closed(channel->group->endpoint, channel->group->world_ranks[peer]);
}

/* It may have opened the link, sent what it had and ended since the last turn: what it has left is
 * taken in once more. */
static int hear_of_ended(struct ko_channel *channel, int peer)
{
    struct ko_port *port = &channel->ports[peer];

    ko_endpoint_accept(channel->group->endpoint);
    return port->link ? ko_channel_drive_opening(channel, port) : KOLO_OK;
}

static int check_one(struct ko_channel *channel, int peer)
{
    const struct ko_port *port = &channel->ports[peer];
    const bool is_ended = has_ended(channel, peer);
    int err;

    if (!is_ended && !has_closed(channel, peer))
        return KOLO_OK;
    err = hear_of_ended(channel, peer);
    if (err || port->is_open || (port->opening && !is_ended))
        return err;
    return ko_channel_link_failed(channel, peer,
                                  ko_fail(KOLO_E_PEER_LOST,
                                          "its process ended%s before it had connected",
                                          is_ended ? "" : ", or had freed its groups,"));
}

/* Of all whom this rank waits for. The store is asked as long as it has told of one more: all have
 * to have gone for the wait to end. */
static int check_all(struct ko_channel *channel)
{
    bool may_ask = true;
    int err = KOLO_OK;

    for (int i = 0; i < channel->group->size && !err; i++) {
        struct ko_port *port = &channel->ports[i];

        if (!port->is_optional || port->has_left || port->is_open)
            continue;
        if (!has_ended(channel, i)) {
            may_ask = may_ask && has_closed(channel, i);
            if (!may_ask)
                continue;
        }
        err = hear_of_ended(channel, i);
        if (!err && !port->is_open && !port->has_left && (!port->opening || has_ended(channel, i)))
            ko_channel_give_up(channel, port);
    }
    return err;
}

int ko_channel_check_members(struct ko_channel *channel)
{
    const kolo_group *group = channel->group;

    for (int r = 0; r < group->size; r++)
        if (r != group->rank && !channel->ports[r].has_left &&
            ko_endpoint_is_lost(group->endpoint, group->world_ranks[r]))
            return ko_channel_link_failed(
                channel, r,
                ko_fail(KOLO_E_PEER_LOST, "its process has ended without having freed the group"));
    return KOLO_OK;
}

int ko_channel_check_processes(struct ko_channel *channel, int peer)
{
    return peer < 0 ? check_all(channel) : check_one(channel, peer);
}
