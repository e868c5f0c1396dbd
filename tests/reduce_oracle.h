/* SPDX-License-Identifier: MIT
 *
 * reduce_oracle.h: what reductions have to give, one element at a time, in wider types; and inputs
 * for them. An element is its bits.
 */
#ifndef REDUCE_ORACLE_H
#define REDUCE_ORACLE_H

#include "kolo.h"

#include <stdbool.h>

/* a op b. nranks != 0: as the last step among so many. */
uint64_t oracle_reduce(kolo_dtype dtype, kolo_op op, uint64_t a, uint64_t b, int nranks);
/* Equal, or two NaNs. */
bool oracle_same(kolo_dtype dtype, uint64_t got, uint64_t expected);

/* Element i of a buffer. */
uint64_t oracle_get(kolo_dtype dtype, const char *buffer, size_t i);
void oracle_put(kolo_dtype dtype, char *buffer, size_t i, uint64_t bits);

/* Extremes against extremes first, then random bits, half of the floats of moderate size: those
 * with an odd i >= 145. */
uint64_t oracle_input(kolo_dtype dtype, size_t i, bool is_second);
uint64_t oracle_random(void);

/* Calls check for every reduction that there is, at every level of the processor's. */
void oracle_each_reduction(void (*check)(int level, kolo_dtype dtype, kolo_op op));

/* All bits of an element. */
uint64_t oracle_mask(kolo_dtype dtype);
__int128 oracle_integer(kolo_dtype dtype, uint64_t bits);
double oracle_float(kolo_dtype dtype, uint64_t bits);
uint64_t oracle_bits(kolo_dtype dtype, double value);
/* As the arithmetic type of dtype holds it: double, or float for all others. */
double oracle_precision(kolo_dtype dtype, double value);

#endif
