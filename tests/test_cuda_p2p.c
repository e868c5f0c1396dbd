/* SPDX-License-Identifier: MIT
 *
 * Messages from and into GPU memory, on the double of NVIDIA's driver: between GPUs, and from or to
 * a rank that has its buffer in host memory; blocking, asynchronous, in batches; behind what is in
 * the stream; shorter than the room for them, and longer; by one copy, if they are reached, and
 * none by way of the host; from any rank, out of order, with nobody waiting; ranks that are lost.
 */
#include "exam.h"
#include "gpu_double.h"
#include "gpu_hosts.h"
#include "gpu_rank.h"
#include "ranks.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 300000, STALE = -77 };

static _Thread_local struct {
    int rank, n;
} gpu;

/* Content on the GPU that the stream is still to bring, or in host memory. */
struct content {
    int *host; /* for both */
    void *at;  /* what the calls are given */
    size_t nbytes;
    bool is_on_gpu;
};

static int enter(kolo_group *group)
{
    gpu.rank = kolo_group_rank(group);
    gpu.n = kolo_group_size(group);
    return gpu_rank_enter(group);
}

static int value(int from, size_t i)
{
    return from * 1000003 + (int)i;
}

/* Of the rank's values; from < 0: of none yet. */
static struct content make(size_t count, int from, bool is_on_gpu)
{
    const size_t nbytes = (count + 1) * sizeof(int);
    struct content buffer = {.host = malloc(nbytes), .nbytes = nbytes, .is_on_gpu = is_on_gpu};
    ko_cu_ptr memory;

    for (size_t i = 0; i < count; i++)
        buffer.host[i] = from < 0 ? STALE : value(from, i);
    buffer.at = buffer.host;
    if (!is_on_gpu)
        return buffer;
    if (!gpu_rank_alloc(&memory, nbytes) ||
        gpu_rank.cuda->copy(memory, (uintptr_t)buffer.host, count * sizeof(int), gpu_rank.stream))
        abort();
    buffer.at = (void *)(uintptr_t)memory;
    return buffer;
}

/* Whether `count` elements are the rank's, and those behind them up to `room` as they were. */
static int check_and_free(struct content *buffer, int from, size_t count, size_t room)
{
    int failed = 0;

    if (buffer->is_on_gpu && (gpu_rank.cuda->copy((uintptr_t)buffer->host, (uintptr_t)buffer->at,
                                                  room * sizeof(int), gpu_rank.stream) ||
                              gpu_rank.cuda->stream_sync(gpu_rank.stream) ||
                              !gpu_rank_free((uintptr_t)buffer->at, buffer->nbytes)))
        abort();
    for (size_t i = 0; i < room && !failed; i++)
        if (buffer->host[i] != (i < count ? value(from, i) : STALE))
            failed = ranks_fail("rank %d: element %zu of %zu is %d", gpu.rank, i, count,
                                buffer->host[i]);
    free(buffer->host);
    return failed;
}

/* From each rank to the next one; who has which memory depends on the round. */
static int pass_on(kolo_group *group, size_t count, unsigned round)
{
    const int to = (gpu.rank + 1) % gpu.n, from = (gpu.rank + gpu.n - 1) % gpu.n;
    const size_t room = count + round % 3;
    const bool is_async = round & 4;
    struct content in = make(count, gpu.rank, (round >> (gpu.rank % 2)) & 1);
    struct content out = make(room, -1, (round >> (gpu.rank % 2)) & 2);
    kolo_message message = {.count = 1};
    const kolo_p2p ops[] = {{0, from, 5, KOLO_INT32, room, out.at, &message},
                            {1, to, 5, KOLO_INT32, count, in.at, NULL}};
    kolo_work *work = NULL;
    int failed = 0;

    if (is_async)
        failed = kolo_batch_async(group, ops, 2, &work) || kolo_work_wait(work, -1);
    else if (gpu.rank % 2)
        failed = kolo_recv_message(group, out.at, room, KOLO_INT32, from, 5, &message) ||
                 kolo_send(group, in.at, count, KOLO_INT32, to, 5);
    else
        failed = kolo_send(group, in.at, count, KOLO_INT32, to, 5) ||
                 kolo_recv_message(group, out.at, room, KOLO_INT32, from, 5, &message);
    kolo_work_free(work);
    if (failed)
        ranks_fail("a message of %zu", count);
    else if (message.count != count || message.from != from || message.tag != 5)
        failed = ranks_fail("what came is not what it says: %zu", message.count);
    failed |= check_and_free(&in, gpu.rank, count, count);
    return failed | check_and_free(&out, from, count, room);
}

static int pass_all(kolo_group *group, void *unused)
{
    static const size_t counts[] = {0, 1, 7, 1024, 5001, MOST};
    int failed = enter(group);

    (void)unused;
    for (unsigned round = 0; round < 6 * 8 && !failed; round++)
        failed = pass_on(group, counts[round / 8], round);
    return failed;
}

/* With all others at once. */
static int batch(kolo_group *group, size_t count, bool is_async)
{
    kolo_p2p ops[16];
    struct content buffers[16];
    kolo_work *work = NULL;
    size_t nops = 0;
    int failed;

    for (int r = 0; r < gpu.n; r++)
        for (int is_send = 0; is_send < 2; is_send++, nops++) {
            buffers[nops] = make(count, is_send ? gpu.rank : -1, (nops + (size_t)gpu.rank) % 3);
            ops[nops] = (kolo_p2p){is_send, r, 1, KOLO_INT32, count, buffers[nops].at, NULL};
        }
    if (is_async) {
        failed = kolo_batch_async(group, ops, nops, &work) || kolo_work_wait(work, -1);
        kolo_work_free(work);
    } else {
        failed = kolo_batch(group, ops, nops);
    }
    if (failed)
        ranks_fail("a batch");
    for (size_t i = 0; i < nops; i++)
        failed |=
            check_and_free(&buffers[i], ops[i].is_send ? gpu.rank : ops[i].peer, count, count);
    return failed;
}

static int batches(kolo_group *group, void *unused)
{
    int failed = enter(group);

    (void)unused;
    for (int i = 0; i < 8 && !failed; i++)
        failed = batch(group, (size_t)i * 1777, i % 2);
    return failed;
}

/* Too long a message: both ends hear of it, and the group goes on. late: the message is there
 * before its receive. */
static int send_too_long(kolo_group *group, size_t count, kolo_dtype dtype, bool is_late)
{
    struct content buffer = make(count, gpu.rank ? -1 : 0, true);
    const size_t room = dtype == KOLO_INT32 ? count - 1 : count;
    int failed = 0, err = KOLO_OK;
    kolo_work *work = NULL;

    if (gpu.rank == 0 && (kolo_isend(group, buffer.at, count, KOLO_INT32, 1, 1, &work) ||
                          (is_late && kolo_send(group, NULL, 0, KOLO_INT32, 1, 3))))
        return ranks_fail("the send");
    if (gpu.rank == 1 && is_late && kolo_recv(group, NULL, 0, KOLO_INT32, 0, 3))
        return ranks_fail("the message behind");
    if (gpu.rank == 1)
        err = kolo_recv(group, buffer.at, room, dtype, 0, 1);
    else
        err = kolo_work_wait(work, -1);
    if (gpu.rank == 0)
        kolo_work_free(work);
    if (err != (room < count ? KOLO_E_TRUNCATED : KOLO_E_MISMATCH) &&
        (gpu.rank == 1 || count * sizeof(int) > 200)) /* else it was out before */
        failed = ranks_fail("rank %d: %zu elements too long: %d", gpu.rank, count, err);
    if (!failed && (gpu.rank ? kolo_recv(group, buffer.at, count, KOLO_INT32, 0, 2)
                             : kolo_send(group, buffer.at, count, KOLO_INT32, 1, 2)))
        failed = ranks_fail("the next message");
    return failed | check_and_free(&buffer, 0, count, count);
}

static int too_long(kolo_group *group, void *unused)
{
    int failed = enter(group);

    (void)unused;
    for (int i = 0; i < 8 && !failed; i++)
        failed =
            send_too_long(group, i % 4 < 2 ? 10 : 5000, i % 2 ? KOLO_INT32 : KOLO_FLOAT32, i >= 4);
    return failed;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

struct passage {
    int from, to;
    bool is_far; /* to another host */
};

/* One copy of the receiver's, whatever its memory; of what is far, one of each end's. */
static struct gpu_bytes bytes_of(const struct passage *passage, uint64_t nbytes, bool is_on_gpu)
{
    const char *ngpus = getenv("FAKECUDA_DEVICES");
    const bool is_one = ngpus && !strcmp(ngpus, "1");
    struct gpu_bytes want = {0};

    if (passage->is_far) {
        want.read = gpu.rank == passage->from ? nbytes : 0;
        want.written = gpu.rank == passage->to && is_on_gpu ? nbytes : 0;
        want.with_host = want.read + want.written;
    } else if (gpu.rank == passage->to) {
        *(is_one ? &want.read : &want.read_there) = nbytes;
        want.written = is_on_gpu ? nbytes : 0;
        want.with_host = is_on_gpu ? 0 : nbytes;
    }
    return want;
}

static int count_one(kolo_group *group, const struct passage *passage, size_t count, bool is_on_gpu)
{
    const bool is_sender = gpu.rank == passage->from, is_in = is_sender || gpu.rank == passage->to;
    struct content buffer = make(count, is_sender ? passage->from : -1, is_sender || is_on_gpu);
    struct gpu_bytes before, have, want;
    int failed = 0;

    if (gpu_rank.cuda->stream_sync(gpu_rank.stream))
        return ranks_fail("the stream");
    before = gpu_bytes_now();
    if (is_sender)
        failed = kolo_send(group, buffer.at, count, KOLO_INT32, passage->to, 1);
    else if (is_in)
        failed = kolo_recv(group, buffer.at, count, KOLO_INT32, passage->from, 1);
    have = gpu_bytes_since(before);
    want = bytes_of(passage, count * sizeof(int), is_on_gpu);
    if (failed || memcmp(&have, &want, sizeof want) != 0)
        failed = ranks_fail("%zu elements on rank %d", count, gpu.rank);
    return failed | check_and_free(&buffer, passage->from, is_in ? count : 0, is_in ? count : 0);
}

static int count_bytes(kolo_group *group, void *unused)
{
    static const size_t counts[] = {33, 1000, 5003, MOST};
    static const struct passage passage = {0, 1, false};
    int failed = enter(group);

    (void)unused;
    for (int i = 0; i < 8 && !failed; i++)
        failed = count_one(group, &passage, counts[i / 2], i % 2);
    return failed;
}

/* From each rank to the next one, and the last one's to the first. */
static int count_by_hosts(kolo_group *group, void *hosts_)
{
    const char *hosts = hosts_;
    int failed = enter(group);

    for (int r = 0; r < gpu.n && !failed; r++) {
        const int to = (r + 1) % gpu.n;
        const struct passage passage = {r, to, hosts[r] != hosts[to]};

        failed = count_one(group, &passage, 5003, true) || count_one(group, &passage, 33, r % 2);
    }
    return failed;
}

/* ---- matching -------------------------------------------------------------------------------- */

enum { SENDERS_MOST = 3 };

/* All others send to rank 0, which asks for the last first, then for any. */
static int take_any(kolo_group *group, void *unused)
{
    enum { COUNT = 2000, EACH = 3 };
    int failed = enter(group), found;
    struct content sent[EACH], got;
    kolo_p2p ops[EACH];
    kolo_work *work;
    kolo_message message;

    (void)unused;
    for (int i = 0; i < EACH && gpu.rank; i++) {
        sent[i] = make(COUNT + (size_t)i, gpu.rank * 10 + i, true);
        ops[i] = (kolo_p2p){1, 0, i, KOLO_INT32, COUNT + (size_t)i, sent[i].at, NULL};
    }
    if (gpu.rank) {
        if (kolo_batch_async(group, ops, EACH, &work) || kolo_work_wait(work, -1))
            failed = ranks_fail("the messages");
        kolo_work_free(work);
    }
    for (int i = 0; i < EACH && gpu.rank; i++)
        failed |= check_and_free(&sent[i], gpu.rank * 10 + i, 0, 0);
    for (int r = 1; r < gpu.n && gpu.rank == 0; r++) {
        got = make(COUNT + EACH, -1, r % 2);
        if (kolo_probe(group, r, 2, -1, &found, &message) || !found || message.count != COUNT + 2 ||
            kolo_recv(group, got.at, COUNT + EACH, KOLO_INT32, r, 2))
            failed = ranks_fail("the last of rank %d", r);
        failed |= check_and_free(&got, r * 10 + 2, COUNT + 2, COUNT + EACH);
    }
    for (int i = 0; i < 2 * (gpu.n - 1) && gpu.rank == 0; i++) {
        got = make(COUNT + EACH, -1, i % 3);
        if (kolo_recv_message(group, got.at, COUNT + EACH, KOLO_INT32, KOLO_ANY_RANK, KOLO_ANY_TAG,
                              &message) ||
            message.count != COUNT + (size_t)message.tag)
            return ranks_fail("message %d of any", i);
        failed |=
            check_and_free(&got, message.from * 10 + message.tag, message.count, COUNT + EACH);
    }
    return failed;
}

/* The messages come although nobody waits for them. */
static int cross(kolo_group *group, void *unused)
{
    enum { COUNT = 3000 };
    int failed = enter(group);
    const int peer = gpu.rank ^ 1;
    struct content in = make(COUNT, gpu.rank, true), out = make(COUNT, -1, true);
    kolo_work *work;

    (void)unused;
    if (failed ||
        kolo_sendrecv_async(group, in.at, COUNT, peer, out.at, COUNT, peer, KOLO_INT32, 0, &work) ||
        gpu_rank.cuda->stream_sync(gpu_rank.stream) || kolo_work_wait(work, -1))
        return ranks_fail("an exchange");
    kolo_work_free(work);
    failed |= check_and_free(&in, gpu.rank, COUNT, COUNT);
    return failed | check_and_free(&out, peer, COUNT, COUNT);
}

/* A receive that was posted before the ranks knew each other's GPUs. */
static int receive_early(kolo_group *group, void *unused)
{
    enum { COUNT = 3000 };
    struct content buffer = {.host = NULL};
    kolo_work *work = NULL;
    int failed;

    (void)unused;
    gpu.rank = kolo_group_rank(group);
    if (gpu.rank == 1) {
        buffer = make(COUNT, -1, false);
        if (kolo_irecv(group, buffer.at, COUNT, KOLO_INT32, 0, 0, &work))
            return ranks_fail("a receive");
    }
    failed = enter(group);
    if (gpu.rank == 0) {
        buffer = make(COUNT, 0, true);
        failed |= kolo_send(group, buffer.at, COUNT, KOLO_INT32, 1, 0);
    } else if (kolo_work_wait(work, -1)) {
        failed = ranks_fail("the message");
    }
    kolo_work_free(work);
    return failed | check_and_free(&buffer, 0, COUNT, COUNT);
}

/* ---- ends ------------------------------------------------------------------------------------ */

/* Rank 1 dies; the other's send, which only rank 1 could end, says so. */
static int lose_the_receiver(kolo_group *group, void *unused)
{
    struct content buffer;
    int failed = enter(group);

    (void)unused;
    if (gpu.rank == 1) {
        setenv("FAKECUDA_BREAK", "cuMemcpyAsync=-9", 1); /* in the middle of the message */
        buffer = make(0, -1, false);
        if (gpu_rank.cuda->alloc((ko_cu_ptr *)&buffer.at, 5000 * sizeof(int)))
            return ranks_fail("no memory");
        (void)kolo_recv(group, buffer.at, 5000, KOLO_INT32, 0, 0);
        return ranks_fail("it lives");
    }
    buffer = make(5000, 0, true);
    failed |= ranks_expect(kolo_send(group, buffer.at, 5000, KOLO_INT32, 1, 0), KOLO_E_PEER_LOST,
                           "rank 1");
    return failed | check_and_free(&buffer, 0, 5000, 5000);
}

static int lose_the_sender(kolo_group *group, void *unused)
{
    struct content buffer;
    int failed = enter(group) || ranks_let_be_last(group, 1);

    (void)unused;
    if (gpu.rank == 1)
        raise(SIGKILL);
    buffer = make(5000, -1, true);
    failed |= ranks_expect(kolo_recv(group, buffer.at, 5000, KOLO_INT32, 1, 0), KOLO_E_PEER_LOST,
                           "rank 1");
    return failed | check_and_free(&buffer, 0, 0, 5000);
}

/* Rank 1's stream stands still, so that its buffer may not be written yet. */
static int give_up(kolo_group *group, void *unused)
{
    static uint32_t gate;
    struct content buffer;
    pthread_t thread = 0;
    int failed = enter(group), err;

    (void)unused;
    kolo_group_set_timeout(group, 60000);
    buffer = make(5000, gpu.rank ? -1 : 0, true);
    if (gpu.rank == 1 &&
        (gpu_rank.cuda->stream_await_word(gpu_rank.stream, (uintptr_t)&gate, 1, KO_CU_WAIT_EQ) ||
         pthread_create(&thread, NULL, ranks_abort_soon, group)))
        return ranks_fail("the gate");
    err = gpu.rank ? kolo_recv(group, buffer.at, 5000, KOLO_INT32, 0, 0)
                   : kolo_send(group, buffer.at, 5000, KOLO_INT32, 1, 0);
    failed |= ranks_expect(err, KOLO_E_ABORTED, "enough");
    if (gpu.rank == 1)
        pthread_join(thread, NULL);
    __atomic_store_n(&gate, 1, __ATOMIC_RELEASE);
    return failed | check_and_free(&buffer, 0, gpu.rank ? 0 : 5000, 5000);
}

/* What rank 1 cannot open, of what lies in one allocation, is sent by way of host memory: in its
 * turn, and to its own receive, though another message is on its way meanwhile. */
static int cannot_open(kolo_group *group, void *unused)
{
    struct content buffers[2];
    kolo_p2p ops[2];
    int failed = enter(group), err;

    (void)unused;
    for (int i = 0; i < 2; i++) {
        buffers[i] = make(5000, gpu.rank ? -1 : i, !i);
        ops[i] = (kolo_p2p){!gpu.rank, !gpu.rank, i, KOLO_INT32, 5000, buffers[i].at, NULL};
    }
    setenv("FAKECUDA_BREAK", "cuIpcOpenMemHandle=1", 1);
    err = kolo_batch(group, ops, 2);
    unsetenv("FAKECUDA_BREAK");
    if (err)
        failed |= ranks_fail("the messages");
    return failed | check_and_free(&buffers[0], 0, 5000, 5000) |
           check_and_free(&buffers[1], 1, 5000, 5000);
}

static int slice_bytes = 4096;

/* Those that one rank of two dies of are another matter. */
static void run_by(const char *transport, enum ranks_kind kind, int n, ranks_body body)
{
    const bool is_lost = body == lose_the_receiver || body == lose_the_sender;
    const struct ranks ranks = {.kind = kind, .n = n, .tolerated = is_lost};

    exam_set_variables(transport, "", slice_bytes);
    for (int ngpus = 1; ngpus <= 3; ngpus += 2) {
        setenv("FAKECUDA_DEVICES", ngpus == 1 ? "1" : "3", 1);
        assert_int_equal(ranks_run(&ranks, body, NULL), 0);
    }
}

static void run(enum ranks_kind kind, int n, ranks_body body)
{
    run_by("shm", kind, n, body);
}

static void messages(void **state)
{
    static const char *const ways[][2] = {{"KOLO_CUDA_IPC", "off"},
                                          {"KOLO_CUDA_IPC", "vmm"},
                                          {"FAKECUDA_BREAK", "cuIpcOpenMemHandle=201"}};

    (void)state;
    for (int n = 2; n <= 4; n += 2)
        run(RANKS_PROCESSES, n, pass_all);
    run_by("tcp", RANKS_PROCESSES, 3, pass_all);
    for (int i = 0; i < 3; i++) {
        setenv(ways[i][0], ways[i][1], 1);
        run(RANKS_PROCESSES, 2, pass_all);
        unsetenv(ways[i][0]);
    }
}

static void one_copy(void **state)
{
    (void)state;
    run(RANKS_PROCESSES, 3, count_bytes);
    run_by("tcp", RANKS_PROCESSES, 2, count_bytes);
}

static void one_copy_on_each_host(void **state)
{
    (void)state;
    gpu_hosts_run("aabb", count_by_hosts);
    gpu_hosts_run("abbcaa", count_by_hosts);
    gpu_hosts_run_with("3", "aabbccddeeffgghhii", count_by_hosts);
    gpu_hosts_run("aab", batches);
    gpu_hosts_run("abba", pass_all);
    setenv("FAKECUDA_BREAK", "cuIpcOpenMemHandle=1", 1);
    gpu_hosts_run("abba", pass_all);
    unsetenv("FAKECUDA_BREAK");
}

static void any_rank_and_tag(void **state)
{
    (void)state;
    run(RANKS_PROCESSES, 1 + SENDERS_MOST, take_any);
    run_by("tcp", RANKS_PROCESSES, 3, take_any);
}

/* Places travel in two slices. */
static void short_slices(void **state)
{
    (void)state;
    slice_bytes = 64;
    run(RANKS_PROCESSES, 3, take_any);
    run(RANKS_PROCESSES, 2, too_long);
    run_by("tcp", RANKS_PROCESSES, 3, take_any);
    run_by("tcp", RANKS_PROCESSES, 2, too_long);
    slice_bytes = 4096;
}

static void nobody_waits(void **state)
{
    (void)state;
    run(RANKS_PROCESSES, 2, cross);
    run(RANKS_PROCESSES, 2, receive_early);
}

static void lost_ranks_and_aborts(void **state)
{
    (void)state;
    run(RANKS_PROCESSES, 2, lose_the_receiver);
    run(RANKS_PROCESSES, 2, lose_the_sender);
    run(RANKS_PROCESSES, 2, give_up);
    run(RANKS_PROCESSES, 2, cannot_open);
    run_by("tcp", RANKS_PROCESSES, 2, cannot_open);
}

static void lists(void **state)
{
    (void)state;
    for (int n = 1; n <= 4; n++)
        run(RANKS_PROCESSES, n, batches);
}

static void errors(void **state)
{
    (void)state;
    run(RANKS_PROCESSES, 2, too_long);
    run_by("tcp", RANKS_PROCESSES, 2, too_long);
}

/* The last of all: from here on the driver has threads in this process, which is not to fork. */
static void among_threads(void **state)
{
    (void)state;
    run(RANKS_THREADS, 2, pass_all);
    run(RANKS_THREADS, 3, batches);
    run(RANKS_THREADS, 4, take_any);
    run(RANKS_THREADS, 2, cross);
    run(RANKS_THREADS, 2, too_long);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages),
        cmocka_unit_test(lists),
        cmocka_unit_test(errors),
        cmocka_unit_test(one_copy),
        cmocka_unit_test(one_copy_on_each_host),
        cmocka_unit_test(any_rank_and_tag),
        cmocka_unit_test(short_slices),
        cmocka_unit_test(nobody_waits),
        cmocka_unit_test(lost_ranks_and_aborts),
        cmocka_unit_test(among_threads),
    };

    setenv("FAKECUDA_JITTER", "50", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
