/* SPDX-License-Identifier: MIT
 *
 * launch_output.h: output of many processes, merged by whole lines. A stream reads one pipe and
 * cuts it into lines; a sink is where lines go (stdout or stderr) and never blocks: what cannot be
 * written yet is kept, and a stream is not read while its sink has no room. One thread.
 */
#ifndef KO_LAUNCH_OUTPUT_H
#define KO_LAUNCH_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    KO_LINE_CAP = 64 * 1024, /* a longer line is passed on in pieces of this size */
    KO_READ_BYTES = 8 * 1024,
    KO_PREFIX_CAP = 16,
    /* The most that one read can add to a sink: the line held back, and nothing but newlines. */
    KO_SINK_ROOM = KO_LINE_CAP + KO_READ_BYTES * (KO_PREFIX_CAP + 1) + 2 * KO_PREFIX_CAP,
    KO_SINK_CAP = 2 * KO_SINK_ROOM
};

struct ko_sink {
    int fd;
    int error; /* errno of the write that failed; from then on everything is dropped */
    size_t begin, used;
    char data[KO_SINK_CAP];
};

struct ko_stream {
    int fd;   /* -1: at its end */
    int owed; /* bytes that were in the pipe when its process ended, not read yet */
    struct ko_sink *sink;
    int copy_fd; /* a file that gets the same bytes, -1: none; the stream's own */
    char prefix[KO_PREFIX_CAP];
    char *line; /* KO_LINE_CAP bytes */
    size_t used;
    bool after_return;  /* the last byte was a carriage return */
    int64_t redrawn_ns; /* when an overwritten line was last shown */
};

/* Takes over fd, the reading end of a pipe, and copy_fd. rank < 0: lines get no prefix. False if
 * there is no memory. */
bool ko_stream_open(struct ko_stream *stream, int fd, int copy_fd, int rank, struct ko_sink *sink);
/* True if the stream is open and its sink has room for what a read may bring. */
bool ko_stream_wants(const struct ko_stream *stream);
/* Reads once and passes whole lines on; closes the stream at its end. */
void ko_stream_read(struct ko_stream *stream);
/* The process at the other end is gone: what is in the pipe now is the last that it wrote. */
void ko_stream_count_owed(struct ko_stream *stream);
/* Passes the unfinished line on and closes. Safe on a closed one. */
void ko_stream_close(struct ko_stream *stream);

void ko_sink_open(struct ko_sink *sink, int fd);
/* One line of kolorun's own. */
void ko_sink_print(struct ko_sink *sink, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Writes what the descriptor takes without blocking; call it when poll says POLLOUT. */
void ko_sink_flush(struct ko_sink *sink);
/* Writes all that there is, as long as the descriptor takes some within timeout_ms (-1: whenever).
 */
void ko_sink_drain(struct ko_sink *sink, int timeout_ms);

#endif
