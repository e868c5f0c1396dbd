/* SPDX-License-Identifier: MIT
 *
 * Messages in CUDA graphs from memory in pieces, as PyTorch's expandable segments are, to other
 * processes, on the double of NVIDIA's driver: handed over once, by the call that captures the
 * first message, which ends whatever the other rank does; by one copy each; of memory that grows
 * and is made anew.
 */
#include "clock.h"
#include "exam.h"
#include "gpu_handover.h"
#include "graph_rank.h"
#include "sanitized.h"
#include "unix_socket.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { BYTES = GRAPH_BYTES, LIMIT_MS = 600, SENDERS = 1, RECEIVERS = 2, PIECE = 1 << 21 };

static void *at(ko_cu_ptr memory)
{
    return (void *)(uintptr_t)memory;
}

/* Memory with the end of a piece in its middle. */
static ko_cu_ptr make(void)
{
    static const unsigned char content[BYTES];
    void *memory = gpu_rank_pieces.make(content, BYTES);

    if (gpu_rank.cuda->stream_sync(gpu_rank.stream))
        abort();
    return (uintptr_t)memory;
}

static void unmake(ko_cu_ptr memory)
{
    unsigned char content[BYTES];

    gpu_rank_pieces.fetch(content, at(memory), BYTES);
}

/* in_pieces: bits. */
static int enter(kolo_group *group, int in_pieces)
{
    if (graph_rank_enter(group))
        return 1;
    if (in_pieces & SENDERS)
        graph_rank.out = make();
    if (in_pieces & RECEIVERS)
        graph_rank.in = make();
    return 0;
}

/* ---- replays --------------------------------------------------------------------------------- */

/* From any byte of it, so that all lies in one piece, or goes on into the next. */
static int replay_ring(kolo_group *group, size_t skipped, size_t nbytes, bool is_counted)
{
    int failed = gpu_rank_capture();

    if (!failed && kolo_sendrecv(group, at(graph_rank.out + skipped), nbytes, graph_rank.to,
                                 at(graph_rank.in), nbytes, graph_rank.from, KOLO_UINT8, 7))
        failed = ranks_fail("a ring");
    failed |= gpu_rank_captured(&graph_rank.exec);
    for (int round = 0; round < GRAPH_LAUNCHES && !failed; round++)
        failed = graph_rank_fill(round) ||
                 (is_counted ? graph_rank_launch_counted(nbytes) : graph_rank_launch()) ||
                 graph_rank_check_part(graph_rank.in, graph_rank.from, round, skipped, nbytes);
    graph_rank_drop();
    return failed;
}

static int replay_rings(kolo_group *group, bool is_counted)
{
    static const struct {
        size_t skipped, nbytes;
    } parts[] = {{1000, 4096},  {0, BYTES},        {BYTES - 1, 1},       {0, 129}, {0, 128},
                 {4096, 65537}, {BYTES / 2, 1000}, {BYTES - 5000, 5000}, {0, 0}};
    int failed = 0;

    for (size_t i = 0; i < sizeof parts / sizeof *parts && !failed; i++)
        failed = replay_ring(group, parts[i].skipped, parts[i].nbytes, is_counted);
    return failed;
}

static int ring(kolo_group *group, void *in_pieces)
{
    return graph_rank_leave(group, enter(group, *(int *)in_pieces) || replay_rings(group, true));
}

/* The counters are the process's. */
static int ring_of_threads(kolo_group *group, void *in_pieces)
{
    return graph_rank_leave(group, enter(group, *(int *)in_pieces) || replay_rings(group, false));
}

static void run_all(enum ranks_kind kind, ranks_body body)
{
    for (int n = 1; n <= GRAPH_MOST_RANKS; n++)
        for (int in_pieces = SENDERS; in_pieces <= (SENDERS | RECEIVERS); in_pieces++) {
            graph_rank_run_on(kind, n, "1", body, &in_pieces);
            graph_rank_run_on(kind, n, "3", body, &in_pieces);
        }
}

static void rings_are_launched_often(void **state)
{
    (void)state;
    SKIP_PROCESSES_UNDER_TSAN();
    run_all(RANKS_PROCESSES, ring);
}

/* The words that the graphs wait for are in pieces, too. */
static void without_handles(void **state)
{
    int in_pieces = SENDERS;

    (void)state;
    setenv("KOLO_CUDA_IPC", "vmm", 1);
    graph_rank_run_on(RANKS_PROCESSES, 3, "1", ring, &in_pieces);
    graph_rank_run_on(RANKS_PROCESSES, 3, "3", ring, &in_pieces);
    unsetenv("KOLO_CUDA_IPC");
    setenv("FAKECUDA_BREAK", "cuIpcOpenMemHandle=201", 1);
    graph_rank_run_on(RANKS_PROCESSES, 3, "1", ring, &in_pieces);
    unsetenv("FAKECUDA_BREAK");
}

/* From each to each by one batch, both ways at once; to some in pieces, to others not. */
static int exchange(kolo_group *group, void *unused)
{
    kolo_p2p ops[2 * GRAPH_MOST_RANKS];
    int failed = graph_rank_enter(group);
    const size_t n = (size_t)graph_rank.n;
    ko_cu_ptr other = graph_rank.out;

    (void)unused;
    graph_rank.out = make();
    for (int r = 0; r < graph_rank.n; r++) {
        ops[r] =
            (kolo_p2p){0, r, 1, KOLO_UINT8, BYTES, at(graph_rank.more + (size_t)r * BYTES), NULL};
        ops[graph_rank.n + r] = (kolo_p2p){
            1,   r, 1, KOLO_UINT8, BYTES, at((graph_rank.rank + r) % 3 ? graph_rank.out : other),
            NULL};
    }
    failed = failed || gpu_rank_capture();
    if (!failed && kolo_batch(group, ops, 2 * n))
        failed = ranks_fail("an exchange");
    failed |= gpu_rank_captured(&graph_rank.exec);
    for (int round = 0; round < GRAPH_LAUNCHES && !failed; round++) {
        failed = graph_rank_fill(round);
        if (!failed && gpu_rank.cuda->copy(other, graph_rank.out, BYTES, graph_rank.stream))
            failed = ranks_fail("a copy");
        failed = failed || graph_rank_launch();
        for (int r = 0; r < graph_rank.n && !failed; r++)
            failed = graph_rank_check(graph_rank.more + (size_t)r * BYTES, r, round, BYTES);
    }
    return graph_rank_leave(group, failed);
}

static void exchanges(void **state)
{
    (void)state;
    SKIP_PROCESSES_UNDER_TSAN();
    for (int n = 2; n <= GRAPH_MOST_RANKS; n++)
        graph_rank_run(RANKS_PROCESSES, n, exchange);
}

/* ---- handing over ---------------------------------------------------------------------------- */

static int capture_ring(kolo_group *group, size_t nbytes)
{
    int failed = gpu_rank_capture();

    if (!failed && kolo_sendrecv(group, at(graph_rank.out), nbytes, graph_rank.to,
                                 at(graph_rank.in), nbytes, graph_rank.from, KOLO_UINT8, 7))
        failed = ranks_fail("a ring");
    return failed | gpu_rank_captured(&graph_rank.exec);
}

/* Rank 0 sends, the others receive, so that it has no descriptor more than before; whom it has
 * handed its memory need not get it again, which the driver would not allow. */
static int hand_over_once(kolo_group *group, void *unused)
{
    int failed = enter(group, SENDERS), n = 0;

    (void)unused;
    for (int round = 0; round < 3 && !failed; round++)
        for (int to = 1; to < graph_rank.n && !failed; to++) {
            if (round == 1)
                setenv("FAKECUDA_BREAK", "cuMemExportToShareableHandle=1", 1);
            if (round == 1 && to == 1)
                n = ranks_count_entries("/proc/self/fd");
            failed = gpu_rank_capture();
            if (!failed && !graph_rank.rank)
                failed = kolo_send(group, at(graph_rank.out), BYTES, KOLO_UINT8, to, 0);
            else if (!failed && graph_rank.rank == to)
                failed = kolo_recv(group, at(graph_rank.in), BYTES, KOLO_UINT8, 0, 0);
            if (failed)
                ranks_fail("round %d to rank %d", round, to);
            failed |= gpu_rank_captured(&graph_rank.exec);
            graph_rank_drop();
        }
    unsetenv("FAKECUDA_BREAK");
    failed = failed || gpu_rank_check_descriptors(n);
    return graph_rank_leave(group, failed);
}

/* New memory each time: what a rank was handed of the old it closes. */
static int hand_over_often(kolo_group *group, void *unused)
{
    int failed = enter(group, 0), n = 0;

    (void)unused;
    for (int i = 0; i < 20 && !failed; i++) {
        graph_rank.out = make();
        failed = replay_ring(group, 0, BYTES, false) || kolo_barrier(group);
        unmake(graph_rank.out);
        if (i == 4)
            n = ranks_count_entries("/proc/self/fd");
    }
    failed = failed || gpu_rank_check_descriptors(n);
    return graph_rank_leave(group, failed);
}

static void are_handed_over_once(void **state)
{
    (void)state;
    for (int n = 2; n <= GRAPH_MOST_RANKS; n++)
        graph_rank_run(RANKS_PROCESSES, n, hand_over_once);
    graph_rank_run(RANKS_PROCESSES, 3, hand_over_often);
}

/* ---- memory that changes --------------------------------------------------------------------- */

enum { ALL = 3 * PIECE, END = 2 * PIECE - 50000 };

static void map(ko_cu_ptr base, int first, int end)
{
    gpu_rank_map(base + (size_t)first * PIECE, PIECE, end - first, KO_CU_HANDLE_DESCRIPTOR);
}

static void unmap(ko_cu_ptr base, int first, int end)
{
    gpu_rank_unmap(base + (size_t)first * PIECE, PIECE, end - first);
}

static int replay(ko_cu_graph_exec exec, int round, ko_cu_ptr out, ko_cu_ptr in)
{
    const ko_cu_ptr other = graph_rank.in;
    int failed;

    graph_rank.exec = exec;
    graph_rank.out = out;
    graph_rank.in = in;
    failed = graph_rank_fill(round) || graph_rank_launch() ||
             graph_rank_check(in, graph_rank.from, round, BYTES);
    graph_rank.exec = NULL;
    graph_rank.in = other;
    return failed;
}

static int capture_from(kolo_group *group, ko_cu_ptr out, ko_cu_graph_exec *exec)
{
    int failed;

    graph_rank.out = out;
    failed = capture_ring(group, BYTES);
    *exec = graph_rank.exec;
    graph_rank.exec = NULL;
    return failed;
}

/* One graph's message lies in the first piece, others' reach into the ones behind, which come later
 * and are changed for others, and at last all are. */
static int grow(kolo_group *group, void *unused)
{
    ko_cu_graph_exec execs[4] = {NULL};
    ko_cu_ptr base, first, across;
    int failed = enter(group, RECEIVERS);

    (void)unused;
    if (failed || gpu_rank.cuda->addresses_reserve(&base, ALL, 0, 0, 0))
        return ranks_fail("no addresses");
    first = base + 4096;
    across = base + END - PIECE;
    map(base, 0, 1);
    failed = capture_from(group, first, &execs[0]) || replay(execs[0], 0, first, graph_rank.in);
    map(base, 1, 2);
    failed = failed || capture_from(group, across, &execs[1]) ||
             replay(execs[0], 1, first, graph_rank.in) ||
             replay(execs[1], 2, across, graph_rank.in) || kolo_barrier(group);
    unmap(base, 1, 2);
    map(base, 1, 3);
    failed = failed || capture_from(group, across, &execs[2]) ||
             replay(execs[0], 3, first, graph_rank.in) ||
             replay(execs[2], 4, across, graph_rank.in) || kolo_barrier(group);
    unmap(base, 0, 3);
    map(base, 0, 3);
    failed = failed || capture_from(group, across, &execs[3]) ||
             replay(execs[3], 5, across, graph_rank.in) || kolo_barrier(group);
    for (int i = 0; i < 4; i++)
        if (execs[i])
            (void)gpu_rank.cuda->graph_exec_destroy(execs[i]);
    unmap(base, 0, 3);
    return graph_rank_leave(group, failed);
}

/* A graph's message lies in the first piece, which has been handed over with the second: that is
 * changed for others. */
static int change_the_end(kolo_group *group, void *unused)
{
    ko_cu_graph_exec execs[3] = {NULL};
    ko_cu_ptr base, first, across;
    int failed = enter(group, RECEIVERS);

    (void)unused;
    if (failed || gpu_rank.cuda->addresses_reserve(&base, ALL, 0, 0, 0))
        return ranks_fail("no addresses");
    first = base + 4096;
    across = base + END - PIECE;
    map(base, 0, 2);
    failed = capture_from(group, across, &execs[0]) || capture_from(group, first, &execs[1]) ||
             replay(execs[1], 0, first, graph_rank.in) || kolo_barrier(group);
    unmap(base, 1, 2);
    map(base, 1, 3);
    failed = failed || capture_from(group, across + PIECE, &execs[2]) ||
             replay(execs[1], 1, first, graph_rank.in) ||
             replay(execs[2], 2, across + PIECE, graph_rank.in) || kolo_barrier(group);
    for (int i = 0; i < 3; i++)
        if (execs[i])
            (void)gpu_rank.cuda->graph_exec_destroy(execs[i]);
    unmap(base, 0, 3);
    return graph_rank_leave(group, failed);
}

static void memory_that_grows(void **state)
{
    (void)state;
    graph_rank_run(RANKS_PROCESSES, 2, grow);
    graph_rank_run(RANKS_PROCESSES, 3, grow);
    graph_rank_run(RANKS_PROCESSES, 2, change_the_end);
}

/* ---- what cannot be -------------------------------------------------------------------------- */

/* One does not fit: nobody asks for its memory. */
static int too_long(kolo_group *group, void *unused)
{
    int failed = enter(group, SENDERS) || gpu_rank_capture();

    (void)unused;
    failed =
        failed || ranks_expect(graph_rank.rank
                                   ? kolo_recv(group, at(graph_rank.in), 8, KOLO_UINT8, 0, 3)
                                   : kolo_send(group, at(graph_rank.out), BYTES, KOLO_UINT8, 1, 3),
                               KOLO_E_TRUNCATED, "the receive room for 8");
    failed |= gpu_rank_captured(&graph_rank.exec);
    graph_rank_drop();
    return graph_rank_leave(group, failed || replay_ring(group, 0, BYTES, false));
}

/* Where descriptors are not wanted, or cannot be opened. */
static int out_of_reach(kolo_group *group, void *breaks)
{
    int failed = enter(group, SENDERS);

    if (graph_rank.rank)
        setenv("FAKECUDA_BREAK", breaks, 1);
    failed = failed || gpu_rank_capture() ||
             ranks_expect(graph_rank.rank
                              ? kolo_recv(group, at(graph_rank.in), BYTES, KOLO_UINT8, 0, 3)
                              : kolo_send(group, at(graph_rank.out), BYTES, KOLO_UINT8, 1, 3),
                          KOLO_E_UNSUPPORTED, "does not reach the memory that it lies in");
    failed |= gpu_rank_captured(&graph_rank.exec);
    graph_rank_drop();
    unsetenv("FAKECUDA_BREAK");
    return graph_rank_leave(group,
                            failed || (*(char *)breaks && replay_ring(group, 0, BYTES, false)));
}

static void some_are_refused(void **state)
{
    static char imports[] = "cuMemImportFromShareableHandle=1", nothing[] = "";

    (void)state;
    graph_rank_run(RANKS_PROCESSES, 2, too_long);
    graph_rank_run_on(RANKS_PROCESSES, 2, "1", out_of_reach, imports);
    setenv("KOLO_CUDA_IPC", "legacy", 1);
    graph_rank_run_on(RANKS_PROCESSES, 2, "1", out_of_reach, nothing);
    unsetenv("KOLO_CUDA_IPC");
}

/* ---- ends ------------------------------------------------------------------------------------ */

/* Links are open, and nothing is under way. */
static int begin(kolo_group *group)
{
    unsigned char out = 0, in;
    int failed = enter(group, SENDERS);

    return failed ||
           kolo_sendrecv(group, &out, 1, graph_rank.to, &in, 1, graph_rank.from, KOLO_UINT8, 0) ||
           kolo_barrier(group);
}

/* What a rank gets out of a call that captures a ring's messages. */
static int expect_end(kolo_group *group, int code, const char *says)
{
    const int64_t began_ns = ko_now_ns();
    const int before = ranks_count_entries("/proc/self/fd");
    int failed =
        gpu_rank_capture() ||
        ranks_expect_soon(began_ns,
                          kolo_sendrecv(group, at(graph_rank.out), BYTES, graph_rank.to,
                                        at(graph_rank.in), BYTES, graph_rank.from, KOLO_UINT8, 7),
                          code, says);

    failed |= gpu_rank_captured(&graph_rank.exec);
    graph_rank_drop();
    if (!failed && ranks_count_entries("/proc/self/fd") >
                       before + 2 * 2 + 1) /* what it was handed, or begun to */
        failed =
            ranks_fail("%d descriptors after %d", ranks_count_entries("/proc/self/fd"), before);
    return failed;
}

/* Rank 1 dies when it opens what it has been handed. */
static int die_taking(kolo_group *group, void *unused)
{
    int failed = begin(group);

    (void)unused;
    if (graph_rank.rank == 1)
        setenv("FAKECUDA_BREAK", "cuMemImportFromShareableHandle=-9", 1);
    return failed || expect_end(group, KOLO_E_PEER_LOST, "rank 1 (");
}

/* At any moment while spans are handed over. */
static int die_within(kolo_group *group, void *unused)
{
    pthread_t killer;
    int failed = begin(group), err = KOLO_OK;

    (void)unused;
    if (!failed && graph_rank.rank == 1 &&
        pthread_create(&killer, NULL, graph_rank_kill_soon, NULL))
        return ranks_fail("no thread");
    while (!failed && !err) {
        graph_rank.out = make();
        failed = gpu_rank_capture();
        err = kolo_sendrecv(group, at(graph_rank.out), BYTES, graph_rank.to, at(graph_rank.in),
                            BYTES, graph_rank.from, KOLO_UINT8, 7);
        if (err)
            failed |= ranks_expect(err, KOLO_E_PEER_LOST, "rank 1 (");
        failed |= gpu_rank_captured(&graph_rank.exec);
        graph_rank_drop();
        unmake(graph_rank.out);
    }
    return failed;
}

/* Rank 1 never comes to capture. */
static int do_not_come(kolo_group *group, void *unused)
{
    int failed = begin(group);

    (void)unused;
    kolo_group_set_timeout(group, LIMIT_MS);
    if (graph_rank.rank != 1)
        return failed || expect_end(group, KOLO_E_TIMEOUT, "rank 1 (");
    ranks_nap_ms(2 * LIMIT_MS);
    return failed;
}

static int give_up(kolo_group *group, void *unused)
{
    pthread_t aborter;
    int failed = begin(group);

    (void)unused;
    if (failed || graph_rank.rank == 1)
        return failed || ranks_expect(kolo_barrier(group), KOLO_E_ABORTED, "enough");
    if (!graph_rank.rank && pthread_create(&aborter, NULL, ranks_abort_soon, group))
        return ranks_fail("no thread");
    failed = expect_end(group, KOLO_E_ABORTED, "enough");
    return graph_rank.rank ? failed : pthread_join(aborter, NULL) || failed;
}

static void waits_end(void **state)
{
    (void)state;
    graph_rank_run(RANKS_PROCESSES, 3, do_not_come);
    graph_rank_run(RANKS_PROCESSES, 3, give_up);
    graph_rank_lose(2, die_taking); /* a third might be done before */
    graph_rank_lose(3, die_within);
}

/* One that asks and takes nothing. */
static void nobody_holds_up_the_end(void **state)
{
    struct ko_crew crew = {0};
    struct ko_gpu_handover *handover;
    struct ko_gpu_pieces *pieces = calloc(1, sizeof *pieces);
    char name[KO_UNIX_NAME];
    const int before = ranks_count_entries("/proc/self/fd");
    int fd;
    int64_t began_ns;

    (void)state;
    ko_crew_open(&crew);
    pieces->n = KO_GPU_MOST_PIECES;
    for (int i = 0; i < pieces->n; i++)
        pieces->fds[i] = dup(0);
    assert_int_equal(ko_unix_listen(&pieces->listener, name), KOLO_OK);
    assert_int_equal(ko_gpu_handover_new(&handover), KOLO_OK);
    assert_null(ko_gpu_handover_name(handover, 3));
    assert_int_equal(ko_gpu_handover_add(handover, 3, pieces, name), KOLO_OK);
    assert_string_equal(ko_gpu_handover_name(handover, 3), name);
    assert_int_equal(ko_gpu_handover_start(handover, &crew), KOLO_OK);
    assert_int_equal(ko_unix_connect(name, &fd), KOLO_OK);
    ranks_nap_ms(50);
    began_ns = ko_now_ns();
    ko_gpu_handover_end(handover);
    assert_true(ko_now_ns() - began_ns < (int64_t)RANKS_SOON_MS * 1000000);
    close(fd);
    ko_crew_close(&crew);
    assert_int_equal(ranks_count_entries("/proc/self/fd"), before);
}

/* The last of all: from here on the driver has threads in this process, which is not to fork. */
static void among_threads(void **state)
{
    (void)state;
    run_all(RANKS_THREADS, ring_of_threads);
    graph_rank_run(RANKS_THREADS, 3, exchange);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rings_are_launched_often),
        cmocka_unit_test(without_handles),
        cmocka_unit_test(exchanges),
        cmocka_unit_test(are_handed_over_once),
        cmocka_unit_test(memory_that_grows),
        cmocka_unit_test(some_are_refused),
        cmocka_unit_test(waits_end),
        cmocka_unit_test(nobody_holds_up_the_end),
        cmocka_unit_test(among_threads),
    };

    setenv("FAKECUDA_JITTER", "50", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
