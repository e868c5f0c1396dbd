/* SPDX-License-Identifier: MIT
 *
 * Collectives of ranks on several GPUs of one host, on the double of NVIDIA's driver: what goes
 * from one GPU to another is what has to, to the byte, and nothing goes by way of the host; all
 * collectives, anyhow placed; GPUs that have no access to each other's memory, and those that a
 * rank's driver does not list.
 */
#include "clock.h"
#include "exam.h"
#include "gpu_double.h"
#include "gpu_rank.h"
#include "kernel_args.h"
#include "ranks.h"
#include "sanitized.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* MOST_PUSHED floats go another way (test_cuda_push). */
enum { SLICE_BYTES = 4096, LINE_BYTES = 128, MOST_PUSHED = KO_PUSH_BYTES / sizeof(float) };

static void run_on(const char *ngpus, enum ranks_kind kind, int n, ranks_body body)
{
    setenv("FAKECUDA_DEVICES", ngpus, 1);
    exam_set_variables("shm", "", SLICE_BYTES);
    assert_int_equal(ranks_run(&(struct ranks){.kind = kind, .n = n}, body, NULL), 0);
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* What a rank's GPU has to read and write if all n have one each: of blocks of nbytes, or of shares
 * of so many bytes, whole lines. */
static struct gpu_bytes floor_of(enum ko_collective what, int rank, uint64_t n, uint64_t nbytes)
{
    const uint64_t lines = (nbytes + LINE_BYTES - 1) / LINE_BYTES, me = (uint64_t)rank;
    const uint64_t first = lines / n * me + (me < lines % n ? me : lines % n);
    const uint64_t end = first + lines / n + (me < lines % n);
    const uint64_t share = least(end * LINE_BYTES, nbytes) - least(first * LINE_BYTES, nbytes);
    const bool is_root = me == n - 1;

    switch (what) {
    case KO_ALL_REDUCE:
        return (struct gpu_bytes){share, share, (n - 1) * share, (n - 1) * share, 0};
    case KO_REDUCE:
        return (struct gpu_bytes){share, is_root ? share : 0, (n - 1) * share, is_root ? 0 : share,
                                  0};
    case KO_REDUCE_SCATTER:
        return (struct gpu_bytes){nbytes, nbytes, (n - 1) * nbytes, 0, 0};
    case KO_BROADCAST:
        return is_root ? (struct gpu_bytes){0} : (struct gpu_bytes){0, nbytes, nbytes, 0, 0};
    case KO_SCATTER:
        return is_root ? (struct gpu_bytes){nbytes, nbytes, 0, 0, 0}
                       : (struct gpu_bytes){0, nbytes, nbytes, 0, 0};
    case KO_GATHER:
        return is_root ? (struct gpu_bytes){nbytes, nbytes, 0, 0, 0}
                       : (struct gpu_bytes){nbytes, 0, 0, nbytes, 0};
    default: /* all_gather, all_to_all */
        return (struct gpu_bytes){n * nbytes, nbytes, 0, (n - 1) * nbytes, 0};
    }
}

static int call(kolo_group *group, enum ko_collective what, void *in, void *out, size_t count)
{
    const int root = kolo_group_size(group) - 1;

    switch (what) {
    case KO_ALL_REDUCE:
        return kolo_all_reduce(group, in, out, count, KOLO_FLOAT32, KOLO_SUM);
    case KO_REDUCE:
        return kolo_reduce(group, in, out, count, KOLO_FLOAT32, KOLO_SUM, root);
    case KO_BROADCAST:
        return kolo_broadcast(group, out, count, KOLO_FLOAT32, root);
    case KO_ALL_GATHER:
        return kolo_all_gather(group, in, out, count, KOLO_FLOAT32);
    case KO_REDUCE_SCATTER:
        return kolo_reduce_scatter(group, in, out, count, KOLO_FLOAT32, KOLO_SUM);
    case KO_GATHER:
        return kolo_gather(group, in, out, count, KOLO_FLOAT32, root);
    case KO_SCATTER:
        return kolo_scatter(group, in, out, count, KOLO_FLOAT32, root);
    default:
        return kolo_all_to_all(group, in, out, count, KOLO_FLOAT32);
    }
}

/* A blocking call has come to its end everywhere before the barrier does. */
static int check_bytes(kolo_group *group, enum ko_collective what, ko_cu_ptr memory, size_t count)
{
    const int n = kolo_group_size(group), rank = kolo_group_rank(group);
    const uint64_t nbytes = count * sizeof(float);
    const ko_cu_ptr out = memory + (uint64_t)n * nbytes + LINE_BYTES;
    const struct gpu_bytes want = floor_of(what, rank, (uint64_t)n, nbytes),
                           before = gpu_bytes_now();
    struct gpu_bytes have;

    if (call(group, what, (void *)(uintptr_t)memory, (void *)(uintptr_t)out, count))
        return ranks_fail("%s", ko_collective_name(what));
    have = gpu_bytes_since(before);
    return !memcmp(&have, &want, sizeof want)
               ? 0
               : ranks_fail("%s of %zu on rank %d of %d: %ju %ju %ju %ju, not %ju %ju %ju %ju",
                            ko_collective_name(what), count, rank, n, have.read, have.written,
                            have.read_there, have.written_there, want.read, want.written,
                            want.read_there, want.written_there);
}

static int check_all_bytes(kolo_group *group, void *unused)
{
    static const size_t counts[] = {0, MOST_PUSHED + 1, MOST_PUSHED + 32, MOST_PUSHED + 96 * 32,
                                    MOST_PUSHED + 5003};
    ko_cu_ptr memory;
    int failed = gpu_rank_enter(group);

    (void)unused;
    if (gpu_rank.cuda->alloc(&memory, 2 * 8 * (MOST_PUSHED + 5003) * sizeof(float) + LINE_BYTES))
        return ranks_fail("no memory");
    for (int i = 0; i < 5 * KO_BARRIER && !failed; i++)
        failed = check_bytes(group, (enum ko_collective)(i / 5), memory, counts[i % 5]);
    return gpu_rank_leave(failed);
}

static void nothing_goes_that_has_not_to(void **state)
{
    (void)state;
    SKIP_PROCESSES_UNDER_TSAN();
    for (int n = IS_SANITIZED ? 4 : 2; n <= 4; n++)
        run_on("4", RANKS_PROCESSES, n, check_all_bytes);
    run_on("8", RANKS_PROCESSES, 8, check_all_bytes);
}

/* ---- exams ----------------------------------------------------------------------------------- */

static int take(kolo_group *group, enum ko_collective what)
{
    static const size_t counts[] = {0, 1, 33, 1024, 5001, MOST_PUSHED + 31};
    static const kolo_dtype dtypes[] = {KOLO_UINT8, KOLO_BFLOAT16, KOLO_FLOAT32, KOLO_INT64};
    int failed = 0;

    for (unsigned i = 0; i < 6 * 8 && !failed; i += EXAM_STEP) {
        const struct exam exam = {.what = what,
                                  .dtype = dtypes[i % 4],
                                  .op = i % 3 ? KOLO_SUM : KOLO_MAX,
                                  .count = counts[i / 8],
                                  .root = (int)(i / 3) % kolo_group_size(group),
                                  .is_in_place = i & 2,
                                  .is_async = i & 4,
                                  .shift = i % 3 * 8,
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

/* More ranks than GPUs, too. */
static void all_collectives(void **state)
{
    (void)state;
    SKIP_PROCESSES_UNDER_TSAN();
    for (int n = IS_SANITIZED ? 5 : 2; n <= 5; n++)
        run_on("3", RANKS_PROCESSES, n, take_all);
}

/* ---- no access ------------------------------------------------------------------------------- */

/* All is well, but goes by way of the host. */
static int take_apart(kolo_group *group, void *unused)
{
    int failed = take_all(group, unused);
    struct gpu_bytes bytes = gpu_bytes_now();

    return failed || (!bytes.read_there && !bytes.written_there)
               ? failed
               : ranks_fail("it went from GPU to GPU");
}

/* ---- hidden ---------------------------------------------------------------------------------- */

/* The rank's process has one GPU, that of its number. */
static void hide_others(const kolo_group *group)
{
    char own[8];

    snprintf(own, sizeof own, "%d", kolo_group_rank(group));
    setenv("FAKECUDA_VISIBLE", own, 1);
}

static int check_all_bytes_of_hidden(kolo_group *group, void *unused)
{
    hide_others(group);
    return check_all_bytes(group, unused);
}

static int take_all_of_hidden(kolo_group *group, void *unused)
{
    hide_others(group);
    return take_all(group, unused);
}

static int take_apart_of_hidden(kolo_group *group, void *unused)
{
    hide_others(group);
    return take_apart(group, unused);
}

/* From rank 0 to the last: by one copy of the receiver's. */
static int send_to_last(kolo_group *group, int is_direct)
{
    enum { COUNT = 1 << 18 };
    const int rank = kolo_group_rank(group), last = kolo_group_size(group) - 1;
    const uint64_t nbytes = COUNT * sizeof(int);
    struct gpu_bytes before, have, want = {0};
    ko_cu_ptr memory;
    int failed = 0;

    if (gpu_rank.cuda->alloc(&memory, nbytes))
        return ranks_fail("no memory");
    before = gpu_bytes_now();
    if (rank == 0)
        failed = kolo_send(group, (void *)(uintptr_t)memory, COUNT, KOLO_INT32, last, 0);
    else if (rank == last)
        failed = kolo_recv(group, (void *)(uintptr_t)memory, COUNT, KOLO_INT32, 0, 0);
    if (is_direct && rank == last)
        want = (struct gpu_bytes){.written = nbytes, .read_there = nbytes};
    else if (!is_direct && rank == 0)
        want = (struct gpu_bytes){.read = nbytes, .with_host = nbytes};
    else if (!is_direct && rank == last)
        want = (struct gpu_bytes){.written = nbytes, .with_host = nbytes};
    have = gpu_bytes_since(before);
    return failed || memcmp(&have, &want, sizeof want) != 0
               ? ranks_fail("a message, on rank %d: %ju %ju", rank, have.read_there, have.with_host)
               : 0;
}

static int send_of_hidden(kolo_group *group, void *unused)
{
    int failed;

    (void)unused;
    hide_others(group);
    failed = gpu_rank_enter(group);
    return gpu_rank_leave(failed ? failed : send_to_last(group, true));
}

static int send_of_refused(kolo_group *group, void *unused)
{
    int failed;

    (void)unused;
    hide_others(group);
    failed = gpu_rank_enter(group);
    return gpu_rank_leave(failed ? failed : send_to_last(group, false));
}

/* By handles, and in pieces. */
static void hidden_gpus(void **state)
{
    static const char *const ways[] = {"all", "legacy", "vmm"};

    (void)state;
    SKIP_PROCESSES_UNDER_TSAN();
    for (int i = 0; i < 3; i++) {
        setenv("KOLO_CUDA_IPC", ways[i], 1);
        run_on("3", RANKS_PROCESSES, 3, take_all_of_hidden);
    }
    unsetenv("KOLO_CUDA_IPC");
    run_on("3", RANKS_PROCESSES, 3, send_of_hidden);
    for (int n = IS_SANITIZED ? 4 : 2; n <= 4; n++)
        run_on("4", RANKS_PROCESSES, n, check_all_bytes_of_hidden);
}

/* All ranks, also the one that sees all. */
static int take_apart_of_one(kolo_group *group, void *unused)
{
    if (kolo_group_rank(group) == 1)
        hide_others(group);
    return take_apart(group, unused);
}

static int enter_hidden(kolo_group *group, void *unused)
{
    (void)unused;
    hide_others(group);
    return gpu_rank_leave(gpu_rank_enter(group));
}

/* In vain each has tried to reach the others' memory, and hears of an abort all the same. */
static int abort_of_refused(kolo_group *group, void *unused)
{
    static uint32_t gate;
    pthread_t aborting;
    ko_cu_ptr memory;
    int64_t began_ns;
    int failed, err;

    (void)unused;
    hide_others(group);
    failed = gpu_rank_enter(group);
    if (failed || gpu_rank.cuda->alloc(&memory, sizeof(int)) ||
        gpu_rank.cuda->stream_await_word(gpu_rank.stream, (uintptr_t)&gate, 1, KO_CU_WAIT_EQ) ||
        pthread_create(&aborting, NULL, ranks_abort_soon, group))
        return ranks_fail("a stream that stands still");
    began_ns = ko_now_ns();
    err = kolo_all_reduce(group, (void *)(uintptr_t)memory, (void *)(uintptr_t)memory, 1,
                          KOLO_INT32, KOLO_SUM);
    failed = ranks_expect_soon(began_ns, err, KOLO_E_ABORTED, "enough");
    __atomic_store_n(&gate, 1, __ATOMIC_SEQ_CST);
    (void)pthread_join(aborting, NULL);
    return gpu_rank_leave(failed);
}

static void check_logged(ranks_body body, const char *said)
{
    char text[20000];

    setenv("FAKECUDA_DEVICES", "3", 1);
    exam_set_variables("shm", "", SLICE_BYTES);
    assert_int_equal(ranks_run_logged(3, body, text, sizeof text), 0);
    if (!strstr(text, said))
        fail_msg("%s", text);
}

static void hidden_gpus_that_cannot_be_opened(void **state)
{
    (void)state;
    SKIP_PROCESSES_UNDER_TSAN();
    check_logged(enter_hidden, "collectives of GPU memory go from GPU to GPU");
    setenv("FAKECUDA_HIDDEN", "0", 1);
    run_on("3", RANKS_PROCESSES, 3, take_apart_of_hidden);
    run_on("3", RANKS_PROCESSES, 3, take_apart_of_one);
    run_on("3", RANKS_PROCESSES, 3, send_of_refused);
    run_on("3", RANKS_PROCESSES, 3, abort_of_refused);
    check_logged(enter_hidden, "the GPU of rank 2 is one that rank 0's driver does not list "
                               "(CUDA_VISIBLE_DEVICES): whether its memory can be opened decides");
    check_logged(enter_hidden, "memory of rank 1's cannot be opened here, so that its calls go by "
                               "way of the host: the handle: CUDA_ERROR_PEER_ACCESS_UNSUPPORTED");
    check_logged(enter_hidden, "collectives of GPU memory go by way of host memory");
    unsetenv("FAKECUDA_HIDDEN");
}

static void gpus_without_access(void **state)
{
    static const char *const ways[][2] = {
        {"FAKECUDA_PEERS", "1"},
        {"FAKECUDA_PEERS", "2"},
        {"KOLO_CUDA_PEERS", "0"},
        {"KOLO_CUDA_IPC", "off"},
        {"FAKECUDA_BREAK", "cuDeviceCanAccessPeer=1"},
        {"FAKECUDA_BREAK", "cuIpcOpenMemHandle=217,cuMemCreate=801"},
        {"FAKECUDA_BREAK", "cuIpcOpenMemHandle=217,"
                           "cuMemImportFromShareableHandle=1"}};

    (void)state;
    SKIP_PROCESSES_UNDER_TSAN();
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        setenv(ways[i][0], ways[i][1], 1);
        run_on("3", RANKS_PROCESSES, 3, take_apart);
        unsetenv(ways[i][0]);
    }
}

/* The last of all: from here on the driver has threads in this process, which is not to fork. */
static void among_threads(void **state)
{
    (void)state;
    setenv("FAKECUDA_BREAK", "cuCtxEnablePeerAccess=217,cuMemCreate=801", 1);
    run_on("3", RANKS_THREADS, 3, take_apart);
    setenv("FAKECUDA_BREAK", "cuCtxEnablePeerAccess=711", 1); /* of more than eight, for one */
    run_on("3", RANKS_THREADS, 3, take_all);
    unsetenv("FAKECUDA_BREAK");
    run_on("3", RANKS_THREADS, 2, take_all);
    run_on("3", RANKS_THREADS, 4, take_all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_goes_that_has_not_to),
        cmocka_unit_test(all_collectives),
        cmocka_unit_test(gpus_without_access),
        cmocka_unit_test(hidden_gpus),
        cmocka_unit_test(hidden_gpus_that_cannot_be_opened),
        cmocka_unit_test(among_threads),
    };

    setenv("FAKECUDA_JITTER", "50", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
