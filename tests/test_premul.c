/* SPDX-License-Identifier: MIT
 *
 * Ops of a group: sums of what each rank has multiplied by a factor of its own.
 */
#include "kolo.h"
#include "ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

enum { COUNT = 5000 };

static int32_t element(int rank, size_t i)
{
    return (int32_t)(i % 97) * (rank + 2) - 50;
}

/* Rank r has the factor r + 2. */
static int32_t expected(int n, size_t i)
{
    int32_t sum = 0;

    for (int r = 0; r < n; r++)
        sum += element(r, i) * (r + 2);
    return sum;
}

static int check(const char *what, const int32_t *out, size_t first, size_t count, int n)
{
    for (size_t i = 0; i < count; i++)
        if (out[i] != expected(n, first + i))
            return ranks_fail("%s: element %zu is %d, not %d", what, i, out[i],
                              expected(n, first + i));
    return 0;
}

static int reduce_all_ways(kolo_group *group, kolo_op op, int32_t *in, int32_t *out)
{
    const int n = kolo_group_size(group), rank = kolo_group_rank(group);
    const size_t share = COUNT / (size_t)n;
    kolo_work *work;
    int failed;

    if (kolo_all_reduce(group, in, out, COUNT, KOLO_INT32, op))
        return ranks_fail("all_reduce");
    failed = check("all_reduce", out, 0, COUNT, n);
    if (!failed && kolo_reduce(group, in, out, COUNT, KOLO_INT32, op, n - 1))
        failed = ranks_fail("reduce");
    if (!failed && rank == n - 1)
        failed = check("reduce", out, 0, COUNT, n);
    if (!failed && kolo_reduce_scatter(group, in, out, share, KOLO_INT32, op))
        failed = ranks_fail("reduce_scatter");
    if (!failed)
        failed = check("reduce_scatter", out, (size_t)rank * share, share, n);
    if (failed || kolo_all_reduce_async(group, in, in, COUNT, KOLO_INT32, op, &work))
        return failed ? failed : ranks_fail("all_reduce_async");
    failed = kolo_work_wait(work, -1) ? ranks_fail("wait") : check("in place", in, 0, COUNT, n);
    kolo_work_free(work);
    return failed;
}

static int use_a_factor(kolo_group *group, void *argument)
{
    const int rank = kolo_group_rank(group);
    int32_t *in = malloc(COUNT * sizeof *in), *out = malloc(COUNT * sizeof *out);
    kolo_op op;
    int failed;

    (void)argument;
    if (!in || !out)
        abort();
    for (size_t i = 0; i < COUNT; i++)
        in[i] = element(rank, i);
    if (kolo_op_premul_sum(group, rank + 2.0, &op))
        return ranks_fail("premul_sum");
    failed = reduce_all_ways(group, op, in, out);
    if (!failed && kolo_op_free(group, op))
        failed = ranks_fail("free");
    free(in);
    free(out);
    return failed;
}

static void factors_come_before_the_sum(void **state)
{
    static const int sizes[] = {1, 2, 3, 5};

    (void)state;
    setenv("KOLO_DEBUG", "NONE", 1);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        setenv("KOLO_TRANSPORT", "shm", 1);
        assert_int_equal(
            ranks_run(&(struct ranks){.kind = RANKS_THREADS, .n = sizes[i]}, use_a_factor, NULL),
            0);
        setenv("KOLO_TRANSPORT", "tcp", 1);
        assert_int_equal(
            ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = sizes[i]}, use_a_factor, NULL),
            0);
    }
}

/* Blocks at the two ends of what cannot be read in between. */
static int leave_gaps(kolo_group *group, void *argument)
{
    const size_t nbytes = (size_t)1 << 38, most = 1 << 16;
    const size_t counts[] = {3, 4}, starts[] = {2, (nbytes - most) / sizeof(int32_t)};
    const kolo_blocks blocks = {counts, starts};
    const int rank = kolo_group_rank(group);
    char *memory =
        mmap(NULL, nbytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    int32_t *in = (void *)memory, out[4];
    kolo_op op;
    int failed;

    (void)argument;
    if (memory == MAP_FAILED || mprotect(memory, most, PROT_READ | PROT_WRITE) ||
        mprotect(memory + nbytes - most, most, PROT_READ | PROT_WRITE))
        return ranks_fail("no memory with a hole");
    for (size_t i = 0; i < counts[0]; i++)
        in[starts[0] + i] = element(rank, i);
    for (size_t i = 0; i < counts[1]; i++)
        in[starts[1] + i] = element(rank, counts[0] + i);
    failed = kolo_op_premul_sum(group, rank + 2.0, &op) ||
             kolo_reduce_scatter_v(group, in, &blocks, out, KOLO_INT32, op);
    failed = failed ? ranks_fail("reduce_scatter_v")
                    : check("reduce_scatter_v", out, rank ? counts[0] : 0, counts[rank], 2);
    munmap(memory, nbytes);
    return failed;
}

static void what_lies_between_blocks_is_left_alone(void **state)
{
    (void)state;
    setenv("KOLO_TRANSPORT", "shm", 1);
    assert_int_equal(ranks_run(&(struct ranks){.kind = RANKS_THREADS, .n = 2}, leave_gaps, NULL),
                     0);
}

static int use_wrongly(kolo_group *group, void *argument)
{
    kolo_op ops[64], more;
    float value = 3, sum = 0;
    int failed = 0;

    (void)argument;
    failed |= ranks_expect(kolo_op_premul_sum(NULL, 1, ops), KOLO_E_INVALID, "group is NULL");
    failed |= ranks_expect(kolo_op_premul_sum(group, 1, NULL), KOLO_E_INVALID, "op is NULL");
    failed |= ranks_expect(kolo_op_free(NULL, KOLO_SUM), KOLO_E_INVALID, "group is NULL");
    failed |= ranks_expect(kolo_op_free(group, KOLO_SUM), KOLO_E_INVALID,
                           "kolo_op_free: sum is no op that kolo_op_premul_sum has made");
    for (int i = 0; i < 64; i++)
        failed |= kolo_op_premul_sum(group, i, &ops[i]);
    failed |=
        ranks_expect(kolo_op_premul_sum(group, 1, &more), KOLO_E_UNSUPPORTED, "64 ops already");
    failed |= kolo_all_reduce(group, &value, &sum, 1, KOLO_FLOAT32, ops[5]);
    if (sum != 3 * 5)
        return ranks_fail("the sum is %g", (double)sum);
    failed |= kolo_op_free(group, ops[5]);
    failed |=
        ranks_expect(kolo_all_reduce(group, &value, &sum, 1, KOLO_FLOAT32, ops[5]), KOLO_E_INVALID,
                     "all_reduce: 14 is no reduction; enum kolo_op lists them, kolo_op_premul_sum");
    failed |= kolo_op_premul_sum(group, 0.5, &more);
    failed |= kolo_all_reduce(group, &value, &sum, 1, KOLO_FLOAT32, more);
    return failed || sum != 1.5f ? ranks_fail("a second use: %g", (double)sum) : 0;
}

static void wrong_uses_are_told(void **state)
{
    (void)state;
    setenv("KOLO_TRANSPORT", "shm", 1);
    assert_int_equal(ranks_run(&(struct ranks){.kind = RANKS_THREADS, .n = 1}, use_wrongly, NULL),
                     0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(factors_come_before_the_sum),
        cmocka_unit_test(what_lies_between_blocks_is_left_alone),
        cmocka_unit_test(wrong_uses_are_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
