/* SPDX-License-Identifier: MIT
 *
 * The stream carries no request numbers, so after any exchange that did not end as it should the
 * connection is closed, and the next call opens a new one; only a wait that timed out can be taken
 * back (CANCEL_WAIT) and keeps it. SET and APPEND have no reply of their own; a PING sent behind
 * them tells that they were carried out.
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
    FIRST_PAUSE_MS = 50,
    LONGEST_PAUSE_MS = 2000,
    KEYS_PER_CHECK = 512
};

/* ---- the connection ---------------------------------------------------------------------------
 */

static bool is_stopped(struct ko_client *client)
{
    bool stopped;

    pthread_mutex_lock(&client->fd_lock);
    stopped = client->is_stopped;
    pthread_mutex_unlock(&client->fd_lock);
    return stopped;
}

static int fail_stopped(const struct ko_client *client)
{
    return ko_fail(KOLO_E_ABORTED, "%s was closed during the call", client->where);
}

static void disconnect(struct ko_client *client)
{
    pthread_mutex_lock(&client->fd_lock);
    if (client->fd >= 0)
        close(client->fd);
    client->fd = -1;
    pthread_mutex_unlock(&client->fd_lock);
}

/* Says who failed besides why: err's text is that of the socket. */
static int fail_with(const struct ko_client *client, int err, const char *what)
{
    char cause[KO_ERROR_TEXT];

    snprintf(cause, sizeof cause, "%s", kolo_last_error());
    return ko_fail(err, "%s, %s: %s", client->where, what, cause);
}

/* VALIDATE and PING on a new connection. */
static int shake_hands(struct ko_client *client, int fd, const ko_deadline *deadline)
{
    uint8_t hello[10];
    uint8_t echo[4];
    struct ko_buffer message = {.data = hello, .cap = sizeof hello};
    int err;

    client->nonce++;
    ko_buffer_put_u8(&message, KO_STORE_VALIDATE);
    ko_buffer_put_u32(&message, KO_WIRE_MAGIC);
    ko_buffer_put_u8(&message, KO_STORE_PING);
    ko_buffer_put_u32(&message, client->nonce);
    err = ko_socket_send_all(fd, hello, sizeof hello, deadline);
    if (!err)
        err = ko_socket_recv_all(fd, echo, sizeof echo, deadline);
    if (!err && ko_wire_u32(echo) != client->nonce)
        err = ko_fail(KOLO_E_PROTOCOL, "what answers is no TCPStore of PyTorch 2.x or of kolo");
    return err;
}

/* Connects and shakes hands, again and again until the deadline: a server whose queue is full may
 * take a connection and drop it. */
static int reach(struct ko_client *client, const ko_deadline *deadline, int *fd_out)
{
    char cause[KO_ERROR_TEXT];
    int pause_ms = FIRST_PAUSE_MS;
    int tries = 0;
    int left;
    int fd;
    int err;

    for (;;) {
        err = ko_socket_connect(client->host, client->port, deadline, &fd);
        if (err)
            return err;
        tries++;
        err = shake_hands(client, fd, deadline);
        if (!err) {
            *fd_out = fd;
            return KOLO_OK;
        }
        close(fd);
        left = ko_deadline_left_ms(deadline);
        if (err != KOLO_E_PEER_LOST || left == 0 || is_stopped(client))
            break;
        poll(NULL, 0, pause_ms < left ? pause_ms : left);
        pause_ms = pause_ms * 3 / 2 < LONGEST_PAUSE_MS ? pause_ms * 3 / 2 : LONGEST_PAUSE_MS;
    }
    snprintf(cause, sizeof cause, "%s", kolo_last_error());
    return ko_fail(err == KOLO_E_PEER_LOST ? KOLO_E_TIMEOUT : err,
                   "%s answers connections, but not with the store's handshake, within %d ms: %s "
                   "(tried %d times)",
                   client->where, deadline->timeout_ms, cause, tries);
}

int ko_client_connect(struct ko_client *client, const ko_deadline *deadline)
{
    int fd = -1;
    int err = reach(client, deadline, &fd);

    if (err)
        return err;
    pthread_mutex_lock(&client->fd_lock);
    client->fd = fd;
    if (client->is_stopped)
        shutdown(fd, SHUT_RDWR);
    pthread_mutex_unlock(&client->fd_lock);
    return KOLO_OK;
}

/* ---- requests ---------------------------------------------------------------------------------
 */

enum reply_kind { REPLY_PONG, REPLY_NUMBER, REPLY_BYTE, REPLY_BYTES };

static const struct exchange {
    const char *name;
    enum reply_kind reply;
} exchanges[KO_STORE_NOPS] = {
    [KO_STORE_SET] = {"set", REPLY_PONG},
    [KO_STORE_COMPARE_SET] = {"compare_set", REPLY_BYTES},
    [KO_STORE_GET] = {"get", REPLY_BYTES},
    [KO_STORE_ADD] = {"add", REPLY_NUMBER},
    [KO_STORE_CHECK] = {"check", REPLY_BYTE},
    [KO_STORE_WAIT] = {"wait", REPLY_BYTE},
    [KO_STORE_NUM_KEYS] = {"num_keys", REPLY_NUMBER},
    [KO_STORE_DELETE] = {"delete", REPLY_NUMBER},
    [KO_STORE_APPEND] = {"append", REPLY_PONG},
};

/* On the wire a user's key has a "/" before it, as PyTorch's clients put it. */
static void put_key(struct ko_buffer *out, kolo_bytes key)
{
    ko_buffer_put_u64(out, key.nbytes + 1);
    ko_buffer_put_u8(out, '/');
    memcpy(out->data + out->tail, key.data, key.nbytes);
    out->tail += key.nbytes;
}

static size_t longest_size(const struct ko_request *request)
{
    size_t nbytes = 64 + request->value.nbytes + request->expected.nbytes;

    for (size_t i = 0; i < request->nkeys; i++)
        nbytes += 9 + request->keys[i].nbytes;
    return nbytes;
}

static int put_request(struct ko_client *client, const struct ko_request *request)
{
    struct ko_buffer *out = &client->out;

    if (ko_buffer_reserve(out, longest_size(request)))
        return KOLO_E_NOMEM;
    ko_buffer_put_u8(out, (uint8_t)request->op);
    if (request->op == KO_STORE_WAIT || request->op == KO_STORE_CHECK)
        ko_buffer_put_u64(out, request->nkeys);
    for (size_t i = 0; i < request->nkeys; i++)
        put_key(out, request->keys[i]);
    if (request->op == KO_STORE_COMPARE_SET)
        ko_buffer_put_bytes(out, request->expected);
    if (request->op == KO_STORE_ADD)
        ko_buffer_put_u64(out, (uint64_t)request->delta);
    else if (request->op == KO_STORE_COMPARE_SET || exchanges[request->op].reply == REPLY_PONG)
        ko_buffer_put_bytes(out, request->value);
    if (exchanges[request->op].reply == REPLY_PONG) {
        ko_buffer_put_u8(out, KO_STORE_PING);
        ko_buffer_put_u32(out, ++client->nonce);
    }
    return KOLO_OK;
}

/* Sends what has been put together. */
static int flush(struct ko_client *client, const ko_deadline *deadline)
{
    size_t nbytes = ko_buffer_fill(&client->out);
    int err = ko_socket_send_all(client->fd, ko_buffer_bytes(&client->out), nbytes, deadline);

    ko_buffer_consume(&client->out, nbytes);
    return err;
}

static int receive_bytes(struct ko_client *client, const ko_deadline *deadline,
                         struct ko_reply *reply)
{
    uint8_t length[8];
    uint64_t nbytes;
    char *value;
    int err = ko_socket_recv_all(client->fd, length, sizeof length, deadline);

    if (err)
        return err;
    nbytes = ko_wire_u64(length);
    if (nbytes > KO_STORE_VALUE_MAX)
        return ko_fail(KOLO_E_PROTOCOL, "a value of %llu bytes came; %zu are the most",
                       (unsigned long long)nbytes, KO_STORE_VALUE_MAX);
    value = ko_alloc((size_t)nbytes + 1, "a store's value");
    if (!value)
        return KOLO_E_NOMEM;
    err = ko_socket_recv_all(client->fd, value, (size_t)nbytes, deadline);
    if (err) {
        kolo_free(value);
        return err;
    }
    reply->value = value;
    reply->nbytes = (size_t)nbytes;
    return KOLO_OK;
}

static int receive(struct ko_client *client, enum reply_kind kind, const ko_deadline *deadline,
                   struct ko_reply *reply)
{
    uint8_t raw[8];
    size_t nbytes = kind == REPLY_PONG ? 4 : kind == REPLY_BYTE ? 1 : 8;
    int err;

    if (kind == REPLY_BYTES)
        return receive_bytes(client, deadline, reply);
    err = ko_socket_recv_all(client->fd, raw, nbytes, deadline);
    if (err)
        return err;
    if (kind == REPLY_PONG && ko_wire_u32(raw) != client->nonce)
        return ko_fail(KOLO_E_PROTOCOL, "a wrong answer to a PING came");
    if (kind == REPLY_BYTE && raw[0] > 1)
        return ko_fail(KOLO_E_PROTOCOL, "the byte %d came in answer; 0 and 1 are the answers",
                       raw[0]);
    if (kind == REPLY_NUMBER)
        reply->number = (int64_t)ko_wire_u64(raw);
    if (kind == REPLY_BYTE)
        reply->number = raw[0] == KO_WIRE_READY;
    return KOLO_OK;
}

static int fail_request(struct ko_client *client, const struct ko_request *request, int err)
{
    char what[KO_STORE_KEY_TEXT + 64];
    char key[KO_STORE_KEY_TEXT] = "";

    disconnect(client);
    if (is_stopped(client))
        return fail_stopped(client);
    if (request->nkeys > 0)
        ko_store_key_text(request->keys[0], key);
    snprintf(what, sizeof what, "%s of \"%s\"", exchanges[request->op].name, key);
    return fail_with(client, err, what);
}

/* Request and reply. */
static int exchange(struct ko_client *client, const struct ko_request *request,
                    const ko_deadline *deadline, struct ko_reply *reply)
{
    int err = put_request(client, request);

    if (!err)
        err = flush(client, deadline);
    if (!err)
        err = receive(client, exchanges[request->op].reply, deadline, reply);
    return err ? fail_request(client, request, err) : KOLO_OK;
}

/* ---- waiting ----------------------------------------------------------------------------------
 */

/* Takes back a WAIT. *came: it was answered in the last moment. */
static int cancel_wait(struct ko_client *client, bool *came)
{
    ko_deadline grace = ko_deadline_in(GRACE_MS);
    uint8_t cancel = KO_STORE_CANCEL_WAIT;
    uint8_t answer = KO_WIRE_STOP_WAITING;
    int err = ko_socket_send_all(client->fd, &cancel, 1, &grace);
    bool answered = false;

    if (!err)
        err = ko_socket_recv_all(client->fd, &answer, 1, &grace);
    if (!err && answer == KO_WIRE_STOP_WAITING) {
        answered = true;
        err = ko_socket_recv_all(client->fd, &answer, 1, &grace);
    }
    if (!err && answer != KO_WIRE_WAIT_CANCELED)
        err = ko_fail(KOLO_E_PROTOCOL, "a wrong answer to a CANCEL_WAIT came");
    if (!err)
        *came = answered;
    return err;
}

/* Asks for each key by itself whether it is there. */
static int check_each(struct ko_client *client, const struct ko_request *request, bool *missing)
{
    ko_deadline grace = ko_deadline_in(GRACE_MS);
    uint8_t answers[KEYS_PER_CHECK];
    struct ko_request one = {.op = KO_STORE_CHECK, .nkeys = 1};
    size_t n;
    int err = KOLO_OK;

    for (size_t done = 0; done < request->nkeys && !err; done += n) {
        n = request->nkeys - done < KEYS_PER_CHECK ? request->nkeys - done : KEYS_PER_CHECK;
        for (size_t i = 0; i < n && !err; i++) {
            one.keys = &request->keys[done + i];
            err = put_request(client, &one);
        }
        if (!err)
            err = flush(client, &grace);
        if (!err)
            err = ko_socket_recv_all(client->fd, answers, n, &grace);
        for (size_t i = 0; i < n && !err; i++)
            missing[done + i] = answers[i] != KO_WIRE_READY;
    }
    return err;
}

static int fail_missing(struct ko_client *client, const struct ko_request *request,
                        const ko_deadline *deadline)
{
    bool *missing = ko_alloc(request->nkeys * sizeof *missing, "the list of missing keys");
    bool known = missing && !check_each(client, request, missing);
    int err;

    if (!known)
        disconnect(client); /* answers may be on the way */
    err = ko_store_fail_missing(request, known ? missing : NULL, client->where, deadline);
    kolo_free(missing);
    return err;
}

static int wait_for(struct ko_client *client, const struct ko_request *keys,
                    const ko_deadline *deadline)
{
    struct ko_request request = {.op = KO_STORE_WAIT, .keys = keys->keys, .nkeys = keys->nkeys};
    ko_deadline sending = ko_deadline_in(GRACE_MS);
    uint8_t answer;
    bool came = false;
    int err = put_request(client, &request);

    if (sending.at_ns < deadline->at_ns)
        sending = *deadline; /* a wait of 0 ms is a question, and must still get out whole */
    if (!err)
        err = flush(client, &sending);
    if (err)
        return fail_request(client, &request, err);
    err = ko_socket_recv_all(client->fd, &answer, 1, deadline);
    if (!err && answer != KO_WIRE_STOP_WAITING)
        err = ko_fail(KOLO_E_PROTOCOL, "a wrong answer to a WAIT came");
    if (err != KOLO_E_TIMEOUT)
        return err ? fail_request(client, &request, err) : KOLO_OK;
    err = cancel_wait(client, &came);
    if (err)
        return fail_request(client, &request, err);
    return came ? KOLO_OK : fail_missing(client, &request, deadline);
}

/* A key that has come is fetched even when the deadline passed just then. */
static int get(struct ko_client *client, const struct ko_request *request,
               const ko_deadline *deadline, struct ko_reply *reply)
{
    ko_deadline fetching;
    int err = wait_for(client, request, deadline);

    if (err)
        return err;
    fetching = ko_deadline_in(GRACE_MS);
    return exchange(client, request, fetching.at_ns < deadline->at_ns ? deadline : &fetching,
                    reply);
}

/* ---- adding -----------------------------------------------------------------------------------
 */

/* The wire has no word for a number that is none: the server hangs up. Then a look at the key's
 * value tells. KOLO_E_INVALID if that was it, KOLO_OK if not. */
static int look_for_wrong_number(struct ko_client *client, const struct ko_request *request)
{
    ko_deadline grace = ko_deadline_in(GRACE_MS);
    struct ko_request look = {.op = KO_STORE_CHECK, .keys = request->keys, .nkeys = 1};
    struct ko_reply reply = {0};
    int64_t sum;
    int err = ko_client_connect(client, &grace);

    if (!err)
        err = exchange(client, &look, &grace, &reply);
    if (err || reply.number == 0)
        return KOLO_OK;
    look.op = KO_STORE_GET;
    if (exchange(client, &look, &grace, &reply))
        return KOLO_OK;
    err = ko_table_sum(request->keys[0], (kolo_bytes){reply.value, reply.nbytes}, request->delta,
                       &sum);
    kolo_free(reply.value);
    return err;
}

static int add(struct ko_client *client, const struct ko_request *request,
               const ko_deadline *deadline, struct ko_reply *reply)
{
    char cause[KO_ERROR_TEXT];
    int err = exchange(client, request, deadline, reply);

    if (err != KOLO_E_PEER_LOST)
        return err;
    snprintf(cause, sizeof cause, "%s", kolo_last_error());
    if (look_for_wrong_number(client, request))
        return KOLO_E_INVALID;
    return ko_fail_again(err, cause);
}

/* ---- any request ------------------------------------------------------------------------------
 */

int ko_client_call(struct ko_client *client, const struct ko_request *request,
                   const ko_deadline *deadline, struct ko_reply *reply)
{
    ko_deadline soon = ko_deadline_within(deadline, RECONNECT_MS);
    int err;

    if (is_stopped(client))
        return fail_stopped(client);
    if (client->fd < 0) {
        err = ko_client_connect(client, &soon);
        if (err)
            return fail_with(client, err, "connecting again after a call that failed");
    }
    ko_buffer_consume(&client->out, ko_buffer_fill(&client->out)); /* what a failed call left */
    if (request->op == KO_STORE_WAIT)
        return wait_for(client, request, deadline);
    if (request->op == KO_STORE_GET)
        return get(client, request, deadline, reply);
    if (request->op == KO_STORE_ADD)
        return add(client, request, deadline, reply);
    return exchange(client, request, deadline, reply);
}

/* ---- life -------------------------------------------------------------------------------------
 */

void ko_client_open(struct ko_client *client, const char *host, int port)
{
    *client = (struct ko_client){.fd = -1, .port = port, .nonce = (uint32_t)getpid() << 8};
    pthread_mutex_init(&client->fd_lock, NULL);
    snprintf(client->host, sizeof client->host, "%s", host);
    snprintf(client->where, sizeof client->where, "the store at %s:%d", host, port);
}

void ko_client_stop(struct ko_client *client)
{
    pthread_mutex_lock(&client->fd_lock);
    client->is_stopped = true;
    if (client->fd >= 0)
        shutdown(client->fd, SHUT_RDWR);
    pthread_mutex_unlock(&client->fd_lock);
}

void ko_client_close(struct ko_client *client)
{
    disconnect(client);
    pthread_mutex_destroy(&client->fd_lock);
    ko_buffer_free(&client->out);
}

int ko_client_own_address(struct ko_client *client, char *host, size_t cap)
{
    char name[KO_SOCKET_NAME] = "unknown";
    char *text = name;
    char *end;

    pthread_mutex_lock(&client->fd_lock);
    if (client->fd >= 0)
        ko_socket_own_name(client->fd, name);
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
