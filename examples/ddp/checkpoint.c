/* SPDX-License-Identifier: MIT
 *
 * The file's image is built, and checked, in memory; its size is fixed by the network, so a length
 * found in the file is never trusted.
 */
#include "checkpoint.h"

#include "failure.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#define VERSION 1

static const char magic[8] = "kolotrn\n";

enum { STATE_MEMBERS = sizeof(struct run_state) / sizeof(uint64_t) };

/* Writes or reads a file's image from its start. */
struct cursor {
    uint8_t *at;
};

static void put(struct cursor *cursor, uint64_t value, int nbytes)
{
    for (int i = 0; i < nbytes; i++)
        *cursor->at++ = (uint8_t)(value >> 8 * i);
}

static uint64_t get(struct cursor *cursor, int nbytes)
{
    uint64_t value = 0;

    for (int i = 0; i < nbytes; i++)
        value |= (uint64_t)*cursor->at++ << 8 * i;
    return value;
}

static void put_floats(struct cursor *cursor, const float *values, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        put(cursor, bits, 4);
    }
}

static void get_floats(struct cursor *cursor, float *values, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t bits = (uint32_t)get(cursor, 4);
        memcpy(&values[i], &bits, sizeof bits);
    }
}

static size_t image_nbytes(const struct model *model)
{
    return sizeof magic + 4 + 4 + sizeof(struct run_state) +
           MODEL_NPARAMS * sizeof model_shapes[0].dims + 2 * model->count * sizeof(float) + 4;
}

static uint32_t checksum(const uint8_t *image, size_t nbytes)
{
    return (uint32_t)crc32_z(crc32_z(0, NULL, 0), image, nbytes);
}

static void fill_image(uint8_t *image, const struct run_state *state, const struct model *model,
                       const struct sgd *sgd)
{
    struct cursor cursor = {image + sizeof magic};
    uint64_t members[STATE_MEMBERS];

    memcpy(image, magic, sizeof magic);
    put(&cursor, VERSION, 4);
    put(&cursor, MODEL_NPARAMS, 4);
    memcpy(members, state, sizeof members);
    for (int i = 0; i < STATE_MEMBERS; i++)
        put(&cursor, members[i], 8);
    for (int i = 0; i < MODEL_NPARAMS; i++)
        for (int k = 0; k < MODEL_MAX_DIMS; k++)
            put(&cursor, model_shapes[i].dims[k], 4);
    put_floats(&cursor, model->host_values, model->count);
    put_floats(&cursor, sgd->host_velocity, sgd->count);
    put(&cursor, checksum(image, (size_t)(cursor.at - image)), 4);
}

/* ---- writing --------------------------------------------------------------------------------- */

static int write_all(int fd, const uint8_t *bytes, size_t nbytes)
{
    while (nbytes > 0) {
        ssize_t done = write(fd, bytes, nbytes);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return -1;
        bytes += done;
        nbytes -= (size_t)done;
    }
    return 0;
}

/* The rename itself reaches the disk only with its folder. Best effort: not all file systems can.
 */
static void sync_folder(const char *path)
{
    char folder[PATH_MAX];
    char *slash;
    int fd;

    snprintf(folder, sizeof folder, "%s", path);
    slash = strrchr(folder, '/');
    if (!slash)
        snprintf(folder, sizeof folder, ".");
    else
        slash[slash == folder] = '\0'; /* "/name" lies in "/" */
    fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    (void)fsync(fd);
    close(fd);
}

static int write_file(const char *path, const uint8_t *bytes, size_t nbytes)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    int err = TRAIN_OK;

    if (fd < 0)
        return train_fail("cannot create checkpoint %s: %s", path, strerror(errno));
    if (write_all(fd, bytes, nbytes) || fsync(fd))
        err = train_fail("cannot write checkpoint %s: %s", path, strerror(errno));
    if (close(fd) && !err)
        err = train_fail("cannot write checkpoint %s: %s", path, strerror(errno));
    return err;
}

static int write_atomically(const char *path, const uint8_t *bytes, size_t nbytes)
{
    char fresh[PATH_MAX];
    int err;

    if (snprintf(fresh, sizeof fresh, "%s.tmp", path) >= (int)sizeof fresh)
        return train_fail("the name of checkpoint %.60s... is too long", path);
    err = write_file(fresh, bytes, nbytes);
    if (!err && rename(fresh, path))
        err = train_fail("cannot rename %s to %s: %s", fresh, path, strerror(errno));
    if (err)
        unlink(fresh);
    else
        sync_folder(path);
    return err;
}

int checkpoint_write(const char *path, const struct run_state *state, const struct model *model,
                     const struct sgd *sgd)
{
    size_t nbytes = image_nbytes(model);
    uint8_t *image = malloc(nbytes);
    int err;

    if (!image)
        return train_fail("no memory to write checkpoint %s", path);
    fill_image(image, state, model, sgd);
    err = write_atomically(path, image, nbytes);
    free(image);
    return err;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Up to cap bytes of path. */
static int read_file(const char *path, uint8_t *bytes, size_t cap, size_t *nbytes)
{
    FILE *file = fopen(path, "rb");
    int err = TRAIN_OK;

    if (!file)
        return train_fail("cannot open checkpoint %s: %s", path, strerror(errno));
    *nbytes = fread(bytes, 1, cap, file);
    if (ferror(file))
        err = train_fail("cannot read checkpoint %s: %s", path, strerror(errno));
    fclose(file);
    return err;
}

/* What the file is comes first, then whether it is whole: the sentence names the true cause. */
static int check_header(const char *path, struct cursor *cursor, size_t nbytes)
{
    uint64_t version, nparams;

    if (nbytes < sizeof magic + 8 || memcmp(cursor->at, magic, sizeof magic) != 0)
        return train_fail("%s is no checkpoint of kolo-train", path);
    cursor->at += sizeof magic;
    version = get(cursor, 4);
    nparams = get(cursor, 4);
    if (version != VERSION)
        return train_fail("checkpoint %s has version %llu; this program reads version %d", path,
                          (unsigned long long)version, VERSION);
    if (nparams != MODEL_NPARAMS)
        return train_fail("checkpoint %s is of another network: %llu parameters instead of %d",
                          path, (unsigned long long)nparams, MODEL_NPARAMS);
    return TRAIN_OK;
}

static int check_size(const char *path, const uint8_t *image, size_t nbytes, size_t expected)
{
    struct cursor end = {(uint8_t *)(uintptr_t)image + expected - 4};

    if (nbytes < expected)
        return train_fail("checkpoint %s is truncated: %zu of %zu bytes", path, nbytes, expected);
    if (nbytes > expected)
        return train_fail("checkpoint %s has bytes after its end", path);
    if (get(&end, 4) != checksum(image, expected - 4))
        return train_fail("checkpoint %s is damaged: its checksum is wrong", path);
    return TRAIN_OK;
}

static int check_shapes(const char *path, struct cursor *cursor)
{
    for (int i = 0; i < MODEL_NPARAMS; i++)
        for (int k = 0; k < MODEL_MAX_DIMS; k++)
            if (get(cursor, 4) != model_shapes[i].dims[k])
                return train_fail("checkpoint %s is of another network: %s has another shape", path,
                                  model_shapes[i].name);
    return TRAIN_OK;
}

/* What only a checksum that was made for it lets through: a run that went on from there would never
 * come to an end. */
static int check_course(const char *path, const struct run_state *state)
{
    uint64_t nbatches;

    if (state->batch == 0 || state->nsamples == 0)
        return train_fail("checkpoint %s is damaged: it is of %llu images, %llu per step", path,
                          (unsigned long long)state->nsamples, (unsigned long long)state->batch);
    nbatches = 1 + (state->nsamples - 1) / state->batch;
    if (state->step / nbatches != state->epoch || state->step % nbatches != state->next_batch)
        return train_fail("checkpoint %s is damaged: %llu epochs of %llu batches and %llu batches "
                          "are not %llu steps",
                          path, (unsigned long long)state->epoch, (unsigned long long)nbatches,
                          (unsigned long long)state->next_batch, (unsigned long long)state->step);
    return TRAIN_OK;
}

static int take_image(const char *path, uint8_t *image, size_t nbytes, struct run_state *state,
                      struct model *model, struct sgd *sgd)
{
    struct cursor cursor = {image};
    uint64_t members[STATE_MEMBERS];
    struct run_state read;
    int err = check_header(path, &cursor, nbytes);

    if (!err)
        err = check_size(path, image, nbytes, image_nbytes(model));
    if (err)
        return err;
    for (int i = 0; i < STATE_MEMBERS; i++)
        members[i] = get(&cursor, 8);
    memcpy(&read, members, sizeof read);
    err = check_shapes(path, &cursor);
    if (!err)
        err = check_course(path, &read);
    if (err)
        return err;
    *state = read;
    get_floats(&cursor, model->host_values, model->count);
    get_floats(&cursor, sgd->host_velocity, sgd->count);
    return TRAIN_OK;
}

int checkpoint_read(const char *path, struct run_state *state, struct model *model, struct sgd *sgd)
{
    size_t cap = image_nbytes(model) + 1, nbytes = 0; /* one more byte shows what is too long */
    uint8_t *image = calloc(1, cap);
    int err;

    if (!image)
        return train_fail("no memory to read checkpoint %s", path);
    err = read_file(path, image, cap, &nbytes);
    if (!err)
        err = take_image(path, image, nbytes, state, model, sgd);
    free(image);
    return err;
}
