/* SPDX-License-Identifier: MIT
 *
 * Kernels that the driver does not take, at once or for this GPU: the log says why, and collectives
 * go by way of the host.
 */
#include "exam.h"
#include "gpu_rank.h"
#include "group.h"
#include "ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int add_up(kolo_group *group, void *unused)
{
    const struct exam exam = {.what = KO_ALL_REDUCE,
                              .dtype = KOLO_FLOAT32,
                              .op = KOLO_SUM,
                              .count = 5003,
                              .memory = &gpu_rank_memory};
    const bool has_kernels = !getenv("FAKECUDA_BREAK");
    int failed = gpu_rank_enter(group);

    (void)unused;
    if (!failed)
        failed = exam_take(group, &exam);
    if (!failed && (group->gpu_ways.reached != 0) != has_kernels)
        failed = ranks_fail("%d calls stayed on the GPU", (int)group->gpu_ways.reached);
    if (!failed && (group->gpu_ways.by_host == 0) != has_kernels)
        failed = ranks_fail("%d calls went by way of the host", (int)group->gpu_ways.by_host);
    return gpu_rank_leave(failed);
}

static void check(const char *breaks, const char *why)
{
    static char text[100000];
    const char *begin;

    exam_set_variables("shm", "", 4096);
    if (breaks)
        setenv("FAKECUDA_BREAK", breaks, 1);
    assert_int_equal(ranks_run_logged(2, add_up, text, sizeof text), 0);
    unsetenv("FAKECUDA_BREAK");
    begin = strstr(text, "collectives of GPU memory find no kernels: ");
    if (!why)
        assert_null(begin);
    else if (!begin || !strstr(begin, why))
        fail_msg("no word of \"%s\": %s", why, text);
}

static void kernels_that_load(void **state)
{
    (void)state;
    check(NULL, NULL);
}

static void kernels_that_do_not(void **state)
{
    (void)state;
    check("cuLibraryLoadData=222", "the driver, of CUDA 13.0, is too old for the kernels of this "
                                   "build of kolo (CUDA_ERROR_UNSUPPORTED_PTX_VERSION, 222); "
                                   "update it, or build with an older nvcc");
    check("cuLibraryLoadData=209", "this build of kolo has no kernels for this GPU "
                                   "(CUDA_ERROR_NO_BINARY_FOR_GPU, 209); build it with CUDA_ARCHS "
                                   "naming its compute capability");
    check("cuLibraryLoadData=218", "the kernels cannot be loaded: unknown (218)");
    /* an old driver, but the image of tests is not packed */
    setenv("FAKECUDA_VERSION", "12020", 1);
    check("cuLibraryLoadData=218", "the kernels cannot be loaded: unknown (218)");
    unsetenv("FAKECUDA_VERSION");
    /* where the driver loads them late */
    check("cuFuncLoad=209", "this build of kolo has no kernels for this GPU");
    check("cuFuncLoad=222", "too old for the kernels of this build");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_that_load),
        cmocka_unit_test(kernels_that_do_not),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
