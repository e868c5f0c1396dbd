/* SPDX-License-Identifier: MIT
 *
 * What happens when a group gets its first stream: its ranks find out whether all of them use one
 * GPU, and how they reach each other there.
 */
#include "coll.h"
#include "gpu_share.h"
#include "kernel_args.h"
#include "log.h"

#include <stdio.h>
#include <string.h>

/* What a rank says of itself when the ranks meet. */
struct presence {
    ko_cu_uuid gpu;
    uint32_t has_kernels, unused;
};

static bool is_here(const kolo_group *group, int rank)
{
    const struct ko_contact *own = &group->endpoint->own;
    const struct ko_contact *peer = ko_endpoint_known(group->endpoint, group->world_ranks[rank]);

    return peer->pid == own->pid && peer->processes == own->processes &&
           !strcmp(peer->machine, own->machine);
}

/* For graphs; none, if some rank does not reach them. */
static int share_words(kolo_group *group, struct ko_gpu_share *share)
{
    struct ko_gpu_place place = {.kind = KO_GPU_PRIVATE};
    unsigned char mine, all[KO_FOLD_MOST];
    bool is_reached = true;
    int err = KOLO_OK;

    if (group->rank == 0)
        err = ko_gpu_share_make_words(share, &place);
    if (err)
        return ko_group_fail(group, err, kolo_last_error());
    err = kolo_broadcast(group, &place, sizeof place, KOLO_UINT8, 0);
    if (err)
        return err;
    mine = ko_gpu_share_reaches(share, 0, &place);
    err = kolo_all_gather(group, &mine, all, 1, KOLO_UINT8);
    for (int r = 0; r < group->size && !err; r++)
        is_reached &= all[r];
    if (!err && is_reached)
        ko_gpu_share_open_words(share, &place);
    return err;
}

static int open_share(kolo_group *group)
{
    bool here[KO_FOLD_MOST];
    struct ko_gpu_share *share;
    int err;

    for (int r = 0; r < group->size; r++)
        here[r] = is_here(group, r);
    err = ko_gpu_share_open(group->gpu, group->size, here, &share);
    if (err)
        return err;
    err = share_words(group, share);
    if (err)
        ko_gpu_share_close(share);
    else
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
