/* SPDX-License-Identifier: MIT
 *
 * hosts: measures algorithms among ranks of several hosts, which are network namespaces of this
 * machine, in turns, and puts beside each what the simulation says under the costs of KOLO_TUNING.
 *   hosts [-r RATE] RANKS,RANKS,... COLLECTIVE ALGORITHM...
 * For each size and algorithm: microseconds, as a part of the first algorithm's in the same round,
 * as predicted, and what the first host sends, as a part of the buffer.
 * RATE, as tc writes it (4gbit), is what the wire of each host carries at most; without it the wire
 * is as fast as the kernel. Needs root, the ip command and, for a rate, tc.
 */
#include "call.h"
#include "choice.h"
#include "clock.h"
#include "coll.h"
#include "layout.h"
#include "networks.h"
#include "tuning.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_RANKS = 16, MOST_ALGORITHMS = 8, NSIZES = 8, ROUNDS = 15, BATCH_US = 8000 };
enum { LEAST_BYTES = 1024, MOST_BYTES = 16 << 20, PORT = 29999 };

struct bench {
    int n, host[MOST_RANKS];
    struct networks networks;
    enum ko_collective what;
    int nalgorithms;
    char **algorithms;
};

/* Microseconds of a call; bytes that the first host sends in one. */
struct times {
    double us[NSIZES][MOST_ALGORITHMS][ROUNDS], sent[NSIZES][MOST_ALGORITHMS];
};

static size_t size_of(int i)
{
    return (size_t)LEAST_BYTES << 2 * i;
}

static void check(int err)
{
    if (err) {
        fprintf(stderr, "%s\n", kolo_last_error());
        exit(1);
    }
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* One batch; rank 0 says of how many calls. */
static void measure(kolo_group *g, enum ko_collective what, void *in, void *out,
                    struct times *times, int size, int algorithm, int round)
{
    const size_t nbytes = size_of(size);
    int64_t began = ko_now_ns();
    uint64_t before;
    int32_t ncalls;

    check(call(g, what, in, out, nbytes));
    ncalls = (int32_t)(BATCH_US * 1000 / (ko_now_ns() - began + 100)) + 1;
    check(kolo_broadcast(g, &ncalls, 1, KOLO_INT32, 0));
    check(kolo_barrier(g));
    before = networks_sent();
    began = ko_now_ns();
    for (int i = 0; i < ncalls; i++)
        check(call(g, what, in, out, nbytes));
    check(kolo_barrier(g));
    times->us[size][algorithm][round] = (double)(ko_now_ns() - began) / 1e3 / ncalls;
    times->sent[size][algorithm] = (double)(networks_sent() - before) / ncalls;
}

/* 0 if it cannot be predicted. */
static double predict(const struct bench *bench, const char *algorithm, size_t nbytes,
                      const struct ko_costs *costs)
{
    static const char *const names[] = {"a", "b", "c", "d"};
    const bool has_blocks = bench->what == KO_ALL_GATHER || bench->what == KO_REDUCE_SCATTER;
    struct ko_simulation simulation = {
        .call = {.n = bench->n,
                 .count = nbytes / (has_blocks ? (size_t)bench->n : 1),
                 .slice = 131072,
                 .slots = 8},
        .element = 1,
        .costs = costs};
    const char *machines[MOST_RANKS];
    struct ko_hosts *hosts;
    double us = 0;

    for (int i = 0; i < bench->n; i++)
        machines[i] = names[bench->host[i]];
    check(ko_layout_make(machines, bench->n, &hosts));
    simulation.call.hosts = hosts;
    for (int row = 0; row < ko_npaper_texts; row++)
        if (ko_paper_texts[row].what == bench->what && !strcmp(ko_paper_texts[row].name, algorithm))
            simulation.call.text = &ko_paper_texts[row];
    if (simulation.call.text)
        (void)ko_simulate(&simulation, &us);
    free(hosts);
    return us;
}

static double median(double *us)
{
    qsort(us, ROUNDS, sizeof *us, compare);
    return us[ROUNDS / 2];
}

/* Of the first algorithm's time in the same round. */
static double relative(const double us[MOST_ALGORITHMS][ROUNDS], int algorithm)
{
    double ratios[ROUNDS];

    for (int i = 0; i < ROUNDS; i++)
        ratios[i] = us[algorithm][i] / us[0][i];
    return median(ratios);
}

static void print(const struct bench *bench, struct times *times)
{
    struct ko_costs costs;

    check(ko_tuning_get(&costs));
    printf("%-16s%9s", ko_collective_name(bench->what), "bytes");
    for (int a = 0; a < bench->nalgorithms; a++)
        printf(" | %-32.32s", bench->algorithms[a]);
    printf("\n%25s", "");
    for (int a = 0; a < bench->nalgorithms; a++)
        printf(" | %9s %5s %9s %6s", "us", "ratio", "said", "sent");
    printf("\n");
    for (int size = 0; size < NSIZES; size++) {
        const size_t nbytes = size_of(size);
        double ratios[MOST_ALGORITHMS];

        printf("%25zu", nbytes);
        for (int a = bench->nalgorithms - 1; a >= 0; a--)
            ratios[a] = relative(times->us[size], a);
        for (int a = 0; a < bench->nalgorithms; a++)
            printf(" | %9.1f %5.2f %9.1f %6.2f", median(times->us[size][a]), ratios[a],
                   predict(bench, bench->algorithms[a], nbytes, &costs),
                   times->sent[size][a] / (double)nbytes);
        printf("\n");
    }
}

static void run(const struct bench *bench, int rank, kolo_group *world)
{
    static struct times times;
    kolo_group *groups[MOST_ALGORITHMS];
    char *in = calloc(1, MOST_BYTES), *out = calloc(1, MOST_BYTES);
    int ranks[MOST_RANKS];

    if (!in || !out)
        abort();
    memset(in, 1, MOST_BYTES);
    memset(out, 1, MOST_BYTES);
    for (int i = 0; i < bench->n; i++)
        ranks[i] = i;
    for (int a = 0; a < bench->nalgorithms; a++) {
        setenv("KOLO_ALGO", bench->algorithms[a], 1);
        check(kolo_group_new(world, ranks, bench->n, &groups[a]));
    }
    for (int round = 0; round < ROUNDS; round++)
        for (int size = 0; size < NSIZES; size++)
            for (int a = 0; a < bench->nalgorithms; a++)
                measure(groups[a], bench->what, in, out, &times, size, a, round);
    if (rank == 0)
        print(bench, &times);
    for (int a = 0; a < bench->nalgorithms; a++)
        kolo_group_free(groups[a]);
    free(in);
    free(out);
}

static void be_rank(const struct bench *bench, int rank)
{
    char address[32], method[96];
    kolo_group *world;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (networks_enter(&bench->networks, bench->host[rank]))
        exit(1);
    snprintf(method, sizeof method, "tcp://%s:%d?rank=%d&world_size=%d",
             networks_address(0, address, sizeof address), PORT, rank, bench->n);
    check(kolo_group_join(method, 20000, &world));
    run(bench, rank, world);
    kolo_group_free(world);
    fflush(NULL);
    exit(0);
}

/* "2,1,1": ranks 0 and 1 on host 0 and so on. */
static int read_hosts(const char *text, struct bench *bench)
{
    char *end;
    int nhosts = 0;

    for (; *text && nhosts < NETWORKS_MOST; text = *end ? end + 1 : end, nhosts++)
        for (long left = strtol(text, &end, 10); left > 0 && bench->n < MOST_RANKS; left--)
            bench->host[bench->n++] = nhosts;
    return nhosts;
}

/* Sets the hosts' wires up. BBR, where it is the system's choice, takes some links that pause
 * between calls for slow ones, by chance, and then is twice as slow. */
static int set_up(const struct networks *networks, const char *rate)
{
    int failed = 0;

    for (int host = 0; host < networks->n && !failed; host++)
        failed =
            networks_enter(networks, host) ||
            networks_command("sysctl -qw net.ipv4.tcp_congestion_control=reno") ||
            (rate && networks_command(
                         "tc qdisc add dev k0 root tbf rate %s burst 256kb latency 20ms", rate));
    return networks_enter(networks, -1) || failed;
}

static int find_collective(const char *name)
{
    for (int what = 0; what < KO_NCOLLECTIVES; what++)
        if (!strcmp(ko_collective_name((enum ko_collective)what), name))
            return what;
    return -1;
}

int main(int argc, char **argv)
{
    const char *rate = argc > 2 && !strcmp(argv[1], "-r") ? argv[2] : NULL;
    struct bench bench = {.n = 0};
    int nhosts, what, status = 0, failed = 0;

    argc -= rate ? 2 : 0;
    argv += rate ? 2 : 0;
    nhosts = argc > 1 ? read_hosts(argv[1], &bench) : 0;
    what = argc > 2 ? find_collective(argv[2]) : -1;
    if (nhosts < 2 || what < 0 || argc < 4 || argc > 3 + MOST_ALGORITHMS) {
        fprintf(stderr, "usage: hosts [-r RATE] RANKS,RANKS,... COLLECTIVE ALGORITHM...\n");
        return 125;
    }
    bench.what = (enum ko_collective)what;
    bench.nalgorithms = argc - 3;
    bench.algorithms = argv + 3;
    setenv("KOLO_AUTH", "none", 1); /* nobody else is on these wires */
    if (networks_open(&bench.networks, nhosts) || set_up(&bench.networks, rate))
        return 1;
    for (int rank = 0; rank < bench.n; rank++)
        if (fork() == 0)
            be_rank(&bench, rank);
    while (wait(&status) > 0)
        failed |= status;
    networks_close(&bench.networks);
    return failed != 0;
}
