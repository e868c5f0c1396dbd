/* SPDX-License-Identifier: MIT
 *
 * Those who wait for the same are a list, and what they wait for takes the whole list off its key
 * when it comes. So that takes no longer for many than for one, and a list is woken in pieces
 * without a look at the key, which may have gone, and for which others may wait again.
 */
#include "store_entry.h"

#include <stdint.h>

struct ko_watch_list *ko_watch_list_at(struct ko_table *table, struct ko_watch_list **home)
{
    struct ko_watch_list *list = *home ? *home : ko_table_take(table, sizeof *list);

    if (!list || *home)
        return list;
    TAILQ_INIT(&list->watches);
    list->home = home;
    *home = list;
    return list;
}

void ko_watch_list_drop_if_empty(struct ko_table *table, struct ko_watch_list *list)
{
    if (!list || !TAILQ_EMPTY(&list->watches))
        return;
    *list->home = NULL;
    ko_table_give(table, list, sizeof *list);
}

void ko_waiter_finish(struct ko_table *table, struct ko_waiter *waiter)
{
    ko_table_give(table, waiter->watches, waiter->nwatches * sizeof *waiter->watches);
    waiter->watches = NULL;
    waiter->nwatches = waiter->nwatched = 0;
    waiter->nmissing = 0;
    waiter->is_held = false;
}

static void wake_first(struct ko_table *table, struct ko_watch_list *list)
{
    struct ko_watch *watch = TAILQ_FIRST(&list->watches);
    struct ko_waiter *waiter = watch->waiter;

    TAILQ_REMOVE(&list->watches, watch, link);
    watch->entry = NULL;
    if (--waiter->nmissing > 0 || waiter->is_held)
        return;
    ko_waiter_finish(table, waiter);
    waiter->wake(waiter);
}

void ko_table_wake_later(struct ko_table *table, struct ko_wakes *wakes)
{
    table->later = wakes;
}

static void wake_list(struct ko_table *table, struct ko_watch_list *list, size_t *n)
{
    for (; *n > 0 && !TAILQ_EMPTY(&list->watches); --*n)
        wake_first(table, list);
}

bool ko_table_wake_some(struct ko_table *table, struct ko_wakes *wakes, size_t n)
{
    struct ko_watch_list *list;

    while ((list = STAILQ_FIRST(&wakes->lists))) {
        wake_list(table, list, &n);
        if (!TAILQ_EMPTY(&list->watches))
            return false;
        STAILQ_REMOVE_HEAD(&wakes->lists, link);
        ko_table_give(table, list, sizeof *list);
    }
    ko_table_tell_some(table, wakes->news, &n);
    return table->news.ntold >= wakes->news;
}

void ko_entry_wake_all(struct ko_table *table, struct ko_watch_list **home)
{
    struct ko_watch_list *list = *home;
    size_t n = SIZE_MAX;

    if (!list)
        return;
    *home = NULL;
    list->home = NULL;
    if (table->later) {
        STAILQ_INSERT_TAIL(&table->later->lists, list, link);
        return;
    }
    wake_list(table, list, &n);
    ko_table_give(table, list, sizeof *list);
}
