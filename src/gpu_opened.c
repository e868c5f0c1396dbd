/* SPDX-License-Identifier: MIT */
#include "gpu_opened.h"

#include "gpu_waits.h"
#include "status.h"

#include <pthread.h>
#include <stdlib.h>

enum { CLOSING_MS = 300 }; /* at most, for streams that wait */

/* Small allocations are parts of blocks of 2 MiB, which is what the driver opens: as often as their
 * handles are, and once for all. A block goes with its last part. */
enum { NO_BLOCKS = 1, BLOCKS = 2 << 20 };

struct ko_gpu_opened {
    ko_cu_context context;
    uint64_t process, id, base, nbytes; /* there */
    ko_cu_ptr at;                       /* here; 0: it is closed */
    int nusers;
    struct ko_gpu_opened *next;
};

static struct {
    pthread_mutex_t lock;
    struct ko_gpu_opened *first;
} list = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool is_of(const struct ko_gpu_opened *opened, ko_cu_context context, uint64_t process)
{
    return opened->context == context && opened->process == process && opened->at;
}

/* Whether any of the one begins before the end of the other, both rounded to blocks. */
static bool begins_before(uint64_t base, uint64_t other, uint64_t nbytes, uint64_t block)
{
    return base / block < (other + nbytes + block - 1) / block;
}

static bool overlaps(const struct ko_gpu_opened *opened, const struct ko_gpu_place *place,
                     uint64_t block)
{
    return begins_before(opened->base, place->base, place->nbytes, block) &&
           begins_before(place->base, opened->base, opened->nbytes, block);
}

static struct ko_gpu_opened *find(ko_cu_context context, uint64_t process,
                                  const struct ko_gpu_place *place)
{
    struct ko_gpu_opened *opened = list.first;

    while (opened && !(is_of(opened, context, process) && opened->id == place->id))
        opened = opened->next;
    return opened;
}

static bool has_older(ko_cu_context context, uint64_t process, const struct ko_gpu_place *place,
                      uint64_t block)
{
    const struct ko_gpu_opened *opened;

    pthread_mutex_lock(&list.lock);
    opened = list.first;
    while (opened && !(is_of(opened, context, process) && overlaps(opened, place, block) &&
                       opened->id != place->id))
        opened = opened->next;
    pthread_mutex_unlock(&list.lock);
    return opened;
}

/* With the lock: what lies where the place does has been freed since. */
static void close_older(const struct ko_cuda *cuda, ko_cu_context context, uint64_t process,
                        const struct ko_gpu_place *place, uint64_t block)
{
    for (struct ko_gpu_opened *opened = list.first; opened; opened = opened->next)
        if (is_of(opened, context, process) && overlaps(opened, place, block)) {
            (void)cuda->ipc_close(opened->at);
            opened->at = 0;
        }
}

static bool is_unused(const struct ko_gpu_opened *opened, ko_cu_context context)
{
    return opened->context == context && !opened->nusers;
}

static bool has_unused(ko_cu_context context)
{
    const struct ko_gpu_opened *opened;

    pthread_mutex_lock(&list.lock);
    opened = list.first;
    while (opened && !is_unused(opened, context))
        opened = opened->next;
    pthread_mutex_unlock(&list.lock);
    return opened;
}

/* With the lock. */
static void close_unused(const struct ko_cuda *cuda, ko_cu_context context)
{
    struct ko_gpu_opened **link = &list.first;

    while (*link) {
        struct ko_gpu_opened *opened = *link;

        if (!is_unused(opened, context)) {
            link = &opened->next;
            continue;
        }
        *link = opened->next;
        if (opened->at)
            (void)cuda->ipc_close(opened->at);
        free(opened);
    }
}

/* With the lock. */
static ko_cu_result open_new(const struct ko_cuda *cuda, ko_cu_context context, uint64_t process,
                             const struct ko_gpu_place *place, struct ko_gpu_opened **opened_out)
{
    struct ko_gpu_opened *opened = ko_alloc(sizeof *opened, "memory of another process's");
    ko_cu_result result = opened ? KO_CU_SUCCESS : KO_CU_OUT_OF_MEMORY;

    if (!result)
        result = cuda->ipc_open(&opened->at, place->handle, KO_CU_IPC_LAZY_PEER_ACCESS);
    if (result) {
        free(opened);
        return result;
    }
    opened->context = context;
    opened->process = process;
    opened->id = place->id;
    opened->base = place->base;
    opened->nbytes = place->nbytes;
    opened->next = list.first;
    list.first = opened;
    *opened_out = opened;
    return KO_CU_SUCCESS;
}

/* Closes what is in the way there, in all of its blocks or not, and what nobody uses. Nothing is
 * asked of streams where nothing is to be closed; that lock is the outer one. */
static ko_cu_result take(const struct ko_cuda *cuda, ko_cu_context context, uint64_t process,
                         const struct ko_gpu_place *place, uint64_t block,
                         struct ko_gpu_opened **opened)
{
    const bool is_in_the_way = has_older(context, process, place, block);
    const bool may_close = (is_in_the_way || has_unused(context)) &&
                           ko_gpu_begin_freeing_in_call(is_in_the_way ? CLOSING_MS : 0);
    ko_cu_result result = KO_CU_SUCCESS;

    pthread_mutex_lock(&list.lock);
    *opened = find(context, process, place);
    if (!*opened && may_close)
        close_older(cuda, context, process, place, block);
    if (!*opened)
        result = open_new(cuda, context, process, place, opened);
    if (*opened)
        (*opened)->nusers++;
    if (may_close)
        close_unused(cuda, context);
    pthread_mutex_unlock(&list.lock);
    if (may_close)
        ko_gpu_end_freeing();
    return result && is_in_the_way && !may_close ? KO_CU_NOT_READY : result;
}

/* Of a block some of which is open here the driver opens every part, unless what is open has gone,
 * all of it, and another block has come in its place. */
ko_cu_result ko_gpu_opened_take(const struct ko_cuda *cuda, uint64_t process,
                                const struct ko_gpu_place *place, struct ko_gpu_opened **opened_out,
                                ko_cu_ptr *at)
{
    struct ko_gpu_opened *opened;
    ko_cu_context context;
    ko_cu_result result = cuda->context_current(&context);

    if (!result)
        result = take(cuda, context, process, place, NO_BLOCKS, &opened);
    if (result == KO_CU_ALREADY_MAPPED)
        result = take(cuda, context, process, place, BLOCKS, &opened);
    if (result)
        return result;
    *opened_out = opened;
    *at = opened->at;
    return KO_CU_SUCCESS;
}

void ko_gpu_opened_give(const struct ko_cuda *cuda, struct ko_gpu_opened *opened)
{
    const ko_cu_context context = opened->context;

    pthread_mutex_lock(&list.lock);
    opened->nusers--;
    close_unused(cuda, context);
    pthread_mutex_unlock(&list.lock);
}

void ko_gpu_opened_leave(struct ko_gpu_opened *opened)
{
    pthread_mutex_lock(&list.lock);
    opened->nusers--;
    pthread_mutex_unlock(&list.lock);
}
