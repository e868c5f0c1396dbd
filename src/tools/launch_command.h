/* SPDX-License-Identifier: MIT
 *
 * launch_command.h: what kolorun's command line says, as kolorun.c reads it, and what follows from
 * all of it together. One thread.
 */
#ifndef KO_LAUNCH_COMMAND_H
#define KO_LAUNCH_COMMAND_H

#include "launch.h"

#include "launcher.h"

#include <argp.h>
#include <stdbool.h>

/* What several options say, each in its own way. */
enum ko_says {
    KO_SAYS_NPROCS = 1,
    KO_SAYS_NNODES = 2,
    KO_SAYS_NODE_RANK = 4,
    KO_SAYS_ADDRESS = 8,
    KO_SAYS_PORT = 16,
    KO_SAYS_STANDALONE = 32,
    KO_SAYS_SETTINGS_RANK = 64
};

struct ko_command {
    const struct argp_option *all; /* options, with those of other launchers */
    struct ko_launch_options options;
    int tag;              /* -1: not said */
    int nprocs;           /* by -n; 0: not said */
    int nprocs_again;     /* by -N, which means the same here */
    int nprocs_of_hosts;  /* by -H or -f; what -n says counts before it */
    const char *hostfile; /* that does not say */
    int rank_of_settings; /* by --rdzv-conf; -1: not said */
    bool reads_environment;
    unsigned by_environment; /* of ko_says, what a variable has said and no option since */
    bool standalone;
    bool numbers_machines; /* --rdzv-backend c10d */
    const char *endpoint;
    const char *token_file; /* to be made; nothing is started */
    char endpoint_host[KO_HOST_TEXT], master_host[KO_HOST_TEXT];
    char run_id[32];
};

/* This is now said by what is being read, a variable or the command line. */
void ko_command_note(struct ko_command *command, enum ko_says what);

/* Defaults that depend on other options; ends the program if options contradict each other. What
 * the command line says counts before what variables say in another way. */
void ko_command_complete(struct argp_state *state, struct ko_command *command);

#endif
