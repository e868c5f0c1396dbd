/* SPDX-License-Identifier: MIT
 *
 * launch_job.h: a job as launch.c runs it and launch_stop.c ends it; nobody else looks into one.
 * One thread.
 */
#ifndef KO_LAUNCH_JOB_H
#define KO_LAUNCH_JOB_H

#include "launch.h"

#include "clock.h"

enum ko_phase {
    KO_RUNNING,
    KO_STOPPING, /* SIGTERM has been sent */
    KO_KILLING   /* SIGKILL has been sent */
};

struct ko_job {
    const struct ko_launch_options *options;
    struct ko_worker *workers;
    int nworkers; /* started so far */
    int nended;
    const struct ko_worker *first; /* whose failure ended the attempt */
    int exit_code;
    bool may_restart; /* a rank has failed, here or on another machine */
    bool is_over_everywhere;
    enum ko_phase phase;
    bool interrupted;
    int told; /* the first signal that told kolorun to end; 0: none has */
    bool start_failed;
    bool has_named_loss; /* of a machine, where there is one */
    bool awaits_machine; /* in place of that */
    struct ko_attempt attempt;
    struct ko_logs logs;
    struct ko_nodes nodes;
    char master_addr[KO_NODES_TEXT];
    char host[HOST_NAME_MAX + 1];
    ko_deadline look;      /* at the other machines, next */
    ko_deadline whole;     /* the job's, if it has one */
    ko_deadline limit;     /* of the phase, if is_limited */
    bool is_limited;       /* in RUNNING: by --timeout, or since a signal has told kolorun to end */
    bool was_left_grace;   /* by that signal: limit is the end of it */
    ko_deadline together;  /* until then a further signal is the same as that one */
    ko_deadline drain;     /* once all ranks have ended */
    struct ko_sink *sinks; /* stdout, stderr */
    struct ko_polls polls;
    struct rlimit descriptors; /* before */
    int port; /* MASTER_PORT of this machine, held by port_fd if kolorun has chosen it */
    struct ko_token token;
    struct ko_joins joins;
    int signal_fd, ends_fd, port_fd;
    sigset_t old_mask;
};

/* To all ranks. */
void ko_job_signal_all(const struct ko_job *job, int signal);

/* SIGKILL to all ranks, and the limit for what the kernel makes of it. */
void ko_job_kill_all(struct ko_job *job);

/* Asks all ranks to end; exit_code is the job's from now on, how says why to the other machines. */
void ko_job_stop_all(struct ko_job *job, int exit_code, const char *how);

/* The limit has passed. */
void ko_job_on_limit(struct ko_job *job);

/* A signal to kolorun, but for SIGCHLD. */
void ko_job_on_signal(struct ko_job *job, const struct signalfd_siginfo *info);

#endif
