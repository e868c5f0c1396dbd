/* SPDX-License-Identifier: MIT */
#include "ranges.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct {
    pthread_mutex_t lock;
    struct double_range *first;
    uint64_t last_id;
    int key; /* of protection; -1: not tried, -2: there is none */
} list = {.lock = PTHREAD_MUTEX_INITIALIZER, .key = -1};

void double_ranges_lock(void)
{
    pthread_mutex_lock(&list.lock);
}

void double_ranges_unlock(void)
{
    pthread_mutex_unlock(&list.lock);
}

static int find_key(void)
{
    if (list.key == -1)
        list.key = pkey_alloc(0, PKEY_DISABLE_ACCESS);
    if (list.key < 0)
        list.key = -2;
    return list.key;
}

void double_allow(void)
{
    double_ranges_lock();
    if (find_key() >= 0)
        pkey_set(list.key, 0);
    double_ranges_unlock();
}

struct double_range *double_range_at(ko_cu_ptr at)
{
    struct double_range *range = list.first;

    while (range && (at < (uintptr_t)range->base || at >= (uintptr_t)range->base + range->nbytes))
        range = range->next;
    return range;
}

/* With the lock: a piece is for the GPUs that have been given it. */
static bool is_allowed(const struct double_range *range, int by)
{
    if (range->kind == DOUBLE_PIECE)
        return range->allowed >> by & 1;
    return range->device == by ||
           __atomic_load_n(&double_context_of(by)->peers, __ATOMIC_SEQ_CST) >> range->device & 1;
}

bool double_find(ko_cu_ptr at, int by, struct double_home *home)
{
    const struct double_range *range;

    double_ranges_lock();
    range = double_range_at(at);
    if (range && range->kind == DOUBLE_HOST)
        range = NULL;
    if (range)
        *home = (struct double_home){.base = (uintptr_t)range->base,
                                     .end = (uintptr_t)range->base + range->nbytes,
                                     .device = range->device,
                                     .is_allowed = is_allowed(range, by)};
    double_ranges_unlock();
    return range;
}

struct double_range *double_range_touches(const unsigned char *base, size_t nbytes)
{
    struct double_range *range = list.first;

    while (range && (base >= range->base + range->nbytes || range->base >= base + nbytes))
        range = range->next;
    return range;
}

static bool is_around(const struct double_range *range, ko_cu_ptr at, size_t nbytes, size_t grain)
{
    const ko_cu_ptr base = (uintptr_t)range->base;

    return (range->kind == DOUBLE_DEVICE || range->kind == DOUBLE_PIECE) && !range->is_managed &&
           at >= base / grain * grain &&
           at + nbytes <= (base + range->nbytes + grain - 1) / grain * grain;
}

struct double_range *double_range_around(ko_cu_ptr at, size_t nbytes, size_t grain)
{
    struct double_range *range = list.first;

    while (range && !is_around(range, at, nbytes, grain))
        range = range->next;
    return range;
}

bool double_range_begins(const struct double_range *range, ko_cu_ptr at)
{
    return range && (uintptr_t)range->base == at;
}

bool double_is_valid(ko_cu_ptr at, size_t nbytes)
{
    const ko_cu_ptr end = at + nbytes;
    struct double_range *range;
    bool is_known;

    double_ranges_lock();
    range = double_range_at(at);
    is_known = range;
    while (range && (uintptr_t)range->base + range->nbytes < end) /* pieces lie side by side */
        range = range->kind == DOUBLE_PIECE
                    ? double_range_at((uintptr_t)range->base + range->nbytes)
                    : NULL;
    if (!is_known && nbytes)
        range = double_range_at(end - 1);
    double_ranges_unlock();
    return is_known == (range != NULL);
}

struct double_range *double_range_imported(uint64_t origin)
{
    struct double_range *range = list.first;

    while (range && (range->kind != DOUBLE_IMPORTED || range->origin != origin))
        range = range->next;
    return range;
}

bool double_range_is_taken(int pid, uint64_t base, uint64_t nbytes)
{
    const struct double_range *range = list.first;

    while (range && (range->kind != DOUBLE_IMPORTED || range->pid != pid ||
                     base >= range->there + range->nbytes || range->there >= base + nbytes))
        range = range->next;
    return range;
}

uint64_t double_range_number(void)
{
    return ++list.last_id;
}

struct double_range *double_range_enter(struct double_range range)
{
    struct double_range *copy = malloc(sizeof *copy);

    *copy = range;
    copy->id = double_range_number();
    copy->next = list.first;
    list.first = copy;
    return copy;
}

void double_range_take_out(struct double_range *range)
{
    struct double_range **link = &list.first;

    while (*link != range)
        link = &(*link)->next;
    *link = range->next;
    if (range->block) {
        double_block_leave(range->block);
    } else if (range->kind == DOUBLE_DEVICE || range->kind == DOUBLE_IMPORTED) {
        munmap(range->base, range->nbytes);
        close(range->fd);
    }
    free(range);
}

unsigned char *double_map(int fd, size_t nbytes)
{
    void *base = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    return base == MAP_FAILED ? NULL : base;
}

void double_unset(unsigned char *base, size_t nbytes)
{
    memset(base, DOUBLE_UNSET, nbytes < DOUBLE_MOST_UNSET ? nbytes : DOUBLE_MOST_UNSET);
}

void double_protect(unsigned char *base, size_t nbytes)
{
    if (find_key() >= 0 && pkey_mprotect(base, nbytes, PROT_READ | PROT_WRITE, list.key))
        abort();
}
