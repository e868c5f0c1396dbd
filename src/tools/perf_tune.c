/* SPDX-License-Identifier: MIT
 *
 * Costs are found by measuring what stresses one or two of them, between two ranks at work at once,
 * in the order in which they can be told apart:
 *
 *   broadcast        the receiver's copies out of slots, with which the root's into them keep up
 *   reduce           the root's reductions
 *   reduce_scatter   a rank's copies into slots, and its reductions
 *   copy             each rank's copy of its own, as of a block that stays
 *   all_gather       copies in and out, and one of the own block
 *
 * What is read out of a peer's process, and not out of a thread's memory, is measured by two
 * processes, the same way:
 *
 *   all_gather       one copy of the other's block by the system, and one of the own block
 *   broadcast        one copy of which the root, who only waits, does a part
 *
 * What it costs that ranks share cores is found by a barrier of twice as many ranks as there are
 * cores, which is then simulated under what has been found.
 */
#include "perf_tune.h"

#include "caches.h"
#include "clock.h"
#include "copy.h"
#include "foreign.h"
#include "group.h"
#include "kolo.h"
#include "layout.h"
#include "perf.h"
#include "simulate.h"
#include "status.h"
#include "tuning.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NRANKS = 2, MOST_RANKS = 64, ROUND_US = 3000, JOIN_MS = 20000 };

enum probe { EMPTY, BROADCAST, REDUCE, REDUCE_SCATTER, COPY, ALL_GATHER, NPROBES };

/* Microseconds of a call, by probe and footprint. */
struct times {
    double us[NPROBES][KO_FOOTPRINTS];
    bool is_read; /* by the receiver, out of its peer's memory */
};

/* What the ranks of a group measure together, in so many rounds; the times are rank 0's. */
typedef int (*measurement)(kolo_group *group, int nrounds, struct times *times);

struct rank {
    kolo_store *store;
    int number, n, nrounds, status;
    char text[KO_ERROR_TEXT];
    measurement measure;
    struct times *times; /* rank 0's */
};

/* How many bytes a message has in all if the buffers of the two ranks are to have that footprint
 * (costs.h): one each, three of the two, three blocks each, two of its own each. */
static double length(enum probe probe, double footprint)
{
    static const double share[NPROBES] = {[BROADCAST] = 1,
                                          [REDUCE] = 2.0 / 3,
                                          [REDUCE_SCATTER] = 1.0 / 3,
                                          [COPY] = 1.0 / 2,
                                          [ALL_GATHER] = 1.0 / 3};

    return footprint * share[probe];
}

/* As the host's verbs copy a rank's own block. */
static void copy(const kolo_group *group, void *to, const void *from, size_t nbytes)
{
    if (nbytes >= group->endpoint->cache_bytes)
        ko_copy_streaming(to, from, nbytes);
    else
        ko_copy_short(to, from, nbytes);
}

static int call(kolo_group *group, enum probe probe, const float *in, float *out, size_t footprint)
{
    const size_t count = (size_t)length(probe, (double)footprint) / sizeof *in;

    switch (probe) {
    case BROADCAST:
        return kolo_broadcast(group, out, count, KOLO_FLOAT32, 0);
    case REDUCE:
        return kolo_reduce(group, in, out, count, KOLO_FLOAT32, KOLO_SUM, 0);
    case REDUCE_SCATTER:
        return kolo_reduce_scatter(group, in, out, count, KOLO_FLOAT32, KOLO_SUM);
    case COPY:
        copy(group, out, in, count * sizeof *in);
        return KOLO_OK;
    case ALL_GATHER:
        return kolo_all_gather(group, in, out, count, KOLO_FLOAT32);
    default:
        return kolo_barrier(group);
    }
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* How many calls make a round; the ranks agree on rank 0's. */
static int count_calls(kolo_group *group, enum probe probe, const float *in, float *out,
                       size_t nbytes, int32_t *ncalls)
{
    int64_t began = 0;
    int err = KOLO_OK;

    for (int i = 0; i < 3 && !err; i++) {
        began = ko_now_ns();
        err = call(group, probe, in, out, nbytes);
    }
    *ncalls = (int32_t)(ROUND_US * 1000 / (ko_now_ns() - began + 100)) + 1;
    return err ? err : kolo_broadcast(group, ncalls, 1, KOLO_INT32, 0);
}

static int measure(kolo_group *group, enum probe probe, const float *in, float *out, size_t nbytes,
                   double *us)
{
    int32_t ncalls = 1;
    int64_t began;
    int err = count_calls(group, probe, in, out, nbytes, &ncalls);

    if (!err)
        err = kolo_barrier(group);
    began = ko_now_ns();
    for (int i = 0; i < ncalls && !err; i++)
        err = call(group, probe, in, out, nbytes);
    if (!err) /* a root is done before the others are */
        err = kolo_barrier(group);
    *us = (double)(ko_now_ns() - began) / 1e3 / ncalls;
    return err;
}

/* Every probe of a set, a bit for each, once at each footprint. */
static int measure_once(kolo_group *group, unsigned probes, const float *in, float *out,
                        struct times *times)
{
    int err = KOLO_OK;

    for (int probe = 0; probe < NPROBES && !err; probe++)
        for (int f = 0; f < KO_FOOTPRINTS && !err && probes >> probe & 1; f++)
            err = measure(group, (enum probe)probe, in, out,
                          (size_t)1 << (KO_LEAST_FOOTPRINT + 2 * f), &times->us[probe][f]);
    return err;
}

static void take_medians(const struct times *rounds, int nrounds, struct times *times)
{
    for (int probe = 0; probe < NPROBES; probe++)
        for (int f = 0; f < KO_FOOTPRINTS; f++) {
            double sorted[KO_TUNE_MOST_ROUNDS];

            for (int i = 0; i < nrounds; i++)
                sorted[i] = rounds[i].us[probe][f];
            qsort(sorted, (size_t)nrounds, sizeof *sorted, compare);
            times->us[probe][f] = sorted[nrounds / 2];
        }
}

/* A machine may be slow for a second: every figure is of rounds that lie apart. */
static int measure_probes(kolo_group *group, unsigned probes, int nrounds, struct times *times)
{
    const size_t most = (size_t)1 << (KO_LEAST_FOOTPRINT + 2 * (KO_FOOTPRINTS - 1));
    float *in = malloc(most), *out = malloc(most);
    struct times rounds[KO_TUNE_MOST_ROUNDS] = {{.is_read = false}};
    int err = in && out ? KOLO_OK : ko_fail(KOLO_E_NOMEM, "no memory to measure with");

    for (size_t i = 0; !err && i < most / sizeof *in; i++)
        in[i] = out[i] = 1;
    for (int round = 0; round < nrounds && !err; round++)
        err = measure_once(group, probes, in, out, &rounds[round]);
    if (!err)
        take_medians(rounds, nrounds, times);
    free(in);
    free(out);
    return err;
}

static int measure_all(kolo_group *group, int nrounds, struct times *times)
{
    return measure_probes(group, (1U << NPROBES) - 1, nrounds, times);
}

static int measure_reading(kolo_group *group, int nrounds, struct times *times)
{
    const unsigned probes = 1U << EMPTY | 1U << BROADCAST | 1U << ALL_GATHER;
    int err = measure_probes(group, probes, nrounds, times);

    if (!err)
        times->is_read = ko_foreign_process_of(group->collectives.ports[!group->rank].link) != NULL;
    return err;
}

/* The EMPTY probe alone: its median goes where measure_all puts it. */
static int measure_barrier(kolo_group *group, int nrounds, struct times *times)
{
    double us[KO_TUNE_MOST_ROUNDS];
    int err = KOLO_OK;

    for (int round = 0; round < nrounds && !err; round++)
        err = measure(group, EMPTY, NULL, NULL, 0, &us[round]);
    qsort(us, (size_t)nrounds, sizeof *us, compare);
    times->us[EMPTY][0] = us[nrounds / 2];
    return err;
}

static void be_rank(struct rank *rank)
{
    kolo_group *group = NULL;
    struct times unused;
    int err;

    ko_perf_pin(rank->number); /* not by luck beside each other, or on one core */
    err = kolo_group_join_store(rank->store, rank->number, rank->n, JOIN_MS, &group);
    if (!err)
        err = rank->measure(group, rank->nrounds, rank->times ? rank->times : &unused);
    rank->status = err;
    strncpy(rank->text, err ? kolo_last_error() : "", sizeof rank->text - 1);
    kolo_group_free(group);
}

static void *be_thread(void *rank)
{
    be_rank(rank);
    return NULL;
}

/* The first rank's error. */
static int error_of(const struct rank *ranks, int n)
{
    for (int i = 0; i < n; i++)
        if (ranks[i].status)
            return ko_fail_again(ranks[i].status, ranks[i].text);
    return KOLO_OK;
}

/* Over one transport, by n ranks that are threads. */
static int measure_over(const char *transport, int n, int nrounds, measurement body,
                        struct times *times)
{
    struct rank ranks[MOST_RANKS];
    pthread_t threads[MOST_RANKS];
    kolo_store *store;
    int nthreads = 0, err = kolo_store_open_local(&store);

    if (err)
        return err;
    setenv("KOLO_TRANSPORT", transport, 1);
    for (int i = 0; i < n && !err; i++) {
        ranks[i] = (struct rank){.store = store,
                                 .number = i,
                                 .n = n,
                                 .nrounds = nrounds,
                                 .measure = body,
                                 .times = i ? NULL : times};
        if (pthread_create(&threads[i], NULL, be_thread, &ranks[i]))
            err = ko_fail(KOLO_E_SYSTEM, "no thread to measure with");
        nthreads += !err;
    }
    for (int i = 0; i < nthreads; i++)
        pthread_join(threads[i], NULL);
    err = err ? err : error_of(ranks, nthreads);
    kolo_store_close(store);
    return err;
}

/* What two processes write, for the one that has started them. */
struct shared {
    char path[sizeof "/tmp/kolo-tune-XXXXXX"]; /* of their store */
    struct rank ranks[NRANKS];
    struct times times;
};

static _Noreturn void be_process(struct shared *shared, struct rank *rank)
{
    int err = kolo_store_open_file(shared->path, NRANKS, JOIN_MS, &rank->store);

    if (!err)
        be_rank(rank);
    else
        strncpy(rank->text, kolo_last_error(), sizeof rank->text - 1);
    rank->status = err ? err : rank->status;
    kolo_store_close(rank->store);
    _exit(0);
}

/* Until it has said how it went it has failed. */
static pid_t start_process(struct shared *shared, int number, int nrounds)
{
    struct rank *rank = &shared->ranks[number];
    pid_t pid;

    *rank = (struct rank){.number = number,
                          .n = NRANKS,
                          .nrounds = nrounds,
                          .status = KOLO_E_SYSTEM,
                          .text = "a process that was to measure ended before it had",
                          .measure = measure_reading,
                          .times = number ? NULL : &shared->times};
    pid = fork();
    if (!pid)
        be_process(shared, rank);
    if (pid < 0)
        snprintf(rank->text, sizeof rank->text, "no process to measure with: %s", strerror(errno));
    return pid;
}

static int measure_in(struct shared *shared, int nrounds, struct times *times)
{
    pid_t pids[NRANKS];
    int err;

    for (int i = 0; i < NRANKS; i++)
        pids[i] = start_process(shared, i, nrounds);
    for (int i = 0; i < NRANKS; i++)
        if (pids[i] > 0)
            (void)waitpid(pids[i], NULL, 0);
    err = error_of(shared->ranks, NRANKS);
    *times = shared->times;
    return err;
}

/* Over shared memory, by two processes, as between threads the system copies nothing. */
static int measure_by_processes(int nrounds, struct times *times)
{
    struct shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int fd, err;

    if (shared == MAP_FAILED)
        return ko_fail_errno(errno, "mmap");
    strcpy(shared->path, "/tmp/kolo-tune-XXXXXX");
    fd = mkstemp(shared->path);
    err = fd < 0 ? ko_fail_errno(errno, "a file in /tmp") : KOLO_OK;
    if (!err) {
        setenv("KOLO_TRANSPORT", "shm", 1);
        setenv("KOLO_PROTO", "inline,reference,cma", 1);
        err = measure_in(shared, nrounds, times);
        setenv("KOLO_PROTO", "inline,reference", 1);
        unlink(shared->path);
        close(fd);
    }
    munmap(shared, sizeof *shared);
    return err;
}

/* Over whatever joins two hosts, by this rank and another that a launcher has started there; in
 * rank 0's number of rounds. */
static int measure_between_hosts(int nrounds, struct times *times)
{
    int32_t rounds = nrounds;
    kolo_group *group;
    int err = kolo_group_join(NULL, JOIN_MS, &group);

    if (err)
        return err;
    ko_perf_pin(0);
    err = kolo_barrier(group);
    if (!err && (group->size != NRANKS || group->hosts->n != NRANKS))
        err = ko_fail(KOLO_E_INVALID,
                      "--tune measures the way between two hosts by a rank on each; these are %d "
                      "ranks on %d: start it on one machine alone without a launcher",
                      group->size, group->hosts->n);
    if (!err)
        err = kolo_broadcast(group, &rounds, 1, KOLO_INT32, 0);
    if (!err && (rounds < 1 || rounds > KO_TUNE_MOST_ROUNDS))
        err = ko_fail(KOLO_E_MISMATCH, "rank 0 wants %d rounds, which is another kolo-perf's",
                      (int)rounds);
    if (!err)
        err = measure_all(group, rounds, times);
    kolo_group_free(group);
    return err;
}

/* ---- from times to costs ----------------------------------------------------------------- */

/* What is left of a sum without its other parts; noise must not make it nothing. */
static double rest(double sum, double parts)
{
    return sum - parts > sum / 10 ? sum - parts : sum / 10;
}

/* Of a probe's call at a footprint, beyond what an empty one takes. */
static double per_byte(const struct times *times, enum probe probe, int footprint)
{
    const double nbytes = (double)((size_t)1 << (KO_LEAST_FOOTPRINT + 2 * footprint));

    return rest(times->us[probe][footprint], times->us[EMPTY][0]) / length(probe, nbytes);
}

static void find_link(const struct times *times, struct ko_link_costs *link, double *reduce)
{
    const double empty = times->us[EMPTY][0];

    link->latency = empty * 0.4;
    link->send = link->receive = empty * 0.2;
    for (int f = 0; f < KO_FOOTPRINTS; f++) {
        link->receive_byte[f] = per_byte(times, BROADCAST, f);
        reduce[f] = per_byte(times, REDUCE, f);
        /* a broadcast is as slow as the slower of its two ends */
        link->send_byte[f] =
            fmin(rest(per_byte(times, REDUCE_SCATTER, f), reduce[f]), link->receive_byte[f]);
    }
}

/* What a rank copies itself. To copy out of slots takes less of one that copies into some
 * meanwhile, as in all_gather, than of one that waits for each, but not less than a part of that
 * (found by measuring). */
static void find_copies(const struct times *times, struct ko_link_costs *link, double *copies)
{
    static const double least_part = 0.4;

    for (int f = 0; f < KO_FOOTPRINTS; f++) {
        const double waiting = link->receive_byte[f];
        double at_work;

        copies[f] = per_byte(times, COPY, f);
        at_work = per_byte(times, ALL_GATHER, f) - link->send_byte[f] - copies[f];
        link->receive_byte[f] = fmin(waiting, fmax(at_work, least_part * waiting));
    }
}

/* What a call of the system's takes to read a word out of a process; the middle of some batches. */
static double time_call(void)
{
    enum { BATCHES = 15, CALLS = 1000 };
    uint64_t word = 0, found;
    const struct iovec here = {&found, sizeof found}, there = {&word, sizeof word};
    double us[BATCHES];

    for (int i = 0; i < BATCHES; i++) {
        const int64_t began = ko_now_ns();

        for (int k = 0; k < CALLS; k++)
            (void)process_vm_readv(getpid(), &here, 1, &there, 1, 0);
        us[i] = (double)(ko_now_ns() - began) / 1e3 / CALLS;
    }
    qsort(us, BATCHES, sizeof *us, compare);
    return us[BATCHES / 2];
}

/* Without the copy of the own block. What is not read where it lies has no cache to lie in. */
static void find_reading(const struct times *times, const double *copies,
                         struct ko_reading_costs *reading)
{
    reading->cache = times->is_read ? (double)ko_cache_bytes() : 0;
    reading->call = time_call();
    for (int f = 0; f < KO_FOOTPRINTS; f++) {
        reading->byte[f] = rest(per_byte(times, ALL_GATHER, f), copies[f]);
        reading->helped_byte[f] = per_byte(times, BROADCAST, f);
    }
}

/* Predicts a barrier of n ranks of one host. */
static int predict_barrier(const struct ko_costs *costs, int n, double *us)
{
    struct ko_simulation simulation = {.call = {.n = n, .slice = 1, .slots = 8}, .costs = costs};
    struct ko_hosts *hosts;
    int err = ko_layout_even(n, n, &hosts);

    if (err)
        return err;
    for (int row = 0; row < ko_npaper_texts; row++)
        if (ko_paper_texts[row].what == KO_BARRIER &&
            !strcmp(ko_paper_texts[row].name, "dissemination"))
            simulation.call.text = &ko_paper_texts[row];
    simulation.call.hosts = hosts;
    err = ko_simulate(&simulation, us);
    free(hosts);
    return err;
}

/* The cost of changing ranks under which the simulated barrier takes as long as the real one did,
 * which grows with it in proportion. With more ranks than are measured here it stays. */
static int find_change(struct ko_costs *costs, int nrounds)
{
    const int n = 2 * (int)costs->cores;
    struct ko_costs trial = *costs;
    double none, one;
    struct times times = {0};
    int err;

    if (n > MOST_RANKS)
        return KOLO_OK;
    setenv("KOLO_ALGO", "barrier=dissemination", 1);
    err = measure_over("shm", n, nrounds, measure_barrier, &times);
    unsetenv("KOLO_ALGO");
    if (err)
        return err;
    trial.change = 0;
    err = predict_barrier(&trial, n, &none);
    trial.change = 1;
    if (!err)
        err = predict_barrier(&trial, n, &one);
    if (!err)
        costs->change = rest(times.us[EMPTY][0], none) / (one - none);
    return err;
}

/* What would bend the probes. What they are carried out with, as slots and slices, stays; but they
 * go through the slots, as the model has it, and not by one copy out of the other rank's memory. */
static void set_variables(void)
{
    static const char *const names[] = {"KOLO_TUNING", "KOLO_ALGO", "KOLO_CHECK",
                                        "KOLO_DETERMINISTIC", "KOLO_TRANSPORT"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
    setenv("KOLO_PROTO", "inline,reference", 1);
}

int ko_perf_tune(const struct ko_placement *placement, int nrounds, struct ko_costs *costs)
{
    const bool is_launched = placement->size > 1;
    double unused[KO_FOOTPRINTS];
    struct times local, remote, reading;
    int err;

    set_variables();
    ko_tuning_usual(costs);
    err = is_launched ? measure_between_hosts(nrounds, &remote)
                      : measure_over("tcp", NRANKS, nrounds, measure_all, &remote);
    if (err || placement->rank > 0)
        return err;
    err = measure_over("shm", NRANKS, nrounds, measure_all, &local);
    if (!err)
        err = measure_by_processes(nrounds, &reading);
    if (err)
        return err;
    find_link(&remote, &costs->links[KO_REMOTE], unused);
    find_link(&local, &costs->links[KO_LOCAL], costs->reduce_byte);
    find_copies(&local, &costs->links[KO_LOCAL], costs->copy_byte);
    find_reading(&reading, costs->copy_byte, &costs->reading);
    costs->call = local.us[EMPTY][0] * 0.2;
    err = find_change(costs, nrounds);
    unsetenv("KOLO_TRANSPORT");
    unsetenv("KOLO_PROTO");
    return err;
}
