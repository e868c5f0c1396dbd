/* SPDX-License-Identifier: MIT
 *
 * Slurm's short forms of host names: golden ones, against an expansion by another way, and wrong
 * ones.
 */
#include "hostlist.h"

#include "kolo.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* All hosts of a list, with a space before each. */
static const char *expand(const char *list, char *text, size_t cap)
{
    size_t count = 0, used = 0;
    char host[64];

    assert_int_equal(ko_hostlist_count("L", list, &count), 0);
    *text = 0;
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(ko_hostlist_get("L", list, i, host, sizeof host), 0);
        used += (size_t)snprintf(text + used, cap - used, " %s", host);
    }
    assert_int_equal(ko_hostlist_get("L", list, count, host, sizeof host), KOLO_E_INVALID);
    assert_non_null(strstr(kolo_last_error(), "it has fewer hosts than that"));
    return text;
}

static void lists_are_expanded(void **state)
{
    static const struct {
        const char *list, *hosts;
    } cases[] = {
        {"n1", " n1"},
        {"n[1-2]", " n1 n2"},
        {"n[01-03,07,9-10]", " n01 n02 n03 n07 n9 n10"},
        {"n[098-101]x", " n098x n099x n100x n101x"},
        {"a,b[3],c-d.e", " a b3 c-d.e"},
        {"r[1-2]n[0-2],login", " r1n0 r1n1 r1n2 r2n0 r2n1 r2n2 login"},
        {"10.79.0.[1-2]", " 10.79.0.1 10.79.0.2"},
        {"[7-8]", " 7 8"},
    };
    char text[512];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(expand(cases[i].list, text, sizeof text), cases[i].hosts);
}

static void long_lists_are_not_expanded_to_count_them(void **state)
{
    size_t count;
    char host[16];

    (void)state;
    assert_int_equal(ko_hostlist_count("L", "n[1-4096]m[1-4096]", &count), 0);
    assert_int_equal(count, KO_HOSTLIST_MAX);
    assert_int_equal(ko_hostlist_get("L", "n[1-4096]m[1-4096]", count - 1, host, sizeof host), 0);
    assert_string_equal(host, "n4096m4096");
}

/* Builds a list and, beside it, what it means. */
static void random_lists_mean_what_they_were_made_from(void **state)
{
    char list[2048], hosts[4096], text[4096];

    (void)state;
    srand(7);
    for (int round = 0; round < 2000; round++) {
        *list = *hosts = 0;
        for (int items = 1 + rand() % 4; items > 0; items--) {
            int low = rand() % 120, n = 1 + rand() % 6, width = 1 + rand() % 4;

            sprintf(list + strlen(list), "%sh%d-[", *list ? "," : "", items);
            for (int ranges = 1 + rand() % 3; ranges > 0; ranges--, low += 50) {
                sprintf(list + strlen(list), n > 1 ? "%0*d-%d" : "%0*d", width, low, low + n - 1);
                strcat(list, ranges > 1 ? "," : "]");
                for (int i = 0; i < n; i++) {
                    int digits = snprintf(NULL, 0, "%d", low);

                    sprintf(hosts + strlen(hosts), " h%d-%0*d", items,
                            width > digits ? width : digits, low + i);
                }
            }
        }
        assert_string_equal(expand(list, text, sizeof text), hosts);
    }
}

static void wrong_lists_are_refused(void **state)
{
    static const struct {
        const char *list, *why;
    } cases[] = {
        {"", "a host has no name"},
        {"a,", "a host has no name"},
        {",a", "a host has no name"},
        {"a]", "a bracket is closed that was not opened"},
        {"a[", "a bracket holds numbers"},
        {"a[]", "a bracket holds numbers"},
        {"a[1", "a bracket holds numbers"},
        {"a[1,]", "a bracket holds numbers"},
        {"a[1-]", "a range has two ends"},
        {"a[1-2", "a bracket holds numbers"},
        {"a[1-2-3]", "a bracket holds numbers"},
        {"a[2-1]", "a range runs upwards"},
        {"a[x]", "a bracket holds numbers"},
        {"a[1234567890]", "a bracket holds numbers"},
        {"a[0-99999999]", "so many hosts"},
        {"a[1-9999]b[1-9999]", "so many hosts"},
        {"a[1-16777216],b", "so many hosts"},
        {"[1][1][1][1][1][1][1][1][1]", "so many brackets"},
    };
    size_t count;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(ko_hostlist_count("NODES", cases[i].list, &count), KOLO_E_INVALID);
        if (!strstr(kolo_last_error(), cases[i].why) || !strstr(kolo_last_error(), "NODES is \""))
            fail_msg("%s: %s", cases[i].list, kolo_last_error());
    }
}

static void names_that_are_too_long_are_refused(void **state)
{
    char host[8];

    (void)state;
    assert_int_equal(ko_hostlist_get("L", "abcdefg", 0, host, sizeof host), 0);
    assert_string_equal(host, "abcdefg");
    assert_int_equal(ko_hostlist_get("L", "abcdefgh", 0, host, sizeof host), KOLO_E_INVALID);
    assert_int_equal(ko_hostlist_get("L", "abc[00001-2]", 0, host, sizeof host), KOLO_E_INVALID);
    assert_int_equal(ko_hostlist_get("L", "abcdefg[1]", 0, host, sizeof host), KOLO_E_INVALID);
    assert_non_null(strstr(kolo_last_error(), "a host's name is too long"));
}

static void tasks_per_node_are_found(void **state)
{
    static const int of_nodes[] = {3, 1, 2, 2, 2, 7};
    static const char *const wrong[] = {"",      "x",     "3(", "3(x)", "3(x2",
                                        "3(x0)", "3(y2)", "3,", "3;",   "3(x2)4"};
    int tasks;

    (void)state;
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(ko_hostlist_tasks("T", "3,1,2(x3),7", i, &tasks), 0);
        assert_int_equal(tasks, of_nodes[i]);
    }
    assert_int_equal(ko_hostlist_tasks("T", "3,1,2(x3),7", 6, &tasks), KOLO_E_INVALID);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(ko_hostlist_tasks("T", wrong[i], 5, &tasks), KOLO_E_INVALID);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_are_expanded),
        cmocka_unit_test(long_lists_are_not_expanded_to_count_them),
        cmocka_unit_test(random_lists_mean_what_they_were_made_from),
        cmocka_unit_test(wrong_lists_are_refused),
        cmocka_unit_test(names_that_are_too_long_are_refused),
        cmocka_unit_test(tasks_per_node_are_found),
    };

    return cmocka_run_group_tests_name("hostlist", tests, NULL, NULL);
}
