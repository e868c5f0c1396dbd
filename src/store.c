/* SPDX-License-Identifier: MIT
 *
 * The public calls: they check the arguments, make a request of them, and hold the handle while a
 * call is inside it.
 */
#include "store.h"

#include "config.h"
#include "status.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* ---- handles ------------------------------------------------------------------------------ */

int ko_store_init(kolo_store *store, const struct ko_store_ops *ops, int timeout_ms)
{
    const bool is_given = timeout_ms >= 0;
    int err = ko_config_timeout(&timeout_ms);

    if (err)
        return err;
    store->is_limit_given = is_given;
    pthread_mutex_init(&store->count_lock, NULL);
    store->ops = ops;
    store->handles = 1;
    store->timeout_ms = timeout_ms;
    return KOLO_OK;
}

void ko_store_uninit(kolo_store *store)
{
    pthread_mutex_destroy(&store->count_lock);
}

void ko_store_hold(kolo_store *store)
{
    pthread_mutex_lock(&store->count_lock);
    store->handles++;
    pthread_mutex_unlock(&store->count_lock);
}

void ko_store_enter(kolo_store *store)
{
    pthread_mutex_lock(&store->count_lock);
    store->calls++;
    pthread_mutex_unlock(&store->count_lock);
}

void ko_store_leave(kolo_store *store)
{
    bool is_last;

    pthread_mutex_lock(&store->count_lock);
    is_last = --store->calls == 0 && store->handles == 0;
    pthread_mutex_unlock(&store->count_lock);
    if (is_last) {
        pthread_mutex_destroy(&store->count_lock);
        store->ops->free(store);
    }
}

void kolo_store_close(kolo_store *store)
{
    bool is_last;

    if (!store)
        return;
    pthread_mutex_lock(&store->count_lock);
    store->calls++; /* closing is a call too: it keeps the memory until stop has returned */
    is_last = --store->handles == 0;
    pthread_mutex_unlock(&store->count_lock);
    if (is_last)
        store->ops->stop(store);
    ko_store_leave(store);
}

int ko_store_timeout(kolo_store *store)
{
    int timeout_ms;

    pthread_mutex_lock(&store->count_lock);
    timeout_ms = store->timeout_ms;
    pthread_mutex_unlock(&store->count_lock);
    return timeout_ms;
}

ko_deadline ko_store_deadline(kolo_store *store, int timeout_ms)
{
    ko_deadline deadline;
    bool is_given = true;

    pthread_mutex_lock(&store->count_lock);
    if (timeout_ms < 0) {
        timeout_ms = store->timeout_ms;
        is_given = store->is_limit_given;
    }
    pthread_mutex_unlock(&store->count_lock);
    deadline = ko_deadline_in(timeout_ms);
    deadline.is_given = is_given;
    return deadline;
}

static void set_limit(kolo_store *store, int timeout_ms, bool is_given)
{
    pthread_mutex_lock(&store->count_lock);
    store->timeout_ms = timeout_ms < 0 ? 0 : timeout_ms;
    store->is_limit_given = is_given;
    pthread_mutex_unlock(&store->count_lock);
}

void ko_store_limit(kolo_store *store, const ko_deadline *deadline)
{
    set_limit(store, ko_deadline_left_ms(deadline), deadline->is_given);
}

void ko_store_limit_as(kolo_store *store, kolo_store *other)
{
    const ko_deadline deadline = ko_store_deadline(other, -1);

    set_limit(store, deadline.timeout_ms, deadline.is_given);
}

void kolo_store_set_timeout(kolo_store *store, int timeout_ms)
{
    if (store)
        set_limit(store, timeout_ms, true);
}

int kolo_store_port(const kolo_store *store)
{
    return store ? store->ops->port(store) : 0;
}

/* ---- for stores and their users inside the library ---------------------------------------- */

int ko_store_call(kolo_store *store, const struct ko_request *request, const ko_deadline *deadline,
                  struct ko_reply *reply)
{
    int err;

    ko_store_enter(store);
    err = store->ops->call(store, request, deadline, reply);
    ko_store_leave(store);
    return err;
}

int ko_store_clone(kolo_store *store, kolo_store **clone)
{
    return store->ops->clone(store, clone);
}

int ko_store_own_address(kolo_store *store, char *host, size_t cap)
{
    return store->ops->own_address(store, host, cap);
}

const char *ko_store_where(const kolo_store *store)
{
    return store->ops->where(store);
}

void ko_store_key_text(kolo_bytes key, char text[KO_STORE_KEY_TEXT])
{
    const char *from = key.data;
    size_t n = key.nbytes < 64 ? key.nbytes : 64;

    for (size_t i = 0; i < n; i++)
        text[i] = from[i] >= ' ' && from[i] <= '~' ? from[i] : '?';
    snprintf(text + n, KO_STORE_KEY_TEXT - n, "%s", key.nbytes > n ? "..." : "");
}

int ko_store_fail_missing(const struct ko_request *request, const bool *missing, const char *where,
                          const ko_deadline *deadline)
{
    char list[280] = "";
    char key[KO_STORE_KEY_TEXT];
    size_t used = 0;
    size_t nmissing = 0;
    size_t nlisted = 0;
    char more[40] = "";
    char what[104];

    for (size_t i = 0; i < request->nkeys; i++) {
        if (missing && !missing[i])
            continue;
        nmissing++;
        ko_store_key_text(request->keys[i], key);
        if (used + strlen(key) + 3 > sizeof list || nlisted + 1 < nmissing)
            continue; /* the first that does not fit ends the list */
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", nlisted ? ", " : "", key);
        nlisted++;
    }
    if (nlisted < nmissing)
        snprintf(more, sizeof more, " and %zu more", nmissing - nlisted);
    if (missing || request->nkeys == 1)
        snprintf(what, sizeof what, "%zu of %zu keys that nobody has set", nmissing,
                 request->nkeys);
    else
        snprintf(what, sizeof what,
                 "%zu keys, and was not told in time which of them nobody has set", request->nkeys);
    return ko_fail(KOLO_E_TIMEOUT,
                   "waited %d ms at %s for %s: %s%s (has every rank started? %s is the limit)",
                   deadline->timeout_ms, where, what, list, more, ko_deadline_source(deadline));
}

bool ko_store_are_there(const struct ko_request *request, ko_store_has *has, const void *place)
{
    for (size_t i = 0; i < request->nkeys; i++)
        if (!has(place, request->keys[i]))
            return false;
    return true;
}

int ko_store_fail_absent(const struct ko_request *request, ko_store_has *has, const void *place,
                         const char *where, const ko_deadline *deadline)
{
    bool *missing = ko_alloc(request->nkeys * sizeof *missing, "the list of missing keys");
    int err;

    for (size_t i = 0; missing && i < request->nkeys; i++)
        missing[i] = !has(place, request->keys[i]);
    err = ko_store_fail_missing(request, missing, where, deadline);
    kolo_free(missing);
    return err;
}

int ko_store_fail_barrier(const struct ko_request *request, int64_t come, const char *where,
                          const ko_deadline *deadline)
{
    char key[KO_STORE_KEY_TEXT];
    char how_many[40] = "not all";

    ko_store_key_text(request->keys[0], key);
    if (come >= 0)
        snprintf(how_many, sizeof how_many, "%lld", (long long)come);
    return ko_fail(KOLO_E_TIMEOUT,
                   "waited %d ms at the barrier \"%s\" of %s: %s of %lld have come "
                   "(%s is the limit)",
                   deadline->timeout_ms, key, where, how_many, (long long)request->delta,
                   ko_deadline_source(deadline));
}

int ko_store_fail_no_queue(const struct ko_request *request)
{
    char key[KO_STORE_KEY_TEXT];

    ko_store_key_text(request->keys[0], key);
    return ko_fail(KOLO_E_INVALID, "queue_pop of key \"%s\": it has a value, not a queue", key);
}

int ko_store_copy(kolo_bytes bytes, void **copy, size_t *nbytes)
{
    char *memory = ko_alloc(bytes.nbytes + 1, "a store's value");

    if (!memory)
        return KOLO_E_NOMEM;
    if (bytes.nbytes > 0)
        memcpy(memory, bytes.data, bytes.nbytes);
    *copy = memory;
    *nbytes = bytes.nbytes;
    return KOLO_OK;
}

/* what: of the append's key, if it is known. */
static int check_joined(const char *what, kolo_bytes head, kolo_bytes tail)
{
    if (head.nbytes + tail.nbytes <= KO_STORE_VALUE_MAX)
        return KOLO_OK;
    return ko_fail(KOLO_E_INVALID, "append%s: %zu bytes to %zu; a value is at most %zu bytes", what,
                   tail.nbytes, head.nbytes, KO_STORE_VALUE_MAX);
}

int ko_store_check_append(kolo_bytes key, kolo_bytes held, kolo_bytes tail)
{
    char text[KO_STORE_KEY_TEXT], what[KO_STORE_KEY_TEXT + 16];

    ko_store_key_text(key, text);
    snprintf(what, sizeof what, " to key \"%s\"", text);
    return check_joined(what, held, tail);
}

int ko_store_join(kolo_bytes head, kolo_bytes tail, void **memory, kolo_bytes *joined)
{
    int err = check_joined("", head, tail);
    char *both = err ? NULL : ko_alloc(head.nbytes + tail.nbytes + 1, "a store's value");

    if (!both)
        return err ? err : KOLO_E_NOMEM;
    if (head.nbytes > 0)
        memcpy(both, head.data, head.nbytes);
    if (tail.nbytes > 0)
        memcpy(both + head.nbytes, tail.data, tail.nbytes);
    *memory = both;
    *joined = (kolo_bytes){both, head.nbytes + tail.nbytes};
    return KOLO_OK;
}

/* ---- arguments ---------------------------------------------------------------------------- */

static int check_key(const char *key, kolo_bytes *checked)
{
    size_t nbytes = key ? strnlen(key, KO_STORE_KEY_MAX + 1) : 0;

    if (nbytes == 0 || nbytes > KO_STORE_KEY_MAX)
        return ko_fail(KOLO_E_INVALID, "a store's key is a string of 1 to %zu bytes, not %s",
                       KO_STORE_KEY_MAX,
                       !key     ? "NULL"
                       : nbytes ? "longer"
                                : "empty");
    *checked = (kolo_bytes){key, nbytes};
    return KOLO_OK;
}

static int check_value(kolo_bytes value)
{
    if (value.nbytes > KO_STORE_VALUE_MAX)
        return ko_fail(KOLO_E_INVALID, "a store's value is at most %zu bytes, not %zu",
                       KO_STORE_VALUE_MAX, value.nbytes);
    if (value.nbytes > 0 && !value.data)
        return ko_fail(KOLO_E_INVALID, "a store's value of %zu bytes has no data", value.nbytes);
    return KOLO_OK;
}

int ko_store_call_key(kolo_store *store, struct ko_request *request, const char *key,
                      const ko_deadline *deadline, struct ko_reply *reply)
{
    kolo_bytes checked;
    int err = check_key(key, &checked);

    if (!err)
        err = check_value(request->value);
    if (!err)
        err = check_value(request->expected);
    if (err)
        return err;
    request->keys = &checked;
    request->nkeys = 1;
    err = ko_store_call(store, request, deadline, reply);
    request->keys = NULL;
    return err;
}

int ko_store_call_keys(kolo_store *store, struct ko_request *request, const char *const *keys,
                       const ko_deadline *deadline, struct ko_reply *reply)
{
    size_t n = request->nkeys;
    kolo_bytes *checked;
    int err = KOLO_OK;

    if (n > KO_STORE_KEYS_MAX || !keys)
        return ko_fail(KOLO_E_INVALID, "a call on a store takes up to %zu keys, not %zu%s",
                       KO_STORE_KEYS_MAX, n, keys ? "" : " at NULL");
    checked = ko_alloc(n * sizeof *checked, "the keys of a store's call");
    if (!checked)
        return KOLO_E_NOMEM;
    for (size_t i = 0; i < n && !err; i++) {
        err = check_key(keys[i], &checked[i]);
        if (!err && request->values)
            err = check_value(request->values[i]);
    }
    request->keys = checked;
    if (!err)
        err = ko_store_call(store, request, deadline, reply);
    request->keys = NULL;
    kolo_free(checked);
    return err;
}

/* With the store's own time-out. */
static int call_one_key(kolo_store *store, struct ko_request *request, const char *key,
                        struct ko_reply *reply)
{
    ko_deadline deadline;

    if (!store)
        return ko_fail(KOLO_E_INVALID, "the store is NULL");
    deadline = ko_store_deadline(store, -1);
    return ko_store_call_key(store, request, key, &deadline, reply);
}

/* ---- the public calls --------------------------------------------------------------------- */

int kolo_store_set(kolo_store *store, const char *key, kolo_bytes value)
{
    struct ko_request request = {.op = KO_STORE_SET, .value = value};
    struct ko_reply reply;

    return call_one_key(store, &request, key, &reply);
}

static int take_value(kolo_store *store, struct ko_request *request, const char *key, void **value,
                      size_t *nbytes)
{
    struct ko_reply reply;
    int err;

    if (!value || !nbytes)
        return ko_fail(KOLO_E_INVALID, "there is no place for the store's value: NULL");
    err = call_one_key(store, request, key, &reply);
    if (err)
        return err;
    *value = reply.value;
    *nbytes = reply.nbytes;
    return KOLO_OK;
}

int kolo_store_get(kolo_store *store, const char *key, void **value, size_t *nbytes)
{
    struct ko_request request = {.op = KO_STORE_GET};

    return take_value(store, &request, key, value, nbytes);
}

int kolo_store_compare_set(kolo_store *store, const char *key, kolo_bytes expected,
                           kolo_bytes desired, void **value, size_t *nbytes)
{
    struct ko_request request = {
        .op = KO_STORE_COMPARE_SET, .expected = expected, .value = desired};

    return take_value(store, &request, key, value, nbytes);
}

int kolo_store_add(kolo_store *store, const char *key, int64_t delta, int64_t *result)
{
    struct ko_request request = {.op = KO_STORE_ADD, .delta = delta};
    struct ko_reply reply;
    int err = call_one_key(store, &request, key, &reply);

    if (!err && result)
        *result = reply.number;
    return err;
}

int kolo_store_delete(kolo_store *store, const char *key, int *was_there)
{
    struct ko_request request = {.op = KO_STORE_DELETE};
    struct ko_reply reply;
    int err = call_one_key(store, &request, key, &reply);

    if (!err && was_there)
        *was_there = reply.number > 0;
    return err;
}

int kolo_store_num_keys(kolo_store *store, int64_t *count)
{
    struct ko_request request = {.op = KO_STORE_NUM_KEYS};
    struct ko_reply reply;
    ko_deadline deadline;
    int err;

    if (!store || !count)
        return ko_fail(KOLO_E_INVALID, "the %s is NULL", store ? "count" : "store");
    deadline = ko_store_deadline(store, -1);
    err = ko_store_call(store, &request, &deadline, &reply);
    if (!err)
        *count = reply.number;
    return err;
}

int kolo_store_check(kolo_store *store, const char *const *keys, size_t nkeys, int *all_exist)
{
    struct ko_request request = {.op = KO_STORE_CHECK, .nkeys = nkeys};
    struct ko_reply reply;
    ko_deadline deadline;
    int err;

    if (!store || !all_exist)
        return ko_fail(KOLO_E_INVALID, "the %s is NULL", store ? "place for the answer" : "store");
    deadline = ko_store_deadline(store, -1);
    err = nkeys == 0 ? KOLO_OK : ko_store_call_keys(store, &request, keys, &deadline, &reply);
    if (!err)
        *all_exist = nkeys == 0 || reply.number > 0;
    return err;
}

int ko_store_wait_until(kolo_store *store, const char *const *keys, size_t n,
                        const ko_deadline *deadline)
{
    struct ko_request request = {.op = KO_STORE_WAIT, .nkeys = n};
    struct ko_reply reply;

    if (!store)
        return ko_fail(KOLO_E_INVALID, "the store is NULL");
    return n == 0 ? KOLO_OK : ko_store_call_keys(store, &request, keys, deadline, &reply);
}

int kolo_store_wait(kolo_store *store, const char *const *keys, size_t nkeys, int timeout_ms)
{
    ko_deadline deadline;

    if (!store)
        return ko_fail(KOLO_E_INVALID, "the store is NULL");
    deadline = ko_store_deadline(store, timeout_ms);
    return ko_store_wait_until(store, keys, nkeys, &deadline);
}
