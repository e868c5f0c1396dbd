/* SPDX-License-Identifier: MIT
 *
 * Groups whose wires go over several TCP connections.
 */
#include "kolo.h"
#include "ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

enum { COUNT = 700001 };

/* Sums and messages of some MB, each after a short one. */
static int sum_and_pass_on(kolo_group *group, void *argument)
{
    const int rank = kolo_group_rank(group), n = kolo_group_size(group);
    int32_t *in = malloc(COUNT * sizeof *in), *out = malloc(COUNT * sizeof *out);
    int err = KOLO_OK;

    (void)argument;
    for (int round = 0; round < 4 && !err; round++) {
        const size_t count = round % 2 ? COUNT : 3;

        for (size_t i = 0; i < count; i++)
            in[i] = (int32_t)i * (rank + 1) + round;
        err = kolo_all_reduce(group, in, out, count, KOLO_INT32, KOLO_SUM);
        for (size_t i = 0; i < count && !err; i++)
            if (out[i] != (int32_t)i * (n * (n + 1) / 2) + round * n)
                err = ranks_fail("sum %zu is %d", i, (int)out[i]);
        if (!err)
            err = kolo_sendrecv(group, in, count, (rank + 1) % n, out, count, (rank + n - 1) % n,
                                KOLO_INT32, 5);
        for (size_t i = 0; i < count && !err; i++)
            if (out[i] != (int32_t)i * ((rank + n - 1) % n + 1) + round)
                err = ranks_fail("element %zu of a message is %d", i, (int)out[i]);
    }
    free(in);
    free(out);
    return err ? ranks_fail("a rank failed") : 0;
}

static void groups_use_them(void **state)
{
    (void)state;
    setenv("KOLO_TRANSPORT", "tcp", 1);
    setenv("KOLO_TCP_SOCKETS", "3", 1);
    for (int n = 2; n <= 3; n++) {
        const struct ranks threads = {.kind = RANKS_THREADS, .n = n};
        const struct ranks processes = {.kind = RANKS_PROCESSES, .n = n};

        assert_int_equal(ranks_run(&threads, sum_and_pass_on, NULL), 0);
        assert_int_equal(ranks_run(&processes, sum_and_pass_on, NULL), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_use_them),
    };

    return cmocka_run_group_tests_name("groups over tcp sockets", tests, NULL, NULL);
}
