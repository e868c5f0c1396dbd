/* SPDX-License-Identifier: MIT
 *
 * Ranks that have found a store, but think differently of their job, or find there what an earlier
 * one has left: restarts that are counted differently.
 */
#include "kolo.h"
#include "ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SHORT_MS = 300 };

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

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(torchruns_counts_may_differ),
        cmocka_unit_test(attempts_of_kolorun_do_not_meet),
    };

    setenv("KOLO_DEBUG", "NONE", 1);
    return cmocka_run_group_tests_name("rendezvous", tests, NULL, NULL);
}
