/* SPDX-License-Identifier: MIT
 *
 * The public collectives whose blocks may have different lengths.
 */
#include "coll.h"

#include <stdlib.h>

/* Where each block begins if the user says only how long they are. */
static int list_starts(const char *name, const size_t *counts, int n, size_t *starts)
{
    size_t at = 0;

    for (int i = 0; i < n; i++) {
        starts[i] = at;
        if (__builtin_add_overflow(at, counts[i], &at))
            return ko_fail(KOLO_E_INVALID,
                           "%s: rank %d's block of %zu elements, behind %zu of the ranks before "
                           "it, is more than memory has",
                           name, i, counts[i], starts[i]);
    }
    return KOLO_OK;
}

/* starts has room for the list that the user may have left out. */
static int take(const char *name, const kolo_blocks *given, int n, size_t *starts,
                struct ko_blocks *blocks)
{
    if (!given || !given->counts)
        return ko_fail(KOLO_E_INVALID, "%s: %s is NULL", name, given ? "counts" : "blocks");
    *blocks = (struct ko_blocks){0, given->counts, given->starts ? given->starts : starts};
    return given->starts ? KOLO_OK : list_starts(name, given->counts, n, starts);
}

/* A rank's own block goes from one of its buffers to the other: no message tells of its length. */
static int check_own(const struct ko_call *call, int rank)
{
    const size_t *ins = call->in_blocks.counts, *outs = call->out_blocks.counts;
    const size_t from = ins ? ins[rank] : call->count, to = outs ? outs[rank] : call->count;

    if (from == to)
        return KOLO_OK;
    return ko_fail(KOLO_E_INVALID, "%s: this rank's own block has %zu elements in in, %zu in out",
                   ko_call_name(call), from, to);
}

/* in and out: the blocks of each buffer; NULL too where the buffer has none. */
static int fill(struct ko_call *call, const kolo_blocks *in, const kolo_blocks *out,
                const kolo_group *group, size_t *starts)
{
    const char *name = ko_call_name(call);
    const int n = kolo_group_size(group), rank = kolo_group_rank(group);
    int err = KOLO_OK;

    if (ko_has_root(call->what) && call->root != rank)
        return KOLO_OK; /* only the root knows them */
    if (ko_has_blocks(call->what, false))
        err = take(name, in, n, starts, &call->in_blocks);
    if (!err && ko_has_blocks(call->what, true))
        err = take(name, out, n, starts + n, &call->out_blocks);
    if (!err && call->what == KO_ALL_GATHER)
        call->count = out->counts[rank];
    if (!err && call->what == KO_REDUCE_SCATTER)
        call->count = in->counts[rank];
    return err ? err : check_own(call, rank);
}

static int call_blocks(kolo_group *group, struct ko_call *call, const kolo_blocks *in,
                       const kolo_blocks *out, kolo_work **work)
{
    size_t *starts;
    int err;

    call->is_uneven = true;
    if (!group)
        return ko_fail(KOLO_E_INVALID, "%s: group is NULL", ko_call_name(call));
    starts = ko_alloc(2 * (size_t)kolo_group_size(group) * sizeof *starts, "lists of blocks");
    if (!starts)
        return KOLO_E_NOMEM;
    err = fill(call, in, out, group, starts);
    if (!err)
        err = ko_coll_call(group, call, work);
    free(starts);
    return err;
}

static int start_blocks(kolo_group *group, struct ko_call *call, const kolo_blocks *in,
                        const kolo_blocks *out, kolo_work **work)
{
    call->is_uneven = true;
    if (!work)
        return ko_fail(KOLO_E_INVALID, "%s_async: work is NULL", ko_call_name(call));
    return call_blocks(group, call, in, out, work);
}

int kolo_all_gather_v(kolo_group *group, const void *in, void *out, const kolo_blocks *blocks,
                      kolo_dtype dtype)
{
    struct ko_call call = {.what = KO_ALL_GATHER, .in = in, .out = out, .dtype = dtype};

    return call_blocks(group, &call, NULL, blocks, NULL);
}

int kolo_all_gather_v_async(kolo_group *group, const void *in, void *out, const kolo_blocks *blocks,
                            kolo_dtype dtype, kolo_work **work)
{
    struct ko_call call = {.what = KO_ALL_GATHER, .in = in, .out = out, .dtype = dtype};

    return start_blocks(group, &call, NULL, blocks, work);
}

int kolo_reduce_scatter_v(kolo_group *group, const void *in, const kolo_blocks *blocks, void *out,
                          kolo_dtype dtype, kolo_op op)
{
    struct ko_call call = {
        .what = KO_REDUCE_SCATTER, .in = in, .out = out, .dtype = dtype, .op = op};

    return call_blocks(group, &call, blocks, NULL, NULL);
}

// NOLINTNEXTLINE(readability-function-size): the public signature
int kolo_reduce_scatter_v_async(kolo_group *group, const void *in, const kolo_blocks *blocks,
                                void *out, kolo_dtype dtype, kolo_op op, kolo_work **work)
{
    struct ko_call call = {
        .what = KO_REDUCE_SCATTER, .in = in, .out = out, .dtype = dtype, .op = op};

    return start_blocks(group, &call, blocks, NULL, work);
}

// NOLINTNEXTLINE(readability-function-size): the public signature
int kolo_gather_v(kolo_group *group, const void *in, size_t count, void *out,
                  const kolo_blocks *blocks, kolo_dtype dtype, int root)
{
    struct ko_call call = {
        .what = KO_GATHER, .in = in, .out = out, .count = count, .dtype = dtype, .root = root};

    return call_blocks(group, &call, NULL, blocks, NULL);
}

// NOLINTNEXTLINE(readability-function-size): the public signature
int kolo_gather_v_async(kolo_group *group, const void *in, size_t count, void *out,
                        const kolo_blocks *blocks, kolo_dtype dtype, int root, kolo_work **work)
{
    struct ko_call call = {
        .what = KO_GATHER, .in = in, .out = out, .count = count, .dtype = dtype, .root = root};

    return start_blocks(group, &call, NULL, blocks, work);
}

// NOLINTNEXTLINE(readability-function-size): the public signature
int kolo_scatter_v(kolo_group *group, const void *in, const kolo_blocks *blocks, void *out,
                   size_t count, kolo_dtype dtype, int root)
{
    struct ko_call call = {
        .what = KO_SCATTER, .in = in, .out = out, .count = count, .dtype = dtype, .root = root};

    return call_blocks(group, &call, blocks, NULL, NULL);
}

// NOLINTNEXTLINE(readability-function-size): the public signature
int kolo_scatter_v_async(kolo_group *group, const void *in, const kolo_blocks *blocks, void *out,
                         size_t count, kolo_dtype dtype, int root, kolo_work **work)
{
    struct ko_call call = {
        .what = KO_SCATTER, .in = in, .out = out, .count = count, .dtype = dtype, .root = root};

    return start_blocks(group, &call, blocks, NULL, work);
}

int kolo_all_to_all_v(kolo_group *group, const void *in, const kolo_blocks *in_blocks, void *out,
                      const kolo_blocks *out_blocks, kolo_dtype dtype)
{
    struct ko_call call = {.what = KO_ALL_TO_ALL, .in = in, .out = out, .dtype = dtype};

    return call_blocks(group, &call, in_blocks, out_blocks, NULL);
}

// NOLINTNEXTLINE(readability-function-size): the public signature
int kolo_all_to_all_v_async(kolo_group *group, const void *in, const kolo_blocks *in_blocks,
                            void *out, const kolo_blocks *out_blocks, kolo_dtype dtype,
                            kolo_work **work)
{
    struct ko_call call = {.what = KO_ALL_TO_ALL, .in = in, .out = out, .dtype = dtype};

    return start_blocks(group, &call, in_blocks, out_blocks, work);
}
