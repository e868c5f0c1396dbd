/* SPDX-License-Identifier: MIT
 *
 * Asynchronous collectives that are in the ranks' streams and fail, while another rank's stream has
 * yet to come to its part, or is at it: once the work is done, or this rank's stream has passed the
 * call, no other rank's GPU writes into its buffer any more. Ranks that fail together do not wait
 * for each other, nor for one that has ended, and for one that stands still two seconds at most.
 */
#include "clock.h"
#include "exam.h"
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

#include <cmocka.h>

/* LONG: so many that kernels do not push them. */
enum {
    N = 3,
    WRITER = 0, /* on one GPU it has the kernels */
    COUNT = 1000,
    LONG = 20000,
    USED = 7777,
    MOST_CALLS = 3,
    LIMIT_MS = 20000,
    PROMPT_MS = IS_SANITIZED ? 20000 : 1700, /* less than GPUs are waited for */
    STUCK_MS = 3000
};

/* All make the calls; then the rest happens. */
struct scene {
    size_t count;
    int ncalls;
    int held_ms;   /* what is before them in the writer's stream */
    int limit_ms;  /* the group's */
    int abort_ms;  /* rank 1 does so, after this time; 0: it does not */
    int kill_ms;   /* the writer is killed */
    int jitter_us; /* of its stream */
    int late_ms;   /* all but rank 1 make their calls after this time */
    bool all_abort;
    bool by_stream; /* what is waited for is the stream, not the works */
    bool is_prompt; /* nobody waits for long */
    bool is_stuck;  /* the writer, for longer than the others wait */
    int status;     /* of the calls */
    const char *text;
};

struct side {
    kolo_group *group;
    const struct scene *scene;
    ko_cu_ptr memory[MOST_CALLS];
    ko_cu_stream stream; /* what else the buffers are used for */
    kolo_work *works[MOST_CALLS];
    _Atomic uint32_t word; /* the writer's stream waits for it */
};

/* ---- buffers --------------------------------------------------------------------------------- */

static int copy(const struct side *side, int call, int *numbers, bool is_back)
{
    const ko_cu_ptr host = (uintptr_t)numbers, memory = side->memory[call];

    return gpu_rank.cuda->copy(is_back ? host : memory, is_back ? memory : host,
                               side->scene->count * sizeof *numbers, side->stream) ||
                   gpu_rank.cuda->stream_sync(side->stream)
               ? ranks_fail("the memory cannot be copied")
               : 0;
}

static int use(const struct side *side)
{
    int numbers[LONG], failed = 0;

    for (size_t i = 0; i < side->scene->count; i++)
        numbers[i] = USED + kolo_group_rank(side->group);
    for (int call = 0; call < side->scene->ncalls && !failed; call++)
        failed = copy(side, call, numbers, false);
    return failed;
}

static int expect_used(const struct side *side)
{
    int numbers[LONG], nother = 0;

    for (int call = 0; call < side->scene->ncalls; call++) {
        if (copy(side, call, numbers, true))
            return 1;
        for (size_t i = 0; i < side->scene->count; i++)
            nother += numbers[i] != USED + kolo_group_rank(side->group);
    }
    return nother ? ranks_fail("%d elements were written after the calls had failed", nother) : 0;
}

/* ---- what happens meanwhile ------------------------------------------------------------------ */

static void *abort_later(void *argument)
{
    const struct side *side = argument;

    ranks_nap_ms(side->scene->abort_ms);
    kolo_group_abort(side->group, "enough");
    return NULL;
}

static void *go_on_later(void *argument)
{
    struct side *side = argument;

    ranks_nap_ms(side->scene->kill_ms ? side->scene->kill_ms : side->scene->held_ms);
    if (side->scene->kill_ms)
        raise(SIGKILL);
    atomic_store(&side->word, 1);
    return NULL;
}

/* Of all ranks the writer's hold may be the only thing that happens. */
static void *abort_and_go_on(void *argument)
{
    (void)abort_later(argument);
    return go_on_later(argument);
}

static void *do_nothing(void *argument)
{
    return argument;
}

static void *(*part_of(const struct side *side))(void *)
{
    const int rank = kolo_group_rank(side->group);

    if (rank == WRITER)
        return side->scene->all_abort ? abort_and_go_on : go_on_later;
    return side->scene->abort_ms && (rank == 1 || side->scene->all_abort) ? abort_later
                                                                          : do_nothing;
}

/* ---- ranks ----------------------------------------------------------------------------------- */

static int begin(struct side *side, int call)
{
    void *memory = (void *)(uintptr_t)side->memory[call];

    return kolo_all_reduce_async(side->group, memory, memory, side->scene->count, KOLO_INT32,
                                 KOLO_SUM, &side->works[call]);
}

static void forget_works(struct side *side)
{
    for (int call = 0; call < side->scene->ncalls; call++) {
        kolo_work_free(side->works[call]);
        side->works[call] = NULL;
    }
}

static int enter(kolo_group *group, const struct scene *scene, struct side *side)
{
    char jitter[16];

    snprintf(jitter, sizeof jitter, "%d", scene->jitter_us);
    if (scene->jitter_us && kolo_group_rank(group) == WRITER)
        setenv("FAKECUDA_JITTER", jitter, 1); /* of streams to come, of this process */
    *side = (struct side){.group = group, .scene = scene};
    if (gpu_rank_enter(group))
        return 1;
    if (scene->jitter_us)
        setenv("FAKECUDA_JITTER", "0", 1);
    for (int call = 0; call < scene->ncalls; call++)
        if (gpu_rank.cuda->alloc(&side->memory[call], scene->count * sizeof(int)))
            return ranks_fail("no memory");
    if (gpu_rank.cuda->stream_create(&side->stream, KO_CU_STREAM_NON_BLOCKING) || use(side) ||
        begin(side, 0) || kolo_work_wait(side->works[0], -1))
        return ranks_fail("the call before");
    forget_works(side);
    return use(side);
}

/* 0, or the error that ends them. */
static int await_calls(struct side *side)
{
    int err = KOLO_OK;

    if (side->scene->by_stream && gpu_rank.cuda->stream_sync(gpu_rank.stream))
        return ranks_fail("the stream has failed");
    if (side->scene->by_stream)
        err = kolo_group_error(side->group, NULL);
    for (int call = 0; call < side->scene->ncalls && !side->scene->by_stream; call++)
        err = kolo_work_wait(side->works[call], -1);
    return err;
}

static int make_calls(struct side *side)
{
    int err = KOLO_OK;

    for (int call = 0; call < side->scene->ncalls && !err; call++)
        err = begin(side, call);
    return err;
}

/* One that is at its works when another aborts has made all calls. */
static int fail_calls(struct side *side)
{
    int64_t began_ns;
    int err, failed = 0;

    do {
        forget_works(side);
        ranks_nap_ms(kolo_group_rank(side->group) == 1 ? 0 : side->scene->late_ms);
        began_ns = ko_now_ns();
        err = make_calls(side);
        if (!err)
            err = await_calls(side);
    } while (!err && side->scene->jitter_us);
    if (side->scene->is_prompt)
        failed = ranks_within(began_ns, PROMPT_MS, "the failure");
    if (kolo_group_rank(side->group) != WRITER || err)
        failed |= ranks_expect_soon(began_ns, err, side->scene->status, "");
    if (!side->scene->by_stream && kolo_group_rank(side->group) != WRITER && !failed)
        failed = ranks_expect(err, side->scene->status, side->scene->text);
    return failed;
}

/* The calls fail, and the buffers are used for something else at once. */
static int fail_in_stream(kolo_group *group, void *argument)
{
    const struct scene *scene = argument;
    struct side side;
    pthread_t thread;
    int failed = enter(group, scene, &side);

    if (failed)
        return failed;
    if (kolo_group_rank(group) == WRITER && scene->held_ms &&
        gpu_rank.cuda->stream_await_word(gpu_rank.stream, (uintptr_t)&side.word, 1, KO_CU_WAIT_GEQ))
        return ranks_fail("the stream does not wait");
    kolo_group_set_timeout(group, scene->limit_ms);
    if (kolo_barrier(group) || pthread_create(&thread, NULL, part_of(&side), &side))
        return ranks_fail("no thread");
    failed = fail_calls(&side) | use(&side);
    ranks_nap_ms(scene->is_stuck ? 0 : 150 + scene->held_ms);
    pthread_join(thread, NULL);
    failed |= scene->is_stuck ? 0 : expect_used(&side);
    forget_works(&side);
    return failed;
}

static void run(enum ranks_kind kind, int ngpus, const struct scene *scene)
{
    const struct ranks ranks = {
        .kind = kind, .n = N, .timeout_ms = LIMIT_MS, .tolerated = scene->kill_ms != 0};
    struct scene copy = *scene;

    exam_set_variables("shm,tcp", "", 4096);
    setenv("FAKECUDA_DEVICES", (const char *[]){"0", "1", "2", "3"}[ngpus], 1);
    assert_int_equal(ranks_run(&ranks, fail_in_stream, &copy), 0);
}

/* ---- scenes ---------------------------------------------------------------------------------- */

/* The writer's stream comes to its part when others have failed. */
static struct scene late(void)
{
    return (struct scene){.count = COUNT,
                          .ncalls = 1,
                          .held_ms = 250,
                          .limit_ms = LIMIT_MS,
                          .abort_ms = 60,
                          .status = KOLO_E_ABORTED,
                          .text = "rank 1 aborted"};
}

static void run_on_all(struct scene scene)
{
    run(RANKS_PROCESSES, 1, &scene);
    run(RANKS_PROCESSES, 2, &scene);
    scene.count = LONG;
    run(RANKS_PROCESSES, 3, &scene);
}

static void works(void **state)
{
    (void)state;
    run_on_all(late());
}

static void streams(void **state)
{
    struct scene scene = late();

    (void)state;
    scene.by_stream = true;
    run_on_all(scene);
}

static void many_calls(void **state)
{
    struct scene scene = late();

    (void)state;
    scene.ncalls = MOST_CALLS;
    scene.is_prompt = true;
    run_on_all(scene);
    scene.by_stream = true;
    run_on_all(scene);
}

/* It is at it, and takes its time. */
static void slow_kernels(void **state)
{
    struct scene scene = {.count = COUNT,
                          .ncalls = 2,
                          .jitter_us = 30000,
                          .limit_ms = LIMIT_MS,
                          .status = KOLO_E_ABORTED,
                          .text = "rank 1 aborted"};

    (void)state;
    for (int i = 1; i <= 2; i++) {
        scene.abort_ms = 130 * i;
        scene.by_stream = i == 2;
        run_on_all(scene);
    }
}

static void time_outs(void **state)
{
    struct scene scene = late();

    (void)state;
    scene.limit_ms = ranks_lengthen(400);
    scene.held_ms = scene.limit_ms + 500;
    scene.abort_ms = 0;
    scene.status = KOLO_E_TIMEOUT;
    scene.text = "rank 0";
    run(RANKS_PROCESSES, 1, &scene);
    scene.by_stream = true;
    run(RANKS_PROCESSES, 2, &scene);
}

/* Rank 1 has gone on, with its stream waiting for its call, whose part is in another one. */
static void impatient_ranks(void **state)
{
    struct scene scene = late();

    (void)state;
    scene.late_ms = 1200;
    scene.abort_ms += 1400;
    scene.held_ms += 1400;
    run(RANKS_PROCESSES, 1, &scene);
}

/* None waits for another that waits. */
static void failures_together(void **state)
{
    struct scene scene = late();

    (void)state;
    scene.ncalls = MOST_CALLS;
    scene.all_abort = true;
    scene.is_prompt = true;
    scene.text = "aborted";
    run_on_all(scene);
    scene.by_stream = true;
    run_on_all(scene);
}

/* The writer has ended, or does not go on. */
static void stuck_ranks(void **state)
{
    struct scene dead = late(), stuck = late();

    (void)state;
    dead.held_ms = 1;
    dead.kill_ms = 150;
    dead.abort_ms = 0;
    dead.is_prompt = true;
    dead.status = KOLO_E_PEER_LOST;
    dead.text = "rank 0";
    run(RANKS_PROCESSES, 1, &dead);
    run(RANKS_PROCESSES, 2, &dead);
    stuck.is_stuck = true;
    stuck.held_ms = STUCK_MS;
    run(RANKS_PROCESSES, 1, &stuck);
}

/* Behind all processes, which ThreadSanitizer does not have fork from threads. */
static void threads(void **state)
{
    struct scene scene = late();

    (void)state;
    for (int i = 0; i < 2; i++) {
        scene.by_stream = i;
        run(RANKS_THREADS, 1, &scene);
    }
    scene.count = LONG;
    scene.ncalls = MOST_CALLS;
    run(RANKS_THREADS, 3, &scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(works),
        cmocka_unit_test(streams),
        cmocka_unit_test(many_calls),
        cmocka_unit_test(slow_kernels),
        cmocka_unit_test(time_outs),
        cmocka_unit_test(impatient_ranks),
        cmocka_unit_test(failures_together),
        cmocka_unit_test(stuck_ranks),
        cmocka_unit_test(threads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
