/* SPDX-License-Identifier: MIT
 *
 * A countdown per point; 0 is "not armed". Empty but in test builds.
 */
#include "fault.h"

#ifdef KOLO_FAULT

#include <stdatomic.h>

static atomic_int countdown[KO_FAULT_NPOINTS];

void ko_fault_arm(enum ko_fault_point point, int nth)
{
    atomic_store(&countdown[point], nth);
}

bool ko_fault(enum ko_fault_point point)
{
    int left = atomic_load(&countdown[point]);

    while (left > 0)
        if (atomic_compare_exchange_weak(&countdown[point], &left, left - 1))
            return left == 1;
    return false;
}

#else

typedef int ko_fault_is_empty_here; /* ISO C wants a declaration in every file */

#endif
