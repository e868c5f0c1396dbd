/* SPDX-License-Identifier: MIT
 *
 * A run is a set of processes and, per process, a place in shared memory for its error. The plan of
 * a run (how many ranks, which transport, who dies when, which calls) follows from its seed alone;
 * what it meets does not, since the moment of the kill is one of the clock.
 */
#include "kills.h"

#include "clock.h"
#include "kolo.h"
#include "seeded.h"
#include "status.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_RANKS = 5, MOST_COUNT = 40000, GRACE_MS = 6000 };

struct plan {
    uint64_t seed;
    int n, victim;
    const char *transport;
    bool has_rails;             /* rdma: two queue pairs on each of two adapters */
    bool has_hosts;             /* every other rank is of another host */
    const char *const *setting; /* one of `settings` */
    int kill_us;                /* after the last rank was started */
    int port;
};

static const char *const settings[][2] = {
    {"KOLO_SLOTS", "8"},       {"KOLO_SLOTS", "2"},       {"KOLO_SLICE_BYTES", "4K"},
    {"KOLO_ENCRYPT", "1"},     {"KOLO_TCP_SOCKETS", "3"}, {"KOLO_PROTO", "simple"},
    {"KOLO_EAGER_BYTES", "0"}, {"KOLO_IDLE_BYTES", "0"},  {"KOLO_DETERMINISTIC", "1"}};

enum { NSETTINGS = sizeof settings / sizeof *settings };

/* What a rank leaves behind. */
struct outcome {
    int status;
    int calls; /* made before the error */
    char text[KO_ERROR_TEXT];
};

struct run {
    bool is_on;
    struct plan plan;
    struct outcome *outcomes; /* shared, by rank */
    pid_t pids[MOST_RANKS];   /* 0: reaped */
    int64_t kill_at_ns, killed_ns;
    ko_deadline deadline;
};

/* A free port outside of the range from which the kernel takes those of outgoing connections. */
static int take_port(void)
{
    static int last;

    for (;;) {
        struct sockaddr_in address = {.sin_family = AF_INET,
                                      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        bool is_free;

        last = last ? 10000 + (last - 9999) % 20000 : 10000 + (int)(getpid() * 37 % 20000);
        address.sin_port = htons((uint16_t)last);
        is_free = fd >= 0 && !bind(fd, (struct sockaddr *)&address, sizeof address);
        close(fd);
        if (is_free)
            return last;
    }
}

static struct plan make_plan(const struct kills *kills, uint64_t seed)
{
    static const char *const transports[] = {"shm", "rdma", "tcp"};
    uint64_t state = seed;
    struct plan plan = {.seed = seed, .n = 2 + seeded_below(&state, MOST_RANKS - 1)};

    plan.victim = seeded_below(&state, plan.n);
    plan.transport = transports[seeded_below(&state, 3)];
    if (kills->transport)
        plan.transport = kills->transport;
    plan.kill_us = seeded_below(&state, 20000);
    plan.setting = settings[seeded_below(&state, NSETTINGS)];
    if (!strcmp(plan.setting[0], "KOLO_ENCRYPT") && !strcmp(plan.transport, "rdma"))
        plan.transport = "tcp"; /* rdma does not encrypt */
    plan.has_rails = !strcmp(plan.transport, "rdma") && seeded_below(&state, 2);
    plan.has_hosts = !seeded_below(&state, 4);
    plan.port = take_port();
    return plan;
}

/* ---- a rank --------------------------------------------------------------------------------- */

struct buffers {
    float in[MOST_RANKS * MOST_COUNT], out[MOST_RANKS * MOST_COUNT];
};

/* Every rank sends to its right and receives from its left; far more than a link holds. */
static int exchange(kolo_group *group, struct buffers *b, size_t count)
{
    int n = kolo_group_size(group), rank = kolo_group_rank(group);
    kolo_p2p ops[] = {{1, (rank + 1) % n, 5, KOLO_FLOAT32, count, b->in, NULL},
                      {0, (rank + n - 1) % n, 5, KOLO_FLOAT32, count, b->out, NULL}};

    return kolo_batch(group, ops, 2);
}

/* One rank's message to another, which the rest does not wait for. */
static int send_one(kolo_group *group, struct buffers *b, size_t count, int from)
{
    int to = (from + 1) % kolo_group_size(group);

    if (kolo_group_rank(group) == from)
        return kolo_send(group, b->in, count, KOLO_FLOAT32, to, 9);
    if (kolo_group_rank(group) == to)
        return kolo_recv(group, b->out, count, KOLO_FLOAT32, from, 9);
    return KOLO_OK;
}

/* Every rank sends to its right, and receives from whom it may be: a link to each other rank is
 * begun, which none but the two neighbours need. */
static int exchange_with_anybody(kolo_group *group, struct buffers *b, size_t count)
{
    kolo_p2p ops[] = {{1, (kolo_group_rank(group) + 1) % kolo_group_size(group), 6, KOLO_FLOAT32,
                       count, b->in, NULL},
                      {0, KOLO_ANY_RANK, 6, KOLO_FLOAT32, count, b->out, NULL}};

    return kolo_batch(group, ops, 2);
}

/* In a group that comes and goes. */
static int in_another_group(kolo_group *other, struct buffers *b, size_t count)
{
    char text[KO_ERROR_TEXT];
    int err = kolo_group_size(other) > 1 ? exchange_with_anybody(other, b, count) : KOLO_OK;

    if (!err)
        err = kolo_all_reduce(other, b->in, b->out, count, KOLO_FLOAT32, KOLO_SUM);
    snprintf(text, sizeof text, "%s", kolo_last_error());
    kolo_group_free(other);
    return err ? ko_fail_again(err, text) : KOLO_OK;
}

/* Its ranks have the same numbers. */
static int in_a_duplicate(kolo_group *group, struct buffers *b, size_t count)
{
    kolo_group *other;
    const int err = kolo_group_duplicate(group, &other);

    return err ? err : in_another_group(other, b, count);
}

/* One of two, of ranks that are counted down. */
static int in_a_part(kolo_group *group, struct buffers *b, size_t count)
{
    const int rank = kolo_group_rank(group);
    kolo_group *part;
    const int err = kolo_group_split(group, rank % 2, -rank, &part);

    return err ? err : in_another_group(part, b, count);
}

static int works(kolo_group *group, struct buffers *b, size_t count)
{
    kolo_work *list[3] = {NULL};
    char text[KO_ERROR_TEXT] = "";
    int err = KOLO_OK;

    for (int i = 0; i < 3 && !err; i++)
        err = kolo_all_reduce_async(group, b->in + i * MOST_COUNT, b->out + i * MOST_COUNT, count,
                                    KOLO_FLOAT32, KOLO_SUM, &list[i]);
    snprintf(text, sizeof text, "%s", err ? kolo_last_error() : "");
    for (int i = 0; i < 3; i++) {
        int status = list[i] ? kolo_work_wait(list[i], -1) : KOLO_OK;

        if (status && !err) {
            err = status;
            snprintf(text, sizeof text, "%s", kolo_work_error(list[i]));
        }
        kolo_work_free(list[i]);
    }
    if (err)
        (void)kolo_group_error(group, NULL);
    return err;
}

static int one_call(kolo_group *group, uint64_t *state, struct buffers *b)
{
    static const size_t counts[] = {1, 6, 100, 2049, MOST_COUNT};
    int which = seeded_below(state, 15);
    size_t count = counts[seeded_below(state, 5)];
    int root = seeded_below(state, kolo_group_size(group));

    switch (which) {
    case 0:
        return kolo_reduce(group, b->in, b->out, count, KOLO_FLOAT32, KOLO_MAX, root);
    case 1:
        return kolo_broadcast(group, b->in, count, KOLO_FLOAT32, root);
    case 2:
        return kolo_all_gather(group, b->in, b->out, count, KOLO_FLOAT32);
    case 3:
        return kolo_reduce_scatter(group, b->in, b->out, count, KOLO_FLOAT32, KOLO_SUM);
    case 4:
        return kolo_gather(group, b->in, b->out, count, KOLO_FLOAT32, root);
    case 5:
        return kolo_scatter(group, b->in, b->out, count, KOLO_FLOAT32, root);
    case 6:
        return kolo_all_to_all(group, b->in, b->out, count, KOLO_FLOAT32);
    case 7:
        return kolo_barrier(group);
    case 8:
        return exchange(group, b, count);
    case 9:
        return send_one(group, b, count, root);
    case 10:
        return works(group, b, count);
    case 11:
        return exchange_with_anybody(group, b, count);
    case 12:
        return in_a_duplicate(group, b, count);
    case 13:
        return in_a_part(group, b, count);
    default:
        return kolo_all_reduce(group, b->in, b->out, count, KOLO_FLOAT32, KOLO_SUM);
    }
}

static void set_environment(const struct plan *plan, int rank)
{
    const bool has_windows_alone = !strcmp(plan->transport, "shm");

    setenv("KOLO_TRANSPORT", plan->has_hosts && has_windows_alone ? "shm,tcp" : plan->transport, 1);
    if (plan->has_hosts)
        setenv("KOLO_HOST", rank % 2 ? "one" : "other", 1);
    if (plan->has_rails) {
        setenv("FAKEVERBS_DEVICES", "fake0,fake1", 1);
        setenv("KOLO_IB_HCA", "fake0,fake1", 1);
        setenv("KOLO_IB_QPS_PER_CONNECTION", "2", 1);
    }
    setenv("KOLO_AUTH_TOKEN", "sixteen letters and more", 1);
    setenv(plan->setting[0], plan->setting[1], 1);
    setenv("KOLO_DEBUG", getenv("KILLS_DEBUG") ? getenv("KILLS_DEBUG") : "NONE", 1);
}

/* Calls until the first error. All ranks draw the same calls. */
static void rank_main(const struct plan *plan, int rank, int timeout_ms, struct outcome *outcome)
{
    struct buffers *buffers = calloc(1, sizeof *buffers);
    uint64_t state = plan->seed ^ 0xca11;
    kolo_group *group = NULL;
    char method[96];
    int err;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    set_environment(plan, rank);
    snprintf(method, sizeof method, "tcp://127.0.0.1:%d?rank=%d&world_size=%d", plan->port, rank,
             plan->n);
    err = kolo_group_join(method, timeout_ms, &group);
    while (!err) {
        err = one_call(group, &state, buffers);
        outcome->calls++;
    }
    snprintf(outcome->text, sizeof outcome->text, "%s", kolo_last_error());
    outcome->status = err;
    kolo_group_free(group);
    free(buffers);
    exit(0);
}

/* ---- a run ---------------------------------------------------------------------------------- */

static void begin(struct run *run, const struct kills *kills, uint64_t seed)
{
    run->is_on = true;
    run->plan = make_plan(kills, seed);
    run->killed_ns = 0;
    memset(run->outcomes, 0, MOST_RANKS * sizeof *run->outcomes);
    fflush(NULL);
    for (int r = 0; r < run->plan.n; r++) {
        run->pids[r] = fork();
        if (run->pids[r] < 0)
            abort();
        if (run->pids[r] == 0)
            rank_main(&run->plan, r, kills->timeout_ms, &run->outcomes[r]);
    }
    run->kill_at_ns = ko_now_ns() + (int64_t)run->plan.kill_us * 1000;
    run->deadline = ko_deadline_in(kills->timeout_ms + GRACE_MS);
}

/* True if text says "rank K" and not merely "rank K7". */
static bool names(const char *text, int rank)
{
    char name[24];
    size_t length = (size_t)snprintf(name, sizeof name, "rank %d", rank);

    for (const char *at = strstr(text, name); at; at = strstr(at + 1, name))
        if (at[length] < '0' || at[length] > '9')
            return true;
    return false;
}

/* What was first, of a text that says so of another group before its own. */
static const char *first_reason(const char *text)
{
    static const char before[] = "'s failed: ";
    const char *reason;

    while (!strncmp(text, "another group", 13) && (reason = strstr(text, before)))
        text = reason + sizeof before - 1;
    return text;
}

/* True if the text's first word of a loss is of another rank. */
static bool blames_another(const char *text, int rank)
{
    const char *reason = first_reason(text);
    int in_group, in_world;
    const int n = sscanf(reason, "rank %d (rank %d of the world", &in_group, &in_world);
    const char *lost = strstr(reason, " was lost");

    return lost && lost < strchrnul(reason, ';') && n > 0 && (n > 1 ? in_world : in_group) != rank;
}

static void judge(const struct run *run, int rank, int status, int timeout_ms,
                  struct kills_result *result)
{
    const struct outcome *outcome = &run->outcomes[rank];
    int ms = (int)((ko_now_ns() - run->killed_ns) / 1000000);
    bool is_hung = WIFSIGNALED(status) && ko_deadline_passed(&run->deadline);
    bool is_crashed = !is_hung && (!WIFEXITED(status) || WEXITSTATUS(status));
    bool is_success = !is_hung && !is_crashed && !outcome->status;
    bool is_unnamed = outcome->status && !names(outcome->text, run->plan.victim);
    bool is_blaming = outcome->status && blames_another(outcome->text, run->plan.victim);
    bool is_late = ms > timeout_ms + 2000;

    result->latency_ms[result->survivors++] = ms;
    result->hangs += is_hung;
    result->crashes += is_crashed;
    result->successes += is_success;
    result->unnamed += is_unnamed;
    result->blamed += is_blaming;
    result->late += is_late;
    result->joined += outcome->calls > 0;
    result->slow += outcome->calls > 0 && ms > timeout_ms / 2;
    if (getenv("KILLS_DEBUG") && outcome->calls > 0 && ms > timeout_ms / 2)
        fprintf(stderr, "# seed %llu: slow, %d ms: rank %d: %s\n",
                (unsigned long long)run->plan.seed, ms, rank, outcome->text);
    if (is_hung || is_crashed || is_success || is_unnamed || is_blaming || is_late)
        fprintf(stderr,
                "# seed %llu: %d ranks over %s%s%s, %s=%s, rank %d killed after %d us: rank %d %s "
                "%d ms later, after %d calls: %s: %s\n",
                (unsigned long long)run->plan.seed, run->plan.n, run->plan.transport,
                run->plan.has_rails ? " (4 rails)" : "", run->plan.has_hosts ? " (2 hosts)" : "",
                run->plan.setting[0], run->plan.setting[1], run->plan.victim, run->plan.kill_us,
                rank,
                is_hung      ? "hung"
                : is_crashed ? "crashed"
                             : "returned",
                ms, outcome->calls, kolo_status_name(outcome->status), outcome->text);
}

/* Kills when it is time, reaps who has ended; true while somebody is left. */
static bool look(struct run *run, int timeout_ms, struct kills_result *result)
{
    bool is_on = false;

    if (!run->killed_ns && ko_now_ns() >= run->kill_at_ns) {
        run->killed_ns = ko_now_ns();
        kill(run->pids[run->plan.victim], SIGKILL);
    }
    for (int r = 0; r < run->plan.n; r++) {
        int status;

        if (!run->pids[r] || !run->killed_ns)
            continue;
        if (ko_deadline_passed(&run->deadline))
            kill(run->pids[r], SIGKILL);
        if (waitpid(run->pids[r], &status, WNOHANG) == run->pids[r]) {
            run->pids[r] = 0;
            if (r != run->plan.victim)
                judge(run, r, status, timeout_ms, result);
        }
        is_on |= run->pids[r] != 0;
    }
    return is_on || !run->killed_ns;
}

static int compare(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

static void prepare(struct run *run)
{
    run->outcomes = mmap(NULL, MOST_RANKS * sizeof *run->outcomes, PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (run->outcomes == MAP_FAILED)
        abort();
}

void kills_run(const struct kills *kills, struct kills_result *result)
{
    struct run *runs = calloc((size_t)kills->at_once, sizeof *runs);
    int begun = 0;

    *result =
        (struct kills_result){.latency_ms = calloc((size_t)kills->runs * MOST_RANKS, sizeof(int))};
    if (!runs || !result->latency_ms)
        abort();
    for (int i = 0; i < kills->at_once; i++)
        prepare(&runs[i]);
    while (result->runs < kills->runs) {
        for (int i = 0; i < kills->at_once; i++) {
            if (!runs[i].is_on && begun < kills->runs)
                begin(&runs[i], kills, kills->seed + (uint64_t)begun++);
            if (runs[i].is_on && !look(&runs[i], kills->timeout_ms, result)) {
                runs[i].is_on = false;
                result->runs++;
            }
        }
        usleep(500);
    }
    for (int i = 0; i < kills->at_once; i++)
        munmap(runs[i].outcomes, MOST_RANKS * sizeof *runs[i].outcomes);
    free(runs);
    qsort(result->latency_ms, (size_t)result->survivors, sizeof(int), compare);
}
