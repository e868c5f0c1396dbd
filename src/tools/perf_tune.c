/* SPDX-License-Identifier: MIT
 *
 * The probes of perf_tune_costs.h are carried out between two threads, over shared memory and over
 * what joins hosts, and some between two processes.
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
#include "perf_cores.h"
#include "perf_tune_costs.h"
#include "simulate.h"
#include "status.h"
#include "tuning.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NRANKS = 2, MOST_RANKS = 64, ROUND_US = 3000, JOIN_MS = 20000 };

/* How often cores may be found otherwise, for each round, and how often all is measured anew where
 * they were more often. */
enum { TRIES = 4, ATTEMPTS = 3 };

/* What the ranks of a group measure together, in so many rounds, while the cores are as usual; the
 * times are rank 0's. */
typedef int (*measurement)(kolo_group *group, struct ko_cores *cores, int nrounds,
                           struct ko_probe_times *times);

struct rank {
    kolo_store *store;
    int number, n, nrounds, status;
    char text[KO_ERROR_TEXT];
    measurement measure;
    struct ko_cores cores;
    struct ko_probe_times *times; /* rank 0's */
};

/* As the host's verbs copy a rank's own block. */
static void copy(const kolo_group *group, void *to, const void *from, size_t nbytes)
{
    if (nbytes >= group->endpoint->cache_bytes)
        ko_copy_streaming(to, from, nbytes);
    else
        ko_copy_short(to, from, nbytes);
}

static int call(kolo_group *group, enum ko_probe probe, const float *in, float *out, int footprint)
{
    const size_t count = ko_probe_bytes(probe, footprint) / sizeof *in;

    switch (probe) {
    case KO_PROBE_BROADCAST:
        return kolo_broadcast(group, out, count, KOLO_FLOAT32, 0);
    case KO_PROBE_REDUCE:
        return kolo_reduce(group, in, out, count, KOLO_FLOAT32, KOLO_SUM, 0);
    case KO_PROBE_REDUCE_SCATTER:
        return kolo_reduce_scatter(group, in, out, count, KOLO_FLOAT32, KOLO_SUM);
    case KO_PROBE_COPY:
        copy(group, out, in, count * sizeof *in);
        return KOLO_OK;
    case KO_PROBE_LONE_COPY:
        if (group->rank == 0)
            copy(group, out, in, count * sizeof *in);
        return KOLO_OK;
    case KO_PROBE_ALL_GATHER:
        return kolo_all_gather(group, out + count * (size_t)group->rank, out, count, KOLO_FLOAT32);
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
static int count_calls(kolo_group *group, enum ko_probe probe, const float *in, float *out,
                       int footprint, int32_t *ncalls)
{
    int64_t began = 0;
    int err = KOLO_OK;

    for (int i = 0; i < 3 && !err; i++) {
        began = ko_now_ns();
        err = call(group, probe, in, out, footprint);
    }
    *ncalls = (int32_t)(ROUND_US * 1000 / (ko_now_ns() - began + 100)) + 1;
    return err ? err : kolo_broadcast(group, ncalls, 1, KOLO_INT32, 0);
}

static int measure(kolo_group *group, enum ko_probe probe, const float *in, float *out,
                   int footprint, double *us)
{
    int32_t ncalls = 1;
    int64_t began;
    int err = count_calls(group, probe, in, out, footprint, &ncalls);

    if (!err)
        err = kolo_barrier(group);
    began = ko_now_ns();
    for (int i = 0; i < ncalls && !err; i++)
        err = call(group, probe, in, out, footprint);
    if (!err) /* a root is done before the others are */
        err = kolo_barrier(group);
    *us = (double)(ko_now_ns() - began) / 1e3 / ncalls;
    return err;
}

/* Again if the cores have moved meanwhile. KOLO_E_TIMEOUT: they do not come back. */
static int measure_steadily(kolo_group *group, struct ko_cores *cores, enum ko_probe probe,
                            const float *in, float *out, int footprint, double *us)
{
    bool are_usual = false;
    int err = KOLO_OK;

    while (!err && !are_usual) {
        err = ko_cores_await(group, cores);
        if (!err)
            err = measure(group, probe, in, out, footprint, us);
        if (!err)
            err = ko_cores_look(group, cores, &are_usual);
    }
    return err;
}

/* Every probe of a set, a bit for each, once at each footprint. */
static int measure_once(kolo_group *group, struct ko_cores *cores, unsigned probes, const float *in,
                        float *out, struct ko_probe_times *times)
{
    int err = KOLO_OK;

    for (int probe = 0; probe < KO_NPROBES && !err; probe++)
        for (int f = 0; f < KO_FOOTPRINTS && !err && probes >> probe & 1; f++)
            err = measure_steadily(group, cores, (enum ko_probe)probe, in, out, f,
                                   &times->us[probe][f]);
    return err;
}

static void take_medians(const struct ko_probe_times *rounds, int nrounds,
                         struct ko_probe_times *times)
{
    for (int probe = 0; probe < KO_NPROBES; probe++)
        for (int f = 0; f < KO_FOOTPRINTS; f++) {
            double sorted[KO_TUNE_MOST_ROUNDS];

            for (int i = 0; i < nrounds; i++)
                sorted[i] = rounds[i].us[probe][f];
            qsort(sorted, (size_t)nrounds, sizeof *sorted, compare);
            times->us[probe][f] = sorted[nrounds / 2];
        }
}

/* A machine may be slow for a second: every figure is of rounds that lie apart. */
static int measure_probes(kolo_group *group, struct ko_cores *cores, unsigned probes, int nrounds,
                          struct ko_probe_times *times)
{
    const size_t most = ko_probe_footprint(KO_FOOTPRINTS - 1);
    float *in = malloc(most), *out = malloc(most);
    struct ko_probe_times rounds[KO_TUNE_MOST_ROUNDS] = {{.is_read = false}};
    int err = in && out ? KOLO_OK : ko_fail(KOLO_E_NOMEM, "no memory to measure with");

    for (size_t i = 0; !err && i < most / sizeof *in; i++)
        in[i] = out[i] = 1;
    for (int round = 0; round < nrounds && !err; round++)
        err = measure_once(group, cores, probes, in, out, &rounds[round]);
    if (!err)
        take_medians(rounds, nrounds, times);
    free(in);
    free(out);
    return err;
}

static int measure_all(kolo_group *group, struct ko_cores *cores, int nrounds,
                       struct ko_probe_times *times)
{
    return measure_probes(group, cores, (1U << KO_NPROBES) - 1, nrounds, times);
}

static int measure_reading(kolo_group *group, struct ko_cores *cores, int nrounds,
                           struct ko_probe_times *times)
{
    const unsigned probes =
        1U << KO_PROBE_EMPTY | 1U << KO_PROBE_BROADCAST | 1U << KO_PROBE_ALL_GATHER;
    int err = measure_probes(group, cores, probes, nrounds, times);

    if (!err)
        times->is_read = ko_foreign_process_of(group->collectives.ports[!group->rank].link) != NULL;
    return err;
}

/* The empty probe alone: its median goes where measure_all puts it. */
static int measure_barrier(kolo_group *group, struct ko_cores *cores, int nrounds,
                           struct ko_probe_times *times)
{
    double us[KO_TUNE_MOST_ROUNDS];
    int err = KOLO_OK;

    for (int round = 0; round < nrounds && !err; round++)
        err = measure_steadily(group, cores, KO_PROBE_EMPTY, NULL, NULL, 0, &us[round]);
    qsort(us, (size_t)nrounds, sizeof *us, compare);
    times->us[KO_PROBE_EMPTY][0] = us[nrounds / 2];
    return err;
}

static void be_rank(struct rank *rank)
{
    kolo_group *group = NULL;
    struct ko_probe_times unused;
    int err;

    ko_perf_pin(rank->number); /* not by luck beside each other, or on one core */
    err = kolo_group_join_store(rank->store, rank->number, rank->n, JOIN_MS, &group);
    if (!err)
        err =
            rank->measure(group, &rank->cores, rank->nrounds, rank->times ? rank->times : &unused);
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

/* *usual, or as they are found; NULL: however they are. */
static struct ko_cores cores_for(struct ko_ball *ball, const double *usual, int nrounds)
{
    return (struct ko_cores){
        .ball = usual ? ball : NULL, .usual = usual ? *usual : 0, .tries = TRIES * nrounds};
}

/* Over one transport, by n ranks that are threads, among cores that are *usual apart, or as they
 * are found; NULL: however they are. */
static int measure_over(const char *transport, int n, int nrounds, measurement body, double *usual,
                        struct ko_probe_times *times)
{
    struct rank ranks[MOST_RANKS];
    struct ko_ball ball = {0};
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
                                 .cores = cores_for(&ball, usual, nrounds),
                                 .times = i ? NULL : times};
        if (pthread_create(&threads[i], NULL, be_thread, &ranks[i]))
            err = ko_fail(KOLO_E_SYSTEM, "no thread to measure with");
        nthreads += !err;
    }
    for (int i = 0; i < nthreads; i++)
        pthread_join(threads[i], NULL);
    err = err ? err : error_of(ranks, nthreads);
    if (!err && usual)
        *usual = ranks[0].cores.usual;
    kolo_store_close(store);
    return err;
}

/* What two processes write, for the one that has started them. */
struct shared {
    char path[PATH_MAX]; /* of their store */
    struct rank ranks[NRANKS];
    struct ko_ball ball;
    struct ko_probe_times times;
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
static pid_t start_process(struct shared *shared, int number, int nrounds, const double *usual)
{
    struct rank *rank = &shared->ranks[number];
    pid_t pid;

    *rank = (struct rank){.number = number,
                          .n = NRANKS,
                          .nrounds = nrounds,
                          .status = KOLO_E_SYSTEM,
                          .text = "a process that was to measure ended before it had",
                          .measure = measure_reading,
                          .cores = cores_for(&shared->ball, usual, nrounds),
                          .times = number ? NULL : &shared->times};
    pid = fork();
    if (!pid)
        be_process(shared, rank);
    if (pid < 0)
        snprintf(rank->text, sizeof rank->text, "no process to measure with: %s", strerror(errno));
    return pid;
}

static int measure_in(struct shared *shared, int nrounds, const double *usual,
                      struct ko_probe_times *times)
{
    pid_t pids[NRANKS];
    int err;

    for (int i = 0; i < NRANKS; i++)
        pids[i] = start_process(shared, i, nrounds, usual);
    for (int i = 0; i < NRANKS; i++)
        if (pids[i] > 0)
            (void)waitpid(pids[i], NULL, 0);
    err = error_of(shared->ranks, NRANKS);
    *times = shared->times;
    return err;
}

/* Over shared memory, by two processes, as between threads the system copies nothing. */
static int measure_by_processes(int nrounds, const double *usual, struct ko_probe_times *times)
{
    struct shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const char *folder = getenv("TMPDIR");
    int fd, err;

    if (shared == MAP_FAILED)
        return ko_fail_errno(errno, "mmap");
    snprintf(shared->path, sizeof shared->path, "%s/kolo-tune-XXXXXX",
             folder && *folder ? folder : "/tmp");
    fd = mkstemp(shared->path);
    err = fd < 0 ? ko_fail_errno(errno, "%s", shared->path) : KOLO_OK;
    if (!err) {
        setenv("KOLO_TRANSPORT", "shm", 1);
        setenv("KOLO_PROTO", "inline,reference,cma", 1);
        err = measure_in(shared, nrounds, usual, times);
        setenv("KOLO_PROTO", "inline,reference", 1);
        unlink(shared->path);
        close(fd);
    }
    munmap(shared, sizeof *shared);
    return err;
}

/* Over whatever joins two hosts, by this rank and another that a launcher has started there; in
 * rank 0's number of rounds. */
static int measure_between_hosts(int nrounds, struct ko_probe_times *times)
{
    int32_t rounds = nrounds;
    struct ko_cores any = {.ball = NULL};
    cpu_set_t allowed;
    const bool is_known = !sched_getaffinity(0, sizeof allowed, &allowed);
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
        err = measure_all(group, &any, rounds, times);
    kolo_group_free(group);
    if (is_known) /* ranks to come on this machine are to have a core each */
        (void)sched_setaffinity(0, sizeof allowed, &allowed);
    return err;
}

/* ---- costs that no probe tells ------------------------------------------------------------ */

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
static int find_change(struct ko_costs *costs, int nrounds, double *apart)
{
    const int n = 2 * (int)costs->cores;
    struct ko_costs trial = *costs;
    double none, one;
    struct ko_probe_times times = {0};
    int err;

    if (n > MOST_RANKS)
        return KOLO_OK;
    setenv("KOLO_ALGO", "barrier=dissemination", 1);
    err = measure_over("shm", n, nrounds, measure_barrier, apart, &times);
    unsetenv("KOLO_ALGO");
    if (err)
        return err;
    trial.change = 0;
    err = predict_barrier(&trial, n, &none);
    trial.change = 1;
    if (!err)
        err = predict_barrier(&trial, n, &one);
    if (!err)
        costs->change = ko_rest(times.us[KO_PROBE_EMPTY][0], none) / (one - none);
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

/* By two ranks of this machine, and by more of them than cores: among cores that are all the time
 * as far from each other as at first, *apart; NULL: however they are. */
static int measure_local(struct ko_costs *costs, int nrounds, double *apart)
{
    struct ko_probe_times local, reading;
    int err = measure_over("shm", NRANKS, nrounds, measure_all, apart, &local);

    if (!err)
        err = measure_by_processes(nrounds, apart, &reading);
    if (err)
        return err;
    ko_find_link(&local, &costs->links[KO_LOCAL], costs->reduce_byte);
    ko_find_copies(&local, costs);
    costs->reading.cache = reading.is_read ? (double)ko_cache_bytes() : 0;
    costs->reading.call = time_call();
    ko_find_reading(&reading, &costs->reading);
    costs->call = local.us[KO_PROBE_EMPTY][0] * 0.2;
    return find_change(costs, nrounds, apart);
}

/* Anew where they have moved for long. */
static int measure_local_steadily(struct ko_costs *costs, int nrounds, double *apart)
{
    int err = KOLO_E_TIMEOUT;

    for (int i = 0; i < ATTEMPTS && err == KOLO_E_TIMEOUT; i++) {
        *apart = 0;
        err = measure_local(costs, nrounds, apart);
    }
    if (err != KOLO_E_TIMEOUT)
        return err;
    *apart = 0;
    return measure_local(costs, nrounds, NULL);
}

/* Between hosts, or what stands for that: over loopback. */
static int measure_remote(bool is_launched, struct ko_costs *costs, int nrounds)
{
    struct ko_probe_times times;
    double unused[KO_FOOTPRINTS];
    int err = is_launched ? measure_between_hosts(nrounds, &times)
                          : measure_over("tcp", NRANKS, nrounds, measure_all, NULL, &times);

    if (!err)
        ko_find_link(&times, &costs->links[KO_REMOTE], unused);
    return err;
}

int ko_perf_tune(const struct ko_placement *placement, int nrounds, struct ko_costs *costs,
                 double *apart)
{
    int err;

    set_variables();
    ko_tuning_usual(costs);
    err = measure_remote(placement->size > 1, costs, nrounds);
    if (!err && placement->rank <= 0)
        err = measure_local_steadily(costs, nrounds, apart);
    unsetenv("KOLO_TRANSPORT");
    unsetenv("KOLO_PROTO");
    return err;
}
