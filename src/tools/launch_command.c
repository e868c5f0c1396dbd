/* SPDX-License-Identifier: MIT */
#include "launch_command.h"
#include "launch_values.h"

#include "kolo.h"
#include "launcher.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { DEFAULT_PORT = 29500, DEFAULT_MEETING_PORT = 29400 };

/* ---- variables and options ---------------------------------------------------------------- */

void ko_command_note(struct ko_command *command, enum ko_says what)
{
    if (command->reads_environment)
        command->by_environment |= what;
    else
        command->by_environment &= ~(unsigned)what;
}

/* This machine is all there is, whatever variables say of others. */
static void forget_machines(struct ko_command *command, unsigned by_environment)
{
    struct ko_launch_options *options = &command->options;

    if (by_environment & KO_SAYS_NNODES)
        options->nnodes = 1;
    if (by_environment & KO_SAYS_NODE_RANK)
        options->node_rank = -1;
    if (by_environment & KO_SAYS_SETTINGS_RANK)
        command->rank_of_settings = -1;
    if (by_environment & KO_SAYS_ADDRESS)
        command->endpoint = options->master_addr = NULL;
    if (by_environment & KO_SAYS_PORT)
        options->master_port = 0;
}

static void prefer_command_line(struct ko_command *command)
{
    const unsigned by_environment = command->by_environment;

    if (by_environment & KO_SAYS_NPROCS && (command->nprocs_again || command->nprocs_of_hosts))
        command->nprocs = 0;
    if (by_environment & KO_SAYS_NODE_RANK && !(by_environment & KO_SAYS_SETTINGS_RANK) &&
        command->rank_of_settings >= 0)
        command->options.node_rank = -1;
    if (command->standalone && !(by_environment & KO_SAYS_STANDALONE))
        forget_machines(command, by_environment);
    else if (command->options.nnodes > 1 && !(by_environment & KO_SAYS_NNODES) &&
             by_environment & KO_SAYS_STANDALONE)
        command->standalone = false;
}

/* ---- what follows ------------------------------------------------------------------------- */

/* Port 0 is any free one, as if none were given. */
static void take_endpoint(struct argp_state *state, struct ko_command *command)
{
    const bool has_other_port = command->by_environment & KO_SAYS_ADDRESS &&
                                !(command->by_environment & KO_SAYS_PORT) &&
                                command->options.master_port > 0;
    int port = command->options.master_port;
    char text[KO_HOST_TEXT + 16];
    size_t length;

    snprintf(text, sizeof text, "%s", command->endpoint);
    length = strlen(text);
    if (length > 2 && !strcmp(text + length - 2, ":0"))
        text[length - 2] = 0;
    if (ko_address_parse("--rdzv-endpoint", text, true, command->endpoint_host, &port))
        argp_error(state, "%s", kolo_last_error());
    if (!has_other_port)
        command->options.master_port = port;
    command->options.master_addr = command->endpoint_host;
}

/* Where several machines meet, or rank 0 of a job on one. */
static void complete_address(struct argp_state *state, struct ko_command *command)
{
    struct ko_launch_options *options = &command->options;

    if (command->endpoint && options->master_addr)
        argp_error(state, "--rdzv-endpoint and --master-addr say the same; give one");
    if (command->endpoint)
        take_endpoint(state, command);
    if (options->nnodes > 1 && options->master_port == 0)
        options->master_port = command->numbers_machines ? DEFAULT_MEETING_PORT : DEFAULT_PORT;
    if (options->nnodes == 1 && !options->master_addr)
        options->master_addr = "127.0.0.1";
}

static void complete_nprocs(struct argp_state *state, struct ko_command *command)
{
    const int n = command->nprocs, again = command->nprocs_again;

    if (n && again && n != again)
        argp_error(state, "-n %d and -N %d both say how many ranks this machine has; give one", n,
                   again);
    if (!n && !again && command->hostfile && !command->nprocs_of_hosts)
        argp_error(state, "--hostfile %s: it has a host without slots=N; say how many ranks by -n",
                   command->hostfile);
    command->options.nprocs = again                      ? again
                              : n                        ? n
                              : command->nprocs_of_hosts ? command->nprocs_of_hosts
                                                         : 1;
}

void ko_command_complete(struct argp_state *state, struct ko_command *command)
{
    struct ko_launch_options *options = &command->options;
    struct timespec now;

    prefer_command_line(command);
    complete_address(state, command);
    complete_nprocs(state, command);
    if (options->node_rank < 0)
        options->node_rank = command->rank_of_settings;
    if (options->nprocs > KO_MOST_RANKS / options->nnodes)
        argp_error(state, "-n %d with --nnodes %d: a world has up to %d ranks", options->nprocs,
                   options->nnodes, KO_MOST_RANKS);
    if (options->nnodes > 1 && command->standalone)
        argp_error(state, "--standalone and --nnodes %d contradict each other", options->nnodes);
    if (options->nnodes > 1 && !options->master_addr)
        argp_error(state, "--nnodes %d needs --master-addr, or --rdzv-endpoint", options->nnodes);
    if (options->nnodes > 1 && options->node_rank < 0 && !command->numbers_machines)
        argp_error(state, "--nnodes %d needs --node-rank, or --rdzv-backend c10d", options->nnodes);
    if (options->node_rank >= options->nnodes)
        argp_error(state, "--node-rank %d is not below --nnodes %d", options->node_rank,
                   options->nnodes);
    options->meets =
        options->nnodes > 1 && (command->numbers_machines || options->max_restarts > 0);
    if (!options->meets && options->node_rank < 0)
        options->node_rank = 0;
    options->tag = command->tag < 0 ? options->nprocs > 1 : command->tag;
    if (!options->run_id) {
        clock_gettime(CLOCK_REALTIME, &now);
        snprintf(command->run_id, sizeof command->run_id, "%llx-%x", (unsigned long long)now.tv_sec,
                 (unsigned)getpid());
        options->run_id = options->nnodes > 1 ? "none" : command->run_id;
    }
    ko_exports_check(state, options);
}
