/* SPDX-License-Identifier: MIT
 *
 * Appends to large values, and of long tails, and wills: what there is to copy is copied in turns,
 * between which others are served, and seen whole or not at all.
 */
#include "status.h"
#include "store_bench.h"
#include "store_words.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

enum { FEWEST_TURNS = 5, MOST_TURNS = 200 };

static kolo_bytes value_of_x(const struct store_bench *bench)
{
    kolo_bytes value = {0};

    ko_table_get(bench->service.table, (kolo_bytes){"/x", 2}, &value);
    return value;
}

static void says(struct ko_session *client, uint8_t opcode, const char *value, size_t nbytes)
{
    assert_int_equal(ko_buffer_reserve(&client->in, 1), KOLO_OK);
    ko_buffer_put_u8(&client->in, opcode);
    assert_int_equal(ko_list_put(&client->in, (kolo_bytes){"/x", 2}), KOLO_OK);
    assert_int_equal(ko_list_put(&client->in, (kolo_bytes){value, nbytes}), KOLO_OK);
}

/* ---- large values -------------------------------------------------------------------------- */

/* Has the busy one append "v" to a large value of x, which it cannot within a turn. */
static void begin_large_append(struct store_bench *bench, const char *large, size_t nbytes)
{
    struct ko_session *busy = &bench->clients[0];

    store_bench_open_two(bench);
    assert_int_equal(
        ko_table_set(bench->service.table, (kolo_bytes){"/x", 2}, (kolo_bytes){large, nbytes}),
        KOLO_OK);
    says(busy, 9, "v", 1);
    assert_int_equal(ko_session_run(busy), KOLO_OK);
    assert_true(busy->has_more);
    assert_int_equal(value_of_x(bench).nbytes, nbytes);
}

/* A large value moves in turns where it has no room for an append, and others may do with it what
 * they like meanwhile. */
static void test_large_append(void **state)
{
    enum { LARGE = STORE_TABLE_CAP / 4 };
    static const struct {
        const char *meanwhile, *tail;
        bool is_kept;
    } cases[] = {{"", "v", true},
                 {"09" X W, "wv", true},
                 {"01" X W, "wv", false},
                 {"08" X, "v", false},
                 {"08" X "01" X W, "wv", false}};
    char *large = malloc(LARGE);
    struct store_bench bench;
    kolo_bytes value;
    size_t nkept;

    (void)state;
    memset(large, 'l', LARGE);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        begin_large_append(&bench, large, LARGE);
        store_asks(&bench.clients[1], cases[i].meanwhile);
        assert_int_equal(store_run(&bench.clients[1]), KOLO_OK);
        assert_int_equal(store_run(&bench.clients[0]), KOLO_OK);
        value = value_of_x(&bench);
        nkept = cases[i].is_kept ? LARGE : 0;
        assert_int_equal(value.nbytes, nkept + strlen(cases[i].tail));
        assert_memory_equal(value.data, large, nkept);
        assert_memory_equal((const char *)value.data + nkept, cases[i].tail, strlen(cases[i].tail));
        ko_table_delete(bench.service.table, (kolo_bytes){"/x", 2});
        assert_true(ko_table_used(bench.service.table) < 4096);
        store_bench_close(&bench);
    }
    free(large);
}

/* One that goes before its value has moved leaves the value as it was. */
static void test_large_append_ends(void **state)
{
    enum { LARGE = STORE_TABLE_CAP / 4 };
    char *large = calloc(1, LARGE);
    struct store_bench bench;

    (void)state;
    begin_large_append(&bench, large, LARGE);
    ko_session_close(&bench.clients[0]);
    assert_int_equal(value_of_x(&bench).nbytes, LARGE);
    assert_memory_equal(value_of_x(&bench).data, large, LARGE);
    store_bench_close(&bench);
    free(large);
}

/* ---- long tails ---------------------------------------------------------------------------- */

/* A long tail for x, of which the first turns are over. */
static char *begin_long_tail(struct store_bench *bench, uint8_t opcode, size_t nbytes)
{
    struct ko_session *busy = &bench->clients[0];
    char *tail = malloc(nbytes);

    assert_non_null(tail);
    memset(tail, 'l', nbytes);
    bench->service.budget.cap = 4 * STORE_BUFFERS_CAP;
    says(busy, opcode, tail, nbytes);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ko_session_run(busy), KOLO_OK);
        assert_true(busy->has_more);
    }
    return tail;
}

static void x_is(const struct store_bench *bench, const char *front, const char *tail,
                 size_t nbytes, const char *behind)
{
    const kolo_bytes value = value_of_x(bench);

    assert_int_equal(value.nbytes, strlen(front) + nbytes + strlen(behind));
    assert_memory_equal(value.data, front, strlen(front));
    assert_memory_equal((const char *)value.data + strlen(front), tail, nbytes);
    assert_memory_equal((const char *)value.data + strlen(front) + nbytes, behind, strlen(behind));
}

/* It is put behind a value in turns, and seen when the last of them is over; who appends meanwhile
 * comes behind it, and what is done to the key otherwise comes before it. */
static void test_long_tail(void **state)
{
    enum { LONG = STORE_TABLE_CAP / 4 };
    static const struct {
        const char *before, *meanwhile, *front, *behind;
    } cases[] = {{"", "", "", ""},
                 {"", "01" X V, "v", ""},
                 {"", "09" X V, "v", ""},
                 {"01" X W, "", "w", ""},
                 {"01" X W, "01" X V, "v", ""},
                 {"01" X W, "08" X, "", ""},
                 {"01" X W, "08" X "01" X V, "v", ""},
                 {"01" X W, "09" X V, "w", "v"}};
    struct store_bench bench;
    char *tail;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        store_bench_open_two(&bench);
        store_asks(&bench.clients[1], cases[i].before);
        tail = begin_long_tail(&bench, 9, LONG);
        assert_int_equal(value_of_x(&bench).nbytes, *cases[i].before ? 1 : 0);
        store_begins(&bench.clients[1], cases[i].meanwhile);
        assert_int_equal(store_run(&bench.clients[0]), KOLO_OK);
        assert_int_equal(store_run(&bench.clients[1]), KOLO_OK);
        x_is(&bench, cases[i].front, tail, LONG, cases[i].behind);
        ko_table_delete(bench.service.table, (kolo_bytes){"/x", 2});
        assert_true(ko_table_used(bench.service.table) < 4096);
        store_bench_close(&bench);
        free(tail);
    }
}

/* One that goes before its tail is whole leaves the value as it was, and others append to that. */
static void test_long_tail_ends(void **state)
{
    struct store_bench bench;

    (void)state;
    store_bench_open_two(&bench);
    store_asks(&bench.clients[1], "01" X W);
    free(begin_long_tail(&bench, 9, STORE_TABLE_CAP / 4));
    store_begins(&bench.clients[1], "09" X V);
    assert_true(bench.clients[1].has_more);
    ko_session_close(&bench.clients[0]);
    assert_int_equal(store_run(&bench.clients[1]), KOLO_OK);
    x_is(&bench, "w", "", 0, "v");
    store_bench_close(&bench);
}

/* Three at once, for which the value moves more than once. */
static void test_long_tails(void **state)
{
    enum { LONG = STORE_TABLE_CAP / 8 };
    struct store_bench bench;
    char *tail;

    (void)state;
    store_bench_open_two(&bench);
    store_asks(&bench.clients[1], "01" X W);
    tail = begin_long_tail(&bench, 9, LONG);
    for (int c = 1; c < STORE_CLIENTS; c++) {
        store_asks(&bench.clients[2], c == 1 ? "00 cef7853c" : "");
        says(&bench.clients[c], 9, tail, LONG / (size_t)c);
    }
    for (int i = 0; i < MOST_TURNS; i++)
        for (int c = 0; c < STORE_CLIENTS; c++)
            assert_int_equal(ko_session_run(&bench.clients[c]), KOLO_OK);
    assert_int_equal(value_of_x(&bench).nbytes, 1 + 2 * LONG + LONG / 2);
    store_bench_close(&bench);
    free(tail);
}

/* A long will is taken, and carried out, in turns; and so is a short one that makes a large value
 * move. */
static void test_long_will(void **state)
{
    enum { LONG = STORE_TABLE_CAP / 4 };
    struct store_bench bench;
    struct ko_session *busy = &bench.clients[0];
    char *tail;
    int turns;

    (void)state;
    store_bench_open_two(&bench);
    store_asks(&bench.clients[1], "01" X W);
    free(begin_long_tail(&bench, 0xf0, LONG / 2));
    tail = begin_long_tail(&bench, 0xf0, LONG);
    assert_int_equal(store_run(busy), KOLO_OK);
    for (turns = 0; !ko_session_close_some(busy) && value_of_x(&bench).nbytes == 1; turns++)
        continue;
    assert_in_range(turns, FEWEST_TURNS, MOST_TURNS);
    ko_session_close(busy);
    x_is(&bench, "w", tail, LONG, "");
    ko_session_open(busy, &bench.service, NULL);
    store_asks(busy, "00 cef7853c f0" X V);
    for (turns = 0; !ko_session_close_some(busy) && value_of_x(&bench).nbytes == 1 + LONG; turns++)
        continue;
    assert_in_range(turns, FEWEST_TURNS, MOST_TURNS);
    ko_session_close(busy);
    x_is(&bench, "w", tail, LONG, "v");
    store_bench_close(&bench);
    free(tail);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_large_append), cmocka_unit_test(test_large_append_ends),
        cmocka_unit_test(test_long_tail),    cmocka_unit_test(test_long_tail_ends),
        cmocka_unit_test(test_long_tails),   cmocka_unit_test(test_long_will)};

    return cmocka_run_group_tests_name("store tails", tests, NULL, NULL);
}
