/* SPDX-License-Identifier: MIT
 *
 * rendezvous_parts.h: what the files of the rendezvous share. One thread at a time.
 */
#ifndef KO_RENDEZVOUS_PARTS_H
#define KO_RENDEZVOUS_PARTS_H

#include "clock.h"
#include "kolo.h"

#include <stdbool.h>
#include <stdint.h>

struct ko_world {
    kolo_store *store; /* the user's, or ours */
    kolo_store *keys;  /* the same under the job's prefix */
    bool is_own;
    bool has_server;       /* rank 0 serves the store */
    bool may_meet_earlier; /* at an address that an earlier group has used too */
    bool has_rounds;       /* the store outlives groups: see rendezvous_rounds.c */
    int64_t round, stale;  /* this one, and the last that is known to be none of ours */
    int rank, size;
};

/* Says that this rank has come, and waits for the others; KOLO_E_TIMEOUT names those who have not,
 * KOLO_E_INVALID two that differ in the size of the world, on all ranks that wait. */
int ko_world_meet(struct ko_world *world, const ko_deadline *deadline);

/* Opens world->keys, those of a round under the prefix: on rank 0 of a new one, elsewhere of one
 * that is not known to be an earlier job's, for which it waits. */
int ko_world_open_round(struct ko_world *world, const char *prefix, const ko_deadline *deadline);

/* Sends the ranks that wait in a round, whose keys these are, to a later one. */
int ko_world_end_round(kolo_store *keys);

#endif
