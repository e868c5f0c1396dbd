/* SPDX-License-Identifier: MIT
 *
 * trainer.h: everything one rank of a run holds, and how it is set up: the group joined, the data
 * read, all ranks agreed, the network the same everywhere, a checkpoint taken up.
 */
#ifndef TRAIN_TRAINER_H
#define TRAIN_TRAINER_H

#include "checkpoint.h"
#include "curve.h"
#include "data.h"
#include "gpu.h"
#include "model.h"
#include "options.h"
#include "sgd.h"

#include <stdio.h>

struct trainer {
    struct options options;

    kolo_group *group;
    int rank, size;

    struct dataset train_set, test_set;
    kolo_sampler_options sampler;
    uint32_t *samples; /* this rank's of the epoch: [nsamples] */
    size_t nsamples;
    size_t local_batch; /* this rank's part of a batch */

    struct gpu *gpu; /* with --device cuda; NULL: the host */
    struct model model;
    struct sgd sgd;
    kolo_ddp *ddp;
    float *images; /* of one batch: [capacity][IMAGE_AREA] */
    uint8_t *labels;

    struct run_state state;
    struct curve curve; /* on rank 0 */
    FILE *losses;       /* on rank 0, with --log-losses */
};

/* A collective call. On failure whatever was set up is the caller's to close all the same. */
int trainer_open(const struct options *options, struct trainer *trainer);

/* Rank 0's lines for people go to stdout; the others have none. */
void trainer_say(const struct trainer *trainer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* For a failure that all ranks have noticed, and at the same point: rank 0 alone prints the
 * sentence, and the others wait until it has, since a launcher may stop all as soon as one ends.
 * Returns TRAIN_FAILED. */
int trainer_fail_together(const struct trainer *trainer, const char *sentence);

/* reason: why this rank stops early, for the others, which then stop too; NULL at a good end. Safe
 * on a trainer that is all zero or half open. */
void trainer_close(struct trainer *trainer, const char *reason);

#endif
