/* SPDX-License-Identifier: MIT
 *
 * Times of a shared machine have a long tail, so that the median says what an operation takes and
 * the bootstrap how well that is known: both sets are drawn from themselves, with replacement,
 * RESAMPLES times, and the middle 95 % of the ratios of their medians are the interval. Samples
 * that follow each other are not independent of each other, nor are two runs alike; hence a margin.
 */
#include "perf_stats.h"

#include <stdint.h>
#include <stdlib.h>

enum { RESAMPLES = 2000 };

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double ko_perf_quantile(const double *samples, int n, double q)
{
    double rank = q * n;
    int index = (int)rank;

    if (index < rank) /* rounded up, counted from 1 */
        index++;
    return samples[index < 1 ? 0 : index > n ? n - 1 : index - 1];
}

double ko_perf_median(const double *samples, int n)
{
    return (samples[(n - 1) / 2] + samples[n / 2]) / 2;
}

void ko_perf_summarise(double *samples, int n, struct ko_perf_stats *stats)
{
    double sum = 0;

    qsort(samples, (size_t)n, sizeof *samples, compare);
    for (int i = 0; i < n; i++)
        sum += samples[i];
    stats->median = ko_perf_median(samples, n);
    stats->mean = sum / n;
    stats->least = samples[0];
    stats->p90 = ko_perf_quantile(samples, n, 0.9);
    stats->p99 = ko_perf_quantile(samples, n, 0.99);
    stats->most = samples[n - 1];
}

/* ---- comparing --------------------------------------------------------------------------- */

/* Marsaglia's xorshift: good enough to draw with. */
static uint32_t draw(uint64_t *state, int n)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (uint32_t)((*state >> 32) * (uint64_t)n >> 32);
}

/* The median of n samples drawn from the n given ones. times has room for n counts. */
static double drawn_median(const double *samples, int n, int *times, uint64_t *state)
{
    int low = (n - 1) / 2, high = n / 2, seen = 0, i = 0;
    double lower;

    for (int k = 0; k < n; k++)
        times[k] = 0;
    for (int k = 0; k < n; k++)
        times[draw(state, n)]++;
    while (seen + times[i] <= low)
        seen += times[i++];
    lower = samples[i];
    while (seen + times[i] <= high)
        seen += times[i++];
    return (lower + samples[i]) / 2;
}

struct ko_perf_ratio ko_perf_ratio_of(const double *now, int nnow, const double *base, int nbase)
{
    double value = ko_perf_median(now, nnow) / ko_perf_median(base, nbase);
    struct ko_perf_ratio ratio = {value, value, value, false};
    int *times = calloc((size_t)(nnow > nbase ? nnow : nbase), sizeof *times);
    double *ratios = malloc(sizeof *ratios * RESAMPLES);
    uint64_t state = 0x9e3779b97f4a7c15;

    ratio.is_known = (nnow < nbase ? nnow : nbase) >= KO_PERF_LEAST_SAMPLES && now[0] > 0 &&
                     base[0] > 0 && times && ratios;
    for (int i = 0; ratio.is_known && i < RESAMPLES; i++) {
        double drawn = drawn_median(now, nnow, times, &state);

        ratios[i] = drawn / drawn_median(base, nbase, times, &state);
    }
    if (ratio.is_known) {
        qsort(ratios, RESAMPLES, sizeof *ratios, compare);
        ratio.low = ko_perf_quantile(ratios, RESAMPLES, 0.025);
        ratio.high = ko_perf_quantile(ratios, RESAMPLES, 0.975);
    }
    free(times);
    free(ratios);
    return ratio;
}

enum ko_perf_verdict ko_perf_judge(const struct ko_perf_ratio *ratio, double margin)
{
    if (!ratio->is_known)
        return KO_PERF_UNKNOWN;
    return ratio->high < 1 - margin  ? KO_PERF_FASTER
           : ratio->low > 1 + margin ? KO_PERF_SLOWER
                                     : KO_PERF_SAME;
}
