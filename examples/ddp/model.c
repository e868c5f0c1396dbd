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
    const size_t rooms = model->gpu ? per_sample : sizeof(float); /* where one sample's would do */
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
        {&model->conv1.columns, rooms * PATCH1 * CONV1_AREA},
        {&model->conv2.columns, rooms * PATCH2 * CONV2_AREA},
        {&model->conv1.sample_grad, rooms * CHANNELS1 * PATCH1},
        {&model->conv2.sample_grad, rooms * CHANNELS2 * PATCH2},
        {&model->conv1.plane_sums, rooms * CHANNELS1},
        {&model->conv2.plane_sums, rooms * CHANNELS2},
        {&model->conv1.ones, sizeof(float) * CONV1_AREA},
        {&model->images, model->gpu ? per_sample * IMAGE_AREA : 0},
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
    model->samples = take(model->gpu ? model->capacity * sizeof(uint32_t) : 0, base, &used);
    model->labels = take(model->gpu ? model->capacity : 0, base, &used);
    model->conv2.ones = model->conv1.ones; /* it has the larger area */
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

/* On the host the arrays themselves; on a GPU copies of them, which host_memory has. */
static int make_host_copies(struct model *model)
{
    const size_t count = model->count + model->capacity * NCLASSES;

    model->host_values = model->values;
    model->host_log_probs = model->log_probs;
    if (!model->gpu)
        return TRAIN_OK;
    model->host_memory = malloc(count * sizeof(float));
    if (!model->host_memory)
        return train_fail("no memory for %zu parameters", model->count);
    model->host_values = model->host_memory;
    model->host_log_probs = model->host_memory + model->count;
    return TRAIN_OK;
}

static int fill_first_values(struct model *model)
{
    float ones[CONV1_AREA];

    for (size_t i = 0; i < CONV1_AREA; i++)
        ones[i] = 1;
    memset(model->host_values, 0, model->count * sizeof *model->values);
    model_restore(model);
    if (model->gpu)
        gpu_put(model->gpu, model->conv1.ones, ones, sizeof ones);
    return gpu_sync(model->gpu);
}

static size_t count_params(void)
{
    size_t count = 0;

    for (size_t i = 0; i < MODEL_NPARAMS; i++)
        count += param_count(i);
    return count;
}

int model_create(struct gpu *gpu, size_t capacity, struct model *model)
{
    size_t nbytes;
    int err;

    *model = (struct model){
        .gpu = gpu,
        .capacity = capacity,
        .count = count_params(),
        .conv1 = {.inputs = 1, .outputs = CHANNELS1, .side = IMAGE_SIDE, .kernel = KERNEL},
        .conv2 = {.inputs = CHANNELS1, .outputs = CHANNELS2, .side = POOL1_SIDE, .kernel = KERNEL},
        .fc1 = {.inputs = FEATURES, .outputs = HIDDEN},
        .fc2 = {.inputs = HIDDEN, .outputs = NCLASSES},
    };
    nbytes = model_arrays(model, NULL);
    model->memory = gpu_alloc(gpu, nbytes);
    if (!model->memory)
        return train_fail("no memory for a batch of %zu images (%zu MB): choose a smaller --batch",
                          capacity, nbytes >> 20);
    model_arrays(model, model->memory);
    err = make_host_copies(model);
    if (err)
        return err;
    model_params(model);
    wire_conv(&model->conv1, &model->params[CONV1_WEIGHT]);
    wire_conv(&model->conv2, &model->params[CONV2_WEIGHT]);
    wire_linear(&model->fc1, &model->params[FC1_WEIGHT]);
    wire_linear(&model->fc2, &model->params[FC2_WEIGHT]);
    return fill_first_values(model);
}

void model_fetch(const struct model *model)
{
    gpu_get(model->gpu, model->host_values, model->values, model->count * sizeof(float));
}

void model_restore(const struct model *model)
{
    gpu_put(model->gpu, model->values, model->host_values, model->count * sizeof(float));
}

void model_free(struct model *model)
{
    gpu_free(model->gpu, model->memory);
    free(model->host_memory);
    *model = (struct model){0};
}

/* ---- first values ---------------------------------------------------------------------------- */

void model_init(struct model *model, uint64_t seed)
{
    float *values = model->host_values;

    for (size_t i = 0; i < MODEL_NPARAMS; i++) {
        const uint32_t *dims = model_shapes[i & ~(size_t)1].dims; /* of the bias: its weight's */
        float bound = 1.0f / sqrtf((float)(dims[1] * dims[2] * dims[3]));
        uint64_t key = random_bits(seed, i);
        for (size_t k = 0; k < model->params[i].count; k++)
            *values++ = random_uniform(key, k, bound);
    }
}

int model_load(struct model *model, const char *path)
{
    FILE *file = fopen(path, "rb");
    size_t got;
    int next;

    if (!file)
        return train_fail("cannot open %s: %s", path, strerror(errno));
    got = fread(model->host_values, sizeof(float), model->count, file);
    next = fgetc(file);
    fclose(file);
    if (got != model->count || next != EOF)
        return train_fail("%s must hold exactly %zu float32 (%zu bytes): it is %s", path,
                          model->count, model->count * sizeof(float),
                          next == EOF ? "shorter" : "longer");
    return TRAIN_OK;
}

/* ---- forward and backward -------------------------------------------------------------------- */

/* The batch where the network is. */
static struct model_batch bring(const struct model *model, const struct model_batch *batch)
{
    struct model_batch brought = *batch;

    if (!model->gpu)
        return brought;
    brought.images = model->images;
    brought.labels = model->labels;
    gpu_put(model->gpu, model->images, batch->images, batch->n * IMAGE_AREA * sizeof(float));
    gpu_put(model->gpu, model->labels, batch->labels, batch->n);
    if (batch->dropout.percent) {
        brought.dropout.samples = model->samples;
        gpu_put(model->gpu, model->samples, batch->dropout.samples, batch->n * sizeof(uint32_t));
    }
    return brought;
}

static void forward_conv_layers(struct model *model)
{
    const struct model_batch *batch = &model->batch;
    const size_t maps[3] = {batch->n, CHANNELS2, CONV2_AREA};
    struct gpu *gpu = model->gpu;

    device_conv_forward(gpu, &model->conv1, batch->n, batch->images, model->conv1_maps);
    device_pool_forward(gpu, batch->n * CHANNELS1, CONV1_SIDE, model->conv1_maps, model->pool1_maps,
                        model->pool1_which);
    device_relu_forward(gpu, batch->n * CHANNELS1 * POOL1_AREA, model->pool1_maps);

    device_conv_forward(gpu, &model->conv2, batch->n, model->pool1_maps, model->conv2_maps);
    device_dropout(gpu, &batch->dropout, DROP_CONV2, maps, model->conv2_maps);
    device_pool_forward(gpu, batch->n * CHANNELS2, CONV2_SIDE, model->conv2_maps, model->pool2_maps,
                        model->pool2_which);
    device_relu_forward(gpu, batch->n * CHANNELS2 * POOL2_AREA, model->pool2_maps);
}

int model_forward(struct model *model, const struct model_batch *batch, double *loss)
{
    const size_t rows[3] = {batch->n, HIDDEN, 1};
    struct gpu *gpu = model->gpu;
    int err;

    model->batch = bring(model, batch);
    forward_conv_layers(model);
    device_linear_forward(gpu, &model->fc1, batch->n, model->pool2_maps, model->hidden);
    device_relu_forward(gpu, batch->n * HIDDEN, model->hidden);
    device_dropout(gpu, &model->batch.dropout, DROP_HIDDEN, rows, model->hidden);

    device_linear_forward(gpu, &model->fc2, batch->n, model->hidden, model->log_probs);
    device_log_softmax(gpu, batch->n, NCLASSES, model->log_probs);
    gpu_get(gpu, model->host_log_probs, model->log_probs, batch->n * NCLASSES * sizeof(float));
    err = gpu_sync(gpu);
    if (!err)
        *loss = nll(batch->n, NCLASSES, model->host_log_probs, batch->labels);
    return err;
}

/* The gradients of a weight and its bias are final, when the GPU has come so far, and backward
 * needs the two no more: the group may change them at once. */
static int announce(const struct model *model, kolo_ddp *ddp, enum model_param weight)
{
    int status;

    if (!ddp)
        return KOLO_OK;
    if (model->gpu)
        gpu_hand_over(model->gpu);
    status = kolo_ddp_ready(ddp, (size_t)weight + 1);
    return status ? status : kolo_ddp_ready(ddp, weight);
}

static int backward_linear_layers(struct model *model, kolo_ddp *ddp)
{
    const float *logits_grad = model->log_probs; /* device_nll_backward put it there */
    const struct dropout *dropout = &model->batch.dropout;
    const size_t n = model->batch.n, rows[3] = {n, HIDDEN, 1};
    struct gpu *gpu = model->gpu;
    int status;

    device_linear_backward_params(gpu, &model->fc2, n, model->hidden, logits_grad);
    device_linear_backward_input(gpu, &model->fc2, n, logits_grad, model->hidden_grad);
    status = announce(model, ddp, FC2_WEIGHT);
    if (status)
        return status;
    device_dropout(gpu, dropout, DROP_HIDDEN, rows, model->hidden_grad);
    device_relu_backward(gpu, n * HIDDEN, model->hidden, model->hidden_grad);

    device_linear_backward_params(gpu, &model->fc1, n, model->pool2_maps, model->hidden_grad);
    device_linear_backward_input(gpu, &model->fc1, n, model->hidden_grad, model->pool2_grad);
    return announce(model, ddp, FC1_WEIGHT);
}

int model_backward(struct model *model, kolo_ddp *ddp)
{
    const size_t n = model->batch.n, maps[3] = {n, CHANNELS2, CONV2_AREA};
    struct gpu *gpu = model->gpu;
    int status;

    device_nll_backward(gpu, n, NCLASSES, model->log_probs, model->batch.labels);
    status = backward_linear_layers(model, ddp);
    if (status)
        return status;

    device_relu_backward(gpu, n * CHANNELS2 * POOL2_AREA, model->pool2_maps, model->pool2_grad);
    device_pool_backward(gpu, n * CHANNELS2, CONV2_SIDE, model->pool2_grad, model->pool2_which,
                         model->conv2_grad);
    device_dropout(gpu, &model->batch.dropout, DROP_CONV2, maps, model->conv2_grad);
    device_conv_backward_params(gpu, &model->conv2, n, model->pool1_maps, model->conv2_grad);
    device_conv_backward_input(gpu, &model->conv2, n, model->conv2_grad, model->pool1_grad);
    status = announce(model, ddp, CONV2_WEIGHT);
    if (status)
        return status;

    device_relu_backward(gpu, n * CHANNELS1 * POOL1_AREA, model->pool1_maps, model->pool1_grad);
    device_pool_backward(gpu, n * CHANNELS1, CONV1_SIDE, model->pool1_grad, model->pool1_which,
                         model->conv1_grad);
    device_conv_backward_params(gpu, &model->conv1, n, model->batch.images, model->conv1_grad);
    return announce(model, ddp, CONV1_WEIGHT);
}
