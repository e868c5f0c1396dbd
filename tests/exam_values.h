/* SPDX-License-Identifier: MIT
 *
 * exam_values.h: inputs that are exact in every dtype, and what they come to when reduced.
 */
#ifndef EXAM_VALUES_H
#define EXAM_VALUES_H

#include "exam.h"

#include <stdint.h>

/* Any bits: what is only moved. */
uint64_t exam_scramble(uint64_t rank, uint64_t i);

/* Element i of the rank's input as a whole number; of n ranks. Any two of numbers i that are far
 * from each other have nothing to do with each other. */
int64_t exam_number(kolo_dtype dtype, kolo_op op, int rank, uint64_t i, int n);

/* What element i of all n ranks comes to. */
int64_t exam_reduced(kolo_dtype dtype, kolo_op op, uint64_t i, int n);

/* The number as dtype holds it. */
void exam_write_number(kolo_dtype dtype, int64_t value, void *to);

/* Elements of a buffer, or of what is reduced. */
struct exam_part {
    size_t first, count;
};

/* Those of the rank's input, and those of what the inputs of all n ranks come to. */
void exam_write_inputs(const struct exam *exam, int n, int rank, struct exam_part part, void *to);
void exam_write_reduced(const struct exam *exam, int n, struct exam_part part, void *to);

#endif
