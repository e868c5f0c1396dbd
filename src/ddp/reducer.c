/* SPDX-License-Identifier: MIT
 *
 * A step: every ready gradient is copied into its bucket; a complete bucket is averaged in the
 * background, in the order of the buckets, which is the same on all ranks; wait takes the results
 * in that order and copies them back. A bucket whose gradients lie side by side in memory already
 * (one big tensor, or an arena) is averaged where they are. A group of one rank only counts.
 *
 * With an optimizer's step, a bucket whose parameters and states lie so as well takes it in the
 * call that reduces it; of others each member takes it once the averages have come back. On a GPU
 * these are copied side by side too, for the call to take the step, and back.
 */
#include "clock.h"
#include "coll_epilogue.h"
#include "ddp/reducer_parts.h"
#include "dtype.h"
#include "log.h"
#include "status.h"
#include "work.h"

#include <stdio.h>

enum { FIRST_BUCKET_BYTES = 1 << 20, BUCKET_BYTES = 25 << 20 };

/* ---- parameters and the memory of buckets ---------------------------------------------------- */

static int check_param(const kolo_param *param, size_t index)
{
    if (!param->name)
        return ko_fail(KOLO_E_INVALID, "ddp: parameter %zu has no name", index);
    if (!ko_dtype_is_float(param->dtype))
        return ko_fail(KOLO_E_INVALID, "ddp: parameter %zu (%s) is of dtype %s; a float is needed",
                       index, param->name, kolo_dtype_name(param->dtype));
    if (param->count > PTRDIFF_MAX / kolo_dtype_size(param->dtype))
        return ko_fail(KOLO_E_INVALID, "ddp: parameter %zu (%s) has %zu elements, more than memory",
                       index, param->name, param->count);
    if (param->count && (!param->data || !param->grad))
        return ko_fail(KOLO_E_INVALID, "ddp: parameter %zu (%s) has no %s", index, param->name,
                       param->data ? "grad" : "data");
    return KOLO_OK;
}

/* Whether gradients are in place, and, for steps, what else is side by side. */
static int find_arenas(const struct kolo_ddp *ddp, const struct ko_bucket *bucket,
                       struct ko_pending *pending)
{
    kolo_update *update = &pending->update;
    char *arenas[KO_NPARTS] = {NULL};
    int err = KOLO_OK;

    for (int part = 0; part < KO_NPARTS && !err; part++)
        err = ko_parts_common(pending->gpu, ddp->params, bucket, (enum ko_param_part)part,
                              &arenas[part]);
    if (err)
        return err;
    pending->memory = arenas[KO_PART_GRAD];
    pending->in_place = pending->memory != NULL;
    update->grad = pending->memory;
    update->param = (float *)(void *)arenas[KO_PART_DATA];
    update->count = bucket->count;
    pending->in_arenas = pending->in_place && update->param;
    for (int s = 0; s < 2; s++) {
        const enum ko_param_part part = (enum ko_param_part)(KO_PART_STATES + s);

        if (!ko_parts_exist(ddp->params, bucket, part))
            continue;
        update->states[s] = (float *)(void *)arenas[part];
        pending->in_arenas &= update->states[s] != NULL;
    }
    return KOLO_OK;
}

int ko_ddp_check_copies(struct kolo_ddp *ddp, int err)
{
    return err ? ko_group_fail(ddp->group, err, kolo_last_error()) : KOLO_OK;
}

/* ---- creation -------------------------------------------------------------------------------- */

/* Copies the parameters, checks them, and finds their buckets. */
static int plan_buckets(struct kolo_ddp *ddp, const kolo_param *params, size_t nparams,
                        const kolo_ddp_options *options)
{
    int err = options->wire ? ko_wire_check("ddp", options->wire) : KOLO_OK;

    for (size_t i = 0; i < nparams && !err; i++) {
        err = check_param(&params[i], i);
        if (!err && ddp->gpu)
            err = ko_parts_check(ddp->gpu, &params[i]);
    }
    if (err)
        return err;
    ddp->params = ko_alloc(nparams * sizeof *params, "the list of parameters");
    ddp->is_ready = ko_alloc(nparams * sizeof *ddp->is_ready, "the list of ready parameters");
    if (!ddp->params || !ddp->is_ready)
        return KOLO_E_NOMEM;
    if (nparams)
        memcpy(ddp->params, params, nparams * sizeof *params);
    ddp->nparams = nparams;
    err = ko_description_make(&ddp->description, params, nparams, options);
    if (err)
        return err;
    ko_description_names(&ddp->description, ddp->params, nparams);
    return ko_bucket_plan_make(&ddp->plan, params, nparams, options->first_bucket_bytes,
                               options->bucket_bytes);
}

static void begin_step(struct kolo_ddp *ddp)
{
    for (size_t b = 0; b < ddp->plan.nbuckets; b++)
        ddp->pending[b].missing = ddp->plan.buckets[b].nmembers;
    memset(ddp->is_ready, 0, ddp->nparams * sizeof *ddp->is_ready);
    ddp->nready = 0;
    ddp->next = 0;
}

/* The memory of a bucket; most: of the largest so far in the host's memory and on the GPU. */
static int make_bucket(struct kolo_ddp *ddp, size_t b, size_t most[2])
{
    const struct ko_bucket *bucket = &ddp->plan.buckets[b];
    struct ko_pending *pending = &ddp->pending[b];
    const size_t nbytes = ko_bucket_bytes(bucket);
    bool is_any_there = false;
    int err = KOLO_OK;

    if (ddp->gpu)
        err = ko_parts_any_on_gpu(ddp->gpu, ddp->params, bucket, &is_any_there);
    if (is_any_there)
        pending->gpu = ddp->gpu;
    if (!err)
        err = find_arenas(ddp, bucket, pending);
    if (err || ddp->is_alone)
        return err;
    if (most[pending->gpu != NULL] < nbytes)
        most[pending->gpu != NULL] = nbytes;
    return pending->in_place ? KOLO_OK : ko_parts_alloc(pending->gpu, nbytes, &pending->memory);
}

/* All of them, and scratch, that of the largest, for the broadcast. */
static int make_buckets(struct kolo_ddp *ddp)
{
    size_t most[2] = {0, 0};
    int err = KOLO_OK;

    ddp->pending = ko_alloc(ddp->plan.nbuckets * sizeof *ddp->pending, "the buckets");
    if (!ddp->pending)
        return KOLO_E_NOMEM;
    begin_step(ddp);
    for (size_t b = 0; b < ddp->plan.nbuckets && !err; b++)
        err = make_bucket(ddp, b, most);
    for (int g = 0; g < 2 && !err; g++)
        if (most[g])
            err = ko_parts_alloc(g ? ddp->gpu : NULL, most[g], &ddp->scratch[g]);
    return err;
}

/* Rank 0's data to all, a bucket at a time. */
static int broadcast_bucket(struct kolo_ddp *ddp, size_t b)
{
    const struct ko_bucket *bucket = &ddp->plan.buckets[b];
    struct ko_gpu *gpu = ddp->pending[b].gpu;
    char *scratch = ddp->scratch[gpu != NULL];
    bool is_root = kolo_group_rank(ddp->group) == 0;
    char *common;
    int err =
        ko_ddp_check_copies(ddp, ko_parts_common(gpu, ddp->params, bucket, KO_PART_DATA, &common));

    if (err)
        return err;
    if (common)
        return kolo_broadcast(ddp->group, common, bucket->count, bucket->dtype, 0);
    if (is_root)
        err = ko_ddp_check_copies(ddp,
                                  ko_parts_gather(gpu, ddp->params, bucket, KO_PART_DATA, scratch));
    if (!err)
        err = kolo_broadcast(ddp->group, scratch, bucket->count, bucket->dtype, 0);
    if (!err && !is_root)
        err = ko_ddp_check_copies(
            ddp, ko_parts_scatter(gpu, ddp->params, bucket, KO_PART_DATA, scratch));
    return err;
}

/* Until the copies that are under way have been made, if all is well so far. */
static int await_copies(struct kolo_ddp *ddp, int err)
{
    if (err || !ddp->gpu)
        return err;
    return ko_ddp_check_copies(ddp, ko_parts_await(ddp->gpu, kolo_group_timeout(ddp->group)));
}

static void free_scratch(struct kolo_ddp *ddp)
{
    for (int g = 0; g < 2; g++) {
        ko_parts_free(g ? ddp->gpu : NULL, ddp->scratch[g]);
        ddp->scratch[g] = NULL;
    }
}

/* What needs the other ranks. */
static int join_ranks(struct kolo_ddp *ddp)
{
    int err = ko_description_agree(ddp->group, &ddp->description);

    for (size_t b = 0; b < ddp->plan.nbuckets && !err; b++)
        err = broadcast_bucket(ddp, b);
    err = await_copies(ddp, err);
    if (!err)
        free_scratch(ddp);
    return err;
}

static void choose_options(kolo_ddp_options *chosen, const kolo_ddp_options *options)
{
    *chosen = options ? *options : (kolo_ddp_options){0};
    if (!chosen->first_bucket_bytes)
        chosen->first_bucket_bytes = FIRST_BUCKET_BYTES;
    if (!chosen->bucket_bytes)
        chosen->bucket_bytes = BUCKET_BYTES;
}

/* Of a ddp that is to be freed in any case. */
static int prepare(struct kolo_ddp *ddp, const kolo_param *params, size_t nparams,
                   const kolo_ddp_options *options)
{
    kolo_ddp_options chosen;
    int err;

    choose_options(&chosen, options);
    ddp->no_overlap = chosen.no_overlap != 0;
    ddp->wire = chosen.wire;
    if (nparams && !params)
        return ko_fail(KOLO_E_INVALID, "kolo_ddp_create: params is NULL");
    err = plan_buckets(ddp, params, nparams, &chosen);
    if (!err)
        err = make_buckets(ddp);
    ddp->stats.buckets = ddp->plan.nbuckets;
    return err;
}

int kolo_ddp_create(kolo_group *group, const kolo_param *params, size_t nparams,
                    const kolo_ddp_options *options, kolo_ddp **ddp_out)
{
    char text[KO_ERROR_TEXT];
    kolo_ddp *ddp;
    int err;

    if (!group)
        return ko_fail(KOLO_E_INVALID, "kolo_ddp_create: group is NULL");
    if (!ddp_out)
        return ko_description_refuse(group,
                                     ko_fail(KOLO_E_INVALID, "kolo_ddp_create: ddp is NULL"));
    ddp = ko_alloc(sizeof *ddp, "a ddp");
    if (!ddp)
        return ko_description_refuse(group, KOLO_E_NOMEM);
    ddp->group = group;
    ddp->gpu = group->gpu;
    ddp->is_alone = group->size == 1;
    err = prepare(ddp, params, nparams, options);
    if (!ddp->is_alone)
        err = err ? ko_description_refuse(group, err) : join_ranks(ddp);
    if (err)
        goto undo_ddp;
    *ddp_out = ddp;
    return KOLO_OK;

undo_ddp:
    snprintf(text, sizeof text, "%s", kolo_last_error());
    kolo_ddp_free(ddp);
    return ko_fail_again(err, text);
}

/* Of what a GPU may still touch nothing is given back. */
static void free_buckets(struct kolo_ddp *ddp)
{
    bool rests;

    for (size_t b = 0; b < ddp->plan.nbuckets; b++)
        kolo_work_free(ddp->pending[b].work);
    rests = !ddp->gpu || ko_parts_rest(ddp->gpu);
    if (!rests)
        ko_log(KO_LOG_WARN, "the GPU has not finished what a ddp had it do; the memory of its "
                            "buckets is left to it");
    for (size_t b = 0; b < ddp->plan.nbuckets; b++) {
        struct ko_pending *pending = &ddp->pending[b];

        if (pending->gpu && !rests)
            continue;
        if (!pending->in_place)
            ko_parts_free(pending->gpu, pending->memory);
        for (int part = 0; part < KO_NPARTS; part++)
            ko_parts_free(pending->gpu, pending->copies[part]);
    }
    if (!rests)
        ddp->scratch[1] = NULL;
    free_scratch(ddp);
    kolo_free(ddp->pending);
}

void kolo_ddp_free(kolo_ddp *ddp)
{
    if (!ddp)
        return;
    if (ddp->pending)
        free_buckets(ddp);
    ko_bucket_plan_free(&ddp->plan);
    ko_description_free(&ddp->description);
    kolo_free(ddp->is_ready);
    kolo_free(ddp->params);
    kolo_free(ddp);
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* Puts the bucket's call behind the others. */
static int begin_bucket(struct kolo_ddp *ddp, size_t b)
{
    const struct ko_bucket *bucket = &ddp->plan.buckets[b];
    struct ko_pending *pending = &ddp->pending[b];

    if (ddp->has_step && (pending->in_arenas || pending->has_copies)) {
        int err = pending->has_copies ? ko_ddp_copy(ddp, b, true) : KOLO_OK;

        return err ? err
                   : kolo_all_reduce_step_async(ddp->group, &pending->update, bucket->dtype,
                                                KOLO_AVG, &ddp->step, &pending->work);
    }
    if (ddp->is_alone)
        return KOLO_OK;
    if (ddp->wire && bucket->dtype == KOLO_FLOAT32)
        return kolo_all_reduce_compressed_async(
            ddp->group, (const float *)(const void *)pending->memory,
            (float *)(void *)pending->memory, bucket->count, ddp->wire, KOLO_AVG, &pending->work);
    return kolo_all_reduce_async(ddp->group, pending->memory, pending->memory, bucket->count,
                                 bucket->dtype, KOLO_AVG, &pending->work);
}

/* Submits what is complete and has no incomplete bucket before it. */
static int submit(struct kolo_ddp *ddp)
{
    for (; ddp->next < ddp->plan.nbuckets; ddp->next++) {
        struct ko_pending *pending = &ddp->pending[ddp->next];
        int err;

        if (pending->missing)
            return KOLO_OK;
        pending->submitted_ns = ko_now_ns();
        err = begin_bucket(ddp, ddp->next);
        if (err)
            return err;
        ddp->stats.early_buckets += ddp->nready < ddp->nparams;
    }
    return KOLO_OK;
}

int kolo_ddp_ready(kolo_ddp *ddp, size_t index)
{
    const struct ko_bucket_place *place;
    const kolo_param *param;
    struct ko_pending *pending;
    int err = KOLO_OK;

    if (!ddp)
        return ko_fail(KOLO_E_INVALID, "kolo_ddp_ready: ddp is NULL");
    if (index >= ddp->nparams)
        return ko_fail(KOLO_E_INVALID, "kolo_ddp_ready: there is no parameter %zu among %zu", index,
                       ddp->nparams);
    param = &ddp->params[index];
    if (ddp->is_ready[index])
        return ko_fail(KOLO_E_INVALID,
                       "kolo_ddp_ready: parameter %zu (%s) is ready for the second time in this "
                       "step; kolo_ddp_wait ends a step",
                       index, param->name);
    place = &ddp->plan.places[index];
    pending = &ddp->pending[place->bucket];
    if (pending->memory && !pending->in_place)
        err = ko_ddp_check_copies(
            ddp, ko_part_copy(pending->gpu,
                              pending->memory + place->offset * kolo_dtype_size(param->dtype),
                              param->grad, ko_param_bytes(param)));
    if (err)
        return err;
    ddp->is_ready[index] = true;
    ddp->nready++;
    pending->missing--;
    return ddp->is_alone || ddp->no_overlap ? KOLO_OK : submit(ddp);
}

/* Names as many as the error's text has room for. */
static int fail_not_ready(const struct kolo_ddp *ddp)
{
    char names[KO_ERROR_TEXT / 2] = "";
    size_t used = 0;

    for (size_t i = 0; i < ddp->nparams && used < sizeof names; i++)
        if (!ddp->is_ready[i])
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "",
                                     ddp->params[i].name);
    return ko_fail(KOLO_E_INVALID,
                   "kolo_ddp_wait: %zu of %zu parameters were not ready: %s%s; each needs "
                   "kolo_ddp_ready once per step, with a zero gradient if it was not used",
                   ddp->nparams - ddp->nready, ddp->nparams, names,
                   used < sizeof names ? "" : "...");
}

/* What the call has left in the bucket's memory goes where it belongs. */
static int bring_back(struct kolo_ddp *ddp, size_t b)
{
    const struct ko_pending *pending = &ddp->pending[b];

    if (ddp->has_step && pending->has_copies)
        return ko_ddp_copy(ddp, b, false);
    if (pending->in_place)
        return KOLO_OK;
    return ko_ddp_check_copies(ddp,
                               ko_parts_scatter(pending->gpu, ddp->params, &ddp->plan.buckets[b],
                                                KO_PART_GRAD, pending->memory));
}

/* Waits for one bucket and brings its averages back. */
static int finish(struct kolo_ddp *ddp, size_t b)
{
    struct ko_pending *pending = &ddp->pending[b];
    int err = KOLO_OK;

    if (pending->work) {
        err = kolo_work_wait(pending->work, -1);
        ddp->communication_ns += ko_work_completed_ns(pending->work) - pending->submitted_ns;
        kolo_work_free(pending->work);
        pending->work = NULL;
        if (!err)
            err = bring_back(ddp, b);
    }
    if (!err && ddp->has_step && !pending->in_arenas && !pending->has_copies && b < ddp->next)
        ko_ddp_step_members(ddp, b);
    return err;
}

/* The whole of it counts as exposed: the processor may already go to the background thread, and so
 * be lost to the caller, while this one still submits. */
int kolo_ddp_wait(kolo_ddp *ddp)
{
    int64_t begin = ko_now_ns();
    int err;

    if (!ddp)
        return ko_fail(KOLO_E_INVALID, "kolo_ddp_wait: ddp is NULL");
    if (ddp->nready < ddp->nparams)
        return fail_not_ready(ddp);
    err = submit(ddp);
    for (size_t b = 0; b < ddp->plan.nbuckets; b++) {
        int failed = finish(ddp, b);

        err = err ? err : failed;
    }
    err = await_copies(ddp, err);
    if (!ddp->is_alone)
        ddp->exposed_ns += ko_now_ns() - begin;
    begin_step(ddp);
    ddp->stats.steps += !err;
    return err;
}

void kolo_ddp_get_stats(const kolo_ddp *ddp, kolo_ddp_stats *stats)
{
    if (!stats)
        return;
    *stats = (kolo_ddp_stats){0};
    if (!ddp)
        return;
    *stats = ddp->stats;
    stats->communication_s = (double)ddp->communication_ns * 1e-9;
    stats->exposed_s = (double)ddp->exposed_ns * 1e-9;
}
