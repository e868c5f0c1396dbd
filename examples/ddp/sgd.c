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

kolo_step sgd_step(const struct sgd *sgd, uint64_t number)
{
    return (kolo_step){
        .optimizer = KOLO_SGD, .number = number, .rate = sgd->rate, .momentum = sgd->momentum};
}

void sgd_free(struct sgd *sgd)
{
    if (sgd->velocity != sgd->host_velocity)
        gpu_free(sgd->gpu, sgd->velocity);
    free(sgd->host_velocity);
    *sgd = (struct sgd){0};
}
