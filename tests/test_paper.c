/* SPDX-License-Identifier: MIT
 *
 * Every text of kernels/ proved on paper for 2 to 64 ranks (one alone runs none: src/coll.c); what
 * it sends and how many steps it takes against the theory. Of many ranks only samples of roots and
 * counts are taken; with the argument "all" every one is, which takes minutes; "all 1 8" takes part
 * 1 of 8 of the texts.
 */
#include "coll.h"
#include "layout.h"
#include "paper.h"
#include "paper_theory.h"
#include "proofs.h"
#include "sanitized.h"
#include "verbs_paper.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST_RANKS = IS_SANITIZED ? 33 : KO_PAPER_MOST_RANKS, SLICE = 3, SLOTS = 8 };

/* ---- what is sent, and in how many steps --------------------------------------------------- */

static bool has_blocks(enum ko_collective what)
{
    return what == KO_ALL_GATHER || what == KO_REDUCE_SCATTER || what == KO_GATHER ||
           what == KO_SCATTER || what == KO_ALL_TO_ALL;
}

/* Of blocks, each travels to all who want it, once. */
static size_t sends_of_blocks(const struct ko_paper_call *call)
{
    size_t sum = 0;

    for (int i = 0; i < call->n; i++)
        for (int j = 0; j < call->n; j++)
            switch (call->text->what) {
            case KO_ALL_TO_ALL:
                sum += i == j ? 0 : call->counts[i * call->n + j];
                break;
            case KO_GATHER:
            case KO_SCATTER:
                sum += i == call->root && j != i ? call->counts[j] : 0;
                break;
            default:
                sum += i == j ? 0 : call->counts[j];
            }
    return sum;
}

/* Slices follow one another closely: the longest chain of messages is far from all of a rank's, as
 * it would be if a rank waited for a slice of one tree before it served the other. */
static void check_pipeline(const struct ko_paper_call *call, const struct ko_paper_report *report)
{
    const size_t slices = call->count ? (call->count - 1) / call->slice + 1 : 1;

    assert_true(report->steps <= slices / 2 + theory_of(call->text)->steps((size_t)call->n));
}

/* What one rank sends; chunks of what n does not divide differ by one element. */
static void check_share(const struct ko_paper_call *call, size_t sent, int rank, size_t total)
{
    const size_t n = (size_t)call->n;
    const enum share share = theory_of(call->text)->share;
    const bool is_root = rank == call->root;

    switch (share) {
    case ALIKE:
    case ALIKE_BY_HALVES:
        if (has_blocks(call->text->what) || call->count % (share == ALIKE ? n : 2 * n) == 0)
            assert_int_equal(sent * n, total);
        else { /* 2 (n - 1) chunks, of which each has an element more or less */
            assert_true(sent * n <= total + 2 * n * (n - 1));
            assert_true(sent * n + 2 * n * (n - 1) >= total);
        }
        break;
    case ALIKE_IF_POWER:
        if (power_below(n) == n && call->count % n == 0)
            assert_int_equal(sent * n, total);
        break;
    case NOT_ROOT:
        assert_int_equal(sent, is_root ? 0 : call->count);
        break;
    case ROOT:
        assert_int_equal(sent, is_root ? total : 0);
        break;
    case BY_TREE:
        break;
    }
}

static void check_traffic(const struct ko_paper_call *call, const struct ko_paper_report *report)
{
    const struct theory *theory = theory_of(call->text);
    const size_t n = (size_t)call->n;
    size_t total = 0;

    for (int r = 0; r < call->n; r++)
        total += report->sent[r];
    for (int r = 0; r < call->n && !call->counts; r++)
        check_share(call, report->sent[r], r, total);
    assert_int_equal(total, call->counts ? sends_of_blocks(call) : theory->sends(n, call->count));
    assert_true(report->messages >= n - 1);
    if (!call->counts && n * call->count <= call->slice)
        assert_int_equal(report->steps, theory->steps(n));
    if (!strcmp(call->text->name, "double_tree"))
        check_pipeline(call, report);
}

static void prove(struct ko_paper_call *call)
{
    struct ko_paper_report report;

    for (int in_place = 0; in_place < 2; in_place++) {
        if (in_place && call->text->what == KO_ALL_TO_ALL)
            continue;
        call->is_in_place = in_place;
        if (ko_paper_verify(call, &report))
            fail_msg("%s", kolo_last_error());
        check_traffic(call, &report);
    }
}

static bool is_rooted(enum ko_collective what)
{
    return what == KO_REDUCE || what == KO_BROADCAST || what == KO_GATHER || what == KO_SCATTER;
}

/* All roots; of many ranks with one count only, with the others some. */
static bool takes_root(const struct ko_paper_call *call, int root)
{
    if (!is_rooted(call->text->what))
        return root == 0;
    return call->n <= 8 || call->count == SLICE + 1 || root == 0 || root == call->n / 3 ||
           root == call->n - 1;
}

static void prove_roots(struct ko_paper_call *call)
{
    for (call->root = 0; call->root < call->n; call->root++)
        if (takes_root(call, call->root))
            prove(call);
}

/* Blocks of n * count elements are cut within a block; many ranks then need no long counts. */
static void prove_counts(struct ko_paper_call *call)
{
    const size_t n = (size_t)call->n;
    const size_t few[] = {0, 1, SLICE - 1, SLICE, SLICE + 1, 13, 3 * SLICE * SLOTS + 1};
    const size_t by_ranks[] = {n - 1, n, n + 1, 2 * n * SLICE + 7};
    const bool is_large = call->n > 16 && has_blocks(call->text->what);

    for (size_t i = 0; i < sizeof few / sizeof *few - is_large; i++) {
        call->count = few[i];
        prove_roots(call);
    }
    for (size_t i = 0; i < sizeof by_ranks / sizeof *by_ranks && !is_large; i++) {
        call->count = by_ranks[i];
        prove_roots(call);
    }
}

/* Where all blocks must fit into a slice. */
static void prove_small_counts(struct ko_paper_call *call)
{
    for (call->count = 0; call->count <= 3; call->count++) {
        call->slice = call->count ? (size_t)call->n * call->count : 1;
        prove_roots(call);
    }
}

/* Blocks of nothing, of some elements, and one much longer than the rest. */
static void prove_uneven_blocks(struct ko_paper_call *call)
{
    const int n = call->n, ncounts = call->text->what == KO_ALL_TO_ALL ? n * n : n;
    size_t *counts = calloc((size_t)ncounts, sizeof *counts);

    assert_non_null(counts);
    call->count = 0;
    call->counts = counts;
    for (unsigned round = 0; round < 3; round++) {
        for (int i = 0; i < ncounts; i++)
            counts[i] = ((unsigned)i * 7 + round * 5 + (unsigned)n) % (round ? 2 * SLICE + 2 : 2);
        counts[(unsigned)ncounts * round / 3] = round ? 4 * SLICE * SLOTS + 1 : 0;
        prove_roots(call);
    }
    call->counts = NULL;
    free(counts);
}

static void prove_ranks(struct ko_paper_call *call)
{
    if (call->text->flags & KO_SMALL) {
        prove_small_counts(call);
        return;
    }
    prove_counts(call);
    if (has_blocks(call->text->what) && !(call->text->flags & KO_EVEN) && call->n <= 17)
        prove_uneven_blocks(call);
}

/* The fewest slots that a text may have to do with, and as many as links have; of many ranks
 * samples of these: what runs in two slots runs in more, where nobody has to wait who had not to
 * before, and sends the same messages, of which the same can be known. */
static int most_slots(int n)
{
    return n > 12 && n % 8 ? 2 : SLOTS;
}

static void prove_text(const struct ko_paper_text *text)
{
    for (int n = 2; n <= MOST_RANKS; n++)
        for (int slots = 2; slots <= most_slots(n); slots += SLOTS - 2) {
            struct ko_paper_call call = {.text = text, .n = n, .slice = SLICE, .slots = slots};

            prove_ranks(&call);
        }
}

/* All ranks, all roots, all counts. */
static void prove_all_of(const struct ko_paper_text *text)
{
    for (size_t n = 2; n <= KO_PAPER_MOST_RANKS; n++) {
        const size_t counts[] = {0, 1, n - 1, n, n + 1, 61};
        struct ko_paper_call call = {.text = text, .n = (int)n};
        const int nroots = is_rooted(text->what) ? call.n : 1;

        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
            for (call.slots = 2; call.slots <= most_slots(call.n); call.slots += SLOTS - 2)
                for (call.root = 0; call.root < nroots; call.root++) {
                    call.count = counts[i];
                    call.slice = text->flags & KO_SMALL ? n * (call.count + 1) : SLICE;
                    prove(&call);
                }
    }
}

static void nothing_is_left_out(void **state)
{
    prove_all_of(*state);
}

static void every_text_is_proved(void **state)
{
    (void)state;
    assert_true(ko_npaper_texts >= KO_NCOLLECTIVES);
    for (int i = 0; i < ko_npaper_texts; i++)
        if (!(ko_paper_texts[i].flags & KO_SPREAD)) /* the others: test_paper_hosts.c */
            prove_text(&ko_paper_texts[i]);
}

/* The simplest case by hand: the ring of two on four elements. */
static void a_ring_of_two_reads_as_expected(void **state)
{
    static const char *const expected[] = {
        "send to rank 1 of IN[0..2)",
        "recv_reduce from rank 1 with IN[2..4) into OUT[2..4)",
        "send to rank 1 of OUT[2..4)",
        "recv from rank 1 into OUT[0..2)",
    };
    const struct ko_paper_text *ring = NULL;
    struct ko_paper_list list;
    char text[128];

    (void)state;
    for (int i = 0; i < ko_npaper_texts; i++)
        if (ko_paper_texts[i].what == KO_ALL_REDUCE && !strcmp(ko_paper_texts[i].name, "ring"))
            ring = &ko_paper_texts[i];
    assert_non_null(ring);
    assert_int_equal(ko_paper_write(
                         &(struct ko_paper_call){
                             .text = ring, .n = 2, .root = 0, .count = 4, .slice = 8, .slots = 2},
                         0, &list),
                     0);
    assert_int_equal(list.n, 4);
    for (size_t i = 0; i < list.n; i++) {
        ko_paper_describe(&list.actions[i], text, sizeof text);
        assert_string_equal(text, expected[i]);
    }
    ko_paper_free(&list);
}

static void a_tally_counts_what_is_written(void **state)
{
    static const int host[] = {0, 0, 0, 1, 1, 2, 2}, place[] = {0, 1, 2, 0, 1, 0, 1};
    static const int begins[] = {0, 3, 5, 7}, ranks[] = {0, 1, 2, 3, 4, 5, 6};
    const struct ko_hosts hosts = {3, 2, 2, true, host, place, begins, ranks};

    (void)state;
    for (int i = 0; i < ko_npaper_texts; i++)
        for (int rank = 0; rank < 7; rank++) {
            const struct ko_paper_call call = {.text = &ko_paper_texts[i],
                                               .n = 7,
                                               .root = 2,
                                               .count = 40,
                                               .slice = SLICE,
                                               .slots = SLOTS,
                                               .hosts = &hosts};
            struct ko_paper_list list;
            size_t nactions = 0;

            assert_int_equal(ko_paper_write(&call, rank, &list), 0);
            assert_int_equal(ko_paper_tally(&call, rank, &nactions), 0);
            assert_int_equal(nactions, list.n + list.nranks);
            ko_paper_free(&list);
        }
}

/* What a reader is told so far, beside the list. */
struct told {
    const struct ko_paper_list *list;
    size_t n;
};

static void compare_told(void *context, const struct ko_paper_action *action, const int *ranks)
{
    struct told *told = context;
    const struct ko_paper_action *want = &told->list->actions[told->n];
    char got_text[128], want_text[128];

    assert_true(told->n < told->list->n);
    ko_paper_describe(action, got_text, sizeof got_text);
    ko_paper_describe(want, want_text, sizeof want_text);
    assert_string_equal(got_text, want_text);
    assert_int_equal(action->nranks, want->nranks);
    for (int i = 0; i < want->nranks; i++)
        assert_int_equal(ranks[i], told->list->ranks[want->ranks_at + (size_t)i]);
    told->n++;
}

/* A reader is told action by action what a list has. */
static void a_reader_is_told_what_is_written(void **state)
{
    enum { RANKS = 12, COUNT = 1000, READ_SLICE = 64 };
    struct ko_hosts *hosts;

    (void)state;
    assert_int_equal(ko_layout_even(RANKS, 4, &hosts), 0);
    for (int row = 0; row < ko_npaper_texts; row++)
        for (int rank = 0; rank < RANKS; rank++) {
            const struct ko_paper_call call = {.text = &ko_paper_texts[row],
                                               .n = RANKS,
                                               .count = COUNT,
                                               .slice = READ_SLICE,
                                               .slots = 2,
                                               .hosts = hosts};
            struct ko_paper_list list;
            struct told told = {.list = &list};
            const struct ko_paper_reader reader = {compare_told, &told};

            assert_int_equal(ko_paper_write(&call, rank, &list), 0);
            assert_int_equal(ko_paper_tell(&call, rank, &reader), 0);
            assert_int_equal(told.n, list.n);
            ko_paper_free(&list);
        }
    free(hosts);
}

static void impossible_calls_are_refused(void **state)
{
    const struct ko_paper_text *text = &ko_paper_texts[0]; /* direct all_reduce */
    const struct ko_paper_call calls[] = {
        {.text = text, .n = 1, .root = 0, .count = 4, .slice = 4, .slots = 2},
        {.text = text, .n = KO_PAPER_MOST_RANKS + 1, .root = 0, .count = 4, .slice = 4, .slots = 2},
        {.text = text, .n = 2, .root = 2, .count = 4, .slice = 4, .slots = 2},
        {.text = text, .n = 2, .root = -1, .count = 4, .slice = 4, .slots = 2},
        {.text = text, .n = 2, .root = 0, .count = 4, .slice = 0, .slots = 2},
        {.text = text, .n = 2, .root = 0, .count = 4, .slice = 4, .slots = 0},
        {.text = text, .n = 2, .root = 0, .count = SIZE_MAX, .slice = 4, .slots = 2},
    };
    struct ko_paper_call in_place = {
        .text = text, .n = 2, .root = 0, .count = 4, .slice = 4, .slots = 2, .is_in_place = true};

    (void)state;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        assert_int_equal(ko_paper_verify(&calls[i], NULL), KOLO_E_INVALID);
    for (int i = 0; i < ko_npaper_texts; i++)
        if (ko_paper_texts[i].what == KO_ALL_TO_ALL)
            in_place.text = &ko_paper_texts[i];
    assert_int_equal(ko_paper_verify(&in_place, NULL), KOLO_E_INVALID);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ring_of_two_reads_as_expected),
        cmocka_unit_test(every_text_is_proved),
        cmocka_unit_test(a_tally_counts_what_is_written),
        cmocka_unit_test(a_reader_is_told_what_is_written),
        cmocka_unit_test(impossible_calls_are_refused),
    };

    proofs_keep_memory();
    if (proofs_are_wanted(argc, argv))
        return proofs_run(argc, argv, false, nothing_is_left_out);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
