/* SPDX-License-Identifier: MIT
 *
 * direct.h: collectives in which each message goes straight from its source to its destination.
 * verbs.h says what the verbs do.
 */
#ifndef KO_DIRECT_H
#define KO_DIRECT_H

#include "verbs.h"

/* Everybody sends everything to everybody: one hop, (n - 1) of the buffer sent per rank. For short
 * buffers, where the hops are what costs. */
KO_FN void one_shot_all_reduce(verbs *v)
{
    const size_t slices = slices_of(v->count, v->slice);

    for (size_t s = 0; s < slices; s++) {
        const struct ko_part part = slice_of((struct ko_part){0, v->count}, v->slice, s);

        for (int k = 1; k < v->n; k++)
            send_copy(v, around(v->rank + k, v->n), IN, part);
        reduce_from(v, NULL, v->n, part, part, true);
    }
}

/* Rank r sums up chunk r of everybody and gives the sum to everybody: two hops, as few bytes as the
 * ring, and the order of the ranks in every sum. In memory that all share the sum is written to
 * everybody's OUT at once: each element is read once and written once for each rank, by one. */
KO_FN void two_shot_all_reduce(verbs *v)
{
    const size_t slices = slices_of(chunk_of(v->count, v->n, 0).count, v->slice);

    for (size_t s = 0; s < slices; s++) {
#define SLICE(chunk) slice_of(chunk_of(v->count, v->n, around(chunk, v->n)), v->slice, s)
        for (int k = 1; k < v->n; k++)
            lend(v, around(v->rank + k, v->n), SLICE(v->rank + k));
        reduce_for_all(v, SLICE(v->rank));
        for (int k = 1; k < v->n; k++)
            recv(v, around(v->rank - k, v->n), SLICE(v->rank - k));
#undef SLICE
    }
}

/* The root reads everybody's buffer. */
KO_FN void direct_reduce(verbs *v)
{
    const size_t slices = slices_of(v->count, v->slice);

    for (size_t s = 0; s < slices; s++) {
        const struct ko_part part = slice_of((struct ko_part){0, v->count}, v->slice, s);

        if (v->rank == v->root)
            reduce_from(v, NULL, v->n, part, part, true);
        else
            send(v, v->root, IN, part);
    }
}

/* Everybody reads its block of everybody. */
KO_FN void direct_reduce_scatter(verbs *v)
{
    const size_t slices = slices_of(longest_of(&v->in_blocks, v->n), v->slice);

    for (size_t s = 0; s < slices; s++) {
#define SLICE(rank) slice_of(block_of(&v->in_blocks, rank), v->slice, s)
        for (int k = 1; k < v->n; k++) {
            const int to = around(v->rank + k, v->n);

            send(v, to, IN, SLICE(to));
        }
        reduce_from(v, NULL, v->n, SLICE(v->rank),
                    slice_of((struct ko_part){0, v->count}, v->slice, s), true);
#undef SLICE
    }
}

/* The root sends everything to everybody. */
KO_FN void direct_broadcast(verbs *v)
{
    const size_t slices = slices_of(v->count, v->slice);

    for (size_t s = 0; s < slices; s++) {
        const struct ko_part part = slice_of((struct ko_part){0, v->count}, v->slice, s);

        if (v->rank != v->root)
            recv(v, v->root, part);
        else
            for (int k = 1; k < v->n; k++)
                send(v, around(v->rank + k, v->n), OUT, part);
    }
}

/* Everybody sends its block to everybody. Each slice is kept first: the other way round, by
 * measurement, what has been sent is no sooner there. */
KO_FN void direct_all_gather(verbs *v)
{
    const struct ko_part mine = {0, v->count}, own = block_of(&v->out_blocks, v->rank);
    const size_t slices = slices_of(longest_of(&v->out_blocks, v->n), v->slice);

    for (size_t s = 0; s < slices; s++) {
        keep(v, slice_of(mine, v->slice, s), slice_of(own, v->slice, s));
        for (int k = 1; k < v->n; k++)
            send(v, around(v->rank + k, v->n), IN, slice_of(mine, v->slice, s));
        for (int k = 1; k < v->n; k++) {
            const int from = around(v->rank - k, v->n);

            recv(v, from, slice_of(block_of(&v->out_blocks, from), v->slice, s));
        }
    }
}

/* Everybody sends its block to the root, which keeps a slice of its own while the others fill the
 * slots again. */
KO_FN void direct_gather(verbs *v)
{
    const struct ko_part mine = {0, v->count};
    const size_t slices = slices_of(longest_of(&v->out_blocks, v->n), v->slice);

    if (v->rank != v->root) {
        for (size_t s = 0; s < slices_of(v->count, v->slice); s++)
            send(v, v->root, IN, slice_of(mine, v->slice, s));
        return;
    }
    for (size_t s = 0; s < slices; s++) {
        keep(v, slice_of(mine, v->slice, s),
             slice_of(block_of(&v->out_blocks, v->rank), v->slice, s));
        for (int k = 1; k < v->n; k++) {
            const int from = around(v->rank + k, v->n);
            const struct ko_part block = block_of(&v->out_blocks, from);

            if (s < slices_of(block.count, v->slice))
                recv(v, from, slice_of(block, v->slice, s));
        }
    }
}

/* The root sends everybody its block. */
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

/* out goes to one rank, in comes from one, slice by slice in turn. */
KO_FN void exchange(verbs *v, int to, enum buffer buffer, struct ko_part out, int from,
                    struct ko_part in)
{
    const size_t nout = slices_of(out.count, v->slice), nin = slices_of(in.count, v->slice);

    for (size_t s = 0; s < nout || s < nin; s++) {
        if (s < nout)
            send(v, to, buffer, slice_of(out, v->slice, s));
        if (s < nin)
            recv(v, from, slice_of(in, v->slice, s));
    }
}

/* In round k everybody sends to the rank k places on, so that no rank is the target of two. */
KO_FN void pairwise_all_to_all(verbs *v)
{
    keep(v, block_of(&v->in_blocks, v->rank), block_of(&v->out_blocks, v->rank));
    for (int k = 1; k < v->n; k++) {
        const int to = around(v->rank + k, v->n), from = around(v->rank - k, v->n);

        exchange(v, to, IN, block_of(&v->in_blocks, to), from, block_of(&v->out_blocks, from));
    }
}

/* All peers at once, a slice of each block in turn. */
KO_FN void direct_all_to_all(verbs *v)
{
    const size_t most_out = longest_of(&v->in_blocks, v->n);
    const size_t most_in = longest_of(&v->out_blocks, v->n);
    const size_t slices = slices_of(most_out > most_in ? most_out : most_in, v->slice);

    keep(v, block_of(&v->in_blocks, v->rank), block_of(&v->out_blocks, v->rank));
    for (size_t s = 0; s < slices; s++) {
        for (int k = 1; k < v->n; k++) {
            const int to = around(v->rank + k, v->n);
            const struct ko_part block = block_of(&v->in_blocks, to);

            if (s < slices_of(block.count, v->slice))
                send(v, to, IN, slice_of(block, v->slice, s));
        }
        for (int k = 1; k < v->n; k++) {
            const int from = around(v->rank - k, v->n);
            const struct ko_part block = block_of(&v->out_blocks, from);

            if (s < slices_of(block.count, v->slice))
                recv(v, from, slice_of(block, v->slice, s));
        }
    }
}

/* Everybody tells everybody: one hop. */
KO_FN void direct_barrier(verbs *v)
{
    const struct ko_part nothing = {0, 0};

    for (int k = 1; k < v->n; k++)
        send(v, around(v->rank + k, v->n), IN, nothing);
    for (int k = 1; k < v->n; k++)
        recv(v, around(v->rank - k, v->n), nothing);
}

/* Dissemination: after round k each rank has heard, through others, of 2^(k+1) ranks before it. */
KO_FN void dissemination_barrier(verbs *v)
{
    const struct ko_part nothing = {0, 0};

    for (int k = 1; k < v->n; k *= 2) {
        send(v, around(v->rank + k, v->n), IN, nothing);
        recv(v, around(v->rank - k, v->n), nothing);
    }
}

#endif
