/* SPDX-License-Identifier: MIT */
#include "gradient_exam.h"

#include "elements.h"
#include "ranks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 20011, STEPS = 3, MOST_TENSORS = 35 };

static const kolo_dtype dtypes[] = {KOLO_FLOAT32, KOLO_FLOAT16, KOLO_BFLOAT16};

/* ---- numbers --------------------------------------------------------------------------------- */

static void set(kolo_dtype dtype, void *array, size_t i, float value)
{
    const uint16_t half = (uint16_t)(dtype == KOLO_FLOAT16 ? ko_float16_of_float(value)
                                                           : ko_bfloat16_of_float(value));

    if (dtype == KOLO_FLOAT32)
        memcpy((char *)array + 4 * i, &value, 4);
    else
        memcpy((char *)array + 2 * i, &half, 2);
}

static float get(kolo_dtype dtype, const void *array, size_t i)
{
    uint16_t half;
    float value;

    if (dtype == KOLO_FLOAT32) {
        memcpy(&value, (const char *)array + 4 * i, 4);
        return value;
    }
    memcpy(&half, (const char *)array + 2 * i, 2);
    return dtype == KOLO_FLOAT16 ? ko_float_of_float16(half) : ko_float_of_bfloat16(half);
}

float gradient_exam_round(kolo_dtype dtype, float x)
{
    unsigned char place[4];

    set(dtype, place, 0, x);
    return get(dtype, place, 0);
}

/* From -7 to 7; float32 ones have a bit more, which smaller floats lose. */
static float gradient(int rank, unsigned seed, size_t i, bool is_fine)
{
    const float value = (float)((int)((i * 7 + seed * 5 + (size_t)rank * 3) % 15) - 7);

    return is_fine ? value + value / 8192 : value;
}

/* The gradients of all ranks as an all_reduce of dtype gives them. */
static float reduced(const kolo_group *group, kolo_dtype dtype, kolo_op op, unsigned seed, size_t i)
{
    const int n = kolo_group_size(group);
    float sum = 0;

    for (int r = 0; r < n; r++)
        sum += gradient_exam_round(dtype, gradient(r, seed, i, dtype != KOLO_FLOAT32));
    return gradient_exam_round(dtype, op == KOLO_AVG ? sum / (float)n : sum);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void *make(const struct exam_memory *memory, const void *content, size_t nbytes)
{
    void *made;

    if (memory)
        return memory->make(content, nbytes + 4); /* never empty */
    made = malloc(nbytes + 4);
    if (!made)
        abort();
    memcpy(made, content, nbytes + 4);
    return made;
}

static void fetch(const struct exam_memory *memory, void *content, void *made, size_t nbytes)
{
    if (memory) {
        memory->fetch(content, made, nbytes + 4);
        return;
    }
    memcpy(content, made, nbytes);
    free(made);
}

static int await(kolo_work *work, int err)
{
    if (!err && work) {
        err = kolo_work_wait(work, -1);
        kolo_work_free(work);
    }
    return err;
}

static bool are_same(float a, float b)
{
    return ko_float_bits(a) == ko_float_bits(b);
}

static size_t count_of(unsigned seed)
{
    static const size_t counts[] = {0, 1, 2, 15, 16, 17, 1023, 1024, 1025, 4099, 12289, MOST};

    return counts[seed % 12];
}

/* ---- steps ----------------------------------------------------------------------------------- */

kolo_step gradient_exam_options(unsigned seed)
{
    return (kolo_step){.optimizer = seed % 2 ? KOLO_ADAM : KOLO_SGD,
                       .number = 1,
                       .rate = 0.05F,
                       .weight_decay = seed / 2 % 2 ? 0.01F : 0,
                       .momentum = seed / 4 % 3 ? 0.9F : 0,
                       .dampening = seed / 8 % 2 ? 0.1F : 0,
                       .nesterov = seed / 16 % 2,
                       .beta1 = 0.9F,
                       .beta2 = 0.99F,
                       .epsilon = 1e-6F,
                       .decoupled = seed / 4 % 2,
                       .factor = seed % 3 ? 0 : 0.125F};
}

static float move_by_sgd(const kolo_step *step, float p, float g, float *state)
{
    g = g + step->weight_decay * p;
    if (step->momentum == 0)
        return p - step->rate * g;
    *state = step->number == 1 ? g : step->momentum * *state + (1 - step->dampening) * g;
    if (step->nesterov)
        return p - step->rate * (g + step->momentum * *state);
    return p - step->rate * *state;
}

static float move_by_adam(const kolo_step *step, float p, float g, float states[2])
{
    const double t = (double)step->number;
    const float bias1 = (float)(1 - pow((double)step->beta1, t));
    const float bias2_root = (float)sqrt(1 - pow((double)step->beta2, t));

    if (step->decoupled)
        p = p - step->rate * step->weight_decay * p;
    else
        g = g + step->weight_decay * p;
    if (step->number == 1)
        states[0] = states[1] = 0;
    states[0] = step->beta1 * states[0] + (1 - step->beta1) * g;
    states[1] = step->beta2 * states[1] + (1 - step->beta2) * (g * g);
    return p - step->rate / bias1 * (states[0] / (sqrtf(states[1]) / bias2_root + step->epsilon));
}

float gradient_exam_move(const kolo_step *step, float p, float g, float states[2])
{
    g *= step->factor == 0 ? 1 : step->factor;
    return step->optimizer == KOLO_ADAM ? move_by_adam(step, p, g, states)
                                        : move_by_sgd(step, p, g, states);
}

/* A rank's arrays: its own copies of parameters and states, which are as everybody's. */
struct training {
    kolo_dtype dtype, wire; /* of gradients; by which they travel */
    kolo_op op;
    size_t count;
    unsigned char grad[MOST * 4 + 4];
    float param[MOST + 1], states[2][MOST + 1], skip[2];
};

static struct training *begin_training(unsigned seed)
{
    struct training *training = calloc(1, sizeof *training);

    if (!training)
        abort();
    training->dtype = training->wire = dtypes[seed % 3];
    if (training->dtype == KOLO_FLOAT32 && seed % 5)
        training->wire = dtypes[1 + seed % 2];
    training->op = seed / 3 % 2 ? KOLO_AVG : KOLO_SUM;
    training->count = count_of(seed / 2);
    for (size_t i = 0; i < training->count; i++) {
        training->param[i] = (float)(i % 100) / 17 - 2;
        training->states[0][i] = (float)(i % 9); /* not looked at by the first step */
        training->states[1][i] = (float)(i % 7);
    }
    return training;
}

static int call_step(kolo_group *group, const kolo_update *update, const struct training *training,
                     const kolo_step *step, bool is_async)
{
    kolo_work *work = NULL;
    int err = is_async ? kolo_all_reduce_step_async(group, update, training->dtype, training->op,
                                                    step, &work)
                       : kolo_all_reduce_step(group, update, training->dtype, training->op, step);

    return await(work, err);
}

/* One step of buffers in memory, and what they have then. */
static int take_step(kolo_group *group, const struct exam_memory *memory, struct training *training,
                     const kolo_step *options, unsigned seed)
{
    const size_t nbytes = training->count * sizeof(float);
    const size_t grad_bytes = training->count * kolo_dtype_size(training->dtype);
    kolo_update update = {.count = training->count};
    kolo_step step = *options;
    float *skip;
    int err;

    for (size_t i = 0; i < training->count; i++)
        set(training->dtype, training->grad, i,
            gradient(kolo_group_rank(group), seed, i, training->wire != KOLO_FLOAT32));
    update.grad = make(memory, training->grad, grad_bytes);
    update.param = make(memory, training->param, nbytes);
    for (int s = 0; s < 2; s++)
        update.states[s] = make(memory, training->states[s], nbytes);
    skip = make(memory, training->skip, sizeof *skip);
    step.skip_at = skip;
    err = call_step(group, &update, training, &step, seed % 4 == 1);
    fetch(memory, training->grad, update.grad, grad_bytes);
    fetch(memory, training->param, update.param, nbytes);
    for (int s = 0; s < 2; s++)
        fetch(memory, training->states[s], update.states[s], nbytes);
    fetch(memory, training->skip, skip, sizeof *skip);
    return err ? ranks_fail("step of %zu %s by %s", training->count,
                            kolo_dtype_name(training->dtype), kolo_dtype_name(training->wire))
               : 0;
}

/* The same here. */
static void expect_step(const kolo_group *group, struct training *training, const kolo_step *step,
                        unsigned seed)
{
    for (size_t i = 0; i < training->count && training->skip[0] == 0; i++) {
        float states[2] = {training->states[0][i], training->states[1][i]};

        training->param[i] =
            gradient_exam_move(step, training->param[i],
                               reduced(group, training->wire, training->op, seed, i), states);
        for (int s = 0; s < 2; s++)
            training->states[s][i] = states[s];
    }
}

static int compare(const struct training *have, const struct training *want, uint64_t number)
{
    for (size_t i = 0; i < want->count; i++) {
        if (!are_same(have->param[i], want->param[i]))
            return ranks_fail("step %llu of %zu: parameter %zu is %.9g, not %.9g",
                              (unsigned long long)number, want->count, i, (double)have->param[i],
                              (double)want->param[i]);
        for (int s = 0; s < 2; s++)
            if (!are_same(have->states[s][i], want->states[s][i]))
                return ranks_fail("step %llu of %zu: state %d of %zu is %.9g, not %.9g",
                                  (unsigned long long)number, want->count, s, i,
                                  (double)have->states[s][i], (double)want->states[s][i]);
    }
    return 0;
}

int gradient_exam_step(kolo_group *group, const struct exam_memory *memory, unsigned seed)
{
    struct training *have = begin_training(seed), *want = begin_training(seed);
    kolo_step step = gradient_exam_options(seed);
    int failed = 0;

    step.wire = have->wire == have->dtype ? 0 : have->wire;
    for (step.number = 1; step.number <= STEPS && !failed; step.number++) {
        const unsigned turn = seed * STEPS + (unsigned)step.number;

        have->skip[0] = want->skip[0] = step.number == 2 && seed % 7 == 0;
        failed = take_step(group, memory, have, &step, turn);
        expect_step(group, want, &step, turn);
        if (!failed)
            failed = compare(have, want, step.number);
    }
    free(have);
    free(want);
    return failed;
}

/* ---- as a smaller float ---------------------------------------------------------------------- */

int gradient_exam_compressed(kolo_group *group, const struct exam_memory *memory, unsigned seed)
{
    const kolo_dtype wire = dtypes[1 + seed % 2];
    const kolo_op op = seed / 2 % 2 ? KOLO_AVG : KOLO_SUM;
    const size_t count = count_of(seed), nbytes = count * sizeof(float);
    float *values = calloc(1, nbytes + 4), *in, *out;
    kolo_work *work = NULL;
    int failed = 0;

    if (!values)
        abort();
    for (size_t i = 0; i < count; i++)
        values[i] = gradient(kolo_group_rank(group), seed, i, true);
    in = make(memory, values, nbytes);
    out = seed / 4 % 2 ? in : make(memory, values, nbytes);
    failed = seed % 3 ? kolo_all_reduce_compressed(group, in, out, count, wire, op)
                      : kolo_all_reduce_compressed_async(group, in, out, count, wire, op, &work);
    failed = await(work, failed);
    if (out != in)
        fetch(memory, values, in, nbytes);
    fetch(memory, values, out, nbytes);
    if (failed)
        failed = ranks_fail("compressed");
    for (size_t i = 0; i < count && !failed; i++)
        if (!are_same(values[i], reduced(group, wire, op, seed, i)))
            failed = ranks_fail("%zu by %s, %s: element %zu is %.9g, not %.9g", count,
                                kolo_dtype_name(wire), kolo_op_name(op), i, (double)values[i],
                                (double)reduced(group, wire, op, seed, i));
    free(values);
    return failed;
}

/* ---- unscaling ------------------------------------------------------------------------------- */

struct unscaling {
    size_t n, counts[MOST_TENSORS];
    kolo_cast cast;
    kolo_tensor tensors[MOST_TENSORS];
    float found[2], factor[2];
    unsigned char contents[MOST_TENSORS][4 * 600 + 4]; /* which may be copied later */
};

/* The ranks differ in how many tensors they have; the last has an odd number, or none has. */
static void fill_tensors(struct unscaling *unscaling, const struct exam_memory *memory, int rank,
                         bool is_odd, unsigned seed)
{
    static const float odd[] = {INFINITY, -INFINITY, NAN};

    unscaling->n = (seed * 11 + (unsigned)rank * 3) % MOST_TENSORS;
    for (size_t t = 0; t < unscaling->n; t++) {
        const size_t count = (t * 37 + seed) % 600;
        unsigned char *content = unscaling->contents[t];

        for (size_t i = 0; i < count; i++)
            set(unscaling->cast.from, content, i, gradient(rank, seed + (unsigned)t, i, false));
        if (is_odd && count && t + 2 >= unscaling->n)
            set(unscaling->cast.from, content, count / 2, odd[seed % 3]);
        unscaling->counts[t] = count;
        unscaling->tensors[t].count = count;
        unscaling->tensors[t].in =
            make(memory, content, count * kolo_dtype_size(unscaling->cast.from));
        unscaling->tensors[t].out =
            make(memory, content, count * kolo_dtype_size(unscaling->cast.to));
    }
}

static int compare_tensor(const struct unscaling *unscaling, size_t t, const void *have,
                          const void *from, float factor)
{
    for (size_t i = 0; i < unscaling->counts[t]; i++) {
        const float x = get(unscaling->cast.from, from, i) * factor;
        const float want = gradient_exam_round(unscaling->cast.to, x);
        const float got = get(unscaling->cast.to, have, i);

        if (!are_same(got, want) && !(isnan(got) && isnan(want)))
            return ranks_fail("tensor %zu: element %zu is %.9g, not %.9g", t, i, (double)got,
                              (double)want);
    }
    return 0;
}

static int check_tensors(struct unscaling *unscaling, const struct exam_memory *memory,
                         float factor)
{
    unsigned char have[4 * 600 + 4], from[4 * 600 + 4];
    int failed = 0;

    for (size_t t = 0; t < unscaling->n; t++) {
        const kolo_tensor *tensor = &unscaling->tensors[t];

        fetch(memory, from, (void *)(uintptr_t)tensor->in,
              tensor->count * kolo_dtype_size(unscaling->cast.from));
        fetch(memory, have, tensor->out, tensor->count * kolo_dtype_size(unscaling->cast.to));
        if (!failed)
            failed = compare_tensor(unscaling, t, have, from, factor);
    }
    return failed;
}

/* Whether some rank has found what its tensors have. */
static bool has_odd(unsigned seed, int rank)
{
    const size_t n = (seed * 11 + (unsigned)rank * 3) % MOST_TENSORS;

    for (size_t t = n > 2 ? n - 2 : 0; t < n; t++)
        if ((t * 37 + seed) % 600)
            return true;
    return false;
}

int gradient_exam_unscale(kolo_group *group, const struct exam_memory *memory, unsigned seed)
{
    const int last = kolo_group_size(group) - 1;
    const bool is_odd = seed % 2;
    struct unscaling *unscaling = calloc(1, sizeof *unscaling);
    kolo_work *work = NULL;
    float *found, *factor;
    int failed;

    if (!unscaling)
        abort();
    unscaling->cast =
        (kolo_cast){.from = dtypes[seed % 3], .to = dtypes[seed / 3 % 3], .factor = 1.0F / 3};
    unscaling->factor[0] = 0.75F;
    fill_tensors(unscaling, memory, kolo_group_rank(group),
                 is_odd && kolo_group_rank(group) == last, seed);
    found = make(memory, unscaling->found, sizeof *found);
    factor = make(memory, unscaling->factor, sizeof *factor);
    unscaling->cast.factor_at = factor;
    failed = seed % 5
                 ? kolo_unscale(group, unscaling->tensors, unscaling->n, &unscaling->cast, found)
                 : kolo_unscale_async(group, unscaling->tensors, unscaling->n, &unscaling->cast,
                                      found, &work);
    failed = await(work, failed) ? ranks_fail("unscale") : 0;
    fetch(memory, unscaling->found, found, sizeof *found);
    fetch(memory, unscaling->factor, factor, sizeof *factor);
    failed |= check_tensors(unscaling, memory, 1.0F / 3 * 0.75F);
    if (!failed && unscaling->found[0] != (float)(is_odd && has_odd(seed, last)))
        failed = ranks_fail("found %g", (double)unscaling->found[0]);
    free(unscaling);
    return failed;
}
