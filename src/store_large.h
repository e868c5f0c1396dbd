/* SPDX-License-Identifier: MIT
 *
 * store_large.h: of a store's session, what it does with large values in turns: others are served
 * between them, and may do with the keys what they like. KO_AGAIN: its turn is over, the same call
 * goes on with it in the next one. Threads as store_session.h says.
 */
#ifndef KO_STORE_LARGE_H
#define KO_STORE_LARGE_H

#include "store_session.h"

/* Bytes up to which a value is copied at once, and of a larger one at a time. */
enum { KO_LARGE_FROM = 16 << 10 };

/* Puts the value, behind its key at *at, which moves past them. */
int ko_large_put(struct ko_session *session, const uint8_t **at, ko_table_put_made put);

/* As ko_table_append. */
int ko_large_append(struct ko_session *session, kolo_bytes key, kolo_bytes tail);

/* Gives back what has been made of a value that is not to be put. Safe on none. */
void ko_large_unmake(struct ko_session *session);

/* Puts of nbytes at `from`, of which *given have been given, the next ones into out. */
int ko_large_copy(struct ko_session *session, const char *from, size_t nbytes, size_t *given);

/* Replies with a value, large or not. view: what keeps it, the session's from now on; NULL: it is
 * part of the message. ko_large_go_on is for the next turns, while session->giving.is_on. */
int ko_large_give(struct ko_session *session, struct ko_view *view, kolo_bytes value);
int ko_large_go_on(struct ko_session *session, const char *value);

/* Replies with the key's value, or goes on with that. Without memory for a view it goes at once. */
int ko_large_give_value(struct ko_session *session, kolo_bytes key);

/* As ko_table_compare_set, but replies nothing. */
int ko_large_compare_set(struct ko_session *session, kolo_bytes key, kolo_bytes expected,
                         kolo_bytes desired);

#endif
