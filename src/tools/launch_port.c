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

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

/* All addresses of both families where there is IPv6, else of IPv4. */
static int bind_any(int family, int *port)
{
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr *address = family == AF_INET6 ? (void *)&v6 : (void *)&v4;
    socklen_t length = family == AF_INET6 ? sizeof v6 : sizeof v4;
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int on = 1, off = 0;

    if (fd < 0)
        return -1;
    if (family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) || bind(fd, address, length) ||
        getsockname(fd, address, &length)) {
        int error = errno;

        close(fd);
        errno = error;
        return -1;
    }
    *port = ntohs(family == AF_INET6 ? v6.sin6_port : v4.sin_port);
    return fd;
}

int ko_port_hold(int *port)
{
    int fd = bind_any(AF_INET6, port);

    return fd >= 0 ? fd : bind_any(AF_INET, port);
}
