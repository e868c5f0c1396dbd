/* SPDX-License-Identifier: MIT
 *
 * limits_socket.h: the connection of peer_limits.c over TCP, on which both ranks send and receive
 * at once.
 */
#ifndef LIMITS_SOCKET_H
#define LIMITS_SOCKET_H

#include "limits_sides.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

/* What the system is told about a connection, NULL and 0: nothing; and how it is used: looks that
 * find nothing before a sleep (0: it never sleeps). */
struct wire {
    const char *congestion;
    int buffer_bytes, looks_before_nap;
};

static struct wire wire;
static int connection = -1;

static void nap(int gives, int takes)
{
    struct pollfd entry = {.fd = connection};

    entry.events = (short)((gives ? POLLOUT : 0) | (takes ? POLLIN : 0));
    poll(&entry, 1, -1);
}

/* With a buffer of its own one call moves no more than stays in the caches on its way. */
static size_t call_bytes(size_t left)
{
    enum { PIECE = 256 << 10 };

    return wire.buffer_bytes ? least(left, PIECE) : left;
}

static void over_socket(const struct transfer *t)
{
    size_t given = 0, got = 0;
    const size_t give = t->ngive * sizeof(float), take = t->ntake * sizeof(float);
    int looks = 0;

    while (given < give || got < take) {
        const size_t before = given + got;
        ssize_t n;

        if (given < give) {
            n = send(connection, (const char *)t->give + given, call_bytes(give - given),
                     MSG_DONTWAIT);
            given += n > 0 ? (size_t)n : 0;
        }
        if (got < take) {
            n = recv(connection, (char *)t->take + got, call_bytes(take - got), MSG_DONTWAIT);
            got += n > 0 ? (size_t)n : 0;
        }
        looks = given + got > before ? 0 : looks + 1;
        if (wire.looks_before_nap && looks == wire.looks_before_nap) {
            nap(given < give, got < take);
            looks = 0;
        }
    }
}

/* Before it listens or connects: a window's scale is agreed on then. 0: this system has no such
 * congestion control, or lets this user have none. */
static int set_up(int fd)
{
    const int bytes = wire.buffer_bytes;

    if (bytes && (setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes) ||
                  setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes)))
        return 0;
    return !wire.congestion || !setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, wire.congestion,
                                           (socklen_t)strlen(wire.congestion));
}

/* Rank 0 listens and leaves its port where rank 1 finds it. 0: such a connection there is not, for
 * neither. */
static int connect_ranks(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1, taken_fd;

    if (!set_up(fd))
        return 0;
    if (rank == 0) {
        if (bind(fd, (struct sockaddr *)&address, length) || listen(fd, 1) ||
            getsockname(fd, (struct sockaddr *)&address, &length))
            peer_die("limits", "cannot listen");
        store(&mine->met.word, address.sin_port + 1U);
        taken_fd = accept(fd, NULL, NULL);
        close(fd);
        fd = taken_fd;
    } else {
        await(&theirs->met.word, 1);
        address.sin_port = (in_port_t)(load(&theirs->met.word) - 1);
        if (connect(fd, (struct sockaddr *)&address, length))
            peer_die("limits", "cannot connect");
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    connection = fd;
    return 1;
}

#endif
