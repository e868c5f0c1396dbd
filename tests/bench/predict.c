/* SPDX-License-Identifier: MIT
 *
 * predict: measures collectives among ranks of this machine, processes, and puts beside them what
 * the simulation says, under the costs of KOLO_TUNING.
 *   predict RANKS [ALGORITHM]     the algorithm of every collective that has it
 * A call counts if the cores were as far from each other before it and behind as PREDICT_APART
 * says, in microseconds there and back, or as they were at first. 3: they did not stay so.
 */
#include "call.h"
#include "choice.h"
#include "clock.h"
#include "coll.h"
#include "group.h"
#include "tools/perf_cores.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_RANKS = 16, ROUNDS = 9, NSIZES = 6, MOST_BYTES = 64 << 20, TRIED_BYTES = 32 << 20 };

/* Waits for the cores to be as usual in all, of 0.3 s each; and what ends without that. */
enum { TRIES = 150, UNUSUAL = 3 };

static const size_t sizes[NSIZES] = {65536, 262144, 1 << 20, 4 << 20, 16 << 20, MOST_BYTES};

struct rank {
    const char *path; /* of the store */
    int number, n;
    const char *algorithm;
};

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* When a rank began a round and ended it. */
struct span {
    int64_t began, ended;
};

/* What all ranks see. */
static struct shared {
    struct span spans[MOST_RANKS];
    struct ko_ball ball;
} * shared;

/* Nanoseconds from when the first rank began to when the last had ended: of ranks that share a core
 * one may begin when the other is nearly done. All ranks get the same. */
static int64_t longest_span(kolo_group *g, struct span own)
{
    const int n = kolo_group_size(g);
    struct span all = own;

    shared->spans[kolo_group_rank(g)] = own;
    if (kolo_barrier(g))
        abort();
    for (const struct span *one = shared->spans; one < shared->spans + n; one++) {
        all.began = one->began < all.began ? one->began : all.began;
        all.ended = one->ended > all.ended ? one->ended : all.ended;
    }
    return all.ended - all.began;
}

/* Microseconds of a round of calls, with a barrier after each, so that none begins before all have
 * ended the one before; is_empty: of the barriers alone. */
static double time_round(kolo_group *g, enum ko_collective what, const void *in, void *out,
                         size_t nbytes, bool is_empty)
{
    const int ncalls = (int)(20000000 / (nbytes * (size_t)kolo_group_size(g))) + 1;
    struct span span;

    if (kolo_barrier(g))
        abort();
    span.began = ko_now_ns();
    for (int k = 0; k < ncalls; k++)
        if ((!is_empty && call(g, what, in, out, nbytes)) || kolo_barrier(g))
            abort();
    span.ended = ko_now_ns();
    return (double)longest_span(g, span) / 1e3 / ncalls;
}

/* Links try from time to time what takes less, reading or slots (foreign.h), and that takes longer
 * than either: so much goes through them before that it is known. Ranks that take turns on the
 * cores try nothing. */
static int count_before(kolo_group *g, size_t nbytes)
{
    const bool is_tried = kolo_group_size(g) <= sysconf(_SC_NPROCESSORS_ONLN);

    return is_tried ? (int)(TRIED_BYTES / nbytes) + 1 : 1;
}

static double measure(kolo_group *g, enum ko_collective what, const void *in, void *out,
                      size_t nbytes)
{
    for (int k = count_before(g, nbytes); k > 0; k--)
        if (call(g, what, in, out, nbytes))
            abort();
    return time_round(g, what, in, out, nbytes, false) - time_round(g, what, in, out, nbytes, true);
}

/* The same, again if the cores have moved meanwhile. */
static double measure_steadily(kolo_group *g, struct ko_cores *cores, enum ko_collective what,
                               const void *in, void *out, size_t nbytes)
{
    bool are_usual = false;
    double us = 0;

    while (!are_usual) {
        const int err = ko_cores_await(g, cores);

        if (err)
            exit(err == KOLO_E_TIMEOUT ? UNUSUAL : 1);
        us = measure(g, what, in, out, nbytes);
        if (ko_cores_look(g, cores, &are_usual))
            abort();
    }
    return us;
}

static bool has(enum ko_collective what, const char *algorithm)
{
    for (int row = 0; row < ko_npaper_texts; row++)
        if (ko_paper_texts[row].what == what &&
            (!algorithm || !strcmp(ko_paper_texts[row].name, algorithm)))
            return true;
    return false;
}

/* What the group has chosen for calls like those that were measured. */
static int row_of(const kolo_group *group, enum ko_collective what, size_t block)
{
    return group->choices[what][false][ko_size_class(block)] - 1;
}

static double predict(const kolo_group *group, int row, size_t block, const struct ko_costs *costs)
{
    const struct ko_simulation simulation = {.call = {.text = &ko_paper_texts[row],
                                                      .n = group->size,
                                                      .count = block,
                                                      .slice = ko_group_slice_bytes(group),
                                                      .slots = (int)group->endpoint->own.slots,
                                                      .hosts = group->hosts},
                                             .element = 1,
                                             .costs = costs};
    double us = 0;

    if (ko_simulate(&simulation, &us))
        fprintf(stderr, "%s\n", kolo_last_error());
    return us;
}

static const enum ko_collective whats[] = {KO_ALL_REDUCE,     KO_REDUCE,    KO_BROADCAST,
                                           KO_ALL_GATHER,     KO_GATHER,    KO_SCATTER,
                                           KO_REDUCE_SCATTER, KO_ALL_TO_ALL};
enum { NWHATS = sizeof whats / sizeof *whats };

static void print(const struct rank *rank, const kolo_group *group,
                  double us[NWHATS][NSIZES][ROUNDS])
{
    struct ko_costs costs;

    ko_group_costs(group, &costs);
    for (int w = 0; w < NWHATS; w++)
        for (int i = 0; i < NSIZES && has(whats[w], rank->algorithm); i++) {
            const size_t block = block_bytes(whats[w], sizes[i], rank->n);
            const int row = row_of(group, whats[w], block);
            const double said = predict(group, row, block, &costs);
            double got;

            qsort(us[w][i], ROUNDS, sizeof(double), compare);
            got = us[w][i][ROUNDS / 2];
            printf("%-16s %-12s %9zu bytes %10.1f us measured %10.1f us predicted %6.2f\n",
                   ko_collective_name(whats[w]), ko_paper_texts[row].name, sizes[i], got, said,
                   said / got);
        }
}

static void run(struct rank *rank, kolo_group *group)
{
    static double us[NWHATS][NSIZES][ROUNDS];
    const char *apart = getenv("PREDICT_APART");
    struct ko_cores cores = {
        .ball = &shared->ball, .usual = apart ? atof(apart) : 0, .tries = TRIES};
    char *in = malloc(MOST_BYTES), *out = malloc(MOST_BYTES);

    if (!in || !out)
        abort();
    memset(in, 1, MOST_BYTES);
    memset(out, 1, MOST_BYTES);
    for (int round = 0; round < ROUNDS; round++)
        for (int w = 0; w < NWHATS; w++)
            for (int i = 0; i < NSIZES && has(whats[w], rank->algorithm); i++)
                us[w][i][round] = measure_steadily(group, &cores, whats[w], in, out, sizes[i]);
    if (rank->number == 0)
        print(rank, group, us);
    free(in);
    free(out);
}

/* One rank after the other on the cores in turn, as the simulation has them: not by luck beside
 * each other, or all on one. */
static void pin(const struct rank *rank)
{
    cpu_set_t mine;

    CPU_ZERO(&mine);
    CPU_SET((size_t)rank->number % (size_t)sysconf(_SC_NPROCESSORS_ONLN), &mine);
    (void)sched_setaffinity(0, sizeof mine, &mine);
}

static void be_rank(struct rank *rank)
{
    kolo_store *store = NULL;
    kolo_group *group;

    pin(rank);
    if (kolo_store_open_file(rank->path, rank->n, 20000, &store) ||
        kolo_group_join_store(store, rank->number, rank->n, 20000, &group)) {
        fprintf(stderr, "%s\n", kolo_last_error());
        exit(1);
    }
    run(rank, group);
    kolo_group_free(group);
    kolo_store_close(store);
}

static pid_t start(struct rank *rank)
{
    const pid_t pid = fork();

    if (!pid) {
        be_rank(rank);
        exit(0);
    }
    return pid;
}

/* How the worst of all has ended. */
static int run_all(int n, const char *path, const char *algorithm)
{
    pid_t pids[MOST_RANKS];
    int worst = 0;

    for (int i = 0; i < n; i++)
        pids[i] = start(&(struct rank){path, i, n, algorithm});
    for (int i = 0, status; i < n; i++) {
        const bool has_ended = pids[i] > 0 && waitpid(pids[i], &status, 0) == pids[i];
        const int code = has_ended && WIFEXITED(status) ? WEXITSTATUS(status) : 1;

        worst = !worst || code == 1 ? code : worst;
    }
    return worst;
}

int main(int argc, char **argv)
{
    const int n = argc > 1 ? atoi(argv[1]) : 2;
    char path[] = "/tmp/predict-XXXXXX";
    int fd, code;

    if (n < 2 || n > MOST_RANKS)
        return 1;
    if (argc > 2)
        setenv("KOLO_ALGO", argv[2], 1);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    fd = mkstemp(path);
    if (shared == MAP_FAILED || fd < 0)
        return 1;
    code = run_all(n, path, argc > 2 ? argv[2] : NULL);
    unlink(path);
    return code;
}
