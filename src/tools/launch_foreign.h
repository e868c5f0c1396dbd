/* SPDX-License-Identifier: MIT
 *
 * launch_foreign.h: command lines as people have them for torchrun, Open MPI's mpirun and MPICH's
 * mpiexec. What means the same as an option of kolorun's is an alias in kolorun.c's list; what
 * would change nothing here is taken, and what cannot be heeded is refused with what to do instead.
 */
#ifndef KO_LAUNCH_FOREIGN_H
#define KO_LAUNCH_FOREIGN_H

#include <argp.h>

/* kolorun's options, and behind them those of others. */
const struct argp_option *ko_foreign_options(const struct argp_option *own);

/* Takes one of those; ends the program if it is refused. ARGP_ERR_UNKNOWN: it is none. */
error_t ko_foreign_parse(int key, struct argp_state *state);

/* Names with underscores, as torchrun's were, are those with hyphens; behind a single hyphen only
 * the whole name of an option, since else it may be a short one's value. Changes word. */
void ko_foreign_hyphenate(const struct argp_option *all, char *word);

/* torchrun takes each option from a variable too, --nnodes from PET_NNODES: passes those of the
 * list that are set to the parser, and then takes or refuses those of others. */
void ko_foreign_environment(const struct argp_option *own, argp_parser_t parse,
                            struct argp_state *state);

/* Ends the program if its own arguments, from argv[first] on, are the parts of a job of several
 * programs, with ":" between. */
void ko_foreign_check_program(const struct argp_state *state, int first);

#endif
