/* SPDX-License-Identifier: MIT
 *
 * Collectives of GPU memory among several hosts over rdma, on the doubles of NVIDIA's driver and of
 * libibverbs: once the links are open, adapters take what goes from host to host out of one GPU and
 * put it into the other, and nothing is copied by way of the host; where any rank's cannot, all
 * ranks go by way of the host. The doubles' memory cannot be touched by a processor, so a memcpy of
 * it ends the test.
 */
#include "bench/call.h"
#include "exam.h"
#include "gpu_double.h"
#include "gpu_passage.h"
#include "gpu_rank.h"
#include "ranks.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SLICE_BYTES = 4096, COUNT = 50000, MOST_RANKS = 6, DEADLINE_MS = 60000 };

static const enum ko_collective whats[] = {KO_ALL_REDUCE, KO_REDUCE, KO_BROADCAST, KO_ALL_GATHER,
                                           KO_REDUCE_SCATTER};
enum { NWHATS = sizeof whats / sizeof *whats };

/* ---- runs ------------------------------------------------------------------------------------ */

static struct {
    const char *hosts;          /* [r] is where rank r sits */
    int odd_one;                /* a rank whose adapter is not to have GPU memory; -1: none */
    bool is_direct, is_flushed; /* what is to be seen */
} wish;

static int settle(int rank, void *unused)
{
    const char name[] = {wish.hosts[rank], 0};

    (void)unused;
    if (rank == wish.odd_one && setenv("FAKEVERBS_BREAK", "ibv_reg_dmabuf_mr=95", 1))
        return 1;
    return setenv("KOLO_HOST", name, 1);
}

static void run(const char *hosts, const char *ngpus, int tolerated, ranks_body body)
{
    const struct ranks ranks = {.kind = RANKS_PROCESSES,
                                .n = (int)strlen(hosts),
                                .timeout_ms = DEADLINE_MS,
                                .tolerated = tolerated,
                                .settle = settle};

    wish.hosts = hosts;
    setenv("FAKECUDA_DEVICES", ngpus, 1);
    exam_set_variables("shm,rdma", "", SLICE_BYTES);
    assert_int_equal(ranks_run(&ranks, body, NULL), 0);
}

/* ---- results --------------------------------------------------------------------------------- */

static int take_lengths(kolo_group *group, const size_t *counts, size_t n)
{
    int failed = 0;

    for (int i = 0; i < NWHATS && !failed; i++)
        failed = exam_take_forms(group, whats[i], counts, n, &gpu_rank_memory);
    return failed;
}

static int take_all(kolo_group *group, void *unused)
{
    static const size_t counts[] = {0, 1, 5003, 20011, COUNT};
    int failed = gpu_rank_enter(group);

    (void)unused;
    failed = failed || take_lengths(group, counts, 5);
    failed = failed || exam_take_types(group, COUNT / 2 + 1, &gpu_rank_memory);
    return gpu_rank_leave(failed);
}

/* For other ways to the same texts. */
static int take_some(kolo_group *group, void *unused)
{
    static const size_t counts[] = {1, 5003, 20011};
    int failed = gpu_rank_enter(group);

    (void)unused;
    failed = failed || take_lengths(group, counts, 3);
    failed = failed || exam_take_types(group, 5003, &gpu_rank_memory);
    return gpu_rank_leave(failed);
}

static void results(void **state)
{
    (void)state;
    run("aabb", "1", 0, take_all);
    run("abbccc", "3", 0, take_all);
    setenv("FAKEVERBS_JITTER", "100", 1);
    run("baab", "3", 0, take_some);
    unsetenv("FAKEVERBS_JITTER");
    setenv("FAKEVERBS_DEVICES", "a0:roce,b0:roce", 1);
    setenv("KOLO_IB_HCA", "a0,b0", 1);
    run("aab", "1", 0, take_some);
    run("abc", "1", 0, take_some);
    unsetenv("KOLO_IB_HCA");
    setenv("FAKEVERBS_DEVICES", "w0:iwarp", 1);
    run("aabb", "1", 0, take_some);
    unsetenv("FAKEVERBS_DEVICES");
}

static int take_one_length(kolo_group *group, void *unused)
{
    static const size_t count = 5003;

    (void)unused;
    return gpu_rank_leave(gpu_rank_enter(group) || take_lengths(group, &count, 1));
}

/* More than a kernel takes parts. */
static void many_hosts(void **state)
{
    (void)state;
    run("abcdefghijklmnopq", "1", 0, take_one_length);
}

/* ---- factors --------------------------------------------------------------------------------- */

static void fill(void *memory, float value)
{
    static float values[COUNT];

    for (int i = 0; i < COUNT; i++)
        values[i] = value;
    if (gpu_rank.cuda->copy((uintptr_t)memory, (uintptr_t)values, sizeof values, gpu_rank.stream) ||
        gpu_rank.cuda->stream_sync(gpu_rank.stream))
        abort();
}

static int check(const void *memory, float value)
{
    static float values[COUNT];

    if (gpu_rank.cuda->copy((uintptr_t)values, (uintptr_t)memory, sizeof values, gpu_rank.stream) ||
        gpu_rank.cuda->stream_sync(gpu_rank.stream))
        abort();
    for (int i = 0; i < COUNT; i++)
        if (values[i] != value)
            return ranks_fail("element %d is %g, not %g", i, (double)values[i], (double)value);
    return 0;
}

static void *alloc(void)
{
    ko_cu_ptr memory;

    if (gpu_rank.cuda->alloc(&memory, COUNT * sizeof(float)))
        abort();
    return (void *)(uintptr_t)memory;
}

static void discard(void *memory)
{
    if (gpu_rank.cuda->free((uintptr_t)memory))
        abort();
}

/* Sums of rank + 1, times as much. */
static int scale(kolo_group *group, void *unused)
{
    const int n = kolo_group_size(group), own = kolo_group_rank(group) + 1;
    const int squares = n * (n + 1) * (2 * n + 1) / 6;
    int failed = gpu_rank_enter(group);
    void *memory = alloc();
    kolo_op op = KOLO_SUM;

    (void)unused;
    if (!failed && kolo_op_premul_sum(group, own, &op))
        failed = ranks_fail("no factor");
    for (int i = 0; i < 3 && !failed; i++) {
        fill(memory, (float)own);
        failed = kolo_all_reduce(group, memory, memory, COUNT, KOLO_FLOAT32, op)
                     ? ranks_fail("all_reduce")
                     : check(memory, (float)squares);
    }
    discard(memory);
    return gpu_rank_leave(failed);
}

static void factors(void **state)
{
    (void)state;
    run("aab", "1", 0, scale);
    run("abbccc", "3", 0, scale);
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* Of the second call of each kind; the first opens links that are not there yet. */
static int count_copies(kolo_group *group, void *unused)
{
    int failed = gpu_rank_enter(group);
    void *in = alloc(), *out = alloc();

    (void)unused;
    fill(in, 1);
    fill(out, 1);
    for (int i = 0; i < 2 * NWHATS && !failed; i++) {
        const struct gpu_bytes before = gpu_bytes_now();
        const int flushes = gpu_passage_flushes();
        uint64_t copied;

        if (call(group, whats[i / 2], in, out, COUNT * sizeof(float)))
            failed = ranks_fail("%s", ko_collective_name(whats[i / 2]));
        copied = gpu_bytes_since(before).with_host;
        if (!failed && i % 2 && !copied != wish.is_direct)
            failed = ranks_fail("%s: %zu bytes were copied by way of the host",
                                ko_collective_name(whats[i / 2]), (size_t)copied);
        if (!failed && i % 2 && (gpu_passage_flushes() > flushes) != wish.is_flushed)
            failed = ranks_fail("%s: %d flushes", ko_collective_name(whats[i / 2]),
                                gpu_passage_flushes() - flushes);
    }
    discard(in);
    discard(out);
    return gpu_rank_leave(failed);
}

static void copies(void **state)
{
    (void)state;
    wish.is_direct = true;
    run("aabb", "1", 0, count_copies);
    run("ababab", "3", 0, count_copies);
    run("ab", "1", 0, count_copies);
    wish.is_flushed = true;
    setenv("FAKECUDA_ORDERING", "0", 1);
    setenv("FAKECUDA_FLUSHES", "1", 1);
    run("aabb", "1", 0, count_copies);
    unsetenv("FAKECUDA_FLUSHES");
    unsetenv("FAKECUDA_ORDERING");
    wish.is_flushed = false;
}

/* What one rank cannot, nobody does. */
static void copies_where_one_cannot(void **state)
{
    (void)state;
    wish.is_direct = false;
    wish.odd_one = 3;
    run("aabb", "1", 0, count_copies);
    run("aabb", "1", 0, take_some);
    wish.odd_one = -1;
    setenv("KOLO_GPUDIRECT", "0", 1);
    run("aabb", "1", 0, count_copies);
    run("ab", "1", 0, count_copies);
    unsetenv("KOLO_GPUDIRECT");
}

/* Small allocations are parts of blocks, whose pages they share: the driver gives those pages, or
 * none that is another allocation's, too. */
static void parts_of_blocks(void **state)
{
    (void)state;
    setenv("FAKECUDA_BLOCKS", "1", 1);
    wish.is_direct = true;
    run("aabb", "1", 0, count_copies);
    run("ababab", "3", 0, count_copies);
    run("aab", "1", 0, take_some);
    setenv("FAKECUDA_DMA_BUF", "2", 1);
    wish.is_direct = false;
    run("aabb", "1", 0, count_copies);
    run("aab", "1", 0, take_some);
    setenv("FAKECUDA_DMA_BUF", "1", 1);
    unsetenv("FAKECUDA_BLOCKS");
}

/* ---- ends ------------------------------------------------------------------------------------ */

/* Rank 1 dies between two calls; the others hear of it, and by name. */
static int lose_one(kolo_group *group, void *unused)
{
    int failed = gpu_rank_enter(group), err = KOLO_OK;
    void *memory = alloc();

    (void)unused;
    fill(memory, 1);
    for (int i = 0; i < 200 && !failed && !err; i++) {
        if (i == 5 && kolo_group_rank(group) == 1)
            raise(SIGKILL);
        err = kolo_all_reduce(group, memory, memory, COUNT, KOLO_FLOAT32, KOLO_MAX);
    }
    if (!failed && err != KOLO_E_PEER_LOST)
        failed = ranks_fail("%s, not a lost peer", kolo_status_name(err));
    if (!failed && !strstr(kolo_last_error(), "rank 1"))
        failed = ranks_fail("it does not name rank 1");
    return failed;
}

static void lost_rank(void **state)
{
    (void)state;
    run("aabb", "1", 1, lose_one);
    run("abab", "3", 1, lose_one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies),
        cmocka_unit_test(results),
        cmocka_unit_test(many_hosts),
        cmocka_unit_test(factors),
        cmocka_unit_test(copies_where_one_cannot),
        cmocka_unit_test(parts_of_blocks),
        cmocka_unit_test(lost_rank),
    };

    wish.odd_one = -1;
    setenv("FAKECUDA_DMA_BUF", "1", 1);
    setenv("FAKECUDA_JITTER", "50", 1);
    setenv("KOLO_CUDA_PIECE_BYTES", "64K", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
