/* SPDX-License-Identifier: MIT
 *
 * What the double of NVIDIA's driver refuses, or has its callers wait for, as a GPU's driver does
 * or may: streams without room, memory that is freed, copies of what is not registered, blocks of
 * which small allocations are parts and their dma-bufs, events and streams of several GPUs, and of
 * captures.
 */
#include "clock.h"
#include "gpu_double.h"
#include "gpu_rank.h"
#include "ranks.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { SHORT_MS = 50, NBYTES = 1000, BLOCK = 2 << 20, ALREADY_REGISTERED = 712 };
enum { CAPTURE_ISOLATED = 905, CAPTURED_EVENT = 907 };

static const struct ko_cuda *cuda;
static ko_cu_stream stream; /* of GPU 0, the thread's current one */

static int start(void **state)
{
    (void)state;
    setenv("FAKECUDA_DEVICES", "2", 1);
    if (gpu_rank_enter(NULL))
        return -1;
    cuda = gpu_rank.cuda;
    stream = gpu_rank.stream;
    return 0;
}

static ko_cu_ptr at_host(const void *memory)
{
    return (uintptr_t)memory;
}

/* ---- callers that wait ----------------------------------------------------------------------- */

/* What another thread asks of the driver, with a GPU's context. */
struct request {
    ko_cu_result (*ask)(const struct request *request);
    int gpu;
    ko_cu_stream stream;
    ko_cu_ptr memory;
    void *host;
    uint32_t is_done;
    pthread_t thread;
};

static void *ask(void *argument)
{
    struct request *request = argument;
    ko_cu_context context;

    if (cuda->context_retain(&context, request->gpu) || cuda->context_push(context) ||
        request->ask(request))
        abort();
    __atomic_store_n(&request->is_done, 1, __ATOMIC_RELEASE);
    return NULL;
}

static void begin(struct request *request)
{
    assert_int_equal(pthread_create(&request->thread, NULL, ask, request), 0);
}

static bool is_done_in(const struct request *request, int ms)
{
    const ko_deadline deadline = ko_deadline_in(ms);
    bool is_done;

    while (!(is_done = __atomic_load_n(&request->is_done, __ATOMIC_ACQUIRE)) &&
           !ko_deadline_passed(&deadline))
        ranks_nap_ms(1);
    return is_done;
}

/* It waits for the gate. */
static void check_that_it_waits(struct request *request, uint32_t *gate)
{
    assert_false(is_done_in(request, SHORT_MS));
    __atomic_store_n(gate, 1, __ATOMIC_RELEASE);
    assert_true(is_done_in(request, RANKS_SOON_MS));
    assert_int_equal(pthread_join(request->thread, NULL), 0);
    assert_int_equal(cuda->stream_sync(stream), 0);
}

static void close_gate(uint32_t *gate)
{
    *gate = 0;
    assert_int_equal(cuda->stream_await_word(stream, at_host(gate), 1, KO_CU_WAIT_EQ), 0);
}

static ko_cu_result fill(const struct request *request)
{
    return cuda->fill(request->memory, 1, NBYTES, request->stream);
}

static void test_a_stream_has_no_room(void **state)
{
    struct request request = {.ask = fill, .stream = stream, .memory = gpu_rank_fresh(NBYTES)};
    uint32_t gate;

    (void)state;
    setenv("FAKECUDA_DEPTH", "3", 1);
    close_gate(&gate);
    for (int i = 0; i < 2; i++)
        assert_int_equal(fill(&request), 0);
    begin(&request);
    check_that_it_waits(&request, &gate);
    unsetenv("FAKECUDA_DEPTH");
    assert_int_equal(cuda->free(request.memory), 0);
}

static ko_cu_result copy(const struct request *request)
{
    return cuda->copy(at_host(request->host), request->memory, NBYTES, request->stream);
}

/* From memory that is not registered, and from such that is. */
static void test_a_copy_is_waited_for(void **state)
{
    static unsigned char host[NBYTES];
    struct request request = {
        .ask = copy, .stream = stream, .memory = gpu_rank_fresh(NBYTES), .host = host};
    uint32_t gate;

    (void)state;
    setenv("FAKECUDA_STRICT", "1", 1);
    close_gate(&gate);
    begin(&request);
    check_that_it_waits(&request, &gate);
    assert_int_equal(cuda->host_register(host, NBYTES, 0), 0);
    close_gate(&gate);
    assert_int_equal(copy(&request), 0);
    assert_int_equal(cuda->stream_query(stream), KO_CU_NOT_READY);
    __atomic_store_n(&gate, 1, __ATOMIC_RELEASE);
    assert_int_equal(cuda->host_unregister(host), 0);
    unsetenv("FAKECUDA_STRICT");
    assert_int_equal(cuda->free(request.memory), 0);
}

static ko_cu_result free_memory(const struct request *request)
{
    return cuda->free(request->memory);
}

static ko_cu_result launch(const struct request *request)
{
    struct ko_fold fold = {.count = 1, .nparts = 1, .nouts = 1};

    fold.parts[0] = fold.outs[0] = request->memory;
    return ko_cuda_fold(KOLO_INT32, KOLO_SUM, fold, 1, request->stream) ? KO_CU_INVALID_VALUE
                                                                        : KO_CU_SUCCESS;
}

/* On a GPU where a thread frees memory, and on the other one. */
static void test_kernels_wait_for_what_is_freed(void **state)
{
    struct request freeing = {.ask = free_memory, .memory = gpu_rank_fresh(NBYTES)};
    struct request here = {.ask = launch, .memory = gpu_rank_fresh(NBYTES)}, there = here;
    ko_cu_context context;
    uint32_t gate;

    (void)state;
    assert_int_equal(cuda->stream_create(&here.stream, KO_CU_STREAM_NON_BLOCKING), 0);
    there.gpu = 1;
    assert_int_equal(cuda->context_retain(&context, 1), 0);
    assert_int_equal(cuda->context_push(context), 0);
    there.memory = gpu_rank_fresh(NBYTES);
    assert_int_equal(cuda->stream_create(&there.stream, KO_CU_STREAM_NON_BLOCKING), 0);
    assert_int_equal(cuda->context_pop(&context), 0);
    setenv("FAKECUDA_STRICT", "1", 1);
    close_gate(&gate);
    begin(&freeing);
    assert_false(is_done_in(&freeing, SHORT_MS));
    begin(&there);
    assert_true(is_done_in(&there, RANKS_SOON_MS));
    begin(&here);
    check_that_it_waits(&here, &gate);
    assert_int_equal(pthread_join(freeing.thread, NULL), 0);
    assert_int_equal(pthread_join(there.thread, NULL), 0);
    unsetenv("FAKECUDA_STRICT");
    assert_int_equal(cuda->free(here.memory), 0);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void test_words_of_a_step(void **state)
{
    static ko_cu_word_step steps[256];
    const ko_cu_ptr memory = gpu_rank_fresh(4);

    (void)state;
    for (int i = 0; i < 256; i++)
        steps[i] = (ko_cu_word_step){.what = KO_CU_PUT_WORD, .at = memory, .value = 1};
    assert_int_equal(cuda->stream_step(stream, 255, steps, 0), 0);
    assert_int_equal(cuda->stream_step(stream, 256, steps, 0), KO_CU_INVALID_VALUE);
    gpu_manage(memory, false);
    assert_int_equal(cuda->stream_step(stream, 1, steps, 0), KO_CU_INVALID_VALUE);
    assert_int_equal(cuda->stream_await_word(stream, memory, 1, KO_CU_WAIT_GEQ),
                     KO_CU_INVALID_VALUE);
    assert_int_equal(cuda->free(memory), 0);
}

static void test_memory_is_registered_once(void **state)
{
    static unsigned char host[NBYTES];

    (void)state;
    assert_int_equal(cuda->host_register(host, NBYTES, 0), 0);
    assert_int_equal(cuda->host_register(host + NBYTES - 1, 1, 0), ALREADY_REGISTERED);
    assert_int_equal(cuda->host_unregister(host), 0);
    assert_int_equal(cuda->host_register(host + NBYTES - 1, 1, 0), 0);
    assert_int_equal(cuda->host_unregister(host + NBYTES - 1), 0);
}

/* An event is recorded in streams of its own GPU, and waited for in any. */
static void test_events_have_a_gpu(void **state)
{
    ko_cu_context context;
    ko_cu_stream other;
    ko_cu_event event;

    (void)state;
    assert_int_equal(cuda->event_create(&event, KO_CU_EVENT_DISABLE_TIMING), 0);
    assert_int_equal(cuda->context_retain(&context, 1), 0);
    assert_int_equal(cuda->context_push(context), 0);
    assert_int_equal(cuda->stream_create(&other, KO_CU_STREAM_NON_BLOCKING), 0);
    assert_int_equal(cuda->event_record(event, other), KO_CU_INVALID_HANDLE);
    assert_int_equal(cuda->event_record(event, stream), 0);
    assert_int_equal(cuda->stream_await_event(other, event, 0), 0);
    assert_int_equal(cuda->stream_destroy(other), 0);
    assert_int_equal(cuda->context_pop(&context), 0);
    assert_int_equal(cuda->event_destroy(event), 0);
}

static void end_broken(ko_cu_stream captured)
{
    ko_cu_graph graph;

    assert_int_equal(cuda->capture_end(captured, &graph), KO_CU_CAPTURE_BROKEN);
}

/* A captured stream waits for nothing of before, nor anybody for what is captured. */
static void test_captures_are_isolated(void **state)
{
    ko_cu_event before, within;

    (void)state;
    assert_int_equal(cuda->event_create(&before, 0), 0);
    assert_int_equal(cuda->event_create(&within, 0), 0);
    assert_int_equal(cuda->event_record(before, NULL), 0);
    assert_int_equal(cuda->stream_sync(NULL), 0);
    assert_int_equal(cuda->capture_begin(stream, KO_CU_CAPTURE_RELAXED), 0);
    assert_int_equal(cuda->event_record(within, stream), 0);
    assert_int_equal(cuda->event_query(within), CAPTURED_EVENT);
    assert_int_equal(cuda->event_sync(within), CAPTURED_EVENT);
    assert_int_equal(cuda->stream_await_event(stream, before, 0), CAPTURE_ISOLATED);
    end_broken(stream);
    assert_int_equal(cuda->event_destroy(before), 0);
    assert_int_equal(cuda->event_destroy(within), 0);
}

/* The legacy stream takes nothing while a stream is captured that waits for it. */
static void test_captures_and_the_legacy_stream(void **state)
{
    const ko_cu_ptr memory = gpu_rank_fresh(NBYTES);
    ko_cu_stream blocking;
    ko_cu_graph graph;

    (void)state;
    assert_int_equal(cuda->stream_create(&blocking, 0), 0);
    assert_int_equal(cuda->capture_begin(blocking, KO_CU_CAPTURE_RELAXED), 0);
    assert_int_equal(cuda->fill(memory, 1, NBYTES, NULL), KO_CU_CAPTURE_IMPLICIT);
    end_broken(blocking);
    assert_int_equal(cuda->capture_begin(stream, KO_CU_CAPTURE_RELAXED), 0);
    assert_int_equal(cuda->fill(memory, 1, NBYTES, NULL), 0);
    assert_int_equal(cuda->capture_end(stream, &graph), 0);
    assert_int_equal(cuda->graph_destroy(graph), 0);
    assert_int_equal(cuda->stream_destroy(blocking), 0);
    assert_int_equal(cuda->free(memory), 0);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* Small ones are parts of one block, and the next has the place of one that is gone. */
static void test_small_memory_is_in_blocks(void **state)
{
    ko_cu_ptr first, second, third, large, base;
    size_t nbytes;

    (void)state;
    setenv("FAKECUDA_BLOCKS", "1", 1);
    first = gpu_rank_fresh(NBYTES);
    second = gpu_rank_fresh(1);
    large = gpu_rank_fresh(BLOCK);
    assert_int_equal(second / BLOCK, first / BLOCK);
    assert_true(second >= first + NBYTES && second % 512 == 0);
    assert_int_equal(cuda->address_range(&base, &nbytes, second), 0);
    assert_true(base == second && nbytes == 1);
    assert_int_equal(cuda->free(first), 0);
    third = gpu_rank_fresh(NBYTES / 2);
    assert_int_equal(third, first);
    assert_int_equal(cuda->free(second), 0);
    assert_int_equal(cuda->free(third), 0);
    assert_int_equal(gpu_rank_fresh(NBYTES), first);
    assert_int_equal(cuda->free(first), 0);
    assert_int_equal(cuda->free(large), 0);
    unsetenv("FAKECUDA_BLOCKS");
}

/* The errors of cuMemGetHandleForAddressRange, and where what it gives begins. */
static ko_cu_result export(ko_cu_ptr at, size_t nbytes, off_t *begin)
{
    int fd;
    const ko_cu_result result = cuda->range_export(&fd, at, nbytes, KO_CU_RANGE_DMA_BUF, 0);

    if (result)
        return result;
    *begin = lseek(fd, 0, SEEK_CUR);
    close(fd);
    return KO_CU_SUCCESS;
}

/* A block is its own, and its parts are in it one behind the other. */
static void test_dma_bufs_of_parts(void **state)
{
    enum { PAGE = 4096 };
    ko_cu_ptr first, second, page;
    off_t begin = -1;

    (void)state;
    setenv("FAKECUDA_BLOCKS", "1", 1);
    first = gpu_rank_fresh(5 * PAGE / 2);
    second = gpu_rank_fresh(3 * PAGE);
    page = second / PAGE * PAGE;
    assert_true(first % PAGE == 0 && second == first + 5 * PAGE / 2);
    assert_int_equal(export(page, 4 * PAGE, &begin), KO_CU_NOT_SUPPORTED);
    setenv("FAKECUDA_DMA_BUF", "1", 1);
    assert_int_equal(export(page, 4 * PAGE, &begin), KO_CU_SUCCESS);
    assert_int_equal(begin, 2 * PAGE);
    assert_int_equal(export(page + PAGE, 2 * PAGE, &begin), KO_CU_SUCCESS);
    assert_int_equal(begin, 3 * PAGE);
    assert_int_equal(export(second, 3 * PAGE, &begin), KO_CU_INVALID_VALUE);
    assert_int_equal(export(page, 3 * PAGE + 512, &begin), KO_CU_INVALID_VALUE);
    assert_int_equal(export(page, 5 * PAGE, &begin), KO_CU_INVALID_VALUE);
    assert_int_equal(export(first, 6 * PAGE, &begin), KO_CU_INVALID_VALUE);
    setenv("FAKECUDA_DMA_BUF", "2", 1);
    assert_int_equal(export(page, 4 * PAGE, &begin), KO_CU_INVALID_VALUE);
    assert_int_equal(export(page + PAGE, 2 * PAGE, &begin), KO_CU_SUCCESS);
    unsetenv("FAKECUDA_DMA_BUF");
    unsetenv("FAKECUDA_BLOCKS");
    assert_int_equal(cuda->free(first), KO_CU_SUCCESS);
    assert_int_equal(cuda->free(second), KO_CU_SUCCESS);
}

/* Those of several are one where they are of the same properties, and nothing is between them. */
static void test_dma_bufs_of_pieces(void **state)
{
    enum { PIECE = 16384, PAGE = 4096 };
    off_t begin = 0;
    ko_cu_ptr at;

    (void)state;
    assert_int_equal(cuda->addresses_reserve(&at, 5 * PIECE, 0, 0, 0), 0);
    gpu_rank_map(at, PIECE, 2, KO_CU_HANDLE_DESCRIPTOR);
    gpu_rank_map(at + 2 * PIECE, PIECE, 1, 0);
    gpu_rank_map(at + 4 * PIECE, PIECE, 1, 0);
    setenv("FAKECUDA_DMA_BUF", "1", 1);
    assert_int_equal(export(at, 2 * PIECE, &begin), KO_CU_SUCCESS);
    assert_int_equal(begin, -1); /* no file, but several */
    assert_int_equal(export(at + PAGE, 2 * PIECE - 2 * PAGE, &begin), KO_CU_SUCCESS);
    assert_int_equal(export(at + PIECE, 2 * PIECE, &begin), KO_CU_INVALID_VALUE);
    assert_int_equal(export(at + 2 * PIECE, 3 * PIECE, &begin), KO_CU_INVALID_VALUE);
    assert_int_equal(export(at + 4 * PIECE, PIECE + PAGE, &begin), KO_CU_INVALID_VALUE);
    setenv("FAKECUDA_DMA_BUF", "2", 1);
    assert_int_equal(export(at, 2 * PIECE, &begin), KO_CU_INVALID_VALUE);
    assert_int_equal(export(at + PIECE, PIECE, &begin), KO_CU_SUCCESS);
    unsetenv("FAKECUDA_DMA_BUF");
    gpu_rank_unmap(at, PIECE, 3);
    gpu_rank_unmap(at + 4 * PIECE, PIECE, 1);
    assert_int_equal(cuda->addresses_free(at, 5 * PIECE), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_stream_has_no_room),
        cmocka_unit_test(test_a_copy_is_waited_for),
        cmocka_unit_test(test_kernels_wait_for_what_is_freed),
        cmocka_unit_test(test_words_of_a_step),
        cmocka_unit_test(test_memory_is_registered_once),
        cmocka_unit_test(test_events_have_a_gpu),
        cmocka_unit_test(test_captures_are_isolated),
        cmocka_unit_test(test_captures_and_the_legacy_stream),
        cmocka_unit_test(test_small_memory_is_in_blocks),
        cmocka_unit_test(test_dma_bufs_of_parts),
        cmocka_unit_test(test_dma_bufs_of_pieces),
    };

    return cmocka_run_group_tests(tests, start, NULL);
}
