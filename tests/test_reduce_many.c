/* SPDX-License-Identifier: MIT
 *
 * Reductions of many parts, and into several places: every instruction set x dtype x op x number of
 * parts x aliasing against an oracle that takes one element at a time.
 */
#include "dtype.h"
#include "reduce.h"
#include "reduce_oracle.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

struct place {
    int level;
    kolo_dtype dtype;
    kolo_op op;
    size_t count;
    size_t offset;
};

/* ---- many parts ------------------------------------------------------------------------------ */

enum { NRANKS = 3, PARTS = 64, SHORT = 301, MANY_ROOM = SHORT * 8 + 64 };

/* What a chain of steps gives that rounds at its end only: as numbers for floats. */
static uint64_t chain(const struct place *at, char *const *parts, int nparts, size_t i)
{
    const bool is_small = ko_dtype_is_float(at->dtype) && kolo_dtype_size(at->dtype) < 4;
    const kolo_dtype wide = is_small ? KOLO_FLOAT32 : at->dtype;
    uint64_t so_far = oracle_get(at->dtype, parts[0], i);

    if (is_small)
        so_far = oracle_bits(wide, oracle_float(at->dtype, so_far));
    if (at->dtype == KOLO_BOOL)
        so_far = so_far != 0;
    for (int p = 1; p < nparts; p++) {
        uint64_t next = oracle_get(at->dtype, parts[p], i);

        if (is_small)
            next = oracle_bits(wide, oracle_float(at->dtype, next));
        so_far = oracle_reduce(wide, at->op, so_far, next, p == nparts - 1 ? NRANKS : 0);
    }
    return is_small ? oracle_bits(at->dtype, oracle_float(wide, so_far)) : so_far;
}

/* out is apart, or part `out_is`. */
static void check_many(const struct place *at, int nparts, int out_is)
{
    static char memory[PARTS + 1][MANY_ROOM];
    static uint64_t expected[SHORT];
    struct ko_reduction reduction;
    char *parts[PARTS];
    char *out = memory[PARTS] + at->offset;

    memset(memory, 0x5a, sizeof memory);
    for (int p = 0; p < nparts; p++) {
        parts[p] = memory[p] + ((size_t)p + at->offset) % 3;
        for (size_t i = 0; i < at->count; i++)
            oracle_put(at->dtype, parts[p], i,
                       p < 2 ? oracle_input(at->dtype, i, p == 1)
                             : oracle_input(at->dtype, 145 + 2 * i, false));
    }
    if (out_is >= 0)
        out = parts[out_is];
    for (size_t i = 0; i < at->count; i++)
        expected[i] = chain(at, parts, nparts, i);
    assert_int_equal(ko_reduction_find_at(at->level, at->dtype, at->op, &reduction), KOLO_OK);
    reduction.many(out, (const void *const *)parts, nparts, at->count, nparts > 1 ? NRANKS : 1);
    for (size_t i = 0; i < at->count; i++)
        if (!oracle_same(at->dtype, oracle_get(at->dtype, out, i), expected[i]))
            fail_msg("%s %s %s of %d parts, [%zu of %zu], out is %d: got %llx, expected %llx",
                     ko_reduction_level_name(at->level), kolo_dtype_name(at->dtype),
                     kolo_op_name(at->op), nparts, i, at->count, out_is,
                     (unsigned long long)oracle_get(at->dtype, out, i),
                     (unsigned long long)expected[i]);
    for (size_t i = 0; i < 16; i++)
        assert_int_equal(out[at->count * kolo_dtype_size(at->dtype) + i], 0x5a);
}

static void check_numbers_of_parts(int level, kolo_dtype dtype, kolo_op op)
{
    struct place at = {.level = level, .dtype = dtype, .op = op};
    static const int numbers[] = {1, 2, 3, 4, 5, 6, 7, 8, 13, PARTS};
    static const size_t counts[] = {0, 1, 17, SHORT};

    for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++)
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
            at.count = counts[c];
            at.offset = c % 3;
            check_many(&at, numbers[n], -1);
            check_many(&at, numbers[n], 0);
            check_many(&at, numbers[n], numbers[n] / 2);
            check_many(&at, numbers[n], numbers[n] - 1);
        }
}

static void any_number_of_parts(void **state)
{
    (void)state;
    oracle_each_reduction(check_numbers_of_parts);
}

/* Longer than a block, and at more than its edges: in blocks against in pieces. */
static void check_blocks(int level, kolo_dtype dtype, kolo_op op)
{
    enum { COUNT = 5003, N = 7, PIECE = 100 };
    static char parts[N][COUNT * 8], out[COUNT * 8], expected[COUNT * 8];
    const size_t size = kolo_dtype_size(dtype);
    const void *from[N], *piece[N];
    struct ko_reduction reduction;

    for (size_t p = 0; p < N; p++) {
        from[p] = parts[p];
        for (size_t i = 0; i < COUNT; i++)
            oracle_put(dtype, parts[p], i, oracle_input(dtype, 145 + 2 * i, false));
    }
    assert_int_equal(ko_reduction_find_at(level, dtype, op, &reduction), KOLO_OK);
    for (size_t at = 0; at < COUNT; at += PIECE) {
        for (size_t p = 0; p < N; p++)
            piece[p] = parts[p] + at * size;
        reduction.many(expected + at * size, piece, N, COUNT - at < PIECE ? COUNT - at : PIECE, N);
    }
    reduction.many(out, from, N, COUNT, N);
    assert_memory_equal(out, expected, COUNT * size);
    reduction.last(out, parts[0], parts[1], COUNT, 2);
    reduction.many(expected, from, 2, COUNT, 2);
    assert_memory_equal(out, expected, COUNT * size);
}

static void many_parts_of_many_elements(void **state)
{
    (void)state;
    oracle_each_reduction(check_blocks);
}

/* ---- several results ------------------------------------------------------------------------- */

static void check_into(kolo_dtype dtype, int nparts, int nouts, bool is_in_place, bool is_streaming)
{
    enum { COUNT = 3001, PIECES = 4 };
    static char memory[2 * PIECES][COUNT * 8 + 64], expected[COUNT * 8];
    const size_t nbytes = COUNT * kolo_dtype_size(dtype);
    const void *parts[PIECES];
    void *outs[PIECES];
    struct ko_reduction reduction;

    memset(memory, 0x5a, sizeof memory);
    for (int i = 0; i < PIECES; i++) {
        char *part = memory[i] + 5 * i;

        parts[i] = part;
        outs[i] = is_in_place ? part : memory[PIECES + i] + 3 * i;
        for (size_t e = 0; e < COUNT; e++)
            oracle_put(dtype, part, e, oracle_input(dtype, 145 + 2 * e, false));
    }
    assert_int_equal(ko_reduction_find(dtype, KOLO_AVG, &reduction), KOLO_OK);
    reduction.many(expected, parts, nparts, COUNT, NRANKS);
    ko_reduce_into(&reduction, outs, nouts, &(struct ko_parts){parts, nparts, COUNT, NRANKS},
                   is_streaming);
    for (int i = 0; i < nouts; i++) {
        assert_memory_equal(outs[i], expected, nbytes);
        assert_int_equal(((char *)outs[i])[nbytes], 0x5a);
        assert_true(is_in_place || ((char *)outs[i])[-1] == 0x5a || !i);
    }
}

static void results_in_several_places(void **state)
{
    static const kolo_dtype dtypes[] = {KOLO_INT8, KOLO_BFLOAT16, KOLO_FLOAT32, KOLO_FLOAT64};

    (void)state;
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        for (int nparts = 1; nparts <= 4; nparts++)
            for (int nouts = 1; nouts <= 4; nouts++)
                for (int how = 0; how < 4; how++)
                    check_into(dtypes[d], nparts, nouts, how & 1, how & 2);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_parts),
        cmocka_unit_test(many_parts_of_many_elements),
        cmocka_unit_test(results_in_several_places),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
