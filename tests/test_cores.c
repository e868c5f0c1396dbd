/* SPDX-License-Identifier: MIT
 *
 * How many cores a group takes its hosts to have, whatever each rank was bound to, and whether its
 * ranks take turns on them.
 */
#include "endpoint.h"
#include "group.h"
#include "mailbox_parts.h"
#include "protocols.h"
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

/* ---- ranks that take turns ------------------------------------------------------------------ */

struct turns {
    struct seats seats;           /* first: sit_down takes it */
    bool by_messages, by_calls;   /* whether ranks 0 and 1 are to yield; before hosts are known */
    const char *local_world_size; /* NULL: no launcher says it */
};

static int expect_turns(const char *what, const struct ko_channel *channel, bool is_crowded)
{
    return channel->is_crowded == is_crowded ? 0
                                             : ranks_fail("%s: the ranks are%s said to take turns",
                                                          what, channel->is_crowded ? "" : " not");
}

/* Who takes turns does not try what it takes to read slices where they lie. */
static int expect_trials(const struct ko_channel *channel, bool are_expected)
{
    int nlinks = 0;

    for (int peer = 0; peer < channel->group->size; peer++) {
        const struct ko_link *link = channel->ports[peer].link;

        if (!link || !link->inbox)
            continue;
        nlinks++;
        if (!(link->protocols & KO_PROTO_TRY_CMA) == are_expected)
            return ranks_fail("reading from %d is%s tried", peer, are_expected ? " not" : "");
    }
    return nlinks ? 0 : ranks_fail("no link");
}

static int take_turns(kolo_group *group, void *argument)
{
    const struct turns *turns = argument;
    const int few[] = {0, 1};
    const bool is_one = kolo_group_rank(group) < 2;
    kolo_group *child = NULL;
    int value = 1;
    int failed = is_one && ranks_exchange(group);

    if (!failed && is_one)
        failed =
            expect_turns("messages", &atomic_load(&group->mailbox)->channel, turns->by_messages);
    if (failed || kolo_all_reduce(group, &value, &value, 1, KOLO_INT32, KOLO_SUM))
        return ranks_fail("the first calls");
    failed = is_one &&
             (expect_turns("calls", &group->collectives, turns->by_calls) ||
              (!turns->seats.hosts[0] && expect_trials(&group->collectives, !turns->by_calls)));
    if (kolo_group_new(group, few, 2, &child))
        return ranks_fail("a group of two");
    if (child && kolo_barrier(child))
        failed = ranks_fail("a barrier of two");
    if (child && !failed)
        failed = expect_turns("two of them", &child->collectives, turns->by_calls);
    kolo_group_free(child);
    return failed;
}

static void run_turns(int n, struct turns turns)
{
    const struct ranks ranks = {.kind = RANKS_PROCESSES, .n = n, .settle = sit_down};

    if (turns.local_world_size) {
        setenv("RANK", "0", 1); /* without which the rest is not looked at */
        setenv("WORLD_SIZE", "8", 1);
        setenv("MASTER_ADDR", "h", 1);
        setenv("MASTER_PORT", "1", 1);
        setenv("LOCAL_WORLD_SIZE", turns.local_world_size, 1);
    }
    assert_int_equal(ranks_run(&ranks, take_turns, &turns), 0);
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
    unsetenv("MASTER_ADDR");
    unsetenv("MASTER_PORT");
    unsetenv("LOCAL_WORLD_SIZE");
}

/* What the machine has does not count, nor what a launcher says once more is known. */
static void those_who_share_a_core_take_turns(void **state)
{
    const bool has_two = count_all() >= 2;

    (void)state;
    run_turns(2, (struct turns){{.cores = {0, 0}}, true, true, NULL});
    run_turns(2, (struct turns){{.cores = {0, 0}}, true, true, "2"});
    if (!has_two)
        return;
    run_turns(2, (struct turns){{.cores = {0, 1}}, false, false, NULL});
    run_turns(2, (struct turns){{.cores = {0, 1}}, false, false, "2"});
    run_turns(2, (struct turns){{.cores = {ALL, ALL}}, false, false, "2"});
    /* two of four that are bound: only all four tell */
    run_turns(
        4, (struct turns){{.cores = {0, 1, 0, 1}}, sysconf(_SC_NPROCESSORS_ONLN) < 4, true, NULL});
    /* on other hosts */
    run_turns(2, (struct turns){{.cores = {0, 0}, .hosts = {"left", "right"}}, false, false, NULL});
}

/* What a file of costs says holds; more than one where there are more. */
static void a_file_counts_first(void **state)
{
    struct ko_costs costs = ko_default_costs;
    char path[] = "/tmp/test-cores-XXXXXX";
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
        cmocka_unit_test(those_who_share_a_core_take_turns),
    };

    setenv("KOLO_DEBUG", "NONE", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
