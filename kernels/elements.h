/* SPDX-License-Identifier: MIT
 *
 * elements.h: THE lists of element types and of reductions, for host and device; a new one is one
 * row here (and one in kolo.h's enum). Floats of 16 and 8 bits are carried as their bits, in
 * uint16_t and uint8_t, and computed in float, by the conversions below.
 */
#ifndef KO_ELEMENTS_H
#define KO_ELEMENTS_H

#include "portable.h"

#include <string.h>

/* X(KOLO_ identifier, name, C type of one element, kind, C type in which arithmetic is done).
 * Integers compute unsigned, since they wrap; floats of
 * the kinds HALF, SMALL and BYTE in a larger one. */
/* clang-format off */
#define KO_DTYPE_LIST(X) \
    X(INT8, int8, int8_t, SIGNED, uint32_t) \
    X(UINT8, uint8, uint8_t, UNSIGNED, uint32_t) \
    X(INT32, int32, int32_t, SIGNED, uint32_t) \
    X(UINT32, uint32, uint32_t, UNSIGNED, uint32_t) \
    X(INT64, int64, int64_t, SIGNED, uint64_t) \
    X(UINT64, uint64, uint64_t, UNSIGNED, uint64_t) \
    X(FLOAT16, float16, uint16_t, HALF, float) \
    X(BFLOAT16, bfloat16, uint16_t, SMALL, float) \
    X(FLOAT32, float32, float, FLOAT, float) \
    X(FLOAT64, float64, double, FLOAT, double) \
    X(BOOL, bool, uint8_t, BOOL, uint8_t) \
    X(FLOAT8_E4M3, float8_e4m3, uint8_t, BYTE, float) \
    X(FLOAT8_E5M2, float8_e5m2, uint8_t, BYTE, float)

/* X(KOLO_ identifier, name) */
#define KO_OP_LIST(X) \
    X(SUM, sum) \
    X(PROD, prod) \
    X(MIN, min) \
    X(MAX, max) \
    X(AVG, avg) \
    X(BAND, band) \
    X(BOR, bor) \
    X(BXOR, bxor)
/* clang-format on */

/* The conversions below have no branches and read no subnormal float, so that loops over them
 * vectorise and a caller's flush-to-zero mode changes nothing. They round to nearest, ties to even;
 * what is too large becomes infinity, or NaN where there is none; a NaN stays one. */

KO_FN float ko_float_of_bits(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

KO_FN uint32_t ko_float_bits(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

KO_FN float ko_float_of_bfloat16(uint16_t half)
{
    return ko_float_of_bits((uint32_t)half << 16);
}

KO_FN uint16_t ko_bfloat16_of_float(float value)
{
    uint32_t bits = ko_float_bits(value);
    uint32_t rounded = bits + 0x7fff + (bits >> 16 & 1);
    uint32_t quiet = bits | 0x400000; /* or a NaN whose low bits are cut off would be infinity */
    uint32_t is_nan = (bits & 0x7fffffff) > 0x7f800000;

    return (uint16_t)((is_nan ? quiet : rounded) >> 16);
}

/* The two halves of every smaller format: from magnitude bits that are finite, and to those of a
 * magnitude (the bits of a float without its sign) that rounds to a finite one. */
KO_FN uint32_t ko_widen_finite(uint32_t magnitude, int fraction_bits, int bias)
{
    uint32_t shifted = magnitude << (23 - fraction_bits); /* exponent where a float has it */
    uint32_t normal = shifted + ((uint32_t)(127 - bias) << 23);
    uint32_t least = (uint32_t)(128 - bias) << 23; /* of those that are normal */
    /* least + fraction, less least */
    float subnormal = ko_float_of_bits(shifted + least) - ko_float_of_bits(least);

    return shifted < 1u << 23 ? ko_float_bits(subnormal) : normal;
}

KO_FN uint32_t ko_narrow_finite(uint32_t magnitude, int fraction_bits, int bias)
{
    int shift = 23 - fraction_bits;
    uint32_t half = (1u << (shift - 1)) - 1 + (magnitude >> shift & 1);
    uint32_t normal = (magnitude - ((uint32_t)(127 - bias) << 23) + half) >> shift;
    /* Adding a float whose last bit is the smallest subnormal leaves multiples of it, rounded. */
    uint32_t unit = (uint32_t)(151 - bias - fraction_bits) << 23;
    uint32_t subnormal = ko_float_bits(ko_float_of_bits(magnitude) + ko_float_of_bits(unit)) - unit;

    return magnitude < (uint32_t)(128 - bias) << 23 ? subnormal : normal;
}

KO_FN float ko_float_of_float16(uint16_t half)
{
    uint32_t magnitude = half & 0x7fffu;
    uint32_t special = (magnitude << 13) + ((255u - 31) << 23); /* infinity and NaN */
    uint32_t finite = ko_widen_finite(magnitude, 10, 15);

    return ko_float_of_bits((magnitude >= 0x7c00 ? special : finite) | (half & 0x8000u) << 16);
}

KO_FN uint16_t ko_float16_of_float(float value)
{
    uint32_t bits = ko_float_bits(value);
    uint32_t magnitude = bits & 0x7fffffff;
    /* Infinity, or a quiet NaN with the upper bits of its payload. */
    uint32_t special =
        magnitude > 0x7f800000 ? 0x7e00 | (magnitude >> 13 & 0x3ff) : (uint32_t)0x7c00;
    uint32_t finite = ko_narrow_finite(magnitude, 10, 15);

    /* From 65520 on the nearest is infinity. */
    return (uint16_t)((magnitude >= 0x477ff000 ? special : finite) | (bits >> 16 & 0x8000));
}

KO_FN float ko_float_of_float8_e4m3(uint8_t byte)
{
    uint32_t magnitude = byte & 0x7fu;
    uint32_t finite = ko_widen_finite(magnitude, 3, 7);

    return ko_float_of_bits((magnitude == 0x7f ? 0x7fc00000 : finite) | (byte & 0x80u) << 24);
}

KO_FN uint8_t ko_float8_e4m3_of_float(float value)
{
    uint32_t bits = ko_float_bits(value);
    uint32_t magnitude = bits & 0x7fffffff;
    uint32_t finite = ko_narrow_finite(magnitude, 3, 7);

    /* Beyond 464 the next number would be nearer than 448, if there were one. */
    return (uint8_t)((magnitude > 0x43e80000 ? 0x7f : finite) | (bits >> 24 & 0x80));
}

/* The upper half of a float16. */
KO_FN float ko_float_of_float8_e5m2(uint8_t byte)
{
    return ko_float_of_float16((uint16_t)(byte << 8));
}

KO_FN uint8_t ko_float8_e5m2_of_float(float value)
{
    uint32_t bits = ko_float_bits(value);
    uint32_t magnitude = bits & 0x7fffffff;
    uint32_t special = magnitude > 0x7f800000 ? 0x7f : 0x7c;
    uint32_t finite = ko_narrow_finite(magnitude, 2, 15);

    /* From 61440 on the nearest is infinity. */
    return (uint8_t)((magnitude >= 0x47700000 ? special : finite) | (bits >> 24 & 0x80));
}

/* Floats ordered by their bits. X(dtype, its bits as a signed integer, the largest bits that are no
 * NaN, all bits but the sign). With the magnitude of negative floats inverted these order as the
 * floats do, -0 before +0. NaNs win. This also spares small floats the way to float32 and back. */
/* clang-format off */
#define KO_FLOAT_ORDER_LIST(X) \
    X(float8_e4m3, int8_t, 0x7e, INT8_MAX) \
    X(float8_e5m2, int8_t, 0x7c, INT8_MAX) \
    X(float16, int16_t, 0x7c00, INT16_MAX) \
    X(bfloat16, int16_t, 0x7f80, INT16_MAX) \
    X(float32, int32_t, 0x7f800000, INT32_MAX) \
    X(float64, int64_t, 0x7ff0000000000000, INT64_MAX)
/* clang-format on */

#define KO_FLOAT_ORDER(name, type, largest, magnitude)                                      \
    KO_FN int ko_##name##_is_nan(type x)                                                    \
    {                                                                                       \
        return (x & magnitude) > largest;                                                   \
    }                                                                                       \
    KO_FN type ko_##name##_order(type x)                                                    \
    {                                                                                       \
        return x < 0 ? (type)(x ^ magnitude) : x;                                           \
    }                                                                                       \
    KO_FN type ko_##name##_smaller(type x, type y)                                          \
    {                                                                                       \
        int take_y = ko_##name##_is_nan(y) | (ko_##name##_order(y) < ko_##name##_order(x)); \
        return (take_y & !ko_##name##_is_nan(x)) ? y : x;                                   \
    }                                                                                       \
    KO_FN type ko_##name##_larger(type x, type y)                                           \
    {                                                                                       \
        int take_y = ko_##name##_is_nan(y) | (ko_##name##_order(y) > ko_##name##_order(x)); \
        return (take_y & !ko_##name##_is_nan(x)) ? y : x;                                   \
    }
KO_FLOAT_ORDER_LIST(KO_FLOAT_ORDER)

#endif
