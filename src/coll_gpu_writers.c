/* SPDX-License-Identifier: MIT
 *
 * A rank gives up with its first call that fails, after which it makes none. It waits for its own
 * GPU, and then for the other ranks that write: these need not have failed for that, nor heard of
 * it, but only have come to the end of what they had begun, or have ended. Nobody waits for a rank
 * that waits here, as it has told the others before; those that write and wait for their own GPU
 * have to be waited for, and do so no longer than it takes.
 */
#include "coll_gpu_writers.h"

#include "gpu_writers.h"
#include "group_let_go.h"
#include "log.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    ASKING_MS = 10000, /* at most, for words that are on their way */
    HEARING_MS = 2000, /* for a rank that has given up to tell why */
    NAP_NS = 200000
};

/* ---- meeting --------------------------------------------------------------------------------- */

/* Whether all ranks say so. */
static int agree(kolo_group *group, bool mine, bool *all)
{
    const unsigned char own = mine;
    unsigned char least = 0;
    int err = kolo_all_reduce(group, &own, &least, 1, KOLO_UINT8, KOLO_MIN);

    *all = !err && least;
    return err;
}

static int count_others(const kolo_group *group, const bool *here)
{
    int n = 0;

    for (int i = 0; i < ko_group_count_mates(group); i++)
        n += !here[ko_group_mate_at(group, i)];
    return n;
}

/* The words of its host, which the first rank there has made. */
static int ask(const kolo_group *group, const bool *here, const struct ko_gpu_writers_place *all,
               struct ko_gpu_writers **writers)
{
    const int first = ko_group_mate_at(group, 0);

    if (first == group->rank)
        return KOLO_OK;
    if (!all[first].id)
        return ko_fail(KOLO_E_SYSTEM, "rank %d has no words about a GPU's writers", first);
    return here[first] ? ko_gpu_writers_find(&all[first], writers)
                       : ko_gpu_writers_ask(&all[first], writers);
}

static int fetch(const kolo_group *group, const bool *here, struct ko_gpu_writers *writers)
{
    const ko_deadline deadline = ko_deadline_in(ASKING_MS);
    const int first = ko_group_mate_at(group, 0);

    if (first == group->rank)
        return ko_gpu_writers_hand(writers, count_others(group, here), &deadline);
    return here[first] ? KOLO_OK
                       : ko_gpu_writers_take(writers, ko_group_count_mates(group), &deadline);
}

static bool is_there(int err)
{
    if (err)
        ko_log(KO_LOG_INFO,
               "the ranks of this host cannot tell each other who writes on a GPU, so that one may "
               "write into buffers of a call that has failed: %s",
               kolo_last_error());
    return !err;
}

/* With room for what all ranks say. */
static int meet(kolo_group *group, const bool *here, struct ko_gpu_writers_place *all,
                struct ko_gpu_writers **writers, bool *have)
{
    struct ko_gpu_writers_place mine = {0};
    int err, failed = KOLO_OK;

    if (ko_group_mate_at(group, 0) == group->rank)
        failed = ko_gpu_writers_make(ko_group_count_mates(group), writers, &mine);
    err = kolo_all_gather(group, &mine, all, sizeof mine, KOLO_UINT8);
    if (!err && !failed)
        failed = ask(group, here, all, writers);
    if (!err)
        err = agree(group, is_there(failed), have);
    if (err || !*have)
        return err;
    return agree(group, is_there(fetch(group, here, *writers)), have);
}

int ko_coll_meet_writers(kolo_group *group, const bool *here)
{
    struct ko_gpu_writers_place *all =
        ko_alloc((size_t)group->size * sizeof *all, "who writes on a group's GPUs");
    struct ko_gpu_writers *writers = NULL;
    bool have = false;
    int err;

    if (!all)
        return ko_group_fail(group, KOLO_E_NOMEM, kolo_last_error());
    err = meet(group, here, all, &writers, &have);
    free(all);
    if (have)
        atomic_store(&group->writers, writers);
    else
        ko_gpu_writers_free(writers);
    return err;
}

/* ---- in calls -------------------------------------------------------------------------------- */

/* It has told the others of its failure before it gave up. */
static int hear_why(kolo_group *group, int rank)
{
    const ko_deadline deadline = ko_deadline_in(HEARING_MS);
    const struct timespec nap = {.tv_nsec = NAP_NS};
    char text[80];
    int err = ko_channel_turn(&group->collectives);

    while (!err && !ko_deadline_passed(&deadline)) {
        err = ko_group_check_store(group);
        nanosleep(&nap, NULL);
        if (!err)
            err = ko_channel_turn(&group->collectives);
    }
    snprintf(text, sizeof text, "rank %d has given up the call", rank);
    return err ? err : ko_group_fail(group, KOLO_E_ABORTED, text);
}

int ko_coll_begin_writing(kolo_group *group)
{
    int which = 0;

    if (!group->writers || ko_gpu_writers_begin(group->writers, ko_group_count_mates(group),
                                                ko_group_place_of(group, group->rank), &which))
        return KOLO_OK;
    return hear_why(group, ko_group_mate_at(group, which));
}

int ko_coll_begin_streaming(kolo_group *group, bool writes)
{
    const uint32_t call = atomic_fetch_add(&group->nstreamed, 1) + 1;
    int which = 0;

    if (!group->writers || !writes ||
        ko_gpu_writers_put(group->writers, ko_group_count_mates(group),
                           ko_group_place_of(group, group->rank), call, &which))
        return KOLO_OK;
    return hear_why(group, ko_group_mate_at(group, which));
}

void ko_coll_end_writing(kolo_group *group)
{
    if (group->writers)
        ko_gpu_writers_end(group->writers, ko_group_place_of(group, group->rank));
}

/* What a process had GPUs do has ended with it. */
static bool still_writes(const kolo_group *group, int place)
{
    const int rank = ko_group_mate_at(group, place);

    return (ko_gpu_writers_has_begun(group->writers, place) &&
            !ko_endpoint_is_gone(group->endpoint, group->world_ranks[rank])) ||
           ko_group_is_streaming(group, rank, group->nstreamed);
}

static void await_writer(kolo_group *group, int place, const ko_deadline *deadline)
{
    const struct timespec nap = {.tv_nsec = NAP_NS};

    while (still_writes(group, place)) {
        if (ko_deadline_passed(deadline)) {
            ko_group_warn_of_writer(group, ko_group_mate_at(group, place));
            return;
        }
        nanosleep(&nap, NULL);
    }
}

static void await_writers(kolo_group *group, const ko_deadline *deadline)
{
    for (int i = 0; i < ko_group_count_mates(group); i++)
        if (i != ko_group_place_of(group, group->rank))
            await_writer(group, i, deadline);
}

/* The end is seen here of a call, too, of which not all has come into the stream. */
static void settle_streams(kolo_group *group, const ko_deadline *deadline)
{
    if (ko_gpu_settle_streams(group->gpu, deadline) && group->writers)
        ko_gpu_writers_have_done(group->writers, ko_group_place_of(group, group->rank),
                                 group->nstreamed);
}

void ko_coll_settle(kolo_group *group)
{
    ko_deadline deadline;

    if (!group->gpu || group->has_settled)
        return;
    group->has_settled = true;
    if (group->writers)
        ko_gpu_writers_give_up(group->writers, ko_group_place_of(group, group->rank));
    deadline = ko_gpu_settling(group->gpu);
    if (ko_gpu_settle(group->gpu, &deadline))
        ko_coll_end_writing(group);
    if (group->writers)
        await_writers(group, &deadline);
    if (group->nstreamed)
        settle_streams(group, &deadline);
    (void)ko_group_check(group); /* the thread's text again */
}
