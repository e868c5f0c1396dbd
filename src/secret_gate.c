/* SPDX-License-Identifier: MIT */
#include "secret_gate.h"

#include "fault.h"
#include "log.h"
#include "poller.h"
#include "socket.h"
#include "status.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>

/* ---- without a token --------------------------------------------------------------------- */

void ko_guard_warn(const struct ko_guard *guard, int listen_fd, const char *what)
{
    static atomic_flag has_warned = ATOMIC_FLAG_INIT;
    char name[KO_SOCKET_NAME];

    if (!guard->is_open || ko_socket_is_within_machine(listen_fd) ||
        atomic_flag_test_and_set(&has_warned))
        return;
    ko_socket_own_name(listen_fd, name);
    ko_log(KO_LOG_WARN,
           "whoever can connect to %s is free to %s: KOLO_AUTH=none or KOLO_AUTH_STORE=none asks "
           "nobody for a token",
           name, what);
}

static int check_machine(int fd)
{
    char peer[KO_SOCKET_NAME];

    if (ko_socket_is_within_machine(fd))
        return KOLO_OK;
    ko_socket_peer_name(fd, peer);
    return ko_fail(
        KOLO_E_PROTOCOL,
        "%s is on another machine, and there is no token to know each other by: set "
        "KOLO_AUTH_TOKEN_FILE (kolorun --make-token FILE makes one) or KOLO_AUTH_TOKEN on "
        "all ranks, or KOLO_AUTH=none to trust the network",
        peer);
}

/* ---- the handshake ----------------------------------------------------------------------- */

static int fail_lost(ssize_t n)
{
    return ko_fail(KOLO_E_PEER_LOST,
                   "the connection ended while the token was to be proven%s%s; does the other end "
                   "have the same?",
                   n ? ": " : "", n ? strerror(errno) : "");
}

static int say(struct ko_handshake *handshake, int fd)
{
    size_t nbytes;
    const unsigned char *bytes = ko_handshake_says(handshake, &nbytes);
    ssize_t n = ko_fault(KO_FAULT_SEND) ? (errno = EPIPE, -1)
                                        : send(fd, bytes, nbytes, MSG_NOSIGNAL | MSG_DONTWAIT);

    if (n < 0)
        return ko_socket_is_not_yet(errno) ? KO_AGAIN : fail_lost(n);
    ko_handshake_said(handshake, (size_t)n);
    return KOLO_OK;
}

static int hear(struct ko_handshake *handshake, int fd)
{
    unsigned char bytes[KO_HANDSHAKE_BYTES];
    ssize_t n = ko_fault(KO_FAULT_RECV)
                    ? (errno = ECONNRESET, -1)
                    : recv(fd, bytes, ko_handshake_wants(handshake), MSG_DONTWAIT);

    if (n < 0 && ko_socket_is_not_yet(errno))
        return KO_AGAIN;
    if (n <= 0)
        return fail_lost(n);
    return ko_handshake_hears(handshake, bytes, (size_t)n);
}

static int shake_hands(struct ko_handshake *handshake, int fd)
{
    size_t nbytes;
    int err = KOLO_OK;

    while (!err && !ko_handshake_is_over(handshake)) {
        ko_handshake_says(handshake, &nbytes);
        err = nbytes ? say(handshake, fd) : hear(handshake, fd);
    }
    return err;
}

/* ---- gates ------------------------------------------------------------------------------- */

int ko_gate_begin(struct ko_gate *gate, const struct ko_guard *guard, const struct ko_claim *claim,
                  bool is_caller)
{
    gate->is_caller = is_caller;
    gate->kind = guard->has_secret ? KO_GATE_SECRET
                 : guard->is_open  ? KO_GATE_PASSED
                                   : KO_GATE_MACHINE;
    if (gate->kind != KO_GATE_SECRET)
        return KOLO_OK;
    return ko_handshake_begin(&gate->handshake, &guard->secret, claim, is_caller);
}

int ko_gate_pass(struct ko_gate *gate, int fd)
{
    int err = KOLO_OK;

    if (gate->kind == KO_GATE_MACHINE)
        err = check_machine(fd);
    else if (gate->kind == KO_GATE_SECRET)
        err = shake_hands(&gate->handshake, fd);
    if (!err)
        gate->kind = KO_GATE_PASSED;
    if (err == KOLO_E_PROTOCOL && !gate->is_caller)
        (void)send(fd, ko_refusal, sizeof ko_refusal, MSG_NOSIGNAL | MSG_DONTWAIT);
    return err;
}

int ko_gate_wanted(const struct ko_gate *gate)
{
    size_t nbytes;

    if (gate->kind != KO_GATE_SECRET)
        return 0;
    ko_handshake_says(&gate->handshake, &nbytes);
    return nbytes ? KO_POLL_OUT : KO_POLL_IN;
}

int ko_gate_pass_until(struct ko_gate *gate, int fd, const ko_deadline *deadline)
{
    int err;

    while ((err = ko_gate_pass(gate, fd)) == KO_AGAIN) {
        err = ko_socket_wait(fd, ko_gate_wanted(gate), deadline);
        if (err)
            return err;
    }
    return err;
}
