/* SPDX-License-Identifier: MIT
 *
 * p2p_gpu.h: messages from and into GPU memory, in the order of the group's stream, by way of host
 * memory: so whoever is at the other end need not have a GPU.
 */
#ifndef KO_P2P_GPU_H
#define KO_P2P_GPU_H

#include "group.h"

/* Host memory for the GPU buffers of a list of messages. */
struct ko_p2p_stages;

/* For checked ops of a group that has a stream. If no buffer is in GPU memory, *stages is NULL and
 * *ops stay the user's; else *ops are those of *stages, and what is to be sent has been copied. */
int ko_p2p_stage(kolo_group *group, const kolo_p2p **ops, size_t nops,
                 struct ko_p2p_stages **stages);

/* When these ops are done: brings what was received to its place, unless err, and frees. Returns
 * err, or what went wrong here. */
int ko_p2p_unstage(struct ko_p2p_stages *stages, int err);

#endif
