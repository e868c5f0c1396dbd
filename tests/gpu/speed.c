/* SPDX-License-Identifier: MIT
 *
 * How fast ranks that share a GPU are, beside a copy on the same GPU in the same run: the reduction
 * kernel alone, and an all_reduce whose floor is to read n S and to write n S bytes.
 *   speed kernels MOST            sizes up to MOST bytes
 *   speed threads|processes RANKS MOST
 *   speed spinning RANKS MOST     of processes, beside kernels that wait for each other
 */
#include "clock.h"
#include "cuda_kernels.h"
#include "gpu_rank.h"
#include "one_shot.h"
#include "ranks.h"
#include "report.h"

#include <stdlib.h>
#include <string.h>

enum { RUNS = 15, MOST_RANKS = 16 };

static struct wish {
    enum ranks_kind kind;
    const char *kind_name;
    int n;
    size_t most;
} wish;

static ko_cu_ptr alloc(size_t nbytes)
{
    ko_cu_ptr memory;

    if (gpu_rank.cuda->alloc(&memory, nbytes) ||
        gpu_rank.cuda->fill(memory, 0, nbytes, gpu_rank.stream)) {
        fprintf(stderr, "the GPU has no %zu bytes\n", nbytes);
        exit(1);
    }
    return memory;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static double median(double *us, int n)
{
    qsort(us, (size_t)n, sizeof *us, compare);
    return us[n / 2];
}

/* ---- on the GPU alone ------------------------------------------------------------------------ */

/* One copy, or one reduction of n parts to one output, of count floats, timed by the stream. */
struct job {
    int n; /* 0: a copy */
    kolo_dtype dtype;
    size_t nbytes; /* of each array */
    ko_cu_ptr parts[MOST_RANKS], out;
};

static int begin(const struct job *job)
{
    struct ko_fold fold = {
        .count = job->nbytes / kolo_dtype_size(job->dtype), .nparts = (uint32_t)job->n, .nouts = 1};

    if (!job->n)
        return gpu_rank.cuda->copy(job->out, job->parts[0], job->nbytes, gpu_rank.stream);
    memcpy(fold.parts, job->parts, sizeof fold.parts);
    fold.outs[0] = job->out;
    return ko_cuda_fold(job->dtype, KOLO_SUM, fold, job->n, gpu_rank.stream);
}

static double time_of(const struct job *job)
{
    double us[RUNS];
    ko_cu_event from, to;
    float ms = 0;

    if (gpu_rank.cuda->event_create(&from, 0) || gpu_rank.cuda->event_create(&to, 0))
        exit(1);
    for (int i = -3; i < RUNS; i++) {
        if (gpu_rank.cuda->event_record(from, gpu_rank.stream) || begin(job) ||
            gpu_rank.cuda->event_record(to, gpu_rank.stream) ||
            gpu_rank.cuda->stream_sync(gpu_rank.stream) ||
            gpu_rank.cuda->event_elapsed(&ms, from, to))
            exit(1);
        if (i >= 0)
            us[i] = 1000. * (double)ms;
    }
    (void)gpu_rank.cuda->event_destroy(from);
    (void)gpu_rank.cuda->event_destroy(to);
    return median(us, RUNS);
}

/* GB/s, read and written. */
static double rate(double nbytes, double us)
{
    return nbytes / us / 1000;
}

static double copy_rate(size_t nbytes)
{
    const struct job job = {.nbytes = nbytes, .parts = {alloc(nbytes)}, .out = alloc(nbytes)};
    const double gbs = rate(2. * (double)nbytes, time_of(&job));

    (void)gpu_rank.cuda->free(job.parts[0]);
    (void)gpu_rank.cuda->free(job.out);
    return gbs;
}

static void measure_kernel(int n, kolo_dtype dtype, size_t nbytes, double copied)
{
    struct job job = {.n = n, .dtype = dtype, .nbytes = nbytes, .out = alloc(nbytes)};
    char what[96], note[64];
    double gbs;

    for (int i = 0; i < n; i++)
        job.parts[i] = alloc(nbytes);
    gbs = rate((double)nbytes * (n + 1), time_of(&job));
    snprintf(what, sizeof what, "kernel of %d %s, %zu bytes", n, kolo_dtype_name(dtype), nbytes);
    snprintf(note, sizeof note, "%.1f %% of a copy's %.0f", 100 * gbs / copied, copied);
    report(what, gbs, "GB/s", note);
    for (int i = 0; i < n; i++)
        (void)gpu_rank.cuda->free(job.parts[i]);
    (void)gpu_rank.cuda->free(job.out);
}

static int measure_kernels(void)
{
    if (gpu_rank_enter(NULL))
        return 1;
    for (size_t nbytes = wish.most >> 6; nbytes && nbytes <= wish.most; nbytes <<= 2) {
        const double copied = copy_rate(nbytes);

        for (int n = 2; n <= 8; n *= 2) {
            measure_kernel(n, KOLO_FLOAT32, nbytes, copied);
            measure_kernel(n, KOLO_BFLOAT16, nbytes, copied);
        }
    }
    return 0;
}

/* ---- among ranks ----------------------------------------------------------------------------- */

/* How calls are made: one that is waited for; several that follow each other in the stream; these
 * in a graph. */
enum way { ALONE, IN_A_ROW, IN_A_GRAPH, NWAYS };

static const char *const way_names[NWAYS] = {"", ", in a row", ", in a graph"};

enum { AT_ONCE = 8 };

struct calls {
    kolo_group *group;
    void *memory;
    size_t count;
    ko_cu_graph_exec graph;
};

static int call_async(const struct calls *calls, kolo_work **work)
{
    return kolo_all_reduce_async(calls->group, calls->memory, calls->memory, calls->count,
                                 KOLO_FLOAT32, KOLO_SUM, work);
}

static int call_in_a_row(const struct calls *calls)
{
    kolo_work *works[AT_ONCE];
    int err = 0;

    for (int k = 0; k < AT_ONCE && !err; k++)
        err = call_async(calls, &works[k]);
    for (int k = 0; k < AT_ONCE && !err; k++) {
        err = kolo_work_wait(works[k], -1);
        kolo_work_free(works[k]);
    }
    return err;
}

static int capture(struct calls *calls)
{
    ko_cu_graph graph;
    int err = gpu_rank_capture();

    for (int k = 0; k < AT_ONCE && !err; k++) {
        kolo_work *work;

        err = call_async(calls, &work);
        if (!err)
            kolo_work_free(work);
    }
    return err || gpu_rank.cuda->capture_end(gpu_rank.stream, &graph) ||
           gpu_rank.cuda->graph_prepare(&calls->graph, graph, 0) ||
           gpu_rank.cuda->graph_destroy(graph);
}

static int call(const struct calls *calls, enum way way)
{
    switch (way) {
    case ALONE:
        return kolo_all_reduce(calls->group, calls->memory, calls->memory, calls->count,
                               KOLO_FLOAT32, KOLO_SUM);
    case IN_A_ROW:
        return call_in_a_row(calls);
    default:
        return gpu_rank.cuda->graph_launch(calls->graph, gpu_rank.stream) ||
               gpu_rank.cuda->stream_sync(gpu_rank.stream);
    }
}

/* Of one call. */
static double time_call(const struct calls *calls, enum way way)
{
    double us[RUNS];
    int err = 0;

    for (int i = -3; i < RUNS; i++) {
        int64_t began_ns;

        err |= kolo_barrier(calls->group);
        began_ns = ko_now_ns();
        err |= call(calls, way);
        if (i >= 0)
            us[i] = (double)(ko_now_ns() - began_ns) / 1000 / (way == ALONE ? 1 : AT_ONCE);
    }
    if (err) {
        ranks_fail("all_reduce");
        exit(1);
    }
    return median(us, RUNS);
}

static void report_call(size_t nbytes, enum way way, double us, double floor_us)
{
    char what[96], note[64];

    snprintf(what, sizeof what, "all_reduce of %d %s, %zu bytes%s", wish.n, wish.kind_name, nbytes,
             way_names[way]);
    snprintf(note, sizeof note, "%.2f times a copy of as much, %.1f", us / floor_us, floor_us);
    report(what, us, "us", note);
}

static int measure_size(kolo_group *group, size_t nbytes)
{
    const bool is_first = kolo_group_rank(group) == 0;
    const double moved = 2. * wish.n * (double)nbytes;
    const double floor_us = is_first ? moved / copy_rate(nbytes) / 1000 : 0;
    const ko_cu_ptr memory = alloc(nbytes);
    struct calls calls = {group, (void *)(uintptr_t)memory, nbytes / sizeof(float), NULL};

    if (capture(&calls))
        return ranks_fail("no graph");
    for (int way = 0; way < NWAYS; way++) {
        const double us = time_call(&calls, (enum way)way);

        if (is_first)
            report_call(nbytes, (enum way)way, us, floor_us);
    }
    (void)gpu_rank.cuda->graph_exec_destroy(calls.graph);
    (void)gpu_rank.cuda->free(memory);
    return 0;
}

static int measure(kolo_group *group, void *unused)
{
    int failed = gpu_rank_enter(group);

    (void)unused;
    for (size_t nbytes = 8; nbytes <= wish.most && !failed; nbytes *= 8)
        failed = measure_size(group, nbytes);
    return failed;
}

/* ---- beside kernels that spin ---------------------------------------------------------------- */

/* Of one call, or several in a row; of an exam; of the runs of a size in one way; of all sizes. */
enum { SHOT_MS = 2000, EXAM_MS = 5000, ENOUGH_MS = 2000, ALL_MS = 25000 };

/* The greatest of all ranks' numbers. */
static int agree(kolo_group *group, int number)
{
    if (kolo_all_reduce(group, &number, &number, 1, KOLO_INT32, KOLO_MAX)) {
        ranks_fail("all_reduce");
        exit(1);
    }
    return number;
}

/* Of one of `times` in a row. Runs that take long are fewer. */
static enum one_shot_verdict time_shot(struct one_shot *shot, size_t nbytes, int times, double *us)
{
    const ko_deadline enough = ko_deadline_in(ENOUGH_MS);
    enum one_shot_verdict verdict = ONE_SHOT_RIGHT;
    double runs[RUNS];
    int n = 0;

    while (verdict == ONE_SHOT_RIGHT && n < RUNS) {
        int64_t began_ns;

        if (agree(shot->group, n > 2 && ko_deadline_passed(&enough)))
            break;
        began_ns = ko_now_ns();
        verdict = one_shot_call(shot, nbytes, times, SHOT_MS);
        runs[n++] = watch_us_since(began_ns) / times;
        verdict = (enum one_shot_verdict)agree(shot->group, (int)verdict);
    }
    *us = median(runs, n);
    return verdict;
}

static double time_kolo(kolo_group *group, size_t nbytes)
{
    const ko_cu_ptr memory = alloc(nbytes);
    const struct calls calls = {group, (void *)(uintptr_t)memory, nbytes / sizeof(float), NULL};
    const double us = time_call(&calls, ALONE);

    (void)gpu_rank.cuda->free(memory);
    return us;
}

/* Whether longer ones are worth a try. */
static bool measure_shot(struct one_shot *shot, size_t nbytes)
{
    const double kolo_us = time_kolo(shot->group, nbytes);
    enum one_shot_verdict verdict = one_shot_exam(shot, nbytes, EXAM_MS);
    double us = 0, row_us = 0;
    char what[96], note[128];

    verdict = (enum one_shot_verdict)agree(shot->group, (int)verdict);
    if (verdict == ONE_SHOT_RIGHT)
        verdict = time_shot(shot, nbytes, 1, &us);
    if (verdict == ONE_SHOT_RIGHT)
        verdict = time_shot(shot, nbytes, AT_ONCE, &row_us);
    snprintf(what, sizeof what, "all_reduce of %d processes, spinning, %zu bytes", wish.n, nbytes);
    if (verdict == ONE_SHOT_WRONG)
        snprintf(note, sizeof note, "FAILED: sums are wrong");
    else if (verdict == ONE_SHOT_LATE)
        snprintf(note, sizeof note, "given up: more than %.2f times as long as kolo's %.1f",
                 SHOT_MS * 1000 / kolo_us, kolo_us);
    else
        snprintf(note, sizeof note, "ok: %.2f times as long as kolo's %.1f; %.1f in a row",
                 us / kolo_us, kolo_us, row_us);
    if (shot->args.rank == 0 && verdict == ONE_SHOT_RIGHT)
        report(what, us, "us", note);
    else if (shot->args.rank == 0)
        report_text(what, note);
    return verdict == ONE_SHOT_RIGHT;
}

static int measure_spinning(kolo_group *group, void *unused)
{
    const ko_deadline deadline = ko_deadline_in(ALL_MS);
    struct one_shot shot;
    bool goes_on = true;
    int failed = gpu_rank_enter(group);

    (void)unused;
    if (!failed)
        failed = one_shot_open(group, wish.most, &shot);
    for (size_t nbytes = 8; nbytes <= wish.most && !failed && goes_on; nbytes *= 8)
        goes_on = measure_shot(&shot, nbytes) && !agree(group, ko_deadline_passed(&deadline));
    if (!failed && !goes_on && kolo_group_rank(group) == 0)
        report_text("longer ones, spinning", "left out");
    return failed;
}

int main(int argc, char **argv)
{
    const bool is_spinning = argc == 4 && !strcmp(argv[1], "spinning");

    if (argc == 3 && !strcmp(argv[1], "kernels")) {
        wish.most = (size_t)atoll(argv[2]);
        return measure_kernels();
    }
    if (argc < 4)
        return 2;
    wish.kind = strcmp(argv[1], "threads") ? RANKS_PROCESSES : RANKS_THREADS;
    wish.kind_name = argv[1];
    wish.n = atoi(argv[2]);
    wish.most = (size_t)atoll(argv[3]);
    if (wish.n < 1 || wish.n > (is_spinning ? CHECK_RANKS : MOST_RANKS))
        return 2;
    return ranks_run(&(struct ranks){.kind = wish.kind, .n = wish.n},
                     is_spinning ? measure_spinning : measure, NULL) != 0;
}
