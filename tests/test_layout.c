/* SPDX-License-Identifier: MIT
 *
 * Which ranks share a host.
 */
#include "layout.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static void one_host(void **state)
{
    const char *machines[] = {"a", "a", "a"};
    struct ko_hosts *hosts;

    (void)state;
    assert_int_equal(ko_layout_make(machines, 3, &hosts), 0);
    assert_int_equal(hosts->n, 1);
    assert_int_equal(hosts->least, 3);
    assert_int_equal(host_size(hosts, 0), 3);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(hosts->host[r], 0);
        assert_int_equal(hosts->place[r], r);
        assert_int_equal(rank_at(hosts, 0, r), r);
    }
    free(hosts);
}

static void hosts_of_unequal_size_in_any_order(void **state)
{
    const char *machines[] = {"x", "y", "x", "z", "y", "x"};
    const int host[] = {0, 1, 0, 2, 1, 0}, place[] = {0, 0, 1, 0, 1, 2};
    const int ranks[] = {0, 2, 5, 1, 4, 3}, begins[] = {0, 3, 5, 6};
    struct ko_hosts *hosts;

    (void)state;
    assert_int_equal(ko_layout_make(machines, 6, &hosts), 0);
    assert_int_equal(hosts->n, 3);
    assert_int_equal(hosts->least, 1);
    for (int r = 0; r < 6; r++) {
        assert_int_equal(hosts->host[r], host[r]);
        assert_int_equal(hosts->place[r], place[r]);
        assert_int_equal(hosts->ranks[r], ranks[r]);
        assert_int_equal(rank_at(hosts, host[r], place[r]), r);
    }
    for (int h = 0; h <= 3; h++)
        assert_int_equal(hosts->begins[h], begins[h]);
    free(hosts);
}

static void every_rank_alone(void **state)
{
    const char *machines[] = {"3", "1", "2"};
    struct ko_hosts *hosts;

    (void)state;
    assert_int_equal(ko_layout_make(machines, 3, &hosts), 0);
    assert_int_equal(hosts->n, 3);
    assert_int_equal(hosts->least, 1);
    for (int r = 0; r < 3; r++)
        assert_int_equal(rank_at(hosts, r, 0), r);
    free(hosts);
}

/* All ranks of a group cut alike. */
static void slices_by_what_links_there_are(void **state)
{
    static const struct {
        int n, per_host;
        size_t nbytes;
    } cases[] = {{2, 2, 4096},       {4, 2, 4096},       {3, 2, 4096},
                 {2, 1, 32768 - 64}, {3, 1, 16384 - 32}, {8, 1, 16384 - 32}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ko_hosts *hosts;

        assert_int_equal(ko_layout_even(cases[i].n, cases[i].per_host, &hosts), 0);
        assert_int_equal(ko_layout_slice_bytes(hosts, 4096), cases[i].nbytes);
        hosts->has_windows = false; /* as over tcp alone */
        assert_int_equal(ko_layout_slice_bytes(hosts, 4096),
                         cases[i].n == 2 ? 32768 - 64 : 16384 - 32);
        free(hosts);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_host),
        cmocka_unit_test(hosts_of_unequal_size_in_any_order),
        cmocka_unit_test(every_rank_alone),
        cmocka_unit_test(slices_by_what_links_there_are),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
