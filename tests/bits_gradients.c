/* SPDX-License-Identifier: MIT
 *
 * The host has no sum of what is rounded, nor one with a step in it: it casts, sums, casts back and
 * takes the step of one gradient then, which has to come to the same.
 */
#include "bits.h"
#include "gpu_rank.h"
#include "gradients.h"
#include "ranks.h"
#include "reduce.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_PARTS = 8, MOST_OUTS = 4, MOST_TENSORS = KO_FOLD_MOST };

static const kolo_dtype dtypes[] = {KOLO_FLOAT32, KOLO_FLOAT16, KOLO_BFLOAT16};

static unsigned below(unsigned n, unsigned *seed)
{
    return (unsigned)rand_r(seed) % n;
}

static size_t some_count(size_t least, size_t most, unsigned *seed)
{
    if (least)
        return least + below((unsigned)(most - least) + 1, seed);
    return below(4, seed) ? below((unsigned)most + 1, seed) : below(20, seed);
}

static void *allocate(size_t nbytes)
{
    void *memory = malloc(nbytes + 1);

    if (!memory)
        abort();
    return memory;
}

/* Bytes to an array of whole elements that are no whole packs. */
static size_t some_shift(kolo_dtype dtype, unsigned *seed)
{
    return below(9, seed) * kolo_dtype_size(dtype);
}

static float some_factor(unsigned *seed)
{
    return (float)((int)below(4001, seed) - 2000) / 997;
}

/* ---- casts ----------------------------------------------------------------------------------- */

/* The same arrays, on the GPU and here; the last one has the factor there and what is found. */
static void place_casts(struct bits *bits, int n, bool is_here, struct ko_scale *scale)
{
    for (int i = 0; i < n; i++) {
        scale->from[i] = is_here ? (uintptr_t)bits_content(bits, i) : bits_at(bits, i);
        scale->to[i] = is_here ? (uintptr_t)bits_wanted(bits, n + i) : bits_at(bits, n + i);
    }
    scale->factor_at = is_here ? (uintptr_t)bits_content(bits, 2 * n) : bits_at(bits, 2 * n);
    scale->found_at = is_here ? (uintptr_t)bits_wanted(bits, 2 * n + 1) : bits_at(bits, 2 * n + 1);
}

int bits_take_casts(size_t least, size_t most, unsigned *seed)
{
    const kolo_dtype from = dtypes[below(3, seed)], to = dtypes[below(3, seed)];
    const int n = least ? 1 : 1 + (int)below(MOST_TENSORS, seed);
    const bool is_even = below(2, seed);
    const bool is_tame = below(2, seed);
    struct bits_array arrays[2 * MOST_TENSORS + 2] = {{.dtype = from}};
    struct ko_scale scale = {.n = (uint32_t)n, .factor = some_factor(seed)};
    const float there[2] = {some_factor(seed), 0};
    struct bits *bits;
    char what[64];
    int failed;

    for (int i = 0; i < n; i++) {
        scale.counts[i] = some_count(least, most / (size_t)n, seed);
        arrays[i] =
            (struct bits_array){from, scale.counts[i], is_even ? 0 : some_shift(from, seed)};
        arrays[n + i] =
            (struct bits_array){to, scale.counts[i], is_even ? 0 : some_shift(to, seed)};
    }
    arrays[2 * n] = arrays[2 * n + 1] = (struct bits_array){KOLO_FLOAT32, 1, 0};
    bits = bits_new(arrays, 2 * n + 2);
    for (int i = 0; i < n; i++)
        bits_randomize(bits, i, is_tame, seed);
    memcpy(bits_content(bits, 2 * n), &there[0], 4);
    memcpy(bits_content(bits, 2 * n + 1), &there[1], 4);
    bits_put(bits);
    place_casts(bits, n, true, &scale);
    ko_gradients_scale(from, to, &scale);
    place_casts(bits, n, false, &scale);
    snprintf(what, sizeof what, "%d casts of %s to %s", n, kolo_dtype_name(from),
             kolo_dtype_name(to));
    failed = ko_cuda_scale(from, to, scale, gpu_rank.stream) ? ranks_fail("%s", what)
                                                             : bits_check(bits, what);
    bits_free(bits);
    return failed;
}

/* ---- sums ------------------------------------------------------------------------------------ */

static void cast(kolo_dtype from, kolo_dtype to, const void *in, void *out, size_t count)
{
    const struct ko_scale scale = {
        .from = {(uintptr_t)in}, .to = {(uintptr_t)out}, .counts = {count}, .factor = 1, .n = 1};

    ko_gradients_scale(from, to, &scale);
}

/* The first nparts arrays, as an all_reduce of the wire's type leaves their sum. */
static void reduce(struct bits *bits, const struct ko_gradients *of, int nparts, size_t count,
                   void *sum)
{
    const size_t nbytes = count * kolo_dtype_size(of->wire);
    unsigned char *smaller = allocate((size_t)(nparts + 1) * nbytes);
    unsigned char *result = smaller + (size_t)nparts * nbytes;
    const void *parts[MOST_PARTS];

    for (int p = 0; p < nparts; p++) {
        parts[p] = smaller + (size_t)p * nbytes;
        cast(of->dtype, of->wire, bits_content(bits, p), smaller + (size_t)p * nbytes, count);
    }
    ko_reduction_of(of->wire, of->op)->many(result, parts, nparts, count, of->nranks);
    cast(of->wire, of->dtype, result, sum, count);
    free(smaller);
}

static struct ko_gradients some_gradients(unsigned *seed)
{
    struct ko_gradients of = {.rule = below(2, seed) ? KO_ADAM_RULE : KO_SGD_RULE,
                              .dtype = dtypes[below(3, seed)],
                              .op = below(2, seed) ? KOLO_AVG : KOLO_SUM,
                              .nranks = 2 + (int)below(7, seed)};

    of.wire = of.dtype == KOLO_FLOAT32 ? dtypes[below(3, seed)] : of.dtype;
    return of;
}

int bits_take_rounded(size_t least, size_t most, unsigned *seed)
{
    const struct ko_gradients of = {.dtype = KOLO_FLOAT32,
                                    .wire = dtypes[1 + below(2, seed)],
                                    .op = below(2, seed) ? KOLO_AVG : KOLO_SUM,
                                    .nranks = 2 + (int)below(7, seed)};
    const int nparts = 1 + (int)below(MOST_PARTS, seed);
    const struct bits_array array = {KOLO_FLOAT32, some_count(least, most, seed),
                                     some_shift(KOLO_FLOAT32, seed)};
    struct bits_array arrays[MOST_PARTS + 1];
    struct ko_fold fold = {.count = array.count, .nparts = (uint32_t)nparts, .nouts = 1};
    struct bits *bits;
    char what[64];
    int failed;

    for (int i = 0; i <= nparts; i++)
        arrays[i] = array;
    bits = bits_new(arrays, nparts + 1);
    for (int p = 0; p < nparts; p++) {
        bits_randomize(bits, p, true, seed);
        fold.parts[p] = bits_at(bits, p);
    }
    fold.outs[0] = bits_at(bits, nparts);
    bits_put(bits);
    reduce(bits, &of, nparts, array.count, bits_wanted(bits, nparts));
    snprintf(what, sizeof what, "%s of %d by %s", kolo_op_name(of.op), nparts,
             kolo_dtype_name(of.wire));
    failed = ko_cuda_fold_rounded(of.wire, of.op, fold, of.nranks, gpu_rank.stream)
                 ? ranks_fail("%s", what)
                 : bits_check(bits, what);
    bits_free(bits);
    return failed;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static struct ko_rule some_rule(unsigned *seed)
{
    return (struct ko_rule){.is_first = !below(4, seed),
                            .is_nesterov = below(2, seed),
                            .is_decoupled = below(2, seed),
                            .factor = some_factor(seed),
                            .rate = 0.01F,
                            .decay = below(2, seed) ? 0.1F : 0,
                            .momentum = below(3, seed) ? 0.9F : 0,
                            .dampening = below(2, seed) ? 0.2F : 0,
                            .beta1 = 0.9F,
                            .beta2 = 0.999F,
                            .epsilon = 1e-8F,
                            .bias1 = 0.19F,
                            .bias2_root = 0.0447F};
}

/* Behind nparts gradients come nouts of each: parameters, and both states. */
static void place_step(const struct bits *bits, struct ko_step *step)
{
    const int nparts = (int)step->nparts, nouts = (int)step->nouts;

    for (int p = 0; p < nparts; p++)
        step->parts[p] = bits_at(bits, p);
    for (int o = 0; o < nouts; o++) {
        step->outs[o] = bits_at(bits, nparts + o);
        step->states[0][o] = bits_at(bits, nparts + nouts + o);
        step->states[1][o] = bits_at(bits, nparts + 2 * nouts + o);
    }
}

static void expect_step(struct bits *bits, const struct ko_gradients *of, struct ko_step step)
{
    const int nparts = (int)step.nparts, nouts = (int)step.nouts;
    const int nstates = of->rule == KO_ADAM_RULE ? 2 : step.rule.momentum != 0;
    const size_t nbytes = step.count * sizeof(float);
    void *sum = allocate(step.count * kolo_dtype_size(of->dtype));

    reduce(bits, of, nparts, step.count, sum);
    step.parts[0] = (uintptr_t)sum;
    step.outs[0] = (uintptr_t)bits_wanted(bits, nparts);
    for (int s = 0; s < 2; s++)
        step.states[s][0] = (uintptr_t)bits_wanted(bits, nparts + (s + 1) * nouts);
    step.nparts = step.nouts = step.divisor = 1;
    ko_gradients_step(of->rule, of->dtype, &step);
    for (int array = 0; array < 1 + nstates; array++)
        for (int o = 1; o < nouts; o++)
            memcpy(bits_wanted(bits, nparts + array * nouts + o),
                   bits_wanted(bits, nparts + array * nouts), nbytes);
    free(sum);
}

static struct bits *make_step(const struct ko_gradients *of, const struct ko_step *step,
                              unsigned *seed)
{
    const bool is_even = below(2, seed);
    const int nparts = (int)step->nparts, n = nparts + 3 * (int)step->nouts;
    struct bits_array arrays[MOST_PARTS + 3 * MOST_OUTS];

    for (int i = 0; i < n; i++) {
        const kolo_dtype dtype = i < nparts ? of->dtype : KOLO_FLOAT32;

        arrays[i] = (struct bits_array){dtype, step->count, is_even ? 0 : some_shift(dtype, seed)};
    }
    return bits_new(arrays, n);
}

int bits_take_step(size_t least, size_t most, unsigned *seed)
{
    const struct ko_gradients of = some_gradients(seed);
    struct ko_step step = {.nparts = 1 + below(MOST_PARTS, seed),
                           .nouts = 1 + below(MOST_OUTS, seed),
                           .count = some_count(least, most, seed),
                           .rule = some_rule(seed)};
    const int nparts = (int)step.nparts, n = nparts + 3 * (int)step.nouts;
    struct bits *bits = make_step(&of, &step, seed);
    char what[96];
    int failed;

    for (int i = 0; i < n; i++)
        bits_randomize(bits, i, true, seed);
    place_step(bits, &step);
    bits_put(bits);
    expect_step(bits, &of, step);
    snprintf(what, sizeof what, "a step of %s by %d %s, %s", of.rule ? "adam" : "sgd", nparts,
             kolo_dtype_name(of.dtype), kolo_dtype_name(of.wire));
    failed =
        ko_cuda_step(&of, step, gpu_rank.stream) ? ranks_fail("%s", what) : bits_check(bits, what);
    bits_free(bits);
    return failed;
}
