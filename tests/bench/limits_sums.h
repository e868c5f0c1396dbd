/* SPDX-License-Identifier: MIT
 *
 * limits_sums.h: the copies and sums of peer_limits.c. `own` NULL copies.
 */
#ifndef LIMITS_SUMS_H
#define LIMITS_SUMS_H

#include <immintrin.h>
#include <stddef.h>
#include <string.h>

static int by_strings;

/* Not memcpy, which may be either: which is faster depends on the processor, and on where the lines
 * are. */
static void copy(float *out, const float *from, size_t count)
{
    size_t i = 0, nbytes = count * sizeof *out;

    if (by_strings) {
        __asm__ volatile("rep movsb" : "+D"(out), "+S"(from), "+c"(nbytes) : : "memory");
        return;
    }
#ifdef __AVX2__
    for (; i + 16 <= count; i += 16) {
        __m256 low = _mm256_loadu_ps(from + i), high = _mm256_loadu_ps(from + i + 8);

        _mm256_storeu_ps(out + i, low);
        _mm256_storeu_ps(out + i + 8, high);
    }
#endif
    if (i < count)
        memcpy(out + i, from + i, (count - i) * sizeof *out);
}

static void combine(float *out, const float *own, const float *other, size_t count)
{
    if (!own)
        copy(out, other, count);
    else
        for (size_t i = 0; i < count; i++)
            out[i] = own[i] + other[i];
}

static void combine_nt(float *out, const float *own, const float *other, size_t count)
{
    size_t i = 0;

#ifdef __AVX2__
    for (; i + 8 <= count; i += 8) {
        __m256 sum = _mm256_loadu_ps(other + i);

        if (own)
            sum = _mm256_add_ps(sum, _mm256_loadu_ps(own + i));
        _mm256_stream_ps(out + i, sum);
    }
    _mm_sfence();
#endif
    combine(out + i, own ? own + i : NULL, other + i, count - i);
}

static void combine_twice(float *restrict out, float *restrict also, const float *own,
                          const float *other, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        float sum = own[i] + other[i];

        out[i] = sum;
        also[i] = sum;
    }
}

#endif
