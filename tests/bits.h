/* SPDX-License-Identifier: MIT
 *
 * bits.h: kernels against what the host computes, bit by bit, of any bits: arrays between guards on
 * the GPU, and what has to lie there afterwards. For a rank that has entered a GPU (gpu_rank.h).
 * Functions return 0, or ranks_fail.
 */
#ifndef BITS_H
#define BITS_H

#include "cuda_kernels.h"
#include "exam.h"
#include "kernel_args.h"

#include <stdbool.h>
#include <stddef.h>

/* An array of count elements, so many bytes beyond where packs begin. */
struct bits_array {
    kolo_dtype dtype;
    size_t count, shift;
};

struct bits;
struct bits *bits_new(const struct bits_array *arrays, int n);
void bits_free(struct bits *bits);

/* The array's content here, before bits_put, and what it has to be then, before bits_check. */
unsigned char *bits_content(struct bits *bits, int array);
unsigned char *bits_wanted(struct bits *bits, int array);
uint64_t bits_at(const struct bits *bits, int array); /* on the GPU */

/* Any bits; is_tame: floats of a magnitude up to 2, or where there is no such bit to clear, any. */
void bits_randomize(struct bits *bits, int array, bool is_tame, unsigned *seed);

/* To the GPU; wanted is the same at first. */
void bits_put(struct bits *bits);

/* Whether all lies there as it has to, but for which NaN a NaN is; `what` begins the failure's
 * text. */
int bits_check(struct bits *bits, const char *what);

/* ---- trials: one kernel, random contents ----------------------------------------------------- */

/* Of a fold; with factors it is a premul. is_uneven: parts and outputs lie differently. */
struct bits_fold {
    kolo_dtype dtype;
    kolo_op op;
    size_t count, shift;
    int nparts, nouts;
    bool is_in_place, is_uneven, is_tame;
    const double *factors;
};
int bits_take_fold(const struct bits_fold *fold, unsigned *seed);

/* Of what training has: casts, sums of what is rounded, steps; all as the seed says, with arrays of
 * `least` up to `most` elements; if least is not 0, of casts one. */
int bits_take_casts(size_t least, size_t most, unsigned *seed);
int bits_take_rounded(size_t least, size_t most, unsigned *seed);
int bits_take_step(size_t least, size_t most, unsigned *seed);

/* ---- trials: one call of ranks that reach each other's memory -------------------------------- */

/* All_reduce, reduce or reduce_scatter. */
struct bits_reduction {
    enum ko_collective what;
    kolo_dtype dtype;
    kolo_op op;
    size_t share; /* elements of what a rank gets */
    bool is_in_place;
};

/* Of random numbers in memory of a GPU, as the host reduces those of all ranks at once, in the
 * order of the ranks; the same seed on all of them: a reduction; one as a smaller float; one with a
 * step; and any of these. */
int bits_take_reduction(kolo_group *group, const struct exam_memory *memory,
                        const struct bits_reduction *reduction, unsigned seed);
int bits_take_compressed(kolo_group *group, const struct exam_memory *memory, unsigned seed);
int bits_take_step_call(kolo_group *group, const struct exam_memory *memory, unsigned seed);
int bits_take_call(kolo_group *group, const struct exam_memory *memory, unsigned seed);

#endif
