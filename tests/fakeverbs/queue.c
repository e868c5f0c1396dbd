/* SPDX-License-Identifier: MIT
 *
 * The double's completion queues and queue pairs, as their user sees them.
 */
#include "double.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#pragma GCC visibility push(default)
void fakeverbs_joined(struct ko_ib_qp_attr *attr);
void fakeverbs_posts(int *ncalls, int *nrequests);
#define PROTOTYPE(member, name, result, parameters) result name parameters;
KO_IB_LIST(PROTOTYPE)
#pragma GCC visibility pop

int double_poll_cq(struct ko_ib_cq *base, int cap, struct ko_ib_wc *wc);
int double_req_notify_cq(struct ko_ib_cq *base, int solicited_only);
int double_post_send(struct ko_ib_qp *base, struct ko_ib_send *wr, struct ko_ib_send **bad);
int double_post_recv(struct ko_ib_qp *base, struct ko_ib_recv *wr, struct ko_ib_recv **bad);

static int64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* ---- completion channels ------------------------------------------------------------------ */

struct channel {
    struct ko_ib_comp_channel base;
    int write_fd;
    int got, acked;
    int nusers; /* queues */
};

static int *users_of(struct ko_ib_context *context)
{
    return &((struct double_context *)context)->nusers;
}

struct ko_ib_comp_channel *ibv_create_comp_channel(struct ko_ib_context *context)
{
    struct channel *channel;
    int ends[2];

    errno = double_break("ibv_create_comp_channel");
    if (errno || pipe2(ends, O_CLOEXEC))
        return NULL;
    channel = calloc(1, sizeof *channel);
    *channel = (struct channel){{context, ends[0], 0}, ends[1], 0, 0, 0};
    double_count(users_of(context), 1);
    return &channel->base;
}

int ibv_destroy_comp_channel(struct ko_ib_comp_channel *base)
{
    struct channel *channel = (struct channel *)base;

    double_expect_unused("a completion channel", channel->nusers);
    double_count(users_of(base->context), -1);
    close(base->fd);
    close(channel->write_fd);
    free(channel);
    return double_break("ibv_destroy_comp_channel");
}

int ibv_get_cq_event(struct ko_ib_comp_channel *base, struct ko_ib_cq **cq, void **owner)
{
    errno = double_break("ibv_get_cq_event");
    if (errno || read(base->fd, cq, sizeof *cq) != sizeof *cq)
        return -1;
    *owner = (*cq)->cq_context;
    ((struct channel *)base)->got++;
    return 0;
}

void ibv_ack_cq_events(struct ko_ib_cq *cq, unsigned count)
{
    ((struct channel *)cq->channel)->acked += (int)count;
}

/* ---- completion queues -------------------------------------------------------------------- */

struct ko_ib_cq *ibv_create_cq(struct ko_ib_context *context, int cqe, void *owner,
                               struct ko_ib_comp_channel *channel, int vector)
{
    struct double_cq *cq;

    (void)vector;
    errno = double_break("ibv_create_cq");
    if (errno)
        return NULL;
    cq = calloc(1, sizeof *cq);
    cq->base = (struct ko_ib_cq){context, channel, owner};
    cq->cap = cqe;
    cq->list = calloc((size_t)cqe, sizeof *cq->list);
    pthread_mutex_lock(&double_lock);
    cq->next = double_cqs;
    double_cqs = cq;
    pthread_mutex_unlock(&double_lock);
    double_count(users_of(context), 1);
    if (channel)
        double_count(&((struct channel *)channel)->nusers, 1);
    return &cq->base;
}

int ibv_destroy_cq(struct ko_ib_cq *base)
{
    struct double_cq *cq = (struct double_cq *)base;
    struct channel *channel = (struct channel *)base->channel;

    double_expect_unused("a completion queue", cq->nusers);
    double_count(users_of(base->context), -1);
    if (channel)
        double_count(&channel->nusers, -1);
    if (channel && channel->got != channel->acked) {
        fprintf(stderr, "fakeverbs: a CQ is destroyed with events that nobody has acknowledged: "
                        "libibverbs would wait for ever\n");
        abort();
    }
    pthread_mutex_lock(&double_lock);
    for (struct double_cq **link = &double_cqs; *link; link = &(*link)->next)
        if (*link == cq) {
            *link = cq->next;
            break;
        }
    pthread_mutex_unlock(&double_lock);
    free(cq->list);
    free(cq);
    return double_break("ibv_destroy_cq");
}

static void raise_event(struct double_cq *cq)
{
    struct ko_ib_cq *base = &cq->base;

    cq->is_armed = false;
    (void)!write(((struct channel *)base->channel)->write_fd, &base, sizeof base);
}

void double_notify(struct double_cq *cq)
{
    bool has_any = false;

    if (!cq->is_armed || !cq->base.channel)
        return;
    for (int i = 0; i < cq->count && !has_any; i++)
        has_any = cq->list[i].due_ns <= now_ns();
    if (has_any)
        raise_event(cq);
}

void double_complete(struct double_qp *qp, struct double_cq *cq, struct ko_ib_wc wc)
{
    const long jitter =
        double_is_meant(qp->base.context) ? double_number("FAKEVERBS_JITTER", 0) : 0;
    int64_t due = jitter ? now_ns() + (int64_t)(random() % jitter) * 1000 : 0;
    int64_t *last_ns = &qp->last_ns[(wc.opcode & KO_IB_WC_RECV) != 0];

    if (cq->count == cq->cap) {
        fprintf(stderr, "fakeverbs: a CQ of %d overflows\n", cq->cap);
        abort();
    }
    if (due < *last_ns)
        due = *last_ns;
    *last_ns = due;
    wc.qp_num = qp->base.qp_num;
    cq->list[cq->count++] = (struct double_completion){wc, due};
    double_notify(cq);
}

int double_poll_cq(struct ko_ib_cq *base, int cap, struct ko_ib_wc *wc)
{
    struct double_cq *cq = (struct double_cq *)base;
    const int64_t now = now_ns();
    bool has_new = false;
    int n = 0, kept = 0;

    errno = double_break("ibv_poll_cq");
    if (errno)
        return -1;
    pthread_mutex_lock(&double_lock);
    for (int i = 0; i < cq->count; i++)
        if (n < cap && cq->list[i].due_ns <= now) {
            has_new |= cq->list[i].due_ns > cq->armed_ns;
            wc[n++] = cq->list[i].wc;
        } else {
            cq->list[kept++] = cq->list[i];
        }
    cq->count = kept;
    if (has_new && cq->is_armed && base->channel) /* it has come since, whoever was the faster */
        raise_event(cq);
    pthread_mutex_unlock(&double_lock);
    if (!n) /* the lock is not fair: who polls would keep the adapter's thread from it */
        sched_yield();
    return n;
}

/* Tells only of what comes from now on, as adapters may. */
int double_req_notify_cq(struct ko_ib_cq *base, int solicited_only)
{
    struct double_cq *cq = (struct double_cq *)base;
    bool is_waiting = false;
    int error = double_break("ibv_req_notify_cq");

    (void)solicited_only;
    if (error)
        return error;
    pthread_mutex_lock(&double_lock);
    for (int i = 0; i < cq->count; i++)
        is_waiting |= cq->list[i].due_ns > now_ns();
    cq->is_armed = true;
    cq->armed_ns = now_ns();
    if (is_waiting)
        double_notify(cq);
    pthread_mutex_unlock(&double_lock);
    return 0;
}

/* ---- ends of requests --------------------------------------------------------------------- */

void double_end_send(struct double_qp *qp, int status, int vendor)
{
    struct double_send *send = qp->sends;
    const struct ko_ib_wc wc = {.wr_id = send->wr.wr_id,
                                .status = status,
                                .opcode = send->wr.opcode == KO_IB_SEND ? 0 : 1,
                                .vendor_err = (uint32_t)vendor};

    if (qp->going == send)
        qp->going = send->next;
    qp->sends = send->next;
    qp->nsends--;
    if (status || send->wr.send_flags & KO_IB_SIGNALED)
        double_complete(qp, (struct double_cq *)qp->base.send_cq, wc);
    free(send->copy);
    free(send);
}

void double_end_recv(struct double_qp *qp, const struct ko_ib_wc *wc)
{
    struct double_recv *recv = qp->recvs;
    struct ko_ib_wc own = *wc;
    int status, vendor;

    own.wr_id = recv->wr_id;
    if (!own.status && double_is_due("FAKEVERBS_RECV_STATUS", &status, &vendor)) {
        own.status = status;
        own.vendor_err = (uint32_t)vendor;
    }
    qp->recvs = recv->next;
    qp->nrecvs--;
    qp->got = 0;
    double_complete(qp, (struct double_cq *)qp->base.recv_cq, own);
    free(recv);
    if (own.status && qp->state != KO_IB_ERROR)
        double_fail(qp, KO_IB_WC_WR_FLUSH_ERR, 0);
}

void double_fail(struct double_qp *qp, int status, int vendor)
{
    const struct ko_ib_wc flushed = {.status = KO_IB_WC_WR_FLUSH_ERR, .opcode = KO_IB_WC_RECV};

    qp->state = KO_IB_ERROR;
    for (; qp->sends; status = KO_IB_WC_WR_FLUSH_ERR, vendor = 0)
        double_end_send(qp, status, vendor);
    while (qp->recvs)
        double_end_recv(qp, &flushed);
}

/* ---- queue pairs -------------------------------------------------------------------------- */

static void use(struct double_qp *qp, int change)
{
    double_count(&qp->base.pd->nusers, change);
    double_count(&((struct double_cq *)qp->base.send_cq)->nusers, change);
    double_count(&((struct double_cq *)qp->base.recv_cq)->nusers, change);
}

struct ko_ib_qp *ibv_create_qp(struct ko_ib_pd *pd, struct ko_ib_qp_init *init)
{
    struct double_qp *qp;
    int error = double_break("ibv_create_qp");

    if (!error && (init->qp_type != KO_IB_RC || init->cap.max_inline_data > 220))
        error = EINVAL;
    if (error) {
        errno = error;
        return NULL;
    }
    qp = calloc(1, sizeof *qp);
    qp->base = (struct ko_ib_qp){.context = init->send_cq->context,
                                 .qp_context = init->qp_context,
                                 .pd = pd,
                                 .send_cq = init->send_cq,
                                 .recv_cq = init->recv_cq};
    qp->cap = init->cap;
    pthread_mutex_lock(&double_lock);
    error = double_attach(qp);
    pthread_mutex_unlock(&double_lock);
    if (error) {
        free(qp);
        errno = error;
        return NULL;
    }
    use(qp, 1);
    return &qp->base;
}

/* What it has left in its queues stays there, as with rxe and siw. */
int ibv_destroy_qp(struct ko_ib_qp *base)
{
    struct double_qp *qp = (struct double_qp *)base;

    pthread_mutex_lock(&double_lock);
    double_detach(qp);
    double_fail(qp, KO_IB_WC_WR_FLUSH_ERR, 0);
    pthread_mutex_unlock(&double_lock);
    use(qp, -1);
    free(qp->acks);
    free(qp);
    return double_break("ibv_destroy_qp");
}

/* Whether what is sent to the address by this queue pair's adapter arrives. */
static bool is_neighbour(const struct double_qp *qp, const ko_ib_gid *to)
{
    const struct double_device *device = (const struct double_device *)qp->base.context->device;
    const bool is_v4 = !to->words[0];

    return to->raw[0] == 0xfe || !memcmp(to->raw, device->address.raw, is_v4 ? 15 : 8);
}

static struct ko_ib_qp_attr joined; /* under the lock */

void fakeverbs_joined(struct ko_ib_qp_attr *attr)
{
    pthread_mutex_lock(&double_lock);
    *attr = joined;
    pthread_mutex_unlock(&double_lock);
}

/* On the way from one state to the next each says some. */
static void remember(const struct ko_ib_qp_attr *attr)
{
    if (attr->qp_state == KO_IB_INIT) {
        joined = *attr;
    } else if (attr->qp_state == KO_IB_RTR) {
        joined.path = attr->path;
        joined.path_mtu = attr->path_mtu;
        joined.min_rnr_timer = attr->min_rnr_timer;
    } else if (attr->qp_state == KO_IB_RTS) {
        joined.timeout = attr->timeout;
        joined.retry_cnt = attr->retry_cnt;
        joined.rnr_retry = attr->rnr_retry;
    }
}

int ibv_modify_qp(struct ko_ib_qp *base, struct ko_ib_qp_attr *attr, int mask)
{
    enum { TO_RTR = KO_IB_QP_PATH | KO_IB_QP_MTU | KO_IB_QP_PEER | KO_IB_QP_RQ_PSN };
    enum { TO_RTS = KO_IB_QP_TIMEOUT | KO_IB_QP_RETRY | KO_IB_QP_RNR_RETRY | KO_IB_QP_SQ_PSN };
    struct double_qp *qp = (struct double_qp *)base;
    int error = double_break("ibv_modify_qp");

    pthread_mutex_lock(&double_lock);
    if (error) {
        pthread_mutex_unlock(&double_lock);
        return error;
    }
    if (attr->qp_state == KO_IB_INIT && qp->state == KO_IB_RESET)
        qp->state = KO_IB_INIT;
    else if (attr->qp_state == KO_IB_RTR &&
             ((const struct double_device *)base->context->device)->kind == DOUBLE_IWARP)
        error = ENOSYS;
    else if (attr->qp_state == KO_IB_RTR && qp->state == KO_IB_INIT && (mask & TO_RTR) == TO_RTR)
        error = double_connect(qp, attr->dest_qp_num);
    else if (attr->qp_state == KO_IB_RTS && qp->state == KO_IB_RTR && (mask & TO_RTS) == TO_RTS)
        qp->state = KO_IB_RTS;
    else if (attr->qp_state == KO_IB_ERROR)
        double_fail(qp, KO_IB_WC_WR_FLUSH_ERR, 0);
    else
        error = EINVAL;
    if (!error && attr->qp_state == KO_IB_RTR) {
        qp->state = KO_IB_RTR;
        qp->sgid_index = attr->path.is_global ? attr->path.sgid_index : -1;
        qp->is_cut = attr->path.is_global && !is_neighbour(qp, &attr->path.dgid);
    }
    if (!error)
        remember(attr);
    pthread_mutex_unlock(&double_lock);
    return error;
}

/* What is wrong with a request, as an errno. */
static int check_send(const struct double_qp *qp, const struct ko_ib_send *wr)
{
    const struct double_device *device = (const struct double_device *)qp->base.context->device;
    size_t nbytes = 0;

    for (int i = 0; i < wr->num_sge; i++)
        nbytes += wr->sg_list[i].length;
    if (qp->state != KO_IB_RTS && qp->state != KO_IB_ERROR)
        return EINVAL;
    if ((device->kind == DOUBLE_PLAIN || device->kind == DOUBLE_IWARP) &&
        wr->opcode == KO_IB_WRITE_IMM)
        return EINVAL;
    if (qp->is_second || wr->num_sge > (int)qp->cap.max_send_sge)
        return EINVAL;
    if (wr->send_flags & KO_IB_INLINE && nbytes > qp->cap.max_inline_data)
        return EINVAL;
    return qp->nsends >= (int)qp->cap.max_send_wr ? ENOMEM : 0;
}

/* From now on its pieces are where they are in this process. */
static bool is_registered(struct double_send *send)
{
    for (int i = 0; i < send->wr.num_sge && !send->copy; i++) {
        struct ko_ib_sge *sge = &send->sges[i];
        const void *at = double_find(sge->lkey, sge->addr, sge->length, 0);

        if (sge->length && !at)
            return false;
        sge->addr = (uintptr_t)at;
    }
    return true;
}

static struct double_send *new_send(struct double_qp *qp, const struct ko_ib_send *wr)
{
    struct double_send *send = calloc(1, sizeof *send);

    send->wr = *wr;
    send->number = ++qp->numbers;
    for (int i = 0; i < wr->num_sge; i++) {
        send->sges[i] = wr->sg_list[i];
        send->nbytes += wr->sg_list[i].length;
    }
    if (wr->send_flags & KO_IB_INLINE && wr->num_sge) {
        size_t at = 0;

        send->copy = malloc(send->nbytes + 1);
        for (int i = 0; i < wr->num_sge; i++) {
            memcpy(send->copy + at, (void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
            at += wr->sg_list[i].length;
        }
    }
    return send;
}

static void take_send(struct double_qp *qp, const struct ko_ib_send *wr)
{
    struct double_send *send = new_send(qp, wr), **end = &qp->sends;
    int status = 0, vendor = 0;

    while (*end)
        end = &(*end)->next;
    *end = send;
    qp->nsends++;
    if (!qp->going)
        qp->going = send;
    if (double_is_meant(qp->base.context) && double_is_due("FAKEVERBS_EVENT", &status, &vendor))
        double_tell_async((struct double_context *)qp->base.context, status,
                          status == KO_IB_EVENT_CQ_ERR        ? (void *)qp->base.send_cq
                          : status < KO_IB_EVENT_DEVICE_FATAL ? (void *)qp
                                                              : NULL,
                          vendor);
    status = vendor = 0;
    if (qp->state == KO_IB_ERROR)
        double_fail(qp, KO_IB_WC_WR_FLUSH_ERR, 0);
    else if (!is_registered(send))
        double_fail(qp, KO_IB_WC_LOC_PROT_ERR, 0);
    else if (double_is_meant(qp->base.context) &&
             double_is_due("FAKEVERBS_STATUS", &status, &vendor))
        double_fail(qp, status, vendor);
    else
        double_transmit(qp);
}

static int nposts, nposted; /* under the lock */

void fakeverbs_posts(int *ncalls, int *nrequests)
{
    pthread_mutex_lock(&double_lock);
    *ncalls = nposts;
    *nrequests = nposted;
    pthread_mutex_unlock(&double_lock);
}

/* As elsewhere nothing is said by bad_wr where all is well. */
int double_post_send(struct ko_ib_qp *base, struct ko_ib_send *wr, struct ko_ib_send **bad)
{
    struct double_qp *qp = (struct double_qp *)base;
    int error = double_break("ibv_post_send");
    bool is_refused = false;

    if (!strncmp(((struct double_device *)base->context->device)->name, "siw", 3))
        raise(SIGPIPE);

    pthread_mutex_lock(&double_lock);
    nposts++;
    for (; wr && !error; wr = wr->next) {
        error = double_break("request");
        is_refused = error;
        error = error ? error : check_send(qp, wr);
        if (error)
            break;
        take_send(qp, wr);
        nposted++;
    }
    pthread_mutex_unlock(&double_lock);
    if (wr)
        *bad = wr;
    return is_refused && ((const struct double_device *)base->context->device)->kind == DOUBLE_IWARP
               ? 0
               : error;
}

int double_post_recv(struct ko_ib_qp *base, struct ko_ib_recv *wr, struct ko_ib_recv **bad)
{
    struct double_qp *qp = (struct double_qp *)base;
    int error = double_break("ibv_post_recv");

    pthread_mutex_lock(&double_lock);
    for (; wr && !error; wr = wr->next) {
        struct double_recv *recv, **end = &qp->recvs;

        if (qp->state == KO_IB_RESET || wr->num_sge > 2)
            error = EINVAL;
        else if (qp->nrecvs >= (int)qp->cap.max_recv_wr)
            error = ENOMEM;
        if (error)
            break;
        recv = calloc(1, sizeof *recv);
        recv->wr_id = wr->wr_id;
        recv->nsges = wr->num_sge;
        for (int i = 0; i < wr->num_sge; i++)
            recv->sges[i] = wr->sg_list[i];
        while (*end)
            end = &(*end)->next;
        *end = recv;
        qp->nrecvs++;
        if (qp->state == KO_IB_ERROR)
            double_fail(qp, KO_IB_WC_WR_FLUSH_ERR, 0);
    }
    pthread_mutex_unlock(&double_lock);
    *bad = wr;
    return error;
}
