/* SPDX-License-Identifier: MIT
 *
 * Very many wait for one thing: when it comes they are woken in turns of the one who has stored it,
 * between which others are served, and whatever becomes of the key, and of that one, meanwhile.
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

#include <stdlib.h>
#include <string.h>

enum { WAITERS = 1000, FEWEST_TURNS = 10, MOST_TURNS = 200 };

#define ALL "e803000000000000" /* WAITERS */

struct crowd {
    struct store_bench bench;
    struct ko_session *busy, *other;
    struct ko_session waiters[WAITERS];
};

static struct ko_session *woken[WAITERS + 1]; /* in this order */
static int nwoken;

static void note(struct ko_session *waiter)
{
    assert_in_range(nwoken, 0, WAITERS);
    woken[nwoken++] = waiter;
}

/* Each waiter has said this, which is not answered yet. */
static struct crowd *new_crowd(const char *hex)
{
    struct crowd *crowd = malloc(sizeof *crowd);

    assert_non_null(crowd);
    store_bench_open_two(&crowd->bench);
    crowd->busy = &crowd->bench.clients[0];
    crowd->other = &crowd->bench.clients[1];
    nwoken = 0;
    for (int i = 0; i < WAITERS; i++) {
        ko_session_open(&crowd->waiters[i], &crowd->bench.service, note);
        store_asks(&crowd->waiters[i], "00 cef7853c");
        store_asks(&crowd->waiters[i], hex);
        store_gets(&crowd->waiters[i], "");
    }
    store_asks(crowd->other, "01" X V);
    return crowd;
}

static void free_crowd(struct crowd *crowd)
{
    for (int i = 0; i < WAITERS; i++)
        ko_session_close(&crowd->waiters[i]);
    store_bench_close(&crowd->bench);
    free(crowd);
}

/* The busy one says this, and wakes the first of them. */
static void begin(struct crowd *crowd, const char *hex)
{
    store_begins(crowd->busy, hex);
    assert_true(crowd->busy->has_more);
    assert_in_range(nwoken, 1, WAITERS / FEWEST_TURNS);
}

/* It goes on with the others. */
static void go_on(struct crowd *crowd)
{
    store_goes_on(crowd->busy, crowd->other, FEWEST_TURNS, MOST_TURNS);
}

/* Those from first to last have been woken in the order in which they came, and are answered. */
static void are_woken(struct crowd *crowd, int first, int last)
{
    assert_int_equal(nwoken, last - first);
    for (int i = first; i < last; i++) {
        assert_ptr_equal(woken[i - first], &crowd->waiters[i]);
        store_gets(&crowd->waiters[i], "00");
    }
}

static void all_are_woken_in_turns(void **state)
{
    static const char *const ways[][2] = {
        {"06" ONE K, "01" K V},       {"06" TWO X K, "01" K V},
        {"06" ONE K, "04" K ONE},     {"06" ONE K, "09" K V},
        {"06" ONE K, "02" K EMPTY V}, {"06" ONE K, "0b" ONE K V},
        {"06" TWO X K, "0e" K V},     {"12" K "e903000000000000", "12" K ALL}};

    (void)state;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct crowd *crowd = new_crowd(ways[i][0]);

        begin(crowd, ways[i][1]);
        go_on(crowd);
        are_woken(crowd, 0, WAITERS);
        free_crowd(crowd);
    }
}

/* Also those who wait for something else as well, which comes when the key has gone. */
static void a_key_that_goes_has_come(void **state)
{
    struct crowd *crowd = new_crowd("06" TWO X K);
    struct ko_session *late = &crowd->bench.clients[2];

    (void)state;
    store_asks(&crowd->waiters[WAITERS - 1], "0c 06" TWO K N);
    store_gets(&crowd->waiters[WAITERS - 1], "01");
    begin(crowd, "01" K V);
    store_asks(crowd->other, "08" K "01" N V);
    store_gets(crowd->other, ONE);
    store_asks(late, "00 cef7853c 06" ONE K);
    go_on(crowd);
    are_woken(crowd, 0, WAITERS);
    store_gets(late, "");
    store_asks(crowd->other, "01" K V);
    store_gets(late, "00");
    free_crowd(crowd);
}

/* Who gives up before he is woken has given up, and may wait anew; who goes has gone. */
static void who_gives_up_is_not_woken(void **state)
{
    struct crowd *crowd = new_crowd("06" ONE K);
    struct ko_session *again = &crowd->waiters[WAITERS - 1], *gone = &crowd->waiters[WAITERS - 2];

    (void)state;
    begin(crowd, "01" K V);
    store_asks(again, "0c 06" ONE N);
    store_gets(again, "01");
    ko_session_close(gone);
    ko_session_open(gone, &crowd->bench.service, note);
    go_on(crowd);
    are_woken(crowd, 0, WAITERS - 2);
    store_gets(again, "");
    store_asks(crowd->other, "01" N V);
    store_gets(again, "00");
    free_crowd(crowd);
}

/* All of them go. */
static void nobody_is_left(void **state)
{
    struct crowd *crowd = new_crowd("06" ONE K);
    const size_t none = ko_table_used(crowd->bench.service.table);
    int nfirst;

    (void)state;
    begin(crowd, "01" K V);
    nfirst = nwoken;
    for (int i = 0; i < WAITERS; i++) {
        ko_session_close(&crowd->waiters[i]);
        ko_session_open(&crowd->waiters[i], &crowd->bench.service, note);
    }
    assert_int_equal(store_run(crowd->busy), KOLO_OK);
    assert_int_equal(nwoken, nfirst);
    assert_true(ko_table_used(crowd->bench.service.table) < none);
    free_crowd(crowd);
}

/* One who goes wakes them in turns as well, also by his will. */
static void who_has_stored_it_goes(void **state)
{
    (void)state;
    for (int is_will = 0; is_will < 2; is_will++) {
        struct crowd *crowd = new_crowd("06" ONE K);
        int turns = 0;

        if (is_will)
            store_asks(crowd->busy, "f0" K V);
        else
            begin(crowd, "01" K V);
        while (!ko_session_close_some(crowd->busy)) {
            store_asks(crowd->other, "03" X);
            store_gets(crowd->other, V);
            turns++;
        }
        assert_in_range(turns, FEWEST_TURNS, MOST_TURNS);
        are_woken(crowd, 0, WAITERS);
        free_crowd(crowd);
    }
}

/* They need not wait until the one who has stored it reads, who has so much to read that he is not
 * served any more. */
static void who_has_stored_it_does_not_read(void **state)
{
    enum { LARGE = KO_SESSION_OUTPUT_BOUND / 2 - 10 };
    struct crowd *crowd = new_crowd("06" ONE K);
    char *large = calloc(1, LARGE);

    (void)state;
    crowd->bench.service.budget.cap = 8 * STORE_BUFFERS_CAP;
    assert_int_equal(
        ko_table_set(crowd->bench.service.table, (kolo_bytes){"/x", 2}, (kolo_bytes){large, LARGE}),
        KOLO_OK);
    store_asks(crowd->busy, "03" X "03" X);
    assert_in_range(ko_output_nbytes(crowd->busy), 1, KO_SESSION_OUTPUT_BOUND - 1);
    store_asks(crowd->busy, "04" K ONE);
    assert_true(ko_output_nbytes(crowd->busy) >= KO_SESSION_OUTPUT_BOUND);
    are_woken(crowd, 0, WAITERS);
    free(large);
    free_crowd(crowd);
}

/* Poppers whom a value has woken, and not a queue's, have no claim; a queue's value is one's. */
static void poppers_are_woken_by_a_value(void **state)
{
    struct crowd *crowd = new_crowd("06" ONE K);

    (void)state;
    store_asks(crowd->other, "0e" K V);
    are_woken(crowd, 0, 1);
    assert_true(ko_session_has_claim(&crowd->waiters[0]));
    nwoken = 0;
    begin(crowd, "01" K V);
    go_on(crowd);
    are_woken(crowd, 1, WAITERS);
    assert_false(ko_session_has_claim(&crowd->waiters[1]));
    free_crowd(crowd);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_are_woken_in_turns),
        cmocka_unit_test(a_key_that_goes_has_come),
        cmocka_unit_test(who_gives_up_is_not_woken),
        cmocka_unit_test(nobody_is_left),
        cmocka_unit_test(who_has_stored_it_goes),
        cmocka_unit_test(who_has_stored_it_does_not_read),
        cmocka_unit_test(poppers_are_woken_by_a_value),
    };
    return cmocka_run_group_tests_name("store wakes", tests, NULL, NULL);
}
