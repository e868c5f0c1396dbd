/* SPDX-License-Identifier: MIT
 *
 * Collectives of buffers in GPU memory, on the double of NVIDIA's driver: every collective, even
 * and uneven, in place, asynchronous, coalesced, among threads and processes; in the order of the
 * stream; and what goes wrong. The host cannot touch the buffers, where the processor has
 * protection keys.
 */
#include "exam.h"
#include "fault.h"
#include "gpu_rank.h"
#include "ranks.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SLICE_BYTES = 4096 };

/* ---- exams ----------------------------------------------------------------------------------- */

static int take(kolo_group *group, enum ko_collective what)
{
    static const size_t counts[] = {0, 1, 17, 1024, 5001};
    int failed = 0;

    for (unsigned i = 0; i < 5 * 8 && !failed; i++) {
        const struct exam exam = {.what = what,
                                  .dtype = i & 1 ? KOLO_BFLOAT16 : KOLO_INT32,
                                  .op = KOLO_SUM,
                                  .count = counts[i / 8],
                                  .root = (int)(i / 3) % kolo_group_size(group),
                                  .is_in_place = i & 2,
                                  .is_async = i & 4,
                                  .is_uneven = i % 5 == 3 && exam_can_be_uneven(what),
                                  .shift = i % 3 * 4,
                                  .memory = &gpu_rank_memory};

        failed = exam_take(group, &exam);
    }
    return failed;
}

static int take_all(kolo_group *group, void *unused)
{
    int failed = gpu_rank_enter(group);

    (void)unused;
    for (int what = 0; what < KO_NCOLLECTIVES && !failed; what++)
        failed = take(group, (enum ko_collective)what);
    return gpu_rank_leave(failed);
}

static void run(enum ranks_kind kind, int n, ranks_body body)
{
    assert_int_equal(ranks_run(&(struct ranks){.kind = kind, .n = n}, body, NULL), 0);
}

static void all_collectives(void **state)
{
    static const char *const transports[] = {"shm", "tcp"};

    (void)state;
    for (int i = 0; i < 2; i++)
        for (int n = 1; n <= 4; n++) {
            exam_set_variables(transports[i], "", SLICE_BYTES);
            run(RANKS_PROCESSES, n, take_all);
        }
}

/* ---- where no memory of the GPU's is shared -------------------------------------------------- */

/* The copies in host memory are such that the other ranks read them where they are, unless no such
 * memory is left. */
static int look_at_copies(kolo_group *group, void *argument)
{
    const bool *is_left = argument;
    struct exam exam = {.what = KO_ALL_GATHER, .dtype = KOLO_FLOAT32, .count = 5001};
    int failed = gpu_rank_enter(group) || exam_take(group, &exam); /* opens the links */

    ko_fault_arm(KO_FAULT_SEGMENT, !*is_left);
    exam.memory = &gpu_rank_memory;
    failed = failed || exam_take(group, &exam);
    for (int r = 0; r < kolo_group_size(group) && !failed; r++) {
        const struct ko_link *link = group->collectives.ports[r].link;

        if (link && r != kolo_group_rank(group) && !link->referenced == *is_left)
            failed = ranks_fail("%llu slices for rank %d are not copied into slots",
                                (unsigned long long)link->referenced, r);
    }
    return gpu_rank_leave(failed);
}

static void copies_are_read_where_they_are(void **state)
{
    (void)state;
    exam_set_variables("shm", "direct", SLICE_BYTES);
    setenv("KOLO_CUDA_IPC", "off", 1);
    for (int n = 2; n <= 3; n++)
        for (int i = 0; i < 2; i++)
            assert_int_equal(ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = n},
                                       look_at_copies, &(bool){i}),
                             0);
    unsetenv("KOLO_CUDA_IPC");
}

/* ---- several tensors ------------------------------------------------------------------------- */

enum { TENSORS = 9 };

static int reduce_tensors(kolo_group *group, void *unused)
{
    kolo_tensor tensors[TENSORS];
    float values[TENSORS][300];
    int failed = gpu_rank_enter(group);

    (void)unused;
    for (int i = 0; i < TENSORS; i++) {
        for (int k = 0; k < 300; k++)
            values[i][k] = (float)(i + k + kolo_group_rank(group));
        tensors[i].in = tensors[i].out = gpu_rank_memory.make(values[i], sizeof values[i]);
        tensors[i].count = (size_t)i * 37;
    }
    if (!failed && kolo_all_reduce_coalesced(group, tensors, TENSORS, KOLO_FLOAT32, KOLO_MAX))
        failed = ranks_fail("all_reduce_coalesced");
    for (int i = 0; i < TENSORS; i++) {
        gpu_rank_memory.fetch(values[i], tensors[i].out, sizeof values[i]);
        for (int k = 0; k < 300 && !failed; k++) {
            const int top = k < i * 37 ? kolo_group_size(group) - 1 : kolo_group_rank(group);

            if (values[i][k] != (float)(i + k + top))
                failed = ranks_fail("tensor %d, element %d", i, k);
        }
    }
    return gpu_rank_leave(failed);
}

static void tensors_are_reduced(void **state)
{
    (void)state;
    exam_set_variables("shm", "", SLICE_BYTES);
    run(RANKS_PROCESSES, 3, reduce_tensors);
}

/* ---- errors ---------------------------------------------------------------------------------- */

static int mix(kolo_group *group, void *unused)
{
    int failed = gpu_rank_enter(group), content = 0, on_host = 3, sum;
    void *on_gpu = gpu_rank_memory.make(&content, sizeof content);

    (void)unused;
    if (!failed &&
        (kolo_all_reduce(group, &on_host, on_gpu, 1, KOLO_INT32, KOLO_SUM) != KOLO_E_INVALID ||
         !strstr(kolo_last_error(), "1 buffers are in GPU memory and 1 in host")))
        failed = ranks_fail("mixed buffers were taken");
    /* the group is as good as before, with host memory too */
    if (!failed && (kolo_all_reduce(group, &on_host, &sum, 1, KOLO_INT32, KOLO_SUM) ||
                    sum != 3 * kolo_group_size(group)))
        failed = ranks_fail("host memory");
    gpu_rank_memory.fetch(&content, on_gpu, sizeof content);
    return gpu_rank_leave(failed);
}

static void mixed_buffers_are_refused(void **state)
{
    (void)state;
    exam_set_variables("shm", "", SLICE_BYTES);
    run(RANKS_PROCESSES, 2, mix);
}

/* A stream that stands still: the call ends at its limit and says so, on all ranks. */
static int wait_in_vain(kolo_group *group, void *unused)
{
    static uint32_t gate;
    int failed = gpu_rank_enter(group), value = 1, err;
    void *on_gpu = gpu_rank_memory.make(&value, sizeof value);

    (void)unused;
    kolo_group_set_timeout(group, 300);
    __atomic_store_n(&gate, 0, __ATOMIC_RELEASE);
    if (kolo_group_rank(group) == 1)
        gpu_rank.cuda->stream_await_word(gpu_rank.stream, (uintptr_t)&gate, 1, KO_CU_WAIT_EQ);
    err = kolo_all_reduce(group, on_gpu, on_gpu, 1, KOLO_INT32, KOLO_SUM);
    if (!failed && (err != KOLO_E_TIMEOUT ||
                    (kolo_group_rank(group) == 1 &&
                     (!strstr(kolo_last_error(), "GPU's stream") ||
                      !strstr(kolo_last_error(), "kolo_group_set_timeout sets the limit")))))
        failed = ranks_fail("status %d: %s", err, kolo_last_error());
    __atomic_store_n(&gate, 1, __ATOMIC_RELEASE);
    gpu_rank_memory.fetch(&value, on_gpu, sizeof value);
    return gpu_rank_leave(failed);
}

static void a_stream_that_stands_still(void **state)
{
    (void)state;
    exam_set_variables("shm", "", SLICE_BYTES);
    run(RANKS_PROCESSES, 2, wait_in_vain);
}

static int ask_without_driver(kolo_group *group, void *unused)
{
    (void)unused;
    if (kolo_group_set_stream(group, NULL) != KOLO_E_UNSUPPORTED ||
        !strstr(kolo_last_error(), "KOLO_CUDA is 0"))
        return ranks_fail("%s", kolo_last_error());
    return kolo_barrier(group) ? ranks_fail("barrier") : 0;
}

static void without_a_driver(void **state)
{
    (void)state;
    setenv("KOLO_CUDA", "0", 1);
    run(RANKS_PROCESSES, 2, ask_without_driver);
    unsetenv("KOLO_CUDA");
}

/* ---- streams --------------------------------------------------------------------------------- */

/* There by now, since the group's stream may be another one than what fills it. */
static void *make_int(int value)
{
    void *on_gpu = gpu_rank_memory.make(&value, sizeof value);

    if (gpu_rank.cuda->stream_sync(gpu_rank.stream))
        abort();
    return on_gpu;
}

static int reduce_one(kolo_group *group)
{
    const int n = kolo_group_size(group);
    int value = kolo_group_rank(group);
    void *on_gpu = make_int(value);
    const int err = kolo_all_reduce(group, on_gpu, on_gpu, 1, KOLO_INT32, KOLO_SUM);

    gpu_rank_memory.fetch(&value, on_gpu, sizeof value);
    return err || value != n * (n - 1) / 2 ? ranks_fail("the sum is %d", value) : 0;
}

/* First the legacy stream, of a thread that has no GPU yet; then others, but of no other GPU. */
static int change_streams(kolo_group *group, void *unused)
{
    const bool has_gpu = kolo_group_set_stream(group, NULL) == KOLO_OK;
    ko_cu_context other;
    ko_cu_stream stream;
    int failed = has_gpu ? gpu_rank_enter(NULL) : ranks_fail("the legacy stream");

    (void)unused;
    if (!failed && (kolo_group_set_stream(group, NULL) || kolo_group_set_stream(group, (void *)1)))
        failed = ranks_fail("the legacy stream, again");
    if (!failed && kolo_group_set_stream(group, gpu_rank.stream))
        failed = ranks_fail("a stream");
    if (!failed)
        failed = reduce_one(group);
    if (failed)
        return failed;
    if (gpu_rank.cuda->context_retain(&other, 1) || gpu_rank.cuda->context_push(other) ||
        gpu_rank.cuda->stream_create(&stream, 0))
        return ranks_fail("another GPU");
    failed = ranks_expect(kolo_group_set_stream(group, NULL), KOLO_E_INVALID, "of another GPU");
    if (gpu_rank.cuda->context_pop(&other))
        return ranks_fail("another GPU");
    failed |= ranks_expect(kolo_group_set_stream(group, stream), KOLO_E_INVALID, "of another GPU");
    failed |= ranks_expect(kolo_group_set_stream(group, (void *)2), KOLO_E_INVALID,
                           "is cudaStreamPerThread, another one in each thread");
    return gpu_rank_leave(reduce_one(group) || failed);
}

/* And not as a group's first one, either; the ranks meet all the same. */
static int begin_with_a_threads_own(kolo_group *group, void *unused)
{
    int value = 1, sum = 0;

    (void)unused;
    if (ranks_expect(kolo_group_set_stream(group, (void *)2), KOLO_E_INVALID,
                     "is cudaStreamPerThread"))
        return 1;
    return kolo_all_reduce(group, &value, &sum, 1, KOLO_INT32, KOLO_SUM) || sum != 2
               ? ranks_fail("the sum is %d", sum)
               : 0;
}

static void streams_change(void **state)
{
    (void)state;
    exam_set_variables("shm", "", SLICE_BYTES);
    setenv("FAKECUDA_DEVICES", "2", 1);
    run(RANKS_PROCESSES, 2, change_streams);
    run(RANKS_PROCESSES, 2, begin_with_a_threads_own);
    unsetenv("FAKECUDA_DEVICES");
}

static void *open_soon(void *gate)
{
    ranks_nap_ms(50);
    __atomic_store_n((uint32_t *)gate, 1, __ATOMIC_RELEASE);
    return NULL;
}

/* Of one element each. */
enum follower { SUM, MESSAGE };

static int begin_one(kolo_group *group, enum follower what, void *in, void *out, kolo_work **work)
{
    const int n = kolo_group_size(group), rank = kolo_group_rank(group);
    const kolo_p2p ops[] = {{1, (rank + 1) % n, 0, KOLO_INT32, 1, in, NULL},
                            {0, (rank + n - 1) % n, 0, KOLO_INT32, 1, out, NULL}};

    return what == SUM ? kolo_all_reduce_async(group, in, out, 1, KOLO_INT32, KOLO_SUM, work)
                       : kolo_batch_async(group, ops, 2, work);
}

static int call_one(kolo_group *group, enum follower what, void *in, void *out)
{
    const int n = kolo_group_size(group), rank = kolo_group_rank(group);

    return what == SUM ? kolo_all_reduce(group, in, out, 1, KOLO_INT32, KOLO_SUM)
                       : kolo_sendrecv(group, in, 1, (rank + 1) % n, out, 1, (rank + n - 1) % n,
                                       KOLO_INT32, 0);
}

/* Elements on the GPU; each time new values, since memory is not to go while a stream stands. */
struct row {
    void *in, *between, *out;
};

static void copy_int(void *to, const void *from)
{
    if (gpu_rank.cuda->copy((uintptr_t)to, (uintptr_t)from, sizeof(int), gpu_rank.stream) ||
        gpu_rank.cuda->stream_sync(gpu_rank.stream))
        abort();
}

/* A call that comes behind another one, which the stream before, that stands still, has to do. */
static int follow_one(kolo_group *group, const struct row *row, enum follower before,
                      enum follower behind)
{
    static uint32_t gate;
    const int n = kolo_group_size(group);
    const int wanted = (before == SUM ? n : 1) * (behind == SUM ? n : 1);
    const int one = 1, other = 7;
    const ko_cu_stream first = gpu_rank.stream;
    int failed = 0, sum = 0;
    pthread_t opener;
    kolo_work *work;

    gate = 0;
    copy_int(row->in, &one);
    copy_int(row->between, &other);
    if (kolo_barrier(group) ||
        gpu_rank.cuda->stream_create(&gpu_rank.stream, KO_CU_STREAM_NON_BLOCKING) ||
        (kolo_group_rank(group) == 0 &&
         gpu_rank.cuda->stream_await_word(first, (uintptr_t)&gate, 1, KO_CU_WAIT_EQ)))
        return ranks_fail("the start");
    if (begin_one(group, before, row->in, row->between, &work) ||
        kolo_group_set_stream(group, gpu_rank.stream) ||
        pthread_create(&opener, NULL, open_soon, &gate))
        return ranks_fail("the call before");
    if (call_one(group, behind, row->between, row->out))
        failed = ranks_fail("the call");
    copy_int(&sum, row->out);
    if (sum != wanted)
        failed = ranks_fail("%d behind %d: it is %d, not %d", behind, before, sum, wanted);
    pthread_join(opener, NULL);
    failed |= kolo_work_wait(work, -1) && ranks_fail("%s", kolo_last_error());
    kolo_work_free(work);
    return failed || gpu_rank.cuda->stream_sync(first) || gpu_rank.cuda->stream_destroy(first);
}

static int follow_calls(kolo_group *group, void *unused)
{
    int failed = gpu_rank_enter(group), value = 0;
    const struct row row = {gpu_rank_memory.make(&value, sizeof value),
                            gpu_rank_memory.make(&value, sizeof value),
                            gpu_rank_memory.make(&value, sizeof value)};

    (void)unused;
    for (int i = 0; i < 4 && !failed; i++)
        failed = follow_one(group, &row, (enum follower)(i / 2), (enum follower)(i % 2));
    gpu_rank_memory.fetch(&value, row.in, sizeof value);
    gpu_rank_memory.fetch(&value, row.between, sizeof value);
    gpu_rank_memory.fetch(&value, row.out, sizeof value);
    return gpu_rank_leave(failed);
}

static void calls_follow_each_other(void **state)
{
    (void)state;
    exam_set_variables("shm", "", SLICE_BYTES);
    for (int i = 0; i < 4; i++) {
        setenv("FAKECUDA_DEVICES", i % 2 ? "2" : "1", 1);
        setenv("KOLO_CUDA_IPC", i / 2 ? "off" : "all", 1);
        run(RANKS_PROCESSES, 2, follow_calls);
    }
    unsetenv("FAKECUDA_DEVICES");
    unsetenv("KOLO_CUDA_IPC");
}

/* All of a process's streams share one queue of the GPU's with those of their priority: what the
 * user's wait for does not stand behind them. */
static void queues_are_shared(void **state)
{
    (void)state;
    setenv("FAKECUDA_QUEUES", "1", 1);
    for (int i = 0; i < 2; i++) {
        exam_set_variables(i ? "tcp" : "shm", "", SLICE_BYTES);
        run(RANKS_PROCESSES, 2, reduce_tensors);
    }
    unsetenv("FAKECUDA_QUEUES");
}

/* The ranks' first streams: the legacy one, by its handle or NULL, or of a kind. */
struct streams {
    bool is_legacy[2], has_handle[2];
    unsigned flags;
    int status; /* of an asynchronous call */
};

static int reduce_in_stream(kolo_group *group, int status)
{
    const int n = kolo_group_size(group);
    int value = kolo_group_rank(group);
    void *on_gpu = make_int(value);
    kolo_work *work = NULL;
    int err = kolo_all_reduce_async(group, on_gpu, on_gpu, 1, KOLO_INT32, KOLO_SUM, &work);

    if (!err)
        err = kolo_work_wait(work, -1);
    kolo_work_free(work);
    if (status)
        return ranks_expect(err, status, "ranks 0 and 1, threads of one process");
    gpu_rank_memory.fetch(&value, on_gpu, sizeof value);
    return err || value != n * (n - 1) / 2 ? ranks_fail("the sum is %d", value) : 0;
}

/* What waits for the call needs none of them. */
static int take_streams(kolo_group *group, void *argument)
{
    const struct streams *streams = argument;
    const int rank = kolo_group_rank(group);
    ko_cu_context context;
    void *const legacy = streams->has_handle[rank] ? (void *)KO_CU_STREAM_LEGACY : NULL;
    ko_cu_stream stream = legacy;
    int n, failed = gpu_rank_enter(NULL);

    failed = failed || gpu_rank.cuda->device_count(&n) ||
             gpu_rank.cuda->context_retain(&context, rank % n) ||
             gpu_rank.cuda->context_push(context) ||
             gpu_rank.cuda->stream_create(&gpu_rank.stream, KO_CU_STREAM_NON_BLOCKING) ||
             (!streams->is_legacy[rank] && gpu_rank.cuda->stream_create(&stream, streams->flags)) ||
             kolo_group_set_stream(group, stream) || reduce_one(group);
    return failed || kolo_barrier(group) ? ranks_fail("a call that waits")
                                         : reduce_in_stream(group, streams->status);
}

static void take_streams_on(const char *ngpus, enum ranks_kind kind, struct streams streams)
{
    setenv("FAKECUDA_DEVICES", ngpus, 1);
    assert_int_equal(ranks_run(&(struct ranks){.kind = kind, .n = 2, .timeout_ms = 5000},
                               take_streams, &streams),
                     0);
    unsetenv("FAKECUDA_DEVICES");
}

static void legacy_streams(void **state)
{
    (void)state;
    exam_set_variables("shm", "", SLICE_BYTES);
    take_streams_on("1", RANKS_PROCESSES, (struct streams){.is_legacy = {true, true}});
    take_streams_on("1", RANKS_PROCESSES,
                    (struct streams){.is_legacy = {true, true}, .has_handle = {true, true}});
}

/* Of which only such can be in order that do not wait for each other. */
static void take_streams_of_threads(void)
{
    take_streams_on("1", RANKS_THREADS,
                    (struct streams){.is_legacy = {true, true}, .status = KOLO_E_INVALID});
    take_streams_on("1", RANKS_THREADS,
                    (struct streams){.is_legacy = {false, true}, .status = KOLO_E_INVALID});
    take_streams_on("1", RANKS_THREADS,
                    (struct streams){.is_legacy = {true, true},
                                     .has_handle = {false, true},
                                     .status = KOLO_E_INVALID});
    take_streams_on("1", RANKS_THREADS,
                    (struct streams){.is_legacy = {false, true},
                                     .has_handle = {false, true},
                                     .status = KOLO_E_INVALID});
    take_streams_on(
        "1", RANKS_THREADS,
        (struct streams){.is_legacy = {false, true}, .flags = KO_CU_STREAM_NON_BLOCKING});
    take_streams_on("1", RANKS_THREADS, (struct streams){.flags = 0});
    take_streams_on("2", RANKS_THREADS, (struct streams){.is_legacy = {true, true}});
}

/* A driver that fails in the middle of it. */
static int lack_something(kolo_group *group, void *unused)
{
    (void)unused;
    return kolo_group_set_stream(group, NULL) != KOLO_OK ? 0 : ranks_fail("a stream");
}

static int lack_the_gpu(kolo_group *group, void *unused)
{
    (void)unused;
    return ranks_expect(kolo_group_set_stream(group, NULL), KOLO_E_UNSUPPORTED,
                        "another process has the GPU to itself (compute mode EXCLUSIVE_PROCESS");
}

static void drivers_that_fail(void **state)
{
    static const char *const what[] = {"cuCtxGetCurrent=1", "cuDevicePrimaryCtxRetain=2",
                                       "cuStreamCreateWithPriority=2", "cuEventCreate=2",
                                       "cuMemHostRegister=2"};

    (void)state;
    exam_set_variables("shm", "", SLICE_BYTES);
    for (int i = 0; i < 5; i++) {
        setenv("FAKECUDA_BREAK", what[i], 1);
        run(RANKS_PROCESSES, 2, lack_something);
    }
    setenv("FAKECUDA_BREAK", "cuDevicePrimaryCtxRetain=46", 1);
    run(RANKS_PROCESSES, 2, lack_the_gpu);
    unsetenv("FAKECUDA_BREAK");
}

/* The last of all: from here on the driver has threads in this process, which is not to fork. */
static void among_threads(void **state)
{
    (void)state;
    exam_set_variables("shm", "", SLICE_BYTES);
    run(RANKS_THREADS, 3, take_all);
    run(RANKS_THREADS, 2, reduce_tensors);
    take_streams_of_threads();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_driver),
        cmocka_unit_test(all_collectives),
        cmocka_unit_test(copies_are_read_where_they_are),
        cmocka_unit_test(tensors_are_reduced),
        cmocka_unit_test(mixed_buffers_are_refused),
        cmocka_unit_test(streams_change),
        cmocka_unit_test(calls_follow_each_other),
        cmocka_unit_test(queues_are_shared),
        cmocka_unit_test(legacy_streams),
        cmocka_unit_test(drivers_that_fail),
        cmocka_unit_test(a_stream_that_stands_still),
        cmocka_unit_test(among_threads),
    };

    setenv("FAKECUDA_JITTER", "100", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
