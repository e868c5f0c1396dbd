/* SPDX-License-Identifier: MIT
 *
 * To take memory away, the driver has its caller wait until all streams of the context have done
 * what is in them. A stream may wait for a call there, and that call for its caller: so what is of
 * no more use is kept until no stream of this process waits for a call, nor can come to.
 */
#include "gpu_opened.h"
#include "gpu_parts.h"
#include "gpu_pieces.h"
#include "status.h"

#include <stdlib.h>

struct retired {
    enum { OPENED, PIECES, MADE, BLOCK } kind;
    struct ko_gpu_opened *opened;
    struct ko_gpu_block *block;
    ko_cu_ptr at;
    size_t nbytes;
    struct retired *next;
};

/* What cannot be remembered stays until the process ends. */
static void retire(struct ko_gpu *gpu, const struct retired *what)
{
    struct retired *retired = ko_alloc(sizeof *retired, "memory that has gone");

    if (!retired)
        return;
    *retired = *what;
    pthread_mutex_lock(&gpu->lock);
    retired->next = gpu->retired;
    gpu->retired = retired;
    pthread_mutex_unlock(&gpu->lock);
}

void ko_gpu_retire_opened(struct ko_gpu *gpu, struct ko_gpu_opened *opened)
{
    const struct retired what = {.kind = OPENED, .opened = opened};

    if (opened)
        retire(gpu, &what);
}

void ko_gpu_retire_pieces(struct ko_gpu *gpu, ko_cu_ptr at, size_t nbytes)
{
    const struct retired what = {.kind = PIECES, .at = at, .nbytes = nbytes};

    if (at)
        retire(gpu, &what);
}

void ko_gpu_retire_memory(struct ko_gpu *gpu, const struct ko_gpu_memory *memory)
{
    const struct retired what = {
        .kind = memory->is_piece ? PIECES : MADE, .at = memory->at, .nbytes = memory->nbytes};

    if (memory->at)
        retire(gpu, &what);
}

void ko_gpu_retire_block(struct ko_gpu *gpu, struct ko_gpu_block *block)
{
    const struct retired what = {.kind = BLOCK, .block = block};

    retire(gpu, &what);
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
    case OPENED:
        ko_gpu_opened_give(cuda, retired->opened);
        break;
    case PIECES:
        ko_gpu_pieces_unmap(cuda, retired->at, retired->nbytes);
        break;
    case MADE:
        (void)cuda->free(retired->at);
        break;
    case BLOCK:
        ko_gpu_free_block(cuda, retired->block);
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
