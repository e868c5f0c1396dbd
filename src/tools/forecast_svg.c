/* SPDX-License-Identifier: MIT
 *
 * A forecast as a picture: time over size, a line for each algorithm with its name at its end. The
 * lowest line at each place is drawn in bold; a circle with a size marks where one algorithm takes
 * over from another. Nothing lies below the lowest line: there the sizes have room.
 */
#include "forecast.h"

#include "options.h"
#include "svg_axes.h"

#include <math.h>
#include <string.h>

enum { LEFT = 76, TOP = 84, WIDTH = 560, HEIGHT = 400, BOTTOM = 56, LEADER = 20, TITLE = 512 };
enum { CIRCLE = 4, LABEL_DROP = 22, LABEL_GAP = 15, CROSSING_TEXT = KO_BYTES_TEXT + 64 };

struct picture {
    const struct ko_forecast *forecast;
    struct ko_axes axes;
};

/* A colour for each row of the collective, whichever of them are drawn. */
static const char *color_of(const struct ko_forecast *forecast, int i)
{
    int first = forecast->rows[i];

    while (first > 0 && ko_paper_texts[first - 1].what == forecast->what)
        first--;
    return ko_svg_color((size_t)(forecast->rows[i] - first));
}

static struct ko_svg_point point_at(const struct picture *picture, double nbytes, double us)
{
    return ko_axes_at(&picture->axes, log2(nbytes), log10(us));
}

/* ---- lines ------------------------------------------------------------------------------- */

static bool has_time(const struct ko_forecast *forecast, int i, int k)
{
    return i >= 0 && forecast->sizes[k].us[i] > 0;
}

static struct ko_svg_point point_of(const struct picture *picture, int i, int k)
{
    const struct ko_forecast_size *size = &picture->forecast->sizes[k];

    return point_at(picture, (double)size->nbytes, size->us[i]);
}

/* The first crossing from number c on that lies behind size k and can be drawn; NULL: none. */
static const struct ko_crossing *crossing_behind(const struct ko_forecast *forecast, int k, int c)
{
    for (; c < forecast->ncrossings; c++)
        if (forecast->crossings[c].size == k && forecast->crossings[c].us > 0)
            return &forecast->crossings[c];
    return NULL;
}

static const struct ko_crossing *next_crossing(const struct ko_forecast *forecast,
                                               const struct ko_crossing *crossing)
{
    return crossing_behind(forecast, crossing->size, (int)(crossing - forecast->crossings) + 1);
}

/* Row i between size k and the next, through the crossings of which it is one of the two. */
static void draw_piece(const struct picture *picture, int i, int k)
{
    const struct ko_forecast *forecast = picture->forecast;
    struct ko_svg_point from = point_of(picture, i, k);

    for (const struct ko_crossing *crossing = crossing_behind(forecast, k, 0); crossing;
         crossing = next_crossing(forecast, crossing)) {
        const struct ko_svg_point at = point_at(picture, crossing->nbytes, crossing->us);

        if (crossing->from != i && crossing->to != i)
            continue;
        ko_svg_line(picture->axes.file, from, at, color_of(forecast, i), 1.2);
        from = at;
    }
    ko_svg_line(picture->axes.file, from, point_of(picture, i, k + 1), color_of(forecast, i), 1.2);
}

static void draw_line(const struct picture *picture, int i)
{
    for (int k = 0; k + 1 < picture->forecast->nsizes; k++)
        if (has_time(picture->forecast, i, k) && has_time(picture->forecast, i, k + 1))
            draw_piece(picture, i, k);
}

/* The fastest between size k and the next: from crossing to crossing. */
static void draw_lowest(const struct picture *picture, int k)
{
    const struct ko_forecast *forecast = picture->forecast;
    const int after = forecast->sizes[k + 1].fastest;
    int lowest = forecast->sizes[k].fastest;
    struct ko_svg_point from;

    if (lowest < 0 || after < 0 || (lowest != after && !crossing_behind(forecast, k, 0)))
        return;
    from = point_of(picture, lowest, k);
    for (const struct ko_crossing *crossing = crossing_behind(forecast, k, 0); crossing;
         crossing = next_crossing(forecast, crossing)) {
        const struct ko_svg_point at = point_at(picture, crossing->nbytes, crossing->us);

        ko_svg_line(picture->axes.file, from, at, color_of(forecast, lowest), 4);
        from = at;
        lowest = crossing->to;
    }
    ko_svg_line(picture->axes.file, from, point_of(picture, after, k + 1),
                color_of(forecast, after), 4);
}

/* ---- crossings --------------------------------------------------------------------------- */

/* How far down the lowest line lies at x, at the left of it at most. */
static double lowest_at(const struct picture *picture, double x)
{
    const struct ko_forecast *forecast = picture->forecast;
    double y = picture->axes.box.y;

    for (int k = 0; k < forecast->nsizes; k++) {
        struct ko_svg_point at;

        if (forecast->sizes[k].fastest < 0)
            continue;
        at = point_of(picture, forecast->sizes[k].fastest, k);
        if (k && at.x > x)
            break;
        y = at.y;
    }
    return y;
}

/* Where its text begins: below the lowest line, and within the panel. */
static struct ko_svg_point label_of(const struct picture *picture, struct ko_svg_point crossing,
                                    double width)
{
    const double right = picture->axes.box.x + picture->axes.box.width;
    const double x = fmin(crossing.x, right - width);
    const double y = fmax(crossing.y, x < crossing.x ? lowest_at(picture, x) : 0);

    return (struct ko_svg_point){x, y + LABEL_DROP};
}

static double crossing_text(const struct ko_forecast *forecast, const struct ko_crossing *crossing,
                            char text[CROSSING_TEXT])
{
    char size[KO_BYTES_TEXT];

    ko_bytes_text(crossing->nbytes, size);
    snprintf(text, CROSSING_TEXT, "%s from %s", ko_forecast_name(forecast, crossing->to), size);
    return (double)strlen(text) * KO_AXES_LABEL_ADVANCE + 8;
}

static void draw_crossing(const struct picture *picture, const struct ko_crossing *crossing,
                          struct ko_svg_point at, struct ko_svg_point label)
{
    const char *color = color_of(picture->forecast, crossing->to);
    char text[CROSSING_TEXT];
    const double width = crossing_text(picture->forecast, crossing, text);
    FILE *file = picture->axes.file;

    ko_svg_line(file, at, (struct ko_svg_point){at.x, label.y - 9}, color, 0.8);
    ko_svg_rect(file, (struct ko_svg_box){at.x - CIRCLE, at.y - CIRCLE, 2 * CIRCLE, 2 * CIRCLE},
                CIRCLE, "#ffffff", KO_SVG_INK, 1.5);
    ko_svg_rect(file, (struct ko_svg_box){label.x - 2, label.y - 9, width, LABEL_GAP - 1}, 2,
                "#ffffff", NULL, 0);
    ko_svg_text(file, (struct ko_svg_point){label.x, label.y + 2},
                (struct ko_svg_style){KO_AXES_LABEL_SIZE, color, KO_SVG_START, 1}, text);
}

/* From the right to the left, each below the one before if they would meet: so no label's leader
 * crosses another label. */
static void draw_crossings(const struct picture *picture)
{
    const struct ko_forecast *forecast = picture->forecast;
    struct ko_svg_point last = {INFINITY, -INFINITY};

    for (int c = forecast->ncrossings - 1; c >= 0; c--) {
        const struct ko_crossing *crossing = &forecast->crossings[c];
        struct ko_svg_point at, label;
        char text[CROSSING_TEXT];
        double width;

        if (crossing->us <= 0)
            continue;
        width = crossing_text(forecast, crossing, text);
        at = point_at(picture, crossing->nbytes, crossing->us);
        label = label_of(picture, at, width);
        if (label.x + width > last.x)
            label.y = fmax(label.y, last.y + LABEL_GAP);
        draw_crossing(picture, crossing, at, label);
        last = label;
    }
}

/* ---- names ------------------------------------------------------------------------------- */

/* The largest size of which the row has a time; -1: none. */
static int last_size(const struct ko_forecast *forecast, int i)
{
    int k = forecast->nsizes - 1;

    while (k >= 0 && !has_time(forecast, i, k))
        k--;
    return k;
}

static bool is_ever_fastest(const struct ko_forecast *forecast, int i)
{
    for (int k = 0; k < forecast->nsizes; k++)
        if (forecast->sizes[k].fastest == i)
            return true;
    for (int c = 0; c < forecast->ncrossings; c++)
        if (forecast->crossings[c].to == i)
            return true;
    return false;
}

static void draw_name(const struct picture *picture, int i, struct ko_svg_point at)
{
    ko_svg_text(picture->axes.file, (struct ko_svg_point){at.x, at.y + 4},
                (struct ko_svg_style){KO_AXES_LABEL_SIZE, color_of(picture->forecast, i),
                                      KO_SVG_START, is_ever_fastest(picture->forecast, i)},
                ko_forecast_name(picture->forecast, i));
}

static void draw_end(const struct picture *picture, int i, struct ko_svg_point end)
{
    ko_svg_rect(picture->axes.file, (struct ko_svg_box){end.x - 2.5, end.y - 2.5, 5, 5}, 2.5,
                color_of(picture->forecast, i), NULL, 0);
}

/* Of a line that ends within the picture: above its end. */
static void draw_name_inside(const struct picture *picture, int i, struct ko_svg_point end)
{
    const struct ko_svg_point at = {end.x + 5, end.y - 10};
    const double width =
        (double)strlen(ko_forecast_name(picture->forecast, i)) * KO_AXES_LABEL_ADVANCE + 4;

    ko_svg_rect(picture->axes.file, (struct ko_svg_box){at.x - 1, at.y - 7, width, 14}, 2,
                "#ffffff", NULL, 0);
    draw_name(picture, i, at);
}

static void draw_names(const struct picture *picture)
{
    const struct ko_forecast *forecast = picture->forecast;
    struct ko_svg_point ends[KO_FORECAST_ROWS];
    struct ko_axes_label labels[KO_FORECAST_ROWS];
    int nlabels = 0;

    for (int i = 0; i < forecast->nrows; i++) {
        const int k = last_size(forecast, i);

        if (k < 0)
            continue;
        ends[i] = point_of(picture, i, k);
        draw_end(picture, i, ends[i]);
        if (k == forecast->nsizes - 1)
            labels[nlabels++] = (struct ko_axes_label){ends[i].y, &ends[i]};
        else
            draw_name_inside(picture, i, ends[i]);
    }
    ko_axes_spread(&picture->axes, labels, nlabels);
    for (int l = 0; l < nlabels; l++) {
        const struct ko_svg_point *end = labels[l].of;
        const int i = (int)(end - ends);
        const struct ko_svg_point at = {end->x + LEADER, labels[l].y};

        ko_svg_line(picture->axes.file, *end, at, color_of(forecast, i), 0.8);
        draw_name(picture, i, (struct ko_svg_point){at.x + 4, at.y});
    }
}

/* ---- picture ----------------------------------------------------------------------------- */

/* The least and the greatest time, as powers of ten, with room below for the crossings' labels. */
static void find_range(const struct ko_forecast *forecast, double *low, double *high)
{
    const double room = LABEL_DROP + (double)LABEL_GAP * forecast->ncrossings;

    *low = INFINITY;
    *high = -INFINITY;
    for (int k = 0; k < forecast->nsizes; k++)
        for (int i = 0; i < forecast->nrows; i++)
            if (has_time(forecast, i, k)) {
                *low = fmin(*low, log10(forecast->sizes[k].us[i]));
                *high = fmax(*high, log10(forecast->sizes[k].us[i]));
            }
    if (*low > *high) /* nothing has a time: 1 to 1 */
        *low = *high = 0;
    if (forecast->ncrossings)
        *low -= (*high - *low) * room / (HEIGHT - room);
}

static double names_width(const struct ko_forecast *forecast)
{
    size_t longest = 0;

    for (int i = 0; i < forecast->nrows; i++) {
        const size_t length = strlen(ko_forecast_name(forecast, i));

        longest = length > longest ? length : longest;
    }
    return LEADER + (double)(longest + 3) * KO_AXES_LABEL_ADVANCE;
}

static struct ko_axes make_axes(const struct ko_forecast *forecast, FILE *file)
{
    const double first = log2((double)forecast->sizes[0].nbytes);
    const double last = log2((double)forecast->sizes[forecast->nsizes - 1].nbytes);
    const double more = last - first < 1 ? 1 : 0;
    struct ko_axes axes = {.file = file,
                           .box = {LEFT, TOP, WIDTH, HEIGHT},
                           .first = first - more,
                           .last = last + more,
                           .is_time = true};

    find_range(forecast, &axes.low, &axes.high);
    ko_axes_round(&axes);
    return axes;
}

void ko_forecast_svg(const struct ko_forecast *forecast, FILE *file)
{
    const struct picture picture = {.forecast = forecast, .axes = make_axes(forecast, file)};
    char title[TITLE];
    double title_width;

    ko_forecast_title(forecast, title, sizeof title);
    title_width = (double)strlen(title) * 14 * 0.63;
    ko_svg_begin(file, LEFT + fmax(WIDTH + names_width(forecast), title_width),
                 TOP + HEIGHT + BOTTOM, title);
    ko_svg_text(file, (struct ko_svg_point){LEFT, 28},
                (struct ko_svg_style){14, KO_SVG_INK, KO_SVG_START, 1}, title);
    ko_svg_text(file, (struct ko_svg_point){LEFT, 47},
                (struct ko_svg_style){12, KO_SVG_FAINT, KO_SVG_START, 0},
                "bold: the fastest; a circle: where it becomes that");
    ko_axes_draw(&picture.axes, "Predicted time", "size of a block (bytes)");
    for (int i = 0; i < forecast->nrows; i++)
        draw_line(&picture, i);
    for (int k = 0; k + 1 < forecast->nsizes; k++)
        draw_lowest(&picture, k);
    draw_names(&picture);
    draw_crossings(&picture);
    ko_svg_end(file);
}
