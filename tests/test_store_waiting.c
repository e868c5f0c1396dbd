/* SPDX-License-Identifier: MIT
 *
 * What every store must do for those who wait.
 */
#include "status.h"
#include "store_kinds.h"

#include <pthread.h>
#include <stdio.h>

static void test_wait_times_out(void **state)
{
    static const char *const keys[] = {"rank/0", "rank/1", "rank/2", "rank/3"};
    kolo_store *store = store_of(state);
    void *value;
    size_t nbytes;

    assert_int_equal(kolo_store_set(store, "rank/0", text("")), KOLO_OK);
    assert_int_equal(kolo_store_set(store, "rank/2", text("")), KOLO_OK);
    for (int round = 0; round < 3; round++) { /* the stream stays in step */
        assert_int_equal(kolo_store_wait(store, keys, 4, round * 10), KOLO_E_TIMEOUT);
        assert_non_null(strstr(kolo_last_error(), "2 of 4"));
        assert_non_null(strstr(kolo_last_error(), "rank/1"));
        assert_non_null(strstr(kolo_last_error(), "rank/3"));
        assert_null(strstr(kolo_last_error(), "rank/2"));
        assert_non_null(strstr(kolo_last_error(), "the timeout_ms that was given is the limit"));
        assert_int_equal(kolo_store_wait(store, keys, 1, 0), KOLO_OK);
    }
    assert_int_equal(kolo_store_wait(store, NULL, 0, 0), KOLO_OK);
    kolo_store_set_timeout(store, 20);
    assert_int_equal(kolo_store_get(store, "rank/1", &value, &nbytes), KOLO_E_TIMEOUT);
    assert_non_null(strstr(kolo_last_error(), "20 ms"));
    assert_int_equal(kolo_store_wait(store, keys + 1, 1, -1), KOLO_E_TIMEOUT);
    assert_non_null(strstr(kolo_last_error(), "the timeout_ms that was given is the limit"));
    kolo_store_set_timeout(store, 60000);
    assert_holds(store, "rank/2", "");
}

struct helper {
    kolo_store *store;
    int err;
    pthread_t thread;
};

static void *set_later(void *argument)
{
    struct helper *helper = argument;

    usleep(20000);
    helper->err = kolo_store_set(helper->store, "late/1", text("one"));
    usleep(20000);
    if (!helper->err)
        helper->err = kolo_store_add(helper->store, "late/2", 2, NULL);
    if (!helper->err)
        helper->err = kolo_store_append(helper->store, "late/3", text("three"));
    return NULL;
}

static void test_wait_is_woken(void **state)
{
    static const char *const keys[] = {"late/1", "late/2", "late/3", "late/1"};
    kolo_store *store = store_of(state);
    struct helper helper = {.err = -1};

    assert_int_equal(ko_store_clone(store, &helper.store), KOLO_OK);
    assert_int_equal(pthread_create(&helper.thread, NULL, set_later, &helper), 0);
    assert_holds(store, "late/1", "one");
    assert_int_equal(kolo_store_wait(store, keys, 4, 60000), KOLO_OK);
    pthread_join(helper.thread, NULL);
    assert_int_equal(helper.err, KOLO_OK);
    assert_holds(store, "late/2", "2");
    kolo_store_close(helper.store);
}

static void *compare_set_later(void *argument)
{
    struct helper *helper = argument;
    void *value;
    size_t nbytes;

    usleep(20000);
    helper->err =
        kolo_store_compare_set(helper->store, "cas", text("no"), text("never"), &value, &nbytes);
    if (!helper->err)
        kolo_free(value);
    usleep(20000);
    if (!helper->err)
        helper->err =
            kolo_store_compare_set(helper->store, "cas", text(""), text("yes"), &value, &nbytes);
    if (!helper->err)
        kolo_free(value);
    return NULL;
}

/* A compare_set that stores nothing wakes nobody, one that stores does. */
static void test_compare_set_wakes(void **state)
{
    struct helper helper = {.err = -1};

    assert_int_equal(ko_store_clone(store_of(state), &helper.store), KOLO_OK);
    assert_int_equal(pthread_create(&helper.thread, NULL, compare_set_later, &helper), 0);
    assert_holds(store_of(state), "cas", "yes");
    pthread_join(helper.thread, NULL);
    assert_int_equal(helper.err, KOLO_OK);
    kolo_store_close(helper.store);
}

/* Two handles that count each other up: as many wakes as there are. */
static void *ping_pong(void *argument)
{
    struct helper *helper = argument;
    char mine[32];
    char theirs[32];
    const char *keys[] = {theirs};

    for (int i = 0; i < 200 && helper->err <= 0; i++) {
        snprintf(mine, sizeof mine, "pong/%d", i);
        snprintf(theirs, sizeof theirs, "ping/%d", i);
        helper->err = kolo_store_wait(helper->store, keys, 1, 60000);
        if (!helper->err)
            helper->err = kolo_store_set(helper->store, mine, text("x"));
    }
    return NULL;
}

static void test_ping_pong(void **state)
{
    struct helper helper = {.err = -1};
    char mine[32];
    char theirs[32];

    assert_int_equal(ko_store_clone(store_of(state), &helper.store), KOLO_OK);
    assert_int_equal(pthread_create(&helper.thread, NULL, ping_pong, &helper), 0);
    for (int i = 0; i < 200; i++) {
        snprintf(mine, sizeof mine, "ping/%d", i);
        snprintf(theirs, sizeof theirs, "pong/%d", i);
        assert_int_equal(kolo_store_set(store_of(state), mine, text("x")), KOLO_OK);
        assert_holds(store_of(state), theirs, "x");
    }
    pthread_join(helper.thread, NULL);
    assert_int_equal(helper.err, KOLO_OK);
    kolo_store_close(helper.store);
}

static void *wait_for_ever(void *argument)
{
    static const char *const keys[] = {"never"};
    struct helper *helper = argument;

    helper->err = kolo_store_wait(helper->store, keys, 1, 60000);
    return NULL;
}

/* Closing the last handle ends the calls that are inside. */
static void test_close_wakes(void **state)
{
    struct fixture *fixture = *state;
    kolo_store *store = fixture->store;
    struct helper helper = {.store = store, .err = -1};

    ko_store_enter(store); /* should the thread be late, it still finds a store, a stopped one */
    assert_int_equal(pthread_create(&helper.thread, NULL, wait_for_ever, &helper), 0);
    usleep(50000);
    kolo_store_close(fixture->base);
    fixture->base = NULL;
    kolo_store_close(fixture->store);
    fixture->store = NULL;
    pthread_join(helper.thread, NULL);
    ko_store_leave(store);
    assert_int_equal(helper.err, KOLO_E_ABORTED);
}

/* The list of missing keys ends where the sentence would become too long. */
static void test_long_list(void **state)
{
    enum { N = 2000 };
    char names[N][40];
    const char *keys[N];

    for (int i = 0; i < N; i++) {
        snprintf(names[i], sizeof names[i], "a/rather/long/name/of/rank/%d", i);
        keys[i] = names[i];
    }
    names[0][0] = '\n';
    assert_int_equal(kolo_store_wait(store_of(state), keys, N, 1), KOLO_E_TIMEOUT);
    assert_non_null(strstr(kolo_last_error(), "2000 of 2000"));
    assert_non_null(strstr(kolo_last_error(), "?/rather"));
    assert_non_null(strstr(kolo_last_error(), "more (has every rank started"));
}

#define TESTS(X)         \
    X(wait_times_out)    \
    X(wait_is_woken)     \
    X(compare_set_wakes) \
    X(ping_pong)         \
    X(close_wakes)

int main(void)
{
    static const struct CMUnitTest tests[] = {OVER_ALL_KINDS(TESTS) LOCAL(long_list)
                                                  TCP(long_list)};

    return cmocka_run_group_tests_name("store waiting", tests, NULL, NULL);
}
