/* SPDX-License-Identifier: MIT
 *
 * layers.h: what the network is made of, forward and backward. Values lie sample by sample: maps
 * are [batch][channels][side][side], rows [batch][width], and maps are rows of width
 * channels*side*side. Nothing here allocates; every array is the caller's. "grad" of x is the
 * loss's derivative by x.
 *
 * A sample's values are the same bits whatever batch it is in, and gradients are summed over the
 * batch in double: so it makes next to no difference over how many ranks a batch is spread. It
 * still matters that little: a value that rounding moves past zero switches a relu.
 */
#ifndef TRAIN_LAYERS_H
#define TRAIN_LAYERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A convolution without padding, stride 1. The output's side is side - kernel + 1. */
struct conv {
    size_t inputs, outputs; /* channels */
    size_t side;            /* of the input */
    size_t kernel;
    const float *weight; /* [outputs][inputs][kernel][kernel] */
    const float *bias;   /* [outputs] */
    float *weight_grad, *bias_grad;
    /* Room to work in; on a GPU (device.h) for each sample of the batch. */
    float *columns;       /* [inputs*kernel*kernel][out side * out side] */
    float *sample_grad;   /* as weight */
    double *weight_total; /* as weight; on the host */
    /* On a GPU: sums of planes of out_grad, [batch][outputs]; ones, [out side * out side]. */
    float *plane_sums, *ones;
};

void conv_forward(const struct conv *conv, size_t batch, const float *in, float *out);
/* Writes weight_grad and bias_grad. */
void conv_backward_params(const struct conv *conv, size_t batch, const float *in,
                          const float *out_grad);
void conv_backward_input(const struct conv *conv, size_t batch, const float *out_grad,
                         float *in_grad);

/* out = in weight^T + bias, on rows. */
struct linear {
    size_t inputs, outputs;
    const float *weight; /* [outputs][inputs] */
    const float *bias;   /* [outputs] */
    float *weight_grad, *bias_grad;
    double *weight_total; /* as weight: room to work in */
};

void linear_forward(const struct linear *linear, size_t batch, const float *in, float *out);
void linear_backward_params(const struct linear *linear, size_t batch, const float *in,
                            const float *out_grad);
void linear_backward_input(const struct linear *linear, size_t batch, const float *out_grad,
                           float *in_grad);

/* The largest of each 2x2 square of nplanes planes (batch * channels) of an even side. which[] is 0
 * to 3: the square's position that gave it, the first one of equals. */
void pool_forward(size_t nplanes, size_t side, const float *in, float *out, uint8_t *which);
void pool_backward(size_t nplanes, size_t side, const float *out_grad, const uint8_t *which,
                   float *in_grad);

/* In place. backward takes the forward's result; it may have gone through dropout since. */
void relu_forward(size_t count, float *values);
void relu_backward(size_t count, const float *values, float *grad);

/* `percent` of the values are dropped, and the others scaled up to make good for them. Which ones
 * depends on the key, the layer and the sample's number in the data set: not on the batch it is in,
 * nor on the rank that works on it. */
struct dropout {
    unsigned percent; /* below 100; 0: none */
    uint64_t key;
    const uint32_t *samples; /* [batch] */
};

/* In place, forward and backward alike. Whole channels of maps; the values of rows, of area 1. */
void dropout_maps(const struct dropout *dropout, uint64_t layer, size_t batch, size_t nchannels,
                  size_t area, float *maps);

/* Writes the logarithms of the classes' probabilities, rows of width n, over the logits. */
void log_softmax(size_t batch, size_t n, float *logits);
/* The sum over the batch of the labels' negative log-likelihoods. */
double nll(size_t batch, size_t n, const float *log_probs, const uint8_t *labels);
/* Writes the mean loss's gradient by the logits over the log-probabilities. */
void nll_backward(size_t batch, size_t n, float *log_probs, const uint8_t *labels);
/* The number of rows whose largest value, the first one of equals, is the label's. */
size_t count_correct(size_t batch, size_t n, const float *log_probs, const uint8_t *labels);

#endif
