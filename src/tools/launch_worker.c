/* SPDX-License-Identifier: MIT
 *
 * One rank's process: its environment, its pipes, its start and its end. The child reports a failed
 * exec through a close-on-exec pipe, so that the parent knows for certain before it starts the
 * next.
 */
#include "launch.h"

#include "clock.h"
#include "launch_strays.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
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
    const struct ko_attempt *attempt;
    const sigset_t *mask;
    cpu_set_t processors;
    int output[2][2]; /* of stdout and stderr: the pipe, or only a file's [1]; -1: inherit */
    int copy[2];      /* files that get the same as the pipes */
    int status[2];    /* carries errno of a failed exec */
};

/* ---- the environment ---------------------------------------------------------------------- */

typedef void (*put_variable)(const char *name, const char *value);

static void put_number(put_variable put, const char *name, int value)
{
    char text[16];

    snprintf(text, sizeof text, "%d", value);
    put(name, text);
}

/* They would count before what kolorun says: see launcher.h. */
static const char *const by_hand[] = {"KOLO_RANK", "KOLO_SIZE", "KOLO_MASTER"};
enum { NBY_HAND = sizeof by_hand / sizeof *by_hand };

/* By -x. */
static bool is_exported(const struct ko_launch_options *options, const char *name)
{
    const size_t length = strlen(name);

    for (int i = 0; i < options->nexports; i++)
        if (!strncmp(options->exports[i], name, length) && options->exports[i][length] == '=')
            return true;
    return false;
}

/* The names that torchrun gives them, which kolo_group_join reads too. */
static void put_environment(const struct start *start, put_variable put)
{
    const struct ko_launch_options *options = start->options;
    const struct ko_attempt *attempt = start->attempt;
    int world = options->nprocs * options->nnodes;
    char path[PATH_MAX];

    if (options->nprocs > 1 && !is_exported(options, "OMP_NUM_THREADS") &&
        !getenv("OMP_NUM_THREADS"))
        put("OMP_NUM_THREADS", "1");
    put_number(put, "RANK", start->worker->rank);
    put_number(put, "WORLD_SIZE", world);
    put_number(put, "LOCAL_RANK", start->worker->local_rank);
    put_number(put, "LOCAL_WORLD_SIZE", options->nprocs);
    put_number(put, "GROUP_RANK", attempt->node_rank);
    put_number(put, "GROUP_WORLD_SIZE", options->nnodes);
    put_number(put, "ROLE_RANK", start->worker->rank);
    put_number(put, "ROLE_WORLD_SIZE", world);
    put("ROLE_NAME", options->role ? options->role : "default");
    put("MASTER_ADDR", attempt->master_addr);
    put_number(put, "MASTER_PORT", attempt->port);
    put_number(put, "TORCHELASTIC_RESTART_COUNT", attempt->number);
    put_number(put, "KOLORUN_ATTEMPT", attempt->number); /* the same everywhere */
    put_number(put, "TORCHELASTIC_MAX_RESTARTS", options->max_restarts);
    put("TORCHELASTIC_RUN_ID", options->run_id);
    if (attempt->token_file && *attempt->token_file)
        put("KOLO_AUTH_TOKEN_FILE", attempt->token_file);
    if (attempt->joins)
        put("KOLORUN_JOINS", attempt->joins);
    put("TORCHELASTIC_USE_AGENT_STORE", "False"); /* rank 0 serves the store itself */
    if (!attempt->logs->folder[0])
        return;
    ko_logs_path(attempt->logs, attempt->number, start->worker->local_rank, "error.json", path);
    put("TORCHELASTIC_ERROR_FILE", path);
}

static void set_variable(const char *name, const char *value)
{
    setenv(name, value, 1);
}

static void set_environment(const struct start *start)
{
    for (int i = 0; i < NBY_HAND; i++)
        unsetenv(by_hand[i]);
    for (int i = 0; i < start->options->nexports; i++)
        putenv(start->options->exports[i]);
    put_environment(start, set_variable);
}

/* ---- in the child ------------------------------------------------------------------------- */

/* Rank 0 reads kolorun's standard input, unless it is a terminal that several would fight for. */
static bool set_descriptors(const struct start *start)
{
    bool reads = !start->options->reads_nothing && start->worker->rank == 0 &&
                 (!start->worker->own_group || !isatty(STDIN_FILENO));
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
        if (start->options->binding != KO_BIND_NONE)
            sched_setaffinity(0, sizeof start->processors, &start->processors);
        ko_descriptors_restore(&start->attempt->descriptors);
        signal(SIGPIPE, SIG_DFL);
        sigprocmask(SIG_SETMASK, start->mask, NULL);
        execvp(start->options->program[0], start->options->program);
    }
    error = errno;
    if (write(start->status[1], &error, sizeof error) < 0)
        _exit(KO_EXIT_SELF);
    _exit(KO_EXIT_NO_FILE);
}

/* ---- in kolorun --------------------------------------------------------------------------- */

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
        close_fd(&start->copy[end]);
        close_fd(&start->status[end]);
    }
}

/* A new file of this rank's, for stdout (0) or stderr (1). */
static int open_log(const struct start *start, int which)
{
    char path[PATH_MAX];

    ko_logs_path(start->attempt->logs, start->attempt->number, start->worker->local_rank,
                 which ? "stderr.log" : "stdout.log", path);
    return open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
}

/* Into a file, into a pipe, into both, or where kolorun's own goes. */
static bool open_output(struct start *start, int which)
{
    const struct ko_launch_options *options = start->options;
    int bit = 1 << which;
    bool is_teed = ko_logs_mask(options->tees, start->worker->local_rank) & bit;
    bool is_redirected = ko_logs_mask(options->redirects, start->worker->local_rank) & bit;
    bool is_hidden =
        options->shown_ranks && !ko_logs_lists(options->shown_ranks, start->worker->local_rank);

    if (is_teed && !is_hidden)
        return (start->copy[which] = open_log(start, which)) >= 0 &&
               !pipe2(start->output[which], O_CLOEXEC);
    if (is_redirected || is_teed)
        return (start->output[which][1] = open_log(start, which)) >= 0;
    if (is_hidden)
        return (start->output[which][1] = open("/dev/null", O_WRONLY | O_CLOEXEC)) >= 0;
    return !options->tag || !pipe2(start->output[which], O_CLOEXEC);
}

static bool open_outputs(struct start *start)
{
    return !pipe2(start->status, O_CLOEXEC) && open_output(start, 0) && open_output(start, 1);
}

/* Hands the reading ends over to the worker's streams. */
static bool open_streams(struct ko_worker *worker, struct start *start)
{
    for (int i = 0; i < 2; i++) {
        int fd = start->output[i][0], copy_fd = start->copy[i];

        start->output[i][0] = start->copy[i] = -1;
        if (fd >= 0 &&
            !ko_stream_open(&worker->streams[i], fd, copy_fd,
                            start->options->tag ? worker->rank : -1, worker->streams[i].sink))
            return false;
    }
    return true;
}

static int complain(const char *what, int error)
{
    fprintf(stderr, "kolorun: %s: %s\n", what, strerror(error));
    return KO_EXIT_SELF;
}

/* What to say instead of a program that is a file which is there: it was searched for in PATH, or
 * is one of Python's. "" if it is not there, or nothing is known. */
static const char *way_to_run(const char *program)
{
    const size_t length = strlen(program);

    if (access(program, F_OK))
        return "";
    if (length > 3 && !strcmp(program + length - 3, ".py"))
        return "; say python3 ";
    return strchr(program, '/') ? "" : "; say ./";
}

/* Waits until the program runs or the child has said why not. */
static int await_exec(struct ko_worker *worker, struct start *start)
{
    const char *program = start->options->program[0], *instead;
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
    instead = way_to_run(program);
    fprintf(stderr, "kolorun: cannot execute %s: %s%s%s\n", program, strerror(error), instead,
            *instead ? program : "");
    return error == ENOENT ? KO_EXIT_NO_FILE : KO_EXIT_NO_EXEC;
}

static void make_start(struct start *start, const struct ko_worker *worker,
                       const struct ko_launch_options *options, const struct ko_attempt *attempt)
{
    cpu_set_t all;

    *start = (struct start){.worker = worker,
                            .options = options,
                            .attempt = attempt,
                            .output = {{-1, -1}, {-1, -1}},
                            .copy = {-1, -1},
                            .status = {-1, -1}};
    CPU_ZERO(&all);
    sched_getaffinity(0, sizeof all, &all);
    ko_binding_choose(options->binding, "/sys/devices/system", &all, worker->local_rank,
                      options->nprocs, &start->processors);
}

static void report_binding(const struct ko_worker *worker, const cpu_set_t *processors)
{
    char text[1024];

    ko_binding_describe(processors, text, sizeof text);
    ko_sink_print(worker->streams[1].sink, "kolorun: rank %d may use processors %s", worker->rank,
                  text);
}

int ko_worker_start(struct ko_worker *worker, const struct ko_launch_options *options,
                    const struct ko_attempt *attempt, const sigset_t *mask)
{
    struct start start;
    pid_t parent = getpid();
    int code = KO_EXIT_SELF;

    make_start(&start, worker, options, attempt);
    start.mask = mask;
    /* A single rank may talk to the terminal, which serves one process group at a time. */
    worker->own_group = options->nprocs > 1 || !isatty(STDIN_FILENO);
    worker->is_adopted = !worker->own_group && ko_strays_adopt();
    if (!open_outputs(&start) || !open_streams(worker, &start)) {
        complain("no pipe or file for a rank's output", errno);
        goto undo_pipes;
    }
    if (options->reports_bindings)
        report_binding(worker, &start.processors);
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

    if (worker->is_adopted)
        ko_strays_reap(worker->pid);
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
    if (worker->is_adopted && signal == SIGKILL)
        ko_strays_kill(worker->pid);
}

void ko_worker_free(struct ko_worker *worker)
{
    if (worker->pid > 0 && worker->ended)
        waitpid(worker->pid, NULL, 0);
    close_fd(&worker->pid_fd);
    ko_stream_close(&worker->streams[0]);
    ko_stream_close(&worker->streams[1]);
}

/* ---- without starting it ------------------------------------------------------------------ */

static void print_word(const char *word)
{
    bool is_plain = *word && strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                          "0123456789_-+=./:,@%") == strlen(word);

    if (!is_plain)
        putchar('\'');
    for (; *word; word++)
        if (*word == '\'')
            fputs("'\\''", stdout);
        else
            putchar(*word);
    if (!is_plain)
        putchar('\'');
}

static void print_variable(const char *name, const char *value)
{
    printf(" %s=", name);
    print_word(value);
}

void ko_worker_print(const struct ko_worker *worker, const struct ko_launch_options *options,
                     const struct ko_attempt *attempt)
{
    struct start start;
    char text[1024];

    make_start(&start, worker, options, attempt);
    if (options->binding != KO_BIND_NONE) {
        ko_binding_describe(&start.processors, text, sizeof text);
        printf("taskset -c %s ", text);
    }
    printf("env");
    if (options->wdir) {
        printf(" -C ");
        print_word(options->wdir);
    }
    for (int i = 0; i < NBY_HAND; i++)
        if (getenv(by_hand[i]) && !is_exported(options, by_hand[i]))
            printf(" -u %s", by_hand[i]);
    for (int i = 0; i < options->nexports; i++) {
        putchar(' ');
        print_word(options->exports[i]);
    }
    put_environment(&start, print_variable);
    for (char **word = options->program; *word; word++) {
        putchar(' ');
        print_word(*word);
    }
    putchar('\n');
}
