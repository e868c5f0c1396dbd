/* SPDX-License-Identifier: MIT
 *
 * A sample is a batch of operations, back to back, divided by their number: the clock is asked
 * twice in at least BATCH_US, so that it costs nothing even where an operation takes a tenth of a
 * microsecond. How many that takes is found by trying, and rank 0 tells the others. With
 * percentiles each operation is a sample; with dirty inputs each is timed by itself, after a
 * barrier. A batch that is a graph is launched as often as was asked for, and its time divided by
 * that too.
 */
#include "perf_bench.h"
#include "perf_device.h"
#include "status.h"

#include <math.h>
#include <stdlib.h>

enum { BATCH_US = 300, MOST_OPERATIONS = 1 << 17, MOST_CAPTURED = 256 };

/* ---- time -------------------------------------------------------------------------------- */

/* The batch that rank 0 would have after one of bench->batch took us. */
static long next_batch(const struct ko_perf_bench *bench, double us)
{
    const double most = bench->options->launches ? MOST_CAPTURED : MOST_OPERATIONS;
    double wanted = (double)bench->batch * 1.2 * BATCH_US / (us > 0 ? us : 1);

    if (us >= BATCH_US || bench->options->percentiles)
        return bench->batch;
    wanted = fmin(fmin(wanted, (double)bench->batch * 8), most);
    return (long)fmax(wanted, 1);
}

/* The first operations of a length may touch memory that none has touched before, and take a
 * hundred times as long as those that follow: some batches one after the other are to be long
 * enough. */
static int find_batch(struct ko_perf_bench *bench)
{
    enum { SURE = 3 };
    const bool is_graph = bench->options->launches != 0;
    int64_t next = bench->options->together && !is_graph ? bench->options->together : 1;
    int err, nlong = 0;

    do {
        double us = 0;

        bench->batch = (long)next;
        err = ko_perf_bench_time(bench, &us);
        next = next_batch(bench, us);
        if (!err)
            err = kolo_broadcast(bench->call->group, &next, 1, KOLO_INT64, 0);
        nlong = next > bench->batch ? 0 : nlong + 1;
    } while (!err && nlong < SURE);
    return err;
}

static int take_samples(struct ko_perf_bench *bench)
{
    const int parts = ko_perf_case_parts(bench->row, bench->call->count * bench->nbytes);
    int err = KOLO_OK;

    for (int i = 0; i < bench->options->nsamples && !err; i++) {
        err = ko_perf_bench_time(bench, &bench->samples[i]);
        bench->samples[i] /= (double)(ko_perf_bench_operations(bench) * parts);
    }
    return err;
}

/* Rank 0's samples become what the ranks' together say. Of a pair rank 0's stay. */
static int average(struct ko_perf_bench *bench)
{
    static const kolo_op ops[] = {
        [KO_PERF_MEAN] = KOLO_AVG, [KO_PERF_LEAST] = KOLO_MIN, [KO_PERF_MOST] = KOLO_MAX};
    enum ko_perf_average how = bench->options->average;

    if (how == KO_PERF_RANK_0 || bench->row->flags & KO_PERF_IS_PAIR)
        return KOLO_OK;
    return kolo_reduce(bench->call->group, bench->samples, bench->samples,
                       (size_t)bench->options->nsamples, KOLO_FLOAT64, ops[how], 0);
}

/* ---- cost -------------------------------------------------------------------------------- */

/* The counters' growth over all processes, for one operation of one rank; on rank 0. */
static int sum_up_cost(const struct ko_perf_bench *bench, const struct ko_perf_counters *begin,
                       struct ko_perf_cost *cost)
{
    const double operations =
        (double)ko_perf_bench_operations(bench) * bench->options->nsamples * bench->call->nranks;
    struct ko_perf_counters end;
    double sums[4] = {0};
    int err;

    ko_perf_cost_read(bench->rank->syscalls_fd, &end);
    if (bench->rank->is_first) {
        sums[0] = end.cpu_us - begin->cpu_us;
        sums[1] = end.switches - begin->switches;
        sums[2] = end.syscalls - begin->syscalls;
        sums[3] = end.syscalls < 0;
    }
    err = kolo_reduce(bench->call->group, sums, sums, 4, KOLO_FLOAT64, KOLO_SUM, 0);
    *cost = (struct ko_perf_cost){sums[0] / operations, sums[1] / operations,
                                  sums[3] > 0 ? -1 : sums[2] / operations};
    return err;
}

/* A barrier on both sides keeps other ranks' threads of the process within the count. */
static int take_time(struct ko_perf_bench *bench, struct ko_perf_figures *figures)
{
    struct ko_perf_counters begin;
    int err = find_batch(bench);

    if (!err)
        err = kolo_barrier(bench->call->group);
    ko_perf_cost_read(bench->rank->syscalls_fd, &begin);
    if (!err)
        err = take_samples(bench);
    if (!err)
        err = kolo_barrier(bench->call->group);
    if (!err && bench->options->cost)
        err = sum_up_cost(bench, &begin, &figures->cost);
    if (!err)
        err = average(bench);
    return err;
}

/* ---- one form of one row ----------------------------------------------------------------- */

static void reckon(const struct ko_perf_bench *bench, struct ko_perf_figures *figures)
{
    const struct ko_perf_call *call = bench->call;
    size_t nbytes = ko_perf_case_bytes(bench->row, call->count, call->dtype, call->nranks);

    figures->is_measured = true;
    figures->samples = bench->samples;
    figures->nsamples = bench->options->nsamples;
    ko_perf_summarise(figures->samples, figures->nsamples, &figures->stats);
    if (figures->stats.median > 0)
        figures->algbw = (double)nbytes * 1e-3 / figures->stats.median;
    figures->busbw = figures->algbw * ko_perf_case_factor(bench->row, call->nranks);
}

/* All that the ranks do together. data is what is in the buffers at the end. */
static int run_all(struct ko_perf_bench *bench, int form, struct ko_perf_figures *figures)
{
    struct ko_perf_data data = {
        .dtype = bench->call->dtype, .op = bench->call->named_op, .nranks = bench->call->nranks};
    bool is_checked = bench->options->check > 0 && !(bench->row->flags & KO_PERF_IS_EMPTY);
    int64_t wrong = 0;
    int err = is_checked ? ko_perf_bench_check(bench, &data, &wrong)
                         : ko_perf_bench_prepare(bench, &data);

    if (!err)
        err = ko_perf_bench_run(bench, bench->options->warmup);
    if (!err)
        err = take_time(bench, figures);
    if (!err && is_checked && ko_perf_case_repeats(bench->row, form))
        err = ko_perf_bench_count_wrong(bench, &data, &wrong);
    if (!err)
        err = kolo_all_reduce(bench->call->group, &wrong, &wrong, 1, KOLO_INT64, KOLO_SUM);
    figures->nwrong = is_checked ? wrong : -1;
    return err;
}

int ko_perf_measure(struct ko_perf_rank *rank, const struct ko_perf_case *row, int form,
                    struct ko_perf_call *call, struct ko_perf_figures *figures)
{
    struct ko_perf_bench bench = {.rank = rank,
                                  .options = rank->options,
                                  .row = row,
                                  .call = call,
                                  .nbytes = kolo_dtype_size(call->dtype)};
    int err;

    bench.samples = ko_alloc((size_t)rank->options->nsamples * sizeof(double), "samples");
    if (!bench.samples)
        return KOLO_E_NOMEM;
    ko_perf_call_place(row, form, (char *)rank->a + rank->options->unalign * bench.nbytes,
                       (char *)rank->b + rank->options->unalign * bench.nbytes, call);
    figures->cost = (struct ko_perf_cost){-1, -1, -1};
    err = run_all(&bench, form, figures);
    if (!err && call->rank == 0)
        reckon(&bench, figures);
    else
        free(bench.samples);
    return err;
}
