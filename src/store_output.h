/* SPDX-License-Identifier: MIT
 *
 * store_output.h: of a store's session, what is to go to its client. It lies in pieces, the oldest
 * first, and the last one is session->out, into which all is put: so that what has been put
 * together does not move for what comes behind it, however much that is and however slowly the
 * client reads. Threads as store_session.h says.
 */
#ifndef KO_STORE_OUTPUT_H
#define KO_STORE_OUTPUT_H

#include "store_session.h"

/* A piece is no longer, unless one thing is that is put into it. */
enum { KO_OUTPUT_PIECE = 128 << 10 };

/* Makes room for nbytes more, behind one another, at the tail of session->out, which may be another
 * piece then; KOLO_E_NOMEM changes nothing of what is there. */
int ko_output_reserve(struct ko_session *session, size_t nbytes);

/* All that is there. */
size_t ko_output_nbytes(const struct ko_session *session);
/* The memory for that. */
size_t ko_output_room(const struct ko_session *session);

/* The piece that goes out next; empty if nothing is there. */
const struct ko_buffer *ko_output_first(const struct ko_session *session);
/* So many bytes of that have gone. */
void ko_output_consume(struct ko_session *session, size_t nbytes);

/* Gives back what its turn has time for, and all of it to the budget at once, so that nobody else
 * is refused or cut off for what is on its way back; true when nothing is left. */
bool ko_output_free_some(struct ko_session *session);

#endif
