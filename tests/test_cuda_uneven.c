/* SPDX-License-Identifier: MIT
 *
 * Calls whose blocks differ, and sums of what has been multiplied by factors, among ranks that
 * share one GPU, or several, on the double of NVIDIA's driver: not a byte moves twice, and none by
 * way of the host; results have the bits of the host's; graphs; ranks that have nothing, or
 * disagree.
 */
#include "exam.h"
#include "gpu_double.h"
#include "gpu_rank.h"
#include "kernel_args.h"
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

#include <cmocka.h>

/* LONG elements are too many for pushes, which test_cuda_push counts. */
enum { COUNT = 1501, LONG = KO_PUSH_BYTES / 4 + 1, MOST_RANKS = 8, ROOT = 1 };

/* Calls in the order of these tests. */
enum call { GATHER_ALL, REDUCE_SCATTER, GATHER, SCATTER, EXCHANGE, PREMUL, NCALLS };

/* What ranks that are processes leave here. */
static struct counts {
    atomic_uint_fast64_t read, written;
} * counts;

static void *at(ko_cu_ptr memory)
{
    return (void *)(uintptr_t)memory;
}

static void run_on(const char *ngpus, enum ranks_kind kind, int n, ranks_body body)
{
    setenv("FAKECUDA_DEVICES", ngpus, 1);
    exam_set_variables("shm", "", 4096);
    assert_int_equal(ranks_run(&(struct ranks){.kind = kind, .n = n}, body, NULL), 0);
}

/* ---- the calls ------------------------------------------------------------------------------- */

/* What rank `from` gives to rank `to`: sometimes nothing. */
static size_t length(enum call call, int from, int to)
{
    switch (call) {
    case GATHER_ALL:
    case GATHER:
        return from % 3 == 2 ? 0 : COUNT + 100 * (size_t)from;
    case REDUCE_SCATTER:
    case SCATTER:
        return to % 3 == 2 ? 0 : COUNT + 100 * (size_t)to;
    case EXCHANGE:
        return (from + to) % 4 == 3 ? 0 : COUNT + 10 * (size_t)from + 70 * (size_t)to;
    default:
        return COUNT;
    }
}

/* Lists of the rank's blocks, the last of which comes first. */
struct lists {
    size_t numbers[4][MOST_RANKS];
    kolo_blocks in, out;
};

static void list(enum call call, int n, int rank, struct lists *lists)
{
    size_t ins = 3, outs = 5;

    for (int i = n - 1; i >= 0; i--) {
        lists->numbers[0][i] = length(call, rank, i);
        lists->numbers[1][i] = ins;
        lists->numbers[2][i] = length(call, i, rank);
        lists->numbers[3][i] = outs;
        ins += lists->numbers[0][i] + 1;
        outs += lists->numbers[2][i] + 1;
    }
    lists->in = (kolo_blocks){lists->numbers[0], lists->numbers[1]};
    lists->out = (kolo_blocks){lists->numbers[2], lists->numbers[3]};
}

/* count: of PREMUL. */
static int make(kolo_group *group, enum call call, void *in, void *out, kolo_op premul,
                size_t count)
{
    const int n = kolo_group_size(group), rank = kolo_group_rank(group), root = ROOT % n;
    const size_t given = length(call, rank, root), gotten = length(call, root, rank);
    struct lists l;

    list(call, n, rank, &l);
    switch (call) {
    case GATHER_ALL:
        return kolo_all_gather_v(group, in, out, &l.out, KOLO_FLOAT32);
    case REDUCE_SCATTER:
        return kolo_reduce_scatter_v(group, in, &l.in, out, KOLO_FLOAT32, KOLO_SUM);
    case GATHER:
        return kolo_gather_v(group, in, given, out, &l.out, KOLO_FLOAT32, root);
    case SCATTER:
        return kolo_scatter_v(group, in, &l.in, out, gotten, KOLO_FLOAT32, root);
    case EXCHANGE:
        return kolo_all_to_all_v(group, in, &l.in, out, &l.out, KOLO_FLOAT32);
    default:
        return kolo_all_reduce(group, in, out, count, KOLO_FLOAT32, premul);
    }
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* Of all ranks together: on one GPU what several get is read once. */
static uint64_t floor_of(enum call call, int n, bool is_one, bool is_write)
{
    const int root = ROOT % n;
    uint64_t passed = 0, given = 0; /* from each to each; of each input once */

    for (int from = 0; from < n; from++)
        for (int to = 0; to < n; to++) {
            const bool is_passed =
                (call != GATHER || to == root) && (call != SCATTER || from == root);

            passed += is_passed ? length(call, from, to) : 0;
            given += to == 0 ? length(call, from, to) : 0;
        }
    if (call == PREMUL)
        passed = (uint64_t)n * LONG;
    else if (call == REDUCE_SCATTER)
        passed = is_write ? passed / (uint64_t)n : passed;
    else if (call == GATHER_ALL && is_one && !is_write)
        passed = given;
    return sizeof(float) * passed;
}

/* A blocking call has come to its end everywhere before the barrier does. */
static int count_bytes(kolo_group *group, void *unused)
{
    const size_t nbytes = (LONG + (size_t)kolo_group_size(group) * (COUNT + 1000)) * sizeof(float);
    int failed = gpu_rank_enter(group);
    ko_cu_ptr in = gpu_rank_fresh(nbytes), out = gpu_rank_fresh(nbytes);
    kolo_op premul;

    (void)unused;
    if (kolo_op_premul_sum(group, 0.5, &premul))
        return ranks_fail("the op");
    for (int call = 0; call < NCALLS && !failed; call++) {
        uint64_t before[2], after[2];

        if (kolo_barrier(group))
            return ranks_fail("barrier");
        gpu_bytes_of_all(&before[0], &before[1]);
        if (make(group, (enum call)call, at(in), at(out), premul, LONG) || kolo_barrier(group))
            failed = ranks_fail("call %d", call);
        gpu_bytes_of_all(&after[0], &after[1]);
        atomic_fetch_add(&counts[call].read, after[0] - before[0]);
        atomic_fetch_add(&counts[call].written, after[1] - before[1]);
    }
    return gpu_rank_leave(failed);
}

static void no_byte_moves_twice(void **state)
{
    (void)state;
    SKIP_PROCESSES_UNDER_TSAN();
    for (int i = 0; i < 12; i++) {
        const bool is_one = i % 2 == 0;
        const int n = 2 + i / 2;

        memset(counts, 0, NCALLS * sizeof *counts);
        run_on(is_one ? "1" : "8", RANKS_PROCESSES, n, count_bytes);
        for (int call = 0; call < NCALLS; call++) {
            assert_int_equal(counts[call].read, floor_of((enum call)call, n, is_one, false));
            assert_int_equal(counts[call].written, floor_of((enum call)call, n, is_one, true));
        }
    }
}

/* ---- results --------------------------------------------------------------------------------- */

static int take_all(kolo_group *group, void *unused)
{
    static const enum ko_collective whats[] = {KO_ALL_GATHER, KO_REDUCE_SCATTER, KO_GATHER,
                                               KO_SCATTER, KO_ALL_TO_ALL};
    static const kolo_dtype dtypes[] = {KOLO_UINT8, KOLO_BFLOAT16, KOLO_FLOAT32, KOLO_INT64};
    static const size_t sizes[] = {0, 1, 33, 5001};
    int failed = gpu_rank_enter(group);

    (void)unused;
    for (unsigned i = 0; i < 5 * 32 && !failed; i++) {
        const struct exam exam = {.what = whats[i / 32],
                                  .dtype = dtypes[i % 4],
                                  .op = KOLO_SUM,
                                  .count = sizes[i / 8 % 4],
                                  .root = (int)(i / 3) % kolo_group_size(group),
                                  .is_in_place = i & 2,
                                  .is_async = i & 4,
                                  .is_uneven = true,
                                  .shift = i % 3 * 8,
                                  .memory = &gpu_rank_memory};

        failed = exam_take(group, &exam);
    }
    return gpu_rank_leave(failed);
}

static void blocks_of_all_lengths(void **state)
{
    (void)state;
    SKIP_PROCESSES_UNDER_TSAN();
    for (int n = 1; n <= 5; n += 2) {
        run_on("1", RANKS_PROCESSES, n, take_all);
        run_on("3", RANKS_PROCESSES, n, take_all);
    }
    setenv("KOLO_CUDA_IPC", "off", 1); /* by way of the host */
    run_on("3", RANKS_PROCESSES, 3, take_all);
    unsetenv("KOLO_CUDA_IPC");
}

/* ---- factors --------------------------------------------------------------------------------- */

/* Of one call: the ranks' inputs, and what comes of them. */
struct sum {
    kolo_dtype dtype;
    size_t width;
    kolo_op op;
    struct ko_reduction reduction;
    unsigned char ins[MOST_RANKS][COUNT * 8], want[COUNT * 8];
};

static double factor_of(int rank)
{
    return 0.7 * rank + 1.5;
}

/* Any bits, but no NaNs. */
static void fill(struct sum *sum, int n)
{
    unsigned char scaled[MOST_RANKS][COUNT * 8];
    const void *parts[MOST_RANKS];
    unsigned seed = sum->dtype + 1U;

    for (int r = 0; r < n; r++) {
        for (size_t i = 0; i < COUNT * sum->width; i++)
            sum->ins[r][i] = (unsigned char)(rand_r(&seed) >> 8) & 0x3b;
        sum->reduction.scale(scaled[r], sum->ins[r], COUNT, factor_of(r));
        parts[r] = scaled[r];
    }
    sum->reduction.many(sum->want, parts, n, COUNT, n);
}

static int compare(const struct sum *sum, ko_cu_ptr memory, size_t first, size_t count)
{
    unsigned char have[COUNT * 8];

    if (gpu_rank.cuda->copy((uintptr_t)have, memory, count * sum->width, gpu_rank.stream) ||
        gpu_rank.cuda->stream_sync(gpu_rank.stream))
        abort();
    return memcmp(have, sum->want + first * sum->width, count * sum->width) != 0
               ? ranks_fail("%s: other bits", kolo_dtype_name(sum->dtype))
               : 0;
}

static int sum_one(kolo_group *group, struct sum *sum, ko_cu_ptr in, ko_cu_ptr out)
{
    const int n = kolo_group_size(group), rank = kolo_group_rank(group);
    const size_t share = COUNT / (size_t)n;
    int failed;

    fill(sum, n);
    if (gpu_rank.cuda->copy(in, (uintptr_t)sum->ins[rank], COUNT * sum->width, gpu_rank.stream))
        abort();
    if (kolo_all_reduce(group, at(in), at(out), COUNT, sum->dtype, sum->op))
        return ranks_fail("all_reduce");
    failed = compare(sum, out, 0, COUNT);
    if (!failed && kolo_reduce_scatter(group, at(in), at(out), share, sum->dtype, sum->op))
        failed = ranks_fail("reduce_scatter");
    if (!failed)
        failed = compare(sum, out, share * (size_t)rank, share);
    if (!failed && kolo_reduce(group, at(in), at(in), COUNT, sum->dtype, sum->op, 0))
        failed = ranks_fail("reduce");
    return failed || rank ? failed : compare(sum, in, 0, COUNT);
}

static int sum_all(kolo_group *group, void *unused)
{
    struct sum sum = {0};
    int failed = gpu_rank_enter(group);
    ko_cu_ptr in = gpu_rank_fresh(COUNT * 8), out = gpu_rank_fresh(COUNT * 8);

    (void)unused;
    if (kolo_op_premul_sum(group, factor_of(kolo_group_rank(group)), &sum.op))
        return ranks_fail("the op");
    for (int dtype = 0; dtype < KOLO_NDTYPES && !failed; dtype++) {
        sum.dtype = (kolo_dtype)dtype;
        sum.width = kolo_dtype_size(sum.dtype);
        if (ko_reduction_find(sum.dtype, KOLO_SUM, &sum.reduction))
            abort();
        failed = sum_one(group, &sum, in, out);
    }
    return gpu_rank_leave(failed);
}

static void sums_of_products(void **state)
{
    (void)state;
    SKIP_PROCESSES_UNDER_TSAN();
    for (int n = 1; n <= MOST_RANKS; n += n < 3 ? 1 : 5) {
        run_on("1", RANKS_PROCESSES, n, sum_all);
        run_on("8", RANKS_PROCESSES, n, sum_all);
    }
}

/* ---- graphs ---------------------------------------------------------------------------------- */

/* One of each; rank 2 gives nothing to some, and gets nothing from others. */
static int capture(kolo_group *group, ko_cu_ptr in, ko_cu_ptr out, size_t apart, kolo_op premul,
                   ko_cu_graph_exec *exec)
{
    int failed = gpu_rank_capture();

    for (int call = 0; call < NCALLS && !failed; call++)
        if (make(group, (enum call)call, at(in), at(out + apart * (unsigned)call), premul, COUNT))
            failed = ranks_fail("call %d", call);
    return failed | gpu_rank_captured(exec);
}

/* A launch leaves what the calls do. */
static int launch(kolo_group *group, void *unused)
{
    const size_t apart = (size_t)kolo_group_size(group) * (COUNT + 1000) * sizeof(float);
    float *content = malloc(apart), *have = malloc(NCALLS * apart), *want = malloc(NCALLS * apart);
    int failed = gpu_rank_enter(group);
    ko_cu_ptr in = gpu_rank_fresh(apart), out = gpu_rank_fresh(NCALLS * apart),
              other = gpu_rank_fresh(NCALLS * apart);
    ko_cu_graph_exec exec = NULL;
    kolo_op premul;

    (void)unused;
    for (size_t i = 0; i < apart / sizeof(float); i++)
        content[i] = (float)(i % 1013) + (float)kolo_group_rank(group);
    memset(have, 0, NCALLS * apart);
    if (gpu_rank.cuda->copy(in, (uintptr_t)content, apart, gpu_rank.stream) ||
        gpu_rank.cuda->copy(out, (uintptr_t)have, NCALLS * apart, gpu_rank.stream) ||
        gpu_rank.cuda->copy(other, (uintptr_t)have, NCALLS * apart, gpu_rank.stream))
        abort();
    if (kolo_op_premul_sum(group, 0.25, &premul))
        failed = ranks_fail("the op");
    failed |= failed || capture(group, in, out, apart, premul, &exec);
    for (int i = 0; i < 3 && !failed; i++)
        if (gpu_rank.cuda->graph_launch(exec, gpu_rank.stream))
            failed = ranks_fail("a launch");
    for (int call = 0; call < NCALLS && !failed; call++)
        if (make(group, (enum call)call, at(in), at(other + apart * (unsigned)call), premul, COUNT))
            failed = ranks_fail("call %d", call);
    if (gpu_rank.cuda->copy((uintptr_t)have, out, NCALLS * apart, gpu_rank.stream) ||
        gpu_rank.cuda->copy((uintptr_t)want, other, NCALLS * apart, gpu_rank.stream) ||
        gpu_rank.cuda->stream_sync(gpu_rank.stream))
        abort();
    if (!failed && memcmp(have, want, NCALLS * apart) != 0)
        failed = ranks_fail("a launch does something else");
    (void)gpu_rank.cuda->graph_exec_destroy(exec);
    free(content);
    free(have);
    free(want);
    return gpu_rank_leave(failed || kolo_barrier(group));
}

static void graphs(void **state)
{
    (void)state;
    SKIP_PROCESSES_UNDER_TSAN();
    for (int n = 2; n <= 4; n++) {
        run_on("1", RANKS_PROCESSES, n, launch);
        run_on("4", RANKS_PROCESSES, n, launch);
    }
}

/* ---- ranks that have nothing ----------------------------------------------------------------- */

/* Rank 1 has no element of the call, which gives rank 0 its own. */
static int begin(kolo_group *group, enum call call, ko_cu_ptr in, ko_cu_ptr out, kolo_work **work)
{
    const size_t given = kolo_group_rank(group) ? 0 : COUNT, lengths[] = {given, 0};
    const kolo_blocks blocks = {lengths, NULL};

    if (call == GATHER)
        return kolo_gather_v_async(group, at(in), given, at(out), &blocks, KOLO_INT32, 0, work);
    if (call == SCATTER)
        return kolo_scatter_v_async(group, at(in), &blocks, at(out), given, KOLO_INT32, 0, work);
    return kolo_all_to_all_v_async(group, at(in), &blocks, at(out), &blocks, KOLO_INT32, work);
}

static int finish(kolo_work *work)
{
    int failed = ranks_expect(kolo_work_wait(work, -1), KOLO_OK, "");

    kolo_work_free(work);
    return failed;
}

static void fill_with(ko_cu_ptr memory, unsigned char byte)
{
    if (gpu_rank.cuda->fill(memory, byte, COUNT * sizeof(int), gpu_rank.stream))
        abort();
}

static int expect_bytes(ko_cu_ptr memory, unsigned char byte, const char *what)
{
    unsigned char have[COUNT * sizeof(int)];

    if (gpu_rank.cuda->copy((uintptr_t)have, memory, sizeof have, gpu_rank.stream) ||
        gpu_rank.cuda->stream_sync(gpu_rank.stream))
        return ranks_fail("%s: the stream has failed", what);
    for (size_t i = 0; i < sizeof have; i++)
        if (have[i] != byte)
            return ranks_fail("%s: byte %zu is %d, not %d", what, i, have[i], byte);
    return 0;
}

/* Between the two rank 1 has made a call, and put more into its stream, and rank 0 not yet. */
static int come_first(kolo_group *group)
{
    return kolo_send(group, "", 1, KOLO_UINT8, 0, 1) ? ranks_fail("a word to rank 0") : 0;
}

static int come_last(kolo_group *group)
{
    char word;

    return kolo_recv(group, &word, 1, KOLO_UINT8, 1, 1) ? ranks_fail("a word of rank 1's") : 0;
}

/* Behind the call rank 1 receives what rank 0 has of it: its stream waits for that. */
static int receive_behind(kolo_group *group, enum call call, ko_cu_ptr in, ko_cu_ptr out)
{
    const int rank = kolo_group_rank(group);
    kolo_work *called, *message;
    int failed;

    fill_with(in, (unsigned char)(call + 1));
    failed = rank ? 0 : come_last(group);
    if (failed || begin(group, call, in, out, &called))
        return ranks_fail("call %d", call);
    if (rank ? kolo_irecv(group, at(out), COUNT, KOLO_INT32, 0, 0, &message)
             : kolo_isend(group, at(out), COUNT, KOLO_INT32, 1, 0, &message))
        return ranks_fail("the message behind it");
    failed = (rank && come_first(group)) | finish(called) | finish(message);
    return failed || expect_bytes(out, (unsigned char)(call + 1), "behind a call of nothing");
}

/* Behind the call rank 1 captures its stream for a graph, which the call has no part in. */
static int capture_behind(kolo_group *group, enum call call, ko_cu_ptr in, ko_cu_ptr out)
{
    ko_cu_graph_exec exec = NULL;
    kolo_work *called;
    int failed;

    fill_with(in, (unsigned char)(call + 1));
    if (kolo_group_rank(group) == 0) {
        if (come_last(group) || begin(group, call, in, out, &called))
            return ranks_fail("call %d", call);
        return finish(called) || expect_bytes(out, (unsigned char)(call + 1), "a call");
    }
    if (begin(group, call, in, out, &called) || gpu_rank_capture())
        return ranks_fail("call %d", call);
    fill_with(out, 99);
    failed = come_first(group) | finish(called) | gpu_rank_captured(&exec);
    if (failed || gpu_rank.cuda->graph_launch(exec, gpu_rank.stream))
        return ranks_fail("the graph");
    failed = expect_bytes(out, 99, "a graph beside a call of nothing");
    (void)gpu_rank.cuda->graph_exec_destroy(exec);
    return failed;
}

static int have_nothing(kolo_group *group, void *unused)
{
    int failed = gpu_rank_enter(group);
    ko_cu_ptr in = gpu_rank_fresh(COUNT * sizeof(int)), out = gpu_rank_fresh(COUNT * sizeof(int));

    (void)unused;
    for (enum call call = GATHER; call <= EXCHANGE && !failed; call++)
        failed = receive_behind(group, call, in, out) || capture_behind(group, call, in, out);
    return gpu_rank_leave(failed);
}

static void ranks_without_elements(void **state)
{
    (void)state;
    run_on("1", RANKS_PROCESSES, 2, have_nothing);
    run_on("2", RANKS_PROCESSES, 2, have_nothing);
}

/* ---- what differs ---------------------------------------------------------------------------- */

static int disagree(kolo_group *group, void *unused)
{
    const bool is_wrong = kolo_group_rank(group) == 1;
    size_t ins[] = {4, 5, 6}, outs[] = {4, 5, 6};
    int failed = gpu_rank_enter(group), rank = kolo_group_rank(group);
    ko_cu_ptr memory = gpu_rank_fresh(400), other = gpu_rank_fresh(400);

    (void)unused;
    for (int i = 0; i < 3; i++)
        outs[i] = ins[rank];
    outs[2] += is_wrong;
    failed |= ranks_expect(kolo_all_to_all_v(group, at(memory), &(kolo_blocks){ins, NULL},
                                             at(other), &(kolo_blocks){outs, NULL}, KOLO_INT32),
                           KOLO_E_MISMATCH,
                           "rank 2 sends 20 bytes to rank 1, which expects 24, in all_to_all_v of "
                           "int32: the counts that the two give for this block differ");
    return gpu_rank_leave(failed);
}

/* Some make the call with blocks, some without. */
static int call_otherwise(kolo_group *group, void *unused)
{
    const size_t lengths[] = {1, 1, 1};
    int failed = gpu_rank_enter(group), err;
    ko_cu_ptr memory = gpu_rank_fresh(400), other = gpu_rank_fresh(400);

    (void)unused;
    if (kolo_group_rank(group))
        err = kolo_all_gather_v(group, at(memory), at(other), &(kolo_blocks){lengths, NULL},
                                KOLO_INT32);
    else
        err = kolo_all_gather(group, at(memory), at(other), 1, KOLO_INT32);
    failed |= ranks_expect(err, KOLO_E_MISMATCH, "calls all_gather_v #");
    return gpu_rank_leave(failed);
}

static void mismatches(void **state)
{
    (void)state;
    run_on("1", RANKS_PROCESSES, 3, disagree);
    run_on("3", RANKS_PROCESSES, 3, disagree);
    run_on("1", RANKS_PROCESSES, 3, call_otherwise);
}

/* The last of all: from here on the driver has threads in this process, which is not to fork. */
static void among_threads(void **state)
{
    (void)state;
    run_on("1", RANKS_THREADS, 3, take_all);
    run_on("3", RANKS_THREADS, 4, take_all);
    run_on("1", RANKS_THREADS, 2, sum_all);
    run_on("3", RANKS_THREADS, 3, sum_all);
    run_on("1", RANKS_THREADS, 3, launch);
    run_on("1", RANKS_THREADS, 2, have_nothing);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_byte_moves_twice),    cmocka_unit_test(blocks_of_all_lengths),
        cmocka_unit_test(sums_of_products),       cmocka_unit_test(graphs),
        cmocka_unit_test(ranks_without_elements), cmocka_unit_test(mismatches),
        cmocka_unit_test(among_threads),
    };

    setenv("FAKECUDA_JITTER", "50", 1);
    counts = mmap(NULL, NCALLS * sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                  -1, 0);
    if (counts == MAP_FAILED)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
