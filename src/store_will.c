/* SPDX-License-Identifier: MIT */
#include "store_will.h"

#include "status.h"

int ko_will_make(struct ko_will *will, struct ko_budget *budget, const uint8_t *args)
{
    struct ko_buffer made = {.budget = budget};
    kolo_bytes key = ko_list_next(&args);
    kolo_bytes value = ko_list_next(&args);
    int err = ko_buffer_reserve(&made, 16 + key.nbytes + value.nbytes);

    if (err)
        return err;
    ko_buffer_put_bytes(&made, key);
    ko_buffer_put_bytes(&made, value);
    ko_buffer_free(&will->bytes);
    will->bytes = made;
    return KOLO_OK;
}

/* What is too much by then is left undone: nobody is there to be told. */
void ko_will_carry_out(struct ko_will *will, struct ko_table *table)
{
    const uint8_t *at = ko_buffer_bytes(&will->bytes);
    kolo_bytes key;

    if (!at)
        return;
    key = ko_list_next(&at);
    (void)ko_table_append(table, key, ko_list_next(&at));
    ko_buffer_free(&will->bytes);
}
