/* SPDX-License-Identifier: MIT
 *
 * svg_axes.h: a panel with two logarithmic axes, sizes along the one and values up the other, and
 * labels beside it. Sizes are given as powers of two, values as powers of ten.
 */
#ifndef KO_SVG_AXES_H
#define KO_SVG_AXES_H

#include "svg.h"

#include <stdbool.h>

#define KO_AXES_LABEL_SIZE 11.0
/* A label of so many letters is about as wide as that many of these. */
#define KO_AXES_LABEL_ADVANCE (KO_AXES_LABEL_SIZE * 0.6)
/* From one label's middle to the next's. */
#define KO_AXES_LABEL_GAP 13.0

struct ko_axes {
    FILE *file;
    struct ko_svg_box box;
    double first, last; /* sizes */
    double low, high;   /* values */
    bool is_time;       /* values are microseconds, and written with a unit */
};

/* Widens low..high to whole decades, or to 1, 2, 5 where there are few of them. */
void ko_axes_round(struct ko_axes *axes);

struct ko_svg_point ko_axes_at(const struct ko_axes *axes, double size, double value);

/* The grid, its numbers, and what they are. */
void ko_axes_draw(const struct ko_axes *axes, const char *value_title, const char *size_title);

struct ko_axes_label {
    double y; /* of its middle */
    const void *of;
};

/* Sorts the labels from the top down and moves those apart that are too close, beside the panel if
 * there is room for all. */
void ko_axes_spread(const struct ko_axes *axes, struct ko_axes_label *labels, int n);

#endif
