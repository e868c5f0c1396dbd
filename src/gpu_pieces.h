/* SPDX-License-Identifier: MIT
 *
 * gpu_pieces.h: GPU memory whose addresses were reserved first and filled with pieces later, as
 * PyTorch's expandable segments are: other processes reach it by a descriptor of each piece, which
 * goes over a Unix socket. With the GPU's context.
 */
#ifndef KO_GPU_PIECES_H
#define KO_GPU_PIECES_H

#include "cuda_driver.h"
#include "unix_socket.h"

enum { KO_GPU_MOST_PIECES = 256 };

/* Pieces that lie one behind the other, by numbers that the driver gives no others. */
struct ko_gpu_span {
    uint64_t base, nbytes;
    int n;
    struct {
        uint64_t id, at;
    } pieces[KO_GPU_MOST_PIECES];
};

/* What there is now, from the piece in which a buffer of nbytes begins to that in which it ends;
 * false: no pieces, or too many. */
bool ko_gpu_span_find(const struct ko_cuda *cuda, ko_cu_ptr at, uint64_t nbytes,
                      struct ko_gpu_span *span);

static inline bool ko_gpu_span_has(const struct ko_gpu_span *span, ko_cu_ptr at, uint64_t nbytes)
{
    return span->base <= at && at - span->base <= span->nbytes &&
           nbytes <= span->nbytes - (at - span->base);
}

/* Pieces of it that are still where they were. */
int ko_gpu_span_left(const struct ko_cuda *cuda, const struct ko_gpu_span *span);

/* Pieces, and a socket from which they can be had. */
struct ko_gpu_pieces {
    int listener, n;
    uint64_t nbytes[KO_GPU_MOST_PIECES];
    int fds[KO_GPU_MOST_PIECES];
};

/* name is of KO_UNIX_NAME bytes. NULL without a text if these pieces may not be shared. */
struct ko_gpu_pieces *ko_gpu_pieces_export(const struct ko_cuda *cuda,
                                           const struct ko_gpu_span *span, char *name);

/* Closes the descriptors. NULL is allowed. */
void ko_gpu_pieces_free(struct ko_gpu_pieces *pieces);

/* Hands them to a process that has connected. */
int ko_gpu_pieces_hand(const struct ko_gpu_pieces *pieces, int fd, const ko_deadline *deadline);

/* Hands them to as many processes as that. look may be NULL. */
int ko_gpu_pieces_serve(struct ko_gpu_pieces *pieces, int nprocesses, const ko_deadline *deadline,
                        ko_unix_look *look, void *owner);

/* Gets another process's pieces, which are total bytes, and gives them addresses here. */
int ko_gpu_pieces_import(const struct ko_cuda *cuda, const char *name, uint64_t total,
                         const ko_deadline *deadline, ko_cu_ptr *at);

/* The same bit by bit, without waiting: step is KO_AGAIN until it has them all, KOLO_E_PEER_LOST if
 * they are not handed over any more. free takes back what has not come whole; NULL is allowed. */
struct ko_gpu_import;
int ko_gpu_import_begin(const char *name, uint64_t total, struct ko_gpu_import **import);
int ko_gpu_import_step(const struct ko_cuda *cuda, struct ko_gpu_import *import, ko_cu_ptr *at);
void ko_gpu_import_free(const struct ko_cuda *cuda, struct ko_gpu_import *import);

/* The end of what was imported. */
void ko_gpu_pieces_unmap(const struct ko_cuda *cuda, ko_cu_ptr at, uint64_t total);

#endif
