/* SPDX-License-Identifier: MIT
 *
 * mailbox_gpu.h: messages from GPU memory among ranks that reach each other's: what travels is
 * where the message lies (KO_PLACE), and the receiver fetches it from there by one copy, into its
 * own GPU's memory or the host's; the sender hears when it has (KO_FRAME_TAKEN), or that it has to
 * send the message itself (KO_FRAME_RESUME), by way of host memory: where something that was freed
 * there is open here still, the driver opens nothing else. Of a message that
 * both ends capture for a graph (KO_CAPTURED) the receiver keeps the place, for its launches. And
 * among ranks whose link's adapters read and write GPU memory themselves (transport.h): each end
 * decides for itself, a sender for a message, a receiver for every slice of one. Nothing here
 * waits.
 */
#ifndef KO_MAILBOX_GPU_H
#define KO_MAILBOX_GPU_H

#include "gpu_handover.h"
#include "gpu_share.h"
#include "mailbox.h"

/* How a group's ranks reach memory that messages come from. Any thread. */
struct ko_places;

/* For a group of n ranks whose memory can be mapped by all of their hosts; ko_gpu_share_open says
 * the rest. */
int ko_places_open(struct ko_gpu *gpu, int n, const bool *is_here, enum ko_gpu_layout layout,
                   struct ko_places **places);

/* From the beginning on: the number of a rank's process (gpu_share.h). */
void ko_places_set_process(struct ko_places *places, int rank, uint64_t process);

/* From the beginning on: what is described by a handle the ranks do not reach. */
void ko_places_forgo_handles(struct ko_places *places);

/* Before the group's share is closed. NULL is allowed. */
void ko_places_close(struct ko_places *places, const struct ko_gpu_share *share);

/* From the beginning on: the ranks have been found to reach memory in pieces. */
void ko_places_send_pieces(struct ko_places *places);

/* Says where a message of nbytes lies, for the rank that it is to; false: that could not reach it.
 * If it lies in pieces, the call hands them over until its letters are done, and then says so by
 * ko_places_end. */
bool ko_places_describe(kolo_group *group, const kolo_p2p *op, size_t nbytes,
                        struct ko_gpu_handover *handover, struct ko_gpu_place *place);

/* The same of a message that is captured for a graph, whose ranks find out with it whether they
 * reach pieces. */
bool ko_places_describe_captured(kolo_group *group, const kolo_p2p *op, size_t nbytes,
                                 struct ko_gpu_handover *handover, struct ko_gpu_place *place);

/* The letters are done; is_taken: the receiver has got the message. */
void ko_places_end(kolo_group *group, int to, const struct ko_gpu_place *place, bool is_taken);

/* What a letter has of GPU memory. Belongs to whoever posts the letter. */
struct ko_placed {
    void *buffer;                   /* receiving: where the message goes if it comes by its place */
    const struct ko_gpu_mark *mark; /* receiving: of the stream, before which that is in use */
    bool is_fetched;                /* receiving: the message is there */
    struct ko_gpu_place place;      /* sending: of the message */
    struct ko_gpu_relay *relay;     /* sending: to a peer that does not reach it; NULL: none */

    bool is_captured; /* for a graph; receiving, once a message has been found: */
    int from;
    uint64_t seq;  /* of the sender's messages to this rank */
    uint64_t at;   /* where it lies, for this rank's GPU */
    size_t nbytes; /* of it */

    /* receiving: GPU memory that the link's adapters write; which bytes of the message they have */
    int64_t looked_ns; /* at the mark, first; 0: not yet */
    bool is_tried;
    struct ko_held *held; /* NULL: none */
    size_t written_from, written_to;
};

/* A placed send's message is to go by host memory, with a relay of its own. */
int ko_placed_relay(struct ko_letter *letter);
/* Frees what a placed message had for itself; is_left: as of ko_gpu_relay_close. */
void ko_placed_end(struct ko_placed *placed, bool is_left);

/* Slots of relays have so many bytes, of a call of n messages. */
int ko_relay_bytes(const kolo_group *group, size_t n, size_t *slot_bytes);

/* GPU memory to send nbytes to a rank from, by the adapters of the link to it; NULL: it has none
 * that could, or is not open yet. Any thread. Until ko_held_let_go, for which NULL is allowed. */
struct ko_held *ko_mailbox_hold(kolo_group *group, int to, const void *buffer, size_t nbytes);
void ko_held_let_go(struct ko_held *held);

/* *place is where the link's adapters will write its next slice, of a letter's message of `total`
 * bytes of which `arrived` have come: it is to land there. NULL: it has to land in host memory.
 * KO_AGAIN for a short while until the stream has come to the mark. */
int ko_placed_land(const struct ko_letter *letter, struct ko_link *link, size_t arrived,
                   size_t total, unsigned char **place);

/* A message whose place has come. */
struct ko_fetch {
    struct ko_gpu_place place;
    struct ko_letter *letter; /* the receive */
    uint64_t seq; /* of the sender's messages to this rank; the next three are its, too */
    int tag;
    kolo_dtype dtype;
    size_t nbytes;
    struct ko_gpu_mark *copied; /* the copy's end; NULL: it has not begun */
    struct ko_fetch *next;
};

/* Goes on; KO_AGAIN: look again. from is the sender. KOLO_E_UNSUPPORTED: the message cannot be
 * reached here. */
int ko_fetch_step(struct ko_fetch *fetch, int from);

static inline bool ko_letter_is_captured(const struct ko_letter *letter)
{
    return letter->placed && letter->placed->is_captured;
}

/* NULL is allowed. */
void ko_fetch_free(struct ko_fetch *fetch);

#endif
