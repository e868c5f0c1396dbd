/* SPDX-License-Identifier: MIT
 *
 * A device of rdma: the adapters that are chosen, with a protection domain each, and one of tcp's,
 * which listens and greets for them.
 */
#include "rdma.h"

#include "config.h"
#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int read_variables(struct ko_rdma_device *device)
{
    const char *gpus = "0";
    int64_t is_sealed;
    int err = ko_config_number(KO_CONFIG_ENCRYPT, &is_sealed);

    if (!err)
        err = ko_config_number(KO_CONFIG_IB_PKEY, &device->pkey);
    if (!err)
        err = ko_config_number(KO_CONFIG_IB_TC, &device->traffic_class);
    if (!err)
        err = ko_config_number(KO_CONFIG_IB_SL, &device->service_level);
    if (!err)
        err = ko_config_number(KO_CONFIG_IB_TIMEOUT, &device->timeout);
    if (!err)
        err = ko_config_number(KO_CONFIG_IB_RETRY, &device->retries);
    if (!err)
        err = ko_config_number(KO_CONFIG_IB_QPS_PER_CONNECTION, &device->qps);
    if (!err)
        err = ko_config_word(KO_CONFIG_GPUDIRECT, &gpus);
    device->memory.takes_gpus = !strcmp(gpus, "auto");
    if (!err && is_sealed)
        err = ko_fail(KOLO_E_UNSUPPORTED, "KOLO_ENCRYPT is 1, and rdma does not encrypt");
    return err;
}

/* What is there and cannot be used is worth a word, unlike what is not there. */
static int warned(int err)
{
    ko_log(KO_LOG_WARN, "RDMA is not used: %s", kolo_last_error());
    return err;
}

/* So is a wish that cannot be had. */
static int nothing_chosen(const struct ko_ib_ports *ports)
{
    int err;

    if (*ports->unopened)
        return warned(ko_fail(KOLO_E_UNSUPPORTED, "%s", ports->unopened));
    if (!ports->count)
        err = ko_fail(KOLO_E_UNSUPPORTED, "this machine has no RDMA adapter");
    else
        err = ko_fail(KOLO_E_UNSUPPORTED, "no RDMA port can be used (%s port %d: %s)",
                      ports->list[0].device, ports->list[0].number, ports->list[0].why);
    return *ko_config_text(KO_CONFIG_IB_HCA) ? warned(err) : err;
}

/* Nor is a wish for queue pairs that iWARP does not have. */
static int open_iwarp(struct ko_rdma_device *device, const char *host)
{
    int err = ko_rdma_cm_open(device, host);

    if (!err && device->qps > 1)
        ko_log(KO_LOG_WARN,
               "KOLO_IB_QPS_PER_CONNECTION=%d has no effect over iWARP, where two ranks have one "
               "queue pair",
               (int)device->qps);
    return err;
}

static int choose_ports(struct ko_rdma_device *device, const char *host)
{
    struct ko_ib_ports *ports = ko_alloc(sizeof *ports, "a list of ports");
    int err = ports ? ko_ib_ports_read(device->ib, host, ports) : KOLO_E_NOMEM;

    if (!err && ports->nchosen && *ports->unknown)
        ko_log(KO_LOG_WARN, "KOLO_IB_HCA names %s, and there is no RDMA adapter of that name",
               ports->unknown);
    if (!err && !ports->nchosen)
        err = nothing_chosen(ports);
    for (int i = 0; !err && i < ports->nchosen; i++) {
        device->adapters[i].port = ports->list[ports->chosen[i]];
        atomic_store(&device->adapters[i].last_event, -1);
        pthread_mutex_init(&device->adapters[i].lock, NULL);
        device->nadapters++;
    }
    free(ports);
    return err;
}

static int open_adapter(struct ko_rdma_device *device, struct ko_rdma_adapter *adapter)
{
    const struct ko_ib_port *port = &adapter->port;
    int err = ko_ib_device_open(device->ib, port->device, &adapter->context);

    if (err)
        return warned(err);
    adapter->pd = device->ib->alloc_pd(adapter->context);
    if (!adapter->pd || fcntl(adapter->context->async_fd, F_SETFL, O_NONBLOCK))
        return warned(ko_fail(KOLO_E_UNSUPPORTED,
                              "the RDMA adapter %s gives no protection domain: %s", port->device,
                              strerror(errno)));
    ko_log(KO_LOG_INFO, "rdma goes by %s port %d: %s", port->device, port->number, port->why);
    return KOLO_OK;
}

void ko_rdma_note_left(const struct ko_rdma_adapter *adapter, const char *what, int error)
{
    if (error && atomic_load(&adapter->last_event) != KO_IB_EVENT_DEVICE_FATAL)
        ko_log(KO_LOG_WARN, "%s of the RDMA adapter %s cannot be given back: %s", what,
               adapter->port.device, strerror(error < 0 ? errno : error));
}

static void close_adapter(struct ko_rdma_device *device, struct ko_rdma_adapter *adapter)
{
    if (adapter->pd)
        ko_rdma_note_left(adapter, "a protection domain", device->ib->free_pd(adapter->pd));
    if (adapter->context)
        ko_rdma_note_left(adapter, "all", device->ib->close_device(adapter->context));
}

void ko_rdma_close(struct ko_device *base)
{
    struct ko_rdma_device *device = (struct ko_rdma_device *)base;
    const bool is_ours = device && device->pid == (int)getpid();

    if (!device)
        return;
    if (is_ours)
        ko_rdma_memory_close(device);
    for (int i = 0; i < device->nadapters; i++) {
        if (is_ours)
            close_adapter(device, &device->adapters[i]);
        pthread_mutex_destroy(&device->adapters[i].lock);
    }
    ko_transport_tcp.close(device->tcp);
    pthread_mutex_destroy(&device->lock);
    free(device);
}

int ko_rdma_open(const struct ko_site *site, struct ko_device **device_out)
{
    struct ko_rdma_device *device = ko_alloc(sizeof *device, "a device");
    int err;

    if (!device)
        return KOLO_E_NOMEM;
    device->base = (struct ko_device){&ko_transport_rdma, -1};
    device->pid = (int)getpid();
    device->has_tcp = site->has_tcp;
    pthread_mutex_init(&device->lock, NULL);
    ko_rdma_memory_open(device);
    err = read_variables(device);
    if (!err)
        err = ko_ib_open(&device->ib);
    if (!err)
        err = choose_ports(device, site->listen_host);
    for (int i = 0; i < device->nadapters && !err; i++)
        err = open_adapter(device, &device->adapters[i]);
    if (!err && device->adapters[0].port.transport == KO_IB_TRANSPORT_IWARP)
        err = open_iwarp(device, site->listen_host);
    if (!err)
        err = ko_transport_tcp.open(site, &device->tcp);
    if (err) {
        ko_rdma_close(&device->base);
        return err;
    }
    device->base.listen_fd = device->tcp->listen_fd;
    *device_out = &device->base;
    return KOLO_OK;
}

/* Another wire's rail, or a queue of others, perhaps, which lives until the event is acknowledged:
 * destroying it waits for that. */
static void mark_object(const struct ko_ib_async *event)
{
    const int mark = event->event_type + 1;

    if (event->event_type == KO_IB_EVENT_CQ_ERR) {
        struct ko_rdma_cq *cq = ((const struct ko_ib_cq *)event->element.object)->cq_context;

        atomic_store(&cq->fatal_event, mark);
    } else if (event->event_type == KO_IB_EVENT_QP_FATAL) {
        struct ko_rdma_rail *rail = ((const struct ko_ib_qp *)event->element.object)->qp_context;

        atomic_store(&rail->fatal_event, mark);
    }
}

/* What an event is of, and what it is to wires. */
enum { OF_PORT = 1, ROUTINE = 2, EXPLAINS = 4 };

static int traits_of(int type)
{
    static const uint8_t traits[] = {[KO_IB_EVENT_COMM_EST] = ROUTINE,
                                     [KO_IB_EVENT_DEVICE_FATAL] = EXPLAINS,
                                     [KO_IB_EVENT_PORT_ACTIVE] = OF_PORT,
                                     [KO_IB_EVENT_PORT_ERR] = OF_PORT | EXPLAINS,
                                     [KO_IB_EVENT_LID_CHANGE] = OF_PORT | ROUTINE,
                                     [KO_IB_EVENT_PKEY_CHANGE] = OF_PORT | ROUTINE,
                                     [KO_IB_EVENT_SM_CHANGE] = OF_PORT | ROUTINE,
                                     [KO_IB_EVENT_CLIENT_REREGISTER] = OF_PORT | ROUTINE,
                                     [KO_IB_EVENT_GID_CHANGE] = OF_PORT | EXPLAINS};

    return type >= 0 && type < (int)sizeof traits ? traits[type] : 0;
}

/* An adapter that has failed has done so for good. */
static void take_event(struct ko_rdma_device *device, struct ko_rdma_adapter *adapter, int type,
                       bool is_ours)
{
    const int traits = traits_of(type);

    ko_log(!is_ours || traits & ROUTINE ? KO_LOG_INFO : KO_LOG_WARN,
           "the RDMA adapter %s tells of an event: %s%s", adapter->port.device,
           device->ib->event_name(type), is_ours ? "" : ", of a port that is not used");
    if (!is_ours || atomic_load(&adapter->last_event) == KO_IB_EVENT_DEVICE_FATAL)
        return;
    if (type == KO_IB_EVENT_PORT_ACTIVE)
        atomic_store(&adapter->last_event, -1);
    else if (traits & EXPLAINS)
        atomic_store(&adapter->last_event, type);
}

void ko_rdma_read_events(struct ko_rdma_device *device, struct ko_rdma_adapter *adapter)
{
    struct ko_ib_async event;

    pthread_mutex_lock(&adapter->lock);
    while (!device->ib->get_async(adapter->context, &event)) {
        const int type = event.event_type;
        const bool is_ours =
            !(traits_of(type) & OF_PORT) || event.element.port_num == adapter->port.number;

        mark_object(&event);
        device->ib->ack_async(&event);
        take_event(device, adapter, type, is_ours);
    }
    pthread_mutex_unlock(&adapter->lock);
}
