/* SPDX-License-Identifier: MIT */
#include "store_will.h"

#include "status.h"
#include "store_large.h"

#include <string.h>

int ko_will_make(struct ko_session *session, const uint8_t *args, size_t nbytes)
{
    struct ko_buffer *made = &session->will.made;
    struct ko_buffer earlier = session->will.bytes;
    size_t fill, part;
    int err;

    while ((fill = ko_buffer_fill(made)) < nbytes) {
        if (session->left <= 0)
            return KO_AGAIN;
        part = nbytes - fill < KO_LARGE_FROM ? nbytes - fill : KO_LARGE_FROM;
        err = ko_buffer_reserve(made, part);
        if (err)
            return err;
        memcpy(made->data + made->tail, args + fill, part);
        made->tail += part;
        if (fill > 2 * KO_LARGE_FROM)
            ko_buffer_stay(made);
        ko_session_spend(session, part);
    }
    session->will.bytes = *made;
    ko_buffer_consume(&earlier, ko_buffer_fill(&earlier));
    *made = earlier;
    return KOLO_OK;
}

/* What is too much by then is left undone: nobody is there to be told. */
bool ko_will_carry_out(struct ko_session *session)
{
    struct ko_buffer *bytes = &session->will.bytes;
    const uint8_t *at = ko_buffer_bytes(bytes);
    kolo_bytes key;

    if (ko_buffer_fill(bytes) == 0)
        return true;
    key = ko_list_next(&at);
    if (ko_large_append(session, key, ko_list_next(&at)) == KO_AGAIN)
        return false;
    ko_large_unmake(session);
    ko_table_append_leave(session->service->table, &session->appending);
    ko_buffer_consume(bytes, ko_buffer_fill(bytes));
    if (!ko_buffer_has_rest(bytes))
        ko_buffer_free(bytes);
    return true;
}
