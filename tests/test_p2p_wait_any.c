/* SPDX-License-Identifier: MIT
 *
 * kolo_work_wait_any: of several works that one which ends, whatever else is under way.
 */
#include "clock.h"
#include "kolo.h"
#include "ranks.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { MOST_RANKS = 6, LONG = 5000, GO = 1, NEWS, NEVER, SHORT_MS = 100, LIMIT_MS = 400 };

/* Which all wrap. */
static void set_small_slots(void)
{
    setenv("KOLO_SLICE_BYTES", "256", 1);
    setenv("KOLO_SLOTS", "2", 1);
}

/* 0 if it is the work at `at` that ends so. */
static int expect_end(kolo_work **works, size_t nworks, size_t at, int status, const char *text)
{
    size_t index = nworks + 1;
    int failed = ranks_expect(kolo_work_wait_any(works, nworks, -1, &index), status, text);

    if (!failed && index != at)
        failed = ranks_fail("work %zu of %zu has ended, and not %zu", index, nworks, at);
    if (index < nworks) {
        kolo_work_free(works[index]);
        works[index] = NULL;
    }
    return failed;
}

/* 0 if none ends within that time. */
static int expect_none(kolo_work **works, size_t nworks, int timeout_ms)
{
    size_t index = nworks + 1;
    char text[64];

    snprintf(text, sizeof text, "none of the works was done within %d ms; they go on", timeout_ms);
    if (ranks_expect(kolo_work_wait_any(works, nworks, timeout_ms, &index), KOLO_E_TIMEOUT, text))
        return 1;
    return index == nworks ? 0 : ranks_fail("work %zu of %zu", index, nworks);
}

/* 0 if all of the list have been taken out. */
static int expect_all_taken(kolo_work **works, size_t nworks)
{
    return expect_end(works, nworks, nworks, KOLO_OK, "");
}

/* ---- messages ---------------------------------------------------------------------------- */

static int32_t element(int from, int round, size_t i)
{
    return (int32_t)(i * 7) + 1000 * from + 31 * round;
}

static int check(const int32_t *numbers, int from, int round)
{
    for (size_t i = 0; i < LONG; i++)
        if (numbers[i] != element(from, round, i))
            return ranks_fail("element %zu of rank %d", i, from);
    return 0;
}

/* Rank 0 posts a receive from each rank; then it lets them send one after another, the last first.
 */
static int take_in_turn(kolo_group *group, int round, int32_t (*numbers)[LONG])
{
    const int n = kolo_group_size(group);
    kolo_work *works[MOST_RANKS] = {NULL};
    int failed = 0;

    for (int r = 1; r < n && !failed; r++)
        failed = kolo_irecv(group, numbers[r], LONG, KOLO_INT32, r, NEWS, &works[r]);
    for (int r = n - 1; r > 0 && !failed; r--) {
        failed = expect_none(works, (size_t)n, 0) || kolo_send(group, NULL, 0, KOLO_INT8, r, GO) ||
                 expect_end(works, (size_t)n, (size_t)r, KOLO_OK, "") ||
                 check(numbers[r], r, round);
    }
    return failed || expect_all_taken(works, (size_t)n);
}

static int give_in_turn(kolo_group *group, int round, int32_t *numbers)
{
    const int rank = kolo_group_rank(group);

    for (size_t i = 0; i < LONG; i++)
        numbers[i] = element(rank, round, i);
    return kolo_recv(group, NULL, 0, KOLO_INT8, 0, GO) ||
           kolo_send(group, numbers, LONG, KOLO_INT32, 0, NEWS);
}

static int take_turns(kolo_group *group, void *unused)
{
    int32_t(*numbers)[LONG] = calloc(MOST_RANKS, sizeof *numbers);
    int failed = !numbers;

    (void)unused;
    for (int round = 0; round < 3 && !failed; round++)
        failed = kolo_group_rank(group) == 0 ? take_in_turn(group, round, numbers)
                                             : give_in_turn(group, round, *numbers);
    free(numbers);
    return failed ? ranks_fail("a round") : 0;
}

/* A long send whose receive is late, among receives: it ends as any other. */
static int send_among_receives(kolo_group *group, void *unused)
{
    static const int32_t zeros[50000];
    int32_t *room = calloc(50000, sizeof *room);
    kolo_work *works[2] = {NULL};
    char byte = 0;
    int failed = !room;

    (void)unused;
    if (failed)
        return 1;
    if (kolo_group_rank(group) == 0)
        failed = kolo_irecv(group, &byte, 1, KOLO_INT8, 1, NEWS, &works[0]) ||
                 kolo_isend(group, zeros, 50000, KOLO_INT32, 1, GO, &works[1]) ||
                 expect_none(works, 2, 20) || kolo_send(group, NULL, 0, KOLO_INT8, 1, GO + 3) ||
                 expect_end(works, 2, 1, KOLO_OK, "") ||
                 kolo_send(group, NULL, 0, KOLO_INT8, 1, GO + 3) ||
                 expect_end(works, 2, 0, KOLO_OK, "");
    else
        failed = kolo_recv(group, NULL, 0, KOLO_INT8, 0, GO + 3) ||
                 kolo_recv(group, room, 50000, KOLO_INT32, 0, GO) ||
                 kolo_recv(group, NULL, 0, KOLO_INT8, 0, GO + 3) ||
                 kolo_send(group, &byte, 1, KOLO_INT8, 0, NEWS);
    free(room);
    return failed ? ranks_fail("the call") : 0;
}

static void what_ends_is_told(void **state)
{
    (void)state;
    setenv("KOLO_EAGER_BYTES", "1024", 1);
    assert_int_equal(ranks_run_all_ways(2, take_turns), 0);
    assert_int_equal(ranks_run_all_ways(5, take_turns), 0);
    assert_int_equal(ranks_run_all_ways(2, send_among_receives), 0);
    unsetenv("KOLO_EAGER_BYTES");
}

/* ---- lists ------------------------------------------------------------------------------- */

static int list_oddly(kolo_group *group, void *unused)
{
    const int rank = kolo_group_rank(group);
    kolo_work *works[4] = {NULL};
    char bytes[2] = {0};
    size_t index = 9;
    int failed;

    (void)unused;
    failed = expect_end(NULL, 0, 0, KOLO_OK, "") || expect_all_taken(works, 4) ||
             ranks_expect(kolo_work_wait_any(NULL, 1, 0, &index), KOLO_E_INVALID,
                          "kolo_work_wait_any: works is NULL") ||
             ranks_expect(kolo_work_wait_any(works, 4, 0, NULL), KOLO_E_INVALID,
                          "kolo_work_wait_any: index is NULL") ||
             index != 9;
    /* of two that have ended the first of the list is told, and the same one may be there twice */
    failed = failed || kolo_irecv(group, &bytes[0], 1, KOLO_INT8, rank, 5, &works[3]) ||
             kolo_irecv(group, &bytes[1], 1, KOLO_INT8, rank, 6, &works[1]) ||
             expect_none(works, 4, 0) || expect_none(works, 4, 30) ||
             kolo_send(group, bytes, 1, KOLO_INT8, rank, 5) ||
             kolo_send(group, bytes, 1, KOLO_INT8, rank, 6);
    works[0] = works[3];
    return failed || ranks_expect(kolo_work_wait_any(works, 4, -1, &index), KOLO_OK, "") ||
           index != 0 || expect_end(works + 1, 3, 0, KOLO_OK, "") ||
           expect_end(works + 1, 3, 2, KOLO_OK, "") || expect_all_taken(works + 1, 3);
}

static void lists_may_have_gaps(void **state)
{
    (void)state;
    assert_int_equal(ranks_run_all_ways(1, list_oddly), 0);
    assert_int_equal(ranks_run_all_ways(2, list_oddly), 0);
}

/* ---- ends -------------------------------------------------------------------------------- */

/* Its sender hears of it by one of three calls, all of which do what they were to do. */
static bool is_refused(int err)
{
    return !err || err == KOLO_E_TRUNCATED;
}

/* A message that does not fit ends its work alone. */
static int take_too_much(kolo_group *group, void *unused)
{
    kolo_work *works[2];
    char bytes[3] = {0};

    (void)unused;
    if (kolo_group_rank(group) == 0)
        return kolo_irecv(group, &bytes[0], 1, KOLO_INT8, 1, NEVER, &works[0]) ||
               kolo_irecv(group, &bytes[1], 1, KOLO_INT8, 1, NEWS, &works[1]) ||
               kolo_send(group, NULL, 0, KOLO_INT8, 1, GO) ||
               expect_end(works, 2, 1, KOLO_E_TRUNCATED, "has 2 bytes, the receive room for 1") ||
               kolo_send(group, NULL, 0, KOLO_INT8, 1, GO) || expect_end(works, 2, 0, KOLO_OK, "");
    return kolo_recv(group, NULL, 0, KOLO_INT8, 0, GO) ||
           !is_refused(kolo_send(group, bytes, 2, KOLO_INT8, 0, NEWS)) ||
           !is_refused(kolo_recv(group, NULL, 0, KOLO_INT8, 0, GO)) ||
           !is_refused(kolo_send(group, bytes, 1, KOLO_INT8, 0, NEVER));
}

/* Past the group's limit it fails, and the first of the list with it. */
static int wait_in_vain(kolo_group *group, void *unused)
{
    kolo_work *works[3] = {NULL};
    char bytes[2];
    int failed;

    (void)unused;
    if (kolo_group_rank(group) != 0) {
        ranks_nap_ms(LIMIT_MS + 300);
        return 0;
    }
    (void)kolo_group_set_timeout(group, LIMIT_MS);
    failed = kolo_irecv(group, &bytes[0], 1, KOLO_INT8, 1, 77, &works[1]) ||
             kolo_irecv(group, &bytes[1], 1, KOLO_INT8, 1, 78, &works[2]) ||
             expect_end(works, 3, 1, KOLO_E_TIMEOUT,
                        "for any of 2 works, one of them for a message of tag 77 from rank 1");
    return failed || expect_end(works, 3, 2, KOLO_E_TIMEOUT, "tag 77") ||
           expect_all_taken(works, 3);
}

/* All others have gone, and it is the second of the list that takes any rank. */
static int wait_alone(kolo_group *group, void *unused)
{
    kolo_work *works[2];
    char bytes[2];

    (void)unused;
    if (kolo_group_rank(group) != 0)
        return 0;
    return kolo_irecv(group, &bytes[0], 1, KOLO_INT8, 0, 77, &works[0]) ||
           kolo_irecv(group, &bytes[1], 1, KOLO_INT8, KOLO_ANY_RANK, 78, &works[1]) ||
           expect_end(works, 2, 0, KOLO_E_PEER_LOST, "waits for a message of tag 78 from any") ||
           expect_end(works, 2, 1, KOLO_E_PEER_LOST, "waits for a message of tag 78 from any");
}

/* Rank 1 aborts while rank 0 waits: for messages of one group, or (is_mixed) for those of two. */
static int wait_for_abort(kolo_group *group, void *is_mixed)
{
    const int64_t began_ns = ko_now_ns();
    kolo_group *other;
    kolo_work *works[3] = {NULL};
    char bytes[3];
    int failed = kolo_group_duplicate(group, &other);

    if (failed)
        return ranks_fail("duplicating");
    if (kolo_group_rank(group) == 0) {
        failed = kolo_irecv(*(int *)is_mixed ? other : group, &bytes[0], 1, KOLO_INT8, 1, NEVER,
                            &works[0]) ||
                 kolo_irecv(group, &bytes[1], 1, KOLO_INT8, 1, NEVER, &works[1]) ||
                 kolo_send(group, NULL, 0, KOLO_INT8, 1, GO) ||
                 expect_end(works, 3, *(int *)is_mixed ? 1 : 0, KOLO_E_ABORTED, "enough") ||
                 ranks_within(began_ns, RANKS_SOON_MS, "the abort");
        kolo_group_abort(other, "this one too");
    } else {
        failed = kolo_recv(group, NULL, 0, KOLO_INT8, 0, GO);
        ranks_nap_ms(50);
        kolo_group_abort(group, "enough");
        (void)kolo_recv(other, NULL, 0, KOLO_INT8, 0, GO); /* until that is aborted, too */
    }
    for (int i = 0; i < 3; i++)
        kolo_work_free(works[i]);
    kolo_group_free(other);
    return failed;
}

static void run_both(int n, ranks_body body, void *argument)
{
    struct ranks ranks = {.kind = RANKS_THREADS, .n = n};

    assert_int_equal(ranks_run(&ranks, body, argument), 0);
    ranks.kind = RANKS_PROCESSES;
    if (!HAS_TSAN)
        assert_int_equal(ranks_run(&ranks, body, argument), 0);
}

static void errors_are_the_works(void **state)
{
    (void)state;
    assert_int_equal(ranks_run_all_ways(2, take_too_much), 0);
    setenv("KOLO_DEBUG", "NONE", 1);
    run_both(2, wait_in_vain, NULL);
    run_both(3, wait_alone, NULL);
    run_both(2, wait_for_abort, &(int){0});
    run_both(2, wait_for_abort, &(int){1});
    unsetenv("KOLO_DEBUG");
}

/* ---- other works ------------------------------------------------------------------------- */

/* A batch, a collective and messages of two groups, each of which ends when rank 1 has been told.
 */
enum { OF_BATCH, OF_GATHERING, OF_ONE, OF_OTHER, OF_ALL };

static int begin_mixed(kolo_group *group, kolo_group *other, char *bytes, kolo_work **works)
{
    const kolo_p2p ops[] = {{0, 1, OF_BATCH, KOLO_INT8, 1, bytes, NULL},
                            {0, 1, OF_BATCH, KOLO_INT8, 1, bytes + 1, NULL}};

    return kolo_batch_async(group, ops, 2, &works[OF_BATCH]) ||
           kolo_barrier_async(group, &works[OF_GATHERING]) ||
           kolo_irecv(group, bytes + 2, 1, KOLO_INT8, 1, OF_ONE, &works[OF_ONE]) ||
           kolo_irecv(other, bytes + 3, 1, KOLO_INT8, 1, OF_OTHER, &works[OF_OTHER]);
}

static int end_one(kolo_group *group, kolo_group *other, int which)
{
    const char byte = 1;

    switch (which) {
    case OF_GATHERING:
        return kolo_barrier(group);
    case OF_BATCH:
        return kolo_send(group, &byte, 1, KOLO_INT8, 0, which) ||
               kolo_send(group, &byte, 1, KOLO_INT8, 0, which);
    default:
        return kolo_send(which == OF_OTHER ? other : group, &byte, 1, KOLO_INT8, 0, which);
    }
}

static int mix(kolo_group *group, void *unused)
{
    static const int orders[][OF_ALL] = {{OF_OTHER, OF_ONE, OF_GATHERING, OF_BATCH},
                                         {OF_BATCH, OF_GATHERING, OF_ONE, OF_OTHER},
                                         {OF_GATHERING, OF_OTHER, OF_BATCH, OF_ONE}};
    kolo_work *works[OF_ALL];
    kolo_group *other;
    char bytes[4];
    int failed = kolo_group_duplicate(group, &other);

    (void)unused;
    for (int i = 0; i < 3 && !failed; i++) {
        failed = kolo_group_rank(group) == 0 && begin_mixed(group, other, bytes, works);
        for (int k = 0; k < OF_ALL && !failed; k++) {
            const int which = orders[i][k];

            if (kolo_group_rank(group) == 0)
                failed = expect_none(works, OF_ALL, k) ||
                         kolo_send(group, NULL, 0, KOLO_INT8, 1, GO + OF_ALL) ||
                         expect_end(works, OF_ALL, (size_t)which, KOLO_OK, "");
            else
                failed = kolo_recv(group, NULL, 0, KOLO_INT8, 0, GO + OF_ALL) ||
                         end_one(group, other, which);
        }
    }
    kolo_group_free(other);
    return failed ? ranks_fail("a work of another kind") : 0;
}

/* Of two collectives the one that all have made ends, which is the second of the list. */
static int wait_for_collectives(kolo_group *group, void *unused)
{
    const int n = kolo_group_size(group);
    kolo_work *works[2];
    int failed = 0;

    (void)unused;
    if (kolo_group_rank(group) != 0)
        return kolo_barrier(group) || kolo_recv(group, NULL, 0, KOLO_INT8, 0, GO) ||
               kolo_barrier(group);
    failed = kolo_barrier_async(group, &works[1]) || kolo_barrier_async(group, &works[0]) ||
             expect_end(works, 2, 1, KOLO_OK, "") || expect_none(works, 2, 20);
    for (int r = 1; r < n && !failed; r++)
        failed = kolo_send(group, NULL, 0, KOLO_INT8, r, GO);
    return failed || expect_end(works, 2, 0, KOLO_OK, "");
}

static void works_may_be_of_any_kind(void **state)
{
    (void)state;
    assert_int_equal(ranks_run_all_ways(2, mix), 0);
    assert_int_equal(ranks_run_all_ways(3, wait_for_collectives), 0);
}

/* ---- threads ----------------------------------------------------------------------------- */

struct waiter {
    kolo_group *group;
    int tag, failed;
    pthread_t thread;
};

/* Each thread has two receives of its own, and some other one drives what comes. */
static void *wait_beside(void *argument)
{
    struct waiter *waiter = argument;
    kolo_work *works[2] = {NULL};
    char bytes[2];

    for (int i = 0; i < 50 && !waiter->failed; i++)
        waiter->failed =
            kolo_irecv(waiter->group, &bytes[0], 1, KOLO_INT8, 1, waiter->tag, &works[0]) ||
            kolo_irecv(waiter->group, &bytes[1], 1, KOLO_INT8, 1, waiter->tag + 1, &works[1]) ||
            kolo_send(waiter->group, NULL, 0, KOLO_INT8, 1, waiter->tag) ||
            expect_end(works, 2, 1, KOLO_OK, "") ||
            kolo_send(waiter->group, NULL, 0, KOLO_INT8, 1, waiter->tag) ||
            expect_end(works, 2, 0, KOLO_OK, "");
    return NULL;
}

static void *answer_beside(void *argument)
{
    struct waiter *waiter = argument;
    const char byte = 1;

    for (int i = 0; i < 100 && !waiter->failed; i++)
        waiter->failed =
            kolo_recv(waiter->group, NULL, 0, KOLO_INT8, 0, waiter->tag) ||
            kolo_send(waiter->group, &byte, 1, KOLO_INT8, 0, waiter->tag + (i % 2 == 0));
    return NULL;
}

static int wait_in_threads(kolo_group *group, void *unused)
{
    struct waiter waiters[3];
    int failed = 0;

    (void)unused;
    for (int i = 0; i < 3; i++) {
        waiters[i] = (struct waiter){.group = group, .tag = 2 * i};
        if (pthread_create(&waiters[i].thread, NULL,
                           kolo_group_rank(group) ? answer_beside : wait_beside, &waiters[i]))
            abort();
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(waiters[i].thread, NULL);
        failed |= waiters[i].failed;
    }
    return failed ? ranks_fail("a thread") : 0;
}

static void threads_wait_beside_each_other(void **state)
{
    (void)state;
    run_both(2, wait_in_threads, NULL);
}

/* ---- rest -------------------------------------------------------------------------------- */

static int64_t own_cpu_ns(void)
{
    struct timespec used;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return (int64_t)used.tv_sec * 1000000000 + used.tv_nsec;
}

/* 0 if the thread sleeps for most of a wait that has nothing to see. */
static int expect_sleep(kolo_work **works, size_t nworks, const char *what)
{
    enum { NAP_MS = 500 };
    const int64_t began_ns = own_cpu_ns();
    int failed = expect_none(works, nworks, NAP_MS);
    const int64_t used_ms = (own_cpu_ns() - began_ns) / 1000000;

    if (!failed && used_ms > NAP_MS / 2)
        failed = ranks_fail("%s: %d ms of the processor's in %d", what, (int)used_ms, NAP_MS);
    return failed;
}

static int sleep_well(kolo_group *group, void *unused)
{
    kolo_work *works[3];
    kolo_group *other;
    char bytes[3];
    int failed = kolo_group_duplicate(group, &other) || kolo_barrier(group);

    (void)unused;
    if (kolo_group_rank(group) == 0)
        failed = failed || kolo_irecv(group, &bytes[0], 1, KOLO_INT8, 1, NEWS, &works[0]) ||
                 kolo_irecv(group, &bytes[1], 1, KOLO_INT8, 1, NEWS, &works[1]) ||
                 kolo_irecv(other, &bytes[2], 1, KOLO_INT8, 1, NEWS, &works[2]) ||
                 expect_sleep(works, 2, "one group") || expect_sleep(works, 3, "two groups") ||
                 kolo_send(group, NULL, 0, KOLO_INT8, 1, GO) || kolo_work_wait(works[0], -1) ||
                 kolo_work_wait(works[1], -1) || kolo_work_wait(works[2], -1) ||
                 expect_end(works, 3, 0, KOLO_OK, "") || expect_end(works, 3, 1, KOLO_OK, "") ||
                 expect_end(works, 3, 2, KOLO_OK, "");
    else
        failed = failed || kolo_recv(group, NULL, 0, KOLO_INT8, 0, GO) ||
                 kolo_send(group, bytes, 1, KOLO_INT8, 0, NEWS) ||
                 kolo_send(group, bytes, 1, KOLO_INT8, 0, NEWS) ||
                 kolo_send(other, bytes, 1, KOLO_INT8, 0, NEWS);
    kolo_group_free(other);
    return failed ? ranks_fail("sleeping") : 0;
}

static void who_waits_sleeps(void **state)
{
    (void)state;
    run_both(2, sleep_well, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_ends_is_told),
        cmocka_unit_test(lists_may_have_gaps),
        cmocka_unit_test(errors_are_the_works),
        cmocka_unit_test(works_may_be_of_any_kind),
        cmocka_unit_test(threads_wait_beside_each_other),
        cmocka_unit_test(who_waits_sleeps),
    };

    set_small_slots();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
