/* SPDX-License-Identifier: MIT
 *
 * copy_line.h: one line of memory around the caches, by what every machine of its kind has.
 */
#ifndef KO_COPY_LINE_H
#define KO_COPY_LINE_H

#include <string.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

/* 64 bytes; `to` is a line. On x86 no release orders them: see ko_copy_streaming_end. */
static inline void ko_copy_line(void *to, const void *from)
{
#if defined(__x86_64__)
    for (int i = 0; i < 4; i++)
        _mm_stream_si128((__m128i *)to + i, _mm_loadu_si128((const __m128i *)from + i));
#elif defined(__aarch64__)
    typedef char quarter __attribute__((vector_size(16)));
    quarter line[4];

    memcpy(line, from, sizeof line);
    __asm__("stnp %q1, %q2, [%5]\n\tstnp %q3, %q4, [%5, #32]"
            : "=m"(*(char(*)[64])to)
            : "w"(line[0]), "w"(line[1]), "w"(line[2]), "w"(line[3]), "r"(to));
#else
    memcpy(to, from, 64);
#endif
}

#endif
