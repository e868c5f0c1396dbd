/* SPDX-License-Identifier: MIT
 *
 * What it costs to say who has not come: all ranks time out at once, over one store.
 */
#include "counting_store.h"
#include "kolo.h"
#include "log_file.h"
#include "rendezvous_roster.h"
#include "sanitized.h"
#include "status.h"
#include "store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct joiner {
    pthread_t thread;
    kolo_store *store;
    int rank, size;
    int limit_ms;
    int err;
    char text[KO_ERROR_TEXT];
};

static void *join(void *argument)
{
    struct joiner *joiner = argument;
    kolo_group *group = NULL;

    joiner->err =
        kolo_group_join_store(joiner->store, joiner->rank, joiner->size, joiner->limit_ms, &group);
    snprintf(joiner->text, sizeof joiner->text, "%s", kolo_last_error());
    kolo_group_free(group);
    return NULL;
}

/* Every second one of so many ranks joins, before the first gives up. */
static void join_half(struct joiner *joiners, kolo_store *store, int size)
{
    const int limit_ms = IS_SANITIZED ? 10000 : 2000;

    for (int i = 0; i < size / 2; i++) {
        joiners[i] =
            (struct joiner){.store = store, .rank = 2 * i, .size = size, .limit_ms = limit_ms};
        assert_int_equal(pthread_create(&joiners[i].thread, NULL, join, &joiners[i]), 0);
    }
    for (int i = 0; i < size / 2; i++)
        pthread_join(joiners[i].thread, NULL);
}

/* Ranks that all time out at the same time look once together, not each for all. */
static void many_do_not_all_look(void **state)
{
    enum { SIZE = 192, HALF = SIZE / 2 };
    struct counting_store *counting = counting_store_open(0);
    static struct joiner joiners[HALF];
    int checks;

    (void)state;
    join_half(joiners, &counting->store, SIZE);
    checks = atomic_load(&counting->checks);
    kolo_store_close(&counting->store);
    for (int i = 0; i < HALF; i++) {
        assert_int_equal(joiners[i].err, KOLO_E_TIMEOUT);
        assert_non_null(strstr(joiners[i].text, "96 have not come: rank 1, 3, 5"));
        assert_non_null(strstr(joiners[i].text, "Here are 0, 2, 4, 6, "));
        assert_string_equal(joiners[i].text, joiners[0].text);
    }
    assert_in_range(checks, 1, HALF * SIZE / 4);
}

/* The rank whose turn it was has died. */
static void one_that_dies_keeps_nobody(void **state)
{
    struct joiner joiners[2];
    kolo_store *store;
    int64_t turn;

    (void)state;
    assert_int_equal(kolo_store_open_local(&store), KOLO_OK);
    assert_int_equal(kolo_store_add(store, "kolo/0/looking", 1, &turn), KOLO_OK);
    join_half(joiners, store, 4);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(joiners[i].err, KOLO_E_TIMEOUT);
        assert_non_null(strstr(joiners[i].text, "2 have not come: rank 1, 3."));
    }
    kolo_store_close(store);
}

/* Those of a later request are named if nobody of an earlier one is there. */
static void some_are_always_named(void **state)
{
    enum { SIZE = 130, LAST = 2 };
    struct joiner joiners[LAST];
    kolo_store *store;

    (void)state;
    assert_int_equal(kolo_store_open_local(&store), KOLO_OK);
    for (int i = 0; i < LAST; i++) {
        joiners[i] = (struct joiner){
            .store = store, .rank = SIZE - LAST + i, .size = SIZE, .limit_ms = 1000};
        assert_int_equal(pthread_create(&joiners[i].thread, NULL, join, &joiners[i]), 0);
    }
    for (int i = 0; i < LAST; i++) {
        pthread_join(joiners[i].thread, NULL);
        assert_non_null(strstr(joiners[i].text, "128 have not come: rank 0-127."));
        assert_non_null(strstr(joiners[i].text, "Here are 128, 129 ("));
    }
    kolo_store_close(store);
}

/* A store that is slow is not asked for everybody. */
static void looking_has_an_end(void **state)
{
    enum { SIZE = 2000 };
    struct counting_store *counting = counting_store_open(20);
    struct joiner joiner = {.store = &counting->store, .rank = 1, .size = SIZE, .limit_ms = 1000};

    (void)state;
    (void)join(&joiner);
    assert_int_equal(joiner.err, KOLO_E_TIMEOUT);
    assert_non_null(strstr(joiner.text, " of the first "));
    assert_in_range(atomic_load(&counting->checks), 64, SIZE / 4);
    kolo_store_close(&counting->store);
}

/* Ranks of three machines, of which the second has every fourth and the third 301 alone. */
static void fill(struct ko_roster *roster, int size)
{
    assert_int_equal(ko_roster_open(size, roster), KOLO_OK);
    roster->looked = size;
    for (int r = 0; r < size; r++)
        if (r < 290)
            snprintf(roster->places[r], sizeof roster->places[r], "host%d", r % 4 == 3);
    snprintf(roster->places[301], sizeof roster->places[301], "host2");
}

/* By machine, as far as there is room. */
static void those_of_a_place_are_told_together(void **state)
{
    struct ko_roster roster;
    char text[216], list[64];

    (void)state;
    fill(&roster, 320);
    assert_int_equal(ko_roster_missing(&roster, list, sizeof list), 29);
    assert_string_equal(list, "290-300, 302-319");
    ko_roster_come(&roster, text, sizeof text);
    assert_string_equal(text, "0-2, 4-6, 8-10, 12-14, 16-18, 20-22, 24-26 and 197 more (host0), "
                              "3, 7, 11, 15, 19, 23, 27, 31, 35, 39, 43, 47 and 60 more (host1), "
                              "301 (host2)");
    roster.places[0][4] = 0; /* one more machine, for which there is no room */
    ko_roster_come(&roster, text, 170);
    assert_string_equal(
        text, "0 (host), 1, 2, 4-6, 8-10, 12-14, 16-18, 20-22, 24-26 and 197 more (host0), "
              "3, 7, 11, 15, 19, 23, 27, 31, 35, 39, 43, 47 and 60 more (host1) "
              "and 1 more");
    ko_roster_close(&roster);
}

/* The log has the ranks of fifty machines, and once what has not changed. */
static void a_roster_is_logged_whole(void **state)
{
    enum { SIZE = 400 };
    struct ko_roster roster;
    char line[LOG_LINE];

    (void)state;
    assert_int_equal(ko_roster_open(SIZE, &roster), KOLO_OK);
    roster.looked = SIZE;
    for (int r = 0; r < SIZE; r++)
        snprintf(roster.places[r], sizeof roster.places[r], "machine%d", r / 8);
    log_file_open("INFO");
    ko_roster_say(&roster);
    ko_roster_say(&roster);
    assert_int_equal(log_file_close(" kolo INFO have joined: ", line), 2);
    assert_non_null(strstr(line, ": 0-7 (machine0), 8-15 (machine1), 16-23 (machine2), "));
    assert_null(strstr(line, "more"));
    roster.said = -1;
    log_file_open("INFO");
    ko_roster_say(&roster);
    assert_int_equal(log_file_close("392-399 (machine49)\n", line), 1);
    ko_roster_close(&roster);
}

/* While they wait; and nothing is said of the pauses. */
static void a_roster_is_logged_by_who_waits(void **state)
{
    static const char *const texts[] = {"1 of 3 ranks have joined; missing: rank 0, 2\n",
                                        "have joined: 1 (", "keys that nobody has set"};
    struct joiner joiner = {.rank = 1, .size = 3, .limit_ms = 900};
    char line[LOG_LINE];

    (void)state;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(kolo_store_open_local(&joiner.store), KOLO_OK);
        log_file_open("INFO");
        (void)join(&joiner);
        assert_int_equal(joiner.err, KOLO_E_TIMEOUT);
        assert_int_equal(log_file_close(texts[i], line), i < 2);
        kolo_store_close(joiner.store);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_do_not_all_look),
        cmocka_unit_test(one_that_dies_keeps_nobody),
        cmocka_unit_test(some_are_always_named),
        cmocka_unit_test(looking_has_an_end),
        cmocka_unit_test(those_of_a_place_are_told_together),
        cmocka_unit_test(a_roster_is_logged_whole),
        cmocka_unit_test(a_roster_is_logged_by_who_waits),
    };

    setenv("KOLO_TRANSPORT", "shm", 1);
    return cmocka_run_group_tests_name("missing ranks", tests, NULL, NULL);
}
