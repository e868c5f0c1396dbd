/* SPDX-License-Identifier: MIT
 *
 * secret_token.h: what the environment says of who may connect: the job's token, or the choice to
 * do without. KOLO_AUTH_TOKEN_FILE or KOLO_AUTH_TOKEN has the token; KOLO_AUTH=none trusts the
 * network; with neither, both ends of a connection have to be on one machine.
 */
#ifndef KO_SECRET_TOKEN_H
#define KO_SECRET_TOKEN_H

#include "secret.h"

struct ko_guard {
    bool has_secret; /* both ends are to prove that they know it */
    bool is_open;    /* nobody has to prove anything */
    struct ko_secret secret;
};

/* KOLO_E_INVALID if variables contradict each other, or the token cannot be used; a file that
 * others could read is none. */
int ko_guard_read(struct ko_guard *guard);

/* The same for connections of a store, which PyTorch's clients and servers may be at the other end
 * of (KOLO_AUTH_STORE=none): then nobody has to prove anything there. */
int ko_guard_read_for_store(struct ko_guard *guard);

#endif
