/* SPDX-License-Identifier: MIT
 *
 * TCP between any two ranks that can reach each other. Slices are written from and read into their
 * final place, over KOLO_TCP_SOCKETS connections.
 */
#include "bundle.h"
#include "config.h"
#include "fork_fds.h"
#include "socket.h"
#include "status.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

/* Where a device listens, and which one it is, as it travels. */
struct tcp_address {
    char host[64]; /* numeric */
    uint16_t port;
    int32_t rank;
    uint64_t id; /* random: no device of this or another job has the same */
};

struct tcp_device {
    struct ko_device base;
    struct ko_fork_fd listener;
    struct tcp_address address;
    struct ko_guard guard;
    bool is_sealed; /* KOLO_ENCRYPT */
    int sockets;    /* of each wire, at most */
};

struct tcp_wire {
    struct ko_wire base;
    struct ko_bundle bundle;
    bool has_begun;    /* it is this end that connected */
    bool has_answered; /* our hello is on its way */
};

static int read_variables(struct tcp_device *device)
{
    int64_t sockets = 1, is_sealed = 0;
    int err = ko_config_number(KO_CONFIG_TCP_SOCKETS, &sockets);

    if (!err)
        err = ko_config_number(KO_CONFIG_ENCRYPT, &is_sealed);
    if (!err)
        err = ko_guard_read(&device->guard);
    device->sockets = (int)sockets;
    device->is_sealed = is_sealed;
    if (!err && is_sealed && !device->guard.has_secret)
        err = ko_fail(KOLO_E_INVALID, "KOLO_ENCRYPT=1 takes a token to agree on keys with; set "
                                      "KOLO_AUTH_TOKEN_FILE or KOLO_AUTH_TOKEN on all ranks");
    return err;
}

static int listen_on(struct tcp_device *device, const struct ko_site *site)
{
    struct tcp_address *address = &device->address;
    int port = 0;
    int err = ko_socket_listen(site->listen_host, 0, &device->base.listen_fd, &port);

    memcpy(address->host, site->listen_host, sizeof address->host);
    address->port = (uint16_t)port;
    address->rank = site->rank;
    return err;
}

static int tcp_open(const struct ko_site *site, struct ko_device **device_out)
{
    struct tcp_device *device = ko_alloc(sizeof *device, "a device");
    int err;

    if (!device)
        return KOLO_E_NOMEM;
    device->base.transport = &ko_transport_tcp;
    err = read_variables(device);
    if (!err && getrandom(&device->address.id, sizeof device->address.id, 0) < 0)
        err = ko_fail_errno(errno, "getrandom");
    if (!err)
        err = listen_on(device, site);
    if (err) {
        free(device);
        return err;
    }
    ko_fork_fd_keep(&device->listener, device->base.listen_fd);
    if (site->rank == 0)
        ko_guard_warn(&device->guard, device->base.listen_fd, "take part in the job");
    *device_out = &device->base;
    return KOLO_OK;
}

static void tcp_close(struct ko_device *device)
{
    if (!device)
        return;
    ko_fork_fd_close(&((struct tcp_device *)device)->listener);
    ko_secret_forget(&((struct tcp_device *)device)->guard.secret);
    free(device);
}

static size_t tcp_address(struct ko_device *device, unsigned char *address)
{
    const struct tcp_device *tcp = (const struct tcp_device *)device;

    memcpy(address, &tcp->address, sizeof tcp->address);
    return sizeof tcp->address;
}

static void tcp_hangup(struct ko_wire *base)
{
    struct tcp_wire *wire = (struct tcp_wire *)base;

    if (wire)
        ko_bundle_end(&wire->bundle);
    free(wire);
}

/* Takes the socket over; `to` is where it leads, NULL if somebody has connected to this device. */
static int new_wire(const struct ko_device *device, int fd, const struct tcp_address *to,
                    struct tcp_wire **wire_out)
{
    const struct tcp_device *tcp = (const struct tcp_device *)device;
    const struct tcp_address *door = to ? to : &tcp->address;
    const struct ko_bundle_entry entry = {.guard = &tcp->guard,
                                          .claim = {KO_PURPOSE_WIRE, door->id,
                                                    to ? tcp->address.rank : KO_ANY_RANK,
                                                    door->rank, tcp->is_sealed},
                                          .is_connecting = to};
    struct tcp_wire *wire = ko_alloc(sizeof *wire, "a wire");
    int err;

    if (!wire) {
        close(fd);
        return KOLO_E_NOMEM;
    }
    err = ko_bundle_begin(&wire->bundle, fd, &entry, tcp->sockets);
    if (err) {
        tcp_hangup(&wire->base);
        return err;
    }
    wire->base.transport = &ko_transport_tcp;
    wire->base.fd = ko_bundle_fd(&wire->bundle);
    wire->base.wanted = ko_bundle_wanted(&wire->bundle);
    *wire_out = wire;
    return KOLO_OK;
}

static int to_sockaddr(const struct tcp_address *address, struct sockaddr_storage *out,
                       socklen_t *length)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)out;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)out;

    memset(out, 0, sizeof *out);
    if (inet_pton(AF_INET, address->host, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(address->port);
        *length = sizeof *v4;
        return KOLO_OK;
    }
    if (inet_pton(AF_INET6, address->host, &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons(address->port);
        *length = sizeof *v6;
        return KOLO_OK;
    }
    return ko_fail(KOLO_E_PROTOCOL, "\"%.64s\" is no numeric address", address->host);
}

static int tcp_connect(struct ko_device *device, const unsigned char *address, size_t nbytes,
                       const struct ko_hello *hello, struct ko_wire **wire_out)
{
    struct tcp_address where = {.port = 0};
    struct sockaddr_storage socket_address;
    struct ko_hello own = *hello;
    struct tcp_wire *wire;
    socklen_t length = 0;
    int fd;
    int err;

    memcpy(&where, address, nbytes < sizeof where ? nbytes : sizeof where);
    where.host[sizeof where.host - 1] = 0;
    err = to_sockaddr(&where, &socket_address, &length);
    if (!err)
        err = ko_socket_connect_start((struct sockaddr *)&socket_address, length, &fd);
    if (!err)
        err = new_wire(device, fd, &where, &wire);
    if (err)
        return err;
    own.sockets = (uint16_t)wire->bundle.most;
    ko_stream_greet(wire->bundle.streams[0], &own, -1);
    wire->has_begun = wire->has_answered = true;
    *wire_out = &wire->base;
    return KOLO_OK;
}

static int tcp_accept(struct ko_device *device, struct ko_wire **wire_out)
{
    struct tcp_wire *wire;
    int fd;
    int err = ko_socket_accept(device->listen_fd, &fd);

    if (!err)
        err = new_wire(device, fd, NULL, &wire);
    if (!err)
        *wire_out = &wire->base;
    return err;
}

/* Bytes of the longest slice. */
static size_t longest(const struct tcp_wire *wire)
{
    return ko_message_bytes(wire->base.hello.slice_bytes);
}

static int hear(struct tcp_wire *wire)
{
    struct ko_stream *first = wire->bundle.streams[0];
    int err = ko_stream_hear(first, &wire->base.hello);

    wire->base.has_begun = first->gate.handshake.at >= KO_HANDSHAKE_HELLO;
    wire->base.caller = ko_handshake_caller(&first->gate.handshake);
    if (err)
        return err;
    wire->base.has_hello = true;
    return wire->has_begun ? ko_bundle_join(&wire->bundle, &wire->base.hello) : KOLO_OK;
}

static int shake(struct tcp_wire *wire)
{
    int err = wire->has_answered ? ko_stream_greeted(wire->bundle.streams[0]) : KOLO_OK;

    if (!err && !wire->base.has_hello)
        err = hear(wire);
    if (!err)
        err = ko_bundle_gather(&wire->bundle, longest(wire));
    if (!err && wire->has_answered)
        wire->base.state = KO_WIRE_OPEN;
    return err == KO_AGAIN ? ko_bundle_settle(&wire->bundle) : err;
}

/* What every call ends with. */
static int after(struct tcp_wire *wire, int err)
{
    wire->base.wanted = ko_bundle_wanted(&wire->bundle);
    wire->base.moved = ko_bundle_moved(&wire->bundle);
    return err;
}

static int tcp_drive(struct ko_wire *base)
{
    struct tcp_wire *wire = (struct tcp_wire *)base;

    return after(wire, base->state == KO_WIRE_OPEN ? ko_bundle_drive(&wire->bundle) : shake(wire));
}

static int tcp_deliver(struct ko_wire *base)
{
    struct tcp_wire *wire = (struct tcp_wire *)base;

    return after(wire, ko_bundle_deliver(&wire->bundle));
}

static int tcp_answer(struct ko_wire *base, const struct ko_hello *hello)
{
    struct tcp_wire *wire = (struct tcp_wire *)base;
    struct ko_hello own = *hello;
    int err = ko_bundle_invite(&wire->bundle, base->hello.sockets, &own);

    if (err)
        return err;
    ko_stream_greet(wire->bundle.streams[0], &own, -1);
    wire->has_answered = true;
    return tcp_drive(base);
}

static int tcp_send(struct ko_wire *base, struct ko_post *post)
{
    struct tcp_wire *wire = (struct tcp_wire *)base;

    return after(wire, ko_bundle_send(&wire->bundle, post));
}

static int tcp_next(struct ko_wire *base, const struct ko_frame **frame)
{
    struct tcp_wire *wire = (struct tcp_wire *)base;

    return after(wire, ko_bundle_next(&wire->bundle, longest(wire), frame));
}

static int tcp_land(struct ko_wire *base, void *to)
{
    struct tcp_wire *wire = (struct tcp_wire *)base;

    return after(wire, ko_bundle_land(&wire->bundle, to));
}

static size_t tcp_landed(const struct ko_wire *wire)
{
    return ko_bundle_landed(&((const struct tcp_wire *)wire)->bundle);
}

static bool tcp_give(struct ko_wire *base, const struct ko_frame *frame, const void *body,
                     struct ko_post *rest)
{
    struct tcp_wire *wire = (struct tcp_wire *)base;

    if (base->state != KO_WIRE_OPEN || !ko_bundle_give(&wire->bundle, frame, body, rest))
        return false;
    (void)after(wire, KOLO_OK);
    return true;
}

static bool tcp_take(struct ko_wire *base, struct ko_message *message, void *to, int looks)
{
    struct tcp_wire *wire = (struct tcp_wire *)base;
    const bool has_come =
        base->state == KO_WIRE_OPEN && ko_bundle_take(&wire->bundle, message, to, looks);

    (void)after(wire, KOLO_OK);
    return has_come;
}

const struct ko_transport ko_transport_tcp = {
    .name = "tcp",
    .kind = KO_MESSAGE,
    .open = tcp_open,
    .close = tcp_close,
    .address = tcp_address,
    .connect = tcp_connect,
    .accept = tcp_accept,
    .answer = tcp_answer,
    .drive = tcp_drive,
    .send = tcp_send,
    .next = tcp_next,
    .land = tcp_land,
    .landed = tcp_landed,
    .give = tcp_give,
    .take = tcp_take,
    .deliver = tcp_deliver,
    .hangup = tcp_hangup,
};
