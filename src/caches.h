/* SPDX-License-Identifier: MIT
 *
 * caches.h: what Linux says about the caches of this machine. Reads files: to be asked once. Any
 * thread.
 */
#ifndef KO_CACHES_H
#define KO_CACHES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The share of the last-level cache that one CPU has, in bytes: a result of this size leaves it
 * before it is read again. From 1 MiB to 16, or to the second level's size if that is more. */
size_t ko_cache_bytes(void);

/* Bytes of the second-level cache, a core's own on most machines; 1 MiB if nobody knows. */
size_t ko_cache_own_bytes(void);

/* Bytes that all which comes to a rank from other cores goes through, one place after the other
 * (window_places.h). */
size_t ko_cache_places_bytes(void);

/* Bytes of a call's buffers on one rank from which on half of that does where ranks trade
 * (coll_flow.h); SIZE_MAX: never. */
size_t ko_cache_trade_bytes(void);

/* Bytes of the cache of a level, 2 or 3, that the first CPU has, whichever of them asks; 0 if
 * nobody knows. */
size_t ko_cache_first_bytes(int level);

/* True if all CPUs of a set, nwords words with a bit for each, have one second-level cache. */
bool ko_cache_is_one(const uint64_t *cpus, size_t nwords);

#endif
