/* SPDX-License-Identifier: MIT
 *
 * What Linux says about caches, beside the same in its other words.
 */
#include "caches.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

enum { WORDS = 16 };

static void a_share_of_the_cache(void **state)
{
    const size_t share = ko_cache_bytes();

    (void)state;
    assert_true(share >= (size_t)1 << 20);
    assert_true(share <= (size_t)8 << 20 || share == ko_cache_own_bytes());
    assert_int_equal(share, ko_cache_bytes());
    assert_true(ko_cache_own_bytes() >= (size_t)16 << 10 && ko_cache_own_bytes() <= share);
    assert_true(ko_cache_places_bytes() == 2 * ko_cache_own_bytes() ||
                ko_cache_places_bytes() == ko_cache_own_bytes() / 4);
    assert_int_equal(ko_cache_trade_bytes(), ko_cache_places_bytes() < ko_cache_own_bytes()
                                                 ? SIZE_MAX
                                                 : ko_cache_own_bytes());
}

static void add(uint64_t cpus[WORDS], long cpu)
{
    cpus[cpu / 64] |= UINT64_C(1) << cpu % 64;
}

/* Whether a list like 0,2-5 has a number. */
static bool list_has(FILE *list, long number)
{
    long first, last;
    int mark = ',';

    for (bool is_found = false; mark == ',';) {
        if (fscanf(list, "%ld", &first) != 1)
            return is_found;
        last = first;
        mark = fgetc(list);
        if (mark == '-') {
            if (fscanf(list, "%ld", &last) != 1)
                return is_found;
            mark = fgetc(list);
        }
        is_found = is_found || (first <= number && number <= last);
        if (mark != ',')
            return is_found;
    }
    return false;
}

static bool are_listed_together(long a, long b)
{
    char path[80];
    bool is_listed;
    FILE *list;

    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%ld/cache/index2/shared_cpu_list", a);
    list = fopen(path, "re");
    if (!list)
        return a == b;
    is_listed = list_has(list, b);
    fclose(list);
    return is_listed;
}

static void who_shares_a_cache(void **state)
{
    const long most = sysconf(_SC_NPROCESSORS_CONF) < 8 ? sysconf(_SC_NPROCESSORS_CONF) : 8;

    (void)state;
    for (long a = 0; a < most; a++)
        for (long b = 0; b < most; b++) {
            uint64_t cpus[WORDS] = {0};

            add(cpus, a);
            add(cpus, b);
            assert_int_equal(ko_cache_is_one(cpus, WORDS),
                             a < b ? are_listed_together(a, b) : are_listed_together(b, a));
        }
}

static void cpus_that_are_not_there(void **state)
{
    uint64_t cpus[WORDS] = {0};

    (void)state;
    add(cpus, WORDS * 64 - 1);
    assert_true(ko_cache_is_one(cpus, WORDS));
    add(cpus, 0);
    assert_false(ko_cache_is_one(cpus, WORDS));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_share_of_the_cache),
        cmocka_unit_test(who_shares_a_cache),
        cmocka_unit_test(cpus_that_are_not_there),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
