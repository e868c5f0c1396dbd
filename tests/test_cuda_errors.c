/* SPDX-License-Identifier: MIT
 *
 * Collectives among ranks that share one GPU, or several, also on two hosts, that cannot come to a
 * good end: ranks that are killed, that make another call or none, that abort; a GPU that fails or
 * stands still. Every stream goes on, every rank says why, and its process lives.
 */
#include "clock.h"
#include "gpu.h"
#include "gpu_hosts.h"
#include "gpu_rank.h"
#include "gpu_waits.h"
#include "ranks.h"

#include <pthread.h>
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
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { N = 3, COUNT = 1000, LIMIT_MS = 4000, PATIENT_MS = 30000 };

/* Of a rank. */
struct side {
    kolo_group *group;
    const struct ko_cuda *cuda;
    ko_cu_stream stream;
    ko_cu_ptr memory;
    uint32_t gate; /* of the stream, if it is to stand still */
};

static int enter(kolo_group *group, struct side *side)
{
    if (gpu_rank_enter(group))
        return 1;
    *side = (struct side){.group = group, .cuda = gpu_rank.cuda, .stream = gpu_rank.stream};
    return side->cuda->alloc(&side->memory, COUNT * sizeof(int)) ? ranks_fail("no memory") : 0;
}

static int reduce(struct side *side, size_t count, kolo_work **work)
{
    void *memory = (void *)(uintptr_t)side->memory;

    return work ? kolo_all_reduce_async(side->group, memory, memory, count, KOLO_INT32, KOLO_SUM,
                                        work)
                : kolo_all_reduce(side->group, memory, memory, count, KOLO_INT32, KOLO_SUM);
}

/* As kolo_work_wait, of a call that may not have been taken: a group may have failed before. */
static int outcome(int err, kolo_work *work)
{
    if (!err)
        err = kolo_work_wait(work, -1);
    kolo_work_free(work);
    return err;
}

/* The call fails as it should, what comes behind it in the stream is done, and so is the next call
 * at once. */
static int fail_as(struct side *side, size_t count, int status, const char *text)
{
    kolo_work *works[2] = {NULL, NULL};
    int first = reduce(side, count, &works[0]), second = reduce(side, count, &works[1]);

    if (side->cuda->stream_sync(side->stream))
        return ranks_fail("the stream has failed");
    second = outcome(second, works[1]);
    first = outcome(first, works[0]);
    if (first != status || !strstr(kolo_last_error(), text))
        return ranks_fail("status %d, %s; not %d, %s", first, kolo_last_error(), status, text);
    if (second != status || reduce(side, count, NULL) != status)
        return ranks_fail("the group has not failed for good");
    return 0;
}

static void run_within(ranks_body body, int tolerated, int limit_ms)
{
    const struct ranks ranks = {
        .kind = RANKS_PROCESSES, .n = N, .timeout_ms = limit_ms, .tolerated = tolerated};

    setenv("KOLO_CUDA_PIECE_BYTES", "2048", 1); /* two of a call */
    gpu_hosts_run_places(&ranks, GPU_HOSTS_PLACES, "2", body);
}

static void run(ranks_body body, int tolerated)
{
    run_within(body, tolerated, LIMIT_MS);
}

/* ---- ranks that are lost --------------------------------------------------------------------- */

static int die_before(kolo_group *group, void *unused)
{
    struct side side;
    int failed = enter(group, &side);

    (void)unused;
    if (!failed && (reduce(&side, COUNT, NULL) || ranks_let_be_last(group, 2)))
        failed = ranks_fail("%s", "the call before");
    if (kolo_group_rank(group) == 2)
        raise(SIGKILL);
    return failed ? failed : fail_as(&side, COUNT, KOLO_E_PEER_LOST, "rank 2");
}

/* The others are through with their part, and wait for the one who carries it out. */
static int die_meanwhile(kolo_group *group, void *unused)
{
    struct side side;
    int failed = enter(group, &side);

    (void)unused;
    if (kolo_group_rank(group) == 2) {
        /* as it puts its part into its stream, or has it carried out */
        setenv("FAKECUDA_BREAK", "cuStreamBatchMemOp=-9,cuLaunchKernel=-9", 1);
        ranks_nap_ms(300); /* to be the last */
    }
    return failed ? failed : fail_as(&side, COUNT, KOLO_E_PEER_LOST, "rank 2");
}

static void killed_ranks(void **state)
{
    (void)state;
    run_within(die_before, 1, PATIENT_MS);
    run_within(die_meanwhile, 1, PATIENT_MS);
}

/* ---- wrong calls ----------------------------------------------------------------------------- */

static int call_otherwise(kolo_group *group, void *unused)
{
    struct side side;
    const size_t count = kolo_group_rank(group) == 1 ? COUNT - 1 : COUNT;
    int failed = enter(group, &side);

    (void)unused;
    if (!failed)
        failed = fail_as(&side, count, KOLO_E_MISMATCH, "of 1000 int32, sum");
    return failed || strstr(kolo_last_error(), "of 999 int32, sum")
               ? failed
               : ranks_fail("the other side is not named");
}

static int call_barrier(kolo_group *group, void *unused)
{
    struct side side;
    int failed = enter(group, &side);

    (void)unused;
    if (!failed && kolo_group_rank(group) != 1)
        return fail_as(&side, COUNT, KOLO_E_MISMATCH, "barrier");
    return failed || kolo_barrier(group) == KOLO_E_MISMATCH ? failed : ranks_fail("a barrier");
}

static void mismatches(void **state)
{
    (void)state;
    run_within(call_otherwise, 0, PATIENT_MS);
    run_within(call_barrier, 0, PATIENT_MS);
}

static int stay_away(kolo_group *group, void *unused)
{
    struct side side;
    int failed = enter(group, &side);

    (void)unused;
    kolo_group_set_timeout(group, 300);
    if (!failed && kolo_group_rank(group) != 1)
        return fail_as(&side, COUNT, KOLO_E_TIMEOUT, "rank 1");
    ranks_nap_ms(1500);
    return failed || reduce(&side, COUNT, NULL) ? failed : ranks_fail("the call came too late");
}

static void time_outs(void **state)
{
    (void)state;
    run(stay_away, 0);
}

/* ---- aborts ---------------------------------------------------------------------------------- */

/* Rank 1's stream stands still, and the others wait for it. */
static int give_up(kolo_group *group, void *unused)
{
    struct side side;
    pthread_t thread;
    kolo_work *work;
    int failed = enter(group, &side);

    (void)unused;
    kolo_group_set_timeout(group, 60000);
    if (failed || kolo_group_rank(group) != 1)
        return failed ? failed : fail_as(&side, COUNT, KOLO_E_ABORTED, "rank 1 aborted");
    if (side.cuda->stream_await_word(side.stream, (uintptr_t)&side.gate, 1, KO_CU_WAIT_EQ) ||
        reduce(&side, COUNT, &work) || pthread_create(&thread, NULL, ranks_abort_soon, group))
        return ranks_fail("the gate");
    if (kolo_work_wait(work, -1) != KOLO_E_ABORTED)
        failed = ranks_fail("not aborted");
    pthread_join(thread, NULL);
    __atomic_store_n(&side.gate, 1, __ATOMIC_RELEASE);
    if (side.cuda->stream_sync(side.stream))
        failed = ranks_fail("the stream");
    kolo_work_free(work);
    return failed;
}

static void aborts(void **state)
{
    (void)state;
    run(give_up, 0);
}

/* ---- ranks that come too late ---------------------------------------------------------------- */

/* Shared by all ranks: how many have been told that the call has failed, and how often the last one
 * has come too late. */
static struct {
    _Atomic int ntold, nlate;
} * turns;

enum { REFILLED = 7777 };

static int refill(const struct side *side)
{
    int numbers[COUNT];

    for (int i = 0; i < COUNT; i++)
        numbers[i] = REFILLED;
    return side->cuda->copy(side->memory, (uintptr_t)numbers, sizeof numbers, side->stream) ||
                   side->cuda->stream_sync(side->stream)
               ? ranks_fail("the memory cannot be filled")
               : 0;
}

static int expect_refilled(const struct side *side)
{
    int numbers[COUNT], nother = 0;

    if (side->cuda->copy((uintptr_t)numbers, side->memory, sizeof numbers, side->stream) ||
        side->cuda->stream_sync(side->stream))
        return ranks_fail("the memory cannot be read");
    for (int i = 0; i < COUNT; i++)
        nother += numbers[i] != REFILLED;
    return nother ? ranks_fail("%d elements were written after the call had failed", nother) : 0;
}

/* The others abort their call, and use its memory for something else, when the last rank comes. */
static int come_too_late(kolo_group *group, void *unused)
{
    const int nlate = turns->nlate;
    struct side side;
    pthread_t thread;
    int failed = enter(group, &side) || reduce(&side, COUNT, NULL) || refill(&side);

    (void)unused;
    if (!failed && kolo_group_rank(group) == 2) {
        while (turns->ntold < (nlate + 1) * (N - 1))
            ranks_nap_ms(1);
        failed = reduce(&side, COUNT, NULL) ? 0 : ranks_fail("the call came too late");
        turns->nlate++;
        return failed | expect_refilled(&side);
    }
    if (failed || pthread_create(&thread, NULL, ranks_abort_soon, group))
        return ranks_fail("no thread");
    if (reduce(&side, COUNT, NULL) != KOLO_E_ABORTED)
        failed = ranks_fail("not aborted");
    failed |= refill(&side);
    turns->ntold++;
    while (turns->nlate == nlate)
        ranks_nap_ms(1);
    pthread_join(thread, NULL);
    return failed | expect_refilled(&side);
}

static void late_ranks(void **state)
{
    (void)state;
    turns = mmap(NULL, sizeof *turns, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(turns, MAP_FAILED);
    run(come_too_late, 0);
    munmap(turns, sizeof *turns);
}

/* ---- ends somewhere in a call ---------------------------------------------------------------- */

enum { SOME_MS = 60 };

static void *kill_soon(void *unused)
{
    (void)unused;
    ranks_nap_ms(SOME_MS);
    raise(SIGKILL);
    return NULL;
}

/* Calls follow each other until rank 2 ends. */
static int reduce_until(kolo_group *group, void *(*end)(void *group), int status, const char *text)
{
    const bool is_last = kolo_group_rank(group) == 2;
    struct side side;
    pthread_t thread;
    int failed = enter(group, &side), err = KOLO_OK;

    if (failed || (is_last && pthread_create(&thread, NULL, end, group)))
        return 1;
    while (!err)
        err = reduce(&side, COUNT, NULL);
    failed = ranks_expect(err, status, is_last ? "" : text);
    if (is_last)
        pthread_join(thread, NULL);
    return gpu_rank_leave(failed);
}

static int until_killed(kolo_group *group, void *unused)
{
    (void)unused;
    return reduce_until(group, kill_soon, KOLO_E_PEER_LOST, "rank 2");
}

static int until_aborted(kolo_group *group, void *unused)
{
    (void)unused;
    return reduce_until(group, ranks_abort_soon, KOLO_E_ABORTED, "rank 2 aborted");
}

static void sudden_ends(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        run(until_killed, 1);
        run(until_aborted, 0);
    }
}

/* ---- a GPU that fails ------------------------------------------------------------------------ */

static int break_down(kolo_group *group, void *unused)
{
    struct side side;
    int failed;

    (void)unused;
    if (kolo_group_rank(group) == 1)
        setenv("FAKECUDA_BREAK", "cuStreamBatchMemOp=719,cuLaunchKernel=719", 1);
    failed = enter(group, &side);
    if (kolo_group_rank(group) == 1)
        ranks_nap_ms(300); /* to be the last */
    return failed ? failed : fail_as(&side, COUNT, KOLO_E_SYSTEM, "all_reduce on rank 1: a ");
}

/* A fault of the user's own, as of a kernel of his: the driver answers nothing from then on, not
 * even whose memory a buffer is. */
static int ask_in_vain(kolo_group *group, const char *broken, const char *error)
{
    const int rank = kolo_group_rank(group);
    struct side side;
    int failed = enter(group, &side), err;

    if (failed || reduce(&side, COUNT, NULL) || ranks_let_be_last(group, 1))
        return ranks_fail("the call before");
    if (rank == 1) {
        setenv("FAKECUDA_BREAK", broken, 1);
        err = kolo_send(group, (void *)(uintptr_t)side.memory, COUNT, KOLO_INT32, 0, 0);
        failed = ranks_expect(err, KOLO_E_SYSTEM, error);
    }
    if (!failed && reduce(&side, COUNT, NULL) != KOLO_E_SYSTEM)
        failed = ranks_fail("a call of a GPU that has failed");
    if (!failed && !(strstr(kolo_last_error(), "all_reduce on rank 1: the GPU") &&
                     strstr(kolo_last_error(), error)))
        failed = ranks_fail("%s", kolo_last_error());
    unsetenv("FAKECUDA_BREAK");
    return failed;
}

static int ask_after_fault(kolo_group *group, void *unused)
{
    (void)unused;
    return ask_in_vain(group, "cuPointerGetAttribute=719,cuStreamQuery=719,cuLaunchKernel=719",
                       "719");
}

static int ask_after_end(kolo_group *group, void *unused)
{
    (void)unused;
    return ask_in_vain(group, "cuCtxPushCurrent=201", "201");
}

/* A work that nobody waits for, in a stream that stands still: the group ends nevertheless. */
static int leave_it_standing(kolo_group *group, void *unused)
{
    struct side side;
    static uint32_t never; /* good to the end of the process */
    kolo_work *work;
    int failed = enter(group, &side);

    (void)unused;
    if (failed)
        return failed;
    if (side.cuda->stream_await_word(side.stream, (uintptr_t)&never, 1, KO_CU_WAIT_EQ) ||
        kolo_barrier(group) || reduce(&side, COUNT, &work))
        work = NULL; /* another rank was faster */
    kolo_group_abort(group, "the stream stands still");
    kolo_work_free(work);
    return 0;
}

static void broken_gpus(void **state)
{
    (void)state;
    run(break_down, 0);
    run(ask_after_fault, 0);
    run(ask_after_end, 0);
    run(leave_it_standing, 0);
}

/* ---- forks ----------------------------------------------------------------------------------- */

/* The page that streams wait on stays the parent's alone: a child has another. */
static void forks(void **state)
{
    static atomic_int stop;
    struct ko_gpu *gpu;
    int status = 1;
    pid_t child;

    (void)state;
    child = fork(); /* the driver is not to be in this process */
    if (!child) {
        if (gpu_rank_enter(NULL) || ko_gpu_open(gpu_rank.stream, &stop, &gpu))
            _exit(1);
        atomic_store(&ko_gpu_page(gpu)->done, 7);
        child = fork();
        if (!child)
            _exit(atomic_load(&ko_gpu_page(gpu)->done) ? 2 : 0);
        _exit(waitpid(child, &status, 0) == child ? WEXITSTATUS(status) : 3);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- kernels that are loaded late ------------------------------------------------------------ */

/* The first call of a group: its stream waits for kernels that nothing has started before. */
static int launch_first(kolo_group *group, void *unused)
{
    struct side side;
    kolo_work *work;
    int failed = enter(group, &side);

    (void)unused;
    if (failed || reduce(&side, COUNT, &work))
        return failed ? failed : ranks_fail("the call was not taken");
    failed = ranks_expect(kolo_work_wait(work, -1), KOLO_OK, "");
    kolo_work_free(work);
    return gpu_rank_leave(failed);
}

static void late_kernels(void **state)
{
    (void)state;
    setenv("FAKECUDA_LAZY", "1", 1);
    run(launch_first, 0);
    setenv("FAKECUDA_WITHOUT", "cuFuncLoad", 1); /* as before CUDA 12.4 */
    run(launch_first, 0);
    unsetenv("FAKECUDA_WITHOUT");
    unsetenv("FAKECUDA_LAZY");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_ranks), cmocka_unit_test(mismatches),
        cmocka_unit_test(time_outs),    cmocka_unit_test(aborts),
        cmocka_unit_test(sudden_ends),  cmocka_unit_test(broken_gpus),
        cmocka_unit_test(late_kernels), cmocka_unit_test(late_ranks),
        cmocka_unit_test(forks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
