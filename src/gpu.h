/* SPDX-License-Identifier: MIT
 *
 * gpu.h: a group's way to GPU memory: whose a buffer is, and copies between it and host memory, in
 * the order of the user's stream. Copies go by a stream of the group's own, one thread at a time;
 * ko_gpu_holds and ko_gpu_mark are for any thread. Errors are the driver's (ko_cuda_check).
 */
#ifndef KO_GPU_H
#define KO_GPU_H

#include "clock.h"

#include <stdbool.h>
#include <stddef.h>

struct ko_gpu;

/* On the GPU of the user's stream; NULL: the legacy stream of the calling thread's current GPU, or
 * of GPU 0 if it has none. KOLO_E_UNSUPPORTED: there is no driver. */
int ko_gpu_open(void *stream, struct ko_gpu **gpu);

/* From now on in the order of another stream of the same GPU; KOLO_E_INVALID of another one. */
int ko_gpu_follow(struct ko_gpu *gpu, void *stream);

/* Waits for the copies that are under way. NULL is allowed. */
void ko_gpu_close(struct ko_gpu *gpu);

/* True for memory on a GPU. */
bool ko_gpu_holds(struct ko_gpu *gpu, const void *buffer);

/* Marks what the user has put into his stream so far. */
int ko_gpu_mark(struct ko_gpu *gpu);

/* Waits until the user's stream has come to the last mark. No copy is begun before that, since one
 * that waits for a stream that stands still could not be taken back. KOLO_E_TIMEOUT. */
int ko_gpu_await_mark(struct ko_gpu *gpu, const ko_deadline *deadline);

/* Begins a copy, either way; the buffers stay as they are until ko_gpu_finish. */
int ko_gpu_copy(struct ko_gpu *gpu, void *to, const void *from, size_t nbytes);

/* Waits until all copies are done. KOLO_E_TIMEOUT: the GPU does nothing any more, and the copies'
 * buffers cannot be had back. */
int ko_gpu_finish(struct ko_gpu *gpu, const ko_deadline *deadline);

/* Host memory that copies reach quickly, good until the next call of the same. */
int ko_gpu_staging(struct ko_gpu *gpu, size_t nbytes, unsigned char **memory);

#endif
