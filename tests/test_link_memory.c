/* SPDX-License-Identifier: MIT
 *
 * What links cost: a rank has one for each peer that its algorithms have met, and shared memory for
 * each, so that a tree among many ranks needs little. Counted in groups of up to 128 threads, and
 * compared with what the process has mapped.
 */
#include "group.h"
#include "ranks.h"
#include "sanitized.h"
#include "window.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { MOST_RANKS = IS_SANITIZED ? 32 : 128 };
enum { SLOTS = 2, SLICE_BYTES = 1000, COUNT = 600 };

/* What a group has, when all its ranks have made their calls. */
struct usage {
    pthread_barrier_t done, counted;
    int links[MOST_RANKS];
    size_t mapped; /* bytes of shared segments in this process */
};

static int call_all_reduce(kolo_group *group, const float *in, float *out)
{
    return kolo_all_reduce(group, in, out, COUNT, KOLO_FLOAT32, KOLO_SUM);
}

static int call_tree(kolo_group *group, const float *in, float *out)
{
    int err = call_all_reduce(group, in, out);

    if (!err)
        err = kolo_reduce(group, in, out, COUNT, KOLO_FLOAT32, KOLO_SUM, 0);
    return err ? err : kolo_broadcast(group, out, COUNT, KOLO_FLOAT32, 0);
}

static int call_all_to_all(kolo_group *group, const float *in, float *out)
{
    return kolo_all_to_all(group, in, out, COUNT / MOST_RANKS, KOLO_FLOAT32);
}

struct task {
    const char *algorithm;
    int (*call)(kolo_group *group, const float *in, float *out);
    struct usage usage;
};

static size_t mapped_bytes(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    unsigned long from, to;
    size_t nbytes = 0;
    char line[512];

    while (maps && fgets(line, sizeof line, maps))
        if (strstr(line, "/memfd:kolo") && sscanf(line, "%lx-%lx", &from, &to) == 2)
            nbytes += to - from;
    if (maps)
        fclose(maps);
    return nbytes;
}

static int run_rank(kolo_group *group, void *argument)
{
    struct task *task = argument;
    const int rank = kolo_group_rank(group);
    float in[COUNT], out[COUNT] = {0};
    int err, nlinks = 0;

    for (int i = 0; i < COUNT; i++)
        in[i] = 1;
    err = task->call(group, in, out);
    for (int peer = 0; peer < group->size; peer++)
        nlinks += group->collectives.ports[peer].is_open;
    task->usage.links[rank] = nlinks;
    pthread_barrier_wait(&task->usage.done);
    if (rank == 0)
        task->usage.mapped = mapped_bytes();
    pthread_barrier_wait(&task->usage.counted);
    return err ? ranks_fail("rank %d's calls", rank) : 0;
}

/* Runs the task among n threads; what all links together map is theirs and nothing else. */
static int count_links(struct task *task, int n)
{
    const struct ranks ranks = {.kind = RANKS_THREADS, .n = n};
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t segment = (ko_window_bytes(SLOTS, SLICE_BYTES) + page - 1) / page * page;
    int all = 0;

    setenv("KOLO_ALGO", task->algorithm, 1);
    pthread_barrier_init(&task->usage.done, NULL, (unsigned)n);
    pthread_barrier_init(&task->usage.counted, NULL, (unsigned)n);
    assert_int_equal(ranks_run(&ranks, run_rank, task), 0);
    pthread_barrier_destroy(&task->usage.done);
    pthread_barrier_destroy(&task->usage.counted);
    for (int rank = 0; rank < n; rank++)
        all += task->usage.links[rank];
    assert_int_equal(task->usage.mapped, (size_t)all * segment);
    assert_int_equal(mapped_bytes(), 0);
    return all;
}

static int most_of(const struct task *task, int n)
{
    int most = 0;

    for (int rank = 0; rank < n; rank++)
        most = task->usage.links[rank] > most ? task->usage.links[rank] : most;
    return most;
}

/* The least k so that base^k >= n. */
static int log_of(int base, int n)
{
    int k = 0;

    for (int power = 1; power < n; power *= base)
        k++;
    return k;
}

static const int group_sizes[] = {2, 3, 8, 13, 32, MOST_RANKS};
enum { NSIZES = sizeof group_sizes / sizeof *group_sizes };

/* A link for each edge at each end; the root has the most, one for each step. */
static void trees(void **state)
{
    (void)state;
    for (int i = 0; i < NSIZES; i++) {
        struct task task = {.algorithm = "binomial", .call = call_tree};
        const int n = group_sizes[i];

        assert_int_equal(count_links(&task, n), 2 * (n - 1));
        assert_int_equal(task.usage.links[0], log_of(2, n));
        assert_int_equal(most_of(&task, n), log_of(2, n));
    }
}

static void wide_trees(void **state)
{
    (void)state;
    for (int i = 0; i < NSIZES; i++) {
        struct task task = {.algorithm = "knomial", .call = call_tree};
        const int n = group_sizes[i];

        assert_int_equal(count_links(&task, n), 2 * (n - 1));
        assert_true(most_of(&task, n) <= 3 * log_of(4, n));
    }
}

/* Two trees whose ranks have a parent and two children each, however many there are. */
static void double_trees(void **state)
{
    (void)state;
    for (int i = 0; i < NSIZES; i++) {
        struct task task = {.algorithm = "double_tree", .call = call_tree};
        const int n = group_sizes[i];

        assert_true(count_links(&task, n) <= 4 * n);
        assert_true(most_of(&task, n) <= 6);
    }
}

static void doubling(void **state)
{
    struct task task = {.algorithm = "doubling", .call = call_all_reduce};

    (void)state;
    assert_int_equal(count_links(&task, MOST_RANKS), MOST_RANKS * log_of(2, MOST_RANKS));
    assert_int_equal(most_of(&task, MOST_RANKS), log_of(2, MOST_RANKS));
}

static void ring(void **state)
{
    struct task task = {.algorithm = "ring", .call = call_all_reduce};

    (void)state;
    assert_int_equal(count_links(&task, MOST_RANKS), 2 * MOST_RANKS);
    assert_int_equal(most_of(&task, MOST_RANKS), 2);
}

/* Who meets everybody has a link to everybody. */
static void everybody(void **state)
{
    struct task task = {.algorithm = "pairwise", .call = call_all_to_all};
    const int n = 24;

    (void)state;
    assert_int_equal(count_links(&task, n), n * (n - 1));
    assert_int_equal(most_of(&task, n), n - 1);
}

/* One that meets nobody has none. */
static int call_nothing(kolo_group *group, const float *in, float *out)
{
    (void)group;
    (void)in;
    (void)out;
    return KOLO_OK;
}

static void nobody(void **state)
{
    struct task task = {.algorithm = "ring", .call = call_nothing};

    (void)state;
    assert_int_equal(count_links(&task, MOST_RANKS), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trees),    cmocka_unit_test(wide_trees), cmocka_unit_test(double_trees),
        cmocka_unit_test(doubling), cmocka_unit_test(ring),       cmocka_unit_test(everybody),
        cmocka_unit_test(nobody),
    };
    char number[16];

    snprintf(number, sizeof number, "%d", SLOTS);
    setenv("KOLO_SLOTS", number, 1);
    snprintf(number, sizeof number, "%d", SLICE_BYTES);
    setenv("KOLO_SLICE_BYTES", number, 1);
    setenv("KOLO_TRANSPORT", "shm", 1);
    setenv("KOLO_DEBUG", "NONE", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
