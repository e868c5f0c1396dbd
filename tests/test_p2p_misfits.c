/* SPDX-License-Identifier: MIT
 *
 * Messages that are too long for their receives, or of another dtype: an error on both sides, at
 * once or, of a message that was complete before, later.
 */
#include "letters.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- of messages that are complete before their receives ------------------------------------- */

/* Rank 0: a call that has done what it was to may say that rank 1 has refused an earlier message.
 */
static int hear_of_earlier(int err, int status, const char *text, int *nheard)
{
    *nheard += err != KOLO_OK;
    return err ? ranks_expect(err, status, text) : 0;
}

/* Rank 0, which has heard so often before: once is right. */
static int listen_to_one(kolo_group *group, int nheard, int status, const char *text)
{
    unsigned char byte, is_over = 0;
    int failed = 0;

    while (!is_over && !failed) {
        byte = 0;
        failed |=
            hear_of_earlier(kolo_recv(group, &byte, 1, KOLO_UINT8, 1, 5), status, text, &nheard);
        failed |= byte != 1 ? ranks_fail("a message did not come") : 0;
        is_over = nheard > 0;
        failed |=
            hear_of_earlier(kolo_send(group, &is_over, 1, KOLO_UINT8, 1, 6), status, text, &nheard);
    }
    if (!failed && nheard != 1)
        failed = ranks_fail("%d calls said that a message was refused", nheard);
    return failed;
}

/* Rank 1, until rank 0 has heard: over shared memory a message may be faster than the word that was
 * sent before it. */
static int talk_to_zero(kolo_group *group)
{
    const unsigned char byte = 1;
    unsigned char is_over = 0;
    int failed = 0;

    while (!is_over && !failed)
        failed = kolo_send(group, &byte, 1, KOLO_UINT8, 0, 5) ||
                 kolo_recv(group, &is_over, 1, KOLO_UINT8, 0, 6);
    return failed ? ranks_fail("rank 0 does not hear") : 0;
}

/* Each is an error of its message, and of no other. Of those that are refused before rank 1 sends
 * anything, rank 0 hears of the first. */
static int misfit(kolo_group *group, void *argument)
{
    kolo_message message;
    unsigned char room[40];
    float floats[3] = {0};
    int found, failed = 0;

    (void)argument;
    memset(room, 0x5a, sizeof room);
    if (kolo_group_rank(group) == 0) {
        failed = letter_post(group, 41, 1, 1, 1) || letter_post(group, 12, 3, 1, 3) ||
                 letter_post(group, 12, 4, 1, 4);
        return failed || listen_to_one(group, 0, KOLO_E_TRUNCATED,
                                       "an earlier message of tag 1 to rank 1 was longer than its "
                                       "receive, which had room for 40 bytes");
    }
    failed |= kolo_probe(group, 0, 4, -1, &found, &message); /* it hears of none before all */
    failed |=
        ranks_expect(kolo_recv(group, room, 40, KOLO_UINT8, KOLO_ANY_RANK, 1), KOLO_E_TRUNCATED,
                     "the message of tag 1 from rank 0 has 41 bytes, the receive room for 40");
    failed |=
        ranks_expect(kolo_recv(group, floats, 3, KOLO_FLOAT32, 0, 3), KOLO_E_MISMATCH,
                     "rank 0 sent the message of tag 3 as uint8, rank 1 receives it as float32");
    for (size_t i = 0; i < sizeof room; i++)
        failed |= room[i] != 0x5a;
    failed |= letter_take(group, 12, 4, 0, 4);
    return failed || talk_to_zero(group);
}

/* The receive takes any tag; rank 0 hears which it was. */
static int misfit_of_dtype(kolo_group *group, void *argument)
{
    float floats[3];

    (void)argument;
    if (kolo_group_rank(group) == 0)
        return letter_post(group, 12, 3, 1, 3) ||
               listen_to_one(group, 0, KOLO_E_MISMATCH,
                             "rank 1 received an earlier message of tag 3 as float32");
    return ranks_expect(kolo_recv(group, floats, 3, KOLO_FLOAT32, 0, KOLO_ANY_TAG), KOLO_E_MISMATCH,
                        "rank 1 receives it as float32") ||
           talk_to_zero(group);
}

/* Both sides are one rank, whose receive has told it. */
static int misfit_to_oneself(kolo_group *group, void *argument)
{
    unsigned char room[40];

    (void)argument;
    return letter_post(group, 41, 1, 0, 1) ||
           ranks_expect(kolo_recv(group, room, 40, KOLO_UINT8, 0, 1), KOLO_E_TRUNCATED,
                        "has 41 bytes, the receive room for 40") ||
           letter_post(group, 12, 2, 0, 2) || letter_take(group, 12, 2, 0, 2);
}

/* A message of nbytes that does not fit: who receives a short one behind it has been told. */
static int send_a_misfit(kolo_group *group, size_t nbytes)
{
    unsigned char *bytes = letter_make(nbytes, 1), byte = 0;
    int nheard = 0, failed = !bytes;

    failed = failed ||
             hear_of_earlier(kolo_send(group, bytes, nbytes, KOLO_UINT8, 1, 1), KOLO_E_TRUNCATED,
                             "message of tag 1 to rank 1", &nheard) ||
             hear_of_earlier(kolo_recv(group, &byte, 1, KOLO_UINT8, 1, 5), KOLO_E_TRUNCATED,
                             "an earlier message of tag 1 to rank 1 was longer than its receive, "
                             "which had room for 0 bytes",
                             &nheard) ||
             letter_post(group, 1, 6, 1, 6);
    free(bytes);
    return failed || (nheard == 1 && byte == 7)
               ? failed
               : ranks_fail("%zu bytes too many were told %d times", nbytes, nheard);
}

/* Whether it is told at once, as of a message of several slices, or before the next message. */
static int misfit_before_a_message(kolo_group *group, void *argument)
{
    enum { TIMES = 20 };
    const unsigned char seven = 7;
    int failed = 0;

    (void)argument;
    for (int i = 0; i < TIMES && !failed; i++) {
        const size_t nbytes = i % 2 ? 1 : LETTERS_SLOTS * LETTERS_SLICE_BYTES;

        if (kolo_group_rank(group) == 0)
            failed = send_a_misfit(group, nbytes);
        else
            failed = ranks_expect(kolo_recv(group, NULL, 0, KOLO_UINT8, 0, 1), KOLO_E_TRUNCATED,
                                  "the receive room for 0") ||
                     kolo_send(group, &seven, 1, KOLO_UINT8, 0, 5) ||
                     letter_take(group, 1, 6, 0, 6);
    }
    return failed;
}

/* A receiver that gives up says why. */
static int misfit_before_the_end(kolo_group *group, void *argument)
{
    unsigned char byte;

    (void)argument;
    if (kolo_group_rank(group) == 1)
        return ranks_expect(kolo_recv(group, &byte, 1, KOLO_UINT8, 0, 1), KOLO_E_TRUNCATED,
                            "has 41 bytes, the receive room for 1");
    return letter_post(group, 41, 1, 1, 1) ||
           ranks_expect(kolo_recv(group, &byte, 1, KOLO_UINT8, 1, 2), KOLO_E_TRUNCATED,
                        " has freed its group, while rank 0 waits for it: an earlier message of "
                        "tag 1 to rank 1 was longer than its receive");
}

/* A sender that has left hears of nothing, and what else it has sent is not lost by a word to it.
 */
static int misfit_of_one_that_left(kolo_group *group, void *argument)
{
    unsigned char byte;
    int failed;

    (void)argument;
    if (kolo_group_rank(group) == 0)
        return letter_post(group, 41, 1, 1, 1) || letter_post(group, 12, 2, 1, 2) ||
               kolo_barrier(group);
    failed = kolo_barrier(group);
    ranks_nap_ms(60);
    return failed ||
           ranks_expect(kolo_recv(group, &byte, 1, KOLO_UINT8, 0, 1), KOLO_E_TRUNCATED,
                        "has 41 bytes, the receive room for 1") ||
           letter_take(group, 12, 2, 0, 2);
}

/* No call of rank 0's says what it has heard: a probe finds what is behind the word. */
static int misfit_without_a_call(kolo_group *group, void *argument)
{
    kolo_message message;
    unsigned char byte;
    int found = 0;

    (void)argument;
    if (kolo_group_rank(group) == 1)
        return ranks_expect(kolo_recv(group, &byte, 1, KOLO_UINT8, 0, 1), KOLO_E_TRUNCATED,
                            "has 41 bytes, the receive room for 1") ||
               letter_post(group, 1, 5, 0, 5);
    return letter_post(group, 41, 1, 1, 1) || kolo_probe(group, 1, 5, -1, &found, &message) ||
           !found;
}

/* Nor does rank 0 make any call between the word and its leaving; rank 1's comes when it leaves. */
static int misfit_before_nothing(kolo_group *group, void *argument)
{
    unsigned char room[10];

    (void)argument;
    if (kolo_group_rank(group) == 1)
        return ranks_expect(kolo_recv(group, room, 10, KOLO_UINT8, 0, 1), KOLO_E_TRUNCATED,
                            "has 200 bytes, the receive room for 10");
    if (letter_post(group, 200, 1, 1, 1))
        return 1;
    ranks_nap_ms(200);
    return kolo_group_error(group, NULL);
}

/* And there is a message before the word, which nobody receives. */
static int misfit_behind_a_message(kolo_group *group, void *argument)
{
    return (kolo_group_rank(group) == 1 && letter_post(group, 12, 2, 0, 2)) ||
           misfit_before_nothing(group, argument);
}

/* Nor is there more than a barrier before it leaves, at which rank 1 comes when it has said it. */
static int misfit_before_a_barrier(kolo_group *group, void *argument)
{
    unsigned char room[10];

    (void)argument;
    if (kolo_group_rank(group) == 0)
        return letter_post(group, 200, 1, 1, 1) || kolo_barrier(group);
    return ranks_expect(kolo_recv(group, room, 10, KOLO_UINT8, 0, 1), KOLO_E_TRUNCATED,
                        "has 200 bytes, the receive room for 10") ||
           kolo_barrier(group);
}

static void misfits_are_errors_of_the_message(void **state)
{
    (void)state;
    letters_run(2, misfit);
    letters_run(2, misfit_of_dtype);
    letters_run(2, misfit_before_a_message);
    letters_run(2, misfit_before_the_end);
    letters_run(2, misfit_of_one_that_left);
    letters_run(1, misfit_to_oneself);
}

static void expect_logged(const char *transport, ranks_body body, const char *line)
{
    char log[1 << 14];

    letters_set(transport, true);
    assert_int_equal(ranks_run_logged(2, body, log, sizeof log), 0);
    if (!strstr(log, line))
        fail_msg("over %s the log has: %s", transport, log);
}

static void what_no_call_has_said_is_logged(void **state)
{
    enum { TIMES = 8 };
    static const char *const transports[] = {"shm", "tcp"};
    static const char line[] = "WARN an earlier message of tag 1 to rank 1 was longer than its "
                               "receive, which had room for 10 bytes";

    (void)state;
    expect_logged("tcp", misfit_without_a_call,
                  "WARN an earlier message of tag 1 to rank 1 was longer than its receive, which "
                  "had room for 1 bytes");
    for (int i = 0; i < 2; i++) {
        expect_logged(transports[i], misfit_before_nothing, line);
        expect_logged(transports[i], misfit_behind_a_message, line);
    }
    for (int i = 0; i < TIMES; i++)
        expect_logged("shm", misfit_before_a_barrier, line);
}

/* ---- of several slices: the rest may be on its way when the message is refused, or not ------- */

static int send_slices(kolo_group *group)
{
    const unsigned char bytes[3000] = {0};
    int nheard = 0;

    return letter_take(group, 0, 0, 1, 8) ||
           hear_of_earlier(
               kolo_send(group, bytes, sizeof bytes, KOLO_UINT8, 1, 2), KOLO_E_TRUNCATED,
               "the message of tag 2 to rank 1 has 3000 bytes, the receive room for 40", &nheard) ||
           listen_to_one(group, nheard, KOLO_E_TRUNCATED,
                         "an earlier message of tag 2 to rank 1 was longer");
}

static int refuse_slices(kolo_group *group, bool is_posted_first)
{
    unsigned char room[40];
    kolo_work *work;
    int failed = is_posted_first ? 0 : letter_post(group, 0, 0, 0, 8);

    if (!is_posted_first)
        ranks_nap_ms(20);
    failed |= kolo_irecv(group, room, 40, KOLO_UINT8, 0, 2, &work);
    if (is_posted_first)
        failed |= letter_post(group, 0, 0, 0, 8);
    failed |=
        ranks_expect(kolo_work_wait(work, -1), KOLO_E_TRUNCATED,
                     "the message of tag 2 from rank 0 has 3000 bytes, the receive room for 40");
    failed |= !strstr(kolo_work_error(work), "the receive room for 40");
    kolo_work_free(work);
    return failed || talk_to_zero(group);
}

static int slices_before_receive(kolo_group *group, void *argument)
{
    (void)argument;
    return kolo_group_rank(group) ? refuse_slices(group, false) : send_slices(group);
}

static int receive_before_slices(kolo_group *group, void *argument)
{
    (void)argument;
    return kolo_group_rank(group) ? refuse_slices(group, true) : send_slices(group);
}

static void misfits_of_several_slices(void **state)
{
    (void)state;
    letters_run(2, slices_before_receive);
    letters_run(2, receive_before_slices);
}

/* ---- with no eager bytes a send waits for its receive, so that it can fail, too ------------- */

/* Sends one byte that no receive waits for until rank 1 has been told to. */
static int send_before_its_receive(kolo_group *group)
{
    kolo_work *work;
    int done, failed = kolo_isend(group, "x", 1, KOLO_UINT8, 1, 7, &work);

    ranks_nap_ms(20);
    failed |= kolo_work_test(work, &done);
    failed |= done ? ranks_fail("a send was complete before its receive") : 0;
    failed |= letter_post(group, 0, 0, 1, 8) || kolo_work_wait(work, -1);
    kolo_work_free(work);
    return failed;
}

static int send_misfits(kolo_group *group)
{
    const unsigned char bytes[41] = {0};
    int failed =
        ranks_expect(kolo_send(group, bytes, 41, KOLO_UINT8, 1, 1), KOLO_E_TRUNCATED,
                     "the message of tag 1 to rank 1 has 41 bytes, the receive room for 40");

    failed |=
        ranks_expect(kolo_send(group, bytes, 12, KOLO_UINT8, 1, 3), KOLO_E_MISMATCH,
                     "rank 0 sends the message of tag 3 as uint8, rank 1 receives it as float32");
    failed |= ranks_expect(kolo_send(group, bytes, 0, KOLO_UINT8, 1, 4), KOLO_E_MISMATCH,
                           "rank 0 sends the message of tag 4 as uint8");
    return failed;
}

/* The first message comes before or after its receive, the others find theirs. */
static int receive_misfits(kolo_group *group, bool is_late)
{
    unsigned char room[40];
    float floats[3];
    kolo_work *works[3];
    int failed = 0;

    if (is_late)
        ranks_nap_ms(20);
    failed |= kolo_irecv(group, room, 40, KOLO_UINT8, 0, 1, &works[0]);
    failed |= kolo_irecv(group, floats, 3, KOLO_FLOAT32, KOLO_ANY_RANK, 3, &works[1]);
    failed |= kolo_irecv(group, floats, 0, KOLO_FLOAT32, 0, 4, &works[2]);
    failed |= ranks_expect(kolo_work_wait(works[0], -1), KOLO_E_TRUNCATED, "room for 40");
    for (int i = 1; i < 3; i++)
        failed |= ranks_expect(kolo_work_wait(works[i], -1), KOLO_E_MISMATCH, "float32");
    for (int i = 0; i < 3; i++)
        kolo_work_free(works[i]);
    return failed;
}

static int misfit_on_both_sides(kolo_group *group, void *argument)
{
    char byte;
    int failed = 0;

    (void)argument;
    for (int is_late = 0; is_late < 2 && !failed; is_late++)
        failed = kolo_group_rank(group) ? receive_misfits(group, is_late) : send_misfits(group);
    if (failed || kolo_group_rank(group) == 0)
        return failed || send_before_its_receive(group);
    return letter_take(group, 0, 0, 0, 8) || kolo_recv(group, &byte, 1, KOLO_UINT8, 0, 7);
}

static void without_eager_bytes_both_sides_fail(void **state)
{
    (void)state;
    setenv("KOLO_EAGER_BYTES", "0", 1);
    letters_run(2, misfit_on_both_sides);
    unsetenv("KOLO_EAGER_BYTES");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_no_call_has_said_is_logged), /* first: a process opens one log */
        cmocka_unit_test(misfits_are_errors_of_the_message),
        cmocka_unit_test(misfits_of_several_slices),
        cmocka_unit_test(without_eager_bytes_both_sides_fail),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
