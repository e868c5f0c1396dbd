/* SPDX-License-Identifier: MIT
 *
 * Cards: what the two ends of a wire tell each other of their queue pairs, which end of one is to
 * be which end's of the other, and joining them by what the cards say.
 */
#include "rdma.h"

#include "log.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

void ko_rdma_card_text(const struct ko_rdma_end *end, char text[KO_RDMA_END_TEXT])
{
    char gid[KO_IB_GID_TEXT];

    ko_ib_gid_text(&end->gid, gid);
    snprintf(text, KO_RDMA_END_TEXT, "%.31s port %u, GID %u = %s (%s)", end->device, end->port,
             end->gid_index, gid, ko_ib_gid_type_name(end->gid_type));
}

/* ---- ours -------------------------------------------------------------------------------- */

static int write_end(const struct ko_rdma_wire *wire, const struct ko_rdma_rail *rail,
                     struct ko_rdma_end *end)
{
    const struct ko_ib_port *port = &rail->adapter->port;
    const struct ko_ib_gid_row *gid = &port->gids[port->chosen_gid];

    *end = (struct ko_rdma_end){.qp_number = rail->qp->qp_num,
                                .lid = port->lid,
                                .gid_index = (uint8_t)gid->index,
                                .gid_type = (uint8_t)gid->type,
                                .port = (uint8_t)port->number,
                                .mtu = (uint8_t)port->mtu,
                                .gid = wire->device->cm ? wire->device->host : gid->gid};
    snprintf(end->device, sizeof end->device, "%s", port->device);
    if (getrandom(&end->psn, sizeof end->psn, 0) != sizeof end->psn)
        return ko_fail_errno(errno, "getrandom");
    end->psn &= 0xffffff;
    return KOLO_OK;
}

int ko_rdma_card_write(struct ko_rdma_wire *wire)
{
    const struct ko_ib_port *port = &wire->rails[0].adapter->port;
    int err = KOLO_OK;

    wire->card = (struct ko_rdma_card){.magic = KO_HELLO_MAGIC,
                                       .version = KO_HELLO_VERSION,
                                       .link_layer = wire->device->cm ? (uint32_t)KO_RDMA_IWARP
                                                                      : (uint32_t)port->link_layer,
                                       .slot_bytes = KO_RDMA_SLOT,
                                       .credits = KO_RDMA_CREDITS,
                                       .nrails = (uint16_t)wire->nrails,
                                       .lines_at = (uintptr_t)wire->lines.come,
                                       .lines_key = wire->lines.mr->rkey};
    for (int i = 0; i < wire->nrails && !err; i++)
        err = write_end(wire, &wire->rails[i], &wire->card.rails[i]);
    return err;
}

/* ---- theirs ------------------------------------------------------------------------------ */

static bool is_made_as_ours(const struct ko_rdma_wire *wire, const struct ko_rdma_card *card)
{
    if (card->slot_bytes != KO_RDMA_SLOT || card->credits != KO_RDMA_CREDITS || !card->nrails ||
        card->nrails > KO_RDMA_RAILS || (wire->nrails && card->nrails != wire->nrails))
        return false;
    for (int i = 0; i < card->nrails; i++)
        if (!memchr(card->rails[i].device, 0, sizeof card->rails[i].device))
            return false;
    return true;
}

/* An end has no room: both do without. */
static int take_plain(struct ko_rdma_wire *wire, int from)
{
    if (!wire->device->has_tcp)
        return ko_fail(KOLO_E_UNSUPPORTED,
                       "rank %d has no room for a connection over rdma (its log says of what), and "
                       "KOLO_TRANSPORT does not allow tcp here",
                       from);
    ko_log(KO_LOG_INFO, "rank %d and this one talk over tcp: %s has no room for rdma", from,
           wire->stage == KO_RDMA_PLAIN ? "this one" : "that one");
    ko_rdma_go_plain(wire);
    return KOLO_OK;
}

int ko_rdma_card_take(struct ko_rdma_wire *wire, const struct ko_hello *hello)
{
    const struct ko_rdma_card *card = &wire->theirs;
    const struct ko_rdma_device *device = wire->device;
    const struct ko_ib_port *port = &device->adapters[0].port;

    bool is_known;

    memcpy(&wire->theirs, hello->card, sizeof wire->theirs);
    is_known = card->magic == KO_HELLO_MAGIC && card->version == KO_HELLO_VERSION;
    if (is_known && card->link_layer == KO_RDMA_TCP)
        return take_plain(wire, (int)hello->from);
    if (!is_known || wire->stage == KO_RDMA_PLAIN || !is_made_as_ours(wire, card))
        return ko_fail(KOLO_E_PROTOCOL,
                       "rank %d's queue pairs are not made as this version of kolo makes them",
                       (int)hello->from);
    if (card->link_layer != (device->cm ? (uint32_t)KO_RDMA_IWARP : (uint32_t)port->link_layer))
        return ko_fail(KOLO_E_UNSUPPORTED,
                       "%s here is %s, and rank %d's %s is not: choose by KOLO_IB_HCA, or set "
                       "KOLO_TRANSPORT=tcp",
                       port->device, ko_ib_port_kind(port), (int)hello->from,
                       card->rails[0].device);
    return KOLO_OK;
}

/* ---- rails ------------------------------------------------------------------------------- */

/* Bits with which two addresses begin alike: the more, the likelier are they of one subnet. */
static int common_bits(const ko_ib_gid *a, const ko_ib_gid *b)
{
    for (int i = 0; i < 16; i++)
        if (a->raw[i] != b->raw[i])
            return 8 * i + __builtin_clz((unsigned)(a->raw[i] ^ b->raw[i])) - 24;
    return 128;
}

/* The adapter for a queue pair of the other end's: of those that have the fewest rails of this wire
 * so far the one whose address is most like theirs. */
static int best_adapter(const struct ko_rdma_device *device, const int *nrails,
                        const struct ko_rdma_end *theirs)
{
    int best = 0, most = -1;

    for (int i = 0; i < device->nadapters; i++) {
        const struct ko_ib_port *port = &device->adapters[i].port;
        const int bits = common_bits(&port->gids[port->chosen_gid].gid, &theirs->gid);

        if (nrails[i] < nrails[best] || (nrails[i] == nrails[best] && bits > most)) {
            best = i;
            most = bits;
        }
    }
    return best;
}

void ko_rdma_card_match(struct ko_rdma_wire *wire)
{
    struct ko_rdma_device *device = wire->device;
    const int wish = device->cm ? 1 : device->nadapters * (int)device->qps;
    int nrails[KO_IB_CHOSEN_CAP] = {0};

    wire->nrails = wire->is_connecting ? wish : wire->theirs.nrails;
    if (wire->nrails > KO_RDMA_RAILS)
        wire->nrails = KO_RDMA_RAILS;
    for (int i = 0; i < wire->nrails; i++) {
        const int at = wire->is_connecting ? i % device->nadapters
                                           : best_adapter(device, nrails, &wire->theirs.rails[i]);

        nrails[at]++;
        wire->rails[i].adapter = &device->adapters[at];
    }
}

/* ---- joining ----------------------------------------------------------------------------- */

/* Ethernet has no other addresses; between subnets of InfiniBand a GID is needed too. */
static struct ko_ib_path path_to(const struct ko_rdma_wire *wire, int i)
{
    const struct ko_rdma_end *theirs = &wire->theirs.rails[i], *ours = &wire->card.rails[i];
    struct ko_ib_path path = {
        .dlid = theirs->lid, .sl = (uint8_t)wire->device->service_level, .port_num = ours->port};

    path.is_global =
        wire->card.link_layer == KO_IB_LINK_ETHERNET || ours->gid.words[0] != theirs->gid.words[0];
    if (path.is_global) {
        path.dgid = theirs->gid;
        path.sgid_index = ours->gid_index;
        path.hop_limit = 255;
        path.traffic_class = (uint8_t)wire->device->traffic_class;
    }
    return path;
}

static int join_failed(const struct ko_rdma_wire *wire, int i, int error)
{
    char ours[KO_RDMA_END_TEXT], theirs[KO_RDMA_END_TEXT];

    ko_rdma_card_text(&wire->card.rails[i], ours);
    ko_rdma_card_text(&wire->theirs.rails[i], theirs);
    return ko_fail_errno(error < 0 ? errno : error,
                         "%s here cannot be joined to %s of rank %d (KOLO_IB_GID_INDEX: both GIDs "
                         "must be of one kind)",
                         ours, theirs, (int)wire->base.hello.from);
}

static int join_rail(struct ko_rdma_wire *wire, int i)
{
    const struct ko_rdma_end *theirs = &wire->theirs.rails[i], *ours = &wire->card.rails[i];
    struct ko_ib_qp *qp = wire->rails[i].qp;
    struct ko_ib_qp_attr attr;
    int error;

    attr = (struct ko_ib_qp_attr){.qp_state = KO_IB_RTR,
                                  .path_mtu = theirs->mtu < ours->mtu ? theirs->mtu : ours->mtu,
                                  .dest_qp_num = theirs->qp_number,
                                  .rq_psn = theirs->psn,
                                  .max_dest_rd_atomic = 1,
                                  .min_rnr_timer = 12,
                                  .path = path_to(wire, i)};
    error =
        wire->device->ib->modify_qp(qp, &attr,
                                    KO_IB_QP_STATE | KO_IB_QP_PATH | KO_IB_QP_MTU | KO_IB_QP_PEER |
                                        KO_IB_QP_RQ_PSN | KO_IB_QP_READS_IN | KO_IB_QP_RNR_TIMER);
    if (error)
        return join_failed(wire, i, error);
    attr = (struct ko_ib_qp_attr){.qp_state = KO_IB_RTS,
                                  .sq_psn = ours->psn,
                                  .timeout = (uint8_t)wire->device->timeout,
                                  .retry_cnt = (uint8_t)wire->device->retries,
                                  .rnr_retry = 7,
                                  .max_rd_atomic = 1};
    error = wire->device->ib->modify_qp(qp, &attr,
                                        KO_IB_QP_STATE | KO_IB_QP_TIMEOUT | KO_IB_QP_RETRY |
                                            KO_IB_QP_RNR_RETRY | KO_IB_QP_SQ_PSN | KO_IB_QP_READS);
    return error ? join_failed(wire, i, error) : KOLO_OK;
}

int ko_rdma_card_join(struct ko_rdma_wire *wire)
{
    int err = KOLO_OK;

    for (int i = 0; i < wire->nrails && !err && !wire->device->cm; i++)
        err = join_rail(wire, i);
    return err;
}
