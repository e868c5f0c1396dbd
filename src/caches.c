/* SPDX-License-Identifier: MIT */
#include "caches.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    LEAST_CACHE_BYTES = 1 << 20,
    MOST_BYTES = 6 << 20, /* by measurement on an EPYC of the fourth generation, whose guests share
                             the 32 MiB that each is told of: results that are longer are written
                             sooner around the caches */
    INTEL_MOST_BYTES = 8 << 20, /* the same on a Xeon of the fifth generation */
    MOST_DIGITS = 1024
};

/* What Linux says about the cache of a level that a CPU has; NULL if it does not. */
static FILE *open_fact(size_t cpu, int level, const char *name)
{
    char path[80];

    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%zu/cache/index%d/%s", cpu, level,
             name);
    return fopen(path, "re");
}

/* The CPUs that share it, as hexadecimal digits without what parts them, the last one for CPUs 0 to
 * 3; their number. */
static size_t read_sharers(size_t cpu, int level, char digits[MOST_DIGITS])
{
    FILE *file = open_fact(cpu, level, "shared_cpu_map");
    size_t n = 0;
    int digit;

    while (file && n < MOST_DIGITS && (digit = fgetc(file)) != EOF) {
        const char *at = strchr("0123456789abcdef", digit);

        if (digit && at)
            digits[n++] = (char)(at - "0123456789abcdef");
    }
    if (file)
        fclose(file);
    return n;
}

size_t ko_cache_first_bytes(int level)
{
    FILE *file = open_fact(0, level, "size");
    size_t kib = 0;

    if (file && fscanf(file, "%zuK", &kib) != 1)
        kib = 0;
    if (file)
        fclose(file);
    return kib << 10;
}

static size_t count_last_level_bytes(void)
{
    const size_t first = ko_cache_first_bytes(3);
    const long all = sysconf(_SC_LEVEL3_CACHE_SIZE); /* AMD: of the whole package */

    return first ? first : all > 0 ? (size_t)all : 0;
}

/* Of the last level; all CPUs that are online if nobody knows. */
static size_t count_sharers(void)
{
    char digits[MOST_DIGITS];
    size_t n = read_sharers(0, 3, digits), count = 0;

    while (n)
        count += (size_t)__builtin_popcount((unsigned)digits[--n]);
    return count ? count : (size_t)sysconf(_SC_NPROCESSORS_ONLN);
}

size_t ko_cache_own_bytes(void)
{
    const long own = sysconf(_SC_LEVEL2_CACHE_SIZE);

    return own > 0 ? (size_t)own : LEAST_CACHE_BYTES;
}

static bool is_intel(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_is("intel");
#else
    return false;
#endif
}

/* By measurement: where a core hands a line over to another for little, what stays in the caches of
 * both is best; else what has left the reader's before it is written again. */
size_t ko_cache_places_bytes(void)
{
    return is_intel() ? ko_cache_own_bytes() / 4 : 2 * ko_cache_own_bytes();
}

size_t ko_cache_trade_bytes(void)
{
    return is_intel() ? SIZE_MAX : ko_cache_own_bytes();
}

/* What a core makes use of at most, whatever share it is said to have: a virtual machine's few may
 * be said to share the cache of a package of sixty. */
static size_t most_of_one_core(void)
{
    return is_intel() ? INTEL_MOST_BYTES : MOST_BYTES;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t most(size_t a, size_t b)
{
    return a > b ? a : b;
}

size_t ko_cache_bytes(void)
{
    const size_t said = count_last_level_bytes() / count_sharers();
    const size_t share = least(said, most_of_one_core());

    return most(most(share, ko_cache_own_bytes()), LEAST_CACHE_BYTES);
}

/* The first CPU of a set; 64 * nwords of none. */
static size_t first_of(const uint64_t *cpus, size_t nwords)
{
    for (size_t w = 0; w < nwords; w++)
        if (cpus[w])
            return w * 64 + (size_t)__builtin_ctzll(cpus[w]);
    return nwords * 64;
}

bool ko_cache_is_one(const uint64_t *cpus, size_t nwords)
{
    char digits[MOST_DIGITS];
    const size_t first = first_of(cpus, nwords), n = read_sharers(first, 2, digits);

    for (size_t cpu = first; cpu < nwords * 64; cpu++) {
        const bool is_asked = cpus[cpu / 64] >> cpu % 64 & 1;

        if (is_asked && cpu != first && !(cpu / 4 < n && digits[n - 1 - cpu / 4] >> cpu % 4 & 1))
            return false;
    }
    return true;
}
