/* SPDX-License-Identifier: MIT
 *
 * The adapter that rdma takes, beside a GPU: on the doubles of both drivers, and of what Linux says
 * of where they are.
 */
#include "gpu_rank.h"
#include "rdma_pair.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Instead of the C library's: a0 is near the processor, b0 near the first GPU. */
FILE *fopen(const char *path, const char *mode)
{
    static char nodes[][3] = {"0\n", "1\n"};
    FILE *(*real)(const char *, const char *);

    *(void **)&real = dlsym(RTLD_NEXT, "fopen");
    if (!strcmp(path, "/sys/class/infiniband/a0/device/numa_node"))
        return fmemopen(nodes[0], 2, "r");
    if (!strcmp(path, "/sys/class/infiniband/b0/device/numa_node") ||
        !strcmp(path, "/sys/bus/pci/devices/0000:1a:00.0/numa_node"))
        return fmemopen(nodes[1], 2, "r");
    return real(path, mode);
}

int getcpu(unsigned *cpu, unsigned *node)
{
    *cpu = *node = 0;
    return 0;
}

static void expect(const char *name, const char *why)
{
    struct ko_device *device;
    const struct ko_rdma_device *own;

    assert_int_equal(rdma->open(&rdma_pair_site, &device), KOLO_OK);
    own = (const struct ko_rdma_device *)device;
    assert_string_equal(own->adapters[0].port.device, name);
    assert_non_null(strstr(own->adapters[0].port.why, why));
    rdma->close(device);
}

static bool has_driver(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);

    return driver && !dlclose(driver);
}

/* A program that uses none has no driver opened for it. Builds under sanitizers are linked with the
 * double. */
static void near_the_processor(void **state)
{
    bool had_driver = has_driver();

    (void)state;
    expect("a0", "active, on this NUMA node");
    assert_int_equal(has_driver(), had_driver);
}

/* Nor one started that it has loaded, perhaps for later, as the double would end the process. */
static void beside_a_driver_that_rests(void **state)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

    (void)state;
    assert_non_null(driver);
    setenv("FAKECUDA_BREAK", "cuInit=-9", 1);
    expect("a0", "active, on this NUMA node");
    unsetenv("FAKECUDA_BREAK");
    dlclose(driver);
}

static void near_the_gpu(void **state)
{
    (void)state;
    assert_int_equal(gpu_rank_enter(NULL), 0);
    expect("b0", "active, on the GPU's NUMA node");
    setenv("FAKEVERBS_DOWN", "b0", 1);
    expect("a0", "active, GID");
    unsetenv("FAKEVERBS_DOWN");
    assert_int_equal(gpu_rank_leave(0), 0);
    expect("a0", "active, on this NUMA node");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(near_the_processor),
                                       cmocka_unit_test(beside_a_driver_that_rests),
                                       cmocka_unit_test(near_the_gpu)};

    setenv("FAKEVERBS_DEVICES", "a0:roce,b0:roce", 1);
    setenv("KOLO_DEBUG", "NONE", 1);
    return cmocka_run_group_tests_name("rdma near a GPU", tests, NULL, NULL);
}
