/* SPDX-License-Identifier: MIT
 *
 * Groups: how ranks join and what is said when they cannot.
 */
#include "clock.h"
#include "exam.h"
#include "group.h"
#include "letters.h"
#include "ranks.h"
#include "store.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- init methods ------------------------------------------------------------------------- */

static void set_world(const char *rank, const char *size, const char *host, const char *port)
{
    const char *const names[] = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"};
    const char *const values[] = {rank, size, host, port};

    for (int i = 0; i < 4; i++)
        if (values[i])
            setenv(names[i], values[i], 1);
        else
            unsetenv(names[i]);
}

static void refused(const char *method, const char *text)
{
    kolo_group *group = NULL;
    int err = kolo_group_join(method, 500, &group);

    if (err != KOLO_E_INVALID || !strstr(kolo_last_error(), text) || group)
        fail_msg("%s: status %d, \"%s\" without \"%s\"", method ? method : "env://", err,
                 kolo_last_error(), text);
}

static void bad_methods_are_explained(void **state)
{
    const char *none = "is none of env://, tcp://host:port?rank=R&world_size=N, file:///path?";
    char endless[700];

    (void)state;
    letters_set("shm", false);
    memset(endless, 'x', sizeof endless);
    memcpy(endless, "tcp://", 6);
    endless[sizeof endless - 1] = 0;
    refused("file:///tmp/x", none);
    refused("tcp://host:1", none);
    refused("tcp://?rank=0&world_size=1", none);
    refused("tcp://:80?rank=0&world_size=1", none);
    refused("", none);
    refused(endless, "the init method \"tcp://xxxx");
    refused("file://host/path?rank=0&world_size=1", none);
    refused("file:///?rank=0&world_size=1", none);
    refused("file:///path", none);
    refused("file:///path?rank=1&world_size=1", "0 <= R < N");
    refused("tcp://h:0?rank=0&world_size=1", "the port of the init method is \"0\"; it takes");
    refused("tcp://h:http?rank=0&world_size=1", "the port of the init method is \"http\"");
    refused("tcp://h:1?rank=x&world_size=1", "rank is \"x\"; it takes a whole number");
    refused("tcp://h:1?rank=0&world_size=0", "world_size is \"0\"");
    refused("tcp://h:1?rank=0&world_size=1048577", "it takes a whole number from 1 to 1048576");
    refused("tcp://h:1?rank=0&size=2", "takes rank and world_size, not \"size=2\"");
    refused("tcp://h:1?world_size=2", "needs rank=R&world_size=N with 0 <= R < N");
    refused("tcp://h:1?rank=2&world_size=2", "it has rank 2, world_size 2");
    refused("tcp://h:1/?rank=2&world_size=2&use_libuv=1", "it has rank 2, world_size 2");
    refused("tcp://h:1/x?rank=0&world_size=1", "the port of the init method is \"1/x\"");
}

static void bad_environments_are_explained(void **state)
{
    (void)state;
    set_world("0", NULL, "127.0.0.1", "4000");
    refused(NULL, "WORLD_SIZE is not set, but RANK is");
    set_world(NULL, "2", "127.0.0.1", "4000");
    refused("env://", "RANK is not set, but WORLD_SIZE is");
    set_world("0", "2", "127.0.0.1", NULL);
    refused(NULL, "MASTER_PORT is not set");
    set_world("0", "2", NULL, "4000");
    refused(NULL, "MASTER_ADDR is not set, but MASTER_PORT is");
    set_world("2", "2", "127.0.0.1", "4000");
    refused(NULL, "RANK is \"2\"; it takes a whole number from 0 to 1");
    set_world("0", "-1", "127.0.0.1", "4000");
    refused(NULL, "WORLD_SIZE is \"-1\"");
    set_world("0", "1", "127.0.0.1", "70000");
    refused(NULL, "MASTER_PORT is \"70000\"");
    set_world(NULL, NULL, NULL, NULL);
    setenv("KOLO_SLOTS", "1", 1);
    refused(NULL, "KOLO_SLOTS is \"1\"; it takes a whole number from 2 to 64");
    unsetenv("KOLO_SLOTS");
    setenv("KOLO_ALGO", "rings", 1);
    refused(NULL, "KOLO_ALGO is \"rings\", which no collective has");
    unsetenv("KOLO_ALGO");
}

static void wrong_arguments_are_named(void **state)
{
    kolo_store *store;
    kolo_group *group = NULL;

    (void)state;
    assert_int_equal(kolo_store_open_local(&store), 0);
    assert_int_equal(ranks_expect(kolo_group_join(NULL, 1, NULL), KOLO_E_INVALID, "world is NULL"),
                     0);
    assert_int_equal(
        ranks_expect(kolo_group_join_store(NULL, 0, 1, 1, &group), KOLO_E_INVALID, "store is NULL"),
        0);
    assert_int_equal(
        ranks_expect(kolo_group_join_store(store, 0, 1, 1, NULL), KOLO_E_INVALID, "world is NULL"),
        0);
    assert_int_equal(
        ranks_expect(kolo_group_join_store(store, 3, 3, 1, &group), KOLO_E_INVALID, "rank 3 of 3"),
        0);
    assert_int_equal(
        ranks_expect(kolo_group_join_store(store, 0, 0, 1, &group), KOLO_E_INVALID, "rank 0 of 0"),
        0);
    assert_int_equal(ranks_expect(kolo_group_join_store(store, 0, 1048577, 1, &group),
                                  KOLO_E_INVALID, "a world has up to 1048576"),
                     0);
    assert_int_equal(ranks_expect(kolo_group_set_timeout(NULL, 5), KOLO_E_INVALID, "group is NULL"),
                     0);
    assert_int_equal(
        ranks_expect(kolo_group_new(NULL, NULL, 0, &group), KOLO_E_INVALID, "parent is"), 0);
    assert_int_equal(
        ranks_expect(kolo_group_split(NULL, 0, 0, &group), KOLO_E_INVALID, "parent is"), 0);
    assert_int_equal(kolo_group_rank(NULL), -1);
    assert_int_equal(kolo_group_size(NULL), 0);
    assert_int_equal(kolo_group_timeout(NULL), 0);
    assert_int_equal(kolo_group_error(NULL, NULL), KOLO_E_INVALID);
    kolo_group_abort(NULL, "x");
    kolo_group_free(NULL);
    assert_null(group);
    kolo_store_close(store);
}

/* ---- joining ------------------------------------------------------------------------------ */

/* A world of one, from an empty environment: everything works, and nothing is opened. */
static void a_rank_may_be_alone(void **state)
{
    kolo_group *world, *child;
    const int self = 0;

    (void)state;
    letters_set("shm", false);
    set_world(NULL, NULL, NULL, NULL);
    assert_int_equal(kolo_group_join(NULL, 700, &world), 0);
    assert_int_equal(kolo_group_rank(world), 0);
    assert_int_equal(kolo_group_size(world), 1);
    assert_int_equal(kolo_group_timeout(world), 700);
    assert_int_equal(
        ranks_expect(kolo_group_set_timeout(world, 0), KOLO_E_INVALID, "at least 1 ms"), 0);
    assert_int_equal(kolo_group_set_timeout(world, 900), 0);
    assert_int_equal(kolo_group_timeout(world), 900);
    for (int what = 0; what < KO_NCOLLECTIVES; what++)
        for (int is_async = 0; is_async < 2; is_async++)
            assert_int_equal(exam_take(world, &(struct exam){.what = (enum ko_collective)what,
                                                             .dtype = KOLO_FLOAT64,
                                                             .count = 100,
                                                             .is_async = is_async}),
                             0);
    assert_int_equal(kolo_group_new(world, &self, 1, &child), 0);
    assert_int_equal(kolo_group_timeout(child), 900);
    kolo_group_free(child);
    assert_int_equal(kolo_group_split(world, 3, 0, &child), 0);
    kolo_group_free(child);
    kolo_group_free(world);
}

struct joiner {
    pthread_t thread;
    kolo_store *store;
    int rank, size, timeout_ms;
    int err;
    char text[512];
};

static void *join_main(void *argument)
{
    struct joiner *joiner = argument;
    kolo_group *group;

    joiner->err = kolo_group_join_store(joiner->store, joiner->rank, joiner->size,
                                        joiner->timeout_ms, &group);
    snprintf(joiner->text, sizeof joiner->text, "%s", kolo_last_error());
    if (!joiner->err)
        kolo_group_free(group);
    return NULL;
}

static void join_all(struct joiner *joiners, int n)
{
    for (int i = 0; i < n; i++)
        if (pthread_create(&joiners[i].thread, NULL, join_main, &joiners[i]))
            abort();
    for (int i = 0; i < n; i++)
        pthread_join(joiners[i].thread, NULL);
}

static void missing_ranks_are_named(void **state)
{
    struct joiner joiners[30];
    kolo_store *store;

    (void)state;
    letters_set("shm", false);
    assert_int_equal(kolo_store_open_local(&store), 0);
    joiners[0] = (struct joiner){.store = store, .rank = 0, .size = 5, .timeout_ms = 300};
    joiners[1] = (struct joiner){.store = store, .rank = 3, .size = 5, .timeout_ms = 300};
    join_all(joiners, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(joiners[i].err, KOLO_E_TIMEOUT);
        assert_non_null(strstr(joiners[i].text, "3 have not come: rank 1, 2, 4."));
        assert_non_null(strstr(joiners[i].text, "Here are 0, 3 ("));
        assert_non_null(strstr(joiners[i].text, "the timeout_ms that was given sets the limit"));
    }
    kolo_store_close(store);
    setenv("KOLO_TIMEOUT_MS", "100", 1);
    assert_int_equal(kolo_store_open_local(&store), 0);
    joiners[0] = (struct joiner){.store = store, .rank = 0, .size = 2, .timeout_ms = -1};
    join_all(joiners, 1);
    unsetenv("KOLO_TIMEOUT_MS");
    assert_int_equal(joiners[0].err, KOLO_E_TIMEOUT);
    assert_non_null(strstr(joiners[0].text, "address? KOLO_TIMEOUT_MS sets the limit"));
    kolo_store_close(store);
    assert_int_equal(kolo_store_open_local(&store), 0);
    joiners[0] = (struct joiner){.store = store, .rank = 0, .size = 30, .timeout_ms = 100};
    join_all(joiners, 1);
    assert_non_null(strstr(joiners[0].text, "29 have not come: rank 1-29."));
    kolo_store_close(store);
    /* those who are here are told by machine */
    assert_int_equal(kolo_store_open_local(&store), 0);
    for (int i = 0; i < 30; i++)
        joiners[i] = (struct joiner){
            .store = store, .rank = i < 5 ? i : i + 2, .size = 32, .timeout_ms = 2000};
    join_all(joiners, 30);
    assert_non_null(strstr(joiners[0].text, "2 have not come: rank 5, 6."));
    assert_non_null(strstr(joiners[0].text, "Here are 0-4, 7-31 ("));
    kolo_store_close(store);
}

static void a_rank_given_twice_is_told(void **state)
{
    struct joiner joiners[2];
    kolo_store *store;

    (void)state;
    letters_set("shm", false);
    assert_int_equal(kolo_store_open_local(&store), 0);
    for (int i = 0; i < 2; i++)
        joiners[i] = (struct joiner){.store = store, .rank = 1, .size = 2, .timeout_ms = 300};
    join_all(joiners, 2);
    assert_int_equal((joiners[0].err == KOLO_E_INVALID) + (joiners[1].err == KOLO_E_INVALID), 1);
    assert_non_null(strstr(joiners[joiners[0].err != KOLO_E_INVALID].text,
                           "rank 1 has joined before: two processes have the same rank"));
    kolo_store_close(store);
}

/* The environment as a launcher sets it, in processes; then other slots on rank 1. */
static int rejoin(kolo_group *group, void *argument)
{
    const int *ports = argument;
    char rank[8], port[16];
    kolo_group *world;
    int failed, err;

    snprintf(rank, sizeof rank, "%d", kolo_group_rank(group));
    snprintf(port, sizeof port, "%d", ports[0]);
    set_world(rank, "2", "127.0.0.1", port);
    if (kolo_group_join("env://", 8000, &world))
        return ranks_fail("join from the environment");
    failed = exam_take(world, &(struct exam){.what = KO_ALL_REDUCE, .count = 1000});
    kolo_group_free(world);
    if (kolo_group_rank(group) == 1)
        setenv("KOLO_SLICE_BYTES", "4K", 1);
    snprintf(port, sizeof port, "%d", ports[1]);
    set_world(rank, "2", "127.0.0.1", port);
    if (kolo_barrier(group))
        return ranks_fail("a barrier");
    err = kolo_group_join(NULL, 8000, &world);
    if (err != KOLO_E_INVALID || !strstr(kolo_last_error(), "rank 1 has \"4K\"") ||
        !strstr(kolo_last_error(), "set it alike on all ranks"))
        if (err != KOLO_E_INVALID ||
            !strstr(kolo_last_error(), "rank 1 has KOLO_SLICE_BYTES \"4K\""))
            failed = ranks_fail("other slots: status %d", err);
    return failed;
}

static void the_environment_joins_and_slots_must_agree(void **state)
{
    int ports[] = {ranks_reserve_port(), ranks_reserve_port()};

    (void)state;
    letters_set("shm", false);
    assert_int_equal(ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = 2}, rejoin, ports), 0);
    set_world(NULL, NULL, NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_methods_are_explained),
        cmocka_unit_test(bad_environments_are_explained),
        cmocka_unit_test(wrong_arguments_are_named),
        cmocka_unit_test(a_rank_may_be_alone),
        cmocka_unit_test(missing_ranks_are_named),
        cmocka_unit_test(a_rank_given_twice_is_told),
        cmocka_unit_test(the_environment_joins_and_slots_must_agree),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
