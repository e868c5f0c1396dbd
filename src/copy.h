/* SPDX-License-Identifier: MIT
 *
 * copy.h: copies that go around the caches, for results larger than those: a line is then not read
 * before it is written, and what is useful stays cached. Nothing here keeps state; any thread.
 */
#ifndef KO_COPY_H
#define KO_COPY_H

#include <stddef.h>

/* memcpy by streaming stores, where the machine has them; the two may have any alignment, and
 * overlap in nothing. Others see the bytes after whatever release follows. */
void ko_copy_streaming(void *to, const void *from, size_t nbytes);

/* The same in pieces, with the ordering once at their end: without it they may become visible after
 * a later release. */
void ko_copy_streaming_piece(void *to, const void *from, size_t nbytes);
void ko_copy_streaming_end(void);

/* The first by streaming stores of a given width, from 0 to nwidths - 1, which all others use. */
int ko_copy_nwidths(void);
void ko_copy_streaming_at(int width, void *to, const void *from, size_t nbytes);

#endif
