/* SPDX-License-Identifier: MIT
 *
 * bucket.h: which parameters are reduced together. Pure arithmetic: the same parameters and caps
 * give the same plan on every rank.
 */
#ifndef KO_BUCKET_H
#define KO_BUCKET_H

#include "kolo.h"

/* Some parameters of one dtype, side by side in the order of their numbers. */
struct ko_bucket {
    kolo_dtype dtype;
    size_t count;          /* elements of all of them */
    const size_t *members; /* nmembers parameter numbers, ascending; the plan's */
    size_t nmembers;
};

/* Where a parameter lies. */
struct ko_bucket_place {
    size_t bucket;
    size_t offset; /* in elements */
};

struct ko_bucket_plan {
    struct ko_bucket *buckets; /* in the order in which backward is expected to complete them */
    size_t nbuckets;
    struct ko_bucket_place *places; /* of each parameter */
    size_t *members;
};

/* Parameters go into buckets from the last to the first. There is one open bucket per dtype; it
 * closes when it holds first_bytes or more, if it is the first of its dtype, else bucket_bytes. */
int ko_bucket_plan_make(struct ko_bucket_plan *plan, const kolo_param *params, size_t nparams,
                        size_t first_bytes, size_t bucket_bytes);
/* Safe on a plan that is all zero. */
void ko_bucket_plan_free(struct ko_bucket_plan *plan);

#endif
