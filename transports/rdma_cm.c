/* SPDX-License-Identifier: MIT
 *
 * iWARP: a queue pair is a TCP connection that the adapter keeps, and librdmacm makes. Each wire
 * has a connection of its own to be made: the end that begins the wire listens at a port of its
 * own, which its card names, and the other goes there, and shows by the card's number that it is
 * the one. Queue pairs are made by libibverbs as all others are; librdmacm gets to know their
 * numbers.
 */
#include "rdma.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>

enum { RESOLVE_MS = 5000, PORTS = 16 /* tried */ };

/* What the end that comes shows. */
struct ticket {
    uint32_t psn, qp_number;
};

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

static union address address_of(const ko_ib_gid *gid, uint16_t port)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    union address address = {.v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)}};

    memcpy(&address.v6.sin6_addr, gid->raw, sizeof gid->raw);
    if (!memcmp(gid->raw, mapped, sizeof mapped)) {
        address.v4 = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port)};
        memcpy(&address.v4.sin_addr, gid->raw + sizeof mapped, 4);
    }
    return address;
}

static int cm_failed(const struct ko_rdma_wire *wire, const char *what)
{
    if (errno == ECONNREFUSED || errno == ECONNRESET || errno == ETIMEDOUT || errno == EHOSTUNREACH)
        return ko_fail(KOLO_E_PEER_LOST, "%s over iWARP with %s: %s", what,
                       wire->device->adapters[0].port.device, strerror(errno));
    return ko_fail_errno(errno, "%s over iWARP with %s (librdmacm)", what,
                         wire->device->adapters[0].port.device);
}

/* ---- devices ----------------------------------------------------------------------------- */

/* Whether the adapter is at that address. */
static bool is_at(const struct ko_rdma_device *device, struct ko_ib_cm_channel *channel)
{
    union address here = address_of(&device->host, 0);
    struct ko_ib_cm_id *id = NULL;
    bool is_here = false;

    if (channel && !device->cm->create_id(channel, &id, NULL, KO_IB_CM_TCP) &&
        !device->cm->bind(id, &here.any) && id->verbs)
        is_here =
            !strcmp(device->ib->device_name(id->verbs->device), device->adapters[0].port.device);
    if (id)
        (void)device->cm->destroy_id(id);
    return is_here;
}

int ko_rdma_cm_open(struct ko_rdma_device *device, const char *host)
{
    struct ko_ib_cm_channel *channel;
    bool is_here;
    int err = ko_ib_cm_open(&device->cm);

    if (err)
        return err;
    channel = device->cm->create_channel();
    is_here = ko_ib_gid_of_host(host, &device->host) && is_at(device, channel);
    if (channel)
        device->cm->destroy_channel(channel);
    if (is_here)
        return KOLO_OK;
    return ko_fail(KOLO_E_UNSUPPORTED,
                   "%s is an iWARP adapter that does not have the address %s of this rank: choose "
                   "by KOLO_IFADDR, or KOLO_IB_HCA",
                   device->adapters[0].port.device, host);
}

/* ---- wires ------------------------------------------------------------------------------- */

static int open_id(struct ko_rdma_wire *wire, struct ko_ib_cm_id **id)
{
    const struct ko_ib_cm *cm = wire->device->cm;

    wire->meeting.channel = cm->create_channel();
    if (!wire->meeting.channel || fcntl(wire->meeting.channel->fd, F_SETFL, O_NONBLOCK) ||
        cm->create_id(wire->meeting.channel, id, NULL, KO_IB_CM_TCP))
        return cm_failed(wire, "joining");
    return ko_poller_add(&wire->poller, wire->meeting.channel->fd, KO_POLL_IN, &wire->meeting);
}

/* Ports of iWARP are TCP's, but the kernel chooses one without a look at TCP's sockets: whether
 * what has failed was that, and there is a new id, which gets another. */
static bool tries_again(struct ko_rdma_wire *wire, struct ko_ib_cm_id **id)
{
    const struct ko_ib_cm *cm = wire->device->cm;
    const int failed = errno;

    if (failed != EADDRINUSE || ++wire->meeting.tries == PORTS)
        return false;
    (void)cm->destroy_id(*id);
    *id = NULL;
    return !cm->create_id(wire->meeting.channel, id, NULL, KO_IB_CM_TCP);
}

static int listen_here(struct ko_rdma_wire *wire)
{
    const struct ko_ib_cm *cm = wire->device->cm;
    union address here = address_of(&wire->device->host, 0);
    struct ko_ib_cm_id **id = &wire->meeting.listener;

    while (cm->bind(*id, &here.any) || cm->listen(*id, 2))
        if (!tries_again(wire, id))
            return cm_failed(wire, "listening");
    wire->card.cm_port = ntohs(cm->get_port(*id));
    return KOLO_OK;
}

static int go_there(struct ko_rdma_wire *wire)
{
    union address here = address_of(&wire->device->host, 0),
                  there = address_of(&wire->theirs.rails[0].gid, wire->theirs.cm_port);

    if (wire->device->cm->resolve_address(wire->meeting.id, &here.any, &there.any, RESOLVE_MS))
        return cm_failed(wire, "finding the other end");
    return KOLO_OK;
}

int ko_rdma_meet_begin(struct ko_rdma_wire *wire)
{
    struct ko_rdma_meeting *meeting = &wire->meeting;
    int err = open_id(wire, wire->is_connecting ? &meeting->listener : &meeting->id);

    if (err)
        return err;
    return wire->is_connecting ? listen_here(wire) : go_there(wire);
}

/* The other end's queue pair is not to read. */
static struct ko_ib_cm_param param_of(const struct ko_rdma_wire *wire, const struct ticket *ticket)
{
    return (struct ko_ib_cm_param){.data = ticket,
                                   .data_nbytes = ticket ? sizeof *ticket : 0,
                                   .reads_in = 1,
                                   .reads = 1,
                                   .qp_number = wire->rails[0].qp->qp_num};
}

static int connect_there(struct ko_rdma_wire *wire)
{
    const struct ticket ticket = {wire->theirs.rails[0].psn, wire->theirs.rails[0].qp_number};
    struct ko_ib_cm_param param = param_of(wire, &ticket);
    int err;

    if (!wire->device->cm->connect(wire->meeting.id, &param))
        return KO_AGAIN;
    if (!tries_again(wire, &wire->meeting.id))
        return cm_failed(wire, "connecting");
    err = go_there(wire);
    return err ? err : KO_AGAIN;
}

static bool is_ours(const struct ko_rdma_wire *wire, const struct ko_ib_cm_param *param)
{
    const struct ticket ours = {wire->card.rails[0].psn, wire->card.rails[0].qp_number};

    return param->data && param->data_nbytes >= sizeof ours &&
           !memcmp(param->data, &ours, sizeof ours);
}

/* Lets the other end in; a stranger is sent away by his id's end. */
static int accept_here(struct ko_rdma_wire *wire, struct ko_ib_cm_id *id, bool is_welcome)
{
    struct ko_ib_cm_param param = param_of(wire, NULL);

    if (!is_welcome || wire->meeting.id) {
        (void)wire->device->cm->destroy_id(id);
        return KO_AGAIN;
    }
    wire->meeting.id = id;
    return wire->device->cm->accept(id, &param) ? cm_failed(wire, "accepting") : KO_AGAIN;
}

/* What an event leads to. */
static int hear(struct ko_rdma_wire *wire, int type, int status)
{
    const struct ko_ib_cm *cm = wire->device->cm;

    if (type == KO_IB_CM_ADDRESS_RESOLVED && !status)
        return cm->resolve_route(wire->meeting.id, RESOLVE_MS) ? cm_failed(wire, "finding a route")
                                                               : KO_AGAIN;
    if (type == KO_IB_CM_ROUTE_RESOLVED && !status)
        return connect_there(wire);
    if (type == KO_IB_CM_ESTABLISHED && !status)
        return KOLO_OK;
    return ko_fail(KOLO_E_PEER_LOST,
                   "%s cannot be joined to %s of rank %d over iWARP: %s (status %d)",
                   wire->card.rails[0].device, wire->theirs.rails[0].device,
                   (int)wire->base.hello.from, cm->event_name(type), status);
}

static int take_event(struct ko_rdma_wire *wire)
{
    const struct ko_ib_cm *cm = wire->device->cm;
    struct ko_ib_cm_event *event;
    struct ko_ib_cm_id *id;
    bool is_welcome;
    int type, status;

    if (cm->get_event(wire->meeting.channel, &event))
        return errno == EAGAIN ? KO_AGAIN : cm_failed(wire, "joining");
    type = event->type;
    status = event->status;
    id = event->id;
    is_welcome = type == KO_IB_CM_REQUEST && is_ours(wire, &event->param);
    (void)cm->ack_event(event); /* before its id may go, which waits for this */
    return type == KO_IB_CM_REQUEST ? accept_here(wire, id, is_welcome) : hear(wire, type, status);
}

int ko_rdma_meet(struct ko_rdma_wire *wire)
{
    int err = take_event(wire);

    if (!err) /* whether it ends is told over tcp */
        ko_poller_remove(&wire->poller, wire->meeting.channel->fd);
    return err;
}

void ko_rdma_meeting_close(struct ko_rdma_wire *wire)
{
    const struct ko_ib_cm *cm = wire->device->cm;
    struct ko_rdma_meeting *meeting = &wire->meeting;

    if (meeting->id)
        (void)cm->destroy_id(meeting->id);
    if (meeting->listener)
        (void)cm->destroy_id(meeting->listener);
    if (meeting->channel)
        cm->destroy_channel(meeting->channel);
    *meeting = (struct ko_rdma_meeting){.channel = NULL};
}
