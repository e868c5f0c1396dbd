/* SPDX-License-Identifier: MIT
 *
 * Every step that the system may refuse is refused once: memory, sockets, reads, writes, threads.
 * Each time there must be a clean error or none, no leak, no hang, and the next try must work.
 */
#include "fault.h"
#include "status.h"
#include "store.h"
#include "store_session.h"
#include "store_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

typedef int open_store(kolo_store **store);

static int open_tcp(kolo_store **store)
{
    return kolo_store_open_tcp("127.0.0.1", 0, 1, 20000, store);
}

/* A get that must give expected. */
static int get(kolo_store *store, const char *key, const char *expected)
{
    void *value;
    size_t nbytes;
    int err = kolo_store_get(store, key, &value, &nbytes);

    if (err)
        return err;
    err = nbytes == strlen(expected) && !memcmp(value, expected, nbytes) ? KOLO_OK : -1;
    kolo_free(value);
    return err;
}

/* Some of everything. Returns the first error, -1 for a wrong answer. */
static int use(kolo_store *store)
{
    static const char *const keys[] = {"k", "n"};
    kolo_store *prefix = NULL;
    kolo_store *clone = NULL;
    void *value;
    size_t nbytes;
    int there;
    int err = kolo_store_set(store, "k", text("v"));

    if (!err)
        err = get(store, "k", "v");
    if (!err)
        err = kolo_store_delete(store, "n", NULL);
    if (!err)
        err = kolo_store_add(store, "n", 2, NULL);
    if (!err)
        err = kolo_store_append(store, "n", text("1"));
    if (!err)
        err = get(store, "n", "21");
    if (!err)
        err = kolo_store_wait(store, keys, 2, -1);
    if (!err)
        err = kolo_store_check(store, keys, 2, &there);
    if (!err)
        err = kolo_store_compare_set(store, "k", text("v"), text("w"), &value, &nbytes);
    if (!err)
        kolo_free(value);
    if (!err)
        err = kolo_store_open_prefix(store, "p", &prefix);
    if (!err)
        err = ko_store_clone(prefix, &clone);
    if (!err)
        err = kolo_store_set(clone, "q", text("r"));
    if (!err)
        err = get(store, "p/q", "r");
    kolo_store_close(clone);
    kolo_store_close(prefix);
    return err;
}

static bool is_clean(int err)
{
    return err == KOLO_OK || (err > 0 && kolo_last_error()[0]);
}

/* Refuses the nth passage for n = 1, 2, ... until a run has fewer. */
static void sweep(enum ko_fault_point point, open_store *open, int longest)
{
    kolo_store *store;
    int failed = 0;
    int err;

    for (int n = 1; n <= longest; n++) {
        store = NULL;
        ko_fault_arm(point, n);
        err = open(&store);
        assert_true(is_clean(err));
        assert_true(!store == !!err);
        if (!err)
            err = use(store);
        assert_true(is_clean(err));
        failed += err != KOLO_OK;
        ko_fault_arm(point, 0);
        if (store)
            assert_int_equal(use(store), KOLO_OK);
        kolo_store_close(store);
    }
    assert_true(failed > 0);
}

static void test_local(void **state)
{
    (void)state;
    sweep(KO_FAULT_ALLOC, kolo_store_open_local, 60);
}

static void test_tcp_alloc(void **state)
{
    (void)state;
    sweep(KO_FAULT_ALLOC, open_tcp, 80);
}

static void test_tcp_send(void **state)
{
    (void)state;
    sweep(KO_FAULT_SEND, open_tcp, 50);
}

static void test_tcp_recv(void **state)
{
    (void)state;
    sweep(KO_FAULT_RECV, open_tcp, 60);
}

static void test_tcp_socket(void **state)
{
    (void)state;
    sweep(KO_FAULT_SOCKET, open_tcp, 7);
}

static void test_tcp_thread(void **state)
{
    (void)state;
    sweep(KO_FAULT_THREAD, open_tcp, 2);
}

/* A time-out's text needs memory and the store's help; without them it still is a time-out. */
static void test_while_timing_out(void **state)
{
    static const enum ko_fault_point points[] = {KO_FAULT_ALLOC, KO_FAULT_SEND, KO_FAULT_RECV};
    static const char *const keys[] = {"k", "never"};
    kolo_store *store;
    int err;

    (void)state;
    assert_int_equal(open_tcp(&store), KOLO_OK);
    for (size_t i = 0; i < sizeof points / sizeof *points; i++)
        for (int n = 1; n <= 12; n++) {
            assert_int_equal(kolo_store_set(store, "k", text("v")), KOLO_OK);
            ko_fault_arm(points[i], n);
            err = kolo_store_wait(store, keys, 2, 5);
            assert_true(err != KOLO_OK && is_clean(err));
            ko_fault_arm(points[i], 0);
            assert_int_equal(use(store), KOLO_OK);
        }
    kolo_store_close(store);
}

/* ---- caps --------------------------------------------------------------------------------- */

static void test_table_is_full(void **state)
{
    enum { CAP = 64 << 10 };
    static char big[CAP];
    struct ko_waiter waiter = {0};
    struct ko_table *table;
    kolo_bytes keys[2000];
    char names[2000][16];
    kolo_bytes value;
    size_t used;

    (void)state;
    assert_int_equal(ko_table_open(16, &table), KOLO_E_NOMEM);
    assert_int_equal(ko_table_open(CAP, &table), KOLO_OK);
    assert_int_equal(ko_table_set(table, text("k"), text("v")), KOLO_OK);
    used = ko_table_used(table);
    assert_int_equal(ko_table_set(table, text("k"), (kolo_bytes){big, CAP}), KOLO_E_NOMEM);
    assert_non_null(strstr(kolo_last_error(), "full"));
    assert_true(ko_table_get(table, text("k"), &value));
    assert_memory_equal(value.data, "v", 1);
    for (int i = 0; i < 2000; i++) {
        snprintf(names[i], sizeof names[i], "%d", i);
        keys[i] = text(names[i]);
    }
    assert_int_equal(ko_table_wait(table, keys, 2000, &waiter), KOLO_E_NOMEM);
    assert_int_equal(ko_table_wait(table, keys, 900, &waiter), KOLO_E_NOMEM);
    assert_int_equal(ko_table_wait(table, keys, 50, &waiter), KO_AGAIN);
    ko_table_unwait(table, &waiter);
    ko_table_unwait(table, &waiter);
    assert_true(ko_table_delete(table, text("k")));
    assert_false(ko_table_delete(table, text("k")));
    assert_true(ko_table_used(table) < CAP / 2 && used < CAP);
    assert_int_equal(ko_table_count(table), 0);
    ko_table_free(table);
    ko_table_free(NULL);
}

static void test_append_is_bounded(void **state)
{
    static char half[4 << 20];
    struct ko_table *table;
    kolo_bytes value;

    (void)state;
    assert_int_equal(ko_table_open(SIZE_MAX, &table), KOLO_OK);
    for (int i = 0; i < 2; i++)
        assert_int_equal(ko_table_append(table, text("k"), (kolo_bytes){half, sizeof half}),
                         KOLO_OK);
    assert_int_equal(ko_table_append(table, text("k"), text("x")), KOLO_E_INVALID);
    assert_true(ko_table_get(table, text("k"), &value));
    assert_int_equal(value.nbytes, KO_STORE_VALUE_MAX);
    ko_table_free(table);
}

/* Many small appends to a large value move it a few times, and where the cap leaves no room for
 * that, take no more than they need. */
static void test_appends_move_seldom(void **state)
{
    enum { HELD = 256 << 10, APPENDS = 2000, CAP = HELD + (8 << 10) };
    static const size_t caps[] = {SIZE_MAX, CAP};
    static char large[HELD];
    struct ko_table *table;
    kolo_bytes value;
    const void *at;
    int moves;

    (void)state;
    for (size_t c = 0; c < sizeof caps / sizeof *caps; c++) {
        moves = 0;
        at = NULL;
        assert_int_equal(ko_table_open(caps[c], &table), KOLO_OK);
        assert_int_equal(ko_table_set(table, text("k"), (kolo_bytes){large, HELD}), KOLO_OK);
        for (int i = 0; i < APPENDS; i++) {
            assert_int_equal(ko_table_append(table, text("k"), text(i % 2 ? "y" : "x")), KOLO_OK);
            assert_true(ko_table_get(table, text("k"), &value));
            moves += value.data != at;
            at = value.data;
        }
        assert_int_equal(value.nbytes, HELD + APPENDS);
        assert_memory_equal((const char *)value.data + HELD + APPENDS - 4, "xyxy", 4);
        if (caps[c] == SIZE_MAX)
            assert_int_equal(moves, 1);
        assert_true(ko_table_delete(table, text("k")));
        assert_true(ko_table_used(table) < 8 << 10);
        ko_table_free(table);
    }
}

static void test_budget(void **state)
{
    struct ko_budget budget = {.cap = 100 << 10};
    struct ko_buffer one = {.budget = &budget};
    struct ko_buffer two = {.budget = &budget};

    (void)state;
    assert_int_equal(ko_buffer_reserve(&one, 64 << 10), KOLO_OK);
    assert_int_equal(budget.used, 48 << 10); /* 16 KiB are free */
    assert_int_equal(ko_buffer_reserve(&two, 128 << 10), KOLO_E_NOMEM);
    assert_int_equal(ko_buffer_reserve(&two, 16 << 10), KOLO_OK);
    ko_fault_arm(KO_FAULT_ALLOC, 1);
    assert_int_equal(ko_buffer_reserve(&two, 64 << 10), KOLO_E_NOMEM);
    assert_int_equal(budget.used, 48 << 10);
    ko_buffer_put_u64(&two, 1);
    ko_buffer_put_u64(&two, 2);
    ko_buffer_consume(&two, 8);
    assert_int_equal(ko_buffer_reserve(&two, (16 << 10) - 12), KOLO_OK); /* by moving */
    assert_int_equal(two.cap, 16 << 10);
    assert_int_equal(ko_wire_u64(ko_buffer_bytes(&two)), 2);
    ko_buffer_free(&one);
    ko_buffer_free(&two);
    assert_int_equal(budget.used, 0);
}

/* What is expected counts as used only as it comes, and what has come stays where it is. */
static void test_expected(void **state)
{
    enum { COME = 64 << 10, WHOLE = 1 << 20, PART = 32 << 10 };
    struct ko_budget budget = {.cap = WHOLE + COME};
    struct ko_buffer one = {.budget = &budget};
    struct ko_buffer two = {.budget = &budget};
    const uint8_t *at;

    (void)state;
    assert_int_equal(ko_buffer_reserve(&one, COME), KOLO_OK);
    one.tail = COME;
    ko_fault_arm(KO_FAULT_ALLOC, 1);
    ko_buffer_expect(&one, WHOLE - COME);
    assert_int_equal(budget.expected, 0); /* no memory: it does without */
    ko_buffer_expect(&one, WHOLE - COME);
    assert_int_equal(budget.expected, WHOLE - COME);
    assert_int_equal(budget.used, COME - KO_BUFFER_FREE_PART);
    at = one.data;
    while (one.tail < WHOLE) {
        assert_int_equal(ko_buffer_reserve(&one, PART), KOLO_OK);
        assert_ptr_equal(one.data, at);
        one.tail += PART;
    }
    assert_int_equal(budget.used, WHOLE - KO_BUFFER_FREE_PART);
    ko_buffer_expect(&two, WHOLE); /* more than there is for all */
    assert_null(two.data);
    ko_buffer_consume(&one, WHOLE);
    assert_int_equal(budget.expected, 0);
    assert_int_equal(budget.used, 0);
    ko_buffer_free(&two);
}

/* An append whose value cannot move for want of memory changes nothing. */
static void test_append_without_memory(void **state)
{
    enum { HELD = 256 << 10 };
    static char large[HELD];
    struct ko_table *table;
    kolo_bytes value;
    size_t used;

    (void)state;
    assert_int_equal(ko_table_open(SIZE_MAX, &table), KOLO_OK);
    assert_int_equal(ko_table_set(table, text("k"), (kolo_bytes){large, HELD}), KOLO_OK);
    used = ko_table_used(table);
    for (int n = 1; n <= 2; n++) {
        ko_fault_arm(KO_FAULT_ALLOC, n);
        assert_int_equal(ko_table_append(table, text("k"), text("x")), KOLO_E_NOMEM);
        ko_fault_arm(KO_FAULT_ALLOC, 0);
        assert_int_equal(ko_table_used(table), used);
        assert_true(ko_table_get(table, text("k"), &value));
        assert_int_equal(value.nbytes, HELD);
    }
    assert_int_equal(ko_table_append(table, text("k"), text("x")), KOLO_OK);
    ko_table_free(table);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_local),
        cmocka_unit_test(test_tcp_alloc),
        cmocka_unit_test(test_tcp_send),
        cmocka_unit_test(test_tcp_recv),
        cmocka_unit_test(test_tcp_socket),
        cmocka_unit_test(test_tcp_thread),
        cmocka_unit_test(test_while_timing_out),
        cmocka_unit_test(test_table_is_full),
        cmocka_unit_test(test_append_is_bounded),
        cmocka_unit_test(test_appends_move_seldom),
        cmocka_unit_test(test_append_without_memory),
        cmocka_unit_test(test_expected),
        cmocka_unit_test(test_budget),
    };
    return cmocka_run_group_tests_name("store faults", tests, NULL, NULL);
}
