/* SPDX-License-Identifier: MIT
 *
 * store_table.h: the key-value engine behind the local store and the server: a hash table, and for
 * each key the waiters that want it, so that storing a key wakes only those. A key may have a
 * value, a queue of values, or both; a queue that is empty is not there. One thread at a time.
 * Every byte it holds counts against its cap; what would not fit fails with KOLO_E_NOMEM and
 * changes nothing.
 */
#ifndef KO_STORE_TABLE_H
#define KO_STORE_TABLE_H

#include "kolo.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

struct ko_table;
struct ko_watch;
struct ko_watch_list;
struct ko_view;
struct ko_sight;
struct ko_item;
struct ko_entry;

/* One wait for some keys. It belongs to whoever waits; all zero but for wake is ready for use. */
struct ko_waiter {
    /* The last missing key has come. Called from inside the function that stored it, or
     * ko_table_wake_some, or that ended another's claim; may read the table, must not change it.
     * The waiter is free for a new ko_table_wait, unless it has a claim. */
    void (*wake)(struct ko_waiter *waiter);
    bool is_popper;           /* it may be about to take a value out of the queue it waits for */
    bool is_held;             /* it is being begun or ended in pieces, and is not woken */
    struct ko_watch *watches; /* NULL when not waiting */
    size_t nwatches;          /* that there is room for */
    size_t nwatched;          /* of them, in use */
    size_t nmissing;
};

/* Who is to be woken, and told, of what somebody has stored, and what is to be given back. All zero
 * but for STAILQ_INIT of the lists and scraps, and the observer, is nobody and nothing. */
struct ko_wakes {
    STAILQ_HEAD(, ko_watch_list) lists;
    STAILQ_HEAD(, ko_scrap) scraps;
    uint64_t news;                /* of the table's changes, up to this one are to be told */
    struct ko_observer *observer; /* his own: told at once of what he changes, if all before it has
                                     been told; NULL: he has none */
};

/* LOST: there is no memory to tell of it. */
enum ko_change {
    KO_CHANGE_UPDATED = 0,
    KO_CHANGE_CREATED = 1,
    KO_CHANGE_DELETED = 2,
    KO_CHANGE_LOST
};

/* A value as an observer is told of it. */
struct ko_told {
    kolo_bytes bytes;     /* valid during the call, or as long as the view is kept */
    struct ko_view *view; /* NULL: there is no value */
};

/* Somebody who is told of every change of some keys' values. All zero but for changed is ready. */
struct ko_observer {
    /* Called from inside the function that changes the value, or ko_table_wake_some, under the
     * rules of wake, but that it may keep the values' views. */
    void (*changed)(struct ko_observer *observer, enum ko_change change, kolo_bytes key,
                    const struct ko_told *was, const struct ko_told *is);
    LIST_HEAD(, ko_sight) sights;
};

/* An append in pieces; all zero at first. */
struct ko_append {
    struct ko_entry *entry; /* behind whose value its tail is being put; NULL: not yet */
    size_t put;             /* of the tail */
};

int ko_table_open(size_t cap, struct ko_table **table);
/* All waits must have ended. NULL is allowed. */
void ko_table_free(struct ko_table *table);

/* From now on memory goes back to the system in pieces. While it is untidy there are some: then
 * ko_table_tidy_some is to be called, for one of them, when there is nothing else to do. */
void ko_table_keep_apart(struct ko_table *table);
bool ko_table_is_untidy(const struct ko_table *table);
void ko_table_tidy_some(struct ko_table *table);

/* False if absent. *value points into the table and is valid until the next change. */
bool ko_table_get(const struct ko_table *table, kolo_bytes key, kolo_bytes *value);
/* The memory of the value that the key has, whose bytes stay as they are until ko_table_unview, so
 * that they can be read in pieces, between which others may change the table. Of views there may be
 * several. NULL after ko_fail: no memory for that. ko_table_unview is safe on NULL. */
struct ko_view *ko_table_view(struct ko_table *table, kolo_bytes key);
/* One that is there, once more; returns it. Safe on NULL. */
struct ko_view *ko_view_keep(struct ko_view *view);
const char *ko_view_data(const struct ko_view *view);
/* Whether it still is the key's; it may have become longer. */
bool ko_view_is_current(const struct ko_view *view);
void ko_table_unview(struct ko_table *table, struct ko_view *view);
/* True if the key has a value or a queue. */
bool ko_table_has(const struct ko_table *table, kolo_bytes key);
/* The keys that have a value; those with a queue alone do not count. */
int64_t ko_table_count(const struct ko_table *table);

/* Goes through these keys, in no order; a place that is all zero is the beginning. False behind the
 * last. Nothing may be stored meanwhile. */
struct ko_table_place {
    const struct ko_entry *entry;
    size_t bucket;
};
bool ko_table_next(const struct ko_table *table, struct ko_table_place *place, kolo_bytes *key);

/* The same in pieces, of some keys each, between which others may change the table: a key that is
 * there from the first to the last is visited once, one that comes or goes meanwhile once or not at
 * all. *place is 0 at first. KO_AGAIN: there may be more; else what visit says, whose errors end
 * it. */
typedef int (*ko_table_visitor)(void *context, kolo_bytes key);
int ko_table_visit(const struct ko_table *table, size_t *place, ko_table_visitor visit,
                   void *context);

int ko_table_set(struct ko_table *table, kolo_bytes key, kolo_bytes value);
/* The same in pieces: memory for a value of so many bytes, to be filled, and then stored or given
 * back. NULL after ko_fail. Only ko_table_set_made that succeeds takes it over. */
char *ko_table_make(struct ko_table *table, size_t nbytes);
int ko_table_set_made(struct ko_table *table, kolo_bytes key, char *made, size_t nbytes);
void ko_table_unmake(struct ko_table *table, char *made, size_t nbytes);
/* ko_table_set_made, or what takes a value over as it does; and the whole of that at once. */
typedef int (*ko_table_put_made)(struct ko_table *table, kolo_bytes key, char *made, size_t nbytes);
int ko_table_put(struct ko_table *table, kolo_bytes key, kolo_bytes value, ko_table_put_made put);
/* The tail lies in no value. KOLO_E_INVALID if the value would become longer than
 * KO_STORE_VALUE_MAX. Not while somebody appends to it in pieces. */
int ko_table_append(struct ko_table *table, kolo_bytes key, kolo_bytes tail);
/* The same in pieces, of which each copies at most so many bytes, of a value that has to move for
 * it or of a tail behind a value that is there, and between which others may change the table:
 * KO_AGAIN before the last of them, and while another puts a long tail there. */
int ko_table_append_some(struct ko_table *table, kolo_bytes key, kolo_bytes tail, size_t nbytes,
                         struct ko_append *append);
/* It is not gone on with. Safe on one that has not been begun, or has ended. */
void ko_table_append_leave(struct ko_table *table, struct ko_append *append);
/* KOLO_E_INVALID if the value is no decimal number, or the sum does not fit in 64 bits. */
int ko_table_add(struct ko_table *table, kolo_bytes key, int64_t delta, int64_t *sum);
/* The same for a value that is not in a table; key is for the error's text. */
int ko_table_sum(kolo_bytes key, kolo_bytes held, int64_t delta, int64_t *sum);
/* *held is what kolo_store_compare_set says; it points into the table or is expected itself. */
int ko_table_compare_set(struct ko_table *table, kolo_bytes key, kolo_bytes expected,
                         kolo_bytes desired, kolo_bytes *held);
/* Drops the value and the queue. True if one was there. Wakes nobody. */
bool ko_table_delete(struct ko_table *table, kolo_bytes key);
/* The same, but that what was in the queue is *left to be dropped, in pieces; NULL: nothing was. */
bool ko_table_delete_leaving(struct ko_table *table, kolo_bytes key, struct ko_item **left);
/* Drops up to n; true when all are. Safe on none. */
bool ko_table_drop_some(struct ko_table *table, struct ko_item **left, size_t n);

/* Puts value at the queue's end. Wakes all who wait for the key, but of the poppers only the one
 * that came first. */
int ko_table_queue_push(struct ko_table *table, kolo_bytes key, kolo_bytes value);
/* The same of one that ko_table_make has made, as with ko_table_set_made. */
int ko_table_queue_push_made(struct ko_table *table, kolo_bytes key, char *made, size_t nbytes);
/* How many values the queue has; if any, *value is the first, valid until the next change. */
int64_t ko_table_queue_first(const struct ko_table *table, kolo_bytes key, kolo_bytes *value);
/* Drops the first; there must be one. */
void ko_table_queue_pop(struct ko_table *table, kolo_bytes key);
/* The same, but that its value may be read, in pieces, until ko_table_unview. NULL after ko_fail,
 * and nothing is dropped. */
struct ko_view *ko_table_queue_take(struct ko_table *table, kolo_bytes key);

/* KOLO_OK if all keys exist. KO_AGAIN: waiter->wake will be called once, when each missing key has
 * been stored at least once from now on. A popper of one key that a queue's value has woken has a
 * claim to that: it is to call ko_table_unwait when it has popped, or will not. */
int ko_table_wait(struct ko_table *table, const kolo_bytes *keys, size_t nkeys,
                  struct ko_waiter *waiter);
/* The same in pieces, between which others may change the table: for each key that is missing by
 * then, of which n may still come. ko_table_wait_end says whether they have come meanwhile, and is
 * not called unless one was missing. */
int ko_table_wait_for(struct ko_table *table, kolo_bytes key, size_t n, struct ko_waiter *waiter);
int ko_table_wait_end(struct ko_table *table, struct ko_waiter *waiter);
/* Adds 1 to the number under key. KOLO_OK if it is size or more by that, which wakes all who wait
 * at the barrier of that name. KO_AGAIN: waiter->wake will be called once, when it is. */
int ko_table_barrier(struct ko_table *table, kolo_bytes key, int64_t size,
                     struct ko_waiter *waiter);
/* From now on those who wait for what comes, and who observe what changes, are not woken and told
 * by the function that stores it, but put into wakes, in time that does not depend on how many they
 * are, for ko_table_wake_some: whatever becomes of the key meanwhile. So is the memory of large
 * values that are dropped, for ko_wakes_drop_some. NULL: all is done at once, as at first. */
void ko_table_wake_later(struct ko_table *table, struct ko_wakes *wakes);
/* Wakes and tells up to n, in the order in which they came; true when all have been. Each is told
 * of all changes in the order of these, whoever makes them: so changes of others, which came
 * before, may have to be told first. */
bool ko_table_wake_some(struct ko_table *table, struct ko_wakes *wakes, size_t n);
/* All that has changed so far is among what wakes is to tell, if its observer observes anything. */
void ko_table_tell_first(const struct ko_table *table, struct ko_wakes *wakes);
/* Gives back a part of that memory, and returns how long the part is; there must be some. */
size_t ko_wakes_drop_some(struct ko_wakes *wakes);
bool ko_wakes_have_scraps(const struct ko_wakes *wakes);
/* Ends a wait without a wake, or a claim: a value that is left over wakes the next popper. Safe on
 * a waiter that has neither. */
void ko_table_unwait(struct ko_table *table, struct ko_waiter *waiter);
/* The same for up to n of its keys, of which it is woken no more. True when it has ended. */
bool ko_table_unwait_some(struct ko_table *table, struct ko_waiter *waiter, size_t n);
/* True if a queue's value has woken it and it has not called ko_table_unwait since. */
bool ko_waiter_has_claim(const struct ko_waiter *waiter);

/* observer is told of every change of key's value from now on, until ko_table_unobserve_some, which
 * ends it for up to n of its keys. True when it has ended for all. */
int ko_table_observe(struct ko_table *table, kolo_bytes key, struct ko_observer *observer);
bool ko_table_unobserve_some(struct ko_table *table, struct ko_observer *observer, size_t n);

/* Bytes held at present. */
size_t ko_table_used(const struct ko_table *table);

/* Zeroed memory that counts as held, for what belongs to the table's values, to be given back; NULL
 * after ko_fail. Much of it is to be had unset, which takes no longer than little. */
void *ko_table_take(struct ko_table *table, size_t nbytes);
void *ko_table_take_unset(struct ko_table *table, size_t nbytes);
void ko_table_give(struct ko_table *table, void *memory, size_t nbytes);

#endif
