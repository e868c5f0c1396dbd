/* SPDX-License-Identifier: MIT
 *
 * Every way in which point to point can fail, and what it says then.
 */
#include "clock.h"
#include "fault.h"
#include "letters.h"
#include "mailbox_parts.h"
#include "portable.h"
#include "window.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int call_wrongly(kolo_group *group, void *argument)
{
    char byte = 0;
    kolo_work *work;
    int failed = 0;

    (void)argument;
    failed |= ranks_expect(kolo_send(NULL, &byte, 1, KOLO_INT8, 0, 0), KOLO_E_INVALID,
                           "kolo_send: group is NULL");
    failed |= ranks_expect(kolo_recv(group, &byte, 1, (kolo_dtype)77, 0, 0), KOLO_E_INVALID,
                           "kolo_recv: 77 is no dtype");
    failed |= ranks_expect(kolo_send(group, &byte, 1, KOLO_INT8, 0, -3), KOLO_E_INVALID,
                           "kolo_send: the tag is -3; tags are 0 or more");
    failed |= ranks_expect(kolo_send(group, &byte, SIZE_MAX / 2, KOLO_FLOAT64, 0, 0),
                           KOLO_E_INVALID, "elements of float64 are more than memory has");
    failed |= ranks_expect(kolo_recv(group, NULL, 1, KOLO_INT8, 0, 0), KOLO_E_INVALID,
                           "kolo_recv: the buffer is NULL, with 1 elements");
    failed |= ranks_expect(kolo_send(group, &byte, 1, KOLO_INT8, 1, 0), KOLO_E_INVALID,
                           "the receiver is rank 1; the group has ranks 0 to 0");
    failed |= ranks_expect(kolo_irecv(group, &byte, 1, KOLO_INT8, -2, 0, &work), KOLO_E_INVALID,
                           "the sender is rank -2");
    failed |= ranks_expect(kolo_isend(group, &byte, 1, KOLO_INT8, 0, 0, NULL), KOLO_E_INVALID,
                           "kolo_isend: work is NULL");
    return failed;
}

static void wrong_arguments_are_named(void **state)
{
    (void)state;
    letters_set("shm", true);
    assert_int_equal(ranks_run(&(struct ranks){.kind = RANKS_THREADS, .n = 1}, call_wrongly, NULL),
                     0);
}

/* The next message to rank 1, which seems to sleep, finds no memory for the bell that is to wake
 * it: the first on this link. */
static int silence_the_bell(kolo_group *group)
{
    struct ko_link *link = atomic_load(&group->mailbox)->channel.ports[1].link;

    if (ko_link_is_telling(link, KO_FRAME_BELL))
        return ranks_fail("a bell is on its way");
    free(link->control[KO_FRAME_BELL]);
    link->control[KO_FRAME_BELL] = NULL;
    ko_store_ordered(&link->outbox->receiver_sleeps, 1);
    ko_fault_arm(KO_FAULT_ALLOC, 1);
    return 0;
}

/* What lies in its slot, and what does not. */
static int ring_in_vain(kolo_group *group, void *argument)
{
    static const size_t lengths[] = {8, 4000};
    int failed = ranks_exchange(group);

    (void)argument;
    for (unsigned i = 0; i < 2 && !failed; i++) {
        if (kolo_group_rank(group) == 0)
            failed = silence_the_bell(group) || letter_post(group, lengths[i], i, 1, 3);
        else
            failed = letter_take(group, lengths[i], i, 0, 3);
        ko_fault_arm(KO_FAULT_ALLOC, 0);
    }
    return failed || ranks_exchange(group);
}

static void a_message_without_a_bell_is_sent_once(void **state)
{
    (void)state;
    letters_set("shm", false);
    assert_int_equal(
        ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = 2}, ring_in_vain, NULL), 0);
}

/* Sends of which the socket takes half at first: the sender, which does nothing else for the group
 * until it has been received, returns when the rest has left. */
static int send_in_halves(kolo_group *group, void *argument)
{
    enum { ROUNDS = 20, BYTES = 700 };
    int failed = ranks_exchange(group), halves = 0;
    unsigned char *bytes;

    (void)argument;
    for (unsigned i = 0; i < ROUNDS && !failed; i++) {
        if (kolo_group_rank(group) == 1) {
            failed = letter_take(group, BYTES, i, 0, 3) || letter_post(group, 0, i, 0, 4);
            continue;
        }
        ko_fault_arm(KO_FAULT_SHORT, 1);
        bytes = letter_make(BYTES, i);
        failed = kolo_send(group, bytes, BYTES, KOLO_UINT8, 1, 3) ? ranks_fail("send") : 0;
        explicit_bzero(bytes, BYTES); /* it is the sender's again */
        free(bytes);
        halves += !ko_fault(KO_FAULT_SHORT);
        ranks_nap_ms(1);
        failed = failed || letter_take(group, 0, i, 1, 4);
    }
    ko_fault_arm(KO_FAULT_SHORT, 0);
    if (!failed && kolo_group_rank(group) == 0 && !halves)
        return ranks_fail("no message was sent in halves");
    return failed || ranks_exchange(group);
}

static void what_a_socket_takes_in_part_is_sent_once(void **state)
{
    (void)state;
    letters_set("tcp", false);
    assert_int_equal(
        ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = 2}, send_in_halves, NULL), 0);
}

/* Rank 1 frees its group while rank 0 waits for a message of it. */
static int leave_the_receiver(kolo_group *group, void *argument)
{
    unsigned char byte;

    (void)argument;
    if (kolo_group_rank(group) == 1) {
        int failed = letter_take(group, 0, 0, 0, 1);

        ranks_nap_ms(40);
        return failed;
    }
    if (letter_post(group, 0, 0, 1, 1))
        return 1;
    return ranks_expect(kolo_recv(group, &byte, 1, KOLO_UINT8, 1, 2), KOLO_E_PEER_LOST,
                        "has freed its group, while rank 0 waits for it") ||
           !strstr(kolo_last_error(), "rank 1 (");
}

static void a_peer_that_frees_its_group_is_named(void **state)
{
    (void)state;
    letters_run(2, leave_the_receiver);
}

/* And while rank 0 only sends to it, which it does not notice at once. */
static int leave_a_sender(kolo_group *group, void *argument)
{
    const int64_t began_ns = ko_now_ns();
    unsigned char byte = 0;
    int err;

    (void)argument;
    if (kolo_group_rank(group) == 1)
        return letter_take(group, 0, 0, 0, 1);
    if (letter_post(group, 0, 0, 1, 1))
        return 1;
    do {
        ranks_nap_ms(1);
        err = kolo_send(group, &byte, 1, KOLO_UINT8, 1, 2);
    } while (!err && (ko_now_ns() - began_ns) / 1000000 < RANKS_SOON_MS);
    return ranks_expect(err, KOLO_E_PEER_LOST, "has freed its group");
}

static void sends_to_nobody_fail(void **state)
{
    (void)state;
    letters_run(2, leave_a_sender);
}

/* What arrived before the sender left can still be received. */
static int leave_a_message(kolo_group *group, void *argument)
{
    (void)argument;
    if (kolo_group_rank(group) == 1)
        return letter_post(group, 100, 8, 0, 2);
    ranks_nap_ms(60);
    return letter_take(group, 100, 8, 1, 2);
}

static void a_message_outlives_its_senders_group(void **state)
{
    (void)state;
    letters_run(2, leave_a_message);
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
        ranks_nap_ms(700);
        err = kolo_barrier(group);
    }
    failed |= ranks_expect(err, KOLO_E_TIMEOUT,
                           "rank 0 waited 400 ms for a message of tag 2 from rank 1 (");
    failed |= kolo_group_error(group, &text) != KOLO_E_TIMEOUT || !strstr(text, "KOLO_TIMEOUT_MS");
    return failed;
}

/* To and fro with the other rank until the group fails: each message has only a short limit, but
 * they keep coming. */
static int toss(kolo_group *group, int other)
{
    const unsigned char out[3000] = {0};
    unsigned char in[3000];
    int err;

    do
        err = kolo_sendrecv(group, out, 3000, other, in, 3000, other, KOLO_UINT8, 3);
    while (!err);
    return err;
}

static void *toss_to_1(void *group)
{
    (void)toss(group, 1);
    return NULL;
}

/* The same while something else moves between the two all the time. */
static int wait_beside_others(kolo_group *group, void *argument)
{
    const int64_t began_ns = ko_now_ns();
    pthread_t tosser;
    unsigned char byte;
    int err, failed = 0;

    (void)argument;
    if (ranks_exchange(group) || kolo_group_set_timeout(group, 1000))
        return ranks_fail("set_timeout");
    if (kolo_group_rank(group) == 1) {
        err = toss(group, 0);
    } else {
        if (pthread_create(&tosser, NULL, toss_to_1, group))
            return ranks_fail("no thread");
        err = kolo_recv(group, &byte, 1, KOLO_UINT8, 1, 2);
        pthread_join(tosser, NULL);
    }
    failed |= ranks_expect(err, KOLO_E_TIMEOUT,
                           "rank 0 waited 1000 ms for a message of tag 2 from rank 1 (");
    return failed | ranks_within(began_ns, RANKS_SOON_MS, "the end");
}

static void the_deadline_names_the_peer(void **state)
{
    (void)state;
    letters_run(2, wait_too_long);
    letters_run(2, wait_beside_others);
}

/* Rank 0 asks for tag 3 of rank 1, which has sent n of others; a negative n: for what the last rank
 * has sent it. Who is told of the wait hears of that, too. */
static int ask_for_another(kolo_group *group, int n, const char *text)
{
    const int rank = kolo_group_rank(group), last = kolo_group_size(group) - 1;
    kolo_message message;
    unsigned char byte;
    int found, err, failed = 0;

    for (int i = 0; i < n && rank == 1; i++)
        failed |= letter_post(group, 64 + (size_t)i, 1, 0, 4 + i);
    if (n < 0 && rank == last)
        failed |= letter_post(group, 64, 1, 0, 3);
    if (rank == 0) /* it has come by then */
        failed |= kolo_probe(group, n < 0 ? last : 1, n < 0 ? 3 : 3 + n, -1, &found, &message) ||
                  kolo_group_set_timeout(group, 500);
    if (failed)
        return ranks_fail("before");
    err = kolo_recv(group, &byte, 1, KOLO_UINT8, rank ? 0 : 1, rank ? KOLO_ANY_TAG : 3);
    return failed |
           ranks_expect(err, KOLO_E_TIMEOUT,
                        "rank 0 waited 500 ms for a message of tag 3 from rank 1 (") |
           ranks_expect(err, KOLO_E_TIMEOUT, text);
}

static int ask_for_another_tag(kolo_group *group, void *argument)
{
    (void)argument;
    return ask_for_another(group, 1,
                           "; rank 1 has sent one of tag 4, 64 bytes, that is not asked for; ");
}

static int ask_for_another_of_many(kolo_group *group, void *argument)
{
    (void)argument;
    return ask_for_another(group, 3,
                           "; rank 1 has sent 3 that are not asked for, the first of tag "
                           "4, 64 bytes; ");
}

static int ask_another_rank(kolo_group *group, void *argument)
{
    (void)argument;
    return ask_for_another(group, -1,
                           "; rank 2 has sent one of tag 3, 64 bytes, that is not asked for; ");
}

static void the_deadline_tells_of_another_message(void **state)
{
    (void)state;
    letters_run(2, ask_for_another_tag);
    letters_run(2, ask_for_another_of_many);
    letters_run(3, ask_another_rank);
}

/* Each rank waits for the next one's message; the last one does not come, or waits for the first.
 */
static int wait_in_a_row(kolo_group *group, void *argument)
{
    const int rank = kolo_group_rank(group), last = kolo_group_size(group) - 1;
    const bool is_circle = argument;
    char byte;
    int err;

    if (kolo_barrier(group) || kolo_group_set_timeout(group, 2000))
        return ranks_fail("before");
    if (rank == last && !is_circle) {
        ranks_nap_ms(2800);
        return 0;
    }
    err = kolo_recv(group, &byte, 1, KOLO_INT8, rank == last ? 0 : rank + 1, 1);
    if (is_circle)
        return ranks_expect(err, KOLO_E_TIMEOUT, ", and so on to rank ") |
               ranks_expect(err, KOLO_E_TIMEOUT, ", which waits for rank ");
    if (strstr(kolo_last_error(), "rank 2 waited 2000 ms for a message of tag 1 from rank 3 ("))
        return ranks_expect(err, KOLO_E_TIMEOUT, "KOLO_TIMEOUT_MS");
    return ranks_expect(err, KOLO_E_TIMEOUT, "rank 3, which may be stopped");
}

static void who_keeps_a_row_waiting_is_named(void **state)
{
    static const char *const transports[] = {"shm", "rdma", "tcp"};

    (void)state;
    for (int i = 0; i < 6; i++) {
        const struct ranks ranks = {.kind = i / 3 ? RANKS_PROCESSES : RANKS_THREADS, .n = 4};

        letters_set(transports[i % 3], false);
        assert_int_equal(ranks_run(&ranks, wait_in_a_row, NULL), 0);
        assert_int_equal(ranks_run(&ranks, wait_in_a_row, &i), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_arguments_are_named),
        cmocka_unit_test(a_message_without_a_bell_is_sent_once),
        cmocka_unit_test(what_a_socket_takes_in_part_is_sent_once),
        cmocka_unit_test(a_peer_that_frees_its_group_is_named),
        cmocka_unit_test(sends_to_nobody_fail),
        cmocka_unit_test(a_message_outlives_its_senders_group),
        cmocka_unit_test(the_deadline_names_the_peer),
        cmocka_unit_test(the_deadline_tells_of_another_message),
        cmocka_unit_test(who_keeps_a_row_waiting_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
