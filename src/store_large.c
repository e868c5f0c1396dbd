/* SPDX-License-Identifier: MIT
 *
 * A value that is put is copied to memory of the table's before it is the key's, and one that is
 * given is kept by a view of it; neither is seen half done.
 */
#include "store_large.h"

#include "status.h"
#include "store_output.h"

#include <string.h>

/* ---- into the table ----------------------------------------------------------------------- */

/* Copies what its turn has time for of a large value. */
static int make_value(struct ko_session *session, kolo_bytes value)
{
    char *made = session->making.value;
    size_t part;

    if (!made) {
        made = ko_table_make(session->service->table, value.nbytes);
        if (!made)
            return KOLO_E_NOMEM;
        session->making.value = made;
        session->making.nbytes = value.nbytes;
        session->making.filled = 0;
    }
    while (session->making.filled < value.nbytes) {
        if (session->left <= 0)
            return KO_AGAIN;
        part = value.nbytes - session->making.filled;
        part = part < KO_LARGE_FROM ? part : KO_LARGE_FROM;
        memcpy(made + session->making.filled, (const char *)value.data + session->making.filled,
               part);
        session->making.filled += part;
        ko_session_spend(session, part);
    }
    return KOLO_OK;
}

static int put_made(struct ko_session *session, kolo_bytes key, kolo_bytes value,
                    ko_table_put_made put)
{
    int err = make_value(session, value);

    if (!err)
        err = put(session->service->table, key, session->making.value, value.nbytes);
    if (!err)
        session->making.value = NULL;
    return err;
}

void ko_large_unmake(struct ko_session *session)
{
    ko_table_unmake(session->service->table, session->making.value, session->making.nbytes);
    session->making.value = NULL;
}

int ko_large_put(struct ko_session *session, const uint8_t **at, ko_table_put_made put)
{
    kolo_bytes key = ko_list_next(at);
    kolo_bytes value = ko_list_next(at);

    return value.nbytes > KO_LARGE_FROM ? put_made(session, key, value, put)
                                        : ko_table_put(session->service->table, key, value, put);
}

/* Who has set the key meanwhile is appended to. */
int ko_large_append(struct ko_session *session, kolo_bytes key, kolo_bytes tail)
{
    struct ko_table *table = session->service->table;
    kolo_bytes held;
    int err;

    if (tail.nbytes > KO_LARGE_FROM && !ko_table_get(table, key, &held))
        return put_made(session, key, tail, ko_table_set_made);
    ko_large_unmake(session);
    do {
        if (session->left <= 0)
            return KO_AGAIN;
        err = ko_table_append_some(table, key, tail, KO_LARGE_FROM, &session->appending);
        if (err == KO_AGAIN)
            ko_session_spend(session, KO_LARGE_FROM);
    } while (err == KO_AGAIN);
    return err;
}

/* ---- out of it ---------------------------------------------------------------------------- */

/* However slowly the client reads, so that the table's memory is not kept for long. */
int ko_large_copy(struct ko_session *session, const char *from, size_t nbytes, size_t *given)
{
    struct ko_buffer *out = &session->out;
    size_t left, part;
    int err;

    while (*given < nbytes) {
        if (session->left <= 0)
            return KO_AGAIN;
        left = nbytes - *given;
        part = left < KO_LARGE_FROM ? left : KO_LARGE_FROM;
        err = ko_output_reserve(session, part);
        if (err)
            return err;
        memcpy(out->data + out->tail, from + *given, part);
        out->tail += part;
        *given += part;
        ko_session_spend(session, part);
    }
    return KOLO_OK;
}

int ko_large_go_on(struct ko_session *session, const char *value)
{
    int err = ko_large_copy(session, value, session->giving.nbytes, &session->giving.given);

    if (err)
        return err;
    ko_table_unview(session->service->table, session->giving.view);
    session->giving.view = NULL;
    session->giving.is_on = false;
    return KOLO_OK;
}

int ko_large_give(struct ko_session *session, struct ko_view *view, kolo_bytes value)
{
    int err;

    session->giving.is_on = true;
    session->giving.view = view;
    session->giving.nbytes = value.nbytes;
    session->giving.given = 0;
    err = ko_output_reserve(session, 8);
    if (err)
        return err;
    ko_buffer_put_u64(&session->out, (uint64_t)value.nbytes);
    return ko_large_go_on(session, value.data);
}

/* A key that has a queue alone counts as there for those who wait for it; its value is empty. */
static kolo_bytes value_of(const struct ko_session *session, kolo_bytes key)
{
    kolo_bytes value = {0};

    ko_table_get(session->service->table, key, &value);
    return value;
}

static int give_at_once(struct ko_session *session, kolo_bytes value)
{
    int err = ko_output_reserve(session, 8 + value.nbytes);

    if (!err)
        ko_buffer_put_bytes(&session->out, value);
    return err;
}

int ko_large_give_value(struct ko_session *session, kolo_bytes key)
{
    struct ko_view *view = NULL;
    kolo_bytes value;

    if (session->giving.is_on)
        return ko_large_go_on(session, ko_view_data(session->giving.view));
    value = value_of(session, key);
    if (value.nbytes > KO_LARGE_FROM)
        view = ko_table_view(session->service->table, key);
    return view ? ko_large_give(session, view, value) : give_at_once(session, value);
}

/* ---- against it --------------------------------------------------------------------------- */

static void end_comparing(struct ko_session *session)
{
    ko_table_unview(session->service->table, session->comparing.view);
    session->comparing.view = NULL;
}

/* Begins again with a value that has been replaced. Without a view it is compared at once, which
 * with a small one costs less. */
static int compare(struct ko_session *session, kolo_bytes key, kolo_bytes expected, bool *is_equal)
{
    size_t left, part;

    if (session->comparing.view && !ko_view_is_current(session->comparing.view))
        end_comparing(session);
    if (!session->comparing.view && expected.nbytes > KO_LARGE_FROM) {
        session->comparing.view = ko_table_view(session->service->table, key);
        session->comparing.nbytes = 0;
    }
    if (!session->comparing.view) {
        *is_equal = !memcmp(value_of(session, key).data, expected.data, expected.nbytes);
        return KOLO_OK;
    }
    for (*is_equal = true; *is_equal && session->comparing.nbytes < expected.nbytes;
         session->comparing.nbytes += part) {
        if (session->left <= 0)
            return KO_AGAIN;
        left = expected.nbytes - session->comparing.nbytes;
        part = left < KO_LARGE_FROM ? left : KO_LARGE_FROM;
        *is_equal = !memcmp(ko_view_data(session->comparing.view) + session->comparing.nbytes,
                            (const char *)expected.data + session->comparing.nbytes, part);
        ko_session_spend(session, part);
    }
    return KOLO_OK;
}

/* Of large values: the new one is made before the old one is compared, so that nothing comes
 * between the comparison and the exchange. */
int ko_large_compare_set(struct ko_session *session, kolo_bytes key, kolo_bytes expected,
                         kolo_bytes desired)
{
    struct ko_table *table = session->service->table;
    bool is_equal = value_of(session, key).nbytes == expected.nbytes;
    int err = KOLO_OK;

    if (is_equal)
        err = make_value(session, desired);
    if (!err && is_equal && expected.nbytes > 0)
        err = compare(session, key, expected, &is_equal);
    if (err == KO_AGAIN)
        return err;
    end_comparing(session);
    if (!err && !is_equal)
        ko_large_unmake(session);
    else if (!err)
        err = ko_table_set_made(table, key, session->making.value, desired.nbytes);
    if (!err)
        session->making.value = NULL;
    return err;
}
