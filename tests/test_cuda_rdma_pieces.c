/* SPDX-License-Identifier: MIT
 *
 * Messages over rdma from and into GPU memory that lies in several pieces side by side, as
 * PyTorch's expandable segments do, on the doubles of NVIDIA's driver and of libibverbs: all pieces
 * that a message lies in are one dma-buf, and none of its bytes goes by way of the host; where the
 * driver gives no dma-buf of more than one piece, those of several do, and a warning says so.
 */
#include "gpu_passage.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { PIECE = 1 << 16, PIECES = 40 };

static struct gpu_area map_all(int handle_types)
{
    ko_cu_ptr at;

    if (gpu_rank.cuda->addresses_reserve(&at, (size_t)PIECES * PIECE, 0, 0, 0))
        abort();
    gpu_rank_map(at, PIECE, PIECES, handle_types);
    return (struct gpu_area){(unsigned char *)(uintptr_t)at, (size_t)PIECES * PIECE, true};
}

static void unmap_all(const struct gpu_area *area)
{
    gpu_rank_unmap((uintptr_t)area->at, PIECE, PIECES);
    if (gpu_rank.cuda->addresses_free((uintptr_t)area->at, area->nbytes))
        abort();
}

/* Others, of other content, in the place of n pieces from that one on. */
static void change(const struct gpu_area *area, int piece, int n)
{
    const ko_cu_ptr at = (uintptr_t)area->at + (size_t)piece * PIECE;

    gpu_rank_unmap(at, PIECE, n);
    gpu_rank_map(at, PIECE, n, KO_CU_HANDLE_DESCRIPTOR);
}

/* Pieces in which nbytes from that place on lie. */
static int pieces_of(size_t at, size_t nbytes)
{
    return (int)((at + nbytes - 1) / PIECE - at / PIECE + 1);
}

/* Whether the driver gives dma-bufs of more than one. */
static bool has_runs;

/* At either end what lies in several pieces is copied if it has to be. */
static int look(kolo_group *group, const struct gpu_area *area, const struct gpu_passage *passage)
{
    const size_t at = gpu_passage_rank == passage->from ? passage->out_at : passage->in_at;
    const bool is_direct = has_runs || pieces_of(at, passage->nbytes) == 1;
    uint64_t with_host;
    int nflushes, failed = gpu_pass_best(group, passage, area, &with_host, &nflushes);

    if (!failed && with_host != (is_direct ? 0 : passage->nbytes))
        failed = ranks_fail("rank %d: of %zu bytes in %d pieces %zu were copied", gpu_passage_rank,
                            passage->nbytes, pieces_of(at, passage->nbytes), (size_t)with_host);
    return failed;
}

static const struct gpu_passage passages[] = {
    /* in one piece at one end, up to both its ends, and in two at the other */
    {.nbytes = PIECE, .out_at = PIECE, .in_at = 2 * PIECE - 1},
    {.nbytes = PIECE, .out_at = PIECE + 1, .in_at = 2 * PIECE},
    {.nbytes = PIECE - 3, .out_at = 3 * PIECE + 1, .in_at = 5 * PIECE + 2},
    /* in two, and in three */
    {.nbytes = 2 * PIECE, .out_at = PIECE, .in_at = 7 * PIECE - 4097},
    {.nbytes = PIECE + 2, .out_at = 9 * PIECE - 1, .in_at = 12 * PIECE - 1},
    {.nbytes = 2 * PIECE + 7777, .out_at = PIECE + 511, .in_at = 3 * PIECE - 5},
    /* in many, and all (an asynchronous receive has room for five more) */
    {.nbytes = 11 * PIECE + 12345, .out_at = 2 * PIECE - 333, .in_at = 20 * PIECE + 4321},
    {.nbytes = PIECES * PIECE - 9, .out_at = 7, .in_at = 2},
    {.nbytes = PIECES * PIECE - 5, .out_at = 0, .in_at = 0},
};

static int pass_all(kolo_group *group, void *unused)
{
    const int n = sizeof passages / sizeof *passages;
    int failed = gpu_passage_enter(group);
    const struct gpu_area area = map_all(KO_CU_HANDLE_DESCRIPTOR);

    (void)unused;
    for (unsigned i = 0; i < 2U * (unsigned)n && !failed; i++) {
        struct gpu_passage passage = passages[i / 2];

        passage.from = (int)(i / 2 % 2);
        passage.is_from_gpu = passage.is_to_gpu = true;
        passage.is_async = i % 2;
        passage.key = i;
        failed = look(group, &area, &passage);
    }
    unmap_all(&area);
    return gpu_rank_leave(failed);
}

static void over_several(void **state)
{
    (void)state;
    has_runs = true;
    gpu_passage_run(pass_all, 0, 0);
    setenv("FAKEVERBS_DEVICES", "a0:roce,b0:roce", 1);
    setenv("KOLO_IB_HCA", "a0,b0", 1);
    gpu_passage_run(pass_all, 0, 0);
    unsetenv("KOLO_IB_HCA");
    unsetenv("FAKEVERBS_DEVICES");
}

/* Those that cannot be handed to other processes are adapters' all the same. */
static int pass_pool(kolo_group *group, void *unused)
{
    const struct gpu_passage passage = {
        .nbytes = 3 * PIECE, .out_at = 100, .in_at = 200, .is_from_gpu = true, .is_to_gpu = true};
    int failed = gpu_passage_enter(group);
    const struct gpu_area area = map_all(0);

    (void)unused;
    failed = failed || look(group, &area, &passage);
    unmap_all(&area);
    return gpu_rank_leave(failed);
}

static void of_a_pool(void **state)
{
    (void)state;
    has_runs = true;
    gpu_passage_run(pass_pool, 0, 0);
}

/* ---- changes --------------------------------------------------------------------------------- */

/* Each time other pieces lie where a message does: its first, its last, one in the middle, all; and
 * then behind it and before it, which is nothing to it. */
static int change_them(kolo_group *group, void *unused)
{
    static const struct {
        int piece, n;
        bool is_new;
    } changes[] = {{9, 1, true}, {4, 1, true},   {6, 2, true}, {4, 6, true},
                   {3, 2, true}, {10, 5, false}, {0, 4, false}};
    struct gpu_passage passage = {.nbytes = 5 * PIECE + 1001,
                                  .out_at = 4 * PIECE + 77,
                                  .in_at = 4 * PIECE + 4097,
                                  .is_from_gpu = true,
                                  .is_to_gpu = true};
    int failed = gpu_passage_enter(group), registered = 1;
    const struct gpu_area area = map_all(KO_CU_HANDLE_DESCRIPTOR);

    (void)unused;
    failed = failed || look(group, &area, &passage);
    for (unsigned i = 0; i < sizeof changes / sizeof *changes && !failed; i++) {
        change(&area, changes[i].piece, changes[i].n);
        registered += changes[i].is_new;
        passage.key = i + 1;
        failed = look(group, &area, &passage);
        if (!failed && (gpu_passage_dmabufs(true) != registered || gpu_passage_dmabufs(false) != 1))
            failed = ranks_fail("change %u: %d dma-bufs, %d ever, not %d", i,
                                gpu_passage_dmabufs(false), gpu_passage_dmabufs(true), registered);
    }
    unmap_all(&area);
    return gpu_rank_leave(failed);
}

static void that_change(void **state)
{
    (void)state;
    has_runs = true;
    gpu_passage_run(change_them, 0, 0);
}

/* ---- drivers that give them one by one ------------------------------------------------------- */

static void staged(void **state)
{
    static char text[10000];
    const char *found = text;

    (void)state;
    has_runs = false;
    setenv("FAKECUDA_DMA_BUF", "2", 1);
    gpu_passage_run_warned(pass_all, text, sizeof text);
    setenv("FAKECUDA_DMA_BUF", "1", 1);
    for (int i = 0; i < 2; i++) { /* of each rank one */
        found = strstr(found, "no dma-buf of GPU memory in several pieces");
        assert_non_null(found++);
    }
    assert_null(strstr(found, "no dma-buf"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(over_several),
        cmocka_unit_test(of_a_pool),
        cmocka_unit_test(that_change),
        cmocka_unit_test(staged),
    };

    setenv("FAKECUDA_DMA_BUF", "1", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
