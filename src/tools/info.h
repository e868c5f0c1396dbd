/* SPDX-License-Identifier: MIT
 *
 * info.h: what kolo-info knows, gathered first and printed after, as text or as JSON. Everything is
 * the caller's memory; lists that can grow without bound are bounded here and say so.
 */
#ifndef KO_INFO_H
#define KO_INFO_H

#include "config.h"

#include <stdbool.h>
#include <stdio.h>

enum {
    KO_FACTS_CAP = 16,
    KO_TRANSPORTS_CAP = 16,
    KO_GPUS_CAP = 16,
    KO_UNKNOWN_CAP = 64, /* more unknown variables than that are not listed */
    KO_NAME_CAP = 64,
    KO_TEXT_CAP = 512
};

struct ko_fact {
    const char *name;
    bool is_number;
    char text[256];
};

struct ko_facts {
    int count;
    struct ko_fact list[KO_FACTS_CAP];
};

/* Version, ABI, compiler, flags. */
void ko_facts_build(struct ko_facts *facts);
/* Host, kernel, cores, memory, and the namespaces that decide who can share memory with whom. */
void ko_facts_machine(struct ko_facts *facts);

struct ko_variable {
    const struct ko_config_entry *entry;
    const char *value;
    bool is_set;               /* by the environment */
    char problem[KO_TEXT_CAP]; /* "" if the value is well formed */
};

struct ko_unknown {
    char name[KO_NAME_CAP];
    const char *nearest; /* the known variable that was probably meant, or NULL */
};

struct ko_variables {
    struct ko_variable list[KO_CONFIG_COUNT];
    struct ko_unknown unknown[KO_UNKNOWN_CAP];
    int nunknown;
    int nproblems; /* malformed and unknown ones */
};

void ko_variables_read(struct ko_variables *variables);

/* The error by which a job would refuse the environment's value of a variable, if it would. */
int ko_variable_check(enum ko_config_id id);

struct ko_transport_row {
    const char *name;
    const char *kind;         /* "window" or "message" */
    char reason[KO_TEXT_CAP]; /* why it cannot be used here; "" if it can */
};

struct ko_transport_rows {
    int count;
    struct ko_transport_row list[KO_TRANSPORTS_CAP];
};

/* Tries to open each of the registry's. */
void ko_transport_rows_read(struct ko_transport_rows *rows);

struct ko_gpu {
    char name[KO_NAME_CAP];
    char place[KO_NAME_CAP]; /* on the PCI bus */
    int major, minor;        /* compute capability */
    int multiprocessors;     /* 0: unknown */
    size_t nbytes;
    bool is_tried; /* by itself */
    /* Why its streams cannot wait for words, so that collectives go by way of the host, or "". */
    char without_waits[KO_TEXT_CAP];
    unsigned peers; /* bits: others of the list whose memory it can be given access to */
};

struct ko_gpus {
    char reason[KO_TEXT_CAP]; /* why none can be used here; "" if some can */
    /* Why collectives go by way of the host although there are GPUs, or "". */
    char without_kernels[KO_TEXT_CAP];
    int driver_version; /* 13000: CUDA 13.0 */
    int count;
    struct ko_gpu list[KO_GPUS_CAP];
};

/* Opens the driver. */
void ko_gpus_read(struct ko_gpus *gpus);

/* Prints the ports of RDMA adapters; false if there is none to use. */
bool ko_rdma_print(FILE *file, bool is_json);

/* What KOLO_ALGO chooses from. */
struct ko_algorithm_row {
    const char *collective, *name, *reason;
};

/* In order of preference; *count rows. */
const struct ko_algorithm_row *ko_algorithm_rows(int *count);

/* Prints which of them n ranks, per_host of them on each host, would take for each size. */
int ko_choices_print(int n, int per_host, FILE *file);

/* Who this process is in a job, as the environment says; one fact "refused" if it is wrong, which
 * makes *nproblems 1. */
void ko_facts_job(struct ko_facts *facts, int *nproblems);

struct ko_info {
    struct ko_facts build, machine, job;
    int njob_problems;
    struct ko_transport_rows transports;
    struct ko_gpus gpus;
    struct ko_variables variables;
};

void ko_info_print_text(const struct ko_info *info, FILE *file);
void ko_info_print_json(const struct ko_info *info, FILE *file);
/* The table of variables for README. */
void ko_info_print_markdown(FILE *file);

#endif
