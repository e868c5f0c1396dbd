/* SPDX-License-Identifier: MIT
 *
 * perf.h: what kolo-perf is made of. A case is one operation (perf_case.h); a row is one case at
 * one size, measured in up to two forms, out of place and in place; a report is the rows of a run
 * or of a file. Every rank walks through the same rows; rank 0 alone keeps and prints them.
 */
#ifndef KO_PERF_H
#define KO_PERF_H

#include "kolo.h"
#include "launcher.h"
#include "perf_settings.h"
#include "perf_stats.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { KO_PERF_OUT_OF_PLACE, KO_PERF_IN_PLACE, KO_PERF_NFORMS };

enum ko_perf_average { KO_PERF_RANK_0, KO_PERF_MEAN, KO_PERF_LEAST, KO_PERF_MOST };

enum { KO_PERF_ALL = -1 }; /* as root, dtype or op: one after another */

/* ---- the command line -------------------------------------------------------------------- */

struct ko_perf_options {
    unsigned cases; /* a bit for each row of the table of cases; 0 with load */
    size_t min_bytes, max_bytes, step_bytes;
    double step_factor; /* 0: by step_bytes */
    int nsamples, warmup, cycles, check;
    int together; /* asynchronous calls under way at once; 0: blocking calls */
    enum ko_perf_average average;
    int op, dtype, root; /* or KO_PERF_ALL */
    int nthreads, nprocs;
    int timeout_ms; /* -1: the library's */
    int tensors;    /* of coalesced operations */
    size_t unalign; /* elements by which buffers miss their alignment */
    bool shared;    /* buffers are kolo_mem_alloc's */
    bool on_gpu;    /* buffers are in GPU memory */
    int launches;   /* of a graph, for each sample; 0: no graph */
    bool percentiles, cost, dirty, pin, timestamps;
    double margin; /* of compare: 0.05 is 5 % */
    const char *json, *csv, *plot, *compare, *load, *tune;
    struct ko_placement placement; /* of this process, which has nthreads ranks */
};

/* Exit codes. */
enum { KO_PERF_FINE = 0, KO_PERF_WRONG = 1, KO_PERF_FAILED = 125 };

/* Reads argv; ends the process with a message if it is wrong, as argp does. */
void ko_perf_options_read(struct ko_perf_options *options, int argc, char **argv);

/* The size that follows nbytes; greater than it, and SIZE_MAX where no number is. */
size_t ko_perf_next_size(const struct ko_perf_options *options, size_t nbytes);

/* kolo's or nccl-tests' name of a dtype; -1: neither. The name that nccl-tests prints. */
int ko_perf_dtype_find(const char *name);
const char *ko_perf_dtype_shown(const char *name);

/* Keeps this thread, and those that it starts, on one of the cores that it may use, by the number
 * of its rank on this machine. Best effort, a rank that is not pinned is right as well. */
void ko_perf_pin(long number);

/* ---- results ----------------------------------------------------------------------------- */

/* Per operation and rank; < 0: could not be had. */
struct ko_perf_cost {
    double cpu_us, switches, syscalls;
};

struct ko_perf_figures {
    bool is_measured;
    int64_t nwrong;  /* elements, of all ranks; -1: not checked */
    double *samples; /* microseconds of one operation, ascending */
    int nsamples;
    struct ko_perf_stats stats;
    double algbw, busbw; /* 10^9 bytes a second, by the median */
    struct ko_perf_cost cost;
};

struct ko_perf_row {
    char collective[25], type[16], op[16]; /* op "none": reduces nothing */
    size_t nbytes, count;
    int root; /* -1: has none */
    struct ko_perf_figures forms[KO_PERF_NFORMS];
};

struct ko_perf_report {
    int nranks;
    struct ko_perf_settings settings;
    struct ko_perf_row *rows;
    size_t nrows, cap;
};

/* Takes over row and its samples. */
int ko_perf_report_add(struct ko_perf_report *report, const struct ko_perf_row *row);
/* Rows that were measured and had wrong elements; mean of all bus bandwidths, from a row on. */
int64_t ko_perf_report_wrong(const struct ko_perf_report *report, size_t from);
double ko_perf_report_busbw(const struct ko_perf_report *report, size_t from);
/* Safe on an empty one. */
void ko_perf_report_free(struct ko_perf_report *report);

/* "out of place", "in place" as a program reads it. */
const char *ko_perf_form_name(int form);

/* ---- measuring --------------------------------------------------------------------------- */

struct ko_perf_case;
struct ko_perf_call;
struct ko_perf_device;

/* One rank's part of the run. */
struct ko_perf_rank {
    const struct ko_perf_options *options;
    kolo_group *group;
    bool is_first;   /* of its process: costs are of processes */
    int syscalls_fd; /* ko_perf_cost_open's, or -1 */
    /* options->max_bytes each, and room for options->unalign elements: */
    void *a, *b;                   /* where the operation's buffers are */
    void *copy;                    /* the host's */
    void *mirror;                  /* the host's, of a or b on a GPU */
    struct ko_perf_device *device; /* NULL: all buffers are the host's */
    kolo_work **works;             /* options->together of them */
    struct ko_perf_report *report; /* rank 0 only: where its rows go, and to stdout as they come */
    int64_t nwrong;                /* of all ranks, so far */
};

/* All rows of all cases. */
int ko_perf_sweep(struct ko_perf_rank *rank);

/* One form of one row: checks, then takes the time. call lacks only its buffers. On rank 0 figures
 * is complete, elsewhere only nwrong is. */
int ko_perf_measure(struct ko_perf_rank *rank, const struct ko_perf_case *row, int form,
                    struct ko_perf_call *call, struct ko_perf_figures *figures);

/* Is the ranks of this process: one that a launcher started, the only one, or options->nthreads of
 * them. Returns the exit code, having said on stderr what failed. The report is filled on rank 0.
 */
int ko_perf_run(const struct ko_perf_options *options, struct ko_perf_report *report);

/* Starts options->nprocs processes with the same command line; returns their exit code. */
int ko_perf_start(const struct ko_perf_options *options, int argc, char **argv);

/* Counters of this process, all its threads. */
struct ko_perf_counters {
    double cpu_us, switches, syscalls; /* syscalls < 0: the kernel does not permit counting */
};

/* A descriptor that counts the system calls of this thread and of those it starts; -1: it cannot be
 * had, and kolo_last_error() says why. */
int ko_perf_cost_open(void);
void ko_perf_cost_read(int fd, struct ko_perf_counters *counters);

/* ---- printing ---------------------------------------------------------------------------- */

/* The layout of nccl-tests, part by part: what was asked, the head of the table, a row of it, the
 * summary of the rows from a row on. */
void ko_perf_print_start(FILE *file, const struct ko_perf_options *options,
                         const struct ko_perf_case *row);
void ko_perf_print_head(FILE *file, const struct ko_perf_options *options);
void ko_perf_print_row(FILE *file, const struct ko_perf_options *options,
                       const struct ko_perf_row *row);
void ko_perf_print_end(FILE *file, const struct ko_perf_report *report, size_t from,
                       const char *collective);

/* One line for each form of each row; all that there is. */
void ko_perf_print_csv(FILE *file, const struct ko_perf_report *report);
void ko_perf_print_json(FILE *file, const struct ko_perf_options *options,
                        const struct ko_perf_report *report);

/* Reads what ko_perf_print_json wrote; errors name the file and what is wrong with it. */
int ko_perf_json_read(const char *path, struct ko_perf_report *report);

/* Rows that both have, with the ratio of the medians, now over base. */
void ko_perf_print_comparison(FILE *file, const struct ko_perf_report *base,
                              const struct ko_perf_report *now, double margin);

struct ko_perf_plotted {
    int ndrawn, nlines; /* of a picture, and that there would be */
};

/* Bus bandwidth and time over size, as SVG. */
struct ko_perf_plotted ko_perf_plot(FILE *file, const struct ko_perf_report *report,
                                    const struct ko_perf_report *base);

#endif
