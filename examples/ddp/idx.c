/* SPDX-License-Identifier: MIT
 *
 * zlib reads gzipped and plain files alike. The header is checked field by field before memory is
 * taken; reading one byte past the elements finds trailing bytes and makes zlib compare its
 * checksum.
 */
#include "idx.h"

#include "failure.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define TYPE_UNSIGNED_BYTE 8

static int read_exactly(gzFile file, const char *path, void *buffer, size_t nbytes)
{
    size_t done = 0;

    while (done < nbytes) {
        size_t want = nbytes - done < (1u << 30) ? nbytes - done : 1u << 30;
        int got = gzread(file, (char *)buffer + done, (unsigned)want);
        int code;

        if (got < 0)
            return train_fail("%s is damaged: %s", path, gzerror(file, &code));
        if (got == 0)
            return train_fail("%s is truncated: it ends %zu bytes early", path, nbytes - done);
        done += (size_t)got;
    }
    return TRAIN_OK;
}

static int check_end(gzFile file, const char *path)
{
    char extra;
    int code;
    int got = gzread(file, &extra, 1);

    if (got > 0)
        return train_fail("%s has bytes after its last element", path);
    if (got < 0)
        return train_fail("%s is damaged: %s", path, gzerror(file, &code));
    (void)gzerror(file, &code);
    if (code == Z_BUF_ERROR)
        return train_fail("%s is truncated: its gzip trailer is missing", path);
    return TRAIN_OK;
}

static uint32_t big_endian(const uint8_t bytes[4])
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static int check_magic(const char *path, const uint8_t magic[4], unsigned ndims)
{
    if (magic[0] != 0 || magic[1] != 0)
        return train_fail("%s is no IDX file: it begins with %02x %02x instead of 00 00", path,
                          magic[0], magic[1]);
    if (magic[2] != TYPE_UNSIGNED_BYTE)
        return train_fail("%s has elements of type 0x%02x; only bytes (0x08) are known", path,
                          magic[2]);
    if (magic[3] != ndims)
        return train_fail("%s has %u dimensions instead of %u", path, magic[3], ndims);
    return TRAIN_OK;
}

/* *items and the bytes of one item. */
static int read_header(gzFile file, const char *path, const struct idx_shape *shape, size_t *items,
                       size_t *item_nbytes)
{
    uint8_t field[4];
    size_t nbytes = 1;
    int err = read_exactly(file, path, field, sizeof field);

    if (!err)
        err = check_magic(path, field, shape->ndims);
    for (unsigned i = 0; i < shape->ndims && !err; i++) {
        err = read_exactly(file, path, field, sizeof field);
        if (err)
            break;
        uint32_t dim = big_endian(field);
        if (i > 0 || shape->dims[0] != 0) {
            if (dim != shape->dims[i])
                return train_fail("%s has dimension %u = %u instead of %u", path, i, dim,
                                  shape->dims[i]);
        } else if (dim < 1 || dim > IDX_MAX_ITEMS) {
            return train_fail("%s has %u items; 1 to %d are possible", path, dim, IDX_MAX_ITEMS);
        }
        if (i == 0)
            *items = dim;
        else
            nbytes *= dim;
    }
    *item_nbytes = nbytes;
    return err;
}

int idx_read(const char *path, const struct idx_shape *shape, size_t *items, uint8_t **bytes)
{
    size_t count = 0, item_nbytes = 0;
    uint8_t *buffer = NULL;
    gzFile file = gzopen(path, "rb");
    int err;

    if (!file)
        return train_fail("cannot open %s: %s", path, strerror(errno));
    gzbuffer(file, 1u << 18);
    err = read_header(file, path, shape, &count, &item_nbytes);
    if (err)
        goto close_file;
    buffer = malloc(count * item_nbytes);
    if (!buffer) {
        err = train_fail("no memory for the %zu bytes of %s", count * item_nbytes, path);
        goto close_file;
    }
    err = read_exactly(file, path, buffer, count * item_nbytes);
    if (!err)
        err = check_end(file, path);
    if (err)
        goto free_buffer;
    gzclose(file);
    *items = count;
    *bytes = buffer;
    return TRAIN_OK;

free_buffer:
    free(buffer);
close_file:
    gzclose(file);
    return err;
}
