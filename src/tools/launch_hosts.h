/* SPDX-License-Identifier: MIT
 *
 * launch_hosts.h: lists of hosts as mpirun and mpiexec take them. kolorun starts ranks on its own
 * machine alone, and so heeds those that name no other.
 */
#ifndef KO_LAUNCH_HOSTS_H
#define KO_LAUNCH_HOSTS_H

#include <stdbool.h>

/* By its name, in full or without its domain, or by an address. */
bool ko_hosts_is_here(const char *host);

/* The ranks of "localhost:4,localhost", one for a host without a number. KOLO_E_INVALID says what
 * is wrong, or which host is another machine. */
int ko_hosts_list(const char *list, int *nranks);

/* The same of a file with lines like "localhost slots=4" or "localhost:4"; from # on is a comment.
 * 0 if a line has no number: then the launchers differ in what it means. */
int ko_hosts_file(const char *path, int *nranks);

#endif
