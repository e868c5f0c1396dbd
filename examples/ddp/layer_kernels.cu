/* SPDX-License-Identifier: MIT
 *
 * What the layers need on a GPU beside matrix products: every element of a result is one thread's,
 * and sums are in the order of layers.c, so that they have the same bits where that has no partial
 * sums. Compiled for GPUs, and for the double of the driver.
 */
#include "device.cuh"
#include "layer_kernels.h"
#include "random.h"
#include "softmax.h"

/* The elements of this thread. */
#define EACH(i, count)                                                            \
    for (uint64_t i = (uint64_t)ko_block() * ko_nthreads() + ko_thread(); i < (count); \
         i += (uint64_t)ko_nblocks() * ko_nthreads())

KO_KERNEL(train_bias, bias_args, args)
{
    EACH(i, args.count)
    {
        args.out[i] = args.bias[i / args.area % args.channels];
    }
}

/* ---- convolution ----------------------------------------------------------------------------- */

KO_KERNEL(train_im2col, columns_args, args)
{
    const uint32_t kernel = args.kernel, side = args.side, out = side - kernel + 1;

    EACH(i, args.count)
    {
        const uint32_t x = (uint32_t)(i % out), y = (uint32_t)(i / out % out);
        const uint64_t row = i / out / out; /* (sample, channel, ky, kx) */
        const uint32_t kx = (uint32_t)(row % kernel), ky = (uint32_t)(row / kernel % kernel);
        const uint64_t plane = row / kernel / kernel;

        args.to[i] = args.from[(plane * side + y + ky) * side + x + kx];
    }
}

KO_KERNEL(train_col2im, columns_args, args)
{
    const uint32_t kernel = args.kernel, side = args.side, out = side - kernel + 1;

    EACH(i, args.count)
    {
        const uint32_t x = (uint32_t)(i % side), y = (uint32_t)(i / side % side);
        const uint64_t plane = i / side / side;
        float total = 0;

        for (uint32_t ky = 0; ky < kernel; ky++)
            for (uint32_t kx = 0; kx < kernel; kx++)
                if (y >= ky && y - ky < out && x >= kx && x - kx < out)
                    total += args.from[(((plane * kernel + ky) * kernel + kx) * out + y - ky) * out +
                                       x - kx];
        args.to[i] = total;
    }
}

/* ---- gradients of parameters ----------------------------------------------------------------- */

KO_KERNEL(train_total, total_args, args)
{
    EACH(i, args.count)
    {
        double total = 0;

        for (uint32_t n = 0; n < args.batch; n++)
            total += (double)args.parts[n * args.count + i];
        args.out[i] = (float)total;
    }
}

KO_KERNEL(train_outer, outer_args, args)
{
    EACH(i, args.count)
    {
        const uint64_t o = i / args.inputs, k = i % args.inputs;
        double total = 0;

        for (uint64_t n = 0; n < args.batch; n++)
            total += (double)args.grad[n * args.outputs + o] * (double)args.in[n * args.inputs + k];
        args.out[i] = (float)total;
    }
}

/* ---- pooling, activation, dropout ------------------------------------------------------------ */

/* Where a square's upper left value is: planes lie end to end and have an even number of lines. */
KO_DEVICE uint64_t corner(uint64_t square, uint32_t side)
{
    const uint32_t half = side / 2;

    return square / half * 2 * side + square % half * 2;
}

KO_KERNEL(train_pool, pool_args, args)
{
    EACH(i, args.count)
    {
        const float *upper = args.from + corner(i, args.side), *lower = upper + args.side;
        const uint8_t right = upper[1] > upper[0], lower_right = lower[1] > lower[0];
        const float high = upper[right], low = lower[lower_right];

        args.to[i] = low > high ? low : high;
        args.which[i] = low > high ? (uint8_t)(2 + lower_right) : right;
    }
}

KO_KERNEL(train_pool_backward, pool_args, args)
{
    EACH(i, args.count)
    {
        float *upper = args.to + corner(i, args.side), *lower = upper + args.side;

        upper[0] = args.which[i] == 0 ? args.from[i] : 0;
        upper[1] = args.which[i] == 1 ? args.from[i] : 0;
        lower[0] = args.which[i] == 2 ? args.from[i] : 0;
        lower[1] = args.which[i] == 3 ? args.from[i] : 0;
    }
}

KO_KERNEL(train_relu, relu_args, args)
{
    EACH(i, args.count)
    {
        args.to[i] = args.values[i] > 0 ? args.to[i] : 0;
    }
}

KO_KERNEL(train_dropout, dropout_args, args)
{
    EACH(i, args.count)
    {
        const uint64_t row = i / args.area, unit = row % args.units, n = row / args.units;

        args.values[i] *= random_scale(random_bits(args.key, args.samples[n]), unit, args.percent);
    }
}

/* ---- loss ---------------------------------------------------------------------------------- */

KO_KERNEL(train_softmax, softmax_args, args)
{
    EACH(i, args.count)
    {
        softmax_log(args.width, args.rows + i * args.width);
    }
}

KO_KERNEL(train_softmax_backward, softmax_args, args)
{
    EACH(i, args.count)
    {
        softmax_backward(args.width, args.rows + i * args.width, args.labels[i], args.share);
    }
}
