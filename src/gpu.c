/* SPDX-License-Identifier: MIT
 *
 * The caller's context stays his: ours is pushed for a call to the driver and popped behind it. And
 * so does what captures forbid him: for our calls, which wait for none of the streams that he
 * captures, an exception is made, since any thread of his may capture at any time.
 */
#include "gpu_parts.h"

#include "log.h"
#include "status.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { PAGE = 4096 };

static ko_cu_ptr address(const void *at)
{
    return (uintptr_t)at;
}

/* The calling thread's: how many calls it is in, and what captures allow it outside of them. */
static _Thread_local struct {
    int depth, mode;
} visit;

/* Without the exception a call might be the end of a capture of the caller's. */
static ko_cu_result begin_visit(const struct ko_cuda *cuda)
{
    ko_cu_context ours;
    ko_cu_result result;

    visit.mode = KO_CU_CAPTURE_RELAXED;
    result = cuda->capture_mode(&visit.mode);
    if (result)
        (void)cuda->context_pop(&ours);
    return result;
}

int ko_gpu_enter(struct ko_gpu *gpu)
{
    ko_cu_result result = gpu->cuda->context_push(gpu->context);

    if (!result && !visit.depth)
        result = begin_visit(gpu->cuda);
    visit.depth += !result;
    return ko_cuda_check(gpu->cuda, result, "the GPU's context cannot be entered");
}

void ko_gpu_leave(struct ko_gpu *gpu)
{
    ko_cu_context ours;

    if (!--visit.depth)
        (void)gpu->cuda->capture_mode(&visit.mode);
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

static int check_context(const struct ko_gpu *gpu, ko_cu_result result)
{
    if (result != KO_CU_DEVICE_UNAVAILABLE)
        return ko_cuda_check(gpu->cuda, result, "the stream has no context");
    return ko_fail(KOLO_E_UNSUPPORTED,
                   "another process has the GPU to itself (compute mode EXCLUSIVE_PROCESS, %d): "
                   "there ranks of one GPU are threads of one process, or clients of MPS",
                   result);
}

/* With the context. Ours are urgent streams: those of one kind may share a queue of the GPU's, and
 * one of the user's that waits for us would be in our way there. */
static int make_streams(struct ko_gpu *gpu)
{
    int least, most;
    ko_cu_result result = gpu->cuda->stream_priorities(&least, &most);

    if (!result)
        result = gpu->cuda->stream_create_urgent(&gpu->own, KO_CU_STREAM_NON_BLOCKING, most);
    if (!result)
        result = gpu->cuda->stream_create_urgent(&gpu->late, KO_CU_STREAM_NON_BLOCKING, most);
    if (!result)
        result = gpu->cuda->event_create(&gpu->passed, KO_CU_EVENT_DISABLE_TIMING);
    if (!result)
        result = gpu->cuda->event_create(&gpu->put, KO_CU_EVENT_DISABLE_TIMING);
    return ko_cuda_check(gpu->cuda, result, "the GPU has no streams for a group");
}

/* A fork leaves it alone: the child has another, of zeros, in its place. Of a page that both had
 * until one of them writes, the GPU could be left with the child's. (One that both shared would
 * have the child's end of the group let go of the parent's streams.) */
static void *map_page(void)
{
    void *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (page == MAP_FAILED)
        return NULL;
    (void)madvise(page, PAGE, MADV_WIPEONFORK); /* since Linux 4.14 */
    return page;
}

/* With the context: words of this process's that streams can wait for. */
static int make_page(struct ko_gpu *gpu)
{
    void *page = map_page();
    ko_cu_result result;

    if (!page)
        return ko_fail(KOLO_E_NOMEM, "no memory for a page that streams wait for");
    result = gpu->cuda->host_register(page, PAGE, KO_CU_HOST_PORTABLE | KO_CU_HOST_MAPPED);
    if (result) {
        (void)munmap(page, PAGE);
        return ko_cuda_check(gpu->cuda, result, "a page cannot be registered with the GPU");
    }
    gpu->page = page;
    return ko_cuda_check(gpu->cuda, gpu->cuda->host_address(&gpu->page_at, page, 0),
                         "a registered page has no address on the GPU");
}

/* With the context: by the least that can be tried, a word that is written and is there then. */
static void find_waits(struct ko_gpu *gpu)
{
    const int err = ko_cuda_check(
        gpu->cuda,
        ko_cuda_try_words(gpu->cuda, gpu->own, gpu->page_at + offsetof(struct ko_gpu_page, tried)),
        "its streams cannot wait for a word");

    gpu->can_wait = !err;
    if (err)
        ko_log(KO_LOG_INFO,
               "calls of GPU memory go by way of the host, and return when they are done: %s",
               kolo_last_error());
}

/* Calls go on in threads of the group's, where that handle is another stream. */
static int check_stream(void *stream)
{
    if ((uintptr_t)stream != KO_CU_STREAM_PER_THREAD)
        return KOLO_OK;
    return ko_fail(KOLO_E_INVALID, "the stream is cudaStreamPerThread, another one in each thread; "
                                   "a group takes one that is the same in all, such as "
                                   "cudaStreamCreate makes");
}

/* The legacy stream has a handle, too; from here on it has none, so that two can be compared. */
static void *plain_stream(void *stream)
{
    return (uintptr_t)stream == KO_CU_STREAM_LEGACY ? NULL : stream;
}

int ko_gpu_open(void *stream, const atomic_int *stop, struct ko_gpu **gpu_out)
{
    struct ko_gpu *gpu;
    int err = check_stream(stream);

    stream = plain_stream(stream);

    if (err)
        return err;
    gpu = ko_alloc(sizeof *gpu, "a group's GPU");
    err = gpu ? ko_cuda_open(&gpu->cuda) : KOLO_E_NOMEM;
    if (err) {
        free(gpu);
        return err;
    }
    gpu->stop = stop;
    pthread_mutex_init(&gpu->putting, NULL);
    pthread_mutex_init(&gpu->lock, NULL);
    atomic_init(&gpu->user, (ko_cu_stream)stream);
    err = check_context(gpu, find_context(gpu, stream));
    if (!err)
        err = ko_gpu_enter(gpu);
    if (!err) {
        gpu->has_kernels = !ko_cuda_kernels_preload();
        if (!gpu->has_kernels)
            ko_log(KO_LOG_INFO, "collectives of GPU memory find no kernels: %s", kolo_last_error());
        err = make_streams(gpu);
        if (!err)
            err = make_page(gpu);
        if (!err)
            find_waits(gpu);
        ko_gpu_leave(gpu);
    }
    if (err) {
        ko_gpu_close(gpu);
        return err;
    }
    gpu->waiter.is_waiting = ko_gpu_is_waiting;
    gpu->waiter.is_behind = ko_gpu_is_behind;
    ko_gpu_enter_waiter(&gpu->waiter);
    *gpu_out = gpu;
    return KOLO_OK;
}

int ko_gpu_follow(struct ko_gpu *gpu, void *stream)
{
    ko_cu_context context = NULL;
    ko_cu_result result;
    int err = check_stream(stream);

    if (err)
        return err;
    stream = plain_stream(stream);
    result =
        stream ? gpu->cuda->stream_context(stream, &context) : gpu->cuda->context_current(&context);
    if (!result && context && context != gpu->context)
        return ko_fail(KOLO_E_INVALID, "the stream is of another GPU than the group's first one");
    if (result)
        return ko_cuda_check(gpu->cuda, result, "the stream has no context");
    pthread_mutex_lock(&gpu->lock);
    atomic_store(&gpu->user, (ko_cu_stream)stream);
    atomic_store(&gpu->is_new, true); /* though it may have the handle of one that is no more */
    pthread_mutex_unlock(&gpu->lock);
    return KOLO_OK;
}

int ko_gpu_identify(struct ko_gpu *gpu, ko_cu_uuid *uuid)
{
    ko_cu_device device;
    ko_cu_result result;
    int err = ko_gpu_enter(gpu);

    if (err)
        return err;
    result = gpu->cuda->context_device(&device);
    if (!result)
        result = gpu->cuda->device_uuid(uuid, device);
    ko_gpu_leave(gpu);
    return ko_cuda_check(gpu->cuda, result, "the GPU does not say which one it is");
}

/* False: the driver does not list it, as where CUDA_VISIBLE_DEVICES hides it. */
static bool find_device(const struct ko_cuda *cuda, const ko_cu_uuid *uuid, ko_cu_device *device)
{
    ko_cu_uuid found;
    int n = 0;

    if (cuda->device_count(&n))
        return false;
    for (int i = 0; i < n; i++)
        if (!cuda->device(device, i) && !cuda->device_uuid(&found, *device) &&
            !memcmp(&found, uuid, sizeof found))
            return true;
    return false;
}

/* With the context, of one that the driver lists. */
static bool reaches(const struct ko_cuda *cuda, ko_cu_device other)
{
    ko_cu_device own;
    int does = 0;

    return !cuda->context_device(&own) &&
           (own == other || (!cuda->device_reaches(&does, own, other) && does));
}

enum ko_gpu_access ko_gpu_access_to(struct ko_gpu *gpu, const ko_cu_uuid *uuid)
{
    enum ko_gpu_access access = KO_GPU_ACCESS_UNKNOWN;
    ko_cu_device other;

    if (ko_gpu_enter(gpu))
        return KO_GPU_NO_ACCESS;
    if (find_device(gpu->cuda, uuid, &other))
        access = reaches(gpu->cuda, other) ? KO_GPU_ACCESS : KO_GPU_NO_ACCESS;
    ko_gpu_leave(gpu);
    return access;
}

bool ko_gpu_is_stopped(const struct ko_gpu *gpu)
{
    return atomic_load(gpu->stop);
}

bool ko_gpu_can_wait(const struct ko_gpu *gpu)
{
    return gpu->can_wait;
}

bool ko_gpu_has_kernels(const struct ko_gpu *gpu)
{
    return gpu->has_kernels;
}

const struct ko_cuda *ko_gpu_driver(struct ko_gpu *gpu)
{
    return gpu->cuda;
}

/* ---- copies, reductions ---------------------------------------------------------------------- */

ko_cu_result ko_cuda_holds(const struct ko_cuda *cuda, ko_cu_ptr at, bool *does, bool *is_managed)
{
    unsigned type = KO_CU_MEMORY_HOST, is = 0;
    ko_cu_result result = cuda->pointer_attribute(&type, KO_CU_POINTER_MEMORY_TYPE, at);

    if (!result && (is_managed || type != KO_CU_MEMORY_DEVICE))
        result = cuda->pointer_attribute(&is, KO_CU_POINTER_IS_MANAGED, at);
    if (is_managed)
        *is_managed = !result && is;
    *does = !result && (type == KO_CU_MEMORY_DEVICE || is);
    return result;
}

int ko_gpu_holds(struct ko_gpu *gpu, const void *buffer, bool *does)
{
    ko_cu_result result;
    int err = buffer ? ko_gpu_enter(gpu) : KOLO_OK;

    *does = false;
    if (err || !buffer)
        return err;
    result = ko_cuda_holds(gpu->cuda, address(buffer), does, NULL);
    ko_gpu_leave(gpu);
    if (result == KO_CU_INVALID_VALUE) /* memory that the driver does not know */
        return KOLO_OK;
    return ko_cuda_check(gpu->cuda, result, "the GPU does not say whether a buffer is its memory");
}

uint64_t ko_cuda_length_at(const struct ko_cuda *cuda, ko_cu_ptr at, uint64_t most,
                           bool is_in_pieces)
{
    uint64_t known = 0;
    ko_cu_ptr base;
    size_t length;

    while (known < most && (!known || is_in_pieces) &&
           !cuda->address_range(&base, &length, at + known) && base + length > at + known)
        known = base + length - at;
    return known;
}

/* With the context. What is longer than its allocation may go on in the next piece. */
static uint64_t find_length(const struct ko_gpu *gpu, ko_cu_ptr at, size_t nbytes)
{
    uint64_t known = ko_cuda_length_at(gpu->cuda, at, nbytes, false);
    unsigned is_whole = 0;

    if (!known || known >= nbytes)
        return known;
    if (gpu->cuda->pointer_attribute(&is_whole, KO_CU_POINTER_HAS_LEGACY_IPC, at))
        is_whole = 0;
    return is_whole ? known : ko_cuda_length_at(gpu->cuda, at, nbytes, true);
}

int ko_gpu_check_length(struct ko_gpu *gpu, const void *buffer, size_t nbytes)
{
    uint64_t known;
    int err = ko_gpu_enter(gpu);

    if (err)
        return err;
    known = find_length(gpu, address(buffer), nbytes);
    ko_gpu_leave(gpu);
    if (!known || known >= nbytes)
        return KOLO_OK;
    return ko_fail(KOLO_E_INVALID, "it takes %zu bytes of GPU memory, which ends after %llu",
                   nbytes, (unsigned long long)known);
}

int ko_gpu_copy(struct ko_gpu *gpu, void *to, const void *from, size_t nbytes)
{
    ko_cu_result result;
    int err = nbytes ? ko_gpu_enter(gpu) : KOLO_OK;

    if (err || !nbytes)
        return err;
    result = gpu->cuda->copy(address(to), address(from), nbytes, gpu->own);
    ko_gpu_leave(gpu);
    return ko_cuda_check(gpu->cuda, result, "a buffer on the GPU cannot be copied");
}

ko_cu_stream ko_gpu_own_stream(struct ko_gpu *gpu)
{
    return gpu->own;
}

/* ---- scratch --------------------------------------------------------------------------------- */

/* With the context. What grows often does so seldom, if there is room for that. */
static int grow_scratch(struct ko_gpu *gpu, struct scratch **list, size_t nbytes)
{
    const size_t twice = *list ? 2 * (*list)->memory.nbytes : 0;
    struct scratch *scratch = ko_alloc(sizeof *scratch, "a group's memory on its GPU");
    ko_cu_result result;
    int err;

    if (!scratch)
        return KOLO_E_NOMEM;
    result = ko_gpu_memory_make(gpu->cuda, nbytes > twice ? nbytes : twice, gpu->prefers_pieces,
                                &scratch->memory);
    if (result == KO_CU_OUT_OF_MEMORY && nbytes < twice)
        result = ko_gpu_memory_make(gpu->cuda, nbytes, gpu->prefers_pieces, &scratch->memory);
    err = ko_cuda_check(gpu->cuda, result, "the GPU has no memory for what a call reduces");
    if (err) {
        free(scratch);
        return err;
    }
    scratch->older = *list;
    *list = scratch;
    return KOLO_OK;
}

void ko_gpu_prefer_pieces(struct ko_gpu *gpu)
{
    gpu->prefers_pieces = true;
}

int ko_gpu_scratch(struct ko_gpu *gpu, enum ko_gpu_purpose purpose, size_t nbytes,
                   ko_cu_ptr *memory)
{
    struct scratch **list = &gpu->scratch[purpose];
    int err = KOLO_OK;

    if (!*list || (*list)->memory.nbytes < nbytes) {
        err = ko_gpu_enter(gpu);
        if (err)
            return err;
        err = grow_scratch(gpu, list, nbytes);
        ko_gpu_leave(gpu);
    }
    if (!err)
        *memory = (*list)->memory.at;
    return err;
}

/* ---- end ------------------------------------------------------------------------------------- */

/* With the context. */
static void free_scratch(struct ko_gpu *gpu, struct scratch *scratch, bool is_left)
{
    while (scratch) {
        struct scratch *older = scratch->older;

        if (!is_left)
            ko_gpu_memory_free(gpu->cuda, &scratch->memory);
        free(scratch);
        scratch = older;
    }
}

/* With the context. What the GPU may still touch, and streams wait for, is left to it. */
static void free_memory(struct ko_gpu *gpu, bool is_idle)
{
    ko_gpu_free_blocks(gpu, !is_idle);
    free_scratch(gpu, gpu->scratch[KO_GPU_FOR_PIECES], !is_idle);
    free_scratch(gpu, gpu->scratch[KO_GPU_FOR_CASTS], !is_idle);
    free_scratch(gpu, gpu->scratch[KO_GPU_FOR_CAPTURED_CASTS], !is_idle || gpu->keeps_page);
    if (is_idle && gpu->page && !gpu->keeps_page) {
        (void)gpu->cuda->host_unregister(gpu->page);
        (void)munmap(gpu->page, PAGE);
    }
    ko_gpu_free_retired(gpu, !is_idle);
}

/* With the context. The driver keeps what is in use until it is not. */
static void destroy(struct ko_gpu *gpu)
{
    struct ko_gpu_mark *mark;

    while ((mark = gpu->youngest)) {
        gpu->youngest = mark->elder;
        (void)gpu->cuda->event_destroy(mark->reached);
        free(mark);
    }
    if (gpu->passed)
        (void)gpu->cuda->event_destroy(gpu->passed);
    if (gpu->put)
        (void)gpu->cuda->event_destroy(gpu->put);
    if (gpu->own)
        (void)gpu->cuda->stream_destroy(gpu->own);
    if (gpu->late)
        (void)gpu->cuda->stream_destroy(gpu->late);
}

/* With the context: whether memory may be taken away now, until ko_gpu_end_freeing. */
static bool begin_end(struct ko_gpu *gpu)
{
    ko_deadline closing;

    if (gpu->put && !ko_gpu_await_end(gpu))
        return false;
    closing = ko_gpu_closing(gpu);
    if (ko_gpu_begin_freeing(ko_deadline_left_ms(&closing)))
        return true;
    gpu->unfinished = "another group's call in a stream of this process";
    return false;
}

/* A stream of the user's may stand still when a group fails, and the driver would wait for it
 * before it takes memory away. */
void ko_gpu_close(struct ko_gpu *gpu)
{
    bool is_idle = true, has_failed;

    if (!gpu)
        return;
    ko_gpu_leave_waiter(&gpu->waiter);
    has_failed = atomic_load(&gpu->lets_all_go);
    if (gpu->page)
        ko_gpu_let_all_go(gpu);
    ko_gpu_forget_held(gpu);
    if (gpu->context && !ko_gpu_enter(gpu)) {
        is_idle = !has_failed && begin_end(gpu);
        free_memory(gpu, is_idle);
        if (is_idle)
            ko_gpu_end_freeing();
        destroy(gpu);
        ko_gpu_leave(gpu);
    }
    if (gpu->unfinished)
        ko_log(KO_LOG_WARN,
               "the GPU has not finished in %d ms what a group had it do: %s; the group's memory "
               "is left to it",
               KO_GPU_CLOSE_MS, gpu->unfinished);
    else if (is_idle && gpu->is_retained)
        (void)gpu->cuda->context_release(gpu->device);
    pthread_mutex_destroy(&gpu->putting);
    pthread_mutex_destroy(&gpu->lock);
    free(gpu);
}
