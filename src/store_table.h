/* SPDX-License-Identifier: MIT
 *
 * store_table.h: the key-value engine behind the local store and the server: a hash table, and for
 * each key the waiters that want it, so that storing a key wakes only those. One thread at a time.
 * Every byte it holds counts against its cap; what would not fit fails with KOLO_E_NOMEM and
 * changes nothing.
 */
#ifndef KO_STORE_TABLE_H
#define KO_STORE_TABLE_H

#include "kolo.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ko_table;
struct ko_watch;

/* One wait for some keys. It belongs to whoever waits; all zero but for wake is ready for use. */
struct ko_waiter {
    /* The last missing key has come. Called from inside the function that stored it; may read the
     * table, must not change it. The waiter is free for a new ko_table_wait. */
    void (*wake)(struct ko_waiter *waiter);
    struct ko_watch *watches; /* NULL when not waiting */
    size_t nwatches;
    size_t nmissing;
};

int ko_table_open(size_t cap, struct ko_table **table);
/* All waits must have ended. NULL is allowed. */
void ko_table_free(struct ko_table *table);

/* False if absent. *value points into the table and is valid until the next change. */
bool ko_table_get(const struct ko_table *table, kolo_bytes key, kolo_bytes *value);
int64_t ko_table_count(const struct ko_table *table);

int ko_table_set(struct ko_table *table, kolo_bytes key, kolo_bytes value);
/* KOLO_E_INVALID if the value would become longer than KO_STORE_VALUE_MAX. */
int ko_table_append(struct ko_table *table, kolo_bytes key, kolo_bytes value);
/* KOLO_E_INVALID if the value is no decimal number, or the sum does not fit in 64 bits. */
int ko_table_add(struct ko_table *table, kolo_bytes key, int64_t delta, int64_t *sum);
/* The same for a value that is not in a table; key is for the error's text. */
int ko_table_sum(kolo_bytes key, kolo_bytes held, int64_t delta, int64_t *sum);
/* *held is what kolo_store_compare_set says; it points into the table or is expected itself. */
int ko_table_compare_set(struct ko_table *table, kolo_bytes key, kolo_bytes expected,
                         kolo_bytes desired, kolo_bytes *held);
/* True if it was there. Wakes nobody. */
bool ko_table_delete(struct ko_table *table, kolo_bytes key);

/* KOLO_OK if all keys exist. KO_AGAIN: waiter->wake will be called once, when each missing key has
 * been stored at least once from now on. */
int ko_table_wait(struct ko_table *table, const kolo_bytes *keys, size_t nkeys,
                  struct ko_waiter *waiter);
/* Ends a wait without a wake. Safe on a waiter that does not wait. */
void ko_table_unwait(struct ko_table *table, struct ko_waiter *waiter);

/* Bytes held at present. */
size_t ko_table_used(const struct ko_table *table);

#endif
