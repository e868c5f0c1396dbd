/* SPDX-License-Identifier: MIT
 *
 * Integers of any bits where they wrap, small whole numbers as floats, of which no sum has more
 * bits than 8-bit floats hold. Exams spend most of their own time here: what is worked out for each
 * element is compiled for each dtype, and asks nothing of it that the compiler knows.
 */
#include "exam_values.h"

#include "dtype.h"

#include <string.h>

#define FOR_EACH_DTYPE static inline __attribute__((always_inline))

FOR_EACH_DTYPE size_t size_of(kolo_dtype dtype)
{
    static const unsigned char sizes[KOLO_NDTYPES] = {
#define SIZE_ROW(id, name, type, kind, work) [KOLO_##id] = sizeof(type),
        KO_DTYPE_LIST(SIZE_ROW)
#undef SIZE_ROW
    };

    return sizes[dtype];
}

static bool is_float(kolo_dtype dtype)
{
    return dtype >= KOLO_FLOAT16 && dtype != KOLO_BOOL;
}

static bool is_byte_float(kolo_dtype dtype)
{
    return dtype == KOLO_FLOAT8_E4M3 || dtype == KOLO_FLOAT8_E5M2;
}

static bool is_signed(kolo_dtype dtype)
{
    return dtype == KOLO_INT8 || dtype == KOLO_INT32 || dtype == KOLO_INT64 || is_float(dtype);
}

bool exam_is_reducing(enum ko_collective what)
{
    return what == KO_ALL_REDUCE || what == KO_REDUCE || what == KO_REDUCE_SCATTER;
}

bool exam_allows(kolo_dtype dtype, kolo_op op)
{
    if (dtype == KOLO_BOOL)
        return op != KOLO_AVG;
    return !is_float(dtype) || op < KOLO_BAND;
}

FOR_EACH_DTYPE uint64_t scrambled(uint64_t rank, uint64_t i)
{
    uint64_t x = (rank + 1) * 0x9e3779b97f4a7c15U + i * 0xbf58476d1ce4e5b9U;

    x = (x ^ x >> 30) * 0x94d049bb133111ebU;
    return x ^ x >> 31;
}

uint64_t exam_scramble(uint64_t rank, uint64_t i)
{
    return scrambled(rank, i);
}

/* The same on all ranks; and numbers from 0 to n - 1, on each another. */
static uint64_t shared_by_all(uint64_t i)
{
    return scrambled(UINT64_MAX, i);
}

static uint64_t turn_of(uint64_t i, int rank, int n)
{
    return (shared_by_all(i) / 16 + (uint64_t)rank) % (uint64_t)n;
}

/* As 8-bit floats all whole numbers up to 8 are exact: no ranks but four give more than 1 as a
 * factor, or more than 0 to a sum; an average has one rank that gives n, or two that cancel. */
static int64_t byte_float_number(kolo_op op, int rank, uint64_t i, int n)
{
    const int64_t any = (int64_t)(scrambled((uint64_t)rank, i) % 5) - 2;
    const uint64_t all = shared_by_all(i), turn = turn_of(i, rank, n);

    if (op == KOLO_AVG && n <= 8)
        return turn ? 0 : all % 2 ? n : -n;
    if (op == KOLO_AVG)
        return turn > 1 ? 0 : turn ? 2 : -2;
    if (op == KOLO_PROD)
        return rank < 4 && any ? any : 1;
    return rank < 4 || op != KOLO_SUM ? any : 0;
}

FOR_EACH_DTYPE int64_t number(kolo_dtype dtype, kolo_op op, int rank, uint64_t i, int n)
{
    static const int64_t factors[] = {1, 2, -1, 1, -2, 1};
    const uint64_t any = scrambled((uint64_t)rank, i);

    if (is_byte_float(dtype))
        return byte_float_number(op, rank, i, n);
    if (dtype == KOLO_BOOL)
        return (int64_t)(any & 1 ? 0 : any >> 8 & 0xff);
    if (op == KOLO_AVG && is_float(dtype)) /* the average is exact */
        return (int64_t)(shared_by_all(i) % 9) - 4 + 2 * (int64_t)turn_of(i, rank, n) - (n - 1);
    if (op == KOLO_AVG) /* no wrap, which the division would show */
        return (int64_t)(any % 16) - (is_signed(dtype) ? 8 : 0);
    if (is_float(dtype) && op == KOLO_PROD)
        return factors[any % 6];
    return is_float(dtype) ? (int64_t)(any % 31) - 15 : (int64_t)any;
}

int64_t exam_number(kolo_dtype dtype, kolo_op op, int rank, uint64_t i, int n)
{
    return number(dtype, op, rank, i, n);
}

/* The integer as dtype holds it, in 64 bits again. */
FOR_EACH_DTYPE int64_t wrapped(kolo_dtype dtype, uint64_t value)
{
    const unsigned unused = 64 - 8 * (unsigned)size_of(dtype);

    if (is_signed(dtype))
        return (int64_t)(value << unused) >> unused;
    return (int64_t)(value << unused >> unused);
}

static int64_t combined_truth(kolo_op op, bool a, bool b)
{
    if (op == KOLO_BXOR)
        return a != b;
    return op == KOLO_SUM || op == KOLO_MAX || op == KOLO_BOR ? a || b : a && b;
}

FOR_EACH_DTYPE int64_t combined(kolo_dtype dtype, kolo_op op, int64_t a, int64_t b)
{
    const bool is_less = is_signed(dtype) ? a < b : (uint64_t)a < (uint64_t)b;

    if (dtype == KOLO_BOOL)
        return combined_truth(op, a, b);
    switch ((int)op) {
    case KOLO_PROD:
        return (int64_t)((uint64_t)a * (uint64_t)b);
    case KOLO_MIN:
        return is_less ? a : b;
    case KOLO_MAX:
        return is_less ? b : a;
    case KOLO_BAND:
        return a & b;
    case KOLO_BOR:
        return a | b;
    case KOLO_BXOR:
        return a ^ b;
    default:
        return (int64_t)((uint64_t)a + (uint64_t)b);
    }
}

FOR_EACH_DTYPE int64_t reduced(kolo_dtype dtype, kolo_op op, uint64_t i, int n)
{
    int64_t sum = wrapped(KOLO_INT64, (uint64_t)number(dtype, op, 0, i, n));

    if (!is_float(dtype))
        sum = wrapped(dtype, (uint64_t)sum);
    if (dtype == KOLO_BOOL)
        sum = sum != 0;
    for (int r = 1; r < n; r++) {
        int64_t next = number(dtype, op, r, i, n);

        next = is_float(dtype) ? next : wrapped(dtype, (uint64_t)next);
        sum = combined(dtype, op, sum, next);
        sum = is_float(dtype) ? sum : wrapped(dtype, (uint64_t)sum);
    }
    return op == KOLO_AVG ? sum / n : sum;
}

int64_t exam_reduced(kolo_dtype dtype, kolo_op op, uint64_t i, int n)
{
    return reduced(dtype, op, i, n);
}

/* A small whole number as a float of so many fraction bits, exactly. */
FOR_EACH_DTYPE uint64_t small_float(kolo_dtype dtype, int64_t value, int fraction_bits, int bias)
{
    const uint64_t magnitude = value < 0 ? (uint64_t)-value : (uint64_t)value;
    const uint64_t sign = value < 0 ? (uint64_t)1 << (8 * size_of(dtype) - 1) : 0;
    int exponent;

    if (!magnitude)
        return 0;
    exponent = 63 - __builtin_clzll(magnitude);
    return sign | (uint64_t)(exponent + bias) << fraction_bits |
           ((magnitude << fraction_bits >> exponent) & (((uint64_t)1 << fraction_bits) - 1));
}

FOR_EACH_DTYPE void write_number(kolo_dtype dtype, int64_t value, void *to)
{
    const float single = (float)value;
    const double real = (double)value;
    uint64_t bits = (uint64_t)value;

    if (dtype == KOLO_FLOAT32)
        memcpy(to, &single, sizeof single);
    else if (dtype == KOLO_FLOAT64)
        memcpy(to, &real, sizeof real);
    if (dtype == KOLO_FLOAT32 || dtype == KOLO_FLOAT64)
        return;
    if (dtype == KOLO_FLOAT16)
        bits = small_float(dtype, value, 10, 15);
    else if (dtype == KOLO_BFLOAT16)
        bits = small_float(dtype, value, 7, 127);
    else if (dtype == KOLO_FLOAT8_E4M3)
        bits = small_float(dtype, value, 3, 7);
    else if (dtype == KOLO_FLOAT8_E5M2)
        bits = small_float(dtype, value, 2, 15);
    memcpy(to, &bits, size_of(dtype)); /* little-endian */
}

void exam_write_number(kolo_dtype dtype, int64_t value, void *to)
{
    write_number(dtype, value, to);
}

/* Far from all elements of exams of other seeds. */
static uint64_t seeded(const struct exam *exam, size_t i)
{
    return (uint64_t)exam->seed << 32 | i;
}

FOR_EACH_DTYPE void write_inputs(kolo_dtype dtype, const struct exam *exam, int n, int rank,
                                 struct exam_part part, unsigned char *to)
{
    const bool is_reducing = exam_is_reducing(exam->what);
    const kolo_op op = exam->op;

    for (size_t i = 0; i < part.count; i++, to += size_of(dtype)) {
        const uint64_t at = seeded(exam, part.first + i), any = scrambled((uint64_t)rank, at);

        if (is_reducing)
            write_number(dtype, number(dtype, op, rank, at, n), to);
        else
            memcpy(to, &any, size_of(dtype));
    }
}

void exam_write_inputs(const struct exam *exam, int n, int rank, struct exam_part part, void *to)
{
    switch (exam->dtype) {
#define INPUTS_CASE(id, name, type, kind, work)           \
    case KOLO_##id:                                       \
        write_inputs(KOLO_##id, exam, n, rank, part, to); \
        break;
        KO_DTYPE_LIST(INPUTS_CASE)
#undef INPUTS_CASE
    default:
        break;
    }
}

FOR_EACH_DTYPE void write_reduced(kolo_dtype dtype, const struct exam *exam, int n,
                                  struct exam_part part, unsigned char *to)
{
    const kolo_op op = exam->op;

    for (size_t i = 0; i < part.count; i++, to += size_of(dtype))
        write_number(dtype, reduced(dtype, op, seeded(exam, part.first + i), n), to);
}

void exam_write_reduced(const struct exam *exam, int n, struct exam_part part, void *to)
{
    switch (exam->dtype) {
#define REDUCED_CASE(id, name, type, kind, work)     \
    case KOLO_##id:                                  \
        write_reduced(KOLO_##id, exam, n, part, to); \
        break;
        KO_DTYPE_LIST(REDUCED_CASE)
#undef REDUCED_CASE
    default:
        break;
    }
}
