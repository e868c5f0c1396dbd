/* SPDX-License-Identifier: MIT
 *
 * How groups end: aborting, freeing, in a child of fork.
 */
#include "clock.h"
#include "group.h"
#include "letters.h"
#include "ranks.h"
#include "store.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void *abort_main(void *argument)
{
    ranks_nap_ms(60);
    kolo_group_abort(argument, "the user pressed a key");
    return NULL;
}

/* The others tell rank 1 that they have come so far, so that none is aborted before. */
static int meet_at_1(kolo_group *group)
{
    int err = KOLO_OK;

    if (kolo_group_rank(group) != 1)
        return kolo_send(group, NULL, 0, KOLO_UINT8, 1, 2);
    for (int r = 0; r < kolo_group_size(group) && !err; r++)
        if (r != 1)
            err = kolo_recv(group, NULL, 0, KOLO_UINT8, r, 2);
    return err;
}

/* All ranks wait for what never comes; another thread of rank 1 aborts. */
static int abort_while_waiting(kolo_group *group, void *argument)
{
    const bool is_message = *(const bool *)argument;
    const bool aborts = kolo_group_rank(group) == 1;
    unsigned char byte = 0;
    pthread_t thread;
    const char *text;
    int err, failed;

    if (kolo_barrier(group) || meet_at_1(group))
        return ranks_fail("meeting");
    if (aborts && pthread_create(&thread, NULL, abort_main, group))
        abort();
    if (is_message || aborts)
        err = kolo_recv(group, &byte, 1, KOLO_UINT8, aborts ? 0 : 1, 1);
    else
        err = kolo_barrier(group);
    failed = ranks_expect(err, KOLO_E_ABORTED, "rank 1 aborted the group: the user pressed a key");
    failed |= ranks_expect(kolo_barrier(group), KOLO_E_ABORTED, "the user pressed a key");
    failed |= kolo_group_error(group, &text) != KOLO_E_ABORTED || !strstr(text, "pressed a key");
    if (aborts)
        pthread_join(thread, NULL);
    return failed;
}

static void aborting_ends_every_wait(void **state)
{
    static const char *const transports[] = {"shm", "tcp", "rdma"};

    (void)state;
    for (int i = 0; i < 6; i++) {
        bool is_message = i / 3;

        letters_set(transports[i % 3], false);
        for (int kind = RANKS_THREADS; kind <= RANKS_PROCESSES; kind++)
            assert_int_equal(ranks_run(&(struct ranks){.kind = (enum ranks_kind)kind, .n = 4},
                                       abort_while_waiting, &is_message),
                             0);
    }
}

/* Rank 1 has no link that would tell it, and comes when rank 0, which serves the store, would have
 * gone had rank 1 been lost. */
static int abort_alone(kolo_group *group, void *argument)
{
    (void)argument;
    if (kolo_group_rank(group) == 0) {
        kolo_group_abort(group, "enough");
        return 0;
    }
    ranks_nap_ms(900);
    return ranks_expect(kolo_barrier(group), KOLO_E_ABORTED, "rank 0 aborted the group: enough");
}

static void the_last_to_come_hears_why(void **state)
{
    (void)state;
    letters_set("shm", false);
    assert_int_equal(ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = 2}, abort_alone, NULL),
                     0);
}

/* ---- a thread that is about to leave --------------------------------------------------------- */

static void *abort_now(void *group)
{
    kolo_group_abort(group, "enough");
    return NULL;
}

static void abort_from_thread(kolo_group *group)
{
    pthread_t thread;

    if (pthread_create(&thread, NULL, abort_now, group))
        abort();
    pthread_join(thread, NULL);
}

/* A thread of rank 0 has looked for failures for the last time when another aborts: the peer hears
 * of it all the same, and rank 0 does nothing more. */
static int abort_behind_the_last_look(kolo_group *group, void *argument)
{
    const int64_t began_ns = ko_now_ns();
    const ko_deadline late = ko_deadline_in(RANKS_SOON_MS + 1000);
    atomic_bool *has_heard = argument;
    int failed;

    if (kolo_barrier(group))
        return ranks_fail("meeting");
    if (kolo_group_rank(group) == 1) {
        failed = ranks_expect_soon(began_ns, kolo_barrier(group), KOLO_E_ABORTED,
                                   "rank 0 aborted the group: enough");
        atomic_store(has_heard, true);
        return failed;
    }
    while (!ko_engine_try_turn(&group->engine))
        ranks_nap_ms(1);
    abort_from_thread(group);
    ko_engine_finish(&group->engine);
    while (!atomic_load(has_heard) && !ko_deadline_passed(&late))
        ranks_nap_ms(1);
    return 0;
}

static void aborting_is_told_whoever_is_about_to_leave(void **state)
{
    atomic_bool has_heard = false;

    (void)state;
    letters_set("shm", false);
    assert_int_equal(ranks_run(&(struct ranks){.kind = RANKS_THREADS, .n = 2},
                               abort_behind_the_last_look, &has_heard),
                     0);
}

/* ---- a rank that has ended ------------------------------------------------------------------- */

/* What the processes of a test share. */
static struct {
    atomic_int npassed;             /* ranks that are through the barrier */
    atomic_bool has_ended, is_late; /* rank 0; it lived as long as rank 2 would wait */
} * shared;

/* Not before the others have ended the last call too: who dies while they are in it is lost there.
 */
static int end_behind_the_last_call(kolo_group *group, void *argument)
{
    const int rank = kolo_group_rank(group);

    (void)argument;
    if (kolo_barrier(group))
        return ranks_fail("barrier");
    atomic_fetch_add(&shared->npassed, 1);
    while (rank == 1 && atomic_load(&shared->npassed) < kolo_group_size(group))
        ranks_nap_ms(1);
    if (rank == 1)
        raise(SIGKILL);
    return 0;
}

static int run_with_a_death(ranks_body body)
{
    const struct ranks ranks = {.kind = RANKS_PROCESSES, .n = 3, .tolerated = 1};

    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(shared, MAP_FAILED);
    letters_set("shm", false);
    return ranks_run(&ranks, body, NULL);
}

/* Nobody had to do with it any more, and rank 0, which serves the store, does not wait for it. */
static void the_dead_are_not_waited_for(void **state)
{
    const int64_t began_ns = ko_now_ns();

    (void)state;
    assert_int_equal(run_with_a_death(end_behind_the_last_call), 0);
    assert_true(ko_now_ns() - began_ns < RANKS_SOON_MS * INT64_C(1000000));
    munmap(shared, sizeof *shared);
}

/* Rank 1 dies, rank 2 frees its group and lives on for as long as rank 0 does. */
static void end_rank_0(void)
{
    atomic_store(&shared->has_ended, true);
}

static void await_rank_0(void)
{
    const ko_deadline late = ko_deadline_in(RANKS_SOON_MS);

    while (!atomic_load(&shared->has_ended) && !ko_deadline_passed(&late))
        ranks_nap_ms(5);
    if (!atomic_load(&shared->has_ended))
        atomic_store(&shared->is_late, true);
}

static int outlive_rank_0(kolo_group *group, void *argument)
{
    const int rank = kolo_group_rank(group);

    if (end_behind_the_last_call(group, argument))
        return 1;
    return atexit(rank ? await_rank_0 : end_rank_0) ? ranks_fail("atexit") : 0;
}

static void the_dead_are_told_from_those_who_left(void **state)
{
    (void)state;
    assert_int_equal(run_with_a_death(outlive_rank_0), 0);
    assert_false(atomic_load(&shared->is_late));
    munmap(shared, sizeof *shared);
}

/* ---- freeing --------------------------------------------------------------------------------- */

struct waiter {
    kolo_work *work;
    int status;
    pthread_t thread;
};

static void *waiter_main(void *argument)
{
    struct waiter *waiter = argument;

    waiter->status = kolo_work_wait(waiter->work, -1);
    return NULL;
}

/* Works that can never end fail when their group is freed, also for threads that wait for them
 * meanwhile, and can still be asked and freed. */
static int free_unfinished(kolo_group *world, void *argument)
{
    static const int all[] = {0, 1};
    float one = 1, sum[3];
    kolo_work *works[4];
    struct waiter waiters[4];
    kolo_group *group;
    int failed = 0;

    (void)argument;
    if (kolo_group_new(world, all, 2, &group))
        return ranks_fail("group_new");
    if (kolo_group_rank(world) == 0) {
        for (int i = 0; i < 3; i++)
            failed |=
                kolo_all_reduce_async(group, &one, &sum[i], 1, KOLO_FLOAT32, KOLO_SUM, &works[i]);
        failed |= kolo_irecv(group, &one, 1, KOLO_FLOAT32, 1, 3, &works[3]);
        for (int i = 0; i < 4 && !failed; i++) {
            waiters[i].work = works[i];
            failed = pthread_create(&waiters[i].thread, NULL, waiter_main, &waiters[i]);
        }
        if (failed)
            return ranks_fail("works and threads");
        ranks_nap_ms(20);
        kolo_group_free(group);
        for (int i = 0; i < 4; i++) {
            pthread_join(waiters[i].thread, NULL);
            failed |= waiters[i].status != KOLO_E_ABORTED;
        }
        failed |= kolo_send(world, NULL, 0, KOLO_UINT8, 1, 0) != 0;
        for (int i = 0; i < 4 && !failed; i++) {
            failed |= ranks_expect(kolo_work_wait(works[i], 0), KOLO_E_ABORTED, "freed");
            failed |= !*kolo_work_error(works[i]);
        }
        for (int i = 0; i < 4; i++)
            kolo_work_free(works[i]);
    } else {
        failed |= kolo_recv(world, NULL, 0, KOLO_UINT8, 0, 0) != 0; /* rank 0 has freed it */
        failed |=
            ranks_expect(kolo_all_reduce(group, &one, sum, 1, KOLO_FLOAT32, KOLO_SUM),
                         KOLO_E_ABORTED, "rank 0 freed the group while works were unfinished");
        kolo_group_free(group);
    }
    return failed | (kolo_barrier(world) != 0); /* the world has not suffered */
}

static void freeing_fails_unfinished_works(void **state)
{
    (void)state;
    letters_set("shm", false);
    assert_int_equal(ranks_run_all_ways(2, free_unfinished), 0);
}

/* Groups are freed at once when a test has told that their work is done, while the thread that ran
 * it may be on its way back. */
static int free_when_done(kolo_group *world, void *argument)
{
    enum { TIMES = 200 };
    float one = 1, sum;
    kolo_group *group;
    kolo_work *work;

    (void)argument;
    for (int i = 0; i < TIMES; i++) {
        int done = 0, err = kolo_group_duplicate(world, &group);

        if (err || kolo_all_reduce_async(group, &one, &sum, 1, KOLO_FLOAT32, KOLO_SUM, &work))
            return ranks_fail("all_reduce_async");
        while (!err && !done) {
            err = kolo_work_test(work, &done);
            if (!done) /* those who do it may need the processor */
                sched_yield();
        }
        kolo_work_free(work);
        kolo_group_free(group);
        if (err)
            return ranks_fail("group %d", i);
    }
    return 0;
}

static void freeing_spares_finished_works(void **state)
{
    (void)state;
    letters_set("shm", false);
    assert_int_equal(ranks_run_all_ways(2, free_when_done), 0);
}

/* Rank 2 comes late, when rank 1 has done its part, which is more than a socket holds. */
static int leave_early(kolo_group *group, void *argument)
{
    enum { COUNT = 6 << 20 };
    const int rank = kolo_group_rank(group);
    float *in = malloc(COUNT * sizeof *in), *out = malloc(COUNT * sizeof *out);
    int err, failed = 0;

    (void)argument;
    for (int i = 0; i < COUNT; i++)
        in[i] = (float)(i % 1000 + rank);
    if (kolo_barrier(group))
        return ranks_fail("barrier");
    if (rank == 2)
        ranks_nap_ms(500);
    err = kolo_reduce(group, in, out, COUNT, KOLO_FLOAT32, KOLO_SUM, 2);
    for (int i = 0; i < COUNT && rank == 2 && !failed; i++)
        failed = out[i] != (float)(3 * (i % 1000) + 3);
    free(in);
    free(out);
    return err || failed ? ranks_fail("rank %d: status %d, wrong %d", rank, err, failed) : 0;
}

/* Rank 0 frees its group while its messages wait unread at rank 1, and one of rank 1's at it: a
 * socket that is closed with something unread in it drops what has not left. */
static int leave_unread(kolo_group *group, void *argument)
{
    enum { MESSAGES = 8, COUNT = 16384 };
    const int rank = kolo_group_rank(group);
    int32_t *message = malloc(COUNT * sizeof *message);
    int failed = 0;

    (void)argument;
    failed = rank ? kolo_recv(group, NULL, 0, KOLO_INT32, 0, 1)
                  : kolo_send(group, NULL, 0, KOLO_INT32, 1, 1);
    ranks_nap_ms(100 * rank);
    if (rank && !failed)
        failed = kolo_send(group, &rank, 1, KOLO_INT32, 0, 2);
    ranks_nap_ms(300 * rank);
    for (int i = 0; i < MESSAGES && !failed; i++) {
        for (int k = 0; k < COUNT && !rank; k++)
            message[k] = i * COUNT + k;
        failed = rank ? kolo_recv(group, message, COUNT, KOLO_INT32, 0, 0)
                      : kolo_send(group, message, COUNT, KOLO_INT32, 1, 0);
        for (int k = 0; k < COUNT && !failed; k++)
            failed = message[k] != i * COUNT + k;
    }
    if (!rank)
        ranks_nap_ms(200);
    free(message);
    return failed ? ranks_fail("rank %d: status or value %d", rank, failed) : 0;
}

static void what_was_sent_arrives(void **state)
{
    (void)state;
    letters_set("shm", false);
    setenv("KOLO_ALGO", "reduce=ring", 1);
    assert_int_equal(ranks_run_all_ways(3, leave_early), 0);
    assert_int_equal(ranks_run_all_ways(2, leave_unread), 0);
    unsetenv("KOLO_ALGO");
}

/* A look for a failure, or word of one, takes little time; whatever else is asked of the store may
 * take what it might before. */
static int look_for_a_failure(kolo_group *world, void *argument)
{
    kolo_store *store = world->endpoint->store;
    const int before = ko_store_timeout(store);
    kolo_group *group;
    int failed;

    (void)argument;
    failed = kolo_group_duplicate(world, &group) || ko_group_check_store(group);
    if (!failed && ko_store_timeout(store) != before)
        failed = ranks_fail("after a look the store's limit is %d ms", ko_store_timeout(store));
    if (failed || kolo_barrier(world)) /* the other has looked, too */
        return failed ? failed : ranks_fail("barrier");
    kolo_group_abort(group, "enough");
    failed = ranks_expect(ko_group_check_store(group), KOLO_E_ABORTED, "enough");
    kolo_group_free(group);
    if (!failed && ko_store_timeout(store) != before)
        failed = ranks_fail("after a failure the store's limit is %d ms", ko_store_timeout(store));
    return failed;
}

static void looking_for_failures_changes_nothing(void **state)
{
    (void)state;
    letters_set("shm", false);
    assert_int_equal(ranks_run_all_ways(2, look_for_a_failure), 0);
}

/* Whether the child is told so of a work that its parent had begun, and frees it in vain. */
static bool is_refused(kolo_work *work)
{
    int is_done = -1;
    size_t index;
    bool is = kolo_work_wait_any(&work, 1, -1, &index) == KOLO_E_INVALID && index == 1 &&
              kolo_work_wait(work, 100) == KOLO_E_INVALID &&
              kolo_work_wait(work, -1) == KOLO_E_INVALID &&
              kolo_work_test(work, &is_done) == KOLO_E_INVALID && is_done == -1 &&
              strstr(kolo_last_error(), "from which fork made this one");

    kolo_work_free(work);
    return is;
}

/* What a child of a rank may do with its parent's group: hear that it is none of its own. */
static int use_inherited(kolo_group *group, kolo_work *work)
{
    int sum = 0, failed;

    alarm(20);
    failed = kolo_barrier(group) != KOLO_E_INVALID ||
             kolo_all_reduce(group, &sum, &sum, 1, KOLO_INT32, KOLO_SUM) != KOLO_E_INVALID ||
             kolo_send(group, &sum, 1, KOLO_INT32, 0, 0) != KOLO_E_INVALID ||
             !strstr(kolo_last_error(), "from which fork made this one") || !is_refused(work);
    kolo_group_abort(group, "not ours");
    kolo_group_free(group);
    return failed;
}

static int fork_in_between(kolo_group *group, void *argument)
{
    const int other = 1 - kolo_group_rank(group);
    int one = 1, sum, got, status = -1, failed = kolo_barrier(group);
    kolo_work *work;
    pid_t child;

    (void)argument;
    for (int i = 0; i < 3 && !failed; i++) { /* so that one more would be a call like the last */
        if (kolo_irecv(group, &got, 1, KOLO_INT32, other, i, &work))
            return ranks_fail("%s", kolo_last_error());
        child = fork();
        if (!child)
            _exit(use_inherited(group, work));
        failed = child < 0 || waitpid(child, &status, 0) != child || status ||
                 kolo_all_reduce(group, &one, &sum, 1, KOLO_INT32, KOLO_SUM) || sum != 2 ||
                 kolo_send(group, &i, 1, KOLO_INT32, other, i) || kolo_work_wait(work, -1) ||
                 got != i;
        kolo_work_free(work);
    }
    return failed ? ranks_fail("child: %d", status) : 0;
}

static void children_have_no_part_in_groups(void **state)
{
    static const char *const transports[] = {"shm", "tcp", "rdma"};

    (void)state;
    for (int i = 0; i < 3; i++) {
        letters_set(transports[i], false);
        assert_int_equal(
            ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = 2}, fork_in_between, NULL), 0);
    }
}

/* Rank 1 dies, but a child of its lives, as one that loads data does. */
static int die_before_a_child(kolo_group *group, void *argument)
{
    _Atomic pid_t *child = argument;
    int64_t began_ns;
    char byte = 0;
    pid_t pid;
    int failed = ranks_exchange(group);

    if (failed)
        return failed;
    if (kolo_group_rank(group) == 1) {
        pid = fork();
        if (!pid) {
            alarm(40);
            pause();
        }
        atomic_store(child, pid);
        raise(SIGKILL);
    }
    began_ns = ko_now_ns();
    failed = ranks_expect_soon(began_ns, kolo_recv(group, &byte, 1, KOLO_UINT8, 1, 2),
                               KOLO_E_PEER_LOST, "rank 1");
    if (atomic_load(child) > 0)
        kill(atomic_load(child), SIGKILL);
    return failed;
}

static void children_do_not_hide_a_death(void **state)
{
    static const char *const transports[] = {"shm", "tcp", "rdma"};
    _Atomic pid_t *child =
        mmap(NULL, sizeof *child, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const struct ranks ranks = {.kind = RANKS_PROCESSES, .n = 2, .tolerated = 1};

    (void)state;
    assert_ptr_not_equal(child, MAP_FAILED);
    for (int i = 0; i < 3; i++) {
        letters_set(transports[i], false);
        assert_int_equal(ranks_run(&ranks, die_before_a_child, child), 0);
    }
    munmap(child, sizeof *child);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(aborting_ends_every_wait),
        cmocka_unit_test(the_last_to_come_hears_why),
        cmocka_unit_test(aborting_is_told_whoever_is_about_to_leave),
        cmocka_unit_test(the_dead_are_not_waited_for),
        cmocka_unit_test(the_dead_are_told_from_those_who_left),
        cmocka_unit_test(freeing_fails_unfinished_works),
        cmocka_unit_test(freeing_spares_finished_works),
        cmocka_unit_test(what_was_sent_arrives),
        cmocka_unit_test(looking_for_failures_changes_nothing),
        cmocka_unit_test(children_have_no_part_in_groups),
        cmocka_unit_test(children_do_not_hide_a_death),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
