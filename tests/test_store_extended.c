/* SPDX-License-Identifier: MIT
 *
 * The calls that not every store has of its own, on every kind of store: with an operation for
 * them, and with what stands in for it.
 */
#include "status.h"
#include "store.h"
#include "store_places.h"
#include "store_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 4 };

/* ---- several keys ------------------------------------------------------------------------- */

static void test_multi(struct place *place)
{
    static const char *const keys[] = {"b", "a", "empty"};
    const kolo_bytes values[] = {text("bee"), text("ay"), text("")};
    void *got[3];
    size_t sizes[3];

    assert_int_equal(kolo_store_multi_set(place->store, keys, values, 3), KOLO_OK);
    assert_int_equal(kolo_store_multi_get(place->store, keys, 3, got, sizes), KOLO_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(sizes[i], values[i].nbytes);
        assert_string_equal(got[i], values[i].data);
        kolo_free(got[i]);
    }
    assert_int_equal(kolo_store_multi_get(place->store, keys, 0, NULL, NULL), KOLO_OK);
    assert_int_equal(kolo_store_multi_set(place->store, keys, NULL, 0), KOLO_OK);
}

/* Values longer than what is read at once, and many of them. */
static void test_multi_large(struct place *place)
{
    enum { N = 300, LARGE = 20000 };
    char *large = malloc(LARGE);
    char names[N][16];
    const char *keys[N];
    kolo_bytes values[N];
    void *got[N];
    size_t sizes[N];

    for (size_t i = 0; i < LARGE; i++)
        large[i] = (char)(i * 7);
    for (int i = 0; i < N; i++) {
        snprintf(names[i], sizeof names[i], "n%d", i);
        keys[i] = names[i];
        values[i] = (kolo_bytes){large + i, (size_t)(LARGE - N) * (i % 3 == 0)};
    }
    assert_int_equal(kolo_store_multi_set(place->store, keys, values, N), KOLO_OK);
    assert_int_equal(kolo_store_multi_get(place->store, keys, N, got, sizes), KOLO_OK);
    for (int i = 0; i < N; i++) {
        assert_int_equal(sizes[i], values[i].nbytes);
        assert_memory_equal(got[i], values[i].data, sizes[i]);
        kolo_free(got[i]);
    }
    free(large);
}

/* More than one message over TCP may have, in the values, and more than it does have, in the keys.
 */
static void test_multi_too_large(struct place *place)
{
    enum { LARGE = 8 << 20, N = 9, LONG_KEYS = 2100 };
    static const char *const there[] = {"large", "missing"};
    const char *keys[LONG_KEYS];
    char *large, *long_key;
    kolo_bytes values[LONG_KEYS];
    void *got[LONG_KEYS];
    size_t sizes[LONG_KEYS];
    size_t n;
    int all = -1;
    bool is_said = false;

    if (place->old)
        return; /* what stands in for those takes pieces of long messages for messages */
    large = calloc(1, LARGE);
    long_key = calloc(1, KO_STORE_KEY_MAX + 1);
    for (int i = 0; i < N; i++) {
        keys[i] = there[0];
        values[i] = (kolo_bytes){large, LARGE};
    }
    n = kolo_store_port(place->store) > 0 ? N : 2; /* a file need not grow so long */
    assert_int_equal(kolo_store_multi_set(place->store, keys, values, n), KOLO_OK);
    assert_int_equal(kolo_store_multi_get(place->store, keys, 2, got, sizes), KOLO_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sizes[i], LARGE);
        kolo_free(got[i]);
    }
    memset(long_key, 'k', KO_STORE_KEY_MAX - 8); /* one may stand behind a prefix */
    for (int i = 0; i < LONG_KEYS; i++) {
        keys[i] = i == 0 ? there[0] : long_key;
        values[i] = text("v");
    }
    assert_int_equal(kolo_store_multi_set(place->store, keys, values, LONG_KEYS), KOLO_OK);
    assert_int_equal(kolo_store_wait(place->store, keys, LONG_KEYS, -1), KOLO_OK);
    assert_int_equal(kolo_store_check(place->store, keys, LONG_KEYS, &all), KOLO_OK);
    assert_int_equal(all, 1);
    assert_int_equal(kolo_store_multi_get(place->store, keys, LONG_KEYS, got, sizes), KOLO_OK);
    for (int i = 0; i < LONG_KEYS; i++) {
        assert_string_equal(got[i], "v");
        kolo_free(got[i]);
    }
    keys[LONG_KEYS - 1] = there[1];
    assert_int_equal(kolo_store_check(place->store, keys, LONG_KEYS, &all), KOLO_OK);
    assert_int_equal(all, 0);
    /* how soon a server has all the keys, to say which is missing, is the machine's affair */
    for (int ms = 500; !is_said && ms <= 32000; ms *= 2) {
        assert_int_equal(kolo_store_wait(place->store, keys, LONG_KEYS, ms), KOLO_E_TIMEOUT);
        is_said = strstr(kolo_last_error(), "1 of 2100 keys") != NULL;
    }
    assert_true(is_said);
    assert_non_null(strstr(kolo_last_error(), "missing"));
    free(large);
    free(long_key);
}

static void test_multi_get_waits(struct place *place)
{
    static const char *const keys[] = {"here", "not here"};
    void *got[2] = {NULL, NULL};
    size_t sizes[2];

    assert_int_equal(kolo_store_set(place->store, "here", text("x")), KOLO_OK);
    kolo_store_set_timeout(place->store, 50);
    assert_int_equal(kolo_store_multi_get(place->store, keys, 2, got, sizes), KOLO_E_TIMEOUT);
    assert_non_null(strstr(kolo_last_error(), "1 of 2 keys"));
    assert_non_null(strstr(kolo_last_error(), "not here"));
    assert_null(got[0]);
    kolo_store_set_timeout(place->store, 60000);
    assert_int_equal(kolo_store_set(place->store, "not here", text("y")), KOLO_OK);
    assert_int_equal(kolo_store_multi_get(place->store, keys, 2, got, sizes), KOLO_OK);
    assert_string_equal(got[1], "y");
    kolo_free(got[0]);
    kolo_free(got[1]);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void test_list_keys(struct place *place)
{
    static const char *const names[] = {"a", "b/c", "n"};
    char **keys = NULL;
    size_t nkeys = 99;
    int err = kolo_store_list_keys(place->store, &keys, &nkeys);

    if (!place->has_list) {
        assert_int_equal(err, KOLO_E_UNSUPPORTED);
        assert_non_null(strstr(kolo_last_error(), "list_keys"));
        return;
    }
    assert_int_equal(err, KOLO_OK);
    assert_int_equal(nkeys, 0);
    kolo_free(keys);
    assert_int_equal(kolo_store_set(place->served, "other/x", text("")), KOLO_OK);
    assert_int_equal(kolo_store_delete(place->served, "other/x", NULL), KOLO_OK);
    assert_int_equal(kolo_store_set(place->store, "a", text("")), KOLO_OK);
    assert_int_equal(kolo_store_set(place->store, "b/c", text("")), KOLO_OK);
    assert_int_equal(kolo_store_add(place->store, "n", 1, NULL), KOLO_OK);
    assert_int_equal(kolo_store_list_keys(place->store, &keys, &nkeys), KOLO_OK);
    assert_int_equal(nkeys, 3);
    qsort(keys, nkeys, sizeof *keys, by_text);
    for (int i = 0; i < 3; i++)
        assert_string_equal(keys[i], names[i]);
    kolo_free(keys);
}

/* ---- append ------------------------------------------------------------------------------- */

struct helper {
    pthread_t thread;
    kolo_store *store;
    int number;
    int err;
    char wrong[KO_ERROR_TEXT];
};

/* Runs body THREADS times at once, each with a handle of its own; none may fail. */
static void run_all(kolo_store *store, struct helper *helpers, void *(*body)(void *))
{
    for (int i = 0; i < THREADS; i++) {
        helpers[i] = (struct helper){.number = i};
        assert_int_equal(ko_store_clone(store, &helpers[i].store), KOLO_OK);
        assert_int_equal(pthread_create(&helpers[i].thread, NULL, body, &helpers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(helpers[i].thread, NULL);
        kolo_store_close(helpers[i].store);
    }
    for (int i = 0; i < THREADS; i++)
        assert_string_equal(helpers[i].wrong, "");
}

static void *append_same(void *argument)
{
    struct helper *helper = argument;

    for (int i = 0; i < 25 && !helper->err; i++)
        helper->err = kolo_store_append(helper->store, "log", text("ab"));
    if (helper->err)
        snprintf(helper->wrong, sizeof helper->wrong, "%s", kolo_last_error());
    return NULL;
}

/* The same bytes by all at once: none may be lost. */
static void test_append(struct place *place)
{
    struct helper helpers[THREADS];
    void *value;
    size_t nbytes;

    run_all(place->store, helpers, append_same);
    assert_int_equal(kolo_store_get(place->store, "log", &value, &nbytes), KOLO_OK);
    assert_int_equal(nbytes, THREADS * 50);
    for (size_t i = 0; i < nbytes; i++)
        assert_int_equal(((char *)value)[i], "ab"[i % 2]);
    kolo_free(value);
    assert_int_equal(kolo_store_append(place->store, "log", text("")), KOLO_OK);
    assert_int_equal(kolo_store_append(place->store, "new", text("")), KOLO_OK);
    assert_int_equal(kolo_store_get(place->store, "new", &value, &nbytes), KOLO_OK);
    assert_int_equal(nbytes, 0);
    kolo_free(value);
}

/* ---- queues ------------------------------------------------------------------------------- */

static void test_queue(struct place *place)
{
    static const char *const keys[] = {"q"};
    void *value = NULL;
    size_t nbytes;
    int64_t length = -1, nkeys = -1;
    int there;
    int err = kolo_store_queue_push(place->store, "q", text("one"));

    if (!place->has_queues) {
        assert_int_equal(err, KOLO_E_UNSUPPORTED);
        assert_int_equal(kolo_store_queue_len(place->store, "q", &length), KOLO_E_UNSUPPORTED);
        err = kolo_store_queue_pop(place->store, "q", 0, &value, &nbytes);
        assert_int_equal(err, KOLO_E_UNSUPPORTED);
        assert_int_equal(kolo_store_set(place->store, "q", text("still")), KOLO_OK);
        return;
    }
    assert_int_equal(err, KOLO_OK);
    assert_int_equal(kolo_store_queue_push(place->store, "q", text("")), KOLO_OK);
    assert_int_equal(kolo_store_queue_len(place->store, "q", &length), KOLO_OK);
    assert_int_equal(length, 2);
    assert_int_equal(kolo_store_check(place->store, keys, 1, &there), KOLO_OK);
    assert_int_equal(there, 1);
    assert_int_equal(kolo_store_num_keys(place->store, &nkeys), KOLO_OK);
    assert_in_range(nkeys, 0, 1); /* a prefix store counts what lies outside too */
    assert_int_equal(kolo_store_queue_pop(place->store, "q", -1, &value, &nbytes), KOLO_OK);
    assert_int_equal(nbytes, 3);
    assert_string_equal(value, "one");
    kolo_free(value);
    assert_int_equal(kolo_store_queue_pop(place->store, "q", 0, &value, &nbytes), KOLO_OK);
    assert_int_equal(nbytes, 0);
    kolo_free(value);
    assert_int_equal(kolo_store_queue_pop(place->store, "q", 20, &value, &nbytes), KOLO_E_TIMEOUT);
    assert_non_null(strstr(kolo_last_error(), "the timeout_ms that was given is the limit"));
    assert_int_equal(kolo_store_queue_len(place->store, "q", &length), KOLO_OK);
    assert_int_equal(length, 0);
    assert_int_equal(kolo_store_queue_push(place->store, "q", text("x")), KOLO_OK);
    assert_int_equal(kolo_store_delete(place->store, "q", &there), KOLO_OK);
    assert_int_equal(there, 1);
    assert_int_equal(kolo_store_check(place->store, keys, 1, &there), KOLO_OK);
    assert_int_equal(there, 0);
}

/* Each takes 20 values, whichever; one thread more gives them. */
static void *pop_some(void *argument)
{
    struct helper *helper = argument;
    void *value;
    size_t nbytes;
    int64_t sum = 0;

    for (int i = 0; i < 20 && !helper->err; i++) {
        helper->err = kolo_store_queue_pop(helper->store, "q", -1, &value, &nbytes);
        if (!helper->err) {
            sum += atoi(value);
            kolo_free(value);
        }
    }
    if (!helper->err)
        helper->err = kolo_store_add(helper->store, "sum", sum, NULL);
    if (helper->err)
        snprintf(helper->wrong, sizeof helper->wrong, "%s", kolo_last_error());
    return NULL;
}

static void *push_all(void *argument)
{
    struct helper *helper = argument;
    char number[16];

    for (int i = 0; i < THREADS * 20 && !helper->err; i++) {
        snprintf(number, sizeof number, "%d", i);
        helper->err = kolo_store_queue_push(helper->store, "q", text(number));
    }
    return NULL;
}

static void test_queue_poppers(struct place *place)
{
    struct helper helpers[THREADS];
    struct helper pusher = {0};
    int64_t sum = 0;

    if (!place->has_queues)
        return;
    assert_int_equal(ko_store_clone(place->store, &pusher.store), KOLO_OK);
    assert_int_equal(pthread_create(&pusher.thread, NULL, push_all, &pusher), 0);
    run_all(place->store, helpers, pop_some);
    pthread_join(pusher.thread, NULL);
    kolo_store_close(pusher.store);
    assert_int_equal(pusher.err, KOLO_OK);
    assert_int_equal(kolo_store_add(place->store, "sum", 0, &sum), KOLO_OK);
    assert_int_equal(sum, THREADS * 20 * (THREADS * 20 - 1) / 2);
}

static void *wait_for_queue(void *argument)
{
    static const char *const keys[] = {"q"};
    struct helper *helper = argument;

    helper->err = kolo_store_wait(helper->store, keys, 1, -1);
    return NULL;
}

static void *pop_one(void *argument)
{
    struct helper *helper = argument;
    void *value;
    size_t nbytes;

    helper->err = kolo_store_queue_pop(helper->store, "q", -1, &value, &nbytes);
    if (!helper->err)
        kolo_free(value);
    return NULL;
}

/* One who only waits for a queue does not keep its value from one who pops it. */
static void test_queue_wait_and_pop(struct place *place)
{
    struct helper helpers[2] = {0};

    if (!place->has_queues)
        return;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ko_store_clone(place->store, &helpers[i].store), KOLO_OK);
        assert_int_equal(
            pthread_create(&helpers[i].thread, NULL, i ? pop_one : wait_for_queue, &helpers[i]), 0);
        usleep(20000); /* most likely the one waits before the other does; else it is easier */
    }
    assert_int_equal(kolo_store_queue_push(place->store, "q", text("v")), KOLO_OK);
    pthread_join(helpers[1].thread, NULL);
    assert_int_equal(helpers[1].err, KOLO_OK);
    assert_int_equal(kolo_store_queue_push(place->store, "q", text("v")), KOLO_OK);
    pthread_join(helpers[0].thread, NULL); /* it has come too late for the first value, perhaps */
    assert_int_equal(helpers[0].err, KOLO_OK);
    for (int i = 0; i < 2; i++)
        kolo_store_close(helpers[i].store);
}

/* ---- barrier ------------------------------------------------------------------------------ */

static void *pass_barriers(void *argument)
{
    struct helper *helper = argument;
    char key[24];
    int64_t come = 0;

    for (int i = 0; i < 10 && !helper->err; i++) {
        helper->err = kolo_store_add(helper->store, "come", 1, NULL);
        snprintf(key, sizeof key, "barrier%d", i);
        if (!helper->err)
            helper->err = kolo_store_barrier(helper->store, key, THREADS, -1);
        if (!helper->err)
            helper->err = kolo_store_add(helper->store, "come", 0, &come);
        if (!helper->err && come < (int64_t)THREADS * (i + 1))
            helper->err =
                ko_fail(KOLO_E_INTERNAL, "passed barrier %d after %lld", i, (long long)come);
    }
    if (helper->err)
        snprintf(helper->wrong, sizeof helper->wrong, "%s", kolo_last_error());
    return NULL;
}

static void test_barrier(struct place *place)
{
    struct helper helpers[THREADS];
    char expected[KO_ERROR_TEXT];

    run_all(place->store, helpers, pass_barriers);
    assert_int_equal(kolo_store_barrier(place->store, "alone", 1, 0), KOLO_OK);
    assert_int_equal(kolo_store_barrier(place->store, "b", 0, 0), KOLO_E_INVALID);
    assert_int_equal(kolo_store_barrier(place->store, "b", 3, 30), KOLO_E_TIMEOUT);
    snprintf(expected, sizeof expected, "b\" of %s: 1 of 3 have come (",
             ko_store_where(place->store));
    assert_non_null(strstr(kolo_last_error(), expected));
    assert_memory_equal(kolo_last_error(), "waited 30 ms at the barrier ", 28);
    assert_int_equal(kolo_store_barrier(place->store, "b", 2, 1000), KOLO_OK);
}

/* ---- the rest ----------------------------------------------------------------------------- */

/* After a wait that timed out the store is as good as before; of 1.13 only by another connection.
 */
static void test_after_time_out(struct place *place)
{
    static const char *const keys[] = {"never", "there"};
    void *value;
    size_t nbytes;

    assert_int_equal(kolo_store_set(place->store, "there", text("x")), KOLO_OK);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(kolo_store_wait(place->store, keys, 2, 10), KOLO_E_TIMEOUT);
        assert_non_null(strstr(kolo_last_error(), "1 of 2 keys"));
        assert_int_equal(kolo_store_get(place->store, "there", &value, &nbytes), KOLO_OK);
        assert_string_equal(value, "x");
        kolo_free(value);
    }
    assert_int_equal(kolo_store_set(place->served, "never", text("y")), KOLO_OK);
    assert_int_equal(kolo_store_get(place->store, "there", &value, &nbytes), KOLO_OK);
    assert_string_equal(value, "x");
    kolo_free(value);
}

static void test_wrong_arguments(struct place *place)
{
    static const char *const keys[] = {"k"};
    const kolo_bytes no_data = {NULL, 3};
    void *value;
    size_t nbytes;
    int64_t length;

    assert_int_equal(kolo_store_append(NULL, "k", text("")), KOLO_E_INVALID);
    assert_int_equal(kolo_store_multi_get(NULL, keys, 1, &value, &nbytes), KOLO_E_INVALID);
    assert_int_equal(kolo_store_multi_get(place->store, keys, 1, NULL, &nbytes), KOLO_E_INVALID);
    assert_int_equal(kolo_store_multi_get(place->store, NULL, 1, &value, &nbytes), KOLO_E_INVALID);
    assert_int_equal(
        kolo_store_multi_get(place->store, keys, KO_STORE_KEYS_MAX + 1, &value, &nbytes),
        KOLO_E_INVALID);
    assert_int_equal(kolo_store_multi_set(place->store, keys, NULL, 1), KOLO_E_INVALID);
    assert_int_equal(kolo_store_multi_set(place->store, keys, &no_data, 1), KOLO_E_INVALID);
    assert_int_equal(kolo_store_list_keys(place->store, NULL, &nbytes), KOLO_E_INVALID);
    assert_int_equal(kolo_store_queue_push(NULL, "k", text("")), KOLO_E_INVALID);
    assert_int_equal(kolo_store_queue_push(place->store, "", text("")), KOLO_E_INVALID);
    assert_int_equal(kolo_store_queue_pop(place->store, "k", 0, NULL, &nbytes), KOLO_E_INVALID);
    assert_int_equal(kolo_store_queue_len(place->store, "k", NULL), KOLO_E_INVALID);
    assert_int_equal(kolo_store_queue_len(NULL, "k", &length), KOLO_E_INVALID);
    assert_int_equal(kolo_store_barrier(NULL, "k", 1, 0), KOLO_E_INVALID);
}

/* ---- all tests on all kinds of stores ------------------------------------------------------- */

struct test {
    const char *name;
    void (*body)(struct place *place);
};

static const struct test tests[] = {
    {"multi", test_multi},
    {"multi_large", test_multi_large},
    {"multi_too_large", test_multi_too_large},
    {"multi_get_waits", test_multi_get_waits},
    {"list_keys", test_list_keys},
    {"append", test_append},
    {"queue", test_queue},
    {"queue_poppers", test_queue_poppers},
    {"queue_wait_and_pop", test_queue_wait_and_pop},
    {"barrier", test_barrier},
    {"after_time_out", test_after_time_out},
    {"wrong_arguments", test_wrong_arguments},
};

enum { NTESTS = sizeof tests / sizeof *tests };

struct run {
    const struct place_kind *kind;
    const struct test *test;
    char name[64];
};

static void run(void **state)
{
    const struct run *run = *state;
    struct place place = {0};

    run->kind->open(&place);
    run->test->body(&place);
    place_close(&place);
}

int main(void)
{
    static struct run runs[PLACE_NKINDS * NTESTS];
    static struct CMUnitTest units[PLACE_NKINDS * NTESTS];

    for (int i = 0; i < PLACE_NKINDS * NTESTS; i++) {
        runs[i].kind = &place_kinds[i / NTESTS];
        runs[i].test = &tests[i % NTESTS];
        snprintf(runs[i].name, sizeof runs[i].name, "%s: %s", runs[i].kind->name,
                 runs[i].test->name);
        units[i] =
            (struct CMUnitTest){.name = runs[i].name, .test_func = run, .initial_state = &runs[i]};
    }
    return cmocka_run_group_tests_name("store extended", units, NULL, NULL);
}
