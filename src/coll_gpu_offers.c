/* SPDX-License-Identifier: MIT */
#include "coll_gpu_offers.h"

#include "coll_gpu.h"
#include "coll_gpu_hand.h"

#include <stdio.h>
#include <string.h>

int ko_coll_exchange(kolo_group *group, enum ko_collective what, const void *in, void *out,
                     size_t nbytes, int root)
{
    const struct ko_call call = {
        .what = what, .in = in, .out = out, .count = nbytes, .dtype = KOLO_UINT8, .root = root};

    if (group->size > 1)
        return ko_coll_run_chosen(group, &call);
    if (out != in)
        memcpy(out, in, nbytes);
    return KOLO_OK;
}

static int make_offer(kolo_group *group, const struct ko_call *call, struct ko_offer *offer)
{
    const size_t in_bytes = ko_coll_is_read(group, call) ? ko_call_bytes(group, call, false) : 0;
    const size_t out_bytes = ko_coll_is_written(group, call) ? ko_call_bytes(group, call, true) : 0;
    int err;

    offer->stamp = (struct ko_stamp){.seq = group->seq,
                                     .count = call->is_uneven ? 0 : call->count,
                                     .root = (uint32_t)call->root | call->options,
                                     .what = ko_call_what(call),
                                     .dtype = (uint8_t)call->dtype,
                                     .op = (uint8_t)(call->is_scaled ? KO_PREMUL : call->op)};
    offer->factor = call->factor;
    offer->way = call->is_captured ? KO_OFFER_CAPTURED
                 : call->handoff   ? KO_OFFER_STREAMED
                                   : KO_OFFER_WAITED;
    offer->ready_ns = ko_now_ns();
    err = ko_gpu_share_describe(group->share, KO_GPU_ALL_RANKS, in_bytes ? call->in : NULL,
                                in_bytes, &offer->in);
    if (!err)
        err = ko_gpu_share_describe(group->share, KO_GPU_ALL_RANKS, out_bytes ? call->out : NULL,
                                    out_bytes, &offer->out);
    if (!err)
        err = ko_gpu_find_order(group->gpu, &offer->order);
    return err ? ko_group_fail(group, err, kolo_last_error()) : KOLO_OK;
}

static bool is_captured(const struct ko_offer *offer)
{
    return offer->way == KO_OFFER_CAPTURED;
}

static int check_offers(kolo_group *group, const struct ko_offer *offers)
{
    const struct ko_stamp *ours = &offers[group->rank].stamp;
    char text[128];

    for (int r = 0; r < group->size; r++)
        if (is_captured(&offers[r]) != is_captured(&offers[group->rank])) {
            snprintf(text, sizeof text, "rank %d captures a call for a graph, rank %d does not",
                     is_captured(&offers[r]) ? r : group->rank,
                     is_captured(&offers[r]) ? group->rank : r);
            return ko_group_fail(group, KOLO_E_MISMATCH, text);
        }
    for (int r = 0; r < group->size; r++)
        if (!ko_stamps_equal(&offers[r].stamp, ours))
            return ko_channel_mismatch(&group->collectives, r, &offers[r].stamp, ours);
    return KOLO_OK;
}

/* Descriptors that others wait for, when the ranks before this one have handed theirs over. */
static int serve(kolo_group *group, const struct ko_offer *offer)
{
    const int err = ko_coll_hand_over(group, group->share, &offer->in);

    return err ? err : ko_coll_hand_over(group, group->share, &offer->out);
}

/* What is new in a call that some rank cannot take part in is not reached by any, from now on; what
 * it only cannot yet, all ask about again. */
static void reject(kolo_group *group, int rank, const struct ko_gpu_place *place,
                   enum ko_reach reach)
{
    if (!place->is_new)
        return;
    if (reach == KO_UNREACHED)
        ko_gpu_share_refuse(group->share, rank, place);
    else
        ko_gpu_share_forget(group->share, rank, place);
    if (reach == KO_NOT_YET_REACHED && rank == group->rank)
        ko_gpu_share_tell_again(group->share, place);
}

static void reject_all(kolo_group *group, const struct ko_offer *offers, enum ko_reach reach)
{
    for (int r = 0; r < group->size; r++) {
        reject(group, r, &offers[r].in, reach);
        reject(group, r, &offers[r].out, reach);
    }
}

/* The least that a rank says. */
static int ask_all(kolo_group *group, enum ko_reach mine, enum ko_reach *all)
{
    const unsigned char own = (unsigned char)mine;
    unsigned char least = own;
    const struct ko_call call = {.what = KO_ALL_REDUCE,
                                 .in = &own,
                                 .out = &least,
                                 .count = 1,
                                 .dtype = KOLO_UINT8,
                                 .op = KOLO_MIN};
    int err = group->size > 1 ? ko_coll_run_chosen(group, &call) : KOLO_OK;

    *all = (enum ko_reach)least;
    return err;
}

static enum ko_reach least_of(enum ko_reach a, enum ko_reach b)
{
    return a < b ? a : b;
}

static enum ko_reach look_at(kolo_group *group, int rank, const struct ko_gpu_place *place)
{
    if (ko_gpu_share_reaches(group->share, rank, place))
        return KO_REACHED;
    return ko_gpu_share_has_put_off(group->share, rank, place) ? KO_NOT_YET_REACHED : KO_UNREACHED;
}

/* Whether all ranks reach all buffers. The ranks ask each other only about allocations that are
 * new: of others, all of them have the same answer. */
static int agree(kolo_group *group, const struct ko_offer *offers, enum ko_reach *reach)
{
    const struct ko_offer *ours = &offers[group->rank];
    enum ko_reach mine = KO_REACHED;
    bool is_new = false, is_possible = true;
    int err = KOLO_OK;

    for (int r = 0; r < group->size && !err; r++) {
        if (r == group->rank)
            err = serve(group, &offers[r]);
        is_possible &= offers[r].in.kind != KO_GPU_HOST && offers[r].out.kind != KO_GPU_HOST;
        is_new |= offers[r].in.is_new || offers[r].out.is_new;
        mine = least_of(mine, look_at(group, r, &offers[r].in));
        mine = least_of(mine, look_at(group, r, &offers[r].out));
    }
    if (!err && is_new)
        err = ask_all(group, mine, &mine);
    if (mine != KO_REACHED && is_new && !err)
        reject_all(group, offers, mine);
    *reach = is_possible ? mine : KO_UNREACHED;
    if (*reach == KO_REACHED && is_captured(ours)) {
        ko_gpu_share_keep(group->share, &ours->in);
        ko_gpu_share_keep(group->share, &ours->out);
    }
    return err;
}

int ko_coll_await_input(kolo_group *group, const struct ko_call *call)
{
    const ko_deadline deadline = ko_deadline_in(kolo_group_timeout(group));
    int err = ko_gpu_await_mark(group->gpu, call->mark, &deadline);

    /* A group that has failed meanwhile has nothing to say of this call. */
    return err ? ko_group_fail(group, err, kolo_last_error()) : ko_group_check(group);
}

int ko_coll_meet(kolo_group *group, const struct ko_call *call, bool is_direct,
                 struct ko_offer *all, enum ko_reach *reach)
{
    struct ko_offer mine = {.is_direct = is_direct};
    int err = make_offer(group, call, &mine);

    if (!err)
        err = ko_coll_exchange(group, KO_ALL_GATHER, &mine, all, sizeof mine, 0);
    if (!err)
        err = check_offers(group, all);
    return err ? err : agree(group, all, reach);
}
