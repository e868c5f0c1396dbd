/* SPDX-License-Identifier: MIT
 *
 * Host reductions: every instruction set x dtype x op x alignment x aliasing against an oracle that
 * takes one element at a time, in wider types.
 */
#include "dtype.h"
#include "reduce.h"
#include "reduce_divide.h"
#include "reduce_oracle.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

/* ---- one reduction, in all its positions ----------------------------------------------------- */

enum { MOST = 1009, ROOM = MOST * 8 + 64, NRANKS = 3 };

enum alias { APART, OUT_IS_A, OUT_IS_B, ALL_ONE, NALIASES };

struct position {
    int level;
    kolo_dtype dtype;
    kolo_op op;
    enum alias alias;
    size_t count;
    size_t offset;
};

static void run(const struct position *at, bool is_last, void *out, const void *a, const void *b)
{
    struct ko_reduction reduction;

    assert_int_equal(ko_reduction_find_at(at->level, at->dtype, at->op, &reduction), KOLO_OK);
    if (is_last)
        reduction.last(out, a, b, at->count, NRANKS);
    else
        reduction.step(out, a, b, at->count);
}

static void check(const struct position *at, bool is_last)
{
    static char memory[3][ROOM];
    static uint64_t expected[MOST];
    size_t size = kolo_dtype_size(at->dtype);
    char *a = memory[0] + at->offset;
    char *b = at->alias == ALL_ONE ? a : memory[1] + 2 * at->offset;
    char *out = at->alias == APART ? memory[2] + 3 * at->offset : at->alias == OUT_IS_B ? b : a;

    memset(memory, 0x5a, sizeof memory);
    for (size_t i = 0; i < at->count; i++) {
        oracle_put(at->dtype, b, i, oracle_input(at->dtype, i, true));
        oracle_put(at->dtype, a, i, oracle_input(at->dtype, i, false));
        expected[i] = oracle_reduce(at->dtype, at->op, oracle_get(at->dtype, a, i),
                                    oracle_get(at->dtype, b, i), is_last ? NRANKS : 0);
    }
    run(at, is_last, out, a, b);
    for (size_t i = 0; i < at->count; i++)
        if (!oracle_same(at->dtype, oracle_get(at->dtype, out, i), expected[i]))
            fail_msg("%s %s %s[%zu of %zu] alias %d offset %zu: got %llx, expected %llx",
                     ko_reduction_level_name(at->level), kolo_dtype_name(at->dtype),
                     kolo_op_name(at->op), i, at->count, at->alias, at->offset,
                     (unsigned long long)oracle_get(at->dtype, out, i),
                     (unsigned long long)expected[i]);
    for (size_t i = 0; i < 16; i++)
        assert_int_equal(out[at->count * size + i], 0x5a);
}

static void check_positions(int level, kolo_dtype dtype, kolo_op op)
{
    struct position at = {.level = level, .dtype = dtype, .op = op};
    static const size_t counts[] = {0, 1, 2, 3, 15, 16, 17, 31, 63, 65, 255, MOST};

    for (at.alias = APART; at.alias < NALIASES; at.alias++)
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
            for (at.offset = 0; at.offset < 3; at.offset++) {
                at.count = counts[c];
                check(&at, false);
                check(&at, true);
            }
}

static void every_reduction_agrees_with_the_oracle(void **state)
{
    (void)state;
    oracle_each_reduction(check_positions);
}

/* ---- factors --------------------------------------------------------------------------------- */

static uint64_t scaled(kolo_dtype dtype, uint64_t bits, double factor)
{
    const __int128 top = (__int128)(oracle_mask(dtype) >> 1) + 1;
    const bool is_signed = oracle_integer(dtype, oracle_mask(dtype)) < 0;
    const __int128 least = is_signed ? -top : 0, most = is_signed ? top - 1 : 2 * top - 1;
    __int128 whole;

    if (dtype == KOLO_BOOL)
        return bits && factor != 0;
    if (ko_dtype_is_float(dtype))
        return oracle_bits(dtype, oracle_precision(dtype, oracle_float(dtype, bits) *
                                                              oracle_precision(dtype, factor)));
    if (isnan(factor))
        return 0;
    whole = factor > 0x1p100 ? most : factor < -0x1p100 ? least : (__int128)factor;
    whole = whole < least ? least : whole > most ? most : whole;
    return bits * (uint64_t)whole & oracle_mask(dtype);
}

static void check_factor(int level, kolo_dtype dtype, double factor)
{
    static char in[MOST * 8], out[MOST * 8];
    struct ko_reduction reduction;

    for (size_t i = 0; i < MOST; i++)
        oracle_put(dtype, in, i, oracle_input(dtype, i, false));
    assert_int_equal(ko_reduction_find_at(level, dtype, KOLO_SUM, &reduction), KOLO_OK);
    assert_int_equal(reduction.nbytes, kolo_dtype_size(dtype));
    reduction.scale(out, in, MOST, factor);
    for (size_t i = 0; i < MOST; i++)
        if (!oracle_same(dtype, oracle_get(dtype, out, i),
                         scaled(dtype, oracle_get(dtype, in, i), factor)))
            fail_msg("%s %s: %llx times %g is not %llx", ko_reduction_level_name(level),
                     kolo_dtype_name(dtype), (unsigned long long)oracle_get(dtype, in, i), factor,
                     (unsigned long long)oracle_get(dtype, out, i));
    reduction.scale(in, in, MOST, factor);
    assert_memory_equal(in, out, MOST * kolo_dtype_size(dtype));
}

static void factors(void **state)
{
    static const double numbers[] = {0,     1,      -1,     2,        0.5,       -3.75,  0.1,
                                     127.9, -128.5, 300,    0x1p31,   -0x1p32,   0x1p63, 0x1p64,
                                     1e300, -1e300, -1e-40, INFINITY, -INFINITY, NAN};

    (void)state;
    for (int level = 0; level < ko_reduction_nlevels(); level++)
        for (int dtype = 0; dtype < KOLO_NDTYPES; dtype++)
            for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
                check_factor(level, (kolo_dtype)dtype, numbers[i]);
}

static void nothing_to_reduce_needs_no_memory(void **state)
{
    struct ko_reduction reduction;

    (void)state;
    for (int level = 0; level < ko_reduction_nlevels(); level++)
        for (int dtype = 0; dtype < KOLO_NDTYPES; dtype++) {
            assert_int_equal(ko_reduction_find_at(level, (kolo_dtype)dtype, KOLO_SUM, &reduction),
                             KOLO_OK);
            reduction.step(NULL, NULL, NULL, 0);
            reduction.last(NULL, NULL, NULL, 0, 2);
            reduction.many(NULL, (const void *const[]){NULL, NULL, NULL}, 3, 0, 3);
        }
}

/* ---- what the oracle might share with the code ----------------------------------------------- */

static void known_values(void **state)
{
    static const struct {
        kolo_dtype dtype;
        kolo_op op;
        int nranks; /* 0: a step */
        uint64_t a, b, result;
    } known[] = {
        {KOLO_INT8, KOLO_SUM, 0, 127, 1, 0x80},
        {KOLO_INT32, KOLO_PROD, 0, 0x80000000, 0xffffffff, 0x80000000},
        {KOLO_INT32, KOLO_AVG, 2, 0xfffffff9 /* -7 */, 0, 0xfffffffd /* -3 */},
        {KOLO_INT8, KOLO_AVG, 300, 100, 27, 0},
        {KOLO_UINT8, KOLO_AVG, 2, 255, 0, 127},
        {KOLO_UINT8, KOLO_AVG, 2, 255, 1, 0},
        {KOLO_UINT64, KOLO_AVG, 2, 0xfffffffffffffffe, 0, 0x7fffffffffffffff},
        {KOLO_INT64, KOLO_MAX, 0, 0x8000000000000000, 1, 1},
        {KOLO_UINT64, KOLO_MAX, 0, 0x8000000000000000, 1, 0x8000000000000000},
        {KOLO_FLOAT32, KOLO_AVG, 4, 0x3f800000 /* 1 */, 0x40000000 /* 2 */, 0x3f400000 /* .75 */},
        {KOLO_FLOAT32, KOLO_MIN, 0, 0x00000000, 0x80000000, 0x80000000},
        {KOLO_FLOAT32, KOLO_MIN, 0, 0x80000000, 0x00000000, 0x80000000},
        {KOLO_FLOAT32, KOLO_MAX, 0, 0x80000000, 0x00000000, 0x00000000},
        {KOLO_FLOAT32, KOLO_MIN, 0, 0x7fc00000, 0xff800000, 0x7fc00000},
        {KOLO_FLOAT32, KOLO_MAX, 0, 0x7f800000, 0xffc00000, 0xffc00000},
        {KOLO_FLOAT16, KOLO_SUM, 0, 0x7bff, 0x7bff, 0x7c00},
        {KOLO_FLOAT16, KOLO_SUM, 0, 0x3c00, 0x1000 /* 2^-11: a tie */, 0x3c00},
        /* 65504 + 65504 is beyond float16, a half of it is not: one rounding, at the end. */
        {KOLO_FLOAT16, KOLO_AVG, 2, 0x7bff, 0x7bff, 0x7bff},
        {KOLO_BOOL, KOLO_SUM, 0, 0x80, 0x80, 1},
        {KOLO_BOOL, KOLO_PROD, 0, 2, 4, 1},
        {KOLO_BOOL, KOLO_BXOR, 0, 2, 4, 0},
        {KOLO_FLOAT8_E4M3, KOLO_SUM, 0, 0x7e, 0x7e, 0x7f}, /* 448 + 448 */
        {KOLO_FLOAT8_E4M3, KOLO_AVG, 2, 0x7e, 0x7e, 0x7e},
        {KOLO_FLOAT8_E4M3, KOLO_MIN, 0, 0x7f, 0xfe, 0x7f}, /* NaN and -448 */
        {KOLO_FLOAT8_E5M2, KOLO_SUM, 0, 0x7b, 0xfc, 0xfc}, /* 57344 and -infinity */
        {KOLO_BFLOAT16, KOLO_SUM, 0, 0x3f80, 0x3b80 /* 2^-8: a tie */, 0x3f80},
    };

    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        struct ko_reduction reduction;
        uint64_t out = 0;

        assert_int_equal(ko_reduction_find(known[i].dtype, known[i].op, &reduction), KOLO_OK);
        if (known[i].nranks)
            reduction.last(&out, &known[i].a, &known[i].b, 1, known[i].nranks);
        else
            reduction.step(&out, &known[i].a, &known[i].b, 1);
        if (out != known[i].result)
            fail_msg("known value %zu: got %llx", i, (unsigned long long)out);
    }
}

/* ---- one machine and another ----------------------------------------------------------------- */

static void a_machine_has_the_levels_of_its_kind(void **state)
{
    static const char *const names[] = {
        "plain",
#if defined(__x86_64__)
        "avx2",
        "avx512",
#elif defined(__aarch64__)
        "neon",
#endif
    };
    const int nlevels = ko_reduction_nlevels();

    (void)state;
    assert_in_range(nlevels, 1, sizeof names / sizeof *names);
#if defined(__aarch64__)
    assert_int_equal(nlevels, 2);
#endif
    for (int level = 0; level < nlevels; level++)
        assert_string_equal(ko_reduction_level_name(level), names[level]);
}

/* Every 16 bits there are, against bits that look random. */
enum { ALL_HALVES = 1 << 16 };

static uint64_t mixed(uint64_t bits)
{
    bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9;
    bits = (bits ^ bits >> 27) * 0x94d049bb133111eb;
    return bits ^ bits >> 31;
}

/* Of elements, NaNs taken for one. */
static uint64_t digest(uint64_t so_far, kolo_dtype dtype, const char *elements)
{
    for (size_t i = 0; i < ALL_HALVES; i++) {
        const uint64_t bits = oracle_get(dtype, elements, i);
        const bool is_nan = ko_dtype_is_float(dtype) && isnan(oracle_float(dtype, bits));

        so_far = ((is_nan ? oracle_mask(dtype) : bits) ^ so_far) * 0x100000001b3;
    }
    return so_far;
}

static uint64_t digest_of_all(int level, kolo_dtype dtype)
{
    static char a[ALL_HALVES * 8], b[ALL_HALVES * 8], out[ALL_HALVES * 8];
    const void *const parts[] = {a, b, a, b, b};
    uint64_t sum = 0xcbf29ce484222325;
    struct ko_reduction reduction;

    for (size_t i = 0; i < ALL_HALVES; i++) {
        oracle_put(dtype, a, i, i < 1 << 15 || kolo_dtype_size(dtype) < 4 ? i : mixed(i));
        oracle_put(dtype, b, i, mixed(i + ALL_HALVES));
    }
    for (int op = 0; op < KOLO_NOPS; op++) {
        if (ko_reduction_find_at(level, dtype, (kolo_op)op, &reduction))
            continue;
        reduction.last(out, a, b, ALL_HALVES, NRANKS);
        sum = digest(sum, dtype, out);
        reduction.many(out, parts, 5, ALL_HALVES, 5);
        sum = digest(sum, dtype, out);
    }
    assert_int_equal(ko_reduction_find_at(level, dtype, KOLO_SUM, &reduction), KOLO_OK);
    reduction.scale(out, a, ALL_HALVES, -3.7);
    return digest(sum, dtype, out);
}

/* As an x86 machine has computed them. */
static void every_machine_gives_the_same_bits(void **state)
{
    static const uint64_t digests[KOLO_NDTYPES] = {
        [KOLO_INT8] = 0xda6400b15ca45e1a,        [KOLO_UINT8] = 0x913f2a8430d0b9c5,
        [KOLO_INT32] = 0xeafc267cba3260e9,       [KOLO_UINT32] = 0xe454519de3f8c4be,
        [KOLO_INT64] = 0xd79bcc9717399705,       [KOLO_UINT64] = 0xebb84d57d0a6b773,
        [KOLO_FLOAT16] = 0x02b34e9d22bfbe9a,     [KOLO_BFLOAT16] = 0xc981223002c9cdff,
        [KOLO_FLOAT32] = 0x6cfa64c2a259eea7,     [KOLO_FLOAT64] = 0xd5733639ece238a2,
        [KOLO_BOOL] = 0x1ded9f5b21c12df5,        [KOLO_FLOAT8_E4M3] = 0x768bda829439d8bb,
        [KOLO_FLOAT8_E5M2] = 0x1664b0b8cb68a59b,
    };

    (void)state;
    for (int level = 0; level < ko_reduction_nlevels(); level++)
        for (int dtype = 0; dtype < KOLO_NDTYPES; dtype++) {
            const uint64_t sum = digest_of_all(level, (kolo_dtype)dtype);

            if (sum != digests[dtype])
                fail_msg("%s %s: 0x%016llx", ko_reduction_level_name(level),
                         kolo_dtype_name((kolo_dtype)dtype), (unsigned long long)sum);
        }
}

/* ---- averages of integers -------------------------------------------------------------------- */

/* Numbers of ranks where a rounded inverse is worst: around powers of 2, and any. */
static int divisor_number(int i)
{
    const int power = 1 << (1 + i / 5 % 30);
    const int near = power + i % 5 - 2;

    if (i >= 150)
        return (int)(oracle_random() % INT32_MAX >> i % 31) + 1;
    return near > 0 ? near : 1;
}

/* The average of (dtype) a and 0 over n ranks: a / n. */
static void check_quotients(int level, kolo_dtype dtype, int n, const uint64_t *numbers,
                            size_t count)
{
    static char a[256 * 8 + 8], zeros[256 * 8 + 8], out[256 * 8 + 8];
    struct ko_reduction reduction;

    for (size_t i = 0; i < count; i++)
        oracle_put(dtype, a, i, numbers[i]);
    assert_int_equal(ko_reduction_find_at(level, dtype, KOLO_AVG, &reduction), KOLO_OK);
    reduction.last(out, a, zeros, count, n);
    for (size_t i = 0; i < count; i++) {
        const uint64_t number = oracle_get(dtype, a, i);

        if (oracle_get(dtype, out, i) != oracle_reduce(dtype, KOLO_AVG, number, 0, n))
            fail_msg("%s %s: %llx / %d is not %llx", ko_reduction_level_name(level),
                     kolo_dtype_name(dtype), (unsigned long long)number, n,
                     (unsigned long long)oracle_get(dtype, out, i));
    }
}

/* Around multiples of n, up to the largest, where a quotient is about to change. */
static uint64_t near_multiple(kolo_dtype dtype, int n, size_t i)
{
    const uint64_t most = i & 8 ? oracle_mask(dtype) >> 1 : oracle_mask(dtype);
    const uint64_t last = most / (uint64_t)n;
    const uint64_t factor = i & 16 ? last - i / 32 : oracle_random() % (last ? last : 1);
    const uint64_t multiple = factor * (uint64_t)n + i % 3 - 1;

    return i & 4 ? 0 - multiple : multiple;
}

static void integers_are_divided_exactly(void **state)
{
    uint64_t numbers[256];

    (void)state;
    for (int level = 0; level < ko_reduction_nlevels(); level++)
        for (int i = 0; i < 1000; i++) {
            const int any = divisor_number(i), n = any > 1 ? any : 2;

            for (size_t x = 0; x < 256; x++)
                numbers[x] = x;
            for (int dtype = KOLO_INT8; dtype <= KOLO_UINT8; dtype++) {
                check_quotients(level, (kolo_dtype)dtype, n, numbers, 256);
                check_quotients(level, (kolo_dtype)dtype, i + 2, numbers, 256);
            }
            for (int dtype = KOLO_INT32; dtype <= KOLO_UINT64; dtype++) {
                for (size_t x = 0; x < 256; x++)
                    numbers[x] = near_multiple((kolo_dtype)dtype, n, x);
                check_quotients(level, (kolo_dtype)dtype, n, numbers, 256);
            }
        }
}

/* All 32 bits by a stride, and all numbers of ranks that a group might have. */
static void quotients_of_32_bits(void **state)
{
    (void)state;
    for (int n = 2; n < 2048; n++) {
        const ko_uint32_divisor by = ko_uint32_divisor_of(n);

        for (uint64_t x = (uint64_t)n - 1; x < (uint64_t)1 << 32; x += (uint64_t)n * 1000003)
            for (uint32_t i = 0; i < 2; i++)
                if (ko_uint32_quotient((uint32_t)x + i, by) != ((uint32_t)x + i) / (uint32_t)n)
                    fail_msg("%llu / %d", (unsigned long long)x + i, n);
    }
}

static void refusals(void **state)
{
    struct ko_reduction reduction;
    int value = 7, out = 0;

    (void)state;
    assert_int_equal(ko_reduction_find(KOLO_NDTYPES, KOLO_SUM, &reduction), KOLO_E_INVALID);
    assert_non_null(strstr(kolo_last_error(), "13 is no dtype"));
    assert_int_equal(ko_reduction_find(KOLO_INT8, (kolo_op)-1, &reduction), KOLO_E_INVALID);
    assert_non_null(strstr(kolo_last_error(), "-1 is no reduction"));
    for (int dtype = 0; dtype < KOLO_NDTYPES; dtype++)
        for (int op = KOLO_BAND; op <= KOLO_BXOR; op++)
            assert_int_equal(ko_reduction_find((kolo_dtype)dtype, (kolo_op)op, &reduction),
                             ko_dtype_is_float((kolo_dtype)dtype) ? KOLO_E_UNSUPPORTED : KOLO_OK);
    assert_string_equal(kolo_last_error(), "bxor is for integers, not for float8_e5m2");
    assert_int_equal(ko_reduction_find(KOLO_BOOL, KOLO_AVG, &reduction), KOLO_E_UNSUPPORTED);
    assert_string_equal(kolo_last_error(), "avg is for numbers, not for bool");
    assert_int_equal(ko_reduce_single(KOLO_FLOAT32, KOLO_BOR, &out, &value, 1), KOLO_E_UNSUPPORTED);
    assert_int_equal(out, 0);
}

static void one_rank_copies(void **state)
{
    const int in[3] = {1, -2, 3};
    int out[3] = {0};

    (void)state;
    assert_int_equal(ko_reduce_single(KOLO_INT32, KOLO_AVG, out, in, 3), KOLO_OK);
    assert_memory_equal(in, out, sizeof in);
    assert_int_equal(ko_reduce_single(KOLO_INT32, KOLO_SUM, out, out, 3), KOLO_OK);
    assert_memory_equal(in, out, sizeof in);
    assert_int_equal(ko_reduce_single(KOLO_INT32, KOLO_SUM, NULL, NULL, 0), KOLO_OK);
    assert_int_equal(ko_reduce_single(KOLO_BOOL, KOLO_BXOR, out, in, sizeof in), KOLO_OK);
    assert_memory_equal(out, "\1\0\0\0\1\1\1\1\1\0\0\0", sizeof out);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_reduction_agrees_with_the_oracle),
        cmocka_unit_test(factors),
        cmocka_unit_test(nothing_to_reduce_needs_no_memory),
        cmocka_unit_test(a_machine_has_the_levels_of_its_kind),
        cmocka_unit_test(every_machine_gives_the_same_bits),
        cmocka_unit_test(known_values),
        cmocka_unit_test(integers_are_divided_exactly),
        cmocka_unit_test(quotients_of_32_bits),
        cmocka_unit_test(refusals),
        cmocka_unit_test(one_rank_copies),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
