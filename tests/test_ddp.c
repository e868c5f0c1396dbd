/* SPDX-License-Identifier: MIT
 *
 * Data-parallel training. Gradients are small integers, so that averages are exact in every dtype.
 */
#include "dtype.h"
#include "fault.h"
#include "kolo.h"
#include "ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- ranks ----------------------------------------------------------------------------------- */

enum { MOST_RANKS = 4 };

struct rank {
    kolo_group *group;
    int number, size;
    const void *argument;
    int failed;
};

typedef void (*rank_body)(struct rank *self);

struct job {
    rank_body body;
    const void *argument;
};

/* Tells the first thing that does not hold, and goes on: the other ranks need this one. */
static bool expect(struct rank *self, bool holds, const char *what)
{
    if (!holds && !self->failed)
        self->failed = ranks_fail("rank %d of %d: %s", self->number, self->size, what);
    return holds;
}

static bool expect_error(struct rank *self, int got, int code, const char *text)
{
    return expect(self, got == code, text) &&
           expect(self, strstr(kolo_last_error(), text) != NULL, text);
}

static int run_job(kolo_group *group, void *argument)
{
    const struct job *job = argument;
    struct rank self = {group, kolo_group_rank(group), kolo_group_size(group), job->argument, 0};

    job->body(&self);
    return self.failed;
}

static void run_ranks(enum ranks_kind kind, int n, rank_body body, const void *argument)
{
    const struct ranks ranks = {.kind = kind, .n = n};
    struct job job = {body, argument};

    assert_int_equal(ranks_run(&ranks, run_job, &job), 0);
}

/* ---- a model --------------------------------------------------------------------------------- */

enum { NPARAMS = 7 };

static const struct {
    const char *name;
    size_t count;
    kolo_dtype dtype;
} shapes[NPARAMS] = {
    {"conv.weight", 1200, KOLO_FLOAT32}, {"conv.bias", 3, KOLO_FLOAT32},
    {"norm.scale", 17, KOLO_FLOAT64},    {"fc.weight", 301, KOLO_BFLOAT16},
    {"fc.bias", 1, KOLO_BFLOAT16},       {"unused", 0, KOLO_FLOAT32},
    {"head.weight", 700, KOLO_FLOAT32},
};

struct model {
    kolo_param params[NPARAMS];
    char *arena;
};

/* Data and gradients of all parameters in one piece of memory: one behind the other, which lets
 * buckets be reduced in place, or with gaps, which does not. */
static void model_make(struct model *model, bool has_gaps)
{
    size_t used = 0;

    model->arena = calloc(1, 65536);
    for (size_t i = 0; i < NPARAMS; i++) {
        kolo_param *param = &model->params[i];
        size_t nbytes = shapes[i].count * kolo_dtype_size(shapes[i].dtype);

        *param = (kolo_param){.name = shapes[i].name,
                              .data = model->arena + used,
                              .grad = model->arena + 32768 + used,
                              .count = shapes[i].count,
                              .dtype = shapes[i].dtype};
        if (!nbytes) /* then nothing needs to be there */
            param->data = param->grad = NULL;
        used += nbytes + (has_gaps ? 8 : 0);
    }
}

static void model_free(struct model *model)
{
    free(model->arena);
}

static double get(const kolo_param *param, const void *memory, size_t e)
{
    double value = 0;
    float single;
    uint16_t half;

    if (param->dtype == KOLO_FLOAT64) {
        memcpy(&value, (const char *)memory + e * 8, 8);
        return value;
    }
    if (param->dtype == KOLO_FLOAT32) {
        memcpy(&single, (const char *)memory + e * 4, 4);
        return single;
    }
    memcpy(&half, (const char *)memory + e * 2, 2);
    return ko_float_of_bfloat16(half);
}

static void put(const kolo_param *param, void *memory, size_t e, double value)
{
    float single = (float)value;
    uint16_t half = ko_bfloat16_of_float(single);

    if (param->dtype == KOLO_FLOAT64)
        memcpy((char *)memory + e * 8, &value, 8);
    else if (param->dtype == KOLO_FLOAT32)
        memcpy((char *)memory + e * 4, &single, 4);
    else
        memcpy((char *)memory + e * 2, &half, 2);
}

/* What all ranks' gradients are multiples of. */
static double base(size_t index, size_t e, int step)
{
    return (double)(e % 13 + index + (size_t)step);
}

static void backward(struct model *model, size_t index, int rank, int step)
{
    const kolo_param *param = &model->params[index];

    for (size_t e = 0; e < param->count; e++)
        put(param, param->grad, e, (rank + 1) * base(index, e, step));
}

/* The average of (rank + 1) * base. */
static bool is_averaged(const struct model *model, int size, int step)
{
    for (size_t i = 0; i < NPARAMS; i++)
        for (size_t e = 0; e < model->params[i].count; e++)
            if (get(&model->params[i], model->params[i].grad, e) !=
                (size + 1) / 2.0 * base(i, e, step))
                return false;
    return true;
}

/* ---- what it is for -------------------------------------------------------------------------- */

struct training {
    kolo_ddp_options options;
    bool has_gaps;
    size_t nbuckets; /* expected */
};

enum { NSTEPS = 3 };

/* An order of the parameters that differs from step to step and from rank to rank. */
static size_t nth_ready(int rank, int step, size_t n)
{
    static const size_t strides[] = {6, 1, 3, 5}; /* all coprime to 7; 6 is backwards */

    return (6 + n * strides[(rank + step) % 4]) % NPARAMS;
}

static void train(struct rank *self)
{
    const struct training *training = self->argument;
    struct model model;
    kolo_ddp *ddp = NULL;
    kolo_ddp_stats stats;

    model_make(&model, training->has_gaps);
    expect(self, !kolo_ddp_create(self->group, model.params, NPARAMS, &training->options, &ddp),
           "create");
    for (int step = 0; step < NSTEPS && ddp; step++) {
        for (size_t n = 0; n < NPARAMS; n++) {
            size_t index = nth_ready(self->number, step, n);

            backward(&model, index, self->number, step);
            expect(self, !kolo_ddp_ready(ddp, index), "ready");
        }
        expect(self, !kolo_ddp_wait(ddp), "wait");
        expect(self, is_averaged(&model, self->size, step), "averaged");
    }
    if (ddp) {
        kolo_ddp_get_stats(ddp, &stats);
        expect(self, stats.steps == NSTEPS, "steps");
        expect(self, stats.buckets == training->nbuckets, "buckets");
        expect(self, (stats.communication_s > 0) == (self->size > 1), "communication_s");
        expect(self, stats.exposed_s >= 0 && (self->size > 1 || stats.exposed_s == 0), "exposed_s");
    }
    kolo_ddp_free(ddp);
    model_free(&model);
}

static void gradients_become_averages(void **state)
{
    static const struct training trainings[] = {
        {{.first_bucket_bytes = 0, .bucket_bytes = 0, .no_overlap = 0}, false, 3},
        {{.first_bucket_bytes = 0, .bucket_bytes = 0, .no_overlap = 0}, true, 3},
        {{.first_bucket_bytes = 1, .bucket_bytes = 1, .no_overlap = 0}, false, 6},
        {{.first_bucket_bytes = 1, .bucket_bytes = 1, .no_overlap = 0}, true, 6},
        {{.first_bucket_bytes = 600, .bucket_bytes = 3000, .no_overlap = 0}, true, 4},
        {{.first_bucket_bytes = 600, .bucket_bytes = 3000, .no_overlap = 0}, false, 4},
        {{.first_bucket_bytes = 600, .bucket_bytes = 3000, .no_overlap = 1}, true, 4},
        {{.first_bucket_bytes = 600, .bucket_bytes = 3000, .no_overlap = 1}, false, 4},
    };

    (void)state;
    for (int size = 1; size <= MOST_RANKS; size++)
        for (size_t i = 0; i < sizeof trainings / sizeof *trainings; i++)
            run_ranks(RANKS_THREADS, size, train, &trainings[i]);
    for (size_t i = 0; i < sizeof trainings / sizeof *trainings; i++)
        run_ranks(RANKS_PROCESSES, 3, train, &trainings[i]);
}

/* Backwards each bucket but the last is complete while gradients are to come; forwards the first is
 * complete with the last of them. */
static void count_early(struct rank *self)
{
    const struct training *training = self->argument;
    const uint64_t early = training->options.no_overlap ? 0 : training->nbuckets - 1;
    struct model model;
    kolo_ddp *ddp = NULL;
    kolo_ddp_stats stats = {.steps = 0};

    model_make(&model, training->has_gaps);
    expect(self, !kolo_ddp_create(self->group, model.params, NPARAMS, &training->options, &ddp),
           "create");
    for (int step = 0; step < 2 && ddp; step++) {
        for (size_t n = 0; n < NPARAMS; n++)
            expect(self, !kolo_ddp_ready(ddp, step ? n : NPARAMS - 1 - n), "ready");
        expect(self, !kolo_ddp_wait(ddp), "wait");
        kolo_ddp_get_stats(ddp, &stats);
        expect(self, stats.early_buckets == early, "early_buckets");
    }
    kolo_ddp_free(ddp);
    model_free(&model);
}

static void early_buckets_are_counted(void **state)
{
    static const struct training trainings[] = {
        {{.first_bucket_bytes = 1, .bucket_bytes = 1, .no_overlap = 0}, true, 6},
        {{.first_bucket_bytes = 1, .bucket_bytes = 1, .no_overlap = 1}, true, 6}};

    (void)state;
    for (size_t i = 0; i < 2; i++)
        run_ranks(RANKS_THREADS, 2, count_early, &trainings[i]);
}

static void check_broadcast(struct rank *self)
{
    const struct training *training = self->argument;
    struct model model;
    kolo_ddp *ddp = NULL;

    model_make(&model, training->has_gaps);
    for (size_t i = 0; i < NPARAMS; i++)
        for (size_t e = 0; e < model.params[i].count; e++)
            put(&model.params[i], model.params[i].data, e,
                100 * self->number + (double)(e % 31 + i));
    expect(self, !kolo_ddp_create(self->group, model.params, NPARAMS, &training->options, &ddp),
           "create");
    for (size_t i = 0; i < NPARAMS; i++)
        for (size_t e = 0; e < model.params[i].count; e++)
            expect(self, get(&model.params[i], model.params[i].data, e) == (double)(e % 31 + i),
                   "rank 0's data");
    kolo_ddp_free(ddp);
    model_free(&model);
}

static void rank_zeros_data_is_everybodys(void **state)
{
    static const struct training trainings[] = {
        {{.first_bucket_bytes = 600, .bucket_bytes = 3000, .no_overlap = 0}, true, 0},
        {{.first_bucket_bytes = 0, .bucket_bytes = 0, .no_overlap = 0}, false, 0}};

    (void)state;
    for (int size = 1; size <= MOST_RANKS; size++)
        for (size_t i = 0; i < 2; i++)
            run_ranks(RANKS_THREADS, size, check_broadcast, &trainings[i]);
}

/* ---- misuse ---------------------------------------------------------------------------------- */

static void misuse(struct rank *self)
{
    struct model model;
    kolo_ddp *ddp = NULL;

    model_make(&model, true);
    if (!expect(self, !kolo_ddp_create(self->group, model.params, NPARAMS, NULL, &ddp), "create"))
        goto out;
    expect_error(self, kolo_ddp_ready(ddp, NPARAMS), KOLO_E_INVALID, "no parameter 7 among 7");
    for (size_t i = 0; i < NPARAMS; i++)
        backward(&model, i, self->number, 1);
    expect(self, !kolo_ddp_ready(ddp, 6), "ready");
    expect_error(self, kolo_ddp_ready(ddp, 6), KOLO_E_INVALID,
                 "parameter 6 (head.weight) is ready for the second time");
    expect_error(self, kolo_ddp_wait(ddp), KOLO_E_INVALID,
                 "6 of 7 parameters were not ready: conv.weight, conv.bias, norm.scale, fc.weight, "
                 "fc.bias, unused; each");
    /* Nothing is lost: the step can be completed. */
    for (size_t i = 0; i < 6; i++)
        expect(self, !kolo_ddp_ready(ddp, i), "ready");
    expect(self, !kolo_ddp_wait(ddp), "wait");
    expect(self, is_averaged(&model, self->size, 1), "averaged");
    expect_error(self, kolo_ddp_wait(ddp), KOLO_E_INVALID, "7 of 7 parameters were not ready");
out:
    kolo_ddp_free(ddp);
    model_free(&model);
}

static void misuse_is_told(void **state)
{
    (void)state;
    run_ranks(RANKS_THREADS, 1, misuse, NULL);
    run_ranks(RANKS_THREADS, 3, misuse, NULL);
    kolo_ddp_free(NULL);
}

static void give_nothing(struct rank *self)
{
    struct model model;
    kolo_ddp_stats stats = {.steps = 7};
    kolo_ddp *ddp = NULL;

    model_make(&model, true);
    expect_error(self, kolo_ddp_create(NULL, model.params, NPARAMS, NULL, &ddp), KOLO_E_INVALID,
                 "kolo_ddp_create: group is NULL");
    /* Of what one rank has got wrong all hear. */
    expect_error(
        self, kolo_ddp_create(self->group, self->number ? model.params : NULL, NPARAMS, NULL, &ddp),
        self->number ? KOLO_E_MISMATCH : KOLO_E_INVALID, "kolo_ddp_create: params is NULL");
    expect_error(
        self, kolo_ddp_create(self->group, model.params, NPARAMS, NULL, self->number ? &ddp : NULL),
        self->number ? KOLO_E_MISMATCH : KOLO_E_INVALID, "kolo_ddp_create: ddp is NULL");
    expect(self, !ddp, "no output on failure");
    expect_error(self, kolo_ddp_ready(NULL, 0), KOLO_E_INVALID, "kolo_ddp_ready: ddp is NULL");
    expect_error(self, kolo_ddp_wait(NULL), KOLO_E_INVALID, "kolo_ddp_wait: ddp is NULL");
    expect_error(self, kolo_ddp_set_step(NULL, NULL), KOLO_E_INVALID,
                 "kolo_ddp_set_step: ddp is NULL");
    kolo_ddp_get_stats(NULL, &stats);
    expect(self, !stats.steps && stats.exposed_s == 0, "stats of nothing");
    kolo_ddp_get_stats(NULL, NULL);
    if (expect(self, !kolo_ddp_create(self->group, model.params, NPARAMS, NULL, &ddp), "create"))
        kolo_ddp_get_stats(ddp, NULL);
    kolo_ddp_free(ddp);
    model_free(&model);
}

static void nothing_is_told(void **state)
{
    (void)state;
    run_ranks(RANKS_THREADS, 1, give_nothing, NULL);
    run_ranks(RANKS_THREADS, 2, give_nothing, NULL);
}

/* More names than an error has room for. */
static void many_not_ready(struct rank *self)
{
    enum { MANY = 500 };
    static float data[MANY], grad[MANY];
    static char names[MANY][32];
    kolo_param params[MANY];
    kolo_ddp *ddp = NULL;

    for (size_t i = 0; i < MANY; i++) {
        snprintf(names[i], sizeof names[i], "layer.%zu", i);
        params[i] = (kolo_param){.name = names[i],
                                 .data = &data[i],
                                 .grad = &grad[i],
                                 .count = 1,
                                 .dtype = KOLO_FLOAT32};
    }
    expect(self, !kolo_ddp_create(self->group, params, MANY, NULL, &ddp), "create");
    memset(names, 'x', sizeof names); /* they are the caller's again */
    if (ddp)
        expect_error(self, kolo_ddp_wait(ddp), KOLO_E_INVALID,
                     "500 of 500 parameters were not ready: layer.0, layer.1, layer.2");
    expect(self, strstr(kolo_last_error(), "...; each needs kolo_ddp_ready once") != NULL, "cut");
    kolo_ddp_free(ddp);
}

static void long_lists_are_cut(void **state)
{
    (void)state;
    run_ranks(RANKS_THREADS, 1, many_not_ready, NULL);
}

static void bad_params(struct rank *self)
{
    static char memory[8];
    static const struct {
        kolo_param param;
        const char *text;
    } bad[] = {
        {{.name = NULL, .data = memory, .grad = memory, .count = 1, .dtype = KOLO_FLOAT32},
         "parameter 0 has no name"},
        {{.name = "w", .data = NULL, .grad = memory, .count = 1, .dtype = KOLO_FLOAT32},
         "parameter 0 (w) has no data"},
        {{.name = "w", .data = memory, .grad = NULL, .count = 1, .dtype = KOLO_FLOAT32},
         "parameter 0 (w) has no grad"},
        {{.name = "w", .data = memory, .grad = memory, .count = 1, .dtype = KOLO_INT32},
         "dtype int32; a float is needed"},
        {{.name = "w", .data = memory, .grad = memory, .count = 1, .dtype = KOLO_NDTYPES},
         "dtype unknown; a float is needed"},
        {{.name = "w",
          .data = memory,
          .grad = memory,
          .count = SIZE_MAX / 4,
          .dtype = KOLO_FLOAT64},
         "more than memory"},
    };
    kolo_ddp *ddp = NULL;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        expect_error(self, kolo_ddp_create(self->group, &bad[i].param, 1, NULL, &ddp),
                     KOLO_E_INVALID, bad[i].text);
    expect(self, !ddp, "no output on failure");
}

static void bad_parameters_are_refused(void **state)
{
    (void)state;
    run_ranks(RANKS_THREADS, 1, bad_params, NULL);
    run_ranks(RANKS_THREADS, 2, bad_params, NULL);
}

/* ---- ranks that disagree --------------------------------------------------------------------- */

struct difference {
    int rank;            /* on which */
    kolo_param param;    /* parameter 1 is this (its name NULL: as elsewhere) */
    int nmore;           /* and there are so many more of them */
    size_t bucket_bytes; /* and this is the option */
    const char *text;    /* then this is said on every rank */
};

static void disagree(struct rank *self)
{
    const struct difference *difference = self->argument;
    bool is_odd = self->number == difference->rank;
    bool is_refused; /* by its own rank, before any comparison */
    kolo_ddp_options options = {0};
    kolo_ddp *ddp = NULL;
    struct model model;
    size_t nparams = 3;
    int err;

    model_make(&model, true);
    if (is_odd && difference->param.name)
        model.params[1] = difference->param;
    if (is_odd) {
        nparams = (size_t)(3 + difference->nmore);
        options.bucket_bytes = difference->bucket_bytes;
    }
    err = kolo_ddp_create(self->group, model.params, nparams, &options, &ddp);
    is_refused = is_odd && difference->param.name &&
                 (difference->param.dtype == KOLO_INT32 || !difference->param.data);
    expect_error(self, err, is_refused ? KOLO_E_INVALID : KOLO_E_MISMATCH, difference->text);
    expect(self, !ddp, "no output on failure");
    expect(self, !kolo_barrier(self->group), "the group is still usable");
    model_free(&model);
}

static void disagreement_names_both_sides(void **state)
{
    static char memory[64];
    static const struct difference differences[] = {
        {2,
         {.name = "conv.bias", .data = memory, .grad = memory, .count = 4, .dtype = KOLO_FLOAT32},
         0,
         0,
         "parameter 1 is float32[3] conv.bias on rank 0 but float32[4] conv.bias on rank 2"},
        {1,
         {.name = "conv.b", .data = memory, .grad = memory, .count = 3, .dtype = KOLO_FLOAT32},
         0,
         0,
         "parameter 1 is float32[3] conv.bias on rank 0 but float32[3] conv.b on rank 1"},
        {0,
         {.name = "conv.bias", .data = memory, .grad = memory, .count = 3, .dtype = KOLO_FLOAT16},
         0,
         0,
         "parameter 1 is float16[3] conv.bias on rank 0 but float32[3] conv.bias on rank 1"},
        {2,
         {0},
         1,
         0,
         "rank 0 has 3 parameters, rank 2 has 4: only rank 2 has bfloat16[301] fc.weight"},
        {1,
         {0},
         -1,
         0,
         "rank 0 has 3 parameters, rank 1 has 2: only rank 0 has float64[17] norm.scale"},
        {1,
         {0},
         0,
         77,
         "rank 0 says \"first_bucket_bytes 1048576, bucket_bytes 26214400\", "
         "rank 1 says \"first_bucket_bytes 1048576, bucket_bytes 77\""},
        {2,
         {.name = "w", .data = memory, .grad = memory, .count = 1, .dtype = KOLO_INT32},
         0,
         0,
         "ddp: parameter 1 (w) is of dtype int32; a float is needed"},
        {0,
         {.name = "w", .data = NULL, .grad = memory, .count = 1, .dtype = KOLO_FLOAT32},
         0,
         0,
         "ddp: parameter 1 (w) has no data"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof differences / sizeof *differences; i++)
        run_ranks(RANKS_THREADS, 3, disagree, &differences[i]);
}

/* ---- the end of a group ---------------------------------------------------------------------- */

/* The first to leave a barrier may abort while the others are still in it. */
static bool is_met_or_aborted(struct rank *self)
{
    int err = kolo_barrier(self->group);

    return expect(self, !err || err == KOLO_E_ABORTED, "barrier");
}

static void train_till_abort(struct rank *self)
{
    struct model model;
    kolo_ddp *ddp = NULL;

    model_make(&model, true);
    if (expect(self, !kolo_ddp_create(self->group, model.params, NPARAMS, self->argument, &ddp),
               "create") &&
        is_met_or_aborted(self)) {
        if (self->number == 0)
            kolo_group_abort(self->group, "the disk is full");
        for (size_t i = 0; i < NPARAMS; i++)
            kolo_ddp_ready(ddp, i); /* may fail already */
        expect_error(self, kolo_ddp_wait(ddp), KOLO_E_ABORTED, "the disk is full");
    }
    kolo_ddp_free(ddp);
    model_free(&model);
}

static void abort_ends_the_wait(void **state)
{
    static const kolo_ddp_options options[] = {
        {.first_bucket_bytes = 1, .bucket_bytes = 1, .no_overlap = 0},
        {.first_bucket_bytes = 600, .bucket_bytes = 3000, .no_overlap = 1}};

    (void)state;
    for (int i = 0; i < 2; i++)
        run_ranks(RANKS_THREADS, 3, train_till_abort, &options[i]);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void starve(struct rank *self)
{
    struct model model;
    kolo_ddp *ddp = NULL;
    int nth = 1;

    model_make(&model, true);
    for (; nth < 100 && !ddp; nth++) {
        ko_fault_arm(KO_FAULT_ALLOC, nth);
        int err = kolo_ddp_create(self->group, model.params, NPARAMS, NULL, &ddp);
        expect(self, err == (ddp ? KOLO_OK : KOLO_E_NOMEM), "KOLO_E_NOMEM or success");
    }
    ko_fault_arm(KO_FAULT_ALLOC, 0);
    expect(self, ddp && nth > 8, "some allocations, then success");
    kolo_ddp_free(ddp);
    model_free(&model);
}

static void survives_having_no_memory(void **state)
{
    (void)state;
    run_ranks(RANKS_THREADS, 1, starve, NULL);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_become_averages),
        cmocka_unit_test(early_buckets_are_counted),
        cmocka_unit_test(rank_zeros_data_is_everybodys),
        cmocka_unit_test(misuse_is_told),
        cmocka_unit_test(nothing_is_told),
        cmocka_unit_test(long_lists_are_cut),
        cmocka_unit_test(bad_parameters_are_refused),
        cmocka_unit_test(disagreement_names_both_sides),
        cmocka_unit_test(abort_ends_the_wait),
        cmocka_unit_test(survives_having_no_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
