/* SPDX-License-Identifier: MIT
 *
 * endpoint.h: where one rank can be reached: its open devices, the others' contacts, and the wires
 * that others have begun towards it. Shared by the world group and all groups made from it, with a
 * count of its users. Any thread.
 */
#ifndef KO_ENDPOINT_H
#define KO_ENDPOINT_H

#include "clock.h"
#include "crew.h"
#include "kolo.h"
#include "log_seldom.h"
#include "poller_pool.h"
#include "status.h"
#include "topology.h"

#include <pthread.h>
#include <stdatomic.h>

struct ko_arrival;

struct ko_endpoint {
    pthread_mutex_t lock;
    int users;
    int rank, size;      /* in the world */
    kolo_store *store;   /* a handle of its own, closed with the endpoint */
    int store_rank;      /* the world rank that serves the store; -1: none of the ranks */
    bool has_wills;      /* the store knows which ranks' endpoints have ended */
    kolo_store *will;    /* by whose connection's end it knows of this one's; NULL: by none */
    unsigned char *ends; /* by world rank, what it has told of them; under the lock */
    _Atomic int64_t ends_heard_ns;        /* when that was */
    atomic_bool store_is_lost;            /* its connection broke: it is not tried again */
    _Atomic int64_t store_rests_until_ns; /* it has not answered what need not be asked */
    atomic_bool has_left_word;            /* there, why this rank has failed in a group */
    struct ko_contact own;
    int local_size;         /* ranks of this host, as a launcher counts them; -1: not said */
    atomic_bool is_crowded; /* they are more than the cores on which they may run */
    size_t cache_bytes;     /* ko_cache_bytes: of more than this little is found there again */
    size_t places_bytes;    /* ko_cache_places_bytes */
    size_t trade_bytes;     /* ko_cache_trade_bytes */
    struct ko_contact **contacts; /* by world rank, fetched at first use */
    struct ko_device *devices[KO_CONTACT_TRANSPORTS];
    char lacking[KO_ERROR_TEXT];   /* the first transport that cannot be used, and why; or "" */
    struct ko_poller poller;       /* listeners and unfinished arrivals */
    struct ko_poller_pool pollers; /* of channels; all woken when an arrival can be claimed */
    struct ko_crew crew;           /* threads for the groups' work in the background */
    pthread_mutex_t groups_lock;   /* taken before any lock of a group's */
    kolo_group *groups;            /* over this endpoint, by their `next` */
    size_t idle_bytes;             /* KOLO_IDLE_BYTES */
    atomic_size_t crowded_bytes;   /* of more than that idle groups give back (group_idle.h) */
    struct ko_arrival *arrivals;
    int narrivals, nstrangers;    /* strangers: their hello has not come yet */
    unsigned *crossings;          /* by world rank: arrivals that it may yet give up */
    struct ko_seldom turned_away; /* warnings of strangers */
};

/* Opens every allowed device, fills `own`, publishes it in the store. Takes store over. */
int ko_endpoint_open(kolo_store *store, int rank, int size, struct ko_endpoint **endpoint);
void ko_endpoint_retain(struct ko_endpoint *endpoint);
/* The last user closes. NULL is allowed. */
void ko_endpoint_release(struct ko_endpoint *endpoint);

/* To be called once where rank 0 serves the store: it is to know when this endpoint has ended,
 * however that comes about, by the end of this handle's connection, which then is the endpoint's
 * too. Nobody asks there what need not be answered: a question that is not in time ends the
 * connection. */
int ko_endpoint_leave_will(struct ko_endpoint *endpoint, kolo_store *store);

/* The same at once, for who stays a while. */
void ko_endpoint_say_closed(struct ko_endpoint *endpoint);

/* That this rank leaves the world, where no will says later that it has ended. */
void ko_endpoint_say_left(struct ko_endpoint *endpoint);

/* For the rank that serves the store, which stays for the others: unless other groups use the
 * endpoint, it can be reached no longer, and the store says so. */
void ko_endpoint_leave_early(struct ko_endpoint *endpoint);

/* Passes on the status of a call on the store, and remembers when the store has gone. */
int ko_endpoint_after_store(struct ko_endpoint *endpoint, int status);

/* The same of a question that is only asked to know more, such as why a peer is silent, and that
 * waits for nobody: a store that has not answered in time is not to keep the caller again and
 * again. Whether it may be asked now. */
int ko_endpoint_after_asking(struct ko_endpoint *endpoint, int status);
bool ko_endpoint_may_ask(const struct ko_endpoint *endpoint);

/* Whether it has adapters that may read and write GPU memory by themselves (transport.h). */
bool ko_endpoint_reaches_gpus(const struct ko_endpoint *endpoint);

/* The store key of a rank's contact. */
void ko_endpoint_key(int rank, char *key, size_t nbytes);

/* A rank's contact; waits for the store if it is asked for the first time. */
int ko_endpoint_contact(struct ko_endpoint *endpoint, int rank, const struct ko_contact **contact);

/* The contact if it has been fetched, else NULL. */
const struct ko_contact *ko_endpoint_known(struct ko_endpoint *endpoint, int rank);

/* Whether the process of a rank whose contact has been fetched has ended, as far as this machine
 * can tell. */
bool ko_endpoint_is_gone(struct ko_endpoint *endpoint, int rank);
/* For who may wait for the store: whether a rank, wherever it is, has ended or freed all its
 * groups, as far as the store can tell. */
bool ko_endpoint_has_closed(struct ko_endpoint *endpoint, int rank);
/* The same of one that has ended without having left the world: killed, most likely. The rank that
 * serves the store is none: without it nobody tells. Where none of them does, only one of this
 * machine is known to have. */
bool ko_endpoint_is_lost(struct ko_endpoint *endpoint, int rank);
/* The store key by which a rank says that it leaves the world. */
void ko_endpoint_left_key(int rank, char *key, size_t nbytes);
/* Gone or closed, of any rank, whose contact is fetched if need be. */
bool ko_endpoint_has_ended(struct ko_endpoint *endpoint, int rank);

/* Begins a wire to a world rank over the transport that topology chooses. */
int ko_endpoint_connect(struct ko_endpoint *endpoint, int rank, const struct ko_hello *hello,
                        struct ko_wire **wire);

/* To be called before that where the rank may be beginning a wire to this one, which it then gives
 * up for ours: its end is no stranger's. */
void ko_endpoint_expect_crossing(struct ko_endpoint *endpoint, int rank);

/* Takes in what others have begun, without waiting. */
void ko_endpoint_accept(struct ko_endpoint *endpoint);

/* The wire that rank `from` of a group has begun for a channel, to be answered; KO_AGAIN if there
 * is none yet. */
int ko_endpoint_claim(struct ko_endpoint *endpoint, uint64_t group, int from, uint32_t channel,
                      struct ko_wire **wire);

/* Copies the hellos of up to cap unclaimed arrivals for a group's channel; returns how many. */
int ko_endpoint_unclaimed(struct ko_endpoint *endpoint, uint64_t group, uint32_t channel,
                          struct ko_hello *hellos, int cap);

/* Whether there are unclaimed arrivals for that channel of any group. */
bool ko_endpoint_has_unclaimed(struct ko_endpoint *endpoint, uint32_t channel);

#endif
