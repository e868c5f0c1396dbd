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
    {"log-line-prefix-template", 0, "TEXT", "every line begins with \"[rank] \" (--tag-output)"},
    {"logs-specs", 0, "NAME", LOGS},
    {"module", 'm', NULL,
     "kolorun starts programs; for a module of Python's say python3 -m MODULE"},
    {"monitor-interval", 0, "SECONDS", NULL},
    {"no-python", 0, NULL, NULL},
    {"run-path", 0, NULL, "kolorun starts programs; for a script of Python's say python3 SCRIPT"},
    {"signals-to-handle", 0, "LIST", NULL},
    {"start-method", 0, "NAME", NULL},
    {"use-env", 0, NULL, NULL},
    {"virtual-local-rank", 0, NULL,
     "start the program by sh -c 'CUDA_VISIBLE_DEVICES=$LOCAL_RANK exec PROGRAM'"},
    /* mpirun of Open MPI, mpiexec of MPICH */
    {"allow-run-as-root", 0, NULL, NULL},
    {"am", 0, "FILE", VARIABLES},
    {"bycore", 0, NULL, NULL},
    {"bynode", 0, NULL, NULL},
    {"byslot", 0, NULL, NULL},
    {"configfile", 0, "FILE", "all ranks run one program, which the command line has"},
    {"cpus-per-proc", 0, "N", "--bind-to core, numa or socket says what each rank may use"},
    {"cpus-per-rank", 0, "N", "--bind-to core, numa or socket says what each rank may use"},
    {"display", 0, "WHAT", "--dry-run prints what would be started, --report-bindings where"},
    {"display-allocation", 0, NULL, "--dry-run prints what would be started"},
    {"display-map", 0, NULL, "--dry-run prints what would be started, --report-bindings where"},
    {"envall", 0, NULL, NULL},
    {"envlist", 0, "NAMES", NULL},
    {"envnone", 0, NULL, INHERIT},
    {"genvall", 0, NULL, NULL},
    {"genvlist", 0, "NAMES", NULL},
    {"genvnone", 0, NULL, INHERIT},
    {"iface", 0, "NAME", "-x KOLO_IFADDR=NAME says on which interface ranks listen"},
    {"launcher", 0, "NAME", ONE_MACHINE},
    {"mca", 0, NULL, VARIABLES},
    {"merge-stderr-to-stdout", 0, NULL, "write 2>&1 behind the command line"},
    {"nooversubscribe", 0, NULL, NULL},
    {"output", 0, "HOW", "--tag-output marks lines; " LOGS},
    {"output-filename", 0, "FILE", LOGS},
    {"oversubscribe", 0, NULL, NULL},
    {"pmixmca", 0, NULL, VARIABLES},
    {"prefix", 0, "DIR", NULL},
    {"preload-binary", 0, NULL, NULL},
    {"prtemca", 0, NULL, VARIABLES},
    {"rank-by", 0, "WHAT", NULL},
    {"timestamp-output", 0, NULL, "pipe the output through ts (moreutils)"},
    {"tune", 0, "FILE", VARIABLES},
    {"use-hwthread-cpus", 0, NULL, NULL},
    {"verbose", 'v', NULL, NULL},
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
