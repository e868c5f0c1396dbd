/* SPDX-License-Identifier: MIT
 *
 * Ranks that have found a store, but think differently of their job, or find there what an earlier
 * one has left: restarts that are counted differently, sizes that differ.
 */
#include "clock.h"
#include "folder.h"
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

#include <cmocka.h>

enum { PATIENCE_MS = 20000, SHORT_MS = 300 };

static void set_number(const char *name, int number)
{
    char text[16];

    snprintf(text, sizeof text, "%d", number);
    setenv(name, text, 1);
}

/* ---- how often the job was started -------------------------------------------------------- */

struct counts {
    const char *name; /* of the variable that is the rank's number */
    int port;
    int timeout_ms;
    int code;
};

/* Joins by the environment. */
static int join_with_count(kolo_group *group, void *argument)
{
    const struct counts *counts = argument;
    kolo_group *world = NULL;
    int err;

    set_number("RANK", kolo_group_rank(group));
    set_number("WORLD_SIZE", 2);
    set_number(counts->name, kolo_group_rank(group));
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    set_number("MASTER_PORT", counts->port);
    err = kolo_group_join("env://", counts->timeout_ms, &world);
    if (!err)
        err = kolo_barrier(world);
    kolo_group_free(world);
    return err == counts->code ? 0 : ranks_fail("status %d, not %d", err, counts->code);
}

static void join_with_counts(struct counts *counts)
{
    assert_int_equal(
        ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = 2}, join_with_count, counts), 0);
}

/* Its agents count only the failures of their own workers. */
static void torchruns_counts_may_differ(void **state)
{
    struct counts counts = {.name = "TORCHELASTIC_RESTART_COUNT", .timeout_ms = 8000};

    (void)state;
    counts.port = ranks_free_port();
    join_with_counts(&counts);
}

/* It tells all ranks the same, and so keeps those of an older attempt out. */
static void attempts_of_kolorun_do_not_meet(void **state)
{
    struct counts counts = {
        .name = "KOLORUN_ATTEMPT", .timeout_ms = SHORT_MS, .code = KOLO_E_TIMEOUT};

    (void)state;
    counts.port = ranks_free_port();
    join_with_counts(&counts);
}

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
    int port = ranks_free_port();

    *agent = NULL;
    unsetenv("TORCHELASTIC_USE_AGENT_STORE");
    if (place == AT_AGENT) {
        assert_int_equal(kolo_store_open_tcp("127.0.0.1", 0, 1, PATIENCE_MS, agent), 0);
        port = kolo_store_port(*agent);
        setenv("MASTER_ADDR", "127.0.0.1", 1);
        set_number("MASTER_PORT", port);
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

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(torchruns_counts_may_differ),
        cmocka_unit_test(attempts_of_kolorun_do_not_meet),
        cmocka_unit_test(sizes_that_differ_are_said_on_all_ranks),
    };

    setenv("KOLO_DEBUG", "NONE", 1);
    return cmocka_run_group_tests_name("rendezvous", tests, folder_make, folder_remove);
}
