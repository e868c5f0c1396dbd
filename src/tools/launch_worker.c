/* SPDX-License-Identifier: MIT
 *
 * One rank's process: its environment, its pipes, its start and its end. The child reports a failed
 * exec through a close-on-exec pipe, so that the parent knows for certain before it starts the
 * next.
 */
#include "launch.h"

#include "clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* What the child needs; all descriptors are close-on-exec. */
struct start {
    const struct ko_worker *worker;
    const struct ko_launch_options *options;
    const sigset_t *mask;
    int port;
    int output[2][2]; /* pipes of stdout and stderr; -1: inherit */
    int status[2];    /* carries errno of a failed exec */
};

/* ---- in the child ------------------------------------------------------------------------------
 */

static void set_number(const char *name, int value)
{
    char text[16];

    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

/* The names that torchrun gives them, which kolo_group_join reads too. */
static void set_environment(const struct start *start)
{
    const struct ko_launch_options *options = start->options;
    int world = options->nprocs * options->nnodes;

    for (int i = 0; i < options->nexports; i++)
        putenv(options->exports[i]);
    if (options->nprocs > 1)
        setenv("OMP_NUM_THREADS", "1", 0);
    set_number("RANK", start->worker->rank);
    set_number("WORLD_SIZE", world);
    set_number("LOCAL_RANK", start->worker->local_rank);
    set_number("LOCAL_WORLD_SIZE", options->nprocs);
    set_number("GROUP_RANK", options->node_rank);
    set_number("GROUP_WORLD_SIZE", options->nnodes);
    set_number("ROLE_RANK", start->worker->rank);
    set_number("ROLE_WORLD_SIZE", world);
    setenv("ROLE_NAME", "default", 1);
    setenv("MASTER_ADDR", options->master_addr, 1);
    set_number("MASTER_PORT", start->port);
    setenv("TORCHELASTIC_RESTART_COUNT", "0", 1);
    setenv("TORCHELASTIC_MAX_RESTARTS", "0", 1);
    setenv("TORCHELASTIC_RUN_ID", options->run_id, 1);
    setenv("TORCHELASTIC_USE_AGENT_STORE", "False", 1); /* rank 0 serves the store itself */
}

/* Rank 0 reads kolorun's standard input, unless it is a terminal that several would fight for. */
static bool set_descriptors(const struct start *start)
{
    bool reads = start->worker->rank == 0 && (!start->worker->own_group || !isatty(STDIN_FILENO));
    int null = reads ? -1 : open("/dev/null", O_RDONLY | O_CLOEXEC);

    if (!reads && (null < 0 || dup2(null, STDIN_FILENO) < 0))
        return false;
    for (int i = 0; i < 2; i++)
        if (start->output[i][1] >= 0 && dup2(start->output[i][1], STDOUT_FILENO + i) < 0)
            return false;
    return true;
}

static _Noreturn void run_child(const struct start *start, pid_t parent)
{
    int error;

    if (start->worker->own_group)
        setpgid(0, 0);
    /* If the parent died before prctl, nobody will send the signal any more. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent)
        _exit(KO_EXIT_SELF);
    if (set_descriptors(start)) {
        set_environment(start);
        signal(SIGPIPE, SIG_DFL);
        sigprocmask(SIG_SETMASK, start->mask, NULL);
        execvp(start->options->program[0], start->options->program);
    }
    error = errno;
    if (write(start->status[1], &error, sizeof error) < 0)
        _exit(KO_EXIT_SELF);
    _exit(KO_EXIT_NO_FILE);
}

/* ---- in kolorun --------------------------------------------------------------------------------
 */

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void close_pipes(struct start *start)
{
    for (int end = 0; end < 2; end++) {
        close_fd(&start->output[0][end]);
        close_fd(&start->output[1][end]);
        close_fd(&start->status[end]);
    }
}

static bool open_pipes(struct start *start, bool tag)
{
    return !pipe2(start->status, O_CLOEXEC) &&
           (!tag || (!pipe2(start->output[0], O_CLOEXEC) && !pipe2(start->output[1], O_CLOEXEC)));
}

/* Hands the reading ends over to the worker's streams. */
static bool open_streams(struct ko_worker *worker, struct start *start)
{
    for (int i = 0; i < 2; i++) {
        int fd = start->output[i][0];

        start->output[i][0] = -1;
        if (fd >= 0 &&
            !ko_stream_open(&worker->streams[i], fd, worker->rank, worker->streams[i].sink))
            return false;
    }
    return true;
}

static int complain(const char *what, int error)
{
    fprintf(stderr, "kolorun: %s: %s\n", what, strerror(error));
    return KO_EXIT_SELF;
}

/* Waits until the program runs or the child has said why not. */
static int await_exec(struct ko_worker *worker, struct start *start)
{
    int error = 0;
    ssize_t n;

    close_fd(&start->status[1]);
    do
        n = read(start->status[0], &error, sizeof error);
    while (n < 0 && errno == EINTR);
    if (n <= 0)
        return 0; /* closed by exec; a child that died before is seen as an ended rank */
    while (waitpid(worker->pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    worker->pid = 0;
    fprintf(stderr, "kolorun: cannot execute %s: %s\n", start->options->program[0],
            strerror(error));
    return error == ENOENT ? KO_EXIT_NO_FILE : KO_EXIT_NO_EXEC;
}

int ko_worker_start(struct ko_worker *worker, const struct ko_launch_options *options, int port,
                    const sigset_t *mask)
{
    struct start start = {worker, options, mask, port, {{-1, -1}, {-1, -1}}, {-1, -1}};
    pid_t parent = getpid();
    int code = KO_EXIT_SELF;

    /* A single rank may talk to the terminal, which serves one process group at a time. */
    worker->own_group = options->nprocs > 1 || !isatty(STDIN_FILENO);
    if (!open_pipes(&start, options->tag) || !open_streams(worker, &start)) {
        complain("no pipe for a rank's output", errno);
        goto undo_pipes;
    }
    worker->started_ns = ko_now_ns();
    worker->pid = fork();
    if (worker->pid == 0)
        run_child(&start, parent);
    if (worker->pid < 0) {
        complain("no process for a rank", errno);
        worker->pid = 0;
        goto undo_pipes;
    }
    if (worker->own_group)
        setpgid(worker->pid, worker->pid); /* both do it, so that it is done when either goes on */
    code = await_exec(worker, &start);
    if (!code)
        worker->pid_fd = (int)syscall(SYS_pidfd_open, worker->pid, 0);

undo_pipes:
    close_pipes(&start);
    return code;
}

bool ko_worker_check(struct ko_worker *worker)
{
    siginfo_t info = {0};

    if (worker->ended || waitid(P_PID, (id_t)worker->pid, &info, WEXITED | WNOHANG | WNOWAIT) ||
        info.si_pid == 0)
        return false;
    worker->ended = true;
    worker->how = info.si_code;
    worker->code = info.si_status;
    worker->ended_ns = ko_now_ns();
    ko_stream_count_owed(&worker->streams[0]);
    ko_stream_count_owed(&worker->streams[1]);
    return true;
}

int ko_worker_exit_code(const struct ko_worker *worker)
{
    return worker->how == CLD_EXITED ? worker->code : KO_EXIT_SIGNAL + worker->code;
}

void ko_worker_signal(const struct ko_worker *worker, int signal)
{
    if (worker->pid > 0)
        kill(worker->own_group ? -worker->pid : worker->pid, signal);
}

void ko_worker_free(struct ko_worker *worker)
{
    if (worker->pid > 0 && worker->ended)
        waitpid(worker->pid, NULL, 0);
    close_fd(&worker->pid_fd);
    ko_stream_close(&worker->streams[0]);
    ko_stream_close(&worker->streams[1]);
}
