/* SPDX-License-Identifier: MIT
 *
 * store_requests.h: what the clients of a store's model (store_model.h) say, and what all of them
 * are to get for it.
 */
#ifndef STORE_REQUESTS_H
#define STORE_REQUESTS_H

#include "store_model.h"

/* Says a request of client c about key k. False if the server is to hang up. */
typedef bool (*store_step)(struct model *model, int c, int k);

/* Any of them; these two by name. */
store_step draw_step(struct model *model);
bool step_list(struct model *model, int c, int k);
bool step_pop(struct model *model, int c, int k);

/* Fills most of a turn with requests of client c, if it comes at once. */
void say_much(struct model *model, int c);

/* Parts of a request, whose opcode comes first. */
void say_opcode(struct model *model, const struct client *client, enum ko_store_op op);
void say_key(struct model *model, int k);
void say_bytes(struct model *model, const void *data, size_t nbytes);

/* True if such a client does not know that operation. */
bool lacks(const struct client *client, enum ko_store_op op);

/* Client c, which has gone, had one perhaps. */
void carry_out_will(struct model *model, int c);

#endif
