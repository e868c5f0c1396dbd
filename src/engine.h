/* SPDX-License-Identifier: MIT
 *
 * engine.h: who runs a group's collectives, one after another in the order of submission. A
 * blocking call on an idle group runs in its caller's thread; asynchronous ones, and blocking ones
 * behind them, on a thread that the group has while there are some.
 */
#ifndef KO_ENGINE_H
#define KO_ENGINE_H

#include "crew.h"
#include "portable.h"
#include "work.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct ko_engine {
    uint64_t is_running; /* some thread has the turn; through portable.h */
    bool is_split;       /* ko_fence_is_split */
    atomic_int nqueued;
    pthread_mutex_t lock;   /* the rest */
    pthread_cond_t changed; /* something was queued, finished, or is to stop */
    struct kolo_work *first, *last;
    struct kolo_work *running;     /* the one that the thread is in; NULL: none */
    struct ko_crew *crew;          /* where the thread comes from */
    bool has_thread, keeps_thread; /* keeps: even while nothing is queued */
    int nawaiting;                 /* threads in ko_engine_await */
    bool is_stopping;
};

void ko_engine_open(struct ko_engine *engine, struct ko_crew *crew);

/* The slow part of ko_engine_finish. */
void ko_engine_tell_finished(struct ko_engine *engine);

/* Takes the turn if nobody has it: true, and the caller calls ko_engine_finish when it is done. */
static inline bool ko_engine_try_turn(struct ko_engine *engine)
{
    return ko_take(&engine->is_running);
}

/* The same for a call, which has to wait behind those that are queued. */
static inline bool ko_engine_try_begin(struct ko_engine *engine)
{
    return !atomic_load(&engine->nqueued) && ko_engine_try_turn(engine);
}

/* A submitter counts its work before the thread tries for the turn, and we look at the count after
 * we have given the turn back: one of the two notices the other (fence.h). */
static inline void ko_engine_finish(struct ko_engine *engine)
{
    ko_store_first(&engine->is_running, 0, engine->is_split);
    if (atomic_load(&engine->nqueued))
        ko_engine_tell_finished(engine);
}

/* True if a work that was submitted is not done. Who else has the turn does not count: it may be
 * the watch (group_watch.h), which only listens. */
bool ko_engine_is_busy(struct ko_engine *engine);

/* Queues a work; its `run` is called on a thread of the crew, with the turn. KOLO_E_ABORTED once
 * the engine is closed. */
int ko_engine_submit(struct ko_engine *engine, struct kolo_work *work);

/* Waits until a work that was submitted is done, or another of the engine's among `others`, or for
 * the deadline. The engine is such works' place. */
void ko_engine_await(struct ko_engine *engine, const struct kolo_work *work,
                     const ko_deadline *deadline, const struct ko_works *others);

/* Waits for what runs, fails what is queued with KOLO_E_ABORTED, gives the thread back; those who
 * await a work have left the engine then. The turn can still be taken. */
void ko_engine_close(struct ko_engine *engine);

/* Of one that is closed, when nobody has to do with it any more. */
void ko_engine_destroy(struct ko_engine *engine);

#endif
