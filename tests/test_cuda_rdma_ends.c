/* SPDX-License-Identifier: MIT
 *
 * What test_cuda_rdma leaves open: GPU memory that is freed and had again, that is more than an
 * adapter keeps; messages in the order of the stream; those that do not fit, and ranks that are
 * lost in the middle of one.
 */
#include "gpu_passage.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

/* ---- memory that comes and goes -------------------------------------------------------------- */

static int pass_key(kolo_group *group, const struct gpu_area *buffer, unsigned key)
{
    uint64_t with_host;

    return gpu_pass(group, &(struct gpu_passage){.from = 0, .nbytes = buffer->nbytes, .key = key},
                    buffer, &with_host);
}

/* The double gives the same addresses again. */
static int reuse(kolo_group *group, void *unused)
{
    const void *first = NULL;
    int failed = gpu_passage_enter(group), nsame = 0;

    (void)unused;
    for (unsigned i = 0; i < 20 && !failed; i++) {
        struct gpu_area buffer = gpu_area_new(200000, true);

        nsame += buffer.at == first;
        first = buffer.at;
        failed = pass_key(group, &buffer, i);
        gpu_area_free(&buffer);
        if (!failed && gpu_passage_dmabufs(false) > 1)
            failed = ranks_fail("%d dma-bufs of one allocation", gpu_passage_dmabufs(false));
    }
    if (!failed && (!nsame || gpu_passage_dmabufs(true) < 20))
        failed = ranks_fail("nothing was had again");
    return gpu_rank_leave(failed);
}

/* More than are kept. */
static int use_many(kolo_group *group, void *unused)
{
    enum { MANY = 300 };
    static struct gpu_area buffers[MANY];
    int failed = gpu_passage_enter(group);

    (void)unused;
    for (int i = 0; i < MANY; i++)
        buffers[i] = gpu_area_new(40000, true);
    for (unsigned i = 0; i < 2 * MANY && !failed; i++)
        failed = pass_key(group, &buffers[i % MANY], i);
    if (!failed && (gpu_passage_dmabufs(false) != 256 || gpu_passage_dmabufs(true) < MANY))
        failed = ranks_fail("%d dma-bufs, %d ever", gpu_passage_dmabufs(false),
                            gpu_passage_dmabufs(true));
    for (int i = 0; i < MANY; i++)
        gpu_area_free(&buffers[i]);
    return gpu_rank_leave(failed);
}

static void freed_and_had_again(void **state)
{
    (void)state;
    gpu_passage_run(reuse, 0, 0);
    gpu_passage_run(use_many, 0, 0);
}

/* ---- order ----------------------------------------------------------------------------------- */

/* What rank 1's stream still reads is not overwritten. */
static int behind_the_stream(kolo_group *group, void *unused)
{
    static uint32_t gate;
    int failed = gpu_passage_enter(group);
    struct gpu_area buffer = gpu_area_new(gpu_passage_whole(), true),
                    before = gpu_area_new(gpu_passage_whole(), true);
    kolo_work *work;

    (void)unused;
    gpu_area_fill(&buffer, 0, gpu_passage_whole(), gpu_passage_rank, 1);
    if (!failed && gpu_passage_rank == 0) {
        failed = kolo_send(group, buffer.at, gpu_passage_whole(), KOLO_INT8, 1, 0) ||
                 kolo_send(group, buffer.at, gpu_passage_whole(), KOLO_INT8, 1, 0);
    } else if (!failed) {
        ko_cu_ptr at;

        if (gpu_rank.cuda->host_register(&gate, sizeof gate, KO_CU_HOST_MAPPED) ||
            gpu_rank.cuda->host_address(&at, &gate, 0) ||
            gpu_rank.cuda->stream_await_word(gpu_rank.stream, at, 1, KO_CU_WAIT_EQ) ||
            gpu_rank.cuda->copy((uintptr_t)before.at, (uintptr_t)buffer.at, gpu_passage_whole(),
                                gpu_rank.stream))
            abort();
        failed = kolo_irecv(group, buffer.at, gpu_passage_whole(), KOLO_INT8, 0, 0, &work);
        ranks_nap_ms(200); /* it comes meanwhile */
        __atomic_store_n(&gate, 1, __ATOMIC_RELEASE);
        failed = failed || kolo_work_wait(work, -1);
        kolo_work_free(work);
        failed = failed || gpu_area_check(&before, 0, gpu_passage_whole(), 1, 1) ||
                 gpu_area_check(&buffer, 0, gpu_passage_whole(), 0, 1) ||
                 kolo_recv(group, buffer.at, gpu_passage_whole(), KOLO_INT8, 0, 0) ||
                 gpu_area_check(&buffer, 0, gpu_passage_whole(), 0, 1);
    }
    if (failed)
        ranks_fail("the order");
    gpu_area_free(&buffer);
    gpu_area_free(&before);
    return gpu_rank_leave(failed);
}

/* Tags, any rank, a room that is too small, another type, and a message to oneself. */
static int odd_ones(kolo_group *group, void *unused)
{
    int failed = gpu_passage_enter(group);
    struct gpu_area a = gpu_area_new(gpu_passage_whole(), true),
                    b = gpu_area_new(gpu_passage_whole(), true);
    kolo_work *work = NULL;
    kolo_message message = {.count = 0};

    (void)unused;
    gpu_area_fill(&a, 0, gpu_passage_rank ? 0 : gpu_passage_whole(), 0, 1);
    gpu_area_fill(&b, 0, gpu_passage_rank ? 0 : gpu_passage_whole(), 0, 2);
    if (!failed && gpu_passage_rank == 0) {
        const kolo_p2p ops[] = {{1, 1, 1, KOLO_INT8, gpu_passage_whole(), a.at, NULL},
                                {1, 1, 2, KOLO_INT8, gpu_passage_whole(), b.at, NULL}};

        failed = kolo_batch_async(group, ops, 2, &work) || kolo_work_wait(work, -1);
        kolo_work_free(work);
        failed = failed ||
                 ranks_expect(kolo_send(group, a.at, gpu_passage_whole(), KOLO_INT8, 1, 3),
                              KOLO_E_TRUNCATED, "room for 1000") ||
                 ranks_expect(kolo_send(group, a.at, gpu_passage_whole(), KOLO_INT8, 1, 4),
                              KOLO_E_MISMATCH, "int8") ||
                 kolo_send(group, b.at, gpu_passage_whole(), KOLO_INT8, 1, 5);
    } else if (!failed) {
        failed = kolo_recv(group, b.at, gpu_passage_whole(), KOLO_INT8, 0, 2) ||
                 kolo_recv_message(group, a.at, gpu_passage_whole(), KOLO_INT8, KOLO_ANY_RANK,
                                   KOLO_ANY_TAG, &message) ||
                 message.tag != 1 || gpu_area_check(&a, 0, gpu_passage_whole(), 0, 1) ||
                 gpu_area_check(&b, 0, gpu_passage_whole(), 0, 2) ||
                 ranks_expect(kolo_recv(group, a.at, 1000, KOLO_INT8, 0, 3), KOLO_E_TRUNCATED,
                              "room for 1000") ||
                 ranks_expect(kolo_recv(group, a.at, gpu_passage_whole() / 4, KOLO_INT32, 0, 4),
                              KOLO_E_MISMATCH, "int8") ||
                 gpu_area_check(&a, 0, gpu_passage_whole(), 0, 1) ||
                 kolo_recv(group, a.at, gpu_passage_whole(), KOLO_INT8, 0, 5) ||
                 gpu_area_check(&a, 0, gpu_passage_whole(), 0, 2);
    }
    failed = failed ||
             kolo_sendrecv(group, b.at, gpu_passage_whole(), gpu_passage_rank, a.at,
                           gpu_passage_whole(), gpu_passage_rank, KOLO_INT8, 9) ||
             gpu_area_check(&a, 0, gpu_passage_whole(), 0, 2);
    if (failed)
        ranks_fail("what is odd");
    gpu_area_free(&a);
    gpu_area_free(&b);
    return gpu_rank_leave(failed);
}

static void in_order(void **state)
{
    (void)state;
    gpu_passage_run(behind_the_stream, 0, 0);
    setenv("KOLO_EAGER_BYTES", "1000", 1);
    gpu_passage_run(odd_ones, 0, 0);
    unsetenv("KOLO_EAGER_BYTES");
}

/* ---- ends ------------------------------------------------------------------------------------ */

/* What leaves rank 0 never arrives; one of the two dies meanwhile. */
static int victim;

static int lose(kolo_group *group, void *unused)
{
    int failed = gpu_passage_enter(group), err;
    struct gpu_area buffer = gpu_area_new(GPU_PASSAGE_MOST, true);

    (void)unused;
    if (gpu_passage_rank == 0)
        setenv("FAKEVERBS_HELD", "fake0", 1);
    if (gpu_passage_rank == victim) {
        kolo_work *work;

        err = gpu_passage_rank
                  ? kolo_irecv(group, buffer.at, GPU_PASSAGE_MOST, KOLO_INT8, 0, 0, &work)
                  : kolo_isend(group, buffer.at, GPU_PASSAGE_MOST, KOLO_INT8, 1, 0, &work);
        if (!err)
            (void)kolo_work_wait(work, 200);
        raise(SIGKILL);
    }
    err = gpu_passage_rank ? kolo_recv(group, buffer.at, GPU_PASSAGE_MOST, KOLO_INT8, 0, 0)
                           : kolo_send(group, buffer.at, GPU_PASSAGE_MOST, KOLO_INT8, 1, 0);
    failed = failed || ranks_expect(err, KOLO_E_PEER_LOST, victim ? "rank 1" : "rank 0");
    gpu_area_free(&buffer);
    return gpu_rank_leave(failed);
}

/* Neither comes to an end in time. */
static int give_up(kolo_group *group, void *unused)
{
    int failed = gpu_passage_enter(group), err;
    struct gpu_area buffer = gpu_area_new(GPU_PASSAGE_MOST, true);

    (void)unused;
    setenv("FAKEVERBS_HELD", "fake0", 1);
    err = gpu_passage_rank ? kolo_recv(group, buffer.at, GPU_PASSAGE_MOST, KOLO_INT8, 0, 0)
                           : kolo_send(group, buffer.at, GPU_PASSAGE_MOST, KOLO_INT8, 1, 0);
    if (!failed && err != KOLO_E_TIMEOUT && err != KOLO_E_PEER_LOST)
        failed = ranks_fail("it ended with %d", err);
    unsetenv("FAKEVERBS_HELD");
    gpu_area_free(&buffer);
    return gpu_rank_leave(failed);
}

static void lost_ranks(void **state)
{
    (void)state;
    setenv("KOLO_EAGER_BYTES", "1000", 1); /* a shorter message may be sent, and lost, in peace */
    for (victim = 0; victim < 2; victim++)
        gpu_passage_run(lose, 0, 1);
    gpu_passage_run(give_up, 1500, 0);
    unsetenv("KOLO_EAGER_BYTES");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(freed_and_had_again),
        cmocka_unit_test(in_order),
        cmocka_unit_test(lost_ranks),
    };

    setenv("FAKECUDA_DMA_BUF", "1", 1);
    setenv("FAKECUDA_JITTER", "50", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
