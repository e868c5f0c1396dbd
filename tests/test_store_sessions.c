/* SPDX-License-Identifier: MIT
 *
 * What clients of a store do to one another, of all numberings: they wake, hand on, cut off.
 * Sessions without sockets.
 */
#include "status.h"
#include "store.h"
#include "store_bench.h"
#include "store_words.h"
#include "wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

/* ---- several clients ---------------------------------------------------------------------- */

/* Clients of both kinds see each other's keys, and wake each other. */
static void test_both_kinds(void **state)
{
    struct store_bench bench;
    struct ko_session *new_one = &bench.clients[0];
    struct ko_session *old_one = &bench.clients[1];

    (void)state;
    store_bench_open(&bench);
    store_asks(new_one, "00 cef7853c 06" ONE K);
    store_gets(new_one, "");
    store_asks(old_one, "00" K V);
    store_gets(new_one, "00");
    store_asks(old_one, "05" ONE A);
    store_gets(old_one, "");
    store_asks(new_one, "01" A V);
    store_gets(old_one, "00");
    store_asks(old_one, "02" K);
    store_gets(old_one, V);
    assert_int_equal(new_one->numbering, KO_WIRE_MODERN);
    assert_int_equal(old_one->numbering, KO_WIRE_OLD);
    store_bench_close(&bench);
}

/* What may be a DELETE is none until its client is seen to be one of two connections. */
static void test_unsure(void **state)
{
    struct store_bench bench;
    struct ko_session *client = &bench.clients[0];

    (void)state;
    store_bench_open(&bench);
    store_asks(client, "00" K V);
    assert_false(ko_session_is_unsure(client));
    store_asks(client, "08" K);
    store_gets(client, "");
    assert_true(ko_session_is_unsure(client));
    bench.service.has_other_half = store_has_other_half;
    store_gets(client, ONE);
    assert_false(ko_session_is_unsure(client));
    assert_int_equal(client->numbering, KO_WIRE_1_13);
    bench.service.has_other_half = NULL;
    store_asks(client, "08" K);
    store_gets(client, EMPTY);
    assert_int_equal(store_feed(client, (const uint8_t *)"\x09", 1), KOLO_E_PROTOCOL);
    store_bench_close(&bench);
}

/* A client of 1.13 or 2.0 whose wait has taken too long goes on, and is told nothing of it later.
 */
static void test_1_13_goes_on(void **state)
{
    struct store_bench bench;
    struct ko_session *waits = &bench.clients[0];
    struct ko_session *sets = &bench.clients[1];

    (void)state;
    store_bench_open(&bench);
    store_asks(waits, "05" TWO K A);
    store_gets(waits, "");
    store_asks(waits, "06");
    store_gets(waits, EMPTY);
    store_asks(waits, "05" ONE K);
    store_asks(sets, "00" X V);
    store_asks(waits, "02" X);
    store_gets(waits, V);
    store_asks(sets, "00" K V "00" A V);
    store_gets(waits, "");
    store_asks(waits, "05" TWO K A);
    store_gets(waits, "00");
    store_bench_close(&bench);
}

/* A compare_set that stores wakes, one that does not wakes nobody. */
static void test_compare_set_wakes(void **state)
{
    struct store_bench bench;
    struct ko_session *waits = &bench.clients[0];
    struct ko_session *sets = &bench.clients[1];

    (void)state;
    store_bench_open_two(&bench);
    store_asks(waits, "06" ONE K);
    store_asks(sets, "02" K V W);
    store_gets(sets, V);
    store_gets(waits, "");
    store_asks(sets, "02" K EMPTY W);
    store_gets(sets, W);
    store_gets(waits, "00");
    store_bench_close(&bench);
}

/* A client's last will is done when it ends, and wakes; a client of 1.13 has none. */
static void test_will(void **state)
{
    struct store_bench bench;
    struct ko_session *dies = &bench.clients[0];
    struct ko_session *waits = &bench.clients[1];

    (void)state;
    store_bench_open_two(&bench);
    store_asks(dies, "f0" X W "f0" K V "01" A V);
    store_asks(waits, "06" ONE K);
    store_gets(waits, "");
    ko_session_close(dies);
    store_gets(waits, "00");
    store_asks(waits, "03" K "05" ONE X);
    store_gets(waits, V "01"); /* the one made last */
    ko_session_open(dies, &bench.service, NULL);
    store_asks(dies, "00 cef7853c f0" K W);
    ko_session_close(dies);
    store_asks(waits, "03" K);
    store_gets(waits, "0200000000000000 7677");
    ko_session_open(dies, &bench.service, NULL);
    store_asks(dies, "00" A V);
    assert_int_equal(store_feed(dies, (const uint8_t *)"\xf0", 1), KOLO_E_PROTOCOL);
    store_bench_close(&bench);
}

static void test_queue_wakes_one(void **state)
{
    struct store_bench bench;
    struct ko_session *first = &bench.clients[0];
    struct ko_session *second = &bench.clients[1];
    struct ko_session *pushes = &bench.clients[2];

    (void)state;
    store_bench_open_two(&bench);
    store_asks(pushes, "00 cef7853c");
    store_asks(first, "06" ONE K);
    store_asks(second, "06" ONE K);
    store_asks(pushes, "0e" K V);
    store_gets(first, "00"); /* it came first */
    store_gets(second, "");
    store_asks(first, "0f" K);
    store_gets(first, ONE V);
    store_asks(pushes, "0e" K W); /* the first waits no more: nothing comes to it unasked */
    store_gets(first, "");
    store_gets(second, "00");
    store_asks(second, "06" ONE K); /* a queue that is not empty is there */
    store_gets(second, "00");
    store_asks(first, "0f" K "06" ONE K);
    store_gets(first, ONE W);
    store_asks(first, "0c");
    store_gets(first, "01");
    store_asks(second, "03" X); /* a get of what is a queue only has an empty value */
    store_asks(pushes, "0e" X V);
    store_gets(second, EMPTY);
    store_asks(second, "08" X);
    store_gets(second, ONE);
    store_asks(second, "10" X);
    store_gets(second, EMPTY);
    store_bench_close(&bench);
}

/* A value that the one it woke does not take wakes the next, as soon as that is known. */
static void test_queue_hands_on(void **state)
{
    static const char *const ends[] = {"", "0d 01020304", "10" K, "0c", "06" ONE K};
    struct store_bench bench;
    struct ko_session *first = &bench.clients[0];
    struct ko_session *second = &bench.clients[1];
    struct ko_session *pushes = &bench.clients[2];

    (void)state;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        store_bench_open_two(&bench);
        store_asks(first, "06" ONE K);
        store_asks(second, "06" ONE K);
        store_asks(pushes, "00 cef7853c 0e" K V);
        store_gets(first, "00");
        store_gets(second, "");
        if (*ends[i])
            store_asks(first, ends[i]); /* it says something else */
        else
            ko_session_close(first); /* it has died */
        store_gets(second, "00");
        store_asks(second, "0f" K);
        store_gets(second, ONE V);
        store_bench_close(&bench);
    }
}

/* Two values wake two, of whom one takes none; a third is there for the second value then. */
static void test_queue_hands_on_to_one(void **state)
{
    struct store_bench bench;
    struct ko_session *first = &bench.clients[0];
    struct ko_session *second = &bench.clients[1];
    struct ko_session *third = &bench.clients[2];

    (void)state;
    store_bench_open_two(&bench);
    store_asks(third, "00 cef7853c");
    store_asks(first, "06" ONE K);
    store_asks(second, "06" ONE K);
    store_asks(third, "0e" K V "0e" K W "06" ONE K "0f" K "06" ONE X);
    store_gets(third, "00" TWO V); /* it came when there was one, and was faster */
    store_gets(first, "00");
    store_gets(second, "00");
    store_asks(first, "0f" K "06" ONE X);
    store_gets(first, ONE W);
    store_asks(second, "0f" K "06" ONE X);
    store_gets(second, EMPTY);
    store_asks(second, "0c 0e" X V);
    store_gets(second, "01");
    store_gets(third, "00"); /* it has waited for longer */
    store_asks(second, "08" X);
    store_gets(second, ONE);
    store_asks(third, "10" X); /* what it was to take is gone: there is nothing to hand on */
    store_gets(third, EMPTY);
    store_gets(first, "");
    store_bench_close(&bench);
}

/* Those who cannot be about to pop are all woken, and do not keep the value from one who is. */
static void test_queue_wakes_who_looks(void **state)
{
    struct store_bench bench;

    (void)state;
    store_bench_open(&bench);
    store_asks(&bench.clients[0], "05" ONE K); /* clients of 1.13 know no queues */
    store_asks(&bench.clients[1], "00 cef7853c 0a" ONE K);
    store_asks(&bench.clients[2], "00 cef7853c 06" ONE K);
    assert_int_equal(
        ko_table_queue_push(bench.service.table, (kolo_bytes){"/k", 2}, (kolo_bytes){"v", 1}),
        KOLO_OK);
    store_gets(&bench.clients[0], "00");
    store_gets(&bench.clients[1], EMPTY);
    store_gets(&bench.clients[2], "00");
    store_bench_close(&bench);
}

/* One who waits for two keys does not keep a queue's value from those behind it. */
static void test_queue_passes_over(void **state)
{
    struct store_bench bench;

    (void)state;
    store_bench_open_two(&bench);
    store_asks(&bench.clients[0], "06" TWO K X);
    store_asks(&bench.clients[1], "06" ONE K);
    store_asks(&bench.clients[2], "00 cef7853c 0e" K V);
    store_gets(&bench.clients[0], "");
    store_gets(&bench.clients[1], "00");
    store_asks(&bench.clients[2], "01" X V);
    store_gets(&bench.clients[0], "00");
    store_bench_close(&bench);
}

/* A long reply stops where the client does not read. A key that is deleted meanwhile is waited for
 * anew. Who gives that up can be told nothing within the reply, and is cut off. */
static void test_multi_get_in_pieces(void **state)
{
    enum { LARGE = 400 << 10 };
    char *large = calloc(1, LARGE);
    struct store_bench bench;
    struct ko_session *reads = &bench.clients[0];
    struct ko_session *sets = &bench.clients[1];

    (void)state;
    store_bench_open_two(&bench);
    bench.service.budget.cap = 4 * STORE_BUFFERS_CAP;
    assert_int_equal(
        ko_table_set(bench.service.table, (kolo_bytes){"/k", 2}, (kolo_bytes){large, LARGE}),
        KOLO_OK);
    store_asks(sets, "01" X V);
    store_asks(reads, "0a 0500000000000000" K K K K X);
    assert_int_equal(ko_buffer_fill(&reads->out), 3 * (8 + LARGE));
    store_asks(sets, "08" X);
    store_gets(sets, ONE);
    ko_buffer_consume(&reads->out, 3 * (8 + LARGE));
    assert_int_equal(store_run(reads), KOLO_OK);
    assert_int_equal(ko_buffer_fill(&reads->out), 8 + LARGE);
    assert_int_equal(ko_wire_u64(ko_buffer_bytes(&reads->out)), LARGE);
    ko_buffer_consume(&reads->out, 8 + LARGE);
    store_gets(reads, "");
    store_asks(sets, "01" X W);
    store_gets(reads, W);
    store_asks(reads, "0a 0100000000000000" X "0c");
    store_gets(reads, W "01"); /* the answer to what stood behind it, too */
    store_asks(reads, "0a 0500000000000000" K K K K X);
    store_asks(sets, "08" X);
    store_gets(sets, ONE);
    ko_buffer_consume(&reads->out, 3 * (8 + LARGE));
    assert_int_equal(store_feed(reads, (const uint8_t *)"\x0c", 1), KOLO_E_ABORTED);
    assert_non_null(strstr(kolo_last_error(), "gave up its MULTI_GET"));
    store_bench_close(&bench);
    free(large);
}

static void test_barrier(void **state)
{
    struct store_bench bench;
    uint8_t bytes[WIRE_LONGEST];
    struct ko_session *first = &bench.clients[0];
    struct ko_session *second = &bench.clients[1];

    (void)state;
    store_bench_open_two(&bench);
    store_asks(first, "12" K TWO);
    store_gets(first, "");
    store_asks(second, "01" X V "05" ONE K "03" K); /* its counter is a key like others */
    store_gets(second, "00 0100000000000000 31");
    store_asks(second, "12" K TWO);
    store_gets(second, "00");
    store_gets(first, "00");
    assert_int_equal(store_feed(second, bytes, wire_unhex("12" X TWO, bytes)), KOLO_E_INVALID);
    assert_non_null(strstr(kolo_last_error(), "not a decimal number"));
    store_bench_close(&bench);
}

static void test_barrier_cancelled(void **state)
{
    struct store_bench bench;
    struct ko_session *first = &bench.clients[0];
    struct ko_session *second = &bench.clients[1];

    (void)state;
    store_bench_open_two(&bench);
    store_asks(first, "12" K TWO);
    store_asks(first, "0c");
    store_gets(first, "01");
    store_asks(second, "12" K TWO); /* it has come once, and need not wait */
    store_gets(second, "00");
    store_gets(first, "");
    store_bench_close(&bench);
}

/* ---- watching ----------------------------------------------------------------------------- */

static void test_watch(void **state)
{
    struct store_bench bench;
    struct ko_session *watches = &bench.clients[0];
    struct ko_session *sets = &bench.clients[1];

    (void)state;
    store_bench_open(&bench);
    bench.service.has_other_half = store_has_other_half;
    store_asks(sets, "00 cef7853c");
    store_asks(watches, "07" K);
    store_gets(watches, "03");
    store_asks(watches, "07" K "07" N); /* twice is once */
    store_gets(watches, "03 03");
    store_asks(sets, "01" K V);
    store_gets(watches, "01" K EMPTY V);
    store_asks(sets, "09" K W);
    store_gets(watches, "00" K V "0200000000000000 7677");
    store_asks(sets, "02" K V W); /* stores nothing */
    store_gets(sets, "0200000000000000 7677");
    store_gets(watches, "");
    store_asks(sets, "0b" ONE K V);
    store_gets(watches, "00" K "0200000000000000 7677" V);
    store_asks(sets, "08" K "08" K);
    store_gets(watches, "02" K V EMPTY);
    store_asks(sets, "04" N ONE);
    store_gets(watches, "01" N EMPTY "0100000000000000 31");
    ko_session_close(watches);
    store_asks(sets, "01" K V);
    assert_int_equal(ko_buffer_fill(&watches->out), 0);
    store_bench_close(&bench);
}

/* One that watches and does not read is cut off when the memory for it has run out. */
static void test_watch_swamped(void **state)
{
    struct store_bench bench;
    struct ko_session *watches = &bench.clients[0];
    char *large = calloc(1, STORE_BUFFERS_CAP / 4);
    kolo_bytes key = {"/k", 2};
    int err = KOLO_OK;

    (void)state;
    store_bench_open(&bench);
    bench.service.has_other_half = store_has_other_half;
    store_asks(watches, "07" K);
    for (int i = 0; i < 8 && !err; i++) {
        assert_int_equal(
            ko_table_set(bench.service.table, key, (kolo_bytes){large, STORE_BUFFERS_CAP / 4}),
            KOLO_OK);
        err = store_run(watches);
    }
    assert_int_equal(err, KOLO_E_NOMEM);
    store_bench_close(&bench);
    free(large);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_both_kinds),
        cmocka_unit_test(test_unsure),
        cmocka_unit_test(test_1_13_goes_on),
        cmocka_unit_test(test_compare_set_wakes),
        cmocka_unit_test(test_will),
        cmocka_unit_test(test_queue_wakes_one),
        cmocka_unit_test(test_queue_hands_on),
        cmocka_unit_test(test_queue_hands_on_to_one),
        cmocka_unit_test(test_queue_wakes_who_looks),
        cmocka_unit_test(test_queue_passes_over),
        cmocka_unit_test(test_multi_get_in_pieces),
        cmocka_unit_test(test_barrier),
        cmocka_unit_test(test_barrier_cancelled),
        cmocka_unit_test(test_watch),
        cmocka_unit_test(test_watch_swamped),
    };
    return cmocka_run_group_tests_name("store sessions", tests, NULL, NULL);
}
