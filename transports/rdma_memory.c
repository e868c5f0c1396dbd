/* SPDX-License-Identifier: MIT
 *
 * A registration that is kept holds its segment, so that the addresses cannot come to mean other
 * pages. What has been freed by its user is let go at the next use of the list, and when the list
 * is full that which was used longest ago.
 */
#include "rdma.h"

#include "log.h"
#include "memory.h"

#include <errno.h>
#include <string.h>

static void warn(struct ko_rdma_device *device, size_t nbytes, int error)
{
    if (atomic_exchange(&device->memory.has_warned, true))
        return;
    ko_log(KO_LOG_WARN,
           "%zu bytes cannot be registered with %s: %s; such messages go through slots, slower%s",
           nbytes, device->port.device, strerror(error),
           error == ENOMEM ? " (the limit of locked memory: ulimit -l, LimitMEMLOCK=, "
                             "--ulimit memlock=-1)"
                           : "");
}

static struct ko_ib_mr *make(struct ko_rdma_device *device, const void *at, size_t nbytes,
                             int access)
{
    struct ko_ib_mr *mr = device->ib->reg_mr(device->pd, (void *)(uintptr_t)at, nbytes, access);

    if (!mr)
        warn(device, nbytes, errno);
    return mr;
}

/* ---- what is kept ------------------------------------------------------------------------ */

static bool covers(const struct ko_segment *segment, const void *at, size_t nbytes)
{
    const size_t offset = (size_t)((uintptr_t)at - (uintptr_t)segment->memory);

    return offset < segment->nbytes && nbytes <= segment->nbytes - offset;
}

static void let_go(struct ko_rdma_device *device, int i)
{
    (void)device->ib->dereg_mr(device->memory.kept[i].mr);
    ko_segment_release(device->memory.kept[i].segment);
    device->memory.kept[i].segment = NULL;
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

/* A free entry; -1 if all are in use. */
static int make_room(struct ko_rdma_device *device)
{
    struct ko_rdma_memory *memory = &device->memory;
    int oldest = -1;

    for (int i = 0; i < KO_RDMA_KEPT; i++) {
        if (!memory->kept[i].segment)
            return i;
        if (!memory->kept[i].users &&
            (oldest < 0 || memory->kept[i].used < memory->kept[oldest].used))
            oldest = i;
    }
    if (oldest >= 0)
        let_go(device, oldest);
    return oldest;
}

/* Keeps the segment with those bytes, if they are of kolo_mem_alloc: its entry, else -1. */
static int keep(struct ko_rdma_device *device, const void *at, size_t nbytes)
{
    struct ko_segment *segment = ko_memory_find(at, nbytes);
    struct ko_ib_mr *mr;
    int i = segment ? make_room(device) : -1;

    if (i >= 0) {
        mr = make(device, segment->memory, segment->nbytes, KO_IB_LOCAL_WRITE | KO_IB_REMOTE_WRITE);
        if (mr) {
            device->memory.kept[i].segment = segment;
            device->memory.kept[i].mr = mr;
            device->memory.kept[i].users = 0;
            return i;
        }
    }
    ko_segment_release(segment);
    return -1;
}

/* ---- regions ----------------------------------------------------------------------------- */

bool ko_rdma_register(struct ko_rdma_device *device, const void *at, size_t nbytes, int access,
                      struct ko_rdma_region *region)
{
    struct ko_rdma_memory *memory = &device->memory;
    int i;

    *region = (struct ko_rdma_region){.mr = NULL};
    pthread_mutex_lock(&memory->lock);
    i = find(device, at, nbytes);
    if (i < 0)
        i = keep(device, at, nbytes);
    if (i >= 0) {
        memory->kept[i].users++;
        memory->kept[i].used = ++memory->uses;
        *region = (struct ko_rdma_region){memory->kept[i].mr, true};
    }
    pthread_mutex_unlock(&memory->lock);
    if (i < 0)
        region->mr = make(device, at, nbytes, access);
    return region->mr;
}

void ko_rdma_unregister(struct ko_rdma_device *device, struct ko_rdma_region *region)
{
    struct ko_rdma_memory *memory = &device->memory;

    if (region->mr && !region->is_kept)
        (void)device->ib->dereg_mr(region->mr);
    if (region->is_kept) {
        pthread_mutex_lock(&memory->lock);
        for (int i = 0; i < KO_RDMA_KEPT; i++)
            if (memory->kept[i].segment && memory->kept[i].mr == region->mr)
                memory->kept[i].users--;
        pthread_mutex_unlock(&memory->lock);
    }
    *region = (struct ko_rdma_region){.mr = NULL};
}

void ko_rdma_memory_close(struct ko_rdma_device *device)
{
    for (int i = 0; i < KO_RDMA_KEPT; i++)
        if (device->memory.kept[i].segment)
            let_go(device, i);
    pthread_mutex_destroy(&device->memory.lock);
}
