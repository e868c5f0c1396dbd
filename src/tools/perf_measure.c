/* SPDX-License-Identifier: MIT
 *
 * A sample is a batch of operations, back to back, divided by their number: the clock is asked
 * twice in at least BATCH_US, so that it costs nothing even where an operation takes a tenth of a
 * microsecond. How many that takes is found by trying, and rank 0 tells the others. With
 * percentiles each operation is a sample; with dirty inputs each is timed by itself, after a
 * barrier.
 */
#include "perf.h"

#include "clock.h"
#include "dtype.h"
#include "perf_case.h"
#include "perf_data.h"
#include "status.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH_US = 300, MOST_OPERATIONS = 1 << 17, LINE = 64 };

/* One form of one row. */
struct bench {
    struct ko_perf_rank *rank;
    const struct ko_perf_options *options;
    const struct ko_perf_case *row;
    struct ko_perf_call *call;
    size_t nbytes; /* of one element */
    long batch;    /* operations of a sample */
    double *samples;
};

/* ---- operations -------------------------------------------------------------------------- */

/* n asynchronous calls, all posted before the first is waited for. */
static int run_together(const struct bench *bench, long n)
{
    kolo_work **works = bench->rank->works;
    long posted = 0;
    int err = KOLO_OK;

    while (posted < n && !err) {
        err = bench->row->run(bench->call, &works[posted]);
        posted += !err;
    }
    for (long i = 0; i < posted; i++) {
        int failed = kolo_work_wait(works[i], -1);

        err = err ? err : failed;
        kolo_work_free(works[i]);
    }
    return err;
}

static int run(const struct bench *bench, long n)
{
    const int together = bench->options->together;
    int err = KOLO_OK;

    if (together && !(bench->row->flags & KO_PERF_IS_PAIR)) {
        for (long done = 0; done < n && !err; done += together)
            err = run_together(bench, n - done < together ? n - done : together);
        return err;
    }
    for (long i = 0; i < n && !err; i++)
        err = bench->row->run(bench->call, NULL);
    return err;
}

/* ---- checks ------------------------------------------------------------------------------ */

static int prepare(const struct bench *bench, const struct ko_perf_data *data)
{
    const struct ko_perf_call *call = bench->call;
    struct ko_perf_pattern *pattern;
    int err = ko_perf_pattern_new(data, call->rank, &pattern);

    if (err)
        return err;
    for (int t = 0; t < call->ntensors; t++) {
        const struct ko_perf_piece in = ko_perf_call_in(bench->row, call, t);

        for (int b = 0; b < ko_perf_call_blocks(bench->row, call); b++) {
            const struct ko_perf_piece out = ko_perf_call_out(bench->row, call, t, b);

            memset(out.at, 0xaa, out.count * bench->nbytes);
        }
        ko_perf_pattern_fill(pattern, in.at, in.from, in.count);
    }
    ko_perf_pattern_free(pattern);
    return KOLO_OK;
}

static int count_wrong_block(const struct bench *bench, const struct ko_perf_data *data, int block,
                             int64_t *wrong)
{
    const int source = bench->row->source(bench->call, block);
    struct ko_perf_pattern *pattern;
    int err = source == KO_PERF_NOTHING ? KOLO_OK : ko_perf_pattern_new(data, source, &pattern);

    if (err || source == KO_PERF_NOTHING)
        return err;
    for (int t = 0; t < bench->call->ntensors; t++) {
        const struct ko_perf_piece out = ko_perf_call_out(bench->row, bench->call, t, block);

        *wrong += (int64_t)ko_perf_pattern_wrong(pattern, out.at, out.from, out.count);
    }
    ko_perf_pattern_free(pattern);
    return KOLO_OK;
}

static int count_wrong(const struct bench *bench, const struct ko_perf_data *data, int64_t *wrong)
{
    int err = KOLO_OK;

    for (int b = 0; b < ko_perf_call_blocks(bench->row, bench->call) && !err; b++)
        err = count_wrong_block(bench, data, b, wrong);
    return err;
}

/* Sums whose last bit depends on the order must be those of rank 0 on all ranks, and again. */
static int check_bits(const struct bench *bench, struct ko_perf_data data, int64_t *wrong)
{
    const struct ko_perf_call *call = bench->call;
    size_t nbytes = call->count * bench->nbytes;
    int err = KOLO_OK;

    data.is_rough = true;
    for (int run_number = 0; run_number < 2 && !err; run_number++) {
        err = prepare(bench, &data);
        if (!err)
            err = run(bench, 1);
        if (!err && run_number == 0) {
            memcpy(bench->rank->copy, call->out, nbytes);
            err = kolo_broadcast(call->group, bench->rank->copy, call->count, call->dtype, 0);
        }
        if (!err)
            *wrong += (int64_t)ko_perf_count_unequal(call->out, bench->rank->copy, call->count,
                                                     bench->nbytes);
    }
    return err;
}

/* Everybody's result, and it depends on the order of summing? */
static bool has_order(const struct bench *bench)
{
    return (bench->row->flags & ~(unsigned)KO_PERF_TENSORS) == KO_PERF_REDUCES &&
           ko_dtype_is_float(bench->call->dtype) && bench->call->op != KOLO_MIN &&
           bench->call->op != KOLO_MAX;
}

static int check(const struct bench *bench, struct ko_perf_data *data, int64_t *wrong)
{
    int err = KOLO_OK;

    for (int i = 0; i < bench->options->check && !err; i++) {
        data->seed++;
        if (has_order(bench))
            err = check_bits(bench, *data, wrong);
        if (!err)
            err = prepare(bench, data);
        if (!err)
            err = run(bench, 1);
        if (!err)
            err = count_wrong(bench, data, wrong);
    }
    return err;
}

/* ---- time -------------------------------------------------------------------------------- */

/* A word of each cache line: the lines then are this core's. */
static void rewrite(const struct bench *bench)
{
    for (int t = 0; t < bench->call->ntensors; t++) {
        const struct ko_perf_piece in = ko_perf_call_in(bench->row, bench->call, t);
        volatile unsigned char *bytes = in.at;

        for (size_t i = 0; i < in.count * bench->nbytes; i += LINE)
            bytes[i] = bytes[i];
    }
}

static double us_since(int64_t begin_ns)
{
    return (double)(ko_now_ns() - begin_ns) * 1e-3;
}

static int time_dirty(const struct bench *bench, double *us)
{
    int err = KOLO_OK;

    *us = 0;
    for (long i = 0; i < bench->batch && !err; i++) {
        int64_t begin;

        rewrite(bench);
        err = kolo_barrier(bench->call->group);
        begin = ko_now_ns();
        if (!err)
            err = run(bench, 1);
        *us += us_since(begin);
    }
    return err;
}

static int time_batch(const struct bench *bench, double *us)
{
    int64_t begin = ko_now_ns();
    int err;

    if (bench->options->dirty)
        return time_dirty(bench, us);
    err = run(bench, bench->batch);
    *us = us_since(begin);
    return err;
}

/* The batch that rank 0 would have after one of bench->batch took us. */
static long next_batch(const struct bench *bench, double us)
{
    double wanted = (double)bench->batch * 1.2 * BATCH_US / (us > 0 ? us : 1);

    if (us >= BATCH_US || bench->options->percentiles)
        return bench->batch;
    wanted = fmin(fmin(wanted, (double)bench->batch * 8), MOST_OPERATIONS);
    return (long)fmax(wanted, 1);
}

static int find_batch(struct bench *bench)
{
    int64_t next = bench->options->together ? bench->options->together : 1;
    int err;

    do {
        double us = 0;

        bench->batch = (long)next;
        err = time_batch(bench, &us);
        next = next_batch(bench, us);
        if (!err)
            err = kolo_broadcast(bench->call->group, &next, 1, KOLO_INT64, 0);
    } while (!err && next > bench->batch);
    return err;
}

static int take_samples(struct bench *bench)
{
    const int parts = ko_perf_case_parts(bench->row, bench->call->count * bench->nbytes);
    int err = KOLO_OK;

    for (int i = 0; i < bench->options->nsamples && !err; i++) {
        err = time_batch(bench, &bench->samples[i]);
        bench->samples[i] /= (double)(bench->batch * parts);
    }
    return err;
}

/* Rank 0's samples become what the ranks' together say. Of a pair rank 0's stay. */
static int average(struct bench *bench)
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
static int sum_up_cost(const struct bench *bench, const struct ko_perf_counters *begin,
                       struct ko_perf_cost *cost)
{
    const double operations = (double)bench->batch * bench->options->nsamples * bench->call->nranks;
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
static int take_time(struct bench *bench, struct ko_perf_figures *figures)
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

static void reckon(const struct bench *bench, struct ko_perf_figures *figures)
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
static int run_all(struct bench *bench, int form, struct ko_perf_figures *figures)
{
    struct ko_perf_data data = {
        .dtype = bench->call->dtype, .op = bench->call->op, .nranks = bench->call->nranks};
    bool is_checked = bench->options->check > 0 && !(bench->row->flags & KO_PERF_IS_EMPTY);
    int64_t wrong = 0;
    int err = is_checked ? check(bench, &data, &wrong) : prepare(bench, &data);

    if (!err)
        err = run(bench, bench->options->warmup);
    if (!err)
        err = take_time(bench, figures);
    if (!err && is_checked && ko_perf_case_repeats(bench->row, form))
        err = count_wrong(bench, &data, &wrong);
    if (!err)
        err = kolo_all_reduce(bench->call->group, &wrong, &wrong, 1, KOLO_INT64, KOLO_SUM);
    figures->nwrong = is_checked ? wrong : -1;
    return err;
}

int ko_perf_measure(struct ko_perf_rank *rank, const struct ko_perf_case *row, int form,
                    struct ko_perf_call *call, struct ko_perf_figures *figures)
{
    struct bench bench = {.rank = rank,
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
