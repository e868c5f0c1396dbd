/* SPDX-License-Identifier: MIT
 *
 * direct.h: collectives in which each message goes straight from its source to its destination.
 * Beside the verbs of ring.h:
 *   send_copy(v, to, part)    IN[part] goes to rank `to`; the text may change it at once
 *   reduce_from(v, ranks, nranks, part)
 *                             OUT[part] = IN[part] and one slice received from each other rank of
 *                             the list, which has the own rank too, reduced in the list's order;
 *                             complete if these are all ranks; ranks NULL: 0, 1, 2 ...
 *   reduce_ranks(v, part)     the same from all ranks in their order
 */
#ifndef KO_DIRECT_H
#define KO_DIRECT_H

#include "chunk.h"

/* Everybody sends everything to everybody: one hop, (n - 1) of the buffer sent per rank. For short
 * buffers, where the hops are what costs. */
KO_FN void direct_all_reduce(verbs *v)
{
    const size_t slices = slices_of(v->count, v->slice);

    for (size_t s = 0; s < slices; s++) {
        const struct ko_part part = slice_of((struct ko_part){0, v->count}, v->slice, s);

        for (int k = 1; k < v->n; k++)
            send_copy(v, around(v->rank + k, v->n), part);
        reduce_ranks(v, part);
    }
}

/* The root takes a slice of everybody's block in turn, so that all are under way at once. */
KO_FN void direct_gather(verbs *v)
{
    const struct ko_part mine = {0, v->count};
    const size_t slices = slices_of(longest_of(&v->out_blocks, v->n), v->slice);

    if (v->rank != v->root) {
        for (size_t s = 0; s < slices_of(v->count, v->slice); s++)
            send(v, v->root, IN, slice_of(mine, v->slice, s));
        return;
    }
    keep(v, mine, block_of(&v->out_blocks, v->rank));
    for (size_t s = 0; s < slices; s++)
        for (int k = 1; k < v->n; k++) {
            const int from = around(v->rank + k, v->n);
            const struct ko_part block = block_of(&v->out_blocks, from);

            if (s < slices_of(block.count, v->slice))
                recv(v, from, slice_of(block, v->slice, s));
        }
}

KO_FN void direct_scatter(verbs *v)
{
    const struct ko_part mine = {0, v->count};
    const size_t slices = slices_of(longest_of(&v->in_blocks, v->n), v->slice);

    if (v->rank != v->root) {
        for (size_t s = 0; s < slices_of(v->count, v->slice); s++)
            recv(v, v->root, slice_of(mine, v->slice, s));
        return;
    }
    keep(v, block_of(&v->in_blocks, v->rank), mine);
    for (size_t s = 0; s < slices; s++)
        for (int k = 1; k < v->n; k++) {
            const int to = around(v->rank + k, v->n);
            const struct ko_part block = block_of(&v->in_blocks, to);

            if (s < slices_of(block.count, v->slice))
                send(v, to, IN, slice_of(block, v->slice, s));
        }
}

/* In round k everybody sends to the rank k places on, so that no rank is the target of two. */
KO_FN void direct_all_to_all(verbs *v)
{
    keep(v, block_of(&v->in_blocks, v->rank), block_of(&v->out_blocks, v->rank));
    for (int k = 1; k < v->n; k++) {
        const int to = around(v->rank + k, v->n), from = around(v->rank - k, v->n);
        const struct ko_part there = block_of(&v->in_blocks, to);
        const struct ko_part here = block_of(&v->out_blocks, from);
        const size_t nout = slices_of(there.count, v->slice), nin = slices_of(here.count, v->slice);

        for (size_t s = 0; s < nout || s < nin; s++) {
            if (s < nout)
                send(v, to, IN, slice_of(there, v->slice, s));
            if (s < nin)
                recv(v, from, slice_of(here, v->slice, s));
        }
    }
}

/* Dissemination: after round k each rank has heard, through others, of 2^(k+1) ranks before it. */
KO_FN void direct_barrier(verbs *v)
{
    const struct ko_part nothing = {0, 0};

    for (int k = 1; k < v->n; k *= 2) {
        send(v, around(v->rank + k, v->n), IN, nothing);
        recv(v, around(v->rank - k, v->n), nothing);
    }
}

#endif
