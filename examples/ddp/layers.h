/* SPDX-License-Identifier: MIT
 *
 * layers.h: what the network is made of, forward and backward. Two arrangements of values occur:
 *   maps  channel by channel, [channels][batch][side][side], so that a convolution of a whole batch
 *         is one matrix product and its result is again maps;
 *   rows  sample by sample, [batch][width].
 * Nothing here allocates; every array is the caller's. "grad" of x is the loss's derivative by x.
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
    float *columns;      /* [inputs*kernel*kernel][batch*out*out], kept from forward to backward */
    float *columns_grad; /* the same size; NULL if conv_backward_input is not called */
};

void conv_forward(const struct conv *conv, size_t batch, const float *in, float *out);
/* Writes weight_grad and bias_grad, from out_grad and the columns of the last forward. */
void conv_backward_params(const struct conv *conv, size_t batch, const float *out_grad);
void conv_backward_input(const struct conv *conv, size_t batch, const float *out_grad,
                         float *in_grad);

/* out = in weight^T + bias, on rows. */
struct linear {
    size_t inputs, outputs;
    const float *weight; /* [outputs][inputs] */
    const float *bias;   /* [outputs] */
    float *weight_grad, *bias_grad;
};

void linear_forward(const struct linear *linear, size_t batch, const float *in, float *out);
void linear_backward_params(const struct linear *linear, size_t batch, const float *in,
                            const float *out_grad);
void linear_backward_input(const struct linear *linear, size_t batch, const float *out_grad,
                           float *in_grad);

/* The largest of each 2x2 square of nplanes planes (channels * batch) of an even side. which[] is 0
 * to 3: the square's position that gave it, the first one of equals. */
void pool_forward(size_t nplanes, size_t side, const float *in, float *out, uint8_t *which);
void pool_backward(size_t nplanes, size_t side, const float *out_grad, const uint8_t *which,
                   float *in_grad);

/* In place. backward takes the forward's result; it may have gone through dropout since. */
void relu_forward(size_t count, float *values);
void relu_backward(size_t count, const float *values, float *grad);

/* Which values are dropped (one half; the others are doubled) depends on the key, the layer and the
 * sample's number in the data set: not on the batch it is in, nor on the rank that works on it. */
struct dropout {
    bool is_on;
    uint64_t key;
    const uint32_t *samples; /* [batch] */
};

#define DROPOUT_MAX_UNITS 64

/* In place, forward and backward alike. Whole channels of maps, at most DROPOUT_MAX_UNITS. */
void dropout_maps(const struct dropout *dropout, uint64_t layer, size_t batch, size_t nchannels,
                  size_t area, float *maps);
/* Single values of rows, at most DROPOUT_MAX_UNITS wide. */
void dropout_rows(const struct dropout *dropout, uint64_t layer, size_t batch, size_t width,
                  float *rows);

/* maps[channels][batch][area] to rows[batch][channels*area], and back. */
void rows_from_maps(size_t batch, size_t nchannels, size_t area, const float *maps, float *rows);
void maps_from_rows(size_t batch, size_t nchannels, size_t area, const float *rows, float *maps);

/* Writes the logarithms of the classes' probabilities, rows of width n, over the logits and returns
 * the sum over the batch of the labels' negative log-likelihoods. */
double log_softmax_nll(size_t batch, size_t n, float *logits, const uint8_t *labels);
/* Writes the mean loss's gradient by the logits over the log-probabilities. */
void log_softmax_nll_backward(size_t batch, size_t n, float *log_probs, const uint8_t *labels);
/* The number of rows whose largest value, the first one of equals, is the label's. */
size_t count_correct(size_t batch, size_t n, const float *log_probs, const uint8_t *labels);

#endif
