/* SPDX-License-Identifier: MIT */
#include "work.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static atomic_uint forks; /* that led to this process: counted in the child, by its only thread */

void ko_work_leave_to_parent(void)
{
    atomic_fetch_add_explicit(&forks, 1, memory_order_relaxed);
}

static bool is_of_parent(const struct kolo_work *work)
{
    return !atomic_load(&work->is_done) &&
           work->forks != atomic_load_explicit(&forks, memory_order_relaxed);
}

static int fail_of_parent(void)
{
    return ko_fail(KOLO_E_INVALID, "the work is that of the process from which fork made this one, "
                                   "and goes on there");
}

void ko_work_init(struct kolo_work *work)
{
    atomic_init(&work->users, 1);
    atomic_init(&work->is_done, false);
    work->forks = atomic_load_explicit(&forks, memory_order_relaxed);
    work->status = KOLO_OK;
    work->text = NULL;
    work->completed_ns = 0;
    work->run = NULL;
    work->await = NULL;
    work->place = NULL;
    work->next = NULL;
}

void ko_work_clear(struct kolo_work *work)
{
    free(work->text);
}

void *ko_work_new(size_t nbytes)
{
    struct kolo_work *work = ko_alloc_unset(nbytes, "a work");

    if (work)
        ko_work_init(work);
    return work;
}

static struct kolo_work already_done = {.users = 1, .is_done = true}; /* never written */

kolo_work *ko_work_already_done(void)
{
    return &already_done;
}

void ko_work_retain(struct kolo_work *work)
{
    atomic_fetch_add(&work->users, 1);
}

void ko_work_release(struct kolo_work *work)
{
    /* The last user is alone with it, and need not count. */
    if (atomic_load(&work->users) > 1 && atomic_fetch_sub(&work->users, 1) > 1)
        return;
    ko_work_clear(work);
    free(work);
}

void ko_work_complete(struct kolo_work *work, int status)
{
    work->status = status;
    if (status)
        work->text = strdup(kolo_last_error());
    if (work->run)
        work->completed_ns = ko_now_ns();
    atomic_store_explicit(&work->is_done, true, memory_order_release); /* the three above */
}

const char *ko_work_text(const struct kolo_work *work)
{
    return work->text ? work->text : kolo_status_name(work->status);
}

int64_t ko_work_completed_ns(const kolo_work *work)
{
    return atomic_load(&work->is_done) ? work->completed_ns : 0;
}

int ko_work_result(const struct kolo_work *work)
{
    return work->status ? ko_fail_again(work->status, ko_work_text(work)) : KOLO_OK;
}

int kolo_work_wait(kolo_work *work, int timeout_ms)
{
    ko_deadline deadline;

    if (!work)
        return ko_fail(KOLO_E_INVALID, "kolo_work_wait: work is NULL");
    if (atomic_load(&work->is_done)) /* often, and then without asking for the time */
        return ko_work_result(work);
    if (is_of_parent(work))
        return fail_of_parent();
    deadline = ko_deadline_in(timeout_ms < 0 ? INT_MAX : timeout_ms);
    work->await(work, &deadline, NULL);
    if (!atomic_load(&work->is_done))
        return ko_fail(KOLO_E_TIMEOUT, "the work was not done within %d ms; it goes on",
                       timeout_ms);
    return ko_work_result(work);
}

int kolo_work_test(kolo_work *work, int *done)
{
    ko_deadline now;

    if (!work || !done)
        return ko_fail(KOLO_E_INVALID, "kolo_work_test: %s is NULL", work ? "done" : "work");
    if (is_of_parent(work))
        return fail_of_parent();
    if (!atomic_load(&work->is_done)) {
        now = ko_deadline_in(0);
        work->await(work, &now, NULL);
    }
    *done = atomic_load(&work->is_done);
    return *done ? ko_work_result(work) : KOLO_OK;
}

/* ---- any of several ------------------------------------------------------------------------ */

enum { LOOK_MS = 1 };

size_t ko_works_find_done(const struct ko_works *works)
{
    size_t i = 0;

    while (i < works->n && !(works->list[i] && atomic_load(&works->list[i]->is_done)))
        i++;
    return i;
}

/* The next one behind `at` in the list, which goes round; NULL: all are. */
static size_t find_next(const struct ko_works *works, size_t at)
{
    size_t i = 0;

    do
        at = at + 1 < works->n ? at + 1 : 0;
    while (!works->list[at] && ++i < works->n);
    return at;
}

/* Whether who waits for one of them sees the end of any. */
static bool are_of_one_place(const struct ko_works *works)
{
    const kolo_work *one = NULL;
    bool are = true;

    for (size_t i = 0; i < works->n && are; i++) {
        const kolo_work *work = works->list[i];

        are = !work || (work->place && (!one || work->place == one->place));
        one = work ? work : one;
    }
    return are;
}

/* Each place is looked at once, for as long as it does not wait. */
static void look_at_all(const struct ko_works *works)
{
    const ko_deadline now = ko_deadline_in(0);
    const void *place = NULL;

    for (size_t i = 0; i < works->n; i++) {
        kolo_work *work = works->list[i];

        if (work && !(place && work->place == place) && !atomic_load(&work->is_done))
            work->await(work, &now, works);
        place = work ? work->place : place;
    }
}

/* No thread can sleep at several places: it does so at each in turn, and not for long. */
static void await_scattered(const struct ko_works *works, const ko_deadline *deadline)
{
    size_t at = works->n - 1;

    do {
        const ko_deadline soon = ko_deadline_within(deadline, LOOK_MS);

        look_at_all(works);
        at = find_next(works, at);
        if (ko_works_find_done(works) == works->n)
            works->list[at]->await(works->list[at], &soon, works);
    } while (ko_works_find_done(works) == works->n && !ko_deadline_passed(deadline));
}

static bool has_one_of_parent(const struct ko_works *works)
{
    size_t i = 0;

    while (i < works->n && !(works->list[i] && is_of_parent(works->list[i])))
        i++;
    return i < works->n;
}

int kolo_work_wait_any(kolo_work *const *list, size_t nworks, int timeout_ms, size_t *index)
{
    const struct ko_works works = {list, nworks};
    ko_deadline deadline;
    size_t first;

    if (!index || (nworks && !list))
        return ko_fail(KOLO_E_INVALID, "kolo_work_wait_any: %s is NULL", index ? "works" : "index");
    *index = ko_works_find_done(&works);
    if (*index < nworks)
        return ko_work_result(list[*index]);
    first = nworks ? find_next(&works, nworks - 1) : 0;
    if (first == nworks || !list[first])
        return KOLO_OK;
    if (has_one_of_parent(&works))
        return fail_of_parent();
    deadline = ko_deadline_in(timeout_ms < 0 ? INT_MAX : timeout_ms);
    if (are_of_one_place(&works))
        list[first]->await(list[first], &deadline, &works);
    else
        await_scattered(&works, &deadline);
    *index = ko_works_find_done(&works);
    return *index < nworks
               ? ko_work_result(list[*index])
               : ko_fail(KOLO_E_TIMEOUT, "none of the works was done within %d ms; they go on",
                         timeout_ms);
}

const char *kolo_work_error(const kolo_work *work)
{
    return work && atomic_load(&work->is_done) && work->status ? ko_work_text(work) : "";
}

void kolo_work_free(kolo_work *work)
{
    if (!work || work == &already_done || is_of_parent(work))
        return;
    (void)kolo_work_wait(work, -1);
    ko_work_release(work);
}
