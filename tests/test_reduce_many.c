/* SPDX-License-Identifier: MIT
 *
 * Reductions of many parts, and into several places: every instruction set x dtype x op x number of
 * parts x aliasing against an oracle that takes one element at a time.
 */
#include "dtype.h"
#include "reduce.h"
#include "reduce_oracle.h"
#include "sanitized.h"

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

    for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n += IS_EMULATED ? 3 : 1)
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

/* Where outs lie in their lines of memory. */
enum places { IN_PLACE, AT_LINES, AT_AN_ELEMENT, ANYWHERE, NPLACES };

static char *choose_place(char *line, enum places places, size_t nbytes, int i)
{
    switch (places) {
    case AT_LINES:
        return line;
    case AT_AN_ELEMENT:
        return line + 3 * nbytes;
    default:
        return line + 64 + 3 * i - 1;
    }
}

struct into {
    const struct ko_reduction *reduction;
    kolo_dtype dtype;
    int nparts, nouts;
    enum places places;
    bool is_streaming;
};

static void check_into(const struct into *into)
{
    enum { COUNT = 401, MOST = 9 };
    _Alignas(64) static char memory[2 * MOST][COUNT * 8 + 256], expected[COUNT * 8];
    const size_t size = into->reduction->nbytes;
    const void *parts[MOST];
    void *outs[MOST];

    memset(memory, 0x5a, sizeof memory);
    for (int i = 0; i < MOST; i++) {
        char *part = memory[i] + 5 * i;

        parts[i] = part;
        outs[i] = into->places == IN_PLACE
                      ? part
                      : choose_place(memory[MOST + i] + 64, into->places, size, i);
        for (size_t e = 0; e < COUNT; e++)
            oracle_put(into->dtype, part, e, oracle_input(into->dtype, 145 + 2 * e, false));
    }
    into->reduction->many(expected, parts, into->nparts, COUNT, NRANKS);
    ko_reduce_into(into->reduction, outs, into->nouts,
                   &(struct ko_parts){parts, into->nparts, COUNT, NRANKS}, into->is_streaming);
    for (int i = 0; i < into->nouts; i++) {
        assert_memory_equal(outs[i], expected, COUNT * size);
        assert_int_equal(((char *)outs[i])[COUNT * size], 0x5a);
        assert_true(into->places == IN_PLACE || ((char *)outs[i])[-1] == 0x5a);
    }
}

static void check_places(int level, kolo_dtype dtype, kolo_op op)
{
    struct ko_reduction reduction;

    assert_int_equal(ko_reduction_find_at(level, dtype, op, &reduction), KOLO_OK);
    /* A step that is prime to all of these has each of them still. */
    for (int how = 0; how < 9 * 3 * NPLACES * 2; how += IS_EMULATED ? 7 : 1)
        check_into(&(struct into){.reduction = &reduction,
                                  .dtype = dtype,
                                  .nparts = 1 + how % 9,
                                  .nouts = 1 + how / 9 % 3,
                                  .places = (enum places)(how / 27 % NPLACES),
                                  .is_streaming = how / 27 / NPLACES});
}

static void results_in_several_places(void **state)
{
    (void)state;
    oracle_each_reduction(check_places);
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
