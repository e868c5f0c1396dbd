/* SPDX-License-Identifier: MIT
 *
 * rdma.h: what the files of the rdma transport have of each other; rdma_device.c opens adapters,
 * rdma.c begins and ends wires, rdma_queue.c makes their queue pairs, rdma_card.c tells of them and
 * joins them, rdma_cm.c joins those of iWARP, rdma_work.c posts requests and knows what completes,
 * rdma_cq.c has the queues in which that is told, rdma_memory.c registers memory, rdma_out.c and
 * rdma_in.c move messages, rdma_plain.c does so for wires without queue pairs. Nobody else includes
 * this.
 *
 * A wire has a connection over tcp beside its queue pairs: there the two ends prove who they are,
 * and greet each other; with the hellos go the cards by which the queue pairs are joined.
 * Afterwards it tells by its end that the peer has gone, which a reliable connection alone does
 * not. Who has answered has nothing more to do until he uses the wire: what the other end sends
 * arrives.
 *
 * Messages travel as SENDs into slots that the receiver has posted: several short ones in one slot,
 * a longer one in several. Of the slots for messages the sender has a credit each, given back when
 * they are posted again; a few more are there for what the two ends tell each other without.
 * A message of KO_RDMA_DIRECT bytes or more is only announced (ASK); the receiver registers the
 * place where it is to land, and writes where that is into the sender's memory: each end has a few
 * lines there, which are used in turn, and which alone the other may write. The sender writes the
 * message there, without a copy at either end. Both writes say by their immediate that they have
 * come, or by a SEND behind them (CLEAR, DONE) where writes have none. A reliable connection keeps
 * their order, and a receive that completes after a write finds it in memory (InfiniBand
 * specification, volume 1, 9.5 "Transaction ordering"; iWARP: RFC 5040, 5.5 "Ordering and
 * Completions", of a Send behind an RDMA Write): nobody looks at a line before.
 * Memory that cannot be registered at either end goes through the slots. A GPU's memory has been
 * registered before, or does not come here: what lies there is always asked for, and if the
 * receiver has no place for it, the sender's adapter gathers it behind the heads of slots.
 *
 * A wire for which an end has no room (locked memory, queue pairs) stays one of tcp's, if
 * KOLO_TRANSPORT allows that at both: the card of the end that finds it says so, and the answer's
 * card decides.
 *
 * A wire may have several queue pairs, on one adapter or on several: its rails. All messages go by
 * the first, in their order; what is written is cut into a stripe for each. The specification gives
 * no order between queue pairs, so each rail tells of its own stripe behind it, and the message has
 * come when all have told, whatever else has come meanwhile.
 */
#ifndef KO_RDMA_H
#define KO_RDMA_H

#include "ib_ports.h"
#include "poller.h"
#include "rdma_cq.h"
#include "rdma_memory.h"
#include "status.h"
#include "transport.h"

enum {
    KO_RDMA_RAILS = 8,
    KO_RDMA_SLOT = 8192,  /* bytes of a slot */
    KO_RDMA_CREDITS = 16, /* slots for messages */
    /* Told at a time without a credit, at most: the first write's immediate and READY, a line's or
     * CLEAR, a message's or DONE, CREDIT (each gives half of all, so two are on their way), BYE. */
    KO_RDMA_RESERVE = 8,
    KO_RDMA_SLOTS = KO_RDMA_CREDITS + KO_RDMA_RESERVE, /* posted, and as many to send from */
    /* Receives of other rails, which have no slots: the first write's, and two messages' stripes.
     */
    KO_RDMA_EARS = 4,
    KO_RDMA_LINES = 8,
    KO_RDMA_PIECES = 3,     /* of a slot: its head, what a GPU has of a body, its padding */
    KO_RDMA_REPOST = 4,     /* receives posted at a time */
    KO_RDMA_LIST = 4,       /* requests to send, likewise, at most */
    KO_RDMA_FLYING = 8,     /* messages whose writes have not all completed */
    KO_RDMA_INLINE = 128,   /* bytes asked for */
    KO_RDMA_DIRECT = 32768, /* bytes of a message that is written */
    KO_RDMA_STRIPE = 16384, /* bytes of one rail's stripe, at least, but for a message's last */
    KO_RDMA_HELD = 32768    /* bytes of posts that wait for others to go with them, at most */
};

/* ---- what travels ------------------------------------------------------------------------ */

enum { KO_RDMA_IWARP = 100, KO_RDMA_TCP };

/* Of a queue pair. */
struct ko_rdma_end {
    uint32_t qp_number, psn;
    uint16_t lid;
    uint8_t gid_index, gid_type; /* for texts */
    uint8_t port, mtu;
    uint16_t unused;
    ko_ib_gid gid; /* of iWARP the address, at which the end that begins listens for the other */
    char device[KO_IB_NAME];
};

/* Of a wire's, in a hello. An answer has as many rails as the hello that it answers. */
struct ko_rdma_card {
    uint32_t magic, version;
    uint32_t link_layer; /* KO_IB_LINK_, KO_RDMA_IWARP, or KO_RDMA_TCP: there are no rails */
    uint32_t slot_bytes;
    uint16_t credits, nrails;
    uint16_t cm_port; /* iWARP: there */
    uint16_t unused;
    uint64_t lines_at; /* the lines, that the other end may write */
    uint32_t lines_key, unused_too;
    struct ko_rdma_end rails[KO_RDMA_RAILS];
};

_Static_assert(sizeof(struct ko_rdma_card) <= KO_CARD_BYTES, "a card fits into a hello");

enum ko_rdma_kind {
    KO_RDMA_FIRST = 1, /* a message's frame and the beginning of its body */
    KO_RDMA_MORE,      /* the body goes on */
    KO_RDMA_ASK,       /* the frame alone: where is the body to be written? */
    KO_RDMA_CLEAR,     /* a line has been written */
    KO_RDMA_DONE,      /* the first rail has written its stripe */
    KO_RDMA_CREDIT,    /* nothing but credits */
    KO_RDMA_READY,     /* nothing: who hears it knows that he is heard */
    KO_RDMA_BYE        /* nothing will follow */
};

/* A slot is full of records: each a head and, at the next multiple of 8 bytes, perhaps another. */
struct ko_rdma_head {
    uint16_t kind;
    uint16_t credits; /* in a slot's first: that the receiver of this has besides those it had */
    uint32_t nbytes;  /* of a body, behind this */
    struct ko_frame frame;
};

/* Where a body is to be written. */
struct ko_rdma_line {
    uint64_t at;                  /* 0: nowhere, it is to come in slots */
    uint32_t keys[KO_RDMA_RAILS]; /* by rail */
    uint32_t nbytes;              /* of the body */
    uint32_t number;  /* of the message among those announced, from 1; the line's is the rest */
    uint32_t credits; /* as in a head */
    uint32_t unused[3];
};

_Static_assert(sizeof(struct ko_rdma_line) == 64, "a line of the cache");

enum { KO_RDMA_PART = KO_RDMA_SLOT - sizeof(struct ko_rdma_head) }; /* of a body in one slot */

static inline size_t ko_rdma_record(size_t nbytes)
{
    return sizeof(struct ko_rdma_head) + (nbytes + 7) / 8 * 8;
}

/* What is registered for a wire. */
enum {
    KO_RDMA_WIRE_BYTES =
        2 * (KO_RDMA_SLOTS * KO_RDMA_SLOT + KO_RDMA_LINES * (int)sizeof(struct ko_rdma_line))
};

/* Bytes of each rail's stripe of a body of nbytes, whole cache lines of 128 bytes; the last that
 * has any has what is left. */
static inline size_t ko_rdma_stripe(size_t nbytes, int nrails)
{
    const size_t stripe = (nbytes + (size_t)nrails - 1) / (size_t)nrails;

    return stripe > KO_RDMA_STRIPE ? (stripe + 127) / 128 * 128 : KO_RDMA_STRIPE;
}

/* ---- devices ----------------------------------------------------------------------------- */

struct ko_rdma_adapter {
    struct ko_ib_context *context;
    struct ko_ib_pd *pd;
    struct ko_ib_port port;
    pthread_mutex_t lock;  /* of reading its events */
    atomic_int last_event; /* of those that explain or cause a failure; -1: none */
};

struct ko_rdma_device {
    struct ko_device base;
    struct ko_device *tcp;
    const struct ko_ib *ib;
    const struct ko_ib_cm *cm; /* iWARP; else NULL */
    ko_ib_gid host;            /* iWARP: the address of this end */
    int nadapters;
    struct ko_rdma_adapter adapters[KO_IB_CHOSEN_CAP]; /* the nearest first */
    int64_t qps;                                       /* rails on each, of wires that begin here */
    int64_t pkey, traffic_class, service_level, timeout, retries;
    struct ko_rdma_memory memory;
    pthread_mutex_t lock; /* of: */
    struct ko_rdma_cq *cqs;
    bool has_tcp;           /* see struct ko_site */
    atomic_bool has_warned; /* that a wire has no room */
    int pid;                /* a child of fork has no part in what its parent has opened */
};

int ko_rdma_open(const struct ko_site *site, struct ko_device **device);
void ko_rdma_close(struct ko_device *device);
/* Warns of something of the adapter's, as "a queue pair", that could not be given back: error is
 * what the library has returned, 0 if it could. An adapter that is gone has taken all along. */
void ko_rdma_note_left(const struct ko_rdma_adapter *adapter, const char *what, int error);
/* Takes in what the adapter tells; some of it explains a failure that is to come. */
void ko_rdma_read_events(struct ko_rdma_device *device, struct ko_rdma_adapter *adapter);

#include "rdma_wire.h"

#endif
