/* SPDX-License-Identifier: MIT */
#include "engine.h"

#include "fence.h"
#include "portable.h"
#include "thread.h"

#include <string.h>

enum { LINGER_MS = 1 };

void ko_engine_open(struct ko_engine *engine, struct ko_crew *crew)
{
    engine->crew = crew;
    engine->is_split = ko_fence_is_split();
    pthread_mutex_init(&engine->lock, NULL);
    ko_condition_init(&engine->changed);
}

/* A work is seen to be done before the thread is back from it. */
bool ko_engine_is_busy(struct ko_engine *engine)
{
    bool is_busy;

    pthread_mutex_lock(&engine->lock);
    is_busy = engine->first || (engine->running && !atomic_load(&engine->running->is_done));
    pthread_mutex_unlock(&engine->lock);
    return is_busy;
}

void ko_engine_tell_finished(struct ko_engine *engine)
{
    pthread_mutex_lock(&engine->lock);
    pthread_cond_broadcast(&engine->changed);
    pthread_mutex_unlock(&engine->lock);
}

static struct kolo_work *dequeue(struct ko_engine *engine)
{
    struct kolo_work *work = engine->first;

    engine->first = work->next;
    if (!engine->first)
        engine->last = NULL;
    work->next = NULL;
    return work;
}

/* Runs the first work, with the turn; the lock is given away meanwhile. */
static void run_first(struct ko_engine *engine)
{
    struct kolo_work *work = dequeue(engine);

    engine->running = work;
    pthread_mutex_unlock(&engine->lock);
    work->run(work);
    pthread_mutex_lock(&engine->lock);
    engine->running = NULL;
    atomic_fetch_sub(&engine->nqueued, 1);
    ko_store_release(&engine->is_running, 0);
    pthread_cond_broadcast(&engine->changed);
    ko_work_release(work);
}

/* With the lock: true if the thread has the turn for the first work, else something has changed. */
static bool wait_for_turn(struct ko_engine *engine)
{
    if (engine->first && ko_engine_try_turn(engine))
        return true;
    if (engine->first)
        ko_fence_others(); /* before we look once more, and wait to be told */
    if (engine->first && ko_engine_try_turn(engine))
        return true;
    pthread_cond_wait(&engine->changed, &engine->lock);
    return false;
}

/* Who has begun a work often begins the next one at once: that finds the thread where it is. A wait
 * without a limit is the cheaper one. */
static bool another_comes(struct ko_engine *engine)
{
    const ko_deadline soon = ko_deadline_in(LINGER_MS);
    const struct timespec until = ko_deadline_timespec(&soon);

    while (!engine->first && !engine->is_stopping && engine->keeps_thread)
        pthread_cond_wait(&engine->changed, &engine->lock);
    while (!engine->first && !engine->is_stopping && !ko_deadline_passed(&soon))
        pthread_cond_timedwait(&engine->changed, &engine->lock, &until);
    return engine->first;
}

static void run_queued(void *argument)
{
    struct ko_engine *engine = argument;

    pthread_mutex_lock(&engine->lock);
    while (!engine->is_stopping && (engine->first || another_comes(engine))) {
        if (wait_for_turn(engine))
            run_first(engine);
    }
    engine->has_thread = false;
    pthread_cond_broadcast(&engine->changed);
    pthread_mutex_unlock(&engine->lock);
}

/* With the lock. */
static int take_thread(struct ko_engine *engine)
{
    int err;

    if (engine->is_stopping)
        return ko_fail(KOLO_E_ABORTED, "the group is being freed");
    if (engine->has_thread)
        return KOLO_OK;
    engine->keeps_thread = engine->keeps_thread || ko_crew_keep(engine->crew);
    err = ko_crew_run(engine->crew, run_queued, engine, "a group's thread");
    engine->has_thread = !err;
    return err;
}

int ko_engine_submit(struct ko_engine *engine, struct kolo_work *work)
{
    int err;

    pthread_mutex_lock(&engine->lock);
    err = take_thread(engine); /* it waits for the lock */
    if (!err) {
        ko_work_retain(work);
        work->next = NULL;
        if (engine->last)
            engine->last->next = work;
        else
            engine->first = work;
        engine->last = work;
        atomic_fetch_add(&engine->nqueued, 1);
        pthread_cond_broadcast(&engine->changed);
    }
    pthread_mutex_unlock(&engine->lock);
    return err;
}

void ko_engine_await(struct ko_engine *engine, const struct kolo_work *work,
                     const ko_deadline *deadline, const struct ko_works *others)
{
    const struct timespec until = ko_deadline_timespec(deadline);

    pthread_mutex_lock(&engine->lock);
    engine->nawaiting++;
    while (!ko_work_is_over(work, others) && !ko_deadline_passed(deadline))
        pthread_cond_timedwait(&engine->changed, &engine->lock, &until);
    engine->nawaiting--;
    if (engine->is_stopping)
        pthread_cond_broadcast(&engine->changed);
    pthread_mutex_unlock(&engine->lock);
}

/* With the lock. */
static void stop_thread(struct ko_engine *engine)
{
    engine->is_stopping = true;
    pthread_cond_broadcast(&engine->changed);
    while (engine->has_thread)
        pthread_cond_wait(&engine->changed, &engine->lock);
    if (engine->keeps_thread)
        ko_crew_let_go(engine->crew);
}

/* With the lock. */
static void abort_queued(struct ko_engine *engine)
{
    while (engine->first) {
        struct kolo_work *work = dequeue(engine);

        ko_work_complete(work,
                         ko_fail(KOLO_E_ABORTED, "the group was freed before the work began"));
        ko_work_release(work);
    }
    pthread_cond_broadcast(&engine->changed);
    while (engine->nawaiting)
        pthread_cond_wait(&engine->changed, &engine->lock);
}

void ko_engine_close(struct ko_engine *engine)
{
    pthread_mutex_lock(&engine->lock);
    stop_thread(engine);
    abort_queued(engine);
    pthread_mutex_unlock(&engine->lock);
}

void ko_engine_destroy(struct ko_engine *engine)
{
    pthread_cond_destroy(&engine->changed);
    pthread_mutex_destroy(&engine->lock);
}
