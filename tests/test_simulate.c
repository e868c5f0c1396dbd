/* SPDX-License-Identifier: MIT
 *
 * Predicted times against closed formulas, and against each other where two ways must agree.
 */
#include "layout.h"
#include "predictions.h"
#include "sanitized.h"
#include "simulate_prices.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The ring takes 2 (n - 1) messages one after the other (Patarasuk and Yuan 2009): as many sends
 * and receives, and n - 1 reductions, of a chunk each. */
static void the_ring_takes_its_formula(void **state)
{
    static const int sizes[] = {2, 3, 8, 64, 1000, 100000};
    struct ko_costs costs = free_costs();
    struct ko_link_costs *link = &costs.links[KO_REMOTE];

    (void)state;
    link->latency = 5;
    link->send = 0.5;
    link->receive = 0.25;
    for (int i = 0; i < KO_FOOTPRINTS; i++) {
        link->send_byte[i] = 1e-3;
        link->receive_byte[i] = link->waiting_byte[i] = 2e-3;
        costs.reduce_byte[i] = 3e-3;
    }
    costs.call = 7;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const double n = sizes[i], b = 100 * PREDICTED_ELEMENT;
        const double want =
            7 + 2 * (n - 1) * (5 + 0.5 + 0.25 + b * (1e-3 + 2e-3)) + b * (n - 1) * 3e-3;

        assert_close(predict(KO_ALL_REDUCE, "ring", sizes[i], 1, 100 * (size_t)n, &costs), want,
                     1e-9);
    }
}

/* A tree's depth grows with the logarithm of the ranks, and so does its time. */
static void trees_take_as_long_as_they_are_deep(void **state)
{
    struct ko_costs costs = free_costs();

    (void)state;
    costs.links[KO_REMOTE].latency = 1;
    for (int depth = 1; depth <= 16; depth++) {
        assert_close(predict(KO_ALL_REDUCE, "binomial", 1 << depth, 1, 8, &costs), 2 * depth, 1e-9);
        assert_close(predict(KO_BROADCAST, "binomial", 1 << depth, 1, 8, &costs), depth, 1e-9);
        assert_close(predict(KO_ALL_REDUCE, "doubling", 1 << depth, 1, 8, &costs), depth, 1e-9);
    }
    assert_close(predict(KO_ALL_REDUCE, "binomial", 100000, 1, 8, &costs), 32, 1e-9);
    assert_close(predict(KO_BARRIER, "dissemination", 100000, 1, 0, &costs), 17, 1e-9);
}

/* Of a binomial tree of so many levels. Down, a level costs a send, a hop and a receive: the child
 * with the most below it is served first. Up, it costs a send, a hop, and a receive and a reduction
 * for each child of its parent, all of which have come when the one with the most below it has, and
 * which are reduced at once, each after the first for three fifths. */
static double tree_us(double depth, bool is_up, double b)
{
    const double down = depth * (5 + b * (1e-3 + 2e-3));
    const double parts = 0.4 * depth + 0.6 * depth * (depth + 1) / 2;
    const double received = depth * (depth + 1) / 2;
    const double up = depth * (5 + b * 1e-3) + b * (2e-3 * received + 3e-3 * parts);

    return 7 + down + (is_up ? up : 0);
}

static void the_tree_takes_its_formula(void **state)
{
    struct ko_costs costs = free_costs();
    const double b = 100 * PREDICTED_ELEMENT;

    (void)state;
    costs.links[KO_REMOTE].latency = 5;
    costs.call = 7;
    for (int k = 0; k < KO_FOOTPRINTS; k++) {
        costs.links[KO_REMOTE].send_byte[k] = 1e-3;
        costs.links[KO_REMOTE].receive_byte[k] = costs.links[KO_REMOTE].waiting_byte[k] = 2e-3;
        costs.reduce_byte[k] = 3e-3;
    }
    for (int depth = 1; depth <= 16; depth++)
        for (int is_up = 0; is_up < 2; is_up++)
            assert_close(predict(is_up ? KO_ALL_REDUCE : KO_BROADCAST, "binomial", 1 << depth, 1,
                                 100, &costs),
                         tree_us(depth, is_up, b), 1e-9);
    for (int is_up = 0; is_up < 2; is_up++) {
        const double us =
            predict(is_up ? KO_ALL_REDUCE : KO_BROADCAST, "binomial", 100000, 1, 100, &costs);

        assert_true(us > tree_us(16, is_up, b) && us < tree_us(17, is_up, b));
    }
}

/* One text among ranks that stand for all and among all of them; who comes first when two come at
 * once may differ. */
static void one_host_stands_for_all(void **state)
{
    static const struct {
        enum ko_collective what;
        const char *name;
    } texts[] = {{KO_ALL_REDUCE, "ring"},         {KO_ALL_REDUCE, "ring_both"},
                 {KO_ALL_REDUCE, "hierarchical"}, {KO_ALL_REDUCE, "two_shot"},
                 {KO_ALL_GATHER, "bruck"},        {KO_REDUCE_SCATTER, "bruck"},
                 {KO_REDUCE_SCATTER, "ring"},     {KO_ALL_TO_ALL, "pairwise"}};
    struct ko_costs costs = ko_default_costs;

    (void)state;
    costs.cores = 4;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        double one = predict(texts[i].what, texts[i].name, 96, 4, 96 * 50, &costs);
        double all = predict_wholly(texts[i].what, texts[i].name, 96, 4, 96 * 50, &costs, 0, true);

        assert_close(one, all, 1e-3);
    }
}

/* What is carried out in part takes as long as if it were carried out whole. */
static void long_calls_are_extended(void **state)
{
    static const char *const names[] = {"ring", "binomial", "double_tree", "two_shot", "ring_both"};

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        double whole = predict(KO_ALL_REDUCE, names[i], 8, 4, 1 << 20, &ko_default_costs);
        double part =
            predict_wholly(KO_ALL_REDUCE, names[i], 8, 4, 1 << 20, &ko_default_costs, 6000, false);

        assert_close(part, whole, 0.02);
    }
}

/* A number of 0 to n - 1, the next of a seed. */
static unsigned draw(unsigned *seed, unsigned n)
{
    *seed = *seed * 1103515245 + 12345;
    return (*seed >> 8) % n;
}

enum { SLICE = 131072 }; /* as usual */

/* Microseconds; 0: too large to be simulated. */
static double predict_usual(const struct ko_paper_text *text, int n, int per_host, size_t nbytes,
                            const struct ko_costs *costs)
{
    struct ko_simulation simulation = predicted_call(text, n, per_host, nbytes, costs);
    double us = 0;
    int err;

    simulation.element = 1;
    simulation.call.slice = SLICE;
    simulation.most_actions = 6000; /* as for a choice */
    err = ko_simulate(&simulation, &us);
    free((void *)(uintptr_t)simulation.call.hosts);
    assert_true(!err || err == KOLO_E_UNSUPPORTED);
    return us;
}

/* Up to the longest blocks that the text is for. */
static void assert_growing(const struct ko_paper_text *text, int n, int per_host, double cores)
{
    const size_t most = text->flags & KO_SMALL ? SLICE / (size_t)n : 512 << 20;
    struct ko_costs costs = ko_default_costs;
    double last = 0;

    costs.cores = cores;
    for (size_t nbytes = text->flags & KO_SMALL ? 8 : 1024; nbytes <= most; nbytes *= 2) {
        const double us = predict_usual(text, n, per_host, nbytes, &costs);

        assert_true(us >= 0);
        if (us > 0 && us < 0.99 * last)
            fail_msg("%s among %d ranks, %d on a host: %zu bytes take %g us, half of them %g",
                     text->name, n, per_host, nbytes, us, last);
        last = us > 0 ? us : last;
    }
}

/* Whether they are carried out whole or in part: samples of texts, ranks and hosts with a core for
 * each rank, since those who take turns on one may be done sooner with longer messages. */
static void longer_calls_take_longer(void **state)
{
    unsigned seed = 1;

    (void)state;
    assert_growing(predicted_text(KO_BROADCAST, "scatter"), 1000, 8, 2);
    for (int i = 0; i < (IS_SANITIZED ? 15 : 60); i++) {
        const int row = (int)draw(&seed, (unsigned)ko_npaper_texts);
        const int per_host = 1 << draw(&seed, 5), nhosts = 2 + (int)draw(&seed, 7);
        const struct ko_paper_text *text = &ko_paper_texts[row];

        if (text->what != KO_BARRIER && (per_host > 1 || !(text->flags & KO_SPREAD)))
            assert_growing(text, nhosts * per_host, per_host, per_host);
    }
}

/* Costs per byte stand for their footprints and change in proportion between them. */
static void costs_follow_the_footprint(void **state)
{
    const double costs[KO_FOOTPRINTS] = {1, 2, 4, 8, 16, 32};

    (void)state;
    assert_close(ko_cost_at(costs, 0), 1, 1e-12);
    assert_close(ko_cost_at(costs, 131072), 1, 1e-12);
    assert_close(ko_cost_at(costs, 262144), 1.5, 1e-12);
    assert_close(ko_cost_at(costs, 524288), 2, 1e-12);
    assert_close(ko_cost_at(costs, 64 << 20), 24, 1e-12);
    assert_close(ko_cost_at(costs, 1e12), 32, 1e-12);
}

/* It is half of what the ranks of a host have in all: one buffer each in a broadcast, two in an
 * all_reduce, one and the root's result in a reduce, blocks of all and an own one in others. */
static void the_footprint_is_that_of_all_buffers(void **state)
{
    static const struct {
        enum ko_collective what;
        const char *name;
        double counts; /* of two hosts with four ranks each */
    } calls[] = {{KO_BROADCAST, "direct", 8},     {KO_ALL_REDUCE, "ring", 16},
                 {KO_REDUCE, "ring", 9},          {KO_ALL_GATHER, "ring", 8 * 9},
                 {KO_REDUCE_SCATTER, "ring", 72}, {KO_BARRIER, "dissemination", 0}};
    struct ko_hosts *hosts;

    (void)state;
    assert_int_equal(ko_layout_even(8, 4, &hosts), 0);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        const struct ko_simulation simulation = {
            .call = {.text = predicted_text(calls[i].what, calls[i].name),
                     .n = 8,
                     .count = 64,
                     .hosts = hosts},
            .element = PREDICTED_ELEMENT};

        assert_close(ko_simulate_footprint(&simulation),
                     calls[i].counts * 64 * PREDICTED_ELEMENT / 4, 1e-9);
    }
    free(hosts);
}

/* What a rank has just received or sent is sent at what slots of such a size cost, other slices at
 * the call's. */
static void what_was_touched_last_is_near(void **state)
{
    enum { COUNT = 1 << 20 };
    const double each = (double)COUNT * PREDICTED_ELEMENT;
    struct ko_costs costs = free_costs();
    struct ko_simulation of_large_slots =
        predicted_call(predicted_text(KO_BROADCAST, "ring"), 3, 3, PREDICTED_SLICE, &costs);

    (void)state;
    for (int i = 1; i < KO_FOOTPRINTS; i++)
        costs.links[KO_LOCAL].send_byte[i] = 100;
    costs.links[KO_LOCAL].send_byte[0] = 1;
    assert_close(predict(KO_BROADCAST, "direct", 2, 2, COUNT, &costs), 100 * each, 1e-9);
    assert_close(predict(KO_BROADCAST, "direct", 5, 5, COUNT, &costs), 103 * each, 1e-9);
    assert_close(predict(KO_ALL_TO_ALL, "pairwise", 4, 4, COUNT / 4, &costs), 75 * each, 1e-9);
    assert_close(predict(KO_ALL_GATHER, "direct", 4, 4, COUNT / 4, &costs), 0.75 * each, 1e-9);
    costs.links[KO_LOCAL].send_byte[5] = 0;
    for (int i = 0; i < 5; i++)
        costs.links[KO_LOCAL].send_byte[i] = i == 0;
    assert_close(predict(KO_BROADCAST, "ring", 3, 3, 64 * COUNT, &costs), 64 * each, 1e-9);
    costs.links[KO_LOCAL].send_byte[1] = 7; /* 512 KiB: what these slots hold */
    of_large_slots.element = 64;
    of_large_slots.footprint = 1e9;
    assert_close(predicted_us(&of_large_slots, ko_simulate), 7 * 64 * PREDICTED_SLICE, 1e-9);
}

/* A root copies its own block while nobody else copies one. */
static void a_root_copies_alone(void **state)
{
    enum { COUNT = 64 };
    const double block = COUNT * PREDICTED_ELEMENT;
    struct ko_costs costs = free_costs();

    (void)state;
    costs.copy_byte[0] = 3;
    costs.lone_copy_byte[0] = 2;
    assert_close(predict(KO_GATHER, "direct", 2, 2, COUNT, &costs), 2 * block, 1e-9);
    assert_close(predict(KO_SCATTER, "direct", 4, 4, COUNT, &costs), 2 * block, 1e-9);
    assert_close(predict(KO_ALL_GATHER, "direct", 2, 2, COUNT, &costs), 3 * block, 1e-9);
}

/* A block is copied at once, of whatever length: here of more bytes than 32 bits hold. */
static void copies_are_of_any_length(void **state)
{
    const size_t nbytes = (size_t)5 << 30;
    struct ko_costs costs = free_costs();
    struct ko_simulation of_large_slices =
        predicted_call(predicted_text(KO_ALL_TO_ALL, "pairwise"), 2, 2, nbytes, &costs);

    (void)state;
    for (int i = 0; i < KO_FOOTPRINTS; i++)
        costs.copy_byte[i] = 1e-6;
    of_large_slices.element = 1;
    of_large_slices.call.slice = 16 << 20;
    assert_close(predicted_us(&of_large_slices, ko_simulate), (double)nbytes * 1e-6, 1e-9);
}

/* Two ranks of one core take turns. */
static void cores_are_shared(void **state)
{
    struct ko_costs costs = free_costs();
    double two, one;

    (void)state;
    costs.links[KO_LOCAL].receive_byte[0] = costs.links[KO_LOCAL].waiting_byte[0] =
        costs.copy_byte[0] = 1;
    costs.cores = 2;
    two = predict(KO_ALL_TO_ALL, "pairwise", 2, 2, 64, &costs);
    costs.cores = 1;
    one = predict(KO_ALL_TO_ALL, "pairwise", 2, 2, 64, &costs);
    assert_close(one, 2 * two, 1e-9);
}

/* Between ranks of one core a slice is copied, between those of two it crosses: it does so also
 * where what is passed on is reduced into a slot. Of four ranks on two cores 0 and 2 share one. */
static void what_stays_on_a_core_is_copied(void **state)
{
    static const struct {
        enum ko_collective what;
        const char *name;
        int n, cores;
        double times; /* a byte's cost */
    } calls[] = {
        {KO_BROADCAST, "direct", 2, 2, 4 + 3},         {KO_BROADCAST, "direct", 2, 1, 1 + 1},
        {KO_BROADCAST, "direct", 4, 2, 4 + 1 + 4 + 3}, {KO_BROADCAST, "ring", 4, 2, 3 * (4 + 3)},
        {KO_REDUCE, "ring", 3, 3, 4 + 5 + 3 + 5},      {KO_REDUCE, "ring", 3, 1, 1 + 3 + 3},
    };
    struct ko_costs costs = free_costs();

    (void)state;
    costs.links[KO_LOCAL].send_byte[0] = 4;
    costs.links[KO_LOCAL].receive_byte[0] = costs.links[KO_LOCAL].waiting_byte[0] = 3;
    costs.reduce_byte[0] = 5;
    costs.copy_byte[0] = 1;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        costs.cores = calls[i].cores;
        assert_close(predict(calls[i].what, calls[i].name, calls[i].n, calls[i].n, 64, &costs),
                     calls[i].times * 64 * PREDICTED_ELEMENT, 1e-9);
    }
}

/* Who sends nothing copies out of slots while others copy in, at another cost than who does both in
 * turn: the leaves of a tree, the root of a gather. */
static void who_only_receives_has_a_cost_of_its_own(void **state)
{
    enum { COUNT = 64 };
    static const struct {
        enum ko_collective what;
        const char *name;
        int n;
        double times; /* a byte's cost of a block */
    } calls[] = {{KO_BROADCAST, "direct", 2, 3},       {KO_BROADCAST, "direct", 5, 3},
                 {KO_BROADCAST, "ring", 4, 5 + 5 + 3}, {KO_GATHER, "direct", 4, 3 * 3},
                 {KO_SCATTER, "direct", 4, 3},         {KO_ALL_GATHER, "direct", 2, 5},
                 {KO_ALL_TO_ALL, "pairwise", 3, 2 * 5}};

    (void)state;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        for (int link = 0; link < KO_NLINKS; link++) {
            struct ko_costs costs = free_costs();

            costs.links[link].receive_byte[0] = 5;
            costs.links[link].waiting_byte[0] = 3;
            assert_close(predict(calls[i].what, calls[i].name, calls[i].n,
                                 link == KO_LOCAL ? calls[i].n : 1, COUNT, &costs),
                         calls[i].times * COUNT * PREDICTED_ELEMENT, 1e-9);
        }
}

/* Parts that are reduced at once are read each, and written once. */
static void several_at_once_cost_less(void **state)
{
    struct ko_costs costs = free_costs();
    double one, more;

    (void)state;
    costs.reduce_byte[0] = 1;
    one = predict(KO_REDUCE, "direct", 2, 2, 64, &costs);
    assert_close(one, 64 * PREDICTED_ELEMENT, 1e-9);
    for (int n = 3; n < 9; n++) {
        more = predict(KO_REDUCE, "direct", n, n, 64, &costs);
        assert_true(more > one && more < (n - 1) * one);
        assert_close(more, one * (1 + 0.6 * (n - 2)), 1e-9);
        assert_close(predict(KO_REDUCE, "ring", n, n, 64, &costs), (n - 1) * one, 1e-9);
    }
}

/* Who waits for a core that others have pays for each change of ranks. */
static void changes_of_ranks_cost(void **state)
{
    struct ko_costs costs = free_costs();
    double few, many;

    (void)state;
    costs.cores = 2;
    costs.change = 1;
    assert_close(predict(KO_BARRIER, "dissemination", 2, 2, 0, &costs), 0, 1e-9);
    few = predict(KO_BARRIER, "dissemination", 4, 4, 0, &costs);
    many = predict(KO_BARRIER, "dissemination", 8, 8, 0, &costs);
    assert_true(few > 0 && many > 2 * few);
    costs.change = 3;
    assert_close(predict(KO_BARRIER, "dissemination", 8, 8, 0, &costs), 3 * many, 1e-9);
}

/* Who has spun for long enough sleeps, and has to be woken. */
static void long_waits_end_with_a_wake(void **state)
{
    struct ko_costs costs = free_costs();

    (void)state;
    costs.links[KO_REMOTE].latency = 100;
    costs.wake = 10;
    costs.spin = 100;
    assert_close(predict(KO_BROADCAST, "direct", 2, 1, 8, &costs), 100, 1e-9);
    costs.spin = 99;
    assert_close(predict(KO_BROADCAST, "direct", 2, 1, 8, &costs), 110, 1e-9);
    assert_close(predict(KO_BARRIER, "dissemination", 8, 1, 0, &costs), 330, 1e-9);
}

/* Where slots of several links lie beside each other the caches hold less than when the costs were
 * measured, by one. */
static void caches_are_colder_than_measured(void **state)
{
    enum { COUNT = 1 << 16, NBYTES = COUNT * PREDICTED_ELEMENT };
    static const double colder[] = {[2] = 1, [3] = 1.5, [4] = 1.5};
    struct ko_costs costs = free_costs();

    (void)state;
    for (int i = 0; i < KO_FOOTPRINTS; i++)
        costs.links[KO_LOCAL].receive_byte[i] = costs.links[KO_LOCAL].waiting_byte[i] = 1 << i;
    for (int n = 2; n <= 4; n++)
        assert_close(predict(KO_BROADCAST, "direct", n, n, COUNT, &costs),
                     NBYTES *
                         ko_cost_at(costs.links[KO_LOCAL].receive_byte, colder[n] * NBYTES * n / 2),
                     1e-6);
}

/* Who comes back to a core finds the less of its own there, the more was touched meanwhile. */
static void changes_cost_more_where_caches_are_full(void **state)
{
    static const struct {
        double footprint, times;
    } cases[] = {{4e5, 3}, {8e5, 5}, {1e9, 5}};
    struct ko_costs costs = free_costs();
    double least;

    (void)state;
    costs.cores = 2;
    costs.change = 1;
    least = predict(KO_ALL_REDUCE, "one_shot", 4, 4, 0, &costs);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ko_simulation simulation =
            predicted_call(predicted_text(KO_ALL_REDUCE, "one_shot"), 4, 4, 1, &costs);

        simulation.footprint = cases[i].footprint;
        assert_close(predicted_us(&simulation, ko_simulate), cases[i].times * least, 1e-9);
    }
}

/* The ranks of a host share its wire. */
static void the_wire_is_shared(void **state)
{
    struct ko_costs costs = free_costs();

    (void)state;
    costs.links[KO_REMOTE].wire_byte = 1;
    /* one host sends 4 blocks of each of 4 ranks to the other, and back */
    assert_close(predict(KO_ALL_TO_ALL, "direct", 8, 4, 10, &costs), 16 * 10 * PREDICTED_ELEMENT,
                 1e-9);
}

/* Two ranks of one host that share no memory have messages of the costlier kind, and no wire. */
static void what_stays_on_a_host_passes_no_wire(void **state)
{
    static const int all_on[] = {0, 0}, place[] = {0, 1}, begins[] = {0, 2}, ranks[] = {0, 1};
    const struct ko_hosts one = {1, 2, 2, false, all_on, place, begins, ranks};
    struct ko_costs costs = free_costs();
    const struct ko_simulation simulation = {
        .call = {.text = predicted_text(KO_BROADCAST, "direct"),
                 .n = 2,
                 .count = 1000,
                 .slice = PREDICTED_SLICE,
                 .slots = PREDICTED_SLOTS,
                 .hosts = &one},
        .element = PREDICTED_ELEMENT,
        .costs = &costs};
    double us;

    (void)state;
    costs.links[KO_REMOTE].wire_byte = 1;
    costs.links[KO_REMOTE].send = 3;
    assert_close(predict(KO_BROADCAST, "direct", 2, 1, 1000, &costs), 1000 * PREDICTED_ELEMENT + 3,
                 0);
    assert_int_equal(ko_simulate(&simulation, &us), 0);
    assert_close(us, 3, 0);
}

/* What comes over a wire is moved into a slot before it is reduced, what leaves is moved once more;
 * between ranks that share memory neither is. Without shared memory one host is like many. */
static void the_kernel_moves_what_is_reduced(void **state)
{
    struct ko_costs costs = free_costs();
    struct ko_hosts *hosts;
    struct ko_simulation simulation = {.call = {.text = predicted_text(KO_ALL_REDUCE, "ring"),
                                                .n = 3,
                                                .count = 3,
                                                .slice = PREDICTED_SLICE,
                                                .slots = PREDICTED_SLOTS},
                                       .element = 1,
                                       .costs = &costs};
    double us;

    (void)state;
    for (int link = 0; link < KO_NLINKS; link++)
        costs.links[link].send_byte[0] = costs.links[link].receive_byte[0] =
            costs.links[link].waiting_byte[0] = 1;
    costs.reduce_byte[0] = costs.copy_byte[0] = 1;
    assert_close(predict(KO_ALL_REDUCE, "ring", 3, 3, 3, &costs), (3 + 2 + 2) * PREDICTED_ELEMENT,
                 1e-9);
    assert_close(predict(KO_ALL_REDUCE, "ring", 3, 1, 3, &costs), (4 + 4 + 2) * PREDICTED_ELEMENT,
                 1e-9);
    assert_int_equal(ko_layout_even(3, 3, &hosts), 0);
    hosts->has_windows = false;
    simulation.call.hosts = hosts;
    assert_int_equal(ko_simulate(&simulation, &us), 0);
    assert_close(us, 4 + 4 + 2, 1e-9);
    free(hosts);
}

/* While a slice crosses the wire, hosts add others up and spread them. */
static void hosts_work_while_the_wire_does(void **state)
{
    static const struct {
        enum ko_collective what;
        const char *name;
    } texts[] = {{KO_ALL_REDUCE, "hierarchical"},
                 {KO_ALL_GATHER, "hierarchical"},
                 {KO_REDUCE_SCATTER, "hierarchical"}};
    const size_t count = 64 * PREDICTED_SLICE;

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct ko_costs inside = free_costs(), wire = free_costs(), both = free_costs();
        double inside_us, wire_us, both_us;

        for (int k = 0; k < KO_FOOTPRINTS; k++)
            inside.links[KO_LOCAL].receive_byte[k] = inside.links[KO_LOCAL].waiting_byte[k] =
                inside.reduce_byte[k] = 1e-3;
        wire.links[KO_REMOTE].latency = 6;
        both = inside;
        both.links[KO_REMOTE] = wire.links[KO_REMOTE];
        inside_us = predict(texts[i].what, texts[i].name, 4, 2, count, &inside);
        wire_us = predict(texts[i].what, texts[i].name, 4, 2, count, &wire);
        both_us = predict(texts[i].what, texts[i].name, 4, 2, count, &both);
        if (both_us > 1.1 * (inside_us > wire_us ? inside_us : wire_us))
            fail_msg("%zu: %g us, inside %g, on the wire %g", i, both_us, inside_us, wire_us);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_ring_takes_its_formula),
        cmocka_unit_test(the_tree_takes_its_formula),
        cmocka_unit_test(trees_take_as_long_as_they_are_deep),
        cmocka_unit_test(one_host_stands_for_all),
        cmocka_unit_test(long_calls_are_extended),
        cmocka_unit_test(longer_calls_take_longer),
        cmocka_unit_test(costs_follow_the_footprint),
        cmocka_unit_test(the_footprint_is_that_of_all_buffers),
        cmocka_unit_test(what_was_touched_last_is_near),
        cmocka_unit_test(a_root_copies_alone),
        cmocka_unit_test(copies_are_of_any_length),
        cmocka_unit_test(cores_are_shared),
        cmocka_unit_test(what_stays_on_a_core_is_copied),
        cmocka_unit_test(who_only_receives_has_a_cost_of_its_own),
        cmocka_unit_test(several_at_once_cost_less),
        cmocka_unit_test(changes_of_ranks_cost),
        cmocka_unit_test(long_waits_end_with_a_wake),
        cmocka_unit_test(caches_are_colder_than_measured),
        cmocka_unit_test(changes_cost_more_where_caches_are_full),
        cmocka_unit_test(the_wire_is_shared),
        cmocka_unit_test(what_stays_on_a_host_passes_no_wire),
        cmocka_unit_test(the_kernel_moves_what_is_reduced),
        cmocka_unit_test(hosts_work_while_the_wire_does),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
