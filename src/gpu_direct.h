/* SPDX-License-Identifier: MIT
 *
 * gpu_direct.h: GPU memory that other devices of the machine read and write by themselves: as
 * dma-bufs, and what has to be done behind such a write. Any thread.
 */
#ifndef KO_GPU_DIRECT_H
#define KO_GPU_DIRECT_H

#include "gpu.h"

/* An allocation, or several that lie one behind the other, as pieces of an expandable segment of
 * PyTorch's do: CUDA gives a dma-buf of them all if they are of one GPU, and have the same
 * properties. */
struct ko_gpu_extent {
    uint64_t print;        /* of the numbers that they, and nothing else in the process, have */
    uint64_t base, nbytes; /* of them all */
    uint64_t at, length;   /* whole pages of the host's that they lie in */
    int n;
};

/* That in which the buffer lies, no more of them than it takes. KOLO_E_UNSUPPORTED, and why, if
 * other devices can have nothing of it, or could not make sure that the GPU sees what they have
 * written. */
int ko_gpu_extent_of(struct ko_gpu *gpu, const void *buffer, size_t nbytes,
                     struct ko_gpu_extent *extent);

/* A dma-buf of its pages, the caller's to close. */
int ko_gpu_extent_export(struct ko_gpu *gpu, const struct ko_gpu_extent *extent, int *fd);

/* False once any of it has been freed. */
bool ko_gpu_extent_is_there(struct ko_gpu *gpu, const struct ko_gpu_extent *extent);

/* What devices have written, and said so, is seen by what comes into the GPU's streams from now on.
 */
int ko_gpu_flush_writes(struct ko_gpu *gpu);

#endif
