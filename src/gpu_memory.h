/* SPDX-License-Identifier: MIT
 *
 * gpu_memory.h: memory of the library's own on a GPU, for copies and for what ranks tell each
 * other. Other processes open an allocation by its handle; where handles do not serve it is a
 * piece, which has a descriptor. With the GPU's context. Results are the driver's.
 */
#ifndef KO_GPU_MEMORY_H
#define KO_GPU_MEMORY_H

#include "cuda_driver.h"

#include <stdbool.h>

struct ko_gpu_memory {
    ko_cu_ptr at; /* 0: there is none */
    size_t nbytes;
    bool is_piece;
};

/* At least nbytes. */
ko_cu_result ko_gpu_memory_make(const struct ko_cuda *cuda, size_t nbytes, bool is_piece,
                                struct ko_gpu_memory *memory);

/* The end of it; what another process has mapped of a piece it keeps. Safe on one that is all zero.
 */
void ko_gpu_memory_free(const struct ko_cuda *cuda, const struct ko_gpu_memory *memory);

#endif
