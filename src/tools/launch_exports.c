/* SPDX-License-Identifier: MIT
 *
 * Variables by -x that kolorun itself sets for ranks, so that they would be lost: one that says the
 * same is let pass, as mpirun's users write -x MASTER_ADDR.
 */
#include "launch_values.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    const char *option; /* that says it; NULL: none does */
    const char *instead;
} own[] = {
    {"RANK", NULL, ", for each rank"},
    {"LOCAL_RANK", NULL, ", for each rank"},
    {"ROLE_RANK", NULL, ", for each rank"},
    {"WORLD_SIZE", NULL, ", by -n and --nnodes"},
    {"LOCAL_WORLD_SIZE", NULL, ", by -n and --nnodes"},
    {"ROLE_WORLD_SIZE", NULL, ", by -n and --nnodes"},
    {"GROUP_RANK", "--node-rank", NULL},
    {"GROUP_WORLD_SIZE", "--nnodes", NULL},
    {"ROLE_NAME", "--role", NULL},
    {"MASTER_ADDR", "--master-addr", ", as the machines agree on it"},
    {"MASTER_PORT", "--master-port", ", as the machines agree on it"},
    {"TORCHELASTIC_RUN_ID", "--run-id", NULL},
    {"TORCHELASTIC_MAX_RESTARTS", "--max-restarts", NULL},
    {"TORCHELASTIC_RESTART_COUNT", NULL, ", counting the attempts"},
    {"KOLORUN_ATTEMPT", NULL, ", counting the attempts"},
    {"TORCHELASTIC_ERROR_FILE", NULL, "; --log-dir DIR keeps what ranks leave there"},
    {"TORCHELASTIC_USE_AGENT_STORE", NULL, ": rank 0 serves the store"},
    {"KOLORUN_JOINS", NULL, ", to hear of it when a rank waits for others"},
};
enum { NOWN = sizeof own / sizeof *own };

/* What all ranks of this machine are going to find there. False: that differs, or is not known. */
static bool foresee(const struct ko_launch_options *options, const char *name, const char *value)
{
    const int world = options->nprocs * options->nnodes;
    const struct {
        const char *name, *text; /* NULL: the number */
        int number;
    } known[] = {
        {"WORLD_SIZE", NULL, world},
        {"LOCAL_WORLD_SIZE", NULL, options->nprocs},
        {"ROLE_WORLD_SIZE", NULL, world},
        {"GROUP_RANK", NULL, options->node_rank},
        {"GROUP_WORLD_SIZE", NULL, options->nnodes},
        {"ROLE_NAME", options->role ? options->role : "default", 0},
        {"MASTER_ADDR", options->meets ? "" : options->master_addr, 0},
        {"MASTER_PORT", options->meets ? "" : NULL, options->master_port},
        {"TORCHELASTIC_RUN_ID", options->run_id, 0},
        {"TORCHELASTIC_MAX_RESTARTS", NULL, options->max_restarts},
    };
    char number[16];

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        snprintf(number, sizeof number, "%d", known[i].number);
        if (!strcmp(known[i].name, name))
            return !strcmp(value, known[i].text ? known[i].text : number);
    }
    return false;
}

static void check(struct argp_state *state, const struct ko_launch_options *options,
                  const char *name, const char *value, int row)
{
    const bool is_agreed = options->meets && own[row].option && own[row].instead;

    if (foresee(options, name, value))
        return;
    if (own[row].option && !is_agreed)
        argp_error(state, "-x %s=%s: kolorun sets %s itself; say %s %s", name, value, name,
                   own[row].option, value);
    argp_error(state, "-x %s=%s: kolorun sets %s itself%s", name, value, name, own[row].instead);
}

void ko_exports_check(struct argp_state *state, const struct ko_launch_options *options)
{
    for (int i = 0; i < options->nexports; i++)
        for (int row = 0; row < NOWN; row++) {
            const size_t length = strlen(own[row].name);

            if (!strncmp(options->exports[i], own[row].name, length) &&
                options->exports[i][length] == '=')
                check(state, options, own[row].name, options->exports[i] + length + 1, row);
        }
}
