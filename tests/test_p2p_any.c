/* SPDX-License-Identifier: MIT
 *
 * Receives that take any rank or any tag, what they say they got, and probes.
 */
#include "group.h"
#include "letters.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- any rank ------------------------------------------------------------------------------ */

/* Every rank sends its number as often as it says; rank 0 gets all of them, its own too. */
static int collect(kolo_group *group, void *argument)
{
    const int n = kolo_group_size(group), rank = kolo_group_rank(group);
    int from[8] = {0}, value[3], failed = 0;
    kolo_message message;
    kolo_work *works[8];

    (void)argument;
    for (int i = 0; i <= rank; i++)
        failed |= kolo_isend(group, &rank, 1, KOLO_INT32, 0, rank + 10, &works[i]);
    for (int i = 0; rank == 0 && i < n * (n + 1) / 2 && !failed; i++) {
        failed |=
            kolo_recv_message(group, value, 3, KOLO_INT32, KOLO_ANY_RANK, KOLO_ANY_TAG, &message);
        failed |= letter_expect(&message, value[0], value[0] + 10, 1);
        failed |= message.dtype != KOLO_INT32;
        from[message.from]++;
    }
    for (int i = 0; i <= rank; i++) {
        failed |= kolo_work_wait(works[i], -1);
        kolo_work_free(works[i]);
    }
    for (int r = 0; rank == 0 && r < n; r++)
        if (from[r] != r + 1)
            failed |= ranks_fail("%d messages of rank %d", from[r], r);
    return failed ? ranks_fail("collect") : 0;
}

static void any_rank_is_heard(void **state)
{
    (void)state;
    letters_run(1, collect);
    letters_run(2, collect);
    letters_run(4, collect);
}

/* Of what matches, the receive that was posted first gets the message that was sent first. */
static int match_in_order(kolo_group *group, void *argument)
{
    static const int from[] = {KOLO_ANY_RANK, 1, KOLO_ANY_RANK, 1, KOLO_ANY_RANK, 1};
    static const int tags[] = {2, KOLO_ANY_TAG, KOLO_ANY_TAG, 2, 1, 1};
    static const int got[] = {2, 0, 1, 5, 3, 4}; /* of the messages below */
    static const int sent[] = {1, 1, 2, 1, 1, 2};
    int values[6], failed = 0;
    kolo_message messages[6];
    kolo_work *works[6];

    (void)argument;
    if (kolo_group_rank(group) == 1) {
        failed |= letter_take(group, 0, 0, 0, 0);
        for (int i = 0; i < 6; i++)
            failed |= kolo_send(group, &i, 1, KOLO_INT32, 0, sent[i]);
        return failed;
    }
    for (int i = 0; i < 6; i++)
        failed |= kolo_irecv_message(group, &values[i], 1, KOLO_INT32, from[i], tags[i],
                                     &messages[i], &works[i]);
    failed |= letter_post(group, 0, 0, 1, 0);
    for (int i = 0; i < 6; i++) {
        failed |= kolo_work_wait(works[i], -1);
        kolo_work_free(works[i]);
        if (!failed && values[i] != got[i])
            failed = ranks_fail("receive %d got message %d instead of %d", i, values[i], got[i]);
        failed = failed ? failed : letter_expect(&messages[i], 1, sent[got[i]], 1);
    }
    return failed;
}

/* Of two messages that nobody asked for the one that came first is received first. Each comes when
 * rank 0 has asked for it to be sent, and waits in front of another that rank 0 asks for. */
static int keep_in_order(kolo_group *group, void *argument)
{
    static const int order[] = {2, 1, 1, 2};
    const int rank = kolo_group_rank(group);
    int value, failed = 0;

    (void)argument;
    for (int i = 0; i < 4 && !failed; i++) {
        if (rank == order[i])
            failed = letter_take(group, 0, 0, 0, 4) || kolo_send(group, &i, 1, KOLO_INT32, 0, 1) ||
                     letter_post(group, 0, 0, 0, 5);
        if (rank == 0)
            failed = letter_post(group, 0, 0, order[i], 4) || letter_take(group, 0, 0, order[i], 5);
    }
    for (int i = 0; i < 4 && rank == 0 && !failed; i++)
        if (kolo_recv(group, &value, 1, KOLO_INT32, KOLO_ANY_RANK, 1) || value != i)
            failed = ranks_fail("message %d came instead of %d", value, i);
    return failed;
}

/* A receive that names the sender does not overtake an earlier one that takes any. */
static int name_the_sender_later(kolo_group *group, void *argument)
{
    int32_t go = 0, first = 0, second = 0;
    const int32_t one = 1, two = 2;
    kolo_work *work;

    (void)argument;
    if (kolo_group_rank(group) == 1)
        return kolo_recv(group, &go, 1, KOLO_INT32, 0, 4) ||
               kolo_send(group, &one, 1, KOLO_INT32, 0, 5) ||
               kolo_send(group, &two, 1, KOLO_INT32, 0, 5);
    if (kolo_irecv(group, &first, 1, KOLO_INT32, KOLO_ANY_RANK, 5, &work))
        return ranks_fail("irecv");
    if (kolo_send(group, &go, 1, KOLO_INT32, 1, 4) ||
        kolo_recv(group, &second, 1, KOLO_INT32, 1, 5) || kolo_work_wait(work, -1))
        return ranks_fail("%s", kolo_last_error());
    kolo_work_free(work);
    return first == 1 && second == 2 ? 0 : ranks_fail("%d came first", first);
}

static void who_was_first_is_first(void **state)
{
    (void)state;
    letters_run(2, name_the_sender_later);
    letters_run(2, match_in_order);
    letters_run(3, keep_in_order);
}

enum { LONG = 5000 };

/* Both ends of a long message are posted by one thread of one rank, either first. */
static int talk_to_oneself(kolo_group *group, void *argument)
{
    const int rank = kolo_group_rank(group);
    unsigned char *sent = letter_make(LONG, 3), *got = calloc(1, LONG);
    kolo_message message;
    int failed = 0;

    (void)argument;
    for (int i = 0; i < 2; i++) {
        kolo_work *works[2] = {NULL};

        memset(got, 0, LONG);
        if (i)
            failed |= kolo_irecv_message(group, got, LONG, KOLO_UINT8, KOLO_ANY_RANK, KOLO_ANY_TAG,
                                         &message, &works[1]);
        failed |= kolo_isend(group, sent, LONG, KOLO_UINT8, rank, 4, &works[0]);
        if (!i)
            failed |= kolo_irecv_message(group, got, LONG, KOLO_UINT8, KOLO_ANY_RANK, KOLO_ANY_TAG,
                                         &message, &works[1]);
        for (int k = 0; k < 2; k++) {
            failed |= kolo_work_wait(works[k], -1);
            kolo_work_free(works[k]);
        }
        failed |= letter_expect(&message, rank, 4, LONG) || !letter_is(got, LONG, 3);
    }
    free(sent);
    free(got);
    return failed ? ranks_fail("talk_to_oneself") : 0;
}

static void any_rank_may_be_oneself(void **state)
{
    (void)state;
    letters_run(1, talk_to_oneself);
    letters_run(3, talk_to_oneself);
}

/* A batch says for each of its receives what it got; ranks are those of the sub-group. */
static int exchange_in_a_subgroup(kolo_group *world, void *argument)
{
    const int ranks[] = {2, 0, 1};
    int mine, values[3] = {0}, seen = 0, failed = 0;
    kolo_message messages[3];
    kolo_p2p ops[6];
    kolo_group *group;

    (void)argument;
    if (kolo_group_new(world, ranks, 3, &group))
        return ranks_fail("group_new");
    mine = kolo_group_rank(group);
    for (int i = 0; i < 3; i++) {
        ops[i] = (kolo_p2p){1, i, 7, KOLO_INT32, 1, &mine, NULL};
        ops[3 + i] = (kolo_p2p){0, KOLO_ANY_RANK, 7, KOLO_INT32, 1, &values[i], &messages[i]};
    }
    failed = kolo_batch(group, ops, 6) ? ranks_fail("batch") : 0;
    for (int i = 0; i < 3 && !failed; i++) {
        failed = letter_expect(&messages[i], values[i], 7, 1);
        seen |= 1 << values[i];
    }
    kolo_group_free(group);
    return failed || seen != 7 ? ranks_fail("seen %d", seen) : 0;
}

static void batches_say_what_they_got(void **state)
{
    (void)state;
    letters_run(3, exchange_in_a_subgroup);
}

/* Nothing but test is called, before any link is open. */
static int only_test(kolo_group *group, void *argument)
{
    const int other = 1 - kolo_group_rank(group);
    int value = 0, mine = other, done = 0, failed;
    kolo_work *work, *sending;

    failed = kolo_irecv(group, &value, 1, KOLO_INT32, argument ? KOLO_ANY_RANK : other, 1, &work);
    failed |= kolo_isend(group, &mine, 1, KOLO_INT32, other, 1, &sending);
    while (!failed && !done)
        failed = kolo_work_test(work, &done);
    failed |= value != 1 - other;
    kolo_work_free(work);
    for (done = 0; !failed && !done;)
        failed = kolo_work_test(sending, &done);
    kolo_work_free(sending);
    return failed ? ranks_fail("only_test: %d", value) : 0;
}

/* Only rank 1 waits; rank 0 has nothing but a receive, which it tests. */
static int only_test_a_receive(kolo_group *group, void *argument)
{
    unsigned char bytes[4] = {0};
    int done = 0, failed;
    kolo_work *work;

    (void)argument;
    if (kolo_group_rank(group) == 1)
        return letter_post(group, 4, 1, 0, 1);
    failed = kolo_irecv(group, bytes, 4, KOLO_UINT8, 1, 1, &work);
    while (!failed && !done)
        failed = kolo_work_test(work, &done);
    kolo_work_free(work);
    return failed || !letter_is(bytes, 4, 1) ? ranks_fail("only_test_a_receive") : 0;
}

static int only_test_of_any(kolo_group *group, void *argument)
{
    (void)argument;
    return only_test(group, &group);
}

static void testing_alone_gets_on(void **state)
{
    (void)state;
    letters_run(2, only_test);
    letters_run(2, only_test_of_any);
    letters_run(2, only_test_a_receive);
}

/* ---- probes -------------------------------------------------------------------------------- */

/* Lengths that the receiver does not know, long ones too; in and behind what nobody asks for. */
static int ask_first(kolo_group *group, void *argument)
{
    static const size_t lengths[] = {0, 3, 256, 1000, 40000};
    enum { N = sizeof lengths / sizeof *lengths };
    const int rank = kolo_group_rank(group);
    kolo_message message;
    kolo_work *works[N];
    unsigned char *bytes[N];
    int found, failed = 0;

    (void)argument;
    for (unsigned i = 0; rank == 1 && i < N; i++) {
        bytes[i] = letter_make(lengths[i], i);
        failed |= kolo_isend(group, bytes[i], lengths[i], KOLO_UINT8, 0, (int)i, &works[i]);
    }
    for (int i = N; rank == 0 && i-- > 0 && !failed;) {
        const int from = i % 2 ? 1 : KOLO_ANY_RANK;

        for (int k = 0; k < 2 && !failed; k++) /* it stays */
            failed = kolo_probe(group, from, i, -1, &found, &message) || found != 1 ||
                     letter_expect(&message, 1, i, lengths[i]) || message.dtype != KOLO_UINT8;
        failed |= kolo_probe(group, from, 99, i % 3, &found, &message) || found;
        failed |= letter_take(group, message.count, (unsigned)i, message.from, message.tag);
    }
    for (unsigned i = 0; rank == 1 && i < N; i++) {
        failed |= kolo_work_wait(works[i], -1);
        kolo_work_free(works[i]);
        free(bytes[i]);
    }
    return failed ? ranks_fail("ask_first") : 0;
}

/* Asks again and again, before any link is open; then nothing but test. */
static int ask_without_waiting(kolo_group *group, void *argument)
{
    kolo_message message;
    int found = 0, failed = 0;

    (void)argument;
    if (kolo_group_rank(group) == 0) {
        ranks_nap_ms(20);
        return letter_post(group, 700, 5, 1, 3);
    }
    while (!found && !failed)
        failed = kolo_probe(group, KOLO_ANY_RANK, KOLO_ANY_TAG, 0, &found, &message);
    failed |= letter_expect(&message, 0, 3, 700);
    return failed || letter_take(group, 700, 5, 0, 3);
}

static int ask_oneself(kolo_group *group, void *argument)
{
    const int rank = kolo_group_rank(group);
    kolo_message message = {-5, -5, KOLO_INT8, 5};
    float values[2] = {1, 2};
    kolo_work *work;
    int found = 7, failed;

    (void)argument;
    failed = kolo_probe(group, rank, 1, 0, &found, &message) || found || message.from != -5;
    failed |= kolo_isend(group, values, 2, KOLO_FLOAT32, rank, 1, &work);
    failed |= kolo_probe(group, KOLO_ANY_RANK, 1, 0, &found, &message) || found != 1;
    failed |= letter_expect(&message, rank, 1, 2) || message.dtype != KOLO_FLOAT32;
    failed |= kolo_recv(group, values, 2, KOLO_FLOAT32, rank, 1) || kolo_work_wait(work, -1);
    kolo_work_free(work);
    return failed ? ranks_fail("ask_oneself") : 0;
}

/* What a probe finds among what has come before is no work that would be unfinished: who then frees
 * its group has freed it, and aborts nothing. */
static int ask_and_leave(kolo_group *group, void *argument)
{
    kolo_message message;
    int found;
    char byte;

    if (kolo_group_rank(group) == 1)
        return letter_take(group, 2, 2, 0, 2) ||
               kolo_probe(group, argument ? KOLO_ANY_RANK : 0, 1, -1, &found, &message) || !found ||
               letter_expect(&message, 0, 1, 5);
    if (letter_post(group, 5, 1, 1, 1) || letter_post(group, 2, 2, 1, 2))
        return 1;
    return ranks_expect(kolo_recv(group, &byte, 1, KOLO_INT8, 1, 3), KOLO_E_PEER_LOST,
                        "has freed its group, while rank 0 waits for it");
}

static int ask_for_any_and_leave(kolo_group *group, void *argument)
{
    (void)argument;
    return ask_and_leave(group, &group);
}

/* Nor is what a probe has not found. */
static int ask_in_vain_and_leave(kolo_group *group, void *argument)
{
    kolo_message message;
    int found;
    char byte;

    (void)argument;
    if (kolo_group_rank(group) == 1)
        return letter_take(group, 2, 2, 0, 2) || kolo_probe(group, 0, 1, 0, &found, &message) ||
               found || kolo_probe(group, KOLO_ANY_RANK, KOLO_ANY_TAG, 1, &found, &message) ||
               found;
    return letter_post(group, 2, 2, 1, 2) ||
           ranks_expect(kolo_recv(group, &byte, 1, KOLO_INT8, 1, 3), KOLO_E_PEER_LOST,
                        "has freed its group, while rank 0 waits for it");
}

static int ask_wrongly(kolo_group *group, void *argument)
{
    kolo_message message;
    int found;

    (void)argument;
    return ranks_expect(kolo_probe(NULL, 0, 0, 0, &found, &message), KOLO_E_INVALID,
                        "group is NULL") ||
           ranks_expect(kolo_probe(group, 4, 0, 0, &found, &message), KOLO_E_INVALID,
                        "the sender is rank 4") ||
           ranks_expect(kolo_probe(group, 0, -2, 0, &found, &message), KOLO_E_INVALID,
                        "kolo_probe: the tag is -2") ||
           ranks_expect(kolo_probe(group, 0, 0, 0, NULL, &message), KOLO_E_INVALID,
                        "found is NULL") ||
           ranks_expect(kolo_probe(group, 0, 0, 0, &found, NULL), KOLO_E_INVALID,
                        "message is NULL") ||
           ranks_expect(kolo_send(group, NULL, 0, KOLO_INT8, KOLO_ANY_RANK, 0), KOLO_E_INVALID,
                        "the receiver is rank -1") ||
           ranks_expect(kolo_send(group, NULL, 0, KOLO_INT8, 0, KOLO_ANY_TAG), KOLO_E_INVALID,
                        "the tag is -1");
}

static void probes_say_what_a_receive_would_get(void **state)
{
    (void)state;
    letters_run(2, ask_first);
    letters_run(2, ask_without_waiting);
    letters_run(1, ask_oneself);
    letters_run(2, ask_and_leave);
    letters_run(2, ask_for_any_and_leave);
    letters_run(2, ask_in_vain_and_leave);
    letters_run(1, ask_wrongly);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_rank_is_heard),
        cmocka_unit_test(who_was_first_is_first),
        cmocka_unit_test(any_rank_may_be_oneself),
        cmocka_unit_test(batches_say_what_they_got),
        cmocka_unit_test(testing_alone_gets_on),
        cmocka_unit_test(probes_say_what_a_receive_would_get),
    };

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
