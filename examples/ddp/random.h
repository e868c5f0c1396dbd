/* SPDX-License-Identifier: MIT
 *
 * random.h: random numbers without a state. Each depends on a key and a counter alone, so a number
 * is the same whichever rank asks for it, in whatever order, on the host or on a GPU.
 */
#ifndef TRAIN_RANDOM_H
#define TRAIN_RANDOM_H

#include "portable.h"

/* Number counter of the stream key: 64 bits. Also makes keys: random_bits(random_bits(seed, epoch),
 * layer) is the key of one layer in one epoch. The mixing is that of SplitMix64. */
KO_FN uint64_t random_bits(uint64_t key, uint64_t counter)
{
    uint64_t mixed = key + (counter + 1) * UINT64_C(0x9E3779B97F4A7C15);

    mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94D049BB133111EB);
    return mixed ^ (mixed >> 31);
}

/* Uniform in [-bound, bound). */
KO_FN float random_uniform(uint64_t key, uint64_t counter, float bound)
{
    float unit = (float)(random_bits(key, counter) >> 40) * 0x1p-23f; /* [0, 2) */

    return (unit - 1) * bound;
}

/* What dropout multiplies by: 0 for percent of all counters, else what makes good for these. */
KO_FN float random_scale(uint64_t key, uint64_t counter, uint32_t percent)
{
    if (random_bits(key, counter) % 100 < percent)
        return 0;
    return 100.0f / (100.0f - (float)percent);
}

#endif
