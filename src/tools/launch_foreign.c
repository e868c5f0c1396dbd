/* SPDX-License-Identifier: MIT
 *
 * One table; the rest reads it.
 */
#include "launch_foreign.h"

#include "launch.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of kolorun's own options the groups up to OWN_GROUPS are not for the sake of others. */
enum { FIRST_KEY = 1024, OWN_MOST = 96, OWN_GROUPS = 2, GROUP = 3 };

#define ONE_MACHINE                                                                          \
    "kolorun starts ranks on its own machine; run it on each machine, with --nnodes, or by " \
    "srun"
#define VARIABLES "kolo takes variables, which kolo-info lists: -x NAME=VALUE"
#define INHERIT "ranks inherit kolorun's environment: env -i NAME=VALUE kolorun ..."
#define LOGS "--log-dir DIR with -r 3 (files alone) or -t 3 (files too) keeps what ranks write"
#define DEBUGS "-x KOLO_DEBUG=INFO makes ranks tell what they decide"
#define ENDS_ALL "a job ends when one of its ranks fails; --max-restarts R starts all of them again"
#define NO_DAEMONS \
    "kolorun leaves nothing running that others could connect to; each job is one of its own"
#define BIND "-n says how many ranks there are, --bind-to core, numa or socket what each may use"
#define DRY "--dry-run prints what would be started"
#define ONE_PROGRAM "all ranks run one program, which the command line has"
#define BY_GDB "start the program in one: kolorun -n 2 xterm -e gdb --args PROGRAM"
#define FOR_GPU "start the program by sh -c 'CUDA_VISIBLE_DEVICES=$LOCAL_RANK exec PROGRAM'"
#define TAGS "every line begins with \"[rank] \" (--tag-output)"

static const struct {
    const char *name; /* NULL: there is the letter alone */
    int letter;       /* 0: there is the name alone */
    const char *argument;
    const char *refusal; /* NULL: it changes nothing here */
} options[] = {
    /* torchrun */
    {"duplicate-stdout-filters", 0, "WORDS", "pipe the output through grep; -t 1 keeps all of it"},
    {"duplicate-stderr-filters", 0, "WORDS", "pipe the output through grep; -t 2 keeps all of it"},
    {"event-log-handler", 0, "NAME", NULL},
    {"log-line-prefix-template", 0, "TEXT", TAGS},
    {"logs-specs", 0, "NAME", LOGS},
    {"module", 'm', NULL,
     "kolorun starts programs; for a module of Python's say python3 -m MODULE"},
    {"monitor-interval", 0, "SECONDS", NULL},
    {"no-python", 0, NULL, NULL},
    {"run-path", 0, NULL, "kolorun starts programs; for a script of Python's say python3 SCRIPT"},
    {"signals-to-handle", 0, "LIST", NULL},
    {"start-method", 0, "NAME", NULL},
    {"use-env", 0, NULL, NULL},
    {"virtual-local-rank", 0, NULL, FOR_GPU},
    /* mpirun of Open MPI, mpiexec of MPICH */
    {"allow-run-as-root", 0, NULL, NULL},
    {"am", 0, "FILE", VARIABLES},
    {"app", 0, "FILE", ONE_PROGRAM},
    {"bind-to-core", 0, NULL, "say --bind-to core"},
    {"bind-to-socket", 0, NULL, "say --bind-to socket"},
    {"bycore", 0, NULL, NULL},
    {"bynode", 0, NULL, NULL},
    {"byslot", 0, NULL, NULL},
    {"cartofile", 0, "FILE", BIND},
    {"cf", 0, "FILE", BIND},
    {"configfile", 0, "FILE", ONE_PROGRAM},
    {"continuous", 0, NULL, ENDS_ALL},
    {"cpu-list", 0, "LIST",
     "say taskset -c LIST kolorun ...; --bind-to gives each rank a part of these"},
    {"cpu-set", 0, "LIST",
     "say taskset -c LIST kolorun ...; --bind-to gives each rank a part of these"},
    {"cpus-per-proc", 0, "N", "--bind-to core, numa or socket says what each rank may use"},
    {"cpus-per-rank", 0, "N", "--bind-to core, numa or socket says what each rank may use"},
    {"debug", 0, NULL, BY_GDB},
    {"debug-daemons", 0, NULL, DEBUGS},
    {"debug-daemons-file", 0, NULL, DEBUGS},
    {"debug-devel", 'd', NULL, DEBUGS},
    {"debugger", 0, "WORDS", BY_GDB},
    {"default-hostfile", 0, "FILE", "say --hostfile FILE"},
    {"demux", 0, "NAME", NULL},
    {"disable-auto-cleanup", 0, NULL, ENDS_ALL},
    {"disable-hostname-propagation", 0, NULL, NULL},
    {"disable-recovery", 0, NULL, NULL},
    {"disable-x", 0, NULL, NULL},
    {"display", 0, "WHAT", "--dry-run prints what would be started, --report-bindings where"},
    {"display-allocation", 0, NULL, "--dry-run prints what would be started"},
    {"display-devel-allocation", 0, NULL, DRY},
    {"display-devel-map", 0, NULL, DRY ", --report-bindings where"},
    {"display-diffable-map", 0, NULL, DRY ", --report-bindings where"},
    {"display-map", 0, NULL, "--dry-run prints what would be started, --report-bindings where"},
    {"display-topo", 0, NULL,
     "lstopo (hwloc) shows it; --report-bindings says what each rank may use"},
    {"do-not-launch", 0, NULL, DRY},
    {"do-not-resolve", 0, NULL, NULL},
    {"dvm", 0, NULL, NO_DAEMONS},
    {"enable-instant-on-support", 0, NULL, NULL},
    {"enable-recovery", 0, NULL, ENDS_ALL},
    {"enable-x", 0, NULL, NULL},
    {"envall", 0, NULL, NULL},
    {"envlist", 0, "NAMES", NULL},
    {"envnone", 0, NULL, INHERIT},
    {"errfile-pattern", 0, "PATTERN", LOGS},
    {"fwd-mpirun-port", 0, NULL, NULL},
    {"genvall", 0, NULL, NULL},
    {"genvlist", 0, "NAMES", NULL},
    {"genvnone", 0, NULL, INHERIT},
    {"get-stack-traces", 0, NULL,
     "gdb -p PID -batch -ex 'thread apply all bt' prints those of a rank"},
    {"gmca", 0, NULL, VARIABLES},
    {"gpus-per-proc", 0, "N", FOR_GPU},
    {"hnp", 0, "URI", NO_DAEMONS},
    {"iface", 0, "NAME", "-x KOLO_IFADDR=NAME says on which interface ranks listen"},
    {"index-argv-by-rank", 0, NULL, "start the program by sh -c 'exec PROGRAM $RANK'"},
    {"info", 0, NULL, "kolo-info says how kolo was built, --version which it is"},
    {"launch-agent", 0, "COMMAND", ONE_MACHINE},
    {"launcher", 0, "NAME", ONE_MACHINE},
    {"launcher-exec", 0, "FILE", ONE_MACHINE},
    {"leave-session-attached", 0, NULL, NULL},
    {"localhost", 0, "HOST", "--local-addr HOST says at which address others reach this machine"},
    {"max-vm-size", 0, "N", ONE_MACHINE},
    {"mca", 0, NULL, VARIABLES},
    {"membind", 0, "POLICY",
     "start the program by numactl(8), which says on which nodes memory is"},
    {"merge-stderr-to-stdout", 0, NULL, "write 2>&1 behind the command line"},
    {"nameserver", 0, "HOST",
     "there is none; ranks find each other by --master-addr or --rdzv-endpoint"},
    {"nolocal", 0, NULL, ONE_MACHINE},
    {"nooversubscribe", 0, NULL, NULL},
    {"noprefix", 0, NULL, NULL},
    {"novm", 0, NULL, NULL},
    {"npersocket", 0, "N",
     "-n says how many ranks there are, N for each socket; and --bind-to socket"},
    {"ompi-server", 0, "URI", NO_DAEMONS},
    {"order-nodes", 0, "HOW", NULL},
    {"outfile-pattern", 0, "PATTERN", LOGS},
    {"output", 0, "HOW", "--tag-output marks lines; " LOGS},
    {"output-filename", 0, "FILE", LOGS},
    {"output-proctable", 0, NULL, "pgrep -P PID lists the ranks of the kolorun that is PID"},
    {"oversubscribe", 0, NULL, NULL},
    {"path", 0, "DIRS", "-x PATH=DIRS says where the program is looked for"},
    {"personality", 0, "NAME", NULL},
    {"pmi-port", 0, NULL, NULL},
    {"pmixmca", 0, NULL, VARIABLES},
    {"ppr", 0, "LIST", BIND},
    {"prefix", 0, "DIR", NULL},
    {"preload-binary", 's', NULL, NULL},
    {"preload-files", 0, "FILES", "copy them to each machine first: kolorun sends none"},
    {"prepend-pattern", 0, "PATTERN", TAGS},
    {"print-all-exitcodes", 0, NULL, NULL},
    {"profile", 0, NULL, "perf stat or strace -c before kolorun says what it does"},
    {"prtemca", 0, NULL, VARIABLES},
    {"rank-by", 0, "WHAT", NULL},
    {"rankfile", 0, "FILE", BIND},
    {"report-child-jobs-separately", 0, NULL, NULL},
    {"report-events", 0, "URI", NO_DAEMONS},
    {"report-pid", 0, "FILE", "say sh -c 'echo $$ >FILE; exec kolorun ...'"},
    {"report-state-on-timeout", 0, NULL, NULL},
    {"report-uri", 0, "FILE", NO_DAEMONS},
    {"rf", 0, "FILE", BIND},
    {"rmk", 0, "NAME", ONE_MACHINE},
    {"set-cwd-to-session-dir", 0, NULL, "--wdir DIR says where ranks begin"},
    {"show-progress", 0, NULL, NULL},
    {"skip-launch-node", 0, NULL, ONE_MACHINE},
    {"timestamp-output", 0, NULL, "pipe the output through ts (moreutils)"},
    {"topolib", 0, "NAME", NULL},
    {"tune", 0, "FILE", VARIABLES},
    {"tv", 0, NULL, BY_GDB},
    {"use-hwthread-cpus", 0, NULL, NULL},
    {"use-regexp", 0, NULL, NULL},
    {"usize", 0, "N", NULL},
    {"verbose", 'v', NULL, NULL},
    {"xml", 0, NULL, "there is no XML; --tag-output marks lines; " LOGS},
    {"xml-file", 0, "FILE", "there is no XML; " LOGS},
    {"xterm", 0, "RANKS", "start the program in one: kolorun -n 2 xterm -e PROGRAM"},
};
enum { NOPTIONS = sizeof options / sizeof *options };

const struct argp_option *ko_foreign_options(const struct argp_option *own)
{
    static struct argp_option all[OWN_MOST + 2 * NOPTIONS + 1];
    struct argp_option *next = all;

    for (; own->name || own->key || own->doc; own++) {
        assert(next < all + OWN_MOST);
        *next++ = *own;
    }
    for (int i = 0; i < NOPTIONS; i++) {
        const struct argp_option option = {options[i].name, FIRST_KEY + i, options[i].argument,
                                           OPTION_HIDDEN,   NULL,          GROUP};

        *next++ = option;
        if (options[i].letter)
            *next++ = (struct argp_option){.key = options[i].letter,
                                           .arg = options[i].argument,
                                           .flags = OPTION_HIDDEN,
                                           .group = GROUP};
    }
    return all;
}

error_t ko_foreign_parse(int key, struct argp_state *state)
{
    for (int i = 0; i < NOPTIONS; i++) {
        if (key != FIRST_KEY + i && (!options[i].letter || key != options[i].letter))
            continue;
        if (options[i].refusal)
            argp_error(state, "--%s: %s", options[i].name, options[i].refusal);
        return 0;
    }
    return ARGP_ERR_UNKNOWN;
}

/* ---- spelling ----------------------------------------------------------------------------- */

static bool is_option(const struct argp_option *all, const char *name, size_t length)
{
    for (; all->name || all->key || all->doc; all++)
        if (all->name && !strncmp(all->name, name, length) && !all->name[length])
            return true;
    return false;
}

void ko_foreign_hyphenate(const struct argp_option *all, char *word)
{
    const size_t length = strcspn(word, "=");
    char *name = strndup(word, length);

    for (char *c = name; c && *c; c++)
        if (*c == '_')
            *c = '-';
    if (name && *name == '-' && (name[1] == '-' || is_option(all, name + 1, length - 1)))
        memcpy(word, name, length);
    free(name);
}

/* ---- torchrun's variables ---------------------------------------------------------------- */

/* "PET_MAX_RESTARTS" */
static void name_variable(const char *option, char name[64])
{
    snprintf(name, 64, "PET_%s", option);
    for (char *c = name; *c; c++)
        *c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
}

static void take_variable(int key, bool is_flag, char *value, argp_parser_t parse,
                          struct argp_state *state)
{
    if (is_flag && strcmp(value, "0") && strcmp(value, "1"))
        argp_error(state, "it is \"%s\"; it takes 0 or 1", value);
    if (!is_flag || *value == '1')
        parse(key, value, state);
}

/* NULL: it is not set. Else errors name it from now on. */
static char *find_variable(const char *option, char name[96], struct argp_state *state)
{
    char variable[64], *value;

    name_variable(option, variable);
    value = getenv(variable);
    if (!value || !*value)
        return NULL;
    snprintf(name, 96, "%s: %s", program_invocation_short_name, variable);
    state->name = name;
    return value;
}

static error_t parse_row(int key, char *arg, struct argp_state *state)
{
    (void)arg;
    return ko_foreign_parse(key, state);
}

void ko_foreign_environment(const struct argp_option *own, argp_parser_t parse,
                            struct argp_state *state)
{
    const struct argp_option *real = own; /* of which the option may be an alias */
    char *const program = state->name;
    char name[96], *value;

    for (; own->name || own->key || own->doc; own++) {
        if (!(own->flags & OPTION_ALIAS))
            real = own;
        if (!own->name || own->group > OWN_GROUPS)
            continue;
        value = find_variable(own->name, name, state);
        if (value)
            take_variable(real->key, !real->arg, value, parse, state);
    }
    for (int i = 0; i < NOPTIONS; i++) {
        value = options[i].name ? find_variable(options[i].name, name, state) : NULL;
        if (value)
            take_variable(FIRST_KEY + i, !options[i].argument, value, parse_row, state);
    }
    state->name = program;
}

/* ---- several programs -------------------------------------------------------------------- */

static bool begins_part(const char *word)
{
    static const char *const words[] = {"-n", "-np", "--np", "-N", "-host", "--host", "-H", "-x"};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcmp(word, words[i]))
            return true;
    return false;
}

void ko_foreign_check_program(const struct argp_state *state, int first)
{
    if (first > 0 && !strcmp(state->argv[first - 1], "--"))
        return;
    for (int i = first; i + 1 < state->argc; i++)
        if (!strcmp(state->argv[i], ":") && begins_part(state->argv[i + 1]))
            argp_error(state,
                       ": %s: all ranks run one program; let it choose, as by sh -c 'if [ $RANK = "
                       "0 ]; then exec ./first; else exec ./second; fi'. Of the program's own "
                       "arguments, write -- before it",
                       state->argv[i + 1]);
}
