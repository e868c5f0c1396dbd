/* SPDX-License-Identifier: MIT
 *
 * programs.h: random programs, the same on all ranks: collectives of all kinds, messages, blobs and
 * barriers, blocking and not, in several groups that are made from each other and freed meanwhile,
 * with what has not been waited for ended in any order. Every byte of every result is looked at.
 */
#ifndef PROGRAMS_H
#define PROGRAMS_H

#include "exam.h"

enum { PROGRAMS_MOST_RANKS = 5 };

/* The program of this seed. Collectives take their buffers from any of n kinds of memory (NULL: the
 * host's; n = 0: all do), and new groups are given the stream unless it is NULL. 0, or
 * ranks_fail. */
int programs_run(kolo_group *world, uint64_t seed, const struct exam_memory *const *memories, int n,
                 void *stream);

/* Such programs, from this seed on, until one rank, which is a process, is killed at a random
 * moment: all others hear of it, and of nothing else, before their time-outs, in calls that they
 * make or have made. 0, or ranks_fail. */
int programs_survive(kolo_group *world, uint64_t seed, const struct exam_memory *const *memories,
                     int n, void *stream);

#endif
