/* SPDX-License-Identifier: MIT
 *
 * Messages in CUDA graphs, on the double of NVIDIA's driver: captured once, launched often with
 * other content, each by one copy; of any length, in rings, batches and chains, to the rank itself
 * and among collectives; what cannot be captured; and ranks that are late, lost or give up.
 */
#include "clock.h"
#include "exam.h"
#include "gpu_double.h"
#include "gpu_rank.h"
#include "ranks.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BYTES = 100003, MOST_RANKS = 4, LAUNCHES = 4, LIMIT_MS = 600, AFTERWARDS = 3, MANY = 64 };

/* Of the calling rank's thread. */
static _Thread_local struct {
    int rank, n, to, from;
    ko_cu_ptr out, in, more; /* BYTES; as many; and for each rank */
    ko_cu_stream stream;     /* in which graphs are launched: not the group's */
    ko_cu_graph_exec exec;
    unsigned char values[BYTES];
} side;

static void *at(ko_cu_ptr memory)
{
    return (void *)(uintptr_t)memory;
}

static int enter(kolo_group *group)
{
    side.rank = kolo_group_rank(group);
    side.n = kolo_group_size(group);
    side.to = (side.rank + 1) % side.n;
    side.from = (side.rank + side.n - 1) % side.n;
    side.exec = NULL;
    return gpu_rank_enter(group) || gpu_rank.cuda->alloc(&side.out, BYTES) ||
                   gpu_rank.cuda->alloc(&side.in, BYTES) ||
                   gpu_rank.cuda->alloc(&side.more, MOST_RANKS * BYTES) ||
                   gpu_rank.cuda->stream_create(&side.stream, KO_CU_STREAM_NON_BLOCKING)
               ? ranks_fail("no memory")
               : 0;
}

static int launch(void)
{
    return gpu_rank.cuda->graph_launch(side.exec, side.stream) ? ranks_fail("a launch") : 0;
}

static int finish(void)
{
    return gpu_rank.cuda->stream_sync(side.stream) ? ranks_fail("the stream") : 0;
}

static void drop(void)
{
    if (side.exec)
        (void)gpu_rank.cuda->graph_exec_destroy(side.exec);
    side.exec = NULL;
}

static unsigned char value(int rank, int round, size_t i)
{
    return (unsigned char)((size_t)rank * 50 + (size_t)round * 13 + i);
}

/* What the rank sends in this round; what it has received is wiped out. */
static int fill(int round)
{
    for (size_t i = 0; i < BYTES; i++)
        side.values[i] = value(side.rank, round, i);
    return gpu_rank.cuda->copy(side.out, (uintptr_t)side.values, BYTES, side.stream) ||
                   gpu_rank.cuda->fill(side.in, 255, BYTES, side.stream) ||
                   gpu_rank.cuda->fill(side.more, 255, MOST_RANKS * BYTES, side.stream) || finish()
               ? ranks_fail("content")
               : 0;
}

/* Whether nbytes of a rank's message are there, and nothing behind them. */
static int check(ko_cu_ptr memory, int from, int round, size_t nbytes)
{
    if (gpu_rank.cuda->copy((uintptr_t)side.values, memory, BYTES, side.stream) || finish())
        return ranks_fail("the stream");
    for (size_t i = 0; i < BYTES; i++)
        if (side.values[i] != (i < nbytes ? value(from, round, i) : 255))
            return ranks_fail("launch %d, byte %zu of %zu from rank %d is %d", round, i, nbytes,
                              from, side.values[i]);
    return 0;
}

static int finish_all(kolo_group *group, int failed)
{
    drop();
    return failed || !kolo_barrier(group) ? failed : ranks_fail("barrier");
}

static void run_on(enum ranks_kind kind, int n, const char *ngpus, ranks_body body, void *argument)
{
    exam_set_variables("shm", "", 4096);
    setenv("FAKECUDA_DEVICES", ngpus, 1);
    assert_int_equal(ranks_run(&(struct ranks){.kind = kind, .n = n}, body, argument), 0);
}

static void run(enum ranks_kind kind, int n, ranks_body body)
{
    run_on(kind, n, "1", body, NULL);
    run_on(kind, n, "3", body, NULL);
}

/* ---- around a ring --------------------------------------------------------------------------- */

/* The double counts for each process. */
static int check_bytes(struct gpu_bytes before, size_t nbytes)
{
    const struct gpu_bytes now = gpu_bytes_since(before);
    const uint64_t read = now.read + now.read_there;

    /* and words */
    return read >= nbytes && read <= nbytes + 64 && !now.with_host
               ? 0
               : ranks_fail("%llu bytes were read, and %llu went by the host, of %zu",
                            (unsigned long long)read, (unsigned long long)now.with_host, nbytes);
}

static int launch_counted(size_t nbytes, bool is_counted)
{
    const bool counts = is_counted && !finish();
    const struct gpu_bytes before = gpu_bytes_now();
    int failed = launch();

    if (counts && !failed)
        failed = finish() || check_bytes(before, nbytes);
    return failed;
}

static int replay_ring(kolo_group *group, size_t nbytes, bool is_counted)
{
    int failed = gpu_rank_capture();

    if (!failed && kolo_sendrecv(group, at(side.out), nbytes, side.to, at(side.in), nbytes,
                                 side.from, KOLO_UINT8, 7))
        failed = ranks_fail("a ring");
    failed |= gpu_rank_captured(&side.exec);
    for (int round = 0; round < LAUNCHES && !failed; round++)
        failed = fill(round) || launch_counted(nbytes, is_counted) ||
                 check(side.in, side.from, round, nbytes);
    drop();
    return failed;
}

static int ring(kolo_group *group, void *is_counted)
{
    static const size_t lengths[] = {BYTES, 0, 1, 3, 104, 105, 4096, 65537};
    int failed = enter(group);

    for (size_t i = 0; i < sizeof lengths / sizeof *lengths && !failed; i++)
        failed = replay_ring(group, lengths[i], is_counted);
    return finish_all(group, failed);
}

static void rings_are_launched_often(void **state)
{
    static bool is_counted = true;

    (void)state;
    for (int n = 1; n <= MOST_RANKS; n++) {
        run_on(RANKS_PROCESSES, n, "1", ring, &is_counted);
        run_on(RANKS_PROCESSES, n, "3", ring, &is_counted);
    }
}

/* ---- as calls -------------------------------------------------------------------------------- */

/* From each to each, itself too. */
static int exchange(kolo_group *group)
{
    kolo_p2p ops[2 * MOST_RANKS];
    const size_t n = (size_t)side.n;

    for (int r = 0; r < side.n; r++) {
        ops[r] = (kolo_p2p){0, r, 1, KOLO_UINT8, BYTES, at(side.more + (size_t)r * BYTES), NULL};
        ops[side.n + r] = (kolo_p2p){1, r, 1, KOLO_UINT8, BYTES, at(side.out), NULL};
    }
    return kolo_batch(group, ops, 2 * n);
}

static int check_exchange(int round)
{
    int failed = 0;

    for (int r = 0; r < side.n && !failed; r++)
        failed = check(side.more + (size_t)r * BYTES, r, round, BYTES);
    return failed;
}

/* From rank to rank, what comes is what goes on; both kinds of calls, and a receive of any. */
static int chain(kolo_group *group)
{
    const bool is_first = !side.rank, is_last = side.rank + 1 == side.n;
    kolo_message message = {0, 0, KOLO_UINT8, 0};
    kolo_work *work = NULL;
    int err = KOLO_OK;

    if (!is_first)
        err = side.rank % 2 ? kolo_irecv(group, at(side.in), BYTES, KOLO_UINT8, side.from, 2, &work)
                            : kolo_recv_message(group, at(side.in), BYTES, KOLO_UINT8,
                                                KOLO_ANY_RANK, KOLO_ANY_TAG, &message);
    kolo_work_free(work);
    work = NULL;
    if (!err && !is_first && side.rank % 2 == 0 &&
        (message.from != side.from || message.tag != 2 || message.count != BYTES - 3))
        return ranks_fail("what was received is said to be something else");
    if (!err && !is_last)
        err = side.rank % 2 ? kolo_send(group, at(side.in), BYTES - 3, KOLO_UINT8, side.to, 2)
                            : kolo_isend(group, at(is_first ? side.out : side.in), BYTES - 3,
                                         KOLO_UINT8, side.to, 2, &work);
    kolo_work_free(work);
    return err;
}

static int check_chain(int round)
{
    return side.rank ? check(side.in, 0, round, BYTES - 3) : 0;
}

/* As many as can be on their way at once, taken in another order; twice, with a sum between. */
static int many(kolo_group *group)
{
    enum { PART = BYTES / MANY };
    kolo_p2p ops[2 * MANY];
    int err = KOLO_OK;

    for (int i = 0; i < MANY; i++) {
        const int k = MANY - 1 - i;

        ops[i] =
            (kolo_p2p){0, side.from, k, KOLO_UINT8, PART, at(side.in + (size_t)k * PART), NULL};
        ops[MANY + i] =
            (kolo_p2p){1, side.to, i, KOLO_UINT8, PART, at(side.out + (size_t)i * PART), NULL};
    }
    for (int i = 0; i < 2 && !err; i++) {
        err = kolo_batch(group, ops, 2 * MANY);
        if (!err)
            err = kolo_all_reduce(group, at(side.more), at(side.more), 100, KOLO_UINT8, KOLO_MAX);
    }
    return err;
}

static int check_many(int round)
{
    return check(side.in, side.from, round, BYTES / MANY * MANY);
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
    int failed = enter(group);

    (void)unused;
    for (int i = 0; i < NPATTERNS && !failed; i++) {
        failed = gpu_rank_capture();
        if (!failed && patterns[i].call(group))
            failed = ranks_fail("%s", patterns[i].name);
        failed |= gpu_rank_captured(&execs[i]);
    }
    for (int round = 0; round < 2 * LAUNCHES && !failed; round++) {
        const struct pattern *pattern = &patterns[round * 2 % NPATTERNS];

        side.exec = execs[round * 2 % NPATTERNS];
        failed = fill(round) || launch() || pattern->check(round);
        if (!failed && (round % 3 || finish() || kolo_barrier(group)))
            continue;
        if (!failed && (pattern->call(group) || gpu_rank.cuda->stream_sync(gpu_rank.stream) ||
                        kolo_barrier(group)))
            failed = ranks_fail("%s outside of graphs", pattern->name);
        if (!failed)
            failed = pattern->check(round);
    }
    side.exec = NULL;
    for (int i = 0; i < NPATTERNS; i++)
        if (execs[i])
            (void)gpu_rank.cuda->graph_exec_destroy(execs[i]);
    return finish_all(group, failed);
}

static void graphs_are_as_calls(void **state)
{
    (void)state;
    for (int n = 1; n <= MOST_RANKS; n++)
        run(RANKS_PROCESSES, n, replay_all);
}

/* ---- what cannot be -------------------------------------------------------------------------- */

/* One of the two sends, the other receives; each gets this. */
static int expect_both(kolo_group *group, int code, size_t nsent, size_t nroom, const char *says)
{
    int err = side.rank ? kolo_recv(group, at(side.in), nroom, KOLO_UINT8, 0, 3)
                        : kolo_send(group, at(side.out), nsent, KOLO_UINT8, 1, 3);

    return ranks_expect(err, code, says);
}

static int refuse(kolo_group *group, void *unused)
{
    static unsigned char host[8];
    const kolo_p2p mixed[] = {{1, 1, 0, KOLO_UINT8, 8, host, NULL},
                              {0, 1, 0, KOLO_UINT8, 8, at(side.in), NULL}};
    kolo_p2p too_many[MANY + 1];
    int failed = enter(group) || gpu_rank_capture();

    (void)unused;
    for (int i = 0; i <= MANY; i++)
        too_many[i] = (kolo_p2p){1, 1, 0, KOLO_UINT8, 8, at(side.out), NULL};
    failed =
        failed || expect_both(group, KOLO_E_TRUNCATED, 9, 8, "9 bytes, the receive room for 8") ||
        expect_both(group, KOLO_E_TRUNCATED, BYTES, 8, "the receive room for 8") ||
        ranks_expect(side.rank ? kolo_recv(group, at(side.in), 8, KOLO_INT8, 0, 3)
                               : kolo_send(group, at(side.out), 8, KOLO_UINT8, 1, 3),
                     KOLO_E_MISMATCH, "int8") ||
        ranks_expect(kolo_batch(group, too_many, MANY + 1), KOLO_E_UNSUPPORTED,
                     "more than 64 of a batch") ||
        ranks_expect(kolo_batch(group,
                                (kolo_p2p[]){mixed[0], {0, 1, 0, KOLO_UINT8, 8, at(side.in), NULL}},
                                2),
                     KOLO_E_UNSUPPORTED, "in host memory");
    failed |= gpu_rank_captured(&side.exec);
    drop();
    return finish_all(group, failed || replay_ring(group, BYTES, false));
}

/* The captured end is told, whatever the length; the other one too, if it still sends. */
static int capture_alone(kolo_group *group, void *argument)
{
    static const char says[] = "captures the message of tag 3 for a graph, rank";
    const bool captures = side.rank == *(const int *)argument;
    int failed = captures ? gpu_rank_capture() : 0;

    failed = failed || expect_both(group, KOLO_E_MISMATCH, BYTES, BYTES, says) ||
             (*(const int *)argument == 0 && expect_both(group, KOLO_E_MISMATCH, 8, 8, says));
    if (captures)
        failed |= gpu_rank_captured(&side.exec);
    drop();
    return failed;
}

static int capture_in_turn(kolo_group *group, void *unused)
{
    int failed = enter(group);

    (void)unused;
    for (int who = 0; who < 2 && !failed; who++)
        failed = capture_alone(group, &who) || kolo_barrier(group);
    return finish_all(group, failed || replay_ring(group, BYTES, false));
}

static int out_of_reach(kolo_group *group, void *unused)
{
    static unsigned char content[BYTES];
    void *pieces;
    int failed = enter(group);

    (void)unused;
    if (failed)
        return failed;
    pieces = gpu_rank_pieces.make(content, BYTES);
    failed = gpu_rank_capture() ||
             ranks_expect(side.rank ? kolo_recv(group, at(side.in), BYTES, KOLO_UINT8, 0, 3)
                                    : kolo_send(group, pieces, BYTES, KOLO_UINT8, 1, 3),
                          KOLO_E_UNSUPPORTED, "does not reach the memory that it lies in");
    failed |= gpu_rank_captured(&side.exec);
    drop();
    gpu_rank_pieces.fetch(content, pieces, BYTES);
    return finish_all(group, failed || replay_ring(group, BYTES, false));
}

static int without_handles(kolo_group *group, void *unused)
{
    int failed = enter(group) || gpu_rank_capture();

    (void)unused;
    failed = failed || expect_both(group, KOLO_E_UNSUPPORTED, BYTES, BYTES,
                                   "the ranks do not reach each other's GPU memory");
    failed |= gpu_rank_captured(&side.exec);
    drop();
    return finish_all(group, failed || expect_both(group, KOLO_OK, BYTES, BYTES, ""));
}

static void some_are_refused(void **state)
{
    (void)state;
    run(RANKS_PROCESSES, 2, refuse);
    run(RANKS_PROCESSES, 2, capture_in_turn);
    run(RANKS_PROCESSES, 2, out_of_reach);
    setenv("KOLO_CUDA_IPC", "off", 1);
    run(RANKS_PROCESSES, 2, without_handles);
    unsetenv("KOLO_CUDA_IPC");
}

/* ---- waits ----------------------------------------------------------------------------------- */

static int capture_ring(kolo_group *group)
{
    int failed = enter(group) || gpu_rank_capture();

    for (int i = 0; i < 3 && !failed; i++)
        if (kolo_sendrecv(group, at(side.out), BYTES, side.to, at(side.in), BYTES, side.from,
                          KOLO_UINT8, 7))
            failed = ranks_fail("a ring");
    failed |= gpu_rank_captured(&side.exec);
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
    if ((ko_now_ns() - began_ns) / 1000000 > LIMIT_MS + RANKS_SOON_MS)
        return ranks_fail("the stream has not ended soon");
    for (int i = 0; i < AFTERWARDS && !failed; i++)
        failed = launch();
    failed |= finish();
    drop();
    return failed;
}

static int do_not_launch(kolo_group *group, void *unused)
{
    const int64_t began_ns = ko_now_ns();
    int failed = capture_ring(group) || launch() || finish();

    (void)unused;
    kolo_group_set_timeout(group, LIMIT_MS);
    if (failed)
        return 1;
    if (side.rank == 1) {
        ranks_nap_ms(2 * LIMIT_MS);
        drop();
        return ranks_expect(kolo_barrier(group), KOLO_E_TIMEOUT, "for rank 1 (");
    }
    return launch() || finish() || expect(group, began_ns, KOLO_E_TIMEOUT, "for rank 1 (");
}

static int die_before(kolo_group *group, void *unused)
{
    int failed = capture_ring(group) || launch() || finish() || ranks_let_be_last(group, 1);
    const int64_t began_ns = ko_now_ns();

    (void)unused;
    if (side.rank == 1)
        raise(SIGKILL);
    return failed || launch() || finish() || expect(group, began_ns, KOLO_E_PEER_LOST, "rank 1 (");
}

static void *kill_soon(void *unused)
{
    ranks_nap_ms((int)(ko_now_ns() / 1000 % 50));
    raise(SIGKILL);
    return unused;
}

static int die_within(kolo_group *group, void *unused)
{
    pthread_t killer;
    int failed = capture_ring(group);
    const int64_t began_ns = ko_now_ns();

    (void)unused;
    if (!failed && side.rank == 1 && pthread_create(&killer, NULL, kill_soon, NULL))
        return ranks_fail("no thread");
    while (!failed && !kolo_group_error(group, NULL))
        failed = launch() || finish();
    return failed || expect(group, began_ns, KOLO_E_PEER_LOST, "rank 1 (");
}

/* A blocking receive whose sender dies while both capture. */
static int die_at_capture(kolo_group *group, void *unused)
{
    const int64_t began_ns = ko_now_ns();
    int failed = enter(group) || ranks_let_be_last(group, 1);

    (void)unused;
    if (side.rank == 1)
        raise(SIGKILL);
    failed = failed || gpu_rank_capture() ||
             ranks_expect(kolo_recv(group, at(side.in), BYTES, KOLO_UINT8, 1, 0), KOLO_E_PEER_LOST,
                          "rank 1 (");
    failed |= gpu_rank_captured(&side.exec);
    return failed || expect(group, began_ns, KOLO_E_PEER_LOST, "rank 1 (");
}

static void *abort_soon(void *argument)
{
    ranks_nap_ms(100);
    kolo_group_abort(argument, "enough");
    return NULL;
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
        drop();
        return ranks_expect(kolo_barrier(group), KOLO_E_ABORTED, "enough");
    }
    if (rank == 0 && pthread_create(&aborter, NULL, abort_soon, group))
        return ranks_fail("no thread");
    failed = launch() || finish() || expect(group, began_ns, KOLO_E_ABORTED, "enough");
    return rank == 0 ? pthread_join(aborter, NULL) || failed : failed;
}

static void lose(ranks_body body)
{
    const struct ranks ranks = {.kind = RANKS_PROCESSES, .n = 3, .tolerated = 1};

    exam_set_variables("shm", "", 4096);
    for (int i = 0; i < 2; i++) {
        setenv("FAKECUDA_DEVICES", i ? "3" : "1", 1);
        assert_int_equal(ranks_run(&ranks, body, NULL), 0);
    }
}

static void waits_end(void **state)
{
    (void)state;
    run(RANKS_PROCESSES, 3, do_not_launch);
    run(RANKS_PROCESSES, 3, wait_for_abort);
    lose(die_before);
    lose(die_within);
    lose(die_at_capture);
}

/* The last of all: from here on the driver has threads in this process, which is not to fork. */
static void among_threads(void **state)
{
    (void)state;
    for (int n = 1; n <= MOST_RANKS; n++) {
        run(RANKS_THREADS, n, ring);
        run(RANKS_THREADS, n, replay_all);
    }
    run(RANKS_THREADS, 2, refuse);
    run(RANKS_THREADS, 2, capture_in_turn);
    run(RANKS_THREADS, 3, wait_for_abort);
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
