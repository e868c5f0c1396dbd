/* SPDX-License-Identifier: MIT
 *
 * gradient_exam.h: calls of training with inputs and an oracle of their own: each rank's gradients
 * follow from its number, and are so few bits that sums are exact in any order; results are
 * computed from those alone and compared bit for bit.
 */
#ifndef GRADIENT_EXAM_H
#define GRADIENT_EXAM_H

#include "exam.h"

/* What `seed` says, and all ranks give alike: options, counts, blocking or not. memory: of the
 * buffers; NULL: the host's. 0, or ranks_fail. */

/* Some steps of one optimizer, one after the other. */
int gradient_exam_step(kolo_group *group, const struct exam_memory *memory, unsigned seed);

int gradient_exam_compressed(kolo_group *group, const struct exam_memory *memory, unsigned seed);

/* Tensors that are not alike on the ranks, of which some rank may have an odd number. */
int gradient_exam_unscale(kolo_group *group, const struct exam_memory *memory, unsigned seed);

/* The options of such a step, and what it makes of p and its states by the gradient g, times the
 * options' factor. */
kolo_step gradient_exam_options(unsigned seed);
float gradient_exam_move(const kolo_step *step, float p, float g, float states[2]);

/* A number that dtype has, or a smaller one near it. */
float gradient_exam_round(kolo_dtype dtype, float x);

#endif
