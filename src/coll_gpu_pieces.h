/* SPDX-License-Identifier: MIT
 *
 * coll_gpu_pieces.h: long calls of groups some of whose ranks have GPUs, by way of host memory: in
 * pieces, so that one is on its way between the ranks while the next comes from the GPU and the one
 * before goes back to it.
 */
#ifndef KO_COLL_GPU_PIECES_H
#define KO_COLL_GPU_PIECES_H

#include "coll.h"

/* Carries out a call of this rank's, whose buffers may be in GPU memory or the host's, by `run`,
 * for buffers of the host's: as many times as all ranks alike find best. The caller has the
 * engine's turn. */
int ko_coll_run_by_host(kolo_group *group, const struct ko_call *call,
                        int (*run)(kolo_group *group, const struct ko_call *call));

#endif
