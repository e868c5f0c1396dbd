/* SPDX-License-Identifier: MIT
 *
 * One picture, two scales: loss on the left, accuracy on the right. A scale maps values to pixels
 * and chooses its ticks at 1, 2 or 5 times a power of ten.
 */
#include "curve.h"

#include "failure.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOSS_COLOR "#1f6fb4"
#define ACCURACY_COLOR "#d1601f"

/* The picture, and in it the frame of the plot, in pixels. */
enum { WIDTH = 800, HEIGHT = 460, LEFT = 70, RIGHT = 730, TOP = 50, BOTTOM = 400 };

struct scale {
    double low, high;       /* values */
    double at_low, at_high; /* their pixels */
    double tick;            /* distance of ticks */
};

int curve_add(struct curve_line *line, double epoch, double value)
{
    if (line->count == line->capacity) {
        size_t capacity = line->capacity ? 2 * line->capacity : 64;
        struct curve_point *points = realloc(line->points, capacity * sizeof *points);
        if (!points)
            return train_fail("no memory for %zu points of the curve", capacity);
        line->points = points;
        line->capacity = capacity;
    }
    line->points[line->count++] = (struct curve_point){epoch, value};
    return TRAIN_OK;
}

void curve_free(struct curve *curve)
{
    free(curve->loss.points);
    free(curve->accuracy.points);
    *curve = (struct curve){0};
}

/* ---- scales ---------------------------------------------------------------------------------- */

static double nice_tick(double range, int nticks)
{
    double rough = range / nticks;
    double power = pow(10, floor(log10(rough)));
    double factor = rough / power;

    return power * (factor <= 1 ? 1 : factor <= 2 ? 2 : factor <= 5 ? 5 : 10);
}

/* Widens low and high to whole ticks. */
static struct scale make_scale(double low, double high, int nticks, double at_low, double at_high)
{
    struct scale scale = {low, high, at_low, at_high, 0};

    if (!(high - low > 1e-9)) /* also when they are no numbers */
        high = low + 1;
    scale.tick = nice_tick(high - low, nticks);
    scale.low = floor(low / scale.tick + 1e-9) * scale.tick;
    scale.high = ceil(high / scale.tick - 1e-9) * scale.tick;
    return scale;
}

static double pixel(const struct scale *scale, double value)
{
    double share = (value - scale->low) / (scale->high - scale->low);

    return scale->at_low + share * (scale->at_high - scale->at_low);
}

static void extend(const struct curve_line *line, double *low, double *high)
{
    for (size_t i = 0; i < line->count; i++) {
        if (!isfinite(line->points[i].value))
            continue;
        *low = fmin(*low, line->points[i].value);
        *high = fmax(*high, line->points[i].value);
    }
}

static struct scale epoch_scale(const struct curve *curve)
{
    const struct curve_line *lines[] = {&curve->loss, &curve->accuracy};
    double first = HUGE_VAL, last = 0;
    struct scale scale;

    for (int i = 0; i < 2; i++)
        if (lines[i]->count > 0) {
            first = fmin(first, lines[i]->points[0].epoch);
            last = fmax(last, lines[i]->points[lines[i]->count - 1].epoch);
        }
    first = first < last ? floor(first) : 0;
    scale = make_scale(first, last, 10, LEFT, RIGHT);
    scale.low = first; /* the axis ends with the run */
    scale.high = last > first ? last : first + 1;
    return scale;
}

/* ---- drawing --------------------------------------------------------------------------------- */

static void draw_text(FILE *file, double x, double y, const char *style, const char *text)
{
    fprintf(file, "<text x=\"%.1f\" y=\"%.1f\" %s>%s</text>\n", x, y, style, text);
}

static void draw_line(FILE *file, const double from[2], const double to[2], const char *style)
{
    fprintf(file, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" %s/>\n", from[0], from[1],
            to[0], to[1], style);
}

static void draw_epochs(FILE *file, const struct scale *x)
{
    int nticks = (int)floor((x->high - x->low) / x->tick + 1e-9);
    char text[32];

    for (int i = 0; i <= nticks; i++) {
        double value = x->low + i * x->tick, at = pixel(x, value);
        snprintf(text, sizeof text, "%g", round(value * 1e6) / 1e6);
        draw_line(file, (double[]){at, BOTTOM}, (double[]){at, BOTTOM + 5}, "stroke=\"#444\"");
        draw_text(file, at, BOTTOM + 20, "text-anchor=\"middle\"", text);
    }
    draw_text(file, (LEFT + RIGHT) / 2.0, BOTTOM + 42, "text-anchor=\"middle\"", "epoch");
}

/* Ticks and title of a vertical axis; the left one's ticks go on as grid lines. */
static void draw_values(FILE *file, const struct scale *y, int is_left, const char *title)
{
    int nticks = (int)round((y->high - y->low) / y->tick);
    double axis = is_left ? LEFT : RIGHT, out = is_left ? -1 : 1;
    char text[32], style[160];

    snprintf(style, sizeof style, "text-anchor=\"%s\" fill=\"%s\"", is_left ? "end" : "start",
             is_left ? LOSS_COLOR : ACCURACY_COLOR);
    for (int i = 0; i <= nticks; i++) {
        double value = y->low + i * y->tick, at = pixel(y, value);
        snprintf(text, sizeof text, is_left ? "%g" : "%g %%", round(value * 1e6) / 1e6);
        draw_line(file, (double[]){axis, at}, (double[]){axis + 5 * out, at}, "stroke=\"#444\"");
        draw_text(file, axis + 9 * out, at + 4, style, text);
        if (is_left && i > 0 && i < nticks)
            draw_line(file, (double[]){LEFT, at}, (double[]){RIGHT, at}, "stroke=\"#e4e4e4\"");
    }
    snprintf(style, sizeof style, "text-anchor=\"%s\" fill=\"%s\" font-weight=\"bold\"",
             is_left ? "start" : "end", is_left ? LOSS_COLOR : ACCURACY_COLOR);
    draw_text(file, is_left ? 14 : WIDTH - 14, TOP - 18, style, title);
}

static void draw_curve(FILE *file, const struct curve_line *line, const struct scale *x,
                       const struct scale *y, const char *color)
{
    fprintf(file, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"", color);
    for (size_t i = 0; i < line->count; i++)
        if (isfinite(line->points[i].value))
            fprintf(file, "%.1f,%.1f ", pixel(x, line->points[i].epoch),
                    pixel(y, line->points[i].value));
    fprintf(file, "\"/>\n");
}

static void draw_dots(FILE *file, const struct curve_line *line, const struct scale *x,
                      const struct scale *y, const char *color)
{
    for (size_t i = 0; i < line->count; i++)
        fprintf(file, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" fill=\"%s\"/>\n",
                pixel(x, line->points[i].epoch), pixel(y, line->points[i].value), color);
}

static void draw_legend(FILE *file)
{
    const double loss = (LEFT + RIGHT) / 2.0 - 120, accuracy = loss + 140, y = TOP - 22;

    draw_line(file, (double[]){loss, y}, (double[]){loss + 24, y},
              "stroke=\"" LOSS_COLOR "\" stroke-width=\"2\"");
    draw_text(file, loss + 30, y + 4, "", "training loss");
    draw_line(file, (double[]){accuracy, y}, (double[]){accuracy + 24, y},
              "stroke=\"" ACCURACY_COLOR "\" stroke-width=\"2\"");
    fprintf(file, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" fill=\"" ACCURACY_COLOR "\"/>\n",
            accuracy + 12, y);
    draw_text(file, accuracy + 30, y + 4, "", "test accuracy");
}

static void draw(FILE *file, const struct curve *curve)
{
    double most_loss = 0, least = HUGE_VAL, most = -HUGE_VAL, none = 0;
    struct scale x = epoch_scale(curve), loss, accuracy, percent;

    extend(&curve->loss, &none, &most_loss);
    loss = make_scale(0, most_loss, 6, BOTTOM, TOP);
    extend(&curve->accuracy, &least, &most);
    if (least > most)
        least = 0, most = 1;
    percent = make_scale(100 * least - 1, fmin(100 * most + 1, 100), 6, BOTTOM, TOP);
    accuracy = percent;
    accuracy.low /= 100;
    accuracy.high /= 100;

    fprintf(file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
            "viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"13\" fill=\"#333\">\n"
            "<rect width=\"%d\" height=\"%d\" fill=\"white\"/>\n",
            WIDTH, HEIGHT, WIDTH, HEIGHT, WIDTH, HEIGHT);
    draw_epochs(file, &x);
    draw_values(file, &loss, 1, "loss");
    draw_values(file, &percent, 0, "accuracy");
    fprintf(file,
            "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"none\" stroke=\"#444\"/>\n",
            LEFT, TOP, RIGHT - LEFT, BOTTOM - TOP);
    draw_curve(file, &curve->loss, &x, &loss, LOSS_COLOR);
    draw_curve(file, &curve->accuracy, &x, &accuracy, ACCURACY_COLOR);
    draw_dots(file, &curve->accuracy, &x, &accuracy, ACCURACY_COLOR);
    draw_legend(file);
    fprintf(file, "</svg>\n");
}

int curve_write(const struct curve *curve, const char *path)
{
    FILE *file = fopen(path, "w");
    int failed;

    if (!file)
        return train_fail("cannot create curve %s: %s", path, strerror(errno));
    draw(file, curve);
    failed = ferror(file);
    if (fclose(file) || failed)
        return train_fail("cannot write curve %s: %s", path, strerror(errno));
    return TRAIN_OK;
}
