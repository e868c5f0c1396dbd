/* SPDX-License-Identifier: MIT
 *
 * What a simulation keeps of its ranks: lists once that many ranks follow, and wires with two ends.
 */
#include "simulate_steps.h"

#include "predictions.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

/* Of slices of PREDICTED_SLICE elements; to be freed. */
static struct ko_steps written(enum ko_collective what, const char *name, int n, int period,
                               size_t nslices)
{
    struct ko_costs costs = free_costs();
    struct ko_simulation simulation = predicted_call(
        predicted_text(what, name), n, period < n ? period : 1, nslices * PREDICTED_SLICE, &costs);
    struct ko_steps steps;

    assert_int_equal(ko_steps_write(&simulation.call, PREDICTED_ELEMENT, period, 1, &steps), 0);
    free((void *)(uintptr_t)simulation.call.hosts);
    return steps;
}

static size_t count_steps(const struct ko_steps *steps, int rank)
{
    return steps->scripts[rank].end - steps->scripts[rank].begin;
}

static void assert_keeps(enum ko_collective what, const char *name, int n, int period,
                         size_t nslices, size_t most)
{
    struct ko_steps steps = written(what, name, n, period, nslices);

    if (steps.nsteps > most)
        fail_msg("%s: %zu steps kept for %d ranks", name, steps.nsteps, n);
    ko_steps_free(&steps);
}

/* Of a power of two all do the same; of others those beyond it, their partners and the rest. */
static void ranks_that_do_the_same_share_a_list(void **state)
{
    struct ko_steps steps = written(KO_ALL_REDUCE, "doubling", 1024, 1024, 12);

    (void)state;
    assert_int_equal(count_steps(&steps, 0), 12 * 2 * 10);
    for (int rank = 1; rank < 1024; rank++)
        assert_int_equal(steps.scripts[rank].begin, steps.scripts[0].begin);
    assert_int_equal(steps.nsteps, count_steps(&steps, 0));
    ko_steps_free(&steps);
    assert_keeps(KO_ALL_REDUCE, "doubling", 1000, 1000, 12, 12 * (2 + 18 + 20));
    assert_keeps(KO_REDUCE, "ring", 1000, 1000, 12, 12 * (1 + 2 + 2));
    /* by the number of children, up to ten, and where they stop */
    assert_keeps(KO_BROADCAST, "binomial", 1000, 1000, 12, 40 * 12 * 11);
    assert_keeps(KO_ALL_REDUCE, "double_tree", 1000, 1000, 12, 40 * 12 * 12);
}

/* A message is sent and received at two ends, of ranks that are as far apart as it goes. */
static void a_wire_has_two_ends(void **state)
{
    static const struct {
        const char *name;
        int n, period;
        size_t nwires;
    } cases[] = {
        {"doubling", 8, 8, 8 * 3}, {"ring", 6, 6, 6},         {"ring", 6, 2, 2},
        {"one_shot", 5, 5, 5 * 4}, {"one_shot", 9, 3, 3 * 8}, {"binomial", 8, 8, 2 * 7},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ko_steps steps =
            written(KO_ALL_REDUCE, cases[i].name, cases[i].n, cases[i].period, 1);
        unsigned char ends[64] = {0};

        assert_int_equal(steps.nwires, cases[i].nwires);
        assert_int_equal(steps.nends, 2 * cases[i].nwires);
        for (size_t e = 0; e < steps.nends; e++)
            ends[steps.wires[e]]++;
        for (size_t w = 0; w < steps.nwires; w++) {
            assert_int_equal(ends[w], 2);
            assert_true(steps.messages[w] > 0);
        }
        ko_steps_free(&steps);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_that_do_the_same_share_a_list),
        cmocka_unit_test(a_wire_has_two_ends),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
