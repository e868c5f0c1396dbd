/* SPDX-License-Identifier: MIT
 *
 * Sockets that listen, and what they accept.
 */
#include "socket.h"

#include "config.h"
#include "descriptors.h"
#include "fault.h"
#include "log.h"
#include "socket_parts.h"
#include "status.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { ACCEPT_PAUSE_MS = 5 };

static int fail_listen(int error, const char *host, int port)
{
    const char *advice = "";

    if (error == EADDRINUSE)
        advice =
            " (another process has this port: end it, or take another port; 0 is any free one)";
    else if (error == EADDRNOTAVAIL)
        advice = " (this machine has no such address: listen on one of its own)";
    return ko_fail_errno(error, "cannot listen on %s:%d%s", host && *host ? host : "*", port,
                         advice);
}

/* Returns 0 or an errno. */
static int listen_on(const struct sockaddr *address, socklen_t address_length, int *fd_out,
                     int *port_out)
{
    struct sockaddr_storage taken = {0};
    socklen_t length = sizeof taken;
    int one = 1;
    int error;
    int fd = ko_socket_open(address->sa_family);

    if (fd < 0)
        return errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, address, address_length) || listen(fd, SOMAXCONN) ||
        getsockname(fd, (struct sockaddr *)&taken, &length)) {
        error = errno;
        close(fd);
        return error;
    }
    *fd_out = fd;
    *port_out = ko_socket_port_of(&taken);
    return 0;
}

int ko_socket_port_range(int *low, int *high)
{
    const char *text = ko_config_text(KO_CONFIG_PORT_RANGE);
    int length = -1;

    *low = *high = 0;
    if (!*text)
        return KOLO_OK;
    if (sscanf(text, "%5d-%5d%n", low, high, &length) == 2 && length == (int)strlen(text) &&
        *low >= 1 && *low <= *high && *high <= 65535)
        return KOLO_OK;
    return ko_fail(KOLO_E_INVALID,
                   "KOLO_PORT_RANGE is \"%s\"; it takes two ports, like 30000-30999", text);
}

/* Listens on some free port, of the range if there is one: from a place in it that differs from
 * process to process, so that they need not all go through those that are taken. */
static int listen_on_any(struct sockaddr_storage *address, socklen_t length, int *fd, int *port)
{
    int low, high, n, first;
    int error = EADDRINUSE;
    int err = ko_socket_port_range(&low, &high);

    if (err)
        return err;
    n = high - low + 1;
    first = (int)((uint32_t)getpid() * 2654435761u % (uint32_t)n);
    for (int i = 0; i < n && error == EADDRINUSE; i++) {
        ko_socket_set_port(address, low == 0 ? 0 : low + (first + i) % n);
        error = listen_on((struct sockaddr *)address, length, fd, port);
    }
    if (error == EADDRINUSE && low > 0)
        return ko_fail(KOLO_E_SYSTEM, "all ports of KOLO_PORT_RANGE, %d to %d, are taken", low,
                       high);
    return error ? ko_fail_errno(error, "cannot listen") : KOLO_OK;
}

static int listen_first(const struct addrinfo *address, const char *host, int port, int *fd,
                        int *port_out)
{
    struct sockaddr_storage any = {0};
    int error;

    if (port == 0 && *ko_config_text(KO_CONFIG_PORT_RANGE)) {
        memcpy(&any, address->ai_addr, address->ai_addrlen);
        return listen_on_any(&any, address->ai_addrlen, fd, port_out);
    }
    error = listen_on(address->ai_addr, address->ai_addrlen, fd, port_out);
    return error ? fail_listen(error, host, port) : KOLO_OK;
}

int ko_socket_listen(const char *host, int port, int *fd, int *port_out)
{
    struct addrinfo *list;
    int error;
    int err;

    if (port < 0 || port > 65535)
        return ko_fail(KOLO_E_INVALID, "cannot listen on port %d: ports are 0 to 65535", port);
    error = ko_socket_resolve(host, port, AI_PASSIVE, &list);
    if (error)
        return ko_fail(KOLO_E_SYSTEM, "cannot listen on %s:%d: %s", host, port,
                       gai_strerror(error));
    err = listen_first(list, host, port, fd, port_out);
    freeaddrinfo(list);
    return err;
}

/* 0 or an errno. */
static int bind_to(const struct addrinfo *address)
{
    const int fd = ko_socket_open(address->ai_family);
    int error = 0;

    if (fd < 0)
        return errno;
    if (bind(fd, address->ai_addr, address->ai_addrlen))
        error = errno;
    close(fd);
    return error;
}

int ko_socket_check_address(const char *name, const char *host)
{
    struct addrinfo *list;
    const char *why;
    int error = ko_socket_resolve(host, 0, AI_PASSIVE, &list);

    if (error) {
        why = gai_strerror(error);
    } else {
        error = bind_to(list);
        freeaddrinfo(list);
        why = strerror(error);
    }
    if (!error)
        return KOLO_OK;
    return ko_fail(
        KOLO_E_INVALID,
        "%s is \"%.100s\"; it takes an address of this machine, or an interface that has one, as "
        "ip address lists them: %s",
        name, host, why);
}

int ko_socket_adopt(int inherited, int *fd, int *port)
{
    struct sockaddr_storage own = {0};
    socklen_t length = sizeof own;
    int listens = 0;
    socklen_t size = sizeof listens;

    if (getsockopt(inherited, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) || !listens ||
        getsockname(inherited, (struct sockaddr *)&own, &length))
        return ko_fail(KOLO_E_INVALID,
                       "KOLO_STORE_FD is %d, and descriptor %d is no socket that "
                       "listens",
                       inherited, inherited);
    *fd = fcntl(inherited, F_DUPFD_CLOEXEC, 0);
    if (*fd < 0)
        return ko_fail_errno(errno, "KOLO_STORE_FD, descriptor %d", inherited);
    fcntl(*fd, F_SETFL, fcntl(*fd, F_GETFL) | O_NONBLOCK);
    *port = ko_socket_port_of(&own);
    return KOLO_OK;
}

int ko_socket_listen_beside(int fd, int *listen_fd, int *port)
{
    struct sockaddr_storage own = {0};
    socklen_t length = sizeof own;

    if (getsockname(fd, (struct sockaddr *)&own, &length))
        return ko_fail_errno(errno, "cannot listen for further connections");
    return listen_on_any(&own, length, listen_fd, port);
}

static void tell_out_of_descriptors(int error)
{
    static atomic_flag told = ATOMIC_FLAG_INIT;

    if (!atomic_flag_test_and_set(&told))
        ko_log(KO_LOG_WARN, "cannot accept connections: %s; raise the limit (ulimit -n)",
               strerror(error));
    poll(NULL, 0, ACCEPT_PAUSE_MS);
}

int ko_socket_accept(int listen_fd, int *fd)
{
    int got = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (got >= 0 && ko_fault(KO_FAULT_SOCKET)) {
        close(got);
        got = -1;
        errno = EMFILE;
    }
    if (got >= 0) {
        ko_socket_prepare(got);
        ko_descriptors_note(got);
        *fd = got;
        return KOLO_OK;
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        tell_out_of_descriptors(errno);
        return KO_AGAIN;
    }
    if (errno == EBADF || errno == EINVAL || errno == ENOTSOCK || errno == EOPNOTSUPP)
        return ko_fail_errno(errno, "accept on descriptor %d", listen_fd);
    return KO_AGAIN; /* nobody there, or one that has gone again */
}
