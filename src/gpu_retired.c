/* SPDX-License-Identifier: MIT
 *
 * To take memory away, the driver has its caller wait until all streams of the context have done
 * what is in them. A stream may wait for a call there, and that call for its caller: so what is of
 * no more use is kept until no stream of this process waits for a call, nor can come to. Nor is it
 * taken away while a call is behind what the user has in a stream, or that call would last as long,
 * whatever its limit.
 */
#include "clock.h"
#include "gpu_opened.h"
#include "gpu_parts.h"
#include "gpu_pieces.h"
#include "status.h"

#include <stdlib.h>

/* ---- when ----------------------------------------------------------------------------------- */

/* Kernels of graphs say that they wait in another word, again and again as long as they do, and
 * make it 0 behind that: it is taken away, and what has been said lately holds. */
static bool has_waiting_kernel(struct ko_gpu *gpu)
{
    enum { LATELY_MS = 2 };
    const int64_t now_ns = ko_now_ns();

    for (int i = 0; i < KO_PUSH_BLOCKS; i++)
        if (atomic_exchange(&gpu->page->stalled[1][i], 0))
            gpu->stalled_ns = now_ns;
    return gpu->stalled_ns && now_ns - gpu->stalled_ns < LATELY_MS * INT64_C(1000000);
}

static struct ko_gpu *gpu_of(struct ko_gpu_waiter *waiter)
{
    return (struct ko_gpu *)((uintptr_t)waiter - offsetof(struct ko_gpu, waiter));
}

bool ko_gpu_is_behind(struct ko_gpu_waiter *waiter)
{
    struct ko_gpu *gpu = gpu_of(waiter);
    const struct ko_gpu_mark *mark;

    pthread_mutex_lock(&gpu->lock);
    mark = gpu->youngest; /* the elder ones stay as they are */
    pthread_mutex_unlock(&gpu->lock);
    if (ko_gpu_enter(gpu))
        return false;
    while (mark && gpu->cuda->event_query(mark->reached) != KO_CU_NOT_READY)
        mark = mark->elder;
    ko_gpu_leave(gpu);
    return mark;
}

/* No call puts anything into a stream meanwhile: it would be counted. */
bool ko_gpu_is_waiting(struct ko_gpu_waiter *waiter)
{
    struct ko_gpu *gpu = gpu_of(waiter);
    ko_cu_result result;

    if (ko_gpu_page_is_awaited(gpu->page) || has_waiting_kernel(gpu))
        return true;
    if (ko_gpu_enter(gpu))
        return false;
    result = gpu->cuda->event_query(gpu->put);
    ko_gpu_leave(gpu);
    return result == KO_CU_NOT_READY;
}

/* ---- what ----------------------------------------------------------------------------------- */

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

/* With the context: as far as the driver waits for no stream. The rest stays until the process
 * ends. */
static void leave(const struct ko_cuda *cuda, const struct retired *retired)
{
    if (retired->kind == OPENED)
        ko_gpu_opened_leave(retired->opened);
    else if (retired->kind == PIECES)
        ko_gpu_pieces_unmap(cuda, retired->at, retired->nbytes);
}

void ko_gpu_free_retired(struct ko_gpu *gpu, bool is_left)
{
    struct retired *next;

    for (struct retired *retired = take_all(gpu); retired; retired = next) {
        next = retired->next;
        (is_left ? leave : take_away)(gpu->cuda, retired);
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
    if (!has_retired(gpu) || !ko_gpu_begin_tidying())
        return;
    if (!ko_gpu_enter(gpu)) {
        ko_gpu_free_retired(gpu, false);
        ko_gpu_leave(gpu);
    }
    ko_gpu_end_freeing();
}
