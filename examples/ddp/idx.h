/* SPDX-License-Identifier: MIT
 *
 * idx.h: reads files of the IDX format (that of MNIST), gzipped or not: two zero bytes, the type
 * (8: bytes), the number of dimensions, each dimension as a big-endian 32-bit number, the elements.
 */
#ifndef TRAIN_IDX_H
#define TRAIN_IDX_H

#include <stddef.h>
#include <stdint.h>

#define IDX_MAX_DIMS 3
#define IDX_MAX_ITEMS \
    1000000 /* of the first dimension: keeps a damaged header from taking memory */

/* What a file must be. dims[0] = 0 takes any number of items from 1 to IDX_MAX_ITEMS. */
struct idx_shape {
    unsigned ndims;
    uint32_t dims[IDX_MAX_DIMS];
};

/* Reads a whole file of bytes. *items is its first dimension; *bytes is the caller's to free. Any
 * difference from shape, a file that ends early or goes on too long is an error that names path. */
int idx_read(const char *path, const struct idx_shape *shape, size_t *items, uint8_t **bytes);

#endif
