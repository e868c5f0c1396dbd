/* SPDX-License-Identifier: MIT
 *
 * The reductions for ARM's 64-bit machines, whose compilers take NEON for granted: all loops of the
 * plain level are made of it too, but for what converts float16.
 */
#if defined(__aarch64__)
#include "copy_line.h"

#include <arm_neon.h>
#include <string.h>

#define TARGET
#define TABLE ko_reductions_neon

enum { LANES = 4 };
typedef float32x4_t vector;
typedef int ints __attribute__((vector_size(4 * LANES)));
typedef short shorts __attribute__((vector_size(2 * LANES)));

static inline vector half_floats(shorts halves)
{
    return vcvt_f32_f16((float16x4_t)halves);
}

static inline shorts bytes_load(const void *from)
{
    int32_t bytes;

    memcpy(&bytes, from, sizeof bytes);
    return (shorts)vget_low_s16(vmovl_s8((int8x8_t)vdup_n_s32(bytes)));
}

static inline shorts half_shorts(vector value)
{
    return (shorts)vcvt_f16_f32(value);
}

static inline void stream_shorts(void *to, const shorts *line)
{
    ko_copy_line(to, line);
}

static inline void stream_line(void *to, const void *line)
{
    ko_copy_line(to, line);
}

#include "reduce_halves.h"

#include "reduce_loops.h"

#include "reduce_table.h"
#endif
