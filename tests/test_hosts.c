/* SPDX-License-Identifier: MIT
 *
 * Groups over several hosts, which are network namespaces here: results are exact, ranks of one
 * host share memory, and no more goes over the wire than the bound says.
 */
#include "exam.h"
#include "networks.h"
#include "ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

enum { MOST_RANKS = 8, COUNT = 1 << 20 };

/* host[r] is where rank r sits. */
struct shape {
    int n, nhosts;
    int host[MOST_RANKS];
};

struct stay {
    const struct shape *shape;
    struct networks networks;
};

static int settle(int rank, void *argument)
{
    const struct stay *stay = argument;

    return networks_enter(&stay->networks, stay->shape->host[rank]);
}

static bool is_first_of_host(const struct shape *shape, int rank)
{
    for (int r = 0; r < rank; r++)
        if (shape->host[r] == shape->host[rank])
            return false;
    return true;
}

static int check_sum(kolo_group *group, float *values)
{
    const int rank = kolo_group_rank(group), n = kolo_group_size(group);

    for (size_t i = 0; i < COUNT; i++)
        values[i] = (float)(i % 1000) + (float)rank;
    if (kolo_all_reduce(group, values, values, COUNT, KOLO_FLOAT32, KOLO_SUM))
        return ranks_fail("all_reduce failed");
    for (size_t i = 0; i < COUNT; i++) {
        const float sum = (float)n * (float)(i % 1000) + (float)(n * (n - 1) / 2);

        if (values[i] != sum)
            return ranks_fail("element %zu is %f, not %f", i, (double)values[i], (double)sum);
    }
    return 0;
}

/* Each host has to send 2 (hosts - 1) / hosts of the buffer at least (Patarasuk and Yuan 2009, with
 * hosts for ranks); frames, acknowledgements and the barrier may add a twentieth. */
static int check_traffic(const struct shape *shape, uint64_t sent)
{
    const double nbytes = COUNT * sizeof(float), hosts = shape->nhosts;
    const double bound = 2 * (hosts - 1) / hosts * nbytes;

    if ((double)sent < bound || (double)sent > 1.05 * bound)
        return ranks_fail("a host sent %.0f bytes, the bound is %.0f", (double)sent, bound);
    return 0;
}

static int count_traffic(kolo_group *group, void *argument)
{
    const struct stay *stay = argument;
    float *values = malloc(COUNT * sizeof *values);
    uint64_t before;
    int failed;

    if (!values)
        return ranks_fail("no memory");
    failed = check_sum(group, values) || kolo_barrier(group); /* opens the links */
    before = networks_sent();
    failed = failed || kolo_barrier(group) || check_sum(group, values) || kolo_barrier(group);
    if (!failed && is_first_of_host(stay->shape, kolo_group_rank(group)))
        failed = check_traffic(stay->shape, networks_sent() - before);
    free(values);
    return failed;
}

static void run(const struct shape *shape)
{
    struct stay stay = {.shape = shape};
    char address[32];
    const struct ranks ranks = {.kind = RANKS_PROCESSES,
                                .n = shape->n,
                                .settle = settle,
                                .store = networks_address(shape->host[0], address, sizeof address)};
    int failed;

    if (networks_open(&stay.networks, shape->nhosts))
        skip();
    setenv("KOLO_ALGO", "all_reduce=hierarchical", 1);
    failed = ranks_run(&ranks, count_traffic, &stay);
    unsetenv("KOLO_ALGO");
    networks_close(&stay.networks);
    assert_int_equal(failed, 0);
}

static void two_hosts(void **state)
{
    const struct shape even = {4, 2, {0, 0, 1, 1}}, uneven = {4, 2, {0, 0, 0, 1}};

    (void)state;
    run(&even);
    run(&uneven);
}

static void three_hosts(void **state)
{
    const struct shape mixed = {6, 3, {0, 1, 2, 0, 1, 0}};

    (void)state;
    run(&mixed);
}

/* ---- hosts by name: no root needed ----------------------------------------------------------- */

static int settle_by_name(int rank, void *argument)
{
    const struct shape *shape = argument;
    const char name[] = {(char)('a' + shape->host[rank]), 0};

    return setenv("KOLO_HOST", name, 1);
}

static int take_exams(kolo_group *group, void *argument)
{
    const size_t n = (size_t)kolo_group_size(group);
    const size_t counts[] = {0, 1, n - 1, n, n + 1, 211, 20011};
    int failed = 0;

    (void)argument;
    for (int what = 0; what < KO_NCOLLECTIVES && !failed; what++)
        for (size_t i = 0; i < sizeof counts / sizeof *counts && !failed; i++)
            for (unsigned how = 0; how < 4 && !failed; how++) {
                const struct exam exam = {
                    .what = (enum ko_collective)what,
                    .dtype = how & 2 ? KOLO_BFLOAT16 : KOLO_INT32,
                    .op = how & 2 ? KOLO_AVG : KOLO_SUM,
                    .count = counts[i],
                    .root = exam_has_root((enum ko_collective)what) ? (int)(i % n) : 0,
                    .is_in_place = how & 1};

                failed = exam_take(group, &exam);
            }
    return failed;
}

static void every_collective_over_named_hosts(void **state)
{
    const struct shape shapes[] = {{5, 2, {0, 0, 1, 1, 1}}, {6, 3, {0, 1, 2, 1, 0, 1}}};

    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct shape shape = shapes[i];
        const struct ranks ranks = {
            .kind = RANKS_PROCESSES, .n = shape.n, .settle = settle_by_name};

        assert_int_equal(ranks_run(&ranks, take_exams, &shape), 0);
        setenv("KOLO_ALGO", "hierarchical", 1);
        assert_int_equal(ranks_run(&ranks, take_exams, &shape), 0);
        unsetenv("KOLO_ALGO");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_hosts),
        cmocka_unit_test(three_hosts),
        cmocka_unit_test(every_collective_over_named_hosts),
    };

    setenv("KOLO_DEBUG", "WARN", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
