/* SPDX-License-Identifier: MIT
 *
 * Groups of some ranks of a group. Nothing is sent for it, but with KOLO_CHECK=1 (group_lists.h):
 * all members compute the same id, from what they know alike. A group that all ranks of the parent
 * make is one more of the parent's. Of one that only its members make the others cannot keep count,
 * so members count for each list and tag; then those of other lists may be made in any order, and
 * by several threads at once.
 */
#include "group_lists.h"

#include <stdlib.h>

/* ---- ids --------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0x9e3779b97f4a7c15U;
    return hash ^ (hash >> 29);
}

static uint64_t mix_ranks(uint64_t hash, const int *ranks, int nranks)
{
    for (int i = 0; i < nranks; i++)
        hash = mix(hash, (uint64_t)ranks[i] + 1);
    return hash;
}

/* The number of a call that all ranks of parent make. */
static uint64_t count_call(kolo_group *parent)
{
    uint64_t call;

    pthread_mutex_lock(&parent->lock);
    call = mix(parent->id, ++parent->nchildren);
    pthread_mutex_unlock(&parent->lock);
    return call;
}

/* The count of the groups made of a list, with this one; 0: no memory. */
static uint64_t count_list(kolo_group *parent, uint64_t hash)
{
    struct ko_list *lists = parent->lists;
    size_t i = 0;

    while (i < parent->nlists && lists[i].hash != hash)
        i++;
    if (i < parent->nlists)
        return ++lists[i].count;
    if (!(i & (i - 1))) /* as many as there is room for: 0, 1, 2, 4, ... */
        lists = realloc(lists, (i ? 2 * i : 1) * sizeof *lists);
    if (!lists)
        return 0;
    lists[i] = (struct ko_list){hash, 1};
    parent->lists = lists;
    parent->nlists++;
    return 1;
}

/* Of a child that only its members make: one that all make has a count where this has a hash. */
static int member_id(kolo_group *parent, const int *ranks, int nranks, int tag, uint64_t *id)
{
    const uint64_t hash = mix_ranks(mix(~parent->id, (uint64_t)tag), ranks, nranks);
    uint64_t count;

    pthread_mutex_lock(&parent->lock);
    count = count_list(parent, hash);
    pthread_mutex_unlock(&parent->lock);
    *id = mix(hash, count);
    return count ? KOLO_OK : ko_fail(KOLO_E_NOMEM, "no memory to count groups");
}

/* ---- groups of listed ranks -------------------------------------------------------------- */

static int check_list(const kolo_group *parent, const int *ranks, int nranks)
{
    char *seen;
    int err = KOLO_OK;

    if (!ranks || nranks < 1 || nranks > parent->size)
        return ko_fail(KOLO_E_INVALID, "a group of %d of %d ranks cannot be", nranks, parent->size);
    seen = ko_alloc((size_t)parent->size, "a list of ranks");
    if (!seen)
        return KOLO_E_NOMEM;
    for (int i = 0; i < nranks && !err; i++) {
        err = ko_group_check_rank(parent, ranks[i], "a member of the new group");
        if (!err && seen[ranks[i]]++)
            err = ko_fail(KOLO_E_INVALID, "rank %d is listed twice in the new group", ranks[i]);
    }
    free(seen);
    return err;
}

static int check(const char *name, kolo_group *parent, const int *ranks, int nranks,
                 kolo_group **group)
{
    int err;

    if (!parent || !group)
        return ko_fail(KOLO_E_INVALID, "%s: %s is NULL", name, parent ? "group" : "parent");
    err = check_list(parent, ranks, nranks);
    return err ? err : ko_group_check(parent);
}

/* This rank's place in the list, or -1. */
static int find_self(const kolo_group *parent, const int *ranks, int nranks)
{
    int place = -1;

    for (int i = 0; i < nranks; i++)
        if (ranks[i] == parent->rank)
            place = i;
    return place;
}

static int make(kolo_group *parent, uint64_t id, const int *ranks, int nranks, kolo_group **group)
{
    int *world_ranks = ko_alloc((size_t)nranks * sizeof *world_ranks, "ranks");

    if (!world_ranks)
        return KOLO_E_NOMEM;
    for (int i = 0; i < nranks; i++)
        world_ranks[i] = parent->world_ranks[ranks[i]];
    ko_endpoint_retain(parent->endpoint);
    ko_group_take_word_back(parent);
    return ko_group_make(parent->endpoint, id, world_ranks, find_self(parent, ranks, nranks),
                         nranks, kolo_group_timeout(parent), group);
}

int kolo_group_new(kolo_group *parent, const int *ranks, int nranks, kolo_group **group)
{
    struct ko_members members = {.ranks = ranks, .n = nranks};
    int err = check("kolo_group_new", parent, ranks, nranks, group);

    if (err)
        return err;
    members.call = count_call(parent);
    members.id = mix_ranks(members.call, ranks, nranks);
    if (parent->checks_calls && parent->size > 1)
        err = ko_members_compare(parent, &members);
    if (err)
        return err;
    if (find_self(parent, ranks, nranks) >= 0)
        return make(parent, members.id, ranks, nranks, group);
    *group = NULL;
    return KOLO_OK;
}

int kolo_group_new_local(kolo_group *parent, const int *ranks, int nranks, int tag,
                         kolo_group **group)
{
    uint64_t id;
    int err = check("kolo_group_new_local", parent, ranks, nranks, group);

    if (!err && find_self(parent, ranks, nranks) < 0)
        err = ko_fail(KOLO_E_INVALID,
                      "kolo_group_new_local: rank %d is not listed; only the members of the new "
                      "group call it",
                      parent->rank);
    if (!err)
        err = member_id(parent, ranks, nranks, tag, &id);
    return err ? err : make(parent, id, ranks, nranks, group);
}

int kolo_group_duplicate(kolo_group *parent, kolo_group **group)
{
    int *ranks;
    int err;

    if (!parent || !group)
        return ko_fail(KOLO_E_INVALID, "kolo_group_duplicate: %s is NULL",
                       parent ? "group" : "parent");
    ranks = ko_alloc((size_t)parent->size * sizeof *ranks, "a list of ranks");
    if (!ranks)
        return KOLO_E_NOMEM;
    for (int r = 0; r < parent->size; r++)
        ranks[r] = r;
    err = kolo_group_new(parent, ranks, parent->size, group);
    free(ranks);
    return err;
}

/* ---- splitting --------------------------------------------------------------------------- */

struct split_entry {
    int32_t color, key;
};

/* Of the ranks of this color, in the order of their keys, then of their ranks; returns how many. */
static int list_color(const struct split_entry *entries, int n, int color, int *ranks)
{
    int count = 0;

    for (int r = 0; r < n; r++) {
        int at = count;

        if (entries[r].color != color)
            continue;
        for (; at > 0 && entries[ranks[at - 1]].key > entries[r].key; at--)
            ranks[at] = ranks[at - 1];
        ranks[at] = r;
        count++;
    }
    return count;
}

int kolo_group_split(kolo_group *parent, int color, int key, kolo_group **group)
{
    struct split_entry mine = {color, key}, *entries;
    int *ranks;
    int err;

    if (!parent || !group)
        return ko_fail(KOLO_E_INVALID, "kolo_group_split: %s is NULL", parent ? "group" : "parent");
    entries = ko_alloc((size_t)parent->size * (sizeof *entries + sizeof *ranks), "a split");
    if (!entries)
        return KOLO_E_NOMEM;
    ranks = (int *)(entries + parent->size);
    err = kolo_all_gather(parent, &mine, entries, 2, KOLO_INT32);
    if (!err && color < 0) {
        /* Counted like the others do, who call kolo_group_new below. */
        (void)count_call(parent);
        *group = NULL;
    } else if (!err) {
        err = kolo_group_new(parent, ranks, list_color(entries, parent->size, color, ranks), group);
    }
    free(entries);
    return err;
}
