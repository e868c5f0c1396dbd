/* SPDX-License-Identifier: MIT */
#include "launch.h"

#include "status.h"

/* What nvcc made of kernels.cu (the Makefile's check_image). */
extern const unsigned char check_image[];
extern const size_t check_image_bytes;

static struct {
    const struct ko_cuda *cuda; /* NULL: not loaded */
    ko_cu_kernel kernels[LAUNCH_NKERNELS];
} loaded;

int launch_open(const struct ko_cuda *cuda)
{
    static const char *const names[] = {
#define NAME(name, argument) #name,
        CHECK_KERNELS(NAME)
#undef NAME
    };
    ko_cu_context context = NULL;
    ko_cu_library library;
    ko_cu_result result;

    if (loaded.cuda)
        return 0;
    if (!check_image_bytes)
        return ko_fail(KOLO_E_UNSUPPORTED, "this program has no kernels; build it where nvcc is");
    (void)cuda->context_current(
        &context); /* none, if all that is asked is whether they are there */
    result = cuda->library_load(&library, check_image, NULL, NULL, 0, NULL, NULL, 0);
    for (int i = 0; i < LAUNCH_NKERNELS && !result; i++) {
        result = cuda->library_kernel(&loaded.kernels[i], library, names[i]);
        if (!result && context) /* some are started beside streams that wait for them */
            result = ko_cuda_preload(cuda, loaded.kernels[i]);
    }
    if (!result)
        loaded.cuda = cuda;
    return ko_cuda_check(cuda, result, "the kernels of tests/gpu cannot be loaded");
}

ko_cu_result launch(enum launch_kernel kernel, unsigned nblocks, unsigned nthreads,
                    const void *argument, ko_cu_stream stream)
{
    void *arguments[] = {(void *)(uintptr_t)argument};

    return loaded.cuda->launch(loaded.kernels[kernel], nblocks, 1, 1, nthreads, 1, 1, 0, stream,
                               arguments, NULL);
}
