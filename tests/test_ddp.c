/* SPDX-License-Identifier: MIT
 *
 * Data-parallel training: gradients become averages, whatever the order and the buckets.
 */
#include "ddp_model.h"

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

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_become_averages),
        cmocka_unit_test(early_buckets_are_counted),
        cmocka_unit_test(rank_zeros_data_is_everybodys),
        cmocka_unit_test(abort_ends_the_wait),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
