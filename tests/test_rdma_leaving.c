/* SPDX-License-Identifier: MIT
 *
 * A rank whose collective has returned makes no other call until all others' have: what it has sent
 * has left by then, also where it was copied, as from a buffer in which the result lies, and the
 * network asks for it later.
 */
#include "exam.h"
#include "ranks.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

enum { MOST = 40000, ROUNDS = 8, PATIENCE_MS = 5000 };

static int words[2]; /* a pipe: each rank but 0 says in it that its call has returned */

static int call(kolo_group *group, int what, int *buffer, size_t count)
{
    const size_t block = count / (size_t)kolo_group_size(group);
    int *own = buffer + (size_t)kolo_group_rank(group) * block;

    switch (what) {
    case 0:
        return kolo_all_reduce(group, buffer, buffer, count, KOLO_INT32, KOLO_SUM);
    case 1:
        return kolo_all_gather(group, own, buffer, block, KOLO_INT32);
    case 2:
        return kolo_reduce_scatter(group, buffer, own, block, KOLO_INT32, KOLO_SUM);
    default:
        return kolo_broadcast(group, buffer, count, KOLO_INT32, 0);
    }
}

/* Of all others. */
static int await_words(int n)
{
    struct pollfd end = {.fd = words[0], .events = POLLIN};
    char word;

    for (int i = 0; i < n; i++)
        if (poll(&end, 1, PATIENCE_MS) != 1 || read(words[0], &word, 1) != 1)
            return ranks_fail("after %d ms %d of %d had not returned", PATIENCE_MS, n - i, n);
    return 0;
}

static int leave_first(kolo_group *group, void *unused)
{
    static const size_t counts[] = {100, 2000, 8192, 8228, 16500, MOST};
    static int buffer[MOST];
    const int rank = kolo_group_rank(group), n = kolo_group_size(group);
    int failed = 0;

    (void)unused;
    for (int i = 0; i < 4 * 6 * ROUNDS && !failed; i++) {
        if (rank && i % 3 == rank % 3)
            ranks_nap_ms(1);
        if (call(group, i % 4, buffer, counts[i / 4 % 6]))
            failed = ranks_fail("call %d", i);
        if (!failed && rank == 0)
            failed = await_words(n - 1) ? ranks_fail("%d, %zu", i % 4, counts[i / 4 % 6]) : 0;
        else if (rank && write(words[1], "", 1) != 1)
            abort();
    }
    return failed;
}

static int settle(int number, void *unused)
{
    static const char *const hosts[] = {"a", "b", "c", "d"};

    (void)unused;
    return setenv("KOLO_HOST", hosts[number], 1);
}

static void what_was_sent_has_left(void **state)
{
    static const char *const transports[] = {"rdma", "tcp"};

    (void)state;
    for (int i = 0; i < 2 * 3; i++) {
        exam_set_variables(transports[i % 2], "", 32768);
        assert_int_equal(pipe(words), 0);
        assert_int_equal(ranks_run(&(struct ranks){.kind = RANKS_PROCESSES,
                                                   .n = 2 + i / 2,
                                                   .timeout_ms = 4 * PATIENCE_MS,
                                                   .settle = settle},
                                   leave_first, NULL),
                         0);
        close(words[0]);
        close(words[1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_was_sent_has_left)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
