/* SPDX-License-Identifier: MIT
 *
 * A step: every ready gradient is copied into its bucket; a complete bucket is averaged in the
 * background, in the order of the buckets, which is the same on all ranks; wait takes the results
 * in that order and copies them back. A bucket whose gradients lie side by side in memory already
 * (one big tensor, or an arena) is averaged where they are. A group of one rank only counts.
 *
 * With an optimizer's step, a bucket whose parameters and states lie so as well takes it in the
 * call that reduces it; of others each member takes it once the averages have come back.
 */
#include "clock.h"
#include "coll_epilogue.h"
#include "ddp/agree.h"
#include "ddp/bucket.h"
#include "dtype.h"
#include "status.h"
#include "work.h"

#include <stdio.h>

enum { FIRST_BUCKET_BYTES = 1 << 20, BUCKET_BYTES = 25 << 20 };

/* What a bucket goes through in each step. */
struct pending {
    char *memory;   /* where it is averaged; NULL in a group of one rank, unless in place */
    bool in_place;  /* memory is the gradients', not ours */
    bool in_arenas; /* parameters and states lie side by side too: */
    kolo_update update;
    size_t missing;  /* gradients not ready yet */
    kolo_work *work; /* NULL before submission */
    int64_t submitted_ns;
};

struct kolo_ddp {
    kolo_group *group;
    bool is_alone; /* one rank */
    bool no_overlap;
    kolo_param *params;
    size_t nparams;
    struct ko_description description; /* holds the names */
    struct ko_bucket_plan plan;
    struct pending *pending; /* of each bucket */
    bool *is_ready;          /* of each parameter, in this step */
    size_t nready;
    char *scratch;   /* while being created */
    size_t next;     /* the first bucket not submitted in this step */
    kolo_dtype wire; /* or 0 */
    bool has_step;
    kolo_step step;
    kolo_ddp_stats stats;
    int64_t communication_ns, exposed_ns;
};

/* ---- parameters and the memory of buckets ---------------------------------------------------- */

static size_t param_bytes(const kolo_param *param)
{
    return param->count * kolo_dtype_size(param->dtype);
}

static size_t bucket_bytes(const struct ko_bucket *bucket)
{
    return bucket->count * kolo_dtype_size(bucket->dtype);
}

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

/* What of a parameter is meant: its data, its gradient, or a state. */
enum part { DATA, GRAD, STATES };

static char *part_of(const kolo_param *param, enum part part)
{
    if (part >= STATES)
        return (char *)param->states[part - STATES];
    return part == DATA ? param->data : param->grad;
}

/* Where the parts of all members lie, if side by side in the bucket's order; else NULL. */
static char *common_memory(const struct kolo_ddp *ddp, const struct ko_bucket *bucket,
                           enum part part)
{
    char *begin = NULL, *end = NULL;

    for (size_t m = 0; m < bucket->nmembers; m++) {
        const kolo_param *param = &ddp->params[bucket->members[m]];

        if (!param->count)
            continue;
        if (begin && part_of(param, part) != end)
            return NULL;
        begin = begin ? begin : part_of(param, part);
        end = part_of(param, part) + param_bytes(param);
    }
    return begin;
}

static bool has_state(const struct kolo_ddp *ddp, const struct ko_bucket *bucket, int s)
{
    for (size_t m = 0; m < bucket->nmembers; m++)
        if (ddp->params[bucket->members[m]].states[s])
            return true;
    return false;
}

/* For steps, if gradients are in place: what else is side by side. */
static void find_arenas(const struct kolo_ddp *ddp, const struct ko_bucket *bucket,
                        struct pending *pending)
{
    pending->update.grad = pending->memory;
    pending->update.param = (float *)(void *)common_memory(ddp, bucket, DATA);
    pending->update.count = bucket->count;
    pending->in_arenas = pending->in_place && pending->update.param;
    for (int s = 0; s < 2; s++)
        if (has_state(ddp, bucket, s)) {
            pending->update.states[s] =
                (float *)(void *)common_memory(ddp, bucket, (enum part)(STATES + s));
            pending->in_arenas &= pending->update.states[s] != NULL;
        }
}

/* Copies the parts of all members into memory, in the bucket's order, or back. */
static void gather_parts(const struct kolo_ddp *ddp, const struct ko_bucket *bucket, enum part part,
                         char *memory)
{
    for (size_t m = 0; m < bucket->nmembers; m++) {
        const kolo_param *param = &ddp->params[bucket->members[m]];

        if (param->count)
            memcpy(memory, part_of(param, part), param_bytes(param));
        memory += param_bytes(param);
    }
}

static void scatter_parts(const struct kolo_ddp *ddp, const struct ko_bucket *bucket,
                          enum part part, const char *memory)
{
    for (size_t m = 0; m < bucket->nmembers; m++) {
        const kolo_param *param = &ddp->params[bucket->members[m]];

        if (param->count)
            memcpy(part_of(param, part), memory, param_bytes(param));
        memory += param_bytes(param);
    }
}

/* ---- creation -------------------------------------------------------------------------------- */

/* Copies the parameters, checks them, and finds their buckets. */
static int plan_buckets(struct kolo_ddp *ddp, const kolo_param *params, size_t nparams,
                        const kolo_ddp_options *options)
{
    int err = options->wire ? ko_wire_check("ddp", options->wire) : KOLO_OK;

    for (size_t i = 0; i < nparams && !err; i++)
        err = check_param(&params[i], i);
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

/* The memory of the buckets, and scratch, that of the largest, for the broadcast. */
static int make_buckets(struct kolo_ddp *ddp)
{
    size_t largest = 0;

    ddp->pending = ko_alloc(ddp->plan.nbuckets * sizeof *ddp->pending, "the buckets");
    if (!ddp->pending)
        return KOLO_E_NOMEM;
    begin_step(ddp);
    for (size_t b = 0; b < ddp->plan.nbuckets; b++) {
        struct pending *pending = &ddp->pending[b];
        size_t nbytes = bucket_bytes(&ddp->plan.buckets[b]);

        pending->memory = common_memory(ddp, &ddp->plan.buckets[b], GRAD);
        pending->in_place = pending->memory != NULL;
        find_arenas(ddp, &ddp->plan.buckets[b], pending);
        if (ddp->is_alone)
            continue;
        if (!pending->in_place)
            pending->memory = ko_alloc(nbytes, "a gradient bucket");
        if (!pending->memory)
            return KOLO_E_NOMEM;
        largest = nbytes > largest ? nbytes : largest;
    }
    ddp->scratch = ko_alloc(largest, "broadcasting the parameters");
    return ddp->scratch ? KOLO_OK : KOLO_E_NOMEM;
}

/* Rank 0's data to all, a bucket at a time. */
static int broadcast_bucket(struct kolo_ddp *ddp, const struct ko_bucket *bucket)
{
    char *common = common_memory(ddp, bucket, DATA);
    bool is_root = kolo_group_rank(ddp->group) == 0;
    int err;

    if (common)
        return kolo_broadcast(ddp->group, common, bucket->count, bucket->dtype, 0);
    if (is_root)
        gather_parts(ddp, bucket, DATA, ddp->scratch);
    err = kolo_broadcast(ddp->group, ddp->scratch, bucket->count, bucket->dtype, 0);
    if (!err && !is_root)
        scatter_parts(ddp, bucket, DATA, ddp->scratch);
    return err;
}

/* What needs the other ranks. */
static int join_ranks(struct kolo_ddp *ddp)
{
    int err = ko_description_agree(ddp->group, &ddp->description);

    for (size_t b = 0; b < ddp->plan.nbuckets && !err; b++)
        err = broadcast_bucket(ddp, &ddp->plan.buckets[b]);
    kolo_free(ddp->scratch);
    ddp->scratch = NULL;
    return err;
}

int kolo_ddp_create(kolo_group *group, const kolo_param *params, size_t nparams,
                    const kolo_ddp_options *options, kolo_ddp **ddp_out)
{
    kolo_ddp_options chosen = options ? *options : (kolo_ddp_options){0};
    kolo_ddp *ddp = ko_alloc(sizeof *ddp, "a ddp");
    int err;

    if (!ddp)
        return KOLO_E_NOMEM;
    chosen.first_bucket_bytes =
        chosen.first_bucket_bytes ? chosen.first_bucket_bytes : (size_t)FIRST_BUCKET_BYTES;
    chosen.bucket_bytes = chosen.bucket_bytes ? chosen.bucket_bytes : (size_t)BUCKET_BYTES;
    ddp->group = group;
    ddp->is_alone = kolo_group_size(group) == 1;
    ddp->no_overlap = chosen.no_overlap != 0;
    ddp->wire = chosen.wire;
    err = plan_buckets(ddp, params, nparams, &chosen);
    if (!err)
        err = make_buckets(ddp);
    if (!ddp->is_alone)
        err = err ? ko_description_refuse(group, err) : join_ranks(ddp);
    if (err)
        goto undo_ddp;
    ddp->stats.buckets = ddp->plan.nbuckets;
    *ddp_out = ddp;
    return KOLO_OK;

undo_ddp:
    kolo_ddp_free(ddp);
    return err;
}

void kolo_ddp_free(kolo_ddp *ddp)
{
    if (!ddp)
        return;
    for (size_t b = 0; b < ddp->plan.nbuckets && ddp->pending; b++) {
        kolo_work_free(ddp->pending[b].work);
        if (!ddp->pending[b].in_place)
            kolo_free(ddp->pending[b].memory);
    }
    kolo_free(ddp->pending);
    kolo_free(ddp->scratch);
    ko_bucket_plan_free(&ddp->plan);
    ko_description_free(&ddp->description);
    kolo_free(ddp->is_ready);
    kolo_free(ddp->params);
    kolo_free(ddp);
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* Puts the bucket's call behind the others. */
static int begin_bucket(struct kolo_ddp *ddp, const struct ko_bucket *bucket,
                        struct pending *pending)
{
    if (ddp->has_step && pending->in_arenas)
        return kolo_all_reduce_step_async(ddp->group, &pending->update, bucket->dtype, KOLO_AVG,
                                          &ddp->step, &pending->work);
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
        const struct ko_bucket *bucket = &ddp->plan.buckets[ddp->next];
        struct pending *pending = &ddp->pending[ddp->next];
        int err;

        if (pending->missing)
            return KOLO_OK;
        pending->submitted_ns = ko_now_ns();
        err = begin_bucket(ddp, bucket, pending);
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
    struct pending *pending;

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
    if (pending->memory && !pending->in_place && param->count)
        memcpy(pending->memory + place->offset * kolo_dtype_size(param->dtype), param->grad,
               param_bytes(param));
    ddp->is_ready[index] = true;
    ddp->nready++;
    pending->missing--;
    return ddp->is_alone || ddp->no_overlap ? KOLO_OK : submit(ddp);
}

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

int kolo_ddp_set_step(kolo_ddp *ddp, const kolo_step *step)
{
    int err = step ? check_step(ddp, step) : KOLO_OK;

    if (!err && ddp->nready)
        err = ko_fail(KOLO_E_INVALID,
                      "kolo_ddp_set_step: parameters are ready for the step that is under way");
    if (err)
        return err;
    ddp->has_step = step != NULL;
    if (step) {
        ddp->step = *step;
        ddp->step.wire = ddp->wire;
    }
    return KOLO_OK;
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

/* Of averages that lie where they belong. */
static void step_members(const struct kolo_ddp *ddp, const struct ko_bucket *bucket)
{
    for (size_t m = 0; m < bucket->nmembers; m++) {
        const kolo_param *param = &ddp->params[bucket->members[m]];
        const kolo_update update = {.grad = param->grad,
                                    .param = param->data,
                                    .states = {param->states[0], param->states[1]},
                                    .count = param->count};

        ko_step_take(&update, &ddp->step);
    }
}

/* Waits for one bucket and brings its averages back. */
static int finish(struct kolo_ddp *ddp, size_t b)
{
    struct pending *pending = &ddp->pending[b];
    int err = KOLO_OK;

    if (pending->work) {
        err = kolo_work_wait(pending->work, -1);
        ddp->communication_ns += ko_work_completed_ns(pending->work) - pending->submitted_ns;
        kolo_work_free(pending->work);
        pending->work = NULL;
        if (!err && !pending->in_place)
            scatter_parts(ddp, &ddp->plan.buckets[b], GRAD, pending->memory);
    }
    if (!err && ddp->has_step && !pending->in_arenas && b < ddp->next)
        step_members(ddp, &ddp->plan.buckets[b]);
    return err;
}

/* The whole of it counts as exposed: the processor may already go to the background thread, and so
 * be lost to the caller, while this one still submits. */
int kolo_ddp_wait(kolo_ddp *ddp)
{
    int64_t begin = ko_now_ns();
    int err;

    if (ddp->nready < ddp->nparams)
        return fail_not_ready(ddp);
    err = submit(ddp);
    for (size_t b = 0; b < ddp->plan.nbuckets; b++) {
        int failed = finish(ddp, b);

        err = err ? err : failed;
    }
    if (!ddp->is_alone)
        ddp->exposed_ns += ko_now_ns() - begin;
    begin_step(ddp);
    ddp->stats.steps += !err;
    return err;
}

void kolo_ddp_get_stats(const kolo_ddp *ddp, kolo_ddp_stats *stats)
{
    *stats = ddp->stats;
    stats->communication_s = (double)ddp->communication_ns * 1e-9;
    stats->exposed_s = (double)ddp->exposed_ns * 1e-9;
}
