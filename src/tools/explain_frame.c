/* SPDX-License-Identifier: MIT
 *
 * Around the steps: what the picture is of, whose columns they are, what the signs mean, and how
 * much the call moves beside the least possible.
 */
#include "explain_picture.h"

#include "coll.h"

#include <string.h>

enum { MARGIN = KO_PIC_MARGIN, BOX = KO_PIC_BOX, GAP = KO_PIC_GAP, LINE = KO_PIC_LINE };
enum { SIGN = 60 }; /* room for a sign of the legend */

static const struct ko_svg_style text_style = {12, KO_SVG_INK, KO_SVG_START, 0};
static const struct ko_svg_style bold_style = {12, KO_SVG_INK, KO_SVG_START, 1};
static const struct ko_svg_style faint_style = {12, KO_SVG_FAINT, KO_SVG_START, 0};

/* ---- above -------------------------------------------------------------------------------- */

size_t ko_picture_lines_above(const struct ko_picture *picture)
{
    return ko_svg_lines(picture->width - 2 * MARGIN, text_style.size,
                        ko_prose_of(picture->trace->call->text));
}

void ko_picture_heading(const struct ko_picture *picture)
{
    const struct ko_paper_call *call = picture->trace->call;
    const struct ko_svg_style title_style = {18, KO_SVG_INK, KO_SVG_START, 1};
    const struct ko_svg_box box = {MARGIN, 76, picture->width - 2 * MARGIN, 0};
    char title[128];
    int used = snprintf(title, sizeof title, "%s by %s, %d ranks",
                        ko_collective_name(call->text->what), call->text->name, call->n);

    if (ko_explain_has_root(call->text->what))
        snprintf(title + used, sizeof title - (size_t)used, ", root %d", call->root);
    ko_svg_begin(picture->file, picture->width, picture->height, title);
    ko_svg_text(picture->file, (struct ko_svg_point){MARGIN, 34}, title_style, title);
    ko_svg_text(picture->file, (struct ko_svg_point){MARGIN, 54}, faint_style,
                ko_why_of(call->text));
    ko_svg_paragraph(picture->file, box, text_style, ko_prose_of(call->text));
}

/* ---- columns ------------------------------------------------------------------------------ */

static void draw_host(const struct ko_picture *picture, int rank)
{
    const struct ko_hosts *hosts = picture->trace->call->hosts;
    const struct ko_svg_style faint = {10, KO_SVG_FAINT, KO_SVG_MIDDLE, 0};
    const double x = ko_picture_x(picture, rank), left = x - picture->column / 2;
    char text[32];

    snprintf(text, sizeof text, "host %d", hosts->host[rank]);
    ko_svg_text(picture->file, (struct ko_svg_point){x, picture->top - 36}, faint, text);
    if (rank && hosts->host[rank] != hosts->host[rank - 1])
        ko_svg_line(picture->file, (struct ko_svg_point){left, picture->top - 46},
                    (struct ko_svg_point){left, picture->end}, "#8c959f", 1.5);
}

/* The number of each box, above those of the start. */
static void draw_numbers(const struct ko_picture *picture, int rank)
{
    const struct ko_svg_style style = {9, KO_SVG_FAINT, KO_SVG_MIDDLE, 0};
    const double width = (double)picture->nboxes * picture->box - 3;
    struct ko_svg_point at = {ko_picture_x(picture, rank) - width / 2 + (picture->box - 3) / 2,
                              picture->top - 5};

    for (size_t box = 0; box < picture->nboxes && picture->nboxes > 1; box++) {
        char text[24];

        snprintf(text, sizeof text, "%zu", box * picture->parts_per_box);
        if (picture->box > 10 || box % 5 == 0)
            ko_svg_text(picture->file, at, style, text);
        at.x += picture->box;
    }
}

void ko_picture_column(const struct ko_picture *picture, int rank)
{
    const struct ko_svg_style bold = {12, KO_SVG_INK, KO_SVG_MIDDLE, 1};
    const double x = ko_picture_x(picture, rank);
    char text[32];

    ko_svg_line(picture->file, (struct ko_svg_point){x, picture->top},
                (struct ko_svg_point){x, picture->end}, KO_SVG_LINE, 1);
    snprintf(text, sizeof text, "rank %d", rank);
    ko_svg_text(picture->file, (struct ko_svg_point){x, picture->top - 22}, bold, text);
    if (ko_picture_has_hosts(picture))
        draw_host(picture, rank);
    draw_numbers(picture, rank);
}

/* ---- what the signs mean ------------------------------------------------------------------ */

static bool is_cut(const struct ko_picture *picture)
{
    return picture->ncolumns < picture->trace->call->n || picture->nbands < picture->trace->nsteps;
}

/* Whether a message carries a part for which its receiver has no box: it passes it on. */
static bool has_passages(const struct ko_trace *trace)
{
    for (size_t m = 0; m < trace->nmessages; m++)
        for (size_t i = 0; i < trace->messages[m].nruns; i++) {
            const size_t begin = trace->runs[trace->messages[m].runs + i].begin;

            if (!ko_trace_is_at(trace, trace->messages[m].to, ko_trace_part(trace, begin)))
                return true;
        }
    return false;
}

/* Signs, a free line, the totals, what S is, and what is left out. */
size_t ko_picture_lines_below(const struct ko_picture *picture)
{
    const size_t nsigns =
        3 + (size_t)ko_picture_has_hosts(picture) + (size_t)has_passages(picture->trace);
    const size_t nfigures = (size_t)picture->figures.n;

    return nsigns + 1 + 1 + nfigures + (nfigures ? 1 : 0) + (is_cut(picture) ? 2 : 0);
}

static bool has_empty_messages(const struct ko_trace *trace)
{
    for (size_t i = 0; i < trace->nmessages; i++)
        if (!trace->messages[i].nruns)
            return true;
    return false;
}

/* Boxes of the legend, and what they say. */
static double draw_box_signs(const struct ko_picture *picture, double y)
{
    const struct ko_trace *trace = picture->trace;
    const bool is_sum = ko_explain_reduces(trace->call);
    struct ko_svg_box box = {MARGIN, y - 12, 14, BOX - 2};
    const char *word = ko_trace_word(trace);
    char text[128];

    ko_picture_box(picture, box, ko_svg_color(0), is_sum ? 0.5 : 0, false);
    box.x += 20;
    ko_picture_box(picture, box, ko_svg_color(0), 1, false);
    if (trace->call->text->what == KO_BARRIER)
        snprintf(text, sizeof text,
                 "a rank that has not come, as far as is known, and one that has");
    else if (is_sum)
        snprintf(text, sizeof text, "a %s: the inputs of half of the ranks are added up; of all",
                 word);
    else
        snprintf(text, sizeof text, "a %s that has not come, and one that has", word);
    ko_svg_text(picture->file, (struct ko_svg_point){MARGIN + SIGN, y}, text_style, text);
    y += LINE + 2;
    box.y += LINE + 2;
    box.x = MARGIN;
    ko_picture_box(picture, box, ko_svg_color(0), 1, true);
    ko_svg_text(picture->file, (struct ko_svg_point){MARGIN + SIGN, y}, text_style,
                "changed in this step");
    return y + LINE;
}

/* Arrows of the legend. */
static void say_arrow(const struct ko_trace *trace, char text[128])
{
    const enum ko_collective what = trace->call->text->what;
    const char *word = ko_trace_word(trace);

    if (what == KO_BARRIER)
        snprintf(text, 128, "a message, and of whom it tells that they have come");
    else
        snprintf(text, 128, "a message, and the %s that it carries%s%s", word,
                 what == KO_ALL_TO_ALL && !strcmp(word, "block") ? ": of which rank for which" : "",
                 has_empty_messages(trace) ? "; a grey one is empty" : "");
}

static double draw_arrow_signs(const struct ko_picture *picture, double y)
{
    struct ko_svg_point from = {MARGIN, y - 5}, to = {MARGIN + SIGN - 16, y - 5};
    char text[128];

    ko_svg_arrow(picture->file, from, to, ko_svg_color(0), 1.8);
    say_arrow(picture->trace, text);
    ko_svg_text(picture->file, (struct ko_svg_point){MARGIN + SIGN, y}, text_style, text);
    y += LINE;
    if (!ko_picture_has_hosts(picture))
        return y;
    from.y = to.y = y - 5;
    ko_svg_arrow(picture->file, from, to, ko_svg_color(0), 3.2);
    ko_svg_text(picture->file, (struct ko_svg_point){MARGIN + SIGN, y}, text_style,
                "a message between hosts");
    return y + LINE;
}

/* ---- totals ------------------------------------------------------------------------------- */

/* A line of three columns. */
static void draw_total(const struct ko_picture *picture, double y, const char *what,
                       const char *much, const char *least)
{
    const struct ko_svg_style right = {12, KO_SVG_INK, KO_SVG_END, 1};

    ko_svg_text(picture->file, (struct ko_svg_point){MARGIN, y}, text_style, what);
    ko_svg_text(picture->file, (struct ko_svg_point){MARGIN + 290, y}, right, much);
    ko_svg_text(picture->file, (struct ko_svg_point){MARGIN + 305, y}, faint_style, least);
}

static double draw_totals(const struct ko_picture *picture, double y)
{
    const struct ko_figures *figures = &picture->figures;
    char much[64], least[64];

    snprintf(much, sizeof much, "%zu", picture->trace->nsteps);
    snprintf(least, sizeof least, "at least %zu", figures->least_steps);
    draw_total(picture, y, "steps", much, least);
    for (int i = 0; i < figures->n; i++) {
        const struct ko_figure *figure = &figures->list[i];

        snprintf(much, sizeof much, "%.2f S", figure->whole);
        least[0] = '\0';
        if (figure->least >= 0)
            snprintf(least, sizeof least, "at least %.2f S", figure->least);
        draw_total(picture, y += LINE, figure->what, much, least);
    }
    if (figures->n) {
        snprintf(much, sizeof much, "S is the longest buffer of a rank, here %zu elements",
                 figures->whole);
        ko_svg_text(picture->file, (struct ko_svg_point){MARGIN, y += LINE}, faint_style, much);
    }
    return y + 2 * LINE;
}

void ko_picture_foot(const struct ko_picture *picture)
{
    double y = picture->end + MARGIN;
    char text[128];

    y = draw_box_signs(picture, y);
    y = draw_arrow_signs(picture, y);
    if (has_passages(picture->trace)) {
        ko_svg_text(picture->file, (struct ko_svg_point){MARGIN + SIGN, y}, faint_style,
                    "blocks on their way through a rank are not drawn");
        y += LINE;
    }
    y = draw_totals(picture, y + LINE);
    snprintf(text, sizeof text, "Drawn are %d of %d ranks and %zu of %zu steps.", picture->ncolumns,
             picture->trace->call->n, picture->nbands, picture->trace->nsteps);
    if (is_cut(picture))
        ko_svg_text(picture->file, (struct ko_svg_point){MARGIN, y}, bold_style, text);
}
