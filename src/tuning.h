/* SPDX-License-Identifier: MIT
 *
 * tuning.h: costs that were measured on a machine, in a file:
 *   kolo tuning 5
 *   kolo 0.1.0, slices of 131072 bytes
 *   machine AMD EPYC 9354 family 25 model 17 stepping 1, 32 cores, caches of 1024 and 262144 KiB
 *   local.latency 0.05
 *   ... one line for each number, in microseconds, bytes or cores
 *   end
 */
#ifndef KO_TUNING_H
#define KO_TUNING_H

#include "costs.h"

#include <stddef.h>
#include <stdio.h>

/* What this process goes by: the file that KOLO_TUNING names, or what usually holds, with this
 * machine's cores; no reading of other processes' memory unless KOLO_PROTO has it. KOLO_E_INVALID
 * if the file is not one, is cut off, or is of another machine, as one of more cores is, or was
 * measured by another version of kolo or with other KOLO_SLICE_BYTES; the text names the file, the
 * line and what to do. */
int ko_tuning_get(struct ko_costs *costs);

int ko_tuning_read(const char *path, struct ko_costs *costs);
/* The same of a file that may be of another machine, version or slice; name is what has said its
 * path. */
int ko_tuning_read_any(const char *name, const char *path, struct ko_costs *costs);

/* What usually holds, with this machine's cores. */
void ko_tuning_usual(struct ko_costs *costs);

/* Replaces the file as a whole, by one that is written beside it; and whether one could be, of
 * which nothing is left. KOLO_E_SYSTEM. */
int ko_tuning_check_beside(const char *path);
int ko_tuning_write(const char *path, const struct ko_costs *costs);

/* "AMD EPYC 9354 family 25 model 17 stepping 1, 32 cores, caches of 1024 and 262144 KiB": the
 * processor, how many cores the machine has, of which this process may be bound to some, and the
 * second and third level of the first one's caches, 0 where nobody knows. */
void ko_tuning_machine(char *text, size_t nbytes);
/* The processor alone, out of what /proc/cpuinfo has; NULL: it is not known. */
void ko_tuning_processor(FILE *cpuinfo, char *name, size_t nbytes);

/* KOLO_E_INVALID if a number is none that costs can have; the text names it. */
int ko_costs_check(const struct ko_costs *costs);

#endif
