/* SPDX-License-Identifier: MIT
 *
 * How messages leave a stream: each as one write, of its frame and its body where that lies, and
 * those that may wait together. The socket keeps the bounds of writes (SOCK_SEQPACKET). And how
 * short ones pass from hand to hand, over TCP.
 */
#include "stream.h"

#include "clock.h"
#include "fault.h"
#include "kolo.h"
#include "socket.h"
#include "status.h"

#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { LONGEST = 100000, ROOM = LONGEST + 64 };

struct pair {
    struct ko_stream stream;
    int other; /* end of its socket */
};

static void open_pair(struct pair *pair)
{
    const int room = 4 * ROOM;
    int fds[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, fds), 0);
    assert_int_equal(setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof room), 0);
    ko_stream_begin(&pair->stream, fds[0], false, false);
    pair->other = fds[1];
}

static void close_pair(struct pair *pair)
{
    ko_stream_end(&pair->stream);
    close(pair->other);
}

static struct ko_post post_of(const unsigned char *body, size_t nbytes)
{
    return (struct ko_post){.frame = {.kind = KO_FRAME_DATA, .nbytes = (uint32_t)nbytes},
                            .body = body};
}

/* What the next write held; 0: there is none. */
static size_t next_write(const struct pair *pair, unsigned char *bytes)
{
    const ssize_t n = recv(pair->other, bytes, ROOM, MSG_DONTWAIT);

    return n > 0 ? (size_t)n : 0;
}

static void a_message_is_one_write(void **state)
{
    static const size_t lengths[] = {0, 1, 24, 1023, 4096, 8191, 8192, 65537, LONGEST};
    static unsigned char body[LONGEST], got[ROOM];
    struct pair pair;

    (void)state;
    memset(body, 7, sizeof body);
    open_pair(&pair);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        struct ko_post post = post_of(body, lengths[i]);
        const size_t head = ko_stream_head_bytes(lengths[i]);

        assert_int_equal(ko_stream_send(&pair.stream, &post), 0);
        assert_false(post.is_queued);
        assert_int_equal(next_write(&pair, got), head + lengths[i]);
        assert_memory_equal(got, &post.frame, sizeof post.frame);
        assert_memory_equal(got + head, body, lengths[i]);
        assert_int_equal(next_write(&pair, got), 0);
    }
    close_pair(&pair);
}

static void what_may_wait_goes_with_the_next(void **state)
{
    static const unsigned char body[100];
    static unsigned char got[ROOM];
    struct ko_post posts[5];
    struct pair pair;

    (void)state;
    open_pair(&pair);
    for (int i = 0; i < 5; i++) {
        posts[i] = post_of(body, sizeof body);
        posts[i].may_wait = i < 4;
        assert_int_equal(ko_stream_send(&pair.stream, &posts[i]), 0);
        assert_int_equal(posts[i].is_queued, i < 4);
    }
    for (int i = 0; i < 5; i++)
        assert_false(posts[i].is_queued);
    assert_int_equal(next_write(&pair, got), 5 * (ko_stream_head_bytes(sizeof body) + sizeof body));
    assert_int_equal(next_write(&pair, got), 0);
    close_pair(&pair);
}

/* A descriptor goes with the first byte of a write, and is its message's. */
static void a_descriptor_begins_a_write(void **state)
{
    static const unsigned char body[100];
    static unsigned char got[ROOM];
    struct ko_post posts[3];
    struct pair pair;

    (void)state;
    open_pair(&pair);
    for (int i = 0; i < 3; i++) {
        posts[i] = post_of(body, sizeof body);
        posts[i].may_wait = i < 2;
        posts[i].has_fd = i == 1;
        posts[i].fd = pair.other;
        assert_int_equal(ko_stream_send(&pair.stream, &posts[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        int fd = -1;

        assert_int_equal(ko_socket_recv_with(pair.other, got, sizeof got, &fd),
                         (i + 1) * (int)(ko_stream_head_bytes(sizeof body) + sizeof body));
        assert_int_equal(fd >= 0, i == 1);
        if (fd >= 0)
            close(fd);
    }
    assert_int_equal(next_write(&pair, got), 0);
    close_pair(&pair);
}

/* Who has ended takes nothing more: there is nothing to wait for. */
static void an_end_is_the_end_of_waiting(void **state)
{
    static const unsigned char body[LONGEST];
    static struct ko_post posts[64];
    const struct ko_frame *frame;
    struct pair pair;
    int n = 0;

    (void)state;
    open_pair(&pair);
    do {
        assert_in_range(n, 0, 63);
        posts[n] = post_of(body, sizeof body);
        assert_int_equal(ko_stream_send(&pair.stream, &posts[n]), 0);
    } while (!posts[n++].is_queued);
    assert_false(ko_stream_has_delivered(&pair.stream));
    assert_int_equal(shutdown(pair.other, SHUT_WR), 0);
    assert_int_equal(ko_stream_next(&pair.stream, sizeof body, &frame), KOLO_E_PEER_LOST);
    assert_true(posts[n - 1].is_queued);
    assert_true(ko_stream_has_delivered(&pair.stream));
    close_pair(&pair);
}

static struct ko_frame frame_of(uint64_t seq, size_t nbytes)
{
    return (struct ko_frame){.kind = KO_FRAME_DATA,
                             .nbytes = (uint32_t)nbytes,
                             .stamp = {.seq = seq, .count = nbytes, .call = 7}};
}

static struct ko_message message_of(uint64_t seq, size_t room)
{
    return (struct ko_message){.seq = seq, .call = 7, .room = room};
}

static void what_is_given_is_one_write(void **state)
{
    static const size_t lengths[] = {0, 1, 24, KO_STREAM_SHORT};
    static const unsigned char body[KO_STREAM_SHORT + 1] = {1, 2, 3};
    static unsigned char got[ROOM];
    const struct ko_frame too_long = frame_of(1, sizeof body);
    struct ko_post post = post_of(body, 100), rest = {.is_queued = false};
    struct pair pair;

    (void)state;
    open_pair(&pair);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        const struct ko_frame frame = frame_of(i, lengths[i]);

        assert_true(ko_stream_give(&pair.stream, &frame, body, &rest));
        assert_false(rest.is_queued);
        assert_int_equal(next_write(&pair, got), sizeof frame + lengths[i]);
        assert_memory_equal(got, &frame, sizeof frame);
        assert_memory_equal(got + sizeof frame, body, lengths[i]);
    }
    assert_false(ko_stream_give(&pair.stream, &too_long, body, &rest));
    post.may_wait = true;
    assert_int_equal(ko_stream_send(&pair.stream, &post), 0);
    assert_false(ko_stream_give(&pair.stream, &post.frame, body, &rest)); /* behind it */
    assert_int_equal(next_write(&pair, got), 0);
    assert_int_equal(ko_stream_flush(&pair.stream), 0);
    assert_int_equal(next_write(&pair, got), ko_stream_head_bytes(100) + 100);
    ko_fault_arm(KO_FAULT_SEND, 1);
    assert_false(ko_stream_give(&pair.stream, &post.frame, body, &rest)); /* nobody is there */
    assert_false(rest.is_queued);
    assert_true(pair.stream.is_out_broken);
    close_pair(&pair);
}

/* Both ends of a connection over loopback. */
static void open_streams(struct ko_stream streams[2])
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
    const int listener = socket(AF_INET, SOCK_STREAM, 0), small = 1;
    socklen_t nbytes = sizeof address;
    int fds[2];

    assert_int_equal(bind(listener, (struct sockaddr *)&address, nbytes), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &nbytes), 0);
    fds[0] = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof small), 0);
    assert_int_equal(connect(fds[0], (struct sockaddr *)&address, nbytes), 0);
    fds[1] = accept(listener, NULL, NULL);
    assert_true(fds[1] >= 0);
    close(listener);
    for (int i = 0; i < 2; i++)
        ko_stream_begin(&streams[i], fds[i], false, false);
}

static void close_streams(struct ko_stream streams[2])
{
    ko_stream_end(&streams[0]);
    ko_stream_end(&streams[1]);
}

enum { BODY = 777, LIMIT_MS = 20000 };

static const unsigned char *body_of(uint64_t seq)
{
    static unsigned char body[BODY];

    for (size_t i = 0; i < sizeof body; i++)
        body[i] = (unsigned char)(seq * 31 + i);
    return body;
}

static void take_soon(struct ko_stream *stream, struct ko_stream *other, uint64_t seq)
{
    const ko_deadline limit = ko_deadline_in(LIMIT_MS);
    struct ko_message message = message_of(seq, BODY);
    unsigned char got[BODY];

    while (!ko_stream_take(stream, &message, got, 100)) {
        assert_int_equal(ko_stream_flush(other), 0);
        assert_false(ko_deadline_passed(&limit));
    }
    assert_int_equal(message.nbytes, BODY);
    assert_memory_equal(got, body_of(seq), BODY);
}

/* To one who reads nothing as much is given as the socket takes, of the last perhaps a part. */
static void a_full_socket_is_given_nothing(void **state)
{
    enum { MOST = 100000 };
    struct ko_post rest = {.is_queued = false};
    unsigned char last[BODY];
    struct ko_stream streams[2];
    uint64_t n = 0;
    struct ko_frame frame;

    (void)state;
    open_streams(streams);
    do
        frame = frame_of(++n, BODY);
    while (n < MOST && ko_stream_give(&streams[0], &frame, body_of(n), &rest));
    assert_in_range(n, 1, MOST - 1);
    assert_ptr_equal(streams[0].first, rest.is_queued ? &rest : NULL);
    rest.body = memcpy(last, body_of(n - 1), BODY);
    for (uint64_t seq = 1; seq < n; seq++)
        take_soon(&streams[1], &streams[0], seq);
    assert_false(rest.is_queued);
    close_streams(streams);
}

static void what_is_given_in_part_follows(void **state)
{
    struct ko_post rest = {.is_queued = false};
    struct ko_stream streams[2];

    (void)state;
    open_streams(streams);
    for (uint64_t seq = 1; seq <= 6; seq++) {
        const struct ko_frame frame = frame_of(seq, BODY);

        ko_fault_arm(KO_FAULT_SHORT, seq % 2 ? 1 : 0);
        assert_true(ko_stream_give(&streams[0], &frame, body_of(seq), &rest));
        assert_int_equal(rest.is_queued, seq % 2);
        assert_ptr_equal(streams[0].first, rest.is_queued ? &rest : NULL);
        take_soon(&streams[1], &streams[0], seq);
    }
    assert_int_equal(streams[0].moved, streams[1].moved);
    close_streams(streams);
}

/* Nothing is done to what is not the message that is wanted. */
static void another_message_is_left(void **state)
{
    static unsigned char got[KO_STREAM_SHORT + 1];
    struct ko_message message = message_of(2, BODY);
    const struct ko_frame frame = frame_of(1, BODY);
    struct ko_post rest = {.is_queued = false};
    const struct ko_frame *found = NULL;
    struct ko_stream streams[2];

    (void)state;
    open_streams(streams);
    assert_false(ko_stream_take(&streams[1], &message, got, 3)); /* none has come */
    assert_true(ko_stream_give(&streams[0], &frame, body_of(1), &rest));
    assert_false(ko_stream_take(&streams[1], &message, got, 100));
    message = message_of(1, BODY - 1);
    assert_false(ko_stream_take(&streams[1], &message, got, 100));
    message = message_of(1, sizeof got); /* there might come a long one */
    assert_false(ko_stream_take(&streams[1], &message, got, 100));
    assert_int_equal(ko_stream_next(&streams[1], BODY, &found), 0);
    message = message_of(1, BODY);
    assert_false(ko_stream_take(&streams[1], &message, got, 100)); /* it is being landed */
    assert_memory_equal(found, &frame, sizeof frame);
    assert_int_equal(ko_stream_land(&streams[1], got), 0);
    assert_memory_equal(got, body_of(1), BODY);
    close_streams(streams);
}

/* Of no bytes there need be no memory. */
static void an_empty_message_passes(void **state)
{
    const struct ko_frame frame = frame_of(1, 0);
    struct ko_message message = message_of(1, 0);
    struct ko_post rest = {.is_queued = false};
    struct ko_stream streams[2];

    (void)state;
    open_streams(streams);
    assert_true(ko_stream_give(&streams[0], &frame, NULL, &rest));
    assert_true(ko_stream_take(&streams[1], &message, NULL, 1000000));
    assert_int_equal(message.nbytes, 0);
    close_streams(streams);
}

/* Who takes in vain learns why from who asks for the next message. */
static void an_end_is_told_each_time(void **state)
{
    struct ko_message message = message_of(1, 8);
    const struct ko_frame *frame;
    struct ko_stream streams[2];
    unsigned char got[8];

    (void)state;
    for (int is_reset = 0; is_reset < 2; is_reset++) {
        open_streams(streams);
        if (is_reset)
            ko_fault_arm(KO_FAULT_RECV, 1);
        else
            ko_stream_break(&streams[0]);
        assert_false(ko_stream_take(&streams[1], &message, got, 1000));
        for (int i = 0; i < 2; i++) {
            assert_int_equal(ko_stream_next(&streams[1], 8, &frame), KOLO_E_PEER_LOST);
            assert_string_equal(kolo_last_error(), is_reset ? "its connection was reset"
                                                            : "its connection was closed");
        }
        close_streams(streams);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_is_one_write),
        cmocka_unit_test(what_may_wait_goes_with_the_next),
        cmocka_unit_test(a_descriptor_begins_a_write),
        cmocka_unit_test(an_end_is_the_end_of_waiting),
        cmocka_unit_test(what_is_given_is_one_write),
        cmocka_unit_test(a_full_socket_is_given_nothing),
        cmocka_unit_test(what_is_given_in_part_follows),
        cmocka_unit_test(another_message_is_left),
        cmocka_unit_test(an_empty_message_passes),
        cmocka_unit_test(an_end_is_told_each_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
