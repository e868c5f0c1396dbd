/* SPDX-License-Identifier: MIT
 *
 * GPUs whose streams cannot wait for words, by the double of NVIDIA's driver: on some ranks or all,
 * calls go by way of the host, and asynchronous ones return when they are done.
 */
#include "exam.h"
#include "gpu_double.h"
#include "gpu_rank.h"
#include "ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int take(kolo_group *group, enum ko_collective what)
{
    static const size_t counts[] = {0, 33, 5001};

    return exam_take_forms(group, what, counts, 3, &gpu_rank_memory);
}

/* Some time after an asynchronous call, what was put into the stream behind it: it has the result.
 */
static int copy_behind(kolo_group *group)
{
    enum { COUNT = 1000 };
    const int n = kolo_group_size(group);
    int values[COUNT], failed = 0;
    void *in, *out;
    kolo_work *work = NULL;

    for (int i = 0; i < COUNT; i++)
        values[i] = i;
    in = gpu_rank_memory.make(values, sizeof values);
    out = gpu_rank_memory.make(values, sizeof values);
    if (kolo_all_reduce_async(group, in, in, COUNT, KOLO_INT32, KOLO_SUM, &work) ||
        gpu_rank.cuda->copy((uintptr_t)out, (uintptr_t)in, sizeof values, gpu_rank.stream))
        return ranks_fail("a call");
    gpu_rank_memory.fetch(values, out, sizeof values);
    for (int i = 0; i < COUNT && !failed; i++)
        if (values[i] != i * n)
            failed = ranks_fail("element %d is %d", i, values[i]);
    failed |= kolo_work_wait(work, -1) ? ranks_fail("the work") : 0;
    kolo_work_free(work);
    gpu_rank_memory.fetch(values, in, sizeof values);
    return failed;
}

/* Round the ring, by one batch. */
static int pass_on(kolo_group *group)
{
    enum { COUNT = 5000 };
    const int n = kolo_group_size(group), rank = kolo_group_rank(group);
    int values[COUNT], failed = 0;
    kolo_work *work = NULL;
    void *in, *out;

    for (int i = 0; i < COUNT; i++)
        values[i] = rank * COUNT + i;
    in = gpu_rank_memory.make(values, sizeof values);
    out = gpu_rank_memory.make(values, sizeof values);
    if (kolo_sendrecv_async(group, in, COUNT, (rank + 1) % n, out, COUNT, (rank + n - 1) % n,
                            KOLO_INT32, 0, &work))
        failed = ranks_fail("a message");
    gpu_rank_memory.fetch(values, out, sizeof values);
    for (int i = 0; i < COUNT && !failed; i++)
        if (values[i] != (rank + n - 1) % n * COUNT + i)
            failed = ranks_fail("element %d of a message is %d", i, values[i]);
    kolo_work_free(work);
    gpu_rank_memory.fetch(values, in, sizeof values);
    return failed;
}

/* What is captured cannot go by way of the host. */
static int refuse_capture(kolo_group *group)
{
    void *memory = gpu_rank_memory.make("abcd", 4);
    ko_cu_graph_exec exec;
    int failed = gpu_rank.cuda->stream_sync(gpu_rank.stream) || gpu_rank_capture();

    failed = failed || ranks_expect(kolo_all_reduce(group, memory, memory, 1, KOLO_INT32, KOLO_SUM),
                                    KOLO_E_UNSUPPORTED, "");
    return failed | gpu_rank_captured(&exec) || gpu_rank.cuda->graph_exec_destroy(exec)
               ? ranks_fail("a graph")
               : 0;
}

static int take_all(kolo_group *group, void *unused)
{
    struct gpu_bytes bytes;
    int failed = gpu_rank_enter(group);

    (void)unused;
    for (int what = 0; what < KO_NCOLLECTIVES && !failed; what++)
        failed = take(group, (enum ko_collective)what);
    failed = failed || copy_behind(group) || pass_on(group) || refuse_capture(group);
    bytes = gpu_bytes_now();
    if (!failed && (bytes.read_there || bytes.written_there))
        failed = ranks_fail("it went from GPU to GPU");
    return gpu_rank_leave(failed);
}

/* Rank 1, a process, alone has such a driver. */
static int take_all_with_one(kolo_group *group, void *unused)
{
    if (kolo_group_rank(group) == 1)
        setenv("FAKECUDA_BREAK", "cuStreamWaitValue32=801,cuStreamBatchMemOp=801", 1);
    return take_all(group, unused);
}

static int enter_with_one(kolo_group *group, void *unused)
{
    (void)unused;
    if (kolo_group_rank(group) == 1)
        setenv("FAKECUDA_BREAK", "cuStreamWriteValue32=801", 1);
    return gpu_rank_leave(gpu_rank_enter(group));
}

static int enter(kolo_group *group, void *unused)
{
    (void)unused;
    return gpu_rank_leave(gpu_rank_enter(group));
}

static void run_on(const char *ngpus, enum ranks_kind kind, ranks_body body)
{
    exam_set_variables("shm", "", 4096);
    setenv("FAKECUDA_DEVICES", ngpus, 1);
    assert_int_equal(ranks_run(&(struct ranks){.kind = kind, .n = 3}, body, NULL), 0);
}

static void check_logged(ranks_body body, const char *said)
{
    char text[20000];

    setenv("FAKECUDA_DEVICES", "3", 1);
    exam_set_variables("shm", "", 4096);
    assert_int_equal(ranks_run_logged(3, body, text, sizeof text), 0);
    if (!strstr(text, said))
        fail_msg("%s", text);
}

static void on_one_rank(void **state)
{
    (void)state;
    SKIP_PROCESSES_UNDER_TSAN();
    run_on("1", RANKS_PROCESSES, take_all_with_one);
    run_on("3", RANKS_PROCESSES, take_all_with_one);
    check_logged(enter_with_one, "streams of rank 1's GPU cannot wait for others'");
    check_logged(enter_with_one, "collectives of GPU memory go by way of host memory");
}

static void on_all_ranks(void **state)
{
    (void)state;
    SKIP_PROCESSES_UNDER_TSAN();
    setenv("FAKECUDA_BREAK", "cuStreamWaitValue32=801,cuStreamBatchMemOp=801", 1);
    run_on("3", RANKS_PROCESSES, take_all);
    check_logged(enter, "calls of GPU memory go by way of the host, and return when they are done: "
                        "its streams cannot wait for a word: CUDA_ERROR_NOT_SUPPORTED (801)");
    unsetenv("FAKECUDA_BREAK");
}

static void among_threads(void **state)
{
    (void)state;
    setenv("FAKECUDA_BREAK", "cuStreamWriteValue32=801,cuStreamWaitValue32=801", 1);
    run_on("3", RANKS_THREADS, take_all);
    unsetenv("FAKECUDA_BREAK");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_one_rank),
        cmocka_unit_test(on_all_ranks),
        cmocka_unit_test(among_threads),
    };

    setenv("FAKECUDA_JITTER", "50", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
