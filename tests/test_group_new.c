/* SPDX-License-Identifier: MIT
 *
 * Groups of groups: by lists that all ranks know or only the members, by color and key, in whatever
 * order and by several threads at once.
 */
#include "exam.h"
#include "group.h"
#include "ranks.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- lists that all ranks know ----------------------------------------------------------- */

/* In and out of the group, in an order of its own, while an overlapping one is used too. */
static int make_groups(kolo_group *world, void *argument)
{
    static const int some[] = {3, 0, 2}, others[] = {1, 2, 3};
    static const int place_in_some[] = {1, -1, 2, 0}, place_in_others[] = {-1, 0, 1, 2};
    const int rank = kolo_group_rank(world);
    kolo_group *a = NULL, *b = NULL;
    int failed = 0;

    (void)argument;
    if (kolo_group_new(world, some, 3, &a) || kolo_group_new(world, others, 3, &b))
        return ranks_fail("group_new");
    if (kolo_group_rank(a) != place_in_some[rank] || kolo_group_rank(b) != place_in_others[rank])
        failed = ranks_fail("rank %d is %d and %d", rank, kolo_group_rank(a), kolo_group_rank(b));
    for (int what = 0; what < KO_NCOLLECTIVES && !failed; what++) {
        struct exam exam = {.what = (enum ko_collective)what, .count = 500};

        failed |= exam_take(world, &exam);
        exam.root = exam_has_root(exam.what) ? what % 3 : 0;
        failed |= a && exam_take(a, &exam);
        failed |= b && exam_take(b, &exam);
    }
    kolo_group_free(a);
    kolo_group_free(b);
    return failed;
}

struct lane {
    pthread_t thread;
    kolo_group *group;
    int failed;
};

static void *lane_main(void *argument)
{
    struct lane *lane = argument;

    for (int i = 0; i < 40 && lane->group && !lane->failed; i++)
        lane->failed =
            exam_take(lane->group, &(struct exam){.what = (enum ko_collective)(i % KO_NCOLLECTIVES),
                                                  .count = (size_t)i * 11});
    return NULL;
}

/* Overlapping groups, each used by a thread of its own. */
static int use_groups_at_once(kolo_group *world, void *argument)
{
    static const int members[3][3] = {{0, 1, 2}, {3, 2, 1}, {0, 3, 2}};
    struct lane lanes[3] = {{.failed = 0}};
    int failed = 0;

    (void)argument;
    for (int i = 0; i < 3; i++)
        if (kolo_group_new(world, members[i], 3, &lanes[i].group))
            return ranks_fail("group_new");
    for (int i = 0; i < 3; i++)
        if (pthread_create(&lanes[i].thread, NULL, lane_main, &lanes[i]))
            abort();
    for (int i = 0; i < 3; i++) {
        pthread_join(lanes[i].thread, NULL);
        failed |= lanes[i].failed;
        kolo_group_free(lanes[i].group);
    }
    return failed;
}

/* Each rank makes the group later than the one before it, which has by then begun to connect to it:
 * whoever was waiting in another group has taken those connections in. */
static int make_a_group_late(kolo_group *world, void *argument)
{
    static const int all[] = {0, 1, 2};
    const int rank = kolo_group_rank(world);
    kolo_group *group;
    kolo_work *work;
    int failed = 0;

    (void)argument;
    if (kolo_irecv(world, NULL, 0, KOLO_UINT8, rank, 1, &work))
        return ranks_fail("irecv");
    if (rank)
        failed = kolo_work_wait(work, 100 * rank) != KOLO_E_TIMEOUT;
    if (failed || kolo_group_new(world, all, 3, &group))
        return ranks_fail("group_new");
    failed |= exam_take(group, &(struct exam){.what = KO_ALL_REDUCE, .count = 30});
    failed |= kolo_send(world, NULL, 0, KOLO_UINT8, rank, 1) || kolo_work_wait(work, -1);
    kolo_work_free(work);
    kolo_group_free(group);
    return failed;
}

static void connections_may_come_before_their_group(void **state)
{
    (void)state;
    setenv("KOLO_ALGO", "ring", 1);
    assert_int_equal(ranks_run_all_ways(3, make_a_group_late), 0);
    unsetenv("KOLO_ALGO");
}

static int split_groups(kolo_group *world, void *argument)
{
    const int rank = kolo_group_rank(world), n = kolo_group_size(world);
    const int last = (n - 1 - rank % 2) / 2;
    kolo_group *halves = NULL, *rest = NULL, *after = NULL;
    int failed = 0;

    (void)argument;
    if (kolo_group_split(world, rank % 2, -rank, &halves)) /* the highest rank becomes the first */
        return ranks_fail("split");
    if (kolo_group_size(halves) != last + 1 || kolo_group_rank(halves) != last - rank / 2)
        failed = ranks_fail("rank %d is %d of %d", rank, kolo_group_rank(halves),
                            kolo_group_size(halves));
    failed |= exam_take(halves, &(struct exam){.what = KO_ALL_GATHER, .count = 77});
    if (kolo_group_split(world, rank == 0 ? -1 : 5, 0, &rest))
        return ranks_fail("split");
    if ((rank == 0) != (rest == NULL) || (rest && kolo_group_rank(rest) != rank - 1))
        failed = ranks_fail("rank %d in the rest", rank);
    failed |= rest && exam_take(rest, &(struct exam){.what = KO_ALL_REDUCE, .count = 77});
    /* Rank 0 has kept count of groups that it is not in. */
    failed |= kolo_group_split(world, 0, 0, &after) ||
              exam_take(after, &(struct exam){.what = KO_ALL_REDUCE, .count = 9});
    kolo_group_free(after);
    kolo_group_free(rest);
    kolo_group_free(halves);
    return failed;
}

static int list_wrongly(kolo_group *world, void *argument)
{
    static const int twice[] = {0, 0}, beyond[] = {0, 2}, all[] = {0, 1, 0};
    kolo_group *group = NULL;
    int failed = 0;

    (void)argument;
    failed |= ranks_expect(kolo_group_new(world, twice, 2, &group), KOLO_E_INVALID,
                           "rank 0 is listed twice in the new group");
    failed |= ranks_expect(kolo_group_new(world, beyond, 2, &group), KOLO_E_INVALID,
                           "a member of the new group is rank 2; the group has ranks 0 to 1");
    failed |= ranks_expect(kolo_group_new(world, all, 3, &group), KOLO_E_INVALID,
                           "a group of 3 of 2 ranks");
    failed |= ranks_expect(kolo_group_new(world, all, 0, &group), KOLO_E_INVALID,
                           "a group of 0 of 2 ranks");
    failed |= ranks_expect(kolo_group_new(world, NULL, 2, &group), KOLO_E_INVALID, "cannot be");
    failed |= ranks_expect(kolo_group_new(world, all, 2, NULL), KOLO_E_INVALID, "group is NULL");
    failed |= ranks_expect(kolo_group_split(world, 0, 0, NULL), KOLO_E_INVALID, "group is NULL");
    failed |= group != NULL;
    return failed | (kolo_barrier(world) != 0);
}

static void groups_are_made_of_groups(void **state)
{
    (void)state;
    assert_int_equal(ranks_run_all_ways(4, make_groups), 0);
    assert_int_equal(ranks_run_all_ways(4, use_groups_at_once), 0);
    assert_int_equal(ranks_run_all_ways(5, split_groups), 0);
    assert_int_equal(ranks_run_all_ways(2, list_wrongly), 0);
}

/* ---- lists that only the members know ---------------------------------------------------- */

static int sum_ranks(kolo_group *group)
{
    int mine = kolo_group_rank(group) + 1, sum = 0;
    const int n = kolo_group_size(group);

    if (kolo_all_reduce(group, &mine, &sum, 1, KOLO_INT32, KOLO_SUM) || sum != n * (n + 1) / 2)
        return ranks_fail("a sum of %d", sum);
    return 0;
}

/* Pairs of neighbours around the ring: each rank is in two, and begins with another one than the
 * rank before it does. The third rank of four knows nothing of the first pair. */
static int make_pairs(kolo_group *world, void *argument)
{
    const int rank = kolo_group_rank(world), n = kolo_group_size(world);
    const int right[] = {rank, (rank + 1) % n}, left[] = {(rank + n - 1) % n, rank};
    kolo_group *groups[2] = {NULL, NULL};
    int failed = 0;

    (void)argument;
    for (int i = 0; i < 2; i++) {
        const int which = (rank + i) % 2;

        if (kolo_group_new_local(world, which ? right : left, 2, 0, &groups[which]))
            return ranks_fail("pair %d", which);
    }
    failed |= kolo_group_rank(groups[0]) != 1 || kolo_group_rank(groups[1]) != 0;
    for (int i = 0; i < 2 && !failed; i++)
        failed = sum_ranks(groups[(rank + i) % 2]);
    kolo_group_free(groups[0]);
    kolo_group_free(groups[1]);
    return failed;
}

/* One list, several times: each time another group, the first still there. */
static int make_twice(kolo_group *world, void *argument)
{
    static const int some[] = {2, 0}, other[] = {0, 2};
    kolo_group *groups[4] = {NULL};
    int failed = 0, got = 0;

    (void)argument;
    if (kolo_group_rank(world) == 1)
        return ranks_expect(kolo_group_new_local(world, some, 2, 0, &groups[0]), KOLO_E_INVALID,
                            "rank 1 is not listed; only the members");
    for (int i = 0; i < 4 && !failed; i++)
        failed = kolo_group_new_local(world, i == 3 ? other : some, 2, i == 2, &groups[i]) &&
                 ranks_fail("group %d", i);
    for (int i = 0; i < 4 && !failed; i++) { /* messages, of which each must find its group */
        if (kolo_group_rank(groups[i]) == 0)
            failed = kolo_send(groups[i], &i, 1, KOLO_INT32, 1, 0);
    }
    for (int i = 4; i-- && !failed;)
        if (kolo_group_rank(groups[i]) == 1)
            failed = kolo_recv(groups[i], &got, 1, KOLO_INT32, 0, 0) || got != i;
    for (int i = 0; i < 4; i++)
        kolo_group_free(groups[i]);
    return failed ? ranks_fail("%d came", got) : 0;
}

struct maker {
    pthread_t thread;
    kolo_group *parent;
    int tag;
    int failed;
};

static void *maker_main(void *argument)
{
    struct maker *maker = argument;
    int all[8];

    for (int r = 0; r < kolo_group_size(maker->parent); r++)
        all[r] = r;
    for (int i = 0; i < 10 && !maker->failed; i++) {
        kolo_group *group;

        maker->failed = kolo_group_new_local(maker->parent, all, kolo_group_size(maker->parent),
                                             maker->tag, &group);
        if (maker->failed)
            break;
        maker->failed = exam_take(
            group, &(struct exam){.what = KO_ALL_REDUCE, .count = (size_t)(maker->tag * 10 + i)});
        kolo_group_free(group);
    }
    return NULL;
}

/* Threads make groups of one list at once, each of its own tag. */
static int make_at_once(kolo_group *world, void *argument)
{
    struct maker makers[4];
    int failed = 0;

    (void)argument;
    for (int i = 0; i < 4; i++) {
        makers[i] = (struct maker){.parent = world, .tag = i};
        if (pthread_create(&makers[i].thread, NULL, maker_main, &makers[i]))
            abort();
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(makers[i].thread, NULL);
        failed |= makers[i].failed;
    }
    return failed;
}

static void members_alone_make_groups(void **state)
{
    (void)state;
    assert_int_equal(ranks_run_all_ways(4, make_pairs), 0);
    assert_int_equal(ranks_run_all_ways(3, make_twice), 0);
    assert_int_equal(ranks_run_all_ways(3, make_at_once), 0);
}

/* ---- groups of groups of groups ---------------------------------------------------------- */

/* Halves of halves until each rank is alone. */
static int halve(kolo_group *world, void *argument)
{
    kolo_group *groups[4] = {world}, *all = NULL;
    int depth = 0, failed = 0, size = kolo_group_size(world);

    (void)argument;
    for (; size > 1 && !failed; size = kolo_group_size(groups[depth])) {
        const int color = kolo_group_rank(groups[depth]) >= size / 2;

        failed = kolo_group_split(groups[depth], color, 0, &groups[depth + 1]) &&
                 ranks_fail("split %d", depth);
        depth += !failed;
        failed |= failed || sum_ranks(groups[depth]);
    }
    failed |= failed || kolo_group_duplicate(groups[1], &all) || sum_ranks(all) ||
              kolo_group_size(all) != kolo_group_size(groups[1]) ||
              kolo_group_rank(all) != kolo_group_rank(groups[1]);
    kolo_group_free(all);
    while (depth > 0)
        kolo_group_free(groups[depth--]);
    return failed;
}

/* A duplicate's failure, time-out and messages are its own. */
static int duplicate(kolo_group *world, void *argument)
{
    const int rank = kolo_group_rank(world);
    kolo_group *twin;
    int failed = 0, got = 0;

    (void)argument;
    if (kolo_group_duplicate(world, &twin) || kolo_group_timeout(twin) != kolo_group_timeout(world))
        return ranks_fail("duplicate");
    if (rank == 0)
        for (int i = 1; i < 3; i++)
            failed |= kolo_send(i == 1 ? world : twin, &i, 1, KOLO_INT32, 1, 5);
    else
        failed |= kolo_recv(twin, &got, 1, KOLO_INT32, 0, 5) || got != 2 ||
                  kolo_recv(world, &got, 1, KOLO_INT32, 0, 5) || got != 1;
    failed |= kolo_barrier(twin) || kolo_group_set_timeout(twin, 100);
    if (!failed && rank == 0) /* for what nobody sends */
        failed = ranks_expect(kolo_recv(twin, &got, 1, KOLO_INT32, 1, 6), KOLO_E_TIMEOUT, "100 ms");
    failed |= kolo_barrier(world) || kolo_group_error(world, NULL);
    kolo_group_free(twin);
    return failed;
}

/* An error of a group's has a rank's number there and, if it is another, in the world. */
static int name_in_both(kolo_group *world, void *argument)
{
    static const int from_behind[] = {2, 0};
    const int rank = kolo_group_rank(world);
    kolo_group *ends;
    int got, failed = kolo_group_new(world, from_behind, 2, &ends);

    (void)argument;
    if (rank == 0) {
        failed |= kolo_group_set_timeout(ends, 100);
        failed |= ranks_expect(kolo_recv(ends, &got, 1, KOLO_INT32, 0, 6), KOLO_E_TIMEOUT,
                               "rank 0 (rank 2 of the world");
    }
    failed |= kolo_barrier(world);
    kolo_group_free(ends);
    return failed;
}

static void groups_have_groups(void **state)
{
    (void)state;
    assert_int_equal(ranks_run_all_ways(8, halve), 0);
    assert_int_equal(ranks_run_all_ways(2, duplicate), 0);
    assert_int_equal(ranks_run_all_ways(3, name_in_both), 0);
}

/* ---- lists that differ ------------------------------------------------------------------- */

/* Rank 1 has the list the other way round. Who comes first makes its group, and hears there. */
static int list_otherwise(kolo_group *world, void *argument)
{
    static const int up[] = {0, 1, 2}, down[] = {2, 1, 0};
    const bool is_odd = kolo_group_rank(world) == 1;
    kolo_group *group = NULL;
    int failed, err = kolo_group_new(world, is_odd ? down : up, 3, &group);

    (void)argument;
    if (!err)
        err = kolo_barrier(group);
    failed = ranks_expect(err, KOLO_E_MISMATCH, "rank 1 lists") |
             ranks_expect(err, KOLO_E_MISMATCH, "lists the ranks") |
             ranks_expect(err, KOLO_E_MISMATCH, "2, 1, 0") |
             ranks_expect(err, KOLO_E_MISMATCH, "0, 1, 2") |
             ranks_expect(err, KOLO_E_MISMATCH, "all members of a group list the same ones");
    kolo_group_free(group);
    /* It was that group only, and the next calls count alike. */
    if (!failed && (kolo_barrier(world) || kolo_group_new(world, up, 3, &group)))
        return ranks_fail("the next group");
    if (!failed) {
        failed = sum_ranks(group);
        kolo_group_free(group);
    }
    return failed;
}

/* Rank 1 does not even list itself; rank 0 waits for it. */
static int leave_oneself_out(kolo_group *world, void *argument)
{
    static const int both[] = {0, 1};
    const int rank = kolo_group_rank(world);
    kolo_group *group = NULL;
    int failed, err = kolo_group_new(world, both, 2 - rank, &group);

    (void)argument;
    if (!err && group)
        err = kolo_barrier(group);
    failed = err || rank == 0 ? ranks_expect(err, KOLO_E_MISMATCH, "rank 1 lists") : 0;
    kolo_group_free(group);
    return failed | (kolo_barrier(world) ? ranks_fail("world") : 0);
}

/* What was compared is not looked at again. */
static int count_keys(kolo_group *world, void *argument)
{
    kolo_store *store = world->endpoint->store;
    kolo_group *groups[2];
    int64_t before = 0, after = 0;
    int failed = kolo_barrier(world) || kolo_store_num_keys(store, &before) || kolo_barrier(world);

    (void)argument;
    failed = failed || ranks_duplicate(world, groups, 2);
    if (failed)
        return ranks_fail("before the keys are counted");
    failed = kolo_barrier(world) || kolo_store_num_keys(store, &after) || kolo_barrier(world);
    ranks_free_all(groups, 2);
    return failed || after != before
               ? ranks_fail("%lld keys became %lld", (long long)before, (long long)after)
               : 0;
}

static void lists_that_differ_are_named(void **state)
{
    (void)state;
    setenv("KOLO_CHECK", "1", 1);
    assert_int_equal(ranks_run_all_ways(3, list_otherwise), 0);
    assert_int_equal(ranks_run_all_ways(2, leave_oneself_out), 0);
    assert_int_equal(ranks_run_all_ways(4, make_groups), 0);
    assert_int_equal(ranks_run_all_ways(8, halve), 0);
    assert_int_equal(ranks_run_all_ways(3, count_keys), 0);
    unsetenv("KOLO_CHECK");
}

static void wrong_arguments_are_named(void **state)
{
    kolo_group *world, *group = NULL;
    const int self = 0;

    (void)state;
    assert_int_equal(kolo_group_join(NULL, -1, &world), 0);
    assert_int_equal(
        ranks_expect(kolo_group_duplicate(NULL, &group), KOLO_E_INVALID, "parent is NULL"), 0);
    assert_int_equal(
        ranks_expect(kolo_group_duplicate(world, NULL), KOLO_E_INVALID, "group is NULL"), 0);
    assert_int_equal(ranks_expect(kolo_group_new_local(NULL, &self, 1, 0, &group), KOLO_E_INVALID,
                                  "kolo_group_new_local: parent is NULL"),
                     0);
    assert_int_equal(ranks_expect(kolo_group_new_local(world, &self, 2, 0, &group), KOLO_E_INVALID,
                                  "a group of 2 of 1 ranks"),
                     0);
    assert_null(group);
    kolo_group_free(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_are_made_of_groups),
        cmocka_unit_test(connections_may_come_before_their_group),
        cmocka_unit_test(members_alone_make_groups),
        cmocka_unit_test(groups_have_groups),
        cmocka_unit_test(lists_that_differ_are_named),
        cmocka_unit_test(wrong_arguments_are_named),
    };

    return cmocka_run_group_tests_name("group_new", tests, NULL, NULL);
}
