/* SPDX-License-Identifier: MIT
 *
 * The suite's part about slices that are left in their sender's process, to be read there.
 */
#include "transport_suite.h"

#include "clock.h"
#include "foreign.h"
#include "foreign_out.h"
#include "ranks.h"
#include "status.h"
#include "window_slots.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static int refer_to_foreign(const struct puppet *puppet, const void *address, const void **body)
{
    const struct ko_foreign_slice slice = {(uintptr_t)address, 0, KO_FOREIGN_FREE};

    return suite_refer(puppet, KO_FRAME_FOREIGN, &slice, sizeof slice, body);
}

/* Says that `word` stands at the address; true: it is found there, so that memory is read. */
static bool invite(const struct puppet *puppet, const uint64_t *address, uint64_t word)
{
    struct ko_link *link = puppet->link;

    link->outbox->word = word;
    link->outbox->word_at = (uintptr_t)address;
    ko_foreign_try(link);
    return link->inbox->reading != 0;
}

enum { SLICE = 4096 }; /* bytes, where nothing else is said */

static struct puppet open_reader_of(struct suite *suite, const char *protocol, uint32_t slice_bytes)
{
    struct puppet puppet;

    setenv("KOLO_PROTO", protocol, 1);
    puppet = suite_open_puppet(suite, slice_bytes);
    unsetenv("KOLO_PROTO");
    return puppet;
}

static struct puppet open_reader(struct suite *suite, const char *protocol)
{
    return open_reader_of(suite, protocol, SLICE);
}

struct puppet suite_open_reading(struct suite *suite, const char *protocol, uint32_t slice_bytes)
{
    static const uint64_t word = 12345;
    struct puppet puppet;

    suite_needs_dial(suite);
    puppet = open_reader_of(suite, protocol, slice_bytes);
    assert_true(invite(&puppet, &word, word));
    return puppet;
}

static struct puppet open_reading(struct suite *suite, const char *protocol)
{
    return suite_open_reading(suite, protocol, SLICE);
}

static void hostile_invitations(void **state)
{
    struct suite *suite = *state;
    struct puppet puppet;
    uint64_t word = 12345;
    char bytes[4096];
    const void *body;

    suite_needs_dial(suite);
    puppet = open_reader(suite, "inline"); /* nobody wants to read here */
    assert_int_equal(refer_to_foreign(&puppet, bytes, &body), KOLO_E_PROTOCOL);
    assert_false(invite(&puppet, &word, word));
    suite_close_puppet(&puppet);
    puppet = open_reader(suite, "cma");
    assert_false(invite(&puppet, NULL, word)); /* not yet */
    assert_false(invite(&puppet, &word, word + 1));
    assert_false(invite(&puppet, &word, word)); /* once only */
    assert_int_equal(refer_to_foreign(&puppet, bytes, &body), KOLO_E_PROTOCOL);
    suite_close_puppet(&puppet);
    puppet = open_reader(suite, "cma");
    assert_false(invite(&puppet, (const uint64_t *)8, word));
    suite_close_puppet(&puppet);
    puppet = open_reader(suite, "cma");
    assert_true(invite(&puppet, &word, word)); /* this process is its own peer */
    assert_int_equal(refer_to_foreign(&puppet, bytes, &body), KOLO_OK);
    suite_close_puppet(&puppet);
}

/* Slices of nbytes come, of which each is such a sample, until the link's window says what is to be
 * done with those of their length. */
static void take(const struct puppet *puppet, uint32_t nbytes, struct ko_foreign_sample sample)
{
    enum { ENOUGH = 40 };

    for (int i = 0; i < ENOUGH; i++) {
        puppet->link->frame = (struct ko_frame){
            .kind = sample.is_read ? KO_FRAME_FOREIGN : KO_FRAME_DATA, .nbytes = nbytes};
        puppet->link->next_in->placed.copy_ns = (uint64_t)sample.copy_ns;
        if (ko_foreign_is_watched(puppet->link))
            ko_foreign_judge(puppet->link, &sample);
    }
}

static struct ko_foreign_sample copied(int64_t ns, int64_t copy_ns, int64_t gap_ns)
{
    return (struct ko_foreign_sample){.ns = ns, .copy_ns = copy_ns, .gap_ns = gap_ns};
}

static struct ko_foreign_sample been_read_after(int64_t ns, int64_t gap_ns)
{
    return (struct ko_foreign_sample){.is_read = true, .ns = ns, .gap_ns = gap_ns};
}

static struct ko_foreign_sample been_read(int64_t ns)
{
    return been_read_after(ns, 0);
}

/* Whether the link's window says that it is known, sooner, faster. */
static void expect_said(const struct puppet *puppet, int class, bool known, bool sooner,
                        bool faster)
{
    const uint64_t reading = puppet->link->inbox->reading;

    assert_true(reading & KO_FOREIGN_READS);
    assert_int_equal(ko_foreign_says(reading, KO_FOREIGN_KNOWN, class), known);
    assert_int_equal(ko_foreign_says(reading, KO_FOREIGN_SOONER, class), sooner);
    assert_int_equal(ko_foreign_says(reading, KO_FOREIGN_FASTER, class), faster);
}

/* Of a slice in pieces the longer copy and that of the first piece are waited for, of one that is
 * not both copies; or those of one and of the next are made at a time. */
static void reading_is_measured(void **state)
{
    enum { FAR = 1000000 };
    struct suite *suite = *state;
    struct puppet puppet;
    const uint64_t word = 12345;

    suite_needs_dial(suite);
    puppet = open_reader(suite, "try-cma");
    take(&puppet, 8192, copied(1000, 1000, FAR)); /* nobody reads yet */
    assert_true(invite(&puppet, &word, word));
    take(&puppet, 8192, been_read(1499));
    expect_said(&puppet, 0, false, false, false);  /* before it has been compared */
    take(&puppet, 12288, copied(1500, 1500, FAR)); /* as long for a byte */
    expect_said(&puppet, 0, true, true, false);
    take(&puppet, 8192, been_read(9)); /* it is known */
    expect_said(&puppet, 0, true, true, false);
    take(&puppet, 8191, copied(1000, 1000, FAR)); /* too short */
    take(&puppet, 16384, copied(0, 1000, FAR));   /* not measured */
    take(&puppet, 16384, copied(1000, 0, FAR));
    take(&puppet, 16384, copied(1000, -1, FAR)); /* as nobody measures */
    take(&puppet, 16384, copied(1000, INT64_MAX, FAR));
    take(&puppet, 16384, been_read(1501));
    expect_said(&puppet, 1, false, false, false);
    take(&puppet, 16384, copied(1000, 1000, FAR));
    expect_said(&puppet, 1, true, false, false);
    take(&puppet, 32768, been_read(2999));
    take(&puppet, 32768, copied(1000, 3000, FAR)); /* the longer copy alone takes longer */
    expect_said(&puppet, 2, true, true, true);
    take(&puppet, 65536, been_read(3900));
    take(&puppet, 65536, copied(1000, 3000, 2999)); /* and with what goes on beside it */
    expect_said(&puppet, 3, true, false, true);
    take(&puppet, 131072, been_read(1249));
    take(&puppet, 131072, copied(1000, 1000, FAR));
    expect_said(&puppet, 4, true, true, false);
    puppet.link->flow = KO_MUTUAL;
    take(&puppet, 8192,
         been_read_after(900, 101)); /* and so is what is between two that are read */
    take(&puppet, 8192, copied(1000, 999, FAR));
    expect_said(&puppet, KO_FOREIGN_LENGTHS, true, true, false);
    take(&puppet, 16384, been_read_after(900, 99));
    take(&puppet, 16384, copied(1000, 999, FAR));
    expect_said(&puppet, KO_FOREIGN_LENGTHS + 1, true, true, true);
    take(&puppet, 32768, been_read_after(900, 450)); /* it was not there sooner */
    take(&puppet, 32768, copied(1000, 999, FAR));
    expect_said(&puppet, KO_FOREIGN_LENGTHS + 2, true, true, true);
    puppet.link->flow = KO_FOLDED;
    take(&puppet, 8192, been_read(2001));
    take(&puppet, 8192, copied(1000, 1000, FAR));
    expect_said(&puppet, 2 * KO_FOREIGN_LENGTHS, true, false, false);
    take(&puppet, 131072, been_read(1999));
    take(&puppet, 131072, copied(1000, 1000, FAR));
    expect_said(&puppet, 2 * KO_FOREIGN_LENGTHS + 4, true, true, false);
    puppet.link->flow = KO_ADDED;
    take(&puppet, 131072, been_read(2001));
    take(&puppet, 131072, copied(1000, 1000, FAR));
    expect_said(&puppet, 3 * KO_FOREIGN_LENGTHS + 4, true, false, false);
    take(&puppet, 16384, been_read(1999));
    take(&puppet, 16384, copied(1000, 1000, FAR));
    expect_said(&puppet, 3 * KO_FOREIGN_LENGTHS + 1, true, true, false);
    puppet.link->flow = KO_MUTUAL;
    take(&puppet, UINT32_MAX, been_read(INT32_MAX));
    take(&puppet, UINT32_MAX, copied(INT32_MAX - 1, INT32_MAX - 1, INT64_MAX));
    expect_said(&puppet, KO_FOREIGN_LENGTHS + 4, true, true, false);
    suite_close_puppet(&puppet);
}

/* What was decided long ago is looked at again. */
static void it_is_measured_again(void **state)
{
    const ko_deadline limit = ko_deadline_in(10000);
    struct suite *suite = *state;
    struct puppet puppet;

    puppet = open_reading(suite, "try-cma");
    take(&puppet, 8192, been_read(1000));
    take(&puppet, 8192, copied(1000, 1000, 10000));
    expect_said(&puppet, 0, true, true, false);
    while (ko_foreign_says(puppet.link->inbox->reading, KO_FOREIGN_KNOWN, 0) &&
           !ko_deadline_passed(&limit))
        take(&puppet, 8192, been_read(3000));
    expect_said(&puppet, 0, false, false, false);
    take(&puppet, 8192, been_read(3000));
    take(&puppet, 8192, copied(1000, 1000, 10000));
    expect_said(&puppet, 0, true, false, false);
    suite_close_puppet(&puppet);
}

/* How many of so many slices are left to be read. */
static int count_left(struct ko_link *link, enum ko_flow flow, size_t nbytes, int nslices)
{
    int nleft = 0;

    link->flow = flow;
    for (int i = 0; i < nslices; i++)
        nleft += ko_foreign_is_due(link, nbytes);
    return nleft;
}

static void slices_are_left_where_that_saves_time(void **state)
{
    enum { CLASS_1 = 16384 };
    const uint64_t bits = UINT64_C(2) | UINT64_C(2) << KO_FOREIGN_LENGTHS |
                          UINT64_C(2) << (2 * KO_FOREIGN_LENGTHS) | /* both ways, and reduced, */
                          UINT64_C(2) << (3 * KO_FOREIGN_LENGTHS);  /* and one way, too */
    const uint64_t known = KO_FOREIGN_READS | bits << KO_FOREIGN_KNOWN;
    struct suite *suite = *state;
    struct puppet puppet;
    struct ko_link *link;
    uint64_t *reading;

    suite_needs_dial(suite);
    puppet = open_reader(suite, "try-cma");
    link = puppet.link;
    reading = &link->outbox->reading;
    assert_false(ko_foreign_may_be_due(link, CLASS_1));
    assert_int_equal(count_left(link, KO_MUTUAL, CLASS_1, 4), 0);
    *reading = KO_FOREIGN_READS;
    assert_true(ko_foreign_may_be_due(link, CLASS_1));
    assert_int_equal(count_left(link, KO_USED, CLASS_1, 64), 0);    /* they are not only moved */
    assert_int_equal(count_left(link, KO_STREAM, CLASS_1, 64), 32); /* to find out */
    *reading = known | bits << KO_FOREIGN_SOONER;
    assert_true(ko_foreign_may_be_due(link, CLASS_1));
    assert_int_equal(count_left(link, KO_MUTUAL, CLASS_1, 4), 4);
    assert_int_equal(count_left(link, KO_FOLDED, CLASS_1, 4), 4);
    assert_int_equal(count_left(link, KO_ADDED, CLASS_1, 4), 4);
    assert_int_equal(count_left(link, KO_AWAITED, CLASS_1, 4), 4);
    assert_int_equal(count_left(link, KO_STREAM, CLASS_1, 4), 0);
    assert_int_equal(count_left(link, KO_MUTUAL, KO_FOREIGN_LEAST - 1, 4), 0);
    *reading = known;
    assert_false(ko_foreign_may_be_due(link, CLASS_1));
    assert_int_equal(count_left(link, KO_MUTUAL, CLASS_1, 4), 0);
    *reading = known | bits << KO_FOREIGN_FASTER;
    assert_int_equal(count_left(link, KO_STREAM, CLASS_1, 4), 4);
    assert_int_equal(count_left(link, KO_AWAITED, CLASS_1, 4), 0);
    assert_int_equal(count_left(link, KO_USED, CLASS_1, 4), 0);
    suite_close_puppet(&puppet);
    puppet = open_reader(suite, "cma");
    assert_int_equal(count_left(puppet.link, KO_USED, CLASS_1, 4), 0);
    puppet.link->outbox->reading = known;
    assert_int_equal(count_left(puppet.link, KO_USED, CLASS_1, 4), 4); /* whatever it costs */
    suite_close_puppet(&puppet);
}

/* Leaves one slice of `byte` for the peer, whose end is ours to play; its state is there. */
static uint64_t *leave(const struct puppet *puppet, unsigned char *bytes, int byte)
{
    struct ko_link *link = puppet->link;
    struct ko_slot *slot = link->next_out;

    memset(bytes, byte, KO_FOREIGN_LEAST);
    assert_int_equal(
        link->ops->post(link, &(const struct ko_stamp){.seq = 1}, bytes, KO_FOREIGN_LEAST),
        KOLO_OK);
    assert_int_equal(slot->frame.kind, KO_FRAME_FOREIGN);
    assert_int_equal(slot->foreign.address, (uintptr_t)bytes);
    assert_int_equal(slot->foreign.state, KO_FOREIGN_FREE);
    assert_int_equal(ko_link_is_flushed(link), KO_AGAIN);
    return &slot->foreign.state;
}

/* The place of a slice, which has been moved there. */
static void expect_moved(const struct ko_link *link, const uint64_t *state, int byte)
{
    const struct ko_foreign_slice *slice =
        (const void *)((const char *)state - offsetof(struct ko_foreign_slice, state));
    const unsigned char *body = ko_window_body(link->outbox, link->slots, slice->at);

    assert_int_equal(*state, KO_FOREIGN_MOVED);
    for (size_t i = 0; i < KO_FOREIGN_LEAST; i++)
        assert_int_equal(body[i], byte);
}

static struct puppet open_left(struct suite *suite)
{
    struct puppet puppet = open_reader_of(suite, "cma", KO_FOREIGN_LEAST);

    puppet.link->outbox->reading = KO_FOREIGN_READS;
    return puppet;
}

/* What follows a slice that was left is left as well, while that is known to be best. */
static void what_follows_is_left_with_it(void **state)
{
    const uint64_t sooner =
        KO_FOREIGN_READS | UINT64_C(1) << KO_FOREIGN_KNOWN | UINT64_C(1) << KO_FOREIGN_SOONER;
    const struct ko_stamp stamp = {.seq = 1};
    struct suite *suite = *state;
    struct puppet puppet;
    struct ko_link *link;
    unsigned char bytes[3][KO_FOREIGN_LEAST];
    uint64_t *first;

    suite_needs_dial(suite);
    puppet = open_left(suite);
    link = puppet.link;
    assert_false(ko_window_leave(link, &stamp, bytes[0], KO_FOREIGN_LEAST)); /* none was left */
    assert_false(ko_link_is_read(link));
    first = leave(&puppet, bytes[0], 1);
    assert_false(ko_window_leave(link, &stamp, bytes[1], KO_FOREIGN_LEAST - 1));
    assert_true(ko_window_leave(link, &stamp, bytes[1], KO_FOREIGN_LEAST));
    assert_int_equal(link->sent, 2);
    assert_false(ko_window_leave(link, &stamp, bytes[2], KO_FOREIGN_LEAST)); /* no slot is free */
    assert_false(ko_link_is_read(link));
    *first = KO_FOREIGN_READING;
    assert_true(ko_link_is_read(link));
    *first = KO_FOREIGN_READ;
    link->outbox->credit = 2;
    assert_false(ko_link_is_read(link));
    suite_close_puppet(&puppet);
    puppet = open_reader_of(suite, "try-cma", KO_FOREIGN_LEAST);
    link = puppet.link;
    link->outbox->reading = sooner;
    link->flow = KO_AWAITED;
    leave(&puppet, bytes[0], 1);
    link->outbox->reading = KO_FOREIGN_READS; /* it is to be found out again */
    assert_false(ko_window_leave(link, &stamp, bytes[1], KO_FOREIGN_LEAST));
    link->outbox->reading = sooner;
    assert_true(ko_window_leave(link, &stamp, bytes[1], KO_FOREIGN_LEAST));
    ko_link_take_back(link);
    assert_int_equal(count_left(link, KO_AWAITED, KO_FOREIGN_LEAST, 4), 3); /* it was late once */
    suite_close_puppet(&puppet);
}

/* Who is about to sleep, or has waited for long, has his memory back, unless it is being read. */
static void what_nobody_reads_is_taken_back(void **state)
{
    struct suite *suite = *state;
    struct puppet puppet;
    unsigned char bytes[3][KO_FOREIGN_LEAST];
    uint64_t *first, *second, *third;

    suite_needs_dial(suite);
    puppet = open_left(suite);
    first = leave(&puppet, bytes[0], 1);
    second = leave(&puppet, bytes[1], 2);
    *first = KO_FOREIGN_READING;
    ko_link_take_back(puppet.link);
    assert_int_equal(*second, KO_FOREIGN_FREE); /* the peer comes to it */
    assert_int_equal(ko_link_is_flushed(puppet.link), KO_AGAIN);
    *first = KO_FOREIGN_UNREADABLE; /* it could not, and sleeps */
    puppet.link->outbox->receiver_sleeps = 1;
    ko_link_take_back(puppet.link);
    assert_int_equal(puppet.link->outbox->receiver_sleeps, 0); /* it has been rung for */
    expect_moved(puppet.link, first, 1);
    expect_moved(puppet.link, second, 2);
    assert_int_equal(ko_link_is_flushed(puppet.link), KOLO_OK);
    puppet.link->outbox->credit = 2;
    third = leave(&puppet, bytes[2], 3);
    while (ko_link_is_flushed(puppet.link)) /* which ends */
        ;
    expect_moved(puppet.link, third, 3);
    suite_close_puppet(&puppet);
}

/* A peer who reads nothing of several is no reader. */
static void who_cannot_read_is_left_nothing(void **state)
{
    enum { MOST = 4 };
    struct suite *suite = *state;
    struct puppet puppet;
    unsigned char bytes[KO_FOREIGN_LEAST];

    suite_needs_dial(suite);
    puppet = open_left(suite);
    for (int i = 0; i < MOST; i++) {
        *leave(&puppet, bytes, i) = KO_FOREIGN_UNREADABLE;
        ko_link_take_back(puppet.link);
        puppet.link->outbox->credit++;
    }
    assert_false(ko_foreign_may_be_due(puppet.link, KO_FOREIGN_LEAST));
    assert_int_equal(count_left(puppet.link, KO_MUTUAL, KO_FOREIGN_LEAST, 4), 0);
    suite_close_puppet(&puppet);
}

static void *read_soon(void *state)
{
    ranks_nap_ms(20);
    ko_store_release(state, KO_FOREIGN_READ);
    return NULL;
}

/* Who gives up leaves nothing that may be read any more, when a reader here has come to an end. */
static void what_is_left_is_withdrawn(void **state)
{
    struct suite *suite = *state;
    struct puppet puppet;
    unsigned char bytes[4][KO_FOREIGN_LEAST];
    uint64_t *lefts[4];
    pthread_t reader;

    suite_needs_dial(suite);
    puppet = open_left(suite);
    for (int i = 0; i < 4; i++) {
        lefts[i] = leave(&puppet, bytes[i], i);
        puppet.link->outbox->credit += i < 2; /* there are two slots */
    }
    ko_foreign_withdraw(puppet.link);
    assert_ptr_equal(lefts[2], lefts[0]);
    assert_int_equal(*lefts[2], KO_FOREIGN_WITHDRAWN);
    assert_int_equal(*lefts[3], KO_FOREIGN_WITHDRAWN);
    *lefts[2] = KO_FOREIGN_MOVED;
    *lefts[3] = KO_FOREIGN_READING;
    assert_int_equal(pthread_create(&reader, NULL, read_soon, lefts[3]), 0);
    ko_foreign_withdraw(puppet.link);
    assert_int_equal(pthread_join(reader, NULL), 0);
    assert_int_equal(*lefts[2], KO_FOREIGN_MOVED);
    assert_int_equal(*lefts[3], KO_FOREIGN_WITHDRAWN); /* or it would be READ */
    puppet.link->outbox->credit = 3;
    *lefts[2] = *lefts[3] = KO_FOREIGN_FREE;
    ko_foreign_withdraw(puppet.link);
    assert_int_equal(*lefts[2], KO_FOREIGN_FREE); /* which the peer has released */
    assert_int_equal(*lefts[3], KO_FOREIGN_WITHDRAWN);
    suite_close_puppet(&puppet);
}

/* What the peer writes into its window moves no memory of ours but what we left there. */
static void hostile_readers(void **state)
{
    struct suite *suite = *state;
    struct puppet puppet;
    unsigned char bytes[KO_FOREIGN_LEAST];
    uint64_t *left;

    suite_needs_dial(suite);
    puppet = open_left(suite);
    left = leave(&puppet, bytes, 1);
    *left = 77;
    ko_link_take_back(puppet.link);
    assert_int_equal(*left, 77); /* it is waited for, with a deadline */
    assert_int_equal(ko_link_is_flushed(puppet.link), KO_AGAIN);
    ((struct ko_foreign_slice *)(void *)((char *)left - offsetof(struct ko_foreign_slice, state)))
        ->at = UINT64_MAX;
    *left = KO_FOREIGN_FREE;
    ko_link_take_back(puppet.link);
    assert_int_equal(*left, KO_FOREIGN_MOVED); /* to where it was to be */
    assert_int_equal(ko_link_is_flushed(puppet.link), KOLO_OK);
    suite_close_puppet(&puppet);
}

/* A slice that its sender has had back lies in its place; one in a state that there is not lies
 * nowhere. */
static void taking_what_was_left(void **state)
{
    struct ko_foreign_slice slice = {0, 64, KO_FOREIGN_MOVING};
    struct suite *suite = *state;
    struct puppet puppet;
    const void *body;

    puppet = open_reading(suite, "cma");
    assert_int_equal(suite_refer(&puppet, KO_FRAME_FOREIGN, &slice, sizeof slice, &body), KO_AGAIN);
    puppet.link->next_in->foreign.state = KO_FOREIGN_MOVED;
    assert_int_equal(puppet.link->ops->peek(puppet.link, &body), KOLO_OK);
    assert_ptr_equal(body, ko_window_body(puppet.link->inbox, 2, 64));
    puppet.link->next_in->foreign.at = UINT64_MAX;
    assert_int_equal(puppet.link->ops->peek(puppet.link, &body), KOLO_E_PROTOCOL);
    puppet.link->next_in->foreign.state = KO_FOREIGN_WITHDRAWN;
    assert_int_equal(puppet.link->ops->peek(puppet.link, &body), KO_AGAIN);
    puppet.link->next_in->foreign.state = KO_FOREIGN_WITHDRAWN + 1;
    assert_int_equal(puppet.link->ops->peek(puppet.link, &body), KOLO_E_PROTOCOL);
    suite_close_puppet(&puppet);
}

#define CASE(name)              \
    {                           \
        "foreign: " #name, name \
    }
const struct suite_case suite_foreign_cases[] = {CASE(hostile_invitations),
                                                 CASE(reading_is_measured),
                                                 CASE(it_is_measured_again),
                                                 CASE(slices_are_left_where_that_saves_time),
                                                 CASE(what_follows_is_left_with_it),
                                                 CASE(what_nobody_reads_is_taken_back),
                                                 CASE(who_cannot_read_is_left_nothing),
                                                 CASE(what_is_left_is_withdrawn),
                                                 CASE(hostile_readers),
                                                 CASE(taking_what_was_left)};
const size_t suite_nforeign_cases = sizeof suite_foreign_cases / sizeof *suite_foreign_cases;
