/* SPDX-License-Identifier: MIT
 *
 * What the device does with gradients, and the host by each of its instruction sets, against the
 * same computed here, bit by bit: casts with a factor, the search for what is not finite, sums with
 * steps of SGD and Adam; odd counts, any alignment, in place, and not a byte beyond.
 */
#include "cuda_kernels.h"
#include "elements.h"
#include "reduce.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 3000, ARRAYS = 18, GUARD = 64, STRIDE = MOST * 4 + 2 * GUARD, GUARD_BYTE = 0x5c };

static const kolo_dtype dtypes[] = {KOLO_FLOAT32, KOLO_FLOAT16, KOLO_BFLOAT16};
static const struct ko_cuda *cuda;
static ko_cu_ptr memory;                     /* of ARRAYS arrays, STRIDE apart */
static unsigned char bytes[ARRAYS][STRIDE];  /* what lies there before, and then after */
static unsigned char wanted[ARRAYS][STRIDE]; /* what has to */

static int start(void **state)
{
    ko_cu_context context;

    (void)state;
    return cuda ? 0
                : ko_cuda_open(&cuda) || cuda->context_retain(&context, 0) ||
                      cuda->context_push(context) || cuda->alloc(&memory, sizeof bytes);
}

/* ---- arrays ---------------------------------------------------------------------------------- */

static unsigned random_below(unsigned n)
{
    static unsigned seed = 7;

    return (unsigned)rand_r(&seed) % n;
}

static float get(kolo_dtype dtype, const unsigned char *at, size_t i)
{
    uint16_t half;
    float value;

    if (dtype == KOLO_FLOAT32) {
        memcpy(&value, at + 4 * i, 4);
        return value;
    }
    memcpy(&half, at + 2 * i, 2);
    return dtype == KOLO_FLOAT16 ? ko_float_of_float16(half) : ko_float_of_bfloat16(half);
}

static void set(kolo_dtype dtype, unsigned char *at, size_t i, float value)
{
    const uint16_t half = (uint16_t)(dtype == KOLO_FLOAT16 ? ko_float16_of_float(value)
                                                           : ko_bfloat16_of_float(value));

    if (dtype == KOLO_FLOAT32)
        memcpy(at + 4 * i, &value, 4);
    else
        memcpy(at + 2 * i, &half, 2);
}

/* Of 1000 values that all dtypes round differently, some above 0, some below. */
static void randomize(kolo_dtype dtype, unsigned char *at, size_t count, bool is_positive)
{
    for (size_t i = 0; i < count; i++) {
        const float value = (float)(1 + random_below(1000)) / 300;

        set(dtype, at, i, is_positive || random_below(2) ? value : -value);
    }
}

static void begin(void)
{
    memset(bytes, GUARD_BYTE, sizeof bytes);
}

static void put(void)
{
    memcpy(wanted, bytes, sizeof bytes);
    assert_int_equal(cuda->copy(memory, (uintptr_t)bytes, sizeof bytes, NULL), 0);
}

static void check(void)
{
    assert_int_equal(cuda->copy((uintptr_t)bytes, memory, sizeof bytes, NULL), 0);
    assert_int_equal(cuda->stream_sync(NULL), 0);
    for (int i = 0; i < ARRAYS; i++)
        assert_memory_equal(bytes[i], wanted[i], STRIDE);
}

/* The host's turn: a copy of what lies on the device; NULL: the device's. */
static unsigned char (*host)[STRIDE];

static void put_on_host(void)
{
    static unsigned char copy[ARRAYS][STRIDE];

    memcpy(copy, bytes, sizeof copy);
    host = copy;
}

static void check_host(void)
{
    for (int i = 0; i < ARRAYS; i++)
        assert_memory_equal(host[i], wanted[i], STRIDE);
    host = NULL;
}

/* Where an array lies, so many bytes beyond its guard. */
static uint64_t at(int array, size_t shift)
{
    return (host ? (uintptr_t)host : memory) + (uint64_t)array * STRIDE + GUARD + shift;
}

static unsigned char *in(unsigned char (*arrays)[STRIDE], int array, size_t shift)
{
    return arrays[array] + GUARD + shift;
}

/* ---- casts ----------------------------------------------------------------------------------- */

/* The last array has the factor and what was found. */
enum { EXTRA = ARRAYS - 1 };

struct cast {
    kolo_dtype from, to;
    size_t counts[3];
    size_t shift;
    bool is_in_place, has_factor_there, is_searched;
    float odd; /* one element, if it is not 0 */
};

static void cast_here(const struct cast *cast, const struct ko_scale *scale)
{
    const float there = cast->has_factor_there ? get(KOLO_FLOAT32, in(bytes, EXTRA, 0), 0) : 1;
    const float factor = scale->factor * there;

    for (int a = 0; a < 3; a++)
        for (size_t i = 0; i < cast->counts[a]; i++) {
            const float x = get(cast->from, in(bytes, a, cast->shift), i);

            set(cast->to, in(wanted, cast->is_in_place ? a : a + 3, cast->shift), i, x * factor);
            if (!isfinite(x) && cast->is_searched)
                set(KOLO_FLOAT32, in(wanted, EXTRA, 0), 1, 1);
        }
}

static struct ko_scale make_cast(const struct cast *cast)
{
    struct ko_scale scale = {.n = 3, .factor = 1.0F / 3};

    for (int a = 0; a < 3; a++) {
        scale.from[a] = at(a, cast->shift);
        scale.to[a] = at(cast->is_in_place ? a : a + 3, cast->shift);
        scale.counts[a] = cast->counts[a];
    }
    scale.factor_at = cast->has_factor_there ? at(EXTRA, 0) : 0;
    scale.found_at = cast->is_searched ? at(EXTRA, 4) : 0;
    return scale;
}

static void take_cast(const struct cast *cast)
{
    struct ko_scale scale = make_cast(cast);

    begin();
    for (int a = 0; a < 3; a++)
        randomize(cast->from, in(bytes, a, cast->shift), cast->counts[a], false);
    if (cast->odd != 0 && cast->counts[1])
        set(cast->from, in(bytes, 1, cast->shift), random_below((unsigned)cast->counts[1]),
            cast->odd);
    set(KOLO_FLOAT32, in(bytes, EXTRA, 0), 0, 0.7F);
    set(KOLO_FLOAT32, in(bytes, EXTRA, 0), 1, 0);
    put();
    cast_here(cast, &scale);
    assert_int_equal(ko_cuda_scale(cast->from, cast->to, scale, NULL), KOLO_OK);
    for (int level = 0; level < ko_reduction_nlevels(); level++) {
        put_on_host();
        scale = make_cast(cast);
        ko_gradients_scale_at(level, cast->from, cast->to, &scale);
        check_host();
    }
    check();
}

static void test_casts(void **state)
{
    static const size_t counts[] = {0, 1, 7, 8, 9, 127, 128, 129, 1000, MOST - 16};
    static const float odds[] = {0, INFINITY, 0, -INFINITY, 0};

    (void)state;
    for (unsigned i = 0; i < 900; i++) {
        struct cast cast = {.from = dtypes[i % 3],
                            .to = dtypes[i / 3 % 3],
                            .shift = i % 4 ? 0 : 4 * random_below(4),
                            .has_factor_there = i % 5 < 2,
                            .is_searched = i % 7 > 2,
                            .odd = odds[i % 5]};

        cast.is_in_place = cast.from == cast.to && i & 1;
        for (int a = 0; a < 3; a++)
            cast.counts[a] = counts[random_below(10)];
        take_cast(&cast);
    }
}

/* What is not a number is found, too; its bits are the processor's. */
static void test_no_numbers(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct ko_scale scale = {.n = 1, .counts = {100}, .from = {at(0, 0)}, .to = {at(1, 0)}};

        scale.factor = 1;
        scale.found_at = at(EXTRA, 0);
        begin();
        randomize(dtypes[i], in(bytes, 0, 0), 100, false);
        set(dtypes[i], in(bytes, 0, 0), 77, NAN);
        put();
        assert_int_equal(ko_cuda_scale(dtypes[i], KOLO_FLOAT32, scale, NULL), KOLO_OK);
        assert_int_equal(cuda->copy((uintptr_t)bytes, memory, sizeof bytes, NULL), 0);
        assert_int_equal(cuda->stream_sync(NULL), 0);
        assert_true(get(KOLO_FLOAT32, in(bytes, EXTRA, 0), 0) == 1);
        assert_true(isnan(get(KOLO_FLOAT32, in(bytes, 1, 0), 77)));
    }
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* Arrays 0 to 4 have gradients, 5 and 6 states, 7 to 10 parameters, 11 to 16 states that are only
 * written, the last the factor and the wish to skip. */
enum { STATES = 5, PARAMETERS = 7, COPIES = 11 };

struct trial {
    struct ko_gradients of;
    size_t shift;
    bool has_factor_there, has_skip, is_skipped;
};

static float sgd_here(const struct ko_rule *rule, float p, float g, float *state)
{
    g = g + rule->decay * p;
    if (rule->momentum == 0)
        return p - rule->rate * g;
    if (rule->is_first)
        *state = g;
    else
        *state = rule->momentum * *state + (1 - rule->dampening) * g;
    if (rule->is_nesterov)
        return p - rule->rate * (g + rule->momentum * *state);
    return p - rule->rate * *state;
}

static float adam_here(const struct ko_rule *rule, float p, float g, float *m, float *v)
{
    if (rule->is_decoupled)
        p = p - rule->rate * rule->decay * p;
    else
        g = g + rule->decay * p;
    if (rule->is_first)
        *m = *v = 0;
    *m = rule->beta1 * *m + (1 - rule->beta1) * g;
    *v = rule->beta2 * *v + (1 - rule->beta2) * (g * g);
    return p - rule->rate / rule->bias1 * (*m / (sqrtf(*v) / rule->bias2_root + rule->epsilon));
}

static float rounded(kolo_dtype dtype, float x)
{
    unsigned char at_first[4];

    set(dtype, at_first, 0, x);
    return get(dtype, at_first, 0);
}

/* What an all_reduce gives of the gradients' i-th elements. */
static float reduced(const struct trial *trial, size_t i, unsigned nparts)
{
    const kolo_dtype dtype = trial->of.wire;
    float sum = rounded(dtype, get(trial->of.dtype, in(bytes, 0, trial->shift), i));

    for (unsigned r = 1; r < nparts; r++)
        sum += rounded(dtype, get(trial->of.dtype, in(bytes, (int)r, trial->shift), i));
    return rounded(dtype, trial->of.op == KOLO_AVG ? sum / (float)trial->of.nranks : sum);
}

/* The array of the state s that goes with output o. */
static int state_of(int s, int o)
{
    return o ? COPIES + 3 * s + o - 1 : STATES + s;
}

static void step_here(const struct trial *trial, const struct ko_step *step)
{
    const float there = trial->has_factor_there ? get(KOLO_FLOAT32, in(bytes, EXTRA, 0), 0) : 1;
    const float factor = step->rule.factor * there;
    const size_t shift = trial->shift;
    const int nstates = trial->of.rule == KO_ADAM_RULE ? 2 : step->rule.momentum != 0;

    for (size_t i = 0; i < step->count; i++) {
        float g = reduced(trial, i, step->nparts), states[2];
        float p = get(KOLO_FLOAT32, in(bytes, PARAMETERS, shift), i);

        for (int s = 0; s < 2; s++)
            states[s] = get(KOLO_FLOAT32, in(bytes, STATES + s, shift), i);
        p = trial->of.rule == KO_SGD_RULE
                ? sgd_here(&step->rule, p, g * factor, states)
                : adam_here(&step->rule, p, g * factor, &states[0], &states[1]);
        for (int o = 0; o < (int)step->nouts; o++) {
            set(KOLO_FLOAT32, in(wanted, PARAMETERS + o, shift), i, p);
            for (int s = 0; s < nstates; s++)
                set(KOLO_FLOAT32, in(wanted, state_of(s, o), shift), i, states[s]);
        }
    }
}

static void place_step(const struct trial *trial, struct ko_step *step)
{
    const size_t shift = trial->shift;

    for (int r = 0; r < (int)step->nparts; r++)
        step->parts[r] = at(r, shift);
    for (int o = 0; o < (int)step->nouts; o++) {
        step->outs[o] = at(PARAMETERS + o, shift);
        for (int s = 0; s < 2; s++)
            step->states[s][o] = at(state_of(s, o), shift);
    }
    step->factor_at = trial->has_factor_there ? at(EXTRA, 0) : 0;
    step->skip_at = trial->has_skip ? at(EXTRA, 4) : 0;
}

/* The host steps by one gradient, as an all_reduce leaves it. */
static void step_on_host(const struct trial *trial, struct ko_step step)
{
    for (int level = 0; level < ko_reduction_nlevels(); level++) {
        put_on_host();
        place_step(trial, &step);
        ko_gradients_step_at(level, trial->of.rule, trial->of.dtype, &step);
        check_host();
    }
}

static void take_step(const struct trial *trial, struct ko_step step)
{
    const size_t shift = trial->shift;

    begin();
    for (int r = 0; r < (int)step.nparts; r++)
        randomize(trial->of.dtype, in(bytes, r, shift), step.count, false);
    for (int s = 0; s < 2; s++)
        randomize(KOLO_FLOAT32, in(bytes, STATES + s, shift), step.count, true);
    randomize(KOLO_FLOAT32, in(bytes, PARAMETERS, shift), step.count, false);
    set(KOLO_FLOAT32, in(bytes, EXTRA, 0), 0, 0.3F);
    set(KOLO_FLOAT32, in(bytes, EXTRA, 0), 1, trial->is_skipped);
    place_step(trial, &step);
    put();
    if (!trial->has_skip || !trial->is_skipped)
        step_here(trial, &step);
    assert_int_equal(ko_cuda_step(&trial->of, step, NULL), KOLO_OK);
    if (step.nparts == 1 && step.nouts == 1 && trial->of.wire == trial->of.dtype &&
        trial->of.op == KOLO_SUM)
        step_on_host(trial, step);
    check();
}

static struct trial random_trial(unsigned i)
{
    struct trial trial = {.of = {.rule = i % 2 ? KO_ADAM_RULE : KO_SGD_RULE,
                                 .dtype = dtypes[i / 2 % 3],
                                 .op = random_below(2) ? KOLO_AVG : KOLO_SUM,
                                 .nranks = 2 + (int)random_below(6)},
                          .shift = i % 4 ? 0 : 4 * random_below(4),
                          .has_factor_there = random_below(2),
                          .has_skip = random_below(2),
                          .is_skipped = random_below(2)};

    trial.of.wire = trial.of.dtype;
    if (trial.of.dtype == KOLO_FLOAT32 && random_below(2))
        trial.of.wire = dtypes[1 + random_below(2)];
    return trial;
}

static void test_steps(void **state)
{
    static const size_t counts[] = {0, 1, 3, 8, 9, 128, 129, 1000, MOST - 16};

    (void)state;
    for (unsigned i = 0; i < 900; i++) {
        const struct trial trial = random_trial(i);
        const bool is_alone = random_below(2);
        const struct ko_rule rule = {.is_first = !random_below(4),
                                     .is_nesterov = random_below(2),
                                     .is_decoupled = random_below(2),
                                     .factor = 0.25F,
                                     .rate = 0.01F,
                                     .decay = random_below(2) ? 0.1F : 0,
                                     .momentum = random_below(3) ? 0.9F : 0,
                                     .dampening = random_below(2) ? 0.2F : 0,
                                     .beta1 = 0.9F,
                                     .beta2 = 0.999F,
                                     .epsilon = 1e-8F,
                                     .bias1 = 0.19F,
                                     .bias2_root = 0.0447F};

        take_step(&trial, (struct ko_step){.nparts = is_alone ? 1 : 1 + random_below(5),
                                           .nouts = is_alone ? 1 : 1 + random_below(4),
                                           .count = counts[random_below(9)],
                                           .rule = rule});
    }
}

/* A fold of numbers that are rounded is that of casts. */
static void test_rounded_folds(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 100; i++) {
        const struct trial trial = {.of = {.dtype = KOLO_FLOAT32,
                                           .wire = dtypes[1 + i % 2],
                                           .op = i % 4 < 2 ? KOLO_SUM : KOLO_AVG,
                                           .nranks = 3},
                                    .shift = i % 3 ? 0 : 4};
        const size_t count = random_below(MOST - 16);
        struct ko_fold fold = {.count = count, .nparts = 1 + i % 5, .nouts = 2};

        begin();
        for (unsigned p = 0; p < fold.nparts; p++) {
            fold.parts[p] = at((int)p, trial.shift);
            randomize(KOLO_FLOAT32, in(bytes, (int)p, trial.shift), count, false);
        }
        fold.outs[0] = at(0, trial.shift);
        fold.outs[1] = at(6, trial.shift);
        put();
        for (size_t k = 0; k < count; k++) {
            set(KOLO_FLOAT32, in(wanted, 0, trial.shift), k, reduced(&trial, k, fold.nparts));
            set(KOLO_FLOAT32, in(wanted, 6, trial.shift), k, reduced(&trial, k, fold.nparts));
        }
        assert_int_equal(ko_cuda_fold_rounded(trial.of.wire, trial.of.op, fold, 3, NULL), KOLO_OK);
        check();
    }
}

static void test_other_dtypes(void **state)
{
    (void)state;
    assert_int_equal(ko_cuda_scale(KOLO_FLOAT64, KOLO_FLOAT32, (struct ko_scale){.n = 0}, NULL),
                     KOLO_E_UNSUPPORTED);
    assert_int_equal(ko_cuda_scale(KOLO_FLOAT32, KOLO_INT32, (struct ko_scale){.n = 0}, NULL),
                     KOLO_E_UNSUPPORTED);
    assert_int_equal(ko_cuda_step(&(struct ko_gradients){.dtype = KOLO_FLOAT64},
                                  (struct ko_step){.count = 0}, NULL),
                     KOLO_E_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_casts, start),
        cmocka_unit_test_setup(test_no_numbers, start),
        cmocka_unit_test_setup(test_steps, start),
        cmocka_unit_test_setup(test_rounded_folds, start),
        cmocka_unit_test_setup(test_other_dtypes, start),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
