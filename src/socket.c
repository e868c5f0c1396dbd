/* SPDX-License-Identifier: MIT
 *
 * Every socket is non-blocking, so each operation is "try, else poll until the deadline".
 */
#include "socket.h"

#include "descriptors.h"
#include "fault.h"
#include "poller.h"
#include "socket_parts.h"
#include "status.h"

#include <errno.h>
#include <linux/sockios.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* A connection may have nothing to carry for hours, as to the store. Linux would look after two
 * whether the other end is there; firewalls between machines forget such a one after minutes, and
 * nobody hears of a host that has lost its power. */
void ko_socket_prepare(int fd)
{
    int one = 1, minute_s = 60;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &minute_s, sizeof minute_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &minute_s, sizeof minute_s);
}

int ko_socket_open(int family)
{
    int fd;

    if (ko_fault(KO_FAULT_SOCKET)) {
        errno = EMFILE;
        return -1;
    }
    fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);
    if (fd >= 0)
        ko_socket_prepare(fd);
    ko_descriptors_note(fd);
    return fd;
}

int ko_socket_port_of(const struct sockaddr_storage *address)
{
    if (address->ss_family == AF_INET6)
        return ntohs(((const struct sockaddr_in6 *)(const void *)address)->sin6_port);
    /* NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): the analyzer loses track at the cast */
    return ntohs(((const struct sockaddr_in *)(const void *)address)->sin_port);
}

void ko_socket_set_port(struct sockaddr_storage *address, int port)
{
    if (address->ss_family == AF_INET6)
        ((struct sockaddr_in6 *)(void *)address)->sin6_port = htons((uint16_t)port);
    else
        ((struct sockaddr_in *)(void *)address)->sin_port = htons((uint16_t)port);
}

/* ---- connecting --------------------------------------------------------------------------- */

int ko_socket_start(const struct sockaddr *address, socklen_t length, int *fd)
{
    int made = ko_socket_open(address->sa_family);
    int error;

    if (made < 0)
        return errno;
    if (connect(made, address, length) && errno != EINPROGRESS && errno != EINTR) {
        error = errno;
        close(made);
        return error;
    }
    *fd = made;
    return 0;
}

int ko_socket_connect_start(const struct sockaddr *address, socklen_t length, int *fd)
{
    int error = ko_socket_start(address, length, fd);

    return error ? ko_fail_errno(error, "cannot connect") : KOLO_OK;
}

int ko_socket_connect_beside(int fd, int port, int *beside)
{
    struct sockaddr_storage peer = {0};
    socklen_t length = sizeof peer;

    if (getpeername(fd, (struct sockaddr *)&peer, &length))
        return ko_fail(KOLO_E_PEER_LOST, "cannot connect once more: %s", strerror(errno));
    ko_socket_set_port(&peer, port);
    return ko_socket_connect_start((struct sockaddr *)&peer, length, beside);
}

int ko_socket_connect_error(int fd)
{
    struct sockaddr_storage peer;
    socklen_t length = sizeof peer;
    int error = 0;
    socklen_t size = sizeof error;

    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size))
        return errno;
    if (error)
        return error;
    if (!getpeername(fd, (struct sockaddr *)&peer, &length))
        return 0;
    return errno == ENOTCONN ? EINPROGRESS : errno;
}

int ko_socket_connected(int fd)
{
    int error = ko_socket_connect_error(fd);

    if (error == EINPROGRESS)
        return KO_AGAIN;
    return error ? ko_fail_errno(error, "cannot connect") : KOLO_OK;
}

/* Polls until something of wanted happens: 0, ETIMEDOUT, or poll's errno. */
static int poll_until(int fd, int wanted, const ko_deadline *deadline)
{
    struct pollfd entry = {.fd = fd};
    int n;

    entry.events =
        (short)((wanted & KO_POLL_IN ? POLLIN : 0) | (wanted & KO_POLL_OUT ? POLLOUT : 0));
    do
        n = poll(&entry, 1, ko_deadline_left_ms(deadline));
    while ((n < 0 && errno == EINTR) || (n == 0 && !ko_deadline_passed(deadline)));
    if (n > 0)
        return 0;
    return n == 0 ? ETIMEDOUT : errno;
}

/* ---- moving bytes ------------------------------------------------------------------------- */

static int fail_wait(int fd, int error, const char *verb, const ko_deadline *deadline)
{
    char peer[KO_SOCKET_NAME];

    ko_socket_peer_name(fd, peer);
    if (error == ETIMEDOUT)
        return ko_fail(KOLO_E_TIMEOUT, "%s %s timed out after %d ms", verb, peer,
                       deadline->timeout_ms);
    return ko_fail_errno(error, "poll while %s %s", verb, peer);
}

/* Once a connection has been reset the system does not know any more who was there. */
static int fail_lost(int fd, int error, const char *verb)
{
    char peer[KO_SOCKET_NAME];
    bool is_known = ko_socket_peer_name(fd, peer);

    return ko_fail(KOLO_E_PEER_LOST, "%s %s: %s", verb, is_known ? peer : "the other end",
                   error ? strerror(error) : "it closed the connection");
}

int ko_socket_wait(int fd, int wanted, const ko_deadline *deadline)
{
    int error = poll_until(fd, wanted, deadline);

    return error ? fail_wait(fd, error, "waiting for", deadline) : KOLO_OK;
}

bool ko_socket_is_not_yet(int error)
{
    return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

int ko_socket_send_all(int fd, const void *data, size_t nbytes, const ko_deadline *deadline)
{
    const char *from = data;
    ssize_t n;
    int error;

    if (ko_fault(KO_FAULT_SEND))
        return fail_lost(fd, ECONNRESET, "sending to");
    while (nbytes > 0) {
        n = send(fd, from, nbytes, MSG_NOSIGNAL);
        if (n < 0 && !ko_socket_is_not_yet(errno))
            return fail_lost(fd, errno, "sending to");
        if (n < 0) {
            error = poll_until(fd, KO_POLL_OUT, deadline);
            if (error)
                return fail_wait(fd, error, "sending to", deadline);
            continue;
        }
        from += n;
        nbytes -= (size_t)n;
    }
    return KOLO_OK;
}

int ko_socket_recv_all(int fd, void *data, size_t nbytes, const ko_deadline *deadline)
{
    char *to = data;
    ssize_t n;
    int error;

    if (ko_fault(KO_FAULT_RECV))
        return fail_lost(fd, ECONNRESET, "receiving from");
    while (nbytes > 0) {
        n = recv(fd, to, nbytes, 0);
        if (n == 0 || (n < 0 && !ko_socket_is_not_yet(errno)))
            return fail_lost(fd, n ? errno : 0, "receiving from");
        if (n < 0) {
            error = poll_until(fd, KO_POLL_IN, deadline);
            if (error)
                return fail_wait(fd, error, "receiving from", deadline);
            continue;
        }
        to += n;
        nbytes -= (size_t)n;
    }
    return KOLO_OK;
}

ssize_t ko_socket_send_pieces(int fd, const struct iovec *pieces, int npieces, int pass_fd)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof pass_fd)] = {0};
    struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)pieces,
                             .msg_iovlen = (size_t)npieces};
    struct cmsghdr *header;

    if (pass_fd >= 0) {
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof pass_fd);
        memcpy(CMSG_DATA(header), &pass_fd, sizeof pass_fd);
    }
    return sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

ssize_t ko_socket_send_with(int fd, const void *data, size_t nbytes, int pass_fd)
{
    const struct iovec piece = {.iov_base = (void *)(uintptr_t)data, .iov_len = nbytes};

    return ko_socket_send_pieces(fd, &piece, 1, pass_fd);
}

/* Keeps the first, if there was none before, and closes the others: for those a header's rounded
 * length has room, whatever we have asked for. */
static void keep_first(const struct cmsghdr *header, int *got_fd)
{
    int fd;

    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
        return;
    for (size_t at = CMSG_LEN(0); at + sizeof fd <= header->cmsg_len; at += sizeof fd) {
        memcpy(&fd, (const char *)header + at, sizeof fd);
        if (*got_fd >= 0)
            close(fd);
        else
            *got_fd = fd;
    }
}

ssize_t ko_socket_recv_with(int fd, void *data, size_t nbytes, int *got_fd)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof *got_fd)];
    struct iovec piece = {.iov_base = data, .iov_len = nbytes};
    struct msghdr message = {.msg_iov = &piece,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
    ssize_t n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    const struct cmsghdr *header = n < 0 ? NULL : CMSG_FIRSTHDR(&message);

    if (header)
        keep_first(header, got_fd);
    if (n > 0 && *got_fd < 0 && message.msg_flags & MSG_CTRUNC) { /* the system has dropped it */
        errno = EMFILE;
        return -1;
    }
    return n;
}

/* ---- names -------------------------------------------------------------------------------- */

static bool name_address(const struct sockaddr_storage *address, socklen_t length,
                         char name[KO_SOCKET_NAME])
{
    char host[KO_SOCKET_NAME - 16];

    if (getnameinfo((const struct sockaddr *)address, length, host, sizeof host, NULL, 0,
                    NI_NUMERICHOST))
        return false;
    snprintf(name, KO_SOCKET_NAME, address->ss_family == AF_INET6 ? "[%s]:%d" : "%s:%d", host,
             ko_socket_port_of(address));
    return true;
}

bool ko_socket_peer_name(int fd, char name[KO_SOCKET_NAME])
{
    struct sockaddr_storage address = {0};
    socklen_t length = sizeof address;

    snprintf(name, KO_SOCKET_NAME, "unknown");
    return !getpeername(fd, (struct sockaddr *)&address, &length) &&
           name_address(&address, length, name);
}

void ko_socket_own_name(int fd, char name[KO_SOCKET_NAME])
{
    struct sockaddr_storage address = {0};
    socklen_t length = sizeof address;

    snprintf(name, KO_SOCKET_NAME, "unknown");
    if (!getsockname(fd, (struct sockaddr *)&address, &length))
        name_address(&address, length, name);
}

bool ko_socket_same_host(int fd, int other)
{
    struct sockaddr_storage address[2];
    socklen_t length[2] = {sizeof *address, sizeof *address};

    memset(address, 0, sizeof address);
    if (getpeername(fd, (struct sockaddr *)&address[0], &length[0]) ||
        getpeername(other, (struct sockaddr *)&address[1], &length[1]))
        return false;
    ko_socket_set_port(&address[0], 0);
    ko_socket_set_port(&address[1], 0);
    return length[0] == length[1] && !memcmp(&address[0], &address[1], length[0]);
}

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

/* Ends of the same address, or of loopback ones: the kernel drops what comes in from outside with
 * an address of this machine's as its source, and a connection needs answers. */
bool ko_socket_is_within_machine(int fd)
{
    struct sockaddr_storage near = {0}, far = {0};
    socklen_t near_length = sizeof near, far_length = sizeof far;
    struct in6_addr own, other;

    if (getsockname(fd, (struct sockaddr *)&near, &near_length) || !as_v6(&near, &own))
        return false;
    if (getpeername(fd, (struct sockaddr *)&far, &far_length))
        return is_loopback(&own);
    return as_v6(&far, &other) &&
           ((is_loopback(&own) && is_loopback(&other)) || IN6_ARE_ADDR_EQUAL(&own, &other));
}

/* The other end may be waiting for the same: neither may keep its acknowledgements back. */
bool ko_socket_has_delivered(int fd)
{
    int one = 1, unacknowledged = 0;

    (void)setsockopt(fd, IPPROTO_TCP, TCP_QUICKACK, &one, sizeof one);
    return ioctl(fd, SIOCOUTQ, &unacknowledged) || !unacknowledged;
}
