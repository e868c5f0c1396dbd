/* SPDX-License-Identifier: MIT
 *
 * The public collectives of training: each is an all_reduce with an epilogue, whose arguments are
 * checked here.
 */
#include "coll_epilogue.h"

#include "coll_places.h"
#include "dtype.h"
#include "gradients.h"
#include "status.h"

static int check_sum(const char *name, kolo_op op)
{
    if (op == KOLO_SUM || op == KOLO_AVG)
        return KOLO_OK;
    return ko_fail(KOLO_E_INVALID, "%s: op must be KOLO_SUM or KOLO_AVG", name);
}

int ko_wire_check(const char *name, kolo_dtype wire)
{
    if (wire == KOLO_FLOAT16 || wire == KOLO_BFLOAT16)
        return KOLO_OK;
    return ko_fail(KOLO_E_INVALID, "%s: float32 travels as float16 or bfloat16, not as %s", name,
                   ko_dtype_is_valid(wire) ? kolo_dtype_name(wire) : "what is no dtype");
}

static int check_work(const char *name, kolo_work **work)
{
    return work ? KOLO_OK : ko_fail(KOLO_E_INVALID, "%s_async: work is NULL", name);
}

static int call_with(kolo_group *group, struct ko_call *call, const struct ko_epilogue *epilogue,
                     kolo_work **work)
{
    ko_call_set_epilogue(call, epilogue);
    return ko_coll_call(group, call, work);
}

/* ---- a step ------------------------------------------------------------------------------ */

static const char step_name[] = "all_reduce_step";

static int check_states(const char *name, const kolo_update *update, const kolo_step *step)
{
    const int n = step->optimizer == KOLO_ADAM ? 2 : step->momentum != 0;

    for (int s = 0; s < n; s++)
        if (update->count && !update->states[s])
            return ko_fail(KOLO_E_INVALID, "%s: states[%d] is NULL", name, s);
    return KOLO_OK;
}

int ko_step_check(const char *name, const kolo_update *update, kolo_dtype dtype,
                  const kolo_step *step)
{
    int err = KOLO_OK;

    if (!update || !step)
        return ko_fail(KOLO_E_INVALID, "%s: %s is NULL", name, update ? "step" : "update");
    if (step->optimizer != KOLO_SGD && step->optimizer != KOLO_ADAM)
        return ko_fail(KOLO_E_INVALID, "%s: %d is no optimizer", name, (int)step->optimizer);
    if (!step->number)
        return ko_fail(KOLO_E_INVALID, "%s: steps are numbered from 1 on", name);
    if (ko_dtype_is_valid(dtype)) /* else that is told later */
        err = ko_gradients_check(dtype);
    if (!err && step->wire)
        err = dtype == KOLO_FLOAT32 ? ko_wire_check(name, step->wire)
                                    : ko_fail(KOLO_E_INVALID, "%s: wire is for float32", name);
    return err ? err : check_states(name, update, step);
}

static int call_step(kolo_group *group, const kolo_update *update, kolo_dtype dtype, kolo_op op,
                     const kolo_step *step, kolo_work **work)
{
    struct ko_call call = {.what = KO_ALL_REDUCE, .dtype = dtype, .op = op};
    struct ko_epilogue epilogue = {.name = step_name, .has_step = true};
    int err = ko_step_check(step_name, update, dtype, step);

    if (!err)
        err = check_sum(step_name, op);
    if (err)
        return err;
    call.in = update->grad;
    call.out = update->param;
    call.count = update->count;
    epilogue.wire = step->wire ? step->wire : dtype;
    epilogue.step = *step;
    epilogue.states[0] = update->states[0];
    epilogue.states[1] = step->optimizer == KOLO_ADAM ? update->states[1] : NULL;
    return call_with(group, &call, &epilogue, work);
}

int kolo_all_reduce_step(kolo_group *group, const kolo_update *update, kolo_dtype dtype, kolo_op op,
                         const kolo_step *step)
{
    return call_step(group, update, dtype, op, step, NULL);
}

int kolo_all_reduce_step_async(kolo_group *group, const kolo_update *update, kolo_dtype dtype,
                               kolo_op op, const kolo_step *step, kolo_work **work)
{
    int err = check_work(step_name, work);

    return err ? err : call_step(group, update, dtype, op, step, work);
}

/* ---- as a smaller float ------------------------------------------------------------------ */

static const char compressed_name[] = "all_reduce_compressed";

static int call_compressed(kolo_group *group, struct ko_call *call, kolo_dtype wire,
                           kolo_work **work)
{
    const struct ko_epilogue epilogue = {.name = compressed_name, .wire = wire};
    int err = ko_wire_check(compressed_name, wire);

    if (!err)
        err = check_sum(compressed_name, call->op);
    return err ? err : call_with(group, call, &epilogue, work);
}

int kolo_all_reduce_compressed(kolo_group *group, const float *in, float *out, size_t count,
                               kolo_dtype wire, kolo_op op)
{
    struct ko_call call = {.what = KO_ALL_REDUCE,
                           .in = in,
                           .out = out,
                           .count = count,
                           .dtype = KOLO_FLOAT32,
                           .op = op};

    return call_compressed(group, &call, wire, NULL);
}

// NOLINTNEXTLINE(readability-function-size): the public signature
int kolo_all_reduce_compressed_async(kolo_group *group, const float *in, float *out, size_t count,
                                     kolo_dtype wire, kolo_op op, kolo_work **work)
{
    struct ko_call call = {.what = KO_ALL_REDUCE,
                           .in = in,
                           .out = out,
                           .count = count,
                           .dtype = KOLO_FLOAT32,
                           .op = op};
    int err = check_work(compressed_name, work);

    return err ? err : call_compressed(group, &call, wire, work);
}

/* ---- unscaling --------------------------------------------------------------------------- */

static const char unscale_name[] = "unscale";

/* Whether an element of out is where one of in still is to be read. */
static bool is_overwritten(const kolo_tensor *tensor, const kolo_cast *cast)
{
    const size_t in_bytes = tensor->count * kolo_dtype_size(cast->from);
    const size_t out_bytes = tensor->count * kolo_dtype_size(cast->to);
    const struct ko_places places = {in_bytes, out_bytes,
                                     cast->from == cast->to ? 0 : out_bytes /* behind it */};

    return tensor->count && !ko_places_allow(&places, tensor->in, tensor->out);
}

static int check_tensor(const kolo_tensor *tensor, size_t i, const kolo_cast *cast)
{
    if (tensor->count > SIZE_MAX / sizeof(float))
        return ko_fail(KOLO_E_INVALID, "%s: tensor %zu of %zu elements is more than memory has",
                       unscale_name, i, tensor->count);
    if (tensor->count && (!tensor->in || !tensor->out))
        return ko_fail(KOLO_E_INVALID, "%s: tensor %zu has no %s", unscale_name, i,
                       tensor->in ? "out" : "in");
    if (is_overwritten(tensor, cast))
        return ko_fail(KOLO_E_INVALID,
                       "%s: in and out of tensor %zu overlap, and are not both the same memory and "
                       "of one type",
                       unscale_name, i);
    return KOLO_OK;
}

static int check_unscaling(const kolo_tensor *tensors, size_t ntensors, const kolo_cast *cast,
                           const float *found_inf)
{
    int err;

    if (!cast || !found_inf || (ntensors && !tensors))
        return ko_fail(KOLO_E_INVALID, "%s: %s is NULL", unscale_name,
                       !cast        ? "cast"
                       : !found_inf ? "found_inf"
                                    : "tensors");
    err = ko_gradients_check(cast->from);
    if (!err)
        err = ko_gradients_check(cast->to);
    for (size_t i = 0; i < ntensors && !err; i++)
        err = check_tensor(&tensors[i], i, cast);
    return err;
}

static int call_unscale(kolo_group *group, const struct ko_epilogue *epilogue, float *found_inf,
                        kolo_work **work)
{
    struct ko_call call = {.what = KO_ALL_REDUCE,
                           .in = found_inf,
                           .out = found_inf,
                           .count = 1,
                           .dtype = KOLO_FLOAT32,
                           .op = KOLO_MAX};

    return call_with(group, &call, epilogue, work);
}

int kolo_unscale(kolo_group *group, const kolo_tensor *tensors, size_t ntensors,
                 const kolo_cast *cast, float *found_inf)
{
    struct ko_epilogue epilogue = {
        .name = unscale_name, .wire = KOLO_FLOAT32, .tensors = tensors, .ntensors = ntensors};
    int err = check_unscaling(tensors, ntensors, cast, found_inf);

    if (err)
        return err;
    epilogue.cast = *cast;
    return call_unscale(group, &epilogue, found_inf, NULL);
}

int kolo_unscale_async(kolo_group *group, const kolo_tensor *tensors, size_t ntensors,
                       const kolo_cast *cast, float *found_inf, kolo_work **work)
{
    struct ko_epilogue epilogue = {
        .name = unscale_name, .wire = KOLO_FLOAT32, .tensors = tensors, .ntensors = ntensors};
    int err = check_work(unscale_name, work);

    if (!err)
        err = check_unscaling(tensors, ntensors, cast, found_inf);
    if (err)
        return err;
    epilogue.cast = *cast;
    return call_unscale(group, &epilogue, found_inf, work);
}
