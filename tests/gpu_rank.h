/* SPDX-License-Identifier: MIT
 *
 * gpu_rank.h: what a rank, thread or process, has of a GPU in tests: the driver, the context of a
 * GPU, and a stream, which the group is given. The ranks of a group take the machine's GPUs in
 * turn.
 */
#ifndef GPU_RANK_H
#define GPU_RANK_H

#include "cuda_driver.h"
#include "exam.h"

struct gpu_rank {
    const struct ko_cuda *cuda;
    ko_cu_device device;
    ko_cu_stream stream;
};

/* Of the calling thread. */
extern _Thread_local struct gpu_rank gpu_rank;

/* What all ranks do first, so that none of them hears before it has a stream of what goes wrong
 * later; group NULL: on GPU 0, without telling any. 0, or ranks_fail. */
int gpu_rank_enter(kolo_group *group);

/* The same of a rank, a process, that has no GPU. */
int gpu_rank_enter_without(kolo_group *group);

/* And last, with what has failed so far. */
int gpu_rank_leave(int failed);

/* Memory on the rank's GPU; a thread's is kept for the next one that wants as much. */
bool gpu_rank_alloc(ko_cu_ptr *memory, size_t nbytes);
bool gpu_rank_free(ko_cu_ptr memory, size_t nbytes);

/* Memory on the thread's current GPU, as the driver gives it; a process that gets none ends. */
ko_cu_ptr gpu_rank_fresh(size_t nbytes);

/* So many bytes that every thread of as many as the rank's GPU has room for at once has 32 of them:
 * kolo's kernels, which have half as many threads at most, go through their loops twice. */
size_t gpu_rank_long_bytes(void);

/* What is put into its stream between the two becomes a graph; the capture is of the strictest kind
 * that the ranks can do with. 0, or ranks_fail. */
int gpu_rank_capture(void);
int gpu_rank_captured(ko_cu_graph_exec *exec);

/* Fills addresses with n pieces of nbytes of the rank's GPU, which other processes can be handed if
 * handle_types says so; and takes them away. */
void gpu_rank_map(ko_cu_ptr at, size_t nbytes, int n, int handle_types);
void gpu_rank_unmap(ko_cu_ptr at, size_t nbytes, int n);

/* Whether the process has no more descriptors, as the double's mapped pieces are, than before, but
 * for five, which a rank opens when it first sleeps. 0, or ranks_fail. */
int gpu_rank_check_descriptors(int before);

/* An exam's buffers on the GPU. Their content comes by the stream, some time later. */
extern const struct exam_memory gpu_rank_memory;

/* The same, of pieces that other processes can be handed, and with the end of one in its middle. */
extern const struct exam_memory gpu_rank_pieces;

/* The same, but that it cannot be handed over, as a pool's memory. */
extern const struct exam_memory gpu_rank_pool;

/* The first again, and pieces; the call is captured for a graph, which is launched once. */
extern const struct exam_memory gpu_rank_graphs;
extern const struct exam_memory gpu_rank_graphs_of_pieces;

#endif
