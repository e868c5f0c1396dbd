/* SPDX-License-Identifier: MIT
 *
 * gpu_passage.h: a message from or into GPU memory between ranks 0 and 1 that are on two hosts by
 * their names, over rdma of a double; and what the doubles have counted. Ranks are processes.
 */
#ifndef GPU_PASSAGE_H
#define GPU_PASSAGE_H

#include "gpu_rank.h"
#include "ranks.h"
#include "transport.h"

enum { GPU_PASSAGE_MOST = 700000, GPU_PASSAGE_SLICE = 32768 };

/* Whole slices, each of which is written, wherever it comes from. */
static inline size_t gpu_passage_whole(void)
{
    return 3 * ko_message_bytes(GPU_PASSAGE_SLICE);
}

/* Of GPU memory, or the host's. */
struct gpu_area {
    unsigned char *at; /* what the calls are given */
    size_t nbytes;
    bool is_on_gpu;
};

struct gpu_area gpu_area_new(size_t nbytes, bool is_on_gpu);
void gpu_area_free(struct gpu_area *area);

/* All of it is stale but nbytes from offset on, which are rank from's, of the key: makes it so; 0
 * if it is, else ranks_fail. */
void gpu_area_fill(const struct gpu_area *area, size_t offset, size_t nbytes, int from,
                   unsigned key);
int gpu_area_check(const struct gpu_area *area, size_t offset, size_t nbytes, int from,
                   unsigned key);

/* What rank 0 sends to 1, or the other way round, and how. */
struct gpu_passage {
    int from;
    size_t nbytes, out_at, in_at; /* bytes, and where they lie in the areas */
    bool is_from_gpu, is_to_gpu, is_async;
    unsigned key;
};

/* *with_host: what has been copied between a GPU and the host meanwhile. */
int gpu_pass(kolo_group *group, const struct gpu_passage *passage, const struct gpu_area *area,
             uint64_t *with_host);

/* Four times. One that the stream was late for is staged, too: of some the best counts, and what
 * was flushed then. */
int gpu_pass_best(kolo_group *group, const struct gpu_passage *passage, const struct gpu_area *area,
                  uint64_t *with_host, int *nflushes);

/* What each rank does first: it enters a GPU, and has a link then. */
extern int gpu_passage_rank;
int gpu_passage_enter(kolo_group *group);

/* Of dma-bufs that are registered, or ever have been; of what adapters have written. */
int gpu_passage_dmabufs(bool ever);
int gpu_passage_flushes(void);

/* What a rank does before it joins, besides; NULL: nothing. */
extern int (*gpu_passage_settle)(int rank, void *argument);

/* Two ranks, which has to go well; timeout_ms and tolerated as in struct ranks. */
void gpu_passage_run(ranks_body body, int timeout_ms, int tolerated);

/* The same, and what both have warned of; cap - 1 bytes at most, one at least. */
void gpu_passage_run_warned(ranks_body body, char *text, size_t cap);

#endif
