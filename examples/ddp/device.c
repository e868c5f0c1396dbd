/* SPDX-License-Identifier: MIT
 *
 * On a GPU a convolution lays out the columns of all samples at once, and multiplies them in one
 * call; gradients of parameters are made for each sample and then added up in double, as on the
 * host.
 */
#include "device.h"

#include "random.h"

/* ---- convolution ----------------------------------------------------------------------------- */

/* What follows from a convolution's shape, in elements. */
struct sizes {
    size_t patch, places, in, out; /* of a sample */
};

static struct sizes sizes_of(const struct conv *conv)
{
    const size_t side = conv->side - conv->kernel + 1;

    return (struct sizes){.patch = conv->inputs * conv->kernel * conv->kernel,
                          .places = side * side,
                          .in = conv->inputs * conv->side * conv->side,
                          .out = conv->outputs * side * side};
}

static struct gpu_matrix weights(const struct conv *conv)
{
    return (struct gpu_matrix){
        .values = conv->weight, .rows = conv->outputs, .cols = sizes_of(conv).patch};
}

/* Of all samples, one after the other. */
static struct gpu_matrix columns(const struct conv *conv)
{
    const struct sizes sizes = sizes_of(conv);

    return (struct gpu_matrix){.values = conv->columns,
                               .rows = sizes.patch,
                               .cols = sizes.places,
                               .step = sizes.patch * sizes.places};
}

static struct gpu_matrix grads(const struct conv *conv, const float *out_grad)
{
    const struct sizes sizes = sizes_of(conv);

    return (struct gpu_matrix){
        .values = out_grad, .rows = conv->outputs, .cols = sizes.places, .step = sizes.out};
}

static struct gpu_matrix transposed(struct gpu_matrix matrix)
{
    matrix.is_transposed = true;
    return matrix;
}

static void run_columns(struct gpu *gpu, enum gpu_kernel kernel, const struct conv *conv,
                        struct columns_args args)
{
    args.inputs = (uint32_t)conv->inputs;
    args.side = (uint32_t)conv->side;
    args.kernel = (uint32_t)conv->kernel;
    gpu_run(gpu, kernel, args.count, &args);
}

static void im2col(struct gpu *gpu, const struct conv *conv, size_t batch, const float *in)
{
    const struct sizes sizes = sizes_of(conv);

    run_columns(gpu, GPU_train_im2col, conv,
                (struct columns_args){
                    .from = in, .to = conv->columns, .count = batch * sizes.patch * sizes.places});
}

static void fill_bias(struct gpu *gpu, const float *bias, size_t channels, size_t area,
                      size_t batch, float *out)
{
    const struct bias_args args = {.out = out,
                                   .bias = bias,
                                   .count = batch * channels * area,
                                   .channels = (uint32_t)channels,
                                   .area = (uint32_t)area};

    gpu_run(gpu, GPU_train_bias, args.count, &args);
}

static void total(struct gpu *gpu, size_t batch, size_t count, const float *parts, float *out)
{
    const struct total_args args = {
        .parts = parts, .out = out, .count = count, .batch = (uint32_t)batch};

    gpu_run(gpu, GPU_train_total, count, &args);
}

void device_conv_forward(struct gpu *gpu, const struct conv *conv, size_t batch, const float *in,
                         float *out)
{
    const struct gpu_matrix a = weights(conv), b = columns(conv);

    if (!gpu) {
        conv_forward(conv, batch, in, out);
        return;
    }
    fill_bias(gpu, conv->bias, conv->outputs, b.cols, batch, out);
    im2col(gpu, conv, batch, in);
    gpu_multiply(gpu, batch, &a, &b, true, out);
}

void device_conv_backward_params(struct gpu *gpu, const struct conv *conv, size_t batch,
                                 const float *in, const float *out_grad)
{
    const struct gpu_matrix a = grads(conv, out_grad), b = transposed(columns(conv));
    const struct gpu_matrix planes = {
        .values = out_grad, .rows = batch * conv->outputs, .cols = a.cols};
    const struct gpu_matrix ones = {.values = conv->ones, .rows = a.cols, .cols = 1};

    if (!gpu) {
        conv_backward_params(conv, batch, in, out_grad);
        return;
    }
    gpu_multiply(gpu, 1, &planes, &ones, false, conv->plane_sums);
    total(gpu, batch, conv->outputs, conv->plane_sums, conv->bias_grad);
    im2col(gpu, conv, batch, in);
    gpu_multiply(gpu, batch, &a, &b, false, conv->sample_grad);
    total(gpu, batch, conv->outputs * b.rows, conv->sample_grad, conv->weight_grad);
}

void device_conv_backward_input(struct gpu *gpu, const struct conv *conv, size_t batch,
                                const float *out_grad, float *in_grad)
{
    const struct gpu_matrix a = transposed(weights(conv)), b = grads(conv, out_grad);

    if (!gpu) {
        conv_backward_input(conv, batch, out_grad, in_grad);
        return;
    }
    gpu_multiply(gpu, batch, &a, &b, false, conv->columns);
    run_columns(gpu, GPU_train_col2im, conv,
                (struct columns_args){
                    .from = conv->columns, .to = in_grad, .count = batch * sizes_of(conv).in});
}

/* ---- linear ---------------------------------------------------------------------------------- */

static struct gpu_matrix linear_weights(const struct linear *linear)
{
    return (struct gpu_matrix){
        .values = linear->weight, .rows = linear->outputs, .cols = linear->inputs};
}

void device_linear_forward(struct gpu *gpu, const struct linear *linear, size_t batch,
                           const float *in, float *out)
{
    const struct gpu_matrix a = {.values = in, .rows = batch, .cols = linear->inputs};
    const struct gpu_matrix b = transposed(linear_weights(linear));

    if (!gpu) {
        linear_forward(linear, batch, in, out);
        return;
    }
    fill_bias(gpu, linear->bias, linear->outputs, 1, batch, out);
    gpu_multiply(gpu, 1, &a, &b, true, out);
}

void device_linear_backward_params(struct gpu *gpu, const struct linear *linear, size_t batch,
                                   const float *in, const float *out_grad)
{
    const struct outer_args args = {.in = in,
                                    .grad = out_grad,
                                    .out = linear->weight_grad,
                                    .count = linear->inputs * linear->outputs,
                                    .inputs = (uint32_t)linear->inputs,
                                    .outputs = (uint32_t)linear->outputs,
                                    .batch = (uint32_t)batch};

    if (!gpu) {
        linear_backward_params(linear, batch, in, out_grad);
        return;
    }
    gpu_run(gpu, GPU_train_outer, args.count, &args);
    total(gpu, batch, linear->outputs, out_grad, linear->bias_grad);
}

void device_linear_backward_input(struct gpu *gpu, const struct linear *linear, size_t batch,
                                  const float *out_grad, float *in_grad)
{
    const struct gpu_matrix a = {.values = out_grad, .rows = batch, .cols = linear->outputs};
    const struct gpu_matrix b = linear_weights(linear);

    if (gpu)
        gpu_multiply(gpu, 1, &a, &b, false, in_grad);
    else
        linear_backward_input(linear, batch, out_grad, in_grad);
}

/* ---- pooling, activation, dropout ------------------------------------------------------------ */

void device_pool_forward(struct gpu *gpu, size_t nplanes, size_t side, const float *in, float *out,
                         uint8_t *which)
{
    const struct pool_args args = {.from = in,
                                   .to = out,
                                   .which = which,
                                   .count = nplanes * (side / 2) * (side / 2),
                                   .side = (uint32_t)side};

    if (gpu)
        gpu_run(gpu, GPU_train_pool, args.count, &args);
    else
        pool_forward(nplanes, side, in, out, which);
}

void device_pool_backward(struct gpu *gpu, size_t nplanes, size_t side, const float *out_grad,
                          const uint8_t *which, float *in_grad)
{
    const struct pool_args args = {.from = out_grad,
                                   .to = in_grad,
                                   .which = (uint8_t *)(uintptr_t)which,
                                   .count = nplanes * (side / 2) * (side / 2),
                                   .side = (uint32_t)side};

    if (gpu)
        gpu_run(gpu, GPU_train_pool_backward, args.count, &args);
    else
        pool_backward(nplanes, side, out_grad, which, in_grad);
}

void device_relu_forward(struct gpu *gpu, size_t count, float *values)
{
    const struct relu_args args = {.values = values, .to = values, .count = count};

    if (gpu)
        gpu_run(gpu, GPU_train_relu, count, &args);
    else
        relu_forward(count, values);
}

void device_relu_backward(struct gpu *gpu, size_t count, const float *values, float *grad)
{
    const struct relu_args args = {.values = values, .to = grad, .count = count};

    if (gpu)
        gpu_run(gpu, GPU_train_relu, count, &args);
    else
        relu_backward(count, values, grad);
}

void device_dropout(struct gpu *gpu, const struct dropout *dropout, uint64_t layer,
                    const size_t shape[3], float *maps)
{
    const struct dropout_args args = {.values = maps,
                                      .samples = dropout->samples,
                                      .key = random_bits(dropout->key, layer),
                                      .count = shape[0] * shape[1] * shape[2],
                                      .percent = dropout->percent,
                                      .units = (uint32_t)shape[1],
                                      .area = (uint32_t)shape[2]};

    if (!gpu)
        dropout_maps(dropout, layer, shape[0], shape[1], shape[2], maps);
    else if (dropout->percent)
        gpu_run(gpu, GPU_train_dropout, args.count, &args);
}

/* ---- loss ------------------------------------------------------------------------------------ */

void device_log_softmax(struct gpu *gpu, size_t batch, size_t n, float *logits)
{
    const struct softmax_args args = {.rows = logits, .count = batch, .width = (uint32_t)n};

    if (gpu)
        gpu_run(gpu, GPU_train_softmax, batch, &args);
    else
        log_softmax(batch, n, logits);
}

void device_nll_backward(struct gpu *gpu, size_t batch, size_t n, float *log_probs,
                         const uint8_t *labels)
{
    const struct softmax_args args = {.rows = log_probs,
                                      .labels = labels,
                                      .count = batch,
                                      .width = (uint32_t)n,
                                      .share = 1.0f / (float)batch};

    if (gpu)
        gpu_run(gpu, GPU_train_softmax_backward, batch, &args);
    else
        nll_backward(batch, n, log_probs, labels);
}
