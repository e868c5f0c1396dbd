/* SPDX-License-Identifier: MIT
 *
 * Messages from and into GPU memory over rdma, on the doubles of NVIDIA's driver and of libibverbs:
 * adapters read and write it themselves, by dma-bufs, at either end or both; no copy goes by way of
 * the host then, and one does where GPU, adapter, their drivers or the memory do not permit that.
 * The doubles' memory cannot be touched by a processor, so a memcpy of it ends the test.
 */
#include "exam.h"
#include "gpu_double.h"
#include "gpu_passage.h"
#include "seeded.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { ROUNDS = 60 };

/* ---- messages -------------------------------------------------------------------------------- */

static int pass_random(kolo_group *group, void *unused)
{
    uint64_t seed = 20261122;
    struct gpu_area gpu, host;
    uint64_t with_host;
    int failed = gpu_passage_enter(group);

    (void)unused;
    gpu = gpu_area_new(GPU_PASSAGE_MOST + 5000, true);
    host = gpu_area_new(GPU_PASSAGE_MOST + 5000, false);
    for (unsigned i = 0; i < ROUNDS && !failed; i++) {
        const uint64_t dice = seeded_next(&seed);
        const size_t most = dice & 1 ? GPU_PASSAGE_MOST : 80000;
        const struct gpu_passage passage = {.from = dice >> 1 & 1,
                                            .nbytes = (dice >> 8) % most,
                                            .out_at = (dice >> 30) % 4096,
                                            .in_at = (dice >> 44) % 4096,
                                            .is_from_gpu = dice >> 2 & 1,
                                            .is_to_gpu = dice >> 3 & 1,
                                            .is_async = dice >> 4 & 1,
                                            .key = i};
        const bool is_on_gpu =
            gpu_passage_rank == passage.from ? passage.is_from_gpu : passage.is_to_gpu;

        failed = gpu_pass(group, &passage, is_on_gpu ? &gpu : &host, &with_host);
    }
    gpu_area_free(&gpu);
    gpu_area_free(&host);
    return gpu_rank_leave(failed);
}

static void messages(void **state)
{
    (void)state;
    gpu_passage_run(pass_random, 0, 0);
    setenv("FAKEVERBS_JITTER", "100", 1);
    gpu_passage_run(pass_random, 0, 0);
    unsetenv("FAKEVERBS_JITTER");
    setenv("FAKEVERBS_DEVICES", "a0:roce,b0:roce", 1);
    setenv("KOLO_IB_HCA", "a0,b0", 1);
    setenv("KOLO_IB_QPS_PER_CONNECTION", "2", 1);
    gpu_passage_run(pass_random, 0, 0);
    unsetenv("KOLO_IB_HCA");
    unsetenv("KOLO_IB_QPS_PER_CONNECTION");
    setenv("FAKEVERBS_DEVICES", "w0:iwarp", 1);
    gpu_passage_run(pass_random, 0, 0);
    unsetenv("FAKEVERBS_DEVICES");
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* What is to be seen of a message from rank 0 to 1, all slices of which are long, in each case of
 * who has it on a GPU. */
static struct {
    bool is_sender_staged, is_receiver_staged;
    int nflushes;
    bool is_ever_registered;
} wanted;

static int look(kolo_group *group, struct gpu_passage passage)
{
    const bool is_sender = gpu_passage_rank == passage.from;
    const bool is_on_gpu = is_sender ? passage.is_from_gpu : passage.is_to_gpu;
    const bool is_staged = is_sender ? wanted.is_sender_staged : wanted.is_receiver_staged;
    const uint64_t most = is_on_gpu && is_staged ? passage.nbytes : 0;
    struct gpu_area buffer = gpu_area_new(passage.nbytes + 10000, is_on_gpu);
    uint64_t with_host;
    int nflushes = 0, failed = gpu_pass_best(group, &passage, &buffer, &with_host, &nflushes);

    if (!failed && with_host != most)
        failed = ranks_fail("rank %d: %zu bytes from %s to %s: %zu were copied, not %zu",
                            gpu_passage_rank, passage.nbytes, passage.is_from_gpu ? "GPU" : "host",
                            passage.is_to_gpu ? "GPU" : "host", (size_t)with_host, (size_t)most);
    if (!failed && is_on_gpu && !is_sender && nflushes != wanted.nflushes)
        failed = ranks_fail("%d flushes, not %d", nflushes, wanted.nflushes);
    gpu_area_free(&buffer);
    return failed;
}

static int count_copies(kolo_group *group, void *unused)
{
    int failed = gpu_passage_enter(group);

    (void)unused;
    for (unsigned i = 0; i < 8 && !failed; i++)
        failed = look(group, (struct gpu_passage){.from = 0,
                                                  .nbytes = gpu_passage_whole(),
                                                  .out_at = 37,
                                                  .in_at = 4111,
                                                  .is_from_gpu = i & 1,
                                                  .is_to_gpu = i & 2,
                                                  .is_async = i & 4,
                                                  .key = i});
    if (!failed && (gpu_passage_dmabufs(true) > 0) != wanted.is_ever_registered)
        failed =
            ranks_fail("rank %d has had %d dma-bufs", gpu_passage_rank, gpu_passage_dmabufs(true));
    return gpu_rank_leave(failed);
}

static void want(bool is_direct)
{
    wanted.is_sender_staged = wanted.is_receiver_staged = !is_direct;
    wanted.nflushes = 0;
    wanted.is_ever_registered = is_direct;
}

static void no_copies(void **state)
{
    (void)state;
    unsetenv("FAKECUDA_JITTER"); /* a stream that is late is not waited for */
    want(true);
    gpu_passage_run(count_copies, 0, 0);
    setenv("FAKECUDA_ORDERING", "0", 1);
    setenv("FAKECUDA_FLUSHES", "1", 1);
    wanted.nflushes = 1;
    gpu_passage_run(count_copies, 0, 0);
    unsetenv("FAKECUDA_FLUSHES");
    want(false); /* what has been written could not be made to be seen */
    gpu_passage_run(count_copies, 0, 0);
    unsetenv("FAKECUDA_ORDERING");
    setenv("FAKECUDA_JITTER", "50", 1);
}

/* Allocations that share pages; the buffers of a message lie in one, behind another's end. */
static int count_copies_of_parts(kolo_group *group, void *unused)
{
    static const size_t sizes[] = {32768, 32769, 100003, 523264};
    int failed = gpu_passage_enter(group);
    struct gpu_area before = gpu_area_new(3000, true);

    (void)unused;
    for (unsigned i = 0; i < 4 * 4 && !failed; i++)
        failed = look(group, (struct gpu_passage){.nbytes = sizes[i / 4],
                                                  .out_at = i % 4,
                                                  .in_at = 4111,
                                                  .is_from_gpu = true,
                                                  .is_to_gpu = true,
                                                  .is_async = i & 1,
                                                  .key = i});
    if (!failed && (gpu_passage_dmabufs(true) > 0) != wanted.is_ever_registered)
        failed =
            ranks_fail("rank %d has had %d dma-bufs", gpu_passage_rank, gpu_passage_dmabufs(true));
    gpu_area_free(&before);
    return gpu_rank_leave(failed);
}

static void parts_of_blocks(void **state)
{
    (void)state;
    unsetenv("FAKECUDA_JITTER");
    setenv("FAKECUDA_BLOCKS", "1", 1);
    want(true);
    gpu_passage_run(count_copies_of_parts, 0, 0);
    setenv("FAKECUDA_DMA_BUF", "2", 1); /* of no page that another allocation has, too */
    want(false);
    gpu_passage_run(count_copies_of_parts, 0, 0);
    setenv("FAKECUDA_DMA_BUF", "1", 1);
    unsetenv("FAKECUDA_BLOCKS");
    setenv("FAKECUDA_JITTER", "50", 1);
}

static void copies_where_it_cannot_be(void **state)
{
    static const struct {
        const char *variable, *text;
    } cases[] = {{"KOLO_GPUDIRECT", "0"},
                 {"FAKECUDA_DMA_BUF", "0"},
                 {"FAKECUDA_WITHOUT", "cuMemGetHandleForAddressRange"},
                 {"FAKECUDA_BREAK", "cuMemGetHandleForAddressRange=801"},
                 {"FAKEVERBS_BREAK", "ibv_reg_dmabuf_mr=95"},
                 {"FAKEVERBS_BREAK", "ibv_reg_dmabuf_mr=12"}};

    (void)state;
    want(false);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        setenv(cases[i].variable, cases[i].text, 1);
        gpu_passage_run(count_copies, 0, 0);
        unsetenv(cases[i].variable);
        setenv("FAKECUDA_DMA_BUF", "1", 1);
    }
}

static int keep_old_library(int number, void *argument)
{
    char path[4096] = "";
    char *end;

    (void)number;
    (void)argument;
    if (readlink("/proc/self/exe", path, sizeof path - 40) < 0)
        return 1;
    end = strrchr(path, '/');
    snprintf(end, 40, "/fakeverbs/old/libibverbs.so.1");
    return !dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

static void copies_with_an_old_library(void **state)
{
    (void)state;
    if (IS_SANITIZED) /* which calls dlopen itself, and what is loaded is not taken */
        skip();
    want(false);
    gpu_passage_settle = keep_old_library;
    gpu_passage_run(count_copies, 0, 0);
    gpu_passage_settle = NULL;
}

static int at_rank_1(int number, void *argument)
{
    (void)argument;
    return number == 1 ? setenv("FAKEVERBS_BREAK", "ibv_reg_dmabuf_mr=95", 1) : 0;
}

/* Of two adapters the second one cannot, so the first one has it in vain. */
static int at_one_adapter(int number, void *argument)
{
    (void)argument;
    return number == 1 ? setenv("FAKEVERBS_BREAK", "ibv_reg_dmabuf_mr=95", 1) ||
                             setenv("FAKEVERBS_ONLY", "b0", 1)
                       : 0;
}

static int count_at_each_end(kolo_group *group, void *unused)
{
    wanted.is_ever_registered = kolo_group_rank(group) == 0;
    return count_copies(group, unused);
}

static int count_at_one_adapter(kolo_group *group, void *unused)
{
    int failed;

    wanted.is_ever_registered = true;
    failed = count_copies(group, unused);
    return failed || (gpu_passage_rank == 1 && gpu_passage_dmabufs(false))
               ? ranks_fail("some are left")
               : 0;
}

static void each_end_decides_for_itself(void **state)
{
    (void)state;
    want(true);
    wanted.is_receiver_staged = true;
    gpu_passage_settle = at_rank_1;
    gpu_passage_run(count_at_each_end, 0, 0);
    gpu_passage_settle = at_one_adapter;
    setenv("FAKEVERBS_DEVICES", "a0:roce,b0:roce", 1);
    setenv("KOLO_IB_HCA", "a0,b0", 1);
    gpu_passage_run(count_at_one_adapter, 0, 0);
    unsetenv("FAKEVERBS_DEVICES");
    unsetenv("KOLO_IB_HCA");
    gpu_passage_settle = NULL;
}

/* The receiver has no memory to be written to: the sender's adapter gathers the message in slots.
 */
static int gather(kolo_group *group, void *unused)
{
    static const size_t sizes[] = {32768, 32769, 100003, 8192 * 40, 523264 * 2 + 11};
    int failed = gpu_passage_enter(group);

    (void)unused;
    want(true);
    if (gpu_passage_rank == 1)
        setenv("FAKEVERBS_BREAK", "ibv_reg_mr=12", 1);
    for (unsigned i = 0; i < 5 * 4 && !failed; i++)
        failed = look(group, (struct gpu_passage){.from = 0,
                                                  .nbytes = sizes[i / 4],
                                                  .out_at = i % 4,
                                                  .is_from_gpu = true,
                                                  .is_async = i & 1,
                                                  .key = i});
    return gpu_rank_leave(failed);
}

static void gathered_in_slots(void **state)
{
    (void)state;
    gpu_passage_run(gather, 0, 0);
    setenv("FAKEVERBS_JITTER", "100", 1);
    gpu_passage_run(gather, 0, 0);
    unsetenv("FAKEVERBS_JITTER");
}

/* The sender, with host memory, cannot have its second slice read by the adapter: what comes behind
 * that, too, is copied by the receiver. */
static int interrupt(kolo_group *group, void *unused)
{
    const struct gpu_passage passage = {.nbytes = gpu_passage_whole(), .is_to_gpu = true};
    int failed = gpu_passage_enter(group);
    struct gpu_area area = gpu_area_new(passage.nbytes, gpu_passage_rank == 1);
    uint64_t with_host;

    (void)unused;
    if (gpu_passage_rank == 0)
        setenv("FAKEVERBS_BREAK", "ibv_reg_mr@2-2=12", 1);
    failed = failed || gpu_pass(group, &passage, &area, &with_host);
    if (!failed && gpu_passage_rank == 1 && with_host < passage.nbytes / 3 * 2)
        failed = ranks_fail("%zu bytes were copied", (size_t)with_host);
    gpu_area_free(&area);
    return gpu_rank_leave(failed);
}

static void written_in_one_stretch(void **state)
{
    (void)state;
    unsetenv("FAKECUDA_JITTER");
    gpu_passage_run(interrupt, 0, 0);
    setenv("FAKECUDA_JITTER", "50", 1);
}

/* ---- the warning ----------------------------------------------------------------------------- */

static void warned_of_once(void **state)
{
    static char text[10000];
    const char *found;

    (void)state;
    want(false);
    setenv("FAKEVERBS_BREAK", "ibv_reg_dmabuf_mr=95", 1);
    gpu_passage_run_warned(count_copies, text, sizeof text);
    unsetenv("FAKEVERBS_BREAK");
    found = strstr(text, "cannot register dma-bufs");
    for (int i = 0; i < 2; i++) { /* one of each rank */
        assert_non_null(found);
        found = strstr(found + 1, "cannot register dma-bufs");
    }
    assert_null(found);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages),
        cmocka_unit_test(no_copies),
        cmocka_unit_test(parts_of_blocks),
        cmocka_unit_test(copies_where_it_cannot_be),
        cmocka_unit_test(copies_with_an_old_library),
        cmocka_unit_test(each_end_decides_for_itself),
        cmocka_unit_test(gathered_in_slots),
        cmocka_unit_test(written_in_one_stretch),
        cmocka_unit_test(warned_of_once),
    };

    setenv("FAKECUDA_DMA_BUF", "1", 1);
    setenv("FAKECUDA_JITTER", "50", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
