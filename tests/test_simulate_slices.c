/* SPDX-License-Identifier: MIT
 *
 * What slices take that are longer than a piece: one behind the other, or read where they lie.
 */
#include "predictions.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { LONG_ELEMENT = 16, LONG_SLICE = PREDICTED_SLICE * LONG_ELEMENT }; /* of two pieces */

/* Of so many slices, none of which is near by itself. */
static double predict_long(enum ko_collective what, const char *name, int n, size_t nslices,
                           const struct ko_costs *costs)
{
    struct ko_simulation simulation =
        predicted_call(predicted_text(what, name), n, n, nslices * PREDICTED_SLICE, costs);

    simulation.element = LONG_ELEMENT;
    simulation.footprint = 1e9;
    return predicted_us(&simulation, ko_simulate);
}

/* Of few slices each is copied out, or reduced, a piece behind where it is copied in. */
static void pieces_follow_each_other(void **state)
{
    struct ko_costs costs = free_costs();
    struct ko_link_costs *link = &costs.links[KO_LOCAL];
    const double b = LONG_SLICE;

    (void)state;
    link->latency = 5;
    for (int k = 0; k < KO_FOOTPRINTS; k++) {
        link->send_byte[k] = costs.copy_byte[k] = 1e-3;
        link->receive_byte[k] = link->waiting_byte[k] = costs.reduce_byte[k] = 2e-3;
    }
    assert_close(predict_long(KO_BROADCAST, "direct", 2, 1, &costs), 5 + b * 2.5e-3, 1e-9);
    assert_close(predict_long(KO_BROADCAST, "direct", 2, 2, &costs), 5 + b * 4.5e-3, 1e-9);
    assert_close(predict_long(KO_REDUCE, "direct", 2, 1, &costs), 5 + b * 2.5e-3, 1e-9);
    /* all at once */
    assert_close(predict_long(KO_REDUCE, "direct", 3, 1, &costs), 5 + b * 4.2e-3, 1e-9);
    costs.cores = 1; /* one after the other */
    assert_close(predict_long(KO_BROADCAST, "direct", 2, 1, &costs), 5 + b * 2e-3, 1e-9);
    costs.cores = 3;
    for (int k = 0; k < KO_FOOTPRINTS; k++) {
        link->send_byte[k] = 2e-3;
        link->receive_byte[k] = link->waiting_byte[k] = 1e-3;
    }
    assert_close(predict_long(KO_BROADCAST, "direct", 2, 1, &costs), 5 + b * 2.5e-3, 1e-9);
    assert_close(predict_long(KO_BROADCAST, "direct", 2, 2, &costs), 5 + b * 4.5e-3, 1e-9);
    /* of many */
    assert_close(predict_long(KO_BROADCAST, "direct", 2, 3, &costs), 5 + b * 7e-3, 1e-9);
    link->send_byte[0] = 0; /* of what has just been received: it is there at once */
    assert_close(predict_long(KO_BROADCAST, "ring", 3, 1, &costs), 2 * 5 + b * 3.5e-3, 1e-9);
}

/* ---- slices that are read where they lie ---------------------------------------------------- */

/* A copy into a slot 1 ns a byte, out of it 2, a reduction 4; read where it lies 0.5 us and 2.5 ns,
 * with its sender's help 1.25. */
static struct ko_costs reading_costs(void)
{
    struct ko_costs costs = free_costs();
    struct ko_link_costs *link = &costs.links[KO_LOCAL];

    for (int k = 0; k < KO_FOOTPRINTS; k++) {
        link->send_byte[k] = 1e-3;
        link->receive_byte[k] = link->waiting_byte[k] = 2e-3;
        costs.reduce_byte[k] = 4e-3;
        costs.reading.byte[k] = 2.5e-3;
        costs.reading.helped_byte[k] = 1.25e-3;
    }
    costs.reading.call = 0.5;
    costs.reading.cache = 1e9;
    return costs;
}

static void assert_takes(enum ko_collective what, const char *name, size_t nslices,
                         const struct ko_costs *costs, double want)
{
    assert_close(predict_long(what, name, 2, nslices, costs), want, 1e-9);
}

/* One copy where there were two, for who waits for each slice. */
static void what_both_exchange_is_read_where_that_is_sooner(void **state)
{
    struct ko_costs costs = reading_costs();
    const double b = LONG_SLICE;

    (void)state;
    assert_takes(KO_ALL_GATHER, "direct", 1, &costs, 0.5 + b * 2.5e-3);
    assert_takes(KO_ALL_TO_ALL, "pairwise", 3, &costs, 3 * (0.5 + b * 2.5e-3));
    assert_close(predict_long(KO_ALL_GATHER, "direct", 4, 1, &costs), 3 * (0.5 + b * 2.5e-3), 1e-9);
    costs.reading.call = b * 0.5e-3; /* as long either way: through slots */
    assert_takes(KO_ALL_GATHER, "direct", 1, &costs, b * 3e-3);
    costs.reading.call = 0.5;
    costs.cores = 1; /* links of ranks that take turns do not try */
    assert_takes(KO_ALL_GATHER, "direct", 1, &costs, 2 * b * 0);
}

static void what_leaves_the_cache_goes_through_slots(void **state)
{
    struct ko_costs costs = reading_costs();
    const double b = LONG_SLICE;

    (void)state;
    costs.reading.cache = 1.5 * b; /* three blocks are touched on each */
    assert_takes(KO_ALL_GATHER, "direct", 1, &costs, b * 3e-3);
    costs.reading.cache = 1.51 * b;
    assert_takes(KO_ALL_GATHER, "direct", 1, &costs, 0.5 + b * 2.5e-3);
    costs.reading.cache = 0; /* nobody reads */
    assert_takes(KO_ALL_GATHER, "direct", 1, &costs, b * 3e-3);
}

/* Of a long broadcast to one, whose root has nothing else to do; of a shorter one slots have pieces
 * that follow each other. */
static void a_root_helps_its_one_reader(void **state)
{
    struct ko_costs costs = reading_costs();
    const double b = LONG_SLICE;

    (void)state;
    assert_takes(KO_BROADCAST, "direct", 32, &costs, 32 * (0.5 + b * 1.25e-3));
    assert_takes(KO_BROADCAST, "direct", 31, &costs, b * 63e-3);
}

/* Of two in the cache; the sum of a slice that was read is made in the nearest cache. */
static void what_both_reduce_is_read_where_that_is_sooner(void **state)
{
    struct ko_costs costs = reading_costs();
    const double b = LONG_SLICE;

    (void)state;
    costs.reduce_byte[0] = 1e-3;
    assert_takes(KO_REDUCE_SCATTER, "direct", 1, &costs, 0.5 + b * 3.5e-3);
    /* one half of the buffer each; the sums go through slots */
    assert_takes(KO_ALL_REDUCE, "two_shot", 2, &costs, 0.5 + b * 3.5e-3 + b * 3e-3);
}

/* What one of two adds is read where that is sooner than both copies, as slices find out; through
 * slots it goes in pieces. */
static void what_a_root_adds_is_read_where_that_is_sooner(void **state)
{
    struct ko_costs costs = reading_costs();
    const double b = LONG_SLICE;

    (void)state;
    costs.reduce_byte[0] = 1e-3;
    for (int k = 0; k < KO_FOOTPRINTS; k++)
        costs.reading.byte[k] = 3.5e-3;
    assert_takes(KO_REDUCE, "direct", 1, &costs, 0.5 + b * 4.5e-3);
    for (int k = 0; k < KO_FOOTPRINTS; k++)
        costs.reading.byte[k] = 4e-3;
    assert_takes(KO_REDUCE, "direct", 1, &costs, b * 4.5e-3);
}

/* Nor what is copied at once, or goes to a root, among more. */
static void what_only_passes_is_not_read(void **state)
{
    const struct ko_costs costs = reading_costs();
    struct ko_costs never = costs;

    (void)state;
    never.reading.cache = 0;
    for (int i = 0; i < ko_npaper_texts; i++) {
        const struct ko_paper_text *text = &ko_paper_texts[i];
        const enum ko_collective what = text->what;

        if (text->flags & KO_SPREAD || what == KO_BARRIER || what == KO_ALL_GATHER ||
            what == KO_ALL_TO_ALL)
            continue;
        assert_close(predict_long(what, text->name, 3, 4, &costs),
                     predict_long(what, text->name, 3, 4, &never), 1e-12);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_follow_each_other),
        cmocka_unit_test(what_both_exchange_is_read_where_that_is_sooner),
        cmocka_unit_test(what_leaves_the_cache_goes_through_slots),
        cmocka_unit_test(a_root_helps_its_one_reader),
        cmocka_unit_test(what_both_reduce_is_read_where_that_is_sooner),
        cmocka_unit_test(what_a_root_adds_is_read_where_that_is_sooner),
        cmocka_unit_test(what_only_passes_is_not_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
