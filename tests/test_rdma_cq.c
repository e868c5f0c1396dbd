/* SPDX-License-Identifier: MIT
 *
 * The completion queue that the wires of one channel of a group share: who has one with whom, wires
 * that come and go in any order and what they leave behind, who hears of what somebody else has
 * taken in, and a queue that fails. The adapters are those of tests/fakeverbs, which aborts where a
 * queue has more to tell than there is room for.
 */
#include "rdma_pair.h"

#include "clock.h"
#include "kolo.h"
#include "seeded.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int forget_wishes(void **state)
{
    static const char *const names[] = {
        "FAKEVERBS_DEVICES", "FAKEVERBS_BREAK", "FAKEVERBS_STATUS",          "FAKEVERBS_EVENT",
        "FAKEVERBS_JITTER",  "KOLO_IB_HCA",     "KOLO_IB_QPS_PER_CONNECTION"};

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
    setenv("KOLO_DEBUG", "NONE", 1);
    return 0;
}

/* ---- several wires between two devices ------------------------------------------------------- */

enum { MOST = 80 };

struct several {
    struct rdma_pair devices; /* without a wire of its own */
    struct rdma_pair pairs[MOST];
};

static void open_one(struct several *several, int i, uint32_t channel)
{
    struct rdma_pair *pair = &several->pairs[i];

    *pair = (struct rdma_pair){
        .left = several->devices.left, .right = several->devices.right, .channel = channel};
    assert_int_equal(rdma_pair_open_wire(pair), KOLO_OK);
}

static void close_one(struct several *several, int i)
{
    struct rdma_pair *pair = &several->pairs[i];

    rdma->hangup(i % 2 ? pair->to : pair->from);
    rdma->hangup(i % 2 ? pair->from : pair->to);
    pair->from = pair->to = NULL;
}

/* So many, all of channel 0. */
static struct several *open_several(int n)
{
    struct several *several = calloc(1, sizeof *several);

    assert_int_equal(rdma_pair_open_devices(&several->devices), KOLO_OK);
    for (int i = 0; i < n; i++)
        open_one(several, i, 0);
    return several;
}

static int count_cqs(const struct ko_device *device)
{
    int n = 0;

    for (const struct ko_rdma_cq *cq = ((const struct ko_rdma_device *)device)->cqs; cq;
         cq = cq->next)
        n++;
    return n;
}

/* With the wires that are still there. */
static void close_several(struct several *several)
{
    for (int i = 0; i < MOST; i++)
        if (several->pairs[i].from || several->pairs[i].to)
            close_one(several, i);
    assert_int_equal(count_cqs(several->devices.left), 0);
    rdma_pair_close(&several->devices);
    free(several);
}

static const struct ko_rdma_rail *rail_of(struct ko_wire *wire)
{
    return &rdma_pair_of(wire)->rails[0];
}

/* ---- who shares ------------------------------------------------------------------------------ */

static void wires_of_one_channel_share_a_queue(void **state)
{
    struct several *several = open_several(3);

    (void)state;
    open_one(several, 3, 1);
    open_one(several, 4, 1);
    assert_int_equal(count_cqs(several->devices.left), 2);
    assert_ptr_equal(rail_of(several->pairs[0].from)->cq, rail_of(several->pairs[2].from)->cq);
    assert_ptr_equal(rail_of(several->pairs[3].to)->cq, rail_of(several->pairs[4].to)->cq);
    assert_ptr_not_equal(rail_of(several->pairs[0].to)->cq, rail_of(several->pairs[4].to)->cq);
    close_several(several);
}

/* One on each adapter, however many queue pairs a wire has there. */
static void each_adapter_has_a_queue(void **state)
{
    struct several *several;

    (void)state;
    setenv("FAKEVERBS_DEVICES", "a0:roce,b0:roce", 1);
    setenv("KOLO_IB_HCA", "a0,b0", 1);
    setenv("KOLO_IB_QPS_PER_CONNECTION", "3", 1);
    several = open_several(4);
    assert_int_equal(count_cqs(several->devices.left), 2);
    for (int i = 0; i < 4; i++)
        rdma_pair_pass(&several->pairs[i], RDMA_SLICE);
    close_several(several);
}

/* Those for which there is no room have another queue, with more of it. */
static void many_wires(void **state)
{
    enum { MANY = 74 };
    static const struct {
        int wires, queues;
    } rows[] = {{1, 1}, {8, 1}, {9, 2}, {72, 2}, {73, 3}};
    struct several *several = open_several(0);
    size_t row = 0;

    (void)state;
    for (int i = 0; i < MANY; i++) {
        open_one(several, i, 0);
        if (row < sizeof rows / sizeof *rows && rows[row].wires == i + 1)
            assert_int_equal(count_cqs(several->devices.left), rows[row++].queues);
    }
    for (int i = 0; i < MANY; i++)
        rdma_pair_pass(&several->pairs[i], (size_t)i * 1000);
    close_several(several);
}

/* ---- coming and going ------------------------------------------------------------------------ */

static void hanging_up_in_any_order(void **state)
{
    enum { WIRES = 12, STEPS = 300 };
    struct several *several = open_several(WIRES);
    uint64_t seed = 7;

    (void)state;
    for (int i = 0; i < STEPS; i++) {
        const int at = seeded_below(&seed, WIRES);

        if (several->pairs[at].from)
            close_one(several, at);
        else
            open_one(several, at, 0);
        for (int k = 0; k < WIRES; k += 3)
            if (several->pairs[k].from)
                rdma_pair_pass(&several->pairs[k], (size_t)seeded_below(&seed, 2 * KO_RDMA_DIRECT));
    }
    close_several(several);
}

/* A queue pair leaves its receives behind, which are flushed: whoever takes its seat is not blamed
 * for that, and they take no room for ever. */
static void what_a_wire_leaves_behind(void **state)
{
    struct several *several = open_several(2);
    const struct ko_rdma_cq *cq = rail_of(several->pairs[0].from)->cq;
    const int room = cq->room;
    const uint32_t seat = rail_of(several->pairs[1].from)->seat;

    (void)state;
    for (int i = 0; i < 100; i++) {
        rdma_pair_pass(&several->pairs[1], 5000);
        close_one(several, 1);
        assert_int_equal(cq->room, room); /* they may still be there */
        open_one(several, 1, 0);
        assert_int_equal(rail_of(several->pairs[1].from)->seat, seat);
        rdma_pair_pass(&several->pairs[0], 5000);
        assert_int_equal(cq->room, room);
    }
    assert_int_equal(count_cqs(several->devices.left), 1);
    close_several(several);
}

/* As long as nobody has looked, what has been left takes the room of those who come: one who comes
 * looks. */
static void room_that_is_still_taken(void **state)
{
    struct several *several = open_several(8);

    (void)state;
    for (int i = 1; i < 8; i++)
        close_one(several, i);
    for (int i = 1; i < 8; i++)
        open_one(several, i, 0);
    assert_int_equal(count_cqs(several->devices.left), 1);
    for (int i = 0; i < 8; i++)
        rdma_pair_pass(&several->pairs[i], 20000);
    close_several(several);
}

/* ---- sleeping -------------------------------------------------------------------------------- */

static bool is_readable(const struct ko_wire *wire, int ms)
{
    struct pollfd entry = {.fd = wire->fd, .events = POLLIN};

    return poll(&entry, 1, ms) == 1;
}

/* Until all is quiet. */
static void arm_all(struct several *several, int n)
{
    const ko_deadline deadline = ko_deadline_in(RDMA_LIMIT_MS);
    bool is_moving;

    do {
        is_moving = false;
        for (int i = 0; i < n; i++)
            is_moving |= rdma->arm(several->pairs[i].to);
        assert_false(ko_deadline_passed(&deadline));
    } while (is_moving);
}

/* What another wire's look has taken in is told by the descriptor, and if that has been looked at,
 * by arming, once. */
static void what_others_have_taken_in(void **state)
{
    struct several *several = open_several(2);
    struct ko_wire *asleep = several->pairs[0].to, *awake = several->pairs[1].to;
    struct ko_post post = {.frame = {.kind = KO_FRAME_DATA}};
    const struct ko_frame *frame;

    (void)state;
    arm_all(several, 2);
    assert_false(is_readable(asleep, 0));
    assert_int_equal(rdma->send(several->pairs[0].from, &post), KOLO_OK);
    assert_true(is_readable(asleep, RDMA_LIMIT_MS));
    while (!rdma_pair_of(asleep)->in.come)
        assert_int_equal(rdma->drive(awake), KOLO_OK);
    assert_true(is_readable(asleep, 0));
    (void)rdma->arm(awake); /* which takes the event */
    assert_false(is_readable(asleep, 0));
    assert_true(rdma->arm(asleep));
    assert_false(rdma->arm(asleep));
    assert_int_equal(rdma->next(asleep, &frame), KOLO_OK);
    assert_int_equal(rdma->land(asleep, NULL), KOLO_OK);
    close_several(several);
}

/* A place that is told to one wire while somebody looks at another one is written to at once. */
static void others_do_what_follows(void **state)
{
    static unsigned char body[RDMA_SLICE], got[RDMA_SLICE];
    struct several *several = open_several(2);
    struct ko_post post = {.frame = {.kind = KO_FRAME_DATA, .nbytes = RDMA_SLICE}, .body = body};
    struct rdma_pair *pair = &several->pairs[0];
    const ko_deadline deadline = ko_deadline_in(RDMA_LIMIT_MS);
    const struct ko_frame *frame;

    (void)state;
    rdma_pair_fill(body, sizeof body, 3);
    assert_int_equal(rdma->send(pair->from, &post), KOLO_OK);
    while (rdma->next(pair->to, &frame) == KO_AGAIN)
        assert_false(ko_deadline_passed(&deadline));
    while (rdma->land(pair->to, got) == KO_AGAIN) {
        assert_int_equal(rdma->drive(several->pairs[1].from), KOLO_OK);
        assert_false(ko_deadline_passed(&deadline));
    }
    assert_memory_equal(got, body, sizeof body);
    while (post.is_queued) {
        assert_int_equal(rdma->drive(several->pairs[1].from), KOLO_OK);
        assert_false(ko_deadline_passed(&deadline));
    }
    close_several(several);
}

/* A wire that is being opened leaves the events to those that are open. */
static void one_that_is_being_opened(void **state)
{
    struct several *several = open_several(1);
    struct ko_post post = {.frame = {.kind = KO_FRAME_DATA}};
    struct rdma_pair *second = &several->pairs[1];
    const ko_deadline deadline = ko_deadline_in(RDMA_LIMIT_MS);

    (void)state;
    arm_all(several, 1);
    assert_int_equal(rdma->send(several->pairs[0].from, &post), KOLO_OK);
    assert_true(is_readable(several->pairs[0].to, RDMA_LIMIT_MS));
    setenv("FAKEVERBS_HELD", "fake0", 1); /* its first write does not come */
    *second = (struct rdma_pair){.left = several->devices.left, .right = several->devices.right};
    assert_int_equal(rdma_pair_begin(second), KOLO_OK);
    while (!second->to || rdma_pair_of(second->to)->stage < KO_RDMA_READYING) {
        assert_int_equal(rdma_pair_step(second), KOLO_OK);
        assert_false(ko_deadline_passed(&deadline));
    }
    for (int i = 0; i < 10; i++)
        assert_int_equal(rdma_pair_step(second), KOLO_OK);
    assert_true(is_readable(several->pairs[0].to, 0));
    unsetenv("FAKEVERBS_HELD");
    assert_int_equal(rdma_pair_end(second), KOLO_OK);
    rdma_pair_pass(second, 1000);
    close_several(several);
}

/* All that completes for it is taken in by another one. */
static void one_that_is_opened_by_others(void **state)
{
    struct several *several = open_several(1);
    struct rdma_pair *first = &several->pairs[0], *second = &several->pairs[1];
    const ko_deadline deadline = ko_deadline_in(RDMA_LIMIT_MS);

    (void)state;
    *second = (struct rdma_pair){.left = several->devices.left, .right = several->devices.right};
    assert_int_equal(rdma_pair_begin(second), KOLO_OK);
    while (!second->to || second->from->state != KO_WIRE_OPEN ||
           second->to->state != KO_WIRE_OPEN) {
        assert_int_equal(rdma_pair_step(second), KOLO_OK);
        for (int i = 0; i < 100; i++) {
            assert_int_equal(rdma->drive(first->from), KOLO_OK);
            assert_int_equal(rdma->drive(first->to), KOLO_OK);
        }
        assert_false(ko_deadline_passed(&deadline));
    }
    rdma_pair_pass(second, 1000);
    close_several(several);
}

enum { PLAYERS = 5, ROUNDS = 400 };

/* Sleeps, as a channel does, until one of the wires has something; -1 if nobody wakes it. */
static int await_any(struct ko_wire *const *wires)
{
    struct pollfd entries[PLAYERS];
    const struct ko_frame *frame;

    for (;;) {
        bool has_come = false;

        for (int i = 0; i < PLAYERS; i++)
            has_come |= rdma->arm(wires[i]);
        for (int i = 0; i < PLAYERS; i++) {
            entries[i] = (struct pollfd){.fd = wires[i]->fd, .events = POLLIN};
            if (!rdma->next(wires[i], &frame))
                return i;
        }
        if (!has_come && poll(entries, PLAYERS, RDMA_LIMIT_MS) <= 0)
            return -1;
    }
}

static bool land_all(struct ko_wire *wire, void *to)
{
    const ko_deadline deadline = ko_deadline_in(RDMA_LIMIT_MS);
    int err;

    while ((err = rdma->land(wire, to)) == KO_AGAIN && !ko_deadline_passed(&deadline))
        continue;
    return !err;
}

static bool send_and_await(struct ko_wire *wire, uint32_t nbytes)
{
    static unsigned char body[KO_RDMA_DIRECT];
    struct ko_post post = {.frame = {.kind = KO_FRAME_DATA, .nbytes = nbytes}, .body = body};
    const ko_deadline deadline = ko_deadline_in(RDMA_LIMIT_MS);

    if (rdma->send(wire, &post))
        return false;
    while (post.is_queued)
        if (rdma->drive(wire) || ko_deadline_passed(&deadline))
            return false;
    return true;
}

/* Answers on the wire by which a message has come. */
static void *echo(void *argument)
{
    struct ko_wire *const *wires = argument;
    unsigned char got[KO_RDMA_DIRECT];

    for (int i = 0; i < ROUNDS; i++) {
        const int at = await_any(wires);

        if (at < 0 || !land_all(wires[at], got) || !send_and_await(wires[at], 100))
            return NULL;
    }
    return argument;
}

static void nobody_sleeps_through_a_message(void **state)
{
    static const char *const jitters[] = {"0", "300"};

    (void)state;
    for (size_t k = 0; k < 2; k++) {
        struct several *several = open_several(PLAYERS);
        struct ko_wire *ours[PLAYERS], *theirs[PLAYERS];
        uint64_t seed = 3 + k;
        pthread_t second;
        void *is_fine;

        setenv("FAKEVERBS_JITTER", jitters[k], 1);
        for (int i = 0; i < PLAYERS; i++) {
            ours[i] = several->pairs[i].from;
            theirs[i] = several->pairs[i].to;
        }
        assert_int_equal(pthread_create(&second, NULL, echo, theirs), 0);
        for (int i = 0; i < ROUNDS; i++) {
            const int to = seeded_below(&seed, PLAYERS);
            unsigned char got[100];

            assert_true(send_and_await(ours[to], (uint32_t)seeded_below(&seed, KO_RDMA_DIRECT)));
            assert_int_equal(await_any(ours), to);
            assert_true(land_all(ours[to], got));
        }
        pthread_join(second, &is_fine);
        assert_non_null(is_fine);
        unsetenv("FAKEVERBS_JITTER");
        close_several(several);
    }
}

/* ---- failing --------------------------------------------------------------------------------- */

/* All wires of the queue fail, each with its own sentence, and no other one. */
static void a_queue_that_fails(void **state)
{
    static const struct {
        const char *variable, *wish, *words;
    } rows[] = {
        {"FAKEVERBS_BREAK", "ibv_poll_cq@1-1=5",
         "reading a completion queue (ibv_poll_cq) to rank"},
        {"FAKEVERBS_BREAK", "ibv_req_notify_cq@1-1=5", "asking for events (ibv_req_notify_cq) to"},
        {"FAKEVERBS_EVENT", "1=0", "a queue of the RDMA adapter fake0, to rank 2, has failed"}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct several *several = open_several(3);
        const char *const words[] = {rows[i].words, NULL};
        struct ko_post post = {.frame = {.kind = KO_FRAME_DATA}};

        open_one(several, 3, 1);
        rail_of(several->pairs[0].from)->cq->is_armed = false;
        setenv(rows[i].variable, rows[i].wish, 1);
        assert_int_equal(rdma->send(several->pairs[0].from, &post), KOLO_OK);
        (void)rdma->arm(several->pairs[0].from);
        unsetenv(rows[i].variable);
        for (int k = 0; k < 3; k++)
            rdma_pair_expect(several->pairs[k].from, KOLO_E_SYSTEM, words);
        rdma_pair_pass(&several->pairs[3], RDMA_SLICE);
        open_one(several, 4, 0); /* in another queue */
        rdma_pair_pass(&several->pairs[4], RDMA_SLICE);
        close_several(several);
    }
}

/* One wire's failure is its own. */
static void a_wire_that_fails(void **state)
{
    static const char *const words[] = {"RETRY_EXC_ERR", NULL};
    struct several *several = open_several(3);
    struct ko_post post = {.frame = {.kind = KO_FRAME_DATA}};

    (void)state;
    setenv("FAKEVERBS_STATUS", "1=12/129", 1);
    assert_int_equal(rdma->send(several->pairs[1].from, &post), KOLO_OK);
    unsetenv("FAKEVERBS_STATUS");
    rdma_pair_pass(&several->pairs[0], RDMA_SLICE); /* which takes in the failure */
    rdma_pair_expect(several->pairs[1].from, KOLO_E_PEER_LOST, words);
    close_one(several, 1);
    rdma_pair_pass(&several->pairs[2], RDMA_SLICE);
    close_several(several);
}

/* A child that closes what it has inherited takes nothing from its parent. */
static void a_child_closes(void **state)
{
    struct several *several = open_several(3);
    pid_t child;
    int status;

    (void)state;
    child = fork();
    if (!child) {
        rdma->close(several->devices.left);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    for (int i = 0; i < 3; i++)
        rdma_pair_pass(&several->pairs[i], RDMA_SLICE);
    close_several(several);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, forget_wishes, forget_wishes)

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(wires_of_one_channel_share_a_queue),
                                       TEST(each_adapter_has_a_queue),
                                       TEST(many_wires),
                                       TEST(hanging_up_in_any_order),
                                       TEST(what_a_wire_leaves_behind),
                                       TEST(room_that_is_still_taken),
                                       TEST(what_others_have_taken_in),
                                       TEST(others_do_what_follows),
                                       TEST(one_that_is_being_opened),
                                       TEST(one_that_is_opened_by_others),
                                       TEST(nobody_sleeps_through_a_message),
                                       TEST(a_queue_that_fails),
                                       TEST(a_wire_that_fails),
                                       TEST(a_child_closes)};

    return cmocka_run_group_tests_name("completion queues of rdma", tests, NULL, NULL);
}
