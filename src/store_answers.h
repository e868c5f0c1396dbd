/* SPDX-License-Identifier: MIT
 *
 * store_answers.h: one table says for each operation which fields follow its opcode and who answers
 * it.
 */
#ifndef KO_STORE_ANSWERS_H
#define KO_STORE_ANSWERS_H

#include "store_session.h"

struct ko_operation {
    const char *name;
    bool is_list;       /* a 64-bit count, then so many times the fields */
    const char *fields; /* k: key, v: value, 4 and 8: integers of so many bytes */
    /* Answers a complete message, of which args is what follows the opcode. KO_AGAIN: not before
     * session->waiter has been woken; or if that waits for nothing, or is held, the client has read
     * more or has another turn. */
    int (*answer)(struct ko_session *session, const uint8_t *args);
};

extern const struct ko_operation ko_operations[KO_STORE_NOPS];

#endif
