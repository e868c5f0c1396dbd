/* SPDX-License-Identifier: MIT
 *
 * chunk.h: how a buffer is cut. A chunk is one rank's share of a buffer that the text divides; a
 * block is one rank's share of a buffer that the caller has divided. A slice is what one slot of a
 * link carries. Slice s of a chunk may be empty: ranks send empty slices too, so that all take the
 * same number of steps.
 */
#ifndef KO_CHUNK_H
#define KO_CHUNK_H

#include "portable.h"

/* What a verb reads or writes: the caller's buffers, and memory of the library's own that lasts as
 * long as the call. */
enum buffer { IN, OUT, TMP };

/* count elements from element `at` of a buffer. */
struct ko_part {
    size_t at;
    size_t count;
};

/* Runs of `run` elements, one every `stride`, from `at` on and before `end`. */
struct ko_comb {
    size_t at, run, stride, end;
};

/* The run that begins at `at`, which may be cut short by the end. */
KO_FN struct ko_part run_of(const struct ko_comb *comb, size_t at)
{
    struct ko_part part = {at, comb->end - at < comb->run ? comb->end - at : comb->run};

    return part;
}

KO_FN size_t comb_count(const struct ko_comb *comb)
{
    size_t count = 0;

    for (size_t at = comb->at; comb->run && at < comb->end; at += comb->stride)
        count += run_of(comb, at).count;
    return count;
}

/* Share i of n of count elements: the first count % n shares have one more than the rest. */
KO_FN struct ko_part chunk_of(size_t count, int n, int i)
{
    size_t ranks = (size_t)n, index = (size_t)i;
    size_t least = count / ranks, more = count % ranks;
    struct ko_part part = {index * least + (index < more ? index : more),
                           least + (index < more ? 1 : 0)};
    return part;
}

/* The ranks' blocks in a buffer. */
struct ko_blocks {
    size_t count;         /* of each block, if counts is NULL: they then lie one behind the other */
    const size_t *counts; /* by rank */
    const size_t *starts; /* by rank: where each begins */
};

KO_FN struct ko_part block_of(const struct ko_blocks *blocks, int i)
{
    const size_t index = (size_t)i;
    struct ko_part part = {index * blocks->count, blocks->count};

    if (blocks->counts) {
        part.at = blocks->starts[index];
        part.count = blocks->counts[index];
    }
    return part;
}

/* The longest of n blocks. */
KO_FN size_t longest_of(const struct ko_blocks *blocks, int n)
{
    size_t longest = blocks->counts ? 0 : blocks->count;

    for (int i = 0; blocks->counts && i < n; i++)
        longest = blocks->counts[i] > longest ? blocks->counts[i] : longest;
    return longest;
}

KO_FN struct ko_part slice_of(struct ko_part chunk, size_t slice, size_t s)
{
    size_t skip = s * slice < chunk.count ? s * slice : chunk.count;
    size_t left = chunk.count - skip;
    struct ko_part part = {chunk.at + skip, left < slice ? left : slice};
    return part;
}

/* How many slices the longest chunk needs; one even for nothing, so that the ranks still meet. */
KO_FN size_t slices_of(size_t count, size_t slice)
{
    return count <= slice ? 1 : (count - 1) / slice + 1; /* most often without a division */
}

/* i modulo n, for i >= -n. */
KO_FN int around(int i, int n)
{
    if (i < 0)
        i += n;
    while (i >= n) /* once at most, as the texts are */
        i -= n;
    return i;
}

#endif
