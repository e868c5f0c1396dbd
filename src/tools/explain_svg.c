/* SPDX-License-Identifier: MIT
 *
 * The picture of the steps: a column for each rank, a band for each step, an arrow for each
 * message, and below each band what every rank then has: a box for each part of its buffer, filled
 * by the share of the ranks whose contributions have come.
 */
#include "explain_picture.h"

#include "status.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_COLUMNS = 16, MOST_BANDS = 40, MOST_BOXES = 16, MOST_ITEMS = 4 };

/* Pixels. */
enum { LEAST_WIDTH = 560, LEAST_COLUMN = 104, MOST_COLUMN = 190, FLIGHT = 56 };
enum { MARGIN = KO_PIC_MARGIN, LEFT = KO_PIC_LEFT, BOX = KO_PIC_BOX, GAP = KO_PIC_GAP };

#define NEUTRAL "#4a4a4a" /* messages of several colours */
#define NOTHING "#8c959f" /* empty messages */

/* Where on its way, in columns, an arrow has its caption: near the sender, who sends one message in
 * a step, so that no two captions meet. */
#define CAPTION_AT 0.27

/* ---- captions of arrows ------------------------------------------------------------------- */

/* The caller's division tells parts of one colour, else the text's own. */
static const char *color_of(const struct ko_trace *trace, size_t part)
{
    if (trace->call->text->what == KO_ALL_TO_ALL)
        return ko_svg_color(trace->cuts[part] / trace->stride);
    if (trace->block)
        return ko_svg_color(trace->cuts[part] / trace->block);
    return ko_svg_color(part);
}

/* Two ranges, of which one goes on at part 0 where the other ends: 6, 7 and 0..2 are "6-2". */
static bool goes_around(const struct ko_trace *trace, const struct ko_trace_item items[2])
{
    const struct ko_trace_item *low = &items[items[0].first > items[1].first];
    const struct ko_trace_item *high = &items[items[0].first <= items[1].first];

    return trace->call->text->what != KO_ALL_TO_ALL && low->first == 0 &&
           high->last + 1 == trace->nparts;
}

/* What stands on an arrow: "2", "0-3", "all", "2 blocks"; returns its colour. */
static const char *caption(const struct ko_trace *trace, const struct ko_trace_message *message,
                           char text[32])
{
    struct ko_trace_item items[MOST_ITEMS];
    const size_t n = ko_trace_items(trace, message, items, MOST_ITEMS);
    const size_t ranks = (size_t)trace->call->n;
    const size_t nparts = ko_trace_count(trace, message);

    if (nparts == trace->nparts)
        snprintf(text, 32, "all");
    else if (n == 2 && goes_around(trace, items))
        snprintf(text, 32, "%zu-%zu", items[items[0].first < items[1].first].first,
                 items[items[0].first > items[1].first].last);
    else if (n > 1)
        snprintf(text, 32, "%zu %ss", nparts, ko_trace_word(trace));
    else if (nparts > 1)
        snprintf(text, 32, "%zu-%zu", items[0].first, items[0].last);
    else if (trace->call->text->what == KO_ALL_TO_ALL && !strcmp(ko_trace_word(trace), "block"))
        snprintf(text, 32, "%zu for %zu", items[0].first / ranks, items[0].first % ranks);
    else
        snprintf(text, 32, "%zu", items[0].first);
    return nparts == 1 ? color_of(trace, items[0].first) : NEUTRAL;
}

/* ---- where things are --------------------------------------------------------------------- */

double ko_picture_x(const struct ko_picture *picture, int rank)
{
    return LEFT + (rank + 0.5) * picture->column;
}

/* Where the arrows of a step begin. */
static double band_y(const struct ko_picture *picture, size_t step)
{
    return picture->top + BOX + 2 * GAP + (double)(step - 1) * (FLIGHT + BOX + 2 * GAP);
}

/* Which of the rank's boxes a part is in: those of an all_to_all are for one rank only. */
static size_t box_of(const struct ko_picture *picture, size_t part)
{
    const struct ko_trace *trace = picture->trace;

    if (trace->call->text->what == KO_ALL_TO_ALL)
        part = trace->cuts[part] / trace->stride;
    return part / picture->parts_per_box;
}

static bool is_drawn(const struct ko_picture *picture, const struct ko_trace_message *message)
{
    return message->step <= picture->nbands && message->from < picture->ncolumns &&
           message->to < picture->ncolumns;
}

/* A width that leaves room for two captions between two ranks. */
static double widest_captions(const struct ko_picture *picture)
{
    double widest = 0;

    for (size_t i = 0; i < picture->trace->nmessages; i++) {
        const struct ko_trace_message *message = &picture->trace->messages[i];
        char text[32] = "";

        if (message->nruns && is_drawn(picture, message))
            caption(picture->trace, message, text);
        if (widest < ko_svg_label_width(text))
            widest = ko_svg_label_width(text);
    }
    return (widest + 2) / (1 - 2 * CAPTION_AT);
}

static double column_width(const struct ko_picture *picture)
{
    const double boxes = (double)picture->nboxes * picture->box + 28;
    const double captions = widest_captions(picture);
    double least = (double)(LEAST_WIDTH - LEFT - MARGIN) / picture->ncolumns;

    if (least > MOST_COLUMN)
        least = MOST_COLUMN;
    if (least < LEAST_COLUMN)
        least = LEAST_COLUMN;
    if (least < boxes)
        least = boxes;
    return least < captions ? captions : least;
}

static void lay_out(struct ko_picture *picture)
{
    const struct ko_trace *trace = picture->trace;
    const int n = trace->call->n;
    const bool is_exchange = trace->call->text->what == KO_ALL_TO_ALL;
    const size_t nparts = is_exchange && trace->nparts ? (size_t)n : trace->nparts;

    picture->ncolumns = n < MOST_COLUMNS ? n : MOST_COLUMNS;
    picture->nbands = trace->nsteps < MOST_BANDS ? trace->nsteps : MOST_BANDS;
    picture->parts_per_box = nparts ? (nparts - 1) / MOST_BOXES + 1 : 1;
    picture->nboxes = (nparts + picture->parts_per_box - 1) / picture->parts_per_box;
    picture->box = picture->nboxes <= 1 ? 34 : nparts <= 4 ? 20 : picture->nboxes <= 8 ? 13 : 9;
    picture->column = column_width(picture);
    picture->width = LEFT + picture->ncolumns * picture->column + MARGIN;
    if (picture->width < LEAST_WIDTH)
        picture->width = LEAST_WIDTH;
    picture->top = 122 + KO_PIC_LINE * (double)ko_picture_lines_above(picture);
    picture->end = band_y(picture, picture->nbands + 1) - GAP;
    picture->height =
        picture->end + KO_PIC_LINE * (double)ko_picture_lines_below(picture) + 2 * MARGIN;
}

/* ---- boxes -------------------------------------------------------------------------------- */

/* How full a box is, from 0 to 1, by what the rank has. */
static double fullness(const struct ko_picture *picture, const uint64_t *have, int rank, size_t box)
{
    const struct ko_trace *trace = picture->trace;
    const uint64_t *own = have + (size_t)rank * trace->nparts;
    int full = 0, here = 0;

    for (size_t part = 0; part < trace->nparts; part++)
        if (ko_trace_is_at(trace, rank, part) && box_of(picture, part) == box) {
            here += __builtin_popcountll(own[part]);
            full += ko_trace_wanted(trace);
        }
    return full ? (double)here / full : 0;
}

/* The first part in a box of the rank. */
static size_t first_in(const struct ko_picture *picture, int rank, size_t box)
{
    size_t part = 0;

    while (part + 1 < picture->trace->nparts &&
           !(ko_trace_is_at(picture->trace, rank, part) && box_of(picture, part) == box))
        part++;
    return part;
}

void ko_picture_box(const struct ko_picture *picture, struct ko_svg_box frame, const char *color,
                    double share, bool is_changed)
{
    const double stroke = is_changed ? 2 : 1, inside = frame.height - stroke;
    const struct ko_svg_box fill = {frame.x + stroke / 2,
                                    frame.y + stroke / 2 + inside * (1 - share),
                                    frame.width - stroke, inside * share};

    ko_svg_rect(picture->file, frame, 0, share < 1 ? "#ffffff" : color,
                is_changed ? KO_SVG_INK : "#8c959f", stroke);
    if (share > 0 && share < 1)
        ko_svg_rect(picture->file, fill, 0, color, NULL, 0);
}

static void draw_boxes(const struct ko_picture *picture, int rank, double y)
{
    const double width = (double)picture->nboxes * picture->box - 3;
    struct ko_svg_box frame = {ko_picture_x(picture, rank) - width / 2, y, picture->box - 3, BOX};

    for (size_t box = 0; box < picture->nboxes; box++) {
        const double now = fullness(picture, picture->have, rank, box);
        const double before = fullness(picture, picture->had, rank, box);

        ko_picture_box(picture, frame, color_of(picture->trace, first_in(picture, rank, box)), now,
                       now > before);
        frame.x += picture->box;
    }
}

/* ---- arrows ------------------------------------------------------------------------------- */

bool ko_picture_has_hosts(const struct ko_picture *picture)
{
    const struct ko_hosts *hosts = picture->trace->call->hosts;

    return hosts && hosts->n > 1;
}

static bool is_between_hosts(const struct ko_picture *picture,
                             const struct ko_trace_message *message)
{
    const struct ko_hosts *hosts = picture->trace->call->hosts;

    return hosts && hosts->host[message->from] != hosts->host[message->to];
}

/* The arrow, or the caption upon it. */
static void draw_message(const struct ko_picture *picture, const struct ko_trace_message *message,
                         bool is_caption)
{
    const double y = band_y(picture, message->step);
    const struct ko_svg_point from = {ko_picture_x(picture, message->from), y};
    const struct ko_svg_point to = {ko_picture_x(picture, message->to), y + FLIGHT - 2};
    const double share = CAPTION_AT / abs(message->to - message->from);
    const struct ko_svg_point at = {from.x + share * (to.x - from.x),
                                    from.y + share * (to.y - from.y)};
    char text[32];
    const char *color = message->nruns ? caption(picture->trace, message, text) : NOTHING;

    if (!is_caption)
        ko_svg_arrow(picture->file, from, to, color,
                     is_between_hosts(picture, message) ? 3.2 : 1.8);
    else if (message->nruns)
        ko_svg_label(picture->file, at, color, text);
}

/* ---- steps -------------------------------------------------------------------------------- */

/* The band of a step, and what happens in it; the number of the first message behind it. */
static size_t draw_step(const struct ko_picture *picture, size_t first)
{
    const struct ko_trace *trace = picture->trace;
    const size_t step = trace->messages[first].step;
    size_t end;

    memcpy(picture->had, picture->have,
           (size_t)trace->call->n * trace->nparts * sizeof *picture->had);
    for (end = first; end < trace->nmessages && trace->messages[end].step == step; end++)
        ko_trace_arrive(trace, &trace->messages[end], picture->have);
    for (int is_caption = 0; is_caption < 2; is_caption++)
        for (size_t i = first; i < end; i++)
            if (is_drawn(picture, &trace->messages[i]))
                draw_message(picture, &trace->messages[i], is_caption);
    for (int rank = 0; rank < picture->ncolumns; rank++)
        draw_boxes(picture, rank, band_y(picture, step) + FLIGHT);
    return end;
}

static void draw_stripe(const struct ko_picture *picture, size_t step)
{
    const double y = band_y(picture, step);
    const struct ko_svg_style bold = {12, KO_SVG_INK, KO_SVG_START, 1};
    const struct ko_svg_box stripe = {MARGIN / 2.0, y - GAP, picture->width - MARGIN,
                                      FLIGHT + BOX + 2 * GAP};
    char text[32];

    if (step % 2)
        ko_svg_rect(picture->file, stripe, 4, KO_SVG_SHADE, NULL, 0);
    snprintf(text, sizeof text, "step %zu", step);
    ko_svg_text(picture->file, (struct ko_svg_point){MARGIN, y + FLIGHT / 2.0 + 4}, bold, text);
}

static void draw_steps(const struct ko_picture *picture)
{
    const struct ko_trace *trace = picture->trace;
    const struct ko_svg_style faint = {12, KO_SVG_FAINT, KO_SVG_START, 0};

    for (size_t step = 1; step <= picture->nbands; step++)
        draw_stripe(picture, step);
    for (int rank = 0; rank < picture->ncolumns; rank++)
        ko_picture_column(picture, rank);
    ko_svg_text(picture->file, (struct ko_svg_point){MARGIN, picture->top + BOX - 4}, faint,
                "before");
    for (int rank = 0; rank < picture->ncolumns; rank++)
        draw_boxes(picture, rank, picture->top);
    for (size_t i = 0; i < trace->nmessages && trace->messages[i].step <= picture->nbands;)
        i = draw_step(picture, i);
}

int ko_explain_svg(const struct ko_trace *trace, FILE *file)
{
    struct ko_picture picture = {
        .trace = trace, .file = file, .have = ko_trace_begin(trace), .had = ko_trace_begin(trace)};
    int err = picture.have && picture.had ? KOLO_OK : KOLO_E_NOMEM;

    if (!err)
        err = ko_figures_count(trace->call, &picture.figures);
    if (!err) {
        lay_out(&picture);
        ko_picture_heading(&picture);
        draw_steps(&picture);
        ko_picture_foot(&picture);
        ko_svg_end(file);
    }
    free(picture.have);
    free(picture.had);
    return err;
}
