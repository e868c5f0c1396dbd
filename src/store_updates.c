/* SPDX-License-Identifier: MIT
 *
 * An update that waits keeps views of its values: nothing is copied before its turn comes. However
 * slowly the client reads, it is put into the session's output, so that the table's memory is not
 * kept for long.
 */
#include "store_updates.h"

#include "status.h"
#include "store_large.h"
#include "store_output.h"

#include <string.h>

struct update_value {
    struct ko_view *view; /* NULL: none */
    size_t nbytes, given;
    bool is_begun;
};

struct ko_update {
    STAILQ_ENTRY(ko_update) link;
    enum ko_change change;
    bool is_begun;
    struct update_value was, is;
    size_t key_nbytes;
    char key[];
};

static size_t size_of(const struct ko_update *update)
{
    return sizeof *update + update->key_nbytes;
}

/* ---- noting ------------------------------------------------------------------------------- */

static bool put_short(struct ko_session *session, enum ko_change change, kolo_bytes key,
                      kolo_bytes was, kolo_bytes is)
{
    if (ko_output_reserve(session, 25 + key.nbytes + was.nbytes + is.nbytes))
        return false;
    ko_buffer_put_u8(&session->out, (uint8_t)change);
    ko_buffer_put_bytes(&session->out, key);
    ko_buffer_put_bytes(&session->out, was);
    ko_buffer_put_bytes(&session->out, is);
    return true;
}

static struct update_value keep(const struct ko_told *told)
{
    return (struct update_value){.view = ko_view_keep(told->view), .nbytes = told->bytes.nbytes};
}

bool ko_updates_note(struct ko_session *session, enum ko_change change, kolo_bytes key,
                     const struct ko_told *was, const struct ko_told *is)
{
    const size_t nbytes = key.nbytes + was->bytes.nbytes + is->bytes.nbytes;
    struct ko_update *update;

    if (change == KO_CHANGE_LOST ||
        ko_output_nbytes(session) + session->updates.nbytes > KO_SESSION_UPDATES_BOUND)
        return false;
    if (STAILQ_EMPTY(&session->updates.list) && !session->giving.is_on &&
        nbytes <= KO_UPDATES_SHORT)
        return put_short(session, change, key, was->bytes, is->bytes);
    update = ko_table_take(session->service->table, sizeof *update + key.nbytes);
    if (!update)
        return false;
    update->change = change;
    update->was = keep(was);
    update->is = keep(is);
    update->key_nbytes = key.nbytes;
    if (key.nbytes > 0)
        memcpy(update->key, key.data, key.nbytes);
    STAILQ_INSERT_TAIL(&session->updates.list, update, link);
    session->updates.nbytes += sizeof *update + nbytes;
    return true;
}

/* ---- giving ------------------------------------------------------------------------------- */

static int give_head(struct ko_session *session, struct ko_update *update)
{
    int err = update->is_begun ? KOLO_OK : ko_output_reserve(session, 9 + update->key_nbytes);

    if (err || update->is_begun)
        return err;
    ko_buffer_put_u8(&session->out, (uint8_t)update->change);
    ko_buffer_put_bytes(&session->out, (kolo_bytes){update->key, update->key_nbytes});
    update->is_begun = true;
    return KOLO_OK;
}

static int give_value(struct ko_session *session, struct update_value *value)
{
    int err = value->is_begun ? KOLO_OK : ko_output_reserve(session, 8);

    if (err)
        return err;
    if (!value->is_begun)
        ko_buffer_put_u64(&session->out, value->nbytes);
    value->is_begun = true;
    return value->view
               ? ko_large_copy(session, ko_view_data(value->view), value->nbytes, &value->given)
               : KOLO_OK;
}

static void drop(struct ko_session *session, struct ko_update *update)
{
    struct ko_table *table = session->service->table;

    STAILQ_REMOVE_HEAD(&session->updates.list, link);
    session->updates.nbytes -= size_of(update) + update->was.nbytes + update->is.nbytes;
    ko_table_unview(table, update->was.view);
    ko_table_unview(table, update->is.view);
    ko_table_give(table, update, size_of(update));
}

int ko_updates_give(struct ko_session *session)
{
    struct ko_update *update;
    int err;

    while ((update = STAILQ_FIRST(&session->updates.list))) {
        if (session->left <= 0)
            return KO_AGAIN;
        ko_session_spend(session, update->key_nbytes);
        err = give_head(session, update);
        if (!err)
            err = give_value(session, &update->was);
        if (!err)
            err = give_value(session, &update->is);
        if (err)
            return err;
        drop(session, update);
    }
    return KOLO_OK;
}

bool ko_updates_drop_some(struct ko_session *session)
{
    struct ko_update *update;

    while (session->left > 0 && (update = STAILQ_FIRST(&session->updates.list))) {
        drop(session, update);
        ko_session_spend(session, 0);
    }
    return STAILQ_EMPTY(&session->updates.list);
}
