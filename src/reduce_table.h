/* SPDX-License-Identifier: MIT
 *
 * reduce_table.h: a text rather than a header: what reduce_loops.h, included before it, has made,
 * put together to reductions, and their table, by the name of TABLE. HALF_REDUCTIONS says which
 * float16 gets.
 */
#include "dtype.h"
#include "reduce_levels.h"

/* ---- the reductions -------------------------------------------------------------------------- */

/* name_many, by kernels. */
#define MANY(name, ...)                                                                          \
    static const struct ko_kernels name##_kernels = {__VA_ARGS__};                               \
    static void name##_many(void *out, const void *const *parts, int nparts, size_t count,       \
                            int nranks)                                                          \
    {                                                                                            \
        ko_reduce_parts(&name##_kernels, out, &(struct ko_parts){parts, nparts, count, nranks}); \
    }

/* A last step that is like every other. */
#define LAST_IS_STEP(name)                                                                     \
    static void name##_last(void *out, const void *a, const void *b, size_t count, int nranks) \
    {                                                                                          \
        (void)nranks;                                                                          \
        name##_two(out, a, b, count);                                                          \
    }
#define STEP_IS_MANY(name)                                                        \
    static void name##_two(void *out, const void *a, const void *b, size_t count) \
    {                                                                             \
        name##_many(out, (const void *const[]){a, b}, 2, count, 1);               \
    }
#define LAST_IS_MANY(name)                                                                     \
    static void name##_last(void *out, const void *a, const void *b, size_t count, int nranks) \
    {                                                                                          \
        name##_many(out, (const void *const[]){a, b}, 2, count, nranks);                       \
    }

/* Without a detour through a wider type. */
#define EXACT(name, type)                                                             \
    MANY(name, .nbytes = sizeof(type), .nwide = sizeof(type), .folds = &name##_folds, \
         .direct = &name##_folds)                                                     \
    LAST_IS_STEP(name)
#define EXACT_AVG(name, type, sum)                                                         \
    MANY(name##_avg, .nbytes = sizeof(type), .nwide = sizeof(type), .folds = &sum##_folds, \
         .divide = name##_divide)
/* A part that is alone has no other to make it 0 or 1. */
#define TRUTH(name)                                                                                \
    MANY(name##_several, .nbytes = 1, .nwide = 1, .folds = &name##_folds, .direct = &name##_folds) \
    static void name##_many(void *out, const void *const *parts, int nparts, size_t count,         \
                            int nranks)                                                            \
    {                                                                                              \
        if (nparts == 1)                                                                           \
            bool_truth(out, parts[0], count);                                                      \
        else                                                                                       \
            name##_several_many(out, parts, nparts, count, nranks);                                \
    }                                                                                              \
    LAST_IS_STEP(name)
/* In float32; by loops of its own for few parts, or never. */
#define DIRECT_SUM(name, type)                                                                    \
    MANY(name##_sum, .nbytes = sizeof(type), .nwide = sizeof(float), .folds = &float32_sum_folds, \
         .direct = &name##_sum_folds, .widen = name##_widen, .narrow = name##_narrow)             \
    LAST_IS_STEP(name##_sum)
#define WIDE(name, type, op)                                                             \
    MANY(name##_##op, .nbytes = sizeof(type), .nwide = sizeof(float),                    \
         .folds = &float32_##op##_folds, .widen = name##_widen, .narrow = name##_narrow) \
    STEP_IS_MANY(name##_##op)                                                            \
    LAST_IS_STEP(name##_##op)                                                            \
    static const struct ko_folds name##_##op##_folds = {.two = name##_##op##_two};
#define WIDE_SCALE(name)                                                             \
    static void name##_scale(void *out, const void *in, size_t count, double factor) \
    {                                                                                \
        ko_scale_wide(&name##_sum_kernels, float32_scale, out, in, count, factor);   \
    }
#define WIDE_AVG(name, type)                                                                      \
    MANY(name##_avg, .nbytes = sizeof(type), .nwide = sizeof(float), .folds = &float32_sum_folds, \
         .widen = name##_widen, .narrow = name##_narrow, .divide = float32_divide)
#define DIRECT_AVG(name, type)                                                                    \
    static const ko_average_fn name##_averages[] = AVERAGES_TO_EIGHT(name##_average);             \
    MANY(name##_avg, .nbytes = sizeof(type), .nwide = sizeof(float), .folds = &float32_sum_folds, \
         .widen = name##_widen, .narrow = name##_narrow, .divide = float32_divide,                \
         .averages = name##_averages)                                                             \
    LAST_IS_MANY(name##_avg)

#define SIGNED_REDUCTIONS(name, type) \
    EXACT(name##_min, type)           \
    EXACT(name##_max, type)           \
    EXACT_AVG(name, type, u##name##_sum)
#define UNSIGNED_REDUCTIONS(name, type) \
    EXACT(name##_min, type)             \
    EXACT(name##_max, type)             \
    EXACT_AVG(name, type, name##_sum)   \
    EXACT(name##_sum, type)             \
    EXACT(name##_prod, type)            \
    EXACT(name##_band, type)            \
    EXACT(name##_bor, type)             \
    EXACT(name##_bxor, type)
#define BOOL_REDUCTIONS(name, type) \
    TRUTH(name##_band)              \
    TRUTH(name##_bor)               \
    TRUTH(name##_bxor)
#define FLOAT_REDUCTIONS(name, type)  \
    EXACT(name##_min, type)           \
    EXACT(name##_max, type)           \
    EXACT_AVG(name, type, name##_sum) \
    EXACT(name##_sum, type)           \
    EXACT(name##_prod, type)
#define SMALL_REDUCTIONS(name, type) \
    EXACT(name##_min, type)          \
    EXACT(name##_max, type)          \
    DIRECT_AVG(name, type)           \
    DIRECT_SUM(name, type)           \
    WIDE(name, type, prod)
#define BYTE_REDUCTIONS(name, type) \
    EXACT(name##_min, type)         \
    EXACT(name##_max, type)         \
    WIDE_AVG(name, type)            \
    LAST_IS_MANY(name##_avg)        \
    WIDE(name, type, sum)           \
    WIDE_SCALE(name)                \
    WIDE(name, type, prod)

#define REDUCTIONS_OF(id, name, type, kind, work) kind##_REDUCTIONS(name, type)
KO_DTYPE_LIST(REDUCTIONS_OF)

/* ---- the table ------------------------------------------------------------------------------- */

#define STEP_ROW(name, like)                                                                  \
    {                                                                                         \
        sizeof(name##_any), like##_two, like##_last, like##_many, name##_scale, &like##_folds \
    }
#define AVG_ROW(name, sum)                                                                  \
    {                                                                                       \
        sizeof(name##_any), sum##_two, name##_avg_last, name##_avg_many, name##_scale, NULL \
    }
/* clang-format off */
#define ARITHMETIC(name, base) \
    [KOLO_SUM] = STEP_ROW(name, base##_sum), [KOLO_PROD] = STEP_ROW(name, base##_prod), \
    [KOLO_MIN] = STEP_ROW(name, name##_min), [KOLO_MAX] = STEP_ROW(name, name##_max), \
    [KOLO_AVG] = AVG_ROW(name, base##_sum)
#define BITWISE(name, base) \
    [KOLO_BAND] = STEP_ROW(name, base##_band), [KOLO_BOR] = STEP_ROW(name, base##_bor), \
    [KOLO_BXOR] = STEP_ROW(name, base##_bxor)
#define BOOL_ROW(name) \
    [KOLO_SUM] = STEP_ROW(name, name##_bor), [KOLO_PROD] = STEP_ROW(name, name##_band), \
    [KOLO_MIN] = STEP_ROW(name, name##_band), [KOLO_MAX] = STEP_ROW(name, name##_bor), \
    BITWISE(name, name)
/* clang-format on */
#define SIGNED_ROW(name) ARITHMETIC(name, u##name), BITWISE(name, u##name)
#define UNSIGNED_ROW(name) ARITHMETIC(name, name), BITWISE(name, name)
#define FLOAT_ROW(name) ARITHMETIC(name, name)
#define HALF_ROW(name) ARITHMETIC(name, name)
#define SMALL_ROW(name) ARITHMETIC(name, name)
#define BYTE_ROW(name) ARITHMETIC(name, name)

#define ROW_OF(id, name, type, kind, work) [KOLO_##id] = {kind##_ROW(name)},

const ko_reduction_table TABLE = {KO_DTYPE_LIST(ROW_OF)};
