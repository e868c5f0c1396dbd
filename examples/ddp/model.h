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

#include "device.h"
#include "kolo.h"

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

/* What the network was last shown, and where it is. */
struct model_batch {
    size_t n;
    const float *images;
    const uint8_t *labels;
    struct dropout dropout;
};

struct model {
    struct gpu *gpu;                  /* where all arrays are but host_...; NULL: on the host */
    size_t capacity;                  /* the largest batch */
    size_t count;                     /* of all parameters together */
    float *values, *grads;            /* [count] each, in the order of model_param */
    kolo_param params[MODEL_NPARAMS]; /* the same memory, parameter by parameter */
    float *host_values;               /* values on the host, or a copy of them there */
    struct conv conv1, conv2;
    struct linear fc1, fc2;

    /* Results of the last forward, each with room for capacity samples. */
    float *conv1_maps, *pool1_maps, *conv2_maps, *pool2_maps;
    float *hidden, *log_probs; /* rows of 50 and 10; pool2_maps are rows of 320 */
    uint8_t *pool1_which, *pool2_which;
    float *host_log_probs; /* log_probs on the host, or a copy of them there */
    /* Gradients by them. */
    float *conv1_grad, *pool1_grad, *conv2_grad, *pool2_grad, *hidden_grad;

    struct model_batch batch;
    /* On a GPU, of a batch: */
    float *images;
    uint32_t *samples;
    uint8_t *labels;

    void *memory; /* all of the above lies in it but host_... on a GPU, which are in: */
    float *host_memory;
};

/* Parameters are zero at first. gpu NULL: on the host. */
int model_create(struct gpu *gpu, size_t capacity, struct model *model);

/* Brings values to the host's copy, after gpu_sync; and back. */
void model_fetch(const struct model *model);
void model_restore(const struct model *model);

/* Of the host's copy. PyTorch's default: weights and biases uniform within 1/sqrt(number of inputs
 * of a unit). */
void model_init(struct model *model, uint64_t seed);

/* Reads all parameters, to the host's copy, from a file of exactly that many float32, in the order
 * of model_param. */
int model_load(struct model *model, const char *path);

/* images[n][28][28], on the host, as all of the batch. Leaves host_log_probs[n][10], and gives the
 * sum of the samples' losses. */
int model_forward(struct model *model, const struct model_batch *batch, double *loss);

/* Gradients of the mean loss of the last batch, whose memory must still be there. Tells ddp (NULL:
 * nobody) of each gradient as soon as it is final, or on a GPU is sure to be before what the group
 * does with it, so the last layer's travel while the first layers' are computed. Returns kolo's
 * status. */
int model_backward(struct model *model, kolo_ddp *ddp);

/* Safe on a model that is all zero. */
void model_free(struct model *model);

#endif
