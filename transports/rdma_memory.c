/* SPDX-License-Identifier: MIT
 *
 * A registration that is kept holds its segment, so that the addresses cannot come to mean other
 * pages. What has been freed by its user is let go at the next use of the list, and when the list
 * or the limit of locked memory is full that which was used longest ago. A GPU's allocations are
 * registered whole, by a dma-buf of all that a message lies in, which keeps their memory as long:
 * what has been freed of these is looked for whenever a new one comes. What cannot be registered
 * whole is kept as such: a segment of kolo_mem_alloc is registered in pieces then, message by
 * message.
 */
#include "rdma.h"

#include "log.h"
#include "memory.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static void warn(struct ko_rdma_device *device, const char *name, size_t nbytes, int error)
{
    if (atomic_exchange(&device->memory.has_warned, true))
        return;
    ko_log(KO_LOG_WARN,
           "%zu bytes cannot be registered with %s: %s; such messages go through slots, slower%s",
           nbytes, name, strerror(error),
           error == ENOMEM ? " (the limit of locked memory: ulimit -l, LimitMEMLOCK=, "
                             "--ulimit memlock=-1)"
                           : "");
}

void ko_rdma_unregister_one(const struct ko_rdma_device *device,
                            const struct ko_rdma_adapter *adapter, struct ko_ib_mr *mr)
{
    ko_rdma_note_left(adapter, "a registration", device->ib->dereg_mr(mr));
}

static void unmake(struct ko_rdma_device *device, struct ko_rdma_region *region)
{
    for (int i = 0; i < device->nadapters && region->mrs[i]; i++)
        ko_rdma_unregister_one(device, &device->adapters[i], region->mrs[i]);
    *region = (struct ko_rdma_region){.is_kept = false};
}

/* ---- what is kept ------------------------------------------------------------------------ */

static bool covers(const struct ko_segment *segment, const void *at, size_t nbytes)
{
    const size_t offset = (size_t)((uintptr_t)at - (uintptr_t)segment->memory);

    return offset < segment->nbytes && nbytes <= segment->nbytes - offset;
}

static bool is_free(const struct ko_rdma_held *held)
{
    return !held->segment && !held->extent.length;
}

static void let_go(struct ko_rdma_device *device, int i)
{
    struct ko_rdma_held *held = &device->memory.kept[i];

    device->memory.let_go += held->region.mrs[0] != NULL;
    unmake(device, &held->region);
    ko_segment_release(held->segment);
    held->segment = NULL;
    held->extent.length = 0;
}

/* The entry that covers the memory, or -1; lets go of what has been freed on the way. */
static int find(struct ko_rdma_device *device, const void *at, size_t nbytes)
{
    struct ko_rdma_memory *memory = &device->memory;
    int found = -1;

    for (int i = 0; i < KO_RDMA_KEPT; i++) {
        struct ko_segment *segment = memory->kept[i].segment;

        if (!segment)
            continue;
        if (!atomic_load(&segment->is_freed)) {
            if (covers(segment, at, nbytes))
                found = i;
        } else if (!memory->kept[i].users) {
            let_go(device, i);
        }
    }
    return found;
}

/* Lets go of what nobody uses and was used longest ago: its entry, -1 if all are in use. */
static int let_go_oldest(struct ko_rdma_device *device)
{
    const struct ko_rdma_held *kept = device->memory.kept;
    int oldest = -1;

    for (int i = 0; i < KO_RDMA_KEPT; i++)
        if (!is_free(&kept[i]) && !kept[i].users &&
            (oldest < 0 || kept[i].used < kept[oldest].used))
            oldest = i;
    if (oldest >= 0)
        let_go(device, oldest);
    return oldest;
}

static int find_free(const struct ko_rdma_device *device)
{
    for (int i = 0; i < KO_RDMA_KEPT; i++)
        if (is_free(&device->memory.kept[i]))
            return i;
    return -1;
}

/* A free entry; -1 if all are in use. */
static int make_room(struct ko_rdma_device *device)
{
    const int i = find_free(device);

    return i >= 0 ? i : let_go_oldest(device);
}

/* After an ENOMEM, which it leaves in errno if nothing helps. */
static struct ko_ib_mr *register_again(struct ko_rdma_device *device,
                                       const struct ko_rdma_adapter *adapter, void *at,
                                       size_t nbytes, int access)
{
    struct ko_ib_mr *mr = NULL;
    int error = ENOMEM;

    pthread_mutex_lock(&device->memory.lock);
    while (!mr && error == ENOMEM && let_go_oldest(device) >= 0) {
        mr = device->ib->reg_mr(adapter->pd, at, nbytes, access);
        error = errno;
    }
    pthread_mutex_unlock(&device->memory.lock);
    errno = error;
    return mr;
}

struct ko_ib_mr *ko_rdma_register_first(struct ko_rdma_device *device,
                                        const struct ko_rdma_adapter *adapter, void *at,
                                        size_t nbytes, int access)
{
    struct ko_ib_mr *mr = device->ib->reg_mr(adapter->pd, at, nbytes, access);

    return mr || errno != ENOMEM ? mr : register_again(device, adapter, at, nbytes, access);
}

/* Whether so much is registered that nobody uses: what is longer than all of that would only drive
 * it out, message by message. */
static bool has_idle(struct ko_rdma_device *device, size_t nbytes)
{
    const struct ko_rdma_held *kept = device->memory.kept;
    size_t idle = 0;

    pthread_mutex_lock(&device->memory.lock);
    for (int i = 0; i < KO_RDMA_KEPT; i++)
        if (kept[i].segment && kept[i].region.mrs[0] && !kept[i].users)
            idle += kept[i].segment->nbytes;
    pthread_mutex_unlock(&device->memory.lock);
    return idle >= nbytes;
}

static struct ko_ib_mr *make_one(struct ko_rdma_device *device,
                                 const struct ko_rdma_adapter *adapter, const void *at,
                                 size_t nbytes, int access)
{
    void *memory = (void *)(uintptr_t)at;
    struct ko_ib_mr *mr = device->ib->reg_mr(adapter->pd, memory, nbytes, access);

    if (mr || errno != ENOMEM || !has_idle(device, nbytes))
        return mr;
    return register_again(device, adapter, memory, nbytes, access);
}

/* Registers with all adapters, or with none: then the one that refused, and errno. */
static const struct ko_rdma_adapter *make(struct ko_rdma_device *device, const void *at,
                                          size_t nbytes, int access, struct ko_rdma_region *region)
{
    *region = (struct ko_rdma_region){.is_kept = false};
    for (int i = 0; i < device->nadapters; i++) {
        const struct ko_rdma_adapter *adapter = &device->adapters[i];
        int error;

        region->mrs[i] = make_one(device, adapter, at, nbytes, access);
        if (region->mrs[i])
            continue;
        error = errno;
        unmake(device, region);
        errno = error;
        return adapter;
    }
    return NULL;
}

/* Keeps the segment with those bytes, if they are of kolo_mem_alloc: its entry, else -1. That it is
 * refused is kept where there is an entry to spare. */
static int keep(struct ko_rdma_device *device, const void *at, size_t nbytes)
{
    struct ko_segment *segment = ko_memory_find(at, nbytes);
    struct ko_rdma_region region;
    int i = -1;

    if (!segment)
        return -1;
    if (make(device, segment->memory, segment->nbytes, KO_IB_LOCAL_WRITE | KO_IB_REMOTE_WRITE,
             &region))
        i = find_free(device);
    else
        i = make_room(device);
    if (i < 0) {
        unmake(device, &region);
        ko_segment_release(segment);
        return -1;
    }
    region.is_kept = region.mrs[0];
    device->memory.kept[i] = (struct ko_rdma_held){
        .segment = segment, .region = region, .let_go = device->memory.let_go};
    return i;
}

/* The entry that has the memory, or had to refuse it; -1. */
static int find_or_keep(struct ko_rdma_device *device, const void *at, size_t nbytes)
{
    const struct ko_rdma_memory *memory = &device->memory;
    int i = find(device, at, nbytes);

    if (i >= 0 && !memory->kept[i].region.mrs[0] && memory->kept[i].let_go != memory->let_go) {
        let_go(device, i); /* there may be room for it now */
        i = -1;
    }
    return i < 0 ? keep(device, at, nbytes) : i;
}

/* ---- regions ----------------------------------------------------------------------------- */

bool ko_rdma_register(struct ko_rdma_device *device, const void *at, size_t nbytes, int access,
                      struct ko_rdma_region *region)
{
    struct ko_rdma_memory *memory = &device->memory;
    const struct ko_rdma_adapter *refused;
    bool is_kept;
    int i;

    pthread_mutex_lock(&memory->lock);
    i = find_or_keep(device, at, nbytes);
    is_kept = i >= 0 && memory->kept[i].region.mrs[0];
    if (is_kept) {
        memory->kept[i].users++;
        memory->kept[i].used = ++memory->uses;
        *region = memory->kept[i].region;
    }
    pthread_mutex_unlock(&memory->lock);
    refused = is_kept ? NULL : make(device, at, nbytes, access, region);
    if (refused)
        warn(device, refused->port.device, nbytes, errno);
    return !refused;
}

void ko_rdma_unregister(struct ko_rdma_device *device, struct ko_rdma_region *region)
{
    struct ko_rdma_memory *memory = &device->memory;

    if (!region->is_kept) {
        unmake(device, region);
        return;
    }
    pthread_mutex_lock(&memory->lock);
    for (int i = 0; i < KO_RDMA_KEPT; i++)
        if (memory->kept[i].region.mrs[0] == region->mrs[0])
            memory->kept[i].users--;
    pthread_mutex_unlock(&memory->lock);
    *region = (struct ko_rdma_region){.is_kept = false};
}

/* ---- memory of GPUs ---------------------------------------------------------------------- */

static int register_dmabuf(const struct ko_rdma_device *device, const struct ko_gpu_extent *extent,
                           int fd, struct ko_rdma_region *region)
{
    for (int i = 0; i < device->nadapters; i++) {
        const struct ko_rdma_adapter *adapter = &device->adapters[i];

        region->mrs[i] = device->ib->reg_dmabuf(adapter->pd, 0, extent->length, extent->at, fd,
                                                KO_IB_LOCAL_WRITE | KO_IB_REMOTE_WRITE);
        if (!region->mrs[i])
            return ko_ib_fail_dmabuf(adapter->port.device, extent->length, errno);
    }
    return KOLO_OK;
}

/* With all adapters, or with none. */
static int make_of_gpu(struct ko_rdma_device *device, struct ko_gpu *gpu,
                       const struct ko_gpu_extent *extent, struct ko_rdma_region *region)
{
    int fd;
    int err = ko_ib_check_dmabuf(device->ib);

    if (!err)
        err = ko_gpu_extent_export(gpu, extent, &fd);
    if (err)
        return err;
    err = register_dmabuf(device, extent, fd, region);
    close(fd); /* the registrations keep the dma-buf */
    if (err)
        unmake(device, region);
    return err;
}

static struct ko_rdma_held *find_of_gpu(struct ko_rdma_memory *memory,
                                        const struct ko_gpu_extent *extent)
{
    for (int i = 0; i < KO_RDMA_KEPT; i++) {
        const struct ko_gpu_extent *known = &memory->kept[i].extent;

        if (known->length == extent->length && known->print == extent->print &&
            known->at == extent->at)
            return &memory->kept[i];
    }
    return NULL;
}

static void drop_freed(struct ko_rdma_device *device, struct ko_gpu *gpu)
{
    for (int i = 0; i < KO_RDMA_KEPT; i++) {
        const struct ko_rdma_held *held = &device->memory.kept[i];

        if (held->extent.length && !held->users && !ko_gpu_extent_is_there(gpu, &held->extent))
            let_go(device, i);
    }
}

/* NULL: all entries are in use. */
static struct ko_rdma_held *keep_of_gpu(struct ko_rdma_device *device, struct ko_gpu *gpu,
                                        const struct ko_gpu_extent *extent, int *err)
{
    struct ko_rdma_held *held;
    int i;

    drop_freed(device, gpu);
    i = make_room(device);
    if (i < 0)
        return NULL;
    held = &device->memory.kept[i];
    *held =
        (struct ko_rdma_held){.base = {&ko_transport_rdma}, .device = device, .extent = *extent};
    *err = make_of_gpu(device, gpu, extent, &held->region);
    held->region.is_kept = !*err;
    return held;
}

struct ko_held *ko_rdma_hold(struct ko_rdma_device *device, struct ko_gpu *gpu, const void *at,
                             size_t nbytes)
{
    struct ko_rdma_memory *memory = &device->memory;
    struct ko_rdma_held *held = NULL;
    struct ko_gpu_extent extent;
    int err;

    if (!memory->takes_gpus || nbytes < KO_RDMA_DIRECT)
        return NULL;
    pthread_mutex_lock(&memory->lock);
    err = ko_gpu_extent_of(gpu, at, nbytes, &extent);
    if (!err)
        held = find_of_gpu(memory, &extent);
    if (!err && !held)
        held = keep_of_gpu(device, gpu, &extent, &err);
    if (held)
        held->used = ++memory->uses;
    if (held && !held->region.mrs[0])
        held = NULL;
    if (held)
        held->users++;
    pthread_mutex_unlock(&memory->lock);
    if (err && !atomic_exchange(&memory->has_warned_gpu, true))
        ko_log(KO_LOG_WARN, "messages of GPU memory go by way of the host's, slower: %s",
               kolo_last_error());
    return held ? &held->base : NULL;
}

void ko_rdma_use(struct ko_held *base, struct ko_rdma_region *region)
{
    struct ko_rdma_held *held = (struct ko_rdma_held *)base;

    pthread_mutex_lock(&held->device->memory.lock);
    held->users++;
    pthread_mutex_unlock(&held->device->memory.lock);
    *region = held->region;
}

void ko_rdma_let_go(struct ko_held *base)
{
    struct ko_rdma_held *held = (struct ko_rdma_held *)base;

    pthread_mutex_lock(&held->device->memory.lock);
    held->users--;
    pthread_mutex_unlock(&held->device->memory.lock);
}

void ko_rdma_memory_open(struct ko_rdma_device *device)
{
    pthread_mutexattr_t attr;

    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&device->memory.lock, &attr);
    pthread_mutexattr_destroy(&attr);
}

void ko_rdma_memory_close(struct ko_rdma_device *device)
{
    for (int i = 0; i < KO_RDMA_KEPT; i++)
        if (!is_free(&device->memory.kept[i]))
            let_go(device, i);
    pthread_mutex_destroy(&device->memory.lock);
}
