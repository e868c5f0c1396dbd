/* SPDX-License-Identifier: MIT
 *
 * Through how many places long slices go in turn, by where ranks may run and what they call. CPUs
 * from 1000 on are in no machine that runs this, and so share no cache.
 */
#include "coll_flow.h"
#include "group.h"
#include "layout.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST_RANKS = 8, SLICE = 128 << 10, PLACES = 2 << 20, CPU = 1000 };

/* A group whose rank 0 asks, and what it needs to. */
struct bench {
    kolo_group group;
    struct ko_endpoint endpoint;
    struct ko_contact contacts[2]; /* of ranks 0 and 1 */
    struct ko_contact *known[MOST_RANKS];
    int world_ranks[MOST_RANKS];
};

static void allow(struct ko_contact *contact, int first, int last)
{
    memset(contact->cores, 0, sizeof contact->cores);
    for (int cpu = first; cpu <= last; cpu++)
        contact->cores[cpu / 64] |= UINT64_C(1) << cpu % 64;
}

static struct bench *make(int nranks)
{
    struct bench *bench = calloc(1, sizeof *bench);

    assert_non_null(bench);
    bench->endpoint.places_bytes = PLACES;
    bench->endpoint.contacts = bench->known;
    pthread_mutex_init(&bench->endpoint.lock, NULL);
    for (int i = 0; i < 2; i++) {
        bench->contacts[i].slice_bytes = SLICE;
        bench->known[i] = &bench->contacts[i];
        bench->world_ranks[i] = i;
    }
    bench->group.endpoint = &bench->endpoint;
    bench->group.size = nranks;
    bench->group.world_ranks = bench->world_ranks;
    return bench;
}

static uint32_t ask(struct bench *bench)
{
    bench->endpoint.own = bench->contacts[0];
    return ko_group_spread(&bench->group, &bench->contacts[1]);
}

/* Rank 0 on CPUs a to b, rank 1 on c to d, of so many ranks whose hosts are not known. */
static uint32_t spread(int nranks, int a, int b, int c, int d)
{
    struct bench *bench = make(nranks);
    uint32_t places;

    allow(&bench->contacts[0], CPU + a, CPU + b);
    allow(&bench->contacts[1], CPU + c, CPU + d);
    places = ask(bench);
    pthread_mutex_destroy(&bench->endpoint.lock);
    free(bench);
    return places;
}

static void as_many_bytes_for_all_that_comes(void **state)
{
    (void)state;
    assert_int_equal(spread(2, 0, 0, 1, 1), 16);
    assert_int_equal(spread(2, 0, 1, 0, 1), 16);
    assert_int_equal(spread(4, 0, 0, 1, 1), 6);
    assert_int_equal(spread(4, 0, 1, 0, 1), 6);
    assert_int_equal(spread(8, 0, 0, 1, 1), 3);
    assert_int_equal(spread(8, 0, 3, 0, 3), 3);
}

static void one_place_where_a_core_is_shared(void **state)
{
    (void)state;
    assert_int_equal(spread(2, 0, 0, 0, 0), 1);
    assert_int_equal(spread(8, 2, 2, 2, 2), 1);
    assert_int_equal(spread(5, 0, 1, 0, 1), 1); /* crowded */
    assert_int_equal(spread(8, 0, 2, 0, 2), 1);
    assert_int_equal(spread(2, 0, -1, 0, -1), 1); /* CPUs that are not known */
    assert_int_equal(spread(1, 0, 0, 0, 0), 1);
}

/* Once hosts are known, by what a host has: cores that the two, being bound, do not tell. */
static void hosts_tell_who_is_crowded(void **state)
{
    const char *machines[MOST_RANKS] = {"a", "a", "a", "a", "a", "a", "b", "b"};
    struct bench *bench = make(MOST_RANKS);
    struct ko_hosts *hosts;

    (void)state;
    assert_int_equal(ko_layout_make(machines, MOST_RANKS, &hosts), KOLO_OK);
    bench->group.hosts = hosts;
    allow(&bench->contacts[0], CPU, CPU);
    allow(&bench->contacts[1], CPU + 1, CPU + 1);
    bench->contacts[0].costs.cores = 3;
    assert_int_equal(ask(bench), 4); /* 5 peers, and not 7 */
    bench->contacts[0].costs.cores = 2;
    assert_int_equal(ask(bench), 1);
    free(hosts);
    pthread_mutex_destroy(&bench->endpoint.lock);
    free(bench);
}

static bool is_traded(enum ko_collective what, size_t n, size_t nbytes, size_t trade_bytes)
{
    return ko_is_traded(
        &(struct ko_extent){.what = what, .n = n, .nbytes = nbytes, .trade_bytes = trade_bytes});
}

/* Calls of which each rank sends what it gets, from where all blocks of both buffers are as long.
 */
static void long_calls_both_ways_are_traded(void **state)
{
    static const struct {
        enum ko_collective what;
        size_t n, nblocks;
    } rows[] = {{KO_ALL_REDUCE, 2, 2}, {KO_ALL_GATHER, 2, 3},     {KO_REDUCE_SCATTER, 2, 3},
                {KO_ALL_TO_ALL, 2, 4}, {KO_REDUCE_SCATTER, 4, 5}, {KO_ALL_TO_ALL, 4, 8}};
    static const enum ko_collective one_way[] = {KO_REDUCE, KO_BROADCAST, KO_GATHER, KO_SCATTER,
                                                 KO_BARRIER};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const size_t nbytes = 120000, all = rows[i].nblocks * nbytes;

        assert_true(is_traded(rows[i].what, rows[i].n, nbytes, all));
        assert_false(is_traded(rows[i].what, rows[i].n, nbytes, all + 1));
        assert_false(is_traded(rows[i].what, rows[i].n, nbytes, SIZE_MAX));
    }
    for (size_t i = 0; i < sizeof one_way / sizeof *one_way; i++)
        assert_false(is_traded(one_way[i], 2, (size_t)1 << 30, 1));
}

/* ---- who takes turns ------------------------------------------------------------------------ */

/* What a pair tells while hosts are not known: rank 0 on CPUs 0 to `own`, rank 1 on `first` to
 * `last`. */
static void a_pair_tells_who_takes_turns(void **state)
{
    static const struct {
        int nranks, local_size, own, first, last;
        bool are_threads, is_elsewhere, is_crowded;
    } rows[] = {
        {2, -1, 0, 0, 0, false, false, true}, {2, -1, 1, 0, 1, false, false, false},
        {3, -1, 1, 0, 1, false, false, true}, {8, 2, 1, 0, 1, false, false, false},
        {8, 3, 1, 0, 1, false, false, true},  {8, 1, 1, 0, 1, true, false, true},
        {2, 8, 1, 0, 1, false, false, true},  /* two of a crowd */
        {8, 8, 0, 1, 1, false, false, false}, /* bound */
        {8, 8, 1, 0, 1, false, true, false},  {8, 8, -1, 0, -1, false, false, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct bench *bench = make(rows[i].nranks);

        allow(&bench->contacts[0], 0, rows[i].own);
        allow(&bench->contacts[1], rows[i].first, rows[i].last);
        bench->contacts[1].pid = rows[i].are_threads ? 0 : 1;
        bench->contacts[1].machine[0] = rows[i].is_elsewhere ? 'x' : 0;
        bench->endpoint.own = bench->contacts[0];
        bench->endpoint.local_size = rows[i].local_size;
        if (ko_group_is_crowded(&bench->group, &bench->contacts[1]) != rows[i].is_crowded)
            fail_msg("row %zu", i);
        atomic_store(&bench->endpoint.is_crowded, true); /* the world is known to be */
        assert_true(ko_group_is_crowded(&bench->group, &bench->contacts[1]));
        pthread_mutex_destroy(&bench->endpoint.lock);
        free(bench);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_many_bytes_for_all_that_comes),
        cmocka_unit_test(one_place_where_a_core_is_shared),
        cmocka_unit_test(hosts_tell_who_is_crowded),
        cmocka_unit_test(long_calls_both_ways_are_traded),
        cmocka_unit_test(a_pair_tells_who_takes_turns),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
