/* SPDX-License-Identifier: MIT
 *
 * kernel_args.h: the one argument of each kernel, for the host that fills it in and the device that
 * reads it. Plain structs whose members lie alike in C, C++ and CUDA.
 */
#ifndef KO_KERNEL_ARGS_H
#define KO_KERNEL_ARGS_H

#include "rules.h"

#include <assert.h>
#include <stdint.h>

enum { KO_FOLD_MOST = 16 }; /* parts, and outputs */

/* ko_fold_DTYPE_OP: each of outs[nouts] = parts[0] op parts[1] op ... op parts[nparts - 1], element
 * by element in this order, divided by divisor >= 1. An output may be a part. Any alignment that
 * suits the elements. */
struct ko_fold {
    uint64_t parts[KO_FOLD_MOST]; /* addresses */
    uint64_t outs[KO_FOLD_MOST];
    uint64_t count; /* elements */
    uint32_t nparts, nouts;
    uint32_t divisor; /* the number of ranks for AVG, else 1 */
    uint32_t unused;
};

static_assert(sizeof(struct ko_fold) == 2 * KO_FOLD_MOST * 8 + 24, "no padding, anywhere");

/* ko_premul_DTYPE: the same as a sum (of bool: an or), of parts that are multiplied by a factor of
 * their own first, and rounded then. A factor is of the type that is computed in, at the beginning
 * of 8 bytes that are else 0. */
struct ko_premul_fold {
    struct ko_fold fold;
    uint64_t factors[KO_FOLD_MOST];
};

static_assert(sizeof(struct ko_premul_fold) == sizeof(struct ko_fold) + KO_FOLD_MOST * 8,
              "none here");

/* ko_scale_FROM_TO: each element of to[a] = that of from[a] times factor, and times the float32 at
 * factor_at, if that is not 0. If found_at is not 0, the float32 there becomes 1 if an element of
 * any from[a] is infinite or no number; else it stays. to[a] may be from[a]. */
struct ko_scale {
    uint64_t from[KO_FOLD_MOST]; /* addresses */
    uint64_t to[KO_FOLD_MOST];
    uint64_t counts[KO_FOLD_MOST]; /* elements of each array */
    uint64_t factor_at, found_at;
    float factor;
    uint32_t n; /* arrays */
};

static_assert(sizeof(struct ko_scale) == 3 * KO_FOLD_MOST * 8 + 24, "no padding, anywhere");

/* ko_sgd_DTYPE, ko_adam_DTYPE: the gradients parts[nparts] are added, in this order, divided by
 * divisor >= 1, rounded to their type as an all_reduce would leave them, and multiplied by the
 * rule's factor and the float32 at factor_at as above. By them the float32 parameters at outs[0],
 * and their states at states[s][0], make a step (rules.h); all of outs[nouts] become the new
 * parameters, all of states[s][nouts] the new states. Not if the float32 at skip_at, which is 0 if
 * there is none, is not 0. sgd has the first state only, and without momentum none. */
struct ko_step {
    uint64_t parts[KO_FOLD_MOST]; /* addresses */
    uint64_t outs[KO_FOLD_MOST];
    uint64_t states[2][KO_FOLD_MOST];
    uint64_t factor_at, skip_at;
    uint64_t count; /* parameters */
    uint32_t nparts, nouts;
    uint32_t divisor; /* the number of ranks for AVG, else 1 */
    uint32_t unused;
    struct ko_rule rule;
};

static_assert(sizeof(struct ko_step) == 4 * KO_FOLD_MOST * 8 + 3 * 8 + 4 * 4 + 14 * 4,
              "no padding, either");

/* ko_push: every rank sends nbytes to every other and receives as much from each, in lines whose
 * data carry their flags, so that nobody waits for more than the data: for ranks that have a GPU
 * each. Block b of the kernel exchanges the b-th KO_PUSH_PAIRS pairs of words with block b of the
 * others; it is the b-th word of epochs, of this rank's memory, that counts the block's calls and
 * is the flag. A rank's boxes, KO_PUSH_BOX bytes for each rank and 0 at first, have a half for odd
 * and one for even epochs, for each block: who writes a half again has all others' data of the call
 * between, and they had read it before they sent those. Who waits for long says so now and again in
 * the block's word of stalled: the epoch, its lowest 24 bits, and below them the rank that is
 * waited for plus 1; and makes it 0 when it waits no more. As soon as the word at stop is not 0, no
 * thread waits any more; who has waited in vain makes the one at given_up 1, and from then on this
 * rank sends nothing, since what it has may come of what it lacks. */
enum {
    KO_PUSH_BLOCKS = 8,
    KO_PUSH_PAIRS = 1024,
    KO_PUSH_BYTES = KO_PUSH_BLOCKS * KO_PUSH_PAIRS * 8, /* at most, to each */
    KO_PUSH_BOX = 2 * 2 * KO_PUSH_BYTES
};
struct ko_push {
    uint64_t from[KO_FOLD_MOST];  /* by rank: the address of what it gets */
    uint64_t to[KO_FOLD_MOST];    /* by rank: where what it sends goes; to this one a copy */
    uint64_t boxes[KO_FOLD_MOST]; /* by rank: its boxes */
    uint64_t epochs, given_up, stop, stalled;
    uint64_t nbytes;
    uint32_t rank, n;
};

static_assert(sizeof(struct ko_push) == 3 * KO_FOLD_MOST * 8 + 48, "no padding, in the end");

/* ko_tell_words: makes words, of any GPU's memory, 1; none if the one at given_up is not 0, nor if
 * one of theirs is not, of other ranks: then the one at given_up becomes 1, too. */
struct ko_tell {
    uint64_t words[KO_FOLD_MOST]; /* addresses */
    uint64_t theirs[KO_FOLD_MOST];
    uint64_t given_up;
    uint32_t n, ntheirs;
};

static_assert(sizeof(struct ko_tell) == 2 * KO_FOLD_MOST * 8 + 16, "none in the last");

#endif
