/* SPDX-License-Identifier: MIT */
#include "coll_gpu_handoff.h"

#include "thread.h"

enum { PATIENCE_MS = 1000, POLL_NS = 50000 };

void ko_handoff_init(struct ko_handoff *handoff, bool is_patient)
{
    *handoff = (struct ko_handoff){.is_taken = is_patient};
    pthread_mutex_init(&handoff->lock, NULL);
    ko_condition_init(&handoff->changed);
}

bool ko_handoff_take(struct ko_handoff *handoff)
{
    bool is_taken;

    pthread_mutex_lock(&handoff->lock);
    is_taken = !handoff->mark;
    handoff->is_taken |= is_taken;
    pthread_mutex_unlock(&handoff->lock);
    return is_taken;
}

void ko_handoff_end(struct ko_handoff *handoff, struct ko_gpu *gpu)
{
    struct ko_gpu_mark *mark;

    pthread_mutex_lock(&handoff->lock);
    handoff->is_over = true;
    mark = handoff->mark;
    pthread_cond_broadcast(&handoff->changed);
    pthread_mutex_unlock(&handoff->lock);
    ko_gpu_let_go(gpu, mark);
}

/* With the lock. */
static void wait_for_peers(struct ko_handoff *handoff)
{
    const ko_deadline deadline = ko_deadline_in(PATIENCE_MS);
    const struct timespec until = ko_deadline_timespec(&deadline);

    while (!handoff->is_taken && !handoff->is_over && !ko_deadline_passed(&deadline))
        (void)pthread_cond_timedwait(&handoff->changed, &handoff->lock, &until);
}

/* As long as that is less than to sleep and to wake up. */
static void poll_for_end(const struct ko_handoff *handoff)
{
    const int64_t end_ns = ko_now_ns() + POLL_NS;

    while (!atomic_load(&handoff->is_over) && ko_now_ns() < end_ns)
        continue;
}

/* Where the stream cannot be made to wait, its caller waits on. */
bool ko_handoff_await(struct ko_handoff *handoff, struct ko_gpu *gpu)
{
    bool is_over;

    poll_for_end(handoff);
    pthread_mutex_lock(&handoff->lock);
    wait_for_peers(handoff);
    if (!handoff->is_taken && !handoff->is_over && ko_gpu_has_room(gpu))
        (void)ko_gpu_mark(gpu, true, &handoff->mark);
    while (!handoff->mark && !handoff->is_over)
        (void)pthread_cond_wait(&handoff->changed, &handoff->lock);
    is_over = !handoff->mark;
    pthread_mutex_unlock(&handoff->lock);
    return is_over;
}
