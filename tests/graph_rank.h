/* SPDX-License-Identifier: MIT
 *
 * graph_rank.h: what a rank, thread or process, has for messages in CUDA graphs: memory on its GPU,
 * with what it sends in each round and what it is to have received, and a graph that is launched
 * in a stream of its own. On the double of NVIDIA's driver.
 */
#ifndef GRAPH_RANK_H
#define GRAPH_RANK_H

#include "gpu_rank.h"
#include "ranks.h"

enum { GRAPH_BYTES = 100003, GRAPH_MOST_RANKS = 4, GRAPH_LAUNCHES = 4 };

struct graph_rank {
    int rank, n, to, from;   /* the next and the one before, in a ring */
    ko_cu_ptr out, in, more; /* GRAPH_BYTES; as many; and for each rank */
    ko_cu_stream stream;     /* in which graphs are launched: not the group's */
    ko_cu_graph_exec exec;
};

/* Of the calling thread. */
extern _Thread_local struct graph_rank graph_rank;

/* Functions return 0, or ranks_fail. First, and last, with what has failed so far. */
int graph_rank_enter(kolo_group *group);
int graph_rank_leave(kolo_group *group, int failed);

/* The graph: one launch; its end; and that of the graph itself. */
int graph_rank_launch(void);
int graph_rank_finish(void);
void graph_rank_drop(void);

/* The same, of a launch that has this rank's GPU read nbytes, and words, and none from the host. */
int graph_rank_launch_counted(size_t nbytes);

/* What the rank sends in this round; what it has received is wiped out. */
int graph_rank_fill(int round);

/* Whether nbytes of a rank's message are there, of those that begin at byte `skipped`, and nothing
 * behind them. */
int graph_rank_check(ko_cu_ptr memory, int from, int round, size_t nbytes);
int graph_rank_check_part(ko_cu_ptr memory, int from, int round, size_t skipped, size_t nbytes);

/* A test's ranks, on so many GPUs; on one, and on three. */
void graph_rank_run_on(enum ranks_kind kind, int n, const char *ngpus, ranks_body body,
                       void *argument);
void graph_rank_run(enum ranks_kind kind, int n, ranks_body body);

/* The same of processes, of which one may be killed. */
void graph_rank_lose(int n, ranks_body body);

/* Of a thread: kills the process within 50 ms. */
void *graph_rank_kill_soon(void *unused);

#endif
