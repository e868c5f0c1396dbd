/* SPDX-License-Identifier: MIT
 *
 * work.h: one asynchronous request. It has two owners, the user's handle and whoever carries it
 * out, and goes when both have let go.
 */
#ifndef KO_WORK_H
#define KO_WORK_H

#include "clock.h"
#include "kolo.h"
#include "status.h"

#include <stdatomic.h>
#include <stdbool.h>

/* A list that a thread waits for: until one of them is done. NULL are those that it has no more. */
struct ko_works {
    kolo_work *const *list;
    size_t n;
};

struct kolo_work {
    atomic_int users;
    atomic_bool is_done; /* set last: then status, text and completed_ns stand */
    unsigned forks;      /* that had led to the process in which it was begun */
    int status;
    char *text;                          /* of an error; NULL: none, or no memory for it */
    int64_t completed_ns;                /* of works that an engine runs */
    void (*run)(struct kolo_work *work); /* engine: does the work and completes it */
    /* Waits until done or the deadline; returns in either case, and when one of `others` is done
     * (NULL: none matter) that has the same `place`, but not if that is NULL. */
    void (*await)(struct kolo_work *work, const ko_deadline *deadline,
                  const struct ko_works *others);
    const void *place;      /* where it is waited for: only compared */
    struct kolo_work *next; /* in the queue of whoever carries it out */
};

/* Makes a work of memory of the caller's, which the other users must let go before it goes. */
void ko_work_init(struct kolo_work *work);

/* The end of one that ko_work_init made. */
void ko_work_clear(struct kolo_work *work);

/* Makes a work with one user: nbytes is the size of the caller's struct, which begins with a
 * kolo_work; the rest of it is not set. NULL after ko_fail. */
void *ko_work_new(size_t nbytes);
/* A work that was done before it could be asked for. It is everybody's, and never goes. */
kolo_work *ko_work_already_done(void);
void ko_work_retain(struct kolo_work *work);
void ko_work_release(struct kolo_work *work);

/* In a child of fork: what is not done by now is its parent's, and nobody carries it out here. */
void ko_work_leave_to_parent(void);

/* The place in the list of the first that is done, or the list's length. */
size_t ko_works_find_done(const struct ko_works *works);

/* Whether the wait for a work, and perhaps for others, is over. */
static inline bool ko_work_is_over(const struct kolo_work *work, const struct ko_works *others)
{
    return atomic_load(&work->is_done) || (others && ko_works_find_done(others) < others->n);
}

/* Ends it with this status, and the calling thread's error text if that is an error. */
void ko_work_complete(struct kolo_work *work, int status);

/* What went wrong with a work that is done, and its status, that as the calling thread's error. */
const char *ko_work_text(const struct kolo_work *work);
int ko_work_result(const struct kolo_work *work);

/* The moment of completion, as ko_now_ns; 0 before. */
int64_t ko_work_completed_ns(const kolo_work *work);

#endif
