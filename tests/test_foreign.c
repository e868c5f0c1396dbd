/* SPDX-License-Identifier: MIT
 *
 * Ordinary memory that peers read out of each other's processes: every collective and message is
 * what it is through slots, whether the system permits it or not, a send ends before its receive
 * has been posted, and who dies ends the group with an error.
 */
#include "algorithms.h"
#include "exam.h"
#include "fault.h"
#include "foreign.h"
#include "foreign_needs.h"
#include "ranks.h"
#include "sanitized.h"
#include "window.h"

#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cmocka.h>

enum { SLICE_BYTES = 32 << 10, COUNT = HAS_TSAN ? 33331 : 100003 };

/* Whether a link of the channel is read by its peer. */
static bool is_read(struct ko_channel *channel, int n)
{
    for (int i = 0; i < n; i++) {
        struct ko_link *link = channel->ports ? channel->ports[i].link : NULL;

        if (link && link->outbox && link->outbox->reading)
            return true;
    }
    return false;
}

static int take_all(kolo_group *group)
{
    int failed = 0;

    for (int i = 0; i < KO_NCOLLECTIVES && !failed; i++) {
        const enum ko_collective what = (enum ko_collective)i;

        for (unsigned how = 0; how < (exam_can_be_uneven(what) ? 5 : 4) && !failed; how++)
            failed = exam_take(group, &(struct exam){.what = what,
                                                     .dtype = KOLO_FLOAT32,
                                                     .count = COUNT,
                                                     .is_in_place = how & 1,
                                                     .is_async = how & 2,
                                                     .is_uneven = how == 4,
                                                     .shift = how % 4});
    }
    return failed;
}

static int pass_messages(kolo_group *group)
{
    const int n = kolo_group_size(group), rank = kolo_group_rank(group);
    const int next = (rank + 1) % n, last = (rank + n - 1) % n;
    unsigned char *out = malloc(COUNT), *in = malloc(COUNT);
    int failed = !out || !in;

    for (int i = 0; i < 20 && !failed; i++) {
        memset(out, 16 * rank + i, COUNT);
        failed = kolo_sendrecv(group, out, COUNT, next, in, COUNT, last, KOLO_UINT8, i) != 0;
        if (!failed && (in[0] != 16 * last + i || memcmp(in, in + 1, COUNT - 1) != 0))
            failed = ranks_fail("message %d has other bytes", i);
    }
    free(out);
    free(in);
    return failed;
}

/* The invitations are heard while somebody waits: at the latest here. */
static int use_everything(kolo_group *group, void *argument)
{
    const bool *is_permitted = argument;
    const int n = kolo_group_size(group);
    int failed = 0;

    if (!*is_permitted)
        ko_fault_arm(KO_FAULT_FOREIGN, 1);
    for (int i = 0; i < 200 && !failed && (i < 2 || !is_read(&group->collectives, n)); i++) {
        failed = take_all(group);
        failed = failed ? failed : pass_messages(group);
    }
    if (!failed && *is_permitted && !is_read(&group->collectives, n))
        failed = ranks_fail("nobody reads here");
    return failed;
}

static void everything_between_processes(void **state)
{
    bool is_permitted = true;

    (void)state;
    SKIP_PROCESSES_UNDER_TSAN(); /* everything_with_many_slots has some */
    set_variables("inline,cma");
    needs_permission();
    for (int n = IS_SANITIZED ? 3 : 2; n <= 3; n++)
        assert_int_equal(ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = n}, use_everything,
                                   &is_permitted),
                         0);
}

/* As it is by default: both ways at first, and then the one that is sooner here. */
static void both_ways_at_first(void **state)
{
    const enum ranks_kind kinds[] = {RANKS_PROCESSES, RANKS_THREADS};
    bool is_permitted = true;

    (void)state;
    set_variables("inline,try-cma");
    needs_permission();
    needs_two_cores();
    for (int i = 0; i < 2; i++)
        assert_int_equal(
            ranks_run(&(struct ranks){.kind = kinds[i], .n = 2}, use_everything, &is_permitted), 0);
}

/* With slots enough for several slices of a block to be left at once. */
static void everything_with_many_slots(void **state)
{
    const enum ranks_kind kinds[] = {RANKS_PROCESSES, RANKS_THREADS};
    bool is_permitted = true;

    (void)state;
    set_variables("inline,cma");
    setenv("KOLO_SLOTS", "8", 1);
    needs_permission();
    for (int i = 0; i < 2; i++)
        assert_int_equal(
            ranks_run(&(struct ranks){.kind = kinds[i], .n = 2}, use_everything, &is_permitted), 0);
}

static void everything_between_threads(void **state)
{
    bool is_permitted = true;

    (void)state;
    set_variables("inline,cma");
    assert_int_equal(
        ranks_run(&(struct ranks){.kind = RANKS_THREADS, .n = 3}, use_everything, &is_permitted),
        0);
}

/* Whether this rank has found out, of any length, what is sooner for slices that are reduced. */
static bool has_compared(kolo_group *group)
{
    const struct ko_link *link = group->collectives.ports[1 - kolo_group_rank(group)].link;
    const uint64_t lengths = (UINT64_C(1) << KO_FOREIGN_LENGTHS) - 1;

    return link->inbox && link->inbox->reading & lengths
                                                     << (KO_FOREIGN_KNOWN + 2 * KO_FOREIGN_LENGTHS);
}

/* Memory that is touched for the first time is not counted, and so none that is mapped anew; nor
 * what a rank without a core has come too late to read: beside load many calls may say nothing. */
static int reduce_often(kolo_group *group, void *what)
{
    enum { MOST = 20000, FEW = 20003 };
    int32_t have = 0;
    bool has = false;
    int failed = 0;

    for (unsigned i = 0; i < MOST && !failed && !have; i++) {
        failed = exam_take(group, &(struct exam){.what = *(const enum ko_collective *)what,
                                                 .dtype = KOLO_INT32,
                                                 .op = KOLO_SUM,
                                                 .count = FEW,
                                                 .seed = i,
                                                 .is_in_place = i & 1});
        has |= has_compared(group);
        have = has;
        failed = failed ? failed : kolo_all_reduce(group, &have, &have, 1, KOLO_INT32, KOLO_MIN);
    }
    return failed || have ? failed : ranks_fail("not everybody has compared the ways");
}

/* Slices that are reduced where they lie: both ways at first, too. */
static void what_is_reduced_is_compared(void **state)
{
    enum ko_collective whats[] = {KO_ALL_REDUCE, KO_REDUCE_SCATTER};

    (void)state;
    SKIP_PROCESSES_UNDER_TSAN();
    set_variables("inline,try-cma");
    needs_permission();
    needs_two_cores();
    for (int i = 0; i < 2; i++)
        assert_int_equal(
            ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = 2}, reduce_often, &whats[i]),
            0);
}

static int use_slots(kolo_group *group, void *argument)
{
    int failed = take_all(group);

    (void)argument;
    failed = failed ? failed : pass_messages(group);
    if (!failed && is_read(&group->collectives, kolo_group_size(group)))
        failed = ranks_fail("memory is read that was not to be");
    return failed;
}

static int use_slots_by_force(kolo_group *group, void *argument)
{
    ko_fault_arm(KO_FAULT_FOREIGN, 1);
    return use_slots(group, argument);
}

static int want_it_alone(int rank, void *argument)
{
    (void)argument;
    return setenv("KOLO_PROTO", rank ? "simple" : "cma", 1) != 0;
}

static void slots_where_it_is_forbidden_or_not_wanted(void **state)
{
    struct ranks ranks = {.kind = RANKS_PROCESSES, .n = 2};

    (void)state;
    set_variables("inline,cma,try-cma");
    assert_int_equal(ranks_run(&ranks, use_slots_by_force, NULL), 0);
    set_variables("inline");
    assert_int_equal(ranks_run(&ranks, use_slots, NULL), 0);
    ranks.settle = want_it_alone;
    assert_int_equal(ranks_run(&ranks, use_slots, NULL), 0);
}

/* Messages until they are read where they lie, which both ranks do long before the last; under
 * ThreadSanitizer fewer, of which more would show it nothing else. */
static int become_acquainted(kolo_group *group)
{
    enum { ROUNDS = HAS_TSAN ? 20 : 200 };
    int failed = 0;

    for (int i = 0; i < ROUNDS && !failed; i++)
        failed = pass_messages(group);
    return failed;
}

/* Messages of some slices meet: who is through with his own leaves nothing half read that the
 * other's send waits for. */
static int leave_after_sending(kolo_group *group, void *argument)
{
    enum { MANY = 50, NBYTES = 4 * SLICE_BYTES };
    static unsigned char out[NBYTES], in[NBYTES];
    const int peer = 1 - kolo_group_rank(group);
    int failed = become_acquainted(group);

    (void)argument;
    for (int i = 0; i < MANY && !failed; i++) {
        kolo_work *work = NULL;

        memset(out, i, sizeof out);
        failed = kolo_irecv(group, in, sizeof in, KOLO_UINT8, peer, 0, &work) ||
                 kolo_send(group, out, sizeof out, KOLO_UINT8, peer, 0) || kolo_barrier(group) ||
                 kolo_work_wait(work, -1) || in[0] != i || memcmp(in, in + 1, sizeof in - 1) != 0;
        kolo_work_free(work);
    }
    return failed ? ranks_fail("messages that meet") : 0;
}

static void sends_that_meet_end(void **state)
{
    (void)state;
    set_variables("inline,cma");
    setenv("KOLO_SLOTS", "8", 1);
    needs_permission();
    assert_int_equal(
        ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = 2}, leave_after_sending, NULL), 0);
}

/* The receiver finds, again and again, that it cannot read what it is about to. */
static int keep_memory_from_the_reader(kolo_group *group, void *argument)
{
    enum { MESSAGES = 10 };
    int failed = become_acquainted(group);

    (void)argument;
    for (int i = 0; i < MESSAGES && !failed; i++) {
        ko_fault_arm(KO_FAULT_FOREIGN, 1 + i % 3);
        failed = pass_messages(group);
        if (!failed)
            failed = exam_take(group, &(struct exam){.what = KO_ALL_GATHER + i % 2,
                                                     .dtype = KOLO_FLOAT32,
                                                     .count = COUNT});
    }
    ko_fault_arm(KO_FAULT_FOREIGN, 0);
    return failed;
}

static void what_cannot_be_read_goes_through_slots(void **state)
{
    static const char *const protocols[] = {"inline,cma", "inline,try-cma"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        set_variables(protocols[i]);
        needs_permission();
        assert_int_equal(ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = 2},
                                   keep_memory_from_the_reader, NULL),
                         0);
    }
}

/* The system lets no other process read memory of memfd_secret. */
static int lend_secrets(kolo_group *group, void *argument)
{
    const int fd = (int)syscall(SYS_memfd_secret, 0), n = SLICE_BYTES;
    unsigned char *secret = MAP_FAILED, found[SLICE_BYTES];
    int failed = become_acquainted(group);

    (void)argument;
    if (fd >= 0 && !ftruncate(fd, n))
        secret = mmap(NULL, (size_t)n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    for (int i = 0; i < 3 && secret != MAP_FAILED && !failed; i++) {
        memset(secret, 3 + i, (size_t)n);
        failed = kolo_sendrecv(group, secret, (size_t)n, 1 - kolo_group_rank(group), found,
                               (size_t)n, 1 - kolo_group_rank(group), KOLO_UINT8, i) ||
                 found[0] != 3 + i || memcmp(found, found + 1, (size_t)n - 1) != 0;
    }
    if (secret != MAP_FAILED)
        munmap(secret, (size_t)n);
    if (fd >= 0)
        close(fd);
    return failed;
}

static int make_a_secret(kolo_group *group, void *argument)
{
    const int fd = (int)syscall(SYS_memfd_secret, 0);

    (void)group;
    (void)argument;
    if (fd >= 0)
        close(fd);
    return fd < 0;
}

static void secrets_go_through_slots(void **state)
{
    struct ranks ranks = {.kind = RANKS_PROCESSES, .n = 1};

    (void)state;
    set_variables("inline,cma");
    needs_permission();
    if (ranks_run(&ranks, make_a_secret, NULL))
        skip();
    ranks.n = 2;
    assert_int_equal(ranks_run(&ranks, lend_secrets, NULL), 0);
}

/* Rank 0 sends, and has its memory back, before rank 1 has asked for anything; by the way in which
 * it waits for that. */
static int send_early(kolo_group *group, int how, int tag)
{
    unsigned char bytes[SLICE_BYTES];
    const size_t n = sizeof bytes;
    kolo_work *work = NULL;
    int failed, is_done = 0;

    memset(bytes, tag, n);
    if (kolo_group_rank(group)) {
        failed = kolo_barrier(group);
        failed = failed ? failed : kolo_recv(group, bytes, n, KOLO_UINT8, 0, tag);
        return failed || bytes[0] != tag + 1 || memcmp(bytes, bytes + 1, n - 1) != 0;
    }
    memset(bytes, tag + 1, n);
    failed = how ? kolo_isend(group, bytes, n, KOLO_UINT8, 1, tag, &work)
                 : kolo_send(group, bytes, n, KOLO_UINT8, 1, tag);
    while (how == 1 && !failed && !is_done)
        failed = kolo_work_test(work, &is_done);
    if (how == 2 && !failed)
        failed = kolo_work_wait(work, -1);
    if (work)
        kolo_work_free(work);
    memset(bytes, 0, n); /* it is ours again */
    return failed ? failed : kolo_barrier(group);
}

static int send_all_early(kolo_group *group, void *argument)
{
    int failed = become_acquainted(group);

    (void)argument;
    for (int i = 0; i < 30 && !failed; i++)
        failed = send_early(group, i % 3, i) ? ranks_fail("message %d", i) : 0;
    return failed;
}

static void sends_end_before_their_receives(void **state)
{
    static const char *const protocols[] = {"inline,cma", "inline,try-cma"};

    (void)state;
    for (int i = 0; i < 4; i++) {
        set_variables(protocols[i / 2]);
        needs_permission();
        assert_int_equal(
            ranks_run(&(struct ranks){.kind = i % 2 ? RANKS_THREADS : RANKS_PROCESSES, .n = 2},
                      send_all_early, NULL),
            0);
    }
}

static int die_while_read(kolo_group *group, void *argument)
{
    int err = become_acquainted(group);

    (void)argument;
    if (err)
        return err;
    if (kolo_group_rank(group)) {
        unsigned char *memory = calloc(1, COUNT);
        kolo_work *work;

        if (memory && !kolo_isend(group, memory, COUNT, KOLO_UINT8, 0, 0, &work))
            raise(SIGKILL);
        return 1;
    }
    for (int i = 0; i < 2 && !err; i++)
        err = pass_messages(group);
    return err ? 0 : ranks_fail("the peer's end was not noticed");
}

static void who_dies_is_noticed(void **state)
{
    (void)state;
    set_variables("inline,cma");
    needs_permission();
    assert_int_equal(ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = 2, .tolerated = 1},
                               die_while_read, NULL),
                     0);
}

/* What has the peer's number, and not its word, is not the peer. */
static int become_another(kolo_group *group, void *argument)
{
    const int rank = kolo_group_rank(group);
    struct ko_link *link;
    float *in = calloc(2, COUNT * sizeof *in), *out = calloc(2, COUNT * sizeof *out);
    int err = !in || !out || become_acquainted(group) || take_all(group);

    (void)argument;
    link = group->collectives.ports[1 - rank].link;
    if (!err && (!link->inbox || !link->inbox->reading))
        err = ranks_fail("nobody reads here");
    if (!err && rank)
        *(uint64_t *)(uintptr_t)link->inbox->word_at ^= 1;
    ranks_nap_ms(2); /* so long since it was found that it is looked for again */
    if (!err)
        err = kolo_all_gather(group, in, out, COUNT, KOLO_FLOAT32);
    free(in);
    free(out);
    if (rank)
        return err == KOLO_E_PEER_LOST ? 0 : ranks_fail("rank 1 ends with %d", err);
    return ranks_expect(err, KOLO_E_PEER_LOST, "rank 1 has ended while its memory was read");
}

static void another_process_is_not_read(void **state)
{
    (void)state;
    set_variables("inline,cma");
    needs_permission();
    assert_int_equal(
        ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = 2}, become_another, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_between_processes),
        cmocka_unit_test(everything_with_many_slots),
        cmocka_unit_test(everything_between_threads),
        cmocka_unit_test(both_ways_at_first),
        cmocka_unit_test(what_is_reduced_is_compared),
        cmocka_unit_test(slots_where_it_is_forbidden_or_not_wanted),
        cmocka_unit_test(what_cannot_be_read_goes_through_slots),
        cmocka_unit_test(secrets_go_through_slots),
        cmocka_unit_test(sends_end_before_their_receives),
        cmocka_unit_test(sends_that_meet_end),
        cmocka_unit_test(who_dies_is_noticed),
        cmocka_unit_test(another_process_is_not_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
