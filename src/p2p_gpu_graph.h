/* SPDX-License-Identifier: MIT
 *
 * p2p_gpu_graph.h: messages that a CUDA graph takes in, among ranks that reach each other's memory:
 * to be launched again and again with no part of the host's. Any thread.
 */
#ifndef KO_P2P_GPU_GRAPH_H
#define KO_P2P_GPU_GRAPH_H

#include "group.h"
#include "mailbox_gpu.h"

/* The messages of a call while it is captured. */
struct ko_p2p_graph;

/* For checked ops while the group's stream is captured. KOLO_E_UNSUPPORTED if they would have to go
 * by way of the host, as far as this rank knows. */
int ko_p2p_graph_begin(kolo_group *group, const kolo_p2p *ops, size_t nops,
                       struct ko_p2p_graph **graph);

/* What the letter of op i has of GPU memory. */
struct ko_placed *ko_p2p_graph_placed(struct ko_p2p_graph *graph, size_t i);

/* When the letters, by which the two ends have found each other, are done: puts the messages into
 * the stream, unless err, and frees. Returns err, or what went wrong here. */
int ko_p2p_graph_end(struct ko_p2p_graph *graph, const struct ko_letter *letters, int err);

#endif
