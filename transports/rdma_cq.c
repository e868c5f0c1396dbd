/* SPDX-License-Identifier: MIT
 *
 * The list of a device's queues is under a lock, which is taken where rails come and go alone; what
 * is in a queue belongs to the thread that has its owner's channel. A queue that fails fails all of
 * its wires, each by its name.
 */
#include "rdma.h"

#include "descriptors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

enum {
    POLL = 16,
    FEW = 8,  /* wires for which an owner's first queue has room */
    MANY = 64 /* and each behind it */
};

/* ---- making ------------------------------------------------------------------------------ */

static bool is_owner(const struct ko_rdma_cq *cq, const struct ko_rdma_adapter *adapter,
                     const struct ko_rdma_owner *owner)
{
    return cq->adapter == adapter && cq->owner.group == owner->group &&
           cq->owner.channel == owner->channel;
}

static bool has_room(const struct ko_rdma_cq *cq, int room)
{
    return cq->room + cq->leaving >= room && !cq->has_failed && !atomic_load(&cq->fatal_event);
}

/* The first of the owner's that has room, or will have; *is_first: there is none at all. */
static struct ko_rdma_cq *find(struct ko_rdma_device *device, const struct ko_rdma_adapter *adapter,
                               const struct ko_rdma_owner *owner, int room, bool *is_first)
{
    struct ko_rdma_cq *cq = NULL;

    *is_first = true;
    pthread_mutex_lock(&device->lock);
    for (cq = device->cqs; cq; cq = cq->next) {
        if (!is_owner(cq, adapter, owner))
            continue;
        *is_first = false;
        if (has_room(cq, room))
            break;
    }
    pthread_mutex_unlock(&device->lock);
    return cq;
}

static void enter(struct ko_rdma_device *device, struct ko_rdma_cq *cq)
{
    pthread_mutex_lock(&device->lock);
    cq->next = device->cqs;
    device->cqs = cq;
    pthread_mutex_unlock(&device->lock);
}

static void leave(struct ko_rdma_device *device, struct ko_rdma_cq *cq)
{
    struct ko_rdma_cq **link = &device->cqs;

    pthread_mutex_lock(&device->lock);
    while (*link && *link != cq)
        link = &(*link)->next;
    if (*link)
        *link = cq->next;
    pthread_mutex_unlock(&device->lock);
}

static void close_cq(const struct ko_ib *ib, struct ko_rdma_cq *cq)
{
    if (cq->cq)
        ko_rdma_note_left(cq->adapter, "a completion queue", ib->destroy_cq(cq->cq));
    if (cq->channel)
        ko_rdma_note_left(cq->adapter, "a completion channel", ib->destroy_channel(cq->channel));
    free(cq->seats);
    free(cq);
}

static int open_cq(const struct ko_ib *ib, struct ko_rdma_cq *cq)
{
    const char *name = cq->adapter->port.device;

    cq->channel = ib->create_channel(cq->adapter->context);
    if (!cq->channel)
        return ko_fail_errno(errno, "a completion channel of %s", name);
    if (fcntl(cq->channel->fd, F_SETFL, O_NONBLOCK))
        return ko_fail(KOLO_E_SYSTEM, "a completion channel cannot be made not to block");
    ko_descriptors_note(cq->channel->fd);
    cq->cq = ib->create_cq(cq->adapter->context, cq->room, cq, cq->channel, 0);
    return cq->cq ? KOLO_OK : ko_fail_errno(errno, "a completion queue of %s", name);
}

static int make(struct ko_rdma_device *device, struct ko_rdma_adapter *adapter,
                const struct ko_rdma_owner *owner, int room, struct ko_rdma_cq **cq_out)
{
    struct ko_rdma_cq *cq = ko_alloc(sizeof *cq, "a completion queue");
    int err;

    if (!cq)
        return KOLO_E_NOMEM;
    cq->adapter = adapter;
    cq->owner = *owner;
    cq->room = room;
    err = open_cq(device->ib, cq);
    if (err) {
        close_cq(device->ib, cq);
        return err;
    }
    enter(device, cq);
    *cq_out = cq;
    return KOLO_OK;
}

/* ---- seats ------------------------------------------------------------------------------- */

/* Twice as many. */
static int add_seats(struct ko_rdma_cq *cq)
{
    const uint32_t n = cq->nseats ? 2 * cq->nseats : FEW;
    struct ko_rdma_seat *seats = realloc(cq->seats, n * sizeof *seats);

    if (!seats)
        return ko_fail(KOLO_E_NOMEM, "no memory for %u wires' places in a queue", n);
    memset(seats + cq->nseats, 0, (n - cq->nseats) * sizeof *seats);
    cq->seats = seats;
    cq->nseats = n;
    return KOLO_OK;
}

static int take_seat(struct ko_rdma_cq *cq, struct ko_rdma_rail *rail)
{
    uint32_t i = 0;

    while (i < cq->nseats && cq->seats[i].rail)
        i++;
    if (i == cq->nseats && add_seats(cq))
        return KOLO_E_NOMEM;
    cq->seats[i].rail = rail;
    cq->nrails++;
    cq->room -= rail->room;
    rail->cq = cq;
    rail->seat = i;
    rail->id = ko_rdma_id(i, cq->seats[i].generation);
    return KOLO_OK;
}

void ko_rdma_cq_leave(struct ko_rdma_wire *wire, struct ko_rdma_rail *rail)
{
    struct ko_rdma_cq *cq = rail->cq;

    cq->seats[rail->seat] = (struct ko_rdma_seat){NULL, cq->seats[rail->seat].generation + 1};
    cq->leaving += rail->room;
    rail->cq = NULL;
    if (--cq->nrails)
        return;
    leave(wire->device, cq);
    close_cq(wire->device->ib, cq);
}

/* ---- failing ----------------------------------------------------------------------------- */

/* What fails: a queue's every rail, by the name of its wire. */
static void fail_all(struct ko_rdma_cq *cq, int error, const char *what)
{
    cq->has_failed = true;
    for (uint32_t i = 0; i < cq->nseats; i++) {
        struct ko_rdma_rail *rail = cq->seats[i].rail;

        if (!rail)
            continue;
        ko_rdma_look_for_end(rail->wire, rail); /* if the adapter is gone, that is what to say */
        ko_rdma_call_failed(rail->wire, rail, error, what);
    }
}

/* ---- completions ------------------------------------------------------------------------- */

/* NULL: it is of a queue pair that has been destroyed. */
static struct ko_rdma_rail *rail_of(const struct ko_rdma_cq *cq, uint64_t wr_id)
{
    struct ko_rdma_rail *rail = cq->seats[wr_id >> 8 & 0xffffff].rail;

    return rail && !((rail->id ^ wr_id) & ko_rdma_id(0xffffff, 0xffffff)) ? rail : NULL;
}

/* Other wires have got something: they do what follows. */
static void settle(struct ko_rdma_wire *wire)
{
    while (wire) {
        struct ko_rdma_wire *next = wire->next_touched;

        wire->is_touched = false;
        wire->has_gained = true;
        ko_rdma_pump(wire);
        if (wire->base.state == KO_WIRE_OPEN)
            ko_rdma_want(wire);
        wire = next;
    }
}

/* Takes in what there is in a queue, for all of its wires; mine has the rest done by its caller. */
static int take(struct ko_rdma_cq *cq, const struct ko_rdma_wire *mine)
{
    struct ko_rdma_wire *touched = NULL;
    struct ko_ib_wc list[POLL];
    int all = 0, n;

    do {
        n = cq->cq->context->ops.poll_cq(cq->cq, POLL, list);
        for (int i = 0; i < n; i++) {
            struct ko_rdma_rail *rail = rail_of(cq, list[i].wr_id);

            if (!rail)
                continue;
            ko_rdma_complete(rail, &list[i]);
            if (rail->wire == mine || rail->wire->is_touched)
                continue;
            rail->wire->is_touched = true;
            rail->wire->next_touched = touched;
            touched = rail->wire;
        }
        all += n > 0 ? n : 0;
    } while (n == POLL);
    if (n < 0)
        fail_all(cq, EIO, "reading a completion queue (ibv_poll_cq)");
    cq->room += cq->leaving;
    cq->leaving = 0;
    if (touched)
        settle(touched);
    return all;
}

bool ko_rdma_is_first_of_cq(const struct ko_rdma_wire *wire, int rail)
{
    for (int i = 0; i < rail; i++)
        if (wire->rails[i].cq == wire->rails[rail].cq)
            return false;
    return true;
}

/* Whether the other rails have something to tell: they carry stripes alone. */
static bool are_others_busy(const struct ko_rdma_wire *wire)
{
    return wire->out.begun != wire->out.ended || wire->in.awaited || wire->nprobed < wire->nrails;
}

int ko_rdma_gather(struct ko_rdma_wire *wire)
{
    int n = take(wire->rails[0].cq, wire);

    if (wire->nrails > 1 && are_others_busy(wire))
        for (int i = 1; i < wire->nrails; i++)
            if (ko_rdma_is_first_of_cq(wire, i))
                n += take(wire->rails[i].cq, wire);
    return n;
}

/* What all rails of a wire on that adapter need. */
static int room_of(const struct ko_rdma_wire *wire, const struct ko_rdma_adapter *adapter)
{
    int room = 0;

    for (int i = 0; i < wire->nrails; i++)
        room += wire->rails[i].adapter == adapter ? wire->rails[i].room : 0;
    return room;
}

int ko_rdma_cq_join(struct ko_rdma_wire *wire, struct ko_rdma_rail *rail)
{
    struct ko_rdma_device *device = wire->device;
    const int all = room_of(wire, rail->adapter);
    bool is_first;
    struct ko_rdma_cq *cq = find(device, rail->adapter, &wire->owner, rail->room, &is_first);
    int err = KOLO_OK;

    if (!cq)
        err = make(device, rail->adapter, &wire->owner, all * (is_first ? FEW : MANY), &cq);
    else if (cq->room < rail->room)
        (void)take(cq, wire);
    if (!err)
        err = take_seat(cq, rail);
    if (err && cq && !cq->nrails) {
        leave(device, cq);
        close_cq(device->ib, cq);
    }
    return err;
}

/* ---- sleeping ---------------------------------------------------------------------------- */

static void arm(struct ko_rdma_cq *cq)
{
    int error = cq->is_armed ? 0 : cq->cq->context->ops.req_notify_cq(cq->cq, 0);

    cq->is_armed = true;
    if (error)
        fail_all(cq, error, "asking for events (ibv_req_notify_cq)");
}

void ko_rdma_arm(struct ko_rdma_wire *wire)
{
    for (int i = 0; i < wire->nrails && !wire->status; i++)
        arm(wire->rails[i].cq);
}

void ko_rdma_take_event(struct ko_rdma_device *device, struct ko_rdma_cq *cq)
{
    struct ko_ib_cq *object;
    void *owner;
    int error;

    if (!device->ib->get_event(cq->channel, &object, &owner)) {
        device->ib->ack_events(object, 1);
        cq->is_armed = false;
        return;
    }
    error = errno;
    if (error == EAGAIN)
        return;
    ko_rdma_read_events(device, cq->adapter); /* nobody could sleep: the channel stays readable */
    fail_all(cq, error, "taking an event (ibv_get_cq_event)");
}

static bool takes_events(const struct ko_rdma_wire *wire)
{
    return wire->base.state == KO_WIRE_OPEN && !wire->status;
}

bool ko_rdma_cq_has_open(const struct ko_rdma_cq *cq)
{
    for (uint32_t i = 0; i < cq->nseats; i++)
        if (cq->seats[i].rail && takes_events(cq->seats[i].rail->wire))
            return true;
    return false;
}
