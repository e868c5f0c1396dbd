/* SPDX-License-Identifier: MIT
 *
 * bruck.h: Bruck's algorithms (Bruck et al. 1997): log2(n) steps for any n, with all blocks of a
 * step in one message. They work in TMP, where a rank's own block is the first, and turn what they
 * begin or end with: for short blocks.
 */
#ifndef KO_BRUCK_H
#define KO_BRUCK_H

#include "verbs.h"

/* After step k a rank has the blocks of the 2^(k+1) ranks from itself on. */
KO_FN void bruck_all_gather(verbs *v)
{
    const struct ko_part mine = {0, v->count};

    scratch(v, (size_t)v->n * v->count);
    move(v, IN, mine, TMP, mine);
    for (int have = 1; have < v->n; have *= 2) {
        const int more = have < v->n - have ? have : v->n - have;
        const int to = around(v->rank - have, v->n), from = around(v->rank + have, v->n);
        const struct ko_part out = {0, (size_t)more * v->count};
        const struct ko_part in = {(size_t)have * v->count, (size_t)more * v->count};

        for (size_t s = 0; s < slices_of(out.count, v->slice); s++) {
            send(v, to, TMP, slice_of(out, v->slice, s));
            recv_to(v, from, TMP, slice_of(in, v->slice, s));
        }
    }
    for (int i = 0; i < v->n; i++)
        move(v, TMP, (struct ko_part){(size_t)i * v->count, v->count}, OUT,
             block_of(&v->out_blocks, around(v->rank + i, v->n)));
}

/* The steps of Bruck's all_gather backwards: blocks go to where they came from there, and are added
 * up. A rank keeps them by distance: as number i, in TMP, the one for the rank i ranks on. */
KO_FN void bruck_reduce_scatter(verbs *v)
{
    const size_t block = v->count;
    int have = 1;

    scratch(v, (size_t)v->n * block);
    for (int i = 0; i < v->n; i++)
        move(v, IN, block_of(&v->in_blocks, around(v->rank + i, v->n)), TMP,
             (struct ko_part){(size_t)i * block, block});
    while (2 * have < v->n)
        have *= 2;
    for (; have > 0; have /= 2) {
        const int more = have < v->n - have ? have : v->n - have;
        const int to = around(v->rank + have, v->n), from = around(v->rank - have, v->n);
        const struct ko_part out = {(size_t)have * block, (size_t)more * block};
        const struct ko_part in = {0, (size_t)more * block};

        for (size_t s = 0; s < slices_of(out.count, v->slice); s++) {
            const struct ko_part mine = slice_of(in, v->slice, s);

            send(v, to, TMP, slice_of(out, v->slice, s));
            if (have > 1)
                recv_add(v, from, TMP, mine, TMP, mine);
            else
                recv_reduce(v, from, TMP, mine, mine);
        }
    }
}

/* Block i has to go i ranks on: in step k, 2^k of them if bit k of i is set. A message has half of
 * all blocks, which must fit into one slice. */
KO_FN void bruck_all_to_all(verbs *v)
{
    scratch(v, (size_t)v->n * v->count);
    for (int i = 0; i < v->n; i++)
        move(v, IN, block_of(&v->in_blocks, around(v->rank + i, v->n)), TMP,
             (struct ko_part){(size_t)i * v->count, v->count});
    for (int far = 1; far < v->n; far *= 2) {
        const struct ko_comb comb = {.at = (size_t)far * v->count,
                                     .run = (size_t)far * v->count,
                                     .stride = 2 * (size_t)far * v->count,
                                     .end = (size_t)v->n * v->count};

        send_comb(v, around(v->rank + far, v->n), comb);
        recv_comb(v, around(v->rank - far, v->n), comb);
    }
    for (int i = 0; i < v->n; i++)
        move(v, TMP, (struct ko_part){(size_t)i * v->count, v->count}, OUT,
             block_of(&v->out_blocks, around(v->rank - i, v->n)));
}

#endif
