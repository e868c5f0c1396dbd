/* SPDX-License-Identifier: MIT
 *
 * Collectives of GPU memory among several hosts whose ranks reach each other's, on the double of
 * NVIDIA's driver: each rank gives to the host's memory and gets from it its share alone; all
 * shapes, dtypes and ops; the same bits on all ranks; what cannot go that way goes another, on all
 * ranks alike.
 */
#include "bench/call.h"
#include "coll_gpu_division.h"
#include "exam.h"
#include "gpu_double.h"
#include "gpu_hosts.h"
#include "gpu_rank.h"
#include "ranks.h"
#include "reduce.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST_RANKS = 6 };

/* ---- memory ---------------------------------------------------------------------------------- */

static void *make(const void *content, size_t nbytes)
{
    return gpu_rank_memory.make(content, nbytes);
}

static void get(void *content, const void *memory, size_t nbytes)
{
    if (gpu_rank.cuda->copy((uintptr_t)content, (uintptr_t)memory, nbytes, gpu_rank.stream) ||
        gpu_rank.cuda->stream_sync(gpu_rank.stream))
        abort();
}

static void discard(void *memory)
{
    if (gpu_rank.cuda->free((uintptr_t)memory))
        abort();
}

/* ---- exams ----------------------------------------------------------------------------------- */

static const enum ko_collective whats[] = {KO_ALL_REDUCE, KO_REDUCE, KO_BROADCAST, KO_ALL_GATHER,
                                           KO_REDUCE_SCATTER};
enum { NWHATS = sizeof whats / sizeof *whats };

static int take_lengths(kolo_group *group, const size_t *counts, size_t n)
{
    int failed = gpu_rank_enter(group);

    for (int i = 0; i < NWHATS && !failed; i++)
        failed = exam_take_forms(group, whats[i], counts, n, &gpu_rank_memory);
    return gpu_rank_leave(failed);
}

static int take_all_forms(kolo_group *group, void *unused)
{
    static const size_t counts[] = {0, 1, 37, 5003, 20011};

    (void)unused;
    return take_lengths(group, counts, 5);
}

static void all_shapes(void **state)
{
    static const char *const shapes[] = {"ab", "aabb", "aaab", "abbccc", "baab"};

    (void)state;
    for (int i = 0; i < 5; i++)
        gpu_hosts_run_with(i % 2 ? "1" : "3", shapes[i], take_all_forms);
    setenv("KOLO_CUDA_PIECE_BYTES", "1000", 1); /* many pieces */
    gpu_hosts_run("aab", take_all_forms);
    setenv("KOLO_CUDA_PIECE_BYTES", "1M", 1); /* one */
    setenv("KOLO_CHECK", "1", 1);
    gpu_hosts_run_with("3", "baab", take_all_forms);
    unsetenv("KOLO_CHECK");
    setenv("KOLO_CUDA_PIECE_BYTES", "8192", 1);
}

static int take_one_length(kolo_group *group, void *unused)
{
    static const size_t count = 5003;

    (void)unused;
    return take_lengths(group, &count, 1);
}

/* More ranks, and more hosts, than a kernel takes parts; and more on one host, which go whole by
 * way of host memory. */
static void many_ranks(void **state)
{
    (void)state;
    gpu_hosts_run_with("3", "aabcdefghijklmnopq", take_one_length);
    gpu_hosts_run_with("1", "aaaaaaaaaaaaaaabbb", take_one_length);
    gpu_hosts_run_with("1", "aaaaaaaaaaaaaaaaab", take_one_length);
}

static int take_types(kolo_group *group, void *unused)
{
    int failed = gpu_rank_enter(group);

    (void)unused;
    return gpu_rank_leave(failed || exam_take_types(group, 4001, &gpu_rank_memory));
}

static void all_types(void **state)
{
    (void)state;
    gpu_hosts_run("aab", take_types);
    gpu_hosts_run("abab", take_types);
}

/* ---- shares ---------------------------------------------------------------------------------- */

enum { COUNT = 36864, LIMIT = COUNT / 64 };

/* Bytes that a rank of such a host brings to the host and back, of S bytes in all. */
static uint64_t share_of(enum ko_collective what, uint64_t all, uint64_t n, uint64_t mates,
                         bool is_root_here)
{
    switch (what) {
    case KO_ALL_REDUCE:
        return 2 * all / mates;
    case KO_REDUCE:
        return (is_root_here ? 2 : 1) * all / mates;
    case KO_BROADCAST:
        return all / mates;
    case KO_REDUCE_SCATTER:
        return all / mates + all / n;
    default: /* one's own, and a share of those of other hosts */
        return all / n + (all - all / n * mates) / mates;
    }
}

static int count_one(kolo_group *group, enum ko_collective what, const char *hosts, float *in,
                     float *out)
{
    const int rank = kolo_group_rank(group);
    const uint64_t before = gpu_bytes_now().with_host;

    if (call(group, what, in, out, COUNT * sizeof(float)))
        return ranks_fail("%s", ko_collective_name(what));
    return gpu_hosts_expect(group, ko_collective_name(what), hosts, before,
                            share_of(what, COUNT * sizeof(float), strlen(hosts),
                                     gpu_hosts_mates(hosts, rank), hosts[rank] == hosts[0]),
                            LIMIT);
}

static int count_shares(kolo_group *group, void *hosts)
{
    static const float zeros[COUNT];
    int failed = gpu_rank_enter(group);
    float *in = make(zeros, sizeof zeros), *out = make(zeros, sizeof zeros);

    if (gpu_rank.cuda->stream_sync(gpu_rank.stream))
        abort();
    for (int i = 0; i < NWHATS && !failed; i++)
        if (ko_division_suits(whats[i], group->hosts))
            failed = count_one(group, whats[i], hosts, in, out);
    discard(in);
    discard(out);
    return gpu_rank_leave(failed);
}

static void each_rank_stages_its_share(void **state)
{
    (void)state;
    gpu_hosts_run("aabb", count_shares);
    gpu_hosts_run("aaabbb", count_shares);
    gpu_hosts_run("aaaaaaaaabbbbbbbbb", count_shares);
    gpu_hosts_run_with("3", "aabbccddeeffgghhii", count_shares);
}

/* ---- bits ------------------------------------------------------------------------------------ */

enum { LENGTH = 5003 };

/* What any rank has to say of these elements. */
static void write_floats(float *to, int rank)
{
    unsigned seed = (unsigned)rank + 1;

    for (int i = 0; i < LENGTH; i++)
        to[i] = (float)rand_r(&seed) / (float)(1 + rand_r(&seed) % 1000);
}

/* Rank 0's bits are everybody's; is_ordered: those of a sum in the order of the ranks. */
static int compare(kolo_group *group, const void *have, bool is_ordered)
{
    static float parts[MOST_RANKS][LENGTH];
    static unsigned char want[LENGTH * sizeof(float)];
    const void *list[MOST_RANKS];
    struct ko_reduction sum;

    memcpy(want, have, sizeof want);
    if (kolo_broadcast(group, want, LENGTH, KOLO_FLOAT32, 0) ||
        memcmp(want, have, sizeof want) != 0)
        return ranks_fail("other bits than rank 0's");
    for (int r = 0; r < kolo_group_size(group); r++) {
        write_floats(parts[r], r);
        list[r] = parts[r];
    }
    if (ko_reduction_find(KOLO_FLOAT32, KOLO_SUM, &sum))
        return ranks_fail("no sum");
    sum.many(want, list, kolo_group_size(group), LENGTH, 1);
    return !is_ordered || !memcmp(want, have, sizeof want) ? 0 : ranks_fail("another order");
}

static int add_floats(kolo_group *group, void *unused)
{
    static float values[LENGTH];
    int failed = gpu_rank_enter(group);
    const char *is_ordered = getenv("KOLO_DETERMINISTIC");
    void *memory;

    (void)unused;
    write_floats(values, kolo_group_rank(group));
    memory = make(values, sizeof values);
    if (!failed && kolo_all_reduce(group, memory, memory, LENGTH, KOLO_FLOAT32, KOLO_SUM))
        failed = ranks_fail("all_reduce");
    get(values, memory, sizeof values);
    discard(memory);
    return gpu_rank_leave(failed || compare(group, values, is_ordered));
}

static void bits_are_the_same(void **state)
{
    (void)state;
    gpu_hosts_run("aabb", add_floats);
    gpu_hosts_run("abbccc", add_floats);
    setenv("KOLO_DETERMINISTIC", "1", 1);
    gpu_hosts_run("abab", add_floats);
    unsetenv("KOLO_DETERMINISTIC");
}

/* ---- factors --------------------------------------------------------------------------------- */

/* Sums of rank + 1, times as much. */
static int scale(kolo_group *group, void *unused)
{
    static float values[LENGTH];
    const int n = kolo_group_size(group), own = kolo_group_rank(group) + 1;
    const int squares = n * (n + 1) * (2 * n + 1) / 6;
    int failed = gpu_rank_enter(group);
    kolo_op op = KOLO_SUM;
    void *memory;

    (void)unused;
    for (int i = 0; i < LENGTH; i++)
        values[i] = (float)own;
    memory = make(values, sizeof values);
    if (!failed && (kolo_op_premul_sum(group, own, &op) ||
                    kolo_all_reduce(group, memory, memory, LENGTH, KOLO_FLOAT32, op)))
        failed = ranks_fail("all_reduce");
    get(values, memory, sizeof values);
    for (int i = 0; i < LENGTH && !failed; i++)
        if (values[i] != (float)squares)
            failed = ranks_fail("element %d is %g", i, (double)values[i]);
    discard(memory);
    return gpu_rank_leave(failed);
}

static void factors(void **state)
{
    (void)state;
    gpu_hosts_run("ab", scale);
    gpu_hosts_run("aabb", scale);
    gpu_hosts_run("abbccc", scale);
}

/* ---- other ways ------------------------------------------------------------------------------ */

/* In turns each rank has its buffers in host memory. */
static int mix_ranks(kolo_group *group, void *unused)
{
    const int n = kolo_group_size(group);
    int failed = gpu_rank_enter(group);

    (void)unused;
    for (int i = 0; i < 2 * n && !failed; i++) {
        const struct exam exam = {.what = whats[i % NWHATS],
                                  .dtype = KOLO_INT64,
                                  .op = KOLO_SUM,
                                  .count = 3001,
                                  .memory =
                                      i % n == kolo_group_rank(group) ? NULL : &gpu_rank_memory};

        failed = exam_take(group, &exam);
    }
    return gpu_rank_leave(failed);
}

/* The same memory again and again. */
static int reduce_again(kolo_group *group)
{
    static int ones[LENGTH];
    const int n = kolo_group_size(group);
    int failed = gpu_rank_enter(group), want = 1;
    void *memory;

    for (int i = 0; i < LENGTH; i++)
        ones[i] = 1;
    memory = make(ones, sizeof ones);
    for (int i = 0; i < 3 && !failed; i++, want *= n)
        if (kolo_all_reduce(group, memory, memory, LENGTH, KOLO_INT32, KOLO_SUM))
            failed = ranks_fail("all_reduce");
    get(ones, memory, sizeof ones);
    for (int i = 0; i < LENGTH && !failed; i++)
        if (ones[i] != want)
            failed = ranks_fail("element %d is %d, not %d", i, ones[i], want);
    discard(memory);
    return gpu_rank_leave(failed);
}

/* Rank 1 cannot open what others have, whose ranks know it then; it can what they have next. */
static int reach_less(kolo_group *group, void *unused)
{
    int failed = 0;

    if (kolo_group_rank(group) == 1)
        setenv("FAKECUDA_BREAK", "cuIpcOpenMemHandle=1", 1);
    failed = reduce_again(group) || take_all_forms(group, unused);
    unsetenv("FAKECUDA_BREAK");
    return failed || kolo_group_set_stream(group, NULL) || kolo_barrier(group) ||
           reduce_again(group) || take_all_forms(group, unused);
}

/* Of rank 0's other buffer, which rank 1 cannot open, the other host's ranks learn once, when all
 * else is known. */
static int move_one(kolo_group *group, void *unused)
{
    static const int zeros[LENGTH];
    const int rank = kolo_group_rank(group);
    int failed = gpu_rank_enter(group);
    void *memory = make(zeros, sizeof zeros), *other = make(zeros, sizeof zeros);

    (void)unused;
    for (int i = 0; i < 5 && !failed; i++) {
        void *buffer = rank == 0 && i % 4 ? other : memory;

        if (rank == 1 && i == 1)
            setenv("FAKECUDA_BREAK", "cuIpcOpenMemHandle=1", 1);
        if (kolo_all_reduce(group, buffer, buffer, LENGTH, KOLO_INT32, KOLO_SUM))
            failed = ranks_fail("call %d", i);
    }
    unsetenv("FAKECUDA_BREAK");
    discard(memory);
    discard(other);
    return gpu_rank_leave(failed);
}

/* Rank 2 has its host to itself, and opens nobody's memory: the others have two shares of three and
 * one, where a whole buffer goes there and back for each of three calls, and for the test itself.
 */
static int open_nothing(kolo_group *group, void *unused)
{
    uint64_t have;
    int failed;

    (void)unused;
    if (kolo_group_rank(group) == 2)
        setenv("FAKECUDA_BREAK", "cuIpcOpenMemHandle=1", 1);
    failed = reduce_again(group);
    have = gpu_bytes_now().with_host;
    return failed || kolo_group_rank(group) == 2 || have < 2 * (3 + 1) * LENGTH * sizeof(int)
               ? failed
               : ranks_fail("%zu bytes were copied", (size_t)have);
}

static void what_cannot_be_shared(void **state)
{
    static const char *const ways[][2] = {{"KOLO_CUDA_IPC", "off"},
                                          {"KOLO_CUDA_PEERS", "0"},
                                          {"FAKECUDA_PEERS", "1"},
                                          {"FAKECUDA_BREAK", "cuLibraryLoadData=218"}};

    (void)state;
    gpu_hosts_run("aabb", mix_ranks);
    gpu_hosts_run("aabb", reach_less);
    gpu_hosts_run("aabb", move_one);
    gpu_hosts_run("aab", open_nothing);
    for (int i = 0; i < 4; i++) {
        setenv(ways[i][0], ways[i][1], 1);
        gpu_hosts_run("aabb", mix_ranks);
        unsetenv(ways[i][0]);
    }
}

/* ---- memory in pieces ------------------------------------------------------------------------ */

enum { PIECE = 8192, PIECES = 5 };

/* Descriptors are handed to the ranks of the host alone. */
static int reduce_pieces(kolo_group *group, void *hosts)
{
    static const float zeros[PIECES * PIECE / sizeof(float)];
    const int count = PIECES * PIECE / (int)sizeof(float);
    int failed = gpu_rank_enter(group);
    const uint64_t share = 2 * sizeof zeros / (strlen(hosts) / 2); /* of two hosts */
    uint64_t before = 0;
    ko_cu_ptr base;

    if (failed || gpu_rank.cuda->addresses_reserve(&base, PIECES * PIECE, 0, 0, 0))
        return 1;
    gpu_rank_map(base, PIECE, PIECES, KO_CU_HANDLE_DESCRIPTOR);
    if (gpu_rank.cuda->copy(base, (uintptr_t)zeros, sizeof zeros, gpu_rank.stream) ||
        gpu_rank.cuda->stream_sync(gpu_rank.stream))
        failed = 1;
    before = gpu_bytes_now().with_host;
    if (!failed && kolo_all_reduce(group, (void *)(uintptr_t)base, (void *)(uintptr_t)base,
                                   (size_t)count, KOLO_FLOAT32, KOLO_SUM))
        failed = ranks_fail("all_reduce");
    if (!failed && gpu_bytes_now().with_host - before > share + LIMIT)
        failed = ranks_fail("more than a share was copied");
    return gpu_rank_leave(failed);
}

static void memory_in_pieces(void **state)
{
    (void)state;
    gpu_hosts_run("aabb", reduce_pieces);
    gpu_hosts_run("aaabbb", reduce_pieces);
}

/* ---- wrong calls ----------------------------------------------------------------------------- */

/* One of them too short to be divided. */
static int call_otherwise(kolo_group *group, void *unused)
{
    static const float zeros[LENGTH];
    const size_t count = kolo_group_rank(group) == 1 ? 5 : LENGTH;
    int failed = gpu_rank_enter(group);
    void *memory = make(zeros, sizeof zeros);

    (void)unused;
    if (!failed &&
        kolo_all_reduce(group, memory, memory, count, KOLO_FLOAT32, KOLO_SUM) != KOLO_E_MISMATCH)
        failed = ranks_fail("no mismatch");
    return gpu_rank_leave(failed);
}

static void mismatches(void **state)
{
    (void)state;
    gpu_hosts_run("aab", call_otherwise);
}

/* A capture fails, and the group goes on. */
static int capture(kolo_group *group, void *unused)
{
    static const float zeros[LENGTH];
    int failed = gpu_rank_enter(group);
    void *memory = make(zeros, sizeof zeros);
    ko_cu_graph_exec exec;

    if (failed || gpu_rank.cuda->stream_sync(gpu_rank.stream) || gpu_rank_capture())
        return 1;
    failed = ranks_expect(kolo_all_reduce(group, memory, memory, LENGTH, KOLO_FLOAT32, KOLO_SUM),
                          KOLO_E_UNSUPPORTED, "goes by way of the host") ||
             ranks_expect(kolo_send(group, memory, LENGTH, KOLO_FLOAT32, 0, 0), KOLO_E_UNSUPPORTED,
                          "on several hosts");
    failed = gpu_rank_captured(&exec) || gpu_rank.cuda->graph_exec_destroy(exec) || failed;
    if (!failed && kolo_all_reduce(group, memory, memory, LENGTH, KOLO_FLOAT32, KOLO_SUM))
        failed = ranks_fail("the call behind");
    discard(memory);
    (void)unused;
    return gpu_rank_leave(failed);
}

static void graphs_are_refused(void **state)
{
    (void)state;
    gpu_hosts_run("aab", capture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_rank_stages_its_share),
        cmocka_unit_test(all_shapes),
        cmocka_unit_test(many_ranks),
        cmocka_unit_test(all_types),
        cmocka_unit_test(bits_are_the_same),
        cmocka_unit_test(factors),
        cmocka_unit_test(what_cannot_be_shared),
        cmocka_unit_test(memory_in_pieces),
        cmocka_unit_test(mismatches),
        cmocka_unit_test(graphs_are_refused),
    };

    setenv("FAKECUDA_JITTER", "50", 1);
    setenv("KOLO_CUDA_PIECE_BYTES", "8192", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
