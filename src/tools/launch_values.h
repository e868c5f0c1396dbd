/* SPDX-License-Identifier: MIT
 *
 * launch_values.h: what the values of kolorun's options mean, and the variables that it sets for
 * ranks. What is wrong ends the program with a sentence (argp_error).
 */
#ifndef KO_LAUNCH_VALUES_H
#define KO_LAUNCH_VALUES_H

#include "launch.h"

#include <argp.h>
#include <stdbool.h>

/* Of a machine. */
enum { KO_LAUNCH_MOST_RANKS = 4096 };

/* Milliseconds, of option `what` in seconds; of a machine's silence, 0: for ever. */
int ko_value_seconds(struct argp_state *state, const char *what, const char *text);
int ko_value_silence(struct argp_state *state, const char *text);

/* Ranks of this machine: a number, or gpu, cpu or auto. */
int ko_value_nprocs(struct argp_state *state, const char *text);

int ko_value_machines(struct argp_state *state, const char *text);
enum ko_binding ko_value_binding(struct argp_state *state, const char *text);
enum ko_binding ko_value_numa_binding(struct argp_state *state, const char *text);
/* Of --stdin. */
bool ko_value_reads_nothing(struct argp_state *state, const char *text);

/* text, if ko_logs_mask takes it. */
const char *ko_value_streams(struct argp_state *state, const char *what, const char *text);

/* Adds a variable to those of all ranks; kolorun itself takes those that hold for it, too. */
void ko_export_set(struct argp_state *state, struct ko_launch_options *options, const char *name,
                   const char *value);
/* The same of "NAME=VALUE", or of "NAME", which must be set here. */
void ko_export_add(struct argp_state *state, struct ko_launch_options *options, const char *text);
/* Ends the program if one of them is what kolorun itself sets, and would say otherwise. The options
 * are complete. */
void ko_exports_check(struct argp_state *state, const struct ko_launch_options *options);
void ko_exports_free(struct ko_launch_options *options);

#endif
