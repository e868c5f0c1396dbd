/* SPDX-License-Identifier: MIT
 *
 * Whose turn it is, where ranks take turns on the cores. What is waited for from a rank of the same
 * core comes only after that one's turn. What a rank of another core is to give may be about to
 * come: who leaves his turn then comes back to it after all others of his core, and each call takes
 * every rank two turns instead of one for two calls. So it is looked for as long as a turn takes to
 * change, unless somebody of the same core is behind.
 *
 * Each rank says in its windows on which core it waits, and to those who wait there too in which
 * call. That may be old, or a lie: only turns are lost by it.
 */
#include "channel_parts.h"
#include "group.h"
#include "portable.h"
#include "window_slots.h"

#include <sched.h>

enum {
    LOOKS = 64,     /* 1.5 us; to change turns takes 1.2 */
    MOST_TURNS = 4, /* of one wait: what has not come then takes longer than others' turns */
    NO_CORE = 0
};

static uint64_t own_core(void)
{
    const int core = sched_getcpu();

    return core < 0 ? NO_CORE : (uint64_t)core + 1;
}

/* Says what has changed, in a line that its reader has to fetch then. */
static void say(uint64_t *word, uint64_t value)
{
    if (ko_load_relaxed(word) != value)
        ko_store_release(word, value);
}

static bool waits_here(const struct ko_link *link, uint64_t core)
{
    const uint64_t theirs = ko_load_acquire(&link->outbox->receiver_core);

    return core == NO_CORE || theirs == core;
}

/* Tells all where this rank waits; whether it is as far behind as whoever else waits here, and what
 * it waits for is to come from elsewhere. */
static bool is_last(struct ko_channel *channel, const struct ko_link *awaited)
{
    const uint64_t core = own_core();
    bool is = true;

    for (int i = 0; i < channel->group->size; i++) {
        const struct ko_link *link = channel->ports[i].link;

        if (!channel->ports[i].is_open || !link->inbox)
            continue;
        say(&link->inbox->receiver_core, core);
        if (!waits_here(link, core))
            continue;
        say(&link->inbox->receiver_call, channel->seq);
        is = is && link != awaited && ko_load_acquire(&link->outbox->receiver_call) >= channel->seq;
    }
    return is;
}

/* Whether it is a slice that is waited for, not room for one. */
static bool is_to_come(const struct ko_port *port)
{
    const struct ko_link *link = port->link;

    return port->is_open && link->inbox &&
           ko_load_acquire(&link->outbox->credit) + link->slots > link->sent;
}

bool ko_channel_keeps_turn(struct ko_channel *channel, struct ko_wait *wait)
{
    const struct ko_port *port = wait->peer < 0 ? NULL : &channel->ports[wait->peer];
    bool is_to_look;

    if (!port || !is_to_come(port) || wait->turns >= MOST_TURNS)
        return false;
    is_to_look = is_last(channel, port->link);
    if (ko_window_has_come(port->link)) /* meanwhile; or it is something else that is waited for */
        return wait->turns == 0;
    for (int looks = is_to_look ? LOOKS : 0; looks > 0; looks--) {
        ko_pause();
        if (ko_window_has_come(port->link))
            return true;
    }
    return false;
}
