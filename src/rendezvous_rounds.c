/* SPDX-License-Identifier: MIT
 *
 * Rounds, over a store that outlives groups: an agent's, or a file. What stands there may be of an
 * earlier job, of this one before it was started again, or of ranks that were killed. So each time
 * that rank 0 joins it begins a round, with keys of its own, and ends the one before; another rank
 * takes part in the newest unless it has a verdict, or a process of its number, already. Only rank
 * 0 gives a round its verdict: nobody can join one whose rank 0 is gone, and who waits in such a
 * one is sent on by the next rank 0.
 *
 * A round in which the ranks were refused may be this job's, if this rank is late, or what one left
 * that was then started again with better settings. In a file, which nobody starts anything from,
 * who was not in it gives the next rank 0 a while, and then takes the refusal for its own.
 */
#include "log.h"
#include "rendezvous_parts.h"
#include "rendezvous_roster.h"
#include "status.h"
#include "store.h"

#include <stdio.h>

enum { ANEW_MS = 3000 };

static int open_keys_of(kolo_store *rounds, int64_t round, kolo_store **keys)
{
    char prefix[24];

    snprintf(prefix, sizeof prefix, "%lld", (long long)round);
    return kolo_store_open_prefix(rounds, prefix, keys);
}

static int end_round(kolo_store *rounds, int64_t round)
{
    kolo_store *keys;
    int err = open_keys_of(rounds, round, &keys);

    if (err)
        return err;
    err = ko_world_end_round(keys);
    kolo_store_close(keys);
    return err;
}

static void begun_key(int64_t round, char key[32])
{
    snprintf(key, 32, "%lld/begun", (long long)round);
}

static int begin(kolo_store *rounds, int64_t *round)
{
    char key[32];
    int err = kolo_store_add(rounds, "rounds", 1, round);

    if (err)
        return err;
    begun_key(*round, key);
    err = kolo_store_set(rounds, key, (kolo_bytes){"1", 1});
    return err || *round == 1 ? err : end_round(rounds, *round - 1);
}

static int await_next(const struct ko_world *world, kolo_store *rounds, const ko_deadline *deadline)
{
    char key[32];
    const char *const keys[] = {key};
    int err;

    begun_key(world->stale + 1, key);
    err = ko_store_wait_until(rounds, keys, 1, deadline);
    if (err != KOLO_E_TIMEOUT)
        return err;
    return ko_fail(
        KOLO_E_TIMEOUT,
        "rank %d of %d waited %d ms for all ranks to join; rank 0 has not come, with "
        "whom that begins. Was it started, with this store's address? %s%s sets the limit",
        world->rank, world->size, deadline->timeout_ms,
        world->stale ? "The store holds only what an earlier job has left, or another "
                       "process of this rank has joined. "
                     : "",
        ko_deadline_source(deadline));
}

/* Whether the ranks were refused in the last stale round, to which this one had not come. */
static bool was_refused(const struct ko_world *world, kolo_store *rounds, char why[KO_ERROR_TEXT])
{
    char key[32];
    const char *const come[] = {key}, *const all[] = {"all"};
    kolo_store *keys;
    int has_come = 1, has_verdict = 0;
    bool was;

    if (!world->stale || open_keys_of(rounds, world->stale, &keys))
        return false;
    ko_roster_key(world->rank, key, sizeof key);
    was = !kolo_store_check(keys, come, 1, &has_come) && !has_come &&
          !kolo_store_check(keys, all, 1, &has_verdict) && has_verdict &&
          ko_world_is_refused(keys, why);
    kolo_store_close(keys);
    return was;
}

static int await_anew(const struct ko_world *world, kolo_store *rounds, const ko_deadline *deadline,
                      const char *why)
{
    const ko_deadline soon = ko_deadline_within(deadline, ANEW_MS);
    int err;

    ko_log_hush(true);
    err = await_next(world, rounds, &soon);
    ko_log_hush(false);
    return err == KOLO_E_TIMEOUT
               ? ko_fail(KOLO_E_INVALID, "before rank %d came, all were refused: %s", world->rank,
                         why)
               : err;
}

/* KO_AGAIN: the newest is stale. */
static int look(struct ko_world *world, kolo_store *rounds)
{
    char key[32];
    const char *const keys[] = {key};
    int is_over = 0;
    int err = kolo_store_add(rounds, "rounds", 0, &world->round);

    if (err || world->round <= world->stale)
        return err ? err : KO_AGAIN;
    snprintf(key, sizeof key, "%lld/all", (long long)world->round);
    err = kolo_store_check(rounds, keys, 1, &is_over);
    if (err || !is_over)
        return err;
    world->stale = world->round;
    return KO_AGAIN;
}

static int find(struct ko_world *world, kolo_store *rounds, const ko_deadline *deadline)
{
    char why[KO_ERROR_TEXT];
    int err;

    while ((err = look(world, rounds)) == KO_AGAIN) {
        err = world->is_in_file && was_refused(world, rounds, why)
                  ? await_anew(world, rounds, deadline, why)
                  : await_next(world, rounds, deadline);
        if (err)
            return err;
    }
    return err;
}

int ko_world_open_round(struct ko_world *world, const char *prefix, const ko_deadline *deadline)
{
    kolo_store *rounds;
    int err = kolo_store_open_prefix(world->store, prefix, &rounds);

    if (err)
        return err;
    ko_store_limit(rounds, deadline);
    err = world->rank == 0 ? begin(rounds, &world->round) : find(world, rounds, deadline);
    if (!err)
        err = open_keys_of(rounds, world->round, &world->keys);
    kolo_store_close(rounds);
    return err;
}
