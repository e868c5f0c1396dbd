/* SPDX-License-Identifier: MIT
 *
 * Small collectives of ranks that have a GPU each, on the double of NVIDIA's driver, in CUDA graphs
 * and not: kernels send to each other and wait for each other. Any length and alignment, launched
 * again and again, several graphs and calls in turn, or a graph beside calls; what goes over is
 * what has to; a kernel that waits in vain.
 */
#include "clock.h"
#include "cuda_kernels.h"
#include "exam.h"
#include "gpu_double.h"
#include "gpu_rank.h"
#include "kernel_args.h"
#include "ranks.h"
#include "sanitized.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { MOST = KO_PUSH_BYTES + 64, MOST_RANKS = 8, LAUNCHES = 3, SHIFT = 3 };

/* Of the calling rank's thread: in and out have a block for each rank, and are SHIFT bytes beyond
 * whole words. */
static _Thread_local struct {
    ko_cu_ptr in, out;
} gpu;

static int enter(kolo_group *group)
{
    const size_t nbytes = MOST_RANKS * MOST + SHIFT;

    if (gpu_rank_enter(group) || gpu_rank.cuda->alloc(&gpu.in, nbytes) ||
        gpu_rank.cuda->alloc(&gpu.out, nbytes))
        return ranks_fail("no memory");
    return 0;
}

static const enum ko_collective exchanges[] = {KO_ALL_REDUCE, KO_ALL_GATHER, KO_REDUCE_SCATTER,
                                               KO_ALL_TO_ALL};

struct trial {
    enum ko_collective what;
    size_t count, shift; /* bytes */
};

static bool has_blocks(enum ko_collective what)
{
    return what == KO_REDUCE_SCATTER || what == KO_ALL_TO_ALL;
}

static bool is_reduced(enum ko_collective what)
{
    return what == KO_ALL_REDUCE || what == KO_REDUCE_SCATTER;
}

static int call(kolo_group *group, const struct trial *trial)
{
    void *in = (void *)(uintptr_t)(gpu.in + trial->shift);
    void *out = (void *)(uintptr_t)(gpu.out + trial->shift);

    switch (trial->what) {
    case KO_ALL_REDUCE:
        return kolo_all_reduce(group, in, out, trial->count, KOLO_UINT8, KOLO_SUM);
    case KO_ALL_GATHER:
        return kolo_all_gather(group, in, out, trial->count, KOLO_UINT8);
    case KO_REDUCE_SCATTER:
        return kolo_reduce_scatter(group, in, out, trial->count, KOLO_UINT8, KOLO_SUM);
    default:
        return kolo_all_to_all(group, in, out, trial->count, KOLO_UINT8);
    }
}

static int capture(kolo_group *group, const struct trial *trial, ko_cu_graph_exec *exec)
{
    if (gpu_rank_capture() || call(group, trial) || gpu_rank_captured(exec))
        return ranks_fail("%s of %zu bytes was not captured", ko_collective_name(trial->what),
                          trial->count);
    return 0;
}

/* ---- content --------------------------------------------------------------------------------- */

static unsigned char value(int rank, int round, size_t i)
{
    return (unsigned char)(i * 31 + i / 251 + (size_t)(rank * 7 + round * 13));
}

/* Byte i of what the rank has in the end. */
static unsigned char result(const struct trial *trial, int n, int rank, int round, size_t i)
{
    const size_t block = i / trial->count, at = i % trial->count;
    const size_t own = has_blocks(trial->what) ? (size_t)rank * trial->count : 0;
    unsigned sum = 0;

    if (!is_reduced(trial->what))
        return value((int)block, round, own + at);
    for (int r = 0; r < n; r++)
        sum += value(r, round, own + i);
    return (unsigned char)sum;
}

static int fill(kolo_group *group, const struct trial *trial, int round)
{
    const int n = kolo_group_size(group), rank = kolo_group_rank(group);
    const size_t nbytes = has_blocks(trial->what) ? (size_t)n * trial->count : trial->count;
    unsigned char bytes[MOST_RANKS * MOST];

    for (size_t i = 0; i < nbytes; i++)
        bytes[i] = value(rank, round, i);
    return gpu_rank.cuda->copy(gpu.in + trial->shift, (uintptr_t)bytes, nbytes, gpu_rank.stream) ||
                   gpu_rank.cuda->stream_sync(gpu_rank.stream)
               ? ranks_fail("content")
               : 0;
}

static int check(kolo_group *group, const struct trial *trial, int round)
{
    const int n = kolo_group_size(group), rank = kolo_group_rank(group);
    const size_t out_bytes = is_reduced(trial->what) ? trial->count : (size_t)n * trial->count;
    unsigned char bytes[MOST_RANKS * MOST];

    if (gpu_rank.cuda->copy((uintptr_t)bytes, gpu.out + trial->shift, out_bytes, gpu_rank.stream) ||
        gpu_rank.cuda->stream_sync(gpu_rank.stream))
        return ranks_fail("a launch");
    for (size_t i = 0; i < out_bytes; i++)
        if (bytes[i] != result(trial, n, rank, round, i))
            return ranks_fail("%s of %zu bytes, launch %d: byte %zu of %zu is %u, not %u",
                              ko_collective_name(trial->what), trial->count, round, i, out_bytes,
                              bytes[i], result(trial, n, rank, round, i));
    return 0;
}

/* exec NULL: as a call. */
static int launch(kolo_group *group, const struct trial *trial, int round, ko_cu_graph_exec exec)
{
    int failed = fill(group, trial, round);

    if (!failed && (exec ? gpu_rank.cuda->graph_launch(exec, gpu_rank.stream) : call(group, trial)))
        failed = ranks_fail("a launch");
    return failed ? failed : check(group, trial, round);
}

/* ---- trials ---------------------------------------------------------------------------------- */

static const size_t counts[] = {1, 7, 8, 1000, 8191, 8200, KO_PUSH_BYTES, KO_PUSH_BYTES + 1};

static int launch_in_turn(kolo_group *group, enum ko_collective what)
{
    ko_cu_graph_exec execs[8] = {NULL};
    struct trial trials[8];
    int failed = 0;

    for (int i = 0; i < 8 && !failed; i++) {
        trials[i] = (struct trial){what, counts[i], i % 3 == 1 ? SHIFT : 0};
        failed = capture(group, &trials[i], &execs[i]);
    }
    for (int round = 0; round < LAUNCHES; round++)
        for (int i = 0; i < 8 && !failed; i++) {
            failed = launch(group, &trials[i], round, execs[i]);
            for (int calls = 0; calls < i % 3 && !failed; calls++)
                failed = launch(group, &trials[(i + 3) % 8], round + calls, NULL);
        }
    for (int i = 0; i < 8; i++)
        if (execs[i])
            (void)gpu_rank.cuda->graph_exec_destroy(execs[i]);
    return failed;
}

static int take_all(kolo_group *group, void *unused)
{
    int failed = enter(group);

    (void)unused;
    for (int i = 0; i < 4 && !failed; i++)
        failed = launch_in_turn(group, exchanges[i]);
    if (!failed && kolo_barrier(group)) /* all have launched what they share */
        failed = ranks_fail("barrier");
    return gpu_rank_leave(failed);
}

static void run(enum ranks_kind kind, int n, ranks_body body)
{
    setenv("FAKECUDA_DEVICES", "8", 1);
    exam_set_variables("shm", "", 4096);
    assert_int_equal(ranks_run(&(struct ranks){.kind = kind, .n = n}, body, NULL), 0);
}

static void graphs_push(void **state)
{
    (void)state;
    SKIP_PROCESSES_UNDER_TSAN();
    for (int n = IS_SANITIZED ? 4 : 2; n <= 4; n++)
        run(RANKS_PROCESSES, n, take_all);
    run(RANKS_PROCESSES, MOST_RANKS, take_all);
}

/* A block waits for the block of its number only: GPUs that run one at a time are enough. */
static void one_slot_will_do(void **state)
{
    (void)state;
    setenv("FAKECUDA_SLOTS", "1", 1);
    run(RANKS_PROCESSES, 3, take_all);
    unsetenv("FAKECUDA_SLOTS");
}

/* Every thread of a block is one, and none may be ahead of its block; a little of each, since that
 * is 512 threads for each launch. */
static int push_a_little(kolo_group *group, void *unused)
{
    static const size_t few[] = {8, 100};
    int failed = enter(group);

    (void)unused;
    for (int i = 0; i < 4 * 2 && !failed; i++) {
        const struct trial trial = {exchanges[i / 2], few[i % 2], i % 2 ? SHIFT : 0};
        ko_cu_graph_exec exec = NULL;

        failed = capture(group, &trial, &exec) || launch(group, &trial, 0, exec) ||
                 launch(group, &trial, 1, NULL);
        if (exec)
            (void)gpu_rank.cuda->graph_exec_destroy(exec);
    }
    if (!failed && kolo_barrier(group))
        failed = ranks_fail("barrier");
    return gpu_rank_leave(failed);
}

/* Under a sanitizer there is no memory for so many threads. */
static void threads_of_blocks(enum ranks_kind kind)
{
    setenv("FAKECUDA_THREADS", IS_SANITIZED ? "0" : "1", 1);
    run(kind, 2, push_a_little);
    unsetenv("FAKECUDA_THREADS");
}

static void threads_of_a_block(void **state)
{
    (void)state;
    threads_of_blocks(RANKS_PROCESSES);
}

/* ---- beside calls ---------------------------------------------------------------------------- */

/* Calls that begin while a graph waits in another stream; the late rank launches it after them. */
static int call_meanwhile(kolo_group *group, const struct trial *graph, int round,
                          ko_cu_graph_exec exec, ko_cu_stream stream)
{
    const struct trial called = {KO_ALL_REDUCE, KO_PUSH_BYTES, MOST};
    const bool is_late = kolo_group_rank(group) == round % kolo_group_size(group);
    int failed = fill(group, graph, round);

    if (!failed && (gpu_rank.cuda->stream_sync(gpu_rank.stream) ||
                    (!is_late && gpu_rank.cuda->graph_launch(exec, stream))))
        failed = ranks_fail("a launch");
    for (int i = 1; i <= LAUNCHES && !failed; i++)
        failed = launch(group, &called, round + i, NULL);
    if (!failed && ((is_late && gpu_rank.cuda->graph_launch(exec, stream)) ||
                    gpu_rank.cuda->stream_sync(stream)))
        failed = ranks_fail("the graph");
    return failed ? failed : check(group, graph, round);
}

static int launch_beside_calls(kolo_group *group, void *unused)
{
    const struct trial graph = {KO_ALL_REDUCE, 1000, 0};
    ko_cu_graph_exec exec = NULL;
    ko_cu_stream stream;
    int failed = enter(group) || gpu_rank.cuda->stream_create(&stream, KO_CU_STREAM_NON_BLOCKING) ||
                 capture(group, &graph, &exec);

    (void)unused;
    for (int round = 0; round < 2 * LAUNCHES && !failed; round++)
        failed = call_meanwhile(group, &graph, round, exec, stream);
    if (!failed && kolo_barrier(group))
        failed = ranks_fail("barrier");
    if (exec)
        (void)gpu_rank.cuda->graph_exec_destroy(exec);
    return gpu_rank_leave(failed);
}

static void a_graph_beside_calls(void **state)
{
    (void)state;
    run(RANKS_PROCESSES, 2, launch_beside_calls);
    run(RANKS_PROCESSES, 3, launch_beside_calls);
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* Each pair of words once to each rank, with its flags; nothing is read over there. */
static int count_bytes(kolo_group *group, void *unused)
{
    const uint64_t nothers = (uint64_t)kolo_group_size(group) - 1;
    struct gpu_bytes before, have;
    ko_cu_graph_exec exec;
    int failed = enter(group);

    (void)unused;
    for (int i = 0; i < 2 * 4 * 7 && !failed; i++) {
        const struct trial trial = {exchanges[i / 7 % 4], counts[i % 7], 0};

        exec = NULL;
        if (i < 4 * 7 && capture(group, &trial, &exec))
            return 1;
        before = gpu_bytes_now();
        failed = launch(group, &trial, 0, exec);
        have = gpu_bytes_since(before);
        if (!failed &&
            (have.read_there || have.written_there != nothers * 16 * ((trial.count + 7) / 8)))
            failed =
                ranks_fail("%s of %zu: %ju bytes read, %ju written", ko_collective_name(trial.what),
                           trial.count, have.read_there, have.written_there);
        if (exec)
            (void)gpu_rank.cuda->graph_exec_destroy(exec);
    }
    if (!failed && kolo_barrier(group))
        failed = ranks_fail("barrier");
    return gpu_rank_leave(failed);
}

static void nothing_goes_that_has_not_to(void **state)
{
    (void)state;
    SKIP_PROCESSES_UNDER_TSAN();
    for (int n = IS_SANITIZED ? 4 : 2; n <= 4; n++)
        run(RANKS_PROCESSES, n, count_bytes);
}

/* ---- in vain --------------------------------------------------------------------------------- */

/* Rank 1 dies between launches; the kernels of the others end when their groups fail. */
static int lose_a_rank(kolo_group *group, void *unused)
{
    const struct trial trial = {KO_ALL_REDUCE, 1000, 0};
    ko_cu_graph_exec exec;
    int failed = enter(group) || capture(group, &trial, &exec) || launch(group, &trial, 0, exec);

    (void)unused;
    if (failed || ranks_let_be_last(group, 1))
        return ranks_fail("before");
    if (kolo_group_rank(group) == 1)
        raise(SIGKILL);
    if (gpu_rank.cuda->graph_launch(exec, gpu_rank.stream))
        return ranks_fail("a launch");
    if (kolo_barrier(group) != KOLO_E_PEER_LOST)
        failed = ranks_fail("rank 1 is not lost");
    if (gpu_rank.cuda->stream_sync(gpu_rank.stream))
        failed = ranks_fail("the stream");
    (void)gpu_rank.cuda->graph_exec_destroy(exec);
    return failed;
}

/* The status of the first call that fails. */
static int call_until_it_fails(kolo_group *group)
{
    const struct trial trial = {KO_ALL_REDUCE, KO_PUSH_BYTES, 0};
    int err;

    do
        err = call(group, &trial);
    while (!err);
    return err;
}

static void *kill_soon(void *unused)
{
    ranks_nap_ms((int)(ko_now_ns() / 1000 % 50));
    raise(SIGKILL);
    return unused;
}

/* Rank 1 dies between two calls, or in one. */
static int lose_a_caller(kolo_group *group, void *unused)
{
    const int64_t began_ns = ko_now_ns();
    pthread_t killer;

    (void)unused;
    if (enter(group))
        return 1;
    if (kolo_group_rank(group) == 1 && pthread_create(&killer, NULL, kill_soon, NULL))
        return ranks_fail("no thread");
    return ranks_expect_soon(began_ns, call_until_it_fails(group), KOLO_E_PEER_LOST, "rank 1 (");
}

static void *stop_soon(void *unused)
{
    ranks_nap_ms((int)(ko_now_ns() / 1000 % 20));
    raise(SIGSTOP);
    return unused;
}

/* Rank 1 stands still between two calls, or in one. */
static int wait_for_a_caller(kolo_group *group, void *unused)
{
    const pid_t own = getpid();
    int failed = enter(group);
    int64_t began_ns;
    pthread_t stopper;
    pid_t all[3];

    (void)unused;
    if (failed || kolo_all_gather(group, &own, all, sizeof own, KOLO_UINT8))
        return ranks_fail("before");
    kolo_group_set_timeout(group, ranks_lengthen(500));
    if (kolo_group_rank(group) == 1 && pthread_create(&stopper, NULL, stop_soon, NULL))
        return ranks_fail("no thread");
    began_ns = ko_now_ns();
    failed = ranks_expect_soon(began_ns, call_until_it_fails(group), KOLO_E_TIMEOUT, " rank 1 (");
    if (kolo_group_rank(group) == 0)
        kill(all[1], SIGKILL);
    return failed;
}

static void *abort_soon(void *group)
{
    ranks_nap_ms((int)(ko_now_ns() / 1000 % 20));
    kolo_group_abort(group, "enough");
    return NULL;
}

/* Rank 0, which serves the store, ends right after a call in which it has aborted. */
static int abort_in_a_call(kolo_group *group, void *unused)
{
    const int64_t began_ns = ko_now_ns();
    pthread_t aborter;
    int err;

    (void)unused;
    if (enter(group))
        return 1;
    if (kolo_group_rank(group) == 0 && pthread_create(&aborter, NULL, abort_soon, group))
        return ranks_fail("no thread");
    err = call_until_it_fails(group);
    if (kolo_group_rank(group) == 0 && !pthread_join(aborter, NULL))
        raise(SIGKILL);
    return ranks_expect_soon(began_ns, err, KOLO_E_ABORTED, "rank 0 aborted the group");
}

/* What rank 1 has the GPU do fails, after the ranks have met for the call. */
static int fail_to_launch(kolo_group *group, void *unused)
{
    const struct trial trial = {KO_ALL_REDUCE, 1000, 0};
    int failed = enter(group);
    const int64_t began_ns = ko_now_ns();

    (void)unused;
    if (!failed && kolo_group_rank(group) == 1)
        setenv("FAKECUDA_BREAK", "cuLaunchKernel=719", 1);
    return failed || ranks_expect_soon(began_ns, call(group, &trial), KOLO_E_SYSTEM, "on rank 1");
}

static void a_kernel_waits_in_vain(void **state)
{
    const struct ranks ranks = {.kind = RANKS_PROCESSES, .n = 3, .tolerated = 1};

    (void)state;
    setenv("FAKECUDA_DEVICES", "3", 1);
    exam_set_variables("shm", "", 4096);
    assert_int_equal(ranks_run(&ranks, lose_a_rank, NULL), 0);
    for (int i = 0; i < 8; i++)
        assert_int_equal(ranks_run(&ranks, i % 2 ? lose_a_caller : wait_for_a_caller, NULL), 0);
    for (int i = 0; i < 10; i++)
        assert_int_equal(ranks_run(&ranks, abort_in_a_call, NULL), 0);
    assert_int_equal(
        ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = 3}, fail_to_launch, NULL), 0);
}

/* A rank that has given up sends nothing any more: what it has may come of what it lacks. */
static void who_has_given_up_sends_nothing(void)
{
    enum { BYTES = 4096, STOP = 8, GIVEN_UP = 16, STALLED = 64, BOXES = 2 * KO_PUSH_BOX };
    static unsigned char sent[BOXES];
    const uint32_t one = 1;
    ko_cu_ptr words, boxes;
    struct ko_push push = {.nbytes = BYTES, .n = 2};

    assert_int_equal(gpu_rank_enter(NULL), 0);
    words = gpu_rank_fresh(2 * BYTES);
    boxes = gpu_rank_fresh(BOXES);
    push.from[0] = push.from[1] = push.to[0] = push.to[1] = words + BYTES;
    push.boxes[0] = push.boxes[1] = boxes;
    push.epochs = words;
    push.stop = words + STOP;
    push.given_up = words + GIVEN_UP;
    push.stalled = words + STALLED;
    assert_int_equal(gpu_rank.cuda->fill(words, 0, 2 * BYTES, gpu_rank.stream), 0);
    assert_int_equal(gpu_rank.cuda->fill(boxes, 0, BOXES, gpu_rank.stream), 0);
    for (int i = STOP; i <= GIVEN_UP; i += GIVEN_UP - STOP)
        assert_int_equal(
            gpu_rank.cuda->copy(words + (ko_cu_ptr)i, (uintptr_t)&one, sizeof one, gpu_rank.stream),
            0);
    assert_int_equal(ko_cuda_push(push, gpu_rank.stream), KOLO_OK);
    assert_int_equal(gpu_rank.cuda->copy((uintptr_t)sent, boxes, BOXES, gpu_rank.stream), 0);
    assert_int_equal(gpu_rank_leave(0), 0);
    for (size_t i = 0; i < BOXES; i++)
        assert_int_equal(sent[i], 0);
}

/* The last of all: from here on the driver has threads in this process, which is not to fork. */
static void among_threads(void **state)
{
    (void)state;
    who_has_given_up_sends_nothing();
    run(RANKS_THREADS, 2, take_all);
    run(RANKS_THREADS, 3, take_all);
    run(RANKS_THREADS, 2, launch_beside_calls);
    threads_of_blocks(RANKS_THREADS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(graphs_push),
        cmocka_unit_test(one_slot_will_do),
        cmocka_unit_test(threads_of_a_block),
        cmocka_unit_test(a_graph_beside_calls),
        cmocka_unit_test(nothing_goes_that_has_not_to),
        cmocka_unit_test(a_kernel_waits_in_vain),
        cmocka_unit_test(among_threads),
    };

    setenv("FAKECUDA_JITTER", "50", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
