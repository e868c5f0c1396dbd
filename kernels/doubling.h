/* SPDX-License-Identifier: MIT
 *
 * doubling.h: collectives in which a rank meets log2(n) others, each twice as far away as the one
 * before. They want a power of two; ranks beyond the largest one hand their part in to a rank below
 * it before, and get the result from it afterwards (Thakur, Rabenseifner and Gropp 2005).
 */
#ifndef KO_DOUBLING_H
#define KO_DOUBLING_H

#include "direct.h"

/* The largest power of two that is not above n. */
KO_FN int power_within(int n)
{
    int power = 1;

    while (2 * power <= n)
        power *= 2;
    return power;
}

/* The rank beyond the power of two that this one stands for; -1: none. */
KO_FN int extra_of(const verbs *v, int power)
{
    return v->rank + power < v->n ? v->rank + power : -1;
}

/* Of those who meet: the carriers of a lane (hierarchical.h), or, if it is -1, all ranks. */
KO_FN int doubling_peer(const verbs *v, int lane, int number)
{
    return lane < 0 ? number : rank_at(v->hosts, number, lane);
}

/* Adds up what all that meet have in `mine`. Everybody has everything at every step. */
KO_FN void doubling_slice(verbs *v, int lane, enum buffer mine, struct ko_part part)
{
    const int n = lane < 0 ? v->n : v->hosts->n, power = power_within(n);
    const int me = lane < 0 ? v->rank : v->hosts->host[v->rank];
    const int extra = me + power < n ? doubling_peer(v, lane, me + power) : -1;

    if (me >= power) {
        send(v, doubling_peer(v, lane, me - power), mine, part);
        recv(v, doubling_peer(v, lane, me - power), part);
        return;
    }
    if (extra >= 0) {
        recv_add(v, extra, mine, part, OUT, part);
        mine = OUT;
    }
    for (int far = 1; far < power; far *= 2) {
        const int peer = doubling_peer(v, lane, me ^ far);

        send_copy(v, peer, mine, part);
        if (2 * far < power)
            recv_add(v, peer, mine, part, OUT, part);
        else
            recv_reduce(v, peer, mine, part, part);
        mine = OUT;
    }
    if (extra >= 0)
        send(v, extra, OUT, part);
}

/* In step k everybody swaps its sum so far with the rank 2^k away, and adds what comes: log2(n)
 * steps, the fewest. Beyond a power of two a rank hands its buffer in before, and gets the sum
 * after. */
KO_FN void doubling_all_reduce(verbs *v)
{
    for (size_t s = 0; s < slices_of(v->count, v->slice); s++)
        doubling_slice(v, -1, IN, slice_of((struct ko_part){0, v->count}, v->slice, s));
}

/* Chunks first ... first + n - 1 of `of`. */
KO_FN struct ko_part chunks_of(size_t count, int of, int first, int n)
{
    const struct ko_part from = chunk_of(count, of, first), to = chunk_of(count, of, first + n - 1);
    struct ko_part part = {from.at, to.at + to.count - from.at};

    return part;
}

/* give goes to the peer; keep is joined with the peer's. */
KO_FN void exchange_add(verbs *v, int peer, enum buffer mine, struct ko_part give,
                        struct ko_part keep, bool is_last)
{
    const size_t nout = slices_of(give.count, v->slice), nin = slices_of(keep.count, v->slice);

    for (size_t s = 0; s < nout || s < nin; s++) {
        const struct ko_part part = slice_of(keep, v->slice, s);

        if (s < nout)
            send(v, peer, mine, slice_of(give, v->slice, s));
        if (s < nin && is_last)
            recv_reduce(v, peer, mine, part, part);
        else if (s < nin)
            recv_add(v, peer, mine, part, OUT, part);
    }
}

/* Rabenseifner's: halves go to ever nearer ranks until each has the sum of one chunk, then come
 * back. As few bytes as the ring, in 2 log2(n) steps, where n is a power of two. Beyond one a rank
 * hands its whole buffer in before, and gets the sum after: two steps more, and more bytes. */
KO_FN void halving_all_reduce(verbs *v)
{
    const int power = power_within(v->n), extra = extra_of(v, power);
    const struct ko_part whole = {0, v->count};
    const size_t slices = slices_of(v->count, v->slice);
    enum buffer mine = extra >= 0 ? OUT : IN;
    int first = 0;

    for (size_t s = 0; v->rank >= power && s < slices; s++)
        send(v, v->rank - power, IN, slice_of(whole, v->slice, s));
    for (size_t s = 0; v->rank >= power && s < slices; s++)
        recv(v, v->rank - power, slice_of(whole, v->slice, s));
    if (v->rank >= power)
        return;
    for (size_t s = 0; extra >= 0 && s < slices; s++)
        recv_add(v, extra, IN, slice_of(whole, v->slice, s), OUT, slice_of(whole, v->slice, s));
    for (int far = power / 2; far > 0; far /= 2) {
        const int ours = first + (v->rank & far), theirs = first + (far - (v->rank & far));

        exchange_add(v, v->rank ^ far, mine, chunks_of(v->count, power, theirs, far),
                     chunks_of(v->count, power, ours, far), far == 1);
        mine = OUT;
        first = ours;
    }
    for (int far = 1; far < power; far *= 2) {
        const int theirs = first ^ far;

        exchange(v, v->rank ^ far, OUT, chunks_of(v->count, power, first, far), v->rank ^ far,
                 chunks_of(v->count, power, theirs, far));
        first &= ~far;
    }
    for (size_t s = 0; extra >= 0 && s < slices; s++)
        send(v, extra, OUT, slice_of(whole, v->slice, s));
}

#endif
