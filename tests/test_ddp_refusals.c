/* SPDX-License-Identifier: MIT
 *
 * Data-parallel training: what is refused, and with which words, and a lack of memory.
 */
#include "ddp_model.h"
#include "fault.h"

#include <stdio.h>

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
        cmocka_unit_test(misuse_is_told),
        cmocka_unit_test(nothing_is_told),
        cmocka_unit_test(long_lists_are_cut),
        cmocka_unit_test(bad_parameters_are_refused),
        cmocka_unit_test(disagreement_names_both_sides),
        cmocka_unit_test(survives_having_no_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
