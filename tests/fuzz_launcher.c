/* SPDX-License-Identifier: MIT
 *
 * The environment that a launcher, or anybody else, may set: lines of NAME=VALUE. A byte from 128
 * on at the head of a line stands for a name and the "=", so that few inputs are in vain. Build it
 * with -fsanitize=fuzzer, or call it as tests/test_launcher_fuzz.c does.
 */
#include "kolo.h"
#include "launcher.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

enum { LONGEST_INPUT = 4096, LONGEST_NAME = 32, MOST_VARIABLES = 32 };

static const char *const known_names[] = {"KOLO_RANK",
                                          "KOLO_SIZE",
                                          "KOLO_MASTER",
                                          "RANK",
                                          "WORLD_SIZE",
                                          "LOCAL_RANK",
                                          "LOCAL_WORLD_SIZE",
                                          "GROUP_RANK",
                                          "GROUP_WORLD_SIZE",
                                          "MASTER_ADDR",
                                          "MASTER_PORT",
                                          "TORCHELASTIC_RUN_ID",
                                          "TORCHELASTIC_RESTART_COUNT",
                                          "TORCHELASTIC_USE_AGENT_STORE",
                                          "OMPI_COMM_WORLD_RANK",
                                          "OMPI_COMM_WORLD_SIZE",
                                          "OMPI_COMM_WORLD_LOCAL_RANK",
                                          "OMPI_COMM_WORLD_LOCAL_SIZE",
                                          "OMPI_MCA_orte_num_nodes",
                                          "PMIX_NAMESPACE",
                                          "PMIX_RANK",
                                          "PMI_RANK",
                                          "PMI_SIZE",
                                          "PMI_FD",
                                          "MPI_LOCALRANKID",
                                          "MPI_LOCALNRANKS",
                                          "SLURM_JOB_ID",
                                          "SLURM_STEP_ID",
                                          "SLURM_PROCID",
                                          "SLURM_NTASKS",
                                          "SLURM_STEP_NUM_TASKS",
                                          "SLURM_STEP_NUM_NODES",
                                          "SLURM_NODEID",
                                          "SLURM_LOCALID",
                                          "SLURM_STEP_TASKS_PER_NODE",
                                          "SLURM_STEP_NODELIST",
                                          "SLURM_RESTART_COUNT",
                                          "KOLO_PORT_RANGE",
                                          "KOLORUN_ATTEMPT"};
enum { KNOWN_NAMES = sizeof known_names / sizeof *known_names, FIRST_CODE = 128 };

struct environment {
    char *variables[MOST_VARIABLES + 1];
    char text[LONGEST_INPUT + MOST_VARIABLES * (LONGEST_NAME + 1)];
};

/* Splits text, of nbytes, into variables. */
static void make_environment(const uint8_t *text, size_t nbytes, struct environment *environment)
{
    char *to = environment->text;
    size_t length;
    int n = 0;

    for (; nbytes > 0 && n < MOST_VARIABLES; n++) {
        environment->variables[n] = to;
        if (*text >= FIRST_CODE && *text < FIRST_CODE + KNOWN_NAMES) {
            to = stpcpy(stpcpy(to, known_names[*text - FIRST_CODE]), "=");
            text++;
            nbytes--;
        }
        length = nbytes > 0 ? strcspn((const char *)text, "\n") : 0;
        memcpy(to, text, length);
        to += length;
        *to++ = 0;
        length += length < nbytes;
        text += length;
        nbytes -= length;
    }
    environment->variables[n] = NULL;
}

/* What is taken is in order, and can be told. */
static void check_placement(char *const *variables, const struct ko_placement *placement)
{
    char described[KO_PLACEMENT_TEXT];

    if (placement->rank < 0 || placement->rank >= placement->size || placement->port < 0 ||
        placement->port > 65535 || (placement->meeting == KO_MEET_ALONE && placement->size != 1))
        abort();
    if (placement->local_size >= 0 && placement->local_rank >= placement->local_size)
        abort();
    if (placement->local_rank > placement->rank)
        abort();
    if (placement->meeting == KO_MEET_AGENT &&
        !ko_placement_is_agents(variables, placement->host, placement->port))
        abort();
    ko_placement_describe(placement, described, sizeof described);
    if (strlen(described) >= sizeof described || !placement->launcher)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    struct environment environment;
    struct ko_placement placement;
    char text[LONGEST_INPUT];
    int attempt;

    if (nbytes >= sizeof text)
        return 0;
    memcpy(text, data, nbytes);
    text[nbytes] = 0;
    make_environment((const uint8_t *)text, strlen(text), &environment);
    if (!ko_placement_read(environment.variables, &placement))
        check_placement(environment.variables, &placement);
    if (!ko_placement_attempt(environment.variables, &attempt) && attempt < 0)
        abort();
    return 0;
}
