/* SPDX-License-Identifier: MIT
 *
 * Host reductions: every instruction set x dtype x op x alignment x aliasing against an oracle that
 * takes one element at a time, in wider types.
 */
#include "dtype.h"
#include "reduce.h"
#include "reduce_divide.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

/* ---- oracle: elements as bits ---------------------------------------------------------------- */

static uint64_t mask_of(kolo_dtype dtype)
{
    return ~(uint64_t)0 >> (64 - 8 * kolo_dtype_size(dtype));
}

static double float_value(kolo_dtype dtype, uint64_t bits)
{
    double value;

    if (dtype == KOLO_FLOAT16)
        return ko_float_of_float16((uint16_t)bits);
    if (dtype == KOLO_BFLOAT16)
        return ko_float_of_bfloat16((uint16_t)bits);
    if (dtype == KOLO_FLOAT32)
        return ko_float_of_bits((uint32_t)bits);
    if (dtype == KOLO_FLOAT8_E4M3)
        return ko_float_of_float8_e4m3((uint8_t)bits);
    if (dtype == KOLO_FLOAT8_E5M2)
        return ko_float_of_float8_e5m2((uint8_t)bits);
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint64_t float_bits(kolo_dtype dtype, double value)
{
    uint64_t bits;

    if (dtype == KOLO_FLOAT16)
        return ko_float16_of_float((float)value);
    if (dtype == KOLO_BFLOAT16)
        return ko_bfloat16_of_float((float)value);
    if (dtype == KOLO_FLOAT32)
        return ko_float_bits((float)value);
    if (dtype == KOLO_FLOAT8_E4M3)
        return ko_float8_e4m3_of_float((float)value);
    if (dtype == KOLO_FLOAT8_E5M2)
        return ko_float8_e5m2_of_float((float)value);
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* As the arithmetic type of dtype holds it: double, or float for all others. */
static double work_precision(kolo_dtype dtype, double value)
{
    return dtype == KOLO_FLOAT64 ? value : (float)value;
}

static double float_smaller(double a, double b)
{
    if (isnan(a) || isnan(b))
        return NAN;
    return a < b || (a == b && signbit(a)) ? a : b;
}

/* A double holds the sum, product or quotient of two floats so well that rounding it once more, to
 * float, gives what float arithmetic gives. */
static uint64_t float_oracle(kolo_dtype dtype, kolo_op op, uint64_t abits, uint64_t bbits,
                             int nranks)
{
    double a = float_value(dtype, abits), b = float_value(dtype, bbits);
    double result = 0;

    switch ((int)op) {
    case KOLO_SUM:
        result = a + b;
        break;
    case KOLO_AVG:
        result = work_precision(dtype, a + b);
        if (nranks)
            result = work_precision(dtype, result / nranks);
        break;
    case KOLO_PROD:
        result = a * b;
        break;
    case KOLO_MIN:
        result = float_smaller(a, b);
        break;
    case KOLO_MAX:
        result = -float_smaller(-a, -b);
        break;
    }
    return float_bits(dtype, work_precision(dtype, result));
}

static __int128 integer_value(kolo_dtype dtype, uint64_t bits)
{
    bool is_signed = dtype == KOLO_INT8 || dtype == KOLO_INT32 || dtype == KOLO_INT64;
    uint64_t top = (mask_of(dtype) >> 1) + 1;

    return is_signed && bits & top ? (__int128)bits - (__int128)top - (__int128)top
                                   : (__int128)bits;
}

static uint64_t integer_oracle(kolo_dtype dtype, kolo_op op, uint64_t abits, uint64_t bbits,
                               int nranks)
{
    __int128 a = integer_value(dtype, abits), b = integer_value(dtype, bbits);

    switch ((int)op) {
    case KOLO_SUM:
        return (uint64_t)(a + b) & mask_of(dtype);
    case KOLO_AVG:
        a = integer_value(dtype, (uint64_t)(a + b) & mask_of(dtype));
        return (uint64_t)(nranks ? a / nranks : a) & mask_of(dtype);
    case KOLO_PROD:
        return abits * bbits & mask_of(dtype);
    case KOLO_MIN:
        return a < b ? abits : bbits;
    case KOLO_MAX:
        return a > b ? abits : bbits;
    case KOLO_BAND:
        return abits & bbits;
    case KOLO_BOR:
        return abits | bbits;
    default:
        return abits ^ bbits;
    }
}

static uint64_t bool_oracle(kolo_op op, bool a, bool b)
{
    if (op == KOLO_BXOR)
        return a != b;
    return op == KOLO_SUM || op == KOLO_MAX || op == KOLO_BOR ? a || b : a && b;
}

static bool same(kolo_dtype dtype, uint64_t got, uint64_t expected)
{
    return got == expected || (ko_dtype_is_float(dtype) && isnan(float_value(dtype, got)) &&
                               isnan(float_value(dtype, expected)));
}

/* ---- inputs ---------------------------------------------------------------------------------- */

static uint64_t random_state = 1;

static uint64_t random_bits(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return random_state ^ random_state >> 29;
}

static uint64_t get(kolo_dtype dtype, const char *buffer, size_t i)
{
    uint64_t bits = 0;

    memcpy(&bits, buffer + i * kolo_dtype_size(dtype), kolo_dtype_size(dtype));
    return bits;
}

static void put(kolo_dtype dtype, char *buffer, size_t i, uint64_t bits)
{
    memcpy(buffer + i * kolo_dtype_size(dtype), &bits, kolo_dtype_size(dtype));
}

/* The extremes of dtype: zeros, ones, largest, and for floats infinities, NaNs, subnormals. */
static uint64_t extreme(kolo_dtype dtype, unsigned i)
{
    uint64_t top = (mask_of(dtype) >> 1) + 1;
    uint64_t infinity = float_bits(dtype, INFINITY) & mask_of(dtype);
    uint64_t one = float_bits(dtype, 1);
    const uint64_t integers[] = {
        0, 1, 2, top, top - 1, top + 1, mask_of(dtype), mask_of(dtype) - 1};
    const uint64_t floats[] = {0,
                               top,
                               infinity,
                               infinity | top,
                               infinity + 1,
                               one,
                               one | top,
                               infinity - 1,
                               mask_of(dtype),
                               1,
                               top | 1,
                               (infinity - 1) | top};

    return ko_dtype_is_float(dtype) ? floats[i % 12] : integers[i % 8];
}

/* Extremes against extremes first, then random bits, half of the floats of moderate size. */
static uint64_t input(kolo_dtype dtype, size_t i, bool is_second)
{
    if (i < 144)
        return extreme(dtype, (unsigned)(is_second ? i / 12 : i % 12));
    if (ko_dtype_is_float(dtype) && i % 2)
        return float_bits(dtype, (double)(int64_t)(random_bits() % 20001 - 10000) / 64);
    return random_bits() & mask_of(dtype);
}

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

static uint64_t oracle(const struct position *at, uint64_t a, uint64_t b, int nranks)
{
    if (at->dtype == KOLO_BOOL)
        return bool_oracle(at->op, a, b);
    return ko_dtype_is_float(at->dtype) ? float_oracle(at->dtype, at->op, a, b, nranks)
                                        : integer_oracle(at->dtype, at->op, a, b, nranks);
}

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
        put(at->dtype, b, i, input(at->dtype, i, true));
        put(at->dtype, a, i, input(at->dtype, i, false));
        expected[i] = oracle(at, get(at->dtype, a, i), get(at->dtype, b, i), is_last ? NRANKS : 0);
    }
    run(at, is_last, out, a, b);
    for (size_t i = 0; i < at->count; i++)
        if (!same(at->dtype, get(at->dtype, out, i), expected[i]))
            fail_msg("%s %s %s[%zu of %zu] alias %d offset %zu: got %llx, expected %llx",
                     ko_reduction_level_name(at->level), kolo_dtype_name(at->dtype),
                     kolo_op_name(at->op), i, at->count, at->alias, at->offset,
                     (unsigned long long)get(at->dtype, out, i), (unsigned long long)expected[i]);
    for (size_t i = 0; i < 16; i++)
        assert_int_equal(out[at->count * size + i], 0x5a);
}

static void check_positions(struct position at)
{
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
    struct position at = {0};
    struct ko_reduction reduction;

    (void)state;
    for (at.level = 0; at.level < ko_reduction_nlevels(); at.level++)
        for (int dtype = 0; dtype < KOLO_NDTYPES; dtype++)
            for (int op = 0; op < KOLO_NOPS; op++) {
                at.dtype = (kolo_dtype)dtype;
                at.op = (kolo_op)op;
                if (!ko_reduction_find_at(at.level, at.dtype, at.op, &reduction))
                    check_positions(at);
            }
}

/* ---- many parts ------------------------------------------------------------------------------ */

enum { PARTS = 64, SHORT = 301, MANY_ROOM = SHORT * 8 + 64 };

/* What a chain of steps gives that rounds at its end only: as numbers for floats. */
static uint64_t chain(const struct position *at, char *const *parts, int nparts, size_t i)
{
    const bool is_small = ko_dtype_is_float(at->dtype) && kolo_dtype_size(at->dtype) < 4;
    const kolo_dtype wide = is_small ? KOLO_FLOAT32 : at->dtype;
    struct position step = *at;
    uint64_t so_far = get(at->dtype, parts[0], i);

    step.dtype = wide;
    if (is_small)
        so_far = float_bits(wide, float_value(at->dtype, so_far));
    if (at->dtype == KOLO_BOOL)
        so_far = so_far != 0;
    for (int p = 1; p < nparts; p++) {
        uint64_t next = get(at->dtype, parts[p], i);

        if (is_small)
            next = float_bits(wide, float_value(at->dtype, next));
        so_far = oracle(&step, so_far, next, p == nparts - 1 ? NRANKS : 0);
    }
    return is_small ? float_bits(at->dtype, float_value(wide, so_far)) : so_far;
}

/* out is apart, or part `out_is`. */
static void check_many(const struct position *at, int nparts, int out_is)
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
            put(at->dtype, parts[p], i,
                p < 2 ? input(at->dtype, i, p == 1) : input(at->dtype, 145 + 2 * i, false));
    }
    if (out_is >= 0)
        out = parts[out_is];
    for (size_t i = 0; i < at->count; i++)
        expected[i] = chain(at, parts, nparts, i);
    assert_int_equal(ko_reduction_find_at(at->level, at->dtype, at->op, &reduction), KOLO_OK);
    reduction.many(out, (const void *const *)parts, nparts, at->count, nparts > 1 ? NRANKS : 1);
    for (size_t i = 0; i < at->count; i++)
        if (!same(at->dtype, get(at->dtype, out, i), expected[i]))
            fail_msg("%s %s %s of %d parts, [%zu of %zu], out is %d: got %llx, expected %llx",
                     ko_reduction_level_name(at->level), kolo_dtype_name(at->dtype),
                     kolo_op_name(at->op), nparts, i, at->count, out_is,
                     (unsigned long long)get(at->dtype, out, i), (unsigned long long)expected[i]);
    for (size_t i = 0; i < 16; i++)
        assert_int_equal(out[at->count * kolo_dtype_size(at->dtype) + i], 0x5a);
}

static void check_numbers_of_parts(struct position at)
{
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
    struct position at = {0};
    struct ko_reduction reduction;

    (void)state;
    for (at.level = 0; at.level < ko_reduction_nlevels(); at.level++)
        for (int dtype = 0; dtype < KOLO_NDTYPES; dtype++)
            for (int op = 0; op < KOLO_NOPS; op++) {
                at.dtype = (kolo_dtype)dtype;
                at.op = (kolo_op)op;
                if (!ko_reduction_find_at(at.level, at.dtype, at.op, &reduction))
                    check_numbers_of_parts(at);
            }
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
            put(dtype, parts[p], i, input(dtype, 145 + 2 * i, false));
    }
    if (ko_reduction_find_at(level, dtype, op, &reduction))
        return;
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
    for (int level = 0; level < ko_reduction_nlevels(); level++)
        for (int dtype = 0; dtype < KOLO_NDTYPES; dtype++)
            for (int op = 0; op < KOLO_NOPS; op++)
                check_blocks(level, (kolo_dtype)dtype, (kolo_op)op);
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

/* ---- averages of integers -------------------------------------------------------------------- */

/* Numbers of ranks where a rounded inverse is worst: around powers of 2, and any. */
static int divisor_number(int i)
{
    const int power = 1 << (1 + i / 5 % 30);
    const int near = power + i % 5 - 2;

    if (i >= 150)
        return (int)(random_bits() % INT32_MAX >> i % 31) + 1;
    return near > 0 ? near : 1;
}

/* The average of (dtype) a and 0 over n ranks: a / n. */
static void check_quotients(int level, kolo_dtype dtype, int n, const uint64_t *numbers,
                            size_t count)
{
    static char a[256 * 8 + 8], zeros[256 * 8 + 8], out[256 * 8 + 8];
    struct ko_reduction reduction;

    for (size_t i = 0; i < count; i++)
        put(dtype, a, i, numbers[i]);
    assert_int_equal(ko_reduction_find_at(level, dtype, KOLO_AVG, &reduction), KOLO_OK);
    reduction.last(out, a, zeros, count, n);
    for (size_t i = 0; i < count; i++) {
        const uint64_t number = get(dtype, a, i);

        if (get(dtype, out, i) != integer_oracle(dtype, KOLO_AVG, number, 0, n))
            fail_msg("%s %s: %llx / %d is not %llx", ko_reduction_level_name(level),
                     kolo_dtype_name(dtype), (unsigned long long)number, n,
                     (unsigned long long)get(dtype, out, i));
    }
}

/* Around multiples of n, up to the largest, where a quotient is about to change. */
static uint64_t near_multiple(kolo_dtype dtype, int n, size_t i)
{
    const uint64_t most = i & 8 ? mask_of(dtype) >> 1 : mask_of(dtype);
    const uint64_t last = most / (uint64_t)n;
    const uint64_t factor = i & 16 ? last - i / 32 : random_bits() % (last ? last : 1);
    const uint64_t multiple = factor * (uint64_t)n + i % 3 - 1;

    return i & 4 ? 0 - multiple : multiple;
}

static void integers_are_divided_exactly(void **state)
{
    uint64_t numbers[256];

    (void)state;
    for (int level = 0; level < ko_reduction_nlevels(); level++)
        for (int i = 0; i < 1000; i++) {
            const int n = divisor_number(i);

            for (size_t x = 0; x < 256; x++)
                numbers[x] = x;
            for (int dtype = KOLO_INT8; dtype <= KOLO_UINT8; dtype++) {
                check_quotients(level, (kolo_dtype)dtype, n, numbers, 256);
                check_quotients(level, (kolo_dtype)dtype, i + 1, numbers, 256);
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
        cmocka_unit_test(any_number_of_parts),
        cmocka_unit_test(many_parts_of_many_elements),
        cmocka_unit_test(nothing_to_reduce_needs_no_memory),
        cmocka_unit_test(known_values),
        cmocka_unit_test(integers_are_divided_exactly),
        cmocka_unit_test(quotients_of_32_bits),
        cmocka_unit_test(refusals),
        cmocka_unit_test(one_rank_copies),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
