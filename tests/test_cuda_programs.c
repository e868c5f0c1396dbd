/* SPDX-License-Identifier: MIT
 *
 * Random programs (programs.h) with buffers of every kind of GPU memory, on the double of NVIDIA's
 * driver, and of the host's.
 *   test_cuda_programs [SEEDS [FIRST]]
 */
#include "gpu_rank.h"
#include "programs.h"
#include "ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

enum { SLICE_BYTES = 4096 };

static uint64_t first_seed = 1;
static int nseeds = IS_SANITIZED ? 1 : 3;

enum { NMEMORIES = 5 };

static const struct exam_memory *const memories[NMEMORIES] = {
    NULL, &gpu_rank_memory, &gpu_rank_memory, &gpu_rank_pieces, &gpu_rank_pool};

static int run_programs(kolo_group *world, void *argument)
{
    int failed = gpu_rank_enter(world);

    (void)argument;
    for (int i = 0; i < nseeds && !failed; i++)
        failed =
            programs_run(world, first_seed + (uint64_t)i, memories, NMEMORIES, gpu_rank.stream);
    return gpu_rank_leave(failed);
}

static void run(enum ranks_kind kind, int n, const char *transport)
{
    exam_set_variables(transport, "", SLICE_BYTES);
    assert_int_equal(ranks_run(&(struct ranks){.kind = kind, .n = n}, run_programs, NULL), 0);
    first_seed += (uint64_t)nseeds;
}

static void processes_share_a_gpu(void **state)
{
    (void)state;
    SKIP_PROCESSES_UNDER_TSAN();
    for (int n = 1; n <= 4; n++)
        run(RANKS_PROCESSES, n, n % 2 ? "shm" : "tcp");
}

static void ranks_have_a_gpu_each(void **state)
{
    (void)state;
    SKIP_PROCESSES_UNDER_TSAN();
    setenv("FAKECUDA_DEVICES", "2", 1);
    for (int n = 2; n <= 3; n++)
        run(RANKS_PROCESSES, n, "shm");
    unsetenv("FAKECUDA_DEVICES");
}

/* Some share a GPU, and others are reached over RDMA or TCP. */
static void ranks_of_several_hosts_do(void **state)
{
    (void)state;
    SKIP_PROCESSES_UNDER_TSAN();
    for (int n = 2; n <= PROGRAMS_MOST_RANKS; n++) {
        exam_set_variables(n % 2 ? "" : "shm,tcp", "", SLICE_BYTES);
        assert_int_equal(ranks_run(&(struct ranks){.kind = RANKS_PROCESSES,
                                                   .n = n,
                                                   .settle = ranks_settle_on_two_hosts},
                                   run_programs, NULL),
                         0);
        first_seed += (uint64_t)nseeds;
    }
}

static int run_until_killed(kolo_group *world, void *argument)
{
    int failed = gpu_rank_enter(world);

    (void)argument;
    if (!failed)
        failed = programs_survive(world, first_seed, memories, NMEMORIES, gpu_rank.stream);
    return gpu_rank_leave(failed);
}

/* In calls of the host's, in streams, and between them; some have a GPU of their own. */
static void survivors_hear_who_was_killed(void **state)
{
    (void)state;
    SKIP_PROCESSES_UNDER_TSAN();
    for (int i = 0; i < 3 * nseeds; i++) {
        const struct ranks ranks = {.kind = RANKS_PROCESSES, .n = 2 + i % 3, .tolerated = 1};

        exam_set_variables(i % 2 ? "shm" : "tcp", "", SLICE_BYTES);
        setenv("FAKECUDA_DEVICES", i % 3 ? "1" : "2", 1);
        assert_int_equal(ranks_run(&ranks, run_until_killed, NULL), 0);
        first_seed += 100;
    }
    unsetenv("FAKECUDA_DEVICES");
}

static void threads_share_a_gpu(void **state)
{
    (void)state;
    for (int n = 2; n <= 4; n++)
        run(RANKS_THREADS, n, "shm");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_share_a_gpu), cmocka_unit_test(ranks_have_a_gpu_each),
        cmocka_unit_test(ranks_of_several_hosts_do),
        cmocka_unit_test(survivors_hear_who_was_killed),
        cmocka_unit_test(threads_share_a_gpu)}; /* last: a driver that is open knows no fork */

    if (argc > 1)
        nseeds = atoi(argv[1]);
    if (argc > 2)
        first_seed = strtoull(argv[2], NULL, 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
