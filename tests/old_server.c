/* SPDX-License-Identifier: MIT */
#include "old_server.h"

#include "socket.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PAIRS = 64, PATIENCE_MS = 30000 };

struct pair {
    int client, server; /* -1: free */
    int second;         /* of 1.13: to the server, as its clients have one that says nothing */
    bool is_asking;     /* what comes next from the client is not the beginning of a request */
    bool has_begun;     /* nor is it the first */
};

struct old_server {
    enum old_server_kind kind;
    int listen_fd;
    int port;
    int naccepted;
    atomic_bool stop;
    pthread_t thread;
    struct pair pairs[PAIRS];
};

static void hang_up(struct pair *pair)
{
    close(pair->client);
    close(pair->server);
    if (pair->second >= 0)
        close(pair->second);
    pair->client = pair->server = pair->second = -1;
}

/* What a client sends after an answer begins with an opcode, at first perhaps behind VALIDATE. */
static bool would_hang_up(enum old_server_kind kind, bool is_first, const uint8_t *bytes, ssize_t n)
{
    static const uint8_t validate[] = {0, 0xce, 0xf7, 0x85, 0x3c};
    const bool is_valid = n >= 5 && !memcmp(bytes, validate, 5);

    switch (kind) {
    case OLD_1_13:
        return is_valid || (n > 0 && bytes[0] >= 9);
    case OLD_2_1:
        return is_valid || (n > 0 && bytes[0] >= 12);
    case OLD_NO_PING:
        return is_first ? !is_valid || (n > 5 && bytes[5] >= 13) : n > 0 && bytes[0] >= 13;
    case OLD_EARLY_2:
        return n > 0 && bytes[0] >= 14;
    default:
        return false;
    }
}

/* A request's beginning, if `pair` is there. False at the end of the connection. */
static bool pass_on(int from, int to, const struct old_server *server, struct pair *pair)
{
    ko_deadline deadline = ko_deadline_in(PATIENCE_MS);
    uint8_t bytes[65536];
    ssize_t n = recv(from, bytes, sizeof bytes, MSG_DONTWAIT);

    if (n < 0)
        return true;
    if (n == 0 || (pair && would_hang_up(server->kind, !pair->has_begun, bytes, n)))
        return false;
    if (pair)
        pair->has_begun = true;
    return ko_socket_send_all(to, bytes, (size_t)n, &deadline) == 0;
}

static int busy_for(enum old_server_kind kind)
{
    return kind == OLD_BUSIER ? 4 : kind == OLD_BUSY ? 2 : 0;
}

static void take(struct old_server *server)
{
    ko_deadline deadline = ko_deadline_in(PATIENCE_MS);
    struct pair *pair = server->pairs;
    int fd;

    if (ko_socket_accept(server->listen_fd, &fd))
        return;
    while (pair < server->pairs + PAIRS && pair->client >= 0)
        pair++;
    if (pair == server->pairs + PAIRS || server->naccepted++ < busy_for(server->kind) ||
        ko_socket_connect("127.0.0.1", server->port, &deadline, &pair->server)) {
        close(fd);
        return;
    }
    pair->client = fd;
    if (server->kind == OLD_1_13)
        ko_socket_connect("127.0.0.1", server->port, &deadline, &pair->second);
    pair->is_asking = pair->has_begun = false;
}

static void *run(void *argument)
{
    struct old_server *server = argument;
    struct pollfd entries[1 + 2 * PAIRS];

    while (!atomic_load(&server->stop)) {
        entries[0] = (struct pollfd){.fd = server->listen_fd, .events = POLLIN};
        for (int i = 0; i < PAIRS; i++) {
            entries[1 + 2 * i] = (struct pollfd){.fd = server->pairs[i].client, .events = POLLIN};
            entries[2 + 2 * i] = (struct pollfd){.fd = server->pairs[i].server, .events = POLLIN};
        }
        poll(entries, 1 + 2 * PAIRS, 20);
        for (int i = 0; i < PAIRS; i++) {
            struct pair *pair = &server->pairs[i];
            bool is_there = true;

            if (entries[1 + 2 * i].revents) {
                is_there =
                    pass_on(pair->client, pair->server, server, pair->is_asking ? NULL : pair);
                pair->is_asking = true;
            }
            if (is_there && entries[2 + 2 * i].revents) {
                is_there = pass_on(pair->server, pair->client, server, NULL);
                pair->is_asking = false;
            }
            if (!is_there)
                hang_up(pair);
        }
        if (entries[0].revents)
            take(server);
    }
    return NULL;
}

struct old_server *old_server_open(enum old_server_kind kind, int port, int *own_port)
{
    struct old_server *server = calloc(1, sizeof *server);

    assert_non_null(server);
    server->kind = kind;
    server->port = port;
    for (int i = 0; i < PAIRS; i++)
        server->pairs[i] = (struct pair){.client = -1, .server = -1, .second = -1};
    assert_int_equal(ko_socket_listen("127.0.0.1", 0, &server->listen_fd, own_port), 0);
    assert_int_equal(pthread_create(&server->thread, NULL, run, server), 0);
    return server;
}

void old_server_close(struct old_server *server)
{
    atomic_store(&server->stop, true);
    pthread_join(server->thread, NULL);
    for (int i = 0; i < PAIRS; i++)
        if (server->pairs[i].client >= 0)
            hang_up(&server->pairs[i]);
    close(server->listen_fd);
    free(server);
}
