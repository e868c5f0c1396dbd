/* SPDX-License-Identifier: MIT
 *
 * KOLO_DETERMINISTIC: sums of floats have the bits of one sum in the order of the ranks, whatever
 * the count, the collective, the algorithm asked for, the transport and the hosts.
 */
#include "kolo.h"
#include "ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 40000 };

/* Of very different sizes, so that nearly every other order rounds otherwise. */
static float element(int rank, size_t i)
{
    uint32_t bits = (uint32_t)i * 2654435761u + (uint32_t)rank * 40503u + 12345u;
    float value;

    bits ^= bits >> 15;
    bits *= 2246822519u;
    bits = (bits & 0x807fffffu) | (120u + (bits >> 8 & 15u)) << 23;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static float expected(int n, size_t i)
{
    float sum = element(0, i);

    for (int rank = 1; rank < n; rank++)
        sum += element(rank, i);
    return sum;
}

static int check(const char *what, const float *out, size_t first, size_t count, int n)
{
    for (size_t i = 0; i < count; i++) {
        const float want = expected(n, first + i);

        if (memcmp(&want, &out[i], sizeof want) != 0)
            return ranks_fail("%s, %d ranks: element %zu is %.9g, not %.9g", what, n, first + i,
                              (double)out[i], (double)want);
    }
    return 0;
}

static int reduce_all_ways(kolo_group *group, float *in, float *out, size_t count)
{
    const int n = kolo_group_size(group), rank = kolo_group_rank(group);
    const size_t share = count / (size_t)n;
    int failed = 0;

    if (kolo_all_reduce(group, in, out, count, KOLO_FLOAT32, KOLO_SUM))
        return ranks_fail("all_reduce");
    failed = check("all_reduce", out, 0, count, n);
    if (!failed && kolo_reduce(group, in, out, count, KOLO_FLOAT32, KOLO_SUM, n - 1))
        return ranks_fail("reduce");
    if (!failed && rank == n - 1)
        failed = check("reduce", out, 0, count, n);
    if (!failed && kolo_reduce_scatter(group, in, out, share, KOLO_FLOAT32, KOLO_SUM))
        return ranks_fail("reduce_scatter");
    return failed ? failed : check("reduce_scatter", out, (size_t)rank * share, share, n);
}

static int reduce_all_counts(kolo_group *group, void *argument)
{
    static const size_t counts[] = {1, 10, 2049, MOST};
    float *in = calloc(MOST, sizeof *in), *out = calloc(MOST, sizeof *out);
    int failed = 0;

    (void)argument;
    if (!in || !out)
        abort();
    for (size_t i = 0; i < MOST; i++)
        in[i] = element(kolo_group_rank(group), i);
    for (size_t i = 0; i < sizeof counts / sizeof *counts && !failed; i++)
        failed = reduce_all_ways(group, in, out, counts[i]);
    free(in);
    free(out);
    return failed;
}

static void set_variables(const char *transport, const char *algorithm)
{
    setenv("KOLO_DETERMINISTIC", "1", 1);
    setenv("KOLO_DEBUG", "NONE", 1);
    setenv("KOLO_TRANSPORT", transport, 1);
    setenv("KOLO_ALGO", algorithm, 1);
}

static void sums_have_one_order(void **state)
{
    static const char *const algorithms[] = {"", "ring", "halving", "binomial", "two_shot"};
    static const int sizes[] = {2, 3, 5, 9, 13};

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        set_variables("shm", algorithms[i]);
        assert_int_equal(ranks_run(&(struct ranks){.kind = RANKS_THREADS, .n = sizes[i]},
                                   reduce_all_counts, NULL),
                         0);
        set_variables("tcp", algorithms[i]);
        assert_int_equal(ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = sizes[i]},
                                   reduce_all_counts, NULL),
                         0);
    }
}

/* Every rank says that it sits on one of two hosts. */
static int settle(int rank, void *argument)
{
    (void)argument;
    return setenv("KOLO_HOST", rank % 3 ? "north" : "south", 1);
}

static void hosts_do_not_matter(void **state)
{
    (void)state;
    set_variables("shm,tcp", "");
    assert_int_equal(ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = 5, .settle = settle},
                               reduce_all_counts, NULL),
                     0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_have_one_order),
        cmocka_unit_test(hosts_do_not_matter),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
