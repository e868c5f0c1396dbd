/* SPDX-License-Identifier: MIT
 *
 * The double's streams: a thread and a queue each. The stream whose handle is NULL waits for all
 * others of its context that block, and they for it, as the driver's legacy stream does.
 */
#include "streams.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_STREAMS = 4096, SHORTEST_NAP_US = 5, LONGEST_NAP_US = 1000 };

/* Of so many operations one begins later: what a nap costs is two changes of threads, and the
 * others come the more out of step for having none. */
enum { DELAYED_OF = 4 };

pthread_mutex_t double_streams_lock = PTHREAD_MUTEX_INITIALIZER;
struct ko_cuda_stream *double_streams;
static atomic_uint_fast64_t ntasks;

void double_nap_us(int us)
{
    const struct timespec nap = {0, us * 1000L};

    nanosleep(&nap, NULL);
}

int64_t double_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* The longer it takes, the seldomer a stream looks: by the time that many stand they would take the
 * cores from those for whom they wait. */
static void await_ready(const struct ko_cuda_stream *stream, struct double_task *task)
{
    int us = SHORTEST_NAP_US;

    while (task->is_ready && !task->is_ready(task) && !double_fault_of(stream->context)) {
        double_nap_us(us);
        us = us < LONGEST_NAP_US ? us + us / 4 + 1 : us;
    }
}

/* Of a context that has ended, events are let go of, and nothing else is done. */
static void do_task(const struct ko_cuda_stream *stream, struct double_task *task, int jitter_us,
                    unsigned *seed)
{
    if (jitter_us && rand_r(seed) % DELAYED_OF == 0)
        double_nap_us(rand_r(seed) % jitter_us);
    await_ready(stream, task);
    if (!double_fault_of(stream->context) || double_is_of_event(task))
        task->run(task);
    free(task);
}

static void free_stream(struct ko_cuda_stream *stream)
{
    struct ko_cuda_stream **link = &double_streams;

    pthread_mutex_lock(&double_streams_lock);
    while (*link != stream)
        link = &(*link)->next;
    *link = stream->next;
    pthread_mutex_unlock(&double_streams_lock);
    pthread_cond_destroy(&stream->changed);
    pthread_mutex_destroy(&stream->lock);
    free(stream);
}

static void *work(void *argument)
{
    struct ko_cuda_stream *stream = argument;
    const int jitter_us = double_number("FAKECUDA_JITTER", 0);
    unsigned seed = (unsigned)double_now_ns();

    double_allow();
    pthread_mutex_lock(&stream->lock);
    while (stream->first || !stream->is_leaving) {
        struct double_task *task = stream->first;

        if (!task) {
            pthread_cond_wait(&stream->changed, &stream->lock);
            continue;
        }
        stream->first = task->next;
        stream->under_way = task->number;
        pthread_mutex_unlock(&stream->lock);
        double_queue_await(stream, task);
        do_task(stream, task, jitter_us, &seed);
        pthread_mutex_lock(&stream->lock);
        stream->finished++;
        stream->under_way = 0;
        pthread_cond_broadcast(&stream->changed);
    }
    pthread_mutex_unlock(&stream->lock);
    free_stream(stream);
    return NULL;
}

ko_cu_stream double_stream_new(ko_cu_context context, unsigned flags, bool is_urgent)
{
    struct ko_cuda_stream *stream = calloc(1, sizeof *stream);

    stream->is_urgent = is_urgent;
    stream->context = context;
    stream->is_blocking = !(flags & KO_CU_STREAM_NON_BLOCKING);
    pthread_mutex_init(&stream->lock, NULL);
    pthread_cond_init(&stream->changed, NULL);
    pthread_mutex_lock(&double_streams_lock);
    stream->queue = double_queue_choose(stream);
    stream->next = double_streams;
    double_streams = stream;
    pthread_mutex_unlock(&double_streams_lock);
    if (pthread_create(&stream->thread, NULL, work, stream))
        abort();
    pthread_detach(stream->thread);
    return stream;
}

/* ---- order between streams ------------------------------------------------------------------- */

static uint64_t entered(ko_cu_stream stream)
{
    uint64_t n;

    pthread_mutex_lock(&stream->lock);
    n = stream->entered;
    pthread_mutex_unlock(&stream->lock);
    return n;
}

struct join {
    struct double_task task;
    ko_cu_stream other;
    uint64_t ticket;
};

static bool has_finished(ko_cu_stream stream, uint64_t ticket)
{
    bool has;

    pthread_mutex_lock(&stream->lock);
    has = stream->finished >= ticket;
    pthread_mutex_unlock(&stream->lock);
    return has;
}

void double_do_nothing(struct double_task *task)
{
    (void)task;
}

/* A stream that has left the list has done everything. */
static bool is_joined(struct double_task *task)
{
    struct join *join = (struct join *)task;
    struct ko_cuda_stream *stream;
    bool is;

    pthread_mutex_lock(&double_streams_lock);
    for (stream = double_streams; stream && stream != join->other; stream = stream->next)
        continue;
    is = !stream || has_finished(stream, join->ticket);
    pthread_mutex_unlock(&double_streams_lock);
    return is;
}

static void push(ko_cu_stream stream, const struct double_task *task, size_t nbytes)
{
    struct double_task *copy = malloc(nbytes);

    memcpy(copy, task, nbytes);
    copy->next = NULL;
    pthread_mutex_lock(&stream->lock);
    copy->number = atomic_fetch_add(&ntasks, 1) + 1;
    if (stream->first)
        stream->last->next = copy;
    else
        stream->first = copy;
    stream->last = copy;
    stream->entered++;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
}

static void join_with(ko_cu_stream stream, ko_cu_stream other)
{
    const struct join join = {
        {.run = double_do_nothing, .is_ready = is_joined}, other, entered(other)};

    push(stream, &join.task, sizeof join);
}

/* What is before this in other streams; with the list's lock. */
static void join_others(ko_cu_stream stream)
{
    const ko_cu_stream legacy = stream->context->legacy;

    if (!stream->is_blocking)
        return;
    if (stream != legacy) {
        join_with(stream, legacy);
        return;
    }
    for (struct ko_cuda_stream *other = double_streams; other; other = other->next)
        if (other != stream && other->context == stream->context && other->is_blocking)
            join_with(stream, other);
}

ko_cu_stream double_stream_resolve(ko_cu_stream stream)
{
    if (stream && (uintptr_t)stream != KO_CU_STREAM_LEGACY)
        return stream;
    return double_context() ? double_context()->legacy : NULL;
}

int double_gpu_of(ko_cu_stream stream)
{
    stream = double_stream_resolve(stream);
    return stream ? stream->context->device : -1;
}

bool double_is_busy(int device)
{
    bool is = false;

    pthread_mutex_lock(&double_streams_lock);
    for (struct ko_cuda_stream *stream = double_streams; stream && !is; stream = stream->next)
        is = stream->context->device == device && !has_finished(stream, entered(stream));
    pthread_mutex_unlock(&double_streams_lock);
    return is;
}

bool double_is_awaiting_streams(int device)
{
    return __atomic_load_n(&double_context_of(device)->nawaiting, __ATOMIC_SEQ_CST);
}

void double_await_streams(void)
{
    const ko_cu_context context = double_context();
    struct join joins[MOST_STREAMS];
    int n = 0;

    if (!context)
        return;
    __atomic_fetch_add(&context->nawaiting, 1, __ATOMIC_SEQ_CST);
    pthread_mutex_lock(&double_streams_lock);
    for (struct ko_cuda_stream *stream = double_streams; stream; stream = stream->next) {
        if (stream->context != context)
            continue;
        if (n == MOST_STREAMS)
            abort();
        joins[n++] = (struct join){.other = stream, .ticket = entered(stream)};
    }
    pthread_mutex_unlock(&double_streams_lock);
    for (int i = 0; i < n; i++)
        while (!is_joined(&joins[i].task))
            double_nap_us(5);
    __atomic_fetch_sub(&context->nawaiting, 1, __ATOMIC_SEQ_CST);
}

/* FAKECUDA_DEPTH. Several threads may find the same room, as nobody counts on none of it. */
static void await_room(ko_cu_stream stream)
{
    const uint64_t depth = (uint64_t)double_number("FAKECUDA_DEPTH", 0);
    uint64_t n = depth;

    if (!depth)
        return;
    __atomic_fetch_add(&stream->context->ncrowded, 1, __ATOMIC_SEQ_CST);
    while (n >= depth) {
        pthread_mutex_lock(&stream->lock);
        n = stream->entered - stream->finished;
        pthread_mutex_unlock(&stream->lock);
        if (n >= depth)
            double_nap_us(SHORTEST_NAP_US);
    }
    __atomic_fetch_sub(&stream->context->ncrowded, 1, __ATOMIC_SEQ_CST);
}

void double_await_entry(void)
{
    const ko_cu_context context = double_context();

    if (!context || !double_number("FAKECUDA_SHUT", 0))
        return;
    while (__atomic_load_n(&context->ncrowded, __ATOMIC_SEQ_CST))
        double_nap_us(SHORTEST_NAP_US);
}

/* The legacy stream would have to wait for those that are captured and wait for it: an error, and
 * their end. With the list's lock. */
static ko_cu_result break_captures(ko_cu_stream stream)
{
    ko_cu_result result = KO_CU_SUCCESS;

    for (struct ko_cuda_stream *other = double_streams; other; other = other->next)
        if (other->captured && other->is_blocking && other->context->legacy == stream) {
            double_capture_break(other->captured);
            result = KO_CU_CAPTURE_IMPLICIT;
        }
    return result;
}

ko_cu_result double_enqueue(ko_cu_stream stream, const struct double_task *task, size_t nbytes)
{
    ko_cu_result result = KO_CU_SUCCESS;

    stream = double_stream_resolve(stream);
    if (!stream)
        return KO_CU_INVALID_CONTEXT;
    await_room(stream);
    pthread_mutex_lock(&double_streams_lock);
    if (stream->captured) {
        double_capture_add(stream->captured, task, nbytes);
        stream->ncaptured++;
    } else if (!(result = break_captures(stream))) {
        join_others(stream);
        push(stream, task, nbytes);
    }
    pthread_mutex_unlock(&double_streams_lock);
    return result;
}

void double_await_all_of(ko_cu_stream stream)
{
    uint64_t ticket;

    stream = double_stream_resolve(stream);
    ticket = entered(stream);
    while (!stream->captured && !has_finished(stream, ticket))
        double_nap_us(SHORTEST_NAP_US);
}

/* ---- streams --------------------------------------------------------------------------------- */

ko_cu_result double_stream_create(ko_cu_stream *stream, unsigned flags)
{
    if (!double_context())
        return KO_CU_INVALID_CONTEXT;
    *stream = double_stream_new(double_context(), flags, false);
    return KO_CU_SUCCESS;
}

ko_cu_result double_stream_create_urgent(ko_cu_stream *stream, unsigned flags, int priority)
{
    if (!double_context())
        return KO_CU_INVALID_CONTEXT;
    *stream = double_stream_new(double_context(), flags, priority < 0);
    return KO_CU_SUCCESS;
}

ko_cu_result double_stream_priorities(int *least, int *most)
{
    *least = 0;
    *most = -5;
    return double_context() ? KO_CU_SUCCESS : KO_CU_INVALID_CONTEXT;
}

ko_cu_result double_stream_destroy(ko_cu_stream stream)
{
    if (!stream)
        return KO_CU_INVALID_HANDLE;
    pthread_mutex_lock(&stream->lock);
    stream->is_leaving = true;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
    return KO_CU_SUCCESS;
}

ko_cu_result double_stream_sync(ko_cu_stream stream)
{
    uint64_t ticket;

    stream = double_stream_resolve(stream);
    if (!stream)
        return KO_CU_INVALID_CONTEXT;
    pthread_mutex_lock(&stream->lock);
    ticket = stream->entered;
    while (stream->finished < ticket)
        pthread_cond_wait(&stream->changed, &stream->lock);
    pthread_mutex_unlock(&stream->lock);
    return double_fault_of(stream->context);
}

ko_cu_result double_answer(bool is_over)
{
    if (!is_over)
        return KO_CU_NOT_READY;
    return double_context() ? double_fault_of(double_context()) : KO_CU_SUCCESS;
}

ko_cu_result double_stream_query(ko_cu_stream stream)
{
    stream = double_stream_resolve(stream);
    if (!stream)
        return KO_CU_INVALID_CONTEXT;
    if (stream->captured)
        return KO_CU_NOT_PERMITTED;
    return double_answer(has_finished(stream, entered(stream)));
}

ko_cu_result double_stream_context(ko_cu_stream stream, ko_cu_context *context)
{
    stream = double_stream_resolve(stream);
    if (!stream)
        return KO_CU_INVALID_CONTEXT;
    *context = stream->context;
    return KO_CU_SUCCESS;
}

ko_cu_result double_stream_flags(ko_cu_stream stream, unsigned *flags)
{
    stream = double_stream_resolve(stream);
    if (!stream)
        return KO_CU_INVALID_CONTEXT;
    *flags = stream->is_blocking ? 0 : KO_CU_STREAM_NON_BLOCKING;
    return KO_CU_SUCCESS;
}

/* ---- graphs ---------------------------------------------------------------------------------- */

ko_cu_result double_capture_begin(ko_cu_stream stream, int mode)
{
    if (!stream || stream->captured || mode < 0 || mode > KO_CU_CAPTURE_RELAXED)
        return KO_CU_INVALID_VALUE;
    pthread_mutex_lock(&double_streams_lock);
    stream->captured = double_capture_open(mode);
    stream->has_joined = false;
    pthread_mutex_unlock(&double_streams_lock);
    return KO_CU_SUCCESS;
}

/* Takes all streams out; false: one that has joined did something that none there waits for. */
static bool leave_capture(const struct double_capture *capture)
{
    bool are_joined = true;

    for (struct ko_cuda_stream *stream = double_streams; stream; stream = stream->next)
        if (stream->captured == capture) {
            are_joined &= !stream->has_joined || stream->ncaptured <= stream->nawaited;
            stream->captured = NULL;
        }
    return are_joined;
}

ko_cu_result double_capture_end(ko_cu_stream stream, ko_cu_graph *graph)
{
    struct double_capture *capture = stream ? stream->captured : NULL;
    bool are_joined;

    if (!capture)
        return KO_CU_INVALID_VALUE;
    if (stream->has_joined)
        return DOUBLE_CAPTURE_UNMATCHED;
    if (!double_capture_is_ended_here(capture))
        return KO_CU_CAPTURE_WRONG_THREAD;
    pthread_mutex_lock(&double_streams_lock);
    are_joined = leave_capture(capture);
    pthread_mutex_unlock(&double_streams_lock);
    return double_capture_close(capture, are_joined, graph);
}

/* Whether the stream is the legacy one, and one is captured that waits for it. */
static bool is_in_the_way(ko_cu_stream stream)
{
    bool is = false;

    pthread_mutex_lock(&double_streams_lock);
    for (struct ko_cuda_stream *other = double_streams; other && !is; other = other->next)
        is = other->captured && other->is_blocking && other->context->legacy == stream;
    pthread_mutex_unlock(&double_streams_lock);
    return is;
}

ko_cu_result double_capture_status(ko_cu_stream stream, int *status)
{
    stream = double_stream_resolve(stream);
    *status = stream && stream->captured ? KO_CU_CAPTURE_ACTIVE : KO_CU_CAPTURE_NONE;
    return is_in_the_way(stream) ? KO_CU_CAPTURE_IMPLICIT : KO_CU_SUCCESS;
}
