/* SPDX-License-Identifier: MIT
 *
 * The public calls that came to stores late: on several keys at once, on queues, barriers. A store
 * that has no such operation of its own says KOLO_E_UNSUPPORTED; for most of them a few calls of
 * the older kind do the same.
 */
#include "clock.h"
#include "status.h"
#include "store.h"
#include "store_wire.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

enum { SUFFIX = 16, TOKEN = 32, GRACE_MS = 1000 };

static int fail_null(void)
{
    return ko_fail(KOLO_E_INVALID, "the store, or a place for what it gives, is NULL");
}

/* That a store lacks an operation for which others stand is no failure of the user's call, and
 * leaves the last error as it was. */
static int call_own(kolo_store *store, struct ko_request *request, const char *const *keys,
                    const ko_deadline *deadline, struct ko_reply *reply)
{
    const bool has_list = request->op == KO_STORE_MULTI_GET || request->op == KO_STORE_MULTI_SET;
    char text[KO_ERROR_TEXT];
    int err;

    ko_error_keep(text);
    err = has_list ? ko_store_call_keys(store, request, keys, deadline, reply)
                   : ko_store_call_key(store, request, *keys, deadline, reply);
    return err == KOLO_E_UNSUPPORTED ? ko_fail_again(err, text) : err;
}

/* A key beside key, for what a substitute must remember. */
static int join_suffix(const char *key, const char *suffix, char **joined)
{
    size_t nbytes = strnlen(key, KO_STORE_KEY_MAX + 1) + SUFFIX;

    *joined = ko_alloc(nbytes, "a store's key");
    if (!*joined)
        return KOLO_E_NOMEM;
    snprintf(*joined, nbytes, "%.*s%s", (int)(nbytes - SUFFIX), key, suffix);
    return KOLO_OK;
}

/* ---- append ------------------------------------------------------------------------------- */

/* Makes lock hold token. A compare_set of the value itself would not do: from its answer one who
 * appends the same bytes at the same time cannot be told. */
static int take_lock(kolo_store *store, const char *lock, const char *token,
                     const ko_deadline *deadline)
{
    const struct timespec nap = {.tv_nsec = 1000000};
    struct ko_request take = {.op = KO_STORE_COMPARE_SET, .value = {token, strlen(token)}};
    struct ko_reply reply;
    bool is_mine = false;
    int err;

    for (;;) {
        err = ko_store_call_key(store, &take, lock, deadline, &reply);
        if (err)
            return err;
        is_mine = !strcmp(reply.value, token);
        kolo_free(reply.value);
        if (is_mine)
            return KOLO_OK;
        if (ko_deadline_passed(deadline))
            return ko_fail(KOLO_E_TIMEOUT,
                           "waited %d ms for the lock \"%.64s\" of an append; if its holder has "
                           "died, delete that key",
                           deadline->timeout_ms, lock);
        nanosleep(&nap, NULL);
    }
}

static int append_locked(kolo_store *store, const char *key, kolo_bytes value,
                         const ko_deadline *deadline)
{
    struct ko_request request = {.op = KO_STORE_CHECK};
    struct ko_reply held = {0};
    void *joined = NULL;
    int err = ko_store_call_key(store, &request, key, deadline, &held);

    request.op = KO_STORE_GET;
    if (!err && held.number > 0)
        err = ko_store_call_key(store, &request, key, deadline, &held);
    if (!err)
        err = ko_store_join((kolo_bytes){held.value, held.nbytes}, value, &joined, &request.value);
    request.op = KO_STORE_SET;
    if (!err)
        err = ko_store_call_key(store, &request, key, deadline, &(struct ko_reply){0});
    kolo_free(joined);
    kolo_free(held.value);
    return err;
}

static int append_by_lock(kolo_store *store, const char *key, kolo_bytes value,
                          const ko_deadline *deadline)
{
    struct ko_request release = {.op = KO_STORE_DELETE};
    struct ko_reply reply;
    uint64_t number = (uint64_t)ko_now_ns();
    char token[TOKEN];
    char *lock;
    int released;
    int err = join_suffix(key, "/append", &lock);

    if (err)
        return err;
    if (getrandom(&number, sizeof number, GRND_NONBLOCK) < 0)
        number ^= (uint64_t)(uintptr_t)&number;
    snprintf(token, sizeof token, "%" PRIx64, number);
    err = take_lock(store, lock, token, deadline);
    if (!err) {
        err = append_locked(store, key, value, deadline);
        released = ko_store_call_key(store, &release, lock, deadline, &reply);
        err = err ? err : released;
    }
    kolo_free(lock);
    return err;
}

int kolo_store_append(kolo_store *store, const char *key, kolo_bytes value)
{
    struct ko_request request = {.op = KO_STORE_APPEND, .value = value};
    struct ko_reply reply;
    ko_deadline deadline;
    int err;

    if (!store)
        return fail_null();
    deadline = ko_store_deadline(store, -1);
    err = call_own(store, &request, &key, &deadline, &reply);
    if (err == KOLO_E_UNSUPPORTED)
        err = append_by_lock(store, key, value, &deadline);
    return err;
}

int ko_store_will(kolo_store *store, const char *key, kolo_bytes value)
{
    struct ko_request request = {.op = KO_STORE_WILL, .value = value};
    struct ko_reply reply;
    const ko_deadline deadline = ko_store_deadline(store, -1);

    return ko_store_call_key(store, &request, key, &deadline, &reply);
}

/* ---- several keys ------------------------------------------------------------------------- */

static int take_list(const struct ko_reply *list, size_t n, struct ko_reply *got)
{
    const uint8_t *at = list->value;
    int err = KOLO_OK;

    for (size_t i = 0; i < n && !err; i++)
        err = ko_store_copy(ko_list_next(&at), &got[i].value, &got[i].nbytes);
    return err;
}

static int get_each(kolo_store *store, const char *const *keys, size_t n,
                    const ko_deadline *deadline, struct ko_reply *got)
{
    struct ko_request request = {.op = KO_STORE_GET};
    int err = ko_store_wait_until(store, keys, n, deadline);

    for (size_t i = 0; i < n && !err; i++)
        err = ko_store_call_key(store, &request, keys[i], deadline, &got[i]);
    return err;
}

/* got[i].value is to be freed in any case. */
static int get_all(kolo_store *store, const char *const *keys, size_t n,
                   const ko_deadline *deadline, struct ko_reply *got)
{
    struct ko_request request = {.op = KO_STORE_MULTI_GET, .nkeys = n};
    struct ko_reply list = {0};
    int err = call_own(store, &request, keys, deadline, &list);

    if (err == KOLO_E_UNSUPPORTED)
        return get_each(store, keys, n, deadline, got);
    if (!err)
        err = take_list(&list, n, got);
    kolo_free(list.value);
    return err;
}

int ko_store_multi_get_until(kolo_store *store, const char *const *keys, size_t n,
                             const ko_deadline *deadline, void **values, size_t *nbytes)
{
    struct ko_reply *got;
    int err;

    if (n > KO_STORE_KEYS_MAX)
        return ko_fail(KOLO_E_INVALID, "a call on a store takes up to %zu keys, not %zu",
                       KO_STORE_KEYS_MAX, n);
    got = ko_alloc(n * sizeof *got, "the values of a store's call");
    if (!got)
        return KOLO_E_NOMEM;
    err = get_all(store, keys, n, deadline, got);
    for (size_t i = 0; i < n; i++) {
        if (err) {
            kolo_free(got[i].value);
            continue;
        }
        values[i] = got[i].value;
        nbytes[i] = got[i].nbytes;
    }
    kolo_free(got);
    return err;
}

int kolo_store_multi_get(kolo_store *store, const char *const *keys, size_t nkeys, void **values,
                         size_t *nbytes)
{
    ko_deadline deadline;

    if (!store || (nkeys > 0 && (!values || !nbytes)))
        return fail_null();
    if (nkeys == 0)
        return KOLO_OK;
    deadline = ko_store_deadline(store, -1);
    return ko_store_multi_get_until(store, keys, nkeys, &deadline, values, nbytes);
}

static int set_each(kolo_store *store, const char *const *keys, const kolo_bytes *values, size_t n,
                    const ko_deadline *deadline)
{
    struct ko_request request = {.op = KO_STORE_SET};
    struct ko_reply reply;
    int err = KOLO_OK;

    for (size_t i = 0; i < n && !err; i++) {
        request.value = values[i];
        err = ko_store_call_key(store, &request, keys[i], deadline, &reply);
    }
    return err;
}

int kolo_store_multi_set(kolo_store *store, const char *const *keys, const kolo_bytes *values,
                         size_t nkeys)
{
    struct ko_request request = {.op = KO_STORE_MULTI_SET, .nkeys = nkeys, .values = values};
    struct ko_reply reply;
    ko_deadline deadline;
    int err;

    if (!store || (nkeys > 0 && !values))
        return fail_null();
    if (nkeys == 0)
        return KOLO_OK;
    deadline = ko_store_deadline(store, -1);
    err = call_own(store, &request, keys, &deadline, &reply);
    if (err == KOLO_E_UNSUPPORTED)
        err = set_each(store, keys, values, nkeys, &deadline);
    return err;
}

/* The pointers first, then the text of all keys. */
static int unpack_keys(const struct ko_reply *list, char ***keys)
{
    size_t n = (size_t)list->number;
    char **pointers = ko_alloc(n * sizeof *pointers + list->nbytes + 1, "the keys of a store");
    const uint8_t *from = list->value;
    kolo_bytes key;
    char *at;

    if (!pointers)
        return KOLO_E_NOMEM;
    at = (char *)(pointers + n);
    for (size_t i = 0; i < n; i++) {
        key = ko_list_next(&from);
        pointers[i] = memcpy(at, key.data, key.nbytes);
        at += key.nbytes + 1; /* zero already */
    }
    *keys = pointers;
    return KOLO_OK;
}

int kolo_store_list_keys(kolo_store *store, char ***keys, size_t *nkeys)
{
    struct ko_request request = {.op = KO_STORE_LIST_KEYS};
    struct ko_reply list = {0};
    ko_deadline deadline;
    int err;

    if (!store || !keys || !nkeys)
        return fail_null();
    deadline = ko_store_deadline(store, -1);
    err = ko_store_call(store, &request, &deadline, &list);
    if (!err)
        err = unpack_keys(&list, keys);
    if (!err)
        *nkeys = (size_t)list.number;
    kolo_free(list.value);
    return err;
}

/* ---- queues ------------------------------------------------------------------------------- */

int kolo_store_queue_push(kolo_store *store, const char *key, kolo_bytes value)
{
    struct ko_request request = {.op = KO_STORE_QUEUE_PUSH, .value = value};
    struct ko_reply reply;
    ko_deadline deadline;

    if (!store)
        return fail_null();
    deadline = ko_store_deadline(store, -1);
    return ko_store_call_key(store, &request, key, &deadline, &reply);
}

int kolo_store_queue_pop(kolo_store *store, const char *key, int timeout_ms, void **value,
                         size_t *nbytes)
{
    struct ko_request request = {.op = KO_STORE_QUEUE_POP};
    struct ko_reply reply;
    ko_deadline deadline;
    int err;

    if (!store || !value || !nbytes)
        return fail_null();
    deadline = ko_store_deadline(store, timeout_ms);
    err = ko_store_call_key(store, &request, key, &deadline, &reply);
    if (err)
        return err;
    *value = reply.value;
    *nbytes = reply.nbytes;
    return KOLO_OK;
}

int kolo_store_queue_len(kolo_store *store, const char *key, int64_t *length)
{
    struct ko_request request = {.op = KO_STORE_QUEUE_LEN};
    struct ko_reply reply;
    ko_deadline deadline;
    int err;

    if (!store || !length)
        return fail_null();
    deadline = ko_store_deadline(store, -1);
    err = ko_store_call_key(store, &request, key, &deadline, &reply);
    if (!err)
        *length = reply.number;
    return err;
}

/* ---- barrier ------------------------------------------------------------------------------ */

/* How many have come, instead of the second key, which nobody knows; if the store still answers. */
static int fail_barrier(kolo_store *store, const char *key, int size, const ko_deadline *deadline)
{
    const kolo_bytes bytes = {key, strlen(key)};
    struct ko_request look = {.op = KO_STORE_ADD};
    const ko_deadline grace = ko_deadline_in(GRACE_MS);
    struct ko_reply come;
    char cause[KO_ERROR_TEXT];

    snprintf(cause, sizeof cause, "%s", kolo_last_error());
    if (ko_store_call_key(store, &look, key, &grace, &come))
        return ko_fail_again(KOLO_E_TIMEOUT, cause);
    look = (struct ko_request){.keys = &bytes, .nkeys = 1, .delta = size};
    return ko_store_fail_barrier(&look, come.number, ko_store_where(store), deadline);
}

/* Counts under key; the last one opens the rest by a second key. */
static int barrier_by_add(kolo_store *store, const char *key, int size, const ko_deadline *deadline)
{
    struct ko_request request = {.op = KO_STORE_ADD, .delta = 1};
    ko_deadline own = ko_store_deadline(store, -1);
    struct ko_reply come;
    char *open;
    int err = join_suffix(key, "/open", &open);

    if (err)
        return err;
    err = ko_store_call_key(store, &request, key, &own, &come);
    if (!err && come.number >= size) {
        request.op = KO_STORE_SET;
        err = ko_store_call_key(store, &request, open, &own, &come);
    } else if (!err) {
        request.op = KO_STORE_WAIT;
        err = ko_store_call_key(store, &request, open, deadline, &come);
        if (err == KOLO_E_TIMEOUT)
            err = fail_barrier(store, key, size, deadline);
    }
    kolo_free(open);
    return err;
}

int kolo_store_barrier(kolo_store *store, const char *key, int size, int timeout_ms)
{
    struct ko_request request = {.op = KO_STORE_BARRIER, .delta = size};
    struct ko_reply reply;
    ko_deadline deadline;
    int err;

    if (!store)
        return fail_null();
    if (size < 1)
        return ko_fail(KOLO_E_INVALID, "a barrier of %d cannot be", size);
    deadline = ko_store_deadline(store, timeout_ms);
    err = call_own(store, &request, &key, &deadline, &reply);
    if (err == KOLO_E_UNSUPPORTED)
        err = barrier_by_add(store, key, size, &deadline);
    return err;
}
