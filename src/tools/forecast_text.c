/* SPDX-License-Identifier: MIT
 *
 * A forecast as a table for people, and for programs: kolo-explain(1) describes the object's
 * members.
 */
#include "forecast.h"

#include "coll.h"
#include "json.h"
#include "options.h"

#include <string.h>

enum { CELL = 16, TITLE = 512, USUAL_WIDTH = 12 };

static int most_on_a_host(const struct ko_hosts *hosts)
{
    int most = 0;

    for (int host = 0; host < hosts->n; host++)
        most = host_size(hosts, host) > most ? host_size(hosts, host) : most;
    return most;
}

void ko_forecast_title(const struct ko_forecast *forecast, char *text, size_t nbytes)
{
    const struct ko_hosts *hosts = forecast->hosts;
    const int most = most_on_a_host(hosts);
    char least[24] = "";

    if (hosts->least < most)
        snprintf(least, sizeof least, "%d to ", hosts->least);
    snprintf(text, nbytes, "%s among %d ranks: %d host%s of %s%d rank%s and %g core%s, %s",
             ko_collective_name(forecast->what), forecast->situation.n, hosts->n,
             hosts->n == 1 ? "" : "s", least, most, most == 1 ? "" : "s", forecast->costs.cores,
             forecast->costs.cores > 1 ? "s" : "",
             forecast->costs_path ? forecast->costs_path : "costs that usually hold");
}

/* ---- table ------------------------------------------------------------------------------- */

/* Three digits at least. */
static void write_cell(char cell[CELL], const struct ko_forecast_size *size, int i)
{
    const double us = size->us[i];

    if (us > 0)
        snprintf(cell, CELL, "%s%.*f", size->is_estimated[i] ? "~" : "",
                 us < 10    ? 2
                 : us < 100 ? 1
                            : 0,
                 us);
    else
        snprintf(cell, CELL, "-");
}

static int column_width(const struct ko_forecast *forecast, int i, bool is_early)
{
    size_t width = strlen(ko_forecast_name(forecast, i));

    if (is_early)
        width = width < USUAL_WIDTH ? USUAL_WIDTH : width;
    for (int k = 0; k < forecast->nsizes && !is_early; k++) {
        char cell[CELL];

        write_cell(cell, &forecast->sizes[k], i);
        width = strlen(cell) > width ? strlen(cell) : width;
    }
    return (int)width;
}

void ko_forecast_text_size(const struct ko_forecast *forecast, int k, bool is_early, FILE *file)
{
    const struct ko_forecast_size *size = &forecast->sizes[k];
    char text[KO_BYTES_TEXT];

    ko_bytes_text((double)size->nbytes, text);
    fprintf(file, "%8s", text);
    for (int i = 0; i < forecast->nrows; i++) {
        char cell[CELL];

        write_cell(cell, size, i);
        fprintf(file, "  %*s%c", column_width(forecast, i, is_early), cell,
                i == size->fastest ? '*' : ' ');
    }
    fprintf(file, " %s\n", ko_paper_texts[size->chosen].name);
    fflush(file);
}

/* "fastest: doubling, from 2.1 KiB ring, from 1 MiB two_shot" */
static void print_crossings(const struct ko_forecast *forecast, FILE *file)
{
    if (!forecast->ncrossings)
        return;
    fprintf(file, "\nfastest: %s", ko_forecast_name(forecast, forecast->crossings[0].from));
    for (int i = 0; i < forecast->ncrossings; i++) {
        const struct ko_crossing *crossing = &forecast->crossings[i];
        char text[KO_BYTES_TEXT];

        ko_bytes_text(crossing->nbytes, text);
        fprintf(file, ", from %s %s", text, ko_forecast_name(forecast, crossing->to));
    }
    putc('\n', file);
}

static bool has_estimates(const struct ko_forecast *forecast)
{
    bool has = false;

    for (int k = 0; k < forecast->nsizes; k++)
        for (int i = 0; i < forecast->nrows; i++)
            has |= forecast->sizes[k].is_estimated[i];
    return has;
}

void ko_forecast_text_begin(const struct ko_forecast *forecast, bool is_early, FILE *file)
{
    char title[TITLE];

    ko_forecast_title(forecast, title, sizeof title);
    fprintf(file,
            "%s\nmicroseconds for each size of a block; * the fastest, or an equal%s\n\n"
            "%8s",
            title, is_early || has_estimates(forecast) ? "; ~ by what fewer ranks take" : "", "");
    for (int i = 0; i < forecast->nrows; i++)
        fprintf(file, "  %*s ", column_width(forecast, i, is_early), ko_forecast_name(forecast, i));
    fputs(" kolo takes\n", file);
    fflush(file);
}

/* "-: all blocks have to fit into a slice of 128 KiB: bruck" */
static void print_impossible(const struct ko_forecast *forecast, FILE *file)
{
    char text[KO_BYTES_TEXT];
    bool is_first = true;

    ko_bytes_text((double)forecast->situation.slice_bytes, text);
    for (int i = 0; i < forecast->nrows; i++) {
        bool is_empty = false;

        for (int k = 0; k < forecast->nsizes; k++)
            is_empty |= forecast->sizes[k].us[i] <= 0;
        if (!is_empty || !(ko_paper_texts[forecast->rows[i]].flags & KO_SMALL))
            continue;
        if (is_first)
            fprintf(file, "\n-: the blocks of all ranks have to fit into a slice, of %s: ", text);
        fprintf(file, "%s%s", is_first ? "" : ", ", ko_forecast_name(forecast, i));
        is_first = false;
    }
    if (!is_first)
        putc('\n', file);
}

void ko_forecast_text_end(const struct ko_forecast *forecast, FILE *file)
{
    print_crossings(forecast, file);
    print_impossible(forecast, file);
}

/* ---- JSON -------------------------------------------------------------------------------- */

static void print_size(const struct ko_forecast *forecast, const struct ko_forecast_size *size,
                       FILE *file)
{
    fprintf(file, "{\"bytes\": %zu, \"us\": {", size->nbytes);
    for (int i = 0; i < forecast->nrows; i++) {
        fprintf(file, "%s\"%s\": ", i ? ", " : "", ko_forecast_name(forecast, i));
        if (size->us[i] > 0)
            fprintf(file, "%.9g", size->us[i]);
        else
            fputs("null", file);
    }
    fputs("}, \"estimated\": [", file);
    for (int i = 0, n = 0; i < forecast->nrows; i++)
        if (size->is_estimated[i])
            fprintf(file, "%s\"%s\"", n++ ? ", " : "", ko_forecast_name(forecast, i));
    fputs("], \"fastest\": ", file);
    if (size->fastest < 0)
        fputs("null", file);
    else
        fprintf(file, "\"%s\"", ko_forecast_name(forecast, size->fastest));
    fprintf(file, ", \"chosen\": \"%s\"}", ko_paper_texts[size->chosen].name);
}

static void print_crossing(const struct ko_forecast *forecast, const struct ko_crossing *crossing,
                           FILE *file)
{
    fprintf(file, "{\"bytes\": %.0f, \"from\": \"%s\", \"to\": \"%s\"}", crossing->nbytes,
            ko_forecast_name(forecast, crossing->from), ko_forecast_name(forecast, crossing->to));
}

void ko_forecast_json(const struct ko_forecast *forecast, FILE *file)
{
    fprintf(file,
            "{\n  \"collective\": \"%s\",\n  \"ranks\": %d,\n  \"hosts\": %d,\n"
            "  \"per_host\": %d,\n  \"cores\": %.9g,\n",
            ko_collective_name(forecast->what), forecast->situation.n, forecast->hosts->n,
            most_on_a_host(forecast->hosts), forecast->costs.cores);
    fprintf(file, "  \"slice_bytes\": %zu,\n  \"slots\": %d,\n  \"costs\": ",
            forecast->situation.slice_bytes, forecast->situation.slots);
    if (forecast->costs_path)
        ko_json_string(file, forecast->costs_path);
    else
        fputs("null", file);
    fputs(",\n  \"sizes\": [", file);
    for (int k = 0; k < forecast->nsizes; k++) {
        fputs(k ? ",\n    " : "\n    ", file);
        print_size(forecast, &forecast->sizes[k], file);
    }
    fputs("\n  ],\n  \"crossings\": [", file);
    for (int i = 0; i < forecast->ncrossings; i++) {
        fputs(i ? ",\n    " : "\n    ", file);
        print_crossing(forecast, &forecast->crossings[i], file);
    }
    fputs(forecast->ncrossings ? "\n  ]\n}\n" : "]\n}\n", file);
}
