/* SPDX-License-Identifier: MIT
 *
 * Ranks as processes of launchers, which find a store by their environments, but are told different
 * things of their job: restarts that are counted differently, jobs around this one.
 */
#include "kolo.h"
#include "ranks.h"
#include "sanitized.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

enum { PATIENCE_MS = 20000, SHORT_MS = 300, OVERTIME_MS = 2000 };

/* ---- how often the job was started -------------------------------------------------------- */

struct counts {
    const char *name; /* of the variable that is the rank's number */
    int port;
    int timeout_ms;
    int code;
    bool hands_in; /* a store; else by the environment */
};

static int join_with_count(kolo_group *group, void *argument)
{
    const struct counts *counts = argument;
    /* The store's end, which a late rank would be told instead, comes after all time-outs. */
    const int timeout_ms = counts->timeout_ms + (kolo_group_rank(group) ? 0 : OVERTIME_MS);
    kolo_group *world = NULL;
    kolo_store *store = NULL;
    int err;

    ranks_set_number("RANK", kolo_group_rank(group));
    ranks_set_number("WORLD_SIZE", 2);
    ranks_set_number(counts->name, kolo_group_rank(group));
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    ranks_set_number("MASTER_PORT", counts->port);
    if (counts->hands_in)
        err = kolo_store_open_tcp("127.0.0.1", counts->port, 0, timeout_ms, &store) ||
              kolo_group_join_store(store, kolo_group_rank(group), 2, timeout_ms, &world);
    else
        err = kolo_group_join("env://", timeout_ms, &world);
    if (!err)
        err = kolo_barrier(world);
    kolo_group_free(world);
    kolo_store_close(store);
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
    kolo_store *agent;

    (void)state;
    if (HAS_TSAN)
        skip();
    counts.port = ranks_reserve_port();
    join_with_counts(&counts);
    /* over an agent's store, too */
    assert_int_equal(kolo_store_open_tcp("127.0.0.1", 0, 1, PATIENCE_MS, &agent), 0);
    counts.port = kolo_store_port(agent);
    setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
    join_with_counts(&counts);
    unsetenv("TORCHELASTIC_USE_AGENT_STORE");
    /* and over one that is handed in, to the next attempt too */
    counts.hands_in = true;
    join_with_counts(&counts);
    join_with_counts(&counts);
    kolo_store_close(agent);
}

/* It tells all ranks the same, and so keeps those of an older attempt out. */
static void attempts_of_kolorun_do_not_meet(void **state)
{
    struct counts counts = {
        .name = "KOLORUN_ATTEMPT", .timeout_ms = SHORT_MS, .code = KOLO_E_TIMEOUT};

    (void)state;
    if (HAS_TSAN)
        skip();
    counts.port = ranks_reserve_port();
    join_with_counts(&counts);
}

/* Ranks that are started in a shell of srun's, or by kolorun under it, inherit the variables of
 * one of its ranks: those say what only one rank is to believe, or none. */
static int join_inside_another(kolo_group *group, void *argument)
{
    const int *around = argument;
    kolo_group *world = NULL;
    int err;

    ranks_set_number("RANK", kolo_group_rank(group));
    ranks_set_number("WORLD_SIZE", kolo_group_size(group));
    ranks_set_number("SLURM_PROCID", around[1 + kolo_group_rank(group)]);
    ranks_set_number("SLURM_STEP_NUM_TASKS", kolo_group_size(group));
    setenv("SLURM_JOB_ID", "1234", 1);
    setenv("SLURM_STEP_ID", "0", 1);
    setenv("SLURM_RESTART_COUNT", "1", 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    ranks_set_number("MASTER_PORT", around[0]);
    err = kolo_group_join("env://", 8000, &world);
    if (!err)
        err = kolo_barrier(world);
    kolo_group_free(world);
    return err ? ranks_fail("status %d: %s", err, kolo_last_error()) : 0;
}

static void ranks_inside_another_job_meet(void **state)
{
    int shell[] = {0, 0, 0}, kolorun[] = {0, 0, 2, 1}; /* a port, the ranks around */

    (void)state;
    if (HAS_TSAN)
        skip();
    shell[0] = ranks_reserve_port();
    assert_int_equal(
        ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = 2}, join_inside_another, shell), 0);
    kolorun[0] = ranks_reserve_port();
    setenv("KOLORUN_ATTEMPT", "0", 1);
    assert_int_equal(
        ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = 3}, join_inside_another, kolorun),
        0);
    unsetenv("KOLORUN_ATTEMPT");
}

/* mpirun in each rank of kolorun's: several processes have one rank. */
static int join_in_doubt(kolo_group *group, void *argument)
{
    kolo_group *world = NULL;

    (void)argument;
    setenv("TORCHELASTIC_RUN_ID", "job", 1);
    ranks_set_number("LOCAL_WORLD_SIZE", 2);
    ranks_set_number("RANK", 0);
    ranks_set_number("WORLD_SIZE", 2);
    ranks_set_number("OMPI_COMM_WORLD_RANK", 1 + kolo_group_rank(group));
    ranks_set_number("OMPI_COMM_WORLD_SIZE", 2);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    ranks_set_number("MASTER_PORT", ranks_reserve_port());
    return ranks_expect(kolo_group_join("env://", SHORT_MS, &world), KOLO_E_TIMEOUT,
                        "; RANK says rank 0 of 2, which counts; but OMPI_COMM_WORLD_RANK says rank "
                        "1 of 2: is the former left over");
}

static void what_was_doubtful_is_told_with_the_error(void **state)
{
    (void)state;
    if (HAS_TSAN)
        skip();
    assert_int_equal(
        ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = 1}, join_in_doubt, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(torchruns_counts_may_differ),
        cmocka_unit_test(attempts_of_kolorun_do_not_meet),
        cmocka_unit_test(ranks_inside_another_job_meet),
        cmocka_unit_test(what_was_doubtful_is_told_with_the_error),
    };

    setenv("KOLO_DEBUG", "NONE", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
