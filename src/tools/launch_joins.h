/* SPDX-License-Identifier: MIT
 *
 * launch_joins.h: what the ranks of a job say of their joining (launcher_joins.h), by which one is
 * missed that has ended while others wait for it. One thread.
 */
#ifndef KO_LAUNCH_JOINS_H
#define KO_LAUNCH_JOINS_H

#include "launcher_joins.h"

struct ko_worker;

struct ko_joins {
    int fds[2];               /* of a pipe; -1: none */
    char path[KO_JOINS_PATH]; /* KOLORUN_JOINS */
};

/* False with errno set. */
bool ko_joins_open(struct ko_joins *joins);
void ko_joins_close(struct ko_joins *joins);

/* Takes in what the ranks of an attempt have said since. size is that of the world. */
void ko_joins_read(const struct ko_joins *joins, struct ko_worker *workers, int nworkers,
                   int attempt, int size);

/* A rank that has ended with 0 and without joining one that waits for it, *waiting; or NULL. */
const struct ko_worker *ko_joins_find_missed(const struct ko_worker *workers, int nworkers,
                                             const struct ko_worker **waiting);

#endif
