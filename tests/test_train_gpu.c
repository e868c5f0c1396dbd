/* SPDX-License-Identifier: MIT
 *
 * The trainer on a GPU against the trainer on the host: each layer, the network and the step, with
 * the doubles of NVIDIA's driver and of cuBLAS; and what it says when these fail.
 */
#include "../examples/ddp/device.h"
#include "../examples/ddp/model.h"
#include "../examples/ddp/random.h"
#include "../examples/ddp/sgd.h"

#include <cblas.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX = 6000, BATCH = 7 };

static struct {
    kolo_group *group;
    struct gpu *gpu;
} opened;

static int set_up(void **state)
{
    (void)state;
    openblas_set_num_threads(1);
    assert_int_equal(kolo_group_join(NULL, 1000, &opened.group), KOLO_OK);
    assert_int_equal(gpu_open(opened.group, &opened.gpu), 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    kolo_group_free(opened.group);
    gpu_close(opened.gpu);
    return 0;
}

/* ---- arrays, on the host and on the GPU ------------------------------------------------------ */

/* The same on both, until a layer has written it. */
struct pair {
    float host[MAX];
    float *device;
};

static struct {
    struct pair in, out, weight, bias, columns, sample_grad, plane_sums, ones;
    double weight_total[MAX];
    uint8_t which[MAX], *device_which;
} arrays;

/* Values from -1 to 1; of ones, ones. */
static void fill(struct pair *pair, uint64_t key)
{
    for (size_t i = 0; i < MAX; i++)
        pair->host[i] = pair == &arrays.ones ? 1 : random_uniform(key, i, 1);
    pair->device = gpu_alloc(opened.gpu, sizeof pair->host);
    assert_non_null(pair->device);
    gpu_put(opened.gpu, pair->device, pair->host, sizeof pair->host);
}

static struct pair *const pairs[] = {&arrays.in,         &arrays.out,     &arrays.weight,
                                     &arrays.bias,       &arrays.columns, &arrays.sample_grad,
                                     &arrays.plane_sums, &arrays.ones};
enum { NPAIRS = sizeof pairs / sizeof *pairs };

static int set_up_arrays(void **state)
{
    (void)state;
    for (size_t i = 0; i < NPAIRS; i++)
        fill(pairs[i], i);
    arrays.device_which = gpu_alloc(opened.gpu, MAX);
    assert_non_null(arrays.device_which);
    return gpu_sync(opened.gpu);
}

static int tear_down_arrays(void **state)
{
    (void)state;
    for (size_t i = 0; i < NPAIRS; i++)
        gpu_free(opened.gpu, pairs[i]->device);
    gpu_free(opened.gpu, arrays.device_which);
    return 0;
}

static void assert_alike(const struct pair *pair, size_t count, float tolerance)
{
    static float got[MAX];

    gpu_get(opened.gpu, got, pair->device, sizeof got);
    assert_int_equal(gpu_sync(opened.gpu), 0);
    for (size_t i = 0; i < count; i++)
        if (!(fabsf(got[i] - pair->host[i]) <= tolerance * (1 + fabsf(pair->host[i]))))
            fail_msg("value %zu is %.8g instead of %.8g", i, (double)got[i], (double)pair->host[i]);
}

/* ---- layers ---------------------------------------------------------------------------------- */

/* The layer on the host, and the same on the GPU. */
static void make_convs(struct conv *host, struct conv *device)
{
    *host = (struct conv){.inputs = 2,
                          .outputs = 3,
                          .side = 7,
                          .kernel = 3,
                          .weight = arrays.weight.host,
                          .bias = arrays.bias.host,
                          .weight_grad = arrays.weight.host,
                          .bias_grad = arrays.bias.host,
                          .columns = arrays.columns.host,
                          .sample_grad = arrays.sample_grad.host,
                          .weight_total = arrays.weight_total};
    *device = *host;
    device->weight = device->weight_grad = arrays.weight.device;
    device->bias = device->bias_grad = arrays.bias.device;
    device->columns = arrays.columns.device;
    device->sample_grad = arrays.sample_grad.device;
    device->plane_sums = arrays.plane_sums.device;
    device->ones = arrays.ones.device;
}

enum { CONV_IN = 2 * 7 * 7, CONV_OUT = 3 * 5 * 5, CONV_WEIGHTS = 3 * 2 * 3 * 3 };

static void test_conv(void **state)
{
    struct conv host, device;

    (void)state;
    make_convs(&host, &device);
    device_conv_forward(NULL, &host, BATCH, arrays.in.host, arrays.out.host);
    device_conv_forward(opened.gpu, &device, BATCH, arrays.in.device, arrays.out.device);
    assert_alike(&arrays.out, BATCH * CONV_OUT, 1e-6f);
    device_conv_backward_input(NULL, &host, BATCH, arrays.out.host, arrays.in.host);
    device_conv_backward_input(opened.gpu, &device, BATCH, arrays.out.device, arrays.in.device);
    assert_alike(&arrays.in, BATCH * CONV_IN, 1e-5f);
    device_conv_backward_params(NULL, &host, BATCH, arrays.in.host, arrays.out.host);
    device_conv_backward_params(opened.gpu, &device, BATCH, arrays.in.device, arrays.out.device);
    assert_alike(&arrays.weight, CONV_WEIGHTS, 1e-5f);
    assert_alike(&arrays.bias, 3, 1e-5f);
}

static void test_linear(void **state)
{
    struct linear host = {.inputs = 37,
                          .outputs = 11,
                          .weight = arrays.weight.host,
                          .bias = arrays.bias.host,
                          .weight_grad = arrays.weight.host,
                          .bias_grad = arrays.bias.host,
                          .weight_total = arrays.weight_total};
    struct linear device = host;

    (void)state;
    device.weight = device.weight_grad = arrays.weight.device;
    device.bias = device.bias_grad = arrays.bias.device;
    device_linear_forward(NULL, &host, BATCH, arrays.in.host, arrays.out.host);
    device_linear_forward(opened.gpu, &device, BATCH, arrays.in.device, arrays.out.device);
    assert_alike(&arrays.out, BATCH * 11, 1e-6f);
    device_linear_backward_input(NULL, &host, BATCH, arrays.out.host, arrays.in.host);
    device_linear_backward_input(opened.gpu, &device, BATCH, arrays.out.device, arrays.in.device);
    assert_alike(&arrays.in, BATCH * 37, 1e-5f);
    device_linear_backward_params(NULL, &host, BATCH, arrays.in.host, arrays.out.host);
    device_linear_backward_params(opened.gpu, &device, BATCH, arrays.in.device, arrays.out.device);
    assert_alike(&arrays.weight, 37 * 11, 1e-5f);
    assert_alike(&arrays.bias, 11, 1e-5f);
}

/* These have the same bits. */
static void test_pool_relu_and_dropout(void **state)
{
    static const uint32_t samples[BATCH] = {5, 0, 4000000000, 7, 8, 9, 2};
    const size_t shape[3] = {BATCH, 3, 64};
    struct dropout host = {.percent = 40, .key = 99, .samples = samples}, device = host;

    (void)state;
    device.samples = gpu_alloc(opened.gpu, sizeof samples);
    gpu_put(opened.gpu, (void *)(uintptr_t)device.samples, samples, sizeof samples);
    device_pool_forward(NULL, BATCH * 3, 8, arrays.in.host, arrays.out.host, arrays.which);
    device_pool_forward(opened.gpu, BATCH * 3, 8, arrays.in.device, arrays.out.device,
                        arrays.device_which);
    assert_alike(&arrays.out, BATCH * 3 * 16, 0);
    device_relu_forward(NULL, BATCH * 3 * 16, arrays.out.host);
    device_relu_forward(opened.gpu, BATCH * 3 * 16, arrays.out.device);
    device_relu_backward(NULL, BATCH * 3 * 16, arrays.out.host, arrays.weight.host);
    device_relu_backward(opened.gpu, BATCH * 3 * 16, arrays.out.device, arrays.weight.device);
    assert_alike(&arrays.weight, MAX, 0);
    device_pool_backward(NULL, BATCH * 3, 8, arrays.weight.host, arrays.which, arrays.in.host);
    device_pool_backward(opened.gpu, BATCH * 3, 8, arrays.weight.device, arrays.device_which,
                         arrays.in.device);
    device_dropout(NULL, &host, 1, shape, arrays.in.host);
    device_dropout(opened.gpu, &device, 1, shape, arrays.in.device);
    assert_alike(&arrays.in, MAX, 0);
    gpu_free(opened.gpu, (void *)(uintptr_t)device.samples);
}

static void test_loss(void **state)
{
    static const uint8_t labels[BATCH] = {0, 9, 5, 5, 1, 2, 3};

    (void)state;
    gpu_put(opened.gpu, arrays.device_which, labels, sizeof labels);
    device_log_softmax(NULL, BATCH, 10, arrays.in.host);
    device_log_softmax(opened.gpu, BATCH, 10, arrays.in.device);
    assert_alike(&arrays.in, MAX, 1e-6f);
    device_nll_backward(NULL, BATCH, 10, arrays.in.host, labels);
    device_nll_backward(opened.gpu, BATCH, 10, arrays.in.device, arrays.device_which);
    assert_alike(&arrays.in, MAX, 1e-6f);
}

/* The step is kolo's; here the momentum comes and goes. */
static void test_momentum(void **state)
{
    struct sgd sgd;

    (void)state;
    assert_int_equal(sgd_create(opened.gpu, MAX, 0.1f, 0.9f, &sgd), 0);
    assert_int_equal(gpu_sync(opened.gpu), 0);
    sgd.host_velocity[MAX - 1] = 5;
    sgd_restore(&sgd);
    assert_int_equal(gpu_sync(opened.gpu), 0);
    sgd.host_velocity[MAX - 1] = 0;
    sgd_fetch(&sgd);
    assert_int_equal(gpu_sync(opened.gpu), 0);
    assert_true(sgd.host_velocity[0] == 0 && sgd.host_velocity[MAX - 1] == 5);
    sgd_free(&sgd);
}

/* ---- the network ----------------------------------------------------------------------------- */

static void show(struct model *model, const float *images, double *loss)
{
    static const uint8_t labels[BATCH] = {0, 9, 5, 5, 1, 2, 3};
    static const uint32_t samples[BATCH] = {6, 5, 4, 3, 2, 1, 0};
    const struct model_batch batch = {BATCH, images, labels, {10, 3, samples}};

    assert_int_equal(model_create(model->gpu, BATCH + 2, model), 0);
    model_init(model, 1);
    model_restore(model);
    assert_int_equal(model_forward(model, &batch, loss), 0);
    assert_int_equal(model_backward(model, NULL), 0);
    model_fetch(model);
    assert_int_equal(gpu_sync(model->gpu), 0);
}

static void test_network(void **state)
{
    static float images[BATCH * 28 * 28], grads[30000];
    struct model host = {.gpu = NULL}, device = {.gpu = opened.gpu};
    double loss, device_loss;

    (void)state;
    for (size_t i = 0; i < sizeof images / sizeof *images; i++)
        images[i] = random_uniform(12, i, 2);
    show(&host, images, &loss);
    show(&device, images, &device_loss);
    assert_true(fabs(loss - device_loss) < 1e-5 * loss);
    assert_memory_equal(host.host_values, device.host_values, host.count * sizeof(float));
    gpu_get(opened.gpu, grads, device.grads, device.count * sizeof *grads);
    assert_int_equal(gpu_sync(opened.gpu), 0);
    for (size_t i = 0; i < host.count; i++)
        assert_true(fabsf(grads[i] - host.grads[i]) <= 1e-5f * (1 + fabsf(host.grads[i])));
    model_free(&host);
    model_free(&device);
}

/* ---- failures -------------------------------------------------------------------------------- */

static void test_the_first_failure_is_kept(void **state)
{
    kolo_group *group;
    struct gpu *gpu;
    char name[64];

    (void)state;
    gpu_name(NULL, name, sizeof name);
    assert_string_equal(name, "the host");
    gpu_name(opened.gpu, name, sizeof name);
    assert_string_equal(name, "GPU 0, kolo's test double");
    assert_int_equal(kolo_group_join(NULL, 1000, &group), KOLO_OK);
    assert_int_equal(gpu_open(group, &gpu), 0);
    setenv("FAKECUDA_BREAK", "cuLaunchKernel=719", 1);
    device_relu_forward(gpu, 10, arrays.in.device);
    unsetenv("FAKECUDA_BREAK");
    device_relu_forward(gpu, 10, arrays.in.device); /* no more */
    gpu_hand_over(gpu);
    assert_int_not_equal(gpu_sync(gpu), 0);
    kolo_group_free(group);
    gpu_close(gpu);
}

/* It has a name, and a block at the least. */
static void test_a_gpu_that_says_nonsense_is_used(void **state)
{
    kolo_group *group;
    struct gpu *gpu;
    char name[64];

    (void)state;
    setenv("FAKECUDA_MULTIPROCESSORS", "0", 1);
    setenv("FAKECUDA_NAMES", "", 1);
    assert_int_equal(kolo_group_join(NULL, 1000, &group), KOLO_OK);
    assert_int_equal(gpu_open(group, &gpu), 0);
    gpu_name(gpu, name, sizeof name);
    assert_string_equal(name, "GPU 0, unknown");
    device_relu_forward(gpu, 10, arrays.in.device);
    assert_int_equal(gpu_sync(gpu), 0);
    kolo_group_free(group);
    gpu_close(gpu);
    unsetenv("FAKECUDA_MULTIPROCESSORS");
    unsetenv("FAKECUDA_NAMES");
}

static void test_a_gpu_that_does_not_open_is_refused(void **state)
{
    static const char *const broken[][2] = {{"FAKECUDA_BREAK", "cuStreamCreate=2"},
                                            {"FAKECUDA_BREAK", "cuLibraryLoadData=209"},
                                            {"FAKECUDA_BREAK", "cuDevicePrimaryCtxRetain=2"},
                                            {"FAKECUBLAS_BREAK", "cublasCreate_v2=3"},
                                            {"FAKECUBLAS_BREAK", "cublasSetMathMode=7"}};
    struct gpu *gpu;

    (void)state;
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        setenv(broken[i][0], broken[i][1], 1);
        assert_int_not_equal(gpu_open(opened.group, &gpu), 0);
        unsetenv(broken[i][0]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_conv, set_up_arrays, tear_down_arrays),
        cmocka_unit_test_setup_teardown(test_linear, set_up_arrays, tear_down_arrays),
        cmocka_unit_test_setup_teardown(test_pool_relu_and_dropout, set_up_arrays,
                                        tear_down_arrays),
        cmocka_unit_test_setup_teardown(test_loss, set_up_arrays, tear_down_arrays),
        cmocka_unit_test(test_momentum),
        cmocka_unit_test(test_network),
        cmocka_unit_test_setup_teardown(test_the_first_failure_is_kept, set_up_arrays,
                                        tear_down_arrays),
        cmocka_unit_test_setup_teardown(test_a_gpu_that_says_nonsense_is_used, set_up_arrays,
                                        tear_down_arrays),
        cmocka_unit_test(test_a_gpu_that_does_not_open_is_refused),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
