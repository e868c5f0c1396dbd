/* SPDX-License-Identifier: MIT
 *
 * fingerprint.h: a number for facts in which all ranks have to agree; other facts have another one,
 * most likely: FNV-1a (Fowler, Noll, Vo), of words.
 */
#ifndef KO_FINGERPRINT_H
#define KO_FINGERPRINT_H

#include <stdint.h>

#define KO_FINGERPRINT_BEGIN UINT64_C(14695981039346656037)

static inline uint64_t ko_fingerprint_add(uint64_t print, uint64_t fact)
{
    return (print ^ fact) * UINT64_C(1099511628211);
}

/* Not 0. */
static inline uint32_t ko_fingerprint_end(uint64_t print)
{
    return (uint32_t)(print >> 32 ^ print) | 1;
}

#endif
