/* SPDX-License-Identifier: MIT
 *
 * A pattern is PERIOD elements, a prime, so that a chunk that comes from or lands in the wrong
 * place is almost never in step; each following period begins one element later, so that periods
 * differ from each other too. The elements are kept twice in a row: any period is one piece of
 * memory.
 */
#include "perf_data.h"

#include "dtype.h"
#include "status.h"

#include <stdlib.h>

enum { PERIOD = 8191 };

struct ko_perf_pattern {
    size_t nbytes; /* of one element */
    _Alignas(16) unsigned char bytes[];
};

static bool is_signed(kolo_dtype dtype)
{
    return dtype == KOLO_INT8 || dtype == KOLO_INT32 || dtype == KOLO_INT64;
}

/* Steele, Lea and Flood's finisher: every bit of the input reaches every bit of the output. */
static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

static uint64_t bits_at(const struct ko_perf_data *data, int rank, size_t i)
{
    return mix(mix(mix(data->seed) + (uint64_t)(unsigned)rank) + i);
}

const char *ko_perf_op_name(int op)
{
    return op == KO_PERF_MULSUM ? "mulsum" : kolo_op_name((kolo_op)op);
}

int ko_perf_factor(int rank)
{
    return 1 + rank % 2;
}

/* What a rank's elements count in the reduction. */
static int weight(const struct ko_perf_data *data, int rank)
{
    return data->op == KO_PERF_MULSUM ? ko_perf_factor(rank) : 1;
}

/* ---- integers ---------------------------------------------------------------------------- */

/* The lowest nbytes of bits as the dtype's value: sign or zero extended. */
static uint64_t extend(kolo_dtype dtype, uint64_t bits)
{
    int unused = 64 - 8 * (int)kolo_dtype_size(dtype);

    return is_signed(dtype) ? (uint64_t)((int64_t)(bits << unused) >> unused)
                            : bits << unused >> unused;
}

static bool is_less(kolo_dtype dtype, uint64_t a, uint64_t b)
{
    return is_signed(dtype) ? (int64_t)a < (int64_t)b : a < b;
}

static uint64_t join_integers(const struct ko_perf_data *data, uint64_t a, uint64_t b)
{
    switch (data->op) {
    case KOLO_PROD:
        return a * b;
    case KOLO_MIN:
        return is_less(data->dtype, a, b) ? a : b;
    case KOLO_MAX:
        return is_less(data->dtype, a, b) ? b : a;
    case KOLO_BAND:
        return a & b;
    case KOLO_BOR:
        return a | b;
    case KOLO_BXOR:
        return a ^ b;
    default:
        return a + b;
    }
}

static uint64_t divide_integer(kolo_dtype dtype, uint64_t sum, int nranks)
{
    uint64_t wrapped = extend(dtype, sum);

    return is_signed(dtype) ? (uint64_t)((int64_t)wrapped / nranks) : wrapped / (uint64_t)nranks;
}

/* 0 or 1. */
static uint64_t join_bools(int op, uint64_t a, uint64_t b)
{
    switch (op) {
    case KOLO_PROD:
    case KOLO_MIN:
    case KOLO_BAND:
        return a & b;
    case KOLO_BXOR:
        return a ^ b;
    default:
        return a | b;
    }
}

static uint64_t bool_at(const struct ko_perf_data *data, int rank, size_t i)
{
    uint64_t result;

    if (rank != KO_PERF_REDUCED)
        return bits_at(data, rank, i) & 1;
    result = bool_at(data, 0, i);
    for (int r = 1; r < data->nranks; r++)
        result = join_bools(data->op, result, bool_at(data, r, i));
    return result;
}

static uint64_t integer_at(const struct ko_perf_data *data, int rank, size_t i)
{
    uint64_t result;

    if (data->dtype == KOLO_BOOL)
        return bool_at(data, rank, i);
    if (rank != KO_PERF_REDUCED)
        return extend(data->dtype, bits_at(data, rank, i));
    result = (uint64_t)weight(data, 0) * integer_at(data, 0, i);
    for (int r = 1; r < data->nranks; r++)
        result = join_integers(data, result, (uint64_t)weight(data, r) * integer_at(data, r, i));
    return data->op == KOLO_AVG ? divide_integer(data->dtype, result, data->nranks) : result;
}

/* ---- floats ------------------------------------------------------------------------------ */

/* Integers up to this one are exact. */
static int64_t exact_limit(kolo_dtype dtype)
{
    static const int bits[KOLO_NDTYPES] = {
        [KOLO_FLOAT16] = 11, [KOLO_BFLOAT16] = 8,    [KOLO_FLOAT32] = 24,
        [KOLO_FLOAT64] = 53, [KOLO_FLOAT8_E4M3] = 4, [KOLO_FLOAT8_E5M2] = 3};

    return (int64_t)1 << bits[dtype];
}

/* From -most to most. */
static double whole(uint64_t bits, int64_t most)
{
    return (double)((int64_t)(bits % (uint64_t)(2 * most + 1)) - most);
}

/* Of so many ranks that no sum of some of them is beyond the limit. */
static double summand(const struct ko_perf_data *data, int rank, size_t i)
{
    int64_t limit = exact_limit(data->dtype) / weight(data, 1), most = limit / data->nranks;
    bool takes_part = most || (int64_t)(((size_t)rank + i) % (size_t)data->nranks) < limit;

    return takes_part ? whole(bits_at(data, rank, i), most ? most : 1) : 0;
}

/* One rank's is from 1 to 8 or -8 to -1, the others' are 1 or -1. */
static double factor(const struct ko_perf_data *data, int rank, size_t i)
{
    uint64_t bits = bits_at(data, rank, i);
    double size = i % (size_t)data->nranks == (size_t)rank ? (double)(1 + (bits >> 1) % 8) : 1;

    return bits & 1 ? -size : size;
}

static double float_of_rank(const struct ko_perf_data *data, int rank, size_t i)
{
    uint64_t bits = bits_at(data, rank, i);

    if (data->is_rough) {
        double size = 1 + (double)(bits >> 12) * 0x1p-52;

        return bits & 1 ? -size : size;
    }
    if (data->op == KOLO_PROD)
        return factor(data, rank, i);
    if (data->op == KOLO_MIN || data->op == KOLO_MAX)
        return whole(bits, exact_limit(data->dtype));
    return summand(data, rank, i);
}

static double join_floats(int op, double a, double b)
{
    switch (op) {
    case KOLO_PROD:
        return a * b;
    case KOLO_MIN:
        return b < a ? b : a;
    case KOLO_MAX:
        return b > a ? b : a;
    default:
        return a + b;
    }
}

static double float_at(const struct ko_perf_data *data, int rank, size_t i)
{
    double result;

    if (rank != KO_PERF_REDUCED)
        return float_of_rank(data, rank, i);
    result = weight(data, 0) * float_of_rank(data, 0, i);
    for (int r = 1; r < data->nranks; r++)
        result = join_floats(data->op, result, weight(data, r) * float_of_rank(data, r, i));
    if (data->op != KOLO_AVG)
        return result;
    /* the one quotient that is rounded, in the type that kolo divides in */
    return data->dtype == KOLO_FLOAT64 ? result / data->nranks
                                       : (double)((float)result / (float)data->nranks);
}

static uint64_t float_bits(kolo_dtype dtype, double value)
{
    uint64_t bits;

    switch (dtype) {
    case KOLO_FLOAT16:
        return ko_float16_of_float((float)value);
    case KOLO_BFLOAT16:
        return ko_bfloat16_of_float((float)value);
    case KOLO_FLOAT8_E4M3:
        return ko_float8_e4m3_of_float((float)value);
    case KOLO_FLOAT8_E5M2:
        return ko_float8_e5m2_of_float((float)value);
    case KOLO_FLOAT32:
        return ko_float_bits((float)value);
    default:
        memcpy(&bits, &value, sizeof bits);
        return bits;
    }
}

/* ---- patterns ---------------------------------------------------------------------------- */

static void put(unsigned char *at, size_t nbytes, uint64_t bits)
{
    const uint8_t one = (uint8_t)bits;
    const uint16_t two = (uint16_t)bits;
    const uint32_t four = (uint32_t)bits;

    memcpy(at,
           nbytes == 1   ? (const void *)&one
           : nbytes == 2 ? (const void *)&two
           : nbytes == 4 ? (const void *)&four
                         : (const void *)&bits,
           nbytes);
}

int ko_perf_pattern_new(const struct ko_perf_data *data, int rank, struct ko_perf_pattern **pattern)
{
    size_t nbytes = kolo_dtype_size(data->dtype), half = nbytes * PERIOD;
    struct ko_perf_pattern *made = ko_alloc(sizeof *made + 2 * half, "a pattern");

    if (!made)
        return KOLO_E_NOMEM;
    made->nbytes = nbytes;
    for (size_t i = 0; i < PERIOD; i++)
        put(made->bytes + i * nbytes, nbytes,
            ko_dtype_is_float(data->dtype) ? float_bits(data->dtype, float_at(data, rank, i))
                                           : integer_at(data, rank, i));
    memcpy(made->bytes + half, made->bytes, half);
    *pattern = made;
    return KOLO_OK;
}

/* Where element i is; *count is cut to the elements that follow it there. */
static const unsigned char *find(const struct ko_perf_pattern *pattern, size_t i, size_t *count)
{
    size_t within = i % PERIOD, shift = i / PERIOD % PERIOD;

    if (*count > PERIOD - within)
        *count = PERIOD - within;
    return pattern->bytes + (within + shift) * pattern->nbytes;
}

void ko_perf_pattern_fill(const struct ko_perf_pattern *pattern, void *buffer, size_t first,
                          size_t count)
{
    unsigned char *to = buffer;

    while (count > 0) {
        size_t n = count;
        const unsigned char *from = find(pattern, first, &n);

        memcpy(to, from, n * pattern->nbytes);
        to += n * pattern->nbytes;
        first += n;
        count -= n;
    }
}

size_t ko_perf_count_unequal(const void *a, const void *b, size_t count, size_t nbytes)
{
    const unsigned char *x = a, *y = b;
    size_t unequal = 0;

    if (!memcmp(x, y, count * nbytes))
        return 0;
    for (size_t i = 0; i < count; i++)
        unequal += memcmp(x + i * nbytes, y + i * nbytes, nbytes) != 0;
    return unequal;
}

size_t ko_perf_pattern_wrong(const struct ko_perf_pattern *pattern, const void *buffer,
                             size_t first, size_t count)
{
    const unsigned char *at = buffer;
    size_t wrong = 0;

    while (count > 0) {
        size_t n = count;
        const unsigned char *right = find(pattern, first, &n);

        wrong += ko_perf_count_unequal(at, right, n, pattern->nbytes);
        at += n * pattern->nbytes;
        first += n;
        count -= n;
    }
    return wrong;
}

void ko_perf_pattern_free(struct ko_perf_pattern *pattern)
{
    free(pattern);
}
