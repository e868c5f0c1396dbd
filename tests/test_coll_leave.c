/* SPDX-License-Identifier: MIT
 *
 * Who has left a collective is needed by nobody any more: all ranks come to the end of a call
 * though each is idle, and drives no link, as soon as it has come there.
 */
#include "clock.h"
#include "endpoint.h"
#include "exam.h"
#include "group.h"
#include "ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

enum { LONG_SLICE = 32768, SOON_MS = 10000 };

/* Until all ranks have done so, without a look at any link. */
static int idle(kolo_group *group)
{
    const ko_deadline deadline = ko_deadline_in(SOON_MS);
    int64_t n = 0;
    int err = kolo_store_add(group->endpoint->store, "idle", 1, &n);

    while (!err && n % kolo_group_size(group) && !ko_deadline_passed(&deadline)) {
        ranks_nap_ms(1);
        err = kolo_store_add(group->endpoint->store, "idle", 0, &n);
    }
    return err || n % kolo_group_size(group) ? ranks_fail("others wait for a rank that idles") : 0;
}

/* Slices that an adapter sends at once, and such that it writes when the other end is ready; those
 * of a buffer in which the result lies are copied. */
static int leave(kolo_group *group, void *argument)
{
    static const size_t counts[] = {5, 3000, 30000};
    const struct ko_algorithm *algorithm = argument;
    int failed = 0;

    for (int i = 0; i < 6 && !failed; i++) {
        const struct exam exam = {.what = algorithm->what,
                                  .dtype = KOLO_FLOAT32,
                                  .count = counts[i / 2],
                                  .root = i % kolo_group_size(group),
                                  .is_in_place = i % 2};
        struct exam_run *run = exam_begin(group, &exam);

        failed = !run || idle(group);
        if (run)
            failed |= exam_end(run);
        failed = failed || kolo_barrier(group) ? ranks_fail("%s", algorithm->name) : 0;
    }
    return failed;
}

static void all_algorithms(void **state)
{
    static const char *const transports[] = {"rdma", "tcp", "shm"};

    (void)state;
    for (int i = 0; i < ko_nalgorithms; i++)
        for (int t = 0; t < 3; t++) {
            struct ko_algorithm algorithm = ko_algorithms[i];

            exam_set_variables(transports[t], algorithm.name, LONG_SLICE);
            assert_int_equal(ranks_run(&(struct ranks){.kind = RANKS_THREADS, .n = 3 + i % 2},
                                       leave, &algorithm),
                             0);
        }
}

/* Where some reach each other through memory. */
static void all_algorithms_among_hosts(void **state)
{
    (void)state;
    SKIP_PROCESSES_UNDER_TSAN();
    for (int i = 0; i < ko_nalgorithms; i++) {
        struct ko_algorithm algorithm = ko_algorithms[i];

        exam_set_variables("shm,rdma", algorithm.name, LONG_SLICE);
        assert_int_equal(ranks_run(&(struct ranks){.kind = RANKS_PROCESSES,
                                                   .n = 3 + i % 3,
                                                   .settle = ranks_settle_on_two_hosts},
                                   leave, &algorithm),
                         0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_algorithms),
                                       cmocka_unit_test(all_algorithms_among_hosts)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
