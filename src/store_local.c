/* SPDX-License-Identifier: MIT
 *
 * A store inside this process: the table under a mutex. A thread that waits for keys sleeps on a
 * condition of its own, so that a set wakes only those whom it concerns.
 */
#include "status.h"
#include "store.h"
#include "store_table.h"
#include "store_wire.h"
#include "thread.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/queue.h>
#include <time.h>

struct sleeper {
    struct ko_waiter waiter; /* first, so that a waiter is its sleeper */
    pthread_cond_t awake;
    bool is_awake;
    LIST_ENTRY(sleeper) link;
};

static const char where[] = "the local store";

struct local_store {
    kolo_store store; /* first, so that a store is its local store */
    pthread_mutex_t lock;
    struct ko_table *table;
    bool is_stopped;
    LIST_HEAD(, sleeper) sleepers;
};

/* ---- waiting, with the lock held ---------------------------------------------------------- */

static bool has(const void *table, kolo_bytes key)
{
    return ko_table_has(table, key);
}

static bool are_there(const struct local_store *local, const struct ko_request *request)
{
    return ko_store_are_there(request, has, local->table);
}

static void wake(struct ko_waiter *waiter)
{
    struct sleeper *sleeper = (struct sleeper *)waiter;

    sleeper->is_awake = true;
    pthread_cond_signal(&sleeper->awake);
}

static int fail_stopped(void)
{
    return ko_fail(KOLO_E_ABORTED, "the local store was closed during the call");
}

/* A sleeper that has been woken to pop keeps its claim. */
static void sleep_until(struct local_store *local, struct sleeper *sleeper,
                        const ko_deadline *deadline)
{
    struct timespec at = ko_deadline_timespec(deadline);

    ko_condition_init(&sleeper->awake);
    LIST_INSERT_HEAD(&local->sleepers, sleeper, link);
    while (!sleeper->is_awake && !local->is_stopped && !ko_deadline_passed(deadline))
        pthread_cond_timedwait(&sleeper->awake, &local->lock, &at);
    LIST_REMOVE(sleeper, link);
    pthread_cond_destroy(&sleeper->awake);
    if (!sleeper->is_awake)
        ko_table_unwait(local->table, &sleeper->waiter);
}

static int wait_as(struct local_store *local, struct sleeper *sleeper,
                   const struct ko_request *request, const ko_deadline *deadline)
{
    int err = ko_table_wait(local->table, request->keys, request->nkeys, &sleeper->waiter);

    if (err != KO_AGAIN)
        return err;
    sleep_until(local, sleeper, deadline);
    if (sleeper->is_awake)
        return KOLO_OK;
    return local->is_stopped ? fail_stopped()
                             : ko_store_fail_absent(request, has, local->table, where, deadline);
}

static int wait_for(struct local_store *local, const struct ko_request *request,
                    const ko_deadline *deadline)
{
    struct sleeper sleeper = {.waiter.wake = wake};

    return wait_as(local, &sleeper, request, deadline);
}

static int barrier(struct local_store *local, const struct ko_request *request,
                   const ko_deadline *deadline)
{
    struct sleeper sleeper = {.waiter.wake = wake};
    int64_t come = -1;
    int err = ko_table_barrier(local->table, request->keys[0], request->delta, &sleeper.waiter);

    if (err != KO_AGAIN)
        return err;
    sleep_until(local, &sleeper, deadline);
    if (sleeper.is_awake)
        return KOLO_OK;
    if (local->is_stopped)
        return fail_stopped();
    (void)ko_table_add(local->table, request->keys[0], 0, &come);
    return ko_store_fail_barrier(request, come, where, deadline);
}

/* ---- requests, with the lock held --------------------------------------------------------- */

/* Until all keys are there, which may be deleted again between a wake and our turn. */
static int wait_for_all(struct local_store *local, const struct ko_request *request,
                        const ko_deadline *deadline)
{
    int err = KOLO_OK;

    while (!err && !are_there(local, request))
        err = wait_for(local, request, deadline);
    return err;
}

/* A key that has a queue alone counts as there; its value is empty. */
static kolo_bytes value_of(const struct local_store *local, kolo_bytes key)
{
    kolo_bytes value = {0};

    ko_table_get(local->table, key, &value);
    return value;
}

static int get(struct local_store *local, const struct ko_request *request,
               const ko_deadline *deadline, struct ko_reply *reply)
{
    int err = wait_for_all(local, request, deadline);

    return err ? err
               : ko_store_copy(value_of(local, request->keys[0]), &reply->value, &reply->nbytes);
}

static int give_list(struct ko_buffer *list, int err, struct ko_reply *reply)
{
    if (err) {
        ko_buffer_free(list);
        return err;
    }
    reply->value = list->data;
    reply->nbytes = ko_buffer_fill(list);
    return KOLO_OK;
}

static int multi_get(struct local_store *local, const struct ko_request *request,
                     const ko_deadline *deadline, struct ko_reply *reply)
{
    struct ko_buffer list = {0};
    int err = wait_for_all(local, request, deadline);

    for (size_t i = 0; i < request->nkeys && !err; i++)
        err = ko_list_put(&list, value_of(local, request->keys[i]));
    return give_list(&list, err, reply);
}

static int list_keys(struct local_store *local, struct ko_reply *reply)
{
    struct ko_table_place place = {0};
    struct ko_buffer list = {0};
    kolo_bytes key;
    int err = KOLO_OK;

    while (!err && ko_table_next(local->table, &place, &key))
        err = ko_list_put(&list, key);
    reply->number = ko_table_count(local->table);
    return give_list(&list, err, reply);
}

static int multi_set(struct local_store *local, const struct ko_request *request)
{
    int err = KOLO_OK;

    for (size_t i = 0; i < request->nkeys && !err; i++)
        err = ko_table_set(local->table, request->keys[i], request->values[i]);
    return err;
}

/* Waits until the queue has a value, which another thread may have taken before our turn comes. */
static int wait_to_pop(struct local_store *local, struct sleeper *sleeper,
                       const struct ko_request *request, const ko_deadline *deadline)
{
    kolo_bytes value;
    int err = KOLO_OK;

    while (!err && ko_table_queue_first(local->table, request->keys[0], &value) == 0) {
        ko_table_unwait(local->table, &sleeper->waiter);
        sleeper->is_awake = false;
        err = are_there(local, request) ? ko_store_fail_no_queue(request)
                                        : wait_as(local, sleeper, request, deadline);
    }
    return err;
}

static int queue_pop(struct local_store *local, const struct ko_request *request,
                     const ko_deadline *deadline, struct ko_reply *reply)
{
    struct sleeper sleeper = {.waiter = {.wake = wake, .is_popper = true}};
    kolo_bytes value;
    int err = wait_to_pop(local, &sleeper, request, deadline);

    if (!err) {
        ko_table_queue_first(local->table, request->keys[0], &value);
        err = ko_store_copy(value, &reply->value, &reply->nbytes);
    }
    if (!err)
        ko_table_queue_pop(local->table, request->keys[0]);
    ko_table_unwait(local->table, &sleeper.waiter);
    return err;
}

static int compare_set(struct local_store *local, const struct ko_request *request,
                       struct ko_reply *reply)
{
    kolo_bytes held;
    int err = ko_table_compare_set(local->table, request->keys[0], request->expected,
                                   request->value, &held);

    return err ? err : ko_store_copy(held, &reply->value, &reply->nbytes);
}

static int carry_out(struct local_store *local, const struct ko_request *request,
                     const ko_deadline *deadline, struct ko_reply *reply)
{
    struct ko_table *table = local->table;
    kolo_bytes first;

    switch (request->op) {
    case KO_STORE_SET:
        return ko_table_set(table, request->keys[0], request->value);
    case KO_STORE_APPEND:
        return ko_table_append(table, request->keys[0], request->value);
    case KO_STORE_ADD:
        return ko_table_add(table, request->keys[0], request->delta, &reply->number);
    case KO_STORE_GET:
        return get(local, request, deadline, reply);
    case KO_STORE_COMPARE_SET:
        return compare_set(local, request, reply);
    case KO_STORE_WAIT:
        return wait_for(local, request, deadline);
    case KO_STORE_CHECK:
        reply->number = are_there(local, request);
        return KOLO_OK;
    case KO_STORE_DELETE:
        reply->number = ko_table_delete(table, request->keys[0]);
        return KOLO_OK;
    case KO_STORE_NUM_KEYS:
        reply->number = ko_table_count(table);
        return KOLO_OK;
    case KO_STORE_MULTI_GET:
        return multi_get(local, request, deadline, reply);
    case KO_STORE_MULTI_SET:
        return multi_set(local, request);
    case KO_STORE_QUEUE_PUSH:
        return ko_table_queue_push(table, request->keys[0], request->value);
    case KO_STORE_QUEUE_POP:
        return queue_pop(local, request, deadline, reply);
    case KO_STORE_QUEUE_LEN:
        reply->number = ko_table_queue_first(table, request->keys[0], &first);
        return KOLO_OK;
    case KO_STORE_LIST_KEYS:
        return list_keys(local, reply);
    case KO_STORE_BARRIER:
        return barrier(local, request, deadline);
    default:
        return ko_fail(KOLO_E_INTERNAL, "the local store has no operation %d", (int)request->op);
    }
}

/* ---- the store ---------------------------------------------------------------------------- */

static int local_call(kolo_store *store, const struct ko_request *request,
                      const ko_deadline *deadline, struct ko_reply *reply)
{
    struct local_store *local = (struct local_store *)store;
    int err;

    pthread_mutex_lock(&local->lock);
    err = local->is_stopped ? fail_stopped() : carry_out(local, request, deadline, reply);
    pthread_mutex_unlock(&local->lock);
    return err;
}

static int local_clone(kolo_store *store, kolo_store **clone)
{
    ko_store_hold(store);
    *clone = store;
    return KOLO_OK;
}

static void local_stop(kolo_store *store)
{
    struct local_store *local = (struct local_store *)store;
    struct sleeper *sleeper;

    pthread_mutex_lock(&local->lock);
    local->is_stopped = true;
    LIST_FOREACH(sleeper, &local->sleepers, link) pthread_cond_signal(&sleeper->awake);
    pthread_mutex_unlock(&local->lock);
}

static void local_free(kolo_store *store)
{
    struct local_store *local = (struct local_store *)store;

    pthread_mutex_destroy(&local->lock);
    ko_table_free(local->table);
    free(local);
}

static int local_port(const kolo_store *store)
{
    (void)store;
    return 0;
}

static int local_own_address(kolo_store *store, char *host, size_t cap)
{
    (void)store;
    if (cap > 0)
        host[0] = '\0';
    return KOLO_OK;
}

static const char *local_where(const kolo_store *store)
{
    (void)store;
    return where;
}

static const struct ko_store_ops local_ops = {
    .name = "local",
    .call = local_call,
    .clone = local_clone,
    .stop = local_stop,
    .free = local_free,
    .port = local_port,
    .own_address = local_own_address,
    .where = local_where,
};

int kolo_store_open_local(kolo_store **store)
{
    struct local_store *local;
    int err;

    if (!store)
        return ko_fail(KOLO_E_INVALID, "the place for the store is NULL");
    local = ko_alloc(sizeof *local, "a local store");
    if (!local)
        return KOLO_E_NOMEM;
    err = ko_table_open(SIZE_MAX, &local->table); /* the process's own memory is the limit */
    if (err)
        goto undo_alloc;
    err = ko_store_init(&local->store, &local_ops, -1);
    if (err)
        goto undo_table;
    pthread_mutex_init(&local->lock, NULL);
    *store = &local->store;
    return KOLO_OK;

undo_table:
    ko_table_free(local->table);
undo_alloc:
    free(local);
    return err;
}
