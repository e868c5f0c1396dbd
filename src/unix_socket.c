/* SPDX-License-Identifier: MIT */
#include "unix_socket.h"

#include "descriptors.h"
#include "fault.h"
#include "poller.h"
#include "socket.h"
#include "status.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { LOOK_MS = 20 }; /* between two looks of who waits for others to connect */

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
    if (*fd < 0)
        return ko_fail_errno(errno, "making a Unix socket");
    ko_descriptors_note(*fd);
    return KOLO_OK;
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
    err = ko_unix_check_user(fd);
    if (err) {
        close(fd);
        return err;
    }
    *fd_out = fd;
    return KOLO_OK;
}

int ko_unix_accept(int listener, const ko_deadline *deadline, ko_unix_look *look, void *owner,
                   int *fd)
{
    int err = KO_AGAIN;

    while (err == KO_AGAIN && !ko_deadline_passed(deadline)) {
        const ko_deadline soon = ko_deadline_within(deadline, LOOK_MS);

        err = ko_socket_wait(listener, KO_POLL_IN, &soon);
        if (err == KOLO_E_TIMEOUT)
            err = look ? look(owner) : KOLO_OK;
        if (!err)
            err = ko_socket_accept(listener, fd);
    }
    return err == KO_AGAIN ? KOLO_E_TIMEOUT : err;
}

int ko_unix_check_user(int fd)
{
    struct ucred credentials = {0};
    socklen_t length = sizeof credentials;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length))
        return ko_fail_errno(errno, "asking who is at the other end of a Unix socket");
    if (credentials.uid != geteuid())
        return ko_fail(KOLO_E_PROTOCOL,
                       "process %d at the other end of a Unix socket belongs to user %u, this one "
                       "to user %u; refused",
                       (int)credentials.pid, (unsigned)credentials.uid, (unsigned)geteuid());
    return KOLO_OK;
}
