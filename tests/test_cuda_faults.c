/* SPDX-License-Identifier: MIT
 *
 * A GPU whose context ends by a fault, as of a kernel of the user's: from then on it does nothing,
 * and every call to its driver returns that error, also those that would free something. Whatever
 * kolo was in then, collectives, messages or a graph, ends soon with one error that says what the
 * driver says and, on the other ranks, whose GPU it was; and the groups can be freed.
 */
#include "clock.h"
#include "gpu_double.h"
#include "gpu_hosts.h"
#include "gpu_rank.h"
#include "ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { N = 3, COUNT = 1000, FAULTY = 1 /* the rank */, FAULT = 700, LIMIT_MS = 60000 };

struct side {
    kolo_group *group;
    ko_cu_ptr memory;
    bool is_faulty;
};

static int enter(kolo_group *group, struct side *side)
{
    if (gpu_rank_enter(group))
        return 1;
    *side = (struct side){.group = group, .is_faulty = kolo_group_rank(group) == FAULTY};
    return gpu_rank.cuda->alloc(&side->memory, 2 * COUNT * sizeof(int)) ? ranks_fail("no memory")
                                                                        : 0;
}

static void *memory_of(const struct side *side)
{
    return (void *)(uintptr_t)side->memory;
}

static int reduce(const struct side *side, kolo_work **work)
{
    void *memory = memory_of(side);

    return work ? kolo_all_reduce_async(side->group, memory, memory, COUNT, KOLO_INT32, KOLO_SUM,
                                        work)
                : kolo_all_reduce(side->group, memory, memory, COUNT, KOLO_INT32, KOLO_SUM);
}

/* As kolo_work_wait, of a call that may not have been taken. */
static int outcome(int err, kolo_work *work)
{
    if (!err)
        err = kolo_work_wait(work, -1);
    kolo_work_free(work);
    return err;
}

static int expect(const struct side *side, int64_t began_ns, int err)
{
    int failed = ranks_expect_soon(began_ns, err, KOLO_E_SYSTEM, "(700)");

    return failed || side->is_faulty ? failed : ranks_expect(err, KOLO_E_SYSTEM, "rank 1");
}

/* It comes behind what the stream has to do. */
static int fail_gpu(const struct side *side)
{
    return side->is_faulty && gpu_fail(FAULT) ? ranks_fail("no fault") : 0;
}

/* The same, behind a wait for the gate. */
static int fail_gpu_behind(const struct side *side, uint32_t *gate)
{
    if (side->is_faulty &&
        gpu_rank.cuda->stream_await_word(gpu_rank.stream, (uintptr_t)gate, 1, KO_CU_WAIT_EQ))
        return ranks_fail("the gate");
    return fail_gpu(side);
}

/* As the user would see it, and so will whatever he frees. */
static int await_fault(const struct side *side)
{
    return side->is_faulty && gpu_rank.cuda->stream_sync(gpu_rank.stream) != FAULT
               ? ranks_fail("no fault")
               : 0;
}

/* ---- collectives ----------------------------------------------------------------------------- */

static int fault_before(kolo_group *group, void *unused)
{
    struct side side;
    int failed = enter(group, &side) || reduce(&side, NULL) || ranks_let_be_last(group, FAULTY) ||
                 fail_gpu(&side) || await_fault(&side);
    const int64_t began_ns = ko_now_ns();

    (void)unused;
    return failed || expect(&side, began_ns, reduce(&side, NULL)) ||
           expect(&side, began_ns, reduce(&side, NULL));
}

/* It comes while calls stand in the stream behind it, or wait for it. */
static int fault_meanwhile(kolo_group *group, void *unused)
{
    static uint32_t gate;
    struct side side;
    kolo_work *works[2] = {NULL, NULL};
    int failed = enter(group, &side) || reduce(&side, NULL) || ranks_let_be_last(group, FAULTY),
        first, second;
    int64_t began_ns;

    (void)unused;
    if (failed || fail_gpu_behind(&side, &gate))
        return 1;
    first = reduce(&side, &works[0]);
    second = reduce(&side, &works[1]);
    ranks_nap_ms(50);
    __atomic_store_n(&gate, 1, __ATOMIC_RELEASE);
    began_ns = ko_now_ns();
    first = outcome(first, works[0]);
    failed = expect(&side, began_ns, first);
    second = outcome(second, works[1]);
    return failed || expect(&side, began_ns, second) || await_fault(&side);
}

/* ---- messages -------------------------------------------------------------------------------- */

static int exchange(const struct side *side)
{
    const int rank = kolo_group_rank(side->group);
    int *const memory = memory_of(side);

    return kolo_sendrecv(side->group, memory, COUNT, (rank + 1) % N, memory + COUNT, COUNT,
                         (rank + N - 1) % N, KOLO_INT32, 0);
}

/* Rank 2 waits for one in vain, until the failed rank's group is freed; what rank 0 sends may have
 * been taken from it before. */
static int fault_before_messages(kolo_group *group, void *unused)
{
    struct side side;
    int failed = enter(group, &side) || exchange(&side) || ranks_let_be_last(group, FAULTY) ||
                 fail_gpu(&side) || await_fault(&side);
    const int64_t began_ns = ko_now_ns();
    int err;

    (void)unused;
    if (failed)
        return ranks_fail("messages before");
    err = exchange(&side);
    if (side.is_faulty)
        return ranks_expect_soon(began_ns, err, KOLO_E_SYSTEM, "(700)");
    if (!err && kolo_group_rank(group) == 0)
        return 0;
    return !err || err == KOLO_E_TIMEOUT ? ranks_fail("status %d", err)
                                         : ranks_expect_soon(began_ns, err, err, "rank 1");
}

/* Rank 1 waits for a message that nobody has sent when its GPU fails, and so do the others for its.
 */
static int fault_of_a_receiver(kolo_group *group, void *unused)
{
    static uint32_t gate;
    struct side side;
    kolo_work *work = NULL;
    int failed = enter(group, &side) || exchange(&side), err;
    int64_t began_ns;

    (void)unused;
    if (failed || fail_gpu_behind(&side, &gate))
        return 1;
    err = kolo_irecv(group, memory_of(&side), COUNT, KOLO_INT32, side.is_faulty ? 0 : FAULTY, 0,
                     &work);
    ranks_nap_ms(300); /* until all of them sleep */
    __atomic_store_n(&gate, 1, __ATOMIC_RELEASE);
    began_ns = ko_now_ns();
    return expect(&side, began_ns, outcome(err, work)) || await_fault(&side);
}

/* ---- graphs ---------------------------------------------------------------------------------- */

static int capture(const struct side *side, ko_cu_graph_exec *exec)
{
    return gpu_rank_capture() || reduce(side, NULL) || gpu_rank_captured(exec) ||
           kolo_barrier(side->group) || gpu_rank.cuda->graph_launch(*exec, gpu_rank.stream) ||
           gpu_rank.cuda->stream_sync(gpu_rank.stream) || ranks_let_be_last(side->group, FAULTY);
}

static int await_error(const struct side *side)
{
    const ko_deadline deadline = ko_deadline_in(RANKS_SOON_MS);
    const char *text = "";
    int err;

    while (!(err = kolo_group_error(side->group, &text)) && !ko_deadline_passed(&deadline))
        ranks_nap_ms(5);
    return err && strstr(text, "rank 1") ? 0 : ranks_fail("error %d: %s", err, text);
}

/* The others' launches wait for its: their streams end, and the group says why. */
static int launch_after_fault(const struct side *side, ko_cu_graph_exec exec)
{
    const int result = gpu_rank.cuda->graph_launch(exec, gpu_rank.stream);

    if (side->is_faulty && result != FAULT)
        return ranks_fail("a launch after the fault: %d", result);
    if (side->is_faulty) /* whoever uses the group hears of it; nobody else could tell the others */
        return expect(side, ko_now_ns(), reduce(side, NULL));
    return result || gpu_rank.cuda->stream_sync(gpu_rank.stream) ? ranks_fail("the stream")
                                                                 : await_error(side);
}

static int fault_before_launch(kolo_group *group, void *unused)
{
    struct side side;
    ko_cu_graph_exec exec = NULL;
    int failed = enter(group, &side) || reduce(&side, NULL) || capture(&side, &exec);

    (void)unused;
    failed = failed || fail_gpu(&side) || await_fault(&side) ? ranks_fail("the graph before")
                                                             : launch_after_fault(&side, exec);
    if (exec)
        (void)gpu_rank.cuda->graph_exec_destroy(exec);
    return failed;
}

/* Its stream waits for the others' when the fault comes. What goes on no more is not told to again
 * and again. */
static int check_idleness(void)
{
    enum { NAP_MS = 1000 };
    const clock_t before = clock();

    ranks_nap_ms(NAP_MS);
    return (clock() - before) * 1000 / CLOCKS_PER_SEC > NAP_MS / 3 ? ranks_fail("a busy thread")
                                                                   : 0;
}

static int fault_in_launch(kolo_group *group, void *unused)
{
    struct side side;
    ko_cu_graph_exec exec = NULL;
    ko_cu_stream stream;
    int failed = enter(group, &side) || reduce(&side, NULL) || capture(&side, &exec) ||
                 gpu_rank.cuda->stream_create(&stream, KO_CU_STREAM_NON_BLOCKING);

    (void)unused;
    if (!failed && side.is_faulty) {
        failed = gpu_rank.cuda->graph_launch(exec, stream);
        ranks_nap_ms(100);
        failed |= fail_gpu(&side) || await_fault(&side);
    }
    failed =
        failed ? ranks_fail("the graph before") : expect(&side, ko_now_ns(), reduce(&side, NULL));
    if (!failed && side.is_faulty)
        failed = check_idleness();
    if (exec)
        (void)gpu_rank.cuda->graph_exec_destroy(exec);
    return failed;
}

/* ---- all ------------------------------------------------------------------------------------- */

static void run(ranks_body body, int nplaces)
{
    const struct ranks ranks = {.kind = RANKS_PROCESSES, .n = N, .timeout_ms = LIMIT_MS};

    setenv("KOLO_DEBUG", "NONE", 1);
    gpu_hosts_run_places(&ranks, nplaces, "3", body);
}

static void before_a_call(void **state)
{
    (void)state;
    run(fault_before, GPU_HOSTS_PLACES);
}

static void in_a_call(void **state)
{
    (void)state;
    run(fault_meanwhile, GPU_HOSTS_PLACES);
}

static void before_messages(void **state)
{
    (void)state;
    run(fault_before_messages, GPU_HOSTS_PLACES);
}

static void of_a_receiver(void **state)
{
    (void)state;
    run(fault_of_a_receiver, GPU_HOSTS_PLACES);
}

static void before_a_launch(void **state)
{
    (void)state;
    run(fault_before_launch, GPU_HOSTS_PLACES - 1); /* there are no graphs between hosts */
}

static void in_a_launch(void **state)
{
    (void)state;
    run(fault_in_launch, GPU_HOSTS_PLACES - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(before_a_call),   cmocka_unit_test(in_a_call),
        cmocka_unit_test(before_messages), cmocka_unit_test(of_a_receiver),
        cmocka_unit_test(before_a_launch), cmocka_unit_test(in_a_launch),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
