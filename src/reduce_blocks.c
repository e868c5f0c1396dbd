/* SPDX-License-Identifier: MIT
 *
 * A part of a block is read before the block's result is written, or in the loop that writes it:
 * so out may be any of the parts.
 */
#include "reduce_blocks.h"

#include "copy.h"

#include <assert.h>
#include <stdalign.h>
#include <stdint.h>
#include <string.h>

/* What is copied out goes in smaller blocks, so that reading the next one begins before. */
enum { MOST = KO_MOST_AT_ONCE, BLOCK_BYTES = 2048, OUT_BYTES = 1024 };

static bool takes(const struct ko_folds *folds, int n)
{
    return n == 2 || (n > 2 && n <= MOST && folds->of[n]);
}

/* The most of n parts that it takes at once. */
static int most_of(const struct ko_folds *folds, int n)
{
    if (n > MOST)
        n = MOST;
    while (n > 1 && !takes(folds, n))
        n--;
    return n;
}

static void fold(const struct ko_folds *folds, size_t nbytes, void *out, const struct ko_parts *of)
{
    const void *const *parts = of->parts;

    if (of->n > 2)
        folds->of[of->n](out, parts, of->count);
    else if (of->n == 2)
        folds->two(out, parts[0], parts[1], of->count);
    else if (out != parts[0])
        ko_copy(out, parts[0], of->count * nbytes);
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
static void reduce_block(const struct ko_kernels *kernels, void *out, const struct ko_parts *all,
                         size_t at, size_t count)
{
    alignas(64) char room[MOST][BLOCK_BYTES];
    const void *x[MOST];
    const size_t offset = at * kernels->nbytes;
    struct ko_parts some = {.parts = x, .count = count};
    void *const sum = kernels->narrow ? room[0] : out;
    int taken = 1;

    x[0] = fetch(kernels, (const char *)all->parts[0] + offset, room[0], count);
    do {
        const int n = most_of(kernels->folds, 1 + all->n - taken);

        for (some.n = 1; some.n < n; taken++, some.n++)
            x[some.n] =
                fetch(kernels, (const char *)all->parts[taken] + offset, room[some.n], count);
        fold(kernels->folds, kernels->nwide, taken < all->n ? room[0] : sum, &some);
        x[0] = room[0];
    } while (taken < all->n);
    if (kernels->divide)
        kernels->divide(sum, count, all->nranks);
    if (kernels->narrow)
        kernels->narrow(out, sum, count);
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

void ko_reduce_parts(const struct ko_kernels *kernels, void *out, const struct ko_parts *of)
{
    const size_t block = BLOCK_BYTES / kernels->nwide;

    if (kernels->direct && takes(kernels->direct, of->n)) {
        fold(kernels->direct, kernels->nbytes, out, of);
        return;
    }
    if (kernels->averages && of->n > 1 && of->n <= MOST) {
        kernels->averages[of->n](out, of->parts, of->count, of->nranks);
        return;
    }
    for (size_t at = 0; at < of->count; at += block)
        reduce_block(kernels, (char *)out + at * kernels->nbytes, of, at,
                     least(block, of->count - at));
}

void ko_scale_wide(const struct ko_kernels *kernels, ko_scale_fn scale, void *out, const void *in,
                   size_t count, double factor)
{
    const size_t block = BLOCK_BYTES / kernels->nwide;
    alignas(64) char wide[BLOCK_BYTES];

    for (size_t at = 0; at < count; at += block) {
        const size_t n = least(block, count - at), offset = at * kernels->nbytes;

        kernels->widen(wide, (const char *)in + offset, n);
        scale(wide, wide, n, factor);
        kernels->narrow((char *)out + offset, wide, n);
    }
}

/* ---- several results, and those that pass the caches -------------------------------------- */

static void write_out(void *to, const void *from, size_t nbytes, bool is_streaming)
{
    if (is_streaming)
        ko_copy_streaming_piece(to, from, nbytes);
    else
        memcpy(to, from, nbytes);
}

/* The next block's lines come while this one leaves: reads and streaming stores that take turns use
 * two thirds of what memory can. */
static void look_ahead(const void *const *parts, int nparts, size_t nbytes)
{
    for (int i = 0; i < nparts; i++)
        for (size_t at = 0; at < OUT_BYTES; at += 64)
            __builtin_prefetch((const char *)parts[i] + nbytes + at);
}

/* Elements of a block that begins at out, such that the next one begins with a line. */
static size_t block_count(const char *out, size_t nbytes)
{
    return (OUT_BYTES - (uintptr_t)out % 64) / nbytes;
}

/* By blocks in the nearest cache. */
static void reduce_by_blocks(const struct ko_reduction *reduction, void *const *outs, int nouts,
                             const struct ko_parts *of, bool is_streaming)
{
    alignas(64) char result[OUT_BYTES];
    const void *parts[KO_MOST_STREAMED];
    size_t count;

    for (size_t at = 0; at < of->count; at += count) {
        const size_t offset = at * reduction->nbytes;
        char *const first = (char *)outs[0] + offset;
        char *const sum = is_streaming ? result : first;

        count = least(block_count(first, reduction->nbytes), of->count - at);
        for (int i = 0; i < of->n; i++)
            parts[i] = (const char *)of->parts[i] + offset;
        reduction->many(sum, parts, of->n, count, of->nranks);
        if (is_streaming)
            look_ahead(parts, of->n, count * reduction->nbytes);
        for (int i = sum == first; i < nouts; i++)
            write_out((char *)outs[i] + offset, sum, count * reduction->nbytes, is_streaming);
    }
}

/* Some elements from byte `at` on. */
static void reduce_edge(const struct ko_reduction *reduction, void *const *outs, int nouts,
                        const struct ko_parts *of, size_t at, size_t count)
{
    const void *parts[KO_MOST_AT_ONCE];

    for (int i = 0; i < of->n; i++)
        parts[i] = (const char *)of->parts[i] + at;
    reduction->many((char *)outs[0] + at, parts, of->n, count, of->nranks);
    for (int i = 1; i < nouts && count; i++)
        memcpy((char *)outs[i] + at, (char *)outs[0] + at, count * reduction->nbytes);
}

/* By lines, each of which leaves as it is made; false: such parts have no loop for that, or the
 * lines of outs are not of the same elements. */
static bool stream_lines(const struct ko_reduction *reduction, void *const *outs, int nouts,
                         const struct ko_parts *of)
{
    const struct ko_folds *folds = reduction->folds;
    const size_t nbytes = reduction->nbytes, head = -(uintptr_t)outs[0] % KO_STREAMED_LINE;
    const size_t nlines =
        of->count * nbytes > head ? (of->count * nbytes - head) / KO_STREAMED_LINE : 0;
    const size_t end = head + nlines * KO_STREAMED_LINE;
    const void *parts[KO_MOST_AT_ONCE];
    void *lines[KO_MOST_AT_ONCE];

    if (!folds || of->n > KO_MOST_AT_ONCE || nouts > KO_MOST_AT_ONCE || !folds->streams[of->n] ||
        !nlines || head % nbytes)
        return false;
    for (int i = 0; i < nouts; i++) {
        lines[i] = (char *)outs[i] + head;
        if ((uintptr_t)lines[i] % KO_STREAMED_LINE)
            return false;
    }
    for (int i = 0; i < of->n; i++)
        parts[i] = (const char *)of->parts[i] + head;
    reduce_edge(reduction, outs, nouts, of, 0, head / nbytes);
    folds->streams[of->n](lines, nouts, parts, nlines);
    reduce_edge(reduction, outs, nouts, of, end, of->count - end / nbytes);
    return true;
}

void ko_reduce_into(const struct ko_reduction *reduction, void *const *outs, int nouts,
                    const struct ko_parts *of, bool is_streaming)
{
    assert(of->n <= KO_MOST_STREAMED);
    if (!is_streaming || !stream_lines(reduction, outs, nouts, of))
        reduce_by_blocks(reduction, outs, nouts, of, is_streaming);
    if (is_streaming)
        ko_copy_streaming_end();
}
