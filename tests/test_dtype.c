/* SPDX-License-Identifier: MIT
 *
 * Element types: sizes and names; conversions of small floats against slow ones that only know the
 * definition (sign, exponent, fraction) and double arithmetic, which is exact here.
 */
#include "dtype.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

struct format {
    int width; /* in bits */
    int fraction_bits;
    int bias;
    unsigned beyond; /* the bits after the largest number: infinity, or NaN if there is none */
    bool has_infinity;
    float (*to_float)(uint16_t);
    uint16_t (*of_float)(float);
};

static float of_e4m3(uint16_t byte)
{
    return ko_float_of_float8_e4m3((uint8_t)byte);
}

static uint16_t to_e4m3(float value)
{
    return ko_float8_e4m3_of_float(value);
}

static float of_e5m2(uint16_t byte)
{
    return ko_float_of_float8_e5m2((uint8_t)byte);
}

static uint16_t to_e5m2(float value)
{
    return ko_float8_e5m2_of_float(value);
}

static const struct format formats[] = {
    {16, 10, 15, 0x7c00, true, ko_float_of_float16, ko_float16_of_float},
    {16, 7, 127, 0x7f80, true, ko_float_of_bfloat16, ko_bfloat16_of_float},
    {8, 3, 7, 0x7f, false, of_e4m3, to_e4m3},
    {8, 2, 15, 0x7c, true, of_e5m2, to_e5m2},
};

enum { NFORMATS = sizeof formats / sizeof *formats };

static unsigned sign_of(const struct format *format)
{
    return 1u << (format->width - 1);
}

static double slow_value(const struct format *format, unsigned half)
{
    unsigned magnitude = half & (sign_of(format) - 1);
    int fraction = (int)(magnitude & ((1u << format->fraction_bits) - 1));
    int exponent = (int)(magnitude >> format->fraction_bits);
    double sign = half & sign_of(format) ? -1 : 1;

    if (magnitude >= format->beyond)
        return magnitude == format->beyond && format->has_infinity ? sign * INFINITY : NAN;
    if (exponent)
        fraction += 1 << format->fraction_bits;
    return sign * ldexp(fraction, (exponent ? exponent : 1) - format->bias - format->fraction_bits);
}

/* The nearest of all finite magnitudes by bisection, ties to the even bits. */
static unsigned slow_half(const struct format *format, double value)
{
    unsigned sign = signbit(value) ? sign_of(format) : 0;
    unsigned low = 0, high = format->beyond;
    double middle;

    value = fabs(value);
    if (isinf(value))
        return sign | format->beyond;
    while (high - low > 1) {
        unsigned probe = (low + high) / 2;

        if (slow_value(format, probe) <= value)
            low = probe;
        else
            high = probe;
    }
    /* What would follow the largest finite value is where infinity begins, as far as rounding goes.
     */
    middle =
        low + 1 == format->beyond
            ? slow_value(format, low) + (slow_value(format, low) - slow_value(format, low - 1)) / 2
            : (slow_value(format, low) + slow_value(format, low + 1)) / 2;
    if (value > middle || (value == middle && low % 2))
        low++;
    return sign | low;
}

static void every_half_to_float(void **state)
{
    (void)state;
    for (size_t f = 0; f < NFORMATS; f++)
        for (unsigned half = 0; half < 2 * sign_of(&formats[f]); half++) {
            double expected = slow_value(&formats[f], half);
            float got = formats[f].to_float((uint16_t)half);

            if (isnan(expected))
                assert_true(isnan(got));
            else
                assert_true(got == expected && !signbit(got) == !signbit(expected));
        }
}

static void check_rounding(const struct format *format, float value)
{
    unsigned got = format->of_float(value);

    if (isnan(value))
        assert_true(isnan(slow_value(format, got)));
    else
        assert_int_equal(got, slow_half(format, value));
}

static void every_half_from_float(void **state)
{
    (void)state;
    for (size_t f = 0; f < NFORMATS; f++)
        for (unsigned half = 0; half < 2 * sign_of(&formats[f]); half++) {
            double value = slow_value(&formats[f], half);

            if (isnan(value))
                assert_true(isnan(slow_value(&formats[f], formats[f].of_float((float)value))));
            else
                assert_int_equal(formats[f].of_float((float)value), half);
        }
}

/* The middle between neighbours, and the floats beside it, are where rounding can go wrong. */
static void middles_round_to_even(void **state)
{
    (void)state;
    for (size_t f = 0; f < NFORMATS; f++) {
        for (unsigned half = 0; half < formats[f].beyond; half++) {
            double step = half + 1 < formats[f].beyond
                              ? slow_value(&formats[f], half + 1) - slow_value(&formats[f], half)
                              : slow_value(&formats[f], half) - slow_value(&formats[f], half - 1);
            float middle = (float)(slow_value(&formats[f], half) + step / 2);

            check_rounding(&formats[f], middle);
            check_rounding(&formats[f], -middle);
            check_rounding(&formats[f], nextafterf(middle, 0));
            check_rounding(&formats[f], nextafterf(middle, INFINITY));
        }
    }
}

static void floats_of_all_sizes(void **state)
{
    (void)state;
    for (size_t f = 0; f < NFORMATS; f++)
        for (uint64_t bits = 0; bits < (uint64_t)1 << 32; bits += 10007)
            check_rounding(&formats[f], ko_float_of_bits((uint32_t)bits));
}

static void nan_stays_nan(void **state)
{
    static const uint32_t nans[] = {0x7f800001, 0xff800001, 0x7fffffff, 0xffffffff, 0x7fc00000};

    (void)state;
    for (size_t f = 0; f < NFORMATS; f++)
        for (size_t i = 0; i < sizeof nans / sizeof *nans; i++) {
            uint16_t half = formats[f].of_float(ko_float_of_bits(nans[i]));

            assert_true(isnan(formats[f].to_float(half)));
            assert_int_equal(!(half & sign_of(&formats[f])), !(nans[i] >> 31));
        }
}

/* What is too large, as PyTorch's float8_e4m3fn and float8_e5m2 have it. */
static void the_largest_of_8_bits(void **state)
{
    (void)state;
    assert_int_equal(ko_float8_e4m3_of_float(448), 0x7e);
    assert_int_equal(ko_float8_e4m3_of_float(464), 0x7e); /* a tie */
    assert_int_equal(ko_float8_e4m3_of_float(464.5f), 0x7f);
    assert_int_equal(ko_float8_e4m3_of_float(-INFINITY), 0xff);
    assert_int_equal(ko_float8_e5m2_of_float(57344), 0x7b);
    assert_int_equal(ko_float8_e5m2_of_float(61439), 0x7b);
    assert_int_equal(ko_float8_e5m2_of_float(61440), 0x7c); /* a tie */
    assert_int_equal(ko_float8_e5m2_of_float(-INFINITY), 0xfc);
}

static void names_and_sizes(void **state)
{
    static const struct {
        kolo_dtype dtype;
        const char *name;
        size_t nbytes;
        bool is_float;
    } expected[] = {
        {KOLO_INT8, "int8", 1, false},
        {KOLO_UINT8, "uint8", 1, false},
        {KOLO_INT32, "int32", 4, false},
        {KOLO_UINT32, "uint32", 4, false},
        {KOLO_INT64, "int64", 8, false},
        {KOLO_UINT64, "uint64", 8, false},
        {KOLO_FLOAT16, "float16", 2, true},
        {KOLO_BFLOAT16, "bfloat16", 2, true},
        {KOLO_FLOAT32, "float32", 4, true},
        {KOLO_FLOAT64, "float64", 8, true},
        {KOLO_BOOL, "bool", 1, false},
        {KOLO_FLOAT8_E4M3, "float8_e4m3", 1, true},
        {KOLO_FLOAT8_E5M2, "float8_e5m2", 1, true},
    };
    static const char *const ops[] = {"sum", "prod", "min", "max", "avg", "band", "bor", "bxor"};

    (void)state;
    assert_int_equal(sizeof expected / sizeof *expected, KOLO_NDTYPES);
    for (size_t i = 0; i < KOLO_NDTYPES; i++) {
        assert_string_equal(kolo_dtype_name(expected[i].dtype), expected[i].name);
        assert_int_equal(kolo_dtype_size(expected[i].dtype), expected[i].nbytes);
        assert_int_equal(ko_dtype_is_float(expected[i].dtype), expected[i].is_float);
    }
    for (int i = 0; i < KOLO_NOPS; i++)
        assert_string_equal(kolo_op_name((kolo_op)i), ops[i]);
}

static void what_is_no_dtype(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        int number = i ? -1 : KOLO_NDTYPES;

        assert_int_equal(kolo_dtype_size((kolo_dtype)number), 0);
        assert_string_equal(kolo_dtype_name((kolo_dtype)number), "unknown");
        assert_false(ko_dtype_is_float((kolo_dtype)number));
    }
    assert_string_equal(kolo_op_name(KOLO_NOPS), "unknown");
    assert_string_equal(kolo_op_name((kolo_op)-1), "unknown");
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_half_to_float),   cmocka_unit_test(every_half_from_float),
        cmocka_unit_test(middles_round_to_even), cmocka_unit_test(floats_of_all_sizes),
        cmocka_unit_test(nan_stays_nan),         cmocka_unit_test(the_largest_of_8_bits),
        cmocka_unit_test(names_and_sizes),       cmocka_unit_test(what_is_no_dtype),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
