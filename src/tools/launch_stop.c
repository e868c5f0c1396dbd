/* SPDX-License-Identifier: MIT
 *
 * How a job is ended: asked first, by SIGTERM or the signal that kolorun itself was sent, and after
 * the grace killed. One grace counts for all, from the first signal on, whatever ranks make of it
 * meanwhile.
 */
#include "launch_job.h"

#include <stdio.h>
#include <string.h>

enum {
    UNKILLABLE_MS = 5000, /* after SIGKILL, for a rank stuck in the kernel */
    TOGETHER_MS = 200     /* timeout(1), and a shell whose terminal goes, send signals twice */
};

void ko_job_signal_all(const struct ko_job *job, int signal)
{
    for (int i = 0; i < job->nworkers; i++)
        ko_worker_signal(&job->workers[i], signal);
}

void ko_job_kill_all(struct ko_job *job)
{
    ko_job_signal_all(job, SIGKILL);
    job->phase = KO_KILLING;
    job->limit = ko_deadline_in(UNKILLABLE_MS);
    job->is_limited = true;
}

void ko_job_stop_all(struct ko_job *job, int exit_code, const char *how)
{
    job->exit_code = exit_code;
    if (job->phase != KO_RUNNING)
        return;
    ko_nodes_fail(&job->nodes, job->attempt.number, exit_code, how, !job->may_restart || job->told);
    ko_job_signal_all(job, SIGTERM);
    ko_job_signal_all(job, SIGCONT); /* a stopped process cannot handle anything */
    job->phase = KO_STOPPING;
    job->is_limited = true;
    if (!job->was_left_grace)
        job->limit = ko_deadline_in(job->options->grace_ms);
}

/* ---- at a limit --------------------------------------------------------------------------- */

static bool runs(const struct ko_worker *worker)
{
    return !worker->ended;
}

static bool waits_to_join(const struct ko_worker *worker)
{
    return !worker->ended && worker->waits_to_join;
}

/* "3", "0-2, 5": the ranks that are so, cut at cap; their number. */
static int list_ranks(const struct ko_job *job, bool (*is_so)(const struct ko_worker *), char *list,
                      size_t cap)
{
    int n = 0;

    *list = '\0';
    for (int i = 0, end; i < job->nworkers; i = end + 1) {
        const size_t used = strlen(list);

        for (end = i; end < job->nworkers && is_so(&job->workers[end]); end++)
            continue;
        n += end - i;
        if (end == i + 1)
            snprintf(list + used, cap - used, "%s%d", used ? ", " : "", job->workers[i].rank);
        else if (end > i)
            snprintf(list + used, cap - used, "%s%d-%d", used ? ", " : "", job->workers[i].rank,
                     job->workers[end - 1].rank);
    }
    return n;
}

/* "rank 3 has not ended within 5 s (--grace) of SIGTERM; killing it". signal: what it was asked by
 * first. */
static void name_running(const struct ko_job *job, int signal, char *text, size_t cap)
{
    char list[256];
    const int n = list_ranks(job, runs, list, sizeof list);

    snprintf(text, cap, "rank%s %s %s not ended within %g s (--grace) of SIG%s; killing %s",
             n == 1 ? "" : "s", list, n == 1 ? "has" : "have", job->options->grace_ms / 1000.0,
             sigabbrev_np(signal), n == 1 ? "it" : "them");
}

static void end_grace(struct ko_job *job)
{
    char text[KO_NODES_TEXT + 128];

    if (job->phase == KO_RUNNING && job->nended == job->nworkers) {
        job->is_limited = false; /* there is output left, which has its own time */
        return;
    }
    if (job->nended < job->nworkers) {
        name_running(job, job->was_left_grace ? job->told : SIGTERM, text, sizeof text);
        if (!job->options->quiet)
            ko_sink_print(&job->sinks[1], "kolorun: %s", text);
        if (job->phase == KO_RUNNING) {
            job->exit_code = KO_EXIT_SIGNAL + job->told;
            ko_nodes_fail(&job->nodes, job->attempt.number, job->exit_code, text, true);
        }
    }
    ko_job_kill_all(job);
}

/* Where ranks wait for each other in vain, that is why. */
static void say_limit(struct ko_job *job)
{
    char list[256], waiting[320] = "";
    const int n = list_ranks(job, waits_to_join, list, sizeof list);

    if (n > 0)
        snprintf(waiting, sizeof waiting, ". Rank%s %s wait%s for others to join",
                 n == 1 ? "" : "s", list, n == 1 ? "s" : "");
    ko_sink_print(&job->sinks[1], "kolorun: the job ran past its limit of %g s; stopping it%s",
                  job->options->timeout_ms / 1000.0, waiting);
}

void ko_job_on_limit(struct ko_job *job)
{
    if (job->phase == KO_STOPPING || job->was_left_grace) {
        end_grace(job);
        return;
    }
    if (!job->options->quiet)
        say_limit(job);
    ko_job_stop_all(job, KO_EXIT_TIMEOUT, "it ran past its limit of time");
}

/* ---- signals ------------------------------------------------------------------------------ */

/* A second one: whoever sends it has waited enough. */
static void kill_by(struct ko_job *job, int signal)
{
    job->exit_code = KO_EXIT_SIGNAL + signal;
    ko_nodes_fail(&job->nodes, job->attempt.number, job->exit_code, "it was told to end twice",
                  true);
    ko_job_kill_all(job);
}

/* What kolorun passes on ends in the grace. What a rank has had from its terminal itself is between
 * the two: Ctrl-C at a debugger, or an interpreter, ends nothing. */
static void leave_grace(struct ko_job *job)
{
    if (job->phase != KO_RUNNING)
        return;
    job->limit = ko_deadline_in(job->options->grace_ms);
    job->is_limited = job->was_left_grace = true;
}

void ko_job_on_signal(struct ko_job *job, const struct signalfd_siginfo *info)
{
    const int signal = (int)info->ssi_signo;
    const bool ends = signal != SIGUSR1 && signal != SIGUSR2;
    const bool is_heard = ko_signals_is_heard(info, &job->workers[0]);

    if (ends && job->told && ko_deadline_passed(&job->together)) {
        kill_by(job, signal);
        return;
    }
    job->interrupted |= signal == SIGINT;
    if (ends && !job->told) {
        job->told = signal;
        job->together = ko_deadline_in(TOGETHER_MS);
        if (job->nended == job->nworkers && !job->exit_code) /* only waiting */
            ko_job_stop_all(job, KO_EXIT_SIGNAL + signal, "it was told to end");
        else if (!is_heard)
            leave_grace(job);
    }
    if (!is_heard)
        ko_job_signal_all(job, signal);
}
