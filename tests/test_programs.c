/* SPDX-License-Identifier: MIT
 *
 * Random programs (programs.h) over every transport, several at once, under all settings, and among
 * ranks of several hosts.
 *   test_programs [SEEDS [FIRST]]
 */
#include "letters.h"
#include "programs.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static uint64_t first_seed = 1;
static int nseeds = IS_SANITIZED ? 2 : 6;

static int run_programs(kolo_group *world, void *argument)
{
    int failed = 0;

    (void)argument;
    for (int i = 0; i < nseeds && !failed; i++)
        failed = programs_run(world, first_seed + (uint64_t)i, NULL, 0, NULL);
    return failed;
}

struct lane {
    pthread_t thread;
    kolo_group *group;
    uint64_t seed;
    int failed;
};

static void *lane_main(void *argument)
{
    struct lane *lane = argument;

    lane->failed = programs_run(lane->group, lane->seed, NULL, 0, NULL);
    return NULL;
}

/* As many at once, each in a thread and in groups of its own. */
static int run_programs_at_once(kolo_group *world, void *argument)
{
    enum { LANES = 3 };
    kolo_group *groups[LANES];
    struct lane lanes[LANES];
    int failed = ranks_duplicate(world, groups, LANES);

    (void)argument;
    if (failed)
        return failed;
    for (int i = 0; i < LANES; i++) {
        lanes[i] = (struct lane){.group = groups[i], .seed = first_seed + (uint64_t)i};
        if (pthread_create(&lanes[i].thread, NULL, lane_main, &lanes[i]))
            abort();
    }
    for (int i = 0; i < LANES; i++) {
        pthread_join(lanes[i].thread, NULL);
        failed |= lanes[i].failed;
    }
    ranks_free_all(groups, LANES);
    return failed;
}

/* Messages that their receiver has not asked for are kept, or wait with their sender. */
static void programs_end_as_written(void **state)
{
    static const char *const eager[] = {"0", "600", "4M"};

    (void)state;
    for (int n = 1; n <= PROGRAMS_MOST_RANKS; n++) {
        setenv("KOLO_EAGER_BYTES", eager[n % 3], 1);
        letters_run(n, run_programs);
        first_seed += (uint64_t)nseeds;
    }
    unsetenv("KOLO_EAGER_BYTES");
}

static void programs_run_beside_each_other(void **state)
{
    (void)state;
    for (int n = 2; n <= 3; n++) {
        letters_run(n, run_programs_at_once);
        first_seed += (uint64_t)nseeds;
    }
}

/* ---- and where ------------------------------------------------------------------------------- */

static void all_settings_do(void **state)
{
    static const char *const settings[][3] = {
        {"KOLO_DETERMINISTIC", "1"},     {"KOLO_CHECK", "1"},
        {"KOLO_ENCRYPT", "1", "tcp"},    {"KOLO_TCP_SOCKETS", "3", "tcp"},
        {"KOLO_PROTO", "simple", "shm"}, {"KOLO_PROTO", "cma", "shm"},
        {"KOLO_SPIN_US", "0"},           {"KOLO_IDLE_BYTES", "0"}};

    (void)state;
    setenv("KOLO_AUTH_TOKEN", "sixteen letters and more", 1);
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        const enum ranks_kind kind = HAS_TSAN || i % 2 ? RANKS_THREADS : RANKS_PROCESSES;

        letters_set(settings[i][2] ? settings[i][2] : i % 3 ? "shm" : "tcp", i % 4);
        setenv(settings[i][0], settings[i][1], 1);
        assert_int_equal(
            ranks_run(&(struct ranks){.kind = kind, .n = 2 + (int)i % 3}, run_programs, NULL), 0);
        unsetenv(settings[i][0]);
        first_seed += (uint64_t)nseeds;
    }
    unsetenv("KOLO_AUTH_TOKEN");
}

static int run_until_killed(kolo_group *world, void *argument)
{
    (void)argument;
    return programs_survive(world, first_seed, NULL, 0, NULL);
}

static void survivors_hear_who_was_killed(void **state)
{
    static const char *const transports[] = {"shm", "tcp", "rdma"};

    (void)state;
    SKIP_PROCESSES_UNDER_TSAN();
    for (int i = 0; i < 4 * nseeds; i++) {
        const struct ranks ranks = {
            .kind = RANKS_PROCESSES, .n = 2 + i % (PROGRAMS_MOST_RANKS - 1), .tolerated = 1};

        letters_set(transports[i % 3], i % 4 == 0);
        assert_int_equal(ranks_run(&ranks, run_until_killed, NULL), 0);
        first_seed += 100;
    }
}

/* Some reach each other through memory, and others not. */
static void ranks_of_several_hosts_do(void **state)
{
    (void)state;
    SKIP_PROCESSES_UNDER_TSAN();
    for (int n = 2; n <= PROGRAMS_MOST_RANKS; n++) {
        letters_set("", n % 2);
        assert_int_equal(ranks_run(&(struct ranks){.kind = RANKS_PROCESSES,
                                                   .n = n,
                                                   .settle = ranks_settle_on_two_hosts},
                                   run_programs, NULL),
                         0);
        first_seed += (uint64_t)nseeds;
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(programs_end_as_written), cmocka_unit_test(programs_run_beside_each_other),
        cmocka_unit_test(survivors_hear_who_was_killed), cmocka_unit_test(all_settings_do),
        cmocka_unit_test(ranks_of_several_hosts_do)};

    if (argc > 1)
        nseeds = atoi(argv[1]);
    if (argc > 2)
        first_seed = strtoull(argv[2], NULL, 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
