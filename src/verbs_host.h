/* SPDX-License-Identifier: MIT
 *
 * verbs_host.h: the verbs of kernels/verbs.h over links. A verb waits until it is
 * done. After the first error all verbs do nothing, so the texts need not ask.
 *
 * A slice that a text passes on is reduced straight out of the slot it came in, into the slot it
 * leaves by; it touches the caller's memory only where the text says so.
 */
#ifndef KO_VERBS_HOST_H
#define KO_VERBS_HOST_H

#include "verbs_links.h"
#include "window_pieces.h"

/* ---- the verbs --------------------------------------------------------------------------- */

static void copy_into_window(verbs *v, struct ko_link *link, const void *from, size_t nbytes)
{
    link->flow = v->flow;
    while (look_again(v, link->peer, NEED_ROOM, ko_window_copy(link, &v->stamp, from, nbytes)))
        ;
}

static void copy_out(verbs *v, struct ko_link *link, const void *from, size_t nbytes)
{
    void *place;

    if (link->outbox) {
        copy_into_window(v, link, from, nbytes);
        return;
    }
    place = room(v, link, nbytes);
    if (!place)
        return;
    ko_copy(place, from, nbytes);
    commit(v, link, nbytes);
}

static __attribute__((noinline)) void ring(verbs *v, struct ko_link *link)
{
    int err = ko_window_ring_receiver(link);

    if (err)
        v->status = ko_channel_link_failed(v->channel, link->peer, err);
}

/* A short slice, at once; false: it has to go another way. */
static inline bool gave(verbs *v, int to, const void *from, size_t nbytes)
{
    struct ko_link *link = v->channel->ports[to].link;

    if (!link || v->status || !ko_window_posts_inline(link, from, nbytes) ||
        !ko_window_sees_slot(link))
        return false;
    if (ko_window_give(link, &v->stamp, from, nbytes))
        ring(v, link);
    return true;
}

static __attribute__((noinline)) void send_slowly(verbs *v, int to, enum buffer buffer,
                                                  struct ko_part part)
{
    struct ko_link *link = link_to(v, to);

    if (link)
        post(v, link, at(v, buffer, part), bytes_of(v, part));
}

KO_FN void send(verbs *v, int to, enum buffer buffer, struct ko_part part)
{
    if (!gave(v, to, at(v, buffer, part), bytes_of(v, part)))
        send_slowly(v, to, buffer, part);
}

/* What no verb writes needs no copy. */
static __attribute__((noinline)) void send_copy_slowly(verbs *v, int to, enum buffer buffer,
                                                       struct ko_part part)
{
    struct ko_link *link = link_to(v, to);

    if (link && buffer == IN && v->buffers[IN] != v->buffers[OUT])
        post(v, link, at(v, buffer, part), bytes_of(v, part));
    else if (link)
        copy_out(v, link, at(v, buffer, part), bytes_of(v, part));
}

KO_FN void send_copy(verbs *v, int to, enum buffer buffer, struct ko_part part)
{
    if (!gave(v, to, at(v, buffer, part), bytes_of(v, part)))
        send_copy_slowly(v, to, buffer, part);
}

static int try_to_lend(const verbs *v, struct ko_link *link, struct ko_part part)
{
    const void *from = at(v, IN, part);
    const size_t nbytes = bytes_of(v, part);

    return link->inbox ? ko_window_lend(link, &v->stamp, from, at(v, OUT, part), nbytes)
                       : link->ops->post(link, &v->stamp, from, nbytes);
}

static __attribute__((noinline)) void lend_slowly(verbs *v, int to, struct ko_part part)
{
    struct ko_link *link = link_to(v, to);

    if (link)
        link->flow = v->folded;
    while (link && look_again(v, to, NEED_ROOM, try_to_lend(v, link, part)))
        ;
    v->has_posted |= link && link->flushed < link->referenced;
}

KO_FN void lend(verbs *v, int to, struct ko_part part)
{
    if (!gave(v, to, at(v, IN, part), bytes_of(v, part)))
        lend_slowly(v, to, part);
}

KO_FN void recv_to(verbs *v, int from, enum buffer buffer, struct ko_part part)
{
    struct ko_link *link = link_to(v, from);

    if (link)
        land(v, link, at(v, buffer, part), bytes_of(v, part), false);
}

KO_FN void recv(verbs *v, int from, struct ko_part part)
{
    struct ko_link *link = link_to(v, from);

    if (link)
        land(v, link, at(v, OUT, part), bytes_of(v, part), v->is_streaming);
}

KO_FN void recv_send(verbs *v, int from, int to, struct ko_part part)
{
    recv_to(v, from, OUT, part);
    send(v, to, OUT, part);
}

/* Whether of two the own part is the first. */
static inline bool is_before(const verbs *v, int from)
{
    return v->by_host ? v->hosts->host[v->rank] < v->hosts->host[from] : v->rank < from;
}

KO_FN void recv_add(verbs *v, int from, enum buffer buffer, struct ko_part mine, enum buffer target,
                    struct ko_part part)
{
    struct ko_link *link = link_to(v, from);
    const void *own = at(v, buffer, mine);
    const void *theirs = link ? arrived(v, link, bytes_of(v, part)) : NULL;
    const bool is_first = is_before(v, from);

    if (!theirs)
        return;
    v->reduction->step(at(v, target, part), is_first ? own : theirs, is_first ? theirs : own,
                       part.count);
    release(link);
}

static __attribute__((noinline)) void reduce_streaming(const verbs *v, void *sum,
                                                       const struct ko_parts *of)
{
    ko_reduce_into(v->reduction, &sum, 1, of, true);
}

/* The parts of two, in the order of the ranks. */
static inline __attribute__((always_inline)) void
complete(const verbs *v, void *out, const void *const two[2], size_t count, bool is_streaming)
{
    if (is_streaming)
        reduce_streaming(v, out, &(struct ko_parts){two, 2, count, v->n});
    else
        v->reduction->last(out, two[0], two[1], count, v->n);
}

/* Whether a slice is better added piece by piece: while its sender copies in what follows, or while
 * the kernel receives it. */
static inline bool comes_in_pieces(const verbs *v, const struct ko_link *link, size_t nbytes,
                                   bool is_streaming)
{
    return link->inbox ? v->flow == KO_ADDED && !is_streaming
                       : link->posts && link->wire->transport->landed && nbytes;
}

static __attribute__((noinline)) void complete_as_it_comes(verbs *v, struct ko_link *link,
                                                           const unsigned char *own,
                                                           struct ko_part part, bool is_streaming,
                                                           bool is_first)
{
    const size_t nbytes = bytes_of(v, part);
    unsigned char *out = at(v, OUT, part);
    bool goes_on;
    const void *theirs = NULL;

    link->flow = v->flow;
    goes_on = expect(v, link, nbytes);
    for (size_t i = 0, n = 0; goes_on && i < nbytes; i += n) {
        while (look_again(v, link->peer, NEED_REST, link->ops->peek_piece(link, i, &theirs, &n)))
            ;
        goes_on = !v->status;
        if (goes_on)
            complete(v, out + i,
                     (const void *[]){is_first ? own + i : theirs, is_first ? theirs : own + i},
                     n / v->element, is_streaming);
    }
    if (goes_on)
        release(link);
}

/* Whether the own part is the first of the two or not. Inlined, or its arguments are a third of it.
 */
static inline __attribute__((always_inline)) void complete_with(verbs *v, int from, const void *own,
                                                                struct ko_part part,
                                                                bool is_streaming, bool is_first)
{
    struct ko_link *link = link_to(v, from);
    const size_t nbytes = bytes_of(v, part);
    const void *theirs = link ? arrived_soon(v, link, nbytes) : NULL;

    if (!theirs && link && comes_in_pieces(v, link, nbytes, is_streaming)) {
        complete_as_it_comes(v, link, own, part, is_streaming, is_first);
        return;
    }
    if (!theirs && link)
        theirs = arrived_slowly(v, link, nbytes);
    if (!theirs)
        return;
    complete(v, at(v, OUT, part),
             (const void *[]){is_first ? own : theirs, is_first ? theirs : own}, part.count,
             is_streaming);
    release(link);
}

KO_FN void recv_reduce(verbs *v, int from, enum buffer buffer, struct ko_part mine,
                       struct ko_part part)
{
    complete_with(v, from, at(v, buffer, mine), part, v->is_streaming, is_before(v, from));
}

enum { SUM_BYTES = 8 << 10 }; /* in the nearest cache, beside what is read */

/* What is passed on: the sum of parts, whose pointers move. Lines of the slot are in the cache of
 * the core that has read them, and are best written whole. */
static void reduce_into_slot(const verbs *v, struct ko_link *link, unsigned char *place,
                             const void **parts, int nparts, size_t count)
{
    unsigned char sum[SUM_BYTES] __attribute__((aligned(64)));
    size_t nbytes;

    if (!link->outbox || !ko_copy_spares_fetching(count * v->element)) {
        v->reduction->many(place, parts, nparts, count, 1);
        return;
    }
    for (size_t left = count * v->element; left; left -= nbytes, place += nbytes) {
        nbytes = left < SUM_BYTES ? left : SUM_BYTES;
        v->reduction->many(sum, parts, nparts, nbytes / v->element, 1);
        ko_window_fill(link, place, sum, nbytes);
        for (int i = 0; i < nparts; i++)
            parts[i] = (const unsigned char *)parts[i] + nbytes;
    }
}

KO_FN void recv_reduce_send(verbs *v, int from, int to, enum buffer buffer, struct ko_part mine)
{
    struct ko_link *source = link_to(v, from), *target = link_to(v, to);
    const size_t nbytes = bytes_of(v, mine);
    const void *theirs = source && target ? arrived(v, source, nbytes) : NULL;
    void *place = theirs ? room(v, target, nbytes) : NULL;

    if (!place)
        return;
    reduce_into_slot(v, target, place, (const void *[]){theirs, at(v, buffer, mine)}, 2,
                     mine.count);
    release(source);
    commit(v, target, nbytes);
}

KO_FN void recv_reduce_send_all(verbs *v, int from, int to, enum buffer buffer, struct ko_part part)
{
    complete_with(v, from, at(v, buffer, part), part, false, is_before(v, from));
    send(v, to, OUT, part);
}

KO_FN void move(verbs *v, enum buffer buffer, struct ko_part mine, enum buffer target,
                struct ko_part part)
{
    if (!v->status && part.count && at(v, target, part) != at(v, buffer, mine))
        ko_copy_short(at(v, target, part), at(v, buffer, mine), bytes_of(v, part));
}

KO_FN void keep(verbs *v, struct ko_part mine, struct ko_part part)
{
    if (!v->is_streaming)
        move(v, IN, mine, OUT, part);
    else if (!v->status && at(v, OUT, part) != at(v, IN, mine))
        ko_copy_streaming(at(v, OUT, part), at(v, IN, mine), bytes_of(v, part));
}

KO_FN void scratch(verbs *v, size_t count)
{
    if (!v->status)
        v->status = ko_group_scratch(v->group, count * v->element, &v->buffers[TMP]);
}

/* ---- verbs of several ranks -------------------------------------------------------------- */

/* The slices of a list of ranks, held until they are released. */
struct slices {
    const void **parts;
    struct ko_link **links; /* NULL for the own */
    int n;
};

static bool hold(verbs *v, const int *ranks, int nranks, struct ko_part mine, struct slices *slices)
{
    *slices = (struct slices){.parts = v->group->parts, .links = v->group->links, .n = nranks};
    for (int i = 0; i < nranks && !v->status; i++) {
        const int peer = ranks ? ranks[i] : i;
        struct ko_link *link = peer == v->rank ? NULL : link_to(v, peer);

        slices->links[i] = link;
        slices->parts[i] = link ? arrived(v, link, bytes_of(v, mine)) : at(v, IN, mine);
    }
    return !v->status;
}

static void let_go(const struct slices *slices)
{
    for (int i = 0; i < slices->n; i++)
        if (slices->links[i])
            release(slices->links[i]);
}

/* sum = all parts, each read once; what is not complete is not divided (AVG). */
static void reduce_slices(const verbs *v, void *sum, const struct slices *slices, size_t count,
                          bool is_complete)
{
    v->reduction->many(sum, slices->parts, slices->n, count, is_complete ? v->n : 1);
}

static __attribute__((noinline)) void reduce_many(verbs *v, const int *ranks, int nranks,
                                                  struct ko_part mine, struct ko_part part,
                                                  bool is_complete)
{
    struct slices slices;

    if (!hold(v, ranks, nranks, mine, &slices))
        return;
    if (v->is_streaming && is_complete && nranks <= KO_MOST_STREAMED)
        reduce_streaming(v, at(v, OUT, part),
                         &(struct ko_parts){slices.parts, nranks, part.count, v->n});
    else
        reduce_slices(v, at(v, OUT, part), &slices, part.count, is_complete);
    let_go(&slices);
}

/* The same bits for two ranks, by a shorter way. */
static inline void reduce_two(verbs *v, int first, int second, struct ko_part mine,
                              struct ko_part part)
{
    complete_with(v, first == v->rank ? second : first, at(v, IN, mine), part, v->is_streaming,
                  first == v->rank);
}

KO_FN void reduce_from(verbs *v, const int *ranks, int nranks, struct ko_part mine,
                       struct ko_part part, bool is_complete)
{
    if (nranks == 2 && is_complete)
        reduce_two(v, ranks ? ranks[0] : 0, ranks ? ranks[1] : 1, mine, part);
    else
        reduce_many(v, ranks, nranks, mine, part, is_complete);
}

/* Into OUT, and where ranks have lent as much; if all have, nobody reads it there. */
static void reduce_slices_into(verbs *v, const struct slices *slices, struct ko_part part)
{
    const struct ko_parts of = {slices->parts, slices->n, part.count, v->n};
    void **outs = v->group->outs;
    int nouts = 0;

    outs[nouts++] = at(v, OUT, part);
    for (int i = 0; i < slices->n; i++)
        if (slices->links[i] && ko_window_is_lent(slices->links[i]))
            outs[nouts++] = slices->links[i]->back;
    if (nouts > 1 && v->n <= KO_MOST_STREAMED) {
        ko_reduce_into(v->reduction, outs, nouts, &of, v->is_large && nouts == v->n);
        return;
    }
    reduce_slices(v, outs[0], slices, part.count, true);
    for (int i = 1; i < nouts; i++)
        ko_copy(outs[i], outs[0], bytes_of(v, part));
}

/* Where all others' windows have room for the sum; false: one has none just now, or has lent. Who
 * waited here would keep what it holds. */
static bool find_rooms(const verbs *v, const struct slices *slices, size_t nbytes, void **rooms)
{
    for (int i = 0; i < slices->n; i++) {
        struct ko_link *link = slices->links[i];

        if (link &&
            (!link->outbox || ko_window_is_lent(link) || link->ops->room(link, nbytes, &rooms[i])))
            return false;
    }
    return !v->held;
}

enum { PIECE_BYTES = 2 << 10 }; /* that leave around the caches: soon, beside what is read */

/* Into OUT around the caches, from where it would have to be read again to be sent, and so into all
 * rooms as well. Moves the slices' pointers. */
static void reduce_slices_out(const verbs *v, const struct slices *slices, struct ko_part part,
                              void *const *rooms)
{
    unsigned char sum[PIECE_BYTES] __attribute__((aligned(64)));
    unsigned char *const out = at(v, OUT, part);
    const size_t end = bytes_of(v, part);
    size_t n;

    for (size_t i = 0; i < end; i += n) {
        n = PIECE_BYTES - (uintptr_t)(out + i) % 64; /* the next one begins with a line */
        n = n < end - i ? n - n % v->element : end - i;
        v->reduction->many(sum, slices->parts, slices->n, n / v->element, v->n);
        ko_copy_streaming_piece(out + i, sum, n);
        for (int k = 0; k < slices->n; k++) {
            if (slices->links[k])
                ko_window_fill(slices->links[k], (unsigned char *)rooms[k] + i, sum, n);
            slices->parts[k] = (const unsigned char *)slices->parts[k] + n;
        }
    }
    ko_copy_streaming_end();
}

/* Whether the link to a peer carries messages; false before it is open, when the longer way does
 * the same. */
static bool has_messages(const verbs *v, int peer)
{
    const struct ko_link *link = v->channel->ports[peer].link;

    return link && link->posts;
}

static void tell_placed(verbs *v, struct ko_link *link, size_t nbytes)
{
    while (look_again(v, link->peer, NEED_ROOM, ko_window_tell_placed(link, &v->stamp, nbytes)))
        ;
}

KO_FN void reduce_for_all(verbs *v, struct ko_part part)
{
    const int peer = around(v->rank + 1, v->n);
    struct slices slices;
    bool is_out;

    if (v->n == 2 && has_messages(v, peer)) {
        recv_reduce_send_all(v, peer, peer, IN, part);
        return;
    }
    if (!hold(v, NULL, v->n, part, &slices))
        return;
    is_out = v->is_streaming && find_rooms(v, &slices, bytes_of(v, part), v->group->outs);
    if (is_out)
        reduce_slices_out(v, &slices, part, v->group->outs);
    else
        reduce_slices_into(v, &slices, part);
    let_go(&slices); /* all of them before the first send, which may wait: as on paper */
    for (int k = 1; k < v->n; k++) {
        const int to = around(v->rank + k, v->n);
        struct ko_link *link = slices.links[to];

        if (is_out)
            commit(v, link, bytes_of(v, part));
        else if (ko_window_is_lent(link))
            tell_placed(v, link, bytes_of(v, part));
        else
            send(v, to, OUT, part);
    }
}

KO_FN void reduce_from_send(verbs *v, const int *ranks, int nranks, int to, struct ko_part mine)
{
    struct ko_link *target = link_to(v, to);
    struct slices slices;
    void *place = NULL;

    if (!hold(v, ranks, nranks, mine, &slices))
        return;
    place = room(v, target, bytes_of(v, mine));
    if (!place)
        return;
    reduce_into_slot(v, target, place, slices.parts, nranks, mine.count);
    let_go(&slices);
    commit(v, target, bytes_of(v, mine));
}

/* ---- verbs of several runs --------------------------------------------------------------- */

KO_FN void send_comb(verbs *v, int to, struct ko_comb comb)
{
    struct ko_link *link = link_to(v, to);
    const size_t nbytes = comb_count(&comb) * v->element;
    unsigned char *place = link ? room(v, link, nbytes) : NULL;

    if (!place)
        return;
    for (size_t i = comb.at; comb.run && i < comb.end; i += comb.stride) {
        const struct ko_part run = run_of(&comb, i);

        ko_copy_short(place, at(v, TMP, run), bytes_of(v, run));
        place += bytes_of(v, run);
    }
    commit(v, link, nbytes);
}

KO_FN void recv_comb(verbs *v, int from, struct ko_comb comb)
{
    struct ko_link *link = link_to(v, from);
    const unsigned char *body = link ? arrived(v, link, comb_count(&comb) * v->element) : NULL;

    if (!body)
        return;
    for (size_t i = comb.at; comb.run && i < comb.end; i += comb.stride) {
        const struct ko_part run = run_of(&comb, i);

        ko_copy_short(at(v, TMP, run), body, bytes_of(v, run));
        body += bytes_of(v, run);
    }
    release(link);
}

#endif
