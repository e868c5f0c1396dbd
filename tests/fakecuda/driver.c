/* SPDX-License-Identifier: MIT
 *
 * The double's devices and contexts.
 */
#include "double.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_DEPTH = 16 };

static bool is_started;
static struct ko_cuda_context contexts[DOUBLE_MOST_DEVICES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the making of contexts */

static _Thread_local struct {
    ko_cu_context stack[MOST_DEPTH];
    int depth;
} mine;

int double_number(const char *variable, int standard)
{
    const char *text = getenv(variable);

    return text && *text ? atoi(text) : standard;
}

bool double_is_started(void)
{
    return is_started;
}

bool double_exists(ko_cu_device device)
{
    return device >= 0 && device < DOUBLE_MOST_DEVICES &&
           device < double_number("FAKECUDA_DEVICES", 1);
}

/* The GPU of an ordinal, which need not be its own number; -1: there is none. */
static ko_cu_device gpu_of(int ordinal)
{
    const char *list = getenv("FAKECUDA_VISIBLE");
    int gpu = ordinal;

    if (list && *list) {
        for (; list && ordinal > 0; ordinal--)
            list = strchr(list, ',') ? strchr(list, ',') + 1 : NULL;
        gpu = list && !ordinal ? atoi(list) : -1;
    }
    return double_exists(gpu) ? gpu : -1;
}

static int count_devices(void)
{
    int n = 0;

    while (gpu_of(n) >= 0)
        n++;
    return n;
}

bool double_is_gpu(ko_cu_device device)
{
    int i = 0;

    while (gpu_of(i) >= 0 && gpu_of(i) != device)
        i++;
    return gpu_of(i) >= 0;
}

/* ---- the driver ------------------------------------------------------------------------------ */

ko_cu_result double_init(unsigned flags)
{
    if (flags || !count_devices())
        return flags ? KO_CU_INVALID_VALUE : KO_CU_NO_DEVICE;
    is_started = true;
    return KO_CU_SUCCESS;
}

ko_cu_result double_driver_version(int *version)
{
    *version = double_number("FAKECUDA_VERSION", 13000);
    return KO_CU_SUCCESS;
}

ko_cu_result double_error_name(ko_cu_result error, const char **name)
{
    static const struct {
        ko_cu_result error;
        const char *name;
    } names[] = {{KO_CU_SUCCESS, "CUDA_SUCCESS"},
                 {KO_CU_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"},
                 {KO_CU_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
                 {KO_CU_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED"},
                 {KO_CU_STUB_LIBRARY, "CUDA_ERROR_STUB_LIBRARY"},
                 {KO_CU_DEVICE_UNAVAILABLE, "CUDA_ERROR_DEVICE_UNAVAILABLE"},
                 {KO_CU_NO_DEVICE, "CUDA_ERROR_NO_DEVICE"},
                 {KO_CU_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE"},
                 {KO_CU_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT"},
                 {KO_CU_NO_BINARY, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
                 {KO_CU_TEXT_TOO_NEW, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"},
                 {KO_CU_PEER_UNSUPPORTED, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED"},
                 {KO_CU_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE"},
                 {KO_CU_NOT_READY, "CUDA_ERROR_NOT_READY"},
                 {KO_CU_NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED"},
                 {KO_CU_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED"},
                 {KO_CU_CAPTURE_FORBIDS, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
                 {KO_CU_CAPTURE_BROKEN, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"},
                 {KO_CU_CAPTURE_IMPLICIT, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"},
                 {KO_CU_CAPTURE_WRONG_THREAD, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD"}};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].error == error) {
            *name = names[i].name;
            return KO_CU_SUCCESS;
        }
    *name = NULL;
    return KO_CU_INVALID_VALUE;
}

/* ---- devices --------------------------------------------------------------------------------- */

ko_cu_result double_device_count(int *count)
{
    *count = count_devices();
    return KO_CU_SUCCESS;
}

ko_cu_result double_device(ko_cu_device *device, int ordinal)
{
    *device = gpu_of(ordinal);
    return *device >= 0 ? KO_CU_SUCCESS : KO_CU_INVALID_DEVICE;
}

/* With its length. */
static const char *name_of(ko_cu_device device, size_t *length)
{
    const char *name = getenv("FAKECUDA_NAMES");

    if (!name)
        name = "kolo's test double";
    for (; device > 0 && strchr(name, ','); device--)
        name = strchr(name, ',') + 1;
    *length = strcspn(name, ",");
    return name;
}

ko_cu_result double_device_name(char *name, int nbytes, ko_cu_device device)
{
    size_t length;
    const char *whole = name_of(device, &length);

    if (!double_is_gpu(device))
        return KO_CU_INVALID_DEVICE;
    for (size_t i = 0; i < (size_t)nbytes && i <= length; i++)
        name[i] = i < length ? whole[i] : '\0';
    return KO_CU_SUCCESS;
}

ko_cu_result double_device_attribute(int *value, int attribute, ko_cu_device device)
{
    const struct {
        int attribute, value;
    } values[] = {{KO_CU_MULTIPROCESSORS, double_number("FAKECUDA_MULTIPROCESSORS", 4)},
                  {KO_CU_L2_BYTES, 1 << 19},
                  {KO_CU_CAPABILITY_MAJOR, 9},
                  {KO_CU_CAPABILITY_MINOR, 0},
                  {KO_CU_HAS_DMA_BUF, double_number("FAKECUDA_DMA_BUF", 0)},
                  {KO_CU_FLUSHES, double_number("FAKECUDA_FLUSHES", 0)},
                  {KO_CU_ORDERING, double_number("FAKECUDA_ORDERING", KO_CU_ORDERED_OWNER)}};

    if (!double_is_gpu(device))
        return KO_CU_INVALID_DEVICE;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        if (values[i].attribute == attribute) {
            *value = values[i].value;
            return KO_CU_SUCCESS;
        }
    return KO_CU_INVALID_VALUE;
}

ko_cu_result double_device_bytes(size_t *nbytes, ko_cu_device device)
{
    *nbytes = (size_t)double_number("FAKECUDA_BYTES", 1 << 30);
    return double_is_gpu(device) ? KO_CU_SUCCESS : KO_CU_INVALID_DEVICE;
}

ko_cu_result double_device_uuid(ko_cu_uuid *uuid, ko_cu_device device)
{
    *uuid = (ko_cu_uuid){.bytes = "kolo's double"};
    uuid->bytes[15] = (unsigned char)device;
    return double_is_gpu(device) ? KO_CU_SUCCESS : KO_CU_INVALID_DEVICE;
}

ko_cu_result double_device_pci(char *id, int nbytes, ko_cu_device device)
{
    snprintf(id, (size_t)nbytes, "0000:%02X:00.0", 0x1a + device);
    return double_is_gpu(device) ? KO_CU_SUCCESS : KO_CU_INVALID_DEVICE;
}

bool double_reaches(ko_cu_device device, ko_cu_device peer)
{
    const int n = double_number("FAKECUDA_PEERS", DOUBLE_MOST_DEVICES);

    if (peer < 0 || (!double_is_gpu(peer) && !double_number("FAKECUDA_HIDDEN", 1)))
        return false;
    return device == peer || device / n == peer / n;
}

ko_cu_result double_device_reaches(int *does, ko_cu_device device, ko_cu_device peer)
{
    if (!double_is_gpu(device) || !double_is_gpu(peer))
        return KO_CU_INVALID_DEVICE;
    *does = device != peer && double_reaches(device, peer);
    return KO_CU_SUCCESS;
}

/* ---- contexts -------------------------------------------------------------------------------- */

ko_cu_context double_context(void)
{
    return mine.depth ? mine.stack[mine.depth - 1] : NULL;
}

ko_cu_context double_context_of(int device)
{
    pthread_mutex_lock(&lock);
    if (!contexts[device].legacy) {
        contexts[device].device = device;
        contexts[device].legacy = double_stream_new(&contexts[device], 0, false);
    }
    pthread_mutex_unlock(&lock);
    return &contexts[device];
}

/* Under the lock: users of each GPU's, and how often one was made. */
static int nusers[DOUBLE_MOST_DEVICES], nmade;

static bool add_user(ko_cu_device device)
{
    const int most = double_number("FAKECUDA_CONTEXTS", -1);
    bool is_there;

    pthread_mutex_lock(&lock);
    is_there = nusers[device] || most < 0 || nmade < most;
    nmade += is_there && !nusers[device];
    nusers[device] += is_there;
    pthread_mutex_unlock(&lock);
    return is_there;
}

ko_cu_result double_context_retain(ko_cu_context *context, ko_cu_device device)
{
    if (!double_is_gpu(device))
        return KO_CU_INVALID_DEVICE;
    if (!add_user(device))
        return KO_CU_OUT_OF_MEMORY;
    *context = double_context_of(device);
    return KO_CU_SUCCESS;
}

ko_cu_result double_context_release(ko_cu_device device)
{
    if (!double_is_gpu(device))
        return KO_CU_INVALID_DEVICE;
    pthread_mutex_lock(&lock);
    if (nusers[device])
        nusers[device]--;
    pthread_mutex_unlock(&lock);
    return KO_CU_SUCCESS;
}

ko_cu_result double_context_current(ko_cu_context *context)
{
    *context = double_context();
    return KO_CU_SUCCESS;
}

ko_cu_result double_context_push(ko_cu_context context)
{
    if (!context || mine.depth == MOST_DEPTH)
        return KO_CU_INVALID_CONTEXT;
    mine.stack[mine.depth++] = context;
    return KO_CU_SUCCESS;
}

ko_cu_result double_context_pop(ko_cu_context *context)
{
    if (!mine.depth)
        return KO_CU_INVALID_CONTEXT;
    *context = mine.stack[--mine.depth];
    return KO_CU_SUCCESS;
}

ko_cu_result double_context_device(ko_cu_device *device)
{
    if (!double_context())
        return KO_CU_INVALID_CONTEXT;
    *device = double_context()->device;
    return KO_CU_SUCCESS;
}

ko_cu_result double_context_reach(ko_cu_context peer, unsigned flags)
{
    ko_cu_context context = double_context();
    unsigned before;

    if (flags || !context || !peer || context == peer)
        return flags ? KO_CU_INVALID_VALUE : KO_CU_INVALID_CONTEXT;
    if (!double_reaches(context->device, peer->device))
        return KO_CU_PEER_UNSUPPORTED;
    before = __atomic_fetch_or(&context->peers, 1U << peer->device, __ATOMIC_SEQ_CST);
    return before >> peer->device & 1 ? KO_CU_PEER_ENABLED : KO_CU_SUCCESS;
}
