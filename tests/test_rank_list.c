/* SPDX-License-Identifier: MIT
 *
 * Lists of ranks, with room and without.
 */
#include "rank_list.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N = 1000 };

/* flags: one character for each rank, 'x' for those that are listed. */
static void expect(const char *flags, const char *text)
{
    bool is_listed[64];
    char list[100];
    int n = (int)strlen(flags);

    for (int r = 0; r < n; r++)
        is_listed[r] = flags[r] == 'x';
    ko_rank_list(is_listed, n, list, sizeof list);
    assert_string_equal(list, text);
}

static void neighbours_are_ranges(void **state)
{
    (void)state;
    expect("", "");
    expect("....", "");
    expect("x", "0");
    expect(".x.xxx...x", "1, 3-5, 9");
    expect("xx.xx", "0, 1, 3, 4");
    expect("xxxxxxxxxxxx", "0-11");
}

/* Every rank is listed, or among those that are counted at the end. */
static void what_has_no_room_is_counted(void **state)
{
    bool is_listed[N];
    char list[100], *at = list;
    int named = 0, more;

    (void)state;
    for (int r = 0; r < N; r++)
        is_listed[r] = r % 2;
    for (size_t nbytes = 64; nbytes <= sizeof list; nbytes++) {
        memset(list, 'y', sizeof list);
        ko_rank_list(is_listed, N, list, nbytes);
        assert_true(strlen(list) < nbytes);
        named = 0;
        for (at = list; *at && *at != 'a'; at++)
            named += *at == ',';
        assert_int_equal(sscanf(at, "and %d more", &more), 1);
        assert_int_equal(named + 1 + more, N / 2);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(neighbours_are_ranges),
        cmocka_unit_test(what_has_no_room_is_counted),
    };

    return cmocka_run_group_tests_name("lists of ranks", tests, NULL, NULL);
}
