/* SPDX-License-Identifier: MIT
 *
 * The suite's cases of links (transports/link.h) over each transport: slots and their wrap-around,
 * control messages beside slices, and sleeping with bells.
 */
#include "transport_suite.h"

#include "clock.h"
#include "fence.h"
#include "link.h"
#include "poller.h"
#include "status.h"
#include "window.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SLICE = KO_INLINE + 76, SLOTS = 2 };

static void drive(struct links *links)
{
    assert_int_equal(suite_settle(links->from->wire, links->to->wire), KOLO_OK);
}

static struct ko_stamp stamp_of(uint64_t seq)
{
    return (struct ko_stamp){.seq = seq, .count = seq * 3, .root = 1, .what = 2, .op = 5};
}

/* Sends slice number i by copy or by reference; KO_AGAIN if there is no slot. */
static int send_slice(struct ko_link *link, uint64_t i, size_t nbytes, const unsigned char *kept)
{
    struct ko_stamp stamp = stamp_of(i);
    void *place;
    int err;

    if (kept)
        return link->ops->post(link, &stamp, kept, nbytes);
    err = link->ops->room(link, nbytes, &place);
    if (err)
        return err;
    suite_fill(place, nbytes, i);
    return link->ops->commit(link, &stamp, nbytes);
}

/* Takes slice number i if it is here, by looking at it or by landing it. */
static int take_slice(struct ko_link *link, uint64_t i, size_t nbytes, bool lands)
{
    static _Thread_local unsigned char got[SLICE]; /* in which a slice may lie in part meanwhile */
    const void *body = got;
    const struct ko_frame *frame;
    struct ko_stamp stamp = stamp_of(i);
    int err = link->ops->next(link, &frame);

    if (err)
        return err;
    if (frame->nbytes != nbytes || memcmp(&frame->stamp, &stamp, sizeof stamp) != 0)
        return KOLO_E_INTERNAL;
    err = lands ? link->ops->land(link, got, i % 2) : link->ops->peek(link, &body);
    if (!err && !lands)
        err = link->ops->peek(link, &body); /* twice is as once */
    if (err)
        return err;
    if (!suite_matches(body, nbytes, i))
        return KOLO_E_INTERNAL;
    if (!lands)
        link->ops->release(link);
    return KOLO_OK;
}

static void must_take(struct links *links, uint64_t i, size_t nbytes, bool lands)
{
    ko_deadline deadline = ko_deadline_in(5000);
    int err;

    while ((err = take_slice(links->to, i, nbytes, lands)) == KO_AGAIN) {
        assert_false(ko_deadline_passed(&deadline));
        drive(links);
    }
    assert_int_equal(err, KOLO_OK);
}

/* Without a wire everything is "not yet". */
static void closed(void **state)
{
    struct ko_stamp stamp = {0};
    struct ko_notice notice;
    const struct ko_frame *frame;
    const void *body;
    struct ko_link *link;
    void *place;

    (void)state;
    assert_int_equal(ko_link_create(3, SLOTS, SLICE, &link), KOLO_OK);
    assert_int_equal(link->ops->room(link, 1, &place), KO_AGAIN);
    assert_int_equal(link->ops->commit(link, &stamp, 1), KOLO_E_INTERNAL);
    assert_int_equal(link->ops->post(link, &stamp, "x", 1), KO_AGAIN);
    assert_int_equal(link->ops->next(link, &frame), KO_AGAIN);
    assert_int_equal(link->ops->peek(link, &body), KO_AGAIN);
    assert_int_equal(link->ops->land(link, &stamp, false), KO_AGAIN);
    link->ops->release(link);
    link->ops->arm(link);
    link->ops->disarm(link);
    assert_int_equal(ko_link_hear(link, &notice), KO_AGAIN);
    assert_int_equal(ko_link_tell(link, KO_FRAME_BYE, NULL, NULL, 0), KOLO_OK);
    assert_false(ko_link_is_telling_any(link));
    assert_int_equal(ko_link_is_flushed(link), KOLO_OK);
    ko_link_free(link);
    ko_link_free(NULL);
}

static void slices(void **state)
{
    static const size_t sizes[] = {0,
                                   1,
                                   7,
                                   KO_BESIDE - 1,
                                   KO_BESIDE,
                                   KO_BESIDE + 1,
                                   KO_INLINE - 1,
                                   KO_INLINE,
                                   KO_INLINE + 1,
                                   SLICE - 1,
                                   SLICE};
    struct links links = suite_open_links(*state, SLICE);
    unsigned char kept[SLICE];

    for (uint64_t i = 0; i < 10 * sizeof sizes / sizeof *sizes; i++) {
        size_t nbytes = sizes[i * 5 % (sizeof sizes / sizeof *sizes)];
        bool by_reference = i % 3 == 0;

        suite_fill(kept, sizeof kept, i);
        assert_int_equal(send_slice(links.from, i, nbytes, by_reference ? kept : NULL), KOLO_OK);
        must_take(&links, i, nbytes, i % 2);
        while (ko_link_is_flushed(links.from))
            drive(&links);
    }
    assert_int_equal(links.from->sent, links.to->received);
    suite_free_links(&links);
}

/* A full ring says so, and takes again what was taken out; around the ring many times. */
static void full_ring(void **state)
{
    struct links links = suite_open_links(*state, SLICE);
    const bool is_window = links.from->inbox;
    uint64_t sent = 0, taken = 0;
    void *place;

    for (int round = 0; round < 50; round++) {
        while (sent < taken + SLOTS) {
            assert_int_equal(send_slice(links.from, sent, SLICE, NULL), KOLO_OK);
            sent++;
        }
        if (is_window)
            assert_int_equal(links.from->ops->room(links.from, 1, &place), KO_AGAIN);
        for (int n = round % SLOTS; n >= 0; n--)
            must_take(&links, taken++, SLICE, round % 3 == 0);
        drive(&links);
    }
    while (taken < sent)
        must_take(&links, taken++, SLICE, true);
    assert_int_equal(take_slice(links.to, taken, 0, true), KO_AGAIN);
    suite_free_links(&links);
}

/* Memory that links hold is given back, but for that of slices under way. */
static void given_back_meanwhile(void **state)
{
    enum { LONG = 256 << 10 };
    struct links links = suite_open_links(*state, LONG);
    const ko_deadline deadline = ko_deadline_in(5000);

    for (uint64_t i = 0; i < SLOTS; i++) {
        const struct ko_stamp stamp = stamp_of(i);
        void *place;

        assert_int_equal(links.from->ops->room(links.from, LONG, &place), KOLO_OK);
        suite_fill(place, LONG, i);
        assert_int_equal(links.from->ops->commit(links.from, &stamp, LONG), KOLO_OK);
    }
    ko_link_give_back(links.from);
    for (uint64_t i = 0; i < SLOTS; i++) {
        const struct ko_frame *frame;
        const void *body;

        while (links.to->ops->next(links.to, &frame) || links.to->ops->peek(links.to, &body)) {
            assert_false(ko_deadline_passed(&deadline));
            ko_link_give_back(links.to);
            drive(&links);
        }
        ko_link_give_back(links.to);
        assert_int_equal(links.to->ops->peek(links.to, &body), KOLO_OK);
        assert_true(suite_matches(body, LONG, i));
        links.to->ops->release(links.to);
        ko_link_give_back(links.from);
    }
    suite_free_links(&links);
}

/* Nobody receives: the sender comes to a stop, and nothing is lost. */
static void stalled(void **state)
{
    enum { BIG = 1 << 20 };
    struct links links = suite_open_links(*state, BIG);
    unsigned char *kept = malloc(BIG), *got = malloc(BIG);
    struct ko_stamp stamp = stamp_of(0);
    const struct ko_frame *frame;
    uint64_t sent = 0;
    int err;

    suite_fill(kept, BIG, 77);
    while (!(err = links.from->ops->post(links.from, &stamp, kept, BIG))) {
        sent++;
        assert_in_range(sent, 1, 100);
    }
    assert_int_equal(err, KO_AGAIN);
    assert_true(sent >= SLOTS);
    for (uint64_t i = 0; i < sent; i++) {
        while ((err = links.to->ops->next(links.to, &frame)) == KO_AGAIN)
            drive(&links);
        assert_int_equal(err, KOLO_OK);
        while ((err = links.to->ops->land(links.to, got, sent % 2)) == KO_AGAIN)
            drive(&links);
        assert_int_equal(err, KOLO_OK);
        assert_memory_equal(got, kept, BIG);
    }
    while (ko_link_is_flushed(links.from)) /* some learn only afterwards that all has arrived */
        drive(&links);
    suite_free_links(&links);
    free(kept);
    free(got);
}

static void controls(void **state)
{
    static const enum ko_frame_kind kinds[] = {KO_FRAME_WAITING, KO_FRAME_FAIL, KO_FRAME_BYE};
    struct suite *suite = *state;
    unsigned char body[KO_CONTROL_BYTES];
    struct ko_stamp stamp = stamp_of(9);
    struct ko_notice notice;
    struct links links;

    suite_needs_peer(suite);
    links = suite_open_links(suite, SLICE);
    suite_fill(body, sizeof body, 4);
    assert_int_equal(ko_link_hear(links.to, &notice), KO_AGAIN);
    for (size_t i = 0; i < 3; i++) {
        size_t nbytes = i == 1 ? sizeof body : 0;
        int err;

        assert_int_equal(ko_link_tell(links.from, kinds[i], &stamp, body, nbytes), KOLO_OK);
        while ((err = ko_link_hear(links.to, &notice)) == KO_AGAIN)
            drive(&links);
        assert_int_equal(err, KOLO_OK);
        assert_int_equal(notice.kind, kinds[i]);
        assert_int_equal(notice.nbytes, nbytes);
        assert_memory_equal(&notice.stamp, &stamp, sizeof stamp);
        assert_memory_equal(notice.body, body, nbytes);
    }
    assert_false(ko_link_is_telling_any(links.from));
    suite_free_links(&links);
}

/* Slices and control messages keep out of each other's way, in whatever order they came. */
static void controls_among_slices(void **state)
{
    struct suite *suite = *state;
    struct ko_stamp stamp = stamp_of(1);
    struct ko_notice notice;
    struct links links;
    int err;

    suite_needs_peer(suite);
    links = suite_open_links(suite, SLICE);
    for (uint64_t i = 0; i < 20; i++) {
        if (i % 2)
            assert_int_equal(ko_link_tell(links.from, KO_FRAME_WAITING, &stamp, NULL, 0), KOLO_OK);
        assert_int_equal(send_slice(links.from, i, 40, NULL), KOLO_OK);
        if (i % 2 == 0)
            assert_int_equal(ko_link_tell(links.from, KO_FRAME_WAITING, &stamp, NULL, 0), KOLO_OK);
        /* Whoever looks for the slice hears the control message too, when it is in front. */
        while ((err = take_slice(links.to, i, 40, i % 3)) == KO_AGAIN) {
            (void)ko_link_hear(links.to, &notice);
            drive(&links);
        }
        assert_int_equal(err, KOLO_OK);
    }
    while (ko_link_hear(links.to, &notice) == KOLO_OK)
        assert_int_equal(notice.kind, KO_FRAME_WAITING);
    suite_free_links(&links);
}

/* A look that has taken a control message off its wire says so: the wire will not tell again. */
static void notice_is_met(void **state)
{
    const ko_deadline deadline = ko_deadline_in(10000);
    struct suite *suite = *state;
    struct ko_stamp stamp = stamp_of(1);
    struct ko_notice notice;
    struct links links;

    suite_needs_peer(suite);
    links = suite_open_links(suite, SLICE);
    assert_int_equal(ko_link_tell(links.from, KO_FRAME_WAITING, &stamp, NULL, 0), KOLO_OK);
    assert_int_equal(send_slice(links.from, 0, 40, NULL), KOLO_OK);
    while (links.to->posts && !links.to->has_notice) {
        assert_int_equal(take_slice(links.to, 0, 40, 0), KO_AGAIN);
        assert_false(ko_deadline_passed(&deadline));
    }
    while (ko_link_hear(links.to, &notice))
        drive(&links);
    assert_int_equal(notice.kind, KO_FRAME_WAITING);
    assert_false(links.to->has_notice);
    while (take_slice(links.to, 0, 40, 0))
        drive(&links);
    suite_free_links(&links);
}

/* One of a kind that is still on its way makes the next a no-op. */
static void told_once(void **state)
{
    struct suite *suite = *state;
    static const unsigned char body[KO_CONTROL_BYTES];
    struct ko_notice notice;
    struct links links;
    int told = 0, heard = 0;

    suite_needs_peer(suite);
    links = suite_open_links(suite, SLICE);
    while (!ko_link_is_telling_any(links.from) && told < 100000) {
        assert_int_equal(ko_link_tell(links.from, KO_FRAME_FAIL, NULL, body, sizeof body), KOLO_OK);
        told++;
    }
    assert_true(ko_link_is_telling_any(links.from));
    assert_int_equal(ko_link_tell(links.from, KO_FRAME_FAIL, NULL, body, sizeof body), KOLO_OK);
    while (heard < told) {
        int err = ko_link_hear(links.to, &notice);

        heard += err == KOLO_OK;
        if (err)
            drive(&links);
    }
    drive(&links);
    assert_int_equal(ko_link_hear(links.to, &notice), KO_AGAIN);
    assert_false(ko_link_is_telling_any(links.from));
    suite_free_links(&links);
}

static bool is_readable(const struct ko_link *link, int timeout_ms)
{
    struct pollfd entry = {.fd = link->wire->fd, .events = POLLIN};

    return poll(&entry, 1, timeout_ms) == 1;
}

/* Arms; over rdma an answer to what this end has sent may still be on its way, and come later. */
static void sleep_soon(struct ko_link *link)
{
    const ko_deadline deadline = ko_deadline_in(5000);
    bool is_woken;

    do {
        assert_false(ko_deadline_passed(&deadline));
        link->ops->arm(link);
        ko_fence_others();
        is_woken = is_readable(link, 0);
    } while (is_woken && link->wire->transport->arm);
    assert_false(is_woken);
}

/* A sleeper is rung for, once; who does not sleep is left alone. */
static void bells(void **state)
{
    struct suite *suite = *state;
    struct ko_notice notice;
    struct links links;
    uint64_t i = 0;

    suite_needs_peer(suite);
    links = suite_open_links(suite, SLICE);
    for (; i < 10; i++) {
        sleep_soon(links.to);
        assert_int_equal(send_slice(links.from, i, 30, NULL), KOLO_OK);
        assert_true(is_readable(links.to, 5000));
        links.to->ops->disarm(links.to);
        assert_int_equal(ko_link_hear(links.to, &notice), KO_AGAIN); /* bells are not told of */
        must_take(&links, i, 30, true);
    }
    if (links.to->inbox) {
        assert_int_equal(send_slice(links.from, i, 30, NULL), KOLO_OK);
        assert_false(is_readable(links.to, 20));
        must_take(&links, i, 30, true);
    }
    /* A sender that sleeps for want of a slot is rung for when one is free. */
    for (int n = 0; n < SLOTS; n++)
        assert_int_equal(send_slice(links.from, (uint64_t)n, 30, NULL), KOLO_OK);
    links.from->ops->arm(links.from);
    ko_fence_others();
    must_take(&links, 0, 30, false);
    if (links.from->inbox)
        assert_true(is_readable(links.from, 5000));
    links.from->ops->disarm(links.from);
    suite_free_links(&links);
}

/* A peer that is gone leaves what it had sent. */
static void left_behind(void **state)
{
    struct suite *suite = *state;
    ko_deadline deadline = ko_deadline_in(5000);
    struct ko_notice notice;
    const struct ko_frame *frame;
    struct links links;
    int err;

    suite_needs_peer(suite);
    links = suite_open_links(suite, SLICE);
    for (uint64_t i = 0; i < SLOTS; i++)
        assert_int_equal(send_slice(links.from, i, SLICE, NULL), KOLO_OK);
    while (ko_link_is_flushed(links.from))
        drive(&links);
    ko_link_free(links.from);
    links.from = links.to;
    for (uint64_t i = 0; i < SLOTS; i++)
        must_take(&links, i, SLICE, i % 2);
    do {
        err = links.to->ops->next(links.to, &frame);
        if (err == KO_AGAIN)
            err = ko_link_hear(links.to, &notice);
    } while (err == KO_AGAIN && !ko_deadline_passed(&deadline));
    assert_int_equal(err, KOLO_E_PEER_LOST);
    suite_free_links(&links);
}

/* A window that holds what no honest peer writes. */
static void hostile_slot(void **state)
{
    const uint64_t wrong[] = {1, KO_LINE + 8, ko_window_room(SLOTS, SLICE) - SLICE + KO_LINE,
                              ko_window_room(SLOTS, SLICE), UINT64_MAX - KO_LINE + 1};
    struct links links = suite_open_links(*state, SLICE);
    const struct ko_frame *frame;
    struct ko_slot *slot;
    const void *body;

    if (!links.to->inbox) {
        suite_free_links(&links);
        suite_skip(*state, "frames of messages are checked on the wire");
    }
    slot = ko_window_slot(links.from->outbox, 0);
    slot->frame = (struct ko_frame){.kind = KO_FRAME_DATA, .nbytes = SLICE + 1};
    ko_store_ordered(&slot->step, 1);
    assert_int_equal(links.to->ops->next(links.to, &frame), KOLO_E_PROTOCOL);
    slot->frame = (struct ko_frame){.kind = KO_FRAME_BYE, .nbytes = 1};
    assert_int_equal(links.to->ops->next(links.to, &frame), KOLO_E_PROTOCOL);
    slot->frame = (struct ko_frame){.kind = KO_FRAME_DATA, .nbytes = SLICE};
    assert_int_equal(links.to->ops->next(links.to, &frame), KOLO_OK);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        memcpy(slot->beside, &wrong[i], sizeof *wrong);
        assert_int_equal(links.to->ops->peek(links.to, &body), KOLO_E_PROTOCOL);
    }
    ko_store_ordered(&slot->step, 7); /* a step that is not the next is none */
    assert_int_equal(links.to->ops->next(links.to, &frame), KO_AGAIN);
    suite_free_links(&links);
}

/* ---- both ends at once ---------------------------------------------------------------------- */

enum { STREAM = 3000 };

static size_t stream_size(uint64_t i)
{
    return i * 7919 % (SLICE + 1);
}

/* Sleeps until the wire has something to tell, as a channel does. */
static int sleep_on(struct ko_link *link, bool *is_armed)
{
    struct pollfd entry = {.fd = link->wire->fd};
    struct ko_notice notice;
    int err;

    if (!*is_armed) {
        link->ops->arm(link);
        ko_fence_others();
        *is_armed = true;
        return KOLO_OK; /* the caller looks once more */
    }
    entry.events = (short)((link->wire->wanted & KO_POLL_IN ? POLLIN : 0) |
                           (link->wire->wanted & KO_POLL_OUT ? POLLOUT : 0));
    if (poll(&entry, 1, 5000) == 0)
        return KOLO_E_TIMEOUT; /* a bell was lost */
    link->ops->disarm(link);
    *is_armed = false;
    err = link->wire->transport->drive(link->wire);
    if (!err)
        err = ko_link_hear(link, &notice);
    return err == KO_AGAIN ? KOLO_OK : err;
}

/* Sends and receives STREAM slices, sleeping whenever neither moves. */
static int stream(struct ko_link *link)
{
    uint64_t sent = 0, taken = 0;
    bool is_armed = false;
    int err = KOLO_OK;

    while ((sent < STREAM || taken < STREAM || ko_link_is_flushed(link)) && !err) {
        int out = sent < STREAM ? send_slice(link, sent, stream_size(sent), NULL) : KO_AGAIN;
        int in = taken < STREAM ? take_slice(link, taken, stream_size(taken), taken % 2) : KO_AGAIN;

        sent += out == KOLO_OK;
        taken += in == KOLO_OK;
        if (out > 0 || in > 0)
            err = out > 0 ? out : in;
        else if (out && in)
            err = sleep_on(link, &is_armed);
    }
    return err;
}

static void *stream_main(void *argument)
{
    return (void *)(intptr_t)stream(argument);
}

static void as_threads(void **state)
{
    struct suite *suite = *state;
    struct links links;
    pthread_t thread;
    void *result;

    suite_needs_peer(suite);
    links = suite_open_links(suite, SLICE);
    assert_int_equal(pthread_create(&thread, NULL, stream_main, links.to), 0);
    assert_int_equal(stream(links.from), KOLO_OK);
    pthread_join(thread, &result);
    assert_int_equal((intptr_t)result, KOLO_OK);
    suite_free_links(&links);
}

static int role_streams(struct suite *suite)
{
    ko_deadline deadline = ko_deadline_in(5000);
    struct ko_hello answer = suite_answer(SLICE);
    struct ko_wire *wire;
    struct ko_link *link;

    while (suite->transport->accept(suite->right, &wire))
        if (ko_deadline_passed(&deadline))
            return 1;
    while (!wire->has_hello)
        if (suite_settle(wire, NULL) || ko_deadline_passed(&deadline))
            return 1;
    if (suite->transport->answer(wire, &answer))
        return 1;
    while (wire->state != KO_WIRE_OPEN)
        if (suite_settle(wire, NULL) || ko_deadline_passed(&deadline))
            return 1;
    return ko_link_create(1, SLOTS, SLICE, &link) || ko_link_open(link, wire) || stream(link);
}

static void as_processes(void **state)
{
    struct suite *suite = *state;
    ko_deadline deadline = ko_deadline_in(5000);
    struct suite_child child;
    struct ko_wire *wire;
    struct ko_link *link;

    suite_needs_child(suite);
    child = suite_fork(suite, role_streams);
    wire = suite_connect(suite, SLICE);
    while (wire->state != KO_WIRE_OPEN) {
        assert_false(ko_deadline_passed(&deadline));
        assert_int_equal(suite_settle(wire, NULL), KOLO_OK);
    }
    assert_int_equal(ko_link_create(2, SLOTS, SLICE, &link), KOLO_OK);
    assert_int_equal(ko_link_open(link, wire), KOLO_OK);
    assert_int_equal(stream(link), KOLO_OK);
    suite_await(&child);
    suite_kill(&child);
    ko_link_free(link);
}

#define CASE(name)            \
    {                         \
        "links: " #name, name \
    }
const struct suite_case suite_link_cases[] = {CASE(closed),
                                              CASE(slices),
                                              CASE(full_ring),
                                              CASE(given_back_meanwhile),
                                              CASE(stalled),
                                              CASE(controls),
                                              CASE(controls_among_slices),
                                              CASE(notice_is_met),
                                              CASE(told_once),
                                              CASE(bells),
                                              CASE(left_behind),
                                              CASE(hostile_slot),
                                              CASE(as_threads),
                                              CASE(as_processes)};
const size_t suite_nlink_cases = sizeof suite_link_cases / sizeof *suite_link_cases;
