/* SPDX-License-Identifier: MIT
 *
 * The suite's cases of wires between two living ends: opening, messages of all sizes, order,
 * back-pressure.
 */
#include "transport_suite.h"

#include "clock.h"
#include "poller.h"
#include "status.h"
#include "stream.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

enum { SLICE = 1 << 20 };

/* What carries a body of nbytes here: slices go through windows where there are such. */
static uint32_t kind_for(const struct suite *suite)
{
    return suite->transport->kind == KO_MESSAGE ? KO_FRAME_DATA : KO_FRAME_FAIL;
}

static size_t longest(const struct suite *suite)
{
    return suite->transport->kind == KO_MESSAGE ? SLICE : KO_CONTROL_BYTES;
}

static struct ko_post post_of(const struct suite *suite, const void *body, size_t nbytes,
                              uint64_t seq)
{
    return (struct ko_post){.frame = {.kind = kind_for(suite),
                                      .nbytes = (uint32_t)nbytes,
                                      .stamp = {.seq = seq, .count = ~seq, .root = 3, .op = 4}},
                            .body = body};
}

static void open_close(void **state)
{
    struct suite *suite = *state;
    struct ko_device *device;
    const struct ko_site site = transport_suite_site();
    unsigned char first[KO_ADDRESS_BYTES], again[KO_ADDRESS_BYTES];
    size_t nbytes;

    assert_ptr_equal(ko_transport_find(suite->transport->name), suite->transport);
    assert_int_equal(suite->transport->open(&site, &device), KOLO_OK);
    assert_ptr_equal(device->transport, suite->transport);
    nbytes = suite->transport->address(device, first);
    assert_int_equal(suite->transport->address(device, again), nbytes);
    assert_memory_equal(first, again, nbytes);
    if (suite->traits->alone)
        assert_int_equal(device->listen_fd, -1);
    else
        assert_true(device->listen_fd >= 0);
    suite->transport->close(device);
    suite->transport->hangup(NULL);
}

static void hellos(void **state)
{
    struct suite *suite = *state;
    struct ends ends = suite_open(suite, 4096);
    struct ko_hello hello = suite_hello(4096), answer = suite_answer(4096);

    assert_true(ends.to->has_hello);
    if (suite->traits->alone)
        answer = hello;                                    /* it greets itself */
    ends.to->hello.segment = ends.from->hello.segment = 0; /* the transport's own */
    ends.to->hello.sockets = ends.from->hello.sockets = 0;
    ends.to->hello.port = ends.from->hello.port = 0;
    assert_memory_equal(&ends.to->hello, &hello, sizeof hello);
    assert_memory_equal(&ends.from->hello, &answer, sizeof answer);
    suite_hang_up(suite, &ends);
}

static void nobody_calls(void **state)
{
    struct suite *suite = *state;
    struct ko_wire *wire = NULL;

    assert_int_equal(suite->transport->accept(suite->right, &wire), KO_AGAIN);
    assert_null(wire);
}

/* A wire to itself: what is not for it is refused or does nothing. */
static void alone(void **state)
{
    struct suite *suite = *state;
    struct ko_hello hello = suite_hello(64);
    struct ko_post post = {.frame = {.kind = KO_FRAME_BELL}};
    const struct ko_frame *frame;
    struct ends ends;

    if (!suite->traits->alone)
        suite_skip(suite, "it has peers");
    ends = suite_open(suite, 64);
    assert_int_equal(ends.from->fd, -1);
    assert_int_equal(suite->transport->answer(ends.from, &hello), KOLO_E_INTERNAL);
    assert_int_equal(suite->transport->drive(ends.from), KOLO_OK);
    assert_int_equal(suite->transport->send(ends.from, &post), KOLO_OK);
    assert_false(post.is_queued);
    assert_int_equal(suite->transport->next(ends.from, &frame), KO_AGAIN);
    assert_int_equal(suite->transport->land(ends.from, &hello), KO_AGAIN);
    suite_hang_up(suite, &ends);
}

static void several_wires(void **state)
{
    enum { N = 7 };
    struct suite *suite = *state;
    struct ends ends[N];

    suite_needs_peer(suite);
    for (int i = 0; i < N; i++)
        ends[i] = suite_open(suite, 256);
    for (uint64_t i = 0; i < N; i++) {
        struct ko_post post = post_of(suite, &i, sizeof i, i);
        uint64_t got;

        assert_int_equal(suite->transport->send(ends[N - 1 - i].from, &post), KOLO_OK);
        assert_int_equal(suite_next(ends[N - 1 - i].to, ends[N - 1 - i].from)->stamp.seq, i);
        suite_land(ends[N - 1 - i].to, NULL, &got);
        assert_int_equal(got, i);
        assert_false(post.is_queued);
    }
    for (int i = 0; i < N; i++)
        suite_hang_up(suite, &ends[i]);
}

/* Begun all at once, answered in the order in which they come. */
static void crowd(void **state)
{
    enum { N = 20 };
    struct suite *suite = *state;
    struct ko_hello answer = suite_answer(128);
    struct ends ends[N];

    suite_needs_peer(suite);
    for (int i = 0; i < N; i++)
        ends[i].from = suite_connect(suite, 128);
    for (int i = 0; i < N; i++) {
        ends[i].to = suite_accept(suite, ends[i].from);
        assert_int_equal(suite->transport->answer(ends[i].to, &answer), KOLO_OK);
    }
    for (int i = 0; i < N; i++) {
        ko_deadline deadline = ko_deadline_in(5000);

        while (ends[i].from->state != KO_WIRE_OPEN || ends[i].to->state != KO_WIRE_OPEN) {
            assert_false(ko_deadline_passed(&deadline));
            assert_int_equal(suite_settle(ends[i].from, ends[i].to), KOLO_OK);
        }
    }
    for (int i = 0; i < N; i++)
        suite_hang_up(suite, &ends[i]);
}

static void pass(struct suite *suite, struct ko_wire *from, struct ko_wire *to, size_t nbytes)
{
    unsigned char *body = malloc(nbytes + 1), *got = malloc(nbytes + 1);
    struct ko_post post = post_of(suite, body, nbytes, nbytes + 5);
    const struct ko_frame *frame;

    suite_fill(body, nbytes, nbytes);
    memset(got, 0, nbytes + 1);
    assert_int_equal(suite->transport->send(from, &post), KOLO_OK);
    frame = suite_next(to, from);
    assert_memory_equal(frame, &post.frame, sizeof *frame);
    assert_ptr_equal(suite_next(to, from), frame); /* the answer stays the same */
    suite_land(to, from, got);
    assert_true(suite_matches(got, nbytes, nbytes));
    assert_int_equal(got[nbytes], 0);
    while (post.is_queued)
        assert_int_equal(suite_settle(from, to), KOLO_OK);
    free(body);
    free(got);
}

/* Each size behind a shorter one, then each behind a longer one. */
static void sizes(void **state)
{
    const size_t frame = sizeof(struct ko_frame), ahead = KO_STREAM_AHEAD;
    const size_t little = KO_STREAM_LITTLE;
    const size_t list[] = {0,
                           1,
                           31,
                           KO_CONTROL_BYTES - 1,
                           KO_CONTROL_BYTES,
                           little - frame - 1,
                           little - frame,
                           little - frame + 1,
                           8191,
                           8192,
                           ahead - 2 * frame - 1,
                           ahead - 2 * frame,
                           ahead - 2 * frame + 1,
                           ahead - 1,
                           ahead,
                           ahead + 1,
                           100003,
                           SLICE};
    const size_t n = sizeof list / sizeof *list;
    struct suite *suite = *state;
    struct ends ends;

    suite_needs_peer(suite);
    ends = suite_open(suite, suite->transport->kind == KO_MESSAGE ? SLICE : 256);
    for (size_t i = 0; i < 2 * n; i++) {
        const size_t nbytes = list[i < n ? i : 2 * n - 1 - i];

        if (nbytes > longest(suite))
            continue;
        pass(suite, ends.from, ends.to, nbytes);
        pass(suite, ends.to, ends.from, nbytes);
    }
    suite_hang_up(suite, &ends);
}

static void all_kinds(void **state)
{
    struct suite *suite = *state;
    struct ko_post post;
    struct ends ends;

    suite_needs_peer(suite);
    ends = suite_open(suite, 256);
    for (uint32_t kind = KO_FRAME_DATA; kind <= KO_FRAME_BYE; kind++) {
        if (kind == KO_FRAME_DATA && suite->transport->kind == KO_WINDOW)
            continue; /* slices have their window */
        post = (struct ko_post){.frame = {.kind = kind, .stamp = {.seq = kind}}};
        assert_int_equal(suite->transport->send(ends.from, &post), KOLO_OK);
        assert_int_equal(suite_next(ends.to, ends.from)->kind, kind);
        suite_land(ends.to, ends.from, NULL);
    }
    suite_hang_up(suite, &ends);
}

/* Queues n posts at once while nobody reads; returns how many could not leave. */
static int queue(struct suite *suite, struct ko_wire *wire, struct ko_post *posts, int n)
{
    int queued = 0;

    for (int i = 0; i < n; i++)
        assert_int_equal(suite->transport->send(wire, &posts[i]), KOLO_OK);
    assert_int_equal(suite->transport->drive(wire), KOLO_OK);
    for (int i = 0; i < n; i++)
        queued += posts[i].is_queued;
    return queued;
}

static void receive_all(struct ends *ends, int n, size_t nbytes)
{
    unsigned char *got = malloc(nbytes + 1);

    for (int i = 0; i < n; i++) {
        const struct ko_frame *frame = suite_next(ends->to, ends->from);

        assert_int_equal(frame->stamp.seq, i);
        assert_int_equal(frame->nbytes, nbytes);
        suite_land(ends->to, ends->from, got);
        assert_true(suite_matches(got, nbytes, (uint64_t)i));
    }
    free(got);
}

/* n messages of nbytes are queued in one go and arrive in order. */
static void pass_many(struct suite *suite, int n, size_t nbytes, bool must_block)
{
    struct ends ends = suite_open(suite, suite->transport->kind == KO_MESSAGE ? SLICE : 256);
    struct ko_post *posts = calloc((size_t)n, sizeof *posts);
    unsigned char *bodies = malloc((size_t)n * nbytes + 1);
    struct pollfd entry;

    for (int i = 0; i < n; i++) {
        suite_fill(bodies + (size_t)i * nbytes, nbytes, (uint64_t)i);
        posts[i] = post_of(suite, bodies + (size_t)i * nbytes, nbytes, (uint64_t)i);
    }
    if (queue(suite, ends.from, posts, n) > 0) {
        assert_true(ends.from->wanted & KO_POLL_OUT);
    } else {
        assert_false(must_block);
        assert_false(ends.from->wanted & KO_POLL_OUT);
    }
    /* A receiver that knows the first message and does not land it must not be woken by the rest.
     */
    (void)suite_next(ends.to, ends.from);
    assert_false(ends.to->wanted & KO_POLL_IN);
    entry = (struct pollfd){.fd = ends.to->fd, .events = 0};
    assert_int_equal(poll(&entry, 1, 0), 0);
    receive_all(&ends, n, nbytes);
    for (int i = 0; i < n; i++)
        while (posts[i].is_queued) /* some learn only afterwards that all has arrived */
            assert_int_equal(suite_settle(ends.from, ends.to), KOLO_OK);
    assert_false(ends.from->wanted & KO_POLL_OUT);
    assert_true(ends.to->wanted & KO_POLL_IN);
    suite_hang_up(suite, &ends);
    free(posts);
    free(bodies);
}

static void many_small(void **state)
{
    suite_needs_peer(*state);
    pass_many(*state, 1000, 0, false);
    pass_many(*state, 1000, 3, false);
}

static void back_pressure(void **state)
{
    struct suite *suite = *state;

    suite_needs_peer(suite);
    if (suite->transport->kind == KO_MESSAGE)
        pass_many(suite, 12 * (suite->traits->sockets + 1), SLICE, true);
    else
        pass_many(suite, 3000, KO_CONTROL_BYTES, true);
}

/* Both ends send more than the connection holds before either receives. */
static void both_ways(void **state)
{
    enum { N = 1200 };
    struct suite *suite = *state;
    struct ends ends, back;
    unsigned char body[2][KO_CONTROL_BYTES];
    static struct ko_post posts[2][N];

    suite_needs_peer(suite);
    ends = suite_open(suite, 4096);
    back = (struct ends){ends.to, ends.from};
    for (int side = 0; side < 2; side++)
        for (int i = 0; i < N; i++) {
            suite_fill(body[side], sizeof body[side], 9);
            posts[side][i] = post_of(suite, body[side], sizeof body[side], (uint64_t)i);
            assert_int_equal(suite->transport->send(side ? ends.to : ends.from, &posts[side][i]),
                             KOLO_OK);
        }
    for (int i = 0; i < N; i++) {
        unsigned char got[KO_CONTROL_BYTES];

        assert_int_equal(suite_next(ends.to, ends.from)->stamp.seq, i);
        suite_land(ends.to, ends.from, got);
        assert_int_equal(suite_next(back.to, back.from)->stamp.seq, i);
        suite_land(back.to, back.from, got);
        assert_true(suite_matches(got, sizeof got, 9));
    }
    suite_hang_up(suite, &ends);
}

static void close_with_queue(void **state)
{
    struct suite *suite = *state;
    static const unsigned char body[SLICE];
    static struct ko_post posts[3000];
    struct ends ends;

    suite_needs_peer(suite);
    ends = suite_open(suite, 4096);
    for (int i = 0; i < 3000; i++)
        posts[i] = post_of(suite, body, longest(suite), (uint64_t)i);
    assert_true(queue(suite, ends.from, posts, 3000) > 0);
    suite_hang_up(suite, &ends);
    for (int i = 0; i < 3000; i++)
        assert_false(posts[i].is_queued); /* the caller's again */
}

/* Devices are closed while wires lie half open in their queues. */
static void close_half_open(void **state)
{
    struct suite *suite = *state;
    struct ko_wire *first, *second, *accepted;

    suite_needs_peer(suite);
    first = suite_connect(suite, 64);
    second = suite_connect(suite, 64);
    accepted = suite_accept(suite, first);
    suite->transport->hangup(second);
    suite->transport->hangup(accepted);
    suite->transport->hangup(first);
}

static void other_size(void **state)
{
    struct suite *suite = *state;
    ko_deadline deadline = ko_deadline_in(5000);
    struct ko_hello answer = suite_answer(8192);
    struct ends ends;
    int err;

    suite_needs_peer(suite);
    if (suite->transport->kind != KO_WINDOW)
        suite_skip(suite, "slices of messages have their own length");
    ends.from = suite_connect(suite, 4096);
    ends.to = suite_accept(suite, ends.from);
    err = suite->transport->answer(ends.to, &answer);
    while (!err && !ko_deadline_passed(&deadline))
        err = suite_settle(ends.from, ends.to);
    assert_int_equal(err, KOLO_E_PROTOCOL);
    suite_hang_up(suite, &ends);
}

/* Messages that may wait go with the first that may not, with drive, or when they are many. */
static void held_back(void **state)
{
    enum { MANY = 64 };
    struct suite *suite = *state;
    struct ends ends;
    struct ko_post posts[MANY];
    unsigned char body[KO_CONTROL_BYTES] = {1}, got[KO_CONTROL_BYTES];

    suite_needs_peer(suite);
    ends = suite_open(suite, 4096);
    for (uint64_t i = 0; i < MANY; i++) {
        posts[i] = post_of(suite, body, sizeof body, i);
        posts[i].may_wait = i != 2;
        assert_int_equal(suite->transport->send(ends.from, &posts[i]), KOLO_OK);
        if (i < 4)
            assert_int_equal(posts[i].is_queued, i != 2);
        if (i == 2)
            assert_false(posts[0].is_queued || posts[1].is_queued);
    }
    assert_false(posts[3].is_queued);
    assert_int_equal(suite->transport->drive(ends.from), KOLO_OK);
    assert_false(posts[MANY - 1].is_queued);
    for (uint64_t i = 0; i < MANY; i++) {
        assert_int_equal(suite_next(ends.to, ends.from)->stamp.seq, i);
        suite_land(ends.to, ends.from, got);
    }
    suite_hang_up(suite, &ends);
}

#define CASE(name)  \
    {               \
#name, name \
    }
const struct suite_case suite_wire_cases[] = {
    CASE(open_close), CASE(hellos),          CASE(nobody_calls),  CASE(alone),
    CASE(crowd),      CASE(sizes),           CASE(several_wires), CASE(all_kinds),
    CASE(many_small), CASE(both_ways),       CASE(back_pressure), CASE(close_with_queue),
    CASE(other_size), CASE(close_half_open), CASE(held_back)};
const size_t suite_nwire_cases = sizeof suite_wire_cases / sizeof *suite_wire_cases;
