/* SPDX-License-Identifier: MIT
 *
 * reduce_loops.h: a text rather than a header: the loops of every (dtype, op) for one instruction
 * set. A file that includes it says which: TARGET is the attribute of its functions, HALF_LOOPS and
 * BYTE_LOOPS the loops of float16 and of 8-bit floats.
 */
#include "reduce_folds.h"

#include <assert.h>

/* ---- loops that are not folds ------------------------------------------------------------- */

/* out[i] = result, which is written in in[i]. */
#define CONVERT(name, to, from, result)                                \
    TARGET static void name(void *out_, const void *in_, size_t count) \
    {                                                                  \
        to *out = out_;                                                \
        const from *in = in_;                                          \
        EVERY out[i] = (to)(result);                                   \
    }

/* Averages: of a sum in place, and with the sum of two in one go. The inverse of a power of 2 is
 * exact, and faster than division. */
#define AVERAGE_EVERY(sum, times, over, store) \
    if (nranks & (nranks - 1))                 \
        EVERY out[i] = store(over(sum, n));    \
    else                                       \
        EVERY out[i] = store(times(sum, inverse));

#define DIVIDE_FLOAT(name, work)                                           \
    TARGET static void name##_divide(void *out_, size_t count, int nranks) \
    {                                                                      \
        name##_any *out = out_;                                            \
        const work n = (work)nranks, inverse = 1 / n;                      \
        AVERAGE_EVERY(out[i], TIMES, OVER, AS_IT_IS)                       \
    }
#define AVERAGE_FLOAT(name, element, work, load, store, plus, times, over)                        \
    TARGET static void name(void *out_, const void *a_, const void *b_, size_t count, int nranks) \
    {                                                                                             \
        element *out = out_;                                                                      \
        const element *a = a_, *b = b_;                                                           \
        const work n = (work)nranks, inverse = 1 / n;                                             \
        AVERAGE_EVERY(plus(load(a[i]), load(b[i])), times, over, store)                           \
    }
#define AVERAGE_WORDS_OF(many, name)                                                             \
    TARGET static void name##_average##many(void *out_, const void *const *parts, size_t count_, \
                                            int nranks)                                          \
    {                                                                                            \
        word_any *out = out_;                                                                    \
        const float n = (float)nranks, inverse = 1 / n;                                          \
        const size_t count = count_ / 2;                                                         \
        PARTS_##many(word_any) AVERAGE_EVERY(ALL_##many(pair_plus, pair_load), pair_times,       \
                                             pair_over, pair_store) if (count_ % 2)              \
            name##_odd(out_, parts, many, count_ - 1, n);                                        \
    }
#define AVERAGE_WORDS(name)   \
    AVERAGE_WORDS_OF(2, name) \
    AVERAGE_WORDS_OF(3, name) \
    AVERAGE_WORDS_OF(4, name) \
    AVERAGE_WORDS_OF(5, name) \
    AVERAGE_WORDS_OF(6, name) \
    AVERAGE_WORDS_OF(7, name) \
    AVERAGE_WORDS_OF(8, name)

#define AVERAGE_INTEGER(name, type, work, divisor)                                               \
    TARGET static void name##_divide(void *out_, size_t count, int nranks)                       \
    {                                                                                            \
        name##_any *out = out_;                                                                  \
        if (nranks == 1)                                                                         \
            return;                                                                              \
        const divisor by = divisor##_of(nranks);                                                 \
        EVERY out[i] = name##_quotient(out[i], by);                                              \
    }                                                                                            \
    TARGET static void name##_avg_last(void *out_, const void *a_, const void *b_, size_t count, \
                                       int nranks)                                               \
    {                                                                                            \
        name##_any *out = out_;                                                                  \
        const name##_any *a = a_, *b = b_;                                                       \
        assert(nranks > 1);                                                                      \
        const divisor by = divisor##_of(nranks);                                                 \
        EVERY out[i] = name##_quotient((type)((work)a[i] + (work)b[i]), by);                     \
    }

#define SCALE(name, type, work, factor_of, load)                                               \
    TARGET static void name##_scale(void *out_, const void *in_, size_t count, double factor_) \
    {                                                                                          \
        name##_any *out = out_;                                                                \
        const name##_any *in = in_;                                                            \
        const work factor = (work)factor_of(factor_);                                          \
        EVERY out[i] = (type)(load(in[i]) * factor);                                           \
    }

#define SCALE_WORDS(name)                                                                       \
    TARGET static void name##_scale(void *out_, const void *in_, size_t count_, double factor_) \
    {                                                                                           \
        word_any *out = out_;                                                                   \
        const word_any *in = in_;                                                               \
        const float factor = (float)factor_;                                                    \
        const size_t count = count_ / 2, odd = 2 * count;                                       \
        EVERY out[i] = pair_store(pair_times(pair_load(in[i]), factor));                        \
        if (odd < count_)                                                                       \
            ((name##_any *)out_)[odd] =                                                         \
                name##_store(name##_load(((const name##_any *)in_)[odd]) * factor);             \
    }

/* ---- the loops of each kind --------------------------------------------------------------- */

/* Signed and unsigned integers differ in min and max, averages and factors alone. */
#define UNSIGNED_LOOPS(name, type, work)                                \
    FOLDS_TO_EIGHT(name##_sum, name##_any, name##_load, AS_IT_IS, PLUS) \
    FOLDS_OF_TWO(name##_prod, name##_any, name##_load, AS_IT_IS, TIMES) \
    FOLDS(name##_min, name##_any, AS_IT_IS, AS_IT_IS, name##_smaller)   \
    FOLDS(name##_max, name##_any, AS_IT_IS, AS_IT_IS, name##_larger)    \
    AVERAGE_INTEGER(name, type, work, ko_##name##_divisor)              \
    SCALE(name, type, work, name##_of_double, (work))                   \
    FOLDS_OF_TWO(name##_band, name##_any, AS_IT_IS, AS_IT_IS, AND)      \
    FOLDS_OF_TWO(name##_bor, name##_any, AS_IT_IS, AS_IT_IS, OR)        \
    FOLDS_OF_TWO(name##_bxor, name##_any, AS_IT_IS, AS_IT_IS, XOR)
#define SIGNED_LOOPS(name, type, work)                                \
    FOLDS(name##_min, name##_any, AS_IT_IS, AS_IT_IS, name##_smaller) \
    FOLDS(name##_max, name##_any, AS_IT_IS, AS_IT_IS, name##_larger)  \
    AVERAGE_INTEGER(name, type, work, ko_u##name##_divisor)           \
    SCALE(name, type, work, name##_of_double, (work))
#define BOOL_LOOPS(name, type, work)                                \
    FOLDS_TO_EIGHT(name##_band, name##_any, IS_TRUE, AS_IT_IS, AND) \
    FOLDS_TO_EIGHT(name##_bor, name##_any, IS_TRUE, AS_IT_IS, OR)   \
    FOLDS_OF_TWO(name##_bxor, name##_any, IS_TRUE, AS_IT_IS, XOR)   \
    CONVERT(name##_truth, name##_any, name##_any, IS_TRUE(in[i]))   \
    SCALE(name, type, work, IS_TRUE, IS_TRUE)
#define EXTREME_LOOPS(name, type, work)                                     \
    FOLDS(name##_min, name##_bits, AS_IT_IS, AS_IT_IS, ko_##name##_smaller) \
    FOLDS(name##_max, name##_bits, AS_IT_IS, AS_IT_IS, ko_##name##_larger)
#define FLOAT_LOOPS(name, type, work)                                                       \
    EXTREME_LOOPS(name, type, work)                                                         \
    SCALE(name, type, work, AS_IT_IS, AS_IT_IS)                                             \
    DIVIDE_FLOAT(name, work)                                                                \
    AVERAGE_FLOAT(name##_avg_last, name##_any, work, AS_IT_IS, AS_IT_IS, PLUS, TIMES, OVER) \
    FOLDS_TO_EIGHT(name##_sum, name##_any, AS_IT_IS, AS_IT_IS, PLUS)                        \
    FOLDS_OF_TWO(name##_prod, name##_any, AS_IT_IS, AS_IT_IS, TIMES)
#define WIDEN_NARROW(name)                                             \
    CONVERT(name##_widen, float32_any, name##_any, name##_load(in[i])) \
    NARROW(name)
#define NARROW(name) CONVERT(name##_narrow, name##_any, float32_any, name##_store(in[i]))
#define SMALL_LOOPS(name, type, work) \
    EXTREME_LOOPS(name, type, work)   \
    WIDEN_NARROW(name)                \
    WORD_FOLDS(name)                  \
    SCALE_WORDS(name)                 \
    AVERAGE_WORDS(name)

#define LOOPS_OF(id, name, type, kind, work) kind##_LOOPS(name, type, work)
KO_DTYPE_LIST(LOOPS_OF)
