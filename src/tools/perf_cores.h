/* SPDX-License-Identifier: MIT
 *
 * perf_cores.h: whether two cores are as far from each other as they were. A host may have those of
 * a virtual machine near each other, within one cache, while they idle, and far from each other
 * when both have worked for some seconds, from one moment to the next; what ranks exchange then
 * takes two to four times as long. What is to be of like moments is measured between two looks.
 */
#ifndef KO_PERF_CORES_H
#define KO_PERF_CORES_H

#include "kolo.h"

#include <stdbool.h>
#include <stdint.h>

/* What two threads, of one process or of two, throw to each other; zero at first. */
struct ko_ball {
    _Alignas(64) uint64_t turn; /* even: end 0 has it */
};

/* Microseconds from this core to the other end's and back, at best; 0 if nobody throws there. Both
 * ends call it. */
double ko_ball_throw(struct ko_ball *ball, int end);

/* Each rank of a group has one, all alike. */
struct ko_cores {
    struct ko_ball *ball; /* ranks 0 and 1 throw it, on cores of their own; NULL: all is usual */
    double usual;         /* as ko_ball_throw has it; 0: what is found first */
    int tries;            /* how often they may yet be found otherwise */
    double apart;         /* of the last look */
};

/* Whether they are as usual; all ranks of the group call it, and hear the same. */
int ko_cores_look(kolo_group *group, struct ko_cores *cores, bool *are_usual);

/* Waits until they are, at rest if they are too far and at work if they are too near.
 * KOLO_E_TIMEOUT: they have been found otherwise too often, however they are now: what is measured
 * may itself move them. */
int ko_cores_await(kolo_group *group, struct ko_cores *cores);

#endif
