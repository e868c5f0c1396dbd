/* SPDX-License-Identifier: MIT
 *
 * dtype.h: THE lists of element types and of reductions; a new one is one row here (and one in
 * kolo.h's enum). The 16-bit floats are carried as their bits, in uint16_t, and computed in float.
 */
#ifndef KO_DTYPE_H
#define KO_DTYPE_H

#include "kolo.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* X(KOLO_ identifier, name, C type of one element, kind, C type in which arithmetic is done).
 * Integers compute unsigned, since they wrap; SMALL
 * floats, and HALF, which some machines convert, in a larger type. */
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
    X(FLOAT64, float64, double, FLOAT, double)

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

/* False for a number that is no dtype, or no op, at all. */
bool ko_dtype_is_valid(kolo_dtype dtype);
bool ko_op_is_valid(kolo_op op);

/* False for integers and for what is no dtype. */
bool ko_dtype_is_float(kolo_dtype dtype);

/* The conversions below have no branches and read no subnormal float, so that loops over them
 * vectorise and a caller's flush-to-zero mode changes nothing. To 16 bits they round to nearest,
 * ties to even; what is too large becomes infinity; a NaN stays one. */

static inline float ko_float_of_bits(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t ko_float_bits(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float ko_float_of_bfloat16(uint16_t half)
{
    return ko_float_of_bits((uint32_t)half << 16);
}

static inline uint16_t ko_bfloat16_of_float(float value)
{
    uint32_t bits = ko_float_bits(value);
    uint32_t rounded = bits + 0x7fff + (bits >> 16 & 1);
    uint32_t quiet = bits | 0x400000; /* or a NaN whose low bits are cut off would be infinity */
    uint32_t is_nan = (bits & 0x7fffffff) > 0x7f800000;

    return (uint16_t)((is_nan ? quiet : rounded) >> 16);
}

static inline float ko_float_of_float16(uint16_t half)
{
    uint32_t shifted = (half & 0x7fffu) << 13; /* exponent and fraction where a float has them */
    uint32_t exponent = shifted & 0x0f800000;
    uint32_t normal = shifted + ((127u - 15) << 23);
    uint32_t special = shifted + ((255u - 31) << 23); /* infinity and NaN */
    /* 2^-14 + fraction, less 2^-14 */
    float subnormal = ko_float_of_bits(shifted + (113u << 23)) - ko_float_of_bits(113u << 23);
    uint32_t finite = exponent == 0 ? ko_float_bits(subnormal) : normal;

    return ko_float_of_bits((exponent == 0x0f800000 ? special : finite) | (half & 0x8000u) << 16);
}

static inline uint16_t ko_float16_of_float(float value)
{
    uint32_t bits = ko_float_bits(value);
    uint32_t magnitude = bits & 0x7fffffff;
    /* Infinity, or a quiet NaN with the upper bits of its payload. */
    uint32_t special =
        magnitude > 0x7f800000 ? 0x7e00 | (magnitude >> 13 & 0x3ff) : (uint32_t)0x7c00;
    uint32_t normal = (magnitude - ((127u - 15) << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
    /* Adding 0.5 leaves multiples of 2^-24, the smallest float16, in the fraction, rounded. */
    uint32_t subnormal = ko_float_bits(ko_float_of_bits(magnitude) + 0.5f) - (126u << 23);
    uint32_t finite = magnitude < 113u << 23 ? subnormal : normal;

    /* From 65520 on the nearest is infinity. */
    return (uint16_t)((magnitude >= 0x477ff000 ? special : finite) | (bits >> 16 & 0x8000));
}

#endif
