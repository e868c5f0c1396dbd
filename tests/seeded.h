/* SPDX-License-Identifier: MIT
 *
 * seeded.h: numbers that a seed determines, for tests that can be run again (splitmix64: Steele,
 * Lea, Flood, "Fast splittable pseudorandom number generators", 2014).
 */
#ifndef SEEDED_H
#define SEEDED_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t seeded_next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15U;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
}

/* 0 to limit - 1. */
static inline int seeded_below(uint64_t *state, int limit)
{
    return (int)(seeded_next(state) % (uint64_t)limit);
}

/* Any bytes. */
static inline void seeded_fill(uint64_t *state, void *to, size_t nbytes)
{
    unsigned char *at = to;

    for (size_t i = 0; i < nbytes; i += sizeof(uint64_t)) {
        const uint64_t next = seeded_next(state);

        memcpy(at + i, &next, nbytes - i < sizeof next ? nbytes - i : sizeof next);
    }
}

#endif
