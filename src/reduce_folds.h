/* SPDX-License-Identifier: MIT
 *
 * reduce_folds.h: a text rather than a header: what reduce_loops.h makes loops of two and more
 * parts with, for the instruction set of TARGET.
 *
 * No two iterations depend on each other (see reduce.h on overlap); "omp simd" tells the compiler,
 * which would else test for overlap at run time and take its slow way when out is a.
 */
#include "reduce_blocks.h"
#include "reduce_elements.h"

#define EVERY _Pragma("omp simd") for (size_t i = 0; i < count; i++)

#define FOLD_TWO(name, element, load, store, combine)                                       \
    TARGET static void name##_two(void *out_, const void *a_, const void *b_, size_t count) \
    {                                                                                       \
        element *out = out_;                                                                \
        const element *a = a_, *b = b_;                                                     \
        EVERY out[i] = (element)store(combine(load(a[i]), load(b[i])));                     \
    }

/* n parts by their names, and what they combine to. */
#define PARTS_3(element) const element *a = parts[0], *b = parts[1], *c = parts[2];
#define PARTS_4(element) PARTS_3(element) const element *d = parts[3];
#define PARTS_5(element) PARTS_4(element) const element *e = parts[4];
#define PARTS_6(element) PARTS_5(element) const element *f = parts[5];
#define PARTS_7(element) PARTS_6(element) const element *g = parts[6];
#define PARTS_8(element) PARTS_7(element) const element *h = parts[7];
#define ALL_3(combine, load) combine(combine(load(a[i]), load(b[i])), load(c[i]))
#define ALL_4(combine, load) combine(ALL_3(combine, load), load(d[i]))
#define ALL_5(combine, load) combine(ALL_4(combine, load), load(e[i]))
#define ALL_6(combine, load) combine(ALL_5(combine, load), load(f[i]))
#define ALL_7(combine, load) combine(ALL_6(combine, load), load(g[i]))
#define ALL_8(combine, load) combine(ALL_7(combine, load), load(h[i]))

#define FOLD(n, name, element, load, store, combine)                                    \
    TARGET static void name##_of##n(void *out_, const void *const *parts, size_t count) \
    {                                                                                   \
        element *out = out_;                                                            \
        PARTS_##n(element) EVERY out[i] = (element)store(ALL_##n(combine, load));       \
    }

/* As many at once as it pays for: sums come in any number, maxima of few, the rest by two. */
#define FOLDS_OF_TWO(name, ...) \
    FOLD_TWO(name, __VA_ARGS__) \
    static const struct ko_folds name##_folds = {.two = name##_two};
#define FOLDS(name, ...)        \
    FOLD_TWO(name, __VA_ARGS__) \
    FOLD(3, name, __VA_ARGS__)  \
    FOLD(4, name, __VA_ARGS__)  \
    static const struct ko_folds name##_folds = {name##_two, {[3] = name##_of3, name##_of4}};
#define FOLDS_TO_EIGHT(name, ...)                 \
    FOLD_TWO(name, __VA_ARGS__)                   \
    FOLD(3, name, __VA_ARGS__)                    \
    FOLD(4, name, __VA_ARGS__)                    \
    FOLD(8, name, __VA_ARGS__)                    \
    static const struct ko_folds name##_folds = { \
        name##_two, {[3] = name##_of3, name##_of4, [8] = name##_of8}};

/* Sums of a float that is the upper half of a float32: two at a time, as halves of a word, which
 * spares widening and narrowing; then the odd one. */
#define WORD_FOLD(n, name)                                                                 \
    TARGET static void name##_sum_of##n(void *out, const void *const *parts, size_t count) \
    {                                                                                      \
        name##_words_of##n(out, parts, count / 2);                                         \
        if (count % 2)                                                                     \
            name##_odd(out, parts, n, count - 1, 1);                                       \
    }
#define WORD_FOLDS(name)                                                                     \
    FOLD_TWO(name##_words, word_any, pair_load, pair_store, pair_plus)                       \
    FOLD(3, name##_words, word_any, pair_load, pair_store, pair_plus)                        \
    FOLD(4, name##_words, word_any, pair_load, pair_store, pair_plus)                        \
    FOLD(5, name##_words, word_any, pair_load, pair_store, pair_plus)                        \
    FOLD(6, name##_words, word_any, pair_load, pair_store, pair_plus)                        \
    FOLD(7, name##_words, word_any, pair_load, pair_store, pair_plus)                        \
    FOLD(8, name##_words, word_any, pair_load, pair_store, pair_plus)                        \
    static void name##_odd(void *out_, const void *const *parts, int n, size_t at, float by) \
    {                                                                                        \
        name##_any *out = out_;                                                              \
        float sum = name##_load(((const name##_any *)parts[0])[at]);                         \
        for (int i = 1; i < n; i++)                                                          \
            sum += name##_load(((const name##_any *)parts[i])[at]);                          \
        out[at] = name##_store(sum / by);                                                    \
    }                                                                                        \
    TARGET static void name##_sum_two(void *out, const void *a, const void *b, size_t count) \
    {                                                                                        \
        name##_words_two(out, a, b, count / 2);                                              \
        if (count % 2)                                                                       \
            name##_odd(out, (const void *const[]){a, b}, 2, count - 1, 1);                   \
    }                                                                                        \
    WORD_FOLD(3, name)                                                                       \
    WORD_FOLD(4, name)                                                                       \
    WORD_FOLD(5, name)                                                                       \
    WORD_FOLD(6, name)                                                                       \
    WORD_FOLD(7, name)                                                                       \
    WORD_FOLD(8, name)                                                                       \
    static const struct ko_folds name##_sum_folds = SUMS_TO_EIGHT(name##_sum);
