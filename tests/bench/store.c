/* SPDX-License-Identifier: MIT
 *
 * What a store's server bears: requests per second, thousands of clients that join and meet, the
 * release of many blocked waits, and an honest client's latency beside hostile ones; without a
 * token, or with -t under one, as kolorun's jobs are; with -o NAME beside those clients alone whose
 * lines have that text. The server is a process of its own, with the
 * usual limit of open files; the crowds are plain sockets of this one. Exit code 1 if a figure is
 * missed.
 */
#include "kolo.h"
#include "secret_gate.h"
#include "status.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { USUAL_FILES = 1024 };
enum { THREADS = 8, CROWD = 5000, WAITS = 10000, EVENTS = 512, PROBES = 20000, HELD = 400 };

static const double seconds_of_rate = 2;

struct server {
    pid_t process;
    int port;
};

static void check(bool is_right, const char *what)
{
    if (is_right)
        return;
    fprintf(stderr, "bench/store: %s: %s, %s\n", what, kolo_last_error(), strerror(errno));
    exit(1);
}

static double now(void)
{
    struct timespec at;

    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec * 1e-9;
}

/* What connections of this process have to pass. */
static struct ko_guard guard;

static void limit_files(bool to_usual)
{
    struct rlimit limit;

    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = to_usual && limit.rlim_max > USUAL_FILES ? USUAL_FILES : limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

/* ---- the server --------------------------------------------------------------------------- */

static struct server start_server(void)
{
    struct server server = {0};
    kolo_store *store;
    int ends[2];

    check(pipe(ends) == 0, "pipe");
    server.process = fork();
    check(server.process >= 0, "fork");
    if (server.process == 0) {
        limit_files(true);
        check(kolo_store_open_tcp("127.0.0.1", 0, 1, 10000, &store) == 0, "serving");
        server.port = kolo_store_port(store);
        check(write(ends[1], &server.port, sizeof server.port) > 0, "write");
        for (;;)
            pause();
    }
    check(read(ends[0], &server.port, sizeof server.port) > 0, "the server's start");
    close(ends[0]);
    close(ends[1]);
    return server;
}

static void stop_server(struct server *server)
{
    kill(server->process, SIGKILL);
    waitpid(server->process, NULL, 0);
}

/* The most memory that a process ever held, in MB. */
static double peak_mb(pid_t process)
{
    char path[64], line[128];
    FILE *file;
    double mb = 0;

    snprintf(path, sizeof path, "/proc/%d/status", (int)process);
    file = fopen(path, "r");
    check(file != NULL, path);
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "VmHWM: %lf", &mb) == 1)
            break;
    fclose(file);
    return mb / 1024;
}

/* ---- requests per second ------------------------------------------------------------------ */

struct worker {
    pthread_t thread;
    int port;
    double until;
    long done;
};

static void *work(void *argument)
{
    struct worker *worker = argument;
    kolo_store *store;

    check(kolo_store_open_tcp("127.0.0.1", worker->port, 0, 10000, &store) == 0, "connecting");
    worker->until = now() + seconds_of_rate;
    while (now() < worker->until) {
        check(kolo_store_add(store, "n", 1, NULL) == 0, "add");
        worker->done++;
    }
    kolo_store_close(store);
    return NULL;
}

static double measure_rate(void)
{
    struct server server = start_server();
    struct worker workers[THREADS] = {0};
    long done = 0;

    for (int i = 0; i < THREADS; i++) {
        workers[i].port = server.port;
        check(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0, "a thread");
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        done += workers[i].done;
    }
    stop_server(&server);
    return (double)done / seconds_of_rate;
}

/* ---- crowds ------------------------------------------------------------------------------- */

static int dial(int port, int nonblocking)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | nonblocking, 0);
    int one = 1;

    check(fd >= 0, "socket");
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    check(!connect(fd, (struct sockaddr *)&address, sizeof address) || errno == EINPROGRESS,
          "connect");
    return fd;
}

struct message {
    const char *bytes;
    size_t nbytes, answer;
};

#define MESSAGE(text, answer)         \
    {                                 \
        text, sizeof text - 1, answer \
    }
#define HELLO "\0\xce\xf7\x85\x3c\15\1\2\3\4"
#define INIT "\4\5\0\0\0\0\0\0\0init/\1\0\0\0\0\0\0\0"
#define BARRIER_5000 "\22\2\0\0\0\0\0\0\0/b\x88\x13\0\0\0\0\0\0"
#define WAIT_K "\6\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0/k"

struct member {
    int fd;
    struct ko_gate gate;
    int sent; /* messages */
    size_t heard;
};

/* True once it is in. */
static bool pass(struct member *member)
{
    int err = ko_gate_pass(&member->gate, member->fd);

    check(!err || err == KO_AGAIN, "a member's token");
    return !err;
}

/* Sends a member's next message when the last has been answered. True when all of them are. */
static bool go_on(struct member *member, const struct message *script, int nmessages)
{
    char bytes[64];
    ssize_t n;
    size_t expected = member->sent > 0 ? script[member->sent - 1].answer : 0;

    if (!pass(member))
        return false;
    n = recv(member->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    check(n > 0 || (n < 0 && errno == EAGAIN), "a member's answer");
    member->heard += n > 0 ? (size_t)n : 0;
    if (member->heard < expected)
        return false;
    member->heard = 0;
    if (member->sent == nmessages)
        return true;
    check(send(member->fd, script[member->sent].bytes, script[member->sent].nbytes, 0) > 0, "send");
    member->sent++;
    return false;
}

/* All members go through the script, up to the answer of the last message unless that is 0 bytes
 * long. Returns the seconds. */
static double run_crowd(struct member *members, int n, const struct message *script, int nmessages)
{
    struct epoll_event events[EVENTS];
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET};
    double begin = now();
    int epoll = epoll_create1(0);
    int left = n;
    int got;

    for (int i = 0; i < n; i++) {
        event.data.ptr = &members[i];
        check(epoll_ctl(epoll, EPOLL_CTL_ADD, members[i].fd, &event) == 0, "epoll");
    }
    while (left > 0) {
        got = epoll_wait(epoll, events, EVENTS, 60000);
        check(got > 0, "waiting for the crowd");
        for (int i = 0; i < got; i++)
            if (events[i].events & EPOLLIN || ((struct member *)events[i].data.ptr)->sent == 0)
                left -= go_on(events[i].data.ptr, script, nmessages);
    }
    close(epoll);
    return now() - begin;
}

static struct member *gather(int port, int n)
{
    struct member *members = calloc((size_t)n, sizeof *members);

    check(members != NULL, "memory");
    for (int i = 0; i < n; i++) {
        members[i].fd = dial(port, SOCK_NONBLOCK);
        check(!ko_gate_begin(&members[i].gate, &guard, &ko_claim_store, true), "a token");
    }
    return members;
}

static void disperse(struct member *members, int n)
{
    for (int i = 0; i < n; i++)
        close(members[i].fd);
    free(members);
}

static double measure_join(double *mb)
{
    static const struct message script[] = {MESSAGE(HELLO, 4), MESSAGE(INIT, 8),
                                            MESSAGE(BARRIER_5000, 1)};
    struct server server = start_server();
    double begin = now();
    struct member *members = gather(server.port, CROWD);
    double seconds;

    run_crowd(members, CROWD, script, 3);
    seconds = now() - begin;
    *mb = peak_mb(server.process);
    disperse(members, CROWD);
    stop_server(&server);
    return seconds;
}

static double measure_release(void)
{
    static const struct message introduce[] = {MESSAGE(HELLO, 4)};
    static const struct message wait_k[] = {MESSAGE(WAIT_K, 0)};
    static const struct message hear[] = {MESSAGE("", 1)};
    struct server server = start_server();
    struct member *members = gather(server.port, WAITS);
    kolo_store *store;
    int64_t count;
    double seconds;

    run_crowd(members, WAITS, introduce, 1);
    for (int i = 0; i < WAITS; i++) {
        check(send(members[i].fd, wait_k[0].bytes, wait_k[0].nbytes, 0) > 0, "send");
        members[i].sent = 1;
    }
    check(kolo_store_open_tcp("127.0.0.1", server.port, 0, 10000, &store) == 0, "connecting");
    usleep(500000); /* until all of them wait */
    check(kolo_store_num_keys(store, &count) == 0, "num_keys");
    seconds = now();
    check(kolo_store_set(store, "k", (kolo_bytes){"v", 1}) == 0, "set");
    run_crowd(members, WAITS, hear, 1);
    seconds = now() - seconds;
    kolo_store_close(store);
    disperse(members, WAITS);
    stop_server(&server);
    return seconds;
}

/* ---- hostile clients ---------------------------------------------------------------------- */

static void nap_ms(int ms)
{
    usleep((useconds_t)ms * 1000);
}

static void be_quiet(int port)
{
    (void)port;
    for (;;)
        pause();
}

/* Ever new connections that say nothing. */
static void be_silent(int port)
{
    int fds[HELD] = {0};

    for (int i = 0;; i = (i + 1) % HELD) {
        if (fds[i])
            close(fds[i]);
        fds[i] = dial(port, 0);
        nap_ms(1);
    }
}

/* One who knows the token, if there is one. */
static int enter(int port)
{
    const ko_deadline deadline = ko_deadline_in(60000);
    struct ko_gate gate;
    int fd = dial(port, 0);

    check(!ko_gate_begin(&gate, &guard, &ko_claim_store, true) &&
              !ko_gate_pass_until(&gate, fd, &deadline),
          "a hostile client's token");
    return fd;
}

/* Large messages of which a part comes, from ever new connections. */
static void be_half_sent(int port)
{
    static const char half[] = HELLO "\1\2\0\0\0\0\0\0\0/h\0\0\x80\0\0\0\0\0half";
    int fds[HELD] = {0};

    for (int i = 0;; i = (i + 1) % HELD) {
        if (fds[i])
            close(fds[i]);
        fds[i] = enter(port);
        if (send(fds[i], half, sizeof half - 1, MSG_NOSIGNAL) < 0)
            continue;
        nap_ms(1);
    }
}

/* The handshake's first words, and no more. */
static void be_half_known(int port)
{
    const unsigned char *hello;
    int fds[HELD] = {0};
    struct ko_gate gate;
    size_t n;

    for (int i = 0;; i = (i + 1) % HELD) {
        if (fds[i])
            close(fds[i]);
        fds[i] = dial(port, 0);
        check(!ko_gate_begin(&gate, &guard, &ko_claim_store, true), "a token");
        hello = ko_handshake_says(&gate.handshake, &n);
        (void)!send(fds[i], hello, n, MSG_NOSIGNAL);
        nap_ms(1);
    }
}

static void be_garbage(int port)
{
    char bytes[256];
    int fd;

    for (unsigned i = 0;; i++) {
        for (size_t k = 0; k < sizeof bytes; k++)
            bytes[k] = (char)(rand() >> 5);
        fd = dial(port, 0);
        (void)!send(fd, bytes, sizeof bytes, MSG_NOSIGNAL);
        nap_ms(1);
        close(fd);
    }
}

/* Asks for a megabyte again and again, and reads a few bytes of it. */
static void be_slow(int port)
{
    static const char ask[] = "\3\4\0\0\0\0\0\0\0/big";
    char bytes[64];
    int fd = enter(port);

    (void)!send(fd, HELLO, sizeof HELLO - 1, MSG_NOSIGNAL);
    for (;;) {
        (void)!send(fd, ask, sizeof ask - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        (void)!recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
        nap_ms(1);
    }
}

#include "store_floods.h"

/* ---- what it is beside them ----------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The 99th percentile of a set and a get, in microseconds. */
static double measure_p99(kolo_store *store)
{
    static double probes[PROBES];
    void *value;
    size_t nbytes;
    double begin;

    for (int i = 0; i < PROBES; i++) {
        begin = now();
        check(kolo_store_set(store, "honest", (kolo_bytes){"work", 4}) == 0, "set");
        check(kolo_store_get(store, "honest", &value, &nbytes) == 0, "get");
        kolo_free(value);
        probes[i] = (now() - begin) * 1e6;
    }
    qsort(probes, PROBES, sizeof *probes, by_value);
    return probes[PROBES * 99 / 100];
}

static double beside(const struct server *server, kolo_store *store, void (*be)(int port))
{
    pid_t hostile = fork();
    double p99;

    check(hostile >= 0, "fork");
    if (hostile == 0)
        be(server->port);
    nap_ms(300);
    p99 = measure_p99(store);
    kill(hostile, SIGKILL);
    waitpid(hostile, NULL, 0);
    return p99;
}

/* The median of three, each beside a quiet one of the same moment. */
static double measure_hostile(void (*be)(int port))
{
    struct server server = start_server();
    char *big = calloc(1, 1 << 20);
    double ratios[3];
    kolo_store *store;

    check(kolo_store_open_tcp("127.0.0.1", server.port, 0, 10000, &store) == 0, "connecting");
    check(kolo_store_set(store, "big", (kolo_bytes){big, 1 << 20}) == 0, "set");
    for (int i = 0; i < 3; i++) {
        double quiet = beside(&server, store, be_quiet);

        ratios[i] = beside(&server, store, be) / quiet;
    }
    kolo_store_close(store);
    stop_server(&server);
    free(big);
    qsort(ratios, 3, sizeof *ratios, by_value);
    return ratios[1];
}

/* ---- the figures -------------------------------------------------------------------------- */

static int failed;

static void report(const char *what, double value, const char *unit, double limit, bool at_least)
{
    bool is_met = at_least ? value >= limit : value <= limit;

    printf("%-48s %10.1f %-4s (%s %.0f)%s\n", what, value, unit, at_least ? "at least" : "at most",
           limit, is_met ? "" : "  MISSED");
    failed |= !is_met;
    fflush(stdout);
}

struct wish {
    bool has_token;   /* that of -t, and else none, whatever the environment says */
    const char *only; /* these hostile clients and no other figure; NULL: all */
};

static struct wish read_wish(int argc, char **argv)
{
    struct wish wish = {0};
    int option;

    while ((option = getopt(argc, argv, "to:")) != -1) {
        check(option != '?', "it takes -t, and -o with a part of a hostile client's name");
        wish.has_token |= option == 't';
        wish.only = option == 'o' ? optarg : wish.only;
    }
    unsetenv("KOLO_AUTH");
    unsetenv("KOLO_AUTH_STORE");
    unsetenv("KOLO_AUTH_TOKEN");
    unsetenv("KOLO_AUTH_TOKEN_FILE");
    if (wish.has_token)
        setenv("KOLO_AUTH_TOKEN", "the token of this bench", 1);
    return wish;
}

static void report_server(void)
{
    double mb;

    report("requests of 8 clients", measure_rate(), "/s", 40000, true);
    report("5000 clients join and pass a barrier", measure_join(&mb) * 1e3, "ms", 2000, false);
    report("the server's memory for them", mb, "MB", 64, false);
    report("10000 blocked waits released by one set", measure_release() * 1e3, "ms", 200, false);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *what;
        void (*be)(int port);
        bool is_for_tokens;
    } hostile[] = {{"honest p99 / quiet p99: silent clients", be_silent, false},
                   {"honest p99 / quiet p99: half of a handshake", be_half_known, true},
                   {"honest p99 / quiet p99: half-sent messages", be_half_sent, false},
                   {"honest p99 / quiet p99: garbage", be_garbage, false},
                   {"honest p99 / quiet p99: a slow reader", be_slow, false},
                   {"honest p99 / quiet p99: small sets at once", be_many_sets, false},
                   {"honest p99 / quiet p99: appends to 4 MiB", be_many_appends, false},
                   {"honest p99 / quiet p99: gets of 4 MiB", be_many_gets, false},
                   {"honest p99 / quiet p99: a queue's values of 4 MiB", be_queue, false},
                   {"honest p99 / quiet p99: sets of 131072 keys", be_multi_set, false},
                   {"honest p99 / quiet p99: checks of 131072 keys", be_check, false},
                   {"honest p99 / quiet p99: waits for 131072 keys", be_wait, false},
                   {"honest p99 / quiet p99: lists of 131072 keys", be_list, false},
                   {"honest p99 / quiet p99: watched appends to 4 MiB", be_watched_appends, false},
                   {"honest p99 / quiet p99: 131072 watches that end", be_watchers_that_go, false},
                   {"honest p99 / quiet p99: queues that are deleted", be_queue_deletes, false}};
    const struct wish wish = read_wish(argc, argv);

    check(!ko_guard_read_for_store(&guard), "the token");
    limit_files(false);
    if (!wish.only)
        report_server();
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++)
        if ((wish.has_token || !hostile[i].is_for_tokens) &&
            (!wish.only || strstr(hostile[i].what, wish.only)))
            report(hostile[i].what, measure_hostile(hostile[i].be), "", 2, false);
    return failed;
}
