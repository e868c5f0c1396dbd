/* SPDX-License-Identifier: MIT
 *
 * group_let_go.h: what becomes of streams that wait for other ranks in a group that has failed:
 * they go on, but past a call only when no other rank's GPU writes into its buffers any more, or
 * the time that calls which have failed wait for GPUs is over (ko_gpu_settling). Any thread.
 */
#ifndef KO_GROUP_LET_GO_H
#define KO_GROUP_LET_GO_H

#include "group.h"

/* Lets go what may be by now, of a group that has failed: the watch comes again and again. False:
 * the GPU does not do it. */
bool ko_group_let_go(kolo_group *group);

/* Tells the other ranks how far this one's streams are, once one has given up; true as long as one
 * may wait for that. */
bool ko_group_tell_progress(kolo_group *group);

/* At the end, also where none has: others may give up later. */
void ko_group_tell_last_progress(kolo_group *group);

/* Whether the rank's GPU may still write into others' buffers, by what it has in streams, in calls
 * up to this one. */
bool ko_group_is_streaming(const kolo_group *group, int rank, uint32_t call);

/* Says in the log, once, that a rank's GPU is not waited for any longer. */
void ko_group_warn_of_writer(kolo_group *group, int rank);

#endif
