/* SPDX-License-Identifier: MIT
 *
 * A free port for rank 0's store, without the usual race. Reading the number of a port and closing
 * the socket leaves a gap in which another program can be given the same number. kolorun does not
 * close it: it stays bound, with SO_REUSEADDR, but never listens, for as long as the job runs.
 * Linux then gives the number to nobody who asks for any port (neither bind to port 0 nor connect),
 * while a server that names it and sets SO_REUSEADDR, as every store does, can still bind and
 * listen. It also keeps a rank that connects before rank 0 listens from being given the port as its
 * own and so connecting to itself.
 */
#include "launch.h"

#include "kolo.h"
#include "socket.h"
#include "socket_parts.h"
#include "status.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <unistd.h>

/* On all addresses of the family, and IPv6's with IPv4's. */
static int hold(int family, int *held, int *port)
{
    struct sockaddr_storage address = {.ss_family = (sa_family_t)family};
    socklen_t length =
        family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int off = 0;
    int err;

    if (fd < 0)
        return ko_fail_errno(errno, "no port can be chosen");
    if (family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    err = ko_socket_bind_any(fd, "", &address, length);
    if (err) {
        close(fd);
        return err;
    }
    *port = ko_socket_port_of(&address);
    *held = fd;
    return KOLO_OK;
}

int ko_port_hold(int *port)
{
    int fd;

    if (!hold(AF_INET6, &fd, port) || !hold(AF_INET, &fd, port))
        return fd;
    fprintf(stderr, "kolorun: %s\n", kolo_last_error());
    return -1;
}
