/* SPDX-License-Identifier: MIT
 *
 * kolo-train: data-parallel training in plain C. Each rank takes its part of every batch, computes
 * the gradients, and kolo averages them over all ranks, and makes the same step on all of them,
 * while backward is still going on. Read main from the bottom up: main, train, train_epoch,
 * train_step.
 *
 * What is learned does not depend on the number of ranks but for rounding: the batches are the same
 * samples, and dropout depends on the sample, not on who has it.
 */
#include "failure.h"
#include "progress.h"
#include "random.h"
#include "trainer.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

/* Reports of an epoch: each costs one small all_reduce. */
enum { REPORTS_PER_EPOCH = 50 };

/* What a run has measured, apart from what it computes. */
struct measures {
    double started_s;
    uint64_t images;         /* over all ranks */
    double training_s;       /* without evaluation and files */
    double loss;             /* this rank's means, summed since the last report */
    uint64_t loss_steps;     /* how many */
    uint64_t reported_batch; /* of the epoch under way */
    double accuracy;
    bool is_bar;
};

static uint64_t batches_per_epoch(const struct trainer *trainer)
{
    return (trainer->nsamples + trainer->local_batch - 1) / trainer->local_batch;
}

static bool is_last_step(const struct trainer *trainer)
{
    return trainer->options.max_steps > 0 &&
           trainer->state.step >= (uint64_t)trainer->options.max_steps;
}

static bool is_finished(const struct trainer *trainer)
{
    return trainer->state.epoch >= (uint64_t)trainer->options.epochs || is_last_step(trainer);
}

static double waiting_s(const struct trainer *trainer)
{
    kolo_ddp_stats stats;

    kolo_ddp_get_stats(trainer->ddp, &stats);
    return stats.exposed_s;
}

/* The mean over all ranks of each rank's value: one more all_reduce, so only where it is shown. */
static int mean_over_ranks(struct trainer *trainer, double *value)
{
    return train_check(kolo_all_reduce(trainer->group, value, value, 1, KOLO_FLOAT64, KOLO_AVG),
                       "averaging the loss");
}

/* ---- one step -------------------------------------------------------------------------------- */

static struct dropout epoch_dropout(const struct trainer *trainer, const uint32_t *samples)
{
    return (struct dropout){
        .percent = (unsigned)trainer->options.dropout_percent,
        .key = random_bits(random_bits(trainer->state.seed, MODEL_NPARAMS), trainer->state.epoch),
        .samples = samples,
    };
}

/* One batch: *loss is the mean over this rank's part, *n the size of that. */
static int train_step(struct trainer *trainer, double *loss, size_t *n)
{
    struct model *model = &trainer->model;
    size_t begin = trainer->state.next_batch * trainer->local_batch;
    size_t left = trainer->nsamples - begin;
    size_t batch = left < trainer->local_batch ? left : trainer->local_batch;
    const uint32_t *samples = trainer->samples + begin;
    const struct model_batch shown = {.n = batch,
                                      .images = trainer->images,
                                      .labels = trainer->labels,
                                      .dropout = epoch_dropout(trainer, samples)};
    const kolo_step step = sgd_step(&trainer->sgd, trainer->state.step + 1);
    int status = kolo_ddp_set_step(trainer->ddp, &step);

    dataset_gather(&trainer->train_set, samples, batch, trainer->images, trainer->labels);
    if (!status && model_forward(model, &shown, loss))
        return TRAIN_FAILED;
    *loss /= (double)batch;
    *n = batch;
    if (!status)
        status = model_backward(model, trainer->ddp);
    if (!status)
        status = kolo_ddp_wait(trainer->ddp);
    if (status)
        return train_check(status, "averaging the gradients");
    trainer->state.step++;
    trainer->state.next_batch++;
    return TRAIN_OK;
}

static int log_loss(struct trainer *trainer, double loss)
{
    int err = mean_over_ranks(trainer, &loss);

    if (!err && trainer->losses &&
        fprintf(trainer->losses, "%llu %.9g\n", (unsigned long long)trainer->state.step, loss) < 0)
        err = train_fail("cannot write %s", trainer->options.log_losses);
    return err;
}

/* ---- one epoch ------------------------------------------------------------------------------- */

static int report(struct trainer *trainer, struct measures *measures)
{
    struct progress progress = {
        .epoch = trainer->state.epoch + 1,
        .epochs = (uint64_t)trainer->options.epochs,
        .batch = trainer->state.next_batch,
        .nbatches = batches_per_epoch(trainer),
        .loss = measures->loss / (double)measures->loss_steps,
        .images_per_s = (double)measures->images / measures->training_s,
        .communication = waiting_s(trainer) / measures->training_s,
    };
    double epochs =
        (double)trainer->state.epoch + (double)progress.batch / (double)progress.nbatches;
    int err = mean_over_ranks(trainer, &progress.loss);

    if (!err && !isfinite(progress.loss))
        err = trainer_fail_together(trainer, "the loss is no number any more: lower --lr");
    if (!err && trainer->rank == 0) {
        progress_print(stdout, measures->is_bar, &progress, measures->reported_batch);
        err = curve_add(&trainer->curve.loss, epochs, progress.loss);
    }
    measures->loss = 0;
    measures->loss_steps = 0;
    measures->reported_batch = progress.batch;
    return err;
}

static int step_and_report(struct trainer *trainer, struct measures *measures)
{
    uint64_t every = 1 + (batches_per_epoch(trainer) - 1) / REPORTS_PER_EPOCH;
    double loss = 0, begin_s = seconds_now();
    size_t n = 0;
    int err = train_step(trainer, &loss, &n);

    if (err)
        return err;
    measures->training_s += seconds_now() - begin_s;
    measures->images += n * (uint64_t)trainer->size;
    measures->loss += loss;
    measures->loss_steps++;
    if (trainer->options.log_losses)
        err = log_loss(trainer, loss);
    if (!err && (trainer->state.next_batch % every == 0 ||
                 trainer->state.next_batch == batches_per_epoch(trainer)))
        err = report(trainer, measures);
    return err;
}

/* From where the run is to the end of the epoch, or to the last step. */
static int train_epoch(struct trainer *trainer, struct measures *measures)
{
    int err = train_check(kolo_sampler_indices(trainer->train_set.count, &trainer->sampler,
                                               trainer->state.epoch, trainer->samples),
                          "choosing the samples");

    measures->reported_batch = trainer->state.next_batch;
    while (!err && trainer->state.next_batch < batches_per_epoch(trainer) && !is_last_step(trainer))
        err = step_and_report(trainer, measures);
    if (!err && trainer->state.next_batch == batches_per_epoch(trainer)) {
        trainer->state.epoch++;
        trainer->state.next_batch = 0;
    }
    progress_clear(stdout, measures->is_bar && trainer->rank == 0);
    return err;
}

/* ---- after an epoch -------------------------------------------------------------------------- */

/* The test images number begin, begin + size, ...: as many as fit into a batch. */
static size_t next_test_samples(const struct trainer *trainer, size_t begin, uint32_t *samples)
{
    size_t n = 0;

    for (size_t i = begin; i < trainer->test_set.count && n < trainer->model.capacity;
         i += (size_t)trainer->size)
        samples[n++] = (uint32_t)i;
    return n;
}

/* Adds to the number of images that are recognised, and to their losses. */
static int test(struct trainer *trainer, const uint32_t *samples, size_t n, double totals[2])
{
    const struct model_batch shown = {.n = n, .images = trainer->images, .labels = trainer->labels};
    double loss = 0;
    int err;

    dataset_gather(&trainer->test_set, samples, n, trainer->images, trainer->labels);
    err = model_forward(&trainer->model, &shown, &loss);
    if (err)
        return err;
    totals[0] += (double)count_correct(n, NCLASSES, trainer->model.host_log_probs, trainer->labels);
    totals[1] += loss;
    return TRAIN_OK;
}

/* Each rank tests its share of the test set; *accuracy and *loss are over all of it. */
static int evaluate(struct trainer *trainer, double *accuracy, double *loss)
{
    double totals[2] = {0}; /* correct, loss */
    size_t n, size = (size_t)trainer->size, count = trainer->test_set.count;
    uint32_t *samples = malloc(trainer->model.capacity * sizeof *samples);
    int err = TRAIN_OK;

    if (!samples)
        return train_fail("no memory for the order of the test images");
    for (size_t begin = (size_t)trainer->rank; begin < count && !err; begin += n * size) {
        n = next_test_samples(trainer, begin, samples);
        err = test(trainer, samples, n, totals);
    }
    free(samples);
    if (err)
        return err;
    err = train_check(kolo_all_reduce(trainer->group, totals, totals, 2, KOLO_FLOAT64, KOLO_SUM),
                      "adding up the test results");
    if (err)
        return err;
    *accuracy = totals[0] / (double)count;
    *loss = totals[1] / (double)count;
    return TRAIN_OK;
}

static int evaluate_and_report(struct trainer *trainer, struct measures *measures)
{
    double epochs = (double)trainer->state.epoch +
                    (double)trainer->state.next_batch / (double)batches_per_epoch(trainer);
    double loss = 0;
    int err = evaluate(trainer, &measures->accuracy, &loss);

    if (err)
        return err;
    trainer_say(trainer, "after %.4g epochs (%llu steps): test accuracy %.2f %%, test loss %.4f\n",
                epochs, (unsigned long long)trainer->state.step, 100 * measures->accuracy, loss);
    return trainer->rank == 0 ? curve_add(&trainer->curve.accuracy, epochs, measures->accuracy)
                              : TRAIN_OK;
}

static int write_files(const struct trainer *trainer)
{
    const struct options *options = &trainer->options;
    int err = TRAIN_OK;

    if (trainer->rank != 0)
        return TRAIN_OK;
    if (options->checkpoint) {
        model_fetch(&trainer->model);
        sgd_fetch(&trainer->sgd);
        err = gpu_sync(trainer->gpu);
    }
    if (!err && options->checkpoint)
        err =
            checkpoint_write(options->checkpoint, &trainer->state, &trainer->model, &trainer->sgd);
    if (!err && options->curve)
        err = curve_write(&trainer->curve, options->curve);
    if (!err && trainer->losses && fflush(trainer->losses))
        err = train_fail("cannot write %s", options->log_losses);
    return err;
}

static const char *plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}

static void summarize(const struct trainer *trainer, const struct measures *measures)
{
    const struct options *options = &trainer->options;
    const struct run_state *state = &trainer->state;
    double training_s = measures->training_s > 0 ? measures->training_s : 1e-9;
    kolo_ddp_stats stats;

    kolo_ddp_get_stats(trainer->ddp, &stats);
    trainer_say(trainer, "%llu epoch%s, %llu step%s on %d rank%s in %.1f s: ",
                (unsigned long long)state->epoch, plural(state->epoch),
                (unsigned long long)state->step, plural(state->step), trainer->size,
                plural((uint64_t)trainer->size), seconds_now() - measures->started_s);
    trainer_say(trainer, "%.0f images/s, test accuracy %.2f %%\n",
                (double)measures->images / training_s, 100 * measures->accuracy);
    trainer_say(trainer,
                "communication %.3f s, exposed %.3f s (%.2f %% of the training time; "
                "overlap %s, %llu of %llu buckets begun during backward)\n",
                stats.communication_s, stats.exposed_s, 100 * stats.exposed_s / training_s,
                options->no_overlap ? "off" : "on", (unsigned long long)stats.early_buckets,
                (unsigned long long)stats.buckets * stats.steps);
    if (options->curve)
        trainer_say(trainer, "curve: %s\n", options->curve);
    if (options->checkpoint)
        trainer_say(trainer, "checkpoint: %s\n", options->checkpoint);
}

/* ---- the run --------------------------------------------------------------------------------- */

static int train(struct trainer *trainer)
{
    struct measures measures = {.started_s = seconds_now(), .is_bar = isatty(STDOUT_FILENO)};
    int err = is_finished(trainer) ? evaluate_and_report(trainer, &measures) : TRAIN_OK;

    while (!err && !is_finished(trainer)) {
        err = train_epoch(trainer, &measures);
        if (!err)
            err = evaluate_and_report(trainer, &measures);
        if (!err)
            err = write_files(trainer);
    }
    if (!err)
        summarize(trainer, &measures);
    return err;
}

int main(int argc, char **argv)
{
    struct options options;
    struct trainer trainer;
    int err = options_parse(argc, argv, &options);

    if (err)
        return err;
    err = trainer_open(&options, &trainer);
    if (!err)
        err = train(&trainer);
    trainer_close(&trainer, err ? train_failure() : NULL);
    return err;
}
