/* SPDX-License-Identifier: MIT
 *
 * What is left to say when a job has failed: one row for each rank, and which was the first.
 */
#include "launch.h"

#include "clock.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { READER_MS = 1000 }; /* for whoever reads what is said, to read some of it */

void ko_worker_describe(const struct ko_worker *worker, char *text, size_t cap)
{
    const char *name;

    if (!worker->ended) {
        snprintf(text, cap, "still running");
    } else if (worker->how == CLD_EXITED) {
        snprintf(text, cap, "exit code %d", worker->code);
    } else {
        name = sigabbrev_np(worker->code);
        if (name)
            snprintf(text, cap, "SIG%s", name);
        else
            snprintf(text, cap, "signal %d", worker->code);
        if (worker->how == CLD_DUMPED)
            snprintf(text + strlen(text), cap - strlen(text), " (core dumped)");
    }
}

void ko_worker_describe_failure(const struct ko_worker *worker, const struct ko_worker *waiting,
                                char *text, size_t cap)
{
    char how[64], vain[64] = "";

    ko_worker_describe(worker, how, sizeof how);
    if (waiting)
        snprintf(vain, sizeof vain, ", and rank %d waits for it to join", waiting->rank);
    snprintf(text, cap, "rank %d ended with %s%s", worker->rank, how, vain);
}

static const char *remark(const struct ko_worker *worker, const struct ko_worker *first)
{
    if (worker == first && worker->how == CLD_KILLED && worker->code == SIGKILL)
        return "first (out of memory? see dmesg)";
    if (worker == first)
        return ko_worker_exit_code(worker) ? "first" : "first (others waited for it to join)";
    if (first && worker->ended && !worker->was_stopped && worker->ended_ns < first->ended_ns)
        return "earlier"; /* by 0 */
    return worker->was_stopped ? "stopped" : "";
}

/* The column is there if there are several machines. */
static int host_width(const struct ko_attempt *attempt)
{
    const int length = (int)strlen(attempt->host);

    return length == 0 || length > 4 ? length : 4;
}

/* What the rank has left in its error file, and where that is if it is kept. */
static void print_error(struct ko_sink *sink, const struct ko_worker *worker,
                        const struct ko_attempt *attempt)
{
    char error[KO_ERROR_CAP], path[PATH_MAX], *rest = error, *line;

    ko_logs_error(attempt->logs, attempt->number, worker->local_rank, error);
    while (*error && (line = strsep(&rest, "\n")))
        ko_sink_print(sink, "kolorun:        %s", line);
    ko_logs_path(attempt->logs, attempt->number, worker->local_rank, "error.json", path);
    if (attempt->logs->is_kept && !access(path, F_OK))
        ko_sink_print(sink, "kolorun:        in %s", path);
}

static void print_row(struct ko_sink *sink, const struct ko_worker *worker,
                      const struct ko_worker *first, const struct ko_attempt *attempt)
{
    char how[64], row[160 + HOST_NAME_MAX];
    int64_t end_ns = worker->ended ? worker->ended_ns : ko_now_ns();
    size_t length;

    ko_worker_describe(worker, how, sizeof how);
    snprintf(row, sizeof row, "kolorun: %5d%s%-*s %9d  %-24s %9.3f s  %s", worker->rank,
             *attempt->host ? "  " : "", host_width(attempt), attempt->host, (int)worker->pid, how,
             (double)(end_ns - worker->started_ns) * 1e-9, remark(worker, first));
    length = strlen(row);
    while (length > 0 && row[length - 1] == ' ')
        row[--length] = '\0';
    ko_sink_print(sink, "%s", row);
    print_error(sink, worker, attempt);
}

/* For a row and the error below it. False: nobody reads. */
static bool make_room(struct ko_sink *sink)
{
    if (KO_SINK_CAP - sink->used < KO_SINK_ROOM)
        ko_sink_drain(sink, READER_MS);
    return KO_SINK_CAP - sink->used >= KO_SINK_ROOM;
}

void ko_report(struct ko_sink *sink, const struct ko_worker *workers, int nworkers,
               const struct ko_worker *first, const struct ko_attempt *attempt)
{
    bool is_read = make_room(sink);

    ko_sink_print(sink, "kolorun: %5s%s%-*s %9s  %-24s %11s", "rank", *attempt->host ? "  " : "",
                  host_width(attempt), *attempt->host ? "host" : "", "pid", "ended with", "after");
    if (first)
        print_row(sink, first, first, attempt);
    for (int i = 0; i < nworkers; i++) {
        if (&workers[i] == first)
            continue;
        is_read = is_read && make_room(sink);
        print_row(sink, &workers[i], first, attempt);
    }
    if (attempt->logs->is_kept)
        ko_sink_print(sink, "kolorun: logs are in %s", attempt->logs->folder);
}
