/* SPDX-License-Identifier: MIT
 *
 * A store on top of another: every key gets "prefix/" before it, all else passes through.
 */
#include "status.h"
#include "store.h"
#include "store_wire.h"

#include <stdlib.h>
#include <string.h>

struct prefix_store {
    kolo_store store; /* first, so that a store is its prefix store */
    kolo_store *base;
    size_t prefix_nbytes; /* the "/" included */
    char prefix[];
};

/* *joined is the request's keys with the prefix put before them, in one piece of memory. */
static int join_keys(const struct prefix_store *prefix, const struct ko_request *request,
                     kolo_bytes **joined)
{
    size_t nbytes = request->nkeys * sizeof(kolo_bytes);
    kolo_bytes *keys;
    char *at;

    for (size_t i = 0; i < request->nkeys; i++) {
        if (request->keys[i].nbytes + prefix->prefix_nbytes > KO_STORE_KEY_MAX)
            return ko_fail(KOLO_E_INVALID,
                           "a key of %zu bytes after a prefix of %zu: %zu are the most",
                           request->keys[i].nbytes, prefix->prefix_nbytes, KO_STORE_KEY_MAX);
        nbytes += request->keys[i].nbytes + prefix->prefix_nbytes;
    }
    keys = ko_alloc(nbytes, "the keys of a store's call");
    if (!keys)
        return KOLO_E_NOMEM;
    at = (char *)(keys + request->nkeys);
    for (size_t i = 0; i < request->nkeys; i++) {
        keys[i] = (kolo_bytes){at, prefix->prefix_nbytes + request->keys[i].nbytes};
        memcpy(at, prefix->prefix, prefix->prefix_nbytes);
        memcpy(at + prefix->prefix_nbytes, request->keys[i].data, request->keys[i].nbytes);
        at += keys[i].nbytes;
    }
    *joined = keys;
    return KOLO_OK;
}

static int list_own_keys(const struct prefix_store *prefix, const struct ko_request *request,
                         const ko_deadline *deadline, struct ko_reply *reply)
{
    const kolo_bytes start = {prefix->prefix, prefix->prefix_nbytes};
    int err = ko_store_call(prefix->base, request, deadline, reply);

    if (!err)
        reply->number =
            (int64_t)ko_list_strip(reply->value, (size_t)reply->number, start, &reply->nbytes);
    return err;
}

static int prefix_call(kolo_store *store, const struct ko_request *request,
                       const ko_deadline *deadline, struct ko_reply *reply)
{
    struct prefix_store *prefix = (struct prefix_store *)store;
    struct ko_request joined = *request;
    kolo_bytes *keys = NULL;
    int err;

    if (request->op == KO_STORE_LIST_KEYS)
        return list_own_keys(prefix, request, deadline, reply);
    if (request->nkeys == 0)
        return ko_store_call(prefix->base, request, deadline, reply);
    err = join_keys(prefix, request, &keys);
    if (err)
        return err;
    joined.keys = keys;
    err = ko_store_call(prefix->base, &joined, deadline, reply);
    kolo_free(keys);
    return err;
}

static int open_over(kolo_store *base, const char *text, size_t nbytes, kolo_store **store);

/* Over a clone of the base, so that a thread that waits there keeps nobody out. */
static int prefix_clone(kolo_store *store, kolo_store **clone)
{
    struct prefix_store *prefix = (struct prefix_store *)store;
    kolo_store *base;
    int err = ko_store_clone(prefix->base, &base);

    if (err)
        return err;
    err = open_over(base, prefix->prefix, prefix->prefix_nbytes - 1, clone);
    kolo_store_close(base); /* the new one holds it */
    return err;
}

/* The base stops if this was its last handle. Its memory stays until our own calls have left. */
static void prefix_stop(kolo_store *store)
{
    kolo_store_close(((struct prefix_store *)store)->base);
}

static void prefix_free(kolo_store *store)
{
    ko_store_leave(((struct prefix_store *)store)->base);
    free(store);
}

static int prefix_port(const kolo_store *store)
{
    return kolo_store_port(((const struct prefix_store *)store)->base);
}

static int prefix_own_address(kolo_store *store, char *host, size_t cap)
{
    return ko_store_own_address(((struct prefix_store *)store)->base, host, cap);
}

static const char *prefix_where(const kolo_store *store)
{
    return ko_store_where(((const struct prefix_store *)store)->base);
}

static const struct ko_store_ops prefix_ops = {
    .name = "prefix",
    .call = prefix_call,
    .clone = prefix_clone,
    .stop = prefix_stop,
    .free = prefix_free,
    .port = prefix_port,
    .own_address = prefix_own_address,
    .where = prefix_where,
};

static int open_over(kolo_store *base, const char *text, size_t nbytes, kolo_store **store)
{
    struct prefix_store *prefix = ko_alloc(sizeof *prefix + nbytes + 1, "a prefix store");
    int err;

    if (!prefix)
        return KOLO_E_NOMEM;
    err = ko_store_init(&prefix->store, &prefix_ops, ko_store_timeout(base));
    if (err) {
        free(prefix);
        return err;
    }
    ko_store_limit_as(&prefix->store, base);
    memcpy(prefix->prefix, text, nbytes);
    prefix->prefix[nbytes] = '/';
    prefix->prefix_nbytes = nbytes + 1;
    prefix->base = base;
    ko_store_hold(base);
    ko_store_enter(base);
    *store = &prefix->store;
    return KOLO_OK;
}

int kolo_store_open_prefix(kolo_store *base, const char *prefix, kolo_store **store)
{
    size_t nbytes = prefix ? strnlen(prefix, KO_STORE_KEY_MAX) : 0;

    if (!base || !prefix || !store)
        return ko_fail(KOLO_E_INVALID, "a prefix store needs a base, a prefix and a place for the "
                                       "store; one of them is NULL");
    if (nbytes + 1 >= KO_STORE_KEY_MAX)
        return ko_fail(KOLO_E_INVALID, "a store's prefix is at most %zu bytes",
                       KO_STORE_KEY_MAX - 2);
    return open_over(base, prefix, nbytes, store);
}
