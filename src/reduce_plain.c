/* SPDX-License-Identifier: MIT
 *
 * The reductions for the instruction set that the compiler takes for granted.
 */
#include <string.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

static inline void stream_line(void *to, const void *line)
{
#if defined(__x86_64__)
    for (int i = 0; i < 4; i++)
        _mm_stream_si128((__m128i *)to + i, ((const __m128i *)line)[i]);
#else
    memcpy(to, line, 64);
#endif
}

#define TARGET
#define TABLE ko_reductions_plain
#define HALF_LOOPS(name, type, work) BYTE_LOOPS(name, type, work)
#define BYTE_LOOPS(name, type, work) EXTREME_LOOPS(name, type, work) WIDEN_NARROW(name)
#define HALF_REDUCTIONS(name, type) BYTE_REDUCTIONS(name, type)
#include "reduce_loops.h"

#include "reduce_table.h"
