/* SPDX-License-Identifier: MIT
 *
 * Chained hashing over buckets whose number grows by one at a time (linear hashing): each new key
 * beyond as many as there are splits the next bucket in two, so that no key waits until a whole
 * table has been filled anew. They lie in blocks that never move, each as long as all before it. An
 * entry is there because its key has a value or a queue, or because somebody waits for it or looks
 * at it, and goes when none of these is so. The hash is keyed with random bytes (SipHash-1-3), so
 * that nobody can send keys that all land in one bucket.
 */
#include "store_table.h"
#include "store_entry.h"

#include "fault.h"
#include "status.h"
#include "store.h"

#include <assert.h>
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/queue.h>
#include <sys/random.h>

/* NUMBER_LONGEST: with more digits, zeros before it, a text is no number: to read it would keep all
 * others waiting. */
enum { NUMBER_TEXT = 24, NUMBER_LONGEST = 4096 };

/* Of a block of buckets. */
enum { MAPPED_FROM = 4 << 10 };

/* ---- hashing ------------------------------------------------------------------------------ */

static uint64_t rotate(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

static void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[2] += v[3];
    v[1] = rotate(v[1], 13) ^ v[0];
    v[3] = rotate(v[3], 16) ^ v[2];
    v[0] = rotate(v[0], 32);
    v[2] += v[1];
    v[0] += v[3];
    v[1] = rotate(v[1], 17) ^ v[2];
    v[3] = rotate(v[3], 21) ^ v[0];
    v[2] = rotate(v[2], 32);
}

static void sip_word(uint64_t v[4], uint64_t word)
{
    v[3] ^= word;
    sip_round(v);
    v[0] ^= word;
}

static uint64_t hash_of(const struct ko_table *table, kolo_bytes key)
{
    uint64_t v[4] = {table->secret[0] ^ 0x736f6d6570736575u, table->secret[1] ^ 0x646f72616e646f6du,
                     table->secret[0] ^ 0x6c7967656e657261u,
                     table->secret[1] ^ 0x7465646279746573u};
    const char *at = key.data;
    size_t left = key.nbytes;
    uint64_t word;

    for (; left >= 8; at += 8, left -= 8) {
        memcpy(&word, at, 8);
        sip_word(v, word);
    }
    word = 0;
    if (left > 0)
        memcpy(&word, at, left);
    sip_word(v, word ^ (uint64_t)key.nbytes << 56);
    v[2] ^= 0xff;
    for (int i = 0; i < 3; i++)
        sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* ---- entries ------------------------------------------------------------------------------ */

int ko_table_fail_full(const struct ko_table *table, size_t nbytes)
{
    return ko_fail(
        KOLO_E_NOMEM,
        "the store is full: %zu of %zu bytes (KOLO_STORE_BYTES) are used, %zu more are needed",
        table->used, table->cap, nbytes);
}

/* Memory that counts; NULL after ko_fail. */
static void *take(struct ko_table *table, size_t nbytes, void *(*alloc)(size_t, const char *))
{
    void *memory;

    if (nbytes > table->cap - table->used) {
        (void)ko_table_fail_full(table, nbytes);
        return NULL;
    }
    memory = alloc(nbytes, "the store's table");
    if (memory)
        table->used += nbytes;
    return memory;
}

/* Of malloc, for what comes and goes. */
static void *take_piece(struct ko_table *table, size_t nbytes, void *(*alloc)(size_t, const char *))
{
    void *piece = take(table, nbytes, alloc);

    if (piece)
        ko_walls_took(&table->walls, nbytes);
    return piece;
}

void *ko_table_take(struct ko_table *table, size_t nbytes)
{
    return take_piece(table, nbytes, ko_alloc);
}

void *ko_table_take_unset(struct ko_table *table, size_t nbytes)
{
    return take_piece(table, nbytes, ko_alloc_unset);
}

void ko_table_give(struct ko_table *table, void *memory, size_t nbytes)
{
    if (!memory)
        return;
    table->used -= nbytes;
    if (nbytes >= KO_SCRAP_FROM && table->later)
        ko_wakes_leave(table->later, memory, nbytes);
    else
        free(memory);
    ko_walls_gave(&table->walls, nbytes);
}

static int block_of(size_t i)
{
    const size_t n = i / KO_TABLE_FIRST_BUCKETS;

    return n > 0 ? 64 - __builtin_clzll(n) : 0;
}

static struct ko_entry **bucket_at(const struct ko_table *table, size_t i)
{
    const size_t highest = i < KO_TABLE_FIRST_BUCKETS ? 0 : (size_t)1 << (63 - __builtin_clzll(i));

    return &table->blocks[block_of(i)][i - highest];
}

static struct ko_entry **bucket_of(const struct ko_table *table, uint64_t hash)
{
    size_t i = hash & (table->nbuckets - 1);

    if (i < table->nsplit)
        i = hash & (2 * table->nbuckets - 1);
    return bucket_at(table, i);
}

static struct ko_entry **slot_of(const struct ko_table *table, kolo_bytes key, uint64_t hash)
{
    struct ko_entry **slot = bucket_of(table, hash);

    while (*slot && ((*slot)->hash != hash || (*slot)->key_nbytes != key.nbytes ||
                     (key.nbytes > 0 && memcmp((*slot)->key, key.data, key.nbytes))))
        slot = &(*slot)->next;
    return slot;
}

struct ko_entry *ko_table_find(const struct ko_table *table, kolo_bytes key)
{
    return *slot_of(table, key, hash_of(table, key));
}

static size_t block_nbytes(int block)
{
    return ((size_t)KO_TABLE_FIRST_BUCKETS << (block > 0 ? block - 1 : 0)) *
           sizeof(struct ko_entry *);
}

/* Zeroed by the system, a page at a time, as it is touched: what malloc has had before calloc
 * clears all at once. */
static void *map(size_t nbytes, const char *what)
{
    void *memory = ko_fault(KO_FAULT_ALLOC) ? MAP_FAILED
                                            : mmap(NULL, nbytes, PROT_READ | PROT_WRITE,
                                                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (memory != MAP_FAILED)
        return memory;
    (void)ko_fail(KOLO_E_NOMEM, "no memory for %zu bytes: %s", nbytes, what);
    return NULL;
}

/* The block behind those that are there. */
static bool add_block(struct ko_table *table, int block)
{
    const size_t nbytes = block_nbytes(block);

    if (block == KO_TABLE_BLOCKS)
        return false;
    if (!table->blocks[block])
        table->blocks[block] = take(table, nbytes, nbytes < MAPPED_FROM ? ko_alloc : map);
    return table->blocks[block];
}

static void free_block(struct ko_table *table, int block)
{
    const size_t nbytes = block_nbytes(block);

    if (nbytes < MAPPED_FROM)
        free(table->blocks[block]);
    else if (table->blocks[block])
        munmap(table->blocks[block], nbytes);
}

/* Splits the next bucket. Without memory for that the chains just grow longer. */
static void grow(struct ko_table *table)
{
    struct ko_entry **from, **to;

    if (!add_block(table, block_of(table->nbuckets)))
        return;
    from = bucket_at(table, table->nsplit);
    to = bucket_at(table, table->nbuckets + table->nsplit);
    while (*from) {
        if ((*from)->hash & table->nbuckets) {
            *to = *from;
            *from = (*from)->next;
            to = &(*to)->next;
            *to = NULL;
        } else {
            from = &(*from)->next;
        }
    }
    if (++table->nsplit == table->nbuckets) {
        table->nbuckets *= 2;
        table->nsplit = 0;
    }
}

/* The entry of key, made if need be; NULL after ko_fail. */
struct ko_entry *ko_table_find_or_make(struct ko_table *table, kolo_bytes key)
{
    uint64_t hash = hash_of(table, key);
    struct ko_entry *entry = *slot_of(table, key, hash);
    struct ko_entry **slot;

    if (entry)
        return entry;
    if (table->nentries >= table->nbuckets + table->nsplit)
        grow(table);
    entry = ko_table_take(table, sizeof *entry + key.nbytes);
    if (!entry)
        return NULL;
    entry->hash = hash;
    entry->key_nbytes = key.nbytes;
    if (key.nbytes > 0)
        memcpy(entry->key, key.data, key.nbytes);
    STAILQ_INIT(&entry->queue);
    slot = slot_of(table, key, hash);
    *slot = entry;
    table->nentries++;
    return entry;
}

void ko_table_drop_if_unused(struct ko_table *table, struct ko_entry *entry)
{
    struct ko_entry **slot = bucket_of(table, entry->hash);

    if (entry->value || entry->nqueued > 0 || entry->nclaims > 0 || entry->waits || entry->pops ||
        entry->meets || entry->sights)
        return;
    while (*slot != entry)
        slot = &(*slot)->next;
    *slot = entry->next;
    table->nentries--;
    ko_table_give(table, entry, sizeof *entry + entry->key_nbytes);
}

/* A value's memory is at least one byte longer than it, so that an empty value is not NULL. */
static void drop_value(struct ko_table *table, struct ko_entry *entry)
{
    if (entry->value)
        table->nvalues--;
    ko_entry_end_move(table, entry);
    ko_entry_leave_value(table, entry);
    entry->value = NULL;
    entry->value_nbytes = entry->value_room = 0;
}

/* ---- the operations ----------------------------------------------------------------------- */

bool ko_table_get(const struct ko_table *table, kolo_bytes key, kolo_bytes *value)
{
    const struct ko_entry *entry = ko_table_find(table, key);

    if (!entry || !entry->value)
        return false;
    *value = (kolo_bytes){entry->value, entry->value_nbytes};
    return true;
}

bool ko_table_has(const struct ko_table *table, kolo_bytes key)
{
    const struct ko_entry *entry = ko_table_find(table, key);

    return entry && (entry->value || entry->nqueued > 0);
}

void ko_entry_wake_for_value(struct ko_table *table, struct ko_entry *entry)
{
    ko_entry_wake_all(table, &entry->waits);
    ko_entry_wake_all(table, &entry->pops);
}

/* The value, in so much memory, is the entry's from now on. */
static void put_value(struct ko_table *table, struct ko_entry *entry, char *value, size_t nbytes,
                      size_t room)
{
    struct ko_told was = ko_entry_see(table, entry);

    drop_value(table, entry);
    entry->value = value;
    entry->value_nbytes = nbytes;
    entry->value_room = room;
    table->nvalues++;
    ko_entry_tell(table, entry, was);
    ko_entry_wake_for_value(table, entry);
}

char *ko_table_make(struct ko_table *table, size_t nbytes)
{
    return ko_table_take_unset(table, nbytes + 1);
}

int ko_table_set_made(struct ko_table *table, kolo_bytes key, char *made, size_t nbytes)
{
    struct ko_entry *entry = ko_table_find_or_make(table, key);

    if (!entry)
        return KOLO_E_NOMEM;
    put_value(table, entry, made, nbytes, nbytes + 1);
    return KOLO_OK;
}

void ko_table_unmake(struct ko_table *table, char *made, size_t nbytes)
{
    ko_table_give(table, made, nbytes + 1);
}

/* The value may lie in the old one. */
int ko_table_put(struct ko_table *table, kolo_bytes key, kolo_bytes value, ko_table_put_made put)
{
    char *made = ko_table_make(table, value.nbytes);
    int err;

    if (!made)
        return KOLO_E_NOMEM;
    if (value.nbytes > 0)
        memcpy(made, value.data, value.nbytes);
    err = put(table, key, made, value.nbytes);
    if (err)
        ko_table_unmake(table, made, value.nbytes);
    return err;
}

int ko_table_set(struct ko_table *table, kolo_bytes key, kolo_bytes value)
{
    return ko_table_put(table, key, value, ko_table_set_made);
}

/* Strictly [-]digits that fit. */
static bool parse_number(kolo_bytes text, int64_t *number)
{
    const char *at = text.data;
    size_t i = text.nbytes > 0 && at[0] == '-';
    bool negative = i == 1;
    int64_t n = 0;

    if (i == text.nbytes || text.nbytes > NUMBER_LONGEST)
        return false;
    for (; i < text.nbytes; i++) {
        if (at[i] < '0' || at[i] > '9' || __builtin_mul_overflow(n, 10, &n) ||
            __builtin_sub_overflow(n, at[i] - '0', &n)) /* downwards: INT64_MIN has no positive */
            return false;
    }
    if (!negative && n == INT64_MIN)
        return false;
    *number = negative ? n : -n;
    return true;
}

int ko_table_sum(kolo_bytes key, kolo_bytes held, int64_t delta, int64_t *sum)
{
    char key_text[KO_STORE_KEY_TEXT];
    int64_t number;

    if (parse_number(held, &number) && !__builtin_add_overflow(number, delta, sum))
        return KOLO_OK;
    ko_store_key_text(key, key_text);
    return ko_fail(KOLO_E_INVALID,
                   "add to key \"%s\": its value is not a decimal number, or the sum does not fit "
                   "in 64 bits",
                   key_text);
}

int ko_table_add(struct ko_table *table, kolo_bytes key, int64_t delta, int64_t *sum)
{
    char text[NUMBER_TEXT];
    kolo_bytes held = {"0", 1};
    int64_t number;
    int length;
    int err;

    ko_table_get(table, key, &held);
    err = ko_table_sum(key, held, delta, &number);
    if (err)
        return err;
    length = snprintf(text, sizeof text, "%lld", (long long)number);
    err = ko_table_set(table, key, (kolo_bytes){text, (size_t)length});
    if (!err)
        *sum = number;
    return err;
}

static bool equal(kolo_bytes a, kolo_bytes b)
{
    return a.nbytes == b.nbytes && (a.nbytes == 0 || !memcmp(a.data, b.data, a.nbytes));
}

int ko_table_compare_set(struct ko_table *table, kolo_bytes key, kolo_bytes expected,
                         kolo_bytes desired, kolo_bytes *held)
{
    kolo_bytes now = {0};
    bool is_there = ko_table_get(table, key, &now);
    int err = KOLO_OK;

    if (!equal(now, expected)) { /* an absent key compares as empty */
        *held = is_there ? now : expected;
        return KOLO_OK;
    }
    err = ko_table_set(table, key, desired);
    if (!err)
        ko_table_get(table, key, held);
    return err;
}

bool ko_table_delete_leaving(struct ko_table *table, kolo_bytes key, struct ko_item **left)
{
    struct ko_entry *entry = ko_table_find(table, key);
    struct ko_told was;

    if (!entry || (!entry->value && entry->nqueued == 0))
        return false;
    was = ko_entry_see(table, entry);
    drop_value(table, entry);
    ko_entry_tell(table, entry, was);
    *left = ko_entry_leave_queue(entry);
    ko_table_drop_if_unused(table, entry);
    return true;
}

bool ko_table_delete(struct ko_table *table, kolo_bytes key)
{
    struct ko_item *left = NULL;
    bool was_there = ko_table_delete_leaving(table, key, &left);

    ko_table_drop_some(table, &left, SIZE_MAX);
    return was_there;
}

bool ko_table_next(const struct ko_table *table, struct ko_table_place *place, kolo_bytes *key)
{
    const struct ko_entry *entry = place->entry;

    do {
        entry = entry ? entry->next : NULL;
        while (!entry && place->bucket < table->nbuckets + table->nsplit)
            entry = *bucket_at(table, place->bucket++);
    } while (entry && !entry->value);
    place->entry = entry;
    if (entry)
        *key = (kolo_bytes){entry->key, entry->key_nbytes};
    return entry != NULL;
}

/* Counts up in the bits of place from the highest down: when the buckets double, those that have
 * been visited are split into such as have, and the others into such as have not. */
static size_t behind(size_t place, size_t nbuckets)
{
    size_t bit = nbuckets / 2;

    for (; bit > 0 && place & bit; bit /= 2)
        place -= bit;
    return place + bit;
}

static int visit_bucket(const struct ko_entry *entry, ko_table_visitor visit, void *context)
{
    int err = KOLO_OK;

    for (; entry && !err; entry = entry->next)
        if (entry->value)
            err = visit(context, (kolo_bytes){entry->key, entry->key_nbytes});
    return err;
}

/* A bucket goes with its twin, so that a key is seen once, whether it has been split or not. */
int ko_table_visit(const struct ko_table *table, size_t *place, ko_table_visitor visit,
                   void *context)
{
    int err = visit_bucket(*bucket_at(table, *place), visit, context);

    if (!err && *place < table->nsplit)
        err = visit_bucket(*bucket_at(table, table->nbuckets + *place), visit, context);
    *place = behind(*place, table->nbuckets);
    return err || *place == 0 ? err : KO_AGAIN;
}

int64_t ko_table_count(const struct ko_table *table)
{
    return table->nvalues;
}

size_t ko_table_used(const struct ko_table *table)
{
    return table->used;
}

/* ---- life --------------------------------------------------------------------------------- */

int ko_table_open(size_t cap, struct ko_table **table_out)
{
    struct ko_table *table = ko_alloc(sizeof *table, "a store");

    if (!table)
        return KOLO_E_NOMEM;
    STAILQ_INIT(&table->news.list);
    table->cap = cap;
    table->nbuckets = KO_TABLE_FIRST_BUCKETS;
    if (!add_block(table, 0)) {
        free(table);
        return KOLO_E_NOMEM;
    }
    if (getrandom(table->secret, sizeof table->secret, 0) != (ssize_t)sizeof table->secret)
        table->secret[0] = (uint64_t)(uintptr_t)table; /* no randomness: the address must do */
    *table_out = table;
    return KOLO_OK;
}

void ko_table_keep_apart(struct ko_table *table)
{
    table->walls.is_wanted = true;
}

bool ko_table_is_untidy(const struct ko_table *table)
{
    return ko_walls_are_many(&table->walls);
}

void ko_table_tidy_some(struct ko_table *table)
{
    if (ko_walls_are_many(&table->walls))
        ko_walls_lower(&table->walls);
}

void ko_table_free(struct ko_table *table)
{
    struct ko_entry *next;
    struct ko_item *left;

    if (!table)
        return;
    for (size_t i = 0; i < table->nbuckets + table->nsplit; i++)
        for (struct ko_entry *e = *bucket_at(table, i); e; e = next) {
            next = e->next;
            left = ko_entry_leave_queue(e);
            ko_table_drop_some(table, &left, SIZE_MAX);
            ko_entry_end_move(table, e);
            ko_table_give(table, e->value, e->value_room);
            ko_table_give(table, e, sizeof *e + e->key_nbytes);
        }
    for (int i = 0; i < KO_TABLE_BLOCKS; i++)
        free_block(table, i);
    ko_walls_free(&table->walls);
    free(table);
}
