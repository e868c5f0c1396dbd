/* SPDX-License-Identifier: MIT
 *
 * Elements are carried as their bits, whatever their type.
 */
#include "reduce_oracle.h"

#include "dtype.h"
#include "reduce.h"

#include <math.h>
#include <string.h>

/* ---- oracle: elements as bits ---------------------------------------------------------------- */

uint64_t oracle_mask(kolo_dtype dtype)
{
    return ~(uint64_t)0 >> (64 - 8 * kolo_dtype_size(dtype));
}

double oracle_float(kolo_dtype dtype, uint64_t bits)
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

uint64_t oracle_bits(kolo_dtype dtype, double value)
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

double oracle_precision(kolo_dtype dtype, double value)
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
    double a = oracle_float(dtype, abits), b = oracle_float(dtype, bbits);
    double result = 0;

    switch ((int)op) {
    case KOLO_SUM:
        result = a + b;
        break;
    case KOLO_AVG:
        result = oracle_precision(dtype, a + b);
        if (nranks)
            result = oracle_precision(dtype, result / nranks);
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
    return oracle_bits(dtype, oracle_precision(dtype, result));
}

__int128 oracle_integer(kolo_dtype dtype, uint64_t bits)
{
    bool is_signed = dtype == KOLO_INT8 || dtype == KOLO_INT32 || dtype == KOLO_INT64;
    uint64_t top = (oracle_mask(dtype) >> 1) + 1;

    return is_signed && bits & top ? (__int128)bits - (__int128)top - (__int128)top
                                   : (__int128)bits;
}

static uint64_t integer_oracle(kolo_dtype dtype, kolo_op op, uint64_t abits, uint64_t bbits,
                               int nranks)
{
    __int128 a = oracle_integer(dtype, abits), b = oracle_integer(dtype, bbits);

    switch ((int)op) {
    case KOLO_SUM:
        return (uint64_t)(a + b) & oracle_mask(dtype);
    case KOLO_AVG:
        a = oracle_integer(dtype, (uint64_t)(a + b) & oracle_mask(dtype));
        return (uint64_t)(nranks ? a / nranks : a) & oracle_mask(dtype);
    case KOLO_PROD:
        return abits * bbits & oracle_mask(dtype);
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

bool oracle_same(kolo_dtype dtype, uint64_t got, uint64_t expected)
{
    return got == expected || (ko_dtype_is_float(dtype) && isnan(oracle_float(dtype, got)) &&
                               isnan(oracle_float(dtype, expected)));
}

/* ---- inputs ---------------------------------------------------------------------------------- */

static uint64_t random_state = 1;

uint64_t oracle_random(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return random_state ^ random_state >> 29;
}

uint64_t oracle_get(kolo_dtype dtype, const char *buffer, size_t i)
{
    uint64_t bits = 0;

    memcpy(&bits, buffer + i * kolo_dtype_size(dtype), kolo_dtype_size(dtype));
    return bits;
}

void oracle_put(kolo_dtype dtype, char *buffer, size_t i, uint64_t bits)
{
    memcpy(buffer + i * kolo_dtype_size(dtype), &bits, kolo_dtype_size(dtype));
}

/* The extremes of dtype: zeros, ones, largest, and for floats infinities, NaNs, subnormals. */
static uint64_t extreme(kolo_dtype dtype, unsigned i)
{
    uint64_t top = (oracle_mask(dtype) >> 1) + 1;
    uint64_t infinity = oracle_bits(dtype, INFINITY) & oracle_mask(dtype);
    uint64_t one = oracle_bits(dtype, 1);
    const uint64_t integers[] = {
        0, 1, 2, top, top - 1, top + 1, oracle_mask(dtype), oracle_mask(dtype) - 1};
    const uint64_t floats[] = {0,
                               top,
                               infinity,
                               infinity | top,
                               infinity + 1,
                               one,
                               one | top,
                               infinity - 1,
                               oracle_mask(dtype),
                               1,
                               top | 1,
                               (infinity - 1) | top};

    return ko_dtype_is_float(dtype) ? floats[i % 12] : integers[i % 8];
}

uint64_t oracle_input(kolo_dtype dtype, size_t i, bool is_second)
{
    if (i < 144)
        return extreme(dtype, (unsigned)(is_second ? i / 12 : i % 12));
    if (ko_dtype_is_float(dtype) && i % 2)
        return oracle_bits(dtype, (double)(int64_t)(oracle_random() % 20001 - 10000) / 64);
    return oracle_random() & oracle_mask(dtype);
}

uint64_t oracle_reduce(kolo_dtype dtype, kolo_op op, uint64_t a, uint64_t b, int nranks)
{
    if (dtype == KOLO_BOOL)
        return bool_oracle(op, a, b);
    return ko_dtype_is_float(dtype) ? float_oracle(dtype, op, a, b, nranks)
                                    : integer_oracle(dtype, op, a, b, nranks);
}

void oracle_each_reduction(void (*check)(int level, kolo_dtype dtype, kolo_op op))
{
    struct ko_reduction reduction;

    for (int level = 0; level < ko_reduction_nlevels(); level++)
        for (int dtype = 0; dtype < KOLO_NDTYPES; dtype++)
            for (int op = 0; op < KOLO_NOPS; op++)
                if (!ko_reduction_find_at(level, (kolo_dtype)dtype, (kolo_op)op, &reduction))
                    check(level, (kolo_dtype)dtype, (kolo_op)op);
}
