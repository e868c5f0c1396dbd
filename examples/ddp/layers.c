/* SPDX-License-Identifier: MIT
 *
 * A convolution is a matrix product: im2col lays the pixels under each place of the kernel out as
 * one column, so the weights, as a matrix, times the columns of all samples give all outputs at
 * once. Inner loops run over neighbouring floats and contain no calls, for the compiler to
 * vectorise.
 */
#include "layers.h"

#include "random.h"

#include <assert.h>
#include <cblas.h>
#include <math.h>
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
    enum { LANES = 16 };
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

/* ---- convolution ------------------------------------------------------------------------------
 */

static size_t out_side(const struct conv *conv)
{
    return conv->side - conv->kernel + 1;
}

/* Row r of the columns belongs to one (channel, ky, kx) and holds the input shifted by (ky, kx);
 * this is where sample n's part of it begins in the input. */
static size_t shifted_corner(const struct conv *conv, size_t batch, size_t r, size_t n)
{
    size_t taps = conv->kernel * conv->kernel;
    size_t plane = (r / taps * batch + n) * conv->side * conv->side;

    return plane + r % taps / conv->kernel * conv->side + r % conv->kernel;
}

static void im2col(const struct conv *conv, size_t batch, const float *in)
{
    size_t side = conv->side, out = out_side(conv);
    size_t nrows = conv->inputs * conv->kernel * conv->kernel;
    float *line = conv->columns;

    for (size_t r = 0; r < nrows; r++)
        for (size_t n = 0; n < batch; n++) {
            const float *corner = in + shifted_corner(conv, batch, r, n);
            for (size_t y = 0; y < out; y++, line += out)
                memcpy(line, corner + y * side, out * sizeof *line);
        }
}

static inline void add_line(size_t count, const float *line, float *total)
{
    for (size_t x = 0; x < count; x++)
        total[x] += line[x];
}

/* The transpose of im2col: each pixel's gradient is the sum over the columns it went to. */
static void col2im(const struct conv *conv, size_t batch, float *in_grad)
{
    size_t side = conv->side, out = out_side(conv);
    size_t nrows = conv->inputs * conv->kernel * conv->kernel;
    const float *line = conv->columns_grad;

    memset(in_grad, 0, conv->inputs * batch * side * side * sizeof *in_grad);
    for (size_t r = 0; r < nrows; r++)
        for (size_t n = 0; n < batch; n++) {
            float *corner = in_grad + shifted_corner(conv, batch, r, n);
            for (size_t y = 0; y < out; y++, line += out)
                add_line(out, line, corner + y * side);
        }
}

static struct matrix weight_matrix(const struct conv *conv)
{
    return (struct matrix){conv->weight, conv->outputs, conv->inputs * conv->kernel * conv->kernel,
                           false};
}

void conv_forward(const struct conv *conv, size_t batch, const float *in, float *out)
{
    struct matrix weight = weight_matrix(conv);
    size_t nplaces = batch * out_side(conv) * out_side(conv);

    im2col(conv, batch, in);
    for (size_t c = 0; c < conv->outputs; c++)
        for (size_t i = 0; i < nplaces; i++)
            out[c * nplaces + i] = conv->bias[c];
    multiply(weight, (struct matrix){conv->columns, weight.cols, nplaces, false}, true, out);
}

void conv_backward_params(const struct conv *conv, size_t batch, const float *out_grad)
{
    size_t patch = conv->inputs * conv->kernel * conv->kernel;
    size_t nplaces = batch * out_side(conv) * out_side(conv);

    multiply((struct matrix){out_grad, conv->outputs, nplaces, false},
             (struct matrix){conv->columns, patch, nplaces, true}, false, conv->weight_grad);
    for (size_t c = 0; c < conv->outputs; c++)
        conv->bias_grad[c] = sum(out_grad + c * nplaces, nplaces);
}

void conv_backward_input(const struct conv *conv, size_t batch, const float *out_grad,
                         float *in_grad)
{
    struct matrix transposed = weight_matrix(conv);
    size_t nplaces = batch * out_side(conv) * out_side(conv);

    transposed.is_transposed = true;
    multiply(transposed, (struct matrix){out_grad, conv->outputs, nplaces, false}, false,
             conv->columns_grad);
    col2im(conv, batch, in_grad);
}

/* ---- linear -----------------------------------------------------------------------------------
 */

void linear_forward(const struct linear *linear, size_t batch, const float *in, float *out)
{
    for (size_t n = 0; n < batch; n++)
        memcpy(out + n * linear->outputs, linear->bias, linear->outputs * sizeof *out);
    multiply((struct matrix){in, batch, linear->inputs, false},
             (struct matrix){linear->weight, linear->outputs, linear->inputs, true}, true, out);
}

void linear_backward_params(const struct linear *linear, size_t batch, const float *in,
                            const float *out_grad)
{
    multiply((struct matrix){out_grad, batch, linear->outputs, true},
             (struct matrix){in, batch, linear->inputs, false}, false, linear->weight_grad);
    memset(linear->bias_grad, 0, linear->outputs * sizeof *linear->bias_grad);
    for (size_t n = 0; n < batch; n++)
        for (size_t i = 0; i < linear->outputs; i++)
            linear->bias_grad[i] += out_grad[n * linear->outputs + i];
}

void linear_backward_input(const struct linear *linear, size_t batch, const float *out_grad,
                           float *in_grad)
{
    multiply((struct matrix){out_grad, batch, linear->outputs, false},
             (struct matrix){linear->weight, linear->outputs, linear->inputs, false}, false,
             in_grad);
}

/* ---- pooling and activation -------------------------------------------------------------------
 */

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
    for (size_t i = 0; i < count; i++)
        values[i] = values[i] > 0 ? values[i] : 0;
}

void relu_backward(size_t count, const float *values, float *grad)
{
    for (size_t i = 0; i < count; i++)
        grad[i] = values[i] > 0 ? grad[i] : 0;
}

/* ---- dropout ----------------------------------------------------------------------------------
 */

/* One fair bit for each unit. */
static uint64_t kept_units(const struct dropout *dropout, uint64_t layer, size_t n)
{
    return random_bits(random_bits(dropout->key, layer), dropout->samples[n]);
}

void dropout_maps(const struct dropout *dropout, uint64_t layer, size_t batch, size_t nchannels,
                  size_t area, float *maps)
{
    if (!dropout->is_on)
        return;
    for (size_t n = 0; n < batch; n++) {
        uint64_t kept = kept_units(dropout, layer, n);
        for (size_t c = 0; c < nchannels; c++) {
            float scale = kept >> c & 1 ? 2.0f : 0.0f;
            float *plane = maps + (c * batch + n) * area;
            for (size_t i = 0; i < area; i++)
                plane[i] *= scale;
        }
    }
}

void dropout_rows(const struct dropout *dropout, uint64_t layer, size_t batch, size_t width,
                  float *rows)
{
    if (!dropout->is_on)
        return;
    for (size_t n = 0; n < batch; n++) {
        uint64_t kept = kept_units(dropout, layer, n);
        for (size_t i = 0; i < width; i++)
            rows[n * width + i] *= kept >> i & 1 ? 2.0f : 0.0f;
    }
}

/* ---- between maps and rows --------------------------------------------------------------------
 */

void rows_from_maps(size_t batch, size_t nchannels, size_t area, const float *maps, float *rows)
{
    for (size_t c = 0; c < nchannels; c++)
        for (size_t n = 0; n < batch; n++)
            memcpy(rows + (n * nchannels + c) * area, maps + (c * batch + n) * area,
                   area * sizeof *rows);
}

void maps_from_rows(size_t batch, size_t nchannels, size_t area, const float *rows, float *maps)
{
    for (size_t c = 0; c < nchannels; c++)
        for (size_t n = 0; n < batch; n++)
            memcpy(maps + (c * batch + n) * area, rows + (n * nchannels + c) * area,
                   area * sizeof *maps);
}

/* ---- loss -------------------------------------------------------------------------------------
 */

/* log softmax(x) = x - m - log sum exp(x - m), with m the largest, so that nothing overflows. */
static void log_softmax(size_t n, float *row)
{
    float largest = row[0], total = 0, shift;

    assert(n > 0);
    for (size_t i = 1; i < n; i++)
        largest = row[i] > largest ? row[i] : largest;
    for (size_t i = 0; i < n; i++)
        total += expf(row[i] - largest);
    shift = largest + logf(total);
    for (size_t i = 0; i < n; i++)
        row[i] -= shift;
}

double log_softmax_nll(size_t batch, size_t n, float *logits, const uint8_t *labels)
{
    double loss = 0;

    for (size_t i = 0; i < batch; i++) {
        log_softmax(n, logits + i * n);
        loss -= (double)logits[i * n + labels[i]];
    }
    return loss;
}

void log_softmax_nll_backward(size_t batch, size_t n, float *log_probs, const uint8_t *labels)
{
    float share = 1.0f / (float)batch;

    for (size_t i = 0; i < batch; i++) {
        float *row = log_probs + i * n;
        for (size_t k = 0; k < n; k++)
            row[k] = expf(row[k]) * share;
        row[labels[i]] -= share;
    }
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
