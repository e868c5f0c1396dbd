/* SPDX-License-Identifier: MIT
 *
 * curve.h: loss and accuracy over the epochs, drawn as an SVG.
 */
#ifndef TRAIN_CURVE_H
#define TRAIN_CURVE_H

#include <stddef.h>

struct curve_point {
    double epoch, value;
};

struct curve_line {
    struct curve_point *points;
    size_t count, capacity;
};

/* All zero is an empty curve. */
struct curve {
    struct curve_line loss;     /* of training */
    struct curve_line accuracy; /* of the test set, 0 to 1 */
};

int curve_add(struct curve_line *line, double epoch, double value);

/* Replaces path. */
int curve_write(const struct curve *curve, const char *path);

void curve_free(struct curve *curve);

#endif
