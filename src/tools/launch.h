/* SPDX-License-Identifier: MIT
 *
 * launch.h: what kolorun is made of. A job is the ranks of one machine: it starts them, passes
 * their output on line by line, forwards signals, and when one fails it stops the rest. One thread,
 * one poll loop; every wait in it ends by itself but the wait for the ranks' own work.
 */
#ifndef KO_LAUNCH_H
#define KO_LAUNCH_H

#include "launch_binding.h"
#include "launch_descriptors.h"
#include "launch_joins.h"
#include "launch_logs.h"
#include "launch_nodes.h"
#include "launch_output.h"
#include "launch_signals.h"

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

/* kolorun's own exit codes, as those of timeout(1) and env(1). Any other is a rank's. */
enum {
    KO_EXIT_MISSED = 1,    /* a rank ended with 0, and others wait for it to join them */
    KO_EXIT_TIMEOUT = 124, /* the job ran past --timeout */
    KO_EXIT_SELF = 125,    /* kolorun was misused or failed itself */
    KO_EXIT_NO_EXEC = 126, /* the program cannot be executed */
    KO_EXIT_NO_FILE = 127, /* the program was not found */
    KO_EXIT_SIGNAL = 128   /* + the number of the signal that ended the rank */
};

struct ko_launch_options {
    char **program; /* argv of every rank, NULL at its end */
    int nprocs;     /* ranks on this machine */
    int nnodes;     /* machines, each with nprocs ranks */
    int node_rank;  /* -1: by their coming, for those that meet */
    const char *master_addr;
    int master_port; /* 0: choose a free one (one machine only) */
    bool meets; /* the machines agree over a store at master_addr:master_port; see launch_nodes.h */
    const char *run_id;
    int max_restarts;
    const char *redirects, *tees; /* as ko_logs_mask takes them; NULL: none */
    const char *shown_ranks; /* whose output is passed on, as ko_logs_lists takes them; NULL: all */
    const char *log_dir;     /* NULL: none was asked for */
    enum ko_binding binding;
    bool reports_bindings;
    bool reads_nothing; /* rank 0 has no standard input either */
    const char *role;   /* ROLE_NAME; NULL: default */
    const char *wdir;   /* where kolorun has gone already; NULL: nowhere */
    bool dry;           /* only print what would be started */
    char **exports;     /* "NAME=VALUE" each, put into every rank's environment */
    int nexports;
    int timeout_ms;    /* of the whole job; 0: none */
    int grace_ms;      /* from SIGTERM to SIGKILL */
    int lost_after_ms; /* of silence, of a machine; 0: never */
    int join_ms;       /* in which the machines meet; -1: KOLO_TIMEOUT_MS */
    bool tag;          /* "[rank] " before every line */
    bool quiet;        /* say nothing about ranks that failed */
    int *killed_rank; /* is given the first one to fail if a signal that was not passed on ended it;
                       * NULL: not asked for */
};

/* ---- one rank ----------------------------------------------------------------------------- */

/* What the ranks of one start have in common. After a failure there may be another. */
struct ko_attempt {
    int number; /* from 0 */
    int node_rank;
    const char *master_addr;
    int port;               /* MASTER_PORT */
    const char *token_file; /* KOLO_AUTH_TOKEN_FILE; NULL or "": as it is */
    const char *joins;      /* KOLORUN_JOINS; NULL: as it is */
    const char *host;       /* this machine's name if there are others, else "" */
    struct ko_logs *logs;
    struct rlimit descriptors; /* as ko_descriptors_restore takes it */
};

struct ko_worker {
    int local_rank;
    int rank;
    pid_t pid;
    int pid_fd;      /* readable when it has ended; -1 on kernels without pidfd_open */
    bool own_group;  /* pid is a process group; not so when it must read from the terminal */
    bool is_adopted; /* if not: what it leaves behind is kolorun's, see launch_strays.h */
    bool ended;
    bool was_stopped;   /* it ended after kolorun had begun to stop the job */
    bool waits_to_join; /* as it has said, as this: */
    int njoined;
    int how;  /* CLD_EXITED, CLD_KILLED or CLD_DUMPED */
    int code; /* exit code, or signal */
    int64_t started_ns, ended_ns;
    struct ko_stream streams[2]; /* stdout, stderr; closed when the output is not tagged */
};

/* Starts worker->local_rank and returns when its program runs. 0, or KO_EXIT_SELF, _NO_EXEC,
 * _NO_FILE after saying why on stderr. mask is the rank's signal mask. */
int ko_worker_start(struct ko_worker *worker, const struct ko_launch_options *options,
                    const struct ko_attempt *attempt, const sigset_t *mask);

/* Prints on stdout what would be started: the variables, the processors, the command line. */
void ko_worker_print(const struct ko_worker *worker, const struct ko_launch_options *options,
                     const struct ko_attempt *attempt);

/* True, once, when the rank has ended since. It stays a zombie, so that its process group's number
 * cannot become somebody else's, until ko_worker_free. */
bool ko_worker_check(struct ko_worker *worker);

/* Exit code that the rank's end stands for: its own, or 128 + signal. */
int ko_worker_exit_code(const struct ko_worker *worker);

/* To the rank and its descendants in its process group. */
void ko_worker_signal(const struct ko_worker *worker, int signal);

/* Reaps an ended rank and closes what is open. */
void ko_worker_free(struct ko_worker *worker);

/* ---- the machine -------------------------------------------------------------------------- */

struct ko_gpu_count {
    int count;
    char reason[256]; /* why there is none */
};

/* NVIDIA's GPUs that a rank would find: CUDA_VISIBLE_DEVICES counts. */
void ko_gpus_count(struct ko_gpu_count *gpus);

/* ---- the job ------------------------------------------------------------------------------ */

/* Takes a port that is free on every address, of KOLO_PORT_RANGE if that is set, and holds it: see
 * launch_port.c. The descriptor, or -1 after saying why on stderr. */
int ko_port_hold(int *port);

struct ko_token {
    int fd;        /* to be kept open while ranks run; -1: there is none */
    char path[40]; /* of the file to be read by ranks; "" */
};

/* Makes a token that the ranks of this job alone know; none if the environment has one, or says
 * that none is needed, or if there are other machines, which could not know it. 0, or -1 with
 * errno. */
int ko_token_hold(const struct ko_launch_options *options, struct ko_token *token);

/* Makes a file, which must not be there yet, with a token for several machines. The exit code,
 * after saying on stderr what went wrong. */
int ko_token_make(const char *path);

/* -1 after saying so on stderr if other machines will ask for a token, and there is none, nor a
 * word that none is needed. */
int ko_token_check(const struct ko_launch_options *options);

/* Makes the job's folder; if logs are to be kept, sink is told where, since its name has a part of
 * its own each time. 0, or -1 after saying why on stderr. */
int ko_logs_open_as_asked(struct ko_logs *logs, const struct ko_launch_options *options,
                          struct ko_sink *sink);

/* A table of how every rank ended: first the one that failed first (NULL: none did by itself), then
 * the others; under each what it left in its error file. */
void ko_report(struct ko_sink *sink, const struct ko_worker *workers, int nworkers,
               const struct ko_worker *first, const struct ko_attempt *attempt);

/* "exit code 3", "SIGSEGV (core dumped)", "still running". */
void ko_worker_describe(const struct ko_worker *worker, char *text, size_t cap);

/* Why a job fails: "rank 2 ended with" that; waiting: a rank that it has not joined, or NULL. */
void ko_worker_describe_failure(const struct ko_worker *worker, const struct ko_worker *waiting,
                                char *text, size_t cap);

/* Prints what would be started, and starts nothing; returns kolorun's exit code. */
int ko_launch_dry(const struct ko_launch_options *options);

/* Runs the job to its end; returns kolorun's exit code. */
int ko_launch(const struct ko_launch_options *options);

#endif
