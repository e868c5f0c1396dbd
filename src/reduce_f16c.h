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

/* LANES elements of x[0] + x[1] + ... */
HALF_INLINE void half_sum(void *out, const char *const *x, int n)
{
    vector result = half_load(x[0]);

    for (int i = 1; i < n; i++)
        result = result + half_load(x[i]);
    half_store(out, result);
}

/* Everything is inlined into the functions below, where n is a constant. */
HALF_INLINE void half_sums(char *out, const char *const *parts, int n, size_t count)
{
    char rest[4][HALF_VECTOR] = {{0}};
    const char *x[4];
    const size_t nbytes = count * HALF_BYTES, left = nbytes % HALF_VECTOR;

    for (size_t at = 0; at < nbytes - left; at += HALF_VECTOR) {
        for (int i = 0; i < n; i++)
            x[i] = parts[i] + at;
        half_sum(out + at, x, n);
    }
    if (!left)
        return;
    for (int i = 0; i < n; i++)
        x[i] = memcpy(rest[i], parts[i] + nbytes - left, left);
    half_sum(rest[0], x, n);
    memcpy(out + nbytes - left, rest[0], left);
}

TARGET static void float16_sum_two(void *out, const void *a, const void *b, size_t count)
{
    half_sums(out, (const char *const[]){a, b}, 2, count);
}

TARGET static void float16_sum_three(void *out, const void *a, const void *b, const void *c,
                                     size_t count)
{
    half_sums(out, (const char *const[]){a, b, c}, 3, count);
}

TARGET static void float16_sum_four(void *out, const void *a, const void *b, const void *c,
                                    const void *d, size_t count)
{
    half_sums(out, (const char *const[]){a, b, c, d}, 4, count);
}

static const struct ko_folds float16_sum_folds = {float16_sum_two, float16_sum_three,
                                                  float16_sum_four};

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
