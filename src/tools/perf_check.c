/* SPDX-License-Identifier: MIT
 *
 * What is in buffers before and after operations. What is in those of a GPU is written and read on
 * the host, in the rank's mirror of them.
 */
#include "perf_bench.h"

#include "dtype.h"
#include "perf_device.h"

#include <string.h>

/* ---- buffers ----------------------------------------------------------------------------- */

/* Where the host writes what is to be at `at`: there, or in a copy of it. */
static void *draft(const struct ko_perf_bench *bench, void *at)
{
    return bench->rank->device ? bench->rank->mirror : at;
}

/* Brings a draft to where it is to be. */
static int put(const struct ko_perf_bench *bench, const struct ko_perf_piece *piece)
{
    return bench->rank->device
               ? ko_perf_device_copy(bench->rank->device, piece->at, bench->rank->mirror,
                                     piece->count * bench->nbytes)
               : KOLO_OK;
}

/* What is at `at`, for the host to read: *seen, until the next of it. */
static int look(const struct ko_perf_bench *bench, const void *at, size_t count, const void **seen)
{
    *seen = bench->rank->device ? bench->rank->mirror : at;
    return bench->rank->device ? ko_perf_device_copy(bench->rank->device, bench->rank->mirror, at,
                                                     count * bench->nbytes)
                               : KOLO_OK;
}

static int spoil_output(const struct ko_perf_bench *bench, int tensor)
{
    int err = KOLO_OK;

    for (int b = 0; b < ko_perf_call_blocks(bench->row, bench->call) && !err; b++) {
        const struct ko_perf_piece out = ko_perf_call_out(bench->row, bench->call, tensor, b);

        memset(draft(bench, out.at), 0xaa, out.count * bench->nbytes);
        err = put(bench, &out);
    }
    return err;
}

int ko_perf_bench_prepare(const struct ko_perf_bench *bench, const struct ko_perf_data *data)
{
    const struct ko_perf_call *call = bench->call;
    struct ko_perf_pattern *pattern;
    int err = ko_perf_pattern_new(data, call->rank, &pattern);

    if (err)
        return err;
    for (int t = 0; t < call->ntensors && !err; t++) {
        const struct ko_perf_piece in = ko_perf_call_in(bench->row, call, t);

        err = spoil_output(bench, t);
        ko_perf_pattern_fill(pattern, draft(bench, in.at), in.from, in.count);
        if (!err)
            err = put(bench, &in);
    }
    ko_perf_pattern_free(pattern);
    return err;
}

/* ---- results ----------------------------------------------------------------------------- */

static int count_wrong_block(const struct ko_perf_bench *bench, const struct ko_perf_data *data,
                             int block, int64_t *wrong)
{
    const int source = bench->row->source(bench->call, block);
    struct ko_perf_pattern *pattern;
    int err = source == KO_PERF_NOTHING ? KOLO_OK : ko_perf_pattern_new(data, source, &pattern);

    if (err || source == KO_PERF_NOTHING)
        return err;
    for (int t = 0; t < bench->call->ntensors && !err; t++) {
        const struct ko_perf_piece out = ko_perf_call_out(bench->row, bench->call, t, block);
        const void *seen;

        err = look(bench, out.at, out.count, &seen);
        if (!err)
            *wrong += (int64_t)ko_perf_pattern_wrong(pattern, seen, out.from, out.count);
    }
    ko_perf_pattern_free(pattern);
    return err;
}

int ko_perf_bench_count_wrong(const struct ko_perf_bench *bench, const struct ko_perf_data *data,
                              int64_t *wrong)
{
    int err = KOLO_OK;

    for (int b = 0; b < ko_perf_call_blocks(bench->row, bench->call) && !err; b++)
        err = count_wrong_block(bench, data, b, wrong);
    return err;
}

/* Sums whose last bit depends on the order must be those of rank 0 on all ranks, and again. */
static int check_bits(struct ko_perf_bench *bench, struct ko_perf_data data, int64_t *wrong)
{
    const struct ko_perf_call *call = bench->call;
    size_t nbytes = call->count * bench->nbytes;
    const void *seen = NULL;
    int err = KOLO_OK;

    data.is_rough = true;
    for (int run_number = 0; run_number < 2 && !err; run_number++) {
        err = ko_perf_bench_prepare(bench, &data);
        if (!err)
            err = ko_perf_bench_run(bench, 1);
        if (!err)
            err = look(bench, call->out, call->count, &seen);
        if (!err && run_number == 0) {
            memcpy(bench->rank->copy, seen, nbytes);
            err = kolo_broadcast(call->group, bench->rank->copy, call->count, call->dtype, 0);
        }
        if (!err)
            *wrong +=
                (int64_t)ko_perf_count_unequal(seen, bench->rank->copy, call->count, bench->nbytes);
    }
    return err;
}

/* Everybody's result, and it depends on the order of summing? */
static bool has_order(const struct ko_perf_bench *bench)
{
    return (bench->row->flags & ~(unsigned)KO_PERF_TENSORS) == KO_PERF_REDUCES &&
           ko_dtype_is_float(bench->call->dtype) && bench->call->named_op != KOLO_MIN &&
           bench->call->named_op != KOLO_MAX;
}

int ko_perf_bench_check(struct ko_perf_bench *bench, struct ko_perf_data *data, int64_t *wrong)
{
    int err = KOLO_OK;

    for (int i = 0; i < bench->options->check && !err; i++) {
        data->seed++;
        if (has_order(bench))
            err = check_bits(bench, *data, wrong);
        if (!err)
            err = ko_perf_bench_prepare(bench, data);
        if (!err)
            err = ko_perf_bench_run(bench, 1);
        if (!err)
            err = ko_perf_bench_count_wrong(bench, data, wrong);
    }
    return err;
}
