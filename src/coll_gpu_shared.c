/* SPDX-License-Identifier: MIT
 *
 * The ranks tell each other by host memory where their buffers are, once their inputs are ready: so
 * a rank that has heard all others knows that all may be read and written. The one that came last,
 * whose context is the one at work on the GPU, begins the kernels, waits for them, and says so. All
 * that a group can do about wrong calls, lost peers, time-outs and aborts holds for these messages.
 */
#include "coll_gpu_shared.h"

#include "coll_gpu.h"
#include "coll_gpu_plan.h"
#include "dtype.h"
#include "gpu_share.h"
#include "log.h"

#include <stdio.h>
#include <string.h>

/* What a rank says of itself when the ranks meet. */
struct presence {
    ko_cu_uuid gpu;
    uint32_t has_kernels, unused;
};

/* What a rank says of its part in a call. */
struct offer {
    struct ko_stamp stamp;
    int64_t ready_ns; /* when its input was, by the clock that all ranks of a machine share */
    struct ko_gpu_place in, out;
};

/* Of bytes, among all ranks, over the links that calls of host memory go by. */
static int exchange(kolo_group *group, enum ko_collective what, const void *in, void *out,
                    size_t nbytes, int root)
{
    const struct ko_call call = {
        .what = what, .in = in, .out = out, .count = nbytes, .dtype = KOLO_UINT8, .root = root};

    if (group->size > 1)
        return ko_coll_run(group, &call, ko_coll_choose(group, &call));
    if (out != in)
        memcpy(out, in, nbytes);
    return KOLO_OK;
}

/* ---- meeting --------------------------------------------------------------------------------- */

static bool is_here(const kolo_group *group, int rank)
{
    const struct ko_contact *own = &group->endpoint->own;
    const struct ko_contact *peer = ko_endpoint_known(group->endpoint, group->world_ranks[rank]);

    return peer->pid == own->pid && peer->processes == own->processes &&
           !strcmp(peer->machine, own->machine);
}

static int open_share(kolo_group *group)
{
    bool here[KO_FOLD_MOST];
    struct ko_gpu_share *share;
    int err;

    for (int r = 0; r < group->size; r++)
        here[r] = is_here(group, r);
    err = ko_gpu_share_open(group->gpu, group->size, here, &share);
    if (!err)
        atomic_store(&group->share, share);
    return err;
}

static void describe_self(kolo_group *group, struct presence *presence)
{
    *presence = (struct presence){.has_kernels = 0};
    if (group->gpu && !ko_gpu_identify(group->gpu, &presence->gpu) && !ko_gpu_enter(group->gpu)) {
        presence->has_kernels = !ko_cuda_kernels_open();
        ko_gpu_leave(group->gpu);
    }
}

static bool are_together(const kolo_group *group, const struct presence *all)
{
    bool are = group->hosts->n == 1;

    for (int r = 0; r < group->size && are; r++)
        are = all[r].has_kernels && !memcmp(&all[r].gpu, &all[0].gpu, sizeof all[r].gpu);
    return are;
}

/* All ranks together, also those that have no GPU. */
static int meet(kolo_group *group)
{
    struct presence mine, all[KO_FOLD_MOST];
    int err;

    if (group->size > KO_FOLD_MOST)
        return KOLO_OK;
    describe_self(group, &mine);
    err = kolo_all_gather(group, &mine, all, sizeof mine, KOLO_UINT8);
    if (!err && are_together(group, all))
        err = open_share(group);
    if (!err)
        ko_log(KO_LOG_INFO, "collectives of GPU memory go %s",
               group->share ? "through the GPU that all ranks share" : "by way of host memory");
    return err;
}

static int set_stream(kolo_group *group, void *stream)
{
    struct ko_gpu *gpu;
    int err;

    pthread_mutex_lock(&group->lock);
    gpu = atomic_load(&group->gpu);
    err = gpu ? ko_gpu_follow(gpu, stream) : ko_gpu_open(stream, &group->failed, &gpu);
    if (!err)
        atomic_store(&group->gpu, gpu);
    pthread_mutex_unlock(&group->lock);
    return err;
}

int kolo_group_set_stream(kolo_group *group, void *stream)
{
    char why[KO_ERROR_TEXT];
    int err, met = KOLO_OK;

    if (!group)
        return ko_fail(KOLO_E_INVALID, "kolo_group_set_stream: group is NULL");
    err = set_stream(group, stream);
    snprintf(why, sizeof why, "%s", kolo_last_error());
    if (!atomic_exchange(&group->has_met, true))
        met = meet(group);
    return err ? ko_fail_again(err, why) : met;
}

/* ---- offers ---------------------------------------------------------------------------------- */

bool ko_coll_is_shared(const kolo_group *group, const struct ko_call *call)
{
    return group->share && !call->is_uneven && !call->is_scaled && call->what != KO_BARRIER;
}

static int make_offer(kolo_group *group, const struct ko_call *call, struct offer *offer)
{
    const size_t in_bytes = ko_coll_is_read(group, call) ? ko_call_bytes(group, call, false) : 0;
    const size_t out_bytes = ko_coll_is_written(group, call) ? ko_call_bytes(group, call, true) : 0;
    int err;

    offer->stamp = (struct ko_stamp){.seq = group->seq,
                                     .count = call->count,
                                     .root = (uint32_t)call->root,
                                     .what = (uint8_t)call->what,
                                     .dtype = (uint8_t)call->dtype,
                                     .op = (uint8_t)call->op};
    offer->ready_ns = ko_now_ns();
    err = ko_gpu_share_describe(group->share, in_bytes ? call->in : NULL, in_bytes, &offer->in);
    if (!err)
        err = ko_gpu_share_describe(group->share, out_bytes ? call->out : NULL, out_bytes,
                                    &offer->out);
    return err ? ko_group_fail(group, err, kolo_last_error()) : KOLO_OK;
}

static int check_offers(kolo_group *group, const struct offer *offers)
{
    const struct ko_stamp *ours = &offers[group->rank].stamp;

    for (int r = 0; r < group->size; r++)
        if (memcmp(&offers[r].stamp, ours, sizeof *ours) != 0)
            return ko_channel_mismatch(&group->collectives, r, &offers[r].stamp, ours);
    return KOLO_OK;
}

/* Descriptors that others wait for, when the ranks before this one have handed theirs over. */
static int serve(kolo_group *group, const struct offer *offer)
{
    const ko_deadline deadline = ko_deadline_in(kolo_group_timeout(group));
    int err = KOLO_OK;

    if (ko_gpu_share_is_handed(&offer->in))
        err = ko_gpu_share_serve(group->share, &offer->in, &deadline);
    if (!err && ko_gpu_share_is_handed(&offer->out))
        err = ko_gpu_share_serve(group->share, &offer->out, &deadline);
    return err ? ko_group_fail(group, err, kolo_last_error()) : KOLO_OK;
}

/* Whether all ranks reach all buffers. The ranks ask each other only about allocations that are
 * new: of others, all of them have the answer. */
static int agree(kolo_group *group, const struct offer *offers, bool *is_reached)
{
    unsigned char mine = 1, all[KO_FOLD_MOST];
    bool is_new = false, is_possible = true;
    int err = KOLO_OK;

    for (int r = 0; r < group->size && !err; r++) {
        if (r == group->rank)
            err = serve(group, &offers[r]);
        is_possible &= offers[r].in.kind != KO_GPU_HOST && offers[r].out.kind != KO_GPU_HOST;
        is_new |= offers[r].in.is_new || offers[r].out.is_new;
        mine &= ko_gpu_share_reaches(group->share, r, &offers[r].in);
        mine &= ko_gpu_share_reaches(group->share, r, &offers[r].out);
    }
    *is_reached = is_possible && mine;
    if (err || !is_new)
        return err;
    err = exchange(group, KO_ALL_GATHER, &mine, all, 1, 0);
    for (int r = 0; r < group->size && !err; r++)
        *is_reached &= all[r];
    return err;
}

/* ---- carrying out ---------------------------------------------------------------------------- */

static void make_plan(kolo_group *group, const struct ko_call *call, const struct offer *offers,
                      struct ko_gpu_plan *plan)
{
    plan->what = call->what;
    plan->n = group->size;
    plan->root = call->root;
    plan->count = call->count;
    plan->shift = ko_dtype_shift(call->dtype);
    for (int r = 0; r < group->size; r++) {
        plan->ins[r] = ko_gpu_share_address(group->share, r, &offers[r].in);
        plan->outs[r] = ko_gpu_share_address(group->share, r, &offers[r].out);
    }
}

/* Copies to several places are reductions of one part, of integers of the same length. */
static int begin_step(kolo_group *group, const struct ko_call *call, struct ko_fold *fold)
{
    static const kolo_dtype integers[] = {KOLO_UINT8, KOLO_UINT8, KOLO_UINT32, KOLO_UINT64};
    const unsigned shift = ko_dtype_shift(call->dtype);

    if (!fold->nouts)
        return KOLO_OK;
    if (is_reducing(call->what))
        return ko_gpu_fold(group->gpu, call->dtype, call->op, fold, group->size);
    if (fold->nouts == 1)
        return ko_gpu_copy(group->gpu, (void *)(uintptr_t)fold->outs[0],
                           (const void *)(uintptr_t)fold->parts[0], fold->count << shift);
    if (shift == 1)
        fold->count <<= 1;
    return ko_gpu_fold(group->gpu, integers[shift], KOLO_SUM, fold, 1);
}

static int carry_out(kolo_group *group, const struct ko_call *call, const struct offer *offers)
{
    const ko_deadline deadline = ko_deadline_in(kolo_group_timeout(group));
    struct ko_gpu_plan plan;
    struct ko_fold fold;
    char text[KO_ERROR_TEXT];
    int err = KOLO_OK;

    make_plan(group, call, offers, &plan);
    for (int i = 0; i < ko_gpu_nsteps(&plan) && call->count && !err; i++) {
        ko_gpu_step(&plan, i, &fold);
        err = begin_step(group, call, &fold);
    }
    if (!err)
        err = ko_gpu_finish(group->gpu, &deadline);
    if (!err)
        return KOLO_OK;
    snprintf(text, sizeof text, "%s on rank %d, for all: %.400s", ko_call_name(call), group->rank,
             kolo_last_error());
    return ko_group_fail(group, err, text);
}

/* All ranks find the same one. */
static int last_of(const struct offer *offers, int n)
{
    int last = 0;

    for (int r = 1; r < n; r++)
        if (offers[r].ready_ns > offers[last].ready_ns)
            last = r;
    return last;
}

static int await_input(kolo_group *group, const struct ko_call *call)
{
    const ko_deadline deadline = ko_deadline_in(kolo_group_timeout(group));
    int err = call->mark ? ko_gpu_await_mark(group->gpu, call->mark, &deadline) : KOLO_OK;

    return err ? ko_group_fail(group, err, kolo_last_error()) : KOLO_OK;
}

/* Of one tensor, whose input is ready. */
static int run_tensor(kolo_group *group, const struct ko_call *call,
                      int (*run)(kolo_group *group, const struct ko_call *call))
{
    struct offer mine, all[KO_FOLD_MOST];
    unsigned char is_done = 1;
    bool is_reached;
    int last, err = make_offer(group, call, &mine);

    if (!err)
        err = exchange(group, KO_ALL_GATHER, &mine, all, sizeof mine, 0);
    if (!err)
        err = check_offers(group, all);
    if (!err)
        err = agree(group, all, &is_reached);
    if (err)
        return err;
    if (!is_reached)
        return call->is_on_gpu ? ko_coll_run_on_gpu(group, call, run) : run(group, call);
    last = last_of(all, group->size);
    if (last == group->rank)
        err = carry_out(group, call, all);
    return err ? err : exchange(group, KO_BROADCAST, &is_done, &is_done, 1, last);
}

int ko_coll_run_shared(kolo_group *group, const struct ko_call *call,
                       int (*run)(kolo_group *group, const struct ko_call *call))
{
    int err = await_input(group, call);

    if (err || !call->is_coalesced)
        return err ? err : run_tensor(group, call, run);
    for (size_t i = 0; i < call->ntensors && !err; i++) {
        const struct ko_call part = ko_coll_tensor(call, i);

        err = run_tensor(group, &part, run);
    }
    return err;
}
