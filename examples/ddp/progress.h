/* SPDX-License-Identifier: MIT
 *
 * progress.h: what rank 0 shows of a run: a bar on a terminal, a line each tenth of an epoch
 * elsewhere.
 */
#ifndef TRAIN_PROGRESS_H
#define TRAIN_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* A moment of a run. */
struct progress {
    uint64_t epoch, epochs;   /* the one under way, from 1, and how many there will be */
    uint64_t batch, nbatches; /* done in it, and how many it has */
    double loss;              /* mean over all ranks since the last report */
    double images_per_s;      /* over all ranks */
    double communication;     /* share of the time spent waiting for other ranks */
};

/* is_bar: a line that draws itself anew. Without it, prints only when a tenth of the epoch has
 * passed since previous_batch. */
void progress_print(FILE *out, bool is_bar, const struct progress *progress,
                    uint64_t previous_batch);

/* Clears a bar, so that other lines can follow. */
void progress_clear(FILE *out, bool is_bar);

/* Seconds since some fixed moment. */
double seconds_now(void);

#endif
