/* SPDX-License-Identifier: MIT
 *
 * What happens when a group gets its first stream: its ranks find out whether all of them use one
 * GPU, or GPUs that reach each other's memory, and how they reach each other there.
 */
#include "coll.h"
#include "coll_gpu_hand.h"
#include "coll_gpu_writers.h"
#include "config.h"
#include "gpu_share.h"
#include "kernel_args.h"
#include "log.h"
#include "mailbox_gpu.h"
#include "status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a rank says of itself when the ranks meet. */
struct presence {
    ko_cu_uuid gpu;
    uint64_t process; /* ko_cuda_process */
    uint32_t has_kernels;
    uint32_t can_wait;     /* its streams, for words */
    uint32_t has_adapters; /* that may reach it, from other hosts */
    uint32_t unused;
};

static bool is_here(const kolo_group *group, int rank)
{
    return ko_contact_is_here(&group->endpoint->own,
                              ko_endpoint_known(group->endpoint, group->world_ranks[rank]));
}

/* The least that any rank says. */
static int find_least(kolo_group *group, unsigned char mine, unsigned char *least)
{
    *least = 0;
    return kolo_all_reduce(group, &mine, least, 1, KOLO_UINT8, KOLO_MIN);
}

/* Whether all ranks say yes. */
static int agree(kolo_group *group, bool mine, bool *all)
{
    unsigned char least;
    int err = find_least(group, mine, &least);

    *all = !err && least;
    return err;
}

/* How far ranks of a host have come with each other's words. */
enum reach {
    REFUSED, /* some cannot be opened, */
    PUT_OFF, /* or not yet */
    REACHED
};

static enum reach reach_of(struct ko_gpu_share *share, int rank, const struct ko_gpu_place *place)
{
    if (ko_gpu_share_reaches(share, rank, place))
        return REACHED;
    return ko_gpu_share_has_put_off(share, rank, place) ? PUT_OFF : REFUSED;
}

/* With room for what all ranks say. reach: by all others of their hosts. */
static int exchange_words(kolo_group *group, struct ko_gpu_share *share, struct ko_gpu_place *all,
                          enum reach *reach)
{
    const ko_deadline deadline = ko_deadline_in(kolo_group_timeout(group));
    struct ko_gpu_place mine;
    enum reach own = REACHED, one;
    unsigned char least = REFUSED;
    int err = ko_gpu_share_make_words(share, &deadline, &mine);

    if (err)
        return ko_group_fail(group, err, kolo_last_error());
    err = kolo_all_gather(group, &mine, all, sizeof mine, KOLO_UINT8);
    for (int r = 0; r < group->size && !err; r++) {
        if (r == group->rank) /* one rank after the other */
            err = ko_coll_hand_over(group, share, &all[r]);
        one = reach_of(share, r, &all[r]);
        own = one < own ? one : own;
    }
    if (!err)
        err = find_least(group, (unsigned char)own, &least);
    *reach = (enum reach)least;
    return err;
}

static int try_words(kolo_group *group, struct ko_gpu_share *share, enum reach *reach)
{
    struct ko_gpu_place *all = ko_alloc((size_t)group->size * sizeof *all, "a group's words");
    int err;

    if (!all)
        return ko_group_fail(group, KOLO_E_NOMEM, kolo_last_error());
    err = exchange_words(group, share, all, reach);
    for (int r = 0; r < group->size && !err && *reach == REACHED && group->hosts->n == 1; r++)
        ko_gpu_share_open_words(share, r, &all[r]);
    free(all);
    return err;
}

/* For graphs of one host's ranks, and to find out whether ranks of a host reach each other's
 * memory. What is not reached by handles is perhaps without. */
static int share_words(kolo_group *group, struct ko_gpu_share *share, enum reach *reach)
{
    const bool has_handles = ko_gpu_share_has_handles(share);
    enum reach by_handles;
    int err = try_words(group, share, reach);

    if (err || *reach == REACHED)
        return err;
    by_handles = *reach;
    ko_gpu_share_set_handles(share, false);
    err = try_words(group, share, reach);
    if (!err && *reach != REACHED) {
        ko_gpu_share_set_handles(share, has_handles);
        *reach = by_handles > *reach ? by_handles : *reach;
    }
    return err;
}

static void introduce_ranks(const kolo_group *group, const struct presence *all,
                            struct ko_gpu_share *share)
{
    for (int r = 0; r < group->size; r++)
        if (ko_group_is_mate(group, r))
            ko_gpu_share_set_process(share, r, all[r].process);
        else
            ko_gpu_share_set_away(share, r);
}

/* Whether memory that has no handles is reached, where words have been by these. */
static int try_pieces(kolo_group *group, const struct presence *all, const bool *here,
                      enum ko_gpu_layout layout, bool *are_reached)
{
    struct ko_gpu_share *trial;
    enum reach reach = REFUSED;
    int err = ko_gpu_share_open(group->gpu, group->size, here, layout, &trial);

    if (err)
        return ko_group_fail(group, err, kolo_last_error());
    introduce_ranks(group, all, trial);
    ko_gpu_share_set_handles(trial, false);
    err = try_words(group, trial, &reach);
    ko_gpu_share_discard(trial);
    *are_reached = reach == REACHED;
    return err;
}

/* For messages: all ranks, or none. Each may have its own KOLO_CUDA_IPC. */
static int open_places(kolo_group *group, const struct presence *all, const bool *here,
                       enum ko_gpu_layout layout, const struct ko_gpu_share *share)
{
    struct ko_places *places;
    bool has_pieces = false;
    int err = try_pieces(group, all, here, layout, &has_pieces);

    if (err)
        return err;
    err = ko_places_open(group->gpu, group->size, here, layout, &places);
    if (err)
        return ko_group_fail(group, err, kolo_last_error());
    for (int r = 0; r < group->size; r++)
        ko_places_set_process(places, r, all[r].process);
    if (has_pieces)
        ko_places_send_pieces(places);
    if (!ko_gpu_share_has_handles(share))
        ko_places_forgo_handles(places);
    if (!ko_gpu_share_has_handles(share) && group->hosts->n == 1)
        ko_gpu_prefer_pieces(group->gpu);
    atomic_store(&group->places, places);
    return KOLO_OK;
}

static bool have_mates(const kolo_group *group)
{
    return group->hosts->n == 1 || group->hosts->n < group->size;
}

/* With ranks on several GPUs there is nothing to be had where one cannot open another's memory. */
static bool is_in_vain(const kolo_group *group, enum ko_gpu_layout layout, enum reach reach)
{
    if (layout == KO_GPU_ONE || !have_mates(group) || reach != REFUSED)
        return false;
    ko_log(KO_LOG_INFO, "a rank cannot open the memory of another one's GPU; its log says why");
    return true;
}

/* here: which ranks are of this process. */
static int open_share(kolo_group *group, const struct presence *all, const bool *here,
                      enum ko_gpu_layout layout)
{
    struct ko_gpu_share *share;
    enum reach reach = REFUSED;
    int err = ko_gpu_share_open(group->gpu, group->size, here, layout, &share);

    if (err)
        return ko_group_fail(group, err, kolo_last_error());
    introduce_ranks(group, all, share);
    if (have_mates(group))
        err = share_words(group, share, &reach);
    if (err || is_in_vain(group, layout, reach)) {
        ko_gpu_share_discard(share);
        return err;
    }
    if (reach == REACHED)
        err = open_places(group, all, here, layout, share);
    if (!err && have_mates(group) && group->size > 1)
        err = ko_coll_meet_writers(group, here);
    atomic_store(&group->share, share);
    return err;
}

static int open_for_all(kolo_group *group, const struct presence *all, enum ko_gpu_layout layout)
{
    bool *here = ko_alloc((size_t)group->size * sizeof *here, "a group's GPUs");
    int err;

    if (!here)
        return ko_group_fail(group, KOLO_E_NOMEM, kolo_last_error());
    for (int r = 0; r < group->size; r++)
        here[r] = is_here(group, r);
    err = open_share(group, all, here, layout);
    free(here);
    return err;
}

static void describe_self(kolo_group *group, struct presence *presence)
{
    *presence = (struct presence){.has_kernels = 0};
    if (group->gpu && !ko_gpu_identify(group->gpu, &presence->gpu)) {
        presence->process = ko_cuda_process();
        presence->has_kernels = ko_gpu_has_kernels(group->gpu);
        presence->can_wait = ko_gpu_can_wait(group->gpu);
        presence->has_adapters = ko_endpoint_reaches_gpus(group->endpoint) &&
                                 strcmp(ko_config_text(KO_CONFIG_GPUDIRECT), "0") != 0;
    }
}

static bool has_means(const struct presence *all, int rank)
{
    if (all[rank].has_kernels && !all[rank].can_wait)
        ko_log(KO_LOG_INFO, "streams of rank %d's GPU cannot wait for others'", rank);
    return all[rank].has_kernels && all[rank].can_wait;
}

/* Whether the ranks of a host could reach each other's memory, or adapters that of all, and any
 * would gain by it, as far as that is known to all ranks alike. */
static bool are_on_gpus(const kolo_group *group, const struct presence *all)
{
    const bool can_share = have_mates(group);
    bool are = true;

    for (int r = 0; r < group->size && are; r++)
        are = has_means(all, r) && (can_share || all[r].has_adapters);
    return are;
}

/* Each of several hosts may be another. */
static enum ko_gpu_layout layout_of(const kolo_group *group, const struct presence *all)
{
    bool are_one = true, are_different = true;

    if (group->hosts->n > 1)
        return KO_GPU_SEVERAL;
    for (int r = 1; r < group->size; r++)
        for (int other = 0; other < r; other++) {
            const bool are_same = !memcmp(&all[r].gpu, &all[other].gpu, sizeof all[r].gpu);

            are_one &= are_same;
            are_different &= !are_same;
        }
    return are_one ? KO_GPU_ONE : are_different ? KO_GPU_EACH : KO_GPU_SEVERAL;
}

/* Of a rank of its host; those of its own GPU are reached anyway. */
static enum ko_gpu_access access_to(const kolo_group *group, const struct presence *all, int rank)
{
    const ko_cu_uuid *own = &all[group->rank].gpu, *other = &all[rank].gpu;
    int64_t is_wanted;

    if (ko_config_number(KO_CONFIG_CUDA_PEERS, &is_wanted))
        return KO_GPU_NO_ACCESS;
    if (!memcmp(other, own, sizeof *own))
        return KO_GPU_ACCESS;
    return is_wanted ? ko_gpu_access_to(group->gpu, other) : KO_GPU_NO_ACCESS;
}

/* As far as is known before any memory is opened. */
static bool may_reach_all(const kolo_group *group, const struct presence *all)
{
    int hidden = -1;

    for (int r = 0; r < group->size; r++) {
        const enum ko_gpu_access access =
            ko_group_is_mate(group, r) ? access_to(group, all, r) : KO_GPU_ACCESS;

        if (access == KO_GPU_NO_ACCESS) {
            ko_log(KO_LOG_INFO, "the GPU of rank %d has no access to the memory of rank %d's",
                   group->rank, r);
            return false;
        }
        if (access == KO_GPU_ACCESS_UNKNOWN)
            hidden = r;
    }
    if (hidden >= 0)
        ko_log(KO_LOG_INFO,
               "the GPU of rank %d is one that rank %d's driver does not list "
               "(CUDA_VISIBLE_DEVICES): whether its memory can be opened decides",
               hidden, group->rank);
    return true;
}

/* Whether any rank has one. */
static int find_gpus(kolo_group *group)
{
    const unsigned char mine = group->gpu != NULL;
    unsigned char any = mine;
    int err = kolo_all_reduce(group, &mine, &any, 1, KOLO_UINT8, KOLO_MAX);

    if (!err)
        atomic_store(&group->has_gpus, any != 0);
    return err;
}

/* With room for what all ranks say. */
static int meet_with(kolo_group *group, struct presence *all)
{
    struct presence mine;
    enum ko_gpu_layout layout = KO_GPU_ONE;
    bool are_together = false;
    int err;

    describe_self(group, &mine);
    err = kolo_all_gather(group, &mine, all, sizeof mine, KOLO_UINT8);
    if (!err)
        are_together = are_on_gpus(group, all);
    if (are_together)
        layout = layout_of(group, all);
    if (layout != KO_GPU_ONE)
        err = agree(group, may_reach_all(group, all), &are_together);
    if (!err && are_together)
        err = open_for_all(group, all, layout);
    if (!err)
        ko_log(KO_LOG_INFO, "collectives of GPU memory go %s",
               !group->share          ? "by way of host memory"
               : group->hosts->n > 1  ? "each rank its share between hosts"
               : layout == KO_GPU_ONE ? "through the GPU that all ranks share"
                                      : "from GPU to GPU");
    return err;
}

/* All ranks together, also those that have no GPU. */
static int meet(kolo_group *group)
{
    struct presence *all;
    int err = find_gpus(group);

    if (err || !group->has_gpus)
        return err;
    if (group->hosts->most > KO_FOLD_MOST) {
        ko_log(KO_LOG_INFO,
               "collectives of GPU memory go by way of host memory: %d ranks of one host are more "
               "than the %d that can share it",
               group->hosts->most, KO_FOLD_MOST);
        return KOLO_OK;
    }
    all = ko_alloc((size_t)group->size * sizeof *all, "the GPUs of a group's ranks");
    if (!all)
        return ko_group_fail(group, KOLO_E_NOMEM, kolo_last_error());
    err = meet_with(group, all);
    free(all);
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
    if (!atomic_exchange(&group->has_met, true)) {
        met = meet(group);
        atomic_store(&group->has_gathered, true);
    }
    return err ? ko_fail_again(err, why) : met;
}
