/* SPDX-License-Identifier: MIT
 *
 * transport.h: the contract between kolo and a transport. To add a transport, write one .c file
 * that fills a struct ko_transport and add its row to registry.c; nothing else changes. self.c is
 * the shortest example.
 *
 * A transport sees ranks, addresses and bytes; never a group or a collective, and it never calls
 * up. It moves messages (a frame of 32 bytes and a body) between two ranks over a wire, in order,
 * each exactly once. A transport of kind KO_WINDOW gives in addition, once a wire is open, memory
 * that both ends address; slices then travel there and the wire carries only bells and other
 * control.
 *
 * A wire is made by connect on the rank that begins and by accept + answer on the other. The two
 * exchange hellos; both then say KO_WIRE_OPEN. Before its hello each end of a wire that others
 * could reach too has to show that it belongs to the job: over tcp that it knows the token
 * (secret_gate.h), over shm that it has the same user.
 *
 *     connect ── hello ──▶ accept: has_hello … answer ── hello ──▶ open (both)
 *
 * Rules for every function:
 *   - None ever blocks. KO_AGAIN means "not yet: call again after drive, or when fd is ready".
 *   - One thread at a time accepts at a device, and one at a time uses the wires of one channel of
 *     a group, which may have things in common; all others are independent. Several threads may
 *     connect from a device at once, beside one that accepts: what they share it guards itself.
 *   - Errors are positive KOLO_E_ codes, with ko_fail's text. KOLO_E_PEER_LOST: the other end is
 * gone. What had arrived before is still delivered first.
 *   - Whatever comes from outside (hellos, frames, lengths) is checked before it is believed.
 */
#ifndef KO_TRANSPORT_H
#define KO_TRANSPORT_H

#include "frame.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Longest address of a device, longest body of a control frame, what a transport may put into a
 * hello. */
enum { KO_ADDRESS_BYTES = 256, KO_CONTROL_BYTES = 640, KO_CARD_BYTES = 560 };

/* Longest slice between ranks that share no memory: more than a slot holds, since each message
 * costs system calls, and both ends the time to begin anew. A little less than a whole number of
 * packets of 64 KiB, so that the frame does not begin another one: on loopback a short last packet
 * costs as much as a long one. */
static inline size_t ko_message_bytes(uint32_t slice_bytes)
{
    const size_t nbytes = 8 * (size_t)slice_bytes;

    return nbytes - nbytes / 512;
}

enum ko_transport_kind { KO_WINDOW, KO_MESSAGE };

/* What the ends of a wire say of themselves; the wire's both ends must agree on group, channel,
 * slots and slice_bytes. Travels as it is. */
struct ko_hello {
    uint32_t magic;   /* KO_HELLO_MAGIC */
    uint32_t version; /* KO_HELLO_VERSION */
    uint64_t group;   /* the group's id */
    int32_t from, to; /* ranks in the group */
    uint32_t channel;
    uint32_t slots, slice_bytes;
    /* The transport's own. tcp: connections that the sender would have, or, in an answer, that
     * there are to be; the port for all but the first; in segment the secret that lets them in. */
    uint16_t sockets, port;
    uint64_t segment; /* windows: id of the memory that the sender of this hello owns */
    unsigned char
        card[KO_CARD_BYTES]; /* the transport's own, too; zeros where it has no use for it */
    struct ko_stamp stamp;   /* the call for which the wire was opened */
};

#define KO_HELLO_MAGIC 0x6f6c6f6bU /* "kolo" */
#define KO_HELLO_VERSION 20U

enum ko_wire_state { KO_WIRE_OPENING, KO_WIRE_OPEN };

/* The head of every transport's own wire; the transport writes it, the user reads it. */
struct ko_wire {
    const struct ko_transport *transport;
    enum ko_wire_state state;
    bool has_begun;        /* somebody who speaks kolo has begun what comes before a hello */
    int32_t caller;        /* if so: the rank in the world that he says he is */
    bool has_hello;        /* an accepted wire has received the other end's hello */
    struct ko_hello hello; /* the other end's, valid if has_hello or open */
    int fd;                /* readiness for the bits in wanted means "call drive"; -1: none */
    int wanted;            /* KO_POLL_ bits (poller.h); may change with every call */
    uint64_t moved;        /* grows with each part of a message that has come or left; 0 where they
                              do so whole */
    bool is_written_to;    /* the other end may still write where a land was told to: that memory
                              is nobody else's before the land is over or the wire hung up */

    /* KO_WINDOW, once open: the memory this end receives in (its own), and the one it sends into.
     * Valid until hangup; window.h says what lies in it. */
    void *inbox, *outbox;
};

struct ko_gpu;

/* The head of what a transport knows of GPU memory. */
struct ko_held {
    const struct ko_transport *transport;
};

/* One message to be sent. Frame and body stay the caller's and unchanged while is_queued. */
struct ko_post {
    struct ko_frame frame;
    unsigned char gap[32]; /* zeros, which some wires send between the frame and a long body */
    const void *body;      /* frame.nbytes bytes */
    struct ko_held *held;  /* the body lies there, in GPU memory; NULL: in the host's */
    bool may_wait;         /* others follow: it may stay queued until the next send or drive */
    bool is_queued;        /* set by send, cleared when the message has left or can never leave */
    bool has_fd;           /* a descriptor goes with it: transports with take_fd */
    int fd;                /* the caller's, open while is_queued */
    struct ko_post *next;
};

struct ko_device {
    const struct ko_transport *transport;
    int listen_fd; /* readable when accept has something; -1: the device accepts nothing */
};

/* What a device is opened with. */
struct ko_site {
    char listen_host[64]; /* numeric address to listen on, for transports that have addresses */
    int rank;             /* this rank in the world */
    bool has_tcp;         /* a wire that cannot have what its transport needs may be one of tcp's */
};

struct ko_transport {
    const char *name;
    enum ko_transport_kind kind;
    bool knows_memory; /* memory of kolo_mem_alloc is faster to send from and to land in */

    /* Opens this rank's end. KOLO_E_UNSUPPORTED, and why, if this machine cannot. On success the
     * device can be connected to. Closing comes after the hangup of all its wires. */
    int (*open)(const struct ko_site *site, struct ko_device **device);
    void (*close)(struct ko_device *device);

    /* Writes what another rank needs to reach this device, returns its length <= KO_ADDRESS_BYTES.
     * It travels as it is, and has no meaning to anybody else. */
    size_t (*address)(struct ko_device *device, unsigned char *address);

    /* Begins a wire to the device with that address and queues the hello. The answer's hello must
     * match it (see struct ko_hello). */
    int (*connect)(struct ko_device *device, const unsigned char *address, size_t nbytes,
                   const struct ko_hello *hello, struct ko_wire **wire);

    /* The next wire that somebody has begun towards this device, KO_AGAIN if there is none. It is
     * to be driven until it has_hello, and then answered or hung up. */
    int (*accept)(struct ko_device *device, struct ko_wire **wire);
    int (*answer)(struct ko_wire *wire, const struct ko_hello *hello);

    /* Does what can be done now without waiting: the handshake, writing what is queued. KOLO_OK
     * whether there was something to do or not. */
    int (*drive)(struct ko_wire *wire);

    /* Before its thread sleeps until fd is ready: from now on everything that lets the wire go on
     * makes it so. True if there is something already: the thread is not to sleep. NULL: fd tells
     * of itself. */
    bool (*arm)(struct ko_wire *wire);

    /* Queues a message behind those before it and begins to send it, unless it may_wait. Fails only
     * for good; a message that can no longer leave because the other end is gone is dropped without
     * an error, which `next` will report after what has arrived. */
    int (*send)(struct ko_wire *wire, struct ko_post *post);

    /* *frame is that of the first message which has not been landed yet; it stays valid, and the
     * answer the same, until it has been. frame->nbytes <= the larger of
     * ko_message_bytes(slice_bytes) and KO_CONTROL_BYTES. */
    int (*next)(struct ko_wire *wire, const struct ko_frame **frame);

    /* Moves the body of next's message to `to`, which is the same at each call until KOLO_OK.
     * landed: bytes of it that lie there so far; NULL: nobody knows before all do. */
    int (*land)(struct ko_wire *wire, void *to);
    size_t (*landed)(const struct ko_wire *wire);

    /* Short messages between two ranks that wait for each other, without all that a longer wait
     * would need; NULL, both, for transports that cannot. give: sends one if it leaves at once,
     * behind all before it; what is left of one that has begun to is queued as the rest, a post
     * that was not. take: lands the first one if it is this, and all of it is here or comes within
     * so many looks. False: nothing was done, and send and next say why. */
    bool (*give)(struct ko_wire *wire, const struct ko_frame *frame, const void *body,
                 struct ko_post *rest);
    bool (*take)(struct ko_wire *wire, struct ko_message *message, void *to, int looks);

    /* GPU memory, for messages from it and into it that the processor has no part in. NULL, all
     * three, for transports that know none. hold: that in which nbytes from `at` on lie, for all
     * wires of the device, until it is let go; NULL if the adapters cannot have it, or so short a
     * message is better copied, which is no error. lands_in: from now on the address that land is
     * given for next's message lies there; false: not of this one, it takes host memory. */
    struct ko_held *(*hold)(struct ko_wire *wire, struct ko_gpu *gpu, const void *at,
                            size_t nbytes);
    void (*let_go)(struct ko_held *held);
    bool (*lands_in)(struct ko_wire *wire, struct ko_held *held);

    /* The descriptor that came with the message that has just been landed, the caller's from now
     * on; -1 if there was none. NULL for transports that cannot carry any. */
    int (*take_fd)(struct ko_wire *wire);

    /* As drive, but KO_AGAIN until nothing that was sent could be lost by a hangup any more,
     * whatever has come and nobody has landed. NULL: that is so as soon as no post is queued. */
    int (*deliver)(struct ko_wire *wire);

    /* Ends the wire at once, whatever its state; what was queued and has not left is lost. Posts
     * are the caller's again. The other end sees KOLO_E_PEER_LOST behind what had left. NULL
     * allowed. */
    void (*hangup)(struct ko_wire *wire);
};

/* All transports of this build, in order of preference, then NULL. */
extern const struct ko_transport *const ko_transports[];

/* NULL if there is none of this name. */
const struct ko_transport *ko_transport_find(const char *name);

extern const struct ko_transport ko_transport_self, ko_transport_shm, ko_transport_rdma,
    ko_transport_tcp;

#endif
