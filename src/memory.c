/* SPDX-License-Identifier: MIT
 *
 * A list of segments in the order of their addresses, guarded by one lock. Each is held by the list
 * and by the links that refer to it, so a mapping goes when nobody uses it any more; its pages go
 * at once, since peers that have mapped them may not hear of the end for long. Not those that a
 * child of fork may read still: they go with the last mapping.
 */
#include "memory.h"

#include "fault.h"
#include "kolo.h"
#include "status.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct region {
    const unsigned char *memory;
    struct ko_segment *segment;
    bool is_inherited; /* made by the process that forked this one */
    bool has_forked;   /* this process has, since: a child may have it too */
};

static struct {
    pthread_mutex_t lock;
    pthread_once_t is_watching_forks;
    struct region *regions;
    size_t room;
    atomic_size_t n; /* read without the lock to know that there is nothing to find */
} registry = {.lock = PTHREAD_MUTEX_INITIALIZER, .is_watching_forks = PTHREAD_ONCE_INIT};

/* ---- fork -------------------------------------------------------------------------------- */

static void lock_registry(void)
{
    pthread_mutex_lock(&registry.lock);
}

static void unlock_registry(void)
{
    pthread_mutex_unlock(&registry.lock);
}

static void go_on_as_parent(void)
{
    for (size_t i = 0; i < registry.n; i++)
        registry.regions[i].has_forked = true;
    unlock_registry();
}

static void begin_child(void)
{
    for (size_t i = 0; i < registry.n; i++)
        registry.regions[i].is_inherited = true;
    unlock_registry();
}

static void watch_forks(void)
{
    (void)pthread_atfork(lock_registry, go_on_as_parent, begin_child);
}

/* ---- the list ---------------------------------------------------------------------------- */

/* The number of regions that begin at or before the address. */
static size_t count_up_to(const void *address)
{
    size_t low = 0, high = registry.n;

    while (low < high) {
        const size_t middle = low + (high - low) / 2;

        if ((uintptr_t)registry.regions[middle].memory <= (uintptr_t)address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int make_room(void)
{
    const size_t room = registry.room ? 2 * registry.room : 16;
    struct region *regions;

    if (registry.n < registry.room)
        return KOLO_OK;
    regions = ko_fault(KO_FAULT_ALLOC) ? NULL : realloc(registry.regions, room * sizeof *regions);
    if (!regions)
        return ko_fail(KOLO_E_NOMEM, "no memory for the list of shared memory (%zu)", room);
    registry.regions = regions;
    registry.room = room;
    return KOLO_OK;
}

static int enter(struct ko_segment *segment)
{
    size_t at;
    int err;

    lock_registry();
    err = make_room();
    if (!err) {
        at = count_up_to(segment->memory);
        memmove(registry.regions + at + 1, registry.regions + at,
                (registry.n - at) * sizeof *registry.regions);
        registry.regions[at] = (struct region){.memory = segment->memory, .segment = segment};
        registry.n++;
    }
    unlock_registry();
    return err;
}

/* Takes the region that begins there out of the list. */
static bool leave(const void *memory, struct region *region)
{
    size_t end;
    bool is_there;

    lock_registry();
    end = count_up_to(memory);
    is_there = end && registry.regions[end - 1].memory == memory;
    if (is_there) {
        *region = registry.regions[end - 1];
        memmove(registry.regions + end - 1, registry.regions + end,
                (registry.n - end) * sizeof *registry.regions);
        registry.n--;
    }
    unlock_registry();
    return is_there;
}

/* As ko_memory_find, without another user; the caller has the lock. */
static struct ko_segment *find(const void *from, size_t nbytes)
{
    const size_t end = count_up_to(from);
    const struct region *region = end ? &registry.regions[end - 1] : NULL;
    size_t offset;

    if (!region || region->is_inherited)
        return NULL;
    offset = (size_t)((uintptr_t)from - (uintptr_t)region->memory);
    return offset < region->segment->nbytes && nbytes <= region->segment->nbytes - offset
               ? region->segment
               : NULL;
}

/* Whoever has a pointer into a region has seen it entered. */
static bool is_empty(void)
{
    return !atomic_load_explicit(&registry.n, memory_order_relaxed);
}

struct ko_segment *ko_memory_find(const void *from, size_t nbytes)
{
    struct ko_segment *found;

    if (is_empty())
        return NULL;
    lock_registry();
    found = find(from, nbytes);
    if (found)
        ko_segment_retain(found);
    unlock_registry();
    return found;
}

bool ko_memory_is_found(const void *from, size_t nbytes)
{
    bool is_found;

    if (is_empty())
        return false;
    lock_registry();
    is_found = find(from, nbytes);
    unlock_registry();
    return is_found;
}

/* ---- public ------------------------------------------------------------------------------ */

int kolo_mem_alloc(size_t nbytes, void **memory)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct ko_segment *segment;
    int err;

    if (!memory)
        return ko_fail(KOLO_E_INVALID, "kolo_mem_alloc: memory is NULL");
    if (nbytes > SIZE_MAX / 2)
        return ko_fail(KOLO_E_NOMEM, "kolo_mem_alloc: nobody has %zu bytes", nbytes);
    err = ko_segment_create(nbytes ? (nbytes + page - 1) / page * page : page, &segment);
    if (err)
        return err;
    /* After the segments' own: a fork takes the lock that was registered last first, as we do. */
    (void)pthread_once(&registry.is_watching_forks, watch_forks);
    err = enter(segment);
    if (err) {
        ko_segment_release(segment);
        return err;
    }
    *memory = segment->memory;
    return KOLO_OK;
}

int kolo_mem_free(void *memory)
{
    struct region region;

    if (!memory)
        return KOLO_OK;
    if (!leave(memory, &region))
        return ko_fail(KOLO_E_INVALID, "kolo_mem_free: %p is not what kolo_mem_alloc gave", memory);
    atomic_store(&region.segment->is_freed, true);
    if (!region.is_inherited && !region.has_forked) /* else they are another's too */
        (void)fallocate(region.segment->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                        (off_t)region.segment->nbytes);
    ko_segment_release(region.segment);
    return KOLO_OK;
}
