/* SPDX-License-Identifier: MIT
 *
 * reduce.h: out = a op b, element by element, on the host. Buffers may have any alignment; out may
 * be one of the operands, but overlap none in part. Nothing here keeps state; any thread.
 *
 * The order of the operands does not matter, except for which of two NaNs survives: -0 is smaller
 * than +0, sums and products of two commute. Integers wrap. Floats of 16 and 8 bits are
 * computed in float32 and rounded once per call.
 */
#ifndef KO_REDUCE_H
#define KO_REDUCE_H

#include "kolo.h"

#include <stdbool.h>
#include <stddef.h>

typedef void (*ko_reduce_fn)(void *out, const void *a, const void *b, size_t count);
typedef void (*ko_reduce_last_fn)(void *out, const void *a, const void *b, size_t count,
                                  int nranks);
typedef void (*ko_reduce_many_fn)(void *out, const void *const *parts, int nparts, size_t count,
                                  int nranks);
typedef void (*ko_scale_fn)(void *out, const void *in, size_t count, double factor);

/* step joins one more rank's elements to those of others; last does so with those of the last of
 * nranks >= 2 ranks. They differ for AVG alone, where step adds and last adds and divides: a small
 * float is still rounded once; an integer sum has wrapped before it is divided.
 *
 * many: out = parts[0] op parts[1] op ... of nparts >= 1, in this order, as a last step. Every part
 * is read once, and rounded to the element type is what has been computed of all. Of two parts it
 * gives the bits of last, of more those of a step each and a last at the end, but for small
 * floats, which the steps round each time.
 *
 * scale: out = in * factor, whatever the op; out may be in. The factor is first made a number of
 * the type that dtype is computed in: float32 for smaller floats, whose product is rounded once; of
 * integers dtype itself, truncated towards zero, or the nearest that there is (0 for NaN); the
 * product wraps. Of bool, whether it is not 0. */
struct ko_folds;

struct ko_reduction {
    size_t nbytes; /* of an element */
    ko_reduce_fn step;
    ko_reduce_last_fn last;
    ko_reduce_many_fn many;
    ko_scale_fn scale;
    const struct ko_folds *folds; /* reduce_blocks.h: of last, if it is one; else NULL */
};

/* The loops for the best instruction set of this machine.
 * KOLO_E_INVALID for what is no dtype or no op, KOLO_E_UNSUPPORTED for BAND, BOR, BXOR of floats
 * and AVG of bool. */
int ko_reduction_find(kolo_dtype dtype, kolo_op op, struct ko_reduction *reduction);

/* The same where it lies, for whoever calls often; NULL for what is none. */
const struct ko_reduction *ko_reduction_of(kolo_dtype dtype, kolo_op op);

/* Instruction sets 0 (any machine) ... nlevels - 1 (the best that this one has), for tests and
 * information. All give the same bits. */
int ko_reduction_nlevels(void);
const char *ko_reduction_level_name(int level);
int ko_reduction_find_at(int level, kolo_dtype dtype, kolo_op op, struct ko_reduction *reduction);

/* What many takes, but for its out. */
struct ko_parts {
    const void *const *parts;
    int n;
    size_t count;
    int nranks;
};

/* many, with its result in each of outs[nouts], any of which may be a part. is_streaming: around
 * the caches (see copy.h), for results that would not stay there; of two parts as well. At most
 * KO_MOST_STREAMED parts. */
enum { KO_MOST_STREAMED = 64 };

void ko_reduce_into(const struct ko_reduction *reduction, void *const *outs, int nouts,
                    const struct ko_parts *of, bool is_streaming);

/* The reduction over one rank: in copied to out (which may be in), bool as 0 or 1. Errors
 * as above. */
int ko_reduce_single(kolo_dtype dtype, kolo_op op, void *out, const void *in, size_t count);

#endif
