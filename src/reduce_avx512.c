/* SPDX-License-Identifier: MIT
 *
 * The reductions for machines with AVX-512.
 */
#if defined(__x86_64__)
#include <immintrin.h>

#define TARGET __attribute__((target("avx2,avx512f,avx512bw,avx512dq,avx512vl")))
#define TABLE ko_reductions_avx512

enum { LANES = 16 };
typedef __m512 vector;
typedef int ints __attribute__((vector_size(4 * LANES)));
typedef short shorts __attribute__((vector_size(2 * LANES)));

TARGET static inline vector half_floats(shorts halves)
{
    return _mm512_cvtph_ps((__m256i)halves);
}

TARGET static inline shorts bytes_load(const void *from)
{
    return (shorts)_mm256_cvtepi8_epi16(_mm_loadu_si128(from));
}

TARGET static inline shorts half_shorts(vector value)
{
    return (shorts)_mm512_maskz_cvtps_ph(0xffff, value, _MM_FROUND_TO_NEAREST_INT);
}

TARGET static inline void stream_shorts(void *to, const shorts *line)
{
    _mm256_stream_si256(to, (__m256i)line[0]);
    _mm256_stream_si256((__m256i *)to + 1, (__m256i)line[1]);
}

TARGET static inline void stream_line(void *to, const void *line)
{
    _mm512_stream_si512(to, *(const __m512i *)line);
}

#include "reduce_halves.h"

#include "reduce_loops.h"

#include "reduce_table.h"
#endif
