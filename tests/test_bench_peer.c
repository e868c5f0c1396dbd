/* SPDX-License-Identifier: MIT
 *
 * What a bench says a library takes: the slowest rank's time, whoever says it.
 */
#include "bench/peer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { RANKS = 3, SLOWEST = 2, SLOW_US = 4096 };

static int rank;

/* Of ranks that take no time but for the slowest, whose word comes when it is the root. */
static void run(enum peer_operation what, float *in, float *out, size_t count, int root)
{
    (void)in;
    if (what == BROADCAST && count == 1 && root == SLOWEST && rank != SLOWEST)
        out[0] = SLOW_US;
}

static float *allocate(size_t nbytes)
{
    static float memory[2][1024];
    static int nbuffers;

    assert_true(nbytes <= sizeof memory[0] && nbuffers < 2);
    return memory[nbuffers++];
}

/* What is printed of an all_reduce of 64 bytes, measured on rank 0 of such ranks. */
static double printed_median(void)
{
    char name[] = "peer", operations[] = "all_reduce", sizes[] = "64", budget[] = "1";
    char state[] = "clean", *words[] = {name, operations, sizes, budget, state};
    const struct peer_plan plan = peer_read_plan(5, words);
    struct peer peer = {.name = "some", .size = RANKS, .run = run, .only_moves = 1};
    FILE *file = tmpfile();
    int to = dup(STDOUT_FILENO);
    double median = -1;

    peer.allocate = allocate;
    assert_non_null(file);
    fflush(stdout);
    dup2(fileno(file), STDOUT_FILENO);
    peer_measure(&peer, &plan);
    dup2(to, STDOUT_FILENO);
    close(to);
    rewind(file);
    if (fscanf(file, "some,all_reduce,64,%lf", &median) != 1)
        median = -1;
    fclose(file);
    return median;
}

static void the_slowest_rank_counts(void **state)
{
    (void)state;
    peer_pin(0);
    assert_true(printed_median() == SLOW_US);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(the_slowest_rank_counts)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
