/* SPDX-License-Identifier: MIT
 *
 * What adapters of a network need of a GPU's memory: a descriptor of it, and to have what they have
 * written there seen.
 */
#include "ranges.h"

#include <fcntl.h>

/* The descriptor is that of the memory's own file, which begins where the range does. */
ko_cu_result double_range_export(void *handle, ko_cu_ptr at, size_t nbytes, int type,
                                 unsigned long long flags)
{
    ko_cu_result result = KO_CU_SUCCESS;
    struct double_range *range;

    if (flags || type != KO_CU_RANGE_DMA_BUF || !nbytes || (at | nbytes) % DOUBLE_GRAIN)
        return KO_CU_INVALID_VALUE;
    if (!double_number("FAKECUDA_DMA_BUF", 0))
        return KO_CU_NOT_SUPPORTED;
    double_ranges_lock();
    range = double_range_at(at);
    if (!double_range_begins(range, at) || nbytes > range->nbytes || range->kind == DOUBLE_HOST)
        result = KO_CU_INVALID_VALUE;
    else
        *(int *)handle =
            fcntl(range->kind == DOUBLE_PIECE ? range->piece->fd : range->fd, F_DUPFD_CLOEXEC, 0);
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
