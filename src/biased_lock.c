/* SPDX-License-Identifier: MIT
 *
 * The owner stores that it uses the lock and then looks whether it is still the owner; who has the
 * mutex stores that there is no owner, orders the accesses of all, and then looks whether the lock
 * is used: one of the two sees the other. Who has the mutex and has found the lock unused has the
 * lock, since only with the mutex does a thread become the owner. It is always the same one: one
 * that was the owner before another could undo by mistake what that one stores.
 */
#include "biased_lock.h"

#include "fence.h"

enum { STREAK = 64 }; /* times in succession that make an owner: a bias costs as much as it saves */

void ko_biased_lock_init(struct ko_biased_lock *lock)
{
    *lock = (struct ko_biased_lock){.is_split = ko_fence_is_split()};
    pthread_mutex_init(&lock->mutex, NULL);
    pthread_cond_init(&lock->left, NULL);
}

void ko_biased_lock_destroy(struct ko_biased_lock *lock)
{
    pthread_cond_destroy(&lock->left);
    pthread_mutex_destroy(&lock->mutex);
}

void ko_biased_lock_tell_left(struct ko_biased_lock *lock)
{
    pthread_mutex_lock(&lock->mutex);
    pthread_cond_broadcast(&lock->left);
    pthread_mutex_unlock(&lock->mutex);
}

/* With the mutex; true if nobody uses the lock. */
static bool end_bias(struct ko_biased_lock *lock)
{
    if (ko_load_relaxed(&lock->owner)) {
        ko_store_ordered(&lock->owner, 0);
        ko_fence_others();
    }
    return !ko_load_acquire(&lock->is_used);
}

/* With the mutex, waits for the lock. */
static void claim(struct ko_biased_lock *lock)
{
    while (!end_bias(lock))
        pthread_cond_wait(&lock->left, &lock->mutex);
    lock->holder = 0;
}

/* With the mutex and the lock: keeps the lock alone. */
static void become_owner(struct ko_biased_lock *lock, uint64_t self)
{
    lock->streak = 0;
    lock->favourite = self;
    lock->holder = self;
    ko_store_release(&lock->is_used, 1);
    ko_store_release(&lock->owner, self);
    pthread_mutex_unlock(&lock->mutex);
}

void ko_biased_lock_take_mutex(struct ko_biased_lock *lock)
{
    const uint64_t self = ko_biased_lock_self();

    pthread_mutex_lock(&lock->mutex);
    claim(lock);
    lock->streak = lock->last == self ? lock->streak + 1 : 0;
    lock->last = self;
    if (lock->streak >= STREAK && (!lock->favourite || lock->favourite == self))
        become_owner(lock, self);
}

bool ko_biased_lock_try(struct ko_biased_lock *lock)
{
    if (ko_load_relaxed(&lock->owner) == ko_biased_lock_self()) {
        if (ko_load_acquire(&lock->is_used))
            return false;
        ko_biased_lock_take(lock);
        return true;
    }
    if (pthread_mutex_trylock(&lock->mutex))
        return false;
    if (end_bias(lock)) {
        lock->holder = 0;
        return true;
    }
    pthread_mutex_unlock(&lock->mutex);
    return false;
}

void ko_biased_lock_settle(struct ko_biased_lock *lock)
{
    if (!lock->holder)
        return;
    pthread_mutex_lock(&lock->mutex);
    lock->holder = 0;
    ko_store_release(&lock->owner, 0);
    ko_store_release(&lock->is_used, 0);
    pthread_cond_broadcast(&lock->left);
}

void ko_biased_lock_wait(struct ko_biased_lock *lock, pthread_cond_t *condition,
                         const struct timespec *until)
{
    ko_biased_lock_settle(lock);
    if (until)
        pthread_cond_timedwait(condition, &lock->mutex, until);
    else
        pthread_cond_wait(condition, &lock->mutex);
    claim(lock);
}
