/* SPDX-License-Identifier: MIT
 *
 * CUDA graphs that wait in vain, on the double of NVIDIA's driver: a rank that does not launch
 * its graph, or is killed before or while it does; an abort from another thread; a group that is
 * freed. Each stream ends within the group's limit, and then the group has failed with an error
 * that names the rank. Ranks that are slow but in time do no harm.
 */
#include "clock.h"
#include "exam.h"
#include "gpu_double.h"
#include "gpu_rank.h"
#include "group_watch.h"
#include "kernel_args.h"
#include "ranks.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    CALLS = 3, /* of a graph */
    LIMIT_MS = 600,
    SHORT_LIMIT_MS = 100,
    LONG = 3 * KO_PUSH_BYTES / 4,  /* elements of 4 bytes, which streams wait for */
    SHORT = 500,                   /* where ranks have a GPU each, kernels */
    AFTERWARDS = 3,                /* launches of a group that has failed */
    LAST_MS = 2000 + RANKS_SOON_MS /* its end, where a GPU does not answer */
};

/* Of the calling rank's thread. */
static _Thread_local struct {
    ko_cu_ptr memory;
    ko_cu_stream stream; /* in which graphs are launched: not the group's */
    ko_cu_graph_exec exec;
    size_t count;
} gpu;

static int enter(kolo_group *group, size_t count)
{
    int failed = gpu_rank_enter(group);

    gpu.count = count;
    if (!failed && (gpu_rank.cuda->alloc(&gpu.memory, count * sizeof(int)) ||
                    gpu_rank.cuda->stream_create(&gpu.stream, KO_CU_STREAM_NON_BLOCKING)))
        failed = ranks_fail("no memory");
    return failed;
}

static int capture(kolo_group *group)
{
    void *const at = (void *)(uintptr_t)gpu.memory;
    int failed = gpu_rank_capture();

    for (int i = 0; i < CALLS && !failed; i++)
        if (kolo_all_reduce(group, at, at, gpu.count, KOLO_INT32, KOLO_SUM))
            failed = ranks_fail("a call");
    failed |= gpu_rank_captured(&gpu.exec);
    return failed || !kolo_barrier(group) ? failed : ranks_fail("barrier");
}

static int begin(void)
{
    return gpu_rank.cuda->graph_launch(gpu.exec, gpu.stream) ? ranks_fail("a launch") : 0;
}

static int finish(void)
{
    return gpu_rank.cuda->stream_sync(gpu.stream) ? ranks_fail("the stream") : 0;
}

/* Launches, and sees the right sums. */
static int launch(kolo_group *group, int round)
{
    const int n = kolo_group_size(group), rank = kolo_group_rank(group);
    const size_t nbytes = gpu.count * sizeof(int);
    int sum = n * round + n * (n - 1) / 2, failed, values[LONG];

    for (size_t i = 0; i < gpu.count; i++)
        values[i] = rank + round;
    failed = gpu_rank.cuda->copy(gpu.memory, (uintptr_t)values, nbytes, gpu.stream) || begin() ||
             gpu_rank.cuda->copy((uintptr_t)values, gpu.memory, nbytes, gpu.stream) || finish();
    for (int i = 1; i < CALLS; i++)
        sum *= n;
    for (size_t i = 0; i < gpu.count && !failed && !kolo_group_error(group, NULL); i++)
        if (values[i] != sum)
            failed = ranks_fail("element %zu is %d, not %d", i, values[i], sum);
    return failed;
}

/* That its group has failed a rank knows as soon as the stream has ended; later launches end too.
 */
static int expect(kolo_group *group, int code, const char *who)
{
    const char *text;
    const int have = kolo_group_error(group, &text);
    int failed = 0;

    if (have != code || !strstr(text, who))
        return ranks_fail("the group's error is %d instead of %d: %s", have, code, text);
    for (int i = 0; i < AFTERWARDS && !failed; i++)
        failed = begin();
    failed |= finish();
    if (!failed &&
        kolo_all_reduce(group, (void *)(uintptr_t)gpu.memory, (void *)(uintptr_t)gpu.memory,
                        gpu.count, KOLO_INT32, KOLO_SUM) != code)
        failed = ranks_fail("a call that is not captured");
    return failed;
}

static int expect_within(kolo_group *group, int64_t began_ns, int limit_ms, int code,
                         const char *who)
{
    return ranks_within(began_ns, limit_ms, "the stream's end") || expect(group, code, who);
}

struct trial {
    ranks_body body;
    size_t count;
};

static int take(kolo_group *group, void *argument)
{
    struct trial *trial = argument;
    const int failed = trial->body(group, &trial->count);

    if (gpu.exec)
        (void)gpu_rank.cuda->graph_exec_destroy(gpu.exec);
    return failed;
}

static void run_with(const struct ranks *ranks, ranks_body body)
{
    struct trial trials[] = {{body, SHORT}, {body, LONG}};

    exam_set_variables("shm", "", 4096);
    for (int i = 0; i < 4; i++) {
        setenv("FAKECUDA_DEVICES", i / 2 ? "3" : "1", 1);
        assert_int_equal(ranks_run(ranks, take, &trials[i % 2]), 0);
    }
}

static void run(ranks_body body)
{
    run_with(&(struct ranks){.kind = RANKS_PROCESSES, .n = 3}, body);
}

/* ---- late ------------------------------------------------------------------------------------ */

/* Launches, on ranks 0 and 2, and comes back when both wait: only rank 1 is waited for then,
 * however long they took for that. */
static int begin_together(kolo_group *group)
{
    const uint64_t rests = gpu_blocks_now().rests;
    const ko_deadline deadline = ko_deadline_in(RANKS_SOON_MS);
    const int other = 2 - kolo_group_rank(group);
    int8_t word = 0;

    if (begin())
        return 1;
    while (!ko_group_has_waiting_graph(group) && gpu_blocks_now().rests == rests) {
        if (ko_deadline_passed(&deadline))
            return ranks_fail("nothing waits");
        ranks_nap_ms(1);
    }
    return kolo_sendrecv(group, &word, 1, other, &word, 1, other, KOLO_INT8, 0)
               ? ranks_fail("the other rank")
               : 0;
}

static int do_not_launch(kolo_group *group, void *argument)
{
    const size_t *count = argument;
    int64_t began_ns;
    int failed = enter(group, *count) || capture(group) || launch(group, 0);

    began_ns = ko_now_ns();
    if (failed)
        return 1;
    if (kolo_group_rank(group) == 1) { /* its barrier ends when the others say why */
        ranks_nap_ms(2 * LIMIT_MS);
        return ranks_expect(kolo_barrier(group), KOLO_E_TIMEOUT, "for rank 1 (");
    }
    failed = begin_together(group);
    kolo_group_set_timeout(group, LIMIT_MS);
    if (failed || finish())
        return 1;
    if (ko_now_ns() - began_ns < LIMIT_MS * INT64_C(1000000))
        failed = ranks_fail("the stream did not wait");
    return failed ||
           expect_within(group, began_ns, LIMIT_MS + RANKS_SOON_MS, KOLO_E_TIMEOUT, "for rank 1 (");
}

/* About when the others give up. Each has the right sums, or a group that has failed. */
static int launch_late(kolo_group *group, void *argument)
{
    const size_t *count = argument;
    int failed = enter(group, *count) || capture(group);

    kolo_group_set_timeout(group, SHORT_LIMIT_MS);
    if (kolo_group_rank(group) == 1)
        ranks_nap_ms(SHORT_LIMIT_MS + (int)(ko_now_ns() / 1000 % 120));
    for (int round = 0; round < 3 && !failed && !kolo_group_error(group, NULL); round++)
        failed = launch(group, round);
    return failed && !kolo_group_error(group, NULL);
}

static void a_rank_is_too_late(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++)
        run(launch_late);
}

static void a_rank_does_not_launch(void **state)
{
    (void)state;
    run(do_not_launch);
}

/* No kernel has waited on a GPU that ranks share. */
static int check_rests(void)
{
    int ngpus;

    if (gpu_rank.cuda->device_count(&ngpus))
        return ranks_fail("no GPU");
    return ngpus == 1 && gpu_blocks_now().rests
               ? ranks_fail("a kernel has waited, %ju turns", (uintmax_t)gpu_blocks_now().rests)
               : 0;
}

/* Until a rank has done so. 0, or ranks_fail. */
static int await_giving_up(const kolo_group *group, int rank)
{
    const ko_deadline deadline = ko_deadline_in(RANKS_SOON_MS);

    while (!ko_gpu_share_has_given_up(group->share, rank)) {
        if (ko_deadline_passed(&deadline))
            return ranks_fail("rank %d does not give up", rank);
        ranks_nap_ms(5);
    }
    return 0;
}

/* Rank 2 gives up before rank 1 comes, and the others hear of it only later: whoever of them has
 * the work of all ranks to do says to nobody that it is done. */
static int give_up_early(kolo_group *group, void *argument)
{
    const size_t *count = argument;
    const int rank = kolo_group_rank(group);
    int failed = enter(group, *count) || capture(group) || launch(group, 0);
    const int64_t began_ns = ko_now_ns();

    if (failed)
        return 1;
    failed = rank == 1 ? await_giving_up(group, 2) || begin() : begin_together(group);
    if (rank == 2)
        kolo_group_set_timeout(group, SHORT_LIMIT_MS);
    return failed || finish() ||
           expect_within(group, began_ns, RANKS_SOON_MS, KOLO_E_TIMEOUT, "for rank 1 (") ||
           check_rests();
}

static void a_rank_gives_up_early(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++)
        run(give_up_early);
}

/* A group that gives up has waited for its limit: who says that it has looks how long that was. */
static int check_wait(kolo_group *group, int64_t began_ns)
{
    const int ms = (int)((ko_now_ns() - began_ns) / 1000000);
    const char *text;
    char own[40];

    if (!kolo_group_error(group, &text))
        return 0;
    snprintf(own, sizeof own, "rank %d waited", kolo_group_rank(group));
    return ms < LIMIT_MS && strstr(text, own) ? ranks_fail("after %d ms %s", ms, text) : 0;
}

/* Each time in time, as long as the machine is; all in all they wait for longer than the limit. */
static int be_slow(kolo_group *group, void *argument)
{
    const size_t *count = argument;
    int failed = enter(group, *count) || capture(group);

    kolo_group_set_timeout(group, LIMIT_MS);
    for (int round = 0; round < 3 && !failed && !kolo_group_error(group, NULL); round++) {
        int64_t began_ns;

        if (kolo_group_rank(group) == round % 3)
            ranks_nap_ms(LIMIT_MS / 2);
        began_ns = ko_now_ns();
        failed = launch(group, round) || check_wait(group, began_ns);
    }
    kolo_group_set_timeout(group, 20000);
    if (!failed && kolo_barrier(group) && !kolo_group_error(group, NULL))
        failed = ranks_fail("barrier");
    return failed;
}

static void a_rank_is_slow(void **state)
{
    (void)state;
    run(be_slow);
}

/* ---- lost ------------------------------------------------------------------------------------ */

static int die_before(kolo_group *group, void *argument)
{
    const size_t *count = argument;
    int failed =
        enter(group, *count) || capture(group) || launch(group, 0) || ranks_let_be_last(group, 1);
    const int64_t began_ns = ko_now_ns();

    if (kolo_group_rank(group) == 1)
        raise(SIGKILL);
    return failed || begin() || finish() ||
           expect_within(group, began_ns, RANKS_SOON_MS, KOLO_E_PEER_LOST, "rank 1 (");
}

static void *kill_soon(void *unused)
{
    ranks_nap_ms((int)(ko_now_ns() / 1000 % 50));
    raise(SIGKILL);
    return unused;
}

static int die_within(kolo_group *group, void *argument)
{
    const size_t *count = argument;
    pthread_t killer;
    int failed = enter(group, *count) || capture(group);
    const int64_t began_ns = ko_now_ns();

    if (!failed && kolo_group_rank(group) == 1 && pthread_create(&killer, NULL, kill_soon, NULL))
        return ranks_fail("no thread");
    for (int round = 0; !failed && !kolo_group_error(group, NULL); round++)
        failed = begin() || finish();
    return failed || expect_within(group, began_ns, RANKS_SOON_MS, KOLO_E_PEER_LOST, "rank 1 (");
}

static void a_rank_is_killed(void **state)
{
    const struct ranks ranks = {.kind = RANKS_PROCESSES, .n = 3, .tolerated = 1};

    (void)state;
    run_with(&ranks, die_before);
    run_with(&ranks, die_within);
}

/* ---- ended ----------------------------------------------------------------------------------- */

static int wait_for_abort(kolo_group *group, void *argument)
{
    const size_t *count = argument;
    const int rank = kolo_group_rank(group);
    pthread_t aborter;
    int failed = enter(group, *count) || capture(group) || launch(group, 0);
    const int64_t began_ns = ko_now_ns();

    if (failed)
        return 1;
    if (rank == 1)
        return ranks_expect(kolo_barrier(group), KOLO_E_ABORTED,
                            "rank 0 aborted the group: enough");
    if (rank == 0 && pthread_create(&aborter, NULL, ranks_abort_soon, group))
        return ranks_fail("no thread");
    failed = begin() || finish() ||
             expect_within(group, began_ns, RANKS_SOON_MS, KOLO_E_ABORTED,
                           "rank 0 aborted the group: enough");
    return rank == 0 ? pthread_join(aborter, NULL) || failed : failed;
}

/* Rank 0, which serves the store, and has nobody wait for it after its last word. */
static int abort_and_die(kolo_group *group, void *argument)
{
    const size_t *count = argument;
    int failed = enter(group, *count) || capture(group) || launch(group, 0);
    const int64_t began_ns = ko_now_ns();

    if (!failed && kolo_group_rank(group) == 0) {
        kolo_group_abort(group, "enough");
        raise(SIGKILL);
    }
    return failed || begin() || finish() ||
           expect_within(group, began_ns, RANKS_SOON_MS, KOLO_E_ABORTED,
                         "rank 0 aborted the group: enough");
}

static void a_thread_aborts(void **state)
{
    const struct ranks ranks = {.kind = RANKS_PROCESSES, .n = 3, .tolerated = 1};

    (void)state;
    run(wait_for_abort);
    run_with(&ranks, abort_and_die);
}

/* A group that can be freed, whose graph has been launched once. */
static int enter_part(kolo_group *group, const size_t *count, kolo_group **part)
{
    *part = NULL;
    if (enter(group, *count))
        return 1;
    if (kolo_group_split(group, 0, kolo_group_rank(group), part) ||
        kolo_group_set_stream(*part, gpu_rank.stream))
        return ranks_fail("no group");
    return capture(*part) || launch(*part, 0);
}

/* Rank 0 frees a group that a graph still waits in. */
static int free_group(kolo_group *group, void *argument)
{
    kolo_group *part;
    int failed = enter_part(group, argument, &part);

    if (!failed && kolo_group_rank(group) == 0) {
        failed = begin();
        ranks_nap_ms(200);
    }
    kolo_group_free(part);
    return failed || finish() || kolo_barrier(group) ? ranks_fail("the end") : 0;
}

static void a_group_is_freed(void **state)
{
    (void)state;
    run(free_group);
}

/* ---- a GPU that does not answer -------------------------------------------------------------- */

/* Launches in vain, while what looks at the words stands behind it. */
static int begin_unanswered(kolo_group *part)
{
    const int64_t began_ns = ko_now_ns();
    const ko_deadline deadline = ko_deadline_in(LIMIT_MS + RANKS_SOON_MS);
    const char *text = "";
    int err, failed;

    kolo_group_set_timeout(part, LIMIT_MS);
    gpu_hold("transfers");
    failed = begin();
    while (!(err = kolo_group_error(part, &text)) && !ko_deadline_passed(&deadline))
        ranks_nap_ms(5);
    if (err != KOLO_E_TIMEOUT ||
        (!strstr(text, "the GPU has not answered") && !strstr(text, "for rank 1 (")))
        return ranks_fail("the group's error is %d: %s", err, text);
    return failed || ranks_within(began_ns, LIMIT_MS + RANKS_SOON_MS, "the error");
}

/* How often this thread has slept. */
static long count_sleeps(void)
{
    struct rusage usage;

    if (getrusage(RUSAGE_THREAD, &usage))
        abort();
    return usage.ru_nvcsw;
}

/* Whoever waits for what does not come looks for it every millisecond, but for the first ones. */
static int check_sleeps(int64_t began_ns, long before)
{
    const long ms = (long)((ko_now_ns() - began_ns) / 1000000), n = count_sleeps() - before;

    return n > 200 + 2 * ms ? ranks_fail("slept %ld times in %ld ms", n, ms) : 0;
}

/* The streams go on, as soon as they can; or the group is freed while they cannot. */
static int end_unanswered(kolo_group *part, bool is_freed)
{
    const int64_t began_ns = ko_now_ns();
    const long nsleeps = count_sleeps();
    int failed = 0;

    if (!is_freed) {
        gpu_hold("");
        failed = finish();
    }
    kolo_group_free(part);
    return failed || (is_freed && check_sleeps(began_ns, nsleeps)) ||
           ranks_within(began_ns, is_freed ? LAST_MS : 2 * RANKS_SOON_MS, "the group's end");
}

static int look_in_vain(kolo_group *group, const size_t *count, bool is_freed)
{
    kolo_group *part;
    int failed = enter_part(group, count, &part);

    if (!failed && kolo_group_rank(group) != 1)
        failed = begin_unanswered(part) || end_unanswered(part, is_freed);
    if (kolo_barrier(group) && !is_freed) /* whose ranks end at once behind it */
        failed = ranks_fail("barrier");
    if (is_freed) /* its streams stand for good, and GPU memory cannot be freed beside them */
        _exit(failed);
    if (kolo_group_rank(group) == 1)
        kolo_group_free(part);
    return failed;
}

static int look_and_go_on(kolo_group *group, void *argument)
{
    return look_in_vain(group, argument, false);
}

static int look_and_free(kolo_group *group, void *argument)
{
    return look_in_vain(group, argument, true);
}

static void a_gpu_does_not_answer(void **state)
{
    (void)state;
    run(look_and_go_on);
    run(look_and_free);
}

/* For ThreadSanitizer: what has been let go reduces what others still write, and is not waited for.
 */
const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
    return "race:ko_fold_all\n";
}

/* The last of all: from here on the driver has threads in this process, which is not to fork. */
static void among_threads(void **state)
{
    const struct ranks ranks = {.kind = RANKS_THREADS, .n = 3};

    (void)state;
    run_with(&ranks, do_not_launch);
    run_with(&ranks, wait_for_abort);
    run_with(&ranks, be_slow);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_does_not_launch), cmocka_unit_test(a_rank_gives_up_early),
        cmocka_unit_test(a_rank_is_slow),         cmocka_unit_test(a_rank_is_killed),
        cmocka_unit_test(a_thread_aborts),        cmocka_unit_test(a_group_is_freed),
        cmocka_unit_test(a_rank_is_too_late),     cmocka_unit_test(a_gpu_does_not_answer),
        cmocka_unit_test(among_threads),
    };

    setenv("FAKECUDA_JITTER", "50", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
