/* SPDX-License-Identifier: MIT
 *
 * letters.h: messages whose bytes are known, between ranks of few and small slots.
 */
#ifndef LETTERS_H
#define LETTERS_H

#include "ranks.h"

enum { LETTERS_SLICE_BYTES = 256, LETTERS_SLOTS = 2 };

/* Variables for the groups that follow; has_small_slots: those above, else the usual ones. */
void letters_set(const char *transport, bool has_small_slots);

/* The body on n ranks: threads and processes, over all transports. Asserts, in the test's own
 * thread. */
void letters_run(int n, ranks_body body);

/* The bytes of message `id`, to be freed. */
unsigned char *letter_make(size_t nbytes, unsigned id);
bool letter_is(const unsigned char *bytes, size_t nbytes, unsigned id);

/* In a rank: 0 or ranks_fail. The receive has some room to spare, which must stay as it is. */
int letter_post(kolo_group *group, size_t nbytes, unsigned id, int to, int tag);
int letter_take(kolo_group *group, size_t nbytes, unsigned id, int from, int tag);

/* 0 if that is what a receive says it got. */
int letter_expect(const kolo_message *message, int from, int tag, size_t count);

/* Bytes of messages that this rank holds and has not asked for. */
size_t letters_held(kolo_group *group);

#endif
