/* SPDX-License-Identifier: MIT
 *
 * one_shot.h: the well-known all_reduce of GPUs, whose kernels wait for each other (kernels.h's
 * check_one_shot), among processes that share one: what kolo does otherwise there, to be measured
 * beside it. Sums of float32, out of place. Each rank calls these at the same time, with the
 * calling thread's gpu_rank.
 */
#ifndef ONE_SHOT_H
#define ONE_SHOT_H

#include "kernels.h"
#include "kolo.h"
#include "watch.h"

struct one_shot {
    kolo_group *group;
    struct check_one_shot args;
    ko_cu_ptr in, out, kept;
    struct watch_page page; /* its first word stops the kernels */
};

/* With room for `most` bytes. Never freed. 0, or ranks_fail. */
int one_shot_open(kolo_group *group, size_t most, struct one_shot *shot);

/* How a rank's part has ended; LATE: after ms, and nothing can be done with it any more, on any
 * rank, which the others may not know. */
enum one_shot_verdict { ONE_SHOT_RIGHT, ONE_SHOT_WRONG, ONE_SHOT_LATE };

/* So many calls in a row; RIGHT or LATE. */
enum one_shot_verdict one_shot_call(struct one_shot *shot, size_t nbytes, int times, int ms);

/* Two calls with other inputs each, between which no rank waits for the others, and a look at the
 * sums: at the first ones of the first call, and at all of the second. */
enum one_shot_verdict one_shot_exam(struct one_shot *shot, size_t nbytes, int ms);

#endif
