/* SPDX-License-Identifier: MIT
 *
 * kolo-perf's hold of a GPU, on the double of NVIDIA's driver: memory, times and graphs; and that
 * an operation that is wrong there is counted.
 */
#include "cuda_driver.h"
#include "tools/perf.h"
#include "tools/perf_case.h"
#include "tools/perf_device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

enum { COUNT = 100, NBYTES = COUNT * sizeof(float) };

static struct {
    const struct ko_cuda *cuda;
    kolo_group *group;
    struct ko_perf_device *device;
} gpu;

static int set_up(void **state)
{
    (void)state;
    assert_int_equal(ko_cuda_open(&gpu.cuda), KOLO_OK);
    assert_int_equal(kolo_group_join(NULL, 1000, &gpu.group), KOLO_OK);
    assert_int_equal(ko_perf_device_open(gpu.group, 3, &gpu.device), KOLO_OK);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    kolo_group_free(gpu.group);
    ko_perf_device_close(gpu.device);
    ko_perf_device_close(NULL);
    return 0;
}

static void *alloc(void)
{
    void *memory;

    assert_int_equal(ko_perf_device_alloc(gpu.device, NBYTES, &memory), KOLO_OK);
    return memory;
}

static void test_what_is_put_there_comes_back(void **state)
{
    float values[COUNT], back[COUNT];
    void *memory = alloc();

    (void)state;
    for (int i = 0; i < COUNT; i++)
        values[i] = (float)i;
    assert_int_equal(ko_perf_device_copy(gpu.device, memory, values, NBYTES), KOLO_OK);
    assert_int_equal(ko_perf_device_copy(gpu.device, back, memory, NBYTES), KOLO_OK);
    assert_memory_equal(back, values, NBYTES);
    assert_int_equal(ko_perf_device_copy(gpu.device, NULL, NULL, 0), KOLO_OK);
    ko_perf_device_free(gpu.device, memory);
    ko_perf_device_free(gpu.device, NULL);
}

/* ---- operations ------------------------------------------------------------------------------ */

/* A copy of the input, in the order of the stream. */
static int copy(const struct ko_perf_call *call, kolo_work **work)
{
    return work ? kolo_all_reduce_async(call->group, call->in, call->out, call->count, call->dtype,
                                        KOLO_SUM, work)
                : kolo_all_reduce(call->group, call->in, call->out, call->count, call->dtype,
                                  KOLO_SUM);
}

/* Another rank's data, which nobody has sent. */
static int another(const struct ko_perf_call *call, int block)
{
    (void)block;
    return call->rank + 1;
}

static int mine(const struct ko_perf_call *call, int block)
{
    (void)block;
    return call->rank;
}

static int64_t count_wrong(const struct ko_perf_case *row)
{
    const struct ko_perf_options options = {
        .nsamples = 2, .check = 1, .warmup = 1, .together = 2, .on_gpu = true};
    struct ko_perf_rank rank = {
        .options = &options, .group = gpu.group, .syscalls_fd = -1, .device = gpu.device};
    struct ko_perf_figures figures = {.nwrong = -1};
    struct ko_perf_call call;
    float result[COUNT], mirror[COUNT];
    kolo_work *works[2];

    assert_int_equal(ko_perf_call_open(&call, gpu.group, row, 1), KOLO_OK);
    rank.a = alloc();
    rank.b = alloc();
    rank.copy = result;
    rank.mirror = mirror;
    rank.works = works;
    call.count = COUNT;
    call.dtype = KOLO_FLOAT32;
    assert_int_equal(ko_perf_measure(&rank, row, KO_PERF_OUT_OF_PLACE, &call, &figures), KOLO_OK);
    assert_true(figures.samples[0] >= 0);
    free(figures.samples);
    ko_perf_call_close(&call);
    ko_perf_device_free(gpu.device, rank.a);
    ko_perf_device_free(gpu.device, rank.b);
    return figures.nwrong;
}

static void test_wrong_results_are_counted(void **state)
{
    const struct ko_perf_case right = {"right", 0, 1, copy, mine};
    const struct ko_perf_case wrong = {"wrong", 0, 1, copy, another};

    (void)state;
    assert_int_equal(count_wrong(&right), 0);
    assert_true(count_wrong(&wrong) > COUNT); /* in the check, and again after the samples */
}

/* ---- graphs ---------------------------------------------------------------------------------- */

static void test_a_failed_capture_leaves_no_graph(void **state)
{
    (void)state;
    assert_int_equal(ko_perf_device_capture(gpu.device), KOLO_OK);
    assert_int_equal(ko_perf_device_captured(gpu.device, KOLO_E_INVALID), KOLO_E_INVALID);
    assert_int_not_equal(ko_perf_device_launch(gpu.device), KOLO_OK);
    assert_int_equal(ko_perf_device_capture(gpu.device), KOLO_OK);
    assert_int_equal(ko_perf_device_captured(gpu.device, KOLO_OK), KOLO_OK);
    assert_int_equal(ko_perf_device_launch(gpu.device), KOLO_OK);
    assert_int_equal(ko_perf_device_sync(gpu.device), KOLO_OK);
    ko_perf_device_forget(gpu.device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_put_there_comes_back),
        cmocka_unit_test(test_wrong_results_are_counted),
        cmocka_unit_test(test_a_failed_capture_leaves_no_graph),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
