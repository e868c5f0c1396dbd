/* SPDX-License-Identifier: MIT */
#include "clock.h"
#include "cuda_kernels.h"
#include "probes.h"
#include "ranks.h"
#include "report.h"
#include "watch.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

static _Atomic uint32_t *word; /* in a page of the host's that is the GPU's too */
static ko_cu_ptr word_at;

enum { BESIDE_MS = 1000, PIECE_BYTES = 1 << 21 };

static bool make_word(bool is_shared)
{
    struct watch_page page;

    if (!watch_page_make(gpu.cuda, is_shared, &page))
        return false;
    word = page.host;
    word_at = page.at;
    return true;
}

static bool await_in_stream(ko_cu_graph_exec exec, uint32_t value)
{
    return exec ? !gpu.cuda->graph_launch(exec, gpu.stream)
                : !gpu.cuda->stream_await_word(gpu.stream, word_at, value, KO_CU_WAIT_EQ);
}

/* From the host's store until the stream that waited for it, or for it as part of a graph, is seen
 * to be idle. */
static void probe_waiting(const char *what, ko_cu_graph_exec exec)
{
    double sum = 0;
    bool is_right = true;

    for (uint32_t i = 1; i <= PROBE_TURNS && is_right; i++) {
        const uint32_t value = exec ? 1 : i;
        int64_t began_ns;

        atomic_store(word, 0);
        is_right = await_in_stream(exec, value);
        watch_nap_us(20);
        is_right = is_right && gpu.cuda->stream_query(gpu.stream) == KO_CU_NOT_READY;
        began_ns = ko_now_ns();
        atomic_store(word, value);
        is_right = is_right && watch_ends(gpu.cuda, gpu.stream, WATCH_MS);
        sum += watch_us_since(began_ns);
    }
    report(what, sum / PROBE_TURNS, "us", is_right ? "ok" : "FAILED");
}

/* A graph that waits for the word to be 1. */
static void probe_captured_wait(void)
{
    ko_cu_graph graph = NULL;
    ko_cu_graph_exec exec = NULL;

    if (gpu.cuda->capture_begin(gpu.stream, KO_CU_CAPTURE_GLOBAL) ||
        gpu.cuda->stream_await_word(gpu.stream, word_at, 1, KO_CU_WAIT_EQ) ||
        gpu.cuda->capture_end(gpu.stream, &graph) || gpu.cuda->graph_prepare(&exec, graph, 0)) {
        report("a graph that waits for the host", 0, "us", "FAILED: it is not captured");
        return;
    }
    (void)gpu.cuda->graph_destroy(graph);
    probe_waiting("a graph goes on after the host's store", exec);
    (void)gpu.cuda->graph_exec_destroy(exec);
}

static void *attempt_main(void *argument)
{
    struct probe_attempt *attempt = argument;
    ko_cu_context ours;

    (void)gpu.cuda->context_push(gpu.context);
    attempt->run(attempt);
    (void)gpu.cuda->context_pop(&ours);
    atomic_store(&attempt->is_done, true);
    return NULL;
}

static pthread_t begin(struct probe_attempt *attempt)
{
    pthread_t thread;

    atomic_init(&attempt->is_done, false);
    if (pthread_create(&thread, NULL, attempt_main, attempt))
        abort();
    return thread;
}

/* How long it takes, if not too long. */
static double await(struct probe_attempt *attempt)
{
    const ko_deadline deadline = ko_deadline_in(BESIDE_MS);
    const int64_t began_ns = ko_now_ns();

    while (!atomic_load(&attempt->is_done) && !ko_deadline_passed(&deadline))
        watch_nap_us(20);
    return watch_us_since(began_ns);
}

void probe_beside_a_wait(const char *what, struct probe_attempt *attempt)
{
    pthread_t thread;
    uint32_t next;
    bool is_done;
    char name[96];
    double us;

    if (!word && !make_word(false))
        abort();
    next = atomic_load(word) + 1;
    (void)gpu.cuda->stream_await_word(gpu.stream, word_at, next, KO_CU_WAIT_GEQ);
    thread = begin(attempt);
    us = await(attempt);
    is_done = atomic_load(&attempt->is_done);
    atomic_store(word, next);
    pthread_join(thread, NULL);
    (void)gpu.cuda->stream_sync(gpu.stream);
    snprintf(name, sizeof name, "beside a stream that waits: %s", what);
    report(name, us, "us", !attempt->is_right ? "FAILED" : is_done ? "ok" : "waits for the stream");
}

static void try_register(struct probe_attempt *attempt)
{
    attempt->is_right =
        !posix_memalign(&attempt->page, WATCH_PAGE_BYTES, 16 * WATCH_PAGE_BYTES) &&
        !gpu.cuda->host_register(attempt->page, 16 * WATCH_PAGE_BYTES, KO_CU_HOST_PORTABLE);
}

static void try_unregister(struct probe_attempt *attempt)
{
    attempt->is_right = !gpu.cuda->host_unregister(attempt->page);
    free(attempt->page);
}

static void try_alloc(struct probe_attempt *attempt)
{
    attempt->is_right = !gpu.cuda->alloc(&attempt->memory, PROBE_BYTES);
}

static void try_free(struct probe_attempt *attempt)
{
    attempt->is_right = !gpu.cuda->free(attempt->memory);
}

static void try_map(struct probe_attempt *attempt)
{
    const ko_cu_piece_kind kind = {.type = KO_CU_PIECE_PINNED,
                                   .location = {KO_CU_LOCATION_DEVICE, 0}};
    const ko_cu_access access = {kind.location, KO_CU_ACCESS_READ_AND_WRITE};
    ko_cu_piece piece;

    attempt->is_right = !gpu.cuda->piece_create(&piece, PIECE_BYTES, &kind, 0) &&
                        !gpu.cuda->addresses_reserve(&attempt->memory, PIECE_BYTES, 0, 0, 0) &&
                        !gpu.cuda->piece_map(attempt->memory, PIECE_BYTES, 0, piece, 0) &&
                        !gpu.cuda->piece_release(piece) &&
                        !gpu.cuda->piece_access(attempt->memory, PIECE_BYTES, &access, 1);
}

static void try_unmap(struct probe_attempt *attempt)
{
    attempt->is_right = !gpu.cuda->piece_unmap(attempt->memory, PIECE_BYTES) &&
                        !gpu.cuda->addresses_free(attempt->memory, PIECE_BYTES);
}

/* One like a group's own. */
static void try_stream(struct probe_attempt *attempt)
{
    int least, most;

    attempt->is_right =
        !gpu.cuda->stream_priorities(&least, &most) &&
        !gpu.cuda->stream_create_urgent(&attempt->stream, KO_CU_STREAM_NON_BLOCKING, most);
}

static void try_kernel(struct probe_attempt *attempt)
{
    struct ko_fold fold = {.count = 1024, .nparts = 1, .nouts = 1};

    fold.parts[0] = fold.outs[0] = attempt->memory;
    attempt->is_right = !ko_cuda_fold(KOLO_INT32, KOLO_SUM, fold, 1, attempt->stream) &&
                        watch_ends(gpu.cuda, attempt->stream, WATCH_MS);
}

/* What kolo does in a call, while a thread of the user's is in the driver to free memory, which
 * waits for a stream that waits for the call. */
static void probe_beside_a_free(struct probe_attempt *kernel)
{
    struct probe_attempt freeing = {.run = try_free};
    const uint32_t next = atomic_load(word) + 1;
    bool has_freed, has_run;
    pthread_t threads[2];
    double us;

    try_alloc(&freeing);
    (void)gpu.cuda->stream_await_word(gpu.stream, word_at, next, KO_CU_WAIT_GEQ);
    threads[0] = begin(&freeing);
    watch_nap_us(10000);
    kernel->run = try_kernel;
    threads[1] = begin(kernel);
    us = await(kernel);
    has_freed = atomic_load(&freeing.is_done);
    has_run = atomic_load(&kernel->is_done);
    atomic_store(word, next);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    (void)gpu.cuda->stream_sync(gpu.stream);
    report("beside a free that waits for that: a kernel", us, "us",
           !kernel->is_right ? "FAILED"
           : has_freed       ? "the free does not wait"
           : has_run         ? "ok"
                             : "waits, too");
}

static void try_put_word(struct probe_attempt *attempt)
{
    attempt->is_right = !gpu.cuda->stream_put_word(attempt->stream, attempt->memory, 1, 0) &&
                        watch_ends(gpu.cuda, attempt->stream, WATCH_MS);
}

/* What ends a wait for another rank, by a word in the GPU's memory: beside a free that waits for
 * that stream. */
static void probe_word_beside_a_free(ko_cu_stream stream)
{
    struct probe_attempt freeing = {.run = try_free};
    struct probe_attempt putting = {.run = try_put_word, .stream = stream};
    bool has_freed, has_put;
    pthread_t threads[2];
    double us;

    try_alloc(&freeing);
    try_alloc(&putting);
    (void)gpu.cuda->fill(putting.memory, 0, sizeof(uint32_t), stream);
    (void)gpu.cuda->stream_sync(stream);
    (void)gpu.cuda->stream_await_word(gpu.stream, word_at, atomic_load(word) + 1, KO_CU_WAIT_GEQ);
    (void)gpu.cuda->stream_await_word(gpu.stream, putting.memory, 1, KO_CU_WAIT_GEQ);
    threads[0] = begin(&freeing);
    watch_nap_us(10000);
    threads[1] = begin(&putting);
    us = await(&putting);
    has_freed = atomic_load(&freeing.is_done);
    has_put = atomic_load(&putting.is_done);
    atomic_fetch_add(word, 1);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    (void)gpu.cuda->stream_sync(gpu.stream);
    report("beside a free that waits for that: a word of the GPU's", us, "us",
           !putting.is_right ? "FAILED"
           : has_freed       ? "the free does not wait"
           : has_put         ? "ok"
                             : "waits, too");
}

/* What kolo has to do while streams wait for it, and what it must not. */
static void probe_all_beside_a_wait(void)
{
    struct probe_attempt attempt = {.run = try_register};
    static const struct {
        const char *what;
        void (*run)(struct probe_attempt *attempt);
    } tries[] = {{"registering host memory", try_register},
                 {"its end", try_unregister},
                 {"an allocation", try_alloc},
                 {"freeing memory", try_free},
                 {"mapping a piece", try_map},
                 {"unmapping it", try_unmap},
                 {"an allocation", try_alloc},
                 {"a stream", try_stream},
                 {"a first kernel", try_kernel},
                 {"another kernel", try_kernel}};

    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
        attempt.run = tries[i].run;
        probe_beside_a_wait(tries[i].what, &attempt);
    }
    probe_beside_a_free(&attempt);
    probe_word_beside_a_free(attempt.stream);
}

/* Do many streams that wait leave a queue for an urgent one, and for one like themselves? */
static void probe_many_streams(int n)
{
    ko_cu_stream *streams = calloc((size_t)n, sizeof *streams), own, like;
    struct ko_fold fold = {.count = 1024, .nparts = 1, .nouts = 1};
    const uint32_t next = atomic_load(word) + 1;
    int least, most;
    bool is_right, is_like;
    ko_cu_ptr memory;
    char what[96];

    if (gpu.cuda->alloc(&memory, PROBE_BYTES) || gpu.cuda->stream_priorities(&least, &most) ||
        gpu.cuda->stream_create_urgent(&own, KO_CU_STREAM_NON_BLOCKING, most))
        abort();
    fold.parts[0] = fold.outs[0] = memory;
    for (int i = 0; i < n; i++)
        if (gpu.cuda->stream_create(&streams[i], KO_CU_STREAM_NON_BLOCKING) ||
            gpu.cuda->stream_await_word(streams[i], word_at, next, KO_CU_WAIT_GEQ))
            abort();
    (void)gpu.cuda->stream_create(&like, KO_CU_STREAM_NON_BLOCKING);
    is_right =
        !ko_cuda_fold(KOLO_INT32, KOLO_SUM, fold, 1, own) && watch_ends(gpu.cuda, own, BESIDE_MS);
    is_like =
        !ko_cuda_fold(KOLO_INT32, KOLO_SUM, fold, 1, like) && watch_ends(gpu.cuda, like, BESIDE_MS);
    atomic_store(word, next);
    for (int i = 0; i < n; i++)
        (void)gpu.cuda->stream_sync(streams[i]);
    snprintf(what, sizeof what, "an urgent kernel beside %d streams that wait", n);
    report(what, is_right, "", is_right ? "gets through" : "waits for them");
    snprintf(what, sizeof what, "an ordinary kernel beside %d streams that wait", n);
    report(what, is_like, "", is_like ? "gets through" : "waits for them");
    free(streams);
}

int probe_streams(void)
{
    if (!make_word(false))
        return ranks_fail("no word");
    if (ko_cuda_kernels_preload())
        return ranks_fail("no kernels");
    for (int n = 4; n <= 64; n *= 4)
        probe_many_streams(n);
    return 0;
}

int probe_waits(void)
{
    if (!make_word(true))
        report("registering a page of shared memory", 0, "", "FAILED");
    else
        probe_waiting("a stream goes on after the host's store to shared memory", NULL);
    if (!make_word(false))
        return ranks_fail("no word");
    probe_waiting("a stream goes on after the host's store", NULL);
    probe_captured_wait();
    atomic_store(word, 0);
    probe_all_beside_a_wait();
    return 0;
}
