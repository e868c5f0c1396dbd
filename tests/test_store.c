/* SPDX-License-Identifier: MIT
 *
 * What every store must do with keys and values.
 */
#include "status.h"
#include "store_kinds.h"

#include <stdio.h>

static void test_set_get(void **state)
{
    kolo_store *store = store_of(state);
    char bytes[256];
    void *value;
    size_t nbytes;

    assert_int_equal(kolo_store_set(store, "k", text("v")), KOLO_OK);
    assert_holds(store, "k", "v");
    assert_int_equal(kolo_store_set(store, "k", text("another value")), KOLO_OK);
    assert_holds(store, "k", "another value");
    assert_int_equal(kolo_store_set(store, "k", (kolo_bytes){NULL, 0}), KOLO_OK);
    assert_holds(store, "k", "");
    for (int i = 0; i < 256; i++)
        bytes[i] = (char)i;
    assert_int_equal(kolo_store_set(store, "a/b \xc3\xa9", (kolo_bytes){bytes, 256}), KOLO_OK);
    assert_int_equal(kolo_store_get(store, "a/b \xc3\xa9", &value, &nbytes), KOLO_OK);
    assert_int_equal(nbytes, 256);
    assert_memory_equal(value, bytes, 256);
    kolo_free(value);
}

static void test_add(void **state)
{
    kolo_store *store = store_of(state);
    int64_t sum = 0;

    assert_int_equal(kolo_store_add(store, "n", 5, &sum), KOLO_OK);
    assert_int_equal(sum, 5);
    assert_int_equal(kolo_store_add(store, "n", -7, &sum), KOLO_OK);
    assert_int_equal(sum, -2);
    assert_int_equal(kolo_store_add(store, "n", 0, NULL), KOLO_OK);
    assert_holds(store, "n", "-2");
    assert_int_equal(kolo_store_set(store, "n", text("41")), KOLO_OK);
    assert_int_equal(kolo_store_add(store, "n", 1, &sum), KOLO_OK);
    assert_int_equal(sum, 42);
    assert_int_equal(kolo_store_add(store, "least", INT64_MIN, &sum), KOLO_OK);
    assert_true(sum == INT64_MIN);
    assert_holds(store, "least", "-9223372036854775808");
    assert_int_equal(kolo_store_add(store, "least", INT64_MAX, &sum), KOLO_OK);
    assert_int_equal(sum, -1);
}

static void test_add_not_a_number(void **state)
{
    static const char *const wrong[] = {"",
                                        "x",
                                        "-",
                                        "1x",
                                        " 1",
                                        "+1",
                                        "1.0",
                                        "--1",
                                        "9223372036854775808",
                                        "-9223372036854775809"};
    kolo_store *store = store_of(state);
    int64_t sum = 77;

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(kolo_store_set(store, "n", text(wrong[i])), KOLO_OK);
        assert_int_equal(kolo_store_add(store, "n", 1, &sum), KOLO_E_INVALID);
        assert_non_null(strstr(kolo_last_error(), "decimal number"));
        assert_int_equal(sum, 77);
        assert_holds(store, "n", wrong[i]);
    }
    assert_int_equal(kolo_store_set(store, "n", text("9223372036854775807")), KOLO_OK);
    assert_int_equal(kolo_store_add(store, "n", 1, &sum), KOLO_E_INVALID);
    assert_holds(store, "n", "9223372036854775807");
}

static void test_append(void **state)
{
    kolo_store *store = store_of(state);
    char expected[301] = "";

    assert_int_equal(kolo_store_append(store, "a", text("")), KOLO_OK);
    assert_holds(store, "a", "");
    for (int i = 0; i < 100; i++) {
        assert_int_equal(kolo_store_append(store, "a", text("xyz")), KOLO_OK);
        memcpy(expected + (size_t)i * 3, "xyz", 4);
    }
    assert_holds(store, "a", expected);
}

static void compare_set(kolo_store *store, const char *expected, const char *desired,
                        const char *result)
{
    void *value;
    size_t nbytes;

    assert_int_equal(
        kolo_store_compare_set(store, "c", text(expected), text(desired), &value, &nbytes),
        KOLO_OK);
    assert_int_equal(nbytes, strlen(result));
    assert_string_equal(value, result);
    kolo_free(value);
}

static void test_compare_set(void **state)
{
    static const char *const keys[] = {"c"};
    kolo_store *store = store_of(state);
    int there = 1;

    compare_set(store, "nothing", "x", "nothing"); /* absent: the answer lies, nothing is stored */
    assert_int_equal(kolo_store_check(store, keys, 1, &there), KOLO_OK);
    assert_int_equal(there, 0);
    compare_set(store, "", "first", "first");
    compare_set(store, "", "second", "first");
    compare_set(store, "firs", "second", "first");
    compare_set(store, "first", "second", "second");
    compare_set(store, "second", "", "");
    compare_set(store, "", "third", "third");
    assert_holds(store, "c", "third");
}

static void test_check_delete_count(void **state)
{
    static const char *const keys[] = {"one", "two"};
    kolo_store *store = store_of(state);
    int64_t before;
    int64_t count;
    int there;

    assert_int_equal(kolo_store_num_keys(store, &before), KOLO_OK);
    assert_int_equal(kolo_store_check(store, keys, 0, &there), KOLO_OK);
    assert_int_equal(there, 1);
    assert_int_equal(kolo_store_set(store, "one", text("1")), KOLO_OK);
    assert_int_equal(kolo_store_check(store, keys, 1, &there), KOLO_OK);
    assert_int_equal(there, 1);
    assert_int_equal(kolo_store_check(store, keys, 2, &there), KOLO_OK);
    assert_int_equal(there, 0);
    assert_int_equal(kolo_store_set(store, "two", text("2")), KOLO_OK);
    assert_int_equal(kolo_store_check(store, keys, 2, &there), KOLO_OK);
    assert_int_equal(there, 1);
    assert_int_equal(kolo_store_num_keys(store, &count), KOLO_OK);
    assert_int_equal(count, before + 2);
    assert_int_equal(kolo_store_delete(store, "one", &there), KOLO_OK);
    assert_int_equal(there, 1);
    assert_int_equal(kolo_store_delete(store, "one", &there), KOLO_OK);
    assert_int_equal(there, 0);
    assert_int_equal(kolo_store_delete(store, "two", NULL), KOLO_OK);
    assert_int_equal(kolo_store_num_keys(store, &count), KOLO_OK);
    assert_int_equal(count, before);
}

static void test_many_keys(void **state)
{
    enum { N = 3000 };
    kolo_store *store = store_of(state);
    char names[N][16];
    const char *keys[N];
    char value[16];
    int there;

    for (int i = 0; i < N; i++) {
        snprintf(names[i], sizeof names[i], "key%d", i);
        snprintf(value, sizeof value, "%d", i * i);
        keys[i] = names[i];
        assert_int_equal(kolo_store_set(store, names[i], text(value)), KOLO_OK);
    }
    assert_int_equal(kolo_store_wait(store, keys, N, 0), KOLO_OK);
    assert_int_equal(kolo_store_check(store, keys, N, &there), KOLO_OK);
    assert_int_equal(there, 1);
    for (int i = 0; i < N; i += 37) {
        snprintf(value, sizeof value, "%d", i * i);
        assert_holds(store, names[i], value);
    }
    for (int i = 0; i < N; i++)
        assert_int_equal(kolo_store_delete(store, names[i], NULL), KOLO_OK);
}

/* Over a wire they take two messages, of which the first tells. */
static void test_keys_of_two_messages(void **state)
{
    enum { N = 2200, LONG = 8000 };
    kolo_store *store = store_of(state);
    char key[LONG + 1];
    const char *keys[N];
    int there;

    memset(key, 'k', LONG);
    key[LONG] = 0;
    for (int i = 0; i < N; i++)
        keys[i] = key;
    assert_int_equal(kolo_store_set(store, key, text("here")), KOLO_OK);
    assert_int_equal(kolo_store_check(store, keys, N, &there), KOLO_OK);
    assert_int_equal(there, 1);
    keys[0] = "missing";
    assert_int_equal(kolo_store_check(store, keys, N, &there), KOLO_OK);
    assert_int_equal(there, 0);
    assert_int_equal(kolo_store_delete(store, key, NULL), KOLO_OK);
}

static void test_limits(void **state)
{
    kolo_store *store = store_of(state);
    char *key = calloc(1, KO_STORE_KEY_MAX + 2);
    char *value = calloc(1, KO_STORE_VALUE_MAX + 1);
    void *got;
    size_t nbytes;

    memset(key, 'k', KO_STORE_KEY_MAX - 2); /* room for the prefix "p/" */
    memset(value, 'v', KO_STORE_VALUE_MAX);
    assert_int_equal(kolo_store_set(store, key, (kolo_bytes){value, KO_STORE_VALUE_MAX}), KOLO_OK);
    assert_int_equal(kolo_store_get(store, key, &got, &nbytes), KOLO_OK);
    assert_int_equal(nbytes, KO_STORE_VALUE_MAX);
    assert_memory_equal(got, value, KO_STORE_VALUE_MAX);
    kolo_free(got);
    assert_int_equal(kolo_store_set(store, "v", (kolo_bytes){value, KO_STORE_VALUE_MAX + 1}),
                     KOLO_E_INVALID);
    assert_int_equal(kolo_store_delete(store, key, NULL), KOLO_OK);
    memset(key, 'k', KO_STORE_KEY_MAX + 1);
    assert_int_equal(kolo_store_set(store, key, text("v")), KOLO_E_INVALID);
    assert_int_equal(kolo_store_set(store, "", text("v")), KOLO_E_INVALID);
    assert_int_equal(kolo_store_set(store, NULL, text("v")), KOLO_E_INVALID);
    assert_int_equal(kolo_store_set(store, "v", (kolo_bytes){NULL, 1}), KOLO_E_INVALID);
    assert_int_equal(kolo_store_set(NULL, "v", text("v")), KOLO_E_INVALID);
    free(key);
    free(value);
}

static void test_null_arguments(void **state)
{
    static const char *const keys[] = {"k", NULL};
    kolo_store *store = store_of(state);
    void *value;
    size_t nbytes;
    int64_t count;
    int there;

    assert_int_equal(kolo_store_get(store, "k", NULL, &nbytes), KOLO_E_INVALID);
    assert_int_equal(kolo_store_get(store, "k", &value, NULL), KOLO_E_INVALID);
    assert_int_equal(kolo_store_get(NULL, "k", &value, &nbytes), KOLO_E_INVALID);
    assert_int_equal(kolo_store_check(store, keys, 2, &there), KOLO_E_INVALID);
    assert_int_equal(kolo_store_check(store, NULL, 2, &there), KOLO_E_INVALID);
    assert_int_equal(kolo_store_check(store, keys, 1, NULL), KOLO_E_INVALID);
    assert_int_equal(kolo_store_check(NULL, keys, 1, &there), KOLO_E_INVALID);
    assert_int_equal(kolo_store_wait(store, keys, KO_STORE_KEYS_MAX + 1, 0), KOLO_E_INVALID);
    assert_int_equal(kolo_store_wait(NULL, keys, 1, 0), KOLO_E_INVALID);
    assert_int_equal(kolo_store_num_keys(store, NULL), KOLO_E_INVALID);
    assert_int_equal(kolo_store_num_keys(NULL, &count), KOLO_E_INVALID);
    assert_int_equal(kolo_store_add(NULL, "k", 1, NULL), KOLO_E_INVALID);
    assert_int_equal(kolo_store_count_in(NULL, &count), KOLO_E_INVALID);
    kolo_store_set_timeout(NULL, 1);
    kolo_store_close(NULL);
    assert_int_equal(kolo_store_port(NULL), 0);
}

/* Clients of a server of ours can be counted as PyTorch's are; the number is no user's key. */
static void test_count_in(void **state)
{
    kolo_store *store = store_of(state), *prefix;
    const bool is_tcp = !strcmp(store->ops->name, "tcp");
    const int expected = is_tcp ? KOLO_OK : KOLO_E_UNSUPPORTED;
    static const char *const keys[] = {"init/"};
    int64_t count = 0;
    int there;

    assert_int_equal(kolo_store_count_in(store, &count), expected);
    assert_int_equal(kolo_store_count_in(store, NULL), expected);
    assert_int_equal(kolo_store_count_in(store, &count), expected);
    assert_int_equal(count, is_tcp ? 3 : 0);
    assert_int_equal(kolo_store_check(store, keys, 1, &there), KOLO_OK);
    assert_false(there);
    assert_int_equal(kolo_store_open_prefix(store, "p", &prefix), KOLO_OK);
    assert_int_equal(kolo_store_count_in(prefix, &count), KOLO_E_UNSUPPORTED);
    kolo_store_close(prefix);
}

/* ---- of prefix stores alone --------------------------------------------------------------- */

static void test_prefix(void **state)
{
    struct fixture *fixture = *state;
    char *key = calloc(1, KO_STORE_KEY_MAX + 2);
    kolo_store *inner = NULL;
    char host[64];

    assert_int_equal(kolo_store_set(fixture->store, "k", text("v")), KOLO_OK);
    assert_holds(fixture->base, "p/k", "v");
    assert_int_equal(kolo_store_open_prefix(fixture->store, "q", &inner), KOLO_OK);
    assert_int_equal(kolo_store_set(inner, "k", text("w")), KOLO_OK);
    assert_holds(fixture->base, "p/q/k", "w");
    assert_int_equal(kolo_store_port(inner), kolo_store_port(fixture->base));
    assert_int_equal(ko_store_own_address(inner, host, sizeof host), KOLO_OK);
    kolo_store_close(inner);
    inner = NULL;
    memset(key, 'k', KO_STORE_KEY_MAX - 1); /* one too many after "p/" */
    assert_int_equal(kolo_store_set(fixture->store, key, text("v")), KOLO_E_INVALID);
    assert_int_equal(kolo_store_open_prefix(fixture->base, key, &inner), KOLO_E_INVALID);
    assert_int_equal(kolo_store_open_prefix(NULL, "p", &inner), KOLO_E_INVALID);
    assert_int_equal(kolo_store_open_prefix(fixture->base, NULL, &inner), KOLO_E_INVALID);
    assert_int_equal(kolo_store_open_prefix(fixture->base, "p", NULL), KOLO_E_INVALID);
    assert_null(inner);
    assert_int_equal(kolo_store_open_prefix(fixture->base, "", &inner), KOLO_OK); /* "/k" */
    assert_int_equal(kolo_store_set(inner, "k", text("x")), KOLO_OK);
    assert_holds(fixture->base, "/k", "x");
    kolo_store_close(inner);
    free(key);
}

#define TESTS(X)            \
    X(set_get)              \
    X(add)                  \
    X(add_not_a_number)     \
    X(append)               \
    X(compare_set)          \
    X(check_delete_count)   \
    X(many_keys)            \
    X(keys_of_two_messages) \
    X(limits)               \
    X(null_arguments)

int main(void)
{
    static const struct CMUnitTest tests[] = {OVER_ALL_KINDS(TESTS) PREFIX_LOCAL(prefix) PREFIX_TCP(
        prefix) LOCAL(count_in) FILED(count_in) TCP(count_in) PREFIX_TCP(count_in)};

    return cmocka_run_group_tests_name("store", tests, NULL, NULL);
}
