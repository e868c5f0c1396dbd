/* SPDX-License-Identifier: MIT
 *
 * On a GPU asynchronous calls follow each other in the stream, and the host is never more than
 * `together` of them ahead. A call holds the stream until it is done, so an event behind it comes
 * when it is. A graph is captured when another number of operations is wanted than it has.
 */
#include "perf_bench.h"

#include "clock.h"
#include "perf_device.h"

enum { LINE = 64 };

static bool is_async(const struct ko_perf_bench *bench)
{
    return bench->options->together && !(bench->row->flags & KO_PERF_IS_PAIR);
}

/* ---- by the host's order ----------------------------------------------------------------- */

static int finish(kolo_work *work)
{
    const int err = kolo_work_wait(work, -1);

    kolo_work_free(work);
    return err;
}

/* n asynchronous calls, all posted before the first is waited for. */
static int run_together(const struct ko_perf_bench *bench, long n)
{
    kolo_work **works = bench->rank->works;
    long posted = 0;
    int err = KOLO_OK;

    while (posted < n && !err) {
        err = bench->row->run(bench->call, &works[posted]);
        posted += !err;
    }
    for (long i = 0; i < posted; i++) {
        int failed = finish(works[i]);

        err = err ? err : failed;
    }
    return err;
}

static int run_on_host(const struct ko_perf_bench *bench, long n)
{
    const int together = bench->options->together;
    int err = KOLO_OK;

    if (is_async(bench)) {
        for (long done = 0; done < n && !err; done += together)
            err = run_together(bench, n - done < together ? n - done : together);
        return err;
    }
    for (long i = 0; i < n && !err; i++)
        err = bench->row->run(bench->call, NULL);
    return err;
}

/* ---- by the stream's --------------------------------------------------------------------- */

/* n collectives one behind the other in the stream. Those that may not be done yet, at most
 * `together`, are left in the rank's works, *left of them, the oldest of these first. */
static int post(const struct ko_perf_bench *bench, long n, long *left)
{
    kolo_work **works = bench->rank->works;
    const long room = bench->options->together;
    long posted = 0;
    int err = KOLO_OK;

    while (posted < n && !err) {
        kolo_work **work = &works[posted % room];

        if (posted >= room)
            err = finish(*work);
        *work = NULL;
        if (!err)
            err = bench->row->run(bench->call, work);
        posted += !err;
    }
    *left = posted < room ? posted : room;
    return err;
}

static int finish_all(const struct ko_perf_bench *bench, long n, int err)
{
    for (long i = 0; i < n; i++) {
        const int failed = bench->rank->works[i] ? finish(bench->rank->works[i]) : KOLO_OK;

        err = err ? err : failed;
    }
    return err;
}

static int capture(struct ko_perf_bench *bench, long n)
{
    struct ko_perf_device *device = bench->rank->device;
    int err = KOLO_OK;

    if (bench->captured == n)
        return KOLO_OK;
    bench->captured = 0;
    err = ko_perf_device_capture(device);
    if (err)
        return err;
    for (long i = 0; i < n && !err; i++) {
        kolo_work *work = NULL; /* as it stays of a blocking operation */

        err = bench->row->run(bench->call, &work);
        if (!err)
            kolo_work_free(work);
    }
    err = ko_perf_device_captured(device, err);
    if (!err)
        bench->captured = n;
    return err;
}

/* n operations in the stream, `launches` times if they are a graph; timed if us is not NULL. */
static int run_on_device(struct ko_perf_bench *bench, long n, int launches, double *us)
{
    struct ko_perf_device *device = bench->rank->device;
    long left = 0;
    int err = launches ? capture(bench, n) : KOLO_OK;

    if (!err && us)
        err = ko_perf_device_begin(device);
    for (int i = 0; i < launches && !err; i++)
        err = ko_perf_device_launch(device);
    if (!err && !launches)
        err = is_async(bench) ? post(bench, n, &left) : run_on_host(bench, n);
    if (!err && us)
        err = ko_perf_device_end(device);
    err = finish_all(bench, left, err);
    if (!err)
        err = ko_perf_device_sync(device);
    return err || !us ? err : ko_perf_device_elapsed(device, us);
}

int ko_perf_bench_run(struct ko_perf_bench *bench, long n)
{
    if (bench->rank->device && n)
        return run_on_device(bench, n, bench->options->launches != 0, NULL);
    return run_on_host(bench, n);
}

/* ---- time -------------------------------------------------------------------------------- */

/* A word of each cache line: the lines then are this core's. */
static void rewrite(const struct ko_perf_bench *bench)
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

static int time_dirty(const struct ko_perf_bench *bench, double *us)
{
    int err = KOLO_OK;

    *us = 0;
    for (long i = 0; i < bench->batch && !err; i++) {
        int64_t begin;

        rewrite(bench);
        err = kolo_barrier(bench->call->group);
        begin = ko_now_ns();
        if (!err)
            err = run_on_host(bench, 1);
        *us += us_since(begin);
    }
    return err;
}

long ko_perf_bench_operations(const struct ko_perf_bench *bench)
{
    return bench->batch * (bench->options->launches ? bench->options->launches : 1);
}

int ko_perf_bench_time(struct ko_perf_bench *bench, double *us)
{
    int64_t begin = ko_now_ns();
    int err;

    if (bench->rank->device)
        return run_on_device(bench, bench->batch, bench->options->launches, us);
    if (bench->options->dirty)
        return time_dirty(bench, us);
    err = run_on_host(bench, bench->batch);
    *us = us_since(begin);
    return err;
}
