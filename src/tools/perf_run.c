/* SPDX-License-Identifier: MIT
 *
 * The ranks: those of one process are threads that share a report and nothing else. With a launcher
 * every process has as many, and they are numbered process by process.
 */
#include "perf.h"

#include "launch.h"
#include "perf_case.h"
#include "perf_device.h"
#include "spare_memory.h"
#include "status.h"
#include "thread.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PAGE = 4096, LARGEST_ELEMENT = 8 };

/* One rank's thread. */
struct seat {
    const struct ko_perf_options *options;
    struct ko_perf_report *report;
    kolo_store *store; /* NULL: the ranks are in several processes, or this is the only one */
    pthread_t thread;
    int number; /* among the threads of the process */
    int syscalls_fd;
    struct ko_perf_device *device; /* NULL: none is wanted */
    int err;
    int64_t nwrong;
};

/* ---- joining ----------------------------------------------------------------------------- */

/* Whether a launcher has started this process, maybe with others. */
static bool is_launched(const struct ko_perf_options *options)
{
    return options->placement.rank_name;
}

/* Ranks of several threads in several processes need an address that all of them know. */
static int join_as_thread(const struct seat *seat, kolo_group **group)
{
    const struct ko_placement *placement = &seat->options->placement;
    const int n = seat->options->nthreads;
    char url[KO_HOST_TEXT + 100];

    if (!placement->host[0])
        return ko_fail(KOLO_E_UNSUPPORTED,
                       "-t %d: %s gives no address for ranks that are threads: "
                       "set KOLO_MASTER to host:port of rank 0",
                       n, placement->launcher);
    snprintf(url, sizeof url, "tcp://[%s]:%d?rank=%d&world_size=%d", placement->host,
             placement->port, placement->rank * n + seat->number, placement->size * n);
    return kolo_group_join(url, seat->options->timeout_ms, group);
}

static int join(const struct seat *seat, kolo_group **group)
{
    const struct ko_perf_options *options = seat->options;

    if (seat->store)
        return kolo_group_join_store(seat->store, seat->number, options->nthreads,
                                     options->timeout_ms, group);
    if (options->nthreads == 1)
        return kolo_group_join(NULL, options->timeout_ms, group);
    return join_as_thread(seat, group);
}

void ko_perf_pin(long number)
{
    cpu_set_t allowed, mine;
    size_t cpu = 0;

    if (sched_getaffinity(0, sizeof allowed, &allowed))
        return;
    number %= CPU_COUNT(&allowed);
    while (!CPU_ISSET(cpu, &allowed) || number-- > 0)
        cpu++;
    CPU_ZERO(&mine);
    CPU_SET(cpu, &mine);
    (void)sched_setaffinity(0, sizeof mine, &mine);
}

/* The rank's number among those of this machine. */
static int local_number(const struct seat *seat)
{
    const int local = seat->options->placement.local_rank;

    return (local > 0 ? local : 0) * seat->options->nthreads + seat->number;
}

/* ---- memory ------------------------------------------------------------------------------ */

/* Before any rank of this machine takes memory, all know whether there is enough. */
static int check_memory(const struct ko_perf_options *options)
{
    const int processes = options->placement.local_size;
    const double ranks = (double)(processes > 0 ? processes : 1) * options->nthreads;
    const int buffers = options->on_gpu || !options->check ? 2 : 3; /* a, b, copy, mirror */
    const double needed = ranks * buffers * (double)options->max_bytes;
    const double free_bytes = (double)ko_spare_memory();

    if (needed <= free_bytes)
        return KOLO_OK;
    return ko_fail(KOLO_E_NOMEM,
                   "-e %zu: the %.0f ranks of this machine need %.3g GB, of which %.3g GB are free",
                   options->max_bytes, ranks, needed * 1e-9, free_bytes * 1e-9);
}

static size_t buffer_bytes(const struct ko_perf_options *options)
{
    return options->max_bytes + (options->unalign + 1) * LARGEST_ELEMENT;
}

/* One that operations do not see. */
static int take_plain_buffer(const struct ko_perf_options *options, void **buffer)
{
    if (!posix_memalign(buffer, PAGE, buffer_bytes(options)))
        return KOLO_OK;
    *buffer = NULL;
    return ko_fail(KOLO_E_NOMEM, "no memory for a buffer of %zu bytes", buffer_bytes(options));
}

static int take_buffer(const struct ko_perf_rank *rank, void **buffer)
{
    if (rank->device)
        return ko_perf_device_alloc(rank->device, buffer_bytes(rank->options), buffer);
    if (rank->options->shared)
        return kolo_mem_alloc(buffer_bytes(rank->options), buffer);
    return take_plain_buffer(rank->options, buffer);
}

static int take_memory(struct ko_perf_rank *rank)
{
    const struct ko_perf_options *options = rank->options;
    int err = take_buffer(rank, &rank->a);

    if (!err)
        err = take_buffer(rank, &rank->b);
    if (!err)
        err = take_plain_buffer(options, &rank->copy);
    if (!err && rank->device)
        err = take_plain_buffer(options, &rank->mirror);
    if (err)
        return err;
    rank->works = ko_alloc((size_t)(options->together + 1) * sizeof *rank->works, "works");
    return rank->works ? KOLO_OK : KOLO_E_NOMEM;
}

static void drop_buffer(const struct ko_perf_rank *rank, void *buffer)
{
    if (rank->device)
        ko_perf_device_free(rank->device, buffer);
    else if (rank->options->shared)
        (void)kolo_mem_free(buffer);
    else
        free(buffer);
}

static void drop_memory(struct ko_perf_rank *rank)
{
    if (rank->device)
        ko_perf_device_forget(rank->device);
    drop_buffer(rank, rank->a);
    drop_buffer(rank, rank->b);
    free(rank->copy);
    free(rank->mirror);
    kolo_free(rank->works);
}

/* ---- a rank ------------------------------------------------------------------------------ */

/* What only the size of the group tells. */
static int check_options(const struct ko_perf_options *options, int nranks)
{
    int ncases;
    const struct ko_perf_case *cases = ko_perf_cases(&ncases);

    if (options->root >= nranks)
        return ko_fail(KOLO_E_INVALID, "-r %d: there are %d ranks, from 0", options->root, nranks);
    for (int i = 0; i < ncases; i++)
        if (options->cases & 1U << i && cases[i].least_ranks > nranks)
            return ko_fail(KOLO_E_INVALID,
                           "%s needs %d ranks, there %s %d; -t and kolorun -n start more",
                           cases[i].name, cases[i].least_ranks, nranks == 1 ? "is" : "are", nranks);
    return KOLO_OK;
}

/* What all ranks find out alike is said once. */
static void say(const kolo_group *group, int err)
{
    if (group && kolo_group_rank(group) != 0 && err == KOLO_E_INVALID)
        return;
    if (group)
        fprintf(stderr, "kolo-perf: rank %d: %s\n", kolo_group_rank(group), kolo_last_error());
    else
        fprintf(stderr, "kolo-perf: %s\n", kolo_last_error());
}

static int perform(struct seat *seat, kolo_group *group)
{
    struct ko_perf_rank rank = {.options = seat->options,
                                .group = group,
                                .is_first = seat->number == 0,
                                .syscalls_fd = seat->syscalls_fd,
                                .device = seat->device};
    int err = check_options(seat->options, kolo_group_size(group));

    if (kolo_group_rank(group) == 0) {
        rank.report = seat->report;
        rank.report->nranks = kolo_group_size(group);
    }
    if (!err)
        err = take_memory(&rank);
    if (!err)
        err = ko_perf_sweep(&rank);
    seat->nwrong = rank.nwrong;
    drop_memory(&rank);
    return err;
}

/* Others must not wait for a rank that has failed. Where all have, none leaves before rank 0 has
 * said why: the launcher ends the rest when the first has left. */
static void *be_rank(void *arg)
{
    struct seat *seat = arg;
    kolo_group *group = NULL;

    if (seat->options->pin)
        ko_perf_pin(local_number(seat)); /* ranks of a machine take its cores in turn */
    seat->err = join(seat, &group);
    if (!seat->err && seat->options->on_gpu)
        seat->err = ko_perf_device_open(group, local_number(seat), &seat->device);
    if (!seat->err)
        seat->err = perform(seat, group);
    if (seat->err) {
        say(group, seat->err);
        if (group && seat->err == KOLO_E_INVALID)
            (void)kolo_barrier(group);
        else if (group)
            kolo_group_abort(group, kolo_last_error());
    }
    kolo_group_free(group);
    ko_perf_device_close(seat->device); /* the group needs its context */
    return NULL;
}

/* ---- all ranks of the process ------------------------------------------------------------ */

/* The first is the calling thread. If one cannot be started the others, who wait for it, end with
 * the process. */
static int run_seats(struct seat *seats, int n)
{
    int err = KOLO_OK;

    for (int i = 1; i < n; i++)
        if (ko_thread_start(&seats[i].thread, be_rank, &seats[i], "a rank")) {
            fprintf(stderr, "kolo-perf: %s\n", kolo_last_error());
            _exit(KO_PERF_FAILED);
        }
    be_rank(&seats[0]);
    for (int i = 1; i < n; i++)
        pthread_join(seats[i].thread, NULL);
    for (int i = 0; i < n && !err; i++)
        err = seats[i].err;
    return err;
}

static int exit_code(int err, const struct seat *seats)
{
    return err ? KO_PERF_FAILED : seats[0].nwrong > 0 ? KO_PERF_WRONG : KO_PERF_FINE;
}

/* Rank 0's process says why there is none. */
static int open_counter(const struct ko_perf_options *options)
{
    int fd = options->cost ? ko_perf_cost_open() : -1;

    if (options->cost && fd < 0 && options->placement.rank == 0)
        printf("# System calls are not counted: %s\n", kolo_last_error());
    return fd;
}

int ko_perf_run(const struct ko_perf_options *options, struct ko_perf_report *report)
{
    const int n = options->nthreads, fd = open_counter(options);
    struct seat *seats = ko_alloc((size_t)n * sizeof *seats, "ranks");
    kolo_store *store = NULL;
    int code = KO_PERF_FAILED, err = seats ? check_memory(options) : KOLO_E_NOMEM;

    if (!err && options->on_gpu)
        err = ko_perf_device_check();
    if (!err && n > 1 && !is_launched(options))
        err = kolo_store_open_local(&store);
    if (err) {
        fprintf(stderr, "kolo-perf: %s\n", kolo_last_error());
    } else {
        for (int i = 0; i < n; i++)
            seats[i] = (struct seat){.options = options,
                                     .report = report,
                                     .store = store,
                                     .number = i,
                                     .syscalls_fd = fd};
        code = exit_code(run_seats(seats, n), seats);
    }
    if (fd >= 0)
        close(fd);
    kolo_store_close(store);
    kolo_free(seats);
    return code;
}

/* The other ranks are stopped without a word: else nobody would know why. */
static void name_killed(int process, int signal, int nthreads)
{
    const char *name = sigabbrev_np(signal);
    char ranks[64];

    if (nthreads == 1)
        snprintf(ranks, sizeof ranks, "rank %d was", process);
    else
        snprintf(ranks, sizeof ranks, "ranks %d to %d, of one process, were", process * nthreads,
                 (process + 1) * nthreads - 1);
    fprintf(stderr, "kolo-perf: %s ended by signal %d%s%s%s\n", ranks, signal, name ? ", SIG" : "",
            name ? name : "", signal == SIGKILL ? " (out of memory? see dmesg)" : "");
}

int ko_perf_start(const struct ko_perf_options *options, int argc, char **argv)
{
    static char one_of_them[] = "-N0";
    int killed = -1;
    char **program = ko_alloc((size_t)(argc + 2) * sizeof *program, "a command line");
    struct ko_launch_options launch = {.program = program,
                                       .nprocs = options->nprocs,
                                       .nnodes = 1,
                                       .master_addr = "127.0.0.1",
                                       .run_id = "kolo-perf",
                                       .grace_ms = 5000,
                                       .quiet = true,
                                       .killed_rank = &killed};
    int at = 1, code;

    if (options->on_gpu && ko_perf_device_check()) { /* said once, not by each of them */
        fprintf(stderr, "kolo-perf: %s\n", kolo_last_error());
        kolo_free(program);
        return KO_PERF_FAILED;
    }
    if (!program)
        return KO_PERF_FAILED;
    while (at < argc && strcmp(argv[at], "--") != 0)
        at++;
    memcpy(program, argv, (size_t)at * sizeof *argv);
    program[at] = one_of_them;
    memcpy(program + at + 1, argv + at, (size_t)(argc - at) * sizeof *argv);
    code = ko_launch(&launch);
    if (killed >= 0)
        name_killed(killed, code - KO_EXIT_SIGNAL, options->nthreads);
    kolo_free(program);
    return code;
}
