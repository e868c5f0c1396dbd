/* SPDX-License-Identifier: MIT
 *
 * Point to point: matching by tag, sizes around the slots, both orders of posting, messages that
 * nobody waits for yet, threads, and the courier.
 */
#include "clock.h"
#include "group.h"
#include "letters.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <cmocka.h>

enum { ALL_SLOTS = LETTERS_SLICE_BYTES * LETTERS_SLOTS };

/* ---- matching ----------------------------------------------------------------------------- */

static const size_t sizes[] = {0,
                               1,
                               LETTERS_SLICE_BYTES - 1,
                               LETTERS_SLICE_BYTES,
                               LETTERS_SLICE_BYTES + 1,
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
            failed = letter_post(group, sizes[i], i, next, (int)i);
        failed = failed ? failed : letter_take(group, sizes[i], i, prev, (int)i);
        if (!failed && rank % 2)
            failed = letter_post(group, sizes[i], i, next, (int)i);
    }
    return failed;
}

/* As if nothing stayed in a cache. */
static int pass_around_the_cache(kolo_group *group, void *argument)
{
    group->endpoint->cache_bytes = 1;
    return pass_around(group, argument);
}

static void messages_of_every_size_arrive(void **state)
{
    (void)state;
    letters_run(2, pass_around);
    letters_run(4, pass_around);
    letters_run(2, pass_around_the_cache);
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
            failed = letter_post(group, (size_t)i * step, (unsigned)i, 1, i % NTAGS);
        return failed ? failed : letter_take(group, 3, 99, 1, 7);
    }
    for (int i = 0; i < 2 * NTAGS && !failed; i++) {
        int tag = i * 5 % NTAGS, id = i < NTAGS ? tag : tag + NTAGS;

        failed = letter_take(group, (size_t)id * step, (unsigned)id, 0, tag);
    }
    return failed ? failed : letter_post(group, 3, 99, 0, 7);
}

static void tags_come_in_any_order(void **state)
{
    (void)state;
    letters_run(2, shuffle_tags);
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
        ranks_nap_ms(30);
    for (unsigned i = 0; i < NSIZES; i++) {
        out[i] = letter_make(sizes[i], i);
        failed |=
            kolo_isend(group, out[i], sizes[i], KOLO_UINT8, 1 - rank, (int)i, &works[NSIZES + i]);
    }
    for (unsigned i = 2 * NSIZES; i-- > 0;) {
        failed |= kolo_work_wait(works[i], -1) || *kolo_work_error(works[i]);
        kolo_work_free(works[i]);
    }
    for (unsigned i = 0; i < NSIZES; i++) {
        if (!failed && !letter_is(in[i], sizes[i], i))
            failed = ranks_fail("message %u is wrong", i);
        free(in[i]);
        free(out[i]);
    }
    return failed ? ranks_fail("post_all_ahead") : 0;
}

static void receives_may_be_posted_first(void **state)
{
    (void)state;
    letters_run(2, post_all_ahead);
}

/* A rank sends to itself: send first, or receive first; larger than the slots too. */
static int talk_to_oneself(kolo_group *group, void *argument)
{
    const int rank = kolo_group_rank(group);
    unsigned char *bytes = calloc(1, 5000), *sent = letter_make(5000, 3);
    kolo_work *work, *other;
    int failed = 0;

    (void)argument;
    failed |= kolo_isend(group, sent, 5000, KOLO_UINT8, rank, 1, &work);
    failed |= kolo_recv(group, bytes, 5000, KOLO_UINT8, rank, 1);
    failed |= !letter_is(bytes, 5000, 3);
    failed |= kolo_work_wait(work, -1);
    kolo_work_free(work);
    memset(bytes, 0, 5000);
    failed |= kolo_irecv(group, bytes, 5000, KOLO_UINT8, rank, 2, &work);
    failed |= kolo_isend(group, NULL, 0, KOLO_FLOAT32, rank, 3, &other);
    failed |= kolo_send(group, sent, 5000, KOLO_UINT8, rank, 2);
    failed |= kolo_work_wait(work, -1) || !letter_is(bytes, 5000, 3);
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
    letters_run(1, talk_to_oneself);
    letters_run(2, talk_to_oneself);
}

/* A message that is arriving as a parcel gets its receive meanwhile. */
static int receive_in_the_middle(kolo_group *group, void *argument)
{
    int failed;

    (void)argument;
    if (kolo_group_rank(group) == 0) {
        unsigned char *large = letter_make(200000, 1);
        kolo_work *work;

        failed = kolo_isend(group, large, 200000, KOLO_UINT8, 1, 1, &work);
        failed |= letter_take(group, 0, 0, 1, 5);
        failed |= kolo_work_wait(work, -1);
        kolo_work_free(work);
        free(large);
        return failed | letter_post(group, 4, 2, 1, 2);
    }
    ranks_nap_ms(20);
    failed = letter_post(group, 0, 0, 0, 5); /* takes in what has come of the large one */
    failed |= letter_take(group, 200000, 1, 0, 1);
    return failed | letter_take(group, 4, 2, 0, 2);
}

static void a_message_finds_its_receive_while_arriving(void **state)
{
    (void)state;
    letters_run(2, receive_in_the_middle);
}

/* ---- threads ------------------------------------------------------------------------------ */

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
            clerk->failed = letter_post(clerk->group, nbytes, i, peer, clerk->tag) ||
                            letter_take(clerk->group, nbytes + 1, i, peer, clerk->tag);
        else
            clerk->failed = letter_take(clerk->group, nbytes, i, peer, clerk->tag) ||
                            letter_post(clerk->group, nbytes + 1, i, peer, clerk->tag);
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
    letters_run(2, employ_clerks);
}

/* ---- in the background -------------------------------------------------------------------- */

enum { MUCH = 8 << 20 };

/* Rank 0 begins a send and then does not call kolo until rank 1 has received it. */
static int leave_it_to_the_courier(kolo_group *group, void *argument)
{
    atomic_int *has_come = argument;
    unsigned char *bytes = letter_make(MUCH, 5);
    kolo_work *work;
    int failed;

    if (kolo_group_rank(group) == 0) {
        failed = kolo_isend(group, bytes, MUCH, KOLO_UINT8, 1, 0, &work);
        while (!failed && !atomic_load(has_come))
            ranks_nap_ms(10); /* stands for computing */
        failed |= failed || kolo_work_wait(work, -1);
        kolo_work_free(work);
    } else {
        memset(bytes, 0, MUCH);
        failed = kolo_recv(group, bytes, MUCH, KOLO_UINT8, 0, 0) || !letter_is(bytes, MUCH, 5);
        atomic_store(has_come, 1);
    }
    free(bytes);
    return failed ? ranks_fail("courier") : 0;
}

/* Each rank sends to all before it receives, in groups that have no links yet. All but one are in a
 * call of another group meanwhile, which that one comes to when it has sent. */
static int send_ahead(kolo_group *world, void *argument)
{
    const int rank = kolo_group_rank(world), size = kolo_group_size(world);
    kolo_group *group;
    int failed = 0;

    (void)argument;
    for (int first = 0; first < size && !failed; first++) {
        int got = 0;

        failed = kolo_group_duplicate(world, &group);
        for (int r = 0; r < size && !failed && rank == first; r++)
            failed = kolo_send(group, &first, 1, KOLO_INT32, r, first);
        failed |= failed || kolo_barrier(world) ||
                  kolo_recv(group, &got, 1, KOLO_INT32, first, first) || got != first;
        kolo_group_free(group);
    }
    return failed ? ranks_fail("sending ahead") : 0;
}

/* Both ends connect at about the same time. */
static int send_across(kolo_group *world, void *argument)
{
    enum { TIMES = 12 };
    const int rank = kolo_group_rank(world);
    kolo_group *group;
    int failed = 0;

    (void)argument;
    for (int i = 0; i < TIMES && !failed; i++) {
        int got = -1;

        failed = kolo_group_duplicate(world, &group) || kolo_barrier(world);
        if (!failed && rank == 0)
            ranks_nap_ms(20 + i / 2); /* the other's patience, and a little more */
        failed |= failed || kolo_send(group, &i, 1, KOLO_INT32, 1 - rank, 0) ||
                  kolo_recv(group, &got, 1, KOLO_INT32, 1 - rank, 0) || got != i;
        kolo_group_free(group);
    }
    return failed ? ranks_fail("sending across") : 0;
}

static void who_sends_need_not_be_met(void **state)
{
    (void)state;
    assert_int_equal(ranks_run_all_ways(3, send_ahead), 0);
    assert_int_equal(ranks_run_all_ways(2, send_across), 0);
}

static void large_sends_go_on_in_the_background(void **state)
{
    static const char *const transports[] = {"shm", "tcp"};
    atomic_int *has_come =
        mmap(NULL, sizeof *has_come, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    (void)state;
    assert_true(has_come != MAP_FAILED);
    for (int i = 0; i < 4; i++) {
        atomic_store(has_come, 0);
        letters_set(transports[i / 2], false);
        assert_int_equal(
            ranks_run(&(struct ranks){.kind = i % 2 ? RANKS_PROCESSES : RANKS_THREADS, .n = 2},
                      leave_it_to_the_courier, has_come),
            0);
    }
    munmap(has_come, sizeof *has_come);
}

/* wait(timeout) gives up and leaves the work running; test says nothing yet. */
static int wait_in_vain(kolo_group *group, void *argument)
{
    unsigned char bytes[8] = {0};
    kolo_work *work;
    int64_t began;
    int done = 1, waited_ms, failed = 0;

    (void)argument;
    if (kolo_group_rank(group) == 1)
        return letter_take(group, 0, 0, 0, 9) || letter_post(group, 8, 4, 0, 1) ||
               letter_take(group, 0, 0, 0, 9);
    if (kolo_irecv(group, bytes, 8, KOLO_UINT8, 1, 1, &work))
        return ranks_fail("irecv");
    began = ko_now_ns();
    if (kolo_work_wait(work, 60) != KOLO_E_TIMEOUT ||
        !strstr(kolo_last_error(), "not done within 60 ms; it goes on"))
        failed = ranks_fail("the wait did not give up");
    waited_ms = (int)((ko_now_ns() - began) / 1000000);
    if (waited_ms < 60) /* and far less than the group's limit, or this would be its error */
        failed = ranks_fail("a wait of 60 ms took %d ms", waited_ms);
    if (kolo_work_test(work, &done) || done)
        failed = ranks_fail("test says that it is done");
    failed |= letter_post(group, 0, 0, 1, 9);
    while (!failed && !done)
        failed = kolo_work_test(work, &done) ? ranks_fail("test") : 0;
    kolo_work_free(work);
    if (!failed && !letter_is(bytes, 8, 4))
        failed = ranks_fail("the message is wrong");
    return failed | letter_post(group, 0, 0, 1, 9);
}

static void a_wait_that_gives_up_leaves_the_work_running(void **state)
{
    (void)state;
    letters_run(2, wait_in_vain);
}

/* Freed before it is done: free waits. */
static int free_early(kolo_group *group, void *argument)
{
    unsigned char *bytes = letter_make(100000, 6);
    kolo_work *work;
    int failed;

    (void)argument;
    if (kolo_group_rank(group) == 0) {
        failed = kolo_isend(group, bytes, 100000, KOLO_UINT8, 1, 0, &work);
        kolo_work_free(work);
    } else {
        ranks_nap_ms(30);
        failed = letter_take(group, 100000, 6, 0, 0);
    }
    free(bytes);
    return failed;
}

static void freeing_a_work_waits_for_it(void **state)
{
    (void)state;
    letters_run(2, free_early);
}

/* ---- buffers ------------------------------------------------------------------------------ */

enum { LATE_MS = 2, BUFFERS = 3 };

/* Where a message is copied, and where it is read by its receiver, who comes late. */
static const size_t long_sizes[] = {1024, 1025, 4096, 40000, 131072, 131073};

/* Sends some of that length, and spoils each buffer when its work is done. */
static int send_and_spoil(kolo_group *group, unsigned char *const buffers[BUFFERS], size_t nbytes)
{
    kolo_work *works[BUFFERS];
    int failed = 0;

    for (unsigned i = 0; i < BUFFERS && !failed; i++) {
        unsigned char *letter = letter_make(nbytes, i);

        memcpy(buffers[i], letter, nbytes);
        free(letter);
        failed = kolo_isend(group, buffers[i], nbytes, KOLO_UINT8, 1, (int)i, &works[i]);
    }
    for (unsigned i = 0; i < BUFFERS && !failed; i++) {
        failed = kolo_work_wait(works[i], -1);
        kolo_work_free(works[i]);
        memset(buffers[i], 0xff, nbytes);
    }
    return failed ? ranks_fail("sends of %zu bytes", nbytes) : 0;
}

static int take_late(kolo_group *group, size_t nbytes)
{
    int failed = 0;

    ranks_nap_ms(LATE_MS);
    for (unsigned i = 0; i < BUFFERS && !failed; i++)
        failed = letter_take(group, nbytes, i, 0, (int)i);
    return failed;
}

static int spoil_what_is_sent(kolo_group *group, void *argument)
{
    const size_t nsizes = sizeof long_sizes / sizeof *long_sizes, most = long_sizes[nsizes - 1];
    unsigned char *buffers[2][BUFFERS];
    int failed = 0;

    (void)argument;
    for (int i = 0; i < BUFFERS; i++) {
        buffers[0][i] = malloc(most);
        if (!buffers[0][i] || kolo_mem_alloc(most, (void **)&buffers[1][i]))
            abort();
    }
    for (size_t i = 0; i < 2 * nsizes && !failed; i++)
        failed = kolo_group_rank(group) ? take_late(group, long_sizes[i / 2])
                                        : send_and_spoil(group, buffers[i % 2], long_sizes[i / 2]);
    failed = failed ? failed : kolo_barrier(group);
    for (int i = 0; i < BUFFERS; i++) {
        free(buffers[0][i]);
        kolo_mem_free(buffers[1][i]);
    }
    return failed;
}

static void buffers_of_done_sends_may_change(void **state)
{
    static const char *const ways[][2] = {{"shm", "inline,reference"},
                                          {"shm", "inline,reference,cma"},
                                          {"shm", "simple"},
                                          {"rdma", "inline"},
                                          {"tcp", "inline"}};

    (void)state;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        letters_set(ways[i][0], false);
        setenv("KOLO_PROTO", ways[i][1], 1);
        for (enum ranks_kind kind = RANKS_THREADS; kind <= RANKS_PROCESSES; kind++)
            assert_int_equal(
                ranks_run(&(struct ranks){.kind = kind, .n = 2}, spoil_what_is_sent, NULL), 0);
    }
    unsetenv("KOLO_PROTO");
}

/* ---- messages that go together ------------------------------------------------------------ */

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
        ranks_nap_ms(1);
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
    static const char *const transports[] = {"shm", "rdma", "tcp"};

    (void)state;
    for (int i = 0; i < 6; i++) {
        atomic_int arrived[3] = {0};

        letters_set(transports[i % 3], i / 3);
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
        cmocka_unit_test(who_sends_need_not_be_met),
        cmocka_unit_test(large_sends_go_on_in_the_background),
        cmocka_unit_test(a_wait_that_gives_up_leaves_the_work_running),
        cmocka_unit_test(freeing_a_work_waits_for_it),
        cmocka_unit_test(buffers_of_done_sends_may_change),
        cmocka_unit_test(short_messages_go_together_and_soon),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
