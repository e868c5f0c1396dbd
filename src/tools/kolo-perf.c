/* SPDX-License-Identifier: MIT
 *
 * kolo-perf: how fast kolo's collectives and messages are here, and whether they are right.
 */
#include "perf.h"

#include "perf_tune.h"
#include "status.h"
#include "tuning.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct results {
    const struct ko_perf_options *options;
    int out; /* standard output, for the file "-", while the table goes to standard error; or -1 */
    struct ko_perf_report report, base;
};

/* Whether this process has rank 0, which alone reads and writes files. */
static bool is_first(const struct results *results)
{
    return results->options->placement.rank == 0;
}

/* ---- files ------------------------------------------------------------------------------- */

static bool is_dash(const char *path)
{
    return path && !strcmp(path, "-");
}

/* Who reads the file "-" reads nothing else there. */
static int divert_table(struct results *results)
{
    const struct ko_perf_options *options = results->options;

    if (!is_dash(options->json) && !is_dash(options->csv) && !is_dash(options->plot))
        return KOLO_OK;
    results->out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0);
    if (results->out < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
        return ko_fail_errno(errno, "standard output");
    return KOLO_OK;
}

static bool is_pipe(const char *path)
{
    struct stat status;

    return !stat(path, &status) && S_ISFIFO(status.st_mode);
}

/* Better said before an hour of measuring than after it. What is in the file stays there, and none
 * is left behind that was not there: measuring may end early. Who reads a pipe would read of its
 * end when it is closed. */
static int check_writable(const char *path)
{
    int fd;

    if (!path || is_dash(path))
        return KOLO_OK;
    if (is_pipe(path))
        return access(path, W_OK) ? ko_fail_errno(errno, "%s", path) : KOLO_OK;
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0)
        unlink(path);
    else if (errno == EEXIST)
        fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600); /* of a link to none */
    if (fd < 0)
        return ko_fail_errno(errno, "%s", path);
    close(fd);
    return KOLO_OK;
}

static int prepare_files(struct results *results)
{
    const struct ko_perf_options *options = results->options;
    const char *const written[] = {options->json, options->csv, options->plot};
    int err = KOLO_OK;

    if (options->load)
        err = ko_perf_json_read(options->load, &results->report);
    if (!err && options->compare)
        err = ko_perf_json_read(options->compare, &results->base);
    for (int i = 0; i < 3 && !err; i++)
        err = check_writable(written[i]);
    return err ? err : divert_table(results);
}

enum format { FORMAT_JSON, FORMAT_CSV, FORMAT_PLOT };

static FILE *open_output(const char *path, const struct results *results)
{
    return is_dash(path) ? fdopen(results->out, "w") : fopen(path, "we");
}

static void draw(FILE *file, const struct results *results)
{
    const struct ko_perf_plotted plotted = ko_perf_plot(file, &results->report, &results->base);

    if (!plotted.nlines)
        printf("# --plot has nothing to draw: no row is of more than 0 bytes\n");
    else if (plotted.ndrawn < plotted.nlines)
        printf("# --plot draws %d of %d lines\n", plotted.ndrawn, plotted.nlines);
}

/* path NULL: not wished for. */
static int write_file(const char *path, enum format format, const struct results *results)
{
    FILE *file = path ? open_output(path, results) : NULL;
    bool is_bad = !file;

    if (!path)
        return KOLO_OK;
    if (file) {
        if (format == FORMAT_JSON)
            ko_perf_print_json(file, results->options, &results->report);
        else if (format == FORMAT_CSV)
            ko_perf_print_csv(file, &results->report);
        else
            draw(file, results);
        is_bad = ferror(file);
        is_bad |= fclose(file) != 0;
    }
    return is_bad ? ko_fail_errno(errno, "%s", is_dash(path) ? "standard output" : path) : KOLO_OK;
}

static int write_files(const struct results *results)
{
    const struct ko_perf_options *options = results->options;
    int err;

    if (options->compare)
        ko_perf_print_comparison(stdout, &results->base, &results->report, options->margin);
    err = write_file(options->json, FORMAT_JSON, results);
    if (!err)
        err = write_file(options->csv, FORMAT_CSV, results);
    if (!err)
        err = write_file(options->plot, FORMAT_PLOT, results);
    if (!err && (fflush(stdout) || ferror(stdout)))
        err = ko_fail_errno(errno, "standard output");
    return err;
}

/* ---- the run ----------------------------------------------------------------------------- */

/* Returns the exit code of the run that it is of. */
static int print_loaded(const struct ko_perf_options *options, const struct ko_perf_report *report)
{
    ko_perf_print_head(stdout, options);
    for (size_t i = 0; i < report->nrows; i++)
        ko_perf_print_row(stdout, options, &report->rows[i]);
    return ko_perf_report_wrong(report, 0) ? KO_PERF_WRONG : KO_PERF_FINE;
}

static int perform(struct results *results)
{
    const struct ko_perf_options *options = results->options;
    int code = KO_PERF_FINE, err = KOLO_OK;

    if (!options->load)
        ko_perf_settings_take(&results->report.settings, options);
    if (is_first(results))
        err = prepare_files(results);
    if (!err && options->load)
        code = print_loaded(options, &results->report);
    else if (!err)
        code = ko_perf_run(options, &results->report);
    if (!err && code != KO_PERF_FAILED && is_first(results))
        err = write_files(results);
    if (err)
        fprintf(stderr, "kolo-perf: %s\n", kolo_last_error());
    return err ? KO_PERF_FAILED : code;
}

static void say_tuned(const char *path, double apart)
{
    printf("%s: set KOLO_TUNING to it; kolo-info --algorithms shows what it changes\n", path);
    if (apart > 0)
        printf("measured by cores %.3g us from each other and back\n", apart);
    else
        printf("measured by cores that came near each other and went far: costs may be of both\n");
}

static int tune(const struct ko_perf_options *options)
{
    const char *path = options->tune;
    const bool is_first = options->placement.rank == 0;
    struct ko_costs costs;
    double apart = 0;
    int err = is_first ? check_writable(path) : KOLO_OK;

    if (!err && is_first)
        err = ko_tuning_check_beside(path);
    if (!err)
        err = ko_perf_tune(&options->placement, options->nsamples, &costs, &apart);
    if (!err && is_first)
        err = ko_tuning_write(path, &costs);
    if (err)
        fprintf(stderr, "kolo-perf: %s\n", kolo_last_error());
    else if (is_first)
        say_tuned(path, apart);
    return err ? KO_PERF_FAILED : KO_PERF_FINE;
}

int main(int argc, char **argv)
{
    struct ko_perf_options options;
    struct results results = {.options = &options, .out = -1};
    int code;

    ko_perf_options_read(&options, argc, argv);
    if (options.tune)
        return tune(&options);
    if (options.nprocs > 0)
        return ko_perf_start(&options, argc, argv);
    code = perform(&results);
    ko_perf_report_free(&results.report);
    ko_perf_report_free(&results.base);
    return code;
}
