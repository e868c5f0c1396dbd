/* SPDX-License-Identifier: MIT
 *
 * peer.h: how one library is measured; the same text for all of them, in C and C++. A program per
 * library fills in a struct peer and calls peer_measure, which prints "library,operation,bytes,
 * median us,least us" on rank 0. tests/bench/README.md says what the figures mean.
 */
#ifndef PEER_H
#define PEER_H

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum peer_operation { ALL_REDUCE, BROADCAST, PING_PONG, BARRIER, NOPERATIONS };

static const char *const peer_names[NOPERATIONS] = {"all_reduce", "broadcast", "ping_pong",
                                                    "barrier"};

/* One library on one rank. run makes one operation on count floats; root is for broadcast, whose
 * only buffer is out. A ping-pong is a message from rank 0 to rank 1 and one back. */
struct peer {
    const char *name;
    int rank, size;
    void (*prepare)(enum peer_operation what, float *in, float *out, size_t count); /* or NULL */
    void (*run)(enum peer_operation what, float *in, float *out, size_t count, int root);
};

enum { PEER_SAMPLES = 200, PEER_SIZES = 32 };

/* Operations to measure (a bit each), sizes in bytes, milliseconds for each point. */
struct peer_plan {
    unsigned operations;
    size_t sizes[PEER_SIZES];
    int nsizes;
    double budget_ms;
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

/* The command line: OPERATIONS SIZES BUDGET_MS, lists separated by commas. */
static struct peer_plan peer_read_plan(int argc, char **argv)
{
    struct peer_plan plan;
    char *rest = NULL;

    memset(&plan, 0, sizeof plan);
    if (argc != 4)
        peer_die(argv[0], "usage: OPERATIONS SIZES BUDGET_MS");
    for (int i = 0; i < NOPERATIONS; i++)
        if (strstr(argv[1], peer_names[i]))
            plan.operations |= 1U << i;
    for (char *size = strtok_r(argv[2], ",", &rest); size && plan.nsizes < PEER_SIZES;
         size = strtok_r(NULL, ",", &rest))
        plan.sizes[plan.nsizes++] = strtoull(size, NULL, 10);
    plan.budget_ms = atof(argv[3]);
    return plan;
}

/* A core for each rank, where there are enough. */
static void peer_pin(int rank, int size)
{
    cpu_set_t set;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);

    if (size > cores)
        return;
    CPU_ZERO(&set);
    CPU_SET((size_t)(rank % cores), &set);
    sched_setaffinity(0, sizeof set, &set);
}

/* What rank has at index i of its input. */
static float peer_value(size_t i, int rank)
{
    return (float)(i % 97) + (float)rank + 1;
}

/* The first operation of a point is checked; root is 0. */
static void peer_check(const struct peer *peer, enum peer_operation what, const float *out,
                       size_t count)
{
    float ranks = (float)peer->size;

    for (size_t i = 0; i < count; i++) {
        float sum = ranks * (float)(i % 97) + ranks * (ranks + 1) / 2;
        float expected = what == ALL_REDUCE ? sum : peer_value(i, 0);

        if (what != BARRIER && (what != PING_PONG || peer->rank == 1) && out[i] != expected)
            peer_die(peer->name, "a wrong result");
    }
}

static int peer_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Microseconds of one operation, in a batch of them. */
static double peer_batch(const struct peer *peer, enum peer_operation what, float *in, float *out,
                         size_t count, long batch)
{
    double begin = peer_now_us();

    for (long i = 0; i < batch; i++)
        peer->run(what, in, out, count, (int)(i % peer->size));
    return (peer_now_us() - begin) / (double)batch;
}

/* Operations per sample. All ranks must agree on it, so it follows from the size alone: at least
 * 0.3 ms of work on a machine that moves 4 GB/s and has an operation every 0.3 us. */
static long peer_batch_size(const struct peer *peer, size_t bytes)
{
    long batch = (long)(300.0 / (0.3 + (double)bytes / 4000.0)) + 2;

    return (batch + peer->size - 1) / peer->size * peer->size;
}

/* As many samples as fit in the time, by rank 0's first batch; the library itself tells the others.
 */
static int peer_agree(const struct peer *peer, float *out, double fit)
{
    out[0] = fit < 5 ? 5 : fit > PEER_SAMPLES ? PEER_SAMPLES : (float)fit;
    peer->run(BROADCAST, NULL, out, 1, 0);
    return (int)out[0];
}

static void peer_point(const struct peer *peer, const struct peer_plan *plan,
                       enum peer_operation what, size_t bytes, float *in, float *out)
{
    static double samples[PEER_SAMPLES];
    size_t count = bytes / sizeof *in;
    long batch = peer_batch_size(peer, bytes);
    int nsamples;

    for (size_t i = 0; i < count; i++)
        in[i] = peer_value(i, peer->rank);
    memcpy(out, in, bytes);
    if (peer->prepare)
        peer->prepare(what, in, out, count);
    peer->run(what, in, out, count, 0);
    peer_check(peer, what, out, count);
    nsamples = peer_agree(peer, out,
                          plan->budget_ms * 1000 / (double)batch /
                              peer_batch(peer, what, in, out, count, batch));
    for (int i = 0; i < nsamples; i++)
        samples[i] = peer_batch(peer, what, in, out, count, batch);
    if (peer->rank)
        return;
    qsort(samples, (size_t)nsamples, sizeof *samples, peer_compare);
    printf("%s,%s,%zu,%.4f,%.4f\n", peer->name, peer_names[what], what == BARRIER ? 0 : bytes,
           samples[nsamples / 2] / (what == PING_PONG ? 2 : 1),
           samples[0] / (what == PING_PONG ? 2 : 1));
    fflush(stdout);
}

/* Ordinary memory, as a plain user has it: page aligned and touched. */
static float *peer_buffer(const char *library, size_t nbytes)
{
    void *memory = NULL;

    if (posix_memalign(&memory, 4096, nbytes))
        peer_die(library, "no memory");
    memset(memory, 0, nbytes);
    return (float *)memory;
}

static void peer_measure(const struct peer *peer, const struct peer_plan *plan)
{
    size_t largest = 4096;
    float *in, *out;

    for (int i = 0; i < plan->nsizes; i++)
        largest = plan->sizes[i] > largest ? plan->sizes[i] : largest;
    in = peer_buffer(peer->name, largest);
    out = peer_buffer(peer->name, largest);
    for (int what = 0; what < NOPERATIONS; what++) {
        if (!(plan->operations & 1U << what) || (what == PING_PONG && peer->size != 2))
            continue;
        for (int i = 0; i < (what == BARRIER ? 1 : plan->nsizes); i++)
            peer_point(peer, plan, (enum peer_operation)what, what == BARRIER ? 4 : plan->sizes[i],
                       in, out);
    }
    free(in);
    free(out);
}

#endif
