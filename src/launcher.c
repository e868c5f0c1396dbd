/* SPDX-License-Identifier: MIT
 *
 * The table says which variable holds what; the code below it is the same for all launchers, but
 * for where ranks meet. What the row that counts leaves open is taken from the rows below it that
 * give the same rank and size: srun --mpi=pmi2 sets PMI's variables and Slurm's. But not what all
 * ranks of a job must understand alike: a row below may give some of them their rank and size, and
 * others not, as those that a shell of srun's has started.
 */
#include "launcher.h"

#include "config.h"
#include "hostlist.h"
#include "launcher_around.h"
#include "status.h"

#include <arpa/inet.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Slurm numbers a job's batch script and the like from here on: nobody has launched ranks there. */
static const long long slurm_special_step = 4294967280;

struct row {
    const char *launcher;
    const char *mark; /* without it the row does not count; NULL: rank and size stand for it */
    const char *rank, *size, *other_size;
    const char *local_rank, *local_size, *node, *nnodes;
    const char *job, *step, *restart, *attempt;
    enum ko_meeting meeting; /* if no address is given */
};

static const struct row rows[] = {
    {.launcher = "set by hand", .rank = "KOLO_RANK", .size = "KOLO_SIZE", .meeting = KO_MEET_RANK0},
    {.launcher = "torchrun or kolorun",
     .rank = "RANK",
     .size = "WORLD_SIZE",
     .local_rank = "LOCAL_RANK",
     .local_size = "LOCAL_WORLD_SIZE",
     .node = "GROUP_RANK",
     .nnodes = "GROUP_WORLD_SIZE",
     .job = "TORCHELASTIC_RUN_ID",
     .restart = "TORCHELASTIC_RESTART_COUNT",
     .attempt = "KOLORUN_ATTEMPT",
     .meeting = KO_MEET_RANK0},
    {.launcher = "Open MPI",
     .rank = "OMPI_COMM_WORLD_RANK",
     .size = "OMPI_COMM_WORLD_SIZE",
     .local_rank = "OMPI_COMM_WORLD_LOCAL_RANK",
     .local_size = "OMPI_COMM_WORLD_LOCAL_SIZE",
     .nnodes = "OMPI_MCA_orte_num_nodes",
     .job = "PMIX_NAMESPACE",
     .meeting = KO_MEET_PMIX},
    {.launcher = "PMI: MPICH or srun",
     .rank = "PMI_RANK",
     .size = "PMI_SIZE",
     .local_rank = "MPI_LOCALRANKID",
     .local_size = "MPI_LOCALNRANKS",
     .meeting = KO_MEET_PMI},
    {.launcher = "PMIx: srun",
     .mark = "PMIX_RANK",
     .rank = "PMIX_RANK",
     .size = "SLURM_STEP_NUM_TASKS",
     .other_size = "SLURM_NTASKS",
     .job = "PMIX_NAMESPACE",
     .meeting = KO_MEET_PMIX},
    {.launcher = "srun",
     .mark = "SLURM_STEP_ID",
     .rank = "SLURM_PROCID",
     .size = "SLURM_STEP_NUM_TASKS",
     .other_size = "SLURM_NTASKS",
     .local_rank = "SLURM_LOCALID",
     .local_size = "SLURM_STEP_TASKS_PER_NODE",
     .node = "SLURM_NODEID",
     .nnodes = "SLURM_STEP_NUM_NODES",
     .job = "SLURM_JOB_ID",
     .step = "SLURM_STEP_ID",
     .restart = "SLURM_RESTART_COUNT",
     .attempt = "SLURM_RESTART_COUNT",
     .meeting = KO_MEET_NODE0},
};
enum { NROWS = sizeof rows / sizeof *rows };

/* ---- variables --------------------------------------------------------------------------- */

/* The value of a variable, NULL if it is not set, or empty, or name is NULL. */
static const char *look_up_empty(char *const *environment, const char *name)
{
    size_t length = name ? strlen(name) : 0;

    for (; name && *environment; environment++)
        if (!strncmp(*environment, name, length) && (*environment)[length] == '=')
            return *environment + length + 1;
    return NULL;
}

static const char *look_up(char *const *environment, const char *name)
{
    const char *text = look_up_empty(environment, name);

    return text && *text ? text : NULL;
}

/* A number that need not be there: then *number stays. */
static int read_number(char *const *environment, const char *name, long low, long high, int *number)
{
    const char *text = look_up(environment, name);

    return text ? ko_config_whole(name, text, low, high, number) : KOLO_OK;
}

bool ko_placement_has_uncounted(char *const *environment)
{
    return look_up(environment, "TORCHELASTIC_RESTART_COUNT") &&
           !look_up(environment, "KOLORUN_ATTEMPT");
}

int ko_placement_attempt(char *const *environment, int *attempt)
{
    *attempt = 0;
    return read_number(environment, "KOLORUN_ATTEMPT", 0, INT_MAX, attempt);
}

/* ---- rank and size ----------------------------------------------------------------------- */

static const char *size_name(char *const *environment, const struct row *row)
{
    return look_up(environment, row->size) || !row->other_size ? row->size : row->other_size;
}

static bool is_special_step(char *const *environment, const struct row *row)
{
    const char *step = look_up(environment, row->step);

    return step && strtoll(step, NULL, 10) >= slurm_special_step;
}

/* Whether anything of what marks the row is there. */
static bool is_set(char *const *environment, const struct row *row)
{
    if (row->mark)
        return look_up(environment, row->mark) && !is_special_step(environment, row);
    return look_up(environment, row->rank) || look_up(environment, row->size);
}

/* Of rank and size, which a row needs both: what is not set, NULL if both are. *other is what of
 * the row is set. */
static const char *find_missing(char *const *environment, const struct row *row, const char **other)
{
    const char *size = size_name(environment, row);
    const bool has_size = look_up(environment, size), has_rank = look_up(environment, row->rank);

    *other = has_size ? size : has_rank ? row->rank : row->mark;
    return !has_size ? size : !has_rank ? row->rank : NULL;
}

/* There may be a whole row below, which is what was meant: one variable is easily left over. */
static int fail_half_set(char *const *environment, const struct row *row)
{
    const char *other, *missing = find_missing(environment, row, &other), *unused;
    const struct row *whole = row + 1;

    while (whole < rows + NROWS &&
           (!is_set(environment, whole) || find_missing(environment, whole, &unused)))
        whole++;
    if (whole < rows + NROWS)
        return ko_fail(KOLO_E_INVALID,
                       "%s is not set, but %s is: set both (%s), or neither, and %s will count "
                       "(%s)",
                       missing, other, row->launcher, whole->rank, whole->launcher);
    return ko_fail(KOLO_E_INVALID,
                   "%s is not set, but %s is: set both (%s), or neither for a single rank", missing,
                   other, row->launcher);
}

static int read_rank(char *const *environment, const struct row *row,
                     struct ko_placement *placement)
{
    const char *size = size_name(environment, row), *other;
    int err;

    if (find_missing(environment, row, &other))
        return fail_half_set(environment, row);
    err = ko_config_whole(size, look_up(environment, size), 1, KO_MOST_RANKS, &placement->size);
    if (err)
        return err;
    placement->launcher = row->launcher;
    placement->rank_name = row->rank;
    return ko_config_whole(row->rank, look_up(environment, row->rank), 0, placement->size - 1,
                           &placement->rank);
}

/* ---- the rest of a row ------------------------------------------------------------------- */

/* The number of tasks of this node out of Slurm's list of all nodes'. */
static int read_slurm_local_size(char *const *environment, const struct row *row,
                                 struct ko_placement *placement)
{
    const char *text = look_up(environment, row->local_size);
    int node = 0;
    int err = read_number(environment, row->node, 0, INT_MAX, &node);

    if (err || !text || placement->local_size >= 0)
        return err;
    return ko_hostlist_tasks(row->local_size, text, (size_t)node, &placement->local_size);
}

static int read_job(char *const *environment, const struct row *row, struct ko_placement *placement)
{
    const char *job = look_up(environment, row->job);
    const char *step = look_up(environment, row->step);

    if (!job || placement->job[0])
        return KOLO_OK;
    if (strlen(job) + (step ? strlen(step) + 1 : 0) >= sizeof placement->job)
        return ko_fail(KOLO_E_INVALID, "%s is longer than %zu characters", row->job,
                       sizeof placement->job - 1);
    snprintf(placement->job, sizeof placement->job, "%s%s%s", job, step ? "." : "",
             step ? step : "");
    return KOLO_OK;
}

/* Fills in what is not known yet. */
static int read_details(char *const *environment, const struct row *row,
                        struct ko_placement *placement)
{
    const struct {
        const char *name;
        int low, *number;
    } details[] = {{row->local_rank, 0, &placement->local_rank},
                   {row->step ? NULL : row->local_size, 1, &placement->local_size},
                   {row->node, 0, &placement->node},
                   {row->nnodes, 1, &placement->nnodes}};
    int err = KOLO_OK;

    for (size_t i = 0; !err && i < sizeof details / sizeof *details; i++)
        if (*details[i].number < 0)
            err = read_number(environment, details[i].name, details[i].low, INT_MAX,
                              details[i].number);
    if (!err && row->step)
        err = read_slurm_local_size(environment, row, placement);
    if (!err && placement->restart == 0)
        err = read_number(environment, row->restart, 0, INT_MAX, &placement->restart);
    if (!err)
        err = read_job(environment, row, placement);
    return err;
}

/* Agents number their nodes by the ranks that they start there. Slurm need not, nor does it leave
 * one of the two out. */
static int check_group(char *const *environment, const struct row *row,
                       const struct ko_placement *placement)
{
    if (row->step || placement->node < 0)
        return KOLO_OK;
    if (!look_up(environment, row->nnodes))
        return ko_fail(KOLO_E_INVALID, "%s is not set, but %s is: set both (%s), or neither",
                       row->nnodes, row->node, row->launcher);
    if (placement->node > placement->rank)
        return ko_fail(KOLO_E_INVALID,
                       "%s: node %d cannot be rank %d's: the %d before it have lower ranks (%s)",
                       row->node, placement->node, placement->rank, placement->node, row->launcher);
    return KOLO_OK;
}

/* What the row that counts says, which all ranks are told alike. */
static int read_own_row(char *const *environment, const struct row *row,
                        struct ko_placement *placement)
{
    int err = read_rank(environment, row, placement);

    if (!err)
        err = read_number(environment, row->attempt, 0, INT_MAX, &placement->attempt);
    if (!err)
        err = read_details(environment, row, placement);
    if (!err)
        err = check_group(environment, row, placement);
    placement->is_job_shared = placement->job[0];
    return err;
}

/* That a row which does not count is half set. Not of one that its rank alone marks: that is
 * another launcher's too. */
static void note_half_set(char *const *environment, const struct row *row,
                          struct ko_placement *placement)
{
    const char *other, *missing = find_missing(environment, row, &other);

    if (!is_set(environment, row) || !missing || row->mark == row->rank || placement->note[0])
        return;
    snprintf(placement->note, sizeof placement->note,
             "%s is not set, but %s is (%s): neither counts, since %s is set", missing, other,
             row->launcher, placement->rank_name);
}

/* The row's rank and size, as far as they can be read: a launcher that does not count may be half
 * set. */
static bool peek(char *const *environment, const struct row *row, int *rank, int *size)
{
    const char *other;

    if (!is_set(environment, row) || find_missing(environment, row, &other))
        return false;
    *rank = (int)strtol(look_up(environment, row->rank), NULL, 10);
    *size = (int)strtol(look_up(environment, size_name(environment, row)), NULL, 10);
    return true;
}

/* srun starts shells too; mpirun programs alone, elsewhere by a daemon that is in a step itself. */
static bool may_be_shell(char *const *environment, const struct row *row)
{
    return row->meeting == KO_MEET_RANK0 || row->mark ||
           (row->meeting == KO_MEET_PMI && look_up(environment, "SLURM_STEP_ID"));
}

/* Not the same rank and size. An agent says of which job. */
static int compare(char *const *environment, const struct row *row, const struct row *below,
                   const int other[2], struct ko_placement *placement)
{
    const bool says_local = look_up(environment, row->local_size);
    const struct ko_around around = {.launcher = below->launcher,
                                     .rank_name = below->rank,
                                     .size_name = size_name(environment, below),
                                     .rank = other[0],
                                     .size = other[1],
                                     .starts_programs = !may_be_shell(environment, below),
                                     .own_size_name = row->size,
                                     .own_local_size = says_local ? placement->local_size : 0,
                                     .is_started = row->meeting != KO_MEET_RANK0 ||
                                                   (says_local && look_up(environment, row->job)),
                                     .is_explicit = !row->local_size};

    return ko_placement_compare(&around, placement);
}

/* Rows below the one that counts: they know more of the same job, or tell of another around it. */
static int read_rows_below(char *const *environment, const struct row *row,
                           struct ko_placement *placement)
{
    const struct row *below = row;
    int err = KOLO_OK;

    while (!err && ++below < rows + NROWS) {
        int other[2]; /* rank and size */

        if (!peek(environment, below, other, other + 1))
            note_half_set(environment, below, placement);
        else if (other[0] == placement->rank && other[1] == placement->size)
            err = read_details(environment, below, placement);
        else
            err = compare(environment, row, below, other, placement);
    }
    return err;
}

/* ---- where they meet --------------------------------------------------------------------- */

static int copy_host(const char *name, const char *text, size_t length, char host[KO_HOST_TEXT])
{
    const bool is_bracketed = length >= 2 && text[0] == '[' && text[length - 1] == ']';
    const char *from = text + is_bracketed;

    length -= is_bracketed ? 2 : 0;
    if (length == 0 || length >= KO_HOST_TEXT || *from == '[')
        return ko_fail(KOLO_E_INVALID, "%s is \"%.200s\", without a host that can be", name, text);
    memcpy(host, from, length);
    host[length] = 0;
    return KOLO_OK;
}

int ko_host_parse(const char *name, const char *text, char host[KO_HOST_TEXT])
{
    return copy_host(name, text, strlen(text), host);
}

/* Perhaps with an interface behind it: fe80::1%eth0. */
static bool is_ipv6(const char *text)
{
    const size_t length = strcspn(text, "%");
    struct in6_addr bytes;
    char alone[INET6_ADDRSTRLEN];

    if (length >= sizeof alone)
        return false;
    memcpy(alone, text, length);
    alone[length] = 0;
    return inet_pton(AF_INET6, alone, &bytes) == 1;
}

int ko_address_parse(const char *name, const char *text, bool is_port_optional,
                     char host[KO_HOST_TEXT], int *port)
{
    const char *colon = strrchr(text, ':');
    bool is_bracketed = text[0] == '[';
    bool has_port = colon && (is_bracketed ? colon[-1] == ']' : strchr(text, ':') == colon);
    int err;

    if (!has_port && !is_port_optional)
        return ko_fail(KOLO_E_INVALID, "%s is \"%.200s\"; it takes host:port, or [host]:port", name,
                       text);
    if (!has_port && !is_bracketed && colon && !is_ipv6(text))
        return ko_fail(KOLO_E_INVALID,
                       "%s is \"%.200s\", which is no address of IPv6; one with a port is written "
                       "[address]:port",
                       name, text);
    err = copy_host(name, text, has_port ? (size_t)(colon - text) : strlen(text), host);
    return err || !has_port ? err : ko_config_whole(name, colon + 1, 1, 65535, port);
}

/* Steps that run at the same time on the same nodes get different ports, unless their jobs are
 * thousands apart: below those that systems give out themselves, or of KOLO_PORT_RANGE. */
static int choose_slurm_port(char *const *environment, int *port)
{
    const char *job = look_up(environment, "SLURM_JOB_ID");
    const char *step = look_up(environment, "SLURM_STEP_ID");
    const char *range = look_up(environment, "KOLO_PORT_RANGE");
    uint64_t number = (job ? strtoull(job, NULL, 10) : 0) * 61 + strtoull(step, NULL, 10);
    int low = 16384, high = 32767;
    int err = ko_config_port_range(range ? range : "", &low, &high);

    if (!err)
        *port = low + (int)(number % (uint64_t)(high - low + 1));
    return err;
}

/* The first node of the step, which has rank 0. */
static int meet_at_node0(char *const *environment, struct ko_placement *placement)
{
    const char *list = look_up(environment, "SLURM_STEP_NODELIST");

    if (!list || !placement->job[0])
        return ko_fail(KOLO_E_INVALID, "%s is not set, but SLURM_STEP_ID is (srun)",
                       list ? "SLURM_JOB_ID" : "SLURM_STEP_NODELIST");
    return ko_hostlist_get("SLURM_STEP_NODELIST", list, 0, placement->host, sizeof placement->host);
}

static int need_pmi(char *const *environment, struct ko_placement *placement)
{
    int err = read_number(environment, "PMI_FD", 0, INT_MAX, &placement->pmi_fd);

    if (!err && placement->pmi_fd < 0)
        err = ko_fail(KOLO_E_INVALID, "PMI_RANK is set, but PMI_FD is not, nor another way to the "
                                      "other ranks: set KOLO_MASTER to rank 0's host:port");
    return err;
}

static int need_address(const struct ko_placement *placement)
{
    return ko_fail(KOLO_E_INVALID,
                   "%s says rank %d of %d, but nothing says where rank 0 is: set %s",
                   placement->rank_name, placement->rank, placement->size,
                   strcmp(placement->rank_name, "RANK") ? "KOLO_MASTER to its host:port"
                                                        : "MASTER_ADDR and MASTER_PORT");
}

/* PyTorch's rule: exactly this value. */
static bool has_agent(char *const *environment)
{
    const char *text = look_up(environment, "TORCHELASTIC_USE_AGENT_STORE");

    return text && !strcmp(text, "True");
}

bool ko_placement_is_agents(char *const *environment, const char *host, int port)
{
    const char *agent_host = look_up(environment, "MASTER_ADDR");
    const char *agent_port = look_up(environment, "MASTER_PORT");
    char bare[KO_HOST_TEXT];

    return has_agent(environment) && agent_host && agent_port &&
           !ko_host_parse("MASTER_ADDR", agent_host, bare) && !strcmp(bare, host) &&
           strtol(agent_port, NULL, 10) == port;
}

static int lack_half(char *const *environment, const char *lacking, const char *other)
{
    return ko_fail(KOLO_E_INVALID, "%s is %s, but %s is%s: set both, rank 0's host and port",
                   lacking, look_up_empty(environment, lacking) ? "empty" : "not set", other,
                   look_up_empty(environment, lacking) ? " not" : "");
}

/* MASTER_ADDR and MASTER_PORT, both or neither. */
static int read_master(char *const *environment, const struct row *row,
                       struct ko_placement *placement)
{
    const char *host = look_up(environment, "MASTER_ADDR");
    const char *port = look_up(environment, "MASTER_PORT");
    bool is_torchrun = !strcmp(row->rank, "RANK");
    int err;

    if (!host && !port)
        return KOLO_OK;
    if (!host || !port)
        return lack_half(environment, host ? "MASTER_PORT" : "MASTER_ADDR",
                         host ? "MASTER_ADDR" : "MASTER_PORT");
    err = ko_host_parse("MASTER_ADDR", host, placement->host);
    if (!err)
        err = ko_config_whole("MASTER_PORT", port, 1, 65535, &placement->port);
    placement->address_name = "MASTER_ADDR";
    placement->meeting = is_torchrun && has_agent(environment) ? KO_MEET_AGENT : KO_MEET_RANK0;
    return err;
}

/* The launcher's own way. */
static int find_way(char *const *environment, struct ko_placement *placement)
{
    switch (placement->meeting) {
    case KO_MEET_NODE0:
        return meet_at_node0(environment, placement);
    case KO_MEET_PMI:
        return need_pmi(environment, placement);
    case KO_MEET_PMIX:
        return KOLO_OK;
    default:
        return need_address(placement);
    }
}

/* An address that is given counts before the launcher's own way. */
static int find_meeting(char *const *environment, const struct row *row,
                        struct ko_placement *placement)
{
    const char *master = look_up(environment, "KOLO_MASTER");
    bool has_port = row->meeting == KO_MEET_NODE0;
    int err = has_port ? choose_slurm_port(environment, &placement->port) : KOLO_OK;

    if (err)
        return err;
    placement->meeting = row->meeting;
    if (master) {
        placement->meeting = KO_MEET_RANK0;
        placement->address_name = "KOLO_MASTER";
        return ko_address_parse("KOLO_MASTER", master, has_port, placement->host, &placement->port);
    }
    err = read_master(environment, row, placement);
    if (err || placement->host[0])
        return err;
    if (placement->size > 1)
        return find_way(environment, placement);
    placement->meeting = KO_MEET_ALONE;
    placement->port = 0;
    return KOLO_OK;
}

/* ---- all of it --------------------------------------------------------------------------- */

static int be_alone(char *const *environment, struct ko_placement *placement)
{
    static const char *const names[] = {
        "KOLO_MASTER",    "MASTER_ADDR",      "MASTER_PORT",      "LOCAL_RANK",
        "GROUP_RANK",     "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
        "MPI_LOCALRANKID"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (look_up(environment, names[i]))
            return ko_fail(KOLO_E_INVALID,
                           "%s is set, but nothing says which rank this is: set RANK and "
                           "WORLD_SIZE too (kolorun does), or nothing for a single rank",
                           names[i]);
    placement->launcher = "no launcher has set one";
    placement->size = 1;
    return KOLO_OK;
}

/* Open MPI says the rank twice. */
static int check_pmix(char *const *environment, const struct ko_placement *placement)
{
    int rank = placement->rank;
    int err = KOLO_OK;

    if (placement->meeting == KO_MEET_PMIX)
        err = read_number(environment, "PMIX_RANK", 0, INT_MAX, &rank);
    if (!err && rank != placement->rank)
        err = ko_fail(KOLO_E_INVALID, "%s says rank %d, but PMIX_RANK says %d",
                      placement->rank_name, placement->rank, rank);
    return err;
}

int ko_placement_read(char *const *environment, struct ko_placement *placement)
{
    const struct row *row = rows;
    int err;

    *placement = (struct ko_placement){
        .local_rank = -1, .local_size = -1, .node = -1, .nnodes = -1, .pmi_fd = -1};
    while (row < rows + NROWS && !is_set(environment, row))
        row++;
    if (row == rows + NROWS)
        return be_alone(environment, placement);
    err = read_own_row(environment, row, placement);
    if (!err)
        err = read_rows_below(environment, row, placement);
    if (!err)
        err = ko_placement_check(placement);
    if (!err)
        err = find_meeting(environment, row, placement);
    return err ? err : check_pmix(environment, placement);
}
