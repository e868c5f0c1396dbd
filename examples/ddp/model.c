/* SPDX-License-Identifier: MIT
 *
 * All arrays of a model lie in one piece of memory. They are listed once, in model_arrays; the list
 * is walked twice, first to add up the sizes, then to hand out the places.
 */
#include "model.h"

#include "data.h"
#include "failure.h"
#include "random.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sides and areas of the maps, from the input on. */
enum {
    KERNEL = 5,
    CONV1_SIDE = IMAGE_SIDE - KERNEL + 1, /* 24 */
    POOL1_SIDE = CONV1_SIDE / 2,          /* 12 */
    CONV2_SIDE = POOL1_SIDE - KERNEL + 1, /* 8 */
    POOL2_SIDE = CONV2_SIDE / 2,          /* 4 */
    CONV1_AREA = CONV1_SIDE * CONV1_SIDE,
    POOL1_AREA = POOL1_SIDE * POOL1_SIDE,
    CONV2_AREA = CONV2_SIDE * CONV2_SIDE,
    POOL2_AREA = POOL2_SIDE * POOL2_SIDE,
    CHANNELS1 = 10,
    CHANNELS2 = 20,
    PATCH1 = KERNEL * KERNEL,
    PATCH2 = CHANNELS1 * KERNEL * KERNEL,
    FEATURES = CHANNELS2 * POOL2_AREA, /* 320 */
    HIDDEN = 50
};

/* Which layers drop, as dropout's layer numbers. */
enum { DROP_CONV2, DROP_HIDDEN };

const struct param_shape model_shapes[MODEL_NPARAMS] = {
    [CONV1_WEIGHT] = {"conv1.weight", {CHANNELS1, 1, KERNEL, KERNEL}},
    [CONV1_BIAS] = {"conv1.bias", {CHANNELS1, 1, 1, 1}},
    [CONV2_WEIGHT] = {"conv2.weight", {CHANNELS2, CHANNELS1, KERNEL, KERNEL}},
    [CONV2_BIAS] = {"conv2.bias", {CHANNELS2, 1, 1, 1}},
    [FC1_WEIGHT] = {"fc1.weight", {HIDDEN, FEATURES, 1, 1}},
    [FC1_BIAS] = {"fc1.bias", {HIDDEN, 1, 1, 1}},
    [FC2_WEIGHT] = {"fc2.weight", {NCLASSES, HIDDEN, 1, 1}},
    [FC2_BIAS] = {"fc2.bias", {NCLASSES, 1, 1, 1}},
};

static size_t param_count(size_t index)
{
    const uint32_t *dims = model_shapes[index].dims;

    return (size_t)dims[0] * dims[1] * dims[2] * dims[3];
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* The next nbytes of base, on cache lines of their own; NULL if base is, and then only counts. */
static void *take(size_t nbytes, char *base, size_t *used)
{
    char *place = base ? base + *used : NULL;

    *used += (nbytes + 63) & ~(size_t)63;
    return place;
}

/* Hands out memory from base (NULL: from nowhere) and returns how much that is. */
static size_t model_arrays(struct model *model, char *base)
{
    const size_t per_sample = model->capacity * sizeof(float);
    size_t used = 0;
    const struct {
        float **array;
        size_t nbytes;
    } floats[] = {
        {&model->values, model->count * sizeof(float)},
        {&model->grads, model->count * sizeof(float)},
        {&model->conv1_maps, per_sample * CHANNELS1 * CONV1_AREA},
        {&model->pool1_maps, per_sample * CHANNELS1 * POOL1_AREA},
        {&model->conv2_maps, per_sample * CHANNELS2 * CONV2_AREA},
        {&model->pool2_maps, per_sample * FEATURES},
        {&model->hidden, per_sample * HIDDEN},
        {&model->log_probs, per_sample * NCLASSES},
        {&model->hidden_grad, per_sample * HIDDEN},
        {&model->pool2_grad, per_sample * FEATURES},
        {&model->conv2_grad, per_sample * CHANNELS2 * CONV2_AREA},
        {&model->pool1_grad, per_sample * CHANNELS1 * POOL1_AREA},
        {&model->conv1_grad, per_sample * CHANNELS1 * CONV1_AREA},
        {&model->conv1.columns, sizeof(float) * PATCH1 * CONV1_AREA},
        {&model->conv2.columns, sizeof(float) * PATCH2 * CONV2_AREA},
        {&model->conv1.sample_grad, sizeof(float) * CHANNELS1 * PATCH1},
        {&model->conv2.sample_grad, sizeof(float) * CHANNELS2 * PATCH2},
    };

    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++)
        *floats[i].array = take(floats[i].nbytes, base, &used);
    /* Layers use the room for totals one after another; fc1 has the most weights. */
    model->fc1.weight_total = take(sizeof(double) * HIDDEN * FEATURES, base, &used);
    model->fc2.weight_total = model->fc1.weight_total;
    model->conv1.weight_total = model->fc1.weight_total;
    model->conv2.weight_total = model->fc1.weight_total;
    model->pool1_which = take(model->capacity * CHANNELS1 * POOL1_AREA, base, &used);
    model->pool2_which = take(model->capacity * CHANNELS2 * POOL2_AREA, base, &used);
    return used;
}

static void model_params(struct model *model)
{
    size_t start = 0;

    for (size_t i = 0; i < MODEL_NPARAMS; i++) {
        model->params[i] = (kolo_param){
            .name = model_shapes[i].name,
            .data = model->values + start,
            .grad = model->grads + start,
            .count = param_count(i),
            .dtype = KOLO_FLOAT32,
        };
        start += param_count(i);
    }
}

static void wire_conv(struct conv *conv, const kolo_param *weight)
{
    conv->weight = weight[0].data;
    conv->weight_grad = weight[0].grad;
    conv->bias = weight[1].data;
    conv->bias_grad = weight[1].grad;
}

static void wire_linear(struct linear *linear, const kolo_param *weight)
{
    linear->weight = weight[0].data;
    linear->weight_grad = weight[0].grad;
    linear->bias = weight[1].data;
    linear->bias_grad = weight[1].grad;
}

int model_create(size_t capacity, struct model *model)
{
    size_t nbytes;

    *model = (struct model){
        .capacity = capacity,
        .conv1 = {.inputs = 1, .outputs = CHANNELS1, .side = IMAGE_SIDE, .kernel = KERNEL},
        .conv2 = {.inputs = CHANNELS1, .outputs = CHANNELS2, .side = POOL1_SIDE, .kernel = KERNEL},
        .fc1 = {.inputs = FEATURES, .outputs = HIDDEN},
        .fc2 = {.inputs = HIDDEN, .outputs = NCLASSES},
    };
    for (size_t i = 0; i < MODEL_NPARAMS; i++)
        model->count += param_count(i);
    nbytes = model_arrays(model, NULL);
    model->memory = aligned_alloc(64, nbytes);
    if (!model->memory)
        return train_fail("no memory for a batch of %zu images (%zu MB): choose a smaller --batch",
                          capacity, nbytes >> 20);
    model_arrays(model, model->memory);
    memset(model->values, 0, model->count * sizeof *model->values);
    model_params(model);
    wire_conv(&model->conv1, &model->params[CONV1_WEIGHT]);
    wire_conv(&model->conv2, &model->params[CONV2_WEIGHT]);
    wire_linear(&model->fc1, &model->params[FC1_WEIGHT]);
    wire_linear(&model->fc2, &model->params[FC2_WEIGHT]);
    return TRAIN_OK;
}

void model_free(struct model *model)
{
    free(model->memory);
    *model = (struct model){0};
}

/* ---- first values ---------------------------------------------------------------------------- */

void model_init(struct model *model, uint64_t seed)
{
    for (size_t i = 0; i < MODEL_NPARAMS; i++) {
        const uint32_t *dims = model_shapes[i & ~(size_t)1].dims; /* of the bias: its weight's */
        float bound = 1.0f / sqrtf((float)(dims[1] * dims[2] * dims[3]));
        uint64_t key = random_bits(seed, i);
        float *values = model->params[i].data;
        for (size_t k = 0; k < model->params[i].count; k++)
            values[k] = random_uniform(key, k, bound);
    }
}

int model_load(struct model *model, const char *path)
{
    FILE *file = fopen(path, "rb");
    size_t got;
    int next;

    if (!file)
        return train_fail("cannot open %s: %s", path, strerror(errno));
    got = fread(model->values, sizeof(float), model->count, file);
    next = fgetc(file);
    fclose(file);
    if (got != model->count || next != EOF)
        return train_fail("%s must hold exactly %zu float32 (%zu bytes): it is %s", path,
                          model->count, model->count * sizeof(float),
                          next == EOF ? "shorter" : "longer");
    return TRAIN_OK;
}

/* ---- forward and backward -------------------------------------------------------------------- */

double model_forward(struct model *model, size_t batch, const float *images, const uint8_t *labels,
                     const struct dropout *dropout)
{
    conv_forward(&model->conv1, batch, images, model->conv1_maps);
    pool_forward(batch * CHANNELS1, CONV1_SIDE, model->conv1_maps, model->pool1_maps,
                 model->pool1_which);
    relu_forward(batch * CHANNELS1 * POOL1_AREA, model->pool1_maps);

    conv_forward(&model->conv2, batch, model->pool1_maps, model->conv2_maps);
    dropout_maps(dropout, DROP_CONV2, batch, CHANNELS2, CONV2_AREA, model->conv2_maps);
    pool_forward(batch * CHANNELS2, CONV2_SIDE, model->conv2_maps, model->pool2_maps,
                 model->pool2_which);
    relu_forward(batch * CHANNELS2 * POOL2_AREA, model->pool2_maps);

    linear_forward(&model->fc1, batch, model->pool2_maps, model->hidden);
    relu_forward(batch * HIDDEN, model->hidden);
    dropout_rows(dropout, DROP_HIDDEN, batch, HIDDEN, model->hidden);

    linear_forward(&model->fc2, batch, model->hidden, model->log_probs);
    return log_softmax_nll(batch, NCLASSES, model->log_probs, labels);
}

/* The gradients of a weight and its bias are final. */
static int announce(kolo_ddp *ddp, enum model_param weight)
{
    int status;

    if (!ddp)
        return KOLO_OK;
    status = kolo_ddp_ready(ddp, (size_t)weight + 1);
    return status ? status : kolo_ddp_ready(ddp, weight);
}

static int backward_linear_layers(struct model *model, size_t batch, const struct dropout *dropout,
                                  kolo_ddp *ddp)
{
    const float *logits_grad = model->log_probs; /* log_softmax_nll_backward put it there */
    int status;

    linear_backward_params(&model->fc2, batch, model->hidden, logits_grad);
    status = announce(ddp, FC2_WEIGHT);
    if (status)
        return status;
    linear_backward_input(&model->fc2, batch, logits_grad, model->hidden_grad);
    dropout_rows(dropout, DROP_HIDDEN, batch, HIDDEN, model->hidden_grad);
    relu_backward(batch * HIDDEN, model->hidden, model->hidden_grad);

    linear_backward_params(&model->fc1, batch, model->pool2_maps, model->hidden_grad);
    status = announce(ddp, FC1_WEIGHT);
    if (status)
        return status;
    linear_backward_input(&model->fc1, batch, model->hidden_grad, model->pool2_grad);
    return KOLO_OK;
}

int model_backward(struct model *model, size_t batch, const float *images, const uint8_t *labels,
                   const struct dropout *dropout, kolo_ddp *ddp)
{
    int status;

    log_softmax_nll_backward(batch, NCLASSES, model->log_probs, labels);
    status = backward_linear_layers(model, batch, dropout, ddp);
    if (status)
        return status;

    relu_backward(batch * CHANNELS2 * POOL2_AREA, model->pool2_maps, model->pool2_grad);
    pool_backward(batch * CHANNELS2, CONV2_SIDE, model->pool2_grad, model->pool2_which,
                  model->conv2_grad);
    dropout_maps(dropout, DROP_CONV2, batch, CHANNELS2, CONV2_AREA, model->conv2_grad);
    conv_backward_params(&model->conv2, batch, model->pool1_maps, model->conv2_grad);
    status = announce(ddp, CONV2_WEIGHT);
    if (status)
        return status;
    conv_backward_input(&model->conv2, batch, model->conv2_grad, model->pool1_grad);

    relu_backward(batch * CHANNELS1 * POOL1_AREA, model->pool1_maps, model->pool1_grad);
    pool_backward(batch * CHANNELS1, CONV1_SIDE, model->pool1_grad, model->pool1_which,
                  model->conv1_grad);
    conv_backward_params(&model->conv1, batch, images, model->conv1_grad);
    return announce(ddp, CONV1_WEIGHT);
}
