/* SPDX-License-Identifier: MIT
 *
 * kills.h: runs groups of processes in which one random rank is killed at a random moment, and
 * holds the survivors to what kolo promises: each returns an error that names the killed rank,
 * within its time-out, and ends by itself.
 */
#ifndef KILLS_H
#define KILLS_H

#include <stdint.h>

struct kills {
    uint64_t seed; /* run i is made from seed + i */
    int runs;
    int at_once;           /* groups that run side by side */
    int timeout_ms;        /* of each group */
    const char *transport; /* of all groups; NULL: each draws its own */
};

struct kills_result {
    int runs;
    int survivors;
    int hangs;       /* survivors that had to be killed */
    int crashes;     /* ended by a signal */
    int successes;   /* returned without an error */
    int unnamed;     /* their error does not say "rank K" */
    int blamed;      /* their error says that another rank was lost */
    int late;        /* returned after their time-out */
    int joined;      /* survivors that had joined before the kill took effect */
    int slow;        /* of those: took longer than half of their time-out */
    int *latency_ms; /* from kill to exit, of each survivor, in rising order; to be freed */
};

/* Prints a line for each survivor that did not behave, with the seed of its run. */
void kills_run(const struct kills *kills, struct kills_result *result);

#endif
