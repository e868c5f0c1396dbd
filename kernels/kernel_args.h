/* SPDX-License-Identifier: MIT
 *
 * kernel_args.h: the one argument of each kernel, for the host that fills it in and the device that
 * reads it. Plain structs whose members lie alike in C, C++ and CUDA.
 */
#ifndef KO_KERNEL_ARGS_H
#define KO_KERNEL_ARGS_H

#include <assert.h>
#include <stdint.h>

enum { KO_FOLD_MOST = 16 }; /* parts, and outputs */

/* ko_fold_DTYPE_OP: each of outs[nouts] = parts[0] op parts[1] op ... op parts[nparts - 1], element
 * by element in this order, divided by divisor >= 1. An output may be a part. Any alignment that
 * suits the elements. */
struct ko_fold {
    uint64_t parts[KO_FOLD_MOST]; /* addresses */
    uint64_t outs[KO_FOLD_MOST];
    uint64_t count; /* elements */
    uint32_t nparts, nouts;
    uint32_t divisor; /* the number of ranks for AVG, else 1 */
    uint32_t unused;
};

static_assert(sizeof(struct ko_fold) == 2 * KO_FOLD_MOST * 8 + 24, "no padding, anywhere");

#endif
