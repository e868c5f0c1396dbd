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

enum way { BY_SLOTS, BY_READING, NWAYS };

/* Slices of each way that decide on a class. */
enum { TRIES = 6 };

/* Slices of one class that were measured, and the least time for 1024 bytes. */
struct trial {
    int n[NWAYS];
    int64_t least_ns[NWAYS];
};

struct ko_foreign {
    uint64_t word; /* ours, for the peer to find */
    bool is_tried;
    pid_t peer;  /* 0: its memory is not read */
    int peer_fd; /* readable when it has ended; -1: it is this process */

    struct trial trials[KO_FOREIGN_CLASSES]; /* of slices that come */
    uint64_t reading;                        /* as in our window */
    unsigned char turns[KO_FOREIGN_CLASSES]; /* of slices that go */
    uintptr_t readable, end;                 /* memory at whose ends we have read ourselves */
};

static int class_of(size_t nbytes)
{
    int found = 0;

    while (found < KO_FOREIGN_CLASSES - 1 && nbytes >= (size_t)KO_FOREIGN_LEAST << (found + 1))
        found++;
    return found;
}

static bool says(uint64_t reading, int what, int class)
{
    return reading >> (what + class) & 1;
}

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
    if (!(link->protocols & (KO_PROTO_CMA | KO_PROTO_TRY_CMA)))
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

/* In all classes, whatever it costs. */
static uint64_t decided_in_favour(void)
{
    const uint64_t classes = (1U << KO_FOREIGN_CLASSES) - 1;

    return classes << KO_FOREIGN_DECIDED | classes << KO_FOREIGN_SOONER;
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
    foreign->reading = KO_FOREIGN_READS;
    if (link->protocols & KO_PROTO_CMA)
        foreign->reading |= decided_in_favour();
    ko_store_release(&link->inbox->reading, foreign->reading);
}

bool ko_foreign_is_read(const struct ko_link *link, size_t nbytes)
{
    return link->protocols & KO_PROTO_CMA && link->foreign && nbytes >= KO_FOREIGN_LEAST &&
           ko_load_acquire(&link->outbox->reading);
}

/* ---- trials -------------------------------------------------------------------------------- */

/* Whether the system lets the bytes be read, if it does so at both ends. Slices side by side make
 * one stretch, so a buffer that is sent again costs nothing. */
static bool is_readable(struct ko_foreign *foreign, uintptr_t from, size_t nbytes)
{
    char ends[2];
    const struct iovec here = {ends, 2};
    const struct iovec there[] = {{(void *)from, 1}, {(void *)(from + nbytes - 1), 1}};

    if (from >= foreign->readable && from + nbytes <= foreign->end)
        return true;
    if (ko_fault(KO_FAULT_FOREIGN) || process_vm_readv(getpid(), &here, 1, there, 2, 0) != 2)
        return false;
    if (from != foreign->end)
        foreign->readable = from;
    foreign->end = from + nbytes;
    return true;
}

bool ko_foreign_is_tried(struct ko_link *link, const void *from, size_t nbytes)
{
    const int class = class_of(nbytes);
    uint64_t reading;

    if (!link->foreign || nbytes < KO_FOREIGN_LEAST || !(link->protocols & KO_PROTO_TRY_CMA))
        return false;
    reading = ko_load_acquire(&link->outbox->reading);
    if (!says(reading, KO_FOREIGN_DECIDED, class) &&
        (!reading || link->foreign->turns[class]++ & 1))
        return false;
    if (says(reading, KO_FOREIGN_DECIDED, class) && !says(reading, KO_FOREIGN_SOONER, class))
        return false;
    return is_readable(link->foreign, (uintptr_t)from, nbytes);
}

bool ko_foreign_is_timed(const struct ko_link *link)
{
    const struct ko_foreign *foreign = link->foreign;

    return foreign && foreign->reading && link->frame.nbytes >= KO_FOREIGN_LEAST &&
           (link->frame.kind == KO_FRAME_DATA || link->frame.kind == KO_FRAME_FOREIGN) &&
           !says(foreign->reading, KO_FOREIGN_DECIDED, class_of(link->frame.nbytes));
}

void ko_foreign_judge(struct ko_link *link, int64_t ns)
{
    const enum way way = link->frame.kind == KO_FRAME_FOREIGN ? BY_READING : BY_SLOTS;
    const int class = class_of(link->frame.nbytes);
    struct ko_foreign *foreign = link->foreign;
    struct trial *trial = &foreign->trials[class];
    const int64_t ns_of_1k = 1024 * ns / link->frame.nbytes;

    if (!trial->n[way]++ || ns_of_1k < trial->least_ns[way])
        trial->least_ns[way] = ns_of_1k;
    if (trial->n[BY_SLOTS] < TRIES || trial->n[BY_READING] < TRIES)
        return;
    foreign->reading |= UINT64_C(1) << (KO_FOREIGN_DECIDED + class);
    if (trial->least_ns[BY_READING] < 2 * trial->least_ns[BY_SLOTS])
        foreign->reading |= UINT64_C(1) << (KO_FOREIGN_SOONER + class);
    ko_store_release(&link->inbox->reading, foreign->reading);
}

/* ---- reading ------------------------------------------------------------------------------- */

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
        return ko_fail(
            KOLO_E_PROTOCOL,
            "%zu bytes at %#llx of rank %d cannot be read by another process (%s): if "
            "they are a device's, or secret memory, leave cma and try-cma out of KOLO_PROTO",
            nbytes, (unsigned long long)address, link->peer, strerror(error));
    return KOLO_OK;
}
