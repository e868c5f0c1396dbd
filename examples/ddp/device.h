/* SPDX-License-Identifier: MIT
 *
 * device.h: layers.h where the model is: on the host (gpu NULL), or on a GPU, where all arrays are
 * its memory too. There a call returns before its work is done; gpu_sync waits.
 */
#ifndef TRAIN_DEVICE_H
#define TRAIN_DEVICE_H

#include "gpu.h"
#include "layers.h"

void device_conv_forward(struct gpu *gpu, const struct conv *conv, size_t batch, const float *in,
                         float *out);
void device_conv_backward_params(struct gpu *gpu, const struct conv *conv, size_t batch,
                                 const float *in, const float *out_grad);
void device_conv_backward_input(struct gpu *gpu, const struct conv *conv, size_t batch,
                                const float *out_grad, float *in_grad);

void device_linear_forward(struct gpu *gpu, const struct linear *linear, size_t batch,
                           const float *in, float *out);
void device_linear_backward_params(struct gpu *gpu, const struct linear *linear, size_t batch,
                                   const float *in, const float *out_grad);
void device_linear_backward_input(struct gpu *gpu, const struct linear *linear, size_t batch,
                                  const float *out_grad, float *in_grad);

void device_pool_forward(struct gpu *gpu, size_t nplanes, size_t side, const float *in, float *out,
                         uint8_t *which);
void device_pool_backward(struct gpu *gpu, size_t nplanes, size_t side, const float *out_grad,
                          const uint8_t *which, float *in_grad);
void device_relu_forward(struct gpu *gpu, size_t count, float *values);
void device_relu_backward(struct gpu *gpu, size_t count, const float *values, float *grad);

/* maps[batch][units][area]; of rows the area is 1 */
void device_dropout(struct gpu *gpu, const struct dropout *dropout, uint64_t layer,
                    const size_t shape[3], float *maps);

/* The losses of what log_softmax leaves are log_softmax_nll's. */
void device_log_softmax(struct gpu *gpu, size_t batch, size_t n, float *logits);
void device_nll_backward(struct gpu *gpu, size_t batch, size_t n, float *log_probs,
                         const uint8_t *labels);

#endif
