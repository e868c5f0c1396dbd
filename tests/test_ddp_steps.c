/* SPDX-License-Identifier: MIT
 *
 * Data-parallel training whose buckets take an optimizer's step: in arenas, where the call that
 * reduces does it, or scattered; as threads and processes; by gradients that travel as they are, or
 * as a smaller float. Gradients are small integers, so that averages are exact.
 */
#include "gradient_exam.h"
#include "ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { NSTEPPED = 5 };

/* What lies side by side: all; nothing; all but states. */
enum layout { IN_ARENAS, SCATTERED, STATES_SCATTERED, NLAYOUTS };

struct stepping {
    kolo_ddp_options options;
    kolo_optimizer optimizer;
    enum layout layout;
};

/* Parameters, gradients and states in arenas of their own. */
struct stepped {
    kolo_param params[NSTEPPED];
    float arenas[4][4096], want[3][4096];
    size_t used;
};

static void stepped_make(struct stepped *model, enum layout layout)
{
    static const size_t counts[NSTEPPED] = {700, 3, 0, 1201, 1};
    static const char *const names[NSTEPPED] = {"a", "b", "c", "d", "e"};

    memset(model, 0, sizeof *model);
    for (size_t i = 0; i < NSTEPPED; i++) {
        const size_t state = model->used + (layout == STATES_SCATTERED ? 5 * i : 0);

        model->params[i] =
            (kolo_param){.name = names[i],
                         .data = model->arenas[0] + model->used,
                         .grad = model->arenas[1] + model->used,
                         .count = counts[i],
                         .dtype = KOLO_FLOAT32,
                         .states = {model->arenas[2] + state, model->arenas[3] + state}};
        model->used += counts[i] + (layout == SCATTERED ? 3 : 0);
    }
    for (size_t e = 0; e < model->used; e++)
        model->arenas[0][e] = model->want[0][e] = (float)(e % 19) / 7;
}

/* Of all gradients the average is exact, as float16 too. */
static float part_of_gradient(int rank, size_t e, uint64_t number)
{
    return (float)((int)((e * 3 + (size_t)number) % 16) * (rank * 2 + 1));
}

/* By averages that are n times the gradient of rank 0. */
static void stepped_expect(struct stepped *model, int size, const kolo_step *step)
{
    for (size_t i = 0; i < NSTEPPED; i++)
        for (size_t k = 0; k < model->params[i].count; k++) {
            const size_t e = (size_t)((float *)model->params[i].data - model->arenas[0]) + k;
            float states[2] = {model->want[1][e], model->want[2][e]};

            model->want[0][e] =
                gradient_exam_move(step, model->want[0][e],
                                   (float)size * part_of_gradient(0, e, step->number), states);
            model->want[1][e] = states[0];
            model->want[2][e] = states[1];
        }
}

static int take_one(kolo_group *group, struct stepped *model, kolo_ddp *ddp, const kolo_step *step)
{
    int failed = kolo_ddp_set_step(ddp, step) ? ranks_fail("set_step") : 0;

    for (size_t i = NSTEPPED; i-- > 0 && !failed;) {
        const kolo_param *param = &model->params[i];
        const size_t at = (size_t)((float *)param->data - model->arenas[0]);
        float *grad = param->grad;

        for (size_t k = 0; k < param->count; k++)
            grad[k] = part_of_gradient(kolo_group_rank(group), at + k, step->number);
        if (kolo_ddp_ready(ddp, i))
            failed = ranks_fail("ready");
    }
    if (!failed)
        failed = ranks_expect(kolo_ddp_set_step(ddp, step), KOLO_E_INVALID, "under way");
    if (!failed && kolo_ddp_wait(ddp))
        failed = ranks_fail("wait");
    stepped_expect(model, kolo_group_size(group), step);
    return failed;
}

static int compare(const struct stepped *model, int nstates)
{
    for (size_t i = 0; i < NSTEPPED; i++) {
        const kolo_param *param = &model->params[i];
        const size_t at = (size_t)((float *)param->data - model->arenas[0]);
        const size_t nbytes = param->count * sizeof(float);

        if (memcmp(param->data, model->want[0] + at, nbytes) != 0)
            return ranks_fail("parameter %zu", i);
        for (int s = 0; s < nstates; s++)
            if (memcmp(param->states[s], model->want[1 + s] + at, nbytes) != 0)
                return ranks_fail("state %d of parameter %zu", s, i);
    }
    return 0;
}

/* Gradients become averages, and nothing else changes. */
static int take_none(struct stepped *model, kolo_ddp *ddp, int nstates)
{
    if (kolo_ddp_set_step(ddp, NULL))
        return ranks_fail("no step any more");
    for (size_t i = NSTEPPED; i-- > 0;)
        if (kolo_ddp_ready(ddp, i))
            return ranks_fail("ready");
    return kolo_ddp_wait(ddp) ? ranks_fail("wait") : compare(model, nstates);
}

static int take_steps(kolo_group *group, void *argument)
{
    const struct stepping *stepping = argument;
    kolo_step step = {.optimizer = stepping->optimizer,
                      .rate = 0.125F,
                      .momentum = 0.5F,
                      .beta1 = 0.5F,
                      .beta2 = 0.75F,
                      .epsilon = 0.01F};
    const int nstates = stepping->optimizer == KOLO_ADAM ? 2 : 1;
    struct stepped model;
    kolo_ddp *ddp;
    int failed = 0;

    stepped_make(&model, stepping->layout);
    if (kolo_ddp_create(group, model.params, NSTEPPED, &stepping->options, &ddp))
        return ranks_fail("create");
    for (step.number = 1; step.number <= 3 && !failed; step.number++)
        failed = take_one(group, &model, ddp, &step);
    if (!failed)
        failed = compare(&model, nstates);
    if (!failed)
        failed = take_none(&model, ddp, nstates);
    kolo_ddp_free(ddp);
    return failed;
}

static void buckets_take_steps(void **state)
{
    static const kolo_dtype wires[] = {0, KOLO_FLOAT16, KOLO_BFLOAT16};

    (void)state;
    exam_set_variables("shm", "", 4096);
    for (int i = 0; i < 24; i++) {
        struct stepping stepping = {.options = {.first_bucket_bytes = 3000,
                                                .bucket_bytes = 3000,
                                                .no_overlap = i / 2 % 2,
                                                .wire = wires[i % 3]},
                                    .optimizer = i % 2 ? KOLO_ADAM : KOLO_SGD,
                                    .layout = (enum layout)(i / 4 % NLAYOUTS)};

        for (int n = 1; n <= 3; n++)
            assert_int_equal(
                ranks_run(&(struct ranks){.kind = i < 12 ? RANKS_THREADS : RANKS_PROCESSES, .n = n},
                          take_steps, &stepping),
                0);
    }
}

/* As float16 there is no 2049. */
static int take_a_rounded_step(kolo_group *group, void *unused)
{
    const kolo_ddp_options options = {.wire = KOLO_FLOAT16};
    const kolo_step step = {.optimizer = KOLO_SGD, .number = 1, .rate = 1};
    float data = 0, grad = 2049;
    const kolo_param param = {
        .name = "w", .data = &data, .grad = &grad, .count = 1, .dtype = KOLO_FLOAT32};
    kolo_ddp *ddp;
    int failed;

    (void)unused;
    if (kolo_ddp_create(group, &param, 1, &options, &ddp))
        return ranks_fail("create");
    failed = kolo_ddp_set_step(ddp, &step) || kolo_ddp_ready(ddp, 0) || kolo_ddp_wait(ddp);
    kolo_ddp_free(ddp);
    return failed || data != -2048 ? ranks_fail("%g: %s", (double)data, kolo_last_error()) : 0;
}

static void steps_are_by_what_has_travelled(void **state)
{
    (void)state;
    assert_int_equal(
        ranks_run(&(struct ranks){.kind = RANKS_THREADS, .n = 2}, take_a_rounded_step, NULL), 0);
}

/* Nothing has been averaged: nothing is stepped by. */
static int abort_a_step(kolo_group *group, void *argument)
{
    const kolo_ddp_options options = {.no_overlap = 1};
    const kolo_step step = {.optimizer = KOLO_SGD, .number = 1, .rate = 1};
    struct stepped model;
    kolo_ddp *ddp;
    int failed = 0, met;

    (void)argument;
    stepped_make(&model, SCATTERED);
    if (kolo_ddp_create(group, model.params, NSTEPPED, &options, &ddp))
        return ranks_fail("create");
    failed |= kolo_ddp_set_step(ddp, &step);
    for (size_t i = 0; i < NSTEPPED; i++) {
        *(float *)model.params[i].grad = 1;
        failed |= kolo_ddp_ready(ddp, i);
    }
    met = kolo_barrier(group); /* whose first to leave may abort while the other is in it */
    failed |= met && met != KOLO_E_ABORTED;
    kolo_group_abort(group, "enough");
    failed |= ranks_expect(kolo_ddp_wait(ddp), KOLO_E_ABORTED, "enough");
    failed |= compare(&model, 1);
    kolo_ddp_free(ddp);
    return failed;
}

static void what_is_not_averaged_is_not_stepped_by(void **state)
{
    (void)state;
    assert_int_equal(ranks_run(&(struct ranks){.kind = RANKS_THREADS, .n = 2}, abort_a_step, NULL),
                     0);
}

/* ---- wrong steps ----------------------------------------------------------------------------- */

static int refuse_step(kolo_group *group, kolo_dtype dtype, int code, const char *text)
{
    static float values[2];
    const kolo_param param = {
        .name = "w", .data = values, .grad = values + 1, .count = 1, .dtype = dtype};
    const kolo_step step = {.optimizer = KOLO_SGD, .number = 1, .momentum = 0.5F};
    kolo_ddp *ddp;
    int failed;

    if (kolo_ddp_create(group, &param, 1, NULL, &ddp))
        return ranks_fail("create");
    failed = ranks_expect(kolo_ddp_set_step(ddp, &step), code, text);
    kolo_ddp_free(ddp);
    return failed;
}

static int refuse(kolo_group *group, void *unused)
{
    const kolo_ddp_options options = {.wire = KOLO_FLOAT64};
    kolo_ddp *ddp;
    int failed;

    (void)unused;
    failed = ranks_expect(kolo_ddp_create(group, NULL, 0, &options, &ddp), KOLO_E_INVALID,
                          "ddp: float32 travels as float16 or bfloat16, not as float64");
    if (!failed)
        failed = refuse_step(group, KOLO_FLOAT32, KOLO_E_INVALID,
                             "kolo_ddp_set_step: states[0] is NULL");
    if (!failed)
        failed = refuse_step(group, KOLO_BFLOAT16, KOLO_E_UNSUPPORTED,
                             "parameter 0 (w) is of dtype bfloat16");
    return failed;
}

static void wrong_steps_are_refused(void **state)
{
    (void)state;
    assert_int_equal(ranks_run(&(struct ranks){.kind = RANKS_THREADS, .n = 1}, refuse, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buckets_take_steps),
        cmocka_unit_test(steps_are_by_what_has_travelled),
        cmocka_unit_test(what_is_not_averaged_is_not_stepped_by),
        cmocka_unit_test(wrong_steps_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
