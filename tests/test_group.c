/* SPDX-License-Identifier: MIT
 *
 * Groups: how ranks join and what is said when they cannot, aborting, freeing.
 */
#include "clock.h"
#include "exam.h"
#include "group.h"
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

static void set_variables(const char *transport)
{
    setenv("KOLO_TRANSPORT", transport, 1);
    setenv("KOLO_DEBUG", "NONE", 1);
    unsetenv("KOLO_SLICE_BYTES");
    unsetenv("KOLO_SLOTS");
}

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
    set_variables("shm");
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
    refused("tcp://h:1?rank=0&size=2", "takes rank and world_size, not \"size=2\"");
    refused("tcp://h:1?world_size=2", "needs rank=R&world_size=N with 0 <= R < N");
    refused("tcp://h:1?rank=2&world_size=2", "it has rank 2, world_size 2");
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
    set_variables("shm");
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
    set_variables("shm");
    assert_int_equal(kolo_store_open_local(&store), 0);
    joiners[0] = (struct joiner){.store = store, .rank = 0, .size = 5, .timeout_ms = 300};
    joiners[1] = (struct joiner){.store = store, .rank = 3, .size = 5, .timeout_ms = 300};
    join_all(joiners, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(joiners[i].err, KOLO_E_TIMEOUT);
        assert_non_null(strstr(joiners[i].text, "3 have not come: rank 1, 2, 4."));
        assert_non_null(strstr(joiners[i].text, "Here are 0 ("));
        assert_non_null(strstr(joiners[i].text, "KOLO_TIMEOUT_MS"));
    }
    kolo_store_close(store);
    assert_int_equal(kolo_store_open_local(&store), 0);
    joiners[0] = (struct joiner){.store = store, .rank = 0, .size = 30, .timeout_ms = 100};
    join_all(joiners, 1);
    assert_non_null(strstr(joiners[0].text, "29 have not come: rank 1-29."));
    kolo_store_close(store);
    /* those who are here and have no room are counted */
    assert_int_equal(kolo_store_open_local(&store), 0);
    for (int i = 0; i < 30; i++)
        joiners[i] = (struct joiner){
            .store = store, .rank = i < 5 ? i : i + 2, .size = 32, .timeout_ms = 2000};
    join_all(joiners, 30);
    assert_non_null(strstr(joiners[0].text, "2 have not come: rank 5, 6."));
    assert_non_null(strstr(joiners[0].text, " more"));
    kolo_store_close(store);
}

static void a_rank_given_twice_is_told(void **state)
{
    struct joiner joiners[2];
    kolo_store *store;

    (void)state;
    set_variables("shm");
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
    if (kolo_barrier(group) || kolo_group_join(NULL, 8000, &world))
        return ranks_fail("join again");
    err = kolo_barrier(world);
    if (!err || !strstr(kolo_last_error(), "KOLO_SLICE_BYTES 4096") ||
        !strstr(kolo_last_error(), "set them alike on all ranks"))
        if (!err || !strstr(kolo_last_error(), "KOLO_SLICE_BYTES 131072"))
            failed = ranks_fail("other slots: status %d", err);
    kolo_group_free(world);
    return failed;
}

static void the_environment_joins_and_slots_must_agree(void **state)
{
    int ports[] = {ranks_reserve_port(), ranks_reserve_port()};

    (void)state;
    set_variables("shm");
    assert_int_equal(ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = 2}, rejoin, ports), 0);
    set_world(NULL, NULL, NULL, NULL);
}

/* ---- the end ------------------------------------------------------------------------------ */

static void *abort_main(void *argument)
{
    ranks_nap_ms(60);
    kolo_group_abort(argument, "the user pressed a key");
    return NULL;
}

/* The others tell rank 1 that they have come so far, so that none is aborted before. */
static int meet_at_1(kolo_group *group)
{
    int err = KOLO_OK;

    if (kolo_group_rank(group) != 1)
        return kolo_send(group, NULL, 0, KOLO_UINT8, 1, 2);
    for (int r = 0; r < kolo_group_size(group) && !err; r++)
        if (r != 1)
            err = kolo_recv(group, NULL, 0, KOLO_UINT8, r, 2);
    return err;
}

/* All ranks wait for what never comes; another thread of rank 1 aborts. */
static int abort_while_waiting(kolo_group *group, void *argument)
{
    const bool is_message = *(const bool *)argument;
    const bool aborts = kolo_group_rank(group) == 1;
    unsigned char byte = 0;
    pthread_t thread;
    const char *text;
    int err, failed;

    if (kolo_barrier(group) || meet_at_1(group))
        return ranks_fail("meeting");
    if (aborts && pthread_create(&thread, NULL, abort_main, group))
        abort();
    if (is_message || aborts)
        err = kolo_recv(group, &byte, 1, KOLO_UINT8, aborts ? 0 : 1, 1);
    else
        err = kolo_barrier(group);
    failed = ranks_expect(err, KOLO_E_ABORTED, "rank 1 aborted the group: the user pressed a key");
    failed |= ranks_expect(kolo_barrier(group), KOLO_E_ABORTED, "the user pressed a key");
    failed |= kolo_group_error(group, &text) != KOLO_E_ABORTED || !strstr(text, "pressed a key");
    if (aborts)
        pthread_join(thread, NULL);
    return failed;
}

static void aborting_ends_every_wait(void **state)
{
    static const char *const transports[] = {"shm", "tcp", "rdma"};

    (void)state;
    for (int i = 0; i < 6; i++) {
        bool is_message = i / 3;

        set_variables(transports[i % 3]);
        for (int kind = RANKS_THREADS; kind <= RANKS_PROCESSES; kind++)
            assert_int_equal(ranks_run(&(struct ranks){.kind = (enum ranks_kind)kind, .n = 4},
                                       abort_while_waiting, &is_message),
                             0);
    }
}

/* Rank 1 has no link that would tell it, and comes when rank 0, which serves the store, would have
 * gone had rank 1 been lost. */
static int abort_alone(kolo_group *group, void *argument)
{
    (void)argument;
    if (kolo_group_rank(group) == 0) {
        kolo_group_abort(group, "enough");
        return 0;
    }
    ranks_nap_ms(1200);
    return ranks_expect(kolo_barrier(group), KOLO_E_ABORTED, "rank 0 aborted the group: enough");
}

static void the_last_to_come_hears_why(void **state)
{
    (void)state;
    set_variables("shm");
    assert_int_equal(ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = 2}, abort_alone, NULL),
                     0);
}

struct waiter {
    kolo_work *work;
    int status;
    pthread_t thread;
};

static void *waiter_main(void *argument)
{
    struct waiter *waiter = argument;

    waiter->status = kolo_work_wait(waiter->work, -1);
    return NULL;
}

/* Works that can never end fail when their group is freed, also for threads that wait for them
 * meanwhile, and can still be asked and freed. */
static int free_unfinished(kolo_group *world, void *argument)
{
    static const int all[] = {0, 1};
    float one = 1, sum[3];
    kolo_work *works[4];
    struct waiter waiters[4];
    kolo_group *group;
    int failed = 0;

    (void)argument;
    if (kolo_group_new(world, all, 2, &group))
        return ranks_fail("group_new");
    if (kolo_group_rank(world) == 0) {
        for (int i = 0; i < 3; i++)
            failed |=
                kolo_all_reduce_async(group, &one, &sum[i], 1, KOLO_FLOAT32, KOLO_SUM, &works[i]);
        failed |= kolo_irecv(group, &one, 1, KOLO_FLOAT32, 1, 3, &works[3]);
        for (int i = 0; i < 4 && !failed; i++) {
            waiters[i].work = works[i];
            failed = pthread_create(&waiters[i].thread, NULL, waiter_main, &waiters[i]);
        }
        if (failed)
            return ranks_fail("works and threads");
        ranks_nap_ms(20);
        kolo_group_free(group);
        for (int i = 0; i < 4; i++) {
            pthread_join(waiters[i].thread, NULL);
            failed |= waiters[i].status != KOLO_E_ABORTED;
        }
        failed |= kolo_send(world, NULL, 0, KOLO_UINT8, 1, 0) != 0;
        for (int i = 0; i < 4 && !failed; i++) {
            failed |= ranks_expect(kolo_work_wait(works[i], 0), KOLO_E_ABORTED, "freed");
            failed |= !*kolo_work_error(works[i]);
        }
        for (int i = 0; i < 4; i++)
            kolo_work_free(works[i]);
    } else {
        failed |= kolo_recv(world, NULL, 0, KOLO_UINT8, 0, 0) != 0; /* rank 0 has freed it */
        failed |=
            ranks_expect(kolo_all_reduce(group, &one, sum, 1, KOLO_FLOAT32, KOLO_SUM),
                         KOLO_E_ABORTED, "rank 0 freed the group while works were unfinished");
        kolo_group_free(group);
    }
    return failed | (kolo_barrier(world) != 0); /* the world has not suffered */
}

static void freeing_fails_unfinished_works(void **state)
{
    (void)state;
    set_variables("shm");
    assert_int_equal(ranks_run_all_ways(2, free_unfinished), 0);
}

/* Rank 2 comes late, when rank 1 has done its part, which is more than a socket holds. */
static int leave_early(kolo_group *group, void *argument)
{
    enum { COUNT = 6 << 20 };
    const int rank = kolo_group_rank(group);
    float *in = malloc(COUNT * sizeof *in), *out = malloc(COUNT * sizeof *out);
    int err, failed = 0;

    (void)argument;
    for (int i = 0; i < COUNT; i++)
        in[i] = (float)(i % 1000 + rank);
    if (kolo_barrier(group))
        return ranks_fail("barrier");
    if (rank == 2)
        ranks_nap_ms(500);
    err = kolo_reduce(group, in, out, COUNT, KOLO_FLOAT32, KOLO_SUM, 2);
    for (int i = 0; i < COUNT && rank == 2 && !failed; i++)
        failed = out[i] != (float)(3 * (i % 1000) + 3);
    free(in);
    free(out);
    return err || failed ? ranks_fail("rank %d: status %d, wrong %d", rank, err, failed) : 0;
}

/* Rank 0 frees its group while its messages wait unread at rank 1, and one of rank 1's at it: a
 * socket that is closed with something unread in it drops what has not left. */
static int leave_unread(kolo_group *group, void *argument)
{
    enum { MESSAGES = 8, COUNT = 16384 };
    const int rank = kolo_group_rank(group);
    int32_t *message = malloc(COUNT * sizeof *message);
    int failed = 0;

    (void)argument;
    failed = rank ? kolo_recv(group, NULL, 0, KOLO_INT32, 0, 1)
                  : kolo_send(group, NULL, 0, KOLO_INT32, 1, 1);
    ranks_nap_ms(100 * rank);
    if (rank && !failed)
        failed = kolo_send(group, &rank, 1, KOLO_INT32, 0, 2);
    ranks_nap_ms(300 * rank);
    for (int i = 0; i < MESSAGES && !failed; i++) {
        for (int k = 0; k < COUNT && !rank; k++)
            message[k] = i * COUNT + k;
        failed = rank ? kolo_recv(group, message, COUNT, KOLO_INT32, 0, 0)
                      : kolo_send(group, message, COUNT, KOLO_INT32, 1, 0);
        for (int k = 0; k < COUNT && !failed; k++)
            failed = message[k] != i * COUNT + k;
    }
    if (!rank)
        ranks_nap_ms(200);
    free(message);
    return failed ? ranks_fail("rank %d: status or value %d", rank, failed) : 0;
}

static void what_was_sent_arrives(void **state)
{
    (void)state;
    set_variables("shm");
    setenv("KOLO_ALGO", "reduce=ring", 1);
    assert_int_equal(ranks_run_all_ways(3, leave_early), 0);
    assert_int_equal(ranks_run_all_ways(2, leave_unread), 0);
    unsetenv("KOLO_ALGO");
}

/* A look for a failure, or word of one, takes little time; whatever else is asked of the store may
 * take what it might before. */
static int look_for_a_failure(kolo_group *world, void *argument)
{
    kolo_store *store = world->endpoint->store;
    const int before = ko_store_timeout(store);
    kolo_group *group;
    int failed;

    (void)argument;
    failed = kolo_group_duplicate(world, &group) || ko_group_check_store(group);
    if (!failed && ko_store_timeout(store) != before)
        failed = ranks_fail("after a look the store's limit is %d ms", ko_store_timeout(store));
    if (failed || kolo_barrier(world)) /* the other has looked, too */
        return failed ? failed : ranks_fail("barrier");
    kolo_group_abort(group, "enough");
    failed = ranks_expect(ko_group_check_store(group), KOLO_E_ABORTED, "enough");
    kolo_group_free(group);
    if (!failed && ko_store_timeout(store) != before)
        failed = ranks_fail("after a failure the store's limit is %d ms", ko_store_timeout(store));
    return failed;
}

static void looking_for_failures_changes_nothing(void **state)
{
    (void)state;
    set_variables("shm");
    assert_int_equal(ranks_run_all_ways(2, look_for_a_failure), 0);
}

/* What a child of a rank may do with its parent's group: hear that it is none of its own. */
static int use_inherited(kolo_group *group)
{
    int sum = 0, failed;

    alarm(20);
    failed = kolo_barrier(group) != KOLO_E_INVALID ||
             kolo_all_reduce(group, &sum, &sum, 1, KOLO_INT32, KOLO_SUM) != KOLO_E_INVALID ||
             kolo_send(group, &sum, 1, KOLO_INT32, 0, 0) != KOLO_E_INVALID ||
             !strstr(kolo_last_error(), "from which fork made this one");
    kolo_group_abort(group, "not ours");
    kolo_group_free(group);
    return failed;
}

static int fork_in_between(kolo_group *group, void *argument)
{
    int one = 1, sum, status = -1, failed = kolo_barrier(group);
    pid_t child;

    (void)argument;
    for (int i = 0; i < 3 && !failed; i++) { /* so that one more would be a call like the last */
        child = fork();
        if (!child)
            _exit(use_inherited(group));
        failed = child < 0 || waitpid(child, &status, 0) != child || status ||
                 kolo_all_reduce(group, &one, &sum, 1, KOLO_INT32, KOLO_SUM) || sum != 2;
    }
    return failed ? ranks_fail("child: %d", status) : 0;
}

static void children_have_no_part_in_groups(void **state)
{
    static const char *const transports[] = {"shm", "tcp", "rdma"};

    (void)state;
    for (int i = 0; i < 3; i++) {
        set_variables(transports[i]);
        assert_int_equal(
            ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = 2}, fork_in_between, NULL), 0);
    }
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
        cmocka_unit_test(aborting_ends_every_wait),
        cmocka_unit_test(the_last_to_come_hears_why),
        cmocka_unit_test(what_was_sent_arrives),
        cmocka_unit_test(children_have_no_part_in_groups),
        cmocka_unit_test(freeing_fails_unfinished_works),
        cmocka_unit_test(looking_for_failures_changes_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
