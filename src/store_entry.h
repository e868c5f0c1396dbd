/* SPDX-License-Identifier: MIT
 *
 * store_entry.h: the inside of a table, for the files that make it up: store_table.c has the keys
 * and their values, store_append.c makes values longer, store_views.c keeps those that are read,
 * store_waits.c has all that happens when a key comes, store_wakes.c wakes those who waited for
 * that, store_news.c tells those who observe a key of its changes, store_scraps.c gives back large
 * pieces of memory. Threads as store_table.h says.
 */
#ifndef KO_STORE_ENTRY_H
#define KO_STORE_ENTRY_H

#include "store_table.h"
#include "store_walls.h"

#include <sys/queue.h>

TAILQ_HEAD(ko_watches, ko_watch);

/* One key that a waiter lacks. */
struct ko_watch {
    TAILQ_ENTRY(ko_watch) link;
    struct ko_entry *entry;     /* NULL once the key has come */
    struct ko_watch_list *list; /* NULL: it is a claim */
    struct ko_waiter *waiter;
};

/* Those who wait for one thing of a key. Once that has come they are the key's no more, all at
 * once, and are woken a few at a time, whatever becomes of the key meanwhile. */
struct ko_watch_list {
    struct ko_watches watches;        /* oldest first */
    struct ko_watch_list **home;      /* of their entry; NULL: it has come */
    STAILQ_ENTRY(ko_watch_list) link; /* of the lists that are to be woken */
};

/* One key that an observer looks at. */
struct ko_sight {
    TAILQ_ENTRY(ko_sight) of_entry;
    LIST_ENTRY(ko_sight) of_observer;
    struct ko_sights *sights; /* among these */
    struct ko_observer *observer;
    uint64_t since; /* so many changes had there been; of these it is not told */
};

/* Those who look at a key. */
struct ko_sights {
    TAILQ_HEAD(, ko_sight) list; /* oldest first */
    struct ko_entry *entry;
    size_t nnews; /* changes of it that are being told */
};

/* A change that is being told. */
struct ko_news {
    STAILQ_ENTRY(ko_news) link;
    struct ko_sights *sights;
    enum ko_change change;
    struct ko_told was, is;
    const struct ko_observer *knows; /* who has been told already; NULL: nobody has */
    bool is_taken;                   /* its memory is the table's */
};

struct ko_item {
    STAILQ_ENTRY(ko_item) link;
    char *value;
    size_t nbytes; /* its memory has one more */
};

/* The memory of a value that is read in pieces. */
struct ko_view {
    struct ko_entry *entry; /* whose value it is; NULL: nobody's any more */
    char *memory;
    size_t room; /* of that, once it is nobody's */
    size_t nusers;
};

/* What an append does with a value in pieces: first the value moves to where it has more room,
 * which is anybody's to go on with, then a long tail is put behind it, which is the append's own.
 */
struct ko_move {
    char *value; /* NULL: it lies where it is to be */
    size_t room, filled;
    struct ko_append *append; /* whose tail is being put behind it; NULL: none */
};

struct ko_entry {
    struct ko_entry *next; /* in its bucket */
    uint64_t hash;
    struct ko_watch_list *waits; /* for the key; NULL: nobody does */
    struct ko_watch_list *pops;  /* of those, the ones who may take a value out of the queue */
    struct ko_watch_list *meets; /* at the barrier of that name */
    struct ko_sights *sights;    /* NULL: nobody looks at it */
    STAILQ_HEAD(, ko_item) queue;
    size_t nqueued;
    size_t nclaims;                  /* poppers who have been woken and may still pop */
    char *value;                     /* NULL: none */
    size_t value_nbytes, value_room; /* room: of its memory */
    struct ko_move *move;            /* NULL: nothing is being appended in pieces */
    struct ko_view *view;            /* of it; NULL: nobody reads it in pieces */
    size_t key_nbytes;
    char key[];
};

/* Pieces of memory from there on are given back in parts. */
enum { KO_SCRAP_FROM = 1 << 20 };

/* The first blocks have as many buckets as there are, from then on each as many as all before. */
enum { KO_TABLE_FIRST_BUCKETS = 64, KO_TABLE_BLOCKS = 48 };

struct ko_table {
    struct ko_entry **blocks[KO_TABLE_BLOCKS]; /* of buckets */
    size_t nbuckets;                           /* a power of two; those below nsplit have a twin */
    size_t nsplit;                             /* twins: nbuckets and on */
    size_t nentries;
    int64_t nvalues;
    size_t used, cap;
    struct ko_walls walls;
    struct ko_wakes *later; /* where lists go that are to be woken; NULL: they are at once */
    struct {
        STAILQ_HEAD(, ko_news) list; /* oldest first, and told in this order */
        struct ko_sight *next;       /* who is to be told of the first */
        uint64_t nmade, ntold;
    } news;
    uint64_t secret[2];
};

/* KOLO_E_NOMEM: so many bytes do not fit. */
int ko_table_fail_full(const struct ko_table *table, size_t nbytes);

struct ko_entry *ko_table_find(const struct ko_table *table, kolo_bytes key);
/* Makes it if need be; NULL after ko_fail. */
struct ko_entry *ko_table_find_or_make(struct ko_table *table, kolo_bytes key);
void ko_table_drop_if_unused(struct ko_table *table, struct ko_entry *entry);
/* Its values are to be dropped by ko_table_drop_some; NULL: it has none. */
struct ko_item *ko_entry_leave_queue(struct ko_entry *entry);

/* The list that is at home in an entry, made if need be; NULL after ko_fail. */
struct ko_watch_list *ko_watch_list_at(struct ko_table *table, struct ko_watch_list **home);
/* One that is at home. Safe on NULL. */
void ko_watch_list_drop_if_empty(struct ko_table *table, struct ko_watch_list *list);

/* The wait is over, and its memory is given back. */
void ko_waiter_finish(struct ko_table *table, struct ko_waiter *waiter);

/* What the list at home there waits for has come: tells all. */
void ko_entry_wake_all(struct ko_table *table, struct ko_watch_list **home);

/* The key has a value, or a longer one: wakes all who wait for that. */
void ko_entry_wake_for_value(struct ko_table *table, struct ko_entry *entry);

/* A view of the value, which there is; NULL after ko_fail. */
struct ko_view *ko_entry_view(struct ko_table *table, struct ko_entry *entry);

/* The value's memory is the entry's no more: it is given back, or left to who reads it. */
void ko_entry_leave_value(struct ko_table *table, struct ko_entry *entry);

/* The value will not be there any more, or has moved. */
void ko_entry_end_move(struct ko_table *table, struct ko_entry *entry);

/* So much memory, at least KO_SCRAP_FROM, is for ko_wakes_drop_some. */
void ko_wakes_leave(struct ko_wakes *wakes, void *memory, size_t nbytes);

/* What observers are to be told of the value, before it changes, and then what it was and is. */
struct ko_told ko_entry_see(struct ko_table *table, struct ko_entry *entry);
void ko_entry_tell(struct ko_table *table, struct ko_entry *entry, struct ko_told was);
/* Tells *n of changes, which counts down, until so many changes have been told. */
void ko_table_tell_some(struct ko_table *table, uint64_t nchanges, size_t *n);

#endif
