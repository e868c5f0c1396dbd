/* SPDX-License-Identifier: MIT
 *
 * The whole sentence of a failure of rdma, as a program reads it that has made a call of kolo's:
 * with long names and addresses all that matters is in it. The adapters are those of
 * tests/fakeverbs.
 */
#include "group.h"
#include "ib_driver.h"
#include "kolo.h"
#include "ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME "mlx5_bond_0"
#define ADDRESS "fd00:1234:5678:9abc:def0:1234:5678:9abc"
#define HOST "gpu-node-0123.cluster.example.org"
#define END NAME " port 1, GID 3 = " ADDRESS " (RoCE v2)"

static int set_up(void **state)
{
    (void)state;
    setenv("KOLO_DEBUG", "NONE", 1);
    setenv("KOLO_TRANSPORT", "rdma", 1);
    setenv("FAKEVERBS_DEVICES", NAME ":roce@" ADDRESS, 1);
    return 0;
}

/* False if none of so many calls fails. */
static bool fails(kolo_group *group, int ncalls)
{
    float one[100] = {1}, sum[100];
    int err = KOLO_OK;

    for (int i = 0; i < ncalls && !err; i++)
        err = kolo_all_reduce(group, one, sum, 100, KOLO_FLOAT32, KOLO_SUM);
    return err;
}

/* By how much the sentence would be longer with a long name of the host, an address of TCP's that
 * is one of IPv6, and an event before. */
static size_t extra(void)
{
    char host[256] = "";

    (void)gethostname(host, sizeof host - 1);
    return sizeof HOST - 1 - strlen(host) + sizeof "[" ADDRESS "]" - sizeof "127.0.0.1" +
           sizeof " after the event port error";
}

/* What this rank sends next ends with that status. */
static int fail_with(kolo_group *group, void *argument)
{
    const int status = *(const int *)argument;
    char wish[64], words[400];
    const char *text = kolo_last_error();

    if (fails(group, 1))
        return ranks_fail("before");
    if (kolo_group_rank(group))
        return fails(group, 10) ? 0 : ranks_fail("rank 0 goes on");
    snprintf(wish, sizeof wish, "1=%d/129", status);
    setenv("FAKEVERBS_STATUS", wish, 1);
    if (!fails(group, 10))
        return ranks_fail("status %d is no failure", status);
    snprintf(words, sizeof words,
             "float32, sum: sending ended with %s (%d, vendor error 129): %s; between " END
             " here and " END " of rank 1 (127.0.0.1:",
             ko_ib_status_name(status), status, ko_ib_status_cause(status));
    if (strncmp(text, "rank 1 (", 8) != 0 || !strstr(text, words) || text[strlen(text) - 1] != ')')
        return ranks_fail("it lacks \"%s\"", words);
    return strlen(text) + extra() < KO_ERROR_TEXT
               ? 0
               : ranks_fail("too long by %zu", strlen(text) + extra() - KO_ERROR_TEXT + 1);
}

static void nothing_is_cut_off(void **state)
{
    (void)state;
    for (int status = 1; status < KO_IB_NSTATUS; status++)
        assert_int_equal(
            ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = 2}, fail_with, &status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup(nothing_is_cut_off, set_up)};

    return cmocka_run_group_tests_name("what is said of rdma", tests, NULL, NULL);
}
