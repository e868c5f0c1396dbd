/* SPDX-License-Identifier: MIT
 *
 * Memory in pieces, which are files, and the addresses that they are mapped to.
 */
#include "ranges.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct double_piece *piece_of(ko_cu_piece piece)
{
    return (struct double_piece *)(uintptr_t)piece;
}

/* Which GPU has it, is what the file is called. */
static struct double_piece *new_piece(int fd, size_t nbytes, bool has_descriptor)
{
    struct double_piece *piece = malloc(sizeof *piece);
    char link[64], name[64] = "";

    *piece = (struct double_piece){
        .users = 1, .fd = fd, .nbytes = nbytes, .has_descriptor = has_descriptor};
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (readlink(link, name, sizeof name - 1) < 0 ||
        sscanf(name, "/memfd:piece of %d", &piece->device) != 1)
        abort();
    return piece;
}

/* With the lock. */
static void leave_piece(struct double_piece *piece)
{
    if (--piece->users)
        return;
    close(piece->fd);
    free(piece);
}

static bool is_right(const ko_cu_piece_kind *kind)
{
    return double_is_gpu(kind->location.id) && kind->type == KO_CU_PIECE_PINNED &&
           kind->location.type == KO_CU_LOCATION_DEVICE;
}

ko_cu_result double_piece_grain(size_t *nbytes, const ko_cu_piece_kind *kind, int which)
{
    *nbytes = DOUBLE_GRAIN;
    return is_right(kind) && which == KO_CU_GRAIN_LEAST ? KO_CU_SUCCESS : KO_CU_INVALID_VALUE;
}

ko_cu_result double_piece_create(ko_cu_piece *piece, size_t nbytes, const ko_cu_piece_kind *kind,
                                 unsigned long long flags)
{
    unsigned char *base;
    char name[32];
    int fd;

    if (!is_right(kind) || !nbytes || nbytes % DOUBLE_GRAIN || flags)
        return KO_CU_INVALID_VALUE;
    if (!double_has_room(nbytes))
        return KO_CU_OUT_OF_MEMORY;
    snprintf(name, sizeof name, "piece of %d", kind->location.id);
    fd = memfd_create(name, MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)nbytes) || !(base = double_map(fd, nbytes))) {
        close(fd);
        return KO_CU_OUT_OF_MEMORY;
    }
    double_unset(base, nbytes);
    munmap(base, nbytes);
    *piece = (uintptr_t)new_piece(fd, nbytes, kind->handle_types & KO_CU_HANDLE_DESCRIPTOR);
    return KO_CU_SUCCESS;
}

ko_cu_result double_piece_release(ko_cu_piece piece)
{
    double_ranges_lock();
    leave_piece(piece_of(piece));
    double_ranges_unlock();
    return KO_CU_SUCCESS;
}

ko_cu_result double_piece_retain(ko_cu_piece *piece, void *at)
{
    struct double_range *range;

    double_ranges_lock();
    range = double_range_at((uintptr_t)at);
    if (range && range->kind != DOUBLE_PIECE)
        range = NULL;
    if (range) {
        range->piece->users++;
        *piece = (uintptr_t)range->piece;
    }
    double_ranges_unlock();
    return range ? KO_CU_SUCCESS : KO_CU_INVALID_VALUE;
}

ko_cu_result double_piece_export(void *handle, ko_cu_piece piece, int type,
                                 unsigned long long flags)
{
    if (flags || type != KO_CU_HANDLE_DESCRIPTOR || !piece_of(piece)->has_descriptor)
        return KO_CU_INVALID_VALUE;
    *(int *)handle = fcntl(piece_of(piece)->fd, F_DUPFD_CLOEXEC, 0);
    return KO_CU_SUCCESS;
}

ko_cu_result double_piece_import(ko_cu_piece *piece, void *handle, int type)
{
    const int fd = fcntl((int)(intptr_t)handle, F_DUPFD_CLOEXEC, 0);
    const off_t nbytes = lseek(fd, 0, SEEK_END);

    if (type != KO_CU_HANDLE_DESCRIPTOR || nbytes <= 0) {
        close(fd);
        return KO_CU_INVALID_VALUE;
    }
    *piece = (uintptr_t)new_piece(fd, (size_t)nbytes, true);
    return KO_CU_SUCCESS;
}

ko_cu_result double_addresses_reserve(ko_cu_ptr *at, size_t nbytes, size_t alignment,
                                      ko_cu_ptr wish, unsigned long long flags)
{
    void *base = mmap(NULL, nbytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    (void)alignment;
    *at = (uintptr_t)base;
    return base == MAP_FAILED || wish || flags || nbytes % DOUBLE_GRAIN ? KO_CU_INVALID_VALUE
                                                                        : KO_CU_SUCCESS;
}

ko_cu_result double_addresses_free(ko_cu_ptr at, size_t nbytes)
{
    return munmap((void *)(uintptr_t)at, nbytes) ? KO_CU_INVALID_VALUE : KO_CU_SUCCESS;
}

ko_cu_result double_piece_map(ko_cu_ptr at, size_t nbytes, size_t offset, ko_cu_piece piece,
                              unsigned long long flags)
{
    struct double_range range = {.kind = DOUBLE_PIECE, .nbytes = nbytes, .piece = piece_of(piece)};

    if (offset || flags || nbytes != range.piece->nbytes || !double_context())
        return KO_CU_INVALID_VALUE;
    range.base =
        mmap((void *)(uintptr_t)at, nbytes, PROT_NONE, MAP_SHARED | MAP_FIXED, range.piece->fd, 0);
    if (range.base == MAP_FAILED)
        return KO_CU_INVALID_VALUE;
    range.device = range.piece->device;
    double_ranges_lock();
    range.piece->users++;
    double_range_enter(range);
    double_ranges_unlock();
    return KO_CU_SUCCESS;
}

ko_cu_result double_piece_access(ko_cu_ptr at, size_t nbytes, const ko_cu_access *access,
                                 size_t count)
{
    void *base = (void *)(uintptr_t)at;
    struct double_range *range;
    bool is_good = count == 1 && access->flags == KO_CU_ACCESS_READ_AND_WRITE;

    double_ranges_lock();
    for (size_t done = 0; is_good && done < nbytes; done += range->nbytes) {
        range = double_range_at(at + done);
        is_good = range && range->kind == DOUBLE_PIECE && range->nbytes <= nbytes - done &&
                  double_reaches(access->location.id, range->device);
        if (is_good)
            range->allowed |= 1U << access->location.id;
    }
    if (!is_good) {
        double_ranges_unlock();
        return KO_CU_INVALID_VALUE;
    }
    if (mprotect(base, nbytes, PROT_READ | PROT_WRITE))
        abort();
    double_protect(base, nbytes);
    double_ranges_unlock();
    return KO_CU_SUCCESS;
}

ko_cu_result double_piece_unmap(ko_cu_ptr at, size_t nbytes)
{
    struct double_range *range;
    size_t done = 0;

    double_ranges_lock();
    while (done < nbytes && (range = double_range_at(at + done)) && range->kind == DOUBLE_PIECE) {
        struct double_piece *piece = range->piece;

        done += range->nbytes;
        double_range_take_out(range);
        leave_piece(piece);
    }
    double_ranges_unlock();
    if (done == nbytes)
        mmap((void *)(uintptr_t)at, nbytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    return done == nbytes ? KO_CU_SUCCESS : KO_CU_INVALID_VALUE;
}
