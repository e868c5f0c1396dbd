/* SPDX-License-Identifier: MIT
 *
 * gpu_pieces.h: GPU memory whose addresses were reserved first and filled with pieces later, as
 * PyTorch's expandable segments are: other processes reach it by a descriptor of each piece, which
 * goes over a Unix socket. With the GPU's context.
 */
#ifndef KO_GPU_PIECES_H
#define KO_GPU_PIECES_H

#include "clock.h"
#include "cuda_driver.h"

enum { KO_GPU_MOST_PIECES = 256 };

/* Pieces that lie one behind the other, and a socket from which they can be had. */
struct ko_gpu_pieces {
    int listener, n;
    uint64_t nbytes[KO_GPU_MOST_PIECES];
    int fds[KO_GPU_MOST_PIECES];
};

/* Of the piece that begins at base to the one in which byte nbytes - 1 lies; *total is their
 * length. name is of KO_UNIX_NAME bytes. NULL without a text if these are no pieces, or may not be
 * shared. */
struct ko_gpu_pieces *ko_gpu_pieces_export(const struct ko_cuda *cuda, ko_cu_ptr base,
                                           uint64_t nbytes, uint64_t *total, char *name);

/* Closes the descriptors. NULL is allowed. */
void ko_gpu_pieces_free(struct ko_gpu_pieces *pieces);

/* Hands them to as many other processes. */
int ko_gpu_pieces_serve(struct ko_gpu_pieces *pieces, int nprocesses, const ko_deadline *deadline);

/* Gets another process's pieces, which are total bytes, and gives them addresses here. */
int ko_gpu_pieces_import(const struct ko_cuda *cuda, const char *name, uint64_t total,
                         const ko_deadline *deadline, ko_cu_ptr *at);

/* The end of what was imported. */
void ko_gpu_pieces_unmap(const struct ko_cuda *cuda, ko_cu_ptr at, uint64_t total);

#endif
