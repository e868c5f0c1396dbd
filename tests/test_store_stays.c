/* SPDX-License-Identifier: MIT
 *
 * Long lists, in messages and in replies: what has come of one does not move for what comes behind
 * it, and its memory is given back in turns.
 */
#include "status.h"
#include "store_bench.h"
#include "store_output.h"
#include "store_words.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MULTI_SET = 11, LIST_KEYS = 17 };
enum { LONG = 3 << 20, VALUE = 10000, ITEM = 8 + 2 + 8 + VALUE, MOVED_AT_MOST = 128 << 10 };
enum { FEWEST_TURNS = 5, MOST_TURNS = 100 };

/* A message that sets one key very often. */
static struct ko_buffer long_message(void)
{
    static const char value[VALUE];
    struct ko_buffer said = {0};
    const uint64_t n = LONG / ITEM;

    assert_int_equal(ko_buffer_reserve(&said, 9), KOLO_OK);
    ko_buffer_put_u8(&said, MULTI_SET);
    ko_buffer_put_u64(&said, n);
    for (uint64_t i = 0; i < n; i++) {
        assert_int_equal(ko_list_put(&said, (kolo_bytes){"/x", 2}), KOLO_OK);
        assert_int_equal(ko_list_put(&said, (kolo_bytes){value, VALUE}), KOLO_OK);
    }
    return said;
}

/* Bytes of it come as a server reads them, up to that one; as soon as there are many they stay. */
static void comes(struct ko_session *client, struct ko_buffer *said, size_t end)
{
    const uint8_t *stays = NULL;
    size_t part, n = 0;

    for (; n < end; n += part) {
        part = ko_session_wants(client);
        part = part < end - n ? part : end - n;
        assert_in_range(part, 1, KO_SESSION_READ_MOST);
        assert_int_equal(ko_buffer_reserve(&client->in, part), KOLO_OK);
        memcpy(client->in.data + client->in.tail, ko_buffer_bytes(said) + n, part);
        client->in.tail += part;
        if (n > MOVED_AT_MOST)
            assert_ptr_equal(client->in.data, stays);
        stays = client->in.data;
        do
            assert_int_equal(ko_session_run(client), KOLO_OK);
        while (client->has_more && n + part < ko_buffer_fill(said));
    }
}

static void open_wide(struct store_bench *bench, size_t budget)
{
    store_bench_open_two(bench);
    bench->service.budget.cap = budget;
}

static void a_long_message_stays(void **state)
{
    struct ko_buffer said = long_message();
    struct store_bench bench;
    struct ko_session *busy = &bench.clients[0];
    int turns = 0;

    (void)state;
    open_wide(&bench, 2 * LONG);
    comes(busy, &said, ko_buffer_fill(&said));
    while (ko_buffer_fill(&busy->in) > 0)
        assert_int_equal(ko_session_run(busy), KOLO_OK);
    assert_int_equal(bench.service.budget.used, 0);
    for (; busy->has_more; turns++) {
        store_asks(&bench.clients[1], "10" X);
        store_gets(&bench.clients[1], EMPTY);
        assert_int_equal(ko_session_run(busy), KOLO_OK);
    }
    assert_in_range(turns, FEWEST_TURNS, MOST_TURNS);
    assert_null(busy->in.data);
    store_asks(busy, "0d 01020304");
    store_gets(busy, "01020304");
    store_bench_close(&bench);
    ko_buffer_free(&said);
}

static void who_has_said_half_of_it_goes(void **state)
{
    struct ko_buffer said = long_message();
    struct store_bench bench;
    struct ko_session *busy = &bench.clients[0];
    int turns = 0;

    (void)state;
    open_wide(&bench, 2 * LONG);
    comes(busy, &said, ko_buffer_fill(&said) - 1);
    assert_true(bench.service.budget.used > LONG / 2);
    for (; !ko_session_close_some(busy); turns++)
        assert_int_equal(bench.service.budget.used, 0);
    assert_in_range(turns, FEWEST_TURNS, MOST_TURNS);
    assert_null(busy->in.data);
    store_bench_close(&bench);
    ko_buffer_free(&said);
}

/* So one may need most of the buffers' memory; and more than that is refused. */
static void it_takes_what_it_needs(void **state)
{
    struct ko_buffer said = long_message();
    struct store_bench bench;
    struct ko_session *busy = &bench.clients[0];

    (void)state;
    open_wide(&bench, LONG / 8 * 9);
    comes(busy, &said, ko_buffer_fill(&said));
    assert_int_equal(store_run(busy), KOLO_OK);
    bench.service.budget.cap = LONG / 8 * 7;
    comes(busy, &said, LONG / 16 * 13);
    assert_int_equal(ko_buffer_reserve(&busy->in, LONG / 8), KOLO_E_NOMEM);
    store_bench_close(&bench);
    ko_buffer_free(&said);
}

/* Where there are not so many addresses it moves. */
static void without_addresses_it_moves(void **state)
{
    struct ko_buffer said = long_message();
    struct store_bench bench;

    (void)state;
    open_wide(&bench, SIZE_MAX / 4);
    assert_int_equal(store_feed(&bench.clients[0], ko_buffer_bytes(&said), LONG / 2), KOLO_OK);
    assert_int_equal(store_feed(&bench.clients[0], ko_buffer_bytes(&said) + LONG / 2,
                                ko_buffer_fill(&said) - LONG / 2),
                     KOLO_OK);
    store_gets(&bench.clients[0], "");
    store_bench_close(&bench);
    ko_buffer_free(&said);
}

static void a_long_reply_stays(void **state)
{
    enum { KEYS = 100, KEY = 8000 };
    static char name[KEY];
    struct store_bench bench;
    struct ko_session *busy = &bench.clients[0];
    struct ko_buffer *keys = &busy->listing.keys;
    const uint8_t *stays = NULL;
    size_t fill = 0, nbytes = 0;
    int turns = 0;

    (void)state;
    open_wide(&bench, 2 * LONG);
    memset(name, '/', sizeof name);
    for (int i = 0; i < KEYS; i++) {
        snprintf(name, sizeof name, "/%d", i);
        assert_int_equal(
            ko_table_set(bench.service.table, (kolo_bytes){name, KEY}, (kolo_bytes){"v", 1}),
            KOLO_OK);
    }
    ko_buffer_reserve(&busy->in, 1);
    ko_buffer_put_u8(&busy->in, LIST_KEYS);
    do {
        assert_int_equal(ko_session_run(busy), KOLO_OK);
        if (fill > MOVED_AT_MOST && ko_buffer_fill(keys) > fill)
            assert_ptr_equal(keys->data, stays);
        stays = keys->data;
        fill = ko_buffer_fill(keys);
        turns += ko_buffer_has_rest(keys);
    } while (busy->has_more || busy->deferred);
    nbytes = ko_output_nbytes(busy);
    assert_int_equal(nbytes, 8 + KEYS * (8 + KEY));
    assert_in_range(turns, 2, MOST_TURNS);
    assert_null(keys->data);
    store_bench_close(&bench);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_long_message_stays), cmocka_unit_test(who_has_said_half_of_it_goes),
        cmocka_unit_test(it_takes_what_it_needs), cmocka_unit_test(without_addresses_it_moves),
        cmocka_unit_test(a_long_reply_stays)};

    return cmocka_run_group_tests_name("store stays", tests, NULL, NULL);
}
