/* SPDX-License-Identifier: MIT
 *
 * A driver that does not come back to the engine's thread, or to a caller's: the streams that wait
 * for calls of a group that has failed go on all the same, and who aborts it is not held up. And
 * one that has a caller wait until there is room in his stream, where that waits for a message: it
 * comes.
 */
#include "clock.h"
#include "exam.h"
#include "gpu_double.h"
#include "gpu_rank.h"
#include "ranks.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

enum { COUNT = 1000, LONG_MS = 20000, NMESSAGES = 40, MANY = 400 };

static atomic_bool has_left; /* rank 1 its stream waiting */

struct caller {
    kolo_group *group;
    void *memory;
    kolo_work *work;
    int err;
};

static int begin(struct caller *caller)
{
    return kolo_all_reduce_async(caller->group, caller->memory, caller->memory, COUNT, KOLO_INT32,
                                 KOLO_SUM, &caller->work);
}

static int reduce(const struct caller *caller)
{
    return kolo_all_reduce(caller->group, caller->memory, caller->memory, COUNT, KOLO_INT32,
                           KOLO_SUM);
}

/* Rank 0 makes its call when rank 1 does not wait for it any more, and so has left its stream
 * waiting. Rank 1 may still do its part when it has aborted: then the next call hears of it. */
static int come_late(struct caller caller)
{
    int err;

    while (!atomic_load(&has_left))
        ranks_nap_ms(1);
    err = reduce(&caller);
    if (!err)
        err = reduce(&caller);
    return ranks_expect(err, KOLO_E_ABORTED, "rank 1 aborted");
}

static void *begin_too(void *argument)
{
    struct caller *caller = argument;
    ko_cu_context context;

    if (gpu_rank.cuda || ko_cuda_open(&gpu_rank.cuda) ||
        gpu_rank.cuda->context_retain(&context, 0) || gpu_rank.cuda->context_push(context))
        abort();
    caller->err = begin(caller);
    return NULL;
}

/* Whether so many threads have come to be held. */
static bool are_held(int n)
{
    const ko_deadline deadline = ko_deadline_in(LONG_MS);

    while (gpu_held() < n && !ko_deadline_passed(&deadline))
        ranks_nap_ms(1);
    return gpu_held() == n;
}

/* What comes behind the call in the stream is done. */
static bool goes_on(void)
{
    const ko_deadline deadline = ko_deadline_in(LONG_MS);
    ko_cu_result result;

    while ((result = gpu_rank.cuda->stream_query(gpu_rank.stream)) == KO_CU_NOT_READY &&
           !ko_deadline_passed(&deadline))
        ranks_nap_ms(1);
    return !result;
}

static int check_end(struct caller *caller)
{
    int failed = ranks_expect(kolo_work_wait(caller->work, -1), KOLO_E_ABORTED, "enough");

    kolo_work_free(caller->work);
    return failed;
}

/* The engine's thread is to put the call behind its input, and gets no answer. */
static int hold_the_engine(struct caller caller)
{
    int failed = 0;

    gpu_hold("cuStreamWaitEvent");
    if (begin(&caller))
        return ranks_fail("the call");
    atomic_store(&has_left, true);
    if (!are_held(1))
        return ranks_fail("the engine is not held");
    if (gpu_rank.cuda->stream_query(gpu_rank.stream) != KO_CU_NOT_READY)
        failed = ranks_fail("the stream does not wait");
    kolo_group_abort(caller.group, "enough");
    if (!failed && !goes_on())
        failed = ranks_fail("the stream stands still");
    gpu_hold("");
    return check_end(&caller) || failed;
}

/* And another thread has just begun a call. */
static int hold_a_caller(struct caller caller)
{
    struct caller other = caller;
    pthread_t thread;
    int failed = 0;

    gpu_hold("cuStreamWaitEvent");
    if (begin(&caller))
        return ranks_fail("the call");
    atomic_store(&has_left, true);
    if (!are_held(1))
        return ranks_fail("the engine is not held");
    gpu_hold("cuStreamWaitEvent,cuStreamIsCapturing");
    if (pthread_create(&thread, NULL, begin_too, &other) || !are_held(2))
        return ranks_fail("the other caller is not held");
    kolo_group_abort(caller.group, "enough");
    gpu_hold("cuStreamWaitEvent");
    pthread_join(thread, NULL);
    if (!goes_on())
        failed = ranks_fail("the stream stands still");
    gpu_hold("");
    if (!other.err)
        failed |= check_end(&other);
    return check_end(&caller) || failed;
}

/* Nobody is held: what has been left waiting is carried out when the other comes. */
static int leave_waiting(struct caller caller)
{
    int failed = begin(&caller);

    atomic_store(&has_left, true);
    failed = failed || ranks_expect(kolo_work_wait(caller.work, -1), KOLO_OK, "");
    kolo_work_free(caller.work);
    return failed || !goes_on();
}

static int come_in_the_end(struct caller caller)
{
    while (!atomic_load(&has_left))
        ranks_nap_ms(1);
    return ranks_expect(reduce(&caller), KOLO_OK, "");
}

/* ---- streams without room -------------------------------------------------------------------- */

static int receive(const struct caller *caller, kolo_work **work)
{
    return kolo_irecv(caller->group, caller->memory, COUNT, KOLO_INT32, 0, 0, work);
}

static void *receive_too(void *argument)
{
    struct caller *caller = argument;

    caller->err = receive(caller, &caller->work);
    return NULL;
}

/* While another thread begins to receive the next message, what has been begun comes, is done, and
 * the stream has it. */
static int hold_a_receiver(struct caller caller)
{
    struct caller other = caller;
    pthread_t thread;
    int failed = receive(&caller, &caller.work);

    gpu_hold("cuStreamWaitValue32");
    if (failed || pthread_create(&thread, NULL, receive_too, &other) || !are_held(1))
        return ranks_fail("the other caller is not held");
    atomic_store(&has_left, true);
    failed = ranks_expect(kolo_work_wait(caller.work, LONG_MS), KOLO_OK, "");
    if (!failed && !goes_on())
        failed = ranks_fail("the stream stands still");
    gpu_hold("");
    pthread_join(thread, NULL);
    failed = ranks_expect(kolo_work_wait(other.work, -1), KOLO_OK, "") || failed;
    kolo_work_free(caller.work);
    kolo_work_free(other.work);
    return failed;
}

static int receive_n(struct caller caller, int n)
{
    kolo_work *works[MANY];
    int failed = 0;

    for (int i = 0; i < n; i++)
        if (receive(&caller, &works[i]))
            return ranks_fail("receive %d", i);
    for (int i = 0; i < n; i++) {
        failed |= ranks_expect(kolo_work_wait(works[i], -1), KOLO_OK, "");
        kolo_work_free(works[i]);
    }
    return failed;
}

static int receive_many(struct caller caller)
{
    atomic_store(&has_left, true);
    return receive_n(caller, NMESSAGES);
}

static void *leave_soon(void *unused)
{
    ranks_nap_ms(500);
    atomic_store(&has_left, true);
    return unused;
}

/* None is sent before as many are begun as there is room for. */
static int receive_very_many(struct caller caller)
{
    pthread_t thread;
    int failed;

    if (pthread_create(&thread, NULL, leave_soon, NULL))
        return ranks_fail("no thread");
    failed = receive_n(caller, MANY);
    pthread_join(thread, NULL);
    return failed;
}

static int send_all(struct caller caller, int n)
{
    while (!atomic_load(&has_left))
        ranks_nap_ms(1);
    for (int i = 0; i < n; i++) {
        const int err = kolo_send(caller.group, caller.memory, COUNT, KOLO_INT32, 1, 0);

        if (err)
            return ranks_expect(err, KOLO_OK, "");
    }
    return 0;
}

static void *abort_soon(void *group)
{
    ranks_nap_ms(500);
    kolo_group_abort(group, "enough");
    return NULL;
}

/* Who waits for room hears of an abort. */
static int abort_in_a_crowd(struct caller caller)
{
    kolo_work *works[MANY];
    pthread_t thread;
    int failed = 0, n = 0, err = pthread_create(&thread, NULL, abort_soon, caller.group);

    while (!err && n < MANY) {
        err = receive(&caller, &works[n]);
        n += !err;
    }
    pthread_join(thread, NULL);
    for (int i = 0; i < n; i++) {
        failed |= ranks_expect(kolo_work_wait(works[i], LONG_MS), KOLO_E_ABORTED, "enough");
        kolo_work_free(works[i]);
    }
    atomic_store(&has_left, true);
    return failed || (err && ranks_expect(err, KOLO_E_ABORTED, "enough")) || !goes_on();
}

/* ---- all ------------------------------------------------------------------------------------- */

/* What rank 0 does meanwhile. */
static int accompany(struct caller caller, int (*body)(struct caller))
{
    if (body == receive_many)
        return send_all(caller, NMESSAGES);
    if (body == receive_very_many)
        return send_all(caller, MANY);
    if (body == hold_a_receiver)
        return send_all(caller, 2);
    return body == leave_waiting ? come_in_the_end(caller) : come_late(caller);
}

static int take(kolo_group *group, void *argument)
{
    int (*const *body)(struct caller) = argument;
    struct caller caller;
    ko_cu_ptr memory;
    int failed = gpu_rank_enter(group);

    if (failed || kolo_barrier(group) || gpu_rank.cuda->alloc(&memory, COUNT * sizeof(int)))
        return ranks_fail("the beginning");
    caller = (struct caller){.group = group, .memory = (void *)(uintptr_t)memory};
    if (begin(&caller) || kolo_work_wait(caller.work, -1))
        return ranks_fail("the call before");
    kolo_work_free(caller.work);
    if (kolo_group_rank(group) != 1)
        return accompany(caller, *body);
    failed = (*body)(caller);
    gpu_hold("");
    return failed;
}

static void run(int (*body)(struct caller))
{
    const struct ranks ranks = {.kind = RANKS_THREADS, .n = 2};

    atomic_store(&has_left, false);
    exam_set_variables("shm", "", 4096);
    assert_int_equal(ranks_run(&ranks, take, &body), 0);
}

static void the_engine(void **state)
{
    (void)state;
    run(hold_the_engine);
}

static void a_caller(void **state)
{
    (void)state;
    run(hold_a_caller);
}

static void a_stream(void **state)
{
    (void)state;
    run(leave_waiting);
}

static void a_receiver(void **state)
{
    (void)state;
    run(hold_a_receiver);
}

static void a_full_stream(void **state)
{
    (void)state;
    setenv("FAKECUDA_DEPTH", "16", 1);
    run(receive_many);
    unsetenv("FAKECUDA_DEPTH");
}

/* As much as a GPU's has, and a driver that lets nobody else in while a thread waits for more. */
static void a_full_stream_of_a_shut_driver(void **state)
{
    (void)state;
    setenv("FAKECUDA_DEPTH", "1000", 1);
    setenv("FAKECUDA_SHUT", "1", 1);
    run(receive_very_many);
    run(abort_in_a_crowd);
    unsetenv("FAKECUDA_SHUT");
    unsetenv("FAKECUDA_DEPTH");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_engine),    cmocka_unit_test(a_caller),
        cmocka_unit_test(a_stream),      cmocka_unit_test(a_receiver),
        cmocka_unit_test(a_full_stream), cmocka_unit_test(a_full_stream_of_a_shut_driver),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
