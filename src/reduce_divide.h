/* SPDX-License-Identifier: MIT
 *
 * reduce_divide.h: exact division of many integers by one number, without dividing: several times
 * as fast, and in loops that vectorise. x / n is a product's upper half, where x times the
 * multiplier's rounding error does not reach the next multiple of 1 / n.
 */
#ifndef KO_REDUCE_DIVIDE_H
#define KO_REDUCE_DIVIDE_H

#include <stdint.h>

/* For x of 8 bits: multiplier = 2^16 / n, rounded up by at most 1, which is enough as 255 n < 2^16;
 * of a larger n it makes 0. n >= 2. */
typedef uint16_t ko_uint8_divisor;

static inline ko_uint8_divisor ko_uint8_divisor_of(int n)
{
    return (uint16_t)(0x10000 / n + 1);
}

static inline uint8_t ko_uint8_quotient(uint8_t x, ko_uint8_divisor by)
{
    return (uint8_t)((uint32_t)x * by >> 16);
}

/* For x of 32 or 64 bits: the multiplier, 2^(bits + log) / n rounded up, where log is log2 of n
 * rounded up, has one bit more than x: 2^bits + multiplier. So half of what the product with
 * 2^bits adds, which is x, comes in before the last shift. n >= 2. */
typedef struct ko_uint32_divisor {
    uint32_t multiplier;
    int shift; /* log - 1 */
} ko_uint32_divisor;

typedef struct ko_uint64_divisor {
    uint64_t multiplier;
    int shift;
} ko_uint64_divisor;

static inline int ko_divisor_shift(int n)
{
    return 31 - __builtin_clz((unsigned)n - 1);
}

static inline ko_uint32_divisor ko_uint32_divisor_of(int n)
{
    const int shift = ko_divisor_shift(n);
    const uint64_t excess = ((uint64_t)2 << shift) - (uint64_t)n;

    return (ko_uint32_divisor){(uint32_t)((excess << 32) / (uint64_t)n + 1), shift};
}

static inline ko_uint64_divisor ko_uint64_divisor_of(int n)
{
    const int shift = ko_divisor_shift(n);
    const uint64_t excess = ((uint64_t)2 << shift) - (uint64_t)n;

    return (ko_uint64_divisor){(uint64_t)(((unsigned __int128)excess << 64) / (unsigned)n + 1),
                               shift};
}

static inline uint32_t ko_uint32_quotient(uint32_t x, ko_uint32_divisor by)
{
    const uint32_t high = (uint32_t)((uint64_t)x * by.multiplier >> 32);

    return (high + ((x - high) >> 1)) >> by.shift;
}

/* The upper half of x * y, from products of halves, which vectorise. */
static inline uint64_t ko_high_product(uint64_t x, uint64_t y)
{
    const uint64_t x0 = (uint32_t)x, x1 = x >> 32, y0 = (uint32_t)y, y1 = y >> 32;
    const uint64_t middle = x1 * y0 + (x0 * y0 >> 32);
    const uint64_t other = x0 * y1 + (uint32_t)middle;

    return x1 * y1 + (middle >> 32) + (other >> 32);
}

static inline uint64_t ko_uint64_quotient(uint64_t x, ko_uint64_divisor by)
{
    const uint64_t high = ko_high_product(x, by.multiplier);

    return (high + ((x - high) >> 1)) >> by.shift;
}

#endif
