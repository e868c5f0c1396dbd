/* SPDX-License-Identifier: MIT
 *
 * A store in a file that all processes can open, in the format of PyTorch's FileStore. Users' keys
 * have a "/" before them; two others count the processes that have it open and those that have
 * closed it, so that the last one can remove the file.
 */
#include "log.h"
#include "status.h"
#include "store.h"
#include "store_records.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { CLOSE_MS = 3000 };

struct file_store {
    kolo_store store; /* first, so that a store is its file store */
    struct ko_records file;
    int nprocesses; /* < 0: the file is to stay */
};

/* ---- requests ----------------------------------------------------------------------------- */

/* A user's key as it stands in the file. */
static kolo_bytes full_key(kolo_bytes key, char full[KO_STORE_KEY_MAX + 1])
{
    full[0] = '/';
    memcpy(full + 1, key.data, key.nbytes);
    return (kolo_bytes){full, key.nbytes + 1};
}

static bool holds(const struct ko_records *file, kolo_bytes key, kolo_bytes *value)
{
    char full[KO_STORE_KEY_MAX + 1];

    *value = (kolo_bytes){0};
    return ko_table_get(file->table, full_key(key, full), value);
}

static int put_sum(const struct ko_records *file, kolo_bytes raw, int64_t delta,
                   struct ko_buffer *records, int64_t *sum)
{
    kolo_bytes held = {"0", 1};
    char text[24];
    int err;

    ko_table_get(file->table, raw, &held);
    err = ko_table_sum(raw, held, delta, sum);
    if (err)
        return err;
    snprintf(text, sizeof text, "%lld", (long long)*sum);
    return ko_records_put(records, "", raw, (kolo_bytes){text, strlen(text)});
}

static int put_compare_set(const struct ko_records *file, const struct ko_request *request,
                           struct ko_buffer *records, struct ko_reply *reply)
{
    kolo_bytes now, result = request->value;
    bool is_there = holds(file, request->keys[0], &now);

    if (now.nbytes == request->expected.nbytes &&
        (now.nbytes == 0 || !memcmp(now.data, request->expected.data, now.nbytes))) {
        int err = ko_records_put(records, "/", request->keys[0], request->value);

        return err ? err : ko_store_copy(result, &reply->value, &reply->nbytes);
    }
    return ko_store_copy(is_there ? now : request->expected, &reply->value, &reply->nbytes);
}

static int put_append(const struct ko_records *file, const struct ko_request *request,
                      struct ko_buffer *records)
{
    kolo_bytes now, joined;
    void *memory;
    int err;

    holds(file, request->keys[0], &now);
    err = ko_store_join(now, request->value, &memory, &joined);
    if (err)
        return err;
    err = ko_records_put(records, "/", request->keys[0], joined);
    kolo_free(memory);
    return err;
}

/* What a request that writes appends to the file, and its reply. */
static int put_request(const struct ko_records *file, const struct ko_request *request,
                       struct ko_buffer *records, struct ko_reply *reply)
{
    char full[KO_STORE_KEY_MAX + 1];
    kolo_bytes value;
    int err = KOLO_OK;

    switch (request->op) {
    case KO_STORE_SET:
        return ko_records_put(records, "/", request->keys[0], request->value);
    case KO_STORE_MULTI_SET:
        for (size_t i = 0; i < request->nkeys && !err; i++)
            err = ko_records_put(records, "/", request->keys[i], request->values[i]);
        return err;
    case KO_STORE_ADD:
        return put_sum(file, full_key(request->keys[0], full), request->delta, records,
                       &reply->number);
    case KO_STORE_COMPARE_SET:
        return put_compare_set(file, request, records, reply);
    case KO_STORE_APPEND:
        return put_append(file, request, records);
    default: /* DELETE */
        reply->number = holds(file, request->keys[0], &value);
        return reply->number ? ko_records_put(records, "-/", request->keys[0], (kolo_bytes){0})
                             : KOLO_OK;
    }
}

static int write_request(struct ko_records *file, int fd, const struct ko_request *request,
                         struct ko_reply *reply)
{
    struct ko_buffer records = {0};
    struct ko_reply made = {0};
    int err = put_request(file, request, &records, &made);

    if (!err && ko_buffer_fill(&records) > 0)
        err = ko_records_append(file, fd, &records);
    ko_buffer_free(&records);
    if (err)
        kolo_free(made.value);
    else
        *reply = made;
    return err;
}

/* The values of the request's keys, or all keys. */
static int make_list(const struct ko_records *file, const struct ko_request *request,
                     struct ko_reply *reply)
{
    struct ko_table_place place = {0};
    struct ko_buffer list = {0};
    kolo_bytes item = {0};
    int64_t n = ko_table_count(file->table);
    int err = KOLO_OK;

    for (size_t i = 0; i < request->nkeys && !err; i++) {
        holds(file, request->keys[i], &item);
        err = ko_list_put(&list, item);
    }
    while (request->nkeys == 0 && !err && ko_table_next(file->table, &place, &item))
        err = ko_list_put(&list, item);
    if (err) {
        ko_buffer_free(&list);
        return err;
    }
    reply->nbytes = ko_buffer_fill(&list);
    if (request->nkeys == 0)
        reply->number =
            (int64_t)ko_list_strip(list.data, (size_t)n, (kolo_bytes){"/", 1}, &reply->nbytes);
    reply->value = list.data;
    return KOLO_OK;
}

static bool has(const void *file, kolo_bytes key)
{
    kolo_bytes value;

    return holds(file, key, &value);
}

static bool are_there(const struct ko_records *file, const struct ko_request *request)
{
    return ko_store_are_there(request, has, file);
}

static int read_request(const struct ko_records *file, const struct ko_request *request,
                        struct ko_reply *reply)
{
    kolo_bytes value;

    switch (request->op) {
    case KO_STORE_GET:
        holds(file, request->keys[0], &value);
        return ko_store_copy(value, &reply->value, &reply->nbytes);
    case KO_STORE_CHECK:
        reply->number = are_there(file, request);
        return KOLO_OK;
    case KO_STORE_NUM_KEYS:
        reply->number = ko_table_count(file->table);
        return KOLO_OK;
    case KO_STORE_MULTI_GET:
    case KO_STORE_LIST_KEYS:
        return make_list(file, request, reply);
    default: /* WAIT */
        return KOLO_OK;
    }
}

static bool is_waiting(enum ko_store_op op)
{
    return op == KO_STORE_WAIT || op == KO_STORE_GET || op == KO_STORE_MULTI_GET;
}

static int read_when_there(struct ko_records *file, const struct ko_request *request,
                           const ko_deadline *deadline, struct ko_reply *reply)
{
    ko_deadline access = ko_deadline_in(CLOSE_MS); /* a wait of 0 ms must still look */
    int fd;
    int err;

    for (;;) {
        if (access.at_ns < deadline->at_ns)
            access = *deadline;
        err = ko_records_enter(file, LOCK_SH, &access, &fd);
        if (err)
            return err;
        ko_records_leave(fd);
        if (!is_waiting(request->op) || are_there(file, request))
            return read_request(file, request, reply);
        if (ko_deadline_passed(deadline))
            return ko_store_fail_absent(request, has, file, file->where, deadline);
        err = ko_records_wait(file, deadline, "read");
        if (err)
            return err;
    }
}

static int write_once(struct ko_records *file, const struct ko_request *request,
                      const ko_deadline *deadline, struct ko_reply *reply)
{
    int fd;
    int err = ko_records_enter(file, LOCK_EX, deadline, &fd);

    if (err)
        return err;
    err = write_request(file, fd, request, reply);
    ko_records_leave(fd);
    return err;
}

static int carry_out(struct ko_records *file, const struct ko_request *request,
                     const ko_deadline *deadline, struct ko_reply *reply)
{
    switch (request->op) {
    case KO_STORE_SET:
    case KO_STORE_MULTI_SET:
    case KO_STORE_ADD:
    case KO_STORE_COMPARE_SET:
    case KO_STORE_APPEND:
    case KO_STORE_DELETE:
        return write_once(file, request, deadline, reply);
    case KO_STORE_GET:
    case KO_STORE_MULTI_GET:
    case KO_STORE_WAIT:
    case KO_STORE_CHECK:
    case KO_STORE_NUM_KEYS:
    case KO_STORE_LIST_KEYS:
        return read_when_there(file, request, deadline, reply);
    default:
        return ko_fail(KOLO_E_UNSUPPORTED, "%s: a file store has no queues", file->where);
    }
}

/* ---- the store ---------------------------------------------------------------------------- */

static int file_call(kolo_store *store, const struct ko_request *request,
                     const ko_deadline *deadline, struct ko_reply *reply)
{
    struct ko_records *file = &((struct file_store *)store)->file;
    int err;

    pthread_mutex_lock(&file->lock);
    err = carry_out(file, request, deadline, reply);
    pthread_mutex_unlock(&file->lock);
    return err;
}

static int file_clone(kolo_store *store, kolo_store **clone)
{
    ko_store_hold(store);
    *clone = store;
    return KOLO_OK;
}

static void file_stop(kolo_store *store)
{
    struct ko_records *file = &((struct file_store *)store)->file;

    pthread_mutex_lock(&file->lock);
    file->is_stopped = true;
    pthread_mutex_unlock(&file->lock);
}

/* Counts this process in. */
static int come(struct file_store *store, const ko_deadline *deadline)
{
    const kolo_bytes key = {"refcount/", 9};
    struct ko_buffer records = {0};
    int64_t ncame;
    int fd;
    int err = ko_records_enter(&store->file, LOCK_EX, deadline, &fd);

    if (err)
        return err;
    err = put_sum(&store->file, key, 1, &records, &ncame);
    if (!err)
        err = ko_records_append(&store->file, fd, &records);
    ko_buffer_free(&records);
    ko_records_leave(fd);
    return err;
}

/* Counts it out; the last one removes the file. */
static int go(struct file_store *store)
{
    const kolo_bytes came = {"refcount/", 9}, went = {"cleanup/", 8};
    const ko_deadline deadline = ko_deadline_in(CLOSE_MS);
    struct ko_buffer records = {0};
    int64_t nleft = 0, nwent = 0;
    int fd;
    int err = access(store->file.path, F_OK) ? KO_AGAIN : KOLO_OK; /* removed already */

    if (!err)
        err = ko_records_enter(&store->file, LOCK_EX, &deadline, &fd);
    if (err)
        return err;
    err = put_sum(&store->file, went, 1, &records, &nwent);
    if (!err)
        err = put_sum(&store->file, came, -1, &records, &nleft);
    if (!err)
        err = ko_records_append(&store->file, fd, &records);
    if (!err && nleft == 0 && store->nprocesses >= 0 && nwent >= store->nprocesses)
        unlink(store->file.path);
    ko_buffer_free(&records);
    ko_records_leave(fd);
    return err;
}

static void free_records(struct file_store *store)
{
    pthread_mutex_destroy(&store->file.lock);
    ko_table_free(store->file.table);
    free(store);
}

static void file_free(kolo_store *store)
{
    struct file_store *own = (struct file_store *)store;

    pthread_mutex_lock(&own->file.lock);
    own->file.is_stopped = false; /* nobody else is in it any more */
    if (go(own) > 0)
        ko_log(KO_LOG_WARN, "%s stays as it is: %s", own->file.where, kolo_last_error());
    pthread_mutex_unlock(&own->file.lock);
    free_records(own);
}

static int file_port(const kolo_store *store)
{
    (void)store;
    return 0;
}

static int file_own_address(kolo_store *store, char *host, size_t cap)
{
    (void)store;
    if (cap > 0)
        host[0] = '\0';
    return KOLO_OK;
}

static const char *file_where(const kolo_store *store)
{
    return ((const struct file_store *)store)->file.where;
}

static const struct ko_store_ops file_ops = {
    .name = "file",
    .call = file_call,
    .clone = file_clone,
    .stop = file_stop,
    .free = file_free,
    .port = file_port,
    .own_address = file_own_address,
    .where = file_where,
};

static int fail_path(void)
{
    return ko_fail(KOLO_E_INVALID,
                   "a file store needs a path of up to %d bytes and a place for the store",
                   PATH_MAX - 1);
}

/* From the root on, so that it means the same file wherever the process goes later. */
static int take_path(struct ko_records *file, const char *path)
{
    size_t n = 0;

    if (*path != '/') {
        if (!getcwd(file->path, sizeof file->path))
            return ko_fail_errno(errno, "the file store %.400s: the folder that this process is in",
                                 path);
        n = strlen(file->path);
        if (n + 1 + strlen(path) >= sizeof file->path)
            return fail_path();
        file->path[n++] = '/';
    }
    snprintf(file->path + n, sizeof file->path - n, "%s", path);
    snprintf(file->where, sizeof file->where, "the file store %s", file->path);
    return KOLO_OK;
}

static int open_records(struct file_store *store, const char *path, int timeout_ms)
{
    ko_deadline deadline;
    int err;

    pthread_mutex_init(&store->file.lock, NULL);
    err = take_path(&store->file, path);
    if (!err)
        err = ko_table_open(SIZE_MAX, &store->file.table);
    if (!err)
        err = ko_store_init(&store->store, &file_ops, timeout_ms);
    if (err)
        return err;
    deadline = ko_store_deadline(&store->store, -1);
    pthread_mutex_lock(&store->file.lock);
    err = come(store, &deadline);
    pthread_mutex_unlock(&store->file.lock);
    if (err)
        ko_store_uninit(&store->store);
    return err;
}

int kolo_store_open_file(const char *path, int nprocesses, int timeout_ms, kolo_store **store)
{
    struct file_store *own;
    int err;

    if (!path || !*path || !store || strlen(path) >= PATH_MAX)
        return fail_path();
    own = ko_alloc(sizeof *own, "a file store");
    if (!own)
        return KOLO_E_NOMEM;
    own->nprocesses = nprocesses;
    err = open_records(own, path, timeout_ms);
    if (err) {
        free_records(own);
        return err;
    }
    *store = &own->store;
    return KOLO_OK;
}
