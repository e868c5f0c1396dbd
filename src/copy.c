/* SPDX-License-Identifier: MIT
 *
 * Lines of the destination are streamed whole; its first and last bytes, which share theirs with
 * others, are stored as usual.
 */
#include "copy.h"

#include "copy_line.h"

#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { LINE = 64 };

/* ---- through the caches -------------------------------------------------------------------- */

#if defined(__x86_64__)

enum { STEP = 128 };

static inline __attribute__((target("avx2"))) void copy_step(char *to, const char *from)
{
    const __m256i *in = (const __m256i *)(const void *)from;
    const __m256i a = _mm256_loadu_si256(in), b = _mm256_loadu_si256(in + 1);
    const __m256i c = _mm256_loadu_si256(in + 2), d = _mm256_loadu_si256(in + 3);
    __m256i *out = (__m256i *)(void *)to;

    _mm256_storeu_si256(out, a);
    _mm256_storeu_si256(out + 1, b);
    _mm256_storeu_si256(out + 2, c);
    _mm256_storeu_si256(out + 3, d);
}

/* Stores begin with a line: the first and last step may overlap others. */
static __attribute__((target("avx2"))) void copy_by_vectors(char *to, const char *from,
                                                            size_t nbytes)
{
    copy_step(to, from);
    for (size_t at = LINE - (uintptr_t)to % LINE; at < nbytes - STEP; at += STEP)
        copy_step(to + at, from + at);
    copy_step(to + nbytes - STEP, from + nbytes - STEP);
}

/* Longer copies Intel's processors make sooner by `rep movs`, as C libraries do there: what is
 * written whole is not fetched before. By measurement, on a Xeon of the fifth generation. */
enum { VECTORS_MOST = 8 << 10 };

void ko_copy_long(void *to, const void *from, size_t nbytes)
{
    if (__builtin_cpu_supports("avx2") && (nbytes <= VECTORS_MOST || !__builtin_cpu_is("intel")))
        copy_by_vectors(to, from, nbytes);
    else
        memcpy(to, from, nbytes);
}

#else

void ko_copy_long(void *to, const void *from, size_t nbytes)
{
    memcpy(to, from, nbytes);
}

#endif

/* ---- around the caches --------------------------------------------------------------------- */

static void stream_lines_any(char *to, const char *from, size_t nbytes)
{
    for (size_t at = 0; at < nbytes; at += LINE)
        ko_copy_line(to + at, from + at);
}

#if defined(__x86_64__)

/* Whole lines need no gathering: a fifth faster. */
__attribute__((target("avx512f"))) static void stream_lines_avx512(char *to, const char *from,
                                                                   size_t nbytes)
{
    for (size_t at = 0; at < nbytes; at += LINE)
        _mm512_stream_si512((void *)(to + at), _mm512_loadu_si512(from + at));
}

static void (*const stream_lines[])(char *to, const char *from,
                                    size_t nbytes) = {stream_lines_any, stream_lines_avx512};

int ko_copy_nwidths(void)
{
    return __builtin_cpu_supports("avx512f") ? 2 : 1;
}

void ko_copy_streaming_end(void)
{
    _mm_sfence();
}

#else

static void (*const stream_lines[])(char *to, const char *from, size_t nbytes) = {stream_lines_any};

int ko_copy_nwidths(void)
{
    return 1;
}

/* A release orders the stores of other machines whichever way they go. */
void ko_copy_streaming_end(void)
{
}

#endif

static void copy(int width, void *to_, const void *from_, size_t nbytes)
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
    stream_lines[width](to + head, from + head, lines);
    if (nbytes > head + lines)
        memcpy(to + head + lines, from + head + lines, nbytes - head - lines);
}

void ko_copy_streaming_piece(void *to, const void *from, size_t nbytes)
{
    copy(ko_copy_nwidths() - 1, to, from, nbytes);
}

void ko_copy_streaming_at(int width, void *to, const void *from, size_t nbytes)
{
    copy(width, to, from, nbytes);
    ko_copy_streaming_end();
}

void ko_copy_streaming(void *to, const void *from, size_t nbytes)
{
    ko_copy_streaming_at(ko_copy_nwidths() - 1, to, from, nbytes);
}
