/* SPDX-License-Identifier: MIT
 *
 * gpu.h: the GPU that a rank trains on: memory, the kernels of layer_kernels.h, matrix products by
 * cuBLAS. What it has to do goes into one stream, in the order of the calls; the ranks' averages go
 * beside it, in another one. After a failure nothing is done any more, and gpu_sync tells of it.
 * NULL in place of a gpu, where it is allowed, is the host.
 */
#ifndef TRAIN_GPU_H
#define TRAIN_GPU_H

#include "kolo.h"
#include "layer_kernels.h"

#include <stdbool.h>
#include <stddef.h>

struct gpu;

enum gpu_kernel {
#define GPU_KERNEL(name, argument) GPU_##name,
    LAYER_KERNELS(GPU_KERNEL)
#undef GPU_KERNEL
        GPU_NKERNELS
};

/* The GPUs of a machine go to its ranks in turn. The group's calls go by the second stream from
 * then on: a collective call. Says why there is no GPU to train on. */
int gpu_open(kolo_group *group, struct gpu **gpu);

/* After the group's end. NULL is allowed. */
void gpu_close(struct gpu *gpu);

/* "GPU 0, NVIDIA H200", at most cap bytes; "the host" for NULL. */
void gpu_name(const struct gpu *gpu, char *name, size_t cap);

/* ---- memory, also the host's ----------------------------------------------------------------- */

/* Memory on a cache line of its own; NULL: there is none. */
void *gpu_alloc(struct gpu *gpu, size_t nbytes);
void gpu_free(struct gpu *gpu, void *memory);

/* The host's memory stays as it is until gpu_sync, and has then what gpu_get brings. Where both are
 * the same, as on the host, nothing is to be done. */
void gpu_put(struct gpu *gpu, void *to, const void *from, size_t nbytes);
void gpu_get(struct gpu *gpu, void *to, const void *from, size_t nbytes);

/* ---- work ------------------------------------------------------------------------------------ */

/* A row-major matrix, or with is_transposed its transpose; rows and cols are those in memory. step:
 * from a matrix to the next of several. */
struct gpu_matrix {
    const float *values;
    size_t rows, cols, step;
    bool is_transposed;
};

/* out = a b, plus out itself if accumulate; n times, out's being dense. */
void gpu_multiply(struct gpu *gpu, size_t n, const struct gpu_matrix *a, const struct gpu_matrix *b,
                  bool accumulate, float *out);

/* args: the kernel's, whose count this is. */
void gpu_run(struct gpu *gpu, enum gpu_kernel kernel, uint64_t count, const void *args);

/* What the group's stream is given from now on comes after what this one was given so far. */
void gpu_hand_over(struct gpu *gpu);

/* Waits until all is done that could be begun; NULL is allowed. */
int gpu_sync(struct gpu *gpu);

/* The same where failures do not matter any more: memory may be freed then. */
void gpu_finish(struct gpu *gpu);

#endif
