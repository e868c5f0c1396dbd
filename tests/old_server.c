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
    bool is_asking;     /* what comes next from the client is not the beginning of a request */
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
    pair->client = pair->server = -1;
}

/* What a client sends after an answer begins with an opcode. */
static bool would_hang_up(const struct old_server *server, const uint8_t *bytes, ssize_t n)
{
    static const uint8_t validate[] = {0, 0xce, 0xf7, 0x85, 0x3c};

    if (server->kind == OLD_1_13)
        return n >= 5 && !memcmp(bytes, validate, 5);
    return server->kind == OLD_EARLY_2 && n > 0 && bytes[0] >= 14;
}

/* False at the end of the connection. */
static bool pass_on(int from, int to, const struct old_server *server)
{
    ko_deadline deadline = ko_deadline_in(PATIENCE_MS);
    uint8_t bytes[65536];
    ssize_t n = recv(from, bytes, sizeof bytes, MSG_DONTWAIT);

    if (n < 0)
        return true;
    if (n == 0 || (server && would_hang_up(server, bytes, n)))
        return false;
    return ko_socket_send_all(to, bytes, (size_t)n, &deadline) == 0;
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
    if (pair == server->pairs + PAIRS || (server->kind == OLD_BUSY && server->naccepted++ < 2) ||
        ko_socket_connect("127.0.0.1", server->port, &deadline, &pair->server)) {
        close(fd);
        return;
    }
    pair->client = fd;
    pair->is_asking = false;
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
                is_there = pass_on(pair->client, pair->server, pair->is_asking ? NULL : server);
                pair->is_asking = true;
            }
            if (is_there && entries[2 + 2 * i].revents) {
                is_there = pass_on(pair->server, pair->client, NULL);
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
        server->pairs[i] = (struct pair){-1, -1, false};
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
