/* SPDX-License-Identifier: MIT
 *
 * model.h: the network of PyTorch's distributed tutorial, for 28x28 images and 10 classes:
 *
 *   conv 1->10, 5x5 | max 2x2, relu | conv 10->20, 5x5, drop channels | max 2x2, relu |
 *   linear 320->50, relu, drop | linear 50->10 | log-softmax
 *
 * Owns its parameters, their gradients and what forward keeps for backward.
 */
#ifndef TRAIN_MODEL_H
#define TRAIN_MODEL_H

#include "kolo.h"
#include "layers.h"

enum model_param {
    CONV1_WEIGHT,
    CONV1_BIAS,
    CONV2_WEIGHT,
    CONV2_BIAS,
    FC1_WEIGHT,
    FC1_BIAS,
    FC2_WEIGHT,
    FC2_BIAS,
    MODEL_NPARAMS
};

#define MODEL_MAX_DIMS 4

/* Name and shape of each parameter; unused dims are 1. */
struct param_shape {
    const char *name;
    uint32_t dims[MODEL_MAX_DIMS];
};
extern const struct param_shape model_shapes[MODEL_NPARAMS];

struct model {
    size_t capacity;                  /* the largest batch */
    size_t count;                     /* of all parameters together */
    float *values, *grads;            /* [count] each, in the order of model_param */
    kolo_param params[MODEL_NPARAMS]; /* the same memory, parameter by parameter */
    struct conv conv1, conv2;
    struct linear fc1, fc2;

    /* Results of the last forward, each with room for capacity samples. */
    float *conv1_maps, *pool1_maps, *conv2_maps, *pool2_maps;
    float *hidden, *log_probs; /* rows of 50 and 10; pool2_maps are rows of 320 */
    uint8_t *pool1_which, *pool2_which;
    /* Gradients by them. */
    float *conv1_grad, *pool1_grad, *conv2_grad, *pool2_grad, *hidden_grad;

    void *memory; /* all of the above lies in it */
};

/* Parameters are zero at first. */
int model_create(size_t capacity, struct model *model);

/* PyTorch's default: weights and biases uniform within 1/sqrt(number of inputs of a unit). */
void model_init(struct model *model, uint64_t seed);

/* Reads all parameters from a file of exactly that many float32, in the order of model_param. */
int model_load(struct model *model, const char *path);

/* images[batch][28][28]. Leaves log_probs[batch][10] and returns the sum of the samples' losses. */
double model_forward(struct model *model, size_t batch, const float *images, const uint8_t *labels,
                     const struct dropout *dropout);

/* Gradients of the batch's mean loss, after model_forward with the same arguments. Tells ddp (NULL:
 * nobody) of each gradient as soon as it is final, so the last layer's travel while the first
 * layers' are computed. Returns kolo's status. */
int model_backward(struct model *model, size_t batch, const float *images, const uint8_t *labels,
                   const struct dropout *dropout, kolo_ddp *ddp);

/* Safe on a model that is all zero. */
void model_free(struct model *model);

#endif
