/* SPDX-License-Identifier: MIT
 *
 * sgd.h: stochastic gradient descent with momentum, as PyTorch defines it.
 */
#ifndef TRAIN_SGD_H
#define TRAIN_SGD_H

#include <stddef.h>

struct sgd {
    float rate, momentum;
    size_t count;
    float *velocity; /* [count], owned; zero at first */
};

int sgd_create(size_t count, float rate, float momentum, struct sgd *sgd);

/* velocity = momentum velocity + grads; values -= rate velocity. */
void sgd_step(const struct sgd *sgd, const float *grads, float *values);

/* Safe on one that is all zero. */
void sgd_free(struct sgd *sgd);

#endif
