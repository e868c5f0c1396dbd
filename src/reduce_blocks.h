/* SPDX-License-Identifier: MIT
 *
 * reduce_blocks.h: reductions of any number of parts from loops that take at most four at a time.
 * Whatever does not fit one loop goes over blocks that stay in the nearest cache between loops, so
 * that memory is read and written once.
 */
#ifndef KO_REDUCE_BLOCKS_H
#define KO_REDUCE_BLOCKS_H

#include "reduce.h"

enum { KO_MOST_AT_ONCE = 8 };

/* out = parts[0] op parts[1] op ..., of as many parts as the function is for. */
typedef void (*ko_fold_fn)(void *out, const void *const *parts, size_t count);

/* The same by lines, streamed to each of outs, which begin with a line. */
typedef void (*ko_stream_fn)(void *const *outs, int nouts, const void *const *parts, size_t nlines);
enum { KO_STREAMED_LINE = 64 };

/* Their sum divided by nranks. */
typedef void (*ko_average_fn)(void *out, const void *const *parts, size_t count, int nranks);

struct ko_folds {
    ko_reduce_fn two;
    ko_fold_fn of[KO_MOST_AT_ONCE + 1]; /* by the number of parts, from 3 on; NULL: none for it */
    ko_stream_fn streams[KO_MOST_AT_ONCE + 1]; /* the same, from 2 on */
};

/* All numbers of parts, which pays where folding in turns would widen and narrow in between. */
#define SUMS_TO_EIGHT(name)                                                                       \
    {                                                                                             \
        name##_two,                                                                               \
            {[3] = name##_of3, name##_of4, name##_of5, name##_of6, name##_of7, name##_of8},       \
        {                                                                                         \
            [2] = name##_stream2, name##_stream3, name##_stream4, name##_stream5, name##_stream6, \
            name##_stream7, name##_stream8                                                        \
        }                                                                                         \
    }

#define AVERAGES_TO_EIGHT(name)                                             \
    {                                                                       \
        [2] = name##2, name##3, name##4, name##5, name##6, name##7, name##8 \
    }

/* How a reduction is made up: each part widened (if there is a widen), folded, the sum divided by
 * the number of ranks (if there is a divide) and narrowed (if there was a widen). */
struct ko_kernels {
    size_t nbytes; /* of an element */
    size_t nwide;  /* of a widened one; nbytes if there is no widen */
    const struct ko_folds *folds;
    const struct ko_folds
        *direct; /* all of it at once, for the numbers of parts that it has; or NULL */
    void (*widen)(void *out, const void *in, size_t count);
    void (*narrow)(void *out, const void *in, size_t count);
    void (*divide)(void *out, size_t count, int nranks);
    const ko_average_fn
        *averages; /* all of it at once, by the number of parts, from 2 on; or NULL */
};

/* ko_reduce_many_fn, by such kernels. */
void ko_reduce_parts(const struct ko_kernels *kernels, void *out, const struct ko_parts *of);

/* ko_scale_fn, by the widen and narrow of kernels, and by scale in between. */
void ko_scale_wide(const struct ko_kernels *kernels, ko_scale_fn scale, void *out, const void *in,
                   size_t count, double factor);

#endif
