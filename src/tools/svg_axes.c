/* SPDX-License-Identifier: MIT */
#include "svg_axes.h"

#include <math.h>
#include <stdlib.h>

enum { VALUE_TEXT = 32 };

/* ---- places ------------------------------------------------------------------------------ */

void ko_axes_round(struct ko_axes *axes)
{
    static const double steps[] = {0, 0.30103, 0.69897, 1};
    double low = floor(axes->low), high = floor(axes->high);
    int i = 3;

    while (low + steps[i] > axes->low)
        i--;
    axes->low = low + steps[i];
    for (i = 0; high + steps[i] < axes->high; i++)
        continue;
    axes->high = high + steps[i];
    if (axes->high - axes->low < 0.3) {
        axes->low -= 0.30103;
        axes->high += 0.30103;
    }
}

struct ko_svg_point ko_axes_at(const struct ko_axes *axes, double size, double value)
{
    const struct ko_svg_box *box = &axes->box;

    return (struct ko_svg_point){
        box->x + box->width * (size - axes->first) / (axes->last - axes->first),
        box->y + box->height * (axes->high - value) / (axes->high - axes->low)};
}

/* ---- grid -------------------------------------------------------------------------------- */

static void write_value(const struct ko_axes *axes, double value, char text[VALUE_TEXT])
{
    static const char *const units[] = {"us", "ms", "s"};
    int unit = 0;

    while (axes->is_time && value >= 999 && unit < 2) {
        value /= 1000;
        unit++;
    }
    snprintf(text, VALUE_TEXT, "%.7g%s%s", value, axes->is_time ? " " : "",
             axes->is_time ? units[unit] : "");
}

static void draw_value_tick(const struct ko_axes *axes, double value)
{
    const double power = log10(value), left = axes->box.x;
    const double y = ko_axes_at(axes, axes->first, power).y;
    char text[VALUE_TEXT];

    if (power < axes->low - 1e-4 || power > axes->high + 1e-4)
        return;
    write_value(axes, value, text);
    ko_svg_line(axes->file, (struct ko_svg_point){left, y},
                (struct ko_svg_point){left + axes->box.width, y}, KO_SVG_LINE, 1);
    ko_svg_text(axes->file, (struct ko_svg_point){left - 6, y + 4},
                (struct ko_svg_style){KO_AXES_LABEL_SIZE, KO_SVG_FAINT, KO_SVG_END, 0}, text);
}

static void draw_size_tick(const struct ko_axes *axes, int power)
{
    static const char *const units[] = {"", "K", "M", "G", "T", "P"};
    const double x = ko_axes_at(axes, power, axes->low).x;
    const double bottom = axes->box.y + axes->box.height;
    char text[32];

    snprintf(text, sizeof text, "%d%s", 1 << power % 10, units[power / 10]);
    ko_svg_line(axes->file, (struct ko_svg_point){x, axes->box.y}, (struct ko_svg_point){x, bottom},
                KO_SVG_LINE, 1);
    ko_svg_text(axes->file, (struct ko_svg_point){x, bottom + 16},
                (struct ko_svg_style){KO_AXES_LABEL_SIZE, KO_SVG_FAINT, KO_SVG_MIDDLE, 0}, text);
}

void ko_axes_draw(const struct ko_axes *axes, const char *value_title, const char *size_title)
{
    const struct ko_svg_box *box = &axes->box;
    const bool is_close = axes->high - axes->low <= 3;
    const int step = 1 + (int)((axes->last - axes->first) / 9);

    for (int decade = (int)floor(axes->low); decade <= axes->high; decade++) {
        draw_value_tick(axes, pow(10, decade));
        if (is_close) {
            draw_value_tick(axes, 2 * pow(10, decade));
            draw_value_tick(axes, 5 * pow(10, decade));
        }
    }
    for (int power = (int)ceil(axes->first); power <= axes->last; power++)
        if (power >= 0 && power % step == 0)
            draw_size_tick(axes, power);
    ko_svg_text(axes->file, (struct ko_svg_point){box->x, box->y - 14},
                (struct ko_svg_style){13, KO_SVG_INK, KO_SVG_START, 1}, value_title);
    ko_svg_text(axes->file,
                (struct ko_svg_point){box->x + box->width / 2, box->y + box->height + 38},
                (struct ko_svg_style){12, KO_SVG_FAINT, KO_SVG_MIDDLE, 0}, size_title);
}

/* ---- labels ------------------------------------------------------------------------------ */

static int compare_labels(const void *a, const void *b)
{
    const struct ko_axes_label *x = a, *y = b;

    return (x->y > y->y) - (x->y < y->y);
}

/* From the top down none is closer to the one above than KO_AXES_LABEL_GAP; then from the bottom
 * up, so that all stay beside the panel if they can. */
void ko_axes_spread(const struct ko_axes *axes, struct ko_axes_label *labels, int n)
{
    double limit = axes->box.y + axes->box.height;

    qsort(labels, (size_t)n, sizeof *labels, compare_labels);
    for (int i = 1; i < n; i++)
        labels[i].y = fmax(labels[i].y, labels[i - 1].y + KO_AXES_LABEL_GAP);
    for (int i = n - 1; i >= 0; i--) {
        labels[i].y = fmin(labels[i].y, limit);
        limit = labels[i].y - KO_AXES_LABEL_GAP;
    }
}
