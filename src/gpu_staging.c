/* SPDX-License-Identifier: MIT
 *
 * Host memory that copies reach quickly, since the driver has it locked: from any other, and to it,
 * it copies by a small buffer of its own, and keeps its caller. To lock memory takes longer than to
 * copy what is short, and to let go of it may be to wait for all streams, so that both are seldom
 * done.
 */
#include "gpu_parts.h"
#include "status.h"

#include <stdlib.h>

enum { PAGE = 4096, LEAST_BLOCK = 64 << 10, MOST_SPARE = 256 << 20 };

/* ---- blocks ---------------------------------------------------------------------------------- */

/* is_shared: such as ranks of the host read where it is, if there is any left. */
static bool allocate(struct ko_gpu_block *block, bool is_shared)
{
    void *memory = NULL;

    block->is_shared = is_shared && !kolo_mem_alloc(block->nbytes, &memory);
    if (!block->is_shared && posix_memalign(&memory, PAGE, block->nbytes))
        return false;
    block->memory = memory;
    return true;
}

/* With the context. Memory that cannot be registered, as beyond the limit of locked memory, is
 * copied more slowly. */
static struct ko_gpu_block *make(const struct ko_cuda *cuda, size_t nbytes, bool is_shared)
{
    struct ko_gpu_block *block = ko_alloc(sizeof *block, "the copy of a GPU's buffers");

    if (!block)
        return NULL;
    block->nbytes = nbytes;
    if (!allocate(block, is_shared)) {
        free(block);
        (void)ko_fail(KOLO_E_NOMEM, "no memory for the copy of a GPU's buffers (%zu bytes)",
                      nbytes);
        return NULL;
    }
    block->is_registered = !cuda->host_register(block->memory, nbytes, KO_CU_HOST_PORTABLE);
    return block;
}

void ko_gpu_free_block(const struct ko_cuda *cuda, struct ko_gpu_block *block)
{
    if (block->is_registered)
        (void)cuda->host_unregister(block->memory);
    if (block->is_shared)
        (void)kolo_mem_free(block->memory);
    else
        free(block->memory);
    free(block);
}

static void free_list(const struct ko_cuda *cuda, struct ko_gpu_block *list, bool is_left)
{
    struct ko_gpu_block *next;

    for (struct ko_gpu_block *block = list; block; block = next) {
        next = block->next;
        if (is_left)
            free(block);
        else
            ko_gpu_free_block(cuda, block);
    }
}

void ko_gpu_free_blocks(struct ko_gpu *gpu, bool is_left)
{
    free_list(gpu->cuda, gpu->staging, is_left);
    free_list(gpu->cuda, gpu->spare_blocks, is_left);
    free_list(gpu->cuda, gpu->left_blocks, is_left);
    gpu->staging = gpu->spare_blocks = gpu->left_blocks = NULL;
}

/* ---- of calls, one at a time ----------------------------------------------------------------- */

static int grow(struct ko_gpu *gpu, size_t nbytes)
{
    const size_t twice = gpu->staging ? 2 * gpu->staging->nbytes : 0;
    const size_t pages = ((nbytes > twice ? nbytes : twice) + PAGE - 1) / PAGE * PAGE;
    struct ko_gpu_block *block = make(gpu->cuda, pages, true);

    if (!block)
        return KOLO_E_NOMEM;
    block->next = gpu->staging;
    gpu->staging = block;
    return KOLO_OK;
}

int ko_gpu_staging(struct ko_gpu *gpu, size_t nbytes, unsigned char **memory)
{
    int err = KOLO_OK;

    if (!gpu->staging || gpu->staging->nbytes < nbytes) {
        err = ko_gpu_enter(gpu);
        if (err)
            return err;
        err = grow(gpu, nbytes);
        ko_gpu_leave(gpu);
    }
    if (!err)
        *memory = gpu->staging->memory;
    return err;
}

/* ---- to borrow ------------------------------------------------------------------------------- */

/* The shortest one that is long enough; NULL: there is none. */
static struct ko_gpu_block *take_spare(struct ko_gpu *gpu, size_t nbytes)
{
    struct ko_gpu_block **best = NULL, *block = NULL;

    pthread_mutex_lock(&gpu->lock);
    for (struct ko_gpu_block **at = &gpu->spare_blocks; *at; at = &(*at)->next)
        if ((*at)->nbytes >= nbytes && (!best || (*at)->nbytes < (*best)->nbytes))
            best = at;
    if (best) {
        block = *best;
        *best = block->next;
        gpu->spare_bytes -= block->nbytes;
    }
    pthread_mutex_unlock(&gpu->lock);
    return block;
}

/* Of few lengths, so that one serves the next. */
static size_t round_up(size_t nbytes)
{
    size_t rounded = LEAST_BLOCK;

    while (rounded < nbytes && rounded < MOST_SPARE)
        rounded *= 2;
    return rounded < nbytes ? (nbytes + PAGE - 1) / PAGE * PAGE : rounded;
}

int ko_gpu_borrow(struct ko_gpu *gpu, size_t nbytes, struct ko_gpu_block **block_out)
{
    struct ko_gpu_block *block = take_spare(gpu, nbytes);
    int err = block ? KOLO_OK : ko_gpu_enter(gpu);

    if (err)
        return err;
    if (!block) {
        block = make(gpu->cuda, round_up(nbytes), false);
        ko_gpu_leave(gpu);
    }
    if (!block)
        return KOLO_E_NOMEM;
    *block_out = block;
    return KOLO_OK;
}

void ko_gpu_give_back(struct ko_gpu *gpu, struct ko_gpu_block *block, bool is_left)
{
    struct ko_gpu_block **list = is_left ? &gpu->left_blocks : &gpu->spare_blocks;
    bool is_too_much;

    if (!block)
        return;
    pthread_mutex_lock(&gpu->lock);
    is_too_much = !is_left && gpu->spare_bytes + block->nbytes > MOST_SPARE;
    if (!is_too_much) {
        block->next = *list;
        *list = block;
        gpu->spare_bytes += is_left ? 0 : block->nbytes;
    }
    pthread_mutex_unlock(&gpu->lock);
    if (!is_too_much)
        return;
    ko_gpu_retire_block(gpu, block);
    ko_gpu_tidy(gpu);
}
