/* SPDX-License-Identifier: MIT
 *
 * The trainer's layers against the plainest possible text: forward against simple loops in double,
 * backward against central differences of those loops.
 */
#include "../examples/ddp/layers.h"
#include "../examples/ddp/model.h"
#include "../examples/ddp/random.h"
#include "../examples/ddp/sgd.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX = 4096 };

/* A layer's function of up to three arrays: input, weight, bias. */
struct function {
    const void *layer;
    size_t batch;
    size_t counts[3]; /* of the arguments */
    size_t nout;
    void (*eval)(const void *layer, size_t batch, double *const arguments[3], double *out);
};

/* What a layer is tried with. */
static struct {
    float in[MAX], weight[MAX], bias[MAX], out_grad[MAX];
    float out[MAX], in_grad[MAX], weight_grad[MAX], bias_grad[MAX];
    double weight_total[MAX];
    double wide[3][MAX]; /* in, weight, bias */
} tried;

static double *const arguments_of_tried[3] = {tried.wide[0], tried.wide[1], tried.wide[2]};

static void fill(float *values, size_t count, uint64_t key)
{
    for (size_t i = 0; i < count; i++)
        values[i] = random_uniform(key, i, 1);
}

static void widen(const float *values, size_t count, double *wide)
{
    for (size_t i = 0; i < count; i++)
        wide[i] = (double)values[i];
}

static void assert_near(const float *got, const double *want, size_t count, double tolerance)
{
    for (size_t i = 0; i < count; i++)
        if (!(fabs((double)got[i] - want[i]) <= tolerance * (1 + fabs(want[i]))))
            fail_msg("value %zu is %.8g instead of %.8g", i, (double)got[i], want[i]);
}

/* sum of out_grad * f(arguments): the scalar whose derivatives backward computes. */
static double weighted(const struct function *f, double *const arguments[3], const float *out_grad)
{
    static double out[MAX];
    double total = 0;

    f->eval(f->layer, f->batch, arguments, out);
    for (size_t i = 0; i < f->nout; i++)
        total += out[i] * (double)out_grad[i];
    return total;
}

/* Derivatives by argument number which. */
static void differentiate(const struct function *f, double *const arguments[3], int which,
                          const float *out_grad, double *grad)
{
    const double step = 1e-6;

    for (size_t i = 0; i < f->counts[which]; i++) {
        double kept = arguments[which][i], above;
        arguments[which][i] = kept + step;
        above = weighted(f, arguments, out_grad);
        arguments[which][i] = kept - step;
        grad[i] = (above - weighted(f, arguments, out_grad)) / (2 * step);
        arguments[which][i] = kept;
    }
}

/* Random arguments and gradients of what comes out, which the key determines. */
static void fill_all(const struct function *f, uint64_t key)
{
    fill(tried.in, f->counts[0], key);
    fill(tried.weight, f->counts[1], key + 1);
    fill(tried.bias, f->counts[2], key + 2);
    fill(tried.out_grad, f->nout, key + 3);
    widen(tried.in, f->counts[0], tried.wide[0]);
    widen(tried.weight, f->counts[1], tried.wide[1]);
    widen(tried.bias, f->counts[2], tried.wide[2]);
}

/* What the layer has computed, forward and backward. */
static void check_all(const struct function *f)
{
    static double want[MAX];
    const float *const gradients[3] = {tried.in_grad, tried.weight_grad, tried.bias_grad};

    f->eval(f->layer, f->batch, arguments_of_tried, want);
    assert_near(tried.out, want, f->nout, 1e-5);
    for (int i = 0; i < 3; i++) {
        differentiate(f, arguments_of_tried, i, tried.out_grad, want);
        assert_near(gradients[i], want, f->counts[i], 1e-5);
    }
}

/* ---- convolution and linear ------------------------------------------------------------------ */

static double conv_at(const struct conv *conv, double *const arguments[3], const size_t at[4])
{
    size_t o = at[0], n = at[1], y = at[2], x = at[3], kernel = conv->kernel, side = conv->side;
    double total = arguments[2][o];

    for (size_t c = 0; c < conv->inputs; c++)
        for (size_t k = 0; k < kernel * kernel; k++)
            total += arguments[1][(o * conv->inputs + c) * kernel * kernel + k] *
                     arguments[0][((n * conv->inputs + c) * side + y + k / kernel) * side + x +
                                  k % kernel];
    return total;
}

static void conv_eval(const void *layer, size_t batch, double *const arguments[3], double *out)
{
    const struct conv *conv = layer;
    size_t side = conv->side - conv->kernel + 1, i = 0;

    for (size_t n = 0; n < batch; n++)
        for (size_t o = 0; o < conv->outputs; o++)
            for (size_t p = 0; p < side * side; p++)
                out[i++] = conv_at(conv, arguments, (size_t[]){o, n, p / side, p % side});
}

static void check_conv(size_t inputs, size_t outputs, size_t side, size_t kernel, size_t batch)
{
    static float columns[MAX], sample_grad[MAX];
    const size_t out_side = side - kernel + 1;
    struct conv conv = {.inputs = inputs,
                        .outputs = outputs,
                        .side = side,
                        .kernel = kernel,
                        .weight = tried.weight,
                        .bias = tried.bias,
                        .weight_grad = tried.weight_grad,
                        .bias_grad = tried.bias_grad,
                        .columns = columns,
                        .sample_grad = sample_grad,
                        .weight_total = tried.weight_total};
    struct function f = {
        &conv,
        batch,
        {inputs * batch * side * side, outputs * inputs * kernel * kernel, outputs},
        outputs * batch * out_side * out_side,
        conv_eval};

    assert_true(inputs * kernel * kernel * batch * out_side * out_side <= MAX);
    fill_all(&f, 1);
    conv_forward(&conv, batch, tried.in, tried.out);
    conv_backward_params(&conv, batch, tried.in, tried.out_grad);
    conv_backward_input(&conv, batch, tried.out_grad, tried.in_grad);
    check_all(&f);
}

static void test_conv(void **state)
{
    (void)state;
    check_conv(1, 1, 5, 5, 1); /* one place */
    check_conv(1, 2, 6, 3, 1);
    check_conv(2, 3, 7, 5, 3);
    check_conv(3, 1, 6, 1, 2); /* kernel of one pixel */
}

static void linear_eval(const void *layer, size_t batch, double *const arguments[3], double *out)
{
    const struct linear *linear = layer;

    for (size_t n = 0; n < batch; n++)
        for (size_t o = 0; o < linear->outputs; o++) {
            double total = arguments[2][o];
            for (size_t i = 0; i < linear->inputs; i++)
                total +=
                    arguments[0][n * linear->inputs + i] * arguments[1][o * linear->inputs + i];
            out[n * linear->outputs + o] = total;
        }
}

static void check_linear(size_t inputs, size_t outputs, size_t batch)
{
    struct linear linear = {
        inputs,          outputs,           tried.weight, tried.bias, tried.weight_grad,
        tried.bias_grad, tried.weight_total};
    struct function f = {
        &linear, batch, {batch * inputs, outputs * inputs, outputs}, batch * outputs, linear_eval};

    fill_all(&f, 5);
    linear_forward(&linear, batch, tried.in, tried.out);
    linear_backward_params(&linear, batch, tried.in, tried.out_grad);
    linear_backward_input(&linear, batch, tried.out_grad, tried.in_grad);
    check_all(&f);
}

static void test_linear(void **state)
{
    (void)state;
    check_linear(1, 1, 1);
    check_linear(7, 3, 5);
    check_linear(33, 17, 2);
}

/* ---- pooling, relu, loss --------------------------------------------------------------------- */

static void pool_eval(const void *layer, size_t nplanes, double *const arguments[3], double *out)
{
    size_t side = *(const size_t *)layer, half = side / 2;

    for (size_t i = 0; i < nplanes * half * half; i++) {
        size_t plane = i / (half * half), y = i / half % half, x = i % half;
        const double *corner = arguments[0] + (plane * side + 2 * y) * side + 2 * x;
        out[i] = fmax(fmax(corner[0], corner[1]), fmax(corner[side], corner[side + 1]));
    }
}

static void test_pool(void **state)
{
    float in[3 * 36], out[3 * 9], out_grad[3 * 9], in_grad[3 * 36];
    double wide[3 * 36], want[3 * 36];
    double *arguments[3] = {wide, NULL, NULL};
    uint8_t which[3 * 9];
    size_t side = 6;
    struct function f = {&side, 3, {3 * 36, 0, 0}, 3 * 9, pool_eval};

    (void)state;
    fill(in, 3 * 36, 9);
    fill(out_grad, 3 * 9, 10);
    widen(in, 3 * 36, wide);
    pool_forward(3, side, in, out, which);
    pool_eval(&side, 3, arguments, want);
    assert_near(out, want, 3 * 9, 0);
    pool_backward(3, side, out_grad, which, in_grad);
    differentiate(&f, arguments, 0, out_grad, want);
    assert_near(in_grad, want, 3 * 36, 1e-6);
}

static void test_pool_gives_the_first_of_equals(void **state)
{
    const float in[4][4] = {{1, 1, 0, 2}, {1, 1, 2, 0}, {0, 0, -1, -2}, {3, 3, -2, -1}};
    const uint8_t expected[4] = {0, 1, 2, 0};
    float out[4];
    uint8_t which[4];

    (void)state;
    pool_forward(1, 4, in[0], out, which);
    assert_memory_equal(which, expected, 4);
    assert_memory_equal(out, ((float[]){1, 2, 3, -1}), sizeof out);
}

static void test_relu(void **state)
{
    float values[5] = {-1, 0, 2, -0.5f, 3};
    float grad[5] = {1, 2, 3, 4, 5};

    (void)state;
    relu_forward(5, values);
    assert_memory_equal(values, ((float[]){0, 0, 2, 0, 3}), sizeof values);
    relu_backward(5, values, grad);
    assert_memory_equal(grad, ((float[]){0, 0, 3, 0, 5}), sizeof grad);
}

static const uint8_t loss_labels[3] = {0, 3, 2};

/* The mean loss as a function of the logits, so its "out_grad" is 1. */
static void loss_eval(const void *layer, size_t batch, double *const arguments[3], double *out)
{
    (void)layer;
    out[0] = 0;
    for (size_t n = 0; n < batch; n++) {
        const double *row = arguments[0] + 4 * n;
        double total = exp(row[0]) + exp(row[1]) + exp(row[2]) + exp(row[3]);
        out[0] -= (row[loss_labels[n]] - log(total)) / (double)batch;
    }
}

static void test_loss(void **state)
{
    const float one = 1;
    float rows[12];
    double wide[12], want[12], mean;
    double *arguments[3] = {wide, NULL, NULL};
    struct function f = {NULL, 3, {12, 0, 0}, 1, loss_eval};

    (void)state;
    fill(rows, 12, 11);
    widen(rows, 12, wide);
    loss_eval(NULL, 3, arguments, &mean);
    log_softmax(3, 4, rows);
    assert_true(fabs(nll(3, 4, rows, loss_labels) / 3 - mean) < 1e-6);
    for (int n = 0; n < 3; n++) {
        double total = 0;
        for (int k = 0; k < 4; k++)
            total += exp((double)rows[4 * n + k]);
        assert_true(fabs(total - 1) < 1e-6);
    }
    nll_backward(3, 4, rows, loss_labels);
    differentiate(&f, arguments, 0, &one, want);
    assert_near(rows, want, 12, 1e-6);
}

static void test_loss_of_large_logits_is_finite(void **state)
{
    float rows[4] = {1e4f, -1e4f, 0, 0};

    (void)state;
    log_softmax(1, 4, rows);
    assert_true(nll(1, 4, rows, loss_labels) == 0);
    assert_true(rows[1] == -2e4f);
}

static void test_count_correct(void **state)
{
    const float rows[3][4] = {{5, 1, 2, 3}, {1, 1, 1, 1}, {0, 1, 2, -1}};

    (void)state;
    assert_int_equal(count_correct(3, 4, rows[0], loss_labels), 2); /* equals count as class 0 */
}

/* ---- dropout --------------------------------------------------------------------------------- */

static void test_dropout_depends_on_the_sample_alone(void **state)
{
    const uint32_t all[4] = {7, 1000, 3, 12}, some[2] = {3, 7};
    const struct dropout whole = {50, 99, all}, part = {50, 99, some};
    float rows[4 * 50], again[2 * 50], maps[20 * 4 * 3], maps_again[20 * 2 * 3];

    (void)state;
    fill(rows, 4 * 50, 12);
    memcpy(again, rows + 2 * 50, 50 * sizeof *rows);
    memcpy(again + 50, rows, 50 * sizeof *rows);
    dropout_maps(&whole, 1, 4, 50, 1, rows);
    dropout_maps(&part, 1, 2, 50, 1, again);
    assert_memory_equal(again, rows + 2 * 50, 50 * sizeof *rows);
    assert_memory_equal(again + 50, rows, 50 * sizeof *rows);

    for (size_t i = 0; i < 20 * 4 * 3; i++)
        maps[i] = 1;
    for (size_t i = 0; i < 20 * 2 * 3; i++)
        maps_again[i] = 1;
    dropout_maps(&whole, 0, 4, 20, 3, maps);
    dropout_maps(&part, 0, 2, 20, 3, maps_again);
    assert_memory_equal(maps_again, maps + 2 * 60, 60 * sizeof *maps);
    assert_memory_equal(maps_again + 60, maps, 60 * sizeof *maps);
    for (size_t i = 0; i < 20 * 4 * 3; i++)
        assert_true(maps[i] == maps[i - i % 3]); /* a channel is kept or dropped as a whole */
}

static void test_dropout_keeps_half_and_doubles(void **state)
{
    enum { N = 400, WIDTH = 50 };
    uint32_t samples[N];
    struct dropout dropout = {50, 5, samples};
    static float rows[N * WIDTH], other[N * WIDTH];
    size_t kept = 0, same = 0;

    (void)state;
    for (uint32_t i = 0; i < N; i++)
        samples[i] = i;
    for (size_t i = 0; i < N * WIDTH; i++)
        rows[i] = other[i] = 3;
    dropout_maps(&dropout, 0, N, WIDTH, 1, rows);
    dropout_maps(&dropout, 1, N, WIDTH, 1, other);
    for (size_t i = 0; i < N * WIDTH; i++) {
        assert_true(rows[i] == 0 || rows[i] == 6);
        kept += rows[i] > 0;
        same += rows[i] == other[i];
    }
    /* 20000 fair coins: five deviations are 354. */
    assert_in_range(kept, N * WIDTH / 2 - 354, N * WIDTH / 2 + 354);
    assert_in_range(same, N * WIDTH / 2 - 354, N * WIDTH / 2 + 354);
}

static void test_dropout_off_changes_nothing(void **state)
{
    const struct dropout off = {0};
    float rows[6] = {1, 2, 3, 4, 5, 6};

    (void)state;
    dropout_maps(&off, 0, 2, 3, 1, rows);
    dropout_maps(&off, 0, 1, 3, 2, rows);
    assert_memory_equal(rows, ((float[]){1, 2, 3, 4, 5, 6}), sizeof rows);
}

/* ---- the network ----------------------------------------------------------------------------- */

enum { BATCH = 8, AREA = 28 * 28 };

struct batch {
    float images[BATCH * AREA];
    uint8_t labels[BATCH];
    uint32_t samples[BATCH];
};

static void make_batch(struct batch *batch)
{
    fill(batch->images, BATCH * AREA, 13);
    for (uint32_t i = 0; i < BATCH; i++) {
        batch->labels[i] = (uint8_t)(i * 3 % 10);
        batch->samples[i] = 100 + i;
    }
}

static double forward(struct model *model, size_t n, const struct batch *batch, unsigned percent,
                      uint64_t key)
{
    const struct model_batch shown = {
        n, batch->images, batch->labels, {percent, key, batch->samples}};
    double loss;

    assert_int_equal(model_forward(model, &shown, &loss), 0);
    return loss;
}

/* What two ranks would do: each takes every other sample, and the gradients are averaged. */
static void test_parts_of_a_batch_average_to_the_whole(void **state)
{
    static struct batch whole, half;
    struct model model;
    double loss, *mean, part_loss = 0;

    (void)state;
    make_batch(&whole);
    assert_int_equal(model_create(NULL, BATCH, &model), 0);
    model_init(&model, 1);
    mean = calloc(model.count, sizeof *mean);
    for (size_t rank = 0; rank < 2; rank++) {
        for (size_t i = 0; i < BATCH / 2; i++) {
            memcpy(half.images + i * AREA, whole.images + (2 * i + rank) * AREA,
                   AREA * sizeof(float));
            half.labels[i] = whole.labels[2 * i + rank];
            half.samples[i] = whole.samples[2 * i + rank];
        }
        part_loss += forward(&model, BATCH / 2, &half, 50, 42);
        assert_int_equal(model_backward(&model, NULL), 0);
        for (size_t i = 0; i < model.count; i++)
            mean[i] += (double)model.grads[i] / 2;
    }
    loss = forward(&model, BATCH, &whole, 50, 42);
    assert_int_equal(model_backward(&model, NULL), 0);
    assert_true(fabs(loss - part_loss) < 1e-6 * loss);
    assert_near(model.grads, mean, model.count, 1e-6);
    free(mean);
    model_free(&model);
}

/* Central differences of the loss by a few weights of each parameter. Float32 forward limits the
 * step and so the precision. */
static void test_model_gradient(void **state)
{
    static struct batch batch;
    static float grads[30000];
    const float step = 2e-3f;
    struct model model;

    (void)state;
    make_batch(&batch);
    assert_int_equal(model_create(NULL, BATCH, &model), 0);
    model_init(&model, 1);
    forward(&model, BATCH, &batch, 50, 44);
    assert_int_equal(model_backward(&model, NULL), 0);
    memcpy(grads, model.grads, model.count * sizeof *grads);
    for (size_t p = 0; p < MODEL_NPARAMS; p++)
        for (size_t k = 0; k < 3; k++) {
            float *value = (float *)model.params[p].data + k * model.params[p].count / 3;
            float kept = *value, want = grads[value - model.values];
            double above, below;
            *value = kept + step;
            above = forward(&model, BATCH, &batch, 50, 44);
            *value = kept - step;
            below = forward(&model, BATCH, &batch, 50, 44);
            *value = kept;
            assert_true(fabs((above - below) / (2 * (double)step) / BATCH - (double)want) < 2e-3);
        }
    model_free(&model);
}

static void test_model_starts_as_pytorch_does(void **state)
{
    struct model model, again;
    const double bounds[MODEL_NPARAMS] = {25, 25, 250, 250, 320, 320, 50, 50};

    (void)state;
    assert_int_equal(model_create(NULL, 1, &model), 0);
    assert_int_equal(model_create(NULL, 1, &again), 0);
    assert_int_equal(model.count, 21840);
    model_init(&model, 7);
    model_init(&again, 7);
    assert_memory_equal(model.values, again.values, model.count * sizeof(float));
    for (size_t p = 0; p < MODEL_NPARAMS; p++) {
        const float *values = model.params[p].data;
        double bound = 1 / sqrt(bounds[p]), largest = 0;
        for (size_t i = 0; i < model.params[p].count; i++)
            largest = fmax(largest, fabs((double)values[i]));
        assert_true(largest <= bound * (1 + 1e-6) && largest > 0.6 * bound);
    }
    model_init(&again, 8);
    assert_memory_not_equal(model.values, again.values, model.count * sizeof(float));
    model_free(&again);
    model_free(&model);
}

static void test_sgd(void **state)
{
    struct sgd sgd;
    kolo_step step;

    (void)state;
    assert_int_equal(sgd_create(NULL, 2, 0.5f, 0.25f, &sgd), 0);
    assert_true(sgd.velocity[0] == 0 && sgd.velocity[1] == 0);
    step = sgd_step(&sgd, 3);
    assert_true(step.optimizer == KOLO_SGD && step.number == 3 && step.weight_decay == 0);
    assert_true(step.rate == 0.5f && step.momentum == 0.25f && step.dampening == 0);
    sgd_free(&sgd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conv),
        cmocka_unit_test(test_linear),
        cmocka_unit_test(test_pool),
        cmocka_unit_test(test_pool_gives_the_first_of_equals),
        cmocka_unit_test(test_relu),
        cmocka_unit_test(test_loss),
        cmocka_unit_test(test_loss_of_large_logits_is_finite),
        cmocka_unit_test(test_count_correct),
        cmocka_unit_test(test_dropout_depends_on_the_sample_alone),
        cmocka_unit_test(test_dropout_keeps_half_and_doubles),
        cmocka_unit_test(test_dropout_off_changes_nothing),
        cmocka_unit_test(test_parts_of_a_batch_average_to_the_whole),
        cmocka_unit_test(test_model_gradient),
        cmocka_unit_test(test_model_starts_as_pytorch_does),
        cmocka_unit_test(test_sgd),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
