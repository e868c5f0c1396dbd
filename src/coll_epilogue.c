/* SPDX-License-Identifier: MIT */
#include "coll_epilogue.h"

#include "clock.h"
#include "elements.h"
#include "fingerprint.h"
#include "gpu.h"
#include "status.h"

#include <math.h>
#include <string.h>

/* ---- calls ------------------------------------------------------------------------------- */

/* A number for the options. */
static uint32_t number_of(const struct ko_epilogue *epilogue)
{
    const kolo_step *step = &epilogue->step;
    const uint64_t facts[] = {epilogue->wire,
                              epilogue->has_step,
                              step->optimizer,
                              step->number,
                              step->nesterov != 0,
                              step->decoupled != 0,
                              ko_float_bits(step->rate),
                              ko_float_bits(step->weight_decay),
                              ko_float_bits(step->momentum),
                              ko_float_bits(step->dampening),
                              ko_float_bits(step->beta1),
                              ko_float_bits(step->beta2),
                              ko_float_bits(step->epsilon),
                              ko_float_bits(step->factor)};
    uint64_t print = KO_FINGERPRINT_BEGIN;

    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
        print = ko_fingerprint_add(print, facts[i]);
    return ko_fingerprint_end(print);
}

void ko_call_set_epilogue(struct ko_call *call, const struct ko_epilogue *epilogue)
{
    call->epilogue = epilogue;
    call->options = number_of(epilogue);
}

size_t ko_epilogue_bytes(const struct ko_epilogue *epilogue)
{
    return sizeof *epilogue + epilogue->ntensors * sizeof *epilogue->tensors;
}

const struct ko_epilogue *ko_epilogue_keep(const struct ko_epilogue *epilogue, void *memory)
{
    struct ko_epilogue *kept = memory;

    *kept = *epilogue;
    if (kept->ntensors)
        memcpy(kept + 1, epilogue->tensors, kept->ntensors * sizeof *kept->tensors);
    kept->tensors = (const kolo_tensor *)(const void *)(kept + 1);
    return kept;
}

const void *ko_epilogue_array(const struct ko_call *call, size_t i, size_t *count,
                              kolo_dtype *dtype)
{
    const struct ko_epilogue *epilogue = call->epilogue;
    const size_t counts[] = {call->count, call->count, 1, 1, 1};
    const void *const own[] = {epilogue->states[0], epilogue->states[1], epilogue->step.factor_at,
                               epilogue->step.skip_at, epilogue->cast.factor_at};
    size_t n = 0;

    *dtype = KOLO_FLOAT32;
    for (size_t k = 0; k < sizeof own / sizeof *own; k++) {
        *count = counts[k];
        if (own[k] && n++ == i)
            return own[k];
    }
    for (size_t t = 0; t < epilogue->ntensors; t++)
        if (epilogue->tensors[t].count) {
            *count = epilogue->tensors[t].count;
            *dtype = epilogue->cast.from;
            if (n++ == i)
                return epilogue->tensors[t].in;
            *dtype = epilogue->cast.to;
            if (n++ == i)
                return epilogue->tensors[t].out;
        }
    return NULL;
}

/* ---- the kernels' arguments -------------------------------------------------------------- */

static uint64_t address(const void *at)
{
    return (uintptr_t)at;
}

/* What does not depend on where the arrays are. */
static struct ko_step step_of(const kolo_step *step)
{
    const double t = (double)step->number;

    return (struct ko_step){.factor_at = address(step->factor_at),
                            .skip_at = address(step->skip_at),
                            .rule = {.is_first = step->number == 1,
                                     .is_nesterov = step->nesterov != 0,
                                     .is_decoupled = step->decoupled != 0,
                                     .factor = step->factor == 0 ? 1 : step->factor,
                                     .rate = step->rate,
                                     .decay = step->weight_decay,
                                     .momentum = step->momentum,
                                     .dampening = step->dampening,
                                     .beta1 = step->beta1,
                                     .beta2 = step->beta2,
                                     .epsilon = step->epsilon,
                                     .bias1 = (float)(1 - pow((double)step->beta1, t)),
                                     .bias2_root = (float)sqrt(1 - pow((double)step->beta2, t))}};
}

/* By one gradient, which has been reduced. */
static struct ko_step step_by(const kolo_update *update, const kolo_step *options)
{
    struct ko_step step = step_of(options);

    step.parts[0] = address(update->grad);
    step.outs[0] = address(update->param);
    for (int s = 0; s < 2; s++)
        step.states[s][0] = address(update->states[s]);
    step.count = update->count;
    step.nparts = step.nouts = 1;
    return step;
}

static kolo_update update_of(const struct ko_call *call)
{
    return (kolo_update){.grad = (void *)(uintptr_t)call->in,
                         .param = call->out,
                         .states = {call->epilogue->states[0], call->epilogue->states[1]},
                         .count = call->count};
}

static enum ko_step_rule rule_of(const kolo_step *step)
{
    return step->optimizer == KOLO_ADAM ? KO_ADAM_RULE : KO_SGD_RULE;
}

/* Some tensors, from the first on; returns how many. */
static uint32_t scale_of(const struct ko_call *call, size_t first, struct ko_scale *scale)
{
    const struct ko_epilogue *epilogue = call->epilogue;
    const size_t left = epilogue->ntensors - first;

    *scale = (struct ko_scale){.n = left < KO_FOLD_MOST ? (uint32_t)left : KO_FOLD_MOST,
                               .factor = epilogue->cast.factor,
                               .factor_at = address(epilogue->cast.factor_at),
                               .found_at = address(call->out)};
    for (uint32_t i = 0; i < scale->n; i++) {
        const kolo_tensor *tensor = &epilogue->tensors[first + i];

        scale->from[i] = address(tensor->in);
        scale->to[i] = address(tensor->out);
        scale->counts[i] = tensor->count;
    }
    return scale->n;
}

/* ---- around an all_reduce ---------------------------------------------------------------- */

static ko_cu_stream stream_of(kolo_group *group, const struct ko_call *call)
{
    return ko_call_is_in_stream(call) ? ko_gpu_user_stream(group->gpu)
                                      : ko_gpu_own_stream(group->gpu);
}

/* Of what has been put into that stream; a graph's comes later. */
static int finish(kolo_group *group, const struct ko_call *call, int err)
{
    const ko_deadline deadline = ko_deadline_in(kolo_group_timeout(group));

    if (!err && !ko_call_is_in_stream(call))
        err = ko_gpu_finish(group->gpu, &deadline);
    return err ? ko_group_fail(group, err, kolo_last_error()) : KOLO_OK;
}

static int await_input(kolo_group *group, const struct ko_call *call)
{
    const ko_deadline deadline = ko_deadline_in(kolo_group_timeout(group));

    return ko_call_is_in_stream(call) ? KOLO_OK
                                      : ko_gpu_await_mark(group->gpu, call->mark, &deadline);
}

/* float32 to something else, or back. */
static int cast(kolo_group *group, const struct ko_call *call, kolo_dtype from, kolo_dtype to,
                const struct ko_scale *scale)
{
    int err;

    if (!call->is_on_gpu) {
        ko_gradients_scale(from, to, scale);
        return KOLO_OK;
    }
    err = ko_gpu_enter(group->gpu);
    if (!err) {
        err = ko_cuda_scale(from, to, *scale, stream_of(group, call));
        ko_gpu_leave(group->gpu);
    }
    return finish(group, call, err);
}

/* Memory for all elements as smaller ones, where the others are. */
static int find_memory(kolo_group *group, const struct ko_call *call, void **memory)
{
    const size_t nbytes = call->count * kolo_dtype_size(call->epilogue->wire) + 1;
    const enum ko_gpu_purpose purpose =
        call->is_captured ? KO_GPU_FOR_CAPTURED_CASTS : KO_GPU_FOR_CASTS;
    unsigned char *on_host;
    ko_cu_ptr on_gpu;
    int err = call->is_on_gpu ? ko_gpu_scratch(group->gpu, purpose, nbytes, &on_gpu)
                              : ko_group_scaled(group, nbytes, &on_host);

    if (!err)
        *memory = call->is_on_gpu ? (void *)(uintptr_t)on_gpu : on_host;
    return err;
}

static struct ko_scale scale_by(const void *from, void *to, size_t count)
{
    return (struct ko_scale){
        .from = {address(from)}, .to = {address(to)}, .counts = {count}, .factor = 1, .n = 1};
}

int ko_coll_run_cast(kolo_group *group, const struct ko_call *call, ko_way *way, ko_run *run)
{
    const bool has_step = ko_call_has_step(call);
    const kolo_dtype dtype = call->dtype, wire = call->epilogue->wire;
    struct ko_call smaller = *call;
    struct ko_scale there, back;
    void *memory = NULL;
    int err = find_memory(group, call, &memory);

    if (!err && call->is_on_gpu)
        err = await_input(group, call);
    if (err)
        return ko_group_fail(group, err, kolo_last_error());
    smaller.in = memory;
    smaller.out = has_step ? call->out : memory;
    smaller.dtype = wire;
    there = scale_by(call->in, memory, call->count);
    back = scale_by(memory, call->out, call->count);
    err = cast(group, call, dtype, wire, &there);
    if (!err)
        err = way(group, &smaller, run);
    return err || has_step ? err : cast(group, call, wire, dtype, &back);
}

static void take_step(const kolo_update *update, kolo_dtype dtype, const kolo_step *options)
{
    const struct ko_step step = step_by(update, options);

    ko_gradients_step(rule_of(options), dtype, &step);
}

void ko_step_take(const kolo_update *update, const kolo_step *step)
{
    take_step(update, KOLO_FLOAT32, step);
}

/* By a gradient that the call's in is now. */
static int take_step_of(kolo_group *group, const struct ko_call *call)
{
    const kolo_step *step = &call->epilogue->step;
    const struct ko_gradients gradients = {
        .rule = rule_of(step), .dtype = call->dtype, .wire = call->dtype, .op = KOLO_SUM};
    const kolo_update update = update_of(call);
    int err;

    if (!call->is_on_gpu) {
        take_step(&update, call->dtype, step);
        return KOLO_OK;
    }
    err = ko_gpu_enter(group->gpu);
    if (!err) {
        err = ko_cuda_step(&gradients, step_by(&update, step), stream_of(group, call));
        ko_gpu_leave(group->gpu);
    }
    return finish(group, call, err);
}

int ko_coll_run_then_step(kolo_group *group, const struct ko_call *call, ko_way *way, ko_run *run)
{
    const struct ko_epilogue rest = {.name = call->epilogue->name, .wire = call->dtype};
    struct ko_call reduction = *call;
    int err;

    reduction.out = (void *)(uintptr_t)call->in; /* which the caller lends for that */
    reduction.epilogue = &rest;
    err = way(group, &reduction, run);
    return err ? err : take_step_of(group, call);
}

/* ---- in the same pass -------------------------------------------------------------------- */

int ko_coll_begin_fused(kolo_group *group, const struct ko_call *call,
                        const struct ko_gpu_plan *plan, int i, ko_cu_stream stream)
{
    const kolo_dtype wire = call->epilogue->wire;
    const struct ko_gradients gradients = {.rule = rule_of(&call->epilogue->step),
                                           .dtype = call->dtype,
                                           .wire = wire,
                                           .op = call->op,
                                           .nranks = group->size};
    struct ko_step step;
    struct ko_fold fold;

    if (call->epilogue->has_step) {
        step = step_of(&call->epilogue->step);
        ko_gpu_plan_step(plan, i, group->rank, &step);
        return ko_cuda_step(&gradients, step, stream);
    }
    ko_gpu_step(plan, i, &fold);
    return ko_cuda_fold_rounded(wire, call->op, fold, group->size, stream);
}

/* ---- before ------------------------------------------------------------------------------ */

static int begin_unscaling(kolo_group *group, const struct ko_call *call, ko_cu_stream stream)
{
    const kolo_cast *cast = &call->epilogue->cast;
    struct ko_scale scale;
    int err = ko_gpu_enter(group->gpu);

    if (err)
        return err;
    for (size_t i = 0; i < call->epilogue->ntensors && !err; i += scale.n) {
        scale_of(call, i, &scale);
        err = ko_cuda_scale(cast->from, cast->to, scale, stream);
    }
    ko_gpu_leave(group->gpu);
    return err;
}

static int unscale_on_gpu(kolo_group *group, const struct ko_call *call)
{
    int err = await_input(group, call);

    if (!err)
        err = begin_unscaling(group, call, stream_of(group, call));
    return finish(group, call, err);
}

int ko_coll_unscale(kolo_group *group, const struct ko_call *call)
{
    const struct ko_epilogue *epilogue = call->epilogue;
    struct ko_scale scale;

    if (call->is_on_gpu)
        return epilogue->ntensors ? unscale_on_gpu(group, call) : KOLO_OK;
    for (size_t i = 0; i < epilogue->ntensors; i += scale.n) {
        scale_of(call, i, &scale);
        ko_gradients_scale(epilogue->cast.from, epilogue->cast.to, &scale);
    }
    return KOLO_OK;
}
