/* SPDX-License-Identifier: MIT
 *
 * How a wait for any rank ends without a message: who is told what when nobody is left to send, or
 * nobody has.
 */
#include "clock.h"
#include "endpoint.h"
#include "group.h"
#include "group_waits.h"
#include "letters.h"
#include "mailbox_parts.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

enum { LONG = 5000 };

/* ---- ranks that leave ---------------------------------------------------------------------- */

/* The others leave one after another, each with a message behind one that nobody asks for. */
static int leave(kolo_group *group, void *argument)
{
    const int n = kolo_group_size(group), rank = kolo_group_rank(group);
    int failed = 0;
    char byte;

    (void)argument;
    if (rank) {
        ranks_nap_ms(20 * rank);
        return letter_post(group, 9, 1, 0, 8) || letter_post(group, 5, 2, 0, 7);
    }
    ranks_nap_ms(20 * n); /* most have gone by now */
    for (int i = 1; i < n && !failed; i++)
        failed = letter_take(group, 5, 2, KOLO_ANY_RANK, 7);
    return failed ||
           ranks_expect(kolo_recv(group, &byte, 1, KOLO_INT8, KOLO_ANY_RANK, 7), KOLO_E_PEER_LOST,
                        "all other ranks have freed their groups") ||
           ranks_expect(kolo_group_error(group, NULL), KOLO_E_PEER_LOST,
                        n == 2 ? "; have freed the group: rank 1; rank 1 has sent one of tag 8, 9 "
                                 "bytes, that is not asked for"
                               : "; have freed the group: rank 1-3; rank 1 has sent one of tag 8");
}

/* A rank that never had a link, and goes, is not missed. */
static int leave_in_silence(kolo_group *group, void *argument)
{
    const int rank = kolo_group_rank(group);

    (void)argument;
    if (rank == 1)
        return 0;
    ranks_nap_ms(60);
    if (rank == 2)
        ranks_nap_ms(60);
    return rank == 0 ? letter_take(group, 5, 2, KOLO_ANY_RANK, 7) : letter_post(group, 5, 2, 0, 7);
}

/* One who has looked for messages, and so begun to open links, goes before they are open, sooner or
 * later: in time for others to have answered. */
static int leave_while_links_open(kolo_group *group, void *argument)
{
    enum { TIMES = 24 };
    const int rank = kolo_group_rank(group);
    kolo_group *groups[TIMES];
    kolo_message message;
    int failed = ranks_duplicate(group, groups, TIMES), found;

    (void)argument;
    if (failed)
        return failed;
    for (int i = 0; i < TIMES && !failed; i++) {
        for (int looks = 0; rank == 0 && looks <= i % 8 && !failed; looks++)
            failed = kolo_probe(groups[i], KOLO_ANY_RANK, 0, 0, &found, &message);
        if (rank == 0) {
            kolo_group_free(groups[i]);
            groups[i] = NULL;
        }
        if (rank == 1)
            failed = letter_take(groups[i], 5, 2, 2, 0);
        if (rank == 2) {
            ranks_nap_ms(1);
            failed = letter_post(groups[i], 5, 2, 1, 0);
        }
        failed = failed ? failed : kolo_barrier(group);
    }
    ranks_free_all(groups, TIMES);
    return failed ? ranks_fail("leave_while_links_open") : 0;
}

/* What rank 0 may do between two turns of a wait: look whether who has not connected has ended. */
static int look_around(kolo_group *group, int peer)
{
    struct ko_mailbox *mailbox = ko_mailbox_existing(group);
    const ko_deadline deadline = ko_deadline_in(20000);
    struct ko_wait wait = {.deadline = &deadline,
                           .peer = peer,
                           .what = "for it",
                           .began_ns = ko_now_ns() - 1000000000};
    int err;

    ko_biased_lock_take(&mailbox->lock);
    err = ko_channel_look_around(&mailbox->channel, &wait);
    ko_biased_lock_give(&mailbox->lock);
    return err;
}

/* Rank 1 takes the link that rank 0 has begun, sends over it, and ends before rank 0 has seen that
 * it is open. */
static int end_behind_a_message(kolo_group *group, void *argument)
{
    const int *peer = argument;
    kolo_message message;
    int found;

    if (kolo_group_rank(group) == 1)
        return letter_post(group, 5, 2, 0, 7);
    if (kolo_probe(group, *peer, 7, 0, &found, &message))
        return ranks_fail("probe");
    while (!ko_endpoint_is_gone(group->endpoint, 1))
        ranks_nap_ms(5);
    if (look_around(group, *peer))
        return ranks_fail("a look around");
    return letter_take(group, 5, 2, *peer, 7);
}

/* The courier attends to a receive of any rank while all but oneself have left. */
static int outstay_the_others(kolo_group *group, void *argument)
{
    enum { ROOM = 8 << 20 }; /* more than fits into the slots */
    const int n = kolo_group_size(group), rank = kolo_group_rank(group);
    unsigned char *room = malloc(ROOM), *mine = letter_make(LONG, 3);
    kolo_work *receiving = NULL;
    kolo_message message;
    int failed = 0;

    (void)argument;
    if (rank)
        failed = letter_post(group, 4, 1, 0, 1);
    for (int i = 1; i < n && !rank && !failed; i++)
        failed = letter_take(group, 4, 1, i, 1);
    if (!rank) {
        failed |= kolo_irecv_message(group, room, ROOM, KOLO_UINT8, KOLO_ANY_RANK, 4, &message,
                                     &receiving);
        ranks_nap_ms(100); /* until they have gone */
        failed |= kolo_send(group, mine, LONG, KOLO_UINT8, 0, 4);
        failed |= kolo_work_wait(receiving, -1);
        failed |= letter_expect(&message, 0, 4, LONG) || !letter_is(room, LONG, 3);
        kolo_work_free(receiving);
    }
    free(mine);
    free(room);
    return failed ? ranks_fail("outstay_the_others") : 0;
}

static void those_who_leave_are_not_waited_for(void **state)
{
    (void)state;
    letters_run(2, leave);
    letters_run(4, leave);
    letters_run(3, leave_in_silence);
    letters_run(3, leave_while_links_open);
    letters_run(2, outstay_the_others);
    letters_run(3, outstay_the_others);
}

static void last_words_are_heard(void **state)
{
    static const char *const transports[] = {"shm", "tcp"}; /* over RDMA both ends open at once */
    int peers[] = {KOLO_ANY_RANK, 1};

    (void)state;
    for (int i = 0; i < 4; i++) {
        letters_set(transports[i / 2], false);
        assert_int_equal(ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = 2},
                                   end_behind_a_message, &peers[i % 2]),
                         0);
    }
}

/* ---- time-outs and aborts ------------------------------------------------------------------ */

static int wait_too_long(kolo_group *group, void *argument)
{
    char byte;
    int err;

    (void)argument;
    if (kolo_barrier(group) || kolo_group_set_timeout(group, 300))
        return ranks_fail("set_timeout");
    if (kolo_group_rank(group) == 0) {
        err = kolo_recv(group, &byte, 1, KOLO_UINT8, KOLO_ANY_RANK, 2);
    } else {
        ranks_nap_ms(600);
        err = kolo_barrier(group);
    }
    return ranks_expect(err, KOLO_E_TIMEOUT,
                        "rank 0 waited 300 ms for a message of tag 2 from any rank");
}

static int abort_the_wait(kolo_group *group, void *argument)
{
    char byte;

    (void)argument;
    if (kolo_group_rank(group) == 1) {
        ranks_nap_ms(30);
        kolo_group_abort(group, "enough");
        return 0;
    }
    return ranks_expect(kolo_recv(group, &byte, 1, KOLO_UINT8, KOLO_ANY_RANK, KOLO_ANY_TAG),
                        KOLO_E_ABORTED, "enough");
}

/* The same for one who only asks. */
static int abort_who_asks(kolo_group *group, void *argument)
{
    int found = 0, done = 0, err = letter_post(group, 1, 1, 1 - kolo_group_rank(group), 1);
    char bytes[2] = {0};
    kolo_message message;
    kolo_work *work;

    (void)argument;
    err |= letter_take(group, 1, 1, 1 - kolo_group_rank(group), 1);
    if (err || kolo_irecv(group, bytes, 2, KOLO_INT8, KOLO_ANY_RANK, 2, &work))
        return ranks_fail("abort_who_asks");
    if (kolo_group_rank(group) == 1) {
        ranks_nap_ms(30);
        kolo_group_abort(group, "enough");
    }
    while (!err && !done)
        err = kolo_work_test(work, &done);
    kolo_work_free(work);
    for (int i = 0; i < 2 && !found && err == KOLO_E_ABORTED; i++)
        err = kolo_probe(group, KOLO_ANY_RANK, 3, 0, &found, &message);
    return ranks_expect(err, KOLO_E_ABORTED, "enough");
}

static void waits_end(void **state)
{
    (void)state;
    letters_run(2, wait_too_long);
    letters_run(3, abort_the_wait);
    letters_run(2, abort_who_asks);
}

/* ---- ranks that die ------------------------------------------------------------------------ */

/* Rank 1 dies after it has sent something; everybody waits for anybody. */
static int die(kolo_group *group, void *argument)
{
    const int rank = kolo_group_rank(group);
    kolo_message message;
    int found;

    if (rank == 1 && (letter_post(group, 4, 1, 0, 1) || letter_take(group, 4, 1, 0, 2)))
        return 1;
    if (rank == 1)
        raise(SIGKILL);
    if (rank == 0 && (letter_take(group, 4, 1, KOLO_ANY_RANK, 1) || letter_post(group, 4, 1, 1, 2)))
        return 1;
    if (argument)
        return ranks_expect(kolo_probe(group, KOLO_ANY_RANK, 3, -1, &found, &message),
                            KOLO_E_PEER_LOST, "rank 1 (");
    return ranks_expect(kolo_recv(group, &found, 1, KOLO_INT32, KOLO_ANY_RANK, 3), KOLO_E_PEER_LOST,
                        "rank 1 (");
}

/* Rank 1 dies before it has a link, while it is only one of those who may send. */
static int die_unmet(kolo_group *group, void *argument)
{
    const int rank = kolo_group_rank(group);

    (void)argument;
    if (rank == 1)
        raise(SIGKILL);
    if (rank == 2) {
        ranks_nap_ms(800); /* until its end has been seen */
        return letter_post(group, 4, 1, 0, 1);
    }
    if (letter_take(group, 4, 1, KOLO_ANY_RANK, 1))
        return 1;
    return ranks_expect(kolo_send(group, &rank, 1, KOLO_INT32, 1, 3), KOLO_E_PEER_LOST,
                        "rank 1 (") |
           ranks_expect(kolo_send(group, &rank, 1, KOLO_INT32, 1, 3), KOLO_E_PEER_LOST,
                        "it ended, or freed its group, before it had connected");
}

/* Until the ranks from `first` on have waited for so long that the store knows; then this one's
 * waits end soon. */
static int let_others_leave_word(kolo_group *group, int first)
{
    struct ko_waits_word words[4];

    for (int i = first; i < kolo_group_size(group);) {
        if (!ko_waits_read(group, words))
            return ranks_fail("the store does not tell");
        if (words[i].what != KO_WAITS_NOT)
            i++;
        else
            ranks_nap_ms(20);
    }
    return kolo_group_set_timeout(group, 100) ? ranks_fail("set_timeout") : 0;
}

/* Rank 1 dies as before, and nobody sends; rank 2 waits itself. */
static int wait_beside_the_dead(kolo_group *group, void *argument)
{
    const int rank = kolo_group_rank(group);
    char byte;

    (void)argument;
    if (rank == 1)
        raise(SIGKILL);
    if (rank == 0 && let_others_leave_word(group, 2))
        return 1;
    return ranks_expect(
        kolo_recv(group, &byte, 1, KOLO_INT8, rank ? 0 : KOLO_ANY_RANK, rank ? 5 : 6),
        KOLO_E_TIMEOUT,
        "rank 0 waited 100 ms for a message of tag 6 from any rank; ended, or freed the group, "
        "before they had connected: rank 1; rank 2 waits for a message of tag 5 from rank 0; "
        "KOLO_TIMEOUT_MS");
}

/* Rank 1 dies as before; rank 0, which is waited for, does not come. */
static int wait_in_vain_beside_the_dead(kolo_group *group, void *argument)
{
    const int rank = kolo_group_rank(group);
    kolo_message message;
    int found;
    char byte;

    (void)argument;
    if (rank == 1)
        raise(SIGKILL);
    if (rank == 0) {
        ranks_nap_ms(1500);
        return 0;
    }
    if (kolo_probe(group, KOLO_ANY_RANK, 0, 0, &found, &message) ||
        kolo_group_set_timeout(group, 700))
        return ranks_fail("wait_in_vain_beside_the_dead");
    return ranks_expect(kolo_recv(group, &byte, 1, KOLO_INT8, 0, 5), KOLO_E_TIMEOUT,
                        "; processes that have ended: rank 1; KOLO_TIMEOUT_MS");
}

/* Rank 1 dies behind a link that rank 0 has begun, and over which nothing has come. */
static int lose_a_silent_one(kolo_group *group, void *argument)
{
    const int rank = kolo_group_rank(group);
    const int64_t began_ns = ko_now_ns();
    kolo_message message;
    int found;
    char byte;

    (void)argument;
    if (rank == 1) {
        (void)kolo_probe(group, 0, 5, 300, &found, &message);
        raise(SIGKILL);
    }
    return ranks_expect_soon(began_ns,
                             kolo_recv(group, &byte, 1, KOLO_INT8, rank ? 0 : KOLO_ANY_RANK, 6),
                             KOLO_E_PEER_LOST, "rank 1 (");
}

/* All wait for anybody. */
static int wait_for_anybody(kolo_group *group, void *argument)
{
    char byte;

    (void)argument;
    if (kolo_group_rank(group) == 0 && let_others_leave_word(group, 1))
        return 1;
    return ranks_expect(kolo_recv(group, &byte, 1, KOLO_INT8, KOLO_ANY_RANK, 6), KOLO_E_TIMEOUT,
                        "rank 0 waited 100 ms for a message of tag 6 from any rank; wait for a "
                        "message: rank 1-3; KOLO_TIMEOUT_MS");
}

/* The others have gone. */
static int outlive_all(kolo_group *group, void *argument)
{
    char byte;

    (void)argument;
    if (kolo_group_rank(group))
        raise(SIGKILL);
    return ranks_expect(kolo_recv(group, &byte, 1, KOLO_INT8, KOLO_ANY_RANK, 6), KOLO_E_PEER_LOST,
                        "all other ranks have freed their groups or ended, while rank 0 waits for "
                        "a message of tag 6 from any; ended, or freed the group, before they had "
                        "connected: rank 1, 2");
}

static void who_does_not_send_is_told(void **state)
{
    static const char *const transports[] = {"shm", "rdma", "tcp"};
    struct ranks ranks = {.kind = RANKS_PROCESSES, .n = 3, .tolerated = 1};

    (void)state;
    for (int i = 0; i < 3; i++) {
        letters_set(transports[i], true);
        ranks.tolerated = 1;
        assert_int_equal(ranks_run(&ranks, wait_beside_the_dead, NULL), 0);
        assert_int_equal(ranks_run(&ranks, wait_in_vain_beside_the_dead, NULL), 0);
        assert_int_equal(ranks_run(&ranks, lose_a_silent_one, NULL), 0);
        ranks.tolerated = 2;
        assert_int_equal(ranks_run(&ranks, outlive_all, NULL), 0);
    }
    letters_set("shm", true);
    assert_int_equal(
        ranks_run(&(struct ranks){.kind = RANKS_THREADS, .n = 4}, wait_for_anybody, NULL), 0);
}

static void the_dead_are_named(void **state)
{
    static const char *const transports[] = {"shm", "rdma", "tcp"};

    (void)state;
    for (int i = 0; i < 6; i++) {
        letters_set(transports[i % 3], true);
        assert_int_equal(ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = 3, .tolerated = 1},
                                   die, i / 3 ? &i : NULL),
                         0);
        assert_int_equal(ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = 3, .tolerated = 1},
                                   die_unmet, NULL),
                         0);
    }
}
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(those_who_leave_are_not_waited_for),
        cmocka_unit_test(last_words_are_heard),
        cmocka_unit_test(waits_end),
        cmocka_unit_test(the_dead_are_named),
        cmocka_unit_test(who_does_not_send_is_told),
    };

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
