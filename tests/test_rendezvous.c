/* SPDX-License-Identifier: MIT
 *
 * Ranks that have found a store, but think differently of their job, or find there what an earlier
 * one has left: sizes that differ; groups that have ended well, in a time-out or by a kill, in an
 * agent's store and in a file.
 */
#include "clock.h"
#include "folder.h"
#include "kolo.h"
#include "ranks.h"
#include "sanitized.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { RANKS = 4, PATIENCE_MS = 20000, SHORT_MS = 300, OVERTIME_MS = 2000 };

/* ---- ranks as threads --------------------------------------------------------------------- */

struct joiner {
    pthread_t thread;
    char url[300];
    int timeout_ms, err;
    char text[600];
};

static void *join_by_url(void *argument)
{
    struct joiner *joiner = argument;
    kolo_group *group = NULL;

    joiner->err = kolo_group_join(joiner->url, joiner->timeout_ms, &group);
    if (!joiner->err)
        joiner->err = kolo_barrier(group);
    snprintf(joiner->text, sizeof joiner->text, "%s", joiner->err ? kolo_last_error() : "");
    kolo_group_free(group);
    return NULL;
}

static void start(struct joiner *joiner, const char *place, int rank, int size, int timeout_ms)
{
    *joiner = (struct joiner){.timeout_ms = timeout_ms};
    snprintf(joiner->url, sizeof joiner->url, "%s?rank=%d&world_size=%d", place, rank, size);
    assert_int_equal(pthread_create(&joiner->thread, NULL, join_by_url, joiner), 0);
}

static void expect(struct joiner *joiner, int code, const char *text)
{
    pthread_join(joiner->thread, NULL);
    if (joiner->err != code || !strstr(joiner->text, text))
        fail_msg("%s: status %d, \"%s\"", joiner->url, joiner->err, joiner->text);
}

/* ---- places ------------------------------------------------------------------------------- */

enum place { AT_RANK0, AT_AGENT, AT_FILE, NPLACES };

/* Where ranks are to meet: rank 0's store, an agent's (*agent, to be closed), a file. */
static void choose_place(enum place place, char url[200], kolo_store **agent)
{
    int port = ranks_reserve_port();

    *agent = NULL;
    unsetenv("TORCHELASTIC_USE_AGENT_STORE");
    if (place == AT_AGENT) {
        assert_int_equal(kolo_store_open_tcp("127.0.0.1", 0, 1, PATIENCE_MS, agent), 0);
        port = kolo_store_port(*agent);
        setenv("MASTER_ADDR", "127.0.0.1", 1);
        ranks_set_number("MASTER_PORT", port);
        setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
    }
    if (place == AT_FILE) {
        snprintf(url, 200, "file://%s", folder_path("store"));
        remove(url + 7);
    } else
        snprintf(url, 200, "tcp://127.0.0.1:%d", port);
}

/* ---- sizes that differ --------------------------------------------------------------------- */

static void sizes_that_differ_are_said_on_all_ranks(void **state)
{
    struct joiner joiners[2];
    kolo_store *agent;
    char url[200];

    (void)state;
    for (int place = 0; place < NPLACES; place++)
        for (int larger = 0; larger < 2; larger++) {
            int64_t began_ns = ko_now_ns();

            choose_place((enum place)place, url, &agent);
            start(&joiners[0], url, 0, 2 + larger, PATIENCE_MS);
            start(&joiners[1], url, 1, 3 - larger, PATIENCE_MS);
            for (int i = 0; i < 2; i++) {
                expect(&joiners[i], KOLO_E_INVALID, "start all with one WORLD_SIZE");
                assert_non_null(strstr(joiners[i].text, "rank 0 says"));
                assert_string_equal(joiners[i].text, joiners[0].text);
            }
            assert_true((ko_now_ns() - began_ns) / 1000000 < PATIENCE_MS / 2);
            kolo_store_close(agent);
        }
}

static void refuse_two(const char *url)
{
    struct joiner joiners[2];

    start(&joiners[0], url, 0, 3, PATIENCE_MS);
    start(&joiners[1], url, 1, 4, PATIENCE_MS);
    for (int i = 0; i < 2; i++)
        expect(&joiners[i], KOLO_E_INVALID, "start all with one WORLD_SIZE");
}

/* Who comes to a file when the others have been refused, and have ended, hears why; unless rank 0
 * has begun anew meanwhile. */
static void who_is_late_hears_of_a_refusal(void **state)
{
    struct joiner joiners[3];
    kolo_store *agent;
    int64_t began_ns;
    char url[200];

    (void)state;
    choose_place(AT_FILE, url, &agent);
    refuse_two(url);
    began_ns = ko_now_ns();
    start(&joiners[2], url, 2, 3, PATIENCE_MS);
    expect(&joiners[2], KOLO_E_INVALID, "before rank 2 came, all were refused: rank ");
    assert_true((ko_now_ns() - began_ns) / 1000000 < PATIENCE_MS / 2);
    choose_place(AT_FILE, url, &agent);
    refuse_two(url);
    start(&joiners[2], url, 2, 3, PATIENCE_MS);
    ranks_nap_ms(SHORT_MS);
    for (int r = 0; r < 2; r++)
        start(&joiners[r], url, r, 3, PATIENCE_MS);
    for (int r = 0; r < 3; r++)
        expect(&joiners[r], KOLO_OK, "");
    /* an agent may be about to start all ranks again */
    choose_place(AT_AGENT, url, &agent);
    refuse_two(url);
    start(&joiners[2], url, 2, 3, 4000);
    expect(&joiners[2], KOLO_E_TIMEOUT, "rank 0 has not come");
    kolo_store_close(agent);
}

/* Those who agree, and one who comes late, hear of the one who does not. */
static void one_of_another_size_is_what_all_hear_of(void **state)
{
    struct joiner joiners[3];
    kolo_store *agent;
    char url[200];

    (void)state;
    for (int odd = 0; odd < 3; odd++)
        for (int late = 0; late < 3; late++) {
            choose_place(AT_RANK0, url, &agent);
            for (int r = 0; r < 3; r++)
                if (r != late)
                    start(&joiners[r], url, r, r == odd ? 4 : 3, PATIENCE_MS);
            ranks_nap_ms(SHORT_MS);
            start(&joiners[late], url, late, late == odd ? 4 : 3, PATIENCE_MS);
            for (int r = 0; r < 3; r++)
                expect(&joiners[r], KOLO_E_INVALID, "start all with one WORLD_SIZE");
        }
}

/* A group that goes on is told nothing of one that came late, and does not count it as gone. */
static void a_late_rank_of_another_size_disturbs_nobody(void **state)
{
    const char *const keys[] = {"kolo/0/left"};
    kolo_group *world, *other;
    kolo_store *store;
    int has_left;

    (void)state;
    assert_int_equal(kolo_store_open_local(&store), 0);
    assert_int_equal(kolo_group_join_store(store, 0, 1, PATIENCE_MS, &world), 0);
    assert_int_equal(kolo_group_join_store(store, 1, 2, PATIENCE_MS, &other), KOLO_E_INVALID);
    assert_non_null(strstr(kolo_last_error(), "rank 0 says that there are 1 ranks"));
    assert_int_equal(kolo_store_check(store, keys, 1, &has_left), 0);
    assert_false(has_left);
    assert_int_equal(kolo_barrier(world), 0);
    kolo_group_free(world);
    kolo_store_close(store);
}

/* What others have put into the store is not trusted, nor kept (LeakSanitizer looks). */
static void an_id_of_another_length_is_refused(void **state)
{
    kolo_group *world;
    kolo_store *store;

    (void)state;
    assert_int_equal(kolo_store_open_local(&store), 0);
    assert_int_equal(kolo_store_add(store, "kolo/0/come", 1, NULL), 0);
    assert_int_equal(kolo_store_set(store, "kolo/0/id", (kolo_bytes){"short", 5}), 0);
    assert_int_equal(kolo_group_join_store(store, 1, 2, PATIENCE_MS, &world), KOLO_E_PROTOCOL);
    assert_non_null(strstr(kolo_last_error(), "the store holds a job id of 5 bytes"));
    kolo_store_close(store);
}

/* ---- what an earlier job has left ---------------------------------------------------------- */

static void join_all(const char *url, int n)
{
    struct joiner joiners[RANKS];

    for (int r = n; r-- > 0;)
        start(&joiners[r], url, r, n, PATIENCE_MS);
    for (int r = 0; r < n; r++)
        expect(&joiners[r], 0, "");
}

static void jobs_of_all_sizes_follow_one_another(void **state)
{
    static const int sizes[] = {2, 4, 1, 3, 3};
    kolo_store *agent;
    char url[200];

    (void)state;
    for (int place = AT_AGENT; place < NPLACES; place++) {
        choose_place((enum place)place, url, &agent);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            join_all(url, sizes[i]);
        kolo_store_close(agent);
    }
}

/* Waits until so many ranks of the group at this address have said that they leave. */
static void await_left(int port, int64_t n)
{
    kolo_store *store;
    int64_t left = 0;

    assert_int_equal(kolo_store_open_tcp("127.0.0.1", port, 0, PATIENCE_MS, &store), 0);
    while (left < n)
        assert_int_equal(kolo_store_add(store, "kolo/0/left", 0, &left), 0);
    kolo_store_close(store);
}

/* Rank 2 of the next job, which has one more, comes while rank 1 of the earlier one is still to
 * leave. */
static void a_larger_job_comes_as_one_is_left(void **state)
{
    struct joiner earlier, joiners[3];
    kolo_group *last;
    kolo_store *agent;
    char url[200], own[300];

    (void)state;
    choose_place(AT_RANK0, url, &agent);
    snprintf(own, sizeof own, "%s?rank=1&world_size=2", url);
    start(&earlier, url, 0, 2, PATIENCE_MS);
    assert_int_equal(kolo_group_join(own, PATIENCE_MS, &last), 0);
    assert_int_equal(kolo_barrier(last), 0);
    await_left((int)strtol(strrchr(url, ':') + 1, NULL, 10), 1);
    start(&joiners[2], url, 2, 3, PATIENCE_MS);
    ranks_nap_ms(SHORT_MS);
    kolo_group_free(last);
    expect(&earlier, 0, "");
    for (int r = 0; r < 2; r++)
        start(&joiners[r], url, r, 3, PATIENCE_MS);
    for (int r = 0; r < 3; r++)
        expect(&joiners[r], 0, "");
}

static void a_job_that_timed_out_does_not_disturb(void **state)
{
    struct joiner joiner;
    kolo_store *agent;
    char url[200];

    (void)state;
    for (int place = AT_AGENT; place < NPLACES; place++)
        for (int rank = 0; rank < 2; rank++) {
            choose_place((enum place)place, url, &agent);
            start(&joiner, url, rank, 2, SHORT_MS);
            expect(&joiner, KOLO_E_TIMEOUT, "rank");
            join_all(url, 2);
            kolo_store_close(agent);
        }
}

/* A process that joins and is killed while it waits. */
static void kill_waiting(const char *url, int rank, int size)
{
    struct joiner joiner = {.timeout_ms = PATIENCE_MS};
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        snprintf(joiner.url, sizeof joiner.url, "%s?rank=%d&world_size=%d", url, rank, size);
        join_by_url(&joiner);
        _exit(0);
    }
    ranks_nap_ms(SHORT_MS);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

/* Ranks of the next job come before and after its rank 0. */
static void a_job_that_was_killed_does_not_disturb(void **state)
{
    struct joiner joiners[2];
    kolo_store *agent;
    char url[200];

    (void)state;
    for (int place = AT_AGENT; place < NPLACES; place++)
        for (int killed = 0; killed < 2; killed++)
            for (int first = 0; first < 2; first++) {
                choose_place((enum place)place, url, &agent);
                kill_waiting(url, killed, 2);
                start(&joiners[first], url, first, 2, PATIENCE_MS);
                ranks_nap_ms(SHORT_MS);
                start(&joiners[!first], url, !first, 2, PATIENCE_MS);
                for (int r = 0; r < 2; r++)
                    expect(&joiners[r], 0, "");
                kolo_store_close(agent);
            }
}

/* The last rank comes when the others have given up: rank 0 has stayed to tell it. */
static void a_rank_that_ends_is_not_waited_for(void **state)
{
    static const char text[] = ") ended, or gave up, before all 4 ranks had joined";
    const int64_t began_ns = ko_now_ns();
    struct joiner joiners[4];
    kolo_store *agent;
    char url[200];

    (void)state;
    choose_place(AT_RANK0, url, &agent);
    for (int r = 0; r < 4; r += 2)
        start(&joiners[r], url, r, 4, PATIENCE_MS);
    kill_waiting(url, 1, 4);
    expect(&joiners[2], KOLO_E_PEER_LOST, text);
    ranks_nap_ms(OVERTIME_MS);
    start(&joiners[3], url, 3, 4, PATIENCE_MS);
    expect(&joiners[3], KOLO_E_PEER_LOST, text);
    expect(&joiners[0], KOLO_E_PEER_LOST, "rank 1 (");
    assert_true((ko_now_ns() - began_ns) / 1000000 < PATIENCE_MS / 2);
}

/* Its agents start all again. */
static void under_torchrun_the_others_wait_on(void **state)
{
    struct joiner joiner;
    kolo_store *agent;
    char url[200];

    (void)state;
    setenv("TORCHELASTIC_RESTART_COUNT", "0", 1);
    choose_place(AT_RANK0, url, &agent);
    start(&joiner, url, 0, 3, OVERTIME_MS);
    kill_waiting(url, 1, 3);
    expect(&joiner, KOLO_E_TIMEOUT,
           "waited 2000 ms for all ranks to join; 1 have not come: rank 2");
    unsetenv("TORCHELASTIC_RESTART_COUNT");
}

static void a_rank_without_rank_0_says_so(void **state)
{
    struct joiner joiner;
    kolo_store *agent;
    char url[200];

    (void)state;
    choose_place(AT_AGENT, url, &agent);
    start(&joiner, url, 1, 2, SHORT_MS);
    expect(&joiner, KOLO_E_TIMEOUT,
           "rank 1 of 2 waited 300 ms for all ranks to join; rank 0 has "
           "not come");
    join_all(url, 2);
    start(&joiner, url, 1, 2, SHORT_MS);
    expect(&joiner, KOLO_E_TIMEOUT, "The store holds only what an earlier job has left");
    kolo_store_close(agent);
}

/* Who has come is told with the address from where. */
static void a_roster_says_from_where(void **state)
{
    struct joiner joiners[2];
    char host[65] = "", here[200], url[200];
    kolo_store *agent;

    (void)state;
    choose_place(AT_RANK0, url, &agent);
    assert_int_equal(gethostname(host, sizeof host - 1), 0);
    for (int r = 0; r < 2; r++)
        start(&joiners[r], url, r, 3, SHORT_MS);
    snprintf(here, sizeof here,
             "an address of the loopback, which no other machine reaches. Here are 0, 1 (%.30s "
             "127.0.0.1)",
             host);
    for (int r = 0; r < 2; r++)
        expect(&joiners[r], KOLO_E_TIMEOUT, here);
}

/* ---- twice -------------------------------------------------------------------------------- */

static const char twice_text[] = "already, and not freed that group: kolo_group_duplicate makes";

/* As the same rank, at the same place; then again, properly. */
static int join_twice(kolo_group *group, void *argument)
{
    const int rank = kolo_group_rank(group);
    kolo_group *world = NULL, *twin = NULL;
    char url[200];
    int failed = 0;

    snprintf(url, sizeof url, "tcp://127.0.0.1:%d?rank=%d&world_size=2", *(const int *)argument,
             rank);
    for (int i = 0; i < 2 && !failed; i++) {
        if (kolo_group_join(url, PATIENCE_MS, &world) || kolo_barrier(world))
            return ranks_fail("join %d", i);
        failed = ranks_expect(kolo_group_join(url, PATIENCE_MS, &twin),
                              rank ? KOLO_E_INVALID : KOLO_E_SYSTEM, twice_text);
        if (!failed && (kolo_group_duplicate(world, &twin) || kolo_barrier(twin)))
            failed = ranks_fail("duplicate");
        kolo_group_free(twin);
        kolo_group_free(world);
    }
    return failed;
}

static void joining_twice_is_told(void **state)
{
    int port = ranks_reserve_port();
    kolo_group *world, *twin = NULL;
    kolo_store *store;

    (void)state;
    unsetenv("TORCHELASTIC_USE_AGENT_STORE");
    if (!HAS_TSAN)
        assert_int_equal(
            ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = 2}, join_twice, &port), 0);
    assert_int_equal(kolo_store_open_local(&store), 0);
    assert_int_equal(kolo_group_join_store(store, 0, 1, PATIENCE_MS, &world), 0);
    assert_int_equal(kolo_group_join_store(store, 0, 1, PATIENCE_MS, &twin), KOLO_E_INVALID);
    assert_non_null(strstr(kolo_last_error(), twice_text));
    kolo_group_free(world);
    assert_int_equal(kolo_group_join_store(store, 0, 1, PATIENCE_MS, &twin), KOLO_E_INVALID);
    assert_null(strstr(kolo_last_error(), twice_text));
    kolo_store_close(store);
}

/* ---- the last error ------------------------------------------------------------------------ */

/* What joining and leaving try in vain on their way is no failed call of this thread's. */
static void *keep_the_last_error(void *argument)
{
    struct joiner *joiner = argument;
    kolo_group *group = NULL;
    char text[sizeof joiner->text];

    joiner->err = kolo_group_join(joiner->url, joiner->timeout_ms, &group);
    snprintf(joiner->text, sizeof joiner->text, "%s", kolo_last_error());
    if (joiner->err || joiner->text[0])
        return NULL;
    joiner->err = kolo_barrier(group);
    (void)kolo_broadcast(group, NULL, 1, KOLO_INT32, 0);
    snprintf(text, sizeof text, "%s", kolo_last_error());
    ranks_nap_ms(kolo_group_rank(group) * SHORT_MS);
    kolo_group_free(group);
    if (!joiner->err && strcmp(kolo_last_error(), text) != 0)
        snprintf(joiner->text, sizeof joiner->text, "behind free: %s", kolo_last_error());
    return NULL;
}

static void joining_and_leaving_keep_the_last_error(void **state)
{
    struct joiner joiners[2];
    kolo_store *agent;
    char url[200];

    (void)state;
    choose_place(AT_RANK0, url, &agent);
    setenv("KOLO_IB", "0", 1);
    setenv("KOLO_TRANSPORT", "rdma,tcp", 1);
    for (int r = 0; r < 2; r++) {
        joiners[r] = (struct joiner){.timeout_ms = PATIENCE_MS};
        snprintf(joiners[r].url, sizeof joiners[r].url, "%s?rank=%d&world_size=2", url, r);
        assert_int_equal(pthread_create(&joiners[r].thread, NULL, keep_the_last_error, &joiners[r]),
                         0);
    }
    for (int r = 0; r < 2; r++) {
        expect(&joiners[r], KOLO_OK, "");
        assert_string_equal(joiners[r].text, "");
    }
    unsetenv("KOLO_IB");
    unsetenv("KOLO_TRANSPORT");
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_that_differ_are_said_on_all_ranks),
        cmocka_unit_test(who_is_late_hears_of_a_refusal),
        cmocka_unit_test(one_of_another_size_is_what_all_hear_of),
        cmocka_unit_test(an_id_of_another_length_is_refused),
        cmocka_unit_test(a_late_rank_of_another_size_disturbs_nobody),
        cmocka_unit_test(jobs_of_all_sizes_follow_one_another),
        cmocka_unit_test(a_larger_job_comes_as_one_is_left),
        cmocka_unit_test(a_job_that_timed_out_does_not_disturb),
        cmocka_unit_test(a_job_that_was_killed_does_not_disturb),
        cmocka_unit_test(a_rank_that_ends_is_not_waited_for),
        cmocka_unit_test(under_torchrun_the_others_wait_on),
        cmocka_unit_test(a_rank_without_rank_0_says_so),
        cmocka_unit_test(a_roster_says_from_where),
        cmocka_unit_test(joining_twice_is_told),
        cmocka_unit_test(joining_and_leaving_keep_the_last_error),
    };

    setenv("KOLO_DEBUG", "NONE", 1);
    return cmocka_run_group_tests_name("rendezvous", tests, folder_make, folder_remove);
}
