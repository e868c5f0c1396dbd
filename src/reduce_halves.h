/* SPDX-License-Identifier: MIT
 *
 * reduce_halves.h: a text rather than a header: float16 sums and conversions by the instructions
 * that a processor has for it, which no compiler finds by itself in the loops of reduce_loops.h;
 * the same bits, and on x86 several times as fast. 8-bit floats widen by way of float16. The files
 * that include it give TARGET, LANES, the vector types of as many floats, ints and shorts,
 * half_floats, which widens shorts, half_shorts, its inverse, bytes_load, which makes shorts of
 * signed bytes, and stream_shorts, of a line of them. What does not fill a vector goes through
 * buffers that do.
 */
#include "reduce_blocks.h"

#include <string.h>

#define HALF_INLINE TARGET static inline __attribute__((always_inline))

enum { HALF_BYTES = 2, HALF_VECTOR = LANES * HALF_BYTES };

TARGET static inline vector half_load(const void *from)
{
    shorts halves;

    memcpy(&halves, from, sizeof halves);
    return half_floats(halves);
}

HALF_INLINE void half_store(void *to, shorts halves)
{
    memcpy(to, &halves, sizeof halves);
}

/* LANES elements of n parts, from byte at on, divided by `by`. */
HALF_INLINE shorts half_sum(const char *const *parts, int n, size_t at, float by)
{
    vector sum = half_load(parts[0] + at);

    _Pragma("GCC unroll 8") for (int i = 1; i < n; i++) sum += half_load(parts[i] + at);
    if (by != 1)
        sum /= by;
    return half_shorts(sum);
}

/* Inlined into the functions below, where n is a constant. */
HALF_INLINE void half_sums(char *out, const void *const *from, int n, size_t count, float by)
{
    char rest[KO_MOST_AT_ONCE][HALF_VECTOR] = {{0}};
    const char *parts[KO_MOST_AT_ONCE];
    const size_t nbytes = count * HALF_BYTES, left = nbytes % HALF_VECTOR;

    _Pragma("GCC unroll 8") for (int i = 0; i < n; i++) parts[i] = from[i];
    for (size_t at = 0; at < nbytes - left; at += HALF_VECTOR)
        half_store(out + at, half_sum(parts, n, at, by));
    if (!left)
        return;
    for (int i = 0; i < n; i++)
        parts[i] = memcpy(rest[i], parts[i] + nbytes - left, left);
    half_store(rest[0], half_sum(parts, n, 0, by));
    memcpy(out + nbytes - left, rest[0], left);
}

TARGET static void float16_sum_two(void *out, const void *a, const void *b, size_t count)
{
    half_sums(out, (const void *const[]){a, b}, 2, count, 1);
}

#define HALF_AVERAGE(n)                                                                      \
    TARGET static void float16_average##n(void *out, const void *const *parts, size_t count, \
                                          int nranks)                                        \
    {                                                                                        \
        half_sums(out, parts, n, count, (float)nranks);                                      \
    }
HALF_AVERAGE(2)
HALF_AVERAGE(3)
HALF_AVERAGE(4)
HALF_AVERAGE(5)
HALF_AVERAGE(6)
HALF_AVERAGE(7)
HALF_AVERAGE(8)

TARGET static void float16_scale(void *out_, const void *in_, size_t count, double factor_)
{
    const float factor = (float)factor_;
    const size_t nbytes = count * HALF_BYTES, left = nbytes % HALF_VECTOR;
    char *out = out_, rest[HALF_VECTOR] = {0};
    const char *in = in_;

    for (size_t at = 0; at < nbytes - left; at += HALF_VECTOR)
        half_store(out + at, half_shorts(half_load(in + at) * factor));
    if (!left)
        return;
    memcpy(rest, in + nbytes - left, left);
    half_store(rest, half_shorts(half_load(rest) * factor));
    memcpy(out + nbytes - left, rest, left);
}

HALF_INLINE void half_stream(void *const *outs, int nouts, const void *const *from, int n,
                             size_t nlines)
{
    enum { IN_LINE = KO_STREAMED_LINE / HALF_VECTOR };
    shorts line[IN_LINE]; /* in registers: it was to be loaded more widely than it is stored */
    const char *parts[KO_MOST_AT_ONCE];

    for (size_t at = 0; at < nlines * KO_STREAMED_LINE; at += KO_STREAMED_LINE) {
        _Pragma("GCC unroll 8") for (int i = 0; i < n; i++) parts[i] = (const char *)from[i] + at;
        _Pragma("GCC unroll 8") for (size_t i = 0; i < IN_LINE; i++) line[i] =
            half_sum(parts, n, i * HALF_VECTOR, 1);
        for (int k = 0; k < nouts; k++)
            stream_shorts((char *)outs[k] + at, line);
    }
}

#define HALF_STREAM(n)                                                                \
    TARGET static void float16_sum_stream##n(void *const *outs, int nouts,            \
                                             const void *const *parts, size_t nlines) \
    {                                                                                 \
        half_stream(outs, nouts, parts, n, nlines);                                   \
    }
#define HALF_FOLD(n)                                                                        \
    TARGET static void float16_sum_of##n(void *out, const void *const *parts, size_t count) \
    {                                                                                       \
        half_sums(out, parts, n, count, 1);                                                 \
    }
HALF_FOLD(3)
HALF_FOLD(4)
HALF_FOLD(5)
HALF_FOLD(6)
HALF_FOLD(7)
HALF_FOLD(8)
HALF_STREAM(2)
HALF_STREAM(3)
HALF_STREAM(4)
HALF_STREAM(5)
HALF_STREAM(6)
HALF_STREAM(7)
HALF_STREAM(8)

static const struct ko_folds float16_sum_folds = SUMS_TO_EIGHT(float16_sum);

/* The upper half of a float16. */
TARGET static inline vector e5m2_load(const void *from)
{
    return half_floats(bytes_load(from) << 8);
}

/* As a float16 each is 2^-8 of itself, and a NaN what would follow the largest number. */
TARGET static inline vector e4m3_load(const void *from)
{
    const vector value = half_floats((bytes_load(from) << 7) & (short)0xbfff) * 256;
    const ints is_nan = (ints)(value > 448) | (ints)(value < -448);

    return (vector)((ints)value | (is_nan & 0x7fc00000));
}

#define WIDEN(name, nbytes, load)                                                       \
    TARGET static void name##_widen(void *out_, const void *in_, size_t count)          \
    {                                                                                   \
        char *out = out_, rest[LANES * (nbytes)] = {0};                                 \
        const char *in = in_;                                                           \
        vector wide;                                                                    \
                                                                                        \
        for (; count >= LANES; count -= LANES, in += sizeof rest, out += sizeof wide) { \
            wide = load(in);                                                            \
            memcpy(out, &wide, sizeof wide);                                            \
        }                                                                               \
        if (!count)                                                                     \
            return;                                                                     \
        memcpy(rest, in, count *(nbytes));                                              \
        wide = load(rest);                                                              \
        memcpy(out, &wide, count * sizeof(float));                                      \
    }
WIDEN(float16, 2, half_load)
WIDEN(float8_e4m3, 1, e4m3_load)
WIDEN(float8_e5m2, 1, e5m2_load)

TARGET static void float16_narrow(void *out_, const void *in_, size_t count)
{
    char *out = out_, rest[HALF_VECTOR];
    const char *in = in_;
    vector wide = {0};

    for (; count >= LANES; count -= LANES, in += sizeof wide, out += HALF_VECTOR) {
        memcpy(&wide, in, sizeof wide);
        half_store(out, half_shorts(wide));
    }
    if (!count)
        return;
    memcpy(&wide, in, count * sizeof(float));
    half_store(rest, half_shorts(wide));
    memcpy(out, rest, count * HALF_BYTES);
}

#define HALF_LOOPS(name, type, work) EXTREME_LOOPS(name, type, work)
#define BYTE_LOOPS(name, type, work) EXTREME_LOOPS(name, type, work) NARROW(name)
#define HALF_REDUCTIONS(name, type) SMALL_REDUCTIONS(name, type)
