/* SPDX-License-Identifier: MIT */
#include "ranks.h"

#include "clock.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct rank_thread {
    pthread_t thread;
    const struct ranks *ranks;
    ranks_body body;
    void *argument;
    kolo_store *store;
    int rank;
    int failed;
};

static _Thread_local bool expects_failures;

void ranks_expect_failures(bool does)
{
    expects_failures = does;
}

int ranks_fail(const char *format, ...)
{
    char text[512];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (!expects_failures)
        fprintf(stderr, "# %s (last error: %s)\n", text, kolo_last_error());
    return 1;
}

int ranks_expect(int err, int code, const char *text)
{
    if (err != code || !strstr(kolo_last_error(), text))
        return ranks_fail("status %d instead of %d with \"%s\"", err, code, text);
    return 0;
}

int ranks_lengthen(int ms)
{
    enum { MOST_TIMES = 30 };
    const double nprocessors = (double)sysconf(_SC_NPROCESSORS_ONLN);
    double load, times = 1;

    if (getloadavg(&load, 1) == 1 && load > nprocessors)
        times = load / nprocessors;
    return (int)(ms * (times < MOST_TIMES ? times : MOST_TIMES));
}

static int64_t processor_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* How long it takes here now to get so much of a processor's time. */
static int64_t slowed_ms(int ms)
{
    enum { SAMPLE_NS = 30000000 };
    const int64_t began_ns = ko_now_ns(), from_ns = processor_ns();

    while (processor_ns() - from_ns < SAMPLE_NS)
        continue;
    return ms * (ko_now_ns() - began_ns) / SAMPLE_NS;
}

static bool is_too_long(int64_t ms, int limit_ms)
{
    return ms > limit_ms && ms > slowed_ms(limit_ms);
}

int ranks_within(int64_t began_ns, int limit_ms, const char *what)
{
    const int64_t ms = (ko_now_ns() - began_ns) / 1000000;

    return is_too_long(ms, limit_ms) ? ranks_fail("%s only after %d ms", what, (int)ms) : 0;
}

int ranks_expect_soon(int64_t began_ns, int err, int code, const char *text)
{
    return ranks_within(began_ns, RANKS_SOON_MS, "the error") || ranks_expect(err, code, text);
}

int ranks_settle_on_two_hosts(int rank, void *unused)
{
    (void)unused;
    return setenv("KOLO_HOST", rank % 3 ? "one" : "other", 1);
}

int ranks_duplicate(kolo_group *group, kolo_group **duplicates, int n)
{
    int err = KOLO_OK;

    for (int i = 0; i < n && !err; i++)
        err = kolo_group_duplicate(group, &duplicates[i]);
    return err ? ranks_fail("making groups") : 0;
}

void ranks_free_all(kolo_group **groups, int n)
{
    for (int i = 0; i < n; i++)
        kolo_group_free(groups[i]);
}

int ranks_exchange(kolo_group *group)
{
    const int rank = kolo_group_rank(group), peer = 1 - rank;
    char byte = 0;

    if (rank ? kolo_send(group, &byte, 1, KOLO_UINT8, peer, 0) ||
                   kolo_recv(group, &byte, 1, KOLO_UINT8, peer, 0)
             : kolo_recv(group, &byte, 1, KOLO_UINT8, peer, 0) ||
                   kolo_send(group, &byte, 1, KOLO_UINT8, peer, 0))
        return ranks_fail("the first messages");
    return 0;
}

int ranks_let_be_last(kolo_group *group, int last)
{
    char word = 0;
    int err = KOLO_OK;

    if (kolo_group_rank(group) != last)
        return kolo_send(group, &word, 1, KOLO_INT8, last, 0);
    for (int r = 0; r < kolo_group_size(group) && !err; r++)
        if (r != last)
            err = kolo_recv(group, &word, 1, KOLO_INT8, r, 0);
    return err;
}

void ranks_nap_ms(int ms)
{
    const struct timespec nap = {ms / 1000, ms % 1000 * 1000000L};

    nanosleep(&nap, NULL);
}

void *ranks_abort_soon(void *group)
{
    ranks_nap_ms(100);
    kolo_group_abort(group, "enough");
    return NULL;
}

int ranks_count_entries(const char *path)
{
    DIR *folder = opendir(path);
    int n = 0;

    if (!folder)
        abort();
    while (readdir(folder))
        n++;
    closedir(folder);
    return n;
}

static int timeout_of(const struct ranks *ranks)
{
    return ranks->timeout_ms ? ranks->timeout_ms : ranks_lengthen(20000);
}

static int run_and_free(kolo_group *group, ranks_body body, void *argument)
{
    int failed = body(group, argument);

    kolo_group_free(group);
    return failed;
}

/* ---- threads ----------------------------------------------------------------------------- */

static void *thread_main(void *argument)
{
    struct rank_thread *self = argument;
    kolo_group *group;

    if (kolo_group_join_store(self->store, self->rank, self->ranks->n, self->ranks->timeout_ms,
                              &group))
        self->failed = ranks_fail("rank %d could not join", self->rank);
    else
        self->failed = run_and_free(group, self->body, self->argument);
    return NULL;
}

static int run_threads(const struct ranks *ranks, ranks_body body, void *argument)
{
    struct rank_thread *threads = calloc((size_t)ranks->n, sizeof *threads);
    kolo_store *store;
    int failed = 0;

    if (!threads || kolo_store_open_local(&store))
        abort();
    for (int r = 0; r < ranks->n; r++) {
        threads[r] = (struct rank_thread){
            .ranks = ranks, .body = body, .argument = argument, .store = store, .rank = r};
        if (pthread_create(&threads[r].thread, NULL, thread_main, &threads[r]))
            abort();
    }
    for (int r = 0; r < ranks->n; r++) {
        pthread_join(threads[r].thread, NULL);
        failed += threads[r].failed != 0;
    }
    kolo_store_close(store);
    free(threads);
    return failed;
}

/* ---- processes --------------------------------------------------------------------------- */

/* As kolorun holds one: it stays bound, but never listens, so that nobody else is given it; a
 * store, which sets SO_REUSEADDR too, can listen there all the same. */
static int bind_free_port(int fd)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    const int on = 1;

    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) ||
        bind(fd, (struct sockaddr *)&address, length) ||
        getsockname(fd, (struct sockaddr *)&address, &length))
        abort();
    return ntohs(address.sin_port);
}

void ranks_set_number(const char *name, int number)
{
    char text[16];

    snprintf(text, sizeof text, "%d", number);
    setenv(name, text, 1);
}

int ranks_reserve_port(void)
{
    static int reserved[RANKS_RESERVED_PORTS] = {0};
    static int next = 0;
    int *const fd = &reserved[next++ % RANKS_RESERVED_PORTS];

    if (*fd)
        close(*fd);
    *fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (*fd < 0)
        abort();
    return bind_free_port(*fd);
}

static int join(const struct ranks *ranks, int rank, int port, kolo_group **group)
{
    char method[96];

    if (ranks->join)
        return ranks->join(rank, ranks->n, ranks->timeout_ms, group);
    snprintf(method, sizeof method, "tcp://%s:%d?rank=%d&world_size=%d",
             ranks->store ? ranks->store : "127.0.0.1", port, rank, ranks->n);
    return kolo_group_join(method, ranks->timeout_ms, group);
}

static int process_main(const struct ranks *ranks, int rank, int port, ranks_body body,
                        void *argument)
{
    kolo_group *group;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (ranks->settle && ranks->settle(rank, argument))
        return ranks_fail("rank %d could not settle", rank);
    if (join(ranks, rank, port, &group))
        return ranks_fail("rank %d could not join", rank);
    return run_and_free(group, body, argument);
}

/* Reaps rank's process within the limit; a process that is still there is killed. */
static int reap(pid_t pid, int64_t began_ns, int limit_ms, int *status)
{
    const struct timespec nap = {.tv_nsec = 1000000};

    while (waitpid(pid, status, WNOHANG) == 0) {
        if (is_too_long((ko_now_ns() - began_ns) / 1000000, limit_ms)) {
            kill(pid, SIGKILL);
            waitpid(pid, status, 0);
            return -1;
        }
        nanosleep(&nap, NULL);
    }
    return 0;
}

static int run_processes(const struct ranks *ranks, ranks_body body, void *argument)
{
    const int64_t began_ns = ko_now_ns();
    pid_t *pids = calloc((size_t)ranks->n, sizeof *pids);
    int port = ranks_reserve_port();
    int failed = 0, killed = 0;

    if (!pids)
        abort();
    fflush(NULL);
    for (int r = 0; r < ranks->n; r++) {
        pids[r] = fork();
        if (pids[r] == 0) {
            int code = process_main(ranks, r, port, body, argument);

            fflush(NULL);
            exit(code ? 1 : 0);
        }
    }
    for (int r = 0; r < ranks->n; r++) {
        int status = 0;
        bool hung = reap(pids[r], began_ns, ranks->timeout_ms + 60000, &status) != 0;

        if (hung)
            fprintf(stderr, "# rank %d hung\n", r);
        if (!hung && WIFSIGNALED(status) && killed < ranks->tolerated) {
            killed++;
            continue;
        }
        if (!hung && WIFSIGNALED(status))
            fprintf(stderr, "# rank %d was ended by signal %d\n", r, WTERMSIG(status));
        failed += hung || !WIFEXITED(status) || WEXITSTATUS(status);
    }
    free(pids);
    return failed;
}

int ranks_run(const struct ranks *ranks, ranks_body body, void *argument)
{
    struct ranks limited = *ranks;

    limited.timeout_ms = timeout_of(ranks); /* once: the load changes */
    return ranks->kind == RANKS_THREADS ? run_threads(&limited, body, argument)
                                        : run_processes(&limited, body, argument);
}

static int log_decisions(int rank, void *argument)
{
    (void)argument;
    return rank ? 0 : setenv("KOLO_DEBUG", "INFO", 1);
}

int ranks_run_logged(int n, ranks_body body, char *text, size_t cap)
{
    const struct ranks ranks = {.kind = RANKS_PROCESSES, .n = n, .settle = log_decisions};
    char path[] = "/tmp/test-kolo-XXXXXX";
    const int fd = mkstemp(path);
    ssize_t nbytes;
    int failed;

    if (fd < 0)
        abort();
    setenv("KOLO_DEBUG_FILE", path, 1);
    failed = ranks_run(&ranks, body, NULL);
    unsetenv("KOLO_DEBUG_FILE");
    nbytes = read(fd, text, cap - 1);
    text[nbytes > 0 ? nbytes : 0] = 0;
    close(fd);
    unlink(path);
    return failed;
}

int ranks_run_all_ways(int n, ranks_body body)
{
    static const char *const transports[] = {"shm", "rdma", "tcp"};
    int failed = 0;

    setenv("KOLO_DEBUG", "NONE", 1);
    for (int i = 0; i < 6 && !failed; i++) {
        const enum ranks_kind kind = i % 2 ? RANKS_PROCESSES : RANKS_THREADS;

        if (kind == RANKS_PROCESSES && HAS_TSAN)
            continue; /* it sees no more of them (sanitized.h) */
        setenv("KOLO_TRANSPORT", transports[i / 2], 1);
        failed = ranks_run(&(struct ranks){.kind = kind, .n = n}, body, NULL);
    }
    return failed;
}
