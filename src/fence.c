/* SPDX-License-Identifier: MIT */
#include "fence.h"

#include "fault.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Of <linux/membarrier.h>, which old systems lack. */
enum { MEMBARRIER_GLOBAL = 1 << 1, MEMBARRIER_REGISTER_GLOBAL = 1 << 2 };

static long membarrier(int command)
{
    return ko_fault(KO_FAULT_FENCE) ? -1 : syscall(SYS_membarrier, command, 0, 0);
}

/* Whoever asks first finds what anybody would. */
bool ko_fence_is_split(void)
{
    enum { UNKNOWN, NO, YES };
    static atomic_int known;
    int answer = atomic_load_explicit(&known, memory_order_relaxed);

    if (answer == UNKNOWN) {
        const int saved = errno;

        answer =
            !membarrier(MEMBARRIER_REGISTER_GLOBAL) && !membarrier(MEMBARRIER_GLOBAL) ? YES : NO;
        atomic_store_explicit(&known, answer, memory_order_relaxed);
        errno = saved;
    }
    return answer == YES;
}

void ko_fence_others(void)
{
    if (ko_fence_is_split())
        (void)membarrier(MEMBARRIER_GLOBAL);
}
