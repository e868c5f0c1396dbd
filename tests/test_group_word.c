/* SPDX-License-Identifier: MIT
 *
 * A rank that has failed in one group is missed in another: who waits for it there hears why.
 */
#include "letters.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { LAST = 2 };

/* What rank 0 or 1 does once it has failed in the world: it frees its groups, or ends at once. */
struct going {
    int rank;
    bool is_met, is_sudden;
    bool is_for_any; /* the other waits for a message of any rank */
};

static int fail_in_the_world(kolo_group *world, const struct going *going)
{
    char byte;
    const int err = kolo_recv(world, &byte, 1, KOLO_UINT8, LAST, 0);
    const int failed = ranks_expect(err, KOLO_E_PEER_LOST, "rank 2 (");

    return !failed && going->is_sudden ? raise(SIGKILL) : failed;
}

/* In the pair the ranks have each other's numbers. */
static int wait_in_vain(kolo_group *pair, const struct going *going)
{
    const int peer = 1 - going->rank;
    char byte, reason[80], then[80];
    int err;

    snprintf(reason, sizeof reason, "another group of rank %d's failed: rank 2 (", peer);
    snprintf(then, sizeof then, "; then rank %d (rank %d of the world, ", peer, going->rank);
    err = kolo_recv(pair, &byte, 1, KOLO_UINT8, going->is_for_any ? KOLO_ANY_RANK : peer, 0);
    return ranks_expect(err, KOLO_E_PEER_LOST, reason) ||
           (!going->is_for_any && ranks_expect(err, KOLO_E_PEER_LOST, then));
}

/* Ranks 0 and 1 of the world have a group in which they are ranks 1 and 0. */
static int miss_who_failed_elsewhere(kolo_group *world, void *argument)
{
    const struct going *going = argument;
    const int members[] = {1, 0}, rank = kolo_group_rank(world);
    kolo_group *pair;
    int failed;

    if (kolo_group_new(world, members, 2, &pair))
        return ranks_fail("a group of two");
    if (rank == LAST)
        return raise(SIGKILL);
    if (going->is_met && ranks_exchange(pair))
        return ranks_fail("bytes");
    failed = rank == going->rank ? fail_in_the_world(world, going) : wait_in_vain(pair, going);
    kolo_group_free(pair);
    return failed;
}

/* Rank 0 serves the store: it stays for those who still miss it. */
static void who_is_lost_had_a_reason(void **state)
{
    static const char *const transports[] = {"shm", "tcp", "rdma"};

    (void)state;
    for (int i = 0; i < 48; i++) {
        struct going going = {
            .rank = i & 1, .is_met = i & 2, .is_for_any = i & 4, .is_sudden = i & 8};
        const struct ranks ranks = {
            .kind = RANKS_PROCESSES, .n = 3, .tolerated = going.is_sudden ? 2 : 1};

        if (going.is_sudden && going.rank == 0)
            continue; /* the store would go with it */
        letters_set(transports[i >> 4], false);
        assert_int_equal(ranks_run(&ranks, miss_who_failed_elsewhere, &going), 0);
    }
}

static int wait_for_who_has_failed(kolo_group *group)
{
    char byte;
    int err;

    kolo_group_set_timeout(group, 1000);
    err = kolo_recv(group, &byte, 1, KOLO_UINT8, 1, 0);
    return ranks_expect(err, KOLO_E_TIMEOUT,
                        "another group of rank 1's failed: rank 1 aborted the group: no more of "
                        "this; then rank 0 waited 1000 ms");
}

/* Rank 1 gives the first group up, and stays. */
static int miss_who_has_failed_and_stays(kolo_group *world, void *argument)
{
    kolo_group *groups[2];
    int failed = 0;

    (void)argument;
    if (ranks_duplicate(world, groups, 2))
        return 1;
    if (kolo_group_rank(world))
        kolo_group_abort(groups[0], "no more of this");
    else
        failed = wait_for_who_has_failed(groups[1]);
    if (!failed && kolo_barrier(world))
        failed = ranks_fail("barrier");
    ranks_free_all(groups, 2);
    return failed;
}

static void who_is_late_had_a_reason(void **state)
{
    (void)state;
    letters_set("shm", false);
    assert_int_equal(ranks_run_all_ways(2, miss_who_has_failed_and_stays), 0);
}

/* Rank 1 has given a group up, and has made others since: it is late for another reason. */
static int miss_who_has_recovered(kolo_group *world, void *argument)
{
    kolo_group *groups[2], *later = NULL;
    int failed = 0;
    char byte;

    (void)argument;
    if (ranks_duplicate(world, groups, 2))
        return 1;
    if (kolo_group_rank(world))
        kolo_group_abort(groups[0], "no more of this");
    if (kolo_group_duplicate(world, &later) || kolo_barrier(later))
        failed = ranks_fail("a group after a failure");
    kolo_group_free(later);
    if (!failed && kolo_group_rank(world) == 0) {
        kolo_group_set_timeout(groups[1], 500);
        failed = ranks_expect(kolo_recv(groups[1], &byte, 1, KOLO_UINT8, 1, 0), KOLO_E_TIMEOUT,
                              "rank 0 waited 500 ms for a message of tag 0 from rank 1");
        if (!failed && strstr(kolo_last_error(), "no more of this"))
            failed = ranks_fail("a reason that is none any more");
    }
    if (!failed && kolo_barrier(world))
        failed = ranks_fail("barrier");
    ranks_free_all(groups, 2);
    return failed;
}

static void who_has_recovered_is_late_for_itself(void **state)
{
    (void)state;
    letters_set("shm", false);
    assert_int_equal(ranks_run_all_ways(2, miss_who_has_recovered), 0);
}

/* Rank 0 dies, which serves the store; the others have a group of their own, in which one of them
 * waits for the other, which has failed in the world. */
static int miss_who_missed_the_server(kolo_group *world, void *argument)
{
    const int members[] = {1, 2}, rank = kolo_group_rank(world);
    kolo_group *pair;
    char byte;
    int failed;

    (void)argument;
    if (kolo_group_new(world, members, 2, &pair) || (pair && ranks_exchange(pair)) ||
        ranks_let_be_last(world, 0))
        return ranks_fail("a group of two");
    if (rank == 0)
        return raise(SIGKILL);
    if (rank == 1)
        failed = ranks_expect(kolo_recv(world, &byte, 1, KOLO_UINT8, 0, 0), KOLO_E_PEER_LOST,
                              "rank 0 (");
    else
        failed = ranks_expect(
            kolo_recv(pair, &byte, 1, KOLO_UINT8, 0, 0), KOLO_E_PEER_LOST,
            "rank 0 of the world, which serves the store, was lost; then rank 0 (rank 1 of ");
    kolo_group_free(pair);
    return failed;
}

static void who_is_lost_had_lost_the_server(void **state)
{
    static const char *const transports[] = {"shm", "tcp", "rdma"};
    const struct ranks ranks = {.kind = RANKS_PROCESSES, .n = 3, .tolerated = 1};

    (void)state;
    for (int i = 0; i < 3; i++) {
        letters_set(transports[i], false);
        assert_int_equal(ranks_run(&ranks, miss_who_missed_the_server, NULL), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(who_is_lost_had_a_reason),
                                       cmocka_unit_test(who_is_late_had_a_reason),
                                       cmocka_unit_test(who_has_recovered_is_late_for_itself),
                                       cmocka_unit_test(who_is_lost_had_lost_the_server)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
