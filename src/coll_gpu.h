/* SPDX-License-Identifier: MIT
 *
 * coll_gpu.h: collectives of buffers in GPU memory: carried out on copies of them in host memory,
 * in the order of the group's stream. That serves every GPU and every link.
 */
#ifndef KO_COLL_GPU_H
#define KO_COLL_GPU_H

#include "coll.h"

/* Whether the call reads in, and writes out, on this rank. */
bool ko_coll_is_read(const kolo_group *group, const struct ko_call *call);
bool ko_coll_is_written(const kolo_group *group, const struct ko_call *call);

/* Whether the call's buffers are in GPU memory, or it is a barrier for a graph, for a group that
 * has a stream. KOLO_E_INVALID if only some of them are. */
int ko_coll_is_on_gpu(kolo_group *group, const struct ko_call *call, bool *is_on_gpu);

/* Lets `run` carry out the call on copies. The caller has the engine's turn. */
int ko_coll_run_on_gpu(kolo_group *group, const struct ko_call *call, ko_run *run);

#endif
