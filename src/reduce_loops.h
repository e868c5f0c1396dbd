/* SPDX-License-Identifier: MIT
 *
 * reduce_loops.h: a text rather than a header: the loops of every (dtype, op) for one instruction
 * set. A file that includes it says which: TARGET is the attribute of its functions, HALF_LOOPS the
 * loops of float16.
 *
 * No two iterations depend on each other (see reduce.h on overlap); "omp simd" tells the compiler,
 * which would else test for overlap at run time and take its slow way when out is a.
 */
#include "reduce_blocks.h"
#include "reduce_elements.h"

/* ---- the loops ------------------------------------------------------------------------------- */

#define EVERY _Pragma("omp simd") for (size_t i = 0; i < count; i++)

#define FOLD_TWO(name, element, load, store, combine)                                       \
    TARGET static void name##_two(void *out_, const void *a_, const void *b_, size_t count) \
    {                                                                                       \
        element *out = out_;                                                                \
        const element *a = a_, *b = b_;                                                     \
        EVERY out[i] = (element)store(combine(load(a[i]), load(b[i])));                     \
    }

#define FOLD_MORE(name, element, load, store, combine)                                          \
    TARGET static void name##_three(void *out_, const void *a_, const void *b_, const void *c_, \
                                    size_t count)                                               \
    {                                                                                           \
        element *out = out_;                                                                    \
        const element *a = a_, *b = b_, *c = c_;                                                \
        EVERY out[i] = (element)store(combine(combine(load(a[i]), load(b[i])), load(c[i])));    \
    }                                                                                           \
    TARGET static void name##_four(void *out_, const void *a_, const void *b_, const void *c_,  \
                                   const void *d_, size_t count)                                \
    {                                                                                           \
        element *out = out_;                                                                    \
        const element *a = a_, *b = b_, *c = c_, *d = d_;                                       \
        EVERY out[i] = (element)store(                                                          \
            combine(combine(combine(load(a[i]), load(b[i])), load(c[i])), load(d[i])));         \
    }

#define FOLDS_OF_TWO(name, ...) \
    FOLD_TWO(name, __VA_ARGS__) \
    static const struct ko_folds name##_folds = {name##_two, NULL, NULL};

#define FOLDS(name, ...)         \
    FOLD_TWO(name, __VA_ARGS__)  \
    FOLD_MORE(name, __VA_ARGS__) \
    static const struct ko_folds name##_folds = {name##_two, name##_three, name##_four};

/* out[i] = result, which is written in in[i]. */
#define CONVERT(name, to, from, result)                                \
    TARGET static void name(void *out_, const void *in_, size_t count) \
    {                                                                  \
        to *out = out_;                                                \
        const from *in = in_;                                          \
        EVERY out[i] = (to)(result);                                   \
    }

/* By nranks. Where that is a power of 2, its inverse is exact, and faster. */
#define DIVIDE_FLOAT(name, work)                                           \
    TARGET static void name##_divide(void *out_, size_t count, int nranks) \
    {                                                                      \
        name##_any *out = out_;                                            \
        const work n = (work)nranks, inverse = 1 / n;                      \
        if (nranks & (nranks - 1))                                         \
            EVERY out[i] = out[i] / n;                                     \
        else                                                               \
            EVERY out[i] = out[i] * inverse;                               \
    }

#define DIVIDE_INTEGER(name, divisor)                                      \
    TARGET static void name##_divide(void *out_, size_t count, int nranks) \
    {                                                                      \
        name##_any *out = out_;                                            \
        if (nranks == 1)                                                   \
            return;                                                        \
        const divisor by = divisor##_of(nranks);                           \
        EVERY out[i] = name##_quotient(out[i], by);                        \
    }

#define SCALE(name, type, work, factor_of, load)                                               \
    TARGET static void name##_scale(void *out_, const void *in_, size_t count, double factor_) \
    {                                                                                          \
        name##_any *out = out_;                                                                \
        const name##_any *in = in_;                                                            \
        const work factor = (work)factor_of(factor_);                                          \
        EVERY out[i] = (type)(load(in[i]) * factor);                                           \
    }

/* Signed and unsigned integers differ in min and max and average alone. */
#define SIGNED_LOOPS(name, type, work)                                \
    FOLDS(name##_min, name##_any, AS_IT_IS, AS_IT_IS, name##_smaller) \
    FOLDS(name##_max, name##_any, AS_IT_IS, AS_IT_IS, name##_larger)  \
    DIVIDE_INTEGER(name, ko_u##name##_divisor)                        \
    SCALE(name, type, work, name##_of_double, (work))
#define UNSIGNED_LOOPS(name, type, work)                                \
    FOLDS(name##_min, name##_any, AS_IT_IS, AS_IT_IS, name##_smaller)   \
    FOLDS(name##_max, name##_any, AS_IT_IS, AS_IT_IS, name##_larger)    \
    SCALE(name, type, work, name##_of_double, (work))                   \
    DIVIDE_INTEGER(name, ko_##name##_divisor)                           \
    FOLDS(name##_sum, name##_any, name##_load, AS_IT_IS, PLUS)          \
    FOLDS_OF_TWO(name##_prod, name##_any, name##_load, AS_IT_IS, TIMES) \
    FOLDS_OF_TWO(name##_band, name##_any, AS_IT_IS, AS_IT_IS, AND)      \
    FOLDS_OF_TWO(name##_bor, name##_any, AS_IT_IS, AS_IT_IS, OR)        \
    FOLDS_OF_TWO(name##_bxor, name##_any, AS_IT_IS, AS_IT_IS, XOR)
#define BOOL_LOOPS(name, type, work)                              \
    FOLDS(name##_band, name##_any, IS_TRUE, AS_IT_IS, AND)        \
    FOLDS(name##_bor, name##_any, IS_TRUE, AS_IT_IS, OR)          \
    FOLDS_OF_TWO(name##_bxor, name##_any, IS_TRUE, AS_IT_IS, XOR) \
    CONVERT(name##_widen, name##_any, name##_any, IS_TRUE(in[i])) \
    SCALE(name, type, work, IS_TRUE, IS_TRUE)
#define EXTREME_LOOPS(name, type, work)                                \
    FOLDS(name##_min, name##_bits, AS_IT_IS, AS_IT_IS, name##_smaller) \
    FOLDS(name##_max, name##_bits, AS_IT_IS, AS_IT_IS, name##_larger)
#define FLOAT_LOOPS(name, type, work)                       \
    EXTREME_LOOPS(name, type, work)                         \
    SCALE(name, type, work, AS_IT_IS, AS_IT_IS)             \
    DIVIDE_FLOAT(name, work)                                \
    FOLDS(name##_sum, name##_any, AS_IT_IS, AS_IT_IS, PLUS) \
    FOLDS_OF_TWO(name##_prod, name##_any, AS_IT_IS, AS_IT_IS, TIMES)
#define BYTE_LOOPS(name, type, work)                                   \
    EXTREME_LOOPS(name, type, work)                                    \
    CONVERT(name##_widen, float32_any, name##_any, name##_load(in[i])) \
    CONVERT(name##_narrow, name##_any, float32_any, name##_store(in[i]))
#define SMALL_LOOPS(name, type, work) \
    BYTE_LOOPS(name, type, work)      \
    FOLDS(name##_sum, name##_any, name##_load, name##_store, PLUS)

#define LOOPS_OF(id, name, type, kind, work) kind##_LOOPS(name, type, work)
KO_DTYPE_LIST(LOOPS_OF)
