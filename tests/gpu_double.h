/* SPDX-License-Identifier: MIT
 *
 * gpu_double.h: what the double of NVIDIA's driver (fakecuda/double.h) has counted in this process.
 * For ranks that have entered a GPU (gpu_rank.h).
 */
#ifndef GPU_DOUBLE_H
#define GPU_DOUBLE_H

#include "fakecuda/double.h"

/* Bytes that the rank's GPU has read and written of its own memory and of other GPUs', and that
 * went between any GPU and the host's memory. */
struct gpu_bytes {
    uint64_t read, written, read_there, written_there, with_host;
};

struct gpu_bytes gpu_bytes_now(void);
struct gpu_bytes gpu_bytes_since(struct gpu_bytes before);

/* By all GPUs, of all GPUs' memory. */
void gpu_bytes_of_all(uint64_t *read, uint64_t *written);

/* What kernels of any GPU have touched less than a pack at a time. */
uint64_t gpu_bytes_narrow(void);

/* Of what went between GPUs and the host's memory, where that was not registered. */
uint64_t gpu_bytes_pageable(void);

/* Of the host's memory, that are registered now; and the most at once since this was last asked. */
uint64_t gpu_bytes_locked(uint64_t *most);

/* Holds up the callers of these functions of the driver, in all threads, and how many are;
 * "transfers": streams that have come to a copy or a fill. */
void gpu_hold(const char *functions);
int gpu_held(void);

/* What the driver gave is managed memory from now on, with its pages on the GPU or the host. */
void gpu_manage(ko_cu_ptr memory, bool is_at_host);

/* Has the rank's GPU fail when its stream comes to it, by the driver's error. 0, or it cannot. */
int gpu_fail(ko_cu_result error);

/* Of the rank's GPU. */
struct fakecuda_blocks gpu_blocks_now(void);

#endif
