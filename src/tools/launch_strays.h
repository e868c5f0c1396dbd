/* SPDX-License-Identifier: MIT
 *
 * launch_strays.h: what a rank leaves behind that is in kolorun's own process group, since it may
 * talk to the terminal: kolorun cannot signal that group without itself. It takes the rank's
 * orphans in instead, and knows them as its children. One thread.
 */
#ifndef KO_LAUNCH_STRAYS_H
#define KO_LAUNCH_STRAYS_H

#include <stdbool.h>
#include <sys/types.h>

/* From now on the orphans among kolorun's descendants are its children. False if it has some that
 * it did not start, as by exec in a shell that had, or the system cannot. */
bool ko_strays_adopt(void);

/* Reaps those that have ended before the rank. */
void ko_strays_reap(pid_t rank);

/* Kills all of this process group but the rank, and what those leave behind in turn. */
void ko_strays_kill(pid_t rank);

#endif
