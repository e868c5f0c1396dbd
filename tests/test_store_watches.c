/* SPDX-License-Identifier: MIT
 *
 * Clients that watch keys whose values are large, and many keys: who changes these is served in
 * turns, and so are others, however many look on.
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

enum { LARGE = STORE_TABLE_CAP / 5, KEYS = 1000 };

static const kolo_bytes key = {"/x", 2};

struct watches {
    struct store_bench bench;
    struct ko_session *watcher, *other;
    char bytes[LARGE];
};

static struct watches *new_watches(void)
{
    struct watches *watches = malloc(sizeof *watches);

    assert_non_null(watches);
    store_bench_open(&watches->bench);
    watches->bench.service.budget.cap = 8 * STORE_BUFFERS_CAP;
    watches->bench.service.has_other_half = store_has_other_half;
    watches->watcher = &watches->bench.clients[0];
    watches->other = &watches->bench.clients[1];
    store_asks(watches->watcher, "07" X);
    store_gets(watches->watcher, "03");
    store_asks(watches->other, "00 cef7853c");
    memset(watches->bytes, 'l', sizeof watches->bytes);
    return watches;
}

static void free_watches(struct watches *watches)
{
    store_bench_close(&watches->bench);
    free(watches);
}

static void set(struct watches *watches, kolo_bytes value)
{
    assert_int_equal(ko_table_set(watches->bench.service.table, key, value), KOLO_OK);
}

static void set_large(struct watches *watches)
{
    set(watches, (kolo_bytes){watches->bytes, LARGE});
}

static int turns_of(struct ko_session *session)
{
    int n = 0;

    do {
        assert_int_equal(ko_session_run(session), KOLO_OK);
        n++;
    } while (session->has_more);
    store_gather(session);
    return n;
}

/* What is next of what it gets: nbytes of them, then this. */
static void hears_value(struct watches *watches, const uint8_t **at, size_t nbytes,
                        const char *behind)
{
    const kolo_bytes value = ko_list_next(at);

    assert_int_equal(value.nbytes, nbytes + strlen(behind));
    assert_memory_equal(value.data, watches->bytes, nbytes);
    assert_memory_equal((const char *)value.data + nbytes, behind, strlen(behind));
}

static void hears_change(const uint8_t **at, enum ko_change change)
{
    assert_int_equal(*(*at)++, change);
    assert_memory_equal(ko_list_next(at).data, "/x", 2);
}

static void hears_no_more(struct watches *watches, const uint8_t *at)
{
    struct ko_buffer *out = &watches->watcher->out;

    assert_ptr_equal(at, ko_buffer_bytes(out) + ko_buffer_fill(out));
    ko_buffer_consume(out, ko_buffer_fill(out));
}

/* All changes of a large value come, in order, with the values of their time; nothing is copied by
 * those who make them, and nothing of them stays. */
static void large_values_are_told_in_turns(void **state)
{
    struct watches *watches = new_watches();
    struct ko_table *table = watches->bench.service.table;
    const uint8_t *at;
    size_t before;

    (void)state;
    set(watches, (kolo_bytes){"w", 1});
    before = ko_table_used(table);
    set_large(watches);
    assert_int_equal(ko_table_append(table, key, (kolo_bytes){"y", 1}), KOLO_OK);
    assert_int_equal(ko_table_append(table, key, (kolo_bytes){"z", 1}), KOLO_OK);
    assert_true(ko_table_delete(table, key));
    set(watches, (kolo_bytes){"w", 1});
    assert_int_equal(ko_table_append(table, key, (kolo_bytes){"v", 1}), KOLO_OK);
    set(watches, (kolo_bytes){"w", 1});
    assert_in_range(ko_buffer_fill(&watches->watcher->out), 1, 100); /* of the first w */
    assert_in_range(turns_of(watches->watcher), 10, 200);
    at = ko_buffer_bytes(&watches->watcher->out);
    hears_change(&at, KO_CHANGE_CREATED);
    hears_value(watches, &at, 0, "");
    hears_value(watches, &at, 0, "w");
    hears_change(&at, KO_CHANGE_UPDATED);
    hears_value(watches, &at, 0, "w");
    hears_value(watches, &at, LARGE, "");
    hears_change(&at, KO_CHANGE_UPDATED);
    hears_value(watches, &at, LARGE, "");
    hears_value(watches, &at, LARGE, "y");
    hears_change(&at, KO_CHANGE_UPDATED);
    hears_value(watches, &at, LARGE, "y");
    hears_value(watches, &at, LARGE, "yz");
    hears_change(&at, KO_CHANGE_DELETED);
    hears_value(watches, &at, LARGE, "yz");
    hears_value(watches, &at, 0, "");
    hears_change(&at, KO_CHANGE_CREATED);
    hears_value(watches, &at, 0, "");
    hears_value(watches, &at, 0, "w");
    hears_change(&at, KO_CHANGE_UPDATED);
    hears_value(watches, &at, 0, "w");
    hears_value(watches, &at, 0, "wv");
    hears_change(&at, KO_CHANGE_UPDATED);
    hears_value(watches, &at, 0, "wv");
    hears_value(watches, &at, 0, "w");
    hears_no_more(watches, at);
    assert_int_equal(ko_table_used(table), before);
    free_watches(watches);
}

/* What a client has not read does not move for what comes behind it. */
static void what_is_told_stays_where_it_is(void **state)
{
    struct watches *watches = new_watches();
    struct ko_session *watcher = watches->watcher;
    size_t most = 0, piece;

    (void)state;
    set_large(watches);
    for (int i = 0; i < 8; i++)
        assert_int_equal(ko_table_append(watches->bench.service.table, key, (kolo_bytes){"y", 1}),
                         KOLO_OK);
    do {
        assert_int_equal(ko_session_run(watcher), KOLO_OK);
        most = watcher->out.cap > most ? watcher->out.cap : most;
    } while (watcher->has_more);
    assert_in_range(most, 1, 2 * KO_OUTPUT_PIECE); /* so much memory it has at most */
    assert_true(ko_output_nbytes(watcher) > 17 * LARGE);
    while ((piece = ko_buffer_fill(ko_output_first(watcher))) > 0) {
        assert_in_range(piece, 1, KO_OUTPUT_PIECE);
        ko_output_consume(watcher, piece);
    }
    assert_int_equal(ko_output_nbytes(watcher), 0);
    assert_int_equal(ko_output_room(watcher), 0);
    free_watches(watches);
}

/* Who changes a value that is watched spends of its turn for each who is told. */
static void telling_counts(void **state)
{
    struct watches *watches = new_watches();
    uint8_t one[64];
    int watched, free_of_it;

    (void)state;
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < KEYS; k++) {
            assert_int_equal(ko_buffer_reserve(&watches->other->in, sizeof one), KOLO_OK);
            ko_buffer_put_u8(&watches->other->in, 1);
            ko_buffer_put_bytes(&watches->other->in, key);
            ko_buffer_put_bytes(&watches->other->in, (kolo_bytes){"v", 1});
        }
        *(i == 0 ? &watched : &free_of_it) = turns_of(watches->other);
        if (i == 0) {
            ko_session_close(watches->watcher);
            ko_session_open(watches->watcher, &watches->bench.service, NULL);
        }
    }
    assert_true(watched > free_of_it + free_of_it / 2);
    free_watches(watches);
}

/* One that goes before it has been told all leaves nothing behind. */
static void who_is_told_goes(void **state)
{
    struct watches *watches = new_watches();
    struct ko_table *table = watches->bench.service.table;

    (void)state;
    set_large(watches);
    set(watches, (kolo_bytes){"w", 1});
    assert_int_equal(ko_session_run(watches->watcher), KOLO_OK);
    assert_true(watches->watcher->has_more);
    assert_true(ko_table_used(table) > LARGE);
    ko_session_close(watches->watcher);
    assert_true(ko_table_used(table) < LARGE);
    free_watches(watches);
}

/* Much that one has not read is given back in turns when it goes; others may have that much at
 * once.
 */
static void who_has_not_read_goes(void **state)
{
    struct watches *watches = new_watches();
    struct ko_session *watcher = watches->watcher;
    size_t room, before;
    int turns = 1;

    (void)state;
    set_large(watches);
    for (int i = 0; i < 8; i++)
        assert_int_equal(ko_table_append(watches->bench.service.table, key, (kolo_bytes){"y", 1}),
                         KOLO_OK);
    do
        assert_int_equal(ko_session_run(watcher), KOLO_OK);
    while (watcher->has_more);
    before = room = ko_output_room(watcher);
    assert_true(watches->bench.service.budget.used > before / 2);
    while (!ko_session_close_some(watcher)) {
        assert_int_equal(watches->bench.service.budget.used, 0);
        assert_true(room - ko_output_room(watcher) <= 4 * KO_OUTPUT_PIECE);
        room = ko_output_room(watcher);
        turns++;
    }
    assert_in_range(turns, before / KO_OUTPUT_PIECE / 4, 200);
    free_watches(watches);
}

/* One that watches very many keys goes in turns, and is told nothing meanwhile. */
static void who_watches_many_keys_goes(void **state)
{
    struct watches *watches = new_watches();
    struct ko_table *table = watches->bench.service.table;
    char text[16];
    int turns = 1;
    size_t before = ko_table_used(table);

    (void)state;
    for (int i = 0; i < KEYS; i++) {
        assert_int_equal(ko_buffer_reserve(&watches->watcher->in, 1), KOLO_OK);
        ko_buffer_put_u8(&watches->watcher->in, 7);
        snprintf(text, sizeof text, "/%d", i);
        assert_int_equal(ko_list_put(&watches->watcher->in, (kolo_bytes){text, strlen(text)}),
                         KOLO_OK);
    }
    assert_int_equal(store_run(watches->watcher), KOLO_OK);
    while (!ko_session_close_some(watches->watcher)) {
        for (int i = 0; i < KEYS; i += 99) {
            snprintf(text, sizeof text, "/%d", i);
            ko_table_set(table, (kolo_bytes){text, strlen(text)}, (kolo_bytes){"v", 1});
            ko_table_delete(table, (kolo_bytes){text, strlen(text)});
        }
        assert_int_equal(ko_buffer_fill(&watches->watcher->out), 0);
        turns++;
    }
    assert_in_range(turns, 10, 200);
    assert_in_range(ko_table_used(table), 0, before + (16 << 10)); /* its buckets */
    free_watches(watches);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(large_values_are_told_in_turns),
                                              cmocka_unit_test(what_is_told_stays_where_it_is),
                                              cmocka_unit_test(telling_counts),
                                              cmocka_unit_test(who_is_told_goes),
                                              cmocka_unit_test(who_has_not_read_goes),
                                              cmocka_unit_test(who_watches_many_keys_goes)};

    return cmocka_run_group_tests_name("store watches", tests, NULL, NULL);
}
