/* SPDX-License-Identifier: MIT
 *
 * coll_gpu_shared.h: collectives of a group all of whose ranks use one GPU, or GPUs that reach each
 * other's memory, as threads or processes: nothing goes by way of the host. On one GPU the rank
 * whose input is ready last carries a call out for all; on several each carries out its share. No
 * kernel waits for another rank, but of what is short where each rank has a GPU of its own.
 */
#ifndef KO_COLL_GPU_SHARED_H
#define KO_COLL_GPU_SHARED_H

#include "coll_gpu_plan.h"

/* True if the call is one for which the ranks of such a group come together: all of them or none.
 */
bool ko_coll_is_shared(const kolo_group *group, const struct ko_call *call);

/* Whether a call can go into the ranks' streams, with no part of the host's once all have made it.
 */
bool ko_coll_can_be_streamed(const kolo_group *group, const struct ko_call *call);

/* Whether elements that travel as smaller ones are cast by the kernels that reduce: where all is on
 * one GPU, which they would be read and written on once more. Between GPUs half of them has to go.
 */
bool ko_coll_casts_in_passing(const kolo_group *group);

/* Carries such a call out: where the buffers are; if others cannot reach them, on copies in memory
 * of the library's on the GPU that they can; by `run` if there are none, or some ranks' buffers are
 * in host memory. The caller has the engine's turn. */
int ko_coll_run_shared(kolo_group *group, const struct ko_call *call, ko_run *run);

/* For a call of the user's stream that is being captured: its part of the graph, instead of the
 * call; KOLO_E_UNSUPPORTED on all ranks if it would have to go by way of the host. */
int ko_coll_run_captured(kolo_group *group, const struct ko_call *call);

/* Whether the call is so short that kernels send its data to each other, and wait for them; the
 * same on all ranks. Its part of this rank goes into a stream then. */
bool ko_coll_pushes(const kolo_group *group, const struct ko_gpu_plan *plan);
int ko_coll_begin_push(kolo_group *group, const struct ko_call *call,
                       const struct ko_gpu_plan *plan, ko_cu_stream stream);

/* Puts all steps of the plan into a stream; of one that is spread, this rank's. */
int ko_coll_begin_plan(kolo_group *group, const struct ko_call *call,
                       const struct ko_gpu_plan *plan, ko_cu_stream stream);

#endif
