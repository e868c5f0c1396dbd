/* SPDX-License-Identifier: MIT
 *
 * A part of a block is read before the block's result is written, or in the loop that writes it:
 * so out may be any of the parts.
 */
#include "reduce_blocks.h"

#include <stdalign.h>
#include <string.h>

enum { MOST = 4, BLOCK_BYTES = 4096 };

static int most_of(const struct ko_folds *folds)
{
    return folds->four ? MOST : 2;
}

static void fold(const struct ko_kernels *kernels, const struct ko_folds *folds,
                 const struct ko_parts *of)
{
    const void *const *x = of->parts;

    if (of->n == 4)
        folds->four(of->out, x[0], x[1], x[2], x[3], of->count);
    else if (of->n == 3)
        folds->three(of->out, x[0], x[1], x[2], of->count);
    else if (of->n == 2)
        folds->two(of->out, x[0], x[1], of->count);
    else if (of->out != x[0] && of->count)
        memcpy(of->out, x[0], of->count * kernels->nwide);
}

/* What is to be folded for a part: itself, or its widened form in room. */
static const void *fetch(const struct ko_kernels *kernels, const void *part, void *room,
                         size_t count)
{
    if (!kernels->widen)
        return part;
    kernels->widen(room, part, count);
    return room;
}

/* The elements at ... at + count, which are no more than a block. */
static void reduce_block(const struct ko_kernels *kernels, const struct ko_parts *all, size_t at,
                         size_t count)
{
    alignas(64) char room[MOST][BLOCK_BYTES];
    const void *x[MOST];
    const size_t offset = at * kernels->nbytes;
    void *out = (char *)all->out + offset;
    void *sum = kernels->narrow ? room[0] : out;
    const int most = most_of(kernels->folds);
    int taken = 1;

    x[0] = fetch(kernels, (const char *)all->parts[0] + offset, room[0], count);
    do {
        struct ko_parts some = {.parts = x, .n = 1, .count = count};

        for (; some.n < most && taken < all->n; taken++, some.n++)
            x[some.n] =
                fetch(kernels, (const char *)all->parts[taken] + offset, room[some.n], count);
        some.out = taken < all->n ? room[0] : sum;
        fold(kernels, kernels->folds, &some);
        x[0] = some.out;
    } while (taken < all->n);
    if (kernels->divide)
        kernels->divide(sum, count, all->nranks);
    if (kernels->narrow)
        kernels->narrow(out, sum, count);
}

void ko_reduce_parts(const struct ko_kernels *kernels, const struct ko_parts *parts)
{
    const size_t block = BLOCK_BYTES / kernels->nwide;

    if (kernels->direct && parts->n > 1 && parts->n <= most_of(kernels->direct)) {
        fold(kernels, kernels->direct, parts);
        return;
    }
    for (size_t at = 0; at < parts->count; at += block)
        reduce_block(kernels, parts, at, parts->count - at < block ? parts->count - at : block);
}
