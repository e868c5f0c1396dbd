/* SPDX-License-Identifier: MIT
 *
 * stream.h: messages over a stream socket: the hello at its beginning, then frames with bodies. The
 * common body of tcp (bundle.h) and of shm's control. Not blocking, one thread at a time.
 */
#ifndef KO_STREAM_H
#define KO_STREAM_H

#include "cipher.h"
#include "fork_fds.h"
#include "secret_gate.h"
#include "transport.h"

/* Bytes read at once in the hope of a whole message, or of more than one: behind a message that was
 * no longer, another such is expected. Behind a long one, whose body is better read in its place,
 * less is. */
enum { KO_STREAM_AHEAD = 16384 + 2 * sizeof(struct ko_frame), KO_STREAM_LITTLE = 4096 };

/* The same beside a window, whose wire carries little: two of the longest control messages. */
enum { KO_STREAM_CONTROL = 2 * (sizeof(struct ko_frame) + KO_CONTROL_BYTES) };

/* Bytes that wait for others to go with them, at most. */
enum { KO_STREAM_HELD = 32768 };

/* The longest body that is copied behind its head, to be sent as one piece: a list of pieces costs
 * the kernel more. */
enum { KO_STREAM_SHORT = 1024 };

/* Bytes in front of a body. A long one begins a cache line's length behind its frame, not half of
 * it: the kernel copies to and from what is equally aligned, and that costs a sixth less. */
static inline size_t ko_stream_head_bytes(size_t nbytes)
{
    return nbytes < 8192 ? sizeof(struct ko_frame) : 2 * sizeof(struct ko_frame);
}

/* Descriptors that have come before the messages they belong to were landed. A read never takes in
 * more than one, and there is none without a message that is not complete. */
enum { KO_STREAM_FDS = 4 };

struct ko_stream {
    struct ko_fork_fd socket;
    bool is_unix;
    bool is_connecting;
    bool is_out_broken; /* writes fail: the other end is gone */
    bool is_in_ended;   /* everything that ever came has been read; */
    int in_errno;       /* why; 0: the other end has closed it */
    bool has_frame;
    bool is_landing; /* somebody waits for the body */

    struct ko_gate gate;      /* before the hellos */
    struct ko_cipher *cipher; /* from there on; NULL: bytes travel as they are */
    struct ko_hello hello_out;
    size_t hello_out_left;
    size_t hello_in_done;
    int pass_fd; /* goes with the hello; the caller's; -1: none */
    int got_fd;  /* came with the hello; the stream's until taken (then set to -1) */

    int fds[KO_STREAM_FDS]; /* came with messages, in their order */
    int nfds;

    struct ko_post *first, *last; /* queued */
    size_t first_done;            /* bytes of the first that have left, its frame included */
    size_t held; /* bytes of all queued posts that nothing but may_wait keeps here; 0: none are */
    uint64_t moved; /* bytes, in and out */

    struct ko_frame frame; /* before the first: of no bytes */
    size_t body_done;
    size_t ahead_at, ahead_end;
    unsigned char *ahead; /* made by the first look */
};

/* Begins on a connected or connecting socket, which becomes the stream's. */
void ko_stream_begin(struct ko_stream *stream, int fd, bool is_unix, bool is_connecting);

/* Before anything is said: what both ends have to pass first. Without it there is nothing. */
int ko_stream_guard(struct ko_stream *stream, const struct ko_guard *guard,
                    const struct ko_claim *claim);

/* Sends the hello, with a descriptor beside it if pass_fd >= 0. */
void ko_stream_greet(struct ko_stream *stream, const struct ko_hello *hello, int pass_fd);

/* Reads and checks the other end's hello. KO_AGAIN until it has come. */
int ko_stream_hear(struct ko_stream *stream, struct ko_hello *hello);

/* KOLO_OK once our hello has left. */
int ko_stream_greeted(struct ko_stream *stream);

int ko_stream_send(struct ko_stream *stream, struct ko_post *post);
int ko_stream_flush(struct ko_stream *stream);

/* As those of a transport, for short bodies, and room for no longer ones. */
bool ko_stream_give(struct ko_stream *stream, const struct ko_frame *frame, const void *body,
                    struct ko_post *rest);
bool ko_stream_take(struct ko_stream *stream, struct ko_message *message, void *to, int looks);

/* Over TCP: nothing of what was sent would be lost by ko_stream_end, or it is lost anyway. */
bool ko_stream_has_delivered(const struct ko_stream *stream);

/* Whether the other end has closed the connection, or it has broken, as far as is known. */
static inline bool ko_stream_is_over(const struct ko_stream *stream)
{
    return stream->is_in_ended || stream->is_out_broken;
}
int ko_stream_next(struct ko_stream *stream, size_t most, const struct ko_frame **frame);
int ko_stream_land(struct ko_stream *stream, void *to);

/* KOLO_E_PROTOCOL unless it can be a message's frame: of a known kind, with a slice of at most
 * `most` bytes, or a control body. */
int ko_stream_check(const struct ko_frame *frame, size_t most);

/* The descriptor of the message just landed, or -1. */
int ko_stream_take_fd(struct ko_stream *stream);

/* The KO_POLL_ bits whose readiness would let the stream go on. */
int ko_stream_wanted(const struct ko_stream *stream);

/* Ends the connection in both directions; what has come can still be read. Gives the posts back. */
void ko_stream_break(struct ko_stream *stream);

/* Closes the socket and gives the posts back. */
void ko_stream_end(struct ko_stream *stream);

/* The head of a window's wire, whose control goes over a stream (transport.h says what). */
struct ko_stream_wire {
    struct ko_wire base;
    struct ko_stream stream;
};

int ko_stream_wire_send(struct ko_wire *wire, struct ko_post *post);
int ko_stream_wire_next(struct ko_wire *wire, const struct ko_frame **frame);
int ko_stream_wire_land(struct ko_wire *wire, void *to);
int ko_stream_wire_take_fd(struct ko_wire *wire);

#endif
