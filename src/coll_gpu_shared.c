/* SPDX-License-Identifier: MIT
 *
 * The ranks tell each other by host memory where their buffers are, once their inputs are ready: so
 * a rank that has heard all others knows that all may be read and written. On one GPU the one
 * whose context is at work there begins the kernels, waits for them, and says so; on several all do
 * that. Where a rank does not wait for its call, all put their parts into their streams instead.
 * All that a group can do about wrong calls, lost peers, time-outs and aborts holds for these
 * messages.
 */
#include "coll_gpu_shared.h"

#include "coll_epilogue.h"
#include "coll_gpu.h"
#include "coll_gpu_graph.h"
#include "coll_gpu_handoff.h"
#include "coll_gpu_offers.h"
#include "coll_gpu_pieces.h"
#include "coll_gpu_writers.h"
#include "dtype.h"
#include "gpu_share.h"
#include "gpu_waits.h"
#include "group_watch.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/* What all ranks have said. */
struct meeting {
    struct ko_offer offers[KO_FOLD_MOST];
    struct ko_gpu_blocks blocks[KO_FOLD_MOST]; /* of a call whose blocks may differ */
    double factors[KO_FOLD_MOST];
    struct ko_offer states[KO_FOLD_MOST]; /* of a call with an optimizer's step */
};

static bool is_shared(const kolo_group *group)
{
    return group->share && group->hosts->n == 1;
}

bool ko_coll_is_shared(const kolo_group *group, const struct ko_call *call)
{
    return is_shared(group) && call->what != KO_BARRIER;
}

bool ko_coll_can_be_streamed(const kolo_group *group, const struct ko_call *call)
{
    return ko_coll_is_shared(group, call) &&
           (group->size == 1 || ko_gpu_share_has_words(group->share)) &&
           (!ko_call_is_cast(call) || ko_coll_casts_in_passing(group));
}

bool ko_coll_casts_in_passing(const kolo_group *group)
{
    return is_shared(group) && !ko_gpu_share_is_spread(group->share);
}

/* ---- blocks of different lengths ---------------------------------------------------------- */

/* A buffer without blocks is the same to all others. */
static void list_blocks(const kolo_group *group, const struct ko_call *call,
                        struct ko_gpu_blocks *blocks)
{
    const struct ko_part whole = {0, call->count};

    for (int r = 0; r < group->size; r++) {
        blocks->parts[IN][r] = call->in_blocks.counts ? block_of(&call->in_blocks, r) : whole;
        blocks->parts[OUT][r] = call->out_blocks.counts ? block_of(&call->out_blocks, r) : whole;
    }
}

/* What one rank gives to another has to be as long as that one takes it to be. */
static int check_blocks(kolo_group *group, const struct ko_call *call,
                        const struct ko_gpu_blocks *blocks)
{
    const unsigned shift = ko_dtype_shift(call->dtype);
    char text[KO_ERROR_TEXT];

    for (int from = 0; from < group->size; from++)
        for (int to = 0; to < group->size; to++) {
            const size_t sent = blocks[from].parts[IN][to].count;
            const size_t wanted = blocks[to].parts[OUT][from].count;

            if (sent == wanted || (call->what == KO_GATHER && to != call->root) ||
                (call->what == KO_SCATTER && from != call->root))
                continue;
            snprintf(text, sizeof text,
                     "rank %d sends %zu bytes to rank %d, which expects %zu, in %s of %s: the "
                     "counts that the two give for this block differ",
                     from, sent << shift, to, wanted << shift, ko_call_name(call),
                     kolo_dtype_name(call->dtype));
            return ko_group_fail(group, KOLO_E_MISMATCH, text);
        }
    return KOLO_OK;
}

static int meet_for_blocks(kolo_group *group, const struct ko_call *call, struct ko_gpu_blocks *all)
{
    struct ko_gpu_blocks mine = {0};
    int err;

    list_blocks(group, call, &mine);
    err = ko_coll_exchange(group, KO_ALL_GATHER, &mine, all, sizeof mine, 0);
    return err ? err : check_blocks(group, call, all);
}

/* ---- carrying out ---------------------------------------------------------------------------- */

static void make_plan(kolo_group *group, const struct ko_call *call, const struct meeting *meeting,
                      struct ko_gpu_plan *plan)
{
    const struct ko_offer *offers = meeting->offers;

    plan->what = call->what;
    plan->is_spread = ko_gpu_share_is_spread(group->share);
    plan->n = group->size;
    plan->root = call->root;
    plan->count = call->count;
    plan->blocks = call->is_uneven ? meeting->blocks : NULL;
    plan->factors = call->is_scaled ? meeting->factors : NULL;
    plan->shift = ko_dtype_shift(call->dtype);
    for (int r = 0; r < group->size; r++) {
        plan->ins[r] = ko_gpu_share_address(group->share, r, &offers[r].in);
        plan->outs[r] = ko_gpu_share_address(group->share, r, &offers[r].out);
    }
    plan->is_fused = ko_call_is_fused(call);
    for (int r = 0; r < group->size && ko_call_has_step(call); r++) {
        plan->states[0][r] = ko_gpu_share_address(group->share, r, &meeting->states[r].in);
        plan->states[1][r] = ko_gpu_share_address(group->share, r, &meeting->states[r].out);
    }
}

/* By the GPU's copy engines, which leave its processors to others. */
static int copy_to_each(kolo_group *group, const struct ko_fold *fold, unsigned shift,
                        ko_cu_stream stream)
{
    const struct ko_cuda *cuda = ko_gpu_driver(group->gpu);
    ko_cu_result result = KO_CU_SUCCESS;

    for (uint32_t i = 0; i < fold->nouts && !result; i++)
        result = cuda->copy(fold->outs[i], fold->parts[0], fold->count << shift, stream);
    return ko_cuda_check(cuda, result, "a buffer on the GPU cannot be copied");
}

/* One part of each rank, in their order. */
static int begin_fold(const struct ko_call *call, const struct ko_gpu_plan *plan,
                      const struct ko_fold *fold, ko_cu_stream stream)
{
    return plan->factors ? ko_cuda_premul(call->dtype, fold, plan->factors, stream)
                         : ko_cuda_fold(call->dtype, call->op, *fold, plan->n, stream);
}

/* Copies to several places of one GPU are reductions of one part, of integers of the same length:
 * the part is read once. */
static int begin_step(kolo_group *group, const struct ko_call *call, const struct ko_gpu_plan *plan,
                      struct ko_fold *fold, ko_cu_stream stream)
{
    static const kolo_dtype integers[] = {KOLO_UINT8, KOLO_UINT8, KOLO_UINT32, KOLO_UINT64};
    const unsigned shift = ko_dtype_shift(call->dtype);

    if (!fold->nouts || !fold->count)
        return KOLO_OK;
    if (ko_is_reducing(call->what))
        return begin_fold(call, plan, fold, stream);
    if (fold->nouts == 1 || ko_gpu_share_is_spread(group->share))
        return copy_to_each(group, fold, shift, stream);
    if (shift == 1)
        fold->count <<= 1;
    return ko_cuda_fold(integers[shift], KOLO_SUM, *fold, 1, stream);
}

int ko_coll_begin_plan(kolo_group *group, const struct ko_call *call,
                       const struct ko_gpu_plan *plan, ko_cu_stream stream)
{
    struct ko_fold fold;
    int err = ko_gpu_enter(group->gpu);

    if (err)
        return err;
    for (int i = 0; i < ko_gpu_nsteps(plan) && !err; i++) {
        if (plan->is_spread && ko_gpu_step_rank(plan, i) != group->rank)
            continue;
        if (plan->is_fused) {
            err = ko_coll_begin_fused(group, call, plan, i, stream);
            continue;
        }
        ko_gpu_step(plan, i, &fold);
        err = begin_step(group, call, plan, &fold, stream);
    }
    ko_gpu_leave(group->gpu);
    return err;
}

bool ko_coll_pushes(const kolo_group *group, const struct ko_gpu_plan *plan)
{
    return ko_gpu_can_push(plan) && ko_gpu_share_has_boxes(group->share);
}

int ko_coll_begin_push(kolo_group *group, const struct ko_call *call,
                       const struct ko_gpu_plan *plan, ko_cu_stream stream)
{
    struct ko_push push;
    struct ko_fold fold;
    uint64_t scratch;
    int err = ko_gpu_enter(group->gpu);

    if (err)
        return err;
    ko_gpu_share_push(group->share, ko_call_round(call), group->rank, &push, &scratch);
    ko_gpu_plan_push(plan, group->rank, scratch, &push, &fold);
    err = ko_cuda_push(push, stream);
    if (!err && fold.nouts)
        err = begin_fold(call, plan, &fold, stream);
    ko_gpu_leave(group->gpu);
    return err;
}

static int carry_out(kolo_group *group, const struct ko_call *call, const struct ko_gpu_plan *plan)
{
    const ko_deadline deadline = ko_deadline_in(kolo_group_timeout(group));
    const bool pushes = ko_coll_pushes(group, plan);
    const ko_cu_stream stream = ko_gpu_own_stream(group->gpu);
    char text[KO_ERROR_TEXT];
    int err = pushes ? KOLO_OK : ko_coll_begin_writing(group);

    if (err)
        return err;
    if (pushes)
        ko_gpu_add_waiting();
    err = pushes ? ko_coll_begin_push(group, call, plan, stream)
                 : ko_coll_begin_plan(group, call, plan, stream);
    if (!err)
        err = pushes ? ko_group_await_kernels(group, ko_call_name(call), &deadline)
                     : ko_gpu_finish(group->gpu, &deadline);
    if (pushes)
        ko_gpu_count_waiting(-1);
    if (!err) {
        ko_coll_end_writing(group);
        return KOLO_OK;
    }
    snprintf(text, sizeof text, "%s on rank %d: %.400s", ko_call_name(call), group->rank,
             kolo_last_error());
    return ko_group_fail(group, err, text);
}

/* Who begins the kernels on one GPU: the rank that came last, since its context is likely to be the
 * one at work there. But one that came hardly later than the carrier of the call before did nothing
 * on the GPU meanwhile, which would have taken a change of contexts (150 us, measured on an H200):
 * that carrier's is at work then. All ranks find the same one. */
static int choose_carrier(kolo_group *group, const struct ko_offer *offers)
{
    enum { CHANGE_NS = 100000 };
    int last = 0;

    for (int r = 1; r < group->size; r++)
        if (offers[r].ready_ns > offers[last].ready_ns)
            last = r;
    if (offers[last].ready_ns - offers[group->gpu_carrier].ready_ns > CHANGE_NS)
        group->gpu_carrier = last;
    return group->gpu_carrier;
}

/* The ranks tell each other of a call of one tensor; of a step's states as of two buffers more. */
static int meet_for(kolo_group *group, const struct ko_call *call, struct meeting *meeting,
                    enum ko_reach *reach)
{
    struct ko_call states = *call;
    int err = ko_coll_meet(group, call, false, meeting->offers, reach);

    if (err || *reach != KO_REACHED)
        return err;
    for (int r = 0; r < group->size; r++)
        meeting->factors[r] = meeting->offers[r].factor;
    if (call->is_uneven)
        return meet_for_blocks(group, call, meeting->blocks);
    if (!ko_call_has_step(call))
        return KOLO_OK;
    states.in = call->epilogue->states[0];
    states.out = call->epilogue->states[1];
    states.dtype = KOLO_FLOAT32;
    states.epilogue = NULL;
    return ko_coll_meet(group, &states, false, meeting->states, reach);
}

/* A rank that has told where its buffers are may have given up since, and have them back: it does
 * not say that it still waits. To root, or to all by an all_gather. */
static int hear_that_all_wait(kolo_group *group, enum ko_collective what, int root)
{
    unsigned char waits = 1, all[KO_FOLD_MOST];

    return ko_coll_exchange(group, what, &waits, all, 1, root);
}

/* On one GPU. */
static int run_together(kolo_group *group, const struct ko_call *call,
                        const struct meeting *meeting)
{
    const int carrier = choose_carrier(group, meeting->offers);
    unsigned char is_done = 1;
    struct ko_gpu_plan plan;
    int err = hear_that_all_wait(group, KO_GATHER, carrier);

    if (!err && carrier == group->rank) {
        make_plan(group, call, meeting, &plan);
        err = carry_out(group, call, &plan);
    }
    return err ? err : ko_coll_exchange(group, KO_BROADCAST, &is_done, &is_done, 1, carrier);
}

/* On several. Who has all that others push needs nothing else of them, nor they of him; and nobody
 * writes into another's buffers. */
static int run_share(kolo_group *group, const struct ko_call *call, const struct meeting *meeting)
{
    unsigned char is_done = 1, all[KO_FOLD_MOST];
    struct ko_gpu_plan plan;
    int err;

    make_plan(group, call, meeting, &plan);
    if (ko_coll_pushes(group, &plan))
        return carry_out(group, call, &plan);
    err = hear_that_all_wait(group, KO_ALL_GATHER, 0);
    if (!err)
        err = carry_out(group, call, &plan);
    return err ? err : ko_coll_exchange(group, KO_ALL_GATHER, &is_done, all, 1, 0);
}

static void count_place(kolo_group *group, int rank, const struct ko_gpu_place *place)
{
    if (ko_gpu_share_is_here(group->share, rank))
        return;
    group->gpu_ways.by_handles += place->kind == KO_GPU_LEGACY;
    group->gpu_ways.by_descriptors += place->kind == KO_GPU_PIECES;
}

static void count_places(kolo_group *group, const struct ko_offer *offers)
{
    for (int r = 0; r < group->size; r++) {
        count_place(group, r, &offers[r].in);
        count_place(group, r, &offers[r].out);
    }
}

static bool any_is_streamed(const kolo_group *group, const struct ko_offer *offers)
{
    bool any = false;

    for (int r = 0; r < group->size; r++)
        any |= offers[r].way == KO_OFFER_STREAMED;
    return any;
}

/* Ranks of one process have one driver, which may take any thread of theirs in until all that is in
 * the streams is done: so nobody goes on before all ranks' parts are there. */
static int await_parts(kolo_group *group)
{
    unsigned char is_in = 1, all[KO_FOLD_MOST];
    bool are_together = false;

    for (int r = 0; r < group->size; r++)
        are_together |= r != group->rank && ko_gpu_share_is_here(group->share, r);
    return are_together ? ko_coll_exchange(group, KO_ALL_GATHER, &is_in, all, 1, 0) : KOLO_OK;
}

static bool are_in_order(const kolo_group *group, const struct ko_offer *offers, int r, int other)
{
    return ko_gpu_share_is_here(group->share, r) && ko_gpu_share_is_here(group->share, other) &&
           ko_gpu_are_in_order(&offers[r].order, &offers[other].order);
}

/* Of ranks that are threads one's part waits for the other's, which may not come behind it. */
static int check_streams(kolo_group *group, const struct ko_offer *offers)
{
    char text[KO_ERROR_TEXT];

    for (int r = 1; r < group->size; r++)
        for (int other = 0; other < r; other++) {
            if (!are_in_order(group, offers, r, other))
                continue;
            snprintf(text, sizeof text,
                     "ranks %d and %d, threads of one process, have streams that wait for each "
                     "other (one for both, or the legacy one beside one that is not non-blocking), "
                     "so that no asynchronous call can be in both: give each a non-blocking stream "
                     "of its own",
                     other, r);
            return ko_group_fail(group, KOLO_E_INVALID, text);
        }
    return KOLO_OK;
}

/* The watch over streams fails the group, and names the rank, once the group's limit is over. */
static ko_deadline longer_than_the_watch(const kolo_group *group)
{
    enum { LONGER_MS = 3000 };
    const int limit_ms = kolo_group_timeout(group);

    return ko_deadline_in(limit_ms < INT_MAX - LONGER_MS ? limit_ms + LONGER_MS : limit_ms);
}

/* A call that this rank waits for, while others do not. */
static int await_stream(kolo_group *group)
{
    const ko_deadline deadline = longer_than_the_watch(group);
    struct ko_gpu_mark *mark;
    int err = ko_gpu_mark(group->gpu, false, &mark);

    if (err)
        return ko_group_fail(group, err, kolo_last_error());
    err = ko_gpu_await_mark(group->gpu, mark, &deadline);
    ko_gpu_let_go(group->gpu, mark);
    if (err && !ko_group_has_failed(group))
        (void)ko_group_fail(group, err, kolo_last_error());
    return ko_group_check(group);
}

/* Into the stream of the caller who waits for that. Where he has gone on, so that it waits for the
 * call, or has no element of it, so that his stream has nothing to do with it: into the group's
 * late one, behind what is before the call in the other. */
static int put_in_stream(kolo_group *group, const struct ko_call *call,
                         const struct ko_gpu_plan *plan)
{
    const ko_deadline deadline = longer_than_the_watch(group);
    const bool is_callers = call->handoff ? ko_handoff_take(call->handoff) : call->is_on_gpu;
    int err = is_callers ? KOLO_OK : ko_gpu_follow_mark(group->gpu, call->mark);

    if (!err)
        err = ko_coll_put_in_stream(group, call, plan,
                                    is_callers ? ko_gpu_user_stream(group->gpu)
                                               : ko_gpu_late_stream(group->gpu));
    if (!err)
        err = await_parts(group);
    if (!err && !is_callers)
        err = ko_gpu_finish_late(group->gpu, &deadline);
    return err;
}

/* Each rank's part into its stream, with no part of the host's later on. */
static int run_in_stream(kolo_group *group, const struct ko_call *call,
                         const struct meeting *meeting)
{
    char text[KO_ERROR_TEXT];
    struct ko_gpu_plan plan;
    int err = check_streams(group, meeting->offers);

    if (!err)
        err = ko_group_watch(group, KO_GPU_CALLS);
    make_plan(group, call, meeting, &plan);
    if (!err)
        err = put_in_stream(group, call, &plan);
    if (err && !ko_group_has_failed(group)) {
        snprintf(text, sizeof text, "%s on rank %d: %.400s", ko_call_name(call), group->rank,
                 kolo_last_error());
        (void)ko_group_fail(group, err, text);
    }
    if (err)
        return ko_group_check(group);
    return call->handoff || !call->is_on_gpu ? ko_group_check(group) : await_stream(group);
}

static int run_if_reached(kolo_group *group, const struct ko_call *call, struct meeting *meeting,
                          enum ko_reach *reach)
{
    int err = meet_for(group, call, meeting, reach);

    if (err || *reach != KO_REACHED)
        return err;
    group->gpu_ways.reached += call->is_on_gpu;
    count_places(group, meeting->offers);
    if (any_is_streamed(group, meeting->offers))
        return run_in_stream(group, call, meeting);
    return ko_gpu_share_is_spread(group->share) ? run_share(group, call, meeting)
                                                : run_together(group, call, meeting);
}

/* Of a piece in the library's own memory, which may be out of reach too. */
static int run_stage(kolo_group *group, const struct ko_call *call, ko_run *run)
{
    struct meeting meeting;
    enum ko_reach reach;
    int err = run_if_reached(group, call, &meeting, &reach);

    if (err || reach == KO_REACHED)
        return err;
    if (reach == KO_UNREACHED)
        ko_gpu_share_give_up_stages(group->share);
    return ko_coll_run_by_host(group, call, run);
}

/* Whether copies of the buffers in other memory of the GPU's may be reached where these are not;
 * the same on all ranks. */
static bool can_be_staged(const kolo_group *group, const struct ko_call *call,
                          const struct ko_offer *offers)
{
    bool are_on_gpu = true;

    for (int r = 0; r < group->size; r++)
        are_on_gpu &= offers[r].in.kind != KO_GPU_HOST && offers[r].out.kind != KO_GPU_HOST;
    return are_on_gpu && !call->is_uneven && !ko_call_is_fused(call) &&
           ko_gpu_share_has_stages(group->share);
}

/* With a part of the host's, for which a call that was to go into the stream is waited for. */
static int run_unreached(kolo_group *group, const struct ko_call *call, bool is_staged, ko_run *run)
{
    struct ko_call waited = *call;
    int err = KOLO_OK;

    waited.handoff = NULL;
    if (call->handoff)
        err = call->epilogue ? await_stream(group) : ko_coll_await_input(group, &waited);
    if (err)
        return err;
    return is_staged ? ko_coll_run_staged(group, &waited, run_stage, run)
                     : ko_coll_run_by_host(group, &waited, run);
}

/* Of one tensor; whose input is ready, unless the call goes into the stream. */
static int run_tensor(kolo_group *group, const struct ko_call *call, ko_run *run)
{
    struct meeting meeting;
    enum ko_reach reach;
    int err = run_if_reached(group, call, &meeting, &reach);

    if (err || reach == KO_REACHED)
        return err;
    return run_unreached(group, call, can_be_staged(group, call, meeting.offers), run);
}

int ko_coll_run_shared(kolo_group *group, const struct ko_call *call, ko_run *run)
{
    int err = call->handoff ? KOLO_OK : ko_coll_await_input(group, call);

    if (err || !call->is_coalesced)
        return err ? err : run_tensor(group, call, run);
    for (size_t i = 0; i < call->ntensors && !err; i++) {
        const struct ko_call part = ko_coll_tensor(call, i);

        err = run_tensor(group, &part, run);
    }
    return err;
}

/* ---- graphs ---------------------------------------------------------------------------------- */

static int fail_to_capture(const struct ko_call *call, const char *why)
{
    return ko_fail(KOLO_E_UNSUPPORTED, "%s cannot be captured for a graph: %s", ko_call_name(call),
                   why);
}

static int capture_tensor(kolo_group *group, const struct ko_call *call)
{
    struct meeting meeting;
    struct ko_gpu_plan plan;
    enum ko_reach reach;
    int err = meet_for(group, call, &meeting, &reach);

    if (err)
        return err;
    if (reach != KO_REACHED)
        return fail_to_capture(call, "its buffers are not in memory that all ranks reach");
    group->gpu_ways.captured++;
    count_places(group, meeting.offers);
    make_plan(group, call, &meeting, &plan);
    return ko_coll_put_in_stream(group, call, &plan, ko_gpu_user_stream(group->gpu));
}

int ko_coll_run_captured(kolo_group *group, const struct ko_call *call)
{
    int err;

    if (!is_shared(group))
        return fail_to_capture(call, "it goes by way of the host");
    if (!ko_gpu_share_has_words(group->share) && group->size > 1)
        return fail_to_capture(call, "the ranks have no words that streams can wait for");
    err = ko_group_watch(group, KO_GPU_GRAPHS);
    for (size_t i = 0; i < (call->is_coalesced ? call->ntensors : 1) && !err; i++) {
        const struct ko_call part = call->is_coalesced ? ko_coll_tensor(call, i) : *call;

        err = capture_tensor(group, &part);
    }
    return err;
}
