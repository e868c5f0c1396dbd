/* SPDX-License-Identifier: MIT
 *
 * What happens when a key comes: waits for keys, barriers and queues. Waiters are served in the
 * order in which they came.
 *
 * A value of a queue is one popper's. It wakes no other, since clients of PyTorch take it for an
 * error to come too late. Yet whoever has been woken may die, give up, or never have wanted to pop:
 * a WAIT does not say what it is for. So a woken popper keeps its watch as a claim, and when that
 * ends without a pop the value wakes the next one.
 */
#include "store_entry.h"

#include "status.h"
#include "store.h"

#include <assert.h>
#include <string.h>

/* ---- waiting ------------------------------------------------------------------------------ */

/* Gives each value that is nobody's yet to the popper that came first. */
static void wake_poppers(struct ko_table *table, struct ko_entry *entry)
{
    struct ko_watch *watch;

    while (entry->nclaims < entry->nqueued && entry->pops) {
        watch = TAILQ_FIRST(&entry->pops->watches);
        TAILQ_REMOVE(&entry->pops->watches, watch, link);
        ko_watch_list_drop_if_empty(table, entry->pops);
        watch->list = NULL;
        entry->nclaims++;
        watch->waiter->nmissing = 0;
        watch->waiter->wake(watch->waiter);
    }
}

/* What it waited for may have come, and the entry have gone. */
static void leave(struct ko_table *table, struct ko_watch *watch)
{
    struct ko_watch_list *list = watch->list;

    if (!watch->entry)
        return;
    if (list)
        TAILQ_REMOVE(&list->watches, watch, link);
    if (list && !list->home)
        return;
    if (list) {
        ko_watch_list_drop_if_empty(table, list);
    } else {
        watch->entry->nclaims--;
        wake_poppers(table, watch->entry);
    }
    ko_table_drop_if_unused(table, watch->entry);
}

bool ko_table_unwait_some(struct ko_table *table, struct ko_waiter *waiter, size_t n)
{
    for (; n > 0 && waiter->nwatched > 0; n--)
        leave(table, &waiter->watches[--waiter->nwatched]);
    waiter->is_held = waiter->nwatched > 0;
    if (!waiter->is_held)
        ko_waiter_finish(table, waiter);
    return !waiter->is_held;
}

void ko_table_unwait(struct ko_table *table, struct ko_waiter *waiter)
{
    ko_table_unwait_some(table, waiter, waiter->nwatched);
}

bool ko_waiter_has_claim(const struct ko_waiter *waiter)
{
    return waiter->watches && waiter->nmissing == 0 && !waiter->is_held;
}

static int watch_next(struct ko_table *table, struct ko_waiter *waiter, struct ko_entry *entry,
                      struct ko_watch_list **home)
{
    struct ko_watch_list *list = ko_watch_list_at(table, home);
    struct ko_watch *watch;

    if (!list) {
        ko_table_drop_if_unused(table, entry);
        return KOLO_E_NOMEM;
    }
    watch = &waiter->watches[waiter->nwatched++];
    waiter->nmissing++;
    *watch = (struct ko_watch){.entry = entry, .list = list, .waiter = waiter};
    TAILQ_INSERT_TAIL(&list->watches, watch, link);
    return KOLO_OK;
}

static int take_watches(struct ko_table *table, struct ko_waiter *waiter, size_t n)
{
    assert(!waiter->watches);
    waiter->watches = ko_table_take_unset(table, n * sizeof *waiter->watches);
    waiter->nwatches = waiter->watches ? n : 0;
    return waiter->watches ? KOLO_OK : KOLO_E_NOMEM;
}

int ko_table_wait(struct ko_table *table, const kolo_bytes *keys, size_t nkeys,
                  struct ko_waiter *waiter)
{
    struct ko_entry *entry;
    size_t nmissing = 0;

    for (size_t i = 0; i < nkeys; i++)
        nmissing += !ko_table_has(table, keys[i]);
    if (nmissing == 0)
        return KOLO_OK;
    if (take_watches(table, waiter, nmissing))
        return KOLO_E_NOMEM;
    for (size_t i = 0; i < nkeys; i++) {
        if (ko_table_has(table, keys[i]))
            continue;
        entry = ko_table_find_or_make(table, keys[i]);
        if (!entry || watch_next(table, waiter, entry,
                                 waiter->is_popper && nkeys == 1 ? &entry->pops : &entry->waits)) {
            ko_table_unwait(table, waiter);
            return KOLO_E_NOMEM;
        }
    }
    return KO_AGAIN;
}

/* A key that is given very often in one wait, so that its coming would wake very many watches, is
 * mostly one that the waiter has just begun to wait for: once is enough. */
static bool waits_already(const struct ko_waiter *waiter, const struct ko_watch_list *list)
{
    const struct ko_watch *last = list ? TAILQ_LAST(&list->watches, ko_watches) : NULL;

    return last && last->waiter == waiter;
}

int ko_table_wait_for(struct ko_table *table, kolo_bytes key, size_t n, struct ko_waiter *waiter)
{
    struct ko_entry *entry;
    struct ko_watch_list **home;

    if (!waiter->watches && take_watches(table, waiter, n))
        return KOLO_E_NOMEM;
    waiter->is_held = true;
    entry = ko_table_find_or_make(table, key);
    if (!entry)
        return KOLO_E_NOMEM;
    home = waiter->is_popper ? &entry->pops : &entry->waits;
    return waits_already(waiter, *home) ? KOLO_OK : watch_next(table, waiter, entry, home);
}

int ko_table_wait_end(struct ko_table *table, struct ko_waiter *waiter)
{
    waiter->is_held = false;
    if (waiter->nmissing > 0)
        return KO_AGAIN;
    ko_waiter_finish(table, waiter);
    return KOLO_OK;
}

/* Nobody will wait who was to. */
static void end_meeting(struct ko_table *table, struct ko_entry *entry, struct ko_waiter *waiter)
{
    ko_waiter_finish(table, waiter);
    ko_watch_list_drop_if_empty(table, entry->meets);
    ko_table_drop_if_unused(table, entry);
}

/* Its memory comes first: once counted, it must be able to wait. */
int ko_table_barrier(struct ko_table *table, kolo_bytes key, int64_t size, struct ko_waiter *waiter)
{
    struct ko_entry *entry = ko_table_find_or_make(table, key);
    int64_t come;
    int err;

    if (!entry)
        return KOLO_E_NOMEM;
    err = ko_watch_list_at(table, &entry->meets) ? take_watches(table, waiter, 1) : KOLO_E_NOMEM;
    if (!err)
        err = ko_table_add(table, key, 1, &come);
    if (!err && come < size) {
        (void)watch_next(table, waiter, entry, &entry->meets); /* its list is there */
        return KO_AGAIN;
    }
    if (!err)
        ko_entry_wake_all(table, &entry->meets);
    end_meeting(table, entry, waiter);
    return err;
}

/* ---- queues ------------------------------------------------------------------------------- */

int ko_table_queue_push_made(struct ko_table *table, kolo_bytes key, char *made, size_t nbytes)
{
    struct ko_item *item = ko_table_take(table, sizeof *item);
    struct ko_entry *entry = item ? ko_table_find_or_make(table, key) : NULL;

    if (!entry) {
        ko_table_give(table, item, sizeof *item);
        return KOLO_E_NOMEM;
    }
    item->value = made;
    item->nbytes = nbytes;
    STAILQ_INSERT_TAIL(&entry->queue, item, link);
    entry->nqueued++;
    ko_entry_wake_all(table, &entry->waits);
    wake_poppers(table, entry);
    return KOLO_OK;
}

int ko_table_queue_push(struct ko_table *table, kolo_bytes key, kolo_bytes value)
{
    return ko_table_put(table, key, value, ko_table_queue_push_made);
}

int64_t ko_table_queue_first(const struct ko_table *table, kolo_bytes key, kolo_bytes *value)
{
    const struct ko_entry *entry = ko_table_find(table, key);
    const struct ko_item *item = entry ? STAILQ_FIRST(&entry->queue) : NULL;

    if (!item)
        return 0;
    *value = (kolo_bytes){item->value, item->nbytes};
    return (int64_t)entry->nqueued;
}

static void drop(struct ko_table *table, struct ko_item *item)
{
    ko_table_give(table, item->value, item->nbytes + 1);
    ko_table_give(table, item, sizeof *item);
}

void ko_table_queue_pop(struct ko_table *table, kolo_bytes key)
{
    struct ko_entry *entry = ko_table_find(table, key);
    struct ko_item *item = STAILQ_FIRST(&entry->queue);

    STAILQ_REMOVE_HEAD(&entry->queue, link);
    entry->nqueued--;
    drop(table, item);
    ko_table_drop_if_unused(table, entry);
}

struct ko_item *ko_entry_leave_queue(struct ko_entry *entry)
{
    struct ko_item *first = STAILQ_FIRST(&entry->queue);

    STAILQ_INIT(&entry->queue);
    entry->nqueued = 0;
    return first;
}

bool ko_table_drop_some(struct ko_table *table, struct ko_item **left, size_t n)
{
    struct ko_item *item;

    for (; n > 0 && (item = *left); n--) {
        *left = STAILQ_NEXT(item, link);
        drop(table, item);
    }
    return !*left;
}
