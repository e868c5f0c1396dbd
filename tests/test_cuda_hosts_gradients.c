/* SPDX-License-Identifier: MIT
 *
 * Training's calls, and those of several tensors, of GPU memory among ranks of several hosts, on
 * the double of NVIDIA's driver: each rank brings only its share to the host's memory and back, and
 * half of that if elements travel as smaller ones; the results of the host's calls, whoever has his
 * buffers there, or no kernels.
 */
#include "gpu_double.h"
#include "gpu_hosts.h"
#include "gpu_rank.h"
#include "gradient_exam.h"
#include "ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { COUNT = 36864, NBYTES = COUNT * sizeof(float), LIMIT = COUNT / 64 };

/* ---- shares ---------------------------------------------------------------------------------- */

static float *make(void)
{
    static const float zeros[COUNT];

    return gpu_rank_memory.make(zeros, sizeof zeros);
}

enum counted { STEP, COMPRESSED, COMPRESSED_STEP, TENSORS, NCOUNTED };

/* Buffers of the rank's: gradients, parameters, two states. */
static int call(kolo_group *group, enum counted what, float *const *memory)
{
    kolo_step step = {.optimizer = KOLO_ADAM, .number = 1, .epsilon = 1};
    const kolo_update update = {memory[0], memory[1], {memory[2], memory[3]}, COUNT};
    const size_t some = 3; /* elements that go together with others, as short ones do */
    const kolo_tensor tensors[] = {{memory[0], memory[0], COUNT / 2},
                                   {memory[1], memory[1], some},
                                   {memory[2], memory[2], some},
                                   {memory[3], memory[3], COUNT / 2}};

    switch (what) {
    case COMPRESSED:
        return kolo_all_reduce_compressed(group, memory[0], memory[1], COUNT, KOLO_BFLOAT16,
                                          KOLO_AVG);
    case TENSORS:
        return kolo_all_reduce_coalesced(group, tensors, 4, KOLO_FLOAT32, KOLO_SUM);
    default:
        step.wire = what == STEP ? 0 : KOLO_FLOAT16;
        return kolo_all_reduce_step(group, &update, KOLO_FLOAT32, KOLO_SUM, &step);
    }
}

static int count_one(kolo_group *group, enum counted what, const char *hosts, float *const *memory)
{
    static const char *const names[NCOUNTED] = {"a step", "a compressed all_reduce",
                                                "a compressed step", "several tensors"};
    const uint64_t nbytes = what == COMPRESSED || what == COMPRESSED_STEP ? NBYTES / 2 : NBYTES;
    const uint64_t before = gpu_bytes_now().with_host;

    if (call(group, what, memory))
        return ranks_fail("%s", names[what]);
    return gpu_hosts_expect(group, names[what], hosts, before,
                            2 * nbytes / gpu_hosts_mates(hosts, kolo_group_rank(group)), LIMIT);
}

static int count_shares(kolo_group *group, void *hosts)
{
    int failed = gpu_rank_enter(group);
    float *memory[4];

    for (int i = 0; i < 4; i++)
        memory[i] = make();
    if (gpu_rank.cuda->stream_sync(gpu_rank.stream))
        abort();
    for (int what = 0; what < NCOUNTED && !failed; what++)
        failed = count_one(group, (enum counted)what, hosts, memory);
    return gpu_rank_leave(failed);
}

static void each_rank_stages_its_share(void **state)
{
    (void)state;
    gpu_hosts_run("aabb", count_shares);
    gpu_hosts_run("aaabbb", count_shares);
}

/* ---- results --------------------------------------------------------------------------------- */

enum { EXAMS = 12 };

static int take(kolo_group *group, const struct exam_memory *memory, unsigned seed)
{
    return gradient_exam_step(group, memory, seed) ||
           gradient_exam_compressed(group, memory, seed) ||
           gradient_exam_unscale(group, memory, seed);
}

static int take_exams(kolo_group *group, void *unused)
{
    int failed = gpu_rank_enter(group);

    (void)unused;
    for (unsigned seed = 0; seed < EXAMS && !failed; seed++)
        failed = take(group, &gpu_rank_memory, seed);
    return gpu_rank_leave(failed);
}

/* In turns each rank has its buffers in host memory. */
static int take_mixed(kolo_group *group, void *unused)
{
    const unsigned n = (unsigned)kolo_group_size(group), rank = (unsigned)kolo_group_rank(group);
    int failed = gpu_rank_enter(group);

    (void)unused;
    for (unsigned seed = 0; seed < EXAMS && !failed; seed++)
        failed = take(group, seed % n == rank ? NULL : &gpu_rank_memory, seed);
    return gpu_rank_leave(failed);
}

/* Rank 1 has no GPU. */
static int take_without(kolo_group *group, void *unused)
{
    int failed;

    if (kolo_group_rank(group) != 1)
        return take_exams(group, unused);
    failed = gpu_rank_enter_without(group);
    for (unsigned seed = 0; seed < EXAMS && !failed; seed++)
        failed = take(group, NULL, seed);
    return failed;
}

/* Rank 1 has no kernels, so that it casts in host memory, and takes no steps on its GPU. */
static int compress_without_kernels(kolo_group *group, void *unused)
{
    int failed;

    (void)unused;
    if (kolo_group_rank(group) == 1)
        setenv("FAKECUDA_BREAK", "cuLibraryLoadData=218", 1);
    failed = gpu_rank_enter(group);
    for (unsigned seed = 0; seed < EXAMS && !failed; seed++)
        failed = gradient_exam_compressed(group, &gpu_rank_memory, seed);
    return gpu_rank_leave(failed);
}

static void results_are_the_same(void **state)
{
    static const char *const shapes[] = {"ab", "aabb", "abbccc"};

    (void)state;
    for (int i = 0; i < 3; i++)
        gpu_hosts_run_with(i % 2 ? "1" : "3", shapes[i], take_exams);
    gpu_hosts_run("aabb", take_mixed);
    gpu_hosts_run("aab", take_without);
    gpu_hosts_run("aab", compress_without_kernels);
    gpu_hosts_run("aaa", take_mixed);
    gpu_hosts_run("aaa", take_without);
    gpu_hosts_run("aaa", compress_without_kernels);
    setenv("KOLO_CUDA_IPC", "off", 1);
    gpu_hosts_run("aab", take_exams);
    gpu_hosts_run("aaa", take_mixed);
    unsetenv("KOLO_CUDA_IPC");
}

/* ---- several tensors ------------------------------------------------------------------------- */

enum { NTENSORS = 9 };

/* Some long, some short, one empty; the ranks' buffers in host memory in turns. */
static int reduce_tensors(kolo_group *group, void *unused)
{
    static const size_t counts[NTENSORS] = {1, 5003, 0, 17, 20011, 3, 3, 9001, 2};
    static int values[NTENSORS][20011 + 1]; /* as much as is copied */
    const int n = kolo_group_size(group), rank = kolo_group_rank(group);
    kolo_tensor tensors[NTENSORS];
    int failed = gpu_rank_enter(group);

    (void)unused;
    for (int turn = -1; turn < n && !failed; turn++) {
        for (int t = 0; t < NTENSORS; t++) {
            for (size_t i = 0; i < counts[t]; i++)
                values[t][i] = rank + t + (int)i;
            tensors[t].count = counts[t];
            tensors[t].in = tensors[t].out =
                turn == rank ? values[t] : gpu_rank_memory.make(values[t], counts[t] * 4 + 4);
        }
        if (kolo_all_reduce_coalesced(group, tensors, NTENSORS, KOLO_INT32, KOLO_SUM))
            failed = ranks_fail("all_reduce_coalesced");
        for (int t = 0; t < NTENSORS; t++)
            if (turn != rank)
                gpu_rank_memory.fetch(values[t], tensors[t].out, counts[t] * 4);
        for (int t = 0; t < NTENSORS && !failed; t++)
            for (size_t i = 0; i < counts[t] && !failed; i++)
                if (values[t][i] != n * (n - 1) / 2 + n * (t + (int)i))
                    failed = ranks_fail("element %zu of tensor %d is %d", i, t, values[t][i]);
    }
    return gpu_rank_leave(failed);
}

static void several_tensors(void **state)
{
    (void)state;
    gpu_hosts_run("ab", reduce_tensors);
    gpu_hosts_run("aabb", reduce_tensors);
    setenv("KOLO_CUDA_IPC", "off", 1);
    gpu_hosts_run("aab", reduce_tensors);
    unsetenv("KOLO_CUDA_IPC");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_rank_stages_its_share),
        cmocka_unit_test(results_are_the_same),
        cmocka_unit_test(several_tensors),
    };

    setenv("FAKECUDA_JITTER", "50", 1);
    setenv("KOLO_CUDA_PIECE_BYTES", "8192", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
