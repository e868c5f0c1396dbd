/* SPDX-License-Identifier: MIT
 *
 * coll_gpu_graph.h: a collective among ranks that reach each other's memory, in their streams, with
 * no part of the host's: once, or as part of a CUDA graph, which is launched again and again.
 */
#ifndef KO_COLL_GPU_GRAPH_H
#define KO_COLL_GPU_GRAPH_H

#include "coll_gpu_plan.h"
#include "gpu_share.h"

/* Whose words and boxes a call uses. */
static inline enum ko_gpu_round ko_call_round(const struct ko_call *call)
{
    return call->is_captured ? KO_GPU_GRAPHS : KO_GPU_CALLS;
}

/* This rank's part, into a stream, which may be being captured. */
int ko_coll_put_in_stream(kolo_group *group, const struct ko_call *call,
                          const struct ko_gpu_plan *plan, ko_cu_stream stream);

#endif
