/* SPDX-License-Identifier: MIT
 *
 * perf_stats.h: what is said of a set of times. Samples are the caller's, n > 0; nothing is kept.
 */
#ifndef KO_PERF_STATS_H
#define KO_PERF_STATS_H

#include <stdbool.h>

struct ko_perf_stats {
    double median, mean, least, p90, p99, most;
};

/* Sorts the samples and sums them up. */
void ko_perf_summarise(double *samples, int n, struct ko_perf_stats *stats);

/* The smallest sample that at least the share q of them does not exceed. samples ascending. */
double ko_perf_quantile(const double *samples, int n, double q);

/* Half of the samples are below, half above. samples ascending. */
double ko_perf_median(const double *samples, int n);

/* ---- comparing --------------------------------------------------------------------------- */

/* Of fewer samples there is no such interval: of 2 it holds the ratio in two cases of three. */
enum { KO_PERF_LEAST_SAMPLES = 5 };

/* The ratio of two medians, and where it lies with 95 % confidence: !is_known: nobody knows, of too
 * few samples, or of times of 0. */
struct ko_perf_ratio {
    double value, low, high;
    bool is_known;
};

enum ko_perf_verdict { KO_PERF_SAME, KO_PERF_FASTER, KO_PERF_SLOWER, KO_PERF_UNKNOWN };

/* now / base by the percentile bootstrap, from a fixed seed: the same samples give the same
 * interval. Both ascending. */
struct ko_perf_ratio ko_perf_ratio_of(const double *now, int nnow, const double *base, int nbase);

/* FASTER or SLOWER only if the whole interval is further from 1 than margin, UNKNOWN without one.
 */
enum ko_perf_verdict ko_perf_judge(const struct ko_perf_ratio *ratio, double margin);

#endif
