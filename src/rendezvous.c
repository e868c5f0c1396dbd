/* SPDX-License-Identifier: MIT
 *
 * How ranks find each other once they know where (init_method.h, meeting.h).
 */
#include "config.h"
#include "error_file.h"
#include "group.h"
#include "init_method.h"
#include "launcher_joins.h"
#include "log.h"
#include "meeting.h"
#include "rendezvous_parts.h"
#include "store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

enum {
    REJOIN_MS = 2000, /* in which the store of an earlier group may close while it is being met */
    REJOIN_NAP_MS = 5
};

/* ---- joining ----------------------------------------------------------------------------- */

/* A number that no other job over this store has; rank 0 draws it. */
static int agree_on_id(struct ko_world *world, uint64_t *id)
{
    void *value;
    size_t nbytes;
    int err = KOLO_OK;

    if (world->rank == 0) {
        if (getrandom(id, sizeof *id, 0) != sizeof *id)
            return ko_fail_errno(errno, "getrandom");
        err = kolo_store_set(world->keys, "id", (kolo_bytes){id, sizeof *id});
    } else {
        err = kolo_store_get(world->keys, "id", &value, &nbytes);
        if (err)
            return err;
        if (nbytes == sizeof *id)
            memcpy(id, value, sizeof *id);
        else
            err = ko_fail(KOLO_E_PROTOCOL, "the store holds a job id of %zu bytes", nbytes);
        kolo_free(value);
    }
    return err;
}

/* Once it has been seen it may last for as long as one of its ranks takes to leave, and close while
 * this one looks once more. */
bool ko_world_is_earlier(struct ko_world *world, int err, const ko_deadline *deadline)
{
    int64_t left = 0;

    if (!world->rejoin || ko_deadline_passed(deadline))
        return false;
    if (!err)
        err = kolo_store_add(world->keys, "left", 0, &left);
    if (err == KOLO_E_PEER_LOST)
        return world->is_soon;
    if (left > 0)
        *world->rejoin = *deadline;
    return left > 0;
}

/* A rank number that is given twice would otherwise show as an endless riddle later. KO_AGAIN: this
 * is the store of an earlier group, or its round. */
static int take_rank(struct ko_world *world, const ko_deadline *deadline)
{
    char key[32];
    int64_t owners = 0;
    int err;

    snprintf(key, sizeof key, "taken/%d", world->rank);
    err = kolo_store_add(world->keys, key, 1, &owners);
    if ((err || owners > 1) && ko_world_is_earlier(world, err, deadline))
        return KO_AGAIN;
    if (!err && owners > 1 && world->has_rounds)
        return KO_AGAIN;
    if (!err && owners > 1)
        err = ko_fail(KOLO_E_INVALID,
                      "rank %d has joined before: two processes have the same rank, or the store "
                      "still holds an earlier job",
                      world->rank);
    return err;
}

/* Joining needs nobody but the store, whose loss is that of its server, unless the store tells of
 * another's. */
static int blame_server(const struct ko_world *world, int err)
{
    char cause[KO_ERROR_TEXT];

    if ((err != KOLO_E_PEER_LOST && err != KOLO_E_TIMEOUT) || !world->has_server ||
        world->rank == 0 || world->has_lost_one)
        return err;
    snprintf(cause, sizeof cause, "%s", kolo_last_error());
    return ko_fail(err, "rank 0, which serves the store, was lost while rank %d joined: %.400s",
                   world->rank, cause);
}

/* Whether the others are to hear if it ends while they wait for all to come. */
static bool is_awaited(const struct ko_world *world)
{
    return world->has_server && world->rank != 0 && !world->is_watched;
}

/* The first one, of joining, goes to the connection of which much is asked later, when nothing
 * depends on it any more. */
static int leave_wills(struct ko_world *world, struct ko_endpoint *endpoint)
{
    const int err = is_awaited(world) ? ko_world_leave_will(world, endpoint->store) : KOLO_OK;

    return err ? err : ko_endpoint_leave_will(endpoint, world->keys);
}

/* Opens this rank's endpoint and waits for the others. *endpoint is to be released in any case. */
static int join_others(struct ko_world *world, const ko_deadline *deadline,
                       struct ko_endpoint **endpoint, uint64_t *id)
{
    kolo_store *own_keys = NULL;
    int err = take_rank(world, deadline);

    if (!err && is_awaited(world))
        err = ko_world_leave_will(world, world->keys);
    if (!err)
        err = ko_store_clone(world->keys, &own_keys);
    if (!err)
        err = ko_endpoint_open(own_keys, world->rank, world->size, endpoint);
    if (err)
        return blame_server(world, err);
    (*endpoint)->store_rank = world->has_server ? 0 : -1;
    if (world->has_server)
        err = leave_wills(world, *endpoint);
    if (!err)
        err = ko_world_meet(world, deadline);
    if (err == KOLO_E_TIMEOUT)
        return err; /* for want of other ranks */
    if (!err)
        err = agree_on_id(world, id);
    return blame_server(world, err);
}

static int join_world(struct ko_world *world, const ko_deadline *deadline, kolo_group **group)
{
    struct ko_endpoint *endpoint = NULL;
    int *ranks;
    uint64_t id = 0;
    int err = join_others(world, deadline, &endpoint, &id);

    ranks = err ? NULL : ko_alloc((size_t)world->size * sizeof *ranks, "ranks");
    if (!ranks) {
        ko_endpoint_release(endpoint);
        return err ? err : KOLO_E_NOMEM;
    }
    for (int i = 0; i < world->size; i++)
        ranks[i] = i;
    return ko_group_make(endpoint, id, ranks, world->rank, world->size, deadline->timeout_ms,
                         group);
}

/* Jobs that follow one another over one store must not see each other's keys: each has its own
 * name, each attempt its number, if they are sure to be the same on all ranks; and in a store that
 * outlives our groups each time that they join is a round. */
static int open_keys(struct ko_world *world, const struct ko_placement *placement,
                     const ko_deadline *deadline)
{
    const char *job = placement->is_job_shared ? placement->job : "";
    char prefix[KO_JOB_TEXT + 32];

    snprintf(prefix, sizeof prefix, "kolo/%s%s%d", job, *job ? "/" : "", placement->attempt);
    return world->has_rounds ? ko_world_open_round(world, prefix, deadline)
                             : kolo_store_open_prefix(world->store, prefix, &world->keys);
}

/* Over again with each round that turns out to be an earlier one. */
static int join_rounds(struct ko_world *world, const struct ko_placement *placement,
                       const ko_deadline *deadline, kolo_group **group)
{
    int err;

    for (;;) {
        err = open_keys(world, placement, deadline);
        if (err)
            return err;
        ko_store_limit(world->keys, deadline);
        err = join_world(world, deadline, group);
        if (err != KO_AGAIN || !world->has_rounds)
            return err;
        kolo_store_close(world->keys);
        world->keys = NULL;
        world->stale = world->round;
    }
}

static void find_place(const kolo_store *store, const struct ko_placement *placement,
                       struct ko_place *place)
{
    *place = (struct ko_place){.store = store, .rank = placement->rank};
    snprintf(place->address, sizeof place->address, "%d %s:%d", (int)placement->meeting,
             placement->host, placement->port);
}

/* A store that is handed in may be one in which the ranks of an earlier attempt were killed. */
static bool outlives_groups(bool is_own, const struct ko_placement *placement)
{
    return is_own ? placement->meeting == KO_MEET_AGENT || placement->meeting == KO_MEET_FILE
                  : ko_placement_has_uncounted(environ);
}

/* At an address that an earlier group has used too. */
static bool may_meet_earlier(bool is_own, const struct ko_placement *placement)
{
    return is_own && placement->rank > 0 &&
           (placement->meeting == KO_MEET_RANK0 || placement->meeting == KO_MEET_NODE0);
}

/* Takes store over if is_own. */
static int join(kolo_store *store, bool is_own, const struct ko_placement *placement,
                ko_deadline *rejoin, const ko_deadline *deadline, kolo_group **group_out)
{
    struct ko_world *world = ko_alloc(sizeof *world, "a world");
    kolo_group *group;
    int err;

    if (!world) {
        if (is_own)
            kolo_store_close(store);
        return KOLO_E_NOMEM;
    }
    *world = (struct ko_world){.store = store,
                               .is_own = is_own,
                               .has_server = is_own && ko_meeting_has_server(placement),
                               .is_kept_here = is_own && ko_meeting_is_kept_here(placement),
                               .rejoin = may_meet_earlier(is_own, placement) ? rejoin : NULL,
                               .is_soon = rejoin && !ko_deadline_passed(rejoin),
                               .has_rounds = outlives_groups(is_own, placement),
                               .is_watched = ko_placement_has_uncounted(environ),
                               .is_in_file = is_own && placement->meeting == KO_MEET_FILE,
                               .rank = placement->rank,
                               .size = placement->size};
    find_place(is_own ? NULL : store, placement, &world->place);
    err = join_rounds(world, placement, deadline, &group);
    if (err) {
        ko_world_free(world);
        return err;
    }
    ko_world_enroll(world);
    group->world = world;
    *group_out = group;
    return KOLO_OK;
}

/* What was tried in vain on the way, as a transport, is no failed call, and what had failed before
 * is not what ends this process. text: the last error before the call. */
static int end_well(const char *text)
{
    ko_error_file_take_back();
    return ko_fail_again(KOLO_OK, text);
}

int kolo_group_join_store(kolo_store *store, int rank, int size, int timeout_ms, kolo_group **world)
{
    struct ko_placement placement = {.rank = rank, .size = size};
    struct ko_place place;
    ko_deadline deadline;
    char text[KO_ERROR_TEXT];
    int err;

    if (!store || !world)
        return ko_fail(KOLO_E_INVALID, "kolo_group_join_store: %s is NULL",
                       store ? "world" : "store");
    if (size < 1 || size > KO_MOST_RANKS || rank < 0 || rank >= size)
        return ko_fail(KOLO_E_INVALID,
                       "kolo_group_join_store: rank %d of %d ranks cannot be; a world has up to %d",
                       rank, size, KO_MOST_RANKS);
    err = ko_config_check();
    if (!err)
        err = ko_config_deadline(&timeout_ms, &deadline);
    if (!err)
        err = ko_placement_attempt(environ, &placement.attempt);
    ko_log_set_rank(rank);
    if (err)
        return err;
    ko_error_keep(text);
    find_place(store, &placement, &place);
    err = ko_world_blame_twin(&place, join(store, false, &placement, NULL, &deadline, world));
    return err ? err : end_well(text);
}

static void log_placement(const struct ko_placement *placement)
{
    char text[KO_PLACEMENT_TEXT];

    if (placement->warning[0])
        ko_log(KO_LOG_WARN, "%s", placement->warning);
    if (!ko_log_wants(KO_LOG_INFO))
        return;
    ko_placement_describe(placement, text, sizeof text);
    ko_log(KO_LOG_INFO, "%s", text);
    if (placement->note[0])
        ko_log(KO_LOG_INFO, "%s", placement->note);
}

static int join_at(const struct ko_placement *placement, const ko_deadline *deadline,
                   kolo_group **world)
{
    ko_deadline rejoin = ko_deadline_in(REJOIN_MS);
    const struct timespec nap = {.tv_nsec = REJOIN_NAP_MS * 1000000};
    struct ko_place place;
    kolo_store *store;
    int err;

    find_place(NULL, placement, &place);
    for (;;) {
        err = ko_meeting_open(placement, deadline, &store);
        if (!err)
            err = join(store, true, placement, &rejoin, deadline, world);
        if (err != KO_AGAIN)
            return ko_world_blame_twin(&place, err);
        nanosleep(&nap, NULL);
    }
}

/* Gives back err, with what was doubtful in the environment in the text: that may be why. */
static int blame_doubt(const struct ko_placement *placement, int err)
{
    const int room = KO_ERROR_TEXT - (int)strlen(placement->warning) - (int)sizeof "; ";
    char text[KO_ERROR_TEXT];

    if (!err || !placement->warning[0])
        return err;
    ko_error_keep(text);
    return ko_fail(err, "%.*s; %s", room, text, placement->warning);
}

static int join_by(const char *method, int timeout_ms, kolo_group **world)
{
    struct ko_placement placement;
    ko_deadline deadline;
    int err = ko_config_check();

    if (!err)
        err = ko_config_deadline(&timeout_ms, &deadline);
    if (!err)
        err = ko_init_method_read(method, &placement);
    if (err)
        return err;
    ko_log_set_rank(placement.rank);
    log_placement(&placement);
    ko_joins_say(&placement, KO_JOIN_WAITS);
    err = blame_doubt(&placement, join_at(&placement, &deadline, world));
    ko_joins_say(&placement, err ? KO_JOIN_FAILED : KO_JOIN_DONE);
    return err;
}

int kolo_group_join(const char *method, int timeout_ms, kolo_group **world)
{
    char text[KO_ERROR_TEXT];
    int err;

    if (!world)
        return ko_fail(KOLO_E_INVALID, "kolo_group_join: world is NULL");
    ko_error_keep(text);
    err = join_by(method, timeout_ms, world);
    if (!err)
        return end_well(text);
    ko_error_file_write(kolo_last_error());
    return err;
}
