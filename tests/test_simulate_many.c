/* SPDX-License-Identifier: MIT
 *
 * Predicted times of many ranks, up to a hundred thousand: that what a few take tells of them, in
 * little memory, and what is too much.
 */
#include "layout.h"
#include "predictions.h"
#include "sanitized.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

enum { MANY = IS_SANITIZED ? 10000 : 100000 };          /* ranks */
enum { MOST_KIB = (IS_SANITIZED ? 1536 : 384) * 1024 }; /* of so many */

/* Hosts whose ranks are dealt out in turn do not stand for each other. */
static void dealt_ranks_are_all_simulated(void **state)
{
    enum { N = 96, NHOSTS = 24 };
    static const char *const names[] = {"ring", "ring_both", "hierarchical", "two_shot",
                                        "doubling"};
    char machines[N][8];
    const char *list[N];
    struct ko_costs costs = ko_default_costs;

    (void)state;
    costs.cores = 2;
    for (int r = 0; r < N; r++) {
        snprintf(machines[r], sizeof machines[r], "m%d", r % NHOSTS);
        list[r] = machines[r];
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        double us[2];

        for (int is_whole = 0; is_whole < 2; is_whole++) {
            struct ko_simulation simulation = predicted_call(
                predicted_text(KO_ALL_REDUCE, names[i]), N, N / NHOSTS, N * 50, &costs);
            struct ko_hosts *hosts;

            free((void *)(uintptr_t)simulation.call.hosts);
            assert_int_equal(ko_layout_make(list, N, &hosts), 0);
            hosts->has_windows = true;
            simulation.call.hosts = hosts;
            simulation.is_whole = is_whole;
            us[is_whole] = predicted_us(&simulation, ko_simulate);
        }
        assert_close(us[0], us[1], 1e-9);
    }
}

/* What a few ranks take tells what a thousand do. */
static void few_tell_of_many(void **state)
{
    static const enum ko_collective whats[] = {KO_ALL_REDUCE, KO_REDUCE,         KO_BROADCAST,
                                               KO_ALL_GATHER, KO_REDUCE_SCATTER, KO_BARRIER};
    int nfar = 0, nall = 0;

    (void)state;
    for (size_t i = 0; i < sizeof whats / sizeof *whats; i++)
        for (int row = 0; row < ko_npaper_texts; row++)
            for (int per_host = 1; per_host <= 8; per_host += 7)
                for (size_t count = 100; count <= 20000 && ko_paper_texts[row].what == whats[i];
                     count *= 100) {
                    const struct ko_paper_text *text = &ko_paper_texts[row];
                    double all, few;

                    all = predict(whats[i], text->name, 1000, per_host, count, &ko_default_costs);
                    few = predict_by_few(text, 1000, per_host, count, &ko_default_costs);
                    if (few < all / 2 || few > 2 * all)
                        fail_msg("%s of %zu: %g us, not %g", text->name, count, few, all);
                    nfar += few < 0.8 * all || few > 1.25 * all;
                    nall++;
                }
    assert_true(nall >= 100 && nfar <= nall / 6);
}

/* Of long calls, too, whose pipelines have to be full among the few, and whose chunks may become
 * smaller with every doubling. */
static void few_tell_of_long_calls(void **state)
{
    static const char *const names[] = {"halving", "double_tree", "binomial", "knomial"};

    (void)state;
    for (int row = 0; row < ko_npaper_texts; row++)
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            const struct ko_paper_text *text = &ko_paper_texts[row];
            double all, few;

            if (text->what != KO_ALL_REDUCE || strcmp(text->name, names[i]) != 0)
                continue;
            all = predict(KO_ALL_REDUCE, text->name, 1024, 8, 786432, &ko_default_costs);
            few = predict_by_few(text, 1024, 8, 786432, &ko_default_costs);
            if (few < all / 1.5 || few > 1.5 * all)
                fail_msg("%s: %g us, not %g", text->name, few, all);
        }
}

/* Chains among hosts have as much more to pass on as there are hosts, in chunks as much smaller. */
static void few_tell_of_chains_of_ever_smaller_chunks(void **state)
{
    static const char *const names[] = {"ring", "hierarchical"};
    enum { RANKS = IS_SANITIZED ? 256 : 2000, PER_HOST = 8, COUNT = 1 << 24, SLICE = 1 << 15 };

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct ko_paper_text *text = predicted_text(KO_ALL_REDUCE, names[i]);
        struct ko_simulation all = predicted_call(text, RANKS, PER_HOST, COUNT, &ko_default_costs);
        struct ko_simulation few = predicted_call(text, RANKS, PER_HOST, COUNT, &ko_default_costs);

        all.call.slice = few.call.slice = SLICE;
        assert_close(predicted_us(&few, ko_simulate_many), predicted_us(&all, ko_simulate), 0.2);
    }
}

static void assert_little_memory(void)
{
    struct rusage usage;

    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    if (usage.ru_maxrss > MOST_KIB)
        fail_msg("%ld KiB", usage.ru_maxrss);
}

/* Every all_reduce that is cheap enough, in little memory. */
static void a_hundred_thousand_ranks_fit(void **state)
{
    static const char *const names[] = {"doubling", "halving", "ring",        "hierarchical",
                                        "binomial", "knomial", "double_tree", "two_shot"};

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        double us = predict(KO_ALL_REDUCE, names[i], MANY, 8, 262144, &ko_default_costs);

        if (us < 30 || us > 1e8)
            fail_msg("%s: %g us", names[i], us);
    }
    assert_little_memory();
}

/* All that a few can tell of: not Bruck's all_to_all, whose buffers grow with the ranks. */
static void few_tell_of_a_hundred_thousand(void **state)
{
    (void)state;
    for (int i = 0; i < ko_npaper_texts; i++) {
        const struct ko_paper_text *text = &ko_paper_texts[i];
        double us;

        if (text->what == KO_ALL_TO_ALL && !strcmp(text->name, "bruck"))
            continue;
        us = predict_by_few(text, MANY, 8, 16384, &ko_default_costs);
        if (us < 30 || us > 1e9)
            fail_msg("%s of %d: %g us", text->name, (int)text->what, us);
    }
    assert_little_memory();
}

static void what_is_too_large_is_refused(void **state)
{
    struct ko_hosts *hosts;
    struct ko_simulation simulation = {.call = {.text = predicted_text(KO_ALL_REDUCE, "one_shot"),
                                                .n = 1000,
                                                .count = 1,
                                                .slice = PREDICTED_SLICE,
                                                .slots = PREDICTED_SLOTS},
                                       .element = PREDICTED_ELEMENT,
                                       .costs = &ko_default_costs,
                                       .most_actions = 100000};
    double us;

    (void)state;
    assert_int_equal(ko_layout_even(1000, 1000, &hosts), 0);
    simulation.call.hosts = hosts;
    assert_int_equal(ko_simulate(&simulation, &us), KOLO_E_UNSUPPORTED);
    assert_non_null(strstr(kolo_last_error(), "one_shot among 1000 ranks is"));
    simulation.call.hosts = NULL;
    assert_int_equal(ko_simulate(&simulation, &us), KOLO_E_INVALID);
    free(hosts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dealt_ranks_are_all_simulated),
        cmocka_unit_test(few_tell_of_many),
        cmocka_unit_test(few_tell_of_long_calls),
        cmocka_unit_test(few_tell_of_chains_of_ever_smaller_chunks),
        cmocka_unit_test(a_hundred_thousand_ranks_fit),
        cmocka_unit_test(few_tell_of_a_hundred_thousand),
        cmocka_unit_test(what_is_too_large_is_refused),
    };

    return cmocka_run_group_tests_name("simulation of many ranks", tests, NULL, NULL);
}
