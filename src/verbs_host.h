/* SPDX-License-Identifier: MIT
 *
 * verbs_host.h: the verbs of kernels/ring.h and kernels/direct.h over links. A verb waits until it
 * is done. After the first error all verbs do nothing, so the texts need not ask.
 *
 * A slice that a text passes on is reduced straight out of the slot it came in, into the slot it
 * leaves by; it touches the caller's memory only where the text says so.
 */
#ifndef KO_VERBS_HOST_H
#define KO_VERBS_HOST_H

#include "chunk.h"
#include "coll.h"

typedef struct ko_verbs {
    /* what the texts read */
    int n, rank, root;
    size_t count; /* of the call; of this rank's own block where blocks differ */
    size_t slice; /* elements in one */
    struct ko_blocks in_blocks, out_blocks; /* of the buffers that have a block for each rank */
    const struct ko_hosts *hosts;

    kolo_group *group;
    struct ko_channel *channel;
    const unsigned char *in;
    unsigned char *out;
    size_t element; /* bytes of one */
    struct ko_reduction reduction;
    struct ko_stamp stamp;
    int timeout_ms;
    ko_deadline deadline; /* of the whole call; set by the first wait of any length */
    int status;           /* the first error */
} verbs;

enum buffer { IN, OUT };

/* Ranks at most whose slices are reduced together, and the bytes that are reduced at a time. */
enum { MOST_FUSED = 64, BLOCK_BYTES = 4096 };

/* ---- looking at links, with waiting ------------------------------------------------------ */

static inline struct ko_wait wait_for(int peer, const char *what)
{
    return (struct ko_wait){.peer = peer, .what = what};
}

/* Most looks find what they look for, and never ask for the time. */
static void begin_wait(verbs *v, struct ko_wait *wait)
{
    if (!v->deadline.at_ns)
        v->deadline = ko_deadline_in(v->timeout_ms);
    wait->deadline = &v->deadline;
}

/* After a look that gave err: waits if that was "not yet"; true: look again. */
static bool look_again(verbs *v, struct ko_wait *wait, int err)
{
    if (err == KOLO_OK)
        return false;
    if (!wait->deadline)
        begin_wait(v, wait);
    v->status = err == KO_AGAIN ? ko_channel_wait(v->channel, wait)
                                : ko_channel_link_failed(v->channel, wait->peer, err);
    return !v->status;
}

static struct ko_link *link_to(verbs *v, int peer)
{
    struct ko_link *link = NULL;

    if (!v->status)
        v->status = ko_channel_link(v->channel, peer, &link);
    return link;
}

/* A slot to fill for `to`; NULL after an error. */
static void *room(verbs *v, struct ko_link *link, size_t nbytes)
{
    struct ko_wait wait = wait_for(link->peer, "for room to send to");
    void *place = NULL;

    while (look_again(v, &wait, link->ops->room(link, nbytes, &place)))
        ;
    return v->status ? NULL : place;
}

static void commit(verbs *v, struct ko_link *link, size_t nbytes)
{
    int err = link->ops->commit(link, &v->stamp, nbytes);

    if (err)
        v->status = ko_channel_link_failed(v->channel, link->peer, err);
}

/* Waits for the next slice's frame and checks that it is of this call and of nbytes. */
static bool expect(verbs *v, struct ko_link *link, size_t nbytes)
{
    struct ko_wait wait = wait_for(link->peer, "for a message from");
    const struct ko_frame *frame;

    while (look_again(v, &wait, link->ops->next(link, &frame)))
        ;
    if (v->status)
        return false;
    if (memcmp(&frame->stamp, &v->stamp, sizeof v->stamp) != 0) {
        struct ko_stamp theirs = frame->stamp;

        v->status = ko_channel_mismatch(v->channel, link->peer, &theirs, &v->stamp);
    } else if (frame->nbytes != nbytes) {
        v->status =
            ko_group_fail(v->group, KOLO_E_INTERNAL, "a slice has another length than expected");
    }
    return !v->status;
}

/* The next slice where it lies, to be released; NULL after an error. */
static const void *arrived(verbs *v, struct ko_link *link, size_t nbytes)
{
    struct ko_wait wait = wait_for(link->peer, "for the rest of a message from");
    const void *body = NULL;

    if (!expect(v, link, nbytes))
        return NULL;
    while (look_again(v, &wait, link->ops->peek(link, &body)))
        ;
    return v->status ? NULL : body;
}

static void land(verbs *v, struct ko_link *link, void *to, size_t nbytes)
{
    struct ko_wait wait = wait_for(link->peer, "for the rest of a message from");

    if (expect(v, link, nbytes))
        while (look_again(v, &wait, link->ops->land(link, to)))
            ;
}

static void post(verbs *v, struct ko_link *link, const void *from, size_t nbytes)
{
    struct ko_wait wait = wait_for(link->peer, "for room to send to");

    while (look_again(v, &wait, link->ops->post(link, &v->stamp, from, nbytes)))
        ;
}

static const unsigned char *in_at(const verbs *v, struct ko_part part)
{
    return v->in + part.at * v->element;
}

static unsigned char *out_at(const verbs *v, struct ko_part part)
{
    return v->out + part.at * v->element;
}

static const unsigned char *at(const verbs *v, enum buffer buffer, struct ko_part part)
{
    return buffer == IN ? in_at(v, part) : out_at(v, part);
}

static size_t bytes_of(const verbs *v, struct ko_part part)
{
    return part.count * v->element;
}

/* ---- the verbs --------------------------------------------------------------------------- */

KO_FN void send(verbs *v, int to, enum buffer buffer, struct ko_part part)
{
    struct ko_link *link = link_to(v, to);

    if (link)
        post(v, link, at(v, buffer, part), bytes_of(v, part));
}

KO_FN void send_copy(verbs *v, int to, struct ko_part part)
{
    struct ko_link *link = link_to(v, to);
    size_t nbytes = bytes_of(v, part);
    void *place = link ? room(v, link, nbytes) : NULL;

    if (!place)
        return;
    if (nbytes)
        memcpy(place, in_at(v, part), nbytes);
    commit(v, link, nbytes);
}

KO_FN void recv(verbs *v, int from, struct ko_part part)
{
    struct ko_link *link = link_to(v, from);

    if (link)
        land(v, link, out_at(v, part), bytes_of(v, part));
}

KO_FN void recv_send(verbs *v, int from, int to, struct ko_part part)
{
    recv(v, from, part);
    send(v, to, OUT, part);
}

KO_FN void recv_reduce(verbs *v, int from, enum buffer buffer, struct ko_part mine,
                       struct ko_part part)
{
    struct ko_link *link = link_to(v, from);
    const void *theirs = link ? arrived(v, link, bytes_of(v, part)) : NULL;

    if (!theirs)
        return;
    v->reduction.last(out_at(v, part), theirs, at(v, buffer, mine), part.count, v->n);
    link->ops->release(link);
}

KO_FN void recv_reduce_send(verbs *v, int from, int to, enum buffer buffer, struct ko_part mine)
{
    struct ko_link *source = link_to(v, from), *target = link_to(v, to);
    const size_t nbytes = bytes_of(v, mine);
    const void *theirs = source && target ? arrived(v, source, nbytes) : NULL;
    void *place = theirs ? room(v, target, nbytes) : NULL;

    if (!place)
        return;
    v->reduction.step(place, theirs, at(v, buffer, mine), mine.count);
    source->ops->release(source);
    commit(v, target, nbytes);
}

KO_FN void recv_reduce_send_all(verbs *v, int from, int to, enum buffer buffer, struct ko_part part)
{
    recv_reduce(v, from, buffer, part, part);
    send(v, to, OUT, part);
}

KO_FN void keep(verbs *v, struct ko_part mine, struct ko_part part)
{
    if (!v->status && part.count && out_at(v, part) != in_at(v, mine))
        memmove(out_at(v, part), in_at(v, mine), bytes_of(v, part));
}

/* sum = parts[0] op parts[1] op ... of nbytes, by blocks. own is the index of this rank's part,
 * which is copied before the sum, which may lie in the same place, runs over it. */
static void reduce_parts(const verbs *v, unsigned char *sum, const unsigned char *const parts[],
                         int nparts, int own, size_t nbytes)
{
    const ko_reduce_last_fn last = v->reduction.last;
    const ko_reduce_fn step = v->reduction.step;
    const bool is_all = nparts == v->n;
    unsigned char copy[BLOCK_BYTES];

    for (size_t at = 0; at < nbytes; at += BLOCK_BYTES) {
        const size_t size = nbytes - at < BLOCK_BYTES ? nbytes - at : BLOCK_BYTES;
        const unsigned char *so_far = parts[0] + at;

        if (own > 1)
            memcpy(copy, parts[own] + at, size);
        for (int i = 1; i < nparts; i++) {
            const unsigned char *next = i == own && own > 1 ? copy : parts[i] + at;

            if (is_all && i == nparts - 1)
                last(sum + at, so_far, next, size / v->element, v->n);
            else
                step(sum + at, so_far, next, size / v->element);
            so_far = sum + at;
        }
    }
}

/* The slots are held until the sum is complete. */
KO_FN void reduce_from(verbs *v, const int *ranks, int nranks, struct ko_part part)
{
    const unsigned char *parts[MOST_FUSED];
    struct ko_link *links[MOST_FUSED] = {NULL};
    int own = 0;

    for (int i = 0; i < nranks && !v->status; i++) {
        const int peer = ranks ? ranks[i] : i;

        if (peer == v->rank) {
            own = i;
            parts[i] = in_at(v, part);
        } else {
            links[i] = link_to(v, peer);
            parts[i] = links[i] ? arrived(v, links[i], bytes_of(v, part)) : NULL;
        }
    }
    if (v->status)
        return;
    reduce_parts(v, out_at(v, part), parts, nranks, own, bytes_of(v, part));
    for (int i = 0; i < nranks; i++)
        if (links[i])
            links[i]->ops->release(links[i]);
}

KO_FN void reduce_ranks(verbs *v, struct ko_part part)
{
    reduce_from(v, NULL, v->n, part);
}

#endif
