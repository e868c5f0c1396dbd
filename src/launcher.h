/* SPDX-License-Identifier: MIT
 *
 * launcher.h: who this process is in its job, as launchers tell it by environment variables. One
 * table (launcher.c) holds what each launcher sets; its first row that is set counts:
 * KOLO_RANK; torchrun's and kolorun's; Open MPI's; PMI (MPICH, srun --mpi=pmi2); PMIx; Slurm's.
 * With none of them the process is alone. No state; any thread.
 */
#ifndef KO_LAUNCHER_H
#define KO_LAUNCHER_H

#include <stdbool.h>
#include <stddef.h>

/* Of a world: a larger one is a mistake, which is told before each rank makes lists of the others.
 */
enum { KO_MOST_RANKS = 1 << 20 };

enum { KO_HOST_TEXT = 256, KO_JOB_TEXT = 320, KO_PLACEMENT_TEXT = 640, KO_WARNING_TEXT = 256 };

/* How the ranks find the store. */
enum ko_meeting {
    KO_MEET_ALONE, /* one rank: it needs none */
    KO_MEET_RANK0, /* rank 0 serves it at host:port */
    KO_MEET_NODE0, /* the same, but host is only a node's name, which not all machines may know */
    KO_MEET_AGENT, /* the launcher serves it at host:port */
    KO_MEET_PMI,   /* rank 0 serves it and says where over PMI, at descriptor pmi_fd */
    KO_MEET_PMIX,  /* the same over PMIx */
    KO_MEET_FILE   /* the store is a file, of which host is the path */
};

struct ko_placement {
    const char *launcher;     /* "torchrun or kolorun"; lasts forever, as do the next */
    const char *rank_name;    /* the variable that gave the rank; NULL: none */
    const char *address_name; /* the same of host and port */
    int rank, size;
    int local_rank, local_size; /* on this node; -1: not said, as in the next two */
    int node, nnodes;
    int restart;           /* 0 at first; torchrun's ranks may be told different numbers */
    int attempt;           /* the same if all ranks are sure to be told the same number; else 0 */
    char job[KO_JOB_TEXT]; /* "": not said */
    bool is_job_shared;    /* all ranks are told of this job; else a launcher around them said so,
                            * perhaps not to all */
    enum ko_meeting meeting;
    char host[KO_HOST_TEXT];
    int port, pmi_fd;              /* 0, and -1: none */
    char warning[KO_WARNING_TEXT]; /* "", or that another launcher says of another job */
    char note[KO_WARNING_TEXT];    /* "", or that one which does not count is half set */
};

/* Reads an environment, "NAME=VALUE" texts up to a NULL; an empty value counts as not set. On
 * KOLO_E_INVALID, for one that is half set or contradicts itself, *placement is undefined. */
int ko_placement_read(char *const *environment, struct ko_placement *placement);

/* KOLO_E_INVALID if rank, size, node and what is said of them cannot be, taken together. */
int ko_placement_check(const struct ko_placement *placement);

/* Whether a launcher's agent serves a store at this address: then no rank is to. */
bool ko_placement_is_agents(char *const *environment, const char *host, int port);

/* How often kolorun has started the job again, for ranks that are not told by the environment; 0
 * under other launchers. */
int ko_placement_attempt(char *const *environment, int *attempt);

/* Whether a launcher may start the job again without a number that is the same on all ranks. */
bool ko_placement_has_uncounted(char *const *environment);

/* One line: "rank 1 of 4 by PMI_RANK (PMI: MPICH or srun), node 0, ...; rank 0 serves the store at
 * h:5 by KOLO_MASTER"; cut at cap. */
void ko_placement_describe(const struct ko_placement *placement, char *text, size_t cap);

/* "host", "v6", "[v6]", copied without the brackets. `name` is where text comes from. */
int ko_host_parse(const char *name, const char *text, char host[KO_HOST_TEXT]);

/* "host:port", "[v6]:port"; with is_port_optional also "host" alone, which leaves *port. `name` is
 * where text comes from. */
int ko_address_parse(const char *name, const char *text, bool is_port_optional,
                     char host[KO_HOST_TEXT], int *port);

#endif
