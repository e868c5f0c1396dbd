/* SPDX-License-Identifier: MIT
 *
 * Messages of GPU memory that go by way of the host, on the double of NVIDIA's driver: by memory
 * that the driver has locked, and by little of it however long they are; while one part of them is
 * on the wire others are copied, at both ends; whoever is at the other end. Those that do not fit,
 * that nobody wants yet, whose stream is late; ranks that are lost, or give up, in their middle.
 */
#include "clock.h"
#include "exam.h"
#include "gpu_double.h"
#include "gpu_passage.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

enum {
    SLICE_BYTES = 4096,
    SLOT_BYTES = 4 * SLICE_BYTES - 32, /* one slice of tcp's */
    SLOTS = 4,

    LONG = 64 * SLOT_BYTES + 77,
    MOST = 2000003,
    LOCKED_MOST = 128 << 10 /* at once: the slots of a send and of a receive */
};

static _Thread_local int rank;

/* What processes tell each other beside the group. */
static struct {
    atomic_int is_held, is_seen;
    atomic_llong ended_ns;
} * board;

static int enter(kolo_group *group)
{
    rank = kolo_group_rank(group);
    return gpu_rank_enter(group) || ranks_exchange(group);
}

static bool await_flag(atomic_int *flag)
{
    for (int i = 0; i < 10000 && !atomic_load(flag); i++)
        ranks_nap_ms(1);
    return atomic_load(flag);
}

/* That the rank's GPU and the host have exchanged so much since then. */
static bool await_bytes(uint64_t before, uint64_t nbytes)
{
    for (int i = 0; i < 10000 && gpu_bytes_now().with_host - before < nbytes; i++)
        ranks_nap_ms(1);
    return gpu_bytes_now().with_host - before >= nbytes;
}

/* ---- lengths --------------------------------------------------------------------------------- */

/* Both ways at once; who has what where depends on the round. */
struct round {
    size_t nbytes;
    unsigned number;
    struct gpu_area in, out; /* what is sent, what comes */
};

static size_t odd(const struct round *round)
{
    return round->number % 3 * 7;
}

static int exchange(kolo_group *group, const struct round *round)
{
    const size_t n = round->nbytes;
    kolo_message message = {.count = 1};
    const kolo_p2p ops[] = {
        {1, !rank, 3, KOLO_UINT8, n, round->in.at + odd(round), NULL},
        {0, !rank, 3, KOLO_UINT8, n + round->number % 2, round->out.at + odd(round), &message}};
    kolo_work *work = NULL;
    int err;

    if (!(round->number & 4))
        return kolo_batch(group, ops, 2) || message.count != n;
    err = kolo_batch_async(group, ops, 2, &work) || kolo_work_wait(work, -1);
    kolo_work_free(work);
    return err || message.count != n;
}

/* What is sent first is received last. */
static int exchange_late(kolo_group *group, const struct round *round)
{
    kolo_work *work = NULL;
    unsigned char byte = 1;
    int err =
        kolo_isend(group, round->in.at + odd(round), round->nbytes, KOLO_UINT8, !rank, 3, &work) ||
        kolo_sendrecv(group, &byte, 1, !rank, &byte, 1, !rank, KOLO_UINT8, 4) ||
        kolo_recv(group, round->out.at + odd(round), round->nbytes, KOLO_UINT8, !rank, 3) ||
        kolo_work_wait(work, -1);

    kolo_work_free(work);
    return err;
}

static int take(kolo_group *group, struct round *round, bool is_counted)
{
    const unsigned side = round->number >> rank;
    uint64_t pageable, locked, most;
    int failed;

    round->in = gpu_area_new(round->nbytes + 33, (side & 1) || round->number >= 8);
    round->out = gpu_area_new(round->nbytes + 33, (side & 2) || round->number >= 8);
    gpu_area_fill(&round->in, odd(round), round->nbytes, rank, round->number);
    gpu_area_fill(&round->out, 0, 0, rank, 0);
    pageable = gpu_bytes_pageable();
    locked = gpu_bytes_locked(&most);
    failed = round->number >= 8 ? exchange_late(group, round) : exchange(group, round);
    if (failed)
        failed = ranks_fail("%zu bytes in round %u", round->nbytes, round->number);
    (void)gpu_bytes_locked(&most);
    if (!failed && is_counted && gpu_bytes_pageable() != pageable)
        failed =
            ranks_fail("%zu bytes of %zu went by memory that is not locked, in round %u",
                       (size_t)(gpu_bytes_pageable() - pageable), round->nbytes, round->number);
    if (!failed && is_counted && most > locked + LOCKED_MOST)
        failed = ranks_fail("%zu bytes of memory were locked for %zu", (size_t)(most - locked),
                            round->nbytes);
    failed = failed || gpu_area_check(&round->in, odd(round), round->nbytes, rank, round->number) ||
             gpu_area_check(&round->out, odd(round), round->nbytes, !rank, round->number);
    gpu_area_free(&round->in);
    gpu_area_free(&round->out);
    return failed;
}

static int take_all(kolo_group *group, bool is_counted)
{
    static const size_t lengths[] = {0,
                                     1,
                                     SLOT_BYTES - 1,
                                     SLOT_BYTES,
                                     SLOT_BYTES + 1,
                                     2 * SLOT_BYTES + 1,
                                     SLOTS * SLOT_BYTES,
                                     SLOTS * SLOT_BYTES + 1,
                                     300007,
                                     MOST};
    enum { NLENGTHS = sizeof lengths / sizeof *lengths, ROUNDS = 10 };
    int failed = 0;

    for (unsigned i = 0; i < ROUNDS * NLENGTHS && !failed; i++) {
        struct round round = {.nbytes = lengths[i / ROUNDS], .number = i % ROUNDS};

        failed = take(group, &round, is_counted);
    }
    return failed;
}

static int take_counted(kolo_group *group, void *unused)
{
    (void)unused;
    return gpu_rank_leave(enter(group) || take_all(group, true));
}

static int take_uncounted(kolo_group *group, void *unused)
{
    (void)unused;
    return gpu_rank_leave(enter(group) || take_all(group, false));
}

/* The receiver is told where the message lies, but cannot open that: it asks for the message. */
static int take_withdrawn(kolo_group *group, void *unused)
{
    struct round round = {.nbytes = LONG};
    int failed = enter(group);

    (void)unused;
    setenv("FAKECUDA_BREAK", "cuIpcOpenMemHandle=1", 1);
    for (round.number = 0; round.number < 8 && !failed; round.number++)
        failed = take(group, &round, round.number == 3);
    unsetenv("FAKECUDA_BREAK");
    return gpu_rank_leave(failed);
}

/* ---- both ends at work ----------------------------------------------------------------------- */

/* The receiver's GPU has the beginning before the sender's has given the end. */
static int send_in_part(kolo_group *group)
{
    const struct gpu_area area = gpu_area_new(LONG, true);
    struct gpu_area sent = area;
    kolo_work *work = NULL;
    uint64_t before, given;
    int failed = 0;

    gpu_area_fill(&area, 0, LONG, 0, 1);
    before = gpu_bytes_now().with_host;
    if (kolo_isend(group, area.at, LONG, KOLO_UINT8, 1, 0, &work) ||
        !await_bytes(before, SLOTS * SLOT_BYTES))
        failed = ranks_fail("nothing is copied beforehand");
    gpu_hold("transfers");
    ranks_nap_ms(20);
    given = gpu_bytes_now().with_host - before;
    if (!failed && given > LONG / 2)
        failed = ranks_fail("%zu bytes of a message that nobody wants are copied", (size_t)given);
    atomic_store(&board->is_held, 1);
    if (!failed && !await_flag(&board->is_seen))
        failed = ranks_fail("rank 1 has got nothing of it");
    gpu_hold("");
    if (kolo_work_wait(work, -1))
        failed = ranks_fail("the message");
    kolo_work_free(work);
    gpu_area_free(&sent);
    return failed;
}

static int receive_in_part(kolo_group *group)
{
    struct gpu_area area = gpu_area_new(LONG, true);
    kolo_work *work = NULL;
    uint64_t before;
    int failed = 0;

    gpu_area_fill(&area, 0, 0, 0, 1);
    before = gpu_bytes_now().with_host;
    if (!await_flag(&board->is_held))
        failed = ranks_fail("rank 0");
    if (kolo_irecv(group, area.at, LONG, KOLO_UINT8, 0, 0, &work) ||
        !await_bytes(before, 2 * SLOT_BYTES))
        failed = ranks_fail("nothing has come to the GPU");
    atomic_store(&board->is_seen, 1);
    if (kolo_work_wait(work, -1))
        failed = ranks_fail("the message");
    kolo_work_free(work);
    failed = failed || gpu_area_check(&area, 0, LONG, 0, 1);
    gpu_area_free(&area);
    return failed;
}

static int overlap(kolo_group *group, void *unused)
{
    int failed = enter(group);

    (void)unused;
    if (!failed)
        failed = rank ? receive_in_part(group) : send_in_part(group);
    return gpu_rank_leave(failed);
}

/* ---- what does not go ------------------------------------------------------------------------ */

static int too_long(kolo_group *group, void *unused)
{
    int failed = enter(group);
    struct gpu_area area = gpu_area_new(LONG, true);

    (void)unused;
    for (unsigned key = 0; key < 3 && !failed; key++) {
        gpu_area_fill(&area, 0, rank ? 0 : LONG, 0, key);
        failed = ranks_expect(rank ? kolo_recv(group, area.at, LONG - 1, KOLO_UINT8, 0, 0)
                                   : kolo_send(group, area.at, LONG, KOLO_UINT8, 1, 0),
                              KOLO_E_TRUNCATED, "has 1046605 bytes") ||
                 gpu_area_check(&area, 0, rank ? 0 : LONG, 0, key) ||
                 (rank ? kolo_recv(group, area.at, LONG, KOLO_UINT8, 0, 0)
                       : kolo_send(group, area.at, LONG, KOLO_UINT8, 1, 0)) ||
                 gpu_area_check(&area, 0, LONG, 0, key);
    }
    gpu_area_free(&area);
    return gpu_rank_leave(failed);
}

/* Rank 1's stream does not come to the receive before a message that is sent behind it. */
static int late_stream(kolo_group *group, void *unused)
{
    static uint32_t gate;
    int failed = enter(group);
    struct gpu_area area = gpu_area_new(LONG, true);
    kolo_work *work = NULL;
    unsigned char byte = 1;

    (void)unused;
    gpu_area_fill(&area, 0, rank ? 0 : LONG, 0, 5);
    if (rank == 0) {
        failed |= kolo_isend(group, area.at, LONG, KOLO_UINT8, 1, 0, &work) ||
                  kolo_send(group, &byte, 1, KOLO_UINT8, 1, 1) || kolo_work_wait(work, -1);
    } else {
        const uint64_t pageable = gpu_bytes_pageable();

        failed |=
            gpu_rank.cuda->stream_await_word(gpu_rank.stream, (uintptr_t)&gate, 1, KO_CU_WAIT_EQ) ||
            kolo_irecv(group, area.at, LONG, KOLO_UINT8, 0, 0, &work) ||
            kolo_recv(group, &byte, 1, KOLO_UINT8, 0, 1);
        __atomic_store_n(&gate, 1, __ATOMIC_RELEASE);
        failed |= kolo_work_wait(work, -1) || gpu_bytes_pageable() != pageable;
    }
    kolo_work_free(work);
    failed = failed ? ranks_fail("the messages") : gpu_area_check(&area, 0, LONG, 0, 5);
    gpu_area_free(&area);
    return gpu_rank_leave(failed);
}

/* ---- ends in the middle ---------------------------------------------------------------------- */

enum { FAULT = 700 };

/* What becomes of a rank in the middle of the message. */
static struct {
    int rank;
    enum { IS_KILLED, ABORTS, FAILS } how;
} ends;

/* What a thread beside the call knows of it. */
struct middle {
    kolo_group *group;
    struct gpu_rank gpu;
    int rank;
    uint64_t before; /* bytes that GPU and host had exchanged */
};

static void end_now(const struct middle *middle)
{
    gpu_rank = middle->gpu;
    atomic_store(&board->ended_ns, ko_now_ns());
    if (ends.how == IS_KILLED)
        raise(SIGKILL);
    if (ends.how == ABORTS)
        kolo_group_abort(middle->group, "enough");
    else if (gpu_fail(FAULT))
        abort();
}

/* The sender's GPU stands still before there is a receive, so that none gets all of the message
 * however late this thread comes; then the end comes when the receiver's has got some. */
static void *end_in_the_middle(void *argument)
{
    const struct middle *middle = argument;
    const bool ends_here = middle->rank == ends.rank;

    if (!await_bytes(middle->before, 2 * SLOT_BYTES))
        abort();
    if (middle->rank == 0 || ends_here)
        gpu_hold("transfers");
    atomic_store(middle->rank ? &board->is_seen : &board->is_held, 1);
    if (ends_here) {
        if (!await_flag(&board->is_seen))
            abort();
        end_now(middle);
    }
    return NULL;
}

static int expect_end(int err)
{
    static const int codes[] = {KOLO_E_PEER_LOST, KOLO_E_ABORTED, KOLO_E_SYSTEM};
    static const char *const reasons[] = {"", "enough", "(700)"};
    const int64_t ended_ns = atomic_load(&board->ended_ns);
    char name[16] = "";

    if (!ended_ns)
        return ranks_fail("status %d before the end", err);
    if (rank != ends.rank)
        snprintf(name, sizeof name, "rank %d", ends.rank);
    return ranks_expect(err, codes[ends.how], reasons[ends.how]) ||
           ranks_expect_soon(ended_ns, err, codes[ends.how], name);
}

static int transfer(kolo_group *group, const struct gpu_area *area)
{
    struct middle middle = {group, gpu_rank, rank, gpu_bytes_now().with_host};
    pthread_t thread;
    int err, failed;

    if (rank && !await_flag(&board->is_held))
        return ranks_fail("rank 0");
    if (pthread_create(&thread, NULL, end_in_the_middle, &middle))
        return ranks_fail("a thread");
    err = rank ? kolo_recv(group, area->at, MOST, KOLO_UINT8, 0, 0)
               : kolo_send(group, area->at, MOST, KOLO_UINT8, 1, 0);
    failed = expect_end(err);
    pthread_join(thread, NULL);
    gpu_hold("");
    return failed;
}

static int end(kolo_group *group, void *unused)
{
    int failed = enter(group);
    struct gpu_area area = gpu_area_new(MOST, true);

    (void)unused;
    gpu_area_fill(&area, 0, MOST, 0, 2);
    failed = failed || transfer(group, &area);
    if (ends.how == FAILS && rank == ends.rank)
        return failed; /* the driver frees nothing more */
    gpu_area_free(&area);
    return gpu_rank_leave(failed);
}

/* ---- runs ------------------------------------------------------------------------------------ */

static int settle(int number, void *argument)
{
    (void)argument;
    return setenv("KOLO_HOST", number ? "north" : "south", 1);
}

static void run_by(const char *transports, enum ranks_kind kind, int tolerated, ranks_body body)
{
    const bool are_apart = kind == RANKS_PROCESSES && strcmp(transports, "shm") != 0;
    const struct ranks ranks = {
        .kind = kind, .n = 2, .settle = are_apart ? settle : NULL, .tolerated = tolerated};

    atomic_store(&board->is_held, 0);
    atomic_store(&board->is_seen, 0);
    atomic_store(&board->ended_ns, 0);
    exam_set_variables(transports, "", SLICE_BYTES);
    assert_int_equal(ranks_run(&ranks, body, NULL), 0);
}

static void run(ranks_body body)
{
    run_by("shm,tcp", RANKS_PROCESSES, 0, body);
}

static void lengths(void **state)
{
    (void)state;
    run(take_counted);
    setenv("KOLO_EAGER_BYTES", "0", 1);
    run(take_counted);
    setenv("KOLO_EAGER_BYTES", "20000", 1);
    run(take_counted);
    unsetenv("KOLO_EAGER_BYTES");
}

static void on_one_host(void **state)
{
    (void)state;
    setenv("KOLO_CUDA_IPC", "off", 1);
    run_by("shm", RANKS_PROCESSES, 0, take_counted);
    run_by("shm", RANKS_PROCESSES, 0, late_stream);
    unsetenv("KOLO_CUDA_IPC");
    run_by("shm", RANKS_PROCESSES, 0, take_withdrawn);
}

static void both_ends_at_once(void **state)
{
    (void)state;
    setenv("KOLO_EAGER_BYTES", "0", 1);
    run(overlap);
    unsetenv("KOLO_EAGER_BYTES");
}

static void truncation(void **state)
{
    (void)state;
    setenv("KOLO_EAGER_BYTES", "0", 1);
    run(too_long);
    unsetenv("KOLO_EAGER_BYTES");
}

static void a_late_stream(void **state)
{
    (void)state;
    run(late_stream);
    run_by("shm", RANKS_PROCESSES, 0, late_stream);
}

static void ends_in_the_middle(void **state)
{
    (void)state;
    setenv("KOLO_EAGER_BYTES", "0", 1);
    for (int i = 0; i < 2 * 3; i++) {
        ends.rank = i % 2;
        ends.how = i / 2;
        run_by("shm,tcp", RANKS_PROCESSES, ends.how == IS_KILLED, end);
    }
    unsetenv("KOLO_EAGER_BYTES");
}

/* The last of all: from here on the driver has threads in this process, which is not to fork. */
static void among_threads(void **state)
{
    (void)state;
    setenv("KOLO_CUDA_PEERS", "0", 1); /* not even within a process */
    run_by("tcp", RANKS_THREADS, 0, take_uncounted);
    run_by("shm", RANKS_THREADS, 0, take_uncounted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lengths),           cmocka_unit_test(on_one_host),
        cmocka_unit_test(both_ends_at_once), cmocka_unit_test(truncation),
        cmocka_unit_test(a_late_stream),     cmocka_unit_test(ends_in_the_middle),
        cmocka_unit_test(among_threads),
    };

    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED)
        return 1;
    setenv("FAKECUDA_DEVICES", "2", 1);
    setenv("FAKECUDA_JITTER", "50", 1);
    setenv("KOLO_CUDA_PIECE_BYTES", "64K", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
