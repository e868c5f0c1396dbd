/* SPDX-License-Identifier: MIT
 *
 * Whoever waits, waits for the one stream that has the turn to be read, and for each that could not
 * be written to. With several sockets they are in a poller of the bundle's own, which is brought up
 * to date when somebody may be about to sleep, so that a turn that was not waited for costs
 * nothing. When one stream breaks all are shut down: what has come can still be read, then the end
 * shows, here and there.
 */
#include "bundle.h"

#include "log.h"
#include "socket.h"
#include "status.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

/* Bytes that hand the turn on. At least what a stream holds back for others to follow, so that
 * nothing stays behind on a stream whose turn has passed. */
#define LONG_BODY ((size_t)128 << 10)

_Static_assert(LONG_BODY >= KO_STREAM_HELD, "a long message leaves at once");

/* Somebody at the port of an invitation, whose hello has not come. */
struct newcomer {
    struct ko_stream *stream; /* NULL: none */
    struct ko_hello hello;
};

struct ko_invitation {
    uint64_t secret;
    int listen_fd;
    int n; /* streams that there are to be in all */
    unsigned ncomers;
    struct newcomer newcomers[KO_BUNDLE_MOST];
};

static int new_stream(const struct ko_bundle *bundle, int fd, struct ko_stream **stream)
{
    *stream = ko_alloc(sizeof **stream, "a stream");
    if (!*stream) {
        close(fd);
        return KOLO_E_NOMEM;
    }
    ko_stream_begin(*stream, fd, false, bundle->entry.is_connecting);
    return ko_stream_guard(*stream, bundle->entry.guard, &bundle->entry.claim);
}

static void free_stream(struct ko_stream *stream)
{
    if (stream)
        ko_stream_end(stream);
    free(stream);
}

/* ---- waiting ----------------------------------------------------------------------------- */

static int wanted_of(const struct ko_bundle *bundle, int i)
{
    const int wanted = ko_stream_wanted(bundle->streams[i]);

    return i == bundle->in || bundle->streams[i]->gate.kind ? wanted : wanted & KO_POLL_OUT;
}

static bool is_polled(const struct ko_bundle *bundle)
{
    return bundle->poller.epoll_fd >= 0;
}

int ko_bundle_fd(const struct ko_bundle *bundle)
{
    return is_polled(bundle) ? bundle->poller.epoll_fd : bundle->streams[0]->socket.fd;
}

/* A poller is readable when anything in it is ready. */
int ko_bundle_wanted(const struct ko_bundle *bundle)
{
    int wanted = 0;

    for (int i = 0; i < bundle->n; i++)
        wanted |= wanted_of(bundle, i);
    return is_polled(bundle) && wanted ? wanted | KO_POLL_IN : wanted;
}

uint64_t ko_bundle_moved(const struct ko_bundle *bundle)
{
    uint64_t moved = 0;

    for (int i = 0; i < bundle->n; i++)
        moved += bundle->streams[i]->moved;
    return moved;
}

/* Brings the poller up to date, if there is one, and passes on err unless that fails. */
static int poll_all(struct ko_bundle *bundle, int err)
{
    int failed = KOLO_OK;

    for (int i = 0; is_polled(bundle) && i < bundle->n && !failed; i++)
        failed = ko_poller_keep(&bundle->poller, bundle->streams[i]->socket.fd,
                                wanted_of(bundle, i), bundle->streams[i], &bundle->polled[i]);
    return failed ? failed : err;
}

int ko_bundle_settle(struct ko_bundle *bundle)
{
    return poll_all(bundle, KOLO_OK);
}

/* ---- beginning and end ------------------------------------------------------------------- */

int ko_bundle_begin(struct ko_bundle *bundle, int fd, const struct ko_bundle_entry *entry, int most)
{
    int err;

    *bundle = (struct ko_bundle){.entry = *entry, .most = most, .poller = {-1, -1}};
    err = new_stream(bundle, fd, &bundle->streams[0]);
    if (err)
        return err;
    bundle->n = 1;
    if (most > 1)
        err = ko_poller_open_quiet(&bundle->poller);
    return err ? err : poll_all(bundle, KOLO_OK);
}

static void end_invitation(struct ko_bundle *bundle)
{
    if (!bundle->invitation)
        return;
    if (bundle->invitation->listen_fd >= 0)
        close(bundle->invitation->listen_fd);
    for (int i = 0; i < KO_BUNDLE_MOST; i++)
        free_stream(bundle->invitation->newcomers[i].stream);
    free(bundle->invitation);
    bundle->invitation = NULL;
}

void ko_bundle_end(struct ko_bundle *bundle)
{
    end_invitation(bundle);
    for (int i = 0; i < KO_BUNDLE_MOST; i++)
        free_stream(bundle->streams[i]);
    ko_poller_close(&bundle->poller);
}

/* ---- inviting ---------------------------------------------------------------------------- */

int ko_bundle_invite(struct ko_bundle *bundle, int asked, struct ko_hello *answer)
{
    const int n = asked < bundle->most ? asked : bundle->most;
    struct ko_invitation *invitation;
    int port = 0;
    int err;

    answer->sockets = 1;
    if (n < 2)
        return KOLO_OK;
    invitation = ko_alloc(sizeof *invitation, "an invitation");
    if (!invitation)
        return KOLO_E_NOMEM;
    bundle->invitation = invitation;
    invitation->n = n;
    invitation->listen_fd = -1;
    if (getrandom(&invitation->secret, sizeof invitation->secret, 0) != sizeof invitation->secret)
        return ko_fail_errno(errno, "getrandom");
    err = ko_socket_listen_beside(bundle->streams[0]->socket.fd, &invitation->listen_fd, &port);
    if (err)
        return err;
    answer->sockets = (uint16_t)n;
    answer->port = (uint16_t)port;
    answer->segment = invitation->secret;
    return KOLO_OK;
}

/* Takes in who has come to the port. When there are too many, he who came first and has not said
 * his secret since makes room. */
static int take_in(struct ko_bundle *bundle)
{
    struct ko_invitation *invitation = bundle->invitation;
    int fd;
    int err;

    while (!(err = ko_socket_accept(invitation->listen_fd, &fd))) {
        struct newcomer *newcomer = &invitation->newcomers[invitation->ncomers++ % KO_BUNDLE_MOST];

        free_stream(newcomer->stream);
        err = new_stream(bundle, fd, &newcomer->stream);
        if (err)
            return err;
    }
    return err == KO_AGAIN ? KOLO_OK : err;
}

static int caller_of(const struct ko_stream *stream)
{
    return stream->gate.handshake.claim.from;
}

/* Makes a newcomer with the secret the stream that he says he is; closes any other. */
static void hear(struct ko_bundle *bundle, struct newcomer *newcomer)
{
    const struct ko_invitation *invitation = bundle->invitation;
    const struct ko_hello *hello = &newcomer->hello;
    int err = ko_stream_hear(newcomer->stream, &newcomer->hello);

    if (err == KO_AGAIN)
        return;
    if (!err && hello->segment == invitation->secret && hello->sockets > 0 &&
        hello->sockets < invitation->n && !bundle->streams[hello->sockets] &&
        caller_of(newcomer->stream) == caller_of(bundle->streams[0])) {
        bundle->streams[hello->sockets] = newcomer->stream;
    } else {
        ko_log(KO_LOG_WARN, "a connection over tcp was closed: %s",
               err ? kolo_last_error() : "it is none of those that were invited");
        free_stream(newcomer->stream);
    }
    newcomer->stream = NULL;
}

/* KO_AGAIN while the stream, from which nobody reads yet, has not ended. */
static int check_alive(struct ko_stream *stream, size_t most)
{
    const struct ko_frame *frame;
    int err = ko_stream_next(stream, most, &frame);

    return err ? err : KO_AGAIN;
}

static int gather_invited(struct ko_bundle *bundle, size_t most)
{
    struct ko_invitation *invitation = bundle->invitation;
    int err = take_in(bundle);

    if (err)
        return err;
    for (int i = 0; i < KO_BUNDLE_MOST; i++)
        if (invitation->newcomers[i].stream)
            hear(bundle, &invitation->newcomers[i]);
    for (int i = 1; i < invitation->n; i++)
        if (!bundle->streams[i])
            return check_alive(bundle->streams[0], most);
    bundle->n = invitation->n;
    end_invitation(bundle);
    return poll_all(bundle, KOLO_OK);
}

/* ---- joining ----------------------------------------------------------------------------- */

int ko_bundle_join(struct ko_bundle *bundle, const struct ko_hello *answer)
{
    const struct ko_stream *first = bundle->streams[0];
    struct ko_hello hello = first->hello_out;
    int err = KOLO_OK;
    int fd;

    if (answer->sockets > bundle->most)
        return ko_fail(KOLO_E_PROTOCOL, "it wants %u connections; this rank offered %d",
                       answer->sockets, bundle->most);
    hello.segment = answer->segment;
    while (bundle->n < answer->sockets && !err) {
        hello.sockets = (uint16_t)bundle->n;
        err = ko_socket_connect_beside(first->socket.fd, answer->port, &fd);
        if (!err)
            err = new_stream(bundle, fd, &bundle->streams[bundle->n]);
        if (!err)
            ko_stream_greet(bundle->streams[bundle->n++], &hello, -1);
    }
    return err;
}

int ko_bundle_gather(struct ko_bundle *bundle, size_t most)
{
    int err = KOLO_OK;

    if (bundle->invitation)
        return gather_invited(bundle, most);
    for (int i = 1; i < bundle->n && !err; i++)
        err = ko_stream_greeted(bundle->streams[i]);
    return poll_all(bundle, err);
}

/* ---- messages ---------------------------------------------------------------------------- */

/* Whose turn it is after a message of nbytes. */
static int turn_after(const struct ko_bundle *bundle, int turn, size_t nbytes)
{
    return nbytes < LONG_BODY ? turn : (turn + 1) % bundle->n;
}

/* If one stream cannot be written to any more none shall be. */
static void end_together(struct ko_bundle *bundle)
{
    bool is_broken = false;

    for (int i = 0; i < bundle->n; i++)
        is_broken |= bundle->streams[i]->is_out_broken;
    for (int i = 0; i < bundle->n && is_broken && bundle->n > 1; i++)
        ko_stream_break(bundle->streams[i]);
}

int ko_bundle_send(struct ko_bundle *bundle, struct ko_post *post)
{
    struct ko_stream *stream = bundle->streams[bundle->out];
    int err;

    bundle->out = turn_after(bundle, bundle->out, post->frame.nbytes);
    err = ko_stream_send(stream, post);
    if (stream->is_out_broken)
        end_together(bundle);
    return stream->first ? poll_all(bundle, err) : err;
}

int ko_bundle_next(struct ko_bundle *bundle, size_t most, const struct ko_frame **frame)
{
    int err = ko_stream_next(bundle->streams[bundle->in], most, frame);

    return err == KO_AGAIN ? poll_all(bundle, err) : err;
}

int ko_bundle_land(struct ko_bundle *bundle, void *to)
{
    struct ko_stream *stream = bundle->streams[bundle->in];
    const size_t nbytes = stream->frame.nbytes;
    int err = ko_stream_land(stream, to);

    if (!err)
        bundle->in = turn_after(bundle, bundle->in, nbytes);
    return err == KO_AGAIN ? poll_all(bundle, err) : err;
}

size_t ko_bundle_landed(const struct ko_bundle *bundle)
{
    return bundle->streams[bundle->in]->body_done;
}

/* Short ones, after which nobody else has the turn. */
bool ko_bundle_give(struct ko_bundle *bundle, const struct ko_frame *frame, const void *body,
                    struct ko_post *rest)
{
    struct ko_stream *stream = bundle->streams[bundle->out];
    const bool is_given = ko_stream_give(stream, frame, body, rest);

    if (stream->is_out_broken)
        end_together(bundle);
    if (stream->first)
        (void)poll_all(bundle, KOLO_OK); /* what fails here fails at the next wait */
    return is_given;
}

bool ko_bundle_take(struct ko_bundle *bundle, struct ko_message *message, void *to, int looks)
{
    return ko_stream_take(bundle->streams[bundle->in], message, to, looks);
}

int ko_bundle_drive(struct ko_bundle *bundle)
{
    int err = KOLO_OK;

    for (int i = 0; i < bundle->n && !err; i++)
        err = ko_stream_flush(bundle->streams[i]);
    end_together(bundle);
    return poll_all(bundle, err);
}

/* Who has closed one has closed all, and takes nothing of the others, whose ends need not have been
 * read here. */
static bool has_gone(const struct ko_bundle *bundle)
{
    for (int i = 0; i < bundle->n; i++)
        if (ko_stream_is_over(bundle->streams[i]))
            return true;
    return false;
}

/* All are written to before one is waited for: the other end reads them by turns. */
int ko_bundle_deliver(struct ko_bundle *bundle)
{
    int err = ko_bundle_drive(bundle);

    if (has_gone(bundle))
        return err;
    for (int i = 0; i < bundle->n && !err; i++)
        err = ko_stream_has_delivered(bundle->streams[i]) ? KOLO_OK : KO_AGAIN;
    return err;
}
