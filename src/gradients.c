/* SPDX-License-Identifier: MIT
 *
 * Every pair of types has a loop of casts, every type a loop of each rule, for each instruction set
 * of reduce.h. No two iterations depend on each other, which "omp simd" tells the compiler.
 */
#include "gradients.h"

#include "dtype.h"
#include "elements.h"
#include "reduce.h"
#include "status.h"

#include <stdbool.h>

/* The dtypes that gradients have. */
enum gradient { FLOAT32, FLOAT16, BFLOAT16, NGRADIENTS };

#define EVERY _Pragma("omp simd") for (size_t i = 0; i < count; i++)

typedef float float32_any __attribute__((aligned(1), may_alias));
typedef uint16_t float16_any __attribute__((aligned(1), may_alias));
typedef uint16_t bfloat16_any __attribute__((aligned(1), may_alias));

#define float32_load(x) (x)
#define float16_load(x) ko_float_of_float16(x)
#define bfloat16_load(x) ko_float_of_bfloat16(x)
#define float32_store(x) (x)
#define float16_store(x) ko_float16_of_float(x)
#define bfloat16_store(x) ko_bfloat16_of_float(x)

/* What the loops of a step go through. */
struct arrays {
    const void *grads;
    float32_any *params, *states[2];
    size_t count;
};

/* ---- loops ----------------------------------------------------------------------------------- */

/* Returns whether some element of in is not finite. */
#define CAST(level, target, from, to)                                                          \
    target static bool cast_##from##_##to##_##level(void *out_, const void *in_, size_t count, \
                                                    float factor)                              \
    {                                                                                          \
        to##_any *out = out_;                                                                  \
        const from##_any *in = in_;                                                            \
        uint32_t largest = 0;                                                                  \
        _Pragma("omp simd reduction(max : largest)") for (size_t i = 0; i < count; i++)        \
        {                                                                                      \
            const float x = from##_load(in[i]);                                                \
            const uint32_t magnitude = ko_float_bits(x) & 0x7fffffff;                          \
            largest = magnitude > largest ? magnitude : largest;                               \
            out[i] = to##_store(x * factor);                                                   \
        }                                                                                      \
        return largest >= 0x7f800000;                                                          \
    }

#define SGD(level, target, from)                                                                   \
    target static void sgd_##from##_##level(const struct arrays *of, const struct ko_rule *by,     \
                                            float factor)                                          \
    {                                                                                              \
        const from##_any *grads = of->grads;                                                       \
        float32_any *params = of->params, *states = of->states[0];                                 \
        const struct ko_rule rule = *by;                                                           \
        const size_t count = of->count;                                                            \
        if (rule.momentum == 0)                                                                    \
            EVERY                                                                                  \
            {                                                                                      \
                float none = 0;                                                                    \
                params[i] = ko_sgd_move(&rule, params[i], from##_load(grads[i]) * factor, &none);  \
            }                                                                                      \
        else                                                                                       \
            EVERY                                                                                  \
            {                                                                                      \
                float state = states[i];                                                           \
                params[i] = ko_sgd_move(&rule, params[i], from##_load(grads[i]) * factor, &state); \
                states[i] = state;                                                                 \
            }                                                                                      \
    }

#define ADAM(level, target, from)                                                               \
    target static void adam_##from##_##level(const struct arrays *of, const struct ko_rule *by, \
                                             float factor)                                      \
    {                                                                                           \
        const from##_any *grads = of->grads;                                                    \
        float32_any *params = of->params, *first = of->states[0], *second = of->states[1];      \
        const struct ko_rule rule = *by;                                                        \
        const size_t count = of->count;                                                         \
        EVERY                                                                                   \
        {                                                                                       \
            float s = first[i], v = second[i];                                                  \
            params[i] = ko_adam_move(&rule, params[i], from##_load(grads[i]) * factor, &s, &v); \
            first[i] = s;                                                                       \
            second[i] = v;                                                                      \
        }                                                                                       \
    }

#define LOOPS_OF(level, target, from)   \
    CAST(level, target, from, float32)  \
    CAST(level, target, from, float16)  \
    CAST(level, target, from, bfloat16) \
    SGD(level, target, from)            \
    ADAM(level, target, from)
#define LOOPS(level, target)         \
    LOOPS_OF(level, target, float32) \
    LOOPS_OF(level, target, float16) \
    LOOPS_OF(level, target, bfloat16)

LOOPS(plain, )
#if defined(__x86_64__)
LOOPS(avx2, __attribute__((target("avx2"))))
LOOPS(avx512, __attribute__((target("avx2,avx512f,avx512bw,avx512dq,avx512vl"))))
#endif

/* ---- tables ---------------------------------------------------------------------------------- */

typedef bool (*cast_loop)(void *out, const void *in, size_t count, float factor);
typedef void (*step_loop)(const struct arrays *of, const struct ko_rule *rule, float factor);

static const struct level {
    cast_loop casts[NGRADIENTS][NGRADIENTS]; /* from, to */
    step_loop steps[KO_NSTEP_RULES][NGRADIENTS];
} levels[] = {
#define CASTS_OF(level, from)                                         \
    {                                                                 \
        cast_##from##_float32_##level, cast_##from##_float16_##level, \
            cast_##from##_bfloat16_##level                            \
    }
#define STEPS_OF(level, rule)                                                   \
    {                                                                           \
        rule##_float32_##level, rule##_float16_##level, rule##_bfloat16_##level \
    }
#define LEVEL(level)                                                                     \
    {                                                                                    \
        {CASTS_OF(level, float32), CASTS_OF(level, float16), CASTS_OF(level, bfloat16)}, \
        {                                                                                \
            STEPS_OF(level, sgd), STEPS_OF(level, adam)                                  \
        }                                                                                \
    }
    LEVEL(plain),
#if defined(__x86_64__)
    LEVEL(avx2),
    LEVEL(avx512),
#elif defined(__aarch64__)
    LEVEL(plain), /* whose loops are made of NEON */
#endif
};

static enum gradient gradient_of(kolo_dtype dtype)
{
    return dtype == KOLO_FLOAT32 ? FLOAT32 : dtype == KOLO_FLOAT16 ? FLOAT16 : BFLOAT16;
}

int ko_gradients_check(kolo_dtype dtype)
{
    if (dtype == KOLO_FLOAT32 || dtype == KOLO_FLOAT16 || dtype == KOLO_BFLOAT16)
        return KOLO_OK;
    return ko_fail(KOLO_E_UNSUPPORTED, "gradients are float32, float16 or bfloat16, not %s",
                   kolo_dtype_name(dtype));
}

/* ---- calls ----------------------------------------------------------------------------------- */

static float32_any *at(uint64_t address)
{
    return (float32_any *)(uintptr_t)address;
}

static float load_factor(uint64_t address)
{
    return address ? *at(address) : 1;
}

void ko_gradients_scale_at(int level, kolo_dtype from, kolo_dtype to, const struct ko_scale *scale)
{
    const cast_loop cast = levels[level].casts[gradient_of(from)][gradient_of(to)];
    const float factor = scale->factor * load_factor(scale->factor_at);
    bool is_found = false;

    for (uint32_t a = 0; a < scale->n; a++)
        is_found |= cast(at(scale->to[a]), at(scale->from[a]), scale->counts[a], factor);
    if (is_found && scale->found_at)
        *at(scale->found_at) = 1;
}

void ko_gradients_step_at(int level, enum ko_step_rule rule, kolo_dtype dtype,
                          const struct ko_step *step)
{
    const struct arrays arrays = {.grads = at(step->parts[0]),
                                  .params = at(step->outs[0]),
                                  .states = {at(step->states[0][0]), at(step->states[1][0])},
                                  .count = step->count};

    if (step->skip_at && load_factor(step->skip_at) != 0)
        return;
    levels[level].steps[rule][gradient_of(dtype)](&arrays, &step->rule,
                                                  step->rule.factor * load_factor(step->factor_at));
}

static int best_level(void)
{
    return ko_reduction_nlevels() - 1;
}

void ko_gradients_scale(kolo_dtype from, kolo_dtype to, const struct ko_scale *scale)
{
    ko_gradients_scale_at(best_level(), from, to, scale);
}

void ko_gradients_step(enum ko_step_rule rule, kolo_dtype dtype, const struct ko_step *step)
{
    ko_gradients_step_at(best_level(), rule, dtype, step);
}
