/* SPDX-License-Identifier: MIT */
#include "gpu_batch.h"

static void flush(struct ko_gpu_batch *batch)
{
    const struct ko_cuda *cuda = ko_gpu_driver(batch->gpu);

    if (batch->n && !batch->err)
        batch->err =
            ko_cuda_check(cuda, cuda->stream_step(batch->stream, batch->n, batch->steps, 0),
                          "a stream cannot wait for words");
    batch->n = 0;
}

static void add(struct ko_gpu_batch *batch, const ko_cu_word_step *step)
{
    if (batch->n == KO_GPU_BATCH)
        flush(batch);
    batch->steps[batch->n++] = *step;
}

void ko_gpu_batch_await_number(struct ko_gpu_batch *batch, ko_cu_ptr word, uint32_t number)
{
    const ko_cu_word_step step = {
        .what = KO_CU_AWAIT_WORD, .at = word, .value = number, .flags = KO_CU_WAIT_GEQ};

    add(batch, &step);
}

void ko_gpu_batch_await(struct ko_gpu_batch *batch, ko_cu_ptr word)
{
    ko_gpu_batch_await_number(batch, word, 1);
}

void ko_gpu_batch_put(struct ko_gpu_batch *batch, ko_cu_ptr word, uint32_t value)
{
    const ko_cu_word_step step = {.what = KO_CU_PUT_WORD, .at = word, .value = value};

    add(batch, &step);
}

void ko_gpu_batch_say(struct ko_gpu_batch *batch, enum ko_gpu_round round, uint32_t awaited)
{
    const size_t at = offsetof(struct ko_gpu_page, awaited) + sizeof awaited * (unsigned)round;

    ko_gpu_batch_put(batch, ko_gpu_page_at(batch->gpu) + at, awaited);
}

int ko_gpu_batch_end(struct ko_gpu_batch *batch)
{
    flush(batch);
    return batch->err;
}
