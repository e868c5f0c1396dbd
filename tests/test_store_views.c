/* SPDX-License-Identifier: MIT
 *
 * Large values that are given, and put into queues, in turns: others do with the keys meanwhile
 * what they like.
 */
#include "status.h"
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

enum {
    LARGE = STORE_TABLE_CAP / 5,
    MOST = STORE_TABLE_CAP / 10 * 7,
    SET = 1,
    COMPARE_SET = 2,
    PUSH = 14
};

struct views {
    struct store_bench bench;
    struct ko_session *busy, *other;
    char bytes[MOST];
};

static struct views *new_views(void)
{
    struct views *views = malloc(sizeof *views);

    assert_non_null(views);
    store_bench_open_two(&views->bench);
    views->bench.service.budget.cap = 8 * STORE_BUFFERS_CAP;
    views->busy = &views->bench.clients[0];
    views->other = &views->bench.clients[1];
    memset(views->bytes, 'l', sizeof views->bytes);
    return views;
}

static void free_views(struct views *views)
{
    store_bench_close(&views->bench);
    free(views);
}

static size_t used(const struct views *views)
{
    return ko_table_used(views->bench.service.table);
}

/* Says that x is to have, or its queue, a value of so many bytes. */
static void say_value(struct views *views, struct ko_session *client, uint8_t opcode, size_t nbytes)
{
    assert_int_equal(ko_buffer_reserve(&client->in, 1), KOLO_OK);
    ko_buffer_put_u8(&client->in, opcode);
    assert_int_equal(ko_list_put(&client->in, (kolo_bytes){"/x", 2}), KOLO_OK);
    assert_int_equal(ko_list_put(&client->in, (kolo_bytes){views->bytes, nbytes}), KOLO_OK);
}

/* Has the client begin what it has said, or this: what takes more than a turn. */
static void begin(struct ko_session *client, const char *hex)
{
    store_begins(client, hex);
    assert_true(client->has_more);
}

static void end(struct ko_session *client)
{
    assert_int_equal(store_run(client), KOLO_OK);
}

/* Its answer ends with that value. */
static void gets_value(const struct views *views, struct ko_session *client, size_t nbytes)
{
    const size_t fill = ko_buffer_fill(&client->out);
    const uint8_t *at = ko_buffer_bytes(&client->out);

    assert_true(fill >= 8 + nbytes);
    at += fill - nbytes;
    assert_int_equal(ko_wire_u64(at - 8), nbytes);
    assert_memory_equal(at, views->bytes, nbytes);
    ko_buffer_consume(&client->out, fill);
}

static void leave_and_come_again(struct views *views)
{
    ko_session_close(views->busy);
    ko_session_open(views->busy, &views->bench.service, NULL);
    store_asks(views->busy, "00 cef7853c");
}

/* It is given as it was when the first part was, to several who read it at once; then nothing of it
 * is kept, nor where its reader goes before. */
static void a_value_is_given_as_it_was(void **state)
{
    static const char *const meanwhile[] = {"01" X W, "08" X "01" X W, "09" X W "01" X W};

    (void)state;
    for (size_t i = 0; i < 2 * sizeof meanwhile / sizeof *meanwhile; i++) {
        struct views *views = new_views();
        size_t before;

        store_asks(views->other, "01" X W);
        before = used(views);
        say_value(views, views->other, SET, LARGE);
        end(views->other);
        begin(views->busy, "03" X);
        begin(views->other, "03" X);
        assert_true(ko_buffer_fill(&views->busy->out) < LARGE);
        end(views->other);
        gets_value(views, views->other, LARGE);
        store_asks(views->other, meanwhile[i / 2]);
        ko_buffer_consume(&views->other->out, ko_buffer_fill(&views->other->out));
        store_asks(views->other, "03" X);
        store_gets(views->other, W);
        assert_true(used(views) > before + LARGE);
        if (i % 2) {
            leave_and_come_again(views);
        } else {
            end(views->busy);
            gets_value(views, views->busy, LARGE);
        }
        assert_int_equal(used(views), before);
        free_views(views);
    }
}

/* What is appended to it while it is given is not given, and does not move it meanwhile. */
static void what_is_appended_comes_too_late(void **state)
{
    struct views *views = new_views();

    (void)state;
    say_value(views, views->other, SET, LARGE);
    end(views->other);
    store_asks(views->other, "09" X V); /* so that there is room behind it */
    views->bytes[LARGE] = 'v';
    begin(views->busy, "03" X);
    store_asks(views->other, "09" X W);
    end(views->busy);
    gets_value(views, views->busy, LARGE + 1);
    views->bytes[LARGE + 1] = 'w';
    begin(views->busy, "0a" ONE X);
    end(views->busy);
    gets_value(views, views->busy, LARGE + 2);
    free_views(views);
}

/* A compare-and-set that finds another value answers with that. */
static void what_was_compared_is_given(void **state)
{
    struct views *views = new_views();

    (void)state;
    say_value(views, views->other, SET, LARGE);
    end(views->other);
    begin(views->busy, "02" X V W);
    store_asks(views->other, "01" X W);
    end(views->busy);
    gets_value(views, views->busy, LARGE);
    store_asks(views->busy, "02" X W V);
    store_gets(views->busy, V);
    free_views(views);
}

/* Large values are compared, and exchanged, in turns; what comes between counts. */
static void large_values_are_exchanged(void **state)
{
    static const struct {
        const char *meanwhile;
        bool is_equal, is_large;
    } cases[] = {{"", true, true},        {"01" X W, false, false},
                 {"08" X, false, true},   {"08" X "01" X W, false, false},
                 {"09" X W, false, true}, {"03" X, true, true}};

    (void)state;
    for (size_t i = 0; i < 3 * sizeof cases / sizeof *cases; i++) {
        struct views *views = new_views();
        struct ko_session *busy = views->busy;
        kolo_bytes value = {0};

        say_value(views, views->other, SET, LARGE);
        end(views->other);
        say_value(views, busy, COMPARE_SET, LARGE);
        assert_int_equal(ko_list_put(&busy->in, (kolo_bytes){views->bytes, MOST / 2}), KOLO_OK);
        begin(busy, "");
        for (int turns = 0; turns < (int)(i % 3 * 7); turns++)
            assert_int_equal(ko_session_run(busy), KOLO_OK);
        assert_true(busy->has_more);
        store_asks(views->other, cases[i / 3].meanwhile);
        end(busy);
        ko_table_get(views->bench.service.table, (kolo_bytes){"/x", 2}, &value);
        assert_int_equal(value.nbytes == MOST / 2, cases[i / 3].is_equal);
        if (!cases[i / 3].is_large)
            store_gets(busy, W);
        else if (value.nbytes == LARGE + 1)
            assert_int_equal(ko_buffer_fill(&busy->out), 8 + LARGE + 1);
        else
            gets_value(views, busy, cases[i / 3].is_equal ? MOST / 2 : LARGE);
        free_views(views);
    }
}

/* Where there is no room for it twice, an append to what is being given finds the store full. */
static void what_is_given_does_not_move(void **state)
{
    struct views *views = new_views();
    uint8_t bytes[WIRE_LONGEST];

    (void)state;
    say_value(views, views->other, SET, MOST);
    end(views->other);
    begin(views->busy, "03" X);
    assert_int_equal(store_feed(views->other, bytes, wire_unhex("09" X W, bytes)), KOLO_E_NOMEM);
    end(views->busy);
    gets_value(views, views->busy, MOST);
    free_views(views);
}

/* Without memory for what keeps it, it is given at once. */
static void a_full_store_gives(void **state)
{
    struct views *views = new_views();
    struct ko_table *table = views->bench.service.table;
    char *rest;
    size_t nrest;

    (void)state;
    say_value(views, views->other, SET, LARGE);
    end(views->other);
    nrest = STORE_TABLE_CAP - 1 - used(views);
    rest = ko_table_make(table, nrest);
    assert_non_null(rest);
    store_asks(views->busy, "03" X);
    gets_value(views, views->busy, LARGE);
    ko_table_unmake(table, rest, nrest);
    free_views(views);
}

/* It goes into a queue in turns, and out of it, and is its popper's from the first of these. */
static void queues_take_turns(void **state)
{
    struct views *views = new_views();
    size_t before;

    (void)state;
    store_asks(views->other, "0e" X W);
    before = used(views);
    for (int i = 0; i < 2; i++) {
        say_value(views, views->busy, PUSH, LARGE);
        begin(views->busy, "");
        store_asks(views->other, "10" X);
        store_gets(views->other, ONE);
        end(views->busy);
        store_asks(views->other, "0f" X "10" X);
        store_gets(views->other, TWO W ONE);
        begin(views->busy, "0f" X);
        store_asks(views->other, "10" X);
        store_gets(views->other, EMPTY);
        store_asks(views->other, "0e" X W);
        if (i) {
            leave_and_come_again(views);
        } else {
            end(views->busy);
            assert_int_equal(ko_wire_u64(ko_buffer_bytes(&views->busy->out)), 1);
            gets_value(views, views->busy, LARGE);
        }
        assert_int_equal(used(views), before);
    }
    free_views(views);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_value_is_given_as_it_was),
        cmocka_unit_test(what_is_appended_comes_too_late),
        cmocka_unit_test(what_was_compared_is_given),
        cmocka_unit_test(large_values_are_exchanged),
        cmocka_unit_test(what_is_given_does_not_move),
        cmocka_unit_test(a_full_store_gives),
        cmocka_unit_test(queues_take_turns),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
