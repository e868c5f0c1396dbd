/* SPDX-License-Identifier: MIT
 *
 * Buckets are numbered as they close: one that is open for long, of a dtype that is rare, completes
 * late, and buckets before it must not wait for it.
 */
#include "ddp/bucket.h"

#include "status.h"

#include <string.h>

static const size_t none = (size_t)-1;

struct planner {
    struct ko_bucket_plan *plan;
    size_t nopened;
    size_t open[KOLO_NDTYPES];  /* the open bucket of each dtype, as opened, or none */
    size_t limit[KOLO_NDTYPES]; /* bytes at which it closes */
    size_t bytes[KOLO_NDTYPES]; /* bytes that it holds */
    size_t *number;             /* of each bucket opened: its number as closed */
};

static void close_bucket(struct planner *planner, kolo_dtype dtype)
{
    planner->number[planner->open[dtype]] = planner->plan->nbuckets;
    planner->plan->buckets[planner->plan->nbuckets++].dtype = dtype;
    planner->open[dtype] = none;
    planner->bytes[dtype] = 0;
}

/* Chooses the bucket of every parameter; places hold numbers as opened, till they are closed. */
static void assign(struct planner *planner, const kolo_param *params, size_t nparams,
                   size_t bucket_bytes)
{
    struct ko_bucket_place *places = planner->plan->places;

    for (size_t i = nparams; i-- > 0;) {
        kolo_dtype dtype = params[i].dtype;

        if (planner->open[dtype] == none)
            planner->open[dtype] = planner->nopened++;
        places[i].bucket = planner->open[dtype];
        planner->bytes[dtype] += params[i].count * kolo_dtype_size(dtype);
        if (planner->bytes[dtype] >= planner->limit[dtype]) {
            close_bucket(planner, dtype);
            planner->limit[dtype] = bucket_bytes;
        }
    }
    for (int dtype = 0; dtype < KOLO_NDTYPES; dtype++)
        if (planner->open[dtype] != none)
            close_bucket(planner, (kolo_dtype)dtype);
    for (size_t i = 0; i < nparams; i++)
        places[i].bucket = planner->number[places[i].bucket];
}

/* Lists the members of every bucket, and where they lie in it. */
static void arrange(struct ko_bucket_plan *plan, const kolo_param *params, size_t nparams)
{
    size_t *members = plan->members;

    for (size_t i = 0; i < nparams; i++)
        plan->buckets[plan->places[i].bucket].nmembers++;
    for (size_t b = 0; b < plan->nbuckets; b++) {
        plan->buckets[b].members = members;
        members += plan->buckets[b].nmembers;
        plan->buckets[b].nmembers = 0;
    }
    for (size_t i = 0; i < nparams; i++) {
        struct ko_bucket *bucket = &plan->buckets[plan->places[i].bucket];

        plan->members[bucket->members - plan->members + (ptrdiff_t)bucket->nmembers++] = i;
        plan->places[i].offset = bucket->count;
        bucket->count += params[i].count;
    }
}

int ko_bucket_plan_make(struct ko_bucket_plan *plan, const kolo_param *params, size_t nparams,
                        size_t first_bytes, size_t bucket_bytes)
{
    struct planner planner = {.plan = plan};

    *plan = (struct ko_bucket_plan){0};
    for (int dtype = 0; dtype < KOLO_NDTYPES; dtype++) {
        planner.open[dtype] = none;
        planner.limit[dtype] = first_bytes;
    }
    plan->buckets = ko_alloc(nparams * sizeof *plan->buckets, "the list of buckets");
    plan->places = ko_alloc(nparams * sizeof *plan->places, "the parameters' places");
    plan->members = ko_alloc(nparams * sizeof *plan->members, "the buckets' members");
    planner.number = ko_alloc(nparams * sizeof *planner.number, "the order of buckets");
    if (!plan->buckets || !plan->places || !plan->members || !planner.number) {
        kolo_free(planner.number);
        ko_bucket_plan_free(plan);
        return KOLO_E_NOMEM;
    }
    assign(&planner, params, nparams, bucket_bytes);
    arrange(plan, params, nparams);
    kolo_free(planner.number);
    return KOLO_OK;
}

void ko_bucket_plan_free(struct ko_bucket_plan *plan)
{
    kolo_free(plan->buckets);
    kolo_free(plan->places);
    kolo_free(plan->members);
    *plan = (struct ko_bucket_plan){0};
}
