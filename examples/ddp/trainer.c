/* SPDX-License-Identifier: MIT */
#include "trainer.h"

#include "failure.h"

#include <cblas.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The test set is worked through in pieces of at least this many images. */
enum { LEAST_CAPACITY = 64 };

void trainer_say(const struct trainer *trainer, const char *format, ...)
{
    va_list arguments;

    if (trainer->rank != 0)
        return;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    fflush(stdout);
}

int trainer_fail_together(const struct trainer *trainer, const char *sentence)
{
    const int err = trainer->rank == 0 ? train_fail("%s", sentence) : train_note(sentence);

    (void)kolo_barrier(trainer->group);
    return err;
}

/* ---- data ------------------------------------------------------------------------------------ */

static const char *choose_data(const struct trainer *trainer)
{
    if (trainer->options.data)
        return trainer->options.data;
    if (access(DATA_STANDARD_FOLDER, F_OK) == 0)
        return DATA_STANDARD_FOLDER;
    if (trainer->rank == 0)
        fprintf(stderr, "kolo-train: *** THIS IS NOT REAL DATA ***\n"
                        "kolo-train: no " DATA_STANDARD_FOLDER ", so the images are synthetic\n"
                        "kolo-train: apt-get install dataset-fashion-mnist, or give --data DIR\n");
    return DATA_SYNTHETIC;
}

static int open_data(struct trainer *trainer)
{
    const char *data = choose_data(trainer);
    int err;

    if (strcmp(data, DATA_SYNTHETIC) == 0) {
        err = dataset_make(DATA_TRAIN, &trainer->train_set);
        if (!err)
            err = dataset_make(DATA_TEST, &trainer->test_set);
    } else {
        err = dataset_read(data, DATA_TRAIN, &trainer->train_set);
        if (!err)
            err = dataset_read(data, DATA_TEST, &trainer->test_set);
    }
    if (!err)
        trainer_say(trainer, "%zu training and %zu test images: %s\n", trainer->train_set.count,
                    trainer->test_set.count, data);
    return err;
}

/* ---- agreement ------------------------------------------------------------------------------- */

static int check_batch(const struct trainer *trainer)
{
    int batch = trainer->options.batch, rest = batch % trainer->size;
    char sentence[128];

    if ((size_t)batch > trainer->train_set.count)
        snprintf(sentence, sizeof sentence, "--batch %d is more than the %zu training images",
                 batch, trainer->train_set.count);
    else if (rest != 0)
        snprintf(sentence, sizeof sentence,
                 "--batch %d does not divide by the %d ranks; the nearest that do are %d and %d",
                 batch, trainer->size, batch - rest, batch - rest + trainer->size);
    else
        return TRAIN_OK;
    trainer_fail_together(trainer, sentence);
    return TRAIN_USAGE;
}

/* Ranks with different options or data would wait for one another forever, or worse, not notice. */
static int check_agreement(const struct trainer *trainer)
{
    const struct options *options = &trainer->options;
    const struct {
        const char *name;
        uint64_t value;
    } facts[] = {
        {"--batch", (uint64_t)options->batch},
        {"--epochs", (uint64_t)options->epochs},
        {"--max-steps", (uint64_t)options->max_steps},
        {"--seed", options->seed},
        {"--dropout", (uint64_t)options->dropout_percent},
        {"--no-shuffle", options->no_shuffle},
        {"--device", options->on_gpu},
        {"--no-overlap", options->no_overlap},
        {"--compress", options->wire},
        {"--bucket-kb", (uint64_t)options->bucket_kb},
        {"--log-losses", options->log_losses != NULL},
        {"--resume", options->resume != NULL},
        {"the number of training images", trainer->train_set.count},
        {"the number of test images", trainer->test_set.count},
    };
    enum { NFACTS = sizeof facts / sizeof *facts };
    uint64_t least[NFACTS], most[NFACTS];
    int status;

    for (int i = 0; i < NFACTS; i++)
        least[i] = most[i] = facts[i].value;
    status = kolo_all_reduce(trainer->group, least, least, NFACTS, KOLO_UINT64, KOLO_MIN);
    if (!status)
        status = kolo_all_reduce(trainer->group, most, most, NFACTS, KOLO_UINT64, KOLO_MAX);
    if (status)
        return train_check(status, "comparing the options of all ranks");
    for (int i = 0; i < NFACTS; i++)
        if (least[i] != most[i])
            return train_fail("ranks differ in %s: %llu to %llu (%llu on rank %d); start all of "
                              "them with the same options and data",
                              facts[i].name, (unsigned long long)least[i],
                              (unsigned long long)most[i], (unsigned long long)facts[i].value,
                              trainer->rank);
    return TRAIN_OK;
}

/* ---- the network ----------------------------------------------------------------------------- */

static void say_where(const struct trainer *trainer)
{
    char name[96];

    gpu_name(trainer->gpu, name, sizeof name);
    trainer_say(trainer, "rank 0 computes on %s\n", name);
}

static int open_model(struct trainer *trainer)
{
    const struct options *options = &trainer->options;
    size_t capacity = trainer->local_batch > LEAST_CAPACITY ? trainer->local_batch : LEAST_CAPACITY;
    int err = options->on_gpu ? gpu_open(trainer->group, &trainer->gpu) : TRAIN_OK;

    if (trainer->gpu)
        say_where(trainer);
    if (!err)
        err = model_create(trainer->gpu, capacity, &trainer->model);
    if (err)
        return err;
    trainer->images = malloc(capacity * IMAGE_AREA * sizeof *trainer->images);
    trainer->labels = malloc(capacity);
    if (!trainer->images || !trainer->labels)
        return train_fail("no memory for a batch of %zu images", capacity);
    err = sgd_create(trainer->gpu, trainer->model.count, options->rate, options->momentum,
                     &trainer->sgd);
    if (err)
        return err;
    model_init(&trainer->model, options->seed);
    if (options->init && trainer->rank == 0)
        err = model_load(&trainer->model, options->init);
    model_restore(&trainer->model);
    return err ? err : gpu_sync(trainer->gpu);
}

static int open_sampler(struct trainer *trainer)
{
    trainer->sampler = (kolo_sampler_options){
        .rank = trainer->rank,
        .size = trainer->size,
        .shuffle = !trainer->options.no_shuffle,
        .seed = trainer->state.seed,
    };
    trainer->nsamples = kolo_sampler_length(trainer->train_set.count, &trainer->sampler);
    trainer->samples = malloc(trainer->nsamples * sizeof *trainer->samples);
    if (!trainer->samples)
        return train_fail("no memory for the order of %zu samples", trainer->nsamples);
    return TRAIN_OK;
}

/* ddp_create gives everybody rank 0's parameters, be they drawn, loaded or resumed. The momentum
 * lies as they do. */
static int open_ddp(struct trainer *trainer)
{
    struct model *model = &trainer->model;
    const kolo_ddp_options options = {
        .first_bucket_bytes = (size_t)trainer->options.bucket_kb << 10,
        .bucket_bytes = (size_t)trainer->options.bucket_kb << 10,
        .no_overlap = trainer->options.no_overlap,
        .wire = trainer->options.wire,
    };

    for (int i = 0; i < MODEL_NPARAMS; i++)
        model->params[i].states[0] =
            trainer->sgd.velocity + ((float *)model->params[i].data - model->values);
    return train_check(
        kolo_ddp_create(trainer->group, model->params, MODEL_NPARAMS, &options, &trainer->ddp),
        "setting up data-parallel training");
}

/* ---- resuming -------------------------------------------------------------------------------- */

/* A resumed run goes on as if it had never stopped, so what decides its course cannot change. */
static int check_resumed(const struct trainer *trainer, const struct run_state *read)
{
    const struct options *options = &trainer->options;
    const struct {
        const char *name;
        uint64_t then, now;
    } facts[] = {
        {"--batch", read->batch, trainer->state.batch},
        {"training images", read->nsamples, trainer->state.nsamples},
        {"--dropout", read->dropout_percent, trainer->state.dropout_percent},
        {"--no-shuffle", read->no_shuffle, trainer->state.no_shuffle},
        {"--seed", read->seed, options->is_seed_given ? options->seed : read->seed},
    };

    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
        if (facts[i].then != facts[i].now)
            return train_fail("checkpoint %s was written with %s = %llu, not %llu: resume it with "
                              "the same",
                              options->resume, facts[i].name, (unsigned long long)facts[i].then,
                              (unsigned long long)facts[i].now);
    return TRAIN_OK;
}

/* Rank 0 reads; the others get its state and momentum here, the parameters from open_ddp. */
static int resume(struct trainer *trainer)
{
    struct run_state read = trainer->state;
    int err = TRAIN_OK, status;

    if (trainer->rank == 0) {
        err = checkpoint_read(trainer->options.resume, &read, &trainer->model, &trainer->sgd);
        if (!err)
            err = check_resumed(trainer, &read);
        model_restore(&trainer->model);
        sgd_restore(&trainer->sgd);
        err = err ? err : gpu_sync(trainer->gpu);
    }
    if (err)
        return err;
    status = kolo_broadcast(trainer->group, &read, sizeof read / sizeof(uint64_t), KOLO_UINT64, 0);
    if (!status)
        status = kolo_broadcast(trainer->group, trainer->sgd.velocity, trainer->sgd.count,
                                KOLO_FLOAT32, 0);
    if (status)
        return train_check(status, "handing the resumed state to all ranks");
    trainer->state = read;
    trainer_say(trainer, "resumed %s: step %llu, epoch %llu\n", trainer->options.resume,
                (unsigned long long)read.step, (unsigned long long)read.epoch + 1);
    return TRAIN_OK;
}

static int open_losses(struct trainer *trainer)
{
    if (!trainer->options.log_losses || trainer->rank != 0)
        return TRAIN_OK;
    trainer->losses = fopen(trainer->options.log_losses, "w");
    if (!trainer->losses)
        return train_fail("cannot create %s: %s", trainer->options.log_losses, strerror(errno));
    return TRAIN_OK;
}

/* ---- open and close -------------------------------------------------------------------------- */

static int join(struct trainer *trainer)
{
    int err = train_check(kolo_group_join(trainer->options.init_method, -1, &trainer->group),
                          "joining the other ranks");

    if (err)
        return err;
    trainer->rank = kolo_group_rank(trainer->group);
    trainer->size = kolo_group_size(trainer->group);
    trainer->local_batch = (size_t)(trainer->options.batch / trainer->size);
    return TRAIN_OK;
}

static void start_state(struct trainer *trainer)
{
    trainer->state = (struct run_state){
        .seed = trainer->options.seed,
        .batch = (uint64_t)trainer->options.batch,
        .nsamples = trainer->train_set.count,
        .dropout_percent = (uint64_t)trainer->options.dropout_percent,
        .no_shuffle = trainer->options.no_shuffle,
    };
}

int trainer_open(const struct options *options, struct trainer *trainer)
{
    int err;

    *trainer = (struct trainer){.options = *options};
    openblas_set_num_threads(1); /* the ranks are the threads */
    err = join(trainer);
    if (!err)
        err = open_data(trainer);
    if (!err)
        err = check_agreement(trainer);
    if (!err)
        err = check_batch(trainer);
    if (!err)
        err = open_model(trainer);
    if (err)
        return err;
    start_state(trainer);
    if (options->resume)
        err = resume(trainer);
    if (!err)
        err = open_sampler(trainer);
    if (!err)
        err = open_ddp(trainer);
    if (!err)
        err = open_losses(trainer);
    return err;
}

void trainer_close(struct trainer *trainer, const char *reason)
{
    if (reason && trainer->size > 1)
        kolo_group_abort(trainer->group, reason);
    if (trainer->losses)
        fclose(trainer->losses);
    curve_free(&trainer->curve);
    kolo_ddp_free(trainer->ddp);
    gpu_finish(trainer->gpu);
    sgd_free(&trainer->sgd);
    model_free(&trainer->model);
    free(trainer->samples);
    free(trainer->images);
    free(trainer->labels);
    dataset_free(&trainer->train_set);
    dataset_free(&trainer->test_set);
    kolo_group_free(trainer->group);
    gpu_close(trainer->gpu);
    *trainer = (struct trainer){0};
}
