/* SPDX-License-Identifier: MIT
 *
 * store.h: what stores have in common. A call on a store is a ko_request, and each kind of store is
 * one function that carries requests out: in this process (store_local.c), over TCP (store_tcp.c),
 * in a file (store_file.c), or by another store under longer keys (store_prefix.c). store.c checks
 * the arguments.
 *
 * A handle counts two things: its handles (the user's one and those of prefix stores on top of it)
 * and the calls that are inside it. When the last handle is closed the store stops, which makes
 * every waiting call fail; when the last call has left as well it is freed.
 */
#ifndef KO_STORE_H
#define KO_STORE_H

#include "clock.h"
#include "kolo.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a user may ask for; a server allows one byte more per key, for the "/" before it. */
#define KO_STORE_KEY_MAX ((size_t)8192)
#define KO_STORE_VALUE_MAX ((size_t)8 << 20)
#define KO_STORE_KEYS_MAX ((size_t)131072)

/* The numbers are those of PyTorch 2.2 on the wire, except for WATCH, which only 1.13 has, and
 * WILL, which only kolo has. */
enum ko_store_op {
    KO_STORE_VALIDATE = 0,
    KO_STORE_SET = 1,
    KO_STORE_COMPARE_SET = 2,
    KO_STORE_GET = 3,
    KO_STORE_ADD = 4,
    KO_STORE_CHECK = 5,
    KO_STORE_WAIT = 6,
    KO_STORE_NUM_KEYS = 7,
    KO_STORE_DELETE = 8,
    KO_STORE_APPEND = 9,
    KO_STORE_MULTI_GET = 10,
    KO_STORE_MULTI_SET = 11,
    KO_STORE_CANCEL_WAIT = 12,
    KO_STORE_PING = 13,
    KO_STORE_QUEUE_PUSH = 14,
    KO_STORE_QUEUE_POP = 15,
    KO_STORE_QUEUE_LEN = 16,
    KO_STORE_LIST_KEYS = 17,
    KO_STORE_BARRIER = 18,
    KO_STORE_WATCH = 19,
    KO_STORE_WILL = 20,
    KO_STORE_NOPS
};

struct ko_request {
    enum ko_store_op op;
    const kolo_bytes *keys; /* nkeys of them; one for most */
    size_t nkeys;
    kolo_bytes value;         /* SET, APPEND, QUEUE_PUSH, WILL, and what COMPARE_SET desires */
    kolo_bytes expected;      /* COMPARE_SET */
    const kolo_bytes *values; /* MULTI_SET: nkeys of them */
    int64_t delta;            /* ADD; of a BARRIER the number of those who come */
    bool is_bare;             /* over TCP: its keys are not a user's, and have no "/" before them */
};

struct ko_reply {
    int64_t number; /* ADD: sum, CHECK: 1 or 0, DELETE: keys deleted, NUM_KEYS, LIST_KEYS: keys,
                       QUEUE_LEN: values */
    void *value;    /* GET, COMPARE_SET, QUEUE_POP: to be freed; a NUL follows it. MULTI_GET,
                       LIST_KEYS: one list (store_wire.h), to be freed */
    size_t nbytes;
};

struct ko_store_ops {
    const char *name;
    /* Carries out one request by the deadline. The reply is filled in on success only. A store that
     * has no operation of this kind says KOLO_E_UNSUPPORTED; store_extended.c has a substitute for
     * APPEND, MULTI_GET, MULTI_SET and BARRIER. */
    int (*call)(kolo_store *store, const struct ko_request *request, const ko_deadline *deadline,
                struct ko_reply *reply);
    int (*clone)(kolo_store *store, kolo_store **clone);
    /* Makes calls in progress and to come fail with KOLO_E_ABORTED. */
    void (*stop)(kolo_store *store);
    void (*free)(kolo_store *store);
    int (*port)(const kolo_store *store);
    int (*own_address)(kolo_store *store, char *host, size_t cap);
    const char *(*where)(const kolo_store *store); /* "the store at host:port", for texts */
};

struct kolo_store {
    const struct ko_store_ops *ops;
    pthread_mutex_t count_lock;
    int handles;
    int calls;
    int timeout_ms;
    bool is_limit_given; /* that is no KOLO_TIMEOUT_MS */
};

/* For the makers of stores: an open handle with one reference; timeout_ms < 0: KOLO_TIMEOUT_MS. */
int ko_store_init(kolo_store *store, const struct ko_store_ops *ops, int timeout_ms);
/* Undoes ko_store_init alone, for a maker that fails later. */
void ko_store_uninit(kolo_store *store);

/* One more handle on the same store, to be given back with kolo_store_close. */
void ko_store_hold(kolo_store *store);

/* Keeps the memory of a store, stopped or not, until ko_store_leave. */
void ko_store_enter(kolo_store *store);
void ko_store_leave(kolo_store *store);

int ko_store_timeout(kolo_store *store);
/* timeout_ms from now; negative: the handle's own. */
ko_deadline ko_store_deadline(kolo_store *store, int timeout_ms);
/* From now on the handle's own is what is left of the deadline, or that of another handle. */
void ko_store_limit(kolo_store *store, const ko_deadline *deadline);
void ko_store_limit_as(kolo_store *store, kolo_store *other);

/* Checks the arguments, the request's value too, and calls. */
int ko_store_call_key(kolo_store *store, struct ko_request *request, const char *key,
                      const ko_deadline *deadline, struct ko_reply *reply);
int ko_store_call_keys(kolo_store *store, struct ko_request *request, const char *const *keys,
                       const ko_deadline *deadline, struct ko_reply *reply);

/* Passes a request that is in order to the store's own call. */
int ko_store_call(kolo_store *store, const struct ko_request *request, const ko_deadline *deadline,
                  struct ko_reply *reply);

/* A second, independent handle on the same store, for use by another thread: a TCP store opens a
 * connection of its own (and does not keep the server alive), a local one is shared. */
int ko_store_clone(kolo_store *store, kolo_store **clone);

/* Joins a store that PyTorch serves, which knows no token: none is shown to it. */
int ko_store_join_foreign(const char *host, int port, int timeout_ms, kolo_store **store);

/* When this handle's connection to a server of kolo's has ended, however it did, the server puts
 * value behind what key holds. The last one counts. For stores that are one of kolo's over TCP. */
int ko_store_will(kolo_store *store, const char *key, kolo_bytes value);

/* kolo_store_wait with a deadline. */
int ko_store_wait_until(kolo_store *store, const char *const *keys, size_t n,
                        const ko_deadline *deadline);

/* kolo_store_multi_get with a deadline, n > 0. */
int ko_store_multi_get_until(kolo_store *store, const char *const *keys, size_t n,
                             const ko_deadline *deadline, void **values, size_t *nbytes);

/* The numeric address of this end of the connection to the store, "" for a local store. */
int ko_store_own_address(kolo_store *store, char *host, size_t cap);

/* "the store at host:port", for texts; as long as the store lives. */
const char *ko_store_where(const kolo_store *store);

/* Fails with KOLO_E_TIMEOUT and the request's keys, of which missing[i] is true (missing NULL:
 * nobody knows which). where names the store. */
int ko_store_fail_missing(const struct ko_request *request, const bool *missing, const char *where,
                          const ko_deadline *deadline);

/* For stores that can ask of a key alone whether it is there, place being theirs: whether all of a
 * request's are, and ko_store_fail_missing of those that are not. */
typedef bool ko_store_has(const void *place, kolo_bytes key);
bool ko_store_are_there(const struct ko_request *request, ko_store_has *has, const void *place);
int ko_store_fail_absent(const struct ko_request *request, ko_store_has *has, const void *place,
                         const char *where, const ko_deadline *deadline);

/* As ko_store_fail_missing, of a barrier to which come of size have come; come < 0: nobody knows.
 */
int ko_store_fail_barrier(const struct ko_request *request, int64_t come, const char *where,
                          const ko_deadline *deadline);

/* KOLO_E_INVALID: the key of a queue_pop has a value. */
int ko_store_fail_no_queue(const struct ko_request *request);

/* At most 64 printable characters of a key, "..." at the end if it is longer. */
#define KO_STORE_KEY_TEXT 68
void ko_store_key_text(kolo_bytes key, char text[KO_STORE_KEY_TEXT]);

/* KOLO_E_INVALID if key's value, to which tail is appended, becomes longer than one may be. */
int ko_store_check_append(kolo_bytes key, kolo_bytes held, kolo_bytes tail);
/* *joined is both, in memory that is to be freed; KOLO_E_INVALID if it is longer than a value may
 * be. */
int ko_store_join(kolo_bytes head, kolo_bytes tail, void **memory, kolo_bytes *joined);

/* Copies bytes to memory of the caller's, a NUL after them. */
int ko_store_copy(kolo_bytes bytes, void **copy, size_t *nbytes);

#endif
