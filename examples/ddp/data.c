/* SPDX-License-Identifier: MIT
 *
 * Pixels stay bytes in memory (47 MB for a full training set) and become floats batch by batch, by
 * a table of the 256 values that a pixel can have.
 */
#include "data.h"

#include "failure.h"
#include "idx.h"
#include "random.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The gzipped file if it is there, else the plain one. */
static void choose_path(const char *folder, const char *name, char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%s/%s.gz", folder, name);
    if (access(path, F_OK) == 0)
        return;
    snprintf(path, PATH_MAX, "%s/%s", folder, name);
    if (access(path, F_OK) != 0)
        snprintf(path, PATH_MAX, "%s/%s.gz", folder, name); /* what the error should name */
}

static int check_labels(const char *path, const uint8_t *labels, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (labels[i] >= NCLASSES)
            return train_fail("%s: label %zu is %u; there are only %d classes", path, i, labels[i],
                              NCLASSES);
    return TRAIN_OK;
}

int dataset_read(const char *folder, enum data_part part, struct dataset *set)
{
    static const char *const names[][2] = {
        [DATA_TRAIN] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte"},
        [DATA_TEST] = {"t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"},
    };
    static const struct idx_shape images = {3, {0, IMAGE_SIDE, IMAGE_SIDE}};
    struct idx_shape labels = {1, {0}};
    struct dataset read = {0};
    char path[PATH_MAX];
    size_t nlabels;
    int err;

    choose_path(folder, names[part][0], path);
    err = idx_read(path, &images, &read.count, &read.pixels);
    if (err)
        return err;
    labels.dims[0] = (uint32_t)read.count; /* as many labels as images */
    choose_path(folder, names[part][1], path);
    err = idx_read(path, &labels, &nlabels, &read.labels);
    if (!err)
        err = check_labels(path, read.labels, nlabels);
    if (err)
        dataset_free(&read);
    else
        *set = read;
    return err;
}

/* Pixel (x, y) lies on a stripe when bit 4 of dx*x + dy*y + phase is set: stripes across (dx, dy),
 * 16/|(dx, dy)| pixels wide. tests/golden/make_losses.py has the same formula. */
static void draw_stripes(uint64_t key, uint8_t label, uint8_t image[IMAGE_AREA])
{
    static const int directions[NCLASSES][2] = {{2, 0}, {5, 0},  {0, 2},  {0, 5}, {2, 2},
                                                {4, 4}, {2, -2}, {4, -4}, {1, 4}, {4, -1}};
    int dx = directions[label][0], dy = directions[label][1];
    int phase = (int)(random_bits(key, 0) & 31);

    for (int y = 0; y < IMAGE_SIDE; y++)
        for (int x = 0; x < IMAGE_SIDE; x++) {
            int place = y * IMAGE_SIDE + x;
            int noise = (int)(random_bits(key, (unsigned)place + 1) % 100);
            int is_on_stripe = (dx * x + dy * y + phase + 128) >> 4 & 1;
            image[place] = (uint8_t)((is_on_stripe ? 140 : 20) + noise);
        }
}

int dataset_make(enum data_part part, struct dataset *set)
{
    size_t count = part == DATA_TRAIN ? 6000 : 1000;
    struct dataset made = {count, malloc(count * IMAGE_AREA), malloc(count)};

    if (!made.pixels || !made.labels) {
        dataset_free(&made);
        return train_fail("no memory for the synthetic images");
    }
    for (size_t i = 0; i < count; i++) {
        uint64_t key = random_bits((uint64_t)part, i);
        made.labels[i] = (uint8_t)(key % NCLASSES);
        draw_stripes(key, made.labels[i], made.pixels + i * IMAGE_AREA);
    }
    *set = made;
    return TRAIN_OK;
}

void dataset_gather(const struct dataset *set, const uint32_t *samples, size_t n, float *images,
                    uint8_t *labels)
{
    float normal[256];

    for (int i = 0; i < 256; i++)
        normal[i] = ((float)i / 255.0f - 0.1307f) / 0.3081f;
    for (size_t i = 0; i < n; i++) {
        const uint8_t *pixels = set->pixels + (size_t)samples[i] * IMAGE_AREA;
        for (size_t p = 0; p < IMAGE_AREA; p++)
            images[i * IMAGE_AREA + p] = normal[pixels[p]];
        labels[i] = set->labels[samples[i]];
    }
}

void dataset_free(struct dataset *set)
{
    free(set->pixels);
    free(set->labels);
    *set = (struct dataset){0};
}
