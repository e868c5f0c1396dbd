/* SPDX-License-Identifier: MIT
 *
 * The end of a world: the rank that serves the store leaves last.
 */
#include "group.h"
#include "log.h"
#include "rank_list.h"
#include "rendezvous_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum {
    LEAVE_MS = 30000,
    LEAVE_FAILED_MS = 3000,
    LEAVE_LAST_MS = 500,
    FIRST_LOOK_MS = 125, /* between two looks at who has not left: */
    LOOK_MS = 2000       /* ever longer, up to this */
};

void ko_world_free(struct ko_world *world)
{
    if (!world)
        return;
    kolo_store_close(world->keys);
    if (world->is_own)
        kolo_store_close(world->store);
    free(world);
}

/* *left: how many have, with this one. Where rank 0 waits for them, each says who it is, before. */
static int say_left(struct ko_world *world, int64_t *left)
{
    char key[32];
    int err = KOLO_OK;

    ko_endpoint_left_key(world->rank, key, sizeof key);
    if (world->has_server && world->rank != 0)
        err = kolo_store_set(world->keys, key, (kolo_bytes){"", 0});
    return err ? err : kolo_store_add(world->keys, "left", 1, left);
}

/* ---- waiting for the others --------------------------------------------------------------- */

/* A wait of rank 0's. */
struct leaving {
    struct ko_world *world;
    struct ko_endpoint *endpoint;
    int status; /* of the group's failure */
    ko_deadline deadline;
    int64_t left;
    bool is_last;     /* one is missing, and was given up */
    ko_deadline look; /* the next */
    bool has_said;    /* whom it waits for */
};

/* The one that is missing is likely to be the one that was given up. */
static bool has_given_up_one(int status)
{
    return status == KOLO_E_PEER_LOST || status == KOLO_E_TIMEOUT;
}

/* As far as that can be seen: those of other machines never are. */
static bool are_others_gone(const struct ko_world *world, struct ko_endpoint *endpoint)
{
    for (int r = 0; r < world->size; r++)
        if (r != world->rank && !ko_endpoint_is_gone(endpoint, r))
            return false;
    return true;
}

/* Sets the flags of the ranks that have not left, and of those of them that have ended. */
static int list_missing(const struct leaving *leaving, bool *is_missing, bool *is_ended)
{
    char key[32];
    const char *const keys[] = {key};
    int has_left = 0, err = KOLO_OK;

    for (int r = 0; r < leaving->world->size && !err; r++) {
        if (r == leaving->world->rank)
            continue;
        ko_endpoint_left_key(r, key, sizeof key);
        err = kolo_store_check(leaving->world->keys, keys, 1, &has_left);
        is_missing[r] = !err && !has_left;
        is_ended[r] = is_missing[r] && ko_endpoint_has_ended(leaving->endpoint, r);
    }
    return err;
}

static int count(const bool *is_listed, int n)
{
    int listed = 0;

    for (int r = 0; r < n; r++)
        listed += is_listed[r];
    return listed;
}

static void say_missing(const struct leaving *leaving, const bool *is_missing, const bool *is_ended)
{
    const int n = leaving->world->size;
    char missing[240], ended[150];

    ko_rank_list(is_missing, n, missing, sizeof missing);
    ko_rank_list(is_ended, n, ended, sizeof ended);
    ko_log(KO_LOG_WARN,
           "rank 0 serves the store, and waits in kolo_group_free, for %d ms at most, for %d of %d "
           "ranks that have not freed the group: rank %s%s%s",
           LEAVE_MS, count(is_missing, n), n, missing,
           *ended ? "; processes that have ended: rank " : "", ended);
}

/* False if all that are missing have ended. The log has them, once, unless they come soon or are
 * about to be waited for no longer. */
static bool may_come(struct leaving *leaving)
{
    const int n = leaving->world->size;
    bool *is_missing = calloc(2 * (size_t)n, sizeof *is_missing);
    bool *is_ended = is_missing ? is_missing + n : NULL;
    const int twice_ms = 2 * leaving->look.timeout_ms;
    const int look_ms = twice_ms < LOOK_MS ? twice_ms : LOOK_MS;
    bool may = true;

    if (is_missing && !list_missing(leaving, is_missing, is_ended)) {
        may = count(is_missing, n) > count(is_ended, n);
        if (may && look_ms == LOOK_MS && !leaving->has_said) {
            say_missing(leaving, is_missing, is_ended);
            leaving->has_said = true;
        }
    }
    free(is_missing);
    leaving->look = ko_deadline_in(look_ms);
    return may;
}

static bool is_worth_waiting(struct leaving *leaving)
{
    if (leaving->left >= leaving->world->size || ko_deadline_passed(&leaving->deadline) ||
        are_others_gone(leaving->world, leaving->endpoint))
        return false;
    return leaving->status || !ko_deadline_passed(&leaving->look) || may_come(leaving);
}

/* The rank that serves the store stays until all others have left or are gone: a bounded time,
 * since a lost rank never will leave; and a short one when only one is missing after a failure in
 * which one was given up, which may still be one that is slow to hear of it. kolo.h says so of
 * kolo_group_free. */
static void wait_for_leavers(struct leaving *leaving)
{
    const struct timespec nap = {.tv_nsec = 2000000};
    const struct ko_world *world = leaving->world;
    int err = KOLO_OK;

    while (!err && is_worth_waiting(leaving)) {
        if (has_given_up_one(leaving->status) && leaving->left == world->size - 1 &&
            !leaving->is_last) {
            leaving->is_last = true;
            leaving->deadline = ko_deadline_within(&leaving->deadline, LEAVE_LAST_MS);
        }
        nanosleep(&nap, NULL);
        err = kolo_store_add(world->keys, "left", 0, &leaving->left);
    }
}

/* Every rank says that it leaves. */
void ko_world_leave(struct ko_world *world, struct ko_endpoint *endpoint, int status)
{
    struct leaving leaving = {.world = world,
                              .endpoint = endpoint,
                              .status = status,
                              .deadline = ko_deadline_in(status ? LEAVE_FAILED_MS : LEAVE_MS),
                              .look = ko_deadline_in(FIRST_LOOK_MS)};
    const char *const all[] = {"all"};
    int exists, err;

    if (!world)
        return;
    ko_world_strike_off(world);
    kolo_store_set_timeout(world->keys, LEAVE_FAILED_MS);
    /* A store that has gone fails a check at once, where an add would look for its reason. */
    err = status ? kolo_store_check(world->keys, all, 1, &exists) : KOLO_OK;
    if (!world->has_server && world->size > 1 && !err)
        ko_endpoint_say_left(endpoint);
    if (world->is_own && !err)
        err = say_left(world, &leaving.left);
    if (world->has_server && world->rank == 0 && !err) {
        ko_endpoint_leave_early(endpoint);
        wait_for_leavers(&leaving);
    }
    ko_world_free(world);
}
