/* SPDX-License-Identifier: MIT
 *
 * A connection that says nothing is let be while there are not too many of them. Each client of
 * PyTorch 1.13 opens a second one, uses it only if it watches keys, and spins if that is closed; so
 * one for each does not count.
 */
#include "store_connection.h"

#include "socket.h"

static void enter(struct ko_connection *connection, enum ko_circle circle)
{
    TAILQ_INSERT_TAIL(&connection->server->circles[circle], connection, link);
    connection->server->counts[circle]++;
    connection->circle = circle;
}

void ko_connection_move(struct ko_connection *connection, enum ko_circle circle)
{
    struct ko_server *server = connection->server;

    TAILQ_REMOVE(&server->circles[connection->circle], connection, link);
    server->counts[connection->circle]--;
    enter(connection, circle);
}

/* Makes the silent connection, if it may be that, the second one of a client of 1.13. */
static bool pair(struct ko_connection *silent)
{
    struct ko_connection *client;

    TAILQ_FOREACH(client, &silent->server->circles[KO_UNPAIRED], link)
    {
        if (!ko_socket_same_host(silent->fd, client->fd))
            continue;
        ko_connection_move(silent, KO_CLIENT);
        ko_connection_move(client, KO_CLIENT);
        return true;
    }
    return false;
}

/* Thousands that have just come are a large job that starts; each will soon say something. */
static bool are_too_silent(const struct ko_server *server)
{
    int n = server->counts[KO_SILENT];

    return n > server->strangers_max ||
           (n > KO_SILENT_KEPT &&
            ko_deadline_passed(&TAILQ_FIRST(&server->circles[KO_SILENT])->introduction));
}

static void bound_begun(struct ko_server *server)
{
    if (server->counts[KO_BEGUN] > server->strangers_max)
        ko_connection_cut_off(TAILQ_FIRST(&server->circles[KO_BEGUN]),
                              "too many connections began and stopped");
}

static void bound_silent(struct ko_server *server)
{
    struct ko_connection *oldest;

    while (are_too_silent(server)) {
        oldest = TAILQ_FIRST(&server->circles[KO_SILENT]);
        if (!pair(oldest))
            ko_connection_cut_off(oldest, "too many connections say nothing");
    }
}

void ko_stranger_enter(struct ko_connection *connection)
{
    struct ko_server *server = connection->server;

    connection->introduction = ko_deadline_in(server->introduction_ms);
    /* PyTorch's clients, which may be silent, have no token. */
    enter(connection, server->guard.has_secret ? KO_BEGUN : KO_SILENT);
    bound_begun(server);
    bound_silent(server);
}

void ko_stranger_promote(struct ko_connection *connection)
{
    struct ko_server *server = connection->server;

    if (connection->circle <= KO_BEGUN && connection->session.is_introduced)
        ko_connection_move(connection,
                           connection->session.numbering == KO_WIRE_1_13 ? KO_UNPAIRED : KO_CLIENT);
    if (connection->circle != KO_SILENT || ko_buffer_fill(&connection->session.in) == 0)
        return;
    connection->introduction = ko_deadline_in(server->introduction_ms);
    ko_connection_move(connection, KO_BEGUN);
    bound_begun(server);
}

void ko_strangers_cut_off(struct ko_server *server)
{
    struct ko_connection *oldest;

    while ((oldest = TAILQ_FIRST(&server->circles[KO_BEGUN])) &&
           ko_deadline_passed(&oldest->introduction))
        ko_connection_cut_off(oldest, "its first message did not come whole");
}
