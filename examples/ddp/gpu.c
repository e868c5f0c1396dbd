/* SPDX-License-Identifier: MIT
 *
 * The driver and cuBLAS are found at run time. Failures are kept, as the code above is a long row
 * of calls of which each needs the one before.
 */
#include "gpu.h"

#include "cublas.h"
#include "cuda_driver.h"
#include "failure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HOST_NAME = 256, LINE = 64, NTHREADS = 256, BLOCKS_PER_MULTIPROCESSOR = 4 };

/* What nvcc made of layer_kernels.cu (the Makefile's train_image). */
extern const unsigned char train_image[];
extern const size_t train_image_bytes;

struct gpu {
    const struct ko_cuda *cuda;
    struct cublas cublas;
    struct ko_cuda_place place;
    ko_cu_stream stream, group_stream;
    ko_cu_event handed_over;
    ko_cu_library library;
    ko_cu_kernel kernels[GPU_NKERNELS];
    cublas_handle handle;
    unsigned most_blocks;
    const char *failed; /* what was tried first in vain; NULL: nothing */
    int why;            /* the driver's or cuBLAS's number */
};

static int check(const struct gpu *gpu, ko_cu_result result, const char *what)
{
    return train_check(ko_cuda_check(gpu->cuda, result, what), "--device cuda");
}

/* Keeps the first failure. */
static void note(struct gpu *gpu, int result, const char *what)
{
    if (result && !gpu->failed) {
        gpu->failed = what;
        gpu->why = result;
    }
}

/* ---- opening --------------------------------------------------------------------------------- */

/* The rank's number among those of its host. */
static int count_neighbours(kolo_group *group, int *number)
{
    const int rank = kolo_group_rank(group);
    char(*hosts)[HOST_NAME] = calloc((size_t)kolo_group_size(group), sizeof *hosts);
    char mine[HOST_NAME] = "";
    int status;

    if (!hosts)
        return train_fail("no memory for the names of hosts");
    (void)gethostname(mine, sizeof mine - 1);
    status = kolo_all_gather(group, mine, hosts, sizeof mine, KOLO_UINT8);
    *number = 0;
    for (int r = 0; r < rank && !status; r++)
        *number += memcmp(hosts[r], mine, sizeof mine) == 0;
    free(hosts);
    return train_check(status, "counting the ranks of a host");
}

/* How many blocks a kernel has at most, one at the least. */
static ko_cu_result count_blocks(struct gpu *gpu)
{
    int multiprocessors = 0;
    ko_cu_result result =
        gpu->cuda->device_attribute(&multiprocessors, KO_CU_MULTIPROCESSORS, gpu->place.device);

    if (multiprocessors < 1)
        multiprocessors = 1;
    gpu->most_blocks = (unsigned)multiprocessors * BLOCKS_PER_MULTIPROCESSOR;
    return result;
}

static ko_cu_result make_streams(struct gpu *gpu)
{
    ko_cu_result result = gpu->cuda->stream_create(&gpu->stream, KO_CU_STREAM_NON_BLOCKING);

    if (!result)
        result = gpu->cuda->stream_create(&gpu->group_stream, KO_CU_STREAM_NON_BLOCKING);
    if (!result)
        result = gpu->cuda->event_create(&gpu->handed_over, KO_CU_EVENT_DISABLE_TIMING);
    return result;
}

static int load_kernels(struct gpu *gpu)
{
    static const char *const names[] = {
#define NAME(name, argument) #name,
        LAYER_KERNELS(NAME)
#undef NAME
    };
    ko_cu_result result;

    if (!train_image_bytes)
        return train_fail("--device cuda: this kolo-train has no kernels for GPUs; build it where "
                          "nvcc is");
    result = gpu->cuda->library_load(&gpu->library, train_image, NULL, NULL, 0, NULL, NULL, 0);
    for (int i = 0; i < GPU_NKERNELS && !result; i++) {
        result = gpu->cuda->library_kernel(&gpu->kernels[i], gpu->library, names[i]);
        if (!result) /* before the group's calls hold a stream */
            result = ko_cuda_preload(gpu->cuda, gpu->kernels[i]);
    }
    return check(gpu, result, "the kernels cannot be loaded");
}

static int open_cublas(struct gpu *gpu)
{
    cublas_status status;

    if (cublas_open(&gpu->cublas))
        return TRAIN_FAILED;
    status = gpu->cublas.create(&gpu->handle);
    if (!status)
        status = gpu->cublas.set_stream(gpu->handle, gpu->stream);
    if (!status)
        status = gpu->cublas.set_math(gpu->handle, CUBLAS_EXACT_FLOAT);
    return status ? train_fail("--device cuda: cuBLAS does not start (its error %d)", status)
                  : TRAIN_OK;
}

int gpu_open(kolo_group *group, struct gpu **gpu_out)
{
    struct gpu *gpu = calloc(1, sizeof *gpu);
    int number, err = gpu ? train_check(ko_cuda_open(&gpu->cuda), "--device cuda")
                          : train_fail("no memory for a GPU");

    if (!err)
        err = count_neighbours(group, &number);
    if (!err)
        err = train_check(ko_cuda_enter(gpu->cuda, number, &gpu->place), "--device cuda");
    if (!err)
        err = check(gpu, count_blocks(gpu), "a GPU does not say how large it is");
    if (!err)
        err = check(gpu, make_streams(gpu), "a GPU has no streams");
    if (!err)
        err = load_kernels(gpu);
    if (!err)
        err = open_cublas(gpu);
    if (!err)
        err = train_check(kolo_group_set_stream(group, gpu->group_stream), "--device cuda");
    if (err)
        gpu_close(gpu);
    else
        *gpu_out = gpu;
    return err;
}

void gpu_close(struct gpu *gpu)
{
    if (!gpu)
        return;
    if (gpu->handle)
        (void)gpu->cublas.destroy(gpu->handle);
    if (gpu->library)
        (void)gpu->cuda->library_unload(gpu->library);
    if (gpu->handed_over)
        (void)gpu->cuda->event_destroy(gpu->handed_over);
    if (gpu->group_stream)
        (void)gpu->cuda->stream_destroy(gpu->group_stream);
    if (gpu->stream)
        (void)gpu->cuda->stream_destroy(gpu->stream);
    ko_cuda_leave(gpu->cuda, &gpu->place);
    free(gpu);
}

void gpu_name(const struct gpu *gpu, char *name, size_t cap)
{
    char model[64] = "unknown";

    if (gpu)
        (void)ko_cuda_name(gpu->cuda, gpu->place.device, model, sizeof model);
    if (gpu)
        snprintf(name, cap, "GPU %d, %s", gpu->place.ordinal, model);
    else
        snprintf(name, cap, "the host");
}

/* ---- memory ---------------------------------------------------------------------------------- */

void *gpu_alloc(struct gpu *gpu, size_t nbytes)
{
    ko_cu_ptr memory;

    if (!gpu)
        return aligned_alloc(LINE, (nbytes + LINE - 1) / LINE * LINE);
    return gpu->cuda->alloc(&memory, nbytes) ? NULL : (void *)(uintptr_t)memory;
}

void gpu_free(struct gpu *gpu, void *memory)
{
    if (!gpu)
        free(memory);
    else if (memory)
        (void)gpu->cuda->free((uintptr_t)memory);
}

static void copy(struct gpu *gpu, void *to, const void *from, size_t nbytes)
{
    if (to != from && nbytes && !gpu->failed)
        note(gpu, gpu->cuda->copy((uintptr_t)to, (uintptr_t)from, nbytes, gpu->stream), "a copy");
}

void gpu_put(struct gpu *gpu, void *to, const void *from, size_t nbytes)
{
    copy(gpu, to, from, nbytes);
}

void gpu_get(struct gpu *gpu, void *to, const void *from, size_t nbytes)
{
    copy(gpu, to, from, nbytes);
}

/* ---- work ------------------------------------------------------------------------------------ */

/* A row-major product is the column-major one of the transposes, the other way round. */
void gpu_multiply(struct gpu *gpu, size_t n, const struct gpu_matrix *a, const struct gpu_matrix *b,
                  bool accumulate, float *out)
{
    const float one = 1, zero = 0;
    const size_t rows = a->is_transposed ? a->cols : a->rows;
    const size_t inner = a->is_transposed ? a->rows : a->cols;
    const size_t cols = b->is_transposed ? b->rows : b->cols;

    if (!gpu->failed)
        note(gpu,
             gpu->cublas.multiply(
                 gpu->handle, b->is_transposed ? CUBLAS_TRANSPOSED : CUBLAS_AS_IT_IS,
                 a->is_transposed ? CUBLAS_TRANSPOSED : CUBLAS_AS_IT_IS, (int)cols, (int)rows,
                 (int)inner, &one, b->values, (int)b->cols, (long long)b->step, a->values,
                 (int)a->cols, (long long)a->step, accumulate ? &one : &zero, out, (int)cols,
                 (long long)(rows * cols), (int)n),
             "a matrix product of cuBLAS");
}

void gpu_run(struct gpu *gpu, enum gpu_kernel kernel, uint64_t count, const void *args)
{
    const uint64_t wanted = (count + NTHREADS - 1) / NTHREADS;
    const unsigned nblocks = wanted < gpu->most_blocks ? (unsigned)wanted : gpu->most_blocks;
    void *arguments[] = {(void *)(uintptr_t)args};

    if (count && !gpu->failed)
        note(gpu,
             gpu->cuda->launch(gpu->kernels[kernel], nblocks, 1, 1, NTHREADS, 1, 1, 0, gpu->stream,
                               arguments, NULL),
             "a kernel");
}

void gpu_hand_over(struct gpu *gpu)
{
    if (!gpu->failed)
        note(gpu, gpu->cuda->event_record(gpu->handed_over, gpu->stream), "an event");
    if (!gpu->failed)
        note(gpu, gpu->cuda->stream_await_event(gpu->group_stream, gpu->handed_over, 0),
             "waiting for an event");
}

int gpu_sync(struct gpu *gpu)
{
    if (!gpu)
        return TRAIN_OK;
    note(gpu, gpu->cuda->stream_sync(gpu->stream), "waiting for the GPU");
    return gpu->failed ? train_fail("--device cuda: %s failed (error %d)", gpu->failed, gpu->why)
                       : TRAIN_OK;
}

void gpu_finish(struct gpu *gpu)
{
    if (gpu)
        (void)gpu->cuda->stream_sync(gpu->stream);
}
