/* SPDX-License-Identifier: MIT
 *
 * store_connection.h: what a store's server knows of one connection, and of all of them. For the
 * server's thread.
 *
 * store_strangers.c keeps each connection in the circle that it has come to by what it has said.
 */
#ifndef KO_STORE_CONNECTION_H
#define KO_STORE_CONNECTION_H

#include "clock.h"
#include "fork_fds.h"
#include "log_seldom.h"
#include "poller.h"
#include "secret_gate.h"
#include "socket.h"
#include "store_listen.h"
#include "store_session.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/queue.h>

/* Of more silent connections, those are cut off that have been silent for so long as an
 * introduction may take. */
enum { KO_SILENT_KEPT = 256 };

/* SILENT: nothing has come. BEGUN: part of a first message has. UNPAIRED: an old client, which may
 * be one of 1.13, whose second connection still counts as silent. UNSURE: one whose message may be
 * that of a client of 1.13. FIRST, SECOND: the two connections of such clients. */
enum ko_circle {
    KO_SILENT,
    KO_BEGUN,
    KO_UNPAIRED,
    KO_UNSURE,
    KO_FIRST,
    KO_SECOND,
    KO_CLIENT,
    KO_DEAD,
    KO_NCIRCLES
};

TAILQ_HEAD(ko_connections, ko_connection);

struct ko_connection {
    struct ko_session session; /* first, so that a session is its connection */
    struct ko_server *server;
    struct ko_gate gate; /* to be passed before the session sees a byte */
    struct ko_fork_fd
        socket;     /* -1: cut off, to be freed at the end of the round in which it is closed */
    bool is_closed; /* its session is */
    int wanted;
    char peer[KO_SOCKET_NAME]; /* once it has been reset the system does not know it any more */
    enum ko_circle circle;
    bool is_ready;                   /* in ready as well */
    bool is_claimant;                /* in claimants as well */
    ko_deadline introduction, claim; /* introduction: also of its being unsure */
    TAILQ_ENTRY(ko_connection) link;
    TAILQ_ENTRY(ko_connection) ready_link;
    TAILQ_ENTRY(ko_connection) claim_link;
};

struct ko_server {
    struct ko_service service;
    struct ko_guard guard;
    struct ko_poller poller;
    struct ko_listeners listeners;
    atomic_bool stop;
    bool has_thread;
    pthread_t thread;
    struct ko_connections circles[KO_NCIRCLES]; /* each with those who came last at its end */
    int counts[KO_NCIRCLES];
    int strangers_max;            /* in one circle */
    struct ko_seldom turned_away; /* warnings of them */
    int introduction_ms;
    struct ko_connections ready;     /* to be run without an event */
    struct ko_connections claimants; /* each with those whose claims began last at its end */
};

/* A connection that has just come. */
void ko_stranger_enter(struct ko_connection *connection);
/* Moves a connection on by what has come from it. */
void ko_stranger_promote(struct ko_connection *connection);
/* Of those that began to introduce themselves and did not go on, and of the unsure, cuts off who
 * has taken too long. */
void ko_strangers_cut_off(struct ko_server *server);
/* As ko_service has it. */
bool ko_connection_has_other_half(struct ko_session *session, enum ko_half half);

void ko_connection_move(struct ko_connection *connection, enum ko_circle circle);
/* To be run in this round, without an event. */
void ko_connection_make_ready(struct ko_connection *connection);
/* Says in the log, not too often, why it is closed: its owner may not see it. */
void ko_connection_warn(const struct ko_connection *connection, const char *why);
/* Ends it; it is freed at the end of the round. */
void ko_connection_cut_off(struct ko_connection *connection, const char *why);

#endif
