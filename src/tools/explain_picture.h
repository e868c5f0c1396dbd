/* SPDX-License-Identifier: MIT
 *
 * explain_picture.h: what the parts of kolo-explain's picture share: where things are. Lengths are
 * pixels.
 */
#ifndef KO_EXPLAIN_PICTURE_H
#define KO_EXPLAIN_PICTURE_H

#include "explain.h"

#include "svg.h"

enum { KO_PIC_MARGIN = 24, KO_PIC_LEFT = 76, KO_PIC_BOX = 16, KO_PIC_GAP = 10, KO_PIC_LINE = 17 };

struct ko_picture {
    const struct ko_trace *trace;
    FILE *file;
    struct ko_figures figures;
    int ncolumns;                   /* ranks that are drawn */
    size_t nbands;                  /* steps that are */
    size_t nboxes, parts_per_box;   /* of a rank */
    double box;                     /* width of one, with what separates it from the next */
    double column;                  /* width */
    double width, height, top, end; /* of the picture; where the boxes before step 1 are, and where
                                       the last step ends */
    uint64_t *have, *had;           /* after the step, and before it */
};

/* The middle of a rank's column. */
double ko_picture_x(const struct ko_picture *picture, int rank);

/* A box filled by the share 0..1; a changed one has a heavy frame. */
void ko_picture_box(const struct ko_picture *picture, struct ko_svg_box frame, const char *color,
                    double share, bool is_changed);

/* Whether messages between hosts are told from others. */
bool ko_picture_has_hosts(const struct ko_picture *picture);

/* ---- explain_frame.c: what stands around the steps ------------------------------------------- */

/* Lines below the steps, and above. */
size_t ko_picture_lines_below(const struct ko_picture *picture);
size_t ko_picture_lines_above(const struct ko_picture *picture);

void ko_picture_heading(const struct ko_picture *picture);
/* The line, the name and the boxes' numbers. */
void ko_picture_column(const struct ko_picture *picture, int rank);
/* What the signs mean, the totals, and what was left out. */
void ko_picture_foot(const struct ko_picture *picture);

#endif
