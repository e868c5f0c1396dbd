/* SPDX-License-Identifier: MIT
 *
 * The reductions for machines with AVX-512.
 */
#if defined(__x86_64__)
#include <immintrin.h>

#define TARGET __attribute__((target("avx2,avx512f,avx512bw,avx512dq,avx512vl")))
#define TABLE ko_reductions_avx512

typedef __m512 vector;
enum { LANES = 16 };

TARGET static inline vector half_load(const void *from)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256(from));
}

TARGET static inline void half_store(void *to, vector value)
{
    _mm256_storeu_si256(to, _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
}

#include "reduce_f16c.h"

#include "reduce_loops.h"

#include "reduce_table.h"
#endif
