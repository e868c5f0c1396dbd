/* SPDX-License-Identifier: MIT
 *
 * poller_pool.h: few pollers for many owners, each of which sleeps only now and then. A poller,
 * with the descriptors that its owner has put there, stays that owner's until another one needs it.
 * So what never sleeps costs no descriptor, and thousands that do, a handful. Any thread; one at a
 * time for each owner, but for ko_pooled_wake.
 */
#ifndef KO_POLLER_POOL_H
#define KO_POLLER_POOL_H

#include "poller.h"

#include <pthread.h>
#include <stdint.h>

/* Lives as long as the pool. */
struct ko_pooled {
    struct ko_poller poller;
    const void *owner; /* the rest: under the pool's lock; NULL: nobody's, and nothing is in it */
    bool is_asleep;
    bool has_fd;      /* the pool's is in it */
    uint64_t entered; /* by it the one is found that has not been used for longest */
};

struct ko_poller_pool {
    pthread_mutex_t lock;
    struct ko_pooled **all;
    int n, cap;
    uint64_t entered;
    int fd;     /* is in the first few hundred pollers, or -1 */
    void *base; /* the owner of its events */
};

/* fd, whose events are base's, is to be in the pollers, all but those of hundreds of owners that
 * sleep at once; -1: none. Safe to close after a failure,
 * and when all zero. */
void ko_pool_open(struct ko_poller_pool *pool, int fd, void *base);
void ko_pool_close(struct ko_poller_pool *pool);

/* Before a sleep: *pooled, which may be NULL, becomes a poller of the owner's, and stays it until
 * ko_pool_leave. *is_new: nothing of the owner's is in it yet, and the first wait returns at once,
 * since something may have happened before there was anything to wake. */
int ko_pool_enter(struct ko_poller_pool *pool, const void *owner, struct ko_pooled *_Atomic *pooled,
                  bool *is_new);

/* What follows does nothing if pooled is NULL, or the owner's no more. */
void ko_pool_leave(struct ko_poller_pool *pool, const void *owner, struct ko_pooled *pooled);
/* Takes fd out. */
void ko_pool_remove(struct ko_poller_pool *pool, const void *owner, struct ko_pooled *pooled,
                    int fd);
/* The owner goes, and has taken everything out. */
void ko_pool_give_back(struct ko_poller_pool *pool, const void *owner, struct ko_pooled *pooled);

/* Wakes the owner if it sleeps, or will in the same poller; perhaps another one too. NULL: nobody
 * has slept yet. */
void ko_pooled_wake(struct ko_pooled *pooled);
void ko_pool_wake_all(struct ko_poller_pool *pool);

#endif
