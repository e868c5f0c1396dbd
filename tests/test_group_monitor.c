/* SPDX-License-Identifier: MIT
 *
 * The barrier that names who is missing: ranks that are stuck, dead, or in another call.
 */
#include "clock.h"
#include "ranks.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static void set_variables(void)
{
    setenv("KOLO_TRANSPORT", "shm", 1);
    setenv("KOLO_DEBUG", "NONE", 1);
}

static void run(int n, ranks_body body, void *argument)
{
    set_variables();
    assert_int_equal(ranks_run(&(struct ranks){.kind = RANKS_THREADS, .n = n}, body, argument), 0);
    assert_int_equal(ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = n}, body, argument),
                     0);
}

static int come(kolo_group *group, void *argument)
{
    static const int evens[] = {0, 2, 4};
    const int n = kolo_group_size(group), rank = kolo_group_rank(group);
    kolo_group *half = NULL;
    int failed = 0;

    (void)argument;
    for (int i = 0; i < 10 && !failed; i++) {
        struct timespec nap = {.tv_nsec = (i + rank) % 3 * 1000000L};

        nanosleep(&nap, NULL);
        failed = kolo_monitored_barrier(group, i % 2 ? -1 : 10000, i % 3 == 0);
    }
    failed |= failed || kolo_group_new(group, evens, (n + 1) / 2, &half) ||
              (half && kolo_monitored_barrier(half, -1, 1)) || kolo_barrier(group);
    kolo_group_free(half);
    return failed ? ranks_fail("rank %d", rank) : 0;
}

static void all_come(void **state)
{
    (void)state;
    run(5, come, NULL);
    run(2, come, NULL);
}

/* A rank that looks for rank 0 again and again has met no error when that comes. */
static int come_early(kolo_group *group, void *argument)
{
    char text[600];

    (void)argument;
    (void)kolo_broadcast(group, NULL, 1, KOLO_INT32, 0);
    snprintf(text, sizeof text, "%s", kolo_last_error());
    if (kolo_group_rank(group) == 0)
        ranks_nap_ms(300);
    if (kolo_monitored_barrier(group, -1, 1))
        return ranks_fail("%s", kolo_last_error());
    return strcmp(kolo_last_error(), text) ? ranks_fail("left: %s", kolo_last_error()) : 0;
}

static void who_comes_early_has_no_error(void **state)
{
    (void)state;
    run(2, come_early, NULL);
}

struct barriers {
    pthread_t thread;
    kolo_store *store;
    int rank, n;
    int failed;
};

/* n groups, each with a barrier of its own. */
static int meet_in_groups(kolo_group *world, int n)
{
    kolo_group *group;
    int err = KOLO_OK;

    for (int i = 0; i < n && !err; i++) {
        err = kolo_group_duplicate(world, &group);
        if (err)
            return err;
        err = kolo_monitored_barrier(group, -1, 1);
        kolo_group_free(group);
    }
    return err;
}

static void *barriers_main(void *argument)
{
    struct barriers *self = argument;
    kolo_group *group;

    self->failed = kolo_group_join_store(self->store, self->rank, 3, 20000, &group);
    for (int i = 0; i < self->n && !self->failed; i++)
        self->failed = kolo_monitored_barrier(group, -1, 1);
    if (!self->failed)
        self->failed = meet_in_groups(group, self->n);
    if (!self->failed)
        kolo_group_free(group);
    return NULL;
}

static int64_t keys_after(int n)
{
    struct barriers ranks[3];
    kolo_store *store;
    int64_t count;

    assert_int_equal(kolo_store_open_local(&store), 0);
    for (int r = 0; r < 3; r++) {
        ranks[r] = (struct barriers){.store = store, .rank = r, .n = n};
        if (pthread_create(&ranks[r].thread, NULL, barriers_main, &ranks[r]))
            abort();
    }
    for (int r = 0; r < 3; r++) {
        pthread_join(ranks[r].thread, NULL);
        assert_int_equal(ranks[r].failed, 0);
    }
    assert_int_equal(kolo_store_num_keys(store, &count), 0);
    kolo_store_close(store);
    return count;
}

static void no_keys_are_left(void **state)
{
    (void)state;
    set_variables();
    assert_int_equal(keys_after(20), keys_after(0));
}

struct plan {
    int wait_all;
    const char *text;
};

/* Of seven, rank 1 makes another call, 3 waits for a message, 4 and 5 sleep. */
static int some_are_missing(kolo_group *group, void *argument)
{
    const struct plan *plan = argument;
    int byte = 0, err;

    if (kolo_barrier(group))
        return ranks_fail("barrier");
    switch (kolo_group_rank(group)) {
    case 1:
        err = kolo_all_reduce(group, &byte, &byte, 1, KOLO_INT32, KOLO_SUM);
        break;
    case 3:
        err = kolo_recv(group, &byte, 1, KOLO_INT32, 0, 9);
        break;
    case 4:
    case 5:
        nanosleep(&(struct timespec){.tv_sec = 1, .tv_nsec = 200000000}, NULL);
        err = kolo_all_reduce(group, &byte, &byte, 1, KOLO_INT32, KOLO_SUM);
        break;
    default:
        err = kolo_monitored_barrier(group, 500, plan->wait_all);
    }
    return ranks_expect(err, KOLO_E_TIMEOUT, plan->text) |
           ranks_expect(kolo_barrier(group), KOLO_E_TIMEOUT, plan->text); /* the group has failed */
}

static void missing_ranks_are_named(void **state)
{
    struct plan all = {1, "4 of 7 ranks have not come to the monitored barrier within 500 ms: rank "
                          "1, 3-5"};
    struct plan first = {0, "has not come to the monitored barrier within 500 ms; whether others"};

    (void)state;
    run(7, some_are_missing, &all);
    run(7, some_are_missing, &first);
}

/* Rank 2 is missing. No link is open that could bring the news, and who waits has much more time
 * than rank 0. */
static int others_have_time(kolo_group *group, void *argument)
{
    static const char text[] =
        "has not come to the monitored barrier within 300 ms; whether others";
    const int rank = kolo_group_rank(group);
    const int64_t began_ns = ko_now_ns();

    (void)argument;
    if (rank == 2)
        return ranks_expect(kolo_barrier(group), KOLO_E_TIMEOUT, text);
    return ranks_expect_soon(began_ns, kolo_monitored_barrier(group, rank ? 60000 : 300, 0),
                             KOLO_E_TIMEOUT, text);
}

static void others_hear_at_once(void **state)
{
    (void)state;
    run(4, others_have_time, NULL);
}

/* Whether the process has ended, and closed all that it had open. */
static bool has_ended(int pid)
{
    char path[32], line[512], state = 'Z';
    const char *behind;
    FILE *file;

    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    file = fopen(path, "r");
    if (!file)
        return true;
    behind = fgets(line, sizeof line, file) ? strrchr(line, ')') : NULL;
    if (behind)
        state = behind[2];
    fclose(file);
    return state == 'Z' || state == 'X';
}

/* Rank 0 has given up, and gone, and with it the store. */
static int come_too_late(kolo_group *group, void *argument)
{
    atomic_int *server = argument;
    int failed;

    if (kolo_group_rank(group) == 0) {
        failed = ranks_expect(kolo_monitored_barrier(group, 100, 0), KOLO_E_TIMEOUT, "rank 1 (");
        atomic_store(server, getpid());
        if (!failed)
            raise(SIGKILL);
        return failed;
    }
    while (!atomic_load(server) || !has_ended(atomic_load(server)))
        ranks_nap_ms(10);
    return ranks_expect(kolo_monitored_barrier(group, 100, 0), KOLO_E_PEER_LOST,
                        "which serves the store, was lost; then: rank 1 came to a monitored "
                        "barrier, too late perhaps: the others may have given it up there; ");
}

static void late_ranks_hear_why(void **state)
{
    atomic_int *server =
        mmap(NULL, sizeof *server, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    (void)state;
    assert_true(server != MAP_FAILED);
    set_variables();
    assert_int_equal(ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = 2, .tolerated = 1},
                               come_too_late, server),
                     0);
    munmap(server, sizeof *server);
}

static int rank_0_is_missing(kolo_group *group, void *argument)
{
    int err;

    (void)argument;
    if (kolo_group_rank(group) == 0) {
        nanosleep(&(struct timespec){.tv_sec = 1, .tv_nsec = 200000000}, NULL);
        err = kolo_monitored_barrier(group, 100, 0);
    } else if (kolo_group_rank(group) == 2) {
        err = kolo_recv(group, NULL, 0, KOLO_UINT8, 1, 0);
    } else {
        err = kolo_monitored_barrier(group, 400, 1);
    }
    return ranks_expect(
        err, KOLO_E_TIMEOUT,
        "2 of 4 ranks have not come to the monitored barrier within 400 ms: rank 0, 2");
}

static void rank_0_may_be_missing(void **state)
{
    (void)state;
    run(4, rank_0_is_missing, NULL);
}

/* The others have given up long before rank 0 comes, no link tells it, and their words are still
 * there. */
static int rank_0_is_late(kolo_group *group, void *argument)
{
    const int timeout_ms = *(const int *)argument;
    int err;

    if (kolo_group_rank(group) == 0) {
        ranks_nap_ms(1200);
        err = kolo_monitored_barrier(group, timeout_ms, 0);
    } else {
        err = kolo_monitored_barrier(group, 400, 0);
    }
    return ranks_expect(err, KOLO_E_TIMEOUT,
                        "of 3 ranks have not come to the monitored barrier within 400 ms: rank 0");
}

static void rank_0_may_be_late(void **state)
{
    int timeout_ms = 0;

    (void)state;
    run(3, rank_0_is_late, &timeout_ms);
    timeout_ms = 20000;
    run(3, rank_0_is_late, &timeout_ms);
}

/* Rank 1 gives up 2340 ms after rank 0 has come, and just behind that rank 2 comes, for which rank
 * 0 would wait on. */
static int come_as_one_gives_up(kolo_group *group, void *argument)
{
    static const int timeouts_ms[] = {60000, 340, 60000};
    const int rank = kolo_group_rank(group);
    int *results = argument;

    if (rank == 2)
        ranks_nap_ms(2360);
    results[rank] = kolo_monitored_barrier(group, timeouts_ms[rank], 0);
    return 0;
}

static void all_hear_the_same(void **state)
{
    int results[3];

    (void)state;
    set_variables();
    assert_int_equal(
        ranks_run(&(struct ranks){.kind = RANKS_THREADS, .n = 3}, come_as_one_gives_up, results),
        0);
    assert_int_equal(results[0], results[1]);
    assert_int_equal(results[0], results[2]);
}

/* Rank 2 of four dies. */
static int one_dies(kolo_group *group, void *argument)
{
    const int wait_all = *(const int *)argument;
    int err;

    if (kolo_monitored_barrier(group, -1, 0) || ranks_let_be_last(group, 2))
        return ranks_fail("the first barrier");
    if (kolo_group_rank(group) == 2)
        raise(SIGKILL);
    err = kolo_monitored_barrier(group, wait_all ? 600 : 15000, wait_all);
    if (wait_all)
        return ranks_expect(
            err, KOLO_E_TIMEOUT,
            "1 of 4 ranks have not come to the monitored barrier within 600 ms: rank 2; "
            "have ended, or freed their groups: rank 2");
    return ranks_expect(err, KOLO_E_PEER_LOST, "rank 2 (") |
           ranks_expect(err, KOLO_E_PEER_LOST,
                        "cannot come to the monitored barrier: its process has");
}

static void *die_soon(void *argument)
{
    ranks_nap_ms(300);
    raise(SIGKILL);
    return argument;
}

/* Rank 0 of a group, which is not rank 0 of the world, waits for the last of it, and dies: before
 * it has come, or since (*argument). */
static int rank_0_dies(kolo_group *world, void *argument)
{
    static const int members[] = {1, 2, 0};
    const int has_come = *(const int *)argument, rank = kolo_group_rank(world);
    const char *what = has_come ? "came to the monitored barrier, but its process has ended"
                                : "cannot come to the monitored barrier: its process has ended";
    const int64_t began_ns = ko_now_ns();
    kolo_group *group;
    pthread_t thread;
    int failed = 0;

    if (kolo_group_new(world, members, 3, &group) || ranks_let_be_last(world, 1))
        return ranks_fail("a group");
    if (rank == 1 && (!has_come || pthread_create(&thread, NULL, die_soon, NULL)))
        die_soon(NULL);
    if (rank) {
        const int err = kolo_monitored_barrier(group, 15000, 0);

        failed = ranks_expect_soon(began_ns, err, KOLO_E_PEER_LOST, "rank 0 (rank 1 of the world") |
                 ranks_expect(err, KOLO_E_PEER_LOST, what);
    } else {
        failed = ranks_expect(kolo_recv(group, NULL, 0, KOLO_UINT8, 1, 0), KOLO_E_PEER_LOST, what);
    }
    kolo_group_free(group);
    return failed;
}

static void rank_0_may_die(void **state)
{
    (void)state;
    set_variables();
    for (int has_come = 0; has_come < 2; has_come++)
        assert_int_equal(ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = 3, .tolerated = 1},
                                   rank_0_dies, &has_come),
                         0);
}

static int end_of_test[2]; /* a pipe */

/* One of two has done with the group, and its process stays until the other says that it may go. */
static int one_leaves(kolo_group *group, void *argument)
{
    const int *leaver = argument;
    const int64_t began_ns = ko_now_ns();
    int failed;
    char byte;

    if (kolo_group_rank(group) == *leaver) {
        kolo_group_free(group);
        _exit(read(end_of_test[0], &byte, 1) != 1);
    }
    failed =
        ranks_expect_soon(began_ns, kolo_monitored_barrier(group, 15000, 0), KOLO_E_PEER_LOST,
                          "cannot come to the monitored barrier: its process has ended, or it has "
                          "freed its groups");
    return write(end_of_test[1], "", 1) == 1 ? failed : 1;
}

static void who_has_left_is_not_waited_for(void **state)
{
    (void)state;
    set_variables();
    assert_int_equal(pipe(end_of_test), 0);
    for (int leaver = 0; leaver < 2; leaver++)
        assert_int_equal(
            ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = 2}, one_leaves, &leaver), 0);
    close(end_of_test[0]);
    close(end_of_test[1]);
}

static void dead_ranks_are_named(void **state)
{
    (void)state;
    set_variables();
    for (int wait_all = 0; wait_all < 2; wait_all++)
        assert_int_equal(ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = 4, .tolerated = 1},
                                   one_dies, &wait_all),
                         0);
}

static void wrong_arguments_are_named(void **state)
{
    kolo_group *alone;

    (void)state;
    assert_int_equal(kolo_group_join(NULL, -1, &alone), 0);
    assert_int_equal(kolo_monitored_barrier(alone, 0, 0), 0); /* nobody is missing */
    kolo_group_free(alone);
    assert_int_equal(
        ranks_expect(kolo_monitored_barrier(NULL, 0, 0), KOLO_E_INVALID, "group is NULL"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_come),
        cmocka_unit_test(who_comes_early_has_no_error),
        cmocka_unit_test(no_keys_are_left),
        cmocka_unit_test(missing_ranks_are_named),
        cmocka_unit_test(others_hear_at_once),
        cmocka_unit_test(late_ranks_hear_why),
        cmocka_unit_test(rank_0_may_be_missing),
        cmocka_unit_test(rank_0_may_be_late),
        cmocka_unit_test(all_hear_the_same),
        cmocka_unit_test(dead_ranks_are_named),
        cmocka_unit_test(rank_0_may_die),
        cmocka_unit_test(who_has_left_is_not_waited_for),
        cmocka_unit_test(wrong_arguments_are_named),
    };

    return cmocka_run_group_tests_name("group_monitor", tests, NULL, NULL);
}
