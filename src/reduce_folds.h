/* SPDX-License-Identifier: MIT
 *
 * reduce_folds.h: a text rather than a header: what reduce_loops.h makes loops of two and more
 * parts with, for the instruction set of TARGET.
 *
 * No two iterations depend on each other (see reduce.h on overlap); "omp simd" tells the compiler,
 * which would else test for overlap at run time and take its slow way when out is a. stream_line,
 * of the file that includes this, writes a line around the caches.
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
#define PARTS_2(element) const element *a = parts[0], *b = parts[1];
#define PARTS_3(element) PARTS_2(element) const element *c = parts[2];
#define PARTS_4(element) PARTS_3(element) const element *d = parts[3];
#define PARTS_5(element) PARTS_4(element) const element *e = parts[4];
#define PARTS_6(element) PARTS_5(element) const element *f = parts[5];
#define PARTS_7(element) PARTS_6(element) const element *g = parts[6];
#define PARTS_8(element) PARTS_7(element) const element *h = parts[7];
#define ALL_2(combine, load) combine(load(a[i]), load(b[i]))
#define ALL_3(combine, load) combine(ALL_2(combine, load), load(c[i]))
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

/* A line leaves the registers for each of outs as soon as it is made. */
#define NEXT_2 a += IN_LINE, b += IN_LINE
#define NEXT_3 NEXT_2, c += IN_LINE
#define NEXT_4 NEXT_3, d += IN_LINE
#define NEXT_5 NEXT_4, e += IN_LINE
#define NEXT_6 NEXT_5, f += IN_LINE
#define NEXT_7 NEXT_6, g += IN_LINE
#define NEXT_8 NEXT_7, h += IN_LINE
#define STREAM(n, name, element, load, store, combine)                                          \
    TARGET static void name##_stream##n(void *const *outs, int nouts, const void *const *parts, \
                                        size_t nlines)                                          \
    {                                                                                           \
        enum { IN_LINE = KO_STREAMED_LINE / sizeof(element), count = IN_LINE };                 \
        _Alignas(KO_STREAMED_LINE) element line[IN_LINE];                                       \
        PARTS_##n(element) for (size_t at = 0; at < nlines; at++, NEXT_##n)                     \
        {                                                                                       \
            EVERY line[i] = (element)store(ALL_##n(combine, load));                             \
            for (int k = 0; k < nouts; k++)                                                     \
                stream_line((char *)outs[k] + at * KO_STREAMED_LINE, line);                     \
        }                                                                                       \
    }

/* As many at once as it pays for: sums come in any number, maxima of few, the rest by two. */
#define FOLDS_OF_TWO(name, ...)                                     \
    FOLD_TWO(name, __VA_ARGS__)                                     \
    STREAM(2, name, __VA_ARGS__)                                    \
    static const struct ko_folds name##_folds = {.two = name##_two, \
                                                 .streams = {[2] = name##_stream2}};
#define FOLDS(name, ...)                          \
    FOLD_TWO(name, __VA_ARGS__)                   \
    FOLD(3, name, __VA_ARGS__)                    \
    FOLD(4, name, __VA_ARGS__)                    \
    STREAM(2, name, __VA_ARGS__)                  \
    STREAM(3, name, __VA_ARGS__)                  \
    STREAM(4, name, __VA_ARGS__)                  \
    static const struct ko_folds name##_folds = { \
        name##_two,                               \
        {[3] = name##_of3, name##_of4},           \
        {[2] = name##_stream2, name##_stream3, name##_stream4}};
#define FOLDS_TO_EIGHT(name, ...)                         \
    FOLD_TWO(name, __VA_ARGS__)                           \
    FOLD(3, name, __VA_ARGS__)                            \
    FOLD(4, name, __VA_ARGS__)                            \
    FOLD(8, name, __VA_ARGS__)                            \
    STREAM(2, name, __VA_ARGS__)                          \
    STREAM(3, name, __VA_ARGS__)                          \
    STREAM(4, name, __VA_ARGS__)                          \
    STREAM(8, name, __VA_ARGS__)                          \
    static const struct ko_folds name##_folds = {         \
        name##_two,                                       \
        {[3] = name##_of3, name##_of4, [8] = name##_of8}, \
        {[2] = name##_stream2, name##_stream3, name##_stream4, [8] = name##_stream8}};

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
    STREAM(2, name##_sum, word_any, pair_load, pair_store, pair_plus)                        \
    STREAM(3, name##_sum, word_any, pair_load, pair_store, pair_plus)                        \
    STREAM(4, name##_sum, word_any, pair_load, pair_store, pair_plus)                        \
    STREAM(5, name##_sum, word_any, pair_load, pair_store, pair_plus)                        \
    STREAM(6, name##_sum, word_any, pair_load, pair_store, pair_plus)                        \
    STREAM(7, name##_sum, word_any, pair_load, pair_store, pair_plus)                        \
    STREAM(8, name##_sum, word_any, pair_load, pair_store, pair_plus)                        \
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
