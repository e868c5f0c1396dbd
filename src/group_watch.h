/* SPDX-License-Identifier: MIT
 *
 * group_watch.h: a thread that looks after what CUDA graphs of a group wait for. No call of the
 * host's is under way then, so that nobody else would notice that a rank is late, or lost, or that
 * the group has failed: it fails the group, and lets the graphs' waits end.
 */
#ifndef KO_GROUP_WATCH_H
#define KO_GROUP_WATCH_H

#include "group.h"

/* What a stream, or a graph, says to its host (gpu.h's awaited): it waits until a word about each
 * other rank is set, in its own memory, or, with another owner, until that rank has done
 * everybody's work; or for a rank's part in a message. The watch adds KO_AWAITED_SEEN, which goes
 * as soon as the graph says anything. */
#define KO_AWAITED_SEEN (UINT32_C(1) << 31)
static inline uint32_t ko_awaited(enum ko_collective what, enum ko_gpu_word word, int owner)
{
    return (uint32_t)what << 16 | (uint32_t)word << 8 | ((uint32_t)owner + 1);
}

static inline enum ko_gpu_word ko_awaited_word(uint32_t awaited)
{
    return (enum ko_gpu_word)(awaited >> 8 & 0xff);
}

static inline uint32_t ko_awaited_of_message(int peer)
{
    return (uint32_t)KO_POINT_TO_POINT << 16 | ((uint32_t)peer + 1);
}

/* Begins with what a graph of the group takes in first, or goes into its stream, before that. Any
 * thread. */
int ko_group_watch(kolo_group *group, enum ko_gpu_round round);

/* Ends it, if there is one, and with it what still waits. */
void ko_group_watch_end(kolo_group *group);

/* Waits until the group's own stream has done all, as ko_gpu_finish, in which kernels wait for
 * other ranks, in a call of this name: an error names the rank. */
int ko_group_await_kernels(kolo_group *group, const char *name, const ko_deadline *deadline);

/* Whether a graph waits now. */
bool ko_group_has_waiting_graph(const kolo_group *group);

#endif
