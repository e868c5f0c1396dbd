/* SPDX-License-Identifier: MIT
 *
 * streams.h: what the double's streams are, for stream.c, events.c and queues.c.
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

/* NULL, or the handle for it: the legacy stream; NULL: there is no context. */
ko_cu_stream double_stream_resolve(ko_cu_stream stream);
/* To who asks whether something is done. It may be over for a fault, which came when he had begun
 * to ask. */
ko_cu_result double_answer(bool is_over);
/* Whether it lets go of an event, which it does of a context that has ended, too. */
bool double_is_of_event(const struct double_task *task);

void double_nap_us(int us);
int64_t double_now_ns(void);

/* A queue for a new stream; with the lock. */
unsigned double_queue_choose(const struct ko_cuda_stream *stream);
/* Until nothing of the stream's queue that came before the task is to be done. */
void double_queue_await(const struct ko_cuda_stream *stream, const struct double_task *task);

#endif
