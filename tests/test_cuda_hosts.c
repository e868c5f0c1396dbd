/* SPDX-License-Identifier: MIT
 *
 * Collectives of buffers in GPU memory among ranks of several hosts, on the double of NVIDIA's
 * driver: in pieces, of which one crosses while the next comes from the GPU and the one before goes
 * back; with ranks whose buffers are in host memory, or that have no GPU; no more goes over the
 * wire than has to.
 */
#include "coll_gpu_pieces.h"
#include "exam.h"
#include "gpu_double.h"
#include "gpu_rank.h"
#include "networks.h"
#include "ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SLICE_BYTES = 4096, PIECE_BYTES = 8192 };

static int settle(int rank, void *argument)
{
    (void)argument;
    return setenv("KOLO_HOST", rank % 2 ? "north" : "south", 1);
}

static void run(enum ranks_kind kind, int n, ranks_body body)
{
    const struct ranks ranks = {
        .kind = kind, .n = n, .settle = kind == RANKS_PROCESSES ? settle : NULL};

    exam_set_variables(kind == RANKS_PROCESSES ? "shm,tcp" : "shm", "", SLICE_BYTES);
    assert_int_equal(ranks_run(&ranks, body, NULL), 0);
}

/* ---- exams ----------------------------------------------------------------------------------- */

static int take(kolo_group *group, enum ko_collective what, const struct exam_memory *memory)
{
    static const size_t counts[] = {1, PIECE_BYTES / 4, 5003, 20011};
    int failed = 0;

    for (unsigned i = 0; i < 4 * 4 && !failed; i++) {
        const struct exam exam = {.what = what,
                                  .dtype = i % 3 ? KOLO_INT32 : KOLO_BFLOAT16,
                                  .op = KOLO_SUM,
                                  .count = counts[i / 4],
                                  .root = (int)(i / 3) % kolo_group_size(group),
                                  .is_in_place = i & 1,
                                  .is_async = i & 2,
                                  .is_uneven = i % 5 == 4 && exam_can_be_uneven(what),
                                  .shift = i % 3 * 4,
                                  .memory = memory};

        failed = exam_take(group, &exam);
    }
    return failed;
}

static int take_all(kolo_group *group, const struct exam_memory *memory)
{
    int failed = 0;

    for (int what = 0; what < KO_NCOLLECTIVES && !failed; what++)
        failed = take(group, (enum ko_collective)what, memory);
    return failed;
}

static int on_gpus(kolo_group *group, void *unused)
{
    int failed = gpu_rank_enter(group);

    (void)unused;
    return gpu_rank_leave(failed || take_all(group, &gpu_rank_memory));
}

/* Rank 1 has its buffers in host memory. */
static int on_some_gpus(kolo_group *group, void *unused)
{
    int failed = gpu_rank_enter(group);

    (void)unused;
    return gpu_rank_leave(failed ||
                          take_all(group, kolo_group_rank(group) == 1 ? NULL : &gpu_rank_memory));
}

/* Rank 0 has no GPU. */
static int some_without(kolo_group *group, void *unused)
{
    if (kolo_group_rank(group))
        return on_gpus(group, unused);
    return gpu_rank_enter_without(group) || take_all(group, NULL);
}

static void all_collectives(void **state)
{
    (void)state;
    for (int n = 2; n <= 4; n++)
        run(RANKS_PROCESSES, n, on_gpus);
    run(RANKS_PROCESSES, 3, on_some_gpus);
    run(RANKS_PROCESSES, 3, some_without);
}

/* ---- overlap --------------------------------------------------------------------------------- */

enum { PIECES = 7, ELEMENTS = PIECES * PIECE_BYTES / 4 - 100 };

static struct {
    uint64_t before;
    int npieces;
} seen;

static uint64_t bytes_of(int npieces)
{
    return npieces < PIECES ? (uint64_t)npieces * PIECE_BYTES : ELEMENTS * sizeof(int);
}

/* What a piece's way between the ranks is here: it takes until the next one has come from the GPU,
 * and the one before has gone back. */
static int cross(kolo_group *group, const struct ko_call *call)
{
    const int k = seen.npieces++;
    const uint64_t want = bytes_of(k + 2) + bytes_of(k);
    int *out = call->out;

    if (call->count > PIECE_BYTES / sizeof(int) || call->is_on_gpu)
        return ko_group_fail(group, KOLO_E_INTERNAL, "this is no piece");
    for (int i = 0; gpu_bytes_now().with_host - seen.before < want; i++) {
        if (i == 10000)
            return ko_group_fail(group, KOLO_E_INTERNAL, "nothing comes or goes meanwhile");
        ranks_nap_ms(1);
    }
    for (size_t i = 0; i < call->count; i++)
        out[i] = 2 * ((const int *)call->in)[i];
    return gpu_bytes_now().with_host - seen.before == want
               ? KOLO_OK
               : ko_group_fail(group, KOLO_E_INTERNAL, "more has come or gone than may");
}

static int watch_pieces(kolo_group *group, void *unused)
{
    static int content[ELEMENTS];
    struct ko_call call = {.what = KO_ALL_REDUCE,
                           .count = ELEMENTS,
                           .dtype = KOLO_INT32,
                           .op = KOLO_SUM,
                           .is_on_gpu = true};
    int failed = gpu_rank_enter(group);

    (void)unused;
    for (int i = 0; i < ELEMENTS; i++)
        content[i] = i;
    call.out = gpu_rank_memory.make(content, sizeof content);
    call.in = call.out;
    if (failed || gpu_rank.cuda->stream_sync(gpu_rank.stream))
        return ranks_fail("the stream");
    seen.before = gpu_bytes_now().with_host;
    if (ko_coll_run_by_host(group, &call, cross) || seen.npieces != PIECES)
        failed = ranks_fail("%d pieces", seen.npieces);
    gpu_rank_memory.fetch(content, call.out, sizeof content);
    for (int i = 0; i < ELEMENTS && !failed; i++)
        if (content[i] != 2 * i)
            failed = ranks_fail("element %d is %d", i, content[i]);
    return gpu_rank_leave(failed);
}

static void copies_go_on_meanwhile(void **state)
{
    (void)state;
    run(RANKS_PROCESSES, 2, watch_pieces);
}

/* ---- traffic --------------------------------------------------------------------------------- */

enum { COUNT = 1 << 20 };

static int settle_apart(int rank, void *argument)
{
    return networks_enter(argument, rank / 2);
}

/* What each of two hosts has to send at least, if the root is of the first. */
static const struct bound {
    enum ko_collective what;
    size_t count;
    double bytes[2];
} bounds[] = {
    {KO_ALL_REDUCE, COUNT, {4. * COUNT, 4. * COUNT}},
    {KO_ALL_GATHER, COUNT / 4, {2. * COUNT, 2. * COUNT}},
    {KO_REDUCE_SCATTER, COUNT / 4, {2. * COUNT, 2. * COUNT}},
    {KO_REDUCE, COUNT, {0, 4. * COUNT}},
    {KO_BROADCAST, COUNT, {4. * COUNT, 0}},
};
enum { NBOUNDS = sizeof bounds / sizeof *bounds };

/* Of two ranks on each of two hosts; the room is as in test_hosts. */
static int count_traffic(kolo_group *group, void *unused)
{
    int failed = gpu_rank_enter(group);

    (void)unused;
    for (int i = 0; i < NBOUNDS && !failed; i++) {
        const struct exam exam = {.what = bounds[i].what,
                                  .dtype = KOLO_INT32,
                                  .op = KOLO_SUM,
                                  .count = bounds[i].count,
                                  .memory = &gpu_rank_memory};
        const double least = bounds[i].bytes[kolo_group_rank(group) / 2];
        double sent;

        failed = exam_take(group, &exam) || kolo_barrier(group); /* opens the links */
        sent = -(double)networks_sent();
        failed = failed || kolo_barrier(group) || exam_take(group, &exam) || kolo_barrier(group);
        sent += (double)networks_sent();
        if (!failed && kolo_group_rank(group) % 2 == 0 &&
            (sent < least || sent > 1.05 * least + 0.2 * COUNT))
            failed = ranks_fail("in %s %.0f bytes were sent, the bound is %.0f",
                                ko_collective_name(exam.what), sent, least);
        failed = failed || kolo_barrier(group);
    }
    return gpu_rank_leave(failed);
}

static void no_more_than_has_to_crosses(void **state)
{
    struct networks networks;
    char address[32];
    const struct ranks ranks = {.kind = RANKS_PROCESSES,
                                .n = 4,
                                .settle = settle_apart,
                                .store = networks_address(0, address, sizeof address)};
    int failed;

    (void)state;
    if (networks_open(&networks, 2))
        skip();
    exam_set_variables("shm,tcp", "hierarchical", 65536);
    setenv("KOLO_AUTH_TOKEN", "the token of this test", 1);
    setenv("KOLO_CUDA_PIECE_BYTES", "512K", 1);
    failed = ranks_run(&ranks, count_traffic, &networks);
    unsetenv("KOLO_AUTH_TOKEN");
    setenv("KOLO_CUDA_PIECE_BYTES", "8192", 1);
    networks_close(&networks);
    assert_int_equal(failed, 0);
}

/* The last of all: from here on the driver has threads in this process, which is not to fork. */
static void among_threads(void **state)
{
    (void)state;
    setenv("FAKECUDA_BREAK", "cuLibraryLoadData=218", 1); /* so that all goes by way of the host */
    run(RANKS_THREADS, 3, on_gpus);
    unsetenv("FAKECUDA_BREAK");
    run(RANKS_THREADS, 3, on_some_gpus);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_collectives),
        cmocka_unit_test(copies_go_on_meanwhile),
        cmocka_unit_test(no_more_than_has_to_crosses),
        cmocka_unit_test(among_threads),
    };

    setenv("FAKECUDA_JITTER", "50", 1);
    setenv("KOLO_CUDA_PIECE_BYTES", "8192", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
