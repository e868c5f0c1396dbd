/* SPDX-License-Identifier: MIT
 *
 * A connection that says nothing is let be while there are not too many of them. Each client of
 * PyTorch 1.13 and 2.0 opens a second one, uses it only if it watches keys, and spins if that is
 * closed; so one for each does not count. Two connections may be such a pair if they come from one
 * host. The second connects before a DELETE is sent on the first, but may not have been accepted
 * yet: who is unsure asks again when somebody comes, and is cut off after a while rather than
 * guessed at. A DELETE taken for an APPEND would have no answer, an APPEND taken for a DELETE would
 * lose what the key holds.
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

/* The first of a circle that may be the other connection of a client of 1.13; NULL: there is none.
 */
static struct ko_connection *other_half(const struct ko_connection *connection,
                                        enum ko_circle circle)
{
    struct ko_connection *other;

    TAILQ_FOREACH(other, &connection->server->circles[circle], link)
    if (other != connection && ko_socket_same_host(other->socket.fd, connection->socket.fd))
        return other;
    return NULL;
}

/* Makes the connection that half of a client of 1.13, and the other one, if it is in that circle,
 * the other half. False: there is none. */
static bool pair(struct ko_connection *connection, enum ko_half half, enum ko_circle circle)
{
    const bool is_first = half == KO_HALF_FIRST;
    struct ko_connection *other = other_half(connection, circle);

    if (!other)
        return false;
    ko_connection_move(connection, is_first ? KO_FIRST : KO_SECOND);
    ko_connection_move(other, is_first ? KO_SECOND : KO_FIRST);
    if (circle == KO_UNSURE)
        ko_connection_make_ready(other);
    return true;
}

/* An old client whose first message is still coming, which then says whose it is. */
static bool is_beginning_beside(struct ko_connection *connection)
{
    const struct ko_connection *other;

    TAILQ_FOREACH(other, &connection->server->circles[KO_BEGUN], link)
    if (other != connection && other->session.numbering == KO_WIRE_OLD &&
        ko_socket_same_host(other->socket.fd, connection->socket.fd)) {
        ko_connection_move(connection, KO_SECOND);
        return true;
    }
    return false;
}

/* Of several clients on one host any two may have been paired, and one of them may have gone: half
 * of a pair is as good. A client that watches may have said nothing on its first connection. */
bool ko_connection_has_other_half(struct ko_session *session, enum ko_half half)
{
    static const enum ko_circle seconds[] = {KO_SILENT, KO_SECOND};
    static const enum ko_circle firsts[] = {KO_UNPAIRED, KO_UNSURE, KO_SILENT, KO_FIRST};
    struct ko_connection *connection = (struct ko_connection *)session;
    const bool is_first = half == KO_HALF_FIRST;
    const enum ko_circle *circles = is_first ? seconds : firsts;
    const size_t n = is_first ? sizeof seconds / sizeof *seconds : sizeof firsts / sizeof *firsts;
    bool has = connection->circle == (is_first ? KO_FIRST : KO_SECOND);

    for (size_t i = 0; i < n && !has; i++)
        has = pair(connection, half, circles[i]);
    return has || (!is_first && is_beginning_beside(connection));
}

/* Thousands that have just come are a large job that starts; each will soon say something. */
static bool are_too_silent(const struct ko_server *server)
{
    int n = server->counts[KO_SILENT];

    return n > server->strangers_max ||
           (n > KO_SILENT_KEPT &&
            ko_deadline_passed(&TAILQ_FIRST(&server->circles[KO_SILENT])->introduction));
}

static void bound(struct ko_server *server, enum ko_circle circle)
{
    if (server->counts[circle] > server->strangers_max)
        ko_connection_cut_off(TAILQ_FIRST(&server->circles[circle]),
                              "too many connections began and stopped");
}

static void bound_silent(struct ko_server *server)
{
    struct ko_connection *oldest;

    while (are_too_silent(server)) {
        oldest = TAILQ_FIRST(&server->circles[KO_SILENT]);
        if (!pair(oldest, KO_HALF_SECOND, KO_UNPAIRED))
            ko_connection_cut_off(oldest, "too many connections say nothing");
    }
}

/* A newcomer may be what one who is unsure lacks: of several, the first that asks has it. */
static void ask_again(const struct ko_connection *newcomer)
{
    struct ko_connection *unsure;

    TAILQ_FOREACH(unsure, &newcomer->server->circles[KO_UNSURE], link)
    if (ko_socket_same_host(unsure->socket.fd, newcomer->socket.fd))
        ko_connection_make_ready(unsure);
}

void ko_stranger_enter(struct ko_connection *connection)
{
    struct ko_server *server = connection->server;

    connection->introduction = ko_deadline_in(server->introduction_ms);
    /* PyTorch's clients, which may be silent, have no token. */
    enter(connection, server->guard.has_secret ? KO_BEGUN : KO_SILENT);
    ask_again(connection);
    bound(server, KO_BEGUN);
    bound_silent(server);
}

/* Where a connection belongs by what has come from it. */
static enum ko_circle circle_of(const struct ko_connection *connection)
{
    const struct ko_session *session = &connection->session;
    const bool is_old = session->numbering == KO_WIRE_OLD;

    if (ko_session_is_unsure(session))
        return KO_UNSURE;
    if (session->numbering == KO_WIRE_1_13 || (is_old && connection->circle == KO_FIRST))
        return connection->circle;
    if (session->is_introduced)
        return is_old ? KO_UNPAIRED : KO_CLIENT;
    return ko_buffer_fill(&session->in) > 0 ? KO_BEGUN : connection->circle;
}

void ko_stranger_promote(struct ko_connection *connection)
{
    enum ko_circle circle = circle_of(connection);

    if (circle == connection->circle)
        return;
    connection->introduction = ko_deadline_in(connection->server->introduction_ms);
    ko_connection_move(connection, circle);
    if (circle == KO_BEGUN || circle == KO_UNSURE)
        bound(connection->server, circle);
}

static struct ko_connection *late_one(const struct ko_server *server, enum ko_circle circle)
{
    struct ko_connection *oldest = TAILQ_FIRST(&server->circles[circle]);

    return oldest && ko_deadline_passed(&oldest->introduction) ? oldest : NULL;
}

void ko_strangers_cut_off(struct ko_server *server)
{
    static const char unsure[] =
        "it sent a DELETE as PyTorch 1.13 numbers it, without such a client's second connection, "
        "or half of an APPEND as 2.1 does";
    struct ko_connection *late;

    while ((late = late_one(server, KO_BEGUN)))
        ko_connection_cut_off(late, "its first message did not come whole");
    while ((late = late_one(server, KO_UNSURE))) {
        ko_connection_warn(late, unsure);
        ko_connection_cut_off(late, unsure);
    }
}
