/* SPDX-License-Identifier: MIT
 *
 * Very many watch one key: when it changes they are told in turns of the one who has changed it,
 * between which others are served; each hears of all changes, in their order and with the values of
 * their time, whatever becomes of the key, and of that one, meanwhile.
 */
#include "status.h"
#include "store_bench.h"
#include "store_output.h"
#include "store_words.h"
#include "wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WATCHERS = 1000, FEWEST_TURNS = 10, MOST_TURNS = 200 };

#define WATCHES "07" /* of a client of 1.13 */
#define CREATED "01"
#define UPDATED "00"
#define DELETED "02"

struct crowd {
    struct store_bench bench;
    struct ko_session *busy, *other, *third;
    struct ko_session watchers[WATCHERS];
};

static int ntold;

static void count(struct ko_session *watcher)
{
    (void)watcher;
    ntold++;
}

static void come(struct crowd *crowd, struct ko_session *watcher, const char *hex)
{
    ko_session_open(watcher, &crowd->bench.service, count);
    store_asks(watcher, WATCHES K);
    store_asks(watcher, hex);
    ko_buffer_consume(&watcher->out, ko_buffer_fill(&watcher->out));
}

/* Each watches the key, and has said this as well. */
static struct crowd *new_crowd(const char *hex)
{
    struct crowd *crowd = malloc(sizeof *crowd);

    assert_non_null(crowd);
    store_bench_open_two(&crowd->bench);
    crowd->bench.service.has_other_half = store_has_other_half;
    crowd->busy = &crowd->bench.clients[0];
    crowd->other = &crowd->bench.clients[1];
    crowd->third = &crowd->bench.clients[2];
    store_asks(crowd->third, "00 cef7853c");
    for (int i = 0; i < WATCHERS; i++)
        come(crowd, &crowd->watchers[i], hex);
    store_asks(crowd->other, "01" X V);
    ntold = 0;
    return crowd;
}

static void free_crowd(struct crowd *crowd)
{
    for (int i = 0; i < WATCHERS; i++)
        ko_session_close(&crowd->watchers[i]);
    store_bench_close(&crowd->bench);
    free(crowd);
}

/* The busy one says this, and tells the first of them. */
static void begin(struct crowd *crowd, const char *hex)
{
    ntold = 0;
    store_begins(crowd->busy, hex);
    assert_true(crowd->busy->has_more);
    assert_in_range(ntold, 1, WATCHERS / FEWEST_TURNS);
}

/* It goes on with the others. */
static void go_on(struct crowd *crowd)
{
    store_goes_on(crowd->busy, crowd->other, FEWEST_TURNS, MOST_TURNS);
}

/* Those from first to last have heard this and no more. */
static void have_heard(struct crowd *crowd, int first, int last, const char *hex)
{
    for (int i = first; i < last; i++)
        store_gets(&crowd->watchers[i], hex);
}

static void all_are_told_in_turns(void **state)
{
    static const char *const ways[][2] = {
        {"01" K V, CREATED K EMPTY V},
        {"04" K ONE, CREATED K EMPTY "0100000000000000 31"},
        {"09" K V, CREATED K EMPTY V},
        {"02" K EMPTY V, CREATED K EMPTY V},
        {"0b" ONE K V, CREATED K EMPTY V},
        {"01" K V "09" K W, CREATED K EMPTY V UPDATED K V "0200000000000000 7677"},
        {"01" K V "01" K W "08" K, CREATED K EMPTY V UPDATED K V W DELETED K W EMPTY},
        {"0b" TWO K V K W, CREATED K EMPTY V UPDATED K V W}};

    (void)state;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct crowd *crowd = new_crowd("");
        const size_t before = ko_table_used(crowd->bench.service.table);

        begin(crowd, ways[i][0]);
        go_on(crowd);
        have_heard(crowd, 0, WATCHERS, ways[i][1]);
        store_asks(crowd->other, "08" K);
        assert_int_equal(ko_table_used(crowd->bench.service.table), before);
        free_crowd(crowd);
    }
}

/* Others change that key, and another one, before all have been told. */
static void changes_come_in_their_order(void **state)
{
    struct crowd *crowd = new_crowd(WATCHES N);

    (void)state;
    begin(crowd, "01" K V);
    store_begins(crowd->third, "01" N V "01" N W);
    assert_true(crowd->third->has_more);
    store_asks(crowd->other, "01" K W);
    assert_int_equal(store_run(crowd->third), KOLO_OK);
    assert_int_equal(store_run(crowd->busy), KOLO_OK);
    store_asks(crowd->other, "08" K "01" K W "08" N);
    have_heard(crowd, 0, WATCHERS,
               CREATED K EMPTY V CREATED N EMPTY V UPDATED K V W UPDATED N V W DELETED K W EMPTY
                   CREATED K EMPTY W DELETED N W EMPTY);
    free_crowd(crowd);
}

/* Who goes before he is told has gone; who comes behind a change is not told of it, but of the next
 * one. */
static void who_comes_and_goes(void **state)
{
    struct crowd *crowd = new_crowd("");
    const int middle = WATCHERS / 2;

    (void)state;
    begin(crowd, "01" K V);
    store_begins(crowd->third, "01" K W);
    for (int i = middle; i < WATCHERS; i++) {
        ko_session_close(&crowd->watchers[i]);
        come(crowd, &crowd->watchers[i], "");
    }
    assert_int_equal(ko_session_run(crowd->busy), KOLO_OK);
    for (int i = 0; i < 100; i++) { /* those who are next */
        ko_session_close(&crowd->watchers[i]);
        come(crowd, &crowd->watchers[i], "");
    }
    assert_int_equal(store_run(crowd->busy), KOLO_OK);
    assert_int_equal(store_run(crowd->third), KOLO_OK);
    store_asks(crowd->other, "08" K);
    have_heard(crowd, 0, 100, DELETED K W EMPTY);
    have_heard(crowd, 100, middle, CREATED K EMPTY V UPDATED K V W DELETED K W EMPTY);
    have_heard(crowd, middle, WATCHERS, DELETED K W EMPTY);
    free_crowd(crowd);
}

/* All of them go, and the key, and nothing stays of that. */
static void nobody_is_left(void **state)
{
    struct crowd *crowd = new_crowd("");
    struct ko_table *table = crowd->bench.service.table;
    int nfirst;

    (void)state;
    begin(crowd, "01" K V "01" K W "08" K);
    store_begins(crowd->third, "01" K V);
    store_begins(crowd->third, "08" K);
    nfirst = ntold;
    for (int i = 0; i < WATCHERS; i++)
        ko_session_close(&crowd->watchers[i]);
    assert_int_equal(store_run(crowd->third), KOLO_OK);
    assert_int_equal(store_run(crowd->busy), KOLO_OK);
    assert_int_equal(ntold, nfirst);
    store_asks(crowd->other, "08" X);
    assert_in_range(ko_table_used(table), 0, 1024); /* its first buckets */
    for (int i = 0; i < WATCHERS; i++)
        come(crowd, &crowd->watchers[i], "");
    free_crowd(crowd);
}

/* One who goes tells them in turns as well, also of his will; and what came before it. */
static void who_has_changed_it_goes(void **state)
{
    (void)state;
    for (int is_will = 0; is_will < 2; is_will++) {
        struct crowd *crowd = new_crowd("");
        int turns = 0;

        if (is_will)
            store_asks(crowd->busy, "f0" K W);
        store_begins(crowd->third, "01" K V);
        if (!is_will)
            store_begins(crowd->busy, "09" K W);
        while (!ko_session_close_some(crowd->busy)) {
            store_asks(crowd->other, "03" X);
            store_gets(crowd->other, V);
            turns++;
        }
        assert_in_range(turns, FEWEST_TURNS, MOST_TURNS);
        have_heard(crowd, 0, WATCHERS, CREATED K EMPTY V UPDATED K V "0200000000000000 7677");
        free_crowd(crowd);
    }
}

/* Without memory for what is to be told they are told at once, behind what came before. */
static void a_full_store_tells(void **state)
{
    struct crowd *crowd = new_crowd("");
    struct ko_table *table = crowd->bench.service.table;
    char *rest;
    size_t nrest;

    (void)state;
    begin(crowd, "01" K V);
    nrest = STORE_TABLE_CAP - ko_table_used(table) - 100; /* for the value and its view */
    rest = ko_table_make(table, nrest - 1);
    assert_non_null(rest);
    store_begins(crowd->third, "01" K W);
    assert_true(ntold >= 2 * WATCHERS);
    ko_table_unmake(table, rest, nrest - 1);
    have_heard(crowd, 0, WATCHERS, CREATED K EMPTY V UPDATED K V W);
    assert_int_equal(store_run(crowd->busy), KOLO_OK);
    free_crowd(crowd);
}

/* One who watches and asks himself is told first what had changed; and before he is answered what
 * he changes. */
static void who_watches_asks(void **state)
{
    struct crowd *crowd = new_crowd(WATCHES N);
    struct ko_session *last = &crowd->watchers[WATCHERS - 1];

    (void)state;
    begin(crowd, "01" K V);
    store_asks(last, "02" K "03" N ONE);
    store_gets(last, CREATED K EMPTY V V CREATED N EMPTY "0100000000000000 31" ONE);
    assert_int_equal(store_run(crowd->busy), KOLO_OK);
    have_heard(crowd, 0, WATCHERS - 1, CREATED K EMPTY V CREATED N EMPTY "0100000000000000 31");
    store_gets(last, "");
    store_asks(last, "05" ONE A);
    begin(crowd, "01" K W "01" A V);
    assert_int_equal(store_run(crowd->busy), KOLO_OK);
    store_gets(last, UPDATED K V W "00");
    free_crowd(crowd);
}

/* What others change while he is told goes before what he changes himself then: each hears of all
 * in one order, he his answer before. */
static void who_asks_meanwhile_hears_in_order(void **state)
{
    struct crowd *crowd = new_crowd(WATCHES N);
    struct ko_session *last = &crowd->watchers[WATCHERS - 1];

    (void)state;
    begin(crowd, "01" K V);
    store_begins(last, "03" N ONE);
    assert_true(last->has_more);
    store_begins(crowd->third, "01" K W);
    store_gets(last, CREATED K EMPTY V ONE UPDATED K V W CREATED N EMPTY "0100000000000000 31");
    assert_int_equal(store_run(crowd->third), KOLO_OK);
    assert_int_equal(store_run(crowd->busy), KOLO_OK);
    have_heard(crowd, 0, WATCHERS - 1,
               CREATED K EMPTY V UPDATED K V W CREATED N EMPTY "0100000000000000 31");
    free_crowd(crowd);
}

/* Also those who wait are woken, before all who watch have been told. */
static void who_waits_is_woken_first(void **state)
{
    struct crowd *crowd = new_crowd("");

    (void)state;
    store_asks(crowd->third, "06" ONE K);
    begin(crowd, "01" K V);
    store_gets(crowd->third, "00");
    go_on(crowd);
    have_heard(crowd, 0, WATCHERS, CREATED K EMPTY V);
    free_crowd(crowd);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(all_are_told_in_turns),
                                              cmocka_unit_test(changes_come_in_their_order),
                                              cmocka_unit_test(who_comes_and_goes),
                                              cmocka_unit_test(nobody_is_left),
                                              cmocka_unit_test(who_has_changed_it_goes),
                                              cmocka_unit_test(a_full_store_tells),
                                              cmocka_unit_test(who_watches_asks),
                                              cmocka_unit_test(who_asks_meanwhile_hears_in_order),
                                              cmocka_unit_test(who_waits_is_woken_first)};

    return cmocka_run_group_tests_name("store news", tests, NULL, NULL);
}
