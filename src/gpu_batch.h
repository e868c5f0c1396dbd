/* SPDX-License-Identifier: MIT
 *
 * gpu_batch.h: words that a stream waits for and writes, one after the other in one step: of a
 * graph that is one node, where a node for each would take as long again (two microseconds,
 * measured on an H200).
 */
#ifndef KO_GPU_BATCH_H
#define KO_GPU_BATCH_H

#include "gpu.h"
#include "gpu_share.h"

enum { KO_GPU_BATCH = 64 }; /* words of a step; what is more goes on in another */

struct ko_gpu_batch {
    struct ko_gpu *gpu;
    ko_cu_stream stream;
    int err; /* the first */
    unsigned n;
    ko_cu_word_step steps[KO_GPU_BATCH];
};

/* With the context, like all of these. */
static inline struct ko_gpu_batch ko_gpu_batch(struct ko_gpu *gpu, ko_cu_stream stream)
{
    return (struct ko_gpu_batch){.gpu = gpu, .stream = stream};
}

/* Until the word is 1 or more, or a number or more, which may have come round. */
void ko_gpu_batch_await(struct ko_gpu_batch *batch, ko_cu_ptr word);
void ko_gpu_batch_await_number(struct ko_gpu_batch *batch, ko_cu_ptr word, uint32_t number);

/* Behind all that the stream has done. */
void ko_gpu_batch_put(struct ko_gpu_batch *batch, ko_cu_ptr word, uint32_t value);

/* For the host: what the stream waits for next (ko_gpu_page's awaited). */
void ko_gpu_batch_say(struct ko_gpu_batch *batch, enum ko_gpu_round round, uint32_t awaited);

/* Into the stream with it. */
int ko_gpu_batch_end(struct ko_gpu_batch *batch);

#endif
