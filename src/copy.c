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
#include <cpuid.h>
#include <immintrin.h>
#include <stdatomic.h>
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

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_WATCHED 1
#elif defined(__has_feature)
#define IS_WATCHED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#else
#define IS_WATCHED 0
#endif

/* What is written whole by `rep movs` is not fetched before. Sanitizers are to see what it does. */
static void copy_by_strings(void *to, const void *from, size_t nbytes)
{
#if IS_WATCHED
    memcpy(to, from, nbytes);
#else
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(nbytes) : : "memory");
#endif
}

enum processor { UNKNOWN, PLAIN, AVX2, INTEL, ZEN5 };

static enum processor find_processor(void)
{
    enum { ZEN5_FAMILY = 0x1a };
    unsigned eax = 0, ebx, ecx, edx;

    if (!__builtin_cpu_supports("avx2"))
        return PLAIN;
    if (__builtin_cpu_is("intel"))
        return INTEL;
    (void)__get_cpuid(1, &eax, &ebx, &ecx, &edx);
    return __builtin_cpu_is("amd") && (eax >> 8 & 0xf) + (eax >> 20 & 0xff) >= ZEN5_FAMILY ? ZEN5
                                                                                           : AVX2;
}

static enum processor processor(void)
{
    static _Atomic int found; /* by whoever comes first, or by several */
    int is = atomic_load_explicit(&found, memory_order_relaxed);

    if (is == UNKNOWN) {
        is = find_processor();
        atomic_store_explicit(&found, is, memory_order_relaxed);
    }
    return (enum processor)is;
}

/* Whether a copy is left to the C library, which makes `rep movs` of long ones on Intel's: by
 * measurement on a Xeon of the fifth generation. */
static bool is_left(size_t nbytes)
{
    return processor() == PLAIN || (processor() == INTEL && nbytes > 8 << 10);
}

/* By measurement on Zen 5, where others see what has been written a little later if it is of more
 * than 2 KiB; where both lie does not matter there, as it does on Zen 3. */
static bool is_by_strings(size_t nbytes)
{
    return processor() == ZEN5 && (nbytes <= 2 << 10 || nbytes >= 8 << 10);
}

void ko_copy_long(void *to, const void *from, size_t nbytes)
{
    if (is_left(nbytes))
        memcpy(to, from, nbytes);
    else if (is_by_strings(nbytes))
        copy_by_strings(to, from, nbytes);
    else
        copy_by_vectors(to, from, nbytes);
}

bool ko_copy_depends_on_distance(size_t nbytes)
{
    return processor() == ZEN5 && nbytes >= KO_LONG_COPY && !is_by_strings(nbytes);
}

void ko_copy_far(void *to, const void *from, size_t nbytes)
{
    copy_by_strings(to, from, nbytes);
}

bool ko_copy_spares_fetching(size_t nbytes)
{
    return processor() == ZEN5 && nbytes >= KO_LONG_COPY;
}

#else

void ko_copy_long(void *to, const void *from, size_t nbytes)
{
    memcpy(to, from, nbytes);
}

bool ko_copy_depends_on_distance(size_t nbytes)
{
    (void)nbytes;
    return false;
}

bool ko_copy_spares_fetching(size_t nbytes)
{
    (void)nbytes;
    return false;
}

void ko_copy_far(void *to, const void *from, size_t nbytes)
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
