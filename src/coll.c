/* SPDX-License-Identifier: MIT
 *
 * What happens to a collective call before its first message: its arguments are checked, its
 * algorithm is chosen by the table, and it gets its number and its turn.
 */
#include "coll.h"

#include "config.h"
#include "dtype.h"
#include "log.h"
#include "status.h"

#include <string.h>

/* A call that waits for, or has, the engine's turn. */
struct coll_work {
    struct kolo_work work;
    kolo_group *group;
    struct ko_call call;
    int algorithm;
};

const char *ko_collective_name(enum ko_collective what)
{
    static const char *const names[] = {
#define COLLECTIVE_NAME(id, name) #name,
        KO_COLLECTIVE_LIST(COLLECTIVE_NAME)
#undef COLLECTIVE_NAME
    };
    return names[what];
}

/* ---- arguments --------------------------------------------------------------------------- */

static bool has_root(enum ko_collective what)
{
    return what == KO_REDUCE || what == KO_BROADCAST || what == KO_GATHER || what == KO_SCATTER;
}

static bool is_reducing(enum ko_collective what)
{
    return what == KO_ALL_REDUCE || what == KO_REDUCE || what == KO_REDUCE_SCATTER;
}

/* How many times count the call's larger buffer has. */
static size_t blocks_of(const kolo_group *group, enum ko_collective what)
{
    bool is_single =
        what == KO_ALL_REDUCE || what == KO_REDUCE || what == KO_BROADCAST || what == KO_BARRIER;
    return is_single ? 1 : (size_t)group->size;
}

static int check_buffers(const kolo_group *group, const struct ko_call *call)
{
    const char *name = ko_collective_name(call->what);
    bool is_root = !has_root(call->what) || call->root == group->rank;
    bool needs_in = call->what != KO_SCATTER || is_root;
    bool needs_out = (call->what != KO_REDUCE && call->what != KO_GATHER) || is_root;
    size_t nbytes;

    if (__builtin_mul_overflow(call->count, kolo_dtype_size(call->dtype), &nbytes) ||
        __builtin_mul_overflow(nbytes, blocks_of(group, call->what), &nbytes))
        return ko_fail(KOLO_E_INVALID,
                       "%s: %zu elements of %s for %d ranks are more than memory has", name,
                       call->count, kolo_dtype_name(call->dtype), group->size);
    if (nbytes && ((needs_in && !call->in) || (needs_out && !call->out)))
        return ko_fail(KOLO_E_INVALID, "%s: %s is NULL, with %zu elements", name,
                       needs_in && !call->in ? "in" : "out", call->count);
    if (nbytes && call->what == KO_ALL_TO_ALL && call->in == call->out)
        return ko_fail(KOLO_E_INVALID, "%s: in and out must be different buffers", name);
    return KOLO_OK;
}

static int check_call(kolo_group *group, const struct ko_call *call)
{
    const char *name = ko_collective_name(call->what);
    struct ko_reduction unused;
    int err = KOLO_OK;

    if (!group)
        return ko_fail(KOLO_E_INVALID, "%s: group is NULL", name);
    if (!ko_dtype_is_valid(call->dtype))
        return ko_fail(KOLO_E_INVALID, "%s: %d is no dtype", name, (int)call->dtype);
    if (is_reducing(call->what))
        err = ko_reduction_find(call->dtype, call->op, &unused);
    if (!err && has_root(call->what))
        err = ko_group_check_rank(group, call->root, "the root");
    return err ? err : check_buffers(group, call);
}

/* ---- algorithm --------------------------------------------------------------------------- */

/* Whether there is something to win by telling hosts apart. */
static bool is_spread(const kolo_group *group)
{
    return group->hosts->n > 1 && group->hosts->n < group->size;
}

/* What the text could not do at all. */
static bool can(const struct ko_algorithm *row, const kolo_group *group, const struct ko_call *call,
                size_t nbytes)
{
    const bool is_even = !call->in_blocks.counts && !call->out_blocks.counts;

    return (is_even || !(row->flags & KO_EVEN)) &&
           (!(row->flags & KO_SMALL) ||
            nbytes <= group->endpoint->own.slice_bytes / (size_t)group->size);
}

static bool admits(const struct ko_algorithm *row, const kolo_group *group,
                   const struct ko_call *call, size_t nbytes, bool is_forced)
{
    if (row->what != call->what || !can(row, group, call, nbytes))
        return false;
    return is_forced || ((!row->most_bytes || nbytes <= row->most_bytes) &&
                         (!row->most_ranks || group->size <= row->most_ranks) &&
                         (!(row->flags & KO_SPREAD) || is_spread(group)));
}

/* The first row that admits the call; the one named by KOLO_ALGO if there is such a one. */
static int choose(const kolo_group *group, const struct ko_call *call)
{
    size_t nbytes = call->count * kolo_dtype_size(call->dtype);

    for (int i = 0; group->algorithm[0] && i < ko_nalgorithms; i++)
        if (!strcmp(ko_algorithms[i].name, group->algorithm) &&
            admits(&ko_algorithms[i], group, call, nbytes, true))
            return i;
    for (int i = 0; i < ko_nalgorithms; i++)
        if (admits(&ko_algorithms[i], group, call, nbytes, false))
            return i;
    return -1; /* the last row of each collective admits everything */
}

/* ---- one rank alone ---------------------------------------------------------------------- */

static int run_alone(const struct ko_call *call)
{
    if (is_reducing(call->what))
        return ko_reduce_single(call->dtype, call->op, call->out, call->in, call->count);
    if (call->out != call->in && call->count)
        memmove(call->out, call->in, call->count * kolo_dtype_size(call->dtype));
    return KOLO_OK;
}

/* ---- turn -------------------------------------------------------------------------------- */

static int run(struct coll_work *w)
{
    return w->group->size == 1 ? run_alone(&w->call)
                               : ko_coll_run(w->group, &w->call, w->algorithm);
}

static void run_work(struct kolo_work *work)
{
    struct coll_work *w = (struct coll_work *)work;

    ko_log_set_rank(w->group->rank);
    ko_work_complete(work, run(w));
}

static void await_work(struct kolo_work *work, const ko_deadline *deadline)
{
    struct ko_engine *engine = &((struct coll_work *)work)->group->engine;
    struct timespec until = ko_deadline_timespec(deadline);

    pthread_mutex_lock(&engine->lock);
    while (!atomic_load(&work->is_done) && !ko_deadline_passed(deadline))
        pthread_cond_timedwait(&engine->changed, &engine->lock, &until);
    pthread_mutex_unlock(&engine->lock);
}

static int submit(kolo_group *group, const struct ko_call *call, int algorithm,
                  kolo_work **work_out)
{
    struct coll_work *w = ko_work_new(sizeof *w);
    int err = KOLO_OK;

    if (!w)
        return KOLO_E_NOMEM;
    w->work.run = run_work;
    w->work.await = await_work;
    w->group = group;
    w->call = *call;
    w->algorithm = algorithm;
    if (group->size == 1)
        ko_work_complete(&w->work, run_alone(call));
    else
        err = ko_engine_submit(&group->engine, &w->work);
    if (err)
        ko_work_release(&w->work);
    else
        *work_out = &w->work;
    return err;
}

/* On an idle group in this thread, else behind what is queued. */
static int run_blocking(kolo_group *group, const struct ko_call *call, int algorithm)
{
    kolo_work *work;
    int err;

    if (group->size == 1)
        return run_alone(call);
    if (ko_engine_try_begin(&group->engine)) {
        err = ko_coll_run(group, call, algorithm);
        ko_engine_finish(&group->engine);
        return err;
    }
    err = submit(group, call, algorithm, &work);
    if (err)
        return err;
    err = kolo_work_wait(work, -1);
    kolo_work_free(work);
    return err;
}

int ko_coll_call(kolo_group *group, const struct ko_call *call, kolo_work **work)
{
    int err = check_call(group, call);
    int algorithm;

    if (!err)
        err = ko_group_check(group);
    if (!err && !group->hosts)
        err = ko_group_find_hosts(group);
    if (err)
        return err;
    algorithm = choose(group, call);
    if (ko_log_wants(KO_LOG_TRACE))
        ko_log(KO_LOG_TRACE, "%s of %zu %s by %s: %s", ko_collective_name(call->what), call->count,
               kolo_dtype_name(call->dtype), ko_algorithms[algorithm].name,
               ko_algorithms[algorithm].why);
    return work ? submit(group, call, algorithm, work) : run_blocking(group, call, algorithm);
}
