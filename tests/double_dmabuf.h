/* SPDX-License-Identifier: MIT
 *
 * double_dmabuf.h: what the double of NVIDIA's driver gives for a dma-buf of several pieces, and
 * that of libibverbs takes: a socket in which a descriptor of each lies, with its length beside it.
 * It keeps their memory, as a dma-buf does.
 */
#ifndef DOUBLE_DMABUF_H
#define DOUBLE_DMABUF_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { DOUBLE_RUN_MOST = 253 /* descriptors that Linux sends at once */ };

struct double_run {
    int n;
    int fds[DOUBLE_RUN_MOST]; /* each begins at its file's offset */
    uint64_t nbytes[DOUBLE_RUN_MOST];
};

static inline void double_run_close(const struct double_run *run)
{
    for (int i = 0; i < run->n; i++)
        close(run->fds[i]);
}

/* The message that holds a run: control has room for all descriptors. */
union double_run_control {
    char room[CMSG_SPACE(DOUBLE_RUN_MOST * sizeof(int))];
    struct cmsghdr align;
};

static inline bool double_run_pack(const struct double_run *run, int *fd)
{
    const size_t nbytes = (size_t)run->n * sizeof(int);
    union double_run_control control = {.room = ""};
    struct iovec body = {(void *)(uintptr_t)run->nbytes, (size_t)run->n * sizeof *run->nbytes};
    struct msghdr message = {.msg_iov = &body,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = CMSG_SPACE(nbytes)};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    int ends[2];
    bool is_packed;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
        return false;
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(nbytes);
    memcpy(CMSG_DATA(head), run->fds, nbytes);
    is_packed = sendmsg(ends[0], &message, MSG_NOSIGNAL) > 0;
    close(ends[0]);
    if (is_packed)
        *fd = ends[1];
    else
        close(ends[1]);
    return is_packed;
}

/* What stays in there: the descriptors are the caller's own. False: there is none. */
static inline bool double_run_look(int fd, struct double_run *run)
{
    union double_run_control control;
    struct iovec body = {run->nbytes, sizeof run->nbytes};
    struct msghdr message = {.msg_iov = &body,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof control};
    struct cmsghdr *head;

    run->n = 0;
    if (recvmsg(fd, &message, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC) <= 0)
        return false;
    head = CMSG_FIRSTHDR(&message);
    if (!head || head->cmsg_type != SCM_RIGHTS)
        return false;
    run->n = (int)((head->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    memcpy(run->fds, CMSG_DATA(head), (size_t)run->n * sizeof(int));
    return true;
}

#endif
