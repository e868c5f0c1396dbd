/* SPDX-License-Identifier: MIT
 *
 * Messages that come before their receives: long ones step aside, short ones take memory up to a
 * bound; and those that do not fit the receive that gets them.
 */
#include "fault.h"
#include "letters.h"
#include "mailbox_parts.h"
#include "sanitized.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* More than a socket takes in. */
/* UNASKED: what half of a link's slots carry, all that goes before the peer's word comes. */
enum { VAST = (IS_SANITIZED ? 32 : 96) << 20, MUCH = 24 << 20, UNASKED = 8 << 20, LONG = 100000 };

static void set_limits(const char *eager, const char *unexpected)
{
    setenv("KOLO_EAGER_BYTES", eager, 1);
    setenv("KOLO_UNEXPECTED_BYTES", unexpected, 1);
}

static int unset_limits(void **state)
{
    (void)state;
    unsetenv("KOLO_EAGER_BYTES");
    unsetenv("KOLO_UNEXPECTED_BYTES");
    return 0;
}

/* As letters_run, with the usual slots: what is much goes faster. Ranks that are to die are
 * processes; ThreadSanitizer sees no more of others that are. */
static void run_much(ranks_body body, int tolerated)
{
    for (int i = tolerated ? 2 : 0; i < (HAS_TSAN && !tolerated ? 2 : 4); i++) {
        const struct ranks ranks = {
            .kind = i / 2 ? RANKS_PROCESSES : RANKS_THREADS, .n = 2, .tolerated = tolerated};

        letters_set(i % 2 ? "tcp" : "shm", false);
        assert_int_equal(ranks_run(&ranks, body, NULL), 0);
    }
}

static int finish(kolo_work *work)
{
    int err = kolo_work_wait(work, -1);

    kolo_work_free(work);
    return err;
}

/* ---- aside --------------------------------------------------------------------------------- */

/* Long ones in front of a short one that is wanted; they are received in another order, and by
 * ranks and tags of all kinds. */
static int overtake(kolo_group *group, void *argument)
{
    static const int order[] = {2, 0, 3, 1};
    const int other = 1 - kolo_group_rank(group);
    unsigned char *bytes[4];
    kolo_work *works[4];
    int failed = 0;

    (void)argument;
    for (unsigned i = 0; i < 4; i++) {
        bytes[i] = letter_make(LONG + i, i);
        failed |= kolo_isend(group, bytes[i], LONG + i, KOLO_UINT8, other, (int)i, &works[i]);
    }
    failed |= letter_post(group, 10, 9, other, 9);
    failed |= letter_take(group, 10, 9, other, 9);
    for (unsigned i = 0; i < 4 && !failed; i++)
        failed = letter_take(group, LONG + (size_t)order[i], (unsigned)order[i],
                             i % 2 ? KOLO_ANY_RANK : other, order[i]);
    for (int i = 0; i < 4; i++) {
        failed |= finish(works[i]);
        free(bytes[i]);
    }
    if (!failed && letters_held(group))
        failed = ranks_fail("%zu bytes are held for ever", letters_held(group));
    return failed ? ranks_fail("overtake") : 0;
}

/* Of what is not asked for no more is kept than was on its way. */
static int keep_little(kolo_group *group, void *argument)
{
    enum { N = 6 };
    unsigned char *bytes = letter_make(MUCH, 1);
    kolo_work *works[N];
    int failed = 0;

    (void)argument;
    for (int i = 0; i < N && kolo_group_rank(group) == 0; i++)
        failed |= kolo_isend(group, bytes, MUCH, KOLO_UINT8, 1, i, &works[i]);
    if (kolo_group_rank(group) == 0) {
        failed |= letter_post(group, 10, 9, 1, 9);
        for (int i = 0; i < N; i++)
            failed |= finish(works[i]);
    } else {
        failed |= letter_take(group, 10, 9, 0, 9);
        if (letters_held(group) > MUCH)
            failed |= ranks_fail("%zu bytes are held", letters_held(group));
        for (int i = N; i-- > 0 && !failed;)
            failed = kolo_recv(group, bytes, MUCH, KOLO_UINT8, KOLO_ANY_RANK, i) ||
                     !letter_is(bytes, MUCH, 1);
    }
    free(bytes);
    return failed ? ranks_fail("keep_little") : 0;
}

/* Both ways at once, where a word to the sender travels behind much that is sent to it. */
static int keep_little_both_ways(kolo_group *group, void *argument)
{
    const int other = 1 - kolo_group_rank(group);
    unsigned char *bytes = letter_make(VAST, 3), *got = malloc(VAST);
    kolo_work *work;
    int failed = 0;

    (void)argument;
    failed |= kolo_isend(group, bytes, VAST, KOLO_UINT8, other, 1, &work);
    failed |= letter_post(group, 1, 1, other, 2) || letter_take(group, 1, 1, other, 2);
    if (letters_held(group) > UNASKED)
        failed |= ranks_fail("%zu bytes are held", letters_held(group));
    failed |= kolo_recv(group, got, VAST, KOLO_UINT8, other, 1) || !letter_is(got, VAST, 3);
    failed |= finish(work);
    free(bytes);
    free(got);
    return failed ? ranks_fail("keep_little_both_ways") : 0;
}

/* One rank's own. */
static int overtake_oneself(kolo_group *group, void *argument)
{
    const int rank = kolo_group_rank(group);
    unsigned char *bytes = letter_make(LONG, 4), *got = calloc(1, LONG);
    kolo_work *works[3];
    int failed = 0;

    (void)argument;
    for (int i = 0; i < 2; i++)
        failed |= kolo_isend(group, bytes, LONG, KOLO_UINT8, rank, i, &works[i]);
    failed |= kolo_isend(group, bytes, 5, KOLO_UINT8, rank, 9, &works[2]);
    failed |= letter_take(group, 5, 4, rank, 9);
    for (int i = 2; i-- > 0;)
        failed |= letter_take(group, LONG, 4, KOLO_ANY_RANK, i);
    for (int i = 0; i < 3; i++)
        failed |= finish(works[i]);
    free(bytes);
    free(got);
    return failed || letters_held(group) ? ranks_fail("overtake_oneself") : 0;
}

static void long_messages_step_aside(void **state)
{
    static const char *const eager[] = {"1", "3000", "1M"};

    (void)state;
    for (int i = 0; i < 3; i++) {
        set_limits(eager[i], "64M");
        letters_run(2, overtake);
        letters_run(1, overtake_oneself);
    }
    set_limits("64K", "64M");
    run_much(keep_little, 0);
    run_much(keep_little_both_ways, 0);
}

/* A probe finds what lies aside, and leaves it there. */
static int ask_for_the_long_one(kolo_group *group, void *argument)
{
    unsigned char *bytes = letter_make(MUCH, 7);
    kolo_message message;
    kolo_work *work;
    int found, failed = 0;

    (void)argument;
    if (kolo_group_rank(group) == 0) {
        failed = kolo_isend(group, bytes, MUCH, KOLO_UINT8, 1, 1, &work);
        failed |= letter_post(group, 1, 1, 1, 2);
        failed |= finish(work);
    } else {
        failed = letter_take(group, 1, 1, 0, 2);
        failed |= kolo_probe(group, KOLO_ANY_RANK, 1, -1, &found, &message);
        failed |= !found || message.count != MUCH || letters_held(group) > MUCH;
        failed |= kolo_irecv(group, bytes, MUCH, KOLO_UINT8, 0, 1, &work);
        failed |= finish(work) || !letter_is(bytes, MUCH, 7);
    }
    free(bytes);
    return failed ? ranks_fail("ask_for_the_long_one") : 0;
}

static void probes_find_what_lies_aside(void **state)
{
    (void)state;
    set_limits("64K", "64M");
    run_much(ask_for_the_long_one, 0);
}

/* As if the last receipt to rank 0 were still on its way out, or had left. */
static void keep_receipts(kolo_group *group, bool are_kept)
{
    struct ko_mailbox *mailbox = atomic_load(&group->mailbox);

    ko_biased_lock_take(&mailbox->lock);
    mailbox->channel.ports[0].link->control[KO_FRAME_TAKEN]->post.is_queued = are_kept;
    ko_biased_lock_give(&mailbox->lock);
}

/* Rank 1 has received all, and frees its group before rank 0 has been told. */
static int leave_before_the_receipt(kolo_group *group, void *argument)
{
    int failed = 0;

    (void)argument;
    if (kolo_group_rank(group) == 0)
        return letter_post(group, LONG, 1, 1, 1) || letter_post(group, 0, 0, 1, 2) ||
               letter_post(group, LONG, 2, 1, 3);
    failed = letter_take(group, LONG, 1, 0, 1) || letter_take(group, 0, 0, 0, 2);
    if (failed)
        return failed;
    keep_receipts(group, true);
    failed = letter_take(group, LONG, 2, 0, 3);
    keep_receipts(group, false);
    return failed;
}

static void receipts_come_before_the_end(void **state)
{
    (void)state;
    set_limits("64K", "64M");
    for (int i = 0; i < 2; i++) {
        letters_set("tcp", true);
        assert_int_equal(
            ranks_run(&(struct ranks){.kind = i ? RANKS_PROCESSES : RANKS_THREADS, .n = 2},
                      leave_before_the_receipt, NULL),
            0);
    }
}

/* A send that lies aside ends with the group: by a time-out, an abort, or the peer's death. */
static int end_aside(kolo_group *group, int how)
{
    const bool sends = kolo_group_rank(group) == 0;
    unsigned char *bytes = letter_make(VAST, 7);
    kolo_work *work;
    int failed = 0, err;

    if (sends) {
        failed |= kolo_isend(group, bytes, VAST, KOLO_UINT8, 1, 1, &work);
        failed |= letter_post(group, 1, 1, 1, 2) || letter_take(group, 1, 1, 1, 3);
    } else {
        failed |= kolo_irecv(group, bytes, VAST, KOLO_UINT8, 0, 4, &work);
        failed |= letter_take(group, 1, 1, 0, 2) || letter_post(group, 1, 1, 0, 3);
        failed |= how && letter_take(group, 1, 1, 0, 5); /* then rank 0 has taken that */
    }
    failed |= sends && how && letter_post(group, 1, 1, 1, 5);
    failed |= kolo_group_set_timeout(group, how == 0 && sends ? 300 : 10000);
    if (how == 1 && !sends)
        kolo_group_abort(group, "enough");
    if (how == 2 && !sends)
        raise(SIGKILL);
    err = kolo_work_wait(work, -1);
    if (how == 0)
        failed |= err != KOLO_E_TIMEOUT;
    if (how == 1)
        failed |= ranks_expect(err, KOLO_E_ABORTED, "enough");
    if (how == 2)
        failed |= ranks_expect(err, KOLO_E_PEER_LOST, "rank 1 (");
    kolo_work_free(work);
    free(bytes);
    return failed ? ranks_fail("end_aside %d: status %d", how, err) : 0;
}

static int run_out_of_time(kolo_group *group, void *argument)
{
    (void)argument;
    return end_aside(group, 0);
}

static int abort_aside(kolo_group *group, void *argument)
{
    (void)argument;
    return end_aside(group, 1);
}

static int die_aside(kolo_group *group, void *argument)
{
    (void)argument;
    return end_aside(group, 2);
}

/* The time-out of a send that nobody receives says why it waits. */
static int send_in_vain(kolo_group *group, void *argument)
{
    unsigned char *bytes = letter_make(MUCH, 7);
    int err, failed;

    (void)argument;
    if (kolo_barrier(group) || kolo_group_set_timeout(group, 400))
        return ranks_fail("set_timeout");
    if (kolo_group_rank(group) == 0)
        err = kolo_send(group, bytes, MUCH, KOLO_UINT8, 1, 1);
    else
        err = kolo_recv(group, bytes, 1, KOLO_UINT8, 0, 2);
    failed = err != KOLO_E_TIMEOUT;
    if (kolo_group_rank(group) == 0)
        failed |=
            (!strstr(kolo_last_error(), "send a message of tag 1, longer than KOLO_EAGER_BYTES") ||
             !strstr(kolo_last_error(), "; rank 1 waits for a message of tag 2 from rank 0; ")) &&
            (!strstr(kolo_last_error(), "for a message of tag 2 from rank 0") ||
             !strstr(kolo_last_error(), "; rank 0 has sent one of tag 1, "));
    free(bytes);
    return failed ? ranks_fail("send_in_vain: %d", err) : 0;
}

static void sends_that_lie_aside_end(void **state)
{
    (void)state;
    set_limits("64K", "64M");
    run_much(run_out_of_time, 0);
    run_much(abort_aside, 0);
    run_much(send_in_vain, 0);
    run_much(die_aside, 1);
}

/* ---- the bound ----------------------------------------------------------------------------- */

/* Too many short ones, even empty ones. */
static int flood(kolo_group *group, size_t nbytes)
{
    unsigned char *bytes = letter_make(nbytes, 0);
    int err = KOLO_OK;

    for (int i = 0; i < 2000 && kolo_group_rank(group) == 0 && !err; i++)
        err = kolo_send(group, bytes, nbytes, KOLO_UINT8, 1, 1);
    if (!err)
        err = kolo_recv(group, bytes, 1, KOLO_UINT8, 1 - kolo_group_rank(group), 2);
    free(bytes);
    return ranks_expect(err, KOLO_E_NOMEM, "KOLO_UNEXPECTED_BYTES (10240) allows") ||
           ranks_expect(err, KOLO_E_NOMEM, "rank 1 holds") ||
           ranks_expect(err, KOLO_E_NOMEM, "from rank 0 is more than") ||
           ranks_expect(err, KOLO_E_NOMEM, "the one of tag 1 and");
}

static int flood_with_short_ones(kolo_group *group, void *argument)
{
    (void)argument;
    return flood(group, 100);
}

static int flood_with_empty_ones(kolo_group *group, void *argument)
{
    (void)argument;
    return flood(group, 0);
}

static void what_comes_unasked_is_bounded(void **state)
{
    (void)state;
    set_limits("64M", "10K");
    letters_run(2, flood_with_short_ones);
    letters_run(2, flood_with_empty_ones);
}

/* No memory for the word that the sender of what lies aside is to get: that is the end of the
 * group, and of the receive posted before, for which nobody else would come. */
static int lack_a_word(kolo_group *group, void *argument)
{
    unsigned char *bytes = letter_make(LONG, 1), byte;
    const kolo_p2p ops[] = {{0, 0, 3, KOLO_UINT8, 1, &byte, NULL},
                            {0, 0, 1, KOLO_UINT8, LONG, bytes, NULL}};
    const char *text;
    kolo_work *work;
    int err, failed;

    (void)argument;
    if (kolo_group_rank(group) == 0) {
        failed = kolo_isend(group, bytes, LONG, KOLO_UINT8, 1, 1, &work);
        failed = failed || letter_post(group, 10, 9, 1, 2);
        err = finish(work);
    } else {
        failed = letter_take(group, 10, 9, 0, 2);
        ko_fault_arm(KO_FAULT_ALLOC, 2); /* behind the batch's own letters */
        err = kolo_batch(group, ops, 2);
        ko_fault_arm(KO_FAULT_ALLOC, 0);
    }
    free(bytes);
    return failed || ranks_expect(err, KOLO_E_NOMEM, "no memory for a word to a peer") ||
           kolo_group_error(group, &text) != KOLO_E_NOMEM;
}

static void lack_of_memory_ends_the_group(void **state)
{
    (void)state;
    set_limits("64K", "64M");
    for (int i = 0; i < 2; i++) {
        letters_set(i ? "tcp" : "shm", true);
        assert_int_equal(
            ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = 2}, lack_a_word, NULL), 0);
    }
}

/* ---- refused ------------------------------------------------------------------------------- */

static int all_are(const unsigned char *bytes, size_t nbytes, unsigned char value)
{
    for (size_t i = 0; i < nbytes; i++)
        if (bytes[i] != value)
            return 0;
    return 1;
}

/* Room for less, or for another dtype, before, while and after the message steps aside. */
static int refuse(kolo_group *group, bool is_posted_first)
{
    unsigned char *bytes = letter_make(MUCH, 7), room[400];
    kolo_work *works[3];
    int failed = 0;

    memset(room, 0x5a, sizeof room);
    if (kolo_group_rank(group) == 0) {
        if (is_posted_first)
            failed |= letter_take(group, 0, 0, 1, 8);
        for (int i = 0; i < 3; i++)
            failed |= kolo_isend(group, bytes, MUCH, KOLO_UINT8, 1, i, &works[i]);
        failed |= letter_post(group, 0, 0, 1, 9);
        failed |=
            ranks_expect(kolo_work_wait(works[0], -1), KOLO_E_TRUNCATED,
                         "the message of tag 0 to rank 1 has 25165824 bytes, the receive room for "
                         "400");
        failed |=
            ranks_expect(kolo_work_wait(works[1], -1), KOLO_E_MISMATCH,
                         "rank 0 sends the message of tag 1 as uint8, rank 1 receives it as int8");
        failed |= kolo_work_wait(works[2], -1);
        for (int i = 0; i < 3; i++)
            kolo_work_free(works[i]);
    } else {
        if (!is_posted_first)
            failed |= letter_take(group, 0, 0, 0, 9);
        failed |= kolo_irecv(group, room, 400, KOLO_UINT8, 0, 0, &works[0]);
        failed |= kolo_irecv(group, bytes, MUCH, KOLO_INT8, KOLO_ANY_RANK, 1, &works[1]);
        memset(bytes, 0x5a, MUCH);
        if (is_posted_first)
            failed |= letter_post(group, 0, 0, 0, 8) || letter_take(group, 0, 0, 0, 9);
        failed |= ranks_expect(finish(works[0]), KOLO_E_TRUNCATED, "the receive room for 400");
        failed |= ranks_expect(finish(works[1]), KOLO_E_MISMATCH, "receives it as int8");
        failed |= !all_are(room, 400, 0x5a) || !all_are(bytes, MUCH, 0x5a);
        failed |= kolo_recv(group, bytes, MUCH, KOLO_UINT8, 0, 2) || !letter_is(bytes, MUCH, 7);
        failed |= letters_held(group) != 0;
    }
    free(bytes);
    return failed ? ranks_fail("refuse") : 0;
}

static int refuse_what_lies_aside(kolo_group *group, void *argument)
{
    (void)argument;
    return refuse(group, false);
}

static int refuse_at_once(kolo_group *group, void *argument)
{
    (void)argument;
    return refuse(group, true);
}

static void refusals_fail_both_sides(void **state)
{
    (void)state;
    set_limits("64K", "64M");
    run_much(refuse_what_lies_aside, 0);
    run_much(refuse_at_once, 0);
}

/* ---- malformed words ----------------------------------------------------------------------- */

static void words_of_peers_are_not_trusted(void **state)
{
    struct ko_desk desk = {.rank = 0};
    struct ko_correspondence with = {.desk = &desk, .peer = 1, .sent = 3};
    struct ko_link link = {.peer = 1};
    struct ko_letter letter = {.seq = 2, .nbytes = 10, .dtype = KOLO_INT8, .is_send = true};
    const struct ko_stamp good = {
        .seq = 2, .count = 9, .what = KO_POINT_TO_POINT, .dtype = KOLO_INT8};
    struct ko_stamp bad[5], early = good;

    (void)state;
    early.seq = 1;
    for (int i = 0; i < 5; i++)
        bad[i] = good;
    bad[0].seq = 0;
    bad[1].seq = 4;
    bad[2].what = 3;
    for (int i = 0; i < 3; i++)
        for (int kind = KO_FRAME_ASIDE; kind <= KO_FRAME_REFUSE; kind++)
            assert_int_equal(
                ko_correspondence_hear(&with, &link, (enum ko_frame_kind)kind, &bad[i]),
                KOLO_E_PROTOCOL);
    with.sending.first = with.sending.last = &letter;
    assert_int_equal(ko_correspondence_hear(&with, &link, KO_FRAME_ASIDE, &good), KOLO_OK);
    assert_ptr_equal(with.sending.first, &letter); /* not begun: it is not the peer's to say */
    assert_int_equal(ko_correspondence_hear(&with, &link, KO_FRAME_REFUSE, &good), KOLO_E_PROTOCOL);
    assert_int_equal(ko_correspondence_hear(&with, &link, KO_FRAME_REFUSE, &early), KOLO_OK);
    assert_int_equal(with.refused.seq, 1); /* complete before, as a third one, which comes later */
    early.seq = 3;
    assert_int_equal(ko_correspondence_hear(&with, &link, KO_FRAME_REFUSE, &early), KOLO_OK);
    assert_int_equal(with.refused.seq, 1);
    early.dtype = 99;
    assert_int_equal(ko_correspondence_hear(&with, &link, KO_FRAME_REFUSE, &early),
                     KOLO_E_PROTOCOL);
    letter.has_begun = true;
    bad[3].count = 10;
    bad[4].dtype = 99;
    for (int i = 3; i < 5; i++)
        assert_int_equal(ko_correspondence_hear(&with, &link, KO_FRAME_REFUSE, &bad[i]),
                         KOLO_E_PROTOCOL);
    for (int i = 0; i < 2; i++) { /* twice: harmless */
        assert_int_equal(ko_correspondence_hear(&with, &link, KO_FRAME_ASIDE, &good), KOLO_OK);
        assert_ptr_equal(with.aside.first, &letter);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ko_correspondence_hear(&with, &link, KO_FRAME_RESUME, &good), KOLO_OK);
        assert_ptr_equal(with.sending.first, &letter);
    }
    assert_int_equal(ko_correspondence_hear(&with, &link, KO_FRAME_REFUSE, &good), KOLO_OK);
    assert_ptr_equal(with.flushing.first, &letter);
    assert_null(with.sending.first);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(long_messages_step_aside, unset_limits),
        cmocka_unit_test_teardown(probes_find_what_lies_aside, unset_limits),
        cmocka_unit_test_teardown(receipts_come_before_the_end, unset_limits),
        cmocka_unit_test_teardown(sends_that_lie_aside_end, unset_limits),
        cmocka_unit_test_teardown(what_comes_unasked_is_bounded, unset_limits),
        cmocka_unit_test_teardown(lack_of_memory_ends_the_group, unset_limits),
        cmocka_unit_test_teardown(refusals_fail_both_sides, unset_limits),
        cmocka_unit_test(words_of_peers_are_not_trusted),
    };

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
