/* SPDX-License-Identifier: MIT
 *
 * Two panels, bus bandwidth and time, over the size; all axes are logarithmic. A series is what
 * differs in size alone, a line that carries its own name at its right end, pushed away from its
 * neighbours. The base's lines are thin and have the colour of what they are the base of.
 */
#include "perf.h"

#include "status.h"
#include "svg_axes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SERIES = 96 };
enum { LEFT = 52, TOP = 64, PANEL_WIDTH = 400, LEAST_HEIGHT = 340, BOTTOM = 56 };

enum what { BANDWIDTH, TIME };

struct series {
    const struct ko_perf_report *report;
    const struct ko_perf_row *row; /* its first */
    int form;
    size_t color;
    bool is_base;
    char name[96];
};

struct plot {
    FILE *file;
    struct series series[MOST_SERIES];
    int nseries, nleft_out;
    double low, high;           /* sizes, as powers of two */
    double label_width, height; /* of a panel: all labels find room beside it */
};

struct panel {
    enum what what;
    struct ko_axes axes;
};

/* ---- series ------------------------------------------------------------------------------ */

static bool is_of(const struct ko_perf_row *row, const struct ko_perf_row *other)
{
    return row->root == other->root && !strcmp(row->collective, other->collective) &&
           !strcmp(row->type, other->type) && !strcmp(row->op, other->op);
}

/* The figures of a row that is a point of the series; NULL. */
static const struct ko_perf_figures *point_of(const struct series *series,
                                              const struct ko_perf_row *row)
{
    const struct ko_perf_figures *figures = &row->forms[series->form];

    return row->nbytes && figures->is_measured && is_of(row, series->row) ? figures : NULL;
}

static double value_of(const struct ko_perf_figures *figures, enum what what)
{
    return what == TIME ? figures->stats.median : figures->busbw;
}

/* Whether no row before this one, which is a point of the series, is one as well. */
static bool is_first(const struct series *series)
{
    for (const struct ko_perf_row *row = series->row; row > series->report->rows; row--)
        if (point_of(series, row - 1))
            return false;
    return true;
}

static void add_row(struct plot *plot, const struct ko_perf_report *report, bool is_base,
                    const struct ko_perf_row *row, int form)
{
    struct series added = {report, row, form, (size_t)plot->nseries, is_base, ""};

    if (!point_of(&added, row))
        return;
    for (int i = 0; i < plot->nseries; i++) {
        const struct series *other = &plot->series[i];

        if (other->form != form || !is_of(other->row, row))
            continue;
        if (other->report == report)
            return;
        added.color = other->color;
    }
    if (plot->nseries < MOST_SERIES)
        plot->series[plot->nseries++] = added;
    else
        plot->nleft_out += is_first(&added);
}

static void add_report(struct plot *plot, const struct ko_perf_report *report, bool is_base)
{
    for (size_t i = 0; i < report->nrows; i++)
        for (int form = 0; form < KO_PERF_NFORMS; form++)
            add_row(plot, report, is_base, &report->rows[i], form);
}

/* Only what tells it from the others. */
static void name_series(struct plot *plot, struct series *series)
{
    const struct ko_perf_row *row = series->row;
    bool types = false, ops = false, roots = false, forms = false;
    char root[24];

    for (int i = 0; i < plot->nseries; i++) {
        const struct ko_perf_row *other = plot->series[i].row;
        bool is_alike = !strcmp(other->collective, row->collective);

        types |= strcmp(other->type, row->type) != 0;
        ops |= is_alike && strcmp(other->op, row->op) != 0;
        roots |= is_alike && other->root != row->root;
        forms |= plot->series[i].form != series->form;
    }
    snprintf(root, sizeof root, " root %d", row->root);
    snprintf(series->name, sizeof series->name, "%s%s%s%s%s%s%s%s", row->collective, ops ? " " : "",
             ops ? row->op : "", types ? " " : "", types ? ko_perf_dtype_shown(row->type) : "",
             roots ? root : "", forms && series->form == KO_PERF_IN_PLACE ? ", in place" : "",
             series->is_base ? ", base" : "");
    plot->label_width =
        fmax(plot->label_width, (double)strlen(series->name) * KO_AXES_LABEL_ADVANCE + 16);
}

/* ---- ranges ------------------------------------------------------------------------------ */

/* The least and the greatest of all that is drawn, as logarithms; nothing is 1 to 1. */
static void find_range(const struct plot *plot, enum what what, bool of_sizes, double *low,
                       double *high)
{
    *low = INFINITY;
    *high = -INFINITY;
    for (int s = 0; s < plot->nseries; s++) {
        const struct series *series = &plot->series[s];

        for (size_t i = 0; i < series->report->nrows; i++) {
            const struct ko_perf_row *row = &series->report->rows[i];
            const struct ko_perf_figures *figures = point_of(series, row);
            double value = !figures ? 0 : of_sizes ? (double)row->nbytes : value_of(figures, what);

            if (value > 0) {
                *low = fmin(*low, of_sizes ? log2(value) : log10(value));
                *high = fmax(*high, of_sizes ? log2(value) : log10(value));
            }
        }
    }
    if (*low > *high)
        *low = *high = 0;
}

/* ---- lines ------------------------------------------------------------------------------- */

/* Where its last point is; x < 0: it has none here. */
static struct ko_svg_point draw_series(const struct panel *panel, const struct series *series)
{
    const double radius = series->is_base ? 1.5 : 2.5;
    const char *color = ko_svg_color(series->color);
    struct ko_svg_point last = {-1, 0};

    for (size_t i = 0; i < series->report->nrows; i++) {
        const struct ko_perf_row *row = &series->report->rows[i];
        const struct ko_perf_figures *figures = point_of(series, row);
        double value = figures ? value_of(figures, panel->what) : 0;
        struct ko_svg_point at;

        if (value <= 0)
            continue;
        at = ko_axes_at(&panel->axes, log2((double)row->nbytes), log10(value));
        if (last.x >= 0 && at.x > last.x) /* not back to the start of another cycle */
            ko_svg_line(panel->axes.file, last, at, color, series->is_base ? 1 : 2);
        ko_svg_rect(panel->axes.file,
                    (struct ko_svg_box){at.x - radius, at.y - radius, 2 * radius, 2 * radius},
                    radius, color, NULL, 0);
        last = at;
    }
    return last;
}

static void draw_panel(struct plot *plot, enum what what, double left)
{
    struct panel panel = {.what = what,
                          .axes = {.file = plot->file,
                                   .box = {left, TOP, PANEL_WIDTH, plot->height},
                                   .first = plot->low,
                                   .last = plot->high}};
    struct ko_axes_label labels[MOST_SERIES];
    int nlabels = 0;

    find_range(plot, what, false, &panel.axes.low, &panel.axes.high);
    ko_axes_round(&panel.axes);
    ko_axes_draw(&panel.axes, what == TIME ? "Time (us), median" : "Bus bandwidth (GB/s)",
                 "size (bytes)");
    for (int i = plot->nseries - 1; i >= 0; i--) { /* the base's lines lie below */
        struct ko_svg_point end = draw_series(&panel, &plot->series[i]);

        if (end.x >= 0)
            labels[nlabels++] = (struct ko_axes_label){end.y, &plot->series[i]};
    }
    ko_axes_spread(&panel.axes, labels, nlabels);
    for (int i = 0; i < nlabels; i++) {
        const struct series *series = labels[i].of;

        ko_svg_text(plot->file, (struct ko_svg_point){left + PANEL_WIDTH + 8, labels[i].y + 4},
                    (struct ko_svg_style){KO_AXES_LABEL_SIZE, ko_svg_color(series->color),
                                          KO_SVG_START, !series->is_base},
                    series->name);
    }
}

static void draw_panels(struct plot *plot, double panel_width)
{
    static const char nothing[] = "Nothing to draw: no row is of more than 0 bytes";

    if (plot->nseries) {
        draw_panel(plot, BANDWIDTH, LEFT);
        draw_panel(plot, TIME, panel_width + LEFT);
    } else {
        ko_svg_text(plot->file, (struct ko_svg_point){LEFT, TOP},
                    (struct ko_svg_style){KO_AXES_LABEL_SIZE, KO_SVG_INK, KO_SVG_START, 0},
                    nothing);
    }
}

static void make_title(const struct plot *plot, int nranks, char *title, size_t cap)
{
    const int length =
        snprintf(title, cap, "kolo-perf, %d %s", nranks, nranks == 1 ? "rank" : "ranks");

    if (plot->nleft_out)
        snprintf(title + length, cap - (size_t)length, ": %d of %d lines", plot->nseries,
                 plot->nseries + plot->nleft_out);
}

struct ko_perf_plotted ko_perf_plot(FILE *file, const struct ko_perf_report *report,
                                    const struct ko_perf_report *base)
{
    struct plot plot = {.file = file, .label_width = 60};
    double panel_width;
    char title[128];

    add_report(&plot, report, false);
    add_report(&plot, base, true);
    for (int i = 0; i < plot.nseries; i++)
        name_series(&plot, &plot.series[i]);
    find_range(&plot, TIME, true, &plot.low, &plot.high);
    if (plot.high - plot.low < 1) {
        plot.low -= 1;
        plot.high += 1;
    }
    panel_width = LEFT + PANEL_WIDTH + plot.label_width;
    plot.height = fmax(LEAST_HEIGHT, KO_AXES_LABEL_GAP * (double)plot.nseries);
    make_title(&plot, report->nranks, title, sizeof title);
    ko_svg_begin(file, 2 * panel_width + 12, TOP + plot.height + BOTTOM, title);
    ko_svg_text(file, (struct ko_svg_point){LEFT, 26},
                (struct ko_svg_style){16, KO_SVG_INK, KO_SVG_START, 1}, title);
    draw_panels(&plot, panel_width);
    ko_svg_end(file);
    return (struct ko_perf_plotted){plot.nseries, plot.nseries + plot.nleft_out};
}
