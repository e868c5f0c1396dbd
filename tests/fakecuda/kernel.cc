/* SPDX-License-Identifier: MIT
 *
 * The double's kernels are those of the device, compiled for the host. A block is one thread, and
 * blocks run one after another; with FAKECUDA_THREADS=1 every thread of a launch is a thread, which
 * shows ThreadSanitizer what they do to each other, and with FAKECUDA_SLOTS or FAKECUDA_SLICE every
 * block, which starts when it may.
 */
#include "../../kernels/kernels.cu"

extern "C" {
#include "double.h"
}

#include <dlfcn.h>
#include <sched.h>
#include <set>
#include <stdio.h>
#include <stdlib.h>
#include <utility>
#include <vector>

/* Looked at with every access: without a call for it, as for what little there is of a thread's own
 * in a library that is opened late. */
thread_local ko_player ko_played;

typedef size_t (*kernel_text)(const void *argument);

enum { STACK = 256 << 10 };

struct launch {
    double_task task;
    kernel_text text;
    unsigned nblocks, nthreads;
    int device;
    alignas(16) unsigned char argument[1024];
};

struct played {
    pthread_t thread;
    const launch *of;
    ko_player player;
};

/* ---- what a kernel's thread touches ---------------------------------------------------------- */

/* Memory that it has touched lately. */
struct view {
    double_home home;
    uint64_t read, written;
};

struct sight {
    int device;
    unsigned n, last; /* views; the one that was touched last */
    uint64_t narrow;
    unsigned nrests;
    view views[4 * KO_FOLD_MOST + 4];
};

static thread_local sight *seen; /* of the launch that this thread plays */

static void count_views()
{
    for (unsigned i = 0; i < seen->n; i++)
        double_count(seen->device, seen->views[i].home.device, seen->views[i].read,
                     seen->views[i].written);
    double_count_narrow(seen->narrow);
    seen->n = seen->last = 0;
    seen->narrow = 0;
}

static bool is_in(const view &view, ko_cu_ptr at)
{
    return view.home.base <= at && at < view.home.end;
}

/* NULL: it is not device memory. */
static view *look_up(ko_cu_ptr at)
{
    double_home home;

    for (unsigned i = 0; i < seen->n; i++, seen->last = (seen->last + 1) % seen->n)
        if (is_in(seen->views[seen->last], at))
            return &seen->views[seen->last];
    if (!double_find(at, seen->device, &home))
        return NULL;
    if (!home.is_allowed) {
        fprintf(stderr, "a kernel of GPU %d touches memory of GPU %d, which it has no access to\n",
                seen->device, home.device);
        abort();
    }
    if (seen->n == sizeof seen->views / sizeof *seen->views)
        count_views();
    seen->last = seen->n++;
    seen->views[seen->last] = {home, 0, 0};
    return &seen->views[seen->last];
}

void ko_touch(const void *at, size_t nbytes, bool is_write)
{
    view *touched = look_up((uintptr_t)at);

    if ((uintptr_t)at & (nbytes - 1)) { /* a power of two */
        fprintf(stderr, "a kernel touches %zu bytes at %p, which are misaligned\n", nbytes, at);
        abort();
    }
    if (touched)
        *(is_write ? &touched->written : &touched->read) += nbytes;
    if (touched && nbytes < sizeof(ko_pack))
        seen->narrow += nbytes;
}

void ko_rest()
{
    double_block_rest(seen->device, seen->nrests++);
}

/* ---- launches -------------------------------------------------------------------------------- */

static void play(const launch *of, const ko_player &player)
{
    sight own;

    own.device = of->device;
    own.n = own.last = 0;
    own.narrow = 0;
    own.nrests = 0;
    ko_played = player;
    seen = &own;
    of->text(of->argument);
    count_views();
    seen = NULL;
}

static void *play_thread(void *argument)
{
    const played *self = (const played *)argument;

    double_allow();
    play(self->of, self->player);
    return NULL;
}

/* With a stack so small that libc keeps those of many threads for the next ones. */
static void start(played *one, void *(*main)(void *))
{
    pthread_attr_t attributes;

    if (pthread_attr_init(&attributes) || pthread_attr_setstacksize(&attributes, STACK) ||
        pthread_create(&one->thread, &attributes, main, one))
        abort();
    pthread_attr_destroy(&attributes);
}

static void run_threads(const launch *of)
{
    std::vector<played> all(of->nblocks * of->nthreads);
    std::vector<pthread_barrier_t> barriers(of->nblocks);

    for (unsigned b = 0; b < of->nblocks; b++)
        pthread_barrier_init(&barriers[b], NULL, of->nthreads);
    for (unsigned i = 0; i < all.size(); i++) {
        const unsigned b = i / of->nthreads;

        all[i].of = of;
        all[i].player = {i % of->nthreads, of->nthreads, b, of->nblocks, &barriers[b]};
        start(&all[i], play_thread);
    }
    for (played &one : all)
        pthread_join(one.thread, NULL);
    for (pthread_barrier_t &barrier : barriers)
        pthread_barrier_destroy(&barrier);
}

static void *play_block(void *argument)
{
    const played *self = (const played *)argument;

    play_thread(argument);
    double_block_end(self->of->device);
    return NULL;
}

/* Blocks start in their order. */
static void run_resident_blocks(const launch *of)
{
    std::vector<played> all(of->nblocks);

    for (unsigned b = 0; b < of->nblocks; b++) {
        all[b].of = of;
        all[b].player = {0, 1, b, of->nblocks, NULL};
        double_block_begin(of->device);
        start(&all[b], play_block);
    }
    for (played &one : all)
        pthread_join(one.thread, NULL);
}

static void run_blocks(const launch *of)
{
    for (unsigned b = 0; b < of->nblocks; b++)
        play(of, {0, 1, b, of->nblocks, NULL});
}

static void run(double_task *task)
{
    const launch *of = (const launch *)task;

    if (double_number("FAKECUDA_THREADS", 0))
        run_threads(of);
    else if (double_has_slots())
        run_resident_blocks(of);
    else
        run_blocks(of);
}

/* ---- loading --------------------------------------------------------------------------------- */

static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;
static std::set<std::pair<int, ko_cu_kernel>> in_contexts;

/* Into a context; false: it has been before. */
static bool load(int device, ko_cu_kernel kernel)
{
    pthread_mutex_lock(&load_lock);
    const bool is_new = in_contexts.insert({device, kernel}).second;
    pthread_mutex_unlock(&load_lock);
    return is_new;
}

static ko_cu_result load_now(ko_cu_kernel kernel)
{
    if (!kernel || !double_context())
        return kernel ? KO_CU_INVALID_CONTEXT : KO_CU_INVALID_VALUE;
    load(double_context()->device, kernel);
    return KO_CU_SUCCESS;
}

extern "C" {

/* Whatever the image, the kernels are this library's own. */
ko_cu_result double_library_load(ko_cu_library *library, const void *code, int *, void **, unsigned,
                                 int *, void **, unsigned)
{
    Dl_info own;

    if (!code || !dladdr((void *)double_library_load, &own))
        return KO_CU_INVALID_VALUE;
    *library = (ko_cu_library)dlopen(own.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    return *library ? KO_CU_SUCCESS : KO_CU_INVALID_VALUE;
}

ko_cu_result double_library_unload(ko_cu_library library)
{
    return dlclose(library) ? KO_CU_INVALID_VALUE : KO_CU_SUCCESS;
}

ko_cu_result double_library_kernel(ko_cu_kernel *kernel, ko_cu_library library, const char *name)
{
    *kernel = (ko_cu_kernel)dlsym(library, name);
    return *kernel ? KO_CU_SUCCESS : KO_CU_NOT_FOUND;
}

ko_cu_result double_kernel_function(ko_cu_kernel *function, ko_cu_kernel kernel)
{
    *function = kernel;
    return KO_CU_SUCCESS;
}

ko_cu_result double_function_load(ko_cu_kernel function)
{
    return load_now(function);
}

ko_cu_result double_function_attribute(int *value, int attribute, ko_cu_kernel function)
{
    *value = 512;
    return attribute == KO_CU_MOST_THREADS ? load_now(function)
                                           : (ko_cu_result)KO_CU_INVALID_VALUE;
}

ko_cu_result double_launch(ko_cu_kernel kernel, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                           unsigned block_x, unsigned block_y, unsigned block_z,
                           unsigned shared_bytes, ko_cu_stream stream, void **arguments,
                           void **extra)
{
    launch launched = {};

    launched.device = double_gpu_of(stream);
    while (double_number("FAKECUDA_STRICT", 0) && launched.device >= 0 &&
           double_is_awaiting_streams(launched.device))
        sched_yield();
    if (!kernel || !grid_x || !block_x || block_x > 512 || grid_y != 1 || grid_z != 1 ||
        block_y != 1 || block_z != 1 || shared_bytes || extra)
        return KO_CU_INVALID_VALUE;
    launched.task.run = run;
    launched.text = (kernel_text)kernel;
    launched.nblocks = grid_x;
    launched.nthreads = block_x;
    if (double_number("FAKECUDA_LAZY", 0) && load(launched.device, kernel) &&
        double_is_busy(launched.device))
        return KO_CU_NOT_READY;
    if (launched.text(NULL) > sizeof launched.argument)
        abort();
    memcpy(launched.argument, arguments[0], launched.text(NULL));
    return double_enqueue(stream, &launched.task, sizeof launched);
}
}
