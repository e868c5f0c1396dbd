/* SPDX-License-Identifier: MIT
 *
 * The double's events. One that has been recorded in a captured stream is the capture's.
 */
#include "streams.h"

#include <stdatomic.h>
#include <stdlib.h>

struct ko_cuda_event {
    atomic_int users; /* its owner, and tasks that name it */
    ko_cu_context context;
    atomic_uint_fast64_t recorded, reached;
    atomic_int_fast64_t at_ns;
    bool has_time;
    atomic_uint_fast64_t capture; /* number of that in which it was recorded last; 0: in none */
    ko_cu_stream by;              /* in this stream, */
    uint64_t behind;              /* after so many tasks there */
};

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
    if (!double_context())
        return KO_CU_INVALID_CONTEXT;
    *event = calloc(1, sizeof **event);
    (*event)->context = double_context();
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

    atomic_store(&mark->event->at_ns, double_now_ns());
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

bool double_is_of_event(const struct double_task *task)
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

/* What is not taken never was. */
static ko_cu_result enqueue(ko_cu_stream stream, struct mark *mark)
{
    ko_cu_result result;

    atomic_fetch_add(&mark->event->users, 1);
    result = double_enqueue(stream, &mark->task, sizeof *mark);
    if (result)
        mark->task.run(&mark->task);
    return result;
}

ko_cu_result double_event_record(ko_cu_event event, ko_cu_stream stream)
{
    struct mark mark = {{.run = reach}, event, 0};

    stream = double_stream_resolve(stream);
    if (!event || (stream && stream->context != event->context))
        return KO_CU_INVALID_HANDLE;
    if (is_recorded_in_capture(event, stream))
        return KO_CU_SUCCESS;
    mark.count = atomic_fetch_add(&event->recorded, 1) + 1;
    return enqueue(stream, &mark);
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

/* And so cannot wait for what was put into another one outside of the capture. */
static bool is_captured(ko_cu_stream stream)
{
    bool is;

    pthread_mutex_lock(&double_streams_lock);
    is = stream && stream->captured;
    if (is)
        double_capture_break(stream->captured);
    pthread_mutex_unlock(&double_streams_lock);
    return is;
}

ko_cu_result double_stream_await_event(ko_cu_stream stream, ko_cu_event event, unsigned flags)
{
    struct mark mark = {{.run = leave_mark, .is_ready = is_reached}, event, 0};
    ko_cu_result result;

    if (!event || flags)
        return event ? KO_CU_INVALID_VALUE : KO_CU_INVALID_HANDLE;
    if (atomic_load(&event->capture)) {
        stream = double_stream_resolve(stream);
        pthread_mutex_lock(&double_streams_lock);
        result = join_capture(stream, event);
        pthread_mutex_unlock(&double_streams_lock);
        return result;
    }
    mark.count = atomic_load(&event->recorded);
    if (mark.count && is_captured(double_stream_resolve(stream)))
        return DOUBLE_CAPTURE_ISOLATED;
    return enqueue(stream, &mark);
}

ko_cu_result double_event_query(ko_cu_event event)
{
    if (!event)
        return KO_CU_INVALID_HANDLE;
    if (atomic_load(&event->capture))
        return DOUBLE_CAPTURED_EVENT;
    return double_answer(atomic_load(&event->reached) >= atomic_load(&event->recorded));
}

ko_cu_result double_event_sync(ko_cu_event event)
{
    ko_cu_result result;

    while ((result = double_event_query(event)) == KO_CU_NOT_READY)
        double_nap_us(5);
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
