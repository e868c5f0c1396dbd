/* SPDX-License-Identifier: MIT
 *
 * rendezvous_parts.h: what the files of the rendezvous share. One thread at a time.
 */
#ifndef KO_RENDEZVOUS_PARTS_H
#define KO_RENDEZVOUS_PARTS_H

#include "clock.h"
#include "kolo.h"
#include "launcher.h"
#include "status.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Where a rank joins: a store that the user hands in, or an address. */
struct ko_place {
    const kolo_store *store; /* or NULL: */
    char address[KO_HOST_TEXT + 32];
    int rank;
};

struct ko_world {
    kolo_store *store; /* the user's, or ours */
    kolo_store *keys;  /* the same under the job's prefix */
    bool is_own;
    bool has_server;      /* rank 0 serves the store */
    bool is_kept_here;    /* the store, at an address of the loopback */
    bool has_rounds;      /* the store outlives groups: see rendezvous_rounds.c */
    bool is_watched;      /* by agents, who count a rank that fails, and start all again */
    bool has_lost_one;    /* of the ranks, before all had come */
    bool is_in_file;      /* the store, which is this job's then */
    int64_t round, stale; /* this one, and the last that is known to be none of ours */
    ko_deadline *rejoin;  /* until then it may be a store that an earlier group leaves; NULL: no */
    bool is_soon;         /* it was met before that */
    int rank, size;

    struct ko_place place; /* this and the next two: rendezvous_twice.c */
    pid_t process;
    struct ko_world *next;
};

/* Where rank 0 serves the store, for the others, before they come: if the connection of this handle
 * ends before all have come, that is the verdict. */
int ko_world_leave_will(const struct ko_world *world, kolo_store *store);

/* Whether rank 0's store of an earlier group may be the one that was met, which is about to close;
 * err is how the request ended by which that shows. */
bool ko_world_is_earlier(struct ko_world *world, int err, const ko_deadline *deadline);

/* Says that this rank has come, and waits for the others; KOLO_E_TIMEOUT names those who have not,
 * KOLO_E_PEER_LOST with has_lost_one one that has ended, KOLO_E_INVALID two that differ in the size
 * of the world or in what all have to set alike, on all ranks that wait. KO_AGAIN: these are an
 * earlier group's, or its round's. */
int ko_world_meet(struct ko_world *world, const ko_deadline *deadline);

/* Opens world->keys, those of a round under the prefix: on rank 0 of a new one, elsewhere of one
 * that is not known to be an earlier job's, for which it waits. */
int ko_world_open_round(struct ko_world *world, const char *prefix, const ko_deadline *deadline);

/* Sends the ranks that wait in a round, whose keys these are, to a later one. */
int ko_world_end_round(kolo_store *keys);

/* Whether the verdict of a round, which has one, is a refusal; then text says why. */
bool ko_world_is_refused(kolo_store *keys, char text[KO_ERROR_TEXT]);

/* Closes its stores. NULL is allowed. */
void ko_world_free(struct ko_world *world);

/* From the time that this process has joined until it leaves. */
void ko_world_enroll(struct ko_world *world);
void ko_world_strike_off(struct ko_world *world);

/* Gives back err; with an error, the text says too if this process has joined there already, as the
 * same rank, and not left. */
int ko_world_blame_twin(const struct ko_place *place, int err);

#endif
