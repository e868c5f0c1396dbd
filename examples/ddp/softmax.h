/* SPDX-License-Identifier: MIT
 *
 * softmax.h: the loss of one sample, a row of n values; one text for the host and for GPUs.
 */
#ifndef TRAIN_SOFTMAX_H
#define TRAIN_SOFTMAX_H

#include "portable.h"

#include <math.h>

/* log softmax(x) = x - m - log sum exp(x - m), with m the largest, so that nothing overflows.
 * n > 0. */
KO_FN void softmax_log(size_t n, float *row)
{
    float largest = row[0], total = 0, shift;

    for (size_t i = 1; i < n; i++)
        largest = row[i] > largest ? row[i] : largest;
    for (size_t i = 0; i < n; i++)
        total += expf(row[i] - largest);
    shift = largest + logf(total);
    for (size_t i = 0; i < n; i++)
        row[i] -= shift;
}

/* Over the result of softmax_log: the gradient of the label's negative logarithm, times share. */
KO_FN void softmax_backward(size_t n, float *row, size_t label, float share)
{
    for (size_t k = 0; k < n; k++)
        row[k] = expf(row[k]) * share;
    row[label] -= share;
}

#endif
