/* SPDX-License-Identifier: MIT
 *
 * Messages of medium length, for which KOLO_UNEXPECTED_BYTES has no room: their sender is asked to
 * keep them, and the group goes on.
 */
#include "letters.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { NOTE_BYTES = 20 };

/* How much is sent, in messages of how many bytes, over what. */
struct flood {
    const char *transport, *slice_bytes, *slots, *unexpected;
    size_t nbytes;
    int n;
    ranks_body body;
};

/* Over a wire there are buffers of the system's too, which are to be filled. What says of a message
 * that it was laid aside takes room, too: of all together less than may be used beyond. */
static const struct flood shm = {"shm", "256", "2", "64K", 3000, 200, NULL},
                          tcp = {"tcp", "16K", "8", "16M", 200000, 300, NULL},
                          rdma = {"rdma", "1K", "8", "1M", 20000, 300, NULL};

/* Message i; no two are of the same length. */
struct messages {
    unsigned char **bytes;
    kolo_work **works;
};

static size_t length_of(const struct flood *flood, int i)
{
    return flood->nbytes + (size_t)i;
}

static int end_works(kolo_work **works, int n)
{
    int failed = 0;

    for (int i = 0; i < n; i++) {
        failed |= kolo_work_wait(works[i], -1);
        kolo_work_free(works[i]);
    }
    return failed ? ranks_fail("a work failed") : 0;
}

static void make_messages(const struct flood *flood, struct messages *messages)
{
    messages->bytes = malloc((size_t)flood->n * sizeof *messages->bytes);
    messages->works = malloc((size_t)flood->n * sizeof *messages->works);
    for (int i = 0; i < flood->n; i++)
        messages->bytes[i] = letter_make(length_of(flood, i), (unsigned)i);
}

static void free_messages(const struct flood *flood, struct messages *messages)
{
    for (int i = 0; i < flood->n; i++)
        free(messages->bytes[i]);
    free(messages->bytes);
    free(messages->works);
}

/* Message i has tag i, but for those of one tag, to one rank. */
static int send_all(kolo_group *group, const struct flood *flood, struct messages *messages, int to)
{
    int failed = 0;

    for (int i = 0; i < flood->n && !failed; i++)
        failed = kolo_isend(group, messages->bytes[i], length_of(flood, i), KOLO_UINT8, to, i,
                            &messages->works[i]);
    return failed ? ranks_fail("isend") : 0;
}

static int take(kolo_group *group, const struct flood *flood, int i, int from)
{
    return letter_take(group, length_of(flood, i), (unsigned)i, from, i);
}

/* Both have the room that they had in the beginning: sends of medium length end before their
 * receives. Over a wire what the system takes is little. */
static int send_before_receiving(kolo_group *group, int other)
{
    enum { N = 3 };
    int failed =
        letters_held(group) ? ranks_fail("%zu bytes are held for ever", letters_held(group)) : 0;

    failed = failed || kolo_barrier(group);
    for (unsigned i = 0; i < N && !failed; i++)
        failed = letter_post(group, 1000, i, other, (int)i);
    for (unsigned i = N; i-- > 0 && !failed;)
        failed = letter_take(group, 1000, i, other, (int)i);
    return failed;
}

/* ---- one way ------------------------------------------------------------------------------- */

static int reverse(kolo_group *group, void *argument)
{
    const struct flood *flood = argument;
    struct messages messages;
    int failed = 0;

    make_messages(flood, &messages);
    if (kolo_group_rank(group) == 0)
        failed = send_all(group, flood, &messages, 1) || end_works(messages.works, flood->n);
    for (int i = flood->n; kolo_group_rank(group) == 1 && i-- > 0 && !failed;)
        failed = take(group, flood, i, i % 2 ? KOLO_ANY_RANK : 0);
    free_messages(flood, &messages);
    failed = failed || send_before_receiving(group, 1 - kolo_group_rank(group));
    return failed ? ranks_fail("reverse over %s", flood->transport) : 0;
}

/* Receives of all kinds are posted when much has come, in an order of their own; short messages are
 * among the others. */
static int receive_midway(kolo_group *group, void *argument)
{
    const struct flood *flood = argument;
    const int n = flood->n, step = 7; /* no divisor of n */
    struct messages messages;
    kolo_message got;
    int failed = 0;

    make_messages(flood, &messages);
    if (kolo_group_rank(group) == 0) {
        for (int i = 0; i < n && !failed; i++) {
            failed = kolo_isend(group, messages.bytes[i], length_of(flood, i), KOLO_UINT8, 1, i,
                                &messages.works[i]) ||
                     (i % 10 == 0 && letter_post(group, NOTE_BYTES, (unsigned)i, 1, n + i));
        }
        failed = failed || end_works(messages.works, n);
    } else {
        failed = letter_take(group, NOTE_BYTES, 0, 0, n);
        failed = failed || letter_take(group, NOTE_BYTES, (unsigned)(n - 10), 0, n + n - 10);
        for (int i = 0; i < n && !failed; i++) {
            const int tag = i * step % n;

            memset(messages.bytes[tag], 0, length_of(flood, tag));
            failed = kolo_irecv(group, messages.bytes[tag], length_of(flood, tag), KOLO_UINT8,
                                i % 3 ? 0 : KOLO_ANY_RANK, tag, &messages.works[i]);
        }
        failed = failed || end_works(messages.works, n);
        for (int i = 0; i < n && !failed; i++)
            if (!letter_is(messages.bytes[i], length_of(flood, i), (unsigned)i))
                failed = ranks_fail("message %d came wrong", i);
        for (int i = 10; i < n - 10 && !failed; i += 10) {
            unsigned char note[NOTE_BYTES];

            failed = kolo_recv_message(group, note, sizeof note, KOLO_UINT8, KOLO_ANY_RANK,
                                       KOLO_ANY_TAG, &got) ||
                     got.tag != n + i || !letter_is(note, sizeof note, (unsigned)i);
        }
    }
    free_messages(flood, &messages);
    failed = failed || send_before_receiving(group, 1 - kolo_group_rank(group));
    return failed ? ranks_fail("receive_midway over %s", flood->transport) : 0;
}

/* What does not fit its receive is told to a sender that waits, and to one that does not. */
static int misfit(kolo_group *group, void *argument)
{
    const struct flood *flood = argument;
    struct messages messages;
    unsigned char room[10];
    int failed = 0, nrefused = 0;

    make_messages(flood, &messages);
    if (kolo_group_rank(group) == 0) {
        failed = send_all(group, flood, &messages, 1);
        for (int i = 0; i < flood->n && !failed; i++) {
            nrefused += kolo_work_wait(messages.works[i], -1) == KOLO_E_TRUNCATED;
            kolo_work_free(messages.works[i]);
        }
        if (!failed && nrefused < flood->n / 2)
            failed = ranks_fail("%d sends were refused", nrefused);
    }
    for (int i = flood->n; kolo_group_rank(group) == 1 && i-- > 0 && !failed;)
        failed = ranks_expect(kolo_recv(group, room, sizeof room, KOLO_UINT8, 0, i),
                              KOLO_E_TRUNCATED, "the receive room for 10");
    free_messages(flood, &messages);
    return failed ? ranks_fail("misfit over %s", flood->transport) : 0;
}

/* ---- all at once ---------------------------------------------------------------------------- */

/* Every rank to every other and to itself; a word to a sender travels behind much that goes there.
 */
static int crowd(kolo_group *group, void *argument)
{
    const struct flood *flood = argument;
    const int size = kolo_group_size(group), rank = kolo_group_rank(group);
    struct messages messages[3];
    int failed = 0;

    for (int to = 0; to < size; to++) {
        make_messages(flood, &messages[to]);
        failed = failed || send_all(group, flood, &messages[to], to);
    }
    for (int i = flood->n; i-- > 0 && !failed;)
        for (int k = 1; k <= size && !failed; k++)
            failed = take(group, flood, i, (rank + k) % size);
    for (int to = 0; to < size; to++) {
        failed = failed || end_works(messages[to].works, flood->n);
        free_messages(flood, &messages[to]);
    }
    if (size == 2)
        failed = failed || send_before_receiving(group, 1 - rank);
    return failed ? ranks_fail("crowd over %s", flood->transport) : 0;
}

/* ---- leaving --------------------------------------------------------------------------------- */

/* Rank 0 leaves as soon as its sends are complete: what it has asked nobody answers then, and
 * nothing of what it has sent is lost by an answer. */
static int leave(kolo_group *group, const struct flood *flood, int nap_ms)
{
    struct messages messages;
    int failed = 0;

    make_messages(flood, &messages);
    if (kolo_group_rank(group) == 0) {
        failed = send_all(group, flood, &messages, 1) || end_works(messages.works, flood->n) ||
                 letter_post(group, NOTE_BYTES, 1, 1, flood->n);
    } else {
        ranks_nap_ms(nap_ms);
        for (int i = flood->n; i-- > 0 && !failed;)
            failed = take(group, flood, i, 0);
        failed = failed || letter_take(group, NOTE_BYTES, 1, 0, flood->n);
    }
    free_messages(flood, &messages);
    return failed ? ranks_fail("leave over %s", flood->transport) : 0;
}

static int leave_soon(kolo_group *group, void *argument)
{
    return leave(group, argument, 0);
}

static int leave_long_before(kolo_group *group, void *argument)
{
    return leave(group, argument, 800);
}

/* ---- in vain --------------------------------------------------------------------------------- */

/* The time-out says what there was no room in. */
static int wait_in_vain(kolo_group *group, void *argument)
{
    const struct flood *flood = argument;
    struct messages messages;
    unsigned char byte;
    int err = KOLO_OK, failed = 0;

    make_messages(flood, &messages);
    failed = kolo_barrier(group) || kolo_group_set_timeout(group, 500);
    if (!failed && kolo_group_rank(group) == 0) {
        failed = send_all(group, flood, &messages, 1);
        for (int i = 0; i < flood->n && !failed; i++) {
            if (!err)
                err = kolo_work_wait(messages.works[i], -1);
            kolo_work_free(messages.works[i]);
        }
        failed = failed || err != KOLO_E_TIMEOUT ||
                 (!strstr(kolo_last_error(), "its KOLO_UNEXPECTED_BYTES had no room") &&
                  !strstr(kolo_last_error(), "from rank 0"));
    } else if (!failed) {
        failed = kolo_recv(group, &byte, 1, KOLO_UINT8, 0, flood->n) != KOLO_E_TIMEOUT;
    }
    free_messages(flood, &messages);
    return failed ? ranks_fail("wait_in_vain") : 0;
}

/* ---- running --------------------------------------------------------------------------------- */

static void run(const struct flood *flood, ranks_body body, int n)
{
    struct flood copy = *flood;

    setenv("KOLO_TRANSPORT", flood->transport, 1);
    setenv("KOLO_DEBUG", "NONE", 1);
    setenv("KOLO_SLICE_BYTES", flood->slice_bytes, 1);
    setenv("KOLO_SLOTS", flood->slots, 1);
    setenv("KOLO_UNEXPECTED_BYTES", flood->unexpected, 1);
    for (int i = 0; i < 2; i++)
        assert_int_equal(ranks_run(&(struct ranks){.kind = i ? RANKS_PROCESSES : RANKS_THREADS,
                                                   .n = n,
                                                   .timeout_ms = IS_SANITIZED ? 60000 : 20000},
                                   body, &copy),
                         0);
}

static void messages_are_received_in_reverse(void **state)
{
    (void)state;
    run(&shm, reverse, 2);
    run(&rdma, reverse, 2);
    run(&tcp, reverse, 2);
}

static void receives_are_posted_midway(void **state)
{
    (void)state;
    run(&shm, receive_midway, 2);
    run(&rdma, receive_midway, 2);
    run(&tcp, receive_midway, 2);
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    run(&shm, misfit, 2);
    run(&tcp, misfit, 2);
}

static void all_send_to_all(void **state)
{
    const struct flood small_shm = {.transport = "shm",
                                    .slice_bytes = "256",
                                    .slots = "2",
                                    .unexpected = "128K",
                                    .nbytes = 1500,
                                    .n = 100},
                       small_tcp = {.transport = "tcp",
                                    .slice_bytes = "16K",
                                    .slots = "8",
                                    .unexpected = "32M",
                                    .nbytes = 200000,
                                    .n = 250};

    (void)state;
    run(&small_shm, crowd, 1);
    run(&small_shm, crowd, 2);
    run(&small_shm, crowd, 3);
    run(&small_tcp, crowd, 2);
}

static void a_sender_may_leave(void **state)
{
    struct flood few = tcp;

    (void)state;
    few.n = 60;
    run(&few, leave_soon, 2);
    few.n = 10; /* which the system takes, and one of which asks */
    run(&few, leave_long_before, 2);
}

static void the_time_out_names_what_is_full(void **state)
{
    (void)state;
    run(&shm, wait_in_vain, 2);
    run(&tcp, wait_in_vain, 2);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_are_received_in_reverse),
        cmocka_unit_test(receives_are_posted_midway),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(all_send_to_all),
        cmocka_unit_test(a_sender_may_leave),
        cmocka_unit_test(the_time_out_names_what_is_full),
    };

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
