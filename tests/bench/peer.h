/* SPDX-License-Identifier: MIT
 *
 * peer.h: how one library is measured; the same text for all of them, in C and C++. A program per
 * library fills in a struct peer and calls peer_measure, which prints "library,operation,bytes,
 * median us,least us" on rank 0: of samples that are each the slowest rank's. tests/bench/README.md
 * says what the figures mean.
 */
#ifndef PEER_H
#define PEER_H

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum peer_operation {
    ALL_REDUCE,
    REDUCE,
    BROADCAST,
    ALL_GATHER,
    REDUCE_SCATTER,
    ALL_TO_ALL,
    BARRIER,
    PING_PONG,
    ONE_WAY,
    NOPERATIONS
};

static const char *const peer_names[NOPERATIONS] = {"all_reduce", "reduce",         "broadcast",
                                                    "all_gather", "reduce_scatter", "all_to_all",
                                                    "barrier",    "ping_pong",      "one_way"};

/* One library on one rank. run makes one operation; count is of each rank's block where there are
 * blocks (all_gather, reduce_scatter, all_to_all), else of the buffer; root is for reduce and
 * broadcast, whose only buffer is out. A ping-pong is a message from rank 0 to rank 1 and one back;
 * one way are peer_window(count) messages to rank 1, all under way at once, and one word back. */
struct peer {
    const char *name;
    int rank, size;
    void (*run)(enum peer_operation what, float *in, float *out, size_t count, int root);
    /* NULL: nothing is to be prepared; can everything; has ordinary memory. */
    void (*prepare)(enum peer_operation what, float *in, float *out, size_t count);
    int (*can)(enum peer_operation what, size_t bytes);
    float *(*allocate)(size_t nbytes);
    int only_moves; /* reductions have no result */
};

enum { PEER_SAMPLES = 200, PEER_SIZES = 32, PEER_WINDOW = 64 };

/* Operations to measure (a bit each), sizes in bytes, milliseconds for each point. */
struct peer_plan {
    unsigned operations;
    size_t sizes[PEER_SIZES];
    int nsizes;
    double budget_ms;
    int is_dirty; /* inputs are rewritten before each operation, outside of its time */
};

static double peer_now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static void peer_die(const char *library, const char *text)
{
    fprintf(stderr, "%s: %s\n", library, text);
    exit(1);
}

/* The command line: OPERATIONS SIZES BUDGET_MS clean|dirty, lists separated by commas. */
static struct peer_plan peer_read_plan(int argc, char **argv)
{
    struct peer_plan plan;
    char *rest = NULL;

    memset(&plan, 0, sizeof plan);
    if (argc < 5)
        peer_die(argv[0], "usage: OPERATIONS SIZES BUDGET_MS clean|dirty");
    for (char *name = strtok_r(argv[1], ",", &rest); name; name = strtok_r(NULL, ",", &rest))
        for (int i = 0; i < NOPERATIONS; i++)
            if (!strcmp(name, peer_names[i]))
                plan.operations |= 1U << i;
    for (char *size = strtok_r(argv[2], ",", &rest); size && plan.nsizes < PEER_SIZES;
         size = strtok_r(NULL, ",", &rest))
        plan.sizes[plan.nsizes++] = strtoull(size, NULL, 10);
    plan.budget_ms = atof(argv[3]);
    plan.is_dirty = !strcmp(argv[4], "dirty");
    return plan;
}

/* One rank after the other on the cores in turn: the same ones in each library, since those that
 * the system puts on one core take longer than those it puts on two. */
static void peer_pin(int rank)
{
    cpu_set_t set;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);

    CPU_ZERO(&set);
    CPU_SET((size_t)(rank % cores), &set);
    sched_setaffinity(0, sizeof set, &set);
}

static int peer_has_blocks(enum peer_operation what)
{
    return what == ALL_GATHER || what == REDUCE_SCATTER || what == ALL_TO_ALL;
}

static int peer_is_pair(enum peer_operation what)
{
    return what == PING_PONG || what == ONE_WAY;
}

/* Elements of a block, or of the buffer: bytes are those of the larger buffer. */
static size_t peer_count(const struct peer *peer, enum peer_operation what, size_t bytes)
{
    size_t count = bytes / sizeof(float);

    if (peer_has_blocks(what))
        count /= (size_t)peer->size;
    return count ? count : 1;
}

/* Messages of a one-way operation. */
static int peer_window(size_t count)
{
    size_t fit = ((size_t)64 << 20) / (count * sizeof(float));

    return fit < 1 ? 1 : fit > PEER_WINDOW ? PEER_WINDOW : (int)fit;
}

/* What rank has at index i of its input. */
static float peer_value(size_t i, int rank)
{
    return (float)(i % 97) + (float)rank + 1;
}

static float peer_sum(const struct peer *peer, size_t i)
{
    float ranks = (float)peer->size;

    return ranks * (float)(i % 97) + ranks * (ranks + 1) / 2;
}

/* What this rank's out should have at index i after an operation with root 0. */
static float peer_expected(const struct peer *peer, enum peer_operation what, size_t count,
                           size_t i)
{
    const size_t own = (size_t)peer->rank * count;

    switch (what) {
    case ALL_REDUCE:
    case REDUCE:
        return peer_sum(peer, i);
    case REDUCE_SCATTER:
        return peer_sum(peer, own + i);
    case ALL_GATHER:
        return peer_value(i % count, (int)(i / count));
    case ALL_TO_ALL:
        return peer_value(own + i % count, (int)(i / count));
    case PING_PONG:
        return peer_value(i, 1 - peer->rank);
    default:
        return peer_value(i, 0);
    }
}

/* Whether this rank's out is a result at all. */
static int peer_has_result(const struct peer *peer, enum peer_operation what)
{
    if (what == ALL_REDUCE || what == REDUCE || what == REDUCE_SCATTER)
        return !peer->only_moves && (what != REDUCE || peer->rank == 0);
    return what == ONE_WAY ? peer->rank == 1 : what != BARRIER;
}

/* The first operation of a point is checked; root is 0. */
static void peer_check(const struct peer *peer, enum peer_operation what, const float *out,
                       size_t count)
{
    size_t n = what == ALL_GATHER || what == ALL_TO_ALL ? count * (size_t)peer->size : count;

    for (size_t i = 0; i < n && peer_has_result(peer, what); i++)
        if (out[i] != peer_expected(peer, what, count, i)) {
            fprintf(stderr, "%s, %s of %zu: element %zu is %f, not %f\n", peer->name,
                    peer_names[what], count, i, (double)out[i],
                    (double)peer_expected(peer, what, count, i));
            peer_die(peer->name, "a wrong result");
        }
}

static int peer_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* One word a line: the lines then are in the writer's cache. */
static void peer_rewrite(float *in, size_t bytes)
{
    for (size_t i = 0; i < bytes / sizeof *in; i += 16)
        *(volatile float *)&in[i] = in[i];
}

/* A buffer pair and what is done with it. */
struct peer_point {
    enum peer_operation what;
    size_t bytes, count;
    float *in, *out;
    long batch;
    int is_dirty;
};

static double peer_dirty_batch(const struct peer *peer, const struct peer_point *point)
{
    double sum = 0;

    for (long i = 0; i < point->batch; i++) {
        double begin;

        peer_rewrite(point->what == BROADCAST ? point->out : point->in, point->bytes);
        peer->run(BARRIER, point->in, point->out, 1, 0);
        begin = peer_now_us();
        peer->run(point->what, point->in, point->out, point->count, (int)(i % peer->size));
        sum += peer_now_us() - begin;
    }
    return sum / (double)point->batch;
}

/* Microseconds of one operation, in a batch of them. */
static double peer_batch(const struct peer *peer, const struct peer_point *point)
{
    double begin = peer_now_us();

    if (point->is_dirty)
        return peer_dirty_batch(peer, point);
    for (long i = 0; i < point->batch; i++)
        peer->run(point->what, point->in, point->out, point->count, (int)(i % peer->size));
    return (peer_now_us() - begin) / (double)point->batch;
}

/* Operations per sample. All ranks must agree on it, so it follows from the size alone: at least
 * 0.3 ms of work on a machine that moves 4 GB/s and has an operation every 0.3 us. */
static long peer_batch_size(const struct peer *peer, enum peer_operation what, size_t bytes,
                            size_t count)
{
    double messages = what == ONE_WAY ? peer_window(count) : 1;
    long batch = (long)(300.0 / (0.3 + messages * (double)bytes / 4000.0)) + 2;

    return (batch + peer->size - 1) / peer->size * peer->size;
}

/* What rank 0 has found to fit, within bounds; the library itself tells the others. */
static long peer_agree(const struct peer *peer, float *out, double fit, long least, long most)
{
    out[0] = (float)(fit < (double)least ? least : fit > (double)most ? most : (long)fit);
    peer->run(BROADCAST, NULL, out, 1, 0);
    return (long)out[0];
}

/* Far fewer operations per sample where one takes milliseconds, as those of a library do that does
 * not let others have its core: one with each root, at least. */
static void peer_shorten(const struct peer *peer, double budget_us, struct peer_point *point)
{
    enum { PATIENCE = 10 };
    const long nroots = peer->size, most = point->batch / nroots;
    double took = peer_now_us();

    for (int root = 0; root < nroots; root++)
        peer->run(point->what, point->in, point->out, point->count, root);
    took = peer_now_us() - took;
    point->batch = nroots * peer_agree(peer, point->out, PATIENCE * budget_us / took, 1, most);
}

/* For a tenth of the time: what is touched for the first time then, as by short messages that lie
 * in another place each, is not to be all that is measured. */
static void peer_warm_up(const struct peer *peer, double budget_us, const struct peer_point *point)
{
    const double took = peer_batch(peer, point) * (double)point->batch;
    long nbatches = peer_agree(peer, point->out, budget_us / 10 / took, 0, PEER_SAMPLES);

    while (nbatches-- > 0)
        (void)peer_batch(peer, point);
}

/* The slowest rank's time of each sample, on all ranks: by broadcasts from each of them, which are
 * all that every library has. */
static void peer_slowest(const struct peer *peer, float *out, double *samples, long nsamples)
{
    for (long i = 0; i < nsamples; i++) {
        const double own = samples[i];

        for (int root = 0; root < peer->size; root++) {
            out[0] = (float)own;
            peer->run(BROADCAST, NULL, out, 1, root);
            samples[i] = (double)out[0] > samples[i] ? (double)out[0] : samples[i];
        }
    }
}

static void peer_report(const struct peer *peer, const struct peer_point *point, double *samples,
                        long nsamples)
{
    double parts = point->what == PING_PONG ? 2
                   : point->what == ONE_WAY ? (double)peer_window(point->count)
                                            : 1;

    qsort(samples, (size_t)nsamples, sizeof *samples, peer_compare);
    printf("%s,%s,%zu,%.4f,%.4f\n", peer->name, peer_names[point->what],
           point->what == BARRIER ? 0 : point->bytes, samples[nsamples / 2] / parts,
           samples[0] / parts);
    fflush(stdout);
}

static void peer_measure_point(const struct peer *peer, double budget_us, struct peer_point *point)
{
    static double samples[PEER_SAMPLES];
    long nsamples;

    for (size_t i = 0; i < point->bytes / sizeof(float); i++)
        point->in[i] = peer_value(i, peer->rank);
    memcpy(point->out, point->in, point->bytes);
    if (peer->prepare)
        peer->prepare(point->what, point->in, point->out, point->count);
    peer->run(point->what, point->in, point->out, point->count, 0);
    peer_check(peer, point->what, point->out, point->count);
    peer_shorten(peer, budget_us, point);
    peer_warm_up(peer, budget_us, point);
    nsamples =
        peer_agree(peer, point->out, budget_us / (double)point->batch / peer_batch(peer, point), 5,
                   PEER_SAMPLES);
    for (long i = 0; i < nsamples; i++)
        samples[i] = peer_batch(peer, point);
    peer_slowest(peer, point->out, samples, nsamples);
    if (peer->rank == 0)
        peer_report(peer, point, samples, nsamples);
}

/* Ordinary memory, as a plain user has it: page aligned and touched. */
static float *peer_buffer(const struct peer *peer, size_t nbytes)
{
    void *memory = NULL;

    if (peer->allocate)
        memory = peer->allocate(nbytes);
    else if (posix_memalign(&memory, 4096, nbytes))
        peer_die(peer->name, "no memory");
    memset(memory, 0, nbytes);
    return (float *)memory;
}

/* The buffers are not given back: the process ends soon. */
static void peer_measure(const struct peer *peer, const struct peer_plan *plan)
{
    size_t largest = 4096;
    struct peer_point point;

    memset(&point, 0, sizeof point);
    for (int i = 0; i < plan->nsizes; i++)
        largest = plan->sizes[i] > largest ? plan->sizes[i] : largest;
    point.in = peer_buffer(peer, largest);
    point.out = peer_buffer(peer, largest);
    point.is_dirty = plan->is_dirty;
    for (int i = 0; i < NOPERATIONS; i++) {
        point.what = (enum peer_operation)i;
        if (!(plan->operations & 1U << i) || (peer_is_pair(point.what) && peer->size != 2))
            continue;
        for (int k = 0; k < (point.what == BARRIER ? 1 : plan->nsizes); k++) {
            point.bytes = point.what == BARRIER ? 4 : plan->sizes[k];
            point.count = peer_count(peer, point.what, point.bytes);
            if (peer_has_blocks(point.what))
                point.bytes = point.count * sizeof(float) * (size_t)peer->size;
            point.batch = peer_batch_size(peer, point.what, point.bytes, point.count);
            if (!peer->can || peer->can(point.what, point.bytes))
                peer_measure_point(peer, plan->budget_ms * 1000, &point);
        }
    }
}

#endif
