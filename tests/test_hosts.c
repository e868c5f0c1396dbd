/* SPDX-License-Identifier: MIT
 *
 * Groups over several hosts, which are network namespaces here: results are exact, ranks of one
 * host share memory, and no more goes over the wire than the bound says.
 */
#include "exam.h"
#include "folder.h"
#include "networks.h"
#include "ranks.h"
#include "transport.h"
#include "tuning.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

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
    bool wastes; /* by an algorithm that knows nothing of hosts */
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

static int size_of(const struct shape *shape, int host)
{
    int size = 0;

    for (int r = 0; r < shape->n; r++)
        size += shape->host[r] == host;
    return size;
}

/* Elements that a host has to send at least if the root is rank 0, on host 0, and the hosts stand
 * in a row; of all_reduce see Patarasuk and Yuan 2009, with hosts for ranks. */
static double least(const struct shape *shape, const struct exam *exam, int host)
{
    const double count = (double)exam->count;
    const int n = shape->nhosts, next = (host + 1) % n;

    switch (exam->what) {
    case KO_ALL_REDUCE:
        return 2 * count * (n - 1) / n;
    case KO_REDUCE:
        return host ? count : 0;
    case KO_BROADCAST:
        return next ? count : 0;
    case KO_ALL_GATHER:
        return count * (shape->n - size_of(shape, next));
    default:
        return count * (shape->n - size_of(shape, host));
    }
}

/* Beside the buffers themselves a slice of 128 KiB has 64 bytes in front of it, and one that is cut
 * short at the edge of a chunk the same; the rest is room for barriers and what TCP acknowledges
 * out of order. */
static double with_frames(double nbytes)
{
    return nbytes + nbytes / 1024 + 2048;
}

static int check_traffic(const struct stay *stay, const struct exam *exam, int host,
                         const struct networks_traffic *before)
{
    const struct networks_payload sent = networks_payload(before);
    const double bound = least(stay->shape, exam, host) * sizeof(int32_t);
    const bool is_more = (double)sent.least > with_frames(bound);

    if ((double)sent.most < bound || is_more != stay->wastes)
        return ranks_fail("in %s host %d sent %.0f to %.0f bytes, the bound is %.0f",
                          ko_collective_name(exam->what), host, (double)sent.least,
                          (double)sent.most, bound);
    return 0;
}

static int count_traffic(kolo_group *group, void *argument)
{
    static const enum ko_collective whats[] = {KO_ALL_REDUCE, KO_REDUCE, KO_BROADCAST,
                                               KO_ALL_GATHER, KO_REDUCE_SCATTER};
    const struct stay *stay = argument;
    const int rank = kolo_group_rank(group), n = kolo_group_size(group);
    int failed = 0;

    for (size_t i = 0; i < (stay->wastes ? 1 : sizeof whats / sizeof *whats) && !failed; i++) {
        const bool has_blocks = whats[i] == KO_ALL_GATHER || whats[i] == KO_REDUCE_SCATTER;
        const struct exam exam = {.what = whats[i],
                                  .dtype = KOLO_INT32,
                                  .op = KOLO_SUM,
                                  .count = has_blocks ? (size_t)(COUNT / n) : COUNT};
        struct networks_traffic before;

        failed = exam_take(group, &exam) || kolo_barrier(group); /* opens the links */
        before = networks_traffic();
        failed = failed || kolo_barrier(group) || exam_take(group, &exam) || kolo_barrier(group);
        if (!failed && is_first_of_host(stay->shape, rank))
            failed = check_traffic(stay, &exam, stay->shape->host[rank], &before);
        failed = failed || kolo_barrier(group);
    }
    return failed;
}

/* With a variable that says how. */
static void run_with(const char *variable, const char *value, const struct shape *shape,
                     bool wastes)
{
    struct stay stay = {.shape = shape, .wastes = wastes};
    char address[32];
    const struct ranks ranks = {.kind = RANKS_PROCESSES,
                                .n = shape->n,
                                .settle = settle,
                                .store = networks_address(shape->host[0], address, sizeof address)};
    int failed;

    if (networks_open(&stay.networks, shape->nhosts))
        skip();
    setenv(variable, value, 1);
    setenv("KOLO_AUTH_TOKEN", "the token of this test", 1);
    failed = ranks_run(&ranks, count_traffic, &stay);
    unsetenv("KOLO_AUTH_TOKEN");
    unsetenv(variable);
    networks_close(&stay.networks);
    assert_int_equal(failed, 0);
}

static const struct shape even = {4, 2, {0, 0, 1, 1}}, uneven = {4, 2, {0, 0, 0, 1}};
static const struct shape dealt = {4, 2, {0, 1, 0, 1}}, mixed = {6, 3, {0, 1, 2, 0, 1, 0}};

static void two_hosts(void **state)
{
    (void)state;
    run_with("KOLO_ALGO", "hierarchical", &even, false);
    run_with("KOLO_ALGO", "hierarchical", &uneven, false);
    run_with("KOLO_ALGO", "hierarchical", &dealt, false);
}

static void three_hosts(void **state)
{
    (void)state;
    run_with("KOLO_ALGO", "hierarchical", &mixed, false);
}

/* Where the wire is what costs time, a long call is one that spares it. */
static void what_is_chosen_spares_a_slow_wire(void **state)
{
    struct ko_costs costs;

    (void)state;
    ko_tuning_usual(&costs);
    costs.links[KO_REMOTE].wire_byte = 8e-3; /* 1 Gbit/s */
    assert_int_equal(ko_tuning_write(folder_path("costs"), &costs), 0);
    run_with("KOLO_TUNING", folder_path("costs"), &even, false);
    run_with("KOLO_TUNING", folder_path("costs"), &uneven, false);
    run_with("KOLO_TUNING", folder_path("costs"), &dealt, false);
    run_with("KOLO_TUNING", folder_path("costs"), &mixed, false);
}

/* The count would not miss it: a ring that goes from host to host and back sends more. */
static void a_ring_among_hosts_wastes(void **state)
{
    (void)state;
    run_with("KOLO_ALGO", "all_reduce=ring", &dealt, true);
    run_with("KOLO_ALGO", "all_reduce=ring", &mixed, true);
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
            for (unsigned how = 0; how < 8 && !failed; how++) {
                const struct exam exam = {
                    .what = (enum ko_collective)what,
                    .dtype = how & 2 ? KOLO_BFLOAT16 : KOLO_INT32,
                    .op = how & 2 ? KOLO_AVG : KOLO_SUM,
                    .count = counts[i],
                    .root = exam_has_root((enum ko_collective)what) ? (int)(i % n) : 0,
                    .is_in_place = how & 1,
                    .is_uneven = how & 4 && exam_can_be_uneven((enum ko_collective)what)};

                failed = exam_take(group, &exam);
            }
    return failed;
}

static void every_collective_over_named_hosts(void **state)
{
    static const char *const algorithms[] = {"hierarchical", "hierarchical_doubling",
                                             "hierarchical_tree"};
    const struct shape shapes[] = {{5, 2, {0, 0, 1, 1, 1}}, {6, 3, {0, 1, 2, 1, 0, 1}}};

    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct shape shape = shapes[i];
        const struct ranks ranks = {
            .kind = RANKS_PROCESSES, .n = shape.n, .settle = settle_by_name};

        assert_int_equal(ranks_run(&ranks, take_exams, &shape), 0);
        for (size_t k = 0; k < sizeof algorithms / sizeof *algorithms; k++) {
            setenv("KOLO_ALGO", algorithms[k], 1);
            assert_int_equal(ranks_run(&ranks, take_exams, &shape), 0);
        }
        unsetenv("KOLO_ALGO");
    }
}

/* Where some rank of a host could share memory with another. */
struct lengths {
    struct shape shape;
    bool are_of_slots;
};

static int look_at_slices(kolo_group *group, void *argument)
{
    const struct lengths *lengths = argument;
    const uint32_t slot = group->endpoint->own.slice_bytes;
    const size_t want = lengths->are_of_slots ? slot : ko_message_bytes(slot);
    int err = kolo_barrier(group);

    return !err && ko_group_slice_bytes(group) == want ? 0 : ranks_fail("not %zu bytes", want);
}

/* Slices of which none goes through a slot may be longer. */
static void slices_are_as_long_as_all_links_allow(void **state)
{
    static const struct lengths all[] = {{{2, 2, {0, 1}}, false}, {{3, 2, {0, 1, 0}}, true}};

    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct lengths lengths = all[i];
        const struct ranks ranks = {
            .kind = RANKS_PROCESSES, .n = lengths.shape.n, .settle = settle_by_name};

        assert_int_equal(ranks_run(&ranks, look_at_slices, &lengths), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_hosts),
        cmocka_unit_test(three_hosts),
        cmocka_unit_test(what_is_chosen_spares_a_slow_wire),
        cmocka_unit_test(a_ring_among_hosts_wastes),
        cmocka_unit_test(every_collective_over_named_hosts),
        cmocka_unit_test(slices_are_as_long_as_all_links_allow),
    };

    setenv("KOLO_DEBUG", "WARN", 1);
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
