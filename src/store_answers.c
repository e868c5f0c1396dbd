/* SPDX-License-Identifier: MIT
 *
 * What each operation does with the table, and says to its client.
 */
#include "store_answers.h"

#include "status.h"
#include "store.h"
#include "store_large.h"
#include "store_output.h"

#include <string.h>

/* What looking into one counts of a turn. */
enum { PER_BUCKET = 16 };

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
    int err = ko_output_reserve(session, 1);

    if (!err)
        ko_buffer_put_u8(&session->out, value);
    return err;
}

static int reply_i64(struct ko_session *session, int64_t value)
{
    int err = ko_output_reserve(session, 8);

    if (!err)
        ko_buffer_put_u64(&session->out, (uint64_t)value);
    return err;
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
    return ko_large_put(session, &args, ko_table_set_made);
}

static int answer_append(struct ko_session *session, const uint8_t *args)
{
    kolo_bytes key = ko_list_next(&args);

    return ko_large_append(session, key, ko_list_next(&args));
}

/* An absent key compares as empty; then what was expected is the answer. */
static int answer_compare_set(struct ko_session *session, const uint8_t *args)
{
    kolo_bytes key = ko_list_next(&args);
    kolo_bytes expected = ko_list_next(&args);
    kolo_bytes desired = ko_list_next(&args);
    kolo_bytes held;
    int err = KOLO_OK;

    if (session->giving.is_on && !session->giving.view)
        return ko_large_go_on(session, expected.data);
    if (session->giving.is_on)
        return ko_large_give_value(session, key);
    if (expected.nbytes > KO_LARGE_FROM || desired.nbytes > KO_LARGE_FROM)
        err = ko_large_compare_set(session, key, expected, desired);
    else
        err = ko_table_compare_set(session->service->table, key, expected, desired, &held);
    if (err)
        return err;
    if (ko_table_get(session->service->table, key, &held))
        return ko_large_give_value(session, key);
    return ko_large_give(session, NULL, expected);
}

static int answer_add(struct ko_session *session, const uint8_t *args)
{
    kolo_bytes key = ko_list_next(&args);
    int64_t sum;
    int err = ko_table_add(session->service->table, key, (int64_t)take_u64(&args), &sum);

    return err ? err : reply_i64(session, sum);
}

/* What is next of a list whose items begin at items. */
static const uint8_t *next_item(const struct ko_session *session, const uint8_t *items)
{
    return items + session->scan.done_nbytes;
}

/* An item, which ends at at, has been dealt with. */
static void finish_item(struct ko_session *session, const uint8_t *items, const uint8_t *at)
{
    size_t nbytes = (size_t)(at - items);

    ko_session_spend(session, nbytes - session->scan.done_nbytes);
    session->scan.done++;
    session->scan.done_nbytes = nbytes;
}

static void rewind_items(struct ko_session *session)
{
    session->scan.done = 0;
    session->scan.done_nbytes = 0;
}

static int answer_check(struct ko_session *session, const uint8_t *args)
{
    uint64_t n = take_u64(&args);
    bool ready = true;
    const uint8_t *at;

    while (session->scan.done < n && ready) {
        if (session->left <= 0)
            return KO_AGAIN;
        at = next_item(session, args);
        ready = ko_table_has(session->service->table, ko_list_next(&at));
        finish_item(session, args, at);
    }
    return reply_u8(session, ready ? KO_WIRE_READY : KO_WIRE_NOT_READY);
}

/* KOLO_OK if the key at args is there, KO_AGAIN once the session waits for it. */
static int wait_for_one(struct ko_session *session, const uint8_t *args)
{
    kolo_bytes key = ko_list_next(&args);

    return ko_table_wait(session->service->table, &key, 1, &session->waiter);
}

static int wait_if_absent(struct ko_session *session, kolo_bytes key, size_t left)
{
    struct ko_table *table = session->service->table;

    return ko_table_has(table, key) ? KOLO_OK
                                    : ko_table_wait_for(table, key, left, &session->waiter);
}

/* KOLO_OK if n keys at keys are all there, or those have come that were not; KO_AGAIN once the
 * session waits for them, or its turn is over. */
static int wait_for_all(struct ko_session *session, uint64_t n, const uint8_t *keys)
{
    const uint8_t *at;
    int err = KOLO_OK;

    while (session->scan.done < n && !err) {
        if (session->left <= 0)
            return KO_AGAIN;
        at = next_item(session, keys);
        err = wait_if_absent(session, ko_list_next(&at), (size_t)(n - session->scan.done));
        finish_item(session, keys, at);
    }
    return err || !session->waiter.is_held
               ? err
               : ko_table_wait_end(session->service->table, &session->waiter);
}

static int answer_wait(struct ko_session *session, const uint8_t *args)
{
    uint64_t n = take_u64(&args);
    int err;

    /* One that waits for two keys pops none of them; old clients have no queues. */
    session->waiter.is_popper = session->numbering == KO_WIRE_MODERN && n == 1;
    err = wait_for_all(session, n, args);
    session->waiter.is_popper = false;
    return err ? err : reply_u8(session, KO_WIRE_STOP_WAITING);
}

/* Of an absent key, a client of today gets an empty value at once, as of PyTorch's server: it has
 * waited for the key before, and if that has been deleted since it may never come. */
static int answer_get(struct ko_session *session, const uint8_t *args)
{
    bool is_answered = session->giving.is_on || session->numbering == KO_WIRE_MODERN;
    int err = is_answered ? KOLO_OK : wait_for_one(session, args);

    return err ? err : ko_large_give_value(session, ko_list_next(&args));
}

/* The next of the values of a MULTI_GET, which is waited for again if it has been deleted since. */
static int give_next(struct ko_session *session, const uint8_t *keys)
{
    const uint8_t *at = next_item(session, keys);
    const size_t fill = ko_output_nbytes(session);
    int err = session->giving.is_on ? KOLO_OK : wait_for_one(session, at);

    if (!err)
        err = ko_large_give_value(session, ko_list_next(&at));
    if (err)
        return err;
    ko_session_spend(session, ko_output_nbytes(session) - fill);
    finish_item(session, keys, at);
    return KOLO_OK;
}

/* True if it may be gone on with within this turn: however long a reply is, it goes out as the
 * client reads it, and no more is put together at once than another reply may be long. */
static bool may_give(const struct ko_session *session)
{
    return session->left > 0 &&
           (session->giving.is_on || ko_output_nbytes(session) < KO_SESSION_OUTPUT_BOUND);
}

/* When those that were absent have come, all keys are looked at again. */
static int answer_multi_get(struct ko_session *session, const uint8_t *args)
{
    uint64_t n = take_u64(&args);
    int err = KOLO_OK;

    if (!session->scan.is_giving) {
        if (session->scan.done == n)
            rewind_items(session);
        err = wait_for_all(session, n, args);
        if (err)
            return err;
        session->scan.is_giving = true;
        rewind_items(session);
    }
    while (!err && session->scan.done < n)
        err = may_give(session) ? give_next(session, args) : KO_AGAIN;
    return err;
}

static int answer_multi_set(struct ko_session *session, const uint8_t *args)
{
    uint64_t n = take_u64(&args);
    const uint8_t *at;
    int err;

    while (session->scan.done < n) {
        if (session->left <= 0)
            return KO_AGAIN;
        at = next_item(session, args);
        err = ko_large_put(session, &at, ko_table_set_made);
        if (err)
            return err;
        finish_item(session, args, at);
    }
    return KOLO_OK;
}

static int answer_num_keys(struct ko_session *session, const uint8_t *args)
{
    (void)args;
    return reply_i64(session, ko_table_count(session->service->table));
}

static int answer_delete(struct ko_session *session, const uint8_t *args)
{
    bool was_there = true;

    if (!session->dropping)
        was_there = ko_table_delete_leaving(session->service->table, ko_list_next(&args),
                                            &session->dropping);
    return ko_session_drop_some(session) ? reply_i64(session, was_there) : KO_AGAIN;
}

/* Reached only when nothing waits: the client gave up just when its wait had been answered. */
static int answer_cancel_wait(struct ko_session *session, const uint8_t *args)
{
    (void)args;
    return reply_u8(session, KO_WIRE_WAIT_CANCELED);
}

static int answer_ping(struct ko_session *session, const uint8_t *args)
{
    int err = ko_output_reserve(session, 4);

    if (!err)
        ko_buffer_put_u32(&session->out, ko_wire_u32(args));
    return err;
}

static int answer_queue_push(struct ko_session *session, const uint8_t *args)
{
    return ko_large_put(session, &args, ko_table_queue_push_made);
}

static int answer_queue_pop(struct ko_session *session, const uint8_t *args)
{
    struct ko_table *table = session->service->table;
    kolo_bytes key = ko_list_next(&args);
    kolo_bytes value = {0};
    struct ko_view *view = NULL;
    int64_t n;
    int err;

    if (session->giving.is_on)
        return ko_large_give_value(session, key);
    n = ko_table_queue_first(table, key, &value);
    err = ko_output_reserve(session, 16);
    if (!err && value.nbytes > KO_LARGE_FROM)
        view = ko_table_queue_take(table, key);
    if (!err && !view)
        err = ko_output_reserve(session, 16 + value.nbytes);
    if (err)
        return err;
    ko_buffer_put_u64(&session->out, (uint64_t)n);
    if (view)
        return ko_large_give(session, view, value);
    if (n == 0)
        return KOLO_OK;
    ko_buffer_put_bytes(&session->out, value);
    ko_table_queue_pop(table, key);
    return KOLO_OK;
}

static int answer_queue_len(struct ko_session *session, const uint8_t *args)
{
    kolo_bytes value;

    return reply_i64(session,
                     ko_table_queue_first(session->service->table, ko_list_next(&args), &value));
}

/* What the keys that are to come may take, by those that have. */
static void expect_keys(struct ko_session *session)
{
    struct ko_buffer *keys = &session->listing.keys;
    const size_t fill = ko_buffer_fill(keys);
    const int64_t left = ko_table_count(session->service->table) - (int64_t)session->scan.done;

    if (fill > 2 * KO_LARGE_FROM && ko_buffer_stay(keys))
        return;
    if (fill > KO_LARGE_FROM && keys->expected == 0 && left > 0)
        ko_buffer_expect(keys, fill / session->scan.done * (size_t)left * 9 / 8 + fill);
}

static int list_key(void *context, kolo_bytes key)
{
    struct ko_session *session = context;

    ko_session_spend(session, key.nbytes);
    expect_keys(session);
    session->scan.done++;
    return ko_list_put(&session->listing.keys, key);
}

/* The number of keys, which comes first, is known when all of them have been visited. */
static int list_keys(struct ko_session *session)
{
    const struct ko_table *table = session->service->table;
    int err = KO_AGAIN;

    while (err == KO_AGAIN && session->left > 0) {
        session->left -= PER_BUCKET;
        err = ko_table_visit(table, &session->listing.place, list_key, session);
    }
    if (!err)
        err = reply_i64(session, (int64_t)session->scan.done);
    session->listing.is_whole = !err;
    return err;
}

static int give_keys(struct ko_session *session)
{
    struct ko_buffer *keys = &session->listing.keys;
    const size_t fill = ko_buffer_fill(keys);
    const size_t part = fill < KO_LARGE_FROM ? fill : KO_LARGE_FROM;
    int err = ko_output_reserve(session, part);

    if (err)
        return err;
    memcpy(session->out.data + session->out.tail, ko_buffer_bytes(keys), part);
    session->out.tail += part;
    ko_buffer_consume(keys, part);
    ko_session_spend(session, part);
    return KOLO_OK;
}

static int answer_list_keys(struct ko_session *session, const uint8_t *args)
{
    int err = session->listing.is_whole ? KOLO_OK : list_keys(session);

    (void)args;
    while (!err && ko_buffer_fill(&session->listing.keys) > 0)
        err = may_give(session) ? give_keys(session) : KO_AGAIN;
    if (!err)
        session->listing.is_whole = false;
    return err;
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
    return ko_will_make(session, args, session->scan.at - 1);
}

const struct ko_operation ko_operations[KO_STORE_NOPS] = {
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
