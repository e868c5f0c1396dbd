/* SPDX-License-Identifier: MIT
 *
 * Random operations by sixteen threads at once. Each thread has keys of its own, on which the store
 * must do exactly what a plain array does; some keys are everybody's, on which nothing may be lost.
 * The argument is the number of operations on own keys.
 */
#include "status.h"
#include "store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 16, KEYS = 12, LONGEST = 200 };

static long operations = 16000;

/* What one key of the model holds. */
struct cell {
    bool is_there;
    size_t nbytes;
    char bytes[LONGEST + 1];
};

struct walker {
    pthread_t thread;
    kolo_store *store;
    int number;
    uint64_t random;
    struct cell cells[KEYS];
    char wrong[KO_ERROR_TEXT + 100]; /* "" if all was right */
};

static uint32_t draw(struct walker *walker, uint32_t below)
{
    walker->random = walker->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(walker->random >> 33) % below;
}

static void key_name(const struct walker *walker, int key, char name[32])
{
    snprintf(name, 32, "w%d/%d", walker->number, key);
}

/* Short, so that comparisons succeed at times. */
static kolo_bytes draw_value(struct walker *walker, char text[8])
{
    size_t n = draw(walker, 3);

    for (size_t i = 0; i < n; i++)
        text[i] = (char)('a' + draw(walker, 2));
    return (kolo_bytes){text, n};
}

static bool equal(const struct cell *cell, const void *value, size_t nbytes)
{
    return cell->nbytes == nbytes && !memcmp(cell->bytes, value, nbytes);
}

static void put(struct cell *cell, kolo_bytes value, size_t at)
{
    memcpy(cell->bytes + at, value.data, value.nbytes);
    cell->nbytes = at + value.nbytes;
    cell->is_there = true;
}

/* Each returns KOLO_OK, an error, or -1 for an answer that is not the model's. */

static int step_get(struct walker *walker, const char *name, struct cell *cell)
{
    const char *keys[] = {name};
    void *value;
    size_t nbytes;
    int there;
    int err = kolo_store_check(walker->store, keys, 1, &there);

    if (err || there != cell->is_there)
        return err ? err : -1;
    if (!there)
        return KOLO_OK;
    err = kolo_store_get(walker->store, name, &value, &nbytes);
    if (err)
        return err;
    err = equal(cell, value, nbytes) ? KOLO_OK : -1;
    kolo_free(value);
    return err;
}

static int step_write(struct walker *walker, const char *name, struct cell *cell)
{
    char text[8];
    kolo_bytes value = draw_value(walker, text);
    bool is_append = draw(walker, 2) && cell->nbytes + value.nbytes <= LONGEST;
    int err = is_append ? kolo_store_append(walker->store, name, value)
                        : kolo_store_set(walker->store, name, value);

    if (!err)
        put(cell, value, is_append ? cell->nbytes : 0);
    return err;
}

static int step_compare_set(struct walker *walker, const char *name, struct cell *cell)
{
    char text[2][8];
    kolo_bytes expected = draw_value(walker, text[0]);
    kolo_bytes desired = draw_value(walker, text[1]);
    void *value;
    size_t nbytes;
    int err = kolo_store_compare_set(walker->store, name, expected, desired, &value, &nbytes);

    if (err)
        return err;
    if (equal(cell, expected.data, expected.nbytes))
        put(cell, desired, 0);
    if (cell->is_there)
        err = equal(cell, value, nbytes) ? KOLO_OK : -1;
    else
        err = nbytes == expected.nbytes && !memcmp(value, expected.data, nbytes) ? KOLO_OK : -1;
    kolo_free(value);
    return err;
}

static int step_delete(struct walker *walker, const char *name, struct cell *cell)
{
    int was_there;
    int err = kolo_store_delete(walker->store, name, &was_there);

    if (err || was_there != cell->is_there)
        return err ? err : -1;
    cell->is_there = false;
    cell->nbytes = 0;
    return KOLO_OK;
}

/* Counts on everybody's counters: by an add, and by an append of one byte. */
static int step_shared(struct walker *walker)
{
    char mark = (char)('0' + walker->number);
    int err = kolo_store_add(walker->store, "shared/added", 1, NULL);

    return err ? err : kolo_store_append(walker->store, "shared/marks", (kolo_bytes){&mark, 1});
}

/* Takes a lock that is a key, and counts under it without an atomic add. */
static int step_locked(struct walker *walker)
{
    char mine[16];
    void *value;
    size_t nbytes;
    bool is_mine = false;
    int err = KOLO_OK;

    snprintf(mine, sizeof mine, "%d", walker->number);
    while (!err && !is_mine) {
        err = kolo_store_compare_set(walker->store, "shared/lock", (kolo_bytes){0},
                                     (kolo_bytes){mine, strlen(mine)}, &value, &nbytes);
        if (err)
            return err;
        is_mine = !strcmp(value, mine);
        kolo_free(value);
    }
    if (!err)
        err = kolo_store_get(walker->store, "shared/locked", &value, &nbytes);
    if (err)
        return err;
    snprintf(mine, sizeof mine, "%d", atoi(value) + 1);
    kolo_free(value);
    err = kolo_store_set(walker->store, "shared/locked", (kolo_bytes){mine, strlen(mine)});
    return err ? err : kolo_store_delete(walker->store, "shared/lock", NULL);
}

static void *walk(void *argument)
{
    static int (*const steps[])(struct walker *, const char *, struct cell *) = {
        step_get, step_get, step_write, step_write, step_compare_set, step_delete};
    struct walker *walker = argument;
    char name[32];
    uint32_t which;
    int key;
    int err = KOLO_OK;

    for (long i = 0; i < operations / THREADS && !err; i++) {
        which = draw(walker, sizeof steps / sizeof *steps);
        key = (int)draw(walker, KEYS);
        key_name(walker, key, name);
        err = steps[which](walker, name, &walker->cells[key]);
        if (err)
            snprintf(walker->wrong, sizeof walker->wrong, "step %ld (%u) on %s: %s", i, which, name,
                     err > 0 ? kolo_last_error() : "a wrong answer");
    }
    return NULL;
}

static void *count(void *argument)
{
    struct walker *walker = argument;
    int err = KOLO_OK;

    for (int i = 0; i < 100 && !err; i++)
        err = i % 5 ? step_shared(walker) : step_locked(walker);
    if (err)
        snprintf(walker->wrong, sizeof walker->wrong, "%s", kolo_last_error());
    return NULL;
}

/* Runs body on THREADS clones of store. */
static void run_all(kolo_store *store, struct walker *walkers, void *(*body)(void *))
{
    for (int i = 0; i < THREADS; i++) {
        walkers[i].number = i;
        walkers[i].random = (uint64_t)i + 7;
        assert_int_equal(ko_store_clone(store, &walkers[i].store), KOLO_OK);
        assert_int_equal(pthread_create(&walkers[i].thread, NULL, body, &walkers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(walkers[i].thread, NULL);
    for (int i = 0; i < THREADS; i++) {
        kolo_store_close(walkers[i].store);
        assert_string_equal(walkers[i].wrong, "");
    }
}

static int close_store(void **state)
{
    kolo_store_close(*state);
    return 0;
}

static void test_own_keys(void **state)
{
    struct walker *walkers = calloc(THREADS, sizeof *walkers);
    int64_t expected = 0;
    int64_t found;

    run_all(*state, walkers, walk);
    for (int i = 0; i < THREADS; i++)
        for (int k = 0; k < KEYS; k++)
            expected += walkers[i].cells[k].is_there;
    assert_int_equal(kolo_store_num_keys(*state, &found), KOLO_OK);
    assert_int_equal(found, expected);
    free(walkers);
}

static void test_shared_keys(void **state)
{
    struct walker *walkers = calloc(THREADS, sizeof *walkers);
    int64_t sum = 0;
    int seen[THREADS] = {0};
    void *marks;
    size_t nmarks;

    assert_int_equal(kolo_store_set(*state, "shared/locked", (kolo_bytes){"0", 1}), KOLO_OK);
    run_all(*state, walkers, count);
    assert_int_equal(kolo_store_add(*state, "shared/added", 0, &sum), KOLO_OK);
    assert_int_equal(sum, THREADS * 80);
    assert_int_equal(kolo_store_add(*state, "shared/locked", 0, &sum), KOLO_OK);
    assert_int_equal(sum, THREADS * 20);
    assert_int_equal(kolo_store_get(*state, "shared/marks", &marks, &nmarks), KOLO_OK);
    assert_int_equal(nmarks, THREADS * 80);
    for (size_t i = 0; i < nmarks; i++)
        seen[((char *)marks)[i] - '0']++;
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(seen[i], 80);
    kolo_free(marks);
    free(walkers);
}

static void *use_one_handle(void *argument)
{
    struct walker *walker = argument;
    kolo_store *own = walker->store;
    int err = KOLO_OK;

    for (int i = 0; i < 100 && !err; i++)
        err = kolo_store_add(own, "one", 1, NULL);
    if (err)
        snprintf(walker->wrong, sizeof walker->wrong, "%s", kolo_last_error());
    return NULL;
}

/* One handle in the hands of all threads. */
static void test_one_handle(void **state)
{
    struct walker walkers[THREADS] = {0};
    int64_t sum = 0;

    for (int i = 0; i < THREADS; i++) {
        walkers[i].store = *state;
        assert_int_equal(pthread_create(&walkers[i].thread, NULL, use_one_handle, &walkers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(walkers[i].thread, NULL);
    for (int i = 0; i < THREADS; i++)
        assert_string_equal(walkers[i].wrong, "");
    assert_int_equal(kolo_store_add(*state, "one", 0, &sum), KOLO_OK);
    assert_int_equal(sum, THREADS * 100);
}

static void *wait_long(void *argument)
{
    static const char *const keys[] = {"end"};
    struct walker *walker = argument;

    walker->number = kolo_store_wait(walker->store, keys, 1, 60000);
    return NULL;
}

/* A thread that waits keeps others of the same TCP handle out, until their deadline and no longer.
 */
static void test_one_handle_is_busy(void **state)
{
    struct walker walker = {.store = *state};
    kolo_store *clone;
    int err = KOLO_OK;

    assert_int_equal(ko_store_clone(*state, &clone), KOLO_OK);
    kolo_store_set_timeout(*state, 50);
    assert_int_equal(pthread_create(&walker.thread, NULL, wait_long, &walker), 0);
    while (!err || !strstr(kolo_last_error(), "another thread"))
        err = kolo_store_set(*state, "k", (kolo_bytes){"v", 1});
    assert_int_equal(err, KOLO_E_TIMEOUT);
    assert_int_equal(kolo_store_set(clone, "end", (kolo_bytes){0}), KOLO_OK);
    pthread_join(walker.thread, NULL);
    assert_int_equal(walker.number, KOLO_OK);
    kolo_store_close(clone);
}

static int open_local(void **state)
{
    return kolo_store_open_local((kolo_store **)state);
}

static int open_tcp(void **state)
{
    return kolo_store_open_tcp("127.0.0.1", 0, 1, 60000, (kolo_store **)state);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_own_keys, open_local, close_store),
        cmocka_unit_test_setup_teardown(test_own_keys, open_tcp, close_store),
        cmocka_unit_test_setup_teardown(test_shared_keys, open_local, close_store),
        cmocka_unit_test_setup_teardown(test_shared_keys, open_tcp, close_store),
        cmocka_unit_test_setup_teardown(test_one_handle, open_local, close_store),
        cmocka_unit_test_setup_teardown(test_one_handle, open_tcp, close_store),
        cmocka_unit_test_setup_teardown(test_one_handle_is_busy, open_tcp, close_store),
    };
    if (argc > 1)
        operations = atol(argv[1]);
    if (operations < 1)
        return 2;
    return cmocka_run_group_tests_name("store model", tests, NULL, NULL);
}
