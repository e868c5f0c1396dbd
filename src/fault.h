/* SPDX-License-Identifier: MIT
 *
 * fault.h: failures on demand. In a test build (-DKOLO_FAULT) a test arms a point, and the n-th
 * time the library passes it, the step there fails as the system might have let it fail. In any
 * other build ko_fault is a constant.
 */
#ifndef KO_FAULT_H
#define KO_FAULT_H

#include <stdbool.h>

enum ko_fault_point {
    KO_FAULT_ALLOC,   /* ko_alloc finds no memory */
    KO_FAULT_SEGMENT, /* a shared segment cannot be made or mapped */
    KO_FAULT_PAGES,   /* a part of one that has no memory yet is given none */
    KO_FAULT_SOCKET,  /* a socket cannot be made, bound or connected */
    KO_FAULT_SEND,    /* a socket's write fails */
    KO_FAULT_SHORT,   /* a socket takes half of what is written */
    KO_FAULT_RECV,    /* a socket's read fails */
    KO_FAULT_FOREIGN, /* a peer's memory cannot be read */
    KO_FAULT_THREAD,  /* a thread cannot be started */
    KO_FAULT_FENCE,   /* the kernel orders nobody's accesses (fence.h) */
    KO_FAULT_NPOINTS
};

#ifdef KOLO_FAULT
/* The nth passage from now on (1 = the next) fails, once; 0 disarms. Any thread. */
void ko_fault_arm(enum ko_fault_point point, int nth);
bool ko_fault(enum ko_fault_point point);
#else
static inline bool ko_fault(enum ko_fault_point point)
{
    (void)point;
    return false;
}
#endif

#endif
