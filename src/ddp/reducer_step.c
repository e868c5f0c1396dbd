/* SPDX-License-Identifier: MIT
 *
 * An optimizer's step in data-parallel training, where it is not taken in arenas by the call that
 * reduces: on the host member by member afterwards, on a GPU by that call on copies.
 */
#include "coll_epilogue.h"
#include "ddp/reducer_parts.h"
#include "status.h"

/* ---- taking it --------------------------------------------------------------------------- */

int ko_ddp_copy(struct kolo_ddp *ddp, size_t b, bool is_in)
{
    const struct ko_pending *pending = &ddp->pending[b];
    const struct ko_bucket *bucket = &ddp->plan.buckets[b];
    int err = KOLO_OK;

    for (int p = 0; p < KO_NPARTS && !err; p++) {
        const enum ko_param_part part = (enum ko_param_part)p;
        char *copy = pending->copies[p];

        if (copy)
            err = is_in ? ko_parts_gather(pending->gpu, ddp->params, bucket, part, copy)
                        : ko_parts_scatter(pending->gpu, ddp->params, bucket, part, copy);
    }
    return ko_ddp_check_copies(ddp, err);
}

void ko_ddp_step_members(const struct kolo_ddp *ddp, size_t b)
{
    const struct ko_bucket *bucket = &ddp->plan.buckets[b];

    for (size_t m = 0; m < bucket->nmembers; m++) {
        const kolo_param *param = &ddp->params[bucket->members[m]];
        const kolo_update update = {.grad = param->grad,
                                    .param = param->data,
                                    .states = {param->states[0], param->states[1]},
                                    .count = param->count};

        ko_step_take(&update, &ddp->step);
    }
}

/* ---- choosing it ------------------------------------------------------------------------- */

static int check_step(const struct kolo_ddp *ddp, const kolo_step *step)
{
    int err = KOLO_OK;

    for (size_t i = 0; i < ddp->nparams && !err; i++) {
        const kolo_param *param = &ddp->params[i];
        const kolo_update update = {.states = {param->states[0], param->states[1]},
                                    .count = param->count};

        if (param->dtype != KOLO_FLOAT32)
            return ko_fail(KOLO_E_UNSUPPORTED,
                           "kolo_ddp_set_step: parameter %zu (%s) is of dtype %s; steps are for "
                           "float32",
                           i, param->name, kolo_dtype_name(param->dtype));
        err = ko_step_check("kolo_ddp_set_step", &update, param->dtype, step);
    }
    return err;
}

static int make_copies(struct kolo_ddp *ddp, const struct ko_bucket *bucket,
                       struct ko_pending *pending)
{
    const size_t nbytes = ko_bucket_bytes(bucket);
    int err = KOLO_OK;

    if (!pending->memory) /* of a group of one rank, which has had no need of it */
        err = ko_parts_alloc(pending->gpu, nbytes, &pending->memory);
    for (int part = 0; part < KO_NPARTS && !err; part++)
        if (part != KO_PART_GRAD && !pending->copies[part] &&
            ko_parts_exist(ddp->params, bucket, (enum ko_param_part)part))
            err = ko_parts_alloc(pending->gpu, nbytes, &pending->copies[part]);
    if (err)
        return err;
    pending->update.grad = pending->memory;
    pending->update.param = (float *)(void *)pending->copies[KO_PART_DATA];
    for (int s = 0; s < 2; s++)
        pending->update.states[s] = (float *)(void *)pending->copies[KO_PART_STATES + s];
    pending->has_copies = true;
    return KOLO_OK;
}

/* The host has no step of its own for what is on a GPU. */
static int make_all_copies(struct kolo_ddp *ddp)
{
    int err = KOLO_OK;

    for (size_t b = 0; b < ddp->plan.nbuckets && !err; b++)
        if (ddp->pending[b].gpu && !ddp->pending[b].in_arenas && !ddp->pending[b].has_copies)
            err = make_copies(ddp, &ddp->plan.buckets[b], &ddp->pending[b]);
    return err;
}

int kolo_ddp_set_step(kolo_ddp *ddp, const kolo_step *step)
{
    int err;

    if (!ddp)
        return ko_fail(KOLO_E_INVALID, "kolo_ddp_set_step: ddp is NULL");
    err = step ? check_step(ddp, step) : KOLO_OK;
    if (!err && ddp->nready)
        err = ko_fail(KOLO_E_INVALID,
                      "kolo_ddp_set_step: parameters are ready for the step that is under way");
    if (!err && step)
        err = make_all_copies(ddp);
    if (err)
        return err;
    ddp->has_step = step != NULL;
    if (step) {
        ddp->step = *step;
        ddp->step.wire = ddp->wire;
    }
    return KOLO_OK;
}
