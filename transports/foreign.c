/* SPDX-License-Identifier: MIT
 *
 * Who the peer is, the kernel says (SO_PEERCRED), not the peer. Its number may be given to another
 * process when it ends: a descriptor taken before the word was found tells after each copy whether
 * it was still the peer's.
 */
#include "foreign.h"

#include "copy.h"
#include "fault.h"
#include "portable.h"
#include "protocols.h"
#include "status.h"
#include "window.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

struct ko_foreign {
    uint64_t word; /* ours, for the peer to find */
    bool is_tried;
    pid_t peer;  /* 0: its memory is not read */
    int peer_fd; /* readable when it has ended; -1: it is this process */
};

static struct ko_foreign *foreign_of(struct ko_link *link)
{
    if (!link->foreign) {
        link->foreign = ko_alloc(sizeof *link->foreign, "reading of a peer's memory");
        if (link->foreign)
            link->foreign->peer_fd = -1;
    }
    return link->foreign;
}

void ko_foreign_free(struct ko_foreign *foreign)
{
    if (foreign && foreign->peer_fd >= 0)
        close(foreign->peer_fd);
    free(foreign);
}

int ko_foreign_invite(struct ko_link *link)
{
    if (!(link->protocols & KO_PROTO_CMA))
        return KOLO_OK;
    if (!foreign_of(link))
        return KOLO_E_NOMEM;
    if (getrandom(&link->foreign->word, sizeof link->foreign->word, 0) < 0)
        return ko_fail_errno(errno, "getrandom");
    link->inbox->word = link->foreign->word;
    ko_store_release(&link->inbox->word_at, (uintptr_t)&link->foreign->word);
    return KOLO_OK;
}

/* 0 if they have been copied, else an errno. */
static int copy_from(pid_t pid, uint64_t address, void *to, size_t nbytes)
{
    const struct iovec here = {to, nbytes}, there = {(void *)(uintptr_t)address, nbytes};
    ssize_t n;

    if (ko_fault(KO_FAULT_FOREIGN))
        return EPERM;
    n = process_vm_readv(pid, &here, 1, &there, 1, 0);
    if (n == (ssize_t)nbytes)
        return 0;
    return n < 0 ? errno : EFAULT; /* it ends at the first page that is not there */
}

/* The process at the other end of the wire; 0 if it is none that can be named here. */
static pid_t find_peer(const struct ko_link *link)
{
    struct ucred peer = {0};
    socklen_t length = sizeof peer;

    if (getsockopt(link->wire->fd, SOL_SOCKET, SO_PEERCRED, &peer, &length))
        return 0;
    return peer.pid;
}

void ko_foreign_try(struct ko_link *link)
{
    struct ko_foreign *foreign = link->foreign;
    uint64_t address, found = 0;
    pid_t peer;

    if (!foreign || foreign->is_tried)
        return;
    address = ko_load_acquire(&link->outbox->word_at);
    foreign->is_tried = address != 0;
    if (!address)
        return;
    peer = find_peer(link);
    if (peer > 0 && peer != getpid())
        foreign->peer_fd = (int)syscall(SYS_pidfd_open, peer, 0);
    if (peer <= 0 || (peer != getpid() && foreign->peer_fd < 0) ||
        copy_from(peer, address, &found, sizeof found) || found != link->outbox->word)
        return;
    foreign->peer = peer;
    ko_store_release(&link->inbox->is_reading, 1);
}

bool ko_foreign_is_read(const struct ko_link *link, size_t nbytes)
{
    return link->foreign && nbytes >= KO_FOREIGN_LEAST &&
           ko_load_acquire(&link->outbox->is_reading);
}

static bool has_ended(const struct ko_foreign *foreign)
{
    struct pollfd end = {.fd = foreign->peer_fd, .events = POLLIN};

    return poll(&end, 1, 0) == 1;
}

int ko_foreign_read(const struct ko_link *link, uint64_t address, void *to, size_t nbytes)
{
    int error;

    if (!link->foreign || !link->foreign->peer)
        return ko_fail(KOLO_E_PROTOCOL, "rank %d refers to memory that is not read here",
                       link->peer);
    if (link->foreign->peer == getpid()) {
        ko_copy(to, (const void *)(uintptr_t)address, nbytes);
        return KOLO_OK;
    }
    error = copy_from(link->foreign->peer, address, to, nbytes);
    if (error == ESRCH || has_ended(link->foreign))
        return ko_fail(KOLO_E_PEER_LOST, "rank %d has ended while its memory was read", link->peer);
    if (error)
        return ko_fail(KOLO_E_PROTOCOL,
                       "%zu bytes at %#llx of rank %d cannot be read by another process (%s): if "
                       "they are a device's, or secret memory, leave cma out of KOLO_PROTO",
                       nbytes, (unsigned long long)address, link->peer, strerror(error));
    return KOLO_OK;
}
