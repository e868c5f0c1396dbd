/* SPDX-License-Identifier: MIT
 *
 * The double's memory. Device memory is a memfd, mapped for good at its address; another process
 * opens it through /proc. What is freed is unmapped, so that a stale use of it faults.
 */
#include "double.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { GRAIN = 4096, UNSET = 0xa5 };

/* One range that the driver knows. */
struct range {
    unsigned char *base;
    size_t nbytes;
    enum { DEVICE, IMPORTED, HOST, PIECE } kind;
    struct piece *piece; /* that is mapped there */
    int device, fd;
    unsigned allowed; /* bits: GPUs that a piece has been given to */
    int users;        /* of one that is imported */
    uint64_t id, origin;
    struct range *next;
};

/* Memory without an address. */
struct piece {
    int users, fd, device;
    size_t nbytes;
    bool has_descriptor;
};

/* What an IPC handle says. */
struct passport {
    uint64_t id, nbytes;
    int pid, fd, device;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct range *ranges;
static uint64_t last_id;
static int key = -1; /* of protection; -1: not tried, -2: there is none */

static int find_key(void)
{
    if (key == -1)
        key = pkey_alloc(0, PKEY_DISABLE_ACCESS);
    if (key < 0)
        key = -2;
    return key;
}

void double_allow(void)
{
    pthread_mutex_lock(&lock);
    if (find_key() >= 0)
        pkey_set(key, 0);
    pthread_mutex_unlock(&lock);
}

/* With the lock. */
static struct range *find(ko_cu_ptr at)
{
    struct range *range = ranges;

    while (range && (at < (uintptr_t)range->base || at >= (uintptr_t)range->base + range->nbytes))
        range = range->next;
    return range;
}

/* With the lock: a piece is for the GPUs that have been given it. */
static bool is_allowed(const struct range *range, int by)
{
    if (range->kind == PIECE)
        return range->allowed >> by & 1;
    return range->device == by ||
           __atomic_load_n(&double_context_of(by)->peers, __ATOMIC_SEQ_CST) >> range->device & 1;
}

bool double_find(ko_cu_ptr at, int by, struct double_home *home)
{
    const struct range *range;

    pthread_mutex_lock(&lock);
    range = find(at);
    if (range && range->kind == HOST)
        range = NULL;
    if (range)
        *home = (struct double_home){.base = (uintptr_t)range->base,
                                     .end = (uintptr_t)range->base + range->nbytes,
                                     .device = range->device,
                                     .is_allowed = is_allowed(range, by)};
    pthread_mutex_unlock(&lock);
    return range;
}

static bool is_base(const struct range *range, ko_cu_ptr at)
{
    return range && (uintptr_t)range->base == at;
}

bool double_is_valid(ko_cu_ptr at, size_t nbytes)
{
    const ko_cu_ptr end = at + nbytes;
    struct range *range;
    bool is_known;

    pthread_mutex_lock(&lock);
    range = find(at);
    is_known = range;
    while (range && (uintptr_t)range->base + range->nbytes < end) /* pieces lie side by side */
        range = range->kind == PIECE ? find((uintptr_t)range->base + range->nbytes) : NULL;
    if (!is_known && nbytes)
        range = find(end - 1);
    pthread_mutex_unlock(&lock);
    return is_known == (range != NULL);
}

/* Enters a range. With the lock. */
static struct range *enter(struct range range)
{
    struct range *copy = malloc(sizeof *copy);

    *copy = range;
    copy->id = ++last_id;
    copy->next = ranges;
    ranges = copy;
    return copy;
}

static void take_out(struct range *range)
{
    struct range **link = &ranges;

    while (*link != range)
        link = &(*link)->next;
    *link = range->next;
    if (range->kind == DEVICE || range->kind == IMPORTED) {
        munmap(range->base, range->nbytes);
        close(range->fd);
    }
    free(range);
}

static unsigned char *map(int fd, size_t nbytes)
{
    void *base = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    return base == MAP_FAILED ? NULL : base;
}

/* From now on only those who may can touch it. */
static void protect(unsigned char *base, size_t nbytes)
{
    if (find_key() >= 0 && pkey_mprotect(base, nbytes, PROT_READ | PROT_WRITE, key))
        abort();
}

ko_cu_result double_alloc(ko_cu_ptr *memory, size_t nbytes)
{
    struct range range = {.kind = DEVICE, .nbytes = (nbytes + GRAIN - 1) / GRAIN * GRAIN};
    ko_cu_context context = double_context();
    ko_cu_result result = double_enter("cuMemAlloc");

    if (!result && (!nbytes || !context))
        result = context ? KO_CU_INVALID_VALUE : KO_CU_INVALID_CONTEXT;
    if (result)
        return result;
    range.device = context->device;
    range.fd = memfd_create("device", MFD_CLOEXEC);
    if (range.fd < 0 || ftruncate(range.fd, (off_t)range.nbytes) ||
        !(range.base = map(range.fd, range.nbytes))) {
        close(range.fd);
        return KO_CU_OUT_OF_MEMORY;
    }
    memset(range.base, UNSET, range.nbytes);
    pthread_mutex_lock(&lock);
    protect(range.base, range.nbytes);
    *memory = (uintptr_t)enter(range)->base;
    pthread_mutex_unlock(&lock);
    return KO_CU_SUCCESS;
}

ko_cu_result double_free(ko_cu_ptr memory)
{
    ko_cu_result result = KO_CU_INVALID_VALUE;
    struct range *range;

    if (!memory)
        return KO_CU_SUCCESS;
    pthread_mutex_lock(&lock);
    range = find(memory);
    if (is_base(range, memory) && range->kind == DEVICE) {
        take_out(range);
        result = KO_CU_SUCCESS;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

ko_cu_result double_address_range(ko_cu_ptr *base, size_t *nbytes, ko_cu_ptr at)
{
    struct range *range;

    pthread_mutex_lock(&lock);
    range = find(at);
    if (range && range->kind == HOST)
        range = NULL;
    if (range) {
        *base = (uintptr_t)range->base;
        *nbytes = range->nbytes;
    }
    pthread_mutex_unlock(&lock);
    return range ? KO_CU_SUCCESS : KO_CU_NOT_FOUND;
}

static ko_cu_result describe(const struct range *range, int attribute, void *value)
{
    switch (attribute) {
    case KO_CU_POINTER_CONTEXT:
        *(ko_cu_context *)value = double_context_of(range->device);
        return KO_CU_SUCCESS;
    case KO_CU_POINTER_MEMORY_TYPE:
        *(unsigned *)value = range->kind == HOST ? KO_CU_MEMORY_HOST : KO_CU_MEMORY_DEVICE;
        return KO_CU_SUCCESS;
    case KO_CU_POINTER_BUFFER_ID:
        *(uint64_t *)value = range->id;
        return KO_CU_SUCCESS;
    case KO_CU_POINTER_IS_MANAGED:
        *(unsigned *)value = 0;
        return KO_CU_SUCCESS;
    case KO_CU_POINTER_DEVICE:
        *(int *)value = range->device;
        return KO_CU_SUCCESS;
    case KO_CU_POINTER_HAS_LEGACY_IPC:
        *(unsigned char *)value = range->kind == DEVICE;
        return KO_CU_SUCCESS;
    default:
        return KO_CU_INVALID_VALUE;
    }
}

ko_cu_result double_pointer_attribute(void *value, int attribute, ko_cu_ptr at)
{
    ko_cu_result result = double_enter("cuPointerGetAttribute");
    struct range *range;

    pthread_mutex_lock(&lock);
    range = find(at);
    if (!result) /* memory that the driver does not know is an error, as with the real one */
        result = range ? describe(range, attribute, value) : KO_CU_INVALID_VALUE;
    pthread_mutex_unlock(&lock);
    return result;
}

ko_cu_result double_host_register(void *memory, size_t nbytes, unsigned flags)
{
    ko_cu_context context = double_context();
    ko_cu_result result = double_enter("cuMemHostRegister");

    (void)flags;
    if (result)
        return result;
    if (!context || !nbytes)
        return context ? KO_CU_INVALID_VALUE : KO_CU_INVALID_CONTEXT;
    pthread_mutex_lock(&lock);
    enter(
        (struct range){.kind = HOST, .base = memory, .nbytes = nbytes, .device = context->device});
    pthread_mutex_unlock(&lock);
    return KO_CU_SUCCESS;
}

ko_cu_result double_host_unregister(void *memory)
{
    struct range *range;

    pthread_mutex_lock(&lock);
    range = find((uintptr_t)memory);
    if (is_base(range, (uintptr_t)memory) && range->kind == HOST)
        take_out(range);
    else
        range = NULL;
    pthread_mutex_unlock(&lock);
    return range ? KO_CU_SUCCESS : KO_CU_INVALID_VALUE;
}

/* As on the machines that kolo runs on, the GPU has such memory at the host's address. */
ko_cu_result double_host_address(ko_cu_ptr *at, void *memory, unsigned flags)
{
    struct range *range;

    pthread_mutex_lock(&lock);
    range = flags ? NULL : find((uintptr_t)memory);
    pthread_mutex_unlock(&lock);
    *at = (uintptr_t)memory;
    return range && range->kind == HOST ? KO_CU_SUCCESS : KO_CU_INVALID_VALUE;
}

/* ---- other processes' ------------------------------------------------------------------------ */

ko_cu_result double_ipc_export(ko_cu_ipc_handle *handle, ko_cu_ptr memory)
{
    ko_cu_result result = double_enter("cuIpcGetMemHandle");
    struct range *range;

    pthread_mutex_lock(&lock);
    range = find(memory);
    if (!result && (!range || range->kind != DEVICE))
        result = KO_CU_INVALID_VALUE;
    if (!result) {
        const struct passport passport = {.id = range->id,
                                          .nbytes = range->nbytes,
                                          .pid = getpid(),
                                          .fd = range->fd,
                                          .device = range->device};

        *handle = (ko_cu_ipc_handle){.bytes = {0}};
        memcpy(handle->bytes, &passport, sizeof passport);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

static struct range *find_import(uint64_t origin)
{
    struct range *range = ranges;

    while (range && (range->kind != IMPORTED || range->origin != origin))
        range = range->next;
    return range;
}

/* With the lock. */
static struct range *import(const struct passport *passport)
{
    struct range range = {.kind = IMPORTED, .nbytes = passport->nbytes, .device = passport->device};
    char path[64];

    range.origin = (uint64_t)passport->pid << 32 ^ passport->id;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", passport->pid, passport->fd);
    range.fd = open(path, O_RDWR | O_CLOEXEC);
    range.base = range.fd < 0 ? NULL : map(range.fd, range.nbytes);
    if (!range.base) {
        close(range.fd);
        return NULL;
    }
    protect(range.base, range.nbytes);
    return enter(range);
}

ko_cu_result double_ipc_open(ko_cu_ptr *memory, ko_cu_ipc_handle handle, unsigned flags)
{
    ko_cu_result result = double_enter("cuIpcOpenMemHandle");
    struct passport passport;
    struct range *range;

    memcpy(&passport, handle.bytes, sizeof passport);
    if (!result && (flags != KO_CU_IPC_LAZY_PEER_ACCESS || !double_context()))
        result = double_context() ? KO_CU_INVALID_VALUE : KO_CU_INVALID_CONTEXT;
    if (!result && !double_is_gpu(passport.device)) /* no handle of the driver's */
        result = KO_CU_INVALID_VALUE;
    if (!result && passport.pid == getpid())
        result = KO_CU_INVALID_CONTEXT; /* its own memory has an address already */
    if (!result && !double_reaches(double_context()->device, passport.device))
        result = KO_CU_PEER_UNSUPPORTED;
    if (result)
        return result;
    __atomic_fetch_or(&double_context()->peers, 1U << passport.device, __ATOMIC_SEQ_CST);
    pthread_mutex_lock(&lock);
    range = find_import((uint64_t)passport.pid << 32 ^ passport.id);
    if (!range)
        range = import(&passport);
    if (range) {
        range->users++;
        *memory = (uintptr_t)range->base;
    }
    pthread_mutex_unlock(&lock);
    return range ? KO_CU_SUCCESS : KO_CU_INVALID_VALUE;
}

ko_cu_result double_ipc_close(ko_cu_ptr memory)
{
    struct range *range;

    pthread_mutex_lock(&lock);
    range = find(memory);
    if (!is_base(range, memory) || range->kind != IMPORTED)
        range = NULL;
    else if (!--range->users)
        take_out(range);
    pthread_mutex_unlock(&lock);
    return range ? KO_CU_SUCCESS : KO_CU_INVALID_VALUE;
}

/* ---- adapters -------------------------------------------------------------------------------- */

/* The descriptor is that of the memory's own file, which begins where the range does. */
ko_cu_result double_range_export(void *handle, ko_cu_ptr at, size_t nbytes, int type,
                                 unsigned long long flags)
{
    ko_cu_result result = double_enter("cuMemGetHandleForAddressRange");
    struct range *range;

    if (!result && (flags || type != KO_CU_RANGE_DMA_BUF || !nbytes || (at | nbytes) % GRAIN))
        result = KO_CU_INVALID_VALUE;
    if (!result && !double_number("FAKECUDA_DMA_BUF", 0))
        result = KO_CU_NOT_SUPPORTED;
    pthread_mutex_lock(&lock);
    range = find(at);
    if (!result && (!is_base(range, at) || nbytes > range->nbytes || range->kind == HOST))
        result = KO_CU_INVALID_VALUE;
    if (!result)
        *(int *)handle =
            fcntl(range->kind == PIECE ? range->piece->fd : range->fd, F_DUPFD_CLOEXEC, 0);
    pthread_mutex_unlock(&lock);
    return result;
}

static int nflushes; /* atomic */

ko_cu_result double_flush_writes(int target, int scope)
{
    ko_cu_result result = double_enter("cuFlushGPUDirectRDMAWrites");

    if (!result && (target != KO_CU_FLUSH_CONTEXT || scope != KO_CU_FLUSH_OWNER))
        result = KO_CU_INVALID_VALUE;
    if (!result && !double_context())
        result = KO_CU_INVALID_CONTEXT;
    if (!result && !(double_number("FAKECUDA_FLUSHES", 0) & KO_CU_FLUSH_BY_HOST))
        result = KO_CU_NOT_SUPPORTED;
    if (!result)
        __atomic_fetch_add(&nflushes, 1, __ATOMIC_SEQ_CST);
    return result;
}

int fakecuda_flushes(void)
{
    return __atomic_load_n(&nflushes, __ATOMIC_SEQ_CST);
}

/* ---- pieces, and the addresses that they are mapped to --------------------------------------- */

static struct piece *piece_of(ko_cu_piece piece)
{
    return (struct piece *)(uintptr_t)piece;
}

/* Which GPU has it, is what the file is called. */
static struct piece *new_piece(int fd, size_t nbytes, bool has_descriptor)
{
    struct piece *piece = malloc(sizeof *piece);
    char link[64], name[64] = "";

    *piece =
        (struct piece){.users = 1, .fd = fd, .nbytes = nbytes, .has_descriptor = has_descriptor};
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (readlink(link, name, sizeof name - 1) < 0 ||
        sscanf(name, "/memfd:piece of %d", &piece->device) != 1)
        abort();
    return piece;
}

/* With the lock. */
static void leave_piece(struct piece *piece)
{
    if (--piece->users)
        return;
    close(piece->fd);
    free(piece);
}

ko_cu_result double_piece_create(ko_cu_piece *piece, size_t nbytes, const ko_cu_piece_kind *kind,
                                 unsigned long long flags)
{
    ko_cu_result result = double_enter("cuMemCreate");
    unsigned char *base;
    char name[32];
    int fd;

    if (!result &&
        (!double_is_gpu(kind->location.id) || !nbytes || nbytes % GRAIN || flags ||
         kind->type != KO_CU_PIECE_PINNED || kind->location.type != KO_CU_LOCATION_DEVICE))
        result = KO_CU_INVALID_VALUE;
    if (result)
        return result;
    snprintf(name, sizeof name, "piece of %d", kind->location.id);
    fd = memfd_create(name, MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)nbytes) || !(base = map(fd, nbytes))) {
        close(fd);
        return KO_CU_OUT_OF_MEMORY;
    }
    memset(base, UNSET, nbytes);
    munmap(base, nbytes);
    *piece = (uintptr_t)new_piece(fd, nbytes, kind->handle_types & KO_CU_HANDLE_DESCRIPTOR);
    return KO_CU_SUCCESS;
}

ko_cu_result double_piece_release(ko_cu_piece piece)
{
    pthread_mutex_lock(&lock);
    leave_piece(piece_of(piece));
    pthread_mutex_unlock(&lock);
    return KO_CU_SUCCESS;
}

ko_cu_result double_piece_retain(ko_cu_piece *piece, void *at)
{
    ko_cu_result result = double_enter("cuMemRetainAllocationHandle");
    struct range *range;

    pthread_mutex_lock(&lock);
    range = find((uintptr_t)at);
    if (!result && (!range || range->kind != PIECE))
        result = KO_CU_INVALID_VALUE;
    if (!result) {
        range->piece->users++;
        *piece = (uintptr_t)range->piece;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

ko_cu_result double_piece_export(void *handle, ko_cu_piece piece, int type,
                                 unsigned long long flags)
{
    ko_cu_result result = double_enter("cuMemExportToShareableHandle");

    if (result)
        return result;
    if (flags || type != KO_CU_HANDLE_DESCRIPTOR || !piece_of(piece)->has_descriptor)
        return KO_CU_INVALID_VALUE;
    *(int *)handle = fcntl(piece_of(piece)->fd, F_DUPFD_CLOEXEC, 0);
    return KO_CU_SUCCESS;
}

ko_cu_result double_piece_import(ko_cu_piece *piece, void *handle, int type)
{
    ko_cu_result result = double_enter("cuMemImportFromShareableHandle");
    const int fd = fcntl((int)(intptr_t)handle, F_DUPFD_CLOEXEC, 0);
    const off_t nbytes = lseek(fd, 0, SEEK_END);

    if (!result && (type != KO_CU_HANDLE_DESCRIPTOR || nbytes <= 0))
        result = KO_CU_INVALID_VALUE;
    if (result)
        close(fd);
    else
        *piece = (uintptr_t)new_piece(fd, (size_t)nbytes, true);
    return result;
}

ko_cu_result double_addresses_reserve(ko_cu_ptr *at, size_t nbytes, size_t alignment,
                                      ko_cu_ptr wish, unsigned long long flags)
{
    void *base = mmap(NULL, nbytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    (void)alignment;
    *at = (uintptr_t)base;
    return base == MAP_FAILED || wish || flags || nbytes % GRAIN ? KO_CU_INVALID_VALUE
                                                                 : KO_CU_SUCCESS;
}

ko_cu_result double_addresses_free(ko_cu_ptr at, size_t nbytes)
{
    return munmap((void *)(uintptr_t)at, nbytes) ? KO_CU_INVALID_VALUE : KO_CU_SUCCESS;
}

ko_cu_result double_piece_map(ko_cu_ptr at, size_t nbytes, size_t offset, ko_cu_piece piece,
                              unsigned long long flags)
{
    struct range range = {.kind = PIECE, .nbytes = nbytes, .piece = piece_of(piece)};

    if (offset || flags || nbytes != range.piece->nbytes || !double_context())
        return KO_CU_INVALID_VALUE;
    range.base =
        mmap((void *)(uintptr_t)at, nbytes, PROT_NONE, MAP_SHARED | MAP_FIXED, range.piece->fd, 0);
    if (range.base == MAP_FAILED)
        return KO_CU_INVALID_VALUE;
    range.device = range.piece->device;
    pthread_mutex_lock(&lock);
    range.piece->users++;
    enter(range);
    pthread_mutex_unlock(&lock);
    return KO_CU_SUCCESS;
}

ko_cu_result double_piece_access(ko_cu_ptr at, size_t nbytes, const ko_cu_access *access,
                                 size_t count)
{
    void *base = (void *)(uintptr_t)at;
    struct range *range;
    bool is_good = count == 1 && access->flags == KO_CU_ACCESS_READ_AND_WRITE;

    pthread_mutex_lock(&lock);
    for (size_t done = 0; is_good && done < nbytes; done += range->nbytes) {
        range = find(at + done);
        is_good =
            range && range->kind == PIECE && double_reaches(access->location.id, range->device);
        if (is_good)
            range->allowed |= 1U << access->location.id;
    }
    if (!is_good) {
        pthread_mutex_unlock(&lock);
        return KO_CU_INVALID_VALUE;
    }
    if (mprotect(base, nbytes, PROT_READ | PROT_WRITE))
        abort();
    protect(base, nbytes);
    pthread_mutex_unlock(&lock);
    return KO_CU_SUCCESS;
}

ko_cu_result double_piece_unmap(ko_cu_ptr at, size_t nbytes)
{
    struct range *range;
    size_t done = 0;

    pthread_mutex_lock(&lock);
    while (done < nbytes && (range = find(at + done)) && range->kind == PIECE) {
        struct piece *piece = range->piece;

        done += range->nbytes;
        take_out(range);
        leave_piece(piece);
    }
    pthread_mutex_unlock(&lock);
    if (done == nbytes)
        mmap((void *)(uintptr_t)at, nbytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    return done == nbytes ? KO_CU_SUCCESS : KO_CU_INVALID_VALUE;
}
