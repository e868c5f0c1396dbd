/* SPDX-License-Identifier: MIT
 *
 * What happens to a collective call before its first message: its arguments are checked, its
 * algorithm is chosen by the table, and it gets its number and its turn.
 */
#include "coll.h"

#include "choice.h"
#include "coll_epilogue.h"
#include "coll_gpu.h"
#include "coll_gpu_handoff.h"
#include "coll_gpu_hosts.h"
#include "coll_gpu_pieces.h"
#include "coll_gpu_shared.h"
#include "coll_gpu_writers.h"
#include "coll_places.h"
#include "config.h"
#include "dtype.h"
#include "group_idle.h"
#include "group_streamed.h"
#include "log.h"
#include "status.h"

#include <stdio.h>
#include <string.h>

/* A call that waits for, or has, the engine's turn. */
struct coll_work {
    struct kolo_work work;
    kolo_group *group;
    struct ko_call call;
    struct ko_handoff handoff; /* of a call that is to go into a stream */
    size_t lists[];            /* its own copies of the call's */
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

const char *ko_call_name(const struct ko_call *call)
{
    static const char *const names[] = {
#define UNEVEN_NAME(id, name) #name "_v",
        KO_COLLECTIVE_LIST(UNEVEN_NAME)
#undef UNEVEN_NAME
    };
    static const char *const tensors[] = {
#define TENSORS_NAME(id, name) #name "_coalesced",
        KO_COLLECTIVE_LIST(TENSORS_NAME)
#undef TENSORS_NAME
    };

    if (call->epilogue)
        return call->epilogue->name;
    if (call->is_coalesced)
        return tensors[call->what];
    return call->is_uneven ? names[call->what] : ko_collective_name(call->what);
}

/* Nearly all calls: seen at a glance to be right, as ko_call_check would find. */
static bool is_plainly_right(const kolo_group *group, const struct ko_call *call)
{
    return ko_dtype_is_valid(call->dtype) && !call->is_coalesced && !call->is_uneven &&
           !call->epilogue && call->count < (size_t)1 << 32 && call->in && call->out &&
           (unsigned)call->root < (unsigned)group->size && ko_call_is_placed(group, call) &&
           (!ko_is_reducing(call->what) || ko_reduction_of(call->dtype, call->op));
}

/* ---- algorithm --------------------------------------------------------------------------- */

/* The bytes by which all ranks choose alike: of a block, the longest if they differ, and if not
 * all ranks know that, SIZE_MAX. */
static size_t agreed_bytes(const kolo_group *group, const struct ko_call *call)
{
    const unsigned shift = ko_dtype_shift(call->dtype);

    if (!call->is_uneven)
        return call->count << shift;
    if (call->what == KO_ALL_GATHER)
        return longest_of(&call->out_blocks, group->size) << shift;
    if (call->what == KO_REDUCE_SCATTER)
        return longest_of(&call->in_blocks, group->size) << shift;
    return SIZE_MAX;
}

/* " of 2^10 bytes and more" */
static void describe_class(const struct ko_call *call, int class, char text[48])
{
    if (class == KO_SIZE_CLASSES - 1)
        snprintf(text, 48, " of lengths that not all ranks know");
    else if (class > 0)
        snprintf(text, 48, " of 2^%d bytes and more", class - 1);
    else
        snprintf(text, 48, "%s", call->what == KO_BARRIER ? "" : " of 0 bytes");
}

static int choose_anew(const kolo_group *group, const struct ko_call *call, int class)
{
    struct ko_costs costs;
    const struct ko_situation situation = {.n = group->size,
                                           .hosts = group->hosts,
                                           .costs = &costs,
                                           .slice_bytes = ko_group_slice_bytes(group),
                                           .slots = (int)group->endpoint->own.slots,
                                           .is_ordered = group->is_ordered};
    const int wanted = group->wishes[call->what];
    char length[48], predicted[48] = "";
    double us;
    int row;

    ko_group_costs(group, &costs);
    row = ko_choose(&situation, call->what, call->is_uneven, class, wanted, &us);
    if (row < 0)
        return row;
    if (us > 0) /* a wish is not predicted */
        snprintf(predicted, sizeof predicted, "; %.3g us are predicted", us);
    describe_class(call, class, length);
    ko_log(KO_LOG_INFO, "%s%s goes by %s (%s)%s%s%s", ko_call_name(call), length,
           ko_algorithms[row].name, ko_algorithms[row].why, predicted,
           wanted >= 0 && row != wanted ? ", since it cannot by KOLO_ALGO's " : "",
           wanted >= 0 && row != wanted ? ko_algorithms[wanted].name : "");
    return row;
}

/* A row of algorithms.h; -1 after an error. */
static int choose(kolo_group *group, const struct ko_call *call)
{
    const int class = ko_size_class(agreed_bytes(group, call));
    unsigned char *choice = &group->choices[call->what][call->is_uneven][class];

    if (!*choice)
        *choice = (unsigned char)(choose_anew(group, call, class) + 1);
    return *choice - 1;
}

/* ---- turn -------------------------------------------------------------------------------- */

int ko_coll_run_chosen(kolo_group *group, const struct ko_call *call)
{
    const int algorithm = choose(group, call);

    if (algorithm < 0)
        return ko_group_fail(group, KOLO_E_NOMEM, kolo_last_error());
    if (ko_log_wants(KO_LOG_TRACE))
        ko_log(KO_LOG_TRACE, "%s of %zu %s by %s: %s", ko_call_name(call), call->count,
               kolo_dtype_name(call->dtype), ko_algorithms[algorithm].name,
               ko_algorithms[algorithm].why);
    return ko_coll_run(group, call, algorithm);
}

static int run_plainly(kolo_group *group, const struct ko_call *call)
{
    if (group->size == 1)
        return ko_coll_run_alone(call);
    return call->is_coalesced ? ko_coll_run_tensors(group, call) : ko_coll_run_chosen(group, call);
}

static int find_way(kolo_group *group, const struct ko_call *call, ko_run *run);

/* A ko_run. */
static int run_copies(kolo_group *group, const struct ko_call *call)
{
    return find_way(group, call, run_plainly);
}

/* On a GPU without kernels it takes the host's, which has all else that a call has. */
static int run_cast(kolo_group *group, const struct ko_call *call, ko_run *run)
{
    if (call->is_on_gpu && !ko_call_has_step(call) && !ko_gpu_has_kernels(group->gpu))
        return ko_coll_run_on_gpu(group, call, run_copies);
    return ko_coll_run_cast(group, call, find_way, run);
}

/* A ko_way: the one that all ranks find alike, for one part after another of what the call is. */
static int find_way(kolo_group *group, const struct ko_call *call, ko_run *run)
{
    const bool is_shared = ko_coll_is_shared(group, call);

    if (call->is_captured && !is_shared)
        return ko_coll_run_captured(group, call); /* which says why not */
    if (ko_call_is_cast(call) && !ko_coll_casts_in_passing(group))
        return run_cast(group, call, run);
    if (call->is_captured)
        return ko_coll_run_captured(group, call);
    if (is_shared)
        return ko_coll_run_shared(group, call, run);
    if (ko_call_has_step(call))
        return ko_coll_run_then_step(group, call, find_way, run);
    if (call->is_coalesced)
        return ko_coll_run_long_ones(group, call, find_way, run);
    return ko_coll_is_divided(group, call) ? ko_coll_run_divided(group, call, run)
                                           : ko_coll_run_by_host(group, call, run);
}

static int run(kolo_group *group, const struct ko_call *call)
{
    int err = ko_group_check(group); /* it may have failed while the call was queued */

    ko_group_look_at_memory(group);
    if (!err && call->epilogue)
        err = ko_coll_unscale(group, call);
    if (!err)
        err = find_way(group, call, run_plainly);
    if (call->mark)
        ko_gpu_let_go(group->gpu, call->mark);
    else if (ko_call_is_in_stream(call))
        ko_gpu_tidy(group->gpu);
    ko_coll_tell_failure(group);
    if (err && ko_group_has_failed(group))
        ko_coll_settle(group);
    return err;
}

static void run_work(struct kolo_work *work)
{
    struct coll_work *w = (struct coll_work *)work;
    int err;

    ko_log_set_rank(w->group->rank);
    err = run(w->group, &w->call);
    if (w->call.handoff)
        ko_handoff_end(&w->handoff, w->group->gpu);
    ko_work_complete(work, err);
}

static void await_work(struct kolo_work *work, const ko_deadline *deadline,
                       const struct ko_works *others)
{
    ko_engine_await(&((struct coll_work *)work)->group->engine, work, deadline, others);
}

/* Copies a list of blocks. */
static size_t *keep_blocks(struct ko_blocks *blocks, size_t n, size_t *numbers)
{
    if (!blocks->counts)
        return numbers;
    memcpy(numbers, blocks->counts, n * sizeof *numbers);
    memcpy(numbers + n, blocks->starts, n * sizeof *numbers);
    blocks->counts = numbers;
    blocks->starts = numbers + n;
    return numbers + 2 * n;
}

/* Bytes of the lists that are the user's only while he calls. */
static size_t list_bytes(const kolo_group *group, const struct ko_call *call)
{
    if (call->epilogue)
        return ko_epilogue_bytes(call->epilogue);
    if (call->is_coalesced)
        return call->ntensors * sizeof *call->tensors;
    return call->is_uneven ? 4 * (size_t)group->size * sizeof(size_t) : 0;
}

static void keep_lists(const kolo_group *group, struct coll_work *w)
{
    const size_t n = (size_t)group->size;

    if (w->call.epilogue)
        w->call.epilogue = ko_epilogue_keep(w->call.epilogue, w->lists);
    if (w->call.ntensors) {
        memcpy(w->lists, w->call.tensors, list_bytes(group, &w->call));
        w->call.tensors = (const kolo_tensor *)(void *)w->lists;
    }
    keep_blocks(&w->call.out_blocks, n, keep_blocks(&w->call.in_blocks, n, w->lists));
}

/* Whether nobody else has a part in it, nor any memory of the group's. */
static bool is_alone(const kolo_group *group, const struct ko_call *call)
{
    return group->size == 1 && !call->is_on_gpu && !call->epilogue;
}

static int submit(kolo_group *group, const struct ko_call *call, kolo_work **work_out)
{
    struct coll_work *w = ko_work_new(sizeof *w + list_bytes(group, call));
    int err = KOLO_OK;

    if (!w)
        return KOLO_E_NOMEM;
    w->work.run = run_work;
    w->work.await = await_work;
    w->work.place = &group->engine;
    w->group = group;
    w->call = *call;
    if (call->is_streamed) {
        ko_handoff_init(&w->handoff, call->epilogue != NULL);
        w->call.handoff = &w->handoff;
    }
    keep_lists(group, w);
    if (is_alone(group, call))
        ko_work_complete(&w->work, ko_coll_run_alone(call));
    else
        err = ko_engine_submit(&group->engine, &w->work);
    if (err)
        ko_work_release(&w->work);
    else
        *work_out = &w->work;
    return err;
}

/* On an idle group in this thread, else behind what is queued. */
static int run_blocking(kolo_group *group, const struct ko_call *call)
{
    kolo_work *work;
    int err;

    if (is_alone(group, call))
        return ko_coll_run_alone(call);
    if (ko_engine_try_begin(&group->engine)) {
        err = run(group, call);
        ko_engine_finish(&group->engine);
        return err;
    }
    err = submit(group, call, &work);
    if (err) {
        if (call->mark)
            ko_gpu_let_go(group->gpu, call->mark);
        return err;
    }
    err = kolo_work_wait(work, -1);
    kolo_work_free(work);
    return err;
}

/* Takes an op of the group's own apart. */
static int resolve_op(kolo_group *group, const struct ko_call *given, struct ko_call *call)
{
    int err;

    *call = *given;
    err = ko_group_factor(group, call->op, &call->factor);
    if (err)
        return ko_call_say_where(ko_call_name(call), err);
    call->is_scaled = true;
    call->op = KOLO_SUM;
    return KOLO_OK;
}

/* Behind what the user's stream has to do. is_held: what comes into it later waits for the end of
 * the call. The lock: the work that ends such a wait is queued before another call's that comes
 * behind it in the stream. work NULL: the call is only marked. */
static int submit_behind(kolo_group *group, struct ko_call *call, bool is_held, kolo_work **work)
{
    int err;

    pthread_mutex_lock(&group->ordering);
    err = ko_gpu_mark(group->gpu, is_held, &call->mark);
    if (!err && work) {
        err = submit(group, call, work);
        if (err)
            ko_gpu_let_go(group->gpu, call->mark);
    }
    pthread_mutex_unlock(&group->ordering);
    return err;
}

/* Into the caller's stream, once his peers have come (coll_gpu_handoff.h). */
static int call_in_stream(kolo_group *group, struct ko_call *call, kolo_work **work)
{
    struct ko_streamed *streamed = ko_streamed_new(group);
    kolo_work *carried;
    int err;

    if (!streamed)
        return KOLO_E_NOMEM;
    call->is_streamed = true;
    err = submit_behind(group, call, false, &carried);
    if (!err && ko_handoff_await(&((struct coll_work *)carried)->handoff, group->gpu)) {
        *work = ko_streamed_begin(streamed, kolo_work_wait(carried, -1));
        kolo_work_free(carried);
        return KOLO_OK;
    }
    ko_streamed_forget(streamed);
    if (!err)
        *work = carried;
    return err;
}

/* Where the stream cannot wait for the call its caller does: all he does next comes behind it. */
static int call_behind(kolo_group *group, struct ko_call *call, kolo_work **work)
{
    const bool is_held = ko_gpu_can_wait(group->gpu);
    int err = submit_behind(group, call, is_held, work);

    if (!err && !is_held)
        (void)kolo_work_wait(*work, -1); /* the wait for it says how it has ended */
    return err;
}

static int call_on_gpu(kolo_group *group, struct ko_call *call, kolo_work **work)
{
    int err = ko_gpu_is_captured(group->gpu, &call->is_captured);

    if (err)
        return err;
    if (call->is_captured) {
        err = run_blocking(group, call);
        if (!err && work)
            *work = ko_work_already_done();
        return err;
    }
    if (work && ko_coll_can_be_streamed(group, call))
        return call_in_stream(group, call, work);
    if (work)
        return call_behind(group, call, work);
    err = submit_behind(group, call, false, NULL);
    return err ? err : run_blocking(group, call);
}

int ko_coll_call(kolo_group *group, const struct ko_call *call, kolo_work **work)
{
    struct ko_call scaled, placed;
    int err;

    if (!group)
        return ko_fail(KOLO_E_INVALID, "%s: group is NULL", ko_call_name(call));
    if (ko_is_reducing(call->what) && (int)call->op >= KO_PREMUL) {
        err = resolve_op(group, call, &scaled);
        if (err)
            return err;
        call = &scaled;
    }
    err = is_plainly_right(group, call) ? KOLO_OK : ko_call_check(group, call);
    if (!err)
        err = ko_group_check(group);
    if (!err && !group->hosts)
        err = ko_group_find_hosts(group);
    if (!err && ko_group_has_stream(group)) {
        placed = *call;
        err = ko_coll_is_on_gpu(group, call, &placed.is_on_gpu);
        if (!err && placed.is_on_gpu)
            return call_on_gpu(group, &placed, work);
    }
    if (err)
        return err;
    return work ? submit(group, call, work) : run_blocking(group, call);
}
