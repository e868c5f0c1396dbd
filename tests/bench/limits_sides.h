/* SPDX-License-Identifier: MIT
 *
 * limits_sides.h: where the two ranks of peer_limits.c meet, and what goes between them.
 */
#ifndef LIMITS_SIDES_H
#define LIMITS_SIDES_H

#include "peer.h"

#include <fcntl.h>
#include <immintrin.h>
#include <stdint.h>
#include <sys/mman.h>

enum {
    LINE = 64,
    CHUNK = 64 << 10,
    NARROW = 8, /* slots, which stay in a cache of 1 MiB, and which do not */
    WIDE = 32,
    EXCHANGE = 4096,
    SHARED_BYTES = 256 << 20
};

struct line {
    uint64_t word;
    char pad[LINE - sizeof(uint64_t)];
};

/* By the rank that writes it. */
struct side {
    struct line posted, taken, met, process, source, result;
    char exchange[2][EXCHANGE + LINE];
    char slots[WIDE][CHUNK];
    char buffers[];
};

/* give[ngive] goes to the peer; take[ntake] = theirs, plus own if there is one; at_peer is where
 * the peer's give lies in its in (shared buffers). keep[nkeep] is copied to kept. */
struct transfer {
    const float *give, *own, *keep;
    float *take, *kept;
    size_t ngive, ntake, nkeep, at_peer;
};

static int rank;
static unsigned nslots = NARROW;
static struct side *mine, *theirs;
static uint64_t met;

static uint64_t load(const uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static void store(uint64_t *word, uint64_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

static void await(const uint64_t *word, uint64_t value)
{
    while (load(word) < value)
        _mm_pause();
}

static void meet(void)
{
    store(&mine->met.word, ++met);
    await(&theirs->met.word, met);
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static void map(const char *path)
{
    const size_t each = (sizeof(struct side) + SHARED_BYTES + 4095) / 4096 * 4096;
    int fd = open(path, O_RDWR);
    char *memory;

    if (fd < 0 || ftruncate(fd, (off_t)(2 * each)))
        peer_die("limits", "LIMITS_FILE cannot be used");
    memory = mmap(NULL, 2 * each, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        peer_die("limits", "LIMITS_FILE cannot be mapped");
    mine = (struct side *)(void *)(memory + (size_t)rank * each);
    theirs = (struct side *)(void *)(memory + (size_t)(1 - rank) * each);
}

#endif
