/* SPDX-License-Identifier: MIT
 *
 * Environments as launchers set them, whole, half set and at odds with themselves. Those of real
 * launchers were taken from them.
 */
#include "launcher.h"

#include "kolo.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { MOST = 40 };

/* Cuts "A=1 B=2" into an environment; text is changed. */
static char *const *cut(char *text, char **list)
{
    char *rest = NULL;
    int n = 0;

    for (char *item = strtok_r(text, " ", &rest); item; item = strtok_r(NULL, " ", &rest)) {
        assert_true(n + 1 < MOST);
        list[n++] = item;
    }
    list[n] = NULL;
    return list;
}

static int read_text(const char *environment, struct ko_placement *placement)
{
    char text[2048], *list[MOST];

    snprintf(text, sizeof text, "%s", environment);
    return ko_placement_read(cut(text, list), placement);
}

static void expect(const char *environment, const char *described)
{
    struct ko_placement placement;
    char text[KO_PLACEMENT_TEXT];

    if (read_text(environment, &placement))
        fail_msg("%s: %s", environment, kolo_last_error());
    ko_placement_describe(&placement, text, sizeof text);
    if (strcmp(text, described))
        fail_msg("%s:\n  is  %s\n  not %s", environment, text, described);
}

static void refuse(const char *environment, const char *text)
{
    struct ko_placement placement;
    int err = read_text(environment, &placement);

    if (err != KOLO_E_INVALID || !strstr(kolo_last_error(), text))
        fail_msg("%s: status %d, \"%s\" without \"%s\"", environment, err, kolo_last_error(), text);
}

#define TORCH                                                                              \
    "RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 GROUP_RANK=1 GROUP_WORLD_SIZE=2 " \
    "TORCHELASTIC_RUN_ID=none TORCHELASTIC_RESTART_COUNT=0 MASTER_ADDR=10.0.0.1 "          \
    "MASTER_PORT=29500 "
#define OPEN_MPI                                                                  \
    "OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=0 " \
    "OMPI_COMM_WORLD_LOCAL_SIZE=2 OMPI_MCA_orte_num_nodes=2 PMIX_RANK=2 PMIX_NAMESPACE=77 "
#define MPICH "PMI_RANK=1 PMI_SIZE=3 PMI_FD=9 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=3 "
#define SRUN                                                                               \
    "SLURM_JOB_ID=7 SLURM_STEP_ID=3 SLURM_PROCID=3 SLURM_NTASKS=9 SLURM_STEP_NUM_TASKS=4 " \
    "SLURM_LOCALID=0 SLURM_STEP_TASKS_PER_NODE=3,1 SLURM_NODEID=1 SLURM_STEP_NUM_NODES=2 " \
    "SLURM_STEP_NODELIST=n[01-02] "
/* Of rank 0 of two, in a job that has been started a second time. */
#define AROUND                                                                                 \
    "SLURM_JOB_ID=1234 SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 SLURM_LOCALID=0 " \
    "SLURM_RESTART_COUNT=1 "

static void every_launcher_is_understood(void **state)
{
    (void)state;
    expect("", "rank 0 of 1 (no launcher has set one); it is alone");
    expect("RANK= WORLD_SIZE= HOME=/", "rank 0 of 1 (no launcher has set one); it is alone");
    expect("KOLO_RANK=1 KOLO_SIZE=2 KOLO_MASTER=[::1]:4000",
           "rank 1 of 2 by KOLO_RANK (set by hand); rank 0 serves the store at ::1:4000 by "
           "KOLO_MASTER");
    expect("KOLO_RANK=1 KOLO_SIZE=2 MASTER_ADDR=h MASTER_PORT=5",
           "rank 1 of 2 by KOLO_RANK (set by hand); rank 0 serves the store at h:5 by MASTER_ADDR");
    expect("KOLO_RANK=0 KOLO_SIZE=1", "rank 0 of 1 by KOLO_RANK (set by hand); it is alone");
    expect(TORCH "TORCHELASTIC_USE_AGENT_STORE=False",
           "rank 5 of 8 by RANK (torchrun or kolorun), local rank 1 of 4, node 1, 2 nodes, job "
           "none; rank 0 serves the store at 10.0.0.1:29500 by MASTER_ADDR");
    expect(TORCH "TORCHELASTIC_USE_AGENT_STORE=True",
           "rank 5 of 8 by RANK (torchrun or kolorun), local rank 1 of 4, node 1, 2 nodes, job "
           "none; the launcher serves the store at 10.0.0.1:29500 by MASTER_ADDR");
    expect("RANK=1 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=5 TORCHELASTIC_USE_AGENT_STORE=true "
           "TORCHELASTIC_RESTART_COUNT=2",
           "rank 1 of 2 by RANK (torchrun or kolorun), restart 2; rank 0 serves the store at h:5 "
           "by MASTER_ADDR");
    expect(OPEN_MPI, "rank 2 of 4 by OMPI_COMM_WORLD_RANK (Open MPI), local rank 0 of 2, 2 nodes, "
                     "job 77; rank 0 serves the store and says where over PMIx");
    expect(MPICH, "rank 1 of 3 by PMI_RANK (PMI: MPICH or srun), local rank 1 of 3; rank 0 serves "
                  "the store and says where over PMI");
    expect("PMIX_RANK=1 PMIX_NAMESPACE=slurm.pmix.1.0 SLURM_STEP_NUM_TASKS=2",
           "rank 1 of 2 by PMIX_RANK (PMIx: srun), job slurm.pmix.1.0; rank 0 serves the store and "
           "says where over PMIx");
    expect(SRUN, "rank 3 of 4 by SLURM_PROCID (srun), local rank 0 of 1, node 1, 2 nodes, job 7.3; "
                 "rank 0 serves the store on the first node, at n01:16814");
}

static void more_than_one_launcher(void **state)
{
    (void)state;
    /* torchrun under srun, and kolo's own variables before all */
    expect(
        TORCH SRUN "KOLO_RANK=1 KOLO_SIZE=20 KOLO_MASTER=m:1",
        "rank 1 of 20 by KOLO_RANK (set by hand); rank 0 serves the store at m:1 by KOLO_MASTER");
    expect(SRUN TORCH, "rank 5 of 8 by RANK (torchrun or kolorun), local rank 1 of 4, node 1, 2 "
                       "nodes, job none; rank 0 serves the store at 10.0.0.1:29500 by MASTER_ADDR");
    /* srun --mpi=pmi2: what PMI leaves open, Slurm says */
    expect("PMI_RANK=3 PMI_SIZE=4 PMI_FD=8 " SRUN,
           "rank 3 of 4 by PMI_RANK (PMI: MPICH or srun), local rank 0 of 1, node 1, 2 nodes, job "
           "7.3; rank 0 serves the store and says where over PMI");
    /* of which the local rank alone may be left */
    expect("LOCAL_RANK=0 KOLO_RANK=0 KOLO_SIZE=1",
           "rank 0 of 1 by KOLO_RANK (set by hand); it is alone");
    expect("LOCAL_RANK=0 PMI_RANK=0 PMI_SIZE=1",
           "rank 0 of 1 by PMI_RANK (PMI: MPICH or srun); it is alone");
    /* another one around it that does not count may be half set, or wrong */
    expect("KOLO_RANK=0 KOLO_SIZE=1 RANK=3 PMI_SIZE=x SLURM_STEP_ID=1",
           "rank 0 of 1 by KOLO_RANK (set by hand); it is alone");
}

static void an_address_counts_before_the_launchers_way(void **state)
{
    (void)state;
    expect(MPICH "MASTER_ADDR=h MASTER_PORT=5",
           "rank 1 of 3 by PMI_RANK (PMI: MPICH or srun), local rank 1 of 3; rank 0 serves the "
           "store at h:5 by MASTER_ADDR");
    expect(MPICH "MASTER_ADDR=h MASTER_PORT=5 TORCHELASTIC_USE_AGENT_STORE=True",
           "rank 1 of 3 by PMI_RANK (PMI: MPICH or srun), local rank 1 of 3; rank 0 serves the "
           "store at h:5 by MASTER_ADDR");
    expect(OPEN_MPI "KOLO_MASTER=10.1.1.1:77 MASTER_ADDR=h MASTER_PORT=5",
           "rank 2 of 4 by OMPI_COMM_WORLD_RANK (Open MPI), local rank 0 of 2, 2 nodes, job 77; "
           "rank 0 serves the store at 10.1.1.1:77 by KOLO_MASTER");
    expect(SRUN "KOLO_MASTER=10.1.1.1",
           "rank 3 of 4 by SLURM_PROCID (srun), local rank 0 of 1, node 1, 2 nodes, job 7.3; "
           "rank 0 serves the store at 10.1.1.1:16814 by KOLO_MASTER");
    expect("RANK=1 WORLD_SIZE=3 MASTER_ADDR=[fe::1] MASTER_PORT=9",
           "rank 1 of 3 by RANK (torchrun or kolorun); rank 0 serves the store at fe::1:9 by "
           "MASTER_ADDR");
    expect("PMI_RANK=1 PMI_SIZE=3 KOLO_MASTER=[fe::1]:9",
           "rank 1 of 3 by PMI_RANK (PMI: MPICH or srun); rank 0 serves the store at fe::1:9 by "
           "KOLO_MASTER");
    expect("PMI_RANK=0 PMI_SIZE=1", "rank 0 of 1 by PMI_RANK (PMI: MPICH or srun); it is alone");
}

/* A warning that has the text, or none for "". */
static void expect_warning(const char *environment, const char *text)
{
    struct ko_placement placement;

    if (read_text(environment, &placement))
        fail_msg("%s: %s", environment, kolo_last_error());
    if (*text ? !strstr(placement.warning, text) : *placement.warning)
        fail_msg("%s: \"%s\" without \"%s\"", environment, placement.warning, text);
}

#define BY_HAND(rank, size) "RANK=" #rank " WORLD_SIZE=" #size " MASTER_ADDR=h MASTER_PORT=5 "

/* As a torchrun sets them for a rank, which its agent has started. */
#define AGENTS(rank, size, local)                                                       \
    BY_HAND(rank, size)                                                                 \
    "LOCAL_RANK=0 LOCAL_WORLD_SIZE=" #local " GROUP_RANK=0 GROUP_WORLD_SIZE=" #size " " \
    "TORCHELASTIC_RUN_ID=none "

/* Who starts ranks inside of each rank of another launcher's says how many are on the node, and
 * numbers them as it likes; a shell of srun's says nothing. */
static void a_job_inside_another_launchers_counts(void **state)
{
    (void)state;
    expect_warning(TORCH MPICH, "");
    expect_warning(OPEN_MPI AROUND, "");
    expect_warning(BY_HAND(3, 4) "PMI_RANK=0 PMI_SIZE=1", ""); /* from a single rank's shell */
    expect_warning(BY_HAND(5, 6) "LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 " MPICH, "");
    expect_warning(BY_HAND(0, 2) AROUND, "");
    expect_warning(BY_HAND(5, 6) "LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 " AROUND, "");
    expect_warning(AGENTS(2, 3, 1) MPICH, "RANK says rank 2 of 3, which counts; but PMI_RANK says");
    expect_warning(BY_HAND(0, 3) "LOCAL_WORLD_SIZE=1 " MPICH,
                   "RANK says rank 0 of 3, which counts; but PMI_RANK says rank 1 of 3: is the "
                   "former left over");
    expect_warning(BY_HAND(1, 2) AROUND, "RANK says rank 1 of 2, which counts; but SLURM_PROCID");
    expect_warning("KOLO_RANK=0 KOLO_SIZE=4 KOLO_MASTER=h:5 " MPICH,
                   "KOLO_RANK says rank 0 of 4, which counts; but PMI_RANK says rank 1 of 3");
    expect_warning("KOLO_RANK=1 KOLO_SIZE=8 KOLO_MASTER=h:5 " TORCH,
                   "KOLO_RANK says rank 1 of 8, which counts; but RANK says rank 5 of 8");
}

/* Variables of an older job, or set once for all, under a launcher that starts programs. */
static void what_is_left_over_is_refused(void **state)
{
    (void)state;
    refuse(BY_HAND(0, 3) MPICH,
           "RANK says rank 0 of 3, but PMI_RANK says rank 1 of 3 (PMI: MPICH or srun): unset RANK "
           "and WORLD_SIZE if they are left over or set alike for all, else PMI_RANK and PMI_SIZE");
    refuse(BY_HAND(3, 4) OPEN_MPI, "RANK says rank 3 of 4, but OMPI_COMM_WORLD_RANK says rank 2");
    refuse(
        BY_HAND(0, 4) "LOCAL_RANK=0 LOCAL_WORLD_SIZE=4 " OPEN_MPI,
        "RANK says rank 0 of 4, but OMPI_COMM_WORLD_RANK says rank 2 of 4 (Open MPI): unset RANK "
        "and WORLD_SIZE if they are left over or set alike for all, else OMPI_COMM_WORLD_RANK "
        "and OMPI_COMM_WORLD_SIZE");
    refuse(BY_HAND(0, 8) "LOCAL_RANK=0 LOCAL_WORLD_SIZE=8 " OPEN_MPI, "RANK says rank 0 of 8, but");
    refuse(BY_HAND(0, 1) "LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 " OPEN_MPI, "RANK says rank 0 of 1, but");
    refuse("RANK=0 WORLD_SIZE=1 " MPICH, "RANK says rank 0 of 1, but PMI_RANK says rank 1 of 3");
    refuse(BY_HAND(0, 4) MPICH, "RANK says rank 0 of 4, but PMI_RANK says rank 1 of 3");
    refuse("KOLO_RANK=0 KOLO_SIZE=3 KOLO_MASTER=h:5 " MPICH,
           "KOLO_RANK says rank 0 of 3, but PMI_RANK says rank 1 of 3 (PMI: MPICH or srun): unset "
           "KOLO_RANK and KOLO_SIZE if they are left over");
    /* mpirun's daemon on another node of a Slurm job is in a step itself */
    refuse(BY_HAND(0, 4) OPEN_MPI AROUND, "RANK says rank 0 of 4, but OMPI_COMM_WORLD_RANK says");
}

/* Ranks that are started in a rank of another launcher's, and inherit its number: that is one of
 * theirs and not the others'. What they look for one another by is the same on all. */
static void only_the_row_that_counts_says_what_all_must_agree_on(void **state)
{
    static const char *const own[][2] = {
        {"RANK", "WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=5"},
        {"RANK", "WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=5 KOLORUN_ATTEMPT=0"},
        {"KOLO_RANK", "KOLO_SIZE=2 KOLO_MASTER=h:5 TORCHELASTIC_RUN_ID=x RANK=0 WORLD_SIZE=2 "
                      "KOLORUN_ATTEMPT=1"},
        {"PMI_RANK", "PMI_SIZE=2 PMI_FD=9"}};
    struct ko_placement placement;
    char text[600];

    (void)state;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        for (int rank = 0; rank < 2; rank++) {
            snprintf(text, sizeof text, "%s=%d %s " AROUND, own[i][0], rank, own[i][1]);
            assert_int_equal(read_text(text, &placement), 0);
            assert_int_equal(placement.attempt, 0);
            assert_false(placement.is_job_shared);
        }
    assert_int_equal(read_text(TORCH SRUN, &placement), 0);
    assert_true(placement.is_job_shared);
    assert_string_equal(placement.job, "none");
    assert_int_equal(read_text(SRUN, &placement), 0);
    assert_true(placement.is_job_shared);
}

/* Where nothing but the step says the port, it is one that a firewall lets through. */
static void the_port_of_a_step_is_of_the_range(void **state)
{
    struct ko_placement placement;
    char text[400];

    (void)state;
    for (int step = 0; step < 25; step++) {
        snprintf(text, sizeof text,
                 "SLURM_JOB_ID=7 SLURM_STEP_ID=%d SLURM_PROCID=0 SLURM_NTASKS=2 "
                 "SLURM_STEP_NODELIST=n KOLO_PORT_RANGE=31000-31009",
                 step);
        assert_int_equal(read_text(text, &placement), 0);
        assert_int_equal(placement.port, 31000 + (7 * 61 + step) % 10);
    }
    assert_int_equal(read_text("KOLO_MASTER=h KOLO_PORT_RANGE=5-5 " SRUN, &placement), 0);
    assert_int_equal(placement.port, 5);
    refuse("KOLO_PORT_RANGE=5 " SRUN, "KOLO_PORT_RANGE is \"5\"; it takes two ports");
}

/* A batch script, or a shell that salloc has opened, has a step's number but no ranks. */
static void scripts_of_slurm_are_single(void **state)
{
    (void)state;
    expect("SLURM_JOB_ID=7 SLURM_PROCID=0 SLURM_NTASKS=4",
           "rank 0 of 1 (no launcher has set one); it is alone");
    expect("SLURM_JOB_ID=7 SLURM_STEP_ID=4294967291 SLURM_PROCID=0 SLURM_NTASKS=4",
           "rank 0 of 1 (no launcher has set one); it is alone");
}

static void half_set_environments_are_refused(void **state)
{
    (void)state;
    refuse("RANK=0", "WORLD_SIZE is not set, but RANK is: set both (torchrun or kolorun), or");
    refuse("WORLD_SIZE=2", "RANK is not set, but WORLD_SIZE is: set both");
    refuse("RANK=0 WORLD_SIZE= ", "WORLD_SIZE is not set, but RANK is");
    refuse("KOLO_SIZE=2", "KOLO_RANK is not set, but KOLO_SIZE is");
    refuse("KOLO_RANK=0 " MPICH,
           "KOLO_SIZE is not set, but KOLO_RANK is: set both (set by hand), or "
           "neither, and PMI_RANK will count (PMI: MPICH or srun)");
    refuse("RANK=3 PMI_SIZE=4 " SRUN, "or neither, and SLURM_PROCID will count (srun)");
    refuse("RANK=3 PMI_SIZE=4", "set both (torchrun or kolorun), or neither for a single rank");
    refuse("OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE is not set, but OMPI_COMM_WORLD_RANK");
    refuse("PMI_SIZE=2", "PMI_RANK is not set, but PMI_SIZE is");
    refuse("PMIX_RANK=0", "SLURM_NTASKS is not set, but PMIX_RANK is");
    refuse("SLURM_STEP_ID=0", "SLURM_NTASKS is not set, but SLURM_STEP_ID is");
    refuse("SLURM_STEP_ID=0 SLURM_PROCID=0", "SLURM_NTASKS is not set, but SLURM_PROCID is");
    refuse("SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_NTASKS=2", "SLURM_STEP_NODELIST is not set");
    refuse("SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_STEP_NODELIST=n",
           "SLURM_JOB_ID is not set");
    refuse("MASTER_ADDR=h MASTER_PORT=5", "MASTER_ADDR is set, but nothing says which rank");
    refuse("KOLO_MASTER=h:5", "KOLO_MASTER is set, but nothing says which rank");
    refuse("LOCAL_RANK=0", "LOCAL_RANK is set, but nothing says which rank");
    refuse("GROUP_RANK=0 GROUP_WORLD_SIZE=1", "GROUP_RANK is set, but nothing says which rank");
    refuse("OMPI_COMM_WORLD_LOCAL_RANK=1", "OMPI_COMM_WORLD_LOCAL_RANK is set, but nothing");
    refuse("RANK=0 WORLD_SIZE=1 GROUP_RANK=0",
           "GROUP_WORLD_SIZE is not set, but GROUP_RANK is: set both (torchrun or kolorun)");
    refuse("RANK=0 WORLD_SIZE=2", "nothing says where rank 0 is: set MASTER_ADDR and MASTER_PORT");
    refuse("KOLO_RANK=0 KOLO_SIZE=2", "nothing says where rank 0 is: set KOLO_MASTER");
    refuse("RANK=0 WORLD_SIZE=2 MASTER_ADDR=h", "MASTER_PORT is not set, but MASTER_ADDR is");
    refuse("RANK=0 WORLD_SIZE=1 MASTER_PORT=5", "MASTER_ADDR is not set, but MASTER_PORT is");
    refuse("RANK=0 WORLD_SIZE=2 MASTER_ADDR= MASTER_PORT=5",
           "MASTER_ADDR is empty, but MASTER_PORT is not");
    refuse("PMI_RANK=0 PMI_SIZE=2", "PMI_RANK is set, but PMI_FD is not");
}

/* One that does not count: that is said, not refused. */
static void other_launchers_may_be_half_set(void **state)
{
    static const char *const cases[][2] = {
        {TORCH "PMI_SIZE=4", "PMI_RANK is not set, but PMI_SIZE is (PMI: MPICH or srun): neither "
                             "counts, since RANK is set"},
        {TORCH "OMPI_COMM_WORLD_RANK=3", "OMPI_COMM_WORLD_SIZE is not set, but "
                                         "OMPI_COMM_WORLD_RANK is (Open MPI): neither counts"},
        {TORCH "SLURM_STEP_ID=3 SLURM_NTASKS=2", "SLURM_PROCID is not set, but SLURM_NTASKS is"},
        {TORCH "SLURM_STEP_ID=3", "SLURM_NTASKS is not set, but SLURM_STEP_ID is (srun)"},
        {TORCH "SLURM_JOB_ID=3 SLURM_NTASKS=2", ""}, /* of a batch script */
        {TORCH OPEN_MPI, ""},
        {OPEN_MPI, ""},
        {TORCH SRUN, ""}};
    struct ko_placement placement;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(read_text(cases[i][0], &placement), KOLO_OK);
        if (cases[i][1][0] ? !strstr(placement.note, cases[i][1]) : placement.note[0])
            fail_msg("%s: \"%s\"", cases[i][0], placement.note);
    }
}

static void contradictions_are_refused(void **state)
{
    char text[700];

    (void)state;
    refuse("RANK=2 WORLD_SIZE=2", "RANK is \"2\"; it takes a whole number from 0 to 1");
    refuse("RANK=0 WORLD_SIZE=0", "WORLD_SIZE is \"0\"");
    refuse("RANK=0 WORLD_SIZE=2147483647",
           "WORLD_SIZE is \"2147483647\"; it takes a whole number from 1 to 1048576");
    refuse("PMI_RANK=0 PMI_SIZE=1048577", "PMI_SIZE is \"1048577\"; it takes a whole number from");
    refuse("RANK=x WORLD_SIZE=2", "RANK is \"x\"");
    refuse("RANK=-1 WORLD_SIZE=2", "RANK is \"-1\"");
    refuse("RANK=0 WORLD_SIZE=2 LOCAL_RANK=2 LOCAL_WORLD_SIZE=2",
           "RANK: local rank 2 cannot be, with 2 ranks on this node");
    refuse("RANK=1 WORLD_SIZE=8 LOCAL_RANK=3 LOCAL_WORLD_SIZE=4",
           "RANK: local rank 3 cannot be rank 1's: the 3 before it on its node have lower ranks");
    refuse("RANK=0 WORLD_SIZE=2 LOCAL_RANK=1", "RANK: local rank 1 cannot be rank 0's");
    refuse("RANK=0 WORLD_SIZE=2 GROUP_RANK=1 GROUP_WORLD_SIZE=2",
           "GROUP_RANK: node 1 cannot be rank 0's: the 1 before it have lower ranks");
    refuse("RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=3", "RANK: 3 ranks on this node cannot be, of 2");
    refuse("RANK=1 WORLD_SIZE=2 GROUP_RANK=1 GROUP_WORLD_SIZE=1", "RANK: node 1 cannot be");
    refuse("RANK=0 WORLD_SIZE=2 LOCAL_RANK=1.5", "LOCAL_RANK is \"1.5\"");
    refuse("RANK=0 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=70000", "MASTER_PORT is \"70000\"");
    refuse("RANK=0 WORLD_SIZE=2 KOLO_MASTER=h", "KOLO_MASTER is \"h\"; it takes host:port");
    refuse("RANK=0 WORLD_SIZE=2 KOLO_MASTER=::1", "KOLO_MASTER is \"::1\"; it takes host:port");
    refuse("RANK=0 WORLD_SIZE=2 KOLO_MASTER=:5", "without a host");
    refuse("RANK=0 WORLD_SIZE=2 MASTER_ADDR=[::1 MASTER_PORT=5",
           "MASTER_ADDR is \"[::1\", without a host");
    refuse("RANK=0 WORLD_SIZE=2 MASTER_ADDR=[] MASTER_PORT=5", "without a host");
    refuse("RANK=0 WORLD_SIZE=2 KOLO_MASTER=h:0", "KOLO_MASTER is \"0\"");
    refuse("PMIX_RANK=3 " OPEN_MPI, "OMPI_COMM_WORLD_RANK says rank 2, but PMIX_RANK says 3");
    refuse("SLURM_STEP_TASKS_PER_NODE=3(x2 " SRUN, "SLURM_STEP_TASKS_PER_NODE is \"3(x2\"");
    refuse("SLURM_STEP_TASKS_PER_NODE=4 " SRUN, "it has fewer hosts than that");
    refuse("SLURM_STEP_NODELIST=n[ " SRUN, "SLURM_STEP_NODELIST is \"n[\"");
    refuse("PMI_FD=x " MPICH, "PMI_FD is \"x\"");
    snprintf(text, sizeof text, "RANK=0 WORLD_SIZE=2 MASTER_PORT=5 MASTER_ADDR=%0300d", 0);
    refuse(text, "without a host that can be");
    snprintf(text, sizeof text, "RANK=0 WORLD_SIZE=2 KOLO_MASTER=%0300d:5", 0);
    refuse(text, "without a host that can be");
    snprintf(text, sizeof text, "RANK=0 WORLD_SIZE=2 TORCHELASTIC_RUN_ID=%0400d", 0);
    refuse(text, "TORCHELASTIC_RUN_ID is longer than 319 characters");
}

/* Text that a description has no room for is cut. */
static void descriptions_are_cut(void **state)
{
    struct ko_placement placement;
    char text[20];

    (void)state;
    assert_int_equal(read_text(TORCH, &placement), 0);
    ko_placement_describe(&placement, text, sizeof text);
    assert_string_equal(text, "rank 5 of 8 by RANK");
}

/* Torchrun's agents count each for itself. */
static void attempts_are_counted_alike_or_not_at_all(void **state)
{
    struct ko_placement placement;
    char text[] = "TORCHELASTIC_RESTART_COUNT=4 KOLORUN_ATTEMPT=3", *list[MOST];
    char wrong[] = "KOLORUN_ATTEMPT=x";
    int attempt;

    (void)state;
    assert_int_equal(read_text("RANK=0 WORLD_SIZE=1 TORCHELASTIC_RESTART_COUNT=2", &placement), 0);
    assert_int_equal(placement.restart, 2);
    assert_int_equal(placement.attempt, 0);
    assert_int_equal(
        read_text("RANK=0 WORLD_SIZE=1 TORCHELASTIC_RESTART_COUNT=2 KOLORUN_ATTEMPT=2", &placement),
        0);
    assert_int_equal(placement.attempt, 2);
    assert_int_equal(read_text(SRUN "SLURM_RESTART_COUNT=5", &placement), 0);
    assert_int_equal(placement.attempt, 5);
    assert_int_equal(ko_placement_attempt(cut(text, list), &attempt), 0);
    assert_int_equal(attempt, 3);
    assert_int_equal(ko_placement_attempt(cut(wrong, list), &attempt), KOLO_E_INVALID);
}

static void the_agents_store_is_known_by_its_address(void **state)
{
    char text[] = "MASTER_ADDR=h MASTER_PORT=5 TORCHELASTIC_USE_AGENT_STORE=True";
    char *list[MOST];

    (void)state;
    cut(text, list);
    assert_true(ko_placement_is_agents(list, "h", 5));
    assert_false(ko_placement_is_agents(list, "h", 6));
    assert_false(ko_placement_is_agents(list, "i", 5));
    list[2] = NULL;
    assert_false(ko_placement_is_agents(list, "h", 5));
}

static void the_attempt_is_a_number_of_kolorun(void **state)
{
    char kolorun[] = "TORCHELASTIC_RESTART_COUNT=4 KOLORUN_ATTEMPT=4";
    char torchrun[] = "TORCHELASTIC_RESTART_COUNT=4 KOLORUN_ATTEMPT=";
    char none[] = "RANK=0";
    char wrong[] = "KOLORUN_ATTEMPT=x";
    char *list[MOST];
    int attempt = -1;

    (void)state;
    assert_int_equal(ko_placement_attempt(cut(kolorun, list), &attempt), 0);
    assert_int_equal(attempt, 4);
    assert_false(ko_placement_has_uncounted(list));
    assert_int_equal(ko_placement_attempt(cut(torchrun, list), &attempt), 0);
    assert_int_equal(attempt, 0);
    assert_true(ko_placement_has_uncounted(list));
    assert_int_equal(ko_placement_attempt(cut(none, list), &attempt), 0);
    assert_int_equal(attempt, 0);
    assert_false(ko_placement_has_uncounted(list));
    assert_int_equal(ko_placement_attempt(cut(wrong, list), &attempt), KOLO_E_INVALID);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_launcher_is_understood),
        cmocka_unit_test(more_than_one_launcher),
        cmocka_unit_test(an_address_counts_before_the_launchers_way),
        cmocka_unit_test(a_job_inside_another_launchers_counts),
        cmocka_unit_test(what_is_left_over_is_refused),
        cmocka_unit_test(only_the_row_that_counts_says_what_all_must_agree_on),
        cmocka_unit_test(the_port_of_a_step_is_of_the_range),
        cmocka_unit_test(scripts_of_slurm_are_single),
        cmocka_unit_test(half_set_environments_are_refused),
        cmocka_unit_test(other_launchers_may_be_half_set),
        cmocka_unit_test(contradictions_are_refused),
        cmocka_unit_test(descriptions_are_cut),
        cmocka_unit_test(attempts_are_counted_alike_or_not_at_all),
        cmocka_unit_test(the_agents_store_is_known_by_its_address),
        cmocka_unit_test(the_attempt_is_a_number_of_kolorun),
    };

    setenv("KOLO_DEBUG", "NONE", 1);
    return cmocka_run_group_tests_name("launcher", tests, NULL, NULL);
}
