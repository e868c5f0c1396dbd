/* SPDX-License-Identifier: MIT
 *
 * Whoever enters takes the poller that it had, else one that is nobody's, else a new one while
 * there are few, else the one that has been used least lately; only if all are asleep there are
 * more. One that changes hands gets another epoll descriptor, since that empties it at once, but
 * keeps what it is woken by: a waker may hold it who does not know yet.
 */
#include "poller_pool.h"

#include "status.h"

#include <stdlib.h>

enum { KEPT = 16, WITH_FD = 250 /* the kernel lets an epoll descriptor be in 500 others */ };

void ko_pool_open(struct ko_poller_pool *pool, int fd, void *base)
{
    *pool = (struct ko_poller_pool){.fd = fd, .base = base};
    pthread_mutex_init(&pool->lock, NULL);
}

void ko_pool_close(struct ko_poller_pool *pool)
{
    for (int i = 0; i < pool->n; i++) {
        ko_poller_close(&pool->all[i]->poller);
        free(pool->all[i]);
    }
    free(pool->all);
    pthread_mutex_destroy(&pool->lock);
    *pool = (struct ko_poller_pool){.fd = -1};
}

/* ---- finding one ------------------------------------------------------------------------- */

static int make_room(struct ko_poller_pool *pool)
{
    const int cap = pool->cap ? 2 * pool->cap : KEPT;
    struct ko_pooled **grown;

    if (pool->n < pool->cap)
        return KOLO_OK;
    grown = realloc(pool->all, (size_t)cap * sizeof(struct ko_pooled *));
    if (!grown)
        return ko_fail(KOLO_E_NOMEM, "no memory for %d pollers", cap);
    pool->all = grown;
    pool->cap = cap;
    return KOLO_OK;
}

static int make(struct ko_poller_pool *pool, struct ko_pooled **made)
{
    struct ko_pooled *pooled;
    int err = make_room(pool);

    if (err)
        return err;
    pooled = ko_alloc(sizeof *pooled, "a poller");
    if (!pooled)
        return KOLO_E_NOMEM;
    err = ko_poller_open(&pooled->poller);
    pooled->has_fd = pool->fd >= 0 && pool->n < WITH_FD;
    if (!err && pooled->has_fd)
        err = ko_poller_add(&pooled->poller, pool->fd, KO_POLL_IN, pool->base);
    if (err) {
        ko_poller_close(&pooled->poller);
        free(pooled);
        return err;
    }
    pool->all[pool->n++] = pooled;
    *made = pooled;
    return KOLO_OK;
}

/* One that is nobody's, else the one that was entered longest ago; NULL if all are asleep. */
static struct ko_pooled *find_unused(const struct ko_poller_pool *pool)
{
    struct ko_pooled *best = NULL;

    for (int i = 0; i < pool->n; i++) {
        struct ko_pooled *pooled = pool->all[i];

        if (!pooled->owner)
            return pooled;
        if (!pooled->is_asleep && (!best || pooled->entered < best->entered))
            best = pooled;
    }
    return best;
}

/* Takes all out that its owner has put there. */
static int empty(struct ko_poller_pool *pool, struct ko_pooled *pooled)
{
    int err = ko_poller_renew(&pooled->poller);

    if (!err && pooled->has_fd)
        err = ko_poller_add(&pooled->poller, pool->fd, KO_POLL_IN, pool->base);
    return err;
}

static int find(struct ko_poller_pool *pool, struct ko_pooled **found)
{
    struct ko_pooled *pooled = find_unused(pool);
    int err = KOLO_OK;

    if (!pooled || (pooled->owner && pool->n < KEPT))
        return make(pool, found);
    if (pooled->owner) {
        pooled->owner = pool; /* who never enters: if it fails, it is to be emptied once more */
        err = empty(pool, pooled);
    }
    *found = pooled;
    return err;
}

int ko_pool_enter(struct ko_poller_pool *pool, const void *owner, struct ko_pooled *_Atomic *pooled,
                  bool *is_new)
{
    struct ko_pooled *mine = *pooled;
    int err = KOLO_OK;

    pthread_mutex_lock(&pool->lock);
    *is_new = !mine || mine->owner != owner;
    if (*is_new)
        err = find(pool, &mine);
    if (!err) {
        mine->owner = owner;
        mine->is_asleep = true;
        mine->entered = ++pool->entered;
    }
    pthread_mutex_unlock(&pool->lock);
    if (err || !*is_new)
        return err;
    *pooled = mine; /* before it wakes: whoever does not see it yet has said why before that */
    ko_poller_wake(&mine->poller);
    return KOLO_OK;
}

void ko_pool_leave(struct ko_poller_pool *pool, const void *owner, struct ko_pooled *pooled)
{
    if (!pooled)
        return;
    pthread_mutex_lock(&pool->lock);
    if (pooled->owner == owner)
        pooled->is_asleep = false;
    pthread_mutex_unlock(&pool->lock);
}

/* ---- the owners' ------------------------------------------------------------------------- */

void ko_pool_remove(struct ko_poller_pool *pool, const void *owner, struct ko_pooled *pooled,
                    int fd)
{
    if (!pooled)
        return;
    pthread_mutex_lock(&pool->lock);
    if (pooled->owner == owner)
        ko_poller_remove(&pooled->poller, fd);
    pthread_mutex_unlock(&pool->lock);
}

void ko_pool_give_back(struct ko_poller_pool *pool, const void *owner, struct ko_pooled *pooled)
{
    if (!pooled)
        return;
    pthread_mutex_lock(&pool->lock);
    if (pooled->owner == owner)
        pooled->owner = NULL;
    pthread_mutex_unlock(&pool->lock);
}

void ko_pooled_wake(struct ko_pooled *pooled)
{
    if (pooled)
        ko_poller_wake(&pooled->poller);
}

void ko_pool_wake_all(struct ko_poller_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    for (int i = 0; i < pool->n; i++)
        if (pool->all[i]->owner)
            ko_poller_wake(&pool->all[i]->poller);
    pthread_mutex_unlock(&pool->lock);
}
