/* SPDX-License-Identifier: MIT
 *
 * The reductions for the instruction set that the compiler takes for granted.
 */
#define TARGET
#define TABLE ko_reductions_plain
#define HALF_LOOPS SMALL_LOOPS
#include "reduce_loops.h"

#include "reduce_table.h"
