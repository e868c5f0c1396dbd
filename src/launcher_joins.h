/* SPDX-License-Identifier: MIT
 *
 * launcher_joins.h: what ranks tell kolorun of their joining, so that it knows of one that ended
 * while others wait for it. They write words into a pipe of its own, which they do not inherit but
 * open by its path below /proc: KOLORUN_JOINS is that and the pipe's inode, by which a rank in
 * another PID namespace sees that the path leads elsewhere there. Nobody reads an answer, and where
 * there is no such pipe nothing is said. No state; any thread.
 */
#ifndef KO_LAUNCHER_JOINS_H
#define KO_LAUNCHER_JOINS_H

#include "launcher.h"

#include <stdint.h>

enum ko_join { KO_JOIN_WAITS, KO_JOIN_DONE, KO_JOIN_FAILED };

/* Written whole, since it is short. */
struct ko_join_word {
    int32_t rank, size, local_rank, attempt;
    int32_t what; /* enum ko_join */
};

enum { KO_JOINS_PATH = 64 };

/* The value of KOLORUN_JOINS for a pipe of this process. */
void ko_joins_path(int pipe_fd, char path[KO_JOINS_PATH]);

/* Tells it, if this placement is what kolorun gave this process. */
void ko_joins_say(const struct ko_placement *placement, enum ko_join what);

#endif
