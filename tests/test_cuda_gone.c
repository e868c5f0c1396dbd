/* SPDX-License-Identifier: MIT
 *
 * GPU memory that its owner frees: the other processes, which have mapped it, let go of it although
 * nothing comes to lie where it was, on the double of NVIDIA's driver, whose mapped memory has a
 * descriptor. Calls and messages, of one rank to another that has heard of it by another way.
 */
#include "exam.h"
#include "gpu_rank.h"
#include "ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <cmocka.h>

enum { N = 3, COUNT = 5000, NBYTES = COUNT * sizeof(int), ROUNDS = 40, SETTLED = 6 };

static ko_cu_ptr make(int value)
{
    static int content[COUNT];
    ko_cu_ptr memory;

    for (int i = 0; i < COUNT; i++)
        content[i] = value + i;
    memory = (uintptr_t)gpu_rank_memory.make(content, NBYTES);
    if (gpu_rank.cuda->stream_sync(gpu_rank.stream))
        abort();
    return memory;
}

static int check(ko_cu_ptr memory, int factor, int sum)
{
    static int content[COUNT];

    if (gpu_rank.cuda->copy((uintptr_t)content, memory, NBYTES, gpu_rank.stream) ||
        gpu_rank.cuda->stream_sync(gpu_rank.stream))
        return ranks_fail("the stream");
    for (int i = 0; i < COUNT; i++)
        if (content[i] != sum + factor * i)
            return ranks_fail("element %d is %d, not %d", i, content[i], sum + factor * i);
    return 0;
}

/* From now on nothing else will lie there. */
static int give_up(ko_cu_ptr memory)
{
    void *const at = (void *)(uintptr_t)memory;

    return gpu_rank.cuda->free(memory) ||
                   mmap(at, NBYTES, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1,
                        0) != at
               ? ranks_fail("memory cannot be freed")
               : 0;
}

/* nleft: descriptors that each round leaves. */
static int repeat(kolo_group *group, int (*once)(kolo_group *group, int round), int nleft)
{
    int failed = gpu_rank_enter(group), ndescriptors = 0;

    for (int round = 0; round < ROUNDS && !failed; round++) {
        failed = once(group, round);
        if (round == SETTLED)
            ndescriptors = ranks_count_entries("/proc/self/fd");
    }
    return gpu_rank_leave(
        failed || gpu_rank_check_descriptors(ndescriptors + nleft * (ROUNDS - 1 - SETTLED)));
}

/* In place, and not. */
static int reduce_once(kolo_group *group, int round)
{
    const int n = kolo_group_size(group), rank = kolo_group_rank(group);
    const ko_cu_ptr in = make(rank + round), out = round % 2 ? in : make(0);
    int failed = kolo_all_reduce(group, (void *)(uintptr_t)in, (void *)(uintptr_t)out, COUNT,
                                 KOLO_INT32, KOLO_SUM)
                     ? ranks_fail("all_reduce")
                     : check(out, n, n * (n - 1) / 2 + n * round);

    return failed || kolo_barrier(group) || (out != in && give_up(out)) || give_up(in);
}

static int reduce(kolo_group *group, void *unused)
{
    (void)unused;
    return repeat(group, reduce_once, 0);
}

/* To the next rank, or the one after it, which has not heard of what has gone since it last had a
 * message. */
static int pass_once(kolo_group *group, int round)
{
    const int n = kolo_group_size(group), rank = kolo_group_rank(group);
    const int step = round % 3 ? 1 : 2, from = (rank + n - step) % n;
    const ko_cu_ptr out = make(rank + round), in = make(0);
    int failed = kolo_sendrecv(group, (void *)(uintptr_t)out, COUNT, (rank + step) % n,
                               (void *)(uintptr_t)in, COUNT, from, KOLO_INT32, 0)
                     ? ranks_fail("sendrecv")
                     : check(in, 1, from + round);

    return failed || give_up(out) || give_up(in);
}

static int pass(kolo_group *group, void *unused)
{
    (void)unused;
    return repeat(group, pass_once, 0);
}

/* In a group that fails then, whose own words on the GPU are left to it. */
static int fail_once(kolo_group *group, int round)
{
    const ko_cu_ptr memory = make(round);
    void *const at = (void *)(uintptr_t)memory;
    kolo_work *work = NULL;
    kolo_group *part;
    int failed =
        kolo_group_split(group, 0, kolo_group_rank(group), &part) ||
        kolo_group_set_stream(part, gpu_rank.stream) ||
        (round % 2 ? kolo_all_reduce(part, at, at, COUNT, KOLO_INT32, KOLO_SUM)
                   : kolo_all_reduce_async(part, at, at, COUNT, KOLO_INT32, KOLO_SUM, &work)) ||
        (work && kolo_work_wait(work, -1)) ||
        kolo_sendrecv(part, at, COUNT, (kolo_group_rank(group) + 1) % N, at, COUNT,
                      (kolo_group_rank(group) + N - 1) % N, KOLO_INT32, 0) ||
        kolo_barrier(group);

    if (failed)
        return ranks_fail("a call");
    kolo_work_free(work);
    kolo_group_abort(part, "it has to");
    kolo_group_free(part);
    return kolo_barrier(group) || give_up(memory);
}

static int end_again(kolo_group *group, void *unused)
{
    (void)unused;
    return repeat(group, fail_once, 1);
}

static void run(ranks_body body)
{
    exam_set_variables("shm", "", 4096);
    for (int ngpus = 1; ngpus <= 3; ngpus += 2) {
        setenv("FAKECUDA_DEVICES", ngpus == 1 ? "1" : "3", 1);
        assert_int_equal(ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = N}, body, NULL),
                         0);
    }
}

static void calls_let_go(void **state)
{
    (void)state;
    run(reduce);
}

static void messages_let_go(void **state)
{
    (void)state;
    run(pass);
}

static void failed_groups_let_go(void **state)
{
    (void)state;
    run(end_again);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_let_go),
        cmocka_unit_test(messages_let_go),
        cmocka_unit_test(failed_groups_let_go),
    };

    setenv("FAKECUDA_BLOCKS", "0", 1); /* else what is freed leaves others in its block */
    setenv("FAKECUDA_JITTER", "50", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
