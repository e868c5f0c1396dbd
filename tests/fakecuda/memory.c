/* SPDX-License-Identifier: MIT
 *
 * The double's memory. Device memory is a memfd, mapped for good at its address; another process
 * opens it through /proc. What is freed is unmapped, so that a stale use of it faults.
 */
#include "ranges.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { NO_DEVICE = -2 };           /* CU_DEVICE_INVALID */
enum { ALREADY_REGISTERED = 712 }; /* CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED */

/* ---- its own --------------------------------------------------------------------------------- */

bool double_has_room(size_t nbytes)
{
    const int most = double_number("FAKECUDA_LONGEST", 0);

    return !most || nbytes <= (size_t)most;
}

/* A file of its own. */
static bool make_file(struct double_range *range)
{
    range->nbytes = (range->nbytes + DOUBLE_GRAIN - 1) / DOUBLE_GRAIN * DOUBLE_GRAIN;
    range->fd = memfd_create("device", MFD_CLOEXEC);
    if (range->fd < 0 || ftruncate(range->fd, (off_t)range->nbytes) ||
        !(range->base = double_map(range->fd, range->nbytes))) {
        close(range->fd);
        return false;
    }
    double_unset(range->base, range->nbytes);
    double_protect(range->base, range->nbytes);
    return true;
}

ko_cu_result double_alloc(ko_cu_ptr *memory, size_t nbytes)
{
    struct double_range range = {.kind = DOUBLE_DEVICE, .nbytes = nbytes};
    ko_cu_context context = double_context();
    bool is_made;

    if (!nbytes || !context)
        return context ? KO_CU_INVALID_VALUE : KO_CU_INVALID_CONTEXT;
    if (!double_has_room(nbytes))
        return KO_CU_OUT_OF_MEMORY;
    range.device = context->device;
    double_ranges_lock();
    is_made = double_block_suits(nbytes) ? double_block_take(&range) : make_file(&range);
    if (is_made)
        *memory = (uintptr_t)double_range_enter(range)->base;
    double_ranges_unlock();
    return is_made ? KO_CU_SUCCESS : KO_CU_OUT_OF_MEMORY;
}

ko_cu_result double_free(ko_cu_ptr memory)
{
    ko_cu_result result = KO_CU_INVALID_VALUE;
    struct double_range *range;

    if (!memory)
        return KO_CU_SUCCESS;
    double_await_streams();
    double_ranges_lock();
    range = double_range_at(memory);
    if (double_range_begins(range, memory) && range->kind == DOUBLE_DEVICE) {
        double_range_take_out(range);
        result = KO_CU_SUCCESS;
    }
    double_ranges_unlock();
    return result;
}

void fakecuda_manage(ko_cu_ptr memory, bool is_at_host)
{
    struct double_range *range;

    double_ranges_lock();
    range = double_range_at(memory);
    range->is_managed = true;
    range->is_at_host = is_at_host;
    double_ranges_unlock();
}

ko_cu_result double_address_range(ko_cu_ptr *base, size_t *nbytes, ko_cu_ptr at)
{
    struct double_range *range;

    double_ranges_lock();
    range = double_range_at(at);
    if (range && range->kind == DOUBLE_HOST)
        range = NULL;
    if (range) {
        *base = (uintptr_t)range->base;
        *nbytes = range->nbytes;
    }
    double_ranges_unlock();
    return range ? KO_CU_SUCCESS : KO_CU_NOT_FOUND;
}

static ko_cu_result describe(const struct double_range *range, int attribute, void *value)
{
    switch (attribute) {
    case KO_CU_POINTER_CONTEXT:
        *(ko_cu_context *)value =
            double_is_gpu(range->device) ? double_context_of(range->device) : NULL;
        return KO_CU_SUCCESS;
    case KO_CU_POINTER_MEMORY_TYPE:
        *(unsigned *)value = range->kind == DOUBLE_HOST || range->is_at_host ? KO_CU_MEMORY_HOST
                                                                             : KO_CU_MEMORY_DEVICE;
        return KO_CU_SUCCESS;
    case KO_CU_POINTER_BUFFER_ID:
        *(uint64_t *)value = range->id;
        return KO_CU_SUCCESS;
    case KO_CU_POINTER_IS_MANAGED:
        *(unsigned *)value = range->is_managed;
        return KO_CU_SUCCESS;
    case KO_CU_POINTER_DEVICE:
        *(int *)value = double_is_gpu(range->device) ? range->device : NO_DEVICE;
        return KO_CU_SUCCESS;
    case KO_CU_POINTER_HAS_LEGACY_IPC:
        *(unsigned *)value = range->kind == DOUBLE_DEVICE && !range->is_managed;
        return KO_CU_SUCCESS;
    default:
        return KO_CU_INVALID_VALUE;
    }
}

ko_cu_result double_pointer_attribute(void *value, int attribute, ko_cu_ptr at)
{
    struct double_range *range;
    ko_cu_result result;

    double_ranges_lock();
    range = double_range_at(
        at); /* memory that the driver does not know is an error of the real one's */
    result = range ? describe(range, attribute, value) : KO_CU_INVALID_VALUE;
    double_ranges_unlock();
    return result;
}

static struct {
    uint64_t now, most;
} locked; /* under the ranges' lock */

static void count_locked(uint64_t more, uint64_t less)
{
    locked.now += more - less;
    if (locked.now > locked.most)
        locked.most = locked.now;
}

void fakecuda_bytes_locked(uint64_t *now, uint64_t *most)
{
    double_ranges_lock();
    *now = locked.now;
    *most = locked.most;
    locked.most = locked.now;
    double_ranges_unlock();
}

bool double_is_locked(ko_cu_ptr at)
{
    const struct double_range *range;
    bool is;

    double_ranges_lock();
    range = double_range_at(at);
    is = range && range->kind == DOUBLE_HOST;
    double_ranges_unlock();
    return is;
}

bool double_is_managed(ko_cu_ptr at)
{
    const struct double_range *range;
    bool is;

    double_ranges_lock();
    range = double_range_at(at);
    is = range && range->is_managed;
    double_ranges_unlock();
    return is;
}

ko_cu_result double_host_register(void *memory, size_t nbytes, unsigned flags)
{
    ko_cu_context context = double_context();

    (void)flags;
    if (!context || !nbytes)
        return context ? KO_CU_INVALID_VALUE : KO_CU_INVALID_CONTEXT;
    double_ranges_lock();
    if (double_range_touches(memory, nbytes)) {
        double_ranges_unlock();
        return ALREADY_REGISTERED;
    }
    double_range_enter((struct double_range){
        .kind = DOUBLE_HOST, .base = memory, .nbytes = nbytes, .device = context->device});
    count_locked(nbytes, 0);
    double_ranges_unlock();
    return KO_CU_SUCCESS;
}

ko_cu_result double_host_unregister(void *memory)
{
    struct double_range *range;

    double_await_streams();
    double_ranges_lock();
    range = double_range_at((uintptr_t)memory);
    if (double_range_begins(range, (uintptr_t)memory) && range->kind == DOUBLE_HOST) {
        count_locked(0, range->nbytes);
        double_range_take_out(range);
    } else {
        range = NULL;
    }
    double_ranges_unlock();
    return range ? KO_CU_SUCCESS : KO_CU_INVALID_VALUE;
}

/* As on the machines that kolo runs on, the GPU has such memory at the host's address. */
ko_cu_result double_host_address(ko_cu_ptr *at, void *memory, unsigned flags)
{
    struct double_range *range;

    double_ranges_lock();
    range = flags ? NULL : double_range_at((uintptr_t)memory);
    double_ranges_unlock();
    *at = (uintptr_t)memory;
    return range && range->kind == DOUBLE_HOST ? KO_CU_SUCCESS : KO_CU_INVALID_VALUE;
}

/* ---- other processes' ------------------------------------------------------------------------ */

/* What an IPC handle says. */
struct passport {
    uint64_t id, base, nbytes, offset; /* of a part, those of its block, in which it lies there */
    int pid, fd, device;
};

static struct passport passport_of(const struct double_range *range)
{
    const struct double_block *block = range->block;
    struct passport passport = {.id = range->id,
                                .base = (uintptr_t)range->base,
                                .nbytes = range->nbytes,
                                .pid = getpid(),
                                .fd = range->fd,
                                .device = range->device};

    if (block) {
        passport.id = block->id;
        passport.base = (uintptr_t)block->base;
        passport.nbytes = block->nbytes;
        passport.offset = (uintptr_t)range->base - passport.base;
        passport.fd = block->fd;
    }
    return passport;
}

ko_cu_result double_ipc_export(ko_cu_ipc_handle *handle, ko_cu_ptr memory)
{
    struct double_range *range;

    double_ranges_lock();
    range = double_range_at(memory);
    if (range && (range->kind != DOUBLE_DEVICE || range->is_managed))
        range = NULL;
    if (range) {
        const struct passport passport = passport_of(range);

        *handle = (ko_cu_ipc_handle){.bytes = {0}};
        memcpy(handle->bytes, &passport, sizeof passport);
    }
    double_ranges_unlock();
    return range ? KO_CU_SUCCESS : KO_CU_INVALID_VALUE;
}

/* With the lock. */
static struct double_range *import(const struct passport *passport)
{
    struct double_range range = {
        .kind = DOUBLE_IMPORTED, .nbytes = passport->nbytes, .device = passport->device};
    char path[64];

    range.origin = (uint64_t)passport->pid << 32 ^ passport->id;
    range.there = passport->base;
    range.pid = passport->pid;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", passport->pid, passport->fd);
    range.fd = open(path, O_RDWR | O_CLOEXEC);
    range.base = range.fd < 0 ? NULL : double_map(range.fd, range.nbytes);
    if (!range.base) {
        close(range.fd);
        return NULL;
    }
    double_protect(range.base, range.nbytes);
    return double_range_enter(range);
}

ko_cu_result double_ipc_open(ko_cu_ptr *memory, ko_cu_ipc_handle handle, unsigned flags)
{
    ko_cu_result result = KO_CU_SUCCESS;
    struct passport passport;
    struct double_range *range;

    memcpy(&passport, handle.bytes, sizeof passport);
    if (flags != KO_CU_IPC_LAZY_PEER_ACCESS || !double_context())
        result = double_context() ? KO_CU_INVALID_VALUE : KO_CU_INVALID_CONTEXT;
    if (!result && !double_exists(passport.device)) /* no handle of the driver's */
        result = KO_CU_INVALID_VALUE;
    if (!result && passport.pid == getpid())
        result = KO_CU_INVALID_CONTEXT; /* its own memory has an address already */
    if (!result && !double_reaches(double_context()->device, passport.device))
        result = KO_CU_PEER_UNSUPPORTED;
    if (result)
        return result;
    __atomic_fetch_or(&double_context()->peers, 1U << passport.device, __ATOMIC_SEQ_CST);
    double_ranges_lock();
    range = double_range_imported((uint64_t)passport.pid << 32 ^ passport.id);
    if (!range && double_number("FAKECUDA_STRICT", 0) &&
        double_range_is_taken(passport.pid, passport.base, passport.nbytes))
        result = KO_CU_ALREADY_MAPPED; /* what was there, and has been freed, is still open */
    else if (!range)
        range = import(&passport);
    if (range) {
        range->users++;
        *memory = (uintptr_t)range->base + passport.offset;
    }
    double_ranges_unlock();
    return range ? KO_CU_SUCCESS : result ? result : KO_CU_INVALID_VALUE;
}

ko_cu_result double_ipc_close(ko_cu_ptr memory)
{
    struct double_range *range;

    double_await_streams();
    double_ranges_lock();
    range = double_range_at(memory); /* of a part, in which that lies */
    if (!range || range->kind != DOUBLE_IMPORTED)
        range = NULL;
    else if (!--range->users)
        double_range_take_out(range);
    double_ranges_unlock();
    return range ? KO_CU_SUCCESS : KO_CU_INVALID_VALUE;
}
