/* SPDX-License-Identifier: MIT
 *
 * To take memory away, the driver has its caller wait until all streams of the context have done
 * what is in them. A stream may wait for a call there, and that call for its caller: so what is of
 * no more use is kept until no stream of this process waits for a call, nor can come to.
 */
#include "gpu_parts.h"
#include "gpu_pieces.h"
#include "status.h"

#include <stdlib.h>
#include <time.h>

struct retired {
    enum ko_gpu_retired_kind kind;
    ko_cu_ptr at;
    size_t nbytes;
    struct retired *next;
};

/* Of all groups of the process. */
static struct {
    pthread_mutex_t lock; /* of who makes a stream wait, and who takes memory away */
    atomic_int n;         /* marks that streams wait for */
} waits = {.lock = PTHREAD_MUTEX_INITIALIZER};

void ko_gpu_begin_waiting(void)
{
    pthread_mutex_lock(&waits.lock);
}

void ko_gpu_count_waiting(int more)
{
    atomic_fetch_add(&waits.n, more);
}

void ko_gpu_end_waiting(void)
{
    pthread_mutex_unlock(&waits.lock);
}

bool ko_gpu_begin_freeing(int most_ms)
{
    const ko_deadline deadline = ko_deadline_in(most_ms);
    const struct timespec nap = {.tv_nsec = 20000};

    for (;;) {
        pthread_mutex_lock(&waits.lock);
        if (!atomic_load(&waits.n))
            return true;
        pthread_mutex_unlock(&waits.lock);
        if (ko_deadline_passed(&deadline))
            return false;
        nanosleep(&nap, NULL);
    }
}

void ko_gpu_end_freeing(void)
{
    pthread_mutex_unlock(&waits.lock);
}

/* What cannot be remembered stays until the process ends. */
void ko_gpu_retire(struct ko_gpu *gpu, enum ko_gpu_retired_kind kind, ko_cu_ptr at, size_t nbytes)
{
    struct retired *retired = at ? ko_alloc(sizeof *retired, "memory that has gone") : NULL;

    if (!retired)
        return;
    *retired = (struct retired){.kind = kind, .at = at, .nbytes = nbytes};
    pthread_mutex_lock(&gpu->lock);
    retired->next = gpu->retired;
    gpu->retired = retired;
    pthread_mutex_unlock(&gpu->lock);
}

void ko_gpu_retire_memory(struct ko_gpu *gpu, const struct ko_gpu_memory *memory)
{
    ko_gpu_retire(gpu, memory->is_piece ? KO_GPU_MAPPED : KO_GPU_MADE, memory->at, memory->nbytes);
}

static struct retired *take_all(struct ko_gpu *gpu)
{
    struct retired *all;

    pthread_mutex_lock(&gpu->lock);
    all = gpu->retired;
    gpu->retired = NULL;
    pthread_mutex_unlock(&gpu->lock);
    return all;
}

/* With the context. */
static void take_away(const struct ko_cuda *cuda, const struct retired *retired)
{
    switch (retired->kind) {
    case KO_GPU_OPENED:
        (void)cuda->ipc_close(retired->at);
        break;
    case KO_GPU_MAPPED:
        ko_gpu_pieces_unmap(cuda, retired->at, retired->nbytes);
        break;
    case KO_GPU_MADE:
        (void)cuda->free(retired->at);
        break;
    }
}

void ko_gpu_free_retired(struct ko_gpu *gpu, bool is_left)
{
    struct retired *next;

    for (struct retired *retired = take_all(gpu); retired; retired = next) {
        next = retired->next;
        if (!is_left)
            take_away(gpu->cuda, retired);
        free(retired);
    }
}

static bool has_retired(struct ko_gpu *gpu)
{
    bool has;

    pthread_mutex_lock(&gpu->lock);
    has = gpu->retired;
    pthread_mutex_unlock(&gpu->lock);
    return has;
}

void ko_gpu_tidy(struct ko_gpu *gpu)
{
    if (!has_retired(gpu) || !ko_gpu_begin_freeing(0))
        return;
    if (!ko_gpu_enter(gpu)) {
        ko_gpu_free_retired(gpu, false);
        ko_gpu_leave(gpu);
    }
    ko_gpu_end_freeing();
}
