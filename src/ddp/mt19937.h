/* SPDX-License-Identifier: MIT
 *
 * mt19937.h: the Mersenne Twister of Matsumoto and Nishimura (1998), which PyTorch's CPU generator
 * is, so that the same seed gives the same numbers there and here.
 */
#ifndef KO_MT19937_H
#define KO_MT19937_H

#include <stdint.h>

enum { KO_MT19937_WORDS = 624 };

struct ko_mt19937 {
    uint32_t words[KO_MT19937_WORDS];
    int used; /* words of this round that have been drawn */
};

void ko_mt19937_seed(struct ko_mt19937 *generator, uint32_t seed);
/* Uniform over all 32-bit numbers. */
uint32_t ko_mt19937_next(struct ko_mt19937 *generator);

#endif
