/* SPDX-License-Identifier: MIT
 *
 * The job's loop. What is waited for follows from the state alone, so each round builds its list
 * anew: signals, ends of ranks, output that has somewhere to go, and the next deadline.
 *
 * Ends are read from an epoll set of pidfds, because epoll reports in the order in which things
 * happened: when one rank's crash makes all others fail, the first is the one to blame. On kernels
 * without pidfds SIGCHLD takes its place and ends of the same moment are seen in the order of
 * ranks.
 *
 * A job is one attempt, or several if ranks fail and may be started again. Of several machines that
 * agree (launch_nodes.h) each looks some times a second how the others do.
 */
#include "launch_job.h"

#include "clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <unistd.h>

enum {
    DRAIN_MS = 200, /* after the last rank's end, for pipes that its children keep open */
    LOOK_MS = 100   /* between looks at other machines */
};

static const char wait_for_machine[] =
    "; for the machine that was lost this waits until kolorun is "
    "started there again, or on another";

/* ---- what happens ------------------------------------------------------------------------- */

/* Who presses Ctrl-C knows why the ranks have ended. */
static bool is_as_wished(const struct ko_job *job, const struct ko_worker *worker)
{
    return job->interrupted && ko_worker_exit_code(worker) == KO_EXIT_SIGNAL + SIGINT;
}

/* waiting: a rank that it has not joined, which makes an end with 0 a failure; or NULL. */
static void blame(struct ko_job *job, const struct ko_worker *worker,
                  const struct ko_worker *waiting)
{
    char text[KO_NODES_TEXT];
    int others = job->nworkers - job->nended;

    job->first = worker;
    job->may_restart = true;
    if (job->options->killed_rank && worker->how != CLD_EXITED && !waiting && !job->told)
        *job->options->killed_rank = worker->rank;
    ko_worker_describe_failure(worker, waiting, text, sizeof text);
    if (!job->options->quiet && others > 0 && !is_as_wished(job, worker))
        ko_sink_print(&job->sinks[1], "kolorun: %s; stopping %d other%s", text, others,
                      others == 1 ? "" : "s");
    ko_job_stop_all(job, waiting ? KO_EXIT_MISSED : ko_worker_exit_code(worker), text);
}

/* Once a rank has ended, or said something. */
static void look_for_missed(struct ko_job *job)
{
    const struct ko_worker *missed, *waiting;

    ko_joins_read(&job->joins, job->workers, job->nworkers, job->attempt.number,
                  job->options->nprocs * job->options->nnodes);
    missed = ko_joins_find_missed(job->workers, job->nworkers, &waiting);
    if (missed && job->phase == KO_RUNNING)
        blame(job, missed, waiting);
}

static void on_end(struct ko_job *job, struct ko_worker *worker)
{
    if (!ko_worker_check(worker))
        return;
    if (worker->pid_fd >= 0)
        epoll_ctl(job->ends_fd, EPOLL_CTL_DEL, worker->pid_fd, NULL);
    worker->was_stopped = job->phase != KO_RUNNING;
    if (++job->nended == job->nworkers)
        job->drain = ko_deadline_in(DRAIN_MS);
    if (job->phase == KO_RUNNING && ko_worker_exit_code(worker) != 0)
        blame(job, worker, NULL);
}

static void on_ends(struct ko_job *job)
{
    struct epoll_event event;

    while (epoll_wait(job->ends_fd, &event, 1, 0) == 1)
        on_end(job, event.data.ptr);
}

static void on_signal(struct ko_job *job)
{
    struct signalfd_siginfo info;

    if (read(job->signal_fd, &info, sizeof info) != sizeof info)
        return;
    if (info.ssi_signo == SIGCHLD) {
        for (int i = 0; i < job->nworkers; i++)
            on_end(job, &job->workers[i]);
        return;
    }
    ko_job_on_signal(job, &info);
}

static bool has_others(const struct ko_job *job)
{
    return job->nodes.store && !job->nodes.is_lost;
}

/* How the other machines do; they look at this one too. */
static void look_around(struct ko_job *job)
{
    char how[KO_NODES_TEXT];
    enum ko_nodes_state state;
    int code = KO_EXIT_SELF;

    if (!has_others(job) || !ko_deadline_passed(&job->look))
        return;
    job->look = ko_deadline_in(LOOK_MS);
    if (job->nended == job->nworkers && !job->exit_code)
        ko_nodes_finish(&job->nodes, job->attempt.number);
    state = ko_nodes_check(&job->nodes, job->attempt.number, &code, how);
    if (job->is_over_everywhere || state == KO_NODES_RUNNING)
        return;
    job->is_over_everywhere = true;
    if (state == KO_NODES_OVER || job->exit_code)
        return;
    job->may_restart = state == KO_NODES_FAILED;
    if (!job->options->quiet)
        ko_sink_print(&job->sinks[1], "kolorun: %s; stopping %d rank%s here", how,
                      job->nworkers - job->nended, job->nworkers - job->nended == 1 ? "" : "s");
    job->has_named_loss = true; /* which is "how", if there is one */
    ko_job_stop_all(job, code, how);
}

static void on_broken_sink(struct ko_job *job, struct ko_sink *sink)
{
    if (sink == &job->sinks[0] && sink->error != EPIPE)
        ko_sink_print(&job->sinks[1], "kolorun: standard output cannot be written: %s",
                      strerror(sink->error));
    if (job->phase == KO_RUNNING)
        ko_job_stop_all(job, sink->error == EPIPE ? KO_EXIT_SIGNAL + SIGPIPE : KO_EXIT_SELF,
                        "its output cannot be written");
}

/* ---- the loop ----------------------------------------------------------------------------- */

/* True if nothing more is to come from the stream. */
static bool is_drained(const struct ko_stream *stream, bool late)
{
    return stream->fd < 0 || (late && stream->owed == 0);
}

/* Whether other machines may still make this one begin again. */
static bool is_awaited(const struct ko_job *job)
{
    return has_others(job) && !job->exit_code && !job->is_over_everywhere && !job->told;
}

static bool is_over(const struct ko_job *job)
{
    bool late;

    if (job->phase == KO_KILLING && ko_deadline_passed(&job->limit))
        return true;
    if (job->nended < job->nworkers || is_awaited(job))
        return false;
    late = ko_deadline_passed(&job->drain);
    for (int i = 0; i < job->nworkers; i++)
        if (!is_drained(&job->workers[i].streams[0], late) ||
            !is_drained(&job->workers[i].streams[1], late))
            return false;
    return true;
}

static int sooner(int timeout_ms, int other_ms)
{
    return timeout_ms < 0 || other_ms < timeout_ms ? other_ms : timeout_ms;
}

static int next_timeout_ms(const struct ko_job *job)
{
    int timeout_ms = job->is_limited ? ko_deadline_left_ms(&job->limit) : -1;
    int drain_ms = job->nended == job->nworkers ? ko_deadline_left_ms(&job->drain) : -1;

    if (drain_ms > 0)
        timeout_ms = sooner(timeout_ms, drain_ms);
    if (has_others(job))
        timeout_ms = sooner(timeout_ms, ko_deadline_left_ms(&job->look));
    return timeout_ms;
}

static void flush_sink(struct ko_job *job, int which)
{
    struct ko_sink *sink = &job->sinks[which];

    ko_sink_flush(sink);
    if (sink->error)
        on_broken_sink(job, sink);
}

/* Without it there is neither a signal nor an end that the loop would hear of. */
static void on_failed_poll(struct ko_job *job)
{
    if (errno == EINTR)
        return;
    ko_sink_print(&job->sinks[1], "kolorun: cannot wait for ranks: %s", strerror(errno));
    ko_job_stop_all(job, KO_EXIT_SELF, "kolorun cannot wait for its ranks");
    ko_job_kill_all(job);
    job->limit = ko_deadline_in(0);
}

static void run_once(struct ko_job *job)
{
    const struct pollfd *p = job->polls.list;
    const bool may_pass = job->is_limited && job->phase != KO_KILLING;

    if (ko_polls_wait(&job->polls, job->sinks, job->workers, job->nworkers, next_timeout_ms(job)) <
        0) {
        on_failed_poll(job);
        return;
    }
    if (p[KO_POLL_SIGNALS].revents)
        on_signal(job);
    if (p[KO_POLL_ENDS].revents)
        on_ends(job);
    if (p[KO_POLL_SIGNALS].revents || p[KO_POLL_ENDS].revents || p[KO_POLL_JOINS].revents)
        look_for_missed(job);
    for (int i = 0; i < 2; i++)
        if (p[KO_POLL_SINKS + i].revents)
            flush_sink(job, i);
    for (int i = 0; i < job->polls.nstreams; i++)
        if (p[KO_POLL_OWN + i].revents)
            ko_stream_read(job->polls.streams[i]);
    if (may_pass && ko_deadline_passed(&job->limit))
        ko_job_on_limit(job);
    look_around(job);
}

/* Writes the rest. A reader who never reads holds kolorun up as he would hold up any program; a
 * signal ends that, since the mask is restored here. */
static void finish_output(struct ko_job *job)
{
    sigprocmask(SIG_SETMASK, &job->old_mask, NULL);
    for (int i = 0; i < 2; i++)
        ko_sink_drain(&job->sinks[i], -1);
}

/* ---- setting up and taking down ----------------------------------------------------------- */

static int complain(const char *what)
{
    fprintf(stderr, "kolorun: %s: %s\n", what, strerror(errno));
    return KO_EXIT_SELF;
}

static int set_up(struct ko_job *job)
{
    const struct ko_launch_options *options = job->options;

    signal(SIGCHLD, SIG_DFL); /* if ignored, ranks would vanish unseen */
    signal(SIGPIPE, SIG_IGN); /* a broken output is an error of write */
    job->workers = calloc((size_t)options->nprocs, sizeof *job->workers);
    job->sinks = calloc(2, sizeof *job->sinks);
    if (!ko_polls_open(&job->polls, options->nprocs) || !job->workers || !job->sinks)
        return -1;
    ko_descriptors_raise(options->nprocs, &job->descriptors);
    ko_sink_open(&job->sinks[0], STDOUT_FILENO);
    ko_sink_open(&job->sinks[1], STDERR_FILENO);
    if (options->nnodes > 1)
        gethostname(job->host, sizeof job->host);
    job->signal_fd = ko_signals_open(-1, false, &job->old_mask);
    job->ends_fd = epoll_create1(EPOLL_CLOEXEC);
    if (job->signal_fd < 0 || job->ends_fd < 0 || !ko_joins_open(&job->joins))
        return -1;
    job->polls.list[KO_POLL_SIGNALS] = (struct pollfd){.fd = job->signal_fd, .events = POLLIN};
    job->polls.list[KO_POLL_ENDS] = (struct pollfd){.fd = job->ends_fd, .events = POLLIN};
    job->polls.list[KO_POLL_JOINS] = (struct pollfd){.fd = job->joins.fds[0], .events = POLLIN};
    return ko_token_hold(options, &job->token);
}

static int take_port(struct ko_job *job)
{
    job->port = job->options->master_port;
    if (!job->options->meets && job->port != 0)
        return 0;
    job->port_fd = ko_port_hold(&job->port);
    return job->port_fd < 0 ? -1 : 0;
}

/* Of an attempt that does not begin: the other machines hear of it. */
static int give_up(struct ko_job *job, int code, const char *how)
{
    job->exit_code = code ? code : KO_EXIT_SELF;
    ko_nodes_fail(&job->nodes, job->attempt.number, job->exit_code, how, true);
    return -1;
}

/* Everything as before the first attempt; what has come from its ranks stays in the sinks. -1:
 * there is no attempt, and the exit code is set. */
static int begin_attempt(struct ko_job *job, int number)
{
    const struct ko_launch_options *options = job->options;
    const int last_code = job->exit_code;

    job->nworkers = job->nended = job->exit_code = 0;
    job->first = NULL;
    job->may_restart = job->is_over_everywhere = job->has_named_loss = false;
    job->phase = KO_RUNNING;
    job->limit = job->whole;
    job->is_limited = options->timeout_ms > 0;
    job->look = ko_deadline_in(LOOK_MS);
    job->attempt = (struct ko_attempt){.number = number,
                                       .node_rank = job->nodes.node_rank,
                                       .master_addr = options->master_addr,
                                       .port = job->port,
                                       .token_file = job->token.path,
                                       .joins = job->joins.path,
                                       .host = job->host,
                                       .logs = &job->logs,
                                       .descriptors = job->descriptors};
    if (job->nodes.store) {
        job->attempt.master_addr = job->master_addr;
        for (int i = 0; i < 2; i++)
            ko_sink_drain(&job->sinks[i], 0); /* while they meet it is to be read why */
        if (ko_nodes_meet(&job->nodes, number, job->signal_fd, job->master_addr,
                          &job->attempt.port)) {
            fprintf(stderr, "kolorun: %s\n", kolo_last_error());
            return give_up(job, job->nodes.code ? job->nodes.code : last_code, kolo_last_error());
        }
    }
    if (ko_logs_begin(&job->logs, number, options->nprocs))
        return give_up(job, complain("no folders for the logs"), "it has no folders for the logs");
    return 0;
}

static int start_worker(struct ko_job *job)
{
    const struct ko_launch_options *options = job->options;
    const int local_rank = job->nworkers++;
    struct ko_worker *worker = &job->workers[local_rank];
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = worker};
    int code;

    *worker = (struct ko_worker){.local_rank = local_rank, .pid_fd = -1};
    worker->rank = job->attempt.node_rank * options->nprocs + local_rank;
    for (int i = 0; i < 2; i++)
        worker->streams[i] = (struct ko_stream){.fd = -1, .copy_fd = -1, .sink = &job->sinks[i]};
    code = ko_worker_start(worker, options, &job->attempt, &job->old_mask);
    if (code) {
        worker->ended = true;
        job->nended++;
        return code;
    }
    if (worker->pid_fd < 0 || epoll_ctl(job->ends_fd, EPOLL_CTL_ADD, worker->pid_fd, &event) ||
        worker->is_adopted)
        (void)ko_signals_open(job->signal_fd, true, NULL);
    return 0;
}

static void start_all(struct ko_job *job)
{
    int code = 0;

    while (job->nworkers < job->options->nprocs && !code) {
        code = start_worker(job);
        ko_nodes_stay(&job->nodes, job->attempt.number);
    }
    if (job->nended == job->nworkers)
        job->drain = ko_deadline_in(DRAIN_MS);
    job->start_failed = code != 0;
    if (code)
        ko_job_stop_all(job, code, "a rank cannot be started");
    /* Without pidfds an end before SIGCHLD was asked for has left no sign. */
    for (int i = 0; i < job->nworkers; i++)
        if (job->workers[i].pid_fd < 0)
            on_end(job, &job->workers[i]);
}

/* After an attempt: whatever it has left behind in its ranks' groups, if it has failed. */
static void end_attempt(struct ko_job *job)
{
    if (job->workers && job->exit_code)
        ko_job_signal_all(job, SIGKILL);
    for (int i = 0; job->workers && i < job->nworkers; i++)
        ko_worker_free(&job->workers[i]);
    job->nworkers = 0;
}

static void take_down(struct ko_job *job)
{
    const int fds[] = {job->signal_fd, job->ends_fd, job->port_fd, job->token.fd};

    end_attempt(job);
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    ko_joins_close(&job->joins);
    ko_nodes_close(&job->nodes);
    ko_logs_close(&job->logs);
    free(job->workers);
    ko_polls_close(&job->polls);
    free(job->sinks);
}

/* Not for a program that could not be started, nor when the reader of the output has had enough. */
static bool wants_report(const struct ko_job *job)
{
    return job->exit_code && !job->options->quiet && !job->start_failed &&
           job->sinks[0].error != EPIPE && !(job->first && is_as_wished(job, job->first));
}

/* A machine may have been lost which made ranks here fail: they say less of it. */
static void name_loss(struct ko_job *job)
{
    char how[KO_NODES_TEXT];

    job->awaits_machine =
        job->exit_code && ko_nodes_has_loss(&job->nodes, job->attempt.number, how);
    if (job->awaits_machine && !job->has_named_loss && !job->options->quiet)
        ko_sink_print(&job->sinks[1], "kolorun: %s", how);
}

/* Runs the attempt to its end. */
static void run_attempt(struct ko_job *job)
{
    start_all(job);
    while (!is_over(job))
        run_once(job);
    for (int i = 0; i < job->nworkers; i++) {
        ko_stream_close(&job->workers[i].streams[0]);
        ko_stream_close(&job->workers[i].streams[1]);
    }
    name_loss(job);
    if (wants_report(job))
        ko_report(&job->sinks[1], job->workers, job->nworkers, job->first, &job->attempt);
}

/* True if the failed attempt is to be followed by another. */
static bool wants_restart(const struct ko_job *job)
{
    int left = job->options->max_restarts - job->attempt.number;

    return job->exit_code && job->may_restart && !job->told && left > 0;
}

static void run_job(struct ko_job *job)
{
    int number = job->nodes.attempt;

    if (begin_attempt(job, number))
        return;
    run_attempt(job);
    while (wants_restart(job)) {
        if (!job->options->quiet)
            ko_sink_print(&job->sinks[1], "kolorun: starting all ranks again, restart %d of %d%s",
                          number + 1, job->options->max_restarts,
                          job->awaits_machine ? wait_for_machine : "");
        end_attempt(job);
        if (begin_attempt(job, ++number))
            return;
        run_attempt(job);
    }
}

int ko_launch(const struct ko_launch_options *options)
{
    struct ko_job job = {.options = options,
                         .token.fd = -1,
                         .joins.fds = {-1, -1},
                         .signal_fd = -1,
                         .ends_fd = -1,
                         .port_fd = -1};

    job.nodes = (struct ko_nodes){.node_rank = options->node_rank,
                                  .join_ms = options->join_ms,
                                  .nnodes = options->nnodes,
                                  .nprocs = options->nprocs,
                                  .max_restarts = options->max_restarts,
                                  .lost_after_ms = options->lost_after_ms};
    if (options->dry)
        return ko_launch_dry(options);
    if (ko_token_check(options))
        return KO_EXIT_SELF;
    if (options->timeout_ms > 0) {
        job.whole = ko_deadline_in(options->timeout_ms);
        job.nodes.limit = &job.whole;
    }
    if (options->meets &&
        ko_nodes_open(&job.nodes, options->master_addr, options->master_port, options->run_id)) {
        fprintf(stderr, "kolorun: %s\n", kolo_last_error());
        job.exit_code = job.nodes.code ? job.nodes.code : KO_EXIT_SELF;
    } else if (set_up(&job)) {
        job.exit_code = complain("cannot set up");
    } else if (take_port(&job) || ko_logs_open_as_asked(&job.logs, options, &job.sinks[1])) {
        job.exit_code = KO_EXIT_SELF;
    } else {
        run_job(&job);
        finish_output(&job);
    }
    take_down(&job);
    return job.exit_code;
}
