/* SPDX-License-Identifier: MIT
 *
 * The table of nccl-tests, column for column, since there are programs that read it; what it does
 * not have (percentiles, cost, a time stamp) follows each form's four columns or the line. A form
 * that an operation does not have is N/A in all its columns.
 */
#include "perf.h"

#include "perf_case.h"

#include <math.h>
#include <string.h>
#include <time.h>

/* ---- head and foot ----------------------------------------------------------------------- */

void ko_perf_print_start(FILE *file, const struct ko_perf_options *options,
                         const struct ko_perf_case *row)
{
    char step[40];

    if (options->step_factor > 0)
        snprintf(step, sizeof step, "%g(factor)", options->step_factor);
    else
        snprintf(step, sizeof step, "%zu(bytes)", options->step_bytes);
    fprintf(file, "# kolo-perf version %s\n", kolo_version());
    fprintf(file, "# Collective test starting: %s\n", row->name);
    fprintf(file,
            "# nThread %d nGpus 1 minBytes %zu maxBytes %zu step: %s warmup iters: %d "
            "iters: %d agg iters: %d validation: %d graph: %d unalign: %zu\n",
            options->nthreads, options->min_bytes, options->max_bytes, step, options->warmup,
            options->nsamples, options->together ? options->together : 1, options->check,
            options->launches, options->unalign);
    fprintf(file, "# time: median of %d samples%s, of %s calls%s%s", options->nsamples,
            options->percentiles ? " of one operation each" : "",
            options->together && !(row->flags & KO_PERF_IS_PAIR) ? "asynchronous" : "blocking",
            options->dirty ? ", inputs rewritten before each" : "",
            options->pin ? ", ranks pinned" : "");
    if (options->shared)
        fputs(", shared memory", file);
    if (options->on_gpu)
        fputs(options->launches ? ", by a stream's events, as a graph" : ", by a stream's events",
              file);
    if (row->flags & KO_PERF_TENSORS)
        fprintf(file, ", %d tensors", options->tensors);
    fputs(row->flags & KO_PERF_UNEVEN ? ", uneven blocks\n" : "\n", file);
    fputs("#\n# Using devices\n", file);
}

static const char *const percentile_names[] = {"p50", "p90", "p99", "max"};
static const char *const cost_names[] = {"cpu", "switch", "syscall"};
static const char *const cost_units[] = {"(us)", "(/op)", "(/op)"};
enum { NPERCENTILES = 4, NCOSTS = 3 };

/* One line of the head for one form: names, or units. */
static void print_form_head(FILE *file, const struct ko_perf_options *options, bool is_units)
{
    if (is_units)
        fprintf(file, "  %7s  %6s  %6s  %6s", "(us)", "(GB/s)", "(GB/s)", "");
    else
        fprintf(file, "  %7s  %6s  %6s  %6s", "time", "algbw", "busbw", "#wrong");
    for (int i = 0; i < NPERCENTILES && options->percentiles; i++)
        fprintf(file, "  %7s", is_units ? "(us)" : percentile_names[i]);
    for (int i = 0; i < NCOSTS && options->cost; i++)
        fprintf(file, "  %7s", is_units ? cost_units[i] : cost_names[i]);
}

void ko_perf_print_head(FILE *file, const struct ko_perf_options *options)
{
    int width =
        33 + (options->percentiles ? 9 * NPERCENTILES : 0) + (options->cost ? 9 * NCOSTS : 0);

    fprintf(file, "#\n# %10s  %12s  %8s  %6s  %6s", "", "", "", "", "");
    fprintf(file, "  %*s%*s\n", -width, "         out-of-place", -width, "           in-place");
    fprintf(file, "# %10s  %12s  %8s  %6s  %6s", "size", "count", "type", "redop", "root");
    print_form_head(file, options, false);
    print_form_head(file, options, false);
    fprintf(file, "%s\n# %10s  %12s  %8s  %6s  %6s", options->timestamps ? "  timestamp" : "",
            "(B)", "(elements)", "", "", "");
    print_form_head(file, options, true);
    print_form_head(file, options, true);
    putc('\n', file);
}

void ko_perf_print_end(FILE *file, const struct ko_perf_report *report, size_t from,
                       const char *collective)
{
    int64_t wrong = ko_perf_report_wrong(report, from);

    fprintf(file, "# %-20s : %lld %s\n", "Out of bounds values", (long long)wrong,
            wrong ? "FAILED" : "OK");
    fprintf(file, "# %-20s : %g \n#\n", "Avg bus bandwidth", ko_perf_report_busbw(report, from));
    fprintf(file, "# Collective test concluded: %s\n#\n", collective);
    fflush(file);
}

/* ---- rows -------------------------------------------------------------------------------- */

/* With as many decimals as the width has room for, three at most; < 0 is "-". */
static void print_number(FILE *file, double value, int width)
{
    int decimals = value < 9.9995 ? 3 : value < 999.995 ? 2 : value < 99999.95 ? 1 : 0;

    if (value < 0)
        fprintf(file, "  %*s", width, "-");
    else if (value >= pow(10, width))
        fprintf(file, "  %*.*e", width, width - 6, value);
    else
        fprintf(file, "  %*.*f", width, decimals < width - 4 ? decimals : width - 4, value);
}

static void print_figures(FILE *file, const struct ko_perf_options *options,
                          const struct ko_perf_figures *figures)
{
    const struct ko_perf_stats *stats = &figures->stats;
    const double percentiles[] = {stats->median, stats->p90, stats->p99, stats->most};
    const double costs[] = {figures->cost.cpu_us, figures->cost.switches, figures->cost.syscalls};

    print_number(file, stats->median, 7);
    print_number(file, figures->algbw, 6);
    print_number(file, figures->busbw, 6);
    if (figures->nwrong < 0)
        fprintf(file, "  %6s", "N/A");
    else
        fprintf(file, "  %6lld", (long long)figures->nwrong);
    for (int i = 0; i < NPERCENTILES && options->percentiles; i++)
        print_number(file, percentiles[i], 7);
    for (int i = 0; i < NCOSTS && options->cost; i++)
        print_number(file, costs[i], 7);
}

static void print_nothing(FILE *file, const struct ko_perf_options *options)
{
    int more = (options->percentiles ? NPERCENTILES : 0) + (options->cost ? NCOSTS : 0);

    fprintf(file, "  %7s  %6s  %6s  %6s", "N/A", "N/A", "N/A", "N/A");
    for (int i = 0; i < more; i++)
        fprintf(file, "  %7s", "N/A");
}

void ko_perf_print_row(FILE *file, const struct ko_perf_options *options,
                       const struct ko_perf_row *row)
{
    fprintf(file, "%12zu  %12zu  %8s  %6s  %6d", row->nbytes, row->count,
            ko_perf_dtype_shown(row->type), row->op, row->root);
    for (int form = 0; form < KO_PERF_NFORMS; form++)
        if (row->forms[form].is_measured)
            print_figures(file, options, &row->forms[form]);
        else
            print_nothing(file, options);
    if (options->timestamps) {
        time_t now = time(NULL);
        struct tm local;
        char text[32];

        if (strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", localtime_r(&now, &local)))
            fprintf(file, "  %s", text);
    }
    putc('\n', file);
    fflush(file);
}

/* ---- CSV --------------------------------------------------------------------------------- */

void ko_perf_print_csv(FILE *file, const struct ko_perf_report *report)
{
    fputs("collective,ranks,bytes,count,type,redop,root,form,median_us,mean_us,min_us,p90_us,"
          "p99_us,max_us,samples,algbw,busbw,wrong,cpu_us,switches,syscalls\n",
          file);
    for (size_t i = 0; i < report->nrows; i++)
        for (int form = 0; form < KO_PERF_NFORMS; form++) {
            const struct ko_perf_row *row = &report->rows[i];
            const struct ko_perf_figures *f = &row->forms[form];
            const double figures[] = {f->stats.median, f->stats.mean, f->stats.least,
                                      f->stats.p90,    f->stats.p99,  f->stats.most};
            const double costs[] = {f->cost.cpu_us, f->cost.switches, f->cost.syscalls};

            if (!f->is_measured)
                continue;
            fprintf(file, "%s,%d,%zu,%zu,%s,%s,%d,%s", row->collective, report->nranks, row->nbytes,
                    row->count, row->type, row->op, row->root, ko_perf_form_name(form));
            for (int k = 0; k < 6; k++)
                fprintf(file, ",%.6g", figures[k]);
            fprintf(file, ",%d,%.6g,%.6g", f->nsamples, f->algbw, f->busbw);
            fprintf(file, f->nwrong < 0 ? "," : ",%lld", (long long)f->nwrong);
            for (int k = 0; k < NCOSTS; k++)
                fprintf(file, costs[k] < 0 ? "," : ",%.6g", costs[k]);
            putc('\n', file);
        }
}
