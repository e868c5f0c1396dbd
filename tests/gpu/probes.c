/* SPDX-License-Identifier: MIT
 *
 * What kolo takes for granted about GPUs, or would like to know: each probe is a fact about the
 * driver and the GPU at hand. What may hang is watched: it is said to, and the next probe goes on.
 *   probes [--name]
 */
#include "clock.h"
#include "cuda_kernels.h"
#include "gpu_pieces.h"
#include "ranks.h"
#include "report.h"
#include "unix_socket.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { NBYTES = 1 << 20, TURNS = 200, WATCH_MS = 5000, PAGE = 4096, PIECE = 1 << 21 };

static struct {
    const struct ko_cuda *cuda;
    ko_cu_context context;
    ko_cu_stream stream;
} gpu;

static int enter(void)
{
    return ko_cuda_open(&gpu.cuda) || gpu.cuda->context_retain(&gpu.context, 0) ||
                   gpu.cuda->context_push(gpu.context) ||
                   gpu.cuda->stream_create(&gpu.stream, KO_CU_STREAM_NON_BLOCKING)
               ? ranks_fail("no stream")
               : 0;
}

static void nap_us(long us)
{
    const struct timespec nap = {0, us * 1000};

    nanosleep(&nap, NULL);
}

/* True once the stream is idle, false if it is not in time. */
static bool ends(ko_cu_stream stream)
{
    const ko_deadline deadline = ko_deadline_in(WATCH_MS);
    ko_cu_result result = gpu.cuda->stream_query(stream);

    while (result == KO_CU_NOT_READY && !ko_deadline_passed(&deadline))
        result = gpu.cuda->stream_query(stream);
    return result == KO_CU_SUCCESS;
}

static double us_since(int64_t began_ns)
{
    return (double)(ko_now_ns() - began_ns) / 1000;
}

/* ---- one process ----------------------------------------------------------------------------- */

static _Atomic uint32_t *word; /* in a page of the host's that is the GPU's too */
static ko_cu_ptr word_at;

/* In a page that other processes may have too, or may not. */
static bool make_word(bool is_shared)
{
    void *page = MAP_FAILED;

    if (is_shared)
        page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    else if (posix_memalign(&page, PAGE, PAGE))
        return false;
    if (page == MAP_FAILED ||
        gpu.cuda->host_register(page, PAGE, KO_CU_HOST_PORTABLE | KO_CU_HOST_MAPPED) ||
        gpu.cuda->host_address(&word_at, page, 0))
        return false;
    word = page;
    atomic_init(word, 0);
    return true;
}

static void probe_loading(void)
{
    const int64_t began_ns = ko_now_ns();
    const bool is_right = !ko_cuda_kernels_open();

    report("loading the kernels", us_since(began_ns) / 1000, "ms", is_right ? "ok" : "FAILED");
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

    for (uint32_t i = 1; i <= TURNS && is_right; i++) {
        const uint32_t value = exec ? 1 : i;
        int64_t began_ns;

        atomic_store(word, 0);
        is_right = await_in_stream(exec, value);
        nap_us(20);
        is_right = is_right && gpu.cuda->stream_query(gpu.stream) == KO_CU_NOT_READY;
        began_ns = ko_now_ns();
        atomic_store(word, value);
        is_right = is_right && ends(gpu.stream);
        sum += us_since(began_ns);
    }
    report(what, sum / TURNS, "us", is_right ? "ok" : "FAILED");
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
        nap_us(20);
    snprintf(name, sizeof name, "beside a stream that waits: %s", what);
    report(name, us_since(began_ns), "us",
           atomic_load(&attempt.is_done) ? "ok" : "waits for the stream");
    atomic_store(word, next);
    pthread_join(thread, NULL);
    (void)gpu.cuda->stream_sync(gpu.stream);
}

static void try_register(struct attempt *attempt)
{
    void *page;

    if (!posix_memalign(&page, PAGE, 16 * PAGE))
        attempt->is_right = !gpu.cuda->host_register(page, 16 * PAGE, KO_CU_HOST_PORTABLE);
}

static void try_alloc(struct attempt *attempt)
{
    attempt->is_right = !gpu.cuda->alloc(&attempt->memory, NBYTES);
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
                        !ko_cuda_fold(KOLO_INT32, KOLO_SUM, fold, 1, stream) && ends(stream);
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

    if (gpu.cuda->alloc(&memory, NBYTES) || gpu.cuda->stream_priorities(&least, &most) ||
        gpu.cuda->stream_create_urgent(&own, KO_CU_STREAM_NON_BLOCKING, most))
        abort();
    fold.parts[0] = fold.outs[0] = memory;
    for (int i = 0; i < n; i++)
        if (gpu.cuda->stream_create(&streams[i], KO_CU_STREAM_NON_BLOCKING) ||
            gpu.cuda->stream_await_word(streams[i], word_at, next, KO_CU_WAIT_GEQ))
            abort();
    (void)gpu.cuda->stream_create(&like, KO_CU_STREAM_NON_BLOCKING);
    is_right = !ko_cuda_fold(KOLO_INT32, KOLO_SUM, fold, 1, own) && ends(own);
    is_like = !ko_cuda_fold(KOLO_INT32, KOLO_SUM, fold, 1, like) && ends(like);
    atomic_store(word, next);
    for (int i = 0; i < n; i++)
        (void)gpu.cuda->stream_sync(streams[i]);
    snprintf(what, sizeof what, "an urgent kernel beside %d streams that wait", n);
    report_check(what, is_right);
    snprintf(what, sizeof what, "an ordinary kernel beside %d streams that wait", n);
    report(what, is_like, "", is_like ? "gets through" : "waits for them");
    free(streams);
}

static int probe_alone(kolo_group *group, void *unused)
{
    (void)group;
    (void)unused;
    if (enter())
        return 1;
    probe_loading();
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

/* ---- processes ------------------------------------------------------------------------------ */

/* Rank 0's memory, mapped by the others. */
static int open_shared(kolo_group *group, ko_cu_ptr *memory)
{
    ko_cu_ipc_handle handle = {.bytes = {0}};
    int64_t began_ns;
    int is_right = 1;

    if (kolo_group_rank(group) == 0)
        is_right = !gpu.cuda->alloc(memory, NBYTES) &&
                   !gpu.cuda->fill(*memory, 0, NBYTES, gpu.stream) &&
                   !gpu.cuda->stream_sync(gpu.stream) && !gpu.cuda->ipc_export(&handle, *memory);
    if (kolo_broadcast(group, &handle, sizeof handle, KOLO_UINT8, 0))
        return ranks_fail("broadcast");
    began_ns = ko_now_ns();
    if (kolo_group_rank(group) > 0)
        is_right = !gpu.cuda->ipc_open(memory, handle, KO_CU_IPC_LAZY_PEER_ACCESS);
    if (kolo_group_rank(group) == 1)
        report("opening another process's memory", us_since(began_ns), "us",
               is_right ? "ok" : "FAILED");
    if (kolo_all_reduce(group, &is_right, &is_right, 1, KOLO_INT32, KOLO_MIN))
        return ranks_fail("all_reduce");
    return is_right ? 0 : ranks_fail("memory cannot be shared");
}

static bool make_pieces(ko_cu_ptr *memory)
{
    const ko_cu_piece_kind kind = {.type = KO_CU_PIECE_PINNED,
                                   .handle_types = KO_CU_HANDLE_DESCRIPTOR,
                                   .location = {KO_CU_LOCATION_DEVICE, 0}};
    const ko_cu_access access = {kind.location, KO_CU_ACCESS_READ_AND_WRITE};
    ko_cu_piece piece;

    if (gpu.cuda->addresses_reserve(memory, 2 * PIECE, 0, 0, 0))
        return false;
    for (ko_cu_ptr at = *memory; at < *memory + 2 * PIECE; at += PIECE)
        if (gpu.cuda->piece_create(&piece, PIECE, &kind, 0) ||
            gpu.cuda->piece_map(at, PIECE, 0, piece, 0) || gpu.cuda->piece_release(piece))
            return false;
    return !gpu.cuda->piece_access(*memory, 2 * PIECE, &access, 1) &&
           !gpu.cuda->fill(*memory, 7, 2 * PIECE, gpu.stream) && !gpu.cuda->stream_sync(gpu.stream);
}

/* Whether all of it, across the end of a piece, is what rank 0 has put there. */
static bool is_filled(ko_cu_ptr memory)
{
    static unsigned char content[2 * PIECE];
    size_t n = 0;

    if (gpu.cuda->copy((uintptr_t)content, memory, sizeof content, gpu.stream) ||
        gpu.cuda->stream_sync(gpu.stream))
        return false;
    while (n < sizeof content && content[n] == 7)
        n++;
    return n == sizeof content;
}

/* Rank 0's memory in pieces, mapped by rank 1 from descriptors. */
static int probe_pieces(kolo_group *group)
{
    const ko_deadline deadline = ko_deadline_in(WATCH_MS);
    struct ko_gpu_pieces *pieces = NULL;
    char name[KO_UNIX_NAME] = "";
    const int64_t began_ns = ko_now_ns();
    uint64_t total = 0;
    ko_cu_ptr memory = 0;
    bool is_right = true;

    if (kolo_group_rank(group) == 0 && make_pieces(&memory))
        pieces = ko_gpu_pieces_export(gpu.cuda, memory, 2 * PIECE, &total, name);
    if (kolo_broadcast(group, name, sizeof name, KOLO_UINT8, 0))
        return ranks_fail("broadcast");
    if (kolo_group_rank(group) == 0) {
        is_right = pieces && !ko_gpu_pieces_serve(pieces, 1, &deadline);
        ko_gpu_pieces_free(pieces);
    } else {
        is_right = *name && !ko_gpu_pieces_import(gpu.cuda, name, 2 * PIECE, &deadline, &memory) &&
                   is_filled(memory);
        report("opening another process's pieces, by descriptors", us_since(began_ns), "us",
               is_right ? "ok" : "FAILED");
    }
    return kolo_barrier(group) || !is_right;
}

/* All processes' streams in turns, by words that wait and are written on the GPU; with_kernels: a
 * little one of each process's in each turn. */
static int bounce(kolo_group *group, ko_cu_ptr shared, bool with_kernels, double *us)
{
    const int rank = kolo_group_rank(group), next = (rank + 1) % kolo_group_size(group);
    const ko_cu_ptr mine = shared + 256 * (unsigned)rank, other = shared + 256 * (unsigned)next;
    struct ko_fold fold = {.count = 256, .nparts = 1, .nouts = 1};
    static uint32_t turn;
    int64_t began_ns;

    fold.parts[0] = fold.outs[0] = shared + 4096 * (1 + (unsigned)rank);
    if (kolo_barrier(group))
        return ranks_fail("barrier");
    began_ns = ko_now_ns();
    for (int i = 0; i < TURNS; i++) {
        turn++;
        if (rank > 0 && gpu.cuda->stream_await_word(gpu.stream, mine, turn, KO_CU_WAIT_GEQ))
            return ranks_fail("a wait");
        if (with_kernels && ko_cuda_fold(KOLO_INT32, KOLO_SUM, fold, 1, gpu.stream))
            return ranks_fail("a kernel");
        if (gpu.cuda->stream_put_word(gpu.stream, other, turn, 0))
            return ranks_fail("a word");
        if (rank == 0 && gpu.cuda->stream_await_word(gpu.stream, mine, turn, KO_CU_WAIT_GEQ))
            return ranks_fail("a wait");
    }
    if (!ends(gpu.stream))
        return ranks_fail("the streams stand still");
    *us = us_since(began_ns) / TURNS;
    return 0;
}

static int probe_together(kolo_group *group, void *unused)
{
    const int n = kolo_group_size(group);
    char what[64];
    ko_cu_ptr shared = 0;
    double us = 0;
    int failed = enter();

    (void)unused;
    if (!failed)
        failed = open_shared(group, &shared);
    for (int i = 0; i < 2 && !failed; i++) {
        failed = (i && ko_cuda_kernels_open()) || bounce(group, shared, i, &us);
        snprintf(what, sizeof what, "once around the streams of %d processes%s", n,
                 i ? ", a kernel of each" : "");
        if (kolo_group_rank(group) == 0)
            report(what, us, "us", failed ? "FAILED" : "ok");
    }
    return failed || n > 2 ? failed : probe_pieces(group);
}

/* Alone on its line: what tests/gpu/check calls its records by. */
static int tell_name(void)
{
    char name[128];
    ko_cu_device device;

    if (enter() || gpu.cuda->device(&device, 0) ||
        gpu.cuda->device_name(name, sizeof name, device)) {
        fprintf(stderr, "%s\n", kolo_last_error());
        return 1;
    }
    puts(name);
    return 0;
}

/* Whether the build has kernels, and why not. */
static int tell_kernels(void)
{
    if (!ko_cuda_kernels_open())
        return 0;
    fprintf(stderr, "%s\n", kolo_last_error());
    return 1;
}

int main(int argc, char **argv)
{
    int failed;

    if (argc > 1 && !strcmp(argv[1], "--kernels"))
        return tell_kernels();
    if (argc > 1)
        return strcmp(argv[1], "--name") ? 2 : tell_name();
    failed = ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = 1}, probe_alone, NULL);

    for (int n = 2; n <= 4; n += 2)
        failed |= ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = n}, probe_together, NULL);
    return failed != 0;
}
