/* SPDX-License-Identifier: MIT
 *
 * The scanner walks over a message's fields as they arrive and remembers its place, so that no byte
 * is looked at twice however a message is cut; only a complete message reaches its function, which
 * then need not check lengths.
 */
#include "store_session.h"

#include "secret.h"
#include "status.h"
#include "store.h"
#include "store_answers.h"
#include "store_large.h"
#include "store_output.h"
#include "store_updates.h"

#include <string.h>

enum { SMALLEST_READ = 4096, LARGEST_READ = KO_SESSION_READ_MOST, COUNT_NBYTES = 8 };
/* STAYS_FROM: so long a rest is given back in turns. */
enum { EXPECTED_FROM = 64 << 10, STAYS_FROM = 1 << 20 };

/* What is done in a turn, and what parts of it count, in nanoseconds of a usual machine, about. */
enum { TURN = 8192, PER_FIELD = 16, PER_ITEM = 256, BYTES_PER_NS = 4 };

/* A server's keys carry a "/" more than the user's. */
#define WIRE_KEY_MAX (KO_STORE_KEY_MAX + 1)

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
    if (!ko_output_reserve(session, sizeof ko_refusal)) {
        memcpy(session->out.data + session->out.tail, ko_refusal, sizeof ko_refusal);
        session->out.tail += sizeof ko_refusal;
    }
    return ko_fail(KOLO_E_PROTOCOL, "a client shows a token, and this store has none: the process "
                                    "that serves it needs it too (KOLO_AUTH_TOKEN_FILE)");
}

static bool has_other_half(struct ko_session *session, enum ko_half half)
{
    return session->service->has_other_half && session->service->has_other_half(session, half);
}

/* What an opcode means, which may tell of which release an old client is. */
static int operation_of(struct ko_session *session, uint8_t opcode)
{
    int operation = ko_wire_operation(session->numbering, opcode);

    if (session->numbering != KO_WIRE_OLD || operation < KO_STORE_DELETE ||
        operation == KO_STORE_APPEND)
        return operation;
    if (operation == KO_STORE_DELETE && !session->is_introduced &&
        has_other_half(session, KO_HALF_SECOND))
        session->numbering = KO_WIRE_1_13;
    else
        session->numbering = KO_WIRE_2_1;
    return ko_wire_operation(session->numbering, opcode);
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
    operation = operation_of(session, *ko_buffer_bytes(in));
    if (operation < 0 && !session->is_introduced &&
        ko_handshake_is_hello(ko_buffer_bytes(in), ko_buffer_fill(in)))
        return refuse_token(session);
    if (operation < 0)
        return ko_fail(KOLO_E_PROTOCOL, "a client sent opcode %d, which %s", *ko_buffer_bytes(in),
                       session->is_introduced ? "is unknown" : "no TCPStore's client begins with");
    session->scan.operation = &ko_operations[operation];
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

/* So much of a message has come that the rest of a field may be expected; of a list nobody knows
 * how much is to come. */
static int wait_for_rest(struct ko_session *session)
{
    struct ko_buffer *in = &session->in;

    if (ko_buffer_fill(in) < EXPECTED_FROM)
        return KO_AGAIN;
    if ((!session->scan.operation->is_list && session->scan.need < STAYS_FROM) ||
        !ko_buffer_stay(in))
        ko_buffer_expect(in, session->scan.need + SMALLEST_READ);
    return KO_AGAIN;
}

static int scan_field(struct ko_session *session)
{
    size_t nbytes = 0;
    int err = field_size(session, &nbytes);

    if (err)
        return err;
    if (!has(session, nbytes))
        return wait_for_rest(session);
    session->scan.at += nbytes;
    session->scan.field++;
    if (!session->scan.operation->fields[session->scan.field]) {
        session->scan.field = 0;
        session->scan.items--;
    }
    return KOLO_OK;
}

bool ko_session_is_unsure(const struct ko_session *session)
{
    return session->numbering == KO_WIRE_OLD &&
           session->scan.operation == &ko_operations[KO_STORE_APPEND] && session->scan.field == 1;
}

/* Behind the key of an old client's APPEND, which may be a DELETE of 1.13. */
static int make_sure(struct ko_session *session)
{
    if (has(session, 1)) {
        session->numbering = KO_WIRE_2_1;
        return KOLO_OK;
    }
    if (!has_other_half(session, KO_HALF_FIRST))
        return KO_AGAIN;
    session->numbering = KO_WIRE_1_13;
    session->scan.operation = &ko_operations[KO_STORE_DELETE];
    session->scan.field = session->scan.items = 0;
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
    while (!err && session->scan.items > 0) {
        if (session->scan.operation->is_list && session->left <= 0)
            return KO_AGAIN;
        session->left -= PER_FIELD;
        err = ko_session_is_unsure(session) ? make_sure(session) : scan_field(session);
    }
    return err;
}

static void next_message(struct ko_session *session)
{
    ko_buffer_consume(&session->in, session->scan.at);
    memset(&session->scan, 0, sizeof session->scan);
    session->deferred = false;
    session->awake = false;
}

void ko_session_spend(struct ko_session *session, size_t nbytes)
{
    session->left -= PER_ITEM + (int64_t)(nbytes / BYTES_PER_NS);
}

bool ko_session_drop_some(struct ko_session *session)
{
    while (!ko_table_drop_some(session->service->table, &session->dropping, 1)) {
        if (session->left <= 0)
            return false;
        ko_session_spend(session, 0);
    }
    return true;
}

/* What a client says next tells whether it was to pop that a queue's value has woken it. */
static int answer_message(struct ko_session *session)
{
    bool is_pop = session->scan.operation == &ko_operations[KO_STORE_QUEUE_POP];
    bool is_list = session->scan.operation->is_list;
    size_t fill = ko_output_nbytes(session);
    int err;

    if (!is_pop && !session->deferred)
        ko_session_end_claim(session);
    err = session->scan.operation->answer(session, ko_buffer_bytes(&session->in) + 1);
    if (is_pop)
        ko_session_end_claim(session);
    session->is_introduced = true;
    if (!is_list) /* lists count their items */
        ko_session_spend(session, session->scan.at + ko_output_nbytes(session) - fill);
    if (!err)
        next_message(session);
    if (err == KO_AGAIN) {
        session->deferred = true;
        session->awake = !session->waiter.watches || session->waiter.is_held;
        err = KOLO_OK;
    }
    return err;
}

/* True when the wait has ended; else its turn is over. */
static bool end_wait_some(struct ko_session *session)
{
    size_t n = (size_t)(session->left > 0 ? session->left : 1) / PER_ITEM + 1;

    n = n < session->waiter.nwatched ? n : session->waiter.nwatched;
    session->left -= (int64_t)n * PER_ITEM;
    return ko_table_unwait_some(session->service->table, &session->waiter, n);
}

/* While a message waits, the only thing to look for behind it is its cancellation. Once a part of a
 * reply is out its client cannot be told of that. One of 1.13 or 2.0 has none: when its time is
 * over it goes on with its next message, and takes what comes first for the answer of that. */
static int look_for_cancel(struct ko_session *session)
{
    bool is_half_given = session->scan.is_giving && session->scan.done > 0;
    int operation;

    if (!has(session, 1))
        return KO_AGAIN;
    operation = operation_of(session, ko_buffer_bytes(&session->in)[session->scan.at]);
    if (operation != KO_STORE_CANCEL_WAIT && session->numbering != KO_WIRE_1_13 &&
        session->numbering != KO_WIRE_OLD)
        return KO_AGAIN;
    if (is_half_given)
        return ko_fail(KOLO_E_ABORTED, "a client gave up its MULTI_GET, of which it has been sent "
                                       "a part, when a key of the others had been deleted");
    if (!end_wait_some(session))
        return KO_AGAIN;
    next_message(session); /* a CANCEL_WAIT is then answered like any message */
    return KOLO_OK;
}

static bool has_updates(const struct ko_session *session)
{
    return !STAILQ_EMPTY(&session->updates.list);
}

static bool has_wakes(struct ko_session *session)
{
    return !ko_table_wake_some(session->service->table, &session->wakes, 0);
}

/* True when all have been woken and told, who are answered in turns of their own. */
static bool wake_some(struct ko_session *session)
{
    while (has_wakes(session)) {
        if (session->left <= 0)
            return false;
        ko_table_wake_some(session->service->table, &session->wakes, 1);
        ko_session_spend(session, 0);
    }
    return true;
}

/* Of a long message or list that is done with; NULL: nothing is left of any. */
static struct ko_buffer *first_rest(struct ko_session *session)
{
    struct ko_buffer *buffers[] = {&session->in, &session->listing.keys, &session->will.made,
                                   &session->will.bytes};

    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        if (ko_buffer_has_rest(buffers[i]))
            return buffers[i];
    return NULL;
}

static bool has_rests(struct ko_session *session)
{
    return first_rest(session) || ko_wakes_have_scraps(&session->wakes);
}

/* True when nothing is left of long messages and lists that are done with, nor of large values. */
static bool drop_rests(struct ko_session *session)
{
    struct ko_buffer *rest;

    while (session->left > 0 && has_rests(session)) {
        rest = first_rest(session);
        ko_session_spend(session,
                         rest ? ko_buffer_drop_some(rest) : ko_wakes_drop_some(&session->wakes));
    }
    return !has_rests(session);
}

static bool may_go_on(struct ko_session *session)
{
    return session->left > 0 &&
           (session->giving.is_on || has_rests(session) || has_updates(session) ||
            has_wakes(session) || ko_output_nbytes(session) < KO_SESSION_OUTPUT_BOUND);
}

/* It is about to be answered. */
static void hear_first(struct ko_session *session)
{
    ko_table_tell_first(session->service->table, &session->wakes);
    session->scan.is_behind = true;
}

int ko_session_run(struct ko_session *session)
{
    int err = KOLO_OK;

    if (session->is_swamped)
        return ko_fail(KOLO_E_NOMEM, "a client watches keys and does not read of them");
    session->left = TURN;
    session->service->at_work = session;
    ko_table_wake_later(session->service->table, &session->wakes);
    while (!err && may_go_on(session)) {
        if (has_wakes(session)) {
            wake_some(session);
            continue;
        }
        if (!drop_rests(session))
            continue;
        if (has_updates(session) && !session->giving.is_on) {
            err = ko_updates_give(session);
            continue;
        }
        if (session->deferred && !session->awake) {
            err = look_for_cancel(session);
            continue;
        }
        if (!session->deferred)
            err = scan_message(session);
        if (!err && session->scan.is_behind)
            err = answer_message(session);
        else if (!err)
            hear_first(session);
    }
    ko_table_wake_later(session->service->table, NULL);
    session->service->at_work = NULL;
    session->has_more = session->left <= 0;
    return err == KO_AGAIN ? KOLO_OK : err;
}

size_t ko_session_wants(const struct ko_session *session)
{
    size_t need = session->scan.need;

    if (session->has_more || ko_output_nbytes(session) >= KO_SESSION_OUTPUT_BOUND)
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
    session->scan.is_behind = false;
    if (session->woken)
        session->woken(session);
}

/* The bytes that it is told at once count against the turn of the one who is at work. */
static void changed(struct ko_observer *observer, enum ko_change change, kolo_bytes key,
                    const struct ko_told *was, const struct ko_told *is)
{
    struct ko_session *session =
        (struct ko_session *)(void *)((char *)observer - offsetof(struct ko_session, observer));
    const size_t nbytes = key.nbytes + was->bytes.nbytes + is->bytes.nbytes;
    const size_t told_nbytes = nbytes <= KO_UPDATES_SHORT ? nbytes : 0;

    if (session->is_leaving)
        return;
    if (!session->is_swamped)
        session->is_swamped = !ko_updates_note(session, change, key, was, is);
    if (session->service->at_work)
        session->service->at_work->left -= (int64_t)(told_nbytes / BYTES_PER_NS);
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
    session->listing.keys.budget = &service->budget;
    session->will.made.budget = &service->budget;
    session->will.bytes.budget = &service->budget;
    STAILQ_INIT(&session->updates.list);
    STAILQ_INIT(&session->aside.list);
    STAILQ_INIT(&session->wakes.lists);
    STAILQ_INIT(&session->wakes.scraps);
    session->wakes.observer = &session->observer;
}

/* True when it watches no key any more. */
static bool end_watches_some(struct ko_session *session)
{
    while (!ko_table_unobserve_some(session->service->table, &session->observer, 1)) {
        if (session->left <= 0)
            return false;
        ko_session_spend(session, 0);
    }
    return ko_updates_drop_some(session);
}

static void leave_buffer(struct ko_buffer *buffer)
{
    ko_buffer_consume(buffer, ko_buffer_fill(buffer));
    if (!ko_buffer_has_rest(buffer))
        ko_buffer_free(buffer);
}

/* What it was about to do is not done. */
static void leave_message(struct ko_session *session)
{
    struct ko_table *table = session->service->table;

    session->is_leaving = true;
    ko_large_unmake(session);
    ko_table_append_leave(table, &session->appending);
    ko_table_unview(table, session->giving.view);
    ko_table_unview(table, session->comparing.view);
    session->giving.view = session->comparing.view = NULL;
    session->giving.is_on = false;
    leave_buffer(&session->in);
    leave_buffer(&session->listing.keys);
    leave_buffer(&session->will.made);
}

/* What is to be done is done, and told; true when nothing is left of that. */
static bool end_some(struct ko_session *session)
{
    bool has_ended = ko_will_carry_out(session);

    has_ended = end_wait_some(session) && end_watches_some(session) &&
                ko_session_drop_some(session) && has_ended;
    return wake_some(session) && drop_rests(session) && ko_output_free_some(session) && has_ended;
}

bool ko_session_close_some(struct ko_session *session)
{
    bool has_ended;

    session->left = TURN;
    ko_table_wake_later(session->service->table, &session->wakes);
    if (!session->is_leaving)
        leave_message(session);
    has_ended = end_some(session);
    ko_table_wake_later(session->service->table, NULL);
    return has_ended;
}

void ko_session_close(struct ko_session *session)
{
    while (!ko_session_close_some(session))
        continue;
}
