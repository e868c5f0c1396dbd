/* SPDX-License-Identifier: MIT
 *
 * coll_gpu_writers.h: what a call has to do so that no GPU writes into its buffers any more once it
 * has failed. For whoever has the engine's turn.
 */
#ifndef KO_COLL_GPU_WRITERS_H
#define KO_COLL_GPU_WRITERS_H

#include "group.h"

/* All ranks together, when a group gets its first stream: here says which are of this process. An
 * error has failed the group; where the ranks of a host cannot have words about each other all do
 * without. */
int ko_coll_meet_writers(kolo_group *group, const bool *here);

/* Around work that writes into other ranks' buffers: what has begun, and fails, ends with the
 * call. An error is the group's: another rank has given up. */
int ko_coll_begin_writing(kolo_group *group);
void ko_coll_end_writing(kolo_group *group);

/* Before this rank's part in a call goes into a stream, where it waits for others': writes: into
 * their buffers. It has the number group->nstreamed then. */
int ko_coll_begin_streaming(kolo_group *group, bool writes);

/* At the end of a call that has failed, after the other ranks have been told: waits, for a bounded
 * time, until the GPUs are done with its buffers. Keeps the thread's error. */
void ko_coll_settle(kolo_group *group);

#endif
