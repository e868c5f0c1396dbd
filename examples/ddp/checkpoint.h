/* SPDX-License-Identifier: MIT
 *
 * checkpoint.h: the state of a run as a file. All numbers are little-endian:
 *
 *   magic "kolotrn\n" | version u32 | number of parameters u32 | struct run_state, each member u64
 * | the parameters' shapes, 4 u32 each | values, float32 | velocity, float32 | crc32 of all before
 */
#ifndef TRAIN_CHECKPOINT_H
#define TRAIN_CHECKPOINT_H

#include "model.h"
#include "sgd.h"

#include <stdint.h>

/* Where a run is, and what decides how it goes on. Members are all uint64_t: the file and the
 * broadcast to the other ranks take them as an array. */
struct run_state {
    uint64_t step;       /* done since the first start */
    uint64_t epoch;      /* done */
    uint64_t next_batch; /* of the epoch under way */
    uint64_t seed;
    uint64_t batch;    /* images per step over all ranks */
    uint64_t nsamples; /* of the training set */
    uint64_t dropout_percent;
    uint64_t no_shuffle;
};

/* Both are of the host's copies of values and velocity, which may be on a GPU. */

/* Replaces path as a whole or not at all: a reader, or a crash, never meets half a file. */
int checkpoint_write(const char *path, const struct run_state *state, const struct model *model,
                     const struct sgd *sgd);

/* Fills all three, or none of them if the file is not a whole checkpoint of this network. */
int checkpoint_read(const char *path, struct run_state *state, struct model *model,
                    struct sgd *sgd);

#endif
