/* SPDX-License-Identifier: MIT
 *
 * link.h: one peer, as collectives and point-to-point see it: slices go out in slots and come in in
 * the same order, whatever carries them. A link begins without a wire; it is "not yet" in every
 * respect until ko_link_open gives it one. Two bodies: window_link.c (slots in memory that both
 * ends address) and message_link.c (slots of this rank's own, sent as messages).
 *
 * Nothing here blocks; KO_AGAIN means that the peer has to do something first. One thread at a
 * time.
 */
#ifndef KO_LINK_H
#define KO_LINK_H

#include "transport.h"
#include "window_fill.h"
#include "window_places.h"

#include <stdatomic.h>

struct ko_link;

/* What the peer does with a slice, and so what it costs somebody's time if it goes through a slot.
 */
enum ko_flow {
    KO_USED,    /* uses it where it lies; or it is not known what */
    KO_PASSED,  /* copies it as it comes; that has to come as a copy */
    KO_STREAM,  /* copies those before it, while it is copied in: the longer copy */
    KO_FOLLOWS, /* the same, but waits for the last of few */
    KO_AWAITED, /* waits for it: the longer one, and a piece of the other (window_pieces.h) */
    KO_MUTUAL,  /* waits for it, but copies in one for us before: both */
    KO_FOLDED,  /* the same, but reduces it where it lies */
    KO_ADDED    /* adds it as it comes, in pieces; both are counted (foreign.c) */
};

/* Of more slices of a message the time of the last one is the smaller part. */
enum { KO_FEW_SLICES = 2 };

struct ko_link_ops {
    /* *place is where the next slice of nbytes is to be written; KO_AGAIN if no slot is free. */
    int (*room)(struct ko_link *link, size_t nbytes, void **place);
    /* Sends what was written into the last room. */
    int (*commit)(struct ko_link *link, const struct ko_stamp *stamp, size_t nbytes);
    /* Sends nbytes from `from`, which stays unchanged until ko_link_is_flushed. */
    int (*post)(struct ko_link *link, const struct ko_stamp *stamp, const void *from,
                size_t nbytes);
    /* The frame of the next slice that has come. */
    int (*next)(struct ko_link *link, const struct ko_frame **frame);
    /* The body of next's slice, where it lies; valid until release. */
    int (*peek)(struct ko_link *link, const void **body);
    /* The same of a slice that comes in pieces, from `at` on, where one of them begins: *body, and
     * *nbytes of it; of a slice that does not, all of it at 0. KO_AGAIN, KOLO_E_PROTOCOL. */
    int (*peek_piece)(struct ko_link *link, size_t at, const void **body, size_t *nbytes);
    /* The body of next's slice, moved to `to`; releases it. KO_AGAIN: a part of it may lie there,
     * to be left as it is until the next call, with the same `to`. is_streaming: around the caches
     * where that is ours to choose (copy.h). */
    int (*land)(struct ko_link *link, void *to, bool is_streaming);
    void (*release)(struct ko_link *link);
    /* Before its thread sleeps until the wire's fd is ready; after that, and after
     * ko_fence_others, look once more. */
    void (*arm)(struct ko_link *link);
    void (*disarm)(struct ko_link *link);
};

/* A control message from the peer. */
struct ko_notice {
    enum ko_frame_kind kind; /* WAITING to BYE */
    struct ko_stamp stamp;
    const unsigned char *body; /* nbytes, valid until the next ko_link_hear */
    uint32_t nbytes;
};

/* A control message to the peer, one of each kind at a time. */
struct ko_control {
    struct ko_post post;
    unsigned char body[KO_CONTROL_BYTES];
};

struct ko_link {
    const struct ko_link_ops *ops;
    struct ko_wire *wire; /* NULL before ko_link_open */
    int peer;
    uint32_t slots, slice_bytes;
    size_t longest; /* bytes of a slice on this link: slice_bytes, or more once it has messages */

    size_t nheld;        /* bytes of memory that long slices have taken and that stays for those to
                            come; */
    atomic_size_t *held; /* of all links of its owner, who sets this before it opens; or NULL */

    uint64_t sent;         /* slices committed or posted */
    uint64_t referenced;   /* of those, up to the last that refers to memory which is to stay */
    uint64_t flushed;      /* of those, up to the last before which nothing is referred to */
    uint64_t received;     /* slices released */
    struct ko_frame frame; /* of the next slice, checked */

    /* windows */
    struct ko_window *inbox, *outbox;
    uint64_t credit;                    /* the peer's, as last seen */
    uint64_t sendable;                  /* slices, of all, for which there are slots by that */
    uint64_t given;                     /* ours, as last rung for */
    struct ko_slot *next_out, *next_in; /* sent % slots of the outbox, received % slots of ours */
    const struct ko_slot *end_out;      /* behind the last of them */
    struct ko_slot *end_in;             /* likewise, of those whose heads have memory */
    size_t begun_out, begun_in;         /* bytes of the windows' fronts that have memory */
    bool lacks_head;                    /* next_in has none (window_memory.h) */
    unsigned protocols;                 /* protocols.h */
    uint32_t inline_end;                /* bodies of fewer bytes lie in their slots */
    const atomic_int *limit_ms;         /* of its owner's waits; set before it opens, or NULL */
    const atomic_int *failed;           /* not 0 once its owner has failed; likewise */
    const bool *is_trading;             /* its owner's half of the places is enough; likewise */
    bool is_crowded; /* set before it opens: ranks of this host take turns on the cores */
    bool has_waited; /* the last look found no slice */
    bool is_split;   /* both ends order others' accesses before they sleep */
    struct ko_window_places places;     /* of the outbox */
    struct ko_window_distance distance; /* to who reads it */
    struct ko_references *references;   /* reference.h; made at first use */
    struct ko_foreign *foreign;         /* foreign.h; NULL where it is not wanted */
    struct ko_foreign_out *foreign_out; /* foreign_out.h; made at first use */
    enum ko_flow flow;                  /* of what is posted next; set by the user */
    size_t ahead; /* set by the user before land, and 0 again after it: bytes behind `to` for what
                     follows in the same message; what has been read there is to be landed */
    const void *landing_to; /* of the next slice so many bytes lie there (window_pieces.h): */
    size_t landed;
    bool awaits_memory; /* the next slice lies in memory that ko_link_hear has not heard of yet */
    uint32_t nlent;     /* slices that the peer may still write */
    void *back;         /* of a LENT frame that has been peeked at: where the receiver writes */

    /* messages */
    struct ko_post *posts;      /* `slots` of them, used in turn */
    unsigned char *out, *in;    /* bodies of slots, made at first use; windows: foreign ones */
    size_t out_bytes, in_bytes; /* of each of them */
    bool has_own_slots;         /* out and in are of kolo_mem_alloc */
    bool may_hold;    /* set by the user: posts may wait for others, or for ko_link_push */
    bool is_landing;  /* a part of the next slice's body may be in `in` */
    bool is_landed;   /* all of it is */
    bool has_notice;  /* a control message is in front: ko_link_hear takes it */
    uint64_t noticed; /* those that it has taken */

    struct ko_control *control[KO_FRAME_BYE + 1]; /* by kind, made at first use */
    unsigned char heard[KO_CONTROL_BYTES];
};

int ko_link_create(int peer, uint32_t slots, uint32_t slice_bytes, struct ko_link **link);

/* Takes over an open wire. */
int ko_link_open(struct ko_link *link, struct ko_wire *wire);

/* Hangs up and frees. NULL is allowed. */
void ko_link_free(struct ko_link *link);

/* Bytes of memory that long slices have taken, of all links of this process. Any thread. */
size_t ko_links_held(void);

/* Gives back what of that is free. */
void ko_link_give_back(struct ko_link *link);

/* For its two bodies: it holds so much more, or less. */
void ko_link_count_held(struct ko_link *link, size_t more, size_t less);

/* Sends what is held. */
int ko_link_push(struct ko_link *link);

/* KOLO_OK when nothing of the caller's is referred to any more, else KO_AGAIN. */
int ko_link_is_flushed(struct ko_link *link);

/* Before its thread sleeps, behind ops->arm and ko_fence_others: takes back what the peer does not
 * read yet. */
void ko_link_take_back(struct ko_link *link);

/* Whether the peer is at work on a slice that lies in this process. */
bool ko_link_is_read(const struct ko_link *link);

/* Whether the next slice has been read out of the peer's process, who waits for it to be landed. */
bool ko_link_reads_ahead(const struct ko_link *link);

/* Sends what is queued; KO_AGAIN until all that was sent arrives although the link is freed. */
int ko_link_deliver(struct ko_link *link);

/* The next control message, KO_AGAIN if none has come, or the link's error. */
int ko_link_hear(struct ko_link *link, struct ko_notice *notice);

/* As ko_link_hear, but throws away the slices that have come before, before the link is freed: so
 * the peer, who may be leaving too, has room to send and hears. */
int ko_link_discard(struct ko_link *link, struct ko_notice *notice);

/* Sends a control message; one of the same kind that has not left yet makes it a no-op. nbytes <=
 * KO_CONTROL_BYTES are copied. */
int ko_link_tell(struct ko_link *link, enum ko_frame_kind kind, const struct ko_stamp *stamp,
                 const void *body, size_t nbytes);

/* True if a control message, of this kind or of any, is still on its way out. */
bool ko_link_is_telling(const struct ko_link *link, enum ko_frame_kind kind);
bool ko_link_is_telling_any(const struct ko_link *link);

/* GPU memory that the link's adapters read and write themselves (transport.h); NULL: none of it, or
 * of a link that is not open yet. ko_link_reaches_gpus: there may be some. ko_link_post_held: as
 * post, of nbytes > 0 that lie there. ko_link_lands_in: whether the body of next's slice can be
 * landed there. */
bool ko_link_reaches_gpus(const struct ko_link *link);
struct ko_held *ko_link_hold(struct ko_link *link, struct ko_gpu *gpu, const void *at,
                             size_t nbytes);
int ko_link_post_held(struct ko_link *link, const struct ko_stamp *stamp, const void *from,
                      size_t nbytes, struct ko_held *held);
bool ko_link_lands_in(struct ko_link *link, struct ko_held *held);

/* Over messages, where the transport has give and take (transport.h): sends one slice; takes and
 * releases the next if it is this message. False: nothing was done. */
bool ko_message_give(struct ko_link *link, const struct ko_stamp *stamp, const void *from);
bool ko_message_take(struct ko_link *link, struct ko_message *message, void *to, int looks);

extern const struct ko_link_ops ko_window_link_ops, ko_message_link_ops;
int ko_window_link_start(struct ko_link *link);
/* What has been read, without a bell: for a sender that looks whether it may give memory back. */
void ko_window_tell_received(struct ko_link *link);
int ko_message_link_start(struct ko_link *link);
void ko_message_give_back(struct ko_link *link);
void ko_link_free_slots(const struct ko_link *link, unsigned char *slots);

#endif
