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

struct attempt {
    void (*run)(struct attempt *attempt);
    ko_cu_ptr memory;
    atomic_bool is_done;
    bool is_right;
};

static void *attempt_main(void *argument)
{
    struct attempt *attempt = argument;
    ko_cu_context ours;

    (void)gpu.cuda->context_push(gpu.context);
    attempt->run(attempt);
    (void)gpu.cuda->context_pop(&ours);
    atomic_store(&attempt->is_done, true);
    return NULL;
}

/* Whether something ends while a stream of the context waits for a word. */
static void probe_beside_a_wait(const char *what, void (*run)(struct attempt *attempt))
{
    struct attempt attempt = {.run = run};
    const uint32_t next = atomic_load(word) + 1;
    const ko_deadline deadline = ko_deadline_in(WATCH_MS);
    const int64_t began_ns = ko_now_ns();
    pthread_t thread;
    char name[96];

    atomic_init(&attempt.is_done, false);
    (void)gpu.cuda->stream_await_word(gpu.stream, word_at, next, KO_CU_WAIT_GEQ);
    if (pthread_create(&thread, NULL, attempt_main, &attempt))
        abort();
    while (!atomic_load(&attempt.is_done) && !ko_deadline_passed(&deadline))
        watch_nap_us(20);
    snprintf(name, sizeof name, "beside a stream that waits: %s", what);
    report(name, watch_us_since(began_ns), "us",
           atomic_load(&attempt.is_done) ? "ok" : "waits for the stream");
    atomic_store(word, next);
    pthread_join(thread, NULL);
    (void)gpu.cuda->stream_sync(gpu.stream);
}

static void try_register(struct attempt *attempt)
{
    void *page;

    if (!posix_memalign(&page, WATCH_PAGE_BYTES, 16 * WATCH_PAGE_BYTES))
        attempt->is_right =
            !gpu.cuda->host_register(page, 16 * WATCH_PAGE_BYTES, KO_CU_HOST_PORTABLE);
}

static void try_alloc(struct attempt *attempt)
{
    attempt->is_right = !gpu.cuda->alloc(&attempt->memory, PROBE_BYTES);
}

static void try_free(struct attempt *attempt)
{
    try_alloc(attempt);
    attempt->is_right = !gpu.cuda->free(attempt->memory);
}

/* A stream like a group's own, and its first kernel. */
static void try_kernel(struct attempt *attempt)
{
    struct ko_fold fold = {.count = 1024, .nparts = 1, .nouts = 1};
    int least, most;
    ko_cu_stream stream;

    try_alloc(attempt);
    fold.parts[0] = fold.outs[0] = attempt->memory;
    attempt->is_right = !gpu.cuda->stream_priorities(&least, &most) &&
                        !gpu.cuda->stream_create_urgent(&stream, KO_CU_STREAM_NON_BLOCKING, most) &&
                        !ko_cuda_fold(KOLO_INT32, KOLO_SUM, fold, 1, stream) &&
                        watch_ends(gpu.cuda, stream, WATCH_MS);
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
        !ko_cuda_fold(KOLO_INT32, KOLO_SUM, fold, 1, own) && watch_ends(gpu.cuda, own, WATCH_MS);
    is_like =
        !ko_cuda_fold(KOLO_INT32, KOLO_SUM, fold, 1, like) && watch_ends(gpu.cuda, like, WATCH_MS);
    atomic_store(word, next);
    for (int i = 0; i < n; i++)
        (void)gpu.cuda->stream_sync(streams[i]);
    snprintf(what, sizeof what, "an urgent kernel beside %d streams that wait", n);
    report_check(what, is_right);
    snprintf(what, sizeof what, "an ordinary kernel beside %d streams that wait", n);
    report(what, is_like, "", is_like ? "gets through" : "waits for them");
    free(streams);
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
    probe_beside_a_wait("registering host memory", try_register);
    probe_beside_a_wait("an allocation", try_alloc);
    probe_beside_a_wait("freeing memory", try_free);
    probe_beside_a_wait("a first kernel", try_kernel);
    for (int n = 4; n <= 64; n *= 4)
        probe_many_streams(n);
    return 0;
}
