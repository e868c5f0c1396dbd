/* SPDX-License-Identifier: MIT
 *
 * x[k+624] = x[k+397] ^ (upper bit of x[k], lower 31 bits of x[k+1]) * A over GF(2); 624 words are
 * renewed at a time, in place, and tempered as they are drawn.
 */
#include "ddp/mt19937.h"

enum { WORDS = KO_MT19937_WORDS, SHIFT = 397 };

void ko_mt19937_seed(struct ko_mt19937 *generator, uint32_t seed)
{
    uint32_t *words = generator->words;

    words[0] = seed;
    for (uint32_t i = 1; i < WORDS; i++)
        words[i] = 1812433253u * (words[i - 1] ^ words[i - 1] >> 30) + i;
    generator->used = WORDS;
}

static void renew(struct ko_mt19937 *generator)
{
    uint32_t *words = generator->words;

    for (int k = 0; k < WORDS; k++) {
        uint32_t joined = (words[k] & 0x80000000) | (words[(k + 1) % WORDS] & 0x7fffffff);
        uint32_t times_a = joined >> 1 ^ (joined & 1 ? 0x9908b0df : 0);

        words[k] = words[(k + SHIFT) % WORDS] ^ times_a;
    }
    generator->used = 0;
}

uint32_t ko_mt19937_next(struct ko_mt19937 *generator)
{
    uint32_t x;

    if (generator->used == WORDS)
        renew(generator);
    x = generator->words[generator->used++];
    x ^= x >> 11;
    x ^= x << 7 & 0x9d2c5680;
    x ^= x << 15 & 0xefc60000;
    return x ^ x >> 18;
}
