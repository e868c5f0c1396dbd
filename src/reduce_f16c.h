/* SPDX-License-Identifier: MIT
 *
 * reduce_f16c.h: float16 arithmetic by the x86 instructions that convert it, which no compiler
 * finds by itself in the loops of reduce.c; the same bits, several times as fast.
 */
#ifndef KO_REDUCE_F16C_H
#define KO_REDUCE_F16C_H

#include "reduce.h"

#include <stdbool.h>

/* False if this machine has no such instructions, or if op needs none. */
bool ko_reduction_find_f16c(kolo_op op, struct ko_reduction *reduction);

#endif
