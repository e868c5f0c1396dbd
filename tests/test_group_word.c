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

#include <cmocka.h>

enum { LAST = 2 };

/* What rank 1 does once it has failed in the world: it frees its groups, or ends at once. */
struct going {
    bool is_met, is_sudden;
    bool is_for_any; /* rank 0 waits for a message of any rank */
};

static int fail_in_the_world(kolo_group *world, const struct going *going)
{
    const int failed = ranks_expect(kolo_barrier(world), KOLO_E_PEER_LOST, "rank 2 (");

    return !failed && going->is_sudden ? raise(SIGKILL) : failed;
}

static int wait_in_vain(kolo_group *pair, bool is_for_any)
{
    char byte;
    const int err = kolo_recv(pair, &byte, 1, KOLO_UINT8, is_for_any ? KOLO_ANY_RANK : 0, 0);

    return ranks_expect(err, KOLO_E_PEER_LOST, "another group of rank 0's failed: rank 2 (") ||
           (!is_for_any &&
            ranks_expect(err, KOLO_E_PEER_LOST, "; then rank 0 (rank 1 of the world, "));
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
    failed = rank == 1 ? fail_in_the_world(world, going) : wait_in_vain(pair, going->is_for_any);
    kolo_group_free(pair);
    return failed;
}

static void who_is_lost_had_a_reason(void **state)
{
    static const char *const transports[] = {"shm", "tcp", "rdma"};

    (void)state;
    for (int i = 0; i < 24; i++) {
        struct going going = {.is_met = i & 1, .is_sudden = i & 2, .is_for_any = i & 4};
        const struct ranks ranks = {
            .kind = RANKS_PROCESSES, .n = 3, .tolerated = going.is_sudden ? 2 : 1};

        letters_set(transports[i >> 3], false);
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(who_is_lost_had_a_reason),
                                       cmocka_unit_test(who_is_late_had_a_reason)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
