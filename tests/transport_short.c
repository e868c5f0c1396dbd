/* SPDX-License-Identifier: MIT
 *
 * The suite's cases of short messages that pass at once, of transports that have give and take.
 */
#include "transport_suite.h"

#include "clock.h"
#include "poller.h"
#include "status.h"

#include <string.h>

/* What has begun to leave, of the last that was given. */
static struct ko_post rest;

enum { SLICE = 1 << 20, SHORT = 1024, CALL = 77, LIMIT_MS = 20000 };

/* Gives a message whose bytes are those of its seq, as a link does: when all before it has left. */
static bool give(struct ko_wire *wire, size_t nbytes, uint64_t seq)
{
    static unsigned char body[SHORT];
    const struct ko_frame frame = {.kind = KO_FRAME_DATA,
                                   .nbytes = (uint32_t)nbytes,
                                   .stamp = {.seq = seq, .count = nbytes, .call = CALL}};
    bool is_given;

    if (rest.is_queued)
        return false;
    suite_fill(body, nbytes, seq);
    is_given = wire->transport->give(wire, &frame, body, &rest);
    if (!rest.is_queued)
        memset(body, 0, sizeof body); /* it is the caller's again */
    return is_given;
}

/* The same, once there is room. */
static void give_soon(struct ko_wire *wire, struct ko_wire *other, size_t nbytes, uint64_t seq)
{
    const ko_deadline deadline = ko_deadline_in(LIMIT_MS);

    while (!give(wire, nbytes, seq)) {
        assert_false(ko_deadline_passed(&deadline));
        assert_int_equal(suite_settle(wire, other), KOLO_OK);
    }
}

/* Takes such a message into room for so many bytes, and not a byte more is written. */
static bool take(struct ko_wire *wire, uint64_t seq, uint64_t call, size_t room)
{
    struct ko_message message = {seq, call, room, SIZE_MAX};
    unsigned char got[SHORT + 1];

    memset(got, 0, sizeof got);
    if (!wire->transport->take(wire, &message, got, 10))
        return false;
    assert_true(message.nbytes <= room);
    assert_true(suite_matches(got, message.nbytes, seq));
    assert_int_equal(got[message.nbytes], 0);
    return true;
}

static void await(struct ko_wire *wire, struct ko_wire *other, uint64_t seq, size_t room)
{
    const ko_deadline deadline = ko_deadline_in(LIMIT_MS);

    while (!take(wire, seq, CALL, room)) {
        assert_false(ko_deadline_passed(&deadline));
        assert_int_equal(suite_settle(wire, other), KOLO_OK);
    }
}

static void lengths(void **state)
{
    struct suite *suite = *state;
    struct ends ends = suite_open(suite, SLICE);
    uint64_t seq = 0;

    for (size_t nbytes = 0; nbytes <= SHORT; nbytes += nbytes < 70 ? 1 : 53) {
        give_soon(ends.from, ends.to, nbytes, ++seq);
        await(ends.to, ends.from, seq, nbytes);
        give_soon(ends.to, ends.from, nbytes, seq);
        await(ends.from, ends.to, seq, SHORT);
    }
    suite_hang_up(suite, &ends);
}

/* What is another message, or longer than its place, stays for next; what next has told of is
 * land's. */
static void others(void **state)
{
    struct suite *suite = *state;
    struct ends ends = suite_open(suite, SLICE);
    struct ko_post bell = {.frame = {.kind = KO_FRAME_BELL, .stamp = {.call = CALL}}};
    unsigned char got[SHORT];

    for (uint64_t seq = 1; seq <= 3; seq++)
        give_soon(ends.from, ends.to, 100, seq);
    await(ends.to, ends.from, 1, 100);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(suite_settle(ends.to, ends.from), KOLO_OK);
        assert_false(take(ends.to, 3, CALL, SHORT));
        assert_false(take(ends.to, 2, CALL + 1, SHORT));
        assert_false(take(ends.to, 2, CALL, 99));
    }
    assert_int_equal(suite_next(ends.to, ends.from)->stamp.seq, 2);
    assert_false(take(ends.to, 2, CALL, SHORT));
    suite_land(ends.to, ends.from, got);
    assert_true(suite_matches(got, 100, 2));
    await(ends.to, ends.from, 3, SHORT);
    assert_int_equal(suite->transport->send(ends.from, &bell), KOLO_OK);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(suite_settle(ends.to, ends.from), KOLO_OK);
        assert_false(take(ends.to, 0, CALL, SHORT));
    }
    assert_int_equal(suite_next(ends.to, ends.from)->kind, KO_FRAME_BELL);
    suite_land(ends.to, ends.from, NULL);
    suite_hang_up(suite, &ends);
}

/* To one who takes nothing only so many leave; in their order behind what was sent, and never past
 * what waits. */
static void order(void **state)
{
    enum { MOST = 30000, LONG = 3 << 17 };
    static unsigned char body[LONG], got[LONG];
    struct suite *suite = *state;
    struct ends ends = suite_open(suite, SLICE);
    struct ko_post post = {.frame = {.kind = KO_FRAME_DATA, .nbytes = LONG, .stamp = {.seq = 1}},
                           .body = body};
    uint64_t n = 0;

    suite_fill(body, LONG, 9);
    assert_int_equal(suite->transport->send(ends.from, &post), KOLO_OK);
    assert_false(post.is_queued && give(ends.from, 8, 2));
    assert_int_equal(suite_next(ends.to, ends.from)->stamp.seq, 1);
    suite_land(ends.to, ends.from, got);
    assert_true(suite_matches(got, LONG, 9));
    while (post.is_queued)
        assert_int_equal(suite_settle(ends.from, ends.to), KOLO_OK);
    give_soon(ends.from, ends.to, SHORT, 2);
    for (n = 1; n < MOST && give(ends.from, SHORT, n + 2);)
        n++;
    assert_in_range(n, 1, MOST - 1);
    assert_int_equal(!!(ends.from->wanted & KO_POLL_OUT), rest.is_queued);
    for (uint64_t i = 0; i < n; i++)
        await(ends.to, ends.from, i + 2, SHORT);
    give_soon(ends.from, ends.to, 8, n + 2);
    await(ends.to, ends.from, n + 2, 8);
    suite_hang_up(suite, &ends);
}

/* What had left before its sender hung up is taken; then there is nothing, and next says why. */
static void behind_the_end(void **state)
{
    struct suite *suite = *state;
    struct ends ends = suite_open(suite, SLICE);

    give_soon(ends.from, ends.to, 8, 1);
    suite->transport->hangup(ends.from);
    await(ends.to, ends.to, 1, 8);
    suite_expect_loss(ends.to);
    assert_false(take(ends.to, 2, CALL, SHORT));
    assert_false(give(ends.to, 8, 1));
    suite->transport->hangup(ends.to);
}

#define CASE(name)            \
    {                         \
        "short: " #name, name \
    }
const struct suite_case suite_short_cases[] = {CASE(lengths), CASE(others), CASE(order),
                                               CASE(behind_the_end)};
const size_t suite_nshort_cases = sizeof suite_short_cases / sizeof *suite_short_cases;
