/* SPDX-License-Identifier: MIT
 *
 * portable.h: what differs between host and device, and nothing else. Words that two ranks share
 * are plain integers that are touched through these functions only.
 */
#ifndef KO_PORTABLE_H
#define KO_PORTABLE_H

#include <stddef.h>
#include <stdint.h>

#if defined(__CUDACC__)
#define KO_FN static inline __host__ __device__ __attribute__((unused))
#else
#define KO_FN static inline __attribute__((unused))
#endif

/* Acquire: what the writer wrote before its release is seen after this. */
KO_FN uint64_t ko_load_acquire(const uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

KO_FN uint64_t ko_load_relaxed(const uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_RELAXED);
}

KO_FN void ko_store_release(uint64_t *word, uint64_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

/* One of several words before a release. */
KO_FN void ko_store_relaxed(uint64_t *word, uint64_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELAXED);
}

/* Sequentially consistent, for "I publish, then look whether you sleep" against "I say that I
 * sleep, then look whether you published": one of the two must see the other. */
KO_FN uint64_t ko_load_ordered(const uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_SEQ_CST);
}

KO_FN void ko_store_ordered(uint64_t *word, uint64_t value)
{
    __atomic_store_n(word, value, __ATOMIC_SEQ_CST);
}

/* A store that this thread's later looks at other words come after: for everybody, or, if is_split,
 * for those who order others' accesses before they look (src/fence.h), at no cost here. */
KO_FN void ko_store_first(uint64_t *word, uint64_t value, int is_split)
{
    if (!is_split) {
        ko_store_ordered(word, value);
        return;
    }
    ko_store_release(word, value);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

/* Makes a word that is 0 (free) 1: true, and what its last holder did before it stored 0 is seen.
 */
KO_FN int ko_take(uint64_t *word)
{
    uint64_t is_free = 0;

    return __atomic_compare_exchange_n(word, &is_free, 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}

/* Makes a word that is `from` `to`: true, and what was stored before it was `from` is seen; so is,
 * by who finds `to`, what was done before. */
KO_FN int ko_swap(uint64_t *word, uint64_t from, uint64_t to)
{
    return __atomic_compare_exchange_n(word, &from, to, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

KO_FN uint64_t ko_exchange_ordered(uint64_t *word, uint64_t value)
{
    return __atomic_exchange_n(word, value, __ATOMIC_SEQ_CST);
}

/* One turn of a polling loop. */
KO_FN void ko_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb");
#endif
}

#endif
