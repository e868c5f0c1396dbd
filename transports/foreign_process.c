/* SPDX-License-Identifier: MIT */
#include "foreign_process.h"

#include "clock.h"
#include "copy.h"
#include "fault.h"
#include "link.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

/* In which a system does not begin as many processes as it has numbers, by far. */
enum { SURE_NS = 200000, SURE_TO_WRITE_NS = 20000 };

pid_t ko_foreign_pid(const struct ko_link *link)
{
    struct ucred peer = {0};
    socklen_t length = sizeof peer;

    if (getsockopt(link->wire->fd, SOL_SOCKET, SO_PEERCRED, &peer, &length))
        return 0;
    return peer.pid;
}

/* Of a process whose first thread has ended ESRCH is said while others go on. */
static int error_of(int error)
{
    return error == ESRCH ? EPERM : error;
}

/* With the peer's word or when it had just been found. */
static int read_once(struct ko_foreign_process *process, uint64_t address, void *to, size_t nbytes,
                     bool with_word)
{
    const int64_t began_ns = with_word ? ko_now_ns() : 0;
    uint64_t found = ~process->word;
    const struct iovec here[] = {{&found, sizeof found}, {to, nbytes}};
    const struct iovec there[] = {{(void *)(uintptr_t)process->word_at, sizeof found},
                                  {(void *)(uintptr_t)address, nbytes}};
    const unsigned first = !with_word, n = 2 - first;
    const ssize_t copied = process_vm_readv(process->pid, here + first, n, there + first, n, 0);

    if (copied < 0 && errno != EFAULT)
        return error_of(errno);
    if (with_word && found != process->word)
        return ESRCH;
    if (with_word)
        process->found_ns = began_ns;
    return copied == (ssize_t)(with_word ? sizeof found + nbytes : nbytes) ? 0 : EFAULT;
}

int ko_foreign_process_look(struct ko_foreign_process *process)
{
    return ko_fault(KO_FAULT_FOREIGN) ? EPERM : read_once(process, 0, NULL, 0, true);
}

void ko_foreign_process_find(struct ko_foreign_process *process, pid_t pid, uint64_t word,
                             uint64_t word_at)
{
    *process = (struct ko_foreign_process){.pid = pid, .word = word, .word_at = word_at};
    if (pid <= 0 || ko_foreign_process_look(process))
        process->pid = 0;
}

static bool is_this_one(const struct ko_foreign_process *process)
{
    return process->pid == getpid();
}

static bool is_sure(const struct ko_foreign_process *process, int64_t within_ns)
{
    return ko_now_ns() - process->found_ns < within_ns;
}

/* The word is to have been found lately when the bytes have been copied, not only before. */
int ko_foreign_process_read(struct ko_foreign_process *process, uint64_t address, void *to,
                            size_t nbytes)
{
    int error;

    if (is_this_one(process)) {
        ko_copy(to, (const void *)(uintptr_t)address, nbytes);
        return 0;
    }
    if (ko_fault(KO_FAULT_FOREIGN))
        return EPERM;
    error = read_once(process, address, to, nbytes, !is_sure(process, SURE_NS / 2));
    if (!error && !is_sure(process, SURE_NS))
        error = ko_foreign_process_look(process);
    return error;
}

/* What has been written cannot be taken back: the word is to have been found right before. */
int ko_foreign_process_write(struct ko_foreign_process *process, uint64_t address, const void *from,
                             size_t nbytes)
{
    const struct iovec here = {(void *)(uintptr_t)from, nbytes};
    const struct iovec there = {(void *)(uintptr_t)address, nbytes};
    int error;

    if (is_this_one(process)) {
        ko_copy((void *)(uintptr_t)address, from, nbytes);
        return 0;
    }
    error = is_sure(process, SURE_TO_WRITE_NS) ? 0 : ko_foreign_process_look(process);
    if (error)
        return error;
    return process_vm_writev(process->pid, &here, 1, &there, 1, 0) == (ssize_t)nbytes ? 0 : EFAULT;
}
