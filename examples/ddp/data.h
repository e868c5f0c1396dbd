/* SPDX-License-Identifier: MIT
 *
 * data.h: the images to learn from. A set is read from a folder of four IDX files (those of MNIST
 * and Fashion-MNIST), or made up inside the program so that it runs anywhere.
 */
#ifndef TRAIN_DATA_H
#define TRAIN_DATA_H

#include <stddef.h>
#include <stdint.h>

#define IMAGE_SIDE 28
#define IMAGE_AREA ((size_t)IMAGE_SIDE * IMAGE_SIDE)
#define NCLASSES 10

/* Where Debian's package dataset-fashion-mnist puts its files. */
#define DATA_STANDARD_FOLDER "/usr/share/datasets/fashion-mnist"
/* The name that stands for the made-up set. */
#define DATA_SYNTHETIC "synthetic"

enum data_part { DATA_TRAIN, DATA_TEST };

struct dataset {
    size_t count;
    uint8_t *pixels; /* [count][IMAGE_SIDE][IMAGE_SIDE] */
    uint8_t *labels; /* [count], each < NCLASSES */
};

/* Reads the images and labels of one part. An error names the file and what is wrong with it. */
int dataset_read(const char *folder, enum data_part part, struct dataset *set);

/* Makes 6000 training or 1000 test images: noisy stripes, whose direction and width are the class.
 * The same on every machine: all arithmetic is in integers. */
int dataset_make(enum data_part part, struct dataset *set);

/* Writes the given samples as images[n][IMAGE_SIDE][IMAGE_SIDE], normalised by MNIST's mean 0.1307
 * and deviation 0.3081, and their labels[n]. */
void dataset_gather(const struct dataset *set, const uint32_t *samples, size_t n, float *images,
                    uint8_t *labels);

/* Safe on a set that is all zero. */
void dataset_free(struct dataset *set);

#endif
