/* SPDX-License-Identifier: MIT */
#include "gpu_rank.h"

#include "ranks.h"

#include <stdlib.h>

_Thread_local struct gpu_rank gpu_rank;

int gpu_rank_enter(kolo_group *group)
{
    ko_cu_context context;
    int n;

    if (ko_cuda_open(&gpu_rank.cuda) || gpu_rank.cuda->device_count(&n))
        return ranks_fail("no driver");
    gpu_rank.device = group ? kolo_group_rank(group) % n : 0;
    if (gpu_rank.cuda->context_retain(&context, gpu_rank.device) ||
        gpu_rank.cuda->context_push(context) ||
        gpu_rank.cuda->stream_create(&gpu_rank.stream, KO_CU_STREAM_NON_BLOCKING))
        return ranks_fail("no stream");
    return group && kolo_group_set_stream(group, gpu_rank.stream)
               ? ranks_fail("the stream is not taken")
               : 0;
}

int gpu_rank_leave(int failed)
{
    ko_cu_context context;

    if (gpu_rank.cuda->stream_sync(gpu_rank.stream) ||
        gpu_rank.cuda->stream_destroy(gpu_rank.stream) || gpu_rank.cuda->context_pop(&context))
        return ranks_fail("the stream has failed");
    return failed;
}

int gpu_rank_capture(void)
{
    return gpu_rank.cuda->capture_begin(gpu_rank.stream, KO_CU_CAPTURE_GLOBAL)
               ? ranks_fail("no capture")
               : 0;
}

int gpu_rank_captured(ko_cu_graph_exec *exec)
{
    ko_cu_graph graph;

    return gpu_rank.cuda->capture_end(gpu_rank.stream, &graph) ||
                   gpu_rank.cuda->graph_prepare(exec, graph, 0) ||
                   gpu_rank.cuda->graph_destroy(graph)
               ? ranks_fail("no graph")
               : 0;
}

static void *make(const void *content, size_t nbytes)
{
    ko_cu_ptr memory;

    if (gpu_rank.cuda->alloc(&memory, nbytes) ||
        gpu_rank.cuda->copy(memory, (uintptr_t)content, nbytes, gpu_rank.stream))
        abort();
    return (void *)(uintptr_t)memory;
}

static void fetch(void *content, void *memory, size_t nbytes)
{
    if (gpu_rank.cuda->copy((uintptr_t)content, (uintptr_t)memory, nbytes, gpu_rank.stream) ||
        gpu_rank.cuda->stream_sync(gpu_rank.stream) || gpu_rank.cuda->free((uintptr_t)memory))
        abort();
}

const struct exam_memory gpu_rank_memory = {make, fetch};
