/* SPDX-License-Identifier: MIT
 *
 * Every collective over every transport against the oracle of exam.c, with slots so small and few
 * that all of them wrap; and what belongs to calls in general: arguments, queues, threads.
 */
#include "algorithms.h"
#include "clock.h"
#include "exam.h"
#include "ranks.h"
#include "sanitized.h"
#include "transport.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <poll.h>
#include <signal.h>
#include <time.h>

enum { SLICE_BYTES = 192 };

/* ---- products ----------------------------------------------------------------------------- */

/* Every dtype and op at few counts. */
static int take_dtypes(kolo_group *group, enum ko_collective what, const size_t *counts,
                       size_t ncounts)
{
    const int nops = exam_is_reducing(what) ? KOLO_NOPS : 1;
    struct exam exam = {.what = what};
    unsigned turn = 0;
    int failed = 0;

    for (int dtype = 0; dtype < KOLO_NDTYPES; dtype++)
        for (int op = 0; op < nops && !failed; op++)
            for (size_t i = 0; i < ncounts && !failed; i++, turn++) {
                exam.dtype = (kolo_dtype)dtype;
                exam.op = (kolo_op)op;
                if (!exam_allows(exam.dtype, exam.op))
                    continue;
                exam.count = counts[i];
                exam.root = exam_has_root(what) ? (int)turn % kolo_group_size(group) : 0;
                exam.is_in_place = turn & 1;
                exam.is_async = turn % 8 >= 6;
                exam.is_uneven = turn % 3 == 2 && exam_can_be_uneven(what);
                exam.shift = turn % 5 ? 0 : turn % 8;
                failed = exam_take(group, &exam);
            }
    return failed;
}

/* Every count, in place and not, blocking and not. */
static int take_counts(kolo_group *group, enum ko_collective what, kolo_dtype dtype)
{
    const size_t n = (size_t)kolo_group_size(group), slot = SLICE_BYTES / kolo_dtype_size(dtype),
                 message = ko_message_bytes(SLICE_BYTES) / kolo_dtype_size(dtype);
    const size_t counts[] = {
        0,        1,   n - 1,       n,           n + 1,        slot - 1,       slot,
        slot + 1, 211, message - 1, message + 1, 9 * slot + 5, 9 * message + 5};
    int failed = 0;

    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (unsigned how = 0; how < 8 && !failed; how++) {
            const struct exam exam = {.what = what,
                                      .dtype = dtype,
                                      .count = counts[i],
                                      .root = exam_has_root(what) ? (int)((i + how) % n) : 0,
                                      .is_in_place = how & 1,
                                      .is_async = (how & 2) && i % 2,
                                      .is_uneven = how & 4,
                                      .shift = i == 8 ? 3 : 0};

            if (exam.is_uneven && !exam_can_be_uneven(what))
                break;
            failed = exam_take(group, &exam);
        }
    return failed;
}

static int take_everything(kolo_group *group, void *argument)
{
    static const size_t counts[] = {37, 101};
    int failed = 0;

    (void)argument;
    for (int what = 0; what < KO_NCOLLECTIVES && !failed; what++) {
        failed = take_dtypes(group, (enum ko_collective)what, counts, 2);
        failed = failed ? failed : take_counts(group, (enum ko_collective)what, KOLO_FLOAT32);
    }
    return failed;
}

static int take_some(kolo_group *group, void *argument)
{
    static const size_t count = 41;
    int failed = 0;

    (void)argument;
    for (int what = 0; what < KO_NCOLLECTIVES && !failed; what++) {
        failed = take_dtypes(group, (enum ko_collective)what, &count, 1);
        failed = failed ? failed : take_counts(group, (enum ko_collective)what, KOLO_INT8);
    }
    return failed;
}

static void run(enum ranks_kind kind, int n, ranks_body body, void *argument)
{
    assert_int_equal(ranks_run(&(struct ranks){.kind = kind, .n = n}, body, argument), 0);
}

/* Processes differ from threads in how ranks reach each other, which takes few of them. */
static void all_counts_of_ranks(enum ranks_kind kind, const char *transport)
{
    static const int of_threads[] = {5, 1, 2, 3, 4, 8}, of_processes[] = {4, 2, 3};
    const int *sizes = kind == RANKS_THREADS ? of_threads : of_processes;
    const size_t nsizes = IS_SANITIZED ? 1 : kind == RANKS_THREADS ? 6 : 3;

    if (kind == RANKS_PROCESSES)
        SKIP_PROCESSES_UNDER_TSAN();
    exam_set_variables(transport, "", SLICE_BYTES);
    for (size_t i = 0; i < nsizes; i++)
        run(kind, sizes[i], take_everything, NULL);
}

static void threads_over_shm(void **state)
{
    (void)state;
    all_counts_of_ranks(RANKS_THREADS, "shm");
}

static void threads_over_tcp(void **state)
{
    (void)state;
    all_counts_of_ranks(RANKS_THREADS, "tcp");
}

static void processes_over_shm(void **state)
{
    (void)state;
    all_counts_of_ranks(RANKS_PROCESSES, "shm");
}

static void processes_over_tcp(void **state)
{
    (void)state;
    all_counts_of_ranks(RANKS_PROCESSES, "tcp");
}

static void threads_over_rdma(void **state)
{
    (void)state;
    all_counts_of_ranks(RANKS_THREADS, "rdma");
}

static void processes_over_rdma(void **state)
{
    (void)state;
    all_counts_of_ranks(RANKS_PROCESSES, "rdma");
}

/* ---- every algorithm --------------------------------------------------------------------- */

struct row {
    enum ko_collective what;
    const char *name;
};

static const struct row rows[] = {
#define ROW(what, name, text, flags, why) {KO_##what, name},
    KO_ALGORITHM_LIST(ROW)
#undef ROW
};

static int take_row(kolo_group *group, void *argument)
{
    static const size_t count = 37;
    const struct row *row = argument;
    int failed = take_dtypes(group, row->what, &count, 1);

    return failed ? failed : take_counts(group, row->what, KOLO_INT32);
}

/* Those of every `step` from number `first` on. */
static void every_algorithm(enum ranks_kind kind, const char *transport, const int *sizes,
                            size_t nsizes, size_t first, size_t step)
{
    for (size_t i = first; i < sizeof rows / sizeof *rows; i += step)
        for (size_t k = 0; k < nsizes; k++) {
            struct row row = rows[i];

            exam_set_variables(transport, row.name, SLICE_BYTES);
            if (ranks_run(&(struct ranks){.kind = kind, .n = sizes[k]}, take_row, &row))
                fail_msg("%s, %d ranks, over %s", row.name, sizes[k], transport);
        }
}

/* Under a sanitizer each has its turn over one of the three transports. */
static void every_algorithm_among_threads(void **state)
{
    static const int few[] = {7, 2, 3, 4, 5, 8, 9}, some[] = {2, 6};

    (void)state;
    if (IS_SANITIZED) {
        every_algorithm(RANKS_THREADS, "shm", few, 1, 0, 3);
        every_algorithm(RANKS_THREADS, "tcp", few, 1, 1, 3);
        every_algorithm(RANKS_THREADS, "rdma", few, 1, 2, 3);
        return;
    }
    every_algorithm(RANKS_THREADS, "shm", few, 7, 0, 1);
    every_algorithm(RANKS_THREADS, "tcp", some, 2, 0, 1);
    every_algorithm(RANKS_THREADS, "rdma", some, 2, 0, 1);
}

static void every_algorithm_among_processes(void **state)
{
    static const int sizes[] = {5};

    (void)state;
    SKIP_PROCESSES_UNDER_TSAN();
    every_algorithm(RANKS_PROCESSES, "shm,tcp", sizes, 1, 0, 1);
}

/* As if nothing stayed in a cache. */
static int take_row_around_the_cache(kolo_group *group, void *argument)
{
    group->endpoint->cache_bytes = 1;
    return take_row(group, argument);
}

static void every_algorithm_around_the_cache(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2 * sizeof rows / sizeof *rows; i++) {
        struct row row = rows[i / 2];

        exam_set_variables(i % 2 ? "shm" : "tcp", row.name, SLICE_BYTES);
        run(RANKS_THREADS, 2 + (int)(i / 2 % 2), take_row_around_the_cache, &row);
    }
}

/* ---- slots of ordinary size, many elements ------------------------------------------------ */

static int take_large(kolo_group *group, void *argument)
{
    int failed = 0;

    if (argument) /* as if nothing stayed in a cache */
        group->endpoint->cache_bytes = 1;
    for (int what = 0; what < KO_NCOLLECTIVES && !failed; what++)
        for (unsigned how = 0; how < 4 && !failed; how++) {
            const struct exam exam = {.what = (enum ko_collective)what,
                                      .dtype = how % 2 ? KOLO_FLOAT64 : KOLO_UINT8,
                                      .count = HAS_TSAN ? 70001 : 300007,
                                      .is_uneven = how / 2,
                                      .is_in_place = how % 2};

            if (exam.is_uneven && !exam_can_be_uneven(exam.what))
                break;

            failed = exam_take(group, &exam);
        }
    return failed;
}

static void large_counts_in_ordinary_slots(void **state)
{
    static const char *const transports[] = {"shm", "tcp", "shm,tcp", "rdma"};

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        exam_set_variables(transports[i], "", SLICE_BYTES);
        unsetenv("KOLO_SLICE_BYTES");
        unsetenv("KOLO_SLOTS");
        run(i && !HAS_TSAN ? RANKS_PROCESSES : RANKS_THREADS, 3, take_large, NULL);
    }
    for (int n = 2; n <= 3; n++) {
        exam_set_variables("shm", "", SLICE_BYTES);
        unsetenv("KOLO_SLICE_BYTES");
        run(RANKS_THREADS, n, take_large, &n);
    }
}

/* From less than a slice that goes in pieces to more than two slices. */
static int take_few_slices(kolo_group *group, void *argument)
{
    static const size_t counts[] = {2053, 16384, 33001, 131073};
    int failed = 0;

    (void)argument;
    for (int what = 0; what < KO_NCOLLECTIVES && !failed; what++)
        failed = exam_take_forms(group, (enum ko_collective)what, counts, 4, NULL);
    return failed;
}

static void run_few_slices(enum ranks_kind kind)
{
    exam_set_variables("shm", "", SLICE_BYTES);
    unsetenv("KOLO_SLICE_BYTES");
    for (int n = 2; n <= 3; n++)
        run(kind, n, take_few_slices, NULL);
}

static void few_slices_among_threads(void **state)
{
    (void)state;
    run_few_slices(RANKS_THREADS);
}

static void few_slices_among_processes(void **state)
{
    (void)state;
    SKIP_PROCESSES_UNDER_TSAN();
    run_few_slices(RANKS_PROCESSES);
}

/* ---- queues ------------------------------------------------------------------------------- */

/* Many asynchronous calls of all kinds at once, a blocking one behind them, ended from the last. */
static int queue_many(kolo_group *group, void *argument)
{
    enum { MANY = 64 };
    struct exam_run *runs[MANY];
    int failed = 0;

    (void)argument;
    for (int i = 0; i < MANY; i++)
        runs[i] =
            exam_begin(group, &(struct exam){.what = (enum ko_collective)(i % KO_NCOLLECTIVES),
                                             .dtype = KOLO_INT32,
                                             .count = (size_t)(i * 7),
                                             .is_async = true});
    failed = exam_take(group, &(struct exam){.what = KO_ALL_REDUCE, .count = 50});
    for (int i = MANY; i-- > 0;)
        failed |= exam_end(runs[i]);
    return failed;
}

/* A work whose wait gives up goes on; test tells when it is done. */
static int wait_in_vain(kolo_group *group, void *argument)
{
    const int rank = kolo_group_rank(group);
    float one = 1, sum = 0;
    kolo_work *work;
    int done = 0, err;

    (void)argument;
    if (rank == 1)
        return kolo_recv(group, NULL, 0, KOLO_UINT8, 0, 0) ||
                       kolo_all_reduce(group, &one, &sum, 1, KOLO_FLOAT32, KOLO_SUM)
                   ? ranks_fail("rank 1")
                   : 0;
    if (kolo_all_reduce_async(group, &one, &sum, 1, KOLO_FLOAT32, KOLO_SUM, &work))
        return ranks_fail("all_reduce_async");
    err = kolo_work_wait(work, 30);
    if (err != KOLO_E_TIMEOUT || !strstr(kolo_last_error(), "not done within 30 ms; it goes on"))
        return ranks_fail("wait gave %d", err);
    if (kolo_work_test(work, &done) || done || *kolo_work_error(work))
        return ranks_fail("done without the other rank");
    if (kolo_send(group, NULL, 0, KOLO_UINT8, 1, 0))
        return ranks_fail("send");
    while (!done)
        if (kolo_work_test(work, &done))
            return ranks_fail("test");
    kolo_work_free(work);
    return sum == 2 ? 0 : ranks_fail("the sum is %g", (double)sum);
}

static void calls_queue_up(void **state)
{
    (void)state;
    exam_set_variables("shm", "", SLICE_BYTES);
    run(RANKS_THREADS, 3, queue_many, NULL);
    run(RANKS_THREADS, 2, wait_in_vain, NULL);
    exam_set_variables("tcp", "", SLICE_BYTES);
    run(RANKS_PROCESSES, 3, queue_many, NULL);
    run(RANKS_PROCESSES, 2, wait_in_vain, NULL);
}

/* ---- threads ------------------------------------------------------------------------------ */

struct lane {
    pthread_t thread;
    kolo_group *group;
    int failed;
};

static void *lane_main(void *argument)
{
    struct lane *lane = argument;

    for (unsigned i = 0; i < 60 && !lane->failed; i++)
        lane->failed =
            exam_take(lane->group, &(struct exam){.what = (enum ko_collective)(i % KO_NCOLLECTIVES),
                                                  .dtype = KOLO_FLOAT32,
                                                  .count = 10 * i,
                                                  .is_async = i % 3 == 0});
    return NULL;
}

/* Two groups of the same ranks, in the reverse order, each used by a thread of its own. */
static int use_two_groups(kolo_group *group, void *argument)
{
    const int n = kolo_group_size(group);
    struct lane lanes[2] = {{0}};
    int ranks[8], failed = 0;

    (void)argument;
    for (int i = 0; i < n; i++)
        ranks[i] = n - 1 - i;
    for (int i = 0; i < 2; i++)
        if (kolo_group_new(group, ranks, n, &lanes[i].group))
            return ranks_fail("group_new");
    for (int i = 0; i < 2; i++)
        if (pthread_create(&lanes[i].thread, NULL, lane_main, &lanes[i]))
            abort();
    failed = exam_take(group, &(struct exam){.what = KO_ALL_GATHER, .count = 1000});
    for (int i = 0; i < 2; i++) {
        pthread_join(lanes[i].thread, NULL);
        failed |= lanes[i].failed;
        kolo_group_free(lanes[i].group);
    }
    return failed;
}

/* More ranks than are answered at a time, and than there are processors by far. */
static int take_each_once(kolo_group *group, void *argument)
{
    int failed = 0;

    (void)argument;
    for (int what = KO_NCOLLECTIVES; what-- > 0 && !failed;)
        failed = exam_take(group, &(struct exam){.what = (enum ko_collective)what, .count = 50});
    return failed;
}

static void many_ranks_meet(void **state)
{
    (void)state;
    exam_set_variables("shm", "", SLICE_BYTES);
    run(RANKS_THREADS, 24, take_each_once, NULL);
    exam_set_variables("tcp", "", SLICE_BYTES);
    run(RANKS_THREADS, 24, take_each_once, NULL);
}

static void groups_run_side_by_side(void **state)
{
    (void)state;
    exam_set_variables("shm", "", SLICE_BYTES);
    run(RANKS_THREADS, 3, use_two_groups, NULL);
    exam_set_variables("tcp", "", SLICE_BYTES);
    run(RANKS_THREADS, 3, use_two_groups, NULL);
    run(RANKS_PROCESSES, 4, use_two_groups, NULL);
}

/* Without the variable short counts go directly. */
static void algorithms_are_chosen_by_name(void **state)
{
    (void)state;
    exam_set_variables("shm", "", SLICE_BYTES);
    run(RANKS_THREADS, 3, take_some, NULL);
    run(RANKS_THREADS, 9, take_some, NULL);
}

/* ---- ends that nobody has to see yet ------------------------------------------------------ */

static int64_t processor_ns(void)
{
    struct timespec used;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (int64_t)used.tv_sec * 1000000000 + used.tv_nsec;
}

/* Rank 2 has given its part and is gone while rank 0 waits for rank 1's: rank 0 is to sleep, though
 * the end of rank 2 stands behind what it has not read yet. */
static int wait_beside_an_end(kolo_group *group, void *argument)
{
    const int rank = kolo_group_rank(group);
    float sum = 0, mine = (float)(1 << rank);
    int err = kolo_reduce(group, &mine, &sum, 1, KOLO_FLOAT32, KOLO_SUM, 0); /* opens the links */
    int64_t used = processor_ns(), began = ko_now_ns();

    (void)argument;
    if (rank == 1)
        poll(NULL, 0, 1000);
    if (err || kolo_reduce(group, &mine, &sum, 1, KOLO_FLOAT32, KOLO_SUM, 0))
        return ranks_fail("rank %d", rank);
    if (rank == 2)
        raise(SIGKILL);
    used = processor_ns() - used;
    if (rank == 0 && (sum != 7 || used > (ko_now_ns() - began) / 2))
        return ranks_fail("the sum is %g after %lld ns of processor time", (double)sum,
                          (long long)used);
    return 0;
}

static void an_end_behind_unread_data_does_not_spin(void **state)
{
    const struct ranks ranks = {.kind = RANKS_PROCESSES, .n = 3, .tolerated = 1};

    (void)state;
    exam_set_variables("tcp", "direct", SLICE_BYTES);
    assert_int_equal(ranks_run(&ranks, wait_beside_an_end, NULL), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(algorithms_are_chosen_by_name),
        cmocka_unit_test(threads_over_shm),
        cmocka_unit_test(threads_over_tcp),
        cmocka_unit_test(processes_over_shm),
        cmocka_unit_test(processes_over_tcp),
        cmocka_unit_test(threads_over_rdma),
        cmocka_unit_test(processes_over_rdma),
        cmocka_unit_test(every_algorithm_among_threads),
        cmocka_unit_test(every_algorithm_among_processes),
        cmocka_unit_test(every_algorithm_around_the_cache),
        cmocka_unit_test(large_counts_in_ordinary_slots),
        cmocka_unit_test(few_slices_among_threads),
        cmocka_unit_test(few_slices_among_processes),
        cmocka_unit_test(calls_queue_up),
        cmocka_unit_test(groups_run_side_by_side),
        cmocka_unit_test(many_ranks_meet),
        cmocka_unit_test(an_end_behind_unread_data_does_not_spin),
    };

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
