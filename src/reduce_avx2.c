/* SPDX-License-Identifier: MIT
 *
 * The reductions for machines with AVX2, which have F16C too.
 */
#if defined(__x86_64__)
#include <immintrin.h>

#define TARGET __attribute__((target("avx2,f16c")))
#define TABLE ko_reductions_avx2

typedef __m256 vector;
enum { LANES = 8 };

TARGET static inline vector half_load(const void *from)
{
    return _mm256_cvtph_ps(_mm_loadu_si128(from));
}

TARGET static inline void half_store(void *to, vector value)
{
    _mm_storeu_si128(to, _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
}

#include "reduce_f16c.h"

#include "reduce_loops.h"

#include "reduce_table.h"
#endif
