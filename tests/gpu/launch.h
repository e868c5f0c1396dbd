/* SPDX-License-Identifier: MIT
 *
 * launch.h: starts the kernels of kernels.h. The caller's context is current.
 */
#ifndef LAUNCH_H
#define LAUNCH_H

#include "cuda_driver.h"
#include "kernels.h"

enum launch_kernel {
#define KERNEL(name, argument) LAUNCH_##name,
    CHECK_KERNELS(KERNEL)
#undef KERNEL
        LAUNCH_NKERNELS
};

/* Loads them, once per process; before the rest. 0, or 1 with a text (kolo_last_error). */
int launch_open(const struct ko_cuda *cuda);

/* Puts nblocks of nthreads at the end of the stream. The driver's answer. */
ko_cu_result launch(enum launch_kernel kernel, unsigned nblocks, unsigned nthreads,
                    const void *argument, ko_cu_stream stream);

#endif
