/* SPDX-License-Identifier: MIT
 *
 * The client of a store that is served over TCP, by kolo or by PyTorch. One request is on the way
 * at a time. The stream carries no request numbers, so after any exchange that did not end as it
 * should the connection is closed, and the next call opens a new one; only a wait that timed out
 * can be taken back (CANCEL_WAIT) and keeps it. SET and APPEND have no reply of their own; a PING
 * sent behind them tells that they were carried out.
 */
#include "fault.h"
#include "log.h"
#include "poller.h"
#include "socket.h"
#include "status.h"
#include "store.h"
#include "store_server.h"
#include "store_wire.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    HOST_NBYTES = 256,
    WHERE_NBYTES = HOST_NBYTES + 24,
    GRACE_MS = 1000,     /* for what must follow when the deadline has passed already */
    RECONNECT_MS = 5000, /* a store that was there and is gone is not waited for as a new one is */
    FIRST_PAUSE_MS = 50,
    LONGEST_PAUSE_MS = 2000,
    KEYS_PER_CHECK = 512
};

struct tcp_store {
    kolo_store store;        /* first, so that a store is its TCP store */
    pthread_mutex_t lock;    /* held for a whole request */
    pthread_mutex_t fd_lock; /* guards fd and is_stopped for those who do not hold lock */
    int fd;                  /* -1: not connected */
    bool is_stopped;
    struct ko_server *server; /* NULL unless this process serves */
    struct ko_buffer out;
    uint32_t nonce;
    int port;
    char host[HOST_NBYTES];
    char where[WHERE_NBYTES]; /* "the store at host:port" */
};

/* ---- the connection ---------------------------------------------------------------------------
 */

static bool is_stopped(struct tcp_store *tcp)
{
    bool stopped;

    pthread_mutex_lock(&tcp->fd_lock);
    stopped = tcp->is_stopped;
    pthread_mutex_unlock(&tcp->fd_lock);
    return stopped;
}

static int fail_stopped(const struct tcp_store *tcp)
{
    return ko_fail(KOLO_E_ABORTED, "%s was closed during the call", tcp->where);
}

static void disconnect(struct tcp_store *tcp)
{
    pthread_mutex_lock(&tcp->fd_lock);
    if (tcp->fd >= 0)
        close(tcp->fd);
    tcp->fd = -1;
    pthread_mutex_unlock(&tcp->fd_lock);
}

/* Says who failed besides why: err's text is that of the socket. */
static int fail_with(const struct tcp_store *tcp, int err, const char *what)
{
    char cause[KO_ERROR_TEXT];

    snprintf(cause, sizeof cause, "%s", kolo_last_error());
    return ko_fail(err, "%s, %s: %s", tcp->where, what, cause);
}

/* VALIDATE and PING on a new connection. */
static int shake_hands(struct tcp_store *tcp, int fd, const ko_deadline *deadline)
{
    uint8_t hello[10];
    uint8_t echo[4];
    struct ko_buffer message = {.data = hello, .cap = sizeof hello};
    int err;

    tcp->nonce++;
    ko_buffer_put_u8(&message, KO_STORE_VALIDATE);
    ko_buffer_put_u32(&message, KO_WIRE_MAGIC);
    ko_buffer_put_u8(&message, KO_STORE_PING);
    ko_buffer_put_u32(&message, tcp->nonce);
    err = ko_socket_send_all(fd, hello, sizeof hello, deadline);
    if (!err)
        err = ko_socket_recv_all(fd, echo, sizeof echo, deadline);
    if (!err && ko_wire_u32(echo) != tcp->nonce)
        err = ko_fail(KOLO_E_PROTOCOL, "what answers is no TCPStore of PyTorch 2.x or of kolo");
    return err;
}

/* Connects and shakes hands, again and again until the deadline: a server whose queue is full may
 * take a connection and drop it. */
static int reach(struct tcp_store *tcp, const ko_deadline *deadline, int *fd_out)
{
    char cause[KO_ERROR_TEXT];
    int pause_ms = FIRST_PAUSE_MS;
    int tries = 0;
    int left;
    int fd;
    int err;

    for (;;) {
        err = ko_socket_connect(tcp->host, tcp->port, deadline, &fd);
        if (err)
            return err;
        tries++;
        err = shake_hands(tcp, fd, deadline);
        if (!err) {
            *fd_out = fd;
            return KOLO_OK;
        }
        close(fd);
        left = ko_deadline_left_ms(deadline);
        if (err != KOLO_E_PEER_LOST || left == 0 || is_stopped(tcp))
            break;
        poll(NULL, 0, pause_ms < left ? pause_ms : left);
        pause_ms = pause_ms * 3 / 2 < LONGEST_PAUSE_MS ? pause_ms * 3 / 2 : LONGEST_PAUSE_MS;
    }
    snprintf(cause, sizeof cause, "%s", kolo_last_error());
    return ko_fail(err == KOLO_E_PEER_LOST ? KOLO_E_TIMEOUT : err,
                   "%s answers connections, but not with the store's handshake, within %d ms: %s "
                   "(tried %d times)",
                   tcp->where, deadline->timeout_ms, cause, tries);
}

static int connect_store(struct tcp_store *tcp, const ko_deadline *deadline)
{
    int fd;
    int err = reach(tcp, deadline, &fd);

    if (err)
        return err;
    pthread_mutex_lock(&tcp->fd_lock);
    tcp->fd = fd;
    if (tcp->is_stopped)
        shutdown(fd, SHUT_RDWR);
    pthread_mutex_unlock(&tcp->fd_lock);
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

static int put_request(struct tcp_store *tcp, const struct ko_request *request)
{
    struct ko_buffer *out = &tcp->out;

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
        ko_buffer_put_u32(out, ++tcp->nonce);
    }
    return KOLO_OK;
}

/* Sends what has been put together. */
static int flush(struct tcp_store *tcp, const ko_deadline *deadline)
{
    size_t nbytes = ko_buffer_fill(&tcp->out);
    int err = ko_socket_send_all(tcp->fd, ko_buffer_bytes(&tcp->out), nbytes, deadline);

    ko_buffer_consume(&tcp->out, nbytes);
    return err;
}

static int receive_bytes(struct tcp_store *tcp, const ko_deadline *deadline, struct ko_reply *reply)
{
    uint8_t length[8];
    uint64_t nbytes;
    char *value;
    int err = ko_socket_recv_all(tcp->fd, length, sizeof length, deadline);

    if (err)
        return err;
    nbytes = ko_wire_u64(length);
    if (nbytes > KO_STORE_VALUE_MAX)
        return ko_fail(KOLO_E_PROTOCOL, "a value of %llu bytes came; %zu are the most",
                       (unsigned long long)nbytes, KO_STORE_VALUE_MAX);
    value = ko_alloc((size_t)nbytes + 1, "a store's value");
    if (!value)
        return KOLO_E_NOMEM;
    err = ko_socket_recv_all(tcp->fd, value, (size_t)nbytes, deadline);
    if (err) {
        kolo_free(value);
        return err;
    }
    reply->value = value;
    reply->nbytes = (size_t)nbytes;
    return KOLO_OK;
}

static int receive(struct tcp_store *tcp, enum reply_kind kind, const ko_deadline *deadline,
                   struct ko_reply *reply)
{
    uint8_t raw[8];
    size_t nbytes = kind == REPLY_PONG ? 4 : kind == REPLY_BYTE ? 1 : 8;
    int err;

    if (kind == REPLY_BYTES)
        return receive_bytes(tcp, deadline, reply);
    err = ko_socket_recv_all(tcp->fd, raw, nbytes, deadline);
    if (err)
        return err;
    if (kind == REPLY_PONG && ko_wire_u32(raw) != tcp->nonce)
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

static int fail_request(struct tcp_store *tcp, const struct ko_request *request, int err)
{
    char what[KO_STORE_KEY_TEXT + 64];
    char key[KO_STORE_KEY_TEXT] = "";

    disconnect(tcp);
    if (is_stopped(tcp))
        return fail_stopped(tcp);
    if (request->nkeys > 0)
        ko_store_key_text(request->keys[0], key);
    snprintf(what, sizeof what, "%s of \"%s\"%s", exchanges[request->op].name, key,
             request->op == KO_STORE_ADD && err == KOLO_E_PEER_LOST
                 ? " (does the key hold a decimal number?)"
                 : "");
    return fail_with(tcp, err, what);
}

/* Request and reply. */
static int exchange(struct tcp_store *tcp, const struct ko_request *request,
                    const ko_deadline *deadline, struct ko_reply *reply)
{
    int err = put_request(tcp, request);

    if (!err)
        err = flush(tcp, deadline);
    if (!err)
        err = receive(tcp, exchanges[request->op].reply, deadline, reply);
    return err ? fail_request(tcp, request, err) : KOLO_OK;
}

/* ---- waiting ----------------------------------------------------------------------------------
 */

/* Takes back a WAIT. *came: it was answered in the last moment. */
static int cancel_wait(struct tcp_store *tcp, bool *came)
{
    ko_deadline grace = ko_deadline_in(GRACE_MS);
    uint8_t cancel = KO_STORE_CANCEL_WAIT;
    uint8_t answer = KO_WIRE_STOP_WAITING;
    int err = ko_socket_send_all(tcp->fd, &cancel, 1, &grace);
    bool answered = false;

    if (!err)
        err = ko_socket_recv_all(tcp->fd, &answer, 1, &grace);
    if (!err && answer == KO_WIRE_STOP_WAITING) {
        answered = true;
        err = ko_socket_recv_all(tcp->fd, &answer, 1, &grace);
    }
    if (!err && answer != KO_WIRE_WAIT_CANCELED)
        err = ko_fail(KOLO_E_PROTOCOL, "a wrong answer to a CANCEL_WAIT came");
    if (!err)
        *came = answered;
    return err;
}

/* Asks for each key by itself whether it is there. */
static int check_each(struct tcp_store *tcp, const struct ko_request *request, bool *missing)
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
            err = put_request(tcp, &one);
        }
        if (!err)
            err = flush(tcp, &grace);
        if (!err)
            err = ko_socket_recv_all(tcp->fd, answers, n, &grace);
        for (size_t i = 0; i < n && !err; i++)
            missing[done + i] = answers[i] != KO_WIRE_READY;
    }
    return err;
}

static int fail_missing(struct tcp_store *tcp, const struct ko_request *request,
                        const ko_deadline *deadline)
{
    bool *missing = ko_alloc(request->nkeys * sizeof *missing, "the list of missing keys");
    bool known = missing && !check_each(tcp, request, missing);
    int err;

    if (!known)
        disconnect(tcp); /* answers may be on the way */
    err = ko_store_fail_missing(request, known ? missing : NULL, tcp->where, deadline);
    kolo_free(missing);
    return err;
}

static int wait_for(struct tcp_store *tcp, const struct ko_request *keys,
                    const ko_deadline *deadline)
{
    struct ko_request request = {.op = KO_STORE_WAIT, .keys = keys->keys, .nkeys = keys->nkeys};
    ko_deadline sending = ko_deadline_in(GRACE_MS);
    uint8_t answer;
    bool came = false;
    int err = put_request(tcp, &request);

    if (sending.at_ns < deadline->at_ns)
        sending = *deadline; /* a wait of 0 ms is a question, and must still get out whole */
    if (!err)
        err = flush(tcp, &sending);
    if (err)
        return fail_request(tcp, &request, err);
    err = ko_socket_recv_all(tcp->fd, &answer, 1, deadline);
    if (!err && answer != KO_WIRE_STOP_WAITING)
        err = ko_fail(KOLO_E_PROTOCOL, "a wrong answer to a WAIT came");
    if (err != KOLO_E_TIMEOUT)
        return err ? fail_request(tcp, &request, err) : KOLO_OK;
    err = cancel_wait(tcp, &came);
    if (err)
        return fail_request(tcp, &request, err);
    return came ? KOLO_OK : fail_missing(tcp, &request, deadline);
}

/* A key that has come is fetched even when the deadline passed just then. */
static int get(struct tcp_store *tcp, const struct ko_request *request, const ko_deadline *deadline,
               struct ko_reply *reply)
{
    ko_deadline fetching;
    int err = wait_for(tcp, request, deadline);

    if (err)
        return err;
    fetching = ko_deadline_in(GRACE_MS);
    return exchange(tcp, request, fetching.at_ns < deadline->at_ns ? deadline : &fetching, reply);
}

/* ---- the store --------------------------------------------------------------------------------
 */

static int lock(struct tcp_store *tcp, const ko_deadline *deadline)
{
    struct timespec at = {.tv_sec = deadline->at_ns / 1000000000,
                          .tv_nsec = deadline->at_ns % 1000000000};

    if (pthread_mutex_trylock(&tcp->lock) &&
        pthread_mutex_clocklock(&tcp->lock, CLOCK_MONOTONIC, &at))
        return ko_fail(KOLO_E_TIMEOUT,
                       "%s: another thread's call on the same handle lasted %d ms (open a second "
                       "handle for threads that wait)",
                       tcp->where, deadline->timeout_ms);
    return KOLO_OK;
}

static int carry_out(struct tcp_store *tcp, const struct ko_request *request,
                     const ko_deadline *deadline, struct ko_reply *reply)
{
    ko_deadline soon = ko_deadline_within(deadline, RECONNECT_MS);
    int err;

    if (is_stopped(tcp))
        return fail_stopped(tcp);
    if (tcp->fd < 0) {
        err = connect_store(tcp, &soon);
        if (err)
            return fail_with(tcp, err, "connecting again after a call that failed");
    }
    ko_buffer_consume(&tcp->out, ko_buffer_fill(&tcp->out)); /* what a failed call left */
    if (request->op == KO_STORE_WAIT)
        return wait_for(tcp, request, deadline);
    if (request->op == KO_STORE_GET)
        return get(tcp, request, deadline, reply);
    return exchange(tcp, request, deadline, reply);
}

static int tcp_call(kolo_store *store, const struct ko_request *request,
                    const ko_deadline *deadline, struct ko_reply *reply)
{
    struct tcp_store *tcp = (struct tcp_store *)store;
    int err = lock(tcp, deadline);

    if (err)
        return err;
    err = carry_out(tcp, request, deadline, reply);
    pthread_mutex_unlock(&tcp->lock);
    return err;
}

/* Wakes a call that waits for an answer. The server goes first, with all its other clients. */
static void tcp_stop(kolo_store *store)
{
    struct tcp_store *tcp = (struct tcp_store *)store;

    pthread_mutex_lock(&tcp->fd_lock);
    tcp->is_stopped = true;
    if (tcp->fd >= 0)
        shutdown(tcp->fd, SHUT_RDWR);
    pthread_mutex_unlock(&tcp->fd_lock);
    ko_server_close(tcp->server);
    tcp->server = NULL;
}

static void tcp_free(kolo_store *store)
{
    struct tcp_store *tcp = (struct tcp_store *)store;

    disconnect(tcp);
    pthread_mutex_destroy(&tcp->lock);
    pthread_mutex_destroy(&tcp->fd_lock);
    ko_buffer_free(&tcp->out);
    free(tcp);
}

static int tcp_port(const kolo_store *store)
{
    return ((const struct tcp_store *)store)->port;
}

static int tcp_own_address(kolo_store *store, char *host, size_t cap)
{
    struct tcp_store *tcp = (struct tcp_store *)store;
    char name[KO_SOCKET_NAME] = "unknown";
    char *text = name;
    char *end;

    pthread_mutex_lock(&tcp->fd_lock);
    if (tcp->fd >= 0)
        ko_socket_own_name(tcp->fd, name);
    pthread_mutex_unlock(&tcp->fd_lock);
    end = strrchr(name, ':');
    if (end && text[0] == '[') {
        text++;
        end--;
    }
    if (!end || (size_t)(end - text) >= cap)
        return ko_fail(KOLO_E_PEER_LOST, "%s: no connection to tell this end's address of",
                       tcp->where);
    *end = '\0';
    snprintf(host, cap, "%s", text);
    return KOLO_OK;
}

static int tcp_clone(kolo_store *store, kolo_store **clone);

static const struct ko_store_ops tcp_ops = {
    .name = "tcp",
    .call = tcp_call,
    .clone = tcp_clone,
    .stop = tcp_stop,
    .free = tcp_free,
    .port = tcp_port,
    .own_address = tcp_own_address,
};

/* A store that is not connected yet. */
static int make(const char *host, int port, int timeout_ms, struct tcp_store **made)
{
    struct tcp_store *tcp = ko_alloc(sizeof *tcp, "a TCP store");
    int err;

    if (!tcp)
        return KOLO_E_NOMEM;
    err = ko_store_init(&tcp->store, &tcp_ops, timeout_ms);
    if (err) {
        free(tcp);
        return err;
    }
    pthread_mutex_init(&tcp->lock, NULL);
    pthread_mutex_init(&tcp->fd_lock, NULL);
    tcp->fd = -1;
    tcp->port = port;
    tcp->nonce = (uint32_t)getpid() << 8;
    snprintf(tcp->host, sizeof tcp->host, "%s", host);
    *made = tcp;
    return KOLO_OK;
}

static int connect_first(struct tcp_store *tcp)
{
    ko_deadline deadline = ko_deadline_in(ko_store_timeout(&tcp->store));

    snprintf(tcp->where, sizeof tcp->where, "the store at %s:%d", tcp->host, tcp->port);
    return connect_store(tcp, &deadline);
}

static int tcp_clone(kolo_store *store, kolo_store **clone)
{
    struct tcp_store *tcp = (struct tcp_store *)store;
    struct tcp_store *second;
    int err = make(tcp->host, tcp->port, ko_store_timeout(store), &second);

    if (err)
        return err;
    err = connect_first(second);
    if (err) {
        kolo_store_close(&second->store);
        return err;
    }
    *clone = &second->store;
    return KOLO_OK;
}

int kolo_store_open_tcp(const char *host, int port, int is_server, int timeout_ms,
                        kolo_store **store)
{
    struct tcp_store *tcp;
    int err;

    if (!host || !*host || strlen(host) >= HOST_NBYTES || !store)
        return ko_fail(KOLO_E_INVALID, "a TCP store needs the %s",
                       store ? "name or address of a "
                               "host"
                             : "place for the store");
    if (port < !is_server || port > 65535)
        return ko_fail(KOLO_E_INVALID, "%d is no port of a TCP store: %d to 65535 are", port,
                       !is_server);
    err = make(host, port, timeout_ms, &tcp);
    if (err)
        return err;
    if (is_server)
        err = ko_server_open(host, port, &tcp->server);
    if (!err && is_server)
        tcp->port = ko_server_port(tcp->server);
    if (!err)
        err = connect_first(tcp);
    if (err) {
        kolo_store_close(&tcp->store);
        return err;
    }
    *store = &tcp->store;
    return KOLO_OK;
}
