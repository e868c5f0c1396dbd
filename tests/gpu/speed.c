/* SPDX-License-Identifier: MIT
 *
 * How fast ranks that share a GPU are, beside a copy on the same GPU in the same run: the reduction
 * kernel alone, and an all_reduce whose floor is to read n S and to write n S bytes. Both go from
 * buffers to buffers in turn, so that none lies in the GPU's L2 cache when it comes to it again.
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

enum { RUNS = 15, MOST_RANKS = 16, MOST_SETS = 64 };

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

/* ---- sets of buffers ------------------------------------------------------------------------- */

/* What is used again only after several times as much as the cache holds. */
static size_t cold_bytes(void)
{
    enum { TIMES = 4 };
    int l2_bytes;

    if (gpu_rank.cuda->device_attribute(&l2_bytes, KO_CU_L2_BYTES, gpu_rank.device))
        exit(1);
    return TIMES * (size_t)l2_bytes;
}

/* How many sets are used in turn, each of so many bytes. */
static int count_sets(size_t set_bytes)
{
    const size_t n = (cold_bytes() + set_bytes - 1) / set_bytes;

    return n < MOST_SETS ? (int)n : MOST_SETS;
}

/* Of copies, and so of all that has more buffers. */
static const char *cold_or_warm(size_t nbytes)
{
    return 2 * nbytes * (size_t)count_sets(2 * nbytes) < cold_bytes() ? "warm" : "cold";
}

/* ---- on the GPU alone ------------------------------------------------------------------------ */

/* One copy, or one reduction of n parts to one output, of count floats, timed by the stream: in a
 * set lie the parts, and the output behind them. */
struct job {
    int n; /* 0: a copy */
    kolo_dtype dtype;
    size_t nbytes; /* of each array */
    ko_cu_ptr sets;
    int nsets;
};

static struct job job_new(int n, kolo_dtype dtype, size_t nbytes)
{
    const size_t set_bytes = nbytes * (n ? (size_t)n + 1 : 2);
    const int nsets = count_sets(set_bytes);

    return (struct job){n, dtype, nbytes, alloc(set_bytes * (size_t)nsets), nsets};
}

static int begin(const struct job *job, int turn)
{
    const size_t nparts = job->n ? (size_t)job->n : 1;
    const ko_cu_ptr set = job->sets + (size_t)(turn % job->nsets) * (nparts + 1) * job->nbytes;
    const ko_cu_ptr out = set + nparts * job->nbytes;
    struct ko_fold fold = {.count = job->nbytes / kolo_dtype_size(job->dtype),
                           .nparts = (uint32_t)nparts,
                           .nouts = 1,
                           .outs = {out}};

    if (!job->n)
        return gpu_rank.cuda->copy(out, set, job->nbytes, gpu_rank.stream);
    for (size_t p = 0; p < nparts; p++)
        fold.parts[p] = set + p * job->nbytes;
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
        if (gpu_rank.cuda->event_record(from, gpu_rank.stream) || begin(job, i + 3) ||
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
    const struct job job = job_new(0, KOLO_UINT8, nbytes);
    const double gbs = rate(2. * (double)nbytes, time_of(&job));

    (void)gpu_rank.cuda->free(job.sets);
    return gbs;
}

static void measure_kernel(int n, kolo_dtype dtype, size_t nbytes, double copied)
{
    const struct job job = job_new(n, dtype, nbytes);
    const double gbs = rate((double)nbytes * (n + 1), time_of(&job));
    char what[96], note[64];

    snprintf(what, sizeof what, "kernel of %d %s, %zu bytes", n, kolo_dtype_name(dtype), nbytes);
    snprintf(note, sizeof note, "%.1f %% of a copy's %.0f, %s", 100 * gbs / copied, copied,
             cold_or_warm(nbytes));
    report(what, gbs, "GB/s", note);
    (void)gpu_rank.cuda->free(job.sets);
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

enum { AT_ONCE = 8, MOST_GRAPHS = MOST_SETS / AT_ONCE };

/* In place, in each buffer in turn. */
struct calls {
    kolo_group *group;
    size_t count;
    ko_cu_ptr buffers;
    size_t stride; /* from one buffer to the next */
    int nbuffers;
    int made; /* calls so far: the next one's buffer */
    ko_cu_graph_exec graphs[MOST_GRAPHS];
    int ngraphs, launched;
};

static struct calls calls_new(kolo_group *group, size_t nbytes)
{
    const size_t stride = (nbytes + 255) / 256 * 256;
    const int n = count_sets(nbytes * (size_t)wish.n);

    return (struct calls){.group = group,
                          .count = nbytes / sizeof(float),
                          .buffers = alloc(stride * (size_t)n),
                          .stride = stride,
                          .nbuffers = n,
                          .ngraphs = (n + AT_ONCE - 1) / AT_ONCE};
}

static void *next_buffer(struct calls *calls)
{
    const size_t i = (size_t)(calls->made++ % calls->nbuffers);

    return (void *)(uintptr_t)(calls->buffers + i * calls->stride);
}

static int call_async(struct calls *calls, kolo_work **work)
{
    void *const buffer = next_buffer(calls);

    return kolo_all_reduce_async(calls->group, buffer, buffer, calls->count, KOLO_FLOAT32, KOLO_SUM,
                                 work);
}

static int call_in_a_row(struct calls *calls)
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

static int capture(struct calls *calls, ko_cu_graph_exec *exec)
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
           gpu_rank.cuda->graph_prepare(exec, graph, 0) || gpu_rank.cuda->graph_destroy(graph);
}

static int call_alone(struct calls *calls)
{
    void *const buffer = next_buffer(calls);

    return kolo_all_reduce(calls->group, buffer, buffer, calls->count, KOLO_FLOAT32, KOLO_SUM);
}

static int launch_graph(struct calls *calls)
{
    const ko_cu_graph_exec graph = calls->graphs[calls->launched++ % calls->ngraphs];

    return gpu_rank.cuda->graph_launch(graph, gpu_rank.stream) ||
           gpu_rank.cuda->stream_sync(gpu_rank.stream);
}

static int call(struct calls *calls, enum way way)
{
    switch (way) {
    case ALONE:
        return call_alone(calls);
    case IN_A_ROW:
        return call_in_a_row(calls);
    default:
        return launch_graph(calls);
    }
}

/* Of one call. */
static double time_call(struct calls *calls, enum way way)
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
    snprintf(note, sizeof note, "%.2f times a copy of as much, %.1f, %s", us / floor_us, floor_us,
             cold_or_warm(nbytes));
    report(what, us, "us", note);
}

static int measure_size(kolo_group *group, size_t nbytes)
{
    const bool is_first = kolo_group_rank(group) == 0;
    const double moved = 2. * wish.n * (double)nbytes;
    const double floor_us = is_first ? moved / copy_rate(nbytes) / 1000 : 0;
    struct calls calls = calls_new(group, nbytes);

    for (int g = 0; g < calls.ngraphs; g++)
        if (capture(&calls, &calls.graphs[g]))
            return ranks_fail("no graph");
    for (int way = 0; way < NWAYS; way++) {
        const double us = time_call(&calls, (enum way)way);

        if (is_first)
            report_call(nbytes, (enum way)way, us, floor_us);
    }
    for (int g = 0; g < calls.ngraphs; g++)
        (void)gpu_rank.cuda->graph_exec_destroy(calls.graphs[g]);
    (void)gpu_rank.cuda->free(calls.buffers);
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
    struct calls calls = calls_new(group, nbytes);
    double us;

    calls.nbuffers = 1; /* as the kernels that spin have */
    us = time_call(&calls, ALONE);
    (void)gpu_rank.cuda->free(calls.buffers);
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
