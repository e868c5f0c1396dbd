/* SPDX-License-Identifier: MIT
 *
 * Changes that observers are to be told of stand in one line, in which they were made, and each is
 * told to one observer after the other, whoever is at work by then: so everybody hears of all that
 * he looks at in its order, however many others look on. A change keeps views of the values that it
 * is about. Who begins to look behind a change stands behind those who are told of it; who ends is
 * told no more.
 */
#include "store_entry.h"

#include "status.h"

#include <stdint.h>

/* ---- who looks ---------------------------------------------------------------------------- */

/* Looks among those of the key and those of the observer, whichever are fewer; NULL: he does not.
 */
static struct ko_sight *sight_of(const struct ko_sights *sights, const struct ko_observer *observer)
{
    struct ko_sight *of_key = TAILQ_FIRST(&sights->list);
    struct ko_sight *of_observer = LIST_FIRST(&observer->sights);

    while (of_key && of_observer) {
        if (of_key->observer == observer)
            return of_key;
        if (of_observer->sights == sights)
            return of_observer;
        of_key = TAILQ_NEXT(of_key, of_entry);
        of_observer = LIST_NEXT(of_observer, of_observer);
    }
    return NULL;
}

static struct ko_sights *sights_of(struct ko_table *table, struct ko_entry *entry)
{
    struct ko_sights *sights = entry->sights ? entry->sights : ko_table_take(table, sizeof *sights);

    if (!sights || entry->sights)
        return sights;
    TAILQ_INIT(&sights->list);
    sights->entry = entry;
    entry->sights = sights;
    return sights;
}

static void drop_if_empty(struct ko_table *table, struct ko_sights *sights)
{
    struct ko_entry *entry = sights->entry;

    if (!TAILQ_EMPTY(&sights->list) || sights->nnews > 0)
        return;
    entry->sights = NULL;
    ko_table_give(table, sights, sizeof *sights);
    ko_table_drop_if_unused(table, entry);
}

static int look(struct ko_table *table, struct ko_sights *sights, struct ko_observer *observer)
{
    struct ko_sight *sight = ko_table_take(table, sizeof *sight);

    if (!sight)
        return KOLO_E_NOMEM;
    sight->sights = sights;
    sight->observer = observer;
    sight->since = table->news.nmade;
    TAILQ_INSERT_TAIL(&sights->list, sight, of_entry);
    LIST_INSERT_HEAD(&observer->sights, sight, of_observer);
    return KOLO_OK;
}

int ko_table_observe(struct ko_table *table, kolo_bytes key, struct ko_observer *observer)
{
    struct ko_entry *entry = ko_table_find_or_make(table, key);
    struct ko_sights *sights = entry ? sights_of(table, entry) : NULL;
    int err = KOLO_OK;

    if (entry && !sights)
        ko_table_drop_if_unused(table, entry);
    if (!sights)
        return KOLO_E_NOMEM;
    if (!sight_of(sights, observer))
        err = look(table, sights, observer);
    drop_if_empty(table, sights);
    return err;
}

bool ko_table_unobserve_some(struct ko_table *table, struct ko_observer *observer, size_t n)
{
    struct ko_sight *sight;

    for (; n > 0 && (sight = LIST_FIRST(&observer->sights)); n--) {
        if (table->news.next == sight)
            table->news.next = TAILQ_NEXT(sight, of_entry);
        TAILQ_REMOVE(&sight->sights->list, sight, of_entry);
        LIST_REMOVE(sight, of_observer);
        drop_if_empty(table, sight->sights);
        ko_table_give(table, sight, sizeof *sight);
    }
    return LIST_EMPTY(&observer->sights);
}

/* ---- telling ------------------------------------------------------------------------------ */

static void tell(struct ko_observer *observer, const struct ko_news *news)
{
    const struct ko_entry *entry = news->sights->entry;

    observer->changed(observer, news->change, (kolo_bytes){entry->key, entry->key_nbytes},
                      &news->was, &news->is);
}

/* Who is to be told of the first change; NULL: all have been. */
static struct ko_sight *next_sight(const struct ko_table *table)
{
    struct ko_sight *next = table->news.next;

    return next && next->since <= table->news.ntold ? next : NULL;
}

static void begin_first(struct ko_table *table)
{
    const struct ko_news *first = STAILQ_FIRST(&table->news.list);

    table->news.next = first ? TAILQ_FIRST(&first->sights->list) : NULL;
}

static void end_first(struct ko_table *table)
{
    struct ko_news *news = STAILQ_FIRST(&table->news.list);
    struct ko_sights *sights = news->sights;

    STAILQ_REMOVE_HEAD(&table->news.list, link);
    table->news.ntold++;
    ko_table_unview(table, news->was.view);
    ko_table_unview(table, news->is.view);
    if (news->is_taken)
        ko_table_give(table, news, sizeof *news);
    sights->nnews--;
    begin_first(table);
    drop_if_empty(table, sights);
}

void ko_table_tell_some(struct ko_table *table, uint64_t nchanges, size_t *n)
{
    struct ko_sight *sight;

    for (; *n > 0 && table->news.ntold < nchanges; --*n) {
        sight = next_sight(table);
        if (sight)
            table->news.next = TAILQ_NEXT(sight, of_entry);
        if (sight && sight->observer != STAILQ_FIRST(&table->news.list)->knows)
            tell(sight->observer, STAILQ_FIRST(&table->news.list));
        if (!next_sight(table))
            end_first(table);
    }
}

void ko_table_tell_first(const struct ko_table *table, struct ko_wakes *wakes)
{
    if (!LIST_EMPTY(&wakes->observer->sights))
        wakes->news = table->news.nmade;
}

/* ---- what has changed --------------------------------------------------------------------- */

static bool is_seen(const struct ko_entry *entry)
{
    return entry->sights && !TAILQ_EMPTY(&entry->sights->list);
}

/* Without observers nothing is kept. */
struct ko_told ko_entry_see(struct ko_table *table, struct ko_entry *entry)
{
    struct ko_told told = {{entry->value, entry->value_nbytes}, NULL};

    if (entry->value && is_seen(entry))
        told.view = ko_entry_view(table, entry);
    return told;
}

static bool is_lost(const struct ko_told *told)
{
    return told->bytes.data && !told->view;
}

/* was->bytes.data of a value that is lost points nowhere, but tells that there was one. */
static enum ko_change change_of(const struct ko_told *was, const struct ko_told *is)
{
    if (is_lost(was) || is_lost(is))
        return KO_CHANGE_LOST;
    if (!was->view)
        return KO_CHANGE_CREATED;
    return is->view ? KO_CHANGE_UPDATED : KO_CHANGE_DELETED;
}

/* Who changes what he looks at himself is told before he is answered, unless that would be out of
 * its order. */
static void tell_who_changes(const struct ko_table *table, struct ko_news *news)
{
    struct ko_observer *observer = table->later ? table->later->observer : NULL;

    if (!observer || !STAILQ_EMPTY(&table->news.list) || !sight_of(news->sights, observer))
        return;
    tell(observer, news);
    news->knows = observer;
}

static void stand_in_line(struct ko_table *table, struct ko_news *news)
{
    const bool is_first = STAILQ_EMPTY(&table->news.list);

    STAILQ_INSERT_TAIL(&table->news.list, news, link);
    table->news.nmade++;
    news->sights->nnews++;
    if (is_first)
        begin_first(table);
}

/* Where there is no memory for it to be told later it is told at once, behind all that came before
 * it. */
static void tell_all(struct ko_table *table, struct ko_news *news)
{
    struct ko_news *kept = table->later ? ko_table_take(table, sizeof *kept) : NULL;
    size_t n = SIZE_MAX;

    if (kept) {
        *kept = *news;
        kept->is_taken = true;
        stand_in_line(table, kept);
        table->later->news = table->news.nmade;
        return;
    }
    stand_in_line(table, news);
    ko_table_tell_some(table, table->news.nmade, &n);
}

/* One that had neither value is told nothing. */
void ko_entry_tell(struct ko_table *table, struct ko_entry *entry, struct ko_told was)
{
    struct ko_news news = {.sights = entry->sights, .was = was, .is = ko_entry_see(table, entry)};

    if (!is_seen(entry) || (!was.bytes.data && !news.is.bytes.data)) {
        ko_table_unview(table, was.view);
        ko_table_unview(table, news.is.view);
        return;
    }
    news.change = change_of(&news.was, &news.is);
    tell_who_changes(table, &news);
    tell_all(table, &news);
}
