/* SPDX-License-Identifier: MIT
 *
 * Both ends of a connection are on one machine if they have the same address, or loopback ones: the
 * kernel drops what comes in from outside with an address of this machine's as its source, and a
 * connection needs answers.
 */
#include "secret_gate.h"

#include "fault.h"
#include "log.h"
#include "poller.h"
#include "socket.h"
#include "status.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

/* ---- one machine ------------------------------------------------------------------------- */

/* An IPv4 address as IPv6 writes it. */
static bool as_v6(const struct sockaddr_storage *address, struct in6_addr *v6)
{
    const struct sockaddr_in *v4 = (const void *)address;

    if (address->ss_family == AF_INET6) {
        *v6 = ((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
    } else {
        *v6 = (struct in6_addr){.s6_addr = {[10] = 0xff, [11] = 0xff}};
        memcpy(v6->s6_addr + 12, &v4->sin_addr, sizeof v4->sin_addr);
    }
    return address->ss_family == AF_INET || address->ss_family == AF_INET6;
}

static bool is_loopback(const struct in6_addr *address)
{
    return IN6_IS_ADDR_LOOPBACK(address) ||
           (IN6_IS_ADDR_V4MAPPED(address) && address->s6_addr[12] == IN_LOOPBACKNET);
}

bool ko_gate_is_within_machine(int fd)
{
    struct sockaddr_storage near = {0}, far = {0};
    socklen_t near_length = sizeof near, far_length = sizeof far;
    struct in6_addr own, other;

    if (getsockname(fd, (struct sockaddr *)&near, &near_length) ||
        getpeername(fd, (struct sockaddr *)&far, &far_length) || !as_v6(&near, &own) ||
        !as_v6(&far, &other))
        return false;
    return (is_loopback(&own) && is_loopback(&other)) || IN6_ARE_ADDR_EQUAL(&own, &other);
}

void ko_guard_warn(const struct ko_guard *guard, int listen_fd)
{
    struct sockaddr_storage near = {0};
    socklen_t length = sizeof near;
    struct in6_addr own;
    char name[KO_SOCKET_NAME];

    if (!guard->is_open || getsockname(listen_fd, (struct sockaddr *)&near, &length) ||
        !as_v6(&near, &own) || is_loopback(&own))
        return;
    ko_socket_own_name(listen_fd, name);
    ko_log(
        KO_LOG_WARN,
        "whoever can connect to %s can read and change what the ranks keep there: KOLO_AUTH=none "
        "or KOLO_AUTH_STORE=none asks nobody for a token",
        name);
}

static int check_machine(int fd)
{
    char peer[KO_SOCKET_NAME];

    if (ko_gate_is_within_machine(fd))
        return KOLO_OK;
    ko_socket_peer_name(fd, peer);
    return ko_fail(KOLO_E_PROTOCOL,
                   "%s is on another machine, and there is no token to know each other by: set "
                   "KOLO_AUTH_TOKEN_FILE or KOLO_AUTH_TOKEN on all ranks, or KOLO_AUTH=none to "
                   "trust the network",
                   peer);
}

/* ---- the handshake ----------------------------------------------------------------------- */

static bool is_not_yet(int error)
{
    return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

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
        return is_not_yet(errno) ? KO_AGAIN : fail_lost(n);
    ko_handshake_said(handshake, (size_t)n);
    return KOLO_OK;
}

static int hear(struct ko_handshake *handshake, int fd)
{
    unsigned char bytes[KO_HANDSHAKE_BYTES];
    ssize_t n = ko_fault(KO_FAULT_RECV)
                    ? (errno = ECONNRESET, -1)
                    : recv(fd, bytes, ko_handshake_wants(handshake), MSG_DONTWAIT);

    if (n < 0 && is_not_yet(errno))
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
