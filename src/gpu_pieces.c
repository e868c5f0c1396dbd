/* SPDX-License-Identifier: MIT
 *
 * What goes over a socket: how many pieces there are, the length of each, then a byte for each with
 * its descriptor beside it.
 */
#include "gpu_pieces.h"

#include "poller.h"
#include "socket.h"
#include "status.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- where they are -------------------------------------------------------------------------- */

bool ko_gpu_span_find(const struct ko_cuda *cuda, ko_cu_ptr at, uint64_t nbytes,
                      struct ko_gpu_span *span)
{
    const ko_cu_ptr end = at + nbytes;
    ko_cu_ptr found;
    size_t length;

    span->n = 0;
    if (cuda->address_range(&found, &length, at))
        return false;
    span->base = at = found;
    do {
        if (span->n == KO_GPU_MOST_PIECES || cuda->address_range(&found, &length, at) ||
            found != at ||
            cuda->pointer_attribute(&span->pieces[span->n].id, KO_CU_POINTER_BUFFER_ID, at))
            return false;
        span->pieces[span->n++].at = at;
        at += length;
    } while (at < end);
    span->nbytes = at - span->base;
    return true;
}

int ko_gpu_span_left(const struct ko_cuda *cuda, const struct ko_gpu_span *span)
{
    int left = 0;
    uint64_t id;

    for (int i = 0; i < span->n; i++)
        left += !cuda->pointer_attribute(&id, KO_CU_POINTER_BUFFER_ID, span->pieces[i].at) &&
                id == span->pieces[i].id;
    return left;
}

/* ---- one's own ------------------------------------------------------------------------------- */

static bool add_piece(const struct ko_cuda *cuda, ko_cu_ptr at, uint64_t nbytes,
                      struct ko_gpu_pieces *pieces)
{
    ko_cu_piece piece;
    ko_cu_result result;
    int fd;

    if (cuda->piece_retain(&piece, (void *)(uintptr_t)at))
        return false;
    result = cuda->piece_export(&fd, piece, KO_CU_HANDLE_DESCRIPTOR, 0);
    (void)cuda->piece_release(piece);
    if (result)
        return false;
    pieces->nbytes[pieces->n] = nbytes;
    pieces->fds[pieces->n++] = fd;
    return true;
}

struct ko_gpu_pieces *ko_gpu_pieces_export(const struct ko_cuda *cuda,
                                           const struct ko_gpu_span *span, char *name)
{
    struct ko_gpu_pieces *pieces = ko_alloc(sizeof *pieces, "a GPU's memory in pieces");
    bool is_shared = pieces;

    if (!pieces)
        return NULL;
    pieces->listener = -1;
    for (int i = 0; i < span->n && is_shared; i++) {
        const ko_cu_ptr at = span->pieces[i].at;
        const ko_cu_ptr end = i + 1 < span->n ? span->pieces[i + 1].at : span->base + span->nbytes;

        is_shared = add_piece(cuda, at, end - at, pieces);
    }
    if (is_shared && !ko_unix_listen(&pieces->listener, name))
        return pieces;
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

int ko_gpu_pieces_hand(const struct ko_gpu_pieces *pieces, int fd, const ko_deadline *deadline)
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

int ko_gpu_pieces_serve(struct ko_gpu_pieces *pieces, int nprocesses, const ko_deadline *deadline,
                        ko_unix_look *look, void *owner)
{
    int fd, err = KOLO_OK;

    for (int served = 0; served < nprocesses && !err;) {
        err = ko_unix_accept(pieces->listener, deadline, look, owner, &fd);
        if (err == KOLO_E_TIMEOUT)
            err =
                ko_fail(err, "%d of %d processes have come within %d ms for what names GPU memory",
                        served, nprocesses, deadline->timeout_ms);
        if (err)
            break;
        if (!ko_unix_check_user(fd)) {
            err = ko_gpu_pieces_hand(pieces, fd, deadline);
            if (err != KOLO_E_TIMEOUT) /* who hangs up cannot use them, and tells all others */
                err = KOLO_OK;
            served++;
        }
        close(fd);
    }
    return err;
}

/* ---- another process's ----------------------------------------------------------------------- */

/* What is being got, as far as it has come. */
struct ko_gpu_import {
    int fd;
    uint64_t total;
    size_t nread; /* of what follows, up to the pieces' last length */
    struct {
        uint64_t n, nbytes[KO_GPU_MOST_PIECES];
    } head;
    ko_cu_ptr at; /* 0: there are no addresses yet */
    uint64_t nmapped, mapped;
};

int ko_gpu_import_begin(const char *name, uint64_t total, struct ko_gpu_import **import_out)
{
    struct ko_gpu_import *import = ko_alloc(sizeof *import, "another process's memory");
    int err = import ? ko_unix_connect(name, &import->fd) : KOLO_E_NOMEM;

    if (err) {
        free(import);
        return err == KO_AGAIN ? ko_fail(KOLO_E_SYSTEM, "too many ask for a GPU's memory") : err;
    }
    import->total = total;
    *import_out = import;
    return KOLO_OK;
}

/* Up to nbytes, and a descriptor if got is not NULL. */
static int receive(int fd, void *data, size_t nbytes, int *got, size_t *nread)
{
    int stray = -1;
    const ssize_t n = ko_socket_recv_with(fd, data, nbytes, got ? got : &stray);
    const int error = errno;

    if (stray >= 0)
        close(stray);
    *nread = n > 0 ? (size_t)n : 0;
    if (n > 0)
        return KOLO_OK;
    if (!n || error == ECONNRESET)
        return ko_fail(KOLO_E_PEER_LOST, "who has a GPU's memory hands it over no more");
    return error == EAGAIN || error == EINTR
               ? KO_AGAIN
               : ko_fail_errno(error, "receiving what a GPU's memory is");
}

static int receive_head(struct ko_gpu_import *import, size_t end)
{
    size_t nread;
    int err = KOLO_OK;

    while (import->nread < end && !err) {
        err = receive(import->fd, (char *)&import->head + import->nread, end - import->nread, NULL,
                      &nread);
        import->nread += nread;
    }
    return err;
}

static int check_head(const struct ko_gpu_import *import)
{
    uint64_t sum = 0;
    bool is_right = true;

    for (uint64_t i = 0; i < import->head.n && is_right; i++)
        is_right = !__builtin_add_overflow(sum, import->head.nbytes[i], &sum);
    return is_right && sum == import->total
               ? KOLO_OK
               : ko_fail(KOLO_E_PROTOCOL, "another process's memory is not as long as its pieces");
}

static int learn_lengths(struct ko_gpu_import *import)
{
    int err = receive_head(import, sizeof import->head.n);

    if (err)
        return err;
    if (import->head.n > KO_GPU_MOST_PIECES)
        return ko_fail(KOLO_E_PROTOCOL, "another process's memory is said to have %llu pieces",
                       (unsigned long long)import->head.n);
    err = receive_head(import, (1 + import->head.n) * sizeof import->head.n);
    return err ? err : check_head(import);
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

static int map_next(const struct ko_cuda *cuda, struct ko_gpu_import *import)
{
    const uint64_t nbytes = import->head.nbytes[import->nmapped];
    int got = -1;
    size_t nread;
    char byte;
    int err = receive(import->fd, &byte, 1, &got, &nread);

    if (err)
        return err;
    if (got < 0)
        return ko_fail(KOLO_E_PROTOCOL, "a descriptor of a GPU's memory did not come");
    err = map_piece(cuda, got, import->at + import->mapped, nbytes);
    close(got);
    import->mapped += err ? 0 : nbytes;
    import->nmapped += !err;
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

int ko_gpu_import_step(const struct ko_cuda *cuda, struct ko_gpu_import *import, ko_cu_ptr *at)
{
    int err = import->at ? KOLO_OK : learn_lengths(import);

    if (!err && !import->at)
        err = ko_cuda_check(cuda, cuda->addresses_reserve(&import->at, import->total, 0, 0, 0),
                            "there are no addresses for another process's memory");
    while (!err && import->nmapped < import->head.n)
        err = map_next(cuda, import);
    if (!err)
        err = allow_access(cuda, import->at, import->total);
    if (err)
        return err;
    *at = import->at;
    import->at = 0; /* it is the caller's */
    return KOLO_OK;
}

void ko_gpu_import_free(const struct ko_cuda *cuda, struct ko_gpu_import *import)
{
    if (!import)
        return;
    if (import->at && import->mapped)
        (void)cuda->piece_unmap(import->at, import->mapped);
    if (import->at)
        (void)cuda->addresses_free(import->at, import->total);
    close(import->fd);
    free(import);
}

int ko_gpu_pieces_import(const struct ko_cuda *cuda, const char *name, uint64_t total,
                         const ko_deadline *deadline, ko_cu_ptr *at)
{
    struct ko_gpu_import *import = NULL;
    int err = ko_gpu_import_begin(name, total, &import);

    if (err)
        return err;
    while ((err = ko_gpu_import_step(cuda, import, at)) == KO_AGAIN) {
        err = ko_socket_wait(import->fd, KO_POLL_IN, deadline);
        if (err)
            break;
    }
    ko_gpu_import_free(cuda, import);
    return err;
}

void ko_gpu_pieces_unmap(const struct ko_cuda *cuda, ko_cu_ptr at, uint64_t total)
{
    (void)cuda->piece_unmap(at, total);
    (void)cuda->addresses_free(at, total);
}
