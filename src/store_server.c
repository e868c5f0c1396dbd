/* SPDX-License-Identifier: MIT
 *
 * One round of the loop: wait for events, read once from each connection that has something and
 * answer what can be answered, then run those whose wait ended in this round, then cut off those
 * that began to introduce themselves and did not go on, and let go what was kept for those that
 * were woken to pop it and do not. A connection is freed only at the end of a
 * round, since events of the round may still point to it.
 */
#include "store_server.h"

#include "config.h"
#include "fault.h"
#include "log.h"
#include "socket.h"
#include "status.h"
#include "store_connection.h"
#include "store_output.h"
#include "thread.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    INTRODUCTION_MS = 2000,  /* as usual */
    LONGEST_PAUSE_MS = 2000, /* then it looks whether it is to stop: who closes all descriptors of a
                              * process closes that of the wake, too */
    CLAIM_MS = 1000, /* a client that has been woken by a queue's value has so long to pop it */
    SEND_MOST = 128 << 10, /* to a client at once */
    ACCEPTS_PER_ROUND = 64,
    EVENTS_PER_ROUND = 128
};

/* ---- connections -------------------------------------------------------------------------- */

void ko_connection_make_ready(struct ko_connection *connection)
{
    if (connection->is_ready || connection->socket.fd < 0)
        return;
    connection->is_ready = true;
    TAILQ_INSERT_TAIL(&connection->server->ready, connection, ready_link);
}

static void unmake_ready(struct ko_connection *connection)
{
    if (connection->is_ready)
        TAILQ_REMOVE(&connection->server->ready, connection, ready_link);
    connection->is_ready = false;
}

static void session_woken(struct ko_session *session)
{
    ko_connection_make_ready((struct ko_connection *)session);
}

/* Sees to it that claims end, though the client says nothing more. */
static void time_claim(struct ko_connection *connection)
{
    bool has_claim = ko_session_has_claim(&connection->session);

    if (has_claim && !connection->is_claimant) {
        connection->claim = ko_deadline_in(CLAIM_MS);
        TAILQ_INSERT_TAIL(&connection->server->claimants, connection, claim_link);
    }
    if (!has_claim && connection->is_claimant)
        TAILQ_REMOVE(&connection->server->claimants, connection, claim_link);
    connection->is_claimant = has_claim;
}

void ko_connection_cut_off(struct ko_connection *connection, const char *why)
{
    struct ko_server *server = connection->server;

    if (connection->socket.fd < 0)
        return;
    ko_log(KO_LOG_DEBUG, "store server: closing the connection of %s: %s", connection->peer, why);
    ko_poller_remove(&server->poller, connection->socket.fd);
    ko_fork_fd_close(&connection->socket);
    connection->is_closed = ko_session_close_some(&connection->session);
    time_claim(connection);
    unmake_ready(connection);
    ko_connection_move(connection, KO_DEAD);
}

/* One whose end takes longer than a turn stays for the next rounds. */
static void bury_dead(struct ko_server *server)
{
    struct ko_connection *connection, *next;

    for (connection = TAILQ_FIRST(&server->circles[KO_DEAD]); connection; connection = next) {
        next = TAILQ_NEXT(connection, link);
        if (!connection->is_closed)
            connection->is_closed = ko_session_close_some(&connection->session);
        if (!connection->is_closed)
            continue;
        TAILQ_REMOVE(&server->circles[KO_DEAD], connection, link);
        server->counts[KO_DEAD]--;
        free(connection);
    }
}

static void welcome(struct ko_server *server, int fd)
{
    struct ko_connection *connection = ko_alloc(sizeof *connection, "a store's connection");

    if (!connection || ko_gate_begin(&connection->gate, &server->guard, &ko_claim_store, false) ||
        ko_poller_add(&server->poller, fd, KO_POLL_IN, connection)) {
        free(connection);
        close(fd);
        return;
    }
    ko_session_open(&connection->session, &server->service, session_woken);
    connection->server = server;
    ko_socket_peer_name(fd, connection->peer);
    ko_fork_fd_keep(&connection->socket, fd);
    connection->wanted = KO_POLL_IN;
    ko_stranger_enter(connection);
}

static void accept_some(struct ko_server *server, int listen_fd)
{
    int fd;

    for (int i = 0; i < ACCEPTS_PER_ROUND; i++) {
        if (ko_socket_accept(listen_fd, &fd))
            return;
        welcome(server, fd);
    }
}

/* The listening socket that an event is of; NULL if it is of a connection. */
static const int *listener_of(const struct ko_server *server, const void *owner)
{
    for (int i = 0; i < server->listeners.n; i++)
        if (owner == &server->listeners.fds[i])
            return owner;
    return NULL;
}

/* ---- moving bytes ------------------------------------------------------------------------- */

/* Reads once. False if the client has gone. */
static bool read_some(struct ko_connection *connection)
{
    struct ko_buffer *in = &connection->session.in;
    size_t nbytes = ko_session_wants(&connection->session);
    size_t room;
    ssize_t n;

    if (nbytes == 0)
        return true;
    if (ko_buffer_reserve(in, nbytes)) {
        ko_connection_warn(connection, kolo_last_error());
        return false;
    }
    if (ko_fault(KO_FAULT_RECV))
        return false;
    room = in->cap - in->tail;
    room = room < KO_SESSION_READ_MOST ? room : KO_SESSION_READ_MOST;
    n = recv(connection->socket.fd, in->data + in->tail, room, 0);
    if (n > 0)
        in->tail += (size_t)n;
    return n > 0 || (n < 0 && ko_socket_is_not_yet(errno));
}

/* Sends what the socket takes, up to a bound. False if the client has gone. */
static bool write_some(struct ko_connection *connection)
{
    struct ko_session *session = &connection->session;
    const struct ko_buffer *first;
    size_t left = SEND_MOST, nbytes;
    ssize_t n;

    while (ko_output_nbytes(session) > 0 && left > SEND_MOST / 2) { /* no crumbs of a piece */
        if (ko_fault(KO_FAULT_SEND))
            return false;
        first = ko_output_first(session);
        nbytes = ko_buffer_fill(first) < left ? ko_buffer_fill(first) : left;
        n = send(connection->socket.fd, ko_buffer_bytes(first), nbytes, MSG_NOSIGNAL);
        if (n < 0)
            return ko_socket_is_not_yet(errno);
        ko_output_consume(session, (size_t)n);
        left -= (size_t)n;
    }
    return true;
}

static void want(struct ko_connection *connection)
{
    const struct ko_session *session = &connection->session;
    int wanted = (ko_session_wants(session) > 0 ? KO_POLL_IN : 0) |
                 (ko_output_nbytes(session) > 0 ? KO_POLL_OUT : 0);

    if (wanted == connection->wanted)
        return;
    connection->wanted = wanted;
    if (ko_poller_change(&connection->server->poller, connection->socket.fd, wanted, connection))
        ko_connection_cut_off(connection, kolo_last_error());
}

static size_t held_bytes(const struct ko_connection *connection)
{
    const struct ko_session *session = &connection->session;

    return session->in.cap + ko_output_room(session) + session->will.bytes.cap +
           session->will.made.cap + session->listing.keys.cap;
}

static struct ko_connection *largest_of(struct ko_server *server)
{
    struct ko_connection *largest = NULL;
    struct ko_connection *connection;

    for (enum ko_circle circle = KO_BEGUN; circle <= KO_CLIENT; circle++)
        TAILQ_FOREACH(connection, &server->circles[circle], link)
    if (!largest || held_bytes(connection) > held_bytes(largest))
        largest = connection;
    return largest;
}

/* Keeps a quarter of the buffers' memory free, so that those who need little are never refused for
 * the sake of those who hoard. */
static void cut_off_hoarders(struct ko_server *server)
{
    static const char hoards[] = "it holds most of what KOLO_STORE_BUFFER_BYTES allows, of which "
                                 "three quarters are in use";
    const struct ko_budget *budget = &server->service.budget;
    struct ko_connection *largest;

    while (budget->used > budget->cap / 4 * 3 && (largest = largest_of(server))) {
        ko_connection_warn(largest, hoards);
        ko_connection_cut_off(largest, hoards);
    }
}

/* Answers what is there and sends what can be sent. */
static void run(struct ko_connection *connection)
{
    struct ko_session *session = &connection->session;
    bool was_full;
    int err;

    cut_off_hoarders(connection->server);
    if (connection->socket.fd < 0)
        return;
    err = ko_session_run(session);
    if (err && (err != KOLO_E_PROTOCOL || session->is_introduced)) /* strangers send anything */
        ko_connection_warn(connection, kolo_last_error());
    if (err) {
        write_some(connection); /* replies to what came before the fault */
        ko_connection_cut_off(connection, kolo_last_error());
        return;
    }
    time_claim(connection);
    ko_stranger_promote(connection);
    if (connection->socket.fd < 0)
        return;
    was_full = ko_output_nbytes(session) >= KO_SESSION_OUTPUT_BOUND;
    if (!write_some(connection)) {
        ko_connection_cut_off(connection, "it cannot be sent to");
        return;
    }
    if (session->has_more || (was_full && ko_output_nbytes(session) < KO_SESSION_OUTPUT_BOUND))
        ko_connection_make_ready(connection); /* there may be more to answer; the others first */
    want(connection);
}

/* PyTorch's clients, for one, say that the connection was closed. */
void ko_connection_warn(const struct ko_connection *connection, const char *why)
{
    ko_log_seldom(&connection->server->turned_away,
                  "a connection from %s to the store was closed: %s", connection->peer, why);
}

/* True once the connection has shown that it may be here. */
static bool has_passed(struct ko_connection *connection)
{
    int err = ko_gate_pass(&connection->gate, connection->socket.fd);
    int wanted = ko_gate_wanted(&connection->gate);

    if (err == KO_AGAIN && wanted != connection->wanted) {
        connection->wanted = wanted;
        err = ko_poller_change(&connection->server->poller, connection->socket.fd, wanted,
                               connection);
    }
    if (err == KOLO_E_PROTOCOL ||
        (err == KOLO_E_PEER_LOST && ko_handshake_is_unanswered(&connection->gate.handshake)))
        ko_connection_warn(connection, kolo_last_error());
    if (err && err != KO_AGAIN)
        ko_connection_cut_off(connection, kolo_last_error());
    return !err && !ko_gate_wanted(&connection->gate);
}

static void serve(struct ko_connection *connection, int happened)
{
    struct ko_session *session = &connection->session;
    bool is_there = true;

    if (connection->socket.fd < 0 || (connection->gate.kind && !has_passed(connection)))
        return;
    if (happened & KO_POLL_OUT)
        is_there = write_some(connection);
    if (is_there && happened & (KO_POLL_IN | KO_POLL_HUP))
        is_there = ko_session_wants(session) > 0 ? read_some(connection)
                                                 : session->has_more || !(happened & KO_POLL_HUP);
    if (!is_there)
        ko_connection_cut_off(connection, "it has gone");
    else if (!session->has_more) /* else its next turn comes behind the others */
        run(connection);
}

/* ---- the thread --------------------------------------------------------------------------- */

/* Runs those that are ready now; who becomes ready meanwhile comes in the next round. */
static void run_ready(struct ko_server *server)
{
    struct ko_connection *connection;
    size_t n = 0;

    TAILQ_FOREACH(connection, &server->ready, ready_link)
    n++;
    while (n-- > 0 && (connection = TAILQ_FIRST(&server->ready))) {
        unmake_ready(connection);
        run(connection);
    }
}

/* A client that waits for an answer is woken onto this thread's core, as if the thread were about
 * to sleep. With turns left it is not, and without this the client would stand there for the rest
 * of them, milliseconds of them. */
static void let_answered_run(const struct ko_server *server)
{
    if (!TAILQ_EMPTY(&server->ready))
        sched_yield();
}

static void end_old_claims(struct ko_server *server)
{
    struct ko_connection *oldest;

    while ((oldest = TAILQ_FIRST(&server->claimants)) && ko_deadline_passed(&oldest->claim)) {
        ko_session_end_claim(&oldest->session);
        time_claim(oldest);
    }
}

static void note_deadline(const ko_deadline *deadline, int *left_ms)
{
    int left = ko_deadline_left_ms(deadline);

    if (left < *left_ms)
        *left_ms = left;
}

static bool has_work(const struct ko_server *server)
{
    return !TAILQ_EMPTY(&server->ready) || !TAILQ_EMPTY(&server->circles[KO_DEAD]);
}

/* Until the next of the deadlines that the loop keeps. */
static int pause_ms(const struct ko_server *server)
{
    const struct ko_connection *begun = TAILQ_FIRST(&server->circles[KO_BEGUN]);
    const struct ko_connection *unsure = TAILQ_FIRST(&server->circles[KO_UNSURE]);
    const struct ko_connection *claimant = TAILQ_FIRST(&server->claimants);
    int left_ms = LONGEST_PAUSE_MS;

    if (has_work(server) || ko_table_is_untidy(server->service.table))
        return 0;
    if (begun)
        note_deadline(&begun->introduction, &left_ms);
    if (unsure)
        note_deadline(&unsure->introduction, &left_ms);
    if (claimant)
        note_deadline(&claimant->claim, &left_ms);
    return left_ms;
}

static void *serve_all(void *argument)
{
    struct ko_server *server = argument;
    struct ko_event events[EVENTS_PER_ROUND];
    int n;

    while (!atomic_load(&server->stop)) {
        n = ko_poller_wait(&server->poller, pause_ms(server), events, EVENTS_PER_ROUND);
        if (n < 0) {
            ko_log(KO_LOG_ERROR, "the store server ends: %s", kolo_last_error());
            break;
        }
        for (int i = 0; i < n; i++) {
            const int *listener = listener_of(server, events[i].owner);

            if (listener)
                accept_some(server, *listener);
            else if (events[i].owner)
                serve(events[i].owner, events[i].happened);
        }
        if (n > 0)
            let_answered_run(server);
        else if (!has_work(server))
            ko_table_tidy_some(server->service.table);
        run_ready(server);
        ko_strangers_cut_off(server);
        end_old_claims(server);
        bury_dead(server);
    }
    return NULL;
}

static int start_thread(struct ko_server *server)
{
    int err = ko_thread_start(&server->thread, serve_all, server, "the store server's thread");

    server->has_thread = !err;
    return err;
}

/* ---- life --------------------------------------------------------------------------------- */

static int open_listeners(struct ko_server *server, const char *host, int port,
                          const ko_deadline *deadline)
{
    struct ko_listeners *listeners = &server->listeners;
    int err = ko_listeners_open(listeners, host, port, deadline);

    for (int i = 0; i < listeners->n && !err; i++)
        err = ko_poller_add(&server->poller, listeners->fds[i], KO_POLL_IN, &listeners->fds[i]);
    return err;
}

/* The limit is raised as they come (descriptors.h). */
static int half_of_descriptors(void)
{
    struct rlimit limit = {.rlim_max = 2 * KO_SILENT_KEPT};

    getrlimit(RLIMIT_NOFILE, &limit);
    return limit.rlim_max / 2 < INT_MAX ? (int)(limit.rlim_max / 2) : INT_MAX;
}

static int read_limits(struct ko_server_limits *limits)
{
    int64_t table_bytes, buffer_bytes;
    int err = ko_config_number(KO_CONFIG_STORE_BYTES, &table_bytes);

    if (!err)
        err = ko_config_number(KO_CONFIG_STORE_BUFFER_BYTES, &buffer_bytes);
    if (!err)
        *limits = (struct ko_server_limits){.table_bytes = (size_t)table_bytes,
                                            .buffer_bytes = (size_t)buffer_bytes};
    return err;
}

int ko_server_open(const char *host, int port, const struct ko_server_limits *limits,
                   const ko_deadline *deadline, struct ko_server **server_out)
{
    struct ko_server_limits usual;
    struct ko_server *server;
    int err = limits ? KOLO_OK : read_limits(&usual);

    if (err)
        return err;
    limits = limits ? limits : &usual;
    server = ko_alloc(sizeof *server, "a store server");
    if (!server)
        return KOLO_E_NOMEM;
    server->service.budget.cap = limits->buffer_bytes;
    server->service.has_other_half = ko_connection_has_other_half;
    server->strangers_max = limits->strangers ? limits->strangers : half_of_descriptors();
    server->introduction_ms = limits->introduction_ms ? limits->introduction_ms : INTRODUCTION_MS;
    for (enum ko_circle circle = KO_SILENT; circle < KO_NCIRCLES; circle++)
        TAILQ_INIT(&server->circles[circle]);
    TAILQ_INIT(&server->ready);
    TAILQ_INIT(&server->claimants);
    err = ko_table_open(limits->table_bytes, &server->service.table);
    if (!err)
        ko_table_keep_apart(server->service.table);
    if (!err)
        err = ko_poller_open(&server->poller);
    if (!err)
        err = ko_guard_read_for_store(&server->guard);
    if (!err)
        err = open_listeners(server, host, port, deadline);
    if (!err)
        err = start_thread(server);
    if (err) {
        ko_server_close(server);
        return err;
    }
    for (int i = 0; i < server->listeners.n; i++)
        ko_guard_warn(&server->guard, server->listeners.fds[i],
                      "read and change what the ranks keep there");
    *server_out = server;
    return KOLO_OK;
}

int ko_server_port(const struct ko_server *server)
{
    return server->listeners.port;
}

void ko_server_close(struct ko_server *server)
{
    struct ko_connection *connection;

    if (!server)
        return;
    if (server->has_thread) {
        atomic_store(&server->stop, true);
        ko_poller_wake(&server->poller);
        pthread_join(server->thread, NULL);
    }
    for (enum ko_circle circle = KO_SILENT; circle < KO_DEAD; circle++)
        while ((connection = TAILQ_FIRST(&server->circles[circle])))
            ko_connection_cut_off(connection, "the store closes");
    while (!TAILQ_EMPTY(&server->circles[KO_DEAD]))
        bury_dead(server);
    ko_listeners_close(&server->listeners);
    ko_poller_close(&server->poller);
    ko_table_free(server->service.table);
    ko_secret_forget(&server->guard.secret);
    free(server);
}
