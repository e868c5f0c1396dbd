/* SPDX-License-Identifier: MIT
 *
 * What adapters of a network need of a GPU's memory: a descriptor of it, and to have what they have
 * written there seen.
 */
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

/* Pages of the host's in which an allocation lies, of what this process has allocated. */
ko_cu_result double_range_export(void *handle, ko_cu_ptr at, size_t nbytes, int type,
                                 unsigned long long flags)
{
    const int gives = double_number("FAKECUDA_DMA_BUF", 0);
    const struct double_range *range;
    ko_cu_result result;

    if (flags || type != KO_CU_RANGE_DMA_BUF || !nbytes || (at | nbytes) % DOUBLE_GRAIN)
        return KO_CU_INVALID_VALUE;
    if (!gives)
        return KO_CU_NOT_SUPPORTED;
    double_ranges_lock();
    range = double_range_around(at, nbytes, gives == 1 ? DOUBLE_GRAIN : 1);
    result = range ? export_pages(range, at, handle) : KO_CU_INVALID_VALUE;
    double_ranges_unlock();
    return result;
}

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
