/* SPDX-License-Identifier: MIT */
#include "sgd.h"

#include "failure.h"

#include <stdlib.h>

int sgd_create(size_t count, float rate, float momentum, struct sgd *sgd)
{
    sgd->rate = rate;
    sgd->momentum = momentum;
    sgd->count = count;
    sgd->velocity = calloc(count, sizeof *sgd->velocity);
    if (!sgd->velocity)
        return train_fail("no memory for the momentum of %zu parameters", count);
    return TRAIN_OK;
}

void sgd_step(const struct sgd *sgd, const float *grads, float *values)
{
    for (size_t i = 0; i < sgd->count; i++) {
        sgd->velocity[i] = sgd->momentum * sgd->velocity[i] + grads[i];
        values[i] -= sgd->rate * sgd->velocity[i];
    }
}

void sgd_free(struct sgd *sgd)
{
    free(sgd->velocity);
    *sgd = (struct sgd){0};
}
