/* SPDX-License-Identifier: MIT */
#include "unix_socket.h"

#include "fault.h"
#include "status.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* An abstract address begins with a NUL and has no end mark: its length counts. */
static socklen_t address_of(const char *name, struct sockaddr_un *address)
{
    size_t length = strnlen(name, KO_UNIX_NAME - 1);

    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(address->sun_path + 1, name, length);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
}

static int open_socket(int *fd)
{
    *fd = ko_fault(KO_FAULT_SOCKET)
              ? (errno = EMFILE, -1)
              : socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    return *fd < 0 ? ko_fail_errno(errno, "making a Unix socket") : KOLO_OK;
}

int ko_unix_listen(int *fd_out, char name[KO_UNIX_NAME])
{
    struct sockaddr_un address;
    uint64_t random[2];
    socklen_t length;
    int fd;
    int err = open_socket(&fd);

    if (err)
        return err;
    if (getrandom(random, sizeof random, 0) != sizeof random)
        err = ko_fail_errno(errno, "getrandom");
    snprintf(name, KO_UNIX_NAME, "kolo-%016llx%016llx", (unsigned long long)random[0],
             (unsigned long long)random[1]);
    length = address_of(name, &address);
    if (!err && (bind(fd, (struct sockaddr *)&address, length) || listen(fd, SOMAXCONN)))
        err = ko_fail_errno(errno, "listening on the Unix socket @%s", name);
    if (err) {
        close(fd);
        return err;
    }
    *fd_out = fd;
    return KOLO_OK;
}

int ko_unix_connect(const char *name, int *fd_out)
{
    struct sockaddr_un address;
    socklen_t length = address_of(name, &address);
    int fd;
    int err = open_socket(&fd);

    if (err)
        return err;
    if (connect(fd, (struct sockaddr *)&address, length)) {
        if (errno == EAGAIN)
            err = KO_AGAIN;
        else if (errno == ECONNREFUSED)
            err = ko_fail(KOLO_E_PEER_LOST, "nobody listens on the Unix socket @%s any more", name);
        else
            err = ko_fail_errno(errno, "connecting to the Unix socket @%s", name);
        close(fd);
        return err;
    }
    *fd_out = fd;
    return KOLO_OK;
}

int ko_unix_check_user(int fd)
{
    struct ucred credentials = {0};
    socklen_t length = sizeof credentials;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length))
        return ko_fail_errno(errno, "asking who is at the other end of a Unix socket");
    if (credentials.uid != geteuid())
        return ko_fail(KOLO_E_PROTOCOL,
                       "process %d of user %u connected to a Unix socket of user %u; refused",
                       (int)credentials.pid, (unsigned)credentials.uid, (unsigned)geteuid());
    return KOLO_OK;
}

ssize_t ko_unix_send(int fd, const void *data, size_t nbytes, int pass_fd)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof pass_fd)] = {0};
    struct iovec piece = {.iov_base = (void *)(uintptr_t)data, .iov_len = nbytes};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
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
    return sendmsg(fd, &message, MSG_NOSIGNAL);
}

ssize_t ko_unix_recv(int fd, void *data, size_t nbytes, int *got_fd)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof *got_fd)];
    struct iovec piece = {.iov_base = data, .iov_len = nbytes};
    struct msghdr message = {.msg_iov = &piece,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
    ssize_t n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    struct cmsghdr *header = n < 0 ? NULL : CMSG_FIRSTHDR(&message);
    int passed;

    if (!header || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
        return n;
    memcpy(&passed, CMSG_DATA(header), sizeof passed);
    if (*got_fd >= 0)
        close(passed);
    else
        *got_fd = passed;
    return n;
}
