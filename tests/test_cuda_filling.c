/* SPDX-License-Identifier: MIT
 *
 * The words of a group's streams, on the double of NVIDIA's driver, where rank 0's GPU does not
 * fill them: who waits for that ends within the group's limit, or when the group is aborted, and
 * the group can be freed.
 */
#include "clock.h"
#include "exam.h"
#include "gpu_double.h"
#include "gpu_rank.h"
#include "ranks.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

enum { LIMIT_MS = 600 };

/* Rank 0's words cannot be filled, so that it has none for the others. */
static int fill_in_vain(kolo_group *group, void *unused)
{
    kolo_group *part = NULL;
    int64_t began_ns;
    int failed = gpu_rank_enter(NULL), err;

    (void)unused;
    if (kolo_group_split(group, 0, kolo_group_rank(group), &part))
        return ranks_fail("no group");
    kolo_group_set_timeout(part, LIMIT_MS);
    if (!kolo_group_rank(group))
        gpu_hold("transfers");
    began_ns = ko_now_ns();
    err = kolo_group_set_stream(part, gpu_rank.stream);
    if (err != KOLO_E_TIMEOUT)
        failed = ranks_fail("the stream is taken: %d", err);
    kolo_group_free(part);
    gpu_hold("");
    return failed | ranks_within(began_ns, LIMIT_MS + 2 * RANKS_SOON_MS, "the end");
}

/* Nor in all the time that there is: a thread of rank 0 aborts the group. */
static int abort_filling(kolo_group *group, void *unused)
{
    kolo_group *part = NULL;
    pthread_t thread;
    int64_t began_ns;
    int failed = gpu_rank_enter(NULL);

    (void)unused;
    if (kolo_group_split(group, 0, kolo_group_rank(group), &part))
        return ranks_fail("no group");
    kolo_group_set_timeout(part, 10 * RANKS_SOON_MS);
    if (!kolo_group_rank(group))
        gpu_hold("transfers");
    began_ns = ko_now_ns();
    if (!kolo_group_rank(group) && pthread_create(&thread, NULL, ranks_abort_soon, part))
        return ranks_fail("no thread");
    failed |= ranks_expect_soon(began_ns, kolo_group_set_stream(part, gpu_rank.stream),
                                KOLO_E_ABORTED, "enough");
    if (!kolo_group_rank(group))
        pthread_join(thread, NULL);
    kolo_group_free(part);
    gpu_hold("");
    return failed | ranks_within(began_ns, RANKS_SOON_MS, "the end");
}

static void run(ranks_body body)
{
    exam_set_variables("shm", "", 4096);
    assert_int_equal(ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = 3}, body, NULL), 0);
}

static void a_gpu_does_not_fill(void **state)
{
    (void)state;
    run(fill_in_vain);
}

static void a_thread_aborts_the_filling(void **state)
{
    (void)state;
    run(abort_filling);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gpu_does_not_fill),
        cmocka_unit_test(a_thread_aborts_the_filling),
    };

    setenv("FAKECUDA_JITTER", "50", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
