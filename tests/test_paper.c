/* SPDX-License-Identifier: MIT
 *
 * Every text of kernels/ proved on paper for up to 64 ranks, and mutants of the texts, each with
 * one mistake, which the proof must find.
 */
#include "paper.h"
#include "verbs_paper.h"

#include "doubling.h"
#include "tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SLICE = 3, SLOTS = 8 };

/* ---- the texts --------------------------------------------------------------------------- */

static size_t power_below(size_t n)
{
    return (size_t)power_within((int)n);
}

/* floor and ceiling of log2(n). */
static size_t lg(size_t n)
{
    return (size_t)__builtin_ctzll(power_below(n));
}

static size_t lg_up(size_t n)
{
    return lg(n) + (power_below(n) < n);
}

/* Bits that are set in all numbers below n together. */
static size_t bits_below(size_t n)
{
    size_t bits = 0;

    for (size_t i = 1; i < n; i++)
        bits += (size_t)__builtin_popcountll(i);
    return bits;
}

/* Elements that all ranks send together, and messages in the longest chain if none is cut into
 * slices, from the theory of each algorithm; c elements, n ranks, equal blocks. */
static size_t once(size_t n, size_t c)
{
    return (n - 1) * c;
}

static size_t twice(size_t n, size_t c)
{
    return 2 * (n - 1) * c;
}

static size_t all_pairs(size_t n, size_t c)
{
    return n * (n - 1) * c;
}

static size_t nothing(size_t n, size_t c)
{
    (void)n;
    return 0 * c;
}

static size_t doubling_sends(size_t n, size_t c)
{
    const size_t p = power_below(n);

    return (2 * (n - p) + p * lg(p)) * c;
}

static size_t halving_sends(size_t n, size_t c)
{
    const size_t p = power_below(n);

    return (2 * (n - p) + 2 * (p - 1)) * c;
}

static size_t bruck_sends(size_t n, size_t c)
{
    return n * bits_below(n) * c;
}

static size_t subtree_sends(size_t n, size_t c)
{
    return bits_below(n) * c;
}

static size_t one(size_t n)
{
    (void)n;
    return 1;
}

static size_t two(size_t n)
{
    (void)n;
    return 2;
}

static size_t around_once(size_t n)
{
    return n - 1;
}

static size_t around_twice(size_t n)
{
    return 2 * (n - 1);
}

/* What comes from a rank beyond the power p goes to the opposite of the rank that stands for it
 * last; from there it goes to a rank beyond p only if most have one. */
static size_t doubling_steps(size_t n)
{
    const size_t p = power_below(n), extras = n - p;

    return lg(n) + (extras > 0) + (2 * extras > p);
}

static size_t halving_steps(size_t n)
{
    return 2 * lg(n) + (power_below(n) < n ? 2 : 0);
}

static size_t up_and_down(size_t n)
{
    return 2 * lg(n);
}

/* The most digits of base 4, none of them 0, that a number below n has. */
static size_t flat_depth(size_t n)
{
    size_t most = 0;

    for (size_t i = 1; i < n; i++) {
        size_t digits = 0;

        for (size_t rest = i; rest; rest /= 4)
            digits += rest % 4 != 0;
        most = digits > most ? digits : most;
    }
    return most;
}

static size_t flat_up_and_down(size_t n)
{
    return 2 * flat_depth(n);
}

/* The tree over all but the root is full but for its last level; the root is above it. */
static size_t binary_depth(size_t n)
{
    return lg(n - 1) + 1;
}

static size_t binary_up_and_down(size_t n)
{
    return 2 * binary_depth(n);
}

struct theory {
    enum ko_collective what;
    const char *name;
    size_t (*sends)(size_t n, size_t c);
    size_t (*steps)(size_t n);
};

static const struct theory theories[] = {
    {KO_ALL_REDUCE, "one_shot", all_pairs, one},
    {KO_ALL_REDUCE, "doubling", doubling_sends, doubling_steps},
    {KO_ALL_REDUCE, "two_shot", twice, two},
    {KO_ALL_REDUCE, "halving", halving_sends, halving_steps},
    {KO_ALL_REDUCE, "ring", twice, around_twice},
    {KO_ALL_REDUCE, "ring_both", twice, around_twice},
    {KO_ALL_REDUCE, "binomial", twice, up_and_down},
    {KO_ALL_REDUCE, "knomial", twice, flat_up_and_down},
    {KO_ALL_REDUCE, "double_tree", twice, binary_up_and_down},
    {KO_REDUCE, "direct", once, one},
    {KO_REDUCE, "binomial", once, lg},
    {KO_REDUCE, "ring", once, around_once},
    {KO_REDUCE, "knomial", once, flat_depth},
    {KO_REDUCE, "double_tree", once, binary_depth},
    {KO_BROADCAST, "binomial", once, lg},
    {KO_BROADCAST, "ring", once, around_once},
    {KO_BROADCAST, "direct", once, one},
    {KO_BROADCAST, "knomial", once, flat_depth},
    {KO_BROADCAST, "double_tree", once, binary_depth},
    {KO_BROADCAST, "scatter", once, around_once},
    {KO_ALL_GATHER, "direct", all_pairs, one},
    {KO_ALL_GATHER, "bruck", all_pairs, lg_up},
    {KO_ALL_GATHER, "ring", all_pairs, around_once},
    {KO_ALL_GATHER, "ring_both", all_pairs, around_once},
    {KO_REDUCE_SCATTER, "direct", all_pairs, one},
    {KO_REDUCE_SCATTER, "ring", all_pairs, around_once},
    {KO_GATHER, "direct", once, one},
    {KO_GATHER, "binomial", subtree_sends, lg},
    {KO_SCATTER, "direct", once, one},
    {KO_SCATTER, "binomial", subtree_sends, lg},
    {KO_ALL_TO_ALL, "pairwise", all_pairs, around_once},
    {KO_ALL_TO_ALL, "direct", all_pairs, one},
    {KO_ALL_TO_ALL, "bruck", bruck_sends, lg_up},
    {KO_BARRIER, "dissemination", nothing, lg_up},
    {KO_BARRIER, "binomial", nothing, up_and_down},
};

static const struct theory *theory_of(const struct ko_paper_text *text)
{
    for (size_t i = 0; i < sizeof theories / sizeof *theories; i++)
        if (theories[i].what == text->what && !strcmp(theories[i].name, text->name))
            return &theories[i];
    fail_msg("%s has no theory", text->name);
    return NULL;
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

static void check_traffic(const struct ko_paper_call *call, const struct ko_paper_report *report)
{
    const struct theory *theory = theory_of(call->text);
    const size_t n = (size_t)call->n, most = (call->count + n - 1) / n;
    size_t total = 0;

    for (int r = 0; r < call->n; r++) {
        total += report->sent[r];
        /* 2 (n - 1) / n of the buffer, chunks rounded up */
        if (call->text->what == KO_ALL_REDUCE && !strcmp(call->text->name, "ring"))
            assert_true(report->sent[r] <= 2 * (n - 1) * most);
    }
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
static bool has_blocks(enum ko_collective what)
{
    return what == KO_ALL_GATHER || what == KO_REDUCE_SCATTER || what == KO_GATHER ||
           what == KO_SCATTER || what == KO_ALL_TO_ALL;
}

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

static void prove_text(const struct ko_paper_text *text)
{
    for (int n = 2; n <= KO_PAPER_MOST_RANKS; n++)
        for (int slots = 2; slots <= SLOTS; slots += SLOTS - 2) {
            struct ko_paper_call call = {.text = text, .n = n, .slice = SLICE, .slots = slots};

            if (n > 12 && slots == SLOTS && n % 8)
                continue; /* what runs in two slots runs in more: samples */
            prove_ranks(&call);
        }
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

/* ---- mutants ----------------------------------------------------------------------------- */

/* Copies of texts for counts of one slice per chunk, each with a mistake. */

#define SHARE(chunk) chunk_of(v->count, v->n, around(chunk, v->n))
#define NEXT around(v->rank + 1, v->n)
#define PREV around(v->rank - 1, v->n)

static void reduce_half(verbs *v, int first, int last)
{
    send(v, NEXT, IN, SHARE(v->rank));
    for (int k = first; k < last; k++)
        recv_reduce_send(v, PREV, NEXT, IN, SHARE(v->rank - k));
}

static void gather_half(verbs *v)
{
    for (int k = 0; k < v->n - 2; k++)
        recv_send(v, PREV, NEXT, SHARE(v->rank - k));
    recv(v, PREV, SHARE(v->rank + 2));
}

static void sound_ring(verbs *v)
{
    reduce_half(v, 1, v->n - 1);
    recv_reduce_send_all(v, PREV, NEXT, IN, SHARE(v->rank + 1));
    gather_half(v);
}

static void wrong_peer(verbs *v)
{
    verbs other = *v;

    other.rank = v->rank == 1 ? 2 : v->rank;
    sound_ring(&other);
}

/* The last chunk to come is not received. */
static void dropped_chunk(verbs *v)
{
    reduce_half(v, 1, v->n - 1);
    recv_reduce_send_all(v, PREV, NEXT, IN, SHARE(v->rank + 1));
    for (int k = 0; k < v->n - 2; k++)
        recv_send(v, PREV, NEXT, SHARE(v->rank - k));
}

/* Nobody sends it either. */
static void chunk_never_sent(verbs *v)
{
    reduce_half(v, 1, v->n - 1);
    recv_reduce_send_all(v, PREV, NEXT, IN, SHARE(v->rank + 1));
    for (int k = 0; k < v->n - 3; k++)
        recv_send(v, PREV, NEXT, SHARE(v->rank - k));
    recv(v, PREV, SHARE(v->rank + 3));
}

/* Rank 1 passes a chunk on without its own part; one that looks like it replaces it. */
static void missing_reduce(verbs *v)
{
    send(v, NEXT, IN, SHARE(v->rank));
    for (int k = 1; k < v->n - 1; k++) {
        if (v->rank == 1 && k == 1)
            recv_send(v, PREV, NEXT, SHARE(v->rank - k));
        else
            recv_reduce_send(v, PREV, NEXT, IN, SHARE(v->rank - k));
    }
    recv_reduce_send_all(v, PREV, NEXT, IN, SHARE(v->rank + 1));
    gather_half(v);
}

/* Completed one hop too early, and reduced once more. */
static void reduced_twice(verbs *v)
{
    reduce_half(v, 1, v->n - 1);
    recv_reduce_send_all(v, PREV, NEXT, IN, SHARE(v->rank + 1));
    for (int k = 0; k < v->n - 2; k++)
        recv_reduce_send(v, PREV, NEXT, IN, SHARE(v->rank - k));
    recv(v, PREV, SHARE(v->rank + 2));
}

/* The chunks of the second half are off by one. */
static void wrong_chunk(verbs *v)
{
    reduce_half(v, 1, v->n - 1);
    recv_reduce_send_all(v, PREV, NEXT, IN, SHARE(v->rank));
    gather_half(v);
}

/* Everybody receives before sending. */
static void swapped_order(verbs *v)
{
    recv(v, PREV, SHARE(v->rank - 1));
    send(v, NEXT, IN, SHARE(v->rank));
}

/* The own part is overwritten by what comes before it surely has left: in place only. */
static void early_overwrite(verbs *v)
{
    const struct ko_part all = {0, v->count};

    for (int k = 1; k < v->n; k++)
        send(v, around(v->rank + k, v->n), IN, all);
    reduce_from(v, NULL, v->n, all, all, true);
}

/* Rank 1 adds (0 + 2) + 1, the others (2 + 1) + 0: right, but not the same bits. */
static void own_order(verbs *v)
{
    const struct ko_part all = {0, v->count};

    if (v->rank == 0) {
        recv_reduce(v, 1, IN, all, all);
        send(v, 2, OUT, all);
        send_copy(v, 2, IN, all);
    } else if (v->rank == 1) {
        recv_reduce_send(v, 2, 0, IN, all);
        recv_reduce(v, 2, IN, all, all);
    } else {
        send(v, 1, IN, all);
        recv(v, 0, all);
        recv_reduce_send(v, 0, 1, IN, all);
    }
}

/* Rank 0 gets the sum, but nobody divides it for AVG. */
static void never_completed(verbs *v)
{
    const struct ko_part all = {0, v->count};

    if (v->rank == 0) {
        send(v, 1, IN, all);
        recv(v, 1, all);
    } else {
        recv_reduce_send(v, 0, 0, IN, all);
    }
}

static void too_long(verbs *v)
{
    send(v, NEXT, IN, (struct ko_part){0, v->slice + 1});
    recv(v, PREV, (struct ko_part){0, v->slice + 1});
}

static void out_of_bounds(verbs *v)
{
    send(v, NEXT, IN, (struct ko_part){v->count, 1});
    recv(v, PREV, (struct ko_part){0, 1});
}

static void other_length(verbs *v)
{
    send(v, NEXT, IN, (struct ko_part){0, 1});
    recv(v, PREV, (struct ko_part){0, 2});
}

static void empty_output(verbs *v)
{
    send(v, NEXT, OUT, (struct ko_part){0, 1});
    recv(v, PREV, (struct ko_part){0, 1});
}

static void to_nobody(verbs *v)
{
    send(v, v->n, IN, (struct ko_part){0, 1});
}

static void from_itself(verbs *v)
{
    recv(v, v->rank, (struct ko_part){0, 1});
}

static void uneven_parts(verbs *v)
{
    send(v, NEXT, IN, (struct ko_part){0, 1});
    recv_reduce(v, PREV, IN, (struct ko_part){0, 2}, (struct ko_part){0, 1});
}

static void uneven_keep(verbs *v)
{
    keep(v, (struct ko_part){0, 2}, (struct ko_part){0, 1});
}

static void mixed_elements(verbs *v)
{
    send(v, NEXT, IN, (struct ko_part){0, 1});
    recv_reduce(v, PREV, IN, (struct ko_part){1, 1}, (struct ko_part){0, 1});
}

static void shifted_copy(verbs *v)
{
    for (size_t i = 0; i < 2; i++)
        if (v->rank == v->root)
            send(v, NEXT, IN, (struct ko_part){0, 1});
        else
            recv(v, v->root, (struct ko_part){i, 1});
}

/* Rank 0 sums up a list that has rank 1 twice. */
static void listed_twice(verbs *v)
{
    const int ranks[] = {0, 1, 1};
    const struct ko_part all = {0, v->count};

    if (v->rank == 0)
        reduce_from(v, ranks, 3, all, all, true);
    else
        send(v, 0, IN, all);
}

/* Complete at once, though only two of three have contributed; the third comes with the next. */
static void completed_early(verbs *v)
{
    const int ranks[] = {0, 1};
    const struct ko_part all = {0, v->count};

    if (v->rank > 0) {
        send(v, 0, IN, all);
        return;
    }
    reduce_from(v, ranks, 2, all, all, true);
    recv_reduce(v, 2, OUT, all, all);
}

static void nobody_listed(verbs *v)
{
    reduce_from(v, NULL, 0, (struct ko_part){0, 1}, (struct ko_part){0, 1}, true);
}

/* Sums up in the order 1, 0, ... though its row promises 0, 1, ...; three ranks. */
static void another_order(verbs *v)
{
    const int ranks[] = {2, 1, 0};
    const struct ko_part all = {0, v->count};

    if (v->rank == v->root)
        reduce_from(v, ranks, 3, all, all, true);
    else
        send(v, v->root, IN, all);
}

static void small_scratch(verbs *v)
{
    scratch(v, 1);
    move(v, IN, (struct ko_part){0, 2}, TMP, (struct ko_part){0, 2});
}

/* Sends every second element, and puts them one behind the other. */
static void uneven_combs(verbs *v)
{
    const struct ko_comb out = {.at = 0, .run = 1, .stride = 2, .end = 4};
    const struct ko_comb in = {.at = 0, .run = 1, .stride = 1, .end = 2};

    scratch(v, 4);
    move(v, IN, (struct ko_part){0, 4}, TMP, (struct ko_part){0, 4});
    if (v->rank == v->root)
        send_comb(v, NEXT, out);
    else
        recv_comb(v, v->root, in);
    move(v, TMP, (struct ko_part){0, 4}, OUT, (struct ko_part){0, 4});
}

/* The block of the wrong subtree. */
static void wrong_subtree(verbs *v)
{
    if (v->rank == 1)
        v->root = (v->root + 1) % v->n;
    binomial_scatter(v);
}

struct mutant {
    const char *name;
    enum ko_collective what;
    void (*run)(verbs *v);
    int n;
    size_t count;
    int slots;
    bool is_in_place;
    const char *says; /* the complaint contains this */
};

static void every_mutant_is_caught(void **state)
{
    static const struct mutant mutants[] = {
        {"wrong peer", KO_ALL_REDUCE, wrong_peer, 4, 8, 2, false, "rank"},
        {"dropped chunk", KO_ALL_REDUCE, dropped_chunk, 4, 8, 2, false, "were never received"},
        {"chunk never sent", KO_ALL_REDUCE, chunk_never_sent, 4, 8, 2, false,
         "lacks the contribution"},
        {"missing reduce", KO_ALL_REDUCE, missing_reduce, 4, 8, 2, false, "rank"},
        {"reduced twice", KO_ALL_REDUCE, reduced_twice, 4, 8, 2, false, "twice"},
        {"wrong chunk", KO_ALL_REDUCE, wrong_chunk, 4, 8, 2, false, "rank"},
        {"swapped order", KO_ALL_REDUCE, swapped_order, 3, 3, 2, false, "a deadlock"},
        {"one slot", KO_ALL_REDUCE, sound_ring, 4, 8, 1, false, "a deadlock"},
        {"early overwrite", KO_ALL_REDUCE, early_overwrite, 4, 2, 2, true, "by reference"},
        {"order of adding", KO_ALL_REDUCE, own_order, 3, 2, 2, false, "in another order"},
        {"too long", KO_BROADCAST, too_long, 2, 8, 2, false, "more than a slice"},
        {"out of bounds", KO_ALL_REDUCE, out_of_bounds, 2, 2, 2, false, "2 elements only"},
        {"other length", KO_ALL_REDUCE, other_length, 2, 2, 2, false, "has 1 elements, not 2"},
        {"empty output", KO_ALL_REDUCE, empty_output, 2, 2, 2, false, "which is empty"},
        {"to nobody", KO_ALL_REDUCE, to_nobody, 2, 2, 2, false, "no link to rank 2"},
        {"from itself", KO_ALL_REDUCE, from_itself, 2, 2, 2, false, "no link from rank 0"},
        {"uneven parts", KO_ALL_REDUCE, uneven_parts, 2, 2, 2, false, "differ in length"},
        {"uneven keep", KO_ALL_REDUCE, uneven_keep, 2, 2, 2, false, "differ in length"},
        {"mixed elements", KO_ALL_REDUCE, mixed_elements, 2, 2, 2, false, "be mixed with"},
        {"shifted copy", KO_BROADCAST, shifted_copy, 2, 2, 2, true, "holds element 0, not 1"},
        {"never completed", KO_ALL_REDUCE, never_completed, 2, 2, 2, false, "never completed"},
        {"listed twice", KO_REDUCE, listed_twice, 2, 2, 2, false, "twice"},
        {"completed early", KO_REDUCE, completed_early, 3, 2, 2, false, "complete already"},
        {"nobody listed", KO_ALL_REDUCE, nobody_listed, 2, 2, 2, false, "of no parts"},
        {"another order", KO_REDUCE, another_order, 3, 2, 2, false, "the order of the ranks"},
        {"small scratch", KO_ALL_REDUCE, small_scratch, 2, 2, 2, false, "TMP has 1 elements"},
        {"uneven combs", KO_BROADCAST, uneven_combs, 2, 4, 2, false, "empty"},
        {"wrong subtree", KO_SCATTER, wrong_subtree, 4, 1, 8, false, "rank"},
        {"a sound ring", KO_ALL_REDUCE, sound_ring, 5, 11, 2, true, NULL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof mutants / sizeof *mutants; i++) {
        const struct mutant *mutant = &mutants[i];
        const struct ko_paper_text text = {.what = mutant->what,
                                           .name = mutant->name,
                                           .run = mutant->run,
                                           .flags = mutant->what == KO_REDUCE ? KO_ORDERED : 0};
        const struct ko_paper_call call = {.text = &text,
                                           .n = mutant->n,
                                           .root = 0,
                                           .count = mutant->count,
                                           .slice = SLICE,
                                           .slots = mutant->slots,
                                           .is_in_place = mutant->is_in_place};
        int err = ko_paper_verify(&call, NULL);

        if (err != (mutant->says ? KOLO_E_INTERNAL : KOLO_OK))
            fail_msg("%s: status %d, %s", mutant->name, err, kolo_last_error());
        if (mutant->says && !strstr(kolo_last_error(), mutant->says))
            fail_msg("%s: %s", mutant->name, kolo_last_error());
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ring_of_two_reads_as_expected),
        cmocka_unit_test(every_text_is_proved),
        cmocka_unit_test(every_mutant_is_caught),
        cmocka_unit_test(impossible_calls_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
