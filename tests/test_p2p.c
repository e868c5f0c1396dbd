/* SPDX-License-Identifier: MIT
 *
 * Point to point: matching by tag, sizes around the slots, both orders of posting, messages that
 * nobody waits for yet, threads, the courier, and every way in which it can fail.
 */
#include "clock.h"
#include "kolo.h"
#include "ranks.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { SLICE_BYTES = 256, SLOTS = 2, ALL_SLOTS = SLICE_BYTES * SLOTS };

static void set_variables(const char *transport, bool has_small_slots)
{
    char slice[16], slots[16];

    snprintf(slice, sizeof slice, "%d", SLICE_BYTES);
    snprintf(slots, sizeof slots, "%d", SLOTS);
    setenv("KOLO_TRANSPORT", transport, 1);
    setenv("KOLO_DEBUG", "NONE", 1);
    if (has_small_slots) {
        setenv("KOLO_SLICE_BYTES", slice, 1);
        setenv("KOLO_SLOTS", slots, 1);
    } else {
        unsetenv("KOLO_SLICE_BYTES");
        unsetenv("KOLO_SLOTS");
    }
}

/* The body on n ranks: threads and processes, shm and tcp. */
static void run_all_ways(int n, ranks_body body)
{
    static const char *const transports[] = {"shm", "tcp"};

    for (int i = 0; i < 2; i++) {
        set_variables(transports[i], true);
        assert_int_equal(ranks_run(&(struct ranks){.kind = RANKS_THREADS, .n = n}, body, NULL), 0);
        assert_int_equal(ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = n}, body, NULL),
                         0);
    }
}

static void nap_ms(int ms)
{
    const struct timespec nap = {ms / 1000, ms % 1000 * 1000000L};

    nanosleep(&nap, NULL);
}

/* The bytes of message `id`. */
static unsigned char *letter(size_t nbytes, unsigned id)
{
    unsigned char *bytes = malloc(nbytes + 1);

    if (!bytes)
        abort();
    for (size_t i = 0; i < nbytes; i++)
        bytes[i] = (unsigned char)(i * 7 + id * 31 + (i >> 8));
    return bytes;
}

static bool is_letter(const unsigned char *bytes, size_t nbytes, unsigned id)
{
    for (size_t i = 0; i < nbytes; i++)
        if (bytes[i] != (unsigned char)(i * 7 + id * 31 + (i >> 8)))
            return false;
    return true;
}

static int post(kolo_group *group, size_t nbytes, unsigned id, int to, int tag)
{
    unsigned char *bytes = letter(nbytes, id);
    int err = kolo_send(group, bytes, nbytes, KOLO_UINT8, to, tag);

    free(bytes);
    return err ? ranks_fail("send of %zu bytes to %d, tag %d", nbytes, to, tag) : 0;
}

/* Receives with some room to spare, which must stay as it is. */
static int take(kolo_group *group, size_t nbytes, unsigned id, int from, int tag)
{
    unsigned char *bytes = malloc(nbytes + 9);
    int failed = 0;

    if (!bytes)
        abort();
    memset(bytes, 0x5a, nbytes + 9);
    if (kolo_recv(group, bytes, nbytes + 9, KOLO_UINT8, from, tag))
        failed = ranks_fail("recv of %zu bytes from %d, tag %d", nbytes, from, tag);
    else if (!is_letter(bytes, nbytes, id))
        failed = ranks_fail("%zu bytes of tag %d from %d came wrong", nbytes, tag, from);
    for (size_t i = 0; i < 9 && !failed; i++)
        if (bytes[nbytes + i] != 0x5a)
            failed = ranks_fail("the rest of the buffer was touched");
    free(bytes);
    return failed;
}

/* ---- matching -----------------------------------------------------------------------------------
 */

static const size_t sizes[] = {0,
                               1,
                               SLICE_BYTES - 1,
                               SLICE_BYTES,
                               SLICE_BYTES + 1,
                               ALL_SLOTS - 1,
                               ALL_SLOTS,
                               ALL_SLOTS + 1,
                               10007,
                               300000};
enum { NSIZES = sizeof sizes / sizeof *sizes };

/* Around the ring in order, every size; the even ranks send first. */
static int pass_around(kolo_group *group, void *argument)
{
    const int n = kolo_group_size(group), rank = kolo_group_rank(group);
    const int next = (rank + 1) % n, prev = (rank + n - 1) % n;
    int failed = 0;

    (void)argument;
    for (unsigned i = 0; i < NSIZES && !failed; i++) {
        if (rank % 2 == 0)
            failed = post(group, sizes[i], i, next, (int)i);
        failed = failed ? failed : take(group, sizes[i], i, prev, (int)i);
        if (!failed && rank % 2)
            failed = post(group, sizes[i], i, next, (int)i);
    }
    return failed;
}

static void messages_of_every_size_arrive(void **state)
{
    (void)state;
    run_all_ways(2, pass_around);
    run_all_ways(4, pass_around);
}

enum { NTAGS = 12 };

/* Sends tags 0.. in order; the receiver asks for them in another, so that most wait as parcels; of
 * each tag two messages, in order. */
static int shuffle_tags(kolo_group *group, void *argument)
{
    const size_t step = 131;
    int failed = 0;

    (void)argument;
    if (kolo_group_rank(group) == 0) {
        for (int i = 0; i < 2 * NTAGS && !failed; i++)
            failed = post(group, (size_t)i * step, (unsigned)i, 1, i % NTAGS);
        return failed ? failed : take(group, 3, 99, 1, 7);
    }
    for (int i = 0; i < 2 * NTAGS && !failed; i++) {
        int tag = i * 5 % NTAGS, id = i < NTAGS ? tag : tag + NTAGS;

        failed = take(group, (size_t)id * step, (unsigned)id, 0, tag);
    }
    return failed ? failed : post(group, 3, 99, 0, 7);
}

static void tags_come_in_any_order(void **state)
{
    (void)state;
    run_all_ways(2, shuffle_tags);
}

/* Receives posted first, in an order of their own; and sends whose works are waited for backwards.
 */
static int post_all_ahead(kolo_group *group, void *argument)
{
    const int rank = kolo_group_rank(group);
    unsigned char *in[NSIZES], *out[NSIZES];
    kolo_work *works[2 * NSIZES];
    int failed = 0;

    (void)argument;
    for (unsigned i = 0; i < NSIZES; i++) {
        unsigned tag = i * 3 % NSIZES;

        in[tag] = calloc(1, sizes[tag] + 1);
        failed |= kolo_irecv(group, in[tag], sizes[tag], KOLO_UINT8, 1 - rank, (int)tag, &works[i]);
    }
    if (rank)
        nap_ms(30);
    for (unsigned i = 0; i < NSIZES; i++) {
        out[i] = letter(sizes[i], i);
        failed |=
            kolo_isend(group, out[i], sizes[i], KOLO_UINT8, 1 - rank, (int)i, &works[NSIZES + i]);
    }
    for (unsigned i = 2 * NSIZES; i-- > 0;) {
        failed |= kolo_work_wait(works[i], -1) || *kolo_work_error(works[i]);
        kolo_work_free(works[i]);
    }
    for (unsigned i = 0; i < NSIZES; i++) {
        if (!failed && !is_letter(in[i], sizes[i], i))
            failed = ranks_fail("message %u is wrong", i);
        free(in[i]);
        free(out[i]);
    }
    return failed ? ranks_fail("post_all_ahead") : 0;
}

static void receives_may_be_posted_first(void **state)
{
    (void)state;
    run_all_ways(2, post_all_ahead);
}

/* A rank sends to itself: send first, or receive first; larger than the slots too. */
static int talk_to_oneself(kolo_group *group, void *argument)
{
    const int rank = kolo_group_rank(group);
    unsigned char *bytes = calloc(1, 5000), *sent = letter(5000, 3);
    kolo_work *work, *other;
    int failed = 0;

    (void)argument;
    failed |= kolo_isend(group, sent, 5000, KOLO_UINT8, rank, 1, &work);
    failed |= kolo_recv(group, bytes, 5000, KOLO_UINT8, rank, 1);
    failed |= !is_letter(bytes, 5000, 3);
    failed |= kolo_work_wait(work, -1);
    kolo_work_free(work);
    memset(bytes, 0, 5000);
    failed |= kolo_irecv(group, bytes, 5000, KOLO_UINT8, rank, 2, &work);
    failed |= kolo_isend(group, NULL, 0, KOLO_FLOAT32, rank, 3, &other);
    failed |= kolo_send(group, sent, 5000, KOLO_UINT8, rank, 2);
    failed |= kolo_work_wait(work, -1) || !is_letter(bytes, 5000, 3);
    failed |= kolo_recv(group, NULL, 0, KOLO_FLOAT32, rank, 3);
    kolo_work_free(work);
    kolo_work_free(other);
    free(bytes);
    free(sent);
    return failed ? ranks_fail("talk_to_oneself") : 0;
}

static void a_rank_may_send_to_itself(void **state)
{
    (void)state;
    run_all_ways(1, talk_to_oneself);
    run_all_ways(2, talk_to_oneself);
}

/* A message that is arriving as a parcel gets its receive meanwhile. */
static int receive_in_the_middle(kolo_group *group, void *argument)
{
    int failed;

    (void)argument;
    if (kolo_group_rank(group) == 0) {
        unsigned char *large = letter(200000, 1);
        kolo_work *work;

        failed = kolo_isend(group, large, 200000, KOLO_UINT8, 1, 1, &work);
        failed |= take(group, 0, 0, 1, 5);
        failed |= kolo_work_wait(work, -1);
        kolo_work_free(work);
        free(large);
        return failed | post(group, 4, 2, 1, 2);
    }
    nap_ms(20);
    failed = post(group, 0, 0, 0, 5); /* takes in what has come of the large one */
    failed |= take(group, 200000, 1, 0, 1);
    return failed | take(group, 4, 2, 0, 2);
}

static void a_message_finds_its_receive_while_arriving(void **state)
{
    (void)state;
    run_all_ways(2, receive_in_the_middle);
}

/* ---- threads ------------------------------------------------------------------------------------
 */

struct clerk {
    pthread_t thread;
    kolo_group *group;
    int tag;
    int failed;
};

/* Sends and receives on a tag of its own. */
static void *clerk_main(void *argument)
{
    struct clerk *clerk = argument;
    const int peer = 1 - kolo_group_rank(clerk->group);

    for (unsigned i = 0; i < 40 && !clerk->failed; i++) {
        size_t nbytes = (size_t)(i * 61 + (unsigned)clerk->tag * 17);

        if (kolo_group_rank(clerk->group) == 0)
            clerk->failed = post(clerk->group, nbytes, i, peer, clerk->tag) ||
                            take(clerk->group, nbytes + 1, i, peer, clerk->tag);
        else
            clerk->failed = take(clerk->group, nbytes, i, peer, clerk->tag) ||
                            post(clerk->group, nbytes + 1, i, peer, clerk->tag);
    }
    return NULL;
}

static int employ_clerks(kolo_group *group, void *argument)
{
    struct clerk clerks[3];
    int failed = 0;

    (void)argument;
    for (int i = 0; i < 3; i++) {
        clerks[i] = (struct clerk){.group = group, .tag = i};
        if (pthread_create(&clerks[i].thread, NULL, clerk_main, &clerks[i]))
            abort();
    }
    for (int i = 0; i < 5; i++) /* collectives meanwhile */
        failed |= kolo_barrier(group);
    for (int i = 0; i < 3; i++) {
        pthread_join(clerks[i].thread, NULL);
        failed |= clerks[i].failed;
    }
    return failed;
}

static void threads_of_one_rank_wait_at_once(void **state)
{
    (void)state;
    run_all_ways(2, employ_clerks);
}

/* ---- in the background --------------------------------------------------------------------------
 */

enum { MUCH = 8 << 20 };

/* Rank 0 begins a send and then does not call kolo until rank 1 has written to the store. */
static int leave_it_to_the_courier(kolo_group *group, void *argument)
{
    unsigned char *bytes = letter(MUCH, 5);
    kolo_work *work;
    int failed = 0, done = 0;

    (void)argument;
    if (kolo_group_rank(group) == 0) {
        int64_t until;

        failed = kolo_isend(group, bytes, MUCH, KOLO_UINT8, 1, 0, &work);
        for (until = ko_now_ns() + 400000000; ko_now_ns() < until;)
            nap_ms(50); /* stands for computing */
        failed |= kolo_work_test(work, &done);
        if (!done) /* a slow machine may need longer */
            failed |= kolo_work_wait(work, -1);
        kolo_work_free(work);
        failed |= take(group, 1, 1, 1, 1);
    } else {
        int64_t began = ko_now_ns();

        memset(bytes, 0, MUCH);
        failed = kolo_recv(group, bytes, MUCH, KOLO_UINT8, 0, 0) || !is_letter(bytes, MUCH, 5);
        if (!failed && ko_now_ns() - began > (int64_t)15000 * 1000000)
            failed = ranks_fail("nobody carried the message");
        failed |= post(group, 1, 1, 0, 1);
    }
    free(bytes);
    return failed ? ranks_fail("courier") : 0;
}

static void large_sends_go_on_in_the_background(void **state)
{
    (void)state;
    set_variables("shm", false);
    assert_int_equal(
        ranks_run(&(struct ranks){.kind = RANKS_THREADS, .n = 2}, leave_it_to_the_courier, NULL),
        0);
    assert_int_equal(
        ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = 2}, leave_it_to_the_courier, NULL),
        0);
    set_variables("tcp", false);
    assert_int_equal(
        ranks_run(&(struct ranks){.kind = RANKS_THREADS, .n = 2}, leave_it_to_the_courier, NULL),
        0);
    assert_int_equal(
        ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = 2}, leave_it_to_the_courier, NULL),
        0);
}

/* wait(timeout) keeps to its time and leaves the work running; test says nothing yet. */
static int wait_in_vain(kolo_group *group, void *argument)
{
    unsigned char bytes[8] = {0};
    kolo_work *work;
    int64_t began;
    int done = 1, waited_ms, failed = 0;

    (void)argument;
    if (kolo_group_rank(group) == 1)
        return take(group, 0, 0, 0, 9) || post(group, 8, 4, 0, 1) || take(group, 0, 0, 0, 9);
    if (kolo_irecv(group, bytes, 8, KOLO_UINT8, 1, 1, &work))
        return ranks_fail("irecv");
    began = ko_now_ns();
    if (kolo_work_wait(work, 60) != KOLO_E_TIMEOUT ||
        !strstr(kolo_last_error(), "not done within 60 ms; it goes on"))
        failed = ranks_fail("the wait did not give up");
    waited_ms = (int)((ko_now_ns() - began) / 1000000);
    if (waited_ms < 60 || waited_ms > 200)
        failed = ranks_fail("a wait of 60 ms took %d ms", waited_ms);
    if (kolo_work_test(work, &done) || done)
        failed = ranks_fail("test says that it is done");
    failed |= post(group, 0, 0, 1, 9);
    while (!failed && !done)
        failed = kolo_work_test(work, &done) ? ranks_fail("test") : 0;
    kolo_work_free(work);
    if (!failed && !is_letter(bytes, 8, 4))
        failed = ranks_fail("the message is wrong");
    return failed | post(group, 0, 0, 1, 9);
}

static void a_wait_that_gives_up_leaves_the_work_running(void **state)
{
    (void)state;
    run_all_ways(2, wait_in_vain);
}

/* Freed before it is done: free waits. */
static int free_early(kolo_group *group, void *argument)
{
    unsigned char *bytes = letter(100000, 6);
    kolo_work *work;
    int failed;

    (void)argument;
    if (kolo_group_rank(group) == 0) {
        failed = kolo_isend(group, bytes, 100000, KOLO_UINT8, 1, 0, &work);
        kolo_work_free(work);
    } else {
        nap_ms(30);
        failed = take(group, 100000, 6, 0, 0);
    }
    free(bytes);
    return failed;
}

static void freeing_a_work_waits_for_it(void **state)
{
    (void)state;
    run_all_ways(2, free_early);
}

/* ---- errors -------------------------------------------------------------------------------------
 */

static int expect(int err, int code, const char *text)
{
    if (err != code || !strstr(kolo_last_error(), text))
        return ranks_fail("status %d instead of %d with \"%s\"", err, code, text);
    return 0;
}

/* Too long a message, or of another dtype, is that receive's error, and nobody else's. */
static int misfit(kolo_group *group, void *argument)
{
    unsigned char room[40];
    float floats[3] = {0};
    int failed = 0;

    (void)argument;
    memset(room, 0x5a, sizeof room);
    if (kolo_group_rank(group) == 0) {
        failed = post(group, 41, 1, 1, 1) || post(group, 3000, 2, 1, 2) || post(group, 12, 3, 1, 3);
        return failed || post(group, 12, 4, 1, 4) || take(group, 2, 9, 1, 0);
    }
    nap_ms(20);
    failed |= expect(kolo_recv(group, room, 40, KOLO_UINT8, 0, 2), KOLO_E_TRUNCATED,
                     "the message of tag 2 from rank 0 has 3000 bytes, the receive room for 40");
    failed |= expect(kolo_recv(group, room, 40, KOLO_UINT8, 0, 1), KOLO_E_TRUNCATED,
                     "the message of tag 1 from rank 0 has 41 bytes, the receive room for 40");
    failed |= expect(kolo_recv(group, floats, 3, KOLO_FLOAT32, 0, 3), KOLO_E_MISMATCH,
                     "rank 0 sent the message of tag 3 as uint8, rank 1 receives it as float32");
    for (size_t i = 0; i < sizeof room; i++)
        failed |= room[i] != 0x5a;
    failed |= take(group, 12, 4, 0, 4);
    return failed | post(group, 2, 9, 0, 0);
}

/* The same when the receive was there first. */
static int misfit_of_a_posted_receive(kolo_group *group, void *argument)
{
    unsigned char room[40];
    kolo_work *work;
    int failed = 0;

    (void)argument;
    if (kolo_group_rank(group) == 0)
        return take(group, 0, 0, 1, 8) || post(group, 3000, 2, 1, 2) || post(group, 2, 3, 1, 3);
    failed |= kolo_irecv(group, room, 40, KOLO_UINT8, 0, 2, &work);
    failed |= post(group, 0, 0, 0, 8);
    failed |= expect(kolo_work_wait(work, -1), KOLO_E_TRUNCATED, "has 3000 bytes");
    failed |= !strstr(kolo_work_error(work), "the receive room for 40");
    kolo_work_free(work);
    return failed | take(group, 2, 3, 0, 3);
}

static void misfits_are_the_receives_errors(void **state)
{
    (void)state;
    run_all_ways(2, misfit);
    run_all_ways(2, misfit_of_a_posted_receive);
}

static int call_wrongly(kolo_group *group, void *argument)
{
    char byte = 0;
    kolo_work *work;
    int failed = 0;

    (void)argument;
    failed |= expect(kolo_send(NULL, &byte, 1, KOLO_INT8, 0, 0), KOLO_E_INVALID,
                     "kolo_send: group is NULL");
    failed |= expect(kolo_recv(group, &byte, 1, (kolo_dtype)77, 0, 0), KOLO_E_INVALID,
                     "kolo_recv: 77 is no dtype");
    failed |= expect(kolo_send(group, &byte, 1, KOLO_INT8, 0, -3), KOLO_E_INVALID,
                     "kolo_send: the tag is -3; tags are 0 or more");
    failed |= expect(kolo_send(group, &byte, SIZE_MAX / 2, KOLO_FLOAT64, 0, 0), KOLO_E_INVALID,
                     "elements of float64 are more than memory has");
    failed |= expect(kolo_recv(group, NULL, 1, KOLO_INT8, 0, 0), KOLO_E_INVALID,
                     "kolo_recv: the buffer is NULL, with 1 elements");
    failed |= expect(kolo_send(group, &byte, 1, KOLO_INT8, 1, 0), KOLO_E_INVALID,
                     "the receiver is rank 1; the group has ranks 0 to 0");
    failed |= expect(kolo_irecv(group, &byte, 1, KOLO_INT8, -1, 0, &work), KOLO_E_INVALID,
                     "the sender is rank -1");
    failed |= expect(kolo_isend(group, &byte, 1, KOLO_INT8, 0, 0, NULL), KOLO_E_INVALID,
                     "kolo_isend: work is NULL");
    return failed;
}

static void wrong_arguments_are_named(void **state)
{
    (void)state;
    set_variables("shm", true);
    assert_int_equal(ranks_run(&(struct ranks){.kind = RANKS_THREADS, .n = 1}, call_wrongly, NULL),
                     0);
}

/* Rank 1 frees its group while rank 0 waits for a message of it. */
static int leave_the_receiver(kolo_group *group, void *argument)
{
    unsigned char byte;

    (void)argument;
    if (kolo_group_rank(group) == 1) {
        int failed = take(group, 0, 0, 0, 1);

        nap_ms(40);
        return failed;
    }
    if (post(group, 0, 0, 1, 1))
        return 1;
    return expect(kolo_recv(group, &byte, 1, KOLO_UINT8, 1, 2), KOLO_E_PEER_LOST,
                  "has freed its group, while rank 0 waits for it") ||
           !strstr(kolo_last_error(), "rank 1 (");
}

static void a_peer_that_frees_its_group_is_named(void **state)
{
    (void)state;
    run_all_ways(2, leave_the_receiver);
}

/* What arrived before the sender left can still be received. */
static int leave_a_message(kolo_group *group, void *argument)
{
    (void)argument;
    if (kolo_group_rank(group) == 1)
        return post(group, 100, 8, 0, 2);
    nap_ms(60);
    return take(group, 100, 8, 1, 2);
}

static void a_message_outlives_its_senders_group(void **state)
{
    (void)state;
    run_all_ways(2, leave_a_message);
}

/* Nothing comes within the group's limit: the error names the peer, on both. */
static int wait_too_long(kolo_group *group, void *argument)
{
    const char *text;
    unsigned char byte;
    int err, failed = 0;

    (void)argument;
    if (kolo_barrier(group) || kolo_group_set_timeout(group, 400))
        return ranks_fail("set_timeout");
    if (kolo_group_rank(group) == 0) {
        err = kolo_recv(group, &byte, 1, KOLO_UINT8, 1, 2);
    } else {
        nap_ms(700);
        err = kolo_barrier(group);
    }
    failed |= expect(err, KOLO_E_TIMEOUT, "rank 0 waited 400 ms for a message from rank 1 (");
    failed |= kolo_group_error(group, &text) != KOLO_E_TIMEOUT || !strstr(text, "KOLO_TIMEOUT_MS");
    return failed;
}

static void the_deadline_names_the_peer(void **state)
{
    (void)state;
    run_all_ways(2, wait_too_long);
}

/* ---- messages that go together ------------------------------------------------------------------
 */

enum { BURST = 50 };

/* Rank 0 sends many short messages at once and then does without kolo, or makes a collective call,
 * or receives from another rank: they must not wait for it. */
static int burst(kolo_group *group, atomic_int *arrived, int how)
{
    const int rank = kolo_group_rank(group);
    kolo_work *works[BURST];
    int values[BURST], failed = 0;

    for (int i = 0; i < BURST; i++) {
        values[i] = rank == 0 ? i : -1;
        if (rank == 0)
            failed |= kolo_isend(group, &values[i], 1, KOLO_INT32, 1, 0, &works[i]);
        else if (rank == 1)
            failed |= kolo_recv(group, &values[i], 1, KOLO_INT32, 0, 0) || values[i] != i;
    }
    if (rank == 1)
        atomic_store(arrived, 1);
    while (rank == 0 && how == 0 && !atomic_load(arrived))
        nap_ms(1);
    if (how == 1)
        failed |= kolo_barrier(group);
    if (how == 2 && rank == 1)
        failed |= kolo_send(group, values, 1, KOLO_INT32, 2, 1);
    if (how == 2 && rank == 2)
        failed |= kolo_recv(group, values, 1, KOLO_INT32, 1, 1) ||
                  kolo_send(group, values, 1, KOLO_INT32, 0, 2);
    if (how == 2 && rank == 0)
        failed |= kolo_recv(group, values, 1, KOLO_INT32, 2, 2);
    for (int i = 0; i < BURST && rank == 0; i++) {
        failed |= kolo_work_wait(works[i], -1);
        kolo_work_free(works[i]);
    }
    return failed ? ranks_fail("burst %d", how) : 0;
}

static int take_bursts(kolo_group *group, void *argument)
{
    atomic_int *arrived = argument;
    int failed = 0;

    for (int how = 0; how < 3 && !failed; how++)
        failed = burst(group, &arrived[how], how);
    return failed;
}

static void short_messages_go_together_and_soon(void **state)
{
    static const char *const transports[] = {"shm", "tcp"};

    (void)state;
    for (int i = 0; i < 4; i++) {
        atomic_int arrived[3] = {0};

        set_variables(transports[i % 2], i / 2);
        assert_int_equal(
            ranks_run(&(struct ranks){.kind = RANKS_THREADS, .n = 3}, take_bursts, arrived), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_of_every_size_arrive),
        cmocka_unit_test(tags_come_in_any_order),
        cmocka_unit_test(receives_may_be_posted_first),
        cmocka_unit_test(a_rank_may_send_to_itself),
        cmocka_unit_test(a_message_finds_its_receive_while_arriving),
        cmocka_unit_test(threads_of_one_rank_wait_at_once),
        cmocka_unit_test(large_sends_go_on_in_the_background),
        cmocka_unit_test(a_wait_that_gives_up_leaves_the_work_running),
        cmocka_unit_test(freeing_a_work_waits_for_it),
        cmocka_unit_test(misfits_are_the_receives_errors),
        cmocka_unit_test(wrong_arguments_are_named),
        cmocka_unit_test(a_peer_that_frees_its_group_is_named),
        cmocka_unit_test(a_message_outlives_its_senders_group),
        cmocka_unit_test(the_deadline_names_the_peer),
        cmocka_unit_test(short_messages_go_together_and_soon),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
