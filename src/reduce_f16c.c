/* SPDX-License-Identifier: MIT
 *
 * Eight elements at a time; the rest goes through buffers of eight. Everything is inlined into the
 * functions of the table, where op is a constant.
 */
#include "reduce_f16c.h"

#if defined(__x86_64__)

#include <cpuid.h>
#include <immintrin.h>
#include <string.h>

#define TARGET __attribute__((target("avx,f16c")))
#define INLINE TARGET static inline __attribute__((always_inline))

enum { WIDTH = 8, ELEMENT = 2, VECTOR = WIDTH * ELEMENT };

/* VECTOR bytes at each pointer. */
INLINE void reduce_vector(kolo_op op, char *out, const char *a, const char *b, float nranks)
{
    __m256 x = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i_u *)a));
    __m256 y = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i_u *)b));
    __m256 result = op == KOLO_PROD ? _mm256_mul_ps(x, y) : _mm256_add_ps(x, y);

    if (op == KOLO_AVG)
        result = _mm256_div_ps(result, _mm256_set1_ps(nranks));
    _mm_storeu_si128((__m128i_u *)out, _mm256_cvtps_ph(result, _MM_FROUND_TO_NEAREST_INT));
}

INLINE void reduce(kolo_op op, char *out, const char *a, const char *b, size_t count, int nranks)
{
    char rest[3][VECTOR] = {{0}};
    size_t nbytes = count * ELEMENT;

    for (; nbytes >= VECTOR; nbytes -= VECTOR) {
        reduce_vector(op, out, a, b, (float)nranks);
        out += VECTOR;
        a += VECTOR;
        b += VECTOR;
    }
    if (!nbytes)
        return;
    memcpy(rest[0], a, nbytes);
    memcpy(rest[1], b, nbytes);
    reduce_vector(op, rest[2], rest[0], rest[1], (float)nranks);
    memcpy(out, rest[2], nbytes);
}

TARGET static void sum(void *out, const void *a, const void *b, size_t count)
{
    reduce(KOLO_SUM, out, a, b, count, 1);
}

TARGET static void sum_last(void *out, const void *a, const void *b, size_t count, int nranks)
{
    (void)nranks;
    sum(out, a, b, count);
}

TARGET static void avg_last(void *out, const void *a, const void *b, size_t count, int nranks)
{
    reduce(KOLO_AVG, out, a, b, count, nranks);
}

TARGET static void prod(void *out, const void *a, const void *b, size_t count)
{
    reduce(KOLO_PROD, out, a, b, count, 1);
}

TARGET static void prod_last(void *out, const void *a, const void *b, size_t count, int nranks)
{
    (void)nranks;
    prod(out, a, b, count);
}

/* Asked of the CPU itself, since clang 14 has no name for it; AVX, of which it is a part, needs the
 * operating system's consent, which __builtin_cpu_supports looks up. */
static bool has_f16c(void)
{
    unsigned eax, ebx, ecx = 0, edx;

    return __builtin_cpu_supports("avx") && __get_cpuid(1, &eax, &ebx, &ecx, &edx) &&
           (ecx & bit_F16C) != 0;
}

bool ko_reduction_find_f16c(kolo_op op, struct ko_reduction *reduction)
{
    static const struct ko_reduction reductions[KOLO_NOPS] = {
        [KOLO_SUM] = {sum, sum_last},
        [KOLO_PROD] = {prod, prod_last},
        [KOLO_AVG] = {sum, avg_last},
    };

    if (!reductions[op].step || !has_f16c())
        return false;
    *reduction = reductions[op];
    return true;
}

#else

bool ko_reduction_find_f16c(kolo_op op, struct ko_reduction *reduction)
{
    (void)op;
    (void)reduction;
    return false;
}

#endif
