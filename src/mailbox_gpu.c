/* SPDX-License-Identifier: MIT
 *
 * The allocations that messages come from are mapped once, as those of collectives are, but in a
 * list of their own: the ranks do not come together here.
 */
#include "mailbox_gpu.h"

#include "group.h"
#include "status.h"

#include <pthread.h>
#include <stdlib.h>

struct ko_places {
    pthread_mutex_t lock;
    struct ko_gpu_share *share;
};

int ko_places_open(struct ko_gpu *gpu, int n, const bool *is_here, enum ko_gpu_layout layout,
                   struct ko_places **places_out)
{
    struct ko_places *places = ko_alloc(sizeof *places, "a group's messages from GPU memory");
    int err = places ? ko_gpu_share_open(gpu, n, is_here, layout, &places->share) : KOLO_E_NOMEM;

    if (err) {
        free(places);
        return err;
    }
    ko_gpu_share_keep_handles(places->share);
    pthread_mutex_init(&places->lock, NULL);
    *places_out = places;
    return KOLO_OK;
}

void ko_places_close(struct ko_places *places)
{
    if (!places)
        return;
    ko_gpu_share_close(places->share);
    pthread_mutex_destroy(&places->lock);
    free(places);
}

bool ko_places_describe(kolo_group *group, int to, const void *buffer, size_t nbytes,
                        struct ko_gpu_place *place)
{
    struct ko_places *places = atomic_load(&group->places);
    bool is_open;

    if (!places || nbytes <= sizeof *place)
        return false;
    pthread_mutex_lock(&places->lock);
    is_open = !ko_gpu_share_describe(places->share, buffer, nbytes, place) &&
              ko_gpu_share_is_open_to(places->share, to, place);
    pthread_mutex_unlock(&places->lock);
    return is_open;
}

/* The message's address here. */
static int find(struct ko_places *places, const struct ko_fetch *fetch, int from, uint64_t *at)
{
    bool is_reached;

    pthread_mutex_lock(&places->lock);
    is_reached = ko_gpu_share_reaches(places->share, from, &fetch->place);
    if (is_reached)
        *at = ko_gpu_share_address(places->share, from, &fetch->place);
    pthread_mutex_unlock(&places->lock);
    return is_reached
               ? KOLO_OK
               : ko_fail(KOLO_E_SYSTEM, "GPU memory that a message lies in cannot be opened here; "
                                        "KOLO_CUDA_IPC=off sends messages by way of host memory");
}

static int begin(struct ko_gpu *gpu, struct ko_places *places, struct ko_fetch *fetch, int from)
{
    const struct ko_placed *placed = fetch->letter->placed;
    void *to = placed ? placed->buffer : fetch->letter->buffer;
    uint64_t at;
    int err = placed ? ko_gpu_look_at_mark(gpu, placed->mark) : KOLO_OK;

    if (!err)
        err = find(places, fetch, from, &at);
    if (!err)
        err = ko_gpu_copy(gpu, to, (const void *)(uintptr_t)at, fetch->nbytes);
    if (!err)
        err = ko_gpu_mark_own(gpu, &fetch->copied);
    return err ? err : KO_AGAIN;
}

int ko_fetch_step(struct ko_fetch *fetch, int from)
{
    kolo_group *group = fetch->letter->group;
    struct ko_places *places = atomic_load(&group->places);
    int err;

    if (!places) /* another rank was ready earlier */
        return KO_AGAIN;
    if (!fetch->copied)
        return begin(group->gpu, places, fetch, from);
    err = ko_gpu_look_at_mark(group->gpu, fetch->copied);
    if (err == KO_AGAIN)
        return err;
    ko_gpu_let_go(group->gpu, fetch->copied);
    fetch->copied = NULL;
    if (!err && fetch->letter->placed)
        fetch->letter->placed->is_fetched = true;
    return err;
}

void ko_fetch_free(struct ko_fetch *fetch)
{
    if (fetch && fetch->copied)
        ko_gpu_let_go(fetch->letter->group->gpu, fetch->copied);
    free(fetch);
}
