/* SPDX-License-Identifier: MIT
 *
 * What is said to the launcher over PMI and PMIx where there is MPI in the process: it is MPI that
 * begins there, and that takes leave.
 */
#include "beside_mpi.h"
#include "kolo.h"
#include "pmi.h"
#include "pmix.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { PATIENCE_MS = 20000 };

static const char begun[] = "cmd=response_to_init rc=0\n";
static const char shared[] =
    "cmd=my_kvsname kvsname=k\ncmd=barrier_out rc=0\ncmd=get_result rc=0 value=here\n";
static const char left[] = "cmd=finalize_ack\n";

/* A process that joins as rank 1, and ends, while a launcher answers what it is to ask; what it has
 * asked. MPI is at `stage` when it joins, and at `end` then. */
static void join_and_end(const char *stage, const char *end, const char *answers, char asked[1024])
{
    const ko_deadline deadline = ko_deadline_in(PATIENCE_MS);
    char text[KO_PMI_TEXT] = "";
    size_t used = 0;
    ssize_t n;
    int pair[2], status;
    pid_t child;

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    assert_int_equal(write(pair[0], answers, strlen(answers)), strlen(answers));
    setenv("FAKEMPI", stage, 1);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(pair[0]);
        status = ko_pmi_share(pair[1], 1, "kolo7", text, &deadline) || strcmp(text, "here") ? 1 : 0;
        setenv("FAKEMPI", end, 1);
        exit(status);
    }
    close(pair[1]);
    while ((n = read(pair[0], asked + used, 1023 - used)) > 0)
        used += (size_t)n;
    asked[used] = 0;
    close(pair[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void leave_is_taken_by_one(void **state)
{
    static const char ours[] = "cmd=get_my_kvsname\ncmd=barrier_in\ncmd=get kvsname=k key=kolo7\n";
    char answers[512], wanted[512], asked[1024];

    (void)state;
    snprintf(answers, sizeof answers, "%s%s%s", begun, shared, left);
    snprintf(wanted, sizeof wanted, "cmd=init pmi_version=1 pmi_subversion=1\n%scmd=finalize\n",
             ours);
    join_and_end("before", "before", answers, asked); /* MPI never begins */
    assert_string_equal(asked, wanted);
    join_and_end("running", "over", shared, asked);
    assert_string_equal(asked, ours);
    snprintf(answers, sizeof answers, "%s%s", begun, shared);
    snprintf(wanted, sizeof wanted, "cmd=init pmi_version=1 pmi_subversion=1\n%s", ours);
    join_and_end("before", "over", answers, asked); /* MPI begins later, and takes leave */
    assert_string_equal(asked, wanted);
    join_and_end("before", "running", answers, asked);
    assert_string_equal(asked, wanted);
}

/* ---- PMIx --------------------------------------------------------------------------------- */

/* As much of its library as rank 0 needs; who has been told of an end reads a byte. */
static int end_fd = -1;

static int fake_init(struct ko_pmix_process *self, void *info, size_t ninfo)
{
    (void)info;
    (void)ninfo;
    *self = (struct ko_pmix_process){.job = "job"};
    return KO_PMIX_SUCCESS;
}

static int fake_put(uint8_t scope, const char *key, struct ko_pmix_value *value)
{
    (void)scope;
    (void)key;
    (void)value;
    return KO_PMIX_SUCCESS;
}

static int fake_commit(void)
{
    return KO_PMIX_SUCCESS;
}

static int fake_fence(const struct ko_pmix_process *of, size_t nof, const void *info, size_t ninfo,
                      ko_pmix_on_done done, void *call)
{
    (void)of;
    (void)nof;
    (void)info;
    (void)ninfo;
    (void)done;
    (void)call;
    return -157; /* done at once */
}

static int fake_finalize(const void *info, size_t ninfo)
{
    (void)info;
    (void)ninfo;
    return write(end_fd, "F", 1) == 1 ? KO_PMIX_SUCCESS : -1;
}

static const struct ko_pmix library = {.init = fake_init,
                                       .put = fake_put,
                                       .commit = fake_commit,
                                       .fence = fake_fence,
                                       .finalize = fake_finalize};

/* What a process that joins so often as rank 0, says "J" each time, and ends, has told of its ends.
 */
static void expect_ends(const char *stage, int njoins, const char *wanted)
{
    const ko_deadline deadline = ko_deadline_in(PATIENCE_MS);
    char text[KO_PMI_TEXT] = "here", told[16] = "";
    int ends[2], status = 0;
    size_t used = 0;
    ssize_t n;
    pid_t child;

    setenv("FAKEMPI", stage, 1);
    assert_int_equal(pipe(ends), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        end_fd = ends[1];
        for (int i = 0; i < njoins && !status; i++)
            status = ko_pmix_share(&library, 0, "kolo", text, sizeof text, &deadline) ||
                     write(end_fd, "J", 1) != 1;
        exit(status);
    }
    close(ends[1]);
    while ((n = read(ends[0], told + used, sizeof told - 1 - used)) > 0)
        used += (size_t)n;
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_string_equal(told, wanted);
}

/* Before MPI_Init the library's last user stays until the process ends, once for all joins. */
static void the_library_of_pmix_stays_for_mpi(void **state)
{
    (void)state;
    expect_ends("before", 1, "JF");
    expect_ends("before", 3, "JFJFJF");
    expect_ends("running", 2, "FJFJ");
}

/* ---- after MPI ---------------------------------------------------------------------------- */

static void after_mpi_there_is_no_joining(void **state)
{
    const ko_deadline deadline = ko_deadline_in(PATIENCE_MS);
    char text[KO_PMI_TEXT] = "";

    (void)state;
    setenv("FAKEMPI", "over", 1);
    assert_int_equal(ko_pmi_share(-1, 1, "kolo", text, &deadline), KOLO_E_INVALID);
    assert_non_null(strstr(kolo_last_error(), "MPI_Finalize"));
    assert_non_null(strstr(kolo_last_error(), "KOLO_MASTER"));
    assert_int_equal(ko_pmix_share(&library, 0, "kolo", text, sizeof text, &deadline),
                     KOLO_E_INVALID);
    assert_non_null(strstr(kolo_last_error(), "MPI_Finalize"));
}

/* Opened so that its symbols are seen by nobody else, as Python opens it. */
static int open_mpi(void **state)
{
    (void)state;
    if (ko_mpi_state() != KO_MPI_NONE || !dlopen("libmpifake.so", RTLD_NOW | RTLD_LOCAL))
        return -1;
    return ko_mpi_state() == KO_MPI_BEFORE ? 0 : -1;
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(leave_is_taken_by_one),
        cmocka_unit_test(the_library_of_pmix_stays_for_mpi),
        cmocka_unit_test(after_mpi_there_is_no_joining),
    };

    setenv("FAKEMPI", "before", 1);
    return cmocka_run_group_tests_name("beside_mpi", tests, open_mpi, NULL);
}
