/* SPDX-License-Identifier: MIT
 *
 * secret_gate.h: what a connected socket has to pass before it carries anything: the handshake of
 * secret.h, a look at whether the other end is on this machine, or nothing, as a guard has it.
 * Reads not one byte of what follows. One thread at a time.
 */
#ifndef KO_SECRET_GATE_H
#define KO_SECRET_GATE_H

#include "clock.h"
#include "secret_token.h"

enum ko_gate_kind {
    KO_GATE_PASSED, /* as all zeros */
    KO_GATE_MACHINE,
    KO_GATE_SECRET
};

struct ko_gate {
    enum ko_gate_kind kind;
    bool is_caller;
    struct ko_handshake handshake;
};

int ko_gate_begin(struct ko_gate *gate, const struct ko_guard *guard, const struct ko_claim *claim,
                  bool is_caller);

/* Does what can be done without waiting. KOLO_OK once passed, KO_AGAIN until then;
 * KOLO_E_PROTOCOL: the other end is not to be let in, and has been told so; KOLO_E_PEER_LOST. */
int ko_gate_pass(struct ko_gate *gate, int fd);

/* KO_POLL_ bits to wait for; 0 once passed. */
int ko_gate_wanted(const struct ko_gate *gate);

/* Warns, once in a process, if the guard lets in whoever reaches a listening socket, and other
 * machines can; and says what those are free to do. */
void ko_guard_warn(const struct ko_guard *guard, int listen_fd, const char *what);

/* Passes, waiting until the deadline. */
int ko_gate_pass_until(struct ko_gate *gate, int fd, const ko_deadline *deadline);

#endif
