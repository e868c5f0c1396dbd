/* SPDX-License-Identifier: MIT
 *
 * Ranks that share a GPU which runs one block at a time, and one process's blocks at a time: the
 * double of NVIDIA's driver holds back what a GPU may hold back. Kernels that wait for each other
 * show that it does; no kernel of a collective waits, whatever the number of ranks.
 */
#include "clock.h"
#include "exam.h"
#include "gpu_double.h"
#include "gpu_rank.h"
#include "kernel_args.h"
#include "ranks.h"

#include "cuda_kernels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { NBLOCKS = 4, NBYTES = NBLOCKS * KO_PUSH_PAIRS * 8, NRANKS = 2, LIMIT_MS = 60000 };

static char shared[] = "/tmp/test-residency-XXXXXX";

static void run(const char *slots, const char *slice_us, int n, ranks_body body, void *argument)
{
    setenv("FAKECUDA_SLOTS", slots, 1);
    setenv("FAKECUDA_SLICE", slice_us, 1);
    exam_set_variables("shm", "", 4096);
    assert_int_equal(ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = n}, body, argument),
                     0);
}

/* ---- kernels that wait for each other ----------------------------------------------------- */

struct meeting {
    int running;  /* blocks of rank 0 that find a slot before rank 1 comes */
    bool is_late; /* rank 0 waits in vain */
    bool loses;   /* rank 0 lets rank 1 have the GPU, to get on itself */
};

static ko_cu_ptr zeros(size_t nbytes)
{
    void *content = calloc(1, nbytes);
    ko_cu_ptr memory;

    if (!content || gpu_rank.cuda->alloc(&memory, nbytes) ||
        gpu_rank.cuda->copy(memory, (uintptr_t)content, nbytes, gpu_rank.stream) ||
        gpu_rank.cuda->stream_sync(gpu_rank.stream))
        abort();
    free(content);
    return memory;
}

/* The boxes of both ranks, which are rank 0's memory. */
static int share_boxes(kolo_group *group, uint64_t *boxes)
{
    ko_cu_ptr memory = 0;
    ko_cu_ipc_handle handle;

    memset(&handle, 0, sizeof handle);
    if (kolo_group_rank(group) == 0) {
        memory = zeros(NRANKS * NRANKS * KO_PUSH_BOX);
        if (gpu_rank.cuda->ipc_export(&handle, memory))
            return ranks_fail("no handle");
    }
    if (kolo_broadcast(group, &handle, sizeof handle, KOLO_UINT8, 0))
        return ranks_fail("broadcast");
    if (!memory && gpu_rank.cuda->ipc_open(&memory, handle, KO_CU_IPC_LAZY_PEER_ACCESS))
        return ranks_fail("no memory");
    for (size_t r = 0; r < NRANKS; r++)
        boxes[r] = memory + r * NRANKS * KO_PUSH_BOX;
    return 0;
}

static int await_blocks(int running)
{
    const ko_deadline deadline = ko_deadline_in(LIMIT_MS);

    while (gpu_blocks_now().running != running)
        if (ko_deadline_passed(&deadline))
            return ranks_fail("%d blocks run, not %d", gpu_blocks_now().running, running);
    return 0;
}

static int begin_in_turn(kolo_group *group, const struct meeting *meeting,
                         const struct ko_push *push)
{
    const int rank = kolo_group_rank(group);

    if ((rank == 1 && kolo_barrier(group)) || ko_cuda_push(*push, gpu_rank.stream))
        return ranks_fail("no launch");
    return rank == 0 && (await_blocks(meeting->running) || kolo_barrier(group));
}

/* Ends the kernel's waits after a while. */
static int stop(const struct ko_push *push)
{
    ko_cu_stream stream;

    ranks_nap_ms(300);
    return gpu_rank.cuda->stream_create(&stream, KO_CU_STREAM_NON_BLOCKING) ||
                   gpu_rank.cuda->stream_put_word(stream, push->stop, 1, 0) ||
                   gpu_rank.cuda->stream_sync(stream) || gpu_rank.cuda->stream_destroy(stream)
               ? ranks_fail("the stream that stops")
               : 0;
}

static int meet(kolo_group *group, void *argument)
{
    const struct meeting *meeting = argument;
    const int rank = kolo_group_rank(group);
    struct ko_push push = {.nbytes = NBYTES, .rank = (uint32_t)rank, .n = NRANKS};
    uint32_t given_up = 0;

    if (gpu_rank_enter(NULL) || share_boxes(group, push.boxes))
        return 1;
    for (int r = 0; r < NRANKS; r++) {
        push.from[r] = zeros(NBYTES);
        push.to[r] = zeros(NBYTES);
    }
    push.epochs = zeros(KO_PUSH_BLOCKS * sizeof(uint32_t));
    push.stop = zeros(sizeof(uint32_t));
    push.stalled = zeros(KO_PUSH_BLOCKS * sizeof(uint32_t));
    push.given_up = zeros(sizeof given_up);
    if (begin_in_turn(group, meeting, &push) || (meeting->is_late && stop(&push)) ||
        gpu_rank.cuda->copy((uintptr_t)&given_up, push.given_up, sizeof given_up,
                            gpu_rank.stream) ||
        gpu_rank.cuda->stream_sync(gpu_rank.stream) || kolo_barrier(group))
        return ranks_fail("the kernels");
    if (rank == 0 && given_up != meeting->is_late)
        return ranks_fail("given up: %u", given_up);
    if (rank == 0 && (gpu_blocks_now().lost_slices > 0) != meeting->loses)
        return ranks_fail("%ju slices lost", (uintmax_t)gpu_blocks_now().lost_slices);
    return gpu_rank_leave(0);
}

static void who_waits_keeps_its_slot(void **state)
{
    struct {
        const char *slots;
        struct meeting meeting;
    } rows[] = {{"1", {1, true, false}},
                {"3", {3, true, false}},
                {"4", {4, true, false}},
                {"5", {4, false, false}},
                {"8", {4, false, false}}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        run(rows[i].slots, "0", NRANKS, meet, &rows[i].meeting);
}

static void who_waits_loses_its_slice(void **state)
{
    struct meeting meeting = {4, false, true};

    (void)state;
    run("0", "500", NRANKS, meet, &meeting);
    run("4", "500", NRANKS, meet, &meeting);
}

/* ---- a kernel that tells ------------------------------------------------------------------ */

static uint32_t word_at(ko_cu_ptr at)
{
    uint32_t word = 0;

    if (gpu_rank.cuda->copy((uintptr_t)&word, at, sizeof word, gpu_rank.stream) ||
        gpu_rank.cuda->stream_sync(gpu_rank.stream))
        abort();
    return word;
}

/* Where another rank has given up, it tells nobody, says so, and ends. */
static int tell_in_vain(kolo_group *group, void *unused)
{
    const uint32_t one = 1;
    struct ko_tell tell = {.n = 2, .ntheirs = 3};

    (void)unused;
    if (gpu_rank_enter(group))
        return 1;
    for (int i = 0; i < 2; i++)
        tell.words[i] = zeros(sizeof one);
    for (int r = 0; r < 3; r++)
        tell.theirs[r] = zeros(sizeof one);
    tell.given_up = tell.theirs[0];
    if (ko_cuda_tell(tell, gpu_rank.stream) || !word_at(tell.words[0]) || !word_at(tell.words[1]) ||
        word_at(tell.given_up))
        return ranks_fail("what is to be told");
    for (int i = 0; i < 2; i++)
        tell.words[i] = zeros(sizeof one);
    if (gpu_rank.cuda->copy(tell.theirs[2], (uintptr_t)&one, sizeof one, gpu_rank.stream) ||
        ko_cuda_tell(tell, gpu_rank.stream) || word_at(tell.words[0]) || word_at(tell.words[1]) ||
        !word_at(tell.given_up))
        return ranks_fail("what is not to be told");
    return gpu_rank_leave(gpu_blocks_now().rests ? ranks_fail("the kernel has waited") : 0);
}

static void who_tells_does_not_wait(void **state)
{
    (void)state;
    run("1", "100", 1, tell_in_vain, NULL);
}

/* ---- kernels of collectives --------------------------------------------------------------- */

static int take_all(kolo_group *group, void *argument)
{
    static const size_t counts[] = {17, 30011};
    const struct exam_memory *memory = argument;
    int failed = gpu_rank_enter(group);

    for (int i = 0; i < 2 * KO_NCOLLECTIVES && !failed; i++) {
        const struct exam exam = {.what = (enum ko_collective)(i / 2),
                                  .dtype = i % 3 ? KOLO_FLOAT32 : KOLO_BFLOAT16,
                                  .op = KOLO_SUM,
                                  .count = counts[i % 2],
                                  .root = i % kolo_group_size(group),
                                  .is_async = i % 5 == 0,
                                  .seed = (unsigned)i,
                                  .memory = memory};

        failed = exam_take(group, &exam);
    }
    if (!failed && gpu_blocks_now().rests)
        failed = ranks_fail("a kernel has waited, %ju turns", (uintmax_t)gpu_blocks_now().rests);
    return gpu_rank_leave(failed);
}

static void among(const struct exam_memory *memory)
{
    struct exam_memory copy = *memory;

    setenv("FAKECUDA_DEVICES", "1", 1);
    for (int n = 1; n <= 8; n *= 2)
        run("1", "100", n, take_all, &copy);
    run("3", "0", 3, take_all, &copy);
}

static void no_kernel_waits(void **state)
{
    (void)state;
    among(&gpu_rank_memory);
}

static void no_kernel_of_a_graph_waits(void **state)
{
    (void)state;
    among(&gpu_rank_graphs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_waits_keeps_its_slot),   cmocka_unit_test(who_waits_loses_its_slice),
        cmocka_unit_test(who_tells_does_not_wait),    cmocka_unit_test(no_kernel_waits),
        cmocka_unit_test(no_kernel_of_a_graph_waits),
    };
    const int fd = mkstemp(shared);
    int failed;

    if (fd < 0)
        return 1;
    setenv("FAKECUDA_SHARED", shared, 1);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)close(fd);
    (void)unlink(shared);
    return failed;
}
