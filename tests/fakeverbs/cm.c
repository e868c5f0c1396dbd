/* SPDX-License-Identifier: MIT
 *
 * The double of librdmacm, in the same library as that of libibverbs, for adapters of kind iwarp.
 * To connect is to connect over TCP, and to tell each other the queue pairs' numbers; a channel's
 * descriptor is an epoll of all that may become an event.
 */
#include "double.h"
#include "ib_abi_cm.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#pragma GCC visibility push(default)
#define PROTOTYPE(member, name, result, parameters) result name parameters;
KO_IB_LIST(PROTOTYPE)
KO_IB_CM_LIST(PROTOTYPE)
#pragma GCC visibility pop

enum { DATA = 56 };

/* What the end that connects says first; the answer is the other's number alone. */
struct wish {
    uint32_t qp_number, nbytes;
    unsigned char data[DATA];
};

struct event {
    struct ko_ib_cm_event base;
    struct wish wish;
    struct event *next;
};

struct channel {
    struct ko_ib_cm_channel base;
    int wake_fd; /* readable while there are events below */
    struct event *first, **end;
};

struct id {
    struct ko_ib_cm_id base;
    struct channel *channel;
    int fd;
    bool is_listening;
    struct sockaddr_in there;
    uint32_t ours, theirs; /* numbers of queue pairs */
};

/* 0, or -1 with the errno that the script wishes. */
static int outcome(const char *function)
{
    errno = double_break(function);
    return errno ? -1 : 0;
}

/* ---- channels ----------------------------------------------------------------------------- */

static void watch(struct channel *channel, int operation, int fd, struct id *id)
{
    struct epoll_event event = {.events = EPOLLIN, .data = {.ptr = id}};

    epoll_ctl(channel->base.fd, operation, fd, &event);
}

struct ko_ib_cm_channel *rdma_create_event_channel(void)
{
    struct channel *channel;

    if (outcome("rdma_create_event_channel"))
        return NULL;
    channel = calloc(1, sizeof *channel);
    channel->base.fd = epoll_create1(EPOLL_CLOEXEC);
    channel->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    channel->end = &channel->first;
    watch(channel, EPOLL_CTL_ADD, channel->wake_fd, NULL);
    return &channel->base;
}

void rdma_destroy_event_channel(struct ko_ib_cm_channel *base)
{
    struct channel *channel = (struct channel *)base;

    while (channel->first) { /* a wish that nobody has heard */
        if (channel->first->base.type != KO_IB_CM_REQUEST)
            abort();
        (void)rdma_destroy_id(channel->first->base.id);
    }
    close(channel->base.fd);
    close(channel->wake_fd);
    free(channel);
}

static struct event *tell(struct id *id, int type, int status)
{
    struct channel *channel = id->channel;
    struct event *event = calloc(1, sizeof *event);

    event->base = (struct ko_ib_cm_event){.id = &id->base, .type = type, .status = status};
    *channel->end = event;
    channel->end = &event->next;
    (void)!write(channel->wake_fd, &(uint64_t){1}, sizeof(uint64_t));
    return event;
}

/* ---- ids ---------------------------------------------------------------------------------- */

static struct id *new_id(struct channel *channel, int fd)
{
    struct id *id = calloc(1, sizeof *id);

    id->channel = channel;
    id->fd = fd;
    return id;
}

int rdma_create_id(struct ko_ib_cm_channel *channel, struct ko_ib_cm_id **id, void *owner,
                   int space)
{
    (void)owner;
    if (outcome("rdma_create_id") || space != KO_IB_CM_TCP)
        return -1;
    *id = &new_id((struct channel *)channel, socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0))->base;
    return 0;
}

/* What nobody has heard of an id goes with it. */
static void forget(struct id *id)
{
    struct channel *channel = id->channel;
    struct event **link = &channel->first;

    while (*link) {
        struct event *event = *link;

        if (event->base.id == &id->base) {
            *link = event->next;
            free(event);
        } else {
            link = &event->next;
        }
    }
    channel->end = link;
}

int rdma_destroy_id(struct ko_ib_cm_id *base)
{
    struct id *id = (struct id *)base;

    forget(id);
    close(id->fd);
    free(base->verbs);
    free(id);
    return 0;
}

/* This machine's adapters are all at 127.0.0.1. */
int rdma_bind_addr(struct ko_ib_cm_id *base, struct sockaddr *address)
{
    const struct sockaddr_in *here = (const struct sockaddr_in *)address;
    struct ko_ib_device **devices;
    int n;

    if (outcome("rdma_bind_addr"))
        return -1;
    if (here->sin_family != AF_INET || ntohl(here->sin_addr.s_addr) != INADDR_LOOPBACK ||
        bind(((struct id *)base)->fd, address, sizeof *here)) {
        errno = ENODEV;
        return -1;
    }
    devices = ibv_get_device_list(&n);
    for (int i = 0; devices && i < n && !base->verbs; i++)
        if (devices[i]->transport_type == KO_IB_TRANSPORT_IWARP) {
            base->verbs = calloc(1, sizeof *base->verbs);
            base->verbs->device = devices[i];
        }
    ibv_free_device_list(devices);
    return 0;
}

int rdma_listen(struct ko_ib_cm_id *base, int backlog)
{
    struct id *id = (struct id *)base;

    if (outcome("rdma_listen") || listen(id->fd, backlog))
        return -1;
    id->is_listening = true;
    watch(id->channel, EPOLL_CTL_ADD, id->fd, id);
    return 0;
}

uint16_t rdma_get_src_port(struct ko_ib_cm_id *base)
{
    struct sockaddr_in here = {.sin_port = 0};
    socklen_t nbytes = sizeof here;

    getsockname(((struct id *)base)->fd, (struct sockaddr *)&here, &nbytes);
    return here.sin_port;
}

int rdma_resolve_addr(struct ko_ib_cm_id *base, struct sockaddr *from, struct sockaddr *to, int ms)
{
    struct id *id = (struct id *)base;

    (void)from, (void)ms;
    if (outcome("rdma_resolve_addr"))
        return -1;
    memcpy(&id->there, to, sizeof id->there);
    tell(id, KO_IB_CM_ADDRESS_RESOLVED, 0);
    return 0;
}

int rdma_resolve_route(struct ko_ib_cm_id *base, int ms)
{
    (void)ms;
    if (outcome("rdma_resolve_route"))
        return -1;
    tell((struct id *)base, KO_IB_CM_ROUTE_RESOLVED, 0);
    return 0;
}

/* ---- connecting --------------------------------------------------------------------------- */

int rdma_connect(struct ko_ib_cm_id *base, struct ko_ib_cm_param *param)
{
    struct id *id = (struct id *)base;
    struct wish wish = {.qp_number = param->qp_number, .nbytes = param->data_nbytes};

    if (outcome("rdma_connect"))
        return -1;
    memcpy(wish.data, param->data, wish.nbytes);
    id->ours = param->qp_number;
    if (connect(id->fd, (struct sockaddr *)&id->there, sizeof id->there) ||
        send(id->fd, &wish, sizeof wish, MSG_NOSIGNAL) != sizeof wish)
        tell(id, KO_IB_CM_REJECTED, -errno);
    else
        watch(id->channel, EPOLL_CTL_ADD, id->fd, id);
    return 0;
}

int rdma_accept(struct ko_ib_cm_id *base, struct ko_ib_cm_param *param)
{
    struct id *id = (struct id *)base;
    const uint32_t ours = param->qp_number;

    if (outcome("rdma_accept") || double_join(ours, id->theirs, true))
        return -1;
    (void)!send(id->fd, &ours, sizeof ours, MSG_NOSIGNAL);
    tell(id, KO_IB_CM_ESTABLISHED, 0);
    return 0;
}

static void hear_wish(struct id *listener)
{
    struct id *id = new_id(listener->channel, accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC));
    struct event *event;
    struct wish wish;

    if (recv(id->fd, &wish, sizeof wish, MSG_WAITALL) != sizeof wish) {
        (void)rdma_destroy_id(&id->base);
        return;
    }
    id->theirs = wish.qp_number;
    event = tell(id, KO_IB_CM_REQUEST, 0);
    event->wish = wish;
    event->base.listener = &listener->base;
    event->base.param.data = event->wish.data;
    event->base.param.data_nbytes = (uint8_t)wish.nbytes;
}

static void hear_answer(struct id *id)
{
    watch(id->channel, EPOLL_CTL_DEL, id->fd, id);
    if (recv(id->fd, &id->theirs, sizeof id->theirs, MSG_WAITALL) == sizeof id->theirs &&
        !double_join(id->ours, id->theirs, false))
        tell(id, KO_IB_CM_ESTABLISHED, 0);
    else
        tell(id, KO_IB_CM_REJECTED, -ECONNREFUSED);
}

int rdma_get_cm_event(struct ko_ib_cm_channel *base, struct ko_ib_cm_event **event)
{
    struct channel *channel = (struct channel *)base;
    struct epoll_event ready;

    if (outcome("rdma_get_cm_event"))
        return -1;
    if (!channel->first && epoll_wait(channel->base.fd, &ready, 1, 0) == 1 && ready.data.ptr) {
        struct id *id = ready.data.ptr;

        if (id->is_listening)
            hear_wish(id);
        else
            hear_answer(id);
    }
    if (!channel->first) {
        errno = EAGAIN;
        return -1;
    }
    *event = &channel->first->base;
    channel->first = channel->first->next;
    if (!channel->first) {
        channel->end = &channel->first;
        (void)!read(channel->wake_fd, &(uint64_t){0}, sizeof(uint64_t));
    }
    return 0;
}

int rdma_ack_cm_event(struct ko_ib_cm_event *event)
{
    free(event);
    return 0;
}

const char *rdma_event_str(int event)
{
    return event == KO_IB_CM_REJECTED ? "RDMA_CM_EVENT_REJECTED" : "RDMA_CM_EVENT_OTHER";
}
