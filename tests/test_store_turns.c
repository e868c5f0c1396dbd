/* SPDX-License-Identifier: MIT
 *
 * Clients that make a store work: however much one sends at once, it is served in turns, between
 * which others are.
 */
#include "socket.h"
#include "status.h"
#include "store.h"
#include "store_bench.h"
#include "store_served.h"
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
#include <unistd.h>

enum { KEYS = 1000, FEWEST_TURNS = 10, MOST_TURNS = 200 };

/* ---- what clients say --------------------------------------------------------------------- */

static void say_byte(struct ko_session *client, uint8_t byte)
{
    assert_int_equal(ko_buffer_reserve(&client->in, 1), KOLO_OK);
    ko_buffer_put_u8(&client->in, byte);
}

static void say_number(struct ko_session *client, uint64_t number)
{
    assert_int_equal(ko_buffer_reserve(&client->in, 8), KOLO_OK);
    ko_buffer_put_u64(&client->in, number);
}

static kolo_bytes key_text(int i, char text[16])
{
    return (kolo_bytes){text, (size_t)snprintf(text, 16, "/%d", i)};
}

static void say_key(struct ko_session *client, int i)
{
    char text[16];

    assert_int_equal(ko_list_put(&client->in, key_text(i, text)), KOLO_OK);
}

/* A message about KEYS keys, each with a value behind it if there is one; nothing runs yet. */
static void say_list(struct ko_session *client, uint8_t opcode, const char *value)
{
    say_byte(client, opcode);
    say_number(client, KEYS);
    for (int i = 0; i < KEYS; i++) {
        say_key(client, i);
        if (value)
            assert_int_equal(ko_list_put(&client->in, (kolo_bytes){value, 1}), KOLO_OK);
    }
}

static bool has(const struct store_bench *bench, int i)
{
    char text[16];

    return ko_table_has(bench->service.table, key_text(i, text));
}

static void set(const struct store_bench *bench, int i)
{
    char text[16];

    assert_int_equal(ko_table_set(bench->service.table, key_text(i, text), (kolo_bytes){"v", 1}),
                     KOLO_OK);
}

/* Two clients of today, and the key that the second one asks for while the first is busy; what the
 * table holds then. */
static size_t open_with_key(struct store_bench *bench)
{
    store_bench_open_two(bench);
    store_asks(&bench->clients[1], "01" K V);
    return ko_table_used(bench->service.table);
}

/* ---- turns -------------------------------------------------------------------------------- */

/* Lets the busy one have all the turns that it needs, and another between them, whose request is
 * answered each time at once. */
static void take_turns(struct ko_session *busy, struct ko_session *honest)
{
    int turns = 0;

    do {
        assert_int_equal(ko_session_run(busy), KOLO_OK);
        if (!busy->has_more)
            break;
        assert_int_equal(ko_session_wants(busy), 0); /* nothing more is read of it meanwhile */
        store_asks(honest, "01" K V "03" K);
        assert_false(honest->has_more);
        store_gets(honest, V);
    } while (++turns < MOST_TURNS);
    assert_in_range(turns, FEWEST_TURNS, MOST_TURNS - 1);
    assert_true(ko_session_wants(busy) > 0);
}

static void test_many_messages(void **state)
{
    struct store_bench bench;
    struct ko_session *busy = &bench.clients[0];

    (void)state;
    store_bench_open_two(&bench);
    for (int i = 0; i < KEYS; i++) {
        say_byte(busy, 1);
        say_key(busy, i);
        say_number(busy, 0);
    }
    assert_int_equal(ko_session_run(busy), KOLO_OK);
    assert_true(has(&bench, 0));
    assert_false(has(&bench, KEYS - 1));
    take_turns(busy, &bench.clients[1]);
    assert_true(has(&bench, KEYS - 1));
    store_gets(busy, "");
    store_bench_close(&bench);
}

/* A large value is copied in turns, and is the key's at once when the last of them is over; one
 * whose client goes before that leaves nothing behind. */
static void test_large_set(void **state)
{
    enum { LARGE = STORE_TABLE_CAP / 2 };
    char *large = malloc(LARGE);
    struct store_bench bench;
    struct ko_session *busy = &bench.clients[0];
    kolo_bytes value;
    size_t used;

    (void)state;
    memset(large, 'l', LARGE);
    store_bench_open_two(&bench);
    bench.service.budget.cap = 4 * STORE_BUFFERS_CAP;
    store_asks(&bench.clients[1], "01" K V "01" X W);
    used = ko_table_used(bench.service.table);
    for (int i = 0; i < 2; i++) {
        say_byte(busy, 1);
        assert_int_equal(ko_list_put(&busy->in, (kolo_bytes){"/x", 2}), KOLO_OK);
        assert_int_equal(ko_list_put(&busy->in, (kolo_bytes){large, LARGE}), KOLO_OK);
        assert_int_equal(ko_session_run(busy), KOLO_OK);
        assert_true(busy->has_more);
        store_asks(&bench.clients[1], "03" X);
        store_gets(&bench.clients[1], W);
        if (i == 0) {
            ko_session_close(busy);
            assert_int_equal(ko_table_used(bench.service.table), used);
            ko_session_open(busy, &bench.service, NULL);
            store_asks(busy, "00 cef7853c");
        }
    }
    assert_int_equal(store_run(busy), KOLO_OK);
    assert_true(ko_table_get(bench.service.table, (kolo_bytes){"/x", 2}, &value));
    assert_int_equal(value.nbytes, LARGE);
    assert_memory_equal(value.data, large, LARGE);
    store_bench_close(&bench);
    free(large);
}

/* What has so many digits that reading them takes long is no number, whatever they say. */
static void test_long_number(void **state)
{
    enum { LONG = STORE_TABLE_CAP / 4 };
    char *zeros = malloc(LONG);
    struct store_bench bench;
    uint8_t add[64];

    (void)state;
    memset(zeros, '0', LONG);
    store_bench_open_two(&bench);
    assert_int_equal(
        ko_table_set(bench.service.table, (kolo_bytes){"/x", 2}, (kolo_bytes){zeros, 1000}),
        KOLO_OK);
    store_asks(&bench.clients[1], "04" X ONE);
    store_gets(&bench.clients[1], ONE);
    assert_int_equal(
        ko_table_set(bench.service.table, (kolo_bytes){"/x", 2}, (kolo_bytes){zeros, LONG}),
        KOLO_OK);
    assert_int_equal(store_feed(&bench.clients[1], add, wire_unhex("04" X ONE, add)),
                     KOLO_E_INVALID);
    store_bench_close(&bench);
    free(zeros);
}

/* A long queue is gone at once, and its values' memory in turns; also where who has deleted it goes
 * meanwhile. */
static void test_long_queue_is_deleted(void **state)
{
    struct store_bench bench;
    struct ko_session *busy = &bench.clients[0];
    const size_t before = open_with_key(&bench);

    (void)state;
    for (int goes = 0; goes < 2; goes++) {
        for (int i = 0; i < KEYS; i++)
            assert_int_equal(ko_table_queue_push(bench.service.table, (kolo_bytes){"/x", 2},
                                                 (kolo_bytes){"v", 1}),
                             KOLO_OK);
        say_byte(busy, 8);
        assert_int_equal(ko_list_put(&busy->in, (kolo_bytes){"/x", 2}), KOLO_OK);
        assert_int_equal(ko_session_run(busy), KOLO_OK);
        assert_true(busy->has_more);
        store_asks(&bench.clients[1], "10" X);
        store_gets(&bench.clients[1], EMPTY);
        if (goes) {
            assert_false(ko_session_close_some(busy));
            ko_session_close(busy);
            ko_session_open(busy, &bench.service, NULL);
        } else {
            take_turns(busy, &bench.clients[1]);
            store_gets(busy, ONE);
        }
        assert_int_equal(ko_table_used(bench.service.table), before);
    }
    store_bench_close(&bench);
}

static void test_long_multi_set(void **state)
{
    struct store_bench bench;
    struct ko_session *busy = &bench.clients[0];

    (void)state;
    store_bench_open_two(&bench);
    say_list(busy, 0x0b, "v");
    take_turns(busy, &bench.clients[1]);
    for (int i = 0; i < KEYS; i++)
        assert_true(has(&bench, i));
    store_gets(busy, "");
    store_bench_close(&bench);
}

static void test_long_check(void **state)
{
    struct store_bench bench;
    struct ko_session *busy = &bench.clients[0];

    (void)state;
    store_bench_open_two(&bench);
    for (int i = 0; i < KEYS; i++)
        set(&bench, i);
    say_list(busy, 5, NULL);
    take_turns(busy, &bench.clients[1]);
    store_gets(busy, "00");
    ko_table_delete(bench.service.table, (kolo_bytes){"/999", 4});
    say_list(busy, 5, NULL);
    take_turns(busy, &bench.clients[1]);
    store_gets(busy, "01");
    store_bench_close(&bench);
}

/* Keys that come while a wait is only being begun do not end it before its last key is looked at.
 */
static void test_long_wait(void **state)
{
    struct store_bench bench;
    struct ko_session *busy = &bench.clients[0];

    (void)state;
    store_bench_open_two(&bench);
    say_list(busy, 6, NULL);
    while (busy->waiter.nwatched == 0) {
        assert_int_equal(ko_session_run(busy), KOLO_OK);
        assert_true(busy->has_more);
    }
    for (int i = 0; i < KEYS / 2; i++) /* all that are waited for, and others */
        set(&bench, i);
    assert_int_equal(busy->waiter.nmissing, 0);
    take_turns(busy, &bench.clients[1]);
    assert_int_equal(busy->waiter.nmissing, KEYS / 2);
    store_gets(busy, "");
    for (int i = KEYS / 2; i < KEYS; i++)
        set(&bench, i);
    store_gets(busy, "00");
    store_bench_close(&bench);
}

/* A key that is waited for very often in one message is not woken as often when it comes. */
static void test_wait_for_one_key_often(void **state)
{
    struct store_bench bench;
    struct ko_session *busy = &bench.clients[0];

    (void)state;
    store_bench_open_two(&bench);
    say_byte(busy, 6);
    say_number(busy, KEYS);
    for (int i = 0; i < KEYS; i++)
        say_key(busy, i % 2);
    take_turns(busy, &bench.clients[1]);
    assert_int_equal(busy->waiter.nmissing, 2);
    set(&bench, 0);
    store_gets(busy, "");
    set(&bench, 1);
    store_gets(busy, "00");
    store_bench_close(&bench);
}

/* All of them come before it has begun to wait in earnest. */
static void test_wait_is_over_before_it_begins(void **state)
{
    struct store_bench bench;
    struct ko_session *busy = &bench.clients[0];

    (void)state;
    store_bench_open_two(&bench);
    say_list(busy, 6, NULL);
    while (busy->waiter.nwatched == 0)
        assert_int_equal(ko_session_run(busy), KOLO_OK);
    for (int i = 0; i < KEYS; i++)
        set(&bench, i);
    take_turns(busy, &bench.clients[1]);
    store_gets(busy, "00");
    assert_null(busy->waiter.watches);
    store_bench_close(&bench);
}

/* A wait that is being cancelled is not woken, and one whose client has gone takes turns as well.
 */
static void test_long_wait_ends(void **state)
{
    struct store_bench bench;
    struct ko_session *busy = &bench.clients[0];
    const size_t used = open_with_key(&bench);

    (void)state;
    say_list(busy, 6, NULL);
    take_turns(busy, &bench.clients[1]);
    say_byte(busy, 0x0c);
    assert_int_equal(ko_session_run(busy), KOLO_OK);
    assert_true(busy->has_more);
    assert_in_range(busy->waiter.nwatched, 1, KEYS - 1);
    for (int i = 0; i < KEYS; i++)
        set(&bench, i);
    take_turns(busy, &bench.clients[1]);
    store_gets(busy, "01");
    for (int i = 0; i < KEYS; i++) {
        char text[16];

        ko_table_delete(bench.service.table, key_text(i, text));
    }
    say_list(busy, 6, NULL);
    take_turns(busy, &bench.clients[1]);
    assert_false(ko_session_close_some(busy));
    assert_int_equal(ko_buffer_fill(&busy->in), 0); /* its buffers go at once */
    set(&bench, 0);
    assert_false(busy->awake);
    ko_table_delete(bench.service.table, (kolo_bytes){"/0", 2});
    while (!ko_session_close_some(busy))
        continue;
    assert_in_range(ko_table_used(bench.service.table), used, used + (64 << 10)); /* its buckets */
    store_bench_close(&bench);
}

/* Its keys are looked at in turns, waited for, and given in turns. */
static void test_long_multi_get(void **state)
{
    struct store_bench bench;
    struct ko_session *busy = &bench.clients[0];

    (void)state;
    store_bench_open_two(&bench);
    say_list(busy, 0x0a, NULL);
    take_turns(busy, &bench.clients[1]);
    for (int i = 0; i < KEYS - 1; i++)
        set(&bench, i);
    store_gets(busy, "");
    set(&bench, KEYS - 1);
    take_turns(busy, &bench.clients[1]);
    assert_int_equal(ko_buffer_fill(&busy->out), KEYS * 9);
    for (int i = 0; i < KEYS; i++)
        assert_memory_equal(ko_buffer_bytes(&busy->out) + 9 * i, "\1\0\0\0\0\0\0\0v", 9);
    store_bench_close(&bench);
}

/* How often each of n keys is in a list of keys that has been given whole. */
static void count_listed(const struct ko_session *client, int n, int *times)
{
    const uint8_t *at = ko_buffer_bytes(&client->out) + 8;
    const uint64_t listed = ko_wire_u64(ko_buffer_bytes(&client->out));
    char text[16];
    kolo_bytes key;
    int i;

    memset(times, 0, (size_t)n * sizeof *times);
    for (uint64_t k = 0; k < listed; k++) {
        key = ko_list_next(&at);
        snprintf(text, sizeof text, "%.*s", (int)key.nbytes, (const char *)key.data);
        i = atoi(text + 1);
        assert_in_range(i, 0, n - 1);
        times[i]++;
    }
    assert_ptr_equal(at, ko_buffer_bytes(&client->out) + ko_buffer_fill(&client->out));
}

/* Keys are listed in turns: those that are there all the while once, however many come and go
 * meanwhile, and the table grows. */
static void test_long_list(void **state)
{
    enum { ADDED = 40, ALL = KEYS + MOST_TURNS * ADDED };
    static int times[ALL];
    struct store_bench bench;
    struct ko_session *busy = &bench.clients[0];
    char text[16];
    int turns = 0;

    (void)state;
    store_bench_open_two(&bench);
    for (int i = 0; i < KEYS; i++)
        set(&bench, i);
    say_byte(busy, 0x11);
    for (;; turns++) {
        assert_in_range(turns, 0, MOST_TURNS - 1);
        assert_int_equal(ko_session_run(busy), KOLO_OK);
        if (!busy->has_more)
            break;
        assert_true(ko_table_delete(bench.service.table, key_text(KEYS - 1 - turns, text)));
        for (int i = 0; i < ADDED; i++)
            set(&bench, KEYS + turns * ADDED + i);
    }
    assert_true(turns >= FEWEST_TURNS);
    store_gather(busy);
    count_listed(busy, ALL, times);
    for (int i = 0; i < KEYS - turns; i++)
        assert_int_equal(times[i], 1);
    for (int i = KEYS - turns; i < ALL; i++)
        assert_in_range(times[i], 0, 1);
    store_bench_close(&bench);
}

static int count_key(void *context, kolo_bytes key)
{
    (void)key;
    ++*(int *)context;
    return KOLO_OK;
}

/* The table grows by a bucket at a time: no key is lost at any of its sizes, and each is visited
 * once. */
static void test_table_grows(void **state)
{
    struct store_bench bench;
    size_t place = 0;
    int n = 0, err;

    (void)state;
    store_bench_open(&bench);
    for (int i = 0; i < 3 * KEYS; i++) {
        set(&bench, i);
        assert_true(has(&bench, i) && has(&bench, i / 2) && has(&bench, i - i % 64));
    }
    for (int i = 0; i < 3 * KEYS; i++)
        assert_true(has(&bench, i));
    assert_false(has(&bench, 3 * KEYS));
    do
        err = ko_table_visit(bench.service.table, &place, count_key, &n);
    while (err == KO_AGAIN);
    assert_int_equal(err, KOLO_OK);
    assert_int_equal(n, 3 * KEYS);
    store_bench_close(&bench);
}

/* One that goes before its list is whole leaves nothing behind. */
static void test_long_list_ends(void **state)
{
    struct store_bench bench;

    (void)state;
    store_bench_open_two(&bench);
    for (int i = 0; i < KEYS; i++)
        set(&bench, i);
    say_byte(&bench.clients[0], 0x11);
    assert_int_equal(ko_session_run(&bench.clients[0]), KOLO_OK);
    assert_true(ko_buffer_fill(&bench.clients[0].listing.keys) > 0);
    assert_int_equal(ko_buffer_fill(&bench.clients[0].out), 0);
    store_bench_close(&bench);
}

/* ---- a server ----------------------------------------------------------------------------- */

/* What a client has sent before it went is carried out, in turns as well. */
static void test_sends_much_and_goes(void **state)
{
    enum { MESSAGES = 20000, NBYTES = 21 };
    uint8_t one[NBYTES + 1];
    uint8_t *all = malloc((size_t)MESSAGES * NBYTES);
    const ko_deadline deadline = ko_deadline_in(60000);
    int fd = store_dial(state);
    void *value;
    size_t nbytes;

    assert_int_equal(wire_unhex("09" N TWO "6162", one), NBYTES);
    for (size_t i = 0; i < MESSAGES; i++)
        memcpy(all + i * NBYTES, one, NBYTES);
    say(fd, "00 cef7853c");
    assert_int_equal(ko_socket_send_all(fd, all, (size_t)MESSAGES * NBYTES, &deadline), KOLO_OK);
    say(fd, "01" X V);
    close(fd);
    assert_int_equal(kolo_store_wait(*state, (const char *[]){"x"}, 1, 60000), KOLO_OK);
    assert_int_equal(kolo_store_get(*state, "n", &value, &nbytes), KOLO_OK);
    assert_int_equal(nbytes, 2 * MESSAGES);
    kolo_free(value);
    free(all);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many_messages),
        cmocka_unit_test(test_large_set),
        cmocka_unit_test(test_long_number),
        cmocka_unit_test(test_long_queue_is_deleted),
        cmocka_unit_test(test_long_multi_set),
        cmocka_unit_test(test_long_check),
        cmocka_unit_test(test_long_wait),
        cmocka_unit_test(test_wait_for_one_key_often),
        cmocka_unit_test(test_wait_is_over_before_it_begins),
        cmocka_unit_test(test_long_wait_ends),
        cmocka_unit_test(test_long_multi_get),
        cmocka_unit_test(test_long_list),
        cmocka_unit_test(test_table_grows),
        cmocka_unit_test(test_long_list_ends),
        STORE_SERVED(test_sends_much_and_goes),
    };
    return cmocka_run_group_tests_name("store turns", tests, NULL, NULL);
}
