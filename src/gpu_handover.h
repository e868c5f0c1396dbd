/* SPDX-License-Identifier: MIT
 *
 * gpu_handover.h: a call's handing over of GPU memory in pieces to other processes: while the call
 * waits for something else, a thread of the library's gives the descriptors to all that ask. The
 * caller's alone.
 */
#ifndef KO_GPU_HANDOVER_H
#define KO_GPU_HANDOVER_H

#include "crew.h"
#include "gpu_pieces.h"

struct ko_gpu_handover;

int ko_gpu_handover_new(struct ko_gpu_handover **handover);

/* The name of the socket from which the pieces of that number can be had; NULL: there is none. */
const char *ko_gpu_handover_name(const struct ko_gpu_handover *handover, uint64_t id);

/* Before it is started: takes over the pieces, with their socket's name. */
int ko_gpu_handover_add(struct ko_gpu_handover *handover, uint64_t id, struct ko_gpu_pieces *pieces,
                        const char *name);

/* If there is anything to be handed over. */
int ko_gpu_handover_start(struct ko_gpu_handover *handover, struct ko_crew *crew);

/* At once, whoever may still ask; all is closed. NULL is allowed. */
void ko_gpu_handover_end(struct ko_gpu_handover *handover);

#endif
