/* SPDX-License-Identifier: MIT
 *
 * The user's stream, and all that is waited for. Of what is put into a stream that stands still a
 * driver takes about a thousand, and has whoever puts in more wait: so nobody holds a lock then
 * that those need who let go of the stream. A driver might not even let them in meanwhile: so marks
 * that are held, each of three or four operations, are never as many.
 */
#include "gpu_parts.h"
#include "status.h"

#include <stdlib.h>
#include <time.h>

enum { LEAST_NAP_NS = 5000, MOST_NAP_NS = 1000000, ROOM_NAP_NS = 20000, SETTLING_MS = 2000 };
enum { MOST_HELD = 240 };

static const atomic_int never_stops;

/* ---- waiting --------------------------------------------------------------------------------- */

/* What is waited for takes perhaps microseconds, perhaps seconds: naps are a small part of it. */
static ko_cu_result look_until(const atomic_int *stop, ko_cu_result (*look)(const void *at),
                               const void *at, const ko_deadline *deadline)
{
    const int64_t began_ns = ko_now_ns();
    ko_cu_result result = look(at);

    while (result == KO_CU_NOT_READY && !atomic_load(stop) && !ko_deadline_passed(deadline)) {
        const int64_t nap_ns = (ko_now_ns() - began_ns) / 16;
        const struct timespec nap = {.tv_nsec = nap_ns < MOST_NAP_NS ? nap_ns : MOST_NAP_NS};

        if (nap_ns >= LEAST_NAP_NS)
            nanosleep(&nap, NULL);
        result = look(at);
    }
    return result;
}

static int fail_to_wait(struct ko_gpu *gpu, const char *what, const ko_deadline *deadline)
{
    if (atomic_load(gpu->stop))
        return ko_fail(KOLO_E_ABORTED, "%s had not finished when the group failed", what);
    return ko_fail(KOLO_E_TIMEOUT,
                   "%s has not finished in %d ms; KOLO_TIMEOUT_MS or kolo_group_set_timeout sets "
                   "the limit",
                   what, (int)deadline->timeout_ms);
}

struct queried {
    const struct ko_cuda *cuda;
    ko_cu_event event;
    ko_cu_stream stream;
};

static ko_cu_result is_at_event(const void *at)
{
    const struct queried *queried = at;

    return queried->cuda->event_query(queried->event);
}

static ko_cu_result has_finished(const void *at)
{
    const struct queried *queried = at;

    return queried->cuda->stream_query(queried->stream);
}

static int finish(struct ko_gpu *gpu, ko_cu_stream stream, const ko_deadline *deadline)
{
    const struct queried queried = {.cuda = gpu->cuda, .stream = stream};
    ko_cu_result result;
    int err = ko_gpu_enter(gpu);

    if (err)
        return err;
    result = look_until(gpu->stop, has_finished, &queried, deadline);
    ko_gpu_leave(gpu);
    if (result == KO_CU_NOT_READY)
        return fail_to_wait(gpu, "what the call has the GPU do", deadline);
    return ko_cuda_check(gpu->cuda, result, "the GPU has failed in the call");
}

int ko_gpu_finish(struct ko_gpu *gpu, const ko_deadline *deadline)
{
    return finish(gpu, gpu->own, deadline);
}

/* Of a context that has failed the driver says so whatever it is asked. */
int ko_gpu_check(struct ko_gpu *gpu)
{
    ko_cu_result result;
    int err = ko_gpu_enter(gpu);

    if (err)
        return err;
    result = gpu->cuda->stream_query(gpu->own);
    ko_gpu_leave(gpu);
    return result == KO_CU_NOT_READY ? KOLO_OK
                                     : ko_cuda_check(gpu->cuda, result, "the GPU has failed");
}

ko_deadline ko_gpu_settling(struct ko_gpu *gpu)
{
    ko_deadline deadline = ko_deadline_in(SETTLING_MS);
    int64_t by_ns = 0;

    if (!atomic_compare_exchange_strong(&gpu->settled_ns, &by_ns, deadline.at_ns))
        deadline.at_ns = by_ns;
    return deadline;
}

static bool settle(struct ko_gpu *gpu, ko_cu_result (*look)(const void *at),
                   const struct queried *queried, const ko_deadline *deadline)
{
    bool is_done;

    if (ko_gpu_enter(gpu))
        return false;
    is_done = look_until(&never_stops, look, queried, deadline) != KO_CU_NOT_READY;
    ko_gpu_leave(gpu);
    return is_done;
}

bool ko_gpu_settle(struct ko_gpu *gpu, const ko_deadline *deadline)
{
    const struct queried queried = {.cuda = gpu->cuda, .stream = gpu->own};

    return settle(gpu, has_finished, &queried, deadline);
}

bool ko_gpu_settle_mark(struct ko_gpu *gpu, const struct ko_gpu_mark *mark,
                        const ko_deadline *deadline)
{
    const struct queried queried = {.cuda = gpu->cuda, .event = mark->reached};

    return settle(gpu, is_at_event, &queried, deadline);
}

bool ko_gpu_settle_streams(struct ko_gpu *gpu, const ko_deadline *deadline)
{
    const struct queried queried = {.cuda = gpu->cuda, .event = gpu->put};

    return settle(gpu, is_at_event, &queried, deadline);
}

int ko_gpu_finish_late(struct ko_gpu *gpu, const ko_deadline *deadline)
{
    return finish(gpu, gpu->late, deadline);
}

/* ---- the user's stream ----------------------------------------------------------------------- */

static struct ko_gpu_mark *take_spare(struct ko_gpu *gpu)
{
    struct ko_gpu_mark *mark;

    pthread_mutex_lock(&gpu->lock);
    mark = gpu->spare;
    if (mark)
        gpu->spare = mark->spare;
    pthread_mutex_unlock(&gpu->lock);
    return mark;
}

/* With the lock, as far as let_go_of_first. */
static void make_spare(struct ko_gpu *gpu, struct ko_gpu_mark *mark)
{
    mark->spare = gpu->spare;
    gpu->spare = mark;
}

/* The number that streams wait for only grows, whoever lets go: it may be that of another thread
 * that is further. */
static void let_go_up_to(struct ko_gpu *gpu, uint32_t ticket)
{
    uint32_t seen = atomic_load(&gpu->page->let_go);

    /* release: what the call wrote comes before what the stream does next */
    while ((int32_t)(ticket - seen) > 0 &&
           !atomic_compare_exchange_weak_explicit(&gpu->page->let_go, &seen, ticket,
                                                  memory_order_release, memory_order_relaxed))
        ;
}

/* Tickets are let go in their order, whichever call ends first: streams wait for a number. */
static void let_go_of_first(struct ko_gpu *gpu)
{
    struct ko_gpu_mark *mark;

    while ((mark = gpu->first_held) && mark->is_let_go) {
        let_go_up_to(gpu, mark->ticket);
        ko_gpu_count_waiting(-1);
        atomic_fetch_sub(&gpu->nheld, 1);
        gpu->first_held = mark->later;
        make_spare(gpu, mark);
    }
}

/* What waits for it is let go. */
static void put_back(struct ko_gpu *gpu, struct ko_gpu_mark *mark)
{
    pthread_mutex_lock(&gpu->lock);
    if (mark->ticket) {
        mark->is_let_go = true;
        let_go_of_first(gpu);
    } else {
        make_spare(gpu, mark);
    }
    pthread_mutex_unlock(&gpu->lock);
}

/* Who puts it into the stream has counted it. */
static void hold(struct ko_gpu *gpu, struct ko_gpu_mark *mark, uint32_t ticket)
{
    pthread_mutex_lock(&gpu->lock);
    atomic_fetch_add(&gpu->nheld, 1);
    mark->ticket = ticket;
    mark->is_let_go = false;
    mark->later = NULL;
    if (gpu->first_held)
        gpu->last_held->later = mark;
    else
        gpu->first_held = mark;
    gpu->last_held = mark;
    /* in one order with ko_gpu_let_all_go's: it sees the ticket, or is seen */
    atomic_store(&gpu->last_ticket, ticket);
    if (atomic_load(&gpu->lets_all_go))
        let_go_up_to(gpu, ticket);
    pthread_mutex_unlock(&gpu->lock);
}

static int make_mark(struct ko_gpu *gpu, struct ko_gpu_mark **mark_out)
{
    struct ko_gpu_mark *mark = ko_alloc(sizeof *mark, "a mark in a stream");
    int err;

    if (!mark)
        return KOLO_E_NOMEM;
    err = ko_cuda_check(gpu->cuda,
                        gpu->cuda->event_create(&mark->reached, KO_CU_EVENT_DISABLE_TIMING),
                        "the stream cannot be followed");
    if (err) {
        free(mark);
        return err;
    }
    pthread_mutex_lock(&gpu->lock);
    mark->elder = gpu->youngest;
    gpu->youngest = mark;
    pthread_mutex_unlock(&gpu->lock);
    *mark_out = mark;
    return KOLO_OK;
}

/* While this thread puts something into the stream, with the context: behind what calls have put
 * into another one, and what the user's streams wait for, but where that is a call that the late
 * stream has to do. */
static ko_cu_result come_behind(struct ko_gpu *gpu, ko_cu_stream stream)
{
    ko_cu_result result = gpu->cuda->stream_await_event(stream, gpu->put, 0);

    if (!result && stream != gpu->late)
        result = gpu->cuda->stream_await_event(stream, gpu->passed, 0);
    pthread_mutex_lock(&gpu->lock); /* with ko_gpu_follow */
    if (!result && stream == atomic_load(&gpu->user))
        atomic_store(&gpu->is_new, false);
    pthread_mutex_unlock(&gpu->lock);
    return result;
}

/* The same. */
static int set_mark(struct ko_gpu *gpu, ko_cu_stream stream, bool is_held, struct ko_gpu_mark *mark)
{
    ko_cu_result result =
        atomic_load(&gpu->is_new) && stream != gpu->own ? come_behind(gpu, stream) : KO_CU_SUCCESS;

    if (!result)
        result = gpu->cuda->event_record(mark->reached, stream);
    if (!result && is_held) {
        const uint32_t ticket = atomic_load(&gpu->last_ticket) + 1;

        result = gpu->cuda->stream_await_word(
            stream, gpu->page_at + offsetof(struct ko_gpu_page, let_go), ticket, KO_CU_WAIT_GEQ);
        if (!result) {
            hold(gpu, mark, ticket);
            result = gpu->cuda->event_record(gpu->passed, stream);
        }
    }
    return ko_cuda_check(gpu->cuda, result, "the stream cannot be followed");
}

/* Nothing stands still in the group's own stream, whose marks are set without others' turn. */
static int put_mark(struct ko_gpu *gpu, ko_cu_stream stream, bool is_held, struct ko_gpu_mark *mark)
{
    const bool has_turn = stream != gpu->own;
    int err;

    mark->ticket = 0;
    if (is_held)
        ko_gpu_add_waiting();
    if (has_turn)
        pthread_mutex_lock(&gpu->putting);
    err = set_mark(gpu, stream, is_held, mark);
    if (has_turn)
        pthread_mutex_unlock(&gpu->putting);
    if (is_held && !mark->ticket)
        ko_gpu_count_waiting(-1);
    if (err)
        put_back(gpu, mark);
    return err;
}

static int mark_stream(struct ko_gpu *gpu, ko_cu_stream stream, bool is_held,
                       struct ko_gpu_mark **mark_out)
{
    struct ko_gpu_mark *mark;
    int err = ko_gpu_enter(gpu);

    if (err)
        return err;
    mark = take_spare(gpu);
    if (!mark)
        err = make_mark(gpu, &mark);
    if (!err)
        err = put_mark(gpu, stream, is_held, mark);
    ko_gpu_leave(gpu);
    if (!err)
        *mark_out = mark;
    return err;
}

bool ko_gpu_has_room(struct ko_gpu *gpu)
{
    return atomic_load(&gpu->nheld) < MOST_HELD || atomic_load(&gpu->lets_all_go);
}

int ko_gpu_mark(struct ko_gpu *gpu, bool is_held, struct ko_gpu_mark **mark)
{
    const struct timespec nap = {.tv_nsec = ROOM_NAP_NS};

    while (is_held && !ko_gpu_has_room(gpu))
        nanosleep(&nap, NULL);
    return mark_stream(gpu, atomic_load(&gpu->user), is_held, mark);
}

int ko_gpu_mark_own(struct ko_gpu *gpu, struct ko_gpu_mark **mark)
{
    return mark_stream(gpu, gpu->own, false, mark);
}

int ko_gpu_look_at_mark(struct ko_gpu *gpu, const struct ko_gpu_mark *mark)
{
    ko_cu_result result;
    int err = ko_gpu_enter(gpu);

    if (err)
        return err;
    result = gpu->cuda->event_query(mark->reached);
    ko_gpu_leave(gpu);
    return result == KO_CU_NOT_READY ? KO_AGAIN
                                     : ko_cuda_check(gpu->cuda, result, "the stream has failed");
}

int ko_gpu_await_mark(struct ko_gpu *gpu, const struct ko_gpu_mark *mark,
                      const ko_deadline *deadline)
{
    struct queried queried;
    ko_cu_result result;
    int err = mark ? ko_gpu_enter(gpu) : KOLO_OK;

    if (err || !mark)
        return err;
    queried = (struct queried){.cuda = gpu->cuda, .event = mark->reached};
    result = look_until(gpu->stop, is_at_event, &queried, deadline);
    ko_gpu_leave(gpu);
    if (result == KO_CU_NOT_READY)
        return fail_to_wait(gpu, "what was put into the GPU's stream before the call", deadline);
    return ko_cuda_check(gpu->cuda, result, "the stream has failed");
}

void ko_gpu_let_go(struct ko_gpu *gpu, struct ko_gpu_mark *mark)
{
    if (!mark)
        return;
    put_back(gpu, mark);
    ko_gpu_tidy(gpu);
}

void ko_gpu_let_all_go(struct ko_gpu *gpu)
{
    if (!gpu)
        return;
    atomic_store(&gpu->lets_all_go, true);
    let_go_up_to(gpu, atomic_load(&gpu->last_ticket));
}

void ko_gpu_forget_held(struct ko_gpu *gpu)
{
    pthread_mutex_lock(&gpu->lock);
    for (; gpu->first_held; gpu->first_held = gpu->first_held->later)
        ko_gpu_count_waiting(-1);
    pthread_mutex_unlock(&gpu->lock);
}

int ko_gpu_begin_in_stream(struct ko_gpu *gpu, ko_cu_stream stream)
{
    ko_cu_result result = KO_CU_SUCCESS;

    ko_gpu_tidy(gpu); /* once it has begun, nothing can go until it is done */
    ko_gpu_add_waiting();
    pthread_mutex_lock(&gpu->putting);
    if (gpu->used != stream || atomic_load(&gpu->is_new))
        result = come_behind(gpu, stream);
    pthread_mutex_unlock(&gpu->putting);
    if (result)
        ko_gpu_count_waiting(-1);
    return ko_cuda_check(gpu->cuda, result, "the stream cannot wait for the one before");
}

/* From then on ko_gpu_is_waiting sees it, until it is done. */
int ko_gpu_end_in_stream(struct ko_gpu *gpu, ko_cu_stream stream)
{
    ko_cu_result result;

    pthread_mutex_lock(&gpu->putting);
    gpu->used = stream;
    result = gpu->cuda->event_record(gpu->put, stream);
    pthread_mutex_unlock(&gpu->putting);
    ko_gpu_count_waiting(-1);
    return ko_cuda_check(gpu->cuda, result, "the stream cannot be followed");
}

ko_cu_stream ko_gpu_late_stream(struct ko_gpu *gpu)
{
    return gpu->late;
}

int ko_gpu_follow_mark(struct ko_gpu *gpu, const struct ko_gpu_mark *mark)
{
    ko_cu_result result;
    int err = mark ? ko_gpu_enter(gpu) : KOLO_OK;

    if (err || !mark)
        return err;
    result = gpu->cuda->stream_await_event(gpu->late, mark->reached, 0);
    ko_gpu_leave(gpu);
    return ko_cuda_check(gpu->cuda, result, "the stream cannot be followed");
}

int ko_gpu_find_order(struct ko_gpu *gpu, struct ko_gpu_order *order)
{
    const ko_cu_stream stream = atomic_load(&gpu->user);
    ko_cu_result result = KO_CU_SUCCESS;
    unsigned flags = 0;
    int err = stream ? ko_gpu_enter(gpu) : KOLO_OK;

    if (err)
        return err;
    if (stream) {
        result = gpu->cuda->stream_flags(stream, &flags);
        ko_gpu_leave(gpu);
    }
    *order = (struct ko_gpu_order){.context = (uintptr_t)gpu->context,
                                   .stream = (uintptr_t)stream,
                                   .is_blocking = !(flags & KO_CU_STREAM_NON_BLOCKING)};
    return ko_cuda_check(gpu->cuda, result, "the stream does not say what it waits for");
}

ko_cu_stream ko_gpu_user_stream(struct ko_gpu *gpu)
{
    return atomic_load(&gpu->user);
}

int ko_gpu_is_captured(struct ko_gpu *gpu, bool *is_captured)
{
    int status = KO_CU_CAPTURE_NONE;
    ko_cu_result result;
    int err = ko_gpu_enter(gpu);

    if (err)
        return err;
    result = gpu->cuda->capture_status(ko_gpu_user_stream(gpu), &status);
    ko_gpu_leave(gpu);
    if (result == KO_CU_CAPTURE_IMPLICIT)
        return ko_fail(KOLO_E_UNSUPPORTED,
                       "the group's stream is the legacy one, into which nothing can be put while "
                       "a stream is captured that waits for it: give the group another one, or "
                       "make that with cudaStreamNonBlocking");
    *is_captured = status == KO_CU_CAPTURE_ACTIVE;
    return ko_cuda_check(gpu->cuda, result, "the stream does not say whether it is captured");
}

struct ko_gpu_page *ko_gpu_page(const struct ko_gpu *gpu)
{
    return gpu->page;
}

ko_cu_ptr ko_gpu_page_at(const struct ko_gpu *gpu)
{
    return gpu->page_at;
}

void ko_gpu_keep_page(struct ko_gpu *gpu)
{
    gpu->keeps_page = true;
}

/* ---- end ------------------------------------------------------------------------------------- */

/* The whole end of the group waits no longer, whoever of its parts does. */
ko_deadline ko_gpu_closing(struct ko_gpu *gpu)
{
    if (!gpu->closing.at_ns)
        gpu->closing = ko_deadline_in(KO_GPU_CLOSE_MS);
    return gpu->closing;
}

/* What is not done by then is named. */
static bool has_ended(struct ko_gpu *gpu, ko_cu_result (*look)(const void *at),
                      const struct queried *queried, const char *what)
{
    const ko_deadline deadline = ko_gpu_closing(gpu);
    const bool has = look_until(&never_stops, look, queried, &deadline) != KO_CU_NOT_READY;

    if (!has)
        gpu->unfinished = what;
    return has;
}

/* With the context: the group's own streams, and what calls have put into others. */
static bool has_carried_out(struct ko_gpu *gpu)
{
    const struct queried own = {.cuda = gpu->cuda, .stream = gpu->own};
    const struct queried late = {.cuda = gpu->cuda, .stream = gpu->late};
    const struct queried put = {.cuda = gpu->cuda, .event = gpu->put};

    return has_ended(gpu, has_finished, &own, "copies and kernels of its own") &&
           has_ended(gpu, has_finished, &late, "a call that its stream waits for") &&
           has_ended(gpu, is_at_event, &put, "what calls have put into its stream");
}

bool ko_gpu_comes_to_rest(struct ko_gpu *gpu)
{
    bool rests;

    if (ko_gpu_enter(gpu))
        return false;
    rests = has_carried_out(gpu);
    ko_gpu_leave(gpu);
    return rests;
}

/* The user may have destroyed his stream: where it is, marks know. */
static bool has_passed_marks(struct ko_gpu *gpu)
{
    bool has = true;

    for (const struct ko_gpu_mark *mark = gpu->youngest; mark && has; mark = mark->elder) {
        const struct queried queried = {.cuda = gpu->cuda, .event = mark->reached};

        has = has_ended(gpu, is_at_event, &queried, "what was in its stream before a call");
    }
    return has;
}

bool ko_gpu_await_end(struct ko_gpu *gpu)
{
    const struct queried waits = {.cuda = gpu->cuda, .event = gpu->passed};

    return has_carried_out(gpu) &&
           has_ended(gpu, is_at_event, &waits, "a wait for a call in its stream") &&
           has_passed_marks(gpu);
}
