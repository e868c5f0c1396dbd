/* SPDX-License-Identifier: MIT */
#include "gpu_waits.h"

#include "clock.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

static struct {
    pthread_mutex_t lock; /* of who makes a stream wait, and who takes memory away */
    atomic_int n;         /* marks that streams wait for */
} waits = {.lock = PTHREAD_MUTEX_INITIALIZER};

void ko_gpu_begin_waiting(void)
{
    pthread_mutex_lock(&waits.lock);
}

void ko_gpu_count_waiting(int more)
{
    atomic_fetch_add(&waits.n, more);
}

void ko_gpu_end_waiting(void)
{
    pthread_mutex_unlock(&waits.lock);
}

bool ko_gpu_begin_freeing(int most_ms)
{
    const ko_deadline deadline = ko_deadline_in(most_ms);
    const struct timespec nap = {.tv_nsec = 20000};

    for (;;) {
        pthread_mutex_lock(&waits.lock);
        if (!atomic_load(&waits.n))
            return true;
        pthread_mutex_unlock(&waits.lock);
        if (ko_deadline_passed(&deadline))
            return false;
        nanosleep(&nap, NULL);
    }
}

void ko_gpu_end_freeing(void)
{
    pthread_mutex_unlock(&waits.lock);
}
