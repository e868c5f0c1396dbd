/* SPDX-License-Identifier: MIT
 *
 * TCP between any two ranks that can reach each other. One connection a wire; slices are written
 * from and read into their final place.
 */
#include "transport.h"

#include "poller.h"
#include "socket.h"
#include "status.h"
#include "stream.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Where a device listens, as it travels. */
struct tcp_address {
    char host[64]; /* numeric */
    uint16_t port;
};

struct tcp_device {
    struct ko_device base;
    struct tcp_address address;
};

struct tcp_wire {
    struct ko_stream_wire common;
    bool has_answered;
};

static int tcp_open(const struct ko_site *site, struct ko_device **device_out)
{
    struct tcp_device *device = ko_alloc(sizeof *device, "a device");
    int port;
    int err;

    if (!device)
        return KOLO_E_NOMEM;
    device->base.transport = &ko_transport_tcp;
    err = ko_socket_listen(site->listen_host, 0, &device->base.listen_fd, &port);
    if (err) {
        free(device);
        return err;
    }
    memcpy(device->address.host, site->listen_host, sizeof device->address.host);
    device->address.port = (uint16_t)port;
    *device_out = &device->base;
    return KOLO_OK;
}

static void tcp_close(struct ko_device *device)
{
    if (!device)
        return;
    close(device->listen_fd);
    free(device);
}

static size_t tcp_address(struct ko_device *device, unsigned char *address)
{
    const struct tcp_device *tcp = (const struct tcp_device *)device;

    memcpy(address, &tcp->address, sizeof tcp->address);
    return sizeof tcp->address;
}

static struct tcp_wire *new_wire(int fd, bool is_connecting)
{
    struct tcp_wire *wire = ko_alloc(sizeof *wire, "a wire");

    if (!wire)
        return NULL;
    wire->common.base.transport = &ko_transport_tcp;
    wire->common.base.fd = fd;
    ko_stream_begin(&wire->common.stream, fd, false, is_connecting);
    wire->common.base.wanted = is_connecting ? KO_POLL_OUT : KO_POLL_IN;
    return wire;
}

static void tcp_hangup(struct ko_wire *base)
{
    struct tcp_wire *wire = (struct tcp_wire *)base;

    if (wire)
        ko_stream_end(&wire->common.stream);
    free(wire);
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
    struct tcp_address where = {{0}, 0};
    struct sockaddr_storage socket_address;
    struct tcp_wire *wire;
    socklen_t length = 0;
    int fd;
    int err;

    (void)device;
    memcpy(&where, address, nbytes < sizeof where ? nbytes : sizeof where);
    where.host[sizeof where.host - 1] = 0;
    err = to_sockaddr(&where, &socket_address, &length);
    if (!err)
        err = ko_socket_connect_start((struct sockaddr *)&socket_address, length, &fd);
    if (err)
        return err;
    wire = new_wire(fd, true);
    if (!wire) {
        close(fd);
        return KOLO_E_NOMEM;
    }
    ko_stream_greet(&wire->common.stream, hello, -1);
    wire->has_answered = true;
    *wire_out = &wire->common.base;
    return KOLO_OK;
}

static int tcp_accept(struct ko_device *device, struct ko_wire **wire_out)
{
    struct tcp_wire *wire;
    int fd;
    int err = ko_socket_accept(device->listen_fd, &fd);

    if (err)
        return err;
    wire = new_wire(fd, false);
    if (!wire) {
        close(fd);
        return KOLO_E_NOMEM;
    }
    *wire_out = &wire->common.base;
    return KOLO_OK;
}

static int shake(struct tcp_wire *wire)
{
    struct ko_wire *base = &wire->common.base;
    int err = wire->has_answered ? ko_stream_greeted(&wire->common.stream) : KOLO_OK;

    if (!err && !base->has_hello) {
        err = ko_stream_hear(&wire->common.stream, &base->hello);
        if (!err)
            base->has_hello = true;
    }
    if (!err && wire->has_answered)
        base->state = KO_WIRE_OPEN;
    return err == KO_AGAIN ? KOLO_OK : err;
}

static int tcp_drive(struct ko_wire *base)
{
    struct tcp_wire *wire = (struct tcp_wire *)base;
    int err = base->state == KO_WIRE_OPEN ? ko_stream_flush(&wire->common.stream) : shake(wire);

    base->wanted = ko_stream_wanted(&wire->common.stream);
    return err;
}

static int tcp_answer(struct ko_wire *base, const struct ko_hello *hello)
{
    struct tcp_wire *wire = (struct tcp_wire *)base;

    ko_stream_greet(&wire->common.stream, hello, -1);
    wire->has_answered = true;
    return tcp_drive(base);
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
    .send = ko_stream_wire_send,
    .next = ko_stream_wire_next,
    .land = ko_stream_wire_land,
    .hangup = tcp_hangup,
};
