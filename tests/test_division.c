/* SPDX-License-Identifier: MIT
 *
 * Collectives that are divided among the ranks of each host: every element is dealt with once on
 * each host, by whoever it is to be, in pieces of the length that was asked for.
 */
#include "coll_gpu_division.h"
#include "layout.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST_COUNT = 5003, MOST_RANKS = 8, SHIFT = 2, LINE = 32 };

static const char *const shapes[] = {"aa", "ab", "aab", "abab", "aaab", "baccbc", "aabbccdd"};
static const size_t counts[] = {0, 1, LINE - 1, LINE + 1, 1000, MOST_COUNT};
static const enum ko_collective whats[] = {KO_ALL_REDUCE, KO_REDUCE, KO_BROADCAST, KO_ALL_GATHER,
                                           KO_REDUCE_SCATTER};

static struct ko_hosts *hosts_of(const char *shape)
{
    static const char *const names[] = {"a", "b", "c", "d"};
    const char *machines[MOST_RANKS];
    struct ko_hosts *hosts;

    for (size_t r = 0; shape[r]; r++)
        machines[r] = names[shape[r] - 'a'];
    assert_int_equal(ko_layout_make(machines, (int)strlen(shape), &hosts), 0);
    return hosts;
}

/* Calls `check` of every division there is. */
static void each(void (*check)(const struct ko_division *division))
{
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        struct ko_hosts *hosts = hosts_of(shapes[s]);

        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
            for (size_t w = 0; w < sizeof whats / sizeof *whats; w++)
                for (int root = 0; root < (int)strlen(shapes[s]); root++)
                    check(&(struct ko_division){.what = whats[w],
                                                .hosts = hosts,
                                                .n = (int)strlen(shapes[s]),
                                                .root = root,
                                                .count = counts[i],
                                                .shift = SHIFT});
        free(hosts);
    }
}

static bool has_blocks(const struct ko_division *d)
{
    return d->what == KO_ALL_GATHER || d->what == KO_REDUCE_SCATTER;
}

static bool has_root(const struct ko_division *d)
{
    return d->what == KO_REDUCE || d->what == KO_BROADCAST;
}

/* Marks what is dealt with on the host. */
static void mark(const struct ko_division *d, int host, size_t most, unsigned char *marks)
{
    for (size_t k = 0; k < ko_division_npieces(d, most); k++)
        for (int owner = 0; owner < d->n; owner++) {
            const struct ko_part part = ko_division_part(d, owner, most, k);
            const int deputy = ko_division_deputy(d->hosts, host, owner);

            assert_int_equal(d->hosts->host[deputy], host);
            assert_true(part.count <= most);
            for (size_t i = 0; i < part.count; i++)
                marks[part.at + i]++;
        }
}

static void check_cover(const struct ko_division *d)
{
    static unsigned char marks[MOST_RANKS * MOST_COUNT];
    const size_t all = d->count * (size_t)(has_blocks(d) ? d->n : 1);

    for (int host = 0; host < d->hosts->n; host++)
        for (uint64_t nbytes = 1; nbytes < 65536; nbytes *= 20) {
            memset(marks, 0, sizeof marks);
            mark(d, host, ko_division_piece(d, nbytes), marks);
            for (size_t i = 0; i < sizeof marks; i++)
                assert_int_equal(marks[i], i < all);
        }
}

static void each_element_is_one_ranks(void **state)
{
    (void)state;
    each(check_cover);
}

static void check_owners(const struct ko_division *d)
{
    for (int r = 0; r < d->n; r++) {
        const struct ko_part block = ko_division_block(d, r);

        assert_int_equal(ko_division_deputy(d->hosts, d->hosts->host[r], r), r);
        if (has_blocks(d))
            assert_true(block.at == (size_t)r * d->count && block.count == d->count);
        else if (block.count)
            assert_true(block.at % LINE == 0 &&
                        (block.count % LINE == 0 || block.at + block.count == d->count));
        if (has_root(d) && d->hosts->host[r] != d->hosts->host[d->root])
            assert_int_equal(block.count, 0);
    }
}

static void blocks_are_their_owners(void **state)
{
    (void)state;
    each(check_owners);
}

/* Of hosts of one size, each rank deals with as much as any other. */
static void shares_are_even(void **state)
{
    struct ko_hosts *hosts = hosts_of("aabbccdd");
    int blocks[MOST_RANKS] = {0};

    (void)state;
    for (int host = 0; host < 4; host++)
        for (int owner = 0; owner < 8; owner++)
            blocks[ko_division_deputy(hosts, host, owner)]++;
    for (int r = 0; r < 8; r++)
        assert_int_equal(blocks[r], 4);
    free(hosts);
}

static void pieces_are_as_long_as_they_may_be(void **state)
{
    struct ko_hosts *hosts = hosts_of("abab");
    struct ko_division d = {
        .what = KO_ALL_REDUCE, .hosts = hosts, .n = 4, .count = 4096, .shift = SHIFT};

    (void)state;
    assert_int_equal(ko_division_piece(&d, 1 << 20), 1024); /* no longer than all */
    assert_int_equal(ko_division_npieces(&d, 1024), 1);
    assert_int_equal(ko_division_piece(&d, 4096), 256);
    assert_int_equal(ko_division_npieces(&d, 256), 4);
    assert_int_equal(ko_division_piece(&d, 5000), 288); /* whole lines */
    assert_int_equal(ko_division_piece(&d, 1), LINE);
    d.what = KO_BROADCAST; /* of two ranks */
    assert_int_equal(ko_division_piece(&d, 4096), 512);
    d.what = KO_ALL_GATHER;
    assert_int_equal(ko_division_piece(&d, 1), 1);
    free(hosts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_element_is_one_ranks),
        cmocka_unit_test(blocks_are_their_owners),
        cmocka_unit_test(shares_are_even),
        cmocka_unit_test(pieces_are_as_long_as_they_may_be),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
