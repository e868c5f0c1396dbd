/* SPDX-License-Identifier: MIT
 *
 * hostlist.h: the short forms in which Slurm says which hosts there are, "n[01-03,7],gpu5", and how
 * many tasks each has, "3(x2),1". Text of the environment: nothing in it is trusted. No state.
 */
#ifndef KO_HOSTLIST_H
#define KO_HOSTLIST_H

#include <stddef.h>

/* More hosts than that are taken for a mistake. */
#define KO_HOSTLIST_MAX ((size_t)1 << 24)

/* The number of hosts. KOLO_E_INVALID says what is wrong with the list, called `name`. */
int ko_hostlist_count(const char *name, const char *list, size_t *count);

/* The host at index, from 0, below the count; cap bytes of host, a NUL at its end. Brackets may be
 * several in a name; the last one runs fastest. Numbers keep the width of the range's low end. */
int ko_hostlist_get(const char *name, const char *list, size_t index, char *host, size_t cap);

/* Tasks of the host at index. */
int ko_hostlist_tasks(const char *name, const char *list, size_t index, int *tasks);

#endif
