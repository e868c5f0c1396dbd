/* SPDX-License-Identifier: MIT
 *
 * Sockets that listen, and what they accept.
 */
#include "socket.h"

#include "config.h"
#include "descriptors.h"
#include "fault.h"
#include "log.h"
#include "look_up.h"
#include "socket_parts.h"
#include "status.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { ACCEPT_PAUSE_MS = 5, LOOK_UP_MS = 10000, ANY_TRIES = 16 };

/* Those that one who takes any port may have. */
struct ports {
    int low, high; /* 0: all */
    int turn;      /* how many of them have been looked at */
};

static int read_ports(struct ports *ports)
{
    *ports = (struct ports){0};
    return ko_config_port_range(ko_config_text(KO_CONFIG_PORT_RANGE), &ports->low, &ports->high);
}

/* ports is NULL for a port that was given. */
static int fail_listen(int error, const char *host, int port, const struct ports *ports)
{
    const char *advice = "";

    if (error == EADDRINUSE && ports && ports->low > 0)
        return ko_fail(KOLO_E_SYSTEM, "all ports of KOLO_PORT_RANGE, %d to %d, are taken",
                       ports->low, ports->high);
    if (error == EADDRINUSE)
        advice = " (another process has this port: end it, or take another port)";
    else if (error == EADDRNOTAVAIL)
        advice = " (this machine has no such address: listen on one of its own)";
    return ko_fail_errno(error, "cannot listen on %s:%d%s", *host ? host : "*", port, advice);
}

/* With others that do too and do not listen. */
static void share_port(int fd, bool is_shared)
{
    int on = is_shared;

    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
}

/* Binds to the next free one of the ports, and says which. At first only to one that no socket has:
 * one that is bound and does not listen is held for somebody (tools/launch_port.c). Then to one on
 * which nobody listens: connections that have ended keep theirs for a minute. It begins at a place
 * that differs from process to process, so that they need not all go through those that are
 * taken. 0 or an errno. */
static int bind_next(int fd, struct sockaddr_storage *address, socklen_t length,
                     struct ports *ports)
{
    const int n = ports->low > 0 ? ports->high - ports->low + 1 : ANY_TRIES;
    const int first = (int)((uint32_t)getpid() * 2654435761u % (uint32_t)n);
    int error = EADDRINUSE;

    for (; ports->turn < 2 * n && error == EADDRINUSE; ports->turn++) {
        share_port(fd, ports->turn >= n);
        ko_socket_set_port(address, ports->low > 0 ? ports->low + (first + ports->turn) % n : 0);
        error = bind(fd, (struct sockaddr *)address, length) ? errno : 0;
    }
    share_port(fd, true);
    if (!error && getsockname(fd, (struct sockaddr *)address, &length))
        error = errno;
    return error;
}

int ko_socket_bind_any(int fd, const char *host, struct sockaddr_storage *address, socklen_t length)
{
    struct ports ports;
    int err = read_ports(&ports);
    int error;

    if (err)
        return err;
    error = bind_next(fd, address, length, &ports);
    return error ? fail_listen(error, host, 0, &ports) : KOLO_OK;
}

static int bind_given(int fd, const struct sockaddr_storage *address, socklen_t length)
{
    share_port(fd, true);
    return bind(fd, (const struct sockaddr *)address, length) ? errno : 0;
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

/* Listens on the address, whose port is 0 for one of the ports; then it is the one taken. IPv6's
 * wildcard leaves IPv4's to another socket if there is to be one. 0 or an errno. */
static int listen_on(struct sockaddr_storage *address, socklen_t length, bool is_alone,
                     struct ports *ports, int *fd_out)
{
    int fd = ko_socket_open(address->ss_family);
    int is_v6_only = !is_alone;
    int error;

    if (fd < 0)
        return errno;
    if (address->ss_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &is_v6_only, sizeof is_v6_only);
    if (ko_socket_port_of(address))
        error = bind_given(fd, address, length);
    else
        error = bind_next(fd, address, length, ports);
    if (!error && listen(fd, SOMAXCONN))
        error = errno;
    if (error)
        close(fd);
    else
        *fd_out = fd;
    return error;
}

/* Whether a list has the same address before this entry. */
static bool is_repeated(const struct addrinfo *list, const struct addrinfo *entry)
{
    while (list != entry && (list->ai_addrlen != entry->ai_addrlen ||
                             memcmp(list->ai_addr, entry->ai_addr, entry->ai_addrlen) != 0))
        list = list->ai_next;
    return list != entry;
}

/* This machine has the family, and addresses of it. */
static bool has_address(const struct addrinfo *entry)
{
    const int error = bind_to(entry);

    return error != EAFNOSUPPORT && error != EADDRNOTAVAIL;
}

/* The first decides on which port all listen, if any will do. 0 or an errno. */
static int listen_each(const struct addrinfo *list, int cap, struct ports *ports, int *fds, int *n,
                       int *port)
{
    bool is_alone = !list->ai_next || cap == 1;
    int error = 0;

    for (const struct addrinfo *entry = list; entry && *n < cap && !error; entry = entry->ai_next) {
        struct sockaddr_storage address = {0};

        if (!is_alone && (is_repeated(list, entry) || !has_address(entry)))
            continue;
        memcpy(&address, entry->ai_addr, entry->ai_addrlen);
        ko_socket_set_port(&address, *port);
        error = listen_on(&address, entry->ai_addrlen, is_alone, ports, &fds[*n]);
        if (error)
            break;
        *port = ko_socket_port_of(&address);
        ++*n;
    }
    return !error && *n == 0 ? EADDRNOTAVAIL : error;
}

static void close_all(int *fds, int *n)
{
    while (*n > 0)
        close(fds[--*n]);
}

/* If any port will do, one that is taken at a later address is not the last. */
static int listen_at(const struct addrinfo *list, const char *host, int cap, int *fds, int *n,
                     int *port)
{
    const int given = *port;
    struct ports ports;
    int err = given ? KOLO_OK : read_ports(&ports);
    int error;

    if (err)
        return err;
    while ((error = listen_each(list, cap, &ports, fds, n, port)) == EADDRINUSE && !given &&
           *n > 0) {
        close_all(fds, n);
        *port = 0;
    }
    if (!error)
        return KOLO_OK;
    close_all(fds, n);
    return fail_listen(error, host, *port, given ? NULL : &ports);
}

int ko_socket_listen_all(const char *host, int port, const ko_deadline *deadline, int *fds, int cap,
                         int *n, int *port_out)
{
    struct addrinfo *list;
    int error, err;

    *n = 0;
    if (!host)
        host = "";
    if (port < 0 || port > 65535)
        return ko_fail(KOLO_E_INVALID, "cannot listen on port %d: ports are 0 to 65535", port);
    error = ko_look_up(host, port, AI_PASSIVE, deadline, &list);
    if (error)
        return ko_fail(error == EAI_INPROGRESS ? KOLO_E_TIMEOUT : KOLO_E_SYSTEM,
                       "cannot listen on %s:%d: %s", host, port, ko_look_up_error(error));
    *port_out = port;
    err = listen_at(list, host, cap, fds, n, port_out);
    freeaddrinfo(list);
    return err;
}

int ko_socket_listen(const char *host, int port, int *fd, int *port_out)
{
    const ko_deadline deadline = ko_deadline_in(LOOK_UP_MS);
    int n;

    return ko_socket_listen_all(host, port, &deadline, fd, 1, &n, port_out);
}

int ko_socket_check_address(const char *name, const char *host)
{
    struct addrinfo *list;
    const char *why;
    const ko_deadline deadline = ko_deadline_in(LOOK_UP_MS);
    int error = ko_look_up(host, 0, AI_PASSIVE, &deadline, &list);

    if (error) {
        why = ko_look_up_error(error);
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
    struct ports ports;
    int err = read_ports(&ports);
    int error;

    if (err)
        return err;
    if (getsockname(fd, (struct sockaddr *)&own, &length))
        return ko_fail_errno(errno, "cannot listen for further connections");
    ko_socket_set_port(&own, 0);
    error = listen_on(&own, length, true, &ports, listen_fd);
    if (error)
        return fail_listen(error, "", 0, &ports);
    *port = ko_socket_port_of(&own);
    return KOLO_OK;
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
