/* SPDX-License-Identifier: MIT
 *
 * Asynchronous messages of GPU memory in the order of a stream, on the double of NVIDIA's driver:
 * the call returns while the stream stands still; what is sent is what the stream has written
 * before, what comes behind sees what was received and may overwrite what was sent, with nobody
 * waiting; many, in chains, both ways, beside host memory's and among collectives; ranks that are
 * lost, late or give up.
 */
#include "clock.h"
#include "exam.h"
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

enum { COUNT = 5000, BYTES = COUNT * sizeof(int), AT_ONCE_MS = 500, CHAIN = 60, SEEN = 31 };

/* Of a rank. */
static _Thread_local struct {
    int rank, n;
    ko_cu_ptr a, b;
    int *host;     /* BYTES */
    uint32_t gate; /* of the stream */
} side;

static void *at(ko_cu_ptr memory)
{
    return (void *)(uintptr_t)memory;
}

static int enter(kolo_group *group)
{
    side.rank = kolo_group_rank(group);
    side.n = kolo_group_size(group);
    side.gate = 0;
    side.host = malloc(BYTES);
    return gpu_rank_enter(group) || gpu_rank.cuda->alloc(&side.a, BYTES) ||
                   gpu_rank.cuda->alloc(&side.b, BYTES)
               ? ranks_fail("no memory")
               : 0;
}

static int leave(int failed)
{
    failed = gpu_rank_leave(failed);
    (void)gpu_rank.cuda->free(side.a);
    (void)gpu_rank.cuda->free(side.b);
    free(side.host);
    return failed;
}

/* By the stream. */
static void fill(ko_cu_ptr memory, unsigned char value)
{
    if (gpu_rank.cuda->fill(memory, value, BYTES, gpu_rank.stream))
        abort();
}

static void copy(ko_cu_ptr to, ko_cu_ptr from)
{
    if (gpu_rank.cuda->copy(to, from, BYTES, gpu_rank.stream))
        abort();
}

static void close_gate(void)
{
    if (gpu_rank.cuda->stream_await_word(gpu_rank.stream, (uintptr_t)&side.gate, 1, KO_CU_WAIT_EQ))
        abort();
}

static void open_gate(void)
{
    __atomic_store_n(&side.gate, 1, __ATOMIC_RELEASE);
}

/* Whether the memory is full of the value, once the stream has come here. */
static int check(ko_cu_ptr memory, unsigned char value, const char *what)
{
    const unsigned char *bytes = (unsigned char *)side.host;

    if (gpu_rank.cuda->copy((uintptr_t)side.host, memory, BYTES, gpu_rank.stream) ||
        gpu_rank.cuda->stream_sync(gpu_rank.stream))
        return ranks_fail("the stream has failed");
    for (size_t i = 0; i < BYTES; i++)
        if (bytes[i] != value)
            return ranks_fail("rank %d, %s: byte %zu is %d, not %d", side.rank, what, i, bytes[i],
                              value);
    return 0;
}

static int finish(kolo_work *work, int failed)
{
    if (failed || kolo_work_wait(work, -1))
        failed = ranks_fail("a message");
    kolo_work_free(work);
    return failed;
}

/* ---- order ----------------------------------------------------------------------------------- */

/* Both streams stand still when the calls are made; nobody waits for the works. */
static int both_ends(kolo_group *group, void *unused)
{
    kolo_work *work = NULL;
    int failed = enter(group);
    int64_t began_ns;

    (void)unused;
    fill(side.a, 1);
    if (gpu_rank.cuda->stream_sync(gpu_rank.stream) || kolo_barrier(group))
        return ranks_fail("the start");
    close_gate();
    fill(side.a, 2);
    began_ns = ko_now_ns();
    failed |= side.rank ? kolo_irecv(group, at(side.b), COUNT, KOLO_INT32, 0, 0, &work)
                        : kolo_isend(group, at(side.a), COUNT, KOLO_INT32, 1, 0, &work);
    failed |= ranks_within(began_ns, AT_ONCE_MS, "the call's end");
    copy(side.a, side.b); /* rank 0 overwrites what it sends, rank 1 reads what it receives */
    ranks_nap_ms(side.rank ? 30 : 60);
    open_gate();
    if (side.rank)
        failed |= check(side.a, 2, "behind a receive");
    if (gpu_rank.cuda->stream_sync(gpu_rank.stream))
        failed = ranks_fail("the stream");
    return leave(finish(work, failed));
}

/* Passed on from rank to rank, again and again in the same memory; the works wait till the end. */
static int chain(kolo_group *group, void *unused)
{
    static _Thread_local kolo_work *works[2 * CHAIN];
    int failed = enter(group), nworks = 0;

    (void)unused;
    for (int i = 0; i < CHAIN && !failed; i++) {
        if (side.rank == 0)
            fill(side.a, (unsigned char)(i + 1));
        else
            failed |= kolo_irecv(group, at(side.a), COUNT, KOLO_INT32, side.rank - 1, i % 3,
                                 &works[nworks++]);
        if (i == SEEN)
            copy(side.b, side.a);
        if (side.rank + 1 < side.n)
            failed |= kolo_isend(group, at(side.a), i % 5 ? COUNT : 5, KOLO_INT32, side.rank + 1,
                                 i % 3, &works[nworks++]);
    }
    fill(side.a, 0);
    failed |= check(side.b, SEEN + 1, "of a chain");
    for (int i = 0; i < nworks; i++)
        failed = finish(works[i], failed);
    return leave(failed);
}

/* Around a ring, each rank both ways at once, what comes is what goes next. */
static int ring(kolo_group *group, void *unused)
{
    kolo_work *works[20];
    int failed = enter(group);
    const int to = (side.rank + 1) % side.n, from = (side.rank + side.n - 1) % side.n;

    (void)unused;
    fill(side.a, (unsigned char)(side.rank + 1));
    for (int i = 0; i < 20 && !failed; i++) {
        failed |= kolo_sendrecv_async(group, at(side.a), COUNT, to, at(side.b), COUNT, from,
                                      KOLO_INT32, 0, &works[i]);
        copy(side.a, side.b);
        fill(side.b, 99);
    }
    failed |= check(side.a, (unsigned char)((side.rank + 20 * side.n - 20) % side.n + 1), "a ring");
    for (int i = 0; i < 20; i++)
        failed = finish(works[i], failed);
    return leave(failed);
}

static int take_one(kolo_work **works, size_t nworks, size_t at)
{
    size_t index = nworks;

    if (kolo_work_wait_any(works, nworks, -1, &index) || index != at)
        return ranks_fail("work %zu of %zu has ended, and not %zu", index, nworks, at);
    kolo_work_free(works[index]);
    works[index] = NULL;
    return 0;
}

/* Of a message of host memory, a collective and a message that both are in the stream: whichever
 * ends. */
static int any_of_these(kolo_group *group, void *unused)
{
    kolo_work *works[3] = {NULL, NULL, NULL};
    int failed = enter(group);
    char byte = 0;

    (void)unused;
    fill(side.a, 1);
    fill(side.b, (unsigned char)side.rank);
    if (side.rank == 0)
        failed |= kolo_irecv(group, &byte, 1, KOLO_INT8, 1, 9, &works[0]) ||
                  kolo_all_reduce_async(group, at(side.a), at(side.a), BYTES, KOLO_UINT8, KOLO_SUM,
                                        &works[1]) ||
                  kolo_irecv(group, at(side.b), COUNT, KOLO_INT32, 1, 8, &works[2]) ||
                  take_one(works, 3, 1) || kolo_send(group, NULL, 0, KOLO_INT8, 1, 7) ||
                  take_one(works, 3, 2) || kolo_send(group, NULL, 0, KOLO_INT8, 1, 7) ||
                  take_one(works, 3, 0) || check(side.a, 2, "a collective among others") ||
                  check(side.b, 1, "a message among others");
    else
        failed |= kolo_all_reduce(group, at(side.a), at(side.a), BYTES, KOLO_UINT8, KOLO_SUM) ||
                  kolo_recv(group, NULL, 0, KOLO_INT8, 0, 7) ||
                  kolo_send(group, at(side.b), COUNT, KOLO_INT32, 0, 8) ||
                  kolo_recv(group, NULL, 0, KOLO_INT8, 0, 7) ||
                  kolo_send(group, &byte, 1, KOLO_INT8, 0, 9);
    return leave(failed);
}

/* Rank 0's result of a collective goes to rank 1, and what that receives into the next. */
static int among_collectives(kolo_group *group, void *unused)
{
    kolo_work *works[3] = {NULL, NULL, NULL};
    int failed = enter(group), n = 0;

    (void)unused;
    fill(side.a, 1);
    fill(side.b, 0);
    failed |= kolo_all_reduce_async(group, at(side.a), at(side.a), BYTES, KOLO_UINT8, KOLO_SUM,
                                    &works[n++]);
    if (side.rank == 0)
        failed |= kolo_isend(group, at(side.a), COUNT, KOLO_INT32, 1, 0, &works[n++]);
    else if (side.rank == 1)
        failed |= kolo_irecv(group, at(side.b), COUNT, KOLO_INT32, 0, 0, &works[n++]);
    failed |= kolo_all_reduce_async(group, at(side.b), at(side.b), BYTES, KOLO_UINT8, KOLO_SUM,
                                    &works[n++]);
    failed |= check(side.b, (unsigned char)side.n, "among collectives");
    for (int i = 0; i < n; i++)
        failed = finish(works[i], failed);
    return leave(failed);
}

/* Rank 0 leaves its stream waiting for a message, and behind it for a collective that rank 1 comes
 * to a second later; the message comes later still. */
static int before_a_late_collective(kolo_group *group, void *unused)
{
    kolo_work *works[2];
    int failed = enter(group), word = 0;

    (void)unused;
    fill(side.a, (unsigned char)(side.rank + 1));
    fill(side.b, 0);
    if (failed || kolo_all_reduce(group, at(side.a), at(side.a), BYTES, KOLO_UINT8, KOLO_SUM))
        return ranks_fail("the call before");
    if (side.rank) {
        failed = kolo_recv(group, &word, 1, KOLO_INT32, 0, 1);
        close_gate();
    }
    failed |= side.rank ? kolo_isend(group, at(side.a), COUNT, KOLO_INT32, 0, 0, &works[0])
                        : kolo_irecv(group, at(side.b), COUNT, KOLO_INT32, 1, 0, &works[0]);
    if (failed || kolo_all_reduce_async(group, at(side.a), at(side.a), BYTES, KOLO_UINT8, KOLO_SUM,
                                        &works[1]))
        return ranks_fail("the calls");
    if (side.rank == 0)
        failed = kolo_send(group, &word, 1, KOLO_INT32, 1, 1);
    else
        ranks_nap_ms(50); /* for rank 0 to put its part behind the message */
    open_gate();
    failed = finish(works[0], failed);
    failed = finish(works[1], failed);
    failed |= check(side.a, 6, "a late collective");
    return leave(failed || check(side.b, side.rank ? 0 : 3, "before a late collective"));
}

/* Messages of host memory: with the same tag behind those of the GPU's, with another one at once.
 */
static int beside_host_memory(kolo_group *group, void *unused)
{
    kolo_work *works[2] = {NULL, NULL};
    int failed = enter(group), two = 2, got[3] = {0, 0, 0};

    (void)unused;
    if (side.rank == 0) {
        close_gate();
        fill(side.a, 1);
        failed |= kolo_isend(group, at(side.a), 1, KOLO_INT32, 1, 0, &works[0]) ||
                  kolo_isend(group, &two, 1, KOLO_INT32, 1, 0, &works[1]) ||
                  kolo_send(group, &two, 1, KOLO_INT32, 1, 1) ||
                  kolo_recv(group, got, 1, KOLO_INT32, 1, 2);
        open_gate();
        failed = finish(works[0], failed);
        failed = finish(works[1], failed);
    } else {
        failed |= kolo_recv(group, got, 1, KOLO_INT32, 0, 1) ||
                  kolo_send(group, &two, 1, KOLO_INT32, 0, 2) ||
                  kolo_recv(group, got + 1, 1, KOLO_INT32, 0, 0) ||
                  kolo_recv(group, got + 2, 1, KOLO_INT32, 0, 0);
        if (got[0] != 2 || got[1] != 0x01010101 || got[2] != 2)
            failed = ranks_fail("%d, %d, %d came", got[0], got[1], got[2]);
    }
    return leave(failed);
}

/* One that is too long: its work says so, and the stream and the group go on. */
static int too_long(kolo_group *group, void *unused)
{
    kolo_work *works[2] = {NULL, NULL};
    int failed = enter(group), err;

    (void)unused;
    fill(side.a, 3);
    for (int i = 0; i < 2 && !failed; i++)
        failed = side.rank ? kolo_irecv(group, at(side.b), COUNT - !i, KOLO_INT32, 0, i, &works[i])
                           : kolo_isend(group, at(side.a), COUNT, KOLO_INT32, 1, i, &works[i]);
    failed |= check(side.rank ? side.b : side.a, 3, "behind one that was too long");
    err = kolo_work_wait(works[0], -1);
    if (side.rank || err) /* else the message was out before */
        failed |= ranks_expect(err, KOLO_E_TRUNCATED, "");
    kolo_work_free(works[0]);
    return leave(finish(works[1], failed));
}

/* ---- ends ------------------------------------------------------------------------------------ */

static int post(kolo_group *group, kolo_work **work)
{
    return side.rank ? kolo_irecv(group, at(side.a), COUNT, KOLO_INT32, 0, 0, work)
                     : kolo_isend(group, at(side.a), COUNT, KOLO_INT32, 1, 0, work);
}

/* Two messages that end like this, and a stream that goes on. */
static int expect_end(kolo_group *group, int status, const char *text)
{
    kolo_work *works[2] = {NULL, NULL};
    int failed = post(group, &works[0]) || post(group, &works[1]);

    if (failed)
        return ranks_fail("they were not taken");
    if (gpu_rank.cuda->stream_sync(gpu_rank.stream))
        failed = ranks_fail("the stream has failed");
    for (int i = 0; i < 2; i++) {
        failed |= ranks_expect(kolo_work_wait(works[i], -1), status, text);
        kolo_work_free(works[i]);
    }
    return failed;
}

static int victim;

static int lose(kolo_group *group, void *unused)
{
    kolo_work *work;
    int failed = enter(group);

    (void)unused;
    if (kolo_barrier(group))
        return ranks_fail("the start");
    if (side.rank != victim)
        return leave(failed | expect_end(group, KOLO_E_PEER_LOST, victim ? "rank 1" : "rank 0"));
    close_gate();
    failed |= post(group, &work);
    ranks_nap_ms(50);
    raise(SIGKILL);
    return failed;
}

/* Rank 1 does not receive, or rank 0 does not send. */
static int be_late(kolo_group *group, void *unused)
{
    int failed = enter(group);

    (void)unused;
    if (side.rank != victim) {
        kolo_group_set_timeout(group, 300);
        failed |= expect_end(group, KOLO_E_TIMEOUT, victim ? "rank 1" : "rank 0");
    } else {
        ranks_nap_ms(600);
    }
    return leave(failed);
}

/* While a stream stands still before its message, or behind it. */
static int give_up(kolo_group *group, void *unused)
{
    pthread_t thread;
    kolo_work *work = NULL;
    int failed = enter(group);

    (void)unused;
    if (side.rank == victim) {
        close_gate();
        if (post(group, &work) || pthread_create(&thread, NULL, ranks_abort_soon, group))
            return ranks_fail("the start");
        failed |= ranks_expect(kolo_work_wait(work, -1), KOLO_E_ABORTED, "enough");
        kolo_work_free(work);
        pthread_join(thread, NULL);
        open_gate();
    } else {
        failed |= expect_end(group, KOLO_E_ABORTED, "enough");
    }
    return leave(failed);
}

/* A group that is freed with a message under way leaves the stream to go on. Rank 1 may hear of it
 * before it has left the barrier. */
static int free_early(kolo_group *group, void *unused)
{
    static kolo_work *work;
    int failed = enter(group), err = kolo_barrier(group);

    (void)unused;
    if (side.rank == 1)
        return failed | ranks_expect(err ? err : kolo_recv(group, side.host, 1, KOLO_INT32, 0, 9),
                                     KOLO_E_ABORTED, "rank 0");
    if (err || kolo_irecv(group, at(side.a), COUNT, KOLO_INT32, 1, 0, &work))
        return ranks_fail("before the end");
    return failed;
}

/* ---- runs ------------------------------------------------------------------------------------ */

static void run_by(const char *transport, enum ranks_kind kind, int n, ranks_body body)
{
    const struct ranks ranks = {.kind = kind, .n = n, .tolerated = body == lose};

    exam_set_variables(transport, "", 4096);
    for (int ngpus = 1; ngpus <= 3; ngpus += 2) {
        setenv("FAKECUDA_DEVICES", ngpus == 1 ? "1" : "3", 1);
        assert_int_equal(ranks_run(&ranks, body, NULL), 0);
    }
}

static void run(enum ranks_kind kind, int n, ranks_body body)
{
    run_by("shm", kind, n, body);
}

static void run_orders(enum ranks_kind kind)
{
    run(kind, 2, both_ends);
    run(kind, 3, chain);
    run(kind, 4, ring);
    run(kind, 3, among_collectives);
    run(kind, 2, beside_host_memory);
    run(kind, 2, any_of_these);
    run(kind, 2, too_long);
}

static void in_order(void **state)
{
    (void)state;
    run_orders(RANKS_PROCESSES);
}

static void in_order_with_late_ones(void **state)
{
    (void)state;
    run(RANKS_PROCESSES, 2, before_a_late_collective);
}

static void *open_soon(void *gate)
{
    ranks_nap_ms(50);
    __atomic_store_n((uint32_t *)gate, 1, __ATOMIC_RELEASE);
    return NULL;
}

/* A message of a graph does not find the receive of one that the stream has still to come to. */
static int before_a_graph(kolo_group *group, void *unused)
{
    ko_cu_graph_exec exec = NULL;
    kolo_work *work = NULL;
    pthread_t opener;
    int failed = enter(group);

    (void)unused;
    fill(side.a, 1);
    fill(side.b, 0);
    if (side.rank == 0)
        close_gate();
    failed |= side.rank ? kolo_irecv(group, at(side.b), COUNT, KOLO_INT32, 0, 0, &work)
                        : kolo_isend(group, at(side.a), COUNT, KOLO_INT32, 1, 0, &work);
    if (failed || pthread_create(&opener, NULL, open_soon, &side.gate))
        return ranks_fail("the start");
    failed =
        gpu_rank_capture() || (side.rank ? kolo_recv(group, at(side.a), COUNT, KOLO_INT32, 0, 0)
                                         : kolo_send(group, at(side.b), COUNT, KOLO_INT32, 1, 0));
    if (failed)
        ranks_fail("a captured message");
    failed |= gpu_rank_captured(&exec);
    if (!failed)
        failed = check(side.b, side.rank ? 1 : 0, "before the graph");
    if (!failed && gpu_rank.cuda->graph_launch(exec, gpu_rank.stream))
        failed = ranks_fail("a launch");
    failed = failed || check(side.a, side.rank ? 0 : 1, "of the graph");
    if (exec)
        (void)gpu_rank.cuda->graph_exec_destroy(exec);
    pthread_join(opener, NULL);
    return leave(finish(work, failed));
}

/* Rank 1 receives neither: the one before ends, and with it the wait of the graph's. */
static int late_before_a_graph(kolo_group *group, void *unused)
{
    const int64_t began_ns = ko_now_ns();
    ko_cu_graph_exec exec = NULL;
    kolo_work *work = NULL;
    int failed = enter(group);

    (void)unused;
    kolo_group_set_timeout(group, 300);
    if (side.rank) {
        ranks_nap_ms(900);
        return leave(failed);
    }
    failed |= kolo_isend(group, at(side.a), COUNT, KOLO_INT32, 1, 0, &work) || gpu_rank_capture() ||
              ranks_expect_soon(began_ns, kolo_send(group, at(side.b), COUNT, KOLO_INT32, 1, 0),
                                KOLO_E_TIMEOUT, "rank 1");
    failed |= gpu_rank_captured(&exec);
    if (exec)
        (void)gpu_rank.cuda->graph_exec_destroy(exec);
    failed |= ranks_expect(kolo_work_wait(work, -1), KOLO_E_TIMEOUT, "rank 1");
    kolo_work_free(work);
    return leave(failed);
}

static void in_order_with_graphs(void **state)
{
    (void)state;
    run(RANKS_PROCESSES, 2, before_a_graph);
    run(RANKS_PROCESSES, 2, late_before_a_graph);
}

static void by_way_of_the_host(void **state)
{
    (void)state;
    setenv("KOLO_CUDA_IPC", "off", 1);
    run_orders(RANKS_PROCESSES);
    run_by("tcp", RANKS_PROCESSES, 2, both_ends);
    run_by("tcp", RANKS_PROCESSES, 3, chain);
    unsetenv("KOLO_CUDA_IPC");
}

static void lost_and_late_ranks(void **state)
{
    (void)state;
    for (victim = 0; victim < 2; victim++) {
        run(RANKS_PROCESSES, 2, lose);
        run(RANKS_PROCESSES, 2, be_late);
        run(RANKS_PROCESSES, 2, give_up);
    }
}

static void a_group_that_is_freed(void **state)
{
    (void)state;
    run(RANKS_PROCESSES, 2, free_early);
}

/* The last of all: from here on the driver has threads in this process, which is not to fork. */
static void among_threads(void **state)
{
    (void)state;
    run_orders(RANKS_THREADS);
    for (victim = 0; victim < 2; victim++) {
        run(RANKS_THREADS, 2, be_late);
        run(RANKS_THREADS, 2, give_up);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_order),
        cmocka_unit_test(in_order_with_late_ones),
        cmocka_unit_test(in_order_with_graphs),
        cmocka_unit_test(by_way_of_the_host),
        cmocka_unit_test(lost_and_late_ranks),
        cmocka_unit_test(a_group_that_is_freed),
        cmocka_unit_test(among_threads),
    };

    setenv("FAKECUDA_JITTER", "50", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
