/* SPDX-License-Identifier: MIT
 *
 * What is said to the launcher over PMI where there is MPI in the process: it is MPI that begins
 * there, and that takes leave.
 */
#include "beside_mpi.h"
#include "kolo.h"
#include "pmi.h"

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
 * asked. */
static void join_and_end(const char *stage, const char *answers, char asked[1024])
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
        exit(ko_pmi_share(pair[1], 1, "kolo7", text, &deadline) || strcmp(text, "here") ? 1 : 0);
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
    join_and_end("before", answers, asked); /* and MPI never begins */
    assert_string_equal(asked, wanted);
    join_and_end("running", shared, asked);
    assert_string_equal(asked, ours);
}

static void after_mpi_there_is_no_joining(void **state)
{
    const ko_deadline deadline = ko_deadline_in(PATIENCE_MS);
    char text[KO_PMI_TEXT];

    (void)state;
    setenv("FAKEMPI", "over", 1);
    assert_int_equal(ko_pmi_share(-1, 1, "kolo", text, &deadline), KOLO_E_INVALID);
    assert_non_null(strstr(kolo_last_error(), "MPI_Finalize"));
    assert_non_null(strstr(kolo_last_error(), "KOLO_MASTER"));
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
        cmocka_unit_test(after_mpi_there_is_no_joining),
    };

    setenv("FAKEMPI", "before", 1);
    return cmocka_run_group_tests_name("beside_mpi", tests, open_mpi, NULL);
}
