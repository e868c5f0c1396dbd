/* SPDX-License-Identifier: MIT
 *
 * Messages from memory in pieces, as PyTorch's expandable segments are, to other processes, outside
 * of graphs, on the double of NVIDIA's driver: by one copy of the receiver's, whom the first
 * message hands the memory; what has gone in part is let go; where pieces cannot be reached, all
 * goes by way of the host.
 */
#include "exam.h"
#include "gpu_double.h"
#include "gpu_hosts.h"
#include "gpu_rank.h"
#include "ranks.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { PIECE = 1 << 21, PIECES = 3, NBYTES = 50000 };

/* So many pieces one behind the other, of rank `from`'s bytes where messages lie; from < 0: of
 * none's. */
static void fill(ko_cu_ptr at, int from)
{
    static unsigned char content[NBYTES];

    for (int i = 0; i < NBYTES; i++)
        content[i] = (unsigned char)(from < 0 ? 255 : from * 31 + i % 97);
    if (gpu_rank.cuda->copy(at, (uintptr_t)content, NBYTES, gpu_rank.stream) ||
        gpu_rank.cuda->stream_sync(gpu_rank.stream))
        abort();
}

static int check(ko_cu_ptr at, int from)
{
    static unsigned char content[NBYTES];

    if (gpu_rank.cuda->copy((uintptr_t)content, at, NBYTES, gpu_rank.stream) ||
        gpu_rank.cuda->stream_sync(gpu_rank.stream))
        abort();
    for (int i = 0; i < NBYTES; i++)
        if (content[i] != (unsigned char)(from * 31 + i % 97))
            return ranks_fail("byte %d is %d", i, content[i]);
    return 0;
}

static ko_cu_ptr make(void)
{
    ko_cu_ptr base;

    if (gpu_rank.cuda->addresses_reserve(&base, (size_t)PIECES * PIECE, 0, 0, 0))
        abort();
    gpu_rank_map(base, PIECE, PIECES, KO_CU_HANDLE_DESCRIPTOR);
    return base;
}

/* `left` of them, the last ones, are still there. */
static void unmake(ko_cu_ptr base, int left)
{
    gpu_rank_unmap(base + (size_t)(PIECES - left) * PIECE, (size_t)left * PIECE, 1);
    if (gpu_rank.cuda->addresses_free(base, (size_t)PIECES * PIECE))
        abort();
}

static void *pointer(ko_cu_ptr at)
{
    return (void *)(uintptr_t)at;
}

/* From rank 0 to rank 1, across the end of the first piece. */
static ko_cu_ptr middle_of(ko_cu_ptr base)
{
    return base + PIECE - NBYTES / 2;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static int pass(kolo_group *group, ko_cu_ptr at)
{
    const int rank = kolo_group_rank(group);

    if (rank > 1)
        return 0;
    return rank ? kolo_recv(group, pointer(at), NBYTES, KOLO_UINT8, 0, 1)
                : kolo_send(group, pointer(at), NBYTES, KOLO_UINT8, 1, 1);
}

static int count_one(kolo_group *group, ko_cu_ptr base)
{
    const char *ngpus = getenv("FAKECUDA_DEVICES");
    const int rank = kolo_group_rank(group);
    struct gpu_bytes before, have, want = {0};

    fill(middle_of(base), rank ? -1 : 0);
    before = gpu_bytes_now();
    if (pass(group, middle_of(base)))
        return ranks_fail("a message");
    have = gpu_bytes_since(before);
    if (rank == 1) {
        *(strcmp(ngpus, "1") != 0 ? &want.read_there : &want.read) = NBYTES;
        want.written = NBYTES;
    }
    if (memcmp(&have, &want, sizeof want) != 0)
        return ranks_fail("%zu bytes went by way of the host", (size_t)have.with_host);
    return rank == 1 ? check(middle_of(base), 0) : 0;
}

static int count_bytes(kolo_group *group, void *unused)
{
    int failed = gpu_rank_enter(group);
    const ko_cu_ptr base = make();

    (void)unused;
    for (int i = 0; i < 3 && !failed; i++)
        failed = count_one(group, base);
    unmake(base, PIECES);
    return gpu_rank_leave(failed);
}

static void run(ranks_body body)
{
    gpu_hosts_run("aa", body);
}

static void one_copy(void **state)
{
    (void)state;
    run(count_bytes);
    gpu_hosts_run("aaab", count_bytes);
    setenv("KOLO_CUDA_IPC", "vmm", 1);
    run(count_bytes);
    unsetenv("KOLO_CUDA_IPC");
}

/* ---- many ------------------------------------------------------------------------------------ */

/* All to all, of which most are the first of theirs. */
static int exchange(kolo_group *group, void *unused)
{
    enum { MOST = 4 };
    const int n = kolo_group_size(group), rank = kolo_group_rank(group);
    int failed = gpu_rank_enter(group);
    const ko_cu_ptr in = make(), out = make();
    kolo_p2p ops[2 * MOST];
    kolo_work *work;

    (void)unused;
    fill(middle_of(in), rank);
    for (int round = 0; round < 4 && !failed; round++) {
        for (int r = 0; r < n; r++) {
            const ko_cu_ptr to = out + (size_t)r * NBYTES;

            ops[2 * r] = (kolo_p2p){1, r, 1, KOLO_UINT8, NBYTES, pointer(middle_of(in)), NULL};
            ops[2 * r + 1] = (kolo_p2p){0, r, 1, KOLO_UINT8, NBYTES, pointer(to), NULL};
            fill(to, -1);
        }
        if (round % 2)
            failed = kolo_batch(group, ops, 2 * (size_t)n);
        else if (kolo_batch_async(group, ops, 2 * (size_t)n, &work))
            return ranks_fail("a batch");
        else
            failed = kolo_work_wait(work, -1);
        if (!(round % 2))
            kolo_work_free(work);
        if (failed)
            ranks_fail("a batch");
        for (int r = 0; r < n && !failed; r++)
            failed = check(out + (size_t)r * NBYTES, r);
    }
    unmake(in, PIECES);
    unmake(out, PIECES);
    return gpu_rank_leave(failed);
}

static void batches(void **state)
{
    (void)state;
    gpu_hosts_run("aaa", exchange);
    gpu_hosts_run("aabb", exchange);
}

/* ---- memory that goes ------------------------------------------------------------------------ */

/* Each time the first piece of two that a message lies in goes: rank 1 lets both go. */
static int come_and_go(kolo_group *group, void *unused)
{
    enum { TIMES = 20 };
    int failed = gpu_rank_enter(group), before = 0;
    ko_cu_ptr bases[TIMES];

    (void)unused;
    for (int i = 0; i < TIMES && !failed; i++) {
        bases[i] = make();
        failed = count_one(group, bases[i]);
        gpu_rank_unmap(bases[i], PIECE, 1);
        before = i == 2 ? ranks_count_entries("/proc/self/fd") : before;
    }
    if (!failed && kolo_group_rank(group) == 1) /* of its own pieces two stay each time */
        failed = gpu_rank_check_descriptors(before + 2 * (TIMES - 3));
    for (int i = 0; i < TIMES && !failed; i++)
        unmake(bases[i], 2);
    return gpu_rank_leave(failed);
}

struct late {
    kolo_group *group;
    void *buffer;
    int err;
};

static void *send_late(void *late_)
{
    struct late *late = late_;

    late->err = kolo_send(late->group, late->buffer, NBYTES, KOLO_UINT8, 1, 2);
    return NULL;
}

/* A thread's message from the first piece is on its way when the second one goes, which has been
 * handed over with it, and another message could tell that. */
static int send_two(kolo_group *group, ko_cu_ptr first, ko_cu_ptr second)
{
    struct late late = {group, pointer(first), 0};
    pthread_t thread;
    int failed, found = 0;
    kolo_message message;

    if (pthread_create(&thread, NULL, send_late, &late))
        return ranks_fail("no thread");
    failed = kolo_probe(group, 1, 4, -1, &found, &message) || !found; /* it is on its way */
    gpu_rank_unmap(first + PIECE, PIECE, 1);
    failed |= kolo_send(group, pointer(middle_of(second)), NBYTES, KOLO_UINT8, 1, 3);
    pthread_join(thread, NULL);
    return failed || late.err ? ranks_fail("two messages") : 0;
}

static int receive_two(kolo_group *group, ko_cu_ptr first, ko_cu_ptr second)
{
    int found = 0;
    kolo_message message;

    if (kolo_probe(group, 0, 2, -1, &found, &message) || !found ||
        kolo_send(group, NULL, 0, KOLO_UINT8, 0, 4) ||
        kolo_recv(group, pointer(middle_of(second)), NBYTES, KOLO_UINT8, 0, 3) ||
        kolo_recv(group, pointer(first), NBYTES, KOLO_UINT8, 0, 2))
        return ranks_fail("two messages");
    return check(first, 0) || check(middle_of(second), 0);
}

static int receive_late(kolo_group *group, void *unused)
{
    const int rank = kolo_group_rank(group);
    int failed = gpu_rank_enter(group);
    const ko_cu_ptr first = make(), second = make();

    (void)unused;
    fill(middle_of(first), rank ? -1 : 0);
    fill(middle_of(second), rank ? -1 : 0);
    failed = failed || pass(group, middle_of(first));
    fill(first, rank ? -1 : 0);
    failed = failed || (rank ? receive_two : send_two)(group, first, second);
    return gpu_rank_leave(failed);
}

static void memory_goes(void **state)
{
    (void)state;
    run(come_and_go);
    run(receive_late);
}

/* ---- out of reach ---------------------------------------------------------------------------- */

/* Rank 1 is handed what it cannot map. */
static int reach_less(kolo_group *group, void *unused)
{
    if (kolo_group_rank(group) == 1)
        setenv("FAKECUDA_BREAK", "cuMemImportFromShareableHandle=1", 1);
    return exchange(group, unused);
}

/* No two ranks have the same ways: what they find out together is the same on all. */
static int reach_differently(kolo_group *group, void *unused)
{
    static const char *const ways[] = {"all", "vmm", "legacy"};

    setenv("KOLO_CUDA_IPC", ways[kolo_group_rank(group)], 1);
    return exchange(group, unused);
}

static void out_of_reach(void **state)
{
    (void)state;
    gpu_hosts_run("aa", reach_differently);
    gpu_hosts_run("aaa", reach_differently);
    gpu_hosts_run("aaa", reach_less);
    setenv("KOLO_CUDA_IPC", "legacy", 1);
    gpu_hosts_run("aa", exchange);
    unsetenv("KOLO_CUDA_IPC");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_copy),
        cmocka_unit_test(batches),
        cmocka_unit_test(memory_goes),
        cmocka_unit_test(out_of_reach),
    };

    setenv("FAKECUDA_JITTER", "50", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
