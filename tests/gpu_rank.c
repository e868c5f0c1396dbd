/* SPDX-License-Identifier: MIT */
#include "gpu_rank.h"

#include "ranks.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

_Thread_local struct gpu_rank gpu_rank;

/* A barrier that somebody has left already may hear of what goes wrong there. */
static int take_stream(kolo_group *group, void *stream, int status)
{
    if (kolo_group_set_stream(group, stream) != status)
        return ranks_fail(status ? "a stream is taken" : "the stream is not taken");
    (void)kolo_barrier(group);
    return 0;
}

int gpu_rank_enter(kolo_group *group)
{
    ko_cu_context context;
    int n;

    if (ko_cuda_open(&gpu_rank.cuda) || gpu_rank.cuda->device_count(&n))
        return ranks_fail("no driver");
    if (gpu_rank.cuda->device(&gpu_rank.device, group ? kolo_group_rank(group) % n : 0) ||
        gpu_rank.cuda->context_retain(&context, gpu_rank.device) ||
        gpu_rank.cuda->context_push(context) ||
        gpu_rank.cuda->stream_create(&gpu_rank.stream, KO_CU_STREAM_NON_BLOCKING))
        return ranks_fail("no stream");
    return group ? take_stream(group, gpu_rank.stream, KOLO_OK) : 0;
}

int gpu_rank_enter_without(kolo_group *group)
{
    setenv("KOLO_CUDA", "0", 1);
    return take_stream(group, NULL, KOLO_E_UNSUPPORTED);
}

int gpu_rank_leave(int failed)
{
    ko_cu_context context;

    if (gpu_rank.cuda->stream_sync(gpu_rank.stream) ||
        gpu_rank.cuda->stream_destroy(gpu_rank.stream) || gpu_rank.cuda->context_pop(&context))
        return ranks_fail("the stream has failed");
    return failed;
}

size_t gpu_rank_long_bytes(void)
{
    enum { THREADS_PER_MULTIPROCESSOR = 2048, EACH = 32 };
    int multiprocessors;

    if (gpu_rank.cuda->device_attribute(&multiprocessors, KO_CU_MULTIPROCESSORS, gpu_rank.device))
        abort();
    return (size_t)multiprocessors * THREADS_PER_MULTIPROCESSOR * EACH;
}

static bool is_thread(void)
{
    return gettid() != getpid();
}

/* The strictest kind would forbid the other threads what they do beside kolo. */
int gpu_rank_capture(void)
{
    return gpu_rank.cuda->capture_begin(gpu_rank.stream, is_thread() ? KO_CU_CAPTURE_THREAD_LOCAL
                                                                     : KO_CU_CAPTURE_GLOBAL)
               ? ranks_fail("no capture")
               : 0;
}

int gpu_rank_captured(ko_cu_graph_exec *exec)
{
    ko_cu_graph graph;

    return gpu_rank.cuda->capture_end(gpu_rank.stream, &graph) ||
                   gpu_rank.cuda->graph_prepare(exec, graph, 0) ||
                   gpu_rank.cuda->graph_destroy(graph)
               ? ranks_fail("no graph")
               : 0;
}

/* For what is not kolo's, whatever captures forbid. */
static void relax(int *mode)
{
    if (gpu_rank.cuda->capture_mode(mode))
        abort();
}

/* Memory of threads, by its length, a power of two: to free some would be to wait for the streams
 * of the other ranks, which may wait for this one's next call (kolo.h). */
static struct {
    pthread_mutex_t lock;
    struct kept {
        ko_cu_ptr memory;
        ko_cu_device device;
        struct kept *next;
    } * lists[64];
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int class_of(size_t nbytes)
{
    return nbytes > 1 ? 64 - __builtin_clzll(nbytes - 1) : 0;
}

/* 0: there is none. */
static ko_cu_ptr take_kept(size_t nbytes)
{
    struct kept **link = &pool.lists[class_of(nbytes)], *kept;
    ko_cu_ptr memory = 0;

    pthread_mutex_lock(&pool.lock);
    while (*link && (*link)->device != gpu_rank.device)
        link = &(*link)->next;
    kept = *link;
    if (kept)
        *link = kept->next;
    pthread_mutex_unlock(&pool.lock);
    if (kept)
        memory = kept->memory;
    free(kept);
    return memory;
}

static void keep(ko_cu_ptr memory, size_t nbytes)
{
    struct kept **list = &pool.lists[class_of(nbytes)], *kept = malloc(sizeof *kept);

    if (!kept)
        abort();
    pthread_mutex_lock(&pool.lock);
    *kept = (struct kept){memory, gpu_rank.device, *list};
    *list = kept;
    pthread_mutex_unlock(&pool.lock);
}

bool gpu_rank_alloc(ko_cu_ptr *memory, size_t nbytes)
{
    if (!is_thread())
        return !gpu_rank.cuda->alloc(memory, nbytes);
    *memory = take_kept(nbytes);
    return *memory || !gpu_rank.cuda->alloc(memory, (size_t)1 << class_of(nbytes));
}

ko_cu_ptr gpu_rank_fresh(size_t nbytes)
{
    ko_cu_ptr memory;

    if (gpu_rank.cuda->alloc(&memory, nbytes))
        abort();
    return memory;
}

bool gpu_rank_free(ko_cu_ptr memory, size_t nbytes)
{
    if (!is_thread())
        return !gpu_rank.cuda->free(memory);
    keep(memory, nbytes);
    return true;
}

static void *make(const void *content, size_t nbytes)
{
    int mode = KO_CU_CAPTURE_RELAXED;
    ko_cu_ptr memory;

    relax(&mode);
    if (!gpu_rank_alloc(&memory, nbytes) ||
        gpu_rank.cuda->copy(memory, (uintptr_t)content, nbytes, gpu_rank.stream))
        abort();
    relax(&mode);
    return (void *)(uintptr_t)memory;
}

static void fetch(void *content, void *memory, size_t nbytes)
{
    int mode = KO_CU_CAPTURE_RELAXED;

    relax(&mode);
    if (gpu_rank.cuda->copy((uintptr_t)content, (uintptr_t)memory, nbytes, gpu_rank.stream) ||
        gpu_rank.cuda->stream_sync(gpu_rank.stream) || !gpu_rank_free((uintptr_t)memory, nbytes))
        abort();
    relax(&mode);
}

const struct exam_memory gpu_rank_memory = {make, fetch, NULL, NULL};

/* ---- pieces ---------------------------------------------------------------------------------- */

void gpu_rank_map(ko_cu_ptr at, size_t nbytes, int n, int handle_types)
{
    const struct ko_cuda *cuda = gpu_rank.cuda;
    const ko_cu_piece_kind kind = {.type = KO_CU_PIECE_PINNED,
                                   .handle_types = handle_types,
                                   .location = {KO_CU_LOCATION_DEVICE, gpu_rank.device}};
    const ko_cu_access access = {kind.location, KO_CU_ACCESS_READ_AND_WRITE};
    ko_cu_piece piece;

    for (int i = 0; i < n; i++, at += nbytes)
        if (cuda->piece_create(&piece, nbytes, &kind, 0) ||
            cuda->piece_map(at, nbytes, 0, piece, 0) || cuda->piece_release(piece) ||
            cuda->piece_access(at, nbytes, &access, 1))
            abort();
}

void gpu_rank_unmap(ko_cu_ptr at, size_t nbytes, int n)
{
    if (gpu_rank.cuda->piece_unmap(at, nbytes * (size_t)n))
        abort();
}

enum { PIECE = 1 << 21, ALIGNMENT = 256 }; /* the least that GPUs have */

int gpu_rank_check_descriptors(int before)
{
    enum { FEW = 5 };
    const int now = ranks_count_entries("/proc/self/fd");

    return now > before + FEW ? ranks_fail("%d descriptors after %d", now, before) : 0;
}

static size_t start_of(size_t nbytes)
{
    return nbytes / 2 < PIECE ? (PIECE - nbytes / 2) / ALIGNMENT * ALIGNMENT : 0;
}

static size_t whole_pieces(size_t nbytes)
{
    return (start_of(nbytes) + nbytes + PIECE - 1) / PIECE * PIECE;
}

static void *make_of(const void *content, size_t nbytes, int handle_types)
{
    const size_t all = whole_pieces(nbytes);
    ko_cu_ptr base;

    if (gpu_rank.cuda->addresses_reserve(&base, all, 0, 0, 0))
        abort();
    gpu_rank_map(base, PIECE, (int)(all / PIECE), handle_types);
    if (gpu_rank.cuda->copy(base + start_of(nbytes), (uintptr_t)content, nbytes, gpu_rank.stream))
        abort();
    return (void *)(uintptr_t)(base + start_of(nbytes));
}

static void *make_pieces(const void *content, size_t nbytes)
{
    return make_of(content, nbytes, KO_CU_HANDLE_DESCRIPTOR);
}

static void *make_pool(const void *content, size_t nbytes)
{
    return make_of(content, nbytes, 0);
}

static void fetch_pieces(void *content, void *memory, size_t nbytes)
{
    const ko_cu_ptr base = (uintptr_t)memory - start_of(nbytes);

    if (gpu_rank.cuda->copy((uintptr_t)content, (uintptr_t)memory, nbytes, gpu_rank.stream) ||
        gpu_rank.cuda->stream_sync(gpu_rank.stream))
        abort();
    gpu_rank_unmap(base, whole_pieces(nbytes), 1);
    if (gpu_rank.cuda->addresses_free(base, whole_pieces(nbytes)))
        abort();
}

const struct exam_memory gpu_rank_pieces = {make_pieces, fetch_pieces, NULL, NULL};
const struct exam_memory gpu_rank_pool = {make_pool, fetch_pieces, NULL, NULL};

/* ---- graphs ---------------------------------------------------------------------------------- */

static int launch_captured(void)
{
    ko_cu_graph_exec exec = NULL;
    int failed = gpu_rank_captured(&exec);

    if (failed)
        return failed;
    failed = gpu_rank.cuda->graph_launch(exec, gpu_rank.stream) ||
             gpu_rank.cuda->stream_sync(gpu_rank.stream);
    (void)gpu_rank.cuda->graph_exec_destroy(exec);
    return failed;
}

const struct exam_memory gpu_rank_graphs = {make, fetch, gpu_rank_capture, launch_captured};
const struct exam_memory gpu_rank_graphs_of_pieces = {make_pieces, fetch_pieces, gpu_rank_capture,
                                                      launch_captured};
