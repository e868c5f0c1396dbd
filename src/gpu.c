/* SPDX-License-Identifier: MIT
 *
 * The caller's context stays his: ours is pushed for a call to the driver and popped behind it.
 */
#include "gpu.h"

#include "cuda_driver.h"
#include "status.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

enum { PAGE = 4096, BRIEF_LOOKS = 200, LEAST_NAP_NS = 5000, MOST_NAP_NS = 1000000 };

struct ko_gpu {
    const struct ko_cuda *cuda;
    ko_cu_context context;
    ko_cu_device device;
    bool is_retained; /* the context is one that we asked for */
    ko_cu_stream _Atomic user;
    ko_cu_stream copies; /* ours */
    ko_cu_event marked;
    struct {
        void *memory;
        size_t nbytes;
        bool is_registered;
    } staging;
};

static ko_cu_ptr address(const void *at)
{
    return (uintptr_t)at;
}

static int enter(struct ko_gpu *gpu)
{
    return ko_cuda_check(gpu->cuda, gpu->cuda->context_push(gpu->context),
                         "the GPU's context cannot be entered");
}

static void leave(struct ko_gpu *gpu)
{
    ko_cu_context ours;

    (void)gpu->cuda->context_pop(&ours);
}

/* ---- opening ----------------------------------------------------------------------------- */

/* The stream's context, or the thread's, or that of GPU 0. */
static ko_cu_result find_context(struct ko_gpu *gpu, ko_cu_stream stream)
{
    ko_cu_result result;

    if (stream)
        return gpu->cuda->stream_context(stream, &gpu->context);
    result = gpu->cuda->context_current(&gpu->context);
    if (result || gpu->context)
        return result;
    result = gpu->cuda->device(&gpu->device, 0);
    if (!result)
        result = gpu->cuda->context_retain(&gpu->context, gpu->device);
    gpu->is_retained = !result;
    return result;
}

/* With the context. */
static int make_stream(struct ko_gpu *gpu)
{
    ko_cu_result result = gpu->cuda->stream_create(&gpu->copies, KO_CU_STREAM_NON_BLOCKING);

    if (!result)
        result = gpu->cuda->event_create(&gpu->marked, KO_CU_EVENT_DISABLE_TIMING);
    return ko_cuda_check(gpu->cuda, result, "the GPU has no stream for copies");
}

int ko_gpu_open(void *stream, struct ko_gpu **gpu_out)
{
    struct ko_gpu *gpu = ko_alloc(sizeof *gpu, "a group's GPU");
    int err = gpu ? ko_cuda_open(&gpu->cuda) : KOLO_E_NOMEM;

    if (err) {
        free(gpu);
        return err;
    }
    atomic_init(&gpu->user, (ko_cu_stream)stream);
    err = ko_cuda_check(gpu->cuda, find_context(gpu, stream), "the stream has no context");
    if (!err)
        err = enter(gpu);
    if (!err) {
        err = make_stream(gpu);
        leave(gpu);
    }
    if (err)
        ko_gpu_close(gpu);
    else
        *gpu_out = gpu;
    return err;
}

int ko_gpu_follow(struct ko_gpu *gpu, void *stream)
{
    ko_cu_context context = gpu->context;
    ko_cu_result result = KO_CU_SUCCESS;

    if (stream)
        result = gpu->cuda->stream_context(stream, &context);
    if (!result && context != gpu->context)
        return ko_fail(KOLO_E_INVALID, "the stream is of another GPU than the group's first one");
    if (!result)
        atomic_store(&gpu->user, (ko_cu_stream)stream);
    return ko_cuda_check(gpu->cuda, result, "the stream has no context");
}

static void free_staging(struct ko_gpu *gpu)
{
    if (gpu->staging.is_registered)
        (void)gpu->cuda->host_unregister(gpu->staging.memory);
    free(gpu->staging.memory);
    gpu->staging.memory = NULL;
    gpu->staging.nbytes = 0;
    gpu->staging.is_registered = false;
}

void ko_gpu_close(struct ko_gpu *gpu)
{
    if (!gpu)
        return;
    if (gpu->context && !enter(gpu)) {
        if (gpu->copies)
            (void)gpu->cuda->stream_sync(gpu->copies);
        free_staging(gpu);
        if (gpu->marked)
            (void)gpu->cuda->event_destroy(gpu->marked);
        if (gpu->copies)
            (void)gpu->cuda->stream_destroy(gpu->copies);
        leave(gpu);
    }
    if (gpu->is_retained)
        (void)gpu->cuda->context_release(gpu->device);
    free(gpu);
}

/* ---- copies ------------------------------------------------------------------------------ */

bool ko_gpu_holds(struct ko_gpu *gpu, const void *buffer)
{
    unsigned type = KO_CU_MEMORY_HOST;

    if (!buffer || enter(gpu))
        return false;
    if (gpu->cuda->pointer_attribute(&type, KO_CU_POINTER_MEMORY_TYPE, address(buffer)))
        type = KO_CU_MEMORY_HOST; /* memory that the driver does not know */
    leave(gpu);
    return type == KO_CU_MEMORY_DEVICE;
}

int ko_gpu_mark(struct ko_gpu *gpu)
{
    ko_cu_result result;
    int err = enter(gpu);

    if (err)
        return err;
    result = gpu->cuda->event_record(gpu->marked, atomic_load(&gpu->user));
    leave(gpu);
    return ko_cuda_check(gpu->cuda, result, "the stream cannot be followed");
}

static ko_cu_result is_at_mark(struct ko_gpu *gpu)
{
    return gpu->cuda->event_query(gpu->marked);
}

static ko_cu_result has_copied(struct ko_gpu *gpu)
{
    return gpu->cuda->stream_query(gpu->copies);
}

/* What is waited for takes perhaps microseconds, perhaps seconds. */
static ko_cu_result look_until(struct ko_gpu *gpu, ko_cu_result (*look)(struct ko_gpu *gpu),
                               const ko_deadline *deadline)
{
    ko_cu_result result = look(gpu);
    struct timespec nap = {.tv_nsec = LEAST_NAP_NS};

    for (int looks = 0; result == KO_CU_NOT_READY && !ko_deadline_passed(deadline); looks++) {
        if (looks > BRIEF_LOOKS) {
            nanosleep(&nap, NULL);
            nap.tv_nsec = nap.tv_nsec < MOST_NAP_NS ? 2 * nap.tv_nsec : MOST_NAP_NS;
        }
        result = look(gpu);
    }
    return result;
}

int ko_gpu_await_mark(struct ko_gpu *gpu, const ko_deadline *deadline)
{
    ko_cu_result result;
    int err = enter(gpu);

    if (err)
        return err;
    result = look_until(gpu, is_at_mark, deadline);
    leave(gpu);
    if (result == KO_CU_NOT_READY)
        return ko_fail(KOLO_E_TIMEOUT,
                       "what was put into the GPU's stream before the call has not finished in "
                       "%d ms",
                       (int)deadline->timeout_ms);
    return ko_cuda_check(gpu->cuda, result, "the stream has failed");
}

int ko_gpu_copy(struct ko_gpu *gpu, void *to, const void *from, size_t nbytes)
{
    ko_cu_result result;
    int err = nbytes ? enter(gpu) : KOLO_OK;

    if (err || !nbytes)
        return err;
    result = gpu->cuda->copy(address(to), address(from), nbytes, gpu->copies);
    leave(gpu);
    return ko_cuda_check(gpu->cuda, result, "a buffer on the GPU cannot be copied");
}

int ko_gpu_finish(struct ko_gpu *gpu, const ko_deadline *deadline)
{
    ko_cu_result result;
    int err = enter(gpu);

    if (err)
        return err;
    result = look_until(gpu, has_copied, deadline);
    leave(gpu);
    if (result == KO_CU_NOT_READY)
        return ko_fail(KOLO_E_TIMEOUT, "the GPU has not finished the call's copies in %d ms",
                       (int)deadline->timeout_ms);
    return ko_cuda_check(gpu->cuda, result, "copies from or to the GPU failed");
}

/* ---- staging ----------------------------------------------------------------------------- */

/* Memory that cannot be registered, as beyond the limit of locked memory, is copied more slowly. */
static int grow(struct ko_gpu *gpu, size_t nbytes)
{
    const size_t pages = (nbytes + PAGE - 1) / PAGE * PAGE;

    free_staging(gpu);
    if (posix_memalign(&gpu->staging.memory, PAGE, pages)) {
        gpu->staging.memory = NULL;
        return ko_fail(KOLO_E_NOMEM, "no memory for the copy of a GPU's buffers (%zu bytes)",
                       pages);
    }
    gpu->staging.nbytes = pages;
    gpu->staging.is_registered =
        !gpu->cuda->host_register(gpu->staging.memory, pages, KO_CU_HOST_PORTABLE);
    return KOLO_OK;
}

int ko_gpu_staging(struct ko_gpu *gpu, size_t nbytes, unsigned char **memory)
{
    int err = KOLO_OK;

    if (gpu->staging.nbytes < nbytes) {
        err = enter(gpu);
        if (err)
            return err;
        err = grow(gpu, nbytes);
        leave(gpu);
    }
    *memory = gpu->staging.memory;
    return err;
}
