/* SPDX-License-Identifier: MIT
 *
 * The proof of the texts for several hosts: every way to spread up to 16 ranks over hosts. Of
 * counts and slots only samples are taken, and each in place or not; with the argument "all" more
 * counts are, and both, which takes minutes; "all 1 8" takes part 1 of 8 of the texts.
 */
#include "layout.h"
#include "paper.h"
#include "proofs.h"
#include "sanitized.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST_RANKS = IS_SANITIZED ? 12 : 16, SLICE = 3 };

/* A way to spread ranks: the sizes of the hosts, largest first. */
struct shape {
    int n, nhosts;
    int sizes[MOST_RANKS];
};

/* Ranks in the order of their hosts; the smallest host first; dealt out to the hosts in turn; hosts
 * in any order. */
enum order { LARGEST_FIRST, SMALLEST_FIRST, DEALT, SHUFFLED, NORDERS };

/* Without the argument "all" only one shape of so many is shuffled as well. */
enum { SHUFFLED_OF = 6 };

/* The same for each shape in every run, and another one for each. */
static unsigned seed_of(const struct shape *shape)
{
    unsigned seed = (unsigned)shape->n;

    for (int h = 0; h < shape->nhosts; h++)
        seed = (seed ^ (unsigned)shape->sizes[h]) * 2654435761U;
    return seed ^ seed >> 16;
}

/* Which host is the i-th. */
static void put_in_order(const struct shape *shape, enum order order, int hosts[MOST_RANKS])
{
    unsigned seed = seed_of(shape);

    for (int i = 0; i < shape->nhosts; i++)
        hosts[i] = order == SMALLEST_FIRST ? shape->nhosts - 1 - i : i;
    for (int i = shape->nhosts - 1; order == SHUFFLED && i > 0; i--) {
        const int j = (int)((seed >> 8) % (unsigned)(i + 1)), host = hosts[i];

        hosts[i] = hosts[j];
        hosts[j] = host;
        seed = seed * 1103515245 + 12345;
    }
}

static struct ko_hosts *lay_out(const struct shape *shape, enum order order)
{
    static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g", "h",
                                        "i", "j", "k", "l", "m", "n", "o", "p"};
    const char *machines[MOST_RANKS];
    struct ko_hosts *hosts;
    int rank = 0, of[MOST_RANKS];

    put_in_order(shape, order, of);
    for (int i = 0; order != DEALT && i < shape->nhosts; i++)
        for (int k = 0; k < shape->sizes[of[i]]; k++)
            machines[rank++] = names[of[i]];
    for (int k = 0; order == DEALT && rank < shape->n; k++)
        for (int h = 0; h < shape->nhosts; h++)
            if (k < shape->sizes[h])
                machines[rank++] = names[h];
    assert_int_equal(ko_layout_make(machines, shape->n, &hosts), 0);
    return hosts;
}

/* ---- traffic ----------------------------------------------------------------------------- */

static bool is_doubling(const struct ko_paper_call *call)
{
    return !strcmp(call->text->name, "hierarchical_doubling");
}

static bool has_blocks(enum ko_collective what)
{
    return what == KO_ALL_GATHER || what == KO_REDUCE_SCATTER;
}

/* Elements of the blocks of a host's ranks. */
static size_t elements_of(const struct ko_paper_call *call, int host)
{
    size_t sum = 0;

    for (int place = 0; place < host_size(call->hosts, host); place++)
        sum += call->counts ? call->counts[rank_at(call->hosts, host, place)] : call->count;
    return sum;
}

static size_t elements_of_all(const struct ko_paper_call *call)
{
    size_t sum = 0;

    for (int h = 0; h < call->hosts->n; h++)
        sum += elements_of(call, h);
    return sum;
}

/* How often the buffer leaves a host in all_reduce by doubling: one for which another stands sends
 * what it has, one that stands for another the result, and all that stand meet log2 others. */
static size_t meetings_of(int host, int nhosts)
{
    size_t meetings = 0;
    int power = 1;

    for (; 2 * power <= nhosts; power *= 2)
        meetings++;
    return host >= power ? 1 : meetings + (host + power < nhosts);
}

/* How often the buffer leaves a host in a broadcast over a tree of hosts, of which each but the
 * first hears from the one whose number lacks its lowest bit. */
static size_t children_of(int number, int nhosts)
{
    size_t children = 0;

    for (int child = number + 1; child < nhosts; child++)
        children += (child & (child - 1)) == number;
    return children;
}

static size_t told_by(const struct ko_paper_call *call, int host)
{
    const int n = call->hosts->n, number = (host - call->hosts->host[call->root] + n) % n;

    return strcmp(call->text->name, "hierarchical_tree") != 0 ? (size_t)(number + 1 < n)
                                                              : children_of(number, n);
}

/* What a host sends to others: all_reduce at most, as chunks are rounded up; of the others exactly,
 * which is the least possible, or, where the hosts stand in a row, the least possible of all. */
static void check_host(const struct ko_paper_call *call, int host, size_t away)
{
    const int n = call->hosts->n, home = call->hosts->host[call->root];
    const size_t others = (size_t)(n - 1);

    if (is_doubling(call)) {
        assert_int_equal(away, meetings_of(host, n) * call->count);
        return;
    }
    switch (call->text->what) {
    case KO_ALL_REDUCE:
        assert_true(away * (size_t)n <=
                    2 * others * (call->count + (size_t)(n * call->hosts->least)));
        break;
    case KO_REDUCE:
        assert_int_equal(away, host == home ? 0 : call->count);
        break;
    case KO_BROADCAST:
        assert_int_equal(away, told_by(call, host) * call->count);
        break;
    case KO_ALL_GATHER:
        assert_int_equal(away, elements_of_all(call) - elements_of(call, (host + 1) % n));
        break;
    case KO_REDUCE_SCATTER:
        assert_int_equal(away, elements_of_all(call) - elements_of(call, host));
        break;
    case KO_ALL_TO_ALL:
        assert_int_equal(away, (elements_of_all(call) - elements_of(call, host)) *
                                   (size_t)host_size(call->hosts, host));
        break;
    case KO_GATHER:
        assert_int_equal(away, host == home ? 0 : elements_of(call, host));
        break;
    case KO_SCATTER:
        assert_int_equal(away, host == home ? elements_of_all(call) - elements_of(call, home) : 0);
        break;
    default:
        assert_int_equal(away, 0);
    }
}

/* Buffers that travel, if each rank but one sends or gets one once: between hosts, or ranks. */
static size_t sum_for(const struct ko_paper_call *call, size_t others)
{
    if (call->text->what == KO_BARRIER)
        return 0;
    if (has_blocks(call->text->what))
        return others * elements_of_all(call);
    return (call->text->what == KO_ALL_REDUCE ? 2 : 1) * others * call->count;
}

/* Blocks of an all_to_all that the two hosts' lanes do not bring to their ranks at once: to places
 * that the other host has not. */
static size_t dealt_between(const struct ko_hosts *hosts, int from, int to)
{
    const int more = host_size(hosts, to) - host_size(hosts, from);

    return more > 0 ? (size_t)(more * host_size(hosts, from)) : 0;
}

/* What all ranks send of short blocks. To one rank, or from it, those of another host go once more
 * between its first rank and each of the rest. In an all_to_all each rank gives its mates their own
 * blocks and all that are for other hosts, but for those on its own lane; from there they go to the
 * other host, and some are dealt out. */
static size_t sum_of_small(const struct ko_paper_call *call)
{
    const struct ko_hosts *hosts = call->hosts;
    const size_t n = (size_t)call->n;
    size_t blocks = 0;

    for (int h = 0; h < hosts->n; h++) {
        const size_t size = (size_t)host_size(hosts, h);

        if (call->text->what != KO_ALL_TO_ALL) {
            blocks += h == hosts->host[call->root] ? size - 1 : 2 * size - 1;
            continue;
        }
        blocks += (size - 1) * n + size * (n - size);
        for (int from = 0; from < hosts->n; from++)
            blocks += from == h ? 0 : dealt_between(hosts, from, h);
    }
    return blocks * call->count;
}

/* All hosts together send each other the least possible: what must be known of a buffer, or a
 * block, crosses to each other host once. And all messages are as many as between single ranks. By
 * doubling they send as much as it takes; inside no more. */
static void check_traffic(const struct ko_paper_call *call, const struct ko_paper_report *report)
{
    const struct ko_hosts *hosts = call->hosts;
    size_t total = 0, away = 0;

    for (int h = 0; h < hosts->n; h++) {
        size_t sent = 0;

        for (int place = 0; place < host_size(hosts, h); place++) {
            const int rank = rank_at(hosts, h, place);

            total += report->sent[rank];
            sent += report->sent_away[rank];
        }
        check_host(call, h, sent);
        away += sent;
    }
    if (call->text->flags & KO_SMALL) { /* inside a host blocks go by way of carriers */
        assert_int_equal(total, sum_of_small(call));
        return;
    }
    if (is_doubling(call)) {
        assert_int_equal(total - away, sum_for(call, (size_t)(call->n - hosts->n)));
        return;
    }
    assert_int_equal(away, sum_for(call, (size_t)(hosts->n - 1)));
    assert_int_equal(total, sum_for(call, (size_t)(call->n - 1)));
}

/* ---- shapes ------------------------------------------------------------------------------ */

/* What is proved of each shape. */
struct proof {
    const struct ko_paper_text *text;
    bool is_whole;
};

static void prove_placed(struct ko_paper_call *call, bool is_in_place)
{
    struct ko_paper_report report;

    call->is_in_place = is_in_place;
    if (ko_paper_verify(call, &report))
        fail_msg("%s", kolo_last_error());
    check_traffic(call, &report);
}

/* Of a proof that is not whole every other root is in place; turn: whether the first is. */
static void prove_roots(const struct proof *proof, struct ko_paper_call *call, int turn)
{
    const bool is_rooted = ko_has_root(call->text->what);
    const bool has_places = call->text->what != KO_ALL_TO_ALL; /* which is never in place */
    const int last = is_rooted ? call->n - 1 : 0;

    for (call->root = 0; call->root <= last; call->root++) {
        const bool is_in_place = has_places && (call->root + turn) % 2;

        prove_placed(call, is_in_place);
        if (proof->is_whole && has_places)
            prove_placed(call, !is_in_place);
    }
}

/* Blocks of nothing, of some elements, and one much longer than the rest. */
static void prove_uneven_blocks(const struct proof *proof, struct ko_paper_call *call, int turn)
{
    size_t counts[MOST_RANKS];

    call->count = 0;
    call->counts = counts;
    for (int i = 0; i < call->n; i++)
        counts[i] = (size_t)(i * 7 + call->n) % (SLICE + 2);
    counts[call->n / 3] = 4 * SLICE * (size_t)call->slots + 1;
    prove_roots(proof, call, turn);
    call->counts = NULL;
}

enum { MOST_COUNTS = 7 };

static size_t list_counts(const struct proof *proof, size_t n, size_t counts[MOST_COUNTS])
{
    const size_t whole[] = {0, 1, n - 1, n, n + 1, 61, 8 * n + 5};
    const size_t of_buffers[] = {0, 1, n - 1, n, n + 1, 8 * n + 5}; /* the last: three slices */
    const size_t of_short_blocks[] = {0, 1, 3};
    const size_t of_blocks[] = {0, 1, SLICE - 1, SLICE, SLICE + 1, 2 * SLICE + 1};

    if (proof->text->what == KO_BARRIER) {
        counts[0] = 0;
        return 1;
    }
    if (proof->text->flags & KO_SMALL && !proof->is_whole) {
        memcpy(counts, of_short_blocks, sizeof of_short_blocks);
        return sizeof of_short_blocks / sizeof *of_short_blocks;
    }
    if (proof->is_whole) {
        memcpy(counts, whole, sizeof whole);
        return sizeof whole / sizeof *whole;
    }
    memcpy(counts, has_blocks(proof->text->what) ? of_blocks : of_buffers, sizeof of_blocks);
    return sizeof of_blocks / sizeof *of_blocks;
}

static void prove_counts(const struct proof *proof, struct ko_paper_call *call, int turn)
{
    size_t counts[MOST_COUNTS];
    const size_t ncounts = list_counts(proof, (size_t)call->n, counts);

    for (size_t i = 0; i < ncounts; i++) {
        call->count = counts[i];
        if (proof->text->flags & KO_SMALL) /* all blocks fit into a slice */
            call->slice = counts[i] ? (size_t)call->n * counts[i] : 1;
        prove_roots(proof, call, turn + (int)i);
    }
    if (has_blocks(proof->text->what))
        prove_uneven_blocks(proof, call, turn);
}

/* What goes with two slots goes with more (test_paper.c): samples. */
static void prove_shape(const struct proof *proof, const struct shape *shape)
{
    const bool is_shuffled = proof->is_whole || seed_of(shape) % SHUFFLED_OF == 0;

    for (int order = 0; order < NORDERS - !is_shuffled; order++) {
        struct ko_hosts *hosts = lay_out(shape, (enum order)order);
        struct ko_paper_call call = {
            .text = proof->text, .n = shape->n, .slice = SLICE, .hosts = hosts};

        for (call.slots = 2; call.slots <= (order == DEALT ? 8 : 2); call.slots += 6)
            prove_counts(proof, &call, order);
        free(hosts);
    }
}

/* Adds hosts of at most `largest` ranks until all ranks sit somewhere. */
static void prove_shapes(const struct proof *proof, struct shape *shape, int left, int largest)
{
    if (!left)
        prove_shape(proof, shape);
    for (int size = largest < left ? largest : left; size > 0; size--) {
        shape->sizes[shape->nhosts++] = size;
        prove_shapes(proof, shape, left - size, size);
        shape->nhosts--;
    }
}

static void prove_text(const struct proof *proof)
{
    for (int n = 2; n <= MOST_RANKS; n++) {
        struct shape shape = {.n = n};

        prove_shapes(proof, &shape, n, n);
    }
}

static void every_shape_is_proved(void **state)
{
    int ntexts = 0;

    (void)state;
    for (int i = 0; i < ko_npaper_texts; i++) {
        if (!(ko_paper_texts[i].flags & KO_SPREAD))
            continue;
        ntexts++;
        prove_text(&(struct proof){&ko_paper_texts[i], false});
    }
    assert_int_equal(ntexts, 12);
}

static void hosts_have_to_be_known(void **state)
{
    struct ko_paper_call call = {.n = 4, .count = 4, .slice = SLICE, .slots = 2};

    (void)state;
    for (int i = 0; i < ko_npaper_texts; i++)
        if (ko_paper_texts[i].flags & KO_SPREAD)
            call.text = &ko_paper_texts[i];
    assert_int_equal(ko_paper_verify(&call, NULL), KOLO_E_INVALID);
}

static void nothing_is_left_out(void **state)
{
    prove_text(&(struct proof){*state, true});
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_shape_is_proved),
        cmocka_unit_test(hosts_have_to_be_known),
    };

    proofs_keep_memory();
    if (proofs_are_wanted(argc, argv))
        return proofs_run(argc, argv, true, nothing_is_left_out);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
