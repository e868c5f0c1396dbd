/* SPDX-License-Identifier: MIT
 *
 * reduce_f16c.h: a text rather than a header: float16 sums and conversions by the instructions of
 * x86 for it, which no compiler finds by itself in the loops of reduce_loops.h; the same bits,
 * several times as fast. The files that include it give TARGET, the vector of LANES floats and
 * half_load and half_store, between it and LANES float16. What does not fill a vector goes through
 * buffers that do.
 */
#include "reduce_blocks.h"

#include <string.h>

#define HALF_INLINE TARGET static inline __attribute__((always_inline))

enum { HALF_BYTES = 2, HALF_VECTOR = LANES * HALF_BYTES };

/* LANES elements of n parts, from byte at on. */
HALF_INLINE void half_sum(char *out, const char *const *parts, int n, size_t at)
{
    vector sum = half_load(parts[0] + at);

    _Pragma("GCC unroll 8") for (int i = 1; i < n; i++) sum += half_load(parts[i] + at);
    half_store(out + at, sum);
}

/* Inlined into the functions below, where n is a constant. */
HALF_INLINE void half_sums(char *out, const void *const *from, int n, size_t count)
{
    char rest[KO_MOST_AT_ONCE][HALF_VECTOR] = {{0}};
    const char *parts[KO_MOST_AT_ONCE];
    const size_t nbytes = count * HALF_BYTES, left = nbytes % HALF_VECTOR;

    _Pragma("GCC unroll 8") for (int i = 0; i < n; i++) parts[i] = from[i];
    for (size_t at = 0; at < nbytes - left; at += HALF_VECTOR)
        half_sum(out, parts, n, at);
    if (!left)
        return;
    for (int i = 0; i < n; i++)
        parts[i] = memcpy(rest[i], parts[i] + nbytes - left, left);
    half_sum(rest[0], parts, n, 0);
    memcpy(out + nbytes - left, rest[0], left);
}

TARGET static void float16_sum_two(void *out, const void *a, const void *b, size_t count)
{
    half_sums(out, (const void *const[]){a, b}, 2, count);
}

#define HALF_FOLD(n)                                                                        \
    TARGET static void float16_sum_of##n(void *out, const void *const *parts, size_t count) \
    {                                                                                       \
        half_sums(out, parts, n, count);                                                    \
    }
HALF_FOLD(3)
HALF_FOLD(4)
HALF_FOLD(5)
HALF_FOLD(6)
HALF_FOLD(7)
HALF_FOLD(8)

static const struct ko_folds float16_sum_folds = SUMS_TO_EIGHT(float16_sum);

TARGET static void float16_widen(void *out_, const void *in_, size_t count)
{
    char *out = out_, rest[HALF_VECTOR] = {0};
    const char *in = in_;
    vector wide;

    for (; count >= LANES; count -= LANES, in += HALF_VECTOR, out += sizeof wide) {
        wide = half_load(in);
        memcpy(out, &wide, sizeof wide);
    }
    if (!count)
        return;
    memcpy(rest, in, count * HALF_BYTES);
    wide = half_load(rest);
    memcpy(out, &wide, count * sizeof(float));
}

TARGET static void float16_narrow(void *out_, const void *in_, size_t count)
{
    char *out = out_, rest[HALF_VECTOR];
    const char *in = in_;
    vector wide = {0};

    for (; count >= LANES; count -= LANES, in += sizeof wide, out += HALF_VECTOR) {
        memcpy(&wide, in, sizeof wide);
        half_store(out, wide);
    }
    if (!count)
        return;
    memcpy(&wide, in, count * sizeof(float));
    half_store(rest, wide);
    memcpy(out, rest, count * HALF_BYTES);
}

#define HALF_LOOPS(name, type, work) EXTREME_LOOPS(name, type, work)
#define HALF_REDUCTIONS(name, type) SMALL_REDUCTIONS(name, type)
