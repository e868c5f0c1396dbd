/* SPDX-License-Identifier: MIT
 *
 * What adapters of a network need of a GPU's memory: a descriptor of it, and to have what they have
 * written there seen.
 */
#include "../double_dmabuf.h"
#include "ranges.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* A file of its own whose offset says where in the memory's file it begins. */
static int open_at(int fd, off_t begin)
{
    char path[64];
    int own;

    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    own = open(path, O_RDWR | O_CLOEXEC);
    if (own >= 0 && lseek(own, begin, SEEK_SET) != begin)
        abort();
    return own;
}

static ko_cu_result export_pages(const struct double_range *range, ko_cu_ptr at, int *fd)
{
    const void *base = range->block ? range->block->base : range->base;
    const int from = range->piece ? range->piece->fd : range->block ? range->block->fd : range->fd;
    const int own = open_at(from, (off_t)(at - (uintptr_t)base));

    if (own < 0)
        return KO_CU_OUT_OF_MEMORY;
    *fd = own;
    return KO_CU_SUCCESS;
}

/* ---- several pieces -------------------------------------------------------------------------- */

/* The piece that is to follow others: of the same properties. */
static const struct double_range *next_piece(const struct double_range *before, ko_cu_ptr at)
{
    const struct double_range *range = double_range_at(at);

    if (!range || range->kind != DOUBLE_PIECE)
        return NULL;
    return !before || (range->device == before->device &&
                       range->piece->has_descriptor == before->piece->has_descriptor)
               ? range
               : NULL;
}

/* A file of the double's own for each piece. */
static ko_cu_result open_run(ko_cu_ptr at, size_t nbytes, struct double_run *run)
{
    const struct double_range *range = NULL;
    const ko_cu_ptr end = at + nbytes;

    for (run->n = 0; at < end; run->n++) {
        ko_cu_ptr end_of_piece;
        int own;

        range = next_piece(range, at);
        if (!range || run->n == DOUBLE_RUN_MOST)
            return KO_CU_INVALID_VALUE;
        if (export_pages(range, at, &own))
            return KO_CU_OUT_OF_MEMORY;
        end_of_piece = (uintptr_t)range->base + range->nbytes;
        run->fds[run->n] = own;
        run->nbytes[run->n] = (end < end_of_piece ? end : end_of_piece) - at;
        at = end_of_piece;
    }
    return KO_CU_SUCCESS;
}

static ko_cu_result export_run(ko_cu_ptr at, size_t nbytes, int *fd)
{
    struct double_run run;
    ko_cu_result result = open_run(at, nbytes, &run);

    if (!result && !double_run_pack(&run, fd))
        result = KO_CU_OUT_OF_MEMORY;
    double_run_close(&run);
    return result;
}

/* ---- dma-bufs -------------------------------------------------------------------------------- */

/* Pages of the host's in which an allocation lies, or pieces side by side, of what this process has
 * allocated. */
ko_cu_result double_range_export(void *handle, ko_cu_ptr at, size_t nbytes, int type,
                                 unsigned long long flags)
{
    const int gives = double_number("FAKECUDA_DMA_BUF", 0);
    const struct double_range *range;
    ko_cu_result result = KO_CU_INVALID_VALUE;

    if (flags || type != KO_CU_RANGE_DMA_BUF || !nbytes || (at | nbytes) % DOUBLE_GRAIN)
        return KO_CU_INVALID_VALUE;
    if (!gives)
        return KO_CU_NOT_SUPPORTED;
    double_ranges_lock();
    range = double_range_around(at, nbytes, gives == 1 ? DOUBLE_GRAIN : 1);
    if (range)
        result = export_pages(range, at, handle);
    else if (gives == 1)
        result = export_run(at, nbytes, handle);
    double_ranges_unlock();
    return result;
}

/* ---- writes ---------------------------------------------------------------------------------- */

static int nflushes; /* atomic */

ko_cu_result double_flush_writes(int target, int scope)
{
    if (target != KO_CU_FLUSH_CONTEXT || scope != KO_CU_FLUSH_OWNER)
        return KO_CU_INVALID_VALUE;
    if (!double_context())
        return KO_CU_INVALID_CONTEXT;
    if (!(double_number("FAKECUDA_FLUSHES", 0) & KO_CU_FLUSH_BY_HOST))
        return KO_CU_NOT_SUPPORTED;
    __atomic_fetch_add(&nflushes, 1, __ATOMIC_SEQ_CST);
    return KO_CU_SUCCESS;
}

int fakecuda_flushes(void)
{
    return __atomic_load_n(&nflushes, __ATOMIC_SEQ_CST);
}
