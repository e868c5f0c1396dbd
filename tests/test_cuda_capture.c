/* SPDX-License-Identifier: MIT
 *
 * Captures of the strictest kind, which a program may have open for graphs of its own: no call of
 * kolo's, nor any thread that one has left at work, does what they forbid, on the double of
 * NVIDIA's driver, which ends a capture for that.
 */
#include "exam.h"
#include "gpu_rank.h"
#include "ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SLICE_BYTES = 4096, COUNT = 30011 };

static int settle(int rank, void *argument)
{
    (void)argument;
    return setenv("KOLO_HOST", rank % 2 ? "north" : "south", 1);
}

static void run(enum ranks_kind kind, int n, ranks_body body)
{
    exam_set_variables("shm", "", SLICE_BYTES);
    assert_int_equal(ranks_run(&(struct ranks){.kind = kind, .n = n}, body, NULL), 0);
}

/* A stream that kolo knows nothing of. */
static _Thread_local ko_cu_stream aside;

static int enter(kolo_group *group)
{
    return gpu_rank_enter(group) || gpu_rank.cuda->stream_create(&aside, KO_CU_STREAM_NON_BLOCKING);
}

static int begin_capture(void)
{
    return gpu_rank.cuda->capture_begin(aside, KO_CU_CAPTURE_GLOBAL);
}

static int end_capture(void)
{
    ko_cu_graph graph;

    return gpu_rank.cuda->capture_end(aside, &graph) || gpu_rank.cuda->graph_destroy(graph)
               ? ranks_fail("the capture has ended before")
               : 0;
}

/* ---- calls that are made meanwhile ----------------------------------------------------------- */

static int take(kolo_group *group, const struct exam_memory *from)
{
    static const size_t counts[] = {1, 17, 5003};
    const struct exam_memory memory = {from->make, from->fetch, begin_capture, end_capture};
    int failed = enter(group) || kolo_barrier(group); /* threads make their streams, and end them */

    for (int what = 0; what < KO_NCOLLECTIVES && !failed; what++)
        failed = exam_take_forms(group, (enum ko_collective)what, counts, 3, &memory);
    return gpu_rank_leave(failed || kolo_barrier(group));
}

static int take_whole(kolo_group *group, void *unused)
{
    (void)unused;
    return take(group, &gpu_rank_memory);
}

static int take_pieces(kolo_group *group, void *unused)
{
    (void)unused;
    return take(group, &gpu_rank_pieces);
}

static void calls_that_are_made_meanwhile(void **state)
{
    const struct ranks hosts = {.kind = RANKS_PROCESSES, .n = 4, .settle = settle};

    (void)state;
    run(RANKS_PROCESSES, 2, take_whole);
    run(RANKS_PROCESSES, 2, take_pieces);
    setenv("FAKECUDA_DEVICES", "3", 1);
    run(RANKS_PROCESSES, 3, take_whole);
    setenv("FAKECUDA_DEVICES", "2", 1);
    setenv("KOLO_CUDA_PIECE_BYTES", "8192", 1);
    exam_set_variables("shm,tcp", "", SLICE_BYTES);
    assert_int_equal(ranks_run(&hosts, take_whole, NULL), 0);
    unsetenv("KOLO_CUDA_PIECE_BYTES");
    unsetenv("FAKECUDA_DEVICES");
    setenv("KOLO_CUDA_IPC", "off", 1);
    run(RANKS_PROCESSES, 2, take_whole);
    unsetenv("KOLO_CUDA_IPC");
}

/* ---- calls that are under way ---------------------------------------------------------------- */

/* What rank 0 begins, then rank 1. */
struct trial {
    int (*begin[2])(kolo_group *group, void *on_gpu, int *on_host, kolo_work **work);
};

static int reduce(kolo_group *group, void *on_gpu, int *on_host, kolo_work **work)
{
    (void)on_host;
    return kolo_all_reduce_async(group, on_gpu, on_gpu, COUNT, KOLO_INT32, KOLO_SUM, work);
}

static int receive(kolo_group *group, void *on_gpu, int *on_host, kolo_work **work)
{
    (void)on_host;
    return kolo_irecv(group, on_gpu, COUNT, KOLO_INT32, 1, 0, work);
}

/* Which no thread of the stream's carries out. */
static int receive_on_host(kolo_group *group, void *on_gpu, int *on_host, kolo_work **work)
{
    (void)on_gpu;
    return kolo_irecv(group, on_host, COUNT, KOLO_INT32, 1, 0, work);
}

static int send(kolo_group *group, void *on_gpu, int *on_host, kolo_work **work)
{
    (void)on_host;
    return kolo_isend(group, on_gpu, COUNT, KOLO_INT32, 0, 0, work);
}

/* Rank 0 waits for the other, which begins when that one captures. The second group's ranks meet
 * on the host. */
static int go_on(kolo_group *group, kolo_group *meeting, const struct trial *trial)
{
    static int values[COUNT];
    const int rank = kolo_group_rank(group);
    void *on_gpu = gpu_rank_memory.make(values, sizeof values);
    kolo_work *work = NULL;
    int failed = gpu_rank.cuda->stream_sync(gpu_rank.stream); /* values may be received into */

    if (!failed && rank == 1)
        failed = kolo_barrier(meeting);
    failed = failed || trial->begin[rank](group, on_gpu, values, &work) ||
             (rank == 0 && (begin_capture() || kolo_barrier(meeting))) ||
             (kolo_work_wait(work, -1) && ranks_fail("%s", kolo_last_error())) ||
             (rank == 0 && end_capture());
    kolo_work_free(work);
    gpu_rank_memory.fetch(values, on_gpu, sizeof values);
    return failed;
}

static int go_on_with_all(kolo_group *group, void *unused)
{
    static const struct trial trials[] = {
        {{reduce, reduce}}, {{receive, send}}, {{receive_on_host, send}}};
    kolo_group *meeting = NULL;
    int failed = enter(group) || kolo_group_duplicate(group, &meeting);

    (void)unused;
    for (int i = 0; i < 3 && !failed; i++)
        failed = go_on(group, meeting, &trials[i]);
    kolo_group_free(meeting);
    return gpu_rank_leave(failed);
}

static void calls_that_are_under_way(void **state)
{
    (void)state;
    run(RANKS_PROCESSES, 2, go_on_with_all);
    setenv("FAKECUDA_DEVICES", "2", 1);
    run(RANKS_PROCESSES, 2, go_on_with_all);
    unsetenv("FAKECUDA_DEVICES");
    setenv("KOLO_CUDA_IPC", "off", 1);
    run(RANKS_PROCESSES, 2, go_on_with_all);
    unsetenv("KOLO_CUDA_IPC");
}

/* ---- the legacy stream ----------------------------------------------------------------------- */

static int refuse(int err)
{
    return ranks_expect(err, KOLO_E_UNSUPPORTED,
                        "the group's stream is the legacy one, into which nothing can be put while "
                        "a stream is captured that waits for it");
}

/* Which takes nothing while another one is captured that waits for it. */
static int wait_for_captures(kolo_group *group, void *unused)
{
    int failed = enter(group), value = 1;
    void *on_gpu = gpu_rank_memory.make(&value, sizeof value);
    ko_cu_stream beside = aside;

    (void)unused;
    if (failed || gpu_rank.cuda->stream_sync(gpu_rank.stream) ||
        kolo_group_set_stream(group, NULL) || gpu_rank.cuda->stream_create(&aside, 0) ||
        begin_capture())
        return ranks_fail("the start");
    failed = refuse(kolo_all_reduce(group, on_gpu, on_gpu, 1, KOLO_INT32, KOLO_SUM)) |
             refuse(kolo_send(group, on_gpu, 1, KOLO_INT32, 0, 0)) | end_capture();
    aside = beside;
    if (kolo_barrier(group) || begin_capture() ||
        kolo_all_reduce(group, on_gpu, on_gpu, 1, KOLO_INT32, KOLO_SUM))
        failed = ranks_fail("beside a stream that does not wait");
    failed |= end_capture();
    gpu_rank_memory.fetch(&value, on_gpu, sizeof value);
    if (value != 2)
        failed = ranks_fail("the sum is %d", value);
    return gpu_rank_leave(failed || kolo_group_set_stream(group, gpu_rank.stream));
}

static void the_legacy_stream(void **state)
{
    (void)state;
    run(RANKS_PROCESSES, 2, wait_for_captures);
}

/* The last of all: from here on the driver has threads in this process, which is not to fork. */
/* ---- streams that join a capture ------------------------------------------------------------- */

/* Two groups, each with a stream of its own, as libraries have that are called side by side. */
struct branches {
    kolo_group *group, *other;
    ko_cu_event fork, join;
    ko_cu_ptr memory; /* COUNT numbers for each */
};

static int open_branches(kolo_group *group, struct branches *branches)
{
    const struct ko_cuda *cuda = gpu_rank.cuda;

    *branches = (struct branches){.group = group};
    return kolo_group_duplicate(group, &branches->other) ||
                   kolo_group_set_stream(branches->other, aside) ||
                   cuda->event_create(&branches->fork, KO_CU_EVENT_DISABLE_TIMING) ||
                   cuda->event_create(&branches->join, KO_CU_EVENT_DISABLE_TIMING) ||
                   cuda->alloc(&branches->memory, 2 * COUNT * sizeof(int))
               ? ranks_fail("two branches")
               : 0;
}

static void close_branches(struct branches *branches)
{
    const struct ko_cuda *cuda = gpu_rank.cuda;

    kolo_group_free(branches->other);
    (void)cuda->event_destroy(branches->fork);
    (void)cuda->event_destroy(branches->join);
    (void)cuda->free(branches->memory);
}

static int reduce_in_both(const struct branches *branches)
{
    void *first = (void *)(uintptr_t)branches->memory;
    void *second = (void *)(uintptr_t)(branches->memory + COUNT * sizeof(int));

    return kolo_all_reduce(branches->group, first, first, COUNT, KOLO_INT32, KOLO_SUM) ||
           kolo_all_reduce(branches->other, second, second, COUNT, KOLO_INT32, KOLO_MAX);
}

/* The side stream joins by an event, and is joined again, unless it is forgotten. */
static int capture_branches(const struct branches *branches, bool is_joined, ko_cu_graph *graph)
{
    const struct ko_cuda *cuda = gpu_rank.cuda;
    const ko_cu_stream stream = gpu_rank.stream;

    if (cuda->capture_begin(stream, KO_CU_CAPTURE_RELAXED) ||
        cuda->event_record(branches->fork, stream) ||
        cuda->stream_await_event(aside, branches->fork, 0))
        return ranks_fail("the fork");
    if (reduce_in_both(branches))
        return ranks_fail("%s", "a captured call");
    if (is_joined && (cuda->event_record(branches->join, aside) ||
                      cuda->stream_await_event(stream, branches->join, 0)))
        return ranks_fail("the join");
    return !cuda->capture_end(stream, graph) == is_joined ? 0 : ranks_fail("the capture's end");
}

/* Each rank has its number + 1 of all, and so do they after the launch. */
static int launch_branches(const struct branches *branches, ko_cu_graph_exec exec, int n, int rank)
{
    const struct ko_cuda *cuda = gpu_rank.cuda;
    const size_t nbytes = 2 * COUNT * sizeof(int);
    int numbers[2 * COUNT];
    int nwrong = 0;

    for (size_t i = 0; i < 2 * COUNT; i++)
        numbers[i] = rank + 1;
    if (cuda->copy(branches->memory, (uintptr_t)numbers, nbytes, gpu_rank.stream) ||
        cuda->graph_launch(exec, gpu_rank.stream) ||
        cuda->copy((uintptr_t)numbers, branches->memory, nbytes, gpu_rank.stream) ||
        cuda->stream_sync(gpu_rank.stream))
        return ranks_fail("a launch");
    for (int i = 0; i < 2 * COUNT; i++)
        nwrong += numbers[i] != (i < COUNT ? n * (n + 1) / 2 : n);
    return nwrong ? ranks_fail("%d of %d are wrong", nwrong, 2 * COUNT) : 0;
}

static int take_branches(kolo_group *group, void *unused)
{
    const int n = kolo_group_size(group), rank = kolo_group_rank(group);
    struct branches branches = {0};
    ko_cu_graph graph = NULL;
    ko_cu_graph_exec exec = NULL;
    int failed = enter(group) || open_branches(group, &branches) || reduce_in_both(&branches) ||
                 capture_branches(&branches, true, &graph);

    (void)unused;
    failed = failed || gpu_rank.cuda->graph_prepare(&exec, graph, 0) ||
             gpu_rank.cuda->graph_destroy(graph);
    for (int launch = 0; launch < 3 && !failed; launch++)
        failed = launch_branches(&branches, exec, n, rank);
    failed = failed || kolo_barrier(group) || gpu_rank.cuda->graph_exec_destroy(exec) ||
             capture_branches(&branches, false, &graph);
    close_branches(&branches);
    return gpu_rank_leave(failed);
}

static void two_branches(void **state)
{
    (void)state;
    run(RANKS_PROCESSES, 3, take_branches);
    setenv("FAKECUDA_DEVICES", "2", 1);
    run(RANKS_PROCESSES, 3, take_branches);
    unsetenv("FAKECUDA_DEVICES");
}

static void among_threads(void **state)
{
    (void)state;
    run(RANKS_THREADS, 3, take_whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_that_are_made_meanwhile),
        cmocka_unit_test(calls_that_are_under_way),
        cmocka_unit_test(the_legacy_stream),
        cmocka_unit_test(two_branches),
        cmocka_unit_test(among_threads),
    };

    setenv("FAKECUDA_JITTER", "50", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
