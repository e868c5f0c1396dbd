/* SPDX-License-Identifier: MIT
 *
 * Whether a GPU sees what a device has written before that says so, depends on the two and on what
 * lies between them; the driver says for whom it is in order (GPU_DIRECT_RDMA_WRITES_ORDERING), and
 * else what puts it in order (GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS). The host does so as soon as it
 * has heard of the end, before it begins anything on the GPU or lets a stream go on. No stream
 * waits for a word that an adapter writes, but for the host's and GPUs', whose writes are in order:
 * so no wait needs a flush of its own (CU_STREAM_WAIT_VALUE_FLUSH), which not all GPUs have.
 */
#include "gpu_direct.h"

#include "fingerprint.h"
#include "gpu_parts.h"
#include "status.h"

#include <unistd.h>

/* ---- with the context ------------------------------------------------------------------------ */

static int attribute_of(const struct ko_gpu *gpu, ko_cu_device device, int attribute)
{
    int value = 0;

    return gpu->cuda->device_attribute(&value, attribute, device) ? 0 : value;
}

static bool is_flushed_by_us(const struct ko_gpu *gpu, ko_cu_device device)
{
    return attribute_of(gpu, device, KO_CU_ORDERING) < KO_CU_ORDERED_OWNER;
}

/* Whether the GPU has what it takes. */
static int check_gpu(const struct ko_gpu *gpu, ko_cu_device device)
{
    if (!gpu->cuda->range_export)
        return ko_fail(KOLO_E_UNSUPPORTED,
                       "the CUDA driver has no cuMemGetHandleForAddressRange; it is too old");
    if (!attribute_of(gpu, device, KO_CU_HAS_DMA_BUF))
        return ko_fail(KOLO_E_UNSUPPORTED,
                       "the GPU's driver has no dma-bufs (its kernel modules are to be the open "
                       "ones, on Linux 5.12 or newer)");
    if (is_flushed_by_us(gpu, device) &&
        (!gpu->cuda->flush_writes ||
         !(attribute_of(gpu, device, KO_CU_FLUSHES) & KO_CU_FLUSH_BY_HOST)))
        return ko_fail(KOLO_E_UNSUPPORTED, "what adapters write into this GPU's memory could not "
                                           "be told from what was there before");
    return KOLO_OK;
}

/* Where the allocations lie, and which they are. */
static ko_cu_result find_run(const struct ko_gpu *gpu, ko_cu_ptr at, size_t nbytes,
                             struct ko_gpu_extent *run)
{
    const ko_cu_ptr end = at + nbytes;
    ko_cu_result result;
    ko_cu_ptr base;
    size_t length;
    uint64_t id;

    *run = (struct ko_gpu_extent){.print = KO_FINGERPRINT_BEGIN};
    do {
        result = gpu->cuda->address_range(&base, &length, at);
        if (!result)
            result = gpu->cuda->pointer_attribute(&id, KO_CU_POINTER_BUFFER_ID, at);
        if (!result && (base > at || length <= at - base)) /* it would never end */
            result = KO_CU_INVALID_VALUE;
        if (result)
            return result;
        if (!run->n++)
            run->base = base;
        run->print = ko_fingerprint_add(run->print, id);
        at = base + length;
    } while (at < end);
    run->nbytes = at - run->base;
    return KO_CU_SUCCESS;
}

static int find_extent(const struct ko_gpu *gpu, ko_cu_ptr at, size_t nbytes,
                       struct ko_gpu_extent *extent)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    bool does, is_managed = false;
    ko_cu_device home, own;
    ko_cu_result result = find_run(gpu, at, nbytes, extent);

    if (!result)
        result = ko_cuda_holds(gpu->cuda, at, &does, &is_managed);
    if (!result)
        result = gpu->cuda->pointer_attribute(&home, KO_CU_POINTER_DEVICE, at);
    if (!result)
        result = gpu->cuda->context_device(&own);
    if (result)
        return ko_cuda_check(gpu->cuda, result, "the driver does not know GPU memory");
    if (is_managed)
        return ko_fail(KOLO_E_UNSUPPORTED, "it is managed memory, which moves");
    if (home != own)
        return ko_fail(KOLO_E_UNSUPPORTED, "it is another GPU's memory than the group's");
    extent->at = extent->base / page * page;
    extent->length = (extent->base + extent->nbytes + page - 1) / page * page - extent->at;
    return check_gpu(gpu, own);
}

/* ---- any ------------------------------------------------------------------------------------- */

int ko_gpu_extent_of(struct ko_gpu *gpu, const void *buffer, size_t nbytes,
                     struct ko_gpu_extent *extent)
{
    int err = ko_gpu_enter(gpu);

    if (err)
        return err;
    err = find_extent(gpu, (uintptr_t)buffer, nbytes, extent);
    ko_gpu_leave(gpu);
    return err;
}

int ko_gpu_extent_export(struct ko_gpu *gpu, const struct ko_gpu_extent *extent, int *fd)
{
    ko_cu_result result;
    int err = ko_gpu_enter(gpu);

    if (err)
        return err;
    result = gpu->cuda->range_export(fd, extent->at, extent->length, KO_CU_RANGE_DMA_BUF, 0);
    ko_gpu_leave(gpu);
    return ko_cuda_check(gpu->cuda, result,
                         extent->n == 1
                             ? "the driver gives no dma-buf of the GPU's memory"
                             : "the driver gives no dma-buf of GPU memory in several pieces (as "
                               "PyTorch's expandable segments have)");
}

bool ko_gpu_extent_is_there(struct ko_gpu *gpu, const struct ko_gpu_extent *extent)
{
    struct ko_gpu_extent now;
    ko_cu_result result;

    if (ko_gpu_enter(gpu))
        return true;
    result = find_run(gpu, extent->base, extent->nbytes, &now);
    ko_gpu_leave(gpu);
    return !result && now.print == extent->print;
}

int ko_gpu_flush_writes(struct ko_gpu *gpu)
{
    ko_cu_device device;
    ko_cu_result result;
    int err = ko_gpu_enter(gpu);

    if (err)
        return err;
    result = gpu->cuda->context_device(&device);
    if (!result && is_flushed_by_us(gpu, device))
        result = gpu->cuda->flush_writes(KO_CU_FLUSH_CONTEXT, KO_CU_FLUSH_OWNER);
    ko_gpu_leave(gpu);
    return ko_cuda_check(gpu->cuda, result, "what an adapter has written cannot be flushed");
}
