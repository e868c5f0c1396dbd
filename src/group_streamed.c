/* SPDX-License-Identifier: MIT
 *
 * Nobody carries such a work out: who asks for it looks where the stream is. The group lists those
 * that are not known to be done, and has a part in each.
 */
#include "group_streamed.h"

#include "gpu.h"

#include <limits.h>

struct ko_streamed {
    struct kolo_work work;
    kolo_group *group;
    /* under the group's streaming: */
    struct ko_gpu_mark *mark; /* behind the call, in the stream; NULL: it is done */
    int nasking;              /* threads that look at it */
    struct ko_streamed **link, *next;
};

static void enlist(struct ko_streamed *streamed)
{
    kolo_group *group = streamed->group;

    ko_work_retain(&streamed->work);
    pthread_mutex_lock(&group->streaming);
    streamed->next = group->first_streamed;
    streamed->link = &group->first_streamed;
    if (streamed->next)
        streamed->next->link = &streamed->next;
    group->first_streamed = streamed;
    pthread_mutex_unlock(&group->streaming);
}

/* Under streaming. What the stream did behind a failure of the group's is no result. */
static void complete(struct ko_streamed *streamed)
{
    *streamed->link = streamed->next;
    if (streamed->next)
        streamed->next->link = streamed->link;
    streamed->work.completed_ns = ko_now_ns();
    ko_work_complete(&streamed->work, ko_group_check(streamed->group));
}

/* The mark, if it is this thread's to look at. */
static struct ko_gpu_mark *begin_asking(struct ko_streamed *streamed)
{
    struct ko_gpu_mark *mark;

    pthread_mutex_lock(&streamed->group->streaming);
    mark = atomic_load(&streamed->work.is_done) ? NULL : streamed->mark;
    streamed->nasking += mark != NULL;
    pthread_mutex_unlock(&streamed->group->streaming);
    return mark;
}

/* The last to look lets go of the mark. */
static void end_asking(struct ko_streamed *streamed, bool is_over)
{
    kolo_group *group = streamed->group;
    struct ko_gpu_mark *mark = NULL;
    bool is_first;

    pthread_mutex_lock(&group->streaming);
    is_first = is_over && !atomic_load(&streamed->work.is_done);
    if (is_first)
        complete(streamed);
    if (!--streamed->nasking && atomic_load(&streamed->work.is_done)) {
        mark = streamed->mark;
        streamed->mark = NULL;
    }
    pthread_mutex_unlock(&group->streaming);
    ko_gpu_let_go(group->gpu, mark);
    if (is_first)
        ko_work_release(&streamed->work);
}

/* In a group that has failed the stream goes on when nobody writes into the call's buffers any more
 * (group_let_go.h). */
static int await_settled(kolo_group *group, const struct ko_gpu_mark *mark,
                         const ko_deadline *deadline)
{
    const ko_deadline settling = ko_gpu_settling(group->gpu);
    const bool is_last = settling.at_ns <= deadline->at_ns;

    return ko_gpu_settle_mark(group->gpu, mark, is_last ? &settling : deadline) || is_last
               ? KOLO_OK
               : KOLO_E_TIMEOUT;
}

static void await_streamed(struct kolo_work *work, const ko_deadline *deadline,
                           const struct ko_works *others)
{
    struct ko_streamed *streamed = (struct ko_streamed *)work;
    kolo_group *group = streamed->group;
    struct ko_gpu_mark *mark = begin_asking(streamed);
    int err;

    (void)others; /* they have no place */
    if (!mark)
        return;
    err = ko_gpu_await_mark(group->gpu, mark, deadline);
    if (err && ko_group_has_failed(group))
        err = await_settled(group, mark, deadline);
    if (err && err != KOLO_E_TIMEOUT && !ko_group_has_failed(group))
        (void)ko_group_fail(group, err, kolo_last_error());
    end_asking(streamed, err != KOLO_E_TIMEOUT);
}

struct ko_streamed *ko_streamed_new(kolo_group *group)
{
    struct ko_streamed *streamed = ko_work_new(sizeof *streamed);

    if (!streamed)
        return NULL;
    streamed->work.await = await_streamed;
    streamed->group = group;
    streamed->mark = NULL;
    streamed->nasking = 0;
    return streamed;
}

kolo_work *ko_streamed_begin(struct ko_streamed *streamed, int err)
{
    if (!err)
        err = ko_gpu_mark(streamed->group->gpu, false, &streamed->mark);
    if (err)
        ko_work_complete(&streamed->work, err);
    else
        enlist(streamed);
    return &streamed->work;
}

void ko_streamed_forget(struct ko_streamed *streamed)
{
    ko_work_release(&streamed->work);
}

/* One that is not known to be done, with a part in it for the caller. */
static struct ko_streamed *find_any(kolo_group *group)
{
    struct ko_streamed *streamed;

    pthread_mutex_lock(&group->streaming);
    streamed = group->first_streamed;
    if (streamed)
        ko_work_retain(&streamed->work);
    pthread_mutex_unlock(&group->streaming);
    return streamed;
}

bool ko_streamed_any(kolo_group *group)
{
    const ko_deadline now = ko_deadline_in(0);
    struct ko_streamed *streamed = find_any(group);
    bool is_done = true;

    while (streamed && is_done) {
        await_streamed(&streamed->work, &now, NULL);
        is_done = atomic_load(&streamed->work.is_done);
        ko_work_release(&streamed->work);
        streamed = is_done ? find_any(group) : NULL;
    }
    return !is_done;
}

void ko_streamed_end(kolo_group *group)
{
    const ko_deadline never = ko_deadline_in(INT_MAX);
    struct ko_streamed *streamed;

    while ((streamed = find_any(group))) {
        await_streamed(&streamed->work, &never, NULL);
        ko_work_release(&streamed->work);
    }
}
