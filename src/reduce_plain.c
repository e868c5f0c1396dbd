/* SPDX-License-Identifier: MIT
 *
 * The reductions for the instruction set that the compiler takes for granted.
 */
#include "copy_line.h"

static inline void stream_line(void *to, const void *line)
{
    ko_copy_line(to, line);
}

#define TARGET
#define TABLE ko_reductions_plain
#define HALF_LOOPS(name, type, work) BYTE_LOOPS(name, type, work)
#define BYTE_LOOPS(name, type, work) EXTREME_LOOPS(name, type, work) WIDEN_NARROW(name)
#define HALF_REDUCTIONS(name, type) BYTE_REDUCTIONS(name, type)
#include "reduce_loops.h"

#include "reduce_table.h"
