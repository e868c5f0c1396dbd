/* SPDX-License-Identifier: MIT
 *
 * A call that fails on a rank while another one's kernels are to write into its buffer, or already
 * do: once it has returned, nothing does any more, and the buffer can be used for something else.
 * Nobody waits for ever for a rank that is stuck.
 */
#include "clock.h"
#include "exam.h"
#include "gpu_double.h"
#include "gpu_hosts.h"
#include "gpu_rank.h"
#include "ranks.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

/* LONG: so many that kernels do not push them. */
enum {
    N = 3,
    SLOW = N - 1,
    COUNT = 1000,
    LONG = 20000,
    USED = 7777,
    LIMIT_MS = 20000,
    LONG_MS = 3500
};

/* The last rank begins the kernels; it is held up for so long where it does, and the rest happens
 * meanwhile. */
struct scene {
    size_t count;
    int held_ms, limit_ms; /* the group's */
    int abort_ms;  /* rank 0, or a receiver, does so, after this time since its call; 0: it does not
                    */
    int kill_ms;   /* and rank 1 is killed */
    int jitter_us; /* of the last rank's streams */
    bool is_message; /* the call is one, else an all_reduce */
    bool dies;       /* the last rank, where it begins the kernels */
    bool is_stuck;   /* so is it for longer than others wait, whose buffers may change then */
    int status;      /* of the call */
    const char *text;
};

struct side {
    kolo_group *group;
    const struct scene *scene;
    ko_cu_ptr memory;
    ko_cu_stream stream; /* what else the buffer is used for */
};

/* Rank 0 sends to the last, and the other one waits for a message that does not come. */
static int pass(const struct side *side)
{
    const int rank = kolo_group_rank(side->group);
    void *memory = (void *)(uintptr_t)side->memory;

    return rank == 0 ? kolo_send(side->group, memory, side->scene->count, KOLO_INT32, SLOW, 0)
                     : kolo_recv(side->group, memory, side->scene->count, KOLO_INT32,
                                 rank == SLOW ? 0 : SLOW, 0);
}

static int call(const struct side *side)
{
    void *memory = (void *)(uintptr_t)side->memory;

    if (side->scene->is_message)
        return pass(side);
    return kolo_all_reduce(side->group, memory, memory, side->scene->count, KOLO_INT32, KOLO_SUM);
}

static int copy(const struct side *side, int *numbers, bool is_back)
{
    const ko_cu_ptr host = (uintptr_t)numbers;

    return gpu_rank.cuda->copy(is_back ? host : side->memory, is_back ? side->memory : host,
                               side->scene->count * sizeof *numbers, side->stream) ||
                   gpu_rank.cuda->stream_sync(side->stream)
               ? ranks_fail("the memory cannot be copied")
               : 0;
}

static int use(const struct side *side)
{
    int numbers[LONG];

    for (size_t i = 0; i < side->scene->count; i++)
        numbers[i] = USED + kolo_group_rank(side->group);
    return copy(side, numbers, false);
}

static int expect_used(const struct side *side)
{
    int numbers[LONG], nother = 0;

    if (copy(side, numbers, true))
        return 1;
    for (size_t i = 0; i < side->scene->count; i++)
        nother += numbers[i] != USED + kolo_group_rank(side->group);
    return nother ? ranks_fail("%d elements were written after the call had failed", nother) : 0;
}

/* ---- what happens meanwhile ------------------------------------------------------------------ */

static atomic_bool *is_held; /* the last rank, for all ranks to see */

static void await_held(const struct side *side)
{
    const ko_deadline deadline = ko_deadline_in(LIMIT_MS);

    while (side->scene->held_ms && !atomic_load(is_held) && !ko_deadline_passed(&deadline))
        ranks_nap_ms(1);
}

static void *abort_later(void *argument)
{
    const struct side *side = argument;

    await_held(side);
    ranks_nap_ms(side->scene->abort_ms);
    kolo_group_abort(side->group, "enough");
    return NULL;
}

static void *kill_later(void *argument)
{
    const struct side *side = argument;

    await_held(side);
    ranks_nap_ms(side->scene->kill_ms);
    raise(SIGKILL);
    return NULL;
}

static void *let_go_later(void *argument)
{
    const ko_deadline deadline = ko_deadline_in(LIMIT_MS);
    const struct side *side = argument;

    while (!gpu_held() && !ko_deadline_passed(&deadline))
        ranks_nap_ms(1);
    atomic_store(is_held, true);
    ranks_nap_ms(side->scene->held_ms);
    gpu_hold("");
    return NULL;
}

static void *do_nothing(void *argument)
{
    return argument;
}

static void *(*part_of(const struct side *side))(void *)
{
    const int rank = kolo_group_rank(side->group);

    if (rank == (side->scene->is_message ? SLOW : 0) && side->scene->abort_ms)
        return abort_later;
    if (rank == 1 && side->scene->kill_ms)
        return kill_later;
    return rank == SLOW && side->scene->held_ms ? let_go_later : do_nothing;
}

/* ---- ranks ----------------------------------------------------------------------------------- */

static int enter(kolo_group *group, const struct scene *scene, struct side *side)
{
    char jitter[16];

    snprintf(jitter, sizeof jitter, "%d", scene->jitter_us);
    if (scene->jitter_us && kolo_group_rank(group) == SLOW)
        setenv("FAKECUDA_JITTER", jitter, 1); /* of streams to come, of this process */
    *side = (struct side){.group = group, .scene = scene};
    if (gpu_rank_enter(group))
        return 1;
    if (scene->jitter_us)
        setenv("FAKECUDA_JITTER", "0", 1);
    if (gpu_rank.cuda->alloc(&side->memory, scene->count * sizeof(int)) ||
        gpu_rank.cuda->stream_create(&side->stream, KO_CU_STREAM_NON_BLOCKING))
        return ranks_fail("no memory");
    return use(side) || (!scene->is_message && call(side)) || use(side)
               ? ranks_fail("the call before")
               : 0;
}

/* The call fails, and the buffer is used for something else at once. */
static int fail_in_call(kolo_group *group, void *argument)
{
    const struct scene *scene = argument;
    const bool is_slow = kolo_group_rank(group) == SLOW;
    struct side side;
    pthread_t thread;
    int64_t began_ns;
    int failed = enter(group, scene, &side), err;

    if (failed)
        return failed;
    kolo_group_set_timeout(group, scene->limit_ms);
    if (is_slow && scene->held_ms)
        gpu_hold("cuLaunchKernel");
    if (is_slow && scene->dies)
        setenv("FAKECUDA_BREAK", "cuLaunchKernel=-9", 1);
    if (kolo_barrier(group) || pthread_create(&thread, NULL, part_of(&side), &side))
        return ranks_fail("no thread");
    if (is_slow)
        ranks_nap_ms(100); /* to be the last */
    began_ns = ko_now_ns();
    do
        err = call(&side);
    while (!err && scene->jitter_us);
    if (is_slow && err) /* else it was through before it heard of the others */
        failed = ranks_expect(err, scene->status, "");
    else if (!is_slow)
        failed = ranks_expect_soon(began_ns, err, scene->status, scene->text);
    failed |= use(&side);
    ranks_nap_ms(scene->is_stuck ? 0 : 200 + (is_slow ? 0 : scene->held_ms));
    pthread_join(thread, NULL);
    return failed | (scene->is_stuck ? 0 : expect_used(&side));
}

static void run(enum ranks_kind kind, int ngpus, int nhosts, const struct scene *scene)
{
    const struct ranks ranks = {.kind = kind,
                                .n = N,
                                .timeout_ms = LIMIT_MS,
                                .tolerated = (scene->kill_ms != 0) + (scene->dies != 0),
                                .settle = nhosts == 2 ? gpu_hosts_settle_apart : NULL};
    struct scene copy = *scene;

    exam_set_variables("shm,tcp", "", 4096);
    atomic_store(is_held, false);
    setenv("KOLO_CUDA_PIECE_BYTES", "2048", 1);
    setenv("FAKECUDA_DEVICES", (const char *[]){"0", "1", "2", "3"}[ngpus], 1);
    assert_int_equal(ranks_run(&ranks, fail_in_call, &copy), 0);
}

/* ---- scenes ---------------------------------------------------------------------------------- */

/* Who begins the kernels does so when the others have given up. */
static struct scene late(void)
{
    return (struct scene){.count = COUNT,
                          .held_ms = 300,
                          .limit_ms = LIMIT_MS,
                          .abort_ms = 50,
                          .status = KOLO_E_ABORTED,
                          .text = "rank 0 aborted"};
}

static void late_kernels(void **state)
{
    struct scene scene = late();

    (void)state;
    run(RANKS_PROCESSES, 1, 1, &scene);
    run(RANKS_PROCESSES, 2, 1, &scene);
    scene.count = LONG;
    run(RANKS_PROCESSES, 3, 1, &scene);
}

/* They have been begun, and take their time. */
static void slow_kernels(void **state)
{
    struct scene scene = {.jitter_us = 60000,
                          .limit_ms = LIMIT_MS,
                          .status = KOLO_E_ABORTED,
                          .text = "rank 0 aborted"};

    (void)state;
    for (int i = 1; i <= 2; i++) {
        scene.abort_ms = 150 * i;
        scene.count = COUNT;
        run(RANKS_PROCESSES, 1, 1, &scene);
        run(RANKS_PROCESSES, 2, 2, &scene);
        scene.count = LONG;
        run(RANKS_PROCESSES, 3, 1, &scene);
    }
}

/* The receiver's own copy has. */
static void slow_copies(void **state)
{
    const struct scene scene = {.count = COUNT,
                                .is_message = true,
                                .jitter_us = 60000,
                                .limit_ms = LIMIT_MS,
                                .abort_ms = 200,
                                .status = KOLO_E_ABORTED,
                                .text = "rank 2 aborted"};

    (void)state;
    for (int i = 0; i < 3; i++)
        run(RANKS_PROCESSES, 1 + i % 2, 1, &scene);
}

/* The others' patience is over before. */
static struct scene impatient(void)
{
    return (struct scene){.count = COUNT,
                          .held_ms = 1200,
                          .limit_ms = 500,
                          .status = KOLO_E_TIMEOUT,
                          .text = "rank 2"};
}

static void time_outs(void **state)
{
    const struct scene scene = impatient();

    (void)state;
    run(RANKS_PROCESSES, 1, 1, &scene);
    run(RANKS_PROCESSES, 2, 1, &scene);
}

/* A third rank is lost meanwhile. */
static void lost_ranks(void **state)
{
    const struct scene scene = {.count = COUNT,
                                .held_ms = 400,
                                .limit_ms = LIMIT_MS,
                                .kill_ms = 50,
                                .status = KOLO_E_PEER_LOST,
                                .text = "rank 1"};

    (void)state;
    run(RANKS_PROCESSES, 1, 1, &scene);
    run(RANKS_PROCESSES, 2, 1, &scene);
}

/* The rank that was to write has ended, and is not waited for; or it does not go on. */
static void stuck_ranks(void **state)
{
    const struct scene dead = {.count = COUNT,
                               .limit_ms = LIMIT_MS,
                               .dies = true,
                               .status = KOLO_E_PEER_LOST,
                               .text = "rank 2"};
    const struct scene stuck = {.count = COUNT,
                                .held_ms = LONG_MS,
                                .limit_ms = 500,
                                .is_stuck = true,
                                .status = KOLO_E_TIMEOUT,
                                .text = "rank 2"};

    (void)state;
    run(RANKS_PROCESSES, 1, 1, &dead);
    run(RANKS_PROCESSES, 1, 1, &stuck);
}

/* Behind all processes, which ThreadSanitizer does not have fork from threads. */
static void threads(void **state)
{
    const struct scene scenes[] = {late(), impatient()};

    (void)state;
    for (int i = 0; i < 2; i++)
        run(RANKS_THREADS, 1, 1, &scenes[i]);
}

static int share(void **state)
{
    (void)state;
    is_held =
        mmap(NULL, sizeof *is_held, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return is_held == MAP_FAILED ? -1 : 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(late_kernels), cmocka_unit_test(slow_kernels),
        cmocka_unit_test(slow_copies),  cmocka_unit_test(time_outs),
        cmocka_unit_test(lost_ranks),   cmocka_unit_test(stuck_ranks),
        cmocka_unit_test(threads),
    };

    return cmocka_run_group_tests(tests, share, NULL);
}
