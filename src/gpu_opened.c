/* SPDX-License-Identifier: MIT */
#include "gpu_opened.h"

#include "gpu_waits.h"
#include "status.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { CLOSING_MS = 300 }; /* at most, for streams that wait */

struct ko_gpu_opened {
    ko_cu_context context;
    uint64_t process, id, base, nbytes; /* there */
    ko_cu_ipc_handle handle;
    ko_cu_ptr at; /* here; 0: it is closed */
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

static bool overlaps(const struct ko_gpu_opened *opened, const struct ko_gpu_place *place)
{
    return opened->base < place->base + place->nbytes &&
           place->base < opened->base + opened->nbytes;
}

/* By its handle, too: a process may have the number of one that has ended. */
static struct ko_gpu_opened *find(ko_cu_context context, uint64_t process,
                                  const struct ko_gpu_place *place)
{
    struct ko_gpu_opened *opened = list.first;

    while (opened && !(is_of(opened, context, process) && opened->id == place->id &&
                       !memcmp(&opened->handle, &place->handle, sizeof opened->handle)))
        opened = opened->next;
    return opened;
}

static bool has_older(ko_cu_context context, uint64_t process, const struct ko_gpu_place *place)
{
    const struct ko_gpu_opened *opened;

    pthread_mutex_lock(&list.lock);
    opened = list.first;
    while (opened &&
           !(is_of(opened, context, process) && overlaps(opened, place) && opened->id != place->id))
        opened = opened->next;
    pthread_mutex_unlock(&list.lock);
    return opened;
}

/* With the lock: what lies where the place does has been freed since. */
static void close_older(const struct ko_cuda *cuda, ko_cu_context context, uint64_t process,
                        const struct ko_gpu_place *place)
{
    for (struct ko_gpu_opened *opened = list.first; opened; opened = opened->next)
        if (is_of(opened, context, process) && overlaps(opened, place)) {
            (void)cuda->ipc_close(opened->at);
            opened->at = 0;
        }
}

/* With the lock. */
static ko_cu_result open_new(const struct ko_cuda *cuda, ko_cu_context context, uint64_t process,
                             const struct ko_gpu_place *place, bool may_close,
                             struct ko_gpu_opened **opened_out)
{
    struct ko_gpu_opened *opened = ko_alloc(sizeof *opened, "memory of another process's");
    ko_cu_result result = opened ? KO_CU_SUCCESS : KO_CU_OUT_OF_MEMORY;

    if (!result && may_close)
        close_older(cuda, context, process, place);
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
    opened->handle = place->handle;
    opened->next = list.first;
    list.first = opened;
    *opened_out = opened;
    return KO_CU_SUCCESS;
}

ko_cu_result ko_gpu_opened_take(const struct ko_cuda *cuda, uint64_t process,
                                const struct ko_gpu_place *place, struct ko_gpu_opened **opened_out,
                                ko_cu_ptr *at)
{
    struct ko_gpu_opened *opened = NULL;
    ko_cu_context context;
    ko_cu_result result = cuda->context_current(&context);
    /* nothing is asked of streams where nothing is to be closed; that lock is the outer one */
    const bool is_in_the_way = !result && has_older(context, process, place);
    const bool may_close = is_in_the_way && ko_gpu_begin_freeing_in_call(CLOSING_MS);

    pthread_mutex_lock(&list.lock);
    if (!result)
        opened = find(context, process, place);
    if (!result && !opened)
        result = open_new(cuda, context, process, place, may_close, &opened);
    if (opened) {
        opened->nusers++;
        *opened_out = opened;
        *at = opened->at;
    }
    pthread_mutex_unlock(&list.lock);
    if (may_close)
        ko_gpu_end_freeing();
    return result && is_in_the_way && !may_close ? KO_CU_NOT_READY : result;
}

void ko_gpu_opened_give(const struct ko_cuda *cuda, struct ko_gpu_opened *opened)
{
    struct ko_gpu_opened **link = &list.first;

    pthread_mutex_lock(&list.lock);
    if (!--opened->nusers) {
        while (*link != opened)
            link = &(*link)->next;
        *link = opened->next;
        if (opened->at)
            (void)cuda->ipc_close(opened->at);
        free(opened);
    }
    pthread_mutex_unlock(&list.lock);
}
