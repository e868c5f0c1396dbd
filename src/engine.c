/* SPDX-License-Identifier: MIT */
#include "engine.h"

#include "thread.h"

#include <string.h>

void ko_engine_open(struct ko_engine *engine)
{
    pthread_condattr_t attributes;

    pthread_mutex_init(&engine->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&engine->changed, &attributes);
    pthread_condattr_destroy(&attributes);
}

static bool take_turn(struct ko_engine *engine)
{
    bool is_free = false;

    return atomic_compare_exchange_strong(&engine->is_running, &is_free, true);
}

bool ko_engine_try_begin(struct ko_engine *engine)
{
    return !atomic_load(&engine->nqueued) && take_turn(engine);
}

/* A submitter counts its work before the thread tries for the turn, and we look at the count after
 * we have given the turn back: one of the two notices the other. */
void ko_engine_finish(struct ko_engine *engine)
{
    atomic_store(&engine->is_running, false);
    if (!atomic_load(&engine->nqueued))
        return;
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

    pthread_mutex_unlock(&engine->lock);
    work->run(work);
    pthread_mutex_lock(&engine->lock);
    atomic_fetch_sub(&engine->nqueued, 1);
    atomic_store(&engine->is_running, false);
    pthread_cond_broadcast(&engine->changed);
    ko_work_release(work);
}

static void *engine_main(void *argument)
{
    struct ko_engine *engine = argument;

    pthread_mutex_lock(&engine->lock);
    while (!engine->is_stopping) {
        if (engine->first && take_turn(engine))
            run_first(engine);
        else
            pthread_cond_wait(&engine->changed, &engine->lock);
    }
    pthread_mutex_unlock(&engine->lock);
    return NULL;
}

static int start_thread(struct ko_engine *engine)
{
    int err = ko_thread_start(&engine->thread, engine_main, engine, "a group's thread");

    engine->has_thread = !err;
    return err;
}

int ko_engine_submit(struct ko_engine *engine, struct kolo_work *work)
{
    int err;

    pthread_mutex_lock(&engine->lock);
    err = engine->has_thread ? KOLO_OK : start_thread(engine);
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

void ko_engine_close(struct ko_engine *engine)
{
    pthread_mutex_lock(&engine->lock);
    engine->is_stopping = true;
    pthread_cond_broadcast(&engine->changed);
    pthread_mutex_unlock(&engine->lock);
    if (engine->has_thread)
        pthread_join(engine->thread, NULL);
    while (engine->first) {
        struct kolo_work *work = dequeue(engine);

        ko_work_complete(work,
                         ko_fail(KOLO_E_ABORTED, "the group was freed before the work began"));
        ko_work_release(work);
    }
    pthread_cond_destroy(&engine->changed);
    pthread_mutex_destroy(&engine->lock);
}
