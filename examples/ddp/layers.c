/* SPDX-License-Identifier: MIT
 *
 * A convolution is a matrix product: im2col lays the pixels under each place of the kernel out as
 * one column, so the weights, as a matrix, times the columns give all outputs of a sample at once.
 * One sample's columns stay in the cache; all samples' would not. Backward makes them again.
 */
#include "layers.h"

#include "random.h"
#include "softmax.h"

#include <cblas.h>
#include <string.h>

/* A row-major matrix, or with is_transposed its transpose; rows and cols are those in memory. */
struct matrix {
    const float *values;
    size_t rows, cols;
    bool is_transposed;
};

/* out = a b, plus out itself if accumulate. */
static void multiply(struct matrix a, struct matrix b, bool accumulate, float *out)
{
    int rows = (int)(a.is_transposed ? a.cols : a.rows);
    int inner = (int)(a.is_transposed ? a.rows : a.cols);
    int cols = (int)(b.is_transposed ? b.rows : b.cols);

    cblas_sgemm(CblasRowMajor, a.is_transposed ? CblasTrans : CblasNoTrans,
                b.is_transposed ? CblasTrans : CblasNoTrans, rows, cols, inner, 1.0f, a.values,
                (int)a.cols, b.values, (int)b.cols, accumulate ? 1.0f : 0.0f, out, cols);
}

/* Several partial sums: one alone could not be vectorised, and would round more often. */
static float sum(const float *values, size_t count)
{
    enum { LANES = 8 };
    float lanes[LANES] = {0};
    float total = 0;
    size_t i = 0;

    for (; i + LANES <= count; i += LANES)
        for (size_t lane = 0; lane < LANES; lane++)
            lanes[lane] += values[i + lane];
    for (size_t lane = 0; lane < LANES; lane++)
        total += lanes[lane];
    for (; i < count; i++)
        total += values[i];
    return total;
}

static void add(size_t count, const float *values, float *restrict total)
{
#pragma omp simd
    for (size_t i = 0; i < count; i++)
        total[i] += values[i];
}

static void add_scaled(size_t count, double scale, const float *values, double *restrict total)
{
#pragma omp simd
    for (size_t i = 0; i < count; i++)
        total[i] += scale * (double)values[i];
}

static void narrow(size_t count, const double *total, float *restrict values)
{
#pragma omp simd
    for (size_t i = 0; i < count; i++)
        values[i] = (float)total[i];
}

/* ---- convolution ----------------------------------------------------------------------------- */

/* The sizes that follow from a convolution's shape. */
static size_t out_side(const struct conv *conv)
{
    return conv->side - conv->kernel + 1;
}

static size_t nplaces(const struct conv *conv)
{
    return out_side(conv) * out_side(conv);
}

static size_t patch(const struct conv *conv)
{
    return conv->inputs * conv->kernel * conv->kernel;
}

static size_t in_count(const struct conv *conv)
{
    return conv->inputs * conv->side * conv->side;
}

static struct matrix weight_matrix(const struct conv *conv)
{
    return (struct matrix){conv->weight, conv->outputs, patch(conv), false};
}

static struct matrix column_matrix(const struct conv *conv)
{
    return (struct matrix){conv->columns, patch(conv), nplaces(conv), false};
}

static struct matrix grad_matrix(const struct conv *conv, const float *out_grad)
{
    return (struct matrix){out_grad, conv->outputs, nplaces(conv), false};
}

/* Row r of the columns belongs to one (channel, ky, kx) and holds the input shifted by (ky, kx);
 * this is where it begins in the input. */
static size_t shifted_corner(const struct conv *conv, size_t r)
{
    size_t taps = conv->kernel * conv->kernel;
    size_t channel = r / taps, ky = r % taps / conv->kernel, kx = r % conv->kernel;

    return (channel * conv->side + ky) * conv->side + kx;
}

static void im2col(const struct conv *conv, const float *in)
{
    size_t out = out_side(conv);
    float *line = conv->columns;

    for (size_t r = 0; r < patch(conv); r++) {
        const float *corner = in + shifted_corner(conv, r);
        for (size_t y = 0; y < out; y++, line += out)
            memcpy(line, corner + y * conv->side, out * sizeof *line);
    }
}

/* The transpose of im2col: each pixel's gradient is the sum over the columns it went to. */
static void col2im(const struct conv *conv, float *in_grad)
{
    size_t out = out_side(conv);
    const float *line = conv->columns;

    memset(in_grad, 0, in_count(conv) * sizeof *in_grad);
    for (size_t r = 0; r < patch(conv); r++) {
        float *corner = in_grad + shifted_corner(conv, r);
        for (size_t y = 0; y < out; y++, line += out)
            add(out, line, corner + y * conv->side);
    }
}

void conv_forward(const struct conv *conv, size_t batch, const float *in, float *out)
{
    for (size_t n = 0; n < batch; n++) {
        for (size_t c = 0; c < conv->outputs; c++)
            for (size_t i = 0; i < nplaces(conv); i++)
                out[c * nplaces(conv) + i] = conv->bias[c];
        im2col(conv, in);
        multiply(weight_matrix(conv), column_matrix(conv), true, out);
        in += in_count(conv);
        out += conv->outputs * nplaces(conv);
    }
}

static void conv_backward_bias(const struct conv *conv, size_t batch, const float *out_grad)
{
    for (size_t c = 0; c < conv->outputs; c++) {
        double total = 0;
        for (size_t n = 0; n < batch; n++)
            total += (double)sum(out_grad + (n * conv->outputs + c) * nplaces(conv), nplaces(conv));
        conv->bias_grad[c] = (float)total;
    }
}

void conv_backward_params(const struct conv *conv, size_t batch, const float *in,
                          const float *out_grad)
{
    size_t count = conv->outputs * patch(conv);
    struct matrix transposed = column_matrix(conv);

    transposed.is_transposed = true;
    conv_backward_bias(conv, batch, out_grad);
    memset(conv->weight_total, 0, count * sizeof *conv->weight_total);
    for (size_t n = 0; n < batch; n++) {
        im2col(conv, in + n * in_count(conv));
        multiply(grad_matrix(conv, out_grad + n * conv->outputs * nplaces(conv)), transposed, false,
                 conv->sample_grad);
        add_scaled(count, 1, conv->sample_grad, conv->weight_total);
    }
    narrow(count, conv->weight_total, conv->weight_grad);
}

void conv_backward_input(const struct conv *conv, size_t batch, const float *out_grad,
                         float *in_grad)
{
    struct matrix transposed = weight_matrix(conv);

    transposed.is_transposed = true;
    for (size_t n = 0; n < batch; n++) {
        multiply(transposed, grad_matrix(conv, out_grad + n * conv->outputs * nplaces(conv)), false,
                 conv->columns);
        col2im(conv, in_grad + n * in_count(conv));
    }
}

/* ---- linear ---------------------------------------------------------------------------------- */

void linear_forward(const struct linear *linear, size_t batch, const float *in, float *out)
{
    int inputs = (int)linear->inputs, outputs = (int)linear->outputs;

    for (size_t n = 0; n < batch; n++) {
        memcpy(out, linear->bias, linear->outputs * sizeof *out);
        cblas_sgemv(CblasRowMajor, CblasNoTrans, outputs, inputs, 1, linear->weight, inputs, in, 1,
                    1, out, 1);
        in += linear->inputs;
        out += linear->outputs;
    }
}

/* After relu and dropout three of four out_grads are zero and add nothing. */
void linear_backward_params(const struct linear *linear, size_t batch, const float *in,
                            const float *out_grad)
{
    size_t inputs = linear->inputs, outputs = linear->outputs;

    memset(linear->weight_total, 0, outputs * inputs * sizeof *linear->weight_total);
    for (size_t o = 0; o < outputs; o++) {
        double bias_total = 0;
        for (size_t n = 0; n < batch; n++) {
            double grad = (double)out_grad[n * outputs + o];
            if (grad == 0)
                continue;
            bias_total += grad;
            add_scaled(inputs, grad, in + n * inputs, linear->weight_total + o * inputs);
        }
        linear->bias_grad[o] = (float)bias_total;
    }
    narrow(outputs * inputs, linear->weight_total, linear->weight_grad);
}

void linear_backward_input(const struct linear *linear, size_t batch, const float *out_grad,
                           float *in_grad)
{
    int inputs = (int)linear->inputs, outputs = (int)linear->outputs;

    for (size_t n = 0; n < batch; n++) {
        cblas_sgemv(CblasRowMajor, CblasTrans, outputs, inputs, 1, linear->weight, inputs, out_grad,
                    1, 0, in_grad, 1);
        in_grad += linear->inputs;
        out_grad += linear->outputs;
    }
}

/* ---- pooling and activation ------------------------------------------------------------------ */

void pool_forward(size_t nplanes, size_t side, const float *in, float *out, uint8_t *which)
{
    size_t half = side / 2;

    /* Planes lie end to end and have an even number of lines, so line pairs run through them all.
     */
    for (size_t pair = 0; pair < nplanes * half; pair++) {
        const float *upper = in + 2 * pair * side, *lower = upper + side;
        for (size_t x = 0; x < half; x++) {
            bool right = upper[2 * x + 1] > upper[2 * x];
            bool lower_right = lower[2 * x + 1] > lower[2 * x];
            float high = right ? upper[2 * x + 1] : upper[2 * x];
            float low = lower_right ? lower[2 * x + 1] : lower[2 * x];
            out[pair * half + x] = low > high ? low : high;
            which[pair * half + x] = (uint8_t)(low > high ? 2 + lower_right : right);
        }
    }
}

void pool_backward(size_t nplanes, size_t side, const float *out_grad, const uint8_t *which,
                   float *in_grad)
{
    size_t half = side / 2;

    for (size_t pair = 0; pair < nplanes * half; pair++) {
        float *upper = in_grad + 2 * pair * side, *lower = upper + side;
        for (size_t x = 0; x < half; x++) {
            float grad = out_grad[pair * half + x];
            unsigned place = which[pair * half + x];
            upper[2 * x] = place == 0 ? grad : 0;
            upper[2 * x + 1] = place == 1 ? grad : 0;
            lower[2 * x] = place == 2 ? grad : 0;
            lower[2 * x + 1] = place == 3 ? grad : 0;
        }
    }
}

void relu_forward(size_t count, float *values)
{
#pragma omp simd
    for (size_t i = 0; i < count; i++)
        values[i] = values[i] > 0 ? values[i] : 0;
}

void relu_backward(size_t count, const float *values, float *grad)
{
#pragma omp simd
    for (size_t i = 0; i < count; i++)
        grad[i] = values[i] > 0 ? grad[i] : 0;
}

/* ---- dropout --------------------------------------------------------------------------------- */

static uint64_t sample_key(const struct dropout *dropout, uint64_t layer, size_t n)
{
    return random_bits(random_bits(dropout->key, layer), dropout->samples[n]);
}

void dropout_maps(const struct dropout *dropout, uint64_t layer, size_t batch, size_t nchannels,
                  size_t area, float *maps)
{
    for (size_t n = 0; dropout->percent && n < batch; n++) {
        uint64_t key = sample_key(dropout, layer, n);
        for (size_t c = 0; c < nchannels; c++) {
            float scale = random_scale(key, c, dropout->percent);
            float *plane = maps + (n * nchannels + c) * area;
            for (size_t i = 0; i < area; i++)
                plane[i] *= scale;
        }
    }
}

/* ---- loss ------------------------------------------------------------------------------------ */

void log_softmax(size_t batch, size_t n, float *logits)
{
    for (size_t i = 0; i < batch; i++)
        softmax_log(n, logits + i * n);
}

double nll(size_t batch, size_t n, const float *log_probs, const uint8_t *labels)
{
    double loss = 0;

    for (size_t i = 0; i < batch; i++)
        loss -= (double)log_probs[i * n + labels[i]];
    return loss;
}

void nll_backward(size_t batch, size_t n, float *log_probs, const uint8_t *labels)
{
    for (size_t i = 0; i < batch; i++)
        softmax_backward(n, log_probs + i * n, labels[i], 1.0f / (float)batch);
}

size_t count_correct(size_t batch, size_t n, const float *log_probs, const uint8_t *labels)
{
    size_t correct = 0;

    for (size_t i = 0; i < batch; i++) {
        size_t best = 0;
        for (size_t k = 1; k < n; k++)
            if (log_probs[i * n + k] > log_probs[i * n + best])
                best = k;
        correct += best == labels[i];
    }
    return correct;
}
