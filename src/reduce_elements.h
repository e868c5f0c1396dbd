/* SPDX-License-Identifier: MIT
 *
 * reduce_elements.h: what the loops of reduce_loops.h do with one element of each type.
 */
#ifndef KO_REDUCE_ELEMENTS_H
#define KO_REDUCE_ELEMENTS_H

#include "dtype.h"
#include "reduce_divide.h"

#undef bool /* here it is the name of an element type, to make other names of */

/* ---- elements: name_any at any address; name_load and name_store between it and arithmetic --- */

#define ANY_ALIGNMENT(id, name, type, kind, work) \
    typedef type name##_any __attribute__((aligned(1), may_alias));
KO_DTYPE_LIST(ANY_ALIGNMENT)

#define AS_IT_IS(x) (x)
#define IS_TRUE(x) ((x) != 0)
#define PLUS(x, y) ((x) + (y))
#define TIMES(x, y) ((x) * (y))
#define OVER(x, y) ((x) / (y))
#define AND(x, y) ((x) & (y))
#define OR(x, y) ((x) | (y))
#define XOR(x, y) ((x) ^ (y))

#define BOOL_ELEMENT(name, type, work)
#define INTEGER_ELEMENT(name, type, least, most)       \
    static inline type name##_smaller(type x, type y)  \
    {                                                  \
        return y < x ? y : x;                          \
    }                                                  \
    static inline type name##_larger(type x, type y)   \
    {                                                  \
        return y > x ? y : x;                          \
    }                                                  \
    static inline type name##_of_double(double x)      \
    {                                                  \
        if (!(x > (double)(least)))                    \
            return x <= (double)(least) ? (least) : 0; \
        return x >= (double)(most) ? (most) : (type)x; \
    }
#define SIGNED_MOST(type) ((type)(UINT64_MAX >> (65 - 8 * sizeof(type))))
/* A quotient is that of the magnitudes, with x's sign, whose bits are all 1 or 0. */
#define SIGNED_ELEMENT(name, type, work)                                           \
    INTEGER_ELEMENT(name, type, (type)(-SIGNED_MOST(type) - 1), SIGNED_MOST(type)) \
    static inline type name##_quotient(type x, ko_u##name##_divisor by)            \
    {                                                                              \
        u##type sign = (u##type) - (type)(x < 0);                                  \
        u##type magnitude = (u##type)(((u##type)x ^ sign) - sign);                 \
        return (type)((ko_u##name##_quotient(magnitude, by) ^ sign) - sign);       \
    }
#define UNSIGNED_ELEMENT(name, type, work)                             \
    INTEGER_ELEMENT(name, type, 0, (type)UINT64_MAX)                   \
    static inline type name##_quotient(type x, ko_##name##_divisor by) \
    {                                                                  \
        return ko_##name##_quotient(x, by);                            \
    }                                                                  \
    static inline work name##_load(type x)                             \
    {                                                                  \
        return x;                                                      \
    }
#define FLOAT_ELEMENT(name, type, work)
#define HALF_ELEMENT(name, type, work) SMALL_ELEMENT(name, type, work)
#define BYTE_ELEMENT(name, type, work) SMALL_ELEMENT(name, type, work)
#define SMALL_ELEMENT(name, type, work)     \
    static inline work name##_load(type x)  \
    {                                       \
        return ko_float_of_##name(x);       \
    }                                       \
    static inline type name##_store(work x) \
    {                                       \
        return ko_##name##_of_float(x);     \
    }

#define ELEMENT_OF(id, name, type, kind, work) kind##_ELEMENT(name, type, work)
KO_DTYPE_LIST(ELEMENT_OF)

/* ---- two bfloat16, in a word as they lie in memory ------------------------------------------ */

typedef uint32_t word_any __attribute__((aligned(1), may_alias));

struct pair {
    float upper, lower; /* halves of the word */
};

static inline struct pair pair_load(uint32_t word)
{
    return (struct pair){ko_float_of_bits(word & 0xffff0000), ko_float_of_bits(word << 16)};
}

static inline struct pair pair_plus(struct pair x, struct pair y)
{
    return (struct pair){x.upper + y.upper, x.lower + y.lower};
}

static inline struct pair pair_times(struct pair x, float factor)
{
    return (struct pair){x.upper * factor, x.lower * factor};
}

static inline struct pair pair_over(struct pair x, float divisor)
{
    return (struct pair){x.upper / divisor, x.lower / divisor};
}

/* A bfloat16 and 16 bits of no meaning. */
static inline uint32_t bfloat16_upper(float value)
{
    uint32_t bits = ko_float_bits(value);
    uint32_t rounded = bits + 0x7fff + (bits >> 16 & 1);

    return value != value ? bits | 0x400000 : rounded;
}

static inline uint32_t pair_store(struct pair x)
{
    return (bfloat16_upper(x.upper) & 0xffff0000) | bfloat16_upper(x.lower) >> 16;
}

/* ---- min and max of floats, on their bits ---------------------------------------------------- */

#define FLOAT_BITS(name, type, largest, magnitude) \
    typedef type name##_bits __attribute__((aligned(1), may_alias));
KO_FLOAT_ORDER_LIST(FLOAT_BITS)

#endif
