/* SPDX-License-Identifier: MIT
 *
 * The store: where processes that know nothing of each other meet. It maps keys to bytes; one
 * process serves it, all others connect to it. A value can be waited for, so whoever comes too
 * early waits, and a number can be added to, which gives everybody another result: that is how one
 * can become rank 0 without being told so. Groups use the store to find each other, and so may you.
 *
 *     kolorun -n 3 build/bin/01_store
 */
#include <kolo.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, kolo_last_error());
    return 1;
}

/* kolorun says where its store is, as torchrun does. Here all connect to it under a prefix, which
 * keeps our keys apart from kolo's. */
static int open_store(kolo_store **store)
{
    const char *host = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT");
    const char *rank = getenv("RANK"), *size = getenv("WORLD_SIZE");

    if (!host || !port || !rank || !size) {
        fprintf(stderr, "start this with kolorun -n 3\n");
        exit(2);
    }
    return kolo_store_open_tcp(host, atoi(port), !strcmp(rank, "0"), 20000, store);
}

int main(void)
{
    kolo_store *base, *store;
    int64_t ticket, left;
    size_t nbytes;
    void *word;

    if (open_store(&base) || kolo_store_open_prefix(base, "lesson", &store))
        return fail("opening the store");

    /* Each process gets another number: 1, 2, 3, in the order in which they come. */
    if (kolo_store_add(store, "tickets", 1, &ticket))
        return fail("add");
    if (ticket == 1 && kolo_store_set(store, "word", (kolo_bytes){"kolo", 4}))
        return fail("set");

    /* get waits until the key exists. */
    if (kolo_store_get(store, "word", &word, &nbytes))
        return fail("get");
    printf("ticket %d: the word is %s, of %zu bytes\n", (int)ticket, (char *)word, nbytes);
    kolo_free(word);

    /* The server must not leave before everybody has read: the last one out sets a key. */
    if (kolo_store_add(store, "left", 1, &left) ||
        (left == atoi(getenv("WORLD_SIZE")) && kolo_store_set(store, "out", (kolo_bytes){"", 0})) ||
        (!strcmp(getenv("RANK"), "0") &&
         kolo_store_wait(store, (const char *const[]){"out"}, 1, -1)))
        return fail("leaving");
    kolo_store_close(store);
    kolo_store_close(base);
    return 0;
}
