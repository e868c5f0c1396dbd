/* SPDX-License-Identifier: MIT
 *
 * peer_meet.h: how ranks of a library that has no launcher of its own meet: by kolo, which is done
 * with before anything is measured. In C and C++.
 */
#ifndef PEER_MEET_H
#define PEER_MEET_H

#include "kolo.h"
#include "peer.h"

static kolo_group *peer_meeting;

static void peer_meet_check(int err)
{
    if (err)
        peer_die("meeting", kolo_last_error());
}

/* Fills in rank and size, from what kolorun says. */
static void peer_meet(struct peer *peer)
{
    peer_meet_check(kolo_group_join("env://", -1, &peer_meeting));
    peer->rank = kolo_group_rank(peer_meeting);
    peer->size = kolo_group_size(peer_meeting);
}

/* all has room for nbytes of each rank. */
static void peer_meet_gather(const void *mine, void *all, size_t nbytes)
{
    peer_meet_check(kolo_all_gather(peer_meeting, mine, all, nbytes, KOLO_UINT8));
}

static void peer_part(void)
{
    kolo_group_free(peer_meeting);
    peer_meeting = NULL;
}

#endif
