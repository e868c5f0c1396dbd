/* SPDX-License-Identifier: MIT
 *
 * How many cores a group takes its hosts to have, whatever each rank was bound to.
 */
#include "endpoint.h"
#include "group.h"
#include "ranks.h"
#include "tuning.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

enum { MOST_RANKS = 4, ALL = -1 };

/* Where ranks are put before they join. */
struct seats {
    int cores[MOST_RANKS];         /* the first that this process may use, the second ...; ALL */
    const char *hosts[MOST_RANKS]; /* NULL: none of its own */
    double expected;               /* cores */
};

/* The cores of a test: the first of those that this process may use, again from the first if they
 * are too few. */
static size_t core_at(const cpu_set_t *all, int place)
{
    size_t core = 0;

    for (int left = place % CPU_COUNT(all); left > 0 || !CPU_ISSET(core, all); core++)
        left -= CPU_ISSET(core, all) != 0;
    return core;
}

static double count_all(void)
{
    cpu_set_t all;

    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    return CPU_COUNT(&all);
}

static int sit_down(int rank, void *argument)
{
    const struct seats *seats = argument;
    cpu_set_t all, one;

    if (seats->hosts[rank])
        setenv("KOLO_HOST", seats->hosts[rank], 1);
    if (seats->cores[rank] == ALL)
        return 0;
    if (sched_getaffinity(0, sizeof all, &all))
        return 1;
    CPU_ZERO(&one);
    CPU_SET(core_at(&all, seats->cores[rank]), &one);
    return sched_setaffinity(0, sizeof one, &one) != 0;
}

/* Every rank counts the same, and a collective goes by it. */
static int count(kolo_group *group, void *argument)
{
    const struct seats *seats = argument;
    struct ko_costs costs;
    int value = 1;

    if (kolo_all_reduce(group, &value, &value, 1, KOLO_INT32, KOLO_SUM))
        return ranks_fail("all_reduce");
    ko_group_costs(group, &costs);
    if (costs.cores < seats->expected || costs.cores > seats->expected)
        return ranks_fail("rank %d counts %g cores, not %g", kolo_group_rank(group), costs.cores,
                          seats->expected);
    return ko_costs_check(&costs);
}

static void run(int n, struct seats *seats)
{
    const struct ranks ranks = {.kind = RANKS_PROCESSES, .n = n, .settle = sit_down};

    assert_int_equal(ranks_run(&ranks, count, seats), 0);
}

static double at_most(double cores)
{
    return cores < count_all() ? cores : count_all();
}

static void bound_ranks_count_together(void **state)
{
    (void)state;
    run(2, &(struct seats){.cores = {0, 1}, .expected = at_most(2)});
    run(3, &(struct seats){.cores = {0, 1, 0}, .expected = at_most(2)});
    run(2, &(struct seats){.cores = {0, 0}, .expected = 1});
    run(2, &(struct seats){.cores = {0, ALL}, .expected = count_all()});
    run(4, &(struct seats){.cores = {ALL, ALL, ALL, ALL}, .expected = count_all()});
}

/* The host with the most ranks counts. */
static void ranks_of_other_hosts_do_not_count(void **state)
{
    struct seats seats = {
        .cores = {ALL, 0, 0, 0}, .hosts = {"left", "right", "right", "right"}, .expected = 1};

    (void)state;
    run(4, &seats);
    seats = (struct seats){
        .cores = {0, 1, 0, 0}, .hosts = {"left", "left", "right", "right"}, .expected = at_most(2)};
    run(4, &seats);
}

/* What a file of costs says holds; more than one where there are more. */
static void a_file_counts_first(void **state)
{
    struct ko_costs costs = ko_default_costs;
    char path[] = "/tmp/kolo-cores-XXXXXX";
    const int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0);
    close(fd);
    costs.cores = at_most(2);
    assert_int_equal(ko_tuning_write(path, &costs), 0);
    setenv("KOLO_TUNING", path, 1);
    run(2, &(struct seats){.cores = {0, 0}, .expected = at_most(2)});
    unsetenv("KOLO_TUNING");
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bound_ranks_count_together),
        cmocka_unit_test(ranks_of_other_hosts_do_not_count),
        cmocka_unit_test(a_file_counts_first),
    };

    setenv("KOLO_DEBUG", "NONE", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
