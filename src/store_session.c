/* SPDX-License-Identifier: MIT
 *
 * One table says for each opcode which fields follow and who answers it. The scanner walks over the
 * fields as they arrive and remembers its place, so that no byte is looked at twice however a
 * message is cut; only a complete message reaches its function, which then need not check lengths.
 */
#include "store_session.h"

#include "secret.h"
#include "status.h"
#include "store.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { SMALLEST_READ = 4096, LARGEST_READ = 256 << 10, COUNT_NBYTES = 8 };

/* A server's keys carry a "/" more than the user's. */
#define WIRE_KEY_MAX (KO_STORE_KEY_MAX + 1)

struct ko_operation {
    const char *name;
    bool is_list;       /* a 64-bit count, then so many times the fields */
    const char *fields; /* k: key, v: value, 4 and 8: integers of so many bytes */
    /* Answers a complete message, of which args is what follows the opcode. KO_AGAIN: not before
     * session->waiter has been woken, or if that waits for nothing, the client has read more. */
    int (*answer)(struct ko_session *session, const uint8_t *args);
};

/* ---- taking a complete message apart ------------------------------------------------------ */

static uint64_t take_u64(const uint8_t **at)
{
    uint64_t value = ko_wire_u64(*at);

    *at += 8;
    return value;
}

/* ---- replies ------------------------------------------------------------------------------ */

static int reply_u8(struct ko_session *session, uint8_t value)
{
    int err = ko_buffer_reserve(&session->out, 1);

    if (!err)
        ko_buffer_put_u8(&session->out, value);
    return err;
}

static int reply_i64(struct ko_session *session, int64_t value)
{
    int err = ko_buffer_reserve(&session->out, 8);

    if (!err)
        ko_buffer_put_u64(&session->out, (uint64_t)value);
    return err;
}

static int reply_bytes(struct ko_session *session, kolo_bytes bytes)
{
    return ko_list_put(&session->out, bytes);
}

/* ---- the operations ----------------------------------------------------------------------- */

static int answer_validate(struct ko_session *session, const uint8_t *args)
{
    (void)session;
    if (ko_wire_u32(args) != KO_WIRE_MAGIC)
        return ko_fail(KOLO_E_PROTOCOL, "a client's VALIDATE is not that of a TCPStore");
    return KOLO_OK;
}

static int answer_set(struct ko_session *session, const uint8_t *args)
{
    kolo_bytes key = ko_list_next(&args);

    return ko_table_set(session->service->table, key, ko_list_next(&args));
}

static int answer_append(struct ko_session *session, const uint8_t *args)
{
    kolo_bytes key = ko_list_next(&args);

    return ko_table_append(session->service->table, key, ko_list_next(&args));
}

static int answer_compare_set(struct ko_session *session, const uint8_t *args)
{
    kolo_bytes key = ko_list_next(&args);
    kolo_bytes expected = ko_list_next(&args);
    kolo_bytes desired = ko_list_next(&args);
    kolo_bytes held;
    int err = ko_table_compare_set(session->service->table, key, expected, desired, &held);

    return err ? err : reply_bytes(session, held);
}

static int answer_add(struct ko_session *session, const uint8_t *args)
{
    kolo_bytes key = ko_list_next(&args);
    int64_t sum;
    int err = ko_table_add(session->service->table, key, (int64_t)take_u64(&args), &sum);

    return err ? err : reply_i64(session, sum);
}

static int answer_check(struct ko_session *session, const uint8_t *args)
{
    uint64_t n = take_u64(&args);
    bool ready = true;

    for (; n > 0 && ready; n--)
        ready = ko_table_has(session->service->table, ko_list_next(&args));
    return reply_u8(session, ready ? KO_WIRE_READY : KO_WIRE_NOT_READY);
}

/* KOLO_OK if n keys at args are all there, KO_AGAIN once the session waits for them. */
static int wait_for(struct ko_session *session, uint64_t n, const uint8_t *args)
{
    kolo_bytes one;
    kolo_bytes *keys = &one;
    int err;

    if (n == 0)
        return KOLO_OK;
    if (n > 1)
        keys = ko_alloc((size_t)n * sizeof *keys, "the keys of a wait");
    if (!keys)
        return KOLO_E_NOMEM;
    for (uint64_t i = 0; i < n; i++)
        keys[i] = ko_list_next(&args);
    err = ko_table_wait(session->service->table, keys, (size_t)n, &session->waiter);
    if (keys != &one)
        kolo_free(keys);
    return err;
}

static int answer_wait(struct ko_session *session, const uint8_t *args)
{
    uint64_t n = take_u64(&args);
    int err;

    session->waiter.is_popper = session->numbering == KO_WIRE_MODERN; /* 1.13 has no queues */
    err = session->awake ? KOLO_OK : wait_for(session, n, args);
    session->waiter.is_popper = false;
    return err ? err : reply_u8(session, KO_WIRE_STOP_WAITING);
}

/* A key that has a queue alone counts as there for those who wait for it; its value is empty. */
static kolo_bytes value_of(const struct ko_session *session, kolo_bytes key)
{
    kolo_bytes value = {0};

    ko_table_get(session->service->table, key, &value);
    return value;
}

static int answer_get(struct ko_session *session, const uint8_t *args)
{
    int err = wait_for(session, 1, args);

    return err ? err : reply_bytes(session, value_of(session, ko_list_next(&args)));
}

/* The next of the values of a MULTI_GET, which is waited for again if it has been deleted since. */
static int give_next(struct ko_session *session, const uint8_t *keys)
{
    const uint8_t *at = keys + session->scan.given_nbytes;
    int err = wait_for(session, 1, at);

    if (!err)
        err = reply_bytes(session, value_of(session, ko_list_next(&at)));
    if (err)
        return err;
    session->scan.given++;
    session->scan.given_nbytes = (size_t)(at - keys);
    return KOLO_OK;
}

/* However long the values are, they go out as the client reads them: no more is put together at
 * once than another reply may be long. */
static int answer_multi_get(struct ko_session *session, const uint8_t *args)
{
    uint64_t n = take_u64(&args);
    int err = session->scan.given > 0 ? KOLO_OK : wait_for(session, n, args);

    while (!err && session->scan.given < n)
        err = ko_buffer_fill(&session->out) < KO_SESSION_OUTPUT_BOUND ? give_next(session, args)
                                                                      : KO_AGAIN;
    return err;
}

static int answer_multi_set(struct ko_session *session, const uint8_t *args)
{
    uint64_t n = take_u64(&args);
    kolo_bytes key;
    int err = KOLO_OK;

    for (; n > 0 && !err; n--) {
        key = ko_list_next(&args);
        err = ko_table_set(session->service->table, key, ko_list_next(&args));
    }
    return err;
}

static int answer_num_keys(struct ko_session *session, const uint8_t *args)
{
    (void)args;
    return reply_i64(session, ko_table_count(session->service->table));
}

static int answer_delete(struct ko_session *session, const uint8_t *args)
{
    return reply_i64(session, ko_table_delete(session->service->table, ko_list_next(&args)));
}

/* Reached only when nothing waits: the client gave up just when its wait had been answered. */
static int answer_cancel_wait(struct ko_session *session, const uint8_t *args)
{
    (void)args;
    return reply_u8(session, KO_WIRE_WAIT_CANCELED);
}

static int answer_ping(struct ko_session *session, const uint8_t *args)
{
    int err = ko_buffer_reserve(&session->out, 4);

    if (!err)
        ko_buffer_put_u32(&session->out, ko_wire_u32(args));
    return err;
}

static int answer_queue_push(struct ko_session *session, const uint8_t *args)
{
    kolo_bytes key = ko_list_next(&args);

    return ko_table_queue_push(session->service->table, key, ko_list_next(&args));
}

static int answer_queue_pop(struct ko_session *session, const uint8_t *args)
{
    kolo_bytes key = ko_list_next(&args);
    kolo_bytes value = {0};
    int64_t n = ko_table_queue_first(session->service->table, key, &value);
    int err = ko_buffer_reserve(&session->out, 16 + value.nbytes);

    if (err)
        return err;
    ko_buffer_put_u64(&session->out, (uint64_t)n);
    if (n == 0)
        return KOLO_OK;
    ko_buffer_put_bytes(&session->out, value);
    ko_table_queue_pop(session->service->table, key);
    return KOLO_OK;
}

static int answer_queue_len(struct ko_session *session, const uint8_t *args)
{
    kolo_bytes value;

    return reply_i64(session,
                     ko_table_queue_first(session->service->table, ko_list_next(&args), &value));
}

static int answer_list_keys(struct ko_session *session, const uint8_t *args)
{
    const struct ko_table *table = session->service->table;
    struct ko_table_place place = {0};
    kolo_bytes key;
    size_t nbytes = 8;
    int err;

    (void)args;
    while (ko_table_next(table, &place, &key))
        nbytes += 8 + key.nbytes;
    err = ko_buffer_reserve(&session->out, nbytes);
    if (err)
        return err;
    ko_buffer_put_u64(&session->out, (uint64_t)ko_table_count(table));
    for (place = (struct ko_table_place){0}; ko_table_next(table, &place, &key);)
        ko_buffer_put_bytes(&session->out, key);
    return KOLO_OK;
}

static int answer_barrier(struct ko_session *session, const uint8_t *args)
{
    kolo_bytes key = ko_list_next(&args);
    int64_t size = (int64_t)take_u64(&args);
    int err = session->awake
                  ? KOLO_OK
                  : ko_table_barrier(session->service->table, key, size, &session->waiter);

    return err ? err : reply_u8(session, KO_WIRE_STOP_WAITING);
}

static int answer_watch(struct ko_session *session, const uint8_t *args)
{
    int err = ko_table_observe(session->service->table, ko_list_next(&args), &session->observer);

    return err ? err : reply_u8(session, KO_WIRE_WATCHING);
}

static int answer_will(struct ko_session *session, const uint8_t *args)
{
    return ko_will_make(&session->will, &session->service->budget, args);
}

static const struct ko_operation operations[KO_STORE_NOPS] = {
    [KO_STORE_VALIDATE] = {"VALIDATE", false, "4", answer_validate},
    [KO_STORE_SET] = {"SET", false, "kv", answer_set},
    [KO_STORE_COMPARE_SET] = {"COMPARE_SET", false, "kvv", answer_compare_set},
    [KO_STORE_GET] = {"GET", false, "k", answer_get},
    [KO_STORE_ADD] = {"ADD", false, "k8", answer_add},
    [KO_STORE_CHECK] = {"CHECK", true, "k", answer_check},
    [KO_STORE_WAIT] = {"WAIT", true, "k", answer_wait},
    [KO_STORE_NUM_KEYS] = {"GETNUMKEYS", false, "", answer_num_keys},
    [KO_STORE_DELETE] = {"DELETE_KEY", false, "k", answer_delete},
    [KO_STORE_APPEND] = {"APPEND", false, "kv", answer_append},
    [KO_STORE_MULTI_GET] = {"MULTI_GET", true, "k", answer_multi_get},
    [KO_STORE_MULTI_SET] = {"MULTI_SET", true, "kv", answer_multi_set},
    [KO_STORE_CANCEL_WAIT] = {"CANCEL_WAIT", false, "", answer_cancel_wait},
    [KO_STORE_PING] = {"PING", false, "4", answer_ping},
    [KO_STORE_QUEUE_PUSH] = {"QUEUE_PUSH", false, "kv", answer_queue_push},
    [KO_STORE_QUEUE_POP] = {"QUEUE_POP", false, "k", answer_queue_pop},
    [KO_STORE_QUEUE_LEN] = {"QUEUE_LEN", false, "k", answer_queue_len},
    [KO_STORE_LIST_KEYS] = {"LIST_KEYS", false, "", answer_list_keys},
    [KO_STORE_BARRIER] = {"BARRIER", false, "k8", answer_barrier},
    [KO_STORE_WATCH] = {"WATCH_KEY", false, "k", answer_watch},
    [KO_STORE_WILL] = {"WILL", false, "kv", answer_will},
};

/* ---- understanding messages --------------------------------------------------------------- */

/* True if the message has nbytes more; else remembers how many are lacking. */
static bool has(struct ko_session *session, size_t nbytes)
{
    size_t come = ko_buffer_fill(&session->in) - session->scan.at;

    session->scan.need = come < nbytes ? nbytes - come : 0;
    return come >= nbytes;
}

/* Nobody is asked for a token here: the client is told, so that it need not try for long. */
static int refuse_token(struct ko_session *session)
{
    if (!ko_buffer_reserve(&session->out, sizeof ko_refusal)) {
        memcpy(session->out.data + session->out.tail, ko_refusal, sizeof ko_refusal);
        session->out.tail += sizeof ko_refusal;
    }
    return ko_fail(KOLO_E_PROTOCOL, "a client shows a token, and this store has none: the process "
                                    "that serves it needs it too (KOLO_AUTH_TOKEN_FILE)");
}

static int scan_opcode(struct ko_session *session)
{
    struct ko_buffer *in = &session->in;
    int operation;

    if (!has(session, 1))
        return KO_AGAIN;
    if (!session->numbering)
        session->numbering = ko_wire_guess(ko_buffer_bytes(in), ko_buffer_fill(in));
    if (!session->numbering)
        return KO_AGAIN;
    operation = ko_wire_operation(session->numbering, *ko_buffer_bytes(in));
    if (operation < 0 && !session->is_introduced &&
        ko_handshake_is_hello(ko_buffer_bytes(in), ko_buffer_fill(in)))
        return refuse_token(session);
    if (operation < 0)
        return ko_fail(KOLO_E_PROTOCOL, "a client sent opcode %d, which %s", *ko_buffer_bytes(in),
                       session->is_introduced ? "is unknown" : "no TCPStore's client begins with");
    session->scan.operation = &operations[operation];
    session->scan.items = 1;
    session->scan.at = 1;
    return KOLO_OK;
}

static int scan_count(struct ko_session *session)
{
    uint64_t n;

    if (!has(session, COUNT_NBYTES))
        return KO_AGAIN;
    n = ko_wire_u64(ko_buffer_bytes(&session->in) + session->scan.at);
    if (n > KO_STORE_KEYS_MAX)
        return ko_fail(KOLO_E_PROTOCOL, "a client's %s has %llu keys; %zu are the most",
                       session->scan.operation->name, (unsigned long long)n, KO_STORE_KEYS_MAX);
    session->scan.items = n;
    session->scan.at += COUNT_NBYTES;
    return KOLO_OK;
}

/* The size of the next field, which begins at scan.at; KO_AGAIN if too little of it has come. */
static int field_size(struct ko_session *session, size_t *nbytes)
{
    const struct ko_operation *operation = session->scan.operation;
    char field = operation->fields[session->scan.field];
    size_t longest = field == 'k' ? WIRE_KEY_MAX : KO_STORE_VALUE_MAX;
    uint64_t length;

    if (field == '4' || field == '8') {
        *nbytes = field == '4' ? 4 : 8;
        return KOLO_OK;
    }
    if (!has(session, 8))
        return KO_AGAIN;
    length = ko_wire_u64(ko_buffer_bytes(&session->in) + session->scan.at);
    if (length > longest)
        return ko_fail(KOLO_E_PROTOCOL, "a client's %s has a %s of %llu bytes; %zu are the most",
                       operation->name, field == 'k' ? "key" : "value", (unsigned long long)length,
                       longest);
    *nbytes = 8 + (size_t)length;
    return KOLO_OK;
}

static int scan_field(struct ko_session *session)
{
    size_t nbytes = 0;
    int err = field_size(session, &nbytes);

    if (err)
        return err;
    if (session->scan.at + nbytes > KO_SESSION_MESSAGE_MAX)
        return ko_fail(KOLO_E_PROTOCOL, "a client's %s is longer than %zu bytes",
                       session->scan.operation->name, KO_SESSION_MESSAGE_MAX);
    if (!has(session, nbytes))
        return KO_AGAIN;
    session->scan.at += nbytes;
    session->scan.field++;
    if (!session->scan.operation->fields[session->scan.field]) {
        session->scan.field = 0;
        session->scan.items--;
    }
    return KOLO_OK;
}

/* KOLO_OK when the message at in's head is complete, in scan.at bytes. */
static int scan_message(struct ko_session *session)
{
    int err = KOLO_OK;

    if (!session->scan.operation) {
        err = scan_opcode(session);
        if (!err && !*session->scan.operation->fields)
            session->scan.items = 0;
    }
    if (!err && session->scan.operation->is_list && session->scan.at == 1)
        err = scan_count(session);
    while (!err && session->scan.items > 0)
        err = scan_field(session);
    return err;
}

static void next_message(struct ko_session *session)
{
    ko_buffer_consume(&session->in, session->scan.at);
    memset(&session->scan, 0, sizeof session->scan);
    session->deferred = false;
    session->awake = false;
}

/* What a client says next tells whether it was to pop that a queue's value has woken it. */
static int answer_message(struct ko_session *session)
{
    bool is_pop = session->scan.operation == &operations[KO_STORE_QUEUE_POP];
    int err;

    if (!is_pop && !session->deferred)
        ko_session_end_claim(session);
    err = session->scan.operation->answer(session, ko_buffer_bytes(&session->in) + 1);
    if (is_pop)
        ko_session_end_claim(session);
    session->is_introduced = true;
    if (!err)
        next_message(session);
    if (err == KO_AGAIN) {
        session->deferred = true;
        session->awake = !session->waiter.watches;
        err = KOLO_OK;
    }
    return err;
}

/* While a message waits, the only thing to look for behind it is its cancellation, unless a part of
 * the reply is out. */
static int look_for_cancel(struct ko_session *session)
{
    if (session->scan.given > 0 || !has(session, 1))
        return KO_AGAIN;
    if (session->numbering != KO_WIRE_MODERN ||
        ko_buffer_bytes(&session->in)[session->scan.at] != KO_STORE_CANCEL_WAIT)
        return KO_AGAIN;
    ko_table_unwait(session->service->table, &session->waiter);
    next_message(session); /* the CANCEL_WAIT itself is then answered like any message */
    return KOLO_OK;
}

int ko_session_run(struct ko_session *session)
{
    int err = KOLO_OK;

    if (session->is_swamped)
        return ko_fail(KOLO_E_NOMEM, "a client watches keys and does not read of them");
    while (!err && ko_buffer_fill(&session->out) < KO_SESSION_OUTPUT_BOUND) {
        if (session->deferred && !session->awake) {
            err = look_for_cancel(session);
            continue;
        }
        if (!session->deferred)
            err = scan_message(session);
        if (!err)
            err = answer_message(session);
    }
    return err == KO_AGAIN ? KOLO_OK : err;
}

size_t ko_session_wants(const struct ko_session *session)
{
    size_t need = session->scan.need;

    if (ko_buffer_fill(&session->out) >= KO_SESSION_OUTPUT_BOUND)
        return 0;
    if (session->deferred && ko_buffer_fill(&session->in) > session->scan.at)
        return 0;
    if (need < SMALLEST_READ)
        return SMALLEST_READ;
    return need < LARGEST_READ ? need : LARGEST_READ;
}

/* ---- claims ------------------------------------------------------------------------------- */

bool ko_session_has_claim(const struct ko_session *session)
{
    return ko_waiter_has_claim(&session->waiter);
}

void ko_session_end_claim(struct ko_session *session)
{
    if (ko_session_has_claim(session))
        ko_table_unwait(session->service->table, &session->waiter);
}

/* ---- life --------------------------------------------------------------------------------- */

static void wake(struct ko_waiter *waiter)
{
    struct ko_session *session = (struct ko_session *)waiter;

    session->awake = true;
    if (session->woken)
        session->woken(session);
}

static void changed(struct ko_observer *observer, enum ko_change change, kolo_bytes key,
                    kolo_bytes was, kolo_bytes is)
{
    struct ko_session *session =
        (struct ko_session *)(void *)((char *)observer - offsetof(struct ko_session, observer));
    size_t nbytes = 25 + key.nbytes + was.nbytes + is.nbytes;

    session->is_swamped |= ko_buffer_fill(&session->out) > KO_SESSION_UPDATES_BOUND ||
                           ko_buffer_reserve(&session->out, nbytes) != KOLO_OK;
    if (!session->is_swamped) {
        ko_buffer_put_u8(&session->out, (uint8_t)change);
        ko_buffer_put_bytes(&session->out, key);
        ko_buffer_put_bytes(&session->out, was);
        ko_buffer_put_bytes(&session->out, is);
    }
    if (session->woken)
        session->woken(session);
}

void ko_session_open(struct ko_session *session, struct ko_service *service,
                     void (*woken)(struct ko_session *session))
{
    *session = (struct ko_session){
        .waiter.wake = wake, .observer.changed = changed, .service = service, .woken = woken};
    session->in.budget = &service->budget;
    session->out.budget = &service->budget;
}

void ko_session_close(struct ko_session *session)
{
    ko_table_unwait(session->service->table, &session->waiter);
    ko_table_unobserve(session->service->table, &session->observer);
    ko_will_carry_out(&session->will, session->service->table);
    ko_buffer_free(&session->in);
    ko_buffer_free(&session->out);
}
