/* SPDX-License-Identifier: MIT
 *
 * The queue pairs of a wire: one for each rail. The first has the slots, in which all messages
 * travel that are not written.
 */
#include "rdma.h"

#include "log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Requests that a rail can have on its way: slots, lines, stripes with what tells of them where
 * writes have no immediates, and the first write. */
enum {
    SEND_ROOM = KO_RDMA_SLOTS + KO_RDMA_LINES + KO_RDMA_FLYING + 1,
    OTHER_ROOM = 2 * KO_RDMA_FLYING + 1
};

/* ---- failure ----------------------------------------------------------------------------- */

static void stop(struct ko_rdma_wire *wire)
{
    struct ko_ib_qp_attr attr = {.qp_state = KO_IB_ERROR};

    for (int i = 0; i < wire->nrails; i++)
        if (wire->rails[i].qp)
            (void)wire->device->ib->modify_qp(wire->rails[i].qp, &attr, KO_IB_QP_STATE);
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

/* ---- making ------------------------------------------------------------------------------ */

/* Whole pages, since a child of fork may lack what is registered. */
static unsigned char *new_pages(size_t nbytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), all = (nbytes + page - 1) / page * page;
    void *memory;

    if (posix_memalign(&memory, page, all))
        return NULL;
    return memset(memory, 0, all);
}

/* Slots and lines to send, which no other end may write, and behind them lines that come. */
static bool register_slots(struct ko_rdma_wire *wire)
{
    const size_t come = KO_RDMA_LINES * sizeof(struct ko_rdma_line);
    const struct ko_rdma_adapter *adapter = wire->rails[0].adapter;
    unsigned char *memory = wire->slots.memory, *lines = memory + KO_RDMA_WIRE_BYTES - come;

    wire->lines.come = (struct ko_rdma_line *)lines;
    wire->lines.go = (struct ko_rdma_line *)(lines - come);
    wire->slots.mr = ko_rdma_register_first(wire->device, adapter, memory, (size_t)(lines - memory),
                                            KO_IB_LOCAL_WRITE);
    if (wire->slots.mr)
        wire->lines.mr = ko_rdma_register_first(wire->device, adapter, lines, come,
                                                KO_IB_LOCAL_WRITE | KO_IB_REMOTE_WRITE);
    return wire->lines.mr;
}

static int make_slots(struct ko_rdma_wire *wire)
{
    wire->slots.memory = new_pages(KO_RDMA_WIRE_BYTES);
    if (!wire->slots.memory)
        return ko_fail(KOLO_E_NOMEM, "no memory for %d bytes of slots", KO_RDMA_WIRE_BYTES);
    if (register_slots(wire))
        return KOLO_OK;
    return ko_fail(KOLO_E_SYSTEM,
                   "%d bytes of slots cannot be registered with %s: %s; raise the limit of locked "
                   "memory (ulimit -l, LimitMEMLOCK=, --ulimit memlock=-1)",
                   KO_RDMA_WIRE_BYTES, wire->rails[0].adapter->port.device, strerror(errno));
}

/* Adapters differ in what they can send inline, and say so by refusing. */
static struct ko_ib_qp *make_pair(struct ko_rdma_wire *wire, struct ko_rdma_rail *rail)
{
    const bool is_first = rail == &wire->rails[0];
    struct ko_ib_qp_init init;

    for (uint32_t inline_bytes = is_first ? KO_RDMA_INLINE : 0;; inline_bytes /= 2) {
        init =
            (struct ko_ib_qp_init){.qp_context = rail,
                                   .send_cq = rail->cq->cq,
                                   .recv_cq = rail->cq->cq,
                                   .cap = {.max_send_wr = is_first ? SEND_ROOM : OTHER_ROOM,
                                           .max_recv_wr = is_first ? KO_RDMA_SLOTS : KO_RDMA_EARS,
                                           .max_send_sge = is_first ? KO_RDMA_PIECES : 1,
                                           .max_recv_sge = 1,
                                           .max_inline_data = inline_bytes},
                                   .qp_type = KO_IB_RC};
        rail->qp = wire->device->ib->create_qp(rail->adapter->pd, &init);
        if (is_first)
            wire->slots.inline_bytes = inline_bytes;
        if (rail->qp || inline_bytes < 32)
            return rail->qp;
    }
}

static int make_rail(struct ko_rdma_wire *wire, struct ko_rdma_rail *rail)
{
    int err = ko_rdma_cq_join(wire, rail);

    if (!err && !make_pair(wire, rail))
        err = ko_fail_errno(errno, "a queue pair of %s", rail->adapter->port.device);
    return err;
}

static int to_init(struct ko_rdma_wire *wire, struct ko_rdma_rail *rail)
{
    const struct ko_rdma_device *device = wire->device;
    const struct ko_ib_port *port = &rail->adapter->port;
    struct ko_ib_qp_attr attr = {.qp_state = KO_IB_INIT,
                                 .pkey_index = (uint16_t)device->pkey,
                                 .port_num = (uint8_t)port->number,
                                 .qp_access_flags = KO_IB_REMOTE_WRITE};
    int error = device->ib->modify_qp(
        rail->qp, &attr, KO_IB_QP_STATE | KO_IB_QP_PKEY | KO_IB_QP_PORT | KO_IB_QP_ACCESS);

    if (error)
        return ko_fail_errno(error, "a queue pair of %s port %d, with partition key %d",
                             port->device, port->number, (int)device->pkey);
    return KOLO_OK;
}

static int post_receives(struct ko_rdma_wire *wire)
{
    uint8_t slots[KO_RDMA_SLOTS];

    for (int i = 0; i < KO_RDMA_SLOTS; i++)
        slots[i] = (uint8_t)i;
    for (int i = 0; i < KO_RDMA_SLOTS; i += KO_RDMA_REPOST)
        ko_rdma_post_slots(wire, slots + i, KO_RDMA_REPOST);
    for (int i = 1; i < wire->nrails; i++)
        ko_rdma_post_ears(wire, &wire->rails[i], KO_RDMA_EARS);
    return wire->status ? ko_fail_again(wire->status, wire->why) : KOLO_OK;
}

static int make_all(struct ko_rdma_wire *wire)
{
    int err = make_slots(wire);

    for (int i = 0; i < wire->nrails; i++) {
        struct ko_rdma_rail *rail = &wire->rails[i];

        rail->wire = wire;
        rail->has_imm = !wire->device->cm;
        rail->room = i ? OTHER_ROOM + KO_RDMA_EARS : SEND_ROOM + KO_RDMA_SLOTS;
    }
    for (int i = 0; i < wire->nrails && !err; i++)
        err = make_rail(wire, &wire->rails[i]);
    return err;
}

static void do_without(struct ko_rdma_wire *wire)
{
    if (!atomic_exchange(&wire->device->has_warned, true))
        ko_log(KO_LOG_WARN, "%s; such connections go over tcp", kolo_last_error());
    ko_rdma_go_plain(wire);
}

int ko_rdma_queue_open(struct ko_rdma_wire *wire)
{
    int err;

    ko_rdma_card_match(wire);
    err = make_all(wire);
    if (err && wire->device->has_tcp) {
        do_without(wire);
        return KOLO_OK;
    }
    for (int i = 0; i < wire->nrails && !err; i++)
        err = to_init(wire, &wire->rails[i]);
    if (!err)
        err = post_receives(wire);
    return err ? err : ko_rdma_card_write(wire);
}

static void close_rail(struct ko_rdma_wire *wire, struct ko_rdma_rail *rail)
{
    if (rail->qp)
        ko_rdma_note_left(rail->adapter, "a queue pair", wire->device->ib->destroy_qp(rail->qp));
    if (rail->cq)
        ko_rdma_cq_leave(wire, rail);
    *rail = (struct ko_rdma_rail){.qp = NULL};
}

void ko_rdma_queue_close(struct ko_rdma_wire *wire)
{
    const struct ko_rdma_adapter *first = wire->rails[0].adapter;

    for (int i = 0; i < wire->nrails; i++)
        close_rail(wire, &wire->rails[i]);
    wire->nrails = 0;
    if (wire->slots.mr)
        ko_rdma_unregister_one(wire->device, first, wire->slots.mr);
    if (wire->lines.mr)
        ko_rdma_unregister_one(wire->device, first, wire->lines.mr);
    free(wire->slots.memory);
    wire->lines = (struct ko_rdma_lines){.mr = NULL};
    wire->slots = (struct ko_rdma_slots){.mr = NULL};
}
