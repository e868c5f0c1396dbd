/* SPDX-License-Identifier: MIT
 *
 * What goes over a socket: how many pieces there are, the length of each, then a byte for each with
 * its descriptor beside it.
 */
#include "gpu_pieces.h"

#include "poller.h"
#include "socket.h"
#include "status.h"
#include "unix_socket.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- one's own ------------------------------------------------------------------------------- */

static bool add_piece(const struct ko_cuda *cuda, ko_cu_ptr at, uint64_t nbytes,
                      struct ko_gpu_pieces *pieces)
{
    ko_cu_piece piece;
    ko_cu_result result;
    int fd;

    if (pieces->n == KO_GPU_MOST_PIECES || cuda->piece_retain(&piece, (void *)(uintptr_t)at))
        return false;
    result = cuda->piece_export(&fd, piece, KO_CU_HANDLE_DESCRIPTOR, 0);
    (void)cuda->piece_release(piece);
    if (result)
        return false;
    pieces->nbytes[pieces->n] = nbytes;
    pieces->fds[pieces->n++] = fd;
    return true;
}

struct ko_gpu_pieces *ko_gpu_pieces_export(const struct ko_cuda *cuda, ko_cu_ptr base,
                                           uint64_t nbytes, uint64_t *total, char *name)
{
    struct ko_gpu_pieces *pieces = ko_alloc(sizeof *pieces, "a GPU's memory in pieces");
    ko_cu_ptr at = base, found;
    bool is_shared = pieces;
    size_t length;

    if (!pieces)
        return NULL;
    pieces->listener = -1;
    while (is_shared && at - base < nbytes) {
        is_shared = !cuda->address_range(&found, &length, at) && found == at &&
                    add_piece(cuda, at, length, pieces);
        at += length;
    }
    if (is_shared && !ko_unix_listen(&pieces->listener, name)) {
        *total = at - base;
        return pieces;
    }
    ko_gpu_pieces_free(pieces);
    return NULL;
}

void ko_gpu_pieces_free(struct ko_gpu_pieces *pieces)
{
    if (!pieces)
        return;
    for (int i = 0; i < pieces->n; i++)
        close(pieces->fds[i]);
    if (pieces->listener >= 0)
        close(pieces->listener);
    free(pieces);
}

static int send_all(const struct ko_gpu_pieces *pieces, int fd, const ko_deadline *deadline)
{
    const uint64_t n = (uint64_t)pieces->n;
    int err = ko_socket_send_all(fd, &n, sizeof n, deadline);

    if (!err)
        err = ko_socket_send_all(fd, pieces->nbytes, n * sizeof *pieces->nbytes, deadline);
    for (int i = 0; i < pieces->n && !err;) {
        if (ko_socket_send_with(fd, "", 1, pieces->fds[i]) == 1)
            i++;
        else if (errno == EAGAIN || errno == EINTR)
            err = ko_socket_wait(fd, KO_POLL_OUT, deadline);
        else
            err = ko_fail_errno(errno, "handing over a descriptor of a GPU's memory");
    }
    return err;
}

/* The next connection of this user's. */
static int accept_one(int listener, const ko_deadline *deadline, int *fd)
{
    int err = ko_socket_accept(listener, fd);

    while (err == KO_AGAIN) {
        err = ko_socket_wait(listener, KO_POLL_IN, deadline);
        if (!err)
            err = ko_socket_accept(listener, fd);
    }
    return err;
}

int ko_gpu_pieces_serve(struct ko_gpu_pieces *pieces, int nprocesses, const ko_deadline *deadline)
{
    int fd, err = KOLO_OK;

    for (int served = 0; served < nprocesses && !err;) {
        err = accept_one(pieces->listener, deadline, &fd);
        if (err)
            break;
        if (!ko_unix_check_user(fd)) {
            err = send_all(pieces, fd, deadline);
            if (err != KOLO_E_TIMEOUT) /* who hangs up cannot use them, and tells all others */
                err = KOLO_OK;
            served++;
        }
        close(fd);
    }
    return err;
}

/* ---- another process's ----------------------------------------------------------------------- */

static int receive_descriptor(int fd, const ko_deadline *deadline, int *got)
{
    char byte;
    ssize_t n;
    int err;

    *got = -1;
    for (;;) {
        n = ko_socket_recv_with(fd, &byte, 1, got);
        if (n == 1 && *got >= 0)
            return KOLO_OK;
        if (n >= 0)
            return ko_fail(KOLO_E_PROTOCOL, "a descriptor of a GPU's memory did not come");
        if (errno != EAGAIN && errno != EINTR)
            return ko_fail_errno(errno, "receiving a descriptor of a GPU's memory");
        err = ko_socket_wait(fd, KO_POLL_IN, deadline);
        if (err)
            return err;
    }
}

static int map_piece(const struct ko_cuda *cuda, int fd, ko_cu_ptr at, uint64_t nbytes)
{
    ko_cu_piece piece;
    ko_cu_result result = cuda->piece_import(&piece, (void *)(intptr_t)fd, KO_CU_HANDLE_DESCRIPTOR);

    if (!result) {
        result = cuda->piece_map(at, nbytes, 0, piece, 0);
        (void)cuda->piece_release(piece); /* what is mapped stays */
    }
    return ko_cuda_check(cuda, result, "a piece of another process's memory cannot be mapped");
}

static int map_all(const struct ko_cuda *cuda, int fd, const struct ko_gpu_pieces *pieces,
                   const ko_deadline *deadline, ko_cu_ptr at, uint64_t *mapped)
{
    int got, err = KOLO_OK;

    for (int i = 0; i < pieces->n && !err; i++) {
        err = receive_descriptor(fd, deadline, &got);
        if (err)
            break;
        err = map_piece(cuda, got, at + *mapped, pieces->nbytes[i]);
        close(got);
        *mapped += err ? 0 : pieces->nbytes[i];
    }
    return err;
}

static int allow_access(const struct ko_cuda *cuda, ko_cu_ptr at, uint64_t total)
{
    ko_cu_access access = {{KO_CU_LOCATION_DEVICE, 0}, KO_CU_ACCESS_READ_AND_WRITE};
    ko_cu_result result = cuda->context_device(&access.location.id);

    if (!result)
        result = cuda->piece_access(at, total, &access, 1);
    return ko_cuda_check(cuda, result, "another process's memory cannot be used");
}

static int receive_lengths(int fd, uint64_t total, const ko_deadline *deadline,
                           struct ko_gpu_pieces *pieces)
{
    uint64_t n, sum = 0;
    int err = ko_socket_recv_all(fd, &n, sizeof n, deadline);

    if (err)
        return err;
    if (n > KO_GPU_MOST_PIECES)
        return ko_fail(KOLO_E_PROTOCOL, "another process's memory is said to have %llu pieces",
                       (unsigned long long)n);
    pieces->n = (int)n;
    err = ko_socket_recv_all(fd, pieces->nbytes, n * sizeof *pieces->nbytes, deadline);
    for (uint64_t i = 0; i < n && !err; i++)
        err = __builtin_add_overflow(sum, pieces->nbytes[i], &sum) ? KOLO_E_PROTOCOL : KOLO_OK;
    if (err || sum == total)
        return err;
    return ko_fail(KOLO_E_PROTOCOL, "another process's memory is not as long as its pieces");
}

static int import_from(const struct ko_cuda *cuda, int fd, uint64_t total,
                       const ko_deadline *deadline, ko_cu_ptr *at)
{
    struct ko_gpu_pieces pieces;
    uint64_t mapped = 0;
    int err = receive_lengths(fd, total, deadline, &pieces);

    if (!err)
        err = ko_cuda_check(cuda, cuda->addresses_reserve(at, total, 0, 0, 0),
                            "there are no addresses for another process's memory");
    if (err)
        return err;
    err = map_all(cuda, fd, &pieces, deadline, *at, &mapped);
    if (!err)
        err = allow_access(cuda, *at, total);
    if (!err)
        return KOLO_OK;
    if (mapped)
        (void)cuda->piece_unmap(*at, mapped);
    (void)cuda->addresses_free(*at, total);
    return err;
}

int ko_gpu_pieces_import(const struct ko_cuda *cuda, const char *name, uint64_t total,
                         const ko_deadline *deadline, ko_cu_ptr *at)
{
    int fd, err = ko_unix_connect(name, &fd);

    if (err)
        return err == KO_AGAIN ? ko_fail(KOLO_E_SYSTEM, "too many ask for a GPU's memory") : err;
    err = import_from(cuda, fd, total, deadline, at);
    close(fd);
    return err;
}

void ko_gpu_pieces_unmap(const struct ko_cuda *cuda, ko_cu_ptr at, uint64_t total)
{
    (void)cuda->piece_unmap(at, total);
    (void)cuda->addresses_free(at, total);
}
