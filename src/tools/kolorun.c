/* SPDX-License-Identifier: MIT
 *
 * kolorun: starts the ranks of a job on this machine and looks after them. This file reads the
 * command line; launch.h is the rest.
 */
#include "launch.h"
#include "launch_command.h"
#include "launch_foreign.h"
#include "launch_hosts.h"
#include "launch_values.h"

#include "interface.h"
#include "kolo.h"
#include "launcher.h"
#include "meeting.h"
#include "options.h"

#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LOCAL_NAME_MS = 8000 };

enum key {
    KEY_STANDALONE = 256,
    KEY_NNODES,
    KEY_NODE_RANK,
    KEY_MASTER_ADDR,
    KEY_MASTER_PORT,
    KEY_RUN_ID,
    KEY_ENDPOINT,
    KEY_BACKEND,
    KEY_RESTARTS,
    KEY_LOG_DIR,
    KEY_BIND,
    KEY_DRY,
    KEY_TIMEOUT,
    KEY_GRACE,
    KEY_NO_TAG,
    KEY_WDIR,
    KEY_ROLE,
    KEY_REPORT_BINDINGS,
    KEY_MAP_BY,
    KEY_LOST_AFTER,
    KEY_LOCAL_RANKS,
    KEY_ENV,
    KEY_PER_NODE,
    KEY_RDZV_CONF,
    KEY_LOCAL_ADDR,
    KEY_NUMA_BINDING,
    KEY_MAKE_TOKEN,
    KEY_STDIN
};

static const struct argp_option option_list[] = {
    {"nproc-per-node", 'n', "N", 0,
     "Ranks to start on this machine: a number, gpu or cpu for one each, or auto: gpu if there is "
     "any, else cpu. Default 1",
     1},
    {"np", 0, NULL, OPTION_ALIAS | OPTION_HIDDEN, NULL, 1},
    {"n", 0, NULL, OPTION_ALIAS | OPTION_HIDDEN, NULL, 1},
    {NULL, 'c', "N", OPTION_HIDDEN, NULL, 1}, /* mpirun's */
    {NULL, 'x', "NAME[=VALUE]", 0,
     "Set a variable for every rank; without =VALUE it must be set here", 1},
    {"max-restarts", KEY_RESTARTS, "R", 0,
     "Start all ranks again, at most R times, when one fails. Default 0", 1},
    {"bind-to", KEY_BIND, "WHAT", 0,
     "Give each rank a core, hwthread, numa node or socket of its own. Default none", 1},
    {"report-bindings", KEY_REPORT_BINDINGS, NULL, 0, "Say which processors each has got", 1},
    {"wdir", KEY_WDIR, "DIR", 0, "Change to DIR first", 1},
    {"wd", 0, NULL, OPTION_ALIAS | OPTION_HIDDEN, NULL, 1},
    {"role", KEY_ROLE, "NAME", 0, "ROLE_NAME of every rank. Default \"default\"", 1},
    {"timeout", KEY_TIMEOUT, "SECONDS", 0, "Stop the job after this time. Default 0: never", 1},
    {"grace", KEY_GRACE, "SECONDS", 0, "Time from SIGTERM to SIGKILL when stopping. Default 5", 1},
    {"shutdown-timeout", 0, NULL, OPTION_ALIAS, NULL, 1},
    {"tag-output", 'l', NULL, 0, "Put \"[rank] \" before each line. Default for N > 1", 1},
    {"prepend-rank", 0, NULL, OPTION_ALIAS | OPTION_HIDDEN, NULL, 1},
    {"no-tag", KEY_NO_TAG, NULL, 0, "Pass the output through untouched", 1},
    {"log-dir", KEY_LOG_DIR, "DIR", 0,
     "Keep logs and error files of this job below DIR. Default of -r and -t: TMPDIR, or /tmp", 1},
    {"redirects", 'r', "STREAMS", 0,
     "Write streams into log files: 1 stdout, 2 stderr, 3 both, or RANK:STREAMS,... by local rank",
     1},
    {"tee", 't', "STREAMS", 0, "Write them into log files too", 1},
    {"local-ranks-filter", KEY_LOCAL_RANKS, "RANKS", 0,
     "Pass the output of these alone on, a list by local rank like 0,3", 1},
    {"dry-run", KEY_DRY, NULL, 0, "Print what would be started, and start nothing", 1},
    {"quiet", 'q', NULL, 0, "No table of how the ranks ended when one fails", 1},
    {"standalone", KEY_STANDALONE, NULL, 0, "This machine is all there is. Default", 2},
    {"nnodes", KEY_NNODES, "M", 0, "Machines, each running kolorun with N ranks. Default 1", 2},
    {"node-rank", KEY_NODE_RANK, "K", 0, "Which of them this is, from 0", 2},
    {"master-addr", KEY_MASTER_ADDR, "HOST", 0, "Address of machine 0. Default 127.0.0.1", 2},
    {"master-port", KEY_MASTER_PORT, "PORT", 0,
     "Port of the store in rank 0. Default: a free one, with M > 1 29500", 2},
    {"rdzv-endpoint", KEY_ENDPOINT, "HOST[:PORT]", 0,
     "Where the machines meet: on machine 0. As --master-addr and --master-port", 2},
    {"rdzv-backend", KEY_BACKEND, "static|c10d", 0,
     "c10d: machines need no number, the first at the endpoint serves all. Default static", 2},
    {"rdzv-conf", KEY_RDZV_CONF, "NAME=VALUE,...", 0,
     "join_timeout, or timeout: seconds in which the machines meet. Default KOLO_TIMEOUT_MS. rank: "
     "as --node-rank. Others change nothing",
     2},
    {"local-addr", KEY_LOCAL_ADDR, "HOST", 0,
     "Address, or interface, at which others reach this machine, as -x KOLO_IFADDR=HOST", 2},
    {"lost-after", KEY_LOST_AFTER, "SECONDS", 0,
     "Give a machine up whose kolorun has been silent for so long; 0: never. Default 30", 2},
    {"run-id", KEY_RUN_ID, "ID", 0, "TORCHELASTIC_RUN_ID, the same on all machines", 2},
    {"rdzv-id", 0, NULL, OPTION_ALIAS, NULL, 2},
    {"make-token", KEY_MAKE_TOKEN, "FILE", 0,
     "Start nothing, but make a file with a new token, for KOLO_AUTH_TOKEN_FILE on all machines",
     2},

    {"host", 'H', "HOSTS", 0, "Ranks by host, all on this machine, like localhost:4", 3},
    {"hosts", 0, NULL, OPTION_ALIAS, NULL, 3},
    {"hostfile", 'f', "FILE", 0, "The same from a file with lines like localhost slots=4", 3},
    {"machinefile", 0, NULL, OPTION_ALIAS, NULL, 3},
    {"numa-binding", KEY_NUMA_BINDING, "WHAT", 0, "node is --bind-to numa, socket its own name", 3},
    {"stdin", KEY_STDIN, "none|0", 0, "none: no rank reads standard input, as all but rank 0", 3},
    {"map-by", KEY_MAP_BY, "ANY", 0, "Taken, and ignored: ranks go by --bind-to", 3},
    {"npernode", 'N', "N", 0, "The same as -n, which counts the ranks of one machine here", 3},
    {"ppn", 0, NULL, OPTION_ALIAS, NULL, 3},
    {"perhost", 0, NULL, OPTION_ALIAS, NULL, 3},
    {"pernode", KEY_PER_NODE, NULL, 0, "The same as -n 1", 3},
    {"genv", KEY_ENV, "NAME VALUE", 0, "The same as -x NAME=VALUE", 3},
    {"env", 0, NULL, OPTION_ALIAS, NULL, 3},
    KO_OPTION_HELP,
    {0}};

static const char doc[] =
    "Start N copies of a program as the ranks of one job, and end them all when one fails."
    "\vExamples:\n"
    "  kolorun -n 4 ./prog --epochs 3\n"
    "  kolorun -n 4 -x KOLO_DEBUG=INFO --timeout 60 ./prog\n"
    "  kolorun -n 4 --max-restarts 3 --log-dir logs --tee 3 ./prog\n"
    "Two machines, with a token that both have, made in the home of one:\n"
    "  kolorun --make-token token; scp -p token 10.0.0.2:\n"
    "On both export KOLO_AUTH_TOKEN_FILE=$HOME/token, then one line on each:\n"
    "  kolorun -n 8 --nnodes 2 --node-rank 0 --master-addr 10.0.0.1 ./prog\n"
    "  kolorun -n 8 --nnodes 2 --node-rank 1 --master-addr 10.0.0.1 ./prog\n"
    "or the same line on both:\n"
    "  kolorun -n 8 --nnodes 2 --rdzv-backend c10d --rdzv-endpoint 10.0.0.1 ./prog\n\n"
    "-np N is -n N; one dash does for long options too, and PET_NNODES and the like stand for "
    "options as with torchrun. Other options of torchrun's, mpirun's and mpiexec's are taken if "
    "they "
    "would change nothing here, or refused with what to do instead: kolorun(1). The exit code is "
    "that of the rank that "
    "failed first (128 + signal if a signal "
    "ended it), 0 if none did, 124 after --timeout, 125 if kolorun itself failed, 126 or 127 if "
    "the "
    "program cannot be executed or was not found.";

static void print_version(FILE *stream, struct argp_state *state)
{
    (void)state;
    fprintf(stream, "kolorun (kolo) %s\n", kolo_version());
}

/* ---- options ------------------------------------------------------------------------------ */

/* -genv NAME VALUE */
static void add_pair(struct argp_state *state, struct ko_launch_options *options, const char *name)
{
    const char *value = state->next < state->argc ? state->argv[state->next++] : NULL;

    if (!value || !*name || strchr(name, '='))
        argp_error(state, "-genv takes a NAME and a VALUE; -x NAME=VALUE is the same");
    else
        ko_export_set(state, options, name, value);
}

static void take_hosts(struct argp_state *state, struct ko_command *command, const char *list)
{
    if (ko_hosts_list(list, &command->nprocs_of_hosts))
        argp_error(state, "--host: %s", kolo_last_error());
}

static void take_hostfile(struct argp_state *state, struct ko_command *command, const char *path)
{
    int nprocs;

    command->hostfile = path;
    if (ko_hosts_file(path, &nprocs))
        argp_error(state, "--hostfile: %s", kolo_last_error());
    else if (nprocs > 0)
        command->nprocs_of_hosts = nprocs;
}

static error_t parse_foreign(int key, char *arg, struct argp_state *state)
{
    struct ko_command *command = state->input;

    switch (key) {
    case 'H':
        take_hosts(state, command, arg);
        return 0;
    case 'f':
        take_hostfile(state, command, arg);
        return 0;
    case KEY_NUMA_BINDING:
        command->options.binding = ko_value_numa_binding(state, arg);
        return 0;
    case KEY_STDIN:
        command->options.reads_nothing = ko_value_reads_nothing(state, arg);
        return 0;
    case 'N':
        command->nprocs_again = ko_option_whole(state, "-N", arg, 1, KO_LAUNCH_MOST_RANKS);
        return 0;
    case KEY_PER_NODE:
        command->nprocs_again = 1;
        return 0;
    case KEY_ENV:
        add_pair(state, &command->options, arg);
        return 0;
    case KEY_MAP_BY: /* which says how many ranks there are, too */
        if (!strncmp(arg, "ppr:", 4))
            argp_error(state, "--map-by %s: say how many ranks by -n, and where by --bind-to", arg);
        return 0;
    default:
        return ko_foreign_parse(key, state);
    }
}

static void take_setting(struct argp_state *state, struct ko_command *command, const char *name,
                         const char *value)
{
    if (!strcmp(name, "rank")) {
        command->rank_of_settings =
            ko_option_whole(state, "--rdzv-conf rank", value, 0, INT_MAX / KO_LAUNCH_MOST_RANKS);
        ko_command_note(command, KO_SAYS_SETTINGS_RANK);
    } else if (!strcmp(name, "join_timeout") || !strcmp(name, "timeout")) {
        command->options.join_ms = ko_value_seconds(state, "--rdzv-conf", value);
    }
}

/* "join_timeout=60, is_host=1": of all that torchrun's rendezvous may be told, what is of use. */
static void take_settings(struct argp_state *state, struct ko_command *command, const char *list)
{
    char *copy = strdup(list), *next = copy, *pair, *value;

    if (!copy)
        argp_failure(state, KO_EXIT_SELF, ENOMEM, "--rdzv-conf");
    while ((pair = strsep(&next, ","))) {
        pair += strspn(pair, " ");
        value = strchr(pair, '=');
        if (value && value > pair) {
            *value = 0;
            take_setting(state, command, pair, value + 1);
        } else if (*list) {
            argp_error(state, "--rdzv-conf %s: it takes NAME=VALUE,...", list);
        }
    }
    free(copy);
}

/* An address or a name of this machine, or an interface. A name is often that of the loopback here,
 * which is no use to others; a wrong one, as of a template for all machines, is none to anybody. */
static void take_local_address(struct argp_state *state, struct ko_launch_options *options,
                               const char *text)
{
    const ko_deadline soon = ko_deadline_in(LOCAL_NAME_MS);
    char host[KO_HOST_TEXT];

    ko_meeting_reachable(text, &soon, host);
    if (ko_interface_address(text, host, sizeof host) || ko_hosts_is_here(host))
        ko_export_set(state, options, "KOLO_IFADDR", host);
    else
        fprintf(stderr,
                "kolorun: --local-addr %s is no address or interface of this machine, and changes "
                "nothing\n",
                text);
}

/* Whatever the environment said of a rank's place in another way. */
static void set_address(struct ko_command *command, const char **address, const char *text)
{
    if (command->by_environment & KO_SAYS_ADDRESS && !command->reads_environment)
        command->endpoint = command->options.master_addr = NULL;
    ko_command_note(command, KO_SAYS_ADDRESS);
    *address = text;
}

static error_t parse_machines(int key, char *arg, struct argp_state *state)
{
    struct ko_command *command = state->input;

    switch (key) {
    case KEY_STANDALONE:
        command->standalone = true;
        ko_command_note(command, KO_SAYS_STANDALONE);
        return 0;
    case KEY_NNODES:
        command->options.nnodes = ko_value_machines(state, arg);
        ko_command_note(command, KO_SAYS_NNODES);
        return 0;
    case KEY_NODE_RANK:
        command->options.node_rank =
            ko_option_whole(state, "--node-rank", arg, 0, INT_MAX / KO_LAUNCH_MOST_RANKS);
        ko_command_note(command, KO_SAYS_NODE_RANK);
        return 0;
    case KEY_MASTER_ADDR:
        if (ko_host_parse("--master-addr", arg, command->master_host))
            argp_error(state, "%s", kolo_last_error());
        set_address(command, &command->options.master_addr, command->master_host);
        return 0;
    case KEY_MASTER_PORT:
        command->options.master_port = ko_option_whole(state, "--master-port", arg, 0, 65535);
        ko_command_note(command, KO_SAYS_PORT);
        return 0;
    case KEY_RDZV_CONF:
        take_settings(state, command, arg);
        return 0;
    case KEY_LOCAL_ADDR:
        take_local_address(state, &command->options, arg);
        return 0;
    case KEY_LOST_AFTER:
        command->options.lost_after_ms = ko_value_silence(state, arg);
        return 0;
    case KEY_RUN_ID:
        command->options.run_id = arg;
        return 0;
    case KEY_ENDPOINT:
        set_address(command, &command->endpoint, arg);
        return 0;
    case KEY_MAKE_TOKEN:
        command->token_file = arg;
        return 0;
    case KEY_BACKEND:
        if (strcmp(arg, "static") && strcmp(arg, "c10d"))
            argp_error(state, "--rdzv-backend is \"%s\"; it takes static or c10d", arg);
        command->numbers_machines = !strcmp(arg, "c10d");
        return 0;
    default:
        return parse_foreign(key, arg, state);
    }
}

static error_t parse_output(int key, char *arg, struct argp_state *state)
{
    struct ko_command *command = state->input;

    switch (key) {
    case 'q':
        command->options.quiet = true;
        return 0;
    case 'r':
        command->options.redirects = ko_value_streams(state, "-r", arg);
        return 0;
    case 't':
        command->options.tees = ko_value_streams(state, "-t", arg);
        return 0;
    case KEY_LOG_DIR:
        command->options.log_dir = arg;
        return 0;
    case 'l':
    case KEY_NO_TAG:
        command->tag = key == 'l';
        return 0;
    case KEY_LOCAL_RANKS:
        if (ko_logs_lists(arg, 0) < 0)
            argp_error(state, "--local-ranks-filter is \"%s\"; it takes a list like 0,3", arg);
        command->options.shown_ranks = arg;
        return 0;
    case KEY_DRY:
        command->options.dry = true;
        return 0;
    case KEY_REPORT_BINDINGS:
        command->options.reports_bindings = true;
        return 0;
    default:
        return parse_machines(key, arg, state);
    }
}

static error_t parse_start(int key, char *arg, struct argp_state *state)
{
    struct ko_command *command = state->input;

    switch (key) {
    case 'c':
    case 'n':
        command->nprocs = ko_value_nprocs(state, arg);
        ko_command_note(command, KO_SAYS_NPROCS);
        return 0;
    case 'x':
        ko_export_add(state, &command->options, arg);
        return 0;
    case KEY_RESTARTS:
        command->options.max_restarts = ko_option_whole(state, "--max-restarts", arg, 0, 1000000);
        return 0;
    case KEY_BIND:
        command->options.binding = ko_value_binding(state, arg);
        return 0;
    case KEY_WDIR:
        if (chdir(arg))
            argp_error(state, "--wdir %s: %s", arg, strerror(errno));
        command->options.wdir = arg;
        return 0;
    case KEY_ROLE:
        command->options.role = arg;
        return 0;
    case KEY_TIMEOUT:
        command->options.timeout_ms = ko_value_seconds(state, "--timeout", arg);
        return 0;
    case KEY_GRACE:
        command->options.grace_ms = ko_value_seconds(state, "--grace", arg);
        return 0;
    default:
        return parse_output(key, arg, state);
    }
}

/* After an option comes another, or the program: never a value. */
static void hyphenate_next(const struct argp_state *state)
{
    const int next = state->next > 0 ? state->next : 1;

    if (next < state->argc)
        ko_foreign_hyphenate(((struct ko_command *)state->input)->all, state->argv[next]);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct ko_command *command = state->input;
    error_t err = 0;

    switch (key) {
    case ARGP_KEY_INIT:
        command->reads_environment = true;
        ko_foreign_environment(option_list, parse_start, state);
        command->reads_environment = false;
        hyphenate_next(state);
        return 0;
    case ARGP_KEY_ARGS: /* the program; what follows it is its own */
        if (command->token_file)
            argp_error(state, "--make-token makes a file and starts nothing; give no program");
        ko_foreign_check_program(state, state->next);
        command->options.program = state->argv + state->next;
        return 0;
    case ARGP_KEY_NO_ARGS:
        if (!command->token_file)
            argp_error(state, "which program?");
        return 0;
    case 'h':
        ko_option_help(state);
        return 0;
    case ARGP_KEY_END:
        ko_command_complete(state, command);
        return 0;
    default:
        err = parse_start(key, arg, state);
        if (!err)
            hyphenate_next(state);
        return err;
    }
}

/* Descriptors 0 to 2 must exist, or a pipe of ours could be taken for one of them. */
static bool open_standard_descriptors(void)
{
    int fd;

    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

int main(int argc, char **argv)
{
    const struct argp argp = {.options = ko_foreign_options(option_list),
                              .parser = parse,
                              .args_doc = "PROGRAM [ARGUMENT...]",
                              .doc = doc};
    struct ko_command command = {.all = argp.options,
                                 .options = {.nnodes = 1,
                                             .node_rank = -1,
                                             .grace_ms = 5000,
                                             .lost_after_ms = 30000,
                                             .join_ms = -1},
                                 .tag = -1,
                                 .rank_of_settings = -1};
    int code;

    argp_program_version_hook = print_version;
    argp_err_exit_status = KO_EXIT_SELF;
    if (!open_standard_descriptors() ||
        argp_parse(&argp, argc, argv, ARGP_IN_ORDER | ARGP_LONG_ONLY, NULL, &command))
        return KO_EXIT_SELF;
    code = command.token_file ? ko_token_make(command.token_file) : ko_launch(&command.options);
    ko_exports_free(&command.options);
    return code;
}
