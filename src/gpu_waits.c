/* SPDX-License-Identifier: MIT */
#include "gpu_waits.h"

#include "clock.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

static struct {
    pthread_mutex_t lock; /* of who makes a stream wait, and who takes memory away */
    atomic_int n;         /* that streams wait for: marks, and what is being put into one */
    struct ko_gpu_waiter *waiters;
} waits = {.lock = PTHREAD_MUTEX_INITIALIZER};

void ko_gpu_count_waiting(int more)
{
    atomic_fetch_add(&waits.n, more);
}

void ko_gpu_add_waiting(void)
{
    pthread_mutex_lock(&waits.lock);
    ko_gpu_count_waiting(1);
    pthread_mutex_unlock(&waits.lock);
}

void ko_gpu_enter_waiter(struct ko_gpu_waiter *waiter)
{
    pthread_mutex_lock(&waits.lock);
    waiter->next = waits.waiters;
    waits.waiters = waiter;
    pthread_mutex_unlock(&waits.lock);
}

void ko_gpu_leave_waiter(struct ko_gpu_waiter *waiter)
{
    struct ko_gpu_waiter **link = &waits.waiters;

    pthread_mutex_lock(&waits.lock);
    while (*link && *link != waiter)
        link = &(*link)->next;
    if (*link)
        *link = waiter->next;
    pthread_mutex_unlock(&waits.lock);
}

/* With the lock. */
static bool any_is_waiting(void)
{
    struct ko_gpu_waiter *waiter = waits.waiters;

    while (waiter && !waiter->is_waiting(waiter))
        waiter = waiter->next;
    return waiter;
}

static bool begin_freeing(int most_ms, bool is_in_call)
{
    const ko_deadline deadline = ko_deadline_in(most_ms);
    const struct timespec nap = {.tv_nsec = 20000};
    bool is_counted;

    for (;;) {
        pthread_mutex_lock(&waits.lock);
        is_counted = atomic_load(&waits.n);
        if (!is_counted && !any_is_waiting())
            return true;
        pthread_mutex_unlock(&waits.lock);
        if ((is_counted && is_in_call) || ko_deadline_passed(&deadline))
            return false;
        nanosleep(&nap, NULL);
    }
}

bool ko_gpu_begin_freeing(int most_ms)
{
    return begin_freeing(most_ms, false);
}

bool ko_gpu_begin_freeing_in_call(int most_ms)
{
    return begin_freeing(most_ms, true);
}

/* With the lock. */
static bool any_is_behind(void)
{
    struct ko_gpu_waiter *waiter = waits.waiters;

    while (waiter && !waiter->is_behind(waiter))
        waiter = waiter->next;
    return waiter;
}

bool ko_gpu_begin_tidying(void)
{
    if (!begin_freeing(0, false))
        return false;
    if (!any_is_behind())
        return true;
    ko_gpu_end_freeing();
    return false;
}

void ko_gpu_end_freeing(void)
{
    pthread_mutex_unlock(&waits.lock);
}
