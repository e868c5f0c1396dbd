/* SPDX-License-Identifier: MIT
 *
 * perf_bench.h: one form of one row under way: its operations are carried out, checked
 * (perf_check.c) and timed (perf_measure.c).
 */
#ifndef KO_PERF_BENCH_H
#define KO_PERF_BENCH_H

#include "perf.h"
#include "perf_case.h"
#include "perf_data.h"

struct ko_perf_bench {
    struct ko_perf_rank *rank;
    const struct ko_perf_options *options;
    const struct ko_perf_case *row;
    struct ko_perf_call *call;
    size_t nbytes; /* of one element */
    long batch;    /* operations of a sample */
    double *samples;
    long captured; /* operations in the graph of the rank's device; 0: there is none */
};

/* ---- operations -------------------------------------------------------------------------- */

/* n operations, one after the other or as many at once as the options say; as one launch of a graph
 * where these want one. They are done when it returns. */
int ko_perf_bench_run(struct ko_perf_bench *bench, long n);

/* A sample's, with the time that they took: the clock's, or on a GPU its stream's. */
int ko_perf_bench_time(struct ko_perf_bench *bench, double *us);

/* Operations that ko_perf_bench_time carries out. */
long ko_perf_bench_operations(const struct ko_perf_bench *bench);

/* ---- checks ------------------------------------------------------------------------------ */

/* This rank's input of data, and an output that no operation gives. */
int ko_perf_bench_prepare(const struct ko_perf_bench *bench, const struct ko_perf_data *data);

/* Adds the elements that are not what the operation makes of data. */
int ko_perf_bench_count_wrong(const struct ko_perf_bench *bench, const struct ko_perf_data *data,
                              int64_t *wrong);

/* Runs as often as the options say, on other data each time, and adds what is wrong; data is what
 * the last of them had. */
int ko_perf_bench_check(struct ko_perf_bench *bench, struct ko_perf_data *data, int64_t *wrong);

#endif
