/* SPDX-License-Identifier: MIT
 *
 * Deadlines.
 */
#include "clock.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <time.h>

static void time_goes_forward(void **state)
{
    int64_t before = ko_now_ns();
    struct timespec pause = {0, 2000000};

    (void)state;
    nanosleep(&pause, NULL);
    assert_true(ko_now_ns() - before >= 2000000);
}

static void deadline_passes(void **state)
{
    struct timespec pause = {0, 3000000};
    ko_deadline deadline = ko_deadline_in(2);

    (void)state;
    assert_int_equal(deadline.timeout_ms, 2);
    nanosleep(&pause, NULL);
    assert_true(ko_deadline_passed(&deadline));
    assert_int_equal(ko_deadline_left_ms(&deadline), 0);
}

/* What is left is rounded up, so that a poll for it does not return early, again and again. */
static void time_left_is_rounded_up(void **state)
{
    ko_deadline deadline = {.at_ns = ko_now_ns() + 60000000000, .timeout_ms = 60000};
    int left = ko_deadline_left_ms(&deadline);

    (void)state;
    assert_false(ko_deadline_passed(&deadline));
    assert_true(left <= 60000 && left > 50000);
    deadline.at_ns = ko_now_ns() + 59000000001;
    assert_true(ko_deadline_left_ms(&deadline) > 58000);
    deadline.at_ns = INT64_MAX;
    assert_int_equal(ko_deadline_left_ms(&deadline), INT_MAX);
}

static void extremes(void **state)
{
    ko_deadline past = ko_deadline_in(-5);
    ko_deadline distant = ko_deadline_in(INT_MAX);

    (void)state;
    assert_int_equal(past.timeout_ms, 0);
    assert_true(ko_deadline_passed(&past));
    assert_false(ko_deadline_passed(&distant));
    assert_true(ko_deadline_left_ms(&distant) > INT_MAX - 60000);
}

static void within_is_the_earlier(void **state)
{
    ko_deadline minute = ko_deadline_in(60000);
    ko_deadline sooner = ko_deadline_within(&minute, 1000);
    ko_deadline later = ko_deadline_within(&minute, 3600000);

    (void)state;
    assert_int_equal(sooner.timeout_ms, 1000);
    assert_true(sooner.at_ns < minute.at_ns);
    assert_int_equal(later.timeout_ms, 60000);
    assert_int_equal(later.at_ns, minute.at_ns);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(time_goes_forward),       cmocka_unit_test(deadline_passes),
        cmocka_unit_test(time_left_is_rounded_up), cmocka_unit_test(extremes),
        cmocka_unit_test(within_is_the_earlier),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
