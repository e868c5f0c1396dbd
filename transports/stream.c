/* SPDX-License-Identifier: MIT
 *
 * Outwards: a queue of posts, written with as few system calls as the kernel allows. Inwards: a
 * small buffer that is filled ahead, so that short messages cost less than one call each, while the
 * bulk of a long body goes straight to its place. A broken connection is reported by the reading
 * side only, behind everything that had come: the last message may say why it broke.
 */
#include "stream.h"

#include "fault.h"
#include "poller.h"
#include "socket.h"
#include "status.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

/* Heads and bodies of one write. */
enum { PIECES = 16 };

_Static_assert(offsetof(struct ko_post, frame) == 0 &&
                   offsetof(struct ko_post, gap) == sizeof(struct ko_frame),
               "a head is the beginning of a post");

/* Within a machine nothing is lost and no wire is shared, and a congestion control that measures
 * rates, as BBR does, takes a link that pauses between calls for a slow one. Any process may choose
 * Reno, wherever there is TCP. */
static void hasten(int fd)
{
    static const char name[] = "reno";

    if (ko_socket_is_within_machine(fd))
        (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, sizeof name - 1);
}

void ko_stream_begin(struct ko_stream *stream, int fd, bool is_unix, bool is_connecting)
{
    *stream = (struct ko_stream){.pass_fd = -1, .got_fd = -1};
    ko_fork_fd_keep(&stream->socket, fd);
    stream->is_unix = is_unix;
    stream->is_connecting = is_connecting;
    if (!is_connecting)
        hasten(fd);
}

/* ETOOMANYREFS: more descriptors of this user are on their way than may be. */
static bool is_not_yet(int error)
{
    return ko_socket_is_not_yet(error) || error == ETOOMANYREFS;
}

static bool is_gone(int error)
{
    return error == EPIPE || error == ECONNRESET || error == ETIMEDOUT || error == EHOSTUNREACH ||
           error == ENETUNREACH || error == ECONNABORTED || error == ENETDOWN;
}

/* ---- hello ------------------------------------------------------------------------------- */

int ko_stream_guard(struct ko_stream *stream, const struct ko_guard *guard,
                    const struct ko_claim *claim)
{
    return ko_gate_begin(&stream->gate, guard, claim, stream->is_connecting);
}

void ko_stream_greet(struct ko_stream *stream, const struct ko_hello *hello, int pass_fd)
{
    stream->hello_out = *hello;
    stream->hello_out_left = sizeof *hello;
    stream->pass_fd = pass_fd;
}

/* A peer that refuses, or cannot be reached any more, is gone. */
static int connected(struct ko_stream *stream)
{
    int err = ko_socket_connected(stream->socket.fd);

    if (err == KO_AGAIN)
        return err;
    stream->is_connecting = false;
    if (err)
        return ko_fail_again(KOLO_E_PEER_LOST, kolo_last_error());
    hasten(stream->socket.fd);
    return KOLO_OK;
}

/* Passes the gate; what follows is encrypted if that was agreed on. */
static int pass(struct ko_stream *stream)
{
    struct ko_handshake *handshake = &stream->gate.handshake;
    int err = ko_gate_pass(&stream->gate, stream->socket.fd);

    if (err || stream->cipher || !handshake->claim.is_sealed)
        return err;
    return ko_cipher_make(&handshake->keys, &stream->cipher);
}

static ssize_t send_pieces(struct ko_stream *stream, const struct iovec *pieces, int npieces,
                           int pass_fd)
{
    if (stream->cipher)
        return ko_cipher_send(stream->cipher, stream->socket.fd, pieces, npieces);
    return ko_socket_send_pieces(stream->socket.fd, pieces, npieces, pass_fd);
}

int ko_stream_greeted(struct ko_stream *stream)
{
    const unsigned char *end = (const unsigned char *)(&stream->hello_out + 1);
    int err = stream->is_connecting ? connected(stream) : KOLO_OK;
    ssize_t n;

    if (!err)
        err = pass(stream);
    if (err)
        return err;
    while (stream->hello_out_left) {
        const struct iovec piece = {(void *)(uintptr_t)(end - stream->hello_out_left),
                                    stream->hello_out_left};

        n = ko_fault(KO_FAULT_SEND) ? (errno = EPIPE, -1)
                                    : send_pieces(stream, &piece, 1, stream->pass_fd);
        if (n < 0 && is_not_yet(errno))
            return KO_AGAIN;
        if (n < 0)
            return ko_fail(KOLO_E_PEER_LOST, "sending a hello: %s", strerror(errno));
        stream->pass_fd = -1; /* it went with the first byte */
        stream->hello_out_left -= (size_t)n;
    }
    return KOLO_OK;
}

static int check_hello(const struct ko_hello *hello)
{
    if (hello->magic != KO_HELLO_MAGIC)
        return ko_fail(KOLO_E_PROTOCOL,
                       "a stranger connected: its first bytes are no hello of kolo");
    if (hello->version != KO_HELLO_VERSION)
        return ko_fail(
            KOLO_E_PROTOCOL,
            "rank %d speaks version %u of kolo's protocol, this rank version %u; use one "
            "version of kolo everywhere",
            (int)hello->from, hello->version, KO_HELLO_VERSION);
    return KOLO_OK;
}

static ssize_t receive_hello(struct ko_stream *stream, void *to, size_t nbytes)
{
    if (stream->cipher)
        return ko_cipher_recv(stream->cipher, stream->socket.fd, to, nbytes);
    return ko_socket_recv_with(stream->socket.fd, to, nbytes, &stream->got_fd);
}

int ko_stream_hear(struct ko_stream *stream, struct ko_hello *hello)
{
    unsigned char *bytes = (unsigned char *)hello;
    int err = pass(stream);
    ssize_t n;

    if (err)
        return err;
    while (stream->hello_in_done < sizeof *hello) {
        n = ko_fault(KO_FAULT_RECV) ? (errno = ECONNRESET, -1)
                                    : receive_hello(stream, bytes + stream->hello_in_done,
                                                    sizeof *hello - stream->hello_in_done);
        if (n < 0 && is_not_yet(errno))
            return KO_AGAIN;
        if (n < 0 && errno == EMFILE)
            return ko_fail_errno(EMFILE, "taking in the shared segment of a hello");
        if (n <= 0)
            return ko_fail(KOLO_E_PEER_LOST, "the connection ended before its hello%s%s",
                           n ? ": " : "", n ? strerror(errno) : "");
        stream->hello_in_done += (size_t)n;
        if (ko_handshake_is_hello(hello, stream->hello_in_done))
            return ko_fail(KOLO_E_PROTOCOL,
                           "the other end has a token, and this one none; all ranks of a job need "
                           "the same (KOLO_AUTH_TOKEN_FILE, KOLO_AUTH_TOKEN)");
        /* A stranger may never say as much as a hello has. */
        err = stream->hello_in_done >= KO_HANDSHAKE_HELLO ? check_hello(hello) : KOLO_OK;
        if (err)
            return err;
    }
    return check_hello(hello);
}

/* ---- out --------------------------------------------------------------------------------- */

static void drop_first(struct ko_stream *stream)
{
    struct ko_post *post = stream->first;

    stream->first = post->next;
    if (!stream->first)
        stream->last = NULL;
    post->next = NULL;
    post->is_queued = false;
    stream->first_done = 0;
}

static void break_out(struct ko_stream *stream)
{
    stream->is_out_broken = true;
    while (stream->first)
        drop_first(stream);
}

static size_t head_bytes(const struct ko_post *post)
{
    return ko_stream_head_bytes(post->frame.nbytes);
}

/* Lists what is left of the first posts; returns the number of pieces. A descriptor goes with the
 * first byte of a write: its post begins one. */
static int list_pieces(const struct ko_stream *stream, struct iovec *pieces)
{
    size_t skip = stream->first_done;
    int n = 0;

    for (const struct ko_post *post = stream->first; post && n + 2 <= PIECES; post = post->next) {
        const unsigned char *head = (const unsigned char *)post, *body = post->body;
        size_t head_skip = skip < head_bytes(post) ? skip : head_bytes(post);
        size_t body_skip = skip - head_skip;

        if (post->has_fd && post != stream->first)
            break;
        if (head_skip < head_bytes(post))
            pieces[n++] =
                (struct iovec){(void *)(uintptr_t)(head + head_skip), head_bytes(post) - head_skip};
        if (body_skip < post->frame.nbytes)
            pieces[n++] = (struct iovec){(void *)(uintptr_t)(body + body_skip),
                                         post->frame.nbytes - body_skip};
        skip = 0;
    }
    return n;
}

static void count_sent(struct ko_stream *stream, size_t n)
{
    stream->moved += n;
    while (stream->first) {
        size_t left = head_bytes(stream->first) + stream->first->frame.nbytes - stream->first_done;

        if (n < left) {
            stream->first_done += n;
            return;
        }
        n -= left;
        drop_first(stream);
    }
}

int ko_stream_flush(struct ko_stream *stream)
{
    struct iovec pieces[PIECES];
    ssize_t n;

    stream->held = 0;
    while (stream->first) {
        const int npieces = list_pieces(stream, pieces);
        const bool passes = stream->first->has_fd && !stream->first_done;

        n = ko_fault(KO_FAULT_SEND)
                ? (errno = EPIPE, -1)
                : send_pieces(stream, pieces, npieces, passes ? stream->first->fd : -1);
        if (n < 0 && is_not_yet(errno))
            return KOLO_OK;
        if (n < 0 && !is_gone(errno))
            return ko_fail_errno(errno, "writing to a peer");
        if (n < 0)
            break_out(stream);
        else
            count_sent(stream, (size_t)n);
    }
    return KOLO_OK;
}

/* A socket that is closed while something that came over it is unread, or that something comes to
 * when it is closed, resets its connection and drops what the other end has not acknowledged. */
bool ko_stream_has_delivered(const struct ko_stream *stream)
{
    return ko_stream_is_over(stream) ||
           (!stream->first && ko_socket_has_delivered(stream->socket.fd));
}

int ko_stream_send(struct ko_stream *stream, struct ko_post *post)
{
    bool is_free = !stream->first || stream->held; /* the socket has not refused any */

    if (stream->is_out_broken)
        return KOLO_OK;
    post->next = NULL;
    post->is_queued = true;
    if (stream->last)
        stream->last->next = post;
    else
        stream->first = post;
    stream->last = post;
    if (!is_free)
        return KOLO_OK;
    stream->held += head_bytes(post) + post->frame.nbytes;
    return post->may_wait && stream->held < KO_STREAM_HELD ? KOLO_OK : ko_stream_flush(stream);
}

/* Of what a socket takes only a part, or a cipher has sealed, the rest is bound to leave next. */
bool ko_stream_give(struct ko_stream *stream, const struct ko_frame *frame, const void *body,
                    struct ko_post *rest)
{
    unsigned char whole[sizeof *frame + KO_STREAM_SHORT];
    struct iovec piece = {whole, sizeof *frame + frame->nbytes};
    const size_t nbytes = piece.iov_len;
    ssize_t n;

    if (stream->first || stream->is_out_broken || stream->is_in_ended ||
        frame->nbytes > KO_STREAM_SHORT)
        return false;
    memcpy(whole, frame, sizeof *frame);
    if (frame->nbytes)
        memcpy(whole + sizeof *frame, body, frame->nbytes);
    if (ko_fault(KO_FAULT_SHORT))
        piece.iov_len /= 2;
    if (ko_fault(KO_FAULT_SEND))
        n = (errno = EPIPE, -1);
    else if (stream->cipher)
        n = ko_cipher_send(stream->cipher, stream->socket.fd, &piece, 1);
    else
        n = send(stream->socket.fd, whole, piece.iov_len, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && is_gone(errno))
        break_out(stream);
    if (n < 0 && !(stream->cipher && is_not_yet(errno)))
        return false;
    n = n < 0 ? 0 : n;
    stream->moved += (size_t)n;
    if ((size_t)n < nbytes) {
        *rest = (struct ko_post){.frame = *frame, .body = body, .is_queued = true};
        stream->first = stream->last = rest;
        stream->first_done = (size_t)n;
    }
    return true;
}

/* ---- in ---------------------------------------------------------------------------------- */

static void keep_fd(struct ko_stream *stream, int fd)
{
    if (stream->nfds < KO_STREAM_FDS)
        stream->fds[stream->nfds++] = fd;
    else
        close(fd); /* kolo sends none such */
}

int ko_stream_take_fd(struct ko_stream *stream)
{
    const int fd = stream->nfds ? stream->fds[0] : -1;

    if (stream->nfds)
        memmove(stream->fds, stream->fds + 1, (size_t)--stream->nfds * sizeof *stream->fds);
    return fd;
}

static ssize_t receive_some(struct ko_stream *stream, void *to, size_t nbytes)
{
    int fd = -1;
    ssize_t n;

    if (stream->cipher)
        return ko_cipher_recv(stream->cipher, stream->socket.fd, to, nbytes);
    if (!stream->is_unix)
        return recv(stream->socket.fd, to, nbytes, MSG_DONTWAIT);
    n = ko_socket_recv_with(stream->socket.fd, to, nbytes, &fd);
    if (fd >= 0)
        keep_fd(stream, fd);
    return n;
}

static int fail_ended(const struct ko_stream *stream)
{
    const int error = stream->in_errno;

    if (error == EBADMSG)
        return ko_fail(KOLO_E_PROTOCOL,
                       "what came was changed on its way: it is not what the other "
                       "end has encrypted");
    if (error && !is_gone(error))
        return ko_fail_errno(error, "reading from a peer");
    return ko_fail(KOLO_E_PEER_LOST, "its connection %s", error ? "was reset" : "was closed");
}

/* recv with the end of the stream as an error, the same each time. *n is 0 only with KO_AGAIN. */
static int receive(struct ko_stream *stream, void *to, size_t nbytes, size_t *n)
{
    ssize_t got;

    *n = 0;
    if (stream->is_in_ended)
        return fail_ended(stream);
    got = ko_fault(KO_FAULT_RECV) ? (errno = ECONNRESET, -1) : receive_some(stream, to, nbytes);
    if (got > 0) {
        *n = (size_t)got;
        stream->moved += *n;
        return KOLO_OK;
    }
    if (got < 0 && is_not_yet(errno))
        return KO_AGAIN;
    stream->is_in_ended = true;
    stream->in_errno = got < 0 ? errno : 0;
    return fail_ended(stream);
}

/* Bytes of a message with its head. */
static size_t whole(const struct ko_frame *frame)
{
    return ko_stream_head_bytes(frame->nbytes) + frame->nbytes;
}

/* Bytes that the buffer is to be filled with. */
static size_t most_ahead(const struct ko_stream *stream)
{
    if (stream->is_unix)
        return KO_STREAM_CONTROL;
    return whole(&stream->frame) <= KO_STREAM_AHEAD ? KO_STREAM_AHEAD : KO_STREAM_LITTLE;
}

static int make_ahead(struct ko_stream *stream)
{
    if (!stream->ahead)
        stream->ahead = ko_alloc_unset(stream->is_unix ? KO_STREAM_CONTROL : KO_STREAM_AHEAD,
                                       "what a peer sends");
    return stream->ahead ? KOLO_OK : KOLO_E_NOMEM;
}

/* Has at least nbytes <= KO_STREAM_CONTROL in the buffer, or KO_AGAIN. */
static int look_ahead(struct ko_stream *stream, size_t nbytes)
{
    const size_t most = most_ahead(stream);
    size_t have = stream->ahead_end - stream->ahead_at;
    size_t n;
    int err = have < nbytes ? make_ahead(stream) : KOLO_OK;

    while (!err && have < nbytes) {
        memmove(stream->ahead, stream->ahead + stream->ahead_at, have);
        stream->ahead_at = 0;
        stream->ahead_end = have;
        err = receive(stream, stream->ahead + have, most - have, &n);
        if (err)
            return err;
        stream->ahead_end += n;
        have += n;
    }
    return err;
}

int ko_stream_check(const struct ko_frame *frame, size_t most)
{
    size_t limit = frame->kind == KO_FRAME_DATA ? most : KO_CONTROL_BYTES;

    if (frame->kind < KO_FRAME_DATA || frame->kind > KO_FRAME_MEMORY || frame->nbytes > limit)
        return ko_fail(KOLO_E_PROTOCOL,
                       "a frame of kind %u with %u bytes came; kolo sends none such (at most %zu)",
                       frame->kind, frame->nbytes, limit);
    return KOLO_OK;
}

int ko_stream_next(struct ko_stream *stream, size_t most, const struct ko_frame **frame)
{
    if (!stream->has_frame) {
        int err = look_ahead(stream, sizeof stream->frame);

        if (err)
            return err;
        memcpy(&stream->frame, stream->ahead + stream->ahead_at, sizeof stream->frame);
        err = ko_stream_check(&stream->frame, most);
        if (!err)
            err = look_ahead(stream, ko_stream_head_bytes(stream->frame.nbytes));
        if (err)
            return err;
        stream->ahead_at += ko_stream_head_bytes(stream->frame.nbytes);
        stream->has_frame = true;
        stream->body_done = 0;
    }
    *frame = &stream->frame;
    return KOLO_OK;
}

int ko_stream_land(struct ko_stream *stream, void *to)
{
    unsigned char *place = to;
    size_t have = stream->ahead_end - stream->ahead_at;
    size_t left = stream->frame.nbytes - stream->body_done;
    size_t n = have < left ? have : left;

    if (n) {
        memcpy(place + stream->body_done, stream->ahead + stream->ahead_at, n);
        stream->ahead_at += n;
        stream->body_done += n;
    }
    stream->is_landing = true;
    while (stream->body_done < stream->frame.nbytes) {
        int err = receive(stream, place + stream->body_done,
                          stream->frame.nbytes - stream->body_done, &n);
        if (err)
            return err;
        stream->body_done += n;
    }
    stream->has_frame = false;
    stream->is_landing = false;
    return KOLO_OK;
}

/* Has at least nbytes in the buffer within so many looks. */
static bool comes_soon(struct ko_stream *stream, size_t nbytes, int *looks)
{
    int err;

    while ((err = look_ahead(stream, nbytes)) == KO_AGAIN && --*looks > 0)
        ;
    return !err;
}

bool ko_stream_take(struct ko_stream *stream, struct ko_message *message, void *to, int looks)
{
    struct ko_frame frame;

    if (message->room > KO_STREAM_SHORT || stream->has_frame || stream->is_in_ended ||
        !comes_soon(stream, sizeof frame, &looks))
        return false;
    memcpy(&frame, stream->ahead + stream->ahead_at, sizeof frame);
    if (frame.kind != KO_FRAME_DATA || !ko_frame_is_message(&frame, message) ||
        !comes_soon(stream, whole(&frame), &looks))
        return false;
    if (frame.nbytes)
        memcpy(to, stream->ahead + stream->ahead_at + sizeof frame, frame.nbytes);
    stream->ahead_at += whole(&frame);
    stream->frame = frame;
    message->nbytes = frame.nbytes;
    return true;
}

int ko_stream_wanted(const struct ko_stream *stream)
{
    bool is_writing = stream->is_connecting || stream->hello_out_left || stream->first;
    /* A message that nobody has begun to land wants no more input: nobody could take it. */
    bool is_full = stream->has_frame && !stream->is_landing;

    if (stream->gate.kind == KO_GATE_SECRET && !stream->is_connecting)
        return ko_gate_wanted(&stream->gate);
    return (is_writing ? KO_POLL_OUT : 0) | (is_full || stream->is_in_ended ? 0 : KO_POLL_IN);
}

void ko_stream_break(struct ko_stream *stream)
{
    break_out(stream);
    shutdown(stream->socket.fd, SHUT_RDWR);
}

void ko_stream_end(struct ko_stream *stream)
{
    while (stream->first)
        drop_first(stream);
    ko_fork_fd_close(&stream->socket);
    if (stream->got_fd >= 0)
        close(stream->got_fd);
    while (stream->nfds)
        close(stream->fds[--stream->nfds]);
    ko_cipher_free(stream->cipher);
    free(stream->ahead);
    stream->cipher = NULL;
    stream->ahead = NULL;
    stream->ahead_at = stream->ahead_end = 0;
    stream->got_fd = -1;
}
