/* SPDX-License-Identifier: MIT
 *
 * Lines of several ranks must not be mixed, so a line is held back until it is whole. A progress
 * bar redraws one line after each carriage return: of such redraws one a second is shown, as a line
 * of its own, and always the last.
 */
#include "launch_output.h"

#include "clock.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static const int64_t redraw_ns = 1000000000;

/* ---- sink --------------------------------------------------------------------------------- */

void ko_sink_open(struct ko_sink *sink, int fd)
{
    sink->fd = fd;
    sink->error = 0;
    sink->begin = 0;
    sink->used = 0;
}

/* The caller has made sure of the room (ko_stream_wants); text beyond it is cut. */
static void append(struct ko_sink *sink, const char *data, size_t nbytes)
{
    if (sink->error)
        return;
    if (sink->begin + sink->used + nbytes > KO_SINK_CAP) {
        memmove(sink->data, sink->data + sink->begin, sink->used);
        sink->begin = 0;
    }
    if (nbytes > KO_SINK_CAP - sink->used)
        nbytes = KO_SINK_CAP - sink->used;
    memcpy(sink->data + sink->begin + sink->used, data, nbytes);
    sink->used += nbytes;
}

void ko_sink_print(struct ko_sink *sink, const char *format, ...)
{
    char line[1024];
    va_list arguments;
    int length;

    va_start(arguments, format);
    length = vsnprintf(line, sizeof line - 1, format, arguments);
    va_end(arguments);
    if (length > (int)sizeof line - 2)
        length = (int)sizeof line - 2;
    line[length] = '\n';
    append(sink, line, (size_t)length + 1);
}

void ko_sink_flush(struct ko_sink *sink)
{
    /* A pipe that polls writable takes PIPE_BUF bytes without blocking, and so may be left in
     * blocking mode: the mode belongs to everybody who shares the descriptor. */
    size_t nbytes = sink->used < PIPE_BUF ? sink->used : PIPE_BUF;
    ssize_t written = write(sink->fd, sink->data + sink->begin, nbytes);

    if (written < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (written < 0) {
        sink->error = errno;
        sink->used = 0;
        return;
    }
    sink->begin += (size_t)written;
    sink->used -= (size_t)written;
    if (!sink->used)
        sink->begin = 0;
}

void ko_sink_drain(struct ko_sink *sink, int timeout_ms)
{
    int n = 1;

    while (sink->used && !sink->error && n != 0) {
        struct pollfd p = {.fd = sink->fd, .events = POLLOUT};

        n = poll(&p, 1, timeout_ms);
        if (n > 0)
            ko_sink_flush(sink);
    }
}

/* ---- stream ------------------------------------------------------------------------------- */

bool ko_stream_open(struct ko_stream *stream, int fd, int copy_fd, int rank, struct ko_sink *sink)
{
    *stream =
        (struct ko_stream){.fd = fd, .sink = sink, .copy_fd = copy_fd, .redrawn_ns = ko_now_ns()};
    if (rank >= 0)
        snprintf(stream->prefix, sizeof stream->prefix, "[%d] ", rank);
    stream->line = malloc(KO_LINE_CAP);
    return stream->line;
}

bool ko_stream_wants(const struct ko_stream *stream)
{
    return stream->fd >= 0 && KO_SINK_CAP - stream->sink->used >= KO_SINK_ROOM;
}

static void pass_on(struct ko_stream *stream)
{
    append(stream->sink, stream->prefix, strlen(stream->prefix));
    append(stream->sink, stream->line, stream->used);
    append(stream->sink, "\n", 1);
    stream->used = 0;
}

/* The line is about to be overwritten from its start. */
static void redraw(struct ko_stream *stream)
{
    int64_t now = ko_now_ns();

    if (stream->used && now - stream->redrawn_ns >= redraw_ns) {
        pass_on(stream);
        stream->redrawn_ns = now;
    }
    stream->used = 0;
}

static void take(struct ko_stream *stream, char c)
{
    if (stream->after_return && c != '\n' && c != '\r')
        redraw(stream);
    stream->after_return = c == '\r';
    if (c == '\n') {
        pass_on(stream);
    } else if (c != '\r') {
        if (stream->used == KO_LINE_CAP)
            pass_on(stream);
        stream->line[stream->used++] = c;
    }
}

static void close_copy(struct ko_stream *stream)
{
    if (stream->copy_fd >= 0)
        close(stream->copy_fd);
    stream->copy_fd = -1;
}

/* A file takes all or says why not; then there is no more of it. */
static void copy(struct ko_stream *stream, const char *data, size_t nbytes)
{
    ssize_t written = 0;

    while (stream->copy_fd >= 0 && nbytes > 0) {
        written = write(stream->copy_fd, data, nbytes);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0) {
            ko_sink_print(stream->sink, "kolorun: %sthe log cannot be written: %s", stream->prefix,
                          strerror(errno));
            close_copy(stream);
            return;
        }
        data += written;
        nbytes -= (size_t)written;
    }
}

void ko_stream_read(struct ko_stream *stream)
{
    char data[KO_READ_BYTES];
    ssize_t n = read(stream->fd, data, sizeof data);

    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (n <= 0) {
        ko_stream_close(stream);
        return;
    }
    copy(stream, data, (size_t)n);
    for (ssize_t i = 0; i < n; i++)
        take(stream, data[i]);
    stream->owed = stream->owed > n ? stream->owed - (int)n : 0;
}

void ko_stream_count_owed(struct ko_stream *stream)
{
    if (stream->fd >= 0 && ioctl(stream->fd, FIONREAD, &stream->owed))
        stream->owed = 0;
}

void ko_stream_close(struct ko_stream *stream)
{
    if (stream->fd >= 0) {
        if (stream->used)
            pass_on(stream);
        close(stream->fd);
    }
    close_copy(stream);
    free(stream->line);
    stream->line = NULL;
    stream->fd = -1;
    stream->owed = 0;
}
