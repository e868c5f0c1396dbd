/* SPDX-License-Identifier: MIT
 *
 * p2p_gpu.h: messages from and into GPU memory, in the order of the group's stream: straight from
 * where they lie (mailbox_gpu.h) to ranks that reach it, or by adapters that read and write it;
 * else, and if they are shorter than a word of where that is, by way of host memory: so whoever is
 * at the other end need not have a GPU.
 */
#ifndef KO_P2P_GPU_H
#define KO_P2P_GPU_H

#include "dtype.h"
#include "group.h"
#include "mailbox_gpu.h"

/* Of a message's buffer. */
static inline size_t ko_p2p_bytes(const kolo_p2p *op)
{
    return op->count << ko_dtype_shift(op->dtype);
}

/* Host memory for the GPU buffers of a list of messages. */
struct ko_p2p_stages;

/* What a call gives: any buffer in GPU memory, or messages for a graph (p2p_gpu_graph.h). */
struct ko_p2p_sight {
    bool is_on_gpu, is_captured;
};

/* For checked ops of a group that has a stream. KOLO_E_INVALID if a buffer ends too early. */
int ko_p2p_look(kolo_group *group, const kolo_p2p *ops, size_t nops, struct ko_p2p_sight *sight);

/* For such ops with the mark in the stream that they come behind: *ops become those of *stages, and
 * what is to be sent is ready. */
int ko_p2p_stage(kolo_group *group, const kolo_p2p **ops, size_t nops,
                 const struct ko_gpu_mark *mark, struct ko_p2p_stages **stages);

/* What the letter of op i has of GPU memory, or NULL; what its buffer lies in, if it is sent from
 * there; and what brings it, if that is by some of it at a time. stages may be NULL. */
struct ko_placed *ko_p2p_placed(struct ko_p2p_stages *stages, size_t i);
struct ko_held *ko_p2p_held(const struct ko_p2p_stages *stages, size_t i);
struct ko_gpu_relay *ko_p2p_relay(const struct ko_p2p_stages *stages, size_t i);

/* When these ops are done: brings what was received to its place, unless err, and frees. Returns
 * err, or what went wrong here. */
int ko_p2p_unstage(struct ko_p2p_stages *stages, int err);

#endif
