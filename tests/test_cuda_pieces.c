/* SPDX-License-Identifier: MIT
 *
 * Collectives of GPU memory in pieces, as PyTorch's expandable segments are, on the double of
 * NVIDIA's driver: memory that grows, of which some goes and other comes; calls whose buffers begin
 * in one piece and end in several; what cannot be handed over, as a pool's.
 */
#include "clock.h"
#include "coll_gpu_hand.h"
#include "exam.h"
#include "gpu_double.h"
#include "gpu_rank.h"
#include "gpu_share_parts.h"
#include "group.h"
#include "ranks.h"
#include "sanitized.h"

#include <malloc.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { PIECE = 8192, PIECES = 8, SLICE_BYTES = 4096 };

/* The double counts what all ranks of a process do. */
static bool is_counted;

static void run(enum ranks_kind kind, int n, ranks_body body)
{
    is_counted = kind == RANKS_PROCESSES;
    exam_set_variables("shm", "", SLICE_BYTES);
    for (int i = 0; i < 2; i++) {
        setenv("FAKECUDA_DEVICES", i ? "3" : "1", 1);
        assert_int_equal(ranks_run(&(struct ranks){.kind = kind, .n = n}, body, NULL), 0);
    }
}

static void run_all(ranks_body body)
{
    static const int sizes[] = {3, 1, 2, PIECES};

    for (int i = 0; i < (IS_SANITIZED ? 1 : 4); i++)
        run(RANKS_PROCESSES, sizes[i], body);
}

static void *at(ko_cu_ptr memory)
{
    return (void *)(uintptr_t)memory;
}

static ko_cu_ptr reserve(size_t nbytes)
{
    ko_cu_ptr base;

    if (gpu_rank.cuda->addresses_reserve(&base, nbytes, 0, 0, 0))
        abort();
    return base;
}

/* The pieces from the first to the last one. */
static void map(ko_cu_ptr base, int first, int end)
{
    gpu_rank_map(base + (ko_cu_ptr)first * PIECE, PIECE, end - first, KO_CU_HANDLE_DESCRIPTOR);
}

static void unmap(ko_cu_ptr base, int first, int end)
{
    gpu_rank_unmap(base + (ko_cu_ptr)first * PIECE, PIECE, end - first);
}

/* Since there were so many, as many as that and no other bytes have gone between GPUs and host. */
static int check_host(uint64_t before, uint64_t nbytes)
{
    const uint64_t more = gpu_bytes_now().with_host - before;

    return is_counted && more != nbytes
               ? ranks_fail("%llu bytes went by way of the host", (unsigned long long)more)
               : 0;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static int value_of(int rank, size_t i)
{
    return rank * 1000 + (int)i;
}

static void fill(ko_cu_ptr from, size_t count, int rank)
{
    int *values = malloc(count * sizeof *values);

    for (size_t i = 0; i < count; i++)
        values[i] = value_of(rank, i);
    if (gpu_rank.cuda->copy(from, (uintptr_t)values, count * sizeof *values, gpu_rank.stream) ||
        gpu_rank.cuda->stream_sync(gpu_rank.stream))
        abort();
    free(values);
}

/* Whether the elements are those of a rank from its element `first` on, times n, plus more. */
static int check(ko_cu_ptr from, size_t count, int rank, size_t first, int n, int more)
{
    int *values = malloc(count * sizeof *values), failed = 0;

    if (gpu_rank.cuda->copy((uintptr_t)values, from, count * sizeof *values, gpu_rank.stream) ||
        gpu_rank.cuda->stream_sync(gpu_rank.stream))
        abort();
    for (size_t i = 0; i < count && !failed; i++)
        if (values[i] != n * value_of(rank, first + i) + more)
            failed = ranks_fail("element %zu of %zu is %d", i, count, values[i]);
    free(values);
    return failed;
}

static int sum_of_ranks(int n)
{
    return 1000 * n * (n - 1) / 2;
}

/* Over all of it that lies from a place on. */
static int reduce(kolo_group *group, ko_cu_ptr from, size_t nbytes)
{
    const int n = kolo_group_size(group);
    const size_t count = nbytes / sizeof(int);

    fill(from, count, kolo_group_rank(group));
    if (kolo_all_reduce(group, at(from), at(from), count, KOLO_INT32, KOLO_SUM))
        return ranks_fail("all_reduce");
    return check(from, count, 0, 0, n, sum_of_ranks(n));
}

/* The same, and nothing of it goes by way of the host. */
static int reduce_directly(kolo_group *group, ko_cu_ptr from, size_t nbytes)
{
    const uint64_t before = gpu_bytes_now().with_host;

    return reduce(group, from, nbytes) || check_host(before, 2 * nbytes); /* of fill and check */
}

/* ---- memory that grows ----------------------------------------------------------------------- */

static int grow(kolo_group *group, void *unused)
{
    enum { MOST = 5 };
    int failed = gpu_rank_enter(group);

    (void)unused;
    for (int round = 0; round < 2 && !failed; round++) {
        const ko_cu_ptr base = reserve(MOST * PIECE);

        for (int i = 0; i < MOST && !failed; i++) { /* all, what came last, some in the middle */
            map(base, i, i + 1);
            failed = reduce(group, base, (size_t)(i + 1) * PIECE) ||
                     reduce(group, base + (ko_cu_ptr)i * PIECE, PIECE) ||
                     reduce(group, base + 400, 1000);
        }
        unmap(base, 0, MOST);
        if (gpu_rank.cuda->addresses_free(base, MOST * PIECE))
            return ranks_fail("it cannot be given back");
    }
    return gpu_rank_leave(failed);
}

static void memory_that_grows(void **state)
{
    static const char *const ways[] = {"all", "vmm", "legacy", "off"};

    (void)state;
    SKIP_PROCESSES_UNDER_TSAN();
    for (int i = 0; i < 4; i++) {
        setenv("KOLO_CUDA_IPC", ways[i], 1);
        run_all(grow);
    }
    unsetenv("KOLO_CUDA_IPC");
    setenv("FAKECUDA_BREAK", "cuMemImportFromShareableHandle=1", 1);
    run(RANKS_PROCESSES, 3, grow);
    unsetenv("FAKECUDA_BREAK");
}

/* ---- memory that changes --------------------------------------------------------------------- */

/* The first piece stays, those behind it go, and others come: what is left is reached as before,
 * and nobody goes on to hold what has gone. */
static int change(kolo_group *group, void *unused)
{
    enum { ROUNDS = 20 };
    int failed = gpu_rank_enter(group), ndescriptors = 0;
    const ko_cu_ptr base = reserve(3 * PIECE);

    (void)unused;
    map(base, 0, 1);
    failed = failed || reduce_directly(group, base, PIECE);
    for (int i = 0; i < ROUNDS && !failed; i++) {
        map(base, 1, 3);
        failed = reduce_directly(group, base, 3 * PIECE) ||
                 reduce_directly(group, base + 100, 2 * PIECE);
        unmap(base, 1, 3);
        if (i % 3)
            failed = failed || reduce_directly(group, base + 4, 1000);
        if (i == 3)
            ndescriptors = ranks_count_entries("/proc/self/fd");
    }
    failed = failed || gpu_rank_check_descriptors(ndescriptors);
    return gpu_rank_leave(failed);
}

/* Nothing stays where it was. */
static int move(kolo_group *group, void *unused)
{
    enum { ROUNDS = 20 };
    int failed = gpu_rank_enter(group), ndescriptors = 0;

    (void)unused;
    for (int i = 0; i < ROUNDS && !failed; i++) {
        const ko_cu_ptr base = reserve(2 * PIECE);

        map(base, 0, 2);
        failed = reduce_directly(group, base, 2 * PIECE) || reduce_directly(group, base, 1000) ||
                 reduce_directly(group, base + PIECE, PIECE);
        unmap(base, 0, 2);
        if (i == 3)
            ndescriptors = ranks_count_entries("/proc/self/fd");
    }
    failed = failed || gpu_rank_check_descriptors(ndescriptors);
    return gpu_rank_leave(failed);
}

static void memory_that_changes(void **state)
{
    (void)state;
    run_all(change);
    run_all(move);
}

/* ---- buffers of one call --------------------------------------------------------------------- */

/* A block of each rank, in place, in memory that nobody has heard of: what the first rank reads
 * begins where what it writes does, and ends in an earlier piece; then the other way round. */
static int in_place(kolo_group *group, void *unused)
{
    const int n = kolo_group_size(group), rank = kolo_group_rank(group);
    const size_t count = PIECE / sizeof(int);
    int failed = gpu_rank_enter(group);
    const ko_cu_ptr gathered = reserve(PIECES * PIECE), whole = reserve(PIECES * PIECE);
    const ko_cu_ptr mine = gathered + (ko_cu_ptr)rank * PIECE;
    uint64_t before;

    (void)unused;
    map(gathered, 0, PIECES);
    map(whole, 0, PIECES);
    fill(mine, count, rank);
    fill(whole, count * (size_t)n, rank);
    before = gpu_bytes_now().with_host;
    if (!failed && kolo_all_gather(group, at(mine), at(gathered), count, KOLO_INT32))
        failed = ranks_fail("all_gather");
    if (!failed && kolo_reduce_scatter(group, at(whole), at(whole + (ko_cu_ptr)rank * PIECE), count,
                                       KOLO_INT32, KOLO_SUM))
        failed = ranks_fail("reduce_scatter");
    failed = failed || check_host(before, 0);
    for (int r = 0; r < n && !failed; r++)
        failed = check(gathered + (ko_cu_ptr)r * PIECE, count, r, 0, 1, 0);
    if (!failed)
        failed = check(whole + (ko_cu_ptr)rank * PIECE, count, 0, (size_t)rank * count, n,
                       sum_of_ranks(n));
    return gpu_rank_leave(failed);
}

/* In and out are parts of one piece and several, which do not overlap. */
static int side_by_side(kolo_group *group, void *unused)
{
    const int n = kolo_group_size(group), rank = kolo_group_rank(group);
    const size_t count = PIECE / 4 / sizeof(int);
    int failed = gpu_rank_enter(group);
    const ko_cu_ptr base = reserve(PIECES * PIECE), out = base + PIECE / 2;

    (void)unused;
    map(base, 0, PIECES);
    fill(base, count, rank);
    if (!failed && kolo_all_gather(group, at(base), at(out), count, KOLO_INT32))
        failed = ranks_fail("all_gather");
    for (int r = 0; r < n && !failed; r++)
        failed = check(out + (ko_cu_ptr)r * PIECE / 4, count, r, 0, 1, 0);
    return gpu_rank_leave(failed);
}

static void buffers_that_begin_in_one_piece(void **state)
{
    (void)state;
    run_all(in_place);
    run_all(side_by_side);
}

/* ---- what cannot be handed over -------------------------------------------------------------- */

static int count_known(const struct known *known)
{
    int n = 0;

    for (; known; known = known->next)
        n++;
    return n;
}

/* One piece more than can be handed over; then fewer, one of which its owner keeps. No call leaves
 * more behind than the same one before. */
static int have_odd_pieces(kolo_group *group, void *unused)
{
    enum { TOO_MANY = 257, FEW = 5 };
    int failed = gpu_rank_enter(group), nknown = 0;
    const ko_cu_ptr many = reserve(TOO_MANY * PIECE), mixed = reserve(FEW * PIECE);

    (void)unused;
    map(many, 0, TOO_MANY);
    map(mixed, 0, 2);
    gpu_rank_map(mixed + 2 * PIECE, PIECE, 1, 0);
    map(mixed, 3, FEW);
    for (int i = 0; i < 2 && !failed; i++) {
        failed = reduce_directly(group, many, (size_t)TOO_MANY * PIECE) ||
                 reduce_directly(group, many, 2 * PIECE) ||
                 reduce_directly(group, mixed, FEW * PIECE) ||
                 reduce_directly(group, mixed, 2 * PIECE) ||
                 reduce_directly(group, mixed + 2 * PIECE, PIECE);
        if (i && !failed && count_known(group->share->mine) > nknown)
            failed = ranks_fail("%d allocations are known after %d",
                                count_known(group->share->mine), nknown);
        nknown = count_known(group->share->mine);
    }
    return gpu_rank_leave(failed);
}

static void odd_pieces(void **state)
{
    static char text[100000];
    const char *found;

    (void)state;
    setenv("FAKECUDA_DEVICES", "1", 1);
    exam_set_variables("shm", "", SLICE_BYTES);
    assert_int_equal(ranks_run_logged(3, have_odd_pieces, text, sizeof text), 0);
    found = strstr(text, "GPU memory that other processes cannot be handed");
    assert_non_null(found); /* rank 0's, once */
    assert_null(strstr(found + 1, "GPU memory that other processes cannot be handed"));
}

/* ---- memory that cannot be handed over at all ------------------------------------------------ */

/* Elements: three pieces of the library's memory, or two; the last one is shorter. */
enum { LONG = IS_SANITIZED ? 5 << 20 : 10 << 20 };

static int gather(kolo_group *group, ko_cu_ptr in, ko_cu_ptr out, size_t count)
{
    const int n = kolo_group_size(group);
    int failed = 0;

    fill(in, count, kolo_group_rank(group));
    if (kolo_all_gather(group, at(in), at(out), count, KOLO_INT32))
        return ranks_fail("all_gather");
    for (int r = 0; r < n && !failed; r++)
        failed = check(out + (size_t)r * count * sizeof(int), count, r, 0, 1, 0);
    return failed;
}

/* Calls of it work on copies, of one piece and several, in place and not. Bits: the first rank's
 * can be handed over; the copies can; the last rank has no room for them. */
enum { MIXED = 1, ON_GPU = 2, CROWDED = 4 };

static int stage(kolo_group *group, int how)
{
    static const size_t counts[] = {0, 1, 5003, LONG};
    const int n = kolo_group_size(group), rank = kolo_group_rank(group);
    const int handles = how & MIXED && !rank ? KO_CU_HANDLE_DESCRIPTOR : 0;
    const size_t all = LONG * sizeof(int);
    int failed = gpu_rank_enter(group);
    const ko_cu_ptr in = reserve(all), out = reserve(all);

    gpu_rank_map(in, all, 1, handles);
    gpu_rank_map(out, all, 1, handles);
    if (how & CROWDED && rank == n - 1)
        setenv("FAKECUDA_BREAK", "cuMemAlloc=2", 1);
    for (int i = 0; i < 4 && !failed; i++) {
        const size_t part = counts[i] / (size_t)n;
        const uint64_t before = gpu_bytes_now().with_host;

        failed = reduce(group, in, counts[i] * sizeof(int)) || gather(group, in, out, part);
        if (how & ON_GPU) /* but what fill and check do */
            failed = failed || check_host(before, (2 * counts[i] + (size_t)(n + 1) * part) * 4);
    }
    return gpu_rank_leave(failed);
}

static int stage_all(kolo_group *group, void *unused)
{
    (void)unused;
    return stage(group, ON_GPU);
}

static int stage_most(kolo_group *group, void *unused)
{
    (void)unused;
    return stage(group, MIXED | ON_GPU);
}

/* Nor can the library's own. */
static int stage_in_vain(kolo_group *group, void *unused)
{
    (void)unused;
    return stage(group, 0);
}

static int stage_in_a_crowd(kolo_group *group, void *unused)
{
    (void)unused;
    return stage(group, CROWDED);
}

static void memory_of_a_pool(void **state)
{
    (void)state;
    if (HAS_TSAN) {
        run(RANKS_PROCESSES, 2, stage_most);
        return;
    }
    for (int n = IS_SANITIZED ? 3 : 1; n <= 3; n++) {
        run(RANKS_PROCESSES, n, stage_all);
        run(RANKS_PROCESSES, n, stage_most);
    }
    setenv("KOLO_CUDA_IPC", "off", 1);
    run(RANKS_PROCESSES, 2, stage_in_vain);
    setenv("KOLO_CUDA_IPC", "vmm", 1);
    run(RANKS_PROCESSES, 2, stage_all);
    unsetenv("KOLO_CUDA_IPC");
    setenv("FAKECUDA_BREAK", "cuIpcOpenMemHandle=1,cuMemImportFromShareableHandle=1", 1);
    run(RANKS_PROCESSES, 2, stage_in_vain);
    unsetenv("FAKECUDA_BREAK");
    run(RANKS_PROCESSES, 2, stage_in_a_crowd);
}

/* ---- what the library has in pieces itself ----------------------------------------------------
 */

/* Of memory in pieces, short calls and long ones; and of such as cannot be handed over then, calls
 * that no graph takes in. */
static int take_pieces(kolo_group *group, void *unused)
{
    static const size_t counts[] = {17, 30011};
    int failed = gpu_rank_enter(group);

    (void)unused;
    for (int what = 0; what < KO_BARRIER && !failed; what++)
        failed = exam_take_forms(group, (enum ko_collective)what, counts, 2,
                                 &gpu_rank_graphs_of_pieces) ||
                 exam_take_forms(group, (enum ko_collective)what, counts, 1, &gpu_rank_memory);
    return gpu_rank_leave(failed);
}

/* Where handles are not wanted, cannot be had, or not be used. */
static void graphs_by_descriptors(void **state)
{
    static const char *const ways[][2] = {{"KOLO_CUDA_IPC", "vmm"},
                                          {"FAKECUDA_BREAK", "cuIpcGetMemHandle=801"},
                                          {"FAKECUDA_BREAK", "cuIpcOpenMemHandle=201"}};

    (void)state;
    for (int i = 0; i < 3; i++) {
        setenv(ways[i][0], ways[i][1], 1);
        run(RANKS_PROCESSES, 2 + i, take_pieces);
        unsetenv(ways[i][0]);
    }
}

/* The second of two pieces goes, and another one comes. */
static int replace(kolo_group *group, void *unused)
{
    int failed = gpu_rank_enter(group);
    const ko_cu_ptr base = reserve(2 * PIECE);

    (void)unused;
    map(base, 0, 1);
    for (int i = 0; i < 4 && !failed; i++) {
        map(base, 1, 2);
        failed = reduce(group, base, 2 * PIECE);
        unmap(base, 1, 2);
    }
    return gpu_rank_leave(failed);
}

/* The last of all: from here on the driver has threads in this process, which is not to fork. */
static void among_threads(void **state)
{
    static const char *const ways[] = {"all", "legacy", "off"};

    (void)state;
    for (int i = 0; i < 3; i++) { /* which are for other processes */
        setenv("KOLO_CUDA_IPC", ways[i], 1);
        for (int n = 1; n <= PIECES; n += n < 3 ? 1 : 5) {
            run(RANKS_THREADS, n, grow);
            run(RANKS_THREADS, n, in_place);
            run(RANKS_THREADS, n, side_by_side);
        }
        run(RANKS_THREADS, 4, replace); /* of which two have one GPU: kernels do not push */
    }
    unsetenv("KOLO_CUDA_IPC");
    run(RANKS_THREADS, 4, have_odd_pieces);
}

/* Rank 1 is killed when rank 0 is about to hand over what names its memory. */
static int hand_to_the_dead(kolo_group *group, void *argument)
{
    struct ko_gpu_place place;
    int64_t began_ns;
    ko_cu_ptr base;
    int failed = gpu_rank_enter(group);

    (void)argument;
    if (failed || kolo_barrier(group))
        return ranks_fail("gpu_rank_enter");
    if (kolo_group_rank(group) == 1)
        raise(SIGKILL);
    base = reserve(2 * PIECE);
    map(base, 0, 2);
    began_ns = ko_now_ns();
    if (ko_gpu_share_describe(group->share, KO_GPU_ALL_RANKS, at(base), 2 * PIECE, &place) ||
        !ko_gpu_share_is_handed(&place) || !ko_engine_try_turn(&group->engine))
        failed = ranks_fail("nothing to be handed over");
    else
        failed = ranks_expect_soon(began_ns, ko_coll_hand_over(group, group->share, &place),
                                   KOLO_E_PEER_LOST, "rank 1 (");
    ko_engine_finish(&group->engine);
    unmap(base, 0, 2);
    return gpu_rank_leave(failed);
}

static void who_dies_is_not_waited_for(void **state)
{
    (void)state;
    SKIP_PROCESSES_UNDER_TSAN();
    exam_set_variables("shm", "", SLICE_BYTES);
    setenv("FAKECUDA_DEVICES", "1", 1);
    assert_int_equal(ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = 2, .tolerated = 1},
                               hand_to_the_dead, NULL),
                     0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_that_grows),
        cmocka_unit_test(memory_that_changes),
        cmocka_unit_test(buffers_that_begin_in_one_piece),
        cmocka_unit_test(odd_pieces),
        cmocka_unit_test(memory_of_a_pool),
        cmocka_unit_test(graphs_by_descriptors),
        cmocka_unit_test(who_dies_is_not_waited_for),
        cmocka_unit_test(among_threads),
    };

    mallopt(M_MMAP_THRESHOLD, 1 << 30); /* or the kernel clears all that is long anew */
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    setenv("FAKECUDA_JITTER", "50", 1);
    return cmocka_run_group_tests_name("GPU memory in pieces", tests, NULL, NULL);
}
