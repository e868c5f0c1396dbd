/* SPDX-License-Identifier: MIT
 *
 * The suite's cases of wires whose other end is no kolo, but a bare socket: what keeps to the
 * protocol byte by byte, and what does not.
 */
#include "transport_suite.h"

#include "clock.h"
#include "poller.h"
#include "status.h"
#include "stream.h"
#include "window.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int dial(struct suite *suite)
{
    int fd;

    suite_needs_dial(suite);
    fd = suite->traits->dial(suite->address, suite->address_bytes);
    assert_true(fd >= 0);
    return fd;
}

static void put(int fd, const void *bytes, size_t nbytes)
{
    assert_int_equal(send(fd, bytes, nbytes, MSG_NOSIGNAL), (ssize_t)nbytes);
}

static struct ko_wire *accept_bare(struct suite *suite)
{
    ko_deadline deadline = ko_deadline_in(5000);
    struct ko_wire *wire;

    while (suite->transport->accept(suite->right, &wire) == KO_AGAIN)
        assert_false(ko_deadline_passed(&deadline));
    return wire;
}

/* Sends nbytes of a hello (0: none) and closes. */
static void bare_hello(struct suite *suite, const struct ko_hello *hello, size_t nbytes, int status)
{
    int fd = dial(suite);
    struct ko_wire *wire;

    if (nbytes)
        put(fd, hello, nbytes);
    wire = accept_bare(suite);
    assert_int_equal(suite_settle(wire, NULL) & ~status, KOLO_OK);
    close(fd);
    if (status)
        suite_expect_failure(wire, status);
    else
        assert_int_equal(suite_settle(wire, NULL), KOLO_OK);
    suite->transport->hangup(wire);
}

static void gone_before_hello(void **state)
{
    struct ko_hello hello = suite_hello(256);

    bare_hello(*state, NULL, 0, KOLO_E_PEER_LOST);
    bare_hello(*state, &hello, 1, KOLO_E_PEER_LOST);
    bare_hello(*state, &hello, sizeof hello - 1, KOLO_E_PEER_LOST);
}

static void garbage(void **state)
{
    struct ko_hello hello;

    memset(&hello, 'G', sizeof hello);
    bare_hello(*state, &hello, sizeof hello, KOLO_E_PROTOCOL);
    hello = suite_hello(256);
    hello.magic ^= 1;
    bare_hello(*state, &hello, sizeof hello, KOLO_E_PROTOCOL);
}

static void wrong_version(void **state)
{
    struct ko_hello hello = suite_hello(256);
    char text[64];

    hello.version++;
    bare_hello(*state, &hello, sizeof hello, KOLO_E_PROTOCOL);
    snprintf(text, sizeof text, "this rank version %u", KO_HELLO_VERSION);
    assert_non_null(strstr(kolo_last_error(), text));
}

/* A wire that a bare socket has opened, byte by byte. Windows need a segment too: see the window
 * cases. */
static struct ko_wire *open_bare(struct suite *suite, int fd, uint32_t slice_bytes)
{
    struct ko_hello hello = suite_hello(slice_bytes), answer = suite_answer(slice_bytes);
    ko_deadline deadline = ko_deadline_in(5000);
    struct ko_wire *wire;

    wire = accept_bare(suite);
    for (size_t i = 0; i < sizeof hello; i++) {
        assert_false(wire->has_hello);
        put(fd, (const char *)&hello + i, 1);
        assert_int_equal(suite_settle(wire, NULL), KOLO_OK);
    }
    while (!wire->has_hello)
        assert_int_equal(suite_settle(wire, NULL), KOLO_OK);
    assert_int_equal(suite->transport->answer(wire, &answer), KOLO_OK);
    while (wire->state != KO_WIRE_OPEN) {
        assert_false(ko_deadline_passed(&deadline));
        assert_int_equal(suite_settle(wire, NULL), KOLO_OK);
    }
    return wire;
}

static void skip_windows(struct suite *suite)
{
    if (suite->transport->kind == KO_WINDOW)
        suite_skip(suite, "the window cases have it, with a segment");
}

static void bad_frame(struct suite *suite, struct ko_frame frame)
{
    int fd = dial(suite);
    struct ko_wire *wire = open_bare(suite, fd, 4096);

    put(fd, &frame, sizeof frame);
    suite_expect_failure(wire, KOLO_E_PROTOCOL);
    suite_expect_failure(wire, KOLO_E_PROTOCOL); /* for good */
    suite->transport->hangup(wire);
    close(fd);
}

static void bad_frames(void **state)
{
    suite_needs_dial(*state);
    skip_windows(*state);
    bad_frame(*state, (struct ko_frame){.kind = 0});
    bad_frame(*state, (struct ko_frame){.kind = KO_FRAME_MEMORY + 1});
    bad_frame(*state, (struct ko_frame){.kind = UINT32_MAX});
    bad_frame(*state, (struct ko_frame){.kind = KO_FRAME_DATA,
                                        .nbytes = (uint32_t)ko_message_bytes(4096) + 1});
    bad_frame(*state, (struct ko_frame){.kind = KO_FRAME_DATA, .nbytes = UINT32_MAX});
    bad_frame(*state, (struct ko_frame){.kind = KO_FRAME_FAIL, .nbytes = KO_CONTROL_BYTES + 1});
}

/* A message that comes in pieces of `step` bytes. */
static void drip(struct suite *suite, size_t nbytes, size_t step)
{
    struct ko_frame frame = {.kind = KO_FRAME_DATA, .nbytes = (uint32_t)nbytes};
    const size_t head = ko_stream_head_bytes(nbytes);
    unsigned char *message = calloc(1, head + nbytes), *got = malloc(nbytes + 1);
    int fd = dial(suite);
    struct ko_wire *wire = open_bare(suite, fd, 65536);
    const struct ko_frame *seen;
    bool has_landed = false;

    memcpy(message, &frame, sizeof frame);
    suite_fill(message + head, nbytes, 3);
    for (size_t at = 0; at < head + nbytes; at += step) {
        size_t left = head + nbytes - at;
        int err;

        put(fd, message + at, left < step ? left : step);
        poll(&(struct pollfd){.fd = wire->fd, .events = POLLIN}, 1, 1000);
        err = suite->transport->next(wire, &seen);
        if (!err)
            err = suite->transport->land(wire, got);
        has_landed = err == KOLO_OK;
        assert_int_equal(err, left <= step ? KOLO_OK : KO_AGAIN);
    }
    assert_true(has_landed);
    assert_true(suite_matches(got, nbytes, 3));
    suite->transport->hangup(wire);
    close(fd);
    free(message);
    free(got);
}

static void split_anywhere(void **state)
{
    static const size_t steps[] = {1, 7, 31, 32, 33, 64, 4096, 5000};

    suite_needs_dial(*state);
    skip_windows(*state);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        drip(*state, steps[i] < 7 ? 40 : i % 2 ? 13000 : 8191, steps[i]);
}

/* Whole lines of what has come may be looked at, each byte once, before the rest is there. */
static void pieces_as_they_come(void **state)
{
    enum { NBYTES = 13001, STEP = 1000 };
    struct suite *suite = *state;
    const struct ko_frame frame = {.kind = KO_FRAME_DATA, .nbytes = NBYTES}, *seen;
    const size_t head = ko_stream_head_bytes(NBYTES), end = head + NBYTES;
    unsigned char *message;
    size_t at = 0;
    struct ko_link *link;
    int fd;

    suite_needs_dial(suite);
    skip_windows(suite);
    message = calloc(1, end);
    fd = dial(suite);
    assert_int_equal(ko_link_create(1, 2, 65536, &link), KOLO_OK);
    assert_int_equal(ko_link_open(link, open_bare(suite, fd, 65536)), KOLO_OK);
    memcpy(message, &frame, sizeof frame);
    suite_fill(message + head, NBYTES, 3);
    for (size_t put_so_far = 0, n; put_so_far < end; put_so_far += n) {
        const void *body;
        size_t come, nbytes;

        n = end - put_so_far < STEP ? end - put_so_far : STEP;
        put(fd, message + put_so_far, n);
        poll(&(struct pollfd){.fd = link->wire->fd, .events = POLLIN}, 1, 1000);
        assert_int_equal(link->ops->next(link, &seen), KOLO_OK);
        assert_int_equal(link->ops->peek_piece(link, at, &body, &nbytes), KOLO_OK);
        assert_memory_equal(body, message + head + at, nbytes);
        at += nbytes;
        come = put_so_far + n - head;
        assert_int_equal(at, come == NBYTES ? NBYTES : come / KO_LINE * KO_LINE);
        if (at < NBYTES)
            assert_int_equal(link->ops->peek_piece(link, at, &body, &nbytes), KO_AGAIN);
    }
    link->ops->release(link);
    assert_int_equal(link->ops->next(link, &seen), KO_AGAIN);
    ko_link_free(link);
    close(fd);
    free(message);
}

static void gone_mid_body(void **state)
{
    struct suite *suite = *state;
    struct ko_frame frame = {.kind = KO_FRAME_DATA, .nbytes = 1000};
    unsigned char got[1000];
    const struct ko_frame *seen;
    struct ko_wire *wire;
    int fd, err;

    suite_needs_dial(suite);
    skip_windows(suite);
    fd = dial(suite);
    wire = open_bare(suite, fd, 4096);
    put(fd, &frame, sizeof frame);
    put(fd, got, 400);
    assert_int_equal(suite_next(wire, NULL)->nbytes, 1000);
    close(fd);
    while ((err = suite->transport->land(wire, got)) == KO_AGAIN)
        assert_int_equal(suite_settle(wire, NULL), KOLO_OK);
    assert_int_equal(err, KOLO_E_PEER_LOST);
    assert_int_equal(suite->transport->next(wire, &seen), KOLO_OK);
    assert_int_equal(suite->transport->land(wire, got), KOLO_E_PEER_LOST);
    suite->transport->hangup(wire);
}

#define CASE(name)  \
    {               \
#name, name \
    }
const struct suite_case suite_bare_cases[] = {CASE(gone_before_hello), CASE(garbage),
                                              CASE(wrong_version),     CASE(bad_frames),
                                              CASE(split_anywhere),    CASE(pieces_as_they_come),
                                              CASE(gone_mid_body)};
const size_t suite_nbare_cases = sizeof suite_bare_cases / sizeof *suite_bare_cases;
