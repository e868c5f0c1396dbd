/* SPDX-License-Identifier: MIT
 *
 * A value that is read in pieces: its memory stays as it is until the last reader is done with it,
 * whatever becomes of the key meanwhile. Appends put their bytes behind those that are read.
 */
#include "store_entry.h"

static struct ko_view *new_view(struct ko_table *table, struct ko_entry *entry, char *memory)
{
    struct ko_view *view = ko_table_take(table, sizeof *view);

    if (!view)
        return NULL;
    view->entry = entry;
    view->memory = memory;
    return view;
}

struct ko_view *ko_view_keep(struct ko_view *view)
{
    if (view)
        view->nusers++;
    return view;
}

struct ko_view *ko_entry_view(struct ko_table *table, struct ko_entry *entry)
{
    if (!entry->view)
        entry->view = new_view(table, entry, entry->value);
    return ko_view_keep(entry->view);
}

struct ko_view *ko_table_view(struct ko_table *table, kolo_bytes key)
{
    return ko_entry_view(table, ko_table_find(table, key));
}

struct ko_view *ko_table_queue_take(struct ko_table *table, kolo_bytes key)
{
    struct ko_item *item = STAILQ_FIRST(&ko_table_find(table, key)->queue);
    struct ko_view *view = new_view(table, NULL, item->value);

    if (!view)
        return NULL;
    view->room = item->nbytes + 1;
    view->nusers = 1;
    item->value = NULL;
    ko_table_queue_pop(table, key);
    return view;
}

const char *ko_view_data(const struct ko_view *view)
{
    return view->memory;
}

bool ko_view_is_current(const struct ko_view *view)
{
    return view->entry;
}

void ko_table_unview(struct ko_table *table, struct ko_view *view)
{
    if (!view || --view->nusers > 0)
        return;
    if (view->entry)
        view->entry->view = NULL;
    else
        ko_table_give(table, view->memory, view->room);
    ko_table_give(table, view, sizeof *view);
}

void ko_entry_leave_value(struct ko_table *table, struct ko_entry *entry)
{
    struct ko_view *view = entry->view;

    if (!view) {
        ko_table_give(table, entry->value, entry->value_room);
        return;
    }
    view->entry = NULL;
    view->room = entry->value_room;
    entry->view = NULL;
}
