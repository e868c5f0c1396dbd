/* SPDX-License-Identifier: MIT
 *
 * The reductions for machines with AVX2, which have F16C too.
 */
#if defined(__x86_64__)
#include <immintrin.h>

#define TARGET __attribute__((target("avx2,f16c")))
#define TABLE ko_reductions_avx2

enum { LANES = 8 };
typedef __m256 vector;
typedef int ints __attribute__((vector_size(4 * LANES)));
typedef short shorts __attribute__((vector_size(2 * LANES)));

TARGET static inline vector half_floats(shorts halves)
{
    return _mm256_cvtph_ps((__m128i)halves);
}

TARGET static inline shorts bytes_load(const void *from)
{
    return (shorts)_mm_cvtepi8_epi16(_mm_loadl_epi64(from));
}

TARGET static inline shorts half_shorts(vector value)
{
    return (shorts)_mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT);
}

TARGET static inline void stream_shorts(void *to, const shorts *line)
{
    _Pragma("GCC unroll 4") for (int i = 0; i < 4; i++)
        _mm_stream_si128((__m128i *)to + i, (__m128i)line[i]);
}

TARGET static inline void stream_line(void *to, const void *line)
{
    const __m256i *from = line;

    _mm256_stream_si256(to, from[0]);
    _mm256_stream_si256((__m256i *)to + 1, from[1]);
}

#include "reduce_halves.h"

#include "reduce_loops.h"

#include "reduce_table.h"
#endif
