/* SPDX-License-Identifier: MIT
 *
 * Messages from and into GPU memory, on the double of NVIDIA's driver: between GPUs, and from or to
 * a rank that has its buffer in host memory; blocking, asynchronous, in batches; behind what is in
 * the stream; shorter than the room for them, and longer.
 */
#include "exam.h"
#include "gpu_rank.h"
#include "ranks.h"

#include <setjmp.h>
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
    struct content buffer = {.host = malloc((count + 1) * sizeof(int)), .is_on_gpu = is_on_gpu};
    ko_cu_ptr memory;

    for (size_t i = 0; i < count; i++)
        buffer.host[i] = from < 0 ? STALE : value(from, i);
    buffer.at = buffer.host;
    if (!is_on_gpu)
        return buffer;
    if (gpu_rank.cuda->alloc(&memory, (count + 1) * sizeof(int)) ||
        gpu_rank.cuda->copy(memory, (uintptr_t)buffer.host, count * sizeof(int), gpu_rank.stream))
        abort();
    buffer.at = (void *)(uintptr_t)memory;
    return buffer;
}

/* Whether `count` elements are the rank's, and those behind them up to `room` as they were. */
static int check_and_free(struct content *buffer, int from, size_t count, size_t room)
{
    int failed = 0;

    if (buffer->is_on_gpu &&
        (gpu_rank.cuda->copy((uintptr_t)buffer->host, (uintptr_t)buffer->at, room * sizeof(int),
                             gpu_rank.stream) ||
         gpu_rank.cuda->stream_sync(gpu_rank.stream) || gpu_rank.cuda->free((uintptr_t)buffer->at)))
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
    kolo_work *works[2] = {NULL, NULL};
    int failed = 0;

    if (is_async)
        failed =
            kolo_irecv_message(group, out.at, room, KOLO_INT32, from, 5, &message, &works[0]) ||
            kolo_isend(group, in.at, count, KOLO_INT32, to, 5, &works[1]) ||
            kolo_work_wait(works[0], -1) || kolo_work_wait(works[1], -1);
    else if (gpu.rank % 2)
        failed = kolo_recv_message(group, out.at, room, KOLO_INT32, from, 5, &message) ||
                 kolo_send(group, in.at, count, KOLO_INT32, to, 5);
    else
        failed = kolo_send(group, in.at, count, KOLO_INT32, to, 5) ||
                 kolo_recv_message(group, out.at, room, KOLO_INT32, from, 5, &message);
    kolo_work_free(works[0]);
    kolo_work_free(works[1]);
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

/* Too long a message: both ends hear of it, and the group goes on. */
static int too_long(kolo_group *group, void *unused)
{
    int failed = enter(group), err;
    struct content buffer = make(10, gpu.rank ? -1 : 0, true);

    (void)unused;
    if (gpu.rank > 1)
        return failed;
    err = gpu.rank ? kolo_recv(group, buffer.at, 9, KOLO_INT32, 0, 1)
                   : kolo_send(group, buffer.at, 10, KOLO_INT32, 1, 1);
    if (!failed && gpu.rank && err == KOLO_OK)
        failed = ranks_fail("a message of 10 elements into 9");
    if (!failed && (gpu.rank ? kolo_recv(group, buffer.at, 10, KOLO_INT32, 0, 2)
                             : kolo_send(group, buffer.at, 10, KOLO_INT32, 1, 2)))
        failed = ranks_fail("the next message");
    return failed | check_and_free(&buffer, 0, 10, 10);
}

static void run(enum ranks_kind kind, int n, ranks_body body)
{
    exam_set_variables("shm", "", 4096);
    assert_int_equal(ranks_run(&(struct ranks){.kind = kind, .n = n}, body, NULL), 0);
}

static void messages(void **state)
{
    (void)state;
    for (int n = 2; n <= 4; n += 2)
        run(RANKS_PROCESSES, n, pass_all);
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
}

/* The last of all: from here on the driver has threads in this process, which is not to fork. */
static void among_threads(void **state)
{
    (void)state;
    run(RANKS_THREADS, 2, pass_all);
    run(RANKS_THREADS, 3, batches);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages),
        cmocka_unit_test(lists),
        cmocka_unit_test(errors),
        cmocka_unit_test(among_threads),
    };

    setenv("FAKECUDA_JITTER", "50", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
