/* SPDX-License-Identifier: MIT
 *
 * Messages in CUDA graphs, on the double of NVIDIA's driver: captured once, launched often with
 * other content, each by one copy; of any length, in rings, batches and chains, to the rank itself
 * and among collectives; what cannot be captured; and ranks that are late, lost or give up.
 */
#include "clock.h"
#include "exam.h"
#include "graph_rank.h"
#include "sanitized.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BYTES = GRAPH_BYTES, MOST_RANKS = GRAPH_MOST_RANKS, LAUNCHES = GRAPH_LAUNCHES };
enum { LIMIT_MS = 600, AFTERWARDS = 3, MANY = 64 };

static void *at(ko_cu_ptr memory)
{
    return (void *)(uintptr_t)memory;
}

/* ---- around a ring --------------------------------------------------------------------------- */

static int launch_once(size_t nbytes, bool is_counted)
{
    return is_counted ? graph_rank_launch_counted(nbytes) : graph_rank_launch();
}

static int replay_ring(kolo_group *group, size_t nbytes, bool is_counted)
{
    int failed = gpu_rank_capture();

    if (!failed && kolo_sendrecv(group, at(graph_rank.out), nbytes, graph_rank.to,
                                 at(graph_rank.in), nbytes, graph_rank.from, KOLO_UINT8, 7))
        failed = ranks_fail("a ring");
    failed |= gpu_rank_captured(&graph_rank.exec);
    for (int round = 0; round < LAUNCHES && !failed; round++)
        failed = graph_rank_fill(round) || launch_once(nbytes, is_counted) ||
                 graph_rank_check(graph_rank.in, graph_rank.from, round, nbytes);
    graph_rank_drop();
    return failed;
}

static int ring(kolo_group *group, void *is_counted)
{
    static const size_t lengths[] = {BYTES, 0, 1, 3, 128, 129, 4096, 65537};
    int failed = graph_rank_enter(group);

    for (size_t i = 0; i < sizeof lengths / sizeof *lengths && !failed; i++)
        failed = replay_ring(group, lengths[i], is_counted);
    return graph_rank_leave(group, failed);
}

static void rings_are_launched_often(void **state)
{
    static bool is_counted = true;

    (void)state;
    SKIP_PROCESSES_UNDER_TSAN();
    for (int n = 1; n <= MOST_RANKS; n++) {
        graph_rank_run_on(RANKS_PROCESSES, n, "1", ring, &is_counted);
        graph_rank_run_on(RANKS_PROCESSES, n, "3", ring, &is_counted);
    }
}

/* ---- as calls -------------------------------------------------------------------------------- */

/* From each to each, itself too. */
static int exchange(kolo_group *group)
{
    kolo_p2p ops[2 * MOST_RANKS];
    const size_t n = (size_t)graph_rank.n;

    for (int r = 0; r < graph_rank.n; r++) {
        ops[r] =
            (kolo_p2p){0, r, 1, KOLO_UINT8, BYTES, at(graph_rank.more + (size_t)r * BYTES), NULL};
        ops[graph_rank.n + r] = (kolo_p2p){1, r, 1, KOLO_UINT8, BYTES, at(graph_rank.out), NULL};
    }
    return kolo_batch(group, ops, 2 * n);
}

static int check_exchange(int round)
{
    int failed = 0;

    for (int r = 0; r < graph_rank.n && !failed; r++)
        failed = graph_rank_check(graph_rank.more + (size_t)r * BYTES, r, round, BYTES);
    return failed;
}

/* From rank to rank, what comes is what goes on; both kinds of calls, and a receive of any. */
static int chain(kolo_group *group)
{
    const bool is_first = !graph_rank.rank, is_last = graph_rank.rank + 1 == graph_rank.n;
    kolo_message message = {0, 0, KOLO_UINT8, 0};
    kolo_work *work = NULL;
    int err = KOLO_OK;

    if (!is_first)
        err = graph_rank.rank % 2 ? kolo_irecv(group, at(graph_rank.in), BYTES, KOLO_UINT8,
                                               graph_rank.from, 2, &work)
                                  : kolo_recv_message(group, at(graph_rank.in), BYTES, KOLO_UINT8,
                                                      KOLO_ANY_RANK, KOLO_ANY_TAG, &message);
    kolo_work_free(work);
    work = NULL;
    if (!err && !is_first && graph_rank.rank % 2 == 0 &&
        (message.from != graph_rank.from || message.tag != 2 || message.count != BYTES - 3))
        return ranks_fail("what was received is said to be something else");
    if (!err && !is_last)
        err = graph_rank.rank % 2
                  ? kolo_send(group, at(graph_rank.in), BYTES - 3, KOLO_UINT8, graph_rank.to, 2)
                  : kolo_isend(group, at(is_first ? graph_rank.out : graph_rank.in), BYTES - 3,
                               KOLO_UINT8, graph_rank.to, 2, &work);
    kolo_work_free(work);
    return err;
}

static int check_chain(int round)
{
    return graph_rank.rank ? graph_rank_check(graph_rank.in, 0, round, BYTES - 3) : 0;
}

/* As many as can be on their way at once, taken in another order; twice, with a sum between. */
static int many(kolo_group *group)
{
    enum { PART = BYTES / MANY };
    kolo_p2p ops[2 * MANY];
    int err = KOLO_OK;

    for (int i = 0; i < MANY; i++) {
        const int k = MANY - 1 - i;

        ops[i] = (kolo_p2p){
            0, graph_rank.from, k, KOLO_UINT8, PART, at(graph_rank.in + (size_t)k * PART), NULL};
        ops[MANY + i] = (kolo_p2p){
            1, graph_rank.to, i, KOLO_UINT8, PART, at(graph_rank.out + (size_t)i * PART), NULL};
    }
    for (int i = 0; i < 2 && !err; i++) {
        err = kolo_batch(group, ops, 2 * MANY);
        if (!err)
            err = kolo_all_reduce(group, at(graph_rank.more), at(graph_rank.more), 100, KOLO_UINT8,
                                  KOLO_MAX);
    }
    return err;
}

static int check_many(int round)
{
    return graph_rank_check(graph_rank.in, graph_rank.from, round, BYTES / MANY * MANY);
}

static const struct pattern {
    const char *name;
    int (*call)(kolo_group *group);
    int (*check)(int round);
} patterns[] = {{"an exchange", exchange, check_exchange},
                {"a chain", chain, check_chain},
                {"many", many, check_many}};

enum { NPATTERNS = sizeof patterns / sizeof *patterns };

/* Graphs of all of them, launched in turns, with messages outside of graphs between. */
static int replay_all(kolo_group *group, void *unused)
{
    ko_cu_graph_exec execs[NPATTERNS] = {NULL};
    int failed = graph_rank_enter(group);

    (void)unused;
    for (int i = 0; i < NPATTERNS && !failed; i++) {
        failed = gpu_rank_capture();
        if (!failed && patterns[i].call(group))
            failed = ranks_fail("%s", patterns[i].name);
        failed |= gpu_rank_captured(&execs[i]);
    }
    for (int round = 0; round < 2 * LAUNCHES && !failed; round++) {
        const struct pattern *pattern = &patterns[round * 2 % NPATTERNS];

        graph_rank.exec = execs[round * 2 % NPATTERNS];
        failed = graph_rank_fill(round) || graph_rank_launch() || pattern->check(round);
        if (!failed && (round % 3 || graph_rank_finish() || kolo_barrier(group)))
            continue;
        if (!failed && (pattern->call(group) || gpu_rank.cuda->stream_sync(gpu_rank.stream) ||
                        kolo_barrier(group)))
            failed = ranks_fail("%s outside of graphs", pattern->name);
        if (!failed)
            failed = pattern->check(round);
    }
    graph_rank.exec = NULL;
    for (int i = 0; i < NPATTERNS; i++)
        if (execs[i])
            (void)gpu_rank.cuda->graph_exec_destroy(execs[i]);
    return graph_rank_leave(group, failed);
}

static void graphs_are_as_calls(void **state)
{
    (void)state;
    SKIP_PROCESSES_UNDER_TSAN();
    for (int n = 1; n <= MOST_RANKS; n++)
        graph_rank_run(RANKS_PROCESSES, n, replay_all);
}

/* ---- what cannot be -------------------------------------------------------------------------- */

/* One of the two sends, the other receives; each gets this. */
static int expect_both(kolo_group *group, int code, size_t nsent, size_t nroom, const char *says)
{
    int err = graph_rank.rank ? kolo_recv(group, at(graph_rank.in), nroom, KOLO_UINT8, 0, 3)
                              : kolo_send(group, at(graph_rank.out), nsent, KOLO_UINT8, 1, 3);

    return ranks_expect(err, code, says);
}

static int refuse(kolo_group *group, void *unused)
{
    static unsigned char host[8];
    const kolo_p2p mixed[] = {{1, 1, 0, KOLO_UINT8, 8, host, NULL},
                              {0, 1, 0, KOLO_UINT8, 8, at(graph_rank.in), NULL}};
    kolo_p2p too_many[MANY + 1];
    int failed = graph_rank_enter(group) || gpu_rank_capture();

    (void)unused;
    for (int i = 0; i <= MANY; i++)
        too_many[i] = (kolo_p2p){1, 1, 0, KOLO_UINT8, 8, at(graph_rank.out), NULL};
    failed =
        failed || expect_both(group, KOLO_E_TRUNCATED, 9, 8, "9 bytes, the receive room for 8") ||
        expect_both(group, KOLO_E_TRUNCATED, BYTES, 8, "the receive room for 8") ||
        ranks_expect(graph_rank.rank ? kolo_recv(group, at(graph_rank.in), 8, KOLO_INT8, 0, 3)
                                     : kolo_send(group, at(graph_rank.out), 8, KOLO_UINT8, 1, 3),
                     KOLO_E_MISMATCH, "int8") ||
        ranks_expect(kolo_batch(group, too_many, MANY + 1), KOLO_E_UNSUPPORTED,
                     "more than 64 of a batch") ||
        ranks_expect(
            kolo_batch(group,
                       (kolo_p2p[]){mixed[0], {0, 1, 0, KOLO_UINT8, 8, at(graph_rank.in), NULL}},
                       2),
            KOLO_E_UNSUPPORTED, "in host memory");
    failed |= gpu_rank_captured(&graph_rank.exec);
    graph_rank_drop();
    return graph_rank_leave(group, failed || replay_ring(group, BYTES, false));
}

/* The captured end is told, whatever the length; the other one too, if it still sends. */
static int capture_alone(kolo_group *group, void *argument)
{
    static const char says[] = "captures the message of tag 3 for a graph, rank";
    const bool captures = graph_rank.rank == *(const int *)argument;
    int failed = captures ? gpu_rank_capture() : 0;

    failed = failed || expect_both(group, KOLO_E_MISMATCH, BYTES, BYTES, says) ||
             (*(const int *)argument == 0 && expect_both(group, KOLO_E_MISMATCH, 8, 8, says));
    if (captures)
        failed |= gpu_rank_captured(&graph_rank.exec);
    graph_rank_drop();
    return failed;
}

static int capture_in_turn(kolo_group *group, void *unused)
{
    int failed = graph_rank_enter(group);

    (void)unused;
    for (int who = 0; who < 2 && !failed; who++)
        failed = capture_alone(group, &who) || kolo_barrier(group);
    return graph_rank_leave(group, failed || replay_ring(group, BYTES, false));
}

/* The driver does not hand out what rank 0 sends: memory of a pool, or pieces of another kind. */
static int out_of_reach(kolo_group *group, void *breaks)
{
    static unsigned char content[BYTES];
    void *pieces;
    int failed = graph_rank_enter(group);

    if (failed)
        return failed;
    setenv("FAKECUDA_BREAK", breaks, 1);
    pieces = gpu_rank_pieces.make(content, BYTES);
    failed = gpu_rank_capture();
    for (int i = 0; i < 2 && !failed; i++) {
        void *from = strstr(breaks, "Ipc") ? at(graph_rank.out) : pieces;

        failed = ranks_expect(
            graph_rank.rank ? kolo_recv(group, at(graph_rank.in), BYTES, KOLO_UINT8, 0, 3)
                            : kolo_send(group, from, BYTES, KOLO_UINT8, 1, 3),
            KOLO_E_UNSUPPORTED, "(a pool's, perhaps, which cannot be handed over)");
    }
    failed |= gpu_rank_captured(&graph_rank.exec);
    graph_rank_drop();
    unsetenv("FAKECUDA_BREAK");
    gpu_rank_pieces.fetch(content, pieces, BYTES);
    return graph_rank_leave(group, failed || kolo_barrier(group));
}

static int without_handles(kolo_group *group, void *unused)
{
    int failed = graph_rank_enter(group) || gpu_rank_capture();

    (void)unused;
    failed = failed || expect_both(group, KOLO_E_UNSUPPORTED, BYTES, BYTES,
                                   "the ranks do not reach each other's GPU memory");
    failed |= gpu_rank_captured(&graph_rank.exec);
    graph_rank_drop();
    return graph_rank_leave(group, failed || expect_both(group, KOLO_OK, BYTES, BYTES, ""));
}

static void some_are_refused(void **state)
{
    static char handles[] = "cuIpcGetMemHandle=1", pieces[] = "cuMemExportToShareableHandle=1";

    (void)state;
    graph_rank_run(RANKS_PROCESSES, 2, refuse);
    graph_rank_run(RANKS_PROCESSES, 2, capture_in_turn);
    for (int i = 0; i < 2; i++) {
        graph_rank_run_on(RANKS_PROCESSES, 2, i ? "3" : "1", out_of_reach, handles);
        graph_rank_run_on(RANKS_PROCESSES, 2, i ? "3" : "1", out_of_reach, pieces);
    }
    setenv("KOLO_CUDA_IPC", "off", 1);
    graph_rank_run(RANKS_PROCESSES, 2, without_handles);
    unsetenv("KOLO_CUDA_IPC");
}

/* ---- waits ----------------------------------------------------------------------------------- */

static int capture_ring(kolo_group *group)
{
    int failed = graph_rank_enter(group) || gpu_rank_capture();

    for (int i = 0; i < 3 && !failed; i++)
        if (kolo_sendrecv(group, at(graph_rank.out), BYTES, graph_rank.to, at(graph_rank.in), BYTES,
                          graph_rank.from, KOLO_UINT8, 7))
            failed = ranks_fail("a ring");
    failed |= gpu_rank_captured(&graph_rank.exec);
    return failed || !kolo_barrier(group) ? failed : ranks_fail("barrier");
}

/* That its group has failed a rank knows as soon as the stream has ended; later launches end too.
 */
static int expect(kolo_group *group, int64_t began_ns, int code, const char *says)
{
    const char *text;
    const int have = kolo_group_error(group, &text);
    int failed = 0;

    if (have != code || !strstr(text, says))
        return ranks_fail("the group's error is %d instead of %d: %s", have, code, text);
    if (ranks_within(began_ns, LIMIT_MS + RANKS_SOON_MS, "the stream's end"))
        return 1;
    for (int i = 0; i < AFTERWARDS && !failed; i++)
        failed = graph_rank_launch();
    failed |= graph_rank_finish();
    graph_rank_drop();
    return failed;
}

static int do_not_launch(kolo_group *group, void *unused)
{
    const int64_t began_ns = ko_now_ns();
    int failed = capture_ring(group) || graph_rank_launch() || graph_rank_finish();

    (void)unused;
    if (failed)
        return 1;
    if (graph_rank.rank == 1) { /* its barrier ends when the others say why */
        ranks_nap_ms(2 * LIMIT_MS);
        graph_rank_drop();
        return ranks_expect(kolo_barrier(group), KOLO_E_TIMEOUT, "for rank 1 (");
    }
    kolo_group_set_timeout(group, LIMIT_MS);
    return graph_rank_launch() || graph_rank_finish() ||
           expect(group, began_ns, KOLO_E_TIMEOUT, "for rank 1 (");
}

static int die_before(kolo_group *group, void *unused)
{
    int failed = capture_ring(group) || graph_rank_launch() || graph_rank_finish() ||
                 ranks_let_be_last(group, 1);
    const int64_t began_ns = ko_now_ns();

    (void)unused;
    if (graph_rank.rank == 1)
        raise(SIGKILL);
    return failed || graph_rank_launch() || graph_rank_finish() ||
           expect(group, began_ns, KOLO_E_PEER_LOST, "rank 1 (");
}

static int die_within(kolo_group *group, void *unused)
{
    pthread_t killer;
    int failed = capture_ring(group);
    const int64_t began_ns = ko_now_ns();

    (void)unused;
    if (!failed && graph_rank.rank == 1 &&
        pthread_create(&killer, NULL, graph_rank_kill_soon, NULL))
        return ranks_fail("no thread");
    while (!failed && !kolo_group_error(group, NULL))
        failed = graph_rank_launch() || graph_rank_finish();
    return failed || expect(group, began_ns, KOLO_E_PEER_LOST, "rank 1 (");
}

/* A blocking receive whose sender dies while both capture. */
static int die_at_capture(kolo_group *group, void *unused)
{
    const int64_t began_ns = ko_now_ns();
    int failed = graph_rank_enter(group) || ranks_let_be_last(group, 1);

    (void)unused;
    if (graph_rank.rank == 1)
        raise(SIGKILL);
    failed = failed || gpu_rank_capture() ||
             ranks_expect(kolo_recv(group, at(graph_rank.in), BYTES, KOLO_UINT8, 1, 0),
                          KOLO_E_PEER_LOST, "rank 1 (");
    failed |= gpu_rank_captured(&graph_rank.exec);
    return failed || expect(group, began_ns, KOLO_E_PEER_LOST, "rank 1 (");
}

static int wait_for_abort(kolo_group *group, void *unused)
{
    const int rank = kolo_group_rank(group);
    const int64_t began_ns = ko_now_ns();
    pthread_t aborter;
    int failed = capture_ring(group);

    (void)unused;
    if (failed)
        return 1;
    if (rank == 1) {
        graph_rank_drop();
        return ranks_expect(kolo_barrier(group), KOLO_E_ABORTED, "enough");
    }
    if (rank == 0 && pthread_create(&aborter, NULL, ranks_abort_soon, group))
        return ranks_fail("no thread");
    failed = graph_rank_launch() || graph_rank_finish() ||
             expect(group, began_ns, KOLO_E_ABORTED, "enough");
    return rank == 0 ? pthread_join(aborter, NULL) || failed : failed;
}

static void waits_end(void **state)
{
    (void)state;
    graph_rank_run(RANKS_PROCESSES, 3, do_not_launch);
    graph_rank_run(RANKS_PROCESSES, 3, wait_for_abort);
    graph_rank_lose(3, die_before);
    graph_rank_lose(3, die_within);
    graph_rank_lose(3, die_at_capture);
}

/* The last of all: from here on the driver has threads in this process, which is not to fork. */
static void among_threads(void **state)
{
    (void)state;
    for (int n = 1; n <= MOST_RANKS; n++) {
        graph_rank_run(RANKS_THREADS, n, ring);
        graph_rank_run(RANKS_THREADS, n, replay_all);
    }
    graph_rank_run(RANKS_THREADS, 2, refuse);
    graph_rank_run(RANKS_THREADS, 2, capture_in_turn);
    graph_rank_run(RANKS_THREADS, 3, wait_for_abort);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rings_are_launched_often),
        cmocka_unit_test(graphs_are_as_calls),
        cmocka_unit_test(some_are_refused),
        cmocka_unit_test(waits_end),
        cmocka_unit_test(among_threads),
    };

    setenv("FAKECUDA_JITTER", "50", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
