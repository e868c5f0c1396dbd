/* SPDX-License-Identifier: MIT
 *
 * One rank of a workload on a store, or a file store, that PyTorch's clients share (store.py is the
 * same in Python), or the server of it:
 *   store server                 prints its port, serves until its input ends
 *   store client PORT RANK SIZE  counts itself in (kolo_store_count_in)
 *   store file PATH RANK SIZE
 */
#include "kolo.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LARGE = 1 << 20, TIMEOUT_MS = 60000 };

static void check(bool is_right, const char *what)
{
    if (is_right)
        return;
    fprintf(stderr, "kolo: %s: %s\n", what, kolo_last_error());
    exit(1);
}

static void ok(int err, const char *what)
{
    check(err == KOLO_OK, what);
}

static void set(kolo_store *store, const char *key, const char *value)
{
    ok(kolo_store_set(store, key, (kolo_bytes){value, strlen(value)}), "set");
}

static void expect(kolo_store *store, const char *key, const char *expected)
{
    void *value;
    size_t nbytes;

    ok(kolo_store_get(store, key, &value, &nbytes), "get");
    check(nbytes == strlen(expected) && !strcmp(value, expected), key);
    kolo_free(value);
}

/* All ranks have come here. */
static void meet(kolo_store *store, const char *name, int size)
{
    char open[64];
    int64_t come;

    ok(kolo_store_add(store, name, 1, &come), "add");
    snprintf(open, sizeof open, "%s open", name);
    if (come == size)
        set(store, open, "1");
    expect(store, open, "1");
}

static void see_each_other(kolo_store *store, int rank, int size)
{
    char key[32], value[32];
    int64_t sum;

    snprintf(key, sizeof key, "r%d", rank);
    snprintf(value, sizeof value, "value %d", rank);
    set(store, key, value);
    for (int i = 0; i < size; i++) {
        snprintf(key, sizeof key, "r%d", i);
        snprintf(value, sizeof value, "value %d", i);
        expect(store, key, value);
    }
    ok(kolo_store_add(store, "sum", rank + 1, NULL), "add");
    meet(store, "summed", size);
    ok(kolo_store_add(store, "sum", 0, &sum), "add");
    check(sum == size * (size + 1) / 2, "the sum");
}

static void elect(kolo_store *store, int rank, int size)
{
    char mine[16], changed[32];
    void *leader, *now;
    size_t nbytes;

    snprintf(mine, sizeof mine, "%d", rank);
    ok(kolo_store_compare_set(store, "leader", (kolo_bytes){NULL, 0},
                              (kolo_bytes){mine, strlen(mine)}, &leader, &nbytes),
       "compare_set");
    expect(store, "leader", leader);
    meet(store, "elected", size);
    snprintf(changed, sizeof changed, "%s changed", mine);
    if (!strcmp(leader, mine)) {
        ok(kolo_store_compare_set(store, "leader", (kolo_bytes){mine, strlen(mine)},
                                  (kolo_bytes){changed, strlen(changed)}, &now, &nbytes),
           "compare_set");
        check(!strcmp(now, changed), "compare_set's answer");
        kolo_free(now);
    }
    kolo_free(leader);
    meet(store, "changed", size);
}

static void send_large(kolo_store *store, int rank, int size)
{
    char *large = malloc(LARGE);
    char key[32];
    void *value;
    size_t nbytes;
    int was_there;

    memset(large, 'a' + rank, LARGE);
    snprintf(key, sizeof key, "large %d", rank);
    ok(kolo_store_set(store, key, (kolo_bytes){large, LARGE}), "set of a large value");
    snprintf(key, sizeof key, "large %d", (rank + 1) % size);
    ok(kolo_store_get(store, key, &value, &nbytes), "get of a large value");
    memset(large, 'a' + (rank + 1) % size, LARGE);
    check(nbytes == LARGE && !memcmp(value, large, LARGE), "the large value");
    kolo_free(value);
    meet(store, "large", size);
    snprintf(key, sizeof key, "large %d", rank);
    ok(kolo_store_delete(store, key, &was_there), "delete");
    check(was_there, "delete's answer");
    ok(kolo_store_delete(store, key, &was_there), "delete");
    check(!was_there, "delete's second answer");
    free(large);
}

/* What PyTorch's clients of 1.13 have no call for. */
static void be_modern(kolo_store *store, int rank, int size)
{
    static const char *const keys[] = {"r0", "sum"};
    const char *mine = rank % 2 ? "b" : "a";
    void *values[2];
    size_t sizes[2];

    ok(kolo_store_append(store, "log", (kolo_bytes){mine, 1}), "append");
    ok(kolo_store_multi_get(store, keys, 2, values, sizes), "multi_get");
    check(!strcmp(values[0], "value 0") && atoi(values[1]) == size * (size + 1) / 2, "multi_get");
    kolo_free(values[0]);
    kolo_free(values[1]);
}

static void time_out(kolo_store *store)
{
    static const char *const keys[] = {"never", "r0"};
    int64_t nkeys;

    check(kolo_store_wait(store, keys, 2, 100) == KOLO_E_TIMEOUT, "a wait that cannot end");
    check(strstr(kolo_last_error(), "1 of 2 keys") != NULL, "its text");
    expect(store, "r0", "value 0"); /* and the connection is as good as before */
    ok(kolo_store_num_keys(store, &nkeys), "num_keys");
    check(nkeys > 8, "the number of keys");
}

static int serve(void)
{
    kolo_store *store;

    ok(kolo_store_open_tcp("127.0.0.1", 0, 1, TIMEOUT_MS, &store), "serving");
    printf("%d\n", kolo_store_port(store));
    fflush(stdout);
    while (getchar() != EOF)
        continue;
    kolo_store_close(store);
    return 0;
}

static void join(int port, kolo_store **store)
{
    ok(kolo_store_open_tcp("127.0.0.1", port, 0, TIMEOUT_MS, store), "connecting");
    ok(kolo_store_count_in(*store, NULL), "counting in");
}

int main(int argc, char **argv)
{
    kolo_store *store;
    int rank, size;

    if (argc == 2 && !strcmp(argv[1], "server"))
        return serve();
    if (argc != 5)
        return 2;
    rank = atoi(argv[3]);
    size = atoi(argv[4]);
    if (!strcmp(argv[1], "file"))
        ok(kolo_store_open_file(argv[2], size, TIMEOUT_MS, &store), "opening");
    else
        join(atoi(argv[2]), &store);
    see_each_other(store, rank, size);
    elect(store, rank, size);
    send_large(store, rank, size);
    be_modern(store, rank, size);
    time_out(store);
    kolo_store_close(store);
    return 0;
}
