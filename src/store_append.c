/* SPDX-License-Identifier: MIT
 *
 * Appends. A value that is appended to has room behind it. Where that is used up it moves to more,
 * a large one a part at a time: until the last part has been copied it stays what and where it is,
 * for all. The move is the entry's, not the client's: who appends next goes on with it, and it ends
 * unfinished with the value that it is of. Then a long tail is put behind the value, a part at a
 * time as well, where nobody sees it before the last part; until then nobody else appends.
 */
#include "store_entry.h"

#include "fault.h"
#include "status.h"
#include "store.h"

#include <stdlib.h>
#include <string.h>

/* Up to so much is moved at once. */
enum { MOVED_AT_ONCE = 16 << 10 };

/* ---- room --------------------------------------------------------------------------------- */

/* Moves a small value, or one for which there is not room twice. */
static int widen(struct ko_table *table, struct ko_entry *entry, size_t room)
{
    const size_t more = entry->view ? room : room - entry->value_room;
    char *wider;

    if (entry->view || more > table->cap - table->used) /* who reads it keeps what it has */
        return ko_table_fail_full(table, more);
    wider = ko_fault(KO_FAULT_ALLOC) ? NULL : realloc(entry->value, room);
    if (!wider)
        return ko_fail(KOLO_E_NOMEM, "no memory for %zu bytes: the store's table", room);
    ko_walls_gave(&table->walls, entry->value_room);
    ko_walls_took(&table->walls, room);
    table->used += more;
    entry->value = wider;
    entry->value_room = room;
    return KOLO_OK;
}

void ko_entry_end_move(struct ko_table *table, struct ko_entry *entry)
{
    if (!entry->move)
        return;
    if (entry->move->append)
        *entry->move->append = (struct ko_append){0};
    ko_table_give(table, entry->move->value, entry->move->room);
    ko_table_give(table, entry->move, sizeof *entry->move);
    entry->move = NULL;
}

static int begin_move(struct ko_table *table, struct ko_entry *entry, size_t room)
{
    struct ko_move *move = ko_table_take(table, sizeof *move);

    if (!move)
        return KOLO_E_NOMEM;
    move->room = room;
    move->value = ko_table_make(table, room - 1);
    if (!move->value) {
        ko_table_give(table, move, sizeof *move);
        return KOLO_E_NOMEM;
    }
    entry->move = move;
    return KOLO_OK;
}

/* Copies up to nbytes. KO_AGAIN unless the value lies where it has moved to. */
static int move_some(struct ko_table *table, struct ko_entry *entry, size_t nbytes)
{
    struct ko_move *move = entry->move;
    size_t left = entry->value_nbytes - move->filled;
    const size_t part = left < nbytes ? left : nbytes;

    memcpy(move->value + move->filled, entry->value + move->filled, part);
    move->filled += part;
    if (part < left)
        return KO_AGAIN;
    ko_entry_leave_value(table, entry);
    entry->value = move->value;
    entry->value_room = move->room;
    move->value = NULL;
    ko_entry_end_move(table, entry);
    return KOLO_OK;
}

/* A value that is appended to gets half as much room again, where cap and limit leave that, so that
 * it is seldom moved, however many appends it is made of. */
static size_t room_for(const struct ko_table *table, const struct ko_entry *entry,
                       size_t tail_nbytes)
{
    const size_t room = entry->value_nbytes + tail_nbytes + 1;
    size_t spare = entry->value_nbytes / 2;

    if (spare > KO_STORE_VALUE_MAX + 1 - room)
        spare = KO_STORE_VALUE_MAX + 1 - room;
    if (room + spare - entry->value_room > table->cap - table->used)
        spare = 0;
    return room + spare;
}

static bool may_move(const struct ko_table *table, const struct ko_entry *entry, size_t room)
{
    return (entry->value_nbytes > MOVED_AT_ONCE || entry->view) &&
           room + sizeof *entry->move <= table->cap - table->used;
}

/* KO_AGAIN: not yet. Who has a long tail does not begin with that before a move has ended. */
static int make_room(struct ko_table *table, struct ko_entry *entry, size_t tail_nbytes,
                     size_t nbytes)
{
    size_t room;
    int err = KOLO_OK;

    if (entry->value_nbytes + tail_nbytes < entry->value_room &&
        !(entry->move && tail_nbytes > nbytes))
        return KOLO_OK;
    if (!entry->move) {
        room = room_for(table, entry, tail_nbytes);
        if (!may_move(table, entry, room))
            return widen(table, entry, room);
        err = begin_move(table, entry, room);
    }
    if (!err)
        err = move_some(table, entry, nbytes);
    if (!err && entry->value_nbytes + tail_nbytes >= entry->value_room)
        err = KO_AGAIN; /* others have appended meanwhile, or this needs more than who began */
    return err;
}

/* ---- the tail ----------------------------------------------------------------------------- */

/* Puts nbytes of it, behind those that have been put, into the memory that is left. */
static void put_part(const struct ko_entry *entry, kolo_bytes tail, size_t put, size_t nbytes)
{
    if (nbytes > 0)
        memcpy(entry->value + entry->value_nbytes + put, (const char *)tail.data + put, nbytes);
}

/* False: there is no memory to keep others from appending meanwhile. */
static bool begin_tail(struct ko_table *table, struct ko_entry *entry, struct ko_append *append)
{
    struct ko_move *move = ko_table_take(table, sizeof *move);

    if (!move)
        return false;
    move->append = append;
    append->entry = entry;
    entry->move = move;
    return true;
}

static int put_tail(struct ko_table *table, struct ko_entry *entry, kolo_bytes tail, size_t nbytes,
                    struct ko_append *append)
{
    const size_t left = tail.nbytes - append->put;
    struct ko_told was;

    if (left > nbytes && (append->entry || begin_tail(table, entry, append))) {
        put_part(entry, tail, append->put, nbytes);
        append->put += nbytes;
        return KO_AGAIN;
    }
    was = ko_entry_see(table, entry);
    put_part(entry, tail, append->put, left);
    ko_table_append_leave(table, append);
    entry->value_nbytes += tail.nbytes;
    ko_entry_tell(table, entry, was);
    ko_entry_wake_for_value(table, entry);
    return KOLO_OK;
}

void ko_table_append_leave(struct ko_table *table, struct ko_append *append)
{
    if (append->entry)
        ko_entry_end_move(table, append->entry);
}

/* ---- the operation ------------------------------------------------------------------------ */

static bool others_append(const struct ko_entry *entry, const struct ko_append *append)
{
    return entry->move && entry->move->append && entry->move->append != append;
}

int ko_table_append_some(struct ko_table *table, kolo_bytes key, kolo_bytes tail, size_t nbytes,
                         struct ko_append *append)
{
    struct ko_entry *entry = ko_table_find(table, key);
    kolo_bytes held = {0};
    int err;

    if (entry && entry->value)
        held = (kolo_bytes){entry->value, entry->value_nbytes};
    err = ko_store_check_append(key, held, tail);
    if (err)
        return err;
    if (!held.data)
        return ko_table_set(table, key, tail);
    if (others_append(entry, append))
        return KO_AGAIN;
    err = append->entry ? KOLO_OK : make_room(table, entry, tail.nbytes, nbytes);
    return err ? err : put_tail(table, entry, tail, nbytes, append);
}

int ko_table_append(struct ko_table *table, kolo_bytes key, kolo_bytes tail)
{
    struct ko_append append = {0};
    int err;

    do
        err = ko_table_append_some(table, key, tail, SIZE_MAX, &append);
    while (err == KO_AGAIN);
    return err;
}
