/* SPDX-License-Identifier: MIT
 *
 * store_will.h: what a client of a server's wants to be done when its connection has ended: a value
 * appended to a key. So others learn of its end at once, also when it had no time to say so.
 */
#ifndef KO_STORE_WILL_H
#define KO_STORE_WILL_H

#include "store_wire.h"

#include <stdbool.h>

struct ko_session;

/* All zero but for the budgets is none. */
struct ko_will {
    struct ko_buffer bytes; /* a key and a value, as they came */
    struct ko_buffer made;  /* the same of the one that is to take its place, as far as it goes */
};

/* Takes the place of an earlier one. args: a whole message's key and value, nbytes in all.
 * KO_AGAIN: its turn is over, the same call goes on with it in the next one. */
int ko_will_make(struct ko_session *session, const uint8_t *args, size_t nbytes);

/* Does as much of it as a turn has time for, once; true when there is nothing left to do. */
bool ko_will_carry_out(struct ko_session *session);

#endif
