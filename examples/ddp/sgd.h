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

/* velocity = momentum velocity + grads; values -= rate velocity. */
void sgd_step(const struct sgd *sgd, const float *grads, float *values);

/* Safe on one that is all zero. */
void sgd_free(struct sgd *sgd);

#endif
