/* SPDX-License-Identifier: MIT
 *
 * Ranks that make different calls: every rank ends with an error that names both sides, at the
 * latest at its next call, and none hangs.
 */
#include "exam.h"
#include "ranks.h"
#include "status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

/* What the odd rank calls, and what the others call. */
struct dispute {
    struct exam odd, others;
    const char *odd_says, *others_say; /* what the text calls the two, as the second call */
};

#define CALL(what_, count_, dtype_, op_, root_)                                   \
    {                                                                             \
        .what = what_, .count = count_, .dtype = dtype_, .op = op_, .root = root_ \
    }

static const struct dispute disputes[] = {
    {CALL(KO_ALL_GATHER, 10, KOLO_INT8, KOLO_SUM, 0),
     CALL(KO_ALL_REDUCE, 10, KOLO_INT8, KOLO_SUM, 0), "all_gather #2 of 10 int8",
     "all_reduce #2 of 10 int8, sum"},
    {CALL(KO_ALL_REDUCE, 10, KOLO_FLOAT32, KOLO_SUM, 0),
     CALL(KO_ALL_REDUCE, 10, KOLO_INT32, KOLO_SUM, 0), "all_reduce #2 of 10 float32, sum",
     "all_reduce #2 of 10 int32, sum"},
    {CALL(KO_ALL_REDUCE, 11, KOLO_INT32, KOLO_SUM, 0),
     CALL(KO_ALL_REDUCE, 10, KOLO_INT32, KOLO_SUM, 0), "all_reduce #2 of 11 int32, sum",
     "all_reduce #2 of 10 int32, sum"},
    {CALL(KO_BROADCAST, 10, KOLO_INT8, KOLO_SUM, 0), CALL(KO_BROADCAST, 10, KOLO_INT8, KOLO_SUM, 1),
     "broadcast #2 of 10 int8, root 0", "broadcast #2 of 10 int8, root 1"},
    {CALL(KO_REDUCE, 10, KOLO_INT8, KOLO_SUM, 1), CALL(KO_REDUCE, 10, KOLO_INT8, KOLO_SUM, 0),
     "reduce #2 of 10 int8, sum, root 1", "reduce #2 of 10 int8, sum, root 0"},
    {CALL(KO_ALL_REDUCE, 10, KOLO_INT8, KOLO_MAX, 0),
     CALL(KO_ALL_REDUCE, 10, KOLO_INT8, KOLO_MIN, 0), "all_reduce #2 of 10 int8, max",
     "all_reduce #2 of 10 int8, min"},
    {CALL(KO_SCATTER, 3, KOLO_INT8, KOLO_SUM, 0), CALL(KO_GATHER, 3, KOLO_INT8, KOLO_SUM, 0),
     "scatter #2 of 3 int8, root 0", "gather #2 of 3 int8, root 0"},
    {CALL(KO_BARRIER, 0, KOLO_UINT8, KOLO_SUM, 0),
     CALL(KO_ALL_TO_ALL, 3000, KOLO_INT8, KOLO_SUM, 0), "barrier #2", "all_to_all #2 of 3000 int8"},
};

enum { NDISPUTES = sizeof disputes / sizeof *disputes };

struct trial {
    const struct dispute *dispute;
    int odd_rank;
    bool checks, is_async;
    int rehearsals; /* the others' call, by all, before: one that repeats the last takes a short way
                     */
};

/* After a mismatch everything on the group fails in the same words. */
static int check_stays_failed(kolo_group *group, int status, const char *text)
{
    const char *again;
    char byte = 0;

    if (kolo_group_error(group, &again) != status || strcmp(again, text) != 0)
        return ranks_fail("the group says \"%s\" instead of \"%s\"", again, text);
    if (kolo_barrier(group) != status || strcmp(kolo_last_error(), text) != 0)
        return ranks_fail("a barrier afterwards said otherwise");
    if (kolo_send(group, &byte, 1, KOLO_UINT8, 0, 0) != status ||
        strcmp(kolo_last_error(), text) != 0)
        return ranks_fail("a send afterwards said otherwise");
    return 0;
}

/* The error names both calls or, if one suffices, one of them. */
static int check_failure(kolo_group *group, int status, const char *one, const char *two,
                         bool one_suffices)
{
    char text[KO_ERROR_TEXT];
    int named;

    snprintf(text, sizeof text, "%s", kolo_last_error());
    named = (strstr(text, one) != NULL) + (strstr(text, two) != NULL);
    if (status != KOLO_E_MISMATCH || named < 2 - one_suffices)
        return ranks_fail("rank %d of %d: status %s; expected a mismatch of %s and %s",
                          kolo_group_rank(group), kolo_group_size(group), kolo_status_name(status),
                          one, two);
    return check_stays_failed(group, status, text);
}

/* What a text calls a call after so many rehearsals. */
static const char *renumber(char *text, size_t nbytes, const char *says, int rehearsals)
{
    const char *number = strstr(says, "#2");

    snprintf(text, nbytes, "%.*s#%d%s", (int)(number - says), says, 2 + rehearsals, number + 2);
    return text;
}

static int rehearse(kolo_group *group, const struct trial *trial)
{
    int failed = 0;

    for (int i = 0; i < trial->rehearsals && !failed; i++)
        failed = exam_take(group, &trial->dispute->others);
    return failed;
}

static int disagree(kolo_group *group, void *argument)
{
    const struct trial *trial = argument;
    const struct dispute *dispute = trial->dispute;
    bool is_odd = kolo_group_rank(group) == trial->odd_rank;
    struct exam exam = is_odd ? dispute->odd : dispute->others;
    char odd_says[80], others_say[80];
    int status;

    exam.is_async = trial->is_async;
    if (rehearse(group, trial))
        return 1;
    status = kolo_barrier(group); /* who comes out of it late may meet the dispute there */
    if (!status)
        status = exam_try(group, &exam);
    if (!status && trial->checks)
        return ranks_fail("rank %d got through with KOLO_CHECK", kolo_group_rank(group));
    for (int i = 0; i < 1000 && !status; i++) /* who has what it wants hears of it soon */
        status = kolo_barrier(group);
    /* who only sends to a root has left when the root complains: it may be met in the barrier */
    return check_failure(
        group, status, renumber(odd_says, sizeof odd_says, dispute->odd_says, trial->rehearsals),
        renumber(others_say, sizeof others_say, dispute->others_say, trial->rehearsals),
        exam_has_root(dispute->odd.what) && !trial->checks);
}

static void set_variables(const char *transport, bool checks)
{
    setenv("KOLO_TRANSPORT", transport, 1);
    setenv("KOLO_CHECK", checks ? "1" : "0", 1);
    setenv("KOLO_SLICE_BYTES", "256", 1);
    setenv("KOLO_SLOTS", "2", 1);
    setenv("KOLO_DEBUG", "NONE", 1);
}

static void run_disputes(enum ranks_kind kind, const char *transport, int n, unsigned step)
{
    for (unsigned i = 0; i < 4 * NDISPUTES; i += step) {
        struct trial trial = {.dispute = &disputes[i % NDISPUTES],
                              .odd_rank = i % 3 ? n - 1 : 0,
                              .checks = i / NDISPUTES % 2,
                              .is_async = i / NDISPUTES / 2,
                              .rehearsals = (i + i / NDISPUTES) % 2 ? 3 : 0};

        set_variables(transport, trial.checks);
        if (ranks_run(&(struct ranks){.kind = kind, .n = n}, disagree, &trial))
            fail_msg("%s against %s, %d ranks over %s, checks %d", trial.dispute->odd_says,
                     trial.dispute->others_say, n, transport, trial.checks);
    }
}

static void threads_disagree(void **state)
{
    (void)state;
    run_disputes(RANKS_THREADS, "shm", 2, 1);
    run_disputes(RANKS_THREADS, "tcp", 2, 3);
    run_disputes(RANKS_THREADS, "shm", 5, 1);
    run_disputes(RANKS_THREADS, "tcp", 4, 1);
}

static void processes_disagree(void **state)
{
    (void)state;
    run_disputes(RANKS_PROCESSES, "shm", 3, 3);
    run_disputes(RANKS_PROCESSES, "tcp", 3, 3);
}

/* ---- sequences ---------------------------------------------------------------------------- */

static const struct exam short_sum = CALL(KO_ALL_REDUCE, 10, KOLO_INT8, KOLO_SUM, 0);
static const struct exam long_sum = CALL(KO_ALL_REDUCE, 2000, KOLO_INT8, KOLO_SUM, 0);

/* Two calls in two orders. */
static int swap_calls(kolo_group *group, void *argument)
{
    bool is_odd = kolo_group_rank(group) == 1;
    int status = exam_try(group, is_odd ? &short_sum : &long_sum);

    (void)argument;
    if (!status)
        status = exam_try(group, is_odd ? &long_sum : &short_sum);
    return check_failure(group, status, "all_reduce #1 of 10 int8", "all_reduce #1 of 2000 int8",
                         false);
}

/* Rank 1 leaves a call out and makes the next. */
static int skip_call(kolo_group *group, void *argument)
{
    int status = kolo_group_rank(group) == 1 ? KOLO_OK : exam_try(group, &short_sum);

    (void)argument;
    if (!status)
        status = exam_try(group, &long_sum);
    return check_failure(group, status, "all_reduce #1 of 10 int8", "all_reduce #1 of 2000 int8",
                         false);
}

static void order_and_skipped_calls_show(void **state)
{
    static const char *const transports[] = {"shm", "rdma", "tcp"};

    (void)state;
    for (int i = 0; i < 3; i++) {
        set_variables(transports[i], false);
        for (int n = 2; n < 5; n++) {
            const struct ranks ranks = {.kind = n == 3 ? RANKS_PROCESSES : RANKS_THREADS, .n = n};

            assert_int_equal(ranks_run(&ranks, swap_calls, NULL), 0);
            assert_int_equal(ranks_run(&ranks, skip_call, NULL), 0);
        }
    }
}

/* Rank 1 leaves the call out and makes no other for long: rank 0 names it. What rank 0 had sent
 * before may be enough for rank 1 to complete that call, but not the next. */
static int come_late(kolo_group *group, void *argument)
{
    const struct timespec nap = {.tv_sec = 1, .tv_nsec = 200000000};
    char text[KO_ERROR_TEXT];
    int status;

    (void)argument;
    if (kolo_barrier(group) || kolo_group_set_timeout(group, 600))
        return ranks_fail("barrier");
    if (kolo_group_rank(group) == 1)
        nanosleep(&nap, NULL);
    status = exam_try(group, &short_sum);
    if (!status && kolo_group_rank(group) == 1)
        status = exam_try(group, &short_sum);
    snprintf(text, sizeof text, "%s", kolo_last_error());
    if (status != KOLO_E_TIMEOUT || !strstr(text, "waited 600 ms for a message from rank 1 (") ||
        !strstr(text, "in all_reduce #2 of 10 int8, sum") || !strstr(text, "KOLO_TIMEOUT_MS"))
        return ranks_fail("status %d: %s", status, text);
    return check_stays_failed(group, status, text);
}

/* What ranks that wait for one another wait. Half of it after they began they say so to the others,
 * and each must have begun by then. */
enum { LIMIT_MS = IS_SANITIZED ? 6000 : 1500 };

/* In a ring rank 0 waits for rank 3, which waits for rank 2, which does not come; rank 1 waits for
 * rank 0. Whoever gives up first, all are told of rank 2; what two tell at once is this group's. */
static int break_the_ring(kolo_group *group, void *argument)
{
    const int rank = kolo_group_rank(group);
    char text[KO_ERROR_TEXT];
    int status;

    (void)argument;
    if (exam_try(group, &short_sum) || kolo_barrier(group) ||
        kolo_group_set_timeout(group, LIMIT_MS))
        return ranks_fail("before");
    if (rank == 2)
        ranks_nap_ms(LIMIT_MS * 5 / 3);
    status = exam_try(group, &long_sum);
    snprintf(text, sizeof text, "%s", kolo_last_error());
    if (status != KOLO_E_TIMEOUT || strstr(text, "another group") ||
        (!strstr(text, " rank 2 (") && !strstr(text, "as do all but rank 2, which")))
        return ranks_fail("status %d: %s", status, text);
    return check_stays_failed(group, status, text);
}

/* Rank 1 does not come to the group's first call, in which others wait for one another: these are
 * not to be looked for elsewhere. */
static int miss_the_first_call(kolo_group *group, void *argument)
{
    char text[KO_ERROR_TEXT];
    int status;

    (void)argument;
    if (kolo_group_set_timeout(group, LIMIT_MS))
        return ranks_fail("before");
    if (kolo_group_rank(group) == 1)
        ranks_nap_ms(LIMIT_MS * 5 / 3);
    status = kolo_barrier(group);
    snprintf(text, sizeof text, "%s", kolo_last_error());
    if (kolo_group_rank(group) == 1) /* the others, and the store with them, may be gone */
        return status ? 0 : ranks_fail("the barrier is complete");
    if (status != KOLO_E_TIMEOUT ||
        (strstr(text, "waits too") && strstr(text, "has not even connected")))
        return ranks_fail("status %d: %s", status, text);
    return check_stays_failed(group, status, text);
}

/* Each of two roots sends, and waits for nobody. */
static int disagree_on_the_root(kolo_group *group, void *argument)
{
    const int rank = kolo_group_rank(group);
    int number = rank, failed;

    (void)argument;
    failed = kolo_barrier(group) || exam_try(group, &short_sum) ||
             kolo_broadcast(group, &number, 1, KOLO_INT32, rank == 1);
    ranks_nap_ms(100); /* both have arrived */
    return failed ? ranks_fail("broadcast") : 0;
}

static void two_roots_are_told_of(void **state)
{
    char text[8192];

    (void)state;
    for (int i = 0; i < 2; i++) {
        set_variables(i ? "tcp" : "shm", false);
        assert_int_equal(ranks_run_logged(3, disagree_on_the_root, text, sizeof text), 0);
        if (!strstr(text, "the ranks make different calls: rank ") ||
            !strstr(text, "calls broadcast #3 of 1 int32, root 1"))
            fail_msg("%s", text);
    }
}

/* Rank 2 receives what nobody sends, while the others are in a collective. It says so two seconds
 * later, which is to be before these give up, however late it begins. */
static int receive_meanwhile(kolo_group *group, void *argument)
{
    enum { LONG_MS = LIMIT_MS + 4500 };
    char text[KO_ERROR_TEXT], waited[64], byte;
    int status;

    (void)argument;
    snprintf(waited, sizeof waited, "rank 2 waited %d ms for a message of tag 1 from rank 0 (",
             LONG_MS);
    if (exam_try(group, &short_sum) || kolo_barrier(group) ||
        kolo_group_set_timeout(group, LONG_MS))
        return ranks_fail("before");
    status = kolo_group_rank(group) == 2 ? kolo_recv(group, &byte, 1, KOLO_INT8, 0, 1)
                                         : exam_try(group, &long_sum);
    snprintf(text, sizeof text, "%s", kolo_last_error());
    if (status != KOLO_E_TIMEOUT ||
        (!strstr(text, "rank 2 waits for a message of tag 1 from rank 0") && !strstr(text, waited)))
        return ranks_fail("status %d: %s", status, text);
    return check_stays_failed(group, status, text);
}

static void who_keeps_all_waiting_is_named(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        set_variables(i ? "tcp" : "shm", false);
        assert_int_equal(
            ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = 3}, receive_meanwhile, NULL),
            0);
    }
    setenv("KOLO_ALGO", "ring", 1);
    for (int i = 0; i < 4; i++) {
        const struct ranks ranks = {.kind = i % 2 ? RANKS_PROCESSES : RANKS_THREADS, .n = 4};

        set_variables(i / 2 ? "tcp" : "shm", false);
        assert_int_equal(ranks_run(&ranks, break_the_ring, NULL), 0);
    }
    unsetenv("KOLO_ALGO");
}

/* Each comes within the limit after the one before, but the last one not within it. */
static int come_one_by_one(kolo_group *group, void *argument)
{
    enum { APART_MS = 150, MOST_MS = 200 };
    const int rank = kolo_group_rank(group);
    int status, in = rank, out = 0;

    (void)argument;
    if (kolo_barrier(group) || kolo_group_set_timeout(group, rank ? LIMIT_MS : MOST_MS))
        return ranks_fail("before");
    ranks_nap_ms(rank * APART_MS);
    status = kolo_reduce(group, &in, &out, 1, KOLO_INT32, KOLO_SUM, 0);
    return rank ? 0 : ranks_expect(status, KOLO_E_TIMEOUT, "rank 0 waited 200 ms");
}

static void the_limit_is_that_of_the_whole_call(void **state)
{
    (void)state;
    setenv("KOLO_ALGO", "reduce=direct", 1);
    set_variables("shm", false);
    assert_int_equal(
        ranks_run(&(struct ranks){.kind = RANKS_THREADS, .n = 4}, come_one_by_one, NULL), 0);
    unsetenv("KOLO_ALGO");
}

static void a_rank_that_does_not_call_is_named(void **state)
{
    (void)state;
    set_variables("shm", false);
    assert_int_equal(
        ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = 3}, miss_the_first_call, NULL), 0);
    assert_int_equal(ranks_run(&(struct ranks){.kind = RANKS_THREADS, .n = 2}, come_late, NULL), 0);
    set_variables("tcp", false);
    assert_int_equal(ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = 2}, come_late, NULL),
                     0);
}

/* Rank 1 frees its group, and leaves the others in a call. */
static int leave_early(kolo_group *group, void *argument)
{
    int status;

    (void)argument;
    if (kolo_barrier(group))
        return ranks_fail("barrier");
    if (kolo_group_rank(group) == 1)
        return 0;
    status = exam_try(group, &short_sum);
    if (status != KOLO_E_PEER_LOST || !strstr(kolo_last_error(), "rank 1 (") ||
        !strstr(kolo_last_error(),
                "has freed its group, while rank 0 waits for it in all_reduce #2"))
        return ranks_fail("status %d", status);
    return 0;
}

static void a_rank_that_frees_its_group_is_named(void **state)
{
    (void)state;
    set_variables("shm", false);
    assert_int_equal(ranks_run(&(struct ranks){.kind = RANKS_THREADS, .n = 2}, leave_early, NULL),
                     0);
    assert_int_equal(ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = 2}, leave_early, NULL),
                     0);
    set_variables("tcp", false);
    assert_int_equal(ranks_run(&(struct ranks){.kind = RANKS_THREADS, .n = 2}, leave_early, NULL),
                     0);
    assert_int_equal(ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = 2}, leave_early, NULL),
                     0);
}

/* The ranks give one another's blocks different lengths. */
static int disagree_on_blocks(kolo_group *world, void *argument)
{
    const int rank = kolo_group_rank(world);
    const size_t ours[] = {3, 3}, others[] = {3, 4};
    const kolo_blocks in = {rank ? ours : others, NULL}, out = {ours, NULL};
    unsigned char from[8] = {0}, to[8];
    int status;

    (void)argument;
    status = kolo_all_to_all_v(world, from, &in, to, &out, KOLO_UINT8);
    if (!status) /* rank 0 may have got what it asked for before rank 1 complains */
        status = kolo_barrier(world);
    return check_failure(world, status,
                         "rank 0 sends 4 bytes to rank 1, which expects 3, in all_to_all_v #1 of "
                         "uint8",
                         "the counts that the two give for this block differ", false);
}

static void blocks_of_other_lengths_are_told(void **state)
{
    (void)state;
    set_variables("shm", false);
    assert_int_equal(
        ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = 2}, disagree_on_blocks, NULL), 0);
    set_variables("tcp", false);
    assert_int_equal(
        ranks_run(&(struct ranks){.kind = RANKS_THREADS, .n = 2}, disagree_on_blocks, NULL), 0);
}

/* ---- several tensors --------------------------------------------------------------------------
 */

static int call_tensors(kolo_group *world, enum ko_collective what, const kolo_tensor *tensors,
                        size_t ntensors)
{
    switch (what) {
    case KO_ALL_REDUCE:
        return kolo_all_reduce_coalesced(world, tensors, ntensors, KOLO_INT8, KOLO_SUM);
    case KO_REDUCE:
        return kolo_reduce_coalesced(world, tensors, ntensors, KOLO_INT8, KOLO_SUM, 1);
    case KO_BROADCAST:
        return kolo_broadcast_coalesced(world, tensors, ntensors, KOLO_INT8, 1);
    case KO_ALL_GATHER:
        return kolo_all_gather_coalesced(world, tensors, ntensors, KOLO_INT8);
    default:
        return kolo_reduce_scatter_coalesced(world, tensors, ntensors, KOLO_INT8, KOLO_SUM);
    }
}

static const enum ko_collective of_tensors[] = {KO_ALL_REDUCE, KO_REDUCE, KO_BROADCAST,
                                                KO_ALL_GATHER, KO_REDUCE_SCATTER};

/* Rank 0 gives 8 elements as 4 and 4, the others as 3 and 5, or as one tensor. */
static int disagree_on_tensors(kolo_group *world, void *argument)
{
    const int number = *(const int *)argument, rank = kolo_group_rank(world);
    const enum ko_collective what = of_tensors[number / 2];
    const size_t first = rank == 0 ? 4 : number % 2 ? 8 : 3;
    unsigned char from[64] = {0}, to[64] = {0};
    const kolo_tensor tensors[] = {{from, to, first}, {from + 32, to + 32, 8 - first}};
    char calls[80];
    int status = call_tensors(world, what, tensors, first == 8 ? 1 : 2);

    if (!status) /* who only sends, or has what it asked for, is told later */
        status = kolo_barrier(world);
    snprintf(calls, sizeof calls, "list tensors of other lengths in %s_coalesced #1 of 8 int8",
             ko_collective_name(what));
    return check_failure(world, status, calls,
                         what == KO_ALL_GATHER  ? ""
                         : what == KO_REDUCE    ? ", sum, root 1;"
                         : what == KO_BROADCAST ? ", root 1;"
                                                : ", sum;",
                         false);
}

/* One calls for several tensors, the others for as much at once. */
static int disagree_on_number(kolo_group *world, void *argument)
{
    unsigned char from[8] = {0}, to[8];
    const kolo_tensor tensors[] = {{from, to, 4}, {from + 4, to + 4, 4}};
    int status;

    (void)argument;
    status = kolo_group_rank(world) == 1
                 ? kolo_all_reduce_coalesced(world, tensors, 2, KOLO_INT8, KOLO_SUM)
                 : kolo_all_reduce(world, from, to, 8, KOLO_INT8, KOLO_SUM);
    status = status ? status : kolo_barrier(world);
    return check_failure(world, status, "rank 1 calls all_reduce_coalesced #1 of 8 int8, sum",
                         "calls all_reduce #1 of 8 int8, sum", false);
}

static void tensors_of_other_lengths_are_told(void **state)
{
    enum { NLISTS = 2 * sizeof of_tensors / sizeof *of_tensors };

    (void)state;
    for (int i = 0; i < 2 * NLISTS; i++) {
        int number = i / 2;

        set_variables(i % 2 ? "tcp" : "shm", i % 4 > 1);
        assert_int_equal(ranks_run(&(struct ranks){.kind = RANKS_THREADS, .n = 2 + i % 3},
                                   disagree_on_tensors, &number),
                         0);
    }
    set_variables("shm", false);
    assert_int_equal(
        ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = 2}, disagree_on_number, NULL), 0);
}

/* ---- variables ----------------------------------------------------------------------------- */

/* A group takes its algorithm from the environment of its process. */
static int take_other_algorithm(kolo_group *world, void *argument)
{
    const int ranks[] = {0, 1};
    kolo_group *group;
    int status, failed;

    (void)argument;
    setenv("KOLO_ALGO", kolo_group_rank(world) ? "ring" : "one_shot", 1);
    if (kolo_group_new(world, ranks, 2, &group))
        return ranks_fail("group_new");
    status = exam_try(group, &short_sum);
    failed = check_failure(group, status, "take different algorithms for all_reduce #1 of 10 int8",
                           "set KOLO_ALGO and KOLO_DETERMINISTIC alike on all ranks", false);
    kolo_group_free(group);
    return failed;
}

static void different_algorithms_are_told(void **state)
{
    (void)state;
    set_variables("shm", false);
    assert_int_equal(
        ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = 2}, take_other_algorithm, NULL), 0);
    set_variables("tcp", true);
    assert_int_equal(
        ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = 2}, take_other_algorithm, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_roots_are_told_of), /* first: the level of the log is read once */
        cmocka_unit_test(threads_disagree),
        cmocka_unit_test(processes_disagree),
        cmocka_unit_test(order_and_skipped_calls_show),
        cmocka_unit_test(who_keeps_all_waiting_is_named),
        cmocka_unit_test(the_limit_is_that_of_the_whole_call),
        cmocka_unit_test(a_rank_that_does_not_call_is_named),
        cmocka_unit_test(a_rank_that_frees_its_group_is_named),
        cmocka_unit_test(blocks_of_other_lengths_are_told),
        cmocka_unit_test(tensors_of_other_lengths_are_told),
        cmocka_unit_test(different_algorithms_are_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
