/* SPDX-License-Identifier: MIT
 *
 * svg.h: the pieces of a picture. Lengths are pixels, y grows downwards, colours are "#rrggbb".
 * Nothing fails here: what cannot be written is for the caller to ask the file.
 */
#ifndef KO_SVG_H
#define KO_SVG_H

#include <stddef.h>
#include <stdio.h>

#define KO_SVG_INK "#1b1f24"   /* text */
#define KO_SVG_FAINT "#57606a" /* text of less weight */
#define KO_SVG_LINE "#d0d7de"  /* grids, frames */
#define KO_SVG_SHADE "#f6f8fa" /* stripes */

enum { KO_SVG_COLORS = 16 };

struct ko_svg_point {
    double x, y;
};

struct ko_svg_box {
    double x, y, width, height;
};

enum ko_svg_anchor { KO_SVG_START, KO_SVG_MIDDLE, KO_SVG_END };

struct ko_svg_style {
    double size; /* of the font */
    const char *color;
    enum ko_svg_anchor anchor;
    int is_bold;
};

/* A white page; `title` is what a screen reader says of it. */
void ko_svg_begin(FILE *file, double width, double height, const char *title);
void ko_svg_end(FILE *file);

void ko_svg_text(FILE *file, struct ko_svg_point at, struct ko_svg_style style, const char *text);

/* A paragraph, from its first base line; returns the base line after its last. */
double ko_svg_paragraph(FILE *file, struct ko_svg_box box, struct ko_svg_style style,
                        const char *text);
/* How many lines it has. */
size_t ko_svg_lines(double width, double size, const char *text);

/* stroke NULL: no frame; fill NULL: nothing in it. */
void ko_svg_rect(FILE *file, struct ko_svg_box box, double radius, const char *fill,
                 const char *stroke, double stroke_width);
void ko_svg_line(FILE *file, struct ko_svg_point from, struct ko_svg_point to, const char *color,
                 double width);
/* Its head's tip lies at `to`. */
void ko_svg_arrow(FILE *file, struct ko_svg_point from, struct ko_svg_point to, const char *color,
                  double width);
/* A word on a rounded label, with its middle at `at`, and how wide that is. */
void ko_svg_label(FILE *file, struct ko_svg_point at, const char *color, const char *text);
double ko_svg_label_width(const char *text);

/* Colours that the colour-blind tell apart as well: those of Okabe and Ito, then darker and lighter
 * ones of the same hues. Index modulo KO_SVG_COLORS. */
const char *ko_svg_color(size_t index);

#endif
