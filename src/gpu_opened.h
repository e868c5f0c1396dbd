/* SPDX-License-Identifier: MIT
 *
 * gpu_opened.h: allocations of other processes that this one has opened by their handles, each of
 * them once for all that use it, of any group: where something that its process has freed is still
 * open, the driver opens nothing that has come in its place. With the GPU's context. Any thread.
 */
#ifndef KO_GPU_OPENED_H
#define KO_GPU_OPENED_H

#include "gpu_share.h"

struct ko_gpu_opened;

/* Opens an allocation of the process with that number (ko_cuda_process), or takes part in one that
 * is open: *at is its address here. Whatever else of that process's is open at its address there,
 * or in the way in the same block of memory, is closed first, whoever may have it; not where a
 * stream of this process waits for a call, since the driver would wait for streams: then it is the
 * driver's to open it or not. KO_CU_NOT_READY: it has not, and may once no stream waits. */
ko_cu_result ko_gpu_opened_take(const struct ko_cuda *cuda, uint64_t process,
                                const struct ko_gpu_place *place, struct ko_gpu_opened **opened,
                                ko_cu_ptr *at);

/* The end of a part in it. The last one closes it, and waits for streams; or leaves that to the
 * next who may. */
void ko_gpu_opened_give(const struct ko_cuda *cuda, struct ko_gpu_opened *opened);
void ko_gpu_opened_leave(struct ko_gpu_opened *opened);

#endif
