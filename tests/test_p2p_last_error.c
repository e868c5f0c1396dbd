/* SPDX-License-Identifier: MIT
 *
 * kolo_last_error() is the last failed call's, whatever calls that succeed have met: another rank
 * that has freed its group, in messages and collectives, of links that are open and not yet.
 */
#include "clock.h"
#include "kolo.h"
#include "ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LAST = 2, FOR_MS = 300 };

static bool has_link; /* rank 0, to the rank that leaves; the other has none */

static int check_text(const char *text, const char *call)
{
    return strcmp(kolo_last_error(), text) ? ranks_fail("after %s", call) : 0;
}

/* Rank 2 and this one go on for a while, in which they hear that rank 1 has gone. */
static int go_on(kolo_group *world, kolo_group *pair, const char *text)
{
    const int other = LAST - kolo_group_rank(world);
    const int64_t began_ns = ko_now_ns();
    kolo_message message;
    int failed = 0, found, number = 0;

    for (int is_over = 0; !is_over && !failed;) {
        int ends = ko_now_ns() - began_ns > (int64_t)FOR_MS * 1000000;

        failed = kolo_probe(world, KOLO_ANY_RANK, 7, 5, &found, &message) ||
                 check_text(text, "a probe") ||
                 kolo_sendrecv(world, &number, 1, other, &number, 1, other, KOLO_INT32, 0) ||
                 check_text(text, "an exchange") ||
                 kolo_all_reduce(pair, &ends, &is_over, 1, KOLO_INT32, KOLO_MAX) ||
                 check_text(text, "a collective");
    }
    return failed ? ranks_fail("going on") : 0;
}

static int lose_one(kolo_group *world, void *unused)
{
    const int rank = kolo_group_rank(world);
    char text[600];
    kolo_group *pair = NULL;
    int failed = kolo_group_split(world, rank == 1 ? -1 : 0, rank, &pair);

    (void)unused;
    if (!failed && has_link && rank == 0)
        failed = kolo_send(world, NULL, 0, KOLO_INT8, 1, 3);
    if (!failed && has_link && rank == 1)
        failed = kolo_recv(world, NULL, 0, KOLO_INT8, 0, 3);
    if (failed || rank == 1)
        return failed ? ranks_fail("the start") : 0;
    failed = failed || ranks_expect(kolo_send(world, NULL, 0, KOLO_INT8, 9, 0), KOLO_E_INVALID,
                                    "the receiver is rank 9");
    memcpy(text, kolo_last_error(), strlen(kolo_last_error()) + 1);
    failed = failed || go_on(world, pair, text);
    kolo_group_free(pair);
    return failed;
}

static void who_leaves_leaves_the_text(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        has_link = i % 2;
        assert_int_equal(ranks_run_all_ways(3, lose_one), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(who_leaves_leaves_the_text)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
