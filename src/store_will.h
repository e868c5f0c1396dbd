/* SPDX-License-Identifier: MIT
 *
 * store_will.h: what a client of a server's wants to be done when its connection has ended: a value
 * appended to a key. So others learn of its end at once, also when it had no time to say so.
 */
#ifndef KO_STORE_WILL_H
#define KO_STORE_WILL_H

#include "store_table.h"
#include "store_wire.h"

/* All zero is none. */
struct ko_will {
    struct ko_buffer bytes; /* a key and a value, as they came */
};

/* Takes the place of an earlier one. args: a whole message's key and value. */
int ko_will_make(struct ko_will *will, struct ko_budget *budget, const uint8_t *args);

/* Does it, once. */
void ko_will_carry_out(struct ko_will *will, struct ko_table *table);

#endif
