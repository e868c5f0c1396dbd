/* SPDX-License-Identifier: MIT
 *
 * Two reports side by side. A row of the one is looked for in the other by all that it is, but for
 * the times.
 */
#include "perf.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_same_row(const struct ko_perf_row *a, const struct ko_perf_row *b)
{
    return a->nbytes == b->nbytes && a->root == b->root && !strcmp(a->collective, b->collective) &&
           !strcmp(a->type, b->type) && !strcmp(a->op, b->op);
}

/* The row's counterpart; NULL. Of several (of --run-cycles) the last, which is the warmest. */
static const struct ko_perf_row *find(const struct ko_perf_report *report,
                                      const struct ko_perf_row *row)
{
    for (size_t i = report->nrows; i > 0; i--)
        if (is_same_row(&report->rows[i - 1], row))
            return &report->rows[i - 1];
    return NULL;
}

/* "-" where it is not known. */
static void print_bound(FILE *file, bool is_known, double value)
{
    if (is_known)
        fprintf(file, "  %6.3f", value);
    else
        fprintf(file, "  %6s", "-");
}

static enum ko_perf_verdict print_pair(FILE *file, const struct ko_perf_row *row, int form,
                                       const struct ko_perf_figures *base, double margin)
{
    static const char *const verdicts[] = {[KO_PERF_SAME] = "same",
                                           [KO_PERF_FASTER] = "faster",
                                           [KO_PERF_SLOWER] = "slower",
                                           [KO_PERF_UNKNOWN] = "?"};
    const struct ko_perf_figures *now = &row->forms[form];
    const struct ko_perf_ratio ratio =
        ko_perf_ratio_of(now->samples, now->nsamples, base->samples, base->nsamples);
    const enum ko_perf_verdict verdict = ko_perf_judge(&ratio, margin);

    fprintf(file, "%-14s  %12zu  %8s  %6s  %4d  %12s  %10.3f  %10.3f", row->collective, row->nbytes,
            ko_perf_dtype_shown(row->type), row->op, row->root, ko_perf_form_name(form),
            base->stats.median, now->stats.median);
    print_bound(file, isfinite(ratio.value), ratio.value);
    print_bound(file, ratio.is_known, ratio.low);
    print_bound(file, ratio.is_known, ratio.high);
    fprintf(file, "  %s\n", verdicts[verdict]);
    return verdict;
}

/* Adds the row's verdicts to counts. */
static void print_row(FILE *file, const struct ko_perf_row *base, const struct ko_perf_row *now,
                      double margin, int counts[])
{
    for (int form = 0; form < KO_PERF_NFORMS; form++)
        if (base->forms[form].is_measured && now->forms[form].is_measured)
            counts[print_pair(file, now, form, &base->forms[form], margin)]++;
}

/* Where each rank could have had a core, but the kernel chose. */
static bool is_left_to_luck(const struct ko_perf_report *report)
{
    return !strcmp(report->settings.text[KO_PERF_SET_PINNED], "false") &&
           report->nranks <= atoi(report->settings.text[KO_PERF_SET_CORES]);
}

/* What speaks against taking the one for a base of the other. */
static void print_doubts(FILE *file, const struct ko_perf_report *base,
                         const struct ko_perf_report *now)
{
    if (base->nranks != now->nranks)
        fprintf(file, "# The base is of %d ranks, this is of %d\n", base->nranks, now->nranks);
    ko_perf_settings_compare(file, &base->settings, &now->settings);
    if (is_left_to_luck(base) || is_left_to_luck(now))
        fprintf(file, "# Without --pin two ranks may have shared a core for a while, where there "
                      "was one for each\n");
}

void ko_perf_print_comparison(FILE *file, const struct ko_perf_report *base,
                              const struct ko_perf_report *now, double margin)
{
    int counts[KO_PERF_UNKNOWN + 1] = {0}, alone = 0;

    fprintf(file,
            "# Medians against the base's, with the interval of 95 %% confidence; up to "
            "%g %% is the same\n",
            100 * margin);
    print_doubts(file, base, now);
    fprintf(file, "# %-12s  %12s  %8s  %6s  %4s  %12s  %10s  %10s  %6s  %6s  %6s\n", "collective",
            "size (B)", "type", "redop", "root", "form", "base (us)", "now (us)", "ratio", "low",
            "high");
    for (size_t i = 0; i < now->nrows; i++) {
        const struct ko_perf_row *other = find(base, &now->rows[i]);

        if (other)
            print_row(file, other, &now->rows[i], margin, counts);
        else
            alone++;
    }
    if (counts[KO_PERF_UNKNOWN])
        fprintf(file,
                "# ?: nothing can be said with 95 %% confidence of fewer than %d samples of either "
                "run (-n), or of times of 0\n",
                KO_PERF_LEAST_SAMPLES);
    fprintf(file, "# %d faster, %d slower, %d the same", counts[KO_PERF_FASTER],
            counts[KO_PERF_SLOWER], counts[KO_PERF_SAME]);
    if (counts[KO_PERF_UNKNOWN])
        fprintf(file, ", %d unknown", counts[KO_PERF_UNKNOWN]);
    fprintf(file, alone ? "; %d rows are not in the base\n" : "\n", alone);
}
