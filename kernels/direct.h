/* SPDX-License-Identifier: MIT
 *
 * direct.h: collectives in which each message goes straight from its source to its destination.
 * Beside the verbs of ring.h:
 *   send_copy(v, to, part)    IN[part] goes to rank `to`; the text may change it at once
 *   reduce_ranks(v, part)     OUT[part] = IN[part] and one slice received from every other rank,
 *                             reduced in the order of the ranks, complete
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

KO_FN void direct_gather(verbs *v)
{
    const size_t slices = slices_of(v->count, v->slice);

    if (v->rank == v->root)
        keep(v, (struct ko_part){0, v->count},
             (struct ko_part){(size_t)v->rank * v->count, v->count});
    for (size_t s = 0; s < slices; s++) {
        const struct ko_part part = slice_of((struct ko_part){0, v->count}, v->slice, s);

        if (v->rank != v->root)
            send(v, v->root, IN, part);
        else
            for (int k = 1; k < v->n; k++) {
                const int from = around(v->rank + k, v->n);
                const struct ko_part place = {(size_t)from * v->count + part.at, part.count};

                recv(v, from, place);
            }
    }
}

KO_FN void direct_scatter(verbs *v)
{
    const size_t slices = slices_of(v->count, v->slice);

    if (v->rank == v->root)
        keep(v, (struct ko_part){(size_t)v->rank * v->count, v->count},
             (struct ko_part){0, v->count});
    for (size_t s = 0; s < slices; s++) {
        const struct ko_part part = slice_of((struct ko_part){0, v->count}, v->slice, s);

        if (v->rank != v->root)
            recv(v, v->root, part);
        else
            for (int k = 1; k < v->n; k++) {
                const int to = around(v->rank + k, v->n);
                const struct ko_part place = {(size_t)to * v->count + part.at, part.count};

                send(v, to, IN, place);
            }
    }
}

/* In round k everybody sends to the rank k places on, so that no rank is the target of two. */
KO_FN void direct_all_to_all(verbs *v)
{
    const size_t slices = slices_of(v->count, v->slice);
    const size_t own = (size_t)v->rank * v->count;

    keep(v, (struct ko_part){own, v->count}, (struct ko_part){own, v->count});
    for (int k = 1; k < v->n; k++) {
        const int to = around(v->rank + k, v->n), from = around(v->rank - k, v->n);

        for (size_t s = 0; s < slices; s++) {
            const struct ko_part part = slice_of((struct ko_part){0, v->count}, v->slice, s);
            const struct ko_part there = {(size_t)to * v->count + part.at, part.count};
            const struct ko_part here = {(size_t)from * v->count + part.at, part.count};

            send(v, to, IN, there);
            recv(v, from, here);
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
