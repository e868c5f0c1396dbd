/* SPDX-License-Identifier: MIT
 *
 * The suite's cases of wires whose other end goes, at each stage: it is hung up here, or is a
 * process that is killed.
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

enum { SLICE = 1 << 20, NPOSTS = 64, LIMIT_MS = 20000 };

/* ---- the other end is hung up --------------------------------------------------------------- */

/* A closed device refuses at once or at the next drive; nobody waits for it. */
static void refused(void **state)
{
    struct suite *suite = *state;
    struct ko_hello hello = suite_hello(256);
    struct ko_wire *wire;
    int err;

    suite_needs_peer(suite);
    suite->transport->close(suite->right);
    suite->right = NULL;
    err =
        suite->transport->connect(suite->left, suite->address, suite->address_bytes, &hello, &wire);
    if (!err) {
        suite_expect_loss(wire);
        suite->transport->hangup(wire);
        return;
    }
    assert_int_equal(err, KOLO_E_PEER_LOST);
}

static void closed_before_accept(void **state)
{
    struct suite *suite = *state;
    struct ko_wire *wire;

    suite_needs_peer(suite);
    wire = suite_connect(suite, 256);
    assert_int_equal(suite_settle(wire, NULL), KOLO_OK);
    suite->transport->close(suite->right);
    suite->right = NULL;
    suite_expect_loss(wire);
    suite->transport->hangup(wire);
}

static void hung_up_before_answer(void **state)
{
    struct suite *suite = *state;
    struct ends ends;

    suite_needs_peer(suite);
    ends.from = suite_connect(suite, 256);
    ends.to = suite_accept(suite, ends.from);
    suite->transport->hangup(ends.to);
    suite_expect_loss(ends.from);
    suite->transport->hangup(ends.from);
}

static void hung_up_after_hello(void **state)
{
    struct suite *suite = *state;
    struct ko_hello answer = suite_answer(256);
    struct ends ends;
    int err;

    suite_needs_peer(suite);
    ends.from = suite_connect(suite, 256);
    ends.to = suite_accept(suite, ends.from);
    suite->transport->hangup(ends.from);
    err = suite->transport->answer(ends.to, &answer);
    if (err)
        assert_int_equal(err, KOLO_E_PEER_LOST);
    else
        suite_expect_loss(ends.to);
    suite->transport->hangup(ends.to);
}

static struct ko_post data_post(const struct suite *suite, const void *body, size_t nbytes)
{
    uint32_t kind = suite->transport->kind == KO_MESSAGE ? KO_FRAME_DATA : KO_FRAME_FAIL;

    return (struct ko_post){.frame = {.kind = kind, .nbytes = (uint32_t)nbytes}, .body = body};
}

/* What was sent before the end arrives before the end is reported. */
static void data_then_end(void **state)
{
    struct suite *suite = *state;
    unsigned char body[KO_CONTROL_BYTES], got[KO_CONTROL_BYTES];
    struct ko_post posts[3], late;
    struct ends ends;

    suite_needs_peer(suite);
    ends = suite_open(suite, 4096);
    suite_fill(body, sizeof body, 1);
    for (int i = 0; i < 3; i++) {
        posts[i] = data_post(suite, body, sizeof body - (size_t)i);
        assert_int_equal(suite->transport->send(ends.from, &posts[i]), KOLO_OK);
    }
    suite->transport->hangup(ends.from);
    usleep(2000);
    late = data_post(suite, body, 1);
    assert_int_equal(suite->transport->send(ends.to, &late), KOLO_OK);
    assert_int_equal(suite->transport->drive(ends.to), KOLO_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(suite_next(ends.to, NULL)->nbytes, sizeof body - (size_t)i);
        suite_land(ends.to, NULL, got);
        assert_true(suite_matches(got, sizeof body - (size_t)i, 1));
    }
    suite_expect_loss(ends.to);
    assert_false(late.is_queued);
    late = data_post(suite, body, 1);
    assert_int_equal(suite->transport->send(ends.to, &late), KOLO_OK);
    assert_int_equal(suite->transport->drive(ends.to), KOLO_OK);
    assert_false(late.is_queued); /* dropped without an error */
    suite_expect_loss(ends.to);   /* again */
    assert_false(ends.to->wanted & KO_POLL_IN);
    suite->transport->hangup(ends.to);
}

/* As ko_link_deliver. */
static int deliver(struct ko_wire *wire, const struct ko_post *last)
{
    const struct ko_transport *transport = wire->transport;
    int err = transport->deliver ? transport->deliver(wire) : transport->drive(wire);

    return !err && last->is_queued ? KO_AGAIN : err;
}

/* One end delivers and does nothing else, the other is driven. Returns what deliver did. */
static int deliver_and_drive(const struct ends *ends, const struct ko_post *last)
{
    int err;

    assert_int_equal(ends->to->transport->drive(ends->to), KOLO_OK);
    err = deliver(ends->from, last);
    assert_true(!err || err == KO_AGAIN);
    return err;
}

/* Takes in the next message while the other end delivers; it has to be of pattern 1. */
static void take_delivered(const struct ends *ends, const struct ko_post *last, unsigned char *got,
                           size_t nbytes)
{
    const struct ko_transport *transport = ends->to->transport;
    ko_deadline deadline = ko_deadline_in(LIMIT_MS);
    const struct ko_frame *frame = NULL;
    int err;

    while ((err = transport->next(ends->to, &frame)) == KO_AGAIN) {
        assert_false(ko_deadline_passed(&deadline));
        deliver_and_drive(ends, last);
    }
    assert_int_equal(err, KOLO_OK);
    assert_int_equal(frame->nbytes, nbytes);
    while ((err = transport->land(ends->to, got)) == KO_AGAIN) {
        assert_false(ko_deadline_passed(&deadline));
        deliver_and_drive(ends, last);
    }
    assert_int_equal(err, KOLO_OK);
    assert_true(suite_matches(got, nbytes, 1));
}

/* What was delivered arrives, although its end went with something unread before it; and more is
 * delivered than lies in sockets, so that it takes an end that reads. */
static void delivered_then_end(void **state)
{
    enum { POSTS = 16, NBYTES = 4 << 20 };
    struct suite *suite = *state;
    const size_t nbytes = suite->transport->kind == KO_MESSAGE ? NBYTES : KO_CONTROL_BYTES;
    unsigned char *body, *got;
    struct ko_post posts[POSTS], unread;
    struct ends ends;
    int landed = 0, err;

    suite_needs_peer(suite);
    body = malloc(2 * NBYTES);
    assert_non_null(body);
    got = body + NBYTES;
    ends = suite_open(suite, NBYTES);
    suite_fill(body, nbytes, 1);
    for (int i = 0; i < POSTS; i++) {
        posts[i] = data_post(suite, body, nbytes);
        assert_int_equal(suite->transport->send(ends.from, &posts[i]), KOLO_OK);
    }
    unread = data_post(suite, body, KO_CONTROL_BYTES);
    assert_int_equal(suite->transport->send(ends.to, &unread), KOLO_OK);
    while ((err = deliver_and_drive(&ends, &posts[POSTS - 1])) == KO_AGAIN && landed < POSTS)
        landed++, take_delivered(&ends, &posts[POSTS - 1], got, nbytes);
    while (err == KO_AGAIN)
        err = deliver_and_drive(&ends, &posts[POSTS - 1]);
    suite->transport->hangup(ends.from);
    for (; landed < POSTS; landed++) {
        assert_int_equal(suite_next(ends.to, NULL)->nbytes, nbytes);
        suite_land(ends.to, NULL, got);
        assert_true(suite_matches(got, nbytes, 1));
    }
    suite_expect_loss(ends.to);
    suite->transport->hangup(ends.to);
    free(body);
}

/* ---- the other end is killed ---------------------------------------------------------------- */

static int role_connects(struct suite *suite)
{
    struct ko_hello hello = suite_hello(4096);
    struct ko_wire *wire;

    if (suite->transport->connect(suite->left, suite->address, suite->address_bytes, &hello, &wire))
        return 1;
    for (int i = 0; i < 20; i++)
        if (suite_settle(wire, NULL))
            return 1;
    suite->driven = wire;
    return 0;
}

static void killed_before_answer(void **state)
{
    struct suite *suite = *state;
    struct ko_hello answer = suite_answer(4096);
    struct suite_child child;
    struct ko_wire *wire;
    int err;

    suite_needs_child(suite);
    child = suite_fork(suite, role_connects);
    /* The child has this process's left device as its goal. */
    suite_await(&child);
    suite->transport->close(suite->right);
    suite->right = suite->left;
    wire = suite_accept(suite, NULL);
    suite_kill(&child);
    err = suite->transport->answer(wire, &answer);
    if (err)
        assert_int_equal(err, KOLO_E_PEER_LOST);
    else
        suite_expect_loss(wire);
    suite->transport->hangup(wire);
    suite->right = NULL;
}

static int role_idles(struct suite *suite)
{
    (void)suite;
    return 0;
}

static void killed_before_accept(void **state)
{
    struct suite *suite = *state;
    struct suite_child child;
    struct ko_wire *wire;

    suite_needs_child(suite);
    child = suite_fork(suite, role_idles);
    suite_await(&child);
    wire = suite_connect(suite, 4096);
    assert_int_equal(suite_settle(wire, NULL), KOLO_OK);
    suite_kill(&child);
    suite_expect_loss(wire);
    suite->transport->hangup(wire);
}

/* Accepts one wire and answers it; leaves it open. */
static struct ko_wire *child_answers(struct suite *suite)
{
    struct ko_hello answer = suite_answer(4096);
    ko_deadline deadline = ko_deadline_in(5000);
    struct ko_wire *wire;

    while (suite->transport->accept(suite->right, &wire))
        if (ko_deadline_passed(&deadline))
            return NULL;
    while (!wire->has_hello)
        if (suite_settle(wire, NULL) || ko_deadline_passed(&deadline))
            return NULL;
    if (suite->transport->answer(wire, &answer))
        return NULL;
    while (wire->state != KO_WIRE_OPEN)
        if (suite_settle(wire, NULL) || ko_deadline_passed(&deadline))
            return NULL;
    return wire;
}

static int role_answers(struct suite *suite)
{
    struct ko_wire *wire = child_answers(suite);

    if (wire && wire->inbox) /* a window: fill ours, which the parent sees as its outbox */
        memset(wire->inbox, 0x5a, 64);
    if (wire && wire->outbox)
        memset(wire->outbox, 0xa5, 64);
    return !wire;
}

static struct ko_wire *open_to_child(struct suite *suite, const struct suite_child *child)
{
    ko_deadline deadline = ko_deadline_in(5000);
    struct ko_wire *wire = suite_connect(suite, 4096);

    while (wire->state != KO_WIRE_OPEN) {
        assert_false(ko_deadline_passed(&deadline));
        assert_int_equal(suite_settle(wire, NULL), KOLO_OK);
    }
    suite_await(child);
    return wire;
}

static void killed_with_posts(void **state)
{
    struct suite *suite = *state;
    unsigned char *body = calloc(1, SLICE);
    size_t nbytes = suite->transport->kind == KO_MESSAGE ? 4096 : KO_CONTROL_BYTES;
    static struct ko_post posts[NPOSTS * 64];
    struct suite_child child;
    struct ko_wire *wire;

    if (suite->traits->alone)
        free(body);
    suite_needs_child(suite);
    child = suite_fork(suite, role_answers);
    wire = open_to_child(suite, &child);
    for (int i = 0; i < NPOSTS * 64; i++) {
        posts[i] = data_post(suite, body, nbytes);
        assert_int_equal(suite->transport->send(wire, &posts[i]), KOLO_OK);
    }
    suite_kill(&child);
    suite_expect_loss(wire);
    assert_int_equal(suite->transport->drive(wire), KOLO_OK);
    for (int i = 0; i < NPOSTS * 64; i++)
        assert_false(posts[i].is_queued);
    suite->transport->hangup(wire);
    free(body);
}

/* The windows of a killed peer stay readable and writable. */
static void killed_with_windows(void **state)
{
    struct suite *suite = *state;
    struct suite_child child;
    struct ko_wire *wire;

    suite_needs_child(suite);
    child = suite_fork(suite, role_answers);
    wire = open_to_child(suite, &child);
    suite_kill(&child);
    suite_expect_loss(wire);
    for (int i = 0; i < 64 && wire->inbox; i++) {
        assert_int_equal(((unsigned char *)wire->outbox)[i], 0x5a);
        assert_int_equal(((unsigned char *)wire->inbox)[i], 0xa5);
    }
    if (wire->outbox)
        memset(wire->outbox, 1, 4096);
    suite->transport->hangup(wire);
}

#define CASE(name)  \
    {               \
#name, name \
    }
const struct suite_case suite_loss_cases[] = {CASE(refused),
                                              CASE(closed_before_accept),
                                              CASE(hung_up_before_answer),
                                              CASE(hung_up_after_hello),
                                              CASE(data_then_end),
                                              CASE(delivered_then_end),
                                              CASE(killed_before_answer),
                                              CASE(killed_before_accept),
                                              CASE(killed_with_posts),
                                              CASE(killed_with_windows)};
const size_t suite_nloss_cases = sizeof suite_loss_cases / sizeof *suite_loss_cases;
