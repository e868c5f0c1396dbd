/* SPDX-License-Identifier: MIT
 *
 * biased_lock.h: a lock that is nearly always taken by the same thread. That thread, its owner,
 * takes it and gives it back by plain stores: an atomic read-modify-write would first wait until
 * all that was stored before, such as a message into a line that the peer's core has, has left the
 * processor. Any other thread ends the bias first, which takes microseconds (fence.h), and shares
 * a mutex with the others until one of them has taken the lock many times in succession,
 * which makes it the owner: that one and no other from then on.
 */
#ifndef KO_BIASED_LOCK_H
#define KO_BIASED_LOCK_H

#include "portable.h"

#include <pthread.h>
#include <stdbool.h>

struct ko_biased_lock {
    uint64_t owner;   /* the thread that need not take the mutex; 0: none; through portable.h */
    uint64_t is_used; /* by the owner, through portable.h */
    uint64_t holder;  /* of whoever has the lock: the owner, or 0: it has the mutex */
    bool is_split;    /* ko_fence_is_split */
    pthread_mutex_t mutex;
    pthread_cond_t left; /* the owner has, after its bias had ended */
    /* under the mutex */
    uint64_t favourite; /* the one that may be the owner; 0: not yet known */
    uint64_t last;      /* who had the mutex last, */
    unsigned streak;    /* and how many times in succession */
};

void ko_biased_lock_init(struct ko_biased_lock *lock);
void ko_biased_lock_destroy(struct ko_biased_lock *lock);

/* The slow parts of those below. */
void ko_biased_lock_take_mutex(struct ko_biased_lock *lock);
void ko_biased_lock_tell_left(struct ko_biased_lock *lock);

static inline uint64_t ko_biased_lock_self(void)
{
    return (uint64_t)(uintptr_t)pthread_self();
}

/* Not a second time by the thread that has it. */
static inline void ko_biased_lock_take(struct ko_biased_lock *lock)
{
    const uint64_t self = ko_biased_lock_self();

    if (ko_load_relaxed(&lock->owner) == self) {
        ko_store_first(&lock->is_used, 1, lock->is_split);
        if (ko_load_acquire(&lock->owner) == self) {
            lock->holder = self;
            return;
        }
        ko_store_release(&lock->is_used, 0);
        ko_biased_lock_tell_left(lock);
    }
    ko_biased_lock_take_mutex(lock);
}

static inline void ko_biased_lock_give(struct ko_biased_lock *lock)
{
    const uint64_t holder = lock->holder;

    if (!holder) {
        pthread_mutex_unlock(&lock->mutex);
        return;
    }
    ko_store_first(&lock->is_used, 0, lock->is_split);
    if (ko_load_relaxed(&lock->owner) != holder)
        ko_biased_lock_tell_left(lock);
}

/* False if somebody has it, perhaps this thread. */
bool ko_biased_lock_try(struct ko_biased_lock *lock);

/* Of whoever has it: once it has been given back, this thread touches it no more, and another may
 * destroy it. */
void ko_biased_lock_settle(struct ko_biased_lock *lock);

/* Gives the lock away until the condition is signalled, by whoever has the lock, or the time (NULL:
 * none) has come. */
void ko_biased_lock_wait(struct ko_biased_lock *lock, pthread_cond_t *condition,
                         const struct timespec *until);

#endif
