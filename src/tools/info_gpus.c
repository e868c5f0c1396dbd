/* SPDX-License-Identifier: MIT
 *
 * GPUs are what the driver says they are.
 */
#include "info.h"

#include "cuda_driver.h"
#include "cuda_kernels.h"
#include "kolo.h"

#include <string.h>

static int read_gpu(const struct ko_cuda *cuda, int ordinal, struct ko_gpu *gpu)
{
    ko_cu_device device;
    ko_cu_result result = cuda->device(&device, ordinal);

    if (!result)
        result = ko_cuda_name(cuda, device, gpu->name, sizeof gpu->name);
    if (!result)
        result = cuda->device_pci(gpu->place, sizeof gpu->place, device);
    if (!result)
        result = cuda->device_attribute(&gpu->major, KO_CU_CAPABILITY_MAJOR, device);
    if (!result)
        result = cuda->device_attribute(&gpu->minor, KO_CU_CAPABILITY_MINOR, device);
    if (!result)
        result = cuda->device_attribute(&gpu->multiprocessors, KO_CU_MULTIPROCESSORS, device);
    if (!result)
        result = cuda->device_bytes(&gpu->nbytes, device);
    if (gpu->multiprocessors < 0)
        gpu->multiprocessors = 0;
    return ko_cuda_check(cuda, result, "the driver does not describe a GPU");
}

/* With the GPU's context. */
static ko_cu_result try_words(const struct ko_cuda *cuda)
{
    ko_cu_stream stream;
    ko_cu_ptr word;
    ko_cu_result result = cuda->stream_create(&stream, KO_CU_STREAM_NON_BLOCKING);

    if (result)
        return KO_CU_SUCCESS; /* that is another matter */
    if (!cuda->alloc(&word, sizeof(uint32_t))) {
        result = ko_cuda_try_words(cuda, stream, word);
        (void)cuda->stream_sync(stream);
        (void)cuda->free(word);
    }
    (void)cuda->stream_destroy(stream);
    return result;
}

/* One that cannot be entered now, as another's in compute mode EXCLUSIVE_PROCESS, is not asked. */
static void read_waits(const struct ko_cuda *cuda, int ordinal, struct ko_gpu *gpu)
{
    struct ko_cuda_place place;

    if (ko_cuda_enter(cuda, ordinal, &place))
        return;
    gpu->is_tried = true;
    if (ko_cuda_check(cuda, try_words(cuda), "its streams cannot wait for a word"))
        snprintf(gpu->without_waits, sizeof gpu->without_waits, "%s", kolo_last_error());
    ko_cuda_leave(cuda, &place);
}

static bool are_alike(const struct ko_gpu *a, const struct ko_gpu *b)
{
    return !strcmp(a->name, b->name) && a->major == b->major && a->minor == b->minor;
}

/* What is true of one GPU is so of all like it, which one driver drives. A context takes up to
 * seconds and hundreds of MiB, and nothing else here takes one. */
static void read_waits_of_each(const struct ko_cuda *cuda, struct ko_gpus *gpus)
{
    for (int i = 0; i < gpus->count; i++) {
        struct ko_gpu *gpu = &gpus->list[i];
        int like = 0;

        while (like < i && !(gpus->list[like].is_tried && are_alike(&gpus->list[like], gpu)))
            like++;
        if (like < i)
            memcpy(gpu->without_waits, gpus->list[like].without_waits, sizeof gpu->without_waits);
        else
            read_waits(cuda, i, gpu);
    }
}

static int read_peers(const struct ko_cuda *cuda, struct ko_gpus *gpus, int ordinal)
{
    ko_cu_device device, peer;
    ko_cu_result result = cuda->device(&device, ordinal);

    for (int i = 0; i < gpus->count && !result; i++) {
        int does = 0;

        result = cuda->device(&peer, i);
        if (!result && i != ordinal)
            result = cuda->device_reaches(&does, device, peer);
        gpus->list[ordinal].peers |= does ? 1U << i : 0;
    }
    return ko_cuda_check(cuda, result, "the driver does not say which GPUs reach each other");
}

static int read_gpus(struct ko_gpus *gpus)
{
    const struct ko_cuda *cuda;
    int count = 0;
    int err = ko_cuda_open(&cuda);

    if (!err)
        err = ko_cuda_check(cuda, cuda->driver_version(&gpus->driver_version), "no version");
    if (!err)
        err = ko_cuda_check(cuda, cuda->device_count(&count), "no count of GPUs");
    for (int i = 0; i < count && i < KO_GPUS_CAP && !err; i++, gpus->count++)
        err = read_gpu(cuda, i, &gpus->list[i]);
    for (int i = 0; i < gpus->count && !err; i++)
        err = read_peers(cuda, gpus, i);
    if (!err)
        read_waits_of_each(cuda, gpus);
    return err;
}

void ko_gpus_read(struct ko_gpus *gpus)
{
    *gpus = (struct ko_gpus){.count = 0};
    if (read_gpus(gpus)) {
        snprintf(gpus->reason, sizeof gpus->reason, "%s", kolo_last_error());
        gpus->count = 0;
    } else if (ko_cuda_kernels_open()) {
        snprintf(gpus->without_kernels, sizeof gpus->without_kernels, "%s", kolo_last_error());
    }
}
