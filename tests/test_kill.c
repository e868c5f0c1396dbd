/* SPDX-License-Identifier: MIT
 *
 * Ranks that are killed: nobody hangs, and everybody says who was lost.
 *   test_kill [RUNS [SEED [AT_ONCE [TRANSPORT]]]]
 * With numbers it is a stress test: 1000 runs, or one run again by its seed (make kills).
 */
#include "kills.h"

#include "clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum { STANDARD_RUNS = 100 };

static struct kills kills = {.runs = STANDARD_RUNS, .at_once = 8, .timeout_ms = 3000};

/* How many entries of a directory are kolo's; those of tests, which may run beside this one, have
 * other names. */
static int count_ours(const char *path)
{
    DIR *directory = opendir(path);
    struct dirent *entry;
    int n = 0;

    while (directory && (entry = readdir(directory)))
        n += strncmp(entry->d_name, "kolo", 4) == 0;
    if (directory)
        closedir(directory);
    return n;
}

static void report(const struct kills_result *result)
{
    const int *ms = result->latency_ms;
    int n = result->survivors;

    print_message("# seed %llu: %d runs, %d survivors: %d hung, %d crashed, %d succeeded, %d did "
                  "not name the killed rank, %d blamed another, %d were late\n",
                  (unsigned long long)kills.seed, result->runs, n, result->hangs, result->crashes,
                  result->successes, result->unnamed, result->blamed, result->late);
    print_message("# %d had joined; %d of them took more than half of their time-out\n",
                  result->joined, result->slow);
    print_message("# from the kill to the survivor's exit: p50 %d ms, p90 %d, p99 %d, max %d\n",
                  ms[n / 2], ms[n * 9 / 10], ms[n * 99 / 100], ms[n - 1]);
}

static void random_kills(void **state)
{
    int shm = count_ours("/dev/shm"), tmp = count_ours("/tmp");
    struct kills_result result;

    (void)state;
    kills_run(&kills, &result);
    report(&result);
    assert_int_equal(result.runs, kills.runs);
    assert_int_equal(result.hangs, 0);
    assert_int_equal(result.crashes, 0);
    assert_int_equal(result.successes, 0);
    assert_int_equal(result.unnamed, 0);
    assert_int_equal(result.blamed, 0);
    assert_int_equal(result.late, 0);
    assert_int_equal(count_ours("/dev/shm"), shm);
    assert_int_equal(count_ours("/tmp"), tmp);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no process is left */
    free(result.latency_ms);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_kills)};

    kills.seed = (uint64_t)ko_now_ns();
    if (argc > 1)
        kills.runs = atoi(argv[1]);
    if (argc > 2)
        kills.seed = strtoull(argv[2], NULL, 10);
    if (argc > 3)
        kills.at_once = atoi(argv[3]);
    if (argc > 4)
        kills.transport = argv[4];
    if (kills.runs < 1 || kills.at_once < 1)
        return 2;
    return cmocka_run_group_tests_name("kill", tests, NULL, NULL);
}
