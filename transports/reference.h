/* SPDX-License-Identifier: MIT
 *
 * reference.h: slices that stay where they are. Between ranks that share windows, a slice that lies
 * in memory of kolo_mem_alloc need not go through a slot: the slot says in which segment and where
 * (struct ko_reference), and the receiver reads it there. A segment is announced once to each peer,
 * with its descriptor, over the wire; ranks of one process find it by its id. A slice may also be
 * lent together with as much memory that the receiver writes.
 */
#ifndef KO_REFERENCE_H
#define KO_REFERENCE_H

#include "link.h"
#include "window.h"

/* Shorter ones cost less in their slots. From here on, by measurement, no copy costs less, unless
 * the slice has been written since it was last read. */
enum { KO_REFERENCE_LEAST = 1025 };

struct ko_references;

/* Makes the reference to be sent as the link's next slice, if the slice lies in such memory and its
 * peer can know it; else *is_made is false, and the slice is to be copied. */
int ko_reference_make(struct ko_link *link, const void *from, size_t nbytes,
                      struct ko_reference *reference, bool *is_made);

/* Whether that may make one. */
bool ko_reference_may_be_made(const struct ko_link *link, const void *from, size_t nbytes);

/* Where the nbytes of a slice that came as this reference lie, for as long as the slice is not
 * released (ko_reference_release). KO_AGAIN until ko_link_hear has heard the announcement.
 * KOLO_E_PROTOCOL if they lie nowhere. */
int ko_reference_find(struct ko_link *link, const struct ko_reference *reference, size_t nbytes,
                      const void **body);

/* The same of memory that came with the slice to be written. */
int ko_reference_find_back(struct ko_link *link, const struct ko_reference *reference,
                           size_t nbytes, void **back);
void ko_reference_release(struct ko_link *link);

/* Takes an announcement, and the descriptor that came with it. */
int ko_reference_hear(struct ko_link *link, const void *body, size_t nbytes);

/* After the wire has been hung up. NULL is allowed. */
void ko_references_free(struct ko_references *references);

#endif
