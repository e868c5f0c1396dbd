/* SPDX-License-Identifier: MIT
 *
 * layer_kernels.h: the kernels of layer_kernels.cu and the argument of each, for the host that
 * fills it in. Plain structs, whose members lie alike in C, C++ and CUDA; all pointers are the
 * GPU's. `count` is the number of elements that are written, each by itself.
 */
#ifndef TRAIN_LAYER_KERNELS_H
#define TRAIN_LAYER_KERNELS_H

#include <stdint.h>

/* out[..][channels][area] = bias[channel] */
struct bias_args {
    float *out;
    const float *bias;
    uint64_t count;
    uint32_t channels, area;
};

/* maps [..][inputs][side][side] to columns [..][inputs*kernel*kernel][out side * out side], or the
 * sum of the columns that each pixel is in */
struct columns_args {
    const float *from;
    float *to;
    uint64_t count;
    uint32_t inputs, side, kernel;
};

/* out[count] = the sum of parts[batch][count], in double */
struct total_args {
    const float *parts;
    float *out;
    uint64_t count;
    uint32_t batch;
};

/* out[outputs][inputs] = the sum over the batch of grad[batch][outputs] in[batch][inputs], in
 * double */
struct outer_args {
    const float *in, *grad;
    float *out;
    uint64_t count;
    uint32_t inputs, outputs, batch;
};

/* Squares of 2x2, as pool_forward and pool_backward of layers.h; from and to accordingly. */
struct pool_args {
    const float *from;
    float *to;
    uint8_t *which;
    uint64_t count; /* squares */
    uint32_t side;
};

/* to is kept where values is above 0, else 0 */
struct relu_args {
    const float *values;
    float *to;
    uint64_t count;
};

/* values[batch][units][area]; key is the layer's */
struct dropout_args {
    float *values;
    const uint32_t *samples;
    uint64_t key, count;
    uint32_t percent, units, area;
};

/* softmax.h for rows[count][width]; labels is for backward */
struct softmax_args {
    float *rows;
    const uint8_t *labels;
    uint64_t count;
    uint32_t width;
    float share;
};

/* X(kernel, its argument) */
#define LAYER_KERNELS(X)              \
    X(train_bias, bias_args)          \
    X(train_im2col, columns_args)     \
    X(train_col2im, columns_args)     \
    X(train_total, total_args)        \
    X(train_outer, outer_args)        \
    X(train_pool, pool_args)          \
    X(train_pool_backward, pool_args) \
    X(train_relu, relu_args)          \
    X(train_dropout, dropout_args)    \
    X(train_softmax, softmax_args)    \
    X(train_softmax_backward, softmax_args)

#endif
