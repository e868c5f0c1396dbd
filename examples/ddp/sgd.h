/* SPDX-License-Identifier: MIT
 *
 * sgd.h: stochastic gradient descent with momentum, as PyTorch defines it.
 */
#ifndef TRAIN_SGD_H
#define TRAIN_SGD_H

#include "gpu.h"

#include <stddef.h>

struct sgd {
    struct gpu *gpu; /* where velocity is; NULL: on the host */
    float rate, momentum;
    size_t count;
    float *velocity;      /* [count], owned; zero at first */
    float *host_velocity; /* the same on the host, or a copy of it there, owned */
};

/* gpu NULL: on the host. */
int sgd_create(struct gpu *gpu, size_t count, float rate, float momentum, struct sgd *sgd);

/* Brings velocity to the host's copy, after gpu_sync; and back. */
void sgd_fetch(const struct sgd *sgd);
void sgd_restore(const struct sgd *sgd);

/* The options of a step, 1 at first, which kolo takes when it has averaged the gradients: velocity
 * = momentum velocity + gradient; value -= rate velocity. */
kolo_step sgd_step(const struct sgd *sgd, uint64_t number);

/* Safe on one that is all zero. */
void sgd_free(struct sgd *sgd);

#endif
