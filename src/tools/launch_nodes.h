/* SPDX-License-Identifier: MIT
 *
 * launch_nodes.h: what the kolorun of several machines agree on, over a store that one of them
 * serves: which machine is which, where rank 0 is, that an attempt has failed or a machine was lost
 * and the next begins, that all have ended. Needed for restarts and for machines that are not
 * numbered; each attempt has keys of its own. One thread; the calls below wait as long as a request
 * takes, 5 s at most, unless they say more.
 */
#ifndef KO_LAUNCH_NODES_H
#define KO_LAUNCH_NODES_H

#include "clock.h"
#include "kolo.h"

#include <stdbool.h>

enum { KO_NODES_TEXT = 256, KO_NODES_LOST_CODE = 125 };

struct ko_nodes {
    kolo_store *store; /* NULL: this machine is alone, or nothing is to be agreed on */
    kolo_store *keys;
    int nnodes, node_rank;
    int nprocs, max_restarts; /* the same on all machines */
    int lost_after_ms;        /* of silence, of a machine; 0: never */
    bool is_server;
    bool is_admitted;         /* it has its number, so that what it says counts for the job */
    bool is_done;             /* this machine's ranks have ended well, in this attempt */
    bool is_meeting;          /* for the next attempt */
    bool is_lost;             /* KO_NODES_LOST: the store is asked for nothing more */
    int join_ms;              /* for each meeting; -1: KOLO_TIMEOUT_MS */
    const ko_deadline *limit; /* of the job, for its meetings too; NULL: none */
    int code;                 /* for the job's end, if what ended a meeting says one; else 0 */
    int attempt;              /* with which this machine begins */
    int incarnation;          /* how many with this number were lost before */
    char endpoint[KO_NODES_TEXT];

    /* of launch_losses.c */
    ko_deadline beat;      /* next */
    struct ko_life *lives; /* of each machine, on the one that serves */
    int64_t listened_ns;   /* to them, last */
    size_t ngone;          /* bytes read of "gone" */
};

enum ko_nodes_state {
    KO_NODES_RUNNING,
    KO_NODES_FAILED, /* somewhere a rank has failed */
    KO_NODES_ENDED,  /* a machine has stopped for another reason: no attempt will follow */
    KO_NODES_OVER,   /* all ranks everywhere have ended well */
    KO_NODES_LOST    /* the store has gone, with the machine that served it */
};

/* Opens the store at name:port, not on the loopback for a host's own name; serves it on machine 0,
 * and if node_rank is -1 on the first that can. Waits for it up to join_ms. Then takes
 * this machine's number, or the first that is free: KOLO_E_INVALID if another kolorun has it, or
 * was started with other options. The number of a machine that was lost is free. */
int ko_nodes_open(struct ko_nodes *nodes, const char *name, int port, const char *run_id);

/* Waits for all machines to begin an attempt, up to join_ms; the error names those that
 * have not come. Machine 0 gives its port, and all get its address and port. KOLO_E_PEER_LOST: a
 * machine has left. KOLO_E_TIMEOUT: also when the job's own limit has passed. KOLO_E_ABORTED: a
 * signal that ends a job has been read from signal_fd. */
int ko_nodes_meet(struct ko_nodes *nodes, int attempt, int signal_fd, char master[KO_NODES_TEXT],
                  int *port);

/* Says that this machine stops the attempt, why and with which exit code; is_final: it will not
 * take part in another. The first to say so counts. */
void ko_nodes_fail(struct ko_nodes *nodes, int attempt, int code, const char *how, bool is_final);

/* Says, once, that all ranks of this machine have ended well. */
void ko_nodes_finish(struct ko_nodes *nodes, int attempt);

/* How the attempt stands; unless all is well the exit code for it and "machine 1: rank 5 ended with
 * ...". */
enum ko_nodes_state ko_nodes_check(struct ko_nodes *nodes, int attempt, int *code,
                                   char how[KO_NODES_TEXT]);

/* True if a machine was lost in this attempt: who, and why that is thought. */
bool ko_nodes_has_loss(struct ko_nodes *nodes, int attempt, char how[KO_NODES_TEXT]);

/* For one that does not look how the attempt stands: shows that it is there. */
void ko_nodes_stay(struct ko_nodes *nodes, int attempt);

/* Leaves; the machine that serves the store waits some seconds for the others that have come to
 * read. Safe on one that is all zero. */
void ko_nodes_close(struct ko_nodes *nodes);

#endif
