/* SPDX-License-Identifier: MIT
 *
 * One completion queue of each wire's own: wires are used by different threads, and none shall take
 * another's completions. Every request is signaled, so that each slot is known to be free, and a
 * failure is known by its own status and not by that of what was flushed behind it.
 */
#include "rdma.h"

#include "socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum {
    SEND_ROOM = KO_RDMA_SLOTS + KO_RDMA_FLYING + 1,
    POLL = 16,
    IMM_PROBE = 1, /* of a write that carries nothing */
    IMM_DONE = 2
};

static uint64_t work_of(enum ko_rdma_work work, unsigned slot)
{
    return (uint64_t)work << 32 | slot;
}

static unsigned char *receive_slot(const struct ko_rdma_queue *queue, unsigned slot)
{
    return queue->slots + (size_t)slot * KO_RDMA_SLOT;
}

static unsigned char *send_slot(const struct ko_rdma_queue *queue, unsigned slot)
{
    return receive_slot(queue, KO_RDMA_SLOTS + slot);
}

/* ---- failure ----------------------------------------------------------------------------- */

/* Stops the queue pair, so that the adapter leaves everybody's memory alone. */
static void stop(struct ko_rdma_wire *wire)
{
    struct ko_ib_qp_attr attr = {.qp_state = KO_IB_ERROR};

    if (wire->queue.qp)
        (void)wire->device->ib->modify_qp(wire->queue.qp, &attr, KO_IB_QP_STATE);
}

void ko_rdma_fail(struct ko_rdma_wire *wire, int status)
{
    if (wire->status)
        return;
    wire->status = status;
    snprintf(wire->why, sizeof wire->why, "%s", kolo_last_error());
    stop(wire);
    ko_rdma_drop_posts(wire);
    ko_rdma_unregister(wire->device, &wire->in.region);
    wire->base.is_written_to = false;
}

/* Whether a status says that the other end is gone, as far as this end can see. */
static bool is_loss(int status)
{
    return status == KO_IB_WC_RETRY_EXC_ERR || status == KO_IB_WC_RNR_RETRY_EXC_ERR ||
           status == KO_IB_WC_REM_OP_ERR || status == KO_IB_WC_REM_ABORT_ERR ||
           status == KO_IB_WC_REM_ACCESS_ERR || status == KO_IB_WC_REM_INV_REQ_ERR ||
           status == KO_IB_WC_RESP_TIMEOUT_ERR || status == KO_IB_WC_WR_FLUSH_ERR;
}

/* "mlx5_0 port 1, GID 3 = ::ffff:10.0.0.2 (RoCE v2)" */
static void describe(const struct ko_rdma_card *card, char *text, size_t nbytes)
{
    char gid[KO_IB_GID_TEXT];

    ko_ib_gid_text(&card->gid, gid);
    snprintf(text, nbytes, "%.31s port %u, GID %u = %s (%s)", card->device, card->port,
             card->gid_index, gid, ko_ib_gid_type_name(card->gid_type));
}

static void work_failed(struct ko_rdma_wire *wire, const struct ko_ib_wc *wc)
{
    static const char *const words[] = {"receiving", "sending", "writing", "the first write"};
    const int last = atomic_load(&wire->device->last_event);
    char ours[128], theirs[128], address[KO_SOCKET_NAME];

    if (wire->status)
        return;
    describe(&wire->card, ours, sizeof ours);
    describe(&wire->theirs, theirs, sizeof theirs);
    ko_socket_peer_name(wire->tcp->fd, address);
    ko_rdma_fail(
        wire, ko_fail(is_loss(wc->status) && wire->stage == KO_RDMA_OPEN ? KOLO_E_PEER_LOST
                                                                         : KOLO_E_SYSTEM,
                      "%s between %s here and %s of rank %d (%s) ended with %s (%d, vendor error "
                      "%u)%s%s: %s",
                      words[wc->wr_id >> 32 & 3], ours, theirs, (int)wire->base.hello.from, address,
                      ko_ib_status_name(wc->status), wc->status, wc->vendor_err,
                      last >= 0 ? " after the event " : "",
                      last >= 0 ? wire->device->ib->event_name(last) : "",
                      ko_ib_status_cause(wc->status)));
}

static void post_failed(struct ko_rdma_wire *wire, int error, const char *what)
{
    ko_rdma_fail(wire, ko_fail_errno(error < 0 ? errno : error, "%s to rank %d over %s", what,
                                     (int)wire->base.hello.from, wire->device->port.device));
}

/* ---- beginning --------------------------------------------------------------------------- */

static int make_slots(struct ko_rdma_wire *wire)
{
    const size_t nbytes = 2 * (size_t)KO_RDMA_SLOTS * KO_RDMA_SLOT;
    struct ko_rdma_queue *queue = &wire->queue;
    void *slots;

    if (posix_memalign(&slots, (size_t)sysconf(_SC_PAGESIZE), nbytes))
        return ko_fail(KOLO_E_NOMEM, "no memory for %zu bytes of slots", nbytes);
    memset(slots, 0, nbytes);
    queue->slots = slots;
    queue->mr = wire->device->ib->reg_mr(wire->device->pd, slots, nbytes, KO_IB_LOCAL_WRITE);
    if (queue->mr)
        return KOLO_OK;
    return ko_fail(KOLO_E_SYSTEM,
                   "%zu bytes of slots cannot be registered with %s: %s; raise the limit of locked "
                   "memory (ulimit -l, LimitMEMLOCK=, --ulimit memlock=-1)",
                   nbytes, wire->device->port.device, strerror(errno));
}

/* Adapters differ in what they can send inline, and say so by refusing. */
static struct ko_ib_qp *make_pair(struct ko_rdma_wire *wire)
{
    struct ko_rdma_queue *queue = &wire->queue;
    struct ko_ib_qp_init init;

    for (uint32_t inline_bytes = KO_RDMA_INLINE;; inline_bytes /= 2) {
        init = (struct ko_ib_qp_init){.send_cq = queue->cq,
                                      .recv_cq = queue->cq,
                                      .cap = {.max_send_wr = SEND_ROOM,
                                              .max_recv_wr = KO_RDMA_SLOTS,
                                              .max_send_sge = 1,
                                              .max_recv_sge = 1,
                                              .max_inline_data = inline_bytes},
                                      .qp_type = KO_IB_RC};
        queue->qp = wire->device->ib->create_qp(wire->device->pd, &init);
        queue->inline_bytes = inline_bytes;
        if (queue->qp || inline_bytes < 32)
            return queue->qp;
    }
}

static int make_queue(struct ko_rdma_wire *wire)
{
    struct ko_rdma_device *device = wire->device;
    struct ko_rdma_queue *queue = &wire->queue;

    queue->channel = device->ib->create_channel(device->context);
    if (!queue->channel)
        return ko_fail_errno(errno, "a completion channel of %s", device->port.device);
    queue->cq =
        device->ib->create_cq(device->context, SEND_ROOM + KO_RDMA_SLOTS, NULL, queue->channel, 0);
    if (!queue->cq)
        return ko_fail_errno(errno, "a completion queue of %s", device->port.device);
    if (!make_pair(wire))
        return ko_fail_errno(errno, "a queue pair of %s", device->port.device);
    return KOLO_OK;
}

static int to_init(struct ko_rdma_wire *wire)
{
    const struct ko_rdma_device *device = wire->device;
    struct ko_ib_qp_attr attr = {.qp_state = KO_IB_INIT,
                                 .pkey_index = (uint16_t)device->pkey,
                                 .port_num = (uint8_t)device->port.number,
                                 .qp_access_flags = KO_IB_REMOTE_WRITE};
    int error = device->ib->modify_qp(
        wire->queue.qp, &attr, KO_IB_QP_STATE | KO_IB_QP_PKEY | KO_IB_QP_PORT | KO_IB_QP_ACCESS);

    if (error)
        return ko_fail_errno(error, "a queue pair of %s port %d, with partition key %d",
                             device->port.device, device->port.number, (int)device->pkey);
    for (int i = 0; i < KO_RDMA_SLOTS; i++)
        ko_rdma_post_slots(wire, &(uint8_t){(uint8_t)i}, 1);
    return wire->status ? ko_fail_again(wire->status, wire->why) : KOLO_OK;
}

static int write_card(struct ko_rdma_wire *wire)
{
    const struct ko_ib_port *port = &wire->device->port;
    const struct ko_ib_gid_row *gid = &port->gids[port->chosen_gid];

    wire->card = (struct ko_rdma_card){.magic = KO_HELLO_MAGIC,
                                       .version = KO_HELLO_VERSION,
                                       .qp_number = wire->queue.qp->qp_num,
                                       .link_layer = (uint32_t)port->link_layer,
                                       .mtu = (uint32_t)port->mtu,
                                       .slot_bytes = KO_RDMA_SLOT,
                                       .credits = KO_RDMA_CREDITS,
                                       .lid = port->lid,
                                       .gid_index = (uint16_t)gid->index,
                                       .gid_type = (uint16_t)gid->type,
                                       .port = (uint16_t)port->number,
                                       .gid = gid->gid};
    if (wire->device->cm) {
        wire->card.link_layer = KO_RDMA_IWARP;
        wire->card.gid = wire->device->host;
    }
    snprintf(wire->card.device, sizeof wire->card.device, "%s", port->device);
    if (getrandom(&wire->card.psn, sizeof wire->card.psn, 0) != sizeof wire->card.psn)
        return ko_fail_errno(errno, "getrandom");
    wire->card.psn &= 0xffffff;
    return KOLO_OK;
}

int ko_rdma_queue_open(struct ko_rdma_wire *wire)
{
    int err = make_slots(wire);

    wire->queue.has_imm = !wire->device->cm;
    if (!err)
        err = make_queue(wire);
    if (!err)
        err = to_init(wire);
    return err ? err : write_card(wire);
}

/* ---- joining ----------------------------------------------------------------------------- */

static int check_card(const struct ko_rdma_wire *wire)
{
    const struct ko_rdma_card *card = &wire->theirs;

    if (card->magic != KO_HELLO_MAGIC || card->version != KO_HELLO_VERSION ||
        card->slot_bytes != KO_RDMA_SLOT || card->credits != KO_RDMA_CREDITS ||
        !memchr(card->device, 0, sizeof card->device))
        return ko_fail(KOLO_E_PROTOCOL,
                       "rank %d's queue pair is not made as this version of kolo "
                       "makes them",
                       (int)wire->base.hello.from);
    if (card->link_layer != wire->card.link_layer)
        return ko_fail(KOLO_E_UNSUPPORTED,
                       "%s here is %s, and rank %d's %s is not: choose by KOLO_IB_HCA, or set "
                       "KOLO_TRANSPORT=tcp",
                       wire->card.device, ko_ib_port_kind(&wire->device->port),
                       (int)wire->base.hello.from, card->device);
    return KOLO_OK;
}

/* Ethernet has no other addresses; between subnets of InfiniBand a GID is needed too. */
static struct ko_ib_path path_to(const struct ko_rdma_wire *wire)
{
    const struct ko_rdma_card *theirs = &wire->theirs, *ours = &wire->card;
    const struct ko_rdma_device *device = wire->device;
    struct ko_ib_path path = {.dlid = theirs->lid,
                              .sl = (uint8_t)device->service_level,
                              .port_num = (uint8_t)device->port.number};

    path.is_global =
        ours->link_layer == KO_IB_LINK_ETHERNET || ours->gid.words[0] != theirs->gid.words[0];
    if (path.is_global) {
        path.dgid = theirs->gid;
        path.sgid_index = (uint8_t)ours->gid_index;
        path.hop_limit = 255;
        path.traffic_class = (uint8_t)device->traffic_class;
    }
    return path;
}

static int join_failed(const struct ko_rdma_wire *wire, int error)
{
    char ours[128], theirs[128];

    describe(&wire->card, ours, sizeof ours);
    describe(&wire->theirs, theirs, sizeof theirs);
    return ko_fail_errno(error < 0 ? errno : error,
                         "%s here cannot be joined to %s of rank %d (KOLO_IB_GID_INDEX: both GIDs "
                         "must be of one kind)",
                         ours, theirs, (int)wire->base.hello.from);
}

static int join_by_numbers(struct ko_rdma_wire *wire)
{
    const struct ko_rdma_card *theirs = &wire->theirs, *ours = &wire->card;
    struct ko_ib_qp_attr attr;
    int error;

    attr =
        (struct ko_ib_qp_attr){.qp_state = KO_IB_RTR,
                               .path_mtu = (int)(theirs->mtu < ours->mtu ? theirs->mtu : ours->mtu),
                               .dest_qp_num = theirs->qp_number,
                               .rq_psn = theirs->psn,
                               .max_dest_rd_atomic = 1,
                               .min_rnr_timer = 12,
                               .path = path_to(wire)};
    error =
        wire->device->ib->modify_qp(wire->queue.qp, &attr,
                                    KO_IB_QP_STATE | KO_IB_QP_PATH | KO_IB_QP_MTU | KO_IB_QP_PEER |
                                        KO_IB_QP_RQ_PSN | KO_IB_QP_READS_IN | KO_IB_QP_RNR_TIMER);
    if (error)
        return join_failed(wire, error);
    attr = (struct ko_ib_qp_attr){.qp_state = KO_IB_RTS,
                                  .sq_psn = ours->psn,
                                  .timeout = (uint8_t)wire->device->timeout,
                                  .retry_cnt = (uint8_t)wire->device->retries,
                                  .rnr_retry = 7,
                                  .max_rd_atomic = 1};
    error = wire->device->ib->modify_qp(wire->queue.qp, &attr,
                                        KO_IB_QP_STATE | KO_IB_QP_TIMEOUT | KO_IB_QP_RETRY |
                                            KO_IB_QP_RNR_RETRY | KO_IB_QP_SQ_PSN | KO_IB_QP_READS);
    return error ? join_failed(wire, error) : KOLO_OK;
}

int ko_rdma_queue_join(struct ko_rdma_wire *wire, const struct ko_hello *hello)
{
    int err;

    memcpy(&wire->theirs, hello->card, sizeof wire->theirs);
    err = check_card(wire);
    return err || wire->device->cm ? err : join_by_numbers(wire);
}

void ko_rdma_queue_close(struct ko_rdma_wire *wire)
{
    const struct ko_ib *ib = wire->device->ib;
    struct ko_rdma_queue *queue = &wire->queue;

    if (queue->qp)
        (void)ib->destroy_qp(queue->qp);
    if (queue->cq)
        (void)ib->destroy_cq(queue->cq);
    if (queue->channel)
        (void)ib->destroy_channel(queue->channel);
    if (queue->mr)
        (void)ib->dereg_mr(queue->mr);
    free(queue->slots);
    *queue = (struct ko_rdma_queue){.qp = NULL};
}

/* ---- posting ----------------------------------------------------------------------------- */

static int post(struct ko_rdma_wire *wire, struct ko_ib_send *send)
{
    struct ko_ib_send *bad;
    struct ko_ib_qp *qp = wire->queue.qp;

    send->send_flags |= KO_IB_SIGNALED;
    return qp->context->ops.post_send(qp, send, &bad);
}

unsigned char *ko_rdma_slot(struct ko_rdma_wire *wire)
{
    if (wire->queue.nsends == KO_RDMA_SLOTS)
        return NULL;
    return send_slot(&wire->queue, wire->queue.next);
}

void ko_rdma_send_slot(struct ko_rdma_wire *wire, size_t nbytes)
{
    struct ko_rdma_queue *queue = &wire->queue;
    struct ko_ib_sge piece = {(uintptr_t)send_slot(queue, queue->next), (uint32_t)nbytes,
                              queue->mr->lkey};
    struct ko_ib_send send = {.wr_id = work_of(KO_RDMA_SENT, queue->next),
                              .sg_list = &piece,
                              .num_sge = 1,
                              .opcode = KO_IB_SEND,
                              .send_flags = piece.length <= queue->inline_bytes ? KO_IB_INLINE : 0};
    int error;

    queue->next = (queue->next + 1) % KO_RDMA_SLOTS;
    queue->nsends++;
    error = post(wire, &send);
    if (error)
        post_failed(wire, error, "sending");
}

void ko_rdma_post_slots(struct ko_rdma_wire *wire, const uint8_t *slots, int n)
{
    struct ko_rdma_queue *queue = &wire->queue;
    struct ko_ib_sge pieces[KO_RDMA_REPOST];
    struct ko_ib_recv list[KO_RDMA_REPOST], *bad;
    int error;

    for (int i = 0; i < n; i++) {
        pieces[i] = (struct ko_ib_sge){(uintptr_t)receive_slot(queue, slots[i]), KO_RDMA_SLOT,
                                       queue->mr->lkey};
        list[i] = (struct ko_ib_recv){.wr_id = work_of(KO_RDMA_GOT, slots[i]),
                                      .next = i + 1 < n ? &list[i + 1] : NULL,
                                      .sg_list = &pieces[i],
                                      .num_sge = 1};
    }
    error = wire->status ? 0 : queue->qp->context->ops.post_recv(queue->qp, list, &bad);
    if (error)
        post_failed(wire, error, "posting a receive for what comes");
}

void ko_rdma_write(struct ko_rdma_wire *wire, const struct ko_rdma_head *clear, const void *body,
                   const struct ko_rdma_region *region)
{
    struct ko_ib_sge piece = {(uintptr_t)body, wire->out.first->frame.nbytes, region->mr->lkey};
    struct ko_ib_send send = {.wr_id = work_of(KO_RDMA_WROTE, 0),
                              .sg_list = &piece,
                              .num_sge = 1,
                              .opcode = wire->queue.has_imm ? KO_IB_WRITE_IMM : KO_IB_WRITE,
                              .imm_data = htonl(IMM_DONE),
                              .remote_addr = clear->place,
                              .rkey = clear->key};
    int error = post(wire, &send);

    if (error)
        post_failed(wire, error, "writing");
}

/* Writes nothing, to nowhere, in the way in which messages will be written: what the adapter cannot
 * do it refuses at once (iWARP has no immediates). */
void ko_rdma_probe(struct ko_rdma_wire *wire)
{
    struct ko_ib_send send = {.wr_id = work_of(KO_RDMA_PROBED, 0),
                              .opcode = KO_IB_WRITE_IMM,
                              .imm_data = htonl(IMM_PROBE)};
    int error = post(wire, &send);

    if (error) {
        wire->queue.has_imm = false;
        send.opcode = KO_IB_WRITE;
        error = post(wire, &send);
    }
    if (error)
        post_failed(wire, error, "a first write");
}

/* ---- completions ------------------------------------------------------------------------- */

static void got(struct ko_rdma_wire *wire, const struct ko_ib_wc *wc, uint8_t slot)
{
    if (wc->opcode == KO_IB_WC_RECV) {
        ko_rdma_hear_slot(wire, slot, wc->byte_len);
        return;
    }
    ko_rdma_post_slots(wire, &slot, 1);
    if (ntohl(wc->imm_data) == IMM_DONE)
        ko_rdma_hear_done(wire);
}

static void complete(struct ko_rdma_wire *wire, const struct ko_ib_wc *wc)
{
    if (wc->status) {
        work_failed(wire, wc);
        return;
    }
    switch ((enum ko_rdma_work)(wc->wr_id >> 32)) {
    case KO_RDMA_GOT:
        got(wire, wc, (uint8_t)(wc->wr_id % KO_RDMA_SLOTS));
        return;
    case KO_RDMA_SENT:
        wire->queue.nsends--;
        return;
    case KO_RDMA_WROTE:
        ko_rdma_write_ended(wire);
        return;
    case KO_RDMA_PROBED:
        wire->stage = KO_RDMA_OPEN;
        return;
    }
}

int ko_rdma_gather(struct ko_rdma_wire *wire)
{
    struct ko_ib_cq *cq = wire->queue.cq;
    struct ko_ib_wc list[POLL];
    int all = 0, n;

    do {
        n = cq->context->ops.poll_cq(cq, POLL, list);
        for (int i = 0; i < n; i++)
            complete(wire, &list[i]);
        all += n > 0 ? n : 0;
    } while (n == POLL);
    if (n < 0)
        ko_rdma_fail(wire, ko_fail(KOLO_E_SYSTEM, "a completion queue of %s cannot be read",
                                   wire->device->port.device));
    return all;
}

void ko_rdma_queue_arm(struct ko_rdma_wire *wire)
{
    struct ko_ib_cq *cq = wire->queue.cq;
    int error = wire->queue.is_armed ? 0 : cq->context->ops.req_notify_cq(cq, 0);

    wire->queue.is_armed = true;
    if (error)
        post_failed(wire, error, "asking for events");
}

void ko_rdma_queue_take_event(struct ko_rdma_wire *wire)
{
    struct ko_ib_cq *cq;
    void *owner;

    if (wire->device->ib->get_event(wire->queue.channel, &cq, &owner))
        return;
    wire->device->ib->ack_events(cq, 1);
    wire->queue.is_armed = false;
}
