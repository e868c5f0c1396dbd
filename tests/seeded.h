/* SPDX-License-Identifier: MIT
 *
 * seeded.h: numbers that a seed determines, for tests that can be run again (splitmix64: Steele,
 * Lea, Flood, "Fast splittable pseudorandom number generators", 2014).
 */
#ifndef SEEDED_H
#define SEEDED_H

#include <stdint.h>

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

#endif
