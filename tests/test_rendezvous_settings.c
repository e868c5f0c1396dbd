/* SPDX-License-Identifier: MIT
 *
 * What all ranks have to set alike is compared when they meet: all hear of two that differ.
 */
#include "ranks.h"
#include "rendezvous_settings.h"
#include "status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct difference {
    const char *name, *value, *other; /* NULL: not set */
    const char *text;                 /* NULL: they agree */
} differences[] = {
    {"KOLO_DETERMINISTIC", NULL, "1", "KOLO_DETERMINISTIC"},
    {"KOLO_DETERMINISTIC", "1", "0", "KOLO_DETERMINISTIC"},
    {"KOLO_DETERMINISTIC", NULL, "0", NULL},
    {"KOLO_ALGO", NULL, "ring", "KOLO_ALGO"},
    {"KOLO_ALGO", "all_reduce=ring", "all_reduce=direct", "KOLO_ALGO"},
    {"KOLO_ALGO", "all_reduce=ring,reduce=ring", "reduce=ring,AllReduce=ring", NULL},
    {"KOLO_CHECK", "1", NULL, "KOLO_CHECK"},
    {"KOLO_SLOTS", "4", NULL, "KOLO_SLOTS"},
    {"KOLO_SLICE_BYTES", "64K", NULL, "KOLO_SLICE_BYTES"},
    {"KOLO_SLICE_BYTES", "128K", "131072", NULL},
    {"KOLO_CUDA_PIECE_BYTES", "1M", "2M", "KOLO_CUDA_PIECE_BYTES"},
    {"KOLO_ENCRYPT", "1", NULL, "KOLO_ENCRYPT"},
    {"KOLO_SPIN_US", "1", "2", NULL}, /* each rank's own */
    {"KOLO_IDLE_BYTES", "0", "1G", NULL},
    {"KOLO_EAGER_BYTES", "1K", NULL, NULL},
};

enum { NDIFFERENCES = sizeof differences / sizeof *differences };

static void set(const char *name, const char *value)
{
    if (value)
        setenv(name, value, 1);
    else
        unsetenv(name);
}

static int join(kolo_group *group, const struct difference *difference, int number)
{
    const int rank = kolo_group_rank(group), odd = number % kolo_group_size(group);
    kolo_group *world;
    char url[300], text[64];
    int err, port = rank ? 0 : ranks_reserve_port();

    if (kolo_broadcast(group, &port, 1, KOLO_INT32, 0))
        return ranks_fail("a broadcast");
    set(difference->name, rank == odd ? difference->other : difference->value);
    snprintf(url, sizeof url, "tcp://127.0.0.1:%d?rank=%d&world_size=%d", port, rank,
             kolo_group_size(group));
    err = kolo_group_join(url, 15000, &world);
    unsetenv(difference->name);
    if (!err) {
        kolo_group_free(world);
        return difference->text ? ranks_fail("%s is not compared", difference->name) : 0;
    }
    snprintf(text, sizeof text, "rank %d ", odd);
    if (err == KOLO_E_INVALID && difference->text && strstr(kolo_last_error(), difference->text) &&
        strstr(kolo_last_error(), text) && strstr(kolo_last_error(), "; set it alike on all ranks"))
        return 0;
    return ranks_fail("%s: status %d", difference->name, err);
}

static int join_each_way(kolo_group *group, void *argument)
{
    int failed = 0;

    (void)argument;
    for (int i = 0; i < NDIFFERENCES && !failed; i++)
        failed = join(group, &differences[i], i) || kolo_barrier(group);
    return failed;
}

static void ranks_that_differ_do_not_join(void **state)
{
    (void)state;
    assert_int_equal(
        ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = 3}, join_each_way, NULL), 0);
}

static void both_ranks_and_values_are_named(void **state)
{
    char text[KO_SETTINGS_TEXT];

    (void)state;
    setenv("KOLO_ALGO", "ring", 1);
    ko_settings_write(text, sizeof text);
    assert_int_equal(ko_settings_compare(text, 3, 5), KOLO_OK);
    unsetenv("KOLO_ALGO");
    assert_int_equal(ko_settings_compare(text, 3, 5), KOLO_E_INVALID);
    assert_string_equal(
        kolo_last_error(),
        "rank 3 has KOLO_ALGO \"ring\", rank 5 has \"\"; set it alike on all ranks");
}

/* What another version, or another program, may have left there. */
static void other_texts_are_no_difference(void **state)
{
    static const char *const texts[] = {
        "", "\n", "KOLO_SLOTS", "KOLO_SLOTS_OF=9\n", "OTHER=1\n\n", "=", "KOLO_SLOTS=8"};

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_int_equal(ko_settings_compare(texts[i], 0, 1), KOLO_OK);
    assert_int_equal(ko_settings_compare("OTHER=1\nKOLO_SLOTS=9", 0, 1), KOLO_E_INVALID);
}

/* So long that it is cut off, or of two lines: nothing else is taken for a line. */
static void long_values_are_cut(void **state)
{
    char value[2 * KO_SETTINGS_TEXT], text[KO_SETTINGS_TEXT];

    (void)state;
    memset(value, 'x', sizeof value);
    value[sizeof value - 1] = 0;
    for (int i = 0; i < 2; i++) {
        setenv("KOLO_ALGO", value, 1);
        ko_settings_write(text, sizeof text);
        assert_int_equal(ko_settings_compare(text, 0, 1), KOLO_OK);
        snprintf(value, sizeof value, "ring\nKOLO_ENCRYPT=1\nKOLO_CHECK=1");
    }
    unsetenv("KOLO_ALGO");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_that_differ_do_not_join),
        cmocka_unit_test(both_ranks_and_values_are_named),
        cmocka_unit_test(other_texts_are_no_difference),
        cmocka_unit_test(long_values_are_cut),
    };

    setenv("KOLO_DEBUG", "NONE", 1);
    setenv("KOLO_AUTH_TOKEN", "for KOLO_ENCRYPT, which takes one", 1);
    return cmocka_run_group_tests_name("rendezvous_settings", tests, NULL, NULL);
}
