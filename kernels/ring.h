/* SPDX-License-Identifier: MIT
 *
 * ring.h: collectives on a ring of n ranks; each sends to the next only. Written in verbs; include
 * it after a header that gives the verbs a body (on a host, on a device, on paper).
 *
 * The verbs, each about one slice (`part` of the call's buffers, of at most v->slice elements):
 *   send(v, to, IN|OUT, part)              what lies there goes to rank `to`
 *   recv(v, from, part)                    OUT[part] = received
 *   recv_send(v, from, to, part)           the same, and passes it on
 *   recv_reduce_send(v, from, to, IN|OUT, mine)
 *                                          passes on received op what lies there
 *   recv_reduce(v, from, IN|OUT, mine, part)
 *                                          OUT[part] = received op what lies there, complete
 *   recv_reduce_send_all(v, from, to, IN|OUT, part)
 *                                          the same with part for mine, and passes it on
 *   keep(v, mine, part)                    OUT[part] = IN[mine]
 *
 * A part that is sent from IN or OUT is left alone by the text until its last use by the receivers
 * has come back around the ring.
 */
#ifndef KO_RING_H
#define KO_RING_H

#include "chunk.h"

/* Reduce-scatter, then all-gather, both once around: chunk c starts at rank c, gathers a
 * contribution at each rank, is complete at rank c - 1 after n - 1 hops, and goes around once more.
 * Sends 2 (n - 1) / n of the buffer per rank, the least possible. */
KO_FN void ring_all_reduce(verbs *v)
{
    const int n = v->n, next = around(v->rank + 1, n), prev = around(v->rank - 1, n);
    const size_t slices = slices_of(chunk_of(v->count, n, 0).count, v->slice);

    for (size_t s = 0; s < slices; s++) {
#define SLICE(chunk) slice_of(chunk_of(v->count, n, around(chunk, n)), v->slice, s)
        send(v, next, IN, SLICE(v->rank));
        for (int k = 1; k < n - 1; k++)
            recv_reduce_send(v, prev, next, IN, SLICE(v->rank - k));
        recv_reduce_send_all(v, prev, next, IN, SLICE(v->rank + 1));
        for (int k = 0; k < n - 2; k++)
            recv_send(v, prev, next, SLICE(v->rank - k));
        recv(v, prev, SLICE(v->rank + 2));
#undef SLICE
    }
}

/* Block c of IN starts at rank c + 1 and is complete at its owner c. */
KO_FN void ring_reduce_scatter(verbs *v)
{
    const int n = v->n, next = around(v->rank + 1, n), prev = around(v->rank - 1, n);
    const size_t slices = slices_of(longest_of(&v->in_blocks, n), v->slice);

    for (size_t s = 0; s < slices; s++) {
        const struct ko_part part = slice_of((struct ko_part){0, v->count}, v->slice, s);
#define SLICE(block) slice_of(block_of(&v->in_blocks, around(block, n)), v->slice, s)
        send(v, next, IN, SLICE(v->rank - 1));
        for (int k = 2; k < n; k++)
            recv_reduce_send(v, prev, next, IN, SLICE(v->rank - k));
        recv_reduce(v, prev, IN, SLICE(v->rank), part);
#undef SLICE
    }
}

/* Block c of OUT starts at its owner and stops at the rank before it. */
KO_FN void ring_all_gather(verbs *v)
{
    const int n = v->n, next = around(v->rank + 1, n), prev = around(v->rank - 1, n);
    const size_t slices = slices_of(longest_of(&v->out_blocks, n), v->slice);

    for (size_t s = 0; s < slices; s++) {
        const struct ko_part part = slice_of((struct ko_part){0, v->count}, v->slice, s);
#define SLICE(block) slice_of(block_of(&v->out_blocks, around(block, n)), v->slice, s)
        send(v, next, IN, part);
        keep(v, part, SLICE(v->rank));
        for (int k = 1; k < n - 1; k++)
            recv_send(v, prev, next, SLICE(v->rank - k));
        recv(v, prev, SLICE(v->rank + 1));
#undef SLICE
    }
}

/* A chain from the root to the rank before it, one slice behind the other. */
KO_FN void ring_broadcast(verbs *v)
{
    const int n = v->n, next = around(v->rank + 1, n), prev = around(v->rank - 1, n);
    const size_t slices = slices_of(v->count, v->slice);

    for (size_t s = 0; s < slices; s++) {
        const struct ko_part part = slice_of((struct ko_part){0, v->count}, v->slice, s);

        if (v->rank == v->root)
            send(v, next, OUT, part);
        else if (next == v->root)
            recv(v, prev, part);
        else
            recv_send(v, prev, next, part);
    }
}

/* A chain from the rank after the root to the root, adding up on the way. */
KO_FN void ring_reduce(verbs *v)
{
    const int n = v->n, next = around(v->rank + 1, n), prev = around(v->rank - 1, n);
    const size_t slices = slices_of(v->count, v->slice);

    for (size_t s = 0; s < slices; s++) {
        const struct ko_part part = slice_of((struct ko_part){0, v->count}, v->slice, s);

        if (v->rank == v->root)
            recv_reduce(v, prev, IN, part, part);
        else if (prev == v->root)
            send(v, next, IN, part);
        else
            recv_reduce_send(v, prev, next, IN, part);
    }
}

#endif
