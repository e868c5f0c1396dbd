/* SPDX-License-Identifier: MIT
 *
 * Collectives in CUDA graphs, among ranks that share a GPU, or several, on the double of NVIDIA's
 * driver: captured once, launched often, with other content each time and other calls in between;
 * what cannot be captured; and a launch that waits in vain.
 */
#include "exam.h"
#include "gpu_rank.h"
#include "ranks.h"
#include "sanitized.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { COUNT = 1003, LAUNCHES = 10, MOST_RANKS = 8 };

/* Of the calling rank's thread. */
static _Thread_local struct {
    ko_cu_ptr in, out, blocks, more; /* COUNT elements, as many; as many for each rank, and twice
                                      * that */
    int values[MOST_RANKS * COUNT];
} gpu;

static int enter(kolo_group *group)
{
    const size_t nbytes = COUNT * sizeof(int);

    if (gpu_rank_enter(group) || gpu_rank.cuda->alloc(&gpu.in, nbytes) ||
        gpu_rank.cuda->alloc(&gpu.out, nbytes) ||
        gpu_rank.cuda->alloc(&gpu.blocks, MOST_RANKS * nbytes) ||
        gpu_rank.cuda->alloc(&gpu.more, 2 * MOST_RANKS * nbytes))
        return ranks_fail("no memory");
    return 0;
}

static void *at(ko_cu_ptr memory)
{
    return (void *)(uintptr_t)memory;
}

/* out = the sum of all in; blocks = all ranks' out; broadcast of in from rank 0 in the end. */
static int capture(kolo_group *group, ko_cu_graph_exec *exec)
{
    kolo_work *work = NULL;
    int failed = gpu_rank_capture(), is_done = 0;

    if (!failed && (kolo_all_reduce_async(group, at(gpu.in), at(gpu.out), COUNT, KOLO_INT32,
                                          KOLO_SUM, &work) ||
                    kolo_work_test(work, &is_done) || !is_done))
        failed = ranks_fail("all_reduce");
    kolo_work_free(work);
    if (!failed && kolo_all_gather(group, at(gpu.out), at(gpu.blocks), COUNT, KOLO_INT32))
        failed = ranks_fail("all_gather");
    if (!failed && kolo_broadcast(group, at(gpu.in), COUNT, KOLO_INT32, 0))
        failed = ranks_fail("broadcast");
    return failed | gpu_rank_captured(exec);
}

static int value(int rank, int round, int i)
{
    return rank * 7 + round * 1000 + i;
}

static int get(ko_cu_ptr from, size_t count)
{
    return gpu_rank.cuda->copy((uintptr_t)gpu.values, from, count * sizeof(int), gpu_rank.stream) ||
                   gpu_rank.cuda->stream_sync(gpu_rank.stream)
               ? ranks_fail("the stream")
               : 0;
}

static int check(int n, int round)
{
    int sum[COUNT], failed = get(gpu.blocks, (size_t)n * COUNT);

    for (int i = 0; i < COUNT; i++) {
        sum[i] = 0;
        for (int r = 0; r < n; r++)
            sum[i] += value(r, round, i);
    }
    for (int r = 0; r < n && !failed; r++)
        if (memcmp(gpu.values + r * COUNT, sum, sizeof sum) != 0)
            failed = ranks_fail("launch %d: block %d is wrong", round, r);
    failed |= get(gpu.in, COUNT);
    for (int i = 0; i < COUNT && !failed; i++)
        if (gpu.values[i] != value(0, round, i))
            failed = ranks_fail("launch %d: element %d was not broadcast", round, i);
    return failed;
}

static int launch(int rank, int n, int round, ko_cu_graph_exec exec)
{
    int failed;

    for (int i = 0; i < COUNT; i++)
        gpu.values[i] = value(rank, round, i);
    failed =
        gpu_rank.cuda->copy(gpu.in, (uintptr_t)gpu.values, COUNT * sizeof(int), gpu_rank.stream) ||
        gpu_rank.cuda->graph_launch(exec, gpu_rank.stream);
    return failed ? ranks_fail("a launch") : check(n, round);
}

static int capture_and_launch(kolo_group *group, void *unused)
{
    const int n = kolo_group_size(group), rank = kolo_group_rank(group);
    ko_cu_graph_exec exec = NULL;
    int failed = enter(group);

    (void)unused;
    if (!failed)
        failed = capture(group, &exec);
    for (int round = 0; round < LAUNCHES && !failed; round++) {
        failed = launch(rank, n, round, exec);
        if (!failed && round % 3 == 1 && /* a call outside of graphs */
            kolo_all_reduce(group, at(gpu.out), at(gpu.out), COUNT, KOLO_INT32, KOLO_MAX))
            failed = ranks_fail("a call between launches");
    }
    if (exec)
        (void)gpu_rank.cuda->graph_exec_destroy(exec);
    if (!failed && kolo_barrier(group)) /* all have launched what they share */
        failed = ranks_fail("barrier");
    return failed;
}

static void run(enum ranks_kind kind, int n, ranks_body body)
{
    exam_set_variables("shm", "", 4096);
    for (int ngpus = 1; ngpus <= 3; ngpus += 2) {
        setenv("FAKECUDA_DEVICES", ngpus == 1 ? "1" : "3", 1);
        assert_int_equal(ranks_run(&(struct ranks){.kind = kind, .n = n}, body, NULL), 0);
    }
}

static void graphs_are_launched_often(void **state)
{
    (void)state;
    for (int n = 1; n <= MOST_RANKS; n += n < 4 ? 1 : 4)
        run(RANKS_PROCESSES, n, capture_and_launch);
}

/* ---- as calls -------------------------------------------------------------------------------- */

/* From in, or of each rank's block, blocks; to out, or more. */
static int call(kolo_group *group, enum ko_collective what)
{
    const int root = kolo_group_size(group) - 1;
    void *in = at(gpu.in), *out = at(gpu.out), *blocks = at(gpu.blocks), *more = at(gpu.more);

    switch (what) {
    case KO_ALL_REDUCE:
        return kolo_all_reduce(group, in, out, COUNT, KOLO_INT32, KOLO_SUM);
    case KO_REDUCE:
        return kolo_reduce(group, in, out, COUNT, KOLO_INT32, KOLO_SUM, root);
    case KO_BROADCAST:
        return kolo_broadcast(group, out, COUNT, KOLO_INT32, root);
    case KO_ALL_GATHER:
        return kolo_all_gather(group, in, more, COUNT, KOLO_INT32);
    case KO_REDUCE_SCATTER:
        return kolo_reduce_scatter(group, blocks, out, COUNT, KOLO_INT32, KOLO_SUM);
    case KO_GATHER:
        return kolo_gather(group, in, more, COUNT, KOLO_INT32, root);
    case KO_SCATTER:
        return kolo_scatter(group, blocks, out, COUNT, KOLO_INT32, root);
    default:
        return kolo_all_to_all(group, blocks, more, COUNT, KOLO_INT32);
    }
}

/* What a call, or a launch of it, leaves in out and more: of a round's content. */
static int results_of(kolo_group *group, enum ko_collective what, int round, ko_cu_graph_exec exec,
                      int *results)
{
    const struct ko_cuda *cuda = gpu_rank.cuda;
    const ko_cu_ptr to[] = {gpu.in, gpu.out, gpu.blocks, gpu.more};
    const size_t nbytes = COUNT * sizeof(int);

    for (int i = 0; i < MOST_RANKS * COUNT; i++)
        gpu.values[i] = value(kolo_group_rank(group), round, i);
    for (int i = 0; i < 4; i++)
        if (cuda->copy(to[i], (uintptr_t)gpu.values, i < 2 ? nbytes : MOST_RANKS * nbytes,
                       gpu_rank.stream))
            return ranks_fail("content");
    if (exec ? cuda->graph_launch(exec, gpu_rank.stream) : call(group, what))
        return ranks_fail("%s, %s", ko_collective_name(what), exec ? "launched" : "called");
    if (get(gpu.out, COUNT))
        return 1;
    memcpy(results, gpu.values, COUNT * sizeof(int));
    if (get(gpu.more, MOST_RANKS * COUNT))
        return 1;
    memcpy(results + COUNT, gpu.values, MOST_RANKS * COUNT * sizeof(int));
    /* nobody's next content before all have read this one's */
    return kolo_barrier(group) ? ranks_fail("barrier") : 0;
}

static int replay_one(kolo_group *group, enum ko_collective what)
{
    int want[(MOST_RANKS + 1) * COUNT], have[(MOST_RANKS + 1) * COUNT];
    ko_cu_graph_exec exec = NULL;
    int failed = gpu_rank_capture() || call(group, what);

    failed |= gpu_rank_captured(&exec);
    for (int round = 0; round < 3 && !failed; round++) {
        failed = results_of(group, what, round, NULL, want) ||
                 results_of(group, what, round, exec, have);
        if (!failed && memcmp(want, have, sizeof want) != 0)
            failed =
                ranks_fail("%s, launch %d: not what a call gives", ko_collective_name(what), round);
    }
    if (exec)
        (void)gpu_rank.cuda->graph_exec_destroy(exec);
    return failed;
}

static int replay_all(kolo_group *group, void *unused)
{
    int failed = enter(group);

    (void)unused;
    for (int what = 0; what < KO_BARRIER && !failed; what++)
        failed = replay_one(group, (enum ko_collective)what);
    return failed;
}

static void replay_on_gpus(enum ranks_kind kind)
{
    static const int sizes[] = {2, 5, MOST_RANKS};

    exam_set_variables("shm", "", 4096);
    for (int i = 0; i < 3; i++)
        for (int ngpus = 1; ngpus <= MOST_RANKS; ngpus += MOST_RANKS - 1) {
            setenv("FAKECUDA_DEVICES", ngpus == 1 ? "1" : "8", 1);
            assert_int_equal(
                ranks_run(&(struct ranks){.kind = kind, .n = sizes[i]}, replay_all, NULL), 0);
        }
}

static void graphs_are_as_calls(void **state)
{
    (void)state;
    replay_on_gpus(RANKS_PROCESSES);
}

/* ---- barriers -------------------------------------------------------------------------------- */

/* A launch ends when all ranks have launched, and not before. */
static int meet_in_turn(kolo_group *group, ko_cu_graph_exec exec, int last)
{
    const int rank = kolo_group_rank(group);
    ko_cu_result early = KO_CU_NOT_READY;
    int failed = rank != last && gpu_rank.cuda->graph_launch(exec, gpu_rank.stream);

    ranks_nap_ms(5);
    if (rank != last)
        early = gpu_rank.cuda->stream_query(gpu_rank.stream);
    failed |= kolo_barrier(group); /* of the hosts */
    failed |= rank == last && gpu_rank.cuda->graph_launch(exec, gpu_rank.stream);
    failed |= gpu_rank.cuda->stream_sync(gpu_rank.stream);
    if (failed || kolo_group_error(group, NULL))
        return ranks_fail("a barrier");
    return early == KO_CU_NOT_READY || kolo_group_size(group) == 1
               ? 0
               : ranks_fail("it ended before rank %d had come", last);
}

/* Between other calls, or alone. */
static int capture_barriers(kolo_group *group, void *unused)
{
    const int n = kolo_group_size(group), rank = kolo_group_rank(group);
    ko_cu_graph_exec exec = NULL, alone = NULL;
    kolo_work *work = NULL;
    int failed = enter(group) | gpu_rank_capture();

    (void)unused;
    if (!failed && (kolo_barrier(group) ||
                    kolo_all_reduce(group, at(gpu.in), at(gpu.out), COUNT, KOLO_INT32, KOLO_SUM) ||
                    kolo_barrier_async(group, &work) ||
                    kolo_all_gather(group, at(gpu.out), at(gpu.blocks), COUNT, KOLO_INT32) ||
                    kolo_broadcast(group, at(gpu.in), COUNT, KOLO_INT32, 0)))
        failed = ranks_fail("a call");
    kolo_work_free(work);
    failed |= gpu_rank_captured(&exec);
    failed = failed || gpu_rank_capture() || kolo_barrier(group) || gpu_rank_captured(&alone);
    for (int round = 0; round < LAUNCHES && !failed; round++)
        failed = launch(rank, n, round, exec) || meet_in_turn(group, alone, round % n);
    if (exec)
        (void)gpu_rank.cuda->graph_exec_destroy(exec);
    if (alone)
        (void)gpu_rank.cuda->graph_exec_destroy(alone);
    return failed;
}

static void barriers(void **state)
{
    (void)state;
    for (int n = 1; n <= MOST_RANKS; n += n < 4 ? 1 : 4)
        run(RANKS_PROCESSES, n, capture_barriers);
}

/* ---- what cannot be -------------------------------------------------------------------------- */

static int capture_by_the_host(kolo_group *group, void *unused)
{
    ko_cu_graph_exec exec;
    int failed = enter(group) | gpu_rank_capture();

    (void)unused;
    if (!failed && kolo_all_reduce(group, at(gpu.in), at(gpu.out), COUNT, KOLO_INT32, KOLO_SUM) !=
                       KOLO_E_UNSUPPORTED)
        failed = ranks_fail("it was captured");
    if (!failed && kolo_send(group, at(gpu.in), 1, KOLO_INT32, 0, 0) != KOLO_E_UNSUPPORTED)
        failed = ranks_fail("a message was captured");
    if (!failed && kolo_barrier(group) != KOLO_E_UNSUPPORTED)
        failed = ranks_fail("a barrier was captured");
    failed |= gpu_rank_captured(&exec);
    (void)gpu_rank.cuda->graph_exec_destroy(exec);
    return failed || !kolo_all_reduce(group, at(gpu.in), at(gpu.out), COUNT, KOLO_INT32, KOLO_SUM)
               ? failed
               : ranks_fail("the call behind it");
}

static void without_shared_memory(void **state)
{
    (void)state;
    setenv("KOLO_CUDA_IPC", "off", 1);
    run(RANKS_PROCESSES, 2, capture_by_the_host);
    unsetenv("KOLO_CUDA_IPC");
}

static int capture_alone(kolo_group *group, int (*make)(kolo_group *group), const char *says)
{
    ko_cu_graph_exec exec;
    const bool captures = kolo_group_rank(group) == 1;
    int failed = enter(group);

    if (captures)
        failed |= gpu_rank_capture();
    failed = failed || ranks_expect(make(group), KOLO_E_MISMATCH, says);
    if (captures) {
        failed |= gpu_rank_captured(&exec);
        (void)gpu_rank.cuda->graph_exec_destroy(exec);
    }
    return failed;
}

static int reduce(kolo_group *group)
{
    return kolo_all_reduce(group, at(gpu.in), at(gpu.out), COUNT, KOLO_INT32, KOLO_SUM);
}

static int capture_reduction_alone(kolo_group *group, void *unused)
{
    (void)unused;
    return capture_alone(group, reduce, "rank 1 captures a call for a graph");
}

/* The others meet on the host. */
static int capture_barrier_alone(kolo_group *group, void *unused)
{
    (void)unused;
    return capture_alone(group, kolo_barrier, "calls barrier #");
}

static void some_capture(void **state)
{
    (void)state;
    run(RANKS_PROCESSES, 3, capture_reduction_alone);
    run(RANKS_PROCESSES, 3, capture_barrier_alone);
}

/* Rank 0 does not launch; rank 1 aborts when the others need it no more. */
static int wait_in_vain(kolo_group *group, void *unused)
{
    ko_cu_graph_exec exec;
    int failed = enter(group) || capture(group, &exec);

    (void)unused;
    if (failed || kolo_barrier(group) || ranks_let_be_last(group, 1))
        return ranks_fail("the capture");
    if (kolo_group_rank(group) == 0) {
        ranks_nap_ms(100);
    } else {
        if (gpu_rank.cuda->graph_launch(exec, gpu_rank.stream))
            failed = ranks_fail("a launch");
        if (kolo_group_rank(group) == 1)
            kolo_group_abort(group, "in vain");
        if (gpu_rank.cuda->stream_sync(gpu_rank.stream))
            failed = ranks_fail("the stream");
    }
    (void)gpu_rank.cuda->graph_exec_destroy(exec);
    return failed;
}

static void a_launch_in_vain(void **state)
{
    (void)state;
    run(RANKS_PROCESSES, 3, wait_in_vain);
}

/* ---- memory that changes --------------------------------------------------------------------- */

enum { PIECE = 1 << 13, PIECES = 4 };

static int take_part(kolo_group *group, ko_cu_ptr in, int npieces)
{
    return kolo_barrier(group) ||
                   kolo_all_reduce(group, at(in), at(gpu.more),
                                   (size_t)npieces * PIECE / sizeof(int), KOLO_INT32, KOLO_MAX)
               ? ranks_fail("a call of %d pieces", npieces)
               : 0;
}

static void map(ko_cu_ptr base, int first, int end)
{
    gpu_rank_map(base + (size_t)first * PIECE, PIECE, end - first, KO_CU_HANDLE_DESCRIPTOR);
}

/* When all have come to it. */
static int unmap(kolo_group *group, ko_cu_ptr base, int first, int end)
{
    if (kolo_barrier(group))
        return ranks_fail("barrier");
    gpu_rank_unmap(base + (size_t)first * PIECE, PIECE, end - first);
    return 0;
}

static int end_of(kolo_group *group, ko_cu_graph_exec exec, int failed)
{
    if (exec)
        (void)gpu_rank.cuda->graph_exec_destroy(exec);
    return failed || !kolo_barrier(group) ? failed : ranks_fail("barrier");
}

static int enter_with(kolo_group *group, ko_cu_ptr *addresses, size_t nbytes)
{
    return enter(group) || gpu_rank.cuda->addresses_reserve(addresses, nbytes, 0, 0, 0)
               ? ranks_fail("no addresses")
               : 0;
}

/* What other ranks' graphs have of it stays where it is when longer calls have more of it. */
static int grow(kolo_group *group, void *unused)
{
    const int n = kolo_group_size(group), rank = kolo_group_rank(group);
    ko_cu_graph_exec exec = NULL;
    int failed = enter_with(group, &gpu.in, PIECES * PIECE);

    (void)unused;
    if (failed)
        return failed;
    map(gpu.in, 0, 1);
    failed = capture(group, &exec) || launch(rank, n, 0, exec);
    for (int i = 1; i < PIECES && !failed; i++) {
        map(gpu.in, i, i + 1);
        failed = take_part(group, gpu.in, i + 1) || launch(rank, n, i, exec);
    }
    return end_of(group, exec, failed);
}

/* And when others, one more each time, take the place of those behind it, with which it was handed
 * over. */
static int change_behind(kolo_group *group, void *unused)
{
    const int n = kolo_group_size(group), rank = kolo_group_rank(group);
    ko_cu_graph_exec exec = NULL;
    int failed = enter_with(group, &gpu.in, PIECES * PIECE);

    (void)unused;
    if (failed)
        return failed;
    map(gpu.in, 0, 2);
    failed = take_part(group, gpu.in, 2) || capture(group, &exec);
    for (int i = 2; i < PIECES && !failed; i++) {
        failed = unmap(group, gpu.in, 1, i);
        map(gpu.in, 1, i + 1);
        failed = failed || take_part(group, gpu.in, i + 1) || launch(rank, n, i, exec);
    }
    return end_of(group, exec, failed);
}

/* And of those before it. */
static int change_before(kolo_group *group, void *unused)
{
    const int n = kolo_group_size(group), rank = kolo_group_rank(group);
    ko_cu_graph_exec exec = NULL;
    ko_cu_ptr base;
    int failed = enter_with(group, &base, 2 * PIECE);

    (void)unused;
    if (failed)
        return failed;
    gpu.in = base + PIECE;
    map(base, 0, 2);
    failed = take_part(group, base, 2) || capture(group, &exec);
    for (int i = 0; i < 3 && !failed; i++) {
        failed = unmap(group, base, 0, 1);
        map(base, 0, 1);
        failed = failed || take_part(group, base, 1) || launch(rank, n, i, exec);
    }
    return end_of(group, exec, failed);
}

/* Rank 0 comes late, so that the others' kernels wait for it. */
static int launch_late(int rank, int n, int round, ko_cu_graph_exec exec)
{
    if (rank == 0)
        ranks_nap_ms(20);
    return launch(rank, n, round, exec);
}

/* Once it has gone for good, other ranks hold it no longer. */
static int come_and_go(kolo_group *group, void *unused)
{
    enum { ROUNDS = 12 };
    const int n = kolo_group_size(group), rank = kolo_group_rank(group);
    int failed = enter(group), ndescriptors = 0;

    (void)unused;
    for (int i = 0; i < ROUNDS && !failed; i++) {
        ko_cu_graph_exec exec = NULL;

        if (gpu_rank.cuda->addresses_reserve(&gpu.in, PIECE, 0, 0, 0))
            return ranks_fail("no addresses");
        map(gpu.in, 0, 1);
        failed = capture(group, &exec) || launch_late(rank, n, i, exec);
        failed = end_of(group, exec, failed) || unmap(group, gpu.in, 0, 1);
        if (i == 3)
            ndescriptors = ranks_count_entries("/proc/self/fd");
    }
    failed = failed || gpu_rank_check_descriptors(ndescriptors);
    return failed;
}

static void memory_that_changes(void **state)
{
    (void)state;
    for (int n = IS_SANITIZED ? 3 : 2; n <= 3; n++) {
        run(RANKS_PROCESSES, n, grow);
        run(RANKS_PROCESSES, n, change_behind);
        run(RANKS_PROCESSES, n, change_before);
        run(RANKS_PROCESSES, n, come_and_go);
    }
}

/* Launched behind the end of its group, it still has memory for all that it says: nobody promises a
 * result, but the process goes on. */
static int outlive(kolo_group *group, void *unused)
{
    ko_cu_graph_exec exec = NULL;
    kolo_group *other = NULL;
    int failed = enter(group) || kolo_group_duplicate(group, &other) ||
                 kolo_group_set_stream(other, gpu_rank.stream) || capture(other, &exec) ||
                 kolo_barrier(other);

    (void)unused;
    kolo_group_free(other);
    if (failed || kolo_barrier(group) || gpu_rank.cuda->graph_launch(exec, gpu_rank.stream) ||
        gpu_rank.cuda->stream_sync(gpu_rank.stream) || gpu_rank.cuda->graph_exec_destroy(exec))
        return ranks_fail("a graph without a group");
    return kolo_barrier(group);
}

/* The last of all: from here on the driver has threads in this process, which is not to fork. */
static void among_threads(void **state)
{
    (void)state;
    for (int n = 1; n <= MOST_RANKS; n += n < 4 ? 1 : 4)
        run(RANKS_THREADS, n, capture_and_launch);
    run(RANKS_THREADS, 3, capture_barriers);
    replay_on_gpus(RANKS_THREADS);
    setenv("FAKECUDA_DEVICES", "1", 1);
    assert_int_equal(ranks_run(&(struct ranks){.kind = RANKS_THREADS, .n = 3}, outlive, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(graphs_are_launched_often),
        cmocka_unit_test(graphs_are_as_calls),
        cmocka_unit_test(barriers),
        cmocka_unit_test(without_shared_memory),
        cmocka_unit_test(some_capture),
        cmocka_unit_test(a_launch_in_vain),
        cmocka_unit_test(memory_that_changes),
        cmocka_unit_test(among_threads),
    };

    setenv("FAKECUDA_JITTER", "50", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
