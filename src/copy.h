/* SPDX-License-Identifier: MIT
 *
 * copy.h: copies between ranks: of few bytes, of many, and copies that go around the caches, for
 * results larger than those: a line is then not read before it is written, and what is useful stays
 * cached. Nothing here keeps state but what the processor is; any thread.
 */
#ifndef KO_COPY_H
#define KO_COPY_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Copies of as many bytes and more. C libraries that turn to `rep movs` do so a little later. */
enum { KO_LONG_COPY = 1536 };
void ko_copy_long(void *to, const void *from, size_t nbytes);

/* memcpy by what the processor does best. A C library may make `rep movs` of long copies, by which
 * on some (AMD's Zen 3) slices that another core has written take, at times, three times as long to
 * arrive; on Intel's and on Zen 5 they arrive sooner. The two may have any alignment and overlap in
 * nothing, and without bytes be NULL. */
static inline void ko_copy(void *to, const void *from, size_t nbytes)
{
    if (nbytes >= KO_LONG_COPY) {
        ko_copy_long(to, from, nbytes);
    } else if (nbytes) {
        __asm__("" : "+r"(nbytes)); /* of a bounded length GCC makes `rep movs`: twice as long */
        memcpy(to, from, nbytes);
    }
}

/* Whether a copy of so many bytes into lines that another core has read is made sooner by
 * ko_copy_far, which does not fetch them from there, if that core shares no cache with this one,
 * and else by ko_copy. */
bool ko_copy_depends_on_distance(size_t nbytes);
void ko_copy_far(void *to, const void *from, size_t nbytes);

/* Whether so many bytes that are computed come sooner into lines that another core has read if they
 * are put together beside, and then copied by ko_copy, or by ko_copy_far: what is stored there word
 * by word is fetched from that core first. */
bool ko_copy_spares_fetching(size_t nbytes);

/* The same without a call where that is most of it: two halves, which may overlap. */
static inline void ko_copy_short(void *to_, const void *from_, size_t nbytes)
{
    unsigned char *to = to_;
    const unsigned char *from = from_;

    if (nbytes > 64) {
        ko_copy(to, from, nbytes);
    } else if (nbytes > 32) {
        memcpy(to, from, 32);
        memcpy(to + nbytes - 32, from + nbytes - 32, 32);
    } else if (nbytes >= 16) {
        memcpy(to, from, 16);
        memcpy(to + nbytes - 16, from + nbytes - 16, 16);
    } else if (nbytes >= 8) {
        memcpy(to, from, 8);
        memcpy(to + nbytes - 8, from + nbytes - 8, 8);
    } else if (nbytes >= 4) {
        memcpy(to, from, 4);
        memcpy(to + nbytes - 4, from + nbytes - 4, 4);
    } else if (nbytes) {
        to[0] = from[0];
        to[nbytes / 2] = from[nbytes / 2];
        to[nbytes - 1] = from[nbytes - 1];
    }
}

/* memcpy by streaming stores, where the machine has them; the two may have any alignment, and
 * overlap in nothing. Others see the bytes after whatever release follows. */
void ko_copy_streaming(void *to, const void *from, size_t nbytes);

/* The same in pieces, with the ordering once at their end: without it they may become visible after
 * a later release. */
void ko_copy_streaming_piece(void *to, const void *from, size_t nbytes);
void ko_copy_streaming_end(void);

/* By those, or through the caches. */
static inline void ko_copy_any(void *to, const void *from, size_t nbytes, bool is_streaming)
{
    if (is_streaming)
        ko_copy_streaming(to, from, nbytes);
    else
        ko_copy(to, from, nbytes);
}

/* The first by streaming stores of a given width, from 0 to nwidths - 1, which all others use. */
int ko_copy_nwidths(void);
void ko_copy_streaming_at(int width, void *to, const void *from, size_t nbytes);

#endif
