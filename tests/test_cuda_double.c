/* SPDX-License-Identifier: MIT
 *
 * The double of NVIDIA's driver does what the driver promises: the tests of everything above it
 * are worth as much as this.
 */
#include "cuda_kernels.h"
#include "ranks.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { NBYTES = 10000 };

static const struct ko_cuda *cuda;

static ko_cu_ptr at_host(const void *memory)
{
    return (uintptr_t)memory;
}

static ko_cu_ptr alloc(size_t nbytes)
{
    ko_cu_ptr memory = 0;

    assert_int_equal(cuda->alloc(&memory, nbytes), KO_CU_SUCCESS);
    return memory;
}

static ko_cu_stream make_stream(unsigned flags)
{
    ko_cu_stream stream = NULL;

    assert_int_equal(cuda->stream_create(&stream, flags), KO_CU_SUCCESS);
    return stream;
}

static int open_driver(void)
{
    ko_cu_context context;

    return ko_cuda_open(&cuda) || cuda->context_retain(&context, 0) || cuda->context_push(context);
}

/* Of each test that does not fork: those that do come first, and find no driver open. */
static int start(void **state)
{
    (void)state;
    return cuda ? 0 : open_driver();
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void test_memory_is_not_zero(void **state)
{
    unsigned char bytes[NBYTES] = {0};
    ko_cu_ptr memory = alloc(NBYTES);

    (void)state;
    assert_int_equal(cuda->copy(at_host(bytes), memory, NBYTES, NULL), KO_CU_SUCCESS);
    assert_int_equal(cuda->stream_sync(NULL), KO_CU_SUCCESS);
    for (size_t i = 0; i < NBYTES; i++)
        assert_int_equal(bytes[i], 0xa5);
    assert_int_equal(cuda->free(memory), KO_CU_SUCCESS);
}

static void test_pointers_are_known(void **state)
{
    ko_cu_ptr memory = alloc(NBYTES), other = alloc(1), base = 0;
    uint64_t id = 0, other_id = 0;
    unsigned type = 0;
    size_t nbytes = 0;
    int device = -1;

    (void)state;
    assert_int_equal(cuda->pointer_attribute(&type, KO_CU_POINTER_MEMORY_TYPE, memory + 77), 0);
    assert_int_equal(type, KO_CU_MEMORY_DEVICE);
    assert_int_equal(cuda->pointer_attribute(&device, KO_CU_POINTER_DEVICE, memory), 0);
    assert_int_equal(device, 0);
    assert_int_equal(cuda->address_range(&base, &nbytes, memory + NBYTES - 1), 0);
    assert_true(base == memory && nbytes >= NBYTES);
    assert_int_equal(cuda->pointer_attribute(&id, KO_CU_POINTER_BUFFER_ID, memory), 0);
    assert_int_equal(cuda->pointer_attribute(&other_id, KO_CU_POINTER_BUFFER_ID, other), 0);
    assert_true(id != other_id);
    assert_int_equal(cuda->free(memory), KO_CU_SUCCESS);
    assert_int_equal(cuda->free(other), KO_CU_SUCCESS);
    assert_int_equal(cuda->pointer_attribute(&type, KO_CU_POINTER_MEMORY_TYPE, at_host(&type)),
                     KO_CU_INVALID_VALUE);
}

static void test_what_is_freed_is_gone(void **state)
{
    ko_cu_ptr memory = alloc(NBYTES), base;
    size_t nbytes;

    (void)state;
    assert_int_equal(cuda->free(memory + 1), KO_CU_INVALID_VALUE);
    assert_int_equal(cuda->free(memory), KO_CU_SUCCESS);
    assert_int_equal(cuda->free(memory), KO_CU_INVALID_VALUE);
    assert_int_equal(cuda->address_range(&base, &nbytes, memory), KO_CU_NOT_FOUND);
    assert_int_equal(cuda->free(0), KO_CU_SUCCESS);
    assert_int_equal(cuda->alloc(&memory, 0), KO_CU_INVALID_VALUE);
}

static void test_copies_stay_inside(void **state)
{
    unsigned char bytes[NBYTES];
    ko_cu_ptr memory = alloc(4096);

    (void)state;
    assert_int_equal(cuda->copy(memory, at_host(bytes), 4097, NULL), KO_CU_INVALID_VALUE);
    assert_int_equal(cuda->copy(at_host(bytes), memory + 4095, 2, NULL), KO_CU_INVALID_VALUE);
    assert_int_equal(cuda->fill(memory, 0, 4097, NULL), KO_CU_INVALID_VALUE);
    assert_int_equal(cuda->free(memory), KO_CU_SUCCESS);
}

/* A process of its own, in which the driver is not open yet. 0: it exited with 0. */
static int run_child(int (*body)(const void *), const void *argument)
{
    int status;
    pid_t pid = fork();

    if (pid == 0)
        _exit(body(argument));
    return waitpid(pid, &status, 0) == pid ? status : -1;
}

static int touch_device(const void *unused)
{
    ko_cu_ptr memory;

    (void)unused;
    signal(SIGSEGV, SIG_DFL);
    if (open_driver() || cuda->alloc(&memory, 4096))
        return 1;
    return *(volatile unsigned char *)(uintptr_t)memory != 0xa5;
}

/* Before any test opens the driver here. What a key allows stays with the thread when the key is
 * freed, and passes to the child: its driver gets the same key, perhaps in another thread. */
static void test_the_host_cannot_touch_it(void **state)
{
    int key = pkey_alloc(0, PKEY_DISABLE_ACCESS), status;

    (void)state;
    if (key < 0)
        skip(); /* the processor has no protection keys */
    pkey_free(key);
    status = run_child(touch_device, NULL);
    assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) > 1); /* a sanitizer exits instead */
}

/* ---- several GPUs ---------------------------------------------------------------------------- */

static int enter_gpu(int gpu)
{
    ko_cu_context context;

    return cuda->context_retain(&context, gpu) || cuda->context_push(context);
}

/* A kernel of GPU 1 doubles an element of memory that `home` has, with or without access. */
static int touch_peer(const void *has_access)
{
    struct ko_fold fold = {.nparts = 2, .nouts = 1, .count = 1};
    ko_cu_context home;
    ko_cu_ptr memory;
    uint32_t value = 21;

    setenv("FAKECUDA_DEVICES", "4", 1);
    setenv("FAKECUDA_PEERS", "2", 1);
    if (open_driver() || cuda->context_current(&home) || cuda->alloc(&memory, 4) || enter_gpu(1))
        return 1;
    fold.parts[0] = fold.parts[1] = fold.outs[0] = memory;
    if (has_access &&
        (cuda->context_reach(home, 0) || cuda->context_reach(home, 0) != KO_CU_PEER_ENABLED))
        return 2;
    if (cuda->copy(memory, at_host(&value), 4, NULL) ||
        ko_cuda_fold(KOLO_INT32, KOLO_SUM, fold, 1, NULL) ||
        cuda->copy(at_host(&value), memory, 4, NULL) || cuda->stream_sync(NULL))
        return 3;
    return value != 42;
}

/* Two of four, in another order. */
static int look_for_visible(const void *unused)
{
    ko_cu_device device;
    ko_cu_context context;
    ko_cu_uuid uuid;
    int n;

    (void)unused;
    setenv("FAKECUDA_DEVICES", "4", 1);
    setenv("FAKECUDA_VISIBLE", "2,0", 1);
    if (open_driver() || cuda->device_count(&n) || n != 2)
        return 1;
    if (cuda->device(&device, 0) || cuda->device_uuid(&uuid, device) || uuid.bytes[15] != 2 ||
        cuda->device(&device, 1) || cuda->device_uuid(&uuid, device) || uuid.bytes[15] != 0)
        return 2;
    return cuda->device(&device, 2) != KO_CU_INVALID_DEVICE ||
           cuda->context_retain(&context, 1) != KO_CU_INVALID_DEVICE;
}

/* GPUs 0 and 1 reach each other, and so do 2 and 3. */
static int look_for_peers(const void *unused)
{
    ko_cu_context contexts[4];
    ko_cu_ptr memory;
    int does;

    (void)unused;
    setenv("FAKECUDA_DEVICES", "4", 1);
    setenv("FAKECUDA_PEERS", "2", 1);
    if (open_driver())
        return 1;
    for (int i = 0; i < 16; i++)
        if (cuda->device_reaches(&does, i / 4, i % 4) ||
            does != (i / 4 != i % 4 && i / 8 == i % 4 / 2))
            return 2;
    for (int i = 0; i < 4; i++)
        if (cuda->context_retain(&contexts[i], i))
            return 3;
    if (cuda->device_reaches(&does, 0, 4) != KO_CU_INVALID_DEVICE ||
        cuda->context_reach(contexts[0], 0) != KO_CU_INVALID_CONTEXT ||
        cuda->context_reach(contexts[1], 1) != KO_CU_INVALID_VALUE ||
        cuda->context_reach(contexts[2], 0) != KO_CU_PEER_UNSUPPORTED)
        return 4;
    return enter_gpu(3) || cuda->alloc(&memory, 1) ||
           cuda->pointer_attribute(&does, KO_CU_POINTER_DEVICE, memory) || does != 3;
}

static void test_gpus_reach_each_other(void **state)
{
    int status;

    (void)state;
    assert_int_equal(run_child(look_for_visible, NULL), 0);
    assert_int_equal(run_child(look_for_peers, NULL), 0);
    assert_int_equal(run_child(touch_peer, ""), 0);
    status = run_child(touch_peer, NULL);
    assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) > 3); /* a sanitizer exits instead */
}

/* ---- other processes ------------------------------------------------------------------------- */

struct pipes {
    int to[2], from[2];
};

/* Opens what comes through the pipe, checks its bytes, overwrites them. */
static int use_import(const void *argument)
{
    const struct pipes *pipes = argument;
    unsigned char bytes[NBYTES];
    ko_cu_ipc_handle handle;
    ko_cu_ptr memory, again;

    if (open_driver() || read(pipes->to[0], &handle, sizeof handle) != sizeof handle)
        return 1;
    if (cuda->ipc_open(&memory, handle, KO_CU_IPC_LAZY_PEER_ACCESS) ||
        cuda->ipc_open(&again, handle, KO_CU_IPC_LAZY_PEER_ACCESS) || memory != again)
        return 2;
    if (cuda->copy(at_host(bytes), memory, NBYTES, NULL) || cuda->stream_sync(NULL))
        return 3;
    for (size_t i = 0; i < NBYTES; i++)
        if (bytes[i] != 17)
            return 4;
    if (cuda->fill(memory, 18, NBYTES, NULL) || cuda->stream_sync(NULL))
        return 5;
    if (cuda->ipc_export(&handle, memory) != KO_CU_INVALID_VALUE)
        return 6; /* what came from another process cannot be passed on */
    if (cuda->ipc_close(memory) || cuda->ipc_close(memory) || !cuda->ipc_close(memory))
        return 7;
    return write(pipes->from[1], "x", 1) != 1;
}

static int share(const void *unused)
{
    unsigned char byte;
    struct pipes pipes;
    ko_cu_ipc_handle handle;
    ko_cu_ptr memory, own;
    int status;
    pid_t pid;

    (void)unused;
    if (pipe(pipes.to) || pipe(pipes.from))
        return 10;
    pid = fork();
    if (pid == 0)
        _exit(use_import(&pipes));
    if (open_driver() || cuda->alloc(&memory, NBYTES) || cuda->fill(memory, 17, NBYTES, NULL) ||
        cuda->stream_sync(NULL) || cuda->ipc_export(&handle, memory))
        return 11;
    if (cuda->ipc_open(&own, handle, KO_CU_IPC_LAZY_PEER_ACCESS) != KO_CU_INVALID_CONTEXT)
        return 12;
    if (write(pipes.to[1], &handle, sizeof handle) != sizeof handle ||
        read(pipes.from[0], &byte, 1) != 1)
        return 13;
    if (cuda->copy(at_host(&byte), memory + NBYTES - 1, 1, NULL) || cuda->stream_sync(NULL))
        return 14;
    return byte != 18 || waitpid(pid, &status, 0) != pid || status;
}

static void test_processes_share_memory(void **state)
{
    (void)state;
    assert_int_equal(run_child(share, NULL), 0);
}

/* ---- streams --------------------------------------------------------------------------------- */

static void test_streams_are_in_order(void **state)
{
    ko_cu_stream stream = make_stream(KO_CU_STREAM_NON_BLOCKING);
    ko_cu_ptr memory = alloc(NBYTES);
    unsigned char bytes[2] = {0};

    (void)state;
    for (int i = 0; i < 100; i++)
        assert_int_equal(cuda->fill(memory, (unsigned char)i, NBYTES, stream), KO_CU_SUCCESS);
    assert_int_equal(cuda->copy(at_host(bytes), memory + 5000, 2, stream), KO_CU_SUCCESS);
    assert_int_equal(cuda->stream_sync(stream), KO_CU_SUCCESS);
    assert_int_equal(cuda->stream_query(stream), KO_CU_SUCCESS);
    assert_true(bytes[0] == 99 && bytes[1] == 99);
    assert_int_equal(cuda->stream_destroy(stream), KO_CU_SUCCESS);
    assert_int_equal(cuda->free(memory), KO_CU_SUCCESS);
}

/* A registered word of the host's stops a stream until somebody writes it. */
static void test_words_stop_streams(void **state)
{
    ko_cu_stream waiting = make_stream(KO_CU_STREAM_NON_BLOCKING),
                 writing = make_stream(KO_CU_STREAM_NON_BLOCKING);
    static uint32_t words[2];
    int reached = 0;

    (void)state;
    words[0] = words[1] = 0;
    assert_int_equal(cuda->host_register(words, sizeof words, 0), KO_CU_SUCCESS);
    assert_int_equal(cuda->stream_await_word(waiting, at_host(&words[0]), 3, KO_CU_WAIT_GEQ), 0);
    assert_int_equal(cuda->stream_put_word(waiting, at_host(&words[1]), 1, 0), 0);
    ranks_nap_ms(5);
    assert_int_equal(cuda->stream_query(waiting), KO_CU_NOT_READY);
    assert_int_equal(__atomic_load_n(&words[1], __ATOMIC_ACQUIRE), 0);
    assert_int_equal(cuda->stream_put_word(writing, at_host(&words[0]), 4, 0), 0);
    assert_int_equal(cuda->stream_sync(waiting), 0);
    reached = (int)__atomic_load_n(&words[1], __ATOMIC_ACQUIRE);
    assert_int_equal(reached, 1);
    assert_int_equal(cuda->stream_await_word(waiting, at_host(&words[0]) + 1, 3, 0),
                     KO_CU_INVALID_VALUE);
    cuda->stream_destroy(waiting);
    cuda->stream_destroy(writing);
    assert_int_equal(cuda->host_unregister(words), KO_CU_SUCCESS);
    assert_int_equal(cuda->host_unregister(words), KO_CU_INVALID_VALUE);
}

/* The legacy stream waits for one that blocks, and not for one that does not. */
static void check_legacy(unsigned flags, bool waits)
{
    ko_cu_stream stream = make_stream(flags);
    uint32_t gate = 0, done = 0;

    assert_int_equal(cuda->stream_await_word(stream, at_host(&gate), 1, KO_CU_WAIT_EQ), 0);
    assert_int_equal(cuda->stream_put_word(NULL, at_host(&done), 1, 0), 0);
    if (waits)
        ranks_nap_ms(5);
    else
        assert_int_equal(cuda->stream_sync(NULL), 0);
    assert_int_equal(__atomic_load_n(&done, __ATOMIC_ACQUIRE), !waits);
    __atomic_store_n(&gate, 1, __ATOMIC_RELEASE);
    assert_int_equal(cuda->stream_sync(NULL), 0);
    assert_int_equal(__atomic_load_n(&done, __ATOMIC_ACQUIRE), 1);
    assert_int_equal(cuda->stream_sync(stream), 0);
    cuda->stream_destroy(stream);
}

static void test_the_legacy_stream(void **state)
{
    (void)state;
    check_legacy(0, true);
    check_legacy(KO_CU_STREAM_NON_BLOCKING, false);
}

/* Whether a stream's wait comes to its end, within so long, that another one ends by a word, of so
 * many queues; if it does not, the host ends it. */
static bool ends_in_queues(const char *nqueues, int most_ms)
{
    ko_cu_stream waiting, writing;
    uint32_t word = 0;
    bool ends = false;

    setenv("FAKECUDA_QUEUES", nqueues, 1);
    waiting = make_stream(KO_CU_STREAM_NON_BLOCKING);
    writing = make_stream(KO_CU_STREAM_NON_BLOCKING);
    unsetenv("FAKECUDA_QUEUES");
    assert_int_equal(cuda->stream_await_word(waiting, at_host(&word), 1, KO_CU_WAIT_EQ), 0);
    assert_int_equal(cuda->stream_put_word(writing, at_host(&word), 1, 0), 0);
    for (int ms = 0; ms < most_ms && !ends; ms++) {
        ranks_nap_ms(1);
        ends = !cuda->stream_query(waiting);
    }
    __atomic_store_n(&word, 1, __ATOMIC_RELEASE);
    assert_int_equal(cuda->stream_sync(waiting), 0);
    assert_int_equal(cuda->stream_sync(writing), 0);
    cuda->stream_destroy(waiting);
    cuda->stream_destroy(writing);
    return ends;
}

/* What would end a wait stands behind it in the same queue of the GPU: it never would. */
static void test_a_queue_stands_still(void **state)
{
    (void)state;
    assert_false(ends_in_queues("1", 50));
    assert_true(ends_in_queues("2", RANKS_SOON_MS));
    assert_true(ends_in_queues("0", RANKS_SOON_MS));
}

static void test_events_order_streams(void **state)
{
    ko_cu_stream first = make_stream(KO_CU_STREAM_NON_BLOCKING),
                 second = make_stream(KO_CU_STREAM_NON_BLOCKING);
    ko_cu_event event, later;
    uint32_t gate = 0, done = 0;
    float ms = -1;

    (void)state;
    assert_int_equal(cuda->event_create(&event, 0), 0);
    assert_int_equal(cuda->event_create(&later, 0), 0);
    assert_int_equal(cuda->event_query(event), 0); /* not recorded: nothing to wait for */
    assert_int_equal(cuda->stream_await_word(first, at_host(&gate), 1, KO_CU_WAIT_EQ), 0);
    assert_int_equal(cuda->event_record(event, first), 0);
    assert_int_equal(cuda->stream_await_event(second, event, 0), 0);
    assert_int_equal(cuda->stream_put_word(second, at_host(&done), 1, 0), 0);
    assert_int_equal(cuda->event_record(later, second), 0);
    ranks_nap_ms(2);
    assert_int_equal(cuda->event_query(event), KO_CU_NOT_READY);
    assert_int_equal(cuda->event_elapsed(&ms, event, later), KO_CU_NOT_READY);
    assert_int_equal(__atomic_load_n(&done, __ATOMIC_ACQUIRE), 0);
    __atomic_store_n(&gate, 1, __ATOMIC_RELEASE);
    assert_int_equal(cuda->event_sync(later), 0);
    assert_int_equal(__atomic_load_n(&done, __ATOMIC_ACQUIRE), 1);
    assert_int_equal(cuda->event_elapsed(&ms, event, later), 0);
    assert_true(ms >= 0);
    assert_int_equal(cuda->event_destroy(event), 0);
    assert_int_equal(cuda->event_destroy(later), 0);
    cuda->stream_destroy(first);
    cuda->stream_destroy(second);
}

/* ---- captures -------------------------------------------------------------------------------- */

/* What another thread gets for a call that captures forbid. */
struct attempt {
    int mode; /* of the thread */
    ko_cu_result result;
};

static void *try_alloc(void *argument)
{
    struct attempt *attempt = argument;
    ko_cu_context context;
    ko_cu_ptr memory = 0;

    if (cuda->context_retain(&context, 0) || cuda->context_push(context) ||
        cuda->capture_mode(&attempt->mode))
        abort();
    attempt->result = cuda->alloc(&memory, NBYTES);
    if (!attempt->result && cuda->free(memory))
        abort();
    return NULL;
}

static ko_cu_result try_elsewhere(int mode)
{
    struct attempt attempt = {.mode = mode};
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, try_alloc, &attempt), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    return attempt.result;
}

static ko_cu_result end_capture(ko_cu_stream stream)
{
    ko_cu_graph graph = NULL;
    const ko_cu_result result = cuda->capture_end(stream, &graph);

    assert_int_equal(graph != NULL, result == KO_CU_SUCCESS);
    if (graph)
        assert_int_equal(cuda->graph_destroy(graph), 0);
    return result;
}

/* As the modes of the capture and of the other thread say. What is forbidden is the capture's end,
 * too. */
static void test_captures_forbid(void **state)
{
    enum { GLOBAL = KO_CU_CAPTURE_GLOBAL, LOCAL = KO_CU_CAPTURE_THREAD_LOCAL };
    enum { RELAXED = KO_CU_CAPTURE_RELAXED };
    ko_cu_stream stream = make_stream(KO_CU_STREAM_NON_BLOCKING);

    (void)state;
    for (int mode = GLOBAL; mode <= RELAXED; mode++)
        for (int other = GLOBAL; other <= RELAXED; other++) {
            const bool is_forbidden = mode == GLOBAL && other == GLOBAL;

            assert_int_equal(cuda->capture_begin(stream, mode), 0);
            assert_int_equal(try_elsewhere(other), is_forbidden ? KO_CU_CAPTURE_FORBIDS : 0);
            assert_int_equal(end_capture(stream), is_forbidden ? KO_CU_CAPTURE_BROKEN : 0);
            assert_int_equal(try_elsewhere(other), 0);
        }
    cuda->stream_destroy(stream);
}

/* To the thread that captures, unless it makes an exception. */
static void test_captures_forbid_their_thread(void **state)
{
    ko_cu_stream stream = make_stream(KO_CU_STREAM_NON_BLOCKING),
                 other = make_stream(KO_CU_STREAM_NON_BLOCKING);

    (void)state;
    for (int mode = KO_CU_CAPTURE_GLOBAL; mode <= KO_CU_CAPTURE_RELAXED; mode++) {
        const bool is_forbidden = mode != KO_CU_CAPTURE_RELAXED;
        int own = KO_CU_CAPTURE_RELAXED;

        assert_int_equal(cuda->capture_begin(stream, mode), 0);
        assert_int_equal(cuda->capture_mode(&own), 0);
        assert_int_equal(cuda->stream_query(other), 0);
        assert_int_equal(cuda->capture_mode(&own), 0);
        assert_int_equal(own, KO_CU_CAPTURE_RELAXED);
        assert_int_equal(end_capture(stream), 0);
        assert_int_equal(cuda->capture_begin(stream, mode), 0);
        assert_int_equal(cuda->stream_query(other), is_forbidden ? KO_CU_CAPTURE_FORBIDS : 0);
        assert_int_equal(end_capture(stream), is_forbidden ? KO_CU_CAPTURE_BROKEN : 0);
    }
    cuda->stream_destroy(stream);
    cuda->stream_destroy(other);
}

static void test_contexts_are_pushed_and_popped(void **state)
{
    ko_cu_context context, popped;
    ko_cu_device device = -1;

    (void)state;
    assert_int_equal(cuda->context_current(&context), 0);
    assert_int_equal(cuda->context_pop(&popped), 0);
    assert_ptr_equal(context, popped);
    assert_int_equal(cuda->context_pop(&popped), KO_CU_INVALID_CONTEXT);
    assert_int_equal(cuda->context_device(&device), KO_CU_INVALID_CONTEXT);
    assert_int_equal(cuda->alloc(&(ko_cu_ptr){0}, 1), KO_CU_INVALID_CONTEXT);
    assert_int_equal(cuda->context_push(context), 0);
    assert_int_equal(cuda->context_device(&device), 0);
    assert_int_equal(device, 0);
    assert_int_equal(cuda->context_push(NULL), KO_CU_INVALID_CONTEXT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_host_cannot_touch_it),
        cmocka_unit_test(test_gpus_reach_each_other),
        cmocka_unit_test(test_processes_share_memory),
        cmocka_unit_test_setup(test_memory_is_not_zero, start),
        cmocka_unit_test_setup(test_pointers_are_known, start),
        cmocka_unit_test_setup(test_what_is_freed_is_gone, start),
        cmocka_unit_test_setup(test_copies_stay_inside, start),
        cmocka_unit_test_setup(test_streams_are_in_order, start),
        cmocka_unit_test_setup(test_words_stop_streams, start),
        cmocka_unit_test_setup(test_the_legacy_stream, start),
        cmocka_unit_test_setup(test_a_queue_stands_still, start),
        cmocka_unit_test_setup(test_events_order_streams, start),
        cmocka_unit_test_setup(test_captures_forbid, start),
        cmocka_unit_test_setup(test_captures_forbid_their_thread, start),
        cmocka_unit_test_setup(test_contexts_are_pushed_and_popped, start),
    };

    setenv("FAKECUDA_JITTER", "50", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
