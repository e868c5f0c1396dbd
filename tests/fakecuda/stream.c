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

struct ko_cuda_event {
    atomic_int users; /* its owner, and tasks that name it */
    atomic_uint_fast64_t recorded, reached;
    atomic_int_fast64_t at_ns;
    bool has_time;
    atomic_uint_fast64_t capture; /* number of that in which it was recorded last; 0: in none */
    ko_cu_stream by;              /* in this stream, */
    uint64_t behind;              /* after so many tasks there */
};

enum { MOST_STREAMS = 4096, SHORTEST_NAP_US = 5, LONGEST_NAP_US = 200 };

pthread_mutex_t double_streams_lock = PTHREAD_MUTEX_INITIALIZER;
struct ko_cuda_stream *double_streams;
static atomic_uint_fast64_t ntasks;

static void nap_us(int us)
{
    const struct timespec nap = {0, us * 1000L};

    nanosleep(&nap, NULL);
}

static int64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* ---- the thread ------------------------------------------------------------------------------ */

static bool is_of_event(const struct double_task *task);

/* The longer it takes, the seldomer a stream looks: by the time that many stand they would take the
 * cores from those for whom they wait. */
static void await_ready(const struct ko_cuda_stream *stream, struct double_task *task)
{
    int us = SHORTEST_NAP_US;

    while (task->is_ready && !task->is_ready(task) && !double_fault_of(stream->context)) {
        nap_us(us);
        us = us < LONGEST_NAP_US ? us + us / 4 + 1 : us;
    }
}

/* Of a context that has ended, events are let go of, and nothing else is done. */
static void do_task(const struct ko_cuda_stream *stream, struct double_task *task, int jitter_us,
                    unsigned *seed)
{
    if (jitter_us)
        nap_us(rand_r(seed) % jitter_us);
    await_ready(stream, task);
    if (!double_fault_of(stream->context) || is_of_event(task))
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
    unsigned seed = (unsigned)now_ns();

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

/* NULL, or the handle for it: the legacy stream; NULL: there is no context. */
static ko_cu_stream resolve(ko_cu_stream stream)
{
    if (stream && (uintptr_t)stream != KO_CU_STREAM_LEGACY)
        return stream;
    return double_context() ? double_context()->legacy : NULL;
}

int double_gpu_of(ko_cu_stream stream)
{
    stream = resolve(stream);
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

static atomic_int nawaiting; /* threads of this process */

bool double_is_awaiting_streams(void)
{
    return atomic_load(&nawaiting);
}

void double_await_streams(void)
{
    const ko_cu_context context = double_context();
    struct join joins[MOST_STREAMS];
    int n = 0;

    atomic_fetch_add(&nawaiting, 1);
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
            nap_us(5);
    atomic_fetch_sub(&nawaiting, 1);
}

ko_cu_result double_enqueue(ko_cu_stream stream, const struct double_task *task, size_t nbytes)
{
    stream = resolve(stream);
    if (!stream)
        return KO_CU_INVALID_CONTEXT;
    pthread_mutex_lock(&double_streams_lock);
    if (stream->captured) {
        double_capture_add(stream->captured, task, nbytes);
        stream->ncaptured++;
    } else {
        join_others(stream);
        push(stream, task, nbytes);
    }
    pthread_mutex_unlock(&double_streams_lock);
    return KO_CU_SUCCESS;
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

    stream = resolve(stream);
    if (!stream)
        return KO_CU_INVALID_CONTEXT;
    pthread_mutex_lock(&stream->lock);
    ticket = stream->entered;
    while (stream->finished < ticket)
        pthread_cond_wait(&stream->changed, &stream->lock);
    pthread_mutex_unlock(&stream->lock);
    return double_fault_of(stream->context);
}

/* To who asks whether something is done. It may be over for a fault, which came when he had begun
 * to ask. */
static ko_cu_result answer(bool is_over)
{
    if (!is_over)
        return KO_CU_NOT_READY;
    return double_context() ? double_fault_of(double_context()) : KO_CU_SUCCESS;
}

ko_cu_result double_stream_query(ko_cu_stream stream)
{
    stream = resolve(stream);
    if (!stream)
        return KO_CU_INVALID_CONTEXT;
    if (stream->captured)
        return KO_CU_NOT_PERMITTED;
    return answer(has_finished(stream, entered(stream)));
}

ko_cu_result double_stream_context(ko_cu_stream stream, ko_cu_context *context)
{
    stream = resolve(stream);
    if (!stream)
        return KO_CU_INVALID_CONTEXT;
    *context = stream->context;
    return KO_CU_SUCCESS;
}

ko_cu_result double_stream_flags(ko_cu_stream stream, unsigned *flags)
{
    stream = resolve(stream);
    if (!stream)
        return KO_CU_INVALID_CONTEXT;
    *flags = stream->is_blocking ? 0 : KO_CU_STREAM_NON_BLOCKING;
    return KO_CU_SUCCESS;
}

/* ---- events ---------------------------------------------------------------------------------- */

struct mark {
    struct double_task task;
    ko_cu_event event;
    uint64_t count;
};

static void leave_event(ko_cu_event event)
{
    if (atomic_fetch_sub(&event->users, 1) == 1)
        free(event);
}

ko_cu_result double_event_create(ko_cu_event *event, unsigned flags)
{
    *event = calloc(1, sizeof **event);
    atomic_init(&(*event)->users, 1);
    (*event)->has_time = !(flags & KO_CU_EVENT_DISABLE_TIMING);
    return KO_CU_SUCCESS;
}

ko_cu_result double_event_destroy(ko_cu_event event)
{
    if (!event)
        return KO_CU_INVALID_HANDLE;
    leave_event(event);
    return KO_CU_SUCCESS;
}

/* Two streams may come to it, each to the place where it was recorded there: the later counts. */
static void reach(struct double_task *task)
{
    struct mark *mark = (struct mark *)task;
    uint_fast64_t reached = atomic_load(&mark->event->reached);

    atomic_store(&mark->event->at_ns, now_ns());
    while (reached < mark->count &&
           !atomic_compare_exchange_weak(&mark->event->reached, &reached, mark->count))
        continue;
    leave_event(mark->event);
}

static bool is_reached(struct double_task *task)
{
    struct mark *mark = (struct mark *)task;

    return atomic_load(&mark->event->reached) >= mark->count;
}

static void leave_mark(struct double_task *task)
{
    leave_event(((struct mark *)task)->event);
}

static bool is_of_event(const struct double_task *task)
{
    return task->run == reach || task->run == leave_mark;
}

/* In a captured stream, for others to join its capture. */
static bool is_recorded_in_capture(ko_cu_event event, ko_cu_stream stream)
{
    uint64_t capture = 0;

    pthread_mutex_lock(&double_streams_lock);
    if (stream && stream->captured) {
        capture = double_capture_number(stream->captured);
        event->by = stream;
        event->behind = stream->ncaptured;
    }
    atomic_store(&event->capture, capture);
    pthread_mutex_unlock(&double_streams_lock);
    return capture;
}

ko_cu_result double_event_record(ko_cu_event event, ko_cu_stream stream)
{
    struct mark mark = {{.run = reach}, event, 0};

    if (!event)
        return KO_CU_INVALID_HANDLE;
    if (is_recorded_in_capture(event, resolve(stream)))
        return KO_CU_SUCCESS;
    mark.count = atomic_fetch_add(&event->recorded, 1) + 1;
    atomic_fetch_add(&event->users, 1);
    return double_enqueue(stream, &mark.task, sizeof mark);
}

/* Joins the capture in which the event was recorded. Locked. */
static ko_cu_result join_capture(ko_cu_stream stream, ko_cu_event event)
{
    struct double_capture *capture = double_capture_find(atomic_load(&event->capture));

    if (!capture || !stream)
        return stream ? DOUBLE_CAPTURED_EVENT : KO_CU_INVALID_CONTEXT;
    if (stream->captured && stream->captured != capture)
        return DOUBLE_CAPTURE_ISOLATED;
    if (!stream->captured) {
        stream->captured = capture;
        stream->has_joined = true;
        stream->ncaptured = stream->nawaited = 0;
    }
    for (struct ko_cuda_stream *by = double_streams; by; by = by->next)
        if (by == event->by && by != stream && by->nawaited < event->behind)
            by->nawaited = event->behind;
    return KO_CU_SUCCESS;
}

ko_cu_result double_stream_await_event(ko_cu_stream stream, ko_cu_event event, unsigned flags)
{
    struct mark mark = {{.run = leave_mark, .is_ready = is_reached}, event, 0};
    ko_cu_result result;

    if (!event || flags)
        return event ? KO_CU_INVALID_VALUE : KO_CU_INVALID_HANDLE;
    if (atomic_load(&event->capture)) {
        stream = resolve(stream);
        pthread_mutex_lock(&double_streams_lock);
        result = join_capture(stream, event);
        pthread_mutex_unlock(&double_streams_lock);
        return result;
    }
    mark.count = atomic_load(&event->recorded);
    atomic_fetch_add(&event->users, 1);
    return double_enqueue(stream, &mark.task, sizeof mark);
}

ko_cu_result double_event_query(ko_cu_event event)
{
    if (!event)
        return KO_CU_INVALID_HANDLE;
    return answer(atomic_load(&event->reached) >= atomic_load(&event->recorded));
}

ko_cu_result double_event_sync(ko_cu_event event)
{
    ko_cu_result result;

    while ((result = double_event_query(event)) == KO_CU_NOT_READY)
        nap_us(5);
    return result;
}

ko_cu_result double_event_elapsed(float *ms, ko_cu_event from, ko_cu_event to)
{
    if (!from || !to || !from->has_time || !to->has_time)
        return KO_CU_INVALID_HANDLE;
    if (double_event_query(from) || double_event_query(to))
        return KO_CU_NOT_READY;
    *ms = (float)((double)(atomic_load(&to->at_ns) - atomic_load(&from->at_ns)) * 1e-6);
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
    stream = resolve(stream);
    *status = stream && stream->captured ? KO_CU_CAPTURE_ACTIVE : KO_CU_CAPTURE_NONE;
    return is_in_the_way(stream) ? KO_CU_CAPTURE_IMPLICIT : KO_CU_SUCCESS;
}
