/* SPDX-License-Identifier: MIT
 *
 * A store over TCP: a client, a lock so that one request is on the way at a time, and, in the
 * process that serves, the server.
 */
#include "config.h"
#include "status.h"
#include "store.h"
#include "store_client.h"
#include "store_server.h"
#include "thread.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct tcp_store {
    kolo_store store; /* first, so that a store is its TCP store */
    pthread_mutex_t lock;
    pthread_cond_t turn;
    bool is_busy;             /* a request is under way; guarded by lock */
    struct ko_client client;  /* of the thread that made is_busy true */
    struct ko_server *server; /* NULL unless this process serves */
};

/* A turn is a lock with a deadline: pthread_mutex_clocklock, if all sanitizers knew it. */
static int take_turn(struct tcp_store *tcp, const ko_deadline *deadline)
{
    struct timespec at = ko_deadline_timespec(deadline);
    bool is_mine;

    pthread_mutex_lock(&tcp->lock);
    while (tcp->is_busy && !ko_deadline_passed(deadline))
        pthread_cond_timedwait(&tcp->turn, &tcp->lock, &at);
    is_mine = !tcp->is_busy;
    if (is_mine)
        tcp->is_busy = true;
    pthread_mutex_unlock(&tcp->lock);
    if (is_mine)
        return KOLO_OK;
    return ko_fail(KOLO_E_TIMEOUT,
                   "%s: another thread's call on the same handle lasted %d ms (open a second "
                   "handle for threads that wait)",
                   tcp->client.where, deadline->timeout_ms);
}

static void end_turn(struct tcp_store *tcp)
{
    pthread_mutex_lock(&tcp->lock);
    tcp->is_busy = false;
    pthread_cond_signal(&tcp->turn);
    pthread_mutex_unlock(&tcp->lock);
}

static void open_turns(struct tcp_store *tcp)
{
    pthread_mutex_init(&tcp->lock, NULL);
    ko_condition_init(&tcp->turn);
}

static int tcp_call(kolo_store *store, const struct ko_request *request,
                    const ko_deadline *deadline, struct ko_reply *reply)
{
    struct tcp_store *tcp = (struct tcp_store *)store;
    int err = take_turn(tcp, deadline);

    if (err)
        return err;
    err = ko_client_call(&tcp->client, request, deadline, reply);
    end_turn(tcp);
    return err;
}

/* The client first, so that its own call in progress says "closed" rather than "lost". */
static void tcp_stop(kolo_store *store)
{
    struct tcp_store *tcp = (struct tcp_store *)store;

    ko_client_stop(&tcp->client);
    ko_server_close(tcp->server);
    tcp->server = NULL;
}

static void tcp_free(kolo_store *store)
{
    struct tcp_store *tcp = (struct tcp_store *)store;

    ko_client_close(&tcp->client);
    pthread_cond_destroy(&tcp->turn);
    pthread_mutex_destroy(&tcp->lock);
    free(tcp);
}

static int tcp_port(const kolo_store *store)
{
    return ((const struct tcp_store *)store)->client.port;
}

static int tcp_own_address(kolo_store *store, char *host, size_t cap)
{
    return ko_client_own_address(&((struct tcp_store *)store)->client, host, cap);
}

static const char *tcp_where(const kolo_store *store)
{
    return ((const struct tcp_store *)store)->client.where;
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
    .where = tcp_where,
};

/* Opens a store and connects it; server, which may be NULL, becomes its own on success. */
static int open_connected(const char *host, int port, int timeout_ms, bool is_foreign,
                          struct ko_server *server, kolo_store **store)
{
    struct tcp_store *tcp = ko_alloc(sizeof *tcp, "a TCP store");
    ko_deadline deadline;
    int err;

    if (!tcp)
        return KOLO_E_NOMEM;
    err = ko_store_init(&tcp->store, &tcp_ops, timeout_ms);
    if (err) {
        free(tcp);
        return err;
    }
    open_turns(tcp);
    err = ko_client_open(&tcp->client, host, port, is_foreign);
    deadline = ko_store_deadline(&tcp->store, -1);
    if (!err)
        err = ko_client_connect(&tcp->client, &deadline);
    if (err) {
        kolo_store_close(&tcp->store);
        return err;
    }
    tcp->server = server;
    *store = &tcp->store;
    return KOLO_OK;
}

static int tcp_clone(kolo_store *store, kolo_store **clone)
{
    const struct ko_client *client = &((struct tcp_store *)store)->client;

    int err = open_connected(client->host, client->port, ko_store_timeout(store),
                             client->is_foreign, NULL, clone);

    if (!err)
        ko_store_limit_as(*clone, store);
    return err;
}

static int check_address(const char *host, int port, int lowest, kolo_store **store)
{
    if (!host || !*host || !store)
        return ko_fail(KOLO_E_INVALID,
                       "a TCP store needs a host and a place for the store; %s is "
                       "missing",
                       store ? "the host" : "the place");
    if (strlen(host) >= KO_CLIENT_HOST)
        return ko_fail(KOLO_E_INVALID, "a store's host name has at most %d characters",
                       KO_CLIENT_HOST - 1);
    if (port < lowest || port > 65535)
        return ko_fail(KOLO_E_INVALID, "%d is no port of a TCP store; %d to 65535 are", port,
                       lowest);
    return KOLO_OK;
}

int kolo_store_count_in(kolo_store *store, int64_t *count)
{
    const kolo_bytes workers = {"init/", 5}; /* where PyTorch's clients count */
    const struct ko_request request = {
        .op = KO_STORE_ADD, .keys = &workers, .nkeys = 1, .delta = 1, .is_bare = true};
    struct ko_reply reply;
    ko_deadline deadline;
    int err;

    if (!store)
        return ko_fail(KOLO_E_INVALID, "the store is NULL");
    if (store->ops != &tcp_ops)
        return ko_fail(KOLO_E_UNSUPPORTED,
                       "a %s store waits for no number of clients; a TCPStore of PyTorch's does",
                       store->ops->name);
    deadline = ko_store_deadline(store, -1);
    err = ko_store_call(store, &request, &deadline, &reply);
    if (!err && count)
        *count = reply.number;
    return err;
}

int ko_store_join_foreign(const char *host, int port, int timeout_ms, kolo_store **store)
{
    int err = check_address(host, port, 1, store);

    return err ? err : open_connected(host, port, timeout_ms, true, NULL, store);
}

int kolo_store_open_tcp(const char *host, int port, int is_server, int timeout_ms,
                        kolo_store **store)
{
    struct ko_server *server = NULL;
    int limit_ms = timeout_ms;
    ko_deadline deadline;
    int err = check_address(host, port, is_server ? 0 : 1, store);

    if (!err)
        err = ko_config_deadline(&limit_ms, &deadline);
    if (!err && is_server)
        err = ko_server_open(host, port, NULL, &deadline, &server);
    if (err)
        return err;
    err = open_connected(host, server ? ko_server_port(server) : port, timeout_ms, false, server,
                         store);
    if (err)
        ko_server_close(server);
    return err;
}
