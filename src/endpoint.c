/* SPDX-License-Identifier: MIT
 *
 * Arrivals are wires that others have begun. Until its hello has come an arrival is a stranger:
 * there may be few of those, and the oldest makes room for a newcomer. A silent one may be a rank
 * that computes: it says its first byte, and goes on, only when it next calls the library. So it
 * may take its time, unless strangers become many. With its hello an arrival waits to be claimed by
 * the group that it names, which may not exist yet on this rank: there are as many as peers have
 * begun to use groups that this rank has not come to, which may be many.
 */
#include "endpoint.h"

#include "caches.h"
#include "config.h"
#include "interface.h"
#include "launcher.h"
#include "log.h"
#include "socket.h"
#include "status.h"
#include "store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    MOST_STRANGERS = 256,
    STRANGER_MS = 5000, /* of silence, where strangers have become many */
    MOST_ARRIVALS = 1 << 15,
    ACCEPTS_AT_ONCE = 64,
    REST_MS = 5000 /* of a store that has not answered */
};

struct ko_arrival {
    struct ko_wire *wire;
    ko_deadline deadline; /* to begin something */
    bool is_ready;        /* the hello has come; whoever claims the wire will poll it */
    char from[KO_SOCKET_NAME];
    struct ko_arrival *next;
};

void ko_endpoint_key(int rank, char *key, size_t nbytes)
{
    snprintf(key, nbytes, "rank/%d", rank);
}

/* The address on which message transports listen: KOLO_IFADDR, else the one that leads to the
 * store, else loopback. */
static void choose_site(kolo_store *store, struct ko_site *site)
{
    if (!ko_interface_wanted(site->listen_host, sizeof site->listen_host) &&
        ko_store_own_address(store, site->listen_host, sizeof site->listen_host))
        site->listen_host[0] = 0;
    if (!site->listen_host[0])
        snprintf(site->listen_host, sizeof site->listen_host, "127.0.0.1");
}

static int open_device(struct ko_endpoint *endpoint, const struct ko_transport *transport,
                       const struct ko_site *site)
{
    struct ko_device *device;
    int err = transport->open(site, &device);

    if (err == KOLO_E_UNSUPPORTED) {
        ko_log(KO_LOG_INFO, "transport %s cannot be used: %s", transport->name, kolo_last_error());
        if (!*endpoint->lacking)
            snprintf(endpoint->lacking, sizeof endpoint->lacking, "%s cannot be used: %.400s",
                     transport->name, kolo_last_error());
        return KOLO_OK;
    }
    if (err)
        return err;
    endpoint->devices[endpoint->own.naddresses] = device;
    ko_contact_add(&endpoint->own, device);
    if (device->listen_fd < 0)
        return KOLO_OK;
    return ko_poller_add(&endpoint->poller, device->listen_fd, KO_POLL_IN, device);
}

static int open_devices(struct ko_endpoint *endpoint)
{
    struct ko_site site = {.rank = endpoint->rank,
                           .has_tcp = ko_topology_allows(&ko_transport_tcp)};
    int err = KOLO_OK;

    choose_site(endpoint->store, &site);
    for (const struct ko_transport *const *row = ko_transports; *row && !err; row++)
        if (ko_topology_allows(*row))
            err = open_device(endpoint, *row, &site);
    return err;
}

bool ko_endpoint_reaches_gpus(const struct ko_endpoint *endpoint)
{
    bool reaches = false;

    for (int i = 0; i < KO_CONTACT_TRANSPORTS; i++)
        reaches |= endpoint->devices[i] && endpoint->devices[i]->transport->hold;
    return reaches;
}

static int read_idle_bytes(struct ko_endpoint *endpoint)
{
    int64_t nbytes;
    int err = ko_config_number(KO_CONFIG_IDLE_BYTES, &nbytes);

    endpoint->idle_bytes = err ? 0 : (size_t)nbytes;
    atomic_init(&endpoint->crowded_bytes, endpoint->idle_bytes);
    return err;
}

static int publish(struct ko_endpoint *endpoint)
{
    char key[32];

    ko_endpoint_key(endpoint->rank, key, sizeof key);
    return kolo_store_set(endpoint->store, key, (kolo_bytes){&endpoint->own, sizeof endpoint->own});
}

/* -1 if no launcher says it, as to threads that join over a store of theirs. */
static int read_local_size(void)
{
    struct ko_placement placement;

    return ko_placement_read(environ, &placement) ? -1 : placement.local_size;
}

int ko_endpoint_open(kolo_store *store, int rank, int size, struct ko_endpoint **endpoint_out)
{
    struct ko_endpoint *endpoint = ko_alloc(sizeof *endpoint, "an endpoint");
    int err;

    if (!endpoint) {
        kolo_store_close(store);
        return KOLO_E_NOMEM;
    }
    pthread_mutex_init(&endpoint->lock, NULL);
    pthread_mutex_init(&endpoint->groups_lock, NULL);
    ko_crew_open(&endpoint->crew);
    endpoint->users = 1;
    endpoint->rank = rank;
    endpoint->size = size;
    endpoint->store = store;
    endpoint->store_rank = -1;
    endpoint->local_size = read_local_size();
    endpoint->cache_bytes = ko_cache_bytes();
    endpoint->places_bytes = ko_cache_places_bytes();
    endpoint->trade_bytes = ko_cache_trade_bytes();
    endpoint->contacts = ko_alloc((size_t)size * sizeof(void *), "contacts");
    endpoint->crossings = ko_alloc((size_t)size * sizeof *endpoint->crossings, "crossings");
    endpoint->ends = ko_alloc((size_t)size * sizeof *endpoint->ends, "a list of ranks");
    err = endpoint->contacts && endpoint->crossings && endpoint->ends
              ? ko_poller_open_quiet(&endpoint->poller)
              : KOLO_E_NOMEM;
    ko_pool_open(&endpoint->pollers, endpoint->poller.epoll_fd, endpoint);
    if (!err)
        err = read_idle_bytes(endpoint);
    if (!err)
        err = ko_contact_begin(&endpoint->own);
    if (!err)
        err = open_devices(endpoint);
    if (!err)
        err = publish(endpoint);
    if (err) {
        ko_endpoint_release(endpoint);
        return err;
    }
    *endpoint_out = endpoint;
    return KOLO_OK;
}

void ko_endpoint_retain(struct ko_endpoint *endpoint)
{
    pthread_mutex_lock(&endpoint->lock);
    endpoint->users++;
    pthread_mutex_unlock(&endpoint->lock);
}

/* Takes the arrival out of the list and gives its wire. */
static struct ko_wire *take(struct ko_endpoint *endpoint, struct ko_arrival **link)
{
    struct ko_arrival *arrival = *link;
    struct ko_wire *wire = arrival->wire;

    *link = arrival->next;
    if (!arrival->is_ready) {
        ko_poller_remove(&endpoint->poller, wire->fd);
        endpoint->nstrangers--;
    }
    endpoint->narrivals--;
    free(arrival);
    return wire;
}

static void dismiss(struct ko_endpoint *endpoint, struct ko_arrival **link)
{
    struct ko_wire *wire = take(endpoint, link);

    wire->transport->hangup(wire);
}

/* Whoever tries to reach this rank hears that nobody listens. */
static void close_devices(struct ko_endpoint *endpoint)
{
    while (endpoint->arrivals)
        dismiss(endpoint, &endpoint->arrivals);
    for (int i = 0; i < KO_CONTACT_TRANSPORTS; i++)
        if (endpoint->devices[i])
            endpoint->devices[i]->transport->close(endpoint->devices[i]);
    memset(endpoint->devices, 0, sizeof endpoint->devices);
}

static void close_endpoint(struct ko_endpoint *endpoint)
{
    ko_crew_close(&endpoint->crew);
    close_devices(endpoint);
    ko_pool_close(&endpoint->pollers);
    ko_poller_close(&endpoint->poller);
    for (int i = 0; endpoint->contacts && i < endpoint->size; i++)
        free(endpoint->contacts[i]);
    free(endpoint->contacts);
    free(endpoint->crossings);
    free(endpoint->ends);
    kolo_store_close(endpoint->will);
    kolo_store_close(endpoint->store);
    pthread_mutex_destroy(&endpoint->groups_lock);
    pthread_mutex_destroy(&endpoint->lock);
    free(endpoint);
}

void ko_endpoint_release(struct ko_endpoint *endpoint)
{
    int users;

    if (!endpoint)
        return;
    pthread_mutex_lock(&endpoint->lock);
    users = --endpoint->users;
    pthread_mutex_unlock(&endpoint->lock);
    if (!users)
        close_endpoint(endpoint);
}

void ko_endpoint_leave_early(struct ko_endpoint *endpoint)
{
    bool is_last;

    pthread_mutex_lock(&endpoint->lock);
    is_last = endpoint->users == 1;
    pthread_mutex_unlock(&endpoint->lock);
    if (!is_last)
        return;
    ko_endpoint_say_closed(endpoint);
    close_devices(endpoint);
}

/* ---- contacts ---------------------------------------------------------------------------- */

int ko_endpoint_after_store(struct ko_endpoint *endpoint, int status)
{
    if (status == KOLO_E_PEER_LOST)
        atomic_store(&endpoint->store_is_lost, true);
    return status;
}

int ko_endpoint_after_asking(struct ko_endpoint *endpoint, int status)
{
    if (status == KOLO_E_TIMEOUT)
        atomic_store(&endpoint->store_rests_until_ns, ko_now_ns() + REST_MS * INT64_C(1000000));
    return ko_endpoint_after_store(endpoint, status);
}

bool ko_endpoint_may_ask(const struct ko_endpoint *endpoint)
{
    return !atomic_load(&endpoint->store_is_lost) &&
           ko_now_ns() >= atomic_load(&endpoint->store_rests_until_ns);
}

static int fetch(struct ko_endpoint *endpoint, int rank, struct ko_contact **contact)
{
    char key[32];
    void *value;
    size_t nbytes;
    int err;

    ko_endpoint_key(rank, key, sizeof key);
    err = ko_endpoint_after_store(endpoint, kolo_store_get(endpoint->store, key, &value, &nbytes));
    if (err)
        return err;
    err = ko_contact_check(value, nbytes, rank, &endpoint->own);
    if (err)
        kolo_free(value);
    else
        *contact = value;
    return err;
}

int ko_endpoint_contact(struct ko_endpoint *endpoint, int rank, const struct ko_contact **contact)
{
    int err = KOLO_OK;

    pthread_mutex_lock(&endpoint->lock);
    if (!endpoint->contacts[rank])
        err = fetch(endpoint, rank, &endpoint->contacts[rank]);
    if (!err)
        *contact = endpoint->contacts[rank];
    pthread_mutex_unlock(&endpoint->lock);
    return err;
}

const struct ko_contact *ko_endpoint_known(struct ko_endpoint *endpoint, int rank)
{
    const struct ko_contact *contact;

    pthread_mutex_lock(&endpoint->lock);
    contact = endpoint->contacts[rank];
    pthread_mutex_unlock(&endpoint->lock);
    return contact;
}

/* No transport is left; perhaps since one could not be opened. */
static int fail_unjoined(const struct ko_endpoint *endpoint, const struct ko_contact *peer)
{
    const struct ko_contact *own = &endpoint->own;

    return ko_fail(
        KOLO_E_UNSUPPORTED,
        "no transport joins %s (process %d) and %s (process %d): KOLO_TRANSPORT is \"%s\"%s%.240s",
        own->host, (int)own->pid, peer->host, (int)peer->pid, ko_config_text(KO_CONFIG_TRANSPORT),
        *endpoint->lacking ? "; " : "", endpoint->lacking);
}

bool ko_endpoint_is_gone(struct ko_endpoint *endpoint, int rank)
{
    const struct ko_contact *contact = ko_endpoint_known(endpoint, rank);

    return contact && ko_contact_is_gone(&endpoint->own, contact);
}

int ko_endpoint_connect(struct ko_endpoint *endpoint, int rank, const struct ko_hello *hello,
                        struct ko_wire **wire)
{
    const struct ko_contact *peer;
    const struct ko_transport *transport;
    const char *why;
    uint32_t index;
    int err = ko_endpoint_contact(endpoint, rank, &peer);

    if (err)
        return err;
    if (!ko_topology_find(&endpoint->own, peer, rank == endpoint->rank, &index, &why))
        return fail_unjoined(endpoint, peer);
    transport = ko_transport_find(peer->addresses[index].transport);
    ko_log(KO_LOG_INFO, "rank %d -> rank %d on %s:%d over %s: %s", (int)hello->from, (int)hello->to,
           peer->host, (int)peer->pid, transport->name, why);
    for (int i = 0; i < KO_CONTACT_TRANSPORTS; i++)
        if (endpoint->devices[i] && endpoint->devices[i]->transport == transport)
            return transport->connect(endpoint->devices[i], peer->addresses[index].bytes,
                                      peer->addresses[index].nbytes, hello, wire);
    return ko_fail(KOLO_E_UNSUPPORTED, "rank %d is to be reached over %s, which this rank lacks",
                   rank, transport->name);
}

/* ---- arrivals ---------------------------------------------------------------------------- */

static void add_arrival(struct ko_endpoint *endpoint, struct ko_wire *wire)
{
    struct ko_arrival *arrival = ko_alloc(sizeof *arrival, "an arrival");

    if (!arrival || ko_poller_add(&endpoint->poller, wire->fd, KO_POLL_IN, arrival)) {
        free(arrival);
        wire->transport->hangup(wire);
        return;
    }
    arrival->wire = wire;
    ko_socket_peer_name(wire->fd, arrival->from); /* nobody can say when it has been reset */
    arrival->deadline = ko_deadline_in(STRANGER_MS);
    arrival->next = endpoint->arrivals;
    endpoint->arrivals = arrival;
    endpoint->narrivals++;
    endpoint->nstrangers++;
}

/* The stranger who came first; rather one that has not begun anything. NULL if there is none. */
static struct ko_arrival **oldest_stranger(struct ko_endpoint *endpoint)
{
    struct ko_arrival **oldest = NULL;

    for (struct ko_arrival **link = &endpoint->arrivals; *link; link = &(*link)->next)
        if (!(*link)->is_ready &&
            (!oldest || !(*link)->wire->has_begun || (*oldest)->wire->has_begun))
            oldest = link;
    return oldest;
}

/* False if there are more than anybody honest begins. */
static bool make_room(struct ko_endpoint *endpoint)
{
    struct ko_arrival **oldest;

    if (endpoint->narrivals >= MOST_ARRIVALS)
        return false;
    if (endpoint->nstrangers < MOST_STRANGERS + endpoint->size)
        return true;
    oldest = oldest_stranger(endpoint);
    if (oldest)
        dismiss(endpoint, oldest);
    return oldest != NULL;
}

static void accept_all(struct ko_endpoint *endpoint, struct ko_device *device)
{
    struct ko_wire *wire;

    for (int i = 0; i < ACCEPTS_AT_ONCE && make_room(endpoint); i++) {
        int err = device->transport->accept(device, &wire);

        if (err == KO_AGAIN)
            return;
        if (err)
            ko_log_seldom(&endpoint->turned_away, "a connection over %s from %s was closed: %s",
                          device->transport->name, "somebody", kolo_last_error());
        else
            add_arrival(endpoint, wire);
    }
}

/* More than the ranks, and half of what there is room for beside them. */
static bool has_many_strangers(const struct ko_endpoint *endpoint)
{
    return endpoint->nstrangers > MOST_STRANGERS / 2 + endpoint->size;
}

static int drive_arrival(struct ko_endpoint *endpoint, struct ko_arrival *arrival)
{
    struct ko_wire *wire = arrival->wire;
    int err = wire->transport->drive(wire);

    if (!err && !wire->has_hello && !wire->has_begun && has_many_strangers(endpoint) &&
        ko_deadline_passed(&arrival->deadline))
        err = ko_fail(KOLO_E_PROTOCOL, "no hello came within %d ms", STRANGER_MS);
    if (!err && wire->has_hello) {
        ko_poller_remove(&endpoint->poller, wire->fd);
        arrival->is_ready = true;
        endpoint->nstrangers--;
        ko_pool_wake_all(&endpoint->pollers);
    }
    return err;
}

void ko_endpoint_expect_crossing(struct ko_endpoint *endpoint, int rank)
{
    pthread_mutex_lock(&endpoint->lock);
    endpoint->crossings[rank]++;
    pthread_mutex_unlock(&endpoint->lock);
}

/* Whether this is the end of what a rank gives up for a wire of ours: whatever else may be wrong
 * between the two shows there. Who says that he is the rank has not proven it, so that each wire of
 * ours excuses one such end. */
static bool has_crossed(struct ko_endpoint *endpoint, const struct ko_wire *wire, int status)
{
    if (status != KOLO_E_PEER_LOST || !wire->has_begun || wire->caller < 0 ||
        wire->caller >= endpoint->size || !endpoint->crossings[wire->caller])
        return false;
    endpoint->crossings[wire->caller]--;
    return true;
}

static void log_end(struct ko_endpoint *endpoint, const struct ko_arrival *arrival, int status)
{
    const char *transport = arrival->wire->transport->name;

    if (has_crossed(endpoint, arrival->wire, status))
        ko_log(KO_LOG_DEBUG, "a connection over %s from %s was given up for one to rank %d",
               transport, arrival->from, (int)arrival->wire->caller);
    else
        ko_log_seldom(&endpoint->turned_away, "a connection over %s from %s was closed: %s",
                      transport, arrival->from, kolo_last_error());
}

static void drive_arrivals(struct ko_endpoint *endpoint)
{
    struct ko_arrival **link = &endpoint->arrivals;

    while (*link) {
        int err = (*link)->is_ready ? KOLO_OK : drive_arrival(endpoint, *link);

        if (err) {
            log_end(endpoint, *link, err);
            dismiss(endpoint, link);
            continue;
        }
        link = &(*link)->next;
    }
}

/* What others do wrong is no failed call of this thread's. */
void ko_endpoint_accept(struct ko_endpoint *endpoint)
{
    char text[KO_ERROR_TEXT];

    ko_error_keep(text);
    pthread_mutex_lock(&endpoint->lock);
    for (int i = 0; i < KO_CONTACT_TRANSPORTS; i++)
        if (endpoint->devices[i] && endpoint->devices[i]->listen_fd >= 0)
            accept_all(endpoint, endpoint->devices[i]);
    drive_arrivals(endpoint);
    pthread_mutex_unlock(&endpoint->lock);
    (void)ko_fail_again(KOLO_OK, text);
}

static bool is_for(const struct ko_wire *wire, uint64_t group, uint32_t channel)
{
    return wire->has_hello && wire->hello.group == group && wire->hello.channel == channel;
}

int ko_endpoint_claim(struct ko_endpoint *endpoint, uint64_t group, int from, uint32_t channel,
                      struct ko_wire **wire)
{
    struct ko_arrival **link;
    int err = KO_AGAIN;

    pthread_mutex_lock(&endpoint->lock);
    for (link = &endpoint->arrivals; *link; link = &(*link)->next)
        if (is_for((*link)->wire, group, channel) && (*link)->wire->hello.from == from) {
            *wire = take(endpoint, link);
            err = KOLO_OK;
            break;
        }
    pthread_mutex_unlock(&endpoint->lock);
    return err;
}

int ko_endpoint_unclaimed(struct ko_endpoint *endpoint, uint64_t group, uint32_t channel,
                          struct ko_hello *hellos, int cap)
{
    int n = 0;

    pthread_mutex_lock(&endpoint->lock);
    for (struct ko_arrival *arrival = endpoint->arrivals; arrival && n < cap;
         arrival = arrival->next)
        if (is_for(arrival->wire, group, channel))
            hellos[n++] = arrival->wire->hello;
    pthread_mutex_unlock(&endpoint->lock);
    return n;
}

bool ko_endpoint_has_unclaimed(struct ko_endpoint *endpoint, uint32_t channel)
{
    bool has = false;

    pthread_mutex_lock(&endpoint->lock);
    for (const struct ko_arrival *arrival = endpoint->arrivals; arrival && !has;
         arrival = arrival->next)
        has = arrival->is_ready && arrival->wire->hello.channel == channel;
    pthread_mutex_unlock(&endpoint->lock);
    return has;
}
