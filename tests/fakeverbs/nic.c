/* SPDX-License-Identifier: MIT
 *
 * The thread that is all adapters of a process. Each queue pair has a datagram socket, whose name
 * in Linux's abstract namespace is its number; what it sends arrives whole and in order. The
 * receiver says of each message that it has arrived. A peer that has gone is noticed by whoever
 * still waits for such an answer, as with a real one.
 */
#include "double.h"

#include <errno.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { VENDOR_TIMEOUT = 129, TICK_MS = 20 };

pthread_mutex_t double_lock = PTHREAD_MUTEX_INITIALIZER;
struct double_mr *double_mrs;
struct double_cq *double_cqs;
unsigned double_generation;

static struct nic {
    sem_t runs; /* posted by the thread */
    int users, epoll_fd, stop_fd;
    pthread_t thread;
    struct double_qp *qps;
} * nic;

/* ---- sockets ------------------------------------------------------------------------------ */

static socklen_t name_of(uint32_t number, struct sockaddr_un *name)
{
    memset(name, 0, sizeof *name);
    name->sun_family = AF_UNIX;
    snprintf(name->sun_path + 1, sizeof name->sun_path - 1, "kolo-fakeverbs-%06x", number);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name->sun_path + 1));
}

int double_attach(struct double_qp *qp)
{
    struct sockaddr_un name;
    int tries = 0;

    qp->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (qp->fd < 0)
        return errno;
    do {
        struct timespec now;

        clock_gettime(CLOCK_MONOTONIC, &now);
        qp->base.qp_num =
            ((uint32_t)now.tv_nsec * 2654435761U ^ (uint32_t)getpid() * 40503U) % 0xfffffe + 1;
    } while (bind(qp->fd, (struct sockaddr *)&name, name_of(qp->base.qp_num, &name)) &&
             ++tries < 1000);
    qp->next = nic->qps;
    nic->qps = qp;
    return 0;
}

void double_detach(struct double_qp *qp)
{
    for (struct double_qp **link = nic ? &nic->qps : NULL; link && *link; link = &(*link)->next)
        if (*link == qp) {
            *link = qp->next;
            break;
        }
    if (qp->fd >= 0)
        close(qp->fd);
    qp->fd = -1;
}

static void watch(struct double_qp *qp, int operation)
{
    struct epoll_event event = {.events = EPOLLIN | (qp->is_waiting_out ? EPOLLOUT : 0),
                                .data = {.u32 = qp->base.qp_num}};

    epoll_ctl(nic->epoll_fd, operation, qp->fd, &event);
}

/* A peer that is not there any more shows with the first message. */
int double_connect(struct double_qp *qp, uint32_t peer)
{
    struct sockaddr_un name;

    if (connect(qp->fd, (struct sockaddr *)&name, name_of(peer, &name)) && errno != ECONNREFUSED)
        return errno;
    watch(qp, EPOLL_CTL_ADD);
    return 0;
}

int double_join(uint32_t number, uint32_t peer, bool is_second)
{
    struct double_qp *qp;
    int error = ENOENT;

    pthread_mutex_lock(&double_lock);
    qp = nic ? nic->qps : NULL;
    while (qp && qp->base.qp_num != number)
        qp = qp->next;
    if (qp && qp->state == KO_IB_INIT)
        error = double_connect(qp, peer);
    if (!error) {
        qp->state = KO_IB_RTS;
        qp->is_second = is_second;
        qp->sgid_index = -1;
    }
    pthread_mutex_unlock(&double_lock);
    errno = error;
    return error ? -1 : 0;
}

/* ---- out ---------------------------------------------------------------------------------- */

/* 0, EAGAIN, or the errno of a peer that is gone. */
static int put(struct double_qp *qp, struct double_packet *packet, struct iovec *pieces, int n)
{
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = (size_t)n};

    pieces[0] = (struct iovec){packet, sizeof *packet};
    if (sendmsg(qp->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
        return 0;
    return errno == EINTR || errno == ENOBUFS || errno == EWOULDBLOCK ? EAGAIN : errno;
}

/* The bytes from `done` on of a request, as pieces[1...]; returns how many pieces there are. */
static int gather(const struct double_send *send, size_t nbytes, struct iovec *pieces)
{
    size_t skip = send->done;
    int n = 1;

    if (send->copy) {
        pieces[n++] = (struct iovec){send->copy + skip, nbytes};
        return n;
    }
    for (int i = 0; i < send->wr.num_sge && nbytes; i++) {
        size_t length = send->sges[i].length, part;

        if (skip >= length) {
            skip -= length;
            continue;
        }
        part = length - skip < nbytes ? length - skip : nbytes;
        pieces[n++] = (struct iovec){(char *)(uintptr_t)send->sges[i].addr + skip, part};
        nbytes -= part;
        skip = 0;
    }
    return n;
}

static int put_part(struct double_qp *qp, struct double_send *send)
{
    const size_t left = send->nbytes - send->done;
    const size_t nbytes = left < DOUBLE_PACKET ? left : DOUBLE_PACKET;
    struct double_packet packet = {.type =
                                       send->wr.opcode == KO_IB_SEND ? DOUBLE_SEND : DOUBLE_WRITE,
                                   .is_last = nbytes == left,
                                   .has_imm = send->wr.opcode == KO_IB_WRITE_IMM,
                                   .imm = send->wr.imm_data,
                                   .number = send->number,
                                   .rkey = send->wr.rkey,
                                   .nbytes = (uint32_t)nbytes,
                                   .to = send->wr.remote_addr + send->done};
    struct iovec pieces[8];
    int error = put(qp, &packet, pieces, gather(send, nbytes, pieces));

    if (error)
        return error;
    send->done += nbytes;
    if (packet.type == DOUBLE_WRITE)
        ((struct double_device *)qp->base.context->device)->sent += nbytes;
    if (packet.is_last)
        qp->going = send->next;
    return 0;
}

static bool is_lost(const struct double_qp *qp)
{
    char index[8];

    snprintf(index, sizeof index, "%d", qp->sgid_index);
    return qp->is_cut || double_lists("FAKEVERBS_LOST", index);
}

static bool is_held(const struct double_qp *qp)
{
    return double_lists("FAKEVERBS_HELD",
                        ((const struct double_device *)qp->base.context->device)->name);
}

void double_transmit(struct double_qp *qp)
{
    struct iovec piece;
    int error = 0, sent = 0;

    while (sent < qp->nacks && !error) {
        error = put(qp, &qp->acks[sent], &piece, 1);
        sent += !error;
    }
    if (sent)
        memmove(qp->acks, qp->acks + sent, (size_t)(qp->nacks - sent) * sizeof *qp->acks);
    qp->nacks -= sent;
    if (qp->going && is_lost(qp)) {
        double_fail(qp, KO_IB_WC_RETRY_EXC_ERR, VENDOR_TIMEOUT);
        return;
    }
    while (qp->going && !error && !is_held(qp))
        error = put_part(qp, qp->going);
    if (qp->is_waiting_out != (error == EAGAIN)) {
        qp->is_waiting_out = error == EAGAIN;
        watch(qp, EPOLL_CTL_MOD);
    }
    if (error && error != EAGAIN && qp->sends)
        double_fail(qp, KO_IB_WC_RETRY_EXC_ERR, VENDOR_TIMEOUT);
}

static void answer(struct double_qp *qp, uint32_t number, int status)
{
    if (qp->nacks == qp->acks_cap) {
        qp->acks_cap = qp->acks_cap ? 2 * qp->acks_cap : 16;
        qp->acks = realloc(qp->acks, (size_t)qp->acks_cap * sizeof *qp->acks);
    }
    qp->acks[qp->nacks++] =
        (struct double_packet){.type = DOUBLE_ACK, .number = number, .status = (uint32_t)status};
}

/* ---- in ----------------------------------------------------------------------------------- */

/* Puts the bytes into the first receive, behind what is there; false if there is no room. */
static bool scatter(struct double_qp *qp, const unsigned char *bytes, size_t nbytes)
{
    size_t skip = qp->got;

    for (int i = 0; i < qp->recvs->nsges && nbytes; i++) {
        const struct ko_ib_sge *sge = &qp->recvs->sges[i];
        size_t part;

        if (skip >= sge->length) {
            skip -= sge->length;
            continue;
        }
        part = sge->length - skip < nbytes ? sge->length - skip : nbytes;
        if (!double_find_mr(sge->lkey, sge->addr + skip, part, KO_IB_LOCAL_WRITE))
            return false;
        memcpy((char *)(uintptr_t)sge->addr + skip, bytes, part);
        bytes += part;
        nbytes -= part;
        qp->got += (uint32_t)part;
        skip = 0;
    }
    return !nbytes;
}

/* The status that the sender is to see. */
static int take_in(struct double_qp *qp, const struct double_packet *packet,
                   const unsigned char *bytes)
{
    const bool is_write = packet->type == DOUBLE_WRITE;
    struct ko_ib_wc wc = {.opcode = is_write ? KO_IB_WC_RECV_IMM : KO_IB_WC_RECV,
                          .imm_data = packet->imm,
                          .wc_flags = packet->has_imm ? 2 : 0};

    qp->is_second = false;
    if ((!is_write || (packet->has_imm && packet->is_last)) && !qp->recvs)
        return KO_IB_WC_RNR_RETRY_EXC_ERR;
    if (is_write && packet->nbytes) {
        void *to = double_find(packet->rkey, packet->to, packet->nbytes, KO_IB_REMOTE_WRITE);

        if (!to)
            return KO_IB_WC_REM_ACCESS_ERR;
        memcpy(to, bytes, packet->nbytes);
    } else if (!is_write && !scatter(qp, bytes, packet->nbytes)) {
        wc.status = KO_IB_WC_LOC_LEN_ERR;
        double_end_recv(qp, &wc);
        return KO_IB_WC_REM_INV_REQ_ERR;
    }
    if (!packet->is_last)
        return 0;
    wc.byte_len = is_write ? packet->nbytes : qp->got;
    if (!is_write || packet->has_imm)
        double_end_recv(qp, &wc);
    return 0;
}

static void acknowledged(struct double_qp *qp, const struct double_packet *packet)
{
    while (qp->sends && qp->sends != qp->going && (int32_t)(packet->number - qp->sends->number) > 0)
        double_end_send(qp, 0, 0);
    if (!qp->sends || qp->sends->number != packet->number)
        return;
    if (packet->status)
        double_fail(qp, (int)packet->status, 0x89);
    else
        double_end_send(qp, 0, 0);
}

static void receive(struct double_qp *qp)
{
    static unsigned char buffer[sizeof(struct double_packet) + DOUBLE_PACKET];
    struct double_packet packet;

    while (qp->state != KO_IB_ERROR && recv(qp->fd, buffer, sizeof buffer, MSG_DONTWAIT) > 0) {
        memcpy(&packet, buffer, sizeof packet);
        if (packet.type == DOUBLE_ACK) {
            acknowledged(qp, &packet);
        } else if (packet.type != DOUBLE_PING) {
            int status = take_in(qp, &packet, buffer + sizeof packet);

            if (status || packet.is_last)
                answer(qp, packet.number, status);
            if (status)
                double_fail(qp, KO_IB_WC_WR_FLUSH_ERR, 0);
        }
    }
    double_transmit(qp);
    if (qp->state == KO_IB_ERROR)
        epoll_ctl(nic->epoll_fd, EPOLL_CTL_DEL, qp->fd, NULL);
}

/* ---- the thread --------------------------------------------------------------------------- */

static void look_after(struct double_qp *qp)
{
    struct double_packet ping = {.type = DOUBLE_PING};
    struct iovec piece;
    int error;

    if (!qp->sends || qp->state != KO_IB_RTS)
        return;
    error = put(qp, &ping, &piece, 1);
    if (error && error != EAGAIN)
        double_fail(qp, KO_IB_WC_RETRY_EXC_ERR, VENDOR_TIMEOUT);
    else if (qp->going) /* it may have been held */
        double_transmit(qp);
}

static void *run(void *owner)
{
    struct nic *self = owner;
    struct epoll_event events[32];

    sem_post(&self->runs);
    for (;;) {
        const bool has_jitter = double_number("FAKEVERBS_JITTER", 0) > 0;
        int n = epoll_wait(self->epoll_fd, events, 32, has_jitter ? 1 : TICK_MS);

        pthread_mutex_lock(&double_lock);
        for (int i = 0; i < n; i++) {
            struct double_qp *qp = self->qps;

            if (!events[i].data.u32) {
                pthread_mutex_unlock(&double_lock);
                return NULL;
            }
            while (qp && qp->base.qp_num != events[i].data.u32)
                qp = qp->next;
            if (qp)
                receive(qp);
        }
        for (struct double_qp *qp = self->qps; !n && qp; qp = qp->next)
            look_after(qp);
        for (struct double_cq *cq = double_cqs; has_jitter && cq; cq = cq->next)
            double_notify(cq);
        pthread_mutex_unlock(&double_lock);
    }
}

static void before_fork(void)
{
    pthread_mutex_lock(&double_lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&double_lock);
}

/* The child has no thread, and nothing of its parent's goes through it. */
static void in_child(void)
{
    double_generation++;
    if (nic) {
        close(nic->epoll_fd);
        close(nic->stop_fd);
        for (struct double_qp *qp = nic->qps; qp; qp = qp->next) {
            close(qp->fd);
            qp->fd = -1;
        }
        free(nic);
    }
    nic = NULL;
    pthread_mutex_unlock(&double_lock);
}

static void at_first(void)
{
    pthread_atfork(before_fork, after_fork, in_child);
}

int double_start(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct epoll_event event = {.events = EPOLLIN};

    pthread_once(&once, at_first);
    if (!nic) {
        nic = calloc(1, sizeof *nic);
        nic->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
        nic->stop_fd = eventfd(0, EFD_CLOEXEC);
        epoll_ctl(nic->epoll_fd, EPOLL_CTL_ADD, nic->stop_fd, &event);
        sem_init(&nic->runs, 0, 0);
        pthread_create(&nic->thread, NULL, run, nic);
        /* Who forks while a sanitizer still makes the thread has a child without an allocator. */
        while (sem_wait(&nic->runs))
            continue;
    }
    nic->users++;
    return 0;
}

void double_stop(void)
{
    struct nic *old = nic;
    const uint64_t one = 1;

    if (--old->users)
        return;
    nic = NULL;
    (void)!write(old->stop_fd, &one, sizeof one);
    pthread_mutex_unlock(&double_lock);
    pthread_join(old->thread, NULL);
    pthread_mutex_lock(&double_lock);
    close(old->epoll_fd);
    close(old->stop_fd);
    free(old);
}
