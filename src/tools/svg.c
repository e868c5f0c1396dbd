/* SPDX-License-Identifier: MIT
 *
 * No style sheets, no scripts, no markers: what browsers, editors and converters all draw alike.
 * Widths of text are guessed from DejaVu Sans, the widest of the usual fonts.
 */
#include "svg.h"

#include <math.h>
#include <string.h>

/* Of a character, as a share of the font's size. */
#define ADVANCE 0.6

/* ---- the page ----------------------------------------------------------------------------- */

static void print_escaped(FILE *file, const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        switch (text[i]) {
        case '<':
            fputs("&lt;", file);
            break;
        case '>':
            fputs("&gt;", file);
            break;
        case '&':
            fputs("&amp;", file);
            break;
        default:
            putc(text[i], file);
        }
}

void ko_svg_begin(FILE *file, double width, double height, const char *title)
{
    fprintf(file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
            "viewBox=\"0 0 %.0f %.0f\" font-family=\"DejaVu Sans, Verdana, sans-serif\">\n<title>",
            width, height, width, height);
    print_escaped(file, title, strlen(title));
    fputs("</title>\n", file);
    ko_svg_rect(file, (struct ko_svg_box){0, 0, width, height}, 0, "#ffffff", NULL, 0);
}

void ko_svg_end(FILE *file)
{
    fputs("</svg>\n", file);
}

/* ---- text --------------------------------------------------------------------------------- */

static void print_text(FILE *file, struct ko_svg_point at, struct ko_svg_style style,
                       const char *text, size_t length)
{
    static const char *const anchors[] = {[KO_SVG_START] = "",
                                          [KO_SVG_MIDDLE] = " text-anchor=\"middle\"",
                                          [KO_SVG_END] = " text-anchor=\"end\""};

    fprintf(file, "<text x=\"%.5g\" y=\"%.5g\" font-size=\"%g\" fill=\"%s\"%s%s>", at.x, at.y,
            style.size, style.color, anchors[style.anchor],
            style.is_bold ? " font-weight=\"bold\"" : "");
    print_escaped(file, text, length);
    fputs("</text>\n", file);
}

void ko_svg_text(FILE *file, struct ko_svg_point at, struct ko_svg_style style, const char *text)
{
    print_text(file, at, style, text, strlen(text));
}

/* Length of the first line of text, when a line has room for so many characters. */
static size_t line_length(const char *text, size_t room)
{
    size_t length = strlen(text);

    if (length <= room)
        return length;
    for (length = room; length && text[length] != ' '; length--)
        continue;
    return length ? length : strcspn(text, " ");
}

static size_t room_of(double width, double size)
{
    return (size_t)(width / (size * ADVANCE));
}

size_t ko_svg_lines(double width, double size, const char *text)
{
    size_t lines = 0;

    for (; *text; lines++) {
        text += line_length(text, room_of(width, size));
        text += strspn(text, " ");
    }
    return lines;
}

double ko_svg_paragraph(FILE *file, struct ko_svg_box box, struct ko_svg_style style,
                        const char *text)
{
    struct ko_svg_point at = {box.x, box.y};

    while (*text) {
        const size_t length = line_length(text, room_of(box.width, style.size));

        print_text(file, at, style, text, length);
        at.y += 1.4 * style.size;
        text += length;
        text += strspn(text, " ");
    }
    return at.y;
}

/* ---- shapes ------------------------------------------------------------------------------- */

void ko_svg_rect(FILE *file, struct ko_svg_box box, double radius, const char *fill,
                 const char *stroke, double stroke_width)
{
    fprintf(file, "<rect x=\"%.5g\" y=\"%.5g\" width=\"%.5g\" height=\"%.5g\" fill=\"%s\"", box.x,
            box.y, box.width, box.height, fill ? fill : "none");
    if (radius > 0)
        fprintf(file, " rx=\"%g\"", radius);
    if (stroke)
        fprintf(file, " stroke=\"%s\"", stroke);
    if (stroke && stroke_width != 1)
        fprintf(file, " stroke-width=\"%g\"", stroke_width);
    fputs("/>\n", file);
}

void ko_svg_line(FILE *file, struct ko_svg_point from, struct ko_svg_point to, const char *color,
                 double width)
{
    fprintf(file,
            "<line x1=\"%.5g\" y1=\"%.5g\" x2=\"%.5g\" y2=\"%.5g\" stroke=\"%s\" "
            "stroke-width=\"%g\"/>\n",
            from.x, from.y, to.x, to.y, color, width);
}

void ko_svg_arrow(FILE *file, struct ko_svg_point from, struct ko_svg_point to, const char *color,
                  double width)
{
    const double length = hypot(to.x - from.x, to.y - from.y);
    const double x = (to.x - from.x) / length, y = (to.y - from.y) / length;
    const double head = 5 + 2 * width, half = 2 + width;
    const struct ko_svg_point neck = {to.x - head * x, to.y - head * y};

    ko_svg_line(file, from, neck, color, width);
    fprintf(file, "<path d=\"M%.5g %.5gL%.5g %.5gL%.5g %.5gZ\" fill=\"%s\"/>\n", to.x, to.y,
            neck.x - half * y, neck.y + half * x, neck.x + half * y, neck.y - half * x, color);
}

/* Whether white is easier to read on it than black. */
static int is_dark(const char *color)
{
    unsigned red = 0, green = 0, blue = 0;

    sscanf(color, "#%2x%2x%2x", &red, &green, &blue);
    return 299 * red + 587 * green + 114 * blue < 140000;
}

enum { LABEL_SIZE = 11, LABEL_HEIGHT = 16 };

double ko_svg_label_width(const char *text)
{
    return (double)strlen(text) * LABEL_SIZE * ADVANCE + 9;
}

void ko_svg_label(FILE *file, struct ko_svg_point at, const char *color, const char *text)
{
    const struct ko_svg_style style = {LABEL_SIZE, is_dark(color) ? "#ffffff" : "#000000",
                                       KO_SVG_MIDDLE, 1};
    const double width = ko_svg_label_width(text);
    const struct ko_svg_box box = {at.x - width / 2, at.y - LABEL_HEIGHT / 2.0, width,
                                   LABEL_HEIGHT};

    ko_svg_rect(file, box, LABEL_HEIGHT / 2.0, color, "#ffffff", 1.5);
    ko_svg_text(file, (struct ko_svg_point){at.x, at.y + 4}, style, text);
}

/* ---- colours ------------------------------------------------------------------------------ */

const char *ko_svg_color(size_t index)
{
    static const char *const colors[KO_SVG_COLORS] = {
        "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#b5a800", "#7f7f7f",
        "#003f66", "#8a5f00", "#005c43", "#8a3f68", "#8a3d00", "#1f7fb8", "#6b6300", "#404040"};

    return colors[index % KO_SVG_COLORS];
}
