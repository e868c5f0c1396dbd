/* SPDX-License-Identifier: MIT
 *
 * Whose turn it is, where ranks take turns on the cores. What is waited for from a rank of the same
 * core comes only after that one's turn. What a rank of another core is to give may be about to
 * come: who leaves his turn then has it again only after all others of his core, and both cores go
 * through their ranks once more than they would have to. So it is looked for as long as a turn
 * takes to change, unless somebody of the same core is behind, or may be.
 *
 * Each rank says in its windows on which core it waits, and to those who wait there too in which
 * call; in messages, which are in none, nobody is behind. What is said may be old, or a lie: only
 * turns are lost by it.
 */
#include "channel_parts.h"
#include "clock.h"
#include "group.h"
#include "portable.h"
#include "window_slots.h"

#include <sched.h>

enum {
    MOST_RANKS = 16, /* of a group: to go through more takes as long as a turn */
    MOST_TURNS = 4,  /* of a wait: what has not come then takes longer than others' turns */
    LOOK_NS = 1500,  /* to change turns takes 1200 */
    LOOKS = 8,       /* for one at the time */
    NO_CORE = 0
};

static uint64_t own_core(void)
{
    const int core = sched_getcpu();

    return core < 0 ? NO_CORE : (uint64_t)core + 1;
}

static bool has_window(const struct ko_port *port)
{
    return port->is_open && port->link->inbox;
}

/* Whether the peer waits, or may wait, on that core. */
static bool is_here(const struct ko_link *link, uint64_t core)
{
    const uint64_t theirs = ko_load_acquire(&link->outbox->receiver_core);

    return theirs == core || theirs == NO_CORE || core == NO_CORE;
}

/* Says what has changed, in a line that its reader has to fetch then. */
static void say(uint64_t *word, uint64_t value)
{
    if (ko_load_relaxed(word) != value)
        ko_store_release(word, value);
}

static void tell(const struct ko_channel *channel, uint64_t core)
{
    for (int i = 0; i < channel->group->size; i++) {
        const struct ko_link *link = channel->ports[i].link;

        if (!has_window(&channel->ports[i]))
            continue;
        say(&link->inbox->receiver_core, core);
        if (is_here(link, core))
            say(&link->inbox->receiver_call, channel->seq);
    }
}

/* Whether it is known that nobody who waits here is behind. */
static bool is_last(const struct ko_channel *channel, uint64_t core)
{
    bool is = true;

    for (int i = 0; i < channel->group->size && is; i++) {
        const struct ko_port *port = &channel->ports[i];

        if (i != channel->group->rank)
            is = has_window(port) &&
                 (!is_here(port->link, core) ||
                  ko_load_acquire(&port->link->outbox->receiver_call) >= channel->seq);
    }
    return is;
}

static bool look(const struct ko_link *link)
{
    const int64_t until = ko_now_ns() + LOOK_NS;

    do
        for (int looks = LOOKS; looks > 0; looks--) {
            ko_pause();
            if (ko_window_has_come(link))
                return true;
        }
    while (ko_now_ns() < until);
    return false;
}

bool ko_channel_keeps_turn(const struct ko_channel *channel, const struct ko_wait *wait)
{
    const struct ko_port *port = wait->peer < 0 ? NULL : &channel->ports[wait->peer];
    uint64_t core;

    if (wait->turns >= MOST_TURNS || channel->group->size > MOST_RANKS)
        return false;
    core = own_core();
    tell(channel, core);
    if (!port || !wait->is_for_slice || !has_window(port))
        return false;
    if (ko_window_has_come(port->link))
        return wait->turns == 0; /* meanwhile; later it is not what is waited for */
    return !is_here(port->link, core) && is_last(channel, core) && look(port->link);
}
