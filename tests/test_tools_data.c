/* SPDX-License-Identifier: MIT
 *
 * kolo-perf's data whose reductions are known, against slow reductions in other orders; and its
 * checker, on results that were corrupted by hand.
 */
#include "dtype.h"
#include "reduce.h"
#include "tools/perf_data.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { PERIOD = 8191, LONG = 3 * PERIOD + 5 };

/* How kolo joins two operands. */
static kolo_op joining(int op)
{
    return op == KO_PERF_MULSUM ? KOLO_SUM : (kolo_op)op;
}

static bool allows(kolo_dtype dtype, int op)
{
    struct ko_reduction unused;

    return !ko_reduction_find(dtype, joining(op), &unused);
}

/* buffer[count] of rank, or of the reduction. */
static void fill(const struct ko_perf_data *data, int rank, void *buffer, size_t first,
                 size_t count)
{
    struct ko_perf_pattern *pattern;

    assert_int_equal(ko_perf_pattern_new(data, rank, &pattern), KOLO_OK);
    ko_perf_pattern_fill(pattern, buffer, first, count);
    ko_perf_pattern_free(pattern);
}

static size_t count_wrong(const struct ko_perf_data *data, int rank, const void *buffer,
                          size_t first, size_t count)
{
    struct ko_perf_pattern *pattern;
    size_t wrong;

    assert_int_equal(ko_perf_pattern_new(data, rank, &pattern), KOLO_OK);
    wrong = ko_perf_pattern_wrong(pattern, buffer, first, count);
    ko_perf_pattern_free(pattern);
    return wrong;
}

/* ---- data -------------------------------------------------------------------------------- */

/* What rank gives to the reduction. */
static void give(const struct ko_perf_data *data, const struct ko_reduction *reduction, int rank,
                 void *buffer, size_t count)
{
    fill(data, rank, buffer, 0, count);
    if (data->op == KO_PERF_MULSUM)
        reduction->scale(buffer, buffer, count, 1 + rank % 2);
}

/* The library's own reduction of pairs, over ranks first, first + step, ... of n, modulo n. */
static void reduce_in_order(const struct ko_perf_data *data, int first, int step, void *result,
                            void *operand, size_t count)
{
    int n = data->nranks;
    struct ko_reduction reduction;

    assert_int_equal(ko_reduction_find(data->dtype, joining(data->op), &reduction), KOLO_OK);
    give(data, &reduction, first, result, count);
    for (int i = 1; i < n; i++) {
        give(data, &reduction, (first + i * step) % n, operand, count);
        if (i < n - 1)
            reduction.step(result, result, operand, count);
        else
            reduction.last(result, result, operand, count, n);
    }
}

/* What has fewer values than there are ranks is a case of its own. */
static bool is_summed_float(const struct ko_perf_data *data)
{
    return ko_dtype_is_float(data->dtype) &&
           (joining(data->op) == KOLO_SUM || data->op == KOLO_AVG);
}

static void test_reductions_are_known_in_any_order(void **state)
{
    static const int sizes[] = {1, 2, 3, 7, 64, 300};
    enum { COUNT = 999 };
    double result[COUNT], operand[COUNT];

    (void)state;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int dtype = 0; dtype < KOLO_NDTYPES; dtype++)
            for (int op = 0; op < KO_PERF_NOPS; op++) {
                struct ko_perf_data data = {(kolo_dtype)dtype, op, sizes[s], 7 + s, false};

                if (!allows(data.dtype, data.op) || (sizes[s] > 64 && !is_summed_float(&data)))
                    continue;
                reduce_in_order(&data, 0, 1, result, operand, COUNT);
                assert_int_equal(count_wrong(&data, KO_PERF_REDUCED, result, 0, COUNT), 0);
                reduce_in_order(&data, sizes[s] - 1, sizes[s] - 1, result, operand, COUNT);
                assert_int_equal(count_wrong(&data, KO_PERF_REDUCED, result, 0, COUNT), 0);
            }
}

static void test_rough_sums_depend_on_the_order(void **state)
{
    enum { COUNT = 999 };
    const struct ko_perf_data data = {KOLO_FLOAT32, KOLO_SUM, 7, 1, true};
    float forward[COUNT], backward[COUNT], operand[COUNT];

    (void)state;
    reduce_in_order(&data, 0, 1, forward, operand, COUNT);
    reduce_in_order(&data, 6, 6, backward, operand, COUNT);
    assert_true(ko_perf_count_unequal(forward, backward, COUNT, sizeof *forward) > COUNT / 10);
}

static void test_data_of_ranks_and_seeds_differ(void **state)
{
    enum { COUNT = 1000 };
    struct ko_perf_data data = {KOLO_FLOAT32, KOLO_SUM, 4, 1, false};
    float one[COUNT];

    (void)state;
    fill(&data, 0, one, 0, COUNT);
    assert_true(count_wrong(&data, 1, one, 0, COUNT) > COUNT * 9 / 10);
    assert_true(count_wrong(&data, 0, one, 1, COUNT) > COUNT * 9 / 10);
    assert_true(count_wrong(&data, 0, one, PERIOD, COUNT) > COUNT * 9 / 10);
    data.seed++;
    assert_true(count_wrong(&data, 0, one, 0, COUNT) > COUNT * 9 / 10);
}

static void test_a_pattern_can_begin_anywhere(void **state)
{
    const struct ko_perf_data data = {KOLO_UINT32, KOLO_SUM, 4, 3, false};
    uint32_t *all = malloc(LONG * sizeof *all), part[100];

    (void)state;
    assert_non_null(all);
    fill(&data, 2, all, 0, LONG);
    for (size_t first = 0; first + 100 <= LONG; first += 97) {
        fill(&data, 2, part, first, 100);
        assert_memory_equal(part, all + first, sizeof part);
    }
    free(all);
}

/* ---- the checker ------------------------------------------------------------------------- */

static void test_each_corrupted_element_is_counted(void **state)
{
    enum { COUNT = 2 * PERIOD + 3 };
    unsigned seed = 5;

    (void)state;
    for (int dtype = 0; dtype < KOLO_NDTYPES; dtype++) {
        const struct ko_perf_data data = {(kolo_dtype)dtype, KOLO_SUM, 3, 9, false};
        size_t nbytes = kolo_dtype_size(data.dtype), corrupted = 0;
        unsigned char *result = malloc(COUNT * nbytes);

        assert_non_null(result);
        fill(&data, KO_PERF_REDUCED, result, 11, COUNT);
        assert_int_equal(count_wrong(&data, KO_PERF_REDUCED, result, 11, COUNT), 0);
        for (size_t i = 0; i < COUNT; i += 1 + (size_t)rand_r(&seed) % 500) {
            result[i * nbytes + (size_t)rand_r(&seed) % nbytes] ^=
                (unsigned char)(1 << rand_r(&seed) % 8);
            corrupted++;
        }
        assert_int_equal(count_wrong(&data, KO_PERF_REDUCED, result, 11, COUNT), corrupted);
        free(result);
    }
}

static void test_swapped_and_missing_chunks_are_wrong(void **state)
{
    enum { COUNT = 4096, CHUNK = 256 };
    const struct ko_perf_data data = {KOLO_INT32, KOLO_SUM, 2, 9, false};
    int32_t result[COUNT], chunk[CHUNK];

    (void)state;
    fill(&data, 1, result, 0, COUNT);
    memcpy(chunk, result, sizeof chunk);
    memmove(result, result + CHUNK, sizeof chunk);
    memcpy(result + CHUNK, chunk, sizeof chunk);
    assert_int_equal(count_wrong(&data, 1, result, 0, COUNT), 2 * CHUNK);
    memset(result, 0xaa, sizeof chunk);
    assert_int_equal(count_wrong(&data, 1, result, 0, COUNT), 2 * CHUNK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reductions_are_known_in_any_order),
        cmocka_unit_test(test_rough_sums_depend_on_the_order),
        cmocka_unit_test(test_data_of_ranks_and_seeds_differ),
        cmocka_unit_test(test_a_pattern_can_begin_anywhere),
        cmocka_unit_test(test_each_corrupted_element_is_counted),
        cmocka_unit_test(test_swapped_and_missing_chunks_are_wrong),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
