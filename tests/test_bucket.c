/* SPDX-License-Identifier: MIT
 *
 * Which parameters share a bucket: PyTorch's published and observed assignments, and what holds of
 * every plan.
 */
#include "ddp/bucket.h"
#include "fault.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 64, MIB = 1 << 20 };

static void make(struct ko_bucket_plan *plan, const kolo_param *params, size_t nparams,
                 size_t first, size_t rest)
{
    assert_int_equal(ko_bucket_plan_make(plan, params, nparams, first, rest), KOLO_OK);
}

/* Bucket b holds the parameters low ... high and nothing else. */
static void assert_bucket(const struct ko_bucket_plan *plan, size_t b, size_t low, size_t high,
                          size_t count)
{
    assert_true(b < plan->nbuckets);
    assert_int_equal(plan->buckets[b].count, count);
    assert_int_equal(plan->buckets[b].nmembers, high - low + 1);
    for (size_t i = low; i <= high; i++)
        assert_int_equal(plan->buckets[b].members[i - low], i);
}

/* Ten linear layers of 1024 x 1024 with bias, float32: 4198400 bytes each. */
static size_t ten_layers(kolo_param *params)
{
    for (size_t i = 0; i < 20; i++)
        params[i] = (kolo_param){.count = i % 2 ? 1024 : 1024 * 1024, .dtype = KOLO_FLOAT32};
    return 20;
}

static void ten_layers_as_pytorch(void **state)
{
    kolo_param params[20];
    struct ko_bucket_plan plan;

    (void)state;
    make(&plan, params, ten_layers(params), MIB, 25 * MIB);
    assert_int_equal(plan.nbuckets, 3);
    assert_bucket(&plan, 0, 18, 19, 4198400 / 4);
    assert_bucket(&plan, 1, 4, 17, 29388800 / 4);
    assert_bucket(&plan, 2, 0, 3, 8396800 / 4);
    ko_bucket_plan_free(&plan);
    make(&plan, params, ten_layers(params), MIB, 10 * MIB);
    assert_int_equal(plan.nbuckets, 4);
    assert_bucket(&plan, 0, 18, 19, 4198400 / 4);
    for (size_t b = 1; b < 4; b++)
        assert_bucket(&plan, b, 18 - 6 * b, 18 - 6 * b + 5, 12595200 / 4);
    ko_bucket_plan_free(&plan);
}

static void one_bucket_per_parameter(void **state)
{
    kolo_param params[20];
    struct ko_bucket_plan plan;

    (void)state;
    make(&plan, params, ten_layers(params), 1, 1);
    assert_int_equal(plan.nbuckets, 20);
    for (size_t b = 0; b < 20; b++)
        assert_bucket(&plan, b, 19 - b, 19 - b, params[19 - b].count);
    ko_bucket_plan_free(&plan);
}

/* A bucket closes when it has reached its size, not one element earlier. */
static void closes_at_its_size(void **state)
{
    kolo_param params[3] = {{.count = 1, .dtype = KOLO_FLOAT32},
                            {.count = 4, .dtype = KOLO_FLOAT32},
                            {.count = 4, .dtype = KOLO_FLOAT32}};
    struct ko_bucket_plan plan;

    (void)state;
    make(&plan, params, 3, 16, 16);
    assert_int_equal(plan.nbuckets, 3);
    ko_bucket_plan_free(&plan);
    make(&plan, params, 3, 17, 16);
    assert_int_equal(plan.nbuckets, 2);
    assert_bucket(&plan, 0, 1, 2, 8);
    assert_bucket(&plan, 1, 0, 0, 1);
    assert_int_equal(plan.places[2].offset, 4);
    ko_bucket_plan_free(&plan);
}

/* A rare dtype's bucket, open from the start, is numbered last and holds nobody up. */
static void dtypes_do_not_mix(void **state)
{
    static const size_t rare[] = {1, 5};
    kolo_param params[6];
    struct ko_bucket_plan plan;

    (void)state;
    for (size_t i = 0; i < 6; i++)
        params[i] = (kolo_param){.count = 8, .dtype = KOLO_BFLOAT16};
    params[1].dtype = params[5].dtype = KOLO_FLOAT32;
    make(&plan, params, 6, 16, 32);
    assert_int_equal(plan.nbuckets, 5);
    assert_bucket(&plan, 0, 5, 5, 8);
    assert_bucket(&plan, 1, 4, 4, 8);
    assert_bucket(&plan, 2, 2, 3, 16);
    assert_bucket(&plan, 3, 1, 1, 8);
    assert_bucket(&plan, 4, 0, 0, 8);
    ko_bucket_plan_free(&plan);
    make(&plan, params, 6, 1000, 1000);
    assert_int_equal(plan.nbuckets, 2);
    assert_int_equal(plan.buckets[0].dtype, KOLO_BFLOAT16);
    assert_int_equal(plan.buckets[1].dtype, KOLO_FLOAT32);
    assert_memory_equal(plan.buckets[1].members, rare, sizeof rare);
    ko_bucket_plan_free(&plan);
}

/* Each parameter lies in one bucket of its dtype, behind its predecessor there. */
static void assert_sound(const struct ko_bucket_plan *plan, const kolo_param *params,
                         size_t nparams)
{
    size_t nplaced = 0;

    for (size_t b = 0; b < plan->nbuckets; b++) {
        const struct ko_bucket *bucket = &plan->buckets[b];
        size_t offset = 0;

        assert_true(bucket->nmembers > 0);
        for (size_t m = 0; m < bucket->nmembers; m++) {
            size_t i = bucket->members[m];

            assert_true(i < nparams && (m == 0 || i > bucket->members[m - 1]));
            assert_int_equal(params[i].dtype, bucket->dtype);
            assert_int_equal(plan->places[i].bucket, b);
            assert_int_equal(plan->places[i].offset, offset);
            offset += params[i].count;
        }
        assert_int_equal(bucket->count, offset);
        nplaced += bucket->nmembers;
    }
    assert_int_equal(nplaced, nparams);
}

static void every_plan_is_sound(void **state)
{
    static const kolo_dtype dtypes[] = {KOLO_FLOAT16, KOLO_FLOAT32, KOLO_FLOAT64};
    kolo_param params[MOST];
    struct ko_bucket_plan plan;
    uint32_t random = 1;

    (void)state;
    for (size_t nparams = 0; nparams < MOST; nparams++) {
        for (size_t i = 0; i < nparams; i++) {
            random = random * 1664525 + 1013904223;
            params[i] = (kolo_param){.count = random >> 16 & 63, .dtype = dtypes[random >> 24 & 1]};
        }
        make(&plan, params, nparams, 1 + (random >> 12 & 127), 1 + (random >> 20 & 511));
        assert_sound(&plan, params, nparams);
        ko_bucket_plan_free(&plan);
    }
}

static void survives_having_no_memory(void **state)
{
    kolo_param params[20];
    size_t nparams = ten_layers(params);
    struct ko_bucket_plan plan;
    int nth = 1;

    (void)state;
    for (;; nth++) {
        ko_fault_arm(KO_FAULT_ALLOC, nth);
        if (ko_bucket_plan_make(&plan, params, nparams, MIB, MIB) == KOLO_OK)
            break;
        assert_null(plan.buckets);
    }
    ko_fault_arm(KO_FAULT_ALLOC, 0);
    assert_int_equal(nth, 5);
    ko_bucket_plan_free(&plan);
    ko_bucket_plan_free(&plan);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(ten_layers_as_pytorch), cmocka_unit_test(one_bucket_per_parameter),
        cmocka_unit_test(closes_at_its_size),    cmocka_unit_test(dtypes_do_not_mix),
        cmocka_unit_test(every_plan_is_sound),   cmocka_unit_test(survives_having_no_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
