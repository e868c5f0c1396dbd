/* SPDX-License-Identifier: MIT
 *
 * verbs_links.h: what the verbs of verbs_host.h do on one link: a slice that leaves, one that has
 * come, and the wait for either, which ends with the call's time, or the group's failure.
 */
#ifndef KO_VERBS_LINKS_H
#define KO_VERBS_LINKS_H

#include "chunk.h"
#include "coll.h"
#include "coll_places.h"
#include "copy.h"
#include "window_slots.h"

typedef struct ko_verbs {
    /* what the texts read */
    int n, rank, root;
    size_t count; /* of the call; of this rank's own block where blocks differ */
    size_t slice; /* elements in one */
    struct ko_blocks in_blocks, out_blocks; /* of the buffers that have a block for each rank */
    const struct ko_hosts *hosts;
    int *ranks;
    bool by_host;

    void (*run)(struct ko_verbs *v); /* the text */
    kolo_group *group;
    struct ko_channel *channel;
    unsigned char *buffers[3];            /* by enum buffer; IN is only read */
    size_t element;                       /* bytes of one */
    const struct ko_reduction *reduction; /* NULL if nothing is to be reduced */
    enum ko_flow flow;                    /* of what is posted; */
    enum ko_flow folded;                  /* of what is lent, and of what is reduced there */
    bool is_copying;      /* what peers could read where it lies goes through slots all the same */
    bool is_large;        /* results would not stay in the cache */
    bool is_streaming;    /* nor are they read again */
    struct ko_held *held; /* of GPU memory, in which IN and OUT lie; NULL: in the host's */
    struct ko_stamp stamp;
    size_t block; /* bytes of one of IN, which goes to its rank slice after slice, or of OUT, which
                     comes so, if what follows a slice may go along; else 0 */
    const unsigned char *gone; /* that has gone along to the one peer: */
    size_t ngone;              /* so many bytes */
    bool has_posted;           /* what has not left yet: to be flushed */
    bool is_waiting;           /* in `wait` */
    struct ko_wait wait;       /* begun by the first look that found nothing */
    ko_deadline deadline;      /* of the whole call; set by its first wait: */
    uint64_t waited;           /* the number of that call */
    int status;                /* the first error */
    bool is_repeatable;        /* the next call may be like this one (ko_coll_again), */
    struct ko_places places;   /* if its buffers may lie so */
} verbs;

/* What a peer is waited for. */
enum need { NEED_ROOM, NEED_SLICE, NEED_REST, NEED_FLUSH };

/* Most looks find what they look for: what a wait needs is made by its first turn, and unmade by
 * the look that ends it. */
static void begin_wait(verbs *v, int peer, enum need need)
{
    static const char *const texts[] = {[NEED_ROOM] = "for room to send to",
                                        [NEED_SLICE] = "for a message from",
                                        [NEED_REST] = "for the rest of a message from",
                                        [NEED_FLUSH] = "to send the rest of a message to"};

    if (v->waited != v->stamp.seq)
        v->deadline = ko_deadline_in(kolo_group_timeout(v->group));
    v->waited = v->stamp.seq;
    v->wait = (struct ko_wait){.deadline = &v->deadline,
                               .peer = peer,
                               .what = texts[need],
                               .is_for_slice = need == NEED_SLICE};
    v->is_waiting = true;
}

static __attribute__((noinline)) bool wait_turn(verbs *v, int peer, enum need need, int err)
{
    if (!v->is_waiting)
        begin_wait(v, peer, need);
    v->status = err == KO_AGAIN ? ko_channel_wait(v->channel, &v->wait)
                                : ko_channel_link_failed(v->channel, peer, err);
    return !v->status;
}

/* After a look that gave err: waits if that was "not yet"; true: look again. */
static inline bool look_again(verbs *v, int peer, enum need need, int err)
{
    if (err == KOLO_OK) {
        v->is_waiting = false;
        return false;
    }
    return wait_turn(v, peer, need, err);
}

static __attribute__((noinline)) struct ko_link *open_link(verbs *v, int peer)
{
    struct ko_link *link = NULL;

    if (!v->status)
        v->status = ko_channel_link(v->channel, peer, &link);
    return v->status ? NULL : link;
}

/* NULL after an error. */
static inline struct ko_link *link_to(verbs *v, int peer)
{
    struct ko_link *link = v->channel->ports[peer].link;

    return link && !v->status ? link : open_link(v, peer);
}

/* A slot to fill for `to`; NULL after an error. */
static void *room(verbs *v, struct ko_link *link, size_t nbytes)
{
    void *place = NULL;

    while (look_again(v, link->peer, NEED_ROOM, link->ops->room(link, nbytes, &place)))
        ;
    return v->status ? NULL : place;
}

static void commit(verbs *v, struct ko_link *link, size_t nbytes)
{
    int err = link->ops->commit(link, &v->stamp, nbytes);

    if (err)
        v->status = ko_channel_link_failed(v->channel, link->peer, err);
    v->has_posted |= link->flushed < link->referenced;
}

static __attribute__((noinline)) void not_expected(verbs *v, const struct ko_link *link,
                                                   const struct ko_frame *frame, size_t nbytes)
{
    const struct ko_stamp theirs = frame->stamp;

    v->status = !ko_stamps_equal(&theirs, &v->stamp)
                    ? ko_channel_mismatch(v->channel, link->peer, &theirs, &v->stamp)
                    : ko_channel_lengths_differ(v->channel, link->peer, frame, nbytes);
}

/* Looks into a window for the next slice for as long as most take to come: that is not worth a turn
 * of waiting. */
static inline void look_briefly(const verbs *v, const struct ko_link *link)
{
    enum { LOOKS = 64 };
    int looks = v->channel->is_crowded ? 1 : LOOKS;

    while (!ko_window_has_come(link) && --looks)
        ko_pause();
}

/* Waits for the next slice's frame and checks that it is of this call and of nbytes. */
static bool expect(verbs *v, struct ko_link *link, size_t nbytes)
{
    const struct ko_frame *frame = NULL;
    int err;

    if (link->inbox)
        look_briefly(v, link);
    err = link->ops->next(link, &frame);
    while (look_again(v, link->peer, NEED_SLICE, err))
        err = link->ops->next(link, &frame);
    if (!v->status && (!ko_stamps_equal(&frame->stamp, &v->stamp) || frame->nbytes != nbytes))
        not_expected(v, link, frame, nbytes);
    return !v->status;
}

static __attribute__((noinline)) const void *arrived_slowly(verbs *v, struct ko_link *link,
                                                            size_t nbytes)
{
    const void *body = NULL;

    link->flow = v->folded;
    if (!expect(v, link, nbytes))
        return NULL;
    while (look_again(v, link->peer, NEED_REST, link->ops->peek(link, &body)))
        ;
    return v->status ? NULL : body;
}

/* The next slice if it is short and comes soon, as nearly all do; else NULL. */
static inline const void *arrived_soon(verbs *v, struct ko_link *link, size_t nbytes)
{
    if (!ko_window_goes_inline(link, nbytes))
        return NULL;
    look_briefly(v, link);
    return ko_window_has_come(link) ? ko_window_match(link, &v->stamp, nbytes) : NULL;
}

/* The next slice where it lies, to be released; NULL after an error. */
static inline const void *arrived(verbs *v, struct ko_link *link, size_t nbytes)
{
    const void *body = arrived_soon(v, link, nbytes);

    return body ? body : arrived_slowly(v, link, nbytes);
}

static inline void release(struct ko_link *link)
{
    if (link->frame.kind == KO_FRAME_INLINE)
        ko_window_release_slot(link);
    else
        link->ops->release(link);
}

/* Whether the adapter writes the next slice where it is wanted, where nobody else could. */
static bool is_written(verbs *v, struct ko_link *link)
{
    if (!v->status && !ko_link_lands_in(link, v->held))
        v->status = ko_channel_link_failed(
            v->channel, link->peer,
            ko_fail(KOLO_E_PROTOCOL, "what was to come from GPU memory came from the host's"));
    return !v->status;
}

/* Bytes of a block behind so many of it. */
static size_t rest_of_block(const verbs *v, enum buffer buffer, const unsigned char *at,
                            size_t nbytes)
{
    return v->block ? v->block - (size_t)(at - v->buffers[buffer]) % v->block - nbytes : 0;
}

static __attribute__((noinline)) void land_slowly(verbs *v, struct ko_link *link, void *to,
                                                  size_t nbytes, bool is_streaming)
{
    link->flow = v->flow;
    link->ahead = rest_of_block(v, OUT, to, nbytes);
    if (expect(v, link, nbytes) && (!v->held || !nbytes || is_written(v, link)))
        while (look_again(v, link->peer, NEED_REST, link->ops->land(link, to, is_streaming)))
            ;
    link->ahead = 0;
}

static void land(verbs *v, struct ko_link *link, void *to, size_t nbytes, bool is_streaming)
{
    const void *body = arrived_soon(v, link, nbytes);

    if (!body) {
        land_slowly(v, link, to, nbytes, is_streaming);
        return;
    }
    ko_copy_short(to, body, nbytes);
    release(link);
}

static int try_to_post(const verbs *v, struct ko_link *link, const void *from, size_t nbytes)
{
    if (v->held && nbytes)
        return ko_link_post_held(link, &v->stamp, from, nbytes, v->held);
    return v->is_copying && link->outbox ? ko_window_copy(link, &v->stamp, from, nbytes)
                                         : link->ops->post(link, &v->stamp, from, nbytes);
}

/* Where the peer reads a slice it reads what follows by the same call. */
static void let_follow(verbs *v, struct ko_link *link, const unsigned char *from, size_t nbytes)
{
    const size_t rest = rest_of_block(v, IN, from, nbytes), slice = v->slice * v->element;
    size_t next;

    v->gone = from + nbytes;
    for (v->ngone = 0; v->ngone < rest && !v->status; v->ngone += next) {
        next = rest - v->ngone < slice ? rest - v->ngone : slice;
        if (!ko_window_leave(link, &v->stamp, v->gone + v->ngone, next))
            return;
    }
}

static void post(verbs *v, struct ko_link *link, const void *from, size_t nbytes)
{
    if (v->ngone && from == v->gone) {
        v->gone += nbytes;
        v->ngone -= nbytes;
        return;
    }
    link->flow = v->flow;
    while (look_again(v, link->peer, NEED_ROOM, try_to_post(v, link, from, nbytes)))
        ;
    v->has_posted |= link->flushed < link->referenced;
    if (v->block)
        let_follow(v, link, from, nbytes);
}

static unsigned char *at(const verbs *v, enum buffer buffer, struct ko_part part)
{
    return v->buffers[buffer] + part.at * v->element;
}

static size_t bytes_of(const verbs *v, struct ko_part part)
{
    return part.count * v->element;
}

#endif
