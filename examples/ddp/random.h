/* SPDX-License-Identifier: MIT
 *
 * random.h: random numbers without a state. Each depends on a key and a counter alone, so a number
 * is the same whichever rank asks for it, and in whatever order.
 */
#ifndef TRAIN_RANDOM_H
#define TRAIN_RANDOM_H

#include <stdint.h>

/* Number counter of the stream key: 64 bits. Also makes keys: random_bits(random_bits(seed, epoch),
 * layer) is the key of one layer in one epoch. The mixing is that of SplitMix64. */
static inline uint64_t random_bits(uint64_t key, uint64_t counter)
{
    uint64_t mixed = key + (counter + 1) * UINT64_C(0x9E3779B97F4A7C15);

    mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94D049BB133111EB);
    return mixed ^ (mixed >> 31);
}

/* Uniform in [-bound, bound). */
static inline float random_uniform(uint64_t key, uint64_t counter, float bound)
{
    float unit = (float)(random_bits(key, counter) >> 40) * 0x1p-23f; /* [0, 2) */

    return (unit - 1) * bound;
}

#endif
