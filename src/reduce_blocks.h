/* SPDX-License-Identifier: MIT
 *
 * reduce_blocks.h: reductions of any number of parts from loops that take at most four at a time.
 * Whatever does not fit one loop goes over blocks that stay in the nearest cache between loops, so
 * that memory is read and written once.
 */
#ifndef KO_REDUCE_BLOCKS_H
#define KO_REDUCE_BLOCKS_H

#include "reduce.h"

/* out = a op b op c op d. */
typedef void (*ko_fold3_fn)(void *out, const void *a, const void *b, const void *c, size_t count);
typedef void (*ko_fold4_fn)(void *out, const void *a, const void *b, const void *c, const void *d,
                            size_t count);

struct ko_folds {
    ko_reduce_fn two;
    ko_fold3_fn three; /* NULL, as four, for a reduction that is too rare for them */
    ko_fold4_fn four;
};

/* How a reduction is made up: each part widened (if there is a widen), folded, the sum divided by
 * the number of ranks (if there is a divide) and narrowed (if there was a widen). */
struct ko_kernels {
    size_t nbytes; /* of an element */
    size_t nwide;  /* of a widened one; nbytes if there is no widen */
    const struct ko_folds *folds;
    const struct ko_folds *direct; /* all of it at once, for as many parts as they take; or NULL */
    void (*widen)(void *out, const void *in, size_t count);
    void (*narrow)(void *out, const void *in, size_t count);
    void (*divide)(void *out, size_t count, int nranks);
};

/* ko_reduce_many_fn, by such kernels. */
void ko_reduce_parts(const struct ko_kernels *kernels, void *out, const struct ko_parts *of);

/* ko_scale_fn, by the widen and narrow of kernels, and by scale in between. */
void ko_scale_wide(const struct ko_kernels *kernels, ko_scale_fn scale, void *out, const void *in,
                   size_t count, double factor);

#endif
