/* SPDX-License-Identifier: MIT
 *
 * fence.h: a fence of which one side is free. Two threads each store a word and then look at the
 * other's; one of the two must see what the other has stored. If both use ordered stores, both pay
 * for it. Where one does it often and the other seldom, the seldom one can pay for both: it has the
 * kernel order the accesses of all processors (membarrier(2)), and the often one's store need only
 * come first in its program (ko_store_first).
 */
#ifndef KO_FENCE_H
#define KO_FENCE_H

#include <stdbool.h>

/* True if this process can order others' accesses, and others can order its. Any thread; the same
 * answer each time. */
bool ko_fence_is_split(void);

/* Orders what this thread did before against what it does after it, and so for every thread of a
 * process in which ko_fence_is_split. Nothing where it is false. */
void ko_fence_others(void);

#endif
