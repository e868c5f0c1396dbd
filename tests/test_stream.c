/* SPDX-License-Identifier: MIT
 *
 * How messages leave a stream: each as one write, of its frame and its body where that lies, and
 * those that may wait together. The socket keeps the bounds of writes (SOCK_SEQPACKET).
 */
#include "stream.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_is_one_write),
        cmocka_unit_test(what_may_wait_goes_with_the_next),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
