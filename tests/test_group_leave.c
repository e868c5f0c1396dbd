/* SPDX-License-Identifier: MIT
 *
 * For whom rank 0, which serves the store, waits when it frees the world, and for whom not.
 */
#include "clock.h"
#include "letters.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

/* Ranks 1 and 3 take their time. */
static int leave_late(kolo_group *group, void *argument)
{
    (void)argument;
    if (kolo_barrier(group))
        return ranks_fail("barrier");
    ranks_nap_ms(kolo_group_rank(group) % 2 * 3000);
    return 0;
}

static void who_is_waited_for_is_logged(void **state)
{
    static const char text[] = "WARN rank 0 serves the store, and waits in kolo_group_free, for "
                               "30000 ms at most, for 2 of 4 ranks that have not freed the group: "
                               "rank 1, 3\n";
    char log[1 << 14], *found;

    (void)state;
    letters_set("shm", false);
    assert_int_equal(ranks_run_logged(4, leave_late, log, sizeof log), 0);
    found = strstr(log, text);
    assert_non_null(found);
    assert_null(strstr(found + sizeof text - 1, "waits in kolo_group_free"));
}

/* Rank 2 dies before anybody has had to do with it. */
static int die_unmet(kolo_group *group, void *argument)
{
    (void)argument;
    return kolo_group_rank(group) == 2 ? raise(SIGKILL) : 0;
}

static int settle_apart(int rank, void *argument)
{
    char host[16];

    (void)argument;
    snprintf(host, sizeof host, "host%d", rank);
    return setenv("KOLO_HOST", host, 1);
}

/* Whether its process is one of this machine's, or only the store can tell. */
static void who_has_ended_is_not_waited_for(void **state)
{
    struct ranks ranks = {.kind = RANKS_PROCESSES, .n = 3, .tolerated = 1};

    (void)state;
    for (int i = 0; i < 2; i++) {
        const int64_t began_ns = ko_now_ns();

        ranks.settle = i ? settle_apart : NULL;
        letters_set(i ? "tcp" : "shm", false);
        assert_int_equal(ranks_run(&ranks, die_unmet, NULL), 0);
        assert_int_equal(ranks_within(began_ns, 20000, "rank 0, which serves the store, has gone"),
                         0);
    }
}

/* Rank 1 is killed before it has connected to rank 2 of another machine, which waits for that. */
static int wait_for_the_dead_elsewhere(kolo_group *world, void *argument)
{
    const bool *is_for_any = argument;
    const int members[] = {1, 2}, rank = kolo_group_rank(world);
    const int64_t began_ns = ko_now_ns();
    kolo_group *pair;
    int err, failed;
    char byte;

    if (rank == 1)
        raise(SIGKILL);
    if (rank == 0)
        return 0;
    if (kolo_group_new_local(world, members, 2, 0, &pair))
        return ranks_fail("a group");
    err = kolo_recv(pair, &byte, 1, KOLO_UINT8, *is_for_any ? KOLO_ANY_RANK : 0, 0);
    failed = ranks_expect_soon(began_ns, err, KOLO_E_PEER_LOST,
                               *is_for_any ? "before they had connected: rank 0"
                                           : "rank 0 (rank 1 of the world, ");
    kolo_group_free(pair);
    return failed;
}

static void who_has_ended_elsewhere_is_seen(void **state)
{
    const struct ranks ranks = {
        .kind = RANKS_PROCESSES, .n = 3, .tolerated = 1, .settle = settle_apart};

    (void)state;
    for (int i = 0; i < 2; i++) {
        bool is_for_any = i;

        letters_set("tcp", false);
        assert_int_equal(ranks_run(&ranks, wait_for_the_dead_elsewhere, &is_for_any), 0);
    }
}

/* Stops this process; the timer's signal makes it go on. */
static int stop_for_a_while(int ms)
{
    struct sigevent goes_on = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGCONT};
    const struct itimerspec when = {.it_value = {ms / 1000, ms % 1000 * 1000000L}};
    timer_t timer;
    int err = timer_create(CLOCK_MONOTONIC, &goes_on, &timer);

    err = err || timer_settime(timer, 0, &when, NULL) || raise(SIGSTOP) || timer_delete(timer);
    return err ? ranks_fail("a stop") : 0;
}

/* Rank 0 does not answer for a while, which ends what rank 1 asks the store. */
static int outlast_a_stop(kolo_group *world, void *argument)
{
    const int rank = kolo_group_rank(world);

    (void)argument;
    if (kolo_barrier(world))
        return ranks_fail("a first barrier");
    if ((!rank && stop_for_a_while(2500)) || kolo_barrier(world))
        return ranks_fail("a barrier around a stop");
    ranks_nap_ms(rank * 1000);
    return kolo_monitored_barrier(world, -1, 0) ? ranks_fail("rank %d is there", rank) : 0;
}

static void who_has_asked_in_vain_lives(void **state)
{
    const struct ranks ranks = {.kind = RANKS_PROCESSES, .n = 2};

    (void)state;
    letters_set("shm", false);
    assert_int_equal(ranks_run(&ranks, outlast_a_stop, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {/* before anything has opened the log here */
                                       cmocka_unit_test(who_is_waited_for_is_logged),
                                       cmocka_unit_test(who_has_ended_is_not_waited_for),
                                       cmocka_unit_test(who_has_ended_elsewhere_is_seen),
                                       cmocka_unit_test(who_has_asked_in_vain_lives)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
