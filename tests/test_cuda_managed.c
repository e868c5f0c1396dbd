/* SPDX-License-Identifier: MIT
 *
 * Managed memory, on the double of NVIDIA's driver: it is the GPU's wherever its pages are, in the
 * order of the stream and not for the processor to touch, and no other process can be handed it.
 */
#include "exam.h"
#include "gpu_double.h"
#include "gpu_rank.h"
#include "ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

static void *make(const void *content, size_t nbytes, bool is_at_host)
{
    void *memory = gpu_rank_memory.make(content, nbytes);

    gpu_manage((uintptr_t)memory, is_at_host);
    return memory;
}

static void *make_at_gpu(const void *content, size_t nbytes)
{
    return make(content, nbytes, false);
}

static void *make_at_host(const void *content, size_t nbytes)
{
    return make(content, nbytes, true);
}

static void fetch(void *content, void *memory, size_t nbytes)
{
    gpu_rank_memory.fetch(content, memory, nbytes);
}

static const struct exam_memory memories[] = {{make_at_gpu, fetch, NULL, NULL},
                                              {make_at_host, fetch, NULL, NULL}};

static int take(kolo_group *group, enum ko_collective what)
{
    static const size_t counts[] = {1, 33, 5001};

    return exam_take_forms(group, what, counts, 3, &memories[0]) ||
           exam_take_forms(group, what, counts, 3, &memories[1]);
}

/* A message from one kind into the other. */
static int pass_on(kolo_group *group)
{
    enum { COUNT = 5000 };
    const int n = kolo_group_size(group), rank = kolo_group_rank(group);
    int values[COUNT], failed = 0;
    void *in, *out;

    for (int i = 0; i < COUNT; i++)
        values[i] = rank * COUNT + i;
    in = make(values, sizeof values, rank % 2);
    out = make(values, sizeof values, !(rank % 2));
    if (kolo_sendrecv(group, in, COUNT, (rank + 1) % n, out, COUNT, (rank + n - 1) % n, KOLO_INT32,
                      0))
        failed = ranks_fail("a message");
    fetch(values, out, sizeof values);
    for (int i = 0; i < COUNT && !failed; i++)
        if (values[i] != (rank + n - 1) % n * COUNT + i)
            failed = ranks_fail("element %d of a message is %d", i, values[i]);
    fetch(values, in, sizeof values);
    return failed;
}

static int take_all(kolo_group *group, void *unused)
{
    int failed = gpu_rank_enter(group);

    (void)unused;
    for (int what = 0; what < KO_NCOLLECTIVES && !failed; what++)
        failed = take(group, (enum ko_collective)what);
    return gpu_rank_leave(failed ? failed : pass_on(group));
}

static void run_on(const char *ngpus, enum ranks_kind kind)
{
    exam_set_variables("shm", "", 4096);
    setenv("FAKECUDA_DEVICES", ngpus, 1);
    assert_int_equal(ranks_run(&(struct ranks){.kind = kind, .n = 3}, take_all, NULL), 0);
}

static void among_processes(void **state)
{
    (void)state;
    SKIP_PROCESSES_UNDER_TSAN();
    run_on("1", RANKS_PROCESSES);
    run_on("3", RANKS_PROCESSES);
}

static void among_threads(void **state)
{
    (void)state;
    run_on("1", RANKS_THREADS);
    run_on("3", RANKS_THREADS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(among_processes),
        cmocka_unit_test(among_threads),
    };

    setenv("FAKECUDA_JITTER", "50", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
