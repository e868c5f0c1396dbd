/* SPDX-License-Identifier: MIT */
#include "sgd.h"

#include "failure.h"

#include <stdlib.h>

int sgd_create(struct gpu *gpu, size_t count, float rate, float momentum, struct sgd *sgd)
{
    const size_t nbytes = count * sizeof(float);

    *sgd = (struct sgd){.gpu = gpu, .rate = rate, .momentum = momentum, .count = count};
    sgd->host_velocity = calloc(count, sizeof(float));
    sgd->velocity = gpu ? gpu_alloc(gpu, nbytes) : sgd->host_velocity;
    if (!sgd->velocity || !sgd->host_velocity)
        return train_fail("no memory for the momentum of %zu parameters", count);
    sgd_restore(sgd);
    return TRAIN_OK;
}

void sgd_fetch(const struct sgd *sgd)
{
    gpu_get(sgd->gpu, sgd->host_velocity, sgd->velocity, sgd->count * sizeof(float));
}

void sgd_restore(const struct sgd *sgd)
{
    gpu_put(sgd->gpu, sgd->velocity, sgd->host_velocity, sgd->count * sizeof(float));
}

static void step_on_gpu(const struct sgd *sgd, const float *grads, float *values)
{
    const struct sgd_args args = {.grads = grads,
                                  .values = values,
                                  .velocity = sgd->velocity,
                                  .count = sgd->count,
                                  .rate = sgd->rate,
                                  .momentum = sgd->momentum};

    gpu_run(sgd->gpu, GPU_train_sgd, sgd->count, &args);
}

void sgd_step(const struct sgd *sgd, const float *grads, float *values)
{
    if (sgd->gpu) {
        step_on_gpu(sgd, grads, values);
        return;
    }
    for (size_t i = 0; i < sgd->count; i++) {
        sgd->velocity[i] = sgd->momentum * sgd->velocity[i] + grads[i];
        values[i] -= sgd->rate * sgd->velocity[i];
    }
}

void sgd_free(struct sgd *sgd)
{
    if (sgd->velocity != sgd->host_velocity)
        gpu_free(sgd->gpu, sgd->velocity);
    free(sgd->host_velocity);
    *sgd = (struct sgd){0};
}
