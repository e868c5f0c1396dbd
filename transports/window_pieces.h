/* SPDX-License-Identifier: MIT
 *
 * window_pieces.h: long slices that are on their way in both copies at a time. Their slot is
 * published when the first piece lies in its place; the receiver copies that out while its sender
 * copies in what follows. So a slice takes as long as the longer copy and one piece, not as long as
 * both; and one slot, as any.
 */
#ifndef KO_WINDOW_PIECES_H
#define KO_WINDOW_PIECES_H

#include "link.h"

/* Whether a slice of nbytes goes so: not where both ends copy one in before they copy one out. */
bool ko_window_goes_in_pieces(const struct ko_link *link, size_t nbytes);

/* Bytes of each of its pieces but the last; all of a slice that is too short for two. */
size_t ko_window_piece(size_t nbytes);

/* As link->ops->post, into the place that has been chosen for the next slot. */
int ko_window_post_pieces(struct ko_link *link, const struct ko_stamp *stamp, const void *from,
                          void *place, size_t nbytes);

/* Copies the next slice, whose body is to lie there, to `to`; NULL: only waits for it. KO_AGAIN if
 * its sender stands still: what has been copied is not copied again, unless into other memory.
 * KOLO_E_PROTOCOL. */
int ko_window_land_pieces(struct ko_link *link, void *to, const void *body, bool is_streaming);

/* The next slice from `at` on, where a piece of it begins: *body, *nbytes of it; those behind the
 * first 0 are all of it where it does not come in pieces. KO_AGAIN, KOLO_E_PROTOCOL. Until all of
 * it is released. */
int ko_window_peek_piece(struct ko_link *link, size_t at, const void **body, size_t *nbytes);

#endif
