/* SPDX-License-Identifier: MIT
 *
 * store_kinds.h: the stores that one list of tests is run against: a local one, a file's, a TCP
 * store, and a prefix store on top of two of them.
 */
#ifndef STORE_KINDS_H
#define STORE_KINDS_H

#include "store.h"
#include "store_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct fixture {
    kolo_store *base;
    kolo_store *store;
};

/* Gets key and compares. */
static inline void assert_holds(kolo_store *store, const char *key, const char *expected)
{
    void *value;
    size_t nbytes;

    assert_int_equal(kolo_store_get(store, key, &value, &nbytes), KOLO_OK);
    assert_int_equal(nbytes, strlen(expected));
    assert_string_equal(value, expected); /* a NUL follows */
    kolo_free(value);
}

static inline kolo_store *store_of(void **state)
{
    return ((struct fixture *)*state)->store;
}

static inline int open_local(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);

    *state = fixture;
    return kolo_store_open_local(&fixture->store);
}

static inline int open_tcp(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);

    *state = fixture;
    return kolo_store_open_tcp("127.0.0.1", 0, 1, 60000, &fixture->store);
}

/* Nobody else opens it, so that it is removed at the end. */
static inline int open_file(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    char path[] = "/tmp/test-store-XXXXXX";
    int fd = mkstemp(path);

    *state = fixture;
    return fd < 0 || close(fd) || kolo_store_open_file(path, 1, 60000, &fixture->store);
}

static inline int put_prefix(struct fixture *fixture)
{
    fixture->base = fixture->store;
    return kolo_store_open_prefix(fixture->base, "p", &fixture->store);
}

static inline int open_prefix_local(void **state)
{
    return open_local(state) || put_prefix(*state);
}

static inline int open_prefix_tcp(void **state)
{
    return open_tcp(state) || put_prefix(*state);
}

static inline int close_all(void **state)
{
    struct fixture *fixture = *state;

    kolo_store_close(fixture->base); /* before what stands on it: any order will do */
    kolo_store_close(fixture->store);
    free(fixture);
    return 0;
}

#define LOCAL(name) {"local: " #name, test_##name, open_local, close_all, NULL},
#define TCP(name) {"tcp: " #name, test_##name, open_tcp, close_all, NULL},
#define FILED(name) {"file: " #name, test_##name, open_file, close_all, NULL},
#define PREFIX_LOCAL(name) \
    {"prefix of local: " #name, test_##name, open_prefix_local, close_all, NULL},
#define PREFIX_TCP(name) {"prefix of tcp: " #name, test_##name, open_prefix_tcp, close_all, NULL},

/* Rows of struct CMUnitTest: each test of a list X over every kind of store. */
#define OVER_ALL_KINDS(TESTS) \
    TESTS(LOCAL) TESTS(FILED) TESTS(TCP) TESTS(PREFIX_LOCAL) TESTS(PREFIX_TCP)

#endif
