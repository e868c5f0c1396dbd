/* SPDX-License-Identifier: MIT
 *
 * The stream carries no request numbers, so after any exchange that did not end as it should the
 * connection is closed, and the next call opens a new one; only a wait that timed out can be taken
 * back (CANCEL_WAIT) and keeps it, unless the server is one of 1.13 or 2.0. SET, APPEND and others
 * have no reply of their own; a PING (of earlier servers: a count of the keys) sent behind them
 * tells that they were carried out.
 */
#include "store_client.h"

#include "socket.h"
#include "status.h"
#include "store_table.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    GRACE_MS = 1000,     /* for what must follow when the deadline has passed already */
    RECONNECT_MS = 5000, /* a store that was there and is gone is not waited for as a new one is */
    KEYS_PER_CHECK = 64,
    POP_PAUSE_MS = 5
};

/* ---- requests ----------------------------------------------------------------------------- */

static int fail_request(struct ko_client *client, const struct ko_request *request, int err)
{
    char what[KO_STORE_KEY_TEXT + 64];
    char key[KO_STORE_KEY_TEXT];

    ko_client_disconnect(client);
    if (ko_client_is_stopped(client))
        return ko_client_fail_stopped(client);
    snprintf(what, sizeof what, "%s", ko_client_verb(request->op));
    if (request->nkeys > 0) {
        ko_store_key_text(request->keys[0], key);
        snprintf(what, sizeof what, "%s of \"%s\"", ko_client_verb(request->op), key);
    }
    return ko_client_fail_with(client, err, what);
}

/* Request and reply. */
static int exchange(struct ko_client *client, const struct ko_request *request,
                    const ko_deadline *deadline, struct ko_reply *reply)
{
    int err = ko_client_put(client, request);

    if (!err)
        err = ko_client_flush(client, deadline);
    if (!err)
        err = ko_client_receive(client, request, deadline, reply);
    return err ? fail_request(client, request, err) : KOLO_OK;
}

static int append_list(struct ko_buffer *list, struct ko_reply *part)
{
    int err = ko_buffer_reserve(list, part->nbytes);

    if (!err && part->nbytes > 0)
        memcpy(list->data + list->tail, part->value, part->nbytes);
    if (!err)
        list->tail += part->nbytes;
    kolo_free(part->value);
    return err;
}

/* The same of a CHECK, MULTI_GET or MULTI_SET that takes several messages. */
static int exchange_parts(struct ko_client *client, const struct ko_request *request,
                          const ko_deadline *deadline, struct ko_reply *reply)
{
    struct ko_buffer list = {0};
    struct ko_request part;
    struct ko_reply got = {.number = 1};
    int err = KOLO_OK;

    for (size_t at = 0; at < request->nkeys && got.number && !err; at += part.nkeys) {
        part = ko_client_part(request, at);
        err = exchange(client, &part, deadline, &got);
        if (!err && request->op == KO_STORE_MULTI_GET)
            err = append_list(&list, &got);
    }
    if (err) {
        ko_buffer_free(&list);
        return err;
    }
    *reply = (struct ko_reply){
        .number = got.number, .value = list.data, .nbytes = ko_buffer_fill(&list)};
    return KOLO_OK;
}

static int exchange_all(struct ko_client *client, const struct ko_request *request,
                        const ko_deadline *deadline, struct ko_reply *reply)
{
    if (ko_client_part(request, 0).nkeys < request->nkeys)
        return exchange_parts(client, request, deadline, reply);
    return exchange(client, request, deadline, reply);
}

/* ---- waiting ------------------------------------------------------------------------------ */

/* Takes back a WAIT. *came: it was answered in the last moment. */
static int cancel_wait(struct ko_client *client, bool *came)
{
    ko_deadline grace = ko_deadline_in(GRACE_MS);
    uint8_t cancel = (uint8_t)ko_wire_opcode(client->numbering, KO_STORE_CANCEL_WAIT);
    uint8_t answer = KO_WIRE_STOP_WAITING;
    int err = ko_socket_send_all(client->socket.fd, &cancel, 1, &grace);
    bool answered = false;

    if (!err)
        err = ko_socket_recv_all(client->socket.fd, &answer, 1, &grace);
    if (!err && answer == KO_WIRE_STOP_WAITING) {
        answered = true;
        err = ko_socket_recv_all(client->socket.fd, &answer, 1, &grace);
    }
    if (!err && answer != KO_WIRE_WAIT_CANCELED)
        err = ko_fail(KOLO_E_PROTOCOL, "a wrong answer to a CANCEL_WAIT came");
    if (!err)
        *came = answered;
    return err;
}

/* Asks for each key by itself whether it is there. Every few keys have the grace, since a server
 * that goes on answering is there; all of them have as long as the wait had that has ended. */
static int check_each(struct ko_client *client, const struct ko_request *request, int waited_ms,
                      bool *missing)
{
    const ko_deadline whole = ko_deadline_in(waited_ms > GRACE_MS ? waited_ms : GRACE_MS);
    ko_deadline grace;
    uint8_t answers[KEYS_PER_CHECK];
    struct ko_request one = {.op = KO_STORE_CHECK, .nkeys = 1};
    size_t n;
    int err = KOLO_OK;

    for (size_t done = 0; done < request->nkeys && !err; done += n) {
        n = request->nkeys - done < KEYS_PER_CHECK ? request->nkeys - done : KEYS_PER_CHECK;
        grace = ko_deadline_within(&whole, GRACE_MS);
        for (size_t i = 0; i < n && !err; i++) {
            one.keys = &request->keys[done + i];
            err = ko_client_put(client, &one);
        }
        if (!err)
            err = ko_client_flush(client, &grace);
        if (!err)
            err = ko_socket_recv_all(client->socket.fd, answers, n, &grace);
        for (size_t i = 0; i < n && !err; i++)
            missing[done + i] = answers[i] != KO_WIRE_READY;
    }
    return err;
}

static int fail_missing(struct ko_client *client, const struct ko_request *request,
                        const ko_deadline *deadline)
{
    ko_deadline grace = ko_deadline_in(GRACE_MS);
    bool *missing = ko_alloc(request->nkeys * sizeof *missing, "the list of missing keys");
    bool known = missing && (client->socket.fd >= 0 || !ko_client_connect(client, &grace)) &&
                 !check_each(client, request, deadline->timeout_ms, missing);
    int err;

    if (!known)
        ko_client_disconnect(client); /* answers may be on the way */
    err = ko_store_fail_missing(request, known ? missing : NULL, client->where, deadline);
    kolo_free(missing);
    return err;
}

/* Of a server that says nothing of a wait that is taken back either: it is not the keys. */
static int fail_silent(struct ko_client *client, const struct ko_request *request,
                       const ko_deadline *deadline)
{
    char key[KO_STORE_KEY_TEXT];
    char more[48] = "";

    ko_client_disconnect(client);
    if (ko_client_is_stopped(client))
        return ko_client_fail_stopped(client);
    ko_store_key_text(request->keys[0], key);
    if (request->nkeys > 1)
        snprintf(more, sizeof more, " and %zu more", request->nkeys - 1);
    return ko_fail(KOLO_E_TIMEOUT,
                   "%s does not answer: waited %d ms for \"%s\"%s (%s is the limit), and %d ms for "
                   "it to say that this wait has ended; has its process been stopped?",
                   client->where, deadline->timeout_ms, key, more, ko_deadline_source(deadline),
                   GRACE_MS);
}

/* Sends a WAIT or a BARRIER and waits for its answer; KO_AGAIN if the deadline has passed. */
static int wait_long(struct ko_client *client, const struct ko_request *request,
                     const ko_deadline *deadline)
{
    ko_deadline sending = ko_deadline_in(GRACE_MS);
    uint8_t answer;
    bool came = false;
    int err = ko_client_put(client, request);

    if (sending.at_ns < deadline->at_ns)
        sending = *deadline; /* a wait of 0 ms is a question, and must still get out whole */
    if (!err)
        err = ko_client_flush(client, &sending);
    if (err)
        return fail_request(client, request, err);
    err = ko_socket_recv_all(client->socket.fd, &answer, 1, deadline);
    if (!err && answer != KO_WIRE_STOP_WAITING)
        err = ko_fail(KOLO_E_PROTOCOL, "a wrong answer to a WAIT came");
    if (err != KOLO_E_TIMEOUT)
        return err ? fail_request(client, request, err) : KOLO_OK;
    if (client->numbering == KO_WIRE_1_13) { /* cannot be taken back: its late answer would be */
        ko_client_disconnect(client);        /* the answer to the next question */
        return KO_AGAIN;
    }
    err = cancel_wait(client, &came);
    if (err == KOLO_E_TIMEOUT)
        return fail_silent(client, request, deadline);
    if (err)
        return fail_request(client, request, err);
    return came ? KOLO_OK : KO_AGAIN;
}

static int wait_for(struct ko_client *client, const struct ko_request *keys,
                    const ko_deadline *deadline)
{
    struct ko_request request = {.op = KO_STORE_WAIT, .keys = keys->keys, .nkeys = keys->nkeys};
    struct ko_request part;
    int err = KOLO_OK;

    for (size_t at = 0; at < request.nkeys && !err; at += part.nkeys) {
        part = ko_client_part(&request, at);
        err = wait_long(client, &part, deadline);
    }
    return err == KO_AGAIN ? fail_missing(client, &request, deadline) : err;
}

static int barrier(struct ko_client *client, const struct ko_request *request,
                   const ko_deadline *deadline)
{
    ko_deadline grace;
    struct ko_request look = {.op = KO_STORE_ADD, .keys = request->keys, .nkeys = 1};
    struct ko_reply come = {.number = -1};
    int err = wait_long(client, request, deadline);

    if (err != KO_AGAIN)
        return err;
    grace = ko_deadline_in(GRACE_MS);
    (void)exchange(client, &look, &grace, &come);
    return ko_store_fail_barrier(request, come.number, client->where, deadline);
}

/* A key that has come is fetched even when the deadline passed just then. */
static int wait_and_fetch(struct ko_client *client, const struct ko_request *request,
                          const ko_deadline *deadline, struct ko_reply *reply)
{
    ko_deadline fetching;
    int err = wait_for(client, request, deadline);

    if (err)
        return err;
    fetching = ko_deadline_in(GRACE_MS);
    return exchange_all(client, request, fetching.at_ns < deadline->at_ns ? deadline : &fetching,
                        reply);
}

/* An empty value is also the answer when the key was deleted after the wait for it: then it is
 * waited for again. If it is there, it may have come since, and is fetched once more. */
static int get(struct ko_client *client, const struct ko_request *request,
               const ko_deadline *deadline, struct ko_reply *reply)
{
    struct ko_request look = *request;
    struct ko_reply there = {0};
    int err = wait_and_fetch(client, request, deadline, reply);

    look.op = KO_STORE_CHECK;
    while (!err && reply->nbytes == 0 && there.number == 0) {
        ko_deadline grace = ko_deadline_in(GRACE_MS);

        kolo_free(reply->value);
        *reply = (struct ko_reply){0};
        err = exchange(client, &look, &grace, &there);
        if (!err)
            err = wait_and_fetch(client, request, deadline, reply);
    }
    return err;
}

/* KOLO_E_INVALID if a key that is there, and gave nothing to pop, has a value. One that is empty is
 * not to be told from a queue whose value another client took. */
static int look_for_value(struct ko_client *client, const struct ko_request *request)
{
    ko_deadline grace = ko_deadline_in(GRACE_MS);
    struct ko_request look = *request;
    struct ko_reply held = {0};
    int err;

    look.op = KO_STORE_GET;
    err = exchange(client, &look, &grace, &held);
    if (!err && held.nbytes > 0)
        err = ko_store_fail_no_queue(request);
    kolo_free(held.value);
    return err;
}

static int fail_nothing_left(const struct ko_client *client, const struct ko_request *request,
                             const ko_deadline *deadline)
{
    char key[KO_STORE_KEY_TEXT];

    ko_store_key_text(request->keys[0], key);
    return ko_fail(KOLO_E_TIMEOUT,
                   "waited %d ms for a value of queue \"%s\" of %s: other clients have taken what "
                   "came, or the key has an empty value and no queue (%s is the limit)",
                   deadline->timeout_ms, key, client->where, ko_deadline_source(deadline));
}

/* Another client may take what was waited for; then it is waited for again. */
static int queue_pop(struct ko_client *client, const struct ko_request *request,
                     const ko_deadline *deadline, struct ko_reply *reply)
{
    int err = wait_and_fetch(client, request, deadline, reply);

    while (!err && reply->number <= 0) {
        err = look_for_value(client, request);
        if (err)
            return err;
        if (ko_deadline_passed(deadline))
            return fail_nothing_left(client, request, deadline);
        poll(NULL, 0, POP_PAUSE_MS);
        err = wait_and_fetch(client, request, deadline, reply);
    }
    return err;
}

/* ---- adding and appending ----------------------------------------------------------------- */

/* KOLO_E_INVALID if it cannot be done with a key that has that value. */
static int check_against(const struct ko_request *request, kolo_bytes held)
{
    int64_t sum;

    return request->op == KO_STORE_ADD
               ? ko_table_sum(request->keys[0], held, request->delta, &sum)
               : ko_store_check_append(request->keys[0], held, request->value);
}

/* The wire has no word for a number that is none, nor for a value that would be too long: the
 * server hangs up. Then a look at the key's value tells. KOLO_E_INVALID if that was it, KOLO_OK if
 * not. */
static int look_for_wrong_value(struct ko_client *client, const struct ko_request *request)
{
    ko_deadline grace = ko_deadline_in(GRACE_MS);
    struct ko_request look = {
        .op = KO_STORE_CHECK, .keys = request->keys, .nkeys = 1, .is_bare = request->is_bare};
    struct ko_reply reply = {0};
    int err = ko_client_connect(client, &grace);

    if (!err)
        err = exchange(client, &look, &grace, &reply);
    if (err || reply.number == 0)
        return KOLO_OK;
    look.op = KO_STORE_GET;
    if (exchange(client, &look, &grace, &reply))
        return KOLO_OK;
    err = check_against(request, (kolo_bytes){reply.value, reply.nbytes});
    kolo_free(reply.value);
    return err;
}

static int change(struct ko_client *client, const struct ko_request *request,
                  const ko_deadline *deadline, struct ko_reply *reply)
{
    char cause[KO_ERROR_TEXT];
    int err = exchange(client, request, deadline, reply);

    if (err != KOLO_E_PEER_LOST)
        return err;
    snprintf(cause, sizeof cause, "%s", kolo_last_error());
    if (look_for_wrong_value(client, request))
        return KOLO_E_INVALID;
    return ko_fail_again(err, cause);
}

/* ---- any request -------------------------------------------------------------------------- */

/* Those that servers of PyTorch 2.x lack for their first years. */
static bool is_late(enum ko_store_op op)
{
    return op >= KO_STORE_QUEUE_PUSH && op <= KO_STORE_BARRIER;
}

static int carry_out(struct ko_client *client, const struct ko_request *request,
                     const ko_deadline *deadline, struct ko_reply *reply)
{
    switch (request->op) {
    case KO_STORE_WAIT:
        return wait_for(client, request, deadline);
    case KO_STORE_GET:
        return get(client, request, deadline, reply);
    case KO_STORE_MULTI_GET:
        return wait_and_fetch(client, request, deadline, reply);
    case KO_STORE_QUEUE_POP:
        return queue_pop(client, request, deadline, reply);
    case KO_STORE_BARRIER:
        return barrier(client, request, deadline);
    case KO_STORE_ADD:
    case KO_STORE_APPEND:
        return change(client, request, deadline, reply);
    default:
        return exchange_all(client, request, deadline, reply);
    }
}

static int fail_lacking(const struct ko_client *client, const struct ko_request *request)
{
    return ko_fail(KOLO_E_UNSUPPORTED, "%s is served by %s, which has no %s", client->where,
                   client->numbering == KO_WIRE_1_13 ? "PyTorch 1.13 or 2.0" : "an early PyTorch 2",
                   ko_client_verb(request->op));
}

/* A server that has no such operation hangs up. If it does so at the most harmless of them too,
 * that was why. */
static int learn_late(struct ko_client *client, const struct ko_request *request, int err)
{
    struct ko_request probe = {.op = KO_STORE_QUEUE_LEN, .keys = request->keys, .nkeys = 1};
    const kolo_bytes any = {"/", 1};
    struct ko_reply reply;
    ko_deadline grace = ko_deadline_in(GRACE_MS);
    char cause[KO_ERROR_TEXT];

    if (!err)
        client->late = LATE_THERE;
    if (err != KOLO_E_PEER_LOST)
        return err;
    snprintf(cause, sizeof cause, "%s", kolo_last_error());
    if (request->nkeys == 0)
        probe.keys = &any;
    if (ko_client_connect(client, &grace) ||
        exchange(client, &probe, &grace, &reply) != KOLO_E_PEER_LOST)
        return ko_fail_again(err, cause);
    client->late = LATE_LACKING;
    return fail_lacking(client, request);
}

/* If the time to do it is over and the call's own is not, the server is lost; or if nobody listens
 * there any more. */
static int connect_again(struct ko_client *client, const ko_deadline *deadline)
{
    ko_deadline soon = ko_deadline_within(deadline, RECONNECT_MS);
    int err = ko_client_connect(client, &soon);

    if (!err || err == KOLO_E_ABORTED)
        return err;
    if (err == KOLO_E_TIMEOUT &&
        (!ko_deadline_passed(deadline) || ko_socket_is_refused(client->host, client->port)))
        err = KOLO_E_PEER_LOST;
    return ko_client_fail_with(client, err, "connecting again after a call that failed");
}

int ko_client_call(struct ko_client *client, const struct ko_request *request,
                   const ko_deadline *deadline, struct ko_reply *reply)
{
    int err;

    if (ko_client_is_stopped(client))
        return ko_client_fail_stopped(client);
    err = client->socket.fd < 0 ? connect_again(client, deadline) : KOLO_OK;
    if (err)
        return err;
    ko_buffer_consume(&client->out, ko_buffer_fill(&client->out)); /* what a failed call left */
    if (ko_wire_opcode(client->numbering, request->op) < 0 ||
        (is_late(request->op) && client->late == LATE_LACKING))
        return fail_lacking(client, request);
    err = carry_out(client, request, deadline, reply);
    if (is_late(request->op) && client->late == LATE_UNKNOWN)
        err = learn_late(client, request, err);
    return err;
}

/* ---- life --------------------------------------------------------------------------------- */

int ko_client_open(struct ko_client *client, const char *host, int port, bool is_foreign)
{
    int err;

    *client = (struct ko_client){
        .socket.fd = -1, .is_foreign = is_foreign, .port = port, .nonce = (uint32_t)getpid() << 8};
    pthread_mutex_init(&client->fd_lock, NULL);
    snprintf(client->host, sizeof client->host, "%s", host);
    snprintf(client->where, sizeof client->where, "the store at %s:%d", host, port);
    err = ko_guard_read_for_store(&client->guard);
    if (is_foreign && client->guard.has_secret)
        client->guard = (struct ko_guard){.is_open = true};
    return err;
}

void ko_client_stop(struct ko_client *client)
{
    pthread_mutex_lock(&client->fd_lock);
    atomic_store_explicit(&client->is_stopped, true, memory_order_relaxed); /* as it is read */
    if (client->socket.fd >= 0)
        shutdown(client->socket.fd, SHUT_RDWR);
    pthread_mutex_unlock(&client->fd_lock);
}

void ko_client_close(struct ko_client *client)
{
    ko_client_disconnect(client);
    pthread_mutex_destroy(&client->fd_lock);
    ko_buffer_free(&client->out);
    ko_secret_forget(&client->guard.secret);
}

int ko_client_own_address(struct ko_client *client, char *host, size_t cap)
{
    char name[KO_SOCKET_NAME] = "unknown";
    char *text = name;
    char *end;

    pthread_mutex_lock(&client->fd_lock);
    if (client->socket.fd >= 0)
        ko_socket_own_name(client->socket.fd, name);
    pthread_mutex_unlock(&client->fd_lock);
    end = strrchr(name, ':');
    if (end && text[0] == '[') {
        text++;
        end--;
    }
    if (!end || (size_t)(end - text) >= cap)
        return ko_fail(KOLO_E_PEER_LOST, "%s: no connection to tell this end's address of",
                       client->where);
    *end = '\0';
    snprintf(host, cap, "%s", text);
    return KOLO_OK;
}
