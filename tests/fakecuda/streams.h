/* SPDX-License-Identifier: MIT
 *
 * streams.h: what the double's streams are, for stream.c and queues.c.
 */
#ifndef DOUBLE_STREAMS_H
#define DOUBLE_STREAMS_H

#include "double.h"

struct ko_cuda_stream {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    ko_cu_context context;
    bool is_blocking, is_leaving;
    bool is_urgent;
    unsigned queue;             /* of those of its priority; 0: its own */
    uint64_t under_way;         /* number of that task; 0: there is none */
    uint64_t entered, finished; /* tasks */
    struct double_task *first, *last;
    struct ko_cuda_stream *next;     /* of all */
    struct double_capture *captured; /* what comes goes there; NULL: it is to be done */
    bool has_joined;                 /* another stream's */
    uint64_t ncaptured, nawaited;    /* tasks that came; those that others there wait for */
};

/* All of them. */
extern pthread_mutex_t double_streams_lock;
extern struct ko_cuda_stream *double_streams;

/* A queue for a new stream; with the lock. */
unsigned double_queue_choose(const struct ko_cuda_stream *stream);
/* Until nothing of the stream's queue that came before the task is to be done. */
void double_queue_await(const struct ko_cuda_stream *stream, const struct double_task *task);

#endif
