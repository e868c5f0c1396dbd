/* SPDX-License-Identifier: MIT
 *
 * A wire without queue pairs. Its user knows its descriptor, which is the poller's, so the poller
 * stays, with the connection over tcp in it.
 */
#include "rdma.h"

void ko_rdma_go_plain(struct ko_rdma_wire *wire)
{
    for (int i = 0; i < wire->nrails; i++)
        if (wire->rails[i].cq)
            ko_poller_remove(&wire->poller, wire->rails[i].cq->channel->fd);
    for (int i = 0; i < wire->device->nadapters; i++)
        ko_poller_remove(&wire->poller, wire->device->adapters[i].context->async_fd);
    ko_rdma_meeting_close(wire);
    ko_rdma_queue_close(wire);
    wire->stage = KO_RDMA_PLAIN;
    wire->card = (struct ko_rdma_card){
        .magic = KO_HELLO_MAGIC, .version = KO_HELLO_VERSION, .link_layer = KO_RDMA_TCP};
}

static struct ko_wire *tcp_of(struct ko_wire *base)
{
    return ((struct ko_rdma_wire *)base)->tcp;
}

/* What every call ends with. What tcp has no wish for is not taken out of the poller: the user does
 * not look at that then. */
static int after(struct ko_wire *base, int err)
{
    struct ko_rdma_wire *wire = (struct ko_rdma_wire *)base;
    int failed = wire->tcp->wanted ? ko_rdma_poll_tcp(wire) : KOLO_OK;

    base->wanted = wire->tcp->wanted ? KO_POLL_IN : 0;
    return failed ? failed : err;
}

static int plain_drive(struct ko_wire *base)
{
    return after(base, ko_transport_tcp.drive(tcp_of(base)));
}

static int plain_deliver(struct ko_wire *base)
{
    return after(base, ko_transport_tcp.deliver(tcp_of(base)));
}

static int plain_send(struct ko_wire *base, struct ko_post *post)
{
    return after(base, ko_transport_tcp.send(tcp_of(base), post));
}

static int plain_next(struct ko_wire *base, const struct ko_frame **frame)
{
    return after(base, ko_transport_tcp.next(tcp_of(base), frame));
}

static int plain_land(struct ko_wire *base, void *to)
{
    return after(base, ko_transport_tcp.land(tcp_of(base), to));
}

static void plain_hangup(struct ko_wire *base)
{
    ko_transport_rdma.hangup(base);
}

static const struct ko_transport plain = {
    .name = "rdma, by tcp",
    .kind = KO_MESSAGE,
    .drive = plain_drive,
    .send = plain_send,
    .next = plain_next,
    .land = plain_land,
    .deliver = plain_deliver,
    .hangup = plain_hangup,
};

int ko_rdma_plain_open(struct ko_rdma_wire *wire)
{
    wire->base.transport = &plain;
    wire->base.state = KO_WIRE_OPEN;
    return after(&wire->base, KOLO_OK);
}
