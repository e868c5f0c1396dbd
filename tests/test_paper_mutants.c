/* SPDX-License-Identifier: MIT
 *
 * Mutants: copies of texts for counts of one slice per chunk, each with one mistake, which the
 * proof must find and name.
 */
#include "layout.h"
#include "paper.h"
#include "verbs_paper.h"

#include "doubling.h"
#include "hierarchical_doubling.h"
#include "hierarchical_rooted.h"
#include "tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SLICE = 3 };

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

/* The own part is overwritten when rank 0 has it, as it happens; but no message tells of that: in
 * place only. */
static void unsure_overwrite(verbs *v)
{
    const struct ko_part all = {0, v->count};

    if (v->rank > 0)
        send(v, v->rank - 1, IN, all);
    if (v->rank < 2)
        recv(v, v->rank + 1, all);
}

/* What others are to write is written here as well. */
static void written_while_lent(verbs *v)
{
    for (int k = 1; k < v->n; k++)
        lend(v, around(v->rank + k, v->n), SHARE(v->rank + k));
    keep(v, SHARE(v->rank + 1), SHARE(v->rank + 1));
    reduce_for_all(v, SHARE(v->rank));
    for (int k = 1; k < v->n; k++)
        recv(v, around(v->rank - k, v->n), SHARE(v->rank - k));
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

/* ---- over three hosts of two ranks ------------------------------------------------------- */

/* hierarchical_doubling_all_reduce, where carriers join what they have in `mine`. */
static void join_lanes(verbs *v, enum buffer mine, bool is_left_out)
{
    const struct ko_hosts *hosts = v->hosts;
    const int host = hosts->host[v->rank], lane = hosts->place[v->rank];
    const int *mates = hosts->ranks + hosts->begins[host];
    const struct ko_part own = chunk_of(v->count, 2, lane), other = chunk_of(v->count, 2, 1 - lane);

    send(v, mates[1 - lane], IN, other);
    reduce_from(v, mates, 2, own, own, is_left_out);
    if (!is_left_out)
        doubling_slice(v, lane, mine, own);
    send(v, mates[1 - lane], OUT, own);
    recv(v, mates[1 - lane], other);
}

static void sound_hosts(verbs *v)
{
    join_lanes(v, OUT, false);
}

/* The last host, which another stands for, has only what is its own. */
static void host_left_out(verbs *v)
{
    const bool is_left_out = v->hosts->host[v->rank] == 2;
    struct ko_hosts fewer = *v->hosts;

    fewer.n = 2;
    v->hosts = &fewer;
    join_lanes(v, OUT, is_left_out);
}

/* The others take the first host's carriers for those of each other's lane. */
static void wrong_lane(verbs *v)
{
    const int swapped[] = {1, 0, 2, 3, 4, 5};
    struct ko_hosts other = *v->hosts;

    if (other.host[v->rank] > 0)
        other.ranks = swapped;
    v->hosts = &other;
    join_lanes(v, OUT, false);
}

/* Carriers join what is theirs alone. */
static void mates_forgotten(verbs *v)
{
    join_lanes(v, IN, false);
}

/* The first host sends to one host less than it has below it. */
static void host_untold(verbs *v)
{
    struct ko_tree tree = tree_of_hosts(v, 2, 1);

    tree.nchildren -= v->hosts->host[v->rank] == 0;
    broadcast_over_hosts(v, &tree);
}

/* The last host adds its sums to those of the second, which does not know of it. */
static void wrong_host_above(verbs *v)
{
    struct ko_tree tree = tree_of_hosts(v, 2, 1);

    if (v->hosts->host[v->rank] == 2)
        tree.parent = 1;
    reduce_over_hosts(v, &tree);
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

/* hosts: NULL but for texts that look at them. */
static void catch_mutant(const struct mutant *mutant, const struct ko_hosts *hosts)
{
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
                                       .hosts = hosts,
                                       .is_in_place = mutant->is_in_place};
    int err = ko_paper_verify(&call, NULL);

    if (err != (mutant->says ? KOLO_E_INTERNAL : KOLO_OK))
        fail_msg("%s: status %d, %s", mutant->name, err, kolo_last_error());
    if (mutant->says && !strstr(kolo_last_error(), mutant->says))
        fail_msg("%s: %s", mutant->name, kolo_last_error());
}

static void every_mutant_is_caught(void **state)
{
    static const struct mutant mutants[] = {
        {"wrong peer", KO_ALL_REDUCE, wrong_peer, 4, 8, 2, false, "no link from rank 1"},
        {"dropped chunk", KO_ALL_REDUCE, dropped_chunk, 4, 8, 2, false, "were never received"},
        {"chunk never sent", KO_ALL_REDUCE, chunk_never_sent, 4, 8, 2, false,
         "lacks the contribution"},
        {"missing reduce", KO_ALL_REDUCE, missing_reduce, 4, 8, 2, false, "element 0 of OUT lacks"},
        {"reduced twice", KO_ALL_REDUCE, reduced_twice, 4, 8, 2, false, "twice"},
        {"wrong chunk", KO_ALL_REDUCE, wrong_chunk, 4, 8, 2, false,
         "4 would be mixed with element 2"},
        {"swapped order", KO_ALL_REDUCE, swapped_order, 3, 3, 2, false, "a deadlock"},
        {"one slot", KO_ALL_REDUCE, sound_ring, 4, 8, 1, false, "a deadlock"},
        {"early overwrite", KO_ALL_REDUCE, early_overwrite, 4, 2, 2, true, "was lent"},
        {"unsure overwrite", KO_ALL_REDUCE, unsure_overwrite, 3, 2, 2, true,
         "lent to rank 0, which may not have received"},
        {"written while lent", KO_ALL_REDUCE, written_while_lent, 3, 6, 2, false, "was lent"},
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
        {"wrong subtree", KO_SCATTER, wrong_subtree, 4, 1, 8, false, "IN has 0 elements only"},
        {"a sound ring", KO_ALL_REDUCE, sound_ring, 5, 11, 2, true, NULL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof mutants / sizeof *mutants; i++)
        catch_mutant(&mutants[i], NULL);
}

static void every_mutant_over_hosts_is_caught(void **state)
{
    static const struct mutant mutants[] = {
        {"host left out", KO_ALL_REDUCE, host_left_out, 6, 5, 2, false, "lacks the contribution"},
        {"wrong lane", KO_ALL_REDUCE, wrong_lane, 6, 5, 2, false, "a deadlock: so waits rank 1"},
        {"mates forgotten", KO_ALL_REDUCE, mates_forgotten, 6, 5, 2, false,
         "lacks the contribution"},
        {"host untold", KO_BROADCAST, host_untold, 6, 5, 2, false,
         "recv from rank 0 into OUT[0..3): a deadlock"},
        {"wrong host above", KO_REDUCE, wrong_host_above, 6, 5, 2, false,
         "reduce_from 4 ranks with IN[0..3) into OUT[0..3): a deadlock"},
        {"sound tree", KO_BROADCAST, hierarchical_tree_broadcast, 6, 5, 2, true, NULL},
        {"sound hosts", KO_ALL_REDUCE, sound_hosts, 6, 5, 2, true, NULL},
    };
    struct ko_hosts *hosts;

    (void)state;
    assert_int_equal(ko_layout_even(6, 2, &hosts), 0);
    for (size_t i = 0; i < sizeof mutants / sizeof *mutants; i++)
        catch_mutant(&mutants[i], hosts);
    free(hosts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_mutant_is_caught),
        cmocka_unit_test(every_mutant_over_hosts_is_caught),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
