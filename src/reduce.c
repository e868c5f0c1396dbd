/* SPDX-License-Identifier: MIT
 *
 * Every (dtype, op) has a loop of its own, made from the lists of dtype.h: the SIGNED, UNSIGNED and
 * FLOAT macros say which loops a dtype of that kind gets. No two iterations of a loop depend on
 * each other (see reduce.h on overlap); "omp simd" tells the compiler, which would else test for
 * overlap at run time and take its slow way when out is a. All of it is instantiated once per
 * instruction set: wide ones double the speed within the caches, and five-fold that of bfloat16.
 */
#include "reduce.h"

#include "dtype.h"
#include "reduce_f16c.h"
#include "status.h"

#include <string.h>

/* ---- elements: name_any at any address; name_load and name_store between it and arithmetic --- */

#define ANY_ALIGNMENT(id, name, type, kind, work) \
    typedef type name##_any __attribute__((aligned(1), may_alias));
KO_DTYPE_LIST(ANY_ALIGNMENT)

static inline float float16_load(uint16_t element)
{
    return ko_float_of_float16(element);
}

static inline uint16_t float16_store(float value)
{
    return ko_float16_of_float(value);
}

static inline float bfloat16_load(uint16_t element)
{
    return ko_float_of_bfloat16(element);
}

static inline uint16_t bfloat16_store(float value)
{
    return ko_bfloat16_of_float(value);
}

static inline float float32_load(float element)
{
    return element;
}

static inline float float32_store(float value)
{
    return value;
}

static inline double float64_load(double element)
{
    return element;
}

static inline double float64_store(double value)
{
    return value;
}

/* ---- min and max of floats, on their bits ---------------------------------------------------- */

/* X(dtype, its bits as a signed integer, the bits of infinity). With the magnitude of negative
 * floats inverted these order as the floats do, -0 before +0. A NaN's magnitude is beyond
 * infinity's; NaNs win. This also spares 16-bit floats the way to float32 and back. */
/* clang-format off */
#define FLOAT_BITS_LIST(X) \
    X(float16, int16_t, 0x7c00) \
    X(bfloat16, int16_t, 0x7f80) \
    X(float32, int32_t, 0x7f800000) \
    X(float64, int64_t, 0x7ff0000000000000)
/* clang-format on */

#define FLOAT_BITS(name, type, infinity)                                     \
    typedef type name##_bits __attribute__((aligned(1), may_alias));         \
    static inline int name##_is_nan(type x)                                  \
    {                                                                        \
        return (x & (infinity | (infinity - 1))) > infinity;                 \
    }                                                                        \
    static inline type name##_order(type x)                                  \
    {                                                                        \
        return x < 0 ? (type)(x ^ (infinity | (infinity - 1))) : x;          \
    }                                                                        \
    static inline type name##_smaller(type x, type y)                        \
    {                                                                        \
        int take_y = name##_is_nan(y) | (name##_order(y) < name##_order(x)); \
        return (take_y & !name##_is_nan(x)) ? y : x;                         \
    }                                                                        \
    static inline type name##_larger(type x, type y)                         \
    {                                                                        \
        int take_y = name##_is_nan(y) | (name##_order(y) > name##_order(x)); \
        return (take_y & !name##_is_nan(x)) ? y : x;                         \
    }
FLOAT_BITS_LIST(FLOAT_BITS)

/* ---- the loops ------------------------------------------------------------------------------- */

/* AT(name) and TARGET are those of the instruction set that is being instantiated. */

/* out[i] = result, which is written in a[i] and b[i]. */
#define LOOP(name, element, result)                                                        \
    TARGET static void AT(name)(void *out_, const void *a_, const void *b_, size_t count)  \
    {                                                                                      \
        element *out = out_;                                                               \
        const element *a = a_;                                                             \
        const element *b = b_;                                                             \
        _Pragma("omp simd") for (size_t i = 0; i < count; i++) out[i] = (element)(result); \
    }

/* The same as a last step: result may use nranks. */
#define LAST_LOOP(name, element, result)                                                   \
    TARGET static void AT(name)(void *out_, const void *a_, const void *b_, size_t count,  \
                                int nranks)                                                \
    {                                                                                      \
        element *out = out_;                                                               \
        const element *a = a_;                                                             \
        const element *b = b_;                                                             \
        _Pragma("omp simd") for (size_t i = 0; i < count; i++) out[i] = (element)(result); \
    }

/* A last step that is like every other. */
#define LAST_IS_STEP(name)                                                                         \
    static void AT(name##_last)(void *out, const void *a, const void *b, size_t count, int nranks) \
    {                                                                                              \
        (void)nranks;                                                                              \
        AT(name)(out, a, b, count);                                                                \
    }

#define STEP_LOOP(name, element, result) \
    LOOP(name, element, result)          \
    LAST_IS_STEP(name)

#define INTEGER_LOOPS(name, type, work, average)                        \
    STEP_LOOP(name##_sum, name##_any, (type)((work)a[i] + (work)b[i]))  \
    STEP_LOOP(name##_prod, name##_any, (type)((work)a[i] * (work)b[i])) \
    STEP_LOOP(name##_min, name##_any, b[i] < a[i] ? b[i] : a[i])        \
    STEP_LOOP(name##_max, name##_any, b[i] > a[i] ? b[i] : a[i])        \
    STEP_LOOP(name##_band, name##_any, a[i] & b[i])                     \
    STEP_LOOP(name##_bor, name##_any, a[i] | b[i])                      \
    STEP_LOOP(name##_bxor, name##_any, a[i] ^ b[i])                     \
    LAST_LOOP(name##_avg_last, name##_any,                              \
              (average)(type)((work)a[i] + (work)b[i]) / (average)nranks)

#define SIGNED_LOOPS(name, type, work) INTEGER_LOOPS(name, type, work, int64_t)
#define UNSIGNED_LOOPS(name, type, work) INTEGER_LOOPS(name, type, work, uint64_t)

#define FLOAT_LOOPS(name, type, work)                                                       \
    STEP_LOOP(name##_sum, name##_any, name##_store(name##_load(a[i]) + name##_load(b[i])))  \
    STEP_LOOP(name##_prod, name##_any, name##_store(name##_load(a[i]) * name##_load(b[i]))) \
    STEP_LOOP(name##_min, name##_bits, name##_smaller(a[i], b[i]))                          \
    STEP_LOOP(name##_max, name##_bits, name##_larger(a[i], b[i]))                           \
    LAST_LOOP(name##_avg_last, name##_any,                                                  \
              name##_store((name##_load(a[i]) + name##_load(b[i])) / (work)nranks))

#define LOOPS_OF(id, name, type, kind, work) kind##_LOOPS(name, type, work)

/* ---- the table of one instruction set -------------------------------------------------------- */

#define STEP_ROW(name)            \
    {                             \
        AT(name), AT(name##_last) \
    }
#define FLOAT_ROW(name)                                                     \
    [KOLO_SUM] = STEP_ROW(name##_sum), [KOLO_PROD] = STEP_ROW(name##_prod), \
    [KOLO_MIN] = STEP_ROW(name##_min), [KOLO_MAX] = STEP_ROW(name##_max),   \
    [KOLO_AVG] = {AT(name##_sum), AT(name##_avg_last)}
#define INTEGER_ROW(name)                                                                    \
    FLOAT_ROW(name), [KOLO_BAND] = STEP_ROW(name##_band), [KOLO_BOR] = STEP_ROW(name##_bor), \
                     [KOLO_BXOR] = STEP_ROW(name##_bxor)
#define SIGNED_ROW INTEGER_ROW
#define UNSIGNED_ROW INTEGER_ROW

#define ROW_OF(id, name, type, kind, work) [KOLO_##id] = {kind##_ROW(name)},

typedef const struct ko_reduction reduction_table[KOLO_NDTYPES][KOLO_NOPS];

/* ---- the instruction sets: the compiler's default, then what a machine may have -------------- */

#define AT(name) name##_plain
#define TARGET
KO_DTYPE_LIST(LOOPS_OF)
static reduction_table plain = {KO_DTYPE_LIST(ROW_OF)};

#if defined(__x86_64__)
#undef AT
#undef TARGET
#define AT(name) name##_avx2
#define TARGET __attribute__((target("avx2")))
KO_DTYPE_LIST(LOOPS_OF)
static reduction_table avx2 = {KO_DTYPE_LIST(ROW_OF)};

#undef AT
#undef TARGET
#define AT(name) name##_avx512
#define TARGET __attribute__((target("avx2,avx512f,avx512bw,avx512dq,avx512vl")))
KO_DTYPE_LIST(LOOPS_OF)
static reduction_table avx512 = {KO_DTYPE_LIST(ROW_OF)};
#endif

struct level {
    const char *name;
    reduction_table *reductions;
};

static const struct level levels[] = {
    {"plain", &plain},
#if defined(__x86_64__)
    {"avx2", &avx2},
    {"avx512", &avx512},
#endif
};

int ko_reduction_nlevels(void)
{
#if defined(__x86_64__)
    if (!__builtin_cpu_supports("avx2"))
        return 1;
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                   __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")
               ? 3
               : 2;
#else
    return 1;
#endif
}

const char *ko_reduction_level_name(int level)
{
    return levels[level].name;
}

int ko_reduction_find_at(int level, kolo_dtype dtype, kolo_op op, struct ko_reduction *reduction)
{
    if (!ko_dtype_is_valid(dtype))
        return ko_fail(KOLO_E_INVALID, "%d is no dtype; enum kolo_dtype lists them", (int)dtype);
    if (!ko_op_is_valid(op))
        return ko_fail(KOLO_E_INVALID, "%d is no reduction; enum kolo_op lists them", (int)op);
    if (!(*levels[level].reductions)[dtype][op].step)
        return ko_fail(KOLO_E_UNSUPPORTED, "%s is for integers, not for %s", kolo_op_name(op),
                       kolo_dtype_name(dtype));
    if (level > 0 && dtype == KOLO_FLOAT16 && ko_reduction_find_f16c(op, reduction))
        return KOLO_OK;
    *reduction = (*levels[level].reductions)[dtype][op];
    return KOLO_OK;
}

int ko_reduction_find(kolo_dtype dtype, kolo_op op, struct ko_reduction *reduction)
{
    return ko_reduction_find_at(ko_reduction_nlevels() - 1, dtype, op, reduction);
}

int ko_reduce_single(kolo_dtype dtype, kolo_op op, void *out, const void *in, size_t count)
{
    struct ko_reduction unused;
    int err = ko_reduction_find(dtype, op, &unused);

    if (!err && out != in && count)
        memcpy(out, in, count * kolo_dtype_size(dtype));
    return err;
}
