/* SPDX-License-Identifier: MIT
 *
 * Lines of the destination are streamed whole; its first and last bytes, which share theirs with
 * others, are stored as usual.
 */
#include "copy.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

enum { LINE = 64, DEFAULT_CACHE_BYTES = 1 << 20 };

#if defined(__x86_64__)

static void stream_lines(char *to, const char *from, size_t nbytes)
{
    for (size_t at = 0; at < nbytes; at += LINE) {
        const __m128i a = _mm_loadu_si128((const __m128i_u *)(from + at));
        const __m128i b = _mm_loadu_si128((const __m128i_u *)(from + at + 16));
        const __m128i c = _mm_loadu_si128((const __m128i_u *)(from + at + 32));
        const __m128i d = _mm_loadu_si128((const __m128i_u *)(from + at + 48));

        _mm_stream_si128((__m128i *)(void *)(to + at), a);
        _mm_stream_si128((__m128i *)(void *)(to + at + 16), b);
        _mm_stream_si128((__m128i *)(void *)(to + at + 32), c);
        _mm_stream_si128((__m128i *)(void *)(to + at + 48), d);
    }
}

void ko_copy_streaming_end(void)
{
    _mm_sfence();
}

#else

static void stream_lines(char *to, const char *from, size_t nbytes)
{
    memcpy(to, from, nbytes);
}

void ko_copy_streaming_end(void)
{
}

#endif

void ko_copy_streaming_piece(void *to_, const void *from_, size_t nbytes)
{
    char *to = to_;
    const char *from = from_;
    size_t head = -(uintptr_t)to % LINE;
    size_t lines;

    if (nbytes < head + LINE)
        head = nbytes;
    lines = (nbytes - head) / LINE * LINE;
    if (head)
        memcpy(to, from, head);
    stream_lines(to + head, from + head, lines);
    if (nbytes > head + lines)
        memcpy(to + head + lines, from + head + lines, nbytes - head - lines);
}

void ko_copy_streaming(void *to, const void *from, size_t nbytes)
{
    ko_copy_streaming_piece(to, from, nbytes);
    ko_copy_streaming_end();
}

/* ---- how large a cache is ---------------------------------------------------------------------
 */

/* The CPUs that share the last-level cache, as Linux has them: bits of hexadecimal digits; all that
 * are online, if it does not say. */
static size_t count_sharers(void)
{
    FILE *file = fopen("/sys/devices/system/cpu/cpu0/cache/index3/shared_cpu_map", "re");
    size_t count = 0;
    int digit;

    while (file && (digit = fgetc(file)) != EOF) {
        const char *at = strchr("0123456789abcdef", digit);

        if (digit && at)
            count += (size_t)__builtin_popcount((unsigned)(at - "0123456789abcdef"));
    }
    if (file)
        fclose(file);
    return count ? count : (size_t)sysconf(_SC_NPROCESSORS_ONLN);
}

size_t ko_cache_bytes(void)
{
    const long all = sysconf(_SC_LEVEL3_CACHE_SIZE), own = sysconf(_SC_LEVEL2_CACHE_SIZE);
    size_t share = all > 0 ? (size_t)all / count_sharers() : 0;

    if (own > 0 && share < (size_t)own)
        share = (size_t)own;
    return share > DEFAULT_CACHE_BYTES ? share : DEFAULT_CACHE_BYTES;
}
