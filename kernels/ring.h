/* SPDX-License-Identifier: MIT
 *
 * ring.h: collectives on a ring of n ranks; each sends to the next only, or, both ways, to the
 * next and to the one before. verbs.h says what the verbs do.
 */
#ifndef KO_RING_H
#define KO_RING_H

#include "verbs.h"

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

/* Slice s of chunk i of n of a half. */
KO_FN struct ko_part half_slice(struct ko_part half, int n, int i, size_t slice, size_t s)
{
    struct ko_part chunk = chunk_of(half.count, n, i);

    chunk.at += half.at;
    return slice_of(chunk, slice, s);
}

/* Two rings at once, one in each direction, each with half of the buffer: wires that carry both
 * directions at full speed are used twice. */
KO_FN void ring_both_all_reduce(verbs *v)
{
    const int n = v->n, next = around(v->rank + 1, n), prev = around(v->rank - 1, n);
    const struct ko_part half[2] = {chunk_of(v->count, 2, 0), chunk_of(v->count, 2, 1)};
    const size_t slices = slices_of(chunk_of(half[0].count, n, 0).count, v->slice);

    for (size_t s = 0; s < slices; s++) {
#define SLICE(which, chunk) half_slice(half[which], n, around(chunk, n), v->slice, s)
        send(v, next, IN, SLICE(0, v->rank));
        send(v, prev, IN, SLICE(1, v->rank));
        for (int k = 1; k < n - 1; k++) {
            recv_reduce_send(v, prev, next, IN, SLICE(0, v->rank - k));
            recv_reduce_send(v, next, prev, IN, SLICE(1, v->rank + k));
        }
        recv_reduce_send_all(v, prev, next, IN, SLICE(0, v->rank + 1));
        recv_reduce_send_all(v, next, prev, IN, SLICE(1, v->rank - 1));
        for (int k = 0; k < n - 2; k++) {
            recv_send(v, prev, next, SLICE(0, v->rank - k));
            recv_send(v, next, prev, SLICE(1, v->rank + k));
        }
        recv(v, prev, SLICE(0, v->rank + 2));
        recv(v, next, SLICE(1, v->rank - 2));
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

/* The first half of each block goes one way around, the second the other. */
KO_FN void ring_both_all_gather(verbs *v)
{
    const int n = v->n, next = around(v->rank + 1, n), prev = around(v->rank - 1, n);
    const struct ko_part mine = {0, v->count};
    const size_t slices = slices_of(chunk_of(longest_of(&v->out_blocks, n), 2, 0).count, v->slice);

    keep(v, mine, block_of(&v->out_blocks, v->rank));
    for (size_t s = 0; s < slices; s++) {
#define SLICE(which, block) \
    half_slice(block_of(&v->out_blocks, around(block, n)), 2, which, v->slice, s)
        send(v, next, IN, half_slice(mine, 2, 0, v->slice, s));
        send(v, prev, IN, half_slice(mine, 2, 1, v->slice, s));
        for (int k = 1; k < n - 1; k++) {
            recv_send(v, prev, next, SLICE(0, v->rank - k));
            recv_send(v, next, prev, SLICE(1, v->rank + k));
        }
        recv(v, prev, SLICE(0, v->rank + 1));
        recv(v, next, SLICE(1, v->rank - 1));
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

/* van de Geijn's, with a ring: the root deals a chunk out to each rank, and the chunks go once
 * around. Nobody gets a byte twice, and the root sends less than twice the buffer. Nobody sends to
 * the root, which has all chunks already. */
KO_FN void scatter_broadcast(verbs *v)
{
    const int n = v->n, next = around(v->rank + 1, n), prev = around(v->rank - 1, n);
    const bool is_root = v->rank == v->root;
    const size_t slices = slices_of(chunk_of(v->count, n, 0).count, v->slice);

    for (size_t s = 0; s < slices; s++) {
#define SLICE(chunk) slice_of(chunk_of(v->count, n, around(chunk, n)), v->slice, s)
        for (int k = 1; is_root && k < n; k++)
            send(v, around(v->rank + k, n), OUT, SLICE(v->rank + k));
        if (!is_root)
            recv(v, v->root, SLICE(v->rank));
        for (int k = 0; k < n - 1; k++) {
            if (k > 0 && !is_root)
                recv(v, prev, SLICE(v->rank - k));
            if (next != v->root)
                send(v, next, OUT, SLICE(v->rank - k));
        }
        if (!is_root)
            recv(v, prev, SLICE(v->rank + 1));
#undef SLICE
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
