/* SPDX-License-Identifier: MIT
 *
 * coll_gpu_hosts.h: long collectives of GPU memory among several hosts, the ranks of each of which
 * reach each other's GPU memory: a host's inputs are reduced by its GPUs, each rank stages its
 * share alone for the other hosts, and what comes from them is passed on from GPU to GPU.
 */
#ifndef KO_COLL_GPU_HOSTS_H
#define KO_COLL_GPU_HOSTS_H

#include "coll.h"

/* True if the call is one for which the ranks of such a group come together: all of them or none.
 */
bool ko_coll_is_divided(const kolo_group *group, const struct ko_call *call);

/* Carries such a call out; by `run` if the buffers of some ranks are in host memory, or cannot be
 * reached by others of their host. The caller has the engine's turn. */
int ko_coll_run_divided(kolo_group *group, const struct ko_call *call, ko_run *run);

#endif
