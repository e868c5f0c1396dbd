/* SPDX-License-Identifier: MIT
 *
 * The file of --json: every sample is in it, since only samples can be compared. What follows from
 * them (median, percentiles) is written for other readers and not read back.
 */
#include "json.h"
#include "json_read.h"
#include "perf.h"
#include "status.h"

#include <limits.h>
#include <math.h>
#include <string.h>

/* More wrong elements, or microseconds, there are not. */
static const double MOST = 1e15;

/* ---- writing ----------------------------------------------------------------------------- */

static void print_text(FILE *file, const char *name, const char *text)
{
    fprintf(file, "\"%s\": ", name);
    ko_json_string(file, text);
    fputs(", ", file);
}

/* A figure that could not be had is null. */
static void print_figure(FILE *file, const char *name, double value)
{
    if (value < 0 || !isfinite(value))
        fprintf(file, "\"%s\": null, ", name);
    else
        fprintf(file, "\"%s\": %.7g, ", name, value);
}

static void print_form(FILE *file, const struct ko_perf_figures *f)
{
    const struct {
        const char *name;
        double value;
    } figures[] = {{"wrong", (double)f->nwrong},
                   {"algbw", f->algbw},
                   {"busbw", f->busbw},
                   {"median_us", f->stats.median},
                   {"mean_us", f->stats.mean},
                   {"min_us", f->stats.least},
                   {"p90_us", f->stats.p90},
                   {"p99_us", f->stats.p99},
                   {"max_us", f->stats.most},
                   {"cpu_us", f->cost.cpu_us},
                   {"switches", f->cost.switches},
                   {"syscalls", f->cost.syscalls}};

    if (!f->is_measured) {
        fputs("null", file);
        return;
    }
    putc('{', file);
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        print_figure(file, figures[i].name, figures[i].value);
    fputs("\n      \"samples_us\": [", file);
    for (int i = 0; i < f->nsamples; i++)
        fprintf(file, i ? ", %.7g" : "%.7g", f->samples[i]);
    fputs("]}", file);
}

static void print_row(FILE *file, const struct ko_perf_row *row)
{
    fputs("    {", file);
    print_text(file, "collective", row->collective);
    print_text(file, "type", row->type);
    print_text(file, "redop", row->op);
    fprintf(file, "\"root\": %d, \"bytes\": %zu, \"count\": %zu", row->root, row->nbytes,
            row->count);
    for (int form = 0; form < KO_PERF_NFORMS; form++) {
        fprintf(file, ",\n     \"%s\": ", ko_perf_form_name(form));
        print_form(file, &row->forms[form]);
    }
    putc('}', file);
}

void ko_perf_print_json(FILE *file, const struct ko_perf_options *options,
                        const struct ko_perf_report *report)
{
    fputs("{\n  ", file);
    print_text(file, "kolo_version", kolo_version());
    fprintf(file, "\"ranks\": %d, \"iters\": %d, \"warmup_iters\": %d,", report->nranks,
            options->nsamples, options->warmup);
    ko_perf_settings_print(file, &report->settings);
    fprintf(file, "\n  \"wrong\": %lld, \"busbw\": %.7g,\n  \"rows\": [",
            (long long)ko_perf_report_wrong(report, 0), ko_perf_report_busbw(report, 0));
    for (size_t i = 0; i < report->nrows; i++) {
        fputs(i ? ",\n" : "\n", file);
        print_row(file, &report->rows[i]);
    }
    fputs("\n  ]\n}\n", file);
}

/* ---- reading ----------------------------------------------------------------------------- */

static int copy_text(const struct ko_json *object, const char *name, char *to, size_t cap)
{
    const char *text = ko_json_text(ko_json_member(object, name));

    if (!text || strlen(text) >= cap)
        return ko_fail(KOLO_E_INVALID, "a row has no %s", name);
    memcpy(to, text, strlen(text) + 1);
    return KOLO_OK;
}

static double figure(const struct ko_json *object, const char *name)
{
    return ko_json_number(ko_json_member(object, name), -1);
}

static int read_samples(const struct ko_json *list, struct ko_perf_figures *figures)
{
    size_t n = ko_json_length(list), i = 0;

    if (ko_json_kind(list) != KO_JSON_ARRAY || n == 0 || n > 1 << 24)
        return ko_fail(KOLO_E_INVALID, "a row has no samples_us");
    figures->samples = ko_alloc(n * sizeof *figures->samples, "samples");
    if (!figures->samples)
        return KOLO_E_NOMEM;
    for (const struct ko_json *item = ko_json_first(list); item; item = ko_json_next(item)) {
        figures->samples[i] = ko_json_number(item, -1);
        if (figures->samples[i] < 0 || figures->samples[i++] > MOST)
            return ko_fail(KOLO_E_INVALID, "a sample is not a number of microseconds");
    }
    figures->nsamples = (int)n;
    ko_perf_summarise(figures->samples, figures->nsamples, &figures->stats);
    return KOLO_OK;
}

static int read_form(const struct ko_json *form, struct ko_perf_figures *figures)
{
    const double nwrong = figure(form, "wrong");

    figures->nwrong = -1;
    if (ko_json_kind(form) != KO_JSON_OBJECT)
        return KOLO_OK;
    if (nwrong < -1 || nwrong > MOST)
        return ko_fail(KOLO_E_INVALID, "a row has no number of wrong elements");
    figures->is_measured = true;
    figures->nwrong = (int64_t)nwrong;
    figures->algbw = fmax(0, figure(form, "algbw"));
    figures->busbw = fmax(0, figure(form, "busbw"));
    figures->cost.cpu_us = figure(form, "cpu_us");
    figures->cost.switches = figure(form, "switches");
    figures->cost.syscalls = figure(form, "syscalls");
    return read_samples(ko_json_member(form, "samples_us"), figures);
}

static void free_samples(struct ko_perf_row *row)
{
    for (int form = 0; form < KO_PERF_NFORMS; form++)
        kolo_free(row->forms[form].samples);
}

static int read_row(const struct ko_json *object, struct ko_perf_report *report)
{
    struct ko_perf_row row = {0};
    double nbytes = figure(object, "bytes"), count = figure(object, "count");
    double root = figure(object, "root");
    int err = copy_text(object, "collective", row.collective, sizeof row.collective);

    if (!err)
        err = copy_text(object, "type", row.type, sizeof row.type);
    if (!err)
        err = copy_text(object, "redop", row.op, sizeof row.op);
    if (!err && !(nbytes >= 0 && nbytes < 0x1p53 && count >= 0 && count < 0x1p53))
        err = ko_fail(KOLO_E_INVALID, "a row has no bytes or count");
    if (!err && (root < -1 || root > INT_MAX))
        err = ko_fail(KOLO_E_INVALID, "a row has no root");
    for (int form = 0; form < KO_PERF_NFORMS && !err; form++)
        err = read_form(ko_json_member(object, ko_perf_form_name(form)), &row.forms[form]);
    if (!err) {
        row.nbytes = (size_t)nbytes;
        row.count = (size_t)count;
        row.root = (int)root;
        err = ko_perf_report_add(report, &row);
    }
    if (err)
        free_samples(&row);
    return err;
}

static int read_report(const struct ko_json *document, struct ko_perf_report *report)
{
    const struct ko_json *rows = ko_json_member(document, "rows");
    double nranks = figure(document, "ranks");
    int err = KOLO_OK;

    if (ko_json_kind(rows) != KO_JSON_ARRAY || !(nranks >= 1 && nranks <= 1e6))
        return ko_fail(KOLO_E_INVALID, "it has no rows and ranks");
    report->nranks = (int)nranks;
    ko_perf_settings_read(document, &report->settings);
    for (const struct ko_json *row = ko_json_first(rows); row && !err; row = ko_json_next(row))
        err = read_row(row, report);
    return err;
}

int ko_perf_json_read(const char *path, struct ko_perf_report *report)
{
    struct ko_json *document;
    char why[KO_ERROR_TEXT];
    int err = ko_json_read(path, &document);

    if (err)
        return err;
    err = read_report(document, report);
    ko_json_free(document);
    if (err) {
        snprintf(why, sizeof why, "%s", kolo_last_error());
        ko_perf_report_free(report);
        return ko_fail(err, "%s is not from kolo-perf --json: %s", path, why);
    }
    return KOLO_OK;
}
