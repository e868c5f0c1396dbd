/* SPDX-License-Identifier: MIT
 *
 * Collectives of ranks that share one GPU, or several, on the double of NVIDIA's driver: nothing
 * goes by way of the host, on one GPU each input is read once and each output written once; results
 * have the bits of the host's reductions in the order of the ranks; streams wait, threads do not;
 * memory that moves, buffers that others cannot reach.
 */
#include "bits.h"
#include "dtype.h"
#include "exam.h"
#include "gpu_double.h"
#include "gpu_rank.h"
#include "ranks.h"
#include "reduce.h"
#include "sanitized.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

enum { SLICE_BYTES = 4096, COUNT = 5003, MOST_RANKS = 8 };

/* What ranks that are processes leave here, too. */
static struct counts {
    atomic_uint_fast64_t read, written;
} * counts;

static void *at(ko_cu_ptr memory)
{
    return (void *)(uintptr_t)memory;
}

static void put(ko_cu_ptr memory, const void *content, size_t nbytes)
{
    if (gpu_rank.cuda->copy(memory, (uintptr_t)content, nbytes, gpu_rank.stream))
        abort();
}

static void get(void *content, ko_cu_ptr memory, size_t nbytes)
{
    if (gpu_rank.cuda->copy((uintptr_t)content, memory, nbytes, gpu_rank.stream) ||
        gpu_rank.cuda->stream_sync(gpu_rank.stream))
        abort();
}

static void run_on(const char *ngpus, enum ranks_kind kind, int n, ranks_body body)
{
    setenv("FAKECUDA_DEVICES", ngpus, 1);
    exam_set_variables("shm", "", SLICE_BYTES);
    assert_int_equal(ranks_run(&(struct ranks){.kind = kind, .n = n}, body, NULL), 0);
}

static void run(enum ranks_kind kind, int n, ranks_body body)
{
    run_on("1", kind, n, body);
    run_on("3", kind, n, body);
}

static void run_all(ranks_body body)
{
    static const int sizes[] = {1, 2, 3, 8};

    for (int i = IS_SANITIZED ? 2 : 0; i < (HAS_TSAN ? 3 : 4); i++)
        run(RANKS_PROCESSES, sizes[i], body);
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* What the call reads and writes on all ranks, in units of count elements. */
static uint64_t floor_of(enum ko_collective what, uint64_t n, bool is_write)
{
    switch (what) {
    case KO_ALL_REDUCE:
        return n;
    case KO_REDUCE:
        return is_write ? 1 : n;
    case KO_BROADCAST:
        return is_write ? n - 1 : 1;
    case KO_ALL_GATHER:
        return is_write ? n * n : n;
    case KO_REDUCE_SCATTER:
        return is_write ? n : n * n;
    case KO_ALL_TO_ALL:
        return n * n;
    default:
        return n; /* gather, scatter */
    }
}

static int call(kolo_group *group, enum ko_collective what, void *in, void *out)
{
    const int root = kolo_group_size(group) - 1;

    switch (what) {
    case KO_ALL_REDUCE:
        return kolo_all_reduce(group, in, out, COUNT, KOLO_FLOAT32, KOLO_SUM);
    case KO_REDUCE:
        return kolo_reduce(group, in, out, COUNT, KOLO_FLOAT32, KOLO_SUM, root);
    case KO_BROADCAST:
        return kolo_broadcast(group, out, COUNT, KOLO_FLOAT32, root);
    case KO_ALL_GATHER:
        return kolo_all_gather(group, in, out, COUNT, KOLO_FLOAT32);
    case KO_REDUCE_SCATTER:
        return kolo_reduce_scatter(group, in, out, COUNT, KOLO_FLOAT32, KOLO_SUM);
    case KO_GATHER:
        return kolo_gather(group, in, out, COUNT, KOLO_FLOAT32, root);
    case KO_SCATTER:
        return kolo_scatter(group, in, out, COUNT, KOLO_FLOAT32, root);
    default:
        return kolo_all_to_all(group, in, out, COUNT, KOLO_FLOAT32);
    }
}

static int launch(ko_cu_graph_exec exec)
{
    return gpu_rank.cuda->graph_launch(exec, gpu_rank.stream) ||
           gpu_rank.cuda->stream_sync(gpu_rank.stream);
}

/* A blocking call, or a graph of it, has come to its end everywhere before the barrier does. */
static int count_one(kolo_group *group, enum ko_collective what, ko_cu_ptr in, ko_cu_ptr out,
                     bool is_captured)
{
    ko_cu_graph_exec exec = NULL;
    uint64_t before[2], after[2];

    if (is_captured &&
        (gpu_rank_capture() || call(group, what, at(in), at(out)) || gpu_rank_captured(&exec)))
        return ranks_fail("%s was not captured", ko_collective_name(what));
    if (kolo_barrier(group))
        return ranks_fail("barrier");
    gpu_bytes_of_all(&before[0], &before[1]);
    if ((exec ? launch(exec) : call(group, what, at(in), at(out))) || kolo_barrier(group))
        return ranks_fail("%s", ko_collective_name(what));
    gpu_bytes_of_all(&after[0], &after[1]);
    atomic_fetch_add(&counts[what].read, after[0] - before[0]);
    atomic_fetch_add(&counts[what].written, after[1] - before[1]);
    if (exec)
        (void)gpu_rank.cuda->graph_exec_destroy(exec);
    return 0;
}

static int count_bytes_of(kolo_group *group, bool is_captured)
{
    const size_t n = (size_t)kolo_group_size(group), nbytes = n * COUNT * sizeof(float);
    int failed = gpu_rank_enter(group);
    ko_cu_ptr in = gpu_rank_fresh(nbytes), out = gpu_rank_fresh(nbytes);

    for (int what = 0; what < KO_BARRIER && !failed; what++)
        failed = count_one(group, (enum ko_collective)what, in, out, is_captured);
    return gpu_rank_leave(failed);
}

static int count_bytes(kolo_group *group, void *unused)
{
    (void)unused;
    return count_bytes_of(group, false);
}

static int count_bytes_of_graphs(kolo_group *group, void *unused)
{
    (void)unused;
    return count_bytes_of(group, true);
}

static void check_counts(ranks_body body)
{
    for (int n = 1; n <= MOST_RANKS; n += n < 4 ? 1 : 4) {
        memset(counts, 0, KO_BARRIER * sizeof *counts);
        run_on("1", RANKS_PROCESSES, n, body);
        for (int what = 0; what < KO_BARRIER; what++) {
            const uint64_t unit = COUNT * sizeof(float);

            if (n > 1 || what != KO_BROADCAST)
                assert_int_equal(counts[what].read,
                                 unit * floor_of((enum ko_collective)what, (uint64_t)n, false));
            assert_int_equal(counts[what].written,
                             unit * floor_of((enum ko_collective)what, (uint64_t)n, true));
        }
    }
}

static void no_byte_moves_twice(void **state)
{
    (void)state;
    SKIP_PROCESSES_UNDER_TSAN();
    check_counts(count_bytes);
}

static void nor_in_a_graph(void **state)
{
    (void)state;
    SKIP_PROCESSES_UNDER_TSAN();
    check_counts(count_bytes_of_graphs);
}

/* ---- bits ------------------------------------------------------------------------------------ */

static const enum ko_collective reducing[] = {KO_ALL_REDUCE, KO_REDUCE, KO_REDUCE_SCATTER};

/* What the kernels of the types and ops do is all the same to ThreadSanitizer: it takes each type,
 * and each op. */
static int reduce_everything(kolo_group *group, void *unused)
{
    int failed = gpu_rank_enter(group);

    (void)unused;
    for (int dtype = 0; dtype < KOLO_NDTYPES; dtype++)
        for (int op = 0; op < KOLO_NOPS; op++)
            for (int i = 0; i < 3 && !failed; i++) {
                const struct bits_reduction reduction = {.what = reducing[i],
                                                         .dtype = (kolo_dtype)dtype,
                                                         .op = (kolo_op)op,
                                                         .share = COUNT,
                                                         .is_in_place = (op + i) % 2};

                if (HAS_TSAN && (dtype + op) % EXAM_STEP != 0)
                    continue;
                if (ko_reduction_of(reduction.dtype, reduction.op))
                    failed = bits_take_reduction(group, &gpu_rank_memory, &reduction,
                                                 (unsigned)(dtype * KOLO_NOPS + op));
            }
    return gpu_rank_leave(failed);
}

static int reduce_gradients(kolo_group *group, void *unused)
{
    enum { TIMES = 8 };
    int failed = gpu_rank_enter(group);

    (void)unused;
    for (unsigned i = 0; i < TIMES && !failed; i++)
        failed = bits_take_compressed(group, &gpu_rank_memory, i) ||
                 bits_take_step_call(group, &gpu_rank_memory, i);
    return gpu_rank_leave(failed);
}

static void bits_are_the_hosts(void **state)
{
    (void)state;
    SKIP_PROCESSES_UNDER_TSAN();
    if (IS_SANITIZED)
        run(RANKS_PROCESSES, 3, reduce_everything);
    else
        run_all(reduce_everything);
    run(RANKS_PROCESSES, 3, reduce_gradients);
}

/* Little enough that each thread of a kernel can be a thread. */
static int reduce_a_little(kolo_group *group, void *unused)
{
    static const size_t counts_of[] = {1, 37, 100};
    int failed = gpu_rank_enter(group);

    (void)unused;
    for (int i = 0; i < 3 && !failed; i++) {
        const struct bits_reduction sum = {reducing[i], KOLO_FLOAT32, KOLO_SUM, counts_of[i],
                                           i % 2};
        const struct bits_reduction average = {reducing[i], KOLO_BFLOAT16, KOLO_AVG, counts_of[i],
                                               i % 2 == 0};

        failed = bits_take_reduction(group, &gpu_rank_memory, &sum, 1) ||
                 bits_take_reduction(group, &gpu_rank_memory, &average, 2);
    }
    return gpu_rank_leave(failed);
}

/* Under a sanitizer there is no memory for so many threads. */
static void threads_of_blocks(enum ranks_kind kind)
{
    setenv("FAKECUDA_THREADS", IS_SANITIZED ? "0" : "1", 1);
    run(kind, 2, reduce_a_little);
    unsetenv("FAKECUDA_THREADS");
}

static void threads_of_kernels(void **state)
{
    (void)state;
    threads_of_blocks(RANKS_PROCESSES);
}

/* ---- order ----------------------------------------------------------------------------------- */

/* Calls follow each other in the stream, and the thread waits for none; at first not even the
 * stream moves. */
static int chain(kolo_group *group, void *unused)
{
    enum { CALLS = 5 };
    static _Thread_local uint32_t gate;
    const int n = kolo_group_size(group);
    int values[COUNT], failed = gpu_rank_enter(group), want = 1 + kolo_group_rank(group);
    kolo_work *works[CALLS];
    ko_cu_ptr memory = gpu_rank_fresh(sizeof values);

    (void)unused;
    for (int i = 0; i < COUNT; i++)
        values[i] = want;
    put(memory, values, sizeof values);
    gate = 0;
    if (gpu_rank.cuda->stream_await_word(gpu_rank.stream, (uintptr_t)&gate, 1, KO_CU_WAIT_EQ))
        failed = ranks_fail("the gate");
    for (int i = 0; i < CALLS; i++)
        if (kolo_all_reduce_async(group, at(memory), at(memory), COUNT, KOLO_INT32, KOLO_SUM,
                                  &works[i]))
            failed = ranks_fail("call %d", i);
    __atomic_store_n(&gate, 1, __ATOMIC_RELEASE);
    get(values, memory, sizeof values);
    want = n * (n + 1) / 2;
    for (int i = 1; i < CALLS; i++)
        want *= n;
    for (int i = 0; i < COUNT && !failed; i++)
        if (values[i] != want)
            failed = ranks_fail("element %d is %d, not %d", i, values[i], want);
    for (int i = 0; i < CALLS; i++) {
        if (kolo_work_wait(works[i], -1))
            failed = ranks_fail("work %d", i);
        kolo_work_free(works[i]);
    }
    gpu_rank.cuda->free(memory);
    return gpu_rank_leave(failed);
}

static void streams_wait_and_threads_do_not(void **state)
{
    (void)state;
    run_all(chain);
}

/* ---- whose memory ---------------------------------------------------------------------------- */

static int sum_of_ranks(kolo_group *group, void *buffer, bool is_on_gpu)
{
    const int n = kolo_group_size(group);
    int value = 1 + kolo_group_rank(group);

    if (is_on_gpu)
        put((uintptr_t)buffer, &value, sizeof value);
    else
        memcpy(buffer, &value, sizeof value);
    if (kolo_all_reduce(group, buffer, buffer, 1, KOLO_INT32, KOLO_SUM))
        return ranks_fail("all_reduce");
    if (is_on_gpu)
        get(&value, (uintptr_t)buffer, sizeof value);
    else
        memcpy(&value, buffer, sizeof value);
    return value == n * (n + 1) / 2 ? 0 : ranks_fail("%d", value);
}

/* The driver gives addresses out again; parts of an allocation are other buffers. */
static int move_about(kolo_group *group, void *unused)
{
    int failed = gpu_rank_enter(group);

    (void)unused;
    for (int i = 0; i < 20 && !failed; i++) {
        ko_cu_ptr memory = gpu_rank_fresh(8192), other = i % 3 ? 0 : gpu_rank_fresh(4096);

        failed = sum_of_ranks(group, at(memory + 4 * (unsigned)i), true);
        for (int again = 0; again < 2 && !failed; again++)
            failed = sum_of_ranks(group, at(memory + 4096), true);
        gpu_rank.cuda->free(memory);
        if (!failed && other)
            failed = sum_of_ranks(group, at(other), true);
        gpu_rank.cuda->free(other);
    }
    return gpu_rank_leave(failed);
}

static void memory_comes_and_goes(void **state)
{
    (void)state;
    run_all(move_about);
}

/* In turns each rank's buffer is in host memory, the others' on the GPU. */
static int mix_ranks(kolo_group *group, void *unused)
{
    int failed = gpu_rank_enter(group), on_host;
    ko_cu_ptr memory = gpu_rank_fresh(sizeof on_host);

    (void)unused;
    for (int i = 0; i < 2 * kolo_group_size(group) && !failed; i++)
        if (i % kolo_group_size(group) == kolo_group_rank(group))
            failed = sum_of_ranks(group, &on_host, false);
        else
            failed = sum_of_ranks(group, at(memory), true);
    gpu_rank.cuda->free(memory);
    return gpu_rank_leave(failed);
}

static void some_buffers_are_on_the_host(void **state)
{
    (void)state;
    run_all(mix_ranks);
}

/* The last rank has no GPU. */
static int some_without(kolo_group *group, void *unused)
{
    const bool has_none = kolo_group_rank(group) == kolo_group_size(group) - 1;
    int failed, on_host;
    ko_cu_ptr memory;

    (void)unused;
    if (has_none)
        return gpu_rank_enter_without(group) || sum_of_ranks(group, &on_host, false);
    failed = gpu_rank_enter(group);
    memory = gpu_rank_fresh(sizeof on_host);
    if (!failed)
        failed = sum_of_ranks(group, at(memory), true);
    return gpu_rank_leave(failed);
}

static void a_rank_has_no_gpu(void **state)
{
    (void)state;
    run(RANKS_PROCESSES, 3, some_without);
}

/* More ranks than can share a GPU's memory: the log says why their calls go by way of the host. */
static int sum_on_gpu(kolo_group *group, void *unused)
{
    int failed = gpu_rank_enter(group);
    ko_cu_ptr memory = gpu_rank_fresh(sizeof(int));

    (void)unused;
    if (!failed)
        failed = sum_of_ranks(group, at(memory), true);
    gpu_rank.cuda->free(memory);
    return gpu_rank_leave(failed);
}

static void more_ranks_than_can_share(void **state)
{
    static char text[100000];

    (void)state;
    setenv("FAKECUDA_DEVICES", "1", 1);
    exam_set_variables("shm", "", SLICE_BYTES);
    assert_int_equal(ranks_run_logged(17, sum_on_gpu, text, sizeof text), 0);
    assert_non_null(strstr(text, "17 ranks of one host are more than the 16 that can share it"));
}

static int reach_less(kolo_group *group, void *unused)
{
    if (kolo_group_rank(group) == 1)
        setenv("FAKECUDA_BREAK", "cuIpcOpenMemHandle=1", 1);
    return move_about(group, unused);
}

static void memory_that_one_cannot_reach(void **state)
{
    (void)state;
    run(RANKS_PROCESSES, 3, reach_less);
}

/* Where nobody reaches the others' memory, calls go by way of the host. */
static void memory_that_cannot_be_reached(void **state)
{
    static const char *const ways[][2] = {{"KOLO_CUDA_IPC", "off"},
                                          {"FAKECUDA_BREAK", "cuIpcOpenMemHandle=1"},
                                          {"FAKECUDA_BREAK", "cuIpcGetMemHandle=801"},
                                          {"FAKECUDA_BREAK", "cuLibraryLoadData=218"}};

    (void)state;
    for (int i = 0; i < (HAS_TSAN ? 1 : 4); i++) {
        setenv(ways[i][0], ways[i][1], 1);
        run(RANKS_PROCESSES, 3, move_about);
        run(RANKS_PROCESSES, 2, reduce_everything);
        run(RANKS_PROCESSES, 2, chain);
        unsetenv(ways[i][0]);
    }
}

/* A variable that has become wrong since the group was made is an error on all ranks, and no other
 * way. */
static int refuse(kolo_group *group, void *unused)
{
    (void)unused;
    setenv("KOLO_CUDA_IPC", "some", 1);
    if (!gpu_rank_enter(group) || !strstr(kolo_last_error(), "KOLO_CUDA_IPC is \"some\""))
        return ranks_fail("it was taken");
    return gpu_rank_leave(0);
}

static void wrong_ways(void **state)
{
    (void)state;
    run(RANKS_PROCESSES, 2, refuse);
}

static int several_tensors(kolo_group *group, void *unused)
{
    enum { TENSORS = 7 };
    const int n = kolo_group_size(group);
    kolo_tensor tensors[TENSORS];
    int values[TENSORS], failed = gpu_rank_enter(group);
    ko_cu_ptr memory = gpu_rank_fresh(TENSORS * 256);

    (void)unused;
    for (int i = 0; i < TENSORS; i++) {
        values[i] = i + kolo_group_rank(group);
        put(memory + 256 * (unsigned)i, &values[i], sizeof(int));
        tensors[i].in = tensors[i].out = at(memory + 256 * (unsigned)i);
        tensors[i].count = i != 3;
    }
    if (!failed && kolo_all_reduce_coalesced(group, tensors, TENSORS, KOLO_INT32, KOLO_MAX))
        failed = ranks_fail("all_reduce_coalesced");
    for (int i = 0; i < TENSORS && !failed; i++) {
        get(&values[i], memory + 256 * (unsigned)i, sizeof(int));
        if (values[i] != (i == 3 ? i + kolo_group_rank(group) : i + n - 1))
            failed = ranks_fail("tensor %d is %d", i, values[i]);
    }
    gpu_rank.cuda->free(memory);
    return gpu_rank_leave(failed);
}

static void tensors(void **state)
{
    (void)state;
    run_all(several_tensors);
}

/* The last of all: from here on the driver has threads in this process, which is not to fork. */
static void among_threads(void **state)
{
    static const int sizes[] = {1, 2, 3, 5, MOST_RANKS};

    (void)state;
    for (int i = 0; i < 5; i += IS_SANITIZED ? 2 : 1) {
        const int n = sizes[i];

        run(RANKS_THREADS, n, chain);
        run(RANKS_THREADS, n, move_about);
        run(RANKS_THREADS, n, mix_ranks);
        run(RANKS_THREADS, n, several_tensors);
    }
    run(RANKS_THREADS, 3, reduce_everything);
    run(RANKS_THREADS, 3, reduce_gradients);
    threads_of_blocks(RANKS_THREADS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_byte_moves_twice),
        cmocka_unit_test(nor_in_a_graph),
        cmocka_unit_test(bits_are_the_hosts),
        cmocka_unit_test(threads_of_kernels),
        cmocka_unit_test(streams_wait_and_threads_do_not),
        cmocka_unit_test(memory_comes_and_goes),
        cmocka_unit_test(some_buffers_are_on_the_host),
        cmocka_unit_test(a_rank_has_no_gpu),
        cmocka_unit_test(more_ranks_than_can_share),
        cmocka_unit_test(memory_that_cannot_be_reached),
        cmocka_unit_test(memory_that_one_cannot_reach),
        cmocka_unit_test(tensors),
        cmocka_unit_test(wrong_ways),
        cmocka_unit_test(among_threads),
    };

    setenv("FAKECUDA_JITTER", "50", 1);
    counts = mmap(NULL, KO_BARRIER * sizeof *counts, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (counts == MAP_FAILED)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
